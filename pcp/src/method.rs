//! The training systems: how each one finds positives, and its loss.
//!
//! Everything else is shared: data, views, network, bank, k-means, schedule and evaluation, so that differences in results come
//! from the method. A [`Method`] is a set of pure functions; the state of a system between steps is its [`Memory`], a plain value
//! that the training loop keeps and saves.

mod and;
pub mod bank;
mod byol;
pub mod deepcluster;
mod emp;
mod ir;
mod is;
mod la;
mod moco;
pub mod objective;
mod patches;
pub mod pcp;
pub mod plus;
mod supervised;

use crate::config::{ClusterFeatures, Resolved, System};
use crate::data::loader::Draw;
use crate::data::{Batch, BatchShare, Dataset};
use crate::method::bank::{Bank, BankSample, Queue};
use crate::method::objective::BankWork;
use crate::model::classifier::{self, Classifier};
use crate::model::{DropoutKey, FeatureKind, Network, Step, Weights};
use pcp_core::error::{Error, Result};
use pcp_core::matrix::Matrix;
use pcp_core::peers::Peers;
use pcp_core::purify::{History, Positives, Purified};
use pcp_core::rng::{Key, Purpose};
use pcp_core::schedule::Schedule;
use std::sync::Arc;

/// Images up to which losses compare with all rows of the bank, unless the settings say otherwise, and the rows that are drawn for a batch of more.
const ALL_ROWS: usize = 65_536;
const DRAWN_ROWS: usize = 16_384;

/// The settings, schedule and data of a run: what all epochs share.
#[derive(Clone)]
pub struct Plan {
    /// The settings.
    pub config: Resolved,
    /// The schedule.
    pub schedule: Schedule,
    /// The images.
    pub dataset: Arc<Dataset>,
}

/// Round and epoch, both from 0.
pub type At = (u32, u32);

impl Plan {
    /// The plan of a run with these settings on these images.
    pub fn new(config: Resolved, dataset: Arc<Dataset>) -> Result<Plan> {
        Ok(Plan { schedule: config.schedule(dataset.train.images.len())?, config, dataset })
    }

    /// Training images.
    pub fn samples(&self) -> usize {
        self.dataset.train.images.len()
    }

    /// The stable ids of the training images.
    pub fn ids(&self) -> &[u64] {
        self.dataset.train.images.ids()
    }

    /// How losses over all rows of a bank or a queue are computed.
    pub fn bank_work(&self) -> BankWork<'_> {
        BankWork { precision: self.config.train.precision, peers: &*self.dataset.team, sample: None }
    }

    /// How losses of a batch of the epoch `at` are computed over the bank: over all of its rows or, where there are many, a sample of them
    /// (`objective.bank_rows`).
    pub fn sampled_work(&self, at: At, batch: usize) -> BankWork<'_> {
        let rows = self.config.objective.bank_rows.or(usual_bank_rows(self.samples()));
        let sample = BankSample { rows, key: self.key(Purpose::BankRows, at), batch };
        BankWork { sample: (1..self.samples()).contains(&rows).then_some(sample), ..self.bank_work() }
    }

    /// The key of an epoch's random numbers.
    pub fn key(&self, purpose: Purpose, (round, epoch): At) -> Key {
        Key { purpose, seed: self.config.train.seed, round, epoch }
    }

    /// The samples in this epoch's random order.
    fn shuffled(&self, at: At) -> Vec<usize> {
        self.key(Purpose::Order, at).shuffled(self.ids())
    }

    /// `draws` divided into batches.
    fn cut(&self, draws: &[Draw]) -> Vec<Vec<Draw>> {
        draws.chunks(self.config.train.batch).map(<[Draw]>::to_vec).collect()
    }

    /// Steps of an epoch of all samples, with or without a last partial batch.
    fn steps(&self, whole: bool) -> usize {
        let (n, batch) = (self.samples(), self.config.train.batch);
        if whole { (n / batch).max(1) } else { n.div_ceil(batch) }
    }
}

