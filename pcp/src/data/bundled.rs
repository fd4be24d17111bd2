//! The data set inside the binary: 1,393 photographs of 14 kinds of fruit, 1,094 to train on and 299 to test on, with a
//! short side of 64 pixels. `examples/make_bundled.rs` made it from the Grocery Store Dataset; its licence is in
//! `assets/LICENSE-groceries`.

use std::io::{Cursor, Read};
use std::path::Path;

use zip::ZipArchive;
use zip::result::ZipResult;

use super::Load;
use super::folder::{Listing, ReadPlan};
use super::origin::Origin;
use pcp_core::error::Result;

static ARCHIVE: &[u8] = include_bytes!("../../assets/groceries.zip");

/// The archive, seen as a folder.
pub(super) fn plan(load: &Load) -> Result<ReadPlan> {
    let listing = listing(ARCHIVE).expect("the archive was compiled in, and a test reads all of it");
    ReadPlan::new("bundled".into(), Path::new("bundled"), listing, load)
}

fn listing(archive: &[u8]) -> ZipResult<Listing> {
    let mut archive = ZipArchive::new(Cursor::new(archive))?;
    let mut listing = Listing::default();
    for i in 0..archive.len() {
        let mut file = archive.by_index(i)?;
        let key = file.name_raw().to_vec();
        let mut bytes = Vec::with_capacity(file.size() as usize);
        file.read_to_end(&mut bytes)?;
        if let Some(end) = key.iter().position(|b| *b == b'/') {
            listing.folders.insert(key[..end].to_vec());
        }
        listing.images.insert(key, Origin::Bytes(bytes.into()));
    }
    Ok(listing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Source, check, load};

    #[test]
    fn every_photograph_is_there() {
        let data = load(&Load::new(Source::Bundled), &|_, _| ()).unwrap();
        let test = data.test.as_ref().unwrap();
        assert_eq!((data.name.as_str(), data.train.images.len(), test.images.len()), ("bundled", 1094, 299));
        assert!(data.bad.is_empty() && data.ignored == 0);
        let (train_labels, test_labels) = (data.train.labels.as_ref().unwrap(), test.labels.as_ref().unwrap());
        assert_eq!(train_labels.classes.len(), 14);
        assert_eq!(train_labels.classes, test_labels.classes);
        assert_eq!((train_labels.of.len(), test_labels.of.len()), (1094, 299));
        assert_eq!(data.train.images.names()[0], "train/Anjou/000.jpg");
        for r in 0..1094 {
            let image = data.train.images.sample(r).unwrap().image;
            assert_eq!(image.width.min(image.height), 64);
            assert!(image.width.max(image.height) <= 86);
        }
        assert!(ARCHIVE.len() < 4_000_000, "{} bytes", ARCHIVE.len());
    }

    #[test]
    fn a_limit_takes_every_class() {
        let data =
            load(&Load { limit: Some(28), stored_side: Some(32), ..Load::new(Source::Bundled) }, &|_, _| ()).unwrap();
        assert_eq!(data.train.images.len(), 28);
        assert_eq!(data.test.unwrap().images.len(), 299);
        let of = data.train.labels.unwrap().of;
        assert_eq!(of, (0..28).map(|i| i / 2).collect::<Vec<_>>());
        assert_eq!(data.train.images.sample(0).unwrap().image.width, 32);
    }

    #[test]
    fn check_counts_what_load_reads() {
        let found = check(&Load::new(Source::Bundled), &|_, _| ()).unwrap();
        let data = load(&Load::new(Source::Bundled), &|_, _| ()).unwrap();
        assert_eq!((found.train, found.test), (1094, Some(299)));
        let classes = found.classes.unwrap();
        assert_eq!((classes[0].name.as_str(), classes[0].train, classes[0].test), ("Anjou", 60, 16));
        assert_eq!(classes.iter().map(|c| c.train + c.test).sum::<usize>(), 1393);
        assert_eq!(found.bytes as usize, data.train.images.bytes() + data.test.unwrap().images.bytes());
        assert_eq!(found.smallest.unwrap().to_string(), "64 x 64");
    }
}
