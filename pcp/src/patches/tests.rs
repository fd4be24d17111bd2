//! Patch models: whole photographs, equal bits, files, and sets with few or odd images.

use super::*;
use crate::data::Image;
use crate::observe::{Silent, silent};
use pcp_core::error::Kind;
use pcp_core::patches::SecondSettings;

/// Photographs of stripes: their width and direction is their kind.
fn photographs(count: usize, (width, height): (usize, usize)) -> Images {
    let mut images = Images::default();
    for i in 0..count {
        let (kind, shift) = (i % 3, i / 3);
        let byte = |at: usize| {
            let (x, y) = (at / 3 % width, at / 3 / width);
            let wave = [x + y, x / 2 + shift, 2 * y + x][kind] + shift;
            ((wave * 37) % 256) as u8
        };
        let pixels = (0..width * height * 3).map(byte).collect();
        images.push(i as u64, format!("{i}.png"), Image { width, height, pixels });
    }
    images
}

fn settings() -> PatchModelSettings {
    let mut settings = PatchModelSettings { side: 16, stored: 0, images: 20, ..PatchModelSettings::default() };
    settings.patches.centroids = 10;
    settings.patches.samples = 2000;
    settings.patches.second.centroids = 12;
    settings.readout.components = 8;
    settings
}

#[test]
fn small_images_and_photographs_have_their_settings() {
    let fitting = |size| PatchModelSettings::fitting(&photographs(5, size), 7).unwrap();
    let (small, large) = (fitting((32, 32)), fitting((120, 90)));
    assert_eq!((small.side, small.patches.stride, small.patches.seed), (32, 1, 7));
    assert_eq!((large.side, large.patches.stride), (64, 2));
    assert_eq!(PatchModelSettings::fitting(&Images::default(), 0).unwrap().side, 64);
    let of = |images| PatchModelSettings::of_size(64, images, 0);
    assert_eq!([of(0), of(90), of(2000), of(2001)].map(|s| s.readout.components), [8, 30, 256, 512]);
    assert_eq!([of(0), of(90), of(5000)].map(|s| s.patches.samples), [1000, 90_000, 200_000]);
    assert_eq!([23, 24, 1000, 1100, 2000, 2001, 50_000].map(|n| of(n).members), [1, 4, 4, 3, 2, 1, 1]);
    assert_eq!([23, 90, 900, 5000].map(|n| of(n).components()), [8, 60, 256, 512]);
    assert_eq!([23, 767, 768, 2000, 2001].map(|n| of(n).patches.second.centroids), [0, 0, 200, 200, 400]);
}

#[test]
fn all_of_a_photograph_counts() {
    let model = PatchModel::learn(&photographs(9, (40, 20)), &settings(), &silent()).unwrap();
    let white = |from: usize| {
        let pixels = (0..60 * 20).flat_map(|at| [if at % 60 >= from { 255 } else { (at % 7) as u8 * 9 }; 3]).collect();
        let mut images = Images::default();
        images.push(0, "wide.png".into(), Image { width: 60, height: 20, pixels });
        model.embed(&images, &silent()).unwrap().values
    };
    assert_ne!(white(60), white(55), "the margin of a wide photograph must count");
}

#[test]
fn the_same_bits_on_any_number_of_threads_and_after_saving() {
    let images = photographs(24, (30, 20));
    let dir = tempfile::tempdir().unwrap();
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let model = PatchModel::learn(&images, &settings(), &silent()).unwrap();
            let path = dir.path().join(format!("{threads}.safetensors"));
            model.save(&path).unwrap();
            (model.embed(&images, &silent()).unwrap(), std::fs::read(&path).unwrap())
        })
    };
    let (features, file) = on(1);
    assert!(on(3) == (features.clone(), file));
    let path = dir.path().join("1.safetensors");
    assert!(PatchModel::is_file(&path) && !PatchModel::is_file(dir.path()));
    let opened = PatchModel::open(&path).unwrap();
    assert_eq!((opened.card.images, opened.dim()), (24, 8));
    assert_eq!(opened.embed(&images, &silent()).unwrap(), features);
    let other = PatchModelSettings {
        patches: pcp_core::patches::PatchSettings { seed: 1, ..settings().patches },
        ..settings()
    };
    assert_ne!(PatchModel::learn(&images, &other, &silent()).unwrap().embed(&images, &silent()).unwrap(), features);
}

