//! From images to tiles in the transformed domain and back, for a run of tiles at a time.
//!
//! The transformed domain is `T * T` planes `[tiles][channels padded to whole vectors]`, `plane` values apart. Tiles
//! are counted in raster order, image after image; those on the right and lower edge may stick out of the map.

use super::WinogradGeometry;
use super::transform::{Algorithm, M};
use crate::norm::Gradient;
use crate::number::Number;
use crate::simd::Simd;
use std::mem::MaybeUninit;

/// What happens to each output value of the forward pass.
#[derive(Clone, Copy)]
pub enum Epilogue<'a, E> {
    /// Stored, with the statistics of this run written to the pointer; see [`crate::norm::statistics_len`].
    Statistics(*mut f32),
    /// `relu?(z scale + shift + residual)`; scale and shift are padded to whole vectors.
    Affine { scale: &'a [f32], shift: &'a [f32], residual: Option<*const E>, relu: bool },
}

/// Successive tiles without divisions.
struct Raster {
    rows: usize,
    columns: usize,
    image: usize,
    row: usize,
    column: usize,
}

impl Raster {
    fn new(g: &WinogradGeometry, from: usize) -> Raster {
        let (rows, columns) = g.tile_grid();
        Raster { rows, columns, image: from / (rows * columns), row: from / columns % rows, column: from % columns }
    }

    /// Image, tile row and tile column; then steps on.
    #[inline(always)]
    fn next(&mut self) -> (usize, usize, usize) {
        let at = (self.image, self.row, self.column);
        self.column += 1;
        if self.column == self.columns {
            self.column = 0;
            self.row += 1;
            if self.row == self.rows {
                self.row = 0;
                self.image += 1;
            }
        }
        at
    }
}

/// Calls `$body` with `FULL` true for each whole vector of channels `$from..$n`, then false for the rest.
macro_rules! each_vector {
    ($S:ident, $n:expr, |$at:ident, $lanes:ident, $full:ident| $body:expr) => {
        each_vector!($S, 0, $n, |$at, $lanes, $full| $body)
    };
    ($S:ident, $from:expr, $n:expr, |$at:ident, $lanes:ident, $full:ident| $body:expr) => {
        let mut $at = $from;
        while $at + $S::LANES <= $n {
            #[allow(unused)]
            const $full: bool = true;
            let $lanes = $S::LANES;
            $body;
            $at += $S::LANES;
        }
        if $at < $n {
            #[allow(unused)]
            const $full: bool = false;
            let $lanes = $n - $at;
            $body;
        }
    };
}

/// Asks for the next tile's input: short runs in several rows, which the hardware does not foresee.
///
/// # Safety
/// The CPU has the features of `S`; any address is allowed.
#[inline(always)]
unsafe fn fetch<S: Simd, E>(p: *const E, stride: usize, rows: usize, n: usize) {
    if n <= 128 {
        for i in 0..rows {
            for o in (0..n).step_by(64 / size_of::<E>()) {
                // SAFETY: the caller's promise.
                unsafe { S::prefetch(p.wrapping_add(i * stride + o).cast()) };
            }
        }
    }
}

