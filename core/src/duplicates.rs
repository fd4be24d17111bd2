//! Near duplicates: groups of rows of which every two have a cosine of at least a threshold.
//!
//! All pairs are compared, tile by tile (`dots.rs`), which gives the rows that chains of pairs connect. Pairs within a chain that is already
//! known are not stored, so that memory stays at a few pairs per row however many copies there are. Chains are then taken apart by complete linkage
//! (`copies/link.rs`): neighbours in a chain are alike, its ends need not be.

use crate::copies::link;
use crate::dots::{Packed, Visit, WIDTH, products};
use crate::error::Result;
use crate::matrix::{Matrix, dot};
use crate::neighbours::nearest;
use rayon::prelude::*;
use std::collections::HashMap;

/// Rows of a work unit, and units between two updates of the known groups.
const BLOCK: usize = 256;
const UNITS: usize = 32;
/// Pairs of a work unit that are stored before redundant ones are removed.
const MOST: usize = 1 << 16;
/// Rows of a chain of which all pairs are stored; of longer ones, pairs with this many nearest rows.
const ALL_PAIRS: usize = 2000;
const NEAREST: usize = 16;

/// Rows that are nearly the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Rows in growing order, each with its cosine to the first.
    pub members: Vec<(usize, f32)>,
    /// The least cosine of two of them.
    pub least: f32,
}

/// Groups of unit rows of which every two have a cosine of `threshold` or more: the surest first, then by their first row.
/// `tick` gets the number of rows done; its error ends the search.
pub fn groups(features: &Matrix, threshold: f32, tick: &mut dyn FnMut(usize) -> Result<()>) -> Result<Vec<Group>> {
    let mut linked = Vec::new();
    for rows in chains(features, threshold, tick)? {
        linked.extend(taken_apart(features, &rows, threshold));
        tick(features.rows)?;
    }
    link::surest_first(&mut linked);
    let with_cosines = |group: link::Linked| {
        let first = features.row(group.rows[0]);
        let members = group.rows.iter().map(|&row| (row, dot(first, features.row(row)).min(1.0))).collect();
        Group { members, least: group.likeness.min(1.0) }
    };
    Ok(linked.into_iter().map(with_cosines).collect())
}

/// Complete linkage of the rows of a chain.
fn taken_apart(features: &Matrix, rows: &[usize], threshold: f32) -> Vec<link::Linked> {
    let bits = |row: usize| features.row(row).iter().map(|x| x.to_bits());
    let equal = link::equal(rows, &|a, b| bits(a).cmp(bits(b)));
    let firsts: Vec<usize> = equal.iter().map(|rows| rows[0]).collect();
    let cosine = |a: usize, b: usize| dot(features.row(firsts[a]), features.row(firsts[b]));
    let alike = |a: usize, b: usize| Some(cosine(a, b)).filter(|cosine| *cosine >= threshold);
    let pairs: Vec<(usize, usize, f32)> = if firsts.len() <= ALL_PAIRS {
        let of = |a: usize| (a + 1..firsts.len()).filter_map(|b| Some((a, b, alike(a, b)?))).collect::<Vec<_>>();
        (0..firsts.len()).into_par_iter().map(of).collect::<Vec<_>>().concat()
    } else {
        let few = features.select_rows(&firsts);
        let near = nearest(&few, &few, NEAREST + 1, false, &|_| ());
        let of = |a: usize| near.index[a * near.k..(a + 1) * near.k].iter().map(move |b| (a, *b as usize));
        let pairs = (0..firsts.len())
            .flat_map(of)
            .filter(|(a, b)| a < b || !near.index[b * near.k..(b + 1) * near.k].contains(&(*a as u32)));
        pairs.filter(|(a, b)| a != b).filter_map(|(a, b)| Some((a, b, alike(a, b)?))).collect()
    };
    link::with_equal(link::complete(firsts.len(), pairs, &alike), &equal)
}

