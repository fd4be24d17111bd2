//! The loop (Algorithm 1), and what surrounds it: checkpoints, probes, records, and the end.

mod checkpoints;
mod forecast;
pub mod setup;
mod state;

pub use forecast::{Ahead, Forecast, forecast};
pub use setup::Setup;
pub use state::{Progress, State};

use crate::config::ClusterFeatures;
use crate::data::loader::{Part, View};
use crate::method::{Lesson, Past, Task, pcp};
use crate::model::DropoutKey;
use crate::observe::Live;
use crate::run::{EpochRecord, RunResult, Warning};
use checkpoints::Checkpoints;
use pcp_core::error::{Error, Result};
use pcp_core::matrix::Matrix;
use pcp_core::purify::Positives;
use pcp_core::rng::{Key, Purpose};
use state::{Counts, Sums, sizes};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A spread of embeddings below this share of an even one is a collapse.
const COLLAPSED: f64 = 0.05;
/// A cluster with more than this share of the samples holds most of them.
const MOST: f64 = 0.5;
/// The same where there are but two.
const NEARLY_ALL: f64 = 0.9;

/// Trains from `state` to the end. A stop saves everything first, so that the run can go on where it was.
pub fn train(setup: &Setup, mut state: State) -> Result<RunResult> {
    let checkpoints = Checkpoints::new(setup);
    let result = rounds(setup, &mut state, &checkpoints);
    if let Err(e) = &result
        && e.kind == pcp_core::error::Kind::Stopped
    {
        checkpoints.save(&state)?;
        return Err(Error {
            message: format!("stopped {}; everything is saved", state.progress.place(setup.plan.config.train.rounds)),
            hint: format!("go on with: pcp train --resume {}", setup.run.path().display()),
            ..e.clone()
        });
    }
    result
}

/// Algorithm 1.
fn rounds(setup: &Setup, state: &mut State, checkpoints: &Checkpoints) -> Result<RunResult> {
    while state.progress.round < setup.plan.config.train.rounds {
        if state.lesson.is_none() {
            let features = look(setup, state)?; // (a)
            supervise(setup, state, features)?; // (b) to (d)
        }
        learn(setup, state, checkpoints)?; // (e)
        end_epoch(setup, state)?; // (f)
        checkpoints.save(state)?;
    }
    finish(setup, state)
}

/// (a) One vector per image: the network in eval mode on a random view, or what the settings ask for instead.
fn look(setup: &Setup, state: &mut State) -> Result<Matrix> {
    let started = Instant::now();
    let at = state.at();
    let Some(look) = setup.method.look(&setup.plan, at) else { return Ok(Matrix::default()) };
    let view = match look.view {
        ClusterFeatures::Augmented => View::Random(setup.plan.key(Purpose::ClusterView, at), 0),
        ClusterFeatures::Clean => View::Clean,
        ClusterFeatures::Bank => {
            let bank = state.memory.bank.as_ref();
            return Ok(bank.map(|bank| bank.rows.clone().normalised()).unwrap_or_default());
        }
    };
    setup.observer.begin("features", setup.plan.samples());
    let features = setup.embed(&state.weights, view, look.tap)?;
    state.progress.sums.feature_seconds += started.elapsed().as_secs_f64();
    let spread = features.clone().normalised().spread() * (features.dim as f64).sqrt();
    if spread < COLLAPSED {
        setup.warn(Warning::Collapse { spread });
    }
    Ok(features)
}

/// (b) to (d): what the epoch learns from; in PCP, K_t clusters, purified into positive sets. The raw clusters join the
/// history that later epochs ask.
fn supervise(setup: &Setup, state: &mut State, features: Matrix) -> Result<()> {
    let started = Instant::now();
    let at @ (round, epoch) = state.at();
    if setup.method.look(&setup.plan, at).is_some() {
        setup.observer.begin("clustering", setup.method.clustering_steps(&setup.plan));
    }
    let (method, plan, memory) = (setup.method, setup.plan.clone(), state.memory.clone());
    let (history, observer, stop) = (state.history.clone(), setup.observer.clone(), setup.stop.clone());
    let (centroids, before) = (state.centroids.clone(), state.previous.clone());
    let mut supervision = setup.stop.run(move || {
        let positives = before.as_ref().map(|lesson| &lesson.positives);
        let past = Past { history: &history, centroids: centroids.as_ref(), positives };
        method.supervise(&plan, at, &features, &memory, past, &mut |_| {
            observer.advance(1);
            stop.check()
        })
    })??;
    let samples = setup.plan.samples();
    let labels = supervision.labels.clone();
    if let Some(purified) = &supervision.purified {
        let alone = || (0..samples as u32).collect();
        setup.run.write_epoch_clusters(round, epoch, &labels.clone().unwrap_or_else(alone), purified)?;
    }
    if let Some(labels) = labels.clone().filter(|_| setup.plan.schedule.stores(round, epoch)) {
        state.history.push(labels, setup.plan.schedule.history);
    }
    state.centroids = supervision.centroids.take().filter(|_| setup.plan.config.clusters.warm_start);
    if let Some(classifier) = supervision.classifier.take() {
        state.memory.classifier = Some(Arc::new(classifier));
    }
    let before = state.previous.as_ref().and_then(|lesson| lesson.labels.as_deref());
    let counts = Counts::new(&supervision, samples, before);
    let positives = supervision.purified.map_or_else(|| Positives::instances(samples), |purified| purified.positives);
    if labels.is_some() && positives.covered() == 0 {
        setup.warn(Warning::NothingKept);
    }
    let most = if counts.clusters > 2 { MOST } else { NEARLY_ALL };
    if counts.largest > most && counts.clusters > 1 {
        setup.warn(Warning::Imbalance { share: counts.largest });
    }
    state.progress.counts = counts;
    state.lesson = Some(Arc::new(Lesson { labels, positives, clusterings: supervision.clusterings }));
    state.progress.sums.cluster_seconds += started.elapsed().as_secs_f64();
    Ok(())
}

