//! Images: data sets, reading and decoding, and batches for a network.
//!
//! A training [`Sample`] has no label: [`Labels`] are a separate type, which only evaluation and supervised training use.

mod bundled;
mod check;
pub mod decode;
pub mod derive;
pub mod facts;
#[cfg(feature = "fetch")]
pub mod fetch;
mod images;
mod memory_budget;
mod note;
mod origin;
mod pictures;
pub mod pixel_cache;
mod prefetch;
mod routed;
mod share;
mod survey;
#[cfg(test)]
mod tests;
mod view;

// Public for the program, examples/make_photos.rs and tests/fuzz.rs alone.
#[doc(hidden)]
pub mod augment;
#[doc(hidden)]
pub mod cifar;
#[doc(hidden)]
pub mod folder;
#[doc(hidden)]
pub mod idx;
#[doc(hidden)]
pub mod loader;
#[doc(hidden)]
pub mod resize;
#[doc(hidden)]
pub mod voc;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::Cache;
use crate::decisions::Decided;
use images::PixelSums;
use pcp_core::error::{Error, Result, listed, nearest};
pub use pcp_core::labels::Labels;
use pcp_core::peers::Team;

pub use check::{Check, ClassCount, Size, check};
pub use images::{Images, Sample};
pub use origin::{FileStamp, Stamp};
pub use pictures::{FileRow, PictureBatch, Pictures};
pub use prefetch::Prefetch;
pub use routed::Routed;
pub use share::BatchShare;
pub use survey::{Survey, count_images, survey};
pub use view::{Batch, CleanView};

/// An RGB image, `height * width * 3` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Red, green, blue, pixel by pixel, row by row.
    pub pixels: Vec<u8>,
}

/// A split of a data set: images and, if known, their labels.
#[derive(Clone, Debug, Default)]
pub struct Split {
    /// The pictures.
    pub images: Images,
    /// Their classes, in the order of the images.
    pub labels: Option<Labels>,
}

/// A file that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadFile {
    /// Its id: the index in the listing.
    pub id: u64,
    /// Its name, relative to the data set.
    pub name: String,
    /// Why it could not be used.
    pub reason: String,
}

/// A data set: training images, optional test images, and the files that could not be read.
#[derive(Clone, Debug, Default)]
pub struct Dataset {
    /// A short name for run folders and tables.
    pub name: String,
    /// Training images.
    pub train: Split,
    /// Test images; without them, evaluation is leave-one-out on the training images.
    pub test: Option<Split>,
    /// Files that were skipped.
    pub bad: Vec<BadFile>,
    /// Number of ignored files: those without an image's extension, and images outside the folders of the splits.
    pub ignored: usize,
    /// The folders of the splits, where the images are in such folders.
    pub splits: SplitFolders,
    /// Size and modification time of every file when it was read, unreadable ones included; empty for the bundled images.
    pub stamps: Vec<FileStamp>,
    /// The processes that have read it, each a part of the images.
    pub team: Team,
}

/// The folders of a data set's splits, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitFolders {
    /// Images to learn from.
    pub train: Option<String>,
    /// Images to test on.
    pub test: Option<String>,
    /// Other splits, such as `val` beside `test`, with their number of images: they are not used.
    pub unused: Vec<(String, usize)>,
}

/// The smallest standard deviation that [`Dataset::mean_std`] returns: one grey level, so that constant images can be normalised.
pub const SMALLEST_STD: f32 = 1.0 / 255.0;

impl Dataset {
    /// Mean and standard deviation of each channel over all training pixels, in `0..1`.
    ///
    /// The sums are integers, hence exact in any order of the threads.
    pub fn mean_std(&self) -> ([f32; 3], [f32; 3]) {
        let PixelSums { pixels: n, sum, squares } = self.train.images.sums();
        let n = n.max(1);
        let mean = sum.map(|s| (s as f64 / n as f64 / 255.0) as f32);
        let std = [0, 1, 2].map(|c| {
            // n^2 times the variance, in integers: no cancellation.
            let spread = u128::from(n) * u128::from(squares[c]) - u128::from(sum[c]).pow(2);
            (((spread as f64).sqrt() / n as f64 / 255.0) as f32).max(SMALLEST_STD)
        });
        (mean, std)
    }

