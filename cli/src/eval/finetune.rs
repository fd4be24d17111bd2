//! `pcp eval finetune`.

use super::Common;
use crate::progress::{self, bar};
use crate::table;
use clap::Args;
use pcp::config::{AugmentSettings, Crop};
use pcp::data::loader::Loader;
use pcp::evaluate::ProbeSplit;
use pcp::evaluate::finetune::{FinetuneResult, FinetuneSettings, finetune};
use pcp::model::{Model, WhichWeights};
use pcp::run::RunFolder;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp eval finetune runs/c10 --labels 10%
  pcp eval finetune runs/c10 --labels 10% --untrained     the same from the network as it began, to compare
  pcp eval finetune runs/photos --labels 1% --epochs 100 --json"
)]
pub struct Finetune {
    /// A run folder
    run: PathBuf,
    /// Share of the labels that may be used, of every class alike
    #[arg(long, default_value = "10%", value_name = "PERCENT")]
    labels: String,
    /// Begin with the untrained network instead of the run's
    #[arg(long, conflicts_with = "best")]
    untrained: bool,
    /// Epochs
    #[arg(long, default_value_t = 50)]
    epochs: u32,
    /// Images per step
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Learning rate of the network; the classifier's is ten times as high
    #[arg(long, default_value_t = 0.01)]
    lr: f64,
    /// Everything random follows from it
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Report {
    protocol: String,
    settings: FinetuneSettings,
    weights: String,
    result: FinetuneResult,
}

/// The share that a word like `10%` means.
fn share(word: &str) -> Result<f64> {
    let percent = word.strip_suffix('%').unwrap_or(word).trim().parse::<f64>().ok();
    percent.filter(|p| *p > 0.0 && *p <= 100.0).map(|p| p / 100.0).ok_or_else(|| {
        Error::usage(format!("--labels is {word}"), "give a share above 0 % and up to 100 %, such as 1%, 10% or 100%")
    })
}

pub fn run(args: &Finetune, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.common.threads)?;
    let share = share(&args.labels)?;
    if args.epochs == 0 || args.batch == 0 || !(args.lr > 0.0 && args.lr.is_finite()) {
        return Err(Error::usage("--epochs, --batch and --lr must be above 0", "leave them out for the usual values"));
    }
    let run = RunFolder::open(&args.run)?;
    let (mut config, _) = run.read_config()?;
    let which = if args.untrained { WhichWeights::Untrained } else { WhichWeights::best(args.common.best) };
    let model = Model::of_run(&run, which)?;
    let dataset = Arc::new(progress::read_images_again(&config, args.common.json, stop)?);
    let exam = ProbeSplit::new(&dataset)?;
    // As in supervised training: shifts and flips, colours as they are.
    config.augment =
        AugmentSettings { crop: Crop::Padded, jitter_probability: 0.0, grey: 0.0, blur: 0.0, ..config.augment };
    let loader = Loader::new(dataset, config.augmenter());
    let settings =
        FinetuneSettings { share, epochs: args.epochs, batch: args.batch, lr: args.lr, decay: 1e-4, seed: args.seed };
    let bar = bar("fine-tuning", args.common.json);
    let labelled = (exam.learn.len() as f64 * share) as usize;
    bar.set_length((args.epochs as usize * (labelled + exam.truth.len())) as u64);
    let told = |epoch: u32, loss: f64, accuracy: f64| {
        bar.set_message(format!("epoch {}: loss {loss:.3}, {accuracy:.1} %", epoch + 1));
    };
    let result = finetune(
        &model.network,
        model.weights.clone(),
        &loader,
        &exam,
        &settings,
        stop,
        &|n| bar.inc(n as u64),
        &told,
    )?;
    bar.finish_and_clear();
    let protocol = format!(
        "fine-tuned end to end on {} labelled images ({}% of each class), {} epochs; {}",
        result.labelled,
        args.labels.trim_end_matches('%').trim(),
        args.epochs,
        exam.protocol()
    );
    let report = Report { protocol, settings, weights: model.file_name(), result };
    super::keep(&run, if args.untrained { "finetune-untrained.json" } else { "finetune.json" }, &report)?;
    if args.common.json {
        return crate::print_json(&report);
    }
    let r = &report.result;
    let rows = [
        ("accuracy, last".to_string(), format!("{:.2} %", r.last)),
        ("accuracy, best".into(), format!("{:.2} %  (epoch {})", r.best, r.best_epoch)),
        ("weights".into(), report.weights.clone()),
    ];
    crate::print(&format!("{}  ({})", table::columns(&rows), report.protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percent() {
        assert_eq!(share("10%").unwrap(), 0.1);
        assert_eq!(share("100").unwrap(), 1.0);
        for word in ["0%", "101%", "-1%", "half", "", "nan%"] {
            assert!(share(word).unwrap_err().message.contains(word), "{word}");
        }
    }
}
