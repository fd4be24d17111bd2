//! Eigenvalues and eigenvectors of a symmetric matrix, and the generalised problem: Householder's reflections to a tridiagonal
//! matrix, then QL iterations with implicit shifts (Golub and Van Loan, chapter 8). Work is cut by its shape alone: the same
//! bits on any number of threads.

pub(crate) mod subspace;

use crate::error::{Error, Result};
use crate::matmul::matmul;
use crate::matrix::Matrix;
use rayon::prelude::*;

/// Columns of a unit of parallel work.
const BLOCK: usize = 64;
/// QL iterations for one eigenvalue before giving up; it takes two or three.
const MOST: usize = 60;

/// Eigenvalues, the greatest first, and their eigenvectors: unit vectors, one a row.
#[derive(Clone, Debug)]
pub struct Eigen {
    /// Eigenvalues, the greatest first.
    pub values: Vec<f64>,
    /// Eigenvectors, one a row.
    pub vectors: Vec<f64>,
}

/// The eigenvalues and eigenvectors of the symmetric `n` x `n` matrix `a`, row by row; only its lower half is read.
pub fn eigen(a: Vec<f64>, n: usize) -> Result<Eigen> {
    assert_eq!(a.len(), n * n, "a matrix of {n} rows and columns");
    if a.iter().any(|x| !x.is_finite()) {
        return Err(Error::data("a matrix to decompose has numbers that are not finite", "check the features"));
    }
    let (mut diagonal, mut off, reflections) = tridiagonal(a, n);
    // Row i holds, for every column block, entry i of all eigenvectors: rotations mix two rows.
    let mut vectors = vec![0.0f64; n * n];
    (0..n).for_each(|i| vectors[i * n + i] = 1.0);
    ql(&mut diagonal, &mut off, &mut vectors, n)?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|x, y| diagonal[*y].total_cmp(&diagonal[*x]).then(x.cmp(y)));
    let values = order.iter().map(|i| diagonal[*i]).collect();
    // `vectors` row i is the i-th eigenvector of the tridiagonal matrix.
    let mut sorted = vec![0.0f64; n * n];
    sorted.par_chunks_mut(n.max(1)).zip(&order).for_each(|(out, i)| out.copy_from_slice(&vectors[i * n..(i + 1) * n]));
    sorted.par_chunks_mut((n * 16).max(1)).for_each(|rows| {
        for (k, (v, beta)) in reflections.iter().enumerate().rev() {
            for row in rows.chunks_exact_mut(n) {
                let part = &mut row[k + 1..];
                let along = beta * dot(v, part);
                part.iter_mut().zip(v).for_each(|(x, v)| *x -= along * v);
            }
        }
    });
    Ok(Eigen { values, vectors: sorted })
}

/// Directions `g` with `a g = w b g` and `g . b g = 1`, for symmetric `a` and positive definite `b`, the greatest `w` first.
pub fn generalised(mut a: Vec<f64>, b: Vec<f64>, n: usize) -> Result<Eigen> {
    let lower = cholesky(b, n)?;
    // L^-1 a L^-T: solve for the columns, transpose, and solve again.
    solve_rows(&lower, &mut a, n);
    let mut turned = transposed(&a, n);
    solve_rows(&lower, &mut turned, n);
    let Eigen { values, mut vectors } = eigen(turned, n)?;
    // g = L^-T u.
    solve_rows_transposed(&lower, &mut vectors, n);
    Ok(Eigen { values, vectors })
}

/// Rows that an effective rank is computed from at the most, evenly spaced.
const RANKED: usize = 4096;

/// How many directions the rows use (the effective rank of Roy and Vetterli 2007): `exp(-sum p_i ln p_i)` with the shares `p_i` of the eigenvalues
/// of `X^T X`. It is 1 for rows along one line, and their length for rows that use all directions alike.
pub fn effective_rank(rows: &Matrix) -> Result<f64> {
    rank_of(&ranked(rows))
}

/// The effective rank of the same rows with unit length.
pub fn unit_effective_rank(rows: &Matrix) -> Result<f64> {
    rank_of(&ranked(rows).normalised())
}

/// The rows that an effective rank is computed from.
fn ranked(rows: &Matrix) -> Matrix {
    let n = rows.rows.min(RANKED);
    rows.select_rows(&(0..n).map(|i| i * rows.rows / n).collect::<Vec<_>>())
}

fn rank_of(rows: &Matrix) -> Result<f64> {
    let (sample, dim) = (rows.view(), rows.dim);
    let mut moments = vec![0.0f32; dim * dim];
    matmul(sample.t(), sample, &mut moments, false);
    let found = eigen(moments.iter().map(|x| f64::from(*x)).collect(), dim)?;
    let sum: f64 = found.values.iter().map(|w| w.max(0.0)).sum();
    let shares = found.values.iter().map(|w| w / sum).filter(|share| *share > 0.0);
    Ok(shares.map(|share| -share * share.ln()).sum::<f64>().exp())
}

