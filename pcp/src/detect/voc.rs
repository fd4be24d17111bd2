//! Images with boxes in the layout of the PASCAL VOC devkit.
//!
//! ```text
//! VOC2007/ImageSets/Main/trainval.txt   names of images, one a line
//! VOC2007/Annotations/000005.xml        their objects
//! VOC2007/JPEGImages/000005.jpg         the images (.jpg, .jpeg or .png)
//! ```

use super::ap::LabelledObject;
use super::boxes::clip;
use super::targets::Truth;
use crate::data::Image;
use crate::data::decode;
use crate::data::voc::{Annotation, Object};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result, listed, nearest};
use pcp_core::io::atomic::read_bytes;
use pcp_core::io::tensors::hex;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// The classes of PASCAL VOC.
pub const CLASSES: [&str; 20] = [
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
];
/// Endings of image files, as they are tried.
const ENDINGS: [&str; 3] = ["jpg", "jpeg", "png"];
/// Pixels by which a box may leave its image: some tools count from 0, and some round up.
const SLACK: f32 = 1.0;
/// Images that are read at once.
const BLOCK: usize = 64;

/// Some images of a devkit.
#[derive(Clone, Debug)]
pub struct Devkit {
    /// Its folder.
    pub root: PathBuf,
    /// The image set.
    pub set: String,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// The images, in the order of the set.
    pub items: Vec<Item>,
    /// SHA-256 of names, annotations and images.
    pub fingerprint: String,
}

/// An image and its objects.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its place in the image set.
    pub id: u64,
    /// Its name in the image set.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Its objects.
    pub objects: Vec<LabelledObject>,
}

impl Item {
    /// The objects to learn from. Without the difficult ones, as is usual.
    pub fn truths(&self) -> Vec<Truth> {
        let easy = self.objects.iter().filter(|o| !o.difficult);
        easy.map(|o| Truth { class: o.class, bounds: o.bounds }).collect()
    }

    /// The picture.
    pub fn image(&self) -> Result<Image> {
        let image = decode::file(&self.path).map_err(|why| broken(&self.path, &why))?;
        if (image.width, image.height) != (self.width, self.height) {
            return Err(broken(&self.path, "it has changed since the command began"));
        }
        Ok(image)
    }
}

fn broken(path: &Path, why: &str) -> Error {
    Error::data(format!("{}: {why}", path.display()), "mend the file, or take its name out of the image set")
}

/// The classes that a user names, or VOC's own.
pub fn classes(named: &[String]) -> Result<Vec<String>> {
    if named.is_empty() {
        return Ok(CLASSES.map(String::from).to_vec());
    }
    for (i, name) in named.iter().enumerate() {
        if name.trim().is_empty() || named[..i].contains(name) {
            return Err(Error::usage(
                format!("`classes` has {} twice or empty", if name.trim().is_empty() { "a name" } else { name }),
                "give every class once, as in `classes` cat,dog",
            ));
        }
    }
    Ok(named.to_vec())
}

impl Devkit {
    /// Reads the first `limit` images of the image set `set` (all when 0) with their annotations; decodes every image once.
    pub fn read(
        root: &Path,
        set: &str,
        classes: &[String],
        limit: usize,
        stop: &Cancel,
        tick: &dyn Fn(usize, usize),
    ) -> Result<Devkit> {
        let listing = root.join("ImageSets/Main").join(format!("{set}.txt"));
        if !listing.is_file() {
            let (message, hint) = match root.join("ImageSets/Main").is_dir() {
                true => (
                    format!("there is no image set {}", listing.display()),
                    format!("give another `set`: {}", sets(root)),
                ),
                false => (
                    format!("{} is not laid out like VOC: it has no ImageSets/Main", root.display()),
                    "give the folder that has ImageSets, Annotations and JPEGImages, as in VOCdevkit/VOC2007".into(),
                ),
            };
            return Err(Error::usage(message, hint));
        }
        let text = String::from_utf8_lossy(&read_bytes(&listing)?).into_owned();
        let names: Vec<(usize, &str)> = (1..)
            .zip(text.lines())
            .filter_map(|(line, text)| Some((line, text.split_whitespace().next()?)))
            .take(if limit == 0 { usize::MAX } else { limit })
            .collect();
        if names.is_empty() {
            return Err(Error::data(format!("{} names no image", listing.display()), "give another `set`"));
        }
        let mut hash = Sha256::new();
        let mut items = Vec::new();
        for (block, part) in names.chunks(BLOCK).enumerate() {
            stop.check()?;
            let of = |(i, (line, name)): (usize, &(usize, &str))| {
                item(root, (block * BLOCK + i) as u64, name, classes).map_err(|e| match e {
                    Fault::Missing(what) => {
                        let message = format!("{}, line {line}: {name} has no {what}", listing.display());
                        Error::data(message, "bring the file, or take the name out of the image set")
                    }
                    Fault::Other(e) => e,
                })
            };
            let read: Vec<Result<(Item, Vec<u8>)>> = part.par_iter().enumerate().map(of).collect();
            for read in read {
                let (item, bytes) = read?;
                hash.update(format!("\0{}\0{:?}\0", item.name, item.objects));
                hash.update(&bytes);
                items.push(item);
            }
            tick(items.len(), names.len());
        }
        let fingerprint = hex(&hash.finalize());
        Ok(Devkit { root: root.to_path_buf(), set: set.into(), classes: classes.to_vec(), items, fingerprint })
    }
}

