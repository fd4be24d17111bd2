//! Tests of loading as a whole, mostly of folders; those of CIFAR and of decoding are beside their code.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use image::{Rgb, RgbImage};
use tempfile::TempDir;

use super::*;
use pcp_core::error::Kind;

/// Writes a picture whose pixels depend on its path; PNG, whatever the name says, so that pixels stay as they are.
fn put(root: &Path, name: &str) {
    put_sized(root, name, 5, 4);
}

fn put_sized(root: &Path, name: &str, width: u32, height: u32) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let tint = name.bytes().fold(7u32, |a, b| a * 31 % 251 + u32::from(b));
    let picture = RgbImage::from_fn(width, height, |x, y| Rgb([(tint + x) as u8, (tint * 3 + y) as u8, (x * y) as u8]));
    picture.save_with_format(path, image::ImageFormat::Png).unwrap();
}

fn folder(names: &[&str]) -> TempDir {
    let dir = TempDir::new().unwrap();
    names.iter().for_each(|name| put(dir.path(), name));
    dir
}

fn of(dir: &TempDir) -> Load {
    Load::new(Source::Folder(dir.path().into()))
}

fn read(load: &Load) -> Result<Dataset> {
    super::load(load, &|_, _| ())
}

fn names(split: &Split) -> Vec<&str> {
    split.images.names().iter().map(String::as_str).collect()
}

#[test]
fn folders_of_any_depth_are_listed_in_byte_order() {
    let dir = folder(&["b/c/d/1.jpg", "a-b/x.PNG", "a/2.JpEg", "a/10.png", "z.jpg"]);
    put(dir.path(), ".hidden.png");
    put(dir.path(), ".git/x.png");
    fs::write(dir.path().join("notes.txt"), "hello").unwrap();
    fs::write(dir.path().join("a/list.csv"), "hello").unwrap();
    let data = read(&of(&dir)).unwrap();
    assert_eq!(names(&data.train), ["a-b/x.PNG", "a/10.png", "a/2.JpEg", "b/c/d/1.jpg", "z.jpg"]);
    assert_eq!(data.train.images.ids(), [0, 1, 2, 3, 4]);
    assert_eq!((data.ignored, data.bad.len(), data.test.is_none()), (2, 0, true));
    assert!(data.train.labels.is_none(), "z.jpg is in no class folder");
    let image = data.train.images.sample(4).unwrap().image;
    assert_eq!((image.width, image.height, image.pixels.len()), (5, 4, 60));
}

#[test]
fn class_folders_give_labels_unless_told_not_to() {
    let dir = folder(&["cat/1.png", "cat/deep/2.png", "ant/1.png"]);
    let data = read(&of(&dir)).unwrap();
    assert_eq!(data.train.labels, Some(Labels { classes: vec!["ant".into(), "cat".into()], of: vec![0, 1, 1] }));
    assert!(read(&Load { labels: false, ..of(&dir) }).unwrap().train.labels.is_none());
    let one = folder(&["cat/1.png", "cat/2.png"]);
    assert!(read(&of(&one)).unwrap().train.labels.is_none(), "one class is none");
}

#[test]
fn splits_share_their_classes() {
    let dir = folder(&["train/b/1.png", "train/c/1.png", "test/a/1.png", "test/b/1.png"]);
    let data = read(&of(&dir)).unwrap();
    let test = data.test.as_ref().unwrap();
    assert_eq!(names(&data.train), ["train/b/1.png", "train/c/1.png"]);
    assert_eq!((data.train.images.ids(), test.images.ids()), (&[0, 1][..], &[2, 3][..]));
    let (train, test) = (data.train.labels.unwrap(), test.labels.clone().unwrap());
    assert_eq!(train.classes, ["a", "b", "c"]);
    assert_eq!(train.classes, test.classes);
    assert_eq!((train.of, test.of), (vec![1, 2], vec![0, 1]));
}

#[test]
fn splits_have_several_names() {
    for (train, test) in [("train", "val"), ("Training", "Testing"), ("train", "validation"), ("TRAIN", "valid")] {
        let dir = folder(&[&format!("{train}/1.png"), &format!("{train}/2.png"), &format!("{test}/3.png")]);
        let data = read(&of(&dir)).unwrap();
        assert_eq!((data.train.images.len(), data.test.unwrap().images.len()), (2, 1), "{train} {test}");
    }
}

