//! `pcp detect train`.

use super::read_voc;
use crate::progress::bar;
use crate::table;
use crate::train::{REVISION, VERSION, absolute, command};
use clap::Parser;
use indicatif::ProgressBar;
use pcp::detect::settings::{self, RANDOM, Settings};
use pcp::detect::train::{DetectorSetup, DetectorState, train};
use pcp::detect::voc;
use pcp::model::Model;
use pcp::observe::{Live, Observer};
use pcp::run::{About, DETECTION, DetectorEpoch, DetectorResult, RunFolder, Warning};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Parser)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp detect train runs/c100 --voc VOCdevkit/VOC2007 --out runs/det         the paper's setting
  pcp detect train runs/c100/model.safetensors --voc VOCdevkit/VOC2007 --out runs/det
  pcp detect train runs/c10 --voc VOCdevkit/VOC2007 --short-side 224 --rois 32 --proposals 300 --out runs/det   for CPUs
  pcp detect train random --width 32 --voc MINE --classes cat,dog --out runs/mine     own images, laid out like VOC's
  pcp detect train --resume runs/det                                        go on where it was stopped

The network is a Faster R-CNN on a ResNet18. Stem, first stage and batch norm stay as they are. Sizes of anchors are in proportion to
the short side."
)]
pub struct Args {
    /// What to begin with: a run folder, a safetensors file in torchvision's names, or random
    #[arg(value_name = "RUN|FILE|random", required_unless_present = "resume")]
    backbone: Option<String>,
    /// Images with boxes: a folder with ImageSets, Annotations and JPEGImages
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    voc: Option<PathBuf>,
    /// Run folder
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    out: Option<PathBuf>,
    /// Go on with the run in this folder
    #[arg(long, value_name = "RUN", conflicts_with_all = [
        "backbone", "voc", "out", "overwrite", "set", "classes", "limit", "short_side", "epochs", "batch", "lr", "rois", "proposals",
        "test_proposals", "width", "seed", "save_minutes",
    ])]
    resume: Option<PathBuf>,
    /// Image set to learn from
    #[arg(long, default_value = "trainval", value_name = "NAME")]
    set: String,
    /// Own classes instead of VOC's, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    classes: Vec<String>,
    /// Learn from the first N images only
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Shorter side of the images in pixels
    #[arg(long, default_value_t = 600, value_name = "PIXELS")]
    short_side: usize,
    /// Epochs
    #[arg(long, default_value_t = 30)]
    epochs: u32,
    /// Images per step
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Learning rate; a tenth of it after five sixths of the epochs
    #[arg(long, default_value_t = 0.001)]
    lr: f64,
    /// Boxes per image that the heads look at
    #[arg(long, default_value_t = 128, value_name = "N")]
    rois: usize,
    /// Proposals per image in training
    #[arg(long, default_value_t = 2000, value_name = "N")]
    proposals: usize,
    /// Proposals per image at the test
    #[arg(long, default_value_t = 300, value_name = "N")]
    test_proposals: usize,
    /// Channels of the first stage of an untrained network [default: 64]
    #[arg(long)]
    width: Option<usize>,
    /// Everything random follows from it
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Minutes between checkpoints within an epoch
    #[arg(long, default_value_t = 5.0, value_name = "MINUTES")]
    save_minutes: f64,
    /// Threads [default: all cores]; results do not depend on it
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Begin anew in a run folder that exists, removing the old run's files
    #[arg(long)]
    overwrite: bool,
    /// Show no progress: only warnings, errors and the result
    #[arg(long, short)]
    quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.threads)?;
    let (run, outcome) = execute(args, command(std::env::args().skip(1)), stop)?;
    if args.json {
        return crate::print_json(&outcome);
    }
    let rows = [
        ("loss of the last epoch".to_string(), format!("{:.3}", outcome.loss)),
        ("images, time".into(), format!("{}, {}", outcome.images, table::duration(outcome.seconds))),
        ("settings".into(), outcome.protocol.clone()),
    ];
    let next = format!("measure it with: pcp detect eval {}", run.path().display());
    crate::print(&format!("{}  everything is in {}; {next}", table::columns(&rows), run.path().display()))
}