/// `v = B^T x B` of tiles `from..from + n`.
///
/// # Safety
/// `x` is the whole input, `v` has `T * T` planes of at least `n` tiles.
pub unsafe fn input<S: Simd, A: Algorithm<T>, E: Number<S>, const T: usize>(
    g: &WinogradGeometry,
    x: *const E,
    from: usize,
    n: usize,
    v: *mut E,
    plane: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                let (c, ldv) = (g.c, crate::simd::padded::<S>(g.c));
                let mut raster = Raster::new(g, from);
                for t in 0..n {
                    let (image, row, column) = raster.next();
                    let v = v.add(t * ldv);
                    let (y0, x0) = (row * A::STEP, column * A::STEP);
                    let inside = y0 > 0 && x0 > 0 && y0 + T - 1 <= g.h && x0 + T - 1 <= g.w;
                    if inside {
                        let base = x.add(((image * g.h + y0 - 1) * g.w + x0 - 1) * c);
                        fetch::<S, E>(base.wrapping_add(T * c), g.w * c, T, A::STEP * c);
                        each_vector!(S, c, |at, lanes, FULL| {
                            let mut tile = [[S::zero(); T]; T];
                            for i in 0..T {
                                for j in 0..T {
                                    tile[i][j] = E::get::<FULL>(base.add((i * g.w + j) * c + at), lanes);
                                }
                            }
                            input_store::<S, A, E, T>(&tile, v.add(at), plane);
                        });
                    } else {
                        let base = x.wrapping_add((image * g.h * g.w) * c);
                        each_vector!(S, c, |at, lanes, FULL| {
                            // every value is written once: filling with zeros first costs as much as the reading
                            let mut tile = [[MaybeUninit::uninit(); T]; T];
                            for i in 0..T {
                                let y = (y0 + i).wrapping_sub(1);
                                for j in 0..T {
                                    let xx = (x0 + j).wrapping_sub(1);
                                    tile[i][j].write(if y < g.h && xx < g.w {
                                        E::get::<FULL>(base.add((y * g.w + xx) * c + at), lanes)
                                    } else {
                                        S::zero()
                                    });
                                }
                            }
                            let tile = &*(&raw const tile).cast::<[[S::V; T]; T]>();
                            input_store::<S, A, E, T>(tile, v.add(at), plane);
                        });
                    }
                }
            },
        )
    }
}

/// Transforms one tile and stores its vectors.
///
/// # Safety
/// `v` has room for a vector in each of `T * T` planes.
#[inline(always)]
unsafe fn input_store<S: Simd, A: Algorithm<T>, E: Number<S>, const T: usize>(
    tile: &[[S::V; T]; T],
    v: *mut E,
    plane: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut half = [[S::zero(); T]; T];
        for j in 0..T {
            let mut column = [S::zero(); T];
            for i in 0..T {
                column[i] = tile[i][j];
            }
            let column = A::input::<S>(column);
            for i in 0..T {
                half[i][j] = column[i];
            }
        }
        for i in 0..T {
            let row = A::input::<S>(half[i]);
            for j in 0..T {
                E::put::<true>(v.add((i * T + j) * plane), row[j], S::LANES);
            }
        }
    }
}

/// The channels that a call covers, and the distance of its tiles in the transformed domain, where the first of these
/// channels is column 0. The first is a multiple of the lanes.
#[derive(Clone, Copy)]
pub struct Columns {
    pub from: usize,
    pub to: usize,
    pub stride: usize,
}

impl Columns {
    /// All of `n` channels.
    pub fn all<S: Simd>(n: usize) -> Columns {
        Columns { from: 0, to: n, stride: crate::simd::padded::<S>(n) }
    }
}

