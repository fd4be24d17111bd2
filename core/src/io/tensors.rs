//! Named arrays in a safetensors file with a description and a checksum: other tools can read it, and damage is detected.
//!
//! The metadata entry `pcp` is JSON with `about` and the SHA-256 of `about` and all arrays. It is a single entry because the
//! format's map of entries has no order, and equal contents must give equal files.

use crate::error::{Error, Result};
use crate::io::atomic::{read_bytes, retried, write_bytes, write_new};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

const ENTRY: &str = "pcp";

/// An array of numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// 32-bit floats.
    F32(Vec<usize>, Vec<f32>),
    /// 32-bit unsigned integers.
    U32(Vec<usize>, Vec<u32>),
}

/// Arrays by name, and a description of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensors<A> {
    /// The description.
    pub about: A,
    /// The arrays.
    pub arrays: BTreeMap<String, Array>,
}

#[derive(Serialize, Deserialize)]
struct Entry<A> {
    about: A,
    sha256: String,
}

impl Array {
    fn bytes(&self) -> (Dtype, &[usize], Vec<u8>) {
        match self {
            Array::F32(shape, v) => (Dtype::F32, shape, v.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Array::U32(shape, v) => (Dtype::U32, shape, v.iter().flat_map(|x| x.to_le_bytes()).collect()),
        }
    }

    fn from_view(view: &TensorView) -> Option<Array> {
        let words = || view.data().as_chunks::<4>().0.iter();
        let shape = view.shape().to_vec();
        match view.dtype() {
            Dtype::F32 => Some(Array::F32(shape, words().map(|b| f32::from_le_bytes(*b)).collect())),
            Dtype::U32 => Some(Array::U32(shape, words().map(|b| u32::from_le_bytes(*b)).collect())),
            _ => None,
        }
    }
}

impl<A: Serialize + for<'a> Deserialize<'a>> Tensors<A> {
    /// Writes the file atomically.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_bytes(path, &self.bytes(path)?)
    }

    /// The same for a file that must not be there yet: one that another process makes meanwhile stays, and this is an error.
    pub fn write_new(&self, path: &Path) -> Result<()> {
        let bytes = self.bytes(path)?;
        write_new(path, |w| w.write_all(&bytes))
    }

    /// The contents of the file `path`.
    fn bytes(&self, path: &Path) -> Result<Vec<u8>> {
        let fail = |e: &dyn std::fmt::Display| Error::file(format!("{}: {e}", path.display()), "please report this");
        let arrays: Vec<_> = self.arrays.iter().map(|(name, array)| (name.as_str(), array.bytes())).collect();
        let about = serde_json::to_value(&self.about).map_err(|e| fail(&e))?;
        let sha256 = digest(&about, arrays.iter().map(|(name, (_, shape, bytes))| (*name, *shape, bytes.as_slice())));
        let entry = serde_json::to_string(&Entry { about, sha256 }).map_err(|e| fail(&e))?;
        let views = arrays
            .iter()
            .map(|(name, (dtype, shape, bytes))| Ok((*name, TensorView::new(*dtype, shape.to_vec(), bytes)?)))
            .collect::<std::result::Result<Vec<_>, safetensors::SafeTensorError>>()
            .map_err(|e| fail(&e))?;
        let metadata = HashMap::from([(ENTRY.to_string(), entry)]);
        safetensors::serialize(views, Some(metadata)).map_err(|e| fail(&e))
    }

    /// Reads a file and verifies its checksum.
    pub fn read(path: &Path) -> Result<Self> {
        Self::verified(&read_bytes(path)?, path)
    }

    /// Reads a file of this program or of another one.
    pub fn read_any(path: &Path) -> Result<Source<A>> {
        let bytes = read_bytes(path)?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| foreign(path, &e.to_string()))?;
        match header.metadata().as_ref().is_some_and(|m| m.contains_key(ENTRY)) {
            true => Self::verified(&bytes, path).map(Source::Ours),
            false => arrays(&bytes, path).map(Source::Theirs),
        }
    }

    fn verified(bytes: &[u8], path: &Path) -> Result<Self> {
        let damaged =
            |why| Error::file(format!("{} is damaged: {why}", path.display()), "use another file, or make it again");
        let other = |why| {
            let message = format!("{} is a file of another kind or version: {why}", path.display());
            Error::file(message, "use another file; the network of a run is in its model.safetensors")
        };
        let (about, arrays) = parse(bytes).map_err(damaged)?;
        Ok(Tensors { about: serde_json::from_value(about).map_err(other)?, arrays })
    }

    /// Takes out the floats called `name`.
    pub fn take_f32(&mut self, name: &str) -> Result<(Vec<usize>, Vec<f32>)> {
        match self.arrays.remove(name) {
            Some(Array::F32(shape, values)) => Ok((shape, values)),
            _ => Err(missing(name)),
        }
    }

    /// Takes out the integers called `name`.
    pub fn take_u32(&mut self, name: &str) -> Result<(Vec<usize>, Vec<u32>)> {
        match self.arrays.remove(name) {
            Some(Array::U32(shape, values)) => Ok((shape, values)),
            _ => Err(missing(name)),
        }
    }
}

