//! Looks at folders that are made up.

use super::*;
use crate::observe::Silent;
use image::{Rgb, RgbImage, imageops};
use std::fs;
use std::path::Path;

fn silent() -> Arc<dyn Observer> {
    Arc::new(Silent::default())
}

/// Picture number `id`: coloured rectangles that no other has.
fn picture(id: u32, width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let (u, v) = (x * 9 / width, y * 7 / height);
        let random = |c: u32| {
            let h = id.wrapping_mul(0x9e37_79b1)
                ^ u.wrapping_mul(0x85eb_ca6b)
                ^ v.wrapping_mul(0xc2b2_ae35)
                ^ c.wrapping_mul(0x27d4_eb2f);
            let h = (h ^ (h >> 15)).wrapping_mul(0x2c1b_3c6d);
            ((h ^ (h >> 12)).wrapping_mul(0x297a_2d39) >> 24) as u8
        };
        Rgb([random(0), random(1), random(2)])
    })
}

/// Train and test folders of two classes, with one picture of every finding.
fn folder(dir: &Path) {
    for part in ["train/cat", "train/dog", "test/cat", "test/dog"] {
        fs::create_dir_all(dir.join(part)).unwrap();
    }
    (0..40).for_each(|id| {
        picture(id, 200, 150).save(dir.join(format!("train/{}/{id}.png", ["cat", "dog"][id as usize % 2]))).unwrap()
    });
    fs::write(dir.join("train/cat/broken.png"), "no").unwrap();
    fs::copy(dir.join("train/cat/0.png"), dir.join("train/cat/twin.png")).unwrap();
    fs::copy(dir.join("train/dog/1.png"), dir.join("test/dog/leak.png")).unwrap();
    imageops::flip_horizontal(&picture(2, 200, 150)).save(dir.join("test/dog/mirrored, other label.png")).unwrap();
    RgbImage::from_pixel(200, 150, Rgb([90, 120, 90])).save(dir.join("test/cat/blank.png")).unwrap();
    imageops::blur(&picture(50, 200, 150), 5.0).save(dir.join("test/cat/blurred.png")).unwrap();
    let mapped = |id: u32, f: &dyn Fn(u8) -> u8| {
        let mut made = picture(id, 200, 150);
        made.iter_mut().for_each(|x| *x = f(*x));
        made
    };
    mapped(51, &|x| x / 8).save(dir.join("test/cat/dark.png")).unwrap();
    mapped(52, &|x| 255 - x / 16).save(dir.join("test/cat/bright.png")).unwrap();
    picture(53, 400, 60).save(dir.join("test/cat/odd.png")).unwrap();
    picture(54, 40, 30).save(dir.join("test/cat/tiny.png")).unwrap();
    image::DynamicImage::ImageRgb8(picture(55, 200, 150)).into_luma8().save(dir.join("test/cat/grey.png")).unwrap();
}

#[test]
fn every_finding_is_made_once() {
    let dir = tempfile::tempdir().unwrap();
    let (images, out) = (dir.path().join("photos"), dir.path().join("looked"));
    folder(&images);
    let options = LookOptions { out: Some(out.clone()), ..LookOptions::new(images.display().to_string()) };
    let found = look(&options, &silent()).unwrap();
    let files = |kind: LookKind| found.of(kind).map(|row| row.file.as_str()).collect::<Vec<_>>();
    assert_eq!(found.images, 50);
    assert_eq!(files(LookKind::Broken), ["train/cat/broken.png"]);
    assert_eq!(files(LookKind::Duplicate), ["train/dog/1.png", "train/cat/twin.png"], "the first by name is the best");
    assert_eq!(files(LookKind::NearDuplicate).len(), 1);
    let mut leaks = files(LookKind::Leak);
    leaks.sort_unstable();
    let both = ["test/dog/leak.png", "test/dog/mirrored, other label.png", "train/cat/2.png", "train/dog/1.png"];
    assert_eq!(leaks, both);
    assert_eq!(files(LookKind::TwoLabels).len(), 2);
    assert!(found.of(LookKind::TwoLabels).any(|row| row.why == "called dog; a copy is called cat"));
    for (kind, name) in [
        (LookKind::Blank, "blank"),
        (LookKind::Blurred, "blurred"),
        (LookKind::Dark, "dark"),
        (LookKind::Bright, "bright"),
        (LookKind::OddShape, "odd"),
        (LookKind::Tiny, "tiny"),
    ] {
        assert!(files(kind).contains(&format!("test/cat/{name}.png").as_str()), "{kind}: {:?}", files(kind));
        assert!(files(kind).len() <= 2, "{kind}: {:?}", files(kind));
    }
    assert_eq!(files(LookKind::Grey), ["test/cat/grey.png"]);
    let counts = || found.counts.iter().filter(|count| count.finding != LookKind::Unlike);
    assert!(counts().all(|count| count.listed && !count.about.is_empty()));

    let table = fs::read_to_string(out.join("findings.csv")).unwrap();
    assert!(table.starts_with("finding,group,file,why\nbroken,,train/cat/broken.png,\"not an image"), "{table}");
    assert_eq!(fs::read_to_string(out.join("images.csv")).unwrap().lines().count(), 51);
    for kind in counts().map(|count| count.finding) {
        let list = fs::read_to_string(out.join(format!("{kind}.txt"))).unwrap();
        assert_eq!(list.lines().count(), files(kind).len());
        assert!(list.lines().all(|path| Path::new(path).is_file()), "{list}");
    }
    if cfg!(unix) {
        assert!(out.join("links/blurred/blurred.png").is_symlink());
    }
    let page = fs::read_to_string(out.join("page.html")).unwrap();
    assert!(page.contains("blurred.png") && page.contains("broken.png cannot be read"), "the page has them all");
    let again: LookResult = serde_json::from_str(&fs::read_to_string(out.join("summary.json")).unwrap()).unwrap();
    assert_eq!(
        (again.images, again.findings.len(), &again.counts),
        (found.images, found.findings.len(), &found.counts)
    );
    assert!(look(&options, &silent()).unwrap_err().message.contains("there already"));
}

