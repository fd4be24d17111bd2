//! One layer on plain slices: chooses the convolution's algorithm and puts batch norm around it.

use crate::memory::{Ptr, Scratch};
use crate::norm::{self, Affine, Gradient, Mask, statistics_len};
use crate::number::{Number, add};
use crate::simd::{Simd, padded};
use crate::winograd::Finish;
use crate::{Across, BN_EPS, direct, winograd};
use std::sync::Arc;

/// The shape of a layer and what follows its convolution.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub b: usize,
    pub h: usize,
    pub w: usize,
    pub c: usize,
    pub k: usize,
    pub kh: usize,
    pub kw: usize,
    pub stride: usize,
    pub padding: usize,
    pub views: usize,
    pub relu: bool,
}

/// The algorithm of a convolution.
enum Plan {
    Winograd(winograd::WinogradGeometry),
    Direct(direct::Geometry),
}

impl Shape {
    /// How the convolution, or its gradients when not `forward`, are computed.
    fn plan(&self, forward: bool) -> Plan {
        let Shape { b, h, w, c, k, kh, kw, stride, padding, views, .. } = *self;
        let tiled = winograd::WinogradGeometry { b, h, w, c, k, views, stride };
        if (kh, kw, padding) == (3, 3, 1) && stride <= 2 && tiled.pays(forward) {
            Plan::Winograd(tiled)
        } else {
            Plan::Direct(direct::Geometry { b, h, w, c, k, kh, kw, stride, padding, views })
        }
    }

    /// The larger number of channels.
    pub fn widest(&self) -> usize {
        self.c.max(self.k)
    }

    /// Height and width of the output.
    pub fn output(&self) -> (usize, usize) {
        let side = |n: usize, kernel: usize| (n + 2 * self.padding - kernel) / self.stride + 1;
        (side(self.h, self.kh), side(self.w, self.kw))
    }

    /// Values of the output.
    pub fn output_len(&self) -> usize {
        let (oh, ow) = self.output();
        self.b * oh * ow * self.k
    }

    /// The convolution by whichever algorithm pays.
    ///
    /// # Safety
    /// `out` has room for [`Shape::output_len`] values, and `finish` has the sizes of [`Finish`].
    unsafe fn convolve<S: Simd, E: Number<S>>(&self, x: &[E], w: &[f32], out: Ptr<E>, finish: Finish<E>) {
        assert_eq!(x.len(), self.b * self.h * self.w * self.c);
        assert_eq!(w.len(), self.k * self.c * self.kh * self.kw);
        // SAFETY: the caller's promise.
        unsafe {
            match self.plan(true) {
                Plan::Winograd(g) => winograd::forward::<S, E>(&g, x, w, out, finish),
                Plan::Direct(g) => direct::forward::<S, E>(&g, x, w, out, finish),
            }
        }
    }
}

/// Statistics of a layer's convolution, `[views][k]` each.
#[derive(Clone, Debug)]
pub struct Moments {
    pub mean: Vec<f32>,
    pub variance: Vec<f32>,
}

impl Moments {
    /// The moments of the rows of all processes, of which this one has `rows` in every view; and how many rows these are.
    pub fn merged(&self, rows: f64, across: &dyn Across) -> (Moments, f64) {
        let squares = self.variance.iter().zip(&self.mean).map(|(v, m)| f64::from(*v) + f64::from(*m) * f64::from(*m));
        let means = self.mean.iter().map(|m| f64::from(*m));
        let mut sums: Vec<f64> = std::iter::once(1.0).chain(means).chain(squares).map(|x| x * rows).collect();
        across.sum(&mut sums);
        let (total, sums) = (sums[0], &sums[1..]);
        let (means, squares) = sums.split_at(self.mean.len());
        let variance = |(m, s): (&f64, &f64)| (s / total - m / total * (m / total)).max(0.0) as f32;
        let mean = means.iter().map(|m| (m / total) as f32).collect();
        (Moments { mean, variance: means.iter().zip(squares).map(variance).collect() }, total)
    }
}

