//! Network architectures, without weights.

use super::layers::{self, Builder, ConvSpec, Pass, conv_bn, linear, rectified};
use super::weights::{self, Named, Spec, Weights};
use super::{alexnet, resnet};
use crate::config::{self, Arch, FeatureKind, Head, Precision};
use crate::data::{Batch, BatchShare};
use burn::tensor::{Device, Tensor, TensorData};
use pcp_core::error::{Error, Result};
use pcp_core::io::tensors::Array;
use pcp_core::matrix::Matrix;
use pcp_core::rng::Key;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Length of the layer with batch norm in a head.
const HIDDEN: usize = 512;
/// Images per block in inference.
const BLOCK: usize = 32;

/// A network architecture, without weights.
#[derive(Clone, Debug)]
pub struct Network {
    pub(super) body: Body,
    /// A layer with batch norm and ReLU before the others of the head.
    pub(super) hidden: Option<layers::ConvBn>,
    /// One layer, or two with a ReLU in between.
    pub(super) head: Vec<layers::Linear>,
    /// Layers of training alone, which predict another embedding from this one: with batch norm and ReLU, and without.
    predictor: Option<(layers::ConvBn, layers::Linear)>,
    pub(super) parameters: Vec<Spec>,
    buffers: Vec<Spec>,
    /// The precision that its layers compute in.
    pub precision: Precision,
    /// Whether batch norm has the statistics of a whole batch that several processes share, or each those of its own rows.
    pub sync_norm: bool,
    /// Side of its input images.
    pub size: usize,
    /// Length of an embedding, D.
    pub embedding: usize,
    /// Length of the vector before the last layer.
    pub pooled: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    ResNet(resnet::ResNet),
    AlexNet(alexnet::AlexNet),
}

/// Maps of a layer, `[rows][height][width][channels]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Maps {
    /// Images.
    pub rows: usize,
    /// Height of a map.
    pub height: usize,
    /// Width of a map.
    pub width: usize,
    /// Channels.
    pub channels: usize,
    /// The values.
    pub values: Vec<f32>,
}

/// Key of the dropout masks: the ids of one view's images, and the run's round and epoch.
#[derive(Clone, Debug)]
pub struct DropoutKey {
    /// Purpose, seed, round and epoch.
    pub key: Key,
    /// Ids of the images of one view.
    pub ids: Vec<u64>,
}

/// The result of one training pass.
pub struct Step<L> {
    /// The losses, as the loss function reports them.
    pub loss: L,
    /// The features that the loss was computed on, of all views.
    pub features: Matrix,
    /// Gradient of every parameter, in order.
    pub gradients: Vec<Tensor<1>>,
    /// Batch-norm statistics of every layer and view, for updating the running ones.
    pub moments: Vec<layers::Moments>,
}

