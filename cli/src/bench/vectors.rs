//! `pcp bench kmeans`, `knn` and `tsne`.

use super::{BenchCommon, positive, random, show};
use clap::Args;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::npy::read_matrix;
use pcp_core::kmeans::{Clusters, KMeans, Search, kmeans_with};
use pcp_core::matmul::matmul;
use pcp_core::matrix::Matrix;
use pcp_core::neighbours::nearest;
use pcp_core::scores::trustworthiness;
use pcp_core::tsne::{Tsne, tsne as embed};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
pub struct KmeansArgs {
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
    /// Directions in which the made-up vectors vary, fewer than their length as in embeddings of images [default: --dim]
    #[arg(long, value_name = "D", conflicts_with = "input")]
    vary: Option<usize>,
    /// How the nearest centroid is searched: auto, exact or cells
    #[arg(long, default_value = "auto", value_parser = search)]
    search: Search,
    /// Also cluster by the exact search, and tell the share of rows with the same cluster and the ratio of the objectives: after
    /// the first assignment, and at the end
    #[arg(long)]
    compare: bool,
    #[command(flatten)]
    pub(super) common: BenchCommon,
}

/// A search by its name.
fn search(name: &str) -> std::result::Result<Search, String> {
    match name {
        "auto" => Ok(Search::Auto),
        "exact" => Ok(Search::Exact),
        "cells" => Ok(Search::Cells),
        _ => Err("not auto, exact or cells".into()),
    }
}

#[derive(Args)]
pub struct KnnArgs {
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
    pub(super) common: BenchCommon,
}

#[derive(Args)]
pub struct TsneArgs {
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
    pub(super) common: BenchCommon,
}

pub(super) fn kmeans(args: &KmeansArgs, stop: &Cancel) -> Result<()> {
    positive(&[("n", args.n), ("dim", args.dim), ("k", args.k), ("iters", args.iters)])?;
    let features = match &args.input {
        Some(path) => read_matrix(path)?,
        None => match args.vary {
            None => random(args.n, args.dim, 2),
            Some(vary) => {
                positive(&[("vary", vary)])?;
                let (places, directions) = (random(args.n, vary, 2), random(vary, args.dim, 5));
                let mut values = vec![0.0; args.n * args.dim];
                matmul(places.view(), directions.view(), &mut values, false);
                Matrix::new(args.dim, values)
            }
        }
        .normalised(),
    };
    let start = args.start.as_deref().map(read_matrix).transpose()?;
    let (n, dim) = (features.rows, features.dim);
    let (k, iters) = (start.as_ref().map_or(args.k, |s| s.rows), args.iters);
    let (asked, search, compare) = (stop.clone(), args.search, args.compare);
    let report = stop.run(move || -> Result<Value> {
        let once = |search: Search, iterations: usize| {
            let settings = KMeans { iterations, start: start.as_ref(), search, ..KMeans::new(k) };
            let began = Instant::now();
            let found = kmeans_with(&features, &settings, &mut |_| asked.check());
            found.map(|found| (began.elapsed().as_secs_f64(), found))
        };
        let (seconds, found) = once(search, iters)?;
        let mut report = json!({
            "seconds": seconds, "objective": found.objective, "n": n, "dim": dim, "k": k, "iters": iters,
            "search": if search.by_cells(n, k) { "cells" } else { "exact" },
        });
        if compare {
            let equal = |a: &Clusters, b: &Clusters| {
                a.assignment.iter().zip(&b.assignment).filter(|(a, b)| a == b).count() as f64 / n as f64
            };
            let ((_, one), (_, exact_one)) = (once(search, 0)?, once(Search::Exact, 0)?);
            let (exact_seconds, exact) = once(Search::Exact, iters)?;
            report["exact_seconds"] = exact_seconds.into();
            report["same_cluster_first"] = equal(&one, &exact_one).into();
            report["objective_ratio_first"] = (one.objective / exact_one.objective).into();
            report["same_cluster"] = equal(&found, &exact).into();
            report["objective_ratio"] = (found.objective / exact.objective).into();
        }
        Ok(report)
    })??;
    show(args.common.json, "k-means", report)
}

pub(super) fn knn(args: &KnnArgs, stop: &Cancel) -> Result<()> {
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
        json!({
            "seconds": seconds, "mean_similarity": mean, "n": n, "queries": queries, "dim": dim, "k": k,
        }),
    )
}

pub(super) fn tsne(args: &TsneArgs, stop: &Cancel) -> Result<()> {
    positive(&[("n", args.n), ("dim", args.dim)])?;
    let features = match &args.input {
        Some(path) => read_matrix(path)?,
        None => random(args.n, args.dim, 6).normalised(),
    };
    let (n, dim, asked) = (features.rows, features.dim, stop.clone());
    let (seconds, trust) = stop.run(move || -> Result<(f64, Option<f64>)> {
        let started = Instant::now();
        let places = embed(&features, &Tsne::default(), &mut |_| asked.check())?;
        let seconds = started.elapsed().as_secs_f64();
        Ok((seconds, trustworthiness(&features, &places, 5)))
    })??;
    show(
        args.common.json,
        "t-SNE",
        json!({
            "seconds": seconds, "trustworthiness": trust, "n": n, "dim": dim,
        }),
    )
}
