//! Patches and network side by side: the embedding of a network that learned from patch features.
//!
//! `e = [sqrt(1 - w) p, sqrt(w) n]`: p are the patch features of the image; n are the network's pooled features, the mean of the image
//! and its mirror image, through a readout that was learned without labels; both are unit vectors. In inference, such a network takes
//! rows of pixels that hold two views of an image: its own, then the square that patches are encoded from ([`CleanView::squares`]).

use super::network::Network;
use super::weights::Weights;
use crate::config::{AugmentSettings, FeatureKind};
use crate::data::augment::{Augmenter, whole_image};
use crate::data::{Batch, CleanView};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::tensors::Array;
use pcp_core::matrix::Matrix;
use pcp_core::patches::{PatchSettings, Patches, SquareBatch};
use pcp_core::readout::Readout;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The numbers of a combination that are not in its arrays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CombinationCard {
    /// Side of the squares that patches are encoded from: the whole image, whatever its aspect.
    pub side: usize,
    /// Short side to which larger photographs are shrunk first; 0 keeps them.
    pub stored: usize,
    /// How patches are encoded.
    pub patches: PatchSettings,
    /// The network's share, w.
    pub weight: f64,
}

impl CombinationCard {
    /// The squares that patches are encoded from.
    pub fn squares(&self) -> CleanView {
        let recipe = AugmentSettings::default();
        let augmenter = Augmenter { size: self.side, margin: 0.0, mean: [0.0; 3], std: [1.0; 3], recipe };
        CleanView { augmenter, stored: self.stored, squares: None }
    }

    /// The preprocessing of these squares in words.
    pub fn preprocessing(&self) -> String {
        whole_image(self.side)
    }
}

/// Patches and network side by side.
pub struct Combination {
    /// Its numbers.
    pub card: CombinationCard,
    patches: Patches,
    /// From the square roots of patch codes to features.
    codes: Readout,
    /// From pooled features to features.
    pooled: Readout,
}

impl fmt::Debug for Combination {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Combination").field("card", &self.card).finish_non_exhaustive()
    }
}

/// The names of its arrays in files.
const PATCHES: &str = "patches.";
const CODES_MEAN: &str = "patches.readout.mean";
const CODES_MAP: &str = "patches.readout.map";
const POOLED_MEAN: &str = "pooled.readout.mean";
const POOLED_MAP: &str = "pooled.readout.map";

impl Combination {
    /// Puts both together: the patches with the readout of their codes, and the readout of the network's pooled features.
    pub fn new(card: CombinationCard, patches: Patches, codes: Readout, pooled: Readout) -> Combination {
        Combination { card, patches, codes, pooled }
    }

    /// Its arrays, for a model file.
    pub fn arrays(&self) -> BTreeMap<String, Array> {
        let matrix = |m: &Matrix| Array::F32(vec![m.rows, m.dim], m.values.clone());
        let list = |v: &[f32]| Array::F32(vec![v.len()], v.to_vec());
        let all = [
            (CODES_MEAN, list(&self.codes.mean)),
            (CODES_MAP, matrix(&self.codes.map)),
            (POOLED_MEAN, list(&self.pooled.mean)),
            (POOLED_MAP, matrix(&self.pooled.map)),
        ];
        let patches = self.patches.arrays(PATCHES).into_iter();
        let patches = patches.map(|(name, (shape, values))| (name, Array::F32(shape, values)));
        patches.chain(all.into_iter().map(|(name, array)| (name.to_string(), array))).collect()
    }

    /// The reverse of [`arrays`](Self::arrays), for a network with `pooled` features.
    pub fn from_arrays(card: CombinationCard, arrays: &BTreeMap<String, Array>, pooled: usize) -> Result<Combination> {
        card.patches.check(card.side)?;
        let mut take = |name: &str| match arrays.get(name) {
            Some(Array::F32(shape, values)) => Ok((shape.clone(), values.clone())),
            _ => Err(other(name)),
        };
        let patches = Patches::from_arrays(card.patches.clone(), card.side, PATCHES, &mut take)?;
        let matrix = |name: &str, dim: usize| match arrays.get(name) {
            Some(Array::F32(shape, values)) if shape.len() == 2 && shape[0] > 0 && shape[1] == dim => {
                Ok(Matrix { rows: shape[0], dim, values: values.clone() })
            }
            _ => Err(other(name)),
        };
        let list = |name: &str, len: usize| match arrays.get(name) {
            Some(Array::F32(shape, values)) if shape[..] == [len] => Ok(values.clone()),
            _ => Err(other(name)),
        };
        let features = card.patches.features();
        let codes = Readout { mean: list(CODES_MEAN, features)?, map: matrix(CODES_MAP, features)? };
        let pooled = Readout { mean: list(POOLED_MEAN, pooled)?, map: matrix(POOLED_MAP, pooled)? };
        if !(0.0..=1.0).contains(&card.weight) {
            return Err(Error::file(
                format!("the network's share is {}", card.weight),
                "use the file as it was written",
            ));
        }
        Ok(Combination::new(card, patches, codes, pooled))
    }

