//! Copies in folders that are made up.

use super::*;
use crate::observe::Silent;
use image::codecs::jpeg::JpegEncoder;
use image::{RgbImage, imageops};
use std::fs;

fn silent() -> Arc<dyn Observer> {
    Arc::new(Silent::default())
}

/// Picture number `id`: waves that no other has.
fn picture(id: u32, width: u32, height: u32) -> RgbImage {
    let wave = |x: u32, y: u32, c: u32| {
        let (u, v) = (x as f32 / width as f32, y as f32 / height as f32);
        let k = |n: u32| ((id * 7 + c * 3 + n * 13) % 17) as f32 - 8.0;
        let sum: f32 = (0..6).map(|n| ((k(n) * u + k(n + 6) * v) * 2.0 + k(n + 12)).sin()).sum();
        (128.0 + 28.0 * sum).clamp(0.0, 255.0) as u8
    };
    RgbImage::from_fn(width, height, |x, y| image::Rgb([wave(x, y, 0), wave(x, y, 1), wave(x, y, 2)]))
}

fn save(image: &RgbImage, path: PathBuf, quality: u8) {
    image.write_with_encoder(JpegEncoder::new_with_quality(fs::File::create(path).unwrap(), quality)).unwrap();
}

/// Eight pictures, and copies of the first four.
fn folder(dir: &Path) {
    fs::create_dir_all(dir.join("a")).unwrap();
    fs::create_dir_all(dir.join("b")).unwrap();
    (0..8).for_each(|id| save(&picture(id, 150, 120), dir.join(format!("a/{id}.jpg")), 92));
    fs::copy(dir.join("a/0.jpg"), dir.join("b/same file.jpg")).unwrap();
    let decoded = image::open(dir.join("a/1.jpg")).unwrap().into_rgb8();
    decoded.save(dir.join("b/same pixels.png")).unwrap();
    save(&picture(1, 75, 60), dir.join("b/small.jpg"), 60);
    save(&imageops::flip_horizontal(&picture(2, 150, 120)), dir.join("b/mirrored.jpg"), 80);
    let cut = imageops::crop_imm(&picture(3, 150, 120), 4, 3, 140, 112).to_image();
    save(&cut, dir.join("b/cropped.jpg"), 80);
    fs::write(dir.join("b/broken.jpg"), "no").unwrap();
}

fn rows(found: &CopiesResult) -> Vec<(&str, CopyKind)> {
    found.rows.iter().map(|row| (row.file.as_str(), row.copy)).collect()
}

