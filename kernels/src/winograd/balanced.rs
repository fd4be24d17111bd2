//! The algorithms for operands that are rounded to bf16 after their transform: other points, which lose less.
//!
//! A large power of a point in a transform makes large terms that cancel in the end, and their rounding stays. On random
//! layers of 64 channels after a ReLU (rms error over the output's deviation; forward, dx, dw): a direct convolution of
//! bf16 has 0.25 %, F(4, 3) with points 0, 1, -1, 2, -2 has 2.2, 2.5 and 2.0 %, and with those below 1.0, 1.2 and 1.0 %;
//! stride 2 with 0, 1, -1, 2 has 0.8, 1.1 and 0.9 %, and with those below 0.5, 0.6 and 0.5 %.

use super::transform::{Algorithm, M, Taps, U};
use crate::simd::Simd;
use std::f32::consts::{FRAC_1_SQRT_2 as A, SQRT_2 as B};

/// Stride 1: F(4, 3) with interpolation points 0, +-1/sqrt 2, +-sqrt 2 and infinity.
pub struct Balanced;

impl Taps for Balanced {
    #[inline(always)]
    unsafe fn filter<S: Simd>(w: [S::V; 3]) -> [S::V; U] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let s = |v: f32| S::splat(v);
            // -2/3 (w0 +- A w1 + w2 / 2) and 1/6 (w0 +- B w1 + 2 w2)
            let near = S::fma(s(-1.0 / 3.0), w[2], S::mul(s(-2.0 / 3.0), w[0]));
            let far = S::fma(s(1.0 / 3.0), w[2], S::mul(s(1.0 / 6.0), w[0]));
            [
                w[0],
                S::fma(s(-2.0 / 3.0 * A), w[1], near),
                S::fma(s(2.0 / 3.0 * A), w[1], near),
                S::fma(s(B / 6.0), w[1], far),
                S::fma(s(-B / 6.0), w[1], far),
                w[2],
            ]
        }
    }

    #[inline(always)]
    unsafe fn filter_adjoint<S: Simd>(u: [S::V; U]) -> [S::V; 3] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let s = |v: f32| S::splat(v);
            let (s1, d1, s2, d2) = (S::add(u[1], u[2]), S::sub(u[2], u[1]), S::add(u[3], u[4]), S::sub(u[3], u[4]));
            [
                S::fma(s(-2.0 / 3.0), s1, S::fma(s(1.0 / 6.0), s2, u[0])),
                S::fma(s(2.0 / 3.0 * A), d1, S::mul(s(B / 6.0), d2)),
                S::fma(s(1.0 / 3.0), S::sub(s2, s1), u[5]),
            ]
        }
    }
}

impl Algorithm<6> for Balanced {
    const STEP: usize = 4;
    const FILTER: [usize; 6] = [0, 1, 2, 3, 4, 5];

    #[inline(always)]
    unsafe fn input<S: Simd>(d: [S::V; 6]) -> [S::V; 6] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let (two, half, more, a, b) = (S::splat(2.0), S::splat(0.5), S::splat(2.5), S::splat(A), S::splat(B));
            let (t1, u1) = (S::fnma(two, d[2], d[4]), S::fnma(two, d[1], d[3]));
            let (t2, u2) = (S::fnma(half, d[2], d[4]), S::fnma(half, d[1], d[3]));
            [
                S::fnma(more, d[2], S::add(d[0], d[4])),
                S::fma(a, u1, t1),
                S::fnma(a, u1, t1),
                S::fma(b, u2, t2),
                S::fnma(b, u2, t2),
                S::fnma(more, d[3], S::add(d[1], d[5])),
            ]
        }
    }

    #[inline(always)]
    unsafe fn input_adjoint<S: Simd>(y: [S::V; 6]) -> [S::V; 6] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let s = |v: f32| S::splat(v);
            let (s1, s2) = (S::add(y[1], y[2]), S::add(y[3], y[4]));
            let (d1, d2) = (S::mul(s(A), S::sub(y[1], y[2])), S::mul(s(B), S::sub(y[3], y[4])));
            [
                y[0],
                S::fnma(s(2.0), d1, S::fnma(s(0.5), d2, y[5])),
                S::fnma(s(2.5), y[0], S::fnma(s(2.0), s1, S::mul(s(-0.5), s2))),
                S::fnma(s(2.5), y[5], S::add(d1, d2)),
                S::add(y[0], S::add(s1, s2)),
                y[5],
            ]
        }
    }

    #[inline(always)]
    unsafe fn output<S: Simd>(m: [S::V; 6]) -> [S::V; M] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let s = |v: f32| S::splat(v);
            let (s1, d1, s2, d2) = (S::add(m[1], m[2]), S::sub(m[1], m[2]), S::add(m[3], m[4]), S::sub(m[3], m[4]));
            [
                S::add(m[0], S::add(s1, s2)),
                S::fma(s(A), d1, S::mul(s(B), d2)),
                S::fma(s(0.5), s1, S::mul(s(2.0), s2)),
                S::fma(s(0.5 * A), d1, S::fma(s(2.0 * B), d2, m[5])),
            ]
        }
    }

    #[inline(always)]
    unsafe fn output_adjoint<S: Simd>(y: [S::V; M]) -> [S::V; 6] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let s = |v: f32| S::splat(v);
            let (e1, o1) = (S::fma(s(0.5), y[2], y[0]), S::fma(s(0.5), y[3], y[1]));
            let (e2, o2) = (S::fma(s(2.0), y[2], y[0]), S::fma(s(2.0), y[3], y[1]));
            [y[0], S::fma(s(A), o1, e1), S::fnma(s(A), o1, e1), S::fma(s(B), o2, e2), S::fnma(s(B), o2, e2), y[3]]
        }
    }
}