/// Every row `x` of `rows` becomes `a^-1 x`, for a positive definite `a`; returns the logarithm of its determinant.
pub fn solve(a: Vec<f64>, rows: &mut [f64], n: usize) -> Result<f64> {
    let lower = cholesky(a, n)?;
    solve_rows(&lower, rows, n);
    solve_rows_transposed(&lower, rows, n);
    Ok((0..n).map(|i| 2.0 * lower[i * n + i].ln()).sum())
}

/// Every row `x` of `a` becomes the solution `y` of `L y = x`.
fn solve_rows(lower: &[f64], a: &mut [f64], n: usize) {
    a.par_chunks_mut(n.max(1)).for_each(|row| {
        for i in 0..n {
            let sum = dot(&lower[i * n..i * n + i], &row[..i]);
            row[i] = (row[i] - sum) / lower[i * n + i];
        }
    });
}

/// Every row `x` of `a` becomes the solution `y` of `L^T y = x`.
fn solve_rows_transposed(lower: &[f64], a: &mut [f64], n: usize) {
    a.par_chunks_mut(n.max(1)).for_each(|row| {
        for i in (0..n).rev() {
            row[i] /= lower[i * n + i];
            let x = row[i];
            row[..i].iter_mut().zip(&lower[i * n..i * n + i]).for_each(|(u, l)| *u -= x * l);
        }
    });
}

fn transposed(a: &[f64], n: usize) -> Vec<f64> {
    let mut out = vec![0.0f64; n * n];
    out.par_chunks_mut(n.max(1)).enumerate().for_each(|(j, row)| {
        row.iter_mut().enumerate().for_each(|(i, x)| *x = a[i * n + j]);
    });
    out
}

/// `L` with `L L^T = b`, lower half, row by row.
fn cholesky(mut b: Vec<f64>, n: usize) -> Result<Vec<f64>> {
    for j in 0..n {
        let (done, rest) = b.split_at_mut((j + 1) * n);
        let pivot_row = &mut done[j * n..];
        let pivot = pivot_row[j] - dot(&pivot_row[..j], &pivot_row[..j]);
        if pivot.is_nan() || pivot <= 0.0 {
            let message = format!("a covariance of {n} columns is singular at column {j}");
            return Err(Error::data(message, "use more images, or a greater ridge"));
        }
        let pivot = pivot.sqrt();
        pivot_row[j] = pivot;
        pivot_row[j + 1..].fill(0.0);
        let pivot_row = &pivot_row[..j];
        rest.par_chunks_mut(n).for_each(|row| {
            let sum = dot(&row[..j], pivot_row);
            row[j] = (row[j] - sum) / pivot;
        });
    }
    Ok(b)
}

/// The reflections of a tridiagonalisation, each a vector and its factor.
type Reflections = Vec<(Vec<f64>, f64)>;

/// Diagonal and off-diagonal of a tridiagonal matrix that is similar to `a`, and the reflections that lead to it.
fn tridiagonal(mut a: Vec<f64>, n: usize) -> (Vec<f64>, Vec<f64>, Reflections) {
    // The upper half as the lower half says.
    for i in 0..n {
        for j in i + 1..n {
            a[i * n + j] = a[j * n + i];
        }
    }
    let mut off = vec![0.0f64; n];
    let mut reflections = Vec::new();
    for k in 0..n.saturating_sub(2) {
        let mut v: Vec<f64> = (k + 1..n).map(|i| a[i * n + k]).collect();
        let length = dot(&v, &v).sqrt();
        let alpha = if v[0] > 0.0 { -length } else { length };
        off[k] = alpha;
        v[0] -= alpha;
        let square = dot(&v, &v);
        let beta = if square > 0.0 { 2.0 / square } else { 0.0 };
        let rest = &mut a[(k + 1) * n..];
        let mut w: Vec<f64> = rest.par_chunks(n).map(|row| beta * dot(&row[k + 1..], &v)).collect();
        let half = 0.5 * beta * dot(&w, &v);
        w.iter_mut().zip(&v).for_each(|(w, v)| *w -= half * v);
        rest.par_chunks_mut(n).enumerate().for_each(|(i, row)| {
            let (vi, wi) = (v[i], w[i]);
            row[k + 1..].iter_mut().zip(&w).zip(&v).for_each(|((x, w), v)| *x -= vi * w + wi * v);
        });
        reflections.push((v, beta));
    }
    if n > 1 {
        off[n - 2] = a[(n - 1) * n + n - 2];
    }
    ((0..n).map(|i| a[i * n + i]).collect(), off, reflections)
}

