//! `pcp assign`, `pcp neighbours` and `pcp duplicates`: where new images belong, what is alike, what is there twice.

use super::embed::pictures;
use super::input::{Common, Input};
use super::progress::bar;
use super::table;
use clap::Args as ClapArgs;
use pcp::data::folder::list;
use pcp::data::{FileRow, Pictures};
use pcp::model::{Embedded, FeatureKind, Model};
use pcp::run::RunFolder;
use pcp_core::cancel::Cancel;
use pcp_core::centres::Centres;
use pcp_core::duplicates::{Group, groups};
use pcp_core::error::{Error, Result, nearest as nearest_word};
use pcp_core::io::atomic::{make_parent, require_absent, write_bytes};
use pcp_core::io::csv;
use pcp_core::matrix::{Matrix, Metric};
use pcp_core::neighbours::nearest;
use pcp_core::purify::Grouping;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  pcp assign runs/photos NEW/                                which cluster do new images belong to?
  pcp assign runs/photos NEW.jpg --json
  pcp assign runs/photos NEW/ --out assigned.csv

Clusters are those at the run's end, by the images that purification kept. distance: to the cluster's centre; confidence: the
softmax of the cosines with all centres over the run's temperature; fit: the share of the cluster's members that are as far from
its centre or farther, 0 for an image that is farther than all of them and probably belongs to none.")]
pub struct Assign {
    /// A run folder
    run: PathBuf,
    /// A folder of images, one image, cifar10, cifar100 or bundled
    images: String,
    /// Where the CIFAR files are
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  pcp neighbours runs/photos NEW.jpg                         the ten images of the run that are most like it
  pcp neighbours runs/photos cats/007.jpg -k 30 --json       an image of the run, by its name in files.csv")]
pub struct Neighbours {
    /// A run folder
    run: PathBuf,
    /// An image file, or the name of one of the run's images
    image: PathBuf,
    /// How many
    #[arg(short, default_value_t = 10, allow_negative_numbers = true)]
    k: usize,
    #[command(flatten)]
    output: Output,
}

#[derive(ClapArgs)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp duplicates runs/photos
  pcp duplicates emb.npy --threshold 0.99 --out twins.csv

Two images whose embeddings have at least this cosine are near duplicates, and so are those that a chain of such pairs joins. All
pairs are looked at. What counts as the same depends on the network: begin high and look at what is found."
)]
pub struct Duplicates {
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
    output: Output,
}

#[derive(ClapArgs)]
struct Output {
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

impl Output {
    fn begin(&self) -> Result<()> {
        super::use_threads(self.threads)?;
        self.out.as_deref().map_or(Ok(()), require_absent)
    }

