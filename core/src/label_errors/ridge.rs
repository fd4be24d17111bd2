//! A ridge classifier of labels; each row is predicted from the fit to all other rows.
//!
//! Ridge regression of one-hot labels, `W = (Z'Z + lambda I)^-1 Z'Y` with centred features Z and labels Y. The prediction for
//! each row leaves that row out of the fit, which needs no second fit: with `h_i = z_i' (Z'Z + lambda I)^-1 z_i + 1/n`, leaving row
//! i out changes its prediction from `f_i` to `y_i + (f_i - y_i) / (1 - h_i)`. A softmax makes shares of the predictions.

use crate::matmul::matmul;
use crate::matrix::{Matrix, MatrixRef};
use rayon::prelude::*;
use std::ops::Range;

/// `lambda` divided by the mean squared distance of the rows from their mean.
const RIDGE: f64 = 0.2;
/// Temperature of the softmax over predictions, which are about 0 or 1.
const TEMPERATURE: f32 = 0.2;
/// Rows of one matrix product.
const BLOCK: usize = 256;
/// Parts of the rows that are summed in parallel; a fixed number, so that sums do not depend on threads.
const PARTS: usize = 8;

/// A ridge regression of one-hot labels with leave-one-out predictions.
pub struct RidgeProbe<'a> {
    features: &'a Matrix,
    mean: Vec<f32>,
    /// `(Z'Z + lambda I)^-1`.
    inverse: Vec<f32>,
    /// W, a row per feature.
    slopes: Vec<f32>,
    /// Share of every label.
    shares: Vec<f32>,
    /// `1 / n`.
    share_of_row: f32,
}

impl<'a> RidgeProbe<'a> {
    /// Fits the labelled rows of `features`; `None` when no row has a label.
    pub fn fit(features: &'a Matrix, of: &[Option<u32>], classes: usize) -> Option<Self> {
        let d = features.dim;
        let labelled: Vec<(usize, usize)> =
            of.iter().enumerate().filter_map(|(row, class)| Some((row, (*class)? as usize))).collect();
        let n = labelled.len();
        let part = n.div_ceil(PARTS).max(1);
        let sums = |rows: &[(usize, usize)]| {
            let mut sum = vec![0.0f64; d];
            rows.iter()
                .for_each(|(row, _)| sum.iter_mut().zip(features.row(*row)).for_each(|(s, x)| *s += f64::from(*x)));
            sum
        };
        let sum = labelled.par_chunks(part).map(sums).collect::<Vec<_>>().into_iter().reduce(added)?;
        let mean: Vec<f32> = sum.iter().map(|s| (s / n as f64) as f32).collect();
        // Z'Z, and beside it Z'Y, as the sums of z over the rows of every class.
        let products = |rows: &[(usize, usize)]| {
            let (mut gram, mut by_class) = (vec![0.0f64; d * d], vec![0.0f64; d * classes]);
            let mut product = vec![0.0f32; d * d];
            for block in rows.chunks(BLOCK) {
                let z: Vec<f32> = block.iter().flat_map(|(row, _)| centred(features.row(*row), &mean)).collect();
                let rows = MatrixRef::new(&z, block.len(), d);
                matmul(rows.t(), rows, &mut product, false);
                gram.iter_mut().zip(&product).for_each(|(g, p)| *g += f64::from(*p));
                for (z, (_, class)) in z.chunks(d).zip(block) {
                    z.iter().enumerate().for_each(|(i, z)| by_class[i * classes + class] += f64::from(*z));
                }
            }
            (gram, by_class)
        };
        let both = |a: (Vec<f64>, Vec<f64>), b: (Vec<f64>, Vec<f64>)| (added(a.0, b.0), added(a.1, b.1));
        let (mut gram, by_class) =
            labelled.par_chunks(part).map(products).collect::<Vec<_>>().into_iter().reduce(both)?;
        let spread = (0..d).map(|i| gram[i * d + i]).sum::<f64>() / n as f64;
        // Identical rows have no spread; then any positive lambda gives the same predictions.
        let ridge = if spread > 0.0 { RIDGE * spread } else { 1.0 };
        (0..d).for_each(|i| gram[i * d + i] += ridge);
        let inverse: Vec<f32> = inverted(gram, d).into_iter().map(|x| x as f32).collect();
        // Z'Y needs no centring of Y: the columns of Z sum to zero.
        let by_class: Vec<f32> = by_class.into_iter().map(|x| x as f32).collect();
        let mut slopes = vec![0.0; d * classes];
        matmul(MatrixRef::new(&inverse, d, d), MatrixRef::new(&by_class, d, classes), &mut slopes, false);
        let mut counts = vec![0usize; classes];
        labelled.iter().for_each(|(_, class)| counts[*class] += 1);
        let shares = counts.into_iter().map(|count| count as f32 / n as f32).collect();
        Some(RidgeProbe { features, mean, inverse, slopes, shares, share_of_row: 1.0 / n as f32 })
    }