#[test]
fn a_committee_is_a_model_like_any_other() {
    let images = photographs(30, (30, 20));
    let of = |members| PatchModel::learn(&images, &PatchModelSettings { members, ..settings() }, &silent()).unwrap();
    let (one, several) = (of(1), of(3));
    assert_eq!(one.patches().filters(), several.patches().filters());
    assert_eq!((one.dim(), several.dim()), (8, 16));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    several.save(&path).unwrap();
    let features = several.embed(&images, &silent()).unwrap();
    assert_eq!(PatchModel::open(&path).unwrap().embed(&images, &silent()).unwrap(), features);
    assert!(of(3).embed(&images, &silent()).unwrap() == features);
    // Files of earlier versions say neither how many readouts there were (one) nor what the second layer is like (there is none).
    let mut earlier = settings();
    earlier.patches.second = SecondSettings::default();
    PatchModel::learn(&images, &earlier, &silent()).unwrap().save(&path).unwrap();
    let mut file = Tensors::<serde_json::Value>::read(&path).unwrap();
    let card = file.about["patch_model"].as_object_mut().unwrap();
    card.remove("members").unwrap();
    card["patches"].as_object_mut().unwrap().remove("second").unwrap();
    file.write(&path).unwrap();
    assert_eq!(PatchModel::open(&path).unwrap().card.patch_model, earlier);
    // One image, and numbers that cannot be.
    let few = PatchModelSettings { members: 4, ..settings() };
    let model = PatchModel::learn(&photographs(1, (20, 20)), &few, &silent()).unwrap();
    assert!(model.embed(&images, &silent()).unwrap().values.iter().all(|x| x.is_finite()));
    for members in [0, 65] {
        let e = PatchModel::learn(&images, &PatchModelSettings { members, ..settings() }, &silent()).err().unwrap();
        assert!(e.message.contains(&format!("committee of {members} readouts")), "{e:?}");
    }
}

#[test]
fn no_image_one_image_and_a_request_to_stop() {
    let e = PatchModel::learn(&Images::default(), &settings(), &silent()).err().unwrap();
    assert_eq!(e.kind, Kind::Data, "{e:?}");
    let one = photographs(1, (20, 20));
    let model = PatchModel::learn(&one, &settings(), &silent()).unwrap();
    assert!(model.embed(&one, &silent()).unwrap().values.iter().all(|x| x.is_finite()));
    assert_eq!(model.embed(&Images::default(), &silent()).unwrap().rows, 0);
    for images in [&one, &photographs(20, (30, 20))] {
        let pace = PatchModel::second_layer_pace(images, &settings(), silent().cancel()).unwrap();
        assert!((0.0..10.0).contains(&pace), "{pace}");
    }
    let stopped = Silent::default();
    stopped.0.request();
    let stopped: Arc<dyn Observer> = Arc::new(stopped);
    assert_eq!(PatchModel::learn(&one, &settings(), &stopped).err().unwrap().kind, Kind::Stopped);
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    PatchModel::learn(&photographs(6, (20, 20)), &settings(), &silent()).unwrap().save(&path).unwrap();
    let mut file = Tensors::<PatchCard>::read(&path).unwrap();
    file.about.patch_model.patches.centroids = 11;
    file.write(&path).unwrap();
    let e = PatchModel::open(&path).err().unwrap();
    assert!(e.kind == Kind::File && e.message.contains("filters has another shape"), "{e:?}");
    file.about.patch_model.side = 2;
    file.write(&path).unwrap();
    assert!(PatchModel::open(&path).err().unwrap().message.contains("2 pixels"));
    std::fs::write(&path, b"no").unwrap();
    assert!(!PatchModel::is_file(&path) && PatchModel::open(&path).is_err());
}
