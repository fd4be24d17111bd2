//! A ridge regression of labels; each row is predicted from the fit to all other rows.
//!
//! `W = (Z'Z + lambda I)^-1 Z'Y` with centred features Z and one-hot labels Y. The prediction for a row leaves that row out of the fit,
//! which needs no second fit: with `h_i = z_i' (Z'Z + lambda I)^-1 z_i + 1/n`, leaving row i out changes its prediction from `f_i` to
//! `y_i + (f_i - y_i) / (1 - h_i)`. Of a grid of `lambda`, the one with the least squared error of these predictions is taken; the
//! eigenvectors of `Z'Z` make every one of them cheap.

use crate::eigen::{Eigen, eigen};
use crate::error::Result;
use crate::matmul::matmul;
use crate::matrix::{Matrix, MatrixRef};
use rayon::prelude::*;

/// Rows of one matrix product.
const BLOCK: usize = 256;
/// Parts of the rows that are summed in parallel; a fixed number, so that sums do not depend on threads.
const PARTS: usize = 8;
/// Values of `lambda` that are tried, divided by the mean squared distance of the rows from their mean: half powers of ten
/// from 0.001 to 1,000.
const GRID: std::ops::RangeInclusive<i32> = -6..=6;

/// A ridge regression of one-hot labels with leave-one-out predictions.
pub struct RidgeProbe<'a> {
    features: &'a Matrix,
    mean: Vec<f32>,
    /// `(E + lambda)^-1/2 V'` with the eigenvalues E and eigenvectors V of `Z'Z`, so that `h` is the squared length of its product with z.
    whitening: Vec<f32>,
    /// W, a row per feature.
    slopes: Vec<f32>,
    /// Share of every label.
    shares: Vec<f32>,
    /// `1 / n`.
    share_of_row: f32,
}

impl<'a> RidgeProbe<'a> {
    /// Fits the rows `labelled`, at least one; `lambda` has the least error on the rows `sample`.
    pub fn fit(
        features: &'a Matrix,
        of: &[Option<u32>],
        classes: usize,
        labelled: &[usize],
        sample: &[usize],
    ) -> Result<Self> {
        let (d, n) = (features.dim, labelled.len());
        let label = |row: usize| of[row].unwrap_or_default() as usize;
        let part = n.div_ceil(PARTS).max(1);
        let sums = |rows: &[usize]| {
            let mut sum = vec![0.0f64; d];
            rows.iter().for_each(|row| sum.iter_mut().zip(features.row(*row)).for_each(|(s, x)| *s += f64::from(*x)));
            sum
        };
        let sum = labelled.par_chunks(part).map(sums).collect::<Vec<_>>().into_iter().reduce(added).unwrap_or_default();
        let mean: Vec<f32> = sum.iter().map(|s| (s / n as f64) as f32).collect();
        // Z'Z, and beside it Z'Y, as the sums of z over the rows of every class.
        let products = |rows: &[usize]| {
            let (mut gram, mut by_class) = (vec![0.0f64; d * d], vec![0.0f64; d * classes]);
            let mut product = vec![0.0f32; d * d];
            for block in rows.chunks(BLOCK) {
                let z: Vec<f32> = block.iter().flat_map(|row| centred(features.row(*row), &mean)).collect();
                let rows = MatrixRef::new(&z, block.len(), d);
                matmul(rows.t(), rows, &mut product, false);
                gram.iter_mut().zip(&product).for_each(|(g, p)| *g += f64::from(*p));
                for (z, row) in z.chunks(d).zip(block) {
                    z.iter().enumerate().for_each(|(i, z)| by_class[i * classes + label(*row)] += f64::from(*z));
                }
            }
            (gram, by_class)
        };
        let both = |a: (Vec<f64>, Vec<f64>), b: (Vec<f64>, Vec<f64>)| (added(a.0, b.0), added(a.1, b.1));
        let parts = labelled.par_chunks(part).map(products).collect::<Vec<_>>();
        let (gram, by_class) = parts.into_iter().reduce(both).unwrap_or_default();
        let spread = (0..d).map(|i| gram[i * d + i]).sum::<f64>() / n as f64;
        let axes = eigen(gram, d)?;
        let mut counts = vec![0usize; classes];
        labelled.iter().for_each(|row| counts[label(*row)] += 1);
        let shares = counts.into_iter().map(|count| count as f32 / n as f32).collect();
        let share_of_row = 1.0 / n as f32;
        // Z'Y needs no centring of Y: the columns of Z sum to zero.
        let by_class: Vec<f32> = by_class.into_iter().map(|x| x as f32).collect();
        let probe = RidgeProbe { features, mean, whitening: Vec::new(), slopes: Vec::new(), shares, share_of_row };
        // Identical rows have no spread; then any positive lambda gives the same predictions.
        let unit = if spread > 0.0 { spread } else { 1.0 };
        let tried = GRID.map(|half| unit * 10f64.powf(f64::from(half) / 2.0)).map(|ridge| {
            let (whitening, slopes) = solved(&axes, &by_class, classes, ridge);
            let probe =
                RidgeProbe { whitening, slopes, mean: probe.mean.clone(), shares: probe.shares.clone(), ..probe };
            (probe.squared_error(sample, of), probe)
        });
        let best = tried.reduce(|best, next| if next.0 < best.0 { next } else { best });
        Ok(best.map_or(probe, |(_, probe)| probe))
    }

