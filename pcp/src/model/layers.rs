//! The layers that networks are made of, on top of `kernels`.

use super::DropoutKey;
use super::weights::{Init, Spec, Weights, flat, to_vec};
use crate::data::BatchShare;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use kernels::{Across, Batches, Conv};
use pcp_core::peers::Team;
use pcp_core::rng::{Key, Purpose};
use rayon::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;

/// Sums over the processes that share a batch.
#[derive(Debug)]
struct SumsOf(Team);

impl Across for SumsOf {
    fn sum(&self, values: &mut [f64]) {
        self.0.all_reduce_few(values);
    }
}

/// Collects the arrays of a network while its layers are described.
#[derive(Default)]
pub struct Builder {
    pub parameters: Vec<Spec>,
    pub buffers: Vec<Spec>,
}

/// Convolution, batch norm and, where `conv` says so, ReLU. Fields are indices into the weights.
#[derive(Clone, Debug)]
pub struct ConvBn {
    pub(super) weight: usize,
    shape: [usize; 4],
    pub(super) bias: Option<usize>,
    pub(super) gamma: usize,
    beta: usize,
    mean: usize,
    variance: usize,
    pub(super) conv: Conv,
}

/// A convolution with a bias and, where `conv` says so, ReLU.
#[derive(Clone, Debug)]
pub struct Convolution {
    weight: usize,
    shape: [usize; 4],
    bias: usize,
    conv: Conv,
}

/// A fully connected layer.
#[derive(Clone, Debug)]
pub struct Linear {
    pub(super) weight: usize,
    shape: [usize; 2],
    pub(super) bias: usize,
}

/// Names, shape and initial values of a convolution and its batch norm.
pub struct ConvSpec<'a> {
    pub name: &'a str,
    pub norm: &'a str,
    /// `[out, in, kernel, kernel]`.
    pub shape: [usize; 4],
    pub conv: Conv,
    pub init: Init,
    pub bias: bool,
    /// Whether the weight is a matrix in files: a fully connected layer with batch norm is a 1x1 convolution here.
    pub flat: bool,
}

impl Builder {
    fn parameter(&mut self, name: String, shape: &[usize], init: Init) -> usize {
        self.parameters.push(Spec { name, shape: shape.to_vec(), init });
        self.parameters.len() - 1
    }

    fn buffer(&mut self, name: String, channels: usize, value: f32) -> usize {
        self.buffers.push(Spec { name, shape: vec![channels], init: Init::Constant(value) });
        self.buffers.len() - 1
    }

    pub fn conv_bn(&mut self, spec: ConvSpec) -> ConvBn {
        let ConvSpec { name, norm, shape, conv, init, bias, flat } = spec;
        let k = shape[0];
        let in_file: &[usize] = if flat { &shape[..2] } else { &shape };
        ConvBn {
            weight: self.parameter(format!("{name}.weight"), in_file, init),
            shape,
            bias: bias.then(|| self.parameter(format!("{name}.bias"), &[k], Init::Constant(0.0))),
            gamma: self.parameter(format!("{norm}.weight"), &[k], Init::Constant(1.0)),
            beta: self.parameter(format!("{norm}.bias"), &[k], Init::Constant(0.0)),
            mean: self.buffer(format!("{norm}.running_mean"), k, 0.0),
            variance: self.buffer(format!("{norm}.running_var"), k, 1.0),
            conv,
        }
    }

    pub fn convolution(&mut self, name: &str, shape: [usize; 4], relu: bool, init: Init) -> Convolution {
        Convolution {
            weight: self.parameter(format!("{name}.weight"), &shape, init),
            shape,
            bias: self.parameter(format!("{name}.bias"), &[shape[0]], Init::Constant(0.0)),
            conv: Conv { stride: 1, padding: shape[2] / 2, relu },
        }
    }

    pub fn linear(&mut self, name: &str, from: usize, to: usize, init: Init) -> Linear {
        let bias = if init == Init::Uniform { Init::UniformBias(from) } else { Init::Constant(0.0) };
        Linear {
            weight: self.parameter(format!("{name}.weight"), &[to, from], init),
            shape: [to, from],
            bias: self.parameter(format!("{name}.bias"), &[to], bias),
        }
    }
}

impl ConvBn {
    /// Names of its arrays.
    pub fn names(&self, parameters: &[Spec], buffers: &[Spec]) -> Vec<String> {
        let learned = [Some(self.weight), self.bias, Some(self.gamma), Some(self.beta)];
        let learned = learned.into_iter().flatten().map(|i| &parameters[i]);
        learned.chain([self.mean, self.variance].map(|i| &buffers[i])).map(|spec| spec.name.clone()).collect()
    }

    /// The same weights with another stride.
    pub fn with_stride(mut self, stride: usize) -> ConvBn {
        self.conv.stride = stride;
        self
    }

