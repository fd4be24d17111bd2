//! The whitened readout of a network: principal components of its pooled features, partially whitened, as unit vectors.
//!
//! It is learned from the training images without labels ([`pcp_core::readout`]), kept in the model file, and a linear layer in
//! exports. The features that it gives are called `whitened`.

use super::combination::both_sides;
use super::network::Network;
use super::weights::Weights;
use crate::config::FeatureKind;
use crate::data::Batch;
use pcp_core::error::{Error, Result};
use pcp_core::io::tensors::Array;
use pcp_core::matrix::Matrix;
use pcp_core::readout::{Readout, ReadoutLearner, ReadoutSettings};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name of the features.
pub(crate) const WHITENED: &str = "whitened";
/// The names of its arrays in files.
const MEAN: &str = "readout.mean";
const MAP: &str = "readout.map";
/// Rows that are added to the learner at a time.
const BLOCK: usize = 1024;

/// The readout of a network whose pooled features of the training images these are.
pub fn whitening(pooled: &Matrix) -> Result<Readout> {
    let mut learner = ReadoutLearner::new(pooled.dim);
    for rows in pooled.values.chunks(BLOCK * pooled.dim.max(1)) {
        learner.add(&[Matrix::new(pooled.dim, rows.to_vec())]);
    }
    learner.finish(&ReadoutSettings::default())
}

/// The arrays of a readout, for a model file.
pub(crate) fn arrays(readout: &Readout) -> [(String, Array); 2] {
    let map = &readout.map;
    [
        (MEAN.to_string(), Array::F32(vec![readout.mean.len()], readout.mean.clone())),
        (MAP.to_string(), Array::F32(vec![map.rows, map.dim], map.values.clone())),
    ]
}

/// The reverse of [`arrays`], for a network with `pooled` features; files need not have them.
pub(super) fn from_arrays(arrays: &BTreeMap<String, Array>, pooled: usize) -> Result<Option<Arc<Readout>>> {
    match (arrays.get(MEAN), arrays.get(MAP)) {
        (None, None) => Ok(None),
        (Some(Array::F32(one, mean)), Some(Array::F32(two, map)))
            if one[..] == [pooled] && two.len() == 2 && two[0] > 0 && two[1] == pooled =>
        {
            Ok(Some(Arc::new(Readout { mean: mean.clone(), map: Matrix::new(pooled, map.clone()) })))
        }
        _ => Err(Error::file(
            format!("{MEAN} or {MAP} is missing or has another shape than the network's pooled features"),
            "use the file as it was written",
        )),
    }
}

impl Weights {
    /// The same weights with the readout of their pooled features.
    pub(crate) fn with_readout(&self, readout: Readout) -> Weights {
        Weights { readout: Some(Arc::new(readout)), ..self.clone() }
    }

    /// The readout of the pooled features, where there is one.
    pub(crate) fn readout(&self) -> Option<&Arc<Readout>> {
        self.readout.as_ref()
    }

    /// Whether the features called `whitened` can be had: by a readout of their own, or by that beside patch features.
    pub(crate) fn has_whitened(&self) -> bool {
        self.readout.is_some() || self.combination.is_some()
    }
}

impl Network {
    /// Whitened features of a batch.
    ///
    /// # Panics
    /// For weights without a readout.
    pub(super) fn whitened(&self, weights: &Weights, batch: &Batch) -> Matrix {
        match (weights.readout(), weights.combination()) {
            (Some(readout), _) => readout.apply(&self.features(weights, batch, FeatureKind::Pooled)),
            (None, Some(combination)) => combination.pooled().apply(&both_sides(self, weights, batch)),
            (None, None) => unreachable!("whitened features of weights without a readout"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, NetworkSettings};

    fn network() -> Network {
        Network::new(&NetworkSettings { width: 2, ..Config::default().network }, 8).unwrap()
    }

    fn batch(rows: usize) -> Batch {
        Batch { rows, pixels: (0..rows * 8 * 8 * 3).map(|i| (i as f32 * 0.37).sin()).collect() }
    }

    #[test]
    fn whitened_features_are_the_readout_of_the_pooled_ones() {
        let (network, batch) = (network(), batch(40));
        let weights = network.init(1);
        assert!(!weights.has_whitened());
        let pooled = network.features(&weights, &batch, FeatureKind::Pooled);
        let readout = whitening(&pooled).unwrap();
        let weights = weights.with_readout(readout.clone());
        assert_eq!(network.features(&weights, &batch, FeatureKind::Whitened), readout.apply(&pooled));
        // White but for the unit length: no direction has all of the variance.
        let found = readout.apply(&pooled);
        let share = |column: usize| found.values.iter().skip(column).step_by(found.dim).map(|x| x * x).sum::<f32>();
        assert!((0..found.dim).all(|c| share(c) < 0.5 * found.rows as f32));
    }

    #[test]
    fn arrays_come_back_and_half_of_them_is_refused() {
        let network = network();
        let pooled = network.features(&network.init(1), &batch(12), FeatureKind::Pooled);
        let readout = whitening(&pooled).unwrap();
        let all: BTreeMap<String, Array> = arrays(&readout).into();
        assert_eq!(from_arrays(&all, network.pooled).unwrap().as_deref(), Some(&readout));
        assert!(from_arrays(&BTreeMap::new(), network.pooled).unwrap().is_none());
        assert!(from_arrays(&all, network.pooled + 1).unwrap_err().message.contains(MAP));
        for name in [MEAN, MAP] {
            let mut half = all.clone();
            half.remove(name);
            assert!(from_arrays(&half, network.pooled).unwrap_err().message.contains(name));
        }
    }

    #[test]
    fn equal_images_and_one_image_have_finite_features() {
        let network = network();
        let weights = network.init(1);
        let one = network.features(&weights, &batch(1), FeatureKind::Pooled);
        let equal = Matrix::new(one.dim, one.values.repeat(5));
        for pooled in [one, equal] {
            assert!(whitening(&pooled).unwrap().apply(&pooled).values.iter().all(|x| x.is_finite()));
        }
        assert!(whitening(&Matrix { rows: 0, dim: 4, values: Vec::new() }).is_err());
    }
}
