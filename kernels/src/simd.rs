//! The few vector operations the kernels are written in, for three instruction sets.
//!
//! A kernel is one generic function over [`Simd`]; its loops stand inside [`Simd::run`], which compiles them with the
//! instruction set's features. Every operation is `#[inline(always)]`, so that it ends up inside that function, and
//! closures given to `run` must be `#[inline(always)]` too.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// The most rows a micro-kernel block has, in any implementation.
pub const MAX_ROWS: usize = 8;

/// A vector of f32 and its arithmetic.
///
/// # Safety
/// For every function: the CPU has the implementation's features, which [`crate::level`] has made sure of before a
/// generic kernel is called, and pointers are valid for the lanes that are read or written.
#[expect(clippy::missing_safety_doc, reason = "one promise for all functions, in the trait's own text")]
pub trait Simd: Copy + Send + Sync + 'static {
    /// Lanes of a vector.
    const LANES: usize;
    /// Rows of a micro-kernel block of [`Simd::PANEL`] registers: as many as the register file holds.
    const ROWS: usize;
    /// Registers across a panel.
    const PANEL: usize;
    /// The vector.
    type V: Copy;

    /// Calls `f` compiled with the features of this implementation.
    unsafe fn run<R>(f: impl FnOnce() -> R) -> R;
    /// All lanes `x`.
    unsafe fn splat(x: f32) -> Self::V;
    /// Reads `LANES` values.
    unsafe fn load(p: *const f32) -> Self::V;
    /// Reads `n < LANES` values; the other lanes are zero and their memory is not touched.
    unsafe fn load_part(p: *const f32, n: usize) -> Self::V;
    /// Writes `LANES` values.
    unsafe fn store(p: *mut f32, v: Self::V);
    /// Writes the first `n < LANES` values only.
    unsafe fn store_part(p: *mut f32, v: Self::V, n: usize);
    /// `a + b`.
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    /// `a b`.
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// `a b + c`, fused where the CPU can.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a b`, fused where the CPU can.
    unsafe fn fnma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` where either is not a number, so that `max(zero, x)` keeps NaN visible.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// `v` in the lanes where `test > 0`, zero in the others.
    unsafe fn where_positive(test: Self::V, v: Self::V) -> Self::V;
    /// The nearest integer.
    unsafe fn round(v: Self::V) -> Self::V;
    /// 2 to the power of `n`, which holds integers in -126..=127.
    unsafe fn power_of_two(n: Self::V) -> Self::V;
    /// Asks for the cache line at `p`; any address is allowed.
    unsafe fn prefetch(p: *const f32);

    /// Vector `i` of the result holds value `i` of each of `lanes` runs of `n <= 16` values, `stride` apart; other lanes
    /// and vectors are zero.
    #[inline(always)]
    unsafe fn load_columns(p: *const f32, stride: usize, lanes: usize, n: usize) -> [Self::V; 16] {
        // SAFETY: the caller's promise; no vector has more than 16 lanes.
        unsafe {
            let mut values = [[0.0f32; 16]; 16];
            for lane in 0..lanes {
                for i in 0..n {
                    values[i][lane] = *p.add(lane * stride + i);
                }
            }
            let mut out = [Self::zero(); 16];
            for i in 0..n {
                out[i] = Self::load(values[i].as_ptr());
            }
            out
        }
    }
    /// Writes what [`Simd::load_columns`] would read.
    #[inline(always)]
    unsafe fn store_columns(p: *mut f32, stride: usize, lanes: usize, n: usize, columns: [Self::V; 16]) {
        // SAFETY: the caller's promise; no vector has more than 16 lanes.
        unsafe {
            let mut values = [[0.0f32; 16]; 16];
            for i in 0..n {
                Self::store(values[i].as_mut_ptr(), columns[i]);
            }
            for lane in 0..lanes {
                for i in 0..n {
                    *p.add(lane * stride + i) = values[i][lane];
                }
            }
        }
    }

    /// All lanes zero.
    #[inline(always)]
    unsafe fn zero() -> Self::V {
        // SAFETY: the caller's promise.
        unsafe { Self::splat(0.0) }
    }
    /// A whole vector, or its first `n` lanes when not `FULL`.
    #[inline(always)]
    unsafe fn get<const FULL: bool>(p: *const f32, n: usize) -> Self::V {
        // SAFETY: the caller's promise.
        unsafe { if FULL { Self::load(p) } else { Self::load_part(p, n) } }
    }
    /// Writes a whole vector, or its first `n` lanes when not `FULL`.
    #[inline(always)]
    unsafe fn put<const FULL: bool>(p: *mut f32, v: Self::V, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { if FULL { Self::store(p, v) } else { Self::store_part(p, v, n) } }
    }
    /// `e^x` for `x <= 0`, to about 2e-7; below -87 it stays at `e^-87`, which is next to nothing.
    #[inline(always)]
    unsafe fn exp(x: Self::V) -> Self::V {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let s = |v: f32| Self::splat(v);
            let x = Self::max(s(-87.0), x);
            let n = Self::round(Self::mul(x, s(std::f32::consts::LOG2_E)));
            // ln 2 in two parts, so that x - n ln 2 keeps its low bits
            let r = Self::fnma(n, s(-2.121_944_4e-4), Self::fnma(n, s(0.693_359_4), x));
            let mut p = s(1.0 / 720.0);
            p = Self::fma(p, r, s(1.0 / 120.0));
            p = Self::fma(p, r, s(1.0 / 24.0));
            p = Self::fma(p, r, s(1.0 / 6.0));
            p = Self::fma(p, r, s(0.5));
            p = Self::fma(p, r, s(1.0));
            p = Self::fma(p, r, s(1.0));
            Self::mul(p, Self::power_of_two(n))
        }
    }
}

/// `a` rounded up to whole vectors.
pub const fn padded<S: Simd>(a: usize) -> usize {
    a.next_multiple_of(S::LANES)
}

/// Operations of [`Simd`] that are an expression of a few instructions.
macro_rules! operations {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $type),*) $(-> $out)? {
            // SAFETY: the caller keeps the promise of the trait: features and valid pointers.
            unsafe { $body }
        }
    )*};
}

/// The transpose of 16 rows of 16.
///
/// # Safety
/// The CPU has AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn transposed(r: [__m512; 16]) -> [__m512; 16] {
    // SAFETY: shuffles only; the caller vouches for the CPU's features.
    unsafe {
        // within each quarter of a register: pairs of rows, then fours
        let (mut two, mut four) = ([_mm512_setzero_ps(); 16], [_mm512_setzero_pd(); 16]);
        for i in 0..8 {
            two[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
            two[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
        }
        for i in 0..4 {
            for half in 0..2 {
                let (a, b) = (_mm512_castps_pd(two[4 * i + half]), _mm512_castps_pd(two[4 * i + 2 + half]));
                four[4 * i + 2 * half] = _mm512_unpacklo_pd(a, b);
                four[4 * i + 2 * half + 1] = _mm512_unpackhi_pd(a, b);
            }
        }
        // quarter `q` of the four vectors of column `k` is column `4 q + k`
        let mut out = [_mm512_setzero_ps(); 16];
        for k in 0..4 {
            let f = |i: usize| _mm512_castpd_ps(four[4 * i + k]);
            let (even, odd) = (_mm512_shuffle_f32x4(f(0), f(1), 0x88), _mm512_shuffle_f32x4(f(0), f(1), 0xdd));
            let (even2, odd2) = (_mm512_shuffle_f32x4(f(2), f(3), 0x88), _mm512_shuffle_f32x4(f(2), f(3), 0xdd));
            out[k] = _mm512_shuffle_f32x4(even, even2, 0x88);
            out[4 + k] = _mm512_shuffle_f32x4(odd, odd2, 0x88);
            out[8 + k] = _mm512_shuffle_f32x4(even, even2, 0xdd);
            out[12 + k] = _mm512_shuffle_f32x4(odd, odd2, 0xdd);
        }
        out
    }
}

/// An implementation of [`Simd`] on AVX-512: 32 registers hold 8 rows of 2.
#[cfg(target_arch = "x86_64")]
macro_rules! avx512 {
    ($(#[$doc:meta])* $name:ident, $features:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name;

        impl Simd for $name {
            const LANES: usize = 16;
            const ROWS: usize = 8;
            const PANEL: usize = 2;
            type V = __m512;

            #[inline(always)]
            unsafe fn load_columns(p: *const f32, stride: usize, lanes: usize, n: usize) -> [__m512; 16] {
                // SAFETY: reads `n` values of each lane; the caller vouches for them and for the CPU's features.
                unsafe {
                    let mask = ((1u32 << n) - 1) as u16;
                    let mut rows = [_mm512_setzero_ps(); 16];
                    for lane in 0..16 {
                        if lane < lanes {
                            rows[lane] = _mm512_maskz_loadu_ps(mask, p.add(lane * stride));
                        }
                    }
                    transposed(rows)
                }
            }
            #[inline(always)]
            unsafe fn store_columns(p: *mut f32, stride: usize, lanes: usize, n: usize, columns: [__m512; 16]) {
                // SAFETY: writes `n` values of each lane; the caller vouches for them and for the CPU's features.
                unsafe {
                    let mask = ((1u32 << n) - 1) as u16;
                    let rows = transposed(columns);
                    for lane in 0..16 {
                        if lane < lanes {
                            _mm512_mask_storeu_ps(p.add(lane * stride), mask, rows[lane]);
                        }
                    }
                }
            }
            #[inline(always)]
            unsafe fn run<R>(f: impl FnOnce() -> R) -> R {
                /// # Safety
                /// The CPU has the features.
                #[target_feature(enable = $features)]
                unsafe fn compiled<R>(f: impl FnOnce() -> R) -> R {
                    f()
                }
                // SAFETY: the caller vouches for the CPU's features.
                unsafe { compiled(f) }
            }

            operations! {
                fn splat(x: f32) -> __m512 = _mm512_set1_ps(x);
                fn load(p: *const f32) -> __m512 = _mm512_loadu_ps(p);
                fn load_part(p: *const f32, n: usize) -> __m512 = _mm512_maskz_loadu_ps(((1u32 << n) - 1) as u16, p);
                fn store(p: *mut f32, v: __m512) = _mm512_storeu_ps(p, v);
                fn store_part(p: *mut f32, v: __m512, n: usize) = _mm512_mask_storeu_ps(p, ((1u32 << n) - 1) as u16, v);
                fn add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
                fn sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
                fn mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
                fn fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
                fn fnma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
                fn max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
                fn where_positive(test: __m512, v: __m512) -> __m512 =
                    _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(test, _mm512_setzero_ps(), _CMP_GT_OQ), v);
                fn round(v: __m512) -> __m512 = _mm512_roundscale_ps(v, 0);
                fn power_of_two(n: __m512) -> __m512 = _mm512_scalef_ps(_mm512_set1_ps(1.0), n);
                fn prefetch(p: *const f32) = _mm_prefetch(p as *const i8, _MM_HINT_T0);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
avx512!(
    /// AVX-512.
    Avx512,
    "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"
);

#[cfg(target_arch = "x86_64")]
avx512!(
    /// AVX-512 with products of bf16.
    Avx512Half,
    "avx512f,avx512dq,avx512vl,avx512bw,avx512bf16,avx2,fma"
);

/// AVX2 with FMA: 16 registers hold 6 rows of 2.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Avx2;

/// Sixteen words of which a window of eight, starting at `8 - n`, has exactly its first `n` words set.
#[cfg(target_arch = "x86_64")]
static MASK: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

#[cfg(target_arch = "x86_64")]
impl Simd for Avx2 {
    const LANES: usize = 8;
    const ROWS: usize = 6;
    const PANEL: usize = 2;
    type V = __m256;

    #[inline(always)]
    unsafe fn run<R>(f: impl FnOnce() -> R) -> R {
        /// # Safety
        /// The CPU has the features.
        #[target_feature(enable = "avx2,fma")]
        unsafe fn compiled<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        // SAFETY: the caller vouches for the CPU's features.
        unsafe { compiled(f) }
    }

    operations! {
        fn splat(x: f32) -> __m256 = _mm256_set1_ps(x);
        fn load(p: *const f32) -> __m256 = _mm256_loadu_ps(p);
        fn load_part(p: *const f32, n: usize) -> __m256 =
            _mm256_maskload_ps(p, _mm256_loadu_si256(MASK.as_ptr().add(8 - n) as *const __m256i));
        fn store(p: *mut f32, v: __m256) = _mm256_storeu_ps(p, v);
        fn store_part(p: *mut f32, v: __m256, n: usize) =
            _mm256_maskstore_ps(p, _mm256_loadu_si256(MASK.as_ptr().add(8 - n) as *const __m256i), v);
        fn add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        fn sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        fn mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        fn fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        fn fnma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fnmadd_ps(a, b, c);
        fn max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        fn where_positive(test: __m256, v: __m256) -> __m256 =
            _mm256_and_ps(_mm256_cmp_ps(test, _mm256_setzero_ps(), _CMP_GT_OQ), v);
        fn round(v: __m256) -> __m256 = _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        fn power_of_two(n: __m256) -> __m256 =
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
        fn prefetch(p: *const f32) = _mm_prefetch(p as *const i8, _MM_HINT_T0);
    }
}

/// Plain Rust on arrays of eight, which the compiler turns into whatever vectors the target always has.
#[derive(Clone, Copy)]
pub struct Portable;

/// Eight values side by side.
type Eight = [f32; 8];

/// Applies `f` lane by lane.
#[inline(always)]
fn lanes(f: impl Fn(usize) -> f32) -> Eight {
    [f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)]
}

impl Simd for Portable {
    const LANES: usize = 8;
    const ROWS: usize = 4;
    const PANEL: usize = 1;
    type V = Eight;

    #[inline(always)]
    unsafe fn run<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Eight {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Eight {
        let mut v = [0.0; 8];
        for (i, v) in v.iter_mut().enumerate().take(n) {
            // SAFETY: the caller has `n` values at `p`.
            *v = unsafe { *p.add(i) };
        }
        v
    }
    #[inline(always)]
    unsafe fn store_part(p: *mut f32, v: Eight, n: usize) {
        for (i, v) in v.iter().enumerate().take(n) {
            // SAFETY: the caller has room for `n` values at `p`.
            unsafe { *p.add(i) = *v };
        }
    }
    #[inline(always)]
    unsafe fn add(a: Eight, b: Eight) -> Eight {
        lanes(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: Eight, b: Eight) -> Eight {
        lanes(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: Eight, b: Eight) -> Eight {
        lanes(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn fma(a: Eight, b: Eight, c: Eight) -> Eight {
        lanes(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn fnma(a: Eight, b: Eight, c: Eight) -> Eight {
        lanes(|i| c[i] - a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn max(a: Eight, b: Eight) -> Eight {
        lanes(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn where_positive(test: Eight, v: Eight) -> Eight {
        lanes(|i| if test[i] > 0.0 { v[i] } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn round(v: Eight) -> Eight {
        lanes(|i| (v[i] + 12_582_912.0) - 12_582_912.0) // 1.5 * 2^23: pushes the fraction out of the mantissa
    }
    #[inline(always)]
    unsafe fn power_of_two(n: Eight) -> Eight {
        lanes(|i| f32::from_bits(((n[i] as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}
    operations! {
        fn load(p: *const f32) -> Eight = (p as *const Eight).read_unaligned();
        fn store(p: *mut f32, v: Eight) = (p as *mut Eight).write_unaligned(v);
    }
}
