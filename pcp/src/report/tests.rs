//! Tests of the report: thinning, thumbnails, escaping, and degenerate runs.

use super::curves::{POINTS, thin};
use super::page::inert;
use super::sprites::{Shown, Sprites, base64, heat_maps, pack};
use super::summary::{clock, thousands};
use super::*;
use crate::data::Image;
use crate::run::{EpochRecord, Warning};
use pcp_core::purify::Status;

fn record(epoch: u32, knn: Option<f64>) -> EpochRecord {
    EpochRecord {
        round: 0,
        epoch,
        clusters: 3,
        non_empty: 3,
        kept: 0.5,
        pulled_back: 1,
        dropped: 2,
        instances: 5,
        loss: 1.0,
        loss_instance: None,
        loss_cluster: None,
        loss_is: None,
        lr: 0.03,
        seconds: 1.0,
        feature_seconds: 0.0,
        cluster_seconds: 0.0,
        train_seconds: 1.0,
        images_per_second: 10.0,
        churn: None,
        effective_rank: None,
        knn,
        classifier: None,
    }
}

#[test]
fn long_runs_are_thinned_and_probes_are_seen() {
    let records: Vec<EpochRecord> = (0..10_000).map(|e| record(e, (e % 50 == 7).then_some(1.0))).collect();
    let shown = thin(&records);
    assert_eq!(shown.len(), POINTS);
    assert_eq!((shown[0].epoch, shown[POINTS - 1].epoch), (0, 9_999));
    assert!(shown.windows(2).all(|w| w[0].epoch < w[1].epoch));
    // A bin has 25 epochs: every second one a probe. The first and the last bin show the ends.
    assert!(shown.iter().filter(|r| r.knn.is_some()).count() >= 198);
    assert_eq!(thin(&records[..POINTS]).len(), POINTS);
    assert_eq!(thin(&records[..1]).len(), 1);
    assert!(thin(&[]).is_empty());
    let drawn = curves::curves(&records, 10_000, 10);
    assert_eq!(drawn["epoch"][0], 1);
    assert_eq!((&drawn["dropped"][3], &drawn["kept"][3]), (&json!(20.0), &json!(50.0)));
}

#[test]
fn shares_are_of_all_images_even_when_none_is_alone() {
    let all_kept = EpochRecord { kept: 1.0, instances: 0, pulled_back: 3, ..record(0, None) };
    let drawn = curves::curves(&[all_kept], 1, 12);
    assert_eq!((&drawn["pulled_back"][0], &drawn["dropped"][0]), (&json!(25.0), &json!(16.6667)));
    let unknown = curves::curves(&[record(0, None)], 1, 0);
    assert_eq!((&unknown["pulled_back"][0], &unknown["kept"][0]), (&Value::Null, &json!(50.0)));
}

