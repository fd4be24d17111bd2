//! Labels that are probably wrong, how many there are, and how well these features can tell.
//!
//! Two predictions of every label never use the label itself: a ridge regression from which the row is left out (`ridge`) and a vote
//! of the row's nearest neighbours (`vote`). Their sum, weighted, is turned into shares by a softmax: `s(c)`, how well label c fits the row.
//! A share `rho` of the labels is wrong, each replaced by any other with equal chance, so that a row has its own label y with probability
//!
//! ```text
//! P(y) = (1 - rho) s(y) + rho (1 - s(y)) / (C - 1)
//! ```
//!
//! The two weights and rho are those of the greatest likelihood, and rho has an interval (`noise`). A label's probability of being wrong is
//! then Bayes' rule, `rho (1 - s(y)) / (C - 1) / P(y)`. Nothing is set by hand but grids from which the likelihood chooses: features that
//! confuse classes flatten `s`, and only labels that contradict confident predictions raise rho.

mod noise;
mod ridge;
mod vote;

pub use noise::Noise;

use crate::error::Result;
use crate::matrix::Matrix;
use crate::rng::{Key, Purpose};
use noise::{Evidence, Model};
use ridge::RidgeProbe;
use vote::{NeighbourVote, SIZES};

/// Rows of a work unit.
const BLOCK: usize = 4096;
/// Rows that the model is fitted to at the most, and the most numbers of one prediction of all of them.
const FITTED: usize = 10_000;
const ENTRIES: usize = 1 << 22;
/// The temperature of ridge regressions at which the fit begins: predictions are about 0 or 1.
const START: [f64; 2] = [5.0, 1.0];

/// The result for the label of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The label that fits best; the row's own where none fits better.
    pub suggested: u32,
    /// `1 - s(own label)`: how badly the own label fits. Labels are ranked by it.
    pub doubt: f32,
    /// The probability that the label is wrong.
    pub wrong: f32,
}

impl Verdict {
    /// Whether the label `own` is more probably wrong than right.
    pub fn is_error(&self, own: u32) -> bool {
        self.wrong > 0.5 && self.suggested != own
    }
}

/// What is known about all labels.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelCheck {
    /// A verdict for every row with a label.
    pub verdicts: Vec<Option<Verdict>>,
    /// The share of wrong labels; `None` where it cannot be estimated: fewer than two classes, or than ten labels.
    pub noise: Option<Noise>,
}

/// The fewest labels from which a share of wrong ones is estimated.
const FEWEST: usize = 10;

/// Checks the labels `of` the rows, indices below `classes`. `tick` gets the number of rows done; its error ends the check.
pub fn check(
    features: &Matrix,
    of: &[Option<u32>],
    classes: usize,
    seed: u64,
    tick: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<LabelCheck> {
    let labelled: Vec<usize> = (0..of.len()).filter(|row| of[*row].is_some()).collect();
    let mut seen = vec![false; classes];
    of.iter().flatten().for_each(|class| seen[*class as usize] = true);
    if labelled.len() < FEWEST || seen.iter().filter(|s| **s).count() < 2 {
        let right = |own: &Option<u32>| own.map(|own| Verdict { suggested: own, doubt: 0.0, wrong: 0.0 });
        return Ok(LabelCheck { verdicts: of.iter().map(right).collect(), noise: None });
    }
    let key = Key { purpose: Purpose::Subset, seed, round: 0, epoch: 0 };
    let sample = sampled(&labelled, FITTED.min((ENTRIES / classes).max(1000)), key);
    tick(0)?;
    let ridge = RidgeProbe::fit(features, of, classes, &labelled, &sample)?;
    tick(0)?;
    let vote = NeighbourVote::new(features, of, classes, &labelled, key);
    let model = fitted(&ridge, &vote, of, classes, &sample);
    let mut verdicts = vec![None; of.len()];
    for (done, rows) in labelled.chunks(BLOCK).enumerate() {
        tick(done * BLOCK)?;
        let evidence = Evidence {
            classes,
            own: rows.iter().filter_map(|row| of[*row]).collect(),
            ridge: ridge.predictions(rows, of),
            vote: vote.logarithms(rows, &vote.nearest(rows, model.neighbours), model.neighbours),
        };
        for (row, verdict) in rows.iter().zip(model.fit.verdicts(&evidence)) {
            verdicts[*row] = Some(verdict);
        }
    }
    tick(of.len())?;
    Ok(LabelCheck { verdicts, noise: Some(model.noise) })
}

/// At most `most` of `rows`, in growing order.
fn sampled(rows: &[usize], most: usize, key: Key) -> Vec<usize> {
    if rows.len() <= most {
        return rows.to_vec();
    }
    let ids: Vec<u64> = rows.iter().map(|row| *row as u64).collect();
    let mut sample: Vec<usize> = key.shuffled(&ids).into_iter().take(most).map(|at| rows[at]).collect();
    sample.sort_unstable();
    sample
}

/// The model of the greatest likelihood, and how many neighbours vote in it.
struct Fitted {
    fit: Model,
    noise: Noise,
    neighbours: usize,
}

fn fitted(ridge: &RidgeProbe, vote: &NeighbourVote, of: &[Option<u32>], classes: usize, sample: &[usize]) -> Fitted {
    let own: Vec<u32> = sample.iter().filter_map(|row| of[*row]).collect();
    let mut evidence = Evidence { classes, own, ridge: ridge.predictions(sample, of), vote: Vec::new() };
    let near = vote.nearest(sample, SIZES[SIZES.len() - 1]);
    let mut best: Option<(noise::Profile, usize)> = None;
    for neighbours in SIZES {
        evidence.vote = vote.logarithms(sample, &near, neighbours);
        let found = noise::profile(&evidence, START);
        if best.as_ref().is_none_or(|(least, _)| found.loss < least.loss) {
            best = Some((found, neighbours));
        }
        // A smaller bank than this has no more neighbours.
        if near.k <= neighbours {
            break;
        }
    }
    let (profile, neighbours) = best.unwrap_or_else(|| (noise::profile(&evidence, START), SIZES[0]));
    evidence.vote = vote.logarithms(sample, &near, neighbours);
    Fitted { fit: profile.model, noise: profile.noise(&evidence), neighbours }
}

/// The rows whose label is probably wrong, the most doubtful first, and then those for which another label fits better; ties by row.
pub fn ranked(of: &[Option<u32>], verdicts: &[Option<Verdict>]) -> (Vec<usize>, Vec<usize>) {
    let mut rows: Vec<usize> = (0..of.len()).filter(|row| of[*row].is_some()).collect();
    let doubt = |row: &usize| verdicts[*row].map_or(0.0, |v| v.doubt);
    rows.sort_by(|a, b| doubt(b).total_cmp(&doubt(a)).then(a.cmp(b)));
    let is = |row: usize, test: &dyn Fn(Verdict, u32) -> bool| {
        verdicts[row].zip(of[row]).is_some_and(|(v, own)| test(v, own))
    };
    let (errors, others): (Vec<usize>, Vec<usize>) =
        rows.into_iter().partition(|row| is(*row, &|v, own| v.is_error(own)));
    (errors, others.into_iter().filter(|row| is(*row, &|v, own| v.suggested != own)).collect())
}

#[cfg(test)]
mod tests;
