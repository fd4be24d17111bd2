//! PCP+: the network learns to see the patch features of an image in any view of it.
//!
//! The bank holds the patch features of the images ([`crate::patches`]), which mean something before the network does, and stays as it is.
//! A view v of image i learns by Eq. 4 over that bank, `-log P(i|v)`, or, where `plus.clusters` is set, with the purified clusters
//! of the bank's rows as positive sets (Eq. 5): K_t falls by Eq. 1, CP_r and CP_s act as in PCP.

use super::pcp::Pcp;
use super::{
    At, Change, EpochTargets, FeatureRequest, FoundTargets, Memory, Method, Past, Plan, StepResult, Task, pcp,
};
use crate::config::ClusterFeatures;
use crate::data::loader::Draw;
use crate::method::bank::Bank;
use crate::model::{FeatureKind, Network, Step, Weights};
use pcp_core::error::Result;
use pcp_core::matrix::Matrix;
use pcp_core::rng::Purpose;
use std::sync::Arc;

/// PCP+.
pub struct Plus;

/// One image of so many is held out, at most `MOST_HELD`.
const HELD: usize = 20;
const MOST_HELD: usize = 500;

/// The rows of the images that the network is not trained on, in order: they tell at the end how much it has learned.
pub fn held_out(plan: &Plan) -> Vec<usize> {
    let count = (plan.samples() / HELD).min(MOST_HELD);
    let key = plan.key(Purpose::Subset, (0, 0));
    let mut rows: Vec<usize> = key.shuffled(plan.ids()).into_iter().take(count).collect();
    rows.sort_unstable();
    rows
}

impl Method for Plus {
    fn describe(&self, plan: &Plan) -> String {
        match plan.config.plus.clusters {
            true => {
                format!("patch features as targets; K from {} to {}", plan.schedule.clusters(0, 0), plan.schedule.floor)
            }
            false => "patch features as targets".into(),
        }
    }

    /// Without the patch features, which training adds before the first step.
    fn memory(&self, _plan: &Plan, network: &Network, _weights: &Weights) -> Memory {
        let rows = Matrix { rows: 0, dim: network.embedding, values: Vec::new() };
        Memory::Fixed(Arc::new(Bank { rows, first: 0, momentum: 1.0 }))
    }

    fn reads_out(&self) -> bool {
        true
    }

    fn clustering_steps(&self, plan: &Plan) -> usize {
        Pcp.clustering_steps(plan)
    }

    fn needed_features(&self, plan: &Plan, at: At) -> Option<FeatureRequest> {
        let needed = Pcp.needed_features(plan, at).filter(|_| plan.config.plus.clusters)?;
        Some(FeatureRequest { view: ClusterFeatures::Bank, ..needed })
    }

    fn find_targets(
        &self,
        plan: &Plan,
        at: At,
        features: &Matrix,
        memory: &Memory,
        past: Past,
        on_iteration: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<FoundTargets> {
        match plan.config.plus.clusters {
            true => Pcp.find_targets(plan, at, features, memory, past, on_iteration),
            false => Ok(FoundTargets { clusters: plan.samples(), ..FoundTargets::default() }),
        }
    }

    fn whole_batches(&self) -> bool {
        true
    }

    fn steps(&self, plan: &Plan) -> usize {
        ((plan.samples() - held_out(plan).len()) / plan.config.train.batch).max(1)
    }

    fn batches(&self, plan: &Plan, at: At, _targets: &EpochTargets) -> Vec<Vec<Draw>> {
        let held = held_out(plan);
        let rows: Vec<usize> = plan.shuffled(at).into_iter().filter(|row| held.binary_search(row).is_err()).collect();
        let mut batches = plan.cut(&Draw::first(&rows));
        batches.truncate(self.steps(plan));
        batches
    }

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
