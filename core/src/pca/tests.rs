//! Tests of the principal components.

use super::*;
use crate::error::Error;
use crate::rng::{Key, Purpose};

fn fit(features: &Matrix, components: usize) -> Pca {
    Pca::fit(features, components, &mut || Ok(())).unwrap()
}

fn cloud(rows: usize) -> Matrix {
    let mut stream = Key { purpose: Purpose::Synthetic, seed: 5, round: 0, epoch: 0 }.stream(0, 0);
    let values = (0..rows).flat_map(|_| {
        let (a, b, c) = (stream.normal(), stream.normal(), stream.normal());
        // Variances 9, 1 and 0.01 along (0.6, 0.8, 0), (-0.8, 0.6, 0) and (0, 0, 1), around (1, 2, 3).
        [1.0 + 1.8 * a - 0.8 * b, 2.0 + 2.4 * a + 0.6 * b, 3.0 + 0.1 * c]
    });
    Matrix::new(3, values.collect())
}

#[test]
fn the_directions_of_a_known_cloud_are_found() {
    let pca = fit(&cloud(4000), 2);
    assert!((pca.variances[0] - 9.0).abs() < 0.6 && (pca.variances[1] - 1.0).abs() < 0.1, "{:?}", pca.variances);
    for (found, expected) in pca.directions.iter().zip([[0.6, 0.8, 0.0], [0.8, -0.6, 0.0]]) {
        assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 0.03), "{found:?}");
    }
}

#[test]
fn whitened_features_have_the_identity_for_covariance() {
    let cloud = cloud(500);
    let white = fit(&cloud, 3).apply(&cloud, true);
    for i in 0..3 {
        for j in 0..3 {
            let product = |r: usize| f64::from(white.row(r)[i]) * f64::from(white.row(r)[j]);
            let covariance = (0..500).map(product).sum::<f64>() / 500.0;
            assert!((covariance - f64::from(u8::from(i == j))).abs() < 1e-4, "{i} {j} {covariance}");
        }
    }
}

/// A v = lambda v, and the vectors are orthonormal.
#[test]
fn eigenvectors_solve_their_equation() {
    let mut stream = Key { purpose: Purpose::Synthetic, seed: 8, round: 0, epoch: 0 }.stream(0, 0);
    let n = 24;
    let half: Vec<Vec<f64>> = (0..n).map(|_| (0..n).map(|_| f64::from(stream.normal())).collect()).collect();
    let a: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| half[i][j] + half[j][i]).collect()).collect();
    let (values, vectors) = jacobi::eigen(a.clone(), &mut || Ok(())).unwrap();
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(a, b)| a * b).sum::<f64>();
    for i in 0..n {
        assert!(a.iter().zip(&vectors[i]).all(|(row, v)| (dot(row, &vectors[i]) - values[i] * v).abs() < 1e-9));
        assert!((0..n).all(|j| (dot(&vectors[i], &vectors[j]) - f64::from(u8::from(i == j))).abs() < 1e-10));
    }
    assert_eq!(jacobi::eigen(vec![vec![0.0; 3]; 3], &mut || Ok(())).unwrap().0, [0.0; 3]);
}

#[test]
fn identical_rows_and_flat_directions_stay_finite() {
    let same = Matrix::new(2, vec![1.0, 2.0, 1.0, 2.0]);
    let white = fit(&same, 2).apply(&same, true);
    assert!(white.values.iter().all(|x| *x == 0.0));
    let line = Matrix::new(2, vec![0.0, 1.0, 1.0, 1.0, 2.0, 1.0]);
    let white = fit(&line, 2).apply(&line, true);
    assert!(white.values.iter().all(|x| x.is_finite()));
}

/// Rows of `dim` numbers whose variance falls with `decay` from one axis to the next, mixed by a reflection of all axes.
fn long(rows: usize, dim: usize, decay: f32) -> Matrix {
    let mut stream = Key { purpose: Purpose::Synthetic, seed: 6, round: 0, epoch: 0 }.stream(0, 0);
    let row = |_| {
        let mut x: Vec<f32> = (0..dim).map(|i| decay.powi(i as i32) * stream.normal()).collect();
        let mean = x.iter().sum::<f32>() / dim as f32;
        x.iter_mut().for_each(|x| *x += 1.0 - 2.0 * mean);
        x
    };
    Matrix::new(dim, (0..rows).flat_map(row).collect())
}

#[test]
fn leading_components_are_those_of_the_full_decomposition() {
    for (rows, dim, decay, components) in [(200, 40, 0.8, 2), (50, 60, 0.95, 5), (300, 30, 0.99, 3)] {
        let features = long(rows, dim, decay);
        let full = Pca::full(&features, components, &mut || Ok(())).unwrap();
        let leading = Pca::leading(&features, components, &mut || Ok(())).unwrap();
        for c in 0..components {
            let (a, b) = (full.variances[c], leading.variances[c]);
            assert!((a - b).abs() < 1e-9 * full.variances[0], "{dim}: {a} is not {b}");
            let cosine: f64 = full.directions[c].iter().zip(&leading.directions[c]).map(|(a, b)| a * b).sum();
            assert!(cosine > 1.0 - 1e-6, "{dim}, component {c}: {cosine}");
        }
    }
}

/// The full decomposition of 300 columns calls back for each of them in every sweep.
#[test]
fn a_few_components_of_long_features_take_a_few_passes() {
    let features = long(100, 300, 0.9);
    let count = |components: usize| {
        let mut calls = 0;
        let pca = Pca::fit(&features, components, &mut || {
            calls += 1;
            Ok(())
        });
        assert_eq!(pca.unwrap().directions.len(), components);
        calls
    };
    assert!(count(2) <= 20, "{} passes", count(2));
    assert!(count(17) > 300);
    // Equal variances never converge: the limit on passes ends the iteration.
    let flat = long(400, 300, 1.0);
    let mut calls = 0;
    Pca::fit(&flat, 2, &mut || {
        calls += 1;
        Ok(())
    })
    .unwrap();
    assert!(calls <= leading::PASSES, "{calls} passes");
}

#[test]
fn both_ways_can_be_stopped() {
    for (dim, after) in [(300, 1), (20, 1), (20, 12)] {
        let mut calls = 0;
        let outcome = Pca::fit(&long(600, dim, 0.9), 2, &mut || {
            calls += 1;
            if calls > after { Err(Error::stopped()) } else { Ok(()) }
        });
        assert_eq!(outcome.unwrap_err().exit_code(), 130);
        assert_eq!(calls, after + 1, "no step after the stop");
    }
}

#[test]
fn long_features_that_are_few_equal_or_on_a_line() {
    let same = Matrix::new(300, vec![0.5; 900]);
    assert!(fit(&same, 2).apply(&same, false).values.iter().all(|x| x.abs() < 1e-6));
    let line = Matrix::new(300, (0..1200).map(|i| (i / 300) as f32).collect());
    let pca = fit(&line, 2);
    assert!((pca.variances[0] - 1.25 * 300.0).abs() < 1e-6 && pca.variances[1].abs() < 1e-6, "{:?}", pca.variances);
    assert!(pca.apply(&line, true).values.iter().all(|x| x.is_finite()));
    let one = Matrix::new(300, vec![1.0; 300]);
    assert!(fit(&one, 2).apply(&one, false).values.iter().all(|x| *x == 0.0));
    // Independent of the number of threads: parts are summed in order.
    let features = long(500, 300, 0.95);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(pool.install(|| fit(&features, 3)).directions, fit(&features, 3).directions);
}
