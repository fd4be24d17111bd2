//! The origin of an image, from which it can be read again, and the state of its file when it was first read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::Image;
use super::decode::{self, Reason};

/// A file's size and modification time: a file with the same stamp counts as unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Size in bytes.
    pub size: u64,
    /// Nanoseconds since 1970; 0 where the file system keeps no times.
    pub modified: i64,
}

impl Stamp {
    /// The stamp of the file at `path`.
    pub fn of(path: &Path) -> std::io::Result<Stamp> {
        let about = std::fs::metadata(path)?;
        let since = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(Stamp { size: about.len(), modified: since.and_then(|s| i64::try_from(s.as_nanos()).ok()).unwrap_or(0) })
    }
}

/// A file of the data set and its stamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// Its name, relative to the data set.
    pub name: String,
    /// Its stamp.
    pub stamp: Stamp,
}

/// The origin of an image.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// A file, and its stamp when it was first read.
    Path(PathBuf, Option<Stamp>),
    /// An encoded image in memory.
    Bytes(Arc<[u8]>),
    /// A record of a file of records.
    Record(Arc<Records>, usize),
}

impl Origin {
    /// Reads the image; files are shrunk to a short side of `side`, records stay as they are.
    pub fn read(&self, side: Option<usize>) -> Result<Image, Reason> {
        match self {
            Origin::Path(path, stamp) => {
                if stamp.is_some() && Stamp::of(path).ok() != *stamp {
                    return Err("is gone or was changed".into());
                }
                side.map_or_else(|| decode::file(path), |side| decode::shrunk_file(path, side))
            }
            Origin::Bytes(bytes) => side.map_or_else(|| decode::bytes(bytes), |side| decode::shrunk_bytes(bytes, side)),
            Origin::Record(records, index) => records.read(*index),
        }
    }
}

/// The pixel layout of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordLayout {
    /// A red, a green and a blue plane.
    Planes { side: usize },
    /// One grey plane; sides shorter than `padded` are padded with black.
    Grey { width: usize, height: usize, padded: usize },
}

impl RecordLayout {
    /// Bytes of a record's pixels.
    pub fn bytes(self) -> usize {
        match self {
            RecordLayout::Planes { side } => 3 * side * side,
            RecordLayout::Grey { width, height, .. } => width * height,
        }
    }

    /// The image of a record's pixels.
    pub fn image(self, pixels: &[u8]) -> Image {
        match self {
            RecordLayout::Planes { side } => {
                let n = side * side;
                let pixels = (0..n).flat_map(|p| [pixels[p], pixels[n + p], pixels[2 * n + p]]).collect();
                Image { width: side, height: side, pixels }
            }
            RecordLayout::Grey { width, height, padded } => {
                let (w, h) = (width.max(padded), height.max(padded));
                let (left, top) = ((w - width) / 2, (h - height) / 2);
                let mut out = vec![0; w * h * 3];
                for (y, row) in pixels.chunks_exact(width.max(1)).enumerate() {
                    for (x, value) in row.iter().enumerate() {
                        out[((top + y) * w + left + x) * 3..][..3].fill(*value);
                    }
                }
                Image { width: w, height: h, pixels: out }
            }
        }
    }
}

/// A file of records of one length.
#[derive(Debug)]
pub(super) struct Records {
    pub path: PathBuf,
    pub stamp: Option<Stamp>,
    /// Its unpacked bytes, if the file is compressed.
    pub held: Option<Vec<u8>>,
    /// Bytes before the first record, and bytes of a record before its pixels.
    pub header: usize,
    pub labels: usize,
    pub layout: RecordLayout,
}

impl Records {
    /// Bytes of a record.
    pub fn length(&self) -> usize {
        self.labels + self.layout.bytes()
    }

    fn read(&self, index: usize) -> Result<Image, Reason> {
        let at = self.header + index * self.length() + self.labels;
        if let Some(bytes) = &self.held {
            return Ok(self.layout.image(&bytes[at..at + self.layout.bytes()]));
        }
        if Stamp::of(&self.path).ok() != self.stamp {
            return Err(format!("is gone or was changed ({})", self.path.display()));
        }
        let mut pixels = vec![0; self.layout.bytes()];
        let mut read = || -> std::io::Result<()> {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(at as u64))?;
            file.read_exact(&mut pixels)
        };
        read().map_err(|error| format!("cannot be read: {error}"))?;
        Ok(self.layout.image(&pixels))
    }
}
