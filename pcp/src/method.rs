//! The systems: what each takes for positives, and what its loss is.
//!
//! Everything else is common: data, views, network, bank, k-means, schedule and evaluation, so that a difference in a result
//! is a difference of method. A [`Method`] is a handful of pure functions; what a system keeps from step to step is in its
//! [`Memory`], a plain value that training holds and saves.

mod and;
pub mod bank;
pub mod deepcluster;
mod ir;
mod is;
mod la;
mod moco;
pub mod objective;
pub mod pcp;
mod supervised;

use crate::config::{ClusterFeatures, Config, System};
use crate::data::loader::Draw;
use crate::data::{Batch, Dataset};
use crate::method::bank::{Bank, Queue};
use crate::model::classifier::{self, Classifier};
use crate::model::{DropoutKey, FeatureKind, Network, Step, Weights};
use crate::schedule::Schedule;
use pcp_core::error::Result;
use pcp_core::matrix::Matrix;
use pcp_core::purify::{History, Positives, Purified};
use pcp_core::rng::{Key, Purpose};
use std::sync::Arc;

/// What is fixed for a run.
#[derive(Clone)]
pub struct Plan {
    /// The settings, resolved.
    pub config: Config,
    /// What happens when.
    pub schedule: Schedule,
    /// The images.
    pub dataset: Arc<Dataset>,
}

/// Round and epoch, both from 0.
pub type At = (u32, u32);

impl Plan {
    /// Training images.
    pub fn samples(&self) -> usize {
        self.dataset.train.images.len()
    }

    /// Their lasting numbers.
    pub fn ids(&self) -> &[u64] {
        self.dataset.train.images.ids()
    }

    /// The coordinates of an epoch's randomness.
    pub fn key(&self, purpose: Purpose, (round, epoch): At) -> Key {
        Key { purpose, seed: self.config.train.seed, round, epoch }
    }

    /// The samples in this epoch's order.
    fn shuffled(&self, at: At) -> Vec<usize> {
        self.key(Purpose::Order, at).shuffled(self.ids())
    }

    /// `draws` cut into batches.
    fn cut(&self, draws: &[Draw]) -> Vec<Vec<Draw>> {
        draws.chunks(self.config.train.batch).map(<[Draw]>::to_vec).collect()
    }

    /// Steps of an epoch of all samples, with or without a last partial batch.
    fn steps(&self, whole: bool) -> usize {
        let (n, batch) = (self.samples(), self.config.train.batch);
        if whole { (n / batch).max(1) } else { n.div_ceil(batch) }
    }
}

/// What a system keeps beside the network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The memory bank.
    pub bank: Option<Arc<Bank>>,
    /// The last keys.
    pub queue: Option<Arc<Queue>>,
    /// The classifier over the features.
    pub classifier: Option<Arc<Classifier>>,
}

/// What earlier epochs left.
#[derive(Clone, Copy, Debug)]
pub struct Past<'a> {
    /// Clusterings that vote.
    pub history: &'a History,
    /// Centroids to start from, when warm starts are on.
    pub centroids: Option<&'a Matrix>,
    /// What the epoch before learned from.
    pub positives: Option<&'a Positives>,
}

/// What one epoch learns from.
#[derive(Clone, Debug, Default)]
pub struct Supervision {
    /// K_t; the number of samples where each is alone.
    pub clusters: usize,
    /// Raw cluster of every sample; `None` when nothing is clustered.
    pub labels: Option<Vec<u32>>,
    /// What became of every sample, and the positive sets; `None` when the system knows of none.
    pub purified: Option<Purified>,
    /// Centroids, where there are clusters: the next epoch may start from them.
    pub centroids: Option<Matrix>,
    /// Clusterings whose union makes neighbours (LA).
    pub clusterings: Vec<Vec<u32>>,
    /// A classifier to begin the epoch with (DeepCluster).
    pub classifier: Option<Classifier>,
}

/// What the steps of an epoch are given of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Lesson {
    /// Raw cluster of every sample.
    pub labels: Option<Vec<u32>>,
    /// Positive sets.
    pub positives: Positives,
    /// Clusterings whose union makes neighbours (LA).
    pub clusterings: Vec<Vec<u32>>,
}

/// What a step works on.
pub struct Task<'a> {
    /// The network.
    pub network: &'a Network,
    /// Its numbers.
    pub weights: &'a Weights,
    /// The key encoder's (MoCo).
    pub keys: Option<&'a Weights>,
    /// The views: all of view 1, then all of view 2.
    pub batch: Batch,
    /// Sample of every row of a view.
    pub rows: &'a [usize],
    /// What dropout is drawn from.
    pub dropout: DropoutKey,
    /// Round and epoch.
    pub at: At,
}

/// What a step found and changes.
#[derive(Default)]
pub struct Outcome {
    /// The losses.
    pub loss: BatchLoss,
    /// The key encoder after the step, and its keys for the queue (MoCo).
    pub keys: Option<(Weights, Matrix)>,
    /// The classifier after the step.
    pub classifier: Option<Classifier>,
}

/// The losses of a batch, as sums over samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchLoss {
    /// Samples.
    pub samples: usize,
    /// Of the total loss.
    pub total: f64,
    /// Of the loss over samples that learn alone, and how many they are.
    pub instance: (f64, usize),
    /// Of the loss over samples with positives, and how many they are.
    pub cluster: (f64, usize),
    /// Of the instance-spreading loss.
    pub spreading: Option<f64>,
}

