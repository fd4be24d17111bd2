//! Curating anybody's images by anybody's embeddings: clusters, what does not belong to them, labels that are probably wrong,
//! near duplicates, and a folder for every cluster.

pub mod auto;
pub mod centres;
pub mod duplicates;
pub mod labels;
pub mod past;
pub mod reading;
mod start;
pub mod suspects;

use crate::error::Result;
use crate::kmeans::{Clusters, KMeans, kmeans};
use crate::matrix::Matrix;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// What counts as near.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// The angle: rows are scaled to unit length, and so are the centroids of k-means.
    Cosine,
    /// The straight line.
    Euclidean,
}

impl Metric {
    /// `features` as distances are taken between them.
    pub fn prepared(self, mut features: Matrix) -> Matrix {
        if self == Metric::Cosine {
            features.values.par_chunks_mut(features.dim.max(1)).for_each(crate::matrix::normalise);
        }
        features
    }
}

/// How k-means is run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Clusters.
    pub k: usize,
    /// What counts as near; rows are prepared for it.
    pub metric: Metric,
    /// Updates of the centroids.
    pub iterations: usize,
    /// Starts, of which the one with the least sum of squared distances counts.
    pub starts: u32,
    /// Everything random follows from it.
    pub seed: u64,
}

/// Tells how far the work is, as (steps done, steps in all); its error ends the work.
pub type Step<'a> = &'a mut dyn FnMut(usize, usize) -> Result<()>;

impl Fit {
    /// Steps of one fit.
    pub fn steps(&self) -> usize {
        (self.iterations + 1) * self.starts as usize
    }

    /// The best of all starts.
    pub fn run(&self, features: &Matrix, step: Step) -> Result<Clusters> {
        let ids: Vec<u64> = (0..features.rows as u64).collect();
        let mut best: Option<Clusters> = None;
        for start in 0..self.starts.max(1) {
            let first = start::spread(features, self.k, self.seed, (0, start));
            let settings = KMeans {
                k: self.k,
                iterations: self.iterations,
                spherical: self.metric == Metric::Cosine,
                start: first.as_ref(),
            };
            let before = (self.iterations + 1) * start as usize;
            let mut told = |done: usize| step(before + done, self.steps());
            let found = kmeans(features, &ids, &settings, self.seed, 0, start, &mut told)?;
            if best.as_ref().is_none_or(|best| found.objective < best.objective) {
                best = Some(found);
            }
        }
        step(self.steps(), self.steps())?;
        Ok(best.unwrap_or(Clusters {
            assignment: Vec::new(),
            centroids: Matrix::default(),
            distances: Vec::new(),
            objective: 0.0,
        }))
    }
}

/// Some rows of `features`.
pub fn selected(features: &Matrix, rows: &[usize]) -> Matrix {
    let mut values = Vec::with_capacity(rows.len() * features.dim);
    rows.iter().for_each(|row| values.extend_from_slice(features.row(*row)));
    Matrix { rows: rows.len(), dim: features.dim, values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Key, Purpose};

    /// `groups` places in space with `each` rows around every one; row i is of group i % groups.
    pub fn blobs(groups: usize, each: usize, dim: usize, spread: f32, seed: u64) -> Matrix {
        let key = Key { purpose: Purpose::Synthetic, seed, round: 0, epoch: 0 };
        let place = |g: usize| {
            let mut stream = key.stream(g as u64, 1);
            (0..dim).map(|_| stream.normal()).collect::<Vec<f32>>()
        };
        let places: Vec<Vec<f32>> = (0..groups).map(place).collect();
        let row = |i: usize| {
            let mut stream = key.stream(i as u64, 2);
            places[i % groups].iter().map(move |x| x + spread * stream.normal()).collect::<Vec<f32>>()
        };
        Matrix::new(dim, (0..groups * each).flat_map(row).collect())
    }

    fn fit(k: usize, metric: Metric) -> Fit {
        Fit { k, metric, iterations: 20, starts: 2, seed: 0 }
    }

    #[test]
    fn groups_that_are_there_are_found() {
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

    #[test]
    fn the_angle_alone_counts_for_the_cosine() {
        let features = Metric::Cosine.prepared(Matrix::new(2, vec![3.0, 4.0, 30.0, 40.0, 0.0, 0.0]));
        assert_eq!(features.values, [0.6, 0.8, 0.6, 0.8, 0.0, 0.0]);
    }
}
