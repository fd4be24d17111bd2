//! Mean and covariance of many rows, block by block: the same bits on any number of threads.

use crate::matmul::matmul;
use crate::matrix::{Matrix, MatrixRef};
use rayon::prelude::*;

/// Rows of the covariance that one unit of parallel work adds up.
const PANEL: usize = 64;

/// Sums of rows and of their products. Rows count from the first one, which keeps rounding small.
pub(crate) struct Scatter {
    rows: usize,
    origin: Vec<f32>,
    sum: Vec<f64>,
    /// `[dim, dim]`.
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

    pub(crate) fn add(&mut self, rows: &Matrix) {
        let d = rows.dim;
        if self.origin.is_empty() {
            self.origin = rows.row(0).to_vec();
        }
        let mut rows = rows.clone();
        for row in rows.values.chunks_exact_mut(d) {
            row.iter_mut().zip(&self.origin).for_each(|(x, o)| *x -= o);
            self.sum.iter_mut().zip(&*row).for_each(|(s, x)| *s += f64::from(*x));
        }
        self.rows += rows.rows;
        self.products.par_chunks_mut(PANEL * d).enumerate().for_each(|(panel, out)| {
            let (from, lines) = (panel * PANEL, out.len() / d);
            // Columns from..from + lines of all rows.
            let left: Vec<f32> =
                rows.values.chunks_exact(d).flat_map(|row| row[from..from + lines].iter().copied()).collect();
            let mut products = vec![0.0f32; lines * d];
            let left = MatrixRef::new(&left, rows.rows, lines);
            matmul(left.t(), rows.view(), &mut products, false);
            out.iter_mut().zip(&products).for_each(|(o, p)| *o += f64::from(*p));
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
                *x = self.products[i * d + j] / n - self.sum[i] / n * (self.sum[j] / n);
            }
        });
        out
    }
}
