//! Export for other tools: safetensors in torchvision's names, and a sample to check an export with.

use super::{Model, Network};
use crate::config::{FeatureKind, Precision};
use crate::data::Batch;
use pcp_core::error::Result;
use pcp_core::io::npy::write_npz;
use pcp_core::io::tensors::Tensors;
use pcp_core::matrix::Matrix;
use pcp_core::rng::{Key, Purpose};
use std::path::Path;

/// Images and their features, to compare an exported network with.
struct ExportSample {
    /// Images `[n, 3, side, side]`, as input of the exported network.
    input: Vec<f32>,
    pooled: Vec<f32>,
    embedding: Vec<f32>,
    whitened: Option<Matrix>,
}

impl Model {
    /// Writes the network's arrays in torchvision's names, and no others, so that `load_state_dict` accepts them.
    pub fn write_safetensors(&self, path: &Path) -> Result<()> {
        Tensors { about: self.card.clone(), arrays: self.network.arrays(&self.weights) }.write(path)
    }

    /// Writes `count` images of noise as the exported network takes them (`preprocessed`: values from 0 to 1), with this
    /// network's features of them, as NPZ: `input`, `pooled`, `embedding`, and `whitened` where there is a readout.
    pub fn write_sample(&self, path: &Path, count: usize, preprocessed: bool) -> Result<()> {
        let side = self.network.size;
        let sample = self.sample(count, preprocessed);
        write_npz(path, |z| {
            z.add_shaped("input", &[count, 3, side, side], &sample.input)?;
            z.add_shaped("pooled", &[count, self.network.pooled], &sample.pooled)?;
            z.add_shaped("embedding", &[count, self.network.embedding], &sample.embedding)?;
            match &sample.whitened {
                Some(whitened) => z.add_shaped("whitened", &[count, whitened.dim], &whitened.values),
                None => Ok(()),
            }
        })
    }

    fn sample(&self, count: usize, preprocessed: bool) -> ExportSample {
        let (side, area) = (self.network.size, self.network.size.pow(2));
        let (mean, std) = (self.card.mean.map(|x| x as f32), self.card.std.map(|x| x as f32));
        let key = Key { purpose: Purpose::Synthetic, seed: 0, round: 0, epoch: 0 };
        // Squares of one colour, so that later layers respond.
        let square = (side / 8).max(1);
        let mut input = vec![0.0; count * 3 * area];
        let mut pixels = vec![0.0; count * 3 * area];
        for (n, c, y, x) in (0..count * 3 * area).map(|i| (i / (3 * area), i / area % 3, i / side % side, i % side)) {
            let place = ((n * 3 + c) * side + y / square) * side + x / square;
            let value = key.stream(place as u64, 0).uniform(0.0, 1.0);
            let normal = (value - mean[c]) / std[c];
            input[((n * 3 + c) * side + y) * side + x] = if preprocessed { value } else { normal };
            pixels[((n * side + y) * side + x) * 3 + c] = normal;
        }
        let batch = Batch { rows: count, pixels };
        // Other tools compute in f32.
        let network = Network::clone(&self.network).with_precision(Precision::F32);
        let features = |kind| network.features(&self.weights, &batch, kind);
        ExportSample {
            input,
            pooled: features(FeatureKind::Pooled).values,
            embedding: features(FeatureKind::Embedding).values,
            whitened: self.weights.readout().map(|_| features(FeatureKind::Whitened)),
        }
    }
}
