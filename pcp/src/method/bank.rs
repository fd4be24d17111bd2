//! The memory bank (for each sample a moving average m_i of its embedding, as a unit vector) and MoCo's queue of recent keys.
//! Losses compare embeddings with them.

use pcp_core::matrix::{Matrix, normalise};
use pcp_core::peers::Peers;
use pcp_core::rng::{Key, Purpose};

/// N rows of D numbers, one for each sample; of several processes, each has those of its share of the samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Bank {
    /// The rows m_i.
    pub rows: Matrix,
    /// The sample of the first row.
    pub first: usize,
    /// Share of the old row in an updated one.
    pub momentum: f32,
}

impl Bank {
    /// This process's rows of the samples `ids`, drawn from U(-a, a), a = sqrt(3 / D), not normalised.
    pub fn new(ids: &[u64], dim: usize, momentum: f32, seed: u64, peers: &dyn Peers) -> Self {
        let own = peers.own(ids.len());
        let a = (3.0 / dim as f32).sqrt();
        let key = Key { purpose: Purpose::Bank, seed, round: 0, epoch: 0 };
        let mut values = Vec::with_capacity(own.len() * dim);
        for &id in &ids[own.clone()] {
            let mut stream = key.stream(id, 0);
            values.extend((0..dim).map(|_| stream.uniform(-a, a)));
        }
        Bank { rows: Matrix { rows: own.len(), dim, values }, first: own.start, momentum }
    }

    /// This process's rows of a whole bank.
    pub fn of_whole(rows: Matrix, momentum: f32, peers: &dyn Peers) -> Self {
        let (own, Matrix { dim, mut values, .. }) = (peers.own(rows.rows), rows);
        values.truncate(own.end * dim);
        values.drain(..own.start * dim);
        values.shrink_to_fit();
        Bank { rows: Matrix { rows: own.len(), dim, values }, first: own.start, momentum }
    }

    /// The rows of all `samples`.
    pub fn whole(&self, samples: usize, peers: &dyn Peers) -> Matrix {
        let dim = self.rows.dim;
        Matrix { rows: samples, dim, values: peers.all_gather_values(&self.rows.values, &values(samples, dim, peers)) }
    }

    /// The rows of all `samples` for the process that leads; the others get none.
    pub fn for_leader(&self, samples: usize, peers: &dyn Peers) -> Matrix {
        let dim = self.rows.dim;
        let values = peers.to_leader(&self.rows.values, &values(samples, dim, peers));
        Matrix { rows: values.len() / dim, dim, values }
    }

    /// The row of a sample, if this process has it.
    pub fn row(&self, sample: usize) -> Option<&[f32]> {
        let at = sample.checked_sub(self.first).filter(|at| *at < self.rows.rows)?;
        Some(self.rows.row(at))
    }

    /// m_y <- normalise(momentum m_y + (1 - momentum) v), if this process has the row.
    pub fn update(&mut self, y: usize, v: &[f32]) {
        let dim = self.rows.dim;
        let Some(at) = y.checked_sub(self.first).filter(|at| *at < self.rows.rows) else { return };
        let row = &mut self.rows.values[at * dim..(at + 1) * dim];
        for (m, x) in row.iter_mut().zip(v) {
            *m = self.momentum * *m + (1.0 - self.momentum) * x;
        }
        normalise(row);
    }
}

/// Rows of the bank that stand for the others in a batch's sums over all rows, drawn from (seed, round, epoch, batch) and the process.
#[derive(Clone, Copy, Debug)]
pub struct BankSample {
    /// How many, M, over all processes.
    pub rows: usize,
    /// The key of the epoch.
    pub key: Key,
    /// The number of the batch in the epoch.
    pub batch: usize,
}

impl BankSample {
    /// Of a process's `rows`, without the `known` ones (ascending): those drawn, ascending, and how many each of them stands for. `None` where
    /// there are no more than should be drawn.
    pub fn draw(&self, rows: usize, known: &[usize], peers: &dyn Peers) -> Option<(Vec<usize>, f64)> {
        let (others, count) = (rows - known.len(), peers.own(self.rows).len().max(1));
        if count >= others {
            return None;
        }
        let mut stream = self.key.stream(self.batch as u64, peers.rank() as u32);
        let mut skipped = 0;
        // One from each of `count` equal parts of the others. All have the same chance, count / others; one that lies in two parts may be drawn
        // in both, and then counts twice.
        let one = |part: usize| {
            let at = ((part as u64 * others as u64 + stream.below(others as u64)) / count as u64) as usize;
            while known.get(skipped).is_some_and(|row| *row <= at + skipped) {
                skipped += 1;
            }
            at + skipped
        };
        Some(((0..count).map(one).collect(), others as f64 / count as f64))
    }
}