/// (e) One epoch of steps, from the batch where it was left.
fn learn(setup: &Setup, state: &mut State, checkpoints: &Checkpoints) -> Result<()> {
    let Some(lesson) = state.lesson.clone() else { return Ok(()) };
    let at @ (round, epoch) = state.at();
    let (method, ids) = (setup.method, setup.plan.ids());
    let batches = method.batches(&setup.plan, at, &lesson);
    let (total, left) = (batches.len(), batches[state.progress.batch.min(batches.len())..].to_vec());
    let random = setup.plan.key(Purpose::View, at);
    let looks = (0..method.views(&setup.plan, at) as u32).map(|view| View::Random(random, view)).collect();
    let kept = lesson.positives.covered() as f64 / ids.len() as f64;

    setup.observer.begin("training", batches.iter().map(Vec::len).sum());
    setup.observer.advance(state.progress.sums.samples);
    let mut started = Instant::now();
    for made in setup.loader.stream(Part::Train, left, looks) {
        let (draws, batch) = made?;
        let rows: Vec<usize> = draws.iter().map(|draw| draw.row).collect();
        let dropout = DropoutKey {
            key: Key { purpose: Purpose::Dropout, ..random },
            // Copies of an image are dropped out each in its own way.
            ids: draws.iter().map(|draw| ids[draw.row] | u64::from(draw.copy) << 48).collect(),
        };
        let (network, plan, lesson, memory) =
            (setup.network.clone(), setup.plan.clone(), lesson.clone(), state.memory.clone());
        let (weights, keys, samples) = (state.weights.clone(), state.keys.clone(), rows.clone());
        let step = setup.stop.run(move || {
            let (network, weights, keys) = (&network, &weights, keys.as_ref());
            method.step(&plan, Task { network, weights, keys, batch, rows: &samples, dropout, at }, &memory, &lesson)
        })?;
        let loss = step.loss.loss;
        if !loss.total.is_finite() {
            return Err(Error::training(
                format!(
                    "the loss is not finite in round {}, epoch {}, batch {}",
                    round + 1,
                    epoch + 1,
                    state.progress.batch + 1
                ),
                "start anew with a lower learning rate (--set train.lr=...); checkpoints from before are kept",
            ));
        }
        // What a step changes: the system's memory, running statistics, weights.
        if let Some(keys) = state.memory.follow(&rows, &step.features, step.loss) {
            state.keys = Some(keys);
        }
        state.weights.update_running_stats(&step.moments);
        state.optimizer.step(&mut state.weights, step.gradients, setup.sgd(epoch));
        state.progress.batch += 1;
        let sums = &mut state.progress.sums;
        sums.add(&loss);
        sums.train_seconds += started.elapsed().as_secs_f64();
        started = Instant::now();
        setup.observer.advance(rows.len());
        setup.observer.live(&Live {
            loss: sums.total / sums.samples as f64,
            images_per_second: sums.samples as f64 / sums.train_seconds,
            lr: setup.plan.schedule.lr(epoch),
            clusters: state.progress.counts.clusters,
            kept,
        });
        checkpoints.save_if_due(state)?;
    }
    if state.progress.batch < total {
        return Err(Error::training("the loader ended before the epoch did", "please report this; --resume goes on"));
    }
    Ok(())
}

