//! Batch norm on channel-last data, fused with residual and ReLU: the passes over memory that a layer needs besides its
//! convolution.
//!
//! Data is seen as flat rows of `period` values, the least common multiple of channels and lanes, and the coefficients
//! are repeated to that length: every vector is then whole whatever the number of channels.

mod gradient;

pub use gradient::Gradient;

use crate::memory::{Ptr, Scratch, parallel};
use crate::number::Number;
use crate::simd::Simd;
use std::ops::Range;

/// Values handled by one unit of work: small enough to stay in a core's cache between two looks at it.
const UNIT: usize = 1 << 15;

/// Rows of statistics that a unit of a convolution writes: shift, sum, sum of squares (each `[stride]`), then the
/// count.
///
/// Sums are of `z - shift`, with the unit's first value as the shift, so that a large mean does not cancel.
pub fn statistics_len(stride: usize) -> usize {
    3 * stride + 1
}

/// Mean and biased variance per channel from the statistics of consecutive units, merged in order in f64.
pub fn moments(parts: &[f32], stride: usize, k: usize) -> (Vec<f32>, Vec<f32>) {
    let row = statistics_len(stride);
    let mut of = vec![(0.0, 0.0, 0.0); k]; // (count, mean, sum of squared deviations)
    for part in parts.chunks_exact(row) {
        let n = part[3 * stride] as f64;
        for (i, (count, mean, m2)) in of.iter_mut().enumerate() {
            let (shift, s1, s2) = (part[i] as f64, part[stride + i] as f64, part[2 * stride + i] as f64);
            let (unit_mean, unit_m2) = (shift + s1 / n, (s2 - s1 * s1 / n).max(0.0));
            let (delta, total) = (unit_mean - *mean, *count + n);
            *m2 += unit_m2 + delta * delta * *count * n / total;
            *mean += delta * n / total;
            *count = total;
        }
    }
    of.into_iter().map(|(count, mean, m2)| (mean as f32, (m2 / count) as f32)).unzip()
}

/// Writes the statistics of some columns of `n` rows of `k` values at `z`; see [`statistics_len`]. The call with the
/// first column writes the count.
///
/// # Safety
/// `z` holds the rows, `out` [`statistics_len`] values, `stride` is `k` rounded up to whole vectors.
pub unsafe fn statistics<S: Simd, E: Number<S>>(
    z: *const E,
    n: usize,
    k: usize,
    columns: Range<usize>,
    out: *mut f32,
    stride: usize,
) {
    if columns.start == 0 {
        // SAFETY: the caller's promise.
        unsafe { *out.add(3 * stride) = n as f32 };
    }
    // SAFETY: the caller's promise.
    unsafe {
        /// One vector of columns, or its first `lanes`.
        ///
        /// # Safety
        /// As for [`statistics`].
        #[inline(always)]
        unsafe fn block<S: Simd, E: Number<S>, const FULL: bool>(
            z: *const E,
            n: usize,
            k: usize,
            lanes: usize,
            out: *mut f32,
            stride: usize,
        ) {
            // SAFETY: the caller's promise.
            unsafe {
                let shift = E::get::<FULL>(z, lanes);
                let (mut s1, mut s2) = (S::zero(), S::zero());
                for r in 0..n {
                    let v = S::sub(E::get::<FULL>(z.add(r * k), lanes), shift);
                    s1 = S::add(s1, v);
                    s2 = S::fma(v, v, s2);
                }
                S::store(out, shift);
                S::store(out.add(stride), s1);
                S::store(out.add(2 * stride), s2);
            }
        }
        S::run(
            #[inline(always)]
            || {
                for at in columns.step_by(S::LANES) {
                    if at + S::LANES <= k {
                        block::<S, E, true>(z.add(at), n, k, S::LANES, out.add(at), stride);
                    } else {
                        block::<S, E, false>(z.add(at), n, k, k - at, out.add(at), stride);
                    }
                }
            },
        );
    }
}

/// The least common multiple of channels and lanes.
fn period<S: Simd>(channels: usize) -> usize {
    let mut a = channels;
    let mut b = S::LANES;
    while b != 0 {
        (a, b) = (b, a % b);
    }
    channels / a * S::LANES
}

/// `[views][channels]` repeated to `[views][period]`.
fn repeated(x: &[f32], channels: usize, period: usize) -> Vec<f32> {
    x.chunks_exact(channels).flat_map(|row| row.iter().copied().cycle().take(period)).collect()
}

/// How a flat tensor of `views` equal parts is cut into units of whole periods.
struct NormCut {
    period: usize,
    view: usize,
    unit: usize,
    per_view: usize,
}

impl NormCut {
    fn new<S: Simd>(len: usize, channels: usize, views: usize) -> NormCut {
        let period = period::<S>(channels);
        let (view, unit) = (len / views, (UNIT / period).max(1) * period);
        NormCut { period, view, unit, per_view: view.div_ceil(unit) }
    }

    /// View and range of values of unit `u`.
    fn range(&self, u: usize) -> (usize, usize, usize) {
        let (view, i) = (u / self.per_view, u % self.per_view);
        (view, view * self.view + i * self.unit, view * self.view + (i * self.unit + self.unit).min(self.view))
    }
}

