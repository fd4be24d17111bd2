//! Outliers: rows that are unlike all others ([`unlike`]), and rows that do not fit their clusters ([`doubts`]): from the distance to the own centre
//! compared with the next one, and from the votes of CP_s.

use crate::centres::{distance, means};
use crate::matrix::Matrix;
use crate::neighbours::nearest;
use crate::purify::{Purified, Status};

/// Rows of a work unit.
const BLOCK: usize = 1 << 16;

/// Nearest rows whose mean distance counts.
const NEAREST: usize = 10;
/// Rows among which the nearest are looked for at the most: evenly spaced ones of more.
const AMONG: usize = 10_000;

/// How unlike all others each row is, from 0 to 1: the mean of its ranks by [`remoteness`] in several descriptions of the same rows, as shares. Ties have the same rank.
///
/// A score orders rows; it does not say whether any of them is an outlier: some row is always the most unlike.
pub fn unlike(descriptions: &[&Matrix]) -> Vec<f32> {
    let rows = descriptions.first().map_or(0, |d| d.rows);
    let mut scores = vec![0.0; rows];
    for description in descriptions {
        assert_eq!(description.rows, rows, "descriptions of other rows");
        let far = remoteness(description);
        let mut sorted = far.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        for (score, far) in scores.iter_mut().zip(&far) {
            let nearer = sorted.partition_point(|other| other < far);
            *score += nearer as f32 / (rows.max(2) - 1) as f32 / descriptions.len() as f32;
        }
    }
    scores
}

/// Mean Euclidean distance of every row to its ten nearest others, among 10,000 at the most; 0 for a row alone.
pub fn remoteness(features: &Matrix) -> Vec<f32> {
    let count = features.rows.min(AMONG);
    let among: Vec<usize> = (0..count).map(|i| i * features.rows / count).collect();
    let bank = extended(&features.select_rows(&among), &|row| -half_square(row));
    let mut found = Vec::with_capacity(features.rows);
    for first in (0..features.rows).step_by(BLOCK) {
        let rows: Vec<usize> = (first..(first + BLOCK).min(features.rows)).collect();
        let queries = extended(&features.select_rows(&rows), &|_| 1.0);
        // One more, since a row finds itself.
        let near = nearest(&queries, &bank, NEAREST + 1, false, &|_| ());
        for (row, near) in rows.into_iter().zip(near.index.chunks(near.k.max(1))) {
            let others = near.iter().map(|i| among[*i as usize]).filter(|other| *other != row).take(NEAREST);
            let distances: Vec<f32> = others.map(|other| distance(features.row(row), features.row(other))).collect();
            found.push(distances.iter().sum::<f32>() / distances.len().max(1) as f32);
        }
    }
    found
}

/// Half the squared length of a row.
fn half_square(row: &[f32]) -> f32 {
    (row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / 2.0) as f32
}

/// Rows with one more coordinate. The nearest row c to x has the greatest `x . c - |c|^2 / 2`: a dot product of x with 1 behind it and c with `-|c|^2 / 2`.
fn extended(features: &Matrix, last: &dyn Fn(&[f32]) -> f32) -> Matrix {
    let row = |i: usize| features.row(i).iter().copied().chain([last(features.row(i))]);
    Matrix { rows: features.rows, dim: features.dim + 1, values: (0..features.rows).flat_map(row).collect() }
}

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
    let bank = extended(&centres.select_rows(&filled), &|row| -half_square(row));
    let mut found = Vec::with_capacity(features.rows);
    for first in (0..features.rows).step_by(BLOCK) {
        let rows = first..(first + BLOCK).min(features.rows);
        let queries = extended(&features.select_rows(&rows.clone().collect::<Vec<_>>()), &|_| 1.0);
        let near = nearest(&queries, &bank, 2, false, &|_| ());
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

    /// The definition: all distances, sorted.
    fn slow(features: &Matrix) -> Vec<f32> {
        let one = |row: usize| {
            let others = (0..features.rows).filter(|other| *other != row);
            let mut all: Vec<f32> = others.map(|other| distance(features.row(row), features.row(other))).collect();
            all.sort_unstable_by(f32::total_cmp);
            all.truncate(NEAREST);
            all.iter().sum::<f32>() / all.len().max(1) as f32
        };
        (0..features.rows).map(one).collect()
    }

    #[test]
    fn remoteness_is_that_of_its_definition() {
        for features in [blobs(5, 30, 4, 1.0, 3), blobs(1, 6, 3, 1.0, 1), Matrix::new(2, vec![1.0, 2.0])] {
            let (fast, slow) = (remoteness(&features), slow(&features));
            assert!(fast.iter().zip(&slow).all(|(a, b)| (a - b).abs() < 1e-4), "{fast:?} {slow:?}");
        }
        assert!(
            remoteness(&Matrix::default()).is_empty()
                && unlike(&[&Matrix::default()]).is_empty()
                && unlike(&[]).is_empty()
        );
    }

    #[test]
    fn of_many_rows_some_are_compared() {
        // Rows on a line, one apart, and one far off: of 10,001, all but the last are looked at.
        let mut values: Vec<f32> = (0..AMONG).map(|i| (i % 50) as f32).collect();
        values.push(1e4);
        let found = remoteness(&Matrix::new(1, values));
        assert!(found[..AMONG].iter().all(|x| *x == 0.0) && found[AMONG] > 9e3);
    }

    #[test]
    fn strangers_come_first_and_equal_rows_are_equally_unlike() {
        let mut features = blobs(3, 40, 5, 0.2, 2);
        features.values.extend([30.0; 5]);
        features.rows += 1;
        let scores = unlike(&[&features, &features]);
        assert_eq!(scores[120], 1.0);
        assert!(scores[..120].iter().all(|score| *score < 1.0));
        assert_eq!(unlike(&[&Matrix::new(1, vec![2.0; 7])]), [0.0; 7]);
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
