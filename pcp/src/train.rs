//! The training loop (Algorithm 1), with its checkpoints, probes and records, and what is written at the end.

mod checkpoints;
mod forecast;
mod patch_run;
mod plus;
pub mod setup;
mod state;
mod trial;
mod validate;

pub use forecast::{Ahead, Forecast, Spread, forecast};
pub use setup::Setup;
pub use state::{RunProgress, State};
pub use trial::Trial;

use crate::config::{ClusterFeatures, System};
use crate::data::loader::{Draw, Part, View};
use crate::data::{Batch, BatchShare, Routed};
use crate::method::{At, EpochTargets, FoundTargets, Past, StepResult, Task};
use crate::model::{DropoutKey, FeatureKind, Step, Weights};
use crate::observe::Live;
use crate::run::{EpochRecord, RunResult, Warning};
use checkpoints::Checkpoints;
use pcp_core::eigen::{effective_rank, unit_effective_rank};
use pcp_core::error::{Error, Kind, Result};
use pcp_core::matrix::Matrix;
use pcp_core::rng::Purpose;
use plus::CombinedNetwork;
use state::{Counts, EpochSums, sizes};
use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The remedy where loss or weights are not finite.
const DIVERGED: &str = "start anew with a lower `train.lr`; checkpoints from before are kept";
/// A spread of embeddings below this share of a uniform one is a collapse.
const COLLAPSED: f64 = 0.05;
/// The longest features whose effective rank is found in every epoch: its time grows with the third power.
const RANKED_DIM: usize = 512;
/// A cluster with more than this share of the samples holds most of them.
const MOST: f64 = 0.5;
/// The same where there are but two.
const NEARLY_ALL: f64 = 0.9;

/// Trains from `state` to the end. A stop saves everything first, so that the run can go on where it was.
pub fn train(setup: &Setup, mut state: State) -> Result<RunResult> {
    if setup.plan.config.method.system == System::Patches {
        return patch_run::learn(setup);
    }
    let checkpoints = Checkpoints::new(setup);
    let result = rounds(setup, &mut state, &checkpoints);
    if let Err(e) = &result
        && e.kind == Kind::Stopped
    {
        checkpoints.save(&state)?;
        return Err(Error {
            message: format!("stopped {}; everything is saved", state.progress.place(setup.plan.config.train.rounds)),
            hint: format!("go on with: `resume` {}", setup.run.path().display()),
            ..e.clone()
        });
    }
    result
}

/// Algorithm 1.
fn rounds(setup: &Setup, state: &mut State, checkpoints: &Checkpoints) -> Result<RunResult> {
    while state.progress.round < setup.plan.config.train.rounds {
        setup.agree_on(state)?;
        if state.targets.is_none() {
            let features = extract_features(setup, state)?; // (a)
            let found = find_targets(setup, state, features)?; // (b) to (d)
            set_targets(setup, state, found)?;
        }
        train_epoch(setup, state, checkpoints)?; // (e)
        setup.stop_together()?;
        end_epoch(setup, state)?; // (f)
        checkpoints.save_after_epoch(state)?;
    }
    finish(setup, state)
}

/// (a) One vector per image: the network in eval mode on a random view, or what the settings ask for instead.
fn extract_features(setup: &Setup, state: &mut State) -> Result<Matrix> {
    let started = Instant::now();
    let at = state.at();
    let Some(needed) = setup.method.needed_features(&setup.plan, at) else { return Ok(Matrix::default()) };
    let view = match needed.view {
        ClusterFeatures::Augmented => View::Random(setup.plan.key(Purpose::ClusterView, at), 0),
        ClusterFeatures::Clean => View::Clean,
        ClusterFeatures::Bank => {
            let rows = state.memory.bank()?.whole(setup.plan.samples(), &**setup.team()).normalised();
            state.progress.sums.effective_rank = rank(&rows, effective_rank);
            return Ok(rows);
        }
    };
    setup.observer.begin("features", setup.plan.samples());
    let features = setup.embed(&state.weights, view, needed.tap)?;
    state.progress.sums.effective_rank = rank(&features, unit_effective_rank);
    state.progress.sums.feature_seconds += started.elapsed().as_secs_f64();
    let spread = features.unit_spread() * (features.dim as f64).sqrt();
    if spread < COLLAPSED {
        setup.warn(Some(at), Warning::Collapse { spread });
    }
    Ok(features)
}

