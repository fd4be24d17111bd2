//! Weighted kNN accuracy of a run's features.

use super::{MeasuredWeights, patches_of};
use crate::config::FeatureKind;
use crate::data::loader::Loader;
use crate::evaluate::Probe;
use crate::jobs::images::read_again;
use crate::jobs::part::JobPart;
use crate::model::{Model, WhichWeights};
use crate::observe::Observer;
use crate::run::{RunFolder, Warning};
use pcp_core::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// Which run is measured, and how. What is `None` is as in the run's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalKnnOptions {
    /// A run folder.
    pub run: PathBuf,
    /// Neighbours.
    pub k: Option<usize>,
    /// Temperature of their weights.
    pub tau: Option<f64>,
    /// Which features.
    pub features: Option<FeatureKind>,
    /// Use the weights of the best probe instead of the last.
    pub best: bool,
}

impl EvalKnnOptions {
    /// The last weights of `run`, measured as in its training.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        EvalKnnOptions { run: run.into(), k: None, tau: None, features: None, best: false }
    }
}

/// Weighted kNN accuracy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnnReport {
    /// Accuracy in percent.
    pub knn: f64,
    /// Neighbours.
    pub k: usize,
    /// Temperature of their weights.
    pub tau: f64,
    /// Which features.
    pub features: FeatureKind,
    /// How it was measured, in words.
    pub protocol: String,
    /// The weights.
    #[serde(flatten)]
    pub measured: MeasuredWeights,
}

/// Measures the weighted kNN accuracy of a run's features. Nothing is written.
pub fn eval_knn(options: &EvalKnnOptions, observer: &Arc<dyn Observer>) -> Result<KnnReport> {
    let run = RunFolder::open(&options.run)?;
    let (mut config, _) = run.read_config()?;
    let e = &mut config.evaluate;
    e.k = options.k.unwrap_or(e.k);
    e.tau = options.tau.unwrap_or(e.tau);
    e.features = options.features.unwrap_or(e.features);
    let (k, tau, features) = (e.k, e.tau, e.features);
    config.check()?;
    let patches = patches_of(&run, &config, options.best)?;
    if patches.is_some() && features != FeatureKind::Embedding {
        return Err(Error::usage("patches have one kind of features, embedding", "leave `features` out"));
    }
    let model = if patches.is_none() { Some(Model::of_run(&run, WhichWeights::best(options.best))?) } else { None };
    let dataset = Arc::new(read_again(&config, observer)?);
    let loader = Loader::new(dataset.clone(), config.augmenter());
    let Some(probe) = Probe::new(dataset, loader, &config) else {
        let message = format!("{} has no labels to measure against", config.data.source);
        return Err(Error::data(message, "put the images into one folder per class"));
    };
    if probe.available() < k {
        observer.warn(&Warning::FewerThanK { images: probe.available(), k });
    }
    let (knn, measured) = match (&model, &patches) {
        (Some(model), _) => {
            let part = JobPart::begin("embedding", probe.images(), observer);
            let knn = probe.network(&model.network, &model.weights, observer.cancel(), &|n| part.more(n));
            part.end();
            (knn?, MeasuredWeights::of(model))
        }
        (None, Some(patches)) => (probe.patches(patches, observer)?, MeasuredWeights::of_patches(&run)),
        (None, None) => unreachable!("a run has a network or patches"),
    };
    Ok(KnnReport { knn, k: k.min(probe.available()), tau, features, protocol: probe.protocol(), measured })
}
