//! SimCLR (Chen et al. 2020): a view must match the other view of its image among all views of the batch.

use super::{At, BatchLoss, Change, EpochTargets, Memory, Method, Plan, StepResult, Task};
use crate::method::objective::contrast_loss;
use crate::model::{FeatureKind, Network, Step, Weights};
use pcp_core::error::Result;

/// As IS, but the loss is a plain softmax with gradients on both sides, and the head has a hidden layer.
pub struct Simclr;

impl Method for Simclr {
    fn describe(&self, _plan: &Plan) -> String {
        "two views of every image, matched within the batch".into()
    }

    fn memory(&self, _plan: &Plan, _network: &Network, _weights: &Weights) -> Memory {
        Memory::Nothing
    }

    fn whole_batches(&self) -> bool {
        true
    }

    fn views(&self, _plan: &Plan, _at: At) -> usize {
        2
    }

    fn step(&self, plan: &Plan, task: Task, _memory: &Memory, _targets: &EpochTargets) -> Result<Step<StepResult>> {
        let Task { network, weights, batch, rows, dropout, .. } = task;
        Ok(network.step(weights, batch, 2, dropout, FeatureKind::Embedding, |v| {
            let (mean, gradient) = contrast_loss(v, plan.config.objective.tau as f32);
            let total = mean * rows.len() as f64;
            let loss = BatchLoss { samples: rows.len(), total, spreading: Some(total), ..BatchLoss::default() };
            (StepResult { loss, change: Change::Embeddings }, gradient)
        }))
    }
}
