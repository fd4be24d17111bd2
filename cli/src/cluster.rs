//! `pcp cluster`.

use super::input::{Common, Input, Making, number_or_auto, with_bar, written};
use super::progress::bar;
use super::table;
use clap::{Args as ClapArgs, ValueEnum};
use pcp::jobs::folders::{How, make};
use pcp::jobs::pictures::Gallery;
use pcp::report::{Collection, Limits, look_at, page};
use pcp_core::cancel::Cancel;
use pcp_core::cluster_count::{Tried, choose};
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder_atomic, require_empty, write_atomic, write_bytes};
use pcp_core::io::csv;
use pcp_core::io::npy::write_npy;
use pcp_core::kmeans::{Clusters, MultiStart};
use pcp_core::matrix::Metric;
use pcp_core::purify::Grouping;
use pcp_core::purify::Status;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(ClapArgs)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp cluster emb.npy --k 50 --out sorted                          a table, sizes, representatives
  pcp cluster runs/photos --out sorted                             k auto: the greatest silhouette, with its curve
  pcp cluster emb.npy --k 20 --images PHOTOS/ --folders link --out sorted   a folder per cluster, and a page

The new folder holds clusters.csv (row, file, cluster, distance), sizes.csv, representatives.csv, centroids.npy, summary.json, for
auto k.csv, with images sheet.html, with --folders the folders and folders.csv. Distances are Euclidean; for the cosine between
rows of unit length. Images are never moved or changed."
)]
pub struct Args {
    /// A matrix (.npy, .csv, .safetensors; a row per image) or a run folder
    input: PathBuf,
    /// The folder to make; it must be new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Clusters: a number, or `auto` for the one with the greatest mean silhouette
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    k: String,
    /// Make a folder per cluster
    #[arg(long, value_enum)]
    folders: Option<Folders>,
    #[command(flatten)]
    making: Making,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, ValueEnum)]
enum Folders {
    /// Copies of the images
    Copy,
    /// Symbolic links to the images
    Link,
}

/// Members of a cluster that represent it.
const REPRESENTATIVES: usize = 5;

#[derive(Serialize)]
struct Summary {
    rows: usize,
    unusable: usize,
    dim: usize,
    #[serde(flatten)]
    fit: MultiStart,
    chosen_by: &'static str,
    silhouette: Option<f64>,
    /// Sum of the squared distances to the centroids.
    objective: f64,
    empty: usize,
    smallest: usize,
    median: usize,
    largest: usize,
    out: PathBuf,
    sheet: bool,
    folders: bool,
}

