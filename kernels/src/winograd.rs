//! 3x3 convolution with padding 1 by Winograd's algorithms: with stride 1, 36 products for 16 outputs instead of 144;
//! with stride 2, 81 (see [`transform::Strided`]).
//!
//! The backward pass uses the transposed algorithm: `dM = A dz A^T` is computed once and serves both `dU = V^T dM` and
//! `dV = dM U^T`; the input's gradient is then `B dV B^T`, tiles overlapping and adding.
//!
//! Three ways to split the work, all fixed by the shapes. *By tile*: a unit takes a run of tiles through all three
//! steps while they stay in a core's cache. *By plane*, for large filters: each plane of the filter is one task, so
//! that its part of the filter is read once. *By panel*, for large filters and few tiles: see the module of that name.

mod backward;
mod balanced;
mod filter;
mod panel;
mod tile;
mod transform;

use crate::gemm::product;
use crate::memory::{LINE, Ptr, Scratch, parallel};
use crate::norm::Gradient;
use crate::number::Number;
use crate::simd::{Simd, padded};
use filter::Filter;
use tile::Columns;
use transform::{M, U};

pub use balanced::{Balanced, BalancedStrided};
pub use tile::Epilogue;
pub use transform::{Algorithm, Dense, Strided};

/// Planes of a transformed filter.
const PLANES: usize = U * U;

/// The shape of a layer: batch, height, width, input and output channels, the views the batch consists of, and the
/// stride.
#[derive(Clone, Copy, Debug)]
pub struct WinogradGeometry {
    pub b: usize,
    pub h: usize,
    pub w: usize,
    pub c: usize,
    pub k: usize,
    pub views: usize,
    /// 1 or 2.
    pub stride: usize,
}

impl WinogradGeometry {
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
fn plane<S: Simd, E: Number<S>>(tiles: usize, channels: usize) -> usize {
    tiles * padded::<S>(channels) + LINE * E::GROUP
}

/// How the caller finishes a unit: statistics rows of `stride` per unit, or the affine epilogue.
#[derive(Clone, Copy)]
pub enum Finish<'a, E> {
    /// Statistics, [`crate::norm::statistics_len`] values per unit.
    Statistics(Ptr),
    /// See [`Epilogue::Affine`].
    Affine { scale: &'a [f32], shift: &'a [f32], residual: Option<&'a [E]>, relu: bool },
}

impl<'a, E> Finish<'a, E> {
    /// The epilogue of unit `u` for `stride` padded channels.
    ///
    /// # Safety
    /// The statistics have a row for the unit.
    unsafe fn unit(self, u: usize, stride: usize) -> Epilogue<'a, E> {
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
pub unsafe fn forward<S: Simd, E: Number<S>>(g: &WinogradGeometry, x: &[E], w: &[f32], y: Ptr<E>, finish: Finish<E>) {
    // SAFETY: the caller's promise.
    unsafe {
        match g.stride {
            1 => forward_by::<S, E::Dense, E, 6>(g, x, w, y, finish),
            _ => forward_by::<S, E::Strided, E, 9>(g, x, w, y, finish),
        }
    }
}

/// [`forward`] by one of the algorithms.
///
/// # Safety
/// As there.
unsafe fn forward_by<S: Simd, A: Algorithm<T>, E: Number<S>, const T: usize>(
    g: &WinogradGeometry,
    x: &[E],
    w: &[f32],
    y: Ptr<E>,
    finish: Finish<E>,
) {
    let planes = filter_planes::<A, T>();
    let xp = Ptr::to(x);
    if g.by_panel() {
        // SAFETY: the caller's promise.
        return unsafe { panel::forward::<S, A, E, T>(g, xp, w, y, finish) };
    }
    let u = Filter { w, rows: g.c, n: g.k, transposed: false }.transformed::<S, A, E>();
    let (up, us) = (u.start::<E>(), filter::plane::<S, E>(g.c, g.k));
    let (cp, kp, columns) = (padded::<S>(g.c), padded::<S>(g.k), Columns::all::<S>(g.k));
    if g.by_plane() {
        let (per, parts, pass) = (g.per_image(), g.parts(), g.pass());
        let (vs, ms) = (plane::<S, E>(pass * per, g.c), plane::<S, f32>(pass * per, g.k));
        let (v, m) = (Scratch::of::<E>(T * T * vs), Scratch::new(T * T * ms));
        let (v, m) = (v.start::<E>(), m.ptr());
        for first in (0..g.b).step_by(pass) {
            let n = pass.min(g.b - first);
            let units = first * parts..(first + n) * parts;
            // SAFETY: units are disjoint runs of tiles, and V has room for the tiles of a pass.
            parallel(units.len(), |i| unsafe {
                let (from, tiles) = g.unit(units.start + i);
                tile::input::<S, A, E, T>(g, xp.at(0), from, tiles, v.at((from - first * per) * cp), vs);
            });
            // SAFETY: planes are disjoint parts of V and M.
            parallel(T * T, |i| unsafe {
                product::<S, E>(n * per, g.c, (v.at(i * vs), cp), up.at(planes[i] * us), g.k, (m.at(i * ms), kp));
            });
            // SAFETY: units are disjoint tiles of the output, with a row of statistics each.
            parallel(units.len(), |i| unsafe {
                let (from, tiles) = g.unit(units.start + i);
                let epilogue = finish.unit(units.start + i, kp);
                tile::output::<S, A, E, T>(
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
        let (vs, ms) = (plane::<S, E>(g.chunk(), g.c), plane::<S, f32>(g.chunk(), g.k));
        // SAFETY: each unit has scratch of its own and writes its own tiles of the output.
        parallel(g.views * g.units_per_view(), |i| unsafe {
            let (v, m) = (Scratch::of::<E>(T * T * vs), Scratch::new(T * T * ms));
            let (v, m) = (v.start::<E>(), m.ptr());
            let (from, tiles) = g.unit(i);
            tile::input::<S, A, E, T>(g, xp.at(0), from, tiles, v.0, vs);
            for i in 0..T * T {
                product::<S, E>(tiles, g.c, (v.at(i * vs), cp), up.at(planes[i] * us), g.k, (m.at(i * ms), kp));
            }
            tile::output::<S, A, E, T>(g, m.0, ms, columns, from, tiles, y.at(0), finish.unit(i, kp));
        });
    }
}

/// `dw`, and `dx` when given, of [`forward`]; with the flag, `dx` is added to what is found there.
///
/// # Safety
/// All tensors have the sizes of the geometry.
pub unsafe fn backward<S: Simd, E: Number<S>>(
    g: &WinogradGeometry,
    x: &[E],
    w: &[f32],
    d: &Gradient<E>,
    dx: (Option<Ptr<E>>, bool),
    dw: Ptr,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match g.stride {
            1 => backward::run::<S, E::Dense, E, 6>(g, x, w, d, dx, dw),
            _ => backward::run::<S, E::Strided, E, 9>(g, x, w, d, dx, dw),
        }
    }
}
