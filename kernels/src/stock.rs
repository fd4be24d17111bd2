//! Every layer in Burn's own operations: what runs on devices without kernels of ours, and the oracle of their tests.

use crate::{BN_EPS, Conv, Normalised, Precision, Sgd, precision};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::module;
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};

/// `[b, h, w, c]` convolved to `[b, oh, ow, k]`; Burn's convolution wants channels first.
fn convolve(x: Tensor<4>, weight: Tensor<4>, conv: Conv) -> Tensor<4> {
    let options = ConvOptions::new([conv.stride; 2], [conv.padding; 2], [1, 1], 1);
    module::conv2d(x.permute([0, 3, 1, 2]), weight, None, options).permute([0, 2, 3, 1])
}

/// Adds the residual and applies the ReLU, where there are any.
fn finish(y: Tensor<4>, residual: Option<Tensor<4>>, conv: Conv) -> Tensor<4> {
    let y = match residual {
        Some(r) => y + r,
        None => y,
    };
    if conv.relu { relu(y) } else { y }
}

/// See [`crate::cast`].
pub fn cast<const D: usize>(x: Tensor<D>, to: Precision) -> Tensor<D> {
    x.cast(to.dtype())
}

/// See [`crate::conv_bn`]. Layers calculate in f32; only input and output are of the input's precision.
pub fn conv_bn(
    x: Tensor<4>,
    weight: Tensor<4>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    residual: Option<Tensor<4>>,
    views: usize,
    conv: Conv,
) -> Normalised {
    let of = precision(&x);
    let residual = residual.map(|r| cast(r, Precision::F32));
    let z = convolve(cast(x, Precision::F32), weight, conv);
    let [b, h, w, k] = z.dims();
    let z = z.reshape([views, b / views * h * w, k]);
    let mean = z.clone().mean_dim(1); // [views, 1, k]
    let centred = z - mean.clone();
    let variance = (centred.clone() * centred.clone()).mean_dim(1);
    let scale = gamma.reshape([1, 1, k]) / (variance.clone() + BN_EPS).sqrt();
    let y = (centred * scale + beta.reshape([1, 1, k])).reshape([b, h, w, k]);
    Normalised {
        output: cast(finish(y, residual, conv), of),
        mean: mean.inner().reshape([views, k]),
        variance: variance.inner().reshape([views, k]),
    }
}

/// See [`crate::conv_affine`].
pub fn conv_affine(
    x: Tensor<4>,
    weight: Tensor<4>,
    scale: Tensor<1>,
    shift: Tensor<1>,
    residual: Option<Tensor<4>>,
    conv: Conv,
) -> Tensor<4> {
    let k = scale.dims()[0];
    let of = precision(&x);
    let residual = residual.map(|r| cast(r, Precision::F32));
    let weight = weight * scale.reshape([k, 1, 1, 1]);
    let y = convolve(cast(x, Precision::F32), weight, conv) + shift.reshape([1, 1, 1, k]);
    cast(finish(y, residual, conv), of)
}

/// See [`crate::max_pool`].
pub fn max_pool(x: Tensor<4>, size: usize, stride: usize, padding: usize) -> Tensor<4> {
    let options = MaxPoolOptions::new([size; 2]).with_stride([stride; 2]).with_padding([padding; 2]);
    module::max_pool2d(x.permute([0, 3, 1, 2]), options).permute([0, 2, 3, 1])
}

/// See [`crate::mean_pool`].
pub fn mean_pool(x: Tensor<4>) -> Tensor<2> {
    let [b, h, w, c] = x.dims();
    x.reshape([b, h * w, c]).mean_dim(1).reshape([b, c])
}

/// See [`crate::sgd()`].
pub fn sgd(weight: Tensor<1>, gradient: Tensor<1>, velocity: Tensor<1>, step: Sgd) -> (Tensor<1>, Tensor<1>) {
    let g = gradient + weight.clone() * step.decay;
    let velocity = velocity * step.momentum + g.clone();
    let move_by = if step.nesterov { g + velocity.clone() * step.momentum } else { velocity.clone() };
    (weight - move_by * step.lr, velocity)
}
