//! Shrunk photographs on disk, so that the second command on a folder need not decode them again.
//!
//! One file per folder and stored side, in the user's cache folder: it can be deleted at any time. An entry counts only if the photograph has
//! the size and modification time that it had when it was decoded, and if its pixels have their checksum. The cache is bounded: when it is
//! larger than `LARGEST`, the files that were not used for longest are removed.
//!
//! ```text
//! MAGIC, pixels of every image, index (an entry per image), bytes of the index (u64), SHA-256 of the index
//! entry: SHA-256 of the name (16 bytes), size, time, width, height, offset (u64 each), SHA-256 of the pixels (8 bytes)
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::Image;
use super::origin::Stamp;

/// The variable that names another folder, or `off`.
const VARIABLE: &str = "PCP_CACHE";
/// Changes when photographs are decoded or shrunk in another way.
const MAGIC: &[u8; 16] = b"pcp pixels 0001\n";
/// The most bytes of all files.
const LARGEST: u64 = 4 << 30;
/// Files smaller than this are decoded so fast that they are not kept.
const SMALLEST_FILE: u64 = 30_000;
/// Bytes of files that must be decoded for a cache to be written.
const WORTH: u64 = 48 << 20;
/// Bytes of an index entry.
const ENTRY: usize = 16 + 6 * 8;
/// Bytes after the index.
const FOOTER: u64 = 8 + 32;
/// The extension of a cache file, and of one that is being written.
const EXTENSION: &str = "pixels";
const UNFINISHED: &str = "unfinished";

static OFF: AtomicBool = AtomicBool::new(false);

/// Neither reads nor writes the cache from now on, in this process.
pub fn disable() {
    OFF.store(true, Ordering::Relaxed);
}

/// The folder of the cache: `PCP_CACHE`, or `pcp` in the user's cache folder; `None` when there is no such folder or it is switched off.
pub fn folder() -> Option<PathBuf> {
    if OFF.load(Ordering::Relaxed) {
        return None;
    }
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(own) = set(VARIABLE) {
        return (own != Path::new("off")).then_some(own);
    }
    let home = |below: &str| set("HOME").map(|home| home.join(below));
    let user = match std::env::consts::OS {
        "windows" => set("LOCALAPPDATA"),
        "macos" => home("Library/Caches"),
        _ => set("XDG_CACHE_HOME").or_else(|| home(".cache")),
    };
    Some(user?.join("pcp"))
}

/// Where an image is in the file.
#[derive(Clone, Copy)]
struct Place {
    stamp: Stamp,
    width: usize,
    height: usize,
    offset: u64,
    check: [u8; 8],
}

/// The cache of one folder of photographs.
pub(super) struct PixelCache {
    /// The folder of the photographs.
    of: PathBuf,
    /// The cache file.
    path: PathBuf,
    places: HashMap<[u8; 16], Place>,
    /// What is written now; `None` if nothing is, or if it cannot be.
    writer: Mutex<Option<Writer>>,
}

/// A new cache file.
struct Writer {
    file: BufWriter<File>,
    at: u64,
    /// Bytes after which no more images are added.
    most: u64,
    index: Vec<u8>,
}

impl PixelCache {
    /// The cache of the photographs `files` (paths and stamps) in the folder `of`, shrunk to `side`; `None` when it is switched off, or when there is
    /// nothing to read or to write. With `write`, what is decoded now is kept, where that is worth it.
    pub fn open<'a>(
        of: &Path,
        side: usize,
        files: impl Iterator<Item = (&'a Path, Stamp)>,
        write: bool,
    ) -> Option<PixelCache> {
        Self::open_in(&folder()?, of, side, files, (if write { WORTH } else { u64::MAX }, LARGEST / 2))
    }

