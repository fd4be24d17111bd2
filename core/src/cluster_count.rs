//! Choosing the number of clusters: the one with the greatest mean silhouette, and the curve of all that were tried. (For clusters by
//! neighbours, see [`crate::spectral`].)
//!
//! The numbers tried grow by a third each, from 2. For each, a sample of the rows is clustered, and the silhouette (how much
//! nearer a row is to its own cluster than to the next one) is averaged over some of them. A curve that is flat or below 0.1
//! means that the rows do not fall into clusters.

use crate::cancel::Progress;
use crate::error::{Error, Result};
use crate::kmeans::MultiStart;
use crate::matrix::Matrix;
use crate::rng::{Key, Purpose};
use crate::scores::silhouette;
use serde::Serialize;

/// The most rows that are clustered, and the most for which the silhouette is computed, from all their pairs.
const CLUSTERED: usize = 20_000;
const PAIRED: usize = 4_000;
/// The fewest rows per cluster, on average, that say anything about it.
const MEMBERS: usize = 10;

/// What speaks for a number of clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// How much nearer rows are to their own cluster than to the next one, on average; 0 where it is not defined.
    Silhouette,
    /// The share of neighbours that are in one cluster, less what it would be by chance.
    Modularity,
}

/// One number of clusters that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// The number.
    pub k: usize,
    /// Its [`Measure`].
    pub score: f64,
    /// Mean squared distance to the centroids.
    pub inertia: f64,
}

/// The number of clusters that was chosen, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The number: that of the greatest score, the smallest of equals.
    pub k: usize,
    /// What the score is.
    pub measure: Measure,
    /// All that were tried.
    pub tried: Vec<Tried>,
}

impl Choice {
    /// The number with the greatest score. At least one was tried.
    pub(crate) fn of(measure: Measure, tried: Vec<Tried>) -> Choice {
        let best = tried.iter().fold(tried[0], |best, t| if t.score > best.score { *t } else { best });
        Choice { k: best.k, measure, tried }
    }

    /// The score of the number chosen.
    pub fn score(&self) -> f64 {
        self.tried.iter().find(|t| t.k == self.k).map_or(0.0, |t| t.score)
    }
}

/// The numbers that are tried on `rows` rows: from 2 up to one per ten rows of the sample.
fn candidates(rows: usize) -> Vec<usize> {
    let most = (rows.min(PAIRED) / MEMBERS).max(2).min(rows.saturating_sub(1));
    let mut all = Vec::new();
    let mut k = 2;
    while k <= most {
        all.push(k);
        k = (k + 1).max((k as f64 * 4.0 / 3.0).round() as usize);
    }
    all
}

/// There is no number to choose.
pub(crate) fn too_few(rows: usize) -> Error {
    Error::data(format!("{rows} rows are too few to choose the number of clusters"), "give a number: `k` 1")
}

/// The number of clusters with the greatest silhouette. `fit.k` is ignored.
pub fn choose(features: &Matrix, fit: &MultiStart, step: Progress) -> Result<Choice> {
    let numbers = candidates(features.rows);
    if numbers.is_empty() {
        return Err(too_few(features.rows));
    }
    let ids: Vec<u64> = (0..features.rows as u64).collect();
    let mut drawn = Key { purpose: Purpose::Subset, seed: fit.seed, round: 2, epoch: 0 }.shuffled(&ids);
    drawn.truncate(CLUSTERED);
    let sample = features.select_rows(&drawn);
    let paired = sample.rows.min(PAIRED);
    let scored = Matrix { rows: paired, dim: sample.dim, values: sample.values[..paired * sample.dim].to_vec() };
    let mut tried = Vec::new();
    for (i, &k) in numbers.iter().enumerate() {
        let fit = MultiStart { k, ..*fit };
        let all = numbers.len() * fit.steps();
        let found = fit.run(&sample, &mut |done, _| step(i * fit.steps() + done, all))?;
        let silhouette = silhouette(&scored, &found.assignment[..paired]).unwrap_or(0.0);
        tried.push(Tried { k, score: silhouette, inertia: found.objective / sample.rows as f64 });
    }
    Ok(Choice::of(Measure::Silhouette, tried))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Metric;
    use crate::testing::blobs;

    const FIT: MultiStart = MultiStart { k: 0, metric: Metric::Euclidean, iterations: 20, starts: 2, seed: 0 };

    #[test]
    fn the_number_of_groups_is_found() {
        for groups in [2, 4, 9] {
            let features = blobs(groups, 240 / groups, 16, 0.1, groups as u64);
            let Choice { k, tried, .. } = choose(&features, &FIT, &mut |_, _| Ok(())).unwrap();
            assert_eq!(k, groups, "{tried:?}");
            assert_eq!(tried.iter().map(|t| t.k).collect::<Vec<_>>(), candidates(features.rows));
            assert!(tried.windows(2).all(|w| w[0].inertia >= 0.9 * w[1].inertia));
        }
    }

    #[test]
    fn candidates_grow_up_to_a_limit() {
        assert_eq!(candidates(240), [2, 3, 4, 5, 7, 9, 12, 16, 21]);
        assert_eq!(candidates(3), [2]);
        assert_eq!(candidates(2), [0usize; 0]);
        assert_eq!(candidates(0), [0usize; 0]);
        assert!(candidates(1 << 40).iter().all(|k| *k <= PAIRED / MEMBERS));
    }

    #[test]
    fn too_few_rows_and_rows_that_are_all_the_same() {
        let e = choose(&Matrix::new(1, vec![1.0, 2.0]), &FIT, &mut |_, _| Ok(())).unwrap_err();
        assert!(e.hint.contains("`k` 1"), "{e:?}");
        let same = Matrix::new(1, vec![1.0; 50]);
        assert_eq!(choose(&same, &FIT, &mut |_, _| Ok(())).unwrap().k, 2);
    }

    #[test]
    fn it_can_be_stopped() {
        let e = choose(&blobs(3, 20, 4, 0.1, 0), &FIT, &mut |_, _| Err(Error::stopped())).unwrap_err();
        assert_eq!(e.exit_code(), 130);
    }
}
