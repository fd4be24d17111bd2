//! What a run of PCP+ does before its first step and after its last: patch features, and patches and network side by side.

use super::{Setup, State};
use crate::config::{AugmentSettings, Auto};
use crate::data::augment::Augmenter;
use crate::data::loader::{Loader, Part, View};
use crate::method::plus;
use crate::model::{Combination, CombinationCard, FeatureKind, Weights, both_sides};
use crate::patches::{PatchModel, PatchModelSettings};
use kernels::Precision;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::is_there;
use pcp_core::matrix::{Matrix, dot};
use pcp_core::purify::History;
use pcp_core::readout::{ReadoutLearner, ReadoutSettings};
use pcp_core::rng::Purpose;
use std::sync::Arc;

/// Views of every image that was held out, by which the network's share is found.
const VIEWS: u32 = 4;
/// A network that knows this many times what the patches know, or less, gets no share.
const NOTHING_NEW: f64 = 0.7;
/// The greatest share of the network.
const MOST: f64 = 0.8;

/// The bank: the patch features of all training images, as long as an embedding. They are the run's embeddings until the network has learned, and so
/// are their clusters.
pub(super) fn first_features(setup: &Setup) -> Result<Matrix> {
    let features = patch_features(setup, &patch_model(setup)?)?;
    setup.run.write_embeddings(&features)?;
    setup.write_clusters("first clusters", &features, History::default())?;
    Ok(targets(&features, setup.network.embedding))
}

/// Unit features as targets of `columns` numbers: where they have more, the leading ones, which tell images apart best, at unit length; where
/// they have fewer, filled up with zeros.
fn targets(features: &Matrix, columns: usize) -> Matrix {
    let kept = columns.min(features.dim);
    let mut values = vec![0.0f32; features.rows * columns];
    for (to, from) in values.chunks_exact_mut(columns).zip(features.values.chunks_exact(features.dim)) {
        to[..kept].copy_from_slice(&from[..kept]);
    }
    let targets = Matrix { rows: features.rows, dim: columns, values };
    if features.dim > columns { targets.normalised() } else { targets }
}

/// The patch features of all training images, which are computed once.
fn patch_features(setup: &Setup, model: &PatchModel) -> Result<Arc<Matrix>> {
    if let Some(features) = setup.patch_features.get() {
        return Ok(features.clone());
    }
    let features = Arc::new(model.embed(&setup.plan.dataset.train.images, &setup.observer)?);
    Ok(setup.patch_features.get_or_init(|| features).clone())
}

/// The run's patch model; it is learned and kept where there is none yet.
pub(super) fn patch_model(setup: &Setup) -> Result<PatchModel> {
    let (config, images) = (&setup.plan.config, &setup.plan.dataset.train.images);
    let file = setup.run.patches();
    if is_there(&file)? {
        return PatchModel::open(&file);
    }
    let fitting = PatchModelSettings::fitting(images, config.train.seed)?;
    // Where the run keeps colours in its views, the patches do.
    let hue = fitting.augment.hue.min(config.augment.hue).min(config.plus.hue);
    let saturation = if hue > 0.0 { fitting.augment.saturation } else { 0.0 };
    let augment = AugmentSettings { hue, saturation, ..fitting.augment.clone() };
    let mut settings = PatchModelSettings { stored: config.data.stored, augment, ..fitting };
    if !config.plus.second {
        settings.patches.second.centroids = 0;
    }
    let model = PatchModel::learn(images, &settings, &setup.observer)?;
    model.save(&file)?;
    Ok(model)
}

/// A trained network with its patch features beside it.
pub(super) struct CombinedNetwork {
    /// The weights, whose embedding is both.
    pub weights: Weights,
    /// The embeddings of the training images and of the test images.
    pub train: Matrix,
    pub test: Option<Matrix>,
    /// The network's share of the embedding.
    pub share: f64,
    /// kNN of the patch features alone, when there are labels.
    pub knn_patches: Option<f64>,
}

/// The network's pooled features of all images of `part`, each the mean of an image and its mirror image; `each` gets those of a batch.
fn pooled(setup: &Setup, weights: &Weights, part: Part, mut each: impl FnMut(&Matrix)) -> Result<Matrix> {
    let (n, dim) = (setup.loader.images(part).len(), setup.network.pooled);
    setup.observer.begin("readout", n);
    let mut all = Matrix { rows: n, dim, values: Vec::with_capacity(n * dim) };
    for made in setup.loader.all(part, View::Clean) {
        let (_, batch) = made?;
        let (network, weights) = (setup.network.clone(), weights.clone());
        let pooled = setup.cancel().run(move || both_sides(&network, &weights, &batch))?;
        setup.observer.advance(pooled.rows);
        each(&pooled);
        all.values.extend(pooled.values);
    }
    Ok(all)
}