/// The description and the arrays of a file that this program wrote; verifies the checksum.
fn parse(bytes: &[u8]) -> std::result::Result<(serde_json::Value, BTreeMap<String, Array>), String> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| e.to_string())?;
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| e.to_string())?;
    let entry = header.metadata().as_ref().and_then(|m| m.get(ENTRY)).ok_or("it was not written by pcp")?;
    let entry: Entry<serde_json::Value> = serde_json::from_str(entry).map_err(|e| e.to_string())?;
    let mut views = file.tensors();
    views.sort_by(|a, b| a.0.cmp(&b.0));
    let found = digest(&entry.about, views.iter().map(|(name, v)| (name.as_str(), v.shape(), v.data())));
    if found != entry.sha256 {
        return Err("its checksum does not match".into());
    }
    let mut arrays = BTreeMap::new();
    for (name, view) in &views {
        let array = Array::from_view(view).ok_or_else(|| format!("{name} has an unknown type"))?;
        arrays.insert(name.clone(), array);
    }
    Ok((entry.about, arrays))
}

/// The contents of a safetensors file, depending on the program that wrote it.
#[derive(Clone, Debug, PartialEq)]
pub enum Source<A> {
    /// Written by this program: with a description, and verified.
    Ours(Tensors<A>),
    /// Written by another program: arrays only.
    Theirs(BTreeMap<String, Array>),
}

/// The arrays of a safetensors file of any program; arrays of types other than f32 and u32 are ignored.
pub fn read_arrays(path: &Path) -> Result<BTreeMap<String, Array>> {
    arrays(&read_bytes(path)?, path)
}

fn arrays(bytes: &[u8], path: &Path) -> Result<BTreeMap<String, Array>> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| foreign(path, &e.to_string()))?;
    let array = |(name, view): (String, TensorView)| Some((name, Array::from_view(&view)?));
    Ok(file.tensors().into_iter().filter_map(array).collect())
}

fn foreign(path: &Path, why: &str) -> Error {
    Error::file(format!("{} is not a safetensors file, or damaged: {why}", path.display()), "use another file")
}

fn missing(name: &str) -> Error {
    Error::file(format!("the array {name} is missing"), "the file is of another version: use the one that wrote it")
}

fn digest<'a>(about: &serde_json::Value, arrays: impl Iterator<Item = (&'a str, &'a [usize], &'a [u8])>) -> String {
    let mut hash = Sha256::new();
    hash.update(about.to_string());
    for (name, shape, bytes) in arrays {
        hash.update(format!("\0{name}{shape:?}"));
        hash.update(bytes);
    }
    hex(&hash.finalize())
}

/// The SHA-256 of a file, in hexadecimal digits.
pub fn sha256_of(path: &Path) -> Result<String> {
    let read = || {
        let (mut file, mut hash, mut buffer) = (File::open(path)?, Sha256::new(), vec![0; 1 << 20]);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hex(&hash.finalize())),
                n => hash.update(&buffer[..n]),
            }
        }
    };
    retried(read).map_err(|e| Error::io("read", path, &e))
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Tensors<Vec<f64>> {
        let arrays = [
            ("b".to_string(), Array::F32(vec![2, 2], vec![1.0, -0.0, f32::MIN_POSITIVE, 4.5])),
            ("a".to_string(), Array::U32(vec![3], vec![7, 0, u32::MAX])),
            ("empty".to_string(), Array::U32(vec![0], vec![])),
        ];
        Tensors { about: vec![0.1 + 0.2, 1e-300], arrays: arrays.into() }
    }

    #[test]
    fn what_is_written_is_read_and_equal_contents_give_equal_files() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("1"), dir.path().join("2"));
        example().write(&one).unwrap();
        example().write(&two).unwrap();
        assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&two).unwrap());
        assert_eq!(Tensors::<Vec<f64>>::read(&one).unwrap(), example());
    }

    #[test]
    fn files_of_other_programs_are_recognised_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
        example().write(&ours).unwrap();
        let bytes = 2.5f32.to_le_bytes();
        let view = TensorView::new(Dtype::F32, vec![1], &bytes).unwrap();
        std::fs::write(&theirs, safetensors::serialize([("w", view)], None).unwrap()).unwrap();
        let any = Tensors::<Vec<f64>>::read_any;
        assert_eq!(any(&ours).unwrap(), Source::Ours(example()));
        assert_eq!(any(&theirs).unwrap(), Source::Theirs(read_arrays(&theirs).unwrap()));
        assert_eq!(read_arrays(&theirs).unwrap(), [("w".to_string(), Array::F32(vec![1], vec![2.5]))].into());
        assert_eq!(read_arrays(&ours).unwrap(), example().arrays);
        std::fs::write(&theirs, b"hello").unwrap();
        assert!(any(&theirs).is_err() && read_arrays(&theirs).is_err());
    }

    #[test]
    fn every_flipped_byte_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        example().write(&path).unwrap();
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            // Only padding after the header may change.
            if let Ok(read) = Tensors::<Vec<f64>>::verified(&bad, &path) {
                assert_eq!(read, example(), "byte {at} of {} changed undetected", good.len());
            }
        }
        for cut in 0..good.len() {
            assert!(Tensors::<Vec<f64>>::verified(&good[..cut], &path).is_err(), "cut to {cut} undetected");
        }
        let other = Tensors::<String>::verified(&good, &path).unwrap_err();
        assert!(other.message.contains("of another kind"), "{other}");
    }
}