/// The inner point of [`BalancedStrided`].
const P: f32 = 0.4;
/// The outer point.
const Q: f32 = 1.3;

/// Stride 2, as [`super::transform::Strided`]: F(4, 2) with points +-0.4, +-1.3 and infinity for the outer taps.
pub struct BalancedStrided;

impl BalancedStrided {
    /// What the filter's values at `+-P` are divided by, up to the sign.
    const NEAR: f32 = 2.0 * P * (P * P - Q * Q);
    /// The same at `+-Q`.
    const FAR: f32 = 2.0 * Q * (Q * Q - P * P);
}

impl Taps for BalancedStrided {
    #[inline(always)]
    unsafe fn filter<S: Simd>(w: [S::V; 3]) -> [S::V; U] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let s = |v: f32| S::splat(v);
            let (a, b) = (w[0], w[2]);
            // (a +- P b) / +-NEAR and (a +- Q b) / +-FAR
            [
                S::fma(s(P / Self::NEAR), b, S::mul(s(1.0 / Self::NEAR), a)),
                S::fma(s(P / Self::NEAR), b, S::mul(s(-1.0 / Self::NEAR), a)),
                S::fma(s(Q / Self::FAR), b, S::mul(s(1.0 / Self::FAR), a)),
                S::fma(s(Q / Self::FAR), b, S::mul(s(-1.0 / Self::FAR), a)),
                b,
                w[1],
            ]
        }
    }

    #[inline(always)]
    unsafe fn filter_adjoint<S: Simd>(u: [S::V; U]) -> [S::V; 3] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let s = |v: f32| S::splat(v);
            let (s1, d1, s2, d2) = (S::add(u[0], u[1]), S::sub(u[0], u[1]), S::add(u[2], u[3]), S::sub(u[2], u[3]));
            let a = S::fma(s(1.0 / Self::NEAR), d1, S::mul(s(1.0 / Self::FAR), d2));
            let b = S::fma(s(P / Self::NEAR), s1, S::fma(s(Q / Self::FAR), s2, u[4]));
            [a, u[5], b]
        }
    }
}

impl Algorithm<9> for BalancedStrided {
    const STEP: usize = 8;
    const FILTER: [usize; 9] = [0, 1, 2, 3, 4, 5, 5, 5, 5];

