//! k-means against a plain implementation, properties, and degenerate cases.

use proptest::prelude::*;

use super::*;

const KEY: Key = Key { purpose: Purpose::Synthetic, seed: 11, round: 0, epoch: 0 };

/// `rows` unit vectors, drawn around a few directions.
fn blobs(rows: usize, dim: usize, seed: u64) -> Matrix {
    let mut rng = Key { seed, ..KEY }.stream(0, 0);
    let centres: Vec<f32> = (0..5 * dim).map(|_| rng.normal()).collect();
    let mut values = Vec::new();
    for _ in 0..rows {
        let c = rng.below(5) as usize * dim;
        values.extend(centres[c..c + dim].iter().map(|x| x + 0.5 * rng.normal()).collect::<Vec<_>>());
    }
    Matrix::new(dim, values).normalised()
}

fn ids(features: &Matrix) -> Vec<u64> {
    (0..features.rows as u64).map(|i| i * 3 + 1).collect()
}

fn run(features: &Matrix, k: usize, iterations: usize) -> Clusters {
    kmeans(features, &KMeans { iterations, ids: Some(&ids(features)), seed: 5, draw: (1, 2), ..KMeans::new(k) })
        .unwrap()
}

fn squared(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum()
}

/// The nearest centroid in double precision, ties to the lowest.
fn slow_assign(features: &Matrix, centroids: &Matrix) -> Vec<u32> {
    let nearest = |i: usize| {
        let mut best = (f64::INFINITY, 0);
        for j in 0..centroids.rows {
            let d = squared(features.row(i), centroids.row(j));
            if d < best.0 {
                best = (d, j as u32);
            }
        }
        best.1
    };
    (0..features.rows).map(nearest).collect()
}

/// Lloyd's algorithm with repair, in plain loops and double precision.
fn twin(features: &Matrix, k: usize, iterations: usize) -> (Vec<u32>, Matrix) {
    let dim = features.dim;
    let order = Key { purpose: Purpose::Centroids, seed: 5, round: 1, epoch: 2 }.shuffled(&ids(features));
    let mut centroids: Vec<Vec<f64>> =
        order[..k].iter().map(|&i| features.row(i).iter().map(|x| f64::from(*x)).collect()).collect();
    let rounded = |c: &[Vec<f64>]| Matrix::new(dim, c.iter().flatten().map(|x| *x as f32).collect());
    for iteration in 0..iterations {
        let assignment = slow_assign(features, &rounded(&centroids));
        let mut sizes = vec![0usize; k];
        for j in 0..k {
            let members: Vec<usize> = (0..features.rows).filter(|&i| assignment[i] == j as u32).collect();
            sizes[j] = members.len();
            for d in 0..dim {
                if !members.is_empty() {
                    let sum: f64 = members.iter().map(|&i| f64::from(features.row(i)[d])).sum();
                    centroids[j][d] = sum / members.len() as f64;
                }
            }
        }
        let mut rng = Key { purpose: Purpose::Repair, seed: 5, round: 1, epoch: 2 }.stream(iteration as u64, 0);
        for j in (0..k).filter(|&j| sizes[j] == 0).collect::<Vec<_>>() {
            let tickets: Vec<usize> = (0..k).flat_map(|d| vec![d; sizes[d].max(1) - 1]).collect();
            let donor = tickets[rng.below(tickets.len() as u64) as usize];
            for d in 0..dim {
                let (value, nudge) = (centroids[donor][d], if d % 2 == 0 { 1.0 / 1024.0 } else { -1.0 / 1024.0 });
                centroids[j][d] = value * (1.0 + nudge);
                centroids[donor][d] = value * (1.0 - nudge);
            }
            sizes[j] = sizes[donor] / 2;
            sizes[donor] -= sizes[j];
        }
    }
    let centroids = rounded(&centroids);
    (slow_assign(features, &centroids), centroids)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_row_goes_to_its_nearest_centroid(rows in 1usize..400, dim in 1usize..70, seed in 0u64..50) {
        let features = blobs(rows, dim, seed);
        let Clusters { assignment, centroids, distances, objective } = run(&features, rows.div_ceil(7), 4);
        let mut sum = 0.0;
        for i in 0..rows {
            let own = squared(features.row(i), centroids.row(assignment[i] as usize));
            let best = (0..centroids.rows).map(|j| squared(features.row(i), centroids.row(j))).fold(f64::INFINITY, f64::min);
            prop_assert!(own <= best + 1e-5, "{own} {best}");
            prop_assert!((f64::from(distances[i]) - own.sqrt()).abs() < 1e-6);
            sum += own;
        }
        prop_assert!((objective - sum).abs() < 1e-5 * sum + 1e-9);
        prop_assert!(centroids.values.iter().all(|x| x.is_finite()));
    }

    #[test]
    fn the_objective_never_grows_without_repair(rows in 30usize..300, k in 1usize..6, seed in 0u64..50) {
        let features = blobs(rows, 12, seed);
        let mut last = f64::INFINITY;
        for iterations in 0..6 {
            let clusters = run(&features, k, iterations);
            if (0..k as u32).any(|j| !clusters.assignment.contains(&j)) {
                break;
            }
            prop_assert!(clusters.objective <= last * (1.0 + 1e-6), "{} {last}", clusters.objective);
            last = clusters.objective;
        }
    }
}