#[test]
fn base64_is_as_the_standard_has_it() {
    let pairs =
        [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
    for (plain, coded) in pairs {
        assert_eq!(base64(plain.as_bytes()), coded);
    }
}

/// The JPEG behind a `data:` URI.
fn opened(uri: &str) -> image::RgbImage {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = uri.strip_prefix("data:image/jpeg;base64,").unwrap().trim_end_matches('=');
    let (mut bits, mut held, mut bytes) = (0u32, 0, Vec::new());
    for c in text.bytes() {
        bits = bits << 6 | digits.iter().position(|d| *d == c).unwrap() as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    image::load_from_memory(&bytes).unwrap().to_rgb8()
}

fn plain(width: usize, height: usize, colour: [u8; 3]) -> Image {
    Image { width, height, pixels: colour.repeat(width * height) }
}

#[test]
fn every_tile_is_where_the_page_looks_for_it() {
    let mut images = Images::default();
    for i in 0..70u8 {
        images.push(u64::from(i), i.to_string(), plain(20, 30, [i * 3, 255 - i * 3, 90]));
    }
    let rows: Vec<u32> = (0..70).rev().collect();
    let sprites = shown(&images).thumbnails(&rows, usize::MAX).unwrap();
    assert_eq!((sprites.side, sprites.columns, sprites.count, sprites.sheets.len()), (24, 64, 70, 1));
    let sheet = opened(&sprites.sheets[0]);
    assert_eq!(sheet.dimensions(), (64 * 24, 2 * 24));
    for (i, row) in rows.iter().enumerate() {
        let pixel = sheet.get_pixel((i % 64 * 24 + 12) as u32, (i / 64 * 24 + 12) as u32);
        assert!(pixel[0].abs_diff(*row as u8 * 3) < 12, "tile {i}: {pixel:?}");
    }
    let none = shown(&images).thumbnails(&[], 0).unwrap();
    assert_eq!((none.count, none.sheets.len()), (0, 0));
}

fn shown(images: &Images) -> Shown<'_> {
    Shown { images, files: None }
}

/// Images that were shrunk are shown from their files, unless these have another shape now.
#[test]
fn thumbnails_are_made_from_the_files_where_they_are_larger() {
    let dir = tempfile::tempdir().unwrap();
    let save = |name: &str, width: u32, height: u32, colour: [u8; 3]| {
        image::RgbImage::from_pixel(width, height, image::Rgb(colour)).save(dir.path().join(name)).unwrap();
    };
    save("a.png", 300, 200, [200, 0, 0]);
    save("b.png", 200, 300, [200, 0, 0]);
    let mut images = Images::default();
    for (i, name) in ["a.png", "b.png", "gone.png"].iter().enumerate() {
        images.push(i as u64, name.to_string(), plain(48, 32, [0, 0, 200]));
    }
    let made = Shown { images: &images, files: Some((dir.path(), 32)) }.tiles(&[0, 1, 2], 64, usize::MAX).unwrap();
    assert_eq!((made.side, made.count), (64, 3));
    let sheet = opened(&made.sheets[0]);
    let red = |i: u32| sheet.get_pixel(i * 64 + 32, 32)[0] > 150;
    assert_eq!([red(0), red(1), red(2)], [true, false, false]);
    assert_eq!(shown(&images).tiles(&[0], 64, usize::MAX).unwrap().side, 32, "no larger than the image");
}

#[test]
fn thumbnails_keep_to_their_budget() {
    let noise =
        |seed: usize| (0..40 * 40 * 3).map(|i| (((i * 7919 + seed * 104_729) * 2_654_435) >> 7) as u8).collect();
    let tiles: Vec<Vec<u8>> = (0..2100).map(noise).collect();
    let size = |s: &Sprites| s.sheets.iter().map(String::len).sum::<usize>();
    let whole = pack(&tiles, 40, usize::MAX);
    let coarse = pack(&tiles, 40, size(&whole) - 1);
    assert!(coarse.count == 2100 && size(&coarse) < size(&whole));
    let none = pack(&tiles, 40, 100);
    assert_eq!((none.count, none.sheets.len()), (0, 0));
}

/// Views of whole images.
fn view() -> Augmenter {
    let recipe = crate::config::AugmentSettings::default();
    Augmenter { size: 32, margin: 0.0, mean: [0.5; 3], std: [0.2; 3], recipe }
}

#[test]
fn heat_is_red_where_it_is_hot() {
    let mut images = Images::default();
    images.push(0, "a".into(), plain(64, 64, [100, 100, 100]));
    // Hot in the lower right corner only.
    let sprites = heat_maps(&images, &view(), &[(0, &[0.0, 0.0, 0.0, 5.0])], 2, 96, usize::MAX).unwrap();
    assert_eq!(sprites.count, 2);
    let sheet = opened(&sprites.sheets[0]);
    let (cold, hot) = (sheet.get_pixel(96 + 4, 4), sheet.get_pixel(96 + 90, 90));
    assert!(cold[2] > cold[0] && cold[0].abs_diff(75) < 12, "blue where it is cold: {cold:?}");
    assert!(hot[0] > 100 && hot[2] < 80, "{hot:?}");
    // NaN counts as no heat.
    heat_maps(&images, &view(), &[(0, &[f32::NAN, 0.0, 0.0, 0.0])], 2, 96, usize::MAX).unwrap();
}

#[test]
fn heat_maps_are_shown_when_they_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunFolder::create(&dir.path().join("run"), false).unwrap();
    let mut images = Images::default();
    (0..3).for_each(|i| images.push(i, i.to_string(), plain(16, 16, [90, 90, 90])));
    let mut pool = Pool::default();
    assert!(heat(&run, &images, &view(), &mut pool, usize::MAX).unwrap().is_none());
    let write = |rows: &[u32]| {
        pcp_core::io::npy::write_npz(&run.file("heat.npz"), |z| {
            z.add("row", rows)?;
            z.add("side", &[2u32])?;
            z.add("heat", &[0.5f32; 8])
        })
        .unwrap();
    };
    write(&[2, 0]);
    let shown = heat(&run, &images, &view(), &mut pool, usize::MAX).unwrap().unwrap();
    assert_eq!((&shown["pictures"]["count"], &shown["image"], &pool.rows), (&json!(4), &json!([0, 1]), &vec![2, 0]));
    for wrong in [&[2u32, 3][..], &[2]] {
        write(wrong);
        assert!(heat(&run, &images, &view(), &mut pool, usize::MAX).unwrap_err().message.contains("does not fit"));
    }
}

