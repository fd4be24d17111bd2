//! Runs every example of the library on tiny data.

#![allow(clippy::unwrap_used)]

use pcp_core::io::npy::{read_matrix, write_npy};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The examples that the test below runs.
const ALL: [&str; 10] = [
    "class_folders",
    "custom_positives",
    "embed_folder",
    "embed_loop",
    "knn",
    "make_bundled",
    "make_photos",
    "patches",
    "purify_matrix",
    "train_folder",
];

/// Examples are built with the tests, beside them.
fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(Path::parent).unwrap().join("examples").join(name)
}

/// Runs an example to its end; returns what it printed.
fn run(name: &str, arguments: &[&str]) -> String {
    assert!(ALL.contains(&name), "{name} is not listed");
    let output = Command::new(program(name)).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &said
}

/// `count` images in the folders `bright` and `dark` below `folder`.
fn images(folder: &Path, count: u32) {
    for i in 0..count {
        let (name, light) = if i % 2 == 0 { ("bright", 200) } else { ("dark", 20) };
        std::fs::create_dir_all(folder.join(name)).unwrap();
        let pixel = |x: u32, y: u32| image::Rgb([light, (x * 7 + i * 11) as u8, (y * 5 + i * 3) as u8]);
        image::RgbImage::from_fn(24, 24, pixel).save(folder.join(name).join(format!("{i}.png"))).unwrap();
    }
}

#[test]
fn every_example_is_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let name = |e: std::fs::DirEntry| e.path().file_stem().unwrap().to_string_lossy().into_owned();
    let found: BTreeSet<String> = std::fs::read_dir(folder).unwrap().flatten().map(name).collect();
    assert_eq!(found, ALL.map(String::from).into());
}

#[test]
fn runs_are_trained_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    images(&dir.path().join("photos"), 12);
    let (photos, own, bursts, emb) = (path("photos"), path("run"), path("bursts"), path("emb.npy"));
    let said = run("train_folder", &[&photos, &own]);
    assert!(said.contains(" % of 12 images"), "{said}");
    let said = run("custom_positives", &[&photos, &bursts]);
    assert!(said.contains("kNN ") || said.contains("done: "), "{said}");
    let clusters = std::fs::read_to_string(dir.path().join("bursts/clusters.csv")).unwrap();
    assert_eq!(clusters.lines().count(), 13, "{clusters}");
    assert!(clusters.contains("kept"), "images of a folder are positives: {clusters}");

    // A copy of an image has its embedding.
    std::fs::copy(dir.path().join("photos/dark/1.png"), dir.path().join("photos/dark/copy.png")).unwrap();
    let said = run("embed_folder", &[&own, &photos, &emb]);
    assert!(said.contains("13 images, 128 numbers each"), "{said}");
    assert!(said.contains("dark/1.png, cosine") && said.contains("dark/copy.png, cosine"), "{said}");
    assert_eq!(read_matrix(Path::new(&emb)).unwrap().rows, 13);
    let [one, two, other] = ["photos/dark/1.png", "photos/dark/copy.png", "photos/bright/2.png"].map(path);
    let said = run("embed_loop", &[&own, &one, &other, &two]);
    assert!(said.contains(&format!("{one} and {two}: cosine 1.000")), "{said}");
}

#[test]
fn matrices_are_purified_and_classified() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    // Two directions in turn; row 6 lies between them.
    let row = |i: usize| match i {
        6 => [1.0, 0.7],
        i if i % 2 == 0 => [1.0, 0.01 * i as f32],
        i => [0.01 * i as f32, 1.0],
    };
    let values: Vec<f32> = (0..20).flat_map(row).collect();
    let (matrix, labels, queries) = (path("e.npy"), path("labels.txt"), path("q.npy"));
    write_npy(Path::new(&matrix), &[20, 2], &values).unwrap();
    let said = run("purify_matrix", &[&matrix, "2"]);
    let listed = said.split(['[', ']']).nth(1).unwrap().split(',').filter(|row| !row.is_empty()).count();
    let belong: usize = said.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(belong >= 10 && belong + listed == 20, "{said}");

    let names: String = (0..20).map(|i| if i % 2 == 0 { "flat\n" } else { "steep\n" }).collect();
    std::fs::write(&labels, names).unwrap();
    write_npy(Path::new(&queries), &[2, 2], &[0.1, 1.0, 1.0, 0.1]).unwrap();
    assert_eq!(run("knn", &[&matrix, &labels, &queries]), "steep\nflat\n");
}

#[test]
fn photographs_and_archives_are_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (photos, groceries, archive) = (path("photos"), path("groceries"), path("groceries.zip"));
    assert!(run("make_photos", &[&photos, "3", "40"]).contains("3 photographs of 40 pixels"));
    let sizes = std::fs::read_dir(&photos).unwrap().flatten().map(|e| image::image_dimensions(e.path()).unwrap());
    assert_eq!(sizes.collect::<Vec<_>>(), [(40, 40); 3]);
    images(&dir.path().join("groceries/train"), 4);
    images(&dir.path().join("groceries/test"), 2);
    let said = run("make_bundled", &[&groceries, &archive]);
    let bytes = std::fs::read(&archive).unwrap();
    assert!(said.contains(&format!("{} bytes", bytes.len())) && bytes.starts_with(b"PK"), "{said}");
    run("make_bundled", &[&groceries, &path("again.zip")]);
    assert!(bytes == std::fs::read(path("again.zip")).unwrap(), "the same folder gives the same archive");
}