/// With fixed data in which no row is almost equally far from two centroids: there single precision could choose either.
#[test]
fn matches_the_slow_twin() {
    for (rows, dim, k) in [(300, 16, 30), (299, 7, 1), (200, 33, 199), (250, 5, 64), (65, 130, 33), (2, 9, 2)] {
        for seed in 0..5 {
            let features = blobs(rows, dim, seed);
            let (assignment, centroids) = twin(&features, k, 4);
            let fast = run(&features, k, 4);
            assert_eq!(fast.assignment, assignment, "{rows} rows, {dim} dimensions, {k} clusters, seed {seed}");
            let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
            assert!(fast.centroids.values.iter().zip(&centroids.values).all(close));
        }
    }
}

/// Skipping by bounds must not change a bit: with one panel per group or several, through repairs (half of the rows are equal,
/// so that clusters become empty), and for rows far from unit length.
#[test]
fn bounds_change_nothing() {
    for (scale, seed) in [(1.0, 0), (37.0, 1), (1e-3, 2)] {
        let mut features = blobs(1000, 24, seed);
        let first = features.row(0).to_vec();
        features.values.chunks_mut(24).step_by(2).for_each(|row| row.copy_from_slice(&first));
        features.values.iter_mut().for_each(|x| *x *= scale);
        let mut centroids = Matrix::new(24, features.values[..24 * 150].to_vec());
        let mut kept = Assigner::new(&features, &centroids);
        let mut coarse = Assigner::with_groups(&features, &centroids, 2);
        let mut repaired = 0;
        for iteration in 0..12 {
            let assignment = kept.assign(&centroids).to_vec();
            assert_eq!(assignment, coarse.assign(&centroids));
            assert_eq!(assignment, Assigner::new(&features, &centroids).assign(&centroids));
            let mut sizes = update(&features, &assignment, &mut centroids);
            repaired += repair(&mut centroids, &mut sizes, KEY, iteration).len();
        }
        assert!(repaired > 0);
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let features = blobs(1500, 33, 3);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(&features, 170, 5))
    };
    let one = with(1);
    assert_eq!(one, with(2));
    assert_eq!(one, with(3));
}

#[test]
fn the_order_of_rows_does_not_matter_but_for_rounding() {
    let features = blobs(200, 8, 4);
    let mut back: Vec<usize> = (0..200).collect();
    back.reverse();
    let reversed = Matrix::new(8, back.iter().flat_map(|&i| features.row(i).to_vec()).collect());
    let reversed_ids: Vec<u64> = back.iter().map(|&i| ids(&features)[i]).collect();
    let settings = KMeans { iterations: 5, ids: Some(&reversed_ids), seed: 5, draw: (1, 2), ..KMeans::new(9) };
    let a = run(&features, 9, 5);
    let b = kmeans(&reversed, &settings).unwrap();
    assert!((a.objective - b.objective).abs() < 1e-4 * a.objective);
    assert!((0..200).all(|i| a.assignment[back[i]] == b.assignment[i]));
}

