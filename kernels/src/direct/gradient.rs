//! The gradients of a direct convolution by its weights and by its input.

use super::{Cut, Geometry, Pack, TASKS, Unit, column_groups, products};
use crate::gemm::{Left, Rows, outer};
use crate::memory::{Ptr, Scratch, parallel};
use crate::norm::Gradient;
use crate::number::Number;
use crate::simd::{MAX_ROWS, Simd, padded};
use std::ops::Range;

/// Memory for partial weight gradients, in values (16 MiB).
const PARTIAL: usize = 1 << 22;

/// `dw` as `[k][c][kh][kw]`: outer products of windows and output gradients, in a fixed number of partial sums.
///
/// # Safety
/// All tensors have the sizes of the geometry.
pub unsafe fn weight_gradient<S: Simd, E: Number<S>>(g: &Geometry, x: &[E], d: &Gradient<E>, dw: Ptr) {
    let (kp, cut) = (padded::<S>(g.k), g.cut());
    let (size, units) = (g.window() * kp, g.views * cut.units_per_view());
    let groups = (PARTIAL / size).clamp(1, TASKS).min(units);
    // with few groups, each row of the kernel is a task of its own, and then some of the columns, at the price of
    // preparing their input again
    let split = if groups < TASKS { g.kh } else { 1 };
    let rows = g.kh / split;
    let columns = column_groups::<S>(g.k, groups * split);
    let partial = Scratch::new(groups * size);
    let (xp, pp) = (Ptr::to(x), partial.ptr());
    // SAFETY: a task writes its own columns of its own kernel rows of its own group's partial sum.
    parallel(groups * split * columns.len(), |task| unsafe {
        let (task, columns) = (task / columns.len(), columns[task % columns.len()].clone());
        let (group, row) = (task / split, task % split * rows);
        let to = pp.at(group * size + row * g.kw * g.c * kp + columns.start);
        let (first_unit, last) = (group * units / groups, (group + 1) * units / groups);
        let ld = padded::<S>(columns.len());
        for u in first_unit..last {
            let unit = cut.unit(u);
            let (first, n) = g.pixels_of(&unit);
            let (strip, dz) = (Scratch::of::<E>(g.strip_len(&unit, E::GROUP)), Scratch::of::<E>(n * ld));
            let (windows, stride) = g.windows::<S, E>(&unit, xp.at(0), strip.start().0);
            let line = g.kw * g.c;
            let space = Scratch::of::<E>(E::grouped_len(n, line) + E::grouped_len(n, ld));
            let space = space.start::<E>();
            let view = unit.image / (g.b / g.views);
            d.write::<S>(view, first, n, (g.k, columns.clone()), dz.start().0, ld);
            let right = Rows::Strided(dz.start::<E>().0 as *const E, ld);
            let Rows::Strided(right, ldb) = E::grouped(n, ld, right, space.at(E::grouped_len(n, line))) else {
                unreachable!("rows at a stride stay so")
            };
            for i in 0..rows {
                let left = E::grouped(n, line, Rows::Indirect(&windows, (row + i) * stride), space.0);
                let (groups, out) = (n.div_ceil(E::GROUP), to.add(i * line * kp));
                outer::<S, E>(groups, line, columns.len(), left, (right, ldb), (out, kp), u > first_unit);
            }
        }
    });
    let taps = g.kh * g.kw;
    let partial = Partial { sums: pp, groups, size, kp };
    // SAFETY: a task writes the weights of its own output channels.
    parallel(g.k.div_ceil(S::LANES), |block| unsafe {
        let at = block * S::LANES;
        if taps == 1 {
            return partial.matrix::<S>(at, S::LANES.min(g.k - at), g.c, dw.at(at * g.c));
        }
        let mut sum = vec![0.0; S::LANES];
        for t in 0..taps {
            for c in 0..g.c {
                sum.fill(0.0);
                for group in 0..groups {
                    let from = pp.at(group * size + (t * g.c + c) * kp + at);
                    for (lane, sum) in sum.iter_mut().enumerate() {
                        *sum += *from.add(lane);
                    }
                }
                for (lane, sum) in sum.iter().enumerate().take(g.k - at) {
                    *dw.at(((at + lane) * g.c + c) * taps + t) = *sum;
                }
            }
        }
    });
}

