//! All eigenvalues and eigenvectors of a symmetric matrix.

use crate::error::Result;

/// Eigenvalues and eigenvectors (one a row) of a symmetric matrix, by Jacobi's rotations: each sets one
/// off-diagonal pair to zero, and sweeps over all pairs repeat until the rest is negligible. `on_step` is called for every row of a sweep.
pub fn eigen(mut a: Vec<Vec<f64>>, on_step: &mut dyn FnMut() -> Result<()>) -> Result<(Vec<f64>, Vec<Vec<f64>>)> {
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
            on_step()?;
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
    Ok(((0..n).map(|i| a[i][i]).collect(), vectors))
}

/// Rotates rows p and q.
fn rotate(rows: &mut [Vec<f64>], p: usize, q: usize, c: f64, s: f64) {
    let (head, tail) = rows.split_at_mut(q);
    for (x, y) in head[p].iter_mut().zip(&mut tail[0]) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}