#[test]
fn ties_go_to_the_lowest_cluster() {
    // 70 equal centroids span three panels.
    let features = blobs(10, 6, 1);
    let centroids = Matrix::new(6, features.row(0).repeat(70));
    assert_eq!(assign(&features, &centroids).0, vec![0; 10]);
    let mut values = vec![9.0; 70 * 6];
    for j in [41, 65, 33] {
        values[j * 6..(j + 1) * 6].copy_from_slice(features.row(0));
    }
    assert_eq!(assign(&features, &Matrix::new(6, values)).0, vec![33; 10]);
}

#[test]
fn spherical_centroids_have_unit_length() {
    let features = blobs(100, 8, 2);
    let clusters = kmeans(&features, &KMeans { iterations: 3, spherical: true, ..KMeans::new(7) }).unwrap();
    for j in 0..7 {
        assert!((squared(clusters.centroids.row(j), &[0.0; 8]) - 1.0).abs() < 1e-6);
    }
}

#[test]
fn repair_splits_a_donor_by_the_rule() {
    let mut centroids = Matrix::new(3, vec![1.0, 2.0, 3.0, 7.0, 7.0, 7.0, 5.0, 5.0, 5.0]);
    let mut sizes = vec![5, 0, 1];
    assert_eq!(repair(&mut centroids, &mut sizes, KEY, 0), [(1, 0)]);
    let e = 1.0 / 1024.0;
    assert_eq!(centroids.row(0), [1.0 - e, 2.0 * (1.0 + e), 3.0 * (1.0 - e)]);
    assert_eq!(centroids.row(1), [1.0 + e, 2.0 * (1.0 - e), 3.0 * (1.0 + e)]);
    assert_eq!(centroids.row(2), [5.0; 3]);
    assert_eq!(sizes, [3, 2, 1]);
}

#[test]
fn identical_rows() {
    let features = Matrix::new(4, [0.5f32; 4].repeat(20));
    let clusters = run(&features, 6, 4);
    assert!(clusters.assignment.iter().all(|a| *a < 6));
    assert!(clusters.objective < 1e-4 && clusters.centroids.values.iter().all(|x| x.is_finite()));
}

