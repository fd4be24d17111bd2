//! Everything that training knows at a moment: what a checkpoint holds, saved together.

use crate::method::bank::{Bank, Queue};
use crate::method::{At, BatchLoss, Lesson, Memory, Method, Plan, Supervision};
use crate::model::classifier::Classifier;
use crate::model::{Named, Network, Optimizer, Weights};
use pcp_core::error::{Error, Result};
use pcp_core::io::tensors::{Array, Tensors};
use pcp_core::matrix::Matrix;
use pcp_core::purify::{History, Positives, Status};
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
    /// The slow copy of the network, where the system has one.
    pub keys: Option<Weights>,
    /// What the system keeps beside the network.
    pub memory: Memory,
    /// Clusterings that vote.
    pub history: History,
    /// What the epoch before learned from.
    pub previous: Option<Arc<Lesson>>,
    /// Centroids of the last clustering, when warm starts are on.
    pub centroids: Option<Matrix>,
    /// What this epoch learns from, once it is known.
    pub lesson: Option<Arc<Lesson>>,
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
    /// The classifier's last accuracy, where the system has one.
    pub classifier: Option<f64>,
    /// Seconds of work.
    pub seconds: f64,
    /// Lines of `metrics.jsonl`.
    pub metrics_lines: usize,
    /// Counts of this epoch's clusters.
    pub counts: Counts,
    /// The queue's oldest key.
    queue_next: usize,
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
            true => format!("in round {}, epoch {}, after {} batches", self.round + 1, self.epoch + 1, self.batch),
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

impl Counts {
    /// Counts what supervision gives to `samples`; `previous` is the clustering before.
    pub fn new(supervision: &Supervision, samples: usize, previous: Option<&[u32]>) -> Self {
        let labels = supervision.labels.as_deref();
        let sizes = labels.map(|l| sizes(l, supervision.clusters)).unwrap_or_default();
        let status = || supervision.purified.iter().flat_map(|p| &p.status);
        let having = |wanted| status().filter(|s| **s == wanted).count();
        let largest = sizes.iter().copied().max().unwrap_or(0);
        Counts {
            clusters: supervision.clusters,
            non_empty: if labels.is_some() { sizes.iter().filter(|n| **n > 0).count() } else { samples },
            pulled_back: having(Status::PulledBack),
            dropped: having(Status::Dropped),
            largest: largest as f64 / samples.max(1) as f64,
            churn: labels.zip(previous).map(|(now, before)| churn(before, now)),
        }
    }
}

/// How many samples each of `clusters` has.
pub fn sizes(labels: &[u32], clusters: usize) -> Vec<usize> {
    let mut sizes = vec![0usize; clusters];
    for &label in labels {
        sizes[label as usize] += 1;
    }
    sizes
}

/// How much company changes: 1 minus the share of partners, old and new, that a sample had both before and now, on average. A sample
/// that was and is alone keeps its company.
pub fn churn(before: &[u32], now: &[u32]) -> f64 {
    let count = |labels: &[u32]| sizes(labels, labels.iter().max().map_or(0, |m| *m as usize + 1));
    let (old_sizes, new_sizes) = (count(before), count(now));
    let mut both: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    before.iter().zip(now).for_each(|pair| *both.entry((*pair.0, *pair.1)).or_default() += 1);
    // Of every sample in `shared`: partners in both clusters, of partners in either.
    let kept = |((old, new), shared): (&(u32, u32), &usize)| {
        let either = old_sizes[*old as usize] + new_sizes[*new as usize] - shared - 1;
        *shared as f64 * if either == 0 { 1.0 } else { (shared - 1) as f64 / either as f64 }
    };
    if now.is_empty() { 0.0 } else { 1.0 - both.iter().map(kept).sum::<f64>() / now.len() as f64 }
}

impl State {
    /// Round and epoch.
    pub fn at(&self) -> At {
        (self.progress.round, self.progress.epoch)
    }

    /// The state before the first step.
    pub fn new(network: &Network, weights: Weights, method: &dyn Method, plan: &Plan) -> Self {
        State {
            progress: Progress::default(),
            optimizer: Optimizer::new(&weights),
            keys: method.has_keys().then(|| weights.clone()),
            weights,
            memory: method.memory(plan, network),
            history: History::default(),
            previous: None,
            centroids: None,
            lesson: None,
        }
    }

