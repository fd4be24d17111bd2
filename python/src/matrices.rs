//! Functions on matrices: k-means, neighbours, purification, wrong labels.

use crate::array::{array, indices, matrix};
use crate::task::{part, run};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pcp::jobs::{ClusterCount, KMeansOptions, LabelSummary, PurifyOptions, purify as purify_job};
use pcp_core::cluster_count::choose;
use pcp_core::error::{Error, Result};
use pcp_core::kmeans::{Clusters, KMeans, MultiStart, assign as assign_rows, best_of, kmeans_with};
use pcp_core::label_errors::{Verdict, check, ranked};
use pcp_core::matrix::{Matrix, Metric};
use pcp_core::neighbours::nearest as nearest_rows;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(kmeans, module)?)?;
    module.add_function(wrap_pyfunction!(assign, module)?)?;
    module.add_function(wrap_pyfunction!(nearest, module)?)?;
    module.add_function(wrap_pyfunction!(purify, module)?)?;
    module.add_function(wrap_pyfunction!(label_issues, module)?)
}

fn metric_of(name: &str) -> PyResult<Metric> {
    match name {
        "cosine" => Ok(Metric::Cosine),
        "euclidean" => Ok(Metric::Euclidean),
        _ => Err(PyValueError::new_err(format!("metric is {name:?}; it may be 'cosine' or 'euclidean'"))),
    }
}

/// Labels, centroids, distances, the sum of their squares, and the (k, silhouette) that were tried.
type KMeansAnswer<'py> =
    (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray2<f32>>, Bound<'py, PyArray1<f32>>, f64, Vec<(usize, f64)>);

/// `k` is a number, or 0 for the one with the greatest silhouette. `start` is the first centroids; without, k-means++ from `starts` starts, or
/// with `random` distinct rows.
#[pyfunction]
#[pyo3(signature = (x, k, metric, start, random, starts, iterations, seed, progress))]
#[allow(clippy::too_many_arguments)]
fn kmeans<'py>(
    py: Python<'py>,
    x: PyReadonlyArray2<'py, f32>,
    k: usize,
    metric: &str,
    start: Option<PyReadonlyArray2<'py, f32>>,
    random: bool,
    starts: u32,
    iterations: usize,
    seed: u64,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<KMeansAnswer<'py>> {
    let metric = metric_of(metric)?;
    let (rows, start) = (matrix(&x)?, start.map(|start| matrix(&start)).transpose()?);
    let (found, tried) = run(py, progress.as_ref(), move |observer| {
        let rows = std::sync::Arc::new(metric.prepared(rows));
        let mut fit = MultiStart { k: 0, metric, iterations, starts, seed };
        let mut tried = Vec::new();
        fit.k = match k {
            1.. => k,
            0 => {
                let rows = rows.clone();
                let chosen = part("choosing k", observer, move |step| choose(&rows, &fit, step))?;
                tried = chosen.tried.iter().map(|t| (t.k, t.score)).collect();
                chosen.k
            }
        };
        let found = part("clustering", observer, move |step| match (start, random) {
            (None, false) => fit.run(&rows, step),
            (start, _) => from(&fit, &rows, start.map(|start| metric.prepared(start)), step),
        })?;
        Ok((found, tried))
    })?;
    let Clusters { assignment, centroids, distances, objective } = found;
    let distances = PyArray1::from_vec(py, distances);
    Ok((indices(py, assignment), array(py, centroids)?, distances, objective, tried))
}

/// K-means from given first centroids, or from random rows.
fn from(fit: &MultiStart, rows: &Matrix, start: Option<Matrix>, step: pcp_core::cancel::Progress) -> Result<Clusters> {
    let starts = if start.is_some() { 1 } else { fit.starts };
    let each = fit.iterations + 1;
    best_of(starts, |i| {
        let settings = KMeans {
            iterations: fit.iterations,
            spherical: fit.metric == Metric::Cosine,
            start: start.as_ref(),
            seed: fit.seed,
            draw: (0, i),
            ..KMeans::new(fit.k)
        };
        kmeans_with(rows, &settings, &mut |done| step(i as usize * each + done, starts as usize * each))
    })
}

