//! The filter's transform and its adjoint, straight from and to `[k][c][3][3]`.

use super::PLANES;
use super::transform::{self, T};
use crate::gemm::{panel_width, width_at};
use crate::memory::{LINE, Ptr, Scratch, parallel};
use crate::simd::{Simd, padded};

/// Most lanes of any vector.
const LANES: usize = 16;

/// Distance between planes of a filter of `rows` by `n`; one line more than needed, against cache set conflicts.
pub fn plane<S: Simd>(rows: usize, n: usize) -> usize {
    rows * padded::<S>(n) + LINE
}

/// `U = G w G^T` as 36 planes of packed panels of `rows` by `n`, where `w` is `[n][rows][3][3]`, or `[rows][n][3][3]`
/// when `transposed`.
pub fn transformed<S: Simd>(w: &[f32], rows: usize, n: usize, transposed: bool) -> Scratch {
    let stride = plane::<S>(rows, n);
    let u = Scratch::new(PLANES * stride);
    let to = u.ptr();
    let blocks = n.div_ceil(S::LANES);
    let parts = rows.div_ceil(32);
    parallel(blocks * parts, |i| {
        let (block, part) = (i / parts, i % parts);
        let at = block * S::LANES;
        let lanes = S::LANES.min(n - at);
        let panel = at / panel_width::<S>() * panel_width::<S>();
        let width = width_at::<S>(n, panel);
        // SAFETY: a unit writes its own columns of its own rows; `taps` has LANES values a row and lanes <= LANES.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    for row in part * 32..(part * 32 + 32).min(rows) {
                        let mut taps = [[0.0f32; LANES]; 9];
                        for lane in 0..lanes {
                            let from = if transposed { row * n + at + lane } else { (at + lane) * rows + row } * 9;
                            let source = w.get_unchecked(from..from + 9);
                            for t in 0..9 {
                                taps[t][lane] = source[t];
                            }
                        }
                        let mut half = [[S::zero(); 3]; T];
                        for j in 0..3 {
                            let column = [
                                S::load(taps[j].as_ptr()),
                                S::load(taps[3 + j].as_ptr()),
                                S::load(taps[6 + j].as_ptr()),
                            ];
                            let column = transform::filter::<S>(column);
                            for i in 0..T {
                                half[i][j] = column[i];
                            }
                        }
                        let o = to.at(panel * rows + row * width + at - panel);
                        for i in 0..T {
                            let values = transform::filter::<S>(half[i]);
                            for j in 0..T {
                                S::store(o.add((i * T + j) * stride), values[j]);
                            }
                        }
                    }
                },
            )
        }
    });
    u
}

/// `dw = G^T dU G` as `[k][c][3][3]`, where `dU` is the sum of `n` buffers of 36 planes `[c][padded k]`, `size` apart.
pub fn gradient<S: Simd>(du: Ptr, n: usize, size: usize, c: usize, k: usize, dw: Ptr) {
    let (stride, kp) = (plane::<S>(c, k), padded::<S>(k));
    let blocks = k.div_ceil(S::LANES);
    let parts = c.div_ceil(32);
    parallel(blocks * parts, |i| {
        let (block, part) = (i / parts, i % parts);
        let at = block * S::LANES;
        let lanes = S::LANES.min(k - at);
        // SAFETY: a unit writes its own channels of dw, reads whole padded vectors of dU, and lanes <= LANES.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    for row in part * 32..(part * 32 + 32).min(c) {
                        let from = du.at(row * kp + at);
                        let mut half = [[S::zero(); T]; 3];
                        for j in 0..T {
                            let mut column = [S::zero(); T];
                            for i in 0..T {
                                let p = from.add((i * T + j) * stride);
                                let mut sum = S::load(p);
                                for q in 1..n {
                                    sum = S::add(sum, S::load(p.add(q * size)));
                                }
                                column[i] = sum;
                            }
                            let column = transform::filter_adjoint::<S>(column);
                            for i in 0..3 {
                                half[i][j] = column[i];
                            }
                        }
                        let mut taps = [[0.0f32; LANES]; 9];
                        for i in 0..3 {
                            let values = transform::filter_adjoint::<S>(half[i]);
                            for j in 0..3 {
                                S::store(taps[i * 3 + j].as_mut_ptr(), values[j]);
                            }
                        }
                        for lane in 0..lanes {
                            let o = dw.at(((at + lane) * c + row) * 9);
                            for t in 0..9 {
                                *o.add(t) = taps[t][lane];
                            }
                        }
                    }
                },
            )
        }
    });
}
