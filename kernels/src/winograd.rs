//! 3x3 convolution with padding 1 by Winograd's algorithms: with stride 1, 36 products for 16 outputs instead of 144;
//! with stride 2, 81 (see [`transform::Strided`]).
//!
//! The backward pass uses the transposed algorithm: `dM = A dz A^T` is computed once and serves both `dU = V^T dM` and
//! `dV = dM U^T`; the input's gradient is then `B dV B^T`, tiles overlapping and adding.
//!
//! Three ways to split the work, all fixed by the shapes. *By tile*: a unit takes a run of tiles through all three
//! steps while they stay in a core's cache. *By plane*, for large filters: each plane of the filter is one task, so
//! that its part of the filter is read once. *By panel*, for large filters and few tiles: see the module of that name.

mod filter;
mod panel;
mod tile;
mod transform;

use crate::gemm::{Rows, outer, product};
use crate::memory::{LINE, Ptr, Scratch, parallel};
use crate::norm::Gradient;
use crate::simd::{Simd, padded};
use filter::{Filter, Gradients};
use tile::Columns;
use transform::{Algorithm, Dense, M, Strided, U};

pub use tile::Epilogue;

/// Planes of a transformed filter.
const PLANES: usize = U * U;

/// The shape of a layer: batch, height, width, input and output channels, the views the batch consists of, and the
/// stride.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub b: usize,
    pub h: usize,
    pub w: usize,
    pub c: usize,
    pub k: usize,
    pub views: usize,
    /// 1 or 2.
    pub stride: usize,
}

impl Geometry {
    /// Height of the output.
    fn oh(&self) -> usize {
        (self.h - 1) / self.stride + 1
    }

    /// Width of the output.
    fn ow(&self) -> usize {
        (self.w - 1) / self.stride + 1
    }

    /// Planes of the transformed input and output.
    fn planes(&self) -> usize {
        if self.stride == 1 { 36 } else { 81 }
    }

    /// Rows and columns of tiles on an image.
    fn tile_grid(&self) -> (usize, usize) {
        (self.oh().div_ceil(M), self.ow().div_ceil(M))
    }

    /// Tiles on an image.
    fn per_image(&self) -> usize {
        let (rows, columns) = self.tile_grid();
        rows * columns
    }

    /// Whether this algorithm pays, forward or backward: few channels are all transform, and tiles must be filled well
    /// enough.
    pub fn pays(&self, forward: bool) -> bool {
        let least = match (self.stride, forward) {
            (1, _) => 8,
            (_, true) => 32,
            (_, false) => 16,
        };
        let filled = self.planes() * self.per_image() * 10 <= 9 * self.oh() * self.ow() * 7;
        self.c >= least && self.k >= least && filled
    }

    /// Tiles in a unit of the by-tile form: its `V` and `M` should stay in the second-level cache.
    fn chunk(&self) -> usize {
        let tiles = (2048 * 36 / self.planes() / self.c.max(self.k)).next_multiple_of(8).clamp(16, 64);
        tiles.min(self.b / self.views * self.per_image())
    }

    /// Whether the filter is so large that splitting by plane reads less.
    fn by_plane(&self) -> bool {
        self.c * self.k >= 128 * 128
    }

    /// The same for the backward pass: also when so few tiles share a filter that partial sums of its gradient would
    /// cost more than the products.
    fn backward_by_plane(&self) -> bool {
        let few = self.b * self.per_image() * (self.c + self.k) <= 1 << 16;
        self.by_plane() || few && self.c * self.k >= 64 * 64
    }

    /// Whether the filter is so much larger than the whole batch's tiles that it should not be in memory transformed.
    fn by_panel(&self) -> bool {
        self.c * self.k >= 256 * 256 && 2 * self.b * self.per_image() * (self.c + self.k) <= self.c * self.k
    }

    /// Images in a pass of the by-plane form: `V` and `M` of a pass should stay in the shared cache.
    fn pass(&self) -> usize {
        let most = ((3 << 20) / (self.planes() * (self.c + self.k) * self.per_image())).clamp(1, self.b);
        self.b.div_ceil(self.b.div_ceil(most))
    }

    /// Independent partial sums of the weight gradient in the by-tile form.
    fn groups(&self) -> usize {
        let most = if self.c * self.k <= 64 * 64 { 16 } else { 8 };
        most.min(self.b).min(self.b * self.per_image() / 64).max(1)
    }

    /// Parts of an image that are units of their own in the by-plane form: more when there are few images.
    fn parts(&self) -> usize {
        16usize.div_ceil(self.b).min(self.tile_grid().0)
    }

