//! `pcp eval linear`.

use super::Common;
use crate::{progress, table};
use clap::Args;
use pcp::jobs::{EvalLinearOptions, LinearResult, eval_linear};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

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
pub struct EvalLinearArgs {
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

pub fn run(args: &EvalLinearArgs, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.common.threads)?;
    let options = EvalLinearOptions {
        layers: args.layer.clone(),
        fast: args.fast,
        epochs: args.epochs,
        batch: args.batch,
        lr: args.lr,
        seed: args.seed,
        best: args.common.best,
        ..EvalLinearOptions::new(&args.run)
    };
    let report = eval_linear(&options, &progress::job(args.common.json, stop))?;
    if args.common.json {
        return crate::print_json(&report);
    }
    let row = |layer: &LinearResult| {
        let best = format!("best {:.2} % (epoch {})", layer.best, layer.best_epoch);
        (layer.layer.clone(), format!("{:.2} %, {best}, {} features", layer.last, layer.features))
    };
    let rows: Vec<_> = report.layers.iter().map(row).collect();
    crate::print(&format!("{}  ({})", table::columns(&rows), report.protocol))
}