/// The partial sums of a weight gradient: `groups` of them, `size` values each, rows `kp` apart.
#[derive(Clone, Copy)]
struct Partial {
    sums: Ptr,
    groups: usize,
    size: usize,
    kp: usize,
}

impl Partial {
    /// The sum of all groups for a kernel of one tap, `lanes` output channels from `at` on: 16 input channels at a time.
    ///
    /// # Safety
    /// The sums have `c` rows, and `dw` room for `lanes` rows of `c` values.
    unsafe fn matrix<S: Simd>(&self, at: usize, lanes: usize, c: usize, dw: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    for row in (0..c).step_by(16) {
                        let n = 16.min(c - row);
                        let mut sums = [S::zero(); 16];
                        for group in 0..self.groups {
                            for i in 0..n {
                                let from = self.sums.at(group * self.size + (row + i) * self.kp + at);
                                sums[i] = S::add(sums[i], S::load(from));
                            }
                        }
                        S::store_columns(dw.add(row), c, lanes, n, sums);
                    }
                },
            )
        }
    }
}

/// The taps that pixels of one residue use, along one axis: `residue + stride m`, the last first, so that the pixels of
/// the output's gradient that they meet come in memory order.
fn taps(residue: usize, stride: usize, kernel: usize) -> Vec<usize> {
    (residue..kernel).step_by(stride).rev().collect()
}

/// `dx` of the convolution.
///
/// # Safety
/// All tensors have the sizes of the geometry.
pub unsafe fn input_gradient<S: Simd, E: Number<S>>(g: &Geometry, w: &[f32], d: &Gradient<E>, dx: Ptr<E>) {
    let s = g.stride;
    // one packed filter per residue (y, x); empty where no tap reaches
    let packed: Vec<Option<Scratch>> = (0..s * s)
        .map(|class| {
            let (ty, tx) = (taps(class / s, s, g.kh), taps(class % s, s, g.kw));
            let taps: Vec<usize> = ty.iter().flat_map(|i| tx.iter().map(move |j| i * g.kw + j)).collect();
            let (segment, of) = (tx.len(), g.kh * g.kw);
            let pack = Pack { w, taps: &taps, segment, of, rows: g.k, n: g.c, transposed: true };
            (!taps.is_empty()).then(|| pack.packed::<S, E>())
        })
        .collect();
    let job = InputGradient { g, d, dx, packed: packed.iter().map(|p| p.as_ref().map(|p| p.start())).collect() };
    // a unit is at least as high as the kernel is wide, so that it does not mostly evaluate its neighbours' gradients
    let pixels = g.pixels().max(g.w * 4 * s);
    let cut = Cut::new(g.h, g.w, g.b / g.views, pixels);
    let units = g.views * cut.units_per_view();
    let groups = column_groups::<S>(g.c, units);
    // SAFETY: tasks are disjoint rows of dx, or disjoint channels of the same.
    parallel(units * groups.len(), |i| unsafe {
        job.unit::<S>(&cut.unit(i / groups.len()), groups[i % groups.len()].clone());
    });
}

struct InputGradient<'a, E> {
    g: &'a Geometry,
    d: &'a Gradient<'a, E>,
    dx: Ptr<E>,
    packed: Vec<Option<Ptr<E>>>,
}

