//! `pcp eval tsne`.

use super::{Common, weights_row};
use crate::{progress, table};
use clap::{Args, ValueEnum};
use pcp::data::loader::Part;
use pcp::jobs::{EvalTsneOptions, TRUSTWORTHINESS_NEIGHBOURS, TsneReport, eval_tsne};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp eval tsne runs/photos
  pcp eval tsne runs/c10 --limit 5000 --perplexity 50 --out pictures
  pcp eval tsne runs/photos --part train --json

It writes tsne.csv, tsne.svg and tsne.png. The same features give the same picture, on any number of threads."
)]
pub struct EvalTsneArgs {
    /// A run folder
    run: PathBuf,
    /// Folder for the files [default: RUN/eval]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How many neighbours count, roughly; at most a third of the other images
    #[arg(long, default_value_t = 30.0)]
    perplexity: f64,
    /// Which images [default: test, or train where there are none to test on]
    #[arg(long)]
    part: Option<PartArg>,
    /// Look at this many images, drawn at random [default: all]
    #[arg(long)]
    limit: Option<usize>,
    /// Which images --limit draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, ValueEnum)]
enum PartArg {
    /// Those to test on
    Test,
    /// Those to learn from
    Train,
}

pub fn run(args: &EvalTsneArgs, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.common.threads)?;
    let options = EvalTsneOptions {
        out: args.out.clone(),
        perplexity: args.perplexity,
        part: args.part.map(|part| match part {
            PartArg::Test => Part::Test,
            PartArg::Train => Part::Train,
        }),
        limit: args.limit,
        seed: args.seed,
        best: args.common.best,
        ..EvalTsneOptions::new(&args.run)
    };
    let report = eval_tsne(&options, &progress::job(args.common.json, stop))?;
    if args.common.json { crate::print_json(&report) } else { crate::print(show(&report).trim_end()) }
}

fn show(report: &TsneReport) -> String {
    let TsneReport { origin, images, perplexity, trustworthiness, files } = report;
    let mut rows = vec![
        ("t-SNE".to_string(), format!("{images} {}, perplexity {perplexity:.1}", origin.images_of)),
        weights_row(&origin.weights),
    ];
    if let Some(trust) = trustworthiness {
        rows.push(("trustworthiness".into(), format!("{trust:.3}  ({TRUSTWORTHINESS_NEIGHBOURS} neighbours)")));
    }
    rows.extend(files.iter().map(|file| ("written".to_string(), file.clone())));
    table::columns(&rows)
}
