//! Scores against scikit-learn and plain implementations, and degenerate cases.

use super::*;
use crate::matrix::Matrix;
use crate::purify::Status;
use proptest::prelude::*;

/// Numbers in `0..m` that look random and are the same in every language.
fn draws(n: u64, m: u64, a: u64, b: u64) -> Vec<u32> {
    (0..n).map(|i| ((i * i * a + i * b) % 1009 % m) as u32).collect()
}

/// Clusters, classes, three-dimensional samples, and a flat picture of them.
fn case(n: u64, k: u64, c: u64, a: u64, b: u64) -> (Vec<u32>, Vec<u32>, Matrix, Matrix) {
    let clusters = draws(n, k, a, b);
    let (mixed, random) = (draws(n, 3, a + 2, b + 5), draws(n, c, a + 4, b + 1));
    let class = |i: usize| if mixed[i] > 0 { clusters[i] % c as u32 } else { random[i] };
    let point = |i: u64| {
        let (u, i) = (f64::from(clusters[i as usize]), i as f64);
        [u * 0.5 + (1.3 * i).sin(), (1.7 * i).cos() - u * 0.25, (2.1 * i + 0.5).sin()].map(|x| x as f32)
    };
    let points: Vec<[f32; 3]> = (0..n).map(point).collect();
    let flat = points.iter().flat_map(|p| [p[0], p[1] * 0.1]).collect();
    let classes = (0..n as usize).map(class).collect();
    (clusters, classes, Matrix::new(3, points.concat()), Matrix::new(2, flat))
}

/// scikit-learn 1.9.1, u the clusters, t the classes, X and Y the samples and their picture in double precision:
/// m = contingency_matrix(t, u); purity m.max(0).sum() / n; accuracy m[linear_sum_assignment(-m)].sum() / n;
/// normalized_mutual_info_score(t, u); adjusted_rand_score(t, u); silhouette_score(X, u); trustworthiness(X, Y, n_neighbors=5).
#[test]
fn golden_values_of_scikit_learn() {
    for ((n, k, c, a, b), expected) in [
        (
            (200, 4, 3, 7, 11),
            [0.76, 0.55, 0.2794816604933469, 0.2783705412641885, -0.03187015402519351, 0.8556041666666667],
        ),
        (
            (300, 3, 7, 5, 13),
            [
                0.7366666666666667,
                0.7366666666666667,
                0.42368138442177966,
                0.510537855707812,
                -0.0055464403213274375,
                0.8550479452054794,
            ],
        ),
        (
            (60, 12, 4, 3, 17),
            [
                0.7333333333333333,
                0.3333333333333333,
                0.40996528214704514,
                0.15473913772856904,
                -0.17068832472010792,
                0.8903846153846153,
            ],
        ),
    ] {
        let (u, t, x, y) = case(n, k, c, a, b);
        let m = Contingency::new(&u, &t, k as usize, c as usize);
        let exact = [m.purity(), m.accuracy(), m.nmi(), m.ari()];
        for (found, expected) in exact.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        let found = silhouette(&x, &u).unwrap();
        assert!((found - expected[4]).abs() < 1e-6, "{found} {}", expected[4]);
        let found = trustworthiness(&x, &y, 5).unwrap();
        // Distances that are equal but for rounding may be ranked either way.
        assert!((found - expected[5]).abs() < 1e-5, "{found} {}", expected[5]);
    }
}

/// The best one-to-one matching by trying all.
fn by_permutations(m: &Contingency, cluster: usize, unused: &mut Vec<bool>) -> u64 {
    if cluster == m.clusters {
        return 0;
    }
    let mut best = by_permutations(m, cluster + 1, unused);
    for class in 0..m.classes {
        if unused[class] {
            unused[class] = false;
            best = best.max(m.row(cluster)[class] + by_permutations(m, cluster + 1, unused));
            unused[class] = true;
        }
    }
    best
}

