//! `pcp eval knn`.

use super::{Common, Measured};
use crate::progress::{self, bar};
use crate::table;
use clap::{Args, ValueEnum};
use pcp::config::FeatureKind;
use pcp::data::loader::Loader;
use pcp::evaluate::Probe;
use pcp::model::{Model, WhichWeights};
use pcp::run::{RunFolder, Warning};
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
  pcp eval knn runs/photos
  pcp eval knn runs/c10 --k 20 --tau 0.07 --features pooled --json
  pcp eval knn runs/c10 --best"
)]
pub struct Knn {
    /// A run folder
    run: PathBuf,
    /// Neighbours [default: the run's]
    #[arg(long)]
    k: Option<usize>,
    /// Temperature of their weights [default: the run's]
    #[arg(long)]
    tau: Option<f64>,
    /// Which features [default: the run's]
    #[arg(long)]
    features: Option<Kind>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// The unit vectors that the loss sees
    Embedding,
    /// What the layer before them gives
    Pooled,
}

#[derive(Serialize)]
struct Report {
    knn: f64,
    k: usize,
    tau: f64,
    features: FeatureKind,
    protocol: String,
    #[serde(flatten)]
    measured: Measured,
}

pub fn run(args: &Knn, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.common.threads)?;
    let run = RunFolder::open(&args.run)?;
    let (mut config, _) = run.read_config()?;
    let e = &mut config.evaluate;
    e.k = args.k.unwrap_or(e.k);
    e.tau = args.tau.unwrap_or(e.tau);
    e.features = match args.features {
        Some(Kind::Embedding) => FeatureKind::Embedding,
        Some(Kind::Pooled) => FeatureKind::Pooled,
        None => e.features,
    };
    config.check()?;
    let model = Model::of_run(&run, WhichWeights::best(args.common.best))?;
    let dataset = Arc::new(progress::read_images_again(&config, args.common.json, stop)?);
    let loader = Loader::new(dataset.clone(), config.augmenter());
    let Some(probe) = Probe::new(dataset, loader, &config) else {
        let message = format!("{} has no labels to measure against", config.data.source);
        return Err(Error::data(message, "put the images into one folder per class"));
    };
    if probe.available() < config.evaluate.k {
        eprintln!("warning: {}", Warning::FewerThanK { images: probe.available(), k: config.evaluate.k });
    }
    let embedding = bar("embedding", args.common.json);
    embedding.set_length(probe.images() as u64);
    let knn = probe.network(&model.network, &model.weights, stop, &|n| embedding.inc(n as u64))?;
    embedding.finish_and_clear();
    let report = Report {
        knn,
        k: config.evaluate.k.min(probe.available()),
        tau: config.evaluate.tau,
        features: config.evaluate.features,
        protocol: probe.protocol(),
        measured: Measured::new(&model),
    };
    if args.common.json {
        crate::print_json(&report)
    } else {
        let rows = [
            ("kNN".to_string(), format!("{:.2} %", report.knn)),
            ("protocol".into(), report.protocol),
            report.measured.row(),
        ];
        crate::print(table::columns(&rows).trim_end())
    }
}
