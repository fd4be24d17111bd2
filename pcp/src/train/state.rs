//! The state of a run between two steps, and its checkpoint file.

use crate::method::bank::{Bank, Queue};
use crate::method::{At, BatchLoss, EpochTargets, FoundTargets, Memory, Method, Plan};
use crate::model::classifier::Classifier;
use crate::model::{Named, Network, Optimizer, Weights};
use crate::run::{Bound, CheckpointCard, EpochRecord};
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
    /// Position and totals.
    pub progress: RunProgress,
    /// The network's weights.
    pub weights: Weights,
    /// Momentum.
    pub optimizer: Optimizer,
    /// What the system remembers beside the network.
    pub memory: Memory,
    /// Clusterings that vote.
    pub history: History,
    /// Targets of the epoch before.
    pub previous: Option<Arc<EpochTargets>>,
    /// Centroids of the last clustering, when warm starts are on.
    pub centroids: Option<Matrix>,
    /// Targets of this epoch, once they are known.
    pub targets: Option<Arc<EpochTargets>>,
    /// The records of all epochs so far: the lines of `metrics.jsonl`.
    pub records: Vec<EpochRecord>,
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

/// How far a run is: its position, and totals so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunProgress {
    /// Round.
    pub round: u32,
    /// Epoch within the round.
    pub epoch: u32,
    /// Batches of this epoch that are done.
    pub batch: usize,
    /// EpochSums of this epoch.
    pub sums: EpochSums,
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

/// EpochSums over the batches of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochSums {
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
    /// Directions that the features of the epoch's clusters use.
    #[serde(default)]
    pub effective_rank: Option<f64>,
    /// Seconds for features.
    pub feature_seconds: f64,
    /// Seconds for clusters.
    pub cluster_seconds: f64,
    /// Seconds for training.
    pub train_seconds: f64,
}

impl RunProgress {
    /// The round and epoch that the weights last learned in, where they have.
    pub fn learned(&self, epochs: u32) -> Option<At> {
        match (self.batch, self.epoch, self.round) {
            (0, 0, 0) => None,
            (0, 0, 1..) => Some((self.round - 1, epochs.saturating_sub(1))),
            (0, 1.., _) => Some((self.round, self.epoch - 1)),
            _ => Some((self.round, self.epoch)),
        }
    }

    /// Whether no step was made yet.
    fn at_start(&self) -> bool {
        (self.round, self.epoch, self.batch) == (0, 0, 0)
    }

    /// Where the run is, in words.
    pub fn place(&self, rounds: u32) -> String {
        match self.round < rounds {
            true => format!("in round {}, epoch {}, after {} batches", self.round + 1, self.epoch + 1, self.batch),
            false => "after the last epoch, while finishing".to_string(),
        }
    }
}

impl EpochSums {
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
    /// Counts over what was found for `samples`; `previous` is the clustering before.
    pub fn new(found: &FoundTargets, samples: usize, previous: Option<&[u32]>) -> Self {
        let labels = found.labels.as_deref();
        let sizes = labels.map(|l| sizes(l, found.clusters)).unwrap_or_default();
        let status = || found.purified.iter().flat_map(|p| &p.status);
        let having = |wanted| status().filter(|s| **s == wanted).count();
        let largest = sizes.iter().copied().max().unwrap_or(0);
        Counts {
            clusters: found.clusters,
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

/// How much clusters change: 1 minus the share of cluster partners, old and new, that a sample had both before and now, on average. A
/// sample that was and is alone counts as unchanged.
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
            progress: RunProgress::default(),
            optimizer: Optimizer::new(&weights),
            memory: method.memory(plan, network, &weights),
            weights,
            history: History::default(),
            previous: None,
            centroids: None,
            targets: None,
            records: Vec::new(),
        }
    }

