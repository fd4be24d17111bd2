//! Exact nearest neighbours by cosine, and the weighted vote among them (Wu et al. 2018).
//!
//! For unit rows the cosine is the dot product `s`. A query's class is the one with the largest sum of `exp(s / tau)` over its
//! k nearest bank rows; the paper has k = 200, tau = 0.1. One search serves every `k` up to its own and every `tau`.
//!
//! Upper bounds on the similarities are computed tile by tile (`dots.rs`) and compared at once with the k-th best so far; only those
//! that are large enough are computed in full, so that at most 2k candidates per query of a block are stored, however large the bank.
//! The bounds are products of shortened rows (`dots/short.rs`), where the bank lies near a subspace, as embeddings of a trained
//! network do; else of rows rounded to bf16 (`dots/half.rs`), where the CPU multiplies them; else the products themselves. What is
//! found is the same, to the bit. Of equal similarities the lower index comes first.

use rayon::prelude::*;

use crate::dots::half::{self, HalfRows, PackedHalves};
use crate::dots::short::Basis;
use crate::dots::{Packed, Visit, WIDTH, products};
use crate::matrix::{Matrix, dot};
use std::borrow::Cow;
use std::ops::Range;

/// Queries of a work unit.
const BLOCK: usize = 240;

/// The nearest bank rows of every query, nearest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbours {
    /// How many per query.
    pub k: usize,
    /// Bank rows, `k` per query.
    pub index: Vec<u32>,
    /// Their cosines.
    pub similarity: Vec<f32>,
}

/// The `k` rows of `bank` nearest to every query, or as many as there are; rows of both have unit length. With
/// `exclude_self`, query i never finds bank row i (leave-one-out). `tick` gets the number of queries done.
pub fn nearest(
    queries: &Matrix,
    bank: &Matrix,
    k: usize,
    exclude_self: bool,
    tick: &(dyn Fn(usize) + Sync),
) -> Neighbours {
    let k = k.min(bank.rows.saturating_sub(usize::from(exclude_self)));
    let mut neighbours = Neighbours { k, index: vec![0; queries.rows * k], similarity: vec![0.0; queries.rows * k] };
    if neighbours.index.is_empty() {
        tick(queries.rows);
        return neighbours;
    }
    assert_eq!(queries.dim, bank.dim, "queries and bank of different dimensions");
    let bounds = Bounds::new(queries, bank);
    let blocks = neighbours.index.par_chunks_mut(BLOCK * k).zip(neighbours.similarity.par_chunks_mut(BLOCK * k));
    blocks.enumerate().for_each(|(b, (index, similarity))| {
        let (first, served) = (b * BLOCK, index.len() / k);
        let mut best = Best {
            k,
            queries: &queries.values[first * queries.dim..][..served * queries.dim],
            bank,
            own: exclude_self.then_some(first),
            slack: &bounds.slack[first..][..served],
            threshold: vec![f32::NAN; served],
            keys: vec![Vec::with_capacity(2 * k + WIDTH); served],
        };
        bounds.visit(first..first + served, &mut best);
        for (row, (index, similarity)) in index.chunks_mut(k).zip(similarity.chunks_mut(k)).enumerate() {
            best.keys[row].sort_unstable_by(|a, b| b.cmp(a));
            for ((key, i), s) in best.keys[row].iter().zip(index).zip(similarity) {
                (*s, *i) = from_sort_key(*key);
            }
        }
        tick(served);
    });
    neighbours
}

/// Products that are upper bounds on the similarities, and how far they may be below them.
struct Bounds<'a> {
    /// For every query, the most that a bound is below the similarity.
    slack: Vec<f32>,
    rows: BoundRows<'a>,
}

/// The rows that bounds are products of.
enum BoundRows<'a> {
    /// In f32, of all queries and of the bank.
    Full(Cow<'a, Matrix>, Packed),
    /// In bf16.
    Half(HalfRows, PackedHalves),
}