/// QL iterations: `diagonal` becomes the eigenvalues, the rows of `vectors` the eigenvectors in the order of `diagonal`.
fn ql(diagonal: &mut [f64], off: &mut [f64], vectors: &mut [f64], n: usize) -> Result<()> {
    let (d, e) = (diagonal, off);
    // Off-diagonal numbers below the rounding of the whole matrix mean nothing. They count as 0 where the iteration, which
    // aims at small eigenvalues to their own last digits, does not end: many small ones may be equal.
    let rounding = f64::EPSILON * d.iter().chain(&*e).fold(0.0f64, |most, x| most.max(x.abs()));
    // Rotations of rows (i, i + 1) that have not been applied to the vectors yet: they are applied block by block of columns.
    let mut rotations: Vec<(u32, f64, f64)> = Vec::new();
    for l in 0..n {
        for iteration in 0.. {
            let least = if iteration < MOST / 2 { 0.0 } else { rounding };
            let small = |m: usize| e[m].abs() <= (f64::EPSILON * (d[m].abs() + d[m + 1].abs())).max(least);
            let m = (l..n - 1).find(|m| small(*m)).unwrap_or(n - 1);
            if m == l {
                break;
            }
            if iteration == MOST {
                return Err(Error::data("a covariance could not be decomposed", "check the features for wild numbers"));
            }
            let mut g = (d[l + 1] - d[l]) / (2.0 * e[l]);
            let mut r = g.hypot(1.0);
            g = d[m] - d[l] + e[l] / (g + if g >= 0.0 { r } else { -r });
            let (mut s, mut c, mut p) = (1.0, 1.0, 0.0);
            let mut split = false;
            for i in (l..m).rev() {
                let (f, b) = (s * e[i], c * e[i]);
                r = f.hypot(g);
                e[i + 1] = r;
                if r == 0.0 {
                    d[i + 1] -= p;
                    e[m] = 0.0;
                    split = true;
                    break;
                }
                s = f / r;
                c = g / r;
                g = d[i + 1] - p;
                r = (d[i] - g) * s + 2.0 * c * b;
                p = s * r;
                d[i + 1] = g + p;
                g = c * r - b;
                rotations.push((i as u32, c, s));
            }
            if !split {
                d[l] -= p;
                e[l] = g;
                e[m] = 0.0;
            }
            if rotations.len() > 16 * n {
                rotate(vectors, n, &mut rotations);
            }
        }
    }
    rotate(vectors, n, &mut rotations);
    Ok(())
}

/// Applies the rotations, in order, to the rows of `vectors`.
fn rotate(vectors: &mut [f64], n: usize, rotations: &mut Vec<(u32, f64, f64)>) {
    let blocks: Vec<Vec<f64>> = (0..n)
        .step_by(BLOCK)
        .collect::<Vec<_>>()
        .into_par_iter()
        .map(|from| {
            let width = BLOCK.min(n - from);
            let mut block: Vec<f64> = (0..n).flat_map(|i| vectors[i * n + from..][..width].iter().copied()).collect();
            for &(i, c, s) in rotations.iter() {
                let (upper, lower) = block[i as usize * width..].split_at_mut(width);
                for (x, y) in upper.iter_mut().zip(lower) {
                    let f = *y;
                    *y = s * *x + c * f;
                    *x = c * *x - s * f;
                }
            }
            block
        })
        .collect();
    for (b, block) in blocks.iter().enumerate() {
        let width = BLOCK.min(n - b * BLOCK);
        for i in 0..n {
            vectors[i * n + b * BLOCK..][..width].copy_from_slice(&block[i * width..][..width]);
        }
    }
    rotations.clear();
}

