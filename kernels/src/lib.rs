//! CPU kernels for Burn: the layers of a convolutional network, the softmax over a large bank and the optimiser step.
//!
//! Activations are `[batch, height, width, channels]` (NHWC) and weights `[out, in, kernel height, kernel width]`.
//! [`conv_bn`] is one layer of a network in training: convolution, batch norm with the statistics of each view,
//! an optional residual and an optional ReLU. [`conv_affine`] is the same layer in inference, with batch norm folded
//! into one scale and shift per channel.
//!
//! On Burn's Flex device, with or without autodiff, these run on kernels of ours, chosen for the CPU at run time
//! ([`level`]); on any other device they are Burn's own operations, with the same results up to rounding. The same bits
//! come out for any number of threads at a given level.

mod bank;
mod direct;
mod extension;
mod gemm;
#[cfg(test)]
mod guard;
mod layer;
mod level;
mod memory;
mod norm;
mod pool;
mod sgd;
mod simd;
pub mod stock;
mod winograd;

pub use bank::{BankSoftmax, bank_softmax};
pub use gemm::rate as gemm_rate;
pub use level::{Level, force_level, level};

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Tensor};
use extension::{Kernels, Residual};

/// Whether our kernels can take a tensor: f32 on Flex, with or without autodiff.
fn ours<const D: usize>(x: &Tensor<D>) -> bool {
    x.dtype() == DType::F32 && x.device() == Device::flex()
}

/// The residual as an argument of the extension.
fn argument(residual: Option<Tensor<4>>) -> Residual<Dispatch> {
    residual.map_or(Residual::None, |r| Residual::Add(r.into_dispatch()))
}

/// Batch norm's epsilon, added to the variance.
pub const BN_EPS: f32 = 1e-5;

/// The geometry of a square-strided, zero-padded convolution and whether a ReLU follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Step between windows, in both directions.
    pub stride: usize,
    /// Zeros added on every side.
    pub padding: usize,
    /// Whether `max(0, .)` ends the layer.
    pub relu: bool,
}

/// What [`conv_bn`] returns.
pub struct Normalised {
    /// The layer's output, `[b, oh, ow, k]`.
    pub output: Tensor<4>,
    /// Mean of the convolution's output per view and channel, `[views, k]`; carries no gradient.
    pub mean: Tensor<2>,
    /// Biased variance of the convolution's output per view and channel, `[views, k]`; carries no gradient.
    pub variance: Tensor<2>,
}

/// `relu?(batch_norm(conv(x, weight)) * gamma + beta + residual)` with batch statistics.
///
/// The batch is `views` equal parts one after the other, and each part is normalised with its own mean and variance.
/// Gradients flow into `x`, `weight`, `gamma`, `beta` and `residual`.
pub fn conv_bn(
    x: Tensor<4>,
    weight: Tensor<4>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    residual: Option<Tensor<4>>,
    views: usize,
    conv: Conv,
) -> Normalised {
    if !ours(&x) {
        return stock::conv_bn(x, weight, gamma, beta, residual, views, conv);
    }
    let (output, mean, variance) = Dispatch::kernel_conv_bn(
        x.into_dispatch(),
        weight.into_dispatch(),
        gamma.into_dispatch(),
        beta.into_dispatch(),
        argument(residual),
        views,
        conv,
    );
    Normalised {
        output: Tensor::from_dispatch(output),
        mean: Tensor::<2>::from_dispatch(mean).inner(),
        variance: Tensor::<2>::from_dispatch(variance).inner(),
    }
}

/// `relu?(conv(x, weight) * scale + shift + residual)`: a layer in inference.
pub fn conv_affine(
    x: Tensor<4>,
    weight: Tensor<4>,
    scale: Tensor<1>,
    shift: Tensor<1>,
    residual: Option<Tensor<4>>,
    conv: Conv,
) -> Tensor<4> {
    if !ours(&x) {
        return stock::conv_affine(x, weight, scale, shift, residual, conv);
    }
    Tensor::from_dispatch(Dispatch::kernel_conv_affine(
        x.into_dispatch(),
        weight.into_dispatch(),
        scale.into_dispatch(),
        shift.into_dispatch(),
        argument(residual),
        conv,
    ))
}

/// Maximum over `size` x `size` windows, `stride` apart, with `padding` on every side (padding never wins).
pub fn max_pool(x: Tensor<4>, size: usize, stride: usize, padding: usize) -> Tensor<4> {
    if !ours(&x) {
        return stock::max_pool(x, size, stride, padding);
    }
    Tensor::from_dispatch(Dispatch::kernel_max_pool(x.into_dispatch(), size, stride, padding))
}

/// Mean over height and width: `[b, h, w, c]` to `[b, c]`.
pub fn mean_pool(x: Tensor<4>) -> Tensor<2> {
    stock::mean_pool(x)
}

/// One step of SGD with weight decay and momentum on flat tensors without gradient tracking:
/// `g' = g + decay w; velocity' = momentum velocity + g'; w' = w - lr (g' + momentum velocity' if nesterov else
/// velocity')`. Returns `(w', velocity')`. A fresh velocity is zero, as in PyTorch.
pub fn sgd(weight: Tensor<1>, gradient: Tensor<1>, velocity: Tensor<1>, step: Sgd) -> (Tensor<1>, Tensor<1>) {
    if !ours(&weight) {
        return stock::sgd(weight, gradient, velocity, step);
    }
    let (weight, velocity) =
        Dispatch::kernel_sgd(weight.into_dispatch(), gradient.into_dispatch(), velocity.into_dispatch(), step);
    (Tensor::from_dispatch(weight), Tensor::from_dispatch(velocity))
}

/// The numbers of one optimiser step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f32,
    /// Momentum.
    pub momentum: f32,
    /// Weight decay.
    pub decay: f32,
    /// Nesterov's variant.
    pub nesterov: bool,
}
