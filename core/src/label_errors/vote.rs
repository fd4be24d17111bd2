//! The labels of a row's nearest neighbours, the row itself left out.

use super::sampled;
use crate::matrix::Matrix;
use crate::neighbours::{Neighbours, nearest};
use crate::rng::Key;
use rayon::prelude::*;

/// Numbers of neighbours that are tried.
pub const SIZES: [usize; 4] = [10, 20, 50, 100];
/// Temperature of the weights `exp(cosine / TAU)`, as in the kNN probe.
const TAU: f32 = 0.1;
/// Weight of a prior, the shares of the labels among all rows, beside the neighbours, so that no share is 0.
const PRIOR: f32 = 0.5;
/// Rows among which neighbours are looked for at the most.
const BANK: usize = 20_000;

/// Labelled rows that vote.
pub struct NeighbourVote {
    /// Unit rows.
    features: Matrix,
    /// The rows of the bank in `features`, growing, and their labels.
    bank: Vec<usize>,
    labels: Vec<u32>,
    rows: Matrix,
    /// Share of every label, times [`PRIOR`].
    prior: Vec<f32>,
}

impl NeighbourVote {
    /// A bank of the rows `labelled`, or of some of them.
    pub fn new(features: &Matrix, of: &[Option<u32>], classes: usize, labelled: &[usize], key: Key) -> Self {
        let features = features.clone().normalised();
        let bank = sampled(labelled, BANK, key);
        let labels: Vec<u32> = bank.iter().filter_map(|row| of[*row]).collect();
        let mut prior = vec![0.0; classes];
        labels.iter().for_each(|class| prior[*class as usize] += PRIOR / labels.len() as f32);
        NeighbourVote { rows: features.select_rows(&bank), features, bank, labels, prior }
    }

    /// The nearest rows of the bank, one more than `most` since a row of the bank finds itself.
    pub fn nearest(&self, rows: &[usize], most: usize) -> Neighbours {
        nearest(&self.features.select_rows(rows), &self.rows, most + 1, false, &|_| ())
    }

    /// The logarithms of the shares of all labels among the `count` neighbours of `rows`, which are `near`.
    pub fn logarithms(&self, rows: &[usize], near: &Neighbours, count: usize) -> Vec<f32> {
        let classes = self.prior.len();
        let mut found = vec![0.0; rows.len() * classes];
        found.par_chunks_mut(classes).zip(rows).enumerate().for_each(|(at, (shares, row))| {
            let places = at * near.k..(at + 1) * near.k;
            let others = near.index[places.clone()].iter().zip(&near.similarity[places]);
            let others: Vec<(u32, f32)> = (others.filter(|(i, _)| self.bank[**i as usize] != *row))
                .map(|(i, s)| (self.labels[*i as usize], *s))
                .take(count)
                .collect();
            let greatest = others.first().map_or(0.0, |first| first.1);
            let weights: Vec<f32> = others.iter().map(|(_, s)| ((s - greatest) / TAU).exp()).collect();
            let sum: f32 = weights.iter().sum();
            let voters = others.len() as f32;
            for ((class, _), weight) in others.iter().zip(&weights) {
                shares[*class as usize] += weight / sum * voters;
            }
            for (share, prior) in shares.iter_mut().zip(&self.prior) {
                // A label that no row of the bank has keeps a share of its own.
                *share = ((*share + prior.max(f32::EPSILON)) / (voters + PRIOR)).ln();
            }
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::dot;
    use crate::rng::Purpose;
    use crate::testing::blobs;

    const KEY: Key = Key { purpose: Purpose::Subset, seed: 0, round: 0, epoch: 0 };

    #[test]
    fn shares_are_those_of_all_pairs() {
        let features = blobs(3, 20, 5, 0.8, 3);
        let mut of: Vec<Option<u32>> = (0..60).map(|i| Some(i % 3)).collect();
        of[7] = None;
        let labelled: Vec<usize> = (0..60).filter(|row| *row != 7).collect();
        let vote = NeighbourVote::new(&features, &of, 3, &labelled, KEY);
        let found = vote.logarithms(&labelled, &vote.nearest(&labelled, 10), 10);
        let unit = features.normalised();
        for (at, &row) in labelled.iter().enumerate() {
            let cosine = |other: &usize| dot(unit.row(row), unit.row(*other));
            let mut others: Vec<usize> = labelled.iter().copied().filter(|other| *other != row).collect();
            others.sort_by(|a, b| cosine(b).total_cmp(&cosine(a)));
            others.truncate(10);
            let weight = |other: &usize| f64::from(cosine(other) / TAU).exp();
            let sum: f64 = others.iter().map(weight).sum();
            for class in 0..3u32 {
                let all = labelled.iter().filter(|o| of[**o] == Some(class)).count() as f64 / 59.0;
                let own: f64 = others.iter().filter(|o| of[**o] == Some(class)).map(weight).sum();
                let share = (10.0 * own / sum + 0.5 * all) / 10.5;
                let found = f64::from(found[at * 3 + class as usize]);
                assert!((found - share.ln()).abs() < 1e-4, "row {row}, class {class}: {found} is not {}", share.ln());
            }
        }
    }

    #[test]
    fn two_rows_have_one_neighbour_each() {
        let features = Matrix::new(2, vec![1.0, 0.0, 1.0, 0.0]);
        let vote = NeighbourVote::new(&features, &[Some(0), Some(1)], 2, &[0, 1], KEY);
        let found = vote.logarithms(&[0, 1], &vote.nearest(&[0, 1], 100), 100);
        assert!(found[1] > found[0] && found[2] > found[3], "each has the label of the other: {found:?}");
    }
}