#[test]
fn nothing_in_the_data_can_end_the_script() {
    let hostile = json!({ "file": "</script><script>alert('x')</script><!-- \u{2028} ä 猫 \"" });
    let text = inert(&hostile.to_string());
    assert!(!text.contains('<'));
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), hostile, "the JSON is the same");
    // Placeholders of the template that occur in names stay as they are.
    let view = PageSection(json!({ "name": "{{style}} {{script}} {{data}}" }));
    assert!(page(&[view]).unwrap().contains("{{style}} {{script}} {{data}}"));
}

#[test]
fn long_names_keep_their_ends() {
    let long = format!("{}/ä.jpg", "x".repeat(500));
    let short = elided(&long);
    assert!(short.chars().count() <= 80 && short.ends_with("/ä.jpg") && short.contains('…'), "{short}");
    assert_eq!(elided("a/b.jpg"), "a/b.jpg");
}

#[test]
fn rows_are_evenly_spaced() {
    assert_eq!(evenly(10, 5).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
    assert_eq!(evenly(2, 5).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(evenly(0, 5).count(), 0);
}

#[test]
fn degenerate_embeddings_have_a_map() {
    for features in [Matrix::new(1, vec![1.0]), Matrix::new(3, vec![0.5; 12]), Matrix::new(2, vec![0.0, 1.0, 1.0, 0.0])]
    {
        let rows = features.rows;
        let drawn = map(&features, 100, &mut Pool::default(), &mut |_| Ok(())).unwrap();
        assert_eq!(drawn["x"].as_array().unwrap().len(), rows);
        assert_eq!(neighbours(&features, &mut Pool::default()).len(), rows);
    }
}

/// A stop requested at any callback ends the map, also while the start is computed, and the report with it: it is no reason to
/// leave the map out of the page.
#[test]
fn the_map_and_the_report_can_be_cancelled() {
    let features = Matrix::new(300, (0..9_000).map(|i| (i * 7919 % 1009) as f32 / 1009.0).collect());
    for after in [0, 1, 5] {
        let mut calls = 0;
        let mut on_step = |_| {
            calls += 1;
            if calls > after { Err(Error::stopped()) } else { Ok(()) }
        };
        let e = map(&features, 100, &mut Pool::default(), &mut on_step).unwrap_err();
        assert_eq!((e.kind, calls), (Kind::Stopped, after + 1));
    }
    let rows = features.rows;
    let collection = Collection {
        name: "collection".into(),
        sentence: String::new(),
        tiles: Vec::new(),
        notes: Vec::new(),
        names: vec![String::new(); rows],
        labels: None,
        grouping: Grouping {
            cluster: vec![0; rows],
            status: vec![Status::Kept; rows],
            distance: vec![0.0; rows],
            vote: vec![f32::NAN; rows],
        },
        plain: true,
        suspicious: Vec::new(),
        suspicious_about: String::new(),
        label_errors: Vec::new(),
        label_errors_about: None,
        choice: None,
        features: Arc::new(features),
    };
    let section = |on_step: &mut dyn FnMut(usize) -> Result<()>| {
        collection_section(&collection, &|_| Images::default(), PageLimits::shared(10, 1), on_step)
    };
    assert_eq!(section(&mut |_| Err(Error::stopped())).unwrap_err().kind, Kind::Stopped);
    assert_eq!(section(&mut |_| Ok(())).unwrap().name(), "collection");
}

#[test]
fn lights_show_their_warnings() {
    let of = |w: Warning| health::watched(&w);
    assert_eq!(of(Warning::Collapse { spread: 0.01 }), Some("Collapse"));
    assert_eq!(of(Warning::Imbalance { share: 0.7 }), Some("Balance"));
    assert_eq!(of(Warning::NothingKept), Some("Purification"));
    assert_eq!(of(Warning::FewerThanBatch { images: 3, batch: 8 }), None);
    assert_eq!(of(Warning::BadFiles { count: 3 }), None);
}

#[test]
fn numbers_are_formatted() {
    assert_eq!(
        [3.4, 103.0, 7500.0].map(clock),
        [("3".into(), "seconds"), ("1:43".into(), "minutes"), ("2:05".into(), "hours")]
    );
    assert_eq!([0, 999, 1000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
}
