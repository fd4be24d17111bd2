//! Complete linkage: groups of which every two rows are alike, so that no chain joins the unlike.

use std::cmp::Ordering;
use std::collections::HashMap;

/// Rows that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Linked {
    /// The rows, growing.
    pub rows: Vec<usize>,
    /// The likeness of the two that are least alike.
    pub likeness: f32,
}

/// Groups of two rows or more out of `rows`, the surest first. `pairs` are alike, with their likeness; `alike` is asked about pairs that are not
/// among them. Two groups are joined when all their rows are alike, beginning with the most alike.
pub fn complete(
    rows: usize,
    mut pairs: Vec<(usize, usize, f32)>,
    alike: &dyn Fn(usize, usize) -> Option<f32>,
) -> Vec<Linked> {
    pairs.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
    let mut known: HashMap<(usize, usize), Option<f32>> =
        pairs.iter().map(|(a, b, likeness)| ((*a.min(b), *a.max(b)), Some(*likeness))).collect();
    // The group of every row: an index into `groups`.
    let mut of: Vec<Option<usize>> = vec![None; rows];
    let mut groups: Vec<Linked> = Vec::new();
    for (a, b, likeness) in pairs {
        let members = |row: usize, groups: &[Linked]| of[row].map_or_else(|| vec![row], |g| groups[g].rows.clone());
        if of[a].is_some() && of[a] == of[b] {
            continue;
        }
        let (left, right) = (members(a, &groups), members(b, &groups));
        let mut least = likeness;
        let mut all = true;
        'pairs: for &x in &left {
            for &y in &right {
                let pair = (x.min(y), x.max(y));
                match *known.entry(pair).or_insert_with(|| alike(pair.0, pair.1)) {
                    Some(found) => least = least.min(found),
                    None => {
                        all = false;
                        break 'pairs;
                    }
                }
            }
        }
        if !all {
            continue;
        }
        let of_group = |row: usize, groups: &[Linked]| of[row].map_or(1.0, |g| groups[g].likeness);
        let least = least.min(of_group(a, &groups)).min(of_group(b, &groups));
        let mut joined = [left, right].concat();
        joined.sort_unstable();
        for group in [of[a], of[b]].into_iter().flatten() {
            groups[group].rows.clear();
        }
        joined.iter().for_each(|row| of[*row] = Some(groups.len()));
        groups.push(Linked { rows: joined, likeness: least });
    }
    groups.retain(|group| !group.rows.is_empty());
    surest_first(&mut groups);
    groups
}

/// Sorts groups by their likeness, the greatest first; ties by their first row.
pub fn surest_first(groups: &mut [Linked]) {
    groups.sort_by(|a, b| b.likeness.total_cmp(&a.likeness).then(a.rows[0].cmp(&b.rows[0])));
}

/// Sets of rows that are equal in the order `compare`; in each the rows grow, and so do the first rows.
pub fn equal(rows: &[usize], compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<Vec<usize>> {
    let mut order = rows.to_vec();
    order.sort_by(|a, b| compare(*a, *b).then(a.cmp(b)));
    let mut sets: Vec<Vec<usize>> = order.chunk_by(|a, b| compare(*a, *b).is_eq()).map(<[usize]>::to_vec).collect();
    sets.sort_by_key(|rows| rows[0]);
    sets
}

/// Groups of rows out of groups of sets of equal rows; a set of several rows is a group of its own where it is in none.
pub fn with_equal(mut groups: Vec<Linked>, sets: &[Vec<usize>]) -> Vec<Linked> {
    let mut alone = vec![true; sets.len()];
    for group in &mut groups {
        group.rows.iter().for_each(|set| alone[*set] = false);
        group.rows = group.rows.iter().flat_map(|set| sets[*set].iter().copied()).collect();
        group.rows.sort_unstable();
    }
    let same = (0..sets.len()).filter(|set| alone[*set] && sets[*set].len() > 1);
    groups.extend(same.map(|set| Linked { rows: sets[set].clone(), likeness: 1.0 }));
    surest_first(&mut groups);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO: &dyn Fn(usize, usize) -> Option<f32> = &|_, _| None;

    #[test]
    fn a_chain_is_not_joined_and_the_surest_pair_comes_first() {
        // 0 - 1 - 2 - 3, the middle pair the surest: the ends stay alone.
        let chain = vec![(0, 1, 0.8), (1, 2, 0.9), (2, 3, 0.8)];
        assert_eq!(complete(4, chain.clone(), NO), [Linked { rows: vec![1, 2], likeness: 0.9 }]);
        // Pairs that were not candidates are asked for.
        let all = complete(4, chain, &|_, _| Some(0.7));
        assert_eq!(all, [Linked { rows: vec![0, 1, 2, 3], likeness: 0.7 }]);
        let two = complete(5, vec![(3, 4, 0.8), (0, 2, 0.95)], NO);
        assert_eq!(two.iter().map(|g| g.rows.clone()).collect::<Vec<_>>(), [[0, 2], [3, 4]]);
        assert!(complete(3, Vec::new(), NO).is_empty());
    }

    #[test]
    fn every_two_rows_of_a_group_are_alike() {
        let like = |a: usize, b: usize| ((a * 31 + b * 17) % 10) as f32 / 10.0;
        let rows = 40;
        let pairs: Vec<(usize, usize, f32)> =
            (0..rows).flat_map(|b| (0..b).map(move |a| (a, b, like(a, b)))).filter(|pair| pair.2 >= 0.4).collect();
        let groups = complete(rows, pairs.clone(), NO);
        let mut seen = vec![0; rows];
        for group in &groups {
            group.rows.iter().for_each(|row| seen[*row] += 1);
            let within =
                group.rows.iter().flat_map(|b| group.rows.iter().filter(move |a| a < &b).map(move |a| like(*a, *b)));
            assert_eq!(within.fold(1.0, f32::min), group.likeness);
        }
        assert!(seen.iter().all(|n| *n <= 1) && groups.iter().all(|g| g.likeness >= 0.4 && g.rows.len() > 1));
    }
}
