//! Repair of empty clusters: each splits a large one, the donor.

use crate::matrix::Matrix;
use crate::rng::Key;

/// How far the two halves of a split cluster are nudged apart.
const NUDGE: f32 = 1.0 / 1024.0;

/// Splits a large centroid for every empty cluster; members move at the next assignment. Returns every empty cluster with its
/// donor, which is drawn with probability proportional to its size - 1.
pub fn repair(centroids: &mut Matrix, sizes: &mut [usize], key: Key, iteration: usize) -> Vec<(usize, usize)> {
    let dim = centroids.dim;
    let empty: Vec<usize> = (0..sizes.len()).filter(|&j| sizes[j] == 0).collect();
    if empty.is_empty() {
        return Vec::new();
    }
    let mut rng = key.stream(iteration as u64, 0);
    let mut spare = RunningSums::new(sizes.iter().map(|s| s.saturating_sub(1)).collect());
    let mut repaired = Vec::with_capacity(empty.len());
    for j in empty {
        // With an empty cluster among K <= N, some other has two members or more: the sum is not zero.
        let donor = spare.find(rng.below(spare.total as u64) as usize);
        for d in 0..dim {
            let value = centroids.values[donor * dim + d];
            let nudge = if d % 2 == 0 { NUDGE } else { -NUDGE };
            centroids.values[j * dim + d] = value * (1.0 + nudge);
            centroids.values[donor * dim + d] = value * (1.0 - nudge);
        }
        let half = sizes[donor] / 2;
        spare.take(donor, half);
        spare.give(j, half.saturating_sub(1));
        sizes[j] = half;
        sizes[donor] -= half;
        repaired.push((j, donor));
    }
    repaired
}

/// Numbers of which the running sums are found and changed in logarithmic time (a Fenwick tree).
struct RunningSums {
    tree: Vec<usize>,
    total: usize,
}

impl RunningSums {
    fn new(numbers: Vec<usize>) -> Self {
        let mut tree = vec![0; numbers.len() + 1];
        tree[1..].copy_from_slice(&numbers);
        for i in 1..tree.len() {
            let above = i + (i & i.wrapping_neg());
            if above < tree.len() {
                tree[above] += tree[i];
            }
        }
        RunningSums { total: numbers.iter().sum(), tree }
    }

    fn give(&mut self, index: usize, amount: usize) {
        self.total += amount;
        let mut i = index + 1;
        while i < self.tree.len() {
            self.tree[i] += amount;
            i += i & i.wrapping_neg();
        }
    }

    fn take(&mut self, index: usize, amount: usize) {
        self.total -= amount;
        let mut i = index + 1;
        while i < self.tree.len() {
            self.tree[i] -= amount;
            i += i & i.wrapping_neg();
        }
    }

    /// The first index at which the running sum exceeds `drawn`, which must be below the total.
    fn find(&self, mut drawn: usize) -> usize {
        let mut at = 0;
        let mut step = self.tree.len().next_power_of_two();
        while step > 0 {
            if at + step < self.tree.len() && self.tree[at + step] <= drawn {
                at += step;
                drawn -= self.tree[at];
            }
            step /= 2;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The tree against plain running sums, through changes.
        #[test]
        fn sums_are_those_of_a_plain_scan(mut numbers in prop::collection::vec(0usize..5, 1..70), changes in prop::collection::vec((0usize..70, 0usize..4), 0..20)) {
            let mut sums = RunningSums::new(numbers.clone());
            for (at, amount) in changes {
                let at = at % numbers.len();
                sums.give(at, amount);
                numbers[at] += amount;
                let less = numbers[at] / 2;
                sums.take(at, less);
                numbers[at] -= less;
            }
            prop_assert_eq!(sums.total, numbers.iter().sum::<usize>());
            for drawn in 0..sums.total {
                let mut left = drawn;
                let plain = numbers.iter().position(|n| if left < *n { true } else { left -= n; false });
                prop_assert_eq!(Some(sums.find(drawn)), plain);
            }
        }
    }
}
