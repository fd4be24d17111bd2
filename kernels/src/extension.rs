//! The kernels as operations of Burn's Flex backend, with their gradients written by hand.

use crate::layer::{self, Incoming, Kept, Moments, Outputs, Shape};
use crate::level::at_level;
use crate::memory::{Ptr, Scratch};
use crate::norm::Affine;
use crate::{Conv, Sgd, pool};
use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::{FlexTensor, Layout};
use burn::backend::tensor::FloatTensor;
use burn::backend::{AutodiffBackend, Backend, ExtensionType, Flex, backend_extension};
use burn::tensor::{AllocationProperty, Bytes, DType, Shape as Dims};
use burn_std::{AccessError, AccessPolicy, AllocationController};
use std::mem::MaybeUninit;
use std::sync::Arc;

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
        views: usize,
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

    fn kernel_sgd(
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        velocity: FloatTensor<Self>,
        step: Sgd,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

/// Tensor storage from the scratch pool: 64-byte aligned, and given back to the pool when the tensor is dropped.
struct Pooled {
    block: Scratch,
    bytes: usize,
}

impl AllocationController for Pooled {
    fn alloc_align(&self) -> usize {
        64
    }
    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }
    unsafe fn memory_mut(&mut self, _: AccessPolicy) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        // SAFETY: the block holds at least `bytes` bytes and is borrowed mutably with `self`.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.block.ptr().0 as *mut _, self.bytes) })
    }
    fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        // SAFETY: as above, for reading.
        Ok(unsafe { std::slice::from_raw_parts(self.block.ptr().0 as *const _, self.bytes) })
    }
}

/// A tensor of the given dimensions over a block of scratch.
fn tensor(block: Scratch, dims: &[usize]) -> FlexTensor {
    let bytes = 4 * dims.iter().product::<usize>();
    let storage = Box::new(Pooled { block, bytes });
    // SAFETY: the controller's memory is initialised and `bytes` long.
    let bytes = unsafe { Bytes::from_controller(storage, bytes) };
    FlexTensor::new(bytes, Layout::contiguous(Dims::from(dims.to_vec())), DType::F32)
}

fn small(values: Vec<f32>, dims: &[usize]) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(Dims::from(dims.to_vec())), DType::F32)
}

/// The values of a tensor that `contiguous` has been through.
fn values(t: &FlexTensor) -> &[f32] {
    t.as_slice::<f32>().expect("a contiguous f32 tensor")
}

/// Copies only when the layout asks for it; a contiguous part of a larger storage is left as it is.
fn contiguous(t: FlexTensor) -> FlexTensor {
    if t.layout().contiguous_offsets().is_some() { t } else { t.to_contiguous() }
}

fn four(t: &FlexTensor) -> [usize; 4] {
    let d = t.layout().shape();
    [d[0], d[1], d[2], d[3]]
}

fn shape(x: &FlexTensor, weight: &FlexTensor, views: usize, conv: Conv) -> Shape {
    let ([b, h, w, c], [k, c2, kh, kw]) = (four(x), four(weight));
    assert_eq!(c, c2, "input and weight disagree on the channels");
    assert!(views > 0 && b.is_multiple_of(views), "a batch of {b} is not {views} equal views");
    Shape { b, h, w, c, k, kh, kw, stride: conv.stride, padding: conv.padding, views, relu: conv.relu }
}

/// What the backward pass of a layer needs; `y` only where its sign masks the gradient.
#[derive(Clone, Debug)]
struct Saved {
    x: FlexTensor,
    weight: FlexTensor,
    z: FlexTensor,
    y: Option<FlexTensor>,
    kept: Kept,
    has_residual: bool,
}

/// How a layer normalises: by its own statistics, or by a given scale and shift.
enum Norm<'a> {
    Batch { gamma: &'a [f32], beta: &'a [f32] },
    Fixed { scale: &'a [f32], shift: &'a [f32] },
}

/// A layer with everything kept for its gradient.
fn layer_forward(
    x: FlexTensor,
    weight: FlexTensor,
    norm: Norm,
    residual: Option<FlexTensor>,
    views: usize,
    conv: Conv,
) -> (FlexTensor, Moments, Saved) {
    let (x, weight, residual) = (contiguous(x), contiguous(weight), residual.map(contiguous));
    let shape = shape(&x, &weight, views, conv);
    let (oh, ow) = shape.output();
    let (dims, len) = ([shape.b, oh, ow, shape.k], shape.output_len());
    let (mut z, mut y) = (Scratch::new(len), Scratch::new(len));
    let (xs, ws, widest) = (values(&x), values(&weight), shape.widest());
    let moments = at_level!(S for widest => layer::convolve_with_moments::<S>(&shape, xs, ws, z.as_mut()));
    let (affine, inverse, mean, batch_statistics) = match norm {
        Norm::Batch { gamma, beta } => {
            let (affine, inverse) = layer::normalisation(&moments, gamma, beta);
            (affine, inverse, moments.mean.clone(), true)
        }
        Norm::Fixed { scale, shift } => {
            let affine = Affine { scale: scale.repeat(views), shift: shift.repeat(views) };
            (affine, vec![1.0; views * shape.k], vec![0.0; views * shape.k], false)
        }
    };
    let added = residual.as_ref().map(values);
    at_level!(S for widest => layer::normalise::<S>(&shape, z.as_ref(), &affine, added, y.as_mut()));
    let (z, y) = (tensor(z, &dims), tensor(y, &dims));
    let has_residual = residual.is_some();
    let keep = (conv.relu && has_residual).then(|| y.clone());
    let kept = Kept { shape, affine, mean, inverse, batch_statistics };
    (y, moments, Saved { x, weight, z, y: keep, kept, has_residual })
}

