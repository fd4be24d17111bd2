//! Tests of the check of labels.

use super::*;
use crate::testing::blobs;

const KEY: Key = Key { purpose: Purpose::Synthetic, seed: 0, round: 0, epoch: 0 };

fn checked(features: &Matrix, of: &[Option<u32>], classes: usize) -> LabelCheck {
    check(features, of, classes, 0, &mut |_| Ok(())).unwrap()
}

/// Whether the label of `row` is replaced, as the share `rho` of all are.
fn is_wrong(row: usize, rho: f32) -> bool {
    KEY.stream(row as u64, 3).chance(rho)
}

/// Row i is of class i % classes; a share `rho` of the labels is replaced by another.
fn flipped(rows: usize, classes: u32, rho: f32) -> Vec<Option<u32>> {
    let label = |row: usize| match is_wrong(row, rho) {
        true => row as u32 + 1 + KEY.stream(row as u64, 4).below(u64::from(classes) - 1) as u32,
        false => row as u32,
    };
    (0..rows).map(|row| Some(label(row) % classes)).collect()
}

#[test]
fn flipped_labels_are_found_and_counted_and_rows_without_one_are_skipped() {
    let features = blobs(4, 100, 6, 0.3, 4);
    let mut of = flipped(400, 4, 0.05);
    of[20] = None;
    let found = checked(&features, &of, 4);
    assert_eq!(found.verdicts[20], None);
    let (errors, _) = ranked(&of, &found.verdicts);
    assert!(errors.iter().all(|row| is_wrong(*row, 0.05)), "{errors:?}");
    assert!(errors.len() * 4 >= 3 * (0..400).filter(|row| is_wrong(*row, 0.05)).count(), "{errors:?}");
    assert!(errors.iter().all(|row| found.verdicts[*row].unwrap().suggested == *row as u32 % 4));
    let noise = found.noise.unwrap();
    assert!(noise.low < 0.05 && 0.05 < noise.high && noise.high < 0.1 && noise.recognised > 0.9, "{noise:?}");
}

#[test]
fn right_labels_are_left_alone_even_where_classes_overlap() {
    let features = blobs(4, 150, 6, 1.5, 7);
    let found = checked(&features, &flipped(600, 4, 0.0), 4);
    let (errors, doubtful) = ranked(&flipped(600, 4, 0.0), &found.verdicts);
    assert!(errors.len() < 12 && doubtful.len() > 30, "{} and {}", errors.len(), doubtful.len());
    let doubts: Vec<f32> = doubtful.iter().map(|row| found.verdicts[*row].unwrap().doubt).collect();
    assert!(doubts.is_sorted_by(|a, b| a >= b));
}

#[test]
fn features_without_meaning_are_called_weak() {
    let features = blobs(1, 400, 8, 1.0, 2);
    let noise = checked(&features, &flipped(400, 4, 0.0), 4).noise.unwrap();
    assert!(noise.is_weak(), "{noise:?}");
}

#[test]
fn more_rows_than_are_fitted_have_verdicts_of_blocks() {
    let features = blobs(2, 6000, 3, 0.2, 1);
    let of = flipped(12_000, 2, 0.02);
    let found = checked(&features, &of, 2);
    let (errors, _) = ranked(&of, &found.verdicts);
    let right = errors.iter().filter(|row| is_wrong(**row, 0.02)).count();
    assert!(right >= 200 && right * 100 >= errors.len() * 95, "{right} of {}", errors.len());
}

#[test]
fn one_class_few_labels_equal_rows_and_a_stop() {
    let features = blobs(2, 20, 3, 0.2, 1);
    for of in [vec![Some(0); 40], vec![None; 40], [vec![Some(0), Some(1)], vec![None; 38]].concat()] {
        let found = checked(&features, &of, 3);
        assert_eq!(found.noise, None);
        assert_eq!(ranked(&of, &found.verdicts), (Vec::new(), Vec::new()));
        assert!(found.verdicts.iter().zip(&of).all(|(v, of)| v.map(|v| v.suggested) == *of));
    }
    let same = Matrix::new(2, vec![1.0; 80]);
    let of = flipped(40, 2, 0.0);
    let found = checked(&same, &of, 2);
    assert!(found.noise.unwrap().is_weak() && ranked(&of, &found.verdicts).0.is_empty());
    let stopped = check(&features, &of, 2, 0, &mut |_| Err(crate::error::Error::stopped()));
    assert_eq!(stopped.unwrap_err().exit_code(), 130);
}
