//! Measures of a tiny run that was never trained.

use super::*;
use crate::config::{Auto, Config};
use crate::data::{self, Load, Source};
use crate::model::ModelCard;
use crate::observe::Silent;
use crate::run::{About, Warning};
use pcp_core::cancel::Cancel;
use std::path::Path;
use std::sync::Mutex;
use tempfile::TempDir;

fn silent() -> Arc<dyn Observer> {
    Arc::new(Silent::default())
}

/// Remembers warnings.
#[derive(Default)]
struct Warned(Mutex<Vec<Warning>>, Cancel);

impl Observer for Warned {
    fn warn(&self, warning: &Warning) {
        self.0.lock().unwrap().push(warning.clone());
    }
    fn cancel(&self) -> &Cancel {
        &self.1
    }
}

/// A run of six images in each of `classes`; a class without a name is no folder. With weights where `weights`.
fn run(classes: &[&str], weights: bool) -> (TempDir, RunFolder) {
    let dir = tempfile::tempdir().unwrap();
    let images = dir.path().join("images");
    for (c, class) in classes.iter().enumerate() {
        std::fs::create_dir_all(images.join(class)).unwrap();
        for i in 0..6u8 {
            let shade = |x: u32, y: u32| image::Rgb([80 * c as u8 + i, (x * 20) as u8, (y * u32::from(i) * 9) as u8]);
            image::RgbImage::from_fn(12, 12, shade).save(images.join(class).join(format!("{i}.png"))).unwrap();
        }
    }
    let mut config = Config::default();
    config.network.width = 4;
    config.data.size = Auto::Value(16);
    config.data.source = images.display().to_string();
    config.clusters.floor = Auto::Value(2);
    let dataset = data::load(&Load::new(Source::Folder(images)), &|_, _| ()).unwrap();
    let config = config.resolve(&dataset).unwrap();
    let path = dir.path().join("run");
    let run = RunFolder::begin(&path, false, &config, &About::default(), &dataset).unwrap();
    if weights {
        let card = ModelCard::of_run(&config, (0, 3));
        Model::untrained(card, 1).unwrap().write_safetensors(&run.last_weights()).unwrap();
    }
    (dir, run)
}

/// The value after it was written as JSON and read again.
fn again<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

#[test]
fn knn_warns_of_few_images_and_takes_what_there_is() {
    let (_dir, run) = run(&["a", "b"], true);
    let heard = Arc::new(Warned::default());
    let observer: Arc<dyn Observer> = heard.clone();
    let options = EvalKnnOptions { k: Some(50), ..EvalKnnOptions::new(run.path()) };
    let report = eval_knn(&options, &observer).unwrap();
    assert_eq!((report.k, report.measured.round, report.measured.epoch), (11, Some(0), Some(3)));
    assert_eq!(*heard.0.lock().unwrap(), [Warning::FewerThanK { images: 11, k: 50 }]);
    assert_eq!(again(&report), report);
    let wrong = EvalKnnOptions { k: Some(0), ..EvalKnnOptions::new(run.path()) };
    assert!(eval_knn(&wrong, &observer).is_err());
    observer.cancel().request();
    assert_eq!(eval_knn(&options, &observer).unwrap_err().exit_code(), 130);
}

#[test]
fn linear_reports_are_read_back_as_they_were_written() {
    let (_dir, run) = run(&["a", "b"], true);
    assert_eq!(read_linear(&run).unwrap(), None);
    let options = EvalLinearOptions { epochs: 2, layers: vec!["pooled".into()], ..EvalLinearOptions::new(run.path()) };
    let views = eval_linear(&options, &silent()).unwrap();
    let fast = eval_linear(&EvalLinearOptions { fast: true, ..options.clone() }, &silent()).unwrap();
    assert_eq!((views.layers.len(), views.layers[0].accuracy.len(), views.settings.epochs), (1, 2, 2));
    assert_eq!((read_linear(&run).unwrap(), read_fast_linear(&run).unwrap()), (Some(views), Some(fast)));
    // A diverged loss is null in JSON.
    let file = run.file("eval").join("linear.json");
    let mut broken: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    broken["layers"][0]["loss"][1] = serde_json::Value::Null;
    std::fs::write(&file, broken.to_string()).unwrap();
    assert!(read_linear(&run).unwrap().unwrap().layers[0].loss[1].is_nan());
    std::fs::write(&file, "{}").unwrap();
    assert_eq!(read_linear(&run).unwrap(), None, "a file of another version");
    std::fs::write(&file, "{").unwrap();
    let e = read_linear(&run).unwrap_err();
    assert!(e.message.contains("linear.json") && e.hint.contains("remove"), "{e:?}");

    let none = EvalLinearOptions { epochs: 0, ..options.clone() };
    assert!(eval_linear(&none, &silent()).unwrap_err().message.contains("`epochs`"));
    let other = EvalLinearOptions { layers: vec!["conv5".into()], ..options };
    assert!(eval_linear(&other, &silent()).unwrap_err().message.contains("conv5"));
}

#[test]
fn fine_tuning_keeps_a_report_of_each_beginning() {
    let (_dir, run) = run(&["a", "b"], true);
    let options =
        EvalFinetuneOptions { labels: "50%".into(), epochs: 1, batch: 4, ..EvalFinetuneOptions::new(run.path()) };
    let tuned = eval_finetune(&options, &silent()).unwrap();
    assert_eq!(tuned.result.labelled, 6, "half of each class, rounded, of the images that are not tested on");
    let untrained = EvalFinetuneOptions { untrained: true, ..options.clone() };
    assert_eq!(eval_finetune(&untrained, &silent()).unwrap().weights, "untrained");
    assert_eq!(read_finetune(&run, false).unwrap(), Some(tuned));
    assert_eq!(read_finetune(&run, true).unwrap().unwrap().weights, "untrained");
    let both = EvalFinetuneOptions { best: true, ..untrained };
    assert!(eval_finetune(&both, &silent()).unwrap_err().message.contains("`untrained` and `best`"));
    let none = EvalFinetuneOptions { labels: "0%".into(), ..options };
    assert!(eval_finetune(&none, &silent()).unwrap_err().message.contains("`labels` is 0%"));
}

