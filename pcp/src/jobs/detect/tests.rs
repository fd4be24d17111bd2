//! Detectors on made-up shapes, too small to find anything.

use super::*;
use crate::config::PrecisionChoice;
use crate::detect::settings::{DetectorSettings, RANDOM};
use crate::detect::shapes;
use crate::observe::{Live, Silent};
use crate::run::{DETECTION, DetectorEpoch, RunFolder, Warning};
use pcp_core::cancel::Cancel;
use std::sync::Mutex;
use tempfile::TempDir;

fn silent() -> Arc<dyn Observer> {
    Arc::new(Silent::default())
}

/// Remembers what is told, and cancels after some steps.
#[derive(Default)]
struct Heard {
    notes: Mutex<Vec<String>>,
    warnings: Mutex<Vec<Warning>>,
    epochs: Mutex<Vec<u32>>,
    steps: Mutex<Option<usize>>,
    cancel: Cancel,
}

impl Observer for Heard {
    fn note(&self, line: &str) {
        self.notes.lock().unwrap().push(line.to_string());
    }
    fn warn(&self, warning: &Warning) {
        self.warnings.lock().unwrap().push(warning.clone());
    }
    fn detector_epoch(&self, record: &DetectorEpoch) {
        self.epochs.lock().unwrap().push(record.epoch);
    }
    fn live(&self, _live: &Live) {
        let mut left = self.steps.lock().unwrap();
        *left = left.map(|n| n - 1);
        if *left == Some(0) {
            *left = None;
            self.cancel.request();
        }
    }
    fn cancel(&self) -> &Cancel {
        &self.cancel
    }
}

/// A set of four training and two test images, and options to train on it.
fn tiny() -> (TempDir, DetectTrainOptions) {
    let dir = tempfile::tempdir().unwrap();
    let voc = dir.path().join("voc");
    shapes::write(&voc, &shapes::Request { train: 4, test: 2, side: 48, seed: 1 }, &Cancel::default()).unwrap();
    let options = DetectTrainOptions {
        classes: shapes::classes(),
        short_side: 48,
        epochs: 2,
        batch: 2,
        rois: 8,
        proposals: 20,
        test_proposals: 10,
        width: Some(4),
        ..DetectTrainOptions::new(RANDOM, voc, dir.path().join("det"))
    };
    (dir, options)
}

#[test]
fn a_detector_that_was_cancelled_goes_on_with_the_same_bits_and_is_measured() {
    goes_on_and_is_measured(PrecisionChoice::F32);
}

#[test]
fn a_detector_in_bf16_goes_on_and_is_measured_too() {
    match PrecisionChoice::Bf16.resolve() {
        Ok(_) => goes_on_and_is_measured(PrecisionChoice::Bf16),
        Err(_) => eprintln!("skipped: this CPU has no avx512_bf16"),
    }
}

