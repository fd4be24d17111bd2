//! Checking a data set: counts of its images and classes, and the files that cannot be read.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{BadFile, Dataset, Load, Source, SplitFolders, Tick, bundled, cifar, folder, idx};
use pcp_core::error::Result;

/// The result of checking a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Name of the data set.
    pub name: String,
    /// Readable training images.
    pub train: usize,
    /// Readable test images, when there is a test split.
    pub test: Option<usize>,
    /// Readable images of every class, when there are labels.
    pub classes: Option<Vec<ClassCount>>,
    /// Files that cannot be read.
    pub bad: Vec<BadFile>,
    /// Number of ignored files.
    pub ignored: usize,
    /// The folders of the splits.
    #[serde(default)]
    pub splits: SplitFolders,
    /// The one folder that all images are in, where its own folders could be classes: perhaps that folder was meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perhaps_meant: Option<String>,
    /// The image with the fewest pixels.
    pub smallest: Option<Size>,
    /// The image with the most pixels.
    pub largest: Option<Size>,
    /// Bytes of the decoded pixels.
    pub bytes: u64,
}

/// How many images a class has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassCount {
    /// Name of the class.
    pub name: String,
    /// Training images.
    pub train: usize,
    /// Test images.
    pub test: usize,
}

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.width, self.height)
    }
}

impl Check {
    pub(super) fn new(name: String, classes: Option<&[String]>, has_test: bool) -> Self {
        let count = |name: &String| ClassCount { name: name.clone(), train: 0, test: 0 };
        let classes = classes.map(|names| names.iter().map(count).collect());
        Check { name, test: has_test.then_some(0), classes, ..Check::default() }
    }

    /// Counts one image of `size` that takes `bytes` in memory.
    pub(super) fn count(&mut self, test: bool, class: Option<u32>, size: Size, bytes: usize) {
        let class = self.classes.as_mut().zip(class).map(|(classes, c)| &mut classes[c as usize]);
        if test {
            *self.test.get_or_insert(0) += 1;
        } else {
            self.train += 1;
        }
        if let Some(class) = class {
            *if test { &mut class.test } else { &mut class.train } += 1;
        }
        let area = |s: Size| s.width * s.height;
        self.smallest = Some(self.smallest.filter(|s| area(*s) <= area(size)).unwrap_or(size));
        self.largest = Some(self.largest.filter(|s| area(*s) >= area(size)).unwrap_or(size));
        self.bytes += bytes as u64;
    }

    pub(super) fn of(dataset: &Dataset) -> Result<Self> {
        let classes = dataset.train.labels.as_ref().map(|labels| labels.classes.as_slice());
        let mut check = Check::new(dataset.name.clone(), classes, dataset.test.is_some());
        for (test, split) in [(false, Some(&dataset.train)), (true, dataset.test.as_ref())] {
            let Some(split) = split else { continue };
            for r in 0..split.images.len() {
                let image = split.images.sample(r)?.image;
                let class = split.labels.as_ref().map(|labels| labels.of[r]);
                check.count(test, class, Size { width: image.width, height: image.height }, image.pixels.len());
            }
        }
        Ok(check)
    }
}

/// Reads and counts all images that [`super::load`] would read, without keeping photographs in memory.
pub fn check(load: &Load, tick: Tick) -> Result<Check> {
    load.validate()?;
    match &load.source {
        Source::Bundled => Ok(bundled::plan(load)?.check(load, tick)),
        Source::Cifar10 => Check::of(&cifar::CIFAR10.read(load, tick)?),
        Source::Cifar100 => Check::of(&cifar::CIFAR100.read(load, tick)?),
        Source::Idx(path) => Check::of(&idx::read(path, load, tick)?),
        Source::Folder(path) => Ok(folder::plan(path, load)?.check(load, tick)),
    }
}
