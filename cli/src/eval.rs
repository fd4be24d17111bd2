//! `pcp eval`: one file per measure.

pub(super) mod clusters;
mod finetune;
mod heatmap;
mod knn;
pub(super) mod linear;
pub(super) mod tsne;

use crate::progress::{self, bar};
use clap::Subcommand;
use pcp::config::Resolved;
use pcp::data::loader::{Loader, Part, View};
use pcp::data::{Dataset, Images, Labels, Split};
use pcp::model::{Extractor, FeatureKind, Model, WhichWeights};
use pcp::run::RunFolder;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder, write_bytes};
use pcp_core::matrix::Matrix;
use serde::Serialize;
use std::sync::Arc;

#[derive(Subcommand)]
pub enum Verb {
    /// Weighted kNN accuracy of a run's features
    Knn(knn::Knn),
    /// Accuracy of a linear classifier on a run's frozen features
    Linear(linear::Linear),
    /// Accuracy after training the whole network on a share of the labels
    Finetune(finetune::Finetune),
    /// Where the network looks: heat over images, and its share inside boxes
    Heatmap(heatmap::Heatmap),
    /// How clusters of a run's features agree with the classes, and what purification did
    Clusters(clusters::Clusters),
    /// A picture of a run's features: t-SNE in two dimensions
    Tsne(tsne::Tsne),
}

/// Options that every measure has.
#[derive(clap::Args)]
struct Common {
    /// Use the weights of the best probe instead of the last
    #[arg(long)]
    best: bool,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(verb: Verb, stop: &Cancel) -> Result<()> {
    match verb {
        Verb::Knn(args) => knn::run(&args, stop),
        Verb::Linear(args) => linear::run(&args, stop),
        Verb::Finetune(args) => finetune::run(&args, stop),
        Verb::Heatmap(args) => heatmap::run(&args, stop),
        Verb::Clusters(args) => clusters::run(&args, stop),
        Verb::Tsne(args) => tsne::run(&args, stop),
    }
}

/// Writes a measure's report into the run's `eval` folder.
pub(super) fn keep(run: &RunFolder, name: &str, report: &impl Serialize) -> Result<()> {
    let folder = run.file("eval");
    make_folder(&folder)?;
    let text =
        serde_json::to_string_pretty(report).map_err(|e| Error::file(format!("{name}: {e}"), "please report this"))?;
    write_bytes(&folder.join(name), format!("{text}\n").as_bytes())
}

/// Which weights are measured.
#[derive(Serialize)]
struct Measured {
    /// Their file.
    weights: String,
    /// When they last learned, where they have.
    round: Option<u32>,
    epoch: Option<u32>,
}

impl Measured {
    fn new(model: &Model) -> Measured {
        let (round, epoch) = model.trained.unzip();
        Measured { weights: model.file_name(), round, epoch }
    }

    /// A row of a table, as people count.
    fn row(&self) -> (String, String) {
        let when = match (self.round, self.epoch) {
            (Some(round), Some(epoch)) => format!("round {}, epoch {}", round + 1, epoch + 1),
            _ => "untrained".to_string(),
        };
        ("weights".to_string(), format!("{}, {when}", self.weights))
    }
}

/// Where a measurement comes from.
#[derive(Serialize)]
struct Origin {
    /// Which images, in words.
    images_of: &'static str,
    #[serde(flatten)]
    measured: Measured,
}

/// The clean embeddings of a part of the images.
struct Embedded {
    dataset: Arc<Dataset>,
    part: Part,
    features: Matrix,
    origin: Origin,
}

impl Embedded {
    fn split(&self) -> &Split {
        match (&self.dataset.test, self.part) {
            (Some(test), Part::Test) => test,
            _ => &self.dataset.train,
        }
    }

    fn images(&self) -> &Images {
        &self.split().images
    }

    fn labels(&self) -> Option<&Labels> {
        self.split().labels.as_ref()
    }
}

/// Embeds the images of `part`; without one, those to test on, or those to learn from where there are none to test on, or
/// where only the latter have labels.
fn embed(
    run: &RunFolder,
    config: &Resolved,
    best: bool,
    part: Option<Part>,
    quiet: bool,
    stop: &Cancel,
) -> Result<Embedded> {
    let model = Model::of_run(run, WhichWeights::best(best))?;
    let dataset = Arc::new(progress::read_images_again(config, quiet, stop)?);
    let labelled = |split: &Split| split.labels.is_some();
    let tests = dataset.test.as_ref().is_some_and(|test| labelled(test) || !labelled(&dataset.train));
    if part == Some(Part::Test) && dataset.test.is_none() {
        let message = format!("{} has no test images", config.data.source);
        return Err(Error::data(message, "look at those to learn from: --part train"));
    }
    let part = part.unwrap_or(if tests { Part::Test } else { Part::Train });
    let images_of = match (part, &dataset.test) {
        (Part::Test, _) => "test images",
        (Part::Train, Some(_)) => "training images",
        (Part::Train, None) => "training images (there are no test images)",
    };
    let loader = Loader::new(dataset.clone(), config.augmenter());
    let shown = bar("embedding", quiet);
    shown.set_length(loader.images(part).len() as u64);
    let done = |n| shown.inc(n as u64);
    let extractor = Extractor { network: &model.network, weights: &model.weights, cancel: stop, on_images: &done };
    let features = extractor.all(&loader, part, View::Clean, FeatureKind::Embedding)?;
    shown.finish_and_clear();
    Ok(Embedded { dataset, part, features, origin: Origin { images_of, measured: Measured::new(&model) } })
}
