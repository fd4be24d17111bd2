//! Numbers as activations and operands of products are stored: f32, or bf16, the upper half of one.
//!
//! Kernels are generic over [`Number`]. In memory a bf16 is 16 bits; in registers values are always f32, and so is every
//! sum: a product of bf16 takes two neighbours along the summed index at once and adds both to the f32 sum of its lane.
//! That index therefore comes in groups of [`Number::GROUP`]: rows of a packed right side lie side by side in pairs, and
//! a left side is read two values at a time.

use crate::gemm::Rows;
use crate::memory::{Ptr, parallel};
use crate::simd::{Portable, Simd, padded};
use crate::winograd::{Algorithm, Balanced, BalancedStrided, Dense, Strided};
use burn_std::bf16;

/// A number in memory.
///
/// # Safety
/// For every function: the CPU has the features of `S`, and pointers are valid for what is read or written.
#[expect(clippy::missing_safety_doc, reason = "one promise for all functions, in the trait's own text")]
pub trait Number<S: Simd>: Copy + Send + Sync + 'static {
    /// Values along the summed index that one multiplication takes.
    const GROUP: usize;
    /// Winograd's algorithm for stride 1, with points that suit the precision.
    type Dense: Algorithm<6>;
    /// Winograd's algorithm for stride 2, with points that suit the precision.
    type Strided: Algorithm<9>;

    /// As f32.
    fn wide(self) -> f32;
    /// The nearest to an f32.
    fn nearest(value: f32) -> Self;

    /// Reads a vector, or its first `n` values when not `FULL`.
    unsafe fn get<const FULL: bool>(p: *const Self, n: usize) -> S::V;
    /// Rounds and writes a vector, or its first `n` values when not `FULL`.
    unsafe fn put<const FULL: bool>(p: *mut Self, v: S::V, n: usize);
    /// The group at `p` in every lane.
    unsafe fn broadcast(p: *const Self) -> S::V;
    /// Reads a group for each lane.
    unsafe fn load_groups(p: *const Self) -> S::V;
    /// Rounds and writes a group for each lane, of which `rows` are the members; f32 has only the first.
    unsafe fn store_groups(p: *mut Self, rows: [S::V; 2]);
    /// `sum` and the products of the groups in each lane.
    unsafe fn multiply_add(a: S::V, b: S::V, sum: S::V) -> S::V;

    /// Values that [`Number::grouped`] needs to lay out `n` rows of `width` values.
    fn grouped_len(n: usize, width: usize) -> usize;
    /// `n` rows of `width` values as groups of rows, each lane's group side by side: the rows themselves for f32, or a
    /// copy at `to`, whose last group is filled up with zeros. Rows of the copy are padded to whole vectors.
    unsafe fn grouped<'a>(n: usize, width: usize, rows: Rows<'a, Self>, to: *mut Self) -> Rows<'a, Self>;
}

impl<S: Simd> Number<S> for f32 {
    const GROUP: usize = 1;
    type Dense = Dense;
    type Strided = Strided;

    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }
    #[inline(always)]
    fn nearest(value: f32) -> f32 {
        value
    }

    #[inline(always)]
    unsafe fn get<const FULL: bool>(p: *const f32, n: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { S::get::<FULL>(p, n) }
    }
    #[inline(always)]
    unsafe fn put<const FULL: bool>(p: *mut f32, v: S::V, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { S::put::<FULL>(p, v, n) }
    }
    #[inline(always)]
    unsafe fn broadcast(p: *const f32) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { S::splat(*p) }
    }
    #[inline(always)]
    unsafe fn load_groups(p: *const f32) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { S::load(p) }
    }
    #[inline(always)]
    unsafe fn store_groups(p: *mut f32, [row, _]: [S::V; 2]) {
        // SAFETY: the caller's promise.
        unsafe { S::store(p, row) }
    }
    #[inline(always)]
    unsafe fn multiply_add(a: S::V, b: S::V, sum: S::V) -> S::V {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe { S::fma(a, b, sum) }
    }
    fn grouped_len(_: usize, _: usize) -> usize {
        0
    }
    #[inline(always)]
    unsafe fn grouped<'a>(_: usize, _: usize, rows: Rows<'a, f32>, _: *mut f32) -> Rows<'a, f32> {
        rows
    }
}

