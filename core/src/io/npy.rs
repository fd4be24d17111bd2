//! NumPy files: `.npy` arrays and compressed `.npz` archives of them.

mod matrix;
mod rows;

pub(crate) use matrix::Number;
pub use matrix::{read_matrix, read_numbers};
pub use rows::NpyRows;

use crate::error::{Error, Result};
use crate::io::atomic::{read_bytes, write_atomic};
use npyz::{AutoSerialize, Deserialize, WriterBuilder};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use zip::write::{SimpleFileOptions, ZipWriter};

fn put<T: AutoSerialize + Copy>(out: impl Write, shape: &[u64], values: &[T]) -> io::Result<()> {
    let mut npy = npyz::WriteOptions::new().default_dtype().shape(shape).writer(out).begin_nd()?;
    npy.extend(values.iter().copied())?;
    npy.finish()
}

/// Writes one array to `path`.
pub fn write_npy<T: AutoSerialize + Copy>(path: &Path, shape: &[usize], values: &[T]) -> Result<()> {
    let shape: Vec<u64> = shape.iter().map(|n| *n as u64).collect();
    write_atomic(path, |w| put(w, &shape, values))
}

/// A `.npz` archive of vectors being written.
pub struct Npz<W: Write + Seek>(ZipWriter<W>);

impl<W: Write + Seek> Npz<W> {
    /// Adds the vector `name`.
    pub fn add<T: AutoSerialize + Copy>(&mut self, name: &str, values: &[T]) -> io::Result<()> {
        self.add_shaped(name, &[values.len()], values)
    }

    /// Adds the array `name` of this shape.
    pub fn add_shaped<T: AutoSerialize + Copy>(&mut self, name: &str, shape: &[usize], values: &[T]) -> io::Result<()> {
        let shape: Vec<u64> = shape.iter().map(|n| *n as u64).collect();
        // No time stamp: equal contents give equal files.
        let options = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated)
            .last_modified_time(zip::DateTime::default());
        self.0.start_file(format!("{name}.npy"), options).map_err(io::Error::other)?;
        put(&mut self.0, &shape, values)
    }
}

/// Writes a compressed archive to `path`.
pub fn write_npz(path: &Path, fill: impl FnOnce(&mut Npz<io::Cursor<Vec<u8>>>) -> io::Result<()>) -> Result<()> {
    write_atomic(path, |w| {
        let mut npz = Npz(ZipWriter::new(io::Cursor::new(Vec::new())));
        fill(&mut npz)?;
        w.write_all(npz.0.finish().map_err(io::Error::other)?.get_ref())
    })
}

/// The vector `name` of the archive `path`.
pub fn read_npz<T: Deserialize>(path: &Path, name: &str) -> Result<Vec<T>> {
    let wrong = |what: String| Error::file(format!("{}: {name}: {what}", path.display()), "make the file again");
    let mut zip = zip::ZipArchive::new(io::Cursor::new(read_bytes(path)?)).map_err(|e| wrong(e.to_string()))?;
    let file = zip.by_name(&format!("{name}.npy")).map_err(|e| wrong(e.to_string()))?;
    // A small file can unpack to any size.
    let mut bytes = Vec::new();
    file.take(MOST_UNPACKED + 1).read_to_end(&mut bytes).map_err(|e| wrong(e.to_string()))?;
    if bytes.len() as u64 > MOST_UNPACKED {
        return Err(wrong(format!("it is larger than {} MiB when unpacked", MOST_UNPACKED >> 20)));
    }
    if !header_fits(&bytes, bytes.len() as u64) {
        return Err(wrong("the file ends within its header".into()));
    }
    let npy = npyz::NpyFile::new(bytes.as_slice()).map_err(|e| wrong(e.to_string()))?;
    let promised = npy.shape().iter().try_fold(1u64, |all, n| all.checked_mul(*n));
    if promised.is_none_or(|n| n > bytes.len() as u64) {
        return Err(wrong(format!("{:?} numbers are promised, but the file ends before them", npy.shape())));
    }
    npy.into_vec().map_err(|e| wrong(e.to_string()))
}

/// The most bytes of one array in an archive.
const MOST_UNPACKED: u64 = 4 << 30;

/// Whether the header of a file of `length` bytes, which begins with `start`, can be as long as it claims: room is made for
/// it before it is read.
fn header_fits(start: &[u8], length: u64) -> bool {
    let claimed = match start {
        [_, _, _, _, _, _, 1, _, a, b, ..] => u64::from(u16::from_le_bytes([*a, *b])),
        [_, _, _, _, _, _, _, _, a, b, c, d, ..] => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => return false,
    };
    claimed <= length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        write_npy(&path, &[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.5]).unwrap();
        let npy = npyz::NpyFile::new(std::fs::File::open(&path).unwrap()).unwrap();
        assert_eq!(npy.shape(), &[2, 3]);
        assert_eq!(npy.into_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.5]);
    }

    #[test]
    fn archives_come_back_and_are_reproducible() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = dir.path().join(name);
            write_npz(&path, |z| {
                z.add("label", &[1u32, 2, 3])?;
                z.add("vote", &[f32::NAN, 0.5])
            })
            .unwrap();
            std::fs::read(path).unwrap()
        };
        let bytes = write("a.npz");
        assert_eq!(bytes, write("b.npz"));
        let path = dir.path().join("a.npz");
        assert_eq!(read_npz::<u32>(&path, "label").unwrap(), [1, 2, 3]);
        assert_eq!(read_npz::<f32>(&path, "vote").unwrap()[1], 0.5);
        assert!(read_npz::<u32>(&path, "votes").unwrap_err().message.contains("votes"));
        assert!(read_npz::<u32>(&path, "vote").is_err(), "of another type");
        let npy = std::fs::read({
            write_npy(&dir.path().join("x.npy"), &[1], &[1u32]).unwrap();
            dir.path().join("x.npy")
        })
        .unwrap();
        assert!(header_fits(&npy, npy.len() as u64));
        assert!(!header_fits(&npy[..9], 9) && !header_fits(b"\x93NUMPY\x01\0\xff\xff", 100));
        assert!(!header_fits(b"\x93NUMPY\x03\0\xff\xff\xff\xff", 4000), "four bytes of length");
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(read_npz::<u32>(&path, "label").unwrap_err().message.contains("a.npz"));
    }
}
