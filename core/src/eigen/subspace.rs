//! A basis of the directions in which a symmetric matrix is greatest: subspace iterations, which take a fraction of the time of a
//! whole decomposition where a few hundred of thousands of directions are wanted and their exact turn does not matter.

use super::{cholesky, solve_rows, transposed};
use crate::error::Result;
use crate::matmul::matmul;
use crate::matrix::MatrixRef;
use crate::rng::{Key, Purpose};
use rayon::prelude::*;

/// Products with the matrix: directions of half the variance of the last one that is wanted fade to a sixteenth.
const PASSES: usize = 4;
/// Rows of a unit of parallel work.
const PANEL: usize = 64;

/// `count` orthonormal rows that span nearly the same space as the eigenvectors of the greatest eigenvalues of the symmetric,
/// positive definite `n` x `n` matrix `a`; all directions where there are no more.
pub fn subspace(a: &[f64], n: usize, count: usize) -> Result<Vec<f64>> {
    if count >= n {
        return Ok((0..n * n).map(|at| f64::from(u8::from(at / n == at % n))).collect());
    }
    let narrow: Vec<f32> = a.iter().map(|x| *x as f32).collect();
    let mut stream = Key { purpose: Purpose::Subset, seed: 0, round: 4, epoch: 0 }.stream(0, 0);
    let mut rows = orthonormal((0..count * n).map(|_| f64::from(stream.normal())).collect(), n)?;
    for _ in 0..PASSES {
        rows = orthonormal(times(&rows, &narrow, n), n)?;
    }
    // Once more: what the first time leaves of ill-conditioned rows is orthogonal to the last digits.
    orthonormal(rows, n)
}

/// `rows` times the `n` x `n` matrix `a`, in single precision.
pub(crate) fn times(rows: &[f64], a: &[f32], n: usize) -> Vec<f64> {
    let mut out = vec![0.0f64; rows.len()];
    out.par_chunks_mut(PANEL * n).zip(rows.par_chunks(PANEL * n)).for_each(|(out, rows)| {
        let narrow: Vec<f32> = rows.iter().map(|x| *x as f32).collect();
        let mut product = vec![0.0f32; rows.len()];
        matmul(MatrixRef::new(&narrow, rows.len() / n, n), MatrixRef::new(a, n, n), &mut product, false);
        out.iter_mut().zip(&product).for_each(|(o, p)| *o = f64::from(*p));
    });
    out
}

/// `[rows of a, rows of b]`: all products of rows of `a` and `b`, each of `n` numbers.
pub(crate) fn gram(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    let b = MatrixRef::new(b, b.len() / n, n).t();
    let mut out = vec![0.0f64; a.len() / n * b.cols];
    out.par_chunks_mut(PANEL * b.cols).zip(a.par_chunks(PANEL * n)).for_each(|(out, a)| {
        matmul(MatrixRef::new(a, a.len() / n, n), b, out, false);
    });
    out
}

/// The rows, turned into orthonormal ones that span the same space: `L^-1 Y` with `L L^T = Y Y^T`.
pub(crate) fn orthonormal(rows: Vec<f64>, n: usize) -> Result<Vec<f64>> {
    let m = rows.len() / n;
    let lower = cholesky(gram(&rows, &rows, n), m)?;
    // Row j is column j of `L^-1`.
    let mut columns: Vec<f64> = (0..m * m).map(|at| f64::from(u8::from(at / m == at % m))).collect();
    solve_rows(&lower, &mut columns, m);
    let inverse = transposed(&columns, m);
    let mut out = vec![0.0f64; rows.len()];
    out.par_chunks_mut(PANEL * n).zip(inverse.par_chunks(PANEL * m)).for_each(|(out, inverse)| {
        matmul(MatrixRef::new(inverse, inverse.len() / m, m), MatrixRef::new(&rows, m, n), out, false);
    });
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eigen::eigen;

    /// Eigenvalues 1, 1/2, 1/4, ... in random directions.
    fn decaying(n: usize) -> Vec<f64> {
        let mut stream = Key { purpose: Purpose::Synthetic, seed: 3, round: 0, epoch: 0 }.stream(0, 0);
        let turned = orthonormal((0..n * n).map(|_| f64::from(stream.normal())).collect(), n).unwrap();
        let mut a = vec![0.0; n * n];
        for (i, v) in turned.chunks_exact(n).enumerate() {
            for at in 0..n * n {
                a[at] += 0.5f64.powi(i as i32) * v[at / n] * v[at % n];
            }
        }
        a
    }

    #[test]
    fn the_basis_is_orthonormal_and_holds_the_greatest_directions() {
        let n = 150;
        let mut a = decaying(n);
        (0..n).for_each(|i| a[i * n + i] += 1e-3);
        let basis = subspace(&a, n, 20).unwrap();
        for (at, product) in gram(&basis, &basis, n).iter().enumerate() {
            let expected = f64::from(u8::from(at / 20 == at % 20));
            assert!((product - expected).abs() < 1e-9, "{at}: {product}");
        }
        let exact = eigen(a, n).unwrap();
        for (i, v) in exact.vectors.chunks_exact(n).take(8).enumerate() {
            let inside: f64 = gram(v, &basis, n).iter().map(|x| x * x).sum();
            assert!(inside > 1.0 - 1e-4, "direction {i}: {inside}");
        }
    }

    #[test]
    fn all_directions_and_equal_variances() {
        let identity: Vec<f64> = (0..16).map(|at| f64::from(u8::from(at / 4 == at % 4))).collect();
        assert_eq!(subspace(&[2.0; 16], 4, 4).unwrap(), identity);
        assert_eq!(subspace(&[2.0; 16], 4, 9).unwrap(), identity);
        let small: Vec<f64> = identity.iter().map(|x| x * 1e-6).collect();
        let basis = subspace(&small, 4, 2).unwrap();
        for (product, expected) in gram(&basis, &basis, 4).iter().zip([1.0, 0.0, 0.0, 1.0]) {
            assert!((product - expected).abs() < 1e-9, "{product}");
        }
    }
}
