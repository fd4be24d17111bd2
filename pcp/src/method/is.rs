//! IS, invariance and spreading of instances (Ye et al. 2019): two views of an image attract, the rest of the batch repels.

use super::{At, BatchLoss, Lesson, Memory, Method, Outcome, Plan, Task};
use crate::method::objective::spreading_loss;
use crate::model::{FeatureKind, Network, Step};

/// Its positive is the other view; its loss compares within the batch, so there is no bank.
pub struct Is;

impl Method for Is {
    fn describe(&self, _plan: &Plan) -> String {
        "two views of every image, compared within the batch".into()
    }

    fn memory(&self, _plan: &Plan, _network: &Network) -> Memory {
        Memory::default()
    }

    fn whole_batches(&self) -> bool {
        true
    }

    fn views(&self, _plan: &Plan, _at: At) -> usize {
        2
    }

    fn step(&self, plan: &Plan, task: Task, _memory: &Memory, _lesson: &Lesson) -> Step<Outcome> {
        let Task { network, weights, batch, rows, dropout, .. } = task;
        network.step(weights, batch, 2, dropout, FeatureKind::Embedding, |v| {
            let (mean, gradient) = spreading_loss(v, plan.config.objective.tau as f32);
            let total = mean * rows.len() as f64;
            let loss = BatchLoss { samples: rows.len(), total, spreading: Some(total), ..BatchLoss::default() };
            (Outcome { loss, ..Outcome::default() }, gradient)
        })
    }
}
