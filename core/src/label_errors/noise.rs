//! The share of wrong labels with the greatest likelihood, and its interval.
//!
//! With logits `a f(c) + b g(c)` from two predictions, shares `s = softmax`, and `P = u + v s(y)`, where `u = rho / (C - 1)` and
//! `v = 1 - rho - u`, the loss is the sum of `-log P` over rows. For a given rho the weights (a, b), 0 or more, are found by Newton's steps of
//! the EM algorithm: a row counts by `r = v s(y) / P`, the probability that its label is right; the gradient by (a, b) is the sum of
//! `r (x(y) - E x)`, and the second derivative is at most that of `r Cov x`, where x = (f, g) and E and Cov are over s. Rho is tried on a grid, then
//! between the neighbours of the best. By Wilks' theorem the interval of 95 % is where the loss is at most 1.92 above the least.

use super::Verdict;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Rows of a sum; sums are added in order, so that they do not depend on threads.
const BLOCK: usize = 512;
/// The least share on the grid but 0, and the step between two.
const FIRST: f64 = 0.0025;
const STEP: f64 = std::f64::consts::SQRT_2;
/// No more than this share of the labels is taken to be wrong.
const MOST: f64 = 0.64;
/// Half of the 95 % quantile of chi-squared with one degree of freedom.
const WILKS: f64 = 1.92;
/// Steps for the weights, and the loss below which another step brings nothing.
const STEPS: usize = 40;
const ENOUGH: f64 = 1e-4;
/// Steps of the search between the grid's points.
const SECTIONS: usize = 14;
/// The share of wrong labels by which features are judged, when there are fewer.
const USUAL: f64 = 0.05;
/// A probability below which the logarithm is not followed.
const TINY: f64 = 1e-12;

/// The share of wrong labels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// The most likely share.
    pub share: f64,
    /// The interval of 95 % begins here.
    pub low: f64,
    /// And ends here.
    pub high: f64,
    /// How many of the wrong labels these features recognise, if any label is replaced by any other with equal chance.
    pub recognised: f64,
}

impl Noise {
    /// Whether these features recognise fewer than half of the wrong labels.
    pub fn is_weak(&self) -> bool {
        self.recognised < 0.5
    }
}

/// Two predictions for rows, a number per label each, and the rows' own labels.
pub struct Evidence {
    /// Number of labels, C.
    pub classes: usize,
    /// y of every row.
    pub own: Vec<u32>,
    /// f.
    pub ridge: Vec<f32>,
    /// g.
    pub vote: Vec<f32>,
}

/// Weights and share of wrong labels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    weights: [f64; 2],
    rho: f64,
    classes: usize,
}

/// LossSums over rows.
#[derive(Clone, Copy, Default)]
struct LossSums {
    loss: f64,
    gradient: [f64; 2],
    /// Covariances (f, f), (f, g), (g, g).
    curvature: [f64; 3],
}

impl LossSums {
    fn add(mut self, other: &LossSums) -> LossSums {
        self.loss += other.loss;
        self.gradient.iter_mut().zip(other.gradient).for_each(|(a, b)| *a += b);
        self.curvature.iter_mut().zip(other.curvature).for_each(|(a, b)| *a += b);
        self
    }
}

/// `s`, the shares of all labels for row `row`.
fn shares(evidence: &Evidence, weights: [f64; 2], row: usize, out: &mut Vec<f64>) {
    let at = row * evidence.classes..(row + 1) * evidence.classes;
    let both = evidence.ridge[at.clone()].iter().zip(&evidence.vote[at]);
    out.clear();
    out.extend(both.map(|(f, g)| weights[0] * f64::from(*f) + weights[1] * f64::from(*g)));
    let greatest = out.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    out.iter_mut().for_each(|z| *z = (*z - greatest).exp());
    let sum: f64 = out.iter().sum();
    out.iter_mut().for_each(|s| *s /= sum);
}

impl Model {
    /// `u` and `v` of `P = u + v s(y)`.
    fn mixture(&self) -> (f64, f64) {
        let u = self.rho / (self.classes - 1) as f64;
        (u, 1.0 - self.rho - u)
    }