/// The rows that pairs with a cosine of `threshold` or more connect, two or more each.
fn chains(features: &Matrix, threshold: f32, tick: &mut dyn FnMut(usize) -> Result<()>) -> Result<Vec<Vec<usize>>> {
    let n = features.rows;
    let mut root: Vec<u32> = (0..n as u32).collect();
    if n == 0 {
        return Ok(Vec::new());
    }
    let packed = Packed::new(&features.values, features.dim);
    let panels = n.div_ceil(WIDTH);
    for first in (0..n).step_by(BLOCK * UNITS) {
        tick(first)?;
        let last = (first + BLOCK * UNITS).min(n);
        let starts: Vec<usize> = (first..last).step_by(BLOCK).collect();
        let found: Vec<Vec<(u32, u32)>> = starts
            .par_iter()
            .map(|&start| {
                let rows = BLOCK.min(n - start);
                let left = &features.values[start * features.dim..(start + rows) * features.dim];
                let all: Vec<u32> = (0..rows as u32).collect();
                let mut pairs = Pairs { start, rows: n, threshold, root: &root, found: Vec::new(), most: MOST };
                // Pairs with rows before this unit were found when those rows were compared.
                products(left, &all, &packed, start / WIDTH..panels, &mut pairs);
                forest(pairs.found)
            })
            .collect();
        found.into_iter().flatten().for_each(|(a, b)| join(&mut root, a, b));
        // Every row points at the first row of its group before the next units start.
        for i in 0..n as u32 {
            root[i as usize] = find(&root, i);
        }
    }
    tick(n)?;
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); n];
    root.iter().enumerate().for_each(|(row, first)| members[*first as usize].push(row));
    members.retain(|rows| rows.len() > 1);
    Ok(members)
}

/// Collects the pairs that reach the threshold.
struct Pairs<'a> {
    start: usize,
    rows: usize,
    threshold: f32,
    root: &'a [u32],
    found: Vec<(u32, u32)>,
    /// Number of pairs at which redundant ones are removed.
    most: usize,
}

impl Visit for Pairs<'_> {
    #[inline(always)]
    fn visit(&mut self, row: usize, first: usize, products: &[f32; WIDTH]) {
        let mut passed = false;
        for p in products {
            passed |= *p >= self.threshold;
        }
        if passed {
            self.note(row, first, products);
        }
    }
}

impl Pairs<'_> {
    #[cold]
    fn note(&mut self, row: usize, first: usize, products: &[f32; WIDTH]) {
        let a = self.start + row;
        for (l, p) in products.iter().enumerate() {
            let b = first + l;
            if *p >= self.threshold && a < b && b < self.rows && self.root[a] != self.root[b] {
                self.found.push((a as u32, b as u32));
            }
        }
        if self.found.len() >= self.most {
            self.found = forest(std::mem::take(&mut self.found));
            self.most = MOST.max(2 * self.found.len());
        }
    }
}

/// The pairs that connect rows which earlier pairs did not connect (a spanning forest): at most one per row.
fn forest(pairs: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let mut above: HashMap<u32, u32> = HashMap::new();
    let top = |above: &mut HashMap<u32, u32>, row: u32| {
        let mut last = row;
        while let Some(next) = above.get(&last) {
            last = *next;
        }
        // Path compression.
        if last != row {
            above.insert(row, last);
        }
        last
    };
    let mut joins = |&(a, b): &(u32, u32)| {
        let (a, b) = (top(&mut above, a), top(&mut above, b));
        if a != b {
            above.insert(a.max(b), a.min(b));
        }
        a != b
    };
    let mut pairs = pairs;
    pairs.retain(|pair| joins(pair));
    pairs
}

/// The first row of the group of `i`.
fn find(root: &[u32], mut i: u32) -> u32 {
    while root[i as usize] != i {
        i = root[i as usize];
    }
    i
}

