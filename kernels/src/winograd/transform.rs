//! The transforms of F(4x4, 3x3) on one tile and one vector of channels, and their adjoints.
//!
//! With interpolation points 0, 1, -1, 2, -2 and infinity: `y = A^T [(G w G^T) . (B^T x B)] A`.

use crate::simd::Simd;

/// Side of a tile in the transformed domain.
pub const T: usize = 6;
/// Outputs along a side of a tile.
pub const M: usize = 4;

/// `B^T d`.
#[inline(always)]
pub unsafe fn input<S: Simd>(d: [S::V; T]) -> [S::V; T] {
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

/// `B y`, the adjoint of [`input`].
#[inline(always)]
pub unsafe fn input_adjoint<S: Simd>(y: [S::V; T]) -> [S::V; T] {
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

/// `A^T m`.
#[inline(always)]
pub unsafe fn output<S: Simd>(m: [S::V; T]) -> [S::V; M] {
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

/// `A y`, the adjoint of [`output`].
#[inline(always)]
pub unsafe fn output_adjoint<S: Simd>(y: [S::V; M]) -> [S::V; T] {
    unsafe {
        let (e, o) = (S::add(y[0], y[2]), S::add(y[1], y[3]));
        let e2 = S::fma(S::splat(4.0), y[2], y[0]);
        let o2 = S::fma(S::splat(8.0), y[3], S::mul(S::splat(2.0), y[1]));
        [y[0], S::add(e, o), S::sub(e, o), S::add(e2, o2), S::sub(e2, o2), y[3]]
    }
}

/// `G w`.
#[inline(always)]
pub unsafe fn filter<S: Simd>(w: [S::V; 3]) -> [S::V; T] {
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

/// `G^T u`, the adjoint of [`filter`].
#[inline(always)]
pub unsafe fn filter_adjoint<S: Simd>(u: [S::V; T]) -> [S::V; 3] {
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