impl<'a> Bounds<'a> {
    fn new(queries: &'a Matrix, bank: &'a Matrix) -> Self {
        // For a few queries, these take longer than they save.
        let many = queries.rows >= BLOCK;
        let basis = if many { Basis::new(bank) } else { None };
        let length = |row: &[f32]| dot(row, row).sqrt();
        let longest = bank.values.par_chunks(bank.dim).map(length).reduce(|| 0.0, f32::max);
        // Rounding of a similarity, and of a product.
        let rounding = 4.0 * bank.dim as f32 * f32::EPSILON * longest;
        let slack = |query: &[f32]| {
            let query = length(query);
            rounding * query + basis.as_ref().map_or(0.0, |basis| basis.slack(query, longest))
        };
        let mut slack: Vec<f32> = queries.values.par_chunks(queries.dim).map(slack).collect();
        let shortened = |rows: &'a Matrix| match &basis {
            Some(basis) => Cow::Owned(basis.shorten(rows)),
            None => Cow::Borrowed(rows),
        };
        let (left, right) = (shortened(queries), shortened(bank));
        let rows = if many && basis.is_none() && half::supported() {
            let (dim, left, right) = (bank.dim, HalfRows::new(&left), HalfRows::new(&right));
            let greatest = right.greatest();
            slack.iter_mut().zip(&left.lengths).for_each(|(slack, query)| *slack += query.error(greatest, dim));
            BoundRows::Half(left, PackedHalves::new(&right))
        } else {
            BoundRows::Full(left, Packed::new(&right.values, right.dim))
        };
        Bounds { slack, rows }
    }

    /// Passes `best` the bounds of some queries with the whole bank.
    fn visit(&self, queries: Range<usize>, best: &mut Best) {
        match &self.rows {
            BoundRows::Full(rows, bank) => {
                let all: Vec<u32> = (0..queries.len() as u32).collect();
                let rows = &rows.values[queries.start * rows.dim..queries.end * rows.dim];
                products(rows, &all, bank, 0..best.bank.rows.div_ceil(WIDTH), best);
            }
            BoundRows::Half(rows, bank) => {
                half::products(&rows.words[queries.start * rows.pairs..queries.end * rows.pairs], bank, best);
            }
        }
    }
}

/// The best candidates of every query of a block.
struct Best<'a> {
    k: usize,
    queries: &'a [f32],
    bank: &'a Matrix,
    /// With leave-one-out, the bank row of the block's first query.
    own: Option<usize>,
    /// For every query, the most that a bound is below the similarity.
    slack: &'a [f32],
    /// What a bound must exceed: the k-th best similarity less the slack; NaN, which excludes none, until there are k candidates.
    threshold: Vec<f32>,
    keys: Vec<Vec<u64>>,
}

/// The dot product, in sixteen fixed lanes.
#[inline(always)]
fn similarity(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (x, y) in a.iter().zip(b) {
        for l in 0..16 {
            lanes[l] += x[l] * y[l];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    lanes.iter().sum::<f32>() + rest
}

impl Visit for Best<'_> {
    #[inline(always)]
    fn visit(&mut self, row: usize, first: usize, bounds: &[f32; WIDTH]) {
        let threshold = self.threshold[row];
        let mut failed = true;
        for bound in bounds {
            failed &= *bound < threshold;
        }
        if !failed {
            self.take(row, first, bounds);
        }
    }
}

impl Best<'_> {
    #[inline(always)]
    fn take(&mut self, row: usize, first: usize, bounds: &[f32; WIDTH]) {
        let threshold = self.threshold[row];
        let own = self.own.map_or(usize::MAX, |start| start + row);
        let mut failed = 0u32;
        for (l, bound) in bounds.iter().enumerate() {
            failed |= u32::from(*bound < threshold) << l;
        }
        let mut passed = !failed;
        let query = &self.queries[row * self.bank.dim..][..self.bank.dim];
        let keys = &mut self.keys[row];
        while passed != 0 {
            let index = first + passed.trailing_zeros() as usize;
            passed &= passed - 1;
            // Strips may extend past the last row of the bank.
            if index < self.bank.rows && index != own {
                // Many queries in turn need the bank rows of a panel, which stay in the cache.
                keys.push(sort_key(similarity(query, self.bank.row(index)), index as u32));
            }
        }
        if keys.len() >= 2 * self.k {
            self.cut(row);
        }
    }

    /// Keeps the k best of a query.
    #[cold]
    #[inline(never)]
    fn cut(&mut self, row: usize) {
        let keys = &mut self.keys[row];
        let (_, kth, _) = keys.select_nth_unstable_by(self.k - 1, |a, b| b.cmp(a));
        self.threshold[row] = from_sort_key(*kth).0 - self.slack[row];
        keys.truncate(self.k);
    }
}

