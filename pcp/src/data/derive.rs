//! The paper's data sets ImageNet-100 and CUB-200 as folders of links into their releases: nothing is copied or changed.
//!
//! Both have the folders `train` and `test` with a folder per class in each, as [`super::folder`] reads them. Links point to
//! absolute paths, so the result may be moved, but the release must stay where it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Tick, folder};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result, listed};
use pcp_core::io::atomic;

/// The classes of the paper's ImageNet-100, by their WordNet ids.
const IN100: &str = include_str!("../../assets/imagenet100_classes.txt");

/// Counts of a derived data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Derived {
    /// Classes.
    pub classes: usize,
    /// Training images.
    pub train: usize,
    /// Test images.
    pub test: usize,
}

/// Links to make, by their path within the new folder, and what they point to.
type Links = BTreeMap<PathBuf, PathBuf>;

/// Makes ImageNet-100 in `out`, with a link per class folder: of `imagenet`, `train/<wnid>` becomes `train/<wnid>`, and
/// `val/<wnid>` becomes `test/<wnid>`.
pub fn in100(imagenet: &Path, out: &Path, stop: &Cancel) -> Result<Derived> {
    atomic::require_empty(out)?;
    let imagenet = real(imagenet)?;
    if let Some(absent) = ["train", "val"].into_iter().find(|split| !imagenet.join(split).is_dir()) {
        return Err(Error::usage(
            format!("{} has no folder {absent}", imagenet.display()),
            "give the folder of ImageNet (ILSVRC2012) that holds train/<wnid>/ and val/<wnid>/",
        ));
    }
    let (mut links, mut absent) = (Links::new(), Vec::new());
    let mut count = |from: &str, to: &str| {
        let mut images = 0;
        for class in IN100.lines() {
            stop.check()?;
            let folder = imagenet.join(from).join(class);
            // An empty class folder counts as missing.
            match if folder.is_dir() { folder::count(&folder)? } else { 0 } {
                0 => absent.push(format!("{from}/{class}")),
                some => images += some,
            }
            links.insert(Path::new(to).join(class), folder);
        }
        Ok::<_, Error>(images)
    };
    let made = Derived { train: count("train", "train")?, test: count("val", "test")?, classes: IN100.lines().count() };
    if absent.iter().any(|folder| folder.starts_with("val")) && has_images(&imagenet.join("val"))? {
        return Err(Error::data(
            format!("{} holds images that are in no class folder", imagenet.join("val").display()),
            "move every validation image into val/<wnid>/ first, by its class; valprep.sh of \
             soumith/imagenetloader.torch does it",
        ));
    }
    if !absent.is_empty() {
        const NAMED: usize = 5;
        let more = if absent.len() > NAMED { ", and so on" } else { "" };
        return Err(Error::data(
            format!(
                "{} of the {} class folders in {} are missing or without images: {}{more}",
                absent.len(),
                links.len(),
                imagenet.display(),
                listed(absent.iter().take(NAMED)),
            ),
            "get the whole of ILSVRC2012, and extract the archive of every class into a folder of its name",
        ));
    }
    make(out, &links, stop, &|_, _| ())?;
    Ok(made)
}

