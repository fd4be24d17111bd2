//! The leading eigenvectors of a covariance C, without computing C: block Krylov iterations with Rayleigh-Ritz (Musco and Musco
//! 2015), restarted when the basis is full.
//!
//! A block of random directions B grows into an orthonormal basis of [B, C B, C^2 B, ...]. `C v` is `1/n sum_i z_i (z_i . v)`
//! over the centred rows `z_i`: one pass over the features for a whole block. The eigenvectors of the small matrix
//! `Q' C Q` give the best approximations within the basis; the residual `|C v - lambda v|` measures their error.

use super::jacobi;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::rng::{Key, Purpose};
use pulp::Arch;
use rayon::prelude::*;

/// Converged when residuals are at most this share of the greatest eigenvalue: the error of a variance is then the square of
/// it over the gap to the next, which is below single precision.
const TOLERANCE: f64 = 1e-5;
/// Directions beyond those wanted: they speed up the convergence of the last.
const MORE: usize = 2;
/// Directions in the basis before it is restarted from the best ones.
const BASIS: usize = 96;
/// Limit on the passes over the features. Directions that have not converged by then have nearly equal variances, and any mix
/// of them is as good.
pub const PASSES: usize = 200;
/// Parts of the rows that are summed in parallel; a fixed number, so that sums do not depend on threads.
const PARTS: usize = 16;
/// A direction of which less than this share of the length lies outside the basis adds nothing to it.
const SPENT: f64 = 1e-10;

/// The first `components` eigenvalues and eigenvectors (one a row) of the covariance of `features`, whose mean is `mean`.
/// `on_step` is called before every pass.
pub fn eigen(
    features: &Matrix,
    mean: &[f64],
    components: usize,
    on_step: &mut dyn FnMut() -> Result<()>,
) -> Result<(Vec<f64>, Vec<Vec<f64>>)> {
    let d = features.dim;
    let size = (components + MORE).min(d);
    let mut stream = Key { purpose: Purpose::Subset, seed: 0, round: 3, epoch: 0 }.stream(0, 0);
    let random: Vec<Vec<f64>> = (0..size).map(|_| (0..d).map(|_| f64::from(stream.normal())).collect()).collect();
    let (mut basis, mut images): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (Vec::new(), Vec::new());
    let mut block = orthonormal(&basis, random);
    for pass in 1usize.. {
        on_step()?;
        let image = product(features, mean, &block);
        basis.append(&mut block);
        images.extend(image.iter().cloned());
        let full = basis.len() + size > BASIS;
        block = orthonormal(&basis, image);
        // The small problem is not solved after every pass: with a large basis it costs as much as a pass.
        if !(full || block.is_empty() || pass.is_multiple_of(4) || pass >= PASSES) {
            continue;
        }
        let small = basis.iter().map(|q| images.iter().map(|image| dot(q, image)).collect()).collect();
        let (values, within) = jacobi::eigen(symmetric(small), &mut || Ok(()))?;
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
        order.truncate(size);
        let values: Vec<f64> = order.iter().map(|i| values[*i]).collect();
        let best: Vec<Vec<f64>> = order.iter().map(|i| combined(&basis, &within[*i])).collect();
        let best_images: Vec<Vec<f64>> = order.iter().map(|i| combined(&images, &within[*i])).collect();
        let residual = |i: usize| {
            let off = best_images[i].iter().zip(&best[i]).map(|(image, v)| (image - values[i] * v).powi(2));
            off.sum::<f64>().sqrt()
        };
        let enough = TOLERANCE * values.first().copied().unwrap_or(0.0).abs();
        let converged = (0..components.min(values.len())).all(|i| residual(i) <= enough);
        if converged || block.is_empty() || pass >= PASSES {
            return Ok((values, best));
        }
        if full {
            // Restart from the best directions and the last block.
            (basis, images) = (best, best_images);
            block = orthonormal(&basis, block);
        }
    }
    unreachable!("the last pass returns")
}

/// `C v` for every `v` of `block`.
fn product(features: &Matrix, mean: &[f64], block: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let (n, d) = (features.rows, features.dim);
    let arch = Arch::new();
    let part = |rows: &[f32]| {
        let mut sums = vec![vec![0.0f64; d]; block.len()];
        let mut centred = vec![0.0f64; d];
        arch.dispatch(|| {
            for row in rows.chunks_exact(d) {
                for ((c, x), m) in centred.iter_mut().zip(row).zip(mean) {
                    *c = f64::from(*x) - m;
                }
                for (v, sum) in block.iter().zip(&mut sums) {
                    let along = dot(v, &centred);
                    sum.iter_mut().zip(&centred).for_each(|(s, c)| *s += along * c);
                }
            }
        });
        sums
    };
    let rows = n.div_ceil(PARTS).max(1);
    let parts: Vec<Vec<Vec<f64>>> = features.values.par_chunks(rows * d).map(part).collect();
    let mut sums = vec![vec![0.0f64; d]; block.len()];
    for (sum, part) in parts.iter().flat_map(|part| part.iter().enumerate()) {
        sums[sum].iter_mut().zip(part).for_each(|(s, p)| *s += p / n as f64);
    }
    sums
}

/// `vectors`, made orthogonal to the `basis` and to one another, and of unit length; those within the basis are left out.
fn orthonormal(basis: &[Vec<f64>], vectors: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let mut found: Vec<Vec<f64>> = Vec::new();
    for mut vector in vectors {
        let before = dot(&vector, &vector).sqrt();
        // Orthogonalising twice is enough (Parlett).
        for _ in 0..2 {
            for q in basis.iter().chain(&found) {
                let along = dot(q, &vector);
                vector.iter_mut().zip(q).for_each(|(x, q)| *x -= along * q);
            }
        }
        let length = dot(&vector, &vector).sqrt();
        if length > SPENT * before {
            vector.iter_mut().for_each(|x| *x /= length);
            found.push(vector);
        }
    }
    found
}

fn combined(rows: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; rows.first().map_or(0, Vec::len)];
    for (row, weight) in rows.iter().zip(weights) {
        out.iter_mut().zip(row).for_each(|(o, x)| *o += weight * x);
    }
    out
}

/// Makes `Q' C Q` exactly symmetric, which rounding does not leave it.
fn symmetric(a: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    (0..a.len()).map(|i| (0..a.len()).map(|j| (a[i][j] + a[j][i]) / 2.0).collect()).collect()
}

/// Dot product in eight fixed lanes.
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0f64; 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (x, y) in a.iter().zip(b) {
        for l in 0..8 {
            lanes[l] += x[l] * y[l];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    lanes.iter().sum::<f64>() + rest
}
