//! `pcp bench`: how fast is this machine?

mod boxes;

use super::table;
use clap::{Args, Subcommand};
use pcp::config::{Arch, Config, LossForm, Recipe};
use pcp::data::augment::Augmenter;
use pcp::data::{Batch, Image};
use pcp::method::bank::Bank;
use pcp::method::objective::bank_loss;
use pcp::model::{DropoutKey, FeatureKind, Network, Optimizer};
pub use pcp::run::cpu;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result, listed};
use pcp_core::io::npy::read_matrix;
use pcp_core::kmeans::{KMeans, kmeans_with};
use pcp_core::matrix::Matrix;
use pcp_core::neighbours::nearest;
use pcp_core::purify::Positives;
use pcp_core::rng::{Key, Purpose};
use pcp_core::scores::trustworthiness;
use pcp_core::tsne::{self, tsne};
use serde_json::json;
use std::path::PathBuf;
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
    Step(Step),
    /// Inference
    Infer(Infer),
    /// k-means on random unit vectors, or on your own
    Kmeans(Kmeans),
    /// Exact nearest neighbours of random unit vectors, or of your own
    Knn(Knn),
    /// t-SNE of random unit vectors, or of your own
    Tsne(Tsne),
    /// Random views of an image, on one core
    Augment(Augment),
    /// RoIAlign and its gradient, non-maximum suppression, overlaps
    Boxes(boxes::Boxes),
}

