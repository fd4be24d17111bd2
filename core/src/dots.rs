//! All dot products between two sets of row vectors, tile by tile: a matrix product whose result is never stored.
//!
//! k-means keeps the smallest score of every row, kNN the k largest; both implement [`Visit`], which receives the products of
//! one row with [`WIDTH`] others while they are still in the L1 cache. One call is single-threaded and fills its products in a
//! fixed order: the same inputs give the same bits on any number of threads (CPUs without FMA round differently).
//! Instructions are chosen at run time (AVX-512, AVX2 with FMA, NEON, portable).

pub mod half;
pub mod paired;
pub mod short;

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

/// How many rows of the packed side a tile spans.
pub const WIDTH: usize = 32;

/// Row vectors, rearranged for the kernel: panels of [`WIDTH`] rows, `[panel][dim][WIDTH]`, the last filled up with zeros.
#[derive(Clone)]
pub struct Packed {
    dim: usize,
    values: Vec<f32>,
}

impl Packed {
    /// Packs `values`, rows of `dim`.
    pub fn new(values: &[f32], dim: usize) -> Self {
        Packed { dim, values: in_panels(values, dim) }
    }
}

/// Rows of `dim` values as panels of [`WIDTH`] rows, `[panel][dim][WIDTH]`, the last filled up with zeros.
fn in_panels<T: Copy + Default>(values: &[T], dim: usize) -> Vec<T> {
    let mut packed = vec![T::default(); (values.len() / dim).next_multiple_of(WIDTH) * dim];
    for (rows, panel) in values.chunks(WIDTH * dim).zip(packed.chunks_exact_mut(WIDTH * dim)) {
        for (r, row) in rows.chunks_exact(dim).enumerate() {
            for (&x, place) in row.iter().zip(panel[r..].iter_mut().step_by(WIDTH)) {
                *place = x;
            }
        }
    }
    packed
}

/// Receives dot products. `products` are those of row `row` of the left side with the packed rows `first..first + WIDTH`; past
/// the last packed row they are zero. For one row, `first` grows from call to call.
pub trait Visit {
    /// One strip of products.
    fn visit(&mut self, row: usize, first: usize, products: &[f32; WIDTH]);
}

/// Passes `visit` the dot products of the given `rows` of `left` with the rows of `panels` of `right`, panel by panel. Give a
/// few hundred rows at a time: they should stay in the L2 cache.
pub fn products(left: &[f32], rows: &[u32], right: &Packed, panels: Range<usize>, visit: &mut impl Visit) {
    Arch::new().dispatch(Kernel { left, rows, right, panels, visit });
}

/// Stores the products of every row, `columns` of them, from every `stride`-th number of `out` on.
pub struct StoreRows<'a> {
    /// Where they go.
    pub out: &'a mut [f32],
    /// Products of a row.
    pub columns: usize,
    /// Numbers of a row.
    pub stride: usize,
}

impl Visit for StoreRows<'_> {
    fn visit(&mut self, row: usize, first: usize, products: &[f32; WIDTH]) {
        let count = WIDTH.min(self.columns - first);
        self.out[row * self.stride + first..][..count].copy_from_slice(&products[..count]);
    }
}

struct Kernel<'a, V> {
    left: &'a [f32],
    rows: &'a [u32],
    right: &'a Packed,
    panels: Range<usize>,
    visit: &'a mut V,
}

impl<V: Visit> WithSimd for Kernel<'_, V> {
    type Output = ();

    /// Tiles are as large as the registers allow: 24 accumulators of 32, or 12 of 16.
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match S::F32_LANES {
            16 => self.run::<S, 12, 2>(simd),
            8 => self.run::<S, 3, 4>(simd),
            4 => self.run::<S, 2, 8>(simd),
            _ => self.run::<S, 1, 32>(simd),
        }
    }
}

