//! The kernels as operations of Burn's Flex backend, with their gradients written by hand.

mod layer;
mod storage;

use crate::level::{Precision, at_level, at_number};
use crate::memory::{Ptr, Scratch};
use crate::number::convert;
use crate::{Batches, Conv, Sgd, pool};
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{AutodiffBackend, Backend, ExtensionType, Flex, backend_extension};
use burn::tensor::DType;
use layer::{Norm, Saved, Wanted, four};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use storage::{Stored, contiguous, numbers, small, tensor, values};

/// An optional residual; the extension macro knows enums of ours, but not `Option`.
#[derive(ExtensionType)]
pub enum Residual<B: Backend> {
    None,
    Add(FloatTensor<B>),
}

impl<B: Backend> Residual<B> {
    fn into_option(self) -> Option<FloatTensor<B>> {
        match self {
            Residual::None => None,
            Residual::Add(r) => Some(r),
        }
    }
}

/// The operations; see the functions of the same names at the crate's root.
#[backend_extension(Flex, Autodiff)]
pub trait Kernels: Backend {
    fn kernel_conv_bn(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        #[extension_type] residual: Residual<Self>,
        batches: Batches,
        conv: Conv,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    fn kernel_conv_affine(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        #[extension_type] residual: Residual<Self>,
        conv: Conv,
    ) -> FloatTensor<Self>;

    fn kernel_max_pool(x: FloatTensor<Self>, size: usize, stride: usize, padding: usize) -> FloatTensor<Self>;

    fn kernel_cast(x: FloatTensor<Self>, to: Precision) -> FloatTensor<Self>;

    fn kernel_sgd(
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        velocity: FloatTensor<Self>,
        step: Sgd,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

/// Largest of each window, with where it was.
fn pool_forward(
    x: FlexTensor,
    size: usize,
    stride: usize,
    padding: usize,
) -> (FlexTensor, pool::PoolGeometry, Vec<u16>) {
    let x = contiguous(x);
    let [b, h, w, c] = four(&x);
    let g = pool::PoolGeometry { b, h, w, c, size, stride, padding };
    let (oh, ow) = g.output();
    let mut tap = vec![0; b * oh * ow * c];
    let y = at_number!(S, E of x.dtype(), for usize::MAX => {
        let mut y = Scratch::of::<E>(tap.len());
        pool::forward::<S, E>(&g, E::values(&x), numbers(&mut y, tap.len()), &mut tap);
        tensor::<E>(y, &[b, oh, ow, c])
    });
    (y, g, tap)
}

/// The tensor in another precision, or itself.
fn cast(x: FlexTensor, to: Precision) -> FlexTensor {
    let (dims, x) = (x.layout().shape().to_vec(), contiguous(x));
    let len = dims.iter().product();
    // the instruction set of bf16 serves both directions
    at_number!(S, E of DType::BF16, for usize::MAX => match (x.dtype(), to) {
        (DType::F32, Precision::Bf16) => {
            let mut y = Scratch::of::<E>(len);
            convert::<S, f32, E>(values(&x), numbers(&mut y, len));
            tensor::<E>(y, &dims)
        }
        (DType::BF16, Precision::F32) => {
            let mut y = Scratch::new(len);
            convert::<S, E, f32>(E::values(&x), y.as_mut());
            tensor::<f32>(y, &dims)
        }
        _ => x,
    })
}

/// The precision that tensors of ours have.
fn precision(x: &FlexTensor) -> Precision {
    if x.dtype() == DType::BF16 { Precision::Bf16 } else { Precision::F32 }
}

/// The storage to update in place, if nobody else holds it, or a fresh block.
fn writable(t: &mut FlexTensor, n: usize) -> (Ptr, Option<Scratch>) {
    if t.bytes().len() == 4 * n
        && let Some(own) = t.try_storage_mut::<f32>()
    {
        return (Ptr(own.as_mut_ptr()), None);
    }
    let block = Scratch::new(n);
    (block.ptr(), Some(block))
}

impl Kernels for Flex {
    fn kernel_conv_bn(
        x: FlexTensor,
        weight: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        residual: Residual<Self>,
        batches: Batches,
        conv: Conv,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let (gamma, beta) = (contiguous(gamma), contiguous(beta));
        let norm = Norm::Batch { gamma: values(&gamma), beta: values(&beta) };
        let (views, k) = (batches.views, values(&gamma).len());
        let (y, moments, _) = layer::forward(x, weight, norm, residual.into_option(), batches, conv);
        (y, small(moments.mean, &[views, k]), small(moments.variance, &[views, k]))
    }

    fn kernel_conv_affine(
        x: FlexTensor,
        weight: FlexTensor,
        scale: FlexTensor,
        shift: FlexTensor,
        residual: Residual<Self>,
        conv: Conv,
    ) -> FlexTensor {
        layer::inference(x, weight, (scale, shift), residual.into_option(), conv)
    }

    fn kernel_max_pool(x: FlexTensor, size: usize, stride: usize, padding: usize) -> FlexTensor {
        pool_forward(x, size, stride, padding).0
    }

    fn kernel_cast(x: FlexTensor, to: Precision) -> FlexTensor {
        cast(x, to)
    }

    fn kernel_sgd(
        weight: FlexTensor,
        gradient: FlexTensor,
        velocity: FlexTensor,
        step: Sgd,
    ) -> (FlexTensor, FlexTensor) {
        let (mut weight, gradient, mut velocity) = (contiguous(weight), contiguous(gradient), contiguous(velocity));
        let n = values(&weight).len();
        assert!(values(&gradient).len() == n && values(&velocity).len() == n, "sgd: lengths differ");
        let at = |t: &FlexTensor| Ptr(values(t).as_ptr() as *mut f32);
        let (to_weight, new_weight) = writable(&mut weight, n);
        let (to_velocity, new_velocity) = writable(&mut velocity, n);
        let (w, g, v) = (at(&weight), at(&gradient), at(&velocity));
        // SAFETY: all hold `n` values; a target is a fresh block or the unshared storage of its own source.
        at_level!(S => unsafe { crate::sgd::step::<S>(n, w, g, v, to_weight, to_velocity, step) });
        let finish = |old: FlexTensor, new: Option<Scratch>| match new {
            Some(block) => tensor::<f32>(block, &[n]),
            None => old,
        };
        (finish(weight, new_weight), finish(velocity, new_velocity))
    }
}

/// The most nodes that [`PARTS`] remembers; forgetting them costs time only.
const MOST_PARTS: usize = 4096;

/// Nodes of the graph for which an operation of ours has left a gradient in bf16 that nobody has taken yet.
///
/// Where a map is used twice, Burn adds the second part of its gradient to the first; in bf16 that is slow. Our layers add
/// to the first part themselves, but `Gradients` cannot be asked whether there is one. Numbers of nodes are never used
/// again, so that one which stays here, because Burn took the gradient, does no harm.
static PARTS: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

fn parts() -> std::sync::MutexGuard<'static, BTreeSet<u64>> {
    PARTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The gradient of a layer. Parents: x, weight, gamma, beta, and the residual (x again when there is none).
#[derive(Debug)]
struct LayerBackward;

impl Backward<Flex, 5> for LayerBackward {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 5>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [x, weight, gamma, beta, residual] = ops.parents;
        let dy = grads.consume::<Flex>(&ops.node);
        parts().remove(&ops.node.id.value);
        let residual = residual.filter(|_| ops.state.has_residual);
        let part = x.as_ref().filter(|x| parts().remove(&x.id.value)).map(|x| grads.consume::<Flex>(x));
        let wanted = Wanted { x: x.is_some(), residual: residual.is_some(), part };
        let g = layer::backward(ops.state, dy, wanted);
        let [dw, dgamma, dbeta] = g.parameters.map(Some);
        let pairs = [(x, g.x), (weight, dw), (gamma, dgamma), (beta, dbeta), (residual, g.residual)];
        for (node, gradient) in pairs {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                // the gradient of a leaf stays with Burn when it is taken: it cannot be added to
                if gradient.dtype() == DType::BF16 && !node.parents.is_empty() {
                    let mut parts = parts();
                    if parts.len() == MOST_PARTS {
                        parts.clear();
                    }
                    parts.insert(node.id.value);
                }
                grads.register::<Flex>(node.id, gradient);
            }
        }
    }
}

#[derive(Debug)]
struct PoolBackward;

impl Backward<Flex, 1> for PoolBackward {
    type State = (pool::PoolGeometry, Arc<Vec<u16>>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = contiguous(grads.consume::<Flex>(&ops.node));
        let (g, tap) = ops.state;
        if let [Some(node)] = ops.parents {
            let len = g.b * g.h * g.w * g.c;
            let dx = at_number!(S, E of dy.dtype(), for usize::MAX => {
                let mut dx = Scratch::of::<E>(len);
                pool::backward::<S, E>(&g, E::values(&dy), &tap, numbers(&mut dx, len));
                tensor::<E>(dx, &[g.b, g.h, g.w, g.c])
            });
            grads.register::<Flex>(node.id, dx);
        }
    }
}

/// The gradient of a change of precision: the same change backwards.
#[derive(Debug)]
struct CastBackward;

impl Backward<Flex, 1> for CastBackward {
    type State = Precision;