    #[inline(always)]
    unsafe fn input<S: Simd>(d: [S::V; 9]) -> [S::V; 9] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let s = |v: f32| S::splat(v);
            let [o0, o1, o2, o3, o4] = [d[0], d[2], d[4], d[6], d[8]];
            let (t1, u1) = (S::fnma(s(Q * Q), o1, o3), S::fnma(s(Q * Q), o0, o2));
            let (t2, u2) = (S::fnma(s(P * P), o1, o3), S::fnma(s(P * P), o0, o2));
            [
                S::fma(s(P), u1, t1),
                S::fnma(s(P), u1, t1),
                S::fma(s(Q), u2, t2),
                S::fnma(s(Q), u2, t2),
                S::fma(s(P * P * Q * Q), o0, S::fnma(s(P * P + Q * Q), o2, o4)),
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
            let s = |v: f32| S::splat(v);
            let (s1, s2) = (S::add(y[0], y[1]), S::add(y[2], y[3]));
            let (d1, d2) = (S::mul(s(P), S::sub(y[0], y[1])), S::mul(s(Q), S::sub(y[2], y[3])));
            let o0 = S::fnma(s(Q * Q), d1, S::fnma(s(P * P), d2, S::mul(s(P * P * Q * Q), y[4])));
            let o1 = S::fnma(s(Q * Q), s1, S::mul(s(-P * P), s2));
            let o2 = S::fnma(s(P * P + Q * Q), y[4], S::add(d1, d2));
            let o3 = S::add(s1, s2);
            [o0, y[5], o1, y[6], o2, y[7], o3, y[8], y[4]]
        }
    }

    #[inline(always)]
    unsafe fn output<S: Simd>(m: [S::V; 9]) -> [S::V; M] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let s = |v: f32| S::splat(v);
            let (s1, d1, s2, d2) = (S::add(m[0], m[1]), S::sub(m[0], m[1]), S::add(m[2], m[3]), S::sub(m[2], m[3]));
            [
                S::add(m[5], S::add(s1, s2)),
                S::fma(s(P), d1, S::fma(s(Q), d2, m[6])),
                S::fma(s(P * P), s1, S::fma(s(Q * Q), s2, m[7])),
                S::fma(s(P * P * P), d1, S::fma(s(Q * Q * Q), d2, S::add(m[4], m[8]))),
            ]
        }
    }

    #[inline(always)]
    unsafe fn output_adjoint<S: Simd>(y: [S::V; M]) -> [S::V; 9] {
        // SAFETY: arithmetic only; the caller vouches for the CPU's features.
        unsafe {
            let s = |v: f32| S::splat(v);
            let (e1, o1) = (S::fma(s(P * P), y[2], y[0]), S::fma(s(P * P), y[3], y[1]));
            let (e2, o2) = (S::fma(s(Q * Q), y[2], y[0]), S::fma(s(Q * Q), y[3], y[1]));
            [
                S::fma(s(P), o1, e1),
                S::fnma(s(P), o1, e1),
                S::fma(s(Q), o2, e2),
                S::fnma(s(Q), o2, e2),
                y[3],
                y[0],
                y[1],
                y[2],
                y[3],
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Portable;

    /// The matrix of a linear map on vectors of one lane.
    fn matrix<const I: usize, const O: usize>(f: impl Fn([[f32; 8]; I]) -> [[f32; 8]; O]) -> [[f64; I]; O] {
        let mut out = [[0.0; I]; O];
        for i in 0..I {
            let mut unit = [[0.0; 8]; I];
            unit[i][0] = 1.0;
            for (row, value) in out.iter_mut().zip(f(unit)) {
                row[i] = f64::from(value[0]);
            }
        }
        out
    }

    /// A convolution of three taps from the transforms alone, against its definition; adjoints are transposed matrices.
    fn check<F: Algorithm<T>, const T: usize>(stride: usize) {
        // SAFETY: the portable level runs everywhere.
        let [g, b, a] = unsafe {
            let g = matrix(|w| F::filter::<Portable>(w)).map(|r| r.to_vec()).to_vec();
            let b = matrix(|d| F::input::<Portable>(d)).map(|r| r.to_vec()).to_vec();
            let a = matrix(|m| F::output::<Portable>(m)).map(|r| r.to_vec()).to_vec();
            for (forward, back) in [
                (&g, matrix(|u| F::filter_adjoint::<Portable>(u)).map(|r| r.to_vec()).to_vec()),
                (&b, matrix(|y| F::input_adjoint::<Portable>(y)).map(|r| r.to_vec()).to_vec()),
                (&a, matrix(|y| F::output_adjoint::<Portable>(y)).map(|r| r.to_vec()).to_vec()),
            ] {
                for (i, row) in forward.iter().enumerate() {
                    for (j, v) in row.iter().enumerate() {
                        assert!((v - back[j][i]).abs() < 1e-6, "adjoint at {i}, {j}");
                    }
                }
            }
            [g, b, a]
        };
        for o in 0..M {
            for tap in 0..3 {
                for pixel in 0..T {
                    let sum: f64 = (0..T).map(|t| a[o][t] * g[F::FILTER[t]][tap] * b[t][pixel]).sum();
                    let expected = if pixel == stride * o + tap { 1.0 } else { 0.0 };
                    assert!((sum - expected).abs() < 1e-5, "output {o}, tap {tap}, pixel {pixel}: {sum}");
                }
            }
        }
    }

    #[test]
    fn the_transforms_are_a_convolution() {
        check::<Balanced, 6>(1);
        check::<BalancedStrided, 9>(2);
        check::<super::super::transform::Dense, 6>(1);
        check::<super::super::transform::Strided, 9>(2);
    }
}