/// Labels and distances.
type AssignAnswer<'py> = (Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<f32>>);

/// The nearest centroid of every row, and the Euclidean distance to it.
#[pyfunction]
fn assign<'py>(
    py: Python<'py>,
    x: PyReadonlyArray2<'py, f32>,
    centroids: PyReadonlyArray2<'py, f32>,
    metric: &str,
) -> PyResult<AssignAnswer<'py>> {
    let metric = metric_of(metric)?;
    let (rows, centroids) = (matrix(&x)?, matrix(&centroids)?);
    let (nearest, distances) = run(py, None, move |observer| {
        part("assigning", observer, move |_| Ok(assign_rows(&metric.prepared(rows), &centroids)))
    })?;
    Ok((indices(py, nearest), PyArray1::from_vec(py, distances)))
}

/// Cosines and rows.
type NearestAnswer<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<i32>>);

/// The `k` rows of `bank` with the greatest cosine, and the cosines, for every query; without queries for every row of the bank, itself left out.
#[pyfunction]
#[pyo3(signature = (queries, bank, k, progress))]
fn nearest<'py>(
    py: Python<'py>,
    queries: Option<PyReadonlyArray2<'py, f32>>,
    bank: PyReadonlyArray2<'py, f32>,
    k: usize,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<NearestAnswer<'py>> {
    let bank = matrix(&bank)?;
    let queries = queries.map(|queries| matrix(&queries)).transpose()?;
    let rows = queries.as_ref().map_or(bank.rows, |queries| queries.rows);
    let found = run(py, progress.as_ref(), move |observer| {
        let inside = observer.clone();
        observer.begin("searching", rows);
        let found = observer.cancel().run(move || {
            let bank = Metric::Cosine.prepared(bank);
            let tick = |units| inside.advance(units);
            match queries {
                Some(queries) => nearest_rows(&Metric::Cosine.prepared(queries), &bank, k, false, &tick),
                None => nearest_rows(&bank, &bank, k, true, &tick),
            }
        });
        observer.end();
        found
    })?;
    let (k, index) = (found.k, indices(py, found.index));
    Ok((PyArray1::from_vec(py, found.similarity).reshape([rows, k])?, index.reshape([rows, k])?))
}

/// Purifies clusters of `x`; `past` are earlier matrices of the same rows, the oldest first. `k` is a number, 0 for the greatest silhouette, `None`
/// for one per 50 rows. `votes` 0 leaves CP_s out. The answer has arrays and the key figures as JSON.
#[pyfunction]
#[pyo3(signature = (x, past, k, gamma, votes, alpha, lower, upper, metric, starts, iterations, seed, progress))]
#[allow(clippy::too_many_arguments)]
fn purify<'py>(
    py: Python<'py>,
    x: PyReadonlyArray2<'py, f32>,
    past: Vec<PyReadonlyArray2<'py, f32>>,
    k: Option<usize>,
    gamma: f64,
    votes: usize,
    alpha: Option<f64>,
    lower: Option<f64>,
    upper: Option<f64>,
    metric: &str,
    starts: u32,
    iterations: usize,
    seed: u64,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut embeddings = past.iter().map(|past| Ok(matrix(past)?.into())).collect::<PyResult<Vec<_>>>()?;
    embeddings.push(matrix(&x)?.into());
    let kmeans = KMeansOptions { metric: metric_of(metric)?, starts, iterations, seed, ..KMeansOptions::default() };
    let options = PurifyOptions {
        embeddings,
        k: k.map(|k| if k > 0 { ClusterCount::Exactly(k) } else { ClusterCount::Auto }),
        gamma,
        votes,
        alpha,
        lower,
        upper,
        no_votes: votes == 0,
        kmeans,
        ..PurifyOptions::new(Matrix::default())
    };
    let found = run(py, progress.as_ref(), move |observer| purify_job(&options, observer))?;
    let answer = PyDict::new(py);
    let floats = |of: &dyn Fn(usize) -> f32| PyArray1::from_iter(py, (0..found.rows.len()).map(of));
    answer.set_item("cluster", indices(py, found.rows.iter().map(|row| row.cluster)))?;
    answer.set_item("status", found.rows.iter().map(|row| row.status.name()).collect::<Vec<_>>())?;
    answer.set_item("kept", PyArray1::from_iter(py, found.rows.iter().map(|row| row.status.belongs())))?;
    answer.set_item("distance", floats(&|i| found.rows[i].distance))?;
    answer.set_item("vote", floats(&|i| found.rows[i].vote.unwrap_or(f32::NAN)))?;
    answer.set_item("doubt", floats(&|i| found.rows[i].doubt))?;
    answer.set_item("suspicious", PyArray1::from_iter(py, found.suspicious.iter().map(|row| *row as i64)))?;
    answer.set_item("summary", json(py, &found.summary)?)?;
    Ok(answer)
}

