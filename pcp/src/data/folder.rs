//! Folders of images: their files, training and test splits, and classes.
//!
//! Images are found at any depth, by the extensions [`EXTENSIONS`] in upper or lower case, in the byte order of their paths.
//! Hidden files and folders are ignored. Links are followed, and every folder is read once: under its own name where it is below the top,
//! else under that of the first link to it. Folders that cannot be read are listed among the bad files, with the reason.
//!
//! A folder `train` (or `training`) beside a folder `test` (or `testing`), or else `val` (`valid`, `validation`), makes
//! the two splits; with both `test` and `val`, `val` is ignored, as is everything outside the two. `train` alone is a split
//! only if it contains every image: a class could have that name. The classes are the first folders below a split, if every
//! image is in one and there are at least two.

mod listing;

pub(super) use listing::Listing;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rayon::prelude::*;

use super::decode::Reason;
use super::images::{ReadImage, ReadRow};
use super::memory_budget::MemoryBudget;
use super::note::{self, readers};
use super::origin::{FileStamp, Origin, Stamp};
use super::pixel_cache::PixelCache;
use super::{BadFile, Check, Dataset, Image, Images, Labels, Load, Size, Split, SplitFolders, Tick, no_images};
use crate::data::resize::shrunk;
use listing::{TEST, TRAIN, VALIDATION};
use pcp_core::error::{Error, Result, listed};
use pcp_core::io::names;

/// The extensions of images.
pub const EXTENSIONS: [&str; 8] = ["jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff"];

/// The split that the first folder of an image's name stands for.
pub(super) fn split_name(name: &str) -> Option<&'static str> {
    let (first, _) = name.split_once('/')?;
    let is = |names: &[&str]| names.iter().any(|n| first.eq_ignore_ascii_case(n));
    [("train", &TRAIN[..]), ("test", &TEST), ("validation", &VALIDATION)]
        .into_iter()
        .find(|(_, names)| is(names))
        .map(|s| s.0)
}

/// An image file in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// Its path below the folder, for display: bytes that are not UTF-8 are escaped.
    pub name: String,
    /// Its class, if the folders are classes.
    pub label: Option<String>,
    /// Its path.
    pub path: PathBuf,
}

/// Every image below the folder `path`, of all splits, in the byte order of their names; or the one image that `path` is.
/// No file is opened.
pub fn list(path: &Path) -> Result<Vec<ImageFile>> {
    if !path.is_dir() {
        path.metadata().map_err(|e| Error::io("read", path, &e))?;
        let name = path.file_name().map_or_else(|| "image".into(), names::of);
        return Ok(vec![ImageFile { name, label: None, path: path.to_path_buf() }]);
    }
    let listing = Listing::of(path)?;
    if listing.images.is_empty() {
        return Err(no_images(&path.display().to_string(), listing.ignored));
    }
    let (train, test) = listing.splits();
    let class = |key: &[u8]| {
        let root = [Some(&train), test.as_ref()].into_iter().flatten().find(|root| key.starts_with(root));
        let first = |below: &[u8]| below.iter().position(|b| *b == b'/');
        // Beside the two that are used there may be a third, of images to validate with.
        let third = || if split_name(&text(key)).is_some() { first(key).map(|end| end + 1) } else { None };
        let below = &key[root.map(Vec::len).or_else(third).unwrap_or(0)..];
        first(below).map(|end| text(&below[..end]))
    };
    let classes: Option<Vec<String>> = listing.images.keys().map(|key| class(key)).collect();
    let classes = classes.filter(|classes| classes.iter().any(|class| *class != classes[0]));
    let found = |(i, (key, origin)): (usize, (Vec<u8>, Origin))| match origin {
        Origin::Path(path, _) => {
            Some(ImageFile { name: text(&key), label: classes.as_ref().map(|c| c[i].clone()), path })
        }
        Origin::Bytes(_) | Origin::Record(..) => None,
    };
    let mut files: Vec<ImageFile> = listing.images.into_iter().enumerate().filter_map(found).collect();
    // They are listed among the files that cannot be read.
    let folder = |(name, _): (String, Reason)| ImageFile { path: path.join(names::path(&name)), name, label: None };
    files.extend(listing.unreadable.into_iter().map(folder));
    Ok(files)
}