/// Dot product in eight fixed lanes: it vectorises and always gives the same bits.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0f64; 8];
    let (ca, cb) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = ca.remainder().iter().zip(cb.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in ca.zip(cb) {
        for l in 0..8 {
            lanes[l] += x[l] * y[l];
        }
    }
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Key, Purpose};

    fn random(n: usize, seed: u64) -> Vec<f64> {
        let mut stream = Key { purpose: Purpose::Synthetic, seed, round: 0, epoch: 0 }.stream(0, 0);
        let x: Vec<f64> = (0..n * n).map(|_| f64::from(stream.normal())).collect();
        // Symmetric and positive definite.
        let entry = |i: usize, j: usize| dot(&x[i * n..(i + 1) * n], &x[j * n..(j + 1) * n]) / n as f64;
        (0..n * n).map(|at| entry(at / n, at % n) + f64::from(u8::from(at / n == at % n)) * 0.1).collect()
    }

    fn times(a: &[f64], x: &[f64], n: usize) -> Vec<f64> {
        (0..n).map(|i| dot(&a[i * n..(i + 1) * n], x)).collect()
    }

    /// Two directions with shares 0.9 and 0.1: `exp(-0.9 ln 0.9 - 0.1 ln 0.1) = 1.3841`.
    #[test]
    fn the_effective_rank_counts_directions() {
        let rank = |dim: usize, values: Vec<f32>| effective_rank(&Matrix::new(dim, values)).unwrap();
        assert!((rank(3, [1.0, 2.0, 3.0].repeat(50)) - 1.0).abs() < 1e-4);
        let all: Vec<f32> = (0..40 * 8).map(|at| f32::from(u8::from(at / 8 % 8 == at % 8))).collect();
        assert!((rank(8, all) - 8.0).abs() < 1e-4);
        assert!((rank(2, [[3.0, 0.0], [0.0, 1.0]].repeat(30).concat()) - 1.3841).abs() < 1e-4);
        assert!(effective_rank(&Matrix::new(2, vec![f32::NAN; 4])).is_err());
        let rows = Matrix::new(3, (0..15_000).map(|i| (i * i % 37) as f32 - 9.0).collect());
        assert_eq!(unit_effective_rank(&rows).unwrap(), effective_rank(&rows.clone().normalised()).unwrap());
        assert_eq!(rank(2, vec![]), 1.0);
    }

    #[test]
    fn solutions_solve_and_the_determinant_is_that_of_the_eigenvalues() {
        for n in [1, 2, 17, 70] {
            let a = random(n, n as u64);
            let sought: Vec<f64> = (0..2 * n).map(|i| (i as f64).sin()).collect();
            let mut rows: Vec<f64> = sought.chunks(n).flat_map(|x| times(&a, x, n)).collect();
            let log_det = solve(a.clone(), &mut rows, n).unwrap();
            rows.iter().zip(&sought).for_each(|(found, x)| assert!((found - x).abs() < 1e-8));
            let expected: f64 = eigen(a, n).unwrap().values.iter().map(|w| w.ln()).sum();
            assert!((log_det - expected).abs() < 1e-8);
        }
        assert!(solve(vec![0.0], &mut [1.0], 1).is_err(), "singular");
    }

    #[test]
    fn eigenvectors_are_scaled_by_their_eigenvalue_and_orthogonal() {
        for n in [1, 2, 3, 17, 70, 130] {
            let a = random(n, n as u64);
            let e = eigen(a.clone(), n).unwrap();
            assert!(e.values.windows(2).all(|w| w[0] >= w[1]));
            for (i, v) in e.vectors.chunks(n).enumerate() {
                let residual =
                    times(&a, v, n).iter().zip(v).map(|(x, v)| (x - e.values[i] * v).abs()).fold(0.0, f64::max);
                assert!(residual < 1e-11 * e.values[0], "n {n}, vector {i}: {residual}");
                for (j, w) in e.vectors.chunks(n).enumerate() {
                    let expected = f64::from(u8::from(i == j));
                    assert!((dot(v, w) - expected).abs() < 1e-11, "n {n}, {i} and {j}");
                }
            }
        }
    }

    #[test]
    fn the_generalised_problem_holds() {
        let n = 40;
        let (a, b) = (random(n, 1), random(n, 2));
        let e = generalised(a.clone(), b.clone(), n).unwrap();
        for (i, g) in e.vectors.chunks(n).enumerate() {
            let (left, right) = (times(&a, g, n), times(&b, g, n));
            let residual = left.iter().zip(&right).map(|(l, r)| (l - e.values[i] * r).abs()).fold(0.0, f64::max);
            assert!(residual < 1e-9, "{i}: {residual}");
            assert!((dot(g, &right) - 1.0).abs() < 1e-10);
        }
    }

    #[test]
    fn degenerate_matrices_have_an_answer_or_an_error() {
        assert!(eigen(Vec::new(), 0).unwrap().values.is_empty());
        assert_eq!(eigen(vec![3.0], 1).unwrap().values, [3.0]);
        // All the same, all zero, diagonal.
        let ones = eigen(vec![1.0; 25], 5).unwrap();
        assert!((ones.values[0] - 5.0).abs() < 1e-12 && ones.values[1].abs() < 1e-12);
        assert_eq!(eigen(vec![0.0; 16], 4).unwrap().values, [0.0; 4]);
        assert_eq!(eigen(vec![1.0, 0.0, 0.0, 2.0], 2).unwrap().values, [2.0, 1.0]);
        assert!(eigen(vec![f64::NAN; 4], 2).is_err());
        assert!(generalised(vec![1.0; 4], vec![1.0; 4], 2).unwrap_err().message.contains("singular"));
    }
}