impl BatchLoss {
    /// Of samples that all learn alone, or all with positives.
    fn of(each: &[f64], clustered: bool) -> Self {
        let (samples, total) = (each.len(), each.iter().sum());
        let [mut instance, mut cluster] = [(0.0, 0); 2];
        *(if clustered { &mut cluster } else { &mut instance }) = (total, samples);
        BatchLoss { samples, total, instance, cluster, spreading: None }
    }
}

/// A look at all images before an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// How they are looked at.
    pub view: ClusterFeatures,
    /// Which features are taken.
    pub tap: FeatureKind,
}

/// One system. What is not said is as in instance recognition: one view, the bank loss, nothing to look at beforehand.
pub trait Method: Send + Sync {
    /// Refuses data that the system cannot learn from.
    fn check(&self, _dataset: &Dataset) -> Result<()> {
        Ok(())
    }

    /// What it has in mind, in a few words.
    fn describe(&self, plan: &Plan) -> String;

    /// What it keeps, at the beginning.
    fn memory(&self, plan: &Plan, network: &Network) -> Memory {
        let (momentum, seed) = (plan.config.objective.bank_momentum as f32, plan.config.train.seed);
        let bank = Bank::new(plan.ids(), network.embedding, momentum, seed);
        Memory { bank: Some(Arc::new(bank)), ..Memory::default() }
    }

    /// Whether it needs a slow copy of the network.
    fn has_keys(&self) -> bool {
        false
    }

    /// Assignments that k-means makes before an epoch that clusters.
    fn clustering_steps(&self, _plan: &Plan) -> usize {
        0
    }

    /// Which features it trains: those that are worth keeping.
    fn tap(&self) -> FeatureKind {
        FeatureKind::Embedding
    }

    /// What it wants to see of all images before this epoch.
    fn look(&self, _plan: &Plan, _at: At) -> Option<Look> {
        None
    }

    /// What this epoch learns from; `features` are those of [`look`](Self::look).
    fn supervise(
        &self,
        plan: &Plan,
        _at: At,
        _features: &Matrix,
        _memory: &Memory,
        _past: Past,
        _on_iteration: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Supervision> {
        Ok(Supervision { clusters: plan.samples(), ..Supervision::default() })
    }

    /// Whether a last partial batch is left out, unless it is the only one.
    fn whole_batches(&self) -> bool {
        false
    }

    /// Steps of an epoch.
    fn steps(&self, plan: &Plan) -> usize {
        plan.steps(self.whole_batches())
    }

    /// The samples of this epoch, batch by batch.
    fn batches(&self, plan: &Plan, at: At, _lesson: &Lesson) -> Vec<Vec<Draw>> {
        let mut batches = plan.cut(&Draw::first(&plan.shuffled(at)));
        batches.truncate(self.steps(plan));
        batches
    }

    /// Views of every image in this epoch.
    fn views(&self, _plan: &Plan, _at: At) -> usize {
        1
    }

    /// Forward, loss and backward of one batch.
    fn step(&self, plan: &Plan, task: Task, memory: &Memory, lesson: &Lesson) -> Step<Outcome> {
        let Task { network, weights, batch, rows, dropout, .. } = task;
        network.step(weights, batch, 1, dropout, FeatureKind::Embedding, |v| {
            let (loss, gradient) = pcp::loss(v, rows, memory, &lesson.positives, &plan.config.objective, None);
            (Outcome { loss, ..Outcome::default() }, gradient)
        })
    }
}

/// The system of that name.
pub fn of(system: System) -> &'static dyn Method {
    match system {
        System::Pcp => &pcp::Pcp,
        System::Ir => &ir::Ir,
        System::Is => &is::Is,
        System::And => &and::And,
        System::La => &la::La,
        System::Deepcluster => &deepcluster::DeepCluster,
        System::Moco => &moco::Moco,
        System::Supervised => &supervised::Supervised,
    }
}

impl Memory {
    /// What a step changes beside the network: the bank's rows of its samples (with view 1), the queue, the classifier.
    pub fn follow(&mut self, rows: &[usize], features: &Matrix, outcome: Outcome) -> Option<Weights> {
        if let Some(bank) = &mut self.bank {
            let bank = Arc::make_mut(bank);
            for (i, row) in rows.iter().enumerate() {
                bank.update(*row, features.row(i));
            }
        }
        if let Some(classifier) = outcome.classifier {
            self.classifier = Some(Arc::new(classifier));
        }
        let (weights, keys) = outcome.keys?;
        if let Some(queue) = &mut self.queue {
            Arc::make_mut(queue).push(&keys);
        }
        Some(weights)
    }
}

/// The cross-entropy of `x` under the classifier as an outcome, the classifier one step on, and the gradient by `x`.
fn classify(classifier: &Classifier, x: &Matrix, labels: &[u32], sgd: classifier::Sgd) -> (Outcome, Vec<f32>) {
    let found = classifier.cross_entropy(x, labels);
    let mut classifier = classifier.clone();
    classifier.step(&found.by_weights, sgd);
    let loss = BatchLoss::of(&found.each, true);
    (Outcome { loss, classifier: Some(classifier), keys: None }, found.by_features)
}

#[cfg(test)]
mod tests;