    /// Writes everything to `path`.
    pub fn save(&self, network: &Network, path: &Path) -> Result<()> {
        let mut arrays = BTreeMap::new();
        for (prefix, weights) in [("model", Some(&self.weights)), ("keys", self.keys.as_ref())] {
            for Named { name, shape, values } in weights.map(|w| network.named(w)).unwrap_or_default() {
                arrays.insert(format!("{prefix}/{name}"), Array::F32(shape, values));
            }
        }
        for (i, v) in self.optimizer.velocities().into_iter().enumerate() {
            arrays.insert(format!("velocity/{i:04}"), Array::F32(vec![v.len()], v));
        }
        let Memory { bank, queue, classifier } = &self.memory;
        let matrices = [
            ("bank", bank.as_ref().map(|b| &b.rows)),
            ("queue", queue.as_ref().map(|q| &q.rows)),
            ("classifier/weight", classifier.as_ref().map(|c| &c.weight)),
            ("centroids", self.centroids.as_ref()),
        ];
        for (name, f) in matrices {
            let array = |f: &Matrix| Array::F32(vec![f.rows, f.dim], f.values.clone());
            arrays.extend(f.map(|f| (name.to_string(), array(f))));
        }
        for (name, values) in classifier.iter().flat_map(|c| [("bias", &c.bias), ("velocity", &c.velocity)]) {
            arrays.insert(format!("classifier/{name}"), Array::F32(vec![values.len()], values.clone()));
        }
        let mut vector = |name: String, values: &[u32]| {
            arrays.insert(name, Array::U32(vec![values.len()], values.to_vec()));
        };
        for (i, labels) in self.history.iter().enumerate() {
            vector(format!("history/{i:04}"), labels);
        }
        for (prefix, lesson) in [("lesson", &self.lesson), ("previous", &self.previous)] {
            let Some(lesson) = lesson else { continue };
            for (i, part) in lesson.positives.parts().into_iter().enumerate() {
                vector(format!("{prefix}/positives/{i}"), part);
            }
            for (i, labels) in lesson.clusterings.iter().enumerate() {
                vector(format!("{prefix}/clusterings/{i:04}"), labels);
            }
            if let Some(labels) = &lesson.labels {
                vector(format!("{prefix}/labels"), labels);
            }
        }
        let queue_next = queue.as_ref().map_or(0, |q| q.next);
        Tensors { about: Progress { queue_next, ..self.progress.clone() }, arrays }.write(path)
    }

    /// Reads everything from `path`.
    pub fn load(network: &Network, plan: &Plan, path: &Path) -> Result<State> {
        let mut file = Tensors::<Progress>::read(path)?;
        let weights = |file: &mut Tensors<Progress>, prefix: &str| -> Result<Weights> {
            let mut named = Vec::new();
            for key in names(file, prefix) {
                let (shape, values) = file.take_f32(&key)?;
                named.push(Named { name: key[prefix.len()..].to_string(), shape, values });
            }
            network.from_named(&named)
        };
        let model = weights(&mut file, "model/")?;
        let keys = match names(&file, "keys/").is_empty() {
            true => None,
            false => Some(weights(&mut file, "keys/")?),
        };
        let velocities =
            names(&file, "velocity/").iter().map(|key| Ok(file.take_f32(key)?.1)).collect::<Result<_>>()?;
        let momentum = plan.config.objective.bank_momentum as f32;
        let next = file.about.queue_next;
        let mut found = |name: &str| file.take_f32(name).ok().map(matrix).transpose();
        let bank = found("bank")?.map(|rows| Arc::new(Bank { rows, momentum }));
        let queue = found("queue")?.map(|rows| Arc::new(Queue { rows, next }));
        let centroids = found("centroids")?;
        let classifier = match found("classifier/weight")? {
            Some(weight) => {
                let mut part = |name: &str| Ok::<_, Error>(file.take_f32(&format!("classifier/{name}"))?.1);
                Some(Arc::new(Classifier { weight, bias: part("bias")?, velocity: part("velocity")? }))
            }
            None => None,
        };
        let history = vectors(&mut file, "history/")?;
        Ok(State {
            optimizer: Optimizer::from_velocities(velocities),
            weights: model,
            keys,
            memory: Memory { bank, queue, classifier },
            history: History::from_newest(history),
            previous: restore_lesson(&mut file, "previous")?,
            centroids,
            lesson: restore_lesson(&mut file, "lesson")?,
            progress: file.about,
        })
    }
}

fn names(file: &Tensors<Progress>, prefix: &str) -> Vec<String> {
    file.arrays.keys().filter(|k| k.starts_with(prefix)).cloned().collect()
}

fn vectors(file: &mut Tensors<Progress>, prefix: &str) -> Result<Vec<Vec<u32>>> {
    names(file, prefix).iter().map(|key| Ok(file.take_u32(key)?.1)).collect()
}

fn matrix((shape, values): (Vec<usize>, Vec<f32>)) -> Result<Matrix> {
    match shape[..] {
        [rows, dim] => Ok(Matrix { rows, dim, values }),
        _ => Err(Error::file(format!("a matrix has the shape {shape:?}"), "use the checkpoint before")),
    }
}

