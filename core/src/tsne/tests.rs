//! t-SNE against plain implementations, and degenerate cases.

use super::affinity::conditional;
use super::*;
use crate::rng::{Key, Purpose};
use crate::scores::trustworthiness;

/// Unit rows around `centres` random directions.
fn blobs(rows: usize, dim: usize, centres: u64, noise: f32) -> Matrix {
    let key = Key { purpose: Purpose::Synthetic, seed: 3, round: 0, epoch: 0 };
    let row = |i: usize| -> Vec<f32> {
        let (mut centre, mut own) = (key.stream(i as u64 % centres, 1), key.stream(i as u64, 0));
        (0..dim).map(|_| centre.normal() + noise * own.normal()).collect()
    };
    Matrix::new(dim, (0..rows).flat_map(row).collect()).normalised()
}

fn scattered(n: usize, scale: f32) -> Vec<[f32; 2]> {
    let mut stream = Key { purpose: Purpose::Synthetic, seed: 4, round: 0, epoch: 0 }.stream(0, 0);
    (0..n).map(|_| [scale * stream.normal(), scale * stream.normal()]).collect()
}

fn lay_out(features: &Matrix) -> Matrix {
    tsne(features, &Tsne::default(), &mut |_| Ok(())).unwrap()
}

/// Every pair in double precision.
fn slow_repulsion(places: &[[f32; 2]]) -> (Vec<[f64; 2]>, f64) {
    let mut z = 0.0;
    let mut out = vec![[0.0; 2]; places.len()];
    for (i, a) in places.iter().enumerate() {
        for (j, b) in places.iter().enumerate().filter(|(j, _)| *j != i) {
            assert_ne!(i, j);
            let d = [0, 1].map(|c| f64::from(a[c]) - f64::from(b[c]));
            let w = 1.0 / (1.0 + d[0] * d[0] + d[1] * d[1]);
            z += w;
            (0..2).for_each(|c| out[i][c] += w * w * d[c]);
        }
    }
    (out, z)
}

#[test]
fn the_tree_repels_as_all_pairs_do() {
    for (n, scale) in [(2, 1.0), (16, 5.0), (17, 5.0), (700, 10.0), (1500, 1e-4), (1500, 40.0)] {
        let places = scattered(n, scale);
        let mut tree = Tree::new(n);
        // The second time, the tree keeps the order of the first points.
        for places in [scattered(n, 1.0), places] {
            tree.place(&places);
            let ((fast, z), (slow, slow_z)) = (tree.repulsion(), slow_repulsion(&places));
            assert!((z / slow_z - 1.0).abs() < 0.01, "n {n}: Z {z} {slow_z}");
            let length = |v: [f64; 2]| v[0].hypot(v[1]);
            let size: f64 = slow.iter().map(|v| length(*v)).sum();
            let wrong = |(f, s): (&[f32; 2], &[f64; 2])| length([0, 1].map(|c| f64::from(f[c]) - s[c]));
            let off: f64 = fast.iter().zip(&slow).map(wrong).sum();
            assert!(off < 0.03 * size, "n {n}, scale {scale}: off by {}", off / size);
        }
    }
}

/// Against finite differences of the divergence `sum_ij p_ij ln(p_ij / q_ij)`; sixteen places are one leaf, where sums are exact.
#[test]
fn the_gradient_is_that_of_the_divergence() {
    let n = 16;
    let affinities = Affinities::new(&blobs(n, 5, 4, 0.5), 4.0);
    let places = scattered(n, 1.0);
    let divergence = |places: &[[f64; 2]]| -> f64 {
        let w = |i: usize, j: usize| {
            let d = [0, 1].map(|c| places[i][c] - places[j][c]);
            1.0 / (1.0 + d[0] * d[0] + d[1] * d[1])
        };
        let z: f64 = (0..n * n).filter(|k| k / n != k % n).map(|k| w(k / n, k % n)).sum();
        let row = |i: usize| affinities.row(i).iter().map(move |(j, p)| (i, *j as usize, f64::from(*p)));
        (0..n).flat_map(row).map(|(i, j, p)| p * (p / (w(i, j) / z)).ln()).sum()
    };
    let mut tree = Tree::new(n);
    tree.place(&places);
    let (repulsion, z) = tree.repulsion();
    let wide: Vec<[f64; 2]> = places.iter().map(|p| p.map(f64::from)).collect();
    for i in 0..n {
        let pull = attraction(&affinities, &places, i);
        for c in 0..2 {
            let slope = 4.0 * (f64::from(pull[c]) - f64::from(repulsion[i][c]) / z);
            let at = |step: f64| {
                let mut moved = wide.clone();
                moved[i][c] += step;
                divergence(&moved)
            };
            let expected = (at(1e-4) - at(-1e-4)) / 2e-4;
            assert!((slope - expected).abs() < 1e-5, "{i} {c}: {slope} {expected}");
        }
    }
}