impl Network {
    /// Builds the network that `config` describes for images of `size` x `size`.
    pub fn new(config: &config::NetworkSettings, size: usize) -> Result<Network> {
        let mut build = Builder::default();
        let (body, pooled) = match config.arch {
            Arch::Resnet18 => {
                let (net, pooled) =
                    resnet::ResNet::new(&mut build, config.width, resnet::large_stem(config.stem, size));
                (Body::ResNet(net), pooled)
            }
            Arch::Alexnet | Arch::Alexnet224 => {
                let variant = if config.arch == Arch::Alexnet { &alexnet::SMALL } else { &alexnet::LARGE };
                let (net, pooled) =
                    alexnet::AlexNet::new(&mut build, variant, config.width, size).ok_or_else(|| {
                        Error::usage(
                            format!("images of {size} px are too small for {:?}", config.arch),
                            format!("give --size {} (or at least {})", variant.usual_size, variant.least_size),
                        )
                    })?;
                (Body::AlexNet(net), pooled)
            }
        };
        let (name, init) = match body {
            Body::ResNet(_) => ("fc", weights::Init::Uniform),
            Body::AlexNet(_) => ("classifier.6", alexnet::head_init(config.arch)),
        };
        let hidden_layer = |build: &mut Builder, name: &str, from: usize| {
            build.conv_bn(ConvSpec {
                name: &format!("{name}.0"),
                norm: &format!("{name}.1"),
                shape: [HIDDEN, from, 1, 1],
                conv: kernels::Conv { stride: 1, padding: 0, relu: true },
                init,
                bias: false,
                flat: true,
            })
        };
        let projects = matches!(config.head, Head::Projector | Head::Predictor);
        let hidden = projects.then(|| hidden_layer(&mut build, name, pooled));
        let head = match config.head {
            Head::Linear => vec![build.linear(name, pooled, config.embedding, init)],
            Head::Projector | Head::Predictor => {
                vec![build.linear(&format!("{name}.3"), HIDDEN, config.embedding, init)]
            }
            Head::Mlp => vec![
                build.linear(&format!("{name}.0"), pooled, pooled, init),
                build.linear(&format!("{name}.2"), pooled, config.embedding, init),
            ],
        };
        let predictor = (config.head == Head::Predictor).then(|| {
            let hidden = hidden_layer(&mut build, "predictor", config.embedding);
            (hidden, build.linear("predictor.3", HIDDEN, config.embedding, init))
        });
        let Builder { parameters, buffers } = build;
        let precision = Precision::F32;
        let (sync_norm, embedding) = (true, config.embedding);
        Ok(Network {
            body,
            hidden,
            head,
            predictor,
            parameters,
            buffers,
            precision,
            sync_norm,
            size,
            embedding,
            pooled,
        })
    }

    /// The network with layers that compute in `precision`.
    pub fn with_precision(self, precision: Precision) -> Network {
        Network { precision, ..self }
    }

    /// The same network for images of another side, with the same weights; `None` where its layers depend on the side.
    pub fn with_side(&self, size: usize) -> Option<Network> {
        match &self.body {
            Body::ResNet(_) => Some(Network { size, ..self.clone() }),
            Body::AlexNet(_) => (size == self.size).then(|| self.clone()),
        }
    }

    /// Number of trained parameters.
    pub fn parameter_count(&self) -> usize {
        self.parameters.iter().map(Spec::len).sum()
    }

    /// Number of outputs of all convolutions for one image.
    pub fn map_floats(&self) -> usize {
        match &self.body {
            Body::ResNet(net) => net.map_floats(self.size),
            Body::AlexNet(net) => net.map_floats(self.size),
        }
    }

    /// Channels of every layer with batch norm.
    pub fn norm_channels(&self) -> Vec<usize> {
        self.buffers.iter().filter(|spec| spec.name.ends_with("running_mean")).map(Spec::len).collect()
    }

    /// Names of the arrays of the head.
    pub fn head_names(&self) -> Vec<String> {
        let names = |layer: &layers::Linear| [layer.weight, layer.bias].map(|i| self.parameters[i].name.clone());
        let hidden = self.hidden.iter().flat_map(|layer| layer.names(&self.parameters, &self.buffers));
        let predictor = self
            .predictor
            .iter()
            .flat_map(|(hidden, last)| hidden.names(&self.parameters, &self.buffers).into_iter().chain(names(last)));
        hidden.chain(self.head.iter().flat_map(names)).chain(predictor).collect()
    }

    /// Initial weights, a function of the seed alone.
    pub fn init(&self, seed: u64) -> Weights {
        Weights::init(&self.parameters, &self.buffers, seed)
    }

    /// The weights as arrays by name, for files.
    pub fn arrays(&self, weights: &Weights) -> BTreeMap<String, Array> {
        self.named(weights).into_iter().map(|n| (n.name, Array::F32(n.shape, n.values))).collect()
    }

    /// The weights as named arrays: parameters first, then batch-norm buffers.
    pub fn named(&self, weights: &Weights) -> Vec<Named> {
        weights.named(&self.parameters, &self.buffers)
    }

    /// The reverse of [`named`](Self::named); every array must be present with its shape. Other arrays are ignored.
    pub fn from_named(&self, named: &[Named]) -> Result<Weights> {
        Weights::from_named(&self.parameters, &self.buffers, named)
    }

