//! Batch norm's gradient by the convolution's output.

use crate::number::Number;
use crate::simd::Simd;
use std::ops::Range;

/// The gradient by the convolution's output, evaluated where it is needed instead of being stored:
/// `dz = scale mask(g) + p z + q`, where `mask` keeps `g` where `z scale + shift > 0` when `relu`.
pub struct Gradient<'a, E> {
    /// The gradient by the layer's output, already masked unless `relu`.
    pub g: &'a [E],
    /// The convolution's output.
    pub z: &'a [E],
    /// `[views][4][stride]`: scale, shift, p and q, each padded to whole vectors.
    pub coefficients: &'a [f32],
    /// Channels rounded up to whole vectors.
    pub stride: usize,
    /// Whether `g` is still to be masked.
    pub relu: bool,
}

impl<E> Gradient<'_, E> {
    /// The coefficients of a view from channel `at` on: scale, shift, p, q.
    ///
    /// # Safety
    /// The view exists, and `at` is a multiple of the lanes below `stride`.
    #[inline(always)]
    pub unsafe fn at<S: Simd>(&self, view: usize, at: usize) -> [S::V; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let c = self.coefficients.as_ptr().add(view * 4 * self.stride + at);
            [S::load(c), S::load(c.add(self.stride)), S::load(c.add(2 * self.stride)), S::load(c.add(3 * self.stride))]
        }
    }

    /// One vector of `dz` at offset `o`, or its first `n` values.
    ///
    /// # Safety
    /// The values lie within the tensors.
    #[inline(always)]
    pub unsafe fn value<S: Simd, const FULL: bool>(&self, o: usize, n: usize, [a, b, p, q]: [S::V; 4]) -> S::V
    where
        E: Number<S>,
    {
        // SAFETY: the caller's promise.
        unsafe {
            let z = E::get::<FULL>(self.z.as_ptr().add(o), n);
            let mut g = E::get::<FULL>(self.g.as_ptr().add(o), n);
            if self.relu {
                g = S::where_positive(S::fma(z, a, b), g);
            }
            S::fma(a, g, S::fma(p, z, q))
        }
    }

    /// Writes some columns of `pixels` pixels of `dz` from pixel `from` on to `out`, `ldo` values apart; whole vectors
    /// are written when `ldo` leaves room for them.
    ///
    /// # Safety
    /// The pixels lie within the tensors and one view, and `out` has room.
    pub unsafe fn write<S: Simd>(
        &self,
        view: usize,
        from: usize,
        pixels: usize,
        (channels, columns): (usize, Range<usize>),
        out: *mut E,
        ldo: usize,
    ) where
        E: Number<S>,
    {
        // SAFETY: the caller's promise.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    for at in columns.clone().step_by(S::LANES) {
                        let coefficients = self.at::<S>(view, at);
                        let left = channels - at;
                        for pixel in 0..pixels {
                            let (o, to) = ((from + pixel) * channels + at, out.add(pixel * ldo + at - columns.start));
                            if left >= S::LANES {
                                E::put::<true>(to, self.value::<S, true>(o, left, coefficients), left);
                            } else {
                                let v = self.value::<S, false>(o, left, coefficients);
                                if at - columns.start + S::LANES <= ldo {
                                    E::put::<true>(to, v, left)
                                } else {
                                    E::put::<false>(to, v, left)
                                }
                            }
                        }
                    }
                },
            )
        }
    }
}
