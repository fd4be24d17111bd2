//! Principal components: the directions in which features vary most.
//!
//! With few columns, or when many components are wanted, the covariance is computed and fully decomposed by Jacobi rotations
//! (`pca/jacobi.rs`). With many columns that takes minutes, so that a few leading components are found without computing the
//! covariance (`pca/leading.rs`).

mod jacobi;
mod leading;

use crate::error::Result;
use crate::matrix::Matrix;

/// Directions and their variances, the greatest first.
#[derive(Clone, Debug)]
pub struct Pca {
    mean: Vec<f64>,
    /// One direction a row, unit vectors; the sign makes the largest coordinate positive.
    directions: Vec<Vec<f64>>,
    /// Variance along each.
    pub variances: Vec<f64>,
}

/// Variances below this share of the greatest are rounding errors: whitening sets such directions to zero.
const FLAT: f64 = 1e-9;
/// Up to this many columns the covariance is always fully decomposed: it takes at most a second.
const SHORT: usize = 256;
/// With more columns, up to this many components are found by iteration: for more, a full decomposition is faster.
const FEW: usize = 16;

impl Pca {
    /// The first `components` of the `features`' covariance. `on_step` is called many times a second; its error ends the calculation.
    pub fn fit(features: &Matrix, components: usize, on_step: &mut dyn FnMut() -> Result<()>) -> Result<Self> {
        match features.dim > SHORT && components <= FEW {
            true => Self::leading(features, components, on_step),
            false => Self::full(features, components, on_step),
        }
    }

    /// By a full decomposition of the covariance.
    fn full(features: &Matrix, components: usize, on_step: &mut dyn FnMut() -> Result<()>) -> Result<Self> {
        const ROWS: usize = 64;
        let (n, d) = (features.rows.max(1) as f64, features.dim);
        let mean = mean(features);
        let mut covariance = vec![vec![0.0f64; d]; d];
        let mut centred = vec![0.0f64; d];
        for (i, row) in features.values.chunks(d).enumerate() {
            if i.is_multiple_of(ROWS) {
                on_step()?;
            }
            for ((c, x), m) in centred.iter_mut().zip(row).zip(&mean) {
                *c = f64::from(*x) - m;
            }
            for (line, ci) in covariance.iter_mut().zip(&centred) {
                line.iter_mut().zip(&centred).for_each(|(v, cj)| *v += ci * cj / n);
            }
        }
        let pairs = jacobi::eigen(covariance, on_step)?;
        Ok(Self::from_pairs(mean, pairs, components))
    }

    /// By iterations that find the leading components only.
    fn leading(features: &Matrix, components: usize, on_step: &mut dyn FnMut() -> Result<()>) -> Result<Self> {
        let mean = mean(features);
        let pairs = leading::eigen(features, &mean, components, on_step)?;
        Ok(Self::from_pairs(mean, pairs, components))
    }

    /// From eigenvalues and eigenvectors (one a row), of which the first `components` are used.
    fn from_pairs(mean: Vec<f64>, (values, vectors): (Vec<f64>, Vec<Vec<f64>>), components: usize) -> Self {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
        order.truncate(components);
        let direction = |i: &usize| {
            let column = &vectors[*i];
            let largest = column.iter().fold(0.0f64, |a, b| if b.abs() > a.abs() { *b } else { a });
            let sign = if largest < 0.0 { -1.0 } else { 1.0 };
            column.iter().map(|x| sign * x).collect()
        };
        let variances = order.iter().map(|i| values[*i].max(0.0)).collect();
        Pca { mean, directions: order.iter().map(direction).collect(), variances }
    }

    /// Projects `features` onto the directions; with `whiten`, each is scaled to variance 1.
    pub fn apply(&self, features: &Matrix, whiten: bool) -> Matrix {
        let greatest = self.variances.first().copied().unwrap_or(0.0);
        let scale = |v: &f64| match whiten {
            true if *v > FLAT * greatest => 1.0 / v.sqrt(),
            true => 0.0,
            false => 1.0,
        };
        let scales: Vec<f64> = self.variances.iter().map(scale).collect();
        let mut values = Vec::with_capacity(features.rows * self.directions.len());
        for row in features.values.chunks(features.dim) {
            let centred: Vec<f64> = row.iter().zip(&self.mean).map(|(x, m)| f64::from(*x) - m).collect();
            for (direction, scale) in self.directions.iter().zip(&scales) {
                let along: f64 = direction.iter().zip(&centred).map(|(d, c)| d * c).sum();
                values.push((along * scale) as f32);
            }
        }
        Matrix { rows: features.rows, dim: self.directions.len(), values }
    }
}

fn mean(features: &Matrix) -> Vec<f64> {
    let n = features.rows.max(1) as f64;
    let mut mean = vec![0.0f64; features.dim];
    for row in features.values.chunks(features.dim) {
        mean.iter_mut().zip(row).for_each(|(m, x)| *m += f64::from(*x) / n);
    }
    mean
}

#[cfg(test)]
mod tests;