#[test]
fn what_most_pictures_have_is_not_listed() {
    let dir = tempfile::tempdir().unwrap();
    let grey = |id| image::DynamicImage::ImageRgb8(picture(id, 90, 90)).into_luma8();
    (0..12).for_each(|id| grey(id).save(dir.path().join(format!("{id}.png"))).unwrap());
    let found = look(&LookOptions::new(dir.path().display().to_string()), &silent()).unwrap();
    let count = found.counts.iter().find(|count| count.finding == LookKind::Grey).unwrap();
    assert_eq!((count.pictures, count.listed, found.of(LookKind::Grey).count()), (12, false, 0));
    assert!(found.sentence().contains("nothing conspicuous"), "{}", found.sentence());
}

#[test]
fn nothing_one_and_broken_ones() {
    let dir = tempfile::tempdir().unwrap();
    let options = LookOptions::new(dir.path().display().to_string());
    assert!(look(&options, &silent()).unwrap_err().message.contains("no images"));
    fs::write(dir.path().join("a.png"), "no").unwrap();
    let e = look(&options, &silent()).unwrap_err();
    assert!(e.message.contains("none of the 1 images can be read; a.png: not an image"), "{e:?}");
    picture(1, 90, 60).save(dir.path().join("b.png")).unwrap();
    let table = dir.path().join("t.csv");
    let found = look(&LookOptions { out: Some(table.clone()), ..options }, &silent()).unwrap();
    assert_eq!((found.images, found.findings.len()), (1, 1));
    assert_eq!(fs::read_to_string(table).unwrap().lines().count(), 2);
}

/// Strangers among pictures of one kind come first, and a trial says whether they would.
#[test]
fn what_is_unlike_the_others_is_a_guess_with_a_trial() {
    let dir = tempfile::tempdir().unwrap();
    for id in 0..310 {
        let mut blue = picture(id, 64, 48);
        blue.pixels_mut().for_each(|p| *p = Rgb([p.0[0] / 16, p.0[1] / 16, 200 + p.0[2] / 16]));
        blue.save(dir.path().join(format!("blue {id}.png"))).unwrap();
    }
    picture(1000, 64, 48).save(dir.path().join("stranger.png")).unwrap();
    let found = look(&LookOptions::new(dir.path().display().to_string()), &silent()).unwrap();
    let count = found.counts.iter().find(|count| count.finding == LookKind::Unlike).unwrap();
    assert!(
        count.listed && count.about.contains("of 15 strangers") && count.about.starts_with("A guess"),
        "{}",
        count.about
    );
    assert_eq!(found.of(LookKind::Unlike).next().unwrap().file, "stranger.png");
    assert_eq!(found.of(LookKind::Unlike).count(), 15, "a twentieth");

    // The bundled photographs among themselves: strangers that are none cannot be told.
    let found = look(&LookOptions::new("bundled"), &silent()).unwrap();
    let count = found.counts.iter().find(|count| count.finding == LookKind::Unlike).unwrap();
    assert!(
        !count.listed && found.of(LookKind::Unlike).count() == 0 && count.about.contains("cannot be told"),
        "{}",
        count.about
    );
}

#[test]
fn of_a_few_pictures_what_is_wrong_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    (0..2).for_each(|id| picture(id, 200, 150).save(dir.path().join(format!("{id}.png"))).unwrap());
    let mut dark = picture(2, 200, 150);
    dark.iter_mut().for_each(|x| *x /= 8);
    dark.save(dir.path().join("dark.png")).unwrap();
    let found = look(&LookOptions::new(dir.path().display().to_string()), &silent()).unwrap();
    assert!(found.findings.iter().any(|row| row.finding == LookKind::Dark && row.file == "dark.png"), "{found:?}");
}

#[test]
fn a_third_split_is_no_label() {
    let dir = tempfile::tempdir().unwrap();
    for (split, id) in [("train", 0), ("test", 1), ("val", 0)] {
        for class in ["cat", "dog"] {
            let folder = dir.path().join(split).join(class);
            fs::create_dir_all(&folder).unwrap();
            picture(id + 10 * u32::from(class == "dog"), 200, 150).save(folder.join("1.png")).unwrap();
        }
    }
    let found = look(&LookOptions::new(dir.path().display().to_string()), &silent()).unwrap();
    let pictures = |finding| found.counts.iter().find(|count| count.finding == finding).unwrap().pictures;
    assert_eq!((pictures(LookKind::TwoLabels), pictures(LookKind::Leak)), (0, 4), "{found:?}");
}
