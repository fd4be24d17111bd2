//! MoCo, momentum contrast (He et al. 2020; version 2: Chen et al. 2020): a view must match the other view of its image
//! among recent keys of a key encoder, which is a moving average of the network.

use super::{At, BatchLoss, Change, EpochTargets, Memory, Method, Plan, StepResult, Task, other_memory};
use crate::data::{Batch, BatchShare};
use crate::method::bank::Queue;
use crate::method::objective::key_loss;
use crate::model::{DropoutKey, FeatureKind, Network, Step, Weights};
use pcp_core::error::Result;
use pcp_core::matrix::Matrix;
use pcp_core::rng::Purpose;
use std::sync::Arc;

/// Query encoder: the network. Key encoder: its moving average. Batch-norm statistics are those of groups of the batch, as
/// on several devices, and keys are in other groups than their queries, so that the statistics do not reveal the match.
/// The last partial batch is skipped, as in the authors' released code.
pub struct Moco;

impl Method for Moco {
    fn describe(&self, plan: &Plan) -> String {
        let groups = groups(plan, plan.config.train.batch.min(plan.samples()));
        let norm = if groups > 1 { format!("{groups} groups") } else { "one group".into() };
        format!("queue of {}, key momentum {}, batch norm in {norm}", queue_len(plan), plan.config.moco.momentum)
    }

    fn memory(&self, plan: &Plan, network: &Network, weights: &Weights) -> Memory {
        let queue = Queue::new(queue_len(plan), network.embedding, plan.config.train.seed);
        Memory::Keys { encoder: weights.clone(), queue: Arc::new(queue) }
    }

    fn has_key_encoder(&self) -> bool {
        true
    }

    fn whole_batches(&self) -> bool {
        true
    }

    fn views(&self, _plan: &Plan, _at: At) -> usize {
        2
    }

    /// Groups of both views.
    fn parts(&self, plan: &Plan, _at: At, images: usize) -> usize {
        2 * groups(plan, images)
    }

    fn step(&self, plan: &Plan, task: Task, memory: &Memory, _targets: &EpochTargets) -> Result<Step<StepResult>> {
        let Memory::Keys { encoder, queue } = memory else { return Err(other_memory("keys")) };
        let Task { network, weights, batch, share, dropout, at, .. } = task;
        let share = share.half();
        let [queries, others] = halves(batch);
        let mut slow = encoder.clone();
        slow.ema_update(weights, plan.config.moco.momentum);

        let dealt = plan.key(Purpose::Groups, at).shuffled(&dropout.ids);
        let masks =
            DropoutKey { key: plan.key(Purpose::KeyDropout, at), ids: dealt.iter().map(|i| dropout.ids[*i]).collect() };
        let (found, moments) = network.encode(&slow, rearranged(others, &dealt, &share), share.clone(), masks);
        slow.update_running_stats(&moments);
        let mut keys = Matrix { values: vec![0.0; found.values.len()], ..found };
        for (place, &i) in dealt.iter().enumerate() {
            keys.values[i * keys.dim..(i + 1) * keys.dim]
                .copy_from_slice(&found.values[place * keys.dim..][..keys.dim]);
        }
        Ok(network.step(weights, queries, share, dropout, FeatureKind::Embedding, |q| {
            let found = key_loss(q, &keys, &queue.rows, plan.config.objective.tau as f32, plan.bank_work());
            let loss = BatchLoss::of(&found.each, false);
            (StepResult { loss, change: Change::Keys(slow, keys) }, found.gradient)
        }))
    }
}

/// The largest multiple of the batch that is neither above the setting nor above N; N where that is less than a batch.
fn queue_len(plan: &Plan) -> usize {
    let most = plan.config.moco.queue.min(plan.samples());
    let batch = plan.config.train.batch;
    if most < batch { most } else { most / batch * batch }
}

/// Number of groups of a batch of `n`: 1 if it cannot be divided evenly into groups of at least two.
fn groups(plan: &Plan, n: usize) -> usize {
    let groups = plan.config.moco.groups;
    if n.is_multiple_of(groups) && n >= 2 * groups { groups } else { 1 }
}

fn halves(batch: Batch) -> [Batch; 2] {
    let Batch { rows, mut pixels } = batch;
    let second = pixels.split_off(pixels.len() / 2);
    [Batch { rows: rows / 2, pixels }, Batch { rows: rows / 2, pixels: second }]
}

/// The images of a batch in another order: of both, this process's share.
fn rearranged(batch: Batch, order: &[usize], share: &BatchShare) -> Batch {
    let image = batch.pixels.len() / batch.rows.max(1);
    Batch { rows: batch.rows, pixels: share.rearranged(batch.pixels, image, order) }
}
