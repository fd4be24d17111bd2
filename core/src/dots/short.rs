//! Upper bounds on dot products from shortened row vectors.
//!
//! Embeddings of a trained network lie near a subspace of few dimensions. With an orthonormal basis of it, `x = V x_v + x_r`
//! and `x . y = x_v . y_v + x_r . y_r <= x_v . y_v + |x_r| |y_r|`. So the product of
//! the shortened rows `[x_v, |x_r|]` is an upper bound on that of the rows, up to the rounding error [`Basis::slack`]. A search
//! for the largest products can skip all rows whose bound is too small and compute the others in full: the same result in a
//! fraction of the time.

use pulp::Arch;
use rayon::prelude::*;

use super::{Packed, StoreRows, WIDTH, products};
use crate::matrix::{Matrix, dot};

/// Rows from which the basis is found, evenly spaced.
const SAMPLE: usize = 2048;
/// Rounds of subspace iteration.
const ROUNDS: usize = 6;
/// The most of the sample's squared length that may lie outside the basis, as a share.
const LEFT_OUT: f64 = 0.03;
/// The most vectors of a basis.
const LONGEST: usize = 64;
/// The most numbers of a row: finding a basis takes time that grows with their square. Pixels of images have more.
const WIDEST: usize = 1024;
/// Rows of a work unit.
const BLOCK: usize = 512;

/// An orthonormal basis of the subspace near which rows lie.
pub struct Basis {
    vectors: Matrix,
    packed: Packed,
}

impl Basis {
    /// The smallest basis that is good enough for `rows`; `None` when they do not lie near a subspace, or are too few or too
    /// long to gain from it.
    pub fn new(rows: &Matrix) -> Option<Basis> {
        let most = (rows.dim / 2).min(LONGEST);
        if rows.rows < SAMPLE || most < 8 || rows.dim > WIDEST {
            return None;
        }
        let moments = moments(rows);
        let total: f64 = (0..rows.dim).map(|d| moments[d * rows.dim + d]).sum();
        if !total.is_finite() {
            return None;
        }
        let (vectors, shares) = leading(&moments, rows.dim, most);
        let mut left = total;
        let mut needed = 0;
        while left > LEFT_OUT * total {
            left -= shares.get(needed)?;
            needed += 1;
        }
        let kept = needed.next_multiple_of(4).clamp(4, most);
        let vectors = Matrix::new(rows.dim, vectors[..kept * rows.dim].iter().map(|x| *x as f32).collect());
        Some(Basis { packed: Packed::new(&vectors.values, rows.dim), vectors })
    }

    /// The shortened `rows`.
    pub fn shorten(&self, rows: &Matrix) -> Matrix {
        let (kept, dim) = (self.vectors.rows, rows.dim);
        assert_eq!(dim, self.vectors.dim, "rows of another dimension");
        let mut values = vec![0.0f32; rows.rows * (kept + 1)];
        values.par_chunks_mut(BLOCK * (kept + 1)).zip(rows.values.par_chunks(BLOCK * dim)).for_each(|(out, rows)| {
            let all: Vec<u32> = (0..(rows.len() / dim) as u32).collect();
            products(
                rows,
                &all,
                &self.packed,
                0..kept.div_ceil(WIDTH),
                &mut StoreRows { out, columns: kept, stride: kept + 1 },
            );
            for (short, row) in out.chunks_exact_mut(kept + 1).zip(rows.chunks_exact(dim)) {
                let (whole, near) = (dot(row, row), dot(&short[..kept], &short[..kept]));
                // The greatest rounding error of the difference.
                let error = 4.0 * dim as f32 * f32::EPSILON * whole;
                short[kept] = ((whole - near).max(0.0) + error).sqrt();
            }
        });
        Matrix { rows: rows.rows, dim: kept + 1, values }
    }

    /// How far rounding may put a product of shortened rows below that of the rows, which have these lengths. Worst case: each
    /// of the `kept` components of both is off by `dim` half-epsilons of the length, and so are the products; `kept` is at
    /// most `dim / 2`.
    pub fn slack(&self, length: f32, other: f32) -> f32 {
        let kept = self.vectors.rows as f32;
        (kept.sqrt() + 4.0) * 2.0 * self.vectors.dim as f32 * f32::EPSILON * length * other
    }
}

/// `sum x x^T` over the sample, `[dim, dim]`.
fn moments(rows: &Matrix) -> Vec<f64> {
    let dim = rows.dim;
    let sample: Vec<&[f32]> = (0..SAMPLE).map(|i| rows.row(i * rows.rows / SAMPLE)).collect();
    let mut out = vec![0.0f64; dim * dim];
    let arch = Arch::new();
    out.par_chunks_mut(dim).enumerate().for_each(|(d, out)| {
        let mut sums = vec![0.0f32; dim];
        arch.dispatch(
            #[inline(always)]
            || {
                for rows in sample.chunks(64) {
                    sums.fill(0.0);
                    for row in rows {
                        let own = row[d];
                        for (s, x) in sums.iter_mut().zip(*row) {
                            *s += own * x;
                        }
                    }
                    for (o, s) in out.iter_mut().zip(&sums) {
                        *o += f64::from(*s);
                    }
                }
            },
        );
    });
    out
}

