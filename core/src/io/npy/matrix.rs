//! A matrix from a NumPy file: half, single or double precision, either byte order, stored by rows or by columns.

use super::header::Header;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::memory;
use half::f16;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

const WANTED: &str = "give a 2-D array of float16, float32 or float64, as numpy.save writes it: one row per image";
const FINITE: &str = "give a 2-D array of finite numbers, one row per image";

const FEWER: &str = "free some memory, allow more (`ulimit -v`), or give fewer rows";

/// Numbers decoded at a time.
const CHUNK: usize = 1 << 16;

/// How a number is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Single precision.
    F32,
    /// Double precision; rounded to single.
    F64,
}

impl Number {
    /// Size in bytes.
    pub(crate) fn size(self) -> usize {
        match self {
            Number::F16 | Number::Bf16 => 2,
            Number::F32 => 4,
            Number::F64 => 8,
        }
    }

    /// Appends the numbers in `bytes` to `out`.
    pub(crate) fn decode(self, bytes: &[u8], big: bool, out: &mut Vec<f32>) {
        fn words<const N: usize>(bytes: &[u8], big: bool) -> impl Iterator<Item = [u8; N]> {
            bytes.as_chunks::<N>().0.iter().map(move |word| {
                let mut word = *word;
                if big {
                    word.reverse();
                }
                word
            })
        }
        match self {
            Number::F16 => out.extend(words(bytes, big).map(|w| f16::from_le_bytes(w).to_f32())),
            Number::Bf16 => out.extend(words(bytes, big).map(|w| half::bf16::from_le_bytes(w).to_f32())),
            Number::F32 => out.extend(words(bytes, big).map(f32::from_le_bytes)),
            Number::F64 => out.extend(words(bytes, big).map(|w| f64::from_le_bytes(w) as f32)),
        }
    }
}

/// Reads the rows of a 2-D array of finite numbers.
pub fn read_matrix(path: &Path) -> Result<Matrix> {
    let features = read_numbers(path)?;
    match features.values.iter().position(|x| !x.is_finite()) {
        Some(at) => Err(Error::data(
            format!("{}: row {} holds {}", path.display(), at / features.dim, features.values[at]),
            FINITE,
        )),
        None => Ok(features),
    }
}

/// Reads the rows of a 2-D array; numbers need not be finite.
pub(crate) fn read_numbers(path: &Path) -> Result<Matrix> {
    let wrong = |what: String| Error::data(format!("{}: {what}", path.display()), WANTED);
    let unreadable = |e: std::io::Error| Error::io("read", path, &e);
    let file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let header = Header::read(&mut reader).map_err(|e| match e.kind() {
        ErrorKind::InvalidData => wrong(format!("not a NumPy array: {e}")),
        _ => unreadable(e),
    })?;
    if header.descr.contains("|O") {
        return Err(Error::data(
            format!(
                "{}: it holds pickled Python objects ({}), which can run code when loaded: they are not read",
                path.display(),
                header.descr
            ),
            "save plain numbers instead: numpy.save(file, numpy.stack(rows).astype('<f4'))",
        ));
    }
    let (number, big) =
        number_of(&header).ok_or_else(|| wrong(format!("its numbers are {}, not floats", header.descr)))?;
    let &[rows, dim] = header.shape.as_slice() else {
        let shape: Vec<String> = header.shape.iter().map(u64::to_string).collect();
        return Err(wrong(format!("it has {} dimensions ({}), not 2", shape.len(), shape.join(" x "))));
    };
    if rows == 0 || dim == 0 {
        return Err(wrong(format!("it is empty: {rows} x {dim}")));
    }
    // Checked before memory is allocated for the size in the header.
    let rest = bytes.saturating_sub(header.length);
    let promised = rows.checked_mul(dim).and_then(|n| n.checked_mul(number.size() as u64));
    if promised.is_none_or(|n| n > rest) {
        return Err(wrong(format!("the file is truncated: its header announces {rows} x {dim} numbers")));
    }
    // In columns, it is turned into rows.
    let copies = if header.fortran { 8 } else { 4 };
    memory::require(rows * dim * copies, &format!("reading {}", path.display()), FEWER)?;
    let (rows, dim) = (rows as usize, dim as usize);
    let mut values = Vec::with_capacity(rows * dim);
    let mut buffer = vec![0u8; CHUNK * number.size()];
    while values.len() < rows * dim {
        let now = (rows * dim - values.len()).min(CHUNK) * number.size();
        reader.read_exact(&mut buffer[..now]).map_err(unreadable)?;
        number.decode(&buffer[..now], big, &mut values);
    }
    if header.fortran {
        values = transposed(&values, dim, rows);
    }
    Ok(Matrix { rows, dim, values })
}

/// The number type, and whether it is stored big-endian.
fn number_of(header: &Header) -> Option<(Number, bool)> {
    let kinds = [("<f2", Number::F16), ("<f4", Number::F32), ("<f8", Number::F64)];
    kinds.into_iter().find_map(|(descr, number)| Some((number, header.is_big(descr)?)))
}

