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

    /// Writes everything to `path`: the state of a run that is `bound` to its settings and images.
    pub fn save(&self, network: &Network, bound: &Bound, path: &Path) -> Result<()> {
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
            Memory::Nothing => {}
            Memory::Bank(bank) | Memory::Fixed(bank) => {
                arrays.insert("bank".into(), matrix(&bank.rows));
            }
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
        let state = State {
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
            Memory::Bank(Arc::new(Bank { rows, momentum: bank.momentum }))
        }
        Memory::Keys { .. } => {
            let encoder = read_weights(file, network, "keys/")?;
            let rows = matrix(file.take_f32("queue")?)?;
            Memory::Keys { encoder, queue: Arc::new(Queue { rows, next: file.about.queue_next }) }
        }
        Memory::Average(_) => Memory::Average(read_weights(file, network, "average/")?),
        Memory::Fixed(bank) => {
            let rows = matrix(file.take_f32("bank")?)?;
            Memory::Fixed(Arc::new(Bank { rows, momentum: bank.momentum }))
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
pub(super) mod tests {
    use super::*;
    use crate::config::{self, Config};
    use crate::method;

    #[test]
    fn churn_counts_changed_partners() {
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

    /// What the state is bound to.
    fn bound() -> Bound {
        Bound::new([("train.seed".to_string(), 0.into())], "images")
    }

    /// A state of `system` with something in every part.
    pub(in crate::train) fn state(system: &str) -> (Network, Plan, State) {
        let set = |text: &str| config::SettingsLayer::assignment(text).unwrap();
        let layers = [config::preset(system).unwrap(), set("clusters.floor=3"), set("train.batch=1")];
        let config = Config::from_layers(&layers).unwrap();
        let network = Network::new(&config::NetworkSettings { width: 4, ..config.network.clone() }, 16).unwrap();
        let load = crate::data::Load { limit: Some(5), ..crate::data::Load::new(crate::data::Source::Bundled) };
        let dataset = Arc::new(crate::data::load(&load, &|_, _| ()).unwrap());
        let plan = Plan::new(config.resolve(&dataset).unwrap(), dataset).unwrap();
        let mut state = State::new(&network, network.init(0), method::of(plan.config.method.system), &plan);
        state.history.push(vec![0, 1, 1, 0, 2], 3);
        state.history.push(vec![1, 1, 1, 0, 2], 3);
        let method = method::of(plan.config.method.system);
        let tap = method.needed_features(&plan, (0, 0)).map_or(method.tap(), |needed| needed.tap);
        let dim = network.dim(tap);
        state.centroids = Some(Matrix::new(dim, (0..2 * dim).map(|i| i as f32 - 0.25).collect()));
        state.progress.batch = 3;
        state.progress.sums.total = 0.1 + 0.2;
        state.progress.best = Some((1.0 / 3.0, 0));
        state.progress.counts = Counts { clusters: 3, churn: Some(0.4), ..Counts::default() };
        let positives = Positives::from_sets(5, [vec![1, 2]]);
        let targets = EpochTargets { labels: Some(vec![0, 1, 1, 2, 2]), positives, clusterings: Vec::new() };
        state.previous = Some(Arc::new(EpochTargets { labels: None, ..targets.clone() }));
        state.targets = Some(Arc::new(EpochTargets { clusterings: vec![vec![1; 5], vec![2; 5]], ..targets }));
        if let Memory::Fixed(bank) = &mut state.memory {
            Arc::make_mut(bank).rows = Matrix::new(256, vec![0.25; 5 * 256]);
        }
        if let Memory::Average(average) = &mut state.memory {
            *average = network.init(9);
        }
        if let Memory::Keys { encoder, queue } = &mut state.memory {
            *encoder = network.init(9);
            Arc::make_mut(queue).push(&Matrix::new(128, vec![0.5; 128]));
        }
        (network, plan, state)
    }

    #[test]
    fn a_state_comes_back_bit_for_bit() {
        for system in ["pcp", "is", "moco", "deepcluster", "simclr", "byol", "emp", "pcp-plus", "supervised"] {
            let (network, plan, state) = state(system);
            let method = method::of(plan.config.method.system);
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("state");
            state.save(&network, &bound(), &path).unwrap();
            let (back, known) = State::load(&network, method, &plan, &bound(), &path).unwrap();
            assert!(known);
            let queue_next = u32::from(system == "moco") as usize;
            assert_eq!(back.progress, RunProgress { queue_next, ..state.progress.clone() });
            assert_eq!((&back.targets, &back.centroids), (&state.targets, &state.centroids));
            assert_eq!((&back.history, &back.previous), (&state.history, &state.previous));
            assert_eq!(network.named(&back.weights), network.named(&state.weights));
            match (&back.memory, &state.memory) {
                (Memory::Nothing, Memory::Nothing) => {}
                (Memory::Bank(a), Memory::Bank(b)) | (Memory::Fixed(a), Memory::Fixed(b)) => assert_eq!(a, b),
                (Memory::Classifier(a), Memory::Classifier(b)) => assert_eq!(a, b),
                (Memory::Average(a), Memory::Average(b)) => assert_eq!(network.named(a), network.named(b)),
                (Memory::Keys { encoder: a, queue }, Memory::Keys { encoder: b, queue: other }) => {
                    assert_eq!((network.named(a), queue), (network.named(b), other));
                }
                (other, _) => panic!("{system} came back with {other:?}"),
            }
            assert_eq!(back.optimizer.velocities(), state.optimizer.velocities());
            let again = dir.path().join("again");
            back.save(&network, &bound(), &again).unwrap();
            assert_eq!(std::fs::read(path).unwrap(), std::fs::read(again).unwrap(), "{system}");
        }
    }

    #[test]
    fn a_checkpoint_without_its_memory_is_refused() {
        for (system, array) in
            [("pcp", "bank"), ("moco", "queue"), ("byol", "average/fc.0.weight"), ("deepcluster", "classifier/weight")]
        {
            let (network, plan, mut state) = state(system);
            let method = method::of(plan.config.method.system);
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("state");
            let save_without = |state: &State| {
                state.save(&network, &bound(), &path).unwrap();
                let mut file = Card::read(&path).unwrap();
                file.arrays.remove(array).unwrap();
                file.write(&path).unwrap();
            };
            save_without(&state);
            let load = || State::load(&network, method, &plan, &bound(), &path).map(|_| ());
            let e = load().unwrap_err();
            // Weights are named without the network that has them.
            assert!(e.message.contains(array.trim_start_matches("average/")), "{system}: {e:?}");
            // Stopped before its first clustering by an earlier version.
            state.progress.batch = 0;
            state.targets = None;
            save_without(&state);
            assert_eq!(load().is_ok(), system == "deepcluster", "{system}");
        }
    }
}