impl<E> InputGradient<'_, E> {
    /// Some channels of the rows of one unit of `dx`.
    ///
    /// # Safety
    /// No other thread writes them.
    unsafe fn unit<S: Simd>(&self, u: &Unit, channels: Range<usize>)
    where
        E: Number<S>,
    {
        let (g, s, k) = (self.g, self.g.stride, self.g.k);
        // pixel y meets output rows (y + padding) / stride - m; the strip holds all of them, zeros outside the map
        let reach = |kernel: usize| kernel.div_ceil(s) - 1;
        let (above, before) = (reach(g.kh), reach(g.kw));
        let (low, high) = ((u.top + g.padding) / s, (u.bottom - 1 + g.padding) / s);
        let (left, right) = (g.padding / s, (g.w - 1 + g.padding) / s);
        let (rows, columns) = (high - low + 1 + above, right - left + 1 + before);
        let len = u.images * rows * columns * k;
        let strip = Scratch::of::<E>(len + E::GROUP - 1);
        let strip = strip.start::<E>();
        // SAFETY: what is behind the last window of a group is within the strip.
        unsafe { std::ptr::write_bytes(strip.at(len), 0, E::GROUP - 1) };
        for i in 0..u.images {
            for r in 0..rows {
                // SAFETY: the strip has `images * rows` rows of `columns` pixels.
                unsafe { self.fill::<S>(u.image + i, low + r, above, strip.at((i * rows + r) * columns * k), columns) };
            }
        }
        // the first coordinate from `n` on with a residue
        let first = |n: usize, residue: usize| n + (residue + s - (n + g.padding) % s) % s;
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for class in 0..s * s {
            let (ry, rx) = (class / s, class % s);
            let (ny, nx) = (taps(ry, s, g.kh).len(), taps(rx, s, g.kw).len());
            from.clear();
            to.clear();
            for i in 0..u.images {
                for y in (first(u.top, ry)..u.bottom).step_by(s) {
                    for x in (first(0, rx)..g.w).step_by(s) {
                        let row = (y + g.padding) / s - low + above + 1;
                        let column = (x + g.padding) / s - left + before + 1;
                        // classes without taps do not read, so their address does not matter
                        let at = ((i * rows + row.wrapping_sub(ny)) * columns).wrapping_add(column.wrapping_sub(nx));
                        from.push(strip.0.wrapping_add(at.wrapping_mul(k)) as *const E);
                        to.push(self.dx.0.wrapping_add((((u.image + i) * g.h + y) * g.w + x) * g.c));
                    }
                }
            }
            // SAFETY: the windows lie within the strip by the choice of its bounds, and each pixel of dx is in one
            // class.
            unsafe {
                match self.packed[class] {
                    Some(b) => {
                        let shape = Left { row: [strip.0; MAX_ROWS], segments: ny, stride: columns * k, len: nx * k };
                        products::<S, E>(&from, shape, b.0, g.c, channels.clone(), |i| to[i]);
                    }
                    None => to.iter().for_each(|p| std::ptr::write_bytes(p.add(channels.start), 0, channels.len())),
                }
            }
        }
    }

    /// One row of the strip: the output's gradient in row `row - above`, zeros outside the map.
    ///
    /// # Safety
    /// `to` has `columns` pixels.
    unsafe fn fill<S: Simd>(&self, image: usize, row: usize, above: usize, to: *mut E, columns: usize)
    where
        E: Number<S>,
    {
        let (g, k) = (self.g, self.g.k);
        let before = g.kw.div_ceil(g.stride) - 1;
        let first = g.padding / g.stride; // the strip's first column is output column `first - before`
        let (y, begin) = (row.wrapping_sub(above), before.saturating_sub(first).min(columns));
        let skipped = first.saturating_sub(before);
        let n = if y < g.oh() { g.ow().saturating_sub(skipped).min(columns - begin) } else { 0 };
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::write_bytes(to, 0, begin * k);
            if n > 0 {
                let view = image / (g.b / g.views);
                let from = (image * g.oh() + y) * g.ow() + skipped;
                self.d.write::<S>(view, from, n, (k, 0..k), to.add(begin * k), k);
            }
            std::ptr::write_bytes(to.add((begin + n) * k), 0, (columns - begin - n) * k);
        }
    }
}