/// Similarity and index as one number that sorts by similarity, then by falling index.
fn sort_key(similarity: f32, index: u32) -> u64 {
    // Adding zero turns -0 into 0. Flipping the sign bit, or all bits of negative numbers, makes the bits sort like the numbers.
    let bits = (similarity + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | u64::from(!index)
}

fn from_sort_key(key: u64) -> (f32, u32) {
    let ordered = (key >> 32) as u32;
    let bits = if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered };
    (f32::from_bits(bits), !(key as u32))
}

/// The class with the largest sum of `exp(s / tau)` over the `k` nearest neighbours, for every query; ties go to the lowest
/// class. `labels` are those of the bank, below `classes`.
pub fn vote(neighbours: &Neighbours, labels: &[u32], classes: usize, k: usize, tau: f32) -> Vec<u32> {
    let k = k.min(neighbours.k);
    if k == 0 {
        return vec![0; neighbours.index.len().checked_div(neighbours.k).unwrap_or(0)];
    }
    let queries = neighbours.index.par_chunks(neighbours.k).zip(neighbours.similarity.par_chunks(neighbours.k));
    let winner = |sums: &mut Vec<f64>, (index, similarity): (&[u32], &[f32])| {
        sums.fill(0.0);
        for (&i, &s) in index[..k].iter().zip(similarity) {
            // Relative to the nearest, so that a small tau does not overflow.
            sums[labels[i as usize] as usize] += (f64::from(s - similarity[0]) / f64::from(tau)).exp();
        }
        (1..classes).fold(0, |best, c| if sums[c] > sums[best] { c } else { best }) as u32
    };
    queries.map_init(|| vec![0.0; classes], winner).collect()
}

