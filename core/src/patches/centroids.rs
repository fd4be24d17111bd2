//! Spherical k-means in which a centroid stands for its negative and its mirror image, too: an edge is an edge whichever side is
//! bright, and whichever way it leans.

use crate::cancel::Cancel;
use crate::dots::{Packed, Visit, WIDTH, products};
use crate::error::Result;
use crate::matrix::{Matrix, normalise};
use crate::rng::Key;
use rayon::prelude::*;

/// Rows of a unit of parallel work.
const BLOCK: usize = 2048;

/// How many centroids are learned, and how.
pub(super) struct Wanted {
    /// How many, k.
    pub k: usize,
    /// Updates.
    pub iterations: usize,
    /// Randomness derives from it.
    pub key: Key,
}

/// Writes the mirror image of a row.
pub(super) type Mirror<'a> = &'a (dyn Fn(&[f32], &mut [f32]) + Sync);

/// `wanted.k` unit vectors such that every row of `patches` has a large `|x . c|` with one of them or its mirror image.
pub(super) fn learn(patches: &Matrix, wanted: &Wanted, mirror: Mirror, cancel: &Cancel) -> Result<Matrix> {
    let (k, d) = (wanted.k, patches.dim);
    let drawn = |c: usize, iteration: u32| {
        let mut random = wanted.key.stream(c as u64, iteration);
        let mut row: Vec<f32> = (0..d).map(|_| random.normal()).collect();
        normalise(&mut row);
        row
    };
    let mut centroids = with_mirrors((0..k).flat_map(|c| drawn(c, 0)).collect(), mirror, d);
    for iteration in 0..wanted.iterations {
        cancel.check()?;
        let packed = Packed::new(&centroids.values, d);
        let blocks = patches.values.par_chunks(BLOCK * d);
        let sums: Vec<Vec<f32>> = blocks.map(|rows| signed_sums(rows, d, &packed, 2 * k)).collect();
        // Put together in order: the same bits on any number of threads.
        let mut values = vec![0.0f32; k * d];
        values.par_chunks_mut(d).enumerate().for_each_init(
            || vec![0.0f32; d],
            |turned, (c, row)| {
                for block in &sums {
                    mirror(&block[(k + c) * d..][..d], turned);
                    row.iter_mut().zip(&block[c * d..][..d]).zip(&*turned).for_each(|((a, b), m)| *a += b + m);
                }
                normalise(row);
                if row.iter().all(|x| *x == 0.0) {
                    row.copy_from_slice(&drawn(c, iteration as u32 + 1));
                }
            },
        );
        centroids = with_mirrors(values, mirror, d);
    }
    centroids.values.truncate(k * d);
    Ok(Matrix::new(d, centroids.values))
}

/// The rows, and behind them their mirror images.
fn with_mirrors(mut values: Vec<f32>, mirror: Mirror, d: usize) -> Matrix {
    let own = values.len();
    values.resize(2 * own, 0.0);
    let (own, mirrors) = values.split_at_mut(own);
    own.chunks_exact(d).zip(mirrors.chunks_exact_mut(d)).for_each(|(c, m)| mirror(c, m));
    Matrix::new(d, values)
}

/// For every centroid, the sum of the rows that are nearest to it or to its negative, each turned to its side.
fn signed_sums(rows: &[f32], d: usize, centroids: &Packed, k: usize) -> Vec<f32> {
    let n = rows.len() / d;
    let mut nearest = NearestOrNegative { k, best: vec![(0, 0.0); n] };
    let all: Vec<u32> = (0..n as u32).collect();
    products(rows, &all, centroids, 0..k.div_ceil(WIDTH), &mut nearest);
    let mut sums = vec![0.0f32; k * d];
    for (row, (c, product)) in rows.chunks_exact(d).zip(nearest.best) {
        let sign = if product < 0.0 { -1.0 } else { 1.0 };
        sums[c as usize * d..][..d].iter_mut().zip(row).for_each(|(s, x)| *s += sign * x);
    }
    sums
}

/// The centroid with the greatest `|x . c|` of every row, ties to the lowest, and that product.
struct NearestOrNegative {
    k: usize,
    best: Vec<(u32, f32)>,
}

impl Visit for NearestOrNegative {
    #[inline(always)]
    fn visit(&mut self, row: usize, first: usize, products: &[f32; WIDTH]) {
        let best = &mut self.best[row];
        let greatest = products.iter().fold(0.0f32, |a, p| a.max(p.abs()));
        if greatest > best.1.abs()
            && let Some(i) = products.iter().position(|p| p.abs() == greatest)
            && first + i < self.k
        {
            *best = ((first + i) as u32, products[i]);
        }
    }
}
