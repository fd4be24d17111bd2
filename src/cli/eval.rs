//! `pcp eval`: one file per measure.

mod finetune;
mod heatmap;
mod knn;
pub(super) mod linear;

use crate::error::{Error, Result};
use crate::files::{make_folder, write_bytes};
use crate::run::RunFolder;
use crate::work::Stop;
use clap::Subcommand;
use serde::Serialize;

#[derive(Subcommand)]
pub enum Verb {
    /// Weighted kNN accuracy of a run's features
    Knn(knn::Knn),
    /// Accuracy of a linear classifier on a run's frozen features
    Linear(linear::Linear),
    /// Accuracy after training the whole network on a share of the labels
    Finetune(finetune::Finetune),
    /// Where the network looks: heat over images, and its share inside boxes
    Heatmap(heatmap::Heatmap),
}

pub fn run(verb: Verb, stop: &Stop) -> Result<()> {
    match verb {
        Verb::Knn(args) => knn::run(&args, stop),
        Verb::Linear(args) => linear::run(&args, stop),
        Verb::Finetune(args) => finetune::run(&args, stop),
        Verb::Heatmap(args) => heatmap::run(&args, stop),
    }
}

/// Writes a measure's report into the run's `eval` folder.
fn keep(run: &RunFolder, name: &str, report: &impl Serialize) -> Result<()> {
    let folder = run.file("eval");
    make_folder(&folder)?;
    let text =
        serde_json::to_string_pretty(report).map_err(|e| Error::file(format!("{name}: {e}"), "please report this"))?;
    write_bytes(&folder.join(name), format!("{text}\n").as_bytes())
}
