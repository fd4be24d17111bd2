//! Every convolution that Winograd does not serve, as a matrix product without an unfolded copy of the input.
//!
//! In channel-last memory the part of a window that lies in one row of the input is contiguous. With padding, a unit of
//! work copies the few input rows it needs into a strip with zeros around; without, it reads the input itself. Either
//! way the window of an output pixel is `kh` segments of `kw * c` values a fixed distance apart, which is what the
//! *rows* micro-kernel reads. The input gradient is the same thing on the output's gradient, once for each residue of
//! the pixel's coordinates modulo the stride, because all pixels of a residue use the same taps.
//!
//! In bf16, where two values are multiplied at a time, a segment of odd length takes in the value behind it, which meets a
//! zero of the filter; strips have room for it, and an input without padding goes through a strip too.

mod gradient;

pub use gradient::{input_gradient, weight_gradient};

use crate::gemm::{Left, panel_width, rows_block, width_at};
use crate::memory::{Ptr, Scratch, parallel};
use crate::norm::{self, statistics_len};
use crate::number::Number;
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

    /// Whether windows are read from a strip: their surroundings are not in the input.
    fn has_strip(&self, group: usize) -> bool {
        self.padding > 0 || !(self.kw * self.c).is_multiple_of(group)
    }

    /// Values of the strip that [`Geometry::windows`] needs for numbers in groups.
    fn strip_len(&self, u: &Unit, group: usize) -> usize {
        let len = u.images * self.strip_rows(u) * self.strip_columns() * self.c;
        if self.has_strip(group) { len + group - 1 } else { 0 }
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
    unsafe fn windows<S: Simd, E: Number<S>>(&self, u: &Unit, x: *const E, strip: *mut E) -> (Vec<*const E>, usize) {
        let has_strip = self.has_strip(E::GROUP);
        let (rows, columns, c) = (self.strip_rows(u), self.strip_columns(), self.c);
        let mut windows = Vec::with_capacity(self.pixels_of(u).1);
        for i in 0..u.images {
            let (base, line) = if !has_strip {
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
                    (strip as *const E, columns)
                }
            };
            for y in 0..u.bottom - u.top {
                for column in 0..self.ow() {
                    // SAFETY: within the image or the strip, as above.
                    windows.push(unsafe { base.add((y * line + column) * self.stride * c) });
                }
            }
        }
        if has_strip {
            // SAFETY: `strip_len` counts what is behind the last window of a group.
            unsafe { std::ptr::write_bytes(strip.add(u.images * rows * columns * c), 0, E::GROUP - 1) };
        }
        let line = if has_strip { columns } else { self.w };
        (windows, line * c)
    }
}

/// Copies a row of `w` pixels behind `padding` pixels of zeros, `columns` pixels in all; all zeros without a source.
///
/// # Safety
/// The source holds `w` pixels of `c` values and `to` `columns` pixels.
unsafe fn copy_row<E>(source: Option<*const E>, w: usize, padding: usize, to: *mut E, columns: usize, c: usize) {
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

/// [`Pack`] of a kernel of one tap, 16 rows at a time: `lanes` columns of `rows` contiguous values.
///
/// # Safety
/// `w` holds the columns, and `out` has room for the rows, a group every `GROUP * width` values.
unsafe fn pack_matrix<S: Simd, E: Number<S>>(w: *const f32, rows: usize, lanes: usize, out: *mut E, width: usize) {
    // SAFETY: the caller's promise; what is behind the last row is zero, and fills its group.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                for row in (0..rows).step_by(16) {
                    let n = 16.min(rows - row);
                    let columns = S::load_columns(w.add(row), rows, lanes, n);
                    for i in (0..n).step_by(E::GROUP) {
                        let members = [columns[i], columns[(i + 1) % 16]];
                        E::store_groups(out.add((row + i) * width), members);
                    }
                }
            },
        )
    }
}

/// Rounds and writes a vector of groups.
///
/// # Safety
/// `to` has room for it.
#[inline(always)]
unsafe fn store<S: Simd, E: Number<S>>(to: *mut E, members: &[[f32; 16]; 2]) {
    // SAFETY: the caller's promise; no vector has more than 16 lanes.
    unsafe {
        S::run(
            #[inline(always)]
            || E::store_groups(to, [S::load(members[0].as_ptr()), S::load(members[1].as_ptr())]),
        )
    }
}

/// Some taps of a filter `[k][c][kh][kw]` as the right side of products: rows are input channels and columns output
/// channels, or the other way round when `transposed`.
struct Pack<'a> {
    w: &'a [f32],
    /// Source tap of each tap, segment after segment.
    taps: &'a [usize],
    /// Taps in a segment.
    segment: usize,
    /// Taps of the whole filter.
    of: usize,
    rows: usize,
    n: usize,
    transposed: bool,
}

