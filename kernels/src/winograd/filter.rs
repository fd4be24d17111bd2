//! The filter's transform and its adjoint, straight from and to `[k][c][3][3]`.

use super::PLANES;
use super::transform::{Taps, U};
use crate::gemm::{panel_width, width_at};
use crate::memory::{LINE, Ptr, Scratch, parallel};
use crate::number::Number;
use crate::simd::{Simd, padded};
use std::ops::Range;

/// Rows of a filter in a unit of work.
const ROWS: usize = 32;

/// Distance between planes of a filter of `rows` by `n`; one line more than needed, against cache set conflicts.
pub fn plane<S: Simd, E: Number<S>>(rows: usize, n: usize) -> usize {
    rows.next_multiple_of(E::GROUP) * padded::<S>(n) + LINE * E::GROUP
}

/// A filter `[n][rows][3][3]`, or `[rows][n][3][3]` when `transposed`: rows are summed over, columns are outputs.
#[derive(Clone, Copy)]
pub struct Filter<'a> {
    pub w: &'a [f32],
    pub rows: usize,
    pub n: usize,
    pub transposed: bool,
}

impl Filter<'_> {
    /// `U = G w G^T` as 36 planes of packed panels.
    pub fn transformed<S: Simd, F: Taps, E: Number<S>>(&self) -> Scratch {
        let (rows, n) = (self.rows, self.n);
        let (stride, deep) = (plane::<S, E>(rows, n), rows.next_multiple_of(E::GROUP));
        let u = Scratch::of::<E>(PLANES * stride);
        let to = u.start::<E>();
        let parts = rows.div_ceil(ROWS);
        parallel(n.div_ceil(S::LANES) * parts, |i| {
            let (at, part) = (i / parts * S::LANES, i % parts * ROWS);
            let panel = at / panel_width::<S>() * panel_width::<S>();
            // SAFETY: a unit writes its own columns of its own rows.
            unsafe {
                let out = to.at(panel * deep + (at - panel) * E::GROUP);
                self.columns::<S, F, E>(at, part..(part + ROWS).min(rows), out, width_at::<S>(n, panel), stride);
            }
        });
        u
    }

    /// The transform of one packed panel, from column `panel` on, as 36 planes `stride` apart.
    ///
    /// # Safety
    /// `out` has room for the planes.
    pub unsafe fn panel<S: Simd, F: Taps, E: Number<S>>(&self, panel: usize, out: *mut E, stride: usize) {
        let width = width_at::<S>(self.n, panel);
        for at in (panel..panel + width).step_by(S::LANES) {
            // SAFETY: within the panel.
            unsafe { self.columns::<S, F, E>(at, 0..self.rows, out.add((at - panel) * E::GROUP), width, stride) };
        }
    }

    /// The transform of one vector of columns, from `at` on, of some rows; row 0 goes to `out`, the next `width` later.
    /// The first row begins a group.
    ///
    /// # Safety
    /// `out` has room for these rows in all planes.
    unsafe fn columns<S: Simd, F: Taps, E: Number<S>>(
        &self,
        at: usize,
        some: Range<usize>,
        out: *mut E,
        width: usize,
        stride: usize,
    ) {
        let Filter { w, rows, n, .. } = *self;
        assert!(at < n && some.end <= rows && w.len() == rows * n * 9);
        // SAFETY: sources lie within `w` by the assertion, and `out` is the caller's promise.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    for row in some.clone().step_by(E::GROUP) {
                        let first = self.row::<S, F>(at, row);
                        let second = match E::GROUP {
                            2 if row + 1 < some.end => self.row::<S, F>(at, row + 1),
                            _ => [[S::zero(); U]; U],
                        };
                        let o = out.add(row * width);
                        for i in 0..U {
                            for j in 0..U {
                                E::store_groups(o.add((i * U + j) * stride), [first[i][j], second[i][j]]);
                            }
                        }
                    }
                },
            )
        }
    }

    /// The transform of one row of one vector of columns, from `at` on.
    ///
    /// # Safety
    /// The columns and the row are the filter's.
    #[inline(always)]
    unsafe fn row<S: Simd, F: Taps>(&self, at: usize, row: usize) -> [[S::V; U]; U] {
        let Filter { w, rows, n, transposed } = *self;
        let (first, stride) = if transposed { (row * n + at, 9) } else { (at * rows + row, rows * 9) };
        // SAFETY: sources lie within `w`.
        unsafe {
            let taps = S::load_columns(w.as_ptr().add(first * 9), stride, S::LANES.min(n - at), 9);
            let mut half = [[S::zero(); 3]; U];
            for j in 0..3 {
                let column = F::filter::<S>([taps[j], taps[3 + j], taps[6 + j]]);
                for i in 0..U {
                    half[i][j] = column[i];
                }
            }
            let mut out = [[S::zero(); U]; U];
            for i in 0..U {
                out[i] = F::filter::<S>(half[i]);
            }
            out
        }
    }
}

/// The sum of `n` buffers of `dU`, `size` apart: 36 planes `stride` apart, rows `ld` apart.
#[derive(Clone, Copy)]
pub struct FilterGradients {
    pub du: Ptr,
    pub n: usize,
    pub size: usize,
    pub stride: usize,
    pub ld: usize,
}

/// `dw = G^T dU G` as `[k][c][3][3]`, where `dU` has `c` rows of `k` columns.
///
/// # Safety
/// The buffers hold `c` rows of padded `k` values in every plane, and `dw` has room for the weights and is used by
/// nobody else.
pub unsafe fn gradient<S: Simd, F: Taps>(from: FilterGradients, c: usize, k: usize, dw: Ptr) {
    let parts = c.div_ceil(ROWS);
    parallel(k.div_ceil(S::LANES) * parts, |i| {
        let (at, part) = (i / parts * S::LANES, i % parts * ROWS);
        // SAFETY: a unit writes its own weights; the rest is the caller's promise.
        unsafe { from.columns::<S, F>(at, part..(part + ROWS).min(c), (0, 0), (c, k), dw) };
    });
}

impl FilterGradients {
    /// The weights of one vector of output channels, from `at` on, and some input channels; row and column `origin` of
    /// the filter is row 0, column 0 of the buffers.
    ///
    /// # Safety
    /// The buffers hold these rows and whole vectors, and `dw` is `[k][c][3][3]` for `(c, k)`.
    pub unsafe fn columns<S: Simd, F: Taps>(
        &self,
        at: usize,
        some: Range<usize>,
        origin: (usize, usize),
        (c, k): (usize, usize),
        dw: Ptr,
    ) {
        let lanes = S::LANES.min(k - at);
        // SAFETY: the caller's promise.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    for row in some {
                        let from = self.du.at((row - origin.0) * self.ld + at - origin.1);
                        let mut half = [[S::zero(); U]; 3];
                        for j in 0..U {
                            let mut column = [S::zero(); U];
                            for i in 0..U {
                                let p = from.add((i * U + j) * self.stride);
                                let mut sum = S::load(p);
                                for q in 1..self.n {
                                    sum = S::add(sum, S::load(p.add(q * self.size)));
                                }
                                column[i] = sum;
                            }
                            let column = F::filter_adjoint::<S>(column);
                            for i in 0..3 {
                                half[i][j] = column[i];
                            }
                        }
                        let mut taps = [S::zero(); 16];
                        for i in 0..3 {
                            let values = F::filter_adjoint::<S>(half[i]);
                            for j in 0..3 {
                                taps[i * 3 + j] = values[j];
                            }
                        }
                        S::store_columns(dw.at((at * c + row) * 9), c * 9, lanes, 9, taps);
                    }
                },
            )
        }
    }
}
