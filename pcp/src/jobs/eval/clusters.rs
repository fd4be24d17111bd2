//! Clusters of a run's features against the classes, and what purification did to the clusters it learned from.

use super::{EmbeddedSplit, MeasuredImages, read_report, write_report};
use crate::evaluate::clusters::{
    AnyNumberScore, ClusterScore, EpochFilter, STARTS, filters, of_run, score, score_by_neighbours, score_of_any_number,
};
use crate::jobs::part::on_pool;
use crate::observe::Observer;
use crate::run::RunFolder;
use pcp_core::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

const FILE: &str = "clusters.json";

/// How many clusters are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvalClusterCount {
    /// As many as there are classes; without labels as many as the run's `clusters.floor`.
    #[default]
    Usual,
    /// As many as there are classes; an error without labels.
    Classes,
    /// This many.
    Exactly(usize),
}

impl EvalClusterCount {
    /// A number from 1 on, or `classes`.
    pub fn parse(text: &str) -> Result<EvalClusterCount> {
        match text.parse() {
            _ if text == "classes" => Ok(EvalClusterCount::Classes),
            Ok(k) if k > 0 => Ok(EvalClusterCount::Exactly(k)),
            _ => Err(refused(text)),
        }
    }
}

fn refused(k: impl std::fmt::Display) -> Error {
    Error::usage(format!("`k` is {k}"), "give a number from 1 on, or classes")
}

/// Which run's features are clustered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalClustersOptions {
    /// A run folder.
    pub run: PathBuf,
    /// Number of clusters.
    pub k: EvalClusterCount,
    /// Use the weights of the best probe instead of the last.
    pub best: bool,
}

impl EvalClustersOptions {
    /// As many clusters as there are classes, by the last weights of `run`.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        EvalClustersOptions { run: run.into(), k: EvalClusterCount::Usual, best: false }
    }
}

/// Clusters of features, and the filter of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClustersReport {
    /// What was clustered.
    #[serde(flatten)]
    pub origin: MeasuredImages,
    /// The clusters, and their agreement with the classes.
    #[serde(flatten)]
    pub score: ClusterScore,
    /// The same for clusters that chains of neighbours connect ([`pcp_core::spectral`]); `None` for more than 200
    /// clusters.
    #[serde(default)]
    pub by_neighbours: Option<ClusterScore>,
    /// The same where the number of clusters is not given but found; `None` for fewer than three images.
    #[serde(default)]
    pub any_number: Option<AnyNumberScore>,
    /// The run's own final clusters of the training images, in the numbers that its page and its tables have; `None` before it has any.
    #[serde(default)]
    pub of_run: Option<ClusterScore>,
    /// What purification did in each epoch whose clusters the run folder has; empty without labels.
    pub filter: Vec<EpochFilter>,
}

/// Clusters the features of a run by k-means and by neighbours, and keeps the report as `eval/clusters.json` of the run.
pub fn eval_clusters(options: &EvalClustersOptions, observer: &Arc<dyn Observer>) -> Result<ClustersReport> {
    if options.k == EvalClusterCount::Exactly(0) {
        return Err(refused(0));
    }
    let run = RunFolder::open(&options.run)?;
    let (config, _) = run.read_config()?;
    let (filter, of_run) = (filters(&run, usize::MAX)?, of_run(&run, config.train.seed)?);
    let embedded = EmbeddedSplit::new(&run, &config, options.best, None, observer)?;
    let labels = embedded.labels().cloned();
    let images = embedded.features.rows;
    let k = match (options.k, &labels) {
        (EvalClusterCount::Exactly(k), _) => k,
        (_, Some(labels)) => labels.classes.len().min(images),
        (EvalClusterCount::Usual, None) => config.clusters.floor.min(images),
        (EvalClusterCount::Classes, None) => {
            let message = format!("{} has no labels, so there are no classes to count", config.data.source);
            return Err(Error::data(message, "give a number: `k` 10"));
        }
    };
    let ids = embedded.images().ids().to_vec();
    let (features, seed) = (embedded.features, config.train.seed);
    let starts = STARTS as usize;
    let (score, by_neighbours, any_number) = on_pool("clustering", starts, observer, move |part| {
        let labels = labels.as_ref();
        let by_centres = score(&features, &ids, labels, k, seed, &mut |done| part.step(done as usize, starts))?;
        let near = k <= pcp_core::spectral::MOST;
        let near =
            near.then(|| score_by_neighbours(&features, &ids, labels, k, seed, &mut |_, _| part.step(starts, starts)));
        let any = (images > 2)
            .then(|| score_of_any_number(&features, &ids, labels, seed, &mut |_, _| part.step(starts, starts)));
        Ok((by_centres, near.transpose()?, any.transpose()?))
    })?;
    let report = ClustersReport { origin: embedded.origin, score, by_neighbours, any_number, of_run, filter };
    write_report(&run, FILE, &report)?;
    Ok(report)
}

/// The report of the last [`eval_clusters`] of a run; `None` where there was none.
pub fn read_clusters(run: &RunFolder) -> Result<Option<ClustersReport>> {
    read_report(run, FILE)
}