/// The definition, distance by distance.
fn slow_silhouette(x: &Matrix, u: &[u32]) -> f64 {
    let distance = |i: usize, j: usize| {
        x.row(i).iter().zip(x.row(j)).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
    };
    let mean_to = |i: usize, c: u32| {
        let others: Vec<usize> = (0..u.len()).filter(|j| *j != i && u[*j] == c).collect();
        others.iter().map(|j| distance(i, *j)).sum::<f64>() / others.len() as f64
    };
    let one = |i: usize| {
        let (a, alone) = (mean_to(i, u[i]), u.iter().filter(|c| **c == u[i]).count() == 1);
        let b = u.iter().filter(|c| **c != u[i]).map(|c| mean_to(i, *c)).fold(f64::INFINITY, f64::min);
        if alone || a.max(b) == 0.0 { 0.0 } else { (b - a) / a.max(b) }
    };
    (0..u.len()).map(one).sum::<f64>() / u.len() as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn the_hungarian_method_finds_what_permutations_find(k in 1usize..7, c in 1usize..8, counts in prop::collection::vec(0u64..30, 49)) {
        let m = Contingency { clusters: k, classes: c, counts: counts[..k * c].to_vec() };
        let best = by_permutations(&m, 0, &mut vec![true; c]);
        prop_assert_eq!(m.accuracy(), share(best, m.samples()).unwrap_or(0.0));
    }

    #[test]
    fn scores_stay_in_range_and_ignore_the_numbering(n in 1usize..60, k in 1u32..6, c in 1u32..6, seed in 0u64..500) {
        let (u, t) = (draws(n as u64, k.into(), seed + 1, 3), draws(n as u64, c.into(), seed + 5, 7));
        let scores = |u: &[u32], t: &[u32]| {
            let m = Contingency::new(u, t, k as usize, c as usize);
            [m.purity(), m.accuracy(), m.nmi(), m.ari()]
        };
        let found = scores(&u, &t);
        prop_assert!(found[..3].iter().all(|s| (0.0..=1.0).contains(s)) && (-1.0..=1.0).contains(&found[3]), "{:?}", found);
        prop_assert!(found[1] <= found[0], "purity bounds accuracy");
        let renamed = |x: &[u32], m: u32| x.iter().map(|v| m - 1 - v).collect::<Vec<_>>();
        for (a, b) in found.iter().zip(scores(&renamed(&u, k), &renamed(&t, c))) {
            prop_assert!((a - b).abs() < 1e-12);
        }
        let same = scores(&u, &u.iter().map(|x| x % c).collect::<Vec<_>>());
        prop_assert!(c < k || same.iter().all(|s| (s - 1.0).abs() < 1e-12), "{:?}", same);
    }

    #[test]
    fn the_silhouette_matches_its_definition(n in 3usize..90, k in 2u32..5, dim in 1usize..6, seed in 0u64..99, offset in -9.0f32..9.0) {
        let u = draws(n as u64, k.into(), seed + 1, 3);
        let x = draws((n * dim) as u64, 50, seed + 2, 9).iter().map(|v| *v as f32 * 0.02 + offset).collect();
        let x = Matrix::new(dim, x);
        if let Some(found) = silhouette(&x, &u) {
            prop_assert!((-1.0..=1.0).contains(&found));
            prop_assert!((found - slow_silhouette(&x, &u)).abs() < 1e-4, "{} {}", found, slow_silhouette(&x, &u));
        }
    }
}

#[test]
fn empty() {
    let m = Contingency::new(&[], &[], 0, 0);
    assert_eq!([m.purity(), m.accuracy(), m.nmi(), m.ari()], [0.0, 0.0, 1.0, 1.0]);
    assert!(m.missed().is_empty());
    assert_eq!(silhouette(&Matrix::default(), &[]), None);
    assert_eq!(trustworthiness(&Matrix::default(), &Matrix::default(), 5), None);
    assert_eq!(FilterScore::new(&[], &[], &[], 0), FilterScore::default());
}

