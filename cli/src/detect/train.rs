//! `pcp detect train`.

use crate::precision::PrecisionArgs;
use crate::train::{caller, command};
use crate::{progress, table};
use clap::Parser;
use pcp::jobs::{DetectTrainOptions, detect_resume, detect_train};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use std::path::PathBuf;

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
        "test_proposals", "width", "precision", "seed", "save_minutes",
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
    #[command(flatten)]
    precision: PrecisionArgs,
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
    let observer = progress::training(args.quiet, stop);
    let (folder, result) = match &args.resume {
        Some(run) => (run.clone(), detect_resume(run, &observer)?),
        None => {
            let options = args.options(command(crate::words()))?;
            let result = detect_train(&options, &observer)?;
            (options.out, result)
        }
    };
    if args.json {
        return crate::print_json(&result);
    }
    let rows = [
        ("loss of the last epoch".to_string(), format!("{:.3}", result.loss)),
        ("images, time".into(), format!("{}, {}", result.images, table::duration(result.seconds))),
        ("settings".into(), result.protocol),
    ];
    let next = format!("measure it with: pcp detect eval {}", folder.display());
    crate::print(&format!("{}  everything is in {}; {next}", table::columns(&rows), folder.display()))
}

impl Args {
    /// The options of a new detector that `command` asks for.
    pub(crate) fn options(&self, command: String) -> Result<DetectTrainOptions> {
        let (Some(backbone), Some(voc), Some(out)) = (&self.backbone, &self.voc, &self.out) else {
            return Err(Error::usage("a backbone, --voc or --out is missing", "see pcp detect train --help"));
        };
        Ok(DetectTrainOptions {
            set: self.set.clone(),
            classes: self.classes.clone(),
            limit: self.limit,
            short_side: self.short_side,
            epochs: self.epochs,
            batch: self.batch,
            lr: self.lr,
            rois: self.rois,
            proposals: self.proposals,
            test_proposals: self.test_proposals,
            width: self.width,
            precision: self.precision.choice(),
            seed: self.seed,
            save_minutes: self.save_minutes,
            overwrite: self.overwrite,
            caller: caller(command),
            ..DetectTrainOptions::new(backbone, voc, out)
        })
    }
}
