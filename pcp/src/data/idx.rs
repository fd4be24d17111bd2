//! idx files, as those of MNIST and its family (Fashion-MNIST, KMNIST, EMNIST): grey images in one file, their classes in
//! another, each compressed by gzip or not.
//!
//! An idx file is two zero bytes, the type of its values (8: bytes), the number of its dimensions, each dimension as four
//! bytes with the highest first, and the values. Images are the files called `*images*idx3*`; `t10k` or `test` in the name
//! makes them the test split. The classes of `x-images-idx3-ubyte` are in `x-labels-idx1-ubyte`. Images below 32 px get a
//! black border to it: those of 28 px become 32.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use rayon::prelude::*;

use super::images::{ReadImage, ReadRow};
use super::memory_budget::MemoryBudget;
use super::origin::{FileStamp, Origin, RecordLayout, Records, Stamp};
use super::{Dataset, Images, Labels, Load, Split, Tick};
use pcp_core::error::{Error, Result, listed};

/// The side to which smaller images are padded.
const PADDED: usize = 32;
/// The largest side of an image.
const LARGEST: usize = 4096;
/// Limit on the unpacked size of one file: a small compressed file can unpack to any size.
const MOST: u64 = 4 << 30;

/// The header of an idx file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// Images, or classes, then height and width.
    pub shape: Vec<usize>,
    /// Bytes before the first value.
    pub header: usize,
}

/// Parses the header of an idx file of bytes and checks it against the file's `length`; the error completes "the file ...".
pub fn header(bytes: &[u8], length: u64) -> std::result::Result<Idx, String> {
    let Some(&[0, 0, kind, dimensions]) = bytes.get(..4) else { return Err("is no idx file".into()) };
    if kind != 8 {
        return Err(format!("holds values of type {kind:#04x}, not bytes (0x08)"));
    }
    if !(1..=3).contains(&dimensions) {
        return Err(format!("has {dimensions} dimensions"));
    }
    let header = 4 + 4 * usize::from(dimensions);
    let Some(sizes) = bytes.get(4..header) else { return Err("is truncated within its header".into()) };
    let shape: Vec<usize> = sizes.as_chunks::<4>().0.iter().map(|size| u32::from_be_bytes(*size) as usize).collect();
    let values = shape.iter().try_fold(1u64, |all, size| all.checked_mul(*size as u64));
    match values.and_then(|n| n.checked_add(header as u64)) {
        Some(expected) if expected == length => Ok(Idx { shape, header }),
        Some(expected) => {
            let part = if length < expected { "truncated" } else { "too long" };
            Err(format!("is {part}: {length} bytes instead of {expected}"))
        }
        None => Err("has a header with too many values".into()),
    }
}

/// Unpacks `bytes` if they are gzip; an error beyond `most` bytes.
pub fn unpacked(bytes: Vec<u8>, most: u64) -> std::result::Result<Vec<u8>, String> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut out = Vec::new();
    GzDecoder::new(bytes.as_slice())
        .take(most.saturating_add(1))
        .read_to_end(&mut out)
        .map_err(|error| format!("is damaged: {error}"))?;
    if out.len() as u64 > most { Err(format!("is larger than {} MiB when unpacked", most >> 20)) } else { Ok(out) }
}

/// The lower-case name of an idx file of images without `.gz`; `None` for other files.
fn image_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.to_lowercase();
    let name = name.strip_suffix(".gz").map(String::from).unwrap_or(name);
    (name.contains("images") && name.contains("idx3")).then_some(name)
}

/// Whether `path` is a folder with idx files of images, or such a file.
pub fn is_source(path: &Path) -> bool {
    match path.is_dir() {
        true => listing(path).is_some_and(|paths| paths.iter().any(|path| image_name(path).is_some())),
        false => path.is_file() && image_name(path).is_some(),
    }
}

/// The files in `dir`, in order of their names.
fn listing(dir: &Path) -> Option<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Some(paths)
}

