//! Embeddings from other programs: a matrix from a NumPy, CSV or safetensors file, one row per image, and the check for rows
//! that cannot be used.

mod csv;
mod safetensors;

use crate::error::{Error, Result, listed};
use crate::io::npy::read_numbers;
use crate::matrix::Matrix;
use rayon::prelude::*;
use serde::Serialize;
use std::path::Path;

/// A matrix and the names of its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedMatrix {
    /// The rows.
    pub matrix: Matrix,
    /// The name of every row, when the file has names.
    pub names: Option<Vec<String>>,
}

/// Reads the matrix in `path`: `.csv`, `.safetensors`, or else NumPy's format.
pub fn read(path: &Path) -> Result<NamedMatrix> {
    if path.is_dir() {
        let message = format!("{} is a folder, not a file of numbers", path.display());
        return Err(Error::usage(message, "give a .npy, .csv or .safetensors file"));
    }
    let ends = |with: &str| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(with));
    if ends("csv") {
        return csv::read(path);
    }
    let matrix = if ends("safetensors") { safetensors::read(path)? } else { read_numbers(path)? };
    Ok(NamedMatrix { matrix, names: None })
}

/// A row that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unusable {
    /// The row, from 0.
    pub row: usize,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Squares of larger numbers overflow single precision when they are summed.
const LARGEST: f32 = 1e15;

/// The rows of `features` that cannot be clustered: not finite, too large, or, with `cosine`, zero.
pub fn unusable(features: &Matrix, cosine: bool) -> Vec<Unusable> {
    let wrong = |(row, values): (usize, &[f32])| {
        let reason = match values {
            v if v.iter().any(|x| x.is_nan()) => "not a number",
            v if v.iter().any(|x| x.is_infinite()) => "infinite",
            v if v.iter().any(|x| x.abs() >= LARGEST) => "numbers that are too large",
            v if cosine && v.iter().all(|x| *x == 0.0) => "zero: it has no direction",
            _ => return None,
        };
        Some(Unusable { row, reason })
    };
    features.values.par_chunks(features.dim.max(1)).enumerate().filter_map(wrong).collect()
}

/// An error that lists the first `unusable` rows of `what`, if there are any.
pub fn refuse(what: &str, unusable: &[Unusable]) -> Result<()> {
    if unusable.is_empty() {
        return Ok(());
    }
    const NAMED: usize = 5;
    let named = listed(unusable.iter().take(NAMED).map(|u| format!("row {} ({})", u.row, u.reason)));
    let more = if unusable.len() > NAMED { ", and so on" } else { "" };
    Err(Error::data(
        format!("{what}: {} rows cannot be used: {named}{more}", unusable.len()),
        "correct them, or leave them out with `skip_bad_rows`; zero rows can be used with `metric` euclidean",
    ))
}

/// `items` without those at the ascending indices `out`.
pub fn without<T>(items: Vec<T>, out: &[usize]) -> Vec<T> {
    let mut out = out.iter().copied().peekable();
    let stays = |(i, item): (usize, T)| if out.next_if_eq(&i).is_some() { None } else { Some(item) };
    items.into_iter().enumerate().filter_map(stays).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_cannot_be_used_are_found_by_kind() {
        let rows = [[1.0, 0.0], [f32::NAN, 1.0], [0.0, f32::NEG_INFINITY], [0.0, 0.0], [2e15, 0.0], [0.0, -0.0]];
        let features = Matrix::new(2, rows.concat());
        let found = |cosine| unusable(&features, cosine).iter().map(|u| u.row).collect::<Vec<_>>();
        assert_eq!(found(true), [1, 2, 3, 4, 5]);
        assert_eq!(found(false), [1, 2, 4]);
        let e = refuse("x.npy", &unusable(&features, true)).unwrap_err();
        assert!(e.message.contains("x.npy: 5 rows") && e.message.contains("row 3 (zero"), "{e:?}");
        assert!(e.hint.contains("`skip_bad_rows`"));
        refuse("x.npy", &[]).unwrap();
    }

    #[test]
    fn items_are_left_out() {
        assert_eq!(without(vec!["a", "b", "c"], &[1]), ["a", "c"]);
    }

    #[test]
    fn the_extension_selects_the_format() {
        let dir = tempfile::tempdir().unwrap();
        let e = read(dir.path()).unwrap_err();
        assert!(e.message.contains("folder"), "{e:?}");
        assert!(read(&dir.path().join("none.npy")).unwrap_err().message.contains("none.npy"));
        assert!(read(&dir.path().join("none.CSV")).unwrap_err().message.contains("none.CSV"));
        std::fs::write(dir.path().join("x.bin"), b"hello").unwrap();
        assert!(read(&dir.path().join("x.bin")).unwrap_err().message.contains("not a NumPy array"));
    }
}