    fn tensor(&self, batch: Batch) -> Tensor<4> {
        let data = TensorData::new(batch.pixels, [batch.rows, self.size, self.size, 3]);
        kernels::cast(Tensor::from_data(data, &Device::flex()), self.precision)
    }

    /// Pooled features of a batch, in f32; `on_map` is called with every layer's index and map,
    /// which is in the network's precision.
    fn forward_body(&self, pass: &Pass, x: Tensor<4>, on_map: &mut dyn FnMut(usize, &Tensor<4>)) -> Tensor<2> {
        match &self.body {
            Body::ResNet(net) => net.forward(pass, x, on_map),
            Body::AlexNet(net) => net.forward(pass, x, on_map),
        }
    }

    /// Features of a batch, all but maps.
    fn forward(&self, pass: &Pass, x: Tensor<4>, kind: FeatureKind) -> Tensor<2> {
        assert!(!matches!(kind, FeatureKind::Map(_) | FeatureKind::Whitened), "these are made from what this gives");
        let mut v = self.forward_body(pass, x, &mut |_, _| ());
        if kind == FeatureKind::Pooled {
            return v;
        }
        let normed = |layer: &layers::ConvBn, v: Tensor<2>| {
            let [b, d] = v.dims();
            conv_bn(pass, layer, v.reshape([b, 1, 1, d]), None).reshape([b as i32, -1])
        };
        if let Some(layer) = &self.hidden {
            v = normed(layer, v);
        }
        for (i, layer) in self.head.iter().enumerate() {
            let x = if i == 0 { v } else { rectified(v) };
            v = linear(pass, layer, x); // [b, d]
        }
        if kind == FeatureKind::RawEmbedding {
            return v;
        }
        if let Some((hidden, last)) = self.predictor.as_ref().filter(|_| kind == FeatureKind::Prediction) {
            v = linear(pass, last, normed(hidden, v));
        }
        let length = (v.clone() * v.clone()).sum_dim(1).sqrt().clamp_min(1e-12);
        v / length
    }

    /// Names of the layers whose maps are available, in the order of the network.
    pub fn layers(&self) -> Vec<String> {
        let (name, count) = match &self.body {
            Body::ResNet(_) => ("layer", 4),
            Body::AlexNet(_) => ("conv", 5),
        };
        (1..=count).map(|i| format!("{name}{i}")).collect()
    }

    /// Inference: the maps of the layers with these indices in [`layers`](Self::layers).
    pub fn maps(&self, weights: &Weights, batch: &Batch, places: &[usize]) -> Vec<Maps> {
        let blocks = self.by_block(batch, |block| {
            let mut found = vec![Maps::default(); places.len()];
            self.forward_body(&Pass::inference(weights), self.tensor(block), &mut |place, map| {
                for (i, _) in places.iter().enumerate().filter(|(_, p)| **p == place) {
                    let [rows, height, width, channels] = map.dims();
                    let map = kernels::cast(map.clone(), Precision::F32);
                    found[i] = Maps { rows, height, width, channels, values: weights::to_vec(map.into_data()) };
                }
            });
            found
        });
        let mut all = vec![Maps::default(); places.len()];
        for block in blocks {
            for (all, part) in all.iter_mut().zip(block) {
                let values = [std::mem::take(&mut all.values), part.values].concat();
                *all = Maps { rows: all.rows + part.rows, values, ..part };
            }
        }
        all
    }

    /// Inference of anything but maps: batch norm uses its running statistics.
    pub(super) fn vectors(&self, weights: &Weights, batch: &Batch, kind: FeatureKind) -> Matrix {
        if let Some(combination) = weights.combination().filter(|_| kind == FeatureKind::Embedding) {
            return combination.embed(self, weights, batch);
        }
        if kind == FeatureKind::Whitened {
            return self.whitened(weights, batch);
        }
        let blocks = self.by_block(batch, |block| {
            to_features(self.forward(&Pass::inference(weights), self.tensor(block), kind)).values
        });
        Matrix { rows: batch.rows, dim: self.dim(kind), values: blocks.concat() }
    }

    /// Length of the features, all but those of maps.
    pub(crate) fn dim(&self, kind: FeatureKind) -> usize {
        if kind == FeatureKind::Pooled { self.pooled } else { self.embedding }
    }