    /// Leave-one-out predictions for `rows`, whose labels are `of`: for each row, a share of every label.
    pub fn shares(&self, rows: Range<usize>, of: &[Option<u32>]) -> Vec<f32> {
        let (d, classes, n) = (self.mean.len(), self.shares.len(), rows.len());
        let z: Vec<f32> = rows.clone().flat_map(|row| centred(self.features.row(row), &self.mean)).collect();
        let (mut turned, mut read) = (vec![0.0; n * d], vec![0.0; n * classes]);
        matmul(MatrixRef::new(&z, n, d), MatrixRef::new(&self.inverse, d, d), &mut turned, false);
        matmul(MatrixRef::new(&z, n, d), MatrixRef::new(&self.slopes, d, classes), &mut read, false);
        for (i, read) in read.chunks_mut(classes.max(1)).enumerate() {
            let leverage: f32 = z[i * d..][..d].iter().zip(&turned[i * d..][..d]).map(|(z, t)| z * t).sum();
            // The leverage h of the row; 1 when it is the only one.
            let rest = (1.0 - leverage - self.share_of_row).max(f32::EPSILON);
            for (class, f) in read.iter_mut().enumerate() {
                *f += self.shares[class];
                if let Some(own) = of[rows.start + i] {
                    let y = f32::from(u8::from(own as usize == class));
                    *f = y + (*f - y) / rest;
                }
            }
            softmax(read);
        }
        read
    }
}

fn centred(row: &[f32], mean: &[f32]) -> impl Iterator<Item = f32> {
    row.iter().zip(mean).map(|(x, m)| x - m)
}

fn added(mut a: Vec<f64>, b: Vec<f64>) -> Vec<f64> {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
    a
}

fn softmax(values: &mut [f32]) {
    let greatest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    values.iter_mut().for_each(|v| *v = ((*v - greatest) / TEMPERATURE).exp());
    let sum: f32 = values.iter().sum();
    values.iter_mut().for_each(|v| *v /= sum);
}

