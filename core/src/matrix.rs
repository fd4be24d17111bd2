//! Matrices: [`Matrix`] owns its rows, [`MatrixRef`] borrows them for a product, and [`crate::io::matrix::read`] gives a
//! `Matrix` with the names of its rows.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// `rows` vectors of `dim` numbers, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub dim: usize,
    /// `rows * dim` values, row by row.
    pub values: Vec<f32>,
}

impl Matrix {
    /// Wraps `values`, whose length must be a multiple of `dim`.
    pub fn new(dim: usize, values: Vec<f32>) -> Self {
        assert!(dim > 0 && values.len().is_multiple_of(dim), "{} values do not make rows of {dim}", values.len());
        Matrix { rows: values.len() / dim, dim, values }
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.dim..(i + 1) * self.dim]
    }

    /// The matrix, borrowed for a product.
    pub fn view(&self) -> MatrixRef<'_> {
        MatrixRef::new(&self.values, self.rows, self.dim)
    }

    /// The given rows, in that order; a row may be given more than once.
    pub fn select_rows(&self, rows: &[usize]) -> Matrix {
        let mut values = Vec::with_capacity(rows.len() * self.dim);
        rows.iter().for_each(|row| values.extend_from_slice(self.row(*row)));
        Matrix { rows: rows.len(), dim: self.dim, values }
    }

    /// Removes the rows `out`, which must be ascending; in place, since the matrix may fill half of the memory.
    pub fn remove_rows(mut self, out: &[usize]) -> Matrix {
        let dim = self.dim;
        let (mut kept, mut gone) = (0, out.iter().copied().peekable());
        for row in 0..self.rows {
            if gone.next_if_eq(&row).is_none() {
                self.values.copy_within(row * dim..(row + 1) * dim, kept * dim);
                kept += 1;
            }
        }
        self.values.truncate(kept * dim);
        Matrix { rows: kept, ..self }
    }

    /// The same rows with unit length; a zero row stays zero.
    pub fn normalised(mut self) -> Self {
        for row in self.values.chunks_mut(self.dim) {
            normalise(row);
        }
        self
    }

    /// Mean over the dimensions of the standard deviation over the rows: near zero when a network has collapsed.
    pub fn spread(&self) -> f64 {
        self.spread_of(|_| ())
    }

    /// The spread of the same rows with unit length.
    pub fn unit_spread(&self) -> f64 {
        self.spread_of(normalise)
    }

    /// The spread of what `made` makes of every row.
    fn spread_of(&self, made: impl Fn(&mut [f32])) -> f64 {
        if self.rows == 0 {
            return 0.0;
        }
        let n = self.rows as f64;
        let mut sum = vec![0.0f64; self.dim];
        let mut squares = vec![0.0f64; self.dim];
        let mut made_row = vec![0.0; self.dim];
        for row in self.values.chunks(self.dim) {
            made_row.copy_from_slice(row);
            made(&mut made_row);
            for (d, &x) in made_row.iter().enumerate() {
                sum[d] += f64::from(x);
                squares[d] += f64::from(x) * f64::from(x);
            }
        }
        let deviation = |d: usize| (squares[d] / n - (sum[d] / n).powi(2)).max(0.0).sqrt();
        (0..self.dim).map(deviation).sum::<f64>() / self.dim as f64
    }
}

/// A matrix borrowed for a product ([`crate::matmul::matmul`]): of a [`Matrix`] by [`Matrix::view`], or of any slice.
#[derive(Clone, Copy)]
pub struct MatrixRef<'a, T = f32> {
    pub(crate) values: &'a [T],
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    transposed: bool,
}

impl<'a, T> MatrixRef<'a, T> {
    /// `rows` x `cols`, row by row.
    pub fn new(values: &'a [T], rows: usize, cols: usize) -> Self {
        assert_eq!(values.len(), rows * cols, "a {rows} x {cols} matrix needs rows * cols values");
        MatrixRef { values, rows, cols, transposed: false }
    }

    /// The transpose; no data is moved.
    pub fn t(self) -> Self {
        MatrixRef { rows: self.cols, cols: self.rows, transposed: !self.transposed, ..self }
    }

    /// Distance in memory between neighbours in a row, and between neighbours in a column.
    pub(crate) fn strides(&self) -> (isize, isize) {
        if self.transposed { (self.rows as isize, 1) } else { (1, self.cols as isize) }
    }
}

/// The distance between rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// By angle: rows and the centroids of k-means are scaled to unit length.
    Cosine,
    /// Euclidean distance.
    Euclidean,
}

impl Metric {
    /// Prepares `features` for this distance: scales rows to unit length for the cosine.
    pub fn prepared(self, mut features: Matrix) -> Matrix {
        if self == Metric::Cosine {
            features.values.par_chunks_mut(features.dim.max(1)).for_each(normalise);
        }
        features
    }
}

/// Scales `row` to unit length; a zero row stays zero.
pub fn normalise(row: &mut [f32]) {
    let length = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if length > 0.0 {
        for x in row {
            *x = (f64::from(*x) / length) as f32;
        }
    }
}

/// Dot product, summed in eight fixed lanes so that it vectorises and always gives the same bits.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 8];
    let (ca, cb) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = ca.remainder().iter().zip(cb.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in ca.zip(cb) {
        for l in 0..8 {
            lanes[l] += x[l] * y[l];
        }
    }
    lanes.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_identical_rows_is_zero() {
        let f = Matrix::new(2, vec![0.6, 0.8, 0.6, 0.8, 0.6, 0.8]);
        assert!(f.spread() < 1e-7);
        let f = Matrix::new(1, vec![1.0, -1.0]);
        assert!((f.spread() - 1.0).abs() < 1e-12);
        assert_eq!((Matrix::default().spread(), Matrix::default().unit_spread()), (0.0, 0.0));
        let rows = Matrix::new(3, (0..30).map(|i| (i * i) as f32 * 0.1 - 9.0).collect());
        assert_eq!(rows.unit_spread(), rows.clone().normalised().spread());
    }

    #[test]
    fn zero_rows_stay_zero() {
        let f = Matrix::new(2, vec![0.0, 0.0, 3.0, 4.0]).normalised();
        assert_eq!(f.values, vec![0.0, 0.0, 0.6, 0.8]);
    }

    #[test]
    fn dot_matches_a_plain_sum() {
        let a: Vec<f32> = (0..13).map(|i| i as f32).collect();
        assert_eq!(dot(&a, &a), 650.0);
    }

    #[test]
    fn rows_are_selected_and_removed() {
        let f = Matrix::new(2, (0..10).map(|x| x as f32).collect());
        assert_eq!(f.select_rows(&[3, 0, 3]), Matrix::new(2, vec![6.0, 7.0, 0.0, 1.0, 6.0, 7.0]));
        assert_eq!(f.select_rows(&[]).rows, 0);
        assert_eq!(f.clone().remove_rows(&[0, 3]).values, [2.0, 3.0, 4.0, 5.0, 8.0, 9.0]);
        assert_eq!(f.clone().remove_rows(&[]), f);
        assert_eq!(f.remove_rows(&[0, 1, 2, 3, 4]).rows, 0);
    }

    #[test]
    fn the_angle_alone_counts_for_the_cosine() {
        let f = Metric::Cosine.prepared(Matrix::new(2, vec![3.0, 4.0, 30.0, 40.0, 0.0, 0.0]));
        assert_eq!(f.values, [0.6, 0.8, 0.6, 0.8, 0.0, 0.0]);
    }
}