fn restore_lesson(file: &mut Tensors<Progress>, prefix: &str) -> Result<Option<Arc<Lesson>>> {
    let parts = vectors(file, &format!("{prefix}/positives/"))?;
    if parts.is_empty() {
        return Ok(None);
    }
    let positives = (<[Vec<u32>; 3]>::try_from(parts).ok())
        .and_then(Positives::from_parts)
        .ok_or_else(|| Error::file("the positive sets do not fit together", "use the checkpoint before"))?;
    let clusterings = vectors(file, &format!("{prefix}/clusterings/"))?;
    let labels = file.take_u32(&format!("{prefix}/labels")).ok().map(|l| l.1);
    Ok(Some(Arc::new(Lesson { labels, positives, clusterings })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Config, System};
    use crate::method;
    use crate::schedule::Schedule;

    #[test]
    fn churn_counts_changed_company() {
        // {0, 1}, {2, 3, 4}: renaming clusters changes nothing.
        assert_eq!(churn(&[0, 0, 1, 1, 1], &[7, 7, 3, 3, 3]), 0.0);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        // 4 moves from the second to the first: 0 and 1 keep one of two partners, 2 and 3 one of two, 4 none of four.
        near(churn(&[0, 0, 1, 1, 1], &[0, 0, 1, 1, 0]), 1.0 - (4.0 * 0.5) / 5.0);
        // {0, 1} stays; {2, 3, 4} splits into {2, 3}, which keep one of two, and 4, which loses both.
        near(churn(&[0, 0, 1, 1, 1], &[0, 0, 1, 1, 2]), 1.0 - (2.0 + 2.0 * 0.5) / 5.0);
        assert_eq!(churn(&[], &[]), 0.0);
        // Alone before and now is no change; two that meet have lost what they had, nothing, and share nothing.
        near(churn(&[0, 1, 2, 2], &[5, 5, 6, 6]), 0.5);
        assert_eq!(churn(&[0, 1, 2], &[2, 0, 1]), 0.0);
    }

    #[test]
    fn a_state_comes_back_bit_for_bit() {
        let network = Network::new(&config::Network { width: 4, ..Config::default().network }, 16).unwrap();
        let load = crate::data::Load { limit: Some(5), ..crate::data::Load::new(crate::data::Source::Bundled) };
        let dataset = Arc::new(crate::data::load(&load, &|_, _| ()).unwrap());
        let config = Config::default();
        let plan = Plan { schedule: Schedule::new(&config, 5).unwrap(), config, dataset };
        let mut state = State::new(&network, network.init(0), method::of(System::Pcp), &plan);
        state.history.push(vec![0, 1, 1, 0, 2], 3);
        state.history.push(vec![1, 1, 1, 0, 2], 3);
        state.centroids = Some(Matrix::new(2, vec![0.5, 1.0, -0.25, 3.0]));
        state.progress.batch = 3;
        state.progress.sums.total = 0.1 + 0.2;
        state.progress.best = Some((1.0 / 3.0, 4));
        state.progress.counts = Counts { clusters: 3, churn: Some(0.4), ..Counts::default() };
        let positives = Positives::from_sets(5, [vec![1, 2]]);
        let lesson = Lesson { labels: Some(vec![0, 1, 1, 2, 2]), positives, clusterings: Vec::new() };
        state.previous = Some(Arc::new(Lesson { labels: None, ..lesson.clone() }));
        state.lesson = Some(Arc::new(Lesson { clusterings: vec![vec![1; 5], vec![2; 5]], ..lesson }));
        state.keys = Some(network.init(9));
        let mut queue = Queue::new(3, 128, 1);
        queue.push(&Matrix::new(128, vec![0.5; 128]));
        state.memory.queue = Some(Arc::new(queue));
        state.memory.classifier = Some(Arc::new(Classifier::new(3, 2, 1, (0, 0))));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        state.save(&network, &path).unwrap();
        let back = State::load(&network, &plan, &path).unwrap();
        let progress = Progress { queue_next: 1, ..state.progress.clone() };
        assert_eq!(back.progress, progress);
        assert_eq!((&back.lesson, &back.centroids), (&state.lesson, &state.centroids));
        assert_eq!((&back.history, &back.previous, &back.memory), (&state.history, &state.previous, &state.memory));
        assert_eq!(network.named(&back.weights), network.named(&state.weights));
        let keys = |state: &State| network.named(state.keys.as_ref().unwrap());
        assert_eq!(keys(&back), keys(&state));
        assert_eq!(back.optimizer.velocities(), state.optimizer.velocities());
        let again = dir.path().join("again");
        back.save(&network, &again).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read(again).unwrap());
    }
}
