//! Progressive Cluster Purification (Algorithm 1): cluster, purify, then learn from the remaining positive sets.

use super::{
    At, BatchLoss, Change, EpochTargets, FeatureRequest, FoundTargets, Memory, Method, Past, Plan, StepResult, Task,
};
use crate::config::ObjectiveSettings;
use crate::method::bank::Bank;
use crate::method::objective::{BankWork, bank_loss, spreading_loss};
use crate::model::{FeatureKind, Step};
use pcp_core::error::Result;
use pcp_core::kmeans::{Clusters, KMeans, best_of, kmeans_among};
use pcp_core::matrix::Matrix;
use pcp_core::purify::{History, Positives, Purified, Rules, Status, Votes, purify};

/// PCP and, by its settings, its ablations (PC, PC + CP_r) and the paper's DC. The positives are the purified clusters; the
/// loss is Eq. 6, mixed with IS in the warm-up.
pub struct Pcp;

impl Method for Pcp {
    fn describe(&self, plan: &Plan) -> String {
        let warmup = plan.schedule.warmup_end().map_or("no warm-up".into(), |end| format!("warm-up to epoch {end}"));
        format!("K from {} to {}; {warmup}", plan.schedule.clusters(0, 0), plan.schedule.floor)
    }

    fn clustering_steps(&self, plan: &Plan) -> usize {
        let c = &plan.config.clusters;
        (c.iterations + 1) * c.runs as usize
    }

    fn needed_features(&self, plan: &Plan, (round, epoch): At) -> Option<FeatureRequest> {
        let alone = plan.schedule.all_instances(plan.schedule.clusters(round, epoch));
        (!alone).then_some(FeatureRequest { view: plan.config.clusters.features, tap: FeatureKind::Embedding })
    }