/// `z = conv(x, w)` and its moments per view.
pub fn convolve_with_moments<S: Simd, E: Number<S>>(shape: &Shape, x: &[E], w: &[f32], z: &mut [E]) -> Moments {
    assert_eq!(z.len(), shape.output_len());
    let kp = padded::<S>(shape.k);
    let units = match shape.plan(true) {
        Plan::Winograd(g) => g.units_per_view(),
        Plan::Direct(g) => g.units_per_view(),
    };
    let parts = Scratch::new(shape.views * units * statistics_len(kp));
    // SAFETY: sizes are checked here and in `convolve`; the statistics have a row per unit.
    unsafe { shape.convolve::<S, E>(x, w, Ptr(z.as_mut_ptr()), Finish::Statistics(parts.ptr())) };
    let mut moments = Moments { mean: Vec::new(), variance: Vec::new() };
    for part in parts.as_ref().chunks_exact(units * statistics_len(kp)) {
        let (mean, variance) = norm::moments(part, kp, shape.k);
        moments.mean.extend(mean);
        moments.variance.extend(variance);
    }
    moments
}

/// Scale and shift of batch norm from its moments.
pub fn normalisation(moments: &Moments, gamma: &[f32], beta: &[f32]) -> (Affine, Vec<f32>) {
    let inverse: Vec<f32> = moments.variance.iter().map(|v| 1.0 / (v + BN_EPS).sqrt()).collect();
    let scale: Vec<f32> = inverse.iter().zip(gamma.iter().cycle()).map(|(i, g)| i * g).collect();
    let shift = scale.iter().zip(&moments.mean).zip(beta.iter().cycle()).map(|((a, m), b)| b - m * a).collect();
    (Affine { scale, shift }, inverse)
}

/// `y = relu?(z scale + shift + residual)`.
pub fn normalise<S: Simd, E: Number<S>>(shape: &Shape, z: &[E], affine: &Affine, residual: Option<&[E]>, y: &mut [E]) {
    assert!(y.len() == z.len() && residual.is_none_or(|r| r.len() == z.len()));
    let source = (Ptr::to(z), z.len());
    // SAFETY: all slices have the same length; `z` is only read.
    unsafe { norm::apply::<S, E>(source, affine, shape.views, residual, shape.relu, Ptr(y.as_mut_ptr())) }
}

/// `y = relu?(conv(x, w) scale + shift + residual)`.
pub fn inference<S: Simd, E: Number<S>>(
    shape: &Shape,
    x: &[E],
    w: &[f32],
    (scale, shift): (&[f32], &[f32]),
    residual: Option<&[E]>,
    y: &mut [E],
) {
    assert!(y.len() == shape.output_len() && residual.is_none_or(|r| r.len() == y.len()));
    let pad = |v: &[f32]| {
        let mut v = v.to_vec();
        v.resize(padded::<S>(shape.k), 0.0);
        v
    };
    let (scale, shift) = (pad(scale), pad(shift));
    let finish = Finish::Affine { scale: &scale, shift: &shift, residual, relu: shape.relu };
    // SAFETY: sizes are checked here and in `convolve`.
    unsafe { shape.convolve::<S, E>(x, w, Ptr(y.as_mut_ptr()), finish) }
}

/// What the backward pass keeps of the forward pass.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The layer's shape.
    pub shape: Shape,
    /// Scale and shift that were applied.
    pub affine: Affine,
    /// `[views][k]`: what `z` was centred on.
    pub mean: Vec<f32>,
    /// `[views][k]`: one over the standard deviation.
    pub inverse: Vec<f32>,
    /// Whether mean and deviation came from `z` itself, so that gradients flow through them.
    pub batch_statistics: bool,
    /// Rows of `z` in a view, over all processes.
    pub rows: f64,
    /// The processes that have the other rows.
    pub across: Option<Arc<dyn Across>>,
}

/// Gradients by the parameters of the normalisation.
pub struct ParameterGradients {
    pub gamma: Vec<f32>,
    pub beta: Vec<f32>,
}

/// Where the gradients of a layer go.
pub struct Outputs<'a, E> {
    /// By the input, if wanted.
    pub x: Option<&'a mut [E]>,
    /// Whether the input's gradient is added to what is found there: another part of it.
    pub add: bool,
    /// By the weights.
    pub w: &'a mut [f32],
}

