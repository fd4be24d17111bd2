//! ZCA: patches whose numbers are no longer correlated, turned as little as possible.

use crate::eigen::eigen;
use crate::error::Result;
use crate::matmul::matmul;
use crate::matrix::{Matrix, MatrixRef};
use crate::scatter::Scatter;
use rayon::prelude::*;

/// Rows of a unit of parallel work.
const BLOCK: usize = 4096;

/// `x = (p - mean) map`, where `map = V (D + eps)^(-1/2) V^T` and `V D V^T` is the covariance of the patches.
pub(super) struct Zca {
    mean: Vec<f32>,
    /// `[dim, dim]`, symmetric.
    map: Vec<f32>,
}

impl Zca {
    pub(super) fn learn(patches: &Matrix, side: usize, epsilon: f64) -> Result<Zca> {
        let d = patches.dim;
        let mut scatter = Scatter::new(d);
        for rows in patches.values.chunks(BLOCK * d) {
            scatter.add(Matrix::new(d, rows.to_vec()));
        }
        // As if the mirror image of every patch had been counted, too.
        let mirror: Vec<usize> =
            (0..d).map(|i| (i / (3 * side) * side + side - 1 - i / 3 % side) * 3 + i % 3).collect();
        let (own, products) = (scatter.mean(), scatter.covariance());
        let mean: Vec<f64> = (0..d).map(|i| (own[i] + own[mirror[i]]) / 2.0).collect();
        // Around the mean of both: the covariance around its own mean, and how far the two means are apart.
        let around = |i: usize, j: usize| products[i * d + j] + (own[i] - mean[i]) * (own[j] - mean[j]);
        let covariance = |i: usize, j: usize| (around(i, j) + around(mirror[i], mirror[j])) / 2.0;
        let found = eigen((0..d * d).map(|at| covariance(at / d, at % d)).collect(), d)?;
        let mut map = vec![0.0f64; d * d];
        for (value, vector) in found.values.iter().zip(found.vectors.chunks_exact(d)) {
            let scale = 1.0 / (value.max(0.0) + epsilon).sqrt();
            for i in 0..d {
                let left = vector[i] * scale;
                map[i * d..(i + 1) * d].iter_mut().zip(vector).for_each(|(m, right)| *m += left * right);
            }
        }
        let narrow = |v: Vec<f64>| v.into_iter().map(|x| x as f32).collect();
        Ok(Zca { mean: narrow(mean), map: narrow(map) })
    }

    pub(super) fn apply(&self, patches: &mut Matrix) {
        let d = patches.dim;
        patches.values.par_chunks_mut(BLOCK * d).for_each(|rows| {
            rows.chunks_exact_mut(d).for_each(|row| row.iter_mut().zip(&self.mean).for_each(|(x, m)| *x -= m));
            let centred = rows.to_vec();
            matmul(MatrixRef::new(&centred, rows.len() / d, d), MatrixRef::new(&self.map, d, d), rows, false);
        });
    }

    /// `[centroids, dim + 1]`: `map c`, then `-mean . map c`.
    pub(super) fn fold(&self, centroids: &Matrix) -> Matrix {
        let (k, d) = (centroids.rows, centroids.dim);
        let mut turned = vec![0.0f32; k * d];
        matmul(MatrixRef::new(&centroids.values, k, d), MatrixRef::new(&self.map, d, d), &mut turned, false);
        let mut values = Vec::with_capacity(k * (d + 1));
        for row in turned.chunks_exact(d) {
            values.extend_from_slice(row);
            values.push(-row.iter().zip(&self.mean).map(|(f, m)| f64::from(*f) * f64::from(*m)).sum::<f64>() as f32);
        }
        Matrix::new(d + 1, values)
    }
}
