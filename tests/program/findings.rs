//! Commands on a folder of pictures without training: duplicates, look.

use crate::common::*;
use crate::curate::snapshot;
use serde_json::Value;
use std::fs;
use std::path::Path;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Waves that no other picture has.
fn waves(id: u32) -> image::RgbImage {
    let wave = |x: u32, y: u32, c: u32| {
        let k = |n: u32| ((id * 7 + c * 3 + n * 13) % 17) as f32 - 8.0;
        let (u, v) = (x as f32 / 140.0, y as f32 / 100.0);
        let sum: f32 = (0..6).map(|n| ((k(n) * u + k(n + 6) * v) * 2.0 + k(n + 12)).sin()).sum();
        (128.0 + 28.0 * sum).clamp(0.0, 255.0) as u8
    };
    image::RgbImage::from_fn(140, 100, |x, y| image::Rgb([wave(x, y, 0), wave(x, y, 1), wave(x, y, 2)]))
}

/// Train and test folders in which one picture is there twice, one mirrored, one broken; one has an odd name.
fn photos(root: &Path) {
    for part in ["train/a", "train/b", "test/a", "test/b"] {
        fs::create_dir_all(root.join(part)).unwrap();
    }
    (0..12)
        .for_each(|id| waves(id).save(root.join(format!("train/{}/{id}.png", ["a", "b"][id as usize % 2]))).unwrap());
    fs::copy(root.join("train/a/0.png"), root.join("test/b/<img src=x>, ä.png")).unwrap();
    image::imageops::flip_horizontal(&waves(3)).save(root.join("train/b/mirrored.png")).unwrap();
    fs::write(root.join("test/a/broken.jpg"), "no").unwrap();
}

#[test]
fn copies_of_pictures_are_found_without_training() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    photos(&dir.path().join("photos"));
    let before = snapshot(&dir.path().join("photos"));
    let shown = succeed(&["duplicates", &path("photos"), "--out", &path("one"), "--threads", "1"]);
    assert!(shown.contains("groups of copies") && shown.contains("page.html"), "{shown}");
    succeed(&["duplicates", &path("photos"), "--out", &path("two"), "--threads", "3"]);
    for file in ["copies.csv", "copies.txt", "page.html"] {
        let [one, two] = ["one", "two"].map(|out| fs::read(dir.path().join(out).join(file)).unwrap());
        assert_eq!(one, two, "{file} on any number of threads");
    }
    let found = json(&succeed(&["duplicates", &path("photos"), "--json"]));
    assert_eq!((&found["images"], &found["groups"], &found["exact"]), (&14.into(), &2.into(), &1.into()));
    assert_eq!(found["rows"][3]["copy"], "mirrored");
    let page = fs::read_to_string(dir.path().join("one/page.html")).unwrap();
    assert!(page.contains("default-src 'none'") && !page.contains("<img src=x") && page.contains("\\u003cimg src=x"));
    assert_eq!(snapshot(&dir.path().join("photos")), before, "nothing in the user's folder has changed");

    assert!(fail(2, &["duplicates", &path("photos"), "--out", &path("one")]).contains("there already"));
    assert!(
        fail(2, &["duplicates", &path("photos"), "--files", "x.csv"])
            .contains("--files and --skip-bad-rows are for matrices")
    );
    assert!(fail(2, &["duplicates", &path("none")]).contains("none"));
}

#[test]
fn a_look_at_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    photos(&dir.path().join("photos"));
    let before = snapshot(&dir.path().join("photos"));
    let shown = succeed(&["look", &path("photos"), "--out", &path("one"), "--threads", "1"]);
    assert!(shown.contains("in two splits") && shown.contains("broken.jpg") && shown.contains("page.html"), "{shown}");
    succeed(&["look", &path("photos"), "--out", &path("two"), "--threads", "3"]);
    for file in ["findings.csv", "images.csv", "leak.txt", "page.html"] {
        let [one, two] = ["one", "two"].map(|out| fs::read(dir.path().join(out).join(file)).unwrap());
        assert_eq!(one, two, "{file} on any number of threads");
    }
    let found = json(&succeed(&["look", &path("photos"), "--json"]));
    let count = |kind: &str| {
        let counts = found["counts"].as_array().unwrap();
        counts.iter().find(|count| count["finding"] == kind).unwrap()["pictures"].as_u64().unwrap()
    };
    assert_eq!(
        [count("broken"), count("duplicate"), count("near_duplicate"), count("leak"), count("two_labels")],
        [1, 1, 1, 2, 2]
    );
    assert_eq!(snapshot(&dir.path().join("photos")), before, "nothing in the user's folder has changed");
    succeed(&["look", "bundled", "--out", &path("bundled.csv")]);
    assert!(fs::read_to_string(dir.path().join("bundled.csv")).unwrap().starts_with("finding,group,file,why\n"));
    assert!(fail(2, &["look", &path("photos"), "--out", &path("one")]).contains("there already"));
    assert!(fail(2, &["look", "cifar10"]).contains("--data-dir"));
}
