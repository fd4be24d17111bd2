//! Softmax of a few vectors over a large bank, in one pass over the bank: the logits are never all in memory.

use crate::gemm::{Left, Rows, outer, panel_width, rows_block};
use crate::level::{Precision, at_number};
use crate::memory::{Ptr, Scratch, parallel};
use crate::number::Number;
use crate::simd::{MAX_ROWS, Simd, padded};

/// Bank rows whose logits are in memory at once, per thread.
const BLOCK: usize = 256;

/// What a loss over a bank needs; see [`bank_softmax`].
pub struct BankSoftmax {
    /// `log sum_k exp(v . m_k / tau)` for each vector.
    pub log_sum_exp: Vec<f64>,
    /// `sum_k softmax_k m_k` for each vector, `[b, d]`.
    pub expectation: Vec<f32>,
}

/// The log-sum-exp of `v . m_k / tau` over all rows `m_k` of the bank, and the bank's mean under that softmax.
///
/// `v` is `[b, d]` and `bank` `[n, d]`, row by row. The gradient of the first quantity by `v` is the second over `tau`.
/// The operands of both products (`v / tau` and bank; exponentials and bank) are rounded to `precision`, sums are f32.
/// The same bits come out whatever the number of threads.
pub fn bank_softmax(v: &[f32], bank: &[f32], d: usize, tau: f32, precision: Precision) -> BankSoftmax {
    assert!(d > 0 && v.len().is_multiple_of(d) && bank.len().is_multiple_of(d), "rows of {d} values");
    assert!(!bank.is_empty(), "an empty bank has no softmax");
    at_number!(S, E of precision.dtype(), for d => softmax::<S, E>(v, bank, d, tau))
}

/// Running maximum, sum and weighted sum of one unit, as one block of scratch: `[bp]`, `[bp]`, `[bp][dp]`.
#[derive(Clone, Copy)]
struct Layout {
    bp: usize,
    d: usize,
    dp: usize,
}

impl Layout {
    fn len(&self) -> usize {
        self.bp * (2 + self.dp)
    }
}

fn softmax<S: Simd, E: Number<S>>(v: &[f32], bank: &[f32], d: usize, tau: f32) -> BankSoftmax {
    let (b, n) = (v.len() / d, bank.len() / d);
    let width = panel_width::<S>();
    let layout = Layout { bp: b.next_multiple_of(width), d, dp: padded::<S>(d) };
    // v / tau in packed panels [bp / width][d / GROUP][width][GROUP]
    let deep = d.next_multiple_of(E::GROUP);
    let mut packed = vec![E::nearest(0.0); layout.bp * deep];
    for (i, row) in v.chunks_exact(d).enumerate() {
        let panel = &mut packed[i / width * width * deep..][..width * deep];
        for (j, x) in row.iter().enumerate() {
            panel[(j / E::GROUP * width + i % width) * E::GROUP + j % E::GROUP] = E::nearest(x / tau);
        }
    }
    // at most 64 units, whole blocks each
    let unit = n.div_ceil(64).next_multiple_of(BLOCK).max(8 * BLOCK);
    let units = n.div_ceil(unit);
    let parts = Scratch::new(units * layout.len());
    let part = parts.ptr();
    parallel(units, |u| {
        let rows = &bank[u * unit * d..((u + 1) * unit * d).min(bank.len())];
        // SAFETY: a unit writes its own part, and the packed vectors have `bp` columns of `d` values.
        unsafe { one_unit::<S, E>(rows, &packed, layout, part.at(u * layout.len())) }
    });
    let mut out = BankSoftmax { log_sum_exp: vec![0.0; b], expectation: vec![0.0; b * d] };
    let (lse, expectation) = (out.log_sum_exp.as_mut_ptr() as *mut f32, Ptr(out.expectation.as_mut_ptr()));
    let lse = Ptr(lse);
    parallel(b, |i| {
        let part = |u: usize, at: usize| parts.as_ref()[u * layout.len() + at];
        let top = (0..units).map(|u| part(u, i)).fold(f32::NEG_INFINITY, f32::max);
        let weight: Vec<f64> = (0..units).map(|u| f64::from(part(u, i) - top).exp()).collect();
        let sum: f64 = (0..units).map(|u| weight[u] * f64::from(part(u, layout.bp + i))).sum();
        // SAFETY: `i < b` writes its own number and its own row.
        unsafe { *(lse.at(0) as *mut f64).add(i) = f64::from(top) + sum.ln() };
        for j in 0..d {
            let at = 2 * layout.bp + i * layout.dp + j;
            let mean: f64 = (0..units).map(|u| weight[u] * f64::from(part(u, at))).sum();
            // SAFETY: as above.
            unsafe { *expectation.at(i * d + j) = (mean / sum) as f32 };
        }
    });
    out
}

