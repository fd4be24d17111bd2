//! Micro-kernels: small blocks of a matrix product kept in registers.
//!
//! Two forms serve everything. *Rows*: `out[r] = sum_i sum_p a[r][i][p] b[i][p]`, where row `r` of the left side is a
//! few contiguous segments in memory (one for a plain matrix, one per kernel row for a convolution's window) and the
//! right side is packed in panels. *Outer*: `out[r] += sum_p a[p][r] b[p]`, a sum of outer products, for weight
//! gradients.
//!
//! A right side of `n` columns is packed in panels of `PANEL` vectors, each `[rows][PANEL * LANES]`; the last panel may
//! be narrower. Columns are padded with zeros to whole vectors. Operands are f32 or bf16, sums always f32: where rows are
//! said to come in groups, see [`Number::GROUP`]; a packed panel is then `[rows / GROUP][PANEL * LANES][GROUP]`.

use crate::level::{Precision, at_number};
use crate::number::Number;
use crate::simd::{MAX_ROWS, Simd, padded};

/// Values across a whole panel.
pub const fn panel_width<S: Simd>() -> usize {
    S::PANEL * S::LANES
}

/// Values across the panel that begins at column `at` of `n`.
#[inline(always)]
pub fn width_at<S: Simd>(n: usize, at: usize) -> usize {
    panel_width::<S>().min(padded::<S>(n) - at)
}

/// The left side of a block of rows: where each row begins, and how its segments follow each other.
#[derive(Clone, Copy)]
pub struct Left<E> {
    /// First value of each row; rows that are not wanted repeat a valid one.
    pub row: [*const E; MAX_ROWS],
    /// Number of segments.
    pub segments: usize,
    /// Distance between segments.
    pub stride: usize,
    /// Values in a segment. When it is not whole groups, the value behind it is read too and multiplied by zero.
    pub len: usize,
}

/// Computes one block of `R` rows by `NV` vectors and stores its first `rows` rows and `cols` columns.
///
/// # Safety
/// As for [`rows_block`] with a panel of `NV` vectors; `left` has at least `R` rows.
#[inline(always)]
unsafe fn rows_micro<S: Simd, E: Number<S>, O: Number<S>, const R: usize, const NV: usize>(
    left: &Left<E>,
    b: *const E,
    out: &[*mut O; MAX_ROWS],
    rows: usize,
    cols: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc = [[S::zero(); NV]; R];
        let mut b = b;
        for i in 0..left.segments {
            let mut a = left.row;
            for a in a.iter_mut().take(R) {
                *a = a.add(i * left.stride);
            }
            for p in 0..left.len.div_ceil(E::GROUP) {
                let mut bv = [S::zero(); NV];
                for v in 0..NV {
                    bv[v] = E::load_groups(b.add(v * S::LANES * E::GROUP));
                }
                b = b.add(NV * S::LANES * E::GROUP);
                for r in 0..R {
                    let x = E::broadcast(a[r].add(p * E::GROUP));
                    for v in 0..NV {
                        acc[r][v] = E::multiply_add(x, bv[v], acc[r][v]);
                    }
                }
            }
        }
        if cols == NV * S::LANES {
            for r in 0..R {
                if r < rows {
                    for v in 0..NV {
                        O::put::<true>(out[r].add(v * S::LANES), acc[r][v], S::LANES);
                    }
                }
            }
        } else {
            for r in 0..R {
                if r < rows {
                    for v in 0..NV {
                        let o = out[r].wrapping_add(v * S::LANES);
                        match cols.saturating_sub(v * S::LANES) {
                            0 => (),
                            n if n >= S::LANES => O::put::<true>(o, acc[r][v], n),
                            n => O::put::<false>(o, acc[r][v], n),
                        }
                    }
                }
            }
        }
    }
}

/// One block: `S::ROWS` rows by the `width` columns of a packed panel; see [`Left`].
///
/// # Safety
/// Every row of `left` is readable over its segments, `b` over the panel, and the first `rows` pointers of
/// `out` are writable for `cols` values.
#[inline(always)]
pub unsafe fn rows_block<S: Simd, E: Number<S>, O: Number<S>>(
    left: &Left<E>,
    b: *const E,
    width: usize,
    out: &[*mut O; MAX_ROWS],
    rows: usize,
    cols: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (S::ROWS, width / S::LANES) {
            (8, 2) => rows_micro::<S, E, O, 8, 2>(left, b, out, rows, cols),
            (8, _) => rows_micro::<S, E, O, 8, 1>(left, b, out, rows, cols),
            (6, 2) => rows_micro::<S, E, O, 6, 2>(left, b, out, rows, cols),
            (6, _) => rows_micro::<S, E, O, 6, 1>(left, b, out, rows, cols),
            _ => rows_micro::<S, E, O, 4, 1>(left, b, out, rows, cols),
        }
    }
}