/// Checks labels: indices below `classes`, or -1 for none. The answer has arrays and the key figures as JSON.
#[pyfunction]
#[pyo3(signature = (x, labels, classes, metric, seed, progress))]
fn label_issues<'py>(
    py: Python<'py>,
    x: PyReadonlyArray2<'py, f32>,
    labels: PyReadonlyArray1<'py, i64>,
    classes: usize,
    metric: &str,
    seed: u64,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (metric, rows) = (metric_of(metric)?, matrix(&x)?);
    let of: Vec<Option<u32>> = labels.as_array().iter().map(|label| u32::try_from(*label).ok()).collect();
    if of.len() != rows.rows || of.iter().flatten().any(|label| *label as usize >= classes) {
        return Err(PyValueError::new_err("there must be a label below the number of classes for every row"));
    }
    let inside = of.clone();
    let found = run(py, progress.as_ref(), move |observer| {
        part("checking", observer, move |step| {
            let count = rows.rows;
            check(&metric.prepared(rows), &inside, classes, seed, &mut |done| step(done, count))
        })
    })?;
    let (errors, doubtful) = ranked(&of, &found.verdicts);
    let wrong = |row: usize| found.verdicts[row].map_or(0.0, |verdict| verdict.wrong);
    let summary = LabelSummary {
        labels: of.iter().flatten().count(),
        noise: found.noise,
        weak: found.noise.is_some_and(|noise| noise.is_weak()),
        errors: errors.len(),
        expected: errors.iter().map(|row| f64::from(wrong(*row))).fold(0.0, |sum, wrong| sum + wrong),
        doubtful: doubtful.len(),
    };
    let answer = PyDict::new(py);
    let floats = |of: &dyn Fn(Verdict) -> f32| {
        PyArray1::from_iter(py, found.verdicts.iter().map(|verdict| verdict.map_or(f32::NAN, of)))
    };
    let rows = |rows: &[usize]| PyArray1::from_iter(py, rows.iter().map(|row| *row as i64));
    let suggested = found.verdicts.iter().map(|verdict| verdict.map_or(-1, |verdict| i64::from(verdict.suggested)));
    answer.set_item("suggested", PyArray1::from_iter(py, suggested))?;
    answer.set_item("doubt", floats(&|verdict| verdict.doubt))?;
    answer.set_item("wrong", floats(&|verdict| verdict.wrong))?;
    answer.set_item("errors", rows(&errors))?;
    answer.set_item("doubtful", rows(&doubtful))?;
    answer.set_item("sentence", summary.sentence())?;
    answer.set_item("summary", json(py, &summary)?)?;
    Ok(answer)
}

/// A value as JSON, for Python to read.
pub fn json(py: Python<'_>, value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|e| crate::fault::raised(py, &Error::file(e.to_string(), "please report this")))
}
