//! The search among cells against plain loops and against the exact search; degenerate cases.

use proptest::prelude::*;

use super::super::{Clusters, KMeans, Search, kmeans, kmeans_with, repair};
use super::*;
use crate::error::Error;
use crate::rng::{Key, Purpose};

const KEY: Key = Key { purpose: Purpose::Synthetic, seed: 3, round: 0, epoch: 0 };

/// `rows` vectors around `rows / 20` places.
fn places(rows: usize, dim: usize, seed: u64) -> Matrix {
    let mut rng = Key { seed, ..KEY }.stream(0, 0);
    let many = (rows / 20).max(1);
    let centres: Vec<f32> = (0..many * dim).map(|_| rng.normal()).collect();
    let mut values = Vec::with_capacity(rows * dim);
    for _ in 0..rows {
        let at = rng.below(many as u64) as usize * dim;
        values.extend(centres[at..at + dim].iter().map(|x| x + 0.4 * rng.normal()));
    }
    Matrix::new(dim, values)
}

fn by(search: Search, features: &Matrix, k: usize, iterations: usize) -> Clusters {
    kmeans(features, &KMeans { iterations, search, seed: 9, ..KMeans::new(k) }).unwrap()
}

fn squared(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum()
}

/// Plain loops over the same cells: through updates and repairs, every row has the nearest centroid of its
/// cells, whatever the bounds ruled out.
#[test]
fn every_row_has_the_nearest_centroid_of_its_cells() {
    let features = places(5000, 12, 1);
    let mut centroids = features.select_rows(&(0..2500).collect::<Vec<_>>());
    // Copies, so that clusters become empty.
    centroids.values.copy_within(0..50 * 12, 300 * 12);
    let mut assigner = CellAssigner::new(&features);
    let mut repairs = 0;
    for iteration in 0..8 {
        let before = assigner.last.as_ref().map(|(_, assignment)| assignment.clone());
        let assignment = assigner.assign(&centroids).to_vec();
        let Cells { of, order, near, .. } = &assigner.cells;
        assert!(near.iter().filter(|cell| **cell != FILLER).max().unwrap() > &(NEAR as u32), "not all cells are near");
        for (near, &row) in near.chunks(NEAR).zip(order) {
            let (x, row) = (features.row(row as usize), row as usize);
            let searched = (0..2500).filter(|j| near.contains(&of[*j]));
            let best = searched.map(|j| squared(x, centroids.row(j))).fold(f64::INFINITY, f64::min);
            let own = squared(x, centroids.row(assignment[row] as usize));
            assert!(own <= best + 1e-4, "iteration {iteration}, row {row}: {own} {best}");
            if let Some(before) = &before {
                assert!(own <= squared(x, centroids.row(before[row] as usize)) + 1e-4, "farther than before");
            }
        }
        let mut sizes = update(&features, &assignment, &mut centroids);
        let repaired = repair(&mut centroids, &mut sizes, KEY, iteration);
        assigner.repaired(&repaired);
        repairs += repaired.len();
    }
    assert!(repairs > 0);
}

/// Where all cells are near, the search is exact: the same bits.
#[test]
fn few_cells_are_the_exact_search() {
    for (rows, k, seed) in [(2000, 1000usize, 0), (3000, 300, 1), (700, 700, 2), (50, 3, 3), (1, 1, 4)] {
        let features = places(rows, 9, seed);
        assert!(k.div_ceil(SIZE) <= NEAR);
        assert_eq!(by(Search::Cells, &features, k, 6), by(Search::Exact, &features, k, 6), "{rows} {k}");
    }
}

/// Plain loops: the regions nearest to a row, then the centres in them.
#[test]
fn centres_are_the_nearest_of_the_nearest_regions() {
    for (count, looked, most) in [(900, 5, 32), (900, 3, 1), (900, 1, 200), (70, 16, 8), (3, 16, 5), (1, 4, 1)] {
        let (rows, centres) = (places(700, 9, 21), places(count, 9, 22));
        let search = Regions::new(&centres);
        let (of, _, regions) = divide(&centres, region_size(count), |rows, centres| assign(rows, centres).0);
        let found = search.nearest(&rows, most, looked);
        for (i, found) in found.chunks(most).enumerate() {
            let x = rows.row(i);
            let mut near: Vec<usize> = (0..regions.rows).collect();
            near.sort_by(|a, b| squared(x, regions.row(*a)).total_cmp(&squared(x, regions.row(*b))));
            near.truncate(looked);
            let mut slow: Vec<usize> = (0..count).filter(|c| near.contains(&(of[*c] as usize))).collect();
            slow.sort_by(|a, b| squared(x, centres.row(*a)).total_cmp(&squared(x, centres.row(*b))));
            slow.truncate(most);
            assert_eq!(found.iter().filter(|c| **c != FILLER).count(), slow.len());
            for (found, slow) in found.iter().zip(slow) {
                let (found, slow) = (squared(x, centres.row(*found as usize)), squared(x, centres.row(slow)));
                assert!((found - slow).abs() < 1e-4, "{count} centres, row {i}: {found} {slow}");
            }
        }
    }
}

