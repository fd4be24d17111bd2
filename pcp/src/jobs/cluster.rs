//! Clusters of any embeddings: tables, a page, a folder per cluster.

mod output;
#[cfg(test)]
mod tests;

pub(crate) use output::write_curve;

use super::folders::How;
use super::part::on_pool;
use super::source::{EmbeddingSource, Embeddings};
use crate::observe::Observer;
use pcp_core::cluster_count::{Choice, Measure, choose};
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder_atomic, require_empty};
use pcp_core::kmeans::Clusters;
use pcp_core::kmeans::MultiStart;
use pcp_core::matrix::Metric;
use pcp_core::spectral::{self, NeighbourClusters};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What unsorted images are, in words.
pub const UNSORTED_MEANS: &str = "fewer than two in five of their nearest neighbours are in their cluster";

/// How many clusters are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterCount {
    /// The number with the greatest modularity, for clusters by neighbours, or the greatest mean silhouette, for those by centres.
    Auto,
    /// This many.
    Exactly(usize),
}

impl ClusterCount {
    /// A number from 1 on, or `auto`.
    pub fn parse(text: &str) -> Result<ClusterCount> {
        match text.parse() {
            _ if text == "auto" => Ok(ClusterCount::Auto),
            Ok(k) if k > 0 => Ok(ClusterCount::Exactly(k)),
            _ => Err(Error::usage(format!("`k` is {text}"), "give a number from 1 on, or auto")),
        }
    }
}

/// What makes rows a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterBy {
    /// A common centre: k-means.
    Centres,
    /// Chains of neighbours: k-means on coordinates that neighbours share ([`pcp_core::spectral`]). It finds the classes of photographs
    /// better, and takes longer.
    Neighbours,
}

/// How embeddings are read and clustered; `cluster` and `purify` share it.
#[derive(Clone, Debug, PartialEq)]
pub struct KMeansOptions {
    /// Names of the rows: a CSV file with a column `file`; otherwise those of the matrix, or of a file beside it.
    pub files: Option<PathBuf>,
    /// What counts as near.
    pub metric: Metric,
    /// Leave out rows that cannot be used (not a number, infinite, zero), and list them.
    pub skip_bad_rows: bool,
    /// Starts of k-means, of which the best counts.
    pub starts: u32,
    /// Updates of the centroids at the most.
    pub iterations: usize,
    /// Everything random follows from it.
    pub seed: u64,
    /// The folder that the names of the images are below; otherwise the run's.
    pub images: Option<PathBuf>,
    /// Write no page, even where there are images.
    pub no_sheet: bool,
}

impl Default for KMeansOptions {
    fn default() -> Self {
        KMeansOptions {
            files: None,
            metric: Metric::Cosine,
            skip_bad_rows: false,
            starts: 3,
            iterations: 30,
            seed: 0,
            images: None,
            no_sheet: false,
        }
    }
}

impl KMeansOptions {
    pub(crate) fn check(&self) -> Result<()> {
        if self.starts == 0 || self.iterations == 0 {
            return Err(Error::usage("`starts` and `iterations` must be above 0", "leave them out for 3 and 30"));
        }
        Ok(())
    }

    pub(crate) fn fit(&self, k: usize) -> MultiStart {
        MultiStart { k, metric: self.metric, iterations: self.iterations, starts: self.starts, seed: self.seed }
    }
}

/// What is clustered, and how.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The embeddings.
    pub embeddings: EmbeddingSource,
    /// The folder to make; it must be new or empty. Without one nothing is written.
    pub out: Option<PathBuf>,
    /// Number of clusters.
    pub k: ClusterCount,
    /// What makes rows a cluster. `None`: neighbours for images, centres for matrices and runs.
    pub by: Option<ClusterBy>,
    /// Make a folder per cluster.
    pub folders: Option<How>,
    /// How they are read and clustered.
    pub kmeans: KMeansOptions,
}

