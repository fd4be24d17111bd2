//! What is in a folder of images, by the names of its files.

use super::{is_image_name, text};
use crate::data::decode::Reason;
use crate::data::origin::Origin;
use pcp_core::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

pub(super) const TRAIN: [&str; 2] = ["train", "training"];
pub(super) const TEST: [&str; 2] = ["test", "testing"];
pub(super) const VALIDATION: [&str; 3] = ["val", "valid", "validation"];

/// The contents of a folder.
#[derive(Default)]
pub(in crate::data) struct Listing {
    /// Images by their path relative to the folder, as bytes with `/` between the names: names need not be UTF-8.
    pub images: BTreeMap<Vec<u8>, Origin>,
    /// The top-level folders, also those without images.
    pub folders: BTreeSet<Vec<u8>>,
    /// Number of files without an image's extension, and of links to folders that were read already.
    pub ignored: usize,
    /// Folders that cannot be read, and why.
    pub unreadable: Vec<(String, Reason)>,
}

impl Listing {
    /// The contents of the folder `top`.
    pub(super) fn of(top: &Path) -> Result<Listing> {
        let (mut listing, mut seen, mut links) = (Listing::default(), HashSet::new(), BTreeMap::new());
        listing.walk(top, b"", &mut seen, &mut links).map_err(|error| Error::io("list", top, &error))?;
        // Folders behind links come last, so that every folder below the top has its own name.
        while let Some((key, path)) = links.pop_first() {
            listing.walk_below(&path, key, &mut seen, &mut links);
        }
        Ok(listing)
    }

    /// Adds the contents of `dir`, whose path relative to the top is `prefix`, unless it is among the real paths `seen`. Links to folders
    /// are left for later.
    fn walk(
        &mut self,
        dir: &Path,
        prefix: &[u8],
        seen: &mut HashSet<PathBuf>,
        links: &mut BTreeMap<Vec<u8>, PathBuf>,
    ) -> std::io::Result<()> {
        if !seen.insert(dir.canonicalize()?) {
            self.ignored += 1;
            return Ok(());
        }
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let key = [prefix, name.as_encoded_bytes()].concat();
            if is_image_name(&path) {
                self.images.insert(key, Origin::Path(path, None));
                continue;
            }
            let kind = entry.file_type()?;
            let is_folder =
                if kind.is_symlink() { path.metadata().map(|about| about.is_dir()) } else { Ok(kind.is_dir()) };
            match is_folder {
                Ok(true) => {
                    if prefix.is_empty() {
                        self.folders.insert(key.clone());
                    }
                    if kind.is_symlink() {
                        links.insert(key, path);
                    } else {
                        self.walk_below(&path, key, seen, links);
                    }
                }
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => self.unreadable(&key, &e),
                _ => self.ignored += 1,
            }
        }
        Ok(())
    }

    /// As `walk`, for a folder below the top: one that cannot be read is listed with the reason.
    fn walk_below(
        &mut self,
        dir: &Path,
        mut key: Vec<u8>,
        seen: &mut HashSet<PathBuf>,
        links: &mut BTreeMap<Vec<u8>, PathBuf>,
    ) {
        key.push(b'/');
        if let Err(e) = self.walk(dir, &key, seen, links) {
            self.unreadable(&key, &e);
        }
    }

    fn unreadable(&mut self, key: &[u8], e: &std::io::Error) {
        self.unreadable.push((text(key), format!("cannot be listed: {e}")));
    }

    /// The folders that hold splits of their own, where the listing has none at its top: it is one folder too high.
    pub(super) fn nested_splits(&self) -> Vec<String> {
        let named = |names: &[&str], part: &[u8]| names.iter().any(|n| part.eq_ignore_ascii_case(n.as_bytes()));
        let mut found: BTreeMap<&[u8], [bool; 2]> = BTreeMap::new();
        for key in self.images.keys() {
            let mut parts = key.split(|b| *b == b'/');
            if let (Some(folder), Some(split), Some(_)) = (parts.next(), parts.next(), parts.next()) {
                let has = found.entry(folder).or_default();
                has[0] |= named(&TRAIN, split);
                has[1] |= named(&TEST, split) || named(&VALIDATION, split);
            }
        }
        found.into_iter().filter(|(_, has)| *has == [true; 2]).map(|(folder, _)| text(folder)).collect()
    }

    /// The folders of splits that are left out, since there are others, and how many images each has.
    pub(super) fn unused_splits(&self, train: &[u8], test: Option<&[u8]>) -> Vec<(String, usize)> {
        let names = || TRAIN.iter().chain(&TEST).chain(&VALIDATION);
        let is_split = |folder: &[u8]| names().any(|n| folder.eq_ignore_ascii_case(n.as_bytes()));
        let used = |root: &[u8]| root == train || Some(root) == test;
        let roots = self.folders.iter().filter(|f| test.is_some() && is_split(f)).map(|f| [f, &b"/"[..]].concat());
        let count = |root: &Vec<u8>| self.images.keys().filter(|key| key.starts_with(root)).count();
        roots.filter(|root| !used(root)).map(|root| (text(&root), count(&root))).filter(|(_, n)| *n > 0).collect()
    }

    /// The path prefixes of the training images and of the test images.
    pub(super) fn splits(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let find = |names: &[&str]| {
            let found = self.folders.iter().find(|f| names.iter().any(|n| f.eq_ignore_ascii_case(n.as_bytes())))?;
            Some([found, &b"/"[..]].concat())
        };
        let (train, test) = (find(&TRAIN), find(&TEST).or_else(|| find(&VALIDATION)));
        match (train, test) {
            (Some(train), Some(test)) => (train, Some(test)),
            (Some(train), None) if self.images.keys().all(|key| key.starts_with(&train)) => (train, None),
            _ => (Vec::new(), None),
        }
    }
}