/// Scale and shift per view and channel: `z scale + shift` is the normalised value.
#[derive(Clone, Debug)]
pub struct Affine {
    /// `[views][channels]`.
    pub scale: Vec<f32>,
    /// `[views][channels]`.
    pub shift: Vec<f32>,
}

/// `y = relu?(z scale + shift + residual)`; `y` may be `z` itself.
///
/// # Safety
/// `z`, `y` and the residual hold `len` values.
pub unsafe fn apply<S: Simd, E: Number<S>>(
    (z, len): (Ptr<E>, usize),
    affine: &Affine,
    views: usize,
    residual: Option<&[E]>,
    relu: bool,
    y: Ptr<E>,
) {
    let channels = affine.scale.len() / views;
    let cut = NormCut::new::<S>(len, channels, views);
    let (scale, shift) = (repeated(&affine.scale, channels, cut.period), repeated(&affine.shift, channels, cut.period));
    debug_assert!(residual.is_none_or(|r| r.len() == len));
    let residual = residual.map(Ptr::to);
    parallel(views * cut.per_view, |u| {
        let (view, from, to) = cut.range(u);
        // SAFETY: the units' ranges are disjoint and within `len`; the coefficients have a whole period per view.
        unsafe {
            let (a, b) = (scale.as_ptr().add(view * cut.period), shift.as_ptr().add(view * cut.period));
            let (z, y, r) = (z.at(from), y.at(from), residual.map(|r| r.at(from) as *const E));
            match (r, relu) {
                (None, false) => apply_unit::<S, E, false, false>(z, a, b, z, y, to - from, cut.period),
                (None, true) => apply_unit::<S, E, false, true>(z, a, b, z, y, to - from, cut.period),
                (Some(r), false) => apply_unit::<S, E, true, false>(z, a, b, r, y, to - from, cut.period),
                (Some(r), true) => apply_unit::<S, E, true, true>(z, a, b, r, y, to - from, cut.period),
            }
        }
    });
}

/// One vector of [`apply`], or its first `n` values.
///
/// # Safety
/// `z`, `r` (with a residual) and `y` hold the values.
#[inline(always)]
unsafe fn apply_one<S: Simd, E: Number<S>, const FULL: bool, const RESIDUAL: bool, const RELU: bool>(
    z: *const E,
    a: S::V,
    b: S::V,
    r: *const E,
    y: *mut E,
    n: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut v = S::fma(E::get::<FULL>(z, n), a, b);
        if RESIDUAL {
            v = S::add(v, E::get::<FULL>(r, n));
        }
        if RELU {
            v = S::max(S::zero(), v);
        }
        E::put::<FULL>(y, v, n);
    }
}

/// `n` values of [`apply`], from the first of a period on.
///
/// # Safety
/// `z`, `r` (with a residual) and `y` hold `n` values, `a` and `b` a period.
unsafe fn apply_unit<S: Simd, E: Number<S>, const RESIDUAL: bool, const RELU: bool>(
    z: *const E,
    a: *const f32,
    b: *const f32,
    r: *const E,
    y: *mut E,
    n: usize,
    period: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                let (mut at, mut channel) = (0, 0);
                while at + S::LANES <= n {
                    let (a, b) = (S::load(a.add(channel)), S::load(b.add(channel)));
                    apply_one::<S, E, true, RESIDUAL, RELU>(z.add(at), a, b, r.add(at), y.add(at), S::LANES);
                    at += S::LANES;
                    channel = if channel + S::LANES == period { 0 } else { channel + S::LANES };
                }
                if at < n {
                    let (a, b) = (S::load(a.add(channel)), S::load(b.add(channel)));
                    apply_one::<S, E, false, RESIDUAL, RELU>(z.add(at), a, b, r.add(at), y.add(at), n - at);
                }
            },
        )
    }
}

/// What masks the incoming gradient: the ReLU's output where it is known, or its input computed again.
#[derive(Clone, Copy)]
pub enum Mask<'a, E> {
    /// No ReLU.
    None,
    /// `y > 0`.
    Output(&'a [E]),
    /// `z scale + shift > 0`.
    Normalised,
}

