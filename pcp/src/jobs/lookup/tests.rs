//! Questions to a tiny run that was never trained.

use super::*;
use crate::config::Config;
use crate::data::{self, Load, Source};
use crate::jobs::photographs::tests::stripes;
use crate::observe::Silent;
use crate::run::About;
use pcp_core::purify::{Positives, Purified};

fn silent() -> Arc<dyn Observer> {
    Arc::new(Silent::default())
}

/// A run of five images in two clusters; `kept` says whether purification kept them.
fn run(folder: &Path, kept: bool) -> PathBuf {
    let images = folder.join("images");
    std::fs::create_dir(&images).unwrap();
    (0..5).for_each(|i| image::RgbImage::new(8, 8).save(images.join(format!("{i}.png"))).unwrap());
    let (path, mut config, about) = (folder.join("run"), Config::default(), About::default());
    config.data.source = images.display().to_string();
    let dataset = data::load(&Load::new(Source::Folder(images)), &|_, _| ()).unwrap();
    let run = RunFolder::begin(&path, false, &config.resolve(&dataset).unwrap(), &about, &dataset).unwrap();
    let e = neighbours(&NeighboursOptions::new(&path, "0.png"), &silent()).unwrap_err();
    assert!(e.message.contains("no embeddings yet") && e.hint.contains("`resume`"), "{e:?}");
    run.write_embeddings(&Matrix::new(2, vec![1.0, 0.0, 0.9, 0.1, 0.8, 0.2, 0.1, 0.9, 0.0, 1.0])).unwrap();
    let status = if kept { Status::Kept } else { Status::Instance };
    let purified = Purified {
        positives: Positives::from_sets(5, [vec![0, 1, 2], vec![3, 4]].into_iter().filter(|_| kept)),
        status: vec![status; 5],
        distance: vec![0.1; 5],
        vote: vec![f32::NAN; 5],
    };
    run.write_final_clusters(&dataset, &[0, 0, 0, 1, 1], &purified).unwrap();
    path
}

#[test]
fn an_image_of_the_run_finds_the_others_and_not_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = run(dir.path(), true);
    let out = dir.path().join("near.csv");
    let options = NeighboursOptions { count: 2, out: Some(out.clone()), ..NeighboursOptions::new(&path, "0.png") };
    let found = neighbours(&options, &silent()).unwrap();
    assert_eq!(found.images.iter().map(|n| n.file.as_str()).collect::<Vec<_>>(), ["1.png", "2.png"]);
    assert_eq!((found.images[0].cluster, found.images[0].status), (Some(0), Some(Status::Kept)));
    let text = std::fs::read_to_string(out).unwrap();
    assert!(text.starts_with("file,cosine,cluster,status,label\n1.png,0.9939,0,kept,"), "{text}");
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<NeighboursResult>(&json).unwrap(), found);
    let page = dir.path().join("near.html");
    let shown = NeighboursOptions { out: None, page: Some(page.clone()), ..options };
    neighbours(&shown, &silent()).unwrap();
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(
        text.contains("Most like it") && text.contains("cosine 0.99, cluster 0") && text.contains("0.png"),
        "{text}"
    );
    assert!(text.matches("/9j/").count() >= 3, "three JPEG pictures");
    assert!(neighbours(&shown, &silent()).unwrap_err().message.contains("near.html"), "nothing is written over");
    // Where the images have gone, their names remain.
    std::fs::remove_dir_all(dir.path().join("images")).unwrap();
    std::fs::remove_file(&page).unwrap();
    neighbours(&shown, &silent()).unwrap();
    assert!(std::fs::read_to_string(&page).unwrap().contains("1.png"));
    let all = neighbours(&NeighboursOptions::new(&path, "4.png"), &silent()).unwrap();
    assert_eq!((all.images.len(), all.images[0].file.as_str()), (4, "3.png"));
}

#[test]
fn what_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = run(dir.path(), false);
    let e = neighbours(&NeighboursOptions::new(&path, "O.png"), &silent()).unwrap_err();
    assert!(e.hint.contains("did you mean 0.png"), "{e:?}");
    let none = NeighboursOptions { count: 0, ..NeighboursOptions::new(&path, "0.png") };
    assert!(neighbours(&none, &silent()).unwrap_err().message.contains("`count` is 0"));
    let e = assign(&AssignOptions::new(&path, dir.path().display().to_string()), &silent()).unwrap_err();
    assert!(e.message.contains("no cluster of") && e.hint.contains("`clusters`"), "{e:?}");
    assert!(assign(&AssignOptions::new(dir.path(), "bundled"), &silent()).is_err(), "no run");
}

#[test]
fn a_folder_needs_no_training() {
    let dir = tempfile::tempdir().unwrap();
    let images = stripes(dir.path());
    let found =
        neighbours(&NeighboursOptions { count: 3, ..NeighboursOptions::new(&images, "1/0.png") }, &silent()).unwrap();
    let names: Vec<&str> = found.images.iter().map(|n| n.file.as_str()).collect();
    assert!(names[0].starts_with("1/") && names.iter().all(|name| *name != "1/0.png"), "{names:?}");
    assert_eq!((found.images[0].cluster, found.images[0].status), (None, None));
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<NeighboursResult>(&json).unwrap(), found);
    // By its path, it is the same image of the folder; from elsewhere, another one.
    let by_path = NeighboursOptions { count: 3, ..NeighboursOptions::new(&images, images.join("1/0.png")) };
    assert_eq!(neighbours(&by_path, &silent()).unwrap().images, found.images);
    let copy = dir.path().join("copy.png");
    std::fs::copy(images.join("1/0.png"), &copy).unwrap();
    let other = neighbours(&NeighboursOptions::new(&images, &copy), &silent()).unwrap();
    assert_eq!(other.images[0].file, "1/0.png");
    assert!(other.images[0].cosine > 0.999, "{:?}", other.images[0]);
    let e = neighbours(&NeighboursOptions::new(&images, "1/O.png"), &silent()).unwrap_err();
    assert!(e.message.contains("no image of the folder") && e.hint.contains("1/0.png"), "{e:?}");
}