/// Makes training and test folders of CUB-200-2011 in `out`, with a link per image, by the official split. The class is the
/// folder that `images.txt` has an image in; the release's other lists repeat this and are not read.
pub fn cub200(cub: &Path, out: &Path, stop: &Cancel, tick: Tick) -> Result<Derived> {
    atomic::require_empty(out)?;
    let cub = real(cub)?;
    let lists = ["images.txt", "train_test_split.txt"];
    if let Some(absent) = lists.into_iter().find(|list| !cub.join(list).is_file()) {
        return Err(Error::usage(
            format!("{} has no file {absent}", cub.display()),
            "give the folder CUB_200_2011 of the release, which holds images.txt, train_test_split.txt and images/",
        ));
    }
    let [images, split] = lists.map(|list| List::read(cub.join(list)));
    let (images, split) = (images?, split?);
    if let Some((id, (line, _))) = split.entries.iter().find(|(id, _)| !images.entries.contains_key(id)) {
        return Err(split.wrong(*line, format!("there is no image {id} in images.txt")));
    }
    if images.entries.is_empty() {
        return Err(Error::data(format!("{} names no images", images.path.display()), List::REMEDY));
    }
    let (mut links, mut classes, mut seen) = (Links::new(), BTreeSet::new(), BTreeSet::new());
    let mut made = Derived { classes: 0, train: 0, test: 0 };
    for (id, (line, name)) in &images.entries {
        stop.check()?;
        let wrong = |what| Err(images.wrong(*line, what));
        let Some((class, file)) = class_and_file(name) else {
            return wrong(format!("'{name}' is not <class>/<file>"));
        };
        let folder = match split.entries.get(id).map(|(line, side)| (line, side.as_str())) {
            Some((_, "1")) => "train",
            Some((_, "0")) => "test",
            Some((line, side)) => return Err(split.wrong(*line, format!("'{side}' is neither 1 (train) nor 0 (test)"))),
            None => return wrong(format!("image {id} is not in train_test_split.txt")),
        };
        let target = cub.join("images").join(class).join(file);
        if !target.is_file() {
            return wrong(format!("there is no file {}", target.display()));
        }
        // A file that occurs twice could be in both splits.
        if !seen.insert(name) {
            return wrong(format!("'{name}' occurs twice"));
        }
        links.insert(Path::new(folder).join(class).join(file), target);
        *(if folder == "train" { &mut made.train } else { &mut made.test }) += 1;
        classes.insert(class);
    }
    made.classes = classes.len();
    make(out, &links, stop, tick)?;
    Ok(made)
}

/// A list of CUB-200-2011: on every line the id of an image, and something about it.
struct List {
    path: PathBuf,
    /// By id: the line's number and its text.
    entries: BTreeMap<u64, (usize, String)>,
}

impl List {
    const REMEDY: &str = "correct it, or get CUB_200_2011 again";

    fn read(path: PathBuf) -> Result<Self> {
        let bytes = atomic::read_bytes(&path)?;
        let mut list = List { path, entries: BTreeMap::new() };
        // A name that is not UTF-8 is later reported as a missing file, with its line.
        for (line, text) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            let (line, text) = (line + 1, text.trim());
            if text.is_empty() {
                continue;
            }
            let (id, value) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
            let Ok(id) = id.parse() else {
                return Err(list.wrong(line, format!("'{id}' is not the number of an image")));
            };
            if list.entries.insert(id, (line, value.trim_start().to_string())).is_some() {
                return Err(list.wrong(line, format!("image {id} occurs twice")));
            }
        }
        Ok(list)
    }

    fn wrong(&self, line: usize, what: String) -> Error {
        Error::data(format!("{} line {line}: {what}", self.path.display()), Self::REMEDY)
    }
}

/// The two parts of `<class>/<file>`; `None` for paths that could lead elsewhere.
fn class_and_file(name: &str) -> Option<(&str, &str)> {
    let plain = |part: &str| Path::new(part).components().eq([Component::Normal(part.as_ref())]);
    name.split_once('/').filter(|(class, file)| plain(class) && plain(file))
}

/// Whether there are images in `dir` itself.
fn has_images(dir: &Path) -> Result<bool> {
    let mut entries = fs::read_dir(dir).map_err(|e| Error::io("list", dir, &e))?;
    Ok(entries.any(|entry| entry.is_ok_and(|entry| folder::is_image_name(&entry.path()))))
}

/// The absolute path of a release.
fn real(release: &Path) -> Result<PathBuf> {
    release.canonicalize().map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            Error::usage(format!("there is no folder {}", release.display()), "check the path of the release")
        }
        _ => Error::io("find", release, &e),
    })
}

/// Makes the folder `out` with these links, atomically.
fn make(out: &Path, links: &Links, stop: &Cancel, tick: Tick) -> Result<()> {
    atomic::make_folder_atomic(out, |unfinished| {
        for folder in ["train", "test"] {
            atomic::make_folder(&unfinished.join(folder))?;
        }
        for (done, (name, target)) in links.iter().enumerate() {
            stop.check()?;
            let path = unfinished.join(name);
            atomic::make_parent(&path)?;
            atomic::link(target, &path)?;
            tick(done + 1, links.len());
        }
        Ok(())
    })
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
