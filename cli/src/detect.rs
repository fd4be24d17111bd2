//! `pcp detect`: one file per verb.

mod eval;
mod predict;
pub(super) mod train;

use clap::Subcommand;
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;

#[derive(Subcommand)]
pub enum Verb {
    /// Train a detector on the network of a run, or go on with one
    Train(Box<train::Args>),
    /// Average precision of a detector
    Eval(eval::Args),
    /// Find objects in photographs
    Predict(predict::Args),
}

pub fn run(verb: Verb, stop: &Cancel) -> Result<()> {
    match verb {
        Verb::Train(args) => train::run(&args, stop),
        Verb::Eval(args) => eval::run(&args, stop),
        Verb::Predict(args) => predict::run(&args, stop),
    }
}