fn goes_on_and_is_measured(precision: PrecisionChoice) {
    let (dir, options) = tiny();
    let options = DetectTrainOptions { precision, ..options };
    let heard = Arc::new(Heard::default());
    let observer: Arc<dyn Observer> = heard.clone();
    let whole = detect_train(&options, &observer).unwrap();
    assert_eq!(whole.precision, precision.resolve().unwrap());
    assert_eq!((whole.images, &heard.epochs.lock().unwrap()[..]), (4, &[0, 1][..]));
    let log = std::fs::read_to_string(options.out.join("train.log")).unwrap();
    let notes = heard.notes.lock().unwrap().join("\n");
    assert!(log.starts_with("data      ") && log.contains("epoch   2/2: loss ") && log.trim_end() == notes, "{log}");
    assert!(detect_train(&options, &observer).unwrap_err().message.contains("exists"));

    let cut = DetectTrainOptions { out: dir.path().join("cut"), ..options.clone() };
    let stops: Arc<dyn Observer> = Arc::new(Heard { steps: Mutex::new(Some(3)), ..Heard::default() });
    let e = detect_train(&cut, &stops).unwrap_err();
    assert!(e.exit_code() == 130 && e.hint.contains("`detect_resume`"), "{e:?}");
    let rest = detect_resume(&cut.out, &observer).unwrap();
    assert!(heard.notes.lock().unwrap().iter().any(|line| line.starts_with("going on in epoch 2")));
    assert_eq!(rest.loss, whole.loss);
    let weights = |out: &Path| std::fs::read(out.join("model.safetensors")).unwrap();
    assert_eq!(weights(&cut.out), weights(&options.out));
    assert_eq!(detect_resume(&cut.out, &observer).unwrap(), rest, "a finished one is told its result");
    assert!(heard.notes.lock().unwrap().last().unwrap().contains("is finished"));

    let run = RunFolder::open_as(&DETECTION, &cut.out).unwrap();
    assert_eq!(DetectorSettings::read(&run).unwrap().0, options.settings().unwrap());
    assert_eq!(read_detection(&run, "test").unwrap(), None);
    let report = detect_eval(&DetectEvalOptions::new(&cut.out), &observer).unwrap();
    assert_eq!((report.images, report.scores.classes.len()), (2, 3));
    assert_eq!(read_detection(&run, "test").unwrap(), Some(report));
    let first = DetectEvalOptions { limit: Some(1), ..DetectEvalOptions::new(&cut.out) };
    assert_eq!(detect_eval(&first, &observer).unwrap().images, 1);
    assert!(cut.out.join("eval/test-first1.json").is_file());

    let (photographs, broken) = (options.voc.join("JPEGImages"), dir.path().join("broken.png"));
    std::fs::write(&broken, "no picture").unwrap();
    let predict = DetectPredictOptions::new(&cut.out, [&photographs, &broken], dir.path().join("found"));
    let found = detect_predict(&predict, &observer).unwrap();
    assert_eq!((found.photographs, found.left_out.len(), found.left_out[0].id), (6, 1, 6));
    assert!(matches!(heard.warnings.lock().unwrap().last(), Some(Warning::LeftOut { .. })));
    let listed: Vec<CocoDetection> = serde_json::from_slice(&std::fs::read(&found.file).unwrap()).unwrap();
    assert_eq!(listed, found.detections);
    assert!(detect_predict(&predict, &observer).is_err(), "nothing is written over");
}

#[test]
fn wrong_options_are_named_before_anything_is_written() {
    let (dir, options) = tiny();
    let refused = |options: DetectTrainOptions| detect_train(&options, &silent()).unwrap_err().message;
    assert!(refused(DetectTrainOptions { limit: Some(0), ..options.clone() }).contains("`limit` is 0"));
    assert!(refused(DetectTrainOptions { short_side: 8, ..options.clone() }).contains("`short_side` is 8"));
    assert!(refused(DetectTrainOptions { test_proposals: 0, ..options.clone() }).contains("`test_proposals` is 0"));
    assert!(refused(DetectTrainOptions { lr: f64::NAN, ..options.clone() }).contains("`lr` is NaN"));
    assert!(refused(DetectTrainOptions { width: Some(0), ..options.clone() }).contains("`width` is 0"));
    assert!(
        refused(DetectTrainOptions { backbone: "nowhere".into(), width: None, ..options.clone() }).contains("nowhere")
    );
    assert!(refused(DetectTrainOptions { set: "val".into(), ..options.clone() }).contains("val.txt"));
    assert!(!options.out.exists());
    for e in [
        detect_resume(dir.path(), &silent()).unwrap_err(),
        detect_eval(&DetectEvalOptions::new(dir.path()), &silent()).unwrap_err(),
        detect_predict(&DetectPredictOptions::new(dir.path(), [dir.path()], "out"), &silent()).unwrap_err(),
    ] {
        assert!(e.message.contains("detect.toml"), "{e:?}");
    }
    let likely = DetectPredictOptions { score: 1.5, ..DetectPredictOptions::new(dir.path(), [dir.path()], "out") };
    assert!(detect_predict(&likely, &silent()).unwrap_err().message.contains("`score` is 1.5"));
}