/// Gradients by x, weight, gamma (scale), beta (shift) and residual.
fn layer_backward(
    saved: Saved,
    dy: FlexTensor,
    want_x: bool,
    want_residual: bool,
) -> (Option<FlexTensor>, [FlexTensor; 3], Option<FlexTensor>) {
    let (x, weight, z) = (values(&saved.x), values(&saved.weight), values(&saved.z));
    let mut dy = contiguous(dy);
    let mut dw = Scratch::new(weight.len());
    let mut dx = want_x.then(|| Scratch::new(x.len()));
    if saved.y.is_some() && !(dy.is_unique() && dy.bytes().len() == 4 * z.len()) {
        // someone else may still read this gradient: mask a copy
        let mut copy = Scratch::new(z.len());
        copy.as_mut().copy_from_slice(values(&dy));
        dy = tensor(copy, &four(&saved.z));
    }
    let incoming = match &saved.y {
        Some(y) => Incoming::MaskedBy(dy.storage_mut::<f32>(), values(y)),
        None => Incoming::Plain(values(&dy)),
    };
    let out = Outputs { x: dx.as_mut().map(|dx| dx.as_mut()), w: dw.as_mut() };
    let g =
        at_level!(S for saved.kept.shape.widest() => layer::backward::<S>(&saved.kept, x, weight, z, incoming, out));
    let k = saved.kept.shape.k;
    let parameters = [tensor(dw, &four(&saved.weight)), small(g.gamma, &[k]), small(g.beta, &[k])];
    let residual = want_residual.then(|| if saved.y.is_none() && saved.kept.shape.relu { unreachable!() } else { dy });
    (dx.map(|dx| tensor(dx, &four(&saved.x))), parameters, residual)
}

/// Largest of each window, with where it was.
fn pool_forward(x: FlexTensor, size: usize, stride: usize, padding: usize) -> (FlexTensor, pool::Geometry, Vec<u16>) {
    let x = contiguous(x);
    let [b, h, w, c] = four(&x);
    let g = pool::Geometry { b, h, w, c, size, stride, padding };
    let (oh, ow) = g.output();
    let mut y = Scratch::new(b * oh * ow * c);
    let mut tap = vec![0; b * oh * ow * c];
    at_level!(S => pool::forward::<S>(&g, values(&x), y.as_mut(), &mut tap));
    (tensor(y, &[b, oh, ow, c]), g, tap)
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
        views: usize,
        conv: Conv,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let (gamma, beta) = (contiguous(gamma), contiguous(beta));
        let norm = Norm::Batch { gamma: values(&gamma), beta: values(&beta) };
        let k = values(&gamma).len();
        let (y, moments, _) = layer_forward(x, weight, norm, residual.into_option(), views, conv);
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
        let (x, weight, scale, shift) = (contiguous(x), contiguous(weight), contiguous(scale), contiguous(shift));
        let residual = residual.into_option().map(contiguous);
        let shape = shape(&x, &weight, 1, conv);
        let (oh, ow) = shape.output();
        let mut y = Scratch::new(shape.output_len());
        at_level!(S for shape.widest() => layer::inference::<S>(
            &shape,
            values(&x),
            values(&weight),
            (values(&scale), values(&shift)),
            residual.as_ref().map(values),
            y.as_mut(),
        ));
        tensor(y, &[shape.b, oh, ow, shape.k])
    }

    fn kernel_max_pool(x: FlexTensor, size: usize, stride: usize, padding: usize) -> FlexTensor {
        pool_forward(x, size, stride, padding).0
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
            Some(block) => tensor(block, &[n]),
            None => old,
        };
        (finish(weight, new_weight), finish(velocity, new_velocity))
    }
}

/// The gradient of a layer. Parents: x, weight, gamma, beta, and the residual (x again when there is none).
#[derive(Debug)]
struct LayerBackward;

impl Backward<Flex, 5> for LayerBackward {
    type State = Saved;

    fn backward(self, ops: Ops<Saved, 5>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [x, weight, gamma, beta, residual] = ops.parents;
        let dy = grads.consume::<Flex>(&ops.node);
        let residual = residual.filter(|_| ops.state.has_residual);
        let (dx, [dw, dgamma, dbeta], dr) = layer_backward(ops.state, dy, x.is_some(), residual.is_some());
        let pairs = [(x, dx), (weight, Some(dw)), (gamma, Some(dgamma)), (beta, Some(dbeta)), (residual, dr)];
        for (node, gradient) in pairs {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                grads.register::<Flex>(node.id, gradient);
            }
        }
    }
}

#[derive(Debug)]
struct PoolBackward;

impl Backward<Flex, 1> for PoolBackward {
    type State = (pool::Geometry, Arc<Vec<u16>>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = contiguous(grads.consume::<Flex>(&ops.node));
        let (g, tap) = ops.state;
        if let [Some(node)] = ops.parents {
            let mut dx = Scratch::new(g.b * g.h * g.w * g.c);
            at_level!(S => pool::backward::<S>(&g, values(&dy), &tap, dx.as_mut()));
            grads.register::<Flex>(node.id, tensor(dx, &[g.b, g.h, g.w, g.c]));
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
        views: usize,
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
        let k = values(&gamma).len();
        let residual = residual.map(|r| r.into_primitive());
        let (y, moments, saved) =
            layer_forward(x.into_primitive(), weight.into_primitive(), norm, residual, views, conv);
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
                let (y, _, saved) = layer_forward(x, weight, norm, residual, 1, conv);
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
