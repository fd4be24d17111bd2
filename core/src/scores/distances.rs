//! Scores from all pairwise distances: exact, computed for a block of rows at a time to limit memory.

use crate::matmul::matmul;
use crate::matrix::{Matrix, MatrixRef};
use rayon::prelude::*;

/// Rows of a work unit.
const BLOCK: usize = 64;

/// Squared distances below this share of the squared lengths are computed again, since cancellation has cost too many digits.
const CANCELLED: f64 = 1e-3;

/// Calls `score` with every row of `features` and its squared Euclidean distances to all rows; results in the order of rows.
///
/// `|x - y|^2 = |x|^2 + |y|^2 - 2 x . y` needs only a matrix product; small distances, which cancellation makes
/// inaccurate, are computed directly.
fn by_row<T: Send>(features: &Matrix, score: &(dyn Fn(usize, &[f64]) -> T + Sync)) -> Vec<T> {
    let (n, dim) = (features.rows, features.dim);
    if n == 0 {
        return Vec::new();
    }
    let square = |row: &[f32]| row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>();
    let squares: Vec<f64> = features.values.chunks(dim).map(square).collect();
    let exact = |i: usize, j: usize| -> f64 {
        let pairs = features.row(i).iter().zip(features.row(j));
        pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
    };
    let all = features.view();
    let block = |b: usize| -> Vec<T> {
        let rows = b * BLOCK..((b + 1) * BLOCK).min(n);
        let mut products = vec![0.0; rows.len() * n];
        let these = MatrixRef::new(&features.values[rows.start * dim..rows.end * dim], rows.len(), dim);
        matmul(these, all.t(), &mut products, false);
        let mut distances = vec![0.0; n];
        let one = |(i, products): (usize, &[f32])| {
            for (j, product) in products.iter().enumerate() {
                let lengths = squares[i] + squares[j];
                let rough = lengths - 2.0 * f64::from(*product);
                distances[j] = if rough < CANCELLED * lengths { exact(i, j) } else { rough };
            }
            score(i, &distances)
        };
        rows.clone().zip(products.chunks(n)).map(one).collect()
    };
    (0..n.div_ceil(BLOCK)).into_par_iter().flat_map_iter(block).collect()
}

/// Mean silhouette `(b - a) / max(a, b)` of the samples, Euclidean: a is a sample's mean distance to the others of its cluster,
/// b the least mean distance to another cluster. 0 for a sample alone in its cluster.
///
/// `None` where it is not defined: fewer than two clusters have members, or every sample is alone.
pub fn silhouette(features: &Matrix, cluster_of: &[u32]) -> Option<f64> {
    assert_eq!(features.rows, cluster_of.len(), "one cluster per sample");
    let clusters = cluster_of.iter().max().map_or(0, |c| *c as usize + 1);
    let mut sizes = vec![0usize; clusters];
    cluster_of.iter().for_each(|&c| sizes[c as usize] += 1);
    let filled = sizes.iter().filter(|s| **s > 0).count();
    if filled < 2 || filled == features.rows {
        return None;
    }
    let one = |i: usize, squared: &[f64]| -> f64 {
        let own = cluster_of[i] as usize;
        if sizes[own] == 1 {
            return 0.0;
        }
        let mut sums = vec![0.0; clusters];
        for (&c, d) in cluster_of.iter().zip(squared) {
            sums[c as usize] += d.sqrt();
        }
        let a = sums[own] / (sizes[own] - 1) as f64;
        let others = (0..clusters).filter(|c| *c != own && sizes[*c] > 0);
        let b = others.map(|c| sums[c] / sizes[c] as f64).fold(f64::INFINITY, f64::min);
        // All samples are equal: the silhouette is 0.
        if a.max(b) > 0.0 { (b - a) / a.max(b) } else { 0.0 }
    };
    Some(by_row(features, &one).iter().sum::<f64>() / features.rows as f64)
}

/// Trustworthiness (Venna and Kaski): how far the `k` nearest neighbours in a `picture` are also neighbours in `features`,
/// `1 - 2 / (n k (2n - 3k - 1)) sum_i sum_j max(0, r(i, j) - k)` over the k nearest j of i in the picture, where r is the rank of j
/// among the neighbours of i in the features. Ties go to the lower index.
///
/// `None` unless `0 < k < n / 2`.
pub fn trustworthiness(features: &Matrix, picture: &Matrix, k: usize) -> Option<f64> {
    let n = features.rows;
    assert_eq!(n, picture.rows, "one place per sample");
    if k == 0 || 2 * k >= n {
        return None;
    }
    let shown: Vec<Vec<usize>> = by_row(picture, &|i, squared| {
        let mut others: Vec<usize> = (0..n).filter(|j| *j != i).collect();
        let nearer = |a: &usize, b: &usize| squared[*a].total_cmp(&squared[*b]).then(a.cmp(b));
        others.select_nth_unstable_by(k - 1, nearer);
        others.truncate(k);
        others
    });
    let excess: Vec<usize> = by_row(features, &|i, squared| {
        let rank = |j: usize| {
            let nearer = |l: usize| squared[l] < squared[j] || (squared[l] == squared[j] && l < j);
            1 + (0..n).filter(|&l| l != i && nearer(l)).count()
        };
        shown[i].iter().map(|&j| rank(j).saturating_sub(k)).sum()
    });
    let (n, k) = (n as f64, k as f64);
    Some(1.0 - excess.iter().sum::<usize>() as f64 * 2.0 / (n * k * (2.0 * n - 3.0 * k - 1.0)))
}
