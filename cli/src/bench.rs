//! `pcp bench`: how fast is this machine?

mod boxes;
mod network;
mod vectors;
mod views;

use super::table;
use clap::{Args, Subcommand};
pub use pcp::run::cpu;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::matrix::Matrix;
use pcp_core::rng::{Key, Purpose};
use std::time::Instant;

#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  pcp bench step --width 16 --batch 128
  pcp bench kmeans --n 50000 --k 1000 --json
  pcp bench boxes nms --n 6000
  pcp bench kmeans --input runs/photos/embeddings.npy --k 100")]
pub enum Verb {
    /// Training steps: forward, bank loss, backward and SGD
    Step(network::StepArgs),
    /// Inference
    Infer(network::InferArgs),
    /// k-means on random unit vectors, or on your own
    Kmeans(vectors::KmeansArgs),
    /// Exact nearest neighbours of random unit vectors, or of your own
    Knn(vectors::KnnArgs),
    /// t-SNE of random unit vectors, or of your own
    Tsne(vectors::TsneArgs),
    /// Random views of an image, on one core
    Augment(views::AugmentArgs),
    /// RoIAlign and its gradient, non-maximum suppression, overlaps
    Boxes(boxes::BoxesArgs),
}

#[derive(Args)]
struct BenchCommon {
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(verb: Verb, stop: &Cancel) -> Result<()> {
    super::use_threads(match &verb {
        Verb::Step(args) => args.network.common.threads,
        Verb::Infer(args) => args.network.common.threads,
        Verb::Kmeans(args) => args.common.threads,
        Verb::Knn(args) => args.common.threads,
        Verb::Tsne(args) => args.common.threads,
        Verb::Boxes(args) => args.common.threads,
        Verb::Augment(_) => 1,
    })?;
    match verb {
        Verb::Step(args) => network::step(&args, stop),
        Verb::Infer(args) => network::infer(&args, stop),
        Verb::Kmeans(args) => vectors::kmeans(&args, stop),
        Verb::Knn(args) => vectors::knn(&args, stop),
        Verb::Tsne(args) => vectors::tsne(&args, stop),
        Verb::Boxes(args) => boxes::run(&args, stop),
        Verb::Augment(args) => views::augment(&args, stop),
    }
}

fn positive(values: &[(&str, usize)]) -> Result<()> {
    const MOST: usize = 100_000_000;
    match values.iter().find(|(_, v)| !(1..=MOST).contains(v)) {
        Some((name, v)) => {
            Err(Error::usage(format!("--{name} is {v}"), format!("give --{name} a number from 1 to {MOST}")))
        }
        None => Ok(()),
    }
}

/// Normal random numbers, the same every time.
fn random(rows: usize, dim: usize, index: u64) -> Matrix {
    let key = Key { purpose: Purpose::Synthetic, seed: 0, round: 0, epoch: 0 };
    let mut stream = key.stream(index, 0);
    Matrix { rows, dim, values: (0..rows * dim).map(|_| stream.normal()).collect() }
}

/// Calls that come before those that are timed.
const WARM_UP: usize = 2;

/// Seconds of `iters` calls, after two that are not timed, and what the last one returned.
fn timed<T>(iters: usize, mut once: impl FnMut() -> T) -> (f64, T) {
    (0..WARM_UP).for_each(|_| drop(std::hint::black_box(once())));
    let started = Instant::now();
    (1..iters).for_each(|_| drop(std::hint::black_box(once())));
    let last = std::hint::black_box(once());
    (started.elapsed().as_secs_f64(), last)
}

/// Prints a report, with the number of threads and the CPU.
fn show(as_json: bool, what: &str, mut report: serde_json::Value) -> Result<()> {
    report["threads"] = rayon::current_num_threads().into();
    report["cpu"] = cpu().into();
    if as_json {
        return super::print_json(&report);
    }
    let number = |v: &serde_json::Value| match v.as_f64() {
        Some(x) if !v.is_u64() => format!("{x:.4}"),
        _ => v.to_string().trim_matches('"').to_string(),
    };
    let rows: Vec<(String, String)> =
        report.as_object().into_iter().flatten().map(|(k, v)| (k.replace('_', " "), number(v))).collect();
    super::print(&format!("{what}\n{}", table::columns(&rows)))
}
