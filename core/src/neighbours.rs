//! Exact nearest neighbours by cosine, and the weighted vote among them (Wu et al. 2018).
//!
//! For unit rows the cosine is the dot product `s`. A query's class is the one with the largest sum of `exp(s / tau)` over its
//! k nearest bank rows; the paper has k = 200, tau = 0.1. One search serves every `k` up to its own and every `tau`.
//!
//! Upper bounds on the similarities are computed tile by tile (`dots.rs`) and compared at once with the k-th best so far; only those
//! that are large enough are computed in full, so that at most 2k candidates per query of a block are stored, however large the bank.
//! The bounds are products of shortened rows (`dots/short.rs`), where the bank lies near a subspace, as embeddings of a trained
//! network do, rounded to bf16 (`dots/half.rs`), where the CPU multiplies them. Every query begins with the bank rows that point its
//! way (`neighbours/groups.rs`). What is found is the same, to the bit; of equal similarities the lower index comes first.

mod divided;
mod groups;

use rayon::prelude::*;

use crate::dots::half::{self, HalfRows, PackedHalves};
use crate::dots::short::Basis;
use crate::dots::{Packed, Visit, WIDTH, products};
use crate::matrix::{Matrix, dot};
pub use divided::DividedBank;
use groups::Groups;
use std::borrow::Cow;
use std::ops::Range;

/// Queries of a work unit, at least and at most: more of them share the work on a group, fewer share out better among threads.
const BLOCK: usize = 240;
const LARGEST_BLOCK: usize = 960;
/// Work units, at least, of many queries.
const BLOCKS: usize = 64;

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
    search(queries, bank, k, exclude_self.then_some(0), tick)
}

/// As [`nearest`]; where the queries are rows of the bank, none of which finds itself, `own` is the bank row of the first.
fn search(queries: &Matrix, bank: &Matrix, k: usize, own: Option<usize>, tick: &(dyn Fn(usize) + Sync)) -> Neighbours {
    let k = k.min(bank.rows.saturating_sub(usize::from(own.is_some())));
    let mut neighbours = Neighbours { k, index: vec![0; queries.rows * k], similarity: vec![0.0; queries.rows * k] };
    if neighbours.index.is_empty() {
        tick(queries.rows);
        return neighbours;
    }
    assert_eq!(queries.dim, bank.dim, "queries and bank of different dimensions");
    let bounds = Bounds::new(queries, bank);
    let block = (queries.rows / BLOCKS).clamp(BLOCK, LARGEST_BLOCK);
    let blocks = neighbours.index.par_chunks_mut(block * k).zip(neighbours.similarity.par_chunks_mut(block * k));
    blocks.enumerate().for_each(|(b, (index, similarity))| {
        let (first, served) = (b * block, index.len() / k);
        let mut best = Best {
            k,
            queries: &queries.values[first * queries.dim..][..served * queries.dim],
            bank: &bounds.bank,
            places: &bounds.groups.places,
            own: own.map(|own| own + first),
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
    /// Where the bank's rows are.
    groups: Groups,
    /// The bank by place: read by row number it costs a quarter more.
    bank: Cow<'a, Matrix>,
    /// The queries, or the shortened ones.
    left: Cow<'a, Matrix>,
    right: BoundRows,
}

/// The bank's rows, or the shortened ones, by place.
enum BoundRows {
    /// In f32.
    Full(Packed),
    /// In bf16, and so the queries.
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
        let groups = Groups::new(&right, queries.rows);
        let right = groups.in_places(&right);
        let right = if many && half::supported() {
            let (dim, left, right) = (right.dim, HalfRows::new(&left), HalfRows::new(&right));
            let greatest = right.greatest();
            slack.iter_mut().zip(&left.lengths).for_each(|(slack, query)| *slack += query.error(greatest, dim));
            BoundRows::Half(left, PackedHalves::new(&right))
        } else {
            BoundRows::Full(Packed::new(&right.values, right.dim))
        };
        let bank = groups.in_places(bank);
        Bounds { slack, groups, bank, left, right }
    }

    /// Passes `best` the bounds of some queries with the whole bank, but for groups whose rows are all farther than what was found.
    fn visit(&self, queries: Range<usize>, best: &mut Best) {
        let dim = self.left.dim;
        let left = &self.left.values[queries.start * dim..queries.end * dim];
        let (nearest, reaches) = self.groups.reaches(left, dim);
        let served = 0..queries.len() as u32;
        let visit = |group: usize, rows: &[u32], best: &mut Best| {
            let panels = self.groups.panels[group].clone();
            match &self.right {
                BoundRows::Full(bank) => products(left, rows, bank, panels, best),
                BoundRows::Half(halves, bank) => {
                    let left = &halves.words[queries.start * halves.pairs..queries.end * halves.pairs];
                    half::products(left, rows, bank, panels, best);
                }
            }
        };
        let groups = 0..self.groups.panels.len();
        for group in groups.clone() {
            let own: Vec<u32> = served.clone().filter(|q| nearest[*q as usize] == group).collect();
            visit(group, &own, best);
        }
        best.cut_all();
        for group in groups.clone() {
            let too_far = |q: usize| reaches[q * groups.len() + group] < best.threshold[q];
            let rows = served.clone().filter(|q| nearest[*q as usize] != group && !too_far(*q as usize));
            let others: Vec<u32> = rows.collect();
            visit(group, &others, best);
        }
    }
}

/// The best candidates of every query of a block.
struct Best<'a> {
    k: usize,
    queries: &'a [f32],
    /// The bank by place, and the bank row of every place.
    bank: &'a Matrix,
    places: &'a [u32],
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
            let place = first + passed.trailing_zeros() as usize;
            passed &= passed - 1;
            // Strips may extend past the last row of a group, and of the bank.
            let index = *self.places.get(place).unwrap_or(&Groups::NONE);
            if index != Groups::NONE && index as usize != own {
                // Many queries in turn need the bank rows of a panel, which stay in the cache.
                keys.push(sort_key(similarity(query, self.bank.row(place)), index));
            }
        }
        if keys.len() >= 2 * self.k {
            self.cut(row);
        }
    }

    /// Keeps the k best of every query.
    fn cut_all(&mut self) {
        for row in 0..self.keys.len() {
            if self.keys[row].len() >= self.k {
                self.cut(row);
            }
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

/// Similarity and index (in its last 32 bits, as their complement) as one number that sorts by similarity, then by falling index.
pub fn sort_key(similarity: f32, index: u32) -> u64 {
    // Adding zero turns -0 into 0. Flipping the sign bit, or all bits of negative numbers, makes the bits sort like the numbers.
    let bits = (similarity + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | u64::from(!index)
}

/// The similarity and the index of a [`sort_key`].
pub(crate) fn from_sort_key(key: u64) -> (f32, u32) {
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
mod tests;
