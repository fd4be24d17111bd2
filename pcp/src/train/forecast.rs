//! An estimate of what a run will take, from a short trial of its parts: time, memory, disk, and the number of clusters over the epochs.

use super::Setup;
use super::setup::training_bytes;
use super::trial::Trial;
use crate::config::System;
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
    /// What it would take with several processes, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<Spread>,
}

/// What a run takes that several processes share, each on a machine like this one. By the model of docs/scale.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many.
    pub processes: usize,
    /// Bytes of memory of each: images, bank and features, network and a step.
    pub memory: [f64; 3],
    /// Bytes that each receives in a step of the first epoch: views, embeddings with their gradients, statistics of batch norm, gradients of
    /// the weights.
    pub step_bytes: [f64; 4],
    /// Messages in a step.
    pub step_messages: usize,
    /// Bytes that each receives in an assignment of k-means: the clusters of the others' images.
    pub assignment_bytes: f64,
    /// Bytes that each receives before an epoch that clusters: the features of the others' images.
    pub feature_bytes: f64,
    /// Seconds of a step: computing, and messages at [`Spread::LINK`].
    pub step_seconds: [f64; 2],
    /// Seconds in all, as far as they are divided.
    pub seconds: f64,
}

impl Spread {
    /// Bytes a second and seconds a message between machines that the model assumes: ten gigabits, twenty microseconds.
    pub const LINK: (f64, f64) = (1.25e9, 20e-6);

    /// What a step of `setup` costs each of `processes`, when it takes one `alone` seconds and the whole run `seconds`.
    pub fn new(setup: &Setup, processes: usize, alone: f64, seconds: f64) -> Spread {
        let (plan, network, method) = (&setup.plan, &setup.network, setup.method);
        let (p, n) = (processes as f64, plan.samples() as f64);
        let batch = plan.config.train.batch.min(plan.samples());
        let (images, views) = (batch as f64, method.views(plan, (0, 0)) as f64);
        let parts = method.parts(plan, (0, 0), batch) as f64;
        let (dim, others) = (plan.config.network.embedding as f64, (p - 1.0) / p);
        let pixels = (3 * network.size * network.size * 4) as f64;
        let channels: f64 = network.norm_channels().iter().map(|c| *c as f64).sum();
        let layers = network.norm_channels().len();
        // Parts with fewer rows than processes are not divided: everyone computes all of them, and tells nobody.
        let divided = images * views / parts >= p;
        let share = if divided { 1.0 / p } else { 1.0 };
        let within = if divided { others } else { 0.0 };
        // The sums of the softmax over the bank, or over the queue, and the gradients by the embeddings: of the bank, each process has a part
        // of every sum.
        let summed = 4.0 * images * dim * others;
        let of_bank = match plan.config.method.system {
            System::Pcp | System::Ir | System::And | System::La => 2.0 * summed + 16.0 * images * (p - 1.0),
            System::Moco => summed,
            _ => 0.0,
        };
        let step_bytes = [
            views * images * share * pixels * others,
            views * images * dim * 4.0 * within + of_bank,
            // Forward: rows, means and squares; backward: two sums.
            if divided { 8.0 * (layers as f64 + 4.0 * parts * channels) * (p - 1.0) } else { 0.0 },
            2.0 * network.parameter_count() as f64 * 4.0 * within,
        ];
        // Agreement to stop and to save; views (2); embeddings; losses and their gradients (3); two for every batch norm; gradients of the
        // weights (3).
        let step_messages = if divided { 11 + 2 * layers } else { 5 };
        let (rate, latency) = Self::LINK;
        let told = step_bytes.iter().sum::<f64>() / rate + step_messages as f64 * latency;
        let [held, ..] = setup.memory();
        let shown = (images * share).ceil() as usize * views as usize;
        let step = alone * share + told;
        Spread {
            processes,
            memory: [
                held / p,
                setup.vector_bytes(processes),
                training_bytes(network, shown, usize::from(method.has_key_encoder())),
            ],
            step_bytes,
            step_messages,
            assignment_bytes: 4.0 * n * others,
            feature_bytes: 4.0 * n * dim * others,
            step_seconds: [alone * share, told],
            seconds: if alone > 0.0 { seconds * step / alone } else { seconds / p },
        }
    }
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
/// With a number of `processes`, also what as many would take.
pub fn forecast(setup: &Setup, processes: Option<usize>) -> Result<Forecast> {
    let trial = Trial::new(setup, 0.0)?;
    let found = Forecast::by(&trial, setup);
    let processes = processes.map(|n| Spread::new(setup, n, found.step_seconds[0], found.seconds));
    Ok(Forecast { processes, ..found })
}

impl Forecast {
    /// What the run of `setup` will take, by a trial of it.
    pub fn by(trial: &Trial, setup: &Setup) -> Forecast {
        let epochs = trial.epochs(setup, &setup.plan);
        let after = trial.learn + trial.begin + trial.end(setup, &setup.plan);
        let seconds = epochs.iter().map(|e| e.seconds).fold(after, |sum, seconds| sum + seconds);
        let clustered = epochs.iter().filter(|e| e.clusters < setup.plan.samples()).count();
        let (mut memory, mut disk) = (setup.memory(), disk(setup, clustered));
        if setup.plan.config.method.system == System::Patches {
            let vectors = 4.0 * (setup.plan.samples() * trial.dim) as f64;
            (memory[1], memory[2], disk) = (memory[1].max(2.0 * vectors), 0.0, vectors + REST);
        }
        let (step_seconds, look_seconds) = (trial.step, trial.embed);
        Forecast { memory, disk, step_seconds, look_seconds, epochs, seconds, processes: None }
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
