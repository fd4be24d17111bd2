//! `pcp eval linear`.

use super::Common;
use crate::progress::{self, bar};
use crate::table;
use clap::Args;
use pcp::data::loader::Loader;
use pcp::evaluate::ProbeSplit;
use pcp::evaluate::linear::{LinearProbe, LinearResult, LinearSettings};
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
  pcp eval linear runs/photos --fast                      the last map and the pooled features, a minute or two
  pcp eval linear runs/c10 --layer layer4                 the paper's protocol: 90 epochs with random views
  pcp eval linear runs/c10 --layer all --epochs 30 --json

Layers: layer1 to layer4 of a ResNet, conv1 to conv5 of an AlexNet, pooled, embedding, all."
)]
pub struct Linear {
    /// A run folder
    run: PathBuf,
    /// Which layers, separated by commas [default: the last map and pooled]
    #[arg(long, value_delimiter = ',', value_name = "LAYER")]
    layer: Vec<String>,
    /// Learn on clean features taken once instead of random views: quicker, and not the paper's protocol
    #[arg(long)]
    fast: bool,
    /// Epochs
    #[arg(long, default_value_t = 90)]
    epochs: u32,
    /// Features per step
    #[arg(long, default_value_t = 256)]
    batch: usize,
    /// Learning rate at the beginning
    #[arg(long, default_value_t = 0.1)]
    lr: f64,
    /// Everything random follows from it
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

/// What is kept of a linear probe.
#[derive(Serialize)]
pub(crate) struct Report {
    protocol: String,
    settings: LinearSettings,
    weights: String,
    layers: Vec<LinearResult>,
}

pub fn run(args: &Linear, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.common.threads)?;
    if args.epochs == 0 || args.batch == 0 || !(args.lr > 0.0 && args.lr.is_finite()) {
        return Err(Error::usage(
            "--epochs, --batch and --lr must be above 0",
            "leave them out for the paper's values",
        ));
    }
    let run = RunFolder::open(&args.run)?;
    let settings = LinearSettings {
        epochs: args.epochs,
        batch: args.batch,
        lr: args.lr,
        fast: args.fast,
        seed: args.seed,
        ..LinearSettings::default()
    };
    let report = measure(&run, &args.layer, settings, args.common.best, args.common.json, stop)?;
    if args.common.json {
        return crate::print_json(&report);
    }
    let row = |c: &LinearResult| {
        let best = format!("best {:.2} % (epoch {})", c.best, c.best_epoch);
        (c.layer.clone(), format!("{:.2} %, {best}, {} features", c.last, c.features))
    };
    let rows: Vec<_> = report.layers.iter().map(row).collect();
    crate::print(&format!("{}  ({})", table::columns(&rows), report.protocol))
}

/// Probes the layers of those names, and keeps the report in the run's folder.
pub(crate) fn measure(
    run: &RunFolder,
    names: &[String],
    settings: LinearSettings,
    best: bool,
    quiet: bool,
    stop: &Cancel,
) -> Result<Report> {
    let (config, _) = run.read_config()?;
    let model = Model::of_run(run, WhichWeights::best(best))?;
    let usual = || model.network.layers().into_iter().next_back().into_iter().chain(["pooled".to_string()]).collect();
    let names: Vec<String> = if names.is_empty() { usual() } else { names.to_vec() };
    let layers = model.network.feature_kinds_named(&names)?;
    let dataset = Arc::new(progress::read_images_again(&config, quiet, stop)?);
    let exam = ProbeSplit::new(&dataset)?;
    let loader = Loader::new(dataset, config.augmenter());
    let bar = bar("linear probe", quiet);
    let (passes, times) = match settings.fast {
        true => (1, layers.len()),
        false => (settings.epochs as usize, 1),
    };
    bar.set_length(((exam.truth.len() + exam.learn.len() * passes) * times) as u64);
    let probing = LinearProbe { network: &model.network, weights: &model.weights, loader: &loader, exam: &exam, stop };
    let told = |layer: &str, epoch: u32, accuracy: f64| {
        bar.set_message(format!("{layer}, epoch {}: {accuracy:.1} %", epoch + 1));
    };
    let curves = probing.run(&layers, &settings, &|n| bar.inc(n as u64), &told)?;
    bar.finish_and_clear();
    let views = if settings.fast { "fast: clean features taken once" } else { "random views in every epoch" };
    let protocol = format!("linear probe, {} epochs, {views}; {}", settings.epochs, exam.protocol());
    let report = Report { protocol, settings, weights: model.file_name(), layers: curves };
    super::keep(run, if settings.fast { "linear-fast.json" } else { "linear.json" }, &report)?;
    Ok(report)
}