    /// Writes everything to `path`: the state of a run that is `bound` to its settings and images. Of several processes, which must all call
    /// this at the same place, the one that leads writes, and gets what the others have.
    pub fn save(&self, network: &Network, plan: &Plan, bound: &Bound, path: &Path) -> Result<()> {
        let team = &*plan.dataset.team;
        let bank = match &self.memory {
            Memory::Bank(bank) | Memory::Fixed(bank) => Some(bank.for_leader(plan.samples(), team)),
            _ => None,
        };
        if !team.leads() {
            return Ok(());
        }
        let mut arrays = BTreeMap::new();
        let mut add_weights = |prefix: &str, weights: &Weights| {
            for Named { name, shape, values } in network.named(weights) {
                arrays.insert(format!("{prefix}/{name}"), Array::F32(shape, values));
            }
        };
        add_weights("model", &self.weights);
        let mut queue_next = 0;
        let matrix = |m: &Matrix| Array::F32(vec![m.rows, m.dim], m.values.clone());
        let plain = |values: &[f32]| Array::F32(vec![values.len()], values.to_vec());
        match &self.memory {
            Memory::Nothing | Memory::Bank(_) | Memory::Fixed(_) => {}
            Memory::Keys { encoder, queue } => {
                add_weights("keys", encoder);
                arrays.insert("queue".into(), matrix(&queue.rows));
                queue_next = queue.next;
            }
            Memory::Average(average) => add_weights("average", average),
            Memory::Classifier(c) => {
                arrays.insert("classifier/weight".into(), matrix(&c.weight));
                arrays.insert("classifier/bias".into(), plain(&c.bias));
                arrays.insert("classifier/velocity".into(), plain(&c.velocity));
            }
        }
        if let Some(Matrix { rows, dim, values }) = bank {
            arrays.insert("bank".into(), Array::F32(vec![rows, dim], values));
        }
        for (i, v) in self.optimizer.velocities().iter().enumerate() {
            arrays.insert(format!("velocity/{i:04}"), plain(v));
        }
        if let Some(centroids) = &self.centroids {
            arrays.insert("centroids".into(), matrix(centroids));
        }
        let mut vector = |name: String, values: &[u32]| {
            arrays.insert(name, Array::U32(vec![values.len()], values.to_vec()));
        };
        for (i, labels) in self.history.iter().enumerate() {
            vector(format!("history/{i:04}"), labels);
        }
        for (prefix, targets) in [(TARGETS, &self.targets), ("previous", &self.previous)] {
            let Some(targets) = targets else { continue };
            for (i, part) in targets.positives.parts().into_iter().enumerate() {
                vector(format!("{prefix}/positives/{i}"), part);
            }
            for (i, labels) in targets.clusterings.iter().enumerate() {
                vector(format!("{prefix}/clusterings/{i:04}"), labels);
            }
            if let Some(labels) = &targets.labels {
                vector(format!("{prefix}/labels"), labels);
            }
        }
        let progress = RunProgress { queue_next, ..self.progress.clone() };
        let about = CheckpointCard { progress, bound: Some(bound.clone()), records: Some(self.records.clone()) };
        Tensors { about, arrays }.write(path)
    }

    /// Reads everything from `path`, and checks that it belongs to `bound`, is complete and fits together. Also returns whether the file says
    /// what it belongs to and has the records: earlier versions did not write them.
    pub fn load(
        network: &Network,
        method: &dyn Method,
        plan: &Plan,
        bound: &Bound,
        path: &Path,
    ) -> Result<(State, bool)> {
        let Tensors { about: CheckpointCard { progress, bound: then, records }, arrays } = Card::read(path)?;
        if let Some(then) = &then {
            then.check(bound, path)?;
        }
        let known = then.is_some() && records.is_some();
        let mut file = Tensors { about: progress, arrays };
        let weights = read_weights(&mut file, network, "model/")?;
        let velocities =
            names(&file, "velocity/").iter().map(|key| Ok(file.take_f32(key)?.1)).collect::<Result<_>>()?;
        let centroids = file.take_f32("centroids").ok().map(matrix).transpose()?;
        let memory = read_memory(&mut file, network, method.memory(plan, network, &weights))?;
        let history = vectors(&mut file, "history/")?;
        let mut state = State {
            optimizer: Optimizer::from_velocities(velocities),
            weights,
            memory,
            history: History::from_newest(history),
            previous: read_targets(&mut file, "previous")?,
            centroids,
            targets: read_targets(&mut file, TARGETS)?,
            progress: file.about,
            records: records.unwrap_or_default(),
        };
        state.validate(network, method, plan, known)?;
        state.memory = state.memory.divided(&*plan.dataset.team);
        Ok((state, known))
    }
}

