//! The backward pass in two of its three forms, by tile and by plane, and what they share with the third.

use super::filter::{self, Filter, FilterGradients};
use super::tile::{self, Columns};
use super::transform::Algorithm;
use super::{PLANES, WinogradGeometry, filter_planes, plane};
use crate::gemm::{Rows, outer, product};
use crate::memory::{Ptr, Scratch, parallel};
use crate::norm::Gradient;
use crate::number::Number;
use crate::simd::{Simd, padded};

/// [`super::backward`] by one of the algorithms.
///
/// # Safety
/// As there.
pub unsafe fn run<S: Simd, A: Algorithm<T>, E: Number<S>, const T: usize>(
    g: &WinogradGeometry,
    x: &[E],
    w: &[f32],
    d: &Gradient<E>,
    (dx, add): (Option<Ptr<E>>, bool),
    dw: Ptr,
) {
    let by_panel = g.by_panel();
    let transposed =
        (dx.is_some() && !by_panel).then(|| Filter { w, rows: g.k, n: g.c, transposed: true }.transformed::<S, A, E>());
    let job = Backward {
        g,
        x: Ptr::to(x),
        d,
        dx,
        add,
        u: transposed.as_ref().map(|u| u.start()),
        us: filter::plane::<S, E>(g.k, g.c),
        cp: padded::<S>(g.c),
        kp: padded::<S>(g.k),
        dus: filter::plane::<S, f32>(g.c, g.k),
        planes: filter_planes::<A, T>(),
    };
    // SAFETY: the caller's promise; `u` is the filter of this geometry.
    unsafe {
        if by_panel {
            job.by_panel::<S, A, T>(w, dw)
        } else if g.backward_by_plane() {
            job.by_plane::<S, A, T>(dw)
        } else {
            job.by_tile::<S, A, T>(dw)
        }
    }
}

/// What the forms of the backward pass share: `us` and `dus` are the plane strides of `U^T` and `dU`.
pub struct Backward<'a, E> {
    pub g: &'a WinogradGeometry,
    pub x: Ptr<E>,
    pub d: &'a Gradient<'a, E>,
    pub dx: Option<Ptr<E>>,
    /// Whether what is found in `dx` is part of it.
    pub add: bool,
    u: Option<Ptr<E>>,
    us: usize,
    pub cp: usize,
    pub kp: usize,
    dus: usize,
    /// See [`filter_planes`].
    pub planes: Vec<usize>,
}

