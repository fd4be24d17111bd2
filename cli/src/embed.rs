//! `pcp embed`.

use super::progress::bar;
use super::table;
use clap::{Args as ClapArgs, ValueEnum};
use pcp::data::folder::list;
use pcp::data::{self, Load, Pictures, Source};
use pcp::embed::{Format, bad_files_csv, files_csv, write};
use pcp::model::{Model, WhichWeights};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_parent, read_bytes, require_absent, write_bytes};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  pcp embed runs/photos PHOTOS/ --out emb.npy                       unit vectors, a row per image; files.csv beside it
  pcp embed runs/photos NEW.jpg --out one.csv                       one image, as CSV
  pcp embed model.safetensors PHOTOS/ --features pooled --out pooled.npy
  pcp embed runs/c10 cifar10 --data-dir DATA --features layer4 --out layer4.npy

Every image below the folder is taken, of all splits, in the byte order of its path. Images are read batch by batch: there may be
any number of them. Those that cannot be read are left out and listed in bad_files.csv. Nothing is written over.")]
pub struct Args {
    /// A run folder, or the model.safetensors of one
    model: PathBuf,
    /// A folder of images, one image, cifar10, cifar100 or bundled
    images: String,
    /// The file to make
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Which features: embedding, pooled, or a layer: layer1 to layer4, conv1 to conv5 (average-pooled to at most 10,000 numbers)
    #[arg(long, default_value = "embedding", value_name = "embedding|pooled|layerN")]
    features: String,
    /// How they are written [default: csv for names that end in .csv, else npy]
    #[arg(long, value_enum)]
    format: Option<Kind>,
    /// Use the weights of the best probe instead of the last
    #[arg(long)]
    best: bool,
    /// Where the CIFAR files are
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// NumPy's, float32
    Npy,
    /// A line per image: its name, then its numbers
    Csv,
}

#[derive(Serialize)]
struct Report {
    rows: usize,
    dim: usize,
    features: String,
    model: String,
    unreadable: usize,
    out: PathBuf,
    files: PathBuf,
    bad_files: Option<PathBuf>,
}

pub fn run(args: &Args, stop: &Cancel) -> Result<()> {
    super::use_threads(args.threads)?;
    require_absent(&args.out)?;
    let ends_in_csv = args.out.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"));
    let format = match (args.format, ends_in_csv) {
        (Some(Kind::Csv), _) | (None, true) => Format::Csv,
        _ => Format::Npy,
    };
    let model = Model::open_weights(&args.model, WhichWeights::best(args.best))?;
    let kind = model.feature_kind(&args.features)?;
    let pictures = pictures(&args.images, args.data_dir.as_deref(), args.json, stop)?;
    make_parent(&args.out)?;
    let shown = bar("embedding", args.json);
    shown.set_length(pictures.len() as u64);
    let done = |n| shown.inc(n as u64);
    let (found, dim) = write(&model, &pictures, kind, (&args.out, format), stop, &done)?;
    shown.finish_and_clear();
    let files = beside(&args.out, "files.csv", &files_csv(&found.rows))?;
    let bad_files = match found.bad.is_empty() {
        true => None,
        false => Some(beside(&args.out, "bad_files.csv", &bad_files_csv(&found.bad))?),
    };
    let report = Report {
        rows: found.rows.len(),
        dim,
        features: args.features.clone(),
        model: model.file.as_deref().unwrap_or(&args.model).display().to_string(),
        unreadable: found.bad.len(),
        out: args.out.clone(),
        files,
        bad_files,
    };
    if args.json {
        return super::print_json(&report);
    }
    let mut rows = vec![
        ("embedded".to_string(), format!("{} images, {} numbers each ({})", report.rows, dim, report.features)),
        ("weights".into(), report.model.clone()),
        ("written".into(), report.out.display().to_string()),
        ("names of the rows".into(), report.files.display().to_string()),
    ];
    if let Some(bad) = &report.bad_files {
        rows.push(("cannot be read".into(), format!("{}  ({})", report.unreadable, bad.display())));
    }
    super::print(table::columns(&rows).trim_end())
}

/// The images that `text` names.
pub fn pictures(text: &str, data_dir: Option<&Path>, quiet: bool, stop: &Cancel) -> Result<Pictures> {
    let source = Source::parse(text)?;
    source.check_dir(data_dir.is_some())?;
    if let Source::Folder(path) = &source {
        let shown = bar("listing", quiet);
        let path = path.clone();
        let files = stop.run(move || list(&path))??;
        shown.finish_and_clear();
        return Ok(Pictures::Files(Arc::new(files)));
    }
    let load = Load { data_dir: data_dir.map(Path::to_path_buf), ..Load::new(source) };
    let shown = bar("reading", quiet);
    let told = shown.clone();
    let dataset = stop.run(move || {
        data::load(&load, &|done, total| {
            told.set_length(total as u64);
            told.set_position(done as u64);
        })
    })??;
    shown.finish_and_clear();
    Ok(Pictures::Loaded(Arc::new(dataset)))
}

/// Writes `text` beside `out`, as `name`, or, where another file has that name already, with `out`'s name before it. Nothing is
/// written over.
fn beside(out: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let own = out.with_extension(name);
    for place in [out.with_file_name(name), own.clone()] {
        if place.symlink_metadata().is_err() {
            write_bytes(&place, text.as_bytes())?;
            return Ok(place);
        }
        // What is there already need not be written again.
        if place.is_file() && read_bytes(&place)? == text.as_bytes() {
            return Ok(place);
        }
    }
    Err(Error::usage(
        format!("{} is there already, and says something else", own.display()),
        format!("{} is written; remove that file to have its rows named", out.display()),
    ))
}