    /// Units of the forward pass per view.
    pub fn units_per_view(&self) -> usize {
        let images = self.b / self.views;
        if self.by_plane() { images * self.parts() } else { (images * self.per_image()).div_ceil(self.chunk()) }
    }

    /// First tile and number of tiles of a unit of the forward pass.
    fn unit(&self, u: usize) -> (usize, usize) {
        if self.by_plane() {
            return self.part(u);
        }
        let per_view = self.b / self.views * self.per_image();
        let (view, i) = (u / self.units_per_view(), u % self.units_per_view());
        let from = i * self.chunk();
        (view * per_view + from, self.chunk().min(per_view - from))
    }

    /// First tile and number of tiles of part `u` of the by-plane form.
    fn part(&self, u: usize) -> (usize, usize) {
        let (rows, columns) = self.tile_grid();
        let (image, part) = (u / self.parts(), u % self.parts());
        let (from, to) = (part * rows / self.parts(), (part + 1) * rows / self.parts());
        (image * self.per_image() + from * columns, (to - from) * columns)
    }
}

/// For each plane of the transformed domain, the filter's plane it is multiplied with.
fn filter_planes<A: Algorithm<T>, const T: usize>() -> Vec<usize> {
    (0..T * T).map(|p| A::FILTER[p / T] * U + A::FILTER[p % T]).collect()
}

/// Plane strides carry one line more than they need, so that planes fall into different cache sets.
fn plane<S: Simd>(tiles: usize, channels: usize) -> usize {
    tiles * padded::<S>(channels) + LINE
}

/// How the caller finishes a unit: statistics rows of `stride` per unit, or the affine epilogue.
#[derive(Clone, Copy)]
pub enum Finish<'a> {
    /// Statistics, [`crate::norm::statistics_len`] values per unit.
    Statistics(Ptr),
    /// See [`Epilogue::Affine`].
    Affine { scale: &'a [f32], shift: &'a [f32], residual: Option<&'a [f32]>, relu: bool },
}

impl<'a> Finish<'a> {
    /// The epilogue of unit `u` for `stride` padded channels.
    ///
    /// # Safety
    /// The statistics have a row for the unit.
    unsafe fn unit(self, u: usize, stride: usize) -> Epilogue<'a> {
        match self {
            // SAFETY: the caller's promise.
            Finish::Statistics(p) => Epilogue::Statistics(unsafe { p.at(u * crate::norm::statistics_len(stride)) }),
            Finish::Affine { scale, shift, residual, relu } => {
                Epilogue::Affine { scale, shift, residual: residual.map(|r| r.as_ptr()), relu }
            }
        }
    }
}

/// `y = conv(x, w)` with `w` as `[k][c][3][3]`.
///
/// # Safety
/// `x`, `w` and `y` have the sizes of the geometry, and `finish` those of [`Finish`].
pub unsafe fn forward<S: Simd>(g: &Geometry, x: &[f32], w: &[f32], y: Ptr, finish: Finish) {
    // SAFETY: the caller's promise.
    unsafe {
        match g.stride {
            1 => forward_by::<S, Dense, 6>(g, x, w, y, finish),
            _ => forward_by::<S, Strided, 9>(g, x, w, y, finish),
        }
    }
}