/// Why an image cannot be read.
enum Fault {
    /// There is no such file of it.
    Missing(&'static str),
    Other(Error),
}

impl From<Error> for Fault {
    fn from(e: Error) -> Fault {
        Fault::Other(e)
    }
}

/// The image called `name`, and the bytes of its file.
fn item(root: &Path, id: u64, name: &str, classes: &[String]) -> std::result::Result<(Item, Vec<u8>), Fault> {
    let image = ENDINGS.map(|ending| root.join("JPEGImages").join(format!("{name}.{ending}")));
    let path = image.into_iter().find(|p| p.is_file()).ok_or(Fault::Missing("file in JPEGImages"))?;
    let notes = root.join("Annotations").join(format!("{name}.xml"));
    if !notes.is_file() {
        return Err(Fault::Missing("file in Annotations"));
    }
    let bytes = read_bytes(&path)?;
    let Image { width, height, .. } = decode::bytes(&bytes).map_err(|why| broken(&path, &why))?;
    let annotation = Annotation::read(&notes)?;
    let object = |o: &Object| labelled(o, classes, (width, height), &notes);
    let objects = annotation.objects.iter().map(object).collect::<Result<Vec<_>>>()?;
    Ok((Item { id, name: name.to_string(), path, width, height, objects }, bytes))
}

/// An object with the number of its class, inside its image.
fn labelled(
    object: &Object,
    classes: &[String],
    (width, height): (usize, usize),
    file: &Path,
) -> Result<LabelledObject> {
    let Object { class, bounds, difficult, line } = object;
    let wrong = |what: String, hint: String| Error::data(format!("{}, line {line}: {what}", file.display()), hint);
    let place = classes.iter().position(|c| c == class).ok_or_else(|| {
        let guess = nearest(class, classes.iter().map(String::as_str));
        let guess = guess.map(|g| format!("did you mean {g}? ")).unwrap_or_default();
        let hint = format!("{guess}the classes are {}; bring your own with `classes`", listed(classes));
        wrong(format!("there is no class {class}"), hint)
    })?;
    let inside = clip(*bounds, width as f32, height as f32);
    let far = bounds.iter().zip(inside).any(|(b, i)| (b - i).abs() > SLACK);
    if far || inside[2] <= inside[0] || inside[3] <= inside[1] {
        let [left, top, right, bottom] = [bounds[0] + 1.0, bounds[1] + 1.0, bounds[2], bounds[3]];
        return Err(wrong(
            format!("the box {left}, {top}, {right}, {bottom} leaves the image of {width} x {height} pixels"),
            "mend the box; VOC counts pixels from 1 to the width and the height".into(),
        ));
    }
    Ok(LabelledObject { class: place, bounds: inside, difficult: *difficult })
}

/// The first names of image sets in `root`, for an error message.
fn sets(root: &Path) -> String {
    let entries = std::fs::read_dir(root.join("ImageSets/Main")).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|e| e.file_name().to_string_lossy().strip_suffix(".txt").map(String::from)).collect();
    names.sort();
    names.truncate(8);
    listed(names)
}

#[cfg(test)]
mod tests {
    use super::super::shapes;
    use super::*;
    use std::fs;