/// Values in a unit of work.
const UNIT: usize = 1 << 15;

/// `to = from`, rounded to the nearest where `to` has fewer bits.
pub fn convert<S: Simd, A: Number<S>, B: Number<S>>(from: &[A], to: &mut [B]) {
    assert_eq!(from.len(), to.len());
    let (n, a, b) = (from.len(), Ptr::to(from), Ptr(to.as_mut_ptr()));
    parallel(n.div_ceil(UNIT), |u| {
        let (begin, end) = (u * UNIT, (u * UNIT + UNIT).min(n));
        // SAFETY: units are disjoint ranges within the slices.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    let mut at = begin;
                    while at + S::LANES <= end {
                        B::put::<true>(b.at(at), A::get::<true>(a.at(at), S::LANES), S::LANES);
                        at += S::LANES;
                    }
                    if at < end {
                        B::put::<false>(b.at(at), A::get::<false>(a.at(at), end - at), end - at);
                    }
                },
            )
        }
    });
}

/// `to += from`, of `n` values.
///
/// # Safety
/// Both hold `n` values, and nobody else uses `to`.
pub unsafe fn add<S: Simd, E: Number<S>>(n: usize, from: Ptr<E>, to: Ptr<E>) {
    parallel(n.div_ceil(UNIT), |u| {
        let (begin, end) = (u * UNIT, (u * UNIT + UNIT).min(n));
        // SAFETY: units are disjoint ranges of what the caller promised.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    let mut at = begin;
                    while at + S::LANES <= end {
                        let sum = S::add(E::get::<true>(from.at(at), S::LANES), E::get::<true>(to.at(at), S::LANES));
                        E::put::<true>(to.at(at), sum, S::LANES);
                        at += S::LANES;
                    }
                    if at < end {
                        let n = end - at;
                        let sum = S::add(E::get::<false>(from.at(at), n), E::get::<false>(to.at(at), n));
                        E::put::<false>(to.at(at), sum, n);
                    }
                },
            )
        }
    });
}

/// What bf16 needs of an instruction set.
///
/// # Safety
/// As for [`Simd`].
#[expect(clippy::missing_safety_doc, reason = "one promise for all functions, in the trait's own text")]
pub trait Half: Simd {
    /// Reads a vector, or its first `n` values when not `FULL`; the other lanes are zero.
    unsafe fn widen<const FULL: bool>(p: *const bf16, n: usize) -> Self::V;
    /// Rounds to nearest, ties to even, and writes a vector, or its first `n` values when not `FULL`.
    unsafe fn narrow<const FULL: bool>(p: *mut bf16, v: Self::V, n: usize);
    /// The pair at `p` in every lane.
    unsafe fn pair(p: *const bf16) -> Self::V;
    /// Reads a pair for each lane.
    unsafe fn load_pairs(p: *const bf16) -> Self::V;
    /// Rounds and writes a pair for each lane.
    unsafe fn store_pairs(p: *mut bf16, rows: [Self::V; 2]);
    /// Writes a pair for each lane from two rows, or from one and zeros; each row has a vector, or `n` values when not
    /// `FULL` and zeros behind them.
    unsafe fn zip<const FULL: bool>(to: *mut bf16, a: *const bf16, b: Option<*const bf16>, n: usize);
    /// `sum` and the two products of the pairs in each lane, in f32.
    unsafe fn dot(a: Self::V, b: Self::V, sum: Self::V) -> Self::V;
}

impl<S: Half> Number<S> for bf16 {
    const GROUP: usize = 2;
    type Dense = Balanced;
    type Strided = BalancedStrided;

    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn nearest(value: f32) -> bf16 {
        bf16::from_f32(value)
    }