/// `(sum g, sum g (z - mean))` per view and channel, with `g` the masked `dy`, which is also written to `masked`.
///
/// # Safety
/// `dy` and `masked` hold as many values as `z`; they may be the same.
pub unsafe fn reduce<S: Simd, E: Number<S>>(
    dy: Ptr<E>,
    z: &[E],
    mask: Mask<E>,
    masked: Option<Ptr<E>>,
    affine: &Affine,
    mean: &[f32],
    views: usize,
) -> (Vec<f64>, Vec<f64>) {
    let channels = mean.len() / views;
    let cut = NormCut::new::<S>(z.len(), channels, views);
    let tables = [&affine.scale[..], &affine.shift[..], mean].map(|t| repeated(t, channels, cut.period));
    let units = views * cut.per_view;
    let parts = Scratch::new(units * 2 * cut.period);
    let part = parts.ptr();
    let zp = Ptr::to(z);
    let yp = if let Mask::Output(y) = mask { Some(Ptr::to(y)) } else { None };
    let normalised = matches!(mask, Mask::Normalised);
    parallel(units, |u| {
        let (view, from, to) = cut.range(u);
        // SAFETY: the units' ranges are disjoint and within the tensors; the tables have a whole period per view.
        unsafe {
            let job = ReduceUnit {
                dy: dy.at(from),
                z: zp.at(from),
                y: yp.map_or(std::ptr::null(), |y| y.at(from) as *const E),
                masked: masked.map_or(std::ptr::null_mut(), |m| m.at(from)),
                scale: tables[0].as_ptr().add(view * cut.period),
                shift: tables[1].as_ptr().add(view * cut.period),
                mean: tables[2].as_ptr().add(view * cut.period),
                n: to - from,
                period: cut.period,
                out: part.at(u * 2 * cut.period),
            };
            match (yp.is_some(), normalised) {
                (true, _) => job.run::<S, 2>(),
                (_, true) => job.run::<S, 1>(),
                _ => job.run::<S, 0>(),
            }
        }
    });
    let mut sums = (vec![0.0; views * channels], vec![0.0; views * channels]);
    for (u, part) in parts.as_ref().chunks_exact(2 * cut.period).take(units).enumerate() {
        let at = u / cut.per_view * channels;
        for i in 0..cut.period {
            sums.0[at + i % channels] += part[i] as f64;
            sums.1[at + i % channels] += part[cut.period + i] as f64;
        }
    }
    sums
}

/// One unit of [`reduce`].
struct ReduceUnit<E> {
    dy: *const E,
    z: *const E,
    y: *const E,
    masked: *mut E,
    scale: *const f32,
    shift: *const f32,
    mean: *const f32,
    n: usize,
    period: usize,
    out: *mut f32,
}

impl<E> ReduceUnit<E> {
    /// Writes the unit's sums.
    ///
    /// # Safety
    /// The pointers hold `n` values, the tables a period and `out` two; `y` counts for mask 2 only, and a null
    /// `masked` is not written.
    unsafe fn run<S: Simd, const MASK: u8>(&self)
    where
        E: Number<S>,
    {
        // SAFETY: the caller's promise.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    let wide = 4 * S::LANES;
                    let mut at = 0;
                    while at < self.period {
                        if at + wide <= self.period {
                            self.columns::<S, MASK, 4>(at);
                            at += wide;
                        } else {
                            self.columns::<S, MASK, 1>(at);
                            at += S::LANES;
                        }
                    }
                },
            )
        }
    }

    /// The sums of `NB` vectors of columns from `at` on.
    ///
    /// # Safety
    /// As for [`ReduceUnit::run`].
    #[inline(always)]
    unsafe fn columns<S: Simd, const MASK: u8, const NB: usize>(&self, at: usize)
    where
        E: Number<S>,
    {
        // SAFETY: the caller's promise.
        unsafe {
            let (mut s1, mut s2) = ([S::zero(); NB], [S::zero(); NB]);
            let mut row = at;
            while row + NB * S::LANES <= self.n {
                for v in 0..NB {
                    let o = v * S::LANES;
                    self.value::<S, MASK, true>(row + o, at + o, S::LANES, &mut s1[v], &mut s2[v]);
                }
                row += self.period;
            }
            for v in 0..NB {
                let o = v * S::LANES;
                let left = self.n.saturating_sub(row + o);
                if left >= S::LANES {
                    self.value::<S, MASK, true>(row + o, at + o, S::LANES, &mut s1[v], &mut s2[v]);
                } else if left > 0 {
                    self.value::<S, MASK, false>(row + o, at + o, left, &mut s1[v], &mut s2[v]);
                }
                S::store(self.out.add(at + o), s1[v]);
                S::store(self.out.add(self.period + at + o), s2[v]);
            }
        }
    }

    /// One vector, or its first `n` values, added to the sums.
    ///
    /// # Safety
    /// As for [`ReduceUnit::run`].
    #[inline(always)]
    unsafe fn value<S: Simd, const MASK: u8, const FULL: bool>(
        &self,
        o: usize,
        channel: usize,
        n: usize,
        s1: &mut S::V,
        s2: &mut S::V,
    ) where
        E: Number<S>,
    {
        // SAFETY: the caller's promise.
        unsafe {
            let (mut g, z) = (E::get::<FULL>(self.dy.add(o), n), E::get::<FULL>(self.z.add(o), n));
            if MASK == 2 {
                g = S::where_positive(E::get::<FULL>(self.y.add(o), n), g);
            } else if MASK == 1 {
                let test = S::fma(z, S::load(self.scale.add(channel)), S::load(self.shift.add(channel)));
                g = S::where_positive(test, g);
            }
            if !self.masked.is_null() {
                E::put::<FULL>(self.masked.add(o), g, n);
            }
            *s1 = S::add(*s1, g);
            *s2 = S::fma(g, S::sub(z, S::load(self.mean.add(channel))), *s2);
        }
    }
}