/// How many images there are below `dir`.
pub(super) fn count(dir: &Path) -> Result<usize> {
    let listing = Listing::of(dir)?;
    match listing.unreadable.first() {
        Some((name, reason)) => {
            Err(Error::data(format!("{}: {name} {reason}", dir.display()), "check the permissions of the folder"))
        }
        None => Ok(listing.images.len()),
    }
}

/// Whether a file's name is that of an image.
pub(super) fn is_image_name(path: &Path) -> bool {
    path.extension().is_some_and(|found| EXTENSIONS.iter().any(|e| found.eq_ignore_ascii_case(e)))
}

/// An image to be read.
struct Entry {
    id: u64,
    name: String,
    test: bool,
    /// The first folder below the split.
    folder: Option<String>,
    origin: Origin,
}

impl Entry {
    /// Reads the image, shrunk to a short side of `side`.
    fn read(&self, side: Option<usize>, cache: Option<&PixelCache>) -> std::result::Result<Image, Reason> {
        match (cache, &self.origin) {
            (Some(cache), Origin::Path(path, Some(stamp))) => cache.get(path, *stamp, || self.origin.read(side)),
            _ => self.origin.read(side),
        }
    }
}

/// The files to read, chosen by their names alone.
pub(super) struct ReadPlan {
    name: String,
    /// The folder.
    place: PathBuf,
    /// Training images, then test images.
    entries: Vec<Entry>,
    classes: Option<Vec<String>>,
    /// Whether the test images have classes.
    test_labelled: bool,
    has_test: bool,
    splits: SplitFolders,
    ignored: usize,
    /// Folders that cannot be read.
    unreadable: Vec<BadFile>,
}

/// Plans reading the folder at `path`.
pub(super) fn plan(path: &Path, load: &Load) -> Result<ReadPlan> {
    if path.is_file() {
        return Err(Error::usage(
            format!("{} is a file, not a folder", path.display()),
            "give the folder that holds the images",
        ));
    }
    let listing = Listing::of(path)?;
    let real = path.canonicalize().map_err(|error| Error::io("find", path, &error))?;
    let name = real.file_name().map_or("images".into(), |name| name.to_string_lossy());
    // The name becomes part of the run folder's name.
    let name = name.replace(|c: char| !c.is_alphanumeric() && !"-_.".contains(c), "-");
    ReadPlan::new(name, path, listing, load)
}

