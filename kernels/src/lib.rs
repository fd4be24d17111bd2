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
//!
//! Layers work in f32 or bf16, see [`Precision`] and [`cast`].

// Vector instructions and writes from many threads are what this crate is for.
#![allow(unsafe_code)]

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
mod number;
mod pool;
mod sgd;
mod simd;
pub mod stock;
#[cfg(test)]
mod twin;
mod winograd;

pub use bank::{BankSoftmax, bank_softmax};
pub use gemm::rate as gemm_rate;
pub use level::{Level, Precision, bf16_supported, force_level, level};

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Tensor};
use extension::{Kernels, Residual};
use std::fmt::Debug;
use std::sync::Arc;

/// Whether our kernels can take a tensor: f32 or bf16 on Flex, with or without autodiff.
fn ours<const D: usize>(x: &Tensor<D>) -> bool {
    matches!(x.dtype(), DType::F32 | DType::BF16) && x.device() == Device::flex()
}

/// The residual as an argument of the extension, in the precision of the layer's input.
fn argument(residual: Option<Tensor<4>>, x: &Tensor<4>) -> Residual<Dispatch> {
    residual.map_or(Residual::None, |r| Residual::Add(cast(r, precision(x)).into_dispatch()))
}

/// The precision of a tensor's numbers.
pub fn precision<const D: usize>(x: &Tensor<D>) -> Precision {
    if x.dtype() == DType::BF16 { Precision::Bf16 } else { Precision::F32 }
}

/// The tensor in this precision; gradients come back in the precision that `x` has.
///
/// This is where a network's precision is chosen: a layer works in the precision of its input, and its output has it too.
/// Cast the images before the first layer, and a map back to f32 before it meets operations other than this crate's.
pub fn cast<const D: usize>(x: Tensor<D>, to: Precision) -> Tensor<D> {
    if precision(&x) == to {
        return x;
    }
    if !ours(&x) {
        return stock::cast(x, to);
    }
    Tensor::from_dispatch(Dispatch::kernel_cast(x.into_dispatch(), to))
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

/// Processes that each have a part of a batch.
pub trait Across: Debug + Send + Sync {
    /// Replaces every value by its sum over the processes, the same bits in all of them.
    fn sum(&self, values: &mut [f64]);
}

/// What the statistics of a batch norm are taken over.
#[derive(Clone, Debug)]
pub struct Batches {
    /// Equal parts of the batch, one after the other: each is normalised with its own mean and variance.
    pub views: usize,
    /// Processes with other rows of every part, whose statistics are those of all rows together. All of them make the same layers in
    /// the same order.
    pub across: Option<Arc<dyn Across>>,
}

impl From<usize> for Batches {
    fn from(views: usize) -> Self {
        Batches { views, across: None }
    }
}

/// `relu?(batch_norm(conv(x, weight)) * gamma + beta + residual)` with the statistics of `batches`.
///
/// Gradients flow into `x`, `weight`, `gamma`, `beta` and `residual`; those by the parameters are of this process's rows alone.
///
/// # Panics
/// With several processes on a device other than Flex.
pub fn conv_bn(
    x: Tensor<4>,
    weight: Tensor<4>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    residual: Option<Tensor<4>>,
    batches: impl Into<Batches>,
    conv: Conv,
) -> Normalised {
    let batches = batches.into();
    if !ours(&x) {
        assert!(batches.across.is_none(), "several processes share batches on Burn's Flex device alone");
        return stock::conv_bn(x, weight, gamma, beta, residual, batches.views, conv);
    }
    let residual = argument(residual, &x);
    let (output, mean, variance) = Dispatch::kernel_conv_bn(
        x.into_dispatch(),
        weight.into_dispatch(),
        gamma.into_dispatch(),
        beta.into_dispatch(),
        residual,
        batches,
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
    let residual = argument(residual, &x);
    Tensor::from_dispatch(Dispatch::kernel_conv_affine(
        x.into_dispatch(),
        weight.into_dispatch(),
        scale.into_dispatch(),
        shift.into_dispatch(),
        residual,
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

/// Mean over height and width: `[b, h, w, c]` to `[b, c]`, in f32 whatever the precision of the map.
pub fn mean_pool(x: Tensor<4>) -> Tensor<2> {
    stock::mean_pool(cast(x, Precision::F32))
}

/// One step of SGD with weight decay and momentum on flat tensors without gradient tracking:
/// `g' = g + decay w; velocity' = momentum velocity + g'; w' = w - lr (g' + momentum velocity' if nesterov else
/// velocity')`. Returns `(w', velocity')`. A fresh velocity is zero, as in PyTorch.
pub fn sgd(weight: Tensor<1>, gradient: Tensor<1>, velocity: Tensor<1>, step: Sgd) -> (Tensor<1>, Tensor<1>) {
    if !ours(&weight) || precision(&weight) != Precision::F32 {
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
