//! The affinities P of the samples, and the attraction that follows from them.

use crate::matrix::Matrix;
use crate::neighbours::nearest;
use rayon::prelude::*;

/// The affinities `p_ij`, row by row; only those of nearest neighbours are not zero. They sum to 1.
pub struct Affinities {
    /// Index at which each row begins, and a last entry for the end.
    starts: Vec<u32>,
    /// The other sample, and the affinity, row by row, in growing order.
    pub pairs: Vec<(u32, f32)>,
}

impl Affinities {
    /// Affinities of unit rows, each with the given perplexity.
    pub fn new(features: &Matrix, perplexity: f64) -> Self {
        let n = features.rows;
        // Beyond three perplexities the Gaussian is negligible.
        let found = nearest(features, features, (3.0 * perplexity) as usize + 1, true, &|_| ());
        let row = |(i, near): (usize, &[u32])| -> Vec<f64> {
            let squared = |j: &u32| -> f64 {
                let pairs = features.row(i).iter().zip(features.row(*j as usize));
                pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
            };
            conditional(&near.iter().map(squared).collect::<Vec<_>>(), perplexity)
        };
        let conditional: Vec<Vec<f64>> = found.index.par_chunks(found.k).enumerate().map(row).collect();
        let mut rows: Vec<Vec<(u32, f64)>> = vec![Vec::new(); n];
        for (i, (near, p)) in found.index.chunks(found.k).zip(&conditional).enumerate() {
            for (&j, &p) in near.iter().zip(p) {
                rows[i].push((j, p / (2 * n) as f64));
                rows[j as usize].push((i as u32, p / (2 * n) as f64));
            }
        }
        let (mut starts, mut pairs) = (vec![0], Vec::with_capacity(2 * n * found.k));
        for row in &mut rows {
            row.sort_unstable_by_key(|(j, p)| (*j, p.to_bits()));
            // A pair occurs twice when each is a neighbour of the other.
            for same in row.chunk_by(|a, b| a.0 == b.0) {
                pairs.push((same[0].0, same.iter().map(|s| s.1).sum::<f64>() as f32));
            }
            starts.push(pairs.len() as u32);
        }
        Affinities { starts, pairs }
    }

    /// Those of sample `i`.
    pub fn row(&self, i: usize) -> &[(u32, f32)] {
        &self.pairs[self.starts[i] as usize..self.starts[i + 1] as usize]
    }
}

/// `p_j|i ~ exp(-beta d_ij^2)` with the beta that makes `exp(H)` the perplexity, found by bisection.
pub fn conditional(squared: &[f64], perplexity: f64) -> Vec<f64> {
    const STEPS: usize = 100;
    const CLOSE: f64 = 1e-5;
    // Relative to the nearest: the result is the same, and the sum cannot be zero.
    let least = squared.iter().copied().fold(f64::INFINITY, f64::min);
    let (mut beta, mut low, mut high) = (1.0, 0.0, f64::INFINITY);
    let mut p: Vec<f64> = Vec::new();
    for _ in 0..STEPS {
        p = squared.iter().map(|d| (-beta * (d - least)).exp()).collect();
        let sum: f64 = p.iter().sum();
        p.iter_mut().for_each(|p| *p /= sum);
        let mean: f64 = p.iter().zip(squared).map(|(p, d)| p * (d - least)).sum();
        let excess = sum.ln() + beta * mean - perplexity.ln();
        if excess.abs() <= CLOSE {
            break;
        }
        if excess > 0.0 {
            low = beta
        } else {
            high = beta
        }
        beta = if high.is_infinite() { beta * 2.0 } else { (low + high) / 2.0 };
        if !beta.is_finite() {
            break;
        }
    }
    p
}

/// `sum_j p_ij w_ij (y_i - y_j)`, in a fixed order.
#[inline]
pub fn attraction(affinities: &Affinities, places: &[[f32; 2]], i: usize) -> [f32; 2] {
    const LANES: usize = 4;
    let [x, y] = places[i];
    let (mut sx, mut sy) = ([0.0f32; LANES], [0.0f32; LANES]);
    let (chunks, rest) = affinities.row(i).as_chunks::<LANES>();
    let pull = |&(j, p): &(u32, f32)| {
        let [ox, oy] = places[j as usize];
        let (dx, dy) = (x - ox, y - oy);
        let w = p / (1.0 + dx * dx + dy * dy);
        (w * dx, w * dy)
    };
    for chunk in chunks {
        for l in 0..LANES {
            let (fx, fy) = pull(&chunk[l]);
            sx[l] += fx;
            sy[l] += fy;
        }
    }
    for pair in rest {
        let (fx, fy) = pull(pair);
        sx[0] += fx;
        sy[0] += fy;
    }
    [sx.iter().sum(), sy.iter().sum()]
}