    fn sums(&self, evidence: &Evidence) -> LossSums {
        let (u, v) = self.mixture();
        let classes = evidence.classes;
        let block = |rows: &[usize]| {
            let (mut sums, mut s) = (LossSums::default(), Vec::with_capacity(classes));
            for &row in rows {
                shares(evidence, self.weights, row, &mut s);
                let (f, g) = (&evidence.ridge[row * classes..][..classes], &evidence.vote[row * classes..][..classes]);
                let (mut mean, mut second) = ([0.0f64; 2], [0.0f64; 3]);
                for ((f, g), s) in f.iter().zip(g).zip(&s) {
                    let (f, g) = (f64::from(*f), f64::from(*g));
                    mean[0] += s * f;
                    mean[1] += s * g;
                    second[0] += s * f * f;
                    second[1] += s * f * g;
                    second[2] += s * g * g;
                }
                let own = evidence.own[row] as usize;
                let p = (u + v * s[own]).max(TINY);
                let right = v * s[own] / p;
                sums.loss -= p.ln();
                sums.gradient[0] += right * (f64::from(f[own]) - mean[0]);
                sums.gradient[1] += right * (f64::from(g[own]) - mean[1]);
                sums.curvature[0] += right * (second[0] - mean[0] * mean[0]);
                sums.curvature[1] += right * (second[1] - mean[0] * mean[1]);
                sums.curvature[2] += right * (second[2] - mean[1] * mean[1]);
            }
            sums
        };
        let rows: Vec<usize> = (0..evidence.own.len()).collect();
        rows.par_chunks(BLOCK)
            .map(block)
            .collect::<Vec<_>>()
            .iter()
            .fold(LossSums::default(), |all, part| all.add(part))
    }

    /// The best weights for this rho, and their loss.
    fn fitted(mut self, evidence: &Evidence) -> (Model, f64) {
        let mut now = self.sums(evidence);
        for _ in 0..STEPS {
            let step = newton(&now, self.weights);
            let mut size = 1.0;
            let next = loop {
                let along = |i: usize| (self.weights[i] + size * step[i]).max(0.0);
                let next = Model { weights: [along(0), along(1)], ..self };
                let sums = next.sums(evidence);
                if sums.loss < now.loss {
                    break Some((next, sums));
                }
                size /= 2.0;
                if size < 1e-3 {
                    break None;
                }
            };
            let Some((next, sums)) = next else { break };
            let gain = now.loss - sums.loss;
            (self, now) = (next, sums);
            if gain < ENOUGH {
                break;
            }
        }
        (self, now.loss)
    }

    /// The share of its own label below which a label is more probably wrong than right: `(1 - rho) s = u (1 - s)`.
    fn border(&self) -> f64 {
        let (u, _) = self.mixture();
        u / (1.0 - self.rho + u)
    }

    /// Verdicts on the labels of all rows.
    pub fn verdicts(&self, evidence: &Evidence) -> Vec<Verdict> {
        let (u, v) = self.mixture();
        let one = |row: usize| {
            let mut s = Vec::with_capacity(evidence.classes);
            shares(evidence, self.weights, row, &mut s);
            let own = evidence.own[row] as usize;
            let greatest = (0..s.len()).fold(own, |best, c| if s[c] > s[best] { c } else { best });
            let wrong = u * (1.0 - s[own]) / (u + v * s[own]).max(TINY);
            Verdict { suggested: greatest as u32, doubt: (1.0 - s[own]) as f32, wrong: wrong.clamp(0.0, 1.0) as f32 }
        };
        (0..evidence.own.len()).into_par_iter().map(one).collect()
    }

    /// The share of all possible wrong labels that would be recognised.
    fn recognised(&self, evidence: &Evidence) -> f64 {
        let border = Model { rho: self.rho.max(USUAL), ..*self }.border();
        let one = |row: usize| {
            let mut s = Vec::with_capacity(evidence.classes);
            shares(evidence, self.weights, row, &mut s);
            let own = evidence.own[row] as usize;
            s.iter().enumerate().filter(|(class, s)| *class != own && **s < border).count()
        };
        let found: usize = (0..evidence.own.len()).into_par_iter().map(one).sum();
        found as f64 / (evidence.own.len() * (evidence.classes - 1)).max(1) as f64
    }
}

/// The step of Newton's method: towards the solution of `curvature step = gradient`; a weight that is 0 and would fall stays.
fn newton(sums: &LossSums, weights: [f64; 2]) -> [f64; 2] {
    let [ff, fg, gg] = sums.curvature;
    let free = |i: usize| weights[i] > 0.0 || sums.gradient[i] > 0.0;
    let alone = |gradient: f64, curvature: f64| gradient / curvature.max(TINY);
    match (free(0), free(1)) {
        (true, true) => {
            // A little more curvature, for two predictions that say the same.
            let more = 1e-6 * (ff + gg) + TINY;
            let (ff, gg) = (ff + more, gg + more);
            let determinant = ff * gg - fg * fg;
            let [x, y] = sums.gradient;
            [(gg * x - fg * y) / determinant, (ff * y - fg * x) / determinant]
        }
        (true, false) => [alone(sums.gradient[0], ff), 0.0],
        (false, true) => [0.0, alone(sums.gradient[1], gg)],
        (false, false) => [0.0, 0.0],
    }
}