    /// Prints `rows` as JSON, writes them as CSV, or shows the first of them.
    fn end<T: Serialize>(&self, heading: &str, rows: &[T], line: &dyn Fn(&T) -> String, nothing: &str) -> Result<()> {
        let text = || rows.iter().fold(format!("{heading}\n"), |text, row| text + &line(row) + "\n");
        if let Some(out) = &self.out {
            make_parent(out)?;
            write_bytes(out, text().as_bytes())?;
        }
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
        let shown = rows.iter().take(SHOWN).fold(format!("{heading}\n"), |text, row| text + &line(row) + "\n");
        let more = match rows.len() > SHOWN {
            true => format!("and {} more: give --out FILE for all of them", rows.len() - SHOWN),
            false => String::new(),
        };
        super::print((shown + &more).trim_end())
    }
}

/// The embeddings of a finished run, unit rows, with their names and clusters.
fn finished(path: &Path) -> Result<(RunFolder, Matrix, Vec<FileRow>, Grouping)> {
    let run = RunFolder::open(path)?;
    if !run.file("embeddings.npy").exists() {
        let message = format!("{} has no embeddings yet", path.display());
        return Err(Error::usage(message, format!("finish the run: pcp train --resume {}", path.display())));
    }
    let (features, files, grouping) = (run.read_embeddings()?, run.read_files()?, run.read_final_clusters()?);
    if files.len() != features.rows || grouping.cluster.len() != features.rows {
        let message = format!("files.csv, clusters.csv and embeddings.npy of {} differ in length", path.display());
        return Err(Error::file(message, "restore the files, or run it again"));
    }
    Ok((run, Metric::Cosine.prepared(features), files, grouping))
}

#[derive(Serialize)]
struct Assigned {
    file: String,
    cluster: u32,
    distance: f32,
    confidence: f32,
    fit: f32,
}

pub fn assign(args: &Assign, stop: &Cancel) -> Result<()> {
    args.output.begin()?;
    let (run, features, _, grouping) = finished(&args.run)?;
    let centres = Centres::new(&features, &grouping);
    if centres.is_empty() {
        let message = format!("no cluster of {} has purified members", args.run.display());
        return Err(Error::data(message, "train with fewer --clusters, or cluster its embeddings with pcp cluster"));
    }
    let (config, _) = run.read_config()?;
    let pictures = pictures(&args.images, args.data_dir.as_deref(), args.output.json, stop)?;
    let (rows, found) = look(&run, &pictures, args.output.json, stop)?;
    for bad in &found.bad {
        eprintln!("warning: {} is left out: {}", bad.name, bad.reason);
    }
    let tau = config.objective.tau;
    let places = stop.run(move || centres.places(&rows, tau))?;
    let assigned = |(row, place): (&FileRow, &pcp_core::centres::Place)| Assigned {
        file: row.file.clone(),
        cluster: place.cluster,
        distance: place.distance,
        confidence: place.confidence,
        fit: place.fit,
    };
    let rows: Vec<Assigned> = found.rows.iter().zip(&places).map(assigned).collect();
    let line = |a: &Assigned| {
        format!("{},{},{:.4},{:.4},{:.3}", csv::field(&a.file), a.cluster, a.distance, a.confidence, a.fit)
    };
    args.output.end("file,cluster,distance,confidence,fit", &rows, &line, "there are no images")
}

/// Unit embeddings by the network of `run`.
fn look(run: &RunFolder, pictures: &Pictures, quiet: bool, stop: &Cancel) -> Result<(Matrix, Embedded)> {
    let model = Model::open(run.path())?;
    let shown = bar("embedding", quiet);
    shown.set_length(pictures.len() as u64);
    let found = model.features_of(pictures, FeatureKind::Embedding, stop, &|n| shown.inc(n as u64));
    shown.finish_and_clear();
    found
}

#[derive(Serialize)]
struct Near {
    file: String,
    cosine: f32,
    cluster: u32,
    status: &'static str,
    label: Option<String>,
}

pub fn neighbours(args: &Neighbours, stop: &Cancel) -> Result<()> {
    args.output.begin()?;
    if args.k == 0 {
        return Err(Error::usage("-k is 0", "ask for at least one neighbour"));
    }
    let (run, features, files, grouping) = finished(&args.run)?;
    let name = args.image.to_string_lossy();
    let own = files.iter().position(|f| f.file == name);
    let query = match own {
        Some(row) => Matrix::new(features.dim, features.row(row).to_vec()),
        None if args.image.is_file() => {
            let pictures = Pictures::Files(Arc::new(list(&args.image)?));
            look(&run, &pictures, args.output.json, stop)?.0
        }
        None => {
            let like = nearest_word(&name, files.iter().map(|f| f.file.as_str()));
            let hint = like.map_or_else(|| "check the path".to_string(), |like| format!("did you mean {like}?"));
            return Err(Error::usage(format!("{name} is no image file and no image of the run"), hint));
        }
    };
    // One more, since an image of the run finds itself.
    let found = nearest(&query, &features, args.k.saturating_add(usize::from(own.is_some())), false, &|_| ());
    let near = |(i, cosine): (&u32, &f32)| {
        let row = *i as usize;
        Near {
            file: files[row].file.clone(),
            cosine: *cosine,
            cluster: grouping.cluster[row],
            status: grouping.status[row].name(),
            label: files[row].label.clone(),
        }
    };
    let pairs = found.index.iter().zip(&found.similarity).filter(|(i, _)| Some(**i as usize) != own);
    let rows: Vec<Near> = pairs.take(args.k).map(near).collect();
    let line = |n: &Near| {
        let label = n.label.as_deref().map(csv::field).unwrap_or_default();
        format!("{},{:.4},{},{},{label}", csv::field(&n.file), n.cosine, n.cluster, n.status)
    };
    args.output.end("file,cosine,cluster,status,label", &rows, &line, "the run has no other images")
}

#[derive(Serialize)]
struct Twin {
    group: usize,
    row: usize,
    file: String,
    /// Cosine with the group's first image.
    cosine: f32,
}

pub fn duplicates(args: &Duplicates, stop: &Cancel) -> Result<()> {
    args.output.begin()?;
    if !(args.threshold > 0.0 && args.threshold <= 1.0) {
        return Err(Error::usage(
            format!("--threshold is {}", args.threshold),
            "give a cosine above 0, up to 1, such as 0.98",
        ));
    }
    let common = Common {
        files: args.files.clone(),
        metric: super::input::Near::Cosine,
        skip_bad_rows: args.skip_bad_rows,
        seed: 0,
        threads: args.output.threads,
        json: args.output.json,
    };
    let input = Input::read(&args.input, common.files.as_deref())?;
    let bad = input.bad(&common)?;
    let input = input.ready(bad, Metric::Cosine);
    let shown = bar("comparing", common.json);
    shown.set_length(input.features.rows as u64);
    let (features, seen, asked, threshold) = (input.features.clone(), shown.clone(), stop.clone(), args.threshold);
    let found: Vec<Group> = stop.run(move || {
        // Rounding puts copies a hair below 1.
        groups(&features, threshold - f32::EPSILON * 4.0, &mut |done| {
            seen.set_position(done as u64);
            asked.check()
        })
    })??;
    shown.finish_and_clear();
    let twin = |(group, row, cosine): (usize, usize, f32)| Twin {
        group,
        row: input.rows[row],
        file: input.name(row).to_string(),
        cosine,
    };
    let members = found.iter().enumerate().flat_map(|(g, group)| group.members.iter().map(move |m| (g, m.0, m.1)));
    let rows: Vec<Twin> = members.map(twin).collect();
    let line = |t: &Twin| format!("{},{},{},{:.4}", t.group, t.row, csv::field(&t.file), t.cosine);
    let nothing = format!("no two images have a cosine of {threshold} or more");
    args.output.end("group,row,file,cosine", &rows, &line, &nothing)
}
