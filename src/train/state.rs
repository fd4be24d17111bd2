//! Everything that training knows at a moment: what a checkpoint holds, saved together.

use crate::backbone::{Named, Network, Optimizer, Weights};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::features::Features;
use crate::memory::Bank;
use crate::method::pcp::{BatchLoss, Supervision};
use crate::purify::{History, Positives, Status};
use crate::tensors::{Array, Tensors};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The state of a run between two steps.
pub struct State {
    /// Where it is, and what it has summed up.
    pub progress: Progress,
    /// The network's numbers.
    pub weights: Weights,
    /// Momentum.
    pub optimizer: Optimizer,
    /// The memory bank.
    pub bank: Arc<Bank>,
    /// Clusterings that vote.
    pub history: History,
    /// Raw clusters of the epoch before, for churn.
    pub previous: Option<Vec<u32>>,
    /// Centroids of the last clustering, when warm starts are on.
    pub centroids: Option<Features>,
    /// What this epoch learns from, once it is clustered.
    pub lesson: Option<Lesson>,
}

/// What an epoch learns from.
#[derive(Clone, Debug, PartialEq)]
pub struct Lesson {
    /// Raw cluster of every sample.
    pub labels: Option<Vec<u32>>,
    /// Positive sets.
    pub positives: Arc<Positives>,
    /// Counts for the record.
    pub counts: Counts,
}

/// Counts of an epoch's clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// K_t.
    pub clusters: usize,
    /// Clusters that have members.
    pub non_empty: usize,
    /// Samples pulled back.
    pub pulled_back: usize,
    /// Samples dropped.
    pub dropped: usize,
    /// Share of the largest cluster.
    pub largest: f64,
    /// Share of samples whose partners changed.
    pub churn: Option<f64>,
}

/// Where a run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Round.
    pub round: u32,
    /// Epoch within the round.
    pub epoch: u32,
    /// Batches of this epoch that are done.
    pub batch: usize,
    /// Sums of this epoch.
    pub sums: Sums,
    /// The best probe so far: accuracy, and epochs over all rounds.
    pub best: Option<(f64, u32)>,
    /// The last probe.
    pub last: Option<f64>,
    /// Seconds of work.
    pub seconds: f64,
    /// Lines of `metrics.jsonl`.
    pub metrics_lines: usize,
    counts: Option<Counts>,
}

/// Sums over the batches of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// Samples seen.
    pub samples: usize,
    /// Total loss.
    pub total: f64,
    /// Bank loss of instances, and their number.
    pub instance: (f64, usize),
    /// Bank loss of samples with positives, and their number.
    pub cluster: (f64, usize),
    /// Warm-up loss, and samples that had it.
    pub spreading: (f64, usize),
    /// Seconds for features.
    pub feature_seconds: f64,
    /// Seconds for clusters.
    pub cluster_seconds: f64,
    /// Seconds for training.
    pub train_seconds: f64,
}

impl Progress {
    /// Where the run is, in words.
    pub fn place(&self, rounds: u32) -> String {
        match self.round < rounds {
            true => format!("in round {}, epoch {}, after {} batches", self.round, self.epoch, self.batch),
            false => "after the last epoch, while finishing".to_string(),
        }
    }
}

impl Sums {
    /// Adds a batch.
    pub fn add(&mut self, loss: &BatchLoss) {
        self.samples += loss.samples;
        self.total += loss.total;
        self.instance = (self.instance.0 + loss.instance.0, self.instance.1 + loss.instance.1);
        self.cluster = (self.cluster.0 + loss.cluster.0, self.cluster.1 + loss.cluster.1);
        if let Some(spreading) = loss.spreading {
            self.spreading = (self.spreading.0 + spreading, self.spreading.1 + loss.samples);
        }
    }
}

impl Lesson {
    /// Counts what supervision gave; `previous` is the clustering before.
    pub fn new(supervision: Supervision, previous: Option<&[u32]>) -> Self {
        let Supervision { clusters, labels, purified, .. } = supervision;
        let sizes = labels.as_deref().map(|l| sizes(l, clusters)).unwrap_or_default();
        let having = |status| purified.status.iter().filter(|s| **s == status).count();
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let counts = Counts {
            clusters,
            non_empty: match &labels {
                Some(_) => sizes.iter().filter(|n| **n > 0).count(),
                None => purified.status.len(),
            },
            pulled_back: having(Status::PulledBack),
            dropped: having(Status::Dropped),
            largest: largest as f64 / purified.status.len().max(1) as f64,
            churn: labels.as_deref().zip(previous).map(|(now, before)| churn(before, now)),
        };
        Lesson { labels, positives: Arc::new(purified.positives), counts }
    }
}