impl ClusterOptions {
    /// The usual: as many clusters as there seem to be, nothing written.
    pub fn new(embeddings: impl Into<EmbeddingSource>) -> Self {
        ClusterOptions {
            embeddings: embeddings.into(),
            out: None,
            k: ClusterCount::Auto,
            by: None,
            folders: None,
            kmeans: KMeansOptions::default(),
        }
    }
}

/// What decided the number of clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChosenBy {
    /// The caller.
    #[serde(rename = "--k")]
    Caller,
    /// The greatest mean silhouette.
    #[serde(rename = "the greatest mean silhouette")]
    Silhouette,
    /// The greatest modularity.
    #[serde(rename = "the greatest modularity")]
    Modularity,
}

impl ChosenBy {
    fn of(choice: Option<&Choice>) -> ChosenBy {
        match choice.map(|choice| choice.measure) {
            None => ChosenBy::Caller,
            Some(Measure::Silhouette) => ChosenBy::Silhouette,
            Some(Measure::Modularity) => ChosenBy::Modularity,
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            ChosenBy::Caller => "--k",
            ChosenBy::Silhouette => "the greatest mean silhouette",
            ChosenBy::Modularity => "the greatest modularity",
        }
    }
}

/// Key figures of a clustering; `summary.json` has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterSummary {
    /// Rows that were clustered.
    pub rows: usize,
    /// Rows that were left out.
    pub unusable: usize,
    /// Columns.
    pub dim: usize,
    /// Clusters.
    pub k: usize,
    /// What counted as near.
    pub metric: Metric,
    /// Updates of the centroids at the most.
    pub iterations: usize,
    /// Starts of k-means.
    pub starts: u32,
    /// The seed.
    pub seed: u64,
    /// What decided `k`.
    pub chosen_by: ChosenBy,
    /// What makes rows a cluster.
    pub by: ClusterBy,
    /// Mean silhouette or modularity of the chosen number, where several were tried.
    pub score: Option<f64>,
    /// Rows that few of their nearest neighbours agree with; `None` for clusters by centres.
    pub unsorted: Option<usize>,
    /// Sum of the squared distances to the centroids.
    pub objective: f64,
    /// Clusters without a member.
    pub empty: usize,
    /// Size of the smallest cluster that has members.
    pub smallest: usize,
    /// Size of the median cluster that has members.
    pub median: usize,
    /// Size of the largest cluster.
    pub largest: usize,
    /// The folder that was made.
    pub out: Option<PathBuf>,
    /// Whether it has a page.
    pub sheet: bool,
    /// Whether it has a folder per cluster.
    pub folders: bool,
}

/// A row of a clustering.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusteredRow {
    /// Its number in the source.
    pub row: usize,
    /// Its cluster.
    pub cluster: u32,
    /// Distance to the cluster's centroid.
    pub distance: f32,
    /// The share of its nearest neighbours that are in its cluster ([`NeighbourClusters::agreement`]); `None` for clusters by centres. Below
    /// 0.4 the row is unsorted.
    pub agreement: Option<f32>,
}

/// A clustering.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterResult {
    /// Key figures.
    pub summary: ClusterSummary,
    /// All rows that were clustered, in order.
    pub rows: Vec<ClusteredRow>,
}

