//! A run of clusters of patches: the same files as of any system, without a network and without epochs.

use super::Setup;
use crate::patches::{PatchModel, PatchModelSettings};
use crate::run::RunResult;
use pcp_core::eigen::effective_rank;
use pcp_core::error::{Error, Kind, Result};
use pcp_core::purify::History;
use std::sync::Arc;
use std::time::Instant;

/// Learns patches and writes the model, features, final clusters and the result. A run that is stopped begins anew: it takes seconds.
pub(super) fn learn(setup: &Setup) -> Result<RunResult> {
    run(setup).map_err(|e| match e.kind {
        Kind::Stopped => Error {
            message: "stopped while learning from patches".into(),
            hint: format!("begin again with: `resume` {}", setup.run.path().display()),
            ..e
        },
        _ => e,
    })
}

/// Learns the patches.
pub(super) fn model(setup: &Setup) -> Result<PatchModel> {
    let (config, images) = (&setup.plan.config, &setup.plan.dataset.train.images);
    let mut settings = PatchModelSettings::of_size(config.data.size, images.len(), config.train.seed);
    settings.stored = config.data.stored;
    PatchModel::learn(images, &settings, &setup.observer)
}

fn run(setup: &Setup) -> Result<RunResult> {
    let started = Instant::now();
    let (config, images) = (&setup.plan.config, &setup.plan.dataset.train.images);
    let model = model(setup)?;
    model.save(&setup.run.last_weights())?;
    let features = Arc::new(model.embed(images, &setup.observer)?);
    setup.run.write_embeddings(&features)?;
    let test = match &setup.plan.dataset.test {
        Some(split) => {
            let features = model.embed(&split.images, &setup.observer)?;
            setup.run.write_test(split, &features)?;
            Some(features)
        }
        None => None,
    };

    let (labels, purified) = setup.write_clusters("final clusters", &features, History::default())?;

    let effective_rank = effective_rank(&features).ok();
    let knn_raw = setup.probe_pixels()?;
    let knn = match &setup.probe {
        Some(probe) => Some(probe.features(features, test, setup.cancel())?),
        None => None,
    };
    let mut used = labels;
    used.sort_unstable();
    used.dedup();
    let result = RunResult {
        knn_raw,
        knn_untrained: None,
        knn_best: knn,
        knn_last: knn,
        knn_pooled: None,
        knn_whitened: None,
        knn_patches: knn,
        network_share: None,
        effective_rank,
        classifier: None,
        best_epoch: None,
        protocol: setup.probe.as_ref().map(|p| p.protocol()),
        images: images.len(),
        clusters: used.len(),
        kept: purified.positives.covered() as f64 / images.len() as f64,
        epochs: 0,
        seconds: started.elapsed().as_secs_f64(),
        command: setup.about.command.clone(),
        seed: config.train.seed,
        data: setup.about.data.clone(),
        precision: config.train.precision,
        threads: rayon::current_num_threads(),
        processes: 1,
        version: setup.about.version.clone(),
        revision: setup.about.revision.clone(),
    };
    setup.run.write_result(&result)?;
    Ok(result)
}