#[test]
fn test_goes_before_val_and_the_rest_is_counted() {
    let dir = folder(&["train/1.png", "train/2.png", "test/3.png", "val/4.png", "val/5.png", "other/6.png", "7.png"]);
    let data = read(&of(&dir)).unwrap();
    assert_eq!(names(data.test.as_ref().unwrap()), ["test/3.png"]);
    assert_eq!((data.train.images.len(), data.ignored), (2, 4));
}

#[test]
fn train_alone_is_a_split_only_when_it_holds_everything() {
    let alone = folder(&["train/a/1.png", "train/b/1.png"]);
    assert_eq!(read(&of(&alone)).unwrap().train.labels.unwrap().classes, ["a", "b"]);
    let vehicles = folder(&["train/1.png", "ship/1.png"]);
    assert_eq!(read(&of(&vehicles)).unwrap().train.labels.unwrap().classes, ["ship", "train"]);
}

#[test]
fn test_images_without_classes_have_no_labels() {
    let dir = folder(&["train/a/1.png", "train/b/1.png", "test/1.png"]);
    let data = read(&of(&dir)).unwrap();
    assert_eq!(data.train.labels.unwrap().classes, ["a", "b"]);
    assert!(data.test.unwrap().labels.is_none());
}

#[test]
fn a_broken_file_is_named_and_shifts_no_id() {
    let listing = ["a/1.png", "a/2.png", "a/3.png", "b/1.png", "b/2.png", "b/3.png"];
    let dir = folder(&listing);
    let whole = read(&of(&dir)).unwrap();
    fs::write(dir.path().join("a/2.png"), "").unwrap();
    fs::write(dir.path().join("b/1.png"), "this is text").unwrap();
    let bytes = fs::read(dir.path().join("b/3.png")).unwrap();
    fs::write(dir.path().join("b/3.png"), &bytes[..bytes.len() / 2]).unwrap();
    fs::create_dir(dir.path().join("c.jpg")).unwrap();
    put(dir.path(), "c.jpg/inside.png");
    let data = read(&of(&dir)).unwrap();
    assert_eq!(names(&data.train), ["a/1.png", "a/3.png", "b/2.png"]);
    assert_eq!(data.train.images.ids(), [0, 2, 4]);
    for r in 0..3 {
        let sample = data.train.images.sample(r).unwrap();
        assert_eq!(sample.image, whole.train.images.sample(sample.id as usize).unwrap().image);
    }
    let bad: Vec<_> = data.bad.iter().map(|bad| (bad.id, bad.name.as_str())).collect();
    assert_eq!(bad, [(1, "a/2.png"), (3, "b/1.png"), (5, "b/3.png"), (6, "c.jpg")]);
    let reasons = ["empty file", "not an image", "damaged", "a folder"];
    for (bad, reason) in data.bad.iter().zip(reasons) {
        assert!(bad.reason.starts_with(reason), "{}", bad.reason);
    }
}

#[test]
fn a_split_of_broken_files_is_none() {
    let dir = folder(&["train/1.png", "train/2.png"]);
    fs::create_dir(dir.path().join("test")).unwrap();
    fs::write(dir.path().join("test/3.jpg"), "text").unwrap();
    let data = read(&of(&dir)).unwrap();
    assert!(data.test.is_none());
    assert_eq!((data.bad[0].id, data.bad[0].name.as_str()), (2, "test/3.jpg"));
}

