//! The loop (Algorithm 1), and what surrounds it: checkpoints, probes, records, and the end.

mod checkpoints;
mod observer;
pub mod setup;
mod state;

pub use observer::{Live, Observer, Phase, Silent};
pub use setup::{ModelCard, Setup};
pub use state::{Progress, State};

use crate::backbone::DropoutKey;
use crate::config::ClusterFeatures;
use crate::error::{Error, Result};
use crate::features::Features;
use crate::loader::{Part, View};
use crate::method::pcp;
use crate::rng::{Key, Purpose};
use crate::run::{EpochRecord, RunResult, Warning};
use checkpoints::Checkpoints;
use state::{Lesson, Sums};
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
        && e.kind == crate::error::Kind::Stopped
    {
        checkpoints.save(&state)?;
        return Err(Error {
            message: format!("stopped {}; everything is saved", state.progress.place(setup.config.train.rounds)),
            hint: format!("go on with: pcp train --resume {}", setup.run.path().display()),
            ..e.clone()
        });
    }
    result
}

/// Algorithm 1.
fn rounds(setup: &Setup, state: &mut State, checkpoints: &Checkpoints) -> Result<RunResult> {
    while state.progress.round < setup.config.train.rounds {
        if state.lesson.is_none() {
            let features = features_to_cluster(setup, state)?; // (a)
            cluster_and_purify(setup, state, features)?; // (b) to (d)
        }
        learn(setup, state, checkpoints)?; // (e)
        end_epoch(setup, state)?; // (f)
        checkpoints.save(state)?;
    }
    finish(setup, state)
}

/// (a) One vector per image: the network in eval mode on a random view, or what the settings ask for instead.
fn features_to_cluster(setup: &Setup, state: &mut State) -> Result<Features> {
    let started = Instant::now();
    let Progress { round, epoch, .. } = state.progress;
    if setup.schedule.all_instances(setup.schedule.clusters(round, epoch)) {
        return Ok(Features::default()); // nobody will look at them
    }
    let view = match setup.config.clusters.features {
        ClusterFeatures::Augmented => View::Random(key(setup, state, Purpose::ClusterView), 0),
        ClusterFeatures::Clean => View::Clean,
        ClusterFeatures::Bank => return Ok(state.bank.rows.clone().normalised()),
    };
    setup.observer.phase(Phase::Features, setup.dataset.train.images.len());
    let features = setup.embed(&state.weights, view)?;
    state.progress.sums.feature_seconds += started.elapsed().as_secs_f64();
    let spread = features.spread() * (features.dim as f64).sqrt();
    if spread < COLLAPSED {
        setup.warn(Warning::Collapse { spread });
    }
    Ok(features)
}

/// (b) to (d): K_t clusters, purified into positive sets. The raw clusters join the history that later epochs ask.
fn cluster_and_purify(setup: &Setup, state: &mut State, features: Features) -> Result<()> {
    let started = Instant::now();
    let at @ (round, epoch) = (state.progress.round, state.progress.epoch);
    setup.observer.phase(Phase::Clusters, setup.config.clusters.iterations * setup.config.clusters.runs as usize);
    let (config, schedule, dataset) = (setup.config.clone(), setup.schedule.clone(), setup.dataset.clone());
    let (history, observer, stop) = (state.history.clone(), setup.observer.clone(), setup.stop.clone());
    let centroids = state.centroids.clone();
    let mut supervision = setup.stop.run(move || {
        let ids = dataset.train.images.ids();
        let past = pcp::Past { history: &history, centroids: centroids.as_ref() };
        pcp::supervise(&config, &schedule, &features, ids, past, at, &mut |_| {
            observer.advance(1);
            stop.check()
        })
    })??;
    let alone = || (0..setup.dataset.train.images.len() as u32).collect();
    let labels = supervision.labels.clone().unwrap_or_else(alone);
    setup.run.write_epoch_clusters(round, epoch, &labels, &supervision.purified)?;
    if supervision.labels.is_some() && setup.schedule.stores(round, epoch) {
        state.history.push(labels, setup.schedule.history);
    }
    state.centroids = supervision.centroids.take().filter(|_| setup.config.clusters.warm_start);
    let lesson = Lesson::new(supervision, state.previous.as_deref());
    if lesson.labels.is_some() && lesson.positives.covered() == 0 {
        setup.warn(Warning::NothingKept);
    }
    let most = if lesson.counts.clusters > 2 { MOST } else { NEARLY_ALL };
    if lesson.counts.largest > most && lesson.counts.clusters > 1 {
        setup.warn(Warning::Imbalance { share: lesson.counts.largest });
    }
    state.lesson = Some(lesson);
    state.progress.sums.cluster_seconds += started.elapsed().as_secs_f64();
    Ok(())
}