    fn open_in<'a>(
        cache: &Path,
        of: &Path,
        side: usize,
        files: impl Iterator<Item = (&'a Path, Stamp)>,
        (worth, most): (u64, u64),
    ) -> Option<PixelCache> {
        let mut hash = Sha256::new();
        hash.update(of.canonicalize().ok()?.as_os_str().as_encoded_bytes());
        hash.update((side as u64).to_le_bytes());
        let name: String = hash.finalize().iter().take(10).map(|byte| format!("{byte:02x}")).collect();
        let path = cache.join(name).with_extension(EXTENSION);
        let places = read_index(&path).unwrap_or_default();
        if !places.is_empty()
            && let Ok(file) = File::options().append(true).open(&path)
        {
            // It was used now.
            let _ = file.set_modified(SystemTime::now());
        }
        let of = of.to_path_buf();
        let missing =
            |(file, stamp): &(&Path, Stamp)| places.get(&key(&of, file)).is_none_or(|place| place.stamp != *stamp);
        let large: Vec<_> = files.filter(|(_, stamp)| stamp.size >= SMALLEST_FILE).collect();
        let todo: u64 = large.iter().filter(|file| missing(file)).map(|(_, stamp)| stamp.size).sum();
        // A file that is full and mostly of use stays as it is: another would hold no more.
        let known = large.iter().filter(|file| !missing(file)).count();
        let full = 2 * known > places.len() && path.metadata().is_ok_and(|found| found.len() > most);
        let writer = (todo >= worth && !full).then(|| Writer::new(&path, most).ok()).flatten();
        (writer.is_some() || !places.is_empty()).then(|| PixelCache { of, path, places, writer: Mutex::new(writer) })
    }

    /// The image of `file`, whose stamp is `stamp`: from the cache, or else made by `make`.
    pub fn get<E>(&self, file: &Path, stamp: Stamp, make: impl FnOnce() -> Result<Image, E>) -> Result<Image, E> {
        if stamp.size < SMALLEST_FILE {
            return make();
        }
        let key = key(&self.of, file);
        let image = match self.places.get(&key).filter(|place| place.stamp == stamp).and_then(|place| self.read(place))
        {
            Some(image) => image,
            None => make()?,
        };
        if let Ok(mut writer) = self.writer.lock()
            && writer.as_mut().is_some_and(|writer| writer.add(key, stamp, &image).is_err())
        {
            // A full disk: nothing is kept.
            *writer = None;
            let _ = std::fs::remove_file(unfinished(&self.path));
        }
        Ok(image)
    }

    fn read(&self, place: &Place) -> Option<Image> {
        let mut pixels = vec![0; place.width.checked_mul(place.height)?.checked_mul(3)?];
        let mut file = File::open(&self.path).ok()?;
        file.seek(SeekFrom::Start(place.offset)).ok()?;
        file.read_exact(&mut pixels).ok()?;
        (check(&pixels) == place.check).then_some(Image { width: place.width, height: place.height, pixels })
    }

    /// Completes what was written, and removes the oldest files where there are too many.
    pub fn finish(self) {
        let Ok(Some(writer)) = self.writer.into_inner() else { return };
        let temporary = unfinished(&self.path);
        if writer.finish().and_then(|()| std::fs::rename(&temporary, &self.path)).is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        if let Some(folder) = self.path.parent() {
            make_room(folder, LARGEST);
        }
    }
}

impl Writer {
    fn new(path: &Path, most: u64) -> std::io::Result<Writer> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = BufWriter::new(File::create(unfinished(path))?);
        file.write_all(MAGIC)?;
        Ok(Writer { file, at: MAGIC.len() as u64, most, index: Vec::new() })
    }

    fn add(&mut self, key: [u8; 16], stamp: Stamp, image: &Image) -> std::io::Result<()> {
        if self.at > self.most {
            return Ok(());
        }
        self.file.write_all(&image.pixels)?;
        self.index.extend(key);
        for number in [stamp.size, stamp.modified as u64, image.width as u64, image.height as u64, self.at] {
            self.index.extend(number.to_le_bytes());
        }
        self.index.extend(check(&image.pixels));
        self.at += image.pixels.len() as u64;
        Ok(())
    }

    fn finish(mut self) -> std::io::Result<()> {
        self.file.write_all(&self.index)?;
        self.file.write_all(&(self.index.len() as u64).to_le_bytes())?;
        self.file.write_all(&Sha256::digest(&self.index))?;
        self.file.flush()
    }
}