#[test]
fn zero_rows_among_others_and_alone() {
    let clusters = run(&Matrix::new(2, vec![0.0; 12]), 3, 3);
    assert_eq!(clusters.objective, 0.0);
    let clusters = run(&Matrix::new(2, vec![0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), 2, 3);
    assert!(clusters.objective < 1e-9);
}

#[test]
fn k_equals_n() {
    let features = blobs(40, 16, 6);
    let clusters = run(&features, 40, 3);
    let mut seen = clusters.assignment.clone();
    seen.sort_unstable();
    assert_eq!(seen, (0..40).collect::<Vec<_>>());
    assert!(clusters.objective < 1e-9);
}

#[test]
fn k_equals_one() {
    let features = blobs(50, 4, 7);
    let clusters = run(&features, 1, 2);
    assert!(clusters.assignment.iter().all(|a| *a == 0));
    for d in 0..4 {
        let mean = (0..50).map(|i| f64::from(features.row(i)[d])).sum::<f64>() / 50.0;
        assert!((f64::from(clusters.centroids.row(0)[d]) - mean).abs() < 1e-6);
    }
}

#[test]
fn a_single_row() {
    assert_eq!(run(&Matrix::new(2, vec![0.6, 0.8]), 1, 2).assignment, [0]);
}

#[test]
fn k_above_n_no_rows_and_no_clusters_are_usage_errors() {
    let features = blobs(4, 3, 0);
    for (features, k) in [(features.clone(), 5), (features, 0), (Matrix::default(), 1)] {
        let error = kmeans(&features, &KMeans { iterations: 1, ..KMeans::new(k) }).unwrap_err();
        assert_eq!(error.exit_code(), 2);
    }
    assert_eq!(assign(&Matrix::default(), &Matrix::default()), (vec![], vec![]));
}

#[test]
fn features_that_are_not_finite_are_refused() {
    assert_eq!(assign(&Matrix::new(1, vec![f32::NAN, 1.0]), &Matrix::new(1, vec![0.0, 1.0])).0, [0, 1]);
    for bad in [f32::NAN, f32::INFINITY, -1e30] {
        let features = Matrix::new(2, vec![0.0, 1.0, bad, 0.0]);
        assert!(kmeans(&features, &KMeans { iterations: 1, ..KMeans::new(1) }).is_err());
    }
}

#[test]
fn an_error_of_the_callback_ends_the_clustering() {
    let features = blobs(30, 4, 0);
    let mut calls = Vec::new();
    let mut stop = |i: usize| {
        calls.push(i);
        if i == 2 { Err(Error::stopped()) } else { Ok(()) }
    };
    assert!(kmeans_with(&features, &KMeans { iterations: 10, ..KMeans::new(3) }, &mut stop).is_err());
    assert_eq!(calls, [0, 1, 2]);
}

#[test]
fn a_given_start_is_where_it_begins() {
    let features = blobs(200, 8, 9);
    let plain = run(&features, 9, 0).centroids;
    let settings = KMeans { iterations: 3, start: Some(&plain), seed: 5, draw: (1, 2), ..KMeans::new(9) };
    let ids = ids(&features);
    let from = |settings: &KMeans| kmeans(&features, &KMeans { ids: Some(&ids), ..*settings });
    // The same first centroids, so the same end.
    assert_eq!(from(&settings).unwrap(), run(&features, 9, 3));
    // Starting from the result of a shorter run continues that run.
    let half = run(&features, 9, 2);
    assert_eq!(
        from(&KMeans { iterations: 1, start: Some(&half.centroids), ..settings }).unwrap(),
        run(&features, 9, 3)
    );
    for bad in [Matrix::new(8, vec![0.0; 80]), Matrix::new(9, vec![0.0; 81]), Matrix::new(8, vec![f32::NAN; 72])] {
        let error = from(&KMeans { start: Some(&bad), ..settings }).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{}", error.message);
    }
}

#[test]
fn one_id_per_row_and_the_best_run_wins() {
    let features = Matrix::new(1, vec![0.0, 1.0, 2.0]);
    let error = kmeans(&features, &KMeans { ids: Some(&[0, 1]), ..KMeans::new(2) }).unwrap_err();
    assert!(error.message.contains("2 ids for 3 rows"), "{error:?}");
    let with = |objective: f64, k: u32| Clusters {
        assignment: vec![k],
        centroids: Matrix::default(),
        distances: Vec::new(),
        objective,
    };
    let best = best_of(4, |run| Ok(with([3.0, 1.0, 2.0, 1.0][run as usize], run))).unwrap();
    assert_eq!(best.assignment, [1], "the first of equals");
    assert_eq!(best_of(0, |run| Ok(with(0.0, run))).unwrap().assignment, [0]);
    assert!(best_of(2, |_| Err(Error::stopped())).is_err());
}

/// The counting sort against a stable sort.
#[test]
fn places_by_group() {
    assert_eq!(by_group(&[], 2), (vec![0, 0, 0], vec![]));
    let group_of: Vec<u32> = (0..100).map(|i| i * i % 7).collect();
    let mut slow: Vec<u32> = (0..100).collect();
    slow.sort_by_key(|place| group_of[*place as usize]);
    let (starts, places) = by_group(&group_of, 8);
    assert_eq!(places, slow);
    for group in 0..8 {
        assert!(places[starts[group]..starts[group + 1]].iter().all(|p| group_of[*p as usize] == group as u32));
    }
    assert_eq!((starts[0], starts[8]), (0, 100));
}