#[test]
fn one_sample() {
    let m = Contingency::new(&[0], &[0], 1, 1);
    assert_eq!([m.purity(), m.accuracy(), m.nmi(), m.ari()], [1.0; 4]);
    assert_eq!(silhouette(&Matrix::new(2, vec![1.0, 0.0]), &[0]), None);
}

#[test]
fn one_cluster() {
    let m = Contingency::new(&[0; 4], &[0, 1, 1, 2], 1, 3);
    assert_eq!([m.purity(), m.accuracy(), m.nmi(), m.ari()], [0.5, 0.5, 0.0, 0.0]);
    assert_eq!(m.missed(), [0, 2]);
    assert_eq!(silhouette(&Matrix::new(1, vec![1.0, 2.0, 3.0, 4.0]), &[0; 4]), None);
}

/// normalized_mutual_info_score([0, 1, 1, 2], [0, 1, 2, 3]) = 0.8571428571428571; adjusted_rand_score = 0.
#[test]
fn every_sample_its_own_cluster() {
    let m = Contingency::new(&[0, 1, 2, 3], &[0, 1, 1, 2], 4, 3);
    assert_eq!([m.purity(), m.accuracy(), m.ari()], [1.0, 0.75, 0.0]);
    assert!((m.nmi() - 0.8571428571428571).abs() < 1e-12);
    assert_eq!(silhouette(&Matrix::new(1, vec![1.0, 2.0, 3.0, 4.0]), &[0, 1, 2, 3]), None);
}

#[test]
fn empty_clusters_and_classes_that_never_occur_change_nothing() {
    let m = Contingency::new(&[0, 0, 3], &[1, 1, 2], 9, 4);
    assert_eq!([m.purity(), m.accuracy(), m.nmi(), m.ari()], [1.0; 4]);
    assert_eq!(m.majority(1), None);
    assert!(m.missed().is_empty(), "class 0 has no samples, so it is not missed");
}

#[test]
fn identical_samples_score_zero() {
    let same = Matrix::new(3, [0.6, 0.0, 0.8].repeat(10));
    assert_eq!(silhouette(&same, &draws(10, 3, 1, 1)), Some(0.0));
    assert_eq!(trustworthiness(&same, &Matrix::new(2, vec![0.0; 20]), 3), Some(1.0));
}

#[test]
fn trustworthiness_of_a_perfect_picture_and_of_too_many_neighbours() {
    let (_, _, x, _) = case(50, 3, 3, 1, 1);
    assert_eq!(trustworthiness(&x, &x, 5), Some(1.0));
    assert_eq!(trustworthiness(&x, &x, 25), None);
    assert_eq!(trustworthiness(&x, &x, 0), None);
}

/// Cluster 0: classes 1 1 1 0 2, of which the 0 is filtered, the 2 kept, one 1 lost, one 1 pulled back. Cluster 1: classes
/// 0 0 dropped and an instance. Cluster 2: alone.
#[test]
fn the_filter_is_counted_by_hand() {
    use Status::{Dropped, Filtered, Instance, Kept, PulledBack};
    let status = [Kept, Filtered, PulledBack, Filtered, Kept, Dropped, Instance, Instance];
    let score = FilterScore::new(&[0, 0, 0, 0, 0, 1, 1, 2], &status, &[1, 1, 1, 0, 2, 0, 0, 3], 4);
    let expected = FilterScore {
        clusters: 2,
        members: 7,
        alone: 1,
        instances: 1,
        purity_before: Some(5.0 / 7.0),
        purity_after: Some(2.0 / 3.0),
        left: 3,
        inconsistent: 2,
        removed: 3,
        removed_rightly: 1,
        lost: 2,
        pulled_back: 1,
        pulled_back_rightly: 1,
        precision: Some(1.0 / 3.0),
        recall: Some(0.5),
    };
    assert_eq!(score, expected);
}

#[test]
fn instances_alone_have_no_score() {
    let score = FilterScore::new(&[0, 1, 2], &[Status::Instance; 3], &[0, 0, 1], 2);
    assert_eq!(score, FilterScore { alone: 3, ..FilterScore::default() });
}