/// The best model, its loss, and the interval of rho.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// The model of the greatest likelihood.
    pub model: Model,
    /// Its loss.
    pub loss: f64,
    low: f64,
    high: f64,
}

impl Profile {
    /// What to say about the labels.
    pub fn noise(&self, evidence: &Evidence) -> Noise {
        let Profile { model, low, high, .. } = *self;
        Noise { share: model.rho, low, high, recognised: model.recognised(evidence) }
    }
}

/// The loss along rho, and its least; the fit of the weights begins at `start`.
pub fn profile(evidence: &Evidence, start: [f64; 2]) -> Profile {
    let classes = evidence.classes;
    // From (C - 1) / C on, wrong labels would be as frequent as right ones.
    let most = MOST.min((classes - 1) as f64 / classes as f64 * 0.95);
    let grid = std::iter::successors(Some(FIRST), |rho| Some(rho * STEP)).take_while(|rho| *rho < most);
    let mut last = Model { weights: start, rho: 0.0, classes };
    let mut tried: Vec<(f64, Model, f64)> = Vec::new();
    for rho in std::iter::once(0.0).chain(grid) {
        let (model, loss) = Model { rho, ..last }.fitted(evidence);
        last = model;
        tried.push((rho, model, loss));
    }
    let best = (0..tried.len()).fold(0, |best, at| if tried[at].2 < tried[best].2 { at } else { best });
    // Golden section between the neighbours of the best.
    let (mut low, mut high) = (tried[best.saturating_sub(1)].0, tried[(best + 1).min(tried.len() - 1)].0);
    let mut finest = tried[best];
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let at = |rho: f64| {
        let (model, loss) = Model { rho, ..tried[best].1 }.fitted(evidence);
        (rho, model, loss)
    };
    let (mut left, mut right) = (at(high - golden * (high - low)), at(low + golden * (high - low)));
    for _ in 0..SECTIONS {
        for found in [left, right] {
            if found.2 < finest.2 {
                finest = found;
            }
        }
        if left.2 < right.2 {
            (high, right) = (right.0, left);
            left = at(high - golden * (high - low));
        } else {
            (low, left) = (left.0, right);
            right = at(low + golden * (high - low));
        }
    }
    let limit = finest.2 + WILKS;
    // Between two points of which one is inside, the loss is taken to be a straight line.
    let crossing = |inside: (f64, f64), outside: (f64, f64)| {
        let share = (limit - inside.1) / (outside.1 - inside.1).max(TINY);
        inside.0 + (outside.0 - inside.0) * share.clamp(0.0, 1.0)
    };
    let end = |beyond: &mut dyn Iterator<Item = (f64, f64)>| {
        let mut inside = (finest.0, finest.2);
        for point in beyond {
            if point.1 > limit {
                return crossing(inside, point);
            }
            inside = point;
        }
        inside.0
    };
    let points: Vec<(f64, f64)> = tried.iter().map(|(rho, _, loss)| (*rho, *loss)).collect();
    let low = end(&mut points.iter().rev().filter(|p| p.0 < finest.0).copied());
    let high = end(&mut points.iter().filter(|p| p.0 > finest.0).copied());
    Profile { model: finest.1, loss: finest.2, low, high }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Key, Purpose};

    /// Rows of `classes` whose label is drawn from softmax(2 f + g), of which a share `rho` is then replaced by another.
    fn drawn(rows: usize, classes: usize, rho: f32, seed: u64) -> (Evidence, Vec<bool>) {
        let key = Key { purpose: Purpose::Synthetic, seed, round: 0, epoch: 0 };
        let mut evidence = Evidence { classes, own: Vec::new(), ridge: Vec::new(), vote: Vec::new() };
        let mut wrong = Vec::new();
        for row in 0..rows {
            let mut stream = key.stream(row as u64, 0);
            let first = evidence.ridge.len();
            evidence.ridge.extend((0..classes).map(|_| 2.0 * stream.normal()));
            evidence.vote.extend((0..classes).map(|_| 2.0 * stream.normal()));
            let z = |c: usize| 2.0 * evidence.ridge[first + c] + evidence.vote[first + c];
            let sum: f32 = (0..classes).map(|c| z(c).exp()).sum();
            let mut left = stream.unit() * sum;
            let mut label = classes - 1;
            for c in 0..classes {
                left -= z(c).exp();
                if left < 0.0 {
                    label = c;
                    break;
                }
            }
            wrong.push(stream.chance(rho));
            let step = if wrong[row] { 1 + stream.below(classes as u64 - 1) as usize } else { 0 };
            evidence.own.push(((label + step) % classes) as u32);
        }
        (evidence, wrong)
    }

    #[test]
    fn the_share_and_the_weights_that_made_the_labels_are_found() {
        for (rho, seed) in [(0.0, 1), (0.05, 2), (0.2, 3), (0.4, 4)] {
            let (evidence, wrong) = drawn(6000, 5, rho, seed);
            let truth = wrong.iter().filter(|w| **w).count() as f64 / 6000.0;
            let found = profile(&evidence, [5.0, 1.0]);
            let noise = found.noise(&evidence);
            assert!(noise.low <= truth && truth <= noise.high, "{truth} is not in {noise:?}");
            assert!(noise.high - noise.low < 0.05 && (noise.share - truth).abs() < 0.02, "{noise:?}");
            assert!(
                (found.model.weights[0] - 2.0).abs() < 0.2 && (found.model.weights[1] - 1.0).abs() < 0.1,
                "{found:?}"
            );
            assert!(!noise.is_weak(), "{noise:?}");
            // Probabilities are calibrated: of labels called wrong with p, the share p is wrong.
            let verdicts = found.model.verdicts(&evidence);
            for (from, to) in [(0.5, 0.9), (0.9, 1.01)] {
                let called: Vec<usize> =
                    (0..6000).filter(|r| verdicts[*r].wrong >= from && verdicts[*r].wrong < to).collect();
                let expected: f64 = called.iter().map(|r| f64::from(verdicts[*r].wrong)).sum();
                let really = called.iter().filter(|r| wrong[**r]).count() as f64;
                let error = 4.0 * (called.len() as f64 + 1.0).sqrt() / 2.0 + 1.0;
                assert!((expected - really).abs() < error, "{expected} is not {really} of {}", called.len());
            }
        }
    }

    /// The loss of a model by its definition.
    fn slow_loss(e: &Evidence, weights: [f64; 2], rho: f64) -> f64 {
        let one = |row: usize| {
            let z = |c: usize| {
                weights[0] * f64::from(e.ridge[row * e.classes + c])
                    + weights[1] * f64::from(e.vote[row * e.classes + c])
            };
            let sum: f64 = (0..e.classes).map(|c| z(c).exp()).sum();
            let s = z(e.own[row] as usize).exp() / sum;
            -((1.0 - rho) * s + rho * (1.0 - s) / (e.classes - 1) as f64).ln()
        };
        (0..e.own.len()).map(one).sum()
    }

    #[test]
    fn no_model_of_a_fine_grid_is_better() {
        let (evidence, _) = drawn(700, 4, 0.1, 9);
        let found = profile(&evidence, [5.0, 1.0]);
        let own = slow_loss(&evidence, found.model.weights, found.model.rho);
        assert!((own - found.loss).abs() < 1e-6 * own);
        for rho in (0..40).map(|i| f64::from(i) * 0.01) {
            for a in (0..20).map(|i| f64::from(i) * 0.2) {
                for b in (0..20).map(|i| f64::from(i) * 0.1) {
                    assert!(slow_loss(&evidence, [a, b], rho) > found.loss - 0.01, "{rho}, {a}, {b}");
                }
            }
        }
    }

    #[test]
    fn predictions_that_say_nothing_are_called_weak() {
        let (mut evidence, _) = drawn(500, 4, 0.1, 5);
        evidence.ridge.fill(0.25);
        evidence.vote.fill(-1.4);
        let noise = profile(&evidence, [5.0, 1.0]).noise(&evidence);
        assert!(noise.is_weak() && noise.recognised == 0.0, "{noise:?}");
        assert!(noise.low == 0.0 && noise.high > 0.4, "{noise:?}");
    }

    #[test]
    fn the_gradient_is_that_of_differences() {
        let (evidence, _) = drawn(300, 3, 0.1, 6);
        let model = Model { weights: [1.3, 0.7], rho: 0.08, classes: 3 };
        let sums = model.sums(&evidence);
        for i in 0..2 {
            let at = |by: f64| {
                let mut weights = model.weights;
                weights[i] += by;
                slow_loss(&evidence, weights, model.rho)
            };
            let slope = (at(1e-4) - at(-1e-4)) / 2e-4;
            assert!(
                (slope + sums.gradient[i]).abs() < 1e-3 * slope.abs().max(1.0),
                "{slope} is not {}",
                -sums.gradient[i]
            );
        }
    }
}