impl<E> Backward<'_, E> {
    /// Whether plane `i` is the first of those that share its filter's plane.
    pub fn first(&self, i: usize) -> bool {
        !self.planes[..i].contains(&self.planes[i])
    }

    /// Space for groups of rows of planes of `tiles` tiles.
    fn groups<S: Simd>(&self, tiles: usize) -> Scratch
    where
        E: Number<S>,
    {
        Scratch::of::<E>(E::grouped_len(tiles, self.g.c) + E::grouped_len(tiles, self.g.k))
    }

    /// `dV` of `T * T` planes, `plane` apart: f32 takes the place of `V`.
    fn gradient_of_input<S: Simd, const T: usize>(&self, v: Ptr<E>, plane: usize) -> (Ptr, Option<Scratch>)
    where
        E: Number<S>,
    {
        if E::GROUP == 1 {
            return (Ptr(v.0.cast()), None);
        }
        let block = Scratch::new(if self.dx.is_some() { T * T * plane } else { 0 });
        (block.ptr(), Some(block))
    }

    /// `dU += V^T dM`, then `dV = dM U^T`, of a plane that meets the filter's plane `filter`.
    ///
    /// # Safety
    /// The planes hold `tiles` tiles, `groups` has the space of [`Backward::groups`], and it and `du` are this
    /// thread's alone.
    #[allow(clippy::too_many_arguments)] // four matrices, the space between them and which plane they are
    unsafe fn plane_products<S: Simd>(
        &self,
        filter: usize,
        tiles: usize,
        v: *const E,
        m: *const E,
        dv: *mut f32,
        groups: *mut E,
        (du, add): (*mut f32, bool),
    ) where
        E: Number<S>,
    {
        let g = self.g;
        // SAFETY: the caller's promise; in f32, `dV` is written over `V` when it has been read.
        unsafe {
            let left = E::grouped(tiles, g.c, Rows::Strided(v, self.cp), groups);
            let right = E::grouped(tiles, self.kp, Rows::Strided(m, self.kp), groups.add(E::grouped_len(tiles, g.c)));
            let Rows::Strided(right, ldb) = right else { unreachable!("rows at a stride stay so") };
            outer::<S, E>(tiles.div_ceil(E::GROUP), g.c, g.k, left, (right, ldb), (du, self.kp), add);
            if let Some(u) = self.u {
                product::<S, E>(tiles, g.k, (m, self.kp), u.at(filter * self.us), g.c, (dv, self.cp));
            }
        }
    }

    /// See [`super::backward`]: each plane of the filter is one task.
    ///
    /// # Safety
    /// The pointers of `self` and `dw` belong to tensors of the geometry, and nobody else uses `dx` and `dw`.
    unsafe fn by_plane<S: Simd, A: Algorithm<T>, const T: usize>(&self, dw: Ptr)
    where
        E: Number<S>,
    {
        let g = self.g;
        let columns = Columns::all::<S>(g.c);
        let (per, parts, pass) = (g.per_image(), g.parts(), g.pass());
        let (vs, ms) = (plane::<S, E>(pass * per, g.c), plane::<S, E>(pass * per, g.k));
        let (v, m) = (Scratch::of::<E>(T * T * vs), Scratch::of::<E>(T * T * ms));
        let (v, m) = (v.start::<E>(), m.start::<E>());
        let du = Scratch::new(PLANES * self.dus);
        let du = du.ptr();
        let dvs = plane::<S, f32>(pass * per, g.c);
        let (dv, _held) = self.gradient_of_input::<S, T>(v, dvs);
        for first in (0..g.b).step_by(pass) {
            let n = pass.min(g.b - first);
            let units = first * parts..(first + n) * parts;
            // SAFETY: units are disjoint runs of tiles, and V and M have room for the tiles of a pass.
            parallel(units.len(), |i| unsafe {
                let (from, tiles) = g.part(units.start + i);
                let at = from - first * per;
                tile::input::<S, A, E, T>(g, self.x.at(0), from, tiles, v.at(at * self.cp), vs);
                tile::gradient::<S, A, E, T>(g, self.d, from, tiles, m.at(at * self.kp), ms);
            });
            // SAFETY: a task owns the planes of V, M and dV that meet its plane of the filter, and that plane of dU.
            parallel(PLANES, |i| unsafe {
                let groups = self.groups::<S>(n * per);
                let mine = (0..T * T).filter(|p| self.planes[*p] == i);
                for (nth, p) in mine.enumerate() {
                    let (dv, groups) = (dv.beyond(p * dvs), groups.start().0);
                    let to = (du.at(i * self.dus), first > 0 || nth > 0);
                    self.plane_products::<S>(i, n * per, v.at(p * vs), m.at(p * ms), dv, groups, to);
                }
            });
            if let Some(dx) = self.dx {
                // SAFETY: images are disjoint parts of dx.
                parallel(n, |i| unsafe {
                    let (dv, from) = (dv.at(i * per * self.cp), (first + i) * per);
                    tile::input_gradient::<S, A, E, T>(g, dv, dvs, columns, from, per, (dx.at(0), self.add));
                });
            }
        }
        let du = FilterGradients { du, n: 1, size: 0, stride: self.dus, ld: self.kp };
        // SAFETY: `du` holds a sum of whole planes for this filter, and `dw` is the caller's promise.
        unsafe { filter::gradient::<S, A>(du, g.c, g.k, dw) };
    }

    /// See [`super::backward`]: a unit takes a run of tiles through every step.
    ///
    /// # Safety
    /// As for [`Backward::by_plane`].
    unsafe fn by_tile<S: Simd, A: Algorithm<T>, const T: usize>(&self, dw: Ptr)
    where
        E: Number<S>,
    {
        let g = self.g;
        let columns = Columns::all::<S>(g.c);
        let (groups, per, chunk) = (g.groups(), g.per_image(), g.chunk());
        let (vs, ms, size) = (plane::<S, E>(chunk, g.c), plane::<S, E>(chunk, g.k), PLANES * self.dus);
        let dvs = plane::<S, f32>(chunk, g.c);
        let sums = Scratch::new(groups * size);
        let sums_at = sums.ptr();
        // SAFETY: a group has scratch and a partial sum of its own and writes its own images of dx.
        parallel(groups, |group| unsafe {
            let (v, m) = (Scratch::of::<E>(T * T * vs), Scratch::of::<E>(T * T * ms));
            let (v, m, du) = (v.start::<E>(), m.start::<E>(), sums_at.at(group * size));
            let (dv, _held) = self.gradient_of_input::<S, T>(v, dvs);
            let pairs = self.groups::<S>(chunk);
            let (begin, end) = (group * g.b / groups * per, (group + 1) * g.b / groups * per);
            for from in (begin..end).step_by(chunk) {
                let n = chunk.min(end - from);
                tile::input::<S, A, E, T>(g, self.x.at(0), from, n, v.0, vs);
                tile::gradient::<S, A, E, T>(g, self.d, from, n, m.0, ms);
                for p in 0..T * T {
                    let filter = self.planes[p];
                    let (dv, pairs) = (dv.beyond(p * dvs), pairs.start().0);
                    let to = (du.add(filter * self.dus), from > begin || !self.first(p));
                    self.plane_products::<S>(filter, n, v.at(p * vs), m.at(p * ms), dv, pairs, to);
                }
                if let Some(dx) = self.dx {
                    tile::input_gradient::<S, A, E, T>(g, dv.0, dvs, columns, from, n, (dx.at(0), self.add));
                }
            }
        });
        let sums = FilterGradients { du: sums_at, n: groups, size, stride: self.dus, ld: self.kp };
        // SAFETY: every group has written its whole planes, and `dw` is the caller's promise.
        unsafe { filter::gradient::<S, A>(sums, g.c, g.k, dw) };
    }
}
