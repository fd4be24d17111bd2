//! `pcp assign`, `pcp neighbours` and `pcp duplicates`: where new images belong, what is alike, what is there twice.

use super::{progress, table};
use clap::Args;
use pcp::jobs::table::{CsvRow, csv_text};
use pcp::jobs::{self, AssignOptions, DuplicatesOptions, NeighboursOptions};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp assign runs/photos NEW/                                which cluster do new images belong to?
  pcp assign runs/photos NEW.jpg --json
  pcp assign runs/photos NEW/ --out assigned.csv

Clusters are those at the run's end, by the images that purification kept. distance: to the cluster's centre; confidence: the
softmax of the cosines with all centres over the run's temperature; fit: the share of the cluster's members that are as far from
its centre or farther, 0 for an image that is farther than all of them and probably belongs to none; name: what the cluster was called
on the page of pcp serve.")]
pub struct AssignArgs {
    /// A run folder
    run: PathBuf,
    /// A folder of images, one image, cifar10, cifar100 or bundled
    images: String,
    /// Where the CIFAR files are
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    output: TableArgs,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp neighbours runs/photos NEW.jpg                         the ten images of the run that are most like it
  pcp neighbours runs/photos cats/007.jpg -k 30 --json       an image of the run, by its name in files.csv")]
pub struct NeighboursArgs {
    /// A run folder
    run: PathBuf,
    /// An image file, or the name of one of the run's images
    image: PathBuf,
    /// How many
    #[arg(short, default_value_t = 10, allow_negative_numbers = true)]
    k: usize,
    #[command(flatten)]
    output: TableArgs,
}

#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp duplicates runs/photos
  pcp duplicates emb.npy --threshold 0.99 --out twins.csv

Two images whose embeddings have at least this cosine are near duplicates, and so are those that a chain of such pairs joins. All
pairs are looked at. What counts as the same depends on the network: begin high and look at what is found."
)]
pub struct DuplicatesArgs {
    /// A matrix (.npy, .csv, .safetensors; a row per image) or a run folder
    input: PathBuf,
    /// The least cosine of a pair
    #[arg(long, default_value_t = 0.98)]
    threshold: f32,
    /// Names of the rows: a CSV file with a column `file` [default: EMB.files.csv for EMB.npy, or files.csv beside it]
    #[arg(long, value_name = "FILE")]
    files: Option<PathBuf>,
    /// Leave out rows that cannot be used (not a number, infinite, zero)
    #[arg(long)]
    skip_bad_rows: bool,
    #[command(flatten)]
    output: TableArgs,
}

#[derive(Args)]
struct TableArgs {
    /// Write the table into this new CSV file instead of showing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Rows of a table that are shown at the most; files have them all.
const SHOWN: usize = 50;

impl TableArgs {
    /// Prints `rows` as JSON, says where they were written, or shows the first of them.
    fn show<T: CsvRow + Serialize>(&self, rows: &[T], nothing: &str) -> Result<()> {
        if self.json {
            return super::print_json(&rows);
        }
        if let Some(out) = &self.out {
            let rows = [("rows".to_string(), rows.len().to_string()), ("written".into(), out.display().to_string())];
            return super::print(table::columns(&rows).trim_end());
        }
        if rows.is_empty() {
            return super::print(nothing);
        }
        let more = match rows.len() > SHOWN {
            true => format!("and {} more: give --out FILE for all of them", rows.len() - SHOWN),
            false => String::new(),
        };
        super::print((csv_text(rows.iter().take(SHOWN)) + &more).trim_end())
    }
}

pub fn assign(args: &AssignArgs, stop: &Cancel) -> Result<()> {
    super::use_threads(args.output.threads)?;
    let options = AssignOptions {
        data_dir: args.data_dir.clone(),
        out: args.output.out.clone(),
        ..AssignOptions::new(&args.run, &args.images)
    };
    let found = jobs::assign(&options, &progress::job(args.output.json, stop))?;
    args.output.show(&found.images, "there are no images")
}

pub fn neighbours(args: &NeighboursArgs, stop: &Cancel) -> Result<()> {
    super::use_threads(args.output.threads)?;
    let options = NeighboursOptions {
        count: args.k,
        out: args.output.out.clone(),
        ..NeighboursOptions::new(&args.run, &args.image)
    };
    let found = jobs::neighbours(&options, &progress::job(args.output.json, stop))?;
    args.output.show(&found.images, "the run has no other images")
}

pub fn duplicates(args: &DuplicatesArgs, stop: &Cancel) -> Result<()> {
    super::use_threads(args.output.threads)?;
    let options = DuplicatesOptions {
        threshold: args.threshold,
        files: args.files.clone(),
        skip_bad_rows: args.skip_bad_rows,
        out: args.output.out.clone(),
        ..DuplicatesOptions::new(args.input.as_path())
    };
    let found = jobs::duplicates(&options, &progress::job(args.output.json, stop))?;
    args.output.show(&found.rows, &format!("no two images have a cosine of {} or more", args.threshold))
}
