//! LA, local aggregation (Zhuang et al. 2019): an image learns with its close neighbours, found by several clusterings of the
//! bank, against a background of the nearest rows.

use super::pcp::cluster;
use super::{
    At, BatchLoss, Change, EpochTargets, FeatureRequest, FoundTargets, Memory, Method, Past, Plan, StepResult, Task,
};
use crate::method::objective::local_loss;
use crate::model::{FeatureKind, Step};
use pcp_core::error::Result;
use pcp_core::matrix::Matrix;
use pcp_core::purify::{History, Rules, purify};

/// A few epochs of instance recognition, then [`local_loss`]: C_i are the samples that share i's cluster in any of ten clusterings, B_i
/// the 4096 rows of the bank nearest to its embedding.
pub struct La;

impl La {
    /// Whether this epoch trains by instance recognition.
    fn is_instances(plan: &Plan, (round, epoch): At) -> bool {
        round == 0 && !plan.schedule.reached(plan.config.la.instances_until, epoch)
    }
}

impl Method for La {
    fn describe(&self, plan: &Plan) -> String {
        let la = &plan.config.la;
        format!("{} clusterings of {}, background {}", la.clusterings, plan.schedule.floor, la.background)
    }

    fn clustering_steps(&self, plan: &Plan) -> usize {
        (plan.config.clusters.iterations + 1) * plan.config.la.clusterings as usize
    }

    fn needed_features(&self, plan: &Plan, at: At) -> Option<FeatureRequest> {
        (!La::is_instances(plan, at))
            .then_some(FeatureRequest { view: plan.config.clusters.features, tap: FeatureKind::Embedding })
    }

    fn find_targets(
        &self,
        plan: &Plan,
        at: At,
        features: &Matrix,
        _memory: &Memory,
        _past: Past,
        on_iteration: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<FoundTargets> {
        if La::is_instances(plan, at) {
            return Ok(FoundTargets { clusters: plan.samples(), ..FoundTargets::default() });
        }
        let k = plan.schedule.floor;
        let found = |run: u32| Ok(cluster(plan, features, k, None, at, run, on_iteration)?.assignment);
        let clusterings: Vec<Vec<u32>> = (0..plan.config.la.clusterings).map(found).collect::<Result<_>>()?;
        // The first clustering stands for all in the run folder.
        let purified = purify(features, &clusterings[0], k, &Rules::WHOLE, &History::default());
        let labels = Some(clusterings[0].clone());
        Ok(FoundTargets { clusters: k, labels, purified: Some(purified), clusterings, ..FoundTargets::default() })
    }

    fn step(&self, plan: &Plan, task: Task, memory: &Memory, targets: &EpochTargets) -> Result<Step<StepResult>> {
        let work = plan.sampled_work(task.at, task.number);
        let Task { network, weights, batch, share, rows, dropout, .. } = task;
        let bank = memory.bank()?;
        Ok(network.step(weights, batch, share, dropout, FeatureKind::Embedding, |v| {
            let (o, la) = (&plan.config.objective, &plan.config.la);
            let (loss, gradient) = if targets.clusterings.is_empty() {
                super::pcp::loss(v, rows, bank, &targets.positives, o, None, work)
            } else {
                let (tau, peers) = (o.tau as f32, &*plan.dataset.team);
                let found = local_loss(v, rows, bank, &targets.clusterings, la.background, tau, peers);
                (BatchLoss::of(&found.each, true), found.gradient)
            };
            (StepResult { loss, change: Change::Embeddings }, gradient)
        }))
    }
}
