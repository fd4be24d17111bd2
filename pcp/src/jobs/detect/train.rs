//! Training of a detector.

use super::{checked_limit, read_voc};
use crate::config::{PrecisionChoice, check_resumable};
use crate::detect::settings::{self, DetectorSettings, RANDOM};
use crate::detect::train::{DetectorSetup, DetectorState, train};
use crate::detect::voc;
use crate::jobs::absolute;
use crate::jobs::log::RunLog;
use crate::jobs::train::Caller;
use crate::model::Model;
use crate::observe::Observer;
use crate::run::{About, DETECTION, DetectorResult, RunFolder, VERSION, Warning, cpu};
use pcp_core::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a detector is built on and learns from, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectTrainOptions {
    /// What to begin with: a run folder, a safetensors file in torchvision's names, or `random`.
    pub backbone: String,
    /// Images with boxes: a folder with ImageSets, Annotations and JPEGImages.
    pub voc: PathBuf,
    /// The run folder to make.
    pub out: PathBuf,
    /// Image set to learn from.
    pub set: String,
    /// Own classes; empty for those of VOC.
    pub classes: Vec<String>,
    /// Learn from the first images only.
    pub limit: Option<usize>,
    /// Shorter side of the images in pixels.
    pub short_side: usize,
    /// Epochs.
    pub epochs: u32,
    /// Images per step.
    pub batch: usize,
    /// Learning rate; a tenth of it after five sixths of the epochs.
    pub lr: f64,
    /// Boxes per image that the heads look at.
    pub rois: usize,
    /// Proposals per image in training.
    pub proposals: usize,
    /// Proposals per image at the test.
    pub test_proposals: usize,
    /// Channels of the first stage of an untrained network; otherwise 64.
    pub width: Option<usize>,
    /// Precision of the network's layers.
    pub precision: PrecisionChoice,
    /// Everything random follows from it.
    pub seed: u64,
    /// Minutes between checkpoints within an epoch.
    pub save_minutes: f64,
    /// Begin anew in a run folder that exists, removing the old run's files.
    pub overwrite: bool,
    /// The calling program.
    pub caller: Caller,
}

impl DetectTrainOptions {
    /// The paper's setting.
    pub fn new(backbone: impl Into<String>, voc: impl Into<PathBuf>, out: impl Into<PathBuf>) -> Self {
        DetectTrainOptions {
            backbone: backbone.into(),
            voc: voc.into(),
            out: out.into(),
            set: "trainval".into(),
            classes: Vec::new(),
            limit: None,
            short_side: 600,
            epochs: 30,
            batch: 8,
            lr: 0.001,
            rois: 128,
            proposals: 2000,
            test_proposals: 300,
            width: None,
            precision: PrecisionChoice::Auto,
            seed: 0,
            save_minutes: 5.0,
            overwrite: false,
            caller: Caller::default(),
        }
    }

    /// The settings that a detector trained with these options has. The backbone is opened for it.
    pub fn settings(&self) -> Result<DetectorSettings> {
        Ok(self.resolved()?.0)
    }

    /// The settings, and the network to build on.
    fn resolved(&self) -> Result<(DetectorSettings, Model)> {
        let limit = checked_limit(self.limit)?;
        let precision = self.precision.resolve()?;
        let begun = settings::backbone(&self.backbone, self.width)?;
        let classes = voc::classes(&self.classes)?;
        let backbone = match self.backbone.as_str() {
            RANDOM => RANDOM.into(),
            path => absolute(Path::new(path)).display().to_string(),
        };
        let settings = DetectorSettings {
            backbone,
            voc: absolute(&self.voc).display().to_string(),
            set: self.set.clone(),
            classes,
            limit,
            short_side: self.short_side,
            epochs: self.epochs,
            batch: self.batch,
            lr: self.lr,
            momentum: 0.9,
            weight_decay: 1e-4,
            anchors: 256,
            rois: self.rois,
            proposals: self.proposals,
            test_proposals: self.test_proposals,
            seed: self.seed,
            save_minutes: self.save_minutes,
            precision,
            size: begun.card.size,
            mean: begun.card.mean,
            std: begun.card.std,
            network: begun.card.network.clone(),
        };
        settings.check()?;
        Ok((settings, begun))
    }
}