    fn made() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("VOC2007");
        shapes::write(&root, &shapes::Request { train: 3, test: 2, side: 64, seed: 1 }, &Cancel::default()).unwrap();
        (dir, root)
    }

    fn read(root: &Path) -> Result<Devkit> {
        Devkit::read(root, "trainval", &shapes::classes(), 0, &Cancel::default(), &|_, _| ())
    }

    fn names() -> Vec<String> {
        CLASSES.map(String::from).to_vec()
    }

    /// The error after `from` became `to` in an annotation.
    fn refused(from: &str, to: &str) -> Error {
        let (_dir, root) = made();
        let file = root.join("Annotations/000000.xml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&file, text.replacen(from, to, 1)).unwrap();
        let e = read(&root).unwrap_err();
        assert!(e.message.contains("000000.xml, line "), "{e:?}");
        e
    }

    #[test]
    fn a_devkit_is_read_in_the_order_of_its_set() {
        let (_dir, root) = made();
        let found = read(&root).unwrap();
        assert_eq!(found.items.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["000000", "000001", "000002"]);
        assert!(found.items.iter().all(|i| !i.objects.is_empty() && i.image().is_ok()));
        let again = read(&root).unwrap();
        assert_eq!(found.fingerprint, again.fingerprint);
        let stop = Cancel::default();
        let one = Devkit::read(&root, "trainval", &shapes::classes(), 1, &stop, &|_, _| ()).unwrap();
        assert!(one.items.len() == 1 && one.fingerprint != found.fingerprint);
        stop.request();
        let stopped = Devkit::read(&root, "trainval", &shapes::classes(), 1, &stop, &|_, _| ());
        assert_eq!(stopped.unwrap_err().exit_code(), 130);
    }

    #[test]
    fn what_is_wrong_in_an_annotation_is_named_with_its_line() {
        assert!(refused("</annotation>", "</annotated>").message.contains("annotat"));
        assert!(refused("<xmin>", "<xmin>9999").message.contains("empty"));
        assert!(refused("<xmax>", "<xmax>9").message.contains("leaves the image"));
        let e = refused("<name>", "<name>zebra-");
        assert!(e.message.contains("there is no class zebra-") && e.hint.contains("`classes`"), "{e:?}");
    }

    #[test]
    fn a_missing_image_is_named_with_the_line_of_its_set() {
        let (_dir, root) = made();
        let listing = root.join("ImageSets/Main/trainval.txt");
        fs::write(&listing, "000000\n\n000777 -1\n").unwrap();
        let e = read(&root).unwrap_err();
        assert!(e.message.contains("trainval.txt, line 3: 000777 has no file in JPEGImages"), "{e:?}");
        fs::write(&listing, "000000\n000001\n").unwrap();
        fs::remove_file(root.join("Annotations/000001.xml")).unwrap();
        assert!(read(&root).unwrap_err().message.contains("line 2: 000001 has no file in Annotations"));
        fs::write(&listing, " \n").unwrap();
        assert!(read(&root).unwrap_err().message.contains("names no image"));
        fs::write(root.join("JPEGImages/000000.jpg"), b"no picture").unwrap();
        fs::write(&listing, "000000\n").unwrap();
        assert!(read(&root).unwrap_err().message.contains("000000.jpg: not an image"));
        let other = Devkit::read(&root, "val", &names(), 0, &Cancel::default(), &|_, _| ()).unwrap_err();
        assert!(other.message.contains("val.txt") && other.hint.contains("test, trainval"), "{other:?}");
        let above =
            Devkit::read(root.parent().unwrap(), "val", &names(), 0, &Cancel::default(), &|_, _| ()).unwrap_err();
        assert!(above.message.contains("not laid out like VOC"), "{above:?}");
    }

    #[test]
    fn classes_are_vocs_or_the_users() {
        assert_eq!(classes(&[]).unwrap(), names());
        let own = ["cat".to_string(), "dog".into()];
        assert_eq!(classes(&own).unwrap(), own);
        assert!(classes(&["cat".into(), "cat".into()]).unwrap_err().message.contains("cat twice"));
        assert!(classes(&["".into()]).is_err());
    }

    #[test]
    fn boxes_that_count_from_zero_are_let_in() {
        let object = Object { class: "dog".into(), bounds: [-1.0, -1.0, 20.0, 11.0], difficult: false, line: 1 };
        let found = labelled(&object, &names(), (20, 10), Path::new("x.xml")).unwrap();
        assert_eq!((found.bounds, found.class), ([0.0, 0.0, 20.0, 10.0], 11));
    }
}
