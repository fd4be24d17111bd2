//! A layer on tensors of Flex, and its gradient.

use super::storage::{Stored, contiguous, numbers, small, tensor, values};
use crate::layer::{self, Incoming, Kept, Moments, Outputs, Shape};
use crate::level::at_number;
use crate::memory::Scratch;
use crate::norm::Affine;
use crate::number::Number;
use crate::simd::Simd;
use crate::{Across, Batches, Conv};
use burn::backend::flex::FlexTensor;
use std::sync::Arc;

/// The four dimensions of a tensor.
pub fn four(t: &FlexTensor) -> [usize; 4] {
    let d = t.layout().shape();
    [d[0], d[1], d[2], d[3]]
}

/// The shape of a layer.
pub fn shape(x: &FlexTensor, weight: &FlexTensor, views: usize, conv: Conv) -> Shape {
    let ([b, h, w, c], [k, c2, kh, kw]) = (four(x), four(weight));
    assert_eq!(c, c2, "input and weight disagree on the channels");
    assert!(views > 0 && b.is_multiple_of(views), "a batch of {b} is not {views} equal views");
    Shape { b, h, w, c, k, kh, kw, stride: conv.stride, padding: conv.padding, views, relu: conv.relu }
}

/// What the backward pass of a layer needs; `y` only where its sign masks the gradient.
#[derive(Clone, Debug)]
pub struct Saved {
    x: FlexTensor,
    weight: FlexTensor,
    z: FlexTensor,
    y: Option<FlexTensor>,
    kept: Kept,
    /// Whether the layer added a residual.
    pub has_residual: bool,
}

/// How a layer normalises: by its own statistics, or by a given scale and shift.
#[derive(Clone, Copy)]
pub enum Norm<'a> {
    Batch { gamma: &'a [f32], beta: &'a [f32] },
    Fixed { scale: &'a [f32], shift: &'a [f32] },
}

/// A layer with everything kept for its gradient; its output is of the same numbers as `x` and the residual.
pub fn forward(
    x: FlexTensor,
    weight: FlexTensor,
    norm: Norm,
    residual: Option<FlexTensor>,
    batches: Batches,
    conv: Conv,
) -> (FlexTensor, Moments, Saved) {
    let (x, weight, residual) = (contiguous(x), contiguous(weight), residual.map(contiguous));
    let (shape, across) = (shape(&x, &weight, batches.views, conv), batches.across);
    at_number!(S, E of x.dtype(), for shape.widest() => forward_in::<S, E>(shape, x, weight, norm, residual, across))
}

/// [`forward`] at a level, in a number.
fn forward_in<S: Simd, E: Number<S> + Stored>(
    shape: Shape,
    x: FlexTensor,
    weight: FlexTensor,
    norm: Norm,
    residual: Option<FlexTensor>,
    across: Option<Arc<dyn Across>>,
) -> (FlexTensor, Moments, Saved) {
    let (oh, ow) = shape.output();
    let (dims, len, views) = ([shape.b, oh, ow, shape.k], shape.output_len(), shape.views);
    let (mut z, mut y) = (Scratch::of::<E>(len), Scratch::of::<E>(len));
    let moments = layer::convolve_with_moments(&shape, E::values(&x), values(&weight), numbers::<E>(&mut z, len));
    let rows = (len / shape.k / views) as f64;
    let (moments, rows) = match across.as_deref() {
        Some(across) => moments.merged(rows, across),
        None => (moments, rows),
    };
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
    let z = tensor::<E>(z, &dims);
    let added = residual.as_ref().map(E::values);
    layer::normalise::<S, E>(&shape, E::values(&z), &affine, added, numbers(&mut y, len));
    let y = tensor::<E>(y, &dims);
    let has_residual = residual.is_some();
    let keep = (shape.relu && has_residual).then(|| y.clone());
    let kept = Kept { shape, affine, mean, inverse, batch_statistics, rows, across };
    (y, moments, Saved { x, weight, z, y: keep, kept, has_residual })
}