/// The transpose of `rows` x `cols` values.
fn transposed(values: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(values.len());
    for c in 0..cols {
        out.extend((0..rows).map(|r| values[r * cols + c]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::npy::write_npy;

    fn refused(fill: impl FnOnce(&Path)) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        fill(&path);
        let error = read_matrix(&path).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert!(error.message.contains("x.npy"), "{}", error.message);
        error.message
    }

    /// A version 1 file by hand: `descr` as NumPy writes it.
    fn by_hand(path: &Path, descr: &str, fortran: bool, shape: &str, data: &[u8]) {
        let order = if fortran { "True" } else { "False" };
        let mut text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
        text += &" ".repeat(64 - (text.len() + 11) % 64);
        text.push('\n');
        let length = (text.len() as u16).to_le_bytes();
        std::fs::write(path, [b"\x93NUMPY\x01\x00", &length[..], text.as_bytes(), data].concat()).unwrap();
    }

    #[test]
    fn a_matrix_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        write_npy(&path, &[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.5]).unwrap();
        assert_eq!(read_matrix(&path).unwrap(), Matrix::new(3, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.5]));
    }

    #[test]
    fn every_kind_of_float_in_either_order_is_the_same_matrix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        let expected = Matrix::new(3, vec![1.0, -2.0, 0.5, 4.0, 1024.0, -0.25]);
        let columns = [1.0, 4.0, -2.0, 1024.0, 0.5, -0.25];
        for fortran in [false, true] {
            let values = if fortran { &columns[..] } else { &expected.values[..] };
            let check = |descr: &str, data: Vec<u8>| {
                by_hand(&path, descr, fortran, "(2, 3)", &data);
                assert_eq!(read_matrix(&path).unwrap(), expected, "{descr}, Fortran order {fortran}");
            };
            check("<f2", values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect());
            check(">f2", values.iter().flat_map(|x| f16::from_f32(*x).to_be_bytes()).collect());
            check("<f4", values.iter().flat_map(|x| x.to_le_bytes()).collect());
            check(">f4", values.iter().flat_map(|x| x.to_be_bytes()).collect());
            check("<f8", values.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect());
            check(">f8", values.iter().flat_map(|x| f64::from(*x).to_be_bytes()).collect());
        }
    }

    #[test]
    fn numbers_too_large_for_single_precision_become_infinite() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        write_npy(&path, &[1, 2], &[1e300f64, 1.0]).unwrap();
        assert_eq!(read_numbers(&path).unwrap().values, [f32::INFINITY, 1.0]);
    }

    #[test]
    fn more_than_a_chunk_in_columns() {
        let (rows, dim) = (CHUNK / 2 + 7, 3);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        let value = |r: usize, c: usize| (r * dim + c) as f32;
        let data: Vec<u8> =
            (0..dim).flat_map(|c| (0..rows).map(move |r| value(r, c))).flat_map(f32::to_le_bytes).collect();
        by_hand(&path, "<f4", true, &format!("({rows}, {dim})"), &data);
        let read = read_matrix(&path).unwrap();
        assert!(read.values.iter().enumerate().all(|(i, x)| *x == i as f32));
    }

    #[test]
    fn other_contents_are_refused() {
        let says = |message: String, word: &str| assert!(message.contains(word), "{word} is not in {message}");
        says(refused(|p| write_npy(p, &[2, 1], &[1u32, 2]).unwrap()), "'<u4'");
        says(refused(|p| write_npy(p, &[2], &[1.0f32, 2.0]).unwrap()), "1 dimensions");
        says(refused(|p| write_npy(p, &[2, 1, 1], &[1.0f32, 2.0]).unwrap()), "3 dimensions (2 x 1 x 1)");
        says(refused(|p| write_npy(p, &[0, 4], &[0.0f32; 0]).unwrap()), "empty");
        says(refused(|p| write_npy(p, &[2, 2], &[1.0f32, 2.0, f32::NAN, 0.0]).unwrap()), "row 1 holds NaN");
        says(refused(|p| write_npy(p, &[1, 2], &[1.0f32, f32::INFINITY]).unwrap()), "row 0 holds inf");
        says(refused(|p| by_hand(p, "|O", false, "(2, 2)", b"\x80\x04pickle")), "pickled");
        says(refused(|p| by_hand(p, "<c8", false, "(1, 1)", &[0; 8])), "not floats");
        says(refused(|p| by_hand(p, "<f4", false, "(99999999999, 99999999999)", &[0; 8])), "truncated");
        says(refused(|p| std::fs::write(p, b"PK").unwrap()), "not a NumPy array");
        says(refused(|p| std::fs::write(p, b"\x93NUMPY\x01\x00\x76\x00{'descr'").unwrap()), "not a NumPy array");
        says(refused(|_| ()), "cannot read");
        let cut = |keep: usize| {
            refused(|p| {
                write_npy(p, &[300, 10], &[1.0f32; 3000]).unwrap();
                let whole = std::fs::read(p).unwrap();
                std::fs::write(p, &whole[..whole.len() - keep]).unwrap();
            })
        };
        says(cut(4), "truncated");
        says(cut(11_000), "truncated");
        let columns = refused(|p| {
            let data: Vec<u8> = [f32::NAN, 1.0, 1.0, 1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
            by_hand(p, "<f4", true, "(2, 2)", &data);
        });
        says(columns, "row 0");
    }
}