/// Clusters embeddings, and writes the folder `out` where one is given.
///
/// ```
/// use pcp::jobs::{ClusterCount, ClusterOptions, cluster};
/// # use std::sync::Arc;
/// # let observer: Arc<dyn pcp::observe::Observer> = Arc::new(pcp::observe::Silent::default());
/// let matrix = pcp_core::matrix::Matrix::new(2, vec![1.0, 0.0, 0.9, 0.1, 0.0, 1.0, 0.1, 0.9]);
/// let found = cluster(&ClusterOptions { k: ClusterCount::Exactly(2), ..ClusterOptions::new(matrix) }, &observer)?;
/// assert_eq!(found.rows[0].cluster, found.rows[1].cluster);
/// assert_ne!(found.rows[1].cluster, found.rows[2].cluster);
/// # Ok::<(), pcp_core::error::Error>(())
/// ```
pub fn cluster(options: &ClusterOptions, observer: &Arc<dyn Observer>) -> Result<ClusterResult> {
    check(options)?;
    let kmeans = &options.kmeans;
    let read = Embeddings::read(&options.embeddings, kmeans.files.as_deref(), kmeans.seed, observer)?;
    let bad = read.bad_rows(kmeans.metric, kmeans.skip_bad_rows)?;
    let embeddings = read.ready(bad, kmeans.metric);
    let shown = options.out.is_some() && (options.folders.is_some() || !kmeans.no_sheet);
    let gallery = if shown { embeddings.gallery(kmeans.images.as_deref(), observer)? } else { None };
    let paths = match (options.folders, &gallery, &embeddings.names) {
        (None, ..) => None,
        (Some(how), Some(gallery), Some(names)) => Some((how, gallery.paths(names)?)),
        (Some(_), ..) => {
            return Err(Error::usage(
                "`folders` needs the images, and they are not at hand",
                "say where they are with `images` (and `files` where the matrix has no names)",
            ));
        }
    };
    let mut fit = kmeans.fit(0);
    let by = options.by.unwrap_or_else(|| usual_by(&embeddings, options.k));
    let (found, choice) = match by {
        ClusterBy::Centres => {
            let choice = choose_k(&embeddings, &mut fit, options.k, observer)?;
            let clusters = fitted("clustering", embeddings.features.clone(), fit, observer)?;
            (FoundClusters { clusters, agreement: None }, choice)
        }
        ClusterBy::Neighbours => by_neighbours(&embeddings, &mut fit, options.k, observer)?,
    };
    let mut summary = summarise(&embeddings, &found, fit, by, choice.as_ref(), options);
    if let Some(out) = &options.out {
        let page = gallery.filter(|_| !kmeans.no_sheet);
        make_folder_atomic(out, |out| {
            let files = output::ClusterFiles { embeddings: &embeddings, found: &found, choice: choice.as_ref() };
            files.write(out, paths.as_ref(), page, &mut summary, observer)
        })?;
    }
    let row = |(i, &row): (usize, &usize)| ClusteredRow {
        row,
        cluster: found.clusters.assignment[i],
        distance: found.clusters.distances[i],
        agreement: found.agreement.as_ref().map(|of| of[i]),
    };
    let rows = embeddings.rows.iter().enumerate().map(row).collect();
    Ok(ClusterResult { summary, rows })
}

/// The clusters of all rows.
struct FoundClusters {
    clusters: Clusters,
    /// The share of every row's neighbours that are in its cluster, for clusters by neighbours.
    agreement: Option<Vec<f32>>,
}

impl FoundClusters {
    /// Whether few of the row's neighbours are in its cluster.
    fn is_unsorted(&self, i: usize) -> bool {
        self.agreement.as_ref().is_some_and(|agreement| spectral::is_unsorted(agreement[i]))
    }
}

/// Neighbours for images, centres for matrices and runs, and for so many clusters that as many coordinates would take long.
fn usual_by(embeddings: &Embeddings, k: ClusterCount) -> ClusterBy {
    let few = !matches!(k, ClusterCount::Exactly(k) if k > spectral::MOST);
    if embeddings.are_photographs() && few { ClusterBy::Neighbours } else { ClusterBy::Centres }
}

/// Clusters by neighbours; sets the number of clusters of `fit` where it is to be found.
fn by_neighbours(
    embeddings: &Embeddings,
    fit: &mut MultiStart,
    k: ClusterCount,
    observer: &Arc<dyn Observer>,
) -> Result<(FoundClusters, Option<Choice>)> {
    let features = embeddings.features.clone();
    let (found, choice) = match k {
        ClusterCount::Exactly(k) => {
            fit.k = k;
            let fit = *fit;
            let found = on_pool("clustering", spectral::steps(&fit), observer, move |part| {
                spectral::clusters(&features, &fit, &mut |done, all| part.step(done, all))
            })?;
            (found, None)
        }
        ClusterCount::Auto => {
            let settings = *fit;
            let (found, choice) = on_pool("clustering", 0, observer, move |part| {
                spectral::clusters_of_any_number(&features, &settings, &mut |done, all| part.step(done, all))
            })?;
            fit.k = choice.k;
            (found, Some(choice))
        }
    };
    let NeighbourClusters { clusters, agreement } = found;
    Ok((FoundClusters { clusters, agreement: Some(agreement) }, choice))
}

