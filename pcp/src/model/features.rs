//! Features of images by name and kind: embeddings, pooled features, and pooled maps of layers.

use super::network::{Maps, Network};
use super::weights::Weights;
use crate::config::FeatureKind;
use crate::data::loader::{Draw, Loader, Part, View};
use crate::data::{Batch, Prefetch};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result, listed};
use pcp_core::matrix::Matrix;
use std::sync::Arc;

/// Maps with more numbers than this are average-pooled.
const MOST: usize = 10_000;

impl Network {
    /// Every kind of features that has a name, with its name.
    pub fn feature_kinds(&self) -> Vec<(String, FeatureKind)> {
        let maps = self.layers().into_iter().enumerate().map(|(i, name)| (name, FeatureKind::Map(i)));
        maps.chain([("pooled".into(), FeatureKind::Pooled), ("embedding".into(), FeatureKind::Embedding)]).collect()
    }

    /// The features of any weights that are called `name`: `embedding`, `pooled`, or a layer.
    pub fn feature_kind(&self, name: &str) -> Result<FeatureKind> {
        let known = self.feature_kinds();
        known.iter().find(|(known, _)| known == name).map(|(_, kind)| *kind).ok_or_else(|| {
            let known = listed(known.iter().map(|(name, _)| name));
            Error::usage(format!("this network has no layer {name}"), format!("its layers are {known}"))
        })
    }

    /// The features that `names` name, with their names; `all` names every one.
    pub fn feature_kinds_named(&self, names: &[String]) -> Result<Vec<(String, FeatureKind)>> {
        if names.iter().any(|name| name == "all") {
            return Ok(self.feature_kinds());
        }
        let find = |name: &String| match self.feature_kind(name) {
            Ok(kind) => Ok((name.clone(), kind)),
            Err(e) => Err(Error { hint: format!("{}, or all", e.hint), ..e }),
        };
        names.iter().map(find).collect()
    }

    /// Features of a batch in inference, one row per image.
    pub fn features(&self, weights: &Weights, batch: &Batch, kind: FeatureKind) -> Matrix {
        match kind {
            FeatureKind::Map(place) => self.maps(weights, batch, &[place]).first().map(pooled_map).unwrap_or_default(),
            kind => self.vectors(weights, batch, kind),
        }
    }

    /// Features of several kinds: one pass for all maps, one for each of the others.
    pub fn features_of_kinds(&self, weights: &Weights, batch: &Batch, kinds: &[FeatureKind]) -> Vec<Matrix> {
        let place = |kind: &FeatureKind| if let FeatureKind::Map(place) = kind { Some(*place) } else { None };
        let places: Vec<usize> = kinds.iter().filter_map(place).collect();
        let mut maps = if places.is_empty() { Vec::new() } else { self.maps(weights, batch, &places) }.into_iter();
        let of = |kind: &FeatureKind| match kind {
            FeatureKind::Map(_) => maps.next().map(|maps| pooled_map(&maps)).unwrap_or_default(),
            kind => self.vectors(weights, batch, *kind),
        };
        kinds.iter().map(of).collect()
    }
}

/// Computes features of many images, batch by batch. Must not be used from rayon's thread pool, which makes the batches.
#[derive(Clone, Copy)]
pub struct Extractor<'a> {
    /// The network.
    pub network: &'a Arc<Network>,
    /// Its weights.
    pub weights: &'a Weights,
    /// Cancels the calculation.
    pub cancel: &'a Cancel,
    /// Called with the number of images after every batch.
    pub on_images: &'a dyn Fn(usize),
}

