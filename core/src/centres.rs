//! Centres of purified clusters, and the assignment of new rows to them.

use crate::kmeans;
use crate::matrix::{Matrix, dot, normalise};
use crate::purify::Grouping;
use rayon::prelude::*;

/// For each of `clusters` clusters, the mean of its rows for which `counted` is true (zero where there are none), and how many
/// those are.
pub(crate) fn means(
    features: &Matrix,
    assignment: &[u32],
    clusters: usize,
    counted: &(dyn Fn(usize) -> bool + Sync),
) -> (Matrix, Vec<usize>) {
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); clusters];
    for (row, &cluster) in assignment.iter().enumerate().filter(|(row, _)| counted(*row)) {
        members[cluster as usize].push(row as u32);
    }
    let mut values = vec![0.0f32; clusters * features.dim];
    let mean = |(out, members): (&mut [f32], &Vec<u32>)| {
        let mut sum = vec![0.0f64; out.len()];
        for &row in members {
            sum.iter_mut().zip(features.row(row as usize)).for_each(|(s, x)| *s += f64::from(*x));
        }
        out.iter_mut().zip(sum).for_each(|(o, s)| *o = (s / members.len().max(1) as f64) as f32);
    };
    values.par_chunks_mut(features.dim.max(1)).zip(&members).for_each(mean);
    (Matrix { rows: clusters, dim: features.dim, values }, members.iter().map(Vec::len).collect())
}

/// The purified clusters of a collection.
#[derive(Clone, Debug)]
pub struct Centres {
    /// The number of every cluster that has purified members.
    pub cluster: Vec<u32>,
    /// Their centres.
    pub centres: Matrix,
    /// For each cluster, the distances of its purified members to the centre, ascending.
    distances: Vec<Vec<f32>>,
}

/// The cluster that a new row is assigned to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assigned {
    /// The nearest purified cluster.
    pub cluster: u32,
    /// Euclidean distance to its centre.
    pub distance: f32,
    /// P(cluster | row): the softmax of the cosines with all centres over the temperature, as in Eq. 3.
    pub confidence: f32,
    /// Share of the cluster's purified members that are at least as far from the centre as the row: 0 for a row farther out
    /// than all of them.
    pub fit: f32,
}

impl Centres {
    /// The purified clusters of `grouping`, whose rows are `features`.
    pub fn new(features: &Matrix, grouping: &Grouping) -> Self {
        let clusters = grouping.cluster.iter().max().map_or(0, |c| *c as usize + 1);
        let counted = |row: usize| grouping.status[row].belongs();
        let (means, sizes) = means(features, &grouping.cluster, clusters, &counted);
        let filled: Vec<usize> = (0..clusters).filter(|c| sizes[*c] > 0).collect();
        let centres = means.select_rows(&filled);
        let mut distances = vec![Vec::new(); clusters];
        for (row, &cluster) in grouping.cluster.iter().enumerate().filter(|(row, _)| counted(*row)) {
            distances[cluster as usize].push(distance(features.row(row), means.row(cluster as usize)));
        }
        let mut distances: Vec<Vec<f32>> = filled.iter().map(|c| std::mem::take(&mut distances[*c])).collect();
        distances.iter_mut().for_each(|d| d.sort_unstable_by(f32::total_cmp));
        Centres { cluster: filled.iter().map(|c| *c as u32).collect(), centres, distances }
    }

    /// How many clusters.
    pub fn len(&self) -> usize {
        self.cluster.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cluster.is_empty()
    }

    /// Assigns each of `rows` to the nearest cluster; `tau` is the temperature. Panics when there are no clusters.
    pub fn assign(&self, rows: &Matrix, tau: f64) -> Vec<Assigned> {
        let (nearest, distances) = kmeans::assign(rows, &self.centres);
        let mut directions = self.centres.clone();
        directions.values.chunks_mut(directions.dim.max(1)).for_each(normalise);
        let one = |row: usize| {
            let at = nearest[row] as usize;
            let mut own = rows.row(row).to_vec();
            normalise(&mut own);
            let cosines: Vec<f64> = (0..self.len()).map(|c| f64::from(dot(&own, directions.row(c)))).collect();
            let sum: f64 = cosines.iter().map(|c| ((c - cosines[at]) / tau).exp()).sum();
            let nearer = self.distances[at].partition_point(|d| *d < distances[row]);
            let members = self.distances[at].len();
            Assigned {
                cluster: self.cluster[at],
                distance: distances[row],
                confidence: (1.0 / sum) as f32,
                fit: (members - nearer) as f32 / members as f32,
            }
        };
        (0..rows.rows).into_par_iter().map(one).collect()
    }
}

/// Euclidean distance.
pub(crate) fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum::<f64>().sqrt() as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purify::Status;

    /// Clusters 0 at (1, 0) and 2 at (0, 1); cluster 1 has no purified member.
    fn example() -> Centres {
        let features = Matrix::new(2, vec![1.0, 0.1, 1.0, -0.1, 5.0, 5.0, 0.0, 1.0, 0.0, 1.0, 3.0, 3.0]);
        use Status::*;
        let grouping = Grouping {
            cluster: vec![0, 0, 0, 2, 2, 1],
            status: vec![Kept, PulledBack, Filtered, Kept, Kept, Instance],
            distance: vec![0.0; 6],
            vote: vec![f32::NAN; 6],
        };
        Centres::new(&features, &grouping)
    }

    #[test]
    fn centres_are_those_of_purified_members() {
        let centres = example();
        assert_eq!(centres.cluster, [0, 2]);
        assert_eq!(centres.centres.values, [1.0, 0.0, 0.0, 1.0]);
        assert!(!centres.is_empty());
    }

    /// tau = 1: P = 1 / (1 + exp(cos_2 - cos_1)); at (0.6, 0.8) that is 1 / (1 + exp(0.6 - 0.8)) = 0.549834.
    #[test]
    fn new_rows_go_to_the_nearest_centre() {
        let assigned = example().assign(&Matrix::new(2, vec![0.6, 0.8, 1.0, 0.05, 1.0, 0.0, 0.0, 1.0]), 1.0);
        assert_eq!(assigned.iter().map(|p| p.cluster).collect::<Vec<_>>(), [2, 0, 0, 2]);
        assert!((assigned[0].confidence - 0.549834).abs() < 1e-5, "{assigned:?}");
        assert!((assigned[0].distance - 0.4f32.sqrt()).abs() < 1e-6, "{assigned:?}");
        assert_eq!(assigned.iter().map(|p| p.fit).collect::<Vec<_>>(), [0.0, 1.0, 1.0, 1.0]);
        let sure = example().assign(&Matrix::new(2, vec![1.0, 0.0]), 1e-3);
        assert_eq!(sure[0].confidence, 1.0);
    }

    #[test]
    fn without_purified_members_there_are_no_centres() {
        let grouping = Grouping {
            cluster: vec![0, 1],
            status: vec![Status::Instance; 2],
            distance: vec![0.0; 2],
            vote: vec![f32::NAN; 2],
        };
        assert!(Centres::new(&Matrix::new(1, vec![1.0, 2.0]), &grouping).is_empty());
    }
}
