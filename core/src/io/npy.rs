//! NumPy files: `.npy` arrays and compressed `.npz` archives of them.

mod header;
mod matrix;
mod rows;

pub(crate) use matrix::Number;
pub use matrix::read_matrix;
pub(crate) use matrix::read_numbers;
pub use rows::NpyRows;

use crate::error::{Error, Result};
use crate::io::atomic::{read_bytes, write_atomic};
use crate::memory;
use header::Header;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use zip::write::{SimpleFileOptions, ZipWriter};

/// A number type of arrays.
pub trait Element: Copy {
    /// NumPy's name for it.
    const DESCR: &'static str;
    /// Appends it to `out`, little-endian.
    fn put(self, out: &mut Vec<u8>);
    /// All numbers in `bytes`.
    fn get(bytes: &[u8], big: bool) -> Vec<Self>;
}

macro_rules! element {
    ($($kind:ty = $descr:literal),*) => {$(
        impl Element for $kind {
            const DESCR: &'static str = $descr;

            fn put(self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }

            fn get(bytes: &[u8], big: bool) -> Vec<Self> {
                let number = if big { <$kind>::from_be_bytes } else { <$kind>::from_le_bytes };
                bytes.as_chunks().0.iter().map(|b| number(*b)).collect()
            }
        }
    )*};
}
element!(u8 = "|u1", u32 = "<u4", u64 = "<u8", i64 = "<i8", f32 = "<f4", f64 = "<f8");

/// Numbers written at a time.
const CHUNK: usize = 1 << 16;

fn put<T: Element>(mut out: impl Write, shape: &[usize], values: &[T]) -> io::Result<()> {
    assert_eq!(
        values.len(),
        shape.iter().product::<usize>(),
        "{} values do not have the shape {shape:?}",
        values.len()
    );
    out.write_all(&header::written(T::DESCR, shape))?;
    let mut bytes = Vec::new();
    for chunk in values.chunks(CHUNK) {
        bytes.clear();
        chunk.iter().for_each(|value| value.put(&mut bytes));
        out.write_all(&bytes)?;
    }
    Ok(())
}

/// Writes one array to `path`.
pub fn write_npy<T: Element>(path: &Path, shape: &[usize], values: &[T]) -> Result<()> {
    write_atomic(path, |w| put(w, shape, values))
}

/// A `.npz` archive that is being written.
pub struct Npz<W: Write + Seek>(ZipWriter<W>);

impl<W: Write + Seek> Npz<W> {
    /// Adds the vector `name`.
    pub fn add<T: Element>(&mut self, name: &str, values: &[T]) -> io::Result<()> {
        self.add_shaped(name, &[values.len()], values)
    }

    /// Adds the array `name` of this shape.
    pub fn add_shaped<T: Element>(&mut self, name: &str, shape: &[usize], values: &[T]) -> io::Result<()> {
        // Without a time stamp, so that equal contents give equal files.
        let options = SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated)
            .last_modified_time(zip::DateTime::default());
        self.0.start_file(format!("{name}.npy"), options).map_err(io::Error::other)?;
        put(&mut self.0, shape, values)
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
pub fn read_npz<T: Element>(path: &Path, name: &str) -> Result<Vec<T>> {
    let wrong = |what: String| Error::file(format!("{}: {name}: {what}", path.display()), "make the file again");
    let mut zip = zip::ZipArchive::new(io::Cursor::new(read_bytes(path)?)).map_err(|e| wrong(e.to_string()))?;
    let file = zip.by_name(&format!("{name}.npy")).map_err(|e| wrong(e.to_string()))?;
    // A small compressed file can unpack to any size. Growing vectors take twice their size, and the numbers are copied once.
    let most = match file.size() <= memory::SMALL {
        true => memory::SMALL,
        false => memory::free().map_or(MOST_UNPACKED, |free| MOST_UNPACKED.min(free / 4)),
    };
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| wrong(e.to_string()))?;
    if bytes.len() as u64 > most {
        return Err(wrong(format!(
            "it is larger than {} MiB when unpacked, which is too much for the free memory",
            most >> 20
        )));
    }
    let mut data = bytes.as_slice();
    let header = Header::read(&mut data).map_err(|e| wrong(e.to_string()))?;
    let big = header.is_big(T::DESCR).ok_or_else(|| wrong(format!("its numbers are {}", header.descr)))?;
    let length = header.count().and_then(|n| n.checked_mul(size_of::<T>() as u64)).filter(|n| *n <= data.len() as u64);
    let Some(length) = length else {
        return Err(wrong(format!("the file is truncated: its header announces the shape {:?}", header.shape)));
    };
    Ok(T::get(&data[..length as usize], big))
}

/// Limit on the bytes of one array in an archive.
const MOST_UNPACKED: u64 = 4 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        write_npy(&path, &[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.5]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut data = bytes.as_slice();
        assert_eq!(Header::read(&mut data).unwrap().shape, [2, 3]);
        assert_eq!(f32::get(data, false), [1.0, 2.0, 3.0, 4.0, 5.0, 6.5]);
        let many: Vec<u32> = (0..CHUNK as u32 + 7).collect();
        write_npy(&path, &[many.len()], &many).unwrap();
        assert_eq!(u32::get(&std::fs::read(&path).unwrap()[128..], false), many);
        assert_eq!((u8::get(&[1, 2], true), u32::get(&[0, 0, 1, 2], true)), (vec![1, 2], vec![258]));
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
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(read_npz::<u32>(&path, "label").unwrap_err().message.contains("a.npz"));
    }
}