#[test]
fn nothing_to_learn_from_is_an_error() {
    let empty = TempDir::new().unwrap();
    fs::write(empty.path().join("notes.txt"), "").unwrap();
    let error = read(&of(&empty)).unwrap_err();
    assert_eq!(error.kind, Kind::Data);
    assert!(error.message.contains(&empty.path().display().to_string()), "{error}");
    assert!(
        error.message.contains("other kinds: 1")
            && error.hint.contains("*.jpg, *.jpeg, *.png, *.webp, *.bmp, *.gif, *.tif"),
        "{}",
        error.hint
    );

    let one = folder(&["1.png"]);
    let error = read(&of(&one)).unwrap_err();
    assert!(error.message.contains("at least two training images"), "{error}");

    let broken = TempDir::new().unwrap();
    fs::write(broken.path().join("1.jpg"), "text").unwrap();
    let error = read(&of(&broken)).unwrap_err();
    assert!(error.message.contains("1.jpg: not an image"), "{error}");

    let untrained = folder(&["test/1.png", "test/2.png"]);
    fs::create_dir(untrained.path().join("train")).unwrap();
    let error = read(&of(&untrained)).unwrap_err();
    assert!(error.message.contains("no images in") && error.message.contains("train"), "{error}");
}

#[test]
fn files_and_missing_folders_are_refused() {
    let dir = folder(&["1.png"]);
    let file = dir.path().join("1.png");
    let error = read(&Load::new(Source::Folder(file))).unwrap_err();
    assert!(error.kind == Kind::Usage && error.message.contains("is a file, not a folder"), "{error}");
    let gone = read(&Load::new(Source::Folder(dir.path().join("gone")))).unwrap_err();
    assert!(gone.kind == Kind::File && gone.message.contains("gone"), "{gone}");
}

