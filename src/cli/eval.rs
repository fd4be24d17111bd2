//! `pcp eval`: one file per measure.

mod knn;

use crate::error::Result;
use crate::work::Stop;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Verb {
    /// Weighted kNN accuracy of a run's features
    Knn(knn::Knn),
}

pub fn run(verb: Verb, stop: &Stop) -> Result<()> {
    match verb {
        Verb::Knn(args) => knn::run(&args, stop),
    }
}
