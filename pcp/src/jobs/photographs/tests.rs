//! Everything that takes a folder of photographs without training, and a run of patches, on a dozen made-up photographs.

use super::*;
use crate::jobs::{
    AssignOptions, ClusterBy, ClusterCount, ClusterOptions, EmbedOptions, EmbeddingSource, EvalClustersOptions,
    EvalKnnOptions, EvalLinearOptions, EvalTsneOptions, ExportFormat, ExportOptions, ExportPart, PurifyOptions,
    ResumeOptions, TrainOptions, assign, cluster, embed, eval_clusters, eval_knn, eval_linear, eval_tsne, export,
    purify, resume, train,
};
use crate::observe::silent;
use pcp_core::error::Kind;
use pcp_core::io::npy::read_matrix;

/// Twelve photographs of stripes of three kinds, in three folders, and a file that is none.
pub(crate) fn stripes(folder: &Path) -> PathBuf {
    let images = folder.join("photographs");
    for i in 0..12u32 {
        let (kind, shift) = (i % 3, i / 3);
        let pixel = |x: u32, y: u32| {
            let wave = [x + shift, y + shift, x + y + shift][kind as usize] * 40;
            image::Rgb([(wave % 256) as u8, 90, (255 - wave % 256) as u8])
        };
        let place = images.join(kind.to_string());
        std::fs::create_dir_all(&place).unwrap();
        image::RgbImage::from_fn(40, 30, pixel).save(place.join(format!("{shift}.png"))).unwrap();
    }
    std::fs::write(images.join("0/broken.png"), b"no").unwrap();
    images
}

#[test]
fn features_are_written_and_the_model_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (images, file) = (stripes(dir.path()), |name: &str| dir.path().join(name));
    let options = EmbedOptions {
        save_model: Some(file("patches.safetensors")),
        ..EmbedOptions::patches(images.display().to_string(), file("first.npy"))
    };
    let made = embed(&options, &silent()).unwrap();
    assert_eq!((made.rows, made.dim, made.unreadable), (12, 8, 1));
    assert!(made.model.ends_with("patches.safetensors"), "{made:?}");
    // The kept model gives the same features, in the order of the files.
    let again = EmbedOptions::new(file("patches.safetensors"), images.display().to_string(), file("again.npy"));
    let again = embed(&again, &silent()).unwrap();
    assert_eq!(again.unreadable, 1);
    assert_eq!(read_matrix(&again.out).unwrap(), read_matrix(&made.out).unwrap());
    let one =
        EmbedOptions::new(file("patches.safetensors"), images.join("2/1.png").display().to_string(), file("1.npy"));
    assert_eq!(embed(&one, &silent()).unwrap().rows, 1);

    let wrong = |options: EmbedOptions| embed(&options, &silent()).unwrap_err();
    let fresh = || EmbedOptions { out: file("new.npy"), save_model: None, ..options.clone() };
    assert!(wrong(EmbedOptions { features: "layer4".into(), ..fresh() }).message.contains("no features called layer4"));
    assert!(wrong(EmbedOptions { best: true, ..fresh() }).message.contains("`best`"));
    let both = EmbedOptions { model: Some(file("patches.safetensors")), save_model: Some(file("x")), ..fresh() };
    assert!(wrong(both).message.contains("`save_model`"));
    let best = EmbedOptions { model: Some(file("patches.safetensors")), best: true, ..fresh() };
    assert!(wrong(best).message.contains("one set of weights"));
}

#[test]
fn a_folder_is_clustered_and_purified_with_its_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let images = stripes(dir.path());
    let out = dir.path().join("sorted");
    let options =
        ClusterOptions { out: Some(out.clone()), k: ClusterCount::Exactly(3), ..ClusterOptions::new(images.as_path()) };
    let found = cluster(&options, &silent()).unwrap();
    assert_eq!((found.summary.rows, found.summary.sheet, found.summary.by), (12, true, ClusterBy::Neighbours));
    assert!(out.join("sheet.html").is_file());
    let purified =
        purify(&PurifyOptions { k: Some(ClusterCount::Exactly(3)), ..PurifyOptions::new(images.as_path()) }, &silent());
    assert_eq!(purified.unwrap().rows.len(), 12);
    // A model in the same place gives its own features.
    let model = dir.path().join("m.safetensors");
    let kept = EmbedOptions {
        save_model: Some(model.clone()),
        ..EmbedOptions::patches(images.display().to_string(), dir.path().join("e.npy"))
    };
    embed(&kept, &silent()).unwrap();
    let by_model = ClusterOptions {
        k: ClusterCount::Exactly(3),
        ..ClusterOptions::new(EmbeddingSource::with_model(&images, Some(&model), None).unwrap())
    };
    assert_eq!(cluster(&by_model, &silent()).unwrap().rows, found.rows);
}

