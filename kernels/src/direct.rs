//! Every convolution that Winograd does not serve, as a matrix product without an unfolded copy of the input.
//!
//! In channel-last memory the part of a window that lies in one row of the input is contiguous. With padding, a unit of
//! work copies the few input rows it needs into a strip with zeros around; without, it reads the input itself. Either
//! way the window of an output pixel is `kh` segments of `kw * c` values a fixed distance apart, which is what the
//! *rows* micro-kernel reads. The input gradient is the same thing on the output's gradient, once for each residue of
//! the pixel's coordinates modulo the stride, because all pixels of a residue use the same taps.

mod gradient;

pub use gradient::{input_gradient, weight_gradient};

use crate::gemm::{Left, panel_width, rows_block, width_at};
use crate::memory::{Ptr, Scratch, parallel};
use crate::norm::{self, statistics_len};
use crate::simd::{MAX_ROWS, Simd, padded};
use crate::winograd::Finish;
use std::ops::Range;

/// The shape of a layer: input `[b, h, w, c]`, filter `[k, c, kh, kw]`, views of the batch.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
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
}

/// Some rows of one image, or several whole images.
#[derive(Clone, Copy, Debug)]
struct Unit {
    image: usize,
    images: usize,
    top: usize,
    bottom: usize,
}

/// How the rows of a batch of maps are cut into units of about `pixels` pixels, none across two views.
#[derive(Clone, Copy)]
struct Cut {
    rows: usize,
    images_per_view: usize,
    /// Images of a unit, when whole maps are small.
    images: usize,
    /// Rows of a unit, when a map is cut.
    strip: usize,
}

impl Cut {
    fn new(rows: usize, columns: usize, images_per_view: usize, pixels: usize) -> Cut {
        let map = rows * columns;
        let images = (pixels / map).clamp(1, images_per_view);
        // strips of one map differ by at most one row
        let strips = map.div_ceil(pixels).min(rows);
        Cut { rows, images_per_view, images, strip: rows.div_ceil(strips) }
    }

    fn units_per_view(&self) -> usize {
        self.images_per_view.div_ceil(self.images) * self.rows.div_ceil(self.strip)
    }

    fn unit(&self, u: usize) -> Unit {
        let strips = self.rows.div_ceil(self.strip);
        let (view, i) = (u / self.units_per_view(), u % self.units_per_view());
        let (first, top) = (i / strips * self.images, i % strips * self.strip);
        Unit {
            image: view * self.images_per_view + first,
            images: self.images.min(self.images_per_view - first),
            top,
            bottom: (top + self.strip).min(self.rows),
        }
    }
}

/// Tasks that every loop should have at least, for the sake of many threads.
const TASKS: usize = 16;

/// `n` columns in runs of whole panels, as many as `units` units of other work leave wanting.
fn column_groups<S: Simd>(n: usize, units: usize) -> Vec<Range<usize>> {
    let width = panel_width::<S>();
    let panels = n.div_ceil(width);
    let groups = TASKS.div_ceil(units).min(panels);
    (0..groups).map(|i| i * panels / groups * width..((i + 1) * panels / groups * width).min(n)).collect()
}

impl Geometry {
    /// Height of the output.
    pub fn oh(&self) -> usize {
        (self.h + 2 * self.padding - self.kh) / self.stride + 1
    }

    /// Width of the output.
    pub fn ow(&self) -> usize {
        (self.w + 2 * self.padding - self.kw) / self.stride + 1
    }

    /// Values of a window.
    fn window(&self) -> usize {
        self.kh * self.kw * self.c
    }

    /// Pixels in a unit: more for large filters, which every unit reads once.
    fn pixels(&self) -> usize {
        if self.window() * self.k > 1 << 18 { 256 } else { 128 }
    }

    fn cut(&self) -> Cut {
        Cut::new(self.oh(), self.ow(), self.b / self.views, self.pixels())
    }

    /// Units of the forward pass per view.
    pub fn units_per_view(&self) -> usize {
        self.cut().units_per_view()
    }

    /// First output pixel of a unit and how many it has; they are contiguous.
    fn pixels_of(&self, u: &Unit) -> (usize, usize) {
        let row = self.ow();
        ((u.image * self.oh() + u.top) * row, u.images * (u.bottom - u.top) * row)
    }

    /// Values of the strip that [`Geometry::windows`] needs.
    fn strip_len(&self, u: &Unit) -> usize {
        if self.padding == 0 { 0 } else { u.images * self.strip_rows(u) * self.strip_columns() * self.c }
    }