fn sizes(labels: &[u32], clusters: usize) -> Vec<usize> {
    let mut sizes = vec![0usize; clusters];
    for &label in labels {
        sizes[label as usize] += 1;
    }
    sizes
}

/// Share of samples whose set of cluster partners is not what it was.
pub fn churn(before: &[u32], now: &[u32]) -> f64 {
    let count = |labels: &[u32]| sizes(labels, labels.iter().max().map_or(0, |m| *m as usize + 1));
    let (old_sizes, new_sizes) = (count(before), count(now));
    // A new cluster is an old one unchanged when all its members come from one of the same size.
    let mut origin: Vec<Option<u32>> = vec![None; new_sizes.len()];
    let mut same: Vec<bool> = vec![true; new_sizes.len()];
    for (&old, &new) in before.iter().zip(now) {
        let new = new as usize;
        let from = *origin[new].get_or_insert(old);
        same[new] &= from == old && old_sizes[old as usize] == new_sizes[new];
    }
    let changed = now.iter().filter(|new| !same[**new as usize]).count();
    changed as f64 / now.len().max(1) as f64
}

impl State {
    /// The state before the first step.
    pub fn new(network: &Network, config: &Config, ids: &[u64]) -> Self {
        let seed = config.train.seed;
        let weights = network.init(seed);
        State {
            progress: Progress::default(),
            optimizer: Optimizer::new(&weights),
            weights,
            bank: Arc::new(Bank::new(ids, network.embedding, config.objective.bank_momentum as f32, seed)),
            history: History::default(),
            previous: None,
            centroids: None,
            lesson: None,
        }
    }

    /// Writes everything to `path`.
    pub fn save(&self, network: &Network, path: &Path) -> Result<()> {
        let mut arrays = BTreeMap::new();
        for Named { name, shape, values } in network.named(&self.weights) {
            arrays.insert(format!("model/{name}"), Array::F32(shape, values));
        }
        for (i, v) in self.optimizer.velocities().into_iter().enumerate() {
            arrays.insert(format!("velocity/{i:04}"), Array::F32(vec![v.len()], v));
        }
        for (name, f) in [("bank", Some(&self.bank.rows)), ("centroids", self.centroids.as_ref())] {
            let array = |f: &Features| Array::F32(vec![f.rows, f.dim], f.values.clone());
            arrays.extend(f.map(|f| (name.to_string(), array(f))));
        }
        let mut vector = |name: String, values: &[u32]| {
            arrays.insert(name, Array::U32(vec![values.len()], values.to_vec()));
        };
        for (i, labels) in self.history.iter().enumerate() {
            vector(format!("history/{i:04}"), labels);
        }
        if let Some(previous) = &self.previous {
            vector("previous".into(), previous);
        }
        let mut progress = self.progress.clone();
        if let Some(lesson) = &self.lesson {
            progress.counts = Some(lesson.counts);
            for (i, part) in lesson.positives.parts().into_iter().enumerate() {
                vector(format!("positives/{i}"), part);
            }
            if let Some(labels) = &lesson.labels {
                vector("labels".into(), labels);
            }
        }
        Tensors { about: progress, arrays }.write(path)
    }

