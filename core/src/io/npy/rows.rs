//! Writing a matrix row by row when the number of rows is not known in advance.

use std::io::{self, Seek, SeekFrom, Write};

/// Bytes reserved for the header: a multiple of 64, as NumPy requires, and enough for any number of rows.
const HEADER: usize = 128;

/// A 2-D array of float32 that is being written.
pub struct NpyRows<W: Write + Seek> {
    out: W,
    dim: usize,
    rows: usize,
}

impl<W: Write + Seek> NpyRows<W> {
    /// Starts an array with rows of `dim` numbers; `out` must be at its beginning.
    pub fn new(mut out: W, dim: usize) -> io::Result<Self> {
        out.write_all(&header(0, dim))?;
        Ok(NpyRows { out, dim, rows: 0 })
    }

    /// Appends rows.
    pub fn extend(&mut self, values: &[f32]) -> io::Result<()> {
        debug_assert!(values.len().is_multiple_of(self.dim), "whole rows");
        for x in values {
            self.out.write_all(&x.to_le_bytes())?;
        }
        self.rows += values.len() / self.dim;
        Ok(())
    }

    /// Writes the number of rows into the header.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&header(self.rows, self.dim))?;
        self.out.seek(SeekFrom::End(0))?;
        self.out.flush()
    }
}

fn header(rows: usize, dim: usize) -> [u8; HEADER] {
    let mut bytes = [b' '; HEADER];
    bytes[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
    bytes[8..10].copy_from_slice(&(HEADER as u16 - 10).to_le_bytes());
    let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {dim}), }}");
    bytes[10..10 + text.len()].copy_from_slice(text.as_bytes());
    bytes[HEADER - 1] = b'\n';
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
        assert_eq!(header(usize::MAX, usize::MAX).len() % 64, 0);
    }
}