    #[inline(always)]
    unsafe fn get<const FULL: bool>(p: *const bf16, n: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { S::widen::<FULL>(p, n) }
    }
    #[inline(always)]
    unsafe fn put<const FULL: bool>(p: *mut bf16, v: S::V, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { S::narrow::<FULL>(p, v, n) }
    }
    #[inline(always)]
    unsafe fn broadcast(p: *const bf16) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { S::pair(p) }
    }
    #[inline(always)]
    unsafe fn load_groups(p: *const bf16) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { S::load_pairs(p) }
    }
    #[inline(always)]
    unsafe fn store_groups(p: *mut bf16, rows: [S::V; 2]) {
        // SAFETY: the caller's promise.
        unsafe { S::store_pairs(p, rows) }
    }
    #[inline(always)]
    unsafe fn multiply_add(a: S::V, b: S::V, sum: S::V) -> S::V {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe { S::dot(a, b, sum) }
    }
    fn grouped_len(n: usize, width: usize) -> usize {
        n.next_multiple_of(2) * padded::<S>(width)
    }
    unsafe fn grouped<'a>(n: usize, width: usize, rows: Rows<'a, bf16>, to: *mut bf16) -> Rows<'a, bf16> {
        let stride = 2 * padded::<S>(width);
        // SAFETY: the rows hold `width` values, and `to` has room for `grouped_len` of them.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    for p in (0..n).step_by(2) {
                        let (a, b) = (rows.at(p), (p + 1 < n).then(|| rows.at(p + 1)));
                        let to = to.add(p / 2 * stride);
                        for at in (0..width).step_by(S::LANES) {
                            let (a, b, left) = (a.add(at), b.map(|b| b.add(at)), width - at);
                            if left >= S::LANES {
                                S::zip::<true>(to.add(2 * at), a, b, left)
                            } else {
                                S::zip::<false>(to.add(2 * at), a, b, left)
                            }
                        }
                    }
                },
            )
        }
        Rows::Strided(to, stride)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{Half, bf16};
    use crate::simd::Avx512Half;
    use std::arch::x86_64::*;
    use std::mem::transmute;

    /// Word `i` of the first half, then of the second: where each word of pairs comes from.
    static ZIP: [u16; 32] = {
        let mut words = [0; 32];
        let mut i = 0;
        while i < 32 {
            words[i] = (i / 2 + i % 2 * 16) as u16;
            i += 1;
        }
        words
    };

    /// A vector of values, or the first `n` when not `FULL`, each in the lower half of its lane.
    ///
    /// # Safety
    /// As for [`Half::widen`].
    #[inline(always)]
    unsafe fn words<const FULL: bool>(p: *const bf16, n: usize) -> __m512i {
        // SAFETY: reads 16 values, or the first `n` only; the caller vouches for them and for the CPU's features.
        unsafe {
            _mm512_cvtepu16_epi32(if FULL {
                _mm256_loadu_si256(p.cast())
            } else {
                _mm256_maskz_loadu_epi16(((1u32 << n) - 1) as u16, p.cast())
            })
        }
    }

    impl Half for Avx512Half {
        #[inline(always)]
        unsafe fn widen<const FULL: bool>(p: *const bf16, n: usize) -> __m512 {
            // SAFETY: the caller's promise.
            unsafe { _mm512_castsi512_ps(_mm512_slli_epi32(words::<FULL>(p, n), 16)) }
        }
        #[inline(always)]
        unsafe fn narrow<const FULL: bool>(p: *mut bf16, v: __m512, n: usize) {
            // SAFETY: writes 16 values, or the first `n` only; the two types are the same 256 bits.
            unsafe {
                let half = transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(v));
                if FULL {
                    _mm256_storeu_si256(p.cast(), half)
                } else {
                    _mm256_mask_storeu_epi16(p.cast(), ((1u32 << n) - 1) as u16, half)
                }
            }
        }
        #[inline(always)]
        unsafe fn pair(p: *const bf16) -> __m512 {
            // SAFETY: the caller has two values at `p`.
            unsafe { _mm512_castsi512_ps(_mm512_set1_epi32(p.cast::<i32>().read_unaligned())) }
        }
        #[inline(always)]
        unsafe fn load_pairs(p: *const bf16) -> __m512 {
            // SAFETY: the caller has 32 values at `p`.
            unsafe { _mm512_loadu_ps(p.cast()) }
        }
        #[inline(always)]
        unsafe fn store_pairs(p: *mut bf16, [low, high]: [__m512; 2]) {
            // SAFETY: the caller has room for 32 values at `p`; the types are the same 512 bits.
            unsafe {
                let words = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
                let zip = _mm512_loadu_si512(ZIP.as_ptr().cast());
                _mm512_storeu_si512(p.cast(), _mm512_permutexvar_epi16(zip, words))
            }
        }
        #[inline(always)]
        unsafe fn zip<const FULL: bool>(to: *mut bf16, a: *const bf16, b: Option<*const bf16>, n: usize) {
            // SAFETY: the caller has room for 32 values at `to`; the rows are its promise.
            unsafe {
                let low = words::<FULL>(a, n);
                let high = b.map_or(_mm512_setzero_si512(), |b| _mm512_slli_epi32(words::<FULL>(b, n), 16));
                _mm512_storeu_si512(to.cast(), _mm512_or_si512(low, high))
            }
        }
        #[inline(always)]
        unsafe fn dot(a: __m512, b: __m512, sum: __m512) -> __m512 {
            // SAFETY: the types are the same 512 bits; the caller vouches for the CPU's features.
            unsafe { _mm512_dpbf16_ps(sum, transmute::<__m512, __m512bh>(a), transmute::<__m512, __m512bh>(b)) }
        }
    }
}

