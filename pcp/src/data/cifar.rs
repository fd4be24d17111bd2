//! CIFAR-10 and CIFAR-100 in their binary releases: files of records, each one label (CIFAR-100: a coarse and a fine one)
//! and 32 x 32 pixels, plane by plane.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

#[cfg(feature = "fetch")]
use super::fetch::Archive;
use super::images::{ReadImage, ReadRow};
use super::memory_budget::MemoryBudget;
use super::origin::{FileStamp, Origin, RecordLayout, Records, Stamp};
use super::{Dataset, Images, Labels, Load, Split, Tick};
use pcp_core::error::{Error, Result, listed};
use pcp_core::peers::Team;

const PAGE: &str = "https://www.cs.toronto.edu/~kriz/cifar.html";
const SIDE: usize = 32;
const LAYOUT: RecordLayout = RecordLayout::Planes { side: SIDE };

/// The files of a release.
#[derive(Clone, Copy)]
pub(super) struct Release {
    name: &'static str,
    title: &'static str,
    /// The folder its archive unpacks to.
    folder: &'static str,
    archive: &'static str,
    /// The archive's MD5, as its page has it.
    #[cfg(feature = "fetch")]
    md5: &'static str,
    /// The archive's size.
    #[cfg(feature = "fetch")]
    archive_bytes: u64,
    train: &'static [&'static str],
    test: &'static str,
    /// Records in each training file, and in the test file.
    train_records: usize,
    test_records: usize,
    /// How many values each label byte of a record may have; the last byte is the class.
    labels: &'static [usize],
    /// The file of class names; without it, the built-in names are used.
    names_file: &'static str,
    names: &'static [&'static str],
}