#[test]
fn a_folder_without_images_may_have_been_meant_as_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let e = cluster(&ClusterOptions::new(dir.path()), &silent()).unwrap_err();
    assert!(e.kind == Kind::Data && e.message.starts_with("no images") && e.hint.contains("config.toml"), "{e:?}");
    image::RgbImage::new(9, 9).save(dir.path().join("one.png")).unwrap();
    let e = cluster(&ClusterOptions::new(dir.path()), &silent()).unwrap_err();
    assert!(e.message.contains("at least two"), "{e:?}");
    assert!(is_images(Path::new("bundled")) && !is_images(&dir.path().join("none")));
}

#[test]
fn a_run_of_patches_is_a_run_like_any() {
    let dir = tempfile::tempdir().unwrap();
    let images = stripes(dir.path());
    let run = dir.path().join("run");
    let mut options = TrainOptions::new(images.display().to_string()).set("clusters.floor=3").unwrap();
    options.request.presets = vec!["patches".into()];
    options.out = Some(run.clone());
    let done = train(&options, &silent()).unwrap();
    assert_eq!((done.result.images, done.result.epochs, done.result.knn_untrained), (12, 0, None));
    assert!(done.result.knn_last.is_some(), "{:?}", done.result);
    assert!(done.result.table().contains("kNN of clusters of patches"));
    for file in ["embeddings.npy", "clusters.csv", "result.json", "model.safetensors", "report.html"] {
        assert!(run.join(file).is_file(), "{file}");
    }
    assert_eq!(resume(&ResumeOptions::new(&run), &silent()).unwrap().result, done.result);
    // The same bits again.
    let other = dir.path().join("other");
    train(&TrainOptions { out: Some(other.clone()), no_report: true, ..options.clone() }, &silent()).unwrap();
    for file in ["embeddings.npy", "clusters.csv", "model.safetensors"] {
        assert_eq!(std::fs::read(run.join(file)).unwrap(), std::fs::read(other.join(file)).unwrap(), "{file}");
    }

    assert_eq!(eval_knn(&EvalKnnOptions::new(&run), &silent()).unwrap().knn, done.result.knn_last.unwrap());
    assert_eq!(eval_clusters(&EvalClustersOptions::new(&run), &silent()).unwrap().score.k, 3);
    assert_eq!(eval_tsne(&EvalTsneOptions::new(&run), &silent()).unwrap().images, 12);
    let e = eval_linear(&EvalLinearOptions::new(&run), &silent()).unwrap_err();
    assert!(e.message.contains("no network"), "{e:?}");
    let assigned = assign(&AssignOptions::new(&run, images.join("1/2.png").display().to_string()), &silent()).unwrap();
    assert_eq!(assigned.images.len(), 1);
    let onnx = ExportOptions {
        out: Some(dir.path().join("patches.onnx")),
        sample: Some(dir.path().join("sample.npz")),
        ..ExportOptions::new(&run, ExportFormat::Onnx)
    };
    let exported = export(&onnx, &silent()).unwrap();
    assert!(exported.with_preprocess && exported.out.is_file() && exported.sample.unwrap().is_file());
    let alone = ExportOptions { part: Some(ExportPart::Network), ..ExportOptions::new(&run, ExportFormat::Onnx) };
    let e = export(&alone, &silent()).unwrap_err();
    assert!(e.message.contains("clusters of patches and no network"), "{e:?}");
    let e = train(&options.set("train.rounds=1").unwrap(), &silent()).unwrap_err();
    assert!(e.message.contains("exists") || e.message.contains("rounds"), "{e:?}");
}
