//! Systems that compare two views of every image within the batch, without a bank: IS and SimCLR.

use super::{At, BatchLoss, Change, EpochTargets, Memory, Method, Plan, StepResult, Task};
use crate::method::objective::{contrast_loss, spreading_loss};
use crate::model::{FeatureKind, Network, Step, Weights};
use pcp_core::error::Result;
use pcp_core::matrix::Matrix;

/// The positive is the other view; the loss compares embeddings within the batch, so there is no bank.
pub struct WithinBatch {
    description: &'static str,
    /// The mean loss of both views of all images, all of view 1 first, at a temperature, and its gradient.
    loss: fn(&Matrix, f32) -> (f64, Vec<f32>),
}

/// IS, invariance and spreading of instances (Ye et al. 2019): two views of an image attract, the rest of the batch repels.
pub const IS: WithinBatch =
    WithinBatch { description: "two views of every image, compared within the batch", loss: spreading_loss };

/// SimCLR (Chen et al. 2020): a view must match the other view of its image among all views of the batch. The loss is a plain
/// softmax with gradients on both sides.
pub const SIMCLR: WithinBatch =
    WithinBatch { description: "two views of every image, matched within the batch", loss: contrast_loss };

impl Method for WithinBatch {
    fn describe(&self, _plan: &Plan) -> String {
        self.description.into()
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
        let Task { network, weights, batch, share, rows, dropout, .. } = task;
        Ok(network.step(weights, batch, share, dropout, FeatureKind::Embedding, |v| {
            let (mean, gradient) = (self.loss)(v, plan.config.objective.tau as f32);
            (StepResult { loss: BatchLoss::within_batch(mean, rows.len()), change: Change::Embeddings }, gradient)
        }))
    }
}
