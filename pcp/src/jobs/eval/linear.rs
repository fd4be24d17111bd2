//! Accuracy of linear classifiers on a run's frozen features.

use super::{check_training, read_report, write_report};
use crate::data::loader::Loader;
use crate::evaluate::ProbeSplit;
use crate::evaluate::linear::{LinearProbe, LinearResult, LinearSettings};
use crate::jobs::images::read_again;
use crate::jobs::part::JobPart;
use crate::model::{Model, WhichWeights};
use crate::observe::Observer;
use crate::run::RunFolder;
use pcp_core::error::Result;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

const FILE: &str = "linear.json";
const FAST_FILE: &str = "linear-fast.json";

/// Which layers of which run are probed, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalLinearOptions {
    /// A run folder.
    pub run: PathBuf,
    /// Layers by name: layer1 to layer4 of a ResNet, conv1 to conv5 of an AlexNet, pooled, embedding, all. Empty: the last map and
    /// pooled.
    pub layers: Vec<String>,
    /// Learn on clean features taken once instead of random views: quicker, and not the paper's protocol.
    pub fast: bool,
    /// Epochs.
    pub epochs: u32,
    /// Features per step.
    pub batch: usize,
    /// Learning rate at the beginning.
    pub lr: f64,
    /// Everything random follows from it.
    pub seed: u64,
    /// Use the weights of the best probe instead of the last.
    pub best: bool,
}

impl EvalLinearOptions {
    /// The paper's protocol on the last map and the pooled features of `run`.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        let LinearSettings { epochs, batch, lr, fast, seed, .. } = LinearSettings::default();
        EvalLinearOptions { run: run.into(), layers: Vec::new(), fast, epochs, batch, lr, seed, best: false }
    }

    fn settings(&self) -> LinearSettings {
        let EvalLinearOptions { epochs, batch, lr, fast, seed, .. } = *self;
        LinearSettings { epochs, batch, lr, fast, seed, ..LinearSettings::default() }
    }
}

/// Accuracies of linear classifiers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearReport {
    /// How they were measured, in words.
    pub protocol: String,
    /// How the classifiers learned.
    pub settings: LinearSettings,
    /// File of the weights.
    pub weights: String,
    /// One classifier per layer.
    pub layers: Vec<LinearResult>,
}

/// Trains a linear classifier on each of the layers, and keeps the report as `eval/linear.json` of the run (`eval/linear-fast.json`
/// where `fast`).
pub fn eval_linear(options: &EvalLinearOptions, observer: &Arc<dyn Observer>) -> Result<LinearReport> {
    check_training(options.epochs, options.batch, options.lr, "the paper's")?;
    let settings = options.settings();
    let run = RunFolder::open(&options.run)?;
    let (config, _) = run.read_config()?;
    let model = Model::of_run(&run, WhichWeights::best(options.best))?.network_alone();
    let usual = || model.network.layers().into_iter().next_back().into_iter().chain(["pooled".to_string()]).collect();
    let names: Vec<String> = if options.layers.is_empty() { usual() } else { options.layers.clone() };
    let layers = model.network.feature_kinds_named(&names)?;
    let dataset = Arc::new(read_again(&config, observer)?);
    let split = ProbeSplit::new(&dataset)?;
    let loader = Loader::new(dataset, config.augmenter());
    // In the fast mode every layer takes its own pass over the images, otherwise every epoch one for all layers.
    let (passes, times) = if settings.fast { (1, layers.len()) } else { (settings.epochs as usize, 1) };
    let part = JobPart::begin("linear probe", (split.truth.len() + split.learn.len() * passes) * times, observer);
    let on_epoch = |layer: &str, epoch: u32, accuracy: f64| {
        observer.status(&format!("{layer}, epoch {}: {accuracy:.1} %", epoch + 1));
    };
    let (network, weights, cancel) = (&model.network, &model.weights, observer.cancel());
    let probe = LinearProbe { network, weights, loader: &loader, split: &split, cancel };
    let results = probe.run(&layers, &settings, &|n| part.more(n), &on_epoch);
    part.end();
    let views = if settings.fast { "fast: clean features taken once" } else { "random views in every epoch" };
    let protocol = format!("linear probe, {} epochs, {views}; {}", settings.epochs, split.protocol());
    let report = LinearReport { protocol, settings, weights: model.file_name(), layers: results? };
    write_report(&run, if settings.fast { FAST_FILE } else { FILE }, &report)?;
    Ok(report)
}

/// The report of a run's last linear probe with random views; `None` where there was none.
pub fn read_linear(run: &RunFolder) -> Result<Option<LinearReport>> {
    read_report(run, FILE)
}

/// The report of a run's last fast linear probe; `None` where there was none.
pub fn read_fast_linear(run: &RunFolder) -> Result<Option<LinearReport>> {
    read_report(run, FAST_FILE)
}