/// The effective rank of an epoch's features, by `of`.
fn rank(features: &Matrix, of: fn(&Matrix) -> Result<f64>) -> Option<f64> {
    if features.dim <= RANKED_DIM { of(features).ok() } else { None }
}

/// (b) to (d): what the epoch learns from; in PCP, K_t clusters, purified into positive sets.
fn find_targets(setup: &Setup, state: &mut State, features: Matrix) -> Result<FoundTargets> {
    let started = Instant::now();
    let at = state.at();
    if setup.method.needed_features(&setup.plan, at).is_some() {
        setup.observer.begin("clustering", setup.method.clustering_steps(&setup.plan));
    }
    let (method, plan, memory) = (setup.method, setup.plan.clone(), state.memory.clone());
    let (history, centroids, before) = (state.history.clone(), state.centroids.clone(), state.previous.clone());
    let (observer, team) = (setup.observer.clone(), setup.team().clone());
    let found = setup.cancel().run(move || {
        let positives = before.as_ref().map(|targets| &targets.positives);
        let past = Past { history: &history, centroids: centroids.as_ref(), positives };
        method.find_targets(&plan, at, &features, &memory, past, &mut |_| {
            observer.advance(1);
            team.agree_to_stop(observer.cancel());
            observer.cancel().check()
        })
    })??;
    state.progress.sums.cluster_seconds += started.elapsed().as_secs_f64();
    Ok(found)
}

/// Makes `found` the targets of this epoch. The raw clusters are written, and join the history that votes in later epochs.
fn set_targets(setup: &Setup, state: &mut State, mut found: FoundTargets) -> Result<()> {
    let started = Instant::now();
    let at @ (round, epoch) = state.at();
    let samples = setup.plan.samples();
    if let (Some(purified), Some(run)) = (&found.purified, setup.run_to_write()) {
        let alone = || (0..samples as u32).collect();
        run.write_epoch_clusters(round, epoch, &found.labels.clone().unwrap_or_else(alone), purified)?;
    }
    if let Some(labels) = found.labels.clone().filter(|_| setup.plan.schedule.stores(round, epoch)) {
        state.history.push(labels, setup.plan.schedule.history);
    }
    let before = state.previous.as_ref().and_then(|targets| targets.labels.as_deref());
    let counts = Counts::new(&found, samples, before);
    state.centroids = found.centroids.take().filter(|_| setup.plan.config.clusters.warm_start);
    state.memory.begin_epoch(&mut found);
    let targets = EpochTargets::new(found, samples);
    if targets.labels.is_some() && targets.positives.covered() == 0 {
        setup.warn(Some(at), Warning::NothingKept);
    }
    let most = if counts.clusters > 2 { MOST } else { NEARLY_ALL };
    if counts.largest > most && counts.clusters > 1 {
        setup.warn(Some(at), Warning::Imbalance { share: counts.largest });
    }
    state.progress.counts = counts;
    state.targets = Some(Arc::new(targets));
    state.progress.sums.cluster_seconds += started.elapsed().as_secs_f64();
    Ok(())
}

