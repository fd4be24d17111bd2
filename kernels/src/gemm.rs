//! Micro-kernels: small blocks of a matrix product kept in registers.
//!
//! Two forms serve everything. *Rows*: `out[r] = sum_i sum_p a[r][i][p] b[i][p]`, where row `r` of the left side is a
//! few contiguous segments in memory (one for a plain matrix, one per kernel row for a convolution's window) and the
//! right side is packed in panels. *Outer*: `out[r] += sum_p a[p][r] b[p]`, a sum of outer products, for weight
//! gradients.
//!
//! A right side of `n` columns is packed in panels of `PANEL` vectors, each `[rows][PANEL * LANES]`; the last panel may
//! be narrower. Columns are padded with zeros to whole vectors.

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
pub struct Left {
    /// First value of each row; rows that are not wanted repeat a valid one.
    pub row: [*const f32; MAX_ROWS],
    /// Number of segments.
    pub segments: usize,
    /// Distance between segments.
    pub stride: usize,
    /// Values in a segment.
    pub len: usize,
}

/// Computes one block of `R` rows by `NV` vectors and stores its first `rows` rows and `cols` columns.
///
/// # Safety
/// As for [`rows_block`] with a panel of `NV` vectors; `left` has at least `R` rows.
#[inline(always)]
unsafe fn rows_micro<S: Simd, const R: usize, const NV: usize>(
    left: &Left,
    b: *const f32,
    out: &[*mut f32; MAX_ROWS],
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
            for p in 0..left.len {
                let mut bv = [S::zero(); NV];
                for v in 0..NV {
                    bv[v] = S::load(b.add(v * S::LANES));
                }
                b = b.add(NV * S::LANES);
                for r in 0..R {
                    let x = S::splat(*a[r].add(p));
                    for v in 0..NV {
                        acc[r][v] = S::fma(x, bv[v], acc[r][v]);
                    }
                }
            }
        }
        if cols == NV * S::LANES {
            for r in 0..R {
                if r < rows {
                    for v in 0..NV {
                        S::store(out[r].add(v * S::LANES), acc[r][v]);
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
                            n if n >= S::LANES => S::store(o, acc[r][v]),
                            n => S::store_part(o, acc[r][v], n),
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
pub unsafe fn rows_block<S: Simd>(
    left: &Left,
    b: *const f32,
    width: usize,
    out: &[*mut f32; MAX_ROWS],
    rows: usize,
    cols: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (S::ROWS, width / S::LANES) {
            (8, 2) => rows_micro::<S, 8, 2>(left, b, out, rows, cols),
            (8, _) => rows_micro::<S, 8, 1>(left, b, out, rows, cols),
            (6, 2) => rows_micro::<S, 6, 2>(left, b, out, rows, cols),
            (6, _) => rows_micro::<S, 6, 1>(left, b, out, rows, cols),
            _ => rows_micro::<S, 4, 1>(left, b, out, rows, cols),
        }
    }
}

/// `out[t][0..n] = a[t][0..depth] B` for `t < rows`, row strides `lda` and `ldo`; `out` is padded to whole vectors.
///
/// # Safety
/// `a` holds `rows` rows, `b` the packed panels of `depth` by `n`, `out` `rows` rows of padded `n` values.
pub unsafe fn product<S: Simd>(
    rows: usize,
    depth: usize,
    (a, lda): (*const f32, usize),
    b: *const f32,
    n: usize,
    (out, ldo): (*mut f32, usize),
) {
    // SAFETY: the caller's promise.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                for column in (0..n).step_by(panel_width::<S>()) {
                    let width = width_at::<S>(n, column);
                    for t in (0..rows).step_by(S::ROWS) {
                        let mut row = [a; MAX_ROWS];
                        let mut to = [out; MAX_ROWS];
                        for r in 0..S::ROWS {
                            row[r] = a.add((t + r).min(rows - 1) * lda);
                            to[r] = out.add((t + r).min(rows - 1) * ldo + column);
                        }
                        let left = Left { row, segments: 1, stride: 0, len: depth };
                        rows_block::<S>(&left, b.add(column * depth), width, &to, S::ROWS.min(rows - t), width);
                    }
                }
            },
        )
    }
}

/// Where row `p` of the left side of a sum of outer products begins.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    /// At `base + p * stride`.
    Strided(*const f32, usize),
    /// At `pointers[p] + offset`.
    Indirect(&'a [*const f32], usize),
}