/// Maximum, sum and weighted sum over some rows of the bank.
///
/// # Safety
/// `out` has `layout.len()` values, `packed` `bp` columns of `d` values.
unsafe fn one_unit<S: Simd, E: Number<S>>(bank: &[f32], packed: &[E], layout: Layout, out: *mut f32) {
    let Layout { bp, d, dp } = layout;
    // SAFETY: the caller's promise.
    unsafe {
        let (top, sum, weighted) = (out, out.add(bp), out.add(2 * bp));
        std::ptr::write_bytes(out, 0, layout.len());
        for i in 0..bp {
            *top.add(i) = f32::NEG_INFINITY;
        }
        let (logits, copy) = (Scratch::new(BLOCK * bp), Scratch::of::<E>(BLOCK * dp));
        let groups = Scratch::of::<E>(E::grouped_len(BLOCK, d));
        let logits = logits.ptr().0;
        for rows in bank.chunks(BLOCK * d) {
            let n = rows.len() / d;
            rounded::<S, E>(rows, layout, copy.start().0);
            block_logits::<S, E>(n, copy.start().0, packed, layout, logits);
            block_softmax::<S, E>(n, layout, logits, top, sum, weighted);
            let Rows::Strided(right, stride) = E::grouped(n, d, Rows::Strided(copy.start().0, dp), groups.start().0)
            else {
                unreachable!("strided rows stay strided")
            };
            let left = Rows::Strided(logits as *const E, bp * E::GROUP);
            outer::<S, E>(n.div_ceil(E::GROUP), bp, d, left, (right, stride), (weighted, dp), true);
        }
    }
}

/// Rows of `d` values, rounded and filled up with zeros to `dp`.
///
/// # Safety
/// `to` has room for `dp` values a row.
unsafe fn rounded<S: Simd, E: Number<S>>(rows: &[f32], Layout { d, dp, .. }: Layout, to: *mut E) {
    // SAFETY: the caller's promise; a row has `d` values, of which the last vector takes what is left.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                for (r, row) in rows.chunks_exact(d).enumerate() {
                    for at in (0..d).step_by(S::LANES) {
                        let (from, to, left) = (row.as_ptr().add(at), to.add(r * dp + at), d - at);
                        let values = if left >= S::LANES { S::load(from) } else { S::get::<false>(from, left) };
                        E::put::<true>(to, values, S::LANES);
                    }
                }
            },
        )
    }
}

/// `logits[row][i] = row . v_i / tau` for `n` rows of `dp` values.
///
/// # Safety
/// `rows` has these rows, `packed` `bp` columns of `d` values, and `logits` room for `bp` values a row.
unsafe fn block_logits<S: Simd, E: Number<S>>(
    n: usize,
    rows: *const E,
    packed: &[E],
    Layout { bp, d, dp }: Layout,
    logits: *mut f32,
) {
    let (width, deep) = (panel_width::<S>(), d.next_multiple_of(E::GROUP));
    // SAFETY: the caller's promise.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                for column in (0..bp).step_by(width) {
                    for first in (0..n).step_by(S::ROWS) {
                        let count = S::ROWS.min(n - first);
                        let mut left = Left { row: [rows; MAX_ROWS], segments: 1, stride: 0, len: d };
                        let mut to = [logits; MAX_ROWS];
                        for r in 0..count {
                            left.row[r] = rows.add((first + r) * dp);
                            to[r] = logits.add((first + r) * bp + column);
                        }
                        rows_block::<S, E, f32>(&left, packed.as_ptr().add(column * deep), width, &to, count, width);
                    }
                }
            },
        )
    }
}

