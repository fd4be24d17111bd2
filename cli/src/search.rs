//! `pcp assign`, `pcp neighbours` and `pcp duplicates`: where new images belong, what is alike, what is there twice.

use super::{progress, table};
use clap::Args;
use pcp::jobs::findings;
use pcp::jobs::table::{CsvRow, csv_text};
use pcp::jobs::{self, AssignOptions, CopiesOptions, CopiesResult, CopyKind, DuplicatesOptions, NeighboursOptions};
use pcp::observe::Observer;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp assign runs/photos NEW/                                which cluster do new images belong to?
  pcp assign runs/photos NEW.jpg --json
  pcp assign runs/photos NEW/ --out assigned.csv --page assigned.html

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
    /// Write this new page with pictures: the images by cluster, beside members of the run
    #[arg(long, value_name = "FILE.html")]
    page: Option<PathBuf>,
    #[command(flatten)]
    output: TableArgs,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp neighbours PHOTOS/ NEW.jpg                             no training: the ten photographs that are most like it
  pcp neighbours PHOTOS/ NEW.jpg --page alike.html           ... with pictures
  pcp neighbours PHOTOS/ cats/007.jpg --model patches.safetensors
  pcp neighbours runs/photos NEW.jpg                         the ten images of the run that are most like it
  pcp neighbours runs/photos cats/007.jpg -k 30 --json       an image of the run, by its name in files.csv")]
pub struct NeighboursArgs {
    /// A run folder, or a folder of images
    run: PathBuf,
    /// An image file, or the name of one of the images
    image: PathBuf,
    /// The model that gives the features of a folder of images: a run folder or a model file [default: clusters of patches, learned from
    /// the images in seconds]
    #[arg(long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// How many
    #[arg(short, default_value_t = 10, allow_negative_numbers = true)]
    k: usize,
    /// Write this new page with pictures: the image and those that are most like it
    #[arg(long, value_name = "FILE.html")]
    page: Option<PathBuf>,
    #[command(flatten)]
    output: TableArgs,
}

#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp duplicates PHOTOS/                                     copies of pictures, without training, as a page
  pcp duplicates PHOTOS/ --out twins
  xargs -d '\\n' ls -l < twins/copies.txt                     all but the best of every group
  pcp duplicates runs/photos                                 a run's images; pairs that its network finds alike are compared, too
  pcp duplicates emb.npy --threshold 0.99 --out twins.csv    embeddings alone

Pictures: the same file, the same pixels, or the same picture resized, saved again, cropped a little or mirrored, by perceptual hashes and
by laying one upon the other. In every group any two are copies; the surest group comes first, and in it the best copy. The new folder holds
page.html, copies.csv, copies.txt (paths of all but the best), links/ (a folder per group) and summary.json. No picture is moved, changed or deleted.

Embeddings (a matrix, or a run with --threshold): rows of which every two have at least this cosine. What counts as the same depends
on the network, so that this is a guess: begin high and look at what is found."
)]
pub struct DuplicatesArgs {
    /// A folder of images, cifar10, cifar100 or bundled; a run folder; or a matrix (.npy, .csv, .safetensors; a row per image)
    input: PathBuf,
    /// Compare embeddings alone: the least cosine of a pair [default: 0.98 for a matrix]
    #[arg(long)]
    threshold: Option<f32>,
    /// Where the CIFAR files are
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
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
        page: args.page.clone(),
        ..AssignOptions::new(&args.run, &args.images)
    };
    let found = jobs::assign(&options, &progress::job(args.output.json, stop))?;
    args.output.show(&found.images, "there are no images")
}

pub fn neighbours(args: &NeighboursArgs, stop: &Cancel) -> Result<()> {
    super::use_threads(args.output.threads)?;
    let options = NeighboursOptions {
        count: args.k,
        model: args.model.clone(),
        out: args.output.out.clone(),
        page: args.page.clone(),
        ..NeighboursOptions::new(&args.run, &args.image)
    };
    let found = jobs::neighbours(&options, &progress::job(args.output.json, stop))?;
    args.output.show(&found.images, "the run has no other images")
}

/// The least cosine of near duplicates in a matrix.
const THRESHOLD: f32 = 0.98;

pub fn duplicates(args: &DuplicatesArgs, stop: &Cancel) -> Result<()> {
    super::use_threads(args.output.threads)?;
    let observer = progress::job(args.output.json, stop);
    let is_matrix = args.input.is_file() || args.input.extension().is_some_and(|e| MATRICES.iter().any(|m| e == *m));
    if !is_matrix && args.threshold.is_none() {
        return copies(args, &observer);
    }
    let threshold = args.threshold.unwrap_or(THRESHOLD);
    let options = DuplicatesOptions {
        threshold,
        files: args.files.clone(),
        skip_bad_rows: args.skip_bad_rows,
        out: args.output.out.clone(),
        ..DuplicatesOptions::new(args.input.as_path())
    };
    let found = jobs::duplicates(&options, &observer)?;
    args.output.show(&found.rows, &format!("no two images have a cosine of {threshold} or more"))
}

/// Extensions of matrices.
const MATRICES: [&str; 3] = ["npy", "csv", "safetensors"];

/// Copies of pictures. Without --out and --json they go into a new folder below findings/.
fn copies(args: &DuplicatesArgs, observer: &Arc<dyn Observer>) -> Result<()> {
    if args.files.is_some() || args.skip_bad_rows {
        return Err(Error::usage("`files` and `skip_bad_rows` are for matrices", "leave them out, or give a matrix"));
    }
    let images = args.input.display().to_string();
    let fresh = || (!args.output.json).then(|| findings::fresh_path(&images, "duplicates"));
    let out = args.output.out.clone().or_else(fresh);
    let options = CopiesOptions { data_dir: args.data_dir.clone(), out, ..CopiesOptions::new(&images) };
    let found = jobs::copies(&options, observer)?;
    if args.output.json { super::print_json(&found) } else { super::print(show_copies(&found).trim_end()) }
}

/// Groups that are shown at the most.
const GROUPS: usize = 8;

/// What was found, for people: counts, and the first groups.
fn show_copies(found: &CopiesResult) -> String {
    let mut rows = vec![
        ("pictures".to_string(), found.images.to_string()),
        ("groups of copies".into(), found.groups.to_string()),
        ("copies beside the best".into(), format!("{}  ({})", found.copies, table::bytes(found.bytes as f64))),
        ("  the same file or pixels".into(), found.exact.to_string()),
    ];
    if !found.broken.is_empty() {
        rows.push(("cannot be read".into(), found.broken.len().to_string()));
    }
    for group in found.rows.chunk_by(|a, b| a.group == b.group).take(GROUPS) {
        let files = group.iter().map(|row| match row.copy {
            CopyKind::Best => row.file.clone(),
            copy => format!("{} ({copy}, {:.2})", row.file, row.likeness),
        });
        rows.push((format!("  group {}", group[0].group), files.collect::<Vec<_>>().join(", ")));
    }
    if found.groups > GROUPS {
        rows.push(("  and".into(), format!("{} groups more", found.groups - GROUPS)));
    }
    rows.extend(written_findings(found.out.as_deref()));
    table::columns(&rows)
}

/// The last lines about findings: where they are, and their page.
pub fn written_findings(out: Option<&Path>) -> Vec<(String, String)> {
    let Some(out) = out else { return Vec::new() };
    let mut rows = vec![("written".to_string(), out.display().to_string())];
    if out.is_dir() {
        rows.push(("page".into(), out.join("page.html").display().to_string()));
    }
    rows
}