    /// Sixteen hexadecimal digits that change with any name, id, dimension, pixel or label of the data set.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for split in [Some(&self.train), self.test.as_ref()] {
            let Some(split) = split else {
                hash.update([0]);
                continue;
            };
            hash.update([1]);
            hash.update((split.images.len() as u64).to_le_bytes());
            // Images are hashed separately, so that they can be hashed in parallel.
            split.images.digests().iter().for_each(|digest| hash.update(digest));
            let Some(labels) = &split.labels else {
                hash.update([0]);
                continue;
            };
            hash.update([1]);
            hash.update((labels.classes.len() as u64).to_le_bytes());
            labels.classes.iter().for_each(|class| update_text(&mut hash, class));
            labels.of.iter().for_each(|class| hash.update(class.to_le_bytes()));
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Replaces labels by those that were decided; new ones become classes.
    fn relabel(&mut self, decided: &Decided) {
        let splits = || [Some(&self.train), self.test.as_ref()].into_iter().flatten();
        let Some(mut classes) = splits().find_map(|split| split.labels.as_ref()).map(|labels| labels.classes.clone())
        else {
            return;
        };
        for label in splits().flat_map(|split| split.images.names()).filter_map(|name| decided.labels.get(name)) {
            if !classes.contains(label) {
                classes.push(label.clone());
            }
        }
        for split in [Some(&mut self.train), self.test.as_mut()].into_iter().flatten() {
            let Split { images, labels: Some(labels) } = split else { continue };
            labels.classes.clone_from(&classes);
            for (name, of) in images.names().iter().zip(&mut labels.of) {
                let class = decided.labels.get(name).and_then(|label| classes.iter().position(|class| class == label));
                *of = class.map_or(*of, |class| class as u32);
            }
        }
    }

    /// An error if there are fewer than two training images or, with `strict`, if any file could not be read.
    fn usable(self, source: &Source, strict: bool) -> Result<Self> {
        if strict && !self.bad.is_empty() {
            let some = self.bad.iter().take(3).map(|bad| format!("{} ({})", bad.name, bad.reason));
            let more = if self.bad.len() > 3 { ", ..." } else { "" };
            return Err(Error::data(
                format!("{} of the files in {source} cannot be read: {}{more}", self.bad.len(), listed(some)),
                "`pcp data check` lists them all: correct or remove them, or leave out --strict to skip them",
            ));
        }
        match (self.train.images.len(), self.bad.first()) {
            (0, Some(bad)) => Err(Error::data(
                format!("none of the training images in {source} can be read; {}: {}", bad.name, bad.reason),
                format!("{} images can be read: convert the files, or get them again", decode::FORMATS),
            )),
            (0, None) => Err(no_images(&source.to_string(), self.ignored)),
            (1, _) => Err(Error::data(
                format!("{source} needs at least two training images, and only one can be read"),
                "add images (`pcp data check` lists the files that cannot be read), or raise --limit",
            )),
            _ => Ok(self),
        }
    }
}

/// Hashes the length of `text`, then `text`, so that the boundaries of texts count.
fn update_text(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

/// The error for a folder without images.
fn no_images(place: &str, ignored: usize) -> Error {
    let others = if ignored > 0 { format!(" (files of other kinds: {ignored})") } else { String::new() };
    Error::data(
        format!("no images in {place}{others}"),
        format!(
            "images are looked for at any depth, by the names {}",
            listed(folder::EXTENSIONS.map(|e| format!("*.{e}")))
        ),
    )
}

/// The source of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The photographs that are compiled in.
    Bundled,
    /// The CIFAR-10 binary release.
    Cifar10,
    /// The CIFAR-100 binary release, with its fine labels.
    Cifar100,
    /// A folder of images.
    Folder(PathBuf),
    /// A folder of idx files, as of the MNIST family, or the file of training images.
    Idx(PathBuf),
}

impl Source {
    /// The data sets that have a name.
    pub const NAMES: [&str; 3] = ["bundled", "cifar10", "cifar100"];

