//! k-means from several k-means++ starts; the best result is returned.

use super::{Clusters, KMeans, best_of, kmeans_with, seeding};
use crate::cancel::Progress;
use crate::error::Result;
use crate::matrix::{Matrix, Metric};
use serde::Serialize;

/// k-means from several starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MultiStart {
    /// Number of clusters.
    pub k: usize,
    /// The distance; rows must have been prepared for it ([`Metric::prepared`]).
    pub metric: Metric,
    /// Updates of the centroids.
    pub iterations: usize,
    /// Number of starts; the result with the smallest sum of squared distances is returned.
    pub starts: u32,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl MultiStart {
    /// Number of progress steps of one fit.
    pub fn steps(&self) -> usize {
        (self.iterations + 1) * self.starts as usize
    }

    /// The best of all starts.
    pub fn run(&self, features: &Matrix, progress: Progress) -> Result<Clusters> {
        let found = best_of(self.starts, |start| {
            let first = seeding::spread(features, self.k, self.seed, (0, start));
            let settings = KMeans {
                iterations: self.iterations,
                spherical: self.metric == Metric::Cosine,
                start: first.as_ref(),
                seed: self.seed,
                draw: (0, start),
                ..KMeans::new(self.k)
            };
            let before = (self.iterations + 1) * start as usize;
            kmeans_with(features, &settings, &mut |done| progress(before + done, self.steps()))
        })?;
        progress(self.steps(), self.steps())?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::blobs;

    fn fit(k: usize, metric: Metric) -> MultiStart {
        MultiStart { k, metric, iterations: 20, starts: 2, seed: 0 }
    }

    #[test]
    fn separate_groups_are_found() {
        for metric in [Metric::Cosine, Metric::Euclidean] {
            let features = metric.prepared(blobs(12, 15, 16, 0.05, 3));
            let mut told = Vec::new();
            let found = fit(12, metric).run(&features, &mut |done, of| {
                told.push((done, of));
                Ok(())
            });
            let found = found.unwrap();
            for i in 0..features.rows {
                assert_eq!(found.assignment[i], found.assignment[i % 12], "row {i}, {metric:?}");
            }
            assert_eq!(told.last(), Some(&(42, 42)));
            assert!(told.is_sorted());
        }
    }

    #[test]
    fn one_row_all_the_same_and_as_many_clusters_as_rows() {
        let go = |features: &Matrix, k| fit(k, Metric::Euclidean).run(features, &mut |_, _| Ok(()));
        assert_eq!(go(&Matrix::new(2, vec![1.0, 2.0]), 1).unwrap().assignment, [0]);
        let same = Matrix::new(2, [1.0, 2.0].repeat(9));
        assert!(go(&same, 3).unwrap().objective < 1e-6);
        let apart = Matrix::new(1, (0..7).map(|x| x as f32).collect());
        assert_eq!(go(&apart, 7).unwrap().objective, 0.0);
        assert!(go(&apart, 8).unwrap_err().hint.contains("1 to 7"));
        assert!(go(&apart, 0).is_err());
    }
}
