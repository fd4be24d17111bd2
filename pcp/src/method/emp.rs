//! EMP-SSL (Tong et al. 2023): many small views of an image are pulled to their mean, and the views of a batch are spread by their
//! coding rate. Made for few epochs of many views.

use super::{At, BatchLoss, Change, EpochTargets, Memory, Method, Plan, StepResult, Task};
use crate::method::objective::coding_rate_loss;
use crate::model::{FeatureKind, Network, Step, Weights};
use pcp_core::error::Result;

/// `train.batch` counts images, each with `emp.views` views. The loss is the published one divided by 200, so that SGD takes the place
/// of the authors' LARS with usual learning rates.
pub struct Emp;

impl Method for Emp {
    fn describe(&self, plan: &Plan) -> String {
        format!("{} views of every image, pulled together and spread", plan.config.emp.views)
    }

    fn memory(&self, _plan: &Plan, _network: &Network, _weights: &Weights) -> Memory {
        Memory::Nothing
    }

    fn whole_batches(&self) -> bool {
        true
    }

    fn views(&self, plan: &Plan, _at: At) -> usize {
        plan.config.emp.views
    }

    /// All views share their batch-norm statistics, as in the authors' code.
    fn parts(&self, _plan: &Plan, _at: At, _images: usize) -> usize {
        1
    }

    fn step(&self, plan: &Plan, task: Task, _memory: &Memory, _targets: &EpochTargets) -> Result<Step<StepResult>> {
        let Task { network, weights, batch, share, rows, dropout, .. } = task;
        let (views, emp) = (plan.config.emp.views, &plan.config.emp);
        Ok(network.step(weights, batch, share, dropout, FeatureKind::Embedding, |v| {
            // Embeddings that are not finite have no coding rate: training ends with the error for such a loss.
            let (mean, gradient) = coding_rate_loss(v, views, emp.spread, emp.precision)
                .unwrap_or_else(|_| (f64::NAN, vec![0.0; v.values.len()]));
            (StepResult { loss: BatchLoss::within_batch(mean, rows.len()), change: Change::Embeddings }, gradient)
        }))
    }
}
