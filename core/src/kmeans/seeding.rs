//! First centroids by k-means++ (Arthur and Vassilvitskii 2007): each is drawn with a probability proportional to
//! the squared distance to the nearest of those before it.

use crate::matrix::Matrix;
use crate::rng::{Key, Purpose};
use rayon::prelude::*;

/// Rows to draw from: this many per centroid, at least, and at most. More change little and take long.
const PER_CENTROID: usize = 50;
const LEAST: usize = 10_000;
const MOST: usize = 100_000;
/// Rows of a work unit.
const BLOCK: usize = 1024;

/// `k` rows of `features` by k-means++, drawn with (`seed`, `round`, `start`); `None` when there are fewer rows.
pub fn spread(features: &Matrix, k: usize, seed: u64, (round, start): (u32, u32)) -> Option<Matrix> {
    if k == 0 || k > features.rows {
        return None;
    }
    let key = |purpose| Key { purpose, seed, round, epoch: start };
    let ids: Vec<u64> = (0..features.rows as u64).collect();
    let mut rows = key(Purpose::Subset).shuffled(&ids);
    rows.truncate((PER_CENTROID * k).clamp(LEAST, MOST).max(2 * k));
    let sample = features.select_rows(&rows);
    let mut draws = key(Purpose::Centroids).stream(0, 1);
    let mut chosen = vec![0usize];
    let mut squares = vec![f32::INFINITY; sample.rows];
    while chosen.len() < k {
        let last = sample.row(chosen[chosen.len() - 1]).to_vec();
        let nearer = |(squares, rows): (&mut [f32], &[f32])| {
            for (square, row) in squares.iter_mut().zip(rows.chunks(sample.dim)) {
                *square = square.min(row.iter().zip(&last).map(|(a, b)| (a - b) * (a - b)).sum());
            }
            squares.iter().map(|x| f64::from(*x)).sum::<f64>()
        };
        let sums: Vec<f64> =
            squares.par_chunks_mut(BLOCK).zip(sample.values.par_chunks(BLOCK * sample.dim)).map(nearer).collect();
        // A centroid is never drawn again, unless all other rows are copies of centroids.
        squares[chosen[chosen.len() - 1]] = 0.0;
        let total: f64 = sums.iter().sum();
        let next = draw(&squares, &sums, total * f64::from(draws.unit()));
        // Only copies of centroids are left: any of them.
        chosen.push(next.unwrap_or(chosen.len()));
    }
    Some(sample.select_rows(&chosen))
}

/// The index at which the running sum of `squares` passes `drawn`; `sums` are the sums of its blocks.
fn draw(squares: &[f32], sums: &[f64], mut drawn: f64) -> Option<usize> {
    for (block, sum) in sums.iter().enumerate() {
        if drawn >= *sum {
            drawn -= sum;
            continue;
        }
        let first = block * BLOCK;
        for (i, square) in squares[first..(first + BLOCK).min(squares.len())].iter().enumerate() {
            drawn -= f64::from(*square);
            if *square > 0.0 && drawn < 0.0 {
                return Some(first + i);
            }
        }
    }
    // Rounding can put the draw past the end: take the last row with a positive square.
    squares.iter().rposition(|square| *square > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::blobs;

    #[test]
    fn every_far_group_gets_a_centroid() {
        let features = blobs(20, 30, 8, 0.001, 5);
        let first = spread(&features, 20, 1, (0, 0)).unwrap();
        let nearest = |i: usize| {
            let far = |g: &usize| {
                features.row(*g).iter().zip(first.row(i)).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
            };
            (0..20).min_by(|a, b| far(a).total_cmp(&far(b))).unwrap()
        };
        let mut groups: Vec<usize> = (0..20).map(nearest).collect();
        groups.sort_unstable();
        assert_eq!(groups, (0..20).collect::<Vec<_>>());
        assert_eq!(spread(&features, 20, 1, (0, 0)), Some(first.clone()));
        assert_ne!(spread(&features, 20, 2, (0, 0)), Some(first));
    }

    #[test]
    fn too_few_rows_and_rows_that_are_all_the_same() {
        let same = Matrix::new(2, [0.5, 0.5].repeat(5));
        assert_eq!(spread(&same, 3, 0, (0, 0)).unwrap().values, [0.5; 6]);
        assert_eq!(spread(&same, 6, 0, (0, 0)), None);
        assert_eq!(spread(&same, 0, 0, (0, 0)), None);
        assert_eq!(spread(&Matrix::default(), 1, 0, (0, 0)), None);
    }

    #[test]
    fn draws_fall_where_the_squares_are() {
        let mut squares = vec![0.0f32; 3 * BLOCK];
        (squares[BLOCK + 3], squares[2 * BLOCK]) = (1.0, 2.0);
        let sums: Vec<f64> = squares.chunks(BLOCK).map(|c| c.iter().map(|x| f64::from(*x)).sum()).collect();
        assert_eq!(draw(&squares, &sums, 0.0), Some(BLOCK + 3));
        assert_eq!(draw(&squares, &sums, 0.99), Some(BLOCK + 3));
        assert_eq!(draw(&squares, &sums, 1.0), Some(2 * BLOCK));
        assert_eq!(draw(&squares, &sums, 99.0), Some(2 * BLOCK), "rounding");
        assert_eq!(draw(&[0.0; 4], &[0.0], 0.0), None);
    }
}
