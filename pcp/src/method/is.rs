//! IS, invariance and spreading of instances (Ye et al. 2019): two views of an image attract, the rest of the batch repels.

use super::{At, BatchLoss, Change, EpochTargets, Memory, Method, Plan, StepResult, Task};
use crate::method::objective::spreading_loss;
use crate::model::{FeatureKind, Network, Step, Weights};
use pcp_core::error::Result;

/// The positive is the other view; the loss compares embeddings within the batch, so there is no bank.
pub struct Is;

impl Method for Is {
    fn describe(&self, _plan: &Plan) -> String {
        "two views of every image, compared within the batch".into()
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
            let (mean, gradient) = spreading_loss(v, plan.config.objective.tau as f32);
            let total = mean * rows.len() as f64;
            let loss = BatchLoss { samples: rows.len(), total, spreading: Some(total), ..BatchLoss::default() };
            (StepResult { loss, change: Change::Embeddings }, gradient)
        }))
    }
}
