//! The memory bank: one unit vector per sample, a slow copy of what the network makes of it.

use crate::features::{Features, normalise};
use crate::rng::{Key, Purpose};

/// N rows of D numbers; row i belongs to sample i.
#[derive(Clone, Debug, PartialEq)]
pub struct Bank {
    /// The rows m_i.
    pub rows: Features,
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
        Bank { rows: Features { rows: ids.len(), dim, values }, momentum }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_rows_fill_the_cube() {
        let bank = Bank::new(&(0..200).collect::<Vec<_>>(), 128, 0.5, 3);
        let a = (3.0f32 / 128.0).sqrt();
        assert!(bank.rows.values.iter().all(|x| x.abs() <= a));
        let variance = bank.rows.values.iter().map(|x| f64::from(x * x)).sum::<f64>() / (200.0 * 128.0);
        assert!((variance * 128.0 - 1.0).abs() < 0.02, "{variance}");
        assert_eq!(bank.rows.row(7), Bank::new(&[7], 128, 0.5, 3).rows.row(0));
    }

    /// Recipe: method.md 1.4: row 0 = [1, 0, 0], v0 = norm [1, .1, .1].
    #[test]
    fn update_check_value() {
        let mut bank = Bank { rows: Features::new(3, vec![1.0, 0.0, 0.0]), momentum: 0.5 };
        let mut v = [1.0, 0.1, 0.1];
        normalise(&mut v);
        bank.update(0, &v);
        for (m, expected) in bank.rows.row(0).iter().zip([0.9975338, 0.0496298, 0.0496298]) {
            assert!((m - expected).abs() < 1e-6, "{m} is not {expected}");
        }
    }
}