/// The key of a file: a hash of its path below the folder `of`.
fn key(of: &Path, file: &Path) -> [u8; 16] {
    first(&Sha256::digest(file.strip_prefix(of).unwrap_or(file).as_os_str().as_encoded_bytes()))
}

fn check(pixels: &[u8]) -> [u8; 8] {
    first(&Sha256::digest(pixels))
}

/// The first N of `bytes`, which has as many.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[..N]);
    out
}

fn unfinished(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.{UNFINISHED}", std::process::id()))
}

/// The entries of a cache file; `None` if it is none or is damaged.
fn read_index(path: &Path) -> Option<HashMap<[u8; 16], Place>> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut magic = [0; MAGIC.len()];
    file.read_exact(&mut magic).ok()?;
    let mut footer = [0; FOOTER as usize];
    file.seek(SeekFrom::Start(length.checked_sub(FOOTER)?)).ok()?;
    file.read_exact(&mut footer).ok()?;
    let bytes = u64::from_le_bytes(first(&footer));
    let start = length.checked_sub(FOOTER)?.checked_sub(bytes).filter(|start| *start >= MAGIC.len() as u64)?;
    if magic != *MAGIC || bytes % ENTRY as u64 != 0 {
        return None;
    }
    let mut index = vec![0; usize::try_from(bytes).ok()?];
    file.seek(SeekFrom::Start(start)).ok()?;
    file.read_exact(&mut index).ok()?;
    if Sha256::digest(&index)[..] != footer[8..] {
        return None;
    }
    let entry = |bytes: &[u8]| {
        let number = |i: usize| u64::from_le_bytes(first(&bytes[16 + 8 * i..]));
        let place = Place {
            stamp: Stamp { size: number(0), modified: number(1) as i64 },
            width: usize::try_from(number(2)).ok()?,
            height: usize::try_from(number(3)).ok()?,
            offset: number(4),
            check: first(&bytes[ENTRY - 8..]),
        };
        Some((first(bytes), place))
    };
    index.chunks_exact(ENTRY).map(entry).collect()
}

