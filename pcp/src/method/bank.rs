//! The memory bank (for each sample a moving average m_i of its embedding, as a unit vector) and MoCo's queue of recent keys.
//! Losses compare embeddings with them.

use pcp_core::matrix::{Matrix, normalise};
use pcp_core::rng::{Key, Purpose};

/// N rows of D numbers; row i belongs to sample i.
#[derive(Clone, Debug, PartialEq)]
pub struct Bank {
    /// The rows m_i.
    pub rows: Matrix,
    /// Share of the old row in an updated one.
    pub momentum: f32,
}

impl Bank {
    /// Rows drawn from U(-a, a), a = sqrt(3 / D), not normalised.
    pub fn new(ids: &[u64], dim: usize, momentum: f32, seed: u64) -> Self {
        let a = (3.0 / dim as f32).sqrt();
        let key = Key { purpose: Purpose::Bank, seed, round: 0, epoch: 0 };
        let mut values = Vec::with_capacity(ids.len() * dim);
        for &id in ids {
            let mut stream = key.stream(id, 0);
            values.extend((0..dim).map(|_| stream.uniform(-a, a)));
        }
        Bank { rows: Matrix { rows: ids.len(), dim, values }, momentum }
    }

    /// m_y <- normalise(momentum m_y + (1 - momentum) v).
    pub fn update(&mut self, y: usize, v: &[f32]) {
        let dim = self.rows.dim;
        let row = &mut self.rows.values[y * dim..(y + 1) * dim];
        for (m, x) in row.iter_mut().zip(v) {
            *m = self.momentum * *m + (1.0 - self.momentum) * x;
        }
        normalise(row);
    }
}

/// The most recent keys of the key encoder (MoCo), as a ring buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// The keys.
    pub rows: Matrix,
    /// Index of the oldest key, which the next one replaces.
    pub next: usize,
}

impl Queue {
    /// `len` random unit vectors.
    pub fn new(len: usize, dim: usize, seed: u64) -> Self {
        let key = Key { purpose: Purpose::Queue, seed, round: 0, epoch: 0 };
        let mut values = Vec::with_capacity(len * dim);
        for place in 0..len as u64 {
            let mut stream = key.stream(place, 0);
            values.extend((0..dim).map(|_| stream.normal()));
        }
        Queue { rows: Matrix { rows: len, dim, values }.normalised(), next: 0 }
    }

    /// Adds `keys`, each replacing the oldest.
    pub fn push(&mut self, keys: &Matrix) {
        let dim = self.rows.dim;
        for key in keys.values.chunks(dim) {
            self.rows.values[self.next * dim..(self.next + 1) * dim].copy_from_slice(key);
            self.next = (self.next + 1) % self.rows.rows;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_rows_are_uniform() {
        let bank = Bank::new(&(0..200).collect::<Vec<_>>(), 128, 0.5, 3);
        let a = (3.0f32 / 128.0).sqrt();
        assert!(bank.rows.values.iter().all(|x| x.abs() <= a));
        let variance = bank.rows.values.iter().map(|x| f64::from(x * x)).sum::<f64>() / (200.0 * 128.0);
        assert!((variance * 128.0 - 1.0).abs() < 0.02, "{variance}");
        assert_eq!(bank.rows.row(7), Bank::new(&[7], 128, 0.5, 3).rows.row(0));
    }

    /// Computed by hand: row 0 = [1, 0, 0], v0 = norm [1, .1, .1].
    #[test]
    fn update_check_value() {
        let mut bank = Bank { rows: Matrix::new(3, vec![1.0, 0.0, 0.0]), momentum: 0.5 };
        let mut v = [1.0, 0.1, 0.1];
        normalise(&mut v);
        bank.update(0, &v);
        for (m, expected) in bank.rows.row(0).iter().zip([0.9975338, 0.0496298, 0.0496298]) {
            assert!((m - expected).abs() < 1e-6, "{m} is not {expected}");
        }
    }

    #[test]
    fn the_oldest_keys_leave_first() {
        let mut queue = Queue::new(4, 1, 0);
        assert!(queue.rows.values.iter().all(|x| x.abs() == 1.0));
        let keys = |values: &[f32]| Matrix::new(1, values.to_vec());
        queue.push(&keys(&[1.0, 2.0, 3.0]));
        assert_eq!((&queue.rows.values[..3], queue.next), (&[1.0, 2.0, 3.0][..], 3));
        queue.push(&keys(&[4.0, 5.0]));
        assert_eq!((queue.rows.values, queue.next), (vec![5.0, 2.0, 3.0, 4.0], 1));
    }
}