/// Percentage of `predicted` that equals `truth`; 0 of nothing.
pub fn accuracy(predicted: &[u32], truth: &[u32]) -> f64 {
    assert_eq!(predicted.len(), truth.len(), "one prediction per label");
    let right = predicted.iter().zip(truth).filter(|(p, t)| p == t).count();
    100.0 * right as f64 / predicted.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rng::{Key, Purpose};

    fn unit_rows(rows: usize, dim: usize, seed: u64) -> Matrix {
        let mut rng = Key { purpose: Purpose::Synthetic, seed, round: 0, epoch: 0 }.stream(0, 0);
        Matrix::new(dim, (0..rows * dim).map(|_| rng.normal()).collect()).normalised()
    }

    /// Every similarity in double precision, all sorted.
    fn twin(queries: &Matrix, bank: &Matrix, k: usize, exclude_self: bool) -> Vec<Vec<(f64, usize)>> {
        let one = |q: usize| {
            let cosine = |j: usize| -> f64 {
                queries.row(q).iter().zip(bank.row(j)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let mut all: Vec<(f64, usize)> =
                (0..bank.rows).filter(|j| !exclude_self || *j != q).map(|j| (cosine(j), j)).collect();
            all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            all.truncate(k);
            all
        };
        (0..queries.rows).map(one).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn matches_the_slow_twin(
            q in 0usize..230, n in 1usize..300, dim in 1usize..40, k in 1usize..40, seed in 0u64..99, alone: bool,
        ) {
            let bank = unit_rows(n, dim, seed);
            let queries = if alone { bank.clone() } else { unit_rows(q, dim, seed + 1000) };
            let found = nearest(&queries, &bank, k, alone, &|_| ());
            prop_assert_eq!(found.k, k.min(n - usize::from(alone)));
            for (i, slow) in twin(&queries, &bank, found.k, alone).into_iter().enumerate() {
                for (r, (s, _)) in slow.into_iter().enumerate() {
                    let (at, index) = (i * found.k + r, found.index[i * found.k + r] as usize);
                    prop_assert!((f64::from(found.similarity[at]) - s).abs() < 1e-5);
                    prop_assert!(!alone || index != i);
                    // A near-tie may swap places; the row found must be as near as the one expected.
                    let own: f64 =
                        queries.row(i).iter().zip(bank.row(index)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    prop_assert!((own - s).abs() < 1e-5);
                }
                let mut once = found.index[i * found.k..(i + 1) * found.k].to_vec();
                once.sort_unstable();
                once.dedup();
                prop_assert_eq!(once.len(), found.k);
            }
        }

        #[test]
        fn keys_keep_order_and_content(a in -1.0f32..1.0, b in -1.0f32..1.0, i: u32, j: u32) {
            prop_assert_eq!(from_sort_key(sort_key(a, i)), (a, i));
            let nearer = a > b || (a == b && i < j);
            prop_assert_eq!(sort_key(a, i) > sort_key(b, j), nearer);
        }
    }

    /// Rows near a subspace, where most candidates are skipped.
    #[test]
    fn shortened_rows_change_nothing() {
        let (n, dim, k) = (2500, 40, 30);
        let plane = unit_rows(5, dim, 1);
        let near = |rows: usize, seed: u64| {
            let (along, off) = (unit_rows(rows, 5, seed), unit_rows(rows, dim, seed + 1));
            let value = |i: usize, d: usize| {
                let sum: f32 = (0..5).map(|r| along.row(i)[r] * plane.row(r)[d]).sum();
                sum + 0.1 * off.row(i)[d]
            };
            Matrix::new(dim, (0..rows * dim).map(|x| value(x / dim, x % dim)).collect()).normalised()
        };
        let mut bank = near(n, 10);
        // Equal rows, far apart in the bank.
        let first = bank.row(0).to_vec();
        (0..n).step_by(31).for_each(|i| bank.values[i * dim..(i + 1) * dim].copy_from_slice(&first));
        assert!(Basis::new(&bank).is_some());
        for (queries, alone) in [(near(300, 20), false), (bank.clone(), true)] {
            let found = nearest(&queries, &bank, k, alone, &|_| ());
            for (i, slow) in twin(&queries, &bank, k, alone).into_iter().enumerate() {
                let found = &found.index[i * k..(i + 1) * k];
                let far = |j: usize| queries.row(i).iter().zip(bank.row(j)).map(|(a, b)| f64::from(*a) * f64::from(*b));
                for (r, (s, _)) in slow.into_iter().enumerate() {
                    assert!((far(found[r] as usize).sum::<f64>() - s).abs() < 1e-6, "query {i}, neighbour {r}");
                }
            }
        }
        // All copies are as near: the first of them are found, in order.
        let found = nearest(&Matrix::new(dim, first.repeat(BLOCK)), &bank, k, false, &|_| ());
        assert_eq!(found.index[..k], (0..k as u32).map(|i| i * 31).collect::<Vec<_>>());
    }

    /// Many queries at once are filtered by bf16 products, where the CPU has them; a few are not.
    #[test]
    fn a_filter_changes_nothing() {
        let (mut bank, queries) = (unit_rows(3000, 24, 1), unit_rows(2 * BLOCK, 24, 2));
        assert!(Basis::new(&bank).is_none());
        // Rows that bf16 does not tell apart.
        for i in 0..100 {
            let row: Vec<f32> = queries.row(i % 7).iter().map(|x| x * (1.0 - 1e-5 * i as f32)).collect();
            bank.values[i * 24..(i + 1) * 24].copy_from_slice(&row);
        }
        for k in [1, 10, 200] {
            let found = nearest(&queries, &bank, k, false, &|_| ());
            for (b, block) in queries.values.chunks(100 * 24).enumerate() {
                let few = nearest(&Matrix::new(24, block.to_vec()), &bank, k, false, &|_| ());
                let range = b * 100 * k..(b * 100 + few.index.len() / k) * k;
                assert_eq!(few.index, found.index[range.clone()], "k = {k}, block {b}");
                assert_eq!(few.similarity, found.similarity[range]);
            }
        }
    }

    #[test]
    fn ties_go_to_the_lower_index() {
        // Rows 0, 3, 6, ... are equal; so are the others.
        let bank = Matrix::new(2, [1.0, 0.0, 0.0, 1.0, 0.0, 1.0].repeat(40));
        let found = nearest(&Matrix::new(2, vec![1.0, 0.0]), &bank, 5, false, &|_| ());
        assert_eq!(found.index, [0, 3, 6, 9, 12]);
        let found = nearest(&Matrix::new(2, vec![-1.0, 0.0]), &bank, 3, false, &|_| ());
        assert_eq!(found.index, [1, 2, 4]);
        assert_eq!(sort_key(-0.0, 3), sort_key(0.0, 3));
    }

    #[test]
    fn threads_do_not_change_a_bit_and_progress_covers_every_query() {
        let (queries, bank) = (unit_rows(500, 20, 1), unit_rows(700, 20, 2));
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let told = std::sync::atomic::AtomicUsize::new(0);
            let tick = |n: usize| {
                told.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
            };
            let found = pool.install(|| nearest(&queries, &bank, 30, false, &tick));
            assert_eq!(told.into_inner(), 500);
            found
        };
        let one = with(1);
        assert_eq!(one, with(2));
        assert_eq!(one, with(3));
    }

    #[test]
    fn identical_rows() {
        let bank = Matrix::new(2, [0.6, 0.8].repeat(100));
        let found = nearest(&bank, &bank, 3, true, &|_| ());
        assert_eq!(&found.index[..6], [1, 2, 3, 0, 2, 3]);
    }

    #[test]
    fn empty_and_single() {
        let (none, one) = (Matrix::default(), Matrix::new(2, vec![0.6, 0.8]));
        assert_eq!(nearest(&none, &one, 5, false, &|_| ()).index, [0u32; 0]);
        assert_eq!(nearest(&one, &none, 5, false, &|_| ()).k, 0);
        assert_eq!(nearest(&one, &one, 5, true, &|_| ()).k, 0);
        assert_eq!(nearest(&one, &one, 5, false, &|_| ()).index, [0]);
        assert_eq!(vote(&nearest(&one, &one, 5, true, &|_| ()), &[0], 1, 5, 0.1), [0u32; 0]);
    }

    #[test]
    fn nan_rows_do_not_panic() {
        let mut bank = unit_rows(100, 3, 0);
        bank.values[6..12].fill(f32::NAN);
        let found = nearest(&bank, &bank, 10, true, &|_| ());
        assert!(found.index.iter().all(|i| *i < 100));
    }

    /// Weights for k = 3, tau = .1: class 0 exp(9), class 1 exp(8.5) + exp(8.4) = .6065 + .5488 of it. So 0 wins alone, 1
    /// wins with all three; with tau = .01 the nearest outweighs both.
    #[test]
    fn the_vote_weighs_by_similarity() {
        let neighbours = Neighbours { k: 3, index: vec![2, 0, 1], similarity: vec![0.9, 0.85, 0.84] };
        let labels = [1, 1, 0];
        assert_eq!(vote(&neighbours, &labels, 2, 1, 0.1), [0]);
        assert_eq!(vote(&neighbours, &labels, 2, 2, 0.1), [0]);
        assert_eq!(vote(&neighbours, &labels, 2, 3, 0.1), [1]);
        assert_eq!(vote(&neighbours, &labels, 2, 200, 0.01), [0]);
        assert_eq!(vote(&neighbours, &labels, 2, 3, 1e-6), [0]);
    }

    #[test]
    fn a_tied_vote_goes_to_the_lowest_class() {
        let neighbours = Neighbours { k: 2, index: vec![0, 1], similarity: vec![0.5, 0.5] };
        assert_eq!(vote(&neighbours, &[2, 1], 3, 2, 0.1), [1]);
    }

    #[test]
    fn accuracy_is_a_percentage() {
        assert_eq!(accuracy(&[1, 2, 3, 4], &[1, 2, 0, 4]), 75.0);
        assert_eq!(accuracy(&[], &[]), 0.0);
    }
}
