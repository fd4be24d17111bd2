//! Outlier scores: from the distance of a row to its own centre compared with the next one, and from the votes of CP_s.

use crate::centres::{distance, means};
use crate::matrix::Matrix;
use crate::neighbours::nearest;
use crate::purify::{Purified, Status};

/// Rows of a work unit.
const BLOCK: usize = 1 << 16;

/// The outlier score of each row, from 0 (belongs to its cluster) to 1.
///
/// The mean of two shares. One is the distance to the centre of the row's cluster over that to the nearest other centre: near 1
/// for rows between clusters and for rows far from all of them. The other is `(V_max - V) / (2 (V_max - 1))`: 0 for a row that
/// shared the cluster of the anchor in all past clusterings, 1 for one that never did; left out where no vote was counted.
/// A row alone in its cluster scores 1. `greatest` is V_max.
pub fn doubts(features: &Matrix, assignment: &[u32], clusters: usize, purified: &Purified, greatest: f64) -> Vec<f32> {
    let (centres, sizes) = means(features, assignment, clusters, &|_| true);
    let others = nearest_others(features, assignment, &centres, &sizes);
    let farthest = purified.distance.iter().copied().fold(0.0, f32::max);
    let one = |row: usize| {
        if sizes[assignment[row] as usize] < 2 {
            return 1.0;
        }
        let own = purified.distance[row];
        let between = match others[row] {
            // A single cluster: relative to its farthest member.
            other if other.is_infinite() => {
                if farthest > 0.0 {
                    own / farthest
                } else {
                    0.0
                }
            }
            0.0 => 1.0,
            other => (own / other).min(1.0),
        };
        match f64::from(purified.vote[row]) {
            vote if vote.is_nan() || greatest <= 1.0 => between,
            vote => (between + ((greatest - vote) / (2.0 * (greatest - 1.0))) as f32) / 2.0,
        }
    };
    (0..features.rows).map(one).collect()
}

/// Euclidean distance of every row to the nearest centre of another cluster than its own; infinite when there is none.
fn nearest_others(features: &Matrix, assignment: &[u32], centres: &Matrix, sizes: &[usize]) -> Vec<f32> {
    let filled: Vec<usize> = (0..sizes.len()).filter(|c| sizes[*c] > 0).collect();
    // The nearest centre has the greatest x . c - |c|^2 / 2: a dot product with one more coordinate.
    let longer = |row: &[f32], last: f32| row.iter().copied().chain([last]).collect::<Vec<f32>>();
    let half = |row: &[f32]| row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / 2.0;
    let dim = features.dim + 1;
    let bank = filled.iter().flat_map(|c| longer(centres.row(*c), -half(centres.row(*c)) as f32)).collect();
    let bank = Matrix { rows: filled.len(), dim, values: bank };
    let mut found = Vec::with_capacity(features.rows);
    for first in (0..features.rows).step_by(BLOCK) {
        let rows = first..(first + BLOCK).min(features.rows);
        let queries = rows.clone().flat_map(|row| longer(features.row(row), 1.0)).collect();
        let near = nearest(&Matrix { rows: rows.len(), dim, values: queries }, &bank, 2, false, &|_| ());
        for (row, near) in rows.zip(near.index.chunks(near.k.max(1))) {
            let other = near.iter().map(|i| filled[*i as usize]).find(|c| *c as u32 != assignment[row]);
            found.push(other.map_or(f32::INFINITY, |c| distance(features.row(row), centres.row(c))));
        }
    }
    found
}

/// The rows that purification did not keep or pull back, the highest score first; ties by row.
pub fn ranked(status: &[Status], doubts: &[f32]) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..status.len()).filter(|row| !status[*row].belongs()).collect();
    rows.sort_by(|a, b| doubts[*b].total_cmp(&doubts[*a]).then(a.cmp(b)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purify::{History, Rules, Votes, purify};
    use crate::testing::blobs;

    const RULES: Rules = Rules { gamma: Some(0.5), ..Rules::WHOLE };

    /// On a line: cluster 0 = {0, 1, 2} with its centre at 1, cluster 1 = {9, 10, 11} at 10, cluster 2 = {50} alone.
    #[test]
    fn doubts_check_values() {
        let features = Matrix::new(1, vec![0.0, 1.0, 2.0, 9.0, 10.0, 11.0, 50.0]);
        let assignment = [0, 0, 0, 1, 1, 1, 2];
        let purified = purify(&features, &assignment, 3, &RULES, &History::default());
        let found = doubts(&features, &assignment, 3, &purified, 1.0);
        let expected = [0.1, 0.0, 1.0 / 8.0, 1.0 / 8.0, 0.0, 0.1, 1.0];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
        let ranked = ranked(&purified.status, &found);
        assert_eq!(ranked[0], 6, "alone");
        assert!(ranked.iter().all(|row| !purified.status[*row].belongs()));
    }

    /// alpha = 1, three votes: V_max = 4. Row 2 never met the anchor (row 1), V = -2: (4 + 2) / 6 = 1; row 0 always did: 0.
    #[test]
    fn votes_count_half() {
        let features = Matrix::new(1, vec![0.0, 1.0, 2.0, 9.0, 10.0, 11.0]);
        let assignment = [0, 0, 0, 1, 1, 1];
        let votes = Votes { alpha: 1.0, lower: 0.0, upper: 2.5 };
        let past = History::from_newest((0..3).map(|_| vec![0, 0, 1, 1, 1, 1]));
        let purified = purify(&features, &assignment, 2, &Rules { votes: Some(votes), ..RULES }, &past);
        let found = doubts(&features, &assignment, 2, &purified, 4.0);
        let expected = [0.05, 0.0, (1.0 / 8.0 + 1.0) / 2.0];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
    }

    #[test]
    fn one_cluster_and_rows_that_are_all_the_same() {
        let features = Matrix::new(1, vec![0.0, 1.0, 5.0]);
        let purified = purify(&features, &[0; 3], 1, &RULES, &History::default());
        let found = doubts(&features, &[0; 3], 1, &purified, 1.0);
        assert_eq!(found[2], 1.0);
        let same = Matrix::new(1, vec![2.0; 4]);
        let purified = purify(&same, &[0; 4], 1, &RULES, &History::default());
        assert_eq!(doubts(&same, &[0; 4], 1, &purified, 1.0), [0.0; 4]);
        let purified = purify(&same, &[0, 0, 1, 1], 2, &RULES, &History::default());
        assert_eq!(doubts(&same, &[0, 0, 1, 1], 2, &purified, 1.0), [1.0; 4], "two equal centres");
    }

    #[test]
    fn the_next_centre_is_that_of_a_slow_search() {
        let features = blobs(7, 40, 5, 1.0, 1);
        let assignment: Vec<u32> = (0..features.rows as u32).map(|i| i % 8).collect();
        let (centres, sizes) = means(&features, &assignment, 9, &|_| true);
        assert_eq!(sizes[8], 0, "an empty cluster is no neighbour");
        let found = nearest_others(&features, &assignment, &centres, &sizes);
        for row in 0..features.rows {
            let others = (0..8).filter(|c| *c as u32 != assignment[row]);
            let slow = others.map(|c| distance(features.row(row), centres.row(c))).fold(f32::INFINITY, f32::min);
            assert!((found[row] - slow).abs() < 1e-5, "row {row}: {} is not {slow}", found[row]);
        }
    }
}