/// Trains as `args` say, or goes on. Leaves the threads as they are.
pub(crate) fn execute(args: &Args, command: String, stop: &Cancel) -> Result<(RunFolder, DetectorResult)> {
    if let Some(path) = &args.resume {
        return resume(args, path, stop);
    }
    let (Some(root), Some(out)) = (&args.voc, &args.out) else { return Err(missing()) };
    // Refuse before anything is read.
    if !args.overwrite && RunFolder::open_as(&DETECTION, out).is_ok() {
        RunFolder::create_as(&DETECTION, out, false)?;
    }
    let (settings, backbone) = asked(args)?;
    let detector = settings.detector()?;
    let weights = detector.init_on(&backbone, settings.seed)?;
    let data = read_voc(root, &settings.set, &settings.classes, settings.limit, args.quiet, stop)?;
    let run = RunFolder::create_as(&DETECTION, out, args.overwrite)?;
    let about = About {
        version: VERSION.into(),
        revision: REVISION.into(),
        cpu: crate::bench::cpu(),
        command,
        data: settings.voc.clone(),
        fingerprint: data.fingerprint.clone(),
        presets: Vec::new(),
    };
    settings.write(&run, &about)?;
    let shown = Arc::new(Shown::new(args.quiet, &settings, &run, stop));
    let setup = DetectorSetup {
        detector: Arc::new(detector),
        data: Arc::new(data),
        run,
        about,
        observer: shown.clone(),
        settings,
    };
    plan(&setup, &shown);
    finish(&setup, DetectorState::new(weights), &shown)
}

fn missing() -> Error {
    Error::usage("a backbone, --voc or --out is missing", "see pcp detect train --help")
}

/// The settings that are asked for, and the network to build on.
pub(crate) fn asked(args: &Args) -> Result<(Settings, Model)> {
    let (Some(word), Some(root)) = (&args.backbone, &args.voc) else { return Err(missing()) };
    super::check_limit(args.limit)?;
    let begun = settings::backbone(word, args.width)?;
    let classes = voc::classes(&args.classes)?;
    let backbone = if word == RANDOM { word.clone() } else { absolute(Path::new(word)).display().to_string() };
    let settings = Settings {
        backbone,
        voc: absolute(root).display().to_string(),
        set: args.set.clone(),
        classes,
        limit: args.limit.unwrap_or(0),
        short_side: args.short_side,
        epochs: args.epochs,
        batch: args.batch,
        lr: args.lr,
        momentum: 0.9,
        weight_decay: 1e-4,
        anchors: 256,
        rois: args.rois,
        proposals: args.proposals,
        test_proposals: args.test_proposals,
        seed: args.seed,
        save_minutes: args.save_minutes,
        size: begun.card.size,
        mean: begun.card.mean,
        std: begun.card.std,
        network: begun.card.network.clone(),
    };
    settings.check()?;
    Ok((settings, begun))
}

fn resume(args: &Args, path: &Path, stop: &Cancel) -> Result<(RunFolder, DetectorResult)> {
    let run = RunFolder::open_as(&DETECTION, path)?;
    let (settings, about) = Settings::read(&run)?;
    if let Some(outcome) = run.read_result_as::<DetectorResult>()? {
        if !args.quiet {
            eprintln!("{} is finished; this is its result", path.display());
        }
        return Ok((run, outcome));
    }
    let run = run.locked()?;
    let detector = Arc::new(settings.detector()?);
    let root = Path::new(&settings.voc);
    let data = read_voc(root, &settings.set, &settings.classes, settings.limit, args.quiet, stop)?;
    if data.fingerprint != about.fingerprint {
        return Err(Error::data(
            format!("the images of {} are not those that {} began with", settings.voc, path.display()),
            "bring the images back as they were, or start another run",
        ));
    }
    let shown = Arc::new(Shown::new(args.quiet, &settings, &run, stop));
    let setup = DetectorSetup {
        settings,
        detector: detector.clone(),
        data: Arc::new(data),
        run,
        about,
        observer: shown.clone(),
    };
    let state = setup.restore(|| {
        let Settings { backbone, seed, network, .. } = &setup.settings;
        let width = (backbone == RANDOM).then_some(network.width);
        let begun = settings::backbone(backbone, width)?;
        Ok(DetectorState::new(detector.init_on(&begun, *seed)?))
    })?;
    shown.epoch.store(state.progress.epoch, Ordering::Relaxed);
    shown.say(&format!("going on in epoch {} after {} steps", state.progress.epoch + 1, state.progress.batch));
    finish(&setup, state, &shown)
}