/// `R` rows of [`product`] by `NV` vectors, from the first on.
///
/// # Safety
/// As there, for `R` rows and a panel of `NV` vectors.
#[inline(always)]
unsafe fn product_micro<S: Simd, E: Number<S>, const R: usize, const NV: usize>(
    depth: usize,
    (a, lda): (*const E, usize),
    b: *const E,
    (out, ldo): (*mut f32, usize),
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc = [[S::zero(); NV]; R];
        for p in 0..depth.div_ceil(E::GROUP) {
            let mut bv = [S::zero(); NV];
            for v in 0..NV {
                bv[v] = E::load_groups(b.add((p * NV + v) * S::LANES * E::GROUP));
            }
            for r in 0..R {
                let x = E::broadcast(a.add(r * lda + p * E::GROUP));
                for v in 0..NV {
                    acc[r][v] = E::multiply_add(x, bv[v], acc[r][v]);
                }
            }
        }
        for r in 0..R {
            for v in 0..NV {
                S::store(out.add(r * ldo + v * S::LANES), acc[r][v]);
            }
        }
    }
}

/// `out[t][0..n] = a[t][0..depth] B` for `t < rows`, row strides `lda` and `ldo`; `out` is padded to whole vectors, and
/// `depth` to whole groups with zeros on both sides.
///
/// # Safety
/// `a` holds `rows` rows, `b` the packed panels of `depth` by `n`, `out` `rows` rows of padded `n` values.
pub unsafe fn product<S: Simd, E: Number<S>>(
    rows: usize,
    depth: usize,
    (a, lda): (*const E, usize),
    b: *const E,
    n: usize,
    (out, ldo): (*mut f32, usize),
) {
    // SAFETY: the caller's promise.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                let deep = depth.next_multiple_of(E::GROUP);
                for column in (0..n).step_by(panel_width::<S>()) {
                    let (two, b) = (width_at::<S>(n, column) == 2 * S::LANES, b.add(column * deep));
                    let mut t = 0;
                    while t < rows {
                        let (from, to) = ((a.add(t * lda), lda), (out.add(t * ldo + column), ldo));
                        // as many rows as the registers hold: twice as many of half the columns
                        t += match (S::ROWS, two, rows - t) {
                            (8, true, 8..) => product_rows::<S, E, 8, 2>(depth, from, b, to),
                            (8, false, 16..) => product_rows::<S, E, 16, 1>(depth, from, b, to),
                            (6, true, 6..) => product_rows::<S, E, 6, 2>(depth, from, b, to),
                            (6, false, 12..) => product_rows::<S, E, 12, 1>(depth, from, b, to),
                            (4, false, 4..) => product_rows::<S, E, 4, 1>(depth, from, b, to),
                            (_, true, 4..) => product_rows::<S, E, 4, 2>(depth, from, b, to),
                            (_, false, 8..) => product_rows::<S, E, 8, 1>(depth, from, b, to),
                            (_, true, 2..) => product_rows::<S, E, 2, 2>(depth, from, b, to),
                            (_, false, 2..) => product_rows::<S, E, 2, 1>(depth, from, b, to),
                            (_, true, _) => product_rows::<S, E, 1, 2>(depth, from, b, to),
                            (_, false, _) => product_rows::<S, E, 1, 1>(depth, from, b, to),
                        };
                    }
                }
            },
        )
    }
}

/// [`product_micro`], returning the rows done.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn product_rows<S: Simd, E: Number<S>, const R: usize, const NV: usize>(
    depth: usize,
    a: (*const E, usize),
    b: *const E,
    out: (*mut f32, usize),
) -> usize {
    // SAFETY: the caller's promise.
    unsafe { product_micro::<S, E, R, NV>(depth, a, b, out) };
    R
}

/// Where row `p` of the left side of a sum of outer products begins.
#[derive(Clone, Copy)]
pub enum Rows<'a, E> {
    /// At `base + p * stride`.
    Strided(*const E, usize),
    /// At `pointers[p] + offset`.
    Indirect(&'a [*const E], usize),
}

impl<E> Rows<'_, E> {
    /// Where row `p` begins.
    ///
    /// # Safety
    /// There is such a row.
    #[inline(always)]
    pub unsafe fn at(&self, p: usize) -> *const E {
        // SAFETY: the caller's promise.
        unsafe {
            match *self {
                Rows::Strided(base, stride) => base.add(p * stride),
                Rows::Indirect(pointers, offset) => pointers.get_unchecked(p).add(offset),
            }
        }
    }
}