/// The inverse transform of `m` into `y`, with the epilogue.
///
/// # Safety
/// `m` has `T * T` planes of `n` tiles, `y` is the whole output and no other thread writes these channels of
/// these tiles.
#[allow(clippy::too_many_arguments)] // the run of tiles, the planes and the channels are three different things
pub unsafe fn output<S: Simd, A: Algorithm<T>, E: Number<S>, const T: usize>(
    g: &WinogradGeometry,
    m: *const f32,
    plane: usize,
    columns: Columns,
    from: usize,
    n: usize,
    y: *mut E,
    epilogue: Epilogue<E>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                let (k, oh, ow) = (g.k, g.oh(), g.ow());
                let ldm = crate::simd::padded::<S>(k);
                let mut raster = Raster::new(g, from);
                let mut count = 0;
                for t in 0..n {
                    let (image, row, column) = raster.next();
                    let (y0, x0) = (row * M, column * M);
                    let (ni, nj) = (M.min(oh - y0), M.min(ow - x0));
                    count += ni * nj;
                    let base = ((image * oh + y0) * ow + x0) * k;
                    each_vector!(S, columns.from, columns.to, |at, lanes, FULL| {
                        let z = output_tile::<S, A, T>(m.add(t * columns.stride + at - columns.from), plane);
                        match epilogue {
                            Epilogue::Statistics(s) => {
                                let s = s.add(at);
                                if t == 0 {
                                    S::store(s, z[0][0]);
                                    S::store(s.add(ldm), S::zero());
                                    S::store(s.add(2 * ldm), S::zero());
                                }
                                let (shift, mut s1, mut s2) =
                                    (S::load(s), S::load(s.add(ldm)), S::load(s.add(2 * ldm)));
                                for i in 0..M {
                                    for j in 0..M {
                                        if i < ni && j < nj {
                                            let d = S::sub(z[i][j], shift);
                                            s1 = S::add(s1, d);
                                            s2 = S::fma(d, d, s2);
                                            E::put::<FULL>(y.add(base + (i * ow + j) * k + at), z[i][j], lanes);
                                        }
                                    }
                                }
                                S::store(s.add(ldm), s1);
                                S::store(s.add(2 * ldm), s2);
                            }
                            Epilogue::Affine { scale, shift, residual, relu } => {
                                let (a, b) = (S::load(scale.as_ptr().add(at)), S::load(shift.as_ptr().add(at)));
                                for i in 0..ni {
                                    for j in 0..nj {
                                        let o = base + (i * ow + j) * k + at;
                                        let mut v = S::fma(z[i][j], a, b);
                                        if let Some(r) = residual {
                                            v = S::add(v, E::get::<FULL>(r.add(o), lanes));
                                        }
                                        if relu {
                                            v = S::max(S::zero(), v);
                                        }
                                        E::put::<FULL>(y.add(o), v, lanes);
                                    }
                                }
                            }
                        }
                    });
                }
                // calls for other channels of the same tiles leave the count to the first
                if let (Epilogue::Statistics(s), 0) = (epilogue, columns.from) {
                    *s.add(3 * ldm) = count as f32;
                }
            },
        )
    }
}

/// `A^T m A` of one tile.
///
/// # Safety
/// `m` holds a vector in each of `T * T` planes.
#[inline(always)]
unsafe fn output_tile<S: Simd, A: Algorithm<T>, const T: usize>(m: *const f32, plane: usize) -> [[S::V; M]; M] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut half = [[S::zero(); T]; M];
        for j in 0..T {
            let mut column = [S::zero(); T];
            for i in 0..T {
                column[i] = S::load(m.add((i * T + j) * plane));
            }
            let column = A::output::<S>(column);
            for i in 0..M {
                half[i][j] = column[i];
            }
        }
        let mut z = [[S::zero(); M]; M];
        for i in 0..M {
            z[i] = A::output::<S>(half[i]);
        }
        z
    }
}

/// `dm = A dz A^T` of tiles `from..from + n`.
///
/// # Safety
/// `dm` has `T * T` planes of at least `n` tiles; the gradient covers the whole output.
pub unsafe fn gradient<S: Simd, A: Algorithm<T>, E: Number<S>, const T: usize>(
    g: &WinogradGeometry,
    d: &Gradient<E>,
    from: usize,
    n: usize,
    dm: *mut E,
    plane: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                let (k, oh, ow) = (g.k, g.oh(), g.ow());
                let per_view = g.b / g.views;
                let mut raster = Raster::new(g, from);
                for t in 0..n {
                    let (image, row, column) = raster.next();
                    let (y0, x0) = (row * M, column * M);
                    let (ni, nj) = (M.min(oh - y0), M.min(ow - x0));
                    let base = ((image * oh + y0) * ow + x0) * k;
                    fetch::<S, E>(d.g.as_ptr().wrapping_add(base + M * k), ow * k, M, M * k);
                    fetch::<S, E>(d.z.as_ptr().wrapping_add(base + M * k), ow * k, M, M * k);
                    each_vector!(S, k, |at, lanes, FULL| {
                        let coefficients = d.at::<S>(image / per_view, at);
                        let mut dz = [[S::zero(); M]; M];
                        if ni == M && nj == M {
                            for i in 0..M {
                                for j in 0..M {
                                    dz[i][j] = d.value::<S, FULL>(base + (i * ow + j) * k + at, lanes, coefficients);
                                }
                            }
                        } else {
                            for i in 0..ni {
                                for j in 0..nj {
                                    dz[i][j] = d.value::<S, FULL>(base + (i * ow + j) * k + at, lanes, coefficients);
                                }
                            }
                        }
                        gradient_store::<S, A, E, T>(&dz, dm.add(t * d.stride + at), plane);
                    });
                }
            },
        )
    }
}

