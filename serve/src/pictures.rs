//! Pictures of the rows: found once by name, read by number, shrunk, and the small ones held.

use crate::subject::locked;
use image::codecs::jpeg::JpegEncoder;
use image::{ExtendedColorType, ImageEncoder};
use pcp::config::Cache;
use pcp::data::folder::list;
use pcp::data::resize::shrink;
use pcp::data::{self, Dataset, Image, Load, Source, Stamp, decode};
use pcp::run::RunFolder;
use pcp_core::error::{Error, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Short side of a thumbnail, and the long side at the most.
const SMALL: usize = 160;
/// Long side of a whole picture at the most.
const WHOLE: usize = 2560;
/// Bytes of thumbnails that are held.
const HELD: usize = 64 << 20;

/// Where pictures are looked for.
pub enum GallerySource<'a> {
    /// Where the run was trained on them: only files that are as they were then.
    OfRun(&'a RunFolder),
    /// Below a folder that the user named.
    Below(&'a Path),
    /// Nowhere.
    Nowhere,
}

/// The picture of one row.
enum Original {
    /// A file; with a stamp, only while it has that.
    File(PathBuf, Option<Stamp>),
    /// A row of the data set.
    Row(usize),
    /// Unknown.
    None,
}

/// The pictures of all rows.
pub struct Gallery {
    originals: Vec<Original>,
    data: Option<Arc<Dataset>>,
    held: Mutex<Held>,
    /// Why pictures are missing, for people.
    pub note: Option<String>,
}

/// A picture as a file, and when it was last asked for.
type Used = (Arc<Vec<u8>>, u64);
/// The stamp of a file by its name, where it is known.
type StampOf<'a> = dyn Fn(&str) -> Option<Stamp> + 'a;

/// Thumbnails by row, with the time of their last use.
#[derive(Default)]
struct Held {
    bytes: usize,
    clock: u64,
    by_row: HashMap<(u32, bool), Used>,
}

impl Held {
    fn get(&mut self, key: (u32, bool)) -> Option<Arc<Vec<u8>>> {
        self.clock += 1;
        let (jpeg, used) = self.by_row.get_mut(&key)?;
        *used = self.clock;
        Some(jpeg.clone())
    }

    fn put(&mut self, key: (u32, bool), jpeg: Arc<Vec<u8>>) {
        if self.bytes + jpeg.len() > HELD {
            // The half that was not used for longest goes.
            let mut times: Vec<u64> = self.by_row.values().map(|(_, used)| *used).collect();
            times.sort_unstable();
            let middle = times.get(times.len() / 2).copied().unwrap_or(u64::MAX);
            self.by_row.retain(|_, (_, used)| *used > middle);
            self.bytes = self.by_row.values().map(|(jpeg, _)| jpeg.len()).sum();
        }
        self.bytes += jpeg.len();
        self.by_row.insert(key, (jpeg, self.clock));
    }
}

impl Gallery {
    /// Looks for the pictures called `names`. A name is never made a path: it is looked up in the listing of the folder.
    pub fn find(source: GallerySource, names: &[String]) -> Result<Gallery> {
        let mut gallery = Gallery {
            originals: names.iter().map(|_| Original::None).collect(),
            data: None,
            held: Mutex::default(),
            note: None,
        };
        let config = match source {
            GallerySource::Nowhere => {
                gallery.note = Some("There are no pictures: give their folder with --images.".into());
                return Ok(gallery);
            }
            GallerySource::Below(folder) => {
                gallery.take_files(folder, names, None)?;
                let missing = names.len() - gallery.found();
                if missing > 0 {
                    gallery.note = Some(format!("{missing} of {} pictures are not below the folder.", names.len()));
                }
                return Ok(gallery);
            }
            GallerySource::OfRun(run) => (run.read_config()?.0, run.read_stamps()),
        };
        let (config, stamps) = config;
        match Source::parse(&config.data.source) {
            Ok(Source::Folder(folder)) => {
                let stamps = stamps.unwrap_or_default();
                let stamps = |name: &str| stamps.get(name).copied().flatten();
                gallery.take_files(&folder, names, Some(&stamps))?;
                if gallery.found() < names.len() {
                    gallery.note = Some(format!(
                        "{} of {} pictures are not as they were when the run began, and are not shown: give their folder with --images.",
                        names.len() - gallery.found(),
                        names.len()
                    ));
                }
            }
            Ok(source) => {
                let load = config.load_request()?;
                // Records and the bundled photographs in their own size; decoded again rather than held.
                let load = Load { stored_side: None, cache: Cache::None, source, strict: false, ..load };
                let data = data::load(&load, &|_, _| ())?;
                let rows: HashMap<&String, usize> =
                    data.train.images.names().iter().enumerate().map(|(i, n)| (n, i)).collect();
                let of = |name: &String| rows.get(name).map_or(Original::None, |row| Original::Row(*row));
                gallery.originals = names.iter().map(of).collect();
                gallery.data = Some(Arc::new(data));
            }
            Err(e) => {
                gallery.note = Some(format!("There are no pictures: {}. Give their folder with --images.", e.message))
            }
        }
        Ok(gallery)
    }

    /// The files below `folder` that have these names, and the stamps that `stamps` tells, if it is given.
    fn take_files(&mut self, folder: &Path, names: &[String], stamps: Option<&StampOf>) -> Result<()> {
        let found: HashMap<String, PathBuf> = list(folder)?.into_iter().map(|f| (f.name, f.path)).collect();
        let of = |name: &String| match (found.get(name), stamps) {
            (Some(path), None) => Original::File(path.clone(), None),
            (Some(path), Some(stamps)) => match stamps(name) {
                Some(stamp) if Stamp::of(path).is_ok_and(|now| now == stamp) => {
                    Original::File(path.clone(), Some(stamp))
                }
                _ => Original::None,
            },
            (None, _) => Original::None,
        };
        self.originals = names.iter().map(of).collect();
        Ok(())
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.originals.len()
    }

    /// How many rows have a picture.
    pub fn found(&self) -> usize {
        self.originals.iter().filter(|original| !matches!(original, Original::None)).count()
    }

    /// The file of a row, where it is one.
    pub fn path(&self, row: usize) -> Option<&Path> {
        match self.originals.get(row)? {
            Original::File(path, _) => Some(path),
            _ => None,
        }
    }

    /// The picture of a row, turned as its EXIF data say.
    pub fn read(&self, row: usize) -> Result<Image> {
        self.read_by(row, decode::file)
    }

    /// The picture of a row; `decoded` reads it where it is a file.
    fn read_by(&self, row: usize, decoded: impl Fn(&Path) -> std::result::Result<Image, String>) -> Result<Image> {
        let gone = |reason: String| Error::data(format!("the picture of row {row} {reason}"), "start the server again");
        match self.originals.get(row) {
            Some(Original::File(path, stamp)) => {
                if stamp.is_some() && Stamp::of(path).ok() != *stamp {
                    return Err(gone("has changed since the run began".into()));
                }
                decoded(path).map_err(|reason| gone(format!("cannot be shown: {reason}")))
            }
            Some(Original::Row(at)) => match &self.data {
                Some(data) => Ok(data.train.images.sample(*at)?.image.into_owned()),
                None => Err(gone("is not there".into())),
            },
            _ => Err(gone("is not there".into())),
        }
    }

    /// A small JPEG of a row.
    pub fn thumbnail(&self, row: usize) -> Result<Arc<Vec<u8>>> {
        let key = (row as u32, false);
        if let Some(held) = locked(&self.held).get(key) {
            return Ok(held);
        }
        // Files are decoded at a smaller size where their format allows it.
        let image = shrink(self.read_by(row, |path| decode::shrunk_file(path, SMALL))?, SMALL);
        let jpeg = Arc::new(jpeg(&within(image, SMALL * 3), 82)?);
        locked(&self.held).put(key, jpeg.clone());
        Ok(jpeg)
    }

    /// A whole picture as JPEG.
    pub fn whole(&self, row: usize) -> Result<Vec<u8>> {
        jpeg(&within(self.read(row)?, WHOLE), 90)
    }
}

/// The picture with a long side of at most `side`.
fn within(image: Image, side: usize) -> Image {
    let (short, long) = (image.width.min(image.height), image.width.max(image.height));
    if long <= side { image } else { shrink(image, (short * side / long).max(1)) }
}

fn jpeg(image: &Image, quality: u8) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let encoder = JpegEncoder::new_with_quality(&mut out, quality);
    let (width, height) = (image.width as u32, image.height as u32);
    encoder.write_image(&image.pixels, width, height, ExtendedColorType::Rgb8).map_err(|e| {
        Error::data(format!("a picture of {width} x {height} pixels cannot be shown: {e}"), "look at the file")
    })?;
    Ok(out)
}