/// Approximations of the `count` leading eigenvectors of the symmetric matrix `m`, always orthonormal, and the share of its
/// trace that each accounts for.
fn leading(m: &[f64], dim: usize, count: usize) -> (Vec<f64>, Vec<f64>) {
    // Any start works that is not orthogonal to them; here all entries differ.
    let mut basis: Vec<f64> = (0..count * dim).map(|i| ((i as f64 + 1.0) * 0.618_033_988_75).fract() - 0.5).collect();
    let times =
        |v: &[f64]| -> Vec<f64> { m.par_chunks(dim).with_min_len(32).map(|row| sum_of_products(row, v)).collect() };
    for _ in 0..ROUNDS {
        for v in basis.chunks_exact_mut(dim) {
            let next = times(v);
            v.copy_from_slice(&next);
        }
        orthonormalise(&mut basis, dim);
    }
    let share = |v: &[f64]| sum_of_products(v, &times(v));
    let shares = basis.chunks_exact(dim).map(share).collect();
    (basis, shares)
}

/// Gram-Schmidt, done twice for accuracy; a vector that becomes zero is replaced by the next unit vector that does not.
fn orthonormalise(basis: &mut [f64], dim: usize) {
    let mut spare = 0;
    for i in 0..basis.len() / dim {
        let (before, rest) = basis.split_at_mut(i * dim);
        let v = &mut rest[..dim];
        loop {
            let length = sum_of_products(v, v).sqrt();
            for _ in 0..2 {
                for b in before.chunks_exact(dim) {
                    let along = sum_of_products(b, v);
                    v.iter_mut().zip(b).for_each(|(x, b)| *x -= along * b);
                }
            }
            let left = sum_of_products(v, v).sqrt();
            if left > 1e-9 * length && left > 1e-200 {
                v.iter_mut().for_each(|x| *x /= left);
                break;
            }
            v.fill(0.0);
            v[spare] = 1.0;
            spare += 1;
        }
    }
}

/// Dot product in eight fixed lanes.
fn sum_of_products(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (x, y) in a.iter().zip(b) {
        for l in 0..8 {
            lanes[l] += x[l] * y[l];
        }
    }
    lanes.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Key, Purpose};

    /// Rows near a subspace of `rank` dimensions, off it by `noise`, of lengths about `length`.
    pub fn flat(rows: usize, dim: usize, rank: usize, noise: f32, length: f32) -> Matrix {
        let mut rng = Key { purpose: Purpose::Synthetic, seed: rank as u64, round: 0, epoch: 0 }.stream(0, 0);
        let plane: Vec<f32> = (0..rank * dim).map(|_| rng.normal()).collect();
        let mut values = Vec::with_capacity(rows * dim);
        for _ in 0..rows {
            let along: Vec<f32> = (0..rank).map(|_| rng.normal()).collect();
            for d in 0..dim {
                let x: f32 = along.iter().enumerate().map(|(r, a)| a * plane[r * dim + d]).sum();
                values.push(length * (x + noise * rng.normal()));
            }
        }
        Matrix::new(dim, values)
    }

    #[test]
    fn products_of_shortened_rows_bound_those_of_the_rows() {
        for (dim, rank, noise, length) in
            [(40, 6, 0.1, 1.0), (128, 20, 0.3, 1e-3), (33, 1, 0.0, 50.0), (16, 2, 0.2, 1.0)]
        {
            let rows = flat(SAMPLE + 100, dim, rank, noise, length);
            let basis = Basis::new(&rows).unwrap();
            let short = basis.shorten(&rows);
            assert!(short.dim <= dim / 2 + 1 && short.dim > rank, "{} of {dim}", short.dim);
            let length = |i: usize| dot(rows.row(i), rows.row(i)).sqrt();
            for i in 0..200 {
                for j in (0..rows.rows).step_by(13) {
                    let (bound, own) = (dot(short.row(i), short.row(j)), dot(rows.row(i), rows.row(j)));
                    assert!(bound + basis.slack(length(i), length(j)) >= own, "{bound} {own}");
                }
            }
        }
    }

    #[test]
    fn the_basis_is_orthonormal_whatever_the_rows() {
        for rows in
            [flat(SAMPLE, 24, 2, 0.0, 1.0), Matrix::new(24, vec![0.0; SAMPLE * 24]), flat(SAMPLE, 24, 3, 0.1, 1e-12)]
        {
            let basis = Basis::new(&rows).unwrap().vectors;
            for i in 0..basis.rows {
                for j in 0..basis.rows {
                    let wanted = if i == j { 1.0 } else { 0.0 };
                    assert!((dot(basis.row(i), basis.row(j)) - wanted).abs() < 1e-6);
                }
            }
        }
    }

    #[test]
    fn rows_without_a_subspace_get_no_basis() {
        assert!(Basis::new(&flat(SAMPLE, 24, 24, 1.0, 1.0)).is_none());
        assert!(Basis::new(&flat(100, 24, 2, 0.0, 1.0)).is_none());
        assert!(Basis::new(&flat(SAMPLE, 8, 1, 0.0, 1.0)).is_none());
        // As long as those of pixels: they lie near a subspace, but finding it takes longer than the search.
        assert!(Basis::new(&flat(SAMPLE, WIDEST + 1, 1, 0.0, 1.0)).is_none());
        let mut rows = flat(SAMPLE, 24, 2, 0.0, 1.0);
        rows.values[5] = f32::NAN;
        assert!(Basis::new(&rows).is_none());
    }
}