/// The inverse of a symmetric, positive definite matrix of side `d`, by Cholesky: `A = L L'`, `A^-1 = L^-T L^-1`.
fn inverted(mut a: Vec<f64>, d: usize) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for i in 0..d {
        for j in 0..=i {
            let (above, row) = a.split_at(i * d);
            let rest = row[j] - dot(&row[..j], if i == j { &row[..j] } else { &above[j * d..][..j] });
            a[i * d + j] = if i == j { rest.max(f64::MIN_POSITIVE).sqrt() } else { rest / a[j * d + j] };
        }
    }
    // Row j of `columns` is column j of L^-1, from its diagonal on.
    let column = |j: usize| {
        let mut x = vec![0.0; d];
        x[j] = 1.0 / a[j * d + j];
        for i in j + 1..d {
            x[i] = -dot(&a[i * d + j..i * d + i], &x[j..i]) / a[i * d + i];
        }
        x
    };
    let columns: Vec<Vec<f64>> = (0..d).into_par_iter().map(column).collect();
    let entry = |at: usize| {
        let (i, j) = (at / d, at % d);
        let from = i.max(j);
        dot(&columns[i][from..], &columns[j][from..])
    };
    (0..d * d).into_par_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::blobs;

    /// Solves `a x = b` by elimination with pivots.
    fn solved(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
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

    /// The shares of row `out`, by a regression of the other labelled rows with an unpenalised intercept.
    fn slow(features: &Matrix, of: &[Option<u32>], classes: usize, out: usize) -> Vec<f64> {
        let d = features.dim;
        let all: Vec<usize> = (0..of.len()).filter(|row| of[*row].is_some()).collect();
        let x = |row: usize| (0..d).map(|i| f64::from(features.row(row)[i])).chain([1.0]).collect::<Vec<f64>>();
        let mean: Vec<f64> = (0..d).map(|i| all.iter().map(|r| x(*r)[i]).sum::<f64>() / all.len() as f64).collect();
        let far = |row: &usize| (0..d).map(|i| (x(*row)[i] - mean[i]).powi(2)).sum::<f64>();
        let ridge = RIDGE * all.iter().map(far).sum::<f64>() / all.len() as f64;
        let others: Vec<usize> = all.into_iter().filter(|row| *row != out).collect();
        let said: Vec<f64> = (0..classes as u32)
            .map(|class| {
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
                solved(a, b).iter().zip(x(out)).map(|(w, x)| w * x).sum()
            })
            .collect();
        let weights: Vec<f64> = said.iter().map(|s| (s / f64::from(TEMPERATURE)).exp()).collect();
        weights.iter().map(|w| w / weights.iter().sum::<f64>()).collect()
    }

    #[test]
    fn predictions_are_those_of_a_fit_without_the_row() {
        let features = blobs(3, 11, 4, 0.6, 1);
        let mut of: Vec<Option<u32>> = (0..features.rows as u32).map(|i| Some(i * 7 % 5 % 3)).collect();
        of[5] = None;
        let found = RidgeProbe::fit(&features, &of, 3).unwrap().shares(0..features.rows, &of);
        for row in 0..features.rows {
            let expected = slow(&features, &of, 3, row);
            for (f, e) in found[row * 3..][..3].iter().zip(&expected) {
                assert!((f64::from(*f) - e).abs() < 1e-4, "row {row}: {f} is not {e}");
            }
        }
    }

    #[test]
    fn blocks_and_parts_change_nothing() {
        let features = blobs(2, 700, 5, 0.5, 2);
        let of: Vec<Option<u32>> = (0..1400).map(|i| Some(i % 2)).collect();
        let probe = RidgeProbe::fit(&features, &of, 2).unwrap();
        let whole = probe.shares(0..1400, &of);
        let some = probe.shares(500..501, &of);
        assert!((whole[1000] - some[0]).abs() < 1e-6 && (whole[1001] - some[1]).abs() < 1e-6);
    }

    #[test]
    fn one_row_equal_rows_and_no_labels() {
        assert!(RidgeProbe::fit(&Matrix::new(2, vec![1.0; 6]), &[None; 3], 2).is_none());
        for of in [&[Some(0), Some(1), Some(0)][..], &[Some(1)]] {
            let features = Matrix::new(2, vec![1.0; 2 * of.len()]);
            let shares = RidgeProbe::fit(&features, of, 2).unwrap().shares(0..of.len(), of);
            assert!(shares.iter().all(|s| s.is_finite()), "{shares:?}");
        }
    }

    #[test]
    fn an_inverse_times_its_matrix_is_the_identity() {
        let d = 6;
        let b: Vec<f64> = (0..d * d).map(|i| ((i * 37 % 11) as f64 - 5.0) / 3.0).collect();
        let a =
            |i: usize, j: usize| (0..d).map(|k| b[i * d + k] * b[j * d + k]).sum::<f64>() + f64::from(u8::from(i == j));
        let inverse = inverted((0..d * d).map(|at| a(at / d, at % d)).collect(), d);
        for i in 0..d {
            for j in 0..d {
                let product: f64 = (0..d).map(|k| inverse[i * d + k] * a(k, j)).sum();
                assert!((product - f64::from(u8::from(i == j))).abs() < 1e-9, "{i}, {j}: {product}");
            }
        }
    }
}