impl Extractor<'_> {
    /// Features of a batch, one matrix per kind.
    pub fn batch(&self, batch: Batch, kinds: &[FeatureKind]) -> Result<Vec<Matrix>> {
        let (network, weights, kinds) = (self.network.clone(), self.weights.clone(), kinds.to_vec());
        self.cancel.run(move || network.features_of_kinds(&weights, &batch, &kinds))
    }

    /// Features of a stream of batches with `images` images, one matrix per kind.
    pub fn stream(
        &self,
        batches: Prefetch<(Vec<Draw>, Batch)>,
        images: usize,
        kinds: &[FeatureKind],
    ) -> Result<Vec<Matrix>> {
        let mut all: Vec<Matrix> = vec![Matrix::default(); kinds.len()];
        for made in batches {
            let (draws, batch) = made?;
            for (all, part) in all.iter_mut().zip(self.batch(batch, kinds)?) {
                all.values.reserve_exact(if all.rows == 0 { images * part.dim } else { 0 });
                all.values.extend(part.values);
                (all.rows, all.dim) = (all.rows + part.rows, part.dim);
            }
            (self.on_images)(draws.len());
        }
        Ok(all)
    }

    /// Features of every image of `part`.
    pub fn all(&self, loader: &Loader, part: Part, view: View, kind: FeatureKind) -> Result<Matrix> {
        let rows: Vec<usize> = (0..loader.images(part).len()).collect();
        self.rows(&self.with_squares(loader, kind), part, &rows, view, kind)
    }

    /// Features of the images of `part` that this process has read.
    pub fn own(&self, loader: &Loader, part: Part, view: View, kind: FeatureKind) -> Result<Matrix> {
        let rows: Vec<usize> = (0..loader.images(part).len()).collect();
        self.of_own(&self.with_squares(loader, kind), part, &loader.own_rows(part, &rows), view, kind)
    }

    /// The loader that makes what the weights need for these features.
    fn with_squares(&self, loader: &Loader, kind: FeatureKind) -> Loader {
        let combination = self.weights.combination().filter(|_| kind == FeatureKind::Embedding);
        loader.with_squares(combination.map(|combination| combination.card.squares()))
    }

    /// Features of the images of `part` in `rows`, which are ascending. Of several processes, each computes those of the images that it
    /// has read, and all get the whole.
    pub fn rows(&self, loader: &Loader, part: Part, rows: &[usize], view: View, kind: FeatureKind) -> Result<Matrix> {
        let Matrix { dim, values, .. } = self.of_own(loader, part, &loader.own_rows(part, rows), view, kind)?;
        Ok(loader.gathered(part, rows, dim, values))
    }

    /// Features of `own` images of this process.
    fn of_own(&self, loader: &Loader, part: Part, own: &[usize], view: View, kind: FeatureKind) -> Result<Matrix> {
        let made =
            self.stream(loader.rows(part, own, view), own.len(), &[kind])?.into_iter().next().unwrap_or_default();
        // A process may have none of them, and does not know their length.
        let team = loader.team();
        let dims = team.all_gather_values(&[made.dim as u64], &vec![1; team.count()]);
        Ok(Matrix { dim: dims.into_iter().max().unwrap_or_default() as usize, ..made })
    }
}

/// Size (and stride) and padding of the average pool that reduces a map to about 9,000 numbers, as in the paper: AlexNet 224
/// conv1 6 with padding 3, conv2 4, conv3 and conv4 3 with padding 1, conv5 2; AlexNet 32 conv5 2; ResNet18 layer4 2 with
/// padding 1. Otherwise the smallest size whose result is small enough, at least 2.
fn pool_of(side: usize, channels: usize) -> (usize, usize) {
    match (side, channels) {
        (55, 96) => (6, 3),
        (27, 256) => (4, 0),
        (13, 384) => (3, 1),
        (13, 256) => (2, 0),
        (4, _) => (2, 1),
        _ => {
            let fits = |size: &usize| (side / size).pow(2) * channels <= MOST;
            ((2..=side).find(fits).unwrap_or(side.max(1)), 0)
        }
    }
}

