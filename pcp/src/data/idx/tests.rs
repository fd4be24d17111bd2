//! Tests of idx files: what is read, how files find each other, and what is wrong with bad ones.

use super::*;
use crate::config::Cache;
use crate::data::{Check, Source, check, load};
use flate2::Compression;
use flate2::write::GzEncoder;
use pcp_core::error::Kind;
use std::fs;
use std::io::Write;
use tempfile::TempDir;

/// An idx file of bytes.
fn idx(shape: &[u32], values: &[u8]) -> Vec<u8> {
    let sizes = shape.iter().flat_map(|n| n.to_be_bytes());
    [0, 0, 8, shape.len() as u8].into_iter().chain(sizes).chain(values.iter().copied()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// `count` images of 28 x 28: image `i` is `i + 1` everywhere but its first pixel, which is 200.
fn images(count: u32) -> Vec<u8> {
    let pixels = (0..count).flat_map(|i| (0..28 * 28).map(move |p| if p == 0 { 200 } else { i as u8 + 1 }));
    idx(&[count, 28, 28], &pixels.collect::<Vec<_>>())
}

fn mnist(packed: bool) -> TempDir {
    let dir = TempDir::new().unwrap();
    let put = |name: &str, bytes: Vec<u8>| match packed {
        true => fs::write(dir.path().join(format!("{name}.gz")), gzip(&bytes)).unwrap(),
        false => fs::write(dir.path().join(name), bytes).unwrap(),
    };
    put("train-images-idx3-ubyte", images(6));
    put("train-labels-idx1-ubyte", idx(&[6], &[3, 7, 3, 9, 7, 3]));
    put("t10k-images-idx3-ubyte", images(2));
    put("t10k-labels-idx1-ubyte", idx(&[2], &[9, 3]));
    dir
}

fn from(path: &Path) -> Load {
    Load::new(Source::Idx(path.into()))
}

fn read_it(load_: &Load) -> Result<Dataset> {
    load(load_, &|_, _| ())
}

#[test]
fn digits_come_with_a_border_and_their_classes_packed_or_not() {
    let (plain, packed) = (mnist(false), mnist(true));
    let data = read_it(&from(plain.path())).unwrap();
    let test = data.test.as_ref().unwrap();
    assert_eq!((data.train.images.len(), test.images.len()), (6, 2));
    assert_eq!((data.train.images.ids()[5], test.images.ids()), (5, &[6, 7][..]));
    assert_eq!(data.train.images.names()[3], "train-images-idx3-ubyte/00003");
    let labels = data.train.labels.as_ref().unwrap();
    assert_eq!((labels.classes.join(" "), &labels.of[..]), ("3 7 9".into(), &[0, 1, 0, 2, 1, 0][..]));
    assert_eq!(test.labels.as_ref().unwrap().of, [2, 0]);
    let image = data.train.images.sample(4).unwrap().image.into_owned();
    assert_eq!((image.width, image.height), (32, 32));
    let at = |x: usize, y: usize| image.pixels[(y * 32 + x) * 3..][..3].to_vec();
    assert_eq!((at(1, 2), at(2, 2), at(3, 2)), (vec![0; 3], vec![200; 3], vec![5; 3]));
    assert_eq!((at(29, 29), at(30, 29), at(29, 30)), (vec![5; 3], vec![0; 3], vec![0; 3]));
    assert_eq!(data.stamps.len(), 4);

    for (dir, cache) in [(&packed, Cache::Memory), (&packed, Cache::None), (&plain, Cache::None)] {
        let other = read_it(&Load { cache, ..from(dir.path()) }).unwrap();
        assert_eq!(other.fingerprint(), data.fingerprint());
        for r in 0..6 {
            assert_eq!(other.train.images.sample(r).unwrap().image, data.train.images.sample(r).unwrap().image);
        }
    }
    let found = check(&from(packed.path()), &|_, _| ()).unwrap();
    assert_eq!(found, Check { name: found.name.clone(), ..Check::of(&data).unwrap() });
    assert_eq!(found.classes.unwrap()[0].train, 3);
}

#[test]
fn a_limit_takes_the_first_and_moves_no_id() {
    let dir = mnist(true);
    let data = read_it(&Load { limit: Some(2), ..from(dir.path()) }).unwrap();
    assert_eq!((data.train.images.len(), data.train.labels.unwrap().of.len()), (2, 2));
    assert_eq!(data.test.unwrap().images.ids(), [6, 7]);
    assert!(read_it(&Load { labels: false, ..from(dir.path()) }).unwrap().train.labels.is_none());
}

#[test]
fn a_file_selects_its_set() {
    let dir = mnist(false);
    let root = dir.path();
    assert!(is_source(root) && is_source(&root.join("train-images-idx3-ubyte")));
    assert!(!is_source(&root.join("train-labels-idx1-ubyte")) && !is_source(&root.join("gone")));
    assert_eq!(Source::parse(root.to_str().unwrap()).unwrap(), Source::Idx(root.into()));
    let one = read_it(&from(&root.join("train-images-idx3-ubyte"))).unwrap();
    assert_eq!((one.train.images.len(), one.test.unwrap().images.len()), (6, 2));
    // Both forms of one file are one set; another set makes the folder ambiguous.
    fs::write(root.join("train-images-idx3-ubyte.gz"), gzip(&images(6))).unwrap();
    assert!(read_it(&from(root)).is_ok());
    fs::write(root.join("emnist-train-images-idx3-ubyte"), images(3)).unwrap();
    let error = read_it(&from(root)).unwrap_err();
    assert!(error.message.contains("several sets") && error.message.contains("emnist"), "{error}");
    assert!(error.hint.contains("give the file"), "{}", error.hint);
}

#[test]
fn images_alone_are_enough() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("t10k-images.idx3-ubyte"), images(3)).unwrap();
    let data = read_it(&from(dir.path())).unwrap();
    assert!(data.test.is_none() && data.train.labels.is_none());
    assert_eq!(data.train.images.len(), 3);
}

