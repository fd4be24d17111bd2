//! Export for other tools: safetensors in torchvision's names, and a sample to check an export with.

use super::{Model, Network};
use crate::config::{FeatureKind, Precision};
use crate::data::Batch;
use pcp_core::error::Result;
use pcp_core::io::npy::write_npz;
use pcp_core::io::tensors::Tensors;
use pcp_core::rng::{Key, Purpose};
use std::path::Path;

/// Images as an exported network takes them, and their features, to compare it with.
pub(super) struct ExportSample {
    /// What each array is called, with its shape without the images and its values.
    pub arrays: Vec<(&'static str, Vec<usize>, Vec<f32>)>,
    count: usize,
}

impl ExportSample {
    fn write(&self, path: &Path) -> Result<()> {
        write_npz(path, |z| {
            self.arrays.iter().try_for_each(|(name, shape, values)| {
                let whole: Vec<usize> = std::iter::once(self.count).chain(shape.iter().copied()).collect();
                z.add_shaped(name, &whole, values)
            })
        })
    }
}

/// Images of coloured squares, so that later layers respond, with values from 0 to 1: `[count, 3, side, side]` and `[count, side, side, 3]`.
pub(crate) fn made_images(count: usize, side: usize) -> (Vec<f32>, Vec<f32>) {
    let (area, square) = (side * side, (side / 8).max(1));
    let key = Key { purpose: Purpose::Synthetic, seed: 0, round: 0, epoch: 0 };
    let (mut planes, mut pixels) = (vec![0.0; count * 3 * area], vec![0.0; count * 3 * area]);
    for (n, c, y, x) in (0..count * 3 * area).map(|i| (i / (3 * area), i / area % 3, i / side % side, i % side)) {
        let place = ((n * 3 + c) * side + y / square) * side + x / square;
        let value = key.stream(place as u64, 0).uniform(0.0, 1.0);
        planes[((n * 3 + c) * side + y) * side + x] = value;
        pixels[((n * side + y) * side + x) * 3 + c] = value;
    }
    (planes, pixels)
}

impl Model {
    /// Writes the network's arrays in torchvision's names, and no others, so that `load_state_dict` accepts them.
    pub fn write_safetensors(&self, path: &Path) -> Result<()> {
        Tensors { about: self.card.clone(), arrays: self.network.arrays(&self.weights) }.write_new(path)
    }

    /// Writes `count` made-up images as the exported network takes them (`preprocessed`: values from 0 to 1), with this
    /// network's features of them, as NPZ: `input`, `pooled`, `embedding`; `whitened` where there is a readout, and `square` where there
    /// are patches beside the network.
    pub fn write_sample(&self, path: &Path, count: usize, preprocessed: bool) -> Result<()> {
        self.sample(count, preprocessed).write(path)
    }

    pub(super) fn sample(&self, count: usize, preprocessed: bool) -> ExportSample {
        let side = self.network.size;
        let (mean, std) = (self.card.mean.map(|x| x as f32), self.card.std.map(|x| x as f32));
        let (mut planes, mut pixels) = made_images(count, side);
        let normal = |x: f32, c: usize| (x - mean[c]) / std[c];
        pixels.iter_mut().enumerate().for_each(|(i, x)| *x = normal(*x, i % 3));
        if !preprocessed {
            planes.iter_mut().enumerate().for_each(|(i, x)| *x = normal(*x, i / (side * side) % 3));
        }
        let mut arrays = vec![("input", vec![3, side, side], planes)];
        if let Some(combination) = self.weights.combination() {
            let side = combination.card.side;
            let (planes, squares) = made_images(count, side);
            arrays.push(("square", vec![3, side, side], planes));
            let own = pixels.chunks_exact(pixels.len() / count);
            let rows = own.zip(squares.chunks_exact(squares.len() / count));
            pixels = rows.flat_map(|(own, square)| own.iter().chain(square)).copied().collect();
        }
        let batch = Batch { rows: count, pixels };
        // Other tools compute in f32.
        let network = Network::clone(&self.network).with_precision(Precision::F32);
        let whitened = self.weights.readout().map(|_| ("whitened", FeatureKind::Whitened));
        let kinds = [("pooled", FeatureKind::Pooled), ("embedding", FeatureKind::Embedding)];
        for (name, kind) in kinds.into_iter().chain(whitened) {
            let features = network.features(&self.weights, &batch, kind);
            arrays.push((name, vec![features.dim], features.values));
        }
        ExportSample { arrays, count }
    }
}
