//! `pcp eval`: one file per measure.

mod clusters;
mod finetune;
mod heatmap;
mod knn;
mod linear;
mod tsne;

use clap::Subcommand;
use pcp::jobs::MeasuredWeights;
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;

#[derive(Subcommand)]
pub enum Verb {
    /// Weighted kNN accuracy of a run's features
    Knn(knn::EvalKnnArgs),
    /// Accuracy of a linear classifier on a run's frozen features
    Linear(linear::EvalLinearArgs),
    /// Accuracy after training the whole network on a share of the labels
    Finetune(finetune::EvalFinetuneArgs),
    /// Where the network looks: heat over images, and its share inside boxes
    Heatmap(heatmap::EvalHeatmapArgs),
    /// How clusters of a run's features agree with the classes, and what purification did
    Clusters(clusters::EvalClustersArgs),
    /// A picture of a run's features: t-SNE in two dimensions
    Tsne(tsne::EvalTsneArgs),
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

/// The weights that were measured as a row of a table; rounds and epochs as people count.
fn weights_row(measured: &MeasuredWeights) -> (String, String) {
    let when = match (measured.round, measured.epoch) {
        (Some(round), Some(epoch)) => format!("round {}, epoch {}", round + 1, epoch + 1),
        _ => "untrained".to_string(),
    };
    ("weights".to_string(), format!("{}, {when}", measured.weights))
}