/// `R` rows of [`outer`] by `NV` vectors, from row `column` of the left side on.
///
/// # Safety
/// As for [`outer`]; `out` has room for the rows and vectors.
#[inline(always)]
unsafe fn outer_micro<S: Simd, const R: usize, const NV: usize>(
    n: usize,
    a: Rows,
    column: usize,
    (b, ldb): (*const f32, usize),
    (out, ldo): (*mut f32, usize),
    add: bool,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc = [[S::zero(); NV]; R];
        match a {
            Rows::Strided(base, stride) => {
                for p in 0..n {
                    outer_step::<S, R, NV>(base.add(p * stride + column), b.add(p * ldb), &mut acc);
                }
            }
            Rows::Indirect(pointers, offset) => {
                for p in 0..n {
                    outer_step::<S, R, NV>(pointers.get_unchecked(p).add(offset + column), b.add(p * ldb), &mut acc);
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
/// `a` holds `R` values and `b` `NV` vectors.
#[inline(always)]
unsafe fn outer_step<S: Simd, const R: usize, const NV: usize>(
    a: *const f32,
    b: *const f32,
    acc: &mut [[S::V; NV]; R],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut bv = [S::zero(); NV];
        for v in 0..NV {
            bv[v] = S::load(b.add(v * S::LANES));
        }
        for r in 0..R {
            let x = S::splat(*a.add(r));
            for v in 0..NV {
                acc[r][v] = S::fma(x, bv[v], acc[r][v]);
            }
        }
    }
}

/// `out[r][0..k] = sum over p < n of a[p][r] b[p][0..k]` for `r < m`, added to what is there when `add`; `k` columns
/// padded to whole vectors.
///
/// # Safety
/// `a` holds `n` rows of `m` values, `b` `n` rows and `out` `m` rows of padded `k` values.
pub unsafe fn outer<S: Simd>(
    n: usize,
    m: usize,
    k: usize,
    a: Rows,
    (b, ldb): (*const f32, usize),
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
                    let right = (b.add(column), ldb);
                    let mut r = 0;
                    while r < m {
                        let to = (out.add(r * ldo + column), ldo);
                        let left = m - r;
                        r += match (S::ROWS, two) {
                            (8, true) if left >= 8 => outer_rows::<S, 8, 2>(n, a, r, right, to, add),
                            (8, false) if left >= 8 => outer_rows::<S, 8, 1>(n, a, r, right, to, add),
                            (6, true) if left >= 6 => outer_rows::<S, 6, 2>(n, a, r, right, to, add),
                            (6, false) if left >= 6 => outer_rows::<S, 6, 1>(n, a, r, right, to, add),
                            (_, true) if left >= 4 => outer_rows::<S, 4, 2>(n, a, r, right, to, add),
                            (_, false) if left >= 4 => outer_rows::<S, 4, 1>(n, a, r, right, to, add),
                            (_, true) => outer_rows::<S, 1, 2>(n, a, r, right, to, add),
                            (_, false) => outer_rows::<S, 1, 1>(n, a, r, right, to, add),
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
unsafe fn outer_rows<S: Simd, const R: usize, const NV: usize>(
    n: usize,
    a: Rows,
    column: usize,
    b: (*const f32, usize),
    out: (*mut f32, usize),
    add: bool,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe { outer_micro::<S, R, NV>(n, a, column, b, out, add) };
    R
}

/// Floating-point operations per second of the micro-kernel on the calling thread, on operands that stay in the
/// first-level cache: the yardstick of the benchmarks. `clock` gives the time in seconds.
pub fn rate(clock: impl Fn() -> f64) -> f64 {
    crate::level::at_level!(S => rate_at::<S>(clock))
}

fn rate_at<S: Simd>(clock: impl Fn() -> f64) -> f64 {
    let (rows, depth, n) = (S::ROWS * 4, 64, panel_width::<S>());
    let (a, b, mut out) = (vec![0.5f32; rows * depth], vec![0.25f32; depth * n], vec![0.0f32; rows * n]);
    let mut best = 0.0f64;
    for _ in 0..20 {
        let start = clock();
        for _ in 0..2000 {
            // SAFETY: the operands have the sizes that are passed.
            unsafe { product::<S>(rows, depth, (a.as_ptr(), depth), b.as_ptr(), n, (out.as_mut_ptr(), n)) };
        }
        best = best.max(2000.0 * 2.0 * (rows * depth * n) as f64 / (clock() - start));
    }
    std::hint::black_box(&out);
    best
}