/// Joins the groups of `a` and `b`; the first row represents the group.
fn join(root: &mut [u32], a: u32, b: u32) {
    let (a, b) = (find(root, a), find(root, b));
    root[a.max(b) as usize] = a.min(b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::blobs;
    use proptest::prelude::*;

    fn found(features: &Matrix, threshold: f32) -> Vec<Vec<usize>> {
        let groups = groups(features, threshold, &mut |_| Ok(())).unwrap();
        groups.into_iter().map(|g| g.members.into_iter().map(|m| m.0).collect()).collect()
    }

    /// The definition: complete linkage of all pairs.
    fn twin(features: &Matrix, threshold: f32) -> Vec<Vec<usize>> {
        let n = features.rows;
        let mut pairs = Vec::new();
        for b in 0..n {
            pairs.extend(
                (0..b).map(|a| (a, b, dot(features.row(a), features.row(b)))).filter(|pair| pair.2 >= threshold),
            );
        }
        link::complete(n, pairs, &|_, _| None).into_iter().map(|group| group.rows).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn groups_are_those_of_the_slow_twin(groups in 1usize..30, each in 1usize..20, spread in 0.01f32..0.6, seed in 0u64..99) {
            let features = blobs(groups, each, 6, spread, seed).normalised();
            // A threshold to which no pair is equal but for rounding.
            let mut cosines: Vec<f32> = (0..features.rows)
                .flat_map(|i| (0..i).map(move |j| (i, j)))
                .map(|(i, j)| dot(features.row(i), features.row(j)))
                .collect();
            cosines.sort_unstable_by(f32::total_cmp);
            let gap = cosines.windows(2).rfind(|w| w[1] - w[0] > 1e-4);
            let threshold = gap.map_or(0.9, |w| (w[0] + w[1]) / 2.0);
            prop_assert_eq!(found(&features, threshold), twin(&features, threshold));
        }
    }

    #[test]
    fn many_copies_of_one_and_chains() {
        let n = BLOCK * UNITS + 500;
        let same = Matrix::new(2, [0.6, 0.8].repeat(n));
        let groups = found(&same, 0.99);
        assert_eq!((groups.len(), groups[0].len()), (1, n));
        // Neighbours on a circle, 1 degree apart: each pair passes, the ends of the chain do not.
        let point = |i: usize| [(i as f32).to_radians().cos(), (i as f32).to_radians().sin()];
        let chain = Matrix::new(2, (0..90).flat_map(point).collect());
        let pairs = super::groups(&chain, 0.9998, &mut |_| Ok(())).unwrap();
        assert!(pairs.len() >= 30 && pairs.iter().all(|g| g.members.len() == 2 && g.least >= 0.9998), "{pairs:?}");
        assert_eq!(found(&chain, 0.99999), Vec::<Vec<usize>>::new());
    }

    /// A chain of more rows than are compared one with another.
    #[test]
    fn every_two_rows_of_a_group_of_a_long_chain_are_alike() {
        let point = |i: usize| [(i as f32 / 500.0).cos(), (i as f32 / 500.0).sin()];
        let chain = Matrix::new(2, (0..ALL_PAIRS + 500).flat_map(point).collect());
        let groups = groups(&chain, 0.9999, &mut |_| Ok(())).unwrap();
        assert!(groups.len() > 100);
        for group in groups {
            let rows = || group.members.iter().map(|m| chain.row(m.0));
            assert!(rows().all(|a| rows().all(|b| dot(a, b) >= 0.9999)));
        }
    }

    #[test]
    fn nothing_one_row_and_a_stop() {
        assert!(found(&Matrix::default(), 0.9).is_empty());
        assert!(found(&Matrix::new(2, vec![1.0, 0.0]), 0.9).is_empty());
        let e = groups(&Matrix::new(1, vec![1.0; 9]), 0.5, &mut |_| Err(crate::error::Error::stopped()));
        assert_eq!(e.unwrap_err().exit_code(), 130);
    }
}