    fn strip_rows(&self, u: &Unit) -> usize {
        (u.bottom - u.top - 1) * self.stride + self.kh
    }

    fn strip_columns(&self) -> usize {
        (self.ow() - 1) * self.stride + self.kw
    }

    /// Where the window of each output pixel of a unit begins, and the distance of its segments.
    ///
    /// # Safety
    /// `x` is the whole input, `strip` has [`Geometry::strip_len`] values.
    unsafe fn windows(&self, u: &Unit, x: *const f32, strip: *mut f32) -> (Vec<*const f32>, usize) {
        let (rows, columns, c) = (self.strip_rows(u), self.strip_columns(), self.c);
        let mut windows = Vec::with_capacity(self.pixels_of(u).1);
        for i in 0..u.images {
            let (base, line) = if self.padding == 0 {
                // SAFETY: without padding every window lies within its image.
                (unsafe { x.add(((u.image + i) * self.h + u.top * self.stride) * self.w * c) }, self.w)
            } else {
                // SAFETY: the strip has room for `images` times `rows` rows.
                unsafe {
                    let strip = strip.add(i * rows * columns * c);
                    let image = x.add((u.image + i) * self.h * self.w * c);
                    for r in 0..rows {
                        let y = (u.top * self.stride + r).wrapping_sub(self.padding);
                        let source = (y < self.h).then(|| image.add(y * self.w * c));
                        copy_row(source, self.w, self.padding, strip.add(r * columns * c), columns, c);
                    }
                    (strip as *const f32, columns)
                }
            };
            for y in 0..u.bottom - u.top {
                for column in 0..self.ow() {
                    // SAFETY: within the image or the strip, as above.
                    windows.push(unsafe { base.add((y * line + column) * self.stride * c) });
                }
            }
        }
        let line = if self.padding == 0 { self.w } else { columns };
        (windows, line * c)
    }
}

/// Copies a row of `w` pixels behind `padding` pixels of zeros, `columns` pixels in all; all zeros without a source.
///
/// # Safety
/// The source holds `w` pixels of `c` values and `to` `columns` pixels.
unsafe fn copy_row(source: Option<*const f32>, w: usize, padding: usize, to: *mut f32, columns: usize, c: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match source {
            Some(source) => {
                let (before, n) = (padding.min(columns), w.min(columns.saturating_sub(padding)));
                std::ptr::write_bytes(to, 0, before * c);
                std::ptr::copy_nonoverlapping(source, to.add(before * c), n * c);
                std::ptr::write_bytes(to.add((before + n) * c), 0, (columns - before - n) * c);
            }
            None => std::ptr::write_bytes(to, 0, columns * c),
        }
    }
}

/// The taps `[kh][kw]` of a filter `[k][c][kh][kw]` in packed panels of `taps * rows` by `n` columns: rows are input
/// channels and columns output channels, or the other way round when `transposed`. `taps` gives the source tap of each.
fn pack<S: Simd>(w: &[f32], taps: &[usize], of: usize, rows: usize, n: usize, transposed: bool) -> Scratch {
    let depth = taps.len() * rows;
    let packed = Scratch::new(depth * padded::<S>(n));
    let to = packed.ptr();
    let blocks = n.div_ceil(S::LANES);
    parallel(blocks * taps.len(), |i| {
        let (block, t) = (i / taps.len(), i % taps.len());
        let at = block * S::LANES;
        let lanes = S::LANES.min(n - at);
        let panel = at / panel_width::<S>() * panel_width::<S>();
        let width = width_at::<S>(n, panel);
        for row in 0..rows {
            // SAFETY: a unit writes its own columns of its own tap, within the panel that holds them.
            unsafe {
                let o = to.at(panel * depth + (t * rows + row) * width + at - panel);
                for lane in 0..lanes {
                    let from = if transposed { row * n + at + lane } else { (at + lane) * rows + row };
                    *o.add(lane) = w[from * of + taps[t]];
                }
                for lane in lanes..S::LANES {
                    *o.add(lane) = 0.0;
                }
            }
        }
    });
    packed
}