/// A layer without anything kept.
pub fn inference(
    x: FlexTensor,
    weight: FlexTensor,
    (scale, shift): (FlexTensor, FlexTensor),
    residual: Option<FlexTensor>,
    conv: Conv,
) -> FlexTensor {
    let (x, weight, scale, shift) = (contiguous(x), contiguous(weight), contiguous(scale), contiguous(shift));
    let residual = residual.map(contiguous);
    let shape = shape(&x, &weight, 1, conv);
    let ((oh, ow), len) = (shape.output(), shape.output_len());
    at_number!(S, E of x.dtype(), for shape.widest() => {
        let mut y = Scratch::of::<E>(len);
        layer::inference::<S, E>(
            &shape,
            E::values(&x),
            values(&weight),
            (values(&scale), values(&shift)),
            residual.as_ref().map(E::values),
            numbers(&mut y, len),
        );
        tensor::<E>(y, &[shape.b, oh, ow, shape.k])
    })
}

/// The gradients of a layer.
pub struct Gradients {
    /// By the input, if wanted.
    pub x: Option<FlexTensor>,
    /// By weight, gamma (scale) and beta (shift).
    pub parameters: [FlexTensor; 3],
    /// By the residual, if wanted.
    pub residual: Option<FlexTensor>,
}

/// What is asked of a layer's gradient.
pub struct Wanted {
    /// By the input.
    pub x: bool,
    /// By the residual.
    pub residual: bool,
    /// A part of the input's gradient that is already there and to be added to.
    pub part: Option<FlexTensor>,
}

/// The gradients of a layer from the one by its output.
pub fn backward(saved: Saved, dy: FlexTensor, wanted: Wanted) -> Gradients {
    let widest = saved.kept.shape.widest();
    at_number!(S, E of saved.x.dtype(), for widest => backward_in::<S, E>(saved, dy, wanted))
}

/// The tensor if nobody else holds its storage, or else a copy.
fn owned<E: Stored + Copy>(t: FlexTensor) -> FlexTensor {
    let t = contiguous(t);
    let values = E::values(&t);
    if t.is_unique() && t.bytes().len() == size_of_val(values) {
        return t;
    }
    let mut copy = Scratch::of::<E>(values.len());
    numbers::<E>(&mut copy, values.len()).copy_from_slice(values);
    tensor::<E>(copy, &four(&t))
}

/// [`backward`] at a level, in a number.
fn backward_in<S: Simd, E: Number<S> + Stored>(saved: Saved, dy: FlexTensor, wanted: Wanted) -> Gradients {
    let (x, weight, z) = (E::values(&saved.x), values(&saved.weight), E::values(&saved.z));
    let mut dw = Scratch::new(weight.len());
    let add = wanted.part.is_some();
    let fresh = || tensor::<E>(Scratch::of::<E>(x.len()), &four(&saved.x));
    let mut dx = wanted.x.then(|| wanted.part.map_or_else(fresh, owned::<E>));
    // someone else may still read this gradient: mask a copy then
    let mut dy = if saved.y.is_some() { owned::<E>(dy) } else { contiguous(dy) };
    let incoming = match &saved.y {
        Some(y) => Incoming::MaskedBy(E::storage_mut(&mut dy), E::values(y)),
        None => Incoming::Plain(E::values(&dy)),
    };
    let out = Outputs { x: dx.as_mut().map(E::storage_mut), add, w: dw.as_mut() };
    let g = layer::backward::<S, E>(&saved.kept, x, weight, z, incoming, out);
    let k = saved.kept.shape.k;
    let parameters = [tensor::<f32>(dw, &four(&saved.weight)), small(g.gamma, &[k]), small(g.beta, &[k])];
    let residual =
        wanted.residual.then(|| if saved.y.is_none() && saved.kept.shape.relu { unreachable!() } else { dy });
    Gradients { x: dx, parameters, residual }
}