/// How many values of the rows of all `samples` every process has.
fn values(samples: usize, dim: usize, peers: &dyn Peers) -> Vec<usize> {
    peers.shares(samples).iter().map(|rows| rows * dim).collect()
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
    use pcp_core::peers::Alone;
    use pcp_core::peers::parts::together;

    /// Also where there are fewer samples than processes.
    #[test]
    fn a_divided_bank_is_the_whole_one() {
        for (samples, count) in [(20, 1), (20, 3), (2, 3), (1, 4)] {
            let ids: Vec<u64> = (0..samples as u64).map(|i| i * 7).collect();
            let mut whole = Bank::new(&ids, 5, 0.5, 3, &Alone);
            let begun = whole.rows.clone();
            let batch = [0, samples / 2, samples - 1, 0];
            let v: Vec<f32> = (0..5).map(|i| i as f32 - 1.5).collect();
            batch.iter().for_each(|y| whole.update(*y, &v));
            let found = together(count, |peers| {
                let mut bank = Bank::new(&ids, 5, 0.5, 3, &*peers);
                assert_eq!(bank, Bank::of_whole(begun.clone(), 0.5, &*peers));
                assert!((0..samples).all(|i| bank.row(i).is_none_or(|row| row == begun.row(i))));
                assert_eq!((0..samples).filter(|i| bank.row(*i).is_some()).count(), peers.own(samples).len());
                batch.iter().for_each(|y| bank.update(*y, &v));
                (bank.whole(samples, &*peers), bank.for_leader(samples, &*peers))
            });
            assert!(found.iter().all(|(all, _)| *all == whole.rows), "{samples} samples, {count} processes");
            assert_eq!(found[0].1, whole.rows);
            assert!(found[1..].iter().all(|(_, none)| none.rows == 0));
        }
    }

    /// Over many batches, every row but the known ones is drawn equally often, in order; another batch draws others, and so does another process.
    #[test]
    fn every_other_row_is_drawn_equally_often() {
        let key = Key { purpose: Purpose::BankRows, seed: 2, round: 0, epoch: 3 };
        let known = [0, 1, 7, 8, 29];
        let mut times = [0.0f64; 30];
        let draw = |batch| BankSample { rows: 9, key, batch }.draw(30, &known, &Alone).unwrap();
        for batch in 0..9000 {
            let (drawn, stands_for) = draw(batch);
            assert!(drawn.is_sorted() && drawn.len() == 9 && stands_for == 25.0 / 9.0);
            drawn.iter().for_each(|row| times[*row] += 1.0);
        }
        for (row, times) in times.iter().enumerate() {
            let expected = if known.contains(&row) { 0.0 } else { 9000.0 * 9.0 / 25.0 };
            assert!((times - expected).abs() <= 5.0 * expected.sqrt(), "row {row}: {times} of {expected}");
        }
        assert!(draw(0) == draw(0) && draw(0) != draw(1));
        let sample = BankSample { rows: 9, key, batch: 0 };
        assert!(sample.draw(14, &known, &Alone).is_none() && sample.draw(5, &known, &Alone).is_none());
        // Every process draws its share, and at least one row.
        let found = together(2, |peers| sample.draw(30, &[], &*peers).unwrap().0);
        assert!(found[0] != found[1] && found[0].len() + found[1].len() == 9);
        let one = BankSample { rows: 1, key, batch: 0 };
        assert!(together(3, |peers| one.draw(30, &[], &*peers).unwrap().0.len()) == [1, 1, 1]);
    }

    #[test]
    fn first_rows_are_uniform() {
        let bank = Bank::new(&(0..200).collect::<Vec<_>>(), 128, 0.5, 3, &Alone);
        let a = (3.0f32 / 128.0).sqrt();
        assert!(bank.rows.values.iter().all(|x| x.abs() <= a));
        let variance = bank.rows.values.iter().map(|x| f64::from(x * x)).sum::<f64>() / (200.0 * 128.0);
        assert!((variance * 128.0 - 1.0).abs() < 0.02, "{variance}");
        assert_eq!(bank.rows.row(7), Bank::new(&[7], 128, 0.5, 3, &Alone).rows.row(0));
    }

    /// Computed by hand: row 0 = [1, 0, 0], v0 = norm [1, .1, .1].
    #[test]
    fn update_check_value() {
        let mut bank = Bank { rows: Matrix::new(3, vec![1.0, 0.0, 0.0]), first: 0, momentum: 0.5 };
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
