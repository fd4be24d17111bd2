//! ResNet18 (He et al. 2016): four stages of two basic blocks.

use super::Network;
use super::graph::{Graph, Op};
use super::layers::{Builder, ConvBn, ConvSpec, Pass, conv_bn};
use super::weights::Init;
use crate::config::Stem;
use burn::tensor::Tensor;
use kernels::Conv;

/// ResNet18 without its last layer.
#[derive(Clone, Debug)]
pub struct ResNet {
    stem: ConvBn,
    /// Whether a 3x3 max-pool of stride 2 follows the stem.
    pool: bool,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
struct Block {
    first: ConvBn,
    second: ConvBn,
    shortcut: Option<ConvBn>,
}

/// Whether images of `size` px get the 7x7 stem of stride 2.
pub fn large_stem(stem: Stem, size: usize) -> bool {
    match stem {
        Stem::Auto => size > 64,
        Stem::Small => false,
        Stem::Large => true,
    }
}

fn layer(build: &mut Builder, name: &str, norm: &str, [to, from, k]: [usize; 3], stride: usize, relu: bool) -> ConvBn {
    build.conv_bn(ConvSpec {
        name,
        norm,
        shape: [to, from, k, k],
        conv: Conv { stride, padding: k / 2, relu },
        init: Init::Uniform,
        bias: false,
        flat: false,
    })
}

impl ResNet {
    /// Stages of `width`, 2, 4 and 8 times as many channels; returns the network and the length of its output.
    pub fn new(build: &mut Builder, width: usize, large: bool) -> (ResNet, usize) {
        let (kernel, stride) = if large { (7, 2) } else { (3, 1) };
        let stem = layer(build, "conv1", "bn1", [width, 3, kernel], stride, true);
        let mut blocks = Vec::new();
        let mut from = width;
        for stage in 0..4 {
            let to = width << stage;
            for index in 0..2 {
                let name = format!("layer{}.{index}", stage + 1);
                let stride = if index == 0 && stage > 0 { 2 } else { 1 };
                let conv = |i: usize| (format!("{name}.conv{i}"), format!("{name}.bn{i}"));
                let ((c1, b1), (c2, b2)) = (conv(1), conv(2));
                let first = layer(build, &c1, &b1, [to, from, 3], stride, true);
                // The block's last ReLU comes after the shortcut is added: `conv_bn` does both.
                let second = layer(build, &c2, &b2, [to, to, 3], 1, true);
                let shortcut = (stride != 1 || from != to).then(|| {
                    let (conv, norm) = (format!("{name}.downsample.0"), format!("{name}.downsample.1"));
                    layer(build, &conv, &norm, [to, from, 1], stride, false)
                });
                blocks.push(Block { first, second, shortcut });
                from = to;
            }
        }
        (ResNet { stem, pool: large, blocks }, from)
    }

    /// Number of outputs of all convolutions for one image of `side` px.
    pub fn map_floats(&self, side: usize) -> usize {
        let mut floats = self.stem.floats(side);
        let mut side = self.stem.side(side);
        if self.pool {
            side = side.div_ceil(2);
        }
        for block in &self.blocks {
            floats += block.first.floats(side) + block.shortcut.as_ref().map_or(0, |s| s.floats(side));
            side = block.first.side(side);
            floats += block.second.floats(side);
        }
        floats
    }

    /// The same weights with a stem that halves the image twice, also for networks trained on small images.
    pub fn halving(self) -> ResNet {
        ResNet { stem: self.stem.with_stride(2), pool: true, ..self }
    }

    /// The stem: `[b, h, w, 3]` to `[b, h', w', width]`.
    pub fn stem(&self, pass: &Pass, x: Tensor<4>) -> Tensor<4> {
        let x = conv_bn(pass, &self.stem, x, None);
        if self.pool { kernels::max_pool(x, 3, 2, 1) } else { x }
    }

    /// The two blocks of stage `stage`, from 0.
    pub fn stage(&self, pass: &Pass, stage: usize, mut x: Tensor<4>) -> Tensor<4> {
        for block in &self.blocks[2 * stage..2 * stage + 2] {
            let y = conv_bn(pass, &block.first, x.clone(), None);
            let shortcut = match &block.shortcut {
                Some(layer) => conv_bn(pass, layer, x, None),
                None => x,
            };
            x = conv_bn(pass, &block.second, y, Some(shortcut));
        }
        x
    }

    /// `[b, h, w, 3]` to `[b, 8 width]`; `on_map` is called with the map after each of the four stages.
    pub fn forward(&self, pass: &Pass, x: Tensor<4>, on_map: &mut dyn FnMut(usize, &Tensor<4>)) -> Tensor<2> {
        let mut x = self.stem(pass, x);
        for stage in 0..4 {
            x = self.stage(pass, stage, x);
            on_map(stage, &x);
        }
        kernels::mean_pool(x)
    }

    /// Adds its operations to `graph`; returns the value of the output.
    pub fn graph(&self, network: &Network, graph: &mut Graph) -> usize {
        let mut x = network.conv_op(graph, &self.stem, 0, None);
        if self.pool {
            x = graph.push(Op::MaxPool { size: 3, stride: 2, padding: 1 }, &[x]);
        }
        for block in &self.blocks {
            let y = network.conv_op(graph, &block.first, x, None);
            let shortcut = block.shortcut.as_ref().map_or(x, |layer| network.conv_op(graph, layer, x, None));
            x = network.conv_op(graph, &block.second, y, Some(shortcut));
        }
        graph.push(Op::MeanPool, &[x])
    }
}
