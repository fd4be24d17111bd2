//! ZCA: patches whose numbers are no longer correlated, turned as little as possible.

use crate::eigen::eigen;
use crate::error::Result;
use crate::matmul::matmul;
use crate::matrix::{Matrix, MatrixRef};
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
        let (d, n) = (patches.dim, patches.rows.max(1) as f64);
        // Sums and products block by block, in f64, put together in order: the same bits on any number of threads.
        let blocks: Vec<(Vec<f64>, Vec<f64>)> = patches
            .values
            .par_chunks(BLOCK * d)
            .map(|rows| {
                let (mut sum, mut products) = (vec![0.0f64; d], vec![0.0f64; d * d]);
                for row in rows.chunks_exact(d) {
                    for (i, &x) in row.iter().enumerate() {
                        let x = f64::from(x);
                        sum[i] += x;
                        products[i * d..i * d + i + 1].iter_mut().zip(row).for_each(|(p, &y)| *p += x * f64::from(y));
                    }
                }
                (sum, products)
            })
            .collect();
        let (mut sum, mut products) = (vec![0.0f64; d], vec![0.0f64; d * d]);
        for (s, p) in &blocks {
            sum.iter_mut().zip(s).for_each(|(a, b)| *a += b);
            products.iter_mut().zip(p).for_each(|(a, b)| *a += b);
        }
        // As if the mirror image of every patch had been counted, too.
        let mirror: Vec<usize> =
            (0..d).map(|i| (i / (3 * side) * side + side - 1 - i / 3 % side) * 3 + i % 3).collect();
        let mean: Vec<f64> = (0..d).map(|i| (sum[i] + sum[mirror[i]]) / (2.0 * n)).collect();
        let product = |i: usize, j: usize| products[i.max(j) * d + i.min(j)];
        let covariance =
            |i: usize, j: usize| (product(i, j) + product(mirror[i], mirror[j])) / (2.0 * n) - mean[i] * mean[j];
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
