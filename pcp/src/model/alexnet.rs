//! AlexNet: the paper's for 224-px images, and a small variant for CPUs.

use super::Network;
use super::graph::{Graph, Op};
use super::layers::{Builder, ConvBn, ConvSpec, Linear, Pass, conv_bn, dropout, linear, rectified};
use super::weights::Init;
use crate::config::{Arch, Precision};
use burn::tensor::Tensor;
use kernels::Conv;

/// The sizes of a variant.
pub struct Variant {
    /// Channels, kernel, stride and padding of the five convolutions.
    convs: [[usize; 4]; 5],
    /// Size of the max-pools of stride 2 after convolutions 1, 2 and 5.
    pool: usize,
    /// Length of the two hidden layers.
    hidden: usize,
    /// Dropout and biases (the paper's) or batch norm in the hidden layers.
    dropout: bool,
    /// The side of images that it is meant for.
    pub usual_size: usize,
    /// The smallest side of images that it can take.
    pub least_size: usize,
}

/// The variant for images of about 32 px.
pub const SMALL: Variant = Variant {
    convs: [[64, 3, 1, 1], [192, 3, 1, 1], [384, 3, 1, 1], [256, 3, 1, 1], [256, 3, 1, 1]],
    pool: 2,
    hidden: 1024,
    dropout: false,
    usual_size: 32,
    least_size: 8,
};

/// The paper's variant.
pub const LARGE: Variant = Variant {
    convs: [[96, 11, 4, 2], [256, 5, 1, 2], [384, 3, 1, 1], [384, 3, 1, 1], [256, 3, 1, 1]],
    pool: 3,
    hidden: 4096,
    dropout: true,
    usual_size: 224,
    least_size: 63,
};

/// AlexNet without its last layer.
#[derive(Clone, Debug)]
pub struct AlexNet {
    convs: Vec<ConvBn>,
    pool: usize,
    hidden: Hidden,
}

#[derive(Clone, Debug)]
enum Hidden {
    Dropout([Linear; 2]),
    Norm([ConvBn; 2]),
}

/// Initial values of the layer after the body.
pub fn head_init(arch: Arch) -> Init {
    if arch == Arch::Alexnet224 { Init::Normal(0.01) } else { Init::Uniform }
}

/// Whether a max-pool follows convolution `i`.
fn pooled(i: usize) -> bool {
    matches!(i, 0 | 1 | 4)
}

impl AlexNet {
    /// Channels scale with `width`, which is 64 for the variant's own; `None` if images of `size` px are too small.
    pub fn new(build: &mut Builder, variant: &Variant, width: usize, size: usize) -> Option<(AlexNet, usize)> {
        let scaled = |channels: usize| (channels * width).div_ceil(64);
        let (mut side, mut from) = (size, 3);
        let mut convs = Vec::new();
        // Indices in torchvision's sequence: convolution, norm, ReLU and perhaps a pool.
        let mut place = 0;
        for (i, &[to, kernel, stride, padding]) in variant.convs.iter().enumerate() {
            let to = scaled(to);
            let (name, norm) = (format!("features.{place}"), format!("features.{}", place + 1));
            let init = match variant.dropout {
                true => Init::Normal((2.0 / (kernel * kernel * to) as f32).sqrt()),
                false => Init::Uniform,
            };
            convs.push(build.conv_bn(ConvSpec {
                name: &name,
                norm: &norm,
                shape: [to, from, kernel, kernel],
                conv: Conv { stride, padding, relu: true },
                init,
                bias: variant.dropout,
                flat: false,
            }));
            side = (side + 2 * padding).checked_sub(kernel)? / stride + 1;
            place += 3;
            if pooled(i) {
                side = side.checked_sub(variant.pool)? / 2 + 1;
                place += 1;
            }
            from = to;
        }
        let (flat, hidden) = (from * side * side, scaled(variant.hidden));
        let hidden_layers = if variant.dropout {
            Hidden::Dropout([
                build.linear("classifier.1", flat, hidden, Init::Normal(0.01)),
                build.linear("classifier.4", hidden, hidden, Init::Normal(0.01)),
            ])
        } else {
            let mut layer = |name, norm, from| {
                build.conv_bn(ConvSpec {
                    name,
                    norm,
                    shape: [hidden, from, 1, 1],
                    conv: Conv { stride: 1, padding: 0, relu: true },
                    init: Init::Uniform,
                    bias: false,
                    flat: true,
                })
            };
            Hidden::Norm([layer("classifier.0", "classifier.1", flat), layer("classifier.3", "classifier.4", hidden)])
        };
        Some((AlexNet { convs, pool: variant.pool, hidden: hidden_layers }, hidden))
    }

    /// Number of outputs of all convolutions for one image of `side` px.
    pub fn map_floats(&self, mut side: usize) -> usize {
        let mut floats = 0;
        for (i, conv) in self.convs.iter().enumerate() {
            floats += conv.floats(side);
            side = conv.side(side);
            if pooled(i) {
                side = (side - self.pool) / 2 + 1;
            }
        }
        floats
    }

    /// `[b, h, w, 3]` to `[b, hidden]`; `on_map` is called with the map after each of the five convolutions.
    pub fn forward(&self, pass: &Pass, mut x: Tensor<4>, on_map: &mut dyn FnMut(usize, &Tensor<4>)) -> Tensor<2> {
        for (i, conv) in self.convs.iter().enumerate() {
            x = conv_bn(pass, conv, x, None);
            on_map(i, &x);
            if pooled(i) {
                x = kernels::max_pool(x, self.pool, 2, 0);
            }
        }
        let [b, h, w, c] = x.dims();
        // torchvision flattens channels first.
        let x = x.permute([0, 3, 1, 2]).reshape([b, c * h * w]);
        let f32 = |x| kernels::cast(x, Precision::F32);
        match &self.hidden {
            Hidden::Dropout([first, second]) => {
                let x = rectified(linear(pass, first, dropout(pass, 0, f32(x))));
                rectified(linear(pass, second, dropout(pass, 1, x)))
            }
            Hidden::Norm([first, second]) => {
                let x = conv_bn(pass, first, x.reshape([b, 1, 1, c * h * w]), None);
                let x = conv_bn(pass, second, x, None);
                let k = x.dims()[3];
                f32(x.reshape([b, k]))
            }
        }
    }

    /// Adds its operations to `graph`; returns the value of the output.
    pub fn graph(&self, network: &Network, graph: &mut Graph) -> usize {
        let mut x = 0;
        for (i, conv) in self.convs.iter().enumerate() {
            x = network.conv_op(graph, conv, x, None);
            if pooled(i) {
                x = graph.push(Op::MaxPool { size: self.pool, stride: 2, padding: 0 }, &[x]);
            }
        }
        x = graph.push(Op::Flatten, &[x]);
        match &self.hidden {
            Hidden::Dropout(layers) => layers.iter().fold(x, |x, layer| {
                let x = network.linear_op(graph, layer, x);
                graph.push(Op::Relu, &[x])
            }),
            Hidden::Norm(layers) => layers.iter().fold(x, |x, layer| network.conv_op(graph, layer, x, None)),
        }
    }
}