/// Removes the cache files of `folder` that were not used for longest, until the others take at most `most` bytes; and what a killed process left.
fn make_room(folder: &Path, most: u64) {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, Ok(about)) = (entry.path(), entry.metadata()) else { continue };
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let old = used.elapsed().is_ok_and(|age| age.as_secs() > 86_400);
        match ending {
            EXTENSION => files.push((used, about.len(), path)),
            UNFINISHED if old => drop(std::fs::remove_file(path)),
            _ => {}
        }
    }
    files.sort();
    let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, path) in files {
        if total <= most {
            break;
        }
        let _ = std::fs::remove_file(path);
        total -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { size: 50_000, modified: 7 };

    fn image(seed: u8) -> Image {
        Image { width: 3, height: 2, pixels: (0..18).map(|i| seed.wrapping_mul(31).wrapping_add(i)).collect() }
    }

    /// Asks for the image of `name`, and tells whether it had to be made.
    fn ask(cache: &PixelCache, name: &str, stamp: Stamp, seed: u8) -> (Image, bool) {
        let mut made = false;
        let image = cache.get(Path::new(name), stamp, || {
            made = true;
            Ok::<_, ()>(image(seed))
        });
        (image.unwrap(), made)
    }

    fn open(dir: &Path, side: usize, names: &[&str], worth: u64) -> Option<PixelCache> {
        open_with(dir, side, names, (worth, LARGEST))
    }

    fn open_with(dir: &Path, side: usize, names: &[&str], bounds: (u64, u64)) -> Option<PixelCache> {
        PixelCache::open_in(&dir.join("cache"), dir, side, names.iter().map(|n| (Path::new(*n), STAMP)), bounds)
    }

    #[test]
    fn a_full_cache_keeps_what_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let open = |names: &[&str]| open_with(dir.path(), 8, names, (1, MAGIC.len() as u64)).unwrap();
        let cache = open(&["a", "b"]);
        assert!(ask(&cache, "a", STAMP, 1).1 && ask(&cache, "b", STAMP, 2).1);
        cache.finish();
        let again = open(&["a", "b"]);
        assert!(again.writer.lock().unwrap().is_none(), "another file would hold no more");
        assert_eq!((ask(&again, "a", STAMP, 9), ask(&again, "b", STAMP, 2)), ((image(1), false), (image(2), true)));
        assert!(open(&["c", "d"]).writer.lock().unwrap().is_some(), "of other photographs it is of no use");
    }

    #[test]
    fn what_was_decoded_is_read_back_while_the_file_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        assert!(open(dir.path(), 8, &["a"], u64::MAX).is_none(), "it is not worth it");
        let cache = open(dir.path(), 8, &["a", "b"], 1).unwrap();
        assert_eq!(ask(&cache, "a", STAMP, 1), (image(1), true));
        assert_eq!(ask(&cache, "b", STAMP, 2), (image(2), true));
        cache.finish();
        let again = open(dir.path(), 8, &["a", "b"], 1).unwrap();
        assert!(again.writer.lock().unwrap().is_none(), "nothing is to be written");
        assert_eq!((ask(&again, "a", STAMP, 9), ask(&again, "b", STAMP, 9)), ((image(1), false), (image(2), false)));
        let newer = Stamp { modified: 8, ..STAMP };
        assert_eq!(ask(&again, "a", newer, 3), (image(3), true), "another time");
        assert_eq!(ask(&again, "c", STAMP, 4), (image(4), true), "another name");
        assert_eq!(ask(&again, "b", Stamp { size: 9, modified: 7 }, 5), (image(5), true), "small files are not kept");
        assert!(open(dir.path(), 9, &["a"], u64::MAX).is_none(), "another side");
    }

    #[test]
    fn a_damaged_file_is_decoded_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = open(dir.path(), 8, &["a", "b"], 1).unwrap();
        ask(&cache, "a", STAMP, 1);
        ask(&cache, "b", STAMP, 2);
        let path = cache.path.clone();
        cache.finish();
        let whole = std::fs::read(&path).unwrap();
        let mut wrong = whole.clone();
        wrong[MAGIC.len()] ^= 1;
        std::fs::write(&path, &wrong).unwrap();
        let again = open(dir.path(), 8, &["a", "b"], u64::MAX).unwrap();
        assert_eq!((ask(&again, "a", STAMP, 1), ask(&again, "b", STAMP, 9)), ((image(1), true), (image(2), false)));
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert!(open(dir.path(), 8, &["a"], u64::MAX).is_none(), "cut off after {end} bytes");
        }
        for (at, byte) in [(0, b'x'), (whole.len() - 40, 0xff), (whole.len() - 1, whole[whole.len() - 1] ^ 1)] {
            let mut wrong = whole.clone();
            wrong[at] = byte;
            std::fs::write(&path, &wrong).unwrap();
            assert!(open(dir.path(), 8, &["a"], u64::MAX).is_none(), "byte {at}");
        }
    }

    #[test]
    fn the_oldest_files_make_room() {
        let dir = tempfile::tempdir().unwrap();
        for (name, age) in [("a", 30), ("b", 10), ("c", 20)] {
            let path = dir.path().join(name).with_extension(EXTENSION);
            std::fs::write(&path, [0; 100]).unwrap();
            let when = SystemTime::now() - std::time::Duration::from_secs(age);
            File::options().append(true).open(&path).unwrap().set_modified(when).unwrap();
        }
        std::fs::write(dir.path().join("other.txt"), [0; 1000]).unwrap();
        let left = || {
            let names = std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names.join(" ")
        };
        make_room(dir.path(), 250);
        assert_eq!(left(), "b.pixels c.pixels other.txt");
        make_room(dir.path(), 0);
        assert_eq!(left(), "other.txt");
    }
}
