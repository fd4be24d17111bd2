//! `pcp detect`: one file per verb.

pub(super) mod eval;
mod predict;
pub(super) mod train;

use super::progress::bar;
use clap::Subcommand;
use pcp::detect::voc::Devkit;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use std::path::Path;

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

/// Refuses a limit of no images.
fn check_limit(limit: Option<usize>) -> Result<()> {
    match limit {
        Some(0) => Err(Error::usage("--limit is 0", "give it 1 or more, or leave it out for all images")),
        _ => Ok(()),
    }
}

/// Reads an image set, with a bar.
fn read_voc(root: &Path, set: &str, classes: &[String], limit: usize, quiet: bool, stop: &Cancel) -> Result<Devkit> {
    let bar = bar("reading", quiet);
    let data = Devkit::read(root, set, classes, limit, stop, &|done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    data
}