/// Whether the file name is that of test images.
fn is_test(name: &str) -> bool {
    name.contains("t10k") || name.contains("test")
}

/// The file of training images, and that of test images.
fn find(path: &Path) -> Result<(PathBuf, Option<PathBuf>)> {
    let dir = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let (mut train, mut test) = (Vec::<(String, PathBuf)>::new(), Vec::<(String, PathBuf)>::new());
    for path in listing(dir).unwrap_or_default() {
        let Some(name) = image_name(&path) else { continue };
        let split = if is_test(&name) { &mut test } else { &mut train };
        // A file and its compressed copy are one.
        if split.last().is_none_or(|(last, _)| *last != name) {
            split.push((name, path));
        }
    }
    if path.is_file() {
        // One file of several in a folder: its test images are in the file whose name differs only in train/test.
        let own = image_name(path).unwrap_or_default();
        let twin = |name: &str| [name.replace("t10k", "train"), name.replace("test", "train")].contains(&own);
        let test = test.into_iter().find(|(name, path_)| twin(name) && path_ != path);
        return Ok((path.to_path_buf(), test.map(|(_, path)| path)));
    }
    let several = |files: &[(String, PathBuf)]| {
        let names = listed(files.iter().map(|(name, _)| name));
        Error::data(
            format!("{} holds several sets: {names}", path.display()),
            "give the file of training images instead of the folder",
        )
    };
    match (train.len(), test.len()) {
        (1, 0 | 1) => Ok((train.remove(0).1, test.pop().map(|(_, path)| path))),
        (0, 1) => Ok((test.remove(0).1, None)),
        (0 | 1, _) => Err(several(&test)),
        _ => Err(several(&train)),
    }
}

/// The file of classes that belongs to that of `images`.
fn labels_beside(images: &Path) -> Option<PathBuf> {
    let own = image_name(images)?.replace("images", "labels").replace("idx3", "idx1");
    let name = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).map(str::to_lowercase);
    let same = |path: &PathBuf| name(path).is_some_and(|name| name.strip_suffix(".gz").unwrap_or(&name) == own);
    listing(images.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.into_iter().find(same)
}

/// An idx file in memory.
struct Whole {
    idx: Idx,
    bytes: Vec<u8>,
    packed: bool,
    stamp: FileStamp,
}

fn wrong(path: &Path, what: &str) -> Error {
    Error::data(format!("{} {what}", path.display()), "get the file again")
}

fn read_whole(path: &Path) -> Result<Whole> {
    let cannot = |error: std::io::Error| Error::io("read", path, &error);
    let stamp = Stamp::of(path).map_err(cannot)?;
    if stamp.size > MOST {
        return Err(wrong(path, &format!("is larger than {} MiB", MOST >> 20)));
    }
    let mut bytes = Vec::new();
    File::open(path).map_err(cannot)?.take(MOST).read_to_end(&mut bytes).map_err(cannot)?;
    let packed = bytes.starts_with(&[0x1f, 0x8b]);
    let bytes = unpacked(bytes, MOST).map_err(|what| wrong(path, &what))?;
    let idx = header(&bytes, bytes.len() as u64).map_err(|what| wrong(path, &what))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Whole { idx, bytes, packed, stamp: FileStamp { name, stamp } })
}

/// The classes of the images in `images`, one byte each, where there is a file of them.
fn read_labels(images: &Path, count: usize, stamps: &mut Vec<FileStamp>) -> Result<Option<Vec<u8>>> {
    let Some(path) = labels_beside(images) else { return Ok(None) };
    let mut whole = read_whole(&path)?;
    if whole.idx.shape != [count] {
        return Err(wrong(&path, &format!("holds classes of shape {:?} for {count} images", whole.idx.shape)));
    }
    stamps.push(whole.stamp);
    Ok(Some(whole.bytes.split_off(whole.idx.header)))
}