#[derive(Args)]
struct NetworkArgs {
    /// Network: resnet18, alexnet or alexnet224
    #[arg(long, default_value = "resnet18")]
    arch: String,
    /// Channels of the first stage
    #[arg(long, default_value_t = 64)]
    width: usize,
    /// Images per batch
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Side of the images [default: 32, 224 for alexnet224]
    #[arg(long)]
    size: Option<usize>,
    /// Batches that count, after two that do not
    #[arg(long, default_value_t = 10)]
    iters: usize,
    /// Instructions: portable, avx2 or avx512 [default: the best of this CPU]
    #[arg(long)]
    level: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct Step {
    #[command(flatten)]
    network: NetworkArgs,
    /// Rows of the memory bank
    #[arg(long, default_value_t = 50_000)]
    bank: usize,
}

#[derive(Args)]
pub struct Infer {
    #[command(flatten)]
    network: NetworkArgs,
}

#[derive(Args)]
pub struct Kmeans {
    /// Vectors
    #[arg(long, default_value_t = 50_000, conflicts_with = "input")]
    n: usize,
    /// Their length
    #[arg(long, default_value_t = 128, conflicts_with = "input")]
    dim: usize,
    /// The vectors: a NumPy file of float32, one row each
    #[arg(long, value_name = "FILE.npy")]
    input: Option<PathBuf>,
    /// Clusters
    #[arg(long, default_value_t = 1000, conflicts_with = "start")]
    k: usize,
    /// The first centroids: a NumPy file of float32, one row each [default: random vectors]
    #[arg(long, value_name = "FILE.npy")]
    start: Option<PathBuf>,
    /// Iterations
    #[arg(long, default_value_t = 20)]
    iters: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct Knn {
    /// Vectors to search
    #[arg(long, default_value_t = 50_000, conflicts_with = "input")]
    n: usize,
    /// Vectors to search for
    #[arg(long, default_value_t = 10_000, conflicts_with = "input")]
    queries: usize,
    /// Their length
    #[arg(long, default_value_t = 128, conflicts_with = "input")]
    dim: usize,
    /// The vectors to search, of unit length: a NumPy file of float32, one row each
    #[arg(long, value_name = "FILE.npy", requires = "query_input")]
    input: Option<PathBuf>,
    /// The vectors to search for, likewise
    #[arg(long, value_name = "FILE.npy", requires = "input")]
    query_input: Option<PathBuf>,
    /// Neighbours
    #[arg(long, default_value_t = 200)]
    k: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct Tsne {
    /// Vectors
    #[arg(long, default_value_t = 2000, conflicts_with = "input")]
    n: usize,
    /// Their length
    #[arg(long, default_value_t = 128, conflicts_with = "input")]
    dim: usize,
    /// The vectors, of unit length: a NumPy file of float32, one row each
    #[arg(long, value_name = "FILE.npy")]
    input: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
pub struct Augment {
    /// Side of image and view
    #[arg(long, default_value_t = 32)]
    size: usize,
    /// Views per image
    #[arg(long, default_value_t = 2)]
    views: u32,
    /// Images that count
    #[arg(long, default_value_t = 5000)]
    iters: usize,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(verb: Verb, stop: &Cancel) -> Result<()> {
    match verb {
        Verb::Step(args) => {
            super::use_threads(args.network.common.threads)?;
            step(&args, stop)
        }
        Verb::Infer(args) => {
            super::use_threads(args.network.common.threads)?;
            infer(&args, stop)
        }
        Verb::Kmeans(args) => {
            super::use_threads(args.common.threads)?;
            bench_kmeans(&args, stop)
        }
        Verb::Knn(args) => {
            super::use_threads(args.common.threads)?;
            bench_knn(&args, stop)
        }
        Verb::Tsne(args) => {
            super::use_threads(args.common.threads)?;
            bench_tsne(&args, stop)
        }
        Verb::Boxes(args) => {
            super::use_threads(args.common.threads)?;
            boxes::run(&args, stop)
        }
        Verb::Augment(args) => {
            super::use_threads(1)?;
            augment(&args, stop)
        }
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

/// Makes the network's kernels use the instructions asked for.
fn use_level(asked: &str) -> Result<()> {
    let all = kernels::Level::all();
    match all.iter().find(|level| format!("{level:?}").eq_ignore_ascii_case(asked)) {
        Some(level) => {
            kernels::force_level(Some(*level));
            Ok(())
        }
        None => Err(Error::usage(
            format!("this CPU has no level {asked}"),
            format!("it has {}", listed(all.iter().map(|level| format!("{level:?}").to_lowercase()))),
        )),
    }
}

fn level() -> String {
    format!("{:?}", kernels::level()).to_lowercase()
}

fn build(args: &NetworkArgs) -> Result<(Network, Batch)> {
    if let Some(level) = &args.level {
        use_level(level)?;
    }
    let arch: Arch = toml::Value::String(args.arch.clone()).try_into().map_err(|_| {
        Error::usage(format!("there is no network {}", args.arch), "use resnet18, alexnet or alexnet224")
    })?;
    let size = args.size.unwrap_or(if arch == Arch::Alexnet224 { 224 } else { 32 });
    positive(&[("width", args.width), ("batch", args.batch), ("size", size), ("iters", args.iters)])?;
    if size > 1024 || args.width > 4096 || args.batch > 65_536 {
        return Err(Error::usage(
            format!("--size is {size}, --width {}, --batch {}", args.width, args.batch),
            "give 1024 pixels, 4096 channels and 65,536 images at the most",
        ));
    }
    let config = pcp::config::Network { arch, width: args.width, ..Config::default().network };
    let network = Network::new(&config, size)?;
    let pixels = random(args.batch * size * size, 3, 0).values;
    Ok((network, Batch { rows: args.batch, pixels }))
}

/// Numbers for nothing in particular: normal, the same every time.
fn random(rows: usize, dim: usize, index: u64) -> Matrix {
    let key = Key { purpose: Purpose::Synthetic, seed: 0, round: 0, epoch: 0 };
    let mut stream = key.stream(index, 0);
    Matrix { rows, dim, values: (0..rows * dim).map(|_| stream.normal()).collect() }
}

fn step(args: &Step, stop: &Cancel) -> Result<()> {
    let n = &args.network;
    positive(&[("bank", args.bank)])?;
    let (network, batch) = build(n)?;
    let (rows, iters, bank_rows) = (n.batch, n.iters, args.bank);
    let seconds = stop.run(move || {
        let mut weights = network.init(0);
        let mut optimizer = Optimizer::new(&weights);
        let bank = Bank { rows: random(bank_rows, network.embedding, 1).normalised(), momentum: 0.5 };
        let positives = Positives::instances(bank_rows);
        let samples: Vec<usize> = (0..rows).map(|i| i * 7919 % bank_rows).collect();
        let ids: Vec<u64> = samples.iter().map(|s| *s as u64).collect();
        let key = Key { purpose: Purpose::Dropout, seed: 0, round: 0, epoch: 0 };
        let sgd = kernels::Sgd { lr: 0.03, momentum: 0.9, decay: 5e-4, nesterov: false };
        let mut started = Instant::now();
        for i in 0..iters + 2 {
            if i == 2 {
                started = Instant::now();
            }
            let dropout = DropoutKey { key, ids: ids.clone() };
            let step = network.step(&weights, batch.clone(), 1, dropout, FeatureKind::Embedding, |v| {
                let loss = bank_loss(v, &samples, &bank.rows, &positives, 0.1, LossForm::Logsum);
                (loss.each, loss.gradient)
            });
            weights.update_running_stats(&step.moments);
            optimizer.step(&mut weights, step.gradients, sgd);
        }
        started.elapsed().as_secs_f64()
    })?;
    let rate = (rows * iters) as f64 / seconds;
    show(
        n.common.json,
        "training",
        &json!({
            "images_per_second": rate, "seconds_per_step": seconds / iters as f64, "arch": n.arch, "width": n.width,
            "batch": rows, "bank": args.bank, "level": level(), "threads": rayon::current_num_threads(), "cpu": cpu(),
        }),
    )
}

fn infer(args: &Infer, stop: &Cancel) -> Result<()> {
    let n = &args.network;
    let (network, batch) = build(n)?;
    let (rows, iters) = (n.batch, n.iters);
    let seconds = stop.run(move || {
        let weights = network.init(0);
        let mut started = Instant::now();
        for i in 0..iters + 2 {
            if i == 2 {
                started = Instant::now();
            }
            network.features(&weights, &batch, FeatureKind::Embedding);
        }
        started.elapsed().as_secs_f64()
    })?;
    show(
        n.common.json,
        "inference",
        &json!({
            "images_per_second": (rows * iters) as f64 / seconds, "arch": n.arch, "width": n.width, "batch": rows,
            "level": level(), "threads": rayon::current_num_threads(), "cpu": cpu(),
        }),
    )
}

fn bench_kmeans(args: &Kmeans, stop: &Cancel) -> Result<()> {
    positive(&[("n", args.n), ("dim", args.dim), ("k", args.k), ("iters", args.iters)])?;
    let features = match &args.input {
        Some(path) => read_matrix(path)?,
        None => random(args.n, args.dim, 2).normalised(),
    };
    let start = args.start.as_deref().map(read_matrix).transpose()?;
    let (n, dim) = (features.rows, features.dim);
    let (k, iters) = (start.as_ref().map_or(args.k, |s| s.rows), args.iters);
    let asked = stop.clone();
    let (seconds, found) = stop.run(move || {
        let settings = KMeans { iterations: iters, start: start.as_ref(), ..KMeans::new(k) };
        let started = Instant::now();
        let found = kmeans_with(&features, &settings, &mut |_| asked.check());
        (started.elapsed().as_secs_f64(), found)
    })?;
    show(
        args.common.json,
        "k-means",
        &json!({
            "seconds": seconds, "objective": found?.objective, "n": n, "dim": dim, "k": k, "iters": iters,
            "threads": rayon::current_num_threads(), "cpu": cpu(),
        }),
    )
}

fn bench_knn(args: &Knn, stop: &Cancel) -> Result<()> {
    let k = args.k;
    positive(&[("n", args.n), ("queries", args.queries), ("dim", args.dim), ("k", k)])?;
    let (bank, asked) = match (&args.input, &args.query_input) {
        (Some(bank), Some(queries)) => (read_matrix(bank)?, read_matrix(queries)?),
        _ => (random(args.n, args.dim, 3).normalised(), random(args.queries, args.dim, 4).normalised()),
    };
    if k > bank.rows {
        return Err(Error::usage(format!("--k is {k}, and there are {} rows", bank.rows), "give a smaller --k"));
    }
    if bank.dim != asked.dim {
        return Err(Error::usage(
            format!("--input has rows of {}, --query-input of {}", bank.dim, asked.dim),
            "give rows of the same length",
        ));
    }
    let (n, queries, dim) = (bank.rows, asked.rows, bank.dim);
    let (seconds, found) = stop.run(move || {
        let started = Instant::now();
        let found = nearest(&asked, &bank, k, false, &|_| ());
        (started.elapsed().as_secs_f64(), found)
    })?;
    let mean = found.similarity.iter().map(|s| f64::from(*s)).sum::<f64>() / found.similarity.len().max(1) as f64;
    show(
        args.common.json,
        "kNN",
        &json!({
            "seconds": seconds, "mean_similarity": mean, "n": n, "queries": queries, "dim": dim, "k": k,
            "threads": rayon::current_num_threads(), "cpu": cpu(),
        }),
    )
}

fn bench_tsne(args: &Tsne, stop: &Cancel) -> Result<()> {
    positive(&[("n", args.n), ("dim", args.dim)])?;
    let features = match &args.input {
        Some(path) => read_matrix(path)?,
        None => random(args.n, args.dim, 6).normalised(),
    };
    let (n, dim, asked) = (features.rows, features.dim, stop.clone());
    let (seconds, trust) = stop.run(move || -> Result<(f64, Option<f64>)> {
        let started = Instant::now();
        let places = tsne(&features, &tsne::Tsne::default(), &mut |_| asked.check())?;
        let seconds = started.elapsed().as_secs_f64();
        Ok((seconds, trustworthiness(&features, &places, 5)))
    })??;
    show(
        args.common.json,
        "t-SNE",
        &json!({
            "seconds": seconds, "trustworthiness": trust, "n": n, "dim": dim,
            "threads": rayon::current_num_threads(), "cpu": cpu(),
        }),
    )
}

fn augment(args: &Augment, stop: &Cancel) -> Result<()> {
    let &Augment { size, views, iters, .. } = args;
    positive(&[("size", size), ("views", views as usize), ("iters", iters)])?;
    let seconds = stop.run(move || {
        let pixels = random(size * size, 3, 5).values.into_iter().map(|x| (x * 60.0 + 128.0).clamp(0.0, 255.0) as u8);
        let image = Image { width: size, height: size, pixels: pixels.collect() };
        let augmenter = Augmenter { size, margin: 1.0, mean: [0.5; 3], std: [0.25; 3], recipe: Recipe::default() };
        let key = Key { purpose: Purpose::View, seed: 0, round: 0, epoch: 0 };
        let mut out = vec![0.0f32; size * size * 3];
        let started = Instant::now();
        for i in 0..iters {
            for view in 0..views {
                augmenter.train_view(&image, &mut key.stream(i as u64, view), &mut out);
            }
        }
        started.elapsed().as_secs_f64()
    })?;
    show(
        args.json,
        "augmentation",
        &json!({
            "images_per_second": iters as f64 / seconds, "microseconds_per_view": seconds * 1e6 / (iters as f64 * f64::from(views)),
            "size": size, "views": views, "threads": 1, "cpu": cpu(),
        }),
    )
}

fn show(as_json: bool, what: &str, report: &serde_json::Value) -> Result<()> {
    if as_json {
        return super::print_json(report);
    }
    let number = |v: &serde_json::Value| match v.as_f64() {
        Some(x) if !v.is_u64() => format!("{x:.4}"),
        _ => v.to_string().trim_matches('"').to_string(),
    };
    let rows: Vec<(String, String)> =
        report.as_object().into_iter().flatten().map(|(k, v)| (k.replace('_', " "), number(v))).collect();
    super::print(&format!("{what}\n{}", table::columns(&rows)))
}
