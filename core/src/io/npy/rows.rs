//! A matrix written row by row, when nobody knows yet how many there will be.

use std::io::{self, Seek, SeekFrom, Write};

/// Room for the heading: NumPy wants a multiple of 64, and no number of rows needs more.
const HEADING: usize = 128;

/// A 2-D array of float32 being written.
pub struct NpyRows<W: Write + Seek> {
    out: W,
    dim: usize,
    rows: usize,
}

impl<W: Write + Seek> NpyRows<W> {
    /// Begins an array of rows of `dim` numbers at the beginning of `out`.
    pub fn new(mut out: W, dim: usize) -> io::Result<Self> {
        out.write_all(&heading(0, dim))?;
        Ok(NpyRows { out, dim, rows: 0 })
    }

    /// Adds rows.
    pub fn extend(&mut self, values: &[f32]) -> io::Result<()> {
        debug_assert!(values.len().is_multiple_of(self.dim), "whole rows");
        for x in values {
            self.out.write_all(&x.to_le_bytes())?;
        }
        self.rows += values.len() / self.dim;
        Ok(())
    }

    /// Says how many rows there are.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&heading(self.rows, self.dim))?;
        self.out.seek(SeekFrom::End(0))?;
        self.out.flush()
    }
}

fn heading(rows: usize, dim: usize) -> [u8; HEADING] {
    let mut bytes = [b' '; HEADING];
    bytes[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
    bytes[8..10].copy_from_slice(&(HEADING as u16 - 10).to_le_bytes());
    let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {dim}), }}");
    bytes[10..10 + text.len()].copy_from_slice(text.as_bytes());
    bytes[HEADING - 1] = b'\n';
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::npy::read_matrix;
    use crate::matrix::Matrix;

    #[test]
    fn rows_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        for rows in [1, 2, 5] {
            let mut npy = NpyRows::new(std::fs::File::create(&path).unwrap(), 2).unwrap();
            (0..rows).for_each(|i| npy.extend(&[i as f32, 0.5]).unwrap());
            npy.finish().unwrap();
            let expected = Matrix::new(2, (0..rows).flat_map(|i| [i as f32, 0.5]).collect());
            assert_eq!(read_matrix(&path).unwrap(), expected);
        }
        assert_eq!(heading(usize::MAX, usize::MAX).len() % 64, 0);
    }
}
