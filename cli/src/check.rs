//! `pcp check`.

use super::progress;
use clap::Args;
use pcp::jobs::check;
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp check runs/photos            says whether all files are whole; exit code 1 when one is not
  sha256sum -c checksums.txt       the same for the files that are listed there, in the run folder")]
pub struct CheckRunArgs {
    /// A run folder of pcp train or pcp detect train
    run: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &CheckRunArgs, stop: &Cancel) -> Result<()> {
    let found = check(&args.run, &progress::job(args.json, stop))?;
    if args.json {
        super::print_json(&found)?;
    } else {
        let damaged = found.damaged.iter().map(|d| format!("  damaged: {}: {}\n", d.file, d.reason));
        let state = if found.finished { "finished" } else { "not finished" };
        let unlisted = if found.listed { "" } else { "; an earlier version wrote it, without checksums.txt" };
        let head = format!("{}: {state}, {} files are whole{unlisted}\n", found.run.display(), found.whole);
        super::print((head + &damaged.collect::<String>()).trim_end())?;
    }
    found.judge()
}