    fn backward(self, ops: Ops<Precision, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node);
        if let [Some(node)] = ops.parents {
            grads.register::<Flex>(node.id, cast(dy, ops.state));
        }
    }
}

impl<C: CheckpointStrategy> Kernels for Autodiff<Flex, C> {
    fn kernel_conv_bn(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        residual: Residual<Self>,
        batches: Batches,
        conv: Conv,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let residual = residual.into_option();
        let last = residual.as_ref().unwrap_or(&x).node();
        let prepared = LayerBackward
            .prepare::<C>([x.node(), weight.node(), gamma.node(), beta.node(), last])
            .compute_bound()
            .stateful();
        let (gamma, beta) = (contiguous(gamma.into_primitive()), contiguous(beta.into_primitive()));
        let norm = Norm::Batch { gamma: values(&gamma), beta: values(&beta) };
        let (views, k) = (batches.views, values(&gamma).len());
        let residual = residual.map(|r| r.into_primitive());
        let (y, moments, saved) =
            layer::forward(x.into_primitive(), weight.into_primitive(), norm, residual, batches, conv);
        let y = match prepared {
            OpsKind::Tracked(p) => p.finish(saved, y),
            OpsKind::UnTracked(p) => p.finish(y),
        };
        let plain = |v: Vec<f32>| <Self as AutodiffBackend>::from_inner(small(v, &[views, k]));
        (y, plain(moments.mean), plain(moments.variance))
    }

