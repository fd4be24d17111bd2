//! `pcp eval finetune`.

use super::Common;
use crate::{progress, table};
use clap::Args;
use pcp::jobs::{EvalFinetuneOptions, eval_finetune};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp eval finetune runs/c10 --labels 10%
  pcp eval finetune runs/c10 --labels 10% --untrained     the same from the network as it began, to compare
  pcp eval finetune runs/photos --labels 1% --epochs 100 --json"
)]
pub struct EvalFinetuneArgs {
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
    /// Epochs between tests on the test images [default: one test, at the end]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    test_every: u32,
    #[command(flatten)]
    common: Common,
}

pub fn run(args: &EvalFinetuneArgs, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.common.threads)?;
    let options = EvalFinetuneOptions {
        labels: args.labels.clone(),
        untrained: args.untrained,
        epochs: args.epochs,
        batch: args.batch,
        lr: args.lr,
        seed: args.seed,
        test_every: args.test_every,
        best: args.common.best,
        ..EvalFinetuneOptions::new(&args.run)
    };
    let report = eval_finetune(&options, &progress::job(args.common.json, stop))?;
    if args.common.json {
        return crate::print_json(&report);
    }
    let result = &report.result;
    let mut rows = vec![("accuracy, last".to_string(), format!("{:.2} %", result.last))];
    if result.accuracy.len() > 1 {
        rows.push(("accuracy, best".into(), format!("{:.2} %  (epoch {})", result.best, result.best_epoch)));
    }
    rows.push(("weights".into(), report.weights.clone()));
    crate::print(&format!("{}  ({})", table::columns(&rows), report.protocol))
}