/// Close to the exact search where most cells are not looked at.
#[test]
fn many_cells_are_nearly_the_exact_search() {
    let features = places(12_000, 16, 5);
    let (k, iterations) = (6000, 6);
    assert!(k / SIZE > 2 * NEAR);
    let same = |a: &Clusters, b: &Clusters| {
        a.assignment.iter().zip(&b.assignment).filter(|(a, b)| a == b).count() as f64 / 12_000.0
    };
    let first = (by(Search::Cells, &features, k, 0), by(Search::Exact, &features, k, 0));
    assert!(same(&first.0, &first.1) > 0.95, "{}", same(&first.0, &first.1));
    let last = (by(Search::Cells, &features, k, iterations), by(Search::Exact, &features, k, iterations));
    let ratio = last.0.objective / last.1.objective;
    assert!((0.99..1.01).contains(&ratio), "{ratio}");
}

#[test]
fn threads_do_not_change_a_bit() {
    let features = places(6000, 10, 6);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| by(Search::Cells, &features, 3000, 5))
    };
    let one = with(1);
    assert_eq!(one, with(2));
    assert_eq!(one, with(3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Without repairs, the sum of squared distances never grows.
    #[test]
    fn the_objective_never_grows_without_repair(seed in 0u64..1000, k in 2100usize..2600) {
        let features = places(5200, 6, seed);
        let mut centroids = features.select_rows(&(0..k).collect::<Vec<_>>());
        let mut assigner = CellAssigner::new(&features);
        let mut last = f64::INFINITY;
        for _ in 0..6 {
            let assignment = assigner.assign(&centroids).to_vec();
            prop_assert!(assignment.iter().all(|j| (*j as usize) < k));
            let sum: f64 = (0..5200).map(|i| squared(features.row(i), centroids.row(assignment[i] as usize))).sum();
            prop_assert!(sum <= last * (1.0 + 1e-6), "{} {}", sum, last);
            last = sum;
            update(&features, &assignment, &mut centroids);
        }
    }
}

/// Equal rows have equal centroids, which would all be in one cell: it is divided.
#[test]
fn equal_rows_do_not_make_one_large_cell() {
    let features = Matrix::new(3, [0.5f32, -1.0, 2.0].repeat(9000));
    let (of, sizes, centres) = divide(&features, SIZE, |rows, centres| Regions::new(centres).nearest(rows, 1, 4));
    let mut counted = vec![0; centres.rows];
    of.iter().for_each(|&cell| counted[cell as usize] += 1);
    assert_eq!(counted, sizes);
    assert!(sizes.iter().all(|size| (1..=(MOST * SIZE) as u32).contains(size)), "{sizes:?}");
    let clusters = by(Search::Cells, &features, 4500, 4);
    assert!(clusters.objective < 0.1 && clusters.centroids.values.iter().all(|x| x.is_finite()));
}

#[test]
fn zero_rows_and_as_many_clusters_as_rows() {
    assert_eq!(by(Search::Cells, &Matrix::new(2, vec![0.0; 10_000]), 2500, 3).objective, 0.0);
    let features = places(4000, 8, 7);
    let mut seen = by(Search::Cells, &features, 4000, 2).assignment;
    seen.sort_unstable();
    assert_eq!(seen, (0..4000).collect::<Vec<_>>());
}

#[test]
fn repaired_clusters_enter_the_cell_of_their_donor_while_it_has_room() {
    let features = places(5000, 8, 8);
    let centroids = features.select_rows(&(0..2500).collect::<Vec<_>>());
    let mut assigner = CellAssigner::new(&features);
    assigner.assign(&centroids);
    let of = assigner.cells.of.clone();
    let donor = of.iter().position(|cell| *cell != of[0]).unwrap();
    assigner.repaired(&[(0, donor)]);
    assert_eq!((assigner.cells.of[0], assigner.entered.as_slice()), (of[donor], &[0u32][..]));
    let others: Vec<(usize, usize)> = (1..2500).map(|j| (j, donor)).collect();
    assigner.repaired(&others);
    assert_eq!(assigner.cells.sizes[of[donor] as usize] as usize, MOST * SIZE);
    assert_eq!(assigner.cells.sizes.iter().sum::<u32>(), 2500);
}

#[test]
fn auto_is_exact_up_to_fifty_thousand_rows() {
    assert!(!Search::Auto.by_cells(50_000, 50_000));
    assert!(Search::Auto.by_cells(100_000, 50_000));
    assert!(!Search::Auto.by_cells(1_000_000, 2000));
    assert!(Search::Cells.by_cells(2, 1) && !Search::Exact.by_cells(1 << 30, 1 << 30));
    assert_eq!(Search::Exact.compared(100_000, 50_000), 50_000);
    assert_eq!(Search::Cells.compared(100_000, 100), 100);
    assert!(Search::Auto.compared(100_000, 50_000) < 5000);
}

#[test]
fn an_error_of_the_callback_ends_the_clustering() {
    let features = places(300, 4, 0);
    let settings = KMeans { iterations: 9, search: Search::Cells, ..KMeans::new(30) };
    let mut calls = 0;
    let mut stop = |i: usize| {
        calls += 1;
        if i == 3 { Err(Error::stopped()) } else { Ok(()) }
    };
    assert!(kmeans_with(&features, &settings, &mut stop).is_err());
    assert_eq!(calls, 4);
}
