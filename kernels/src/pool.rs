//! Max pooling on channel-last maps, with its gradient.

use crate::memory::{Ptr, Scratch, parallel};
use crate::number::Number;
use crate::simd::Simd;

/// Input `[b, h, w, c]` and the windows on it.
#[derive(Clone, Copy, Debug)]
pub struct PoolGeometry {
    pub b: usize,
    pub h: usize,
    pub w: usize,
    pub c: usize,
    pub size: usize,
    pub stride: usize,
    pub padding: usize,
}

impl PoolGeometry {
    /// Height and width of the output.
    pub fn output(&self) -> (usize, usize) {
        let side = |n: usize| (n + 2 * self.padding - self.size) / self.stride + 1;
        (side(self.h), side(self.w))
    }

    /// The taps of the window of output `o` along an axis of `n` values that fall on the map.
    fn taps(&self, o: usize, n: usize) -> std::ops::Range<usize> {
        let from = o * self.stride;
        let low = self.padding.saturating_sub(from).min(self.size);
        low..(n + self.padding).saturating_sub(from).min(self.size).max(low)
    }
}

/// The maximum of each window, and which tap it came from (the first of equals).
pub fn forward<S: Simd, E: Number<S>>(g: &PoolGeometry, x: &[E], y: &mut [E], tap: &mut [u16]) {
    let (oh, ow) = g.output();
    let (c, len) = (g.c, ow * g.c);
    assert!(x.len() == g.b * g.h * g.w * c && y.len() == g.b * oh * len && tap.len() == y.len());
    let (yp, tp) = (Ptr(y.as_mut_ptr()), Ptr(tap.as_mut_ptr()));
    parallel(g.b * oh, |row| {
        // SAFETY: unit `row` writes its own row of the output, which both slices have.
        let (y, tap) = unsafe {
            let (y, tap) = (yp.at(row * len), tp.at(row * len));
            (std::slice::from_raw_parts_mut(y, len), std::slice::from_raw_parts_mut(tap, len))
        };
        let (image, oy) = (row / oh, row % oh);
        // SAFETY: plain safe code, compiled for the level's CPU.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    y.fill(E::nearest(f32::NEG_INFINITY));
                    tap.fill(0);
                    for ox in 0..ow {
                        let (y, tap) = (&mut y[ox * c..][..c], &mut tap[ox * c..][..c]);
                        for i in g.taps(oy, g.h) {
                            for j in g.taps(ox, g.w) {
                                let (yy, xx) = (oy * g.stride + i - g.padding, ox * g.stride + j - g.padding);
                                let x = &x[((image * g.h + yy) * g.w + xx) * c..][..c];
                                let t = (i * g.size + j) as u16;
                                for ((x, y), tap) in x.iter().zip(y.iter_mut()).zip(tap.iter_mut()) {
                                    let wins = x.wide() > y.wide();
                                    *y = if wins { *x } else { *y };
                                    *tap = if wins { t } else { *tap };
                                }
                            }
                        }
                    }
                },
            )
        }
    });
}

/// Sends each output's gradient to the tap it came from; windows that share a pixel add up in f32.
pub fn backward<S: Simd, E: Number<S>>(g: &PoolGeometry, dy: &[E], tap: &[u16], dx: &mut [E]) {
    let (oh, ow) = g.output();
    let (c, image) = (g.c, g.h * g.w * g.c);
    assert!(dx.len() == g.b * image && dy.len() == g.b * oh * ow * c && tap.len() == dy.len());
    let dxp = Ptr(dx.as_mut_ptr());
    parallel(g.b, |b| {
        let mut sums = Scratch::zeroed(image);
        let sums = sums.as_mut();
        // SAFETY: unit `b` writes its own image.
        let dx = unsafe { std::slice::from_raw_parts_mut(dxp.at(b * image), image) };
        // SAFETY: plain safe code, compiled for the level's CPU.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    for o in 0..oh * ow {
                        let (oy, ox) = (o / ow, o % ow);
                        let at = (b * oh * ow + o) * c;
                        let (dy, tap) = (&dy[at..][..c], &tap[at..][..c]);
                        for i in g.taps(oy, g.h) {
                            for j in g.taps(ox, g.w) {
                                let (yy, xx) = (oy * g.stride + i - g.padding, ox * g.stride + j - g.padding);
                                let sums = &mut sums[(yy * g.w + xx) * c..][..c];
                                let t = (i * g.size + j) as u16;
                                for ((sum, dy), tap) in sums.iter_mut().zip(dy).zip(tap) {
                                    *sum += if *tap == t { dy.wide() } else { 0.0 };
                                }
                            }
                        }
                    }
                    for (dx, sum) in dx.iter_mut().zip(sums.iter()) {
                        *dx = E::nearest(*sum);
                    }
                },
            )
        }
    });
}