#[test]
fn copies_of_every_kind_are_found_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let (images, out) = (dir.path().join("photos"), dir.path().join("found"));
    folder(&images);
    let options = CopiesOptions { out: Some(out.clone()), ..CopiesOptions::new(images.display().to_string()) };
    let found = copies(&options, &silent()).unwrap();
    assert_eq!((found.images, found.groups, found.copies, found.exact, found.broken.len()), (13, 4, 5, 2, 1));
    let mut groups: Vec<Vec<(&str, CopyKind)>> = found
        .rows
        .chunk_by(|a, b| a.group == b.group)
        .map(|g| g.iter().map(|r| (r.file.as_str(), r.copy)).collect())
        .collect();
    assert_eq!(groups[0], [("a/0.jpg", CopyKind::Best), ("b/same file.jpg", CopyKind::SameFile)], "the surest first");
    groups.sort_by_key(|group| group[0].0);
    let best = |file| (file, CopyKind::Best);
    // A PNG of the same pixels is the larger file.
    assert_eq!(
        groups[3],
        [best("b/same pixels.png"), ("a/1.jpg", CopyKind::SamePixels), ("b/small.jpg", CopyKind::Resaved)]
    );
    assert_eq!(groups[1], [best("a/2.jpg"), ("b/mirrored.jpg", CopyKind::Mirrored)]);
    assert_eq!(groups[2], [best("a/3.jpg"), ("b/cropped.jpg", CopyKind::Cropped)]);

    let table = fs::read_to_string(out.join("copies.csv")).unwrap();
    assert!(
        table.starts_with("group,copy,file,likeness,width,height,bytes,detail,label\n0,best,a/0.jpg,1.000,150,120,"),
        "{table}"
    );
    let list = fs::read_to_string(out.join("copies.txt")).unwrap();
    assert_eq!(list.lines().count(), 5);
    assert!(list.lines().all(|path| Path::new(path).is_file() && Path::new(path).is_absolute()));
    if cfg!(unix) {
        assert_eq!(
            fs::read(out.join("links/group-0/same file.jpg")).unwrap(),
            fs::read(images.join("a/0.jpg")).unwrap()
        );
        assert_eq!(fs::read_dir(out.join("links")).unwrap().count(), 4);
    }
    let page = fs::read_to_string(out.join("page.html")).unwrap();
    assert_eq!(page.matches("data:image/jpeg").count(), 9);
    let json = fs::read_to_string(out.join("summary.json")).unwrap();
    assert_eq!(serde_json::from_str::<CopiesResult>(&json).unwrap(), found);
    assert!(copies(&options, &silent()).unwrap_err().message.contains("there already"));

    let csv = CopiesOptions { out: Some(dir.path().join("t.csv")), ..options };
    copies(&csv, &silent()).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("t.csv")).unwrap(), table);
    assert!(copies(&csv, &silent()).unwrap_err().message.contains("there already"));
}

#[test]
fn the_sharper_one_is_the_best_and_then_the_larger_one() {
    let dir = tempfile::tempdir().unwrap();
    // Rectangles of random colours.
    let random = |u: u32, v: u32, c: u32| {
        let h = (u.wrapping_mul(0x9e37_79b1) % 0x00ff_fff1) ^ (v * 0x0000_85eb) ^ (c * 0x00c2_b2ae);
        ((h ^ (h >> 7)).wrapping_mul(0x2c1b_3c6d) >> 24) as u8
    };
    let checks = |n: u32| {
        RgbImage::from_fn(n * 40, n * 30, |x, y| image::Rgb([0, 1, 2].map(|c| random(x / n / 5 + 1, y / n / 5 + 1, c))))
    };
    save(&checks(5), dir.path().join("large.jpg"), 90);
    save(&imageops::blur(&checks(6), 3.0), dir.path().join("larger, but blurred.jpg"), 90);
    save(&checks(4), dir.path().join("small.jpg"), 90);
    let found = copies(&CopiesOptions::new(dir.path().display().to_string()), &silent()).unwrap();
    assert_eq!(rows(&found)[0], ("large.jpg", CopyKind::Best));
    assert_eq!(found.rows.len(), 3);
}

#[test]
fn nothing_one_and_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let options = CopiesOptions::new(dir.path().display().to_string());
    assert!(copies(&options, &silent()).unwrap_err().message.contains("no images"));
    save(&picture(1, 40, 30), dir.path().join("a.jpg"), 80);
    let one = copies(&options, &silent()).unwrap();
    assert_eq!((one.images, one.groups, one.rows.len()), (1, 0, 0));
    for i in 0..5 {
        fs::copy(dir.path().join("a.jpg"), dir.path().join(format!("{i}.jpg"))).unwrap();
    }
    let all = copies(&options, &silent()).unwrap();
    assert_eq!((all.groups, all.copies, all.exact), (1, 5, 5));
    fs::write(dir.path().join("a.jpg"), "no").unwrap();
    (0..5).for_each(|i| fs::write(dir.path().join(format!("{i}.jpg")), "no").unwrap());
    let broken = copies(&options, &silent()).unwrap();
    assert_eq!((broken.images, broken.broken.len(), broken.groups), (0, 6, 0));
    assert!(copies(&CopiesOptions::new("no such folder"), &silent()).is_err());
}