    /// Side of the output for an input of `side`.
    pub fn side(&self, side: usize) -> usize {
        (side + 2 * self.conv.padding).saturating_sub(self.shape[2]) / self.conv.stride + 1
    }

    /// Numbers in the output for an input of `side`.
    pub fn floats(&self, side: usize) -> usize {
        self.side(side).pow(2) * self.shape[0]
    }
}

/// Batch statistics of one layer and view.
#[derive(Clone, Debug)]
pub struct Moments {
    pub(super) mean_buffer: usize,
    pub(super) variance_buffer: usize,
    pub(super) mean: Vec<f32>,
    pub(super) variance: Vec<f32>,
    pub(super) count: usize,
}

/// Replaces moments of every process's own rows by their mean over the processes, by the number of rows.
pub fn mean_moments(team: &Team, moments: &mut [Moments]) {
    let of = |m: &Moments| {
        let values = m.mean.iter().chain(&m.variance).map(|x| f64::from(*x) * m.count as f64);
        std::iter::once(m.count as f64).chain(values).collect::<Vec<_>>()
    };
    let mut sums: Vec<f64> = moments.iter().flat_map(of).collect();
    team.all_reduce_few(&mut sums);
    let mut next = sums.into_iter();
    for m in moments {
        let count = next.next().unwrap_or(1.0);
        m.count = count as usize;
        m.mean.iter_mut().chain(&mut m.variance).zip(&mut next).for_each(|(x, sum)| *x = (sum / count) as f32);
    }
}

/// One forward pass through the network.
pub struct Pass<'a> {
    weights: &'a Weights,
    training: Option<Training>,
}

struct Training {
    /// The parameters as leaves of the gradient graph.
    leaves: Vec<Tensor<1>>,
    /// Whether batch norm is frozen: it uses running statistics, and its parameters get no gradient.
    frozen: bool,
    /// The rows of the batch that this process has.
    share: BatchShare,
    /// The processes whose rows count in the statistics of batch norm.
    across: Option<Arc<dyn Across>>,
    dropout: DropoutKey,
    moments: RefCell<Vec<Moments>>,
}

impl<'a> Pass<'a> {
    pub fn inference(weights: &'a Weights) -> Self {
        Pass { weights, training: None }
    }

    /// Training on this process's `share` of a batch; batch norm has the statistics of all processes, where it is `across` them.
    pub fn training(weights: &'a Weights, share: BatchShare, across: bool, dropout: DropoutKey) -> Self {
        let leaves = weights.parameters.iter().map(|p| Tensor::from_inner(p.clone()).require_grad()).collect();
        let across = share.team().filter(|_| across).map(|team| Arc::new(SumsOf(team.clone())) as Arc<dyn Across>);
        let moments = RefCell::default();
        Pass { weights, training: Some(Training { leaves, frozen: false, share, across, dropout, moments }) }
    }

    /// Batch norm is frozen, and only the parameters in `learns` get gradients.
    pub fn fine_tuning(weights: &'a Weights, learns: &[bool]) -> Self {
        let leaf = |(p, learns): (&Tensor<1>, &bool)| {
            let leaf = Tensor::from_inner(p.clone());
            if *learns { leaf.require_grad() } else { leaf }
        };
        let leaves = weights.parameters.iter().zip(learns).map(leaf).collect();
        let key = Key { purpose: Purpose::Dropout, seed: 0, round: 0, epoch: 0 };
        let dropout = DropoutKey { key, ids: Vec::new() };
        let (share, moments) = (1.into(), RefCell::default());
        Pass { weights, training: Some(Training { leaves, frozen: true, share, across: None, dropout, moments }) }
    }

    fn parameter(&self, index: usize) -> Tensor<1> {
        match &self.training {
            Some(training) => training.leaves[index].clone(),
            None => self.weights.parameters[index].clone(),
        }
    }

    /// The gradient of every parameter; zero where there is none.
    pub fn gradients(&self, found: &mut Gradients) -> Vec<Tensor<1>> {
        let leaves = self.training.iter().flat_map(|t| &t.leaves).zip(&self.weights.parameters);
        leaves.map(|(leaf, p)| leaf.grad_remove(found).unwrap_or_else(|| p.zeros_like())).collect()
    }

    /// The gradients that exist, by the indices of the parameters.
    pub fn found(&self, found: &mut Gradients, learns: &[bool]) -> Vec<Option<Tensor<1>>> {
        let leaves = self.training.iter().flat_map(|t| &t.leaves).zip(learns);
        leaves.map(|(leaf, learns)| if *learns { leaf.grad_remove(found) } else { None }).collect()
    }

    pub fn into_moments(self) -> Vec<Moments> {
        self.training.map(|t| t.moments.into_inner()).unwrap_or_default()
    }
}