pub fn run(args: &Args, stop: &Cancel) -> Result<()> {
    super::use_threads(args.common.threads)?;
    require_empty(&args.out)?;
    let asked = number_or_auto("--k", &args.k)?;
    args.making.check()?;
    if args.making.no_sheet && args.making.images.is_some() && args.folders.is_none() {
        let message = "--images is for the page and for --folders";
        return Err(Error::usage(message, "leave --images or --no-sheet out, or give --folders link or copy"));
    }
    let (metric, quiet) = (Metric::from(args.common.metric), args.common.json);
    let input = Input::read(&args.input, args.common.files.as_deref())?;
    let bad = input.bad(&args.common)?;
    let input = input.ready(bad, metric);
    let wanted = args.folders.is_some() || !args.making.no_sheet;
    let gallery = if wanted { input.gallery(args.making.images.as_deref(), quiet, stop)? } else { None };
    let paths = match (args.folders, &gallery, &input.names) {
        (None, ..) => None,
        (Some(how), Some(gallery), Some(names)) => Some((how, gallery.paths(names)?)),
        (Some(_), ..) => {
            return Err(Error::usage(
                "--folders needs the images, and they are not at hand",
                "say where they are: --images DIR (and --files FILE where the matrix has no names)",
            ));
        }
    };
    let mut fit = MultiStart {
        k: 0,
        metric,
        iterations: args.making.iterations,
        starts: args.making.starts,
        seed: args.common.seed,
    };
    let tried = match asked {
        Some(_) => None,
        None => {
            let shared = input.features.clone();
            Some(with_bar("choosing k", quiet, stop, move |step| choose(&shared, &fit, step))?)
        }
    };
    fit.k = asked.or(tried.as_ref().map(|t| t.0)).unwrap_or(1);
    let shared = input.features.clone();
    let found = with_bar("clustering", quiet, stop, move |step| fit.run(&shared, step))?;
    let mut summary = summarise(&input, &found, fit, tried.as_ref(), args);
    let copied = bar("folders", quiet);
    make_folder_atomic(&args.out, |out| {
        write_tables(out, &input, &found)?;
        if let Some((chosen, tried)) = &tried {
            write_curve(out, *chosen, tried)?;
        }
        input.write_unusable(out)?;
        if let Some((how, paths)) = &paths {
            let how = if matches!(how, Folders::Copy) { How::Copy } else { How::Link };
            copied.set_length(paths.len() as u64);
            let told = |n| copied.set_position(n as u64);
            let made = make(&out.join("folders"), &found.assignment, paths, how, stop, &told)?;
            write_atomic(&out.join("folders.csv"), |w| {
                writeln!(w, "row,file,path")?;
                made.iter().enumerate().try_for_each(|(i, path)| {
                    let path = Path::new("folders").join(path);
                    writeln!(w, "{},{}", input.row_and_file(i), csv::field(&path.to_string_lossy()))
                })
            })?;
        }
        if let (Some(gallery), Some(names), false) = (&gallery, &input.names, args.making.no_sheet) {
            write_sheet(out, &input, names, gallery, &found, tried.as_ref(), &summary)?;
            summary.sheet = true;
        }
        write_json(out, &summary)
    })?;
    copied.finish_and_clear();
    if args.common.json { super::print_json(&summary) } else { super::print(show(&summary).trim_end()) }
}

/// Writes a verb's summary.
pub fn write_json(out: &Path, summary: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(summary).map_err(|e| Error::file(e.to_string(), "please report this"))?;
    write_bytes(&out.join("summary.json"), format!("{text}\n").as_bytes())
}

/// Writes the numbers of clusters that were tried.
pub fn write_curve(out: &Path, chosen: usize, tried: &[Tried]) -> Result<()> {
    write_atomic(&out.join("k.csv"), |w| {
        writeln!(w, "k,silhouette,mean_squared_distance,chosen")?;
        tried.iter().try_for_each(|t| writeln!(w, "{},{},{},{}", t.k, t.silhouette, t.inertia, u8::from(t.k == chosen)))
    })
}

fn sizes(found: &Clusters) -> Vec<usize> {
    let mut sizes = vec![0; found.centroids.rows];
    found.assignment.iter().for_each(|c| sizes[*c as usize] += 1);
    sizes
}

fn summarise(
    input: &Input,
    found: &Clusters,
    fit: MultiStart,
    tried: Option<&(usize, Vec<Tried>)>,
    args: &Args,
) -> Summary {
    let mut sizes = sizes(found);
    sizes.sort_unstable();
    let filled = &sizes[sizes.partition_point(|s| *s == 0)..];
    Summary {
        rows: input.features.rows,
        unusable: input.unusable.len(),
        dim: input.features.dim,
        fit,
        chosen_by: if tried.is_some() { "the greatest mean silhouette" } else { "--k" },
        silhouette: tried.and_then(|(k, tried)| tried.iter().find(|t| t.k == *k)).map(|t| t.silhouette),
        objective: found.objective,
        empty: sizes.len() - filled.len(),
        smallest: filled.first().copied().unwrap_or(0),
        median: filled.get(filled.len() / 2).copied().unwrap_or(0),
        largest: filled.last().copied().unwrap_or(0),
        out: args.out.clone(),
        sheet: false,
        folders: args.folders.is_some(),
    }
}

