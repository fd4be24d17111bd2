//! Principal components: the directions in which features vary most.

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

/// Variances below this share of the greatest are rounding: whitening leaves such directions out.
const FLAT: f64 = 1e-9;

impl Pca {
    /// The first `components` of the `features`' covariance.
    pub fn fit(features: &Matrix, components: usize) -> Self {
        let (n, d) = (features.rows.max(1) as f64, features.dim);
        let mut mean = vec![0.0f64; d];
        for row in features.values.chunks(d) {
            mean.iter_mut().zip(row).for_each(|(m, x)| *m += f64::from(*x) / n);
        }
        let mut covariance = vec![vec![0.0f64; d]; d];
        let mut centred = vec![0.0f64; d];
        for row in features.values.chunks(d) {
            for ((c, x), m) in centred.iter_mut().zip(row).zip(&mean) {
                *c = f64::from(*x) - m;
            }
            for (line, ci) in covariance.iter_mut().zip(&centred) {
                line.iter_mut().zip(&centred).for_each(|(v, cj)| *v += ci * cj / n);
            }
        }
        let (eigenvalues, eigenvectors) = eigen(covariance);
        let mut order: Vec<usize> = (0..d).collect();
        order.sort_by(|a, b| eigenvalues[*b].total_cmp(&eigenvalues[*a]).then(a.cmp(b)));
        order.truncate(components);
        let direction = |i: &usize| {
            let column = &eigenvectors[*i];
            let largest = column.iter().fold(0.0f64, |a, b| if b.abs() > a.abs() { *b } else { a });
            let sign = if largest < 0.0 { -1.0 } else { 1.0 };
            column.iter().map(|x| sign * x).collect()
        };
        let variances = order.iter().map(|i| eigenvalues[*i].max(0.0)).collect();
        Pca { mean, directions: order.iter().map(direction).collect(), variances }
    }

    /// `features` along the directions; when `whiten`, each is scaled to variance 1.
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

/// Eigenvalues and eigenvectors (one a row) of a symmetric matrix, by Jacobi's rotations: each makes one pair of entries off
/// the diagonal zero, and sweeps over all pairs make the rest vanish.
fn eigen(mut a: Vec<Vec<f64>>) -> (Vec<f64>, Vec<Vec<f64>>) {
    const SWEEPS: usize = 60;
    let n = a.len();
    let mut vectors: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    let scale: f64 = a.iter().flatten().map(|x| x * x).sum();
    for _ in 0..SWEEPS {
        let off: f64 = (0..n).map(|i| a[i][..i].iter().map(|x| x * x).sum::<f64>()).sum();
        if off <= 1e-26 * scale {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                if a[p][q] == 0.0 {
                    continue;
                }
                // tan of the angle that makes a[p][q] zero, the smaller of the two.
                let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let c = 1.0 / (t * t + 1.0).sqrt();
                let s = t * c;
                rotate(&mut a, p, q, c, s);
                for row in &mut a {
                    (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
                }
                rotate(&mut vectors, p, q, c, s);
            }
        }
    }
    ((0..n).map(|i| a[i][i]).collect(), vectors)
}

/// Turns rows p and q into each other.
fn rotate(rows: &mut [Vec<f64>], p: usize, q: usize, c: f64, s: f64) {
    let (head, tail) = rows.split_at_mut(q);
    for (x, y) in head[p].iter_mut().zip(&mut tail[0]) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Key, Purpose};

    fn cloud(rows: usize) -> Matrix {
        let mut stream = Key { purpose: Purpose::Synthetic, seed: 5, round: 0, epoch: 0 }.stream(0, 0);
        let values = (0..rows).flat_map(|_| {
            let (a, b, c) = (stream.normal(), stream.normal(), stream.normal());
            // Variances 9, 1 and 0.01 along (0.6, 0.8, 0), (-0.8, 0.6, 0) and (0, 0, 1), around (1, 2, 3).
            [1.0 + 1.8 * a - 0.8 * b, 2.0 + 2.4 * a + 0.6 * b, 3.0 + 0.1 * c]
        });
        Matrix::new(3, values.collect())
    }

    #[test]
    fn the_directions_of_a_known_cloud_are_found() {
        let pca = Pca::fit(&cloud(4000), 2);
        assert!((pca.variances[0] - 9.0).abs() < 0.6 && (pca.variances[1] - 1.0).abs() < 0.1, "{:?}", pca.variances);
        for (found, expected) in pca.directions.iter().zip([[0.6, 0.8, 0.0], [0.8, -0.6, 0.0]]) {
            assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 0.03), "{found:?}");
        }
    }

    #[test]
    fn whitened_features_have_the_identity_for_covariance() {
        let cloud = cloud(500);
        let white = Pca::fit(&cloud, 3).apply(&cloud, true);
        for i in 0..3 {
            for j in 0..3 {
                let product = |r: usize| f64::from(white.row(r)[i]) * f64::from(white.row(r)[j]);
                let covariance = (0..500).map(product).sum::<f64>() / 500.0;
                assert!((covariance - f64::from(u8::from(i == j))).abs() < 1e-4, "{i} {j} {covariance}");
            }
        }
    }

    /// A v = lambda v, and the vectors are orthonormal.
    #[test]
    fn eigenvectors_solve_their_equation() {
        let mut stream = Key { purpose: Purpose::Synthetic, seed: 8, round: 0, epoch: 0 }.stream(0, 0);
        let n = 24;
        let half: Vec<Vec<f64>> = (0..n).map(|_| (0..n).map(|_| f64::from(stream.normal())).collect()).collect();
        let a: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| half[i][j] + half[j][i]).collect()).collect();
        let (values, vectors) = eigen(a.clone());
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(a, b)| a * b).sum::<f64>();
        for i in 0..n {
            assert!(a.iter().zip(&vectors[i]).all(|(row, v)| (dot(row, &vectors[i]) - values[i] * v).abs() < 1e-9));
            assert!((0..n).all(|j| (dot(&vectors[i], &vectors[j]) - f64::from(u8::from(i == j))).abs() < 1e-10));
        }
        assert_eq!(eigen(vec![vec![0.0; 3]; 3]).0, [0.0; 3]);
    }

    #[test]
    fn identical_rows_and_flat_directions_stay_finite() {
        let same = Matrix::new(2, vec![1.0, 2.0, 1.0, 2.0]);
        let white = Pca::fit(&same, 2).apply(&same, true);
        assert!(white.values.iter().all(|x| *x == 0.0));
        let line = Matrix::new(2, vec![0.0, 1.0, 1.0, 1.0, 2.0, 1.0]);
        let white = Pca::fit(&line, 2).apply(&line, true);
        assert!(white.values.iter().all(|x| x.is_finite()));
    }
}