impl Pack<'_> {
    /// Rows of the packed panels: every segment ends with a whole group.
    fn depth(&self, group: usize) -> usize {
        self.taps.len() / self.segment * (self.segment * self.rows).next_multiple_of(group)
    }

    /// Packed panels, see [`crate::gemm`].
    fn packed<S: Simd, E: Number<S>>(&self) -> Scratch {
        let Pack { w, taps, segment, of, rows, n, transposed } = *self;
        assert_eq!(w.len(), rows * n * of);
        let depth = self.depth(E::GROUP);
        let packed = Scratch::of::<E>(depth * padded::<S>(n));
        let to = packed.start::<E>();
        let blocks = n.div_ceil(S::LANES);
        let segments = taps.len() / segment;
        parallel(blocks * segments, |i| {
            let (block, segment_at) = (i / segments, i % segments);
            let at = block * S::LANES;
            let lanes = S::LANES.min(n - at);
            let panel = at / panel_width::<S>() * panel_width::<S>();
            let width = width_at::<S>(n, panel);
            let (own, taps) = (segment * rows, &taps[segment_at * segment..][..segment]);
            let lane_step = if transposed { of } else { rows * of };
            // SAFETY: the filter's length is checked above; a unit writes its own columns of its own segment, within the
            // panel that holds them.
            unsafe {
                let first = segment_at * own.next_multiple_of(E::GROUP);
                let out = to.at(panel * depth + first * width + (at - panel) * E::GROUP);
                if of == 1 && !transposed {
                    return pack_matrix::<S, E>(w.as_ptr().add(at * rows), rows, lanes, out, width);
                }
                let mut members = [[0.0f32; 16]; 2];
                let mut deep = 0;
                for tap in taps {
                    for row in 0..rows {
                        let from = if transposed { row * n + at } else { at * rows + row };
                        let source = w.as_ptr().add(from * of + tap);
                        let member = &mut members[deep % E::GROUP];
                        for (lane, v) in member.iter_mut().enumerate().take(lanes) {
                            *v = *source.add(lane * lane_step);
                        }
                        deep += 1;
                        if deep.is_multiple_of(E::GROUP) {
                            store::<S, E>(out.add((deep - E::GROUP) * width), &members);
                        }
                    }
                }
                if !deep.is_multiple_of(E::GROUP) {
                    members[1] = [0.0; 16];
                    store::<S, E>(out.add((deep - 1) * width), &members);
                }
            }
        });
        packed
    }
}

/// `y = conv(x, w)`, finished as asked.
///
/// # Safety
/// All tensors have the sizes of the geometry.
pub unsafe fn forward<S: Simd, E: Number<S>>(g: &Geometry, x: &[E], w: &[f32], y: Ptr<E>, finish: Finish<E>) {
    let taps: Vec<usize> = (0..g.kh * g.kw).collect();
    let pack = Pack { w, taps: &taps, segment: g.kw, of: taps.len(), rows: g.c, n: g.k, transposed: false };
    let packed = pack.packed::<S, E>();
    let (xp, wp, cut, kp) = (Ptr::to(x), packed.start::<E>(), g.cut(), padded::<S>(g.k));
    let units = g.views * cut.units_per_view();
    let groups = column_groups::<S>(g.k, units);
    // SAFETY: tasks write disjoint runs of output pixels, or disjoint channels of the same, and their own statistics.
    parallel(units * groups.len(), |task| unsafe {
        let (i, columns) = (task / groups.len(), groups[task % groups.len()].clone());
        let unit = cut.unit(i);
        let (first, n) = g.pixels_of(&unit);
        let strip = Scratch::of::<E>(g.strip_len(&unit, E::GROUP));
        let (windows, stride) = g.windows::<S, E>(&unit, xp.at(0), strip.start().0);
        let left = Left { row: [xp.at(0); MAX_ROWS], segments: g.kh, stride, len: g.kw * g.c };
        let to = y.at(first * g.k);
        products::<S, E>(&windows, left, wp.at(0), g.k, columns.clone(), |pixel| to.wrapping_add(pixel * g.k));
        match finish {
            Finish::Statistics(s) => {
                norm::statistics::<S, E>(to, n, g.k, columns, s.at(i * statistics_len(kp)), kp);
            }
            Finish::Affine { scale, shift, residual, relu } => {
                let residual = residual.map(|r| r.as_ptr().add(first * g.k));
                affine::<S, E>((to, n, g.k), columns, scale, shift, residual, relu);
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
unsafe fn products<S: Simd, E: Number<S>>(
    rows: &[*const E],
    shape: Left<E>,
    b: *const E,
    n: usize,
    columns: Range<usize>,
    out: impl Fn(usize) -> *mut E,
) {
    // SAFETY: the caller's promise.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                let depth = shape.segments * shape.len.next_multiple_of(E::GROUP);
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
                        rows_block::<S, E, E>(&left, panel, width, &to, count, width.min(n - column));
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
unsafe fn affine<S: Simd, E: Number<S>>(
    (z, n, k): (*mut E, usize, usize),
    columns: Range<usize>,
    scale: &[f32],
    shift: &[f32],
    residual: Option<*const E>,
    relu: bool,
) {
    /// One vector, or its first `lanes` values.
    ///
    /// # Safety
    /// `z` and the residual hold the values.
    #[inline(always)]
    unsafe fn value<S: Simd, E: Number<S>, const FULL: bool>(
        z: *mut E,
        lanes: usize,
        a: S::V,
        b: S::V,
        residual: Option<*const E>,
        relu: bool,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut v = S::fma(E::get::<FULL>(z, lanes), a, b);
            if let Some(r) = residual {
                v = S::add(v, E::get::<FULL>(r, lanes));
            }
            if relu {
                v = S::max(S::zero(), v);
            }
            E::put::<FULL>(z, v, lanes);
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
                            value::<S, E, true>(z.add(o), S::LANES, a, b, r, relu);
                        } else {
                            value::<S, E, false>(z.add(o), k - at, a, b, r, relu);
                        }
                    }
                }
            },
        )
    }
}