impl ReadPlan {
    /// Chooses the images of `listing` to read; `place` is the folder, for messages.
    pub(super) fn new(name: String, place: &Path, listing: Listing, load: &Load) -> Result<Self> {
        let (train_root, test_root) = listing.splits();
        if train_root.is_empty()
            && let nested = listing.nested_splits()
            && let Some(first) = nested.first()
        {
            let folders = nested.iter().take(3).map(|folder| place.join(folder).display().to_string());
            return Err(Error::data(
                format!("{} holds images to learn from and to test on one folder further down", place.display()),
                match nested.len() {
                    1 => format!("did you mean {}?", place.join(first).display()),
                    _ => format!("give one of them: {}", listed(folders)),
                },
            ));
        }
        let named = |root: &[u8]| text(root.strip_suffix(b"/").unwrap_or(root));
        let splits = SplitFolders {
            train: Some(named(&train_root)).filter(|name| !name.is_empty()),
            test: test_root.as_deref().map(named),
            unused: listing.unused_splits(&train_root, test_root.as_deref()),
        };
        let (mut train, mut test, mut ignored) = (Vec::new(), Vec::new(), listing.ignored);
        let unreadable = listing.unreadable;
        for (key, origin) in listing.images {
            let (test_image, root) = match &test_root {
                _ if key.starts_with(&train_root) => (false, train_root.len()),
                Some(root) if key.starts_with(root) => (true, root.len()),
                _ => {
                    ignored += 1;
                    continue;
                }
            };
            let below = &key[root..];
            let folder = below.iter().position(|b| *b == b'/').map(|end| text(&below[..end]));
            let entry = Entry { id: 0, name: text(&key), test: test_image, folder, origin };
            if test_image { &mut test } else { &mut train }.push(entry);
        }
        if train.is_empty() {
            if let Some((name, reason)) = unreadable.first() {
                let message = format!("{}: no image in it can be reached: {name} {reason}", place.display());
                return Err(Error::data(message, "check the permissions of the folder"));
            }
            return Err(no_images(&place.join(text(&train_root)).display().to_string(), ignored));
        }
        // Test images come after all training images, so that changes among them leave the ids of training images unchanged.
        for (id, entry) in train.iter_mut().chain(&mut test).enumerate() {
            entry.id = id as u64;
        }
        train.retain(|entry| !load.leaves_out(&entry.name));
        test.retain(|entry| !load.leaves_out(&entry.name));
        let folders = |entries: &[Entry]| entries.iter().map(|e| e.folder.clone()).collect::<Option<BTreeSet<_>>>();
        let mut classes = folders(&train).filter(|classes| load.labels && classes.len() > 1);
        let test_classes = folders(&test).filter(|_| classes.is_some());
        let test_labelled = test_classes.is_some();
        if let (Some(classes), Some(others)) = (&mut classes, test_classes) {
            classes.extend(others);
        }
        let classes = classes.map(|classes| classes.into_iter().collect());
        let has_test = !test.is_empty();
        // What is in them is not known: they come after all images.
        let first = (train.len() + test.len()) as u64;
        let unreadable =
            unreadable.into_iter().zip(first..).map(|((name, reason), id)| BadFile { id, name, reason }).collect();
        let mut entries = spread(train, load.limit.unwrap_or(usize::MAX));
        entries.append(&mut test);
        let place = place.to_path_buf();
        Ok(ReadPlan { name, place, entries, classes, test_labelled, has_test, splits, ignored, unreadable })
    }

    /// Decodes `entries`, on all cores, and returns the results of `keep`.
    fn decode<T: Send>(
        &self,
        load: &Load,
        entries: &[&Entry],
        keep: impl Fn(&Entry, Image) -> T + Sync,
        tick: Tick,
    ) -> Vec<std::result::Result<T, Reason>> {
        let done = AtomicUsize::new(0);
        // What one of several processes has read is not the whole folder.
        let cache = self.cache(load, !load.team.several());
        let decode = |entry: &&Entry| {
            let kept = entry.read(load.stored_side, cache.as_ref()).map(|image| keep(entry, image));
            tick(done.fetch_add(1, Ordering::Relaxed) + 1, entries.len());
            kept
        };
        let decoded = entries.par_iter().map(decode).collect();
        if let Some(cache) = cache {
            cache.finish();
        }
        decoded
    }

    /// The cache of the shrunk photographs.
    fn cache(&self, load: &Load, write: bool) -> Option<PixelCache> {
        let files = self.entries.iter().filter_map(|entry| match &entry.origin {
            Origin::Path(path, Some(stamp)) => Some((path.as_path(), *stamp)),
            _ => None,
        });
        PixelCache::open(&self.place, load.stored_side?, files, write)
    }

    /// Images to read.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Those of them that are to test on.
    pub(super) fn test_len(&self) -> usize {
        self.entries.iter().filter(|entry| entry.test).count()
    }

    /// Reads up to `most` of the images, evenly spaced, on all cores; returns how many, and the seconds that it took. They must be stamped.
    pub(super) fn read_some(&self, load: &Load, most: usize) -> (usize, f64) {
        let cache = self.cache(load, false);
        let step = self.entries.len().div_ceil(most.max(1)).max(1);
        let some: Vec<&Entry> = self.entries.iter().step_by(step).collect();
        let began = Instant::now();
        // Unreadable files take time, too.
        some.par_iter().for_each(|entry| drop(entry.read(load.stored_side, cache.as_ref())));
        (some.len(), began.elapsed().as_secs_f64())
    }

    /// The class of an entry.
    fn class(&self, entry: &Entry) -> Option<u32> {
        let classes = self.classes.as_ref().filter(|_| !entry.test || self.test_labelled)?;
        classes.binary_search(entry.folder.as_ref()?).ok().map(|class| class as u32)
    }

