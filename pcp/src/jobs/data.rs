//! Data sets: what they hold, downloads, and those that are made out of others.

use super::part::{JobPart, on_pool};
use crate::data::derive::{self, Derived};
use crate::data::{self, Check, Load, Source};
use crate::detect::shapes;
use crate::observe::Observer;
use pcp_core::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "fetch")]
pub use download::{DataFetchOptions, DataFetchResult, FetchOutcome, data_fetch};

/// Which data set is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataCheckOptions {
    /// A folder of images or of idx files, cifar10, cifar100 or bundled.
    pub data: String,
    /// Where the CIFAR files are.
    pub data_dir: Option<PathBuf>,
    /// Whether [`DataCheckOptions::judge`] refuses data with a file that cannot be read.
    pub strict: bool,
}

impl DataCheckOptions {
    /// Checks `data`; some broken files are accepted.
    pub fn new(data: impl Into<String>) -> Self {
        DataCheckOptions { data: data.into(), data_dir: None, strict: false }
    }

    /// An error when the data that `check` is about cannot be trained on.
    pub fn judge(&self, check: &Check) -> Result<()> {
        if self.strict && !check.bad.is_empty() {
            return Err(Error::data(
                format!("{} of the files in {} cannot be read", check.bad.len(), self.data),
                "mend or remove them",
            ));
        }
        match check.train {
            0 | 1 => Err(Error::data(
                format!("{} has {} readable images to learn from", check.name, check.train),
                "training needs two at least: add images, or mend the broken ones",
            )),
            _ => Ok(()),
        }
    }
}

/// Counts what a data set holds, and what is broken in it.
pub fn data_check(options: &DataCheckOptions, observer: &Arc<dyn Observer>) -> Result<Check> {
    let source = Source::parse(&options.data)?;
    source.check_dir(options.data_dir.is_some())?;
    let load = Load { data_dir: options.data_dir.clone(), ..Load::new(source) };
    on_pool("checking", 0, observer, move |part| data::check(&load, &|done, total| part.at(done, total)))
}

/// A release that is turned into a folder of links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeriveOptions {
    /// The folder of the release.
    pub release: PathBuf,
    /// The folder to make; it must be new or empty.
    pub out: PathBuf,
}

impl DeriveOptions {
    /// Links to the images of `release` in the new folder `out`.
    pub fn new(release: impl Into<PathBuf>, out: impl Into<PathBuf>) -> Self {
        DeriveOptions { release: release.into(), out: out.into() }
    }
}

/// Makes the paper's ImageNet-100 out of ImageNet.
pub fn data_in100(options: &DeriveOptions, observer: &Arc<dyn Observer>) -> Result<Derived> {
    derive::in100(&options.release, &options.out, observer.cancel())
}

/// Makes training and test folders out of CUB-200-2011.
pub fn data_cub200(options: &DeriveOptions, observer: &Arc<dyn Observer>) -> Result<Derived> {
    let part = JobPart::begin("linking", 0, observer);
    let told = |done, total| part.at(done, total);
    let derived = derive::cub200(&options.release, &options.out, observer.cancel(), &told);
    part.end();
    derived
}

/// A detection set that is made up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataShapesOptions {
    /// The folder to make; it must be new or empty.
    pub out: PathBuf,
    /// Images to learn from.
    pub train: usize,
    /// Images to test on.
    pub test: usize,
    /// Their shorter side in pixels.
    pub side: usize,
    /// Everything random follows from it.
    pub seed: u64,
}

impl DataShapesOptions {
    /// 160 images to learn from and 32 to test on, of 96 pixels.
    pub fn new(out: impl Into<PathBuf>) -> Self {
        DataShapesOptions { out: out.into(), train: 160, test: 32, side: 96, seed: 0 }
    }
}

/// A detection set that was made up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataShapesResult {
    /// The folder.
    pub out: PathBuf,
    /// Images to learn from.
    pub train: usize,
    /// Images to test on.
    pub test: usize,
    /// The classes.
    pub classes: Vec<String>,
}

/// Makes up a small detection set in VOC's layout: discs, squares and triangles on noise.
pub fn data_shapes(options: &DataShapesOptions, observer: &Arc<dyn Observer>) -> Result<DataShapesResult> {
    let DataShapesOptions { out, train, test, side, seed } = options.clone();
    shapes::write(&out, &shapes::Request { train, test, side, seed }, observer.cancel())?;
    Ok(DataShapesResult { out, train, test, classes: shapes::classes() })
}