/// (f) The probe when it is due, the record, and on to the next epoch.
fn end_epoch(setup: &Setup, state: &mut State) -> Result<()> {
    let started = Instant::now();
    let (round, epoch) = state.at();
    let done = setup.plan.schedule.finished_epochs(round, epoch);
    let knn = if setup.plan.schedule.probes(round, epoch) { setup.probe(&state.weights)? } else { None };
    if let Some(knn) = knn {
        state.progress.last = Some(knn);
        if state.progress.best.is_none_or(|(best, _)| knn > best) {
            state.progress.best = Some((knn, done));
            setup.save_model(state, (round, epoch), &setup.run.best_weights())?;
        }
    }
    if setup.plan.schedule.snapshot(round, epoch).is_some() {
        let folder = setup.run.file("snapshots");
        pcp_core::io::atomic::make_folder(&folder)?;
        let path = folder.join(format!("r{round}-e{epoch:03}.safetensors"));
        setup.save_model(state, (round, epoch), &path)?;
    }
    let classifier = if knn.is_some() { setup.classify(state)? } else { None };
    state.progress.classifier = classifier.or(state.progress.classifier);
    let record = EpochRecord { classifier, ..record(setup, state, knn, started.elapsed()) };
    setup.run.append_metrics(&record)?;
    let labels = state.lesson.as_ref().and_then(|lesson| lesson.labels.as_deref());
    let sizes = labels.map(|labels| sizes(labels, state.progress.counts.clusters)).unwrap_or_default();
    setup.run.append_events(&record, done, &sizes)?;
    setup.observer.epoch(&record);

    // Who comes next asks for the positives and the labels alone.
    let kept = |lesson: Arc<Lesson>| Arc::new(Lesson { clusterings: Vec::new(), ..Arc::unwrap_or_clone(lesson) });
    state.previous = state.lesson.take().map(kept);
    let progress = &mut state.progress;
    progress.seconds += record.seconds;
    progress.metrics_lines += 1;
    progress.batch = 0;
    progress.sums = Sums::default();
    progress.epoch += 1;
    if progress.epoch == setup.plan.schedule.epochs() {
        (progress.round, progress.epoch) = (progress.round + 1, 0);
    }
    Ok(())
}

fn record(setup: &Setup, state: &State, knn: Option<f64>, probing: Duration) -> EpochRecord {
    let Progress { round, epoch, sums, counts, .. } = state.progress;
    let samples = setup.plan.samples();
    let covered = state.lesson.as_ref().map_or(0, |l| l.positives.covered());
    let mean = |(sum, n): (f64, usize)| (n > 0).then(|| sum / n as f64);
    EpochRecord {
        round,
        epoch,
        clusters: counts.clusters,
        non_empty: counts.non_empty,
        kept: covered as f64 / samples as f64,
        pulled_back: counts.pulled_back,
        dropped: counts.dropped,
        instances: samples - covered,
        loss: sums.total / sums.samples.max(1) as f64,
        loss_instance: mean(sums.instance),
        loss_cluster: mean(sums.cluster),
        loss_is: mean(sums.spreading),
        lr: setup.plan.schedule.lr(epoch),
        seconds: sums.feature_seconds + sums.cluster_seconds + sums.train_seconds + probing.as_secs_f64(),
        feature_seconds: sums.feature_seconds,
        cluster_seconds: sums.cluster_seconds,
        train_seconds: sums.train_seconds,
        images_per_second: sums.samples as f64 / sums.train_seconds.max(1e-9),
        churn: counts.churn,
        knn,
        classifier: None,
    }
}

/// The last weights, the clean embeddings, the final clusters and the result.
fn finish(setup: &Setup, state: &mut State) -> Result<RunResult> {
    let started = Instant::now();
    let train = &setup.plan.config.train;
    let last = if train.rounds > 0 { (train.rounds - 1, train.epochs - 1) } else { (0, 0) };
    setup.save_model(state, last, &setup.run.last_weights())?;
    setup.observer.begin("embeddings", setup.plan.samples());
    let clean = Arc::new(setup.embed(&state.weights, View::Clean, setup.method.tap())?.normalised());
    setup.run.write_embeddings(&clean)?;
    setup.write_heat(&state.weights)?;

    setup.observer.begin("final clusters", setup.final_steps());
    let (plan, history) = (setup.plan.clone(), state.history.clone());
    let (observer, stop) = (setup.observer.clone(), setup.stop.clone());
    let (labels, purified) = setup.stop.run(move || {
        pcp::final_clusters(&plan, &clean, &history, &mut |_| {
            observer.advance(1);
            stop.check()
        })
    })??;
    setup.run.write_final_clusters(&setup.plan.dataset, &labels, &purified)?;

    let knn_raw = setup.probe_pixels()?;
    let knn_untrained = setup.probe(&setup.initial()?)?;
    let knn_pooled = setup.probe_pooled(&state.weights)?;
    let mut used = labels;
    used.sort_unstable();
    used.dedup();
    let progress = &state.progress;
    let result = RunResult {
        knn_raw,
        knn_untrained,
        knn_best: progress.best.map(|b| b.0).or(knn_untrained),
        // A system that trains nothing ends as it began.
        knn_last: progress.last.or(knn_untrained),
        knn_pooled,
        classifier: progress.classifier,
        best_epoch: progress.best.map(|b| b.1),
        protocol: setup.probe.as_ref().map(|p| p.protocol()),
        images: setup.plan.samples(),
        clusters: used.len(),
        kept: purified.positives.covered() as f64 / setup.plan.samples() as f64,
        epochs: setup.plan.schedule.total_epochs(),
        seconds: progress.seconds + started.elapsed().as_secs_f64(),
        command: setup.about.command.clone(),
        seed: setup.plan.config.train.seed,
        data: setup.about.data.clone(),
        threads: rayon::current_num_threads(),
        version: setup.about.version.clone(),
        revision: setup.about.revision.clone(),
    };
    setup.run.write_result(&result)?;
    Ok(result)
}