/// The two members of the pair in a lane.
#[inline(always)]
fn members(lane: f32) -> [f32; 2] {
    let bits = lane.to_bits();
    [f32::from_bits(bits << 16), f32::from_bits(bits & 0xffff_0000)]
}

impl Half for Portable {
    #[inline(always)]
    unsafe fn widen<const FULL: bool>(p: *const bf16, n: usize) -> [f32; 8] {
        let n = if FULL { 8 } else { n };
        // SAFETY: the caller has `n` values at `p`.
        std::array::from_fn(|i| if i < n { unsafe { (*p.add(i)).to_f32() } } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn narrow<const FULL: bool>(p: *mut bf16, v: [f32; 8], n: usize) {
        for (i, v) in v.iter().enumerate().take(if FULL { 8 } else { n }) {
            // SAFETY: the caller has room for `n` values at `p`.
            unsafe { *p.add(i) = bf16::from_f32(*v) };
        }
    }
    #[inline(always)]
    unsafe fn pair(p: *const bf16) -> [f32; 8] {
        // SAFETY: the caller has two values at `p`.
        [f32::from_bits(unsafe { p.cast::<u32>().read_unaligned() }); 8]
    }
    #[inline(always)]
    unsafe fn load_pairs(p: *const bf16) -> [f32; 8] {
        // SAFETY: the caller has 16 values at `p`.
        unsafe { Portable::load(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store_pairs(p: *mut bf16, [low, high]: [[f32; 8]; 2]) {
        for i in 0..8 {
            // SAFETY: the caller has room for 16 values at `p`.
            unsafe {
                *p.add(2 * i) = bf16::from_f32(low[i]);
                *p.add(2 * i + 1) = bf16::from_f32(high[i]);
            }
        }
    }
    #[inline(always)]
    unsafe fn zip<const FULL: bool>(to: *mut bf16, a: *const bf16, b: Option<*const bf16>, n: usize) {
        for i in 0..8 {
            let inside = FULL || i < n;
            // SAFETY: the caller has room for 16 values at `to` and `n` values in each row.
            unsafe {
                *to.add(2 * i) = if inside { *a.add(i) } else { bf16::ZERO };
                *to.add(2 * i + 1) = b.filter(|_| inside).map_or(bf16::ZERO, |b| *b.add(i));
            }
        }
    }
    #[inline(always)]
    unsafe fn dot(a: [f32; 8], b: [f32; 8], sum: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| {
            let ([a0, a1], [b0, b1]) = (members(a[i]), members(b[i]));
            (sum[i] + a1 * b1) + a0 * b0
        })
    }
}
