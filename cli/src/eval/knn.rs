//! `pcp eval knn`.

use super::{Common, weights_row};
use crate::{progress, table};
use clap::{Args, ValueEnum};
use pcp::config::FeatureKind;
use pcp::jobs::{EvalKnnOptions, eval_knn};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp eval knn runs/photos
  pcp eval knn runs/c10 --k 20 --tau 0.07 --features pooled --json
  pcp eval knn runs/c10 --best"
)]
pub struct EvalKnnArgs {
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
    features: Option<FeaturesArg>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, ValueEnum)]
enum FeaturesArg {
    /// The unit vectors that the loss sees
    Embedding,
    /// What the layer before them gives
    Pooled,
    /// The same, partially whitened by a readout that is learned without labels
    Whitened,
}

pub fn run(args: &EvalKnnArgs, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.common.threads)?;
    let options = EvalKnnOptions {
        k: args.k,
        tau: args.tau,
        features: args.features.map(|features| match features {
            FeaturesArg::Embedding => FeatureKind::Embedding,
            FeaturesArg::Pooled => FeatureKind::Pooled,
            FeaturesArg::Whitened => FeatureKind::Whitened,
        }),
        best: args.common.best,
        ..EvalKnnOptions::new(&args.run)
    };
    let report = eval_knn(&options, &progress::job(args.common.json, stop))?;
    if args.common.json {
        return crate::print_json(&report);
    }
    let rows = [
        ("kNN".to_string(), format!("{:.2} %", report.knn)),
        ("protocol".into(), report.protocol),
        weights_row(&report.measured),
    ];
    crate::print(table::columns(&rows).trim_end())
}