/// Reads the images, of those to learn from the first `limit`.
pub(super) fn read(path: &Path, load: &Load, tick: Tick) -> Result<Dataset> {
    let (train_file, test_file) = find(path)?;
    let budget = MemoryBudget::new(load.cache, &*load.team);
    let mut stamps = Vec::new();
    let mut next_id = 0;
    let mut split = |file: &Path, limit: usize| -> Result<(Vec<ReadRow>, Option<Vec<u8>>)> {
        let whole = read_whole(file)?;
        let &[count, height, width] = whole.idx.shape.as_slice() else {
            return Err(wrong(file, &format!("holds values of shape {:?}, not images", whole.idx.shape)));
        };
        if !(1..=LARGEST).contains(&height) || !(1..=LARGEST).contains(&width) {
            return Err(wrong(file, &format!("holds images of {width} x {height} pixels, not 1 to {LARGEST} a side")));
        }
        let labels = if load.labels { read_labels(file, count, &mut stamps)? } else { None };
        let layout = RecordLayout::Grey { width, height, padded: PADDED };
        let header = whole.idx.header;
        let stem = whole.stamp.name.trim_end_matches(".gz").to_string();
        let own = |r: usize| {
            let image = layout.image(&whole.bytes[header + r * layout.bytes()..][..layout.bytes()]);
            let (id, name) = (next_id + r as u64, format!("{stem}/{r:05}"));
            let reader = load.team.holder(r, count.min(limit));
            (id, name.clone(), ReadImage::shared(id, &name, image, &budget, reader, &load.team))
        };
        let seen: Vec<_> = (0..count.min(limit)).into_par_iter().map(own).collect();
        next_id += count as u64;
        // Records of a compressed file cannot be read singly from the disk, so its bytes are kept until the memory budget is known.
        let held = whole.packed.then_some(whole.bytes);
        let stamp = Some(whole.stamp.stamp);
        let origin = Arc::new(Records { path: file.into(), stamp, held, header, labels: 0, layout });
        stamps.push(whole.stamp);
        let row = |(r, (id, name, seen))| ReadRow { id, name, origin: Origin::Record(origin.clone(), r), seen };
        let (mut rows, mut labels) = (seen.into_iter().enumerate().map(row).collect(), labels);
        labels.iter_mut().for_each(|labels| labels.truncate(limit));
        load.leave_out(&mut rows, labels.as_mut().unwrap_or(&mut Vec::new()));
        Ok((rows, labels))
    };
    tick(0, 2);
    let (train, train_labels) = split(&train_file, load.limit.unwrap_or(usize::MAX))?;
    tick(1, 2);
    let test = test_file.map(|file| split(&file, usize::MAX)).transpose()?;
    tick(2, 2);
    let values: BTreeSet<u8> = train_labels.iter().chain(test.iter().flat_map(|t| &t.1)).flatten().copied().collect();
    let values: Vec<u8> = values.into_iter().collect();
    // Classes without training images cannot be evaluated.
    let known = train_labels.is_some() && values.len() > 1;
    let labels = |of: Option<Vec<u8>>| {
        let place = |label: &u8| values.partition_point(|value| value < label) as u32;
        let classes = || values.iter().map(u8::to_string).collect();
        of.filter(|_| known).map(|of| Labels { classes: classes(), of: of.iter().map(place).collect() })
    };
    let images = |rows| Images::of(rows, &budget, None, &load.team);
    let test = test.filter(|(rows, _)| !rows.is_empty());
    let test = test.map(|(rows, of)| Split { images: images(rows), labels: labels(of) });
    let name = path.canonicalize().ok().and_then(|p| Some(p.file_stem()?.to_string_lossy().into_owned()));
    Ok(Dataset {
        name: name.unwrap_or_else(|| "idx".into()),
        train: Split { images: images(train), labels: labels(train_labels) },
        test,
        stamps,
        ..Dataset::default()
    })
}

#[cfg(test)]
mod tests;