#[test]
fn sources_parse_and_print() {
    let dir = folder(&["1.png"]);
    let path = dir.path().to_str().unwrap();
    for text in ["bundled", "cifar10", "cifar100", path] {
        assert_eq!(Source::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(Source::parse(path).unwrap(), Source::Folder(path.into()));
    for (text, hint) in [("cifar-10", "did you mean cifar10?"), ("CIFAR100", "cifar100?"), ("bundeld", "bundled?")] {
        let error = Source::parse(text).unwrap_err();
        assert!(error.kind == Kind::Usage && error.hint.contains(hint), "{}", error.hint);
    }
    let error = Source::parse("/no/such/place").unwrap_err();
    assert!(error.message.contains("/no/such/place") && error.hint.starts_with("check the path"), "{}", error.hint);
    assert!(Source::parse("").is_err());
}

#[test]
fn a_limit_is_spread_over_the_classes_before_reading() {
    let dir = folder(&["a/1.png", "a/2.png", "a/3.png", "b/1.png", "c/1.png", "c/2.png"]);
    let ids = |limit| read(&Load { limit: Some(limit), ..of(&dir) }).unwrap().train.images.ids().to_vec();
    assert_eq!(ids(2), [0, 3]);
    assert_eq!(ids(3), [0, 3, 4]);
    assert_eq!(ids(5), [0, 1, 3, 4, 5]);
    assert_eq!(ids(6), ids(600));
    fs::write(dir.path().join("a/1.png"), "").unwrap();
    assert_eq!(ids(4), [1, 3, 4], "an unreadable file is not replaced");
    let classes = read(&Load { limit: Some(3), ..of(&dir) }).unwrap().train.labels.unwrap().classes;
    assert_eq!(classes.len(), 3);
    for limit in [0, 1] {
        assert_eq!(read(&Load { limit: Some(limit), ..of(&dir) }).unwrap_err().kind, Kind::Usage);
    }
    let splits = folder(&["train/1.png", "train/2.png", "train/3.png", "test/1.png", "test/2.png"]);
    let data = read(&Load { limit: Some(2), ..of(&splits) }).unwrap();
    assert_eq!(data.test.unwrap().images.ids(), [3, 4], "test images are all taken, with the ids they always have");
}

#[test]
fn photographs_are_stored_small() {
    let dir = TempDir::new().unwrap();
    put_sized(dir.path(), "large.png", 60, 40);
    put_sized(dir.path(), "small.png", 10, 9);
    let data = read(&Load { stored_side: Some(20), ..of(&dir) }).unwrap();
    let size = |r| {
        let image = data.train.images.sample(r).unwrap().image;
        (image.width, image.height)
    };
    assert_eq!((size(0), size(1)), ((30, 20), (10, 9)));
    assert_eq!(read(&Load { stored_side: Some(0), ..of(&dir) }).unwrap_err().kind, Kind::Usage);
}

#[test]
fn check_reports_unreadable_files_without_an_error() {
    let dir = folder(&["train/a/1.png", "train/b/2.png", "test/b/3.png"]);
    put_sized(dir.path(), "train/a/wide.png", 30, 10);
    fs::write(dir.path().join("train/b/bad.jpg"), "text").unwrap();
    fs::write(dir.path().join("train/readme"), "text").unwrap();
    let found = check(&Load { stored_side: Some(5), ..of(&dir) }, &|_, _| ()).unwrap();
    assert_eq!((found.train, found.test, found.bad.len(), found.ignored), (3, Some(1), 1, 1));
    assert_eq!(found.smallest, Some(Size { width: 5, height: 4 }));
    assert_eq!(found.largest, Some(Size { width: 30, height: 10 }));
    assert_eq!(found.bytes, 3 * 60 + 15 * 5 * 3);
    let classes = found.classes.clone().unwrap();
    assert_eq!(classes[0], ClassCount { name: "a".into(), train: 2, test: 0 });
    assert_eq!(classes[1], ClassCount { name: "b".into(), train: 1, test: 1 });
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!((&json["classes"][1]["test"], &json["bad"][0]["name"]), (&1.into(), &"train/b/bad.jpg".into()));

    let broken = TempDir::new().unwrap();
    fs::write(broken.path().join("1.jpg"), "text").unwrap();
    let found = check(&of(&broken), &|_, _| ()).unwrap();
    assert_eq!((found.train, found.test, found.bad.len(), found.smallest), (0, None, 1, None));
    assert!(check(&of(&TempDir::new().unwrap()), &|_, _| ()).is_err());
}

#[test]
fn progress_reaches_the_end() {
    let dir = folder(&["train/1.png", "train/2.png", "train/3.png", "test/1.png"]);
    let seen = Mutex::new(Vec::new());
    super::load(&of(&dir), &|done, total| seen.lock().unwrap().push((done, total))).unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    assert_eq!(seen, [(1, 4), (2, 4), (3, 4), (4, 4)]);
}

#[cfg(unix)]
#[test]
fn links_are_followed_but_not_in_circles() {
    use std::os::unix::fs::symlink;
    let dir = folder(&["a/1.png", "a/2.png"]);
    let elsewhere = folder(&["3.png"]);
    symlink(elsewhere.path(), dir.path().join("b")).unwrap();
    symlink(dir.path(), dir.path().join("a/up")).unwrap();
    symlink(".", dir.path().join("self")).unwrap();
    symlink("nowhere", dir.path().join("dangling.jpg")).unwrap();
    let data = read(&of(&dir)).unwrap();
    assert_eq!(names(&data.train), ["a/1.png", "a/2.png", "b/3.png"]);
    assert_eq!(data.bad[0].name, "dangling.jpg");
    assert!(data.bad[0].reason.starts_with("cannot be read"), "{}", data.bad[0].reason);
}

#[cfg(target_os = "linux")]
#[test]
fn names_need_not_be_utf8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let dir = folder(&["a.png", "b.png"]);
    fs::rename(dir.path().join("b.png"), dir.path().join(OsStr::from_bytes(b"b\xff.png"))).unwrap();
    assert_eq!(names(&read(&of(&dir)).unwrap().train), ["a.png", "b\\xFF.png"]);
}

#[cfg(target_os = "linux")]
#[test]
fn sockets_called_like_images_are_bad_files() {
    let dir = folder(&["a.png", "b.png"]);
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("c.jpg")).unwrap();
    assert_eq!(read(&of(&dir)).unwrap().bad[0].reason, "not a regular file");
}

#[test]
fn names_of_data_sets_suit_run_folders() {
    let dir = TempDir::new().unwrap();
    for name in ["1.png", "2.png"] {
        put(&dir.path().join("my photos (2024)"), name);
    }
    let source = Source::Folder(dir.path().join("my photos (2024)/."));
    assert_eq!(read(&Load::new(source)).unwrap().name, "my-photos--2024-");
}

/// The images in memory.
fn held(images: &mut Images) -> &mut Vec<Image> {
    match &mut images.store {
        images::Store::InMemory(images) => images,
        images::Store::OnDisk(_) | images::Store::Shared(..) => panic!("they are not in memory"),
    }
}