/// `y = conv(x, w)`, finished as asked.
///
/// # Safety
/// All tensors have the sizes of the geometry.
pub unsafe fn forward<S: Simd>(g: &Geometry, x: &[f32], w: &[f32], y: Ptr, finish: Finish) {
    let taps: Vec<usize> = (0..g.kh * g.kw).collect();
    let packed = pack::<S>(w, &taps, taps.len(), g.c, g.k, false);
    let (xp, wp, cut, kp) = (Ptr(x.as_ptr() as *mut f32), packed.ptr(), g.cut(), padded::<S>(g.k));
    let units = g.views * cut.units_per_view();
    let groups = column_groups::<S>(g.k, units);
    // SAFETY: tasks write disjoint runs of output pixels, or disjoint channels of the same, and their own statistics.
    parallel(units * groups.len(), |task| unsafe {
        let (i, columns) = (task / groups.len(), groups[task % groups.len()].clone());
        let unit = cut.unit(i);
        let (first, n) = g.pixels_of(&unit);
        let strip = Scratch::new(g.strip_len(&unit));
        let (windows, stride) = g.windows(&unit, xp.at(0), strip.ptr().0);
        let left = Left { row: [xp.at(0); MAX_ROWS], segments: g.kh, stride, len: g.kw * g.c };
        let to = y.at(first * g.k);
        products::<S>(&windows, left, wp.at(0), g.k, columns.clone(), |pixel| to.wrapping_add(pixel * g.k));
        match finish {
            Finish::Statistics(s) => {
                norm::statistics::<S>(to, n, g.k, columns, s.at(i * statistics_len(kp)), kp);
            }
            Finish::Affine { scale, shift, residual, relu } => {
                let residual = residual.map(|r| r.as_ptr().add(first * g.k));
                affine::<S>((to, n, g.k), columns, scale, shift, residual, relu);
            }
        }
    });
}

/// Some columns of the rows `out(i) = left(i) B` of `n` columns, for every left side in `rows`; `shape` gives its
/// segments. Columns begin at a panel.
///
/// # Safety
/// Left sides are readable, outputs writable for `n` values, `b` holds the packed panels.
#[inline(always)]
unsafe fn products<S: Simd>(
    rows: &[*const f32],
    shape: Left,
    b: *const f32,
    n: usize,
    columns: Range<usize>,
    out: impl Fn(usize) -> *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                let depth = shape.segments * shape.len;
                for column in columns.step_by(panel_width::<S>()) {
                    let width = width_at::<S>(n, column);
                    for first in (0..rows.len()).step_by(S::ROWS) {
                        let count = S::ROWS.min(rows.len() - first);
                        let mut left = shape;
                        let mut to = [std::ptr::null_mut(); MAX_ROWS];
                        for r in 0..S::ROWS {
                            left.row[r] = rows[first + r.min(count - 1)];
                            to[r] = out(first + r.min(count - 1)).wrapping_add(column);
                        }
                        let panel = b.add(column * depth);
                        rows_block::<S>(&left, panel, width, &to, count, width.min(n - column));
                    }
                }
            },
        )
    }
}

/// `z = relu?(z scale + shift + residual)` on some columns of `n` rows of `k` values, in place.
///
/// # Safety
/// The rows are this thread's; scale and shift are padded to whole vectors.
unsafe fn affine<S: Simd>(
    (z, n, k): (*mut f32, usize, usize),
    columns: Range<usize>,
    scale: &[f32],
    shift: &[f32],
    residual: Option<*const f32>,
    relu: bool,
) {
    /// One vector, or its first `lanes` values.
    ///
    /// # Safety
    /// `z` and the residual hold the values.
    #[inline(always)]
    unsafe fn value<S: Simd, const FULL: bool>(
        z: *mut f32,
        lanes: usize,
        a: S::V,
        b: S::V,
        residual: Option<*const f32>,
        relu: bool,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut v = S::fma(S::get::<FULL>(z, lanes), a, b);
            if let Some(r) = residual {
                v = S::add(v, S::get::<FULL>(r, lanes));
            }
            if relu {
                v = S::max(S::zero(), v);
            }
            S::put::<FULL>(z, v, lanes);
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                for row in 0..n {
                    for at in columns.clone().step_by(S::LANES) {
                        let o = row * k + at;
                        let (a, b) = (S::load(scale.as_ptr().add(at)), S::load(shift.as_ptr().add(at)));
                        let r = residual.map(|r| r.add(o));
                        if at + S::LANES <= k {
                            value::<S, true>(z.add(o), S::LANES, a, b, r, relu);
                        } else {
                            value::<S, false>(z.add(o), k - at, a, b, r, relu);
                        }
                    }
                }
            },
        )
    }
}