/// [`forward`] by one of the algorithms.
///
/// # Safety
/// As there.
unsafe fn forward_by<S: Simd, A: Algorithm<T>, const T: usize>(
    g: &Geometry,
    x: &[f32],
    w: &[f32],
    y: Ptr,
    finish: Finish,
) {
    let planes = filter_planes::<A, T>();
    let xp = Ptr(x.as_ptr() as *mut f32);
    if g.by_panel() {
        // SAFETY: the caller's promise.
        return unsafe { panel::forward::<S, A, T>(g, xp, w, y, finish) };
    }
    let u = Filter { w, rows: g.c, n: g.k, transposed: false }.transformed::<S, A>();
    let (up, us) = (u.ptr(), filter::plane::<S>(g.c, g.k));
    let (cp, kp, columns) = (padded::<S>(g.c), padded::<S>(g.k), Columns::all::<S>(g.k));
    if g.by_plane() {
        let (per, parts, pass) = (g.per_image(), g.parts(), g.pass());
        let (vs, ms) = (plane::<S>(pass * per, g.c), plane::<S>(pass * per, g.k));
        let (v, m) = (Scratch::new(T * T * vs), Scratch::new(T * T * ms));
        let (v, m) = (v.ptr(), m.ptr());
        for first in (0..g.b).step_by(pass) {
            let n = pass.min(g.b - first);
            let units = first * parts..(first + n) * parts;
            // SAFETY: units are disjoint runs of tiles, and V has room for the tiles of a pass.
            parallel(units.len(), |i| unsafe {
                let (from, tiles) = g.unit(units.start + i);
                tile::input::<S, A, T>(g, xp.at(0), from, tiles, v.at((from - first * per) * cp), vs);
            });
            // SAFETY: planes are disjoint parts of V and M.
            parallel(T * T, |i| unsafe {
                product::<S>(n * per, g.c, (v.at(i * vs), cp), up.at(planes[i] * us), g.k, (m.at(i * ms), kp));
            });
            // SAFETY: units are disjoint tiles of the output, with a row of statistics each.
            parallel(units.len(), |i| unsafe {
                let (from, tiles) = g.unit(units.start + i);
                let epilogue = finish.unit(units.start + i, kp);
                tile::output::<S, A, T>(
                    g,
                    m.at((from - first * per) * kp),
                    ms,
                    columns,
                    from,
                    tiles,
                    y.at(0),
                    epilogue,
                );
            });
        }
    } else {
        let (vs, ms) = (plane::<S>(g.chunk(), g.c), plane::<S>(g.chunk(), g.k));
        // SAFETY: each unit has scratch of its own and writes its own tiles of the output.
        parallel(g.views * g.units_per_view(), |i| unsafe {
            let (v, m) = (Scratch::new(T * T * vs), Scratch::new(T * T * ms));
            let (v, m) = (v.ptr(), m.ptr());
            let (from, tiles) = g.unit(i);
            tile::input::<S, A, T>(g, xp.at(0), from, tiles, v.0, vs);
            for i in 0..T * T {
                product::<S>(tiles, g.c, (v.at(i * vs), cp), up.at(planes[i] * us), g.k, (m.at(i * ms), kp));
            }
            tile::output::<S, A, T>(g, m.0, ms, columns, from, tiles, y.at(0), finish.unit(i, kp));
        });
    }
}

/// `dw`, and `dx` when given, of [`forward`].
///
/// # Safety
/// All tensors have the sizes of the geometry.
pub unsafe fn backward<S: Simd>(g: &Geometry, x: &[f32], w: &[f32], d: &Gradient, dx: Option<Ptr>, dw: Ptr) {
    // SAFETY: the caller's promise.
    unsafe {
        match g.stride {
            1 => backward_by::<S, Dense, 6>(g, x, w, d, dx, dw),
            _ => backward_by::<S, Strided, 9>(g, x, w, d, dx, dw),
        }
    }
}