    /// Patch features of squares, `[images, side, side, 3]`, values from 0 to 1.
    pub fn patch_features(&self, pixels: &[f32]) -> Matrix {
        let squares = SquareBatch { side: self.card.side, pixels };
        match self.patches.embed(&self.codes, &squares, &Cancel::default()) {
            Ok(patches) => patches,
            Err(e) => unreachable!("images in memory can be read: {e}"),
        }
    }

    /// The encoder of patches.
    pub(super) fn patches(&self) -> &Patches {
        &self.patches
    }

    /// The readout of the square roots of patch codes.
    pub(super) fn codes(&self) -> &Readout {
        &self.codes
    }

    /// The readout of the network's pooled features.
    pub(super) fn pooled(&self) -> &Readout {
        &self.pooled
    }

    /// The same with another share of the network.
    pub fn with_weight(mut self, weight: f64) -> Combination {
        self.card.weight = weight;
        self
    }

    /// Embeddings of rows that hold both views.
    pub(super) fn embed(&self, network: &Network, weights: &Weights, batch: &Batch) -> Matrix {
        let (own, square) = (network.size * network.size * 3, self.card.side * self.card.side * 3);
        assert_eq!(batch.pixels.len(), batch.rows * (own + square), "rows of both views");
        let part = |from: usize, to: usize| -> Vec<f32> {
            batch.pixels.chunks_exact(own + square).flat_map(|row| &row[from..to]).copied().collect()
        };
        let patches = self.patch_features(&part(own, own + square));
        let views = Batch { rows: batch.rows, pixels: part(0, own) };
        self.together(&patches, &both_sides(network, weights, &views))
    }

    /// Embeddings from patch features and from the network's pooled features of the same images.
    pub fn together(&self, patches: &Matrix, pooled: &Matrix) -> Matrix {
        side_by_side(patches, &self.pooled.apply(pooled), self.card.weight)
    }
}

fn other(name: &str) -> Error {
    Error::file(
        format!("{name} is missing or has another shape than the description says"),
        "use the file as it was written",
    )
}

/// Mean of the pooled features of images and of their mirror images.
pub fn both_sides(network: &Network, weights: &Weights, batch: &Batch) -> Matrix {
    let mut mean = network.features(weights, batch, FeatureKind::Pooled);
    let mut mirrored = batch.clone();
    for line in mirrored.pixels.chunks_exact_mut(network.size * 3) {
        for x in 0..network.size / 2 {
            let (left, right) = (x * 3, (network.size - 1 - x) * 3);
            (0..3).for_each(|c| line.swap(left + c, right + c));
        }
    }
    let mirrored = network.features(weights, &mirrored, FeatureKind::Pooled);
    mean.values.iter_mut().zip(&mirrored.values).for_each(|(a, b)| *a = 0.5 * (*a + b));
    mean
}