/// Average pooling of maps into rows of features; the zeros of the padding count, as in PyTorch.
fn pooled_map(maps: &Maps) -> Matrix {
    let Maps { rows, height, width, channels, values } = maps;
    let (size, padding) = pool_of(*height, *channels);
    let size = size.min(height + 2 * padding).max(1);
    let outputs = |side: usize| (side + 2 * padding).saturating_sub(size) / size + 1;
    let (oh, ow) = (outputs(*height), outputs(*width));
    let mut out = vec![0.0f32; rows * oh * ow * channels];
    let scale = 1.0 / (size * size) as f32;
    for (row, out) in out.chunks_mut(oh * ow * channels).enumerate() {
        for (cell, out) in out.chunks_mut(*channels).enumerate() {
            let (top, left) = (cell / ow * size, cell % ow * size);
            for y in top.max(padding)..(top + size).min(height + padding) {
                for x in left.max(padding)..(left + size).min(width + padding) {
                    let at = ((row * height + y - padding) * width + x - padding) * channels;
                    out.iter_mut().zip(&values[at..at + channels]).for_each(|(o, v)| *o += v * scale);
                }
            }
        }
    }
    Matrix { rows: *rows, dim: oh * ow * channels, values: out }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's pools, by the features that they leave.
    #[test]
    fn pools_leave_the_features_that_the_paper_has() {
        let cases = [
            (55, 96, 9600),
            (27, 256, 9216),
            (13, 384, 9600),
            (13, 256, 9216),
            (4, 512, 4608),
            (8, 256, 4096),
            (32, 64, 6400),
            (1, 128, 128),
        ];
        for (side, channels, expected) in cases {
            let maps = Maps { rows: 1, height: side, width: side, channels, values: vec![1.0; side * side * channels] };
            assert_eq!(pooled_map(&maps).dim, expected, "{side} {channels}");
        }
    }

    #[test]
    fn pooling_is_a_mean_with_zeros_around() {
        // 4x4, one channel, padding 1, size 2: corners are a quarter of one pixel, the middle a mean of four.
        let maps = Maps { rows: 1, height: 4, width: 4, channels: 1, values: (0..16).map(|v| v as f32).collect() };
        let pooled = pooled_map(&maps).values;
        assert_eq!(pooled, [0.0, 0.75, 0.75, 3.0, 7.5, 4.5, 3.0, 6.75, 3.75]);
    }

    #[test]
    fn layers_have_the_networks_own_names() {
        let config = crate::config::NetworkSettings { width: 4, ..crate::config::Config::default().network };
        let network = Network::new(&config, 32).unwrap();
        let named =
            |names: &[&str]| network.feature_kinds_named(&names.iter().map(|n| n.to_string()).collect::<Vec<_>>());
        assert_eq!(named(&["layer4", "pooled"]).unwrap().len(), 2);
        assert_eq!(named(&["all"]).unwrap().len(), 6);
        let e = named(&["conv5"]).unwrap_err();
        assert!(e.message.contains("conv5") && e.hint.contains("layer1"), "{e:?}");
    }

    #[test]
    fn features_of_a_layer_are_its_pooled_maps() {
        let config = crate::config::NetworkSettings { width: 4, ..crate::config::Config::default().network };
        let network = Network::new(&config, 32).unwrap();
        let weights = network.init(3);
        let batch = Batch { rows: 3, pixels: (0..3 * 32 * 32 * 3).map(|i| (i as f32 * 0.37).sin()).collect() };
        let layers = [FeatureKind::Pooled, FeatureKind::Map(3), FeatureKind::Embedding, FeatureKind::Map(0)];
        let found = network.features_of_kinds(&weights, &batch, &layers);
        assert_eq!(found.iter().map(|f| f.dim).collect::<Vec<_>>(), [32, 9 * 32, 128, 16 * 16 * 4]);
        // The mean over the map of layer4 is what pooling gives.
        let map = &network.maps(&weights, &batch, &[3])[0];
        let mean: f32 = (0..16).map(|cell| map.values[cell * 32]).sum::<f32>() / 16.0;
        assert!((mean - found[0].row(0)[0]).abs() < 1e-5);
    }
}