impl<V: Visit> Kernel<'_, V> {
    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize>(self, simd: S) {
        let Packed { dim, ref values, .. } = *self.right;
        let mut strips = [[0.0f32; WIDTH]; ROWS];
        for p in self.panels {
            let panel = &values[p * WIDTH * dim..][..WIDTH * dim];
            for rows in self.rows.chunks(ROWS) {
                // A last tile that is not full repeats its first row.
                let mut left: [&[f32]; ROWS] = [&[]; ROWS];
                for (r, slice) in left.iter_mut().enumerate() {
                    *slice = &self.left[*rows.get(r).unwrap_or(&rows[0]) as usize * dim..][..dim];
                }
                tile::<S, ROWS, VECTORS>(simd, dim, left, panel, &mut strips);
                for (row, strip) in rows.iter().zip(&strips) {
                    self.visit.visit(*row as usize, p * WIDTH, strip);
                }
            }
        }
    }
}

/// `ROWS` x `WIDTH` dot products, each summed over the components in order.
#[inline(always)]
fn tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    dim: usize,
    left: [&[f32]; ROWS],
    panel: &[f32],
    out: &mut [[f32; WIDTH]; ROWS],
) {
    let (panel, _) = S::as_simd_f32s(panel).0.as_chunks::<VECTORS>();
    let panel = &panel[..dim];
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    for d in 0..dim {
        for r in 0..ROWS {
            let a = simd.splat_f32s(left[r][d]);
            for v in 0..VECTORS {
                sums[r][v] = simd.mul_add_e_f32s(a, panel[d][v], sums[r][v]);
            }
        }
    }
    for (strip, sums) in out.iter_mut().zip(sums) {
        let (strip, _) = S::as_mut_simd_f32s(strip);
        strip.copy_from_slice(&sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Stores all products.
    pub(super) struct Store<'a> {
        pub out: &'a mut [f32],
        pub columns: usize,
    }

    impl Visit for Store<'_> {
        fn visit(&mut self, row: usize, first: usize, products: &[f32; WIDTH]) {
            for (i, p) in products.iter().enumerate() {
                if first + i < self.columns {
                    self.out[row * self.columns + first + i] = *p;
                } else {
                    assert_eq!(*p, 0.0);
                }
            }
        }
    }

    fn matrix(rows: usize, dim: usize, seed: usize) -> Vec<f32> {
        (0..rows * dim).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 1009.0 - 0.5).collect()
    }

    proptest! {
        #[test]
        fn match_plain_loops(m in 0usize..40, n in 0usize..70, dim in 1usize..50) {
            let (a, b) = (matrix(m, dim, 1), matrix(n, dim, 2));
            let mut out = vec![f32::NAN; m * n];
            let right = Packed::new(&b, dim);
            let (rows, panels) = ((0..m as u32).collect::<Vec<_>>(), 0..n.div_ceil(WIDTH));
            products(&a, &rows, &right, panels.clone(), &mut Store { out: &mut out, columns: n });
            let mut others = vec![vec![f32::NAN; m * n]; 2];
            let [portable, narrow] = &mut others[..] else { unreachable!() };
            let visit = &mut Store { out: portable, columns: n };
            Kernel { left: &a, rows: &rows, right: &right, panels: panels.clone(), visit }.with_simd(pulp::Scalar);
            #[cfg(target_arch = "x86_64")]
            if let Some(avx2) = pulp::x86::V3::try_new() {
                let visit = &mut Store { out: narrow, columns: n };
                Simd::vectorize(avx2, Kernel { left: &a, rows: &rows, right: &right, panels, visit });
                // The same products in the same order: with FMA, the width of the vectors makes no difference.
                prop_assert_eq!(&*narrow, &out);
            }
            for i in 0..m {
                for j in 0..n {
                    let slow: f64 = (0..dim).map(|d| f64::from(a[i * dim + d]) * f64::from(b[j * dim + d])).sum();
                    prop_assert!((f64::from(out[i * n + j]) - slow).abs() < 1e-5);
                    prop_assert!((f64::from(portable[i * n + j]) - slow).abs() < 1e-5);
                }
            }
        }
    }
}
