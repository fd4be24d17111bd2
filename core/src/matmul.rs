//! Matrix products: a checked, single-threaded wrapper of the `gemm` crate.
//!
//! One call is one work unit. Callers divide their work by the shapes of their matrices alone and run the units in parallel, so
//! that results do not depend on the number of threads.

use crate::matrix::MatrixRef;

/// Numbers that matrices are multiplied in.
pub trait Real: Copy + From<f32> + 'static {}
impl Real for f32 {}
impl Real for f64 {}

/// `out = a b`, or `out += a b` when `add`; `out` is row-major.
#[allow(unsafe_code)]
pub fn matmul<T: Real>(a: MatrixRef<T>, b: MatrixRef<T>, out: &mut [T], add: bool) {
    assert_eq!(a.cols, b.rows, "inner dimensions differ");
    assert_eq!(out.len(), a.rows * b.cols, "the output has the wrong length");
    let ((a_cs, a_rs), (b_cs, b_rs)) = (a.strides(), b.strides());
    // SAFETY: `MatrixRef::new` checked that each slice holds rows * cols values, the strides above stay within them, and
    // `out` was checked against the product's shape just now; `out` is borrowed mutably, so it overlaps neither input.
    unsafe {
        gemm::gemm(
            a.rows,
            b.cols,
            a.cols,
            out.as_mut_ptr(),
            1,
            b.cols as isize,
            add,
            a.values.as_ptr(),
            a_cs,
            a_rs,
            b.values.as_ptr(),
            b_cs,
            b_rs,
            T::from(1.0),
            T::from(1.0),
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_match_plain_loops() {
        let (m, n, k) = (5, 7, 11);
        let a: Vec<f32> = (0..m * k).map(|i| (i % 13) as f32 - 6.0).collect();
        let b: Vec<f32> = (0..k * n).map(|i| (i % 7) as f32 - 3.0).collect();
        let mut expected = vec![1.0f32; m * n];
        for i in 0..m {
            for j in 0..n {
                expected[i * n + j] += (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum::<f32>();
            }
        }
        let transposed = |x: &[f32], rows: usize, cols: usize| -> Vec<f32> {
            (0..cols * rows).map(|i| x[(i % rows) * cols + i / rows]).collect()
        };
        let (at, bt) = (transposed(&a, m, k), transposed(&b, k, n));
        for (left, right) in [
            (MatrixRef::new(&a, m, k), MatrixRef::new(&b, k, n)),
            (MatrixRef::new(&at, k, m).t(), MatrixRef::new(&b, k, n)),
            (MatrixRef::new(&a, m, k), MatrixRef::new(&bt, n, k).t()),
        ] {
            let mut out = vec![1.0f32; m * n];
            matmul(left, right, &mut out, true);
            assert_eq!(out, expected);
        }
        // Whole numbers: double precision has the same.
        let [a, b] = [&a, &b].map(|x| x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
        let mut out = vec![1.0f64; m * n];
        matmul(MatrixRef::new(&a, m, k), MatrixRef::new(&b, k, n), &mut out, true);
        assert_eq!(out, expected.iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
    }

    #[test]
    fn empty_products_are_zero() {
        let mut out = [3.0f32; 4];
        matmul(MatrixRef::new(&[], 2, 0), MatrixRef::new(&[], 0, 2), &mut out, false);
        assert_eq!(out, [0.0; 4]);
    }
}