/// `R` rows of [`outer`] by `NV` vectors, from row `column` of the left side on.
///
/// # Safety
/// As for [`outer`]; `out` has room for the rows and vectors.
#[inline(always)]
unsafe fn outer_micro<S: Simd, E: Number<S>, const R: usize, const NV: usize>(
    n: usize,
    a: Rows<E>,
    column: usize,
    (b, ldb): (*const E, usize),
    (out, ldo): (*mut f32, usize),
    add: bool,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc = [[S::zero(); NV]; R];
        match a {
            Rows::Strided(base, stride) => {
                for p in 0..n {
                    outer_step::<S, E, R, NV>(base.add(p * stride + column * E::GROUP), b.add(p * ldb), &mut acc);
                }
            }
            Rows::Indirect(pointers, offset) => {
                for p in 0..n {
                    let row = pointers.get_unchecked(p).add(offset + column * E::GROUP);
                    outer_step::<S, E, R, NV>(row, b.add(p * ldb), &mut acc);
                }
            }
        }
        for r in 0..R {
            for v in 0..NV {
                let o = out.add(r * ldo + v * S::LANES);
                S::store(o, if add { S::add(S::load(o), acc[r][v]) } else { acc[r][v] });
            }
        }
    }
}

/// One outer product, added to `acc`.
///
/// # Safety
/// `a` holds `R` groups and `b` `NV` vectors of them.
#[inline(always)]
unsafe fn outer_step<S: Simd, E: Number<S>, const R: usize, const NV: usize>(
    a: *const E,
    b: *const E,
    acc: &mut [[S::V; NV]; R],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut bv = [S::zero(); NV];
        for v in 0..NV {
            bv[v] = E::load_groups(b.add(v * S::LANES * E::GROUP));
        }
        for r in 0..R {
            let x = E::broadcast(a.add(r * E::GROUP));
            for v in 0..NV {
                acc[r][v] = E::multiply_add(x, bv[v], acc[r][v]);
            }
        }
    }
}

/// `out[r][0..k] = sum over p < n of a[p][r] b[p][0..k]` for `r < m`, added to what is there when `add`; `k` columns
/// padded to whole vectors. Rows are `n` groups of rows, as [`Number::grouped`] lays them out.
///
/// # Safety
/// `a` holds `n` groups of rows of `m` values, `b` the same of padded `k` values, and `out` `m` rows of padded `k` values.
pub unsafe fn outer<S: Simd, E: Number<S>>(
    n: usize,
    m: usize,
    k: usize,
    a: Rows<E>,
    (b, ldb): (*const E, usize),
    (out, ldo): (*mut f32, usize),
    add: bool,
) {
    // SAFETY: the caller's promise.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                for column in (0..k).step_by(panel_width::<S>()) {
                    let two = width_at::<S>(k, column) == 2 * S::LANES;
                    let right = (b.add(column * E::GROUP), ldb);
                    let mut r = 0;
                    while r < m {
                        let to = (out.add(r * ldo + column), ldo);
                        let left = m - r;
                        r += match (S::ROWS, two) {
                            (8, true) if left >= 8 => outer_rows::<S, E, 8, 2>(n, a, r, right, to, add),
                            (8, false) if left >= 8 => outer_rows::<S, E, 8, 1>(n, a, r, right, to, add),
                            (6, true) if left >= 6 => outer_rows::<S, E, 6, 2>(n, a, r, right, to, add),
                            (6, false) if left >= 6 => outer_rows::<S, E, 6, 1>(n, a, r, right, to, add),
                            (_, true) if left >= 4 => outer_rows::<S, E, 4, 2>(n, a, r, right, to, add),
                            (_, false) if left >= 4 => outer_rows::<S, E, 4, 1>(n, a, r, right, to, add),
                            (_, true) => outer_rows::<S, E, 1, 2>(n, a, r, right, to, add),
                            (_, false) => outer_rows::<S, E, 1, 1>(n, a, r, right, to, add),
                        };
                    }
                }
            },
        )
    }
}

/// [`outer_micro`], returning the rows done.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn outer_rows<S: Simd, E: Number<S>, const R: usize, const NV: usize>(
    n: usize,
    a: Rows<E>,
    column: usize,
    b: (*const E, usize),
    out: (*mut f32, usize),
    add: bool,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe { outer_micro::<S, E, R, NV>(n, a, column, b, out, add) };
    R
}

/// Floating-point operations per second of the micro-kernel on the calling thread, on operands that stay in the
/// first-level cache: the yardstick of the benchmarks. `clock` gives the time in seconds.
pub fn rate(precision: Precision, clock: impl Fn() -> f64) -> f64 {
    at_number!(S, E of precision.dtype(), for 64 => rate_at::<S, E>(clock))
}

fn rate_at<S: Simd, E: Number<S>>(clock: impl Fn() -> f64) -> f64 {
    let (rows, depth, n) = (S::ROWS * 4, 64, panel_width::<S>());
    let (a, b) = (vec![E::nearest(0.5); rows * depth], vec![E::nearest(0.25); depth * n]);
    let mut out = vec![0.0f32; rows * n];
    let mut best = 0.0f64;
    for _ in 0..20 {
        let start = clock();
        for _ in 0..2000 {
            // SAFETY: the operands have the sizes that are passed.
            unsafe { product::<S, E>(rows, depth, (a.as_ptr(), depth), b.as_ptr(), n, (out.as_mut_ptr(), n)) };
        }
        best = best.max(2000.0 * 2.0 * (rows * depth * n) as f64 / (clock() - start));
    }
    std::hint::black_box(&out);
    best
}