/// Rows `[sqrt(1 - weight) a, sqrt(weight) b]`, unit vectors like those of `a` and `b`.
fn side_by_side(a: &Matrix, b: &Matrix, weight: f64) -> Matrix {
    let [left, right] = [1.0 - weight, weight].map(|w| w.sqrt() as f32);
    let dim = a.dim + b.dim;
    let mut values = Vec::with_capacity(a.rows * dim);
    for (p, n) in a.values.chunks_exact(a.dim).zip(b.values.chunks_exact(b.dim)) {
        values.extend(p.iter().map(|x| left * x));
        values.extend(n.iter().map(|x| right * x));
    }
    Matrix { rows: a.rows, dim, values }.normalised()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::{Config, NetworkSettings};
    use pcp_core::patches::SecondSettings;
    use std::sync::Arc;

    fn wave(n: usize, step: f32) -> Vec<f32> {
        (0..n).map(|i| 0.5 + 0.5 * (i as f32 * step).sin()).collect()
    }

    /// A combination for a network with `pooled` features.
    pub fn made_combination(pooled: usize, weight: f64) -> Combination {
        let second = SecondSettings { centroids: 5, areas: 4, numbers: 6, ..SecondSettings::default() };
        let patches = PatchSettings { patch: 4, centroids: 3, stride: 2, second, ..PatchSettings::default() };
        let card = CombinationCard { side: 12, stored: 0, patches, weight };
        let codes = card.patches.features();
        let readout = |from: usize, to: usize| Readout {
            mean: wave(from, 0.3),
            map: Matrix::new(from, wave(from * to, 0.7).iter().map(|x| x - 0.5).collect()),
        };
        let mut take = |name: &str| {
            let shape = match name {
                "filters" => vec![3, 4 * 4 * 3 + 1],
                "second.mean" => vec![6],
                "second.even" => vec![4, 6],
                "second.odd" => vec![2, 6],
                _ => vec![5, 2 * 2 * 6],
            };
            let values = wave(shape.iter().product(), 1.3).iter().map(|x| x - 0.5).collect();
            Ok((shape, values))
        };
        let patches = Patches::from_arrays(card.patches.clone(), card.side, "", &mut take).unwrap();
        Combination::new(card, patches, readout(codes, 5), readout(pooled, 4))
    }

    fn made(weight: f64) -> (Network, Combination) {
        let settings = NetworkSettings { width: 2, ..Config::default().network };
        let network = Network::new(&settings, 8).unwrap();
        let combination = made_combination(network.pooled, weight);
        (network, combination)
    }

    /// Three images in rows of both views.
    fn both_views() -> Batch {
        Batch { rows: 3, pixels: wave(3 * (8 * 8 + 12 * 12) * 3, 0.11) }
    }

    #[test]
    fn the_embedding_is_patches_and_network_side_by_side() {
        let (network, combination) = made(0.25);
        let weights = network.init(3);
        let batch = both_views();
        let parts: Vec<(&[f32], &[f32])> = batch.pixels.chunks_exact(624).map(|row| row.split_at(192)).collect();
        let own = Batch { rows: 3, pixels: parts.iter().flat_map(|p| p.0.to_vec()).collect() };
        let patches = combination.patch_features(&parts.iter().flat_map(|p| p.1.to_vec()).collect::<Vec<_>>());
        let pooled = combination.pooled.apply(&both_sides(&network, &weights, &own));
        let combined = weights.combined(Arc::new(combination));
        let found = network.features(&combined, &batch, FeatureKind::Embedding);
        assert_eq!((found.rows, found.dim), (3, 9));
        for i in 0..3 {
            let expected =
                patches.row(i).iter().map(|x| 0.75f32.sqrt() * x).chain(pooled.row(i).iter().map(|x| 0.5 * x));
            found.row(i).iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{a} is not {b}"));
        }
        // Other features are the network's, of its own view.
        let pooled = network.features(&combined, &batch, FeatureKind::Pooled);
        assert_eq!(pooled, network.features(&weights, &own, FeatureKind::Pooled));
    }

    #[test]
    fn an_image_and_its_mirror_image_have_the_same_pooled_features() {
        let (network, _) = made(0.5);
        let weights = network.init(3);
        let batch = Batch { rows: 1, pixels: wave(8 * 8 * 3, 0.17) };
        let lines = batch.pixels.chunks_exact(24);
        let mirrored: Vec<f32> = lines.flat_map(|line| line.chunks_exact(3).rev().flatten().copied()).collect();
        let mirrored = Batch { rows: 1, pixels: mirrored };
        let [a, b] = [&batch, &mirrored].map(|batch| both_sides(&network, &weights, batch).values);
        a.iter().zip(&b).for_each(|(a, b)| assert!((a - b).abs() < 1e-6));
        assert_ne!(network.features(&weights, &batch, FeatureKind::Pooled).values, b);
    }

    #[test]
    fn arrays_come_back_and_wrong_ones_are_refused_by_name() {
        let (network, combination) = made(0.25);
        let arrays = combination.arrays();
        let read = |card: &CombinationCard, arrays: &BTreeMap<String, Array>| {
            Combination::from_arrays(card.clone(), arrays, network.pooled)
        };
        assert_eq!(read(&combination.card, &arrays).unwrap().arrays(), arrays);
        assert_eq!(arrays.len(), 9);
        for name in arrays.keys() {
            let mut lacks = arrays.clone();
            lacks.remove(name);
            assert!(read(&combination.card, &lacks).unwrap_err().message.contains(name));
            lacks.insert(name.clone(), Array::F32(vec![2, 1], vec![0.0; 2]));
            assert!(read(&combination.card, &lacks).unwrap_err().message.contains(name));
        }
        let card = CombinationCard { weight: f64::NAN, ..combination.card.clone() };
        assert!(read(&card, &arrays).unwrap_err().message.contains("share"));
    }
}