/// Mean and standard deviation in two plain passes.
fn slow_mean_std(images: &[Image]) -> ([f64; 3], [f64; 3]) {
    let channel = |c: usize| -> Vec<f64> {
        images.iter().flat_map(|i| i.pixels.iter().skip(c).step_by(3)).map(|p| f64::from(*p) / 255.0).collect()
    };
    let mean = [0, 1, 2].map(|c| channel(c).iter().sum::<f64>() / channel(c).len() as f64);
    let square = |c: usize| channel(c).iter().map(|x| (x - mean[c]).powi(2)).sum::<f64>() / channel(c).len() as f64;
    (mean, [0, 1, 2].map(|c| square(c).sqrt()))
}

#[test]
fn mean_and_deviation_match_a_slow_twin() {
    let dir = TempDir::new().unwrap();
    put_sized(dir.path(), "a.png", 50, 31);
    put_sized(dir.path(), "b.png", 7, 9);
    put_sized(dir.path(), "c.png", 64, 64);
    let mut data = read(&of(&dir)).unwrap();
    let ((mean, std), (slow_mean, slow_std)) = (data.mean_std(), slow_mean_std(held(&mut data.train.images)));
    for c in 0..3 {
        assert!((f64::from(mean[c]) - slow_mean[c]).abs() < 1e-6, "{mean:?} {slow_mean:?}");
        assert!((f64::from(std[c]) - slow_std[c]).abs() < 1e-6, "{std:?} {slow_std:?}");
    }
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(one.install(|| data.mean_std()), (mean, std));
}

#[test]
fn constant_images_have_a_deviation_to_divide_by() {
    let mut data = Dataset::default();
    for id in 0..2 {
        data.train.images.push(id, id.to_string(), Image { width: 4, height: 4, pixels: vec![51; 48] });
    }
    let (mean, std) = data.mean_std();
    assert_eq!((mean, std), ([0.2; 3], [SMALLEST_STD; 3]));
    assert_eq!(Dataset::default().mean_std().1, [SMALLEST_STD; 3]);
}

#[test]
fn the_fingerprint_sees_every_change() {
    let dir = folder(&["train/a/1.png", "train/b/1.png", "test/a/1.png"]);
    let data = read(&of(&dir)).unwrap();
    let print = data.fingerprint();
    assert_eq!(print, read(&of(&dir)).unwrap().fingerprint());
    assert!(print.len() == 16 && print.bytes().all(|b| b.is_ascii_hexdigit()));
    let changes: [fn(&mut Dataset); 9] = [
        |d| held(&mut d.train.images)[1].pixels[59] ^= 1,
        |d| held(&mut d.test.as_mut().unwrap().images)[0].pixels[0] ^= 1,
        |d| d.train.images.names[0].push('x'),
        |d| d.train.images.ids[1] = 9,
        |d| {
            let image = &mut held(&mut d.train.images)[0];
            (image.width, image.height) = (4, 5);
        },
        |d| d.train.labels.as_mut().unwrap().of[0] = 1,
        |d| d.train.labels.as_mut().unwrap().classes[0].push('x'),
        |d| d.train.labels = None,
        |d| d.test = None,
    ];
    let mut prints = vec![print];
    for change in changes {
        let mut changed = data.clone();
        change(&mut changed);
        prints.push(changed.fingerprint());
    }
    prints.sort();
    prints.dedup();
    assert_eq!(prints.len(), 10);
}

