//! An estimate of what a run will take, from a short trial of its parts: time, memory, disk, and the number of clusters over the epochs.

use super::{Setup, find_targets, step};
use crate::config::ClusterFeatures;
use crate::data::loader::{Draw, Part, View};
use crate::method::{At, EpochTargets};
use pcp_core::error::Result;
use pcp_core::kmeans::assign;
use pcp_core::matrix::Matrix;
use pcp_core::rng::{Key, Purpose};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// Steps that are timed, after one that is not.
const STEPS: usize = 3;
/// Images that are embedded to time one.
const EMBEDDED: usize = 256;
/// Rows and centroids that are compared to time a comparison.
const COMPARED: (usize, usize) = (8192, 512);
/// Bytes of a sample in the clusters of an epoch: label, status, distance and vote, packed.
const CLUSTERED: f64 = 9.0;
/// Bytes of page, tables, logs and events, at the most.
const REST: f64 = 20e6;

/// What a run will take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Bytes of memory: images, bank and features, network and a step.
    pub memory: [f64; 3],
    /// Bytes on disk at the end.
    pub disk: f64,
    /// Seconds of a training step: in the first epoch, and in the last.
    pub step_seconds: [f64; 2],
    /// Seconds to embed one image.
    pub look_seconds: f64,
    /// Epochs, from first to last.
    pub epochs: Vec<Ahead>,
    /// Seconds of all epochs.
    pub seconds: f64,
}

/// An epoch to come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ahead {
    /// Which, from 1 over all rounds.
    pub epoch: u32,
    /// K_t; the number of samples where each is alone.
    pub clusters: usize,
    /// Seconds that it will take.
    pub seconds: f64,
}

/// Times a step, an embedding and a comparison of `setup`, and computes the rest from them. Nothing is written.
pub fn forecast(setup: &Setup) -> Result<Forecast> {
    let (plan, schedule) = (&setup.plan, &setup.plan.schedule);
    let (n, config) = (plan.samples(), &plan.config);
    let last = (config.train.rounds.saturating_sub(1), config.train.epochs.saturating_sub(1));
    let trains = config.train.rounds > 0;
    let seconds_per_step = match (trains, setup.method.views(plan, (0, 0)) == setup.method.views(plan, last)) {
        (false, _) => [0.0; 2],
        (true, true) => [step_seconds(setup, (0, 0))?; 2],
        (true, false) => [step_seconds(setup, (0, 0))?, step_seconds(setup, last)?],
    };
    let look_seconds = embed_seconds(setup)?;
    let comparison = comparison(config.network.embedding);
    let (mut epochs, mut seconds) = (Vec::new(), 0.0);
    for at in (0..config.train.rounds).flat_map(|round| (0..config.train.epochs).map(move |epoch| (round, epoch))) {
        let views = setup.method.views(plan, at);
        let step = if views == setup.method.views(plan, (0, 0)) { seconds_per_step[0] } else { seconds_per_step[1] };
        let needed = setup.method.needed_features(plan, at);
        let seen = needed.filter(|needed| needed.view != ClusterFeatures::Bank).map_or(0, |_| n);
        let clusters = schedule.clusters(at.0, at.1);
        let clusters = if needed.is_none() || schedule.all_instances(clusters) { n } else { clusters };
        let assignments = if clusters < n { setup.method.clustering_steps(plan) } else { 0 };
        let probed =
            if schedule.probes(at.0, at.1) { setup.probe.as_ref().map_or(0, |probe| probe.images()) } else { 0 };
        let took = setup.method.steps(plan) as f64 * step
            + (seen + probed) as f64 * look_seconds
            + (assignments * n) as f64 * clusters as f64 * comparison;
        epochs.push(Ahead { epoch: schedule.finished_epochs(at.0, at.1), clusters, seconds: took });
        seconds += took;
    }
    let disk = disk(setup, epochs.iter().filter(|e| e.clusters < n).count());
    Ok(Forecast { memory: setup.memory(), disk, step_seconds: seconds_per_step, look_seconds, epochs, seconds })
}

/// Seconds of a step in the epoch `at`, on made-up features. Its functions are the training loop's own.
fn step_seconds(setup: &Setup, at: At) -> Result<f64> {
    let (plan, method, mut state) = (&setup.plan, setup.method, setup.begin()?);
    (state.progress.round, state.progress.epoch) = at;
    let tap = method.needed_features(plan, at).map_or(method.tap(), |needed| needed.tap);
    let mut found = find_targets(setup, &mut state, made_up(plan.samples(), setup.network.dim(tap)))?;
    state.memory.begin_epoch(&mut found);
    let targets = Arc::new(EpochTargets::new(found, plan.samples()));
    let batches: Vec<Vec<Draw>> = method.batches(plan, at, &targets).into_iter().take(STEPS + 1).collect();
    // The first is slower than the others: it counts only where it is the only one.
    let warms_up = batches.len() > 1;
    let timed = batches.len() - usize::from(warms_up);
    let mut began = Instant::now();
    for (i, made) in setup.loader.stream(Part::Train, batches, setup.views(at)).enumerate() {
        let (draws, batch) = made?;
        step(setup, &state, &targets, &draws, batch)?;
        if i == 0 && warms_up {
            began = Instant::now();
        }
    }
    Ok(began.elapsed().as_secs_f64() / timed.max(1) as f64)
}

/// Seconds to embed one image.
fn embed_seconds(setup: &Setup) -> Result<f64> {
    let rows: Vec<usize> = (0..setup.plan.samples().min(EMBEDDED)).collect();
    let weights = setup.initial()?;
    let began = Instant::now();
    let batch = setup.loader.batch(Part::Train, &Draw::first(&rows), &[View::Clean])?;
    setup.network.features(&weights, &batch, setup.method.tap());
    Ok(began.elapsed().as_secs_f64() / rows.len().max(1) as f64)
}

/// Seconds of the comparison of a row with a centroid.
fn comparison(dim: usize) -> f64 {
    let (rows, centroids) = (made_up(COMPARED.0, dim), made_up(COMPARED.1, dim));
    assign(&rows, &centroids);
    let began = Instant::now();
    assign(&rows, &centroids);
    began.elapsed().as_secs_f64() / (rows.rows * centroids.rows) as f64
}

/// Random rows of unit length.
fn made_up(rows: usize, dim: usize) -> Matrix {
    let key = Key { purpose: Purpose::Synthetic, seed: 0, round: 0, epoch: 0 };
    let row = |i: usize| {
        let mut stream = key.stream(i as u64, 0);
        (0..dim).map(move |_| stream.normal()).collect::<Vec<f32>>()
    };
    Matrix { rows, dim, values: (0..rows).flat_map(row).collect() }.normalised()
}

/// Bytes on disk at the end: two checkpoints, models, embeddings, clusters of every epoch.
fn disk(setup: &Setup, clustered: usize) -> f64 {
    let (n, config) = (setup.plan.samples() as f64, &setup.plan.config);
    let weights = setup.network.parameter_count() as f64 * 4.0;
    let vectors = n * config.network.embedding as f64 * 4.0;
    let history = n * 4.0 * setup.plan.schedule.history as f64;
    let keys = if setup.method.has_key_encoder() { weights } else { 0.0 };
    let models = weights * (2.0 + f64::from(config.run.snapshots));
    2.0 * (2.0 * weights + keys + vectors + history) + models + vectors + n * CLUSTERED * clustered as f64 + REST
}
