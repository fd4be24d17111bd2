//! The by-panel form: for filters so large that their transform would not stay in the shared cache, on few tiles.
//!
//! A unit takes one panel of output channels through everything: transforms its part of the filter, multiplies it in
//! all planes, and transforms back. The transformed filter is never in memory as a whole, and neither is its gradient.

use super::backward::Backward;
use super::filter::{Filter, FilterGradients};
use super::tile::{self, Columns};
use super::transform::Algorithm;
use super::{Finish, PLANES, WinogradGeometry, filter_planes, plane};
use crate::gemm::{Rows, outer, panel_width, product, width_at};
use crate::memory::{LINE, Ptr, Scratch, parallel};
use crate::number::Number;
use crate::simd::{Simd, padded};

/// Input and output channels of a unit of the filter's gradient.
const GRADIENT_BLOCK: (usize, usize) = (128, 64);

/// Distance of the planes of a panel over `rows` rows or tiles.
fn panel_plane<S: Simd, E: Number<S>>(rows: usize) -> usize {
    rows.next_multiple_of(E::GROUP) * panel_width::<S>() + LINE * E::GROUP
}

/// The products of one panel in every plane: `out = a U` with the filter's panel transformed on the way.
///
/// # Safety
/// `a` has planes of `tiles` rows of padded depth, `as_` apart; `out` has planes of [`panel_plane`] of `tiles`.
unsafe fn products<S: Simd, A: Algorithm<T>, E: Number<S>, const T: usize>(
    filter: &Filter,
    panel: usize,
    tiles: usize,
    a: Ptr<E>,
    as_: usize,
    out: *mut f32,
) {
    let (us, ms) = (panel_plane::<S, E>(filter.rows), panel_plane::<S, f32>(tiles));
    let (width, lda) = (width_at::<S>(filter.n, panel), padded::<S>(filter.rows));
    let u = Scratch::of::<E>(PLANES * us);
    let u = u.start::<E>();
    // SAFETY: the scratch holds the panel of every plane; the rest is the caller's promise.
    unsafe {
        filter.panel::<S, A, E>(panel, u.0, us);
        for (i, of) in filter_planes::<A, T>().into_iter().enumerate() {
            product::<S, E>(tiles, filter.rows, (a.at(i * as_), lda), u.at(of * us), width, (out.add(i * ms), width));
        }
    }
}

/// See [`super::forward`].
///
/// # Safety
/// As there.
pub unsafe fn forward<S: Simd, A: Algorithm<T>, E: Number<S>, const T: usize>(
    g: &WinogradGeometry,
    x: Ptr<E>,
    w: &[f32],
    y: Ptr<E>,
    finish: Finish<E>,
) {
    let tiles = g.b * g.per_image();
    let (vs, ms) = (plane::<S, E>(tiles, g.c), panel_plane::<S, f32>(tiles));
    let v = Scratch::of::<E>(T * T * vs);
    let v = v.start::<E>();
    let filter = Filter { w, rows: g.c, n: g.k, transposed: false };
    let units = g.views * g.units_per_view();
    // SAFETY: units are disjoint runs of tiles.
    parallel(units, |i| unsafe {
        let (from, n) = g.unit(i);
        tile::input::<S, A, E, T>(g, x.at(0), from, n, v.at(from * padded::<S>(g.c)), vs);
    });
    // SAFETY: panels are disjoint channels of the output and of the statistics.
    parallel(g.k.div_ceil(panel_width::<S>()), |p| unsafe {
        let panel = p * panel_width::<S>();
        let width = width_at::<S>(g.k, panel);
        let m = Scratch::new(T * T * ms);
        products::<S, A, E, T>(&filter, panel, tiles, v, vs, m.ptr().0);
        let columns = Columns { from: panel, to: (panel + width).min(g.k), stride: width };
        for i in 0..units {
            let (from, n) = g.unit(i);
            let epilogue = finish.unit(i, padded::<S>(g.k));
            tile::output::<S, A, E, T>(g, m.ptr().at(from * width), ms, columns, from, n, y.at(0), epilogue);
        }
    });
}

impl<E> Backward<'_, E> {
    /// See [`super::backward`].
    ///
    /// # Safety
    /// As for [`Backward::by_plane`]; `w` is the filter.
    pub(super) unsafe fn by_panel<S: Simd, A: Algorithm<T>, const T: usize>(&self, w: &[f32], dw: Ptr)
    where
        E: Number<S>,
    {
        let g = self.g;
        let tiles = g.b * g.per_image();
        let (vs, ms) = (plane::<S, E>(tiles, g.c), plane::<S, E>(tiles, g.k));
        let (v, m) = (Scratch::of::<E>(T * T * vs), Scratch::of::<E>(T * T * ms));
        let (v, m) = (v.start::<E>(), m.start::<E>());
        // SAFETY: units are disjoint runs of tiles.
        parallel(g.b * g.parts(), |i| unsafe {
            let (from, n) = g.part(i);
            tile::input::<S, A, E, T>(g, self.x.at(0), from, n, v.at(from * self.cp), vs);
            tile::gradient::<S, A, E, T>(g, self.d, from, n, m.at(from * self.kp), ms);
        });
        let (rows, columns) = GRADIENT_BLOCK;
        let across = g.k.div_ceil(columns);
        // SAFETY: a unit has scratch of its own and writes its own weights.
        parallel(g.c.div_ceil(rows) * across, |i| unsafe {
            let (row, column) = (i / across * rows, i % across * columns);
            let (n, k) = (rows.min(g.c - row), columns.min(g.k - column));
            let ld = padded::<S>(k);
            let stride = n * ld + LINE;
            let du = Scratch::new(PLANES * stride);
            let groups = Scratch::of::<E>(E::grouped_len(tiles, n) + E::grouped_len(tiles, ld));
            let groups = groups.start::<E>();
            for p in 0..T * T {
                let left = E::grouped(tiles, n, Rows::Strided(v.at(p * vs + row), self.cp), groups.0);
                let right = Rows::Strided(m.at(p * ms + column) as *const E, self.kp);
                let right = E::grouped(tiles, ld, right, groups.at(E::grouped_len(tiles, n)));
                let Rows::Strided(right, ldb) = right else { unreachable!("rows at a stride stay so") };
                let to = (du.ptr().at(self.planes[p] * stride), ld);
                outer::<S, E>(tiles.div_ceil(E::GROUP), n, k, left, (right, ldb), to, !self.first(p));
            }
            let from = FilterGradients { du: du.ptr(), n: 1, size: 0, stride, ld };
            for at in (column..column + k).step_by(S::LANES) {
                from.columns::<S, A>(at, row..row + n, (row, column), (g.c, g.k), dw);
            }
        });
        let Some(dx) = self.dx else { return };
        let filter = Filter { w, rows: g.k, n: g.c, transposed: true };
        // SAFETY: panels are disjoint channels of dx.
        parallel(g.c.div_ceil(panel_width::<S>()), |p| unsafe {
            let panel = p * panel_width::<S>();
            let (width, dvs) = (width_at::<S>(g.c, panel), panel_plane::<S, f32>(tiles));
            let dv = Scratch::new(T * T * dvs);
            products::<S, A, E, T>(&filter, panel, tiles, m, ms, dv.ptr().0);
            let columns = Columns { from: panel, to: (panel + width).min(g.c), stride: width };
            tile::input_gradient::<S, A, E, T>(g, dv.ptr().0, dvs, columns, 0, tiles, (dx.at(0), self.add));
        });
    }
}
