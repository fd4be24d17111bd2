//! SGD in one pass over weights, gradient and velocity.

use crate::Sgd;
use crate::memory::{Ptr, parallel};
use crate::simd::Simd;

/// Values in a unit of work.
const UNIT: usize = 1 << 14;

/// `(w', velocity')` from `w`, `g` and `velocity`; targets may be their sources.
///
/// # Safety
/// Every pointer holds `n` values, and targets overlap nothing but their own source.
pub unsafe fn step<S: Simd>(n: usize, w: Ptr, g: Ptr, velocity: Ptr, to_w: Ptr, to_velocity: Ptr, step: Sgd) {
    parallel(n.div_ceil(UNIT), |u| {
        let (from, to) = (u * UNIT, (u * UNIT + UNIT).min(n));
        // SAFETY: units are disjoint ranges within `n`.
        unsafe {
            S::run(
                #[inline(always)]
                || {
                    for i in from..to {
                        let weight = *w.at(i);
                        let gradient = *g.at(i) + step.decay * weight;
                        let moved = step.momentum * *velocity.at(i) + gradient;
                        let by = if step.nesterov { gradient + step.momentum * moved } else { moved };
                        *to_velocity.at(i) = moved;
                        *to_w.at(i) = weight - step.lr * by;
                    }
                },
            )
        }
    });
}
