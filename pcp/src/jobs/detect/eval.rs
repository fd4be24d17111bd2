//! Average precision of a detector.

use super::{checked_limit, read_voc};
use crate::detect::ap::{DetectionScores, score};
use crate::detect::find::find_all;
use crate::detect::settings::read_detector;
use crate::jobs::absolute;
use crate::jobs::eval::{read_report, write_report};
use crate::jobs::part::JobPart;
use crate::observe::Observer;
use crate::run::{DETECTION, RunFolder};
use pcp_core::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Which detector is measured, and on which images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectEvalOptions {
    /// A detector's run folder.
    pub run: PathBuf,
    /// Images with boxes; otherwise the folder that it was trained on.
    pub voc: Option<PathBuf>,
    /// Image set.
    pub set: String,
    /// The first images only.
    pub limit: Option<usize>,
}

impl DetectEvalOptions {
    /// All test images of the folder that the detector was trained on.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        DetectEvalOptions { run: run.into(), voc: None, set: "test".into(), limit: None }
    }
}

/// Average precision of a detector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetectionReport {
    /// Of every class, and their mean.
    #[serde(flatten)]
    pub scores: DetectionScores,
    /// The folder of the images.
    pub voc: String,
    /// The image set.
    pub set: String,
    /// Images.
    pub images: usize,
    /// File of the weights.
    pub weights: String,
    /// The detector's settings in a line.
    pub settings: String,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Measures a detector, and keeps the report in its run folder as `eval/<set>.json`; on other images than those of the folder that it was
/// trained on as `eval/<set>-<folder>.json`, on the first few as `eval/<set>-first<limit>.json`.
pub fn detect_eval(options: &DetectEvalOptions, observer: &Arc<dyn Observer>) -> Result<DetectionReport> {
    let started = Instant::now();
    let run = RunFolder::open_as(&DETECTION, &options.run)?;
    let limit = checked_limit(options.limit)?;
    let set = &options.set;
    if Path::new(set).file_name() != Some(OsStr::new(set)) {
        return Err(Error::usage(format!("`set` is {set}"), "give the name of a file of ImageSets/Main, without .txt"));
    }
    let (settings, detector, weights, file) = read_detector(&run)?;
    let root = options.voc.as_deref().unwrap_or(Path::new(&settings.voc));
    let data = read_voc(root, set, &settings.classes, limit, observer)?;
    let part = JobPart::begin("finding", data.items.len(), observer);
    let detector = Arc::new(detector);
    let found = find_all(&detector, &weights, &data, settings.search(), observer.cancel(), &|n| part.more(n));
    part.end();
    let truth: Vec<_> = data.items.iter().map(|item| item.objects.clone()).collect();
    let report = DetectionReport {
        scores: score(&found?, &truth, &settings.classes),
        voc: root.display().to_string(),
        set: set.clone(),
        images: data.items.len(),
        weights: file,
        settings: settings.summary(),
        seconds: started.elapsed().as_secs_f64(),
    };
    let (measured_on, trained_on) = (absolute(root), absolute(Path::new(&settings.voc)));
    let mut name = set.clone();
    if measured_on != trained_on {
        name += &format!("-{}", measured_on.file_name().unwrap_or_default().to_string_lossy());
    }
    if limit > 0 {
        name += &format!("-first{limit}");
    }
    write_report(&run, &format!("{name}.json"), &report)?;
    Ok(report)
}

/// The report of the last [`detect_eval`] of a detector on all images of the image set `set` of the folder that it was trained on; `None`
/// where there was none.
pub fn read_detection(run: &RunFolder, set: &str) -> Result<Option<DetectionReport>> {
    read_report(run, &format!("{set}.json"))
}