/// The same data in memory and on disk.
#[test]
fn no_bit_depends_on_where_the_images_are() {
    let dir = folder(&["train/a/1.png", "train/b/1.png", "test/a/1.png"]);
    put_sized(dir.path(), "train/a/large.png", 40, 30);
    fs::write(dir.path().join("train/b/bad.png"), "text").unwrap();
    let by = |cache| read(&Load { cache, stored_side: Some(20), ..of(&dir) }).unwrap();
    let (held, left) = (by(Cache::Memory), by(Cache::None));
    assert!(held.train.images.held() && by(Cache::Auto).train.images.held() && !left.train.images.held());
    assert_eq!((left.train.images.bytes(), left.train.images.decoded_bytes()), (0, held.train.images.bytes() as u64));
    assert_eq!((left.fingerprint(), left.mean_std()), (held.fingerprint(), held.mean_std()));
    assert_eq!((left.bad.clone(), left.train.labels.clone()), (held.bad.clone(), held.train.labels.clone()));
    for r in 0..3 {
        let (one, other) = (left.train.images.sample(r).unwrap(), held.train.images.sample(r).unwrap());
        assert_eq!((one.id, one.image), (other.id, other.image));
    }
    let names: Vec<_> = left.stamps.iter().map(|stamp| stamp.name.as_str()).collect();
    assert_eq!(names, ["train/a/1.png", "train/a/large.png", "train/b/1.png", "train/b/bad.png", "test/a/1.png"]);
    assert_eq!(read(&Load::new(Source::Bundled)).unwrap().stamps, []);

    let bundled = |cache| Load { cache, limit: Some(14), stored_side: Some(24), ..Load::new(Source::Bundled) };
    let (held, left) = (read(&bundled(Cache::Memory)).unwrap(), read(&bundled(Cache::None)).unwrap());
    assert_eq!(left.fingerprint(), held.fingerprint());
    assert_eq!(left.train.images.sample(7).unwrap().image, held.train.images.sample(7).unwrap().image);
}

#[test]
fn a_file_that_changes_during_a_run_is_named() {
    let dir = folder(&["1.png", "2.png", "3.png"]);
    let left = read(&Load { cache: Cache::None, ..of(&dir) }).unwrap();
    fs::remove_file(dir.path().join("2.png")).unwrap();
    put_sized(dir.path(), "3.png", 9, 9);
    assert!(left.train.images.sample(0).is_ok());
    for (row, name) in [(1, "2.png"), (2, "3.png")] {
        let error = left.train.images.sample(row).unwrap_err();
        assert!(error.message.starts_with(name) && error.message.contains("gone or was changed"), "{error}");
        assert!(error.hint.contains("--resume"), "{}", error.hint);
    }
}

#[test]
fn other_pixels_with_the_same_size_and_time_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, grey: u8| {
        let path = dir.path().join(name);
        image::RgbImage::from_pixel(9, 9, image::Rgb([grey; 3])).save(&path).unwrap();
        path
    };
    let (_, changed) = (put("1.bmp", 1), put("2.bmp", 2));
    let before = fs::metadata(&changed).unwrap();
    let left = read(&Load { cache: Cache::None, ..of(&dir) }).unwrap();
    put("2.bmp", 3);
    fs::File::options().append(true).open(&changed).unwrap().set_modified(before.modified().unwrap()).unwrap();
    assert_eq!(fs::metadata(&changed).unwrap().len(), before.len());
    assert!(left.train.images.sample(0).is_ok());
    let error = left.train.images.sample(1).unwrap_err();
    assert!(error.message.starts_with("2.bmp") && error.message.contains("other pixels"), "{error}");
}

#[test]
fn strict_refuses_unreadable_files() {
    let dir = folder(&["1.png", "2.png"]);
    let strict = Load { strict: true, ..of(&dir) };
    assert!(read(&strict).is_ok());
    for name in ["a.png", "b.jpg", "c.gif", "d.tif"] {
        fs::write(dir.path().join(name), "text").unwrap();
    }
    let error = read(&strict).unwrap_err();
    assert_eq!(error.kind, Kind::Data);
    for word in ["4 of the files", "a.png (not an image", "b.jpg", "c.gif", "..."] {
        assert!(error.message.contains(word), "{word} is not in {error}");
    }
    assert!(!error.message.contains("d.tif") && error.hint.contains("--strict"), "{error}");
    assert_eq!(read(&of(&dir)).unwrap().bad.len(), 4);
}

proptest::proptest! {
    #[test]
    fn folders_of_random_files_never_panic(files in proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 0..80), 1..4)) {
        let dir = TempDir::new().unwrap();
        for (i, bytes) in files.iter().enumerate() {
            fs::write(dir.path().join(format!("{i}.jpg")), bytes).unwrap();
        }
        let found = check(&of(&dir), &|_, _| ()).unwrap();
        assert_eq!(found.train + found.bad.len(), files.len());
    }
}