    /// Squared error of the predictions for `rows`.
    fn squared_error(&self, rows: &[usize], of: &[Option<u32>]) -> f64 {
        let classes = self.shares.len();
        let predictions = self.predictions(rows, of);
        let error = |(row, predicted): (&usize, &[f32])| {
            let own = of[*row].unwrap_or_default() as usize;
            let squares = predicted.iter().enumerate().map(|(c, f)| (f - f32::from(u8::from(c == own))).powi(2));
            f64::from(squares.sum::<f32>())
        };
        rows.iter().zip(predictions.chunks(classes)).map(error).sum()
    }

    /// Leave-one-out predictions for `rows`, whose labels are `of`: for each row, a number for every label.
    pub fn predictions(&self, rows: &[usize], of: &[Option<u32>]) -> Vec<f32> {
        let (d, classes) = (self.mean.len(), self.shares.len());
        let mut found = vec![0.0; rows.len() * classes];
        found.par_chunks_mut(BLOCK * classes).zip(rows.par_chunks(BLOCK)).for_each(|(found, rows)| {
            let n = rows.len();
            let z: Vec<f32> = rows.iter().flat_map(|row| centred(self.features.row(*row), &self.mean)).collect();
            let mut white = vec![0.0; n * d];
            matmul(MatrixRef::new(&z, n, d), MatrixRef::new(&self.whitening, d, d).t(), &mut white, false);
            matmul(MatrixRef::new(&z, n, d), MatrixRef::new(&self.slopes, d, classes), found, false);
            for ((found, white), row) in found.chunks_mut(classes).zip(white.chunks(d)).zip(rows) {
                let leverage: f32 = white.iter().map(|w| w * w).sum();
                // The leverage h of the row; 1 when it is the only one.
                let rest = (1.0 - leverage - self.share_of_row).max(f32::EPSILON);
                for (class, f) in found.iter_mut().enumerate() {
                    *f += self.shares[class];
                    if let Some(own) = of[*row] {
                        let y = f32::from(u8::from(own as usize == class));
                        *f = y + (*f - y) / rest;
                    }
                }
            }
        });
        found
    }
}

/// `(E + ridge)^-1/2 V'` and `V (E + ridge)^-1 V' by_class`.
fn solved(axes: &Eigen, by_class: &[f32], classes: usize, ridge: f64) -> (Vec<f32>, Vec<f32>) {
    let d = axes.values.len();
    let mut whitening = vec![0.0f32; d * d];
    for ((row, axis), value) in whitening.chunks_mut(d.max(1)).zip(axes.vectors.chunks(d.max(1))).zip(&axes.values) {
        let scale = 1.0 / (value.max(0.0) + ridge).sqrt();
        row.iter_mut().zip(axis).for_each(|(w, v)| *w = (v * scale) as f32);
    }
    let mut along = vec![0.0; d * classes];
    let mut slopes = vec![0.0; d * classes];
    let square = MatrixRef::new(&whitening, d, d);
    matmul(square, MatrixRef::new(by_class, d, classes), &mut along, false);
    matmul(square.t(), MatrixRef::new(&along, d, classes), &mut slopes, false);
    (whitening, slopes)
}

fn centred(row: &[f32], mean: &[f32]) -> impl Iterator<Item = f32> {
    row.iter().zip(mean).map(|(x, m)| x - m)
}