/// The incoming gradient: masked in place by the layer's output, or by what is computed again.
pub enum Incoming<'a, E> {
    /// No ReLU, or one whose input can be computed again.
    Plain(&'a [E]),
    /// Gradient and the output whose sign masks it; afterwards it is the residual's gradient too.
    MaskedBy(&'a mut [E], &'a [E]),
}

/// The gradients of `relu?(batch_norm(conv(x, w)))` from the gradient by its output.
pub fn backward<S: Simd, E: Number<S>>(
    kept: &Kept,
    x: &[E],
    w: &[f32],
    z: &[E],
    incoming: Incoming<E>,
    out: Outputs<E>,
) -> ParameterGradients {
    let shape = &kept.shape;
    let (k, kp, views) = (shape.k, padded::<S>(shape.k), shape.views);
    assert!(z.len() == shape.output_len() && out.w.len() == w.len() && w.len() == k * shape.c * shape.kh * shape.kw);
    assert!(x.len() == shape.b * shape.h * shape.w * shape.c && out.x.as_ref().is_none_or(|dx| dx.len() == x.len()));
    let (g, (sum, product), relu) = match incoming {
        Incoming::Plain(dy) => {
            assert_eq!(dy.len(), z.len());
            let mask = if shape.relu { Mask::Normalised } else { Mask::None };
            let at = Ptr::to(dy);
            // SAFETY: `dy` is only read, because nothing masked is asked for.
            (dy, unsafe { norm::reduce::<S, E>(at, z, mask, None, &kept.affine, &kept.mean, views) }, shape.relu)
        }
        Incoming::MaskedBy(dy, y) => {
            assert!(dy.len() == z.len() && y.len() == z.len());
            let at = Ptr(dy.as_mut_ptr());
            // SAFETY: `dy` is borrowed mutably and has the length of `z`.
            let sums =
                unsafe { norm::reduce::<S, E>(at, z, Mask::Output(y), Some(at), &kept.affine, &kept.mean, views) };
            (&*dy, sums, false)
        }
    };
    let (mut all_sums, mut all_products) = (sum.clone(), product.clone());
    if let Some(across) = kept.across.as_deref().filter(|_| kept.batch_statistics) {
        let mut both = [all_sums, all_products].concat();
        across.sum(&mut both);
        all_products = both.split_off(views * k);
        all_sums = both;
    }
    let mut coefficients = vec![0.0; views * 4 * kp];
    let (mut gamma, mut beta) = (vec![0.0; k], vec![0.0; k]);
    for i in 0..views * k {
        let (view, channel) = (i / k, i % k);
        let (scale, inverse) = (kept.affine.scale[i] as f64, kept.inverse[i] as f64);
        gamma[channel] += product[i] * inverse;
        beta[channel] += sum[i];
        let c = &mut coefficients[view * 4 * kp..];
        c[channel] = kept.affine.scale[i];
        c[kp + channel] = kept.affine.shift[i];
        if kept.batch_statistics {
            let p = -scale * inverse * inverse * all_products[i] / kept.rows;
            c[2 * kp + channel] = p as f32;
            c[3 * kp + channel] = (-scale * all_sums[i] / kept.rows - p * kept.mean[i] as f64) as f32;
        }
    }
    let d = Gradient { g, z, coefficients: &coefficients, stride: kp, relu };
    let (dx, dw) = (out.x.map(|dx| Ptr(dx.as_mut_ptr())), Ptr(out.w.as_mut_ptr()));
    // SAFETY: all sizes are checked above.
    unsafe {
        match shape.plan(false) {
            Plan::Winograd(g) => winograd::backward::<S, E>(&g, x, w, &d, (dx, out.add), dw),
            Plan::Direct(g) => {
                direct::weight_gradient::<S, E>(&g, x, &d, dw);
                match dx {
                    Some(dx) if out.add => {
                        let part = Scratch::of::<E>(x.len());
                        direct::input_gradient::<S, E>(&g, w, &d, part.start());
                        add::<S, E>(x.len(), part.start(), dx);
                    }
                    Some(dx) => direct::input_gradient::<S, E>(&g, w, &d, dx),
                    None => (),
                }
            }
        }
    }
    let narrow = |v: Vec<f64>| v.into_iter().map(|v| v as f32).collect();
    ParameterGradients { gamma: narrow(gamma), beta: narrow(beta) }
}
