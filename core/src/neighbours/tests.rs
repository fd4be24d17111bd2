//! Nearest neighbours against a slow twin, and that no filter changes what is found.

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

/// Many queries search the bank group by group, a few row by row; some groups are passed over, and equal rows lie in one.
#[test]
fn groups_change_nothing() {
    let (dim, kinds) = (24, unit_rows(9, 24, 1));
    let around = |rows: usize, seed: u64| {
        let off = unit_rows(rows, dim, seed);
        let value = |x: usize| kinds.row(x / dim % 9)[x % dim] + 0.4 * off.values[x];
        Matrix::new(dim, (0..rows * dim).map(value).collect()).normalised()
    };
    let mut bank = around(5000, 2);
    let first = bank.row(0).to_vec();
    (0..5000).step_by(77).for_each(|i| bank.values[i * dim..(i + 1) * dim].copy_from_slice(&first));
    let groups = Groups::new(&bank, 600);
    assert!(groups.panels.len() > 1);
    let (_, reaches) = groups.reaches(&kinds.values, dim);
    assert!(reaches.iter().any(|reach| *reach < 0.5), "no group is far from any kind");
    let near = |queries: &Matrix, bank: &Matrix, k: usize, alone: bool| {
        let found = nearest(queries, bank, k, alone, &|_| ());
        assert!(found.similarity.chunks(found.k).all(|s| s.is_sorted_by(|a, b| a >= b)));
        found
    };
    for k in [1, 10, 700] {
        let queries = around(600, 3);
        let found = near(&queries, &bank, k, false);
        for (b, block) in queries.values.chunks(100 * dim).enumerate() {
            let few = near(&Matrix::new(dim, block.to_vec()), &bank, k, false);
            assert_eq!(few.index, found.index[b * 100 * k..(b + 1) * 100 * k], "k = {k}, block {b}");
        }
        // Without itself: the others that one query of its own finds.
        let alone = near(&bank, &bank, k, true);
        for i in [0, 1, 77, 4999] {
            let with = near(&Matrix::new(dim, bank.row(i).to_vec()), &bank, k + 1, false);
            let others: Vec<u32> = with.index.into_iter().filter(|j| *j as usize != i).take(k).collect();
            assert_eq!(others, alone.index[i * k..(i + 1) * k], "k = {k}, row {i}");
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

/// Rows of every process, also none.
fn counts(n: usize, count: usize) -> Vec<usize> {
    let mut ends: Vec<usize> = (0..count).map(|p| n * p * p / (count * count)).collect();
    ends.push(n);
    ends.windows(2).map(|two| two[1] - two[0]).collect()
}

/// The rows of process `rank`.
fn of_process(all: &Matrix, counts: &[usize], rank: usize) -> Matrix {
    let first: usize = counts[..rank].iter().sum();
    all.select_rows(&(first..first + counts[rank]).collect::<Vec<_>>())
}

#[test]
fn a_divided_bank_has_the_same_neighbours_to_the_bit() {
    // Rows that occur several times, on several processes.
    let blobs = crate::testing::blobs(5, 65, 16, 0.4, 2).normalised();
    let bank = Matrix::new(16, [blobs.values.clone(), blobs.values].concat());
    let queries = crate::testing::blobs(5, 61, 16, 0.5, 3).normalised();
    let cases = [(650, vec![1, 2, 3]), (2, vec![3]), (1, vec![2])];
    for (n, count) in cases.into_iter().flat_map(|(n, counts)| counts.into_iter().map(move |count| (n, count))) {
        let bank = bank.select_rows(&(0..n).collect::<Vec<_>>());
        let (rows, asked) = (counts(n, count), counts(queries.rows, count));
        let labels: Vec<u32> = (0..n as u32).map(|i| i * 7 % 5).collect();
        for k in [0, 1, 20, 1000] {
            let found = crate::peers::parts::together(count, |peers| {
                let held = of_process(&bank, &rows, peers.rank());
                let own = of_process(&queries, &asked, peers.rank());
                let divided = DividedBank { peers: &*peers, held: &held, counts: &rows };
                let first: usize = rows[..1].iter().sum();
                let some = bank.select_rows(&(first..n).collect::<Vec<_>>());
                let near = (divided.nearest(&queries, k, None), divided.nearest(&some, k, Some(first)));
                let voted = [50, 1000].map(|most| {
                    let of = |queries| divided.votes_in_blocks(queries, &labels, 5, k, 0.1, most);
                    (of(Some((&own, asked.as_slice()))), of(None))
                });
                assert_eq!(voted[0], voted[1]);
                assert_eq!(voted[0].1, divided.votes(None, &labels, 5, k, 0.1));
                (near, voted[0].clone())
            });
            let alone = (nearest(&queries, &bank, k, false, &|_| ()), nearest(&bank, &bank, k, true, &|_| ()));
            let voted = [&alone.0, &alone.1].map(|near| vote(near, &labels, 5, k, 0.1));
            let after = rows[0] * alone.1.k;
            for ((near, others), (of_queries, of_rows)) in found {
                assert_eq!(
                    (near, of_queries),
                    (alone.0.clone(), voted[0].clone()),
                    "{n} rows, {count} processes, k = {k}"
                );
                assert_eq!((&others.index[..], of_rows), (&alone.1.index[after..], voted[1].clone()));
                assert_eq!(others.similarity, alone.1.similarity[after..]);
            }
        }
    }
}