    /// Reads everything from `path`.
    pub fn load(network: &Network, config: &Config, path: &Path) -> Result<State> {
        let mut file = Tensors::<Progress>::read(path)?;
        let names = |file: &Tensors<Progress>, prefix: &str| -> Vec<String> {
            file.arrays.keys().filter(|k| k.starts_with(prefix)).cloned().collect()
        };
        let mut named = Vec::new();
        for key in names(&file, "model/") {
            let (shape, values) = file.take_f32(&key)?;
            named.push(Named { name: key["model/".len()..].to_string(), shape, values });
        }
        let weights = network.from_named(&named)?;
        let velocities =
            names(&file, "velocity/").iter().map(|key| Ok(file.take_f32(key)?.1)).collect::<Result<_>>()?;
        let rows = matrix(file.take_f32("bank")?)?;
        let bank = Bank { rows, momentum: config.objective.bank_momentum as f32 };
        let history: Vec<Vec<u32>> =
            names(&file, "history/").iter().map(|key| Ok(file.take_u32(key)?.1)).collect::<Result<_>>()?;
        let counts = file.about.counts.take();
        let lesson = counts.map(|counts| Lesson::restore(&mut file, counts)).transpose()?;
        Ok(State {
            optimizer: Optimizer::from_velocities(velocities),
            weights,
            bank: Arc::new(bank),
            history: History::from_newest(history),
            previous: file.take_u32("previous").ok().map(|p| p.1),
            centroids: file.take_f32("centroids").ok().map(matrix).transpose()?,
            lesson,
            progress: file.about,
        })
    }
}

fn matrix((shape, values): (Vec<usize>, Vec<f32>)) -> Result<Features> {
    match shape[..] {
        [rows, dim] => Ok(Features { rows, dim, values }),
        _ => Err(Error::file(format!("a matrix has the shape {shape:?}"), "use the checkpoint before")),
    }
}

impl Lesson {
    fn restore(file: &mut Tensors<Progress>, counts: Counts) -> Result<Lesson> {
        let mut part = |i: usize| Ok(file.take_u32(&format!("positives/{i}"))?.1);
        let parts = [part(0)?, part(1)?, part(2)?];
        let positives = Positives::from_parts(parts)
            .ok_or_else(|| Error::file("the positive sets do not fit together", "use the checkpoint before"))?;
        let labels = file.take_u32("labels").ok().map(|l| l.1);
        Ok(Lesson { labels, positives: Arc::new(positives), counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn churn_counts_changed_company() {
        // {0, 1}, {2, 3, 4}: renaming clusters changes nothing.
        assert_eq!(churn(&[0, 0, 1, 1, 1], &[7, 7, 3, 3, 3]), 0.0);
        // 4 moves from the second to the first: everybody's company changed.
        assert_eq!(churn(&[0, 0, 1, 1, 1], &[0, 0, 1, 1, 0]), 1.0);
        // {0, 1} stays; {2, 3, 4} splits.
        assert_eq!(churn(&[0, 0, 1, 1, 1], &[0, 0, 1, 1, 2]), 0.6);
        assert_eq!(churn(&[], &[]), 0.0);
        // Two clusters merge into one of the same size as a third.
        assert_eq!(churn(&[0, 1, 2, 2], &[5, 5, 6, 6]), 0.5);
    }

    #[test]
    fn a_state_comes_back_bit_for_bit() {
        let network = Network::new(&config::Network { width: 4, ..Config::default().network }, 16).unwrap();
        let config = Config::default();
        let mut state = State::new(&network, &config, &[0, 1, 2, 3, 9]);
        state.history.push(vec![0, 1, 1, 0, 2], 3);
        state.history.push(vec![1, 1, 1, 0, 2], 3);
        state.previous = Some(vec![1, 1, 1, 0, 2]);
        state.centroids = Some(Features::new(2, vec![0.5, 1.0, -0.25, 3.0]));
        state.progress.batch = 3;
        state.progress.sums.total = 0.1 + 0.2;
        state.progress.best = Some((1.0 / 3.0, 4));
        let positives = Arc::new(Positives::from_sets(5, [vec![1, 2]]));
        let counts = Counts { clusters: 3, churn: Some(0.4), ..Counts::default() };
        state.lesson = Some(Lesson { labels: Some(vec![0, 1, 1, 2, 2]), positives, counts });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        state.save(&network, &path).unwrap();
        let back = State::load(&network, &config, &path).unwrap();
        assert_eq!(back.progress, state.progress);
        assert_eq!((&back.lesson, &back.centroids), (&state.lesson, &state.centroids));
        assert_eq!((&back.history, &back.previous, &back.bank), (&state.history, &state.previous, &state.bank));
        assert_eq!(network.named(&back.weights), network.named(&state.weights));
        assert_eq!(back.optimizer.velocities(), state.optimizer.velocities());
        let again = dir.path().join("again");
        back.save(&network, &again).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read(again).unwrap());
    }
}