/// (e) One epoch of steps, from the batch where it was left.
fn train_epoch(setup: &Setup, state: &mut State, checkpoints: &Checkpoints) -> Result<()> {
    let Some(targets) = state.targets.clone() else { return Ok(()) };
    let at @ (round, epoch) = state.at();
    let batches = setup.method.batches(&setup.plan, at, &targets);
    let (total, left) = (batches.len(), batches[state.progress.batch.min(batches.len())..].to_vec());
    let kept = targets.positives.covered() as f64 / setup.plan.samples() as f64;

    setup.observer.begin("training", batches.iter().map(Vec::len).sum());
    setup.observer.advance(state.progress.sums.samples);
    let mut started = Instant::now();
    for made in batch_stream(setup, at, left) {
        let made = made?;
        let rows: Vec<usize> = made.0.iter().map(|draw| draw.row).collect();
        setup.team().agree_to_stop(setup.cancel());
        let step = step(setup, state, &targets, made)?;
        let StepResult { loss, change } = step.loss;
        if !loss.total.is_finite() {
            let batch = state.progress.batch + 1;
            return Err(Error::training(
                format!("the loss is not finite in round {}, epoch {}, batch {batch}", round + 1, epoch + 1),
                DIVERGED,
            ));
        }
        // What a step changes: the system's memory, running statistics, weights.
        state.memory.update(&rows, &step.features, change)?;
        state.weights.update_running_stats(&step.moments);
        let done = state.progress.batch as f64 / total as f64;
        state.optimizer.step(&mut state.weights, step.gradients, setup.sgd(epoch, done));
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

/// The views of batches of the epoch `at`; of several processes, each has a share of every batch.
fn batch_stream(setup: &Setup, at: At, batches: Vec<Vec<Draw>>) -> Routed {
    let parts = |images: usize| setup.method.parts(&setup.plan, at, images);
    Routed::new(&setup.loader, batches, setup.views(at), parts)
}

/// Forward, loss and backward of one batch. Changes nothing.
fn step(
    setup: &Setup,
    state: &State,
    targets: &Arc<EpochTargets>,
    (draws, share, batch): (Vec<Draw>, BatchShare, Batch),
) -> Result<Step<StepResult>> {
    let (at, number, ids) = (state.at(), state.progress.batch, setup.plan.ids());
    let dropout = DropoutKey {
        key: setup.plan.key(Purpose::Dropout, at),
        // Copies of an image are dropped out each in its own way.
        ids: draws.iter().map(|draw| ids[draw.row] | u64::from(draw.copy) << 48).collect(),
    };
    let rows: Vec<usize> = draws.iter().map(|draw| draw.row).collect();
    let (method, plan, network) = (setup.method, setup.plan.clone(), setup.network.clone());
    let (weights, memory, targets) = (state.weights.clone(), state.memory.clone(), targets.clone());
    setup.cancel().run(move || {
        let task = Task { network: &network, weights: &weights, batch, share, rows: &rows, dropout, at, number };
        method.step(&plan, task, &memory, &targets)
    })?
}

/// (f) The probe when it is due, and the record of the epoch; then the position moves to the next epoch.
fn end_epoch(setup: &Setup, state: &mut State) -> Result<()> {
    let started = Instant::now();
    let (round, epoch) = state.at();
    let done = setup.plan.schedule.finished_epochs(round, epoch);
    let probed = setup.plan.schedule.probes(epoch) && !setup.method.reads_out();
    let knn = if probed { setup.probe(&state.weights)? } else { None };
    if let Some(knn) = knn {
        state.progress.last = Some(knn);
        if state.progress.best.is_none_or(|(best, _)| knn > best) {
            state.progress.best = Some((knn, done));
            setup.save_model(state, &state.weights, (round, epoch), &setup.run.best_weights())?;
        }
    }
    if setup.plan.schedule.snapshot(round, epoch).is_some() {
        let folder = setup.run.file("snapshots");
        if setup.run_to_write().is_some() {
            pcp_core::io::atomic::make_folder(&folder)?;
        }
        let path = folder.join(format!("r{round}-e{epoch:03}.safetensors"));
        setup.save_model(state, &state.weights, (round, epoch), &path)?;
    }
    let classifier = if knn.is_some() { setup.classify(state)? } else { None };
    state.progress.classifier = classifier.or(state.progress.classifier);
    let record = EpochRecord { classifier, ..record(setup, state, knn, started.elapsed()) };
    if let Some(run) = setup.run_to_write() {
        run.append_metrics(&record)?;
        let labels = state.targets.as_ref().and_then(|targets| targets.labels.as_deref());
        let sizes = labels.map(|labels| sizes(labels, state.progress.counts.clusters)).unwrap_or_default();
        run.append_events(&record, done, &sizes)?;
    }
    setup.observer.epoch(&record);

    // The next epoch needs the positives and the labels alone.
    let kept = |targets: Arc<EpochTargets>| {
        Arc::new(EpochTargets { clusterings: Vec::new(), ..Arc::unwrap_or_clone(targets) })
    };
    state.previous = state.targets.take().map(kept);
    let progress = &mut state.progress;
    progress.seconds += record.seconds;
    progress.metrics_lines += 1;
    state.records.push(record);
    let progress = &mut state.progress;
    progress.batch = 0;
    progress.sums = EpochSums::default();
    progress.epoch += 1;
    if progress.epoch == setup.plan.schedule.epochs() {
        (progress.round, progress.epoch) = (progress.round + 1, 0);
    }
    Ok(())
}

fn record(setup: &Setup, state: &State, knn: Option<f64>, probing: Duration) -> EpochRecord {
    let RunProgress { round, epoch, sums, counts, .. } = state.progress;
    let samples = setup.plan.samples();
    let covered = state.targets.as_ref().map_or(0, |targets| targets.positives.covered());
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
        effective_rank: sums.effective_rank,
        knn,
        classifier: None,
    }
}

/// The last weights, the clean embeddings, the final clusters and the result.
fn finish(setup: &Setup, state: &mut State) -> Result<RunResult> {
    let started = Instant::now();
    let train = &setup.plan.config.train;
    let last = if train.rounds > 0 { (train.rounds - 1, train.epochs - 1) } else { (0, 0) };
    let mut read_out = if setup.method.reads_out() { Some(plus::read_out(setup, state)?) } else { None };
    let learned = match &read_out {
        Some(read_out) => read_out.weights.clone(),
        None => state.weights.with_readout(setup.whitening(&state.weights)?),
    };
    setup.save_model(state, &learned, last, &setup.run.last_weights())?;
    let (clean, of_test) = last_features(setup, &learned, read_out.as_mut())?;
    if let Some(run) = setup.run_to_write() {
        run.write_embeddings(&clean)?;
        if let (Some(test), Some(features)) = (&setup.plan.dataset.test, &of_test) {
            run.write_test(test, features)?;
        }
    }
    setup.write_heat(&learned)?;

    setup.stop_together()?;
    let (labels, purified) = setup.write_clusters("final clusters", &clean, state.history.clone())?;
    setup.stop_together()?;

    let knn_raw = setup.probe_pixels()?;
    let knn_untrained = setup.probe(&setup.initial()?)?;
    setup.stop_together()?;
    let knn_pooled = setup.probe_features(&learned, FeatureKind::Pooled)?;
    let knn_whitened = match read_out {
        Some(_) => None,
        None => setup.probe_features(&learned, FeatureKind::Whitened)?,
    };
    match setup.probe.as_ref().filter(|_| setup.method.reads_out()) {
        Some(probe) if probe.of_embeddings() => {
            state.progress.last = Some(probe.features(clean.clone(), of_test, setup.cancel())?);
        }
        Some(_) => state.progress.last = setup.probe(&learned)?,
        None => {}
    }
    let mut used = labels;
    used.sort_unstable();
    used.dedup();
    let progress = &state.progress;
    let result = RunResult {
        knn_raw,
        knn_untrained,
        knn_best: progress.best.map(|b| b.0).or(progress.last).or(knn_untrained),
        // A system that trains nothing ends as it began.
        knn_last: progress.last.or(knn_untrained),
        knn_pooled,
        knn_whitened,
        knn_patches: read_out.as_ref().and_then(|read_out| read_out.knn_patches),
        network_share: read_out.as_ref().map(|read_out| read_out.share),
        effective_rank: effective_rank(&clean).ok(),
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
        precision: setup.plan.config.train.precision,
        threads: rayon::current_num_threads(),
        processes: setup.team().processes(),
        version: setup.about.version.clone(),
        revision: setup.about.revision.clone(),
    };
    if let Some(run) = setup.run_to_write() {
        run.write_result(&result)?;
    }
    Ok(result)
}

/// Unit embeddings of the training images and of the test images: those that the readout was learned with, or new ones.
fn last_features(
    setup: &Setup,
    learned: &Weights,
    read_out: Option<&mut CombinedNetwork>,
) -> Result<(Arc<Matrix>, Option<Matrix>)> {
    if let Some(both) = read_out {
        return Ok((Arc::new(take(&mut both.train)), both.test.take()));
    }
    setup.observer.begin("embeddings", setup.plan.samples());
    let features = |part| Ok::<_, Error>(setup.features(learned, part, View::Clean, setup.method.tap())?.normalised());
    let test = setup.plan.dataset.test.as_ref().map(|_| Part::Test);
    Ok((Arc::new(features(Part::Train)?), test.map(features).transpose()?))
}
