//! Synthetic data of the unit tests.

use crate::matrix::Matrix;
use crate::rng::{Key, Purpose};

/// `groups` random points with `each` rows around every one; row i is of group i % groups.
pub fn blobs(groups: usize, each: usize, dim: usize, spread: f32, seed: u64) -> Matrix {
    let key = Key { purpose: Purpose::Synthetic, seed, round: 0, epoch: 0 };
    let place = |g: usize| {
        let mut stream = key.stream(g as u64, 1);
        (0..dim).map(|_| stream.normal()).collect::<Vec<f32>>()
    };
    let places: Vec<Vec<f32>> = (0..groups).map(place).collect();
    let row = |i: usize| {
        let mut stream = key.stream(i as u64, 2);
        places[i % groups].iter().map(move |x| x + spread * stream.normal()).collect::<Vec<f32>>()
    };
    Matrix::new(dim, (0..groups * each).flat_map(row).collect())
}