fn added(mut a: Vec<f64>, b: Vec<f64>) -> Vec<f64> {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::blobs;

    /// Solves `a x = b` by elimination with pivots.
    fn eliminated(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
        let n = b.len();
        for i in 0..n {
            let pivot = (i..n).max_by(|p, q| a[*p][i].abs().total_cmp(&a[*q][i].abs())).unwrap();
            a.swap(i, pivot);
            b.swap(i, pivot);
            for j in i + 1..n {
                let f = a[j][i] / a[i][i];
                for k in i..n {
                    a[j][k] -= f * a[i][k];
                }
                b[j] -= f * b[i];
            }
        }
        for i in (0..n).rev() {
            b[i] = (b[i] - (i + 1..n).map(|j| a[i][j] * b[j]).sum::<f64>()) / a[i][i];
        }
        b
    }

    /// The prediction for row `out`, by a regression of the other labelled rows with an unpenalised intercept, for every `lambda`.
    fn slow(features: &Matrix, of: &[Option<u32>], classes: usize, out: usize) -> Vec<Vec<f64>> {
        let d = features.dim;
        let all: Vec<usize> = (0..of.len()).filter(|row| of[*row].is_some()).collect();
        let x = |row: usize| (0..d).map(|i| f64::from(features.row(row)[i])).chain([1.0]).collect::<Vec<f64>>();
        let mean: Vec<f64> = (0..d).map(|i| all.iter().map(|r| x(*r)[i]).sum::<f64>() / all.len() as f64).collect();
        let far = |row: &usize| (0..d).map(|i| (x(*row)[i] - mean[i]).powi(2)).sum::<f64>();
        let spread = all.iter().map(far).sum::<f64>() / all.len() as f64;
        let others: Vec<usize> = all.into_iter().filter(|row| *row != out).collect();
        let predicted = |ridge: f64, class: u32| {
            let mut a = vec![vec![0.0; d + 1]; d + 1];
            let mut b = vec![0.0; d + 1];
            for &row in &others {
                let (x, y) = (x(row), f64::from(u8::from(of[row] == Some(class))));
                for i in 0..=d {
                    b[i] += x[i] * y;
                    (0..=d).for_each(|j| a[i][j] += x[i] * x[j]);
                }
            }
            (0..d).for_each(|i| a[i][i] += ridge);
            eliminated(a, b).iter().zip(x(out)).map(|(w, x)| w * x).sum()
        };
        let all = |ridge: f64| (0..classes as u32).map(|class| predicted(ridge, class)).collect();
        GRID.map(|half| all(spread * 10f64.powf(f64::from(half) / 2.0))).collect()
    }

    #[test]
    fn predictions_are_those_of_a_fit_without_the_row_and_the_best_ridge() {
        let features = blobs(3, 11, 4, 0.6, 1);
        let mut of: Vec<Option<u32>> = (0..features.rows as u32).map(|i| Some(i * 7 % 5 % 3)).collect();
        of[5] = None;
        let labelled: Vec<usize> = (0..of.len()).filter(|row| *row != 5).collect();
        let slow: Vec<Vec<Vec<f64>>> = labelled.iter().map(|row| slow(&features, &of, 3, *row)).collect();
        let error = |at: usize| -> f64 {
            let one = |(row, said): (&usize, &Vec<Vec<f64>>)| -> f64 {
                let own = of[*row].unwrap() as usize;
                said[at].iter().enumerate().map(|(c, f)| (f - f64::from(u8::from(c == own))).powi(2)).sum()
            };
            labelled.iter().zip(&slow).map(one).sum()
        };
        let best = (0..GRID.count()).min_by(|a, b| error(*a).total_cmp(&error(*b))).unwrap();
        let probe = RidgeProbe::fit(&features, &of, 3, &labelled, &labelled).unwrap();
        let found = probe.predictions(&labelled, &of);
        for (at, expected) in slow.iter().enumerate() {
            for (f, e) in found[at * 3..][..3].iter().zip(&expected[best]) {
                assert!((f64::from(*f) - e).abs() < 1e-4, "row {at}: {f} is not {e}");
            }
        }
    }

    #[test]
    fn blocks_and_parts_change_nothing() {
        let features = blobs(2, 700, 5, 0.5, 2);
        let of: Vec<Option<u32>> = (0..1400).map(|i| Some(i % 2)).collect();
        let rows: Vec<usize> = (0..1400).collect();
        let probe = RidgeProbe::fit(&features, &of, 2, &rows, &rows).unwrap();
        let whole = probe.predictions(&rows, &of);
        let some = probe.predictions(&[500], &of);
        assert!((whole[1000] - some[0]).abs() < 1e-6 && (whole[1001] - some[1]).abs() < 1e-6);
    }

    #[test]
    fn one_row_and_equal_rows() {
        for of in [&[Some(0), Some(1), Some(0)][..], &[Some(1)]] {
            let features = Matrix::new(2, vec![1.0; 2 * of.len()]);
            let rows: Vec<usize> = (0..of.len()).collect();
            let found = RidgeProbe::fit(&features, of, 2, &rows, &rows).unwrap().predictions(&rows, of);
            assert!(found.iter().all(|f| f.is_finite()), "{found:?}");
        }
    }
}