#[test]
fn affinities_have_the_perplexity_and_are_symmetric() {
    let squared: Vec<f64> = (0..40).map(|i| 0.01 * f64::from(i * i)).collect();
    let p = conditional(&squared, 7.0);
    let entropy: f64 = p.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
    assert!((entropy.exp() - 7.0).abs() < 1e-3, "{}", entropy.exp());

    let affinities = Affinities::new(&blobs(60, 6, 3, 0.3), 5.0);
    let sum: f64 = affinities.pairs.iter().map(|p| f64::from(p.1)).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    for i in 0..60 {
        for &(j, p) in affinities.row(i) {
            let back = affinities.row(j as usize).iter().find(|other| other.0 == i as u32).unwrap();
            assert_eq!(back.1, p);
            assert_ne!(j as usize, i);
        }
    }
}

#[test]
fn groups_stay_together() {
    let features = blobs(300, 16, 5, 0.2);
    let places = lay_out(&features);
    let trust = trustworthiness(&features, &places, 5).unwrap();
    assert!(trust > 0.93, "{trust}");
    let groups: Vec<u32> = (0..300).map(|i| i % 5).collect();
    assert!(crate::scores::silhouette(&places, &groups).unwrap() > 0.6);
}

#[test]
fn threads_do_not_change_a_bit() {
    let features = blobs(900, 8, 4, 0.6);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let settings = Tsne { iterations: 60, ..Tsne::default() };
        pool.install(|| tsne(&features, &settings, &mut |_| Ok(())).unwrap())
    };
    let one = with(1);
    assert_eq!(one, with(2));
    assert_eq!(one, with(3));
}

#[test]
fn zero_to_three_rows() {
    for n in 0..4 {
        let features = match n {
            0 => Matrix::default(),
            n => blobs(n, 4, 9, 0.1),
        };
        let places = lay_out(&features);
        assert_eq!((places.rows, places.dim, places.values.len()), (n, 2, 2 * n));
        assert!(places.values.iter().all(|x| x.is_finite()), "{n}: {places:?}");
        let apart = |i: usize, j: usize| places.row(i) != places.row(j);
        assert!((0..n).all(|i| (0..i).all(|j| apart(i, j))), "{n}: {places:?}");
    }
}

#[test]
fn identical_rows_stay_in_one_place() {
    for (dim, row) in [(3, vec![0.6, 0.0, 0.8]), (1, vec![1.0])] {
        let places = lay_out(&Matrix::new(dim, row.repeat(40)));
        assert!(places.values.iter().all(|x| *x == 0.0));
    }
}

#[test]
fn fewer_rows_than_three_perplexities() {
    assert_eq!(Tsne::default().perplexity_of(31), 10.0);
    assert_eq!(Tsne::default().perplexity_of(91), 30.0);
    assert_eq!(Tsne::default().perplexity_of(0), 1.0);
    let features = blobs(40, 6, 2, 0.1);
    assert!(trustworthiness(&features, &lay_out(&features), 5).unwrap() > 0.8);
}

#[test]
fn wrong_settings_and_broken_features_are_refused() {
    for perplexity in [0.5, f64::NAN, f64::INFINITY, -3.0] {
        let settings = Tsne { perplexity, ..Tsne::default() };
        let e = tsne(&blobs(9, 2, 1, 1.0), &settings, &mut |_| Ok(())).unwrap_err();
        assert!(e.message.contains("perplexity") && e.hint.contains("`perplexity`"), "{e:?}");
    }
    let broken = Matrix::new(2, vec![0.0, f32::NAN, 1.0, 0.0]);
    assert!(tsne(&broken, &Tsne::default(), &mut |_| Ok(())).is_err());
}

#[test]
fn progress_covers_every_step_and_it_can_be_stopped() {
    let mut told = Vec::new();
    let stopped = tsne(&blobs(20, 3, 2, 0.5), &Tsne::default(), &mut |done| {
        told.push(done);
        if done == 5 { Err(Error::stopped()) } else { Ok(()) }
    });
    assert_eq!(stopped.unwrap_err().exit_code(), 130);
    // It is also called while the start is computed, before the first step.
    told.dedup();
    assert_eq!(told, [0, 1, 2, 3, 4, 5]);
}
