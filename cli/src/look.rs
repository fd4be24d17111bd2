//! `pcp look`.

use super::search::written_findings;
use super::{progress, table};
use clap::Args;
use pcp::jobs::{LookKind, LookOptions, LookResult, findings, look};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp look PHOTOS/                            a page of what is conspicuous, without training
  pcp look PHOTOS/ --out looked
  xargs -d '\\n' ls -l < looked/blurred.txt    a list of paths for every kind of finding
  pcp look bundled --json

Broken files; pictures that are there twice or nearly, in two splits (train, test, validation), with two labels; blank, blurred, dark or bright ones;
those of an odd shape, tiny ones, grey ones among coloured ones. The page says of every finding whether it is a fact or how often it was
right when it was measured. The new folder holds page.html, findings.csv, a list of paths NAME.txt for every kind, links/NAME/, images.csv with all
that was measured, and summary.json. No picture is moved, changed or deleted. docs/photos.md has the limits and how they were measured.")]
pub struct LookArgs {
    /// A folder of images, cifar10, cifar100 or bundled
    images: String,
    /// Where the CIFAR files are
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The folder to make, new or empty, or a new CSV file for the table alone [default: findings/<images>-look-<n>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print it as JSON; without --out nothing is written
    #[arg(long)]
    json: bool,
}

pub fn run(args: &LookArgs, stop: &Cancel) -> Result<()> {
    super::use_threads(args.threads)?;
    let out = args.out.clone().or_else(|| (!args.json).then(|| findings::fresh_path(&args.images, "look")));
    let options = LookOptions { data_dir: args.data_dir.clone(), out, ..LookOptions::new(&args.images) };
    let found = look(&options, &progress::job(args.json, stop))?;
    if args.json { super::print_json(&found) } else { super::print(show(&found).trim_end()) }
}

/// Names of pictures that are shown of every finding.
const SHOWN: usize = 3;

/// What was found, for people.
fn show(found: &LookResult) -> String {
    let mut rows = vec![("pictures".to_string(), found.images.to_string())];
    for count in &found.counts {
        let some: Vec<&str> = found.of(count.finding).take(SHOWN).map(|row| row.file.as_str()).collect();
        let more = if count.pictures > SHOWN { ", ..." } else { "" };
        let text = match (count.pictures, count.listed) {
            (0, _) => "0".to_string(),
            (n, false) => format!("{n}  (usual here: not listed)"),
            (n, true) => format!("{n}  {}{more}", some.join(", ")),
        };
        rows.push((count.finding.title().to_lowercase(), text));
    }
    if let Some(count) = found.counts.iter().find(|count| count.finding == LookKind::Unlike) {
        rows.push(("  how sure that is".into(), count.about.clone()));
    }
    rows.extend(written_findings(found.out.as_deref()));
    table::columns(&rows)
}