/// Turns logits into exponentials relative to the new maximum, and rescales what was summed under the old one. The exponentials
/// are rounded and take the place of the logits in groups of rows: a group has the size of an f32.
///
/// # Safety
/// `logits` holds `n` rows of `bp` values; `top` and `sum` hold `bp` values and `weighted` `bp` rows of `dp`.
unsafe fn block_softmax<S: Simd, E: Number<S>>(
    n: usize,
    layout: Layout,
    logits: *mut f32,
    top: *mut f32,
    sum: *mut f32,
    weighted: *mut f32,
) {
    // SAFETY: the caller's promise; columns are whole vectors below `bp`.
    unsafe {
        S::run(
            #[inline(always)]
            || {
                let mut column = 0;
                while column < layout.bp {
                    let (logits, top, sum) = (logits.add(column), top.add(column), sum.add(column));
                    let weighted = weighted.add(column * layout.dp);
                    // several vectors of a row at once: one alone would jump from row to row through the cache
                    column += match (layout.bp - column) / S::LANES {
                        1 => softmax_columns::<S, E, 1>(n, layout, logits, top, sum, weighted),
                        2 | 3 => softmax_columns::<S, E, 2>(n, layout, logits, top, sum, weighted),
                        _ => softmax_columns::<S, E, 4>(n, layout, logits, top, sum, weighted),
                    };
                }
            },
        )
    }
}

/// [`block_softmax`] of the first `NV` vectors of columns; returns how many columns that are.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn softmax_columns<S: Simd, E: Number<S>, const NV: usize>(
    n: usize,
    Layout { bp, dp, .. }: Layout,
    logits: *mut f32,
    top: *mut f32,
    sum: *mut f32,
    weighted: *mut f32,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        let mut new = [S::zero(); NV];
        for v in 0..NV {
            new[v] = S::load(top.add(v * S::LANES));
        }
        for r in 0..n {
            for v in 0..NV {
                new[v] = S::max(new[v], S::load(logits.add(r * bp + v * S::LANES)));
            }
        }
        let mut total = [S::zero(); NV];
        for v in 0..NV {
            let (top, sum) = (top.add(v * S::LANES), sum.add(v * S::LANES));
            let shrink = S::exp(S::sub(S::load(top), new[v]));
            total[v] = S::mul(shrink, S::load(sum));
            S::store(top, new[v]);
            let mut factor = [0.0; 16];
            S::store(factor.as_mut_ptr(), shrink);
            for lane in 0..S::LANES {
                let by = S::splat(factor[lane]);
                for at in (0..dp).step_by(S::LANES) {
                    let p = weighted.add((v * S::LANES + lane) * dp + at);
                    S::store(p, S::mul(by, S::load(p)));
                }
            }
        }
        for group in 0..n.div_ceil(E::GROUP) {
            for v in 0..NV {
                let mut exponentials = [S::zero(); 2];
                for r in (group * E::GROUP..n).take(E::GROUP) {
                    let e = S::exp(S::sub(S::load(logits.add(r * bp + v * S::LANES)), new[v]));
                    total[v] = S::add(total[v], e);
                    exponentials[r % E::GROUP] = e;
                }
                E::store_groups(logits.add(group * bp + v * S::LANES).cast(), exponentials);
            }
        }
        for v in 0..NV {
            S::store(sum.add(v * S::LANES), total[v]);
        }
        NV * S::LANES
    }
}
