//! `pcp cluster`.

use super::input::{EmbeddingsArgs, KMeansArgs, kmeans_options, written};
use super::{progress, table};
use clap::{Args, ValueEnum};
use pcp::jobs::folders::How;
use pcp::jobs::{ClusterBy, ClusterCount, ClusterOptions, ClusterSummary, UNSORTED_MEANS, cluster};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp cluster PHOTOS/                                              no training: a page with pictures
  pcp cluster emb.npy --k 50 --out sorted                          a table, sizes, representatives
  pcp cluster PHOTOS/ --k 14 --out sorted                          fourteen kinds, by their neighbours
  pcp cluster runs/photos --out sorted                             k auto, with the curve it was chosen by
  pcp cluster emb.npy --k 20 --images PHOTOS/ --folders link --out sorted   a folder per cluster, and a page

The new folder holds clusters.csv (row, file, cluster, distance), sizes.csv, representatives.csv, centroids.npy, summary.json, for
auto k.csv, with images sheet.html, with --folders the folders and folders.csv. Distances are Euclidean; for the cosine between
rows of unit length. By neighbours, clusters.csv also has the share of an image's ten nearest neighbours that are in its cluster
(agreement; fewer neighbours for small clusters) and whether that is below 0.4 (unsorted): such images go into the folder `unsorted`.
Images are never moved or changed."
)]
pub struct ClusterArgs {
    /// A folder of images, a run folder, or a matrix (.npy, .csv, .safetensors; a row per image)
    input: PathBuf,
    /// The folder to make; it must be new or empty [default: findings/<input>-cluster-<n>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Clusters: a number, or `auto` for the one with the greatest modularity (by neighbours) or mean silhouette (by centres)
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    k: String,
    /// What makes images a cluster [default: neighbours for images, centres for matrices and runs]
    #[arg(long, value_enum)]
    by: Option<ByArg>,
    /// Make a folder per cluster
    #[arg(long, value_enum)]
    folders: Option<FoldersArg>,
    #[command(flatten)]
    kmeans: KMeansArgs,
    #[command(flatten)]
    common: EmbeddingsArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum FoldersArg {
    /// Copies of the images
    Copy,
    /// Symbolic links to the images
    Link,
}

#[derive(Clone, Copy, ValueEnum)]
enum ByArg {
    /// A common centre: k-means
    Centres,
    /// Chains of neighbours: k-means on coordinates that neighbours share (spectral clustering)
    Neighbours,
}

impl ClusterArgs {
    fn options(&self) -> Result<ClusterOptions> {
        Ok(ClusterOptions {
            out: self.common.out(self.out.as_deref(), Some(&self.input), "cluster"),
            k: ClusterCount::parse(&self.k)?,
            by: self.by.map(|by| match by {
                ByArg::Centres => ClusterBy::Centres,
                ByArg::Neighbours => ClusterBy::Neighbours,
            }),
            folders: self.folders.map(|how| match how {
                FoldersArg::Copy => How::Copy,
                FoldersArg::Link => How::Link,
            }),
            kmeans: kmeans_options(&self.common, &self.kmeans),
            ..ClusterOptions::new(self.common.source(&self.input)?)
        })
    }
}

pub fn run(args: &ClusterArgs, stop: &Cancel) -> Result<()> {
    super::use_threads(args.common.threads)?;
    let found = cluster(&args.options()?, &progress::job(args.common.json, stop))?;
    if args.common.json { super::print_json(&found.summary) } else { super::print(show(&found.summary).trim_end()) }
}

fn show(s: &ClusterSummary) -> String {
    let chosen = s.score.map_or(String::new(), |x| format!("  ({}, {x:.3}; k.csv)", s.chosen_by.words()));
    let by = match s.by {
        ClusterBy::Centres => "centres",
        ClusterBy::Neighbours => "neighbours",
    };
    let mut rows = vec![
        ("rows".to_string(), format!("{} of {} numbers", s.rows, s.dim)),
        ("clusters".into(), format!("{}, by {by}{chosen}", s.k)),
        ("sizes".into(), format!("{} to {}, median {}", s.smallest, s.largest, s.median)),
        ("mean squared distance".into(), format!("{:.6}", s.objective / s.rows.max(1) as f64)),
    ];
    if let Some(unsorted) = s.unsorted {
        rows.insert(3, ("unsorted".into(), format!("{unsorted}  ({UNSORTED_MEANS})")));
    }
    if s.empty > 0 {
        rows.push(("empty clusters".into(), s.empty.to_string()));
    }
    rows.extend(written(s.unusable, s.out.as_deref(), s.sheet));
    table::columns(&rows)
}