    /// Clusters `features` into K_t and purifies: steps (b) to (d) of the loop.
    fn find_targets(
        &self,
        plan: &Plan,
        at: At,
        features: &Matrix,
        _memory: &Memory,
        past: Past,
        on_iteration: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<FoundTargets> {
        let clusters = plan.schedule.clusters(at.0, at.1);
        if plan.schedule.all_instances(clusters) {
            let n = plan.samples();
            let purified = Purified {
                positives: Positives::instances(n),
                status: vec![Status::Instance; n],
                distance: vec![0.0; n],
                vote: vec![f32::NAN; n],
            };
            return Ok(FoundTargets { clusters, purified: Some(purified), ..FoundTargets::default() });
        }
        // Centroids of another K cannot be used.
        let start = past.centroids.filter(|c| c.rows == clusters);
        let Clusters { assignment: labels, centroids, .. } =
            best_cluster(plan, features, clusters, start, at, on_iteration)?;
        let purified = purify(features, &labels, clusters, &rules(plan, past.history, at), past.history);
        Ok(FoundTargets {
            clusters,
            labels: Some(labels),
            purified: Some(purified),
            centroids: Some(centroids),
            ..FoundTargets::default()
        })
    }

    fn views(&self, plan: &Plan, (round, epoch): At) -> usize {
        let warmup = plan.schedule.warmup_weight(round, epoch).is_some();
        if warmup || plan.config.objective.bank_views == 2 { 2 } else { 1 }
    }

    fn step(&self, plan: &Plan, task: Task, memory: &Memory, targets: &EpochTargets) -> Result<Step<StepResult>> {
        let warmup = plan.schedule.warmup_weight(task.at.0, task.at.1);
        let work = plan.sampled_work(task.at, task.number);
        let Task { network, weights, batch, share, rows, dropout, .. } = task;
        let bank = memory.bank()?;
        Ok(network.step(weights, batch, share, dropout, FeatureKind::Embedding, |v| {
            let (loss, gradient) = loss(v, rows, bank, &targets.positives, &plan.config.objective, warmup, work);
            (StepResult { loss, change: Change::Embeddings }, gradient)
        }))
    }
}

/// k-means with the run's settings; runs with different numbers have different random starts.
pub(super) fn cluster(
    plan: &Plan,
    features: &Matrix,
    k: usize,
    start: Option<&Matrix>,
    draw: At,
    run: u32,
    on_iteration: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Clusters> {
    let c = &plan.config.clusters;
    // Runs differ in the seed's high bits, which users do not set.
    let seed = plan.config.train.seed ^ (u64::from(run) << 48);
    let settings = KMeans {
        iterations: c.iterations,
        spherical: c.spherical,
        start,
        ids: Some(plan.ids()),
        seed,
        search: c.search,
        draw,
        ..KMeans::new(k)
    };
    kmeans_among(&*plan.dataset.team, features, &settings, on_iteration)
}

/// The best of `clusters.runs` runs of k-means, by the objective. Only the first uses `start`.
fn best_cluster(
    plan: &Plan,
    features: &Matrix,
    k: usize,
    start: Option<&Matrix>,
    at: At,
    on_iteration: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Clusters> {
    best_of(plan.config.clusters.runs, |run| {
        let start = start.filter(|_| run == 0);
        cluster(plan, features, k, start, at, run, on_iteration)
    })
}

/// The rules of purification in this epoch.
fn rules(plan: &Plan, history: &History, (round, epoch): At) -> Rules {
    let (p, schedule) = (&plan.config.purify, &plan.schedule);
    let votes = Votes { alpha: p.alpha, lower: schedule.lower, upper: schedule.upper };
    Rules {
        gamma: schedule.filters(round, epoch).then_some(p.gamma),
        whole_up_to: schedule.whole_up_to(round, epoch),
        votes: schedule.votes(round, epoch, history.len()).then_some(votes),
        stop_at_first_single: schedule.stops_at_first_single(round, epoch),
    }
}

/// Clusters and purifies the trained network's features of clean views: K = N_c, with the votes of the last epochs. For every
/// system: these are the clusters that the run folder stores.
pub fn final_clusters(
    plan: &Plan,
    features: &Matrix,
    history: &History,
    on_iteration: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<(Vec<u32>, Purified)> {
    let (t, floor) = (&plan.config.train, plan.schedule.floor);
    let labels = best_cluster(plan, features, floor, None, (t.rounds, 0), on_iteration)?.assignment;
    let votes = rules(plan, history, (t.rounds.saturating_sub(1), t.epochs - 1)).votes;
    let rules = Rules { gamma: Some(plan.config.purify.gamma), whole_up_to: 0, votes, stop_at_first_single: false };
    let purified = purify(features, &labels, floor, &rules, history);
    Ok((labels, purified))
}

/// `w L_IS + (1 - w) L_pcp` during the warm-up, `L_pcp` otherwise, with the gradient of the mean by the embeddings `v`:
/// all samples in view 1, then, where there is one, all in view 2.
pub fn loss<'a>(
    v: &Matrix,
    samples: &[usize],
    bank: &Bank,
    positives: &Positives,
    objective: &ObjectiveSettings,
    warmup: Option<f64>,
    work: impl Into<BankWork<'a>>,
) -> (BatchLoss, Vec<f32>) {
    let b = samples.len();
    let tau = objective.tau as f32;
    let w = warmup.unwrap_or(0.0);
    let bank_views = (objective.bank_views as usize).min(v.rows / b);
    let seen = Matrix { rows: b * bank_views, dim: v.dim, values: v.values[..b * bank_views * v.dim].to_vec() };
    let rows: Vec<usize> = samples.iter().copied().cycle().take(seen.rows).collect();
    let bank_part = bank_loss(&seen, &rows, bank, positives, tau, objective.form, work);

    let mut loss = BatchLoss { samples: b, ..BatchLoss::default() };
    for (row, each) in bank_part.each.iter().enumerate() {
        let each = each / bank_views as f64;
        let part = if positives.of(rows[row]).is_some() { &mut loss.cluster } else { &mut loss.instance };
        part.0 += each;
        part.1 += usize::from(row < b);
    }
    loss.total = (1.0 - w) * (loss.instance.0 + loss.cluster.0);
    let mut gradient = vec![0.0f32; v.values.len()];
    for (g, part) in gradient.iter_mut().zip(&bank_part.gradient) {
        *g = (1.0 - w) as f32 * part;
    }
    if warmup.is_some() {
        let (spreading, part) = spreading_loss(v, tau);
        let sum = spreading * b as f64;
        loss.spreading = Some(sum);
        loss.total += w * sum;
        for (g, part) in gradient.iter_mut().zip(part) {
            *g += w as f32 * part;
        }
    }
    (loss, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LossForm;
    use kernels::Precision;
    use pcp_core::peers::Alone;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 2e-6, "{a} is not {b}");
    }

    /// The check cases of both losses, combined by the warm-up's formula.
    #[test]
    fn the_warmup_mixes_the_two_losses() {
        let unit = |rows: &[[f32; 3]]| Matrix::new(3, rows.concat()).normalised();
        let bank = unit(&[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.5, 0.0], [0.8, 0.0, 0.4], [0.0, 0.0, 1.0]]);
        let bank = Bank { rows: bank, first: 0, momentum: 0.5 };
        let positives = Positives::from_sets(5, [vec![0, 2, 3]]);
        let objective = ObjectiveSettings { form: LossForm::Logsum, ..ObjectiveSettings::default() };
        let v = unit(&[[1.0, 0.1, 0.1], [0.1, 1.0, 0.0], [0.9, 0.2, 0.1], [0.0, 0.9, 0.1]]);
        let one_view = Matrix::new(3, v.values[..6].to_vec());
        let (alone, plain) = loss(&one_view, &[0, 1], &bank, &positives, &objective, None, Precision::F32);
        close(alone.total / 2.0, 0.0051585082);
        assert_eq!((alone.cluster.1, alone.instance.1, alone.spreading), (1, 1, None));
        let (spreading, spread) = spreading_loss(&v, 0.1);
        let (mixed, gradient) = loss(&v, &[0, 1], &bank, &positives, &objective, Some(0.7), Precision::F32);
        close(mixed.total / 2.0, 0.7 * spreading + 0.3 * 0.0051585082);
        for i in 0..12 {
            let expected = 0.7 * spread[i] + if i < 6 { 0.3 * plain[i] } else { 0.0 };
            assert!((gradient[i] - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn both_views_may_take_the_bank_loss() {
        let bank = Bank::new(&[0, 1, 2], 4, 0.5, 1, &Alone);
        let v = Matrix::new(4, (0..8).map(|i| (i as f32).sin()).collect()).normalised();
        let objective = ObjectiveSettings { bank_views: 2, ..ObjectiveSettings::default() };
        let positives = Positives::instances(3);
        let (both, gradient) = loss(&v, &[2], &bank, &positives, &objective, None, Precision::F32);
        let part = |row: usize| {
            let one = Matrix::new(4, v.row(row).to_vec());
            loss(&one, &[2], &bank, &positives, &ObjectiveSettings::default(), None, Precision::F32)
        };
        close(both.total, (part(0).0.total + part(1).0.total) / 2.0);
        assert_eq!(both.instance.1, 1);
        for i in 0..8 {
            let expected = part(i / 4).1[i % 4] / 2.0;
            assert!((gradient[i] - expected).abs() < 1e-6);
        }
    }
}
