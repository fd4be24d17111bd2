//! Progressive Cluster Purification (Algorithm 1): cluster, purify, then learn from the positive sets that are left.

use crate::config::{Config, Objective};
use crate::error::Result;
use crate::features::Features;
use crate::kmeans::{Clusters, KMeans, kmeans};
use crate::memory::Bank;
use crate::objective::{bank_loss, spreading_loss};
use crate::purify::{History, Positives, Purified, Rules, Status, Votes, purify};
use crate::schedule::Schedule;

/// What one epoch learns from.
#[derive(Clone, Debug)]
pub struct Supervision {
    /// K_t.
    pub clusters: usize,
    /// Raw cluster of every sample; `None` when every sample is its own instance.
    pub labels: Option<Vec<u32>>,
    /// What purification made of them.
    pub purified: Purified,
    /// Centroids, where there are clusters: the next epoch may start from them.
    pub centroids: Option<Features>,
}

/// What earlier epochs left.
#[derive(Clone, Copy, Debug)]
pub struct Past<'a> {
    /// Clusterings that vote.
    pub history: &'a History,
    /// Centroids to start from, when warm starts are on.
    pub centroids: Option<&'a Features>,
}

/// Clusters `features` into K_t and purifies: steps (b) to (d) of the loop.
pub fn supervise(
    config: &Config,
    schedule: &Schedule,
    features: &Features,
    ids: &[u64],
    past: Past,
    (round, epoch): (u32, u32),
    on_iteration: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Supervision> {
    let history = past.history;
    let clusters = schedule.clusters(round, epoch);
    if schedule.all_instances(clusters) {
        let n = ids.len();
        let purified = Purified {
            positives: Positives::instances(n),
            status: vec![Status::Instance; n],
            distance: vec![0.0; n],
            vote: vec![f32::NAN; n],
        };
        return Ok(Supervision { clusters, labels: None, purified, centroids: None });
    }
    // Centroids of another K are no start.
    let start = past.centroids.filter(|c| c.rows == clusters);
    let Clusters { assignment: labels, centroids, .. } =
        cluster(config, features, ids, clusters, start, (round, epoch), on_iteration)?;
    let rules = rules(config, schedule, history, (round, epoch));
    let purified = purify(features, &labels, clusters, &rules, history);
    Ok(Supervision { clusters, labels: Some(labels), purified, centroids: Some(centroids) })
}

/// k-means, several times where the settings ask for it; the least objective counts. Only the first run is given `start`.
fn cluster(
    config: &Config,
    features: &Features,
    ids: &[u64],
    k: usize,
    mut start: Option<&Features>,
    (round, epoch): (u32, u32),
    on_iteration: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Clusters> {
    let c = &config.clusters;
    let mut run = |run: u32| {
        let settings = KMeans { k, iterations: c.iterations, spherical: c.spherical, start: start.take() };
        // Runs differ by the seed's high bits, which nobody sets by hand.
        let seed = config.train.seed ^ (u64::from(run) << 48);
        kmeans(features, ids, &settings, seed, round, epoch, on_iteration)
    };
    let mut best = run(0)?;
    for i in 1..c.runs {
        let found = run(i)?;
        if found.objective < best.objective {
            best = found;
        }
    }
    Ok(best)
}

/// How this epoch purifies.
fn rules(config: &Config, schedule: &Schedule, history: &History, (round, epoch): (u32, u32)) -> Rules {
    let p = &config.purify;
    let votes = Votes { alpha: p.alpha, lower: p.lower, upper: schedule.upper };
    Rules {
        gamma: schedule.filters(round, epoch).then_some(p.gamma),
        whole_up_to: schedule.whole_up_to(round, epoch),
        votes: schedule.votes(round, epoch, history.len()).then_some(votes),
        stop_at_first_single: schedule.stops_at_first_single(round, epoch),
    }
}

/// Clusters and purifies the finished network's clean features: K = N_c, and the votes of the last epochs.
pub fn final_clusters(
    config: &Config,
    schedule: &Schedule,
    features: &Features,
    ids: &[u64],
    history: &History,
    on_iteration: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<(Vec<u32>, Purified)> {
    let (round, epoch) = (config.train.rounds, 0);
    let labels = cluster(config, features, ids, schedule.floor, None, (round, epoch), on_iteration)?.assignment;
    let last = (config.train.rounds - 1, config.train.epochs - 1);
    let votes = rules(config, schedule, history, last).votes;
    let rules = Rules { gamma: Some(config.purify.gamma), whole_up_to: 0, votes, stop_at_first_single: false };
    let purified = purify(features, &labels, schedule.floor, &rules, history);
    Ok((labels, purified))
}

/// The losses of a batch, as sums over samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchLoss {
    /// Samples.
    pub samples: usize,
    /// Of the total loss.
    pub total: f64,
    /// Of the bank loss over instances, and how many they are.
    pub instance: (f64, usize),
    /// Of the bank loss over samples with positives, and how many they are.
    pub cluster: (f64, usize),
    /// Of the warm-up loss.
    pub spreading: Option<f64>,
}

/// `w L_IS + (1 - w) L_pcp` during the warm-up, `L_pcp` otherwise, with the gradient of the mean by the embeddings `v`:
/// all samples in view 1, then, where there is one, all in view 2.
pub fn loss(
    v: &Features,
    samples: &[usize],
    bank: &Bank,
    positives: &Positives,
    objective: &Objective,
    warmup: Option<f64>,
) -> (BatchLoss, Vec<f32>) {
    let b = samples.len();
    let tau = objective.tau as f32;
    let w = warmup.unwrap_or(0.0);
    let bank_views = (objective.bank_views as usize).min(v.rows / b);
    let seen = Features { rows: b * bank_views, dim: v.dim, values: v.values[..b * bank_views * v.dim].to_vec() };
    let rows: Vec<usize> = samples.iter().copied().cycle().take(seen.rows).collect();
    let bank_part = bank_loss(&seen, &rows, &bank.rows, positives, tau, objective.form);

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
    use crate::config::Form;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 2e-6, "{a} is not {b}");
    }

    /// Recipe: method.md 1.4 and 2.2: the two check cases put together by the warm-up's formula.
    #[test]
    fn the_warmup_mixes_the_two_losses() {
        let unit = |rows: &[[f32; 3]]| Features::new(3, rows.concat()).normalised();
        let bank = unit(&[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.5, 0.0], [0.8, 0.0, 0.4], [0.0, 0.0, 1.0]]);
        let bank = Bank { rows: bank, momentum: 0.5 };
        let positives = Positives::from_sets(5, [vec![0, 2, 3]]);
        let objective = Objective { form: Form::Logsum, ..Objective::default() };
        let v = unit(&[[1.0, 0.1, 0.1], [0.1, 1.0, 0.0], [0.9, 0.2, 0.1], [0.0, 0.9, 0.1]]);
        let one_view = Features::new(3, v.values[..6].to_vec());
        let (alone, plain) = loss(&one_view, &[0, 1], &bank, &positives, &objective, None);
        close(alone.total / 2.0, 0.0051585082);
        assert_eq!((alone.cluster.1, alone.instance.1, alone.spreading), (1, 1, None));
        let (spreading, spread) = spreading_loss(&v, 0.1);
        let (mixed, gradient) = loss(&v, &[0, 1], &bank, &positives, &objective, Some(0.7));
        close(mixed.total / 2.0, 0.7 * spreading + 0.3 * 0.0051585082);
        for i in 0..12 {
            let expected = 0.7 * spread[i] + if i < 6 { 0.3 * plain[i] } else { 0.0 };
            assert!((gradient[i] - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn both_views_may_take_the_bank_loss() {
        let bank = Bank::new(&[0, 1, 2], 4, 0.5, 1);
        let v = Features::new(4, (0..8).map(|i| (i as f32).sin()).collect()).normalised();
        let objective = Objective { bank_views: 2, ..Objective::default() };
        let positives = Positives::instances(3);
        let (both, gradient) = loss(&v, &[2], &bank, &positives, &objective, None);
        let part = |row: usize| {
            let one = Features::new(4, v.row(row).to_vec());
            loss(&one, &[2], &bank, &positives, &Objective::default(), None)
        };
        close(both.total, (part(0).0.total + part(1).0.total) / 2.0);
        assert_eq!(both.instance.1, 1);
        for i in 0..8 {
            let expected = part(i / 4).1[i % 4] / 2.0;
            assert!((gradient[i] - expected).abs() < 1e-6);
        }
    }
}