    /// Parses the name of a data set or a path (write `./bundled` for a folder with the name of a data set).
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "bundled" => Ok(Source::Bundled),
            "cifar10" => Ok(Source::Cifar10),
            "cifar100" => Ok(Source::Cifar100),
            path if !path.is_empty() && idx::is_source(Path::new(path)) => Ok(Source::Idx(path.into())),
            path if !path.is_empty() && Path::new(path).exists() => Ok(Source::Folder(path.into())),
            unknown => {
                let known = nearest(&unknown.to_lowercase(), Self::NAMES);
                let hint = known.map_or_else(|| "check the path".into(), |name| format!("did you mean {name}?"));
                Err(Error::usage(
                    format!("there is no folder and no data set called '{unknown}'"),
                    format!("{hint} (known data sets: {}; anything else is a folder of images)", listed(Self::NAMES)),
                ))
            }
        }
    }

    /// An error if a folder of CIFAR files is `given` for another source.
    pub fn check_dir(&self, given: bool) -> Result<()> {
        if given && !matches!(self, Source::Cifar10 | Source::Cifar100) {
            return Err(Error::usage("--data-dir is for cifar10 and cifar100", format!("leave it out for {self}")));
        }
        Ok(())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Bundled => f.write_str("bundled"),
            Source::Cifar10 => f.write_str("cifar10"),
            Source::Cifar100 => f.write_str("cifar100"),
            Source::Folder(path) | Source::Idx(path) => path.display().fmt(f),
        }
    }
}

/// A request to load a data set.
#[derive(Clone, Debug)]
pub struct Load {
    /// The source.
    pub source: Source,
    /// The folder that holds the CIFAR releases.
    pub data_dir: Option<PathBuf>,
    /// How many training images to take: for CIFAR the first records; for folders (and the bundled images) the first
    /// image of every class folder, then the second of each, and so on, so that no class is left out. Files are counted
    /// before they are read: an unreadable one is not replaced by another.
    pub limit: Option<usize>,
    /// Short side to which larger photographs are shrunk as they are read; `None` keeps them. CIFAR and idx stay as they are.
    pub stored_side: Option<usize>,
    /// Whether labels are kept where the data has them.
    pub labels: bool,
    /// Whether decoded images stay in memory; results do not depend on it.
    pub cache: Cache,
    /// Whether a file that cannot be read is an error.
    pub strict: bool,
    /// What was decided about the images: those to remove and copies are left out, labels of folders' images are as decided. The others keep
    /// their ids.
    pub decided: Option<Arc<Decided>>,
    /// The processes that read it together, each a part of the images.
    pub team: Team,
}

impl Load {
    /// All images of `source`, in their own size, with labels.
    pub fn new(source: Source) -> Self {
        Load {
            source,
            data_dir: None,
            limit: None,
            stored_side: None,
            labels: true,
            cache: Cache::Auto,
            strict: false,
            decided: None,
            team: Team::default(),
        }
    }

    /// Whether decisions leave the image called `name` out.
    fn leaves_out(&self, name: &str) -> bool {
        self.decided.as_ref().is_some_and(|decided| decided.leaves_out(name))
    }

    /// Removes the rows that decisions leave out, and their `labels`, where there are some.
    fn leave_out<L>(&self, rows: &mut Vec<images::ReadRow>, labels: &mut Vec<L>) {
        if self.decided.is_some() {
            let stays: Vec<bool> = rows.iter().map(|row| !self.leaves_out(&row.name)).collect();
            let mut at = stays.iter();
            labels.retain(|_| at.next() != Some(&false));
            let mut at = stays.iter();
            rows.retain(|_| at.next() != Some(&false));
        }
    }

    fn validate(&self) -> Result<()> {
        if let Some(limit @ 0..2) = self.limit {
            return Err(Error::usage(
                format!("a limit of {limit} leaves too few images to train on"),
                "give --limit at least 2 images, or leave it out to take them all",
            ));
        }
        if self.stored_side == Some(0) {
            return Err(Error::usage("images cannot be stored with 0 pixels", "give a side of at least 1 pixel"));
        }
        Ok(())
    }
}

/// A progress callback: gets (images done, images in all). It is called from several threads, in any order.
pub type Tick<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Reads a data set. Files that cannot be read are in [`Dataset::bad`]; fewer than two training images are an error.
pub fn load(load: &Load, tick: Tick) -> Result<Dataset> {
    load.validate()?;
    let mut dataset = match &load.source {
        Source::Bundled => bundled::plan(load)?.read(load, tick)?,
        Source::Cifar10 => cifar::CIFAR10.read(load, tick)?,
        Source::Cifar100 => cifar::CIFAR100.read(load, tick)?,
        Source::Folder(path) => folder::plan(path, load)?.read(load, tick)?,
        Source::Idx(path) => idx::read(path, load, tick)?,
    };
    dataset.team = load.team.clone();
    if let Some(decided) = &load.decided {
        dataset.relabel(decided);
    }
    dataset.usable(&load.source, load.strict)
}