#[test]
fn clusters_are_as_many_as_classes_or_as_asked() {
    let (_dir, run) = run(&["a", "b", "c"], true);
    let usual = EvalClustersOptions::new(run.path());
    let report = eval_clusters(&usual, &silent()).unwrap();
    assert_eq!((report.score.k, report.score.images, report.filter.len()), (3, 18, 0));
    assert!(report.score.agreement.is_some());
    let near = report.by_neighbours.as_ref().unwrap();
    assert_eq!((near.k, near.images, near.agreement.is_some()), (3, 18, true));
    assert_eq!(read_clusters(&run).unwrap(), Some(report));
    let all = EvalClustersOptions { k: EvalClusterCount::Exactly(18), ..usual.clone() };
    assert_eq!(eval_clusters(&all, &silent()).unwrap().score.agreement.unwrap().purity, 1.0);
    for (k, word) in [(19, "19"), (0, "`k` is 0")] {
        let wrong = EvalClustersOptions { k: EvalClusterCount::Exactly(k), ..usual.clone() };
        assert!(eval_clusters(&wrong, &silent()).unwrap_err().message.contains(word), "{k}");
    }
    assert_eq!(EvalClusterCount::parse("classes").unwrap(), EvalClusterCount::Classes);
    assert!(["0", "-1", "many", ""].iter().all(|k| EvalClusterCount::parse(k).is_err()));
}

#[test]
fn without_labels_there_are_clusters_and_pictures_but_no_accuracy() {
    let (dir, run) = run(&[""], true);
    let report = eval_clusters(&EvalClustersOptions::new(run.path()), &silent()).unwrap();
    assert_eq!((report.score.k, report.score.agreement), (2, None));
    let classes = EvalClustersOptions { k: EvalClusterCount::Classes, ..EvalClustersOptions::new(run.path()) };
    assert!(eval_clusters(&classes, &silent()).unwrap_err().hint.contains("`k` 10"));
    assert!(eval_knn(&EvalKnnOptions::new(run.path()), &silent()).unwrap_err().message.contains("no labels"));
    assert!(eval_linear(&EvalLinearOptions::new(run.path()), &silent()).unwrap_err().message.contains("no labels"));
    let tsne = EvalTsneOptions { out: Some(dir.path().join("t")), limit: Some(1), ..EvalTsneOptions::new(run.path()) };
    let drawn = eval_tsne(&tsne, &silent()).unwrap();
    assert_eq!((drawn.images, drawn.trustworthiness, drawn.files.len()), (1, None, 3));
    assert_eq!(again(&drawn), drawn);
    assert!(drawn.files.iter().all(|file| Path::new(file).is_file()), "{:?}", drawn.files);
    let test = EvalTsneOptions { part: Some(Part::Test), ..tsne.clone() };
    assert!(eval_tsne(&test, &silent()).unwrap_err().hint.contains("`part` train"));
    let none = EvalTsneOptions { limit: Some(0), ..tsne };
    assert!(eval_tsne(&none, &silent()).unwrap_err().message.contains("`limit` is 0"));
}

#[test]
fn heat_of_files_of_one_name_goes_to_pictures_of_their_own() {
    let (dir, run) = run(&["a", "b"], true);
    let files = ["a/1.png", "b/1.png"].map(|name| dir.path().join("images").join(name));
    let options = EvalHeatmapOptions::new(run.path(), &files);
    let report = eval_heatmap(&options, &silent()).unwrap();
    assert_eq!((report.images, report.states.len(), report.states[0].inside), (2, 1, None));
    assert!(["1-1-model.png", "2-1-model.png"].iter().all(|name| Path::new(&report.pictures).join(name).is_file()));
    assert_eq!(read_heatmap(&run).unwrap(), Some(report));
    let snapshots = EvalHeatmapOptions { snapshots: true, ..options.clone() };
    assert!(eval_heatmap(&snapshots, &silent()).unwrap_err().hint.contains("`snapshots`"));
    let boxes = EvalHeatmapOptions { boxes: Some(dir.path().into()), ..options };
    assert!(eval_heatmap(&boxes, &silent()).unwrap_err().hint.contains("`boxes`"));
    let none = EvalHeatmapOptions::new(run.path(), Vec::<PathBuf>::new());
    assert!(eval_heatmap(&none, &silent()).unwrap_err().message.contains("`images`"));
}

#[test]
fn a_run_without_weights_is_refused() {
    let (dir, run) = run(&["a"], false);
    let errors = [
        eval_knn(&EvalKnnOptions::new(run.path()), &silent()).unwrap_err(),
        eval_clusters(&EvalClustersOptions::new(run.path()), &silent()).unwrap_err(),
        eval_tsne(&EvalTsneOptions::new(run.path()), &silent()).unwrap_err(),
    ];
    assert!(errors.iter().all(|e| e.message.contains("no weights yet")), "{errors:?}");
    let e = eval_knn(&EvalKnnOptions::new(dir.path()), &silent()).unwrap_err();
    assert!(e.message.contains("not a run folder"), "{e:?}");
}
