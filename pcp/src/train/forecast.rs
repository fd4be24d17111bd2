//! An estimate of what a run will take, from a short trial of its parts: time, memory, disk, and the number of clusters over the epochs.

use super::Setup;
use super::trial::Trial;
use pcp_core::error::Result;
use serde::{Deserialize, Serialize};

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
    /// Seconds of all epochs, and of what comes before and after them but for the page.
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
    let trial = Trial::new(setup, 0.0)?;
    Ok(Forecast::by(&trial, setup))
}

impl Forecast {
    /// What the run of `setup` will take, by a trial of it.
    pub fn by(trial: &Trial, setup: &Setup) -> Forecast {
        let epochs = trial.epochs(setup, &setup.plan);
        let after = trial.begin + trial.end(setup, &setup.plan);
        let seconds = epochs.iter().map(|e| e.seconds).fold(after, |sum, seconds| sum + seconds);
        let disk = disk(setup, epochs.iter().filter(|e| e.clusters < setup.plan.samples()).count());
        Forecast { memory: setup.memory(), disk, step_seconds: trial.step, look_seconds: trial.embed, epochs, seconds }
    }
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