/// Transforms one tile of `dz` and stores its vectors.
///
/// # Safety
/// `dm` has room for a vector in each of `T * T` planes.
#[inline(always)]
unsafe fn gradient_store<S: Simd, A: Algorithm<T>, E: Number<S>, const T: usize>(
    dz: &[[S::V; M]; M],
    dm: *mut E,
    plane: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut half = [[S::zero(); M]; T];
        for j in 0..M {
            let mut column = [S::zero(); M];
            for i in 0..M {
                column[i] = dz[i][j];
            }
            let column = A::output_adjoint::<S>(column);
            for i in 0..T {
                half[i][j] = column[i];
            }
        }
        for i in 0..T {
            let row = A::output_adjoint::<S>(half[i]);
            for j in 0..T {
                E::put::<true>(dm.add((i * T + j) * plane), row[j], S::LANES);
            }
        }
    }
}

/// `dx` by overlap-add of `B dv B^T`, or this added to `dx` when `add`. Tiles of an image must come in raster order: a
/// pixel is stored by its first tile and added to by the later ones.
///
/// # Safety
/// `dv` has `T * T` planes of `n` tiles, `dx` is the whole gradient and no other thread writes these channels
/// of these images.
pub unsafe fn input_gradient<S: Simd, A: Algorithm<T>, E: Number<S>, const T: usize>(
    g: &WinogradGeometry,
    dv: *const f32,
    plane: usize,
    columns: Columns,
    from: usize,
    n: usize,
    (dx, add): (*mut E, bool),
) {
    // SAFETY: the caller's promise.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                let c = g.c;
                let mut raster = Raster::new(g, from);
                for t in 0..n {
                    let (image, row, column) = raster.next();
                    let (y0, x0) = (row * A::STEP, column * A::STEP);
                    // tile coordinate i is map row y0 + i - 1
                    let (i0, i1) = ((row == 0) as usize, T.min(g.h + 1 - y0));
                    let (j0, j1) = ((column == 0) as usize, T.min(g.w + 1 - x0));
                    let base = dx.wrapping_add(image * g.h * g.w * c);
                    each_vector!(S, columns.from, columns.to, |at, lanes, FULL| {
                        let mut half = [[S::zero(); T]; T];
                        for j in 0..T {
                            let mut column = [S::zero(); T];
                            for i in 0..T {
                                column[i] =
                                    S::load(dv.add((i * T + j) * plane + t * columns.stride + at - columns.from));
                            }
                            let column = A::input_adjoint::<S>(column);
                            for i in 0..T {
                                half[i][j] = column[i];
                            }
                        }
                        for i in i0..i1 {
                            let values = A::input_adjoint::<S>(half[i]);
                            let shared = T - A::STEP;
                            let stored = if add || row > 0 && i < shared {
                                T
                            } else if column > 0 {
                                shared
                            } else {
                                0
                            };
                            for j in j0..j1 {
                                let o = base.add(((y0 + i - 1) * g.w + x0 + j - 1) * c + at);
                                let v =
                                    if j >= stored { values[j] } else { S::add(E::get::<FULL>(o, lanes), values[j]) };
                                E::put::<FULL>(o, v, lanes);
                            }
                        }
                    });
                }
            },
        )
    }
}