    /// The one folder that all images are in, where each of them is in one of several folders of that one.
    fn only_folder_with_folders(&self) -> Option<String> {
        fn first_two(name: &str) -> Option<(&str, &str)> {
            let (first, below) = name.split_once('/')?;
            Some((first, below.split_once('/')?.0))
        }
        let folders: BTreeSet<_> = self.entries.iter().map(|entry| first_two(&entry.name)).collect::<Option<_>>()?;
        let ((only, _), (last, _)) = (folders.first()?, folders.last()?);
        (folders.len() > 1 && only == last && self.splits.train.is_none()).then(|| only.to_string())
    }

    /// The names of all images, with a zero after each.
    fn names(&self) -> Vec<u8> {
        self.entries.iter().flat_map(|entry| entry.name.bytes().chain([0])).collect()
    }

    /// An error where a process cannot read an image, and the next one can: that is no broken file.
    fn require_everywhere(&self, load: &Load, readers: &[usize], told: &[Vec<note::Outcome>]) -> Result<()> {
        let team = &load.team;
        let mut before = vec![0; team.count()];
        let mut wrong = String::new();
        for (entry, &reader) in self.entries.iter().zip(readers) {
            let outcome = told[reader].get(before[reader]);
            before[reader] += 1;
            let next = (reader + 1) % team.count() == team.rank();
            if let (true, true, Some(Err(reason))) = (next, wrong.is_empty(), outcome)
                && entry.read(load.stored_side, None).is_ok()
            {
                wrong =
                    format!("process {reader} of {} cannot read {}: {reason}; others can", team.count(), entry.name);
            }
        }
        match team.all_gather_bytes(wrong.as_bytes()).into_iter().find(|wrong| !wrong.is_empty()) {
            None => Ok(()),
            Some(wrong) => Err(Error::data(
                String::from_utf8_lossy(&wrong).into_owned(),
                "check the mounts, permissions and limits of its machine",
            )),
        }
    }

    /// Reads the images of this process, and learns of the others' what is known of them.
    fn read_shared(
        &self,
        load: &Load,
        budget: &MemoryBudget,
        tick: Tick,
    ) -> Result<Vec<std::result::Result<ReadImage, Reason>>> {
        let team = &load.team;
        let tests = self.entries.iter().filter(|entry| entry.test).count();
        let (readers, rank) = (readers(self.entries.len() - tests, tests, &**team), team.rank());
        let own: Vec<&Entry> =
            self.entries.iter().zip(&readers).filter(|(_, reader)| **reader == rank).map(|(entry, _)| entry).collect();
        let keep = |entry: &Entry, image| ReadImage::shared(entry.id, &entry.name, image, budget, rank, team);
        let seen = self.decode(load, &own, keep, tick);
        if !team.several() {
            return Ok(seen);
        }
        let outcome = |seen: &std::result::Result<ReadImage, Reason>| match seen {
            Ok(seen) => seen.noted().copied().ok_or_else(|| "was not noted".to_string()),
            Err(reason) => Err(reason.clone()),
        };
        let outcomes: Vec<_> = seen.iter().map(outcome).collect();
        let told = team.all_gather_bytes(&note::written(&outcomes));
        let told: Vec<Vec<note::Outcome>> = told.iter().map(|bytes| note::read(bytes)).collect();
        self.require_everywhere(load, &readers, &told)?;
        let (mut told, mut seen) = (told.into_iter().map(Vec::into_iter).collect::<Vec<_>>(), seen.into_iter());
        let mut next = |reader: usize| {
            let noted = told[reader].next();
            if reader == rank { seen.next() } else { noted.map(|noted| noted.map(|n| ReadImage::of_other(n, reader))) }
        };
        readers.iter().map(|reader| next(*reader)).collect::<Option<_>>().ok_or_else(|| {
            Error::data("another process has read fewer images", "start all processes with the same data")
        })
    }

