//! Mean and covariance of many rows, block by block: the same bits on any number of threads.

use crate::matmul::matmul;
use crate::matrix::{Matrix, MatrixRef};
use rayon::prelude::*;

/// Rows of the covariance that one unit of parallel work adds up.
const PANEL: usize = 128;

/// Sums of rows and of their products. Rows count from the first one, which keeps rounding small.
pub(crate) struct Scatter {
    rows: usize,
    origin: Vec<f32>,
    sum: Vec<f64>,
    /// `[dim, dim]`; what is left of the diagonal stands right of it, too, and is not summed.
    products: Vec<f64>,
}

impl Scatter {
    pub(crate) fn new(dim: usize) -> Scatter {
        Scatter { rows: 0, origin: Vec::new(), sum: vec![0.0; dim], products: vec![0.0; dim * dim] }
    }

    /// Columns.
    pub(crate) fn dim(&self) -> usize {
        self.sum.len()
    }

    /// Whether no row was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds rows. Hundreds at a time are best: the sums of products are a large matrix, which is read and written every time.
    pub(crate) fn add(&mut self, mut rows: Matrix) {
        let d = rows.dim;
        if self.origin.is_empty() {
            self.origin = rows.row(0).to_vec();
        }
        for row in rows.values.chunks_exact_mut(d) {
            row.iter_mut().zip(&self.origin).for_each(|(x, o)| *x -= o);
            self.sum.iter_mut().zip(&*row).for_each(|(s, x)| *s += f64::from(*x));
        }
        self.rows += rows.rows;
        let columns = transposed(&rows);
        self.products.par_chunks_mut(PANEL * d).enumerate().for_each(|(panel, out)| {
            let (from, lines, n) = (panel * PANEL, out.len() / d, rows.rows);
            let (left, right) = (&columns[from * n..][..lines * n], &columns[from * n..]);
            let mut products = vec![0.0f32; lines * (d - from)];
            matmul(MatrixRef::new(left, lines, n), MatrixRef::new(right, d - from, n).t(), &mut products, false);
            for (out, products) in out.chunks_exact_mut(d).zip(products.chunks_exact(d - from)) {
                out[from..].iter_mut().zip(products).for_each(|(o, p)| *o += f64::from(*p));
            }
        });
    }

    pub(crate) fn mean(&self) -> Vec<f64> {
        let n = self.rows.max(1) as f64;
        self.sum.iter().zip(&self.origin).map(|(s, o)| f64::from(*o) + s / n).collect()
    }

    pub(crate) fn covariance(&self) -> Vec<f64> {
        let (d, n) = (self.sum.len(), self.rows.max(1) as f64);
        let mut out = vec![0.0; d * d];
        out.par_chunks_mut(d).enumerate().for_each(|(i, row)| {
            for (j, x) in row.iter_mut().enumerate() {
                *x = self.products[i.min(j) * d + i.max(j)] / n - self.sum[i] / n * (self.sum[j] / n);
            }
        });
        out
    }
}

/// The columns of a matrix, one after the other.
fn transposed(rows: &Matrix) -> Vec<f32> {
    const SQUARE: usize = 16;
    let mut columns = vec![0.0f32; rows.values.len()];
    columns.par_chunks_mut(SQUARE * rows.rows.max(1)).enumerate().for_each(|(square, out)| {
        for first in (0..rows.rows).step_by(SQUARE) {
            for (at, column) in out.chunks_exact_mut(rows.rows).enumerate() {
                for i in first..rows.rows.min(first + SQUARE) {
                    column[i] = rows.values[i * rows.dim + square * SQUARE + at];
                }
            }
        }
    });
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::blobs;

    /// Beside plain sums of products of differences from the mean.
    #[test]
    fn mean_and_covariance_are_those_of_plain_loops() {
        for (n, d) in [(1, 1), (1, 5), (37, 3), (300, 131), (40, 290)] {
            let rows = blobs(1, n, d, 0.7, 4);
            let mut scatter = Scatter::new(d);
            assert!(scatter.is_empty());
            // Blocks of other sizes, one of a single row.
            let blocks = [0, n / 3, n / 3 + 1, n];
            for range in blocks.windows(2).map(|ends| ends[0]..ends[1]).filter(|range| !range.is_empty()) {
                scatter.add(rows.select_rows(&range.collect::<Vec<_>>()));
            }
            assert!(!scatter.is_empty());
            let value = |i: usize, j: usize| f64::from(rows.row(i)[j]);
            let mean: Vec<f64> = (0..d).map(|j| (0..n).map(|i| value(i, j)).sum::<f64>() / n as f64).collect();
            let covariance = scatter.covariance();
            for j in 0..d {
                assert!((scatter.mean()[j] - mean[j]).abs() < 1e-6);
                for k in 0..d {
                    let product = |i: usize| (value(i, j) - mean[j]) * (value(i, k) - mean[k]);
                    let expected = (0..n).map(product).sum::<f64>() / n as f64;
                    assert!((covariance[j * d + k] - expected).abs() < 1e-5, "{n} x {d} at {j}, {k}");
                    assert_eq!(covariance[j * d + k], covariance[k * d + j]);
                }
            }
        }
    }
}