/// CIFAR-10.
pub(super) static CIFAR10: Release = Release {
    name: "cifar10",
    title: "CIFAR-10",
    folder: "cifar-10-batches-bin",
    archive: "cifar-10-binary.tar.gz",
    #[cfg(feature = "fetch")]
    md5: "c32a1d4ab5d03f1284b67883e8d87530",
    #[cfg(feature = "fetch")]
    archive_bytes: 170_052_171,
    train: &["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"],
    test: "test_batch",
    train_records: 10_000,
    test_records: 10_000,
    labels: &[10],
    names_file: "batches.meta.txt",
    names: &["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
};

/// CIFAR-100.
pub(super) static CIFAR100: Release = Release {
    name: "cifar100",
    title: "CIFAR-100",
    folder: "cifar-100-binary",
    archive: "cifar-100-binary.tar.gz",
    #[cfg(feature = "fetch")]
    md5: "03b5dce01913d631647c71ecec9e9cb8",
    #[cfg(feature = "fetch")]
    archive_bytes: 168_513_733,
    train: &["train"],
    test: "test",
    train_records: 50_000,
    test_records: 10_000,
    labels: &[20, 100],
    names_file: "fine_label_names.txt",
    names: &FINE_NAMES,
};

#[rustfmt::skip]
const FINE_NAMES: [&str; 100] = [
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle",
    "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle",
    "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur",
    "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard",
    "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
    "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket",
    "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider",
    "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
];

impl Release {
    /// Reads the test images and the first `limit` training images; files beyond those are not read.
    pub(super) fn read(&self, load: &Load, tick: Tick) -> Result<Dataset> {
        let all = self.train.len() * self.train_records;
        let wanted = load.limit.unwrap_or(all).min(all);
        let train_files = &self.train[..wanted.div_ceil(self.train_records)];
        let dir = self.find(load, train_files)?;
        let classes = self.class_names(&dir);
        let budget = MemoryBudget::new(load.cache, &*load.team);
        let (mut train, mut test, mut stamps) = (Gathered::default(), Gathered::default(), Vec::new());
        let total = wanted + self.test_records;
        tick(0, total);
        for file in train_files {
            let first = train.rows.len();
            let rows = self.train_records.min(wanted - first);
            let seen = (&budget, &load.team, wanted);
            stamps.extend(self.append(&mut train, &dir, file, (self.train_records, first as u64, rows), seen)?);
            tick(train.rows.len(), total);
        }
        let all_of_it = (self.test_records, all as u64, self.test_records);
        let seen = (&budget, &load.team, self.test_records);
        stamps.extend(self.append(&mut test, &dir, self.test, all_of_it, seen)?);
        tick(total, total);
        [&mut train, &mut test].into_iter().for_each(|all| load.leave_out(&mut all.rows, &mut all.labels));
        let split = |gathered: Gathered| Split {
            images: Images::of(gathered.rows, &budget, None, &load.team),
            labels: load.labels.then(|| Labels { classes: classes.clone(), of: gathered.labels }),
        };
        Ok(Dataset {
            name: self.name.into(),
            train: split(train),
            test: Some(split(test)),
            stamps,
            ..Dataset::default()
        })
    }

    /// The folder with the files: the given one, or the one the archive unpacks to within it.
    fn find(&self, load: &Load, train_files: &[&'static str]) -> Result<PathBuf> {
        let Some(given) = &load.data_dir else {
            return Err(Error::usage(
                format!("{} needs to know where its files are", self.title),
                format!("give --data-dir DIR, where DIR holds the folder {} ({})", self.folder, self.remedy()),
            ));
        };
        let files: Vec<String> = train_files.iter().chain([&self.test]).map(|file| format!("{file}.bin")).collect();
        let direct = files.iter().any(|file| given.join(file).exists());
        let dir = if direct { given.clone() } else { given.join(self.folder) };
        let missing: Vec<&String> = files.iter().filter(|file| !dir.join(file).exists()).collect();
        if missing.is_empty() {
            return Ok(dir);
        }
        Err(Error::data(
            format!("{} is incomplete: no {} in {}", self.title, listed(missing), dir.display()),
            format!("put the binary version there: {}", self.remedy()),
        ))
    }

    fn remedy(&self) -> String {
        format!("`pcp data fetch {} --data-dir DIR` gets it; or unpack {} from {PAGE}", self.name, self.archive)
    }

    /// The archive of the release.
    #[cfg(feature = "fetch")]
    pub(super) fn archive(&self) -> Archive {
        let size = |records: usize| (records * (self.labels.len() + LAYOUT.bytes())) as u64;
        let train = self.train.iter().map(|file| (format!("{file}.bin"), size(self.train_records)));
        Archive {
            title: self.title,
            url: format!("https://www.cs.toronto.edu/~kriz/{}", self.archive),
            page: PAGE,
            file: self.archive,
            md5: self.md5.into(),
            bytes: self.archive_bytes,
            folder: self.folder,
            needed: train.chain([(format!("{}.bin", self.test), size(self.test_records))]).collect(),
        }
    }

    /// The class names from the release's list if it is complete, else the built-in ones.
    fn class_names(&self, dir: &Path) -> Vec<String> {
        let built_in = || self.names.iter().map(|name| name.to_string()).collect();
        let Ok(text) = std::fs::read_to_string(dir.join(self.names_file)) else { return built_in() };
        let names: Vec<String> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(String::from).collect();
        if names.len() == self.names.len() { names } else { built_in() }
    }

    /// Checks all of a file that should hold `records`, and appends the first `rows`, with ids from `first_id` on; of the `all` images of the
    /// split, this process keeps its share.
    fn append(
        &self,
        gathered: &mut Gathered,
        dir: &Path,
        file: &str,
        (records, first_id, rows): (usize, u64, usize),
        (budget, team, all): (&MemoryBudget, &Team, usize),
    ) -> Result<Option<FileStamp>> {
        let path = dir.join(format!("{file}.bin"));
        let damaged = |what: String| {
            Error::data(format!("{} {what}", path.display()), format!("get it again: {}", self.remedy()))
        };
        let length = self.labels.len() + LAYOUT.bytes();
        let expected = (records * length) as u64;
        let wrong_size = |found: u64| {
            let part = if found < expected { "truncated" } else { "too long" };
            damaged(format!("is {part}: {found} bytes instead of {expected} ({records} records of {length} bytes)"))
        };
        // The size is checked before reading: a wrong file may be of any size.
        let stamp = Stamp::of(&path).map_err(|error| Error::io("read", &path, &error))?;
        if stamp.size != expected {
            return Err(wrong_size(stamp.size));
        }
        let bytes = std::fs::read(&path).map_err(|error| Error::io("read", &path, &error))?;
        if bytes.len() as u64 != expected {
            return Err(wrong_size(bytes.len() as u64));
        }
        gathered.labels.extend(classes(&bytes, self.labels).map_err(damaged)?.into_iter().take(rows));
        let origin =
            Records { path, stamp: Some(stamp), held: None, header: 0, labels: self.labels.len(), layout: LAYOUT };
        let origin = Arc::new(origin);
        let before = gathered.rows.len();
        let row = |(r, record): (usize, &[u8])| {
            let (id, name) = (first_id + r as u64, format!("{file}/{r:05}"));
            let image = LAYOUT.image(&record[self.labels.len()..]);
            let seen = ReadImage::shared(id, &name, image, budget, team.holder(before + r, all), team);
            ReadRow { id, name, origin: Origin::Record(origin.clone(), r), seen }
        };
        gathered.rows.par_extend(bytes.par_chunks_exact(length).take(rows).enumerate().map(row));
        Ok(Some(FileStamp { name: format!("{file}.bin"), stamp }))
    }
}

/// The images of a split while it is read.
#[derive(Default)]
struct Gathered {
    rows: Vec<ReadRow>,
    labels: Vec<u32>,
}

/// The class of every record in `bytes`: the last of its label bytes, of which each must be below its number of `values`.
/// Errors name the record. Bytes after the last complete record are ignored.
pub fn classes(bytes: &[u8], values: &[usize]) -> std::result::Result<Vec<u32>, String> {
    let record = |(r, record): (usize, &[u8])| {
        let wrong = record.iter().zip(values).find(|(label, values)| usize::from(**label) >= **values);
        match wrong {
            Some((label, values)) => {
                Err(format!("is damaged: record {r} has label {label}, beyond {}", values.saturating_sub(1)))
            }
            None => Ok(values.len().checked_sub(1).map_or(0, |last| u32::from(record[last]))),
        }
    };
    bytes.chunks_exact(values.len() + LAYOUT.bytes()).enumerate().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Cache;
    use crate::data::{Check, Source, load};
    use pcp_core::error::Kind;
    use std::fs;
    use tempfile::TempDir;

    /// CIFAR-10 with three training files of four records and a test file of two.
    static SMALL: Release = Release {
        train: &["data_batch_1", "data_batch_2", "data_batch_3"],
        train_records: 4,
        test_records: 2,
        ..CIFAR10
    };
    static SMALL100: Release = Release { train_records: 4, test_records: 2, ..CIFAR100 };

    fn records(release: &Release, seed: usize, count: usize) -> Vec<u8> {
        let record = |r: usize| {
            let labels = release.labels.iter().map(move |values| ((seed + r) * 7 % values) as u8);
            labels.chain((0..3 * SIDE * SIDE).map(move |i| (i * 31 + r * 17 + seed * 101) as u8))
        };
        (0..count).flat_map(record).collect()
    }

    fn write(release: &Release, dir: &Path) {
        fs::create_dir_all(dir).unwrap();
        for (f, file) in release.train.iter().enumerate() {
            fs::write(dir.join(format!("{file}.bin")), records(release, f, release.train_records)).unwrap();
        }
        let test = records(release, 9, release.test_records);
        fs::write(dir.join(format!("{}.bin", release.test)), test).unwrap();
    }

    fn from(dir: &Path) -> Load {
        Load { data_dir: Some(dir.into()), ..Load::new(Source::Cifar10) }
    }

    fn read(release: &Release, load: &Load) -> Result<Dataset> {
        release.read(load, &|_, _| ())
    }

    #[test]
    fn records_become_images_with_names_ids_and_labels() {
        let dir = TempDir::new().unwrap();
        write(&SMALL, &dir.path().join("cifar-10-batches-bin"));
        let data = read(&SMALL, &from(dir.path())).unwrap();
        let (train, test) = (&data.train, data.test.as_ref().unwrap());
        assert_eq!((train.images.len(), test.images.len()), (12, 2));
        assert_eq!(train.images.names()[5], "data_batch_2/00001");
        assert_eq!(test.images.names()[0], "test_batch/00000");
        assert_eq!((train.images.ids()[11], test.images.ids()), (11, &[12, 13][..]));
        let labels = train.labels.as_ref().unwrap();
        assert_eq!(labels.of[..6], [0, 7, 4, 1, 7, 4]);
        assert_eq!(labels.classes[9], "truck");
        let raw = &records(&SMALL, 1, 4)[3073 + 1..];
        let image = train.images.sample(5).unwrap().image;
        for (y, x, c) in [(0, 0, 0), (0, 1, 2), (31, 31, 1), (7, 20, 0)] {
            assert_eq!(image.pixels[(y * 32 + x) * 3 + c], raw[c * 1024 + y * 32 + x]);
        }
        let check = Check::of(&data).unwrap();
        assert_eq!((check.train, check.test, check.bytes), (12, Some(2), 14 * 3072));
        assert_eq!(check.classes.unwrap().iter().map(|c| c.train).sum::<usize>(), 12);
    }

    #[test]
    fn records_outside_memory_are_read_again_and_changed_files_are_detected() {
        let dir = TempDir::new().unwrap();
        write(&SMALL, dir.path());
        let held = read(&SMALL, &Load { cache: Cache::Memory, ..from(dir.path()) }).unwrap();
        let left = read(&SMALL, &Load { cache: Cache::None, ..from(dir.path()) }).unwrap();
        assert!(held.train.images.held() && !left.train.images.held());
        assert_eq!((left.train.images.bytes(), left.train.images.decoded_bytes()), (0, 12 * 3072));
        assert_eq!((held.fingerprint(), held.mean_std()), (left.fingerprint(), left.mean_std()));
        assert_eq!(left.stamps.len(), 4);
        for r in 0..12 {
            assert_eq!(left.train.images.sample(r).unwrap().image, held.train.images.sample(r).unwrap().image);
        }
        fs::write(dir.path().join("data_batch_2.bin"), "changed").unwrap();
        let error = left.train.images.sample(5).unwrap_err();
        assert!(error.message.contains("data_batch_2") && error.message.contains("changed"), "{error}");
        assert!(left.train.images.sample(0).is_ok());
    }

    #[test]
    fn fine_labels_are_the_second_byte() {
        let dir = TempDir::new().unwrap();
        write(&SMALL100, dir.path());
        let data = read(&SMALL100, &from(dir.path())).unwrap();
        let labels = data.train.labels.unwrap();
        assert_eq!(labels.of, [0, 7, 14, 21]);
        assert_eq!(labels.classes[21], "chimpanzee");
        assert_eq!(data.train.images.names()[3], "train/00003");
    }

    #[test]
    fn class_names_come_from_the_release_when_whole() {
        let dir = TempDir::new().unwrap();
        write(&SMALL, dir.path());
        let names = |text: &str| {
            fs::write(dir.path().join("batches.meta.txt"), text).unwrap();
            read(&SMALL, &from(dir.path())).unwrap().train.labels.unwrap().classes
        };
        assert_eq!(names("a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n")[3], "d");
        assert_eq!(names("a\nb\n")[3], "cat");
    }

    #[test]
    fn a_limit_reads_only_the_files_it_needs() {
        let dir = TempDir::new().unwrap();
        write(&SMALL, dir.path());
        fs::remove_file(dir.path().join("data_batch_3.bin")).unwrap();
        let data = read(&SMALL, &Load { limit: Some(6), ..from(dir.path()) }).unwrap();
        assert_eq!((data.train.images.len(), data.test.as_ref().unwrap().images.len()), (6, 2));
        assert_eq!(data.test.unwrap().images.ids(), [12, 13], "ids do not depend on the limit");
        assert!(read(&SMALL, &Load { limit: Some(9), ..from(dir.path()) }).is_err());
    }

    #[test]
    fn labels_can_be_left_out() {
        let dir = TempDir::new().unwrap();
        write(&SMALL, dir.path());
        let data = read(&SMALL, &Load { labels: false, ..from(dir.path()) }).unwrap();
        assert!(data.train.labels.is_none() && data.test.unwrap().labels.is_none());
    }

    #[test]
    fn missing_files_are_named_with_their_folder() {
        let error = load(&Load::new(Source::Cifar100), &|_, _| ()).unwrap_err();
        assert_eq!(error.kind, Kind::Usage);
        assert!(error.hint.contains("--data-dir") && error.hint.contains("cifar-100-binary"), "{}", error.hint);
        let dir = TempDir::new().unwrap();
        let error = read(&SMALL, &from(dir.path())).unwrap_err();
        assert_eq!(error.kind, Kind::Data);
        assert!(error.message.contains("data_batch_1.bin") && error.message.contains("cifar-10-batches-bin"));
        write(&SMALL, dir.path());
        fs::remove_file(dir.path().join("data_batch_2.bin")).unwrap();
        let error = read(&SMALL, &from(dir.path())).unwrap_err();
        assert!(error.message.contains("no data_batch_2.bin in"), "{error}");
        assert!(error.hint.contains("cifar-10-binary.tar.gz"));
    }

    #[test]
    fn a_file_of_the_wrong_size_is_refused() {
        let dir = TempDir::new().unwrap();
        write(&SMALL, dir.path());
        let whole = records(&SMALL, 1, 4);
        for (bytes, what) in [
            (&whole[..5000], "is truncated: 5000 bytes instead of 12292 (4 records of 3073 bytes)"),
            (&whole[..2 * 3073], "is truncated: 6146 bytes"),
            (&[&whole[..], b"x"].concat(), "is too long: 12293 bytes"),
            (b"", "is truncated: 0 bytes"),
        ] {
            fs::write(dir.path().join("data_batch_2.bin"), bytes).unwrap();
            let error = read(&SMALL, &from(dir.path())).unwrap_err();
            assert!(error.message.contains(what) && error.message.contains("data_batch_2.bin"), "{error}");
            assert!(error.hint.contains("get it again"));
        }
        fs::remove_file(dir.path().join("data_batch_2.bin")).unwrap();
        fs::create_dir(dir.path().join("data_batch_2.bin")).unwrap();
        assert!(read(&SMALL, &from(dir.path())).is_err());
    }

    #[test]
    fn every_record_is_checked() {
        let dir = TempDir::new().unwrap();
        write(&SMALL, dir.path());
        let mut bytes = records(&SMALL, 0, 4);
        bytes[3 * 3073] = 10;
        fs::write(dir.path().join("data_batch_1.bin"), bytes).unwrap();
        let error = read(&SMALL, &Load { limit: Some(2), ..from(dir.path()) }).unwrap_err();
        assert!(error.message.contains("record 3 has label 10, beyond 9"), "{error}");
        let dir = TempDir::new().unwrap();
        write(&SMALL100, dir.path());
        let mut bytes = records(&SMALL100, 0, 2);
        bytes[3074] = 20;
        fs::write(dir.path().join("test.bin"), bytes).unwrap();
        let error = read(&SMALL100, &from(dir.path())).unwrap_err();
        assert!(error.message.contains("test.bin is damaged: record 1 has label 20, beyond 19"), "{error}");
    }

    #[test]
    fn the_real_releases_have_their_sizes() {
        let dir = TempDir::new().unwrap();
        for (file, size) in
            [("data_batch_1", 30_730_000), ("test_batch", 30_730_000), ("train", 153_700_000), ("test", 30_740_000)]
        {
            // Holes in a file read as zeros, and take no space.
            fs::File::create(dir.path().join(format!("{file}.bin"))).unwrap().set_len(size).unwrap();
        }
        for source in [Source::Cifar10, Source::Cifar100] {
            let data = load(&Load { source, limit: Some(3), ..from(dir.path()) }, &|_, _| ()).unwrap();
            assert_eq!((data.train.images.len(), data.test.unwrap().images.ids()[0]), (3, 50_000));
        }
        assert_eq!((CIFAR10.names.len(), CIFAR100.names.len()), (10, 100));
    }

    proptest::proptest! {
        #[test]
        fn random_files_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..100), whole in proptest::bool::ANY) {
            let dir = TempDir::new().unwrap();
            write(&SMALL, dir.path());
            let mut file = if whole { vec![0; 4 * 3073] } else { Vec::new() };
            file.splice(..bytes.len().min(file.len()), bytes);
            fs::write(dir.path().join("data_batch_1.bin"), file).unwrap();
            let _ = read(&SMALL, &from(dir.path()));
        }
    }
}