#[test]
fn large_and_uneven_images_keep_their_size() {
    let layout = RecordLayout::Grey { width: 40, height: 31, padded: PADDED };
    let image = layout.image(&[7; 40 * 31]);
    assert_eq!((image.width, image.height), (40, 32));
    assert_eq!((image.pixels[0], image.pixels[31 * 40 * 3]), (7, 0), "an odd row of border is below");
}

#[test]
fn bad_files_are_named_with_what_is_wrong() {
    let whole = images(6);
    let cut = &whole[..whole.len() - 1];
    let cases: [(&str, Vec<u8>, &str); 11] = [
        ("train-images-idx3-ubyte", b"PNG".to_vec(), "is no idx file"),
        ("train-images-idx3-ubyte", b"".to_vec(), "is no idx file"),
        ("train-images-idx3-ubyte", cut.to_vec(), "is truncated: 4719 bytes instead of 4720"),
        ("train-images-idx3-ubyte", [&whole[..], b"x"].concat(), "is too long"),
        ("train-images-idx3-ubyte", gzip(&whole)[..40].to_vec(), "is damaged"),
        ("train-images-idx3-ubyte", idx(&[4], &[1; 4]), "not images"),
        ("train-images-idx3-ubyte", idx(&[1, 0, 9], &[]), "9 x 0 pixels"),
        ("train-images-idx3-ubyte", idx(&[u32::MAX; 3], &[]), "too many values"),
        ("train-images-idx3-ubyte", [&[0, 0, 13, 3], &whole[4..]].concat(), "type 0x0d"),
        ("train-images-idx3-ubyte", [&[0, 0, 8, 3], &[0; 5][..]].concat(), "truncated within its header"),
        ("train-labels-idx1-ubyte", idx(&[5], &[1; 5]), "shape [5] for 6 images"),
    ];
    for (name, bytes, what) in cases {
        let dir = mnist(false);
        fs::write(dir.path().join(name), bytes).unwrap();
        let error = read_it(&from(dir.path())).unwrap_err();
        assert_eq!(error.kind, Kind::Data, "{error}");
        assert!(error.message.contains(name) && error.message.contains(what), "{what}: {error}");
    }
}

#[test]
fn a_bomb_is_not_unpacked() {
    let bomb = gzip(&vec![0; 1 << 20]);
    assert!(bomb.len() < 20_000);
    assert!(unpacked(bomb.clone(), 1 << 20).is_ok());
    let what = unpacked(bomb, (1 << 20) - 1).unwrap_err();
    assert!(what.contains("larger than"), "{what}");
}
