//! One-dimensional transforms of the two algorithms, on vectors of channels, and their adjoints. Applied to the
//! columns and then the rows of a tile they give the two-dimensional ones: `y = A^T [(G w G^T) . (B^T x B)] A`.

use crate::simd::Simd;

/// Outputs along a side of a tile.
pub const M: usize = 4;
/// Side of the transformed filter.
pub const U: usize = 6;

/// How three taps are transformed.
///
/// # Safety
/// For every function: the CPU has the features of `S`.
#[expect(clippy::missing_safety_doc, reason = "one promise for all functions, in the trait's own text")]
pub trait Taps: 'static {
    /// `G w`.
    unsafe fn filter<S: Simd>(w: [S::V; 3]) -> [S::V; U];
    /// `G^T u`, the adjoint of [`Taps::filter`].
    unsafe fn filter_adjoint<S: Simd>(u: [S::V; U]) -> [S::V; 3];
}

/// An algorithm with tiles of `T` inputs and [`M`] outputs along a side.
///
/// # Safety
/// For every function: the CPU has the features of `S`.
#[expect(clippy::missing_safety_doc, reason = "one promise for all functions, in the trait's own text")]
pub trait Algorithm<const T: usize>: Taps {
    /// Input pixels from one tile to the next.
    const STEP: usize;
    /// Which value of the transformed filter each position of a tile is multiplied by.
    const FILTER: [usize; T];
    /// `B^T d`.
    unsafe fn input<S: Simd>(d: [S::V; T]) -> [S::V; T];
    /// `B y`, the adjoint of [`Algorithm::input`].
    unsafe fn input_adjoint<S: Simd>(y: [S::V; T]) -> [S::V; T];
    /// `A^T m`.
    unsafe fn output<S: Simd>(m: [S::V; T]) -> [S::V; M];
    /// `A y`, the adjoint of [`Algorithm::output`].
    unsafe fn output_adjoint<S: Simd>(y: [S::V; M]) -> [S::V; T];
}

/// Stride 1: F(4, 3) with interpolation points 0, 1, -1, 2, -2 and infinity; 36 products for 16 outputs instead of 144.
pub struct Dense;

impl Taps for Dense {
    #[inline(always)]
    unsafe fn filter<S: Simd>(w: [S::V; 3]) -> [S::V; U] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (e, e4) = (S::add(w[0], w[2]), S::fma(S::splat(4.0), w[2], w[0]));
            let (sixth, odd) = (S::splat(-1.0 / 6.0), S::mul(S::splat(1.0 / 12.0), w[1]));
            let even = S::mul(S::splat(1.0 / 24.0), e4);
            [
                S::mul(S::splat(0.25), w[0]),
                S::mul(sixth, S::add(e, w[1])),
                S::mul(sixth, S::sub(e, w[1])),
                S::add(even, odd),
                S::sub(even, odd),
                w[2],
            ]
        }
    }

    #[inline(always)]
    unsafe fn filter_adjoint<S: Simd>(u: [S::V; U]) -> [S::V; 3] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (s1, d1, s2, d2) = (S::add(u[1], u[2]), S::sub(u[2], u[1]), S::add(u[3], u[4]), S::sub(u[3], u[4]));
            let m = S::mul(S::splat(-1.0 / 6.0), s1);
            [
                S::fma(S::splat(0.25), u[0], S::fma(S::splat(1.0 / 24.0), s2, m)),
                S::fma(S::splat(1.0 / 12.0), d2, S::mul(S::splat(1.0 / 6.0), d1)),
                S::add(u[5], S::fma(S::splat(1.0 / 6.0), s2, m)),
            ]
        }
    }
}

impl Algorithm<6> for Dense {
    const STEP: usize = 4;
    const FILTER: [usize; 6] = [0, 1, 2, 3, 4, 5];

    #[inline(always)]
    unsafe fn input<S: Simd>(d: [S::V; 6]) -> [S::V; 6] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (two, four, five) = (S::splat(2.0), S::splat(4.0), S::splat(5.0));
            let (t1, t2) = (S::fnma(four, d[2], d[4]), S::fnma(four, d[1], d[3]));
            let (t3, t4) = (S::sub(d[4], d[2]), S::mul(two, S::sub(d[3], d[1])));
            [
                S::fma(four, d[0], S::fnma(five, d[2], d[4])),
                S::add(t1, t2),
                S::sub(t1, t2),
                S::add(t3, t4),
                S::sub(t3, t4),
                S::fma(four, d[1], S::fnma(five, d[3], d[5])),
            ]
        }
    }

    #[inline(always)]
    unsafe fn input_adjoint<S: Simd>(y: [S::V; 6]) -> [S::V; 6] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (two, four, five) = (S::splat(2.0), S::splat(4.0), S::splat(5.0));
            let (s1, d1) = (S::add(y[1], y[2]), S::sub(y[2], y[1]));
            let (s3, d3) = (S::add(y[3], y[4]), S::sub(y[4], y[3]));
            let minus = |x: S::V| S::sub(S::zero(), x);
            [
                S::mul(four, y[0]),
                S::fma(four, S::add(d1, y[5]), S::mul(two, d3)),
                S::fnma(five, y[0], S::fnma(four, s1, minus(s3))),
                S::fnma(five, y[5], S::fnma(two, d3, minus(d1))),
                S::add(y[0], S::add(s1, s3)),
                y[5],
            ]
        }
    }

    #[inline(always)]
    unsafe fn output<S: Simd>(m: [S::V; 6]) -> [S::V; M] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (s1, d1, s2, d2) = (S::add(m[1], m[2]), S::sub(m[1], m[2]), S::add(m[3], m[4]), S::sub(m[3], m[4]));
            [
                S::add(m[0], S::add(s1, s2)),
                S::fma(S::splat(2.0), d2, d1),
                S::fma(S::splat(4.0), s2, s1),
                S::add(S::fma(S::splat(8.0), d2, d1), m[5]),
            ]
        }
    }

    #[inline(always)]
    unsafe fn output_adjoint<S: Simd>(y: [S::V; M]) -> [S::V; 6] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (e, o) = (S::add(y[0], y[2]), S::add(y[1], y[3]));
            let e2 = S::fma(S::splat(4.0), y[2], y[0]);
            let o2 = S::fma(S::splat(8.0), y[3], S::mul(S::splat(2.0), y[1]));
            [y[0], S::add(e, o), S::sub(e, o), S::add(e2, o2), S::sub(e2, o2), y[3]]
        }
    }
}