/// The state of a system beside the network: a bank, a queue or a classifier. Its kind is fixed when training starts.
#[derive(Clone, Debug)]
pub enum Memory {
    /// None: the loss compares embeddings within the batch (IS, SimCLR, EMP-SSL).
    Nothing,
    /// The memory bank: this process's rows of it.
    Bank(Arc<Bank>),
    /// The key encoder, a moving average of the network, and its last keys (MoCo).
    Keys {
        /// Weights of the key encoder.
        encoder: Weights,
        /// The last keys.
        queue: Arc<Queue>,
    },
    /// A moving average of the network (BYOL).
    Average(Weights),
    /// A classifier over the features (DeepCluster, supervised).
    Classifier(Arc<Classifier>),
    /// A bank that stays as it is: patch features (PCP+).
    Fixed(Arc<Bank>),
}

/// Results of earlier epochs.
#[derive(Clone, Copy, Debug)]
pub struct Past<'a> {
    /// Clusterings that vote.
    pub history: &'a History,
    /// Centroids for a warm start of k-means, if enabled.
    pub centroids: Option<&'a Matrix>,
    /// Positive sets of the previous epoch.
    pub positives: Option<&'a Positives>,
}

/// The clusters and positive sets that a system found for an epoch.
#[derive(Clone, Debug, Default)]
pub struct FoundTargets {
    /// K_t; the number of samples if each is its own instance.
    pub clusters: usize,
    /// Raw cluster of every sample; `None` when nothing is clustered.
    pub labels: Option<Vec<u32>>,
    /// Status of every sample, and the positive sets; `None` when the system has none.
    pub purified: Option<Purified>,
    /// Centroids of the clusters, for a warm start of the next epoch.
    pub centroids: Option<Matrix>,
    /// Clusterings whose union gives the close neighbours (LA).
    pub clusterings: Vec<Vec<u32>>,
    /// A new classifier for this epoch (DeepCluster).
    pub classifier: Option<Classifier>,
}

/// The training targets of an epoch's steps.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochTargets {
    /// Raw cluster of every sample.
    pub labels: Option<Vec<u32>>,
    /// Positive sets.
    pub positives: Positives,
    /// Clusterings whose union gives the close neighbours (LA).
    pub clusterings: Vec<Vec<u32>>,
}

impl EpochTargets {
    /// The part of `found` that steps need, for `samples` samples.
    pub fn new(found: FoundTargets, samples: usize) -> Self {
        let positives = found.purified.map_or_else(|| Positives::instances(samples), |purified| purified.positives);
        EpochTargets { labels: found.labels, positives, clusterings: found.clusterings }
    }
}

/// The input of a step.
pub struct Task<'a> {
    /// The network.
    pub network: &'a Network,
    /// Its weights.
    pub weights: &'a Weights,
    /// The views, all of view 1, then all of view 2: of the whole batch, the share of this process.
    pub batch: Batch,
    /// That share, and the parts of the batch.
    pub share: BatchShare,
    /// Sample of every row of a view, over all processes.
    pub rows: &'a [usize],
    /// The random numbers of dropout.
    pub dropout: DropoutKey,
    /// Round and epoch.
    pub at: At,
    /// The number of the batch in the epoch, from 0.
    pub number: usize,
}

/// The losses of a step, and its change of the memory.
pub struct StepResult {
    /// The losses.
    pub loss: BatchLoss,
    /// The change of the memory.
    pub change: Change,
}

/// The change that a step makes to the memory of its system.
pub enum Change {
    /// The bank is updated with the step's embeddings; other memories do not change.
    Embeddings,
    /// The key encoder after the step, and its keys for the queue (MoCo).
    Keys(Weights, Matrix),
    /// The average of the network after the step (BYOL).
    Average(Weights),
    /// The classifier after the step.
    Classifier(Classifier),
}

/// Sums of the losses over the samples of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchLoss {
    /// Number of samples.
    pub samples: usize,
    /// The total loss.
    pub total: f64,
    /// The loss of samples without a positive set, and their number.
    pub instance: (f64, usize),
    /// The loss of samples with a positive set, and their number.
    pub cluster: (f64, usize),
    /// The instance-spreading loss.
    pub spreading: Option<f64>,
}