fn finish(setup: &DetectorSetup, state: DetectorState, shown: &Shown) -> Result<(RunFolder, DetectorResult)> {
    let trained = train(setup, state);
    shown.bar.finish_and_clear();
    let (_, outcome) = trained?;
    Ok((setup.run.clone(), outcome))
}

/// Says what the run will do.
fn plan(setup: &DetectorSetup, shown: &Shown) {
    let DetectorSetup { settings, data, detector, .. } = setup;
    let objects: usize = data.items.iter().map(|item| item.truths().len()).sum();
    shown.say(&format!(
        "data      {}, {}: {} images, {objects} objects of {} classes",
        data.root.display(),
        data.set,
        data.items.len(),
        data.classes.len()
    ));
    shown.say(&format!(
        "network   from {}; {:.1} M numbers learn",
        settings.backbone,
        detector.learning() as f64 / 1e6
    ));
    shown.say(&format!("settings  {}; seed {}", settings.summary(), settings.seed));
    let classes: Vec<String> = (data.classes.iter().enumerate())
        .filter(|(class, _)| !data.items.iter().any(|item| item.truths().iter().any(|t| t.class == *class)))
        .map(|(_, name)| name.clone())
        .collect();
    if !classes.is_empty() {
        setup.warn(Warning::UnseenClasses { classes });
    }
}

/// A bar for people, lines elsewhere.
struct Shown {
    bar: ProgressBar,
    quiet: bool,
    epochs: u32,
    /// The epoch that trains, from 0.
    epoch: AtomicU32,
    run: RunFolder,
    cancel: Cancel,
}

impl Shown {
    fn new(quiet: bool, settings: &Settings, run: &RunFolder, cancel: &Cancel) -> Shown {
        Shown {
            bar: bar("epoch", quiet),
            quiet,
            epochs: settings.epochs,
            epoch: AtomicU32::new(0),
            run: run.clone(),
            cancel: cancel.clone(),
        }
    }

    fn say(&self, line: &str) {
        self.run.log(line);
        if !self.quiet {
            self.bar.suspend(|| eprintln!("{line}"));
        }
    }
}

impl Observer for Shown {
    fn begin(&self, _part: &'static str, images: usize) {
        self.bar.set_length(images as u64);
        self.bar.set_position(0);
        self.bar.set_prefix(format!("epoch {}/{}", self.epoch.load(Ordering::Relaxed) + 1, self.epochs));
    }

    fn advance(&self, images: usize) {
        self.bar.inc(images as u64);
    }

    fn live(&self, live: &Live) {
        self.bar.set_message(format!("loss {:.3}", live.loss));
    }

    fn detector_epoch(&self, r: &DetectorEpoch) {
        self.epoch.store(r.epoch + 1, Ordering::Relaxed);
        self.say(&format!(
            "epoch {:>3}/{}: loss {:.3} (objectness {:.3}, proposals {:.3}, classes {:.3}, boxes {:.3}), lr {}, {:.1} images/s, {}",
            r.epoch + 1,
            self.epochs,
            r.loss,
            r.loss_objectness,
            r.loss_proposals,
            r.loss_classes,
            r.loss_boxes,
            r.lr,
            r.images_per_second,
            table::duration(r.seconds)
        ));
    }

    fn warn(&self, warning: &Warning) {
        self.bar.suspend(|| eprintln!("warning: {warning}"));
    }

    fn cancel(&self) -> &Cancel {
        &self.cancel
    }
}
