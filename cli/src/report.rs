//! `pcp report`.

use super::{progress, table};
use clap::Args;
use pcp::jobs::{ReportOptions, report};
use pcp::report::PageLimits;
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp report runs/photos                                 writes runs/photos/report.html
  pcp report runs/a runs/b --out compared.html           two runs side by side
  pcp report runs/photos --max-images 0                  no thumbnails: a small file that shows no picture")]
pub struct ReportArgs {
    /// Run folders, finished or not
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The page [default: report.html in the run folder; of several runs, here]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Thumbnails at the most
    #[arg(long, value_name = "N", default_value_t = PageLimits::IMAGES, allow_negative_numbers = true)]
    max_images: usize,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: &ReportArgs, stop: &Cancel) -> Result<()> {
    super::use_threads(args.threads)?;
    let options =
        ReportOptions { out: args.out.clone(), max_images: args.max_images, ..ReportOptions::new(args.runs.clone()) };
    let made = report(&options, &progress::job(args.quiet, stop))?;
    if args.quiet {
        return Ok(());
    }
    let size = table::bytes(made.bytes as f64);
    let notes: String = made.notes.iter().map(|note| format!("\nnote: {note}")).collect();
    super::print(&format!("{} ({size}); open it in a browser{notes}", made.out.display()))
}