/// Trains a detector. When it is cancelled, everything is saved first, and [`detect_resume`] goes on.
///
/// ```no_run
/// use pcp::jobs::{DetectEvalOptions, DetectTrainOptions, detect_eval, detect_train};
/// # use std::sync::Arc;
/// # let observer: Arc<dyn pcp::observe::Observer> = Arc::new(pcp::observe::Silent::default());
/// detect_train(&DetectTrainOptions::new("runs/c100", "VOCdevkit/VOC2007", "runs/det"), &observer)?;
/// let report = detect_eval(&DetectEvalOptions::new("runs/det"), &observer)?;
/// println!("mAP {:.1} %", report.scores.map11);
/// # Ok::<(), pcp_core::error::Error>(())
/// ```
pub fn detect_train(options: &DetectTrainOptions, observer: &Arc<dyn Observer>) -> Result<DetectorResult> {
    // Refuse before anything is read.
    if !options.overwrite && RunFolder::open_as(&DETECTION, &options.out).is_ok() {
        RunFolder::create_as(&DETECTION, &options.out, false)?;
    }
    let (settings, backbone) = options.resolved()?;
    let detector = settings.detector()?;
    let weights = detector.init_on(&backbone, settings.seed)?;
    let data = read_voc(&options.voc, &settings.set, &settings.classes, settings.limit, observer)?;
    let run = RunFolder::create_as(&DETECTION, &options.out, options.overwrite)?;
    let about = About {
        version: VERSION.into(),
        revision: options.caller.revision.clone(),
        cpu: cpu(),
        command: options.caller.command.clone(),
        data: settings.voc.clone(),
        fingerprint: data.fingerprint.clone(),
        presets: Vec::new(),
    };
    settings.write(&run, &about)?;
    let observer = RunLog::beside(&run, observer);
    let setup = DetectorSetup { settings, detector: Arc::new(detector), data, run, about, observer };
    tell(&setup);
    finish(&setup, DetectorState::new(weights))
}

/// Goes on with the training of the detector in the folder `path`, that was cancelled or killed; the result has the same bits as
/// that of a training that was not. Of a finished training it returns the result.
pub fn detect_resume(path: &Path, observer: &Arc<dyn Observer>) -> Result<DetectorResult> {
    let run = RunFolder::open_as(&DETECTION, path)?;
    let (settings, about) = match run.checkpoints()?.is_empty() {
        false => DetectorSettings::read_any(&run)?,
        true => DetectorSettings::read(&run)?,
    };
    if let Some(result) = run.read_result_as()? {
        observer.note(&format!("{} is finished; this is its result", path.display()));
        return Ok(result);
    }
    check_resumable(path, settings.precision)?;
    let run = run.locked()?;
    let detector = Arc::new(settings.detector()?);
    let data = read_voc(Path::new(&settings.voc), &settings.set, &settings.classes, settings.limit, observer)?;
    if data.fingerprint != about.fingerprint {
        return Err(Error::data(
            format!("the images of {} are not those that {} began with", settings.voc, path.display()),
            "bring the images back as they were, or start another run",
        ));
    }
    let observer = RunLog::beside(&run, observer);
    let setup = DetectorSetup { settings, detector, data, run, about, observer };
    let state = setup.restore(|| {
        let DetectorSettings { backbone, seed, network, .. } = &setup.settings;
        let width = (backbone == RANDOM).then_some(network.width);
        let begun = settings::backbone(backbone, width)?;
        Ok(DetectorState::new(setup.detector.init_on(&begun, *seed)?))
    })?;
    let (epoch, steps) = (state.progress.epoch + 1, state.progress.batch);
    setup.observer.note(&format!("going on in epoch {epoch} after {steps} steps"));
    finish(&setup, state)
}

fn finish(setup: &DetectorSetup, state: DetectorState) -> Result<DetectorResult> {
    let trained = train(setup, state);
    setup.observer.end();
    Ok(trained?.1)
}

/// Tells what the run will do, and what is unusual about it.
fn tell(setup: &DetectorSetup) {
    let DetectorSetup { settings, data, detector, observer, .. } = setup;
    let truths: Vec<_> = data.items.iter().flat_map(|item| item.truths()).collect();
    observer.note(&format!(
        "data      {}, {}: {} images, {} objects of {} classes",
        data.root.display(),
        data.set,
        data.items.len(),
        truths.len(),
        data.classes.len()
    ));
    let millions = detector.learning() as f64 / 1e6;
    observer.note(&format!("network   from {}; {millions:.1} M numbers learn", settings.backbone));
    observer.note(&format!("settings  {}; seed {}", settings.summary(), settings.seed));
    let unseen = |(class, _): &(usize, &String)| !truths.iter().any(|truth| truth.class == *class);
    let classes: Vec<String> = data.classes.iter().enumerate().filter(unseen).map(|(_, name)| name.clone()).collect();
    if !classes.is_empty() {
        setup.warn(Warning::UnseenClasses { classes });
    }
}