#[cfg(feature = "fetch")]
mod download {
    use super::{Arc, Deserialize, Observer, PathBuf, Result, Serialize, on_pool};
    use crate::data::fetch::{Archive, Outcome, Patience};
    use std::fmt;

    /// Which data set is downloaded, and where to.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct DataFetchOptions {
        /// cifar10 or cifar100.
        pub data: String,
        /// The folder to put it in.
        pub data_dir: PathBuf,
        /// Another address of the archive; its checksum must be the official one.
        pub from: Option<String>,
    }

    impl DataFetchOptions {
        /// Downloads `data` from its official page into `data_dir`.
        pub fn new(data: impl Into<String>, data_dir: impl Into<PathBuf>) -> Self {
            DataFetchOptions { data: data.into(), data_dir: data_dir.into(), from: None }
        }
    }

    /// How a data set came to be there.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum FetchOutcome {
        /// Everything was there.
        #[serde(rename = "already there")]
        AlreadyThere,
        /// The archive was there, and was unpacked.
        #[serde(rename = "unpacked")]
        Unpacked,
        /// It was downloaded and unpacked.
        #[serde(rename = "fetched")]
        Fetched,
    }

    impl fmt::Display for FetchOutcome {
        fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str(match self {
                FetchOutcome::AlreadyThere => "already there",
                FetchOutcome::Unpacked => "unpacked",
                FetchOutcome::Fetched => "fetched",
            })
        }
    }

    /// A data set that is there now.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct DataFetchResult {
        /// Its name.
        pub data: String,
        /// How it came to be there.
        pub done: FetchOutcome,
        /// The folder it is in.
        pub folder: PathBuf,
    }

    /// Downloads a data set; a download that was begun is continued, and cancelling keeps what came.
    pub fn data_fetch(options: &DataFetchOptions, observer: &Arc<dyn Observer>) -> Result<DataFetchResult> {
        let archive = Archive::named(&options.data)?;
        let archive = Archive { url: options.from.clone().unwrap_or(archive.url), ..archive };
        let folder = options.data_dir.join(archive.folder);
        let (data_dir, cancel) = (options.data_dir.clone(), observer.cancel().clone());
        let outcome = on_pool("fetching", 0, observer, move |part| {
            archive.fetch(&data_dir, Patience::default(), &cancel, &|done, total| {
                part.at(done as usize, total.unwrap_or(0) as usize);
            })
        })?;
        let done = match outcome {
            Outcome::AlreadyThere => FetchOutcome::AlreadyThere,
            Outcome::Unpacked => FetchOutcome::Unpacked,
            Outcome::Fetched => FetchOutcome::Fetched,
        };
        Ok(DataFetchResult { data: options.data.clone(), done, folder })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Silent;

    fn silent() -> Arc<dyn Observer> {
        Arc::new(Silent::default())
    }

    #[test]
    fn folders_are_counted_and_judged() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().display().to_string();
        let options = DataCheckOptions::new(data.clone());
        assert!(data_check(&options, &silent()).is_err(), "no images");
        image::RgbImage::new(8, 8).save(dir.path().join("a.png")).unwrap();
        let one = data_check(&options, &silent()).unwrap();
        assert!(options.judge(&one).unwrap_err().message.contains("1 readable images"));
        image::RgbImage::new(8, 9).save(dir.path().join("b.png")).unwrap();
        std::fs::write(dir.path().join("c.png"), "no").unwrap();
        let check = data_check(&options, &silent()).unwrap();
        assert_eq!((check.train, check.bad.len()), (2, 1));
        options.judge(&check).unwrap();
        let strict = DataCheckOptions { strict: true, ..options };
        assert!(strict.judge(&check).unwrap_err().message.contains("1 of the files"));
        let json = serde_json::to_string(&check).unwrap();
        assert_eq!(serde_json::from_str::<Check>(&json).unwrap(), check);
    }

    #[test]
    fn shapes_are_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let options = DataShapesOptions { train: 2, test: 1, ..DataShapesOptions::new(dir.path().join("s")) };
        let made = data_shapes(&options, &silent()).unwrap();
        assert_eq!((made.train, made.test, made.classes.len()), (2, 1, 3));
        assert!(made.out.join("ImageSets/Main").is_dir());
        assert!(data_shapes(&options, &silent()).unwrap_err().message.contains("there already"));
        let release = DeriveOptions::new(dir.path(), dir.path().join("n"));
        assert!(data_in100(&release, &silent()).unwrap_err().message.contains("no folder train"));
        assert!(data_cub200(&release, &silent()).is_err());
    }
}