/// `relu?(batch_norm(conv(x)) + residual)`, `[b, h, w, c]` to `[b, oh, ow, k]`.
pub fn conv_bn(pass: &Pass, layer: &ConvBn, x: Tensor<4>, residual: Option<Tensor<4>>) -> Tensor<4> {
    let weight = pass.parameter(layer.weight).reshape(layer.shape);
    let Some(training) = &pass.training else {
        let (scale, shift) = folded(pass.weights, layer);
        return kernels::conv_affine(x, weight, flat(scale), flat(shift), residual, layer.conv);
    };
    if training.frozen {
        let (scale, shift) = folded(pass.weights, layer);
        let [scale, shift] = [scale, shift].map(|v| Tensor::from_inner(flat(v)));
        return kernels::conv_affine(x, weight, scale, shift, residual, layer.conv);
    }
    let (gamma, beta) = (pass.parameter(layer.gamma), pass.parameter(layer.beta));
    let (views, across) = (training.share.parts, training.across.clone());
    let several = across.is_some();
    let out = kernels::conv_bn(x, weight, gamma, beta, residual, Batches { views, across }, layer.conv);
    let [b, h, w, k] = out.output.dims();
    let (mean, variance) = (to_vec(out.mean.into_data()), to_vec(out.variance.into_data()));
    // Batch norm removes the constant that a bias adds: it only shifts the running mean.
    let bias = layer.bias.map(|bias| to_vec(pass.weights.parameters[bias].to_data()));
    let rows = if several { training.share.rows_of_part(b / views) } else { b / views };
    for view in 0..views {
        let of_view = |values: &[f32]| values[view * k..(view + 1) * k].to_vec();
        let mut mean = of_view(&mean);
        for (m, b) in mean.iter_mut().zip(bias.iter().flatten()) {
            *m += b;
        }
        training.moments.borrow_mut().push(Moments {
            mean_buffer: layer.mean,
            variance_buffer: layer.variance,
            mean,
            variance: of_view(&variance),
            count: rows * h * w,
        });
    }
    out.output
}

/// Batch norm with running statistics, as one scale and shift per channel.
fn folded(weights: &Weights, layer: &ConvBn) -> (Vec<f32>, Vec<f32>) {
    let host = |p: usize| to_vec(weights.parameters[p].to_data());
    let (gamma, beta) = (host(layer.gamma), host(layer.beta));
    let (mean, variance) = (&weights.buffers[layer.mean], &weights.buffers[layer.variance]);
    let bias = layer.bias.map_or_else(|| vec![0.0; mean.len()], host);
    let scale: Vec<f32> = gamma.iter().zip(variance).map(|(g, v)| g / (v + kernels::BN_EPS).sqrt()).collect();
    let shift = (0..scale.len()).map(|c| beta[c] + (bias[c] - mean[c]) * scale[c]).collect();
    (scale, shift)
}

/// `relu?(conv(x) + bias)`, `[b, h, w, c]` to `[b, h, w, k]`.
pub fn convolved(pass: &Pass, layer: &Convolution, x: Tensor<4>) -> Tensor<4> {
    let weight = pass.parameter(layer.weight).reshape(layer.shape);
    let ones = flat(vec![1.0; layer.shape[0]]);
    let ones = if pass.training.is_some() { Tensor::from_inner(ones) } else { ones };
    kernels::conv_affine(x, weight, ones, pass.parameter(layer.bias), None, layer.conv)
}

/// `x w^T + b`, `[b, in]` to `[b, out]`.
pub fn linear(pass: &Pass, layer: &Linear, x: Tensor<2>) -> Tensor<2> {
    let weight = pass.parameter(layer.weight).reshape(layer.shape);
    x.matmul(weight.transpose()) + pass.parameter(layer.bias).reshape([1, layer.shape[0]])
}

/// ReLU of a matrix.
pub fn rectified(x: Tensor<2>) -> Tensor<2> {
    relu(x)
}

/// In training, each value is zeroed with probability one half and doubled otherwise. The mask of a row depends on its
/// image's id, the view and the `layer`, not on the batch.
pub fn dropout(pass: &Pass, layer: u32, x: Tensor<2>) -> Tensor<2> {
    let Some(training) = &pass.training else { return x };
    let [rows, dim] = x.dims();
    let (DropoutKey { key, ids }, share) = (&training.dropout, &training.share);
    let mut mask = vec![0.0f32; rows * dim];
    mask.par_chunks_mut(dim).enumerate().for_each(|(row, mask)| {
        let row = share.row(row);
        let view = (row / ids.len()) as u32;
        let mut stream = key.stream(ids[row % ids.len()], layer * 16 + view);
        for values in mask.chunks_mut(64) {
            let bits = stream.next_u64();
            for (i, m) in values.iter_mut().enumerate() {
                *m = if bits >> i & 1 == 1 { 2.0 } else { 0.0 };
            }
        }
    });
    let mask = Tensor::<2>::from_data(TensorData::new(mask, [rows, dim]), &Device::flex());
    x * Tensor::from_inner(mask)
}