fn write_tables(out: &Path, input: &Input, found: &Clusters) -> Result<()> {
    write_atomic(&out.join("clusters.csv"), |w| {
        writeln!(w, "row,file,cluster,distance")?;
        let rows = found.assignment.iter().zip(&found.distances).enumerate();
        rows.into_iter()
            .try_for_each(|(i, (cluster, distance))| writeln!(w, "{},{cluster},{distance}", input.row_and_file(i)))
    })?;
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); found.centroids.rows];
    found.assignment.iter().enumerate().for_each(|(i, c)| members[*c as usize].push(i));
    for of in &mut members {
        of.sort_by(|a, b| found.distances[*a].total_cmp(&found.distances[*b]).then(a.cmp(b)));
    }
    write_atomic(&out.join("sizes.csv"), |w| {
        writeln!(w, "cluster,size,mean_distance,farthest")?;
        members.iter().enumerate().try_for_each(|(cluster, of)| {
            let sum: f64 = of.iter().map(|i| f64::from(found.distances[*i])).sum();
            let farthest = of.last().map_or(0.0, |i| found.distances[*i]);
            writeln!(w, "{cluster},{},{},{farthest}", of.len(), (sum / of.len().max(1) as f64) as f32)
        })
    })?;
    write_atomic(&out.join("representatives.csv"), |w| {
        writeln!(w, "cluster,rank,row,file,distance")?;
        for (cluster, of) in members.iter().enumerate() {
            for (rank, i) in of.iter().take(REPRESENTATIVES).enumerate() {
                writeln!(w, "{cluster},{},{},{}", rank + 1, input.row_and_file(*i), found.distances[*i])?;
            }
        }
        Ok(())
    })?;
    let centroids = &found.centroids;
    write_npy(&out.join("centroids.npy"), &[centroids.rows, centroids.dim], &centroids.values)
}

fn write_sheet(
    out: &Path,
    input: &Input,
    names: &[String],
    gallery: &Gallery,
    found: &Clusters,
    tried: Option<&(usize, Vec<Tried>)>,
    summary: &Summary,
) -> Result<()> {
    let rows = found.assignment.len();
    let grouping = Grouping {
        cluster: found.assignment.clone(),
        status: vec![Status::Kept; rows],
        distance: found.distances.clone(),
        vote: vec![f32::NAN; rows],
    };
    let tile = |name: &str, value: usize, note: &str| [name.to_string(), value.to_string(), note.to_string()];
    let collection = Collection {
        name: title(&input.path),
        sentence: format!("{rows} images in {} clusters.", summary.fit.k - summary.empty),
        tiles: vec![
            tile("Images", rows, &format!("of {} numbers each", summary.dim)),
            tile("Clusters", summary.fit.k - summary.empty, summary.chosen_by),
            tile("Largest", summary.largest, "images"),
            tile("Median", summary.median, "images"),
            tile("Smallest", summary.smallest, "images"),
        ],
        notes: missing(gallery, rows),
        names,
        labels: None,
        grouping: &grouping,
        plain: true,
        suspicious: &[],
        label_errors: (Vec::new(), 0),
        tried: tried.map(|(chosen, tried)| (&tried[..], *chosen)),
        features: &input.features,
    };
    let view = look_at(&collection, &|rows| gallery.pictures(rows), Limits::shared(Limits::IMAGES, 1));
    write_bytes(&out.join("sheet.html"), page(&[view])?.as_bytes())
}

/// What a page says when some images are not there.
pub fn missing(gallery: &Gallery, rows: usize) -> Vec<String> {
    match rows - gallery.found() {
        0 => Vec::new(),
        n => vec![format!("{n} of the {rows} images are not where their names say: they are grey.")],
    }
}

/// The last part of a path, for people.
pub fn title(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}

fn show(s: &Summary) -> String {
    let chosen = s.silhouette.map_or(String::new(), |x| format!("  (the greatest mean silhouette, {x:.3}; k.csv)"));
    let mut rows = vec![
        ("rows".to_string(), format!("{} of {} numbers", s.rows, s.dim)),
        ("clusters".into(), format!("{}{chosen}", s.fit.k)),
        ("sizes".into(), format!("{} to {}, median {}", s.smallest, s.largest, s.median)),
        ("mean squared distance".into(), format!("{:.6}", s.objective / s.rows.max(1) as f64)),
    ];
    if s.empty > 0 {
        rows.push(("empty clusters".into(), s.empty.to_string()));
    }
    rows.extend(written(s.unusable, &s.out, s.sheet));
    table::columns(&rows)
}