impl BatchLoss {
    /// From the losses of samples that are all instances, or all have positive sets.
    fn of(each: &[f64], clustered: bool) -> Self {
        let (samples, total) = (each.len(), each.iter().sum());
        let [mut instance, mut cluster] = [(0.0, 0); 2];
        *(if clustered { &mut cluster } else { &mut instance }) = (total, samples);
        BatchLoss { samples, total, instance, cluster, spreading: None }
    }

    /// From the mean loss of samples whose views are compared within the batch.
    fn within_batch(mean: f64, samples: usize) -> Self {
        let total = mean * samples as f64;
        BatchLoss { samples, total, spreading: Some(total), ..BatchLoss::default() }
    }
}

/// A request for features of all images before an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureRequest {
    /// The view, or the rows of the bank.
    pub view: ClusterFeatures,
    /// The features.
    pub tap: FeatureKind,
}

/// A training system. The defaults implement instance recognition: one view, the bank loss, no clusters.
pub trait Method: Send + Sync {
    /// A short description of how it trains, for the program's output.
    fn describe(&self, plan: &Plan) -> String;

    /// Its initial memory; `weights` are the initial weights of the network.
    fn memory(&self, plan: &Plan, network: &Network, _weights: &Weights) -> Memory {
        let (momentum, seed) = (plan.config.objective.bank_momentum as f32, plan.config.train.seed);
        Memory::Bank(Arc::new(Bank::new(plan.ids(), network.embedding, momentum, seed, &*plan.dataset.team)))
    }

    /// Whether its memory holds a second copy of the network.
    fn has_key_encoder(&self) -> bool {
        false
    }

    /// Whether its embedding is read out at the end: patch features and network side by side. Probes wait until then.
    fn reads_out(&self) -> bool {
        false
    }

    /// Number of k-means assignments before an epoch that clusters, for progress.
    fn clustering_steps(&self, _plan: &Plan) -> usize {
        0
    }

    /// The features that it trains and that are saved at the end.
    fn tap(&self) -> FeatureKind {
        FeatureKind::Embedding
    }

    /// The features of all images that it needs before this epoch.
    fn needed_features(&self, _plan: &Plan, _at: At) -> Option<FeatureRequest> {
        None
    }

    /// Finds the targets of this epoch; `features` are the [requested ones](Self::needed_features).
    fn find_targets(
        &self,
        plan: &Plan,
        _at: At,
        _features: &Matrix,
        _memory: &Memory,
        _past: Past,
        _on_iteration: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<FoundTargets> {
        Ok(FoundTargets { clusters: plan.samples(), ..FoundTargets::default() })
    }

    /// Whether a last partial batch is skipped, unless it is the only one.
    fn whole_batches(&self) -> bool {
        false
    }

    /// Steps of an epoch.
    fn steps(&self, plan: &Plan) -> usize {
        plan.steps(self.whole_batches())
    }

    /// The samples of this epoch, batch by batch.
    fn batches(&self, plan: &Plan, at: At, _targets: &EpochTargets) -> Vec<Vec<Draw>> {
        let mut batches = plan.cut(&Draw::first(&plan.shuffled(at)));
        batches.truncate(self.steps(plan));
        batches
    }

    /// Number of views of every image in this epoch.
    fn views(&self, _plan: &Plan, _at: At) -> usize {
        1
    }

    /// Parts of a batch of `images`, each with batch-norm statistics of its own: its views.
    fn parts(&self, plan: &Plan, at: At, _images: usize) -> usize {
        self.views(plan, at)
    }

    /// Forward, loss and backward of one batch.
    fn step(&self, plan: &Plan, task: Task, memory: &Memory, targets: &EpochTargets) -> Result<Step<StepResult>> {
        let work = plan.sampled_work(task.at, task.number);
        let Task { network, weights, batch, share, rows, dropout, .. } = task;
        let bank = memory.bank()?;
        Ok(network.step(weights, batch, share, dropout, FeatureKind::Embedding, |v| {
            let (loss, gradient) = pcp::loss(v, rows, bank, &targets.positives, &plan.config.objective, None, work);
            (StepResult { loss, change: Change::Embeddings }, gradient)
        }))
    }
}

/// Rows that are drawn from the bank of so many samples for a batch; 0: it is compared with all.
fn usual_bank_rows(samples: usize) -> usize {
    if samples > ALL_ROWS { DRAWN_ROWS } else { 0 }
}

/// The system of that name.
pub fn of(system: System) -> &'static dyn Method {
    match system {
        System::Pcp => &pcp::Pcp,
        System::Ir => &ir::Ir,
        System::Is => &is::IS,
        System::And => &and::And,
        System::La => &la::La,
        System::Deepcluster => &deepcluster::DeepCluster,
        System::Moco => &moco::Moco,
        System::Simclr => &is::SIMCLR,
        System::Byol => &byol::Byol,
        System::Emp => &emp::Emp,
        System::Plus => &plus::Plus,
        System::Supervised => &supervised::Supervised,
        System::Patches => &patches::WithoutNetwork,
    }
}