fn check(options: &ClusterOptions) -> Result<()> {
    options.out.as_deref().map_or(Ok(()), require_empty)?;
    options.kmeans.check()?;
    let wrong = |message: &str, hint: &str| Err(Error::usage(message, hint));
    if options.k == ClusterCount::Exactly(0) {
        return wrong("`k` is 0", "give a number from 1 on, or auto");
    }
    if options.kmeans.no_sheet && options.kmeans.images.is_some() && options.folders.is_none() {
        let message = "`images` is for the page and for `folders`";
        return wrong(message, "leave `images` or `no_sheet` out, or give `folders`: link or copy");
    }
    if options.folders.is_some() && options.out.is_none() {
        return wrong("`folders` are made in `out`", "give `out`, or leave `folders` out");
    }
    Ok(())
}

/// Sets the number of clusters by centres of `fit`; returns how it was chosen.
pub(crate) fn choose_k(
    embeddings: &Embeddings,
    fit: &mut MultiStart,
    k: ClusterCount,
    observer: &Arc<dyn Observer>,
) -> Result<Option<Choice>> {
    let (features, settings) = (embeddings.features.clone(), *fit);
    let choice = match k {
        ClusterCount::Exactly(k) => {
            fit.k = k;
            return Ok(None);
        }
        ClusterCount::Auto => on_pool("choosing k", 0, observer, move |part| {
            choose(&features, &settings, &mut |done, all| part.step(done, all))
        })?,
    };
    fit.k = choice.k;
    Ok(Some(choice))
}

/// Runs k-means as a part of a job.
pub(crate) fn fitted(
    part: &'static str,
    features: Arc<pcp_core::matrix::Matrix>,
    fit: MultiStart,
    observer: &Arc<dyn Observer>,
) -> Result<Clusters> {
    on_pool(part, fit.steps(), observer, move |part| fit.run(&features, &mut |done, all| part.step(done, all)))
}

fn summarise(
    embeddings: &Embeddings,
    found: &FoundClusters,
    fit: MultiStart,
    by: ClusterBy,
    choice: Option<&Choice>,
    options: &ClusterOptions,
) -> ClusterSummary {
    let (rows, clusters) = (embeddings.features.rows, &found.clusters);
    let mut sizes = vec![0; clusters.centroids.rows];
    clusters.assignment.iter().for_each(|c| sizes[*c as usize] += 1);
    sizes.sort_unstable();
    let filled = &sizes[sizes.partition_point(|s| *s == 0)..];
    ClusterSummary {
        rows,
        unusable: embeddings.unusable.len(),
        dim: embeddings.features.dim,
        k: fit.k,
        metric: fit.metric,
        iterations: fit.iterations,
        starts: fit.starts,
        seed: fit.seed,
        chosen_by: ChosenBy::of(choice),
        by,
        score: choice.map(Choice::score),
        unsorted: found.agreement.as_ref().map(|_| (0..rows).filter(|i| found.is_unsorted(*i)).count()),
        objective: clusters.objective,
        empty: sizes.len() - filled.len(),
        smallest: filled.first().copied().unwrap_or(0),
        median: filled.get(filled.len() / 2).copied().unwrap_or(0),
        largest: filled.last().copied().unwrap_or(0),
        out: options.out.clone(),
        sheet: false,
        folders: options.folders.is_some(),
    }
}

/// Writes a job's key figures as `summary.json`.
pub(crate) fn write_summary(out: &Path, summary: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(summary).map_err(|e| Error::file(e.to_string(), "please report this"))?;
    pcp_core::io::atomic::write_bytes(&out.join("summary.json"), format!("{text}\n").as_bytes())
}