/// [`backward`] by one of the algorithms.
///
/// # Safety
/// As there.
unsafe fn backward_by<S: Simd, A: Algorithm<T>, const T: usize>(
    g: &Geometry,
    x: &[f32],
    w: &[f32],
    d: &Gradient,
    dx: Option<Ptr>,
    dw: Ptr,
) {
    let by_panel = g.by_panel();
    let transposed =
        (dx.is_some() && !by_panel).then(|| Filter { w, rows: g.k, n: g.c, transposed: true }.transformed::<S, A>());
    let job = Backward {
        g,
        x: Ptr(x.as_ptr() as *mut f32),
        d,
        dx,
        u: transposed.as_ref().map(|u| u.ptr()),
        us: filter::plane::<S>(g.k, g.c),
        cp: padded::<S>(g.c),
        kp: padded::<S>(g.k),
        dus: filter::plane::<S>(g.c, g.k),
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

/// What the two forms of the backward pass share: `us` and `dus` are the plane strides of `U^T` and `dU`.
struct Backward<'a> {
    g: &'a Geometry,
    x: Ptr,
    d: &'a Gradient<'a>,
    dx: Option<Ptr>,
    u: Option<Ptr>,
    us: usize,
    cp: usize,
    kp: usize,
    dus: usize,
    /// See [`filter_planes`].
    planes: Vec<usize>,
}

impl Backward<'_> {
    /// Whether plane `i` is the first of those that share its filter's plane.
    fn first(&self, i: usize) -> bool {
        !self.planes[..i].contains(&self.planes[i])
    }

    /// `dU += V^T dM`, then `dV = dM U^T` over `V`, of a plane that meets the filter's plane `filter`.
    ///
    /// # Safety
    /// The planes hold `tiles` tiles and `du` is this thread's alone.
    unsafe fn plane_products<S: Simd>(
        &self,
        filter: usize,
        tiles: usize,
        v: *mut f32,
        m: *const f32,
        (du, add): (*mut f32, bool),
    ) {
        let g = self.g;
        // SAFETY: the caller's promise.
        unsafe {
            outer::<S>(tiles, g.c, g.k, Rows::Strided(v, self.cp), (m, self.kp), (du, self.kp), add);
            if let Some(u) = self.u {
                product::<S>(tiles, g.k, (m, self.kp), u.at(filter * self.us), g.c, (v, self.cp));
            }
        }
    }

    /// See [`backward`]: each plane of the filter is one task.
    ///
    /// # Safety
    /// The pointers of `self` and `dw` belong to tensors of the geometry, and nobody else uses `dx` and `dw`.
    unsafe fn by_plane<S: Simd, A: Algorithm<T>, const T: usize>(&self, dw: Ptr) {
        let g = self.g;
        let columns = Columns::all::<S>(g.c);
        let (per, parts, pass) = (g.per_image(), g.parts(), g.pass());
        let (vs, ms) = (plane::<S>(pass * per, g.c), plane::<S>(pass * per, g.k));
        let (v, m, du) = (Scratch::new(T * T * vs), Scratch::new(T * T * ms), Scratch::new(PLANES * self.dus));
        let (v, m, du) = (v.ptr(), m.ptr(), du.ptr());
        for first in (0..g.b).step_by(pass) {
            let n = pass.min(g.b - first);
            let units = first * parts..(first + n) * parts;
            // SAFETY: units are disjoint runs of tiles, and V and M have room for the tiles of a pass.
            parallel(units.len(), |i| unsafe {
                let (from, tiles) = g.part(units.start + i);
                let at = from - first * per;
                tile::input::<S, A, T>(g, self.x.at(0), from, tiles, v.at(at * self.cp), vs);
                tile::gradient::<S, A, T>(g, self.d, from, tiles, m.at(at * self.kp), ms);
            });
            // SAFETY: a task owns the planes of V and M that meet its plane of the filter, and that plane of dU.
            parallel(PLANES, |i| unsafe {
                let mine = (0..T * T).filter(|p| self.planes[*p] == i);
                for (nth, p) in mine.enumerate() {
                    let to = (du.at(i * self.dus), first > 0 || nth > 0);
                    self.plane_products::<S>(i, n * per, v.at(p * vs), m.at(p * ms), to);
                }
            });
            if let Some(dx) = self.dx {
                // SAFETY: images are disjoint parts of dx.
                parallel(n, |i| unsafe {
                    tile::input_gradient::<S, A, T>(
                        g,
                        v.at(i * per * self.cp),
                        vs,
                        columns,
                        (first + i) * per,
                        per,
                        dx.at(0),
                    );
                });
            }
        }
        let du = Gradients { du, n: 1, size: 0, stride: self.dus, ld: self.kp };
        // SAFETY: `du` holds a sum of whole planes for this filter, and `dw` is the caller's promise.
        unsafe { filter::gradient::<S, A>(du, g.c, g.k, dw) };
    }

    /// See [`backward`]: a unit takes a run of tiles through every step.
    ///
    /// # Safety
    /// As for [`Backward::by_plane`].
    unsafe fn by_tile<S: Simd, A: Algorithm<T>, const T: usize>(&self, dw: Ptr) {
        let g = self.g;
        let columns = Columns::all::<S>(g.c);
        let (groups, per, chunk) = (g.groups(), g.per_image(), g.chunk());
        let (vs, ms, size) = (plane::<S>(chunk, g.c), plane::<S>(chunk, g.k), PLANES * self.dus);
        let sums = Scratch::new(groups * size);
        let sums_at = sums.ptr();
        // SAFETY: a group has scratch and a partial sum of its own and writes its own images of dx.
        parallel(groups, |group| unsafe {
            let (v, m) = (Scratch::new(T * T * vs), Scratch::new(T * T * ms));
            let (v, m, du) = (v.ptr(), m.ptr(), sums_at.at(group * size));
            let (begin, end) = (group * g.b / groups * per, (group + 1) * g.b / groups * per);
            for from in (begin..end).step_by(chunk) {
                let n = chunk.min(end - from);
                tile::input::<S, A, T>(g, self.x.at(0), from, n, v.0, vs);
                tile::gradient::<S, A, T>(g, self.d, from, n, m.0, ms);
                for p in 0..T * T {
                    let filter = self.planes[p];
                    let to = (du.add(filter * self.dus), from > begin || !self.first(p));
                    self.plane_products::<S>(filter, n, v.at(p * vs), m.at(p * ms), to);
                }
                if let Some(dx) = self.dx {
                    tile::input_gradient::<S, A, T>(g, v.0, vs, columns, from, n, dx.at(0));
                }
            }
        });
        let sums = Gradients { du: sums_at, n: groups, size, stride: self.dus, ld: self.kp };
        // SAFETY: every group has written its whole planes, and `dw` is the caller's promise.
        unsafe { filter::gradient::<S, A>(sums, g.c, g.k, dw) };
    }
}
