//! Random numbers as a pure function of (purpose, seed, round, epoch, index, view): they do not depend on earlier draws or on
//! threads.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// The purpose of random numbers; every purpose has its own streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Initial weights; `index` is the parameter.
    Weights = 1,
    /// The memory bank's first rows; `index` is the sample.
    Bank = 2,
    /// Order of the samples in an epoch; `index` is the sample.
    Order = 3,
    /// A training view; `index` is the sample.
    View = 4,
    /// The view that is clustered; `index` is the sample.
    ClusterView = 5,
    /// First centroids; `index` is the sample.
    Centroids = 6,
    /// Repair of empty clusters; `index` is the iteration.
    Repair = 7,
    /// Dropout masks; `index` is the sample, `view` the layer and view.
    Dropout = 8,
    /// Synthetic data of benchmarks and tests.
    Synthetic = 9,
    /// A classifier's first weights; `index` is the class.
    Classifier = 10,
    /// The queue's first keys; `index` is the place.
    Queue = 11,
    /// Which samples of a cluster are drawn; `index` is the sample, or, at view 1, the cluster.
    Sampler = 12,
    /// The group of batch norm that a key belongs to; `index` is the sample.
    Groups = 13,
    /// Dropout masks of the key encoder; `index` is the sample, `view` the layer and view.
    KeyDropout = 14,
    /// Views, order and labelled samples of a probe that trains; `index` is the sample.
    Probe = 15,
    /// A random subset of the images; `index` is the sample.
    Subset = 16,
    /// Order, mirroring and samples of a detector's training; `index` is the image, `view` what is drawn.
    Detection = 17,
    /// Places of the patches that are learned from; `index` is the image.
    Patches = 18,
    /// First centroids of patches; `index` is the centroid.
    PatchCentroids = 19,
    /// Rows of the memory bank that a batch is compared with; `index` is the batch, `view` the process.
    BankRows = 20,
}

/// The coordinates of a random stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The purpose.
    pub purpose: Purpose,
    /// The run's seed.
    pub seed: u64,
    /// Round, from 0.
    pub round: u32,
    /// Epoch within the round, from 0.
    pub epoch: u32,
}

impl Key {
    /// The stream of sample `index` and `view`. ChaCha's 256-bit key is the coordinates themselves.
    pub fn stream(self, index: u64, view: u32) -> Stream {
        let mut key = [0u8; 32];
        key[0..4].copy_from_slice(&(self.purpose as u32).to_le_bytes());
        key[4..12].copy_from_slice(&self.seed.to_le_bytes());
        key[12..16].copy_from_slice(&self.round.to_le_bytes());
        key[16..20].copy_from_slice(&self.epoch.to_le_bytes());
        key[20..28].copy_from_slice(&index.to_le_bytes());
        key[28..32].copy_from_slice(&view.to_le_bytes());
        Stream(ChaCha8Rng::from_seed(key))
    }

    /// `ids` in random order: sorted by a random number that each id draws for itself, so that removing one id leaves the
    /// order of the others as it was.
    pub fn shuffled(self, ids: &[u64]) -> Vec<usize> {
        let mut order: Vec<(u64, u64, usize)> =
            ids.iter().enumerate().map(|(row, &id)| (self.stream(id, 0).next_u64(), id, row)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, _, row)| row).collect()
    }
}

/// A stream of random numbers.
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `[0, 1)`, 24 bits.
    pub fn unit(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 * (1.0 / (1 << 24) as f32)
    }

    /// Uniform in `[low, high)`.
    pub fn uniform(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// Uniform in `0..n`, without bias (Lemire's method).
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "n must be positive");
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(n);
            if wide as u64 >= n.wrapping_neg() % n {
                return (wide >> 64) as u64;
            }
        }
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f32) -> bool {
        self.unit() < p
    }

    /// Standard normal (Box-Muller).
    pub fn normal(&mut self) -> f32 {
        let r = f64::from(1.0 - self.unit()).ln().mul_add(-2.0, 0.0).sqrt();
        (r * (std::f64::consts::TAU * f64::from(self.unit())).cos()) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { purpose: Purpose::View, seed: 7, round: 1, epoch: 3 };

    #[test]
    fn streams_depend_on_every_coordinate() {
        let first = |key: Key, index, view| key.stream(index, view).next_u64();
        let base = first(KEY, 5, 0);
        assert_eq!(base, first(KEY, 5, 0));
        for other in [
            first(Key { purpose: Purpose::Order, ..KEY }, 5, 0),
            first(Key { seed: 8, ..KEY }, 5, 0),
            first(Key { round: 0, ..KEY }, 5, 0),
            first(Key { epoch: 4, ..KEY }, 5, 0),
            first(KEY, 6, 0),
            first(KEY, 5, 1),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn a_missing_id_leaves_the_order_of_the_rest() {
        let all: Vec<u64> = (0..50).collect();
        let some: Vec<u64> = all.iter().copied().filter(|id| *id != 17).collect();
        let order = |ids: &[u64]| KEY.shuffled(ids).into_iter().map(|row| ids[row]).collect::<Vec<_>>();
        let mut expected = order(&all);
        expected.retain(|id| *id != 17);
        assert_eq!(order(&some), expected);
        assert_ne!(order(&all), all);
    }

    #[test]
    fn draws_stay_in_range_with_the_right_mean() {
        let mut s = KEY.stream(0, 0);
        let mut mean = 0.0;
        for _ in 0..10_000 {
            let u = s.uniform(-2.0, 3.0);
            assert!((-2.0..3.0).contains(&u));
            assert!(s.below(7) < 7);
            mean += f64::from(s.normal()) / 10_000.0;
        }
        assert!(mean.abs() < 0.05, "mean of normals {mean}");
    }
}