/// Learns the readout of the network's pooled features, and puts the patch features beside it.
pub(super) fn read_out(setup: &Setup, state: &State) -> Result<CombinedNetwork> {
    let (model, weights) = (patch_model(setup)?, &state.weights);
    let mut learner = ReadoutLearner::new(setup.network.pooled);
    let of_train = pooled(setup, weights, Part::Train, |pooled| learner.add(std::slice::from_ref(pooled)))?;
    let readout = learner.finish(&ReadoutSettings::default())?;
    let settings = &model.card.patch_model;
    let (side, stored, patches) = (settings.side, settings.stored, settings.patches.clone());
    let card = CombinationCard { side, stored, patches, weight: 0.0 };
    let combination = Combination::new(card, model.patches().clone(), model.readout().clone(), readout);
    let combination = Arc::new(combination);
    let share = match setup.plan.config.plus.share {
        Auto::Value(share) => share,
        Auto::Auto(_) => network_share(setup, state, &combination)?,
    };
    let patches = patch_features(setup, &model)?;
    let of_test = match &setup.plan.dataset.test {
        Some(test) => {
            let pooled = pooled(setup, weights, Part::Test, |_| ())?;
            Some((model.embed(&test.images, &setup.observer)?, pooled))
        }
        None => None,
    };
    let knn_patches = match &setup.probe {
        Some(probe) => {
            let test = of_test.as_ref().map(|(patches, _)| patches.clone());
            Some(probe.features(patches.clone(), test, setup.cancel())?)
        }
        None => None,
    };
    let Some(combination) = Arc::into_inner(combination) else {
        return Err(Error::training("patches and network are still in use", "please report this; --resume goes on"));
    };
    let combination = Arc::new(combination.with_weight(share));
    let both = combination.clone();
    let (train, test) = setup.cancel().run(move || {
        let test = of_test.map(|(patches, pooled)| both.together(&patches, &pooled));
        (both.together(&patches, &of_train), test)
    })?;
    Ok(CombinedNetwork { weights: weights.combined(combination), train, test, share, knn_patches })
}

/// The network's share of the embedding, by how well it and the patch features recognise random views of images that it was not trained on.
/// No label plays a part.
fn network_share(setup: &Setup, state: &State, combination: &Arc<Combination>) -> Result<f64> {
    let (plan, bank) = (&setup.plan, state.memory.bank()?);
    let held = plus::held_out(plan);
    if held.is_empty() {
        return Ok(0.0);
    }
    let augmenter = plan.config.augmenter();
    let augmenter = Augmenter { size: combination.card.side, mean: [0.0; 3], std: [1.0; 3], ..augmenter };
    let squares = Loader::new(plan.dataset.clone(), augmenter);
    let tau = plan.config.objective.tau as f32;
    let (mut by_network, mut by_patches) = (0.0, 0.0);
    setup.observer.begin("unseen images", held.len() * VIEWS as usize);
    for view in 0..VIEWS {
        let random = View::Random(plan.key(Purpose::Probe, (0, 0)), view);
        let views = setup.loader.rows(Part::Train, &held, random);
        for (seen, square) in views.zip(squares.rows(Part::Train, &held, random)) {
            let ((draws, seen), (_, square)) = (seen?, square?);
            let rows: Vec<usize> = draws.iter().map(|draw| draw.row).collect();
            let (network, weights, bank, both) =
                (setup.network.clone(), state.weights.clone(), state.memory.clone(), combination.clone());
            let (a, b) = setup.cancel().run(move || {
                let bank = &bank.bank()?.rows;
                let embedding = network.features(&weights, &seen, FeatureKind::Embedding);
                let patches = targets(&both.patch_features(&square.pixels), bank.dim);
                Ok::<_, Error>((loss(&embedding, &rows, bank, tau), loss(&patches, &rows, bank, tau)))
            })??;
            (by_network, by_patches) = (by_network + a, by_patches + b);
            setup.observer.advance(draws.len());
        }
    }
    let seen = f64::from(VIEWS) * held.len() as f64;
    // What is known of which image it is, from 0 (nothing) to 1.
    let known = |sum: f64| (1.0 - sum / seen / (bank.rows.rows as f64).ln()).max(0.0);
    Ok(share(known(by_network), known(by_patches)))
}

/// The share of a network that knows so much of which image a view is of, beside patch features that know so much: 0 where it knows less than
/// 0.7 times as much, 0.3 where both know the same, at most `MOST`.
fn share(network: f64, patches: f64) -> f64 {
    if patches > 0.0 { (network / patches - NOTHING_NEW).clamp(0.0, MOST) } else { 0.0 }
}

/// Sum of the losses (Eq. 4) of the features `v` of views of the images `rows`.
fn loss(v: &Matrix, rows: &[usize], bank: &Matrix, tau: f32) -> f64 {
    let softmax = kernels::bank_softmax(&v.values, &bank.values, v.dim, tau, Precision::F32);
    let own = |(r, row): (usize, &usize)| f64::from(dot(bank.row(*row), v.row(r)) / tau);
    softmax.log_sum_exp.iter().sum::<f64>() - rows.iter().enumerate().map(own).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_grows_with_what_the_network_knows() {
        for (network, patches, expected) in [
            (0.0, 0.5, 0.0),
            (0.35, 0.5, 0.0),
            (0.4, 0.5, 0.1),
            (0.5, 0.5, 0.3),
            (0.9, 0.5, 0.8),
            (0.4, 0.0, 0.0),
            (0.0, 0.0, 0.0),
        ] {
            let found = share(network, patches);
            assert!((found - expected).abs() < 1e-9, "{network} beside {patches}: {found}");
        }
    }

    #[test]
    fn targets_are_leading_numbers_at_unit_length_or_filled_up() {
        let features = Matrix::new(4, vec![0.6, 0.0, 0.8, 0.0, 0.0, 0.5, 0.5, 0.5f32.sqrt()]);
        assert_eq!(targets(&features, 2).values, [1.0, 0.0, 0.0, 1.0]);
        assert_eq!(targets(&features, 4), features);
        let filled = targets(&features, 6);
        assert_eq!((filled.row(0), filled.dim), (&[0.6, 0.0, 0.8, 0.0, 0.0, 0.0][..], 6));
        assert_eq!(targets(&filled, 4), features);
    }
}