/// Stride 2, by the parity of the input: the outer taps meet pixels of one parity, which is a convolution of two taps
/// with stride 1, F(4, 2) with points 0, 1, -1, 2 and infinity; the middle tap meets the others, one product each. A
/// tile is the five transformed values of the first and the four values of the second: 81 products for 16 outputs
/// instead of 144.
pub struct Strided;

impl Taps for Strided {
    #[inline(always)]
    unsafe fn filter<S: Simd>(w: [S::V; 3]) -> [S::V; U] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (a, b) = (w[0], w[2]);
            let sixth = S::splat(1.0 / 6.0);
            [
                S::mul(S::splat(0.5), a),
                S::mul(S::splat(-0.5), S::add(a, b)),
                S::mul(sixth, S::sub(b, a)),
                S::mul(sixth, S::fma(S::splat(2.0), b, a)),
                b,
                w[1],
            ]
        }
    }

    #[inline(always)]
    unsafe fn filter_adjoint<S: Simd>(u: [S::V; U]) -> [S::V; 3] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (half, sixth) = (S::splat(0.5), S::splat(1.0 / 6.0));
            let a = S::fma(half, S::sub(u[0], u[1]), S::mul(sixth, S::sub(u[3], u[2])));
            let b = S::fnma(half, u[1], S::fma(sixth, S::fma(S::splat(2.0), u[3], u[2]), u[4]));
            [a, u[5], b]
        }
    }
}

impl Algorithm<9> for Strided {
    const STEP: usize = 8;
    const FILTER: [usize; 9] = [0, 1, 2, 3, 4, 5, 5, 5, 5];

    #[inline(always)]
    unsafe fn input<S: Simd>(d: [S::V; 9]) -> [S::V; 9] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (two, three) = (S::splat(2.0), S::splat(3.0));
            let [o0, o1, o2, o3, o4] = [d[0], d[2], d[4], d[6], d[8]];
            let far = S::sub(o3, o1);
            [
                S::fma(two, S::sub(o0, o2), far),
                S::sub(S::fnma(two, o1, o3), o2),
                S::fma(two, o1, S::fnma(three, o2, o3)),
                far,
                S::add(S::fnma(two, far, o4), S::sub(S::zero(), o2)),
                d[1],
                d[3],
                d[5],
                d[7],
            ]
        }
    }

    #[inline(always)]
    unsafe fn input_adjoint<S: Simd>(y: [S::V; 9]) -> [S::V; 9] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (two, three) = (S::splat(2.0), S::splat(3.0));
            let o0 = S::mul(two, y[0]);
            // 2 (y2 + y4 - y1) - y0 - y3
            let o1 = S::sub(S::fma(two, S::sub(S::add(y[2], y[4]), y[1]), S::sub(S::zero(), y[0])), y[3]);
            // -2 y0 - y1 - 3 y2 - y4
            let o2 = S::sub(S::zero(), S::fma(two, y[0], S::fma(three, y[2], S::add(y[1], y[4]))));
            let o3 = S::fnma(two, y[4], S::add(S::add(y[0], y[1]), S::add(y[2], y[3])));
            [o0, y[5], o1, y[6], o2, y[7], o3, y[8], y[4]]
        }
    }

    #[inline(always)]
    unsafe fn output<S: Simd>(m: [S::V; 9]) -> [S::V; M] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (s, d) = (S::add(m[1], m[2]), S::sub(m[1], m[2]));
            [
                S::add(S::add(m[0], m[5]), S::add(s, m[3])),
                S::add(S::fma(S::splat(2.0), m[3], d), m[6]),
                S::add(S::fma(S::splat(4.0), m[3], s), m[7]),
                S::add(S::fma(S::splat(8.0), m[3], d), S::add(m[4], m[8])),
            ]
        }
    }

    #[inline(always)]
    unsafe fn output_adjoint<S: Simd>(y: [S::V; M]) -> [S::V; 9] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (e, o) = (S::add(y[0], y[2]), S::add(y[1], y[3]));
            let high = S::fma(S::splat(4.0), y[2], S::fma(S::splat(8.0), y[3], S::fma(S::splat(2.0), y[1], y[0])));
            [y[0], S::add(e, o), S::sub(e, o), high, y[3], y[0], y[1], y[2], y[3]]
        }
    }
}