impl Memory {
    /// The memory bank; an error if the memory is of another kind.
    pub fn bank(&self) -> Result<&Bank> {
        match self {
            Memory::Bank(bank) | Memory::Fixed(bank) => Ok(bank),
            _ => Err(other_memory("a memory bank")),
        }
    }

    /// The classifier; an error if the memory is of another kind.
    pub fn classifier(&self) -> Result<&Classifier> {
        match self {
            Memory::Classifier(classifier) => Ok(classifier),
            _ => Err(other_memory("a classifier")),
        }
    }

    /// Replaces the classifier by the new one in `found`, if there is one.
    pub fn begin_epoch(&mut self, found: &mut FoundTargets) {
        if let Some(classifier) = found.classifier.take() {
            *self = Memory::Classifier(Arc::new(classifier));
        }
    }

    /// Of the whole bank that a file has, keeps the rows of this process; other memories stay as they are.
    pub fn divided(self, peers: &dyn Peers) -> Memory {
        match self {
            Memory::Bank(bank) => {
                let Bank { rows, momentum, .. } = Arc::unwrap_or_clone(bank);
                Memory::Bank(Arc::new(Bank::of_whole(rows, momentum, peers)))
            }
            other => other,
        }
    }

    /// Updates the memory after a step on `rows`, whose embeddings (of view 1) are `features`.
    pub fn update(&mut self, rows: &[usize], features: &Matrix, change: Change) -> Result<()> {
        match (self, change) {
            (Memory::Nothing | Memory::Fixed(_), Change::Embeddings) => {}
            (Memory::Bank(bank), Change::Embeddings) => {
                let bank = Arc::make_mut(bank);
                for (i, row) in rows.iter().enumerate() {
                    bank.update(*row, features.row(i));
                }
            }
            (Memory::Keys { encoder, queue }, Change::Keys(next, keys)) => {
                *encoder = next;
                Arc::make_mut(queue).push(&keys);
            }
            (Memory::Average(average), Change::Average(next)) => *average = next,
            (Memory::Classifier(classifier), Change::Classifier(next)) => *classifier = Arc::new(next),
            _ => return Err(other_memory("the state that its steps update")),
        }
        Ok(())
    }
}

fn other_memory(lacks: &str) -> Error {
    Error::training(format!("the memory of this system does not hold {lacks}"), "return it from Method::memory")
}

/// The cross-entropy of `x` under the classifier, with the classifier after one step, and the gradient by `x`.
fn classify(classifier: &Classifier, x: &Matrix, labels: &[u32], sgd: classifier::Sgd) -> (StepResult, Vec<f32>) {
    let found = classifier.cross_entropy(x, labels);
    let mut classifier = classifier.clone();
    classifier.step(&found.by_weights, sgd);
    let loss = BatchLoss::of(&found.each, true);
    (StepResult { loss, change: Change::Classifier(classifier) }, found.by_features)
}

#[cfg(test)]
mod tests;