    /// Reads the images.
    pub(super) fn read(mut self, load: &Load, tick: Tick) -> Result<Dataset> {
        load.team.agree("list of images", &self.names())?;
        let stamps = self.stamp();
        let budget = MemoryBudget::new(load.cache, &*load.team);
        let seen = self.read_shared(load, &budget, tick)?;
        let labels = || self.classes.clone().map(|classes| Labels { classes, of: Vec::new() });
        let mut labels = [labels(), labels().filter(|_| self.test_labelled)];
        let (mut rows, mut bad) = ([Vec::new(), Vec::new()], Vec::new());
        let classes: Vec<Option<u32>> = self.entries.iter().map(|entry| self.class(entry)).collect();
        for ((Entry { id, name, test, origin, .. }, class), seen) in self.entries.into_iter().zip(classes).zip(seen) {
            let split = usize::from(test);
            match seen {
                Ok(seen) => {
                    rows[split].push(ReadRow { id, name, origin, seen });
                    labels[split].iter_mut().for_each(|labels| labels.of.extend(class));
                }
                Err(reason) => bad.push(BadFile { id, name, reason }),
            }
        }
        bad.extend(self.unreadable);
        let [train, test] = rows.map(|rows| Images::of(rows, &budget, load.stored_side, &load.team));
        let [train_labels, test_labels] = labels;
        let train = Split { images: train, labels: train_labels };
        let test = Some(Split { images: test, labels: test_labels }).filter(|test| !test.images.is_empty());
        let (ignored, splits) = (self.ignored, self.splits);
        Ok(Dataset { name: self.name, train, test, bad, ignored, splits, stamps, ..Dataset::default() })
    }

    /// Records size and modification time of every file, before it is read.
    pub(super) fn stamp(&mut self) -> Vec<FileStamp> {
        let stamp = |entry: &mut Entry| {
            let Origin::Path(path, noted) = &mut entry.origin else { return None };
            let stamp = Stamp::of(path).ok();
            *noted = stamp;
            Some(FileStamp { name: entry.name.clone(), stamp: stamp? })
        };
        let stamps: Vec<Option<FileStamp>> = self.entries.par_iter_mut().map(stamp).collect();
        stamps.into_iter().flatten().collect()
    }

    /// Reads the images and counts them.
    pub(super) fn check(self, load: &Load, tick: Tick) -> Check {
        let whole = Load { stored_side: None, ..load.clone() };
        let size = |_: &Entry, image: Image| {
            let size = Size { width: image.width, height: image.height };
            let (width, height) = load.stored_side.map_or((size.width, size.height), |side| shrunk(&image, side));
            (size, width * height * 3)
        };
        let seen = self.decode(&whole, &self.entries.iter().collect::<Vec<_>>(), size, tick);
        let mut check = Check::new(self.name.clone(), self.classes.as_deref(), self.has_test);
        check.ignored = self.ignored;
        check.splits = self.splits.clone();
        check.perhaps_meant = self.only_folder_with_folders();
        for (entry, seen) in self.entries.iter().zip(seen) {
            match seen {
                Ok((size, bytes)) => check.count(entry.test, self.class(entry), size, bytes),
                Err(reason) => check.bad.push(BadFile { id: entry.id, name: entry.name.clone(), reason }),
            }
        }
        check.bad.extend(self.unreadable);
        check
    }
}

/// `limit` entries, spread over the folders: the first of each, then the second of each, and so on; in their old order.
fn spread(entries: Vec<Entry>, limit: usize) -> Vec<Entry> {
    let mut taken = BTreeMap::<Option<String>, usize>::new();
    let mut turns: Vec<(usize, Entry)> = Vec::with_capacity(entries.len());
    for entry in entries {
        let turn = taken.entry(entry.folder.clone()).or_default();
        turns.push((*turn, entry));
        *turn += 1;
    }
    turns.sort_by_key(|(turn, entry)| (*turn, entry.id));
    turns.truncate(limit);
    turns.sort_by_key(|(_, entry)| entry.id);
    turns.into_iter().map(|(_, entry)| entry).collect()
}

/// A name for display, from which its bytes can be read back.
fn text(bytes: &[u8]) -> String {
    names::text(bytes)
}
