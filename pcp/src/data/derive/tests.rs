//! Tests of derived data sets, on folders of empty files.

use tempfile::TempDir;

use super::*;
use pcp_core::error::Kind;

fn put(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// An ImageNet with all the classes and one more: two training images and one to test on each.
fn imagenet() -> TempDir {
    let dir = TempDir::new().unwrap();
    for class in IN100.lines().chain(["n00000000"]) {
        for image in 0..2 {
            put(dir.path(), &format!("imagenet/train/{class}/{class}_{image}.JPEG"), "");
        }
        put(dir.path(), &format!("imagenet/val/{class}/ILSVRC2012_val_{class}.JPEG"), "");
    }
    put(dir.path(), "imagenet/train/notes.txt", "");
    dir
}

fn try_in100(dir: &TempDir) -> Result<Derived> {
    in100(&dir.path().join("imagenet"), &dir.path().join("out"), &Cancel::default())
}

/// Asserts an error of `kind` that contains `words`, and that no file is left.
fn refused<T: std::fmt::Debug>(dir: &TempDir, made: Result<T>, kind: Kind, words: &[&str]) {
    let e = made.unwrap_err();
    let said = format!("{} | {}", e.message, e.hint);
    assert_eq!(e.kind, kind, "{said}");
    for word in words {
        assert!(said.contains(word), "{word} is not in: {said}");
    }
    assert!(names(dir.path()).iter().all(|name| !name.starts_with("out")), "something is left: {said}");
}

#[test]
fn the_list_has_a_hundred_wordnet_ids() {
    let classes: BTreeSet<&str> = IN100.lines().collect();
    assert_eq!((classes.len(), IN100.lines().count()), (100, 100));
    let wnid = |c: &&str| c.len() == 9 && c.starts_with('n') && c[1..].bytes().all(|b| b.is_ascii_digit());
    assert!(classes.iter().all(wnid));
}

#[test]
fn in100_links_its_classes_and_no_others() {
    let dir = imagenet();
    assert_eq!(try_in100(&dir).unwrap(), Derived { classes: 100, train: 200, test: 100 });
    let out = dir.path().join("out");
    assert_eq!(names(&out), ["test", "train"]);
    let mut classes: Vec<&str> = IN100.lines().collect();
    classes.sort();
    for (split, source) in [("train", "train"), ("test", "val")] {
        assert_eq!(names(&out.join(split)), classes);
        let target = fs::read_link(out.join(split).join(classes[0])).unwrap();
        let expected = dir.path().canonicalize().unwrap().join("imagenet").join(source).join(classes[0]);
        assert_eq!(target, expected, "absolute, so that the folder may be moved");
    }
    assert_eq!(names(dir.path()), ["imagenet", "out"], "nothing unfinished is left");
    assert_eq!(fs::read_dir(dir.path().join("imagenet/train")).unwrap().count(), 102, "the release stays as it is");
}

#[test]
fn in100_says_what_is_missing() {
    let dir = imagenet();
    let classes: Vec<&str> = IN100.lines().collect();
    for class in &classes[..7] {
        fs::remove_dir_all(dir.path().join("imagenet/train").join(class)).unwrap();
    }
    // A folder without images counts as missing, too.
    let empty = dir.path().join("imagenet/val").join(classes[99]);
    fs::remove_dir_all(&empty).unwrap();
    fs::create_dir(&empty).unwrap();
    let named = format!("train/{}, train/{}", classes[0], classes[1]);
    refused(&dir, try_in100(&dir), Kind::Data, &["8 of the 200", &named, "and so on", "extract"]);
    for class in &classes[..7] {
        put(dir.path(), &format!("imagenet/train/{class}/1.JPEG"), "");
    }
    refused(&dir, try_in100(&dir), Kind::Data, &["1 of the 200", &format!("val/{}", classes[99])]);
}

#[test]
fn in100_refuses_a_flat_validation_set_and_what_is_not_imagenet() {
    let dir = imagenet();
    let val = dir.path().join("imagenet/val");
    fs::remove_dir_all(&val).unwrap();
    refused(&dir, try_in100(&dir), Kind::Usage, &["imagenet has no folder val", "val/<wnid>/"]);
    put(&val, "ILSVRC2012_val_00000001.JPEG", "");
    refused(&dir, try_in100(&dir), Kind::Data, &["imagenet/val holds images", "valprep.sh"]);
    fs::remove_dir_all(dir.path().join("imagenet/train")).unwrap();
    refused(&dir, try_in100(&dir), Kind::Usage, &["no folder train"]);
    fs::remove_dir_all(dir.path().join("imagenet")).unwrap();
    refused(&dir, try_in100(&dir), Kind::Usage, &["there is no folder", "imagenet"]);
}

#[test]
fn only_a_new_or_empty_folder_is_used() {
    let dir = imagenet();
    let (source, out) = (dir.path().join("imagenet"), dir.path().join("out"));
    let refusal = |out: &Path| in100(&source, out, &Cancel::default()).unwrap_err();
    put(dir.path(), "file", "mine");
    put(dir.path(), "full/file", "mine");
    for taken in ["file", "full", "imagenet"] {
        let e = refusal(&dir.path().join(taken));
        assert!(e.kind == Kind::Usage && e.message.contains("is there already") && e.hint.contains("`out`"), "{e:?}");
    }
    for nameless in ["", "/", ".", "a/.."] {
        assert!(refusal(Path::new(nameless)).message.contains("cannot be the name"), "{nameless}");
    }
    // A killed process left it.
    fs::create_dir(dir.path().join("out.pcp-unfinished")).unwrap();
    fs::create_dir(&out).unwrap();
    assert!(in100(&source, &out, &Cancel::default()).is_ok(), "an empty folder may be used");
    assert!(!dir.path().join("out.pcp-unfinished").exists());
    assert!(in100(&source, &dir.path().join("new/deep/out"), &Cancel::default()).is_ok());
    assert_eq!(fs::read(dir.path().join("full/file")).unwrap(), b"mine");
}

/// A release with two classes of two images, one of each to learn from.
fn cub() -> TempDir {
    let dir = TempDir::new().unwrap();
    for name in ["001.Crow/a.jpg", "001.Crow/b.jpg", "002.Gull/a.jpg", "002.Gull/b.jpg"] {
        put(dir.path(), &format!("cub/images/{name}"), name);
    }
    put(dir.path(), "cub/images.txt", "1 001.Crow/a.jpg\n2 001.Crow/b.jpg\n3 002.Gull/a.jpg\n4 002.Gull/b.jpg\n");
    put(dir.path(), "cub/train_test_split.txt", "1 0\n2 1\n3 1\n4 0\n");
    dir
}

fn try_cub(dir: &TempDir) -> Result<Derived> {
    cub200(&dir.path().join("cub"), &dir.path().join("out"), &Cancel::default(), &|_, _| ())
}

#[test]
fn cub200_follows_the_official_split() {
    let dir = cub();
    let ticks = std::sync::Mutex::new(Vec::new());
    let tick = |done, total| ticks.lock().unwrap().push((done, total));
    let made = cub200(&dir.path().join("cub"), &dir.path().join("out"), &Cancel::default(), &tick).unwrap();
    assert_eq!(made, Derived { classes: 2, train: 2, test: 2 });
    assert_eq!(*ticks.lock().unwrap(), [(1, 4), (2, 4), (3, 4), (4, 4)]);
    let out = dir.path().join("out");
    for (place, image) in [
        ("train/001.Crow", "b.jpg"),
        ("train/002.Gull", "a.jpg"),
        ("test/001.Crow", "a.jpg"),
        ("test/002.Gull", "b.jpg"),
    ] {
        assert_eq!(names(&out.join(place)), [image]);
        let path = out.join(place).join(image);
        assert!(fs::read_link(&path).unwrap().is_absolute());
        let class = place.split_once('/').unwrap().1;
        assert_eq!(fs::read_to_string(path).unwrap(), format!("{class}/{image}"));
    }
    assert_eq!(names(dir.path()), ["cub", "out"]);
}

#[test]
fn cub200_takes_lists_from_other_systems() {
    let dir = cub();
    put(dir.path(), "cub/images.txt", "1\t001.Crow/a.jpg\r\n\r\n 2  001.Crow/b.jpg \r\n");
    put(dir.path(), "cub/train_test_split.txt", "2 1\r\n1 1");
    assert_eq!(try_cub(&dir).unwrap(), Derived { classes: 1, train: 2, test: 0 });
}

#[test]
fn cub200_names_file_and_line_of_what_is_wrong() {
    const IMAGES: &str = "images.txt";
    const SPLIT: &str = "train_test_split.txt";
    let outside = format!("1 {}/a.jpg", std::env::temp_dir().display());
    for (file, text, words) in [
        (IMAGES, "1 001.Crow/a.jpg\nx 001.Crow/b.jpg", &["images.txt line 2", "'x' is not the number"][..]),
        (IMAGES, "-1 001.Crow/a.jpg", &["images.txt line 1", "'-1' is not the number"]),
        (IMAGES, "99999999999999999999999 001.Crow/a.jpg", &["images.txt line 1", "is not the number"]),
        (IMAGES, "1 001.Crow/a.jpg\n1 001.Crow/b.jpg", &["images.txt line 2", "image 1 occurs twice"]),
        (
            IMAGES,
            "1 001.Crow/a.jpg\n2 001.Crow/a.jpg\n3 b/b\n4 b/b",
            &["images.txt line 2", "'001.Crow/a.jpg' occurs twice"],
        ),
        (IMAGES, "1\n2 x/y\n3 x/y\n4 x/y", &["images.txt line 1", "'' is not <class>/<file>"]),
        (IMAGES, "1 a.jpg\n2 x/y\n3 x/y\n4 x/y", &["images.txt line 1", "'a.jpg' is not <class>/<file>"]),
        (IMAGES, "1 ../a.jpg\n2 x/y\n3 x/y\n4 x/y", &["images.txt line 1", "'../a.jpg' is not"]),
        (IMAGES, "1 001.Crow/..\n2 x/y\n3 x/y\n4 x/y", &["images.txt line 1", "'001.Crow/..' is not"]),
        (IMAGES, "1 001.Crow/../../x.jpg\n2 x/y\n3 x/y\n4 x/y", &["images.txt line 1", "is not <class>/<file>"]),
        (IMAGES, &format!("{outside}\n2 x/y\n3 x/y\n4 x/y"), &["images.txt line 1", "is not <class>/<file>"]),
        (
            IMAGES,
            "1 001.Crow/a.jpg\n2 001.Crow/z.jpg\n3 x/y\n4 x/y",
            &["images.txt line 2", "no file", "001.Crow/z.jpg"],
        ),
        (IMAGES, "1 001.Crow/a.jpg\n2 001.Crow/\u{0}\n3 x/y\n4 x/y", &["images.txt line 2", "no file"]),
        (IMAGES, "", &["train_test_split.txt line 1", "no image 1 in images.txt"]),
        (SPLIT, "1 0\n2 1\n3 1\n4 0\n5 1", &["train_test_split.txt line 5", "no image 5 in images.txt"]),
        (SPLIT, "1 0\n2 2\n3 1\n4 0", &["train_test_split.txt line 2", "'2' is neither 1 (train) nor 0 (test)"]),
        (SPLIT, "1 0\n2\n3 1\n4 0", &["train_test_split.txt line 2", "'' is neither"]),
        (SPLIT, "1 0\n2 1\n2 0", &["train_test_split.txt line 3", "image 2 occurs twice"]),
        (SPLIT, "1 0\n2 1\n3 1", &["images.txt line 4", "image 4 is not in train_test_split.txt"]),
        (SPLIT, "one 0", &["train_test_split.txt line 1", "'one' is not the number"]),
    ] {
        let dir = cub();
        put(dir.path(), &format!("cub/{file}"), text);
        refused(&dir, try_cub(&dir), Kind::Data, words);
    }
    let dir = cub();
    put(dir.path(), "cub/images.txt", "");
    put(dir.path(), "cub/train_test_split.txt", "\n");
    refused(&dir, try_cub(&dir), Kind::Data, &["images.txt names no images"]);
    fs::write(dir.path().join("cub/images.txt"), b"1 001.Crow/\xff.jpg").unwrap();
    put(dir.path(), "cub/train_test_split.txt", "1 1");
    refused(&dir, try_cub(&dir), Kind::Data, &["images.txt line 1", "no file"]);
    fs::remove_file(dir.path().join("cub/train_test_split.txt")).unwrap();
    refused(&dir, try_cub(&dir), Kind::Usage, &["has no file train_test_split.txt", "CUB_200_2011"]);
}

#[test]
fn a_stop_leaves_no_files() {
    let dir = cub();
    let stop = Cancel::default();
    // Requested in the middle of the links.
    let tick = |done, _| {
        if done == 2 {
            stop.request();
        }
    };
    let made = cub200(&dir.path().join("cub"), &dir.path().join("out"), &stop, &tick);
    refused(&dir, made, Kind::Stopped, &["stopped"]);
    assert_eq!(names(dir.path()), ["cub"]);
    let dir = imagenet();
    let made = in100(&dir.path().join("imagenet"), &dir.path().join("out"), &stop);
    refused(&dir, made, Kind::Stopped, &[]);
}