/// (e) One epoch of steps, from the batch where it was left.
fn learn(setup: &Setup, state: &mut State, checkpoints: &Checkpoints) -> Result<()> {
    let Some(lesson) = state.lesson.clone() else { return Ok(()) };
    let (round, epoch) = (state.progress.round, state.progress.epoch);
    let (schedule, objective) = (&setup.schedule, &setup.config.objective);
    let ids = setup.dataset.train.images.ids();
    let order = key(setup, state, Purpose::Order).shuffled(ids);
    let batches: Vec<Vec<usize>> = order.chunks(setup.config.train.batch).map(<[usize]>::to_vec).collect();
    let (total, left) = (batches.len(), batches[state.progress.batch.min(batches.len())..].to_vec());
    let warmup = schedule.warmup_weight(round, epoch);
    let views = if warmup.is_some() || objective.bank_views == 2 { 2 } else { 1 };
    let random = key(setup, state, Purpose::View);
    let looks = (0..views as u32).map(|view| View::Random(random, view)).collect();

    setup.observer.phase(Phase::Training, ids.len());
    setup.observer.advance(state.progress.sums.samples);
    let mut started = Instant::now();
    for (rows, batch) in setup.loader.stream(Part::Train, left, looks) {
        let dropout = DropoutKey {
            key: Key { purpose: Purpose::Dropout, ..random },
            ids: rows.iter().map(|row| ids[*row]).collect(),
        };
        let (network, weights) = (setup.network.clone(), state.weights.clone());
        let (bank, positives, objective) = (state.bank.clone(), lesson.positives.clone(), objective.clone());
        let samples = rows.clone();
        let step = setup.stop.run(move || {
            network.step(&weights, batch, views, dropout, |v| {
                pcp::loss(v, &samples, &bank, &positives, &objective, warmup)
            })
        })?;
        if !step.loss.total.is_finite() {
            return Err(Error::training(
                format!("the loss is not finite in round {round}, epoch {epoch}, batch {}", state.progress.batch),
                "start anew with a lower learning rate (--set train.lr=...); checkpoints from before are kept",
            ));
        }
        // What a step changes: the bank (with view 1), running statistics, weights.
        let bank = Arc::make_mut(&mut state.bank);
        for (i, row) in rows.iter().enumerate() {
            bank.update(*row, step.embedding.row(i));
        }
        state.weights.follow(&step.moments);
        state.optimizer.step(&mut state.weights, step.gradients, setup.sgd(epoch));
        state.progress.batch += 1;
        let sums = &mut state.progress.sums;
        sums.add(&step.loss);
        sums.train_seconds += started.elapsed().as_secs_f64();
        started = Instant::now();
        setup.observer.advance(rows.len());
        setup.observer.live(&Live {
            loss: sums.total / sums.samples as f64,
            images_per_second: sums.samples as f64 / sums.train_seconds,
            lr: schedule.lr(epoch),
            clusters: lesson.counts.clusters,
            kept: lesson.positives.covered() as f64 / ids.len() as f64,
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
    let (round, epoch) = (state.progress.round, state.progress.epoch);
    let done = setup.schedule.finished_epochs(round, epoch);
    let knn = if setup.schedule.probes(round, epoch) { setup.probe(&state.weights)? } else { None };
    if let Some(knn) = knn {
        state.progress.last = Some(knn);
        if state.progress.best.is_none_or(|(best, _)| knn > best) {
            state.progress.best = Some((knn, done));
            setup.save_model(&state.weights, (round, epoch), &setup.run.file("model-best.safetensors"))?;
        }
    }
    if setup.schedule.snapshot(round, epoch).is_some() {
        let folder = setup.run.file("snapshots");
        crate::files::make_folder(&folder)?;
        let path = folder.join(format!("r{round}-e{epoch:03}.safetensors"));
        setup.save_model(&state.weights, (round, epoch), &path)?;
    }
    let record = record(setup, state, knn, started.elapsed());
    setup.run.append_metrics(&record)?;
    setup.observer.epoch(&record);

    state.previous = state.lesson.take().and_then(|lesson| lesson.labels);
    let progress = &mut state.progress;
    progress.seconds += record.seconds;
    progress.metrics_lines += 1;
    progress.batch = 0;
    progress.sums = Sums::default();
    progress.epoch += 1;
    if progress.epoch == setup.schedule.epochs() {
        (progress.round, progress.epoch) = (progress.round + 1, 0);
    }
    Ok(())
}

fn record(setup: &Setup, state: &State, knn: Option<f64>, probing: Duration) -> EpochRecord {
    let Progress { round, epoch, sums, .. } = state.progress;
    let samples = setup.dataset.train.images.len();
    let counts = state.lesson.as_ref().map(|l| l.counts).unwrap_or_default();
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
        lr: setup.schedule.lr(epoch),
        seconds: sums.feature_seconds + sums.cluster_seconds + sums.train_seconds + probing.as_secs_f64(),
        feature_seconds: sums.feature_seconds,
        cluster_seconds: sums.cluster_seconds,
        train_seconds: sums.train_seconds,
        images_per_second: sums.samples as f64 / sums.train_seconds.max(1e-9),
        churn: counts.churn,
        knn,
    }
}

/// The last weights, the clean embeddings, the final clusters and the result.
fn finish(setup: &Setup, state: &mut State) -> Result<RunResult> {
    let started = Instant::now();
    let last = (setup.config.train.rounds - 1, setup.config.train.epochs - 1);
    setup.save_model(&state.weights, last, &setup.run.file("model.safetensors"))?;
    setup.observer.phase(Phase::Embeddings, setup.dataset.train.images.len());
    let clean = Arc::new(setup.embed(&state.weights, View::Clean)?);
    setup.run.write_embeddings(&clean)?;

    setup.observer.phase(Phase::FinalClusters, setup.config.clusters.iterations * setup.config.clusters.runs as usize);
    let (config, schedule, dataset) = (setup.config.clone(), setup.schedule.clone(), setup.dataset.clone());
    let (history, observer, stop) = (state.history.clone(), setup.observer.clone(), setup.stop.clone());
    let (labels, purified) = setup.stop.run(move || {
        let ids = dataset.train.images.ids();
        pcp::final_clusters(&config, &schedule, &clean, ids, &history, &mut |_| {
            observer.advance(1);
            stop.check()
        })
    })??;
    setup.run.write_final_clusters(&setup.dataset, &labels, &purified)?;

    let knn_raw = setup.probe_pixels()?;
    let knn_untrained = setup.probe(&setup.network.init(setup.config.train.seed))?;
    let mut used = labels;
    used.sort_unstable();
    used.dedup();
    let progress = &state.progress;
    let result = RunResult {
        knn_raw,
        knn_untrained,
        knn_best: progress.best.map(|b| b.0),
        knn_last: progress.last,
        best_epoch: progress.best.map(|b| b.1),
        protocol: setup.probe.as_ref().map(|p| p.protocol()),
        images: setup.dataset.train.images.len(),
        clusters: used.len(),
        kept: purified.positives.covered() as f64 / setup.dataset.train.images.len() as f64,
        epochs: setup.schedule.total_epochs(),
        seconds: progress.seconds + started.elapsed().as_secs_f64(),
        command: setup.about.command.clone(),
        seed: setup.config.train.seed,
        data: setup.about.data.clone(),
        threads: rayon::current_num_threads(),
        version: setup.about.version.clone(),
        revision: setup.about.revision.clone(),
    };
    setup.run.write_result(&result)?;
    Ok(result)
}

/// The coordinates of this epoch's randomness.
fn key(setup: &Setup, state: &State, purpose: Purpose) -> Key {
    Key { purpose, seed: setup.config.train.seed, round: state.progress.round, epoch: state.progress.epoch }
}