    /// Runs inference in blocks of images, whose maps fit into one core's cache; the result of a block does not depend on the
    /// others.
    fn by_block<T: Send>(&self, batch: &Batch, infer: impl Fn(Batch) -> T + Sync) -> Vec<T> {
        let image = self.size * self.size * 3;
        // A second view in a row is not the network's.
        let row = (batch.pixels.len() / batch.rows.max(1)).max(image).max(1);
        let own = |pixels: &[f32]| pixels.chunks_exact(row).flat_map(|row| &row[..image]).copied().collect();
        let block = |pixels: &[f32]| infer(Batch { rows: pixels.len() / row, pixels: own(pixels) });
        batch.pixels.par_chunks(BLOCK * row).map(block).collect()
    }

    /// Embeddings of a batch with its batch-norm statistics, as in training, but without gradients: each part of
    /// the batch has its own statistics, which are also returned.
    pub fn encode(
        &self,
        weights: &Weights,
        batch: Batch,
        share: impl Into<BatchShare>,
        dropout: DropoutKey,
    ) -> (Matrix, Vec<layers::Moments>) {
        let share = share.into();
        let pass = Pass::training(weights, share.clone(), self.sync_norm, dropout);
        let v = self.forward(&pass, Tensor::from_inner(self.tensor(batch)), FeatureKind::Embedding);
        (share.gathered(to_features(v.inner())), self.agreed(&share, pass.into_moments()))
    }

    /// Training: forward of all views at once, with batch-norm statistics per part of the batch (a view, where nothing else is said); `loss`
    /// returns its report and its gradient by the features, from which those by the weights follow. Of a batch that several processes
    /// share, `batch` has the rows of this one; the loss sees all, and gradients are those of all.
    ///
    /// # Panics
    /// For maps: they are not trained.
    pub fn step<L>(
        &self,
        weights: &Weights,
        batch: Batch,
        share: impl Into<BatchShare>,
        dropout: DropoutKey,
        kind: FeatureKind,
        loss: impl FnOnce(&Matrix) -> (L, Vec<f32>),
    ) -> Step<L> {
        let share = share.into();
        let pass = Pass::training(weights, share.clone(), self.sync_norm, dropout);
        let v = self.forward(&pass, Tensor::from_inner(self.tensor(batch)), kind);
        let own = to_features(v.clone().inner());
        let (rows, features) = (own.rows, share.gathered(own));
        let (loss, gradient) = loss(&features);
        // The loss is linear in v around here: its gradient as a constant, times v, has the same derivative.
        let gradient = TensorData::new(share.own_values(gradient, features.dim), [rows, features.dim]);
        let gradient = Tensor::<2>::from_inner(Tensor::from_data(gradient, &Device::flex()));
        let mut found = (v * gradient).sum().backward();
        let gradients = summed(&share, pass.gradients(&mut found));
        Step { loss, features, gradients, moments: self.agreed(&share, pass.into_moments()) }
    }

    /// Moments that all processes agree on: where each has those of its own rows, their mean by the number of rows.
    fn agreed(&self, share: &BatchShare, mut moments: Vec<layers::Moments>) -> Vec<layers::Moments> {
        if let Some(team) = share.team().filter(|_| !self.sync_norm) {
            layers::mean_moments(team, &mut moments);
        }
        moments
    }
}

/// The gradients of all processes, added up.
fn summed(share: &BatchShare, gradients: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
    let Some(team) = share.team() else { return gradients };
    let parts: Vec<Vec<f32>> = gradients.into_iter().map(|g| weights::to_vec(g.into_data())).collect();
    let mut all = parts.concat();
    team.all_reduce(&mut all);
    let mut rest = &all[..];
    let part = |old: Vec<f32>| {
        let (part, after) = rest.split_at(old.len());
        rest = after;
        weights::flat(part.to_vec())
    };
    parts.into_iter().map(part).collect()
}

pub(super) fn to_features(t: Tensor<2>) -> Matrix {
    let [rows, dim] = t.dims();
    Matrix { rows, dim, values: weights::to_vec(t.into_data()) }
}

#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod tests;