    fn kernel_conv_affine(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
        residual: Residual<Self>,
        conv: Conv,
    ) -> FloatTensor<Self> {
        let residual = residual.into_option();
        let last = residual.as_ref().unwrap_or(&x).node();
        let prepared = LayerBackward
            .prepare::<C>([x.node(), weight.node(), scale.node(), shift.node(), last])
            .compute_bound()
            .stateful();
        let (x, weight) = (x.into_primitive(), weight.into_primitive());
        let (scale, shift) = (contiguous(scale.into_primitive()), contiguous(shift.into_primitive()));
        let residual = residual.map(|r| r.into_primitive());
        match prepared {
            OpsKind::Tracked(p) => {
                let norm = Norm::Fixed { scale: values(&scale), shift: values(&shift) };
                let (y, _, saved) = layer::forward(x, weight, norm, residual, 1.into(), conv);
                p.finish(saved, y)
            }
            OpsKind::UnTracked(p) => {
                let residual = residual.map_or(Residual::None, Residual::Add);
                p.finish(Flex::kernel_conv_affine(x, weight, scale, shift, residual, conv))
            }
        }
    }

    fn kernel_max_pool(x: FloatTensor<Self>, size: usize, stride: usize, padding: usize) -> FloatTensor<Self> {
        let prepared = PoolBackward.prepare::<C>([x.node()]).compute_bound().stateful();
        let (y, g, tap) = pool_forward(x.into_primitive(), size, stride, padding);
        match prepared {
            OpsKind::Tracked(p) => p.finish((g, Arc::new(tap)), y),
            OpsKind::UnTracked(p) => p.finish(y),
        }
    }

    fn kernel_cast(x: FloatTensor<Self>, to: Precision) -> FloatTensor<Self> {
        let prepared = CastBackward.prepare::<C>([x.node()]).compute_bound().stateful();
        let x = x.into_primitive();
        let from = precision(&x);
        match prepared {
            OpsKind::Tracked(p) => p.finish(from, cast(x, to)),
            OpsKind::UnTracked(p) => p.finish(cast(x, to)),
        }
    }

    fn kernel_sgd(
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        velocity: FloatTensor<Self>,
        step: Sgd,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (weight, velocity) =
            Flex::kernel_sgd(weight.into_primitive(), gradient.into_primitive(), velocity.into_primitive(), step);
        (Self::from_inner(weight), Self::from_inner(velocity))
    }
}
