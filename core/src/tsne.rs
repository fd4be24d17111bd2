//! t-SNE (van der Maaten 2014): a layout in the plane that keeps the neighbourhoods of the features.
//!
//! `p_ij` are Gaussian affinities of the features, with a width per sample that gives all of them the same perplexity, made
//! symmetric: `p_ij = (p_j|i + p_i|j) / 2n`. With `q_ij = w_ij / Z`, `w_ij = 1 / (1 + |y_i - y_j|^2)`, `Z = sum w`, the gradient
//! of the divergence of P and Q is `4 (sum_j p_ij w_ij (y_i - y_j) - sum_j w_ij^2 (y_i - y_j) / Z)`.
//!
//! The first sum runs over the nearest neighbours only; the second is approximated by Barnes-Hut (`tsne/tree.rs`). The
//! settings are those of scikit-learn: start at the first two principal components, shrunk; 250 iterations with the
//! affinities 12 times as large and momentum 0.5, then 750 with momentum 0.8; a gain for every coordinate. Nothing is random,
//! and the units of work depend on the shapes alone: the same features give the same bits on any number of threads.

mod affinity;
mod tree;

use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::pca::Pca;
use affinity::{Affinities, attraction};
use rayon::prelude::*;
use tree::Tree;

/// Settings of t-SNE.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tsne {
    /// Effective number of neighbours; limited to a third of the other rows ([`Tsne::perplexity_of`]).
    pub perplexity: f64,
    /// Number of iterations.
    pub iterations: usize,
}

impl Default for Tsne {
    fn default() -> Self {
        Tsne { perplexity: 30.0, iterations: 1000 }
    }
}

/// Steps with exaggerated affinities, and how much so.
const EARLY: usize = 250;
const EXAGGERATION: f32 = 12.0;
/// Standard deviation of the start along its first axis.
const START: f64 = 1e-4;
/// Standard deviations below this are rounding errors.
const ROUNDING: f64 = 1e-12;
/// Places of a work unit.
const BLOCK: usize = 256;

impl Tsne {
    /// The perplexity, limited by the number of samples.
    pub fn perplexity_of(&self, samples: usize) -> f64 {
        self.perplexity.min(samples.saturating_sub(1) as f64 / 3.0).max(1.0)
    }

    /// An error for invalid settings.
    pub fn check(&self) -> Result<()> {
        if self.perplexity.is_finite() && self.perplexity >= 1.0 {
            return Ok(());
        }
        Err(Error::usage(
            format!("the perplexity is {}", self.perplexity),
            "give a number from 1 on; 5 to 50 are usual (`perplexity`)",
        ))
    }
}

/// Lays out `features`, whose rows have unit length, in the plane: two coordinates per row. `on_iteration` is called before each
/// iteration with the number of those done; its error ends the layout.
pub fn tsne(features: &Matrix, settings: &Tsne, on_iteration: &mut dyn FnMut(usize) -> Result<()>) -> Result<Matrix> {
    let n = features.rows;
    settings.check()?;
    check(features)?;
    if n < 2 {
        return Ok(Matrix { rows: n, dim: 2, values: vec![0.0; 2 * n] });
    }
    on_iteration(0)?;
    let affinities = Affinities::new(features, settings.perplexity_of(n));
    let mut places = start(features, &mut || on_iteration(0))?;
    let mut tree = Tree::new(n);
    let rate = (n as f32 / EXAGGERATION / 4.0).max(50.0);
    let mut motion = vec![Motion::default(); n];
    for iteration in 0..settings.iterations {
        on_iteration(iteration)?;
        if iteration == EARLY {
            motion.fill(Motion::default());
        }
        let (exaggeration, momentum) = if iteration < EARLY { (EXAGGERATION, 0.5) } else { (1.0, 0.8) };
        tree.place(&places);
        let (repulsion, z) = tree.repulsion();
        let scale = (1.0 / z.max(f64::MIN_POSITIVE)) as f32;
        let old = &places;
        let moved: Vec<[f32; 2]> = motion
            .par_chunks_mut(BLOCK)
            .enumerate()
            .flat_map_iter(|(b, motion)| {
                let repulsion = &repulsion;
                let affinities = &affinities;
                motion.iter_mut().enumerate().map(move |(r, motion)| {
                    let i = b * BLOCK + r;
                    let (pull, push) = (attraction(affinities, old, i), repulsion[i]);
                    let slope = [0, 1].map(|c| 4.0 * (exaggeration * pull[c] - scale * push[c]));
                    motion.step(old[i], slope, momentum, rate)
                })
            })
            .collect();
        places = moved;
    }
    on_iteration(settings.iterations)?;
    Ok(Matrix { rows: n, dim: 2, values: places.concat() })
}

/// The last step of a point, and the gain of each coordinate.
#[derive(Clone, Copy)]
struct Motion {
    step: [f32; 2],
    gain: [f32; 2],
}

impl Default for Motion {
    fn default() -> Self {
        Motion { step: [0.0; 2], gain: [1.0; 2] }
    }
}

impl Motion {
    /// The next position. A gain grows while a coordinate keeps its direction and shrinks when it reverses.
    fn step(&mut self, mut place: [f32; 2], slope: [f32; 2], momentum: f32, rate: f32) -> [f32; 2] {
        for c in 0..2 {
            let onward = self.step[c] * slope[c] < 0.0;
            self.gain[c] = if onward { self.gain[c] + 0.2 } else { (self.gain[c] * 0.8).max(0.01) };
            self.step[c] = momentum * self.step[c] - rate * self.gain[c] * slope[c];
            place[c] += self.step[c];
        }
        place
    }
}

fn check(features: &Matrix) -> Result<()> {
    if !features.values.par_chunks(1 << 16).all(|chunk| chunk.iter().all(|x| x.abs() < 1e15)) {
        return Err(Error::training(
            "some features are not finite or too large: they cannot be laid out",
            "train again with a lower learning rate (`train.lr`)",
        ));
    }
    Ok(())
}

/// The first two principal components, scaled down so that all points interact.
fn start(features: &Matrix, on_step: &mut dyn FnMut() -> Result<()>) -> Result<Vec<[f32; 2]>> {
    let pca = Pca::fit(features, 2, on_step)?;
    let along = pca.apply(features, false);
    let deviation = pca.variances[0].sqrt();
    // Identical rows differ from their mean by rounding errors only.
    let scale = if deviation > ROUNDING { START / deviation } else { 0.0 };
    // Features of one dimension have one component.
    let coordinate = |row: &[f32], c: usize| row.get(c).map_or(0.0, |x| (f64::from(*x) * scale) as f32);
    Ok(along.values.chunks(along.dim).map(|row| [coordinate(row, 0), coordinate(row, 1)]).collect())
}

#[cfg(test)]
mod tests;