/// A checkpoint file.
type Card = Tensors<CheckpointCard<RunProgress, EpochRecord>>;

/// The prefix of this epoch's targets in a file.
const TARGETS: &str = "lesson";

fn read_weights(file: &mut Tensors<RunProgress>, network: &Network, prefix: &str) -> Result<Weights> {
    let mut named = Vec::new();
    for key in names(file, prefix) {
        let (shape, values) = file.take_f32(&key)?;
        named.push(Named { name: key[prefix.len()..].to_string(), shape, values });
    }
    network.from_named(&named)
}

/// The memory in `file`, of the same kind as `initial`. Before the first step it may be missing: it is the initial one then.
fn read_memory(file: &mut Tensors<RunProgress>, network: &Network, initial: Memory) -> Result<Memory> {
    let missing = |name: &str| !file.arrays.contains_key(name);
    Ok(match initial {
        Memory::Nothing => Memory::Nothing,
        Memory::Bank(bank) => {
            let rows = matrix(file.take_f32("bank")?)?;
            Memory::Bank(Arc::new(Bank { rows, first: 0, momentum: bank.momentum }))
        }
        Memory::Keys { .. } => {
            let encoder = read_weights(file, network, "keys/")?;
            let rows = matrix(file.take_f32("queue")?)?;
            Memory::Keys { encoder, queue: Arc::new(Queue { rows, next: file.about.queue_next }) }
        }
        Memory::Average(_) => Memory::Average(read_weights(file, network, "average/")?),
        Memory::Fixed(bank) => {
            let rows = matrix(file.take_f32("bank")?)?;
            Memory::Fixed(Arc::new(Bank { rows, first: 0, momentum: bank.momentum }))
        }
        // Earlier versions had none before DeepCluster's first clustering.
        initial @ Memory::Classifier(_) if missing("classifier/weight") && file.about.at_start() => initial,
        Memory::Classifier(_) => {
            let weight = matrix(file.take_f32("classifier/weight")?)?;
            let mut part = |name: &str| Ok::<_, Error>(file.take_f32(&format!("classifier/{name}"))?.1);
            Memory::Classifier(Arc::new(Classifier { weight, bias: part("bias")?, velocity: part("velocity")? }))
        }
    })
}

fn names(file: &Tensors<RunProgress>, prefix: &str) -> Vec<String> {
    file.arrays.keys().filter(|k| k.starts_with(prefix)).cloned().collect()
}

fn vectors(file: &mut Tensors<RunProgress>, prefix: &str) -> Result<Vec<Vec<u32>>> {
    names(file, prefix).iter().map(|key| Ok(file.take_u32(key)?.1)).collect()
}

fn matrix((shape, values): (Vec<usize>, Vec<f32>)) -> Result<Matrix> {
    match shape[..] {
        [rows, dim] => Ok(Matrix { rows, dim, values }),
        _ => Err(Error::file(format!("a matrix has the shape {shape:?}"), "use the checkpoint before")),
    }
}

fn read_targets(file: &mut Tensors<RunProgress>, prefix: &str) -> Result<Option<Arc<EpochTargets>>> {
    let parts = vectors(file, &format!("{prefix}/positives/"))?;
    if parts.is_empty() {
        return Ok(None);
    }
    let positives = (<[Vec<u32>; 3]>::try_from(parts).ok())
        .and_then(Positives::from_parts)
        .ok_or_else(|| Error::file("the positive sets do not fit together", "use the checkpoint before"))?;
    let clusterings = vectors(file, &format!("{prefix}/clusterings/"))?;
    let labels = file.take_u32(&format!("{prefix}/labels")).ok().map(|l| l.1);
    Ok(Some(Arc::new(EpochTargets { labels, positives, clusterings })))
}

#[cfg(test)]
pub(super) mod tests;
