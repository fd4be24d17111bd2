//! Dot products of rows with vectors and with their mirror images, for the price of one: what is even and what is odd about a
//! row are multiplied apart. With `e` and `o` the products of the even and the odd parts, a row's product with a vector is
//! `e + o`, and with the vector's mirror image `e - o`.

use super::{Packed, WIDTH, tile};
use pulp::{Arch, Simd, WithSimd};

/// Receives the products of a few rows with the packed vectors `first..first + WIDTH`: the even parts, and the odd parts.
pub trait VisitPairs {
    /// One tile; both slices have a strip for every row.
    fn visit(&mut self, first: usize, even: &[[f32; WIDTH]], odd: &[[f32; WIDTH]]);
}

/// Vectors apart: the even parts, and the odd parts, with as many panels.
#[derive(Clone)]
pub struct PackedPairs {
    even: Packed,
    odd: Packed,
}

impl PackedPairs {
    /// Packs vectors whose even parts are rows of `dims.0` in `even`, and whose odd parts are rows of `dims.1` in `odd`.
    pub fn new(even: &[f32], odd: &[f32], dims: (usize, usize)) -> Self {
        assert_eq!(even.len() / dims.0, odd.len() / dims.1, "as many even parts as odd ones");
        PackedPairs { even: Packed::new(even, dims.0), odd: Packed::new(odd, dims.1) }
    }
}

/// Passes `visit` the products of all `rows`, each its even part and then its odd part, with all vectors of `right`, panel by
/// panel. Give a few hundred rows at a time: they should stay in the L2 cache.
pub fn products(rows: &[f32], right: &PackedPairs, visit: &mut impl VisitPairs) {
    Arch::new().dispatch(PairKernel { rows, right, visit });
}

struct PairKernel<'a, V> {
    rows: &'a [f32],
    right: &'a PackedPairs,
    visit: &'a mut V,
}

impl<V: VisitPairs> WithSimd for PairKernel<'_, V> {
    type Output = ();

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

impl<V: VisitPairs> PairKernel<'_, V> {
    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize>(self, simd: S) {
        let PackedPairs { even, odd } = self.right;
        let dim = even.dim + odd.dim;
        let (mut evens, mut odds) = ([[0.0f32; WIDTH]; ROWS], [[0.0f32; WIDTH]; ROWS]);
        let panels = even.values.chunks_exact(WIDTH * even.dim).zip(odd.values.chunks_exact(WIDTH * odd.dim));
        for (p, (even_panel, odd_panel)) in panels.enumerate() {
            for rows in self.rows.chunks(ROWS * dim) {
                let n = rows.len() / dim;
                // A last tile that is not full repeats its first row.
                let (mut left, mut right): ([&[f32]; ROWS], [&[f32]; ROWS]) = ([&[]; ROWS], [&[]; ROWS]);
                for r in 0..ROWS {
                    let row = &rows[if r < n { r * dim } else { 0 }..][..dim];
                    (left[r], right[r]) = row.split_at(even.dim);
                }
                tile::<S, ROWS, VECTORS>(simd, even.dim, left, even_panel, &mut evens);
                tile::<S, ROWS, VECTORS>(simd, odd.dim, right, odd_panel, &mut odds);
                self.visit.visit(p * WIDTH, &evens[..n], &odds[..n]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Tile = Vec<[f32; WIDTH]>;
    struct Tiles(Vec<(usize, Tile, Tile)>);

    impl VisitPairs for Tiles {
        fn visit(&mut self, first: usize, even: &[[f32; WIDTH]], odd: &[[f32; WIDTH]]) {
            self.0.push((first, even.to_vec(), odd.to_vec()));
        }
    }

    #[test]
    fn products_match_plain_loops() {
        let number = |i: usize| ((i * 7919) % 1009) as f32 / 1009.0 - 0.5;
        for (rows, vectors, even, odd) in [(1, 1, 1, 1), (29, 45, 7, 5), (5, 64, 3, 4)] {
            let left: Vec<f32> = (0..rows * (even + odd)).map(number).collect();
            let right: Vec<f32> = (0..vectors * (even + odd)).map(|i| number(i + 31)).collect();
            let (evens, odds) = right.split_at(vectors * even);
            let mut found = Tiles(Vec::new());
            products(&left, &PackedPairs::new(evens, odds, (even, odd)), &mut found);
            let mut seen = vec![0; vectors.next_multiple_of(WIDTH)];
            for (first, e, o) in found.0 {
                for (r, (e, o)) in e.iter().zip(&o).enumerate() {
                    let row = &left[(seen[first] + r) * (even + odd)..][..even + odd];
                    let product = |v: &[f32], x: &[f32]| v.iter().zip(x).map(|(a, b)| a * b).sum::<f32>();
                    for v in 0..WIDTH.min(vectors.saturating_sub(first)) {
                        let expected = (
                            product(&evens[(first + v) * even..][..even], &row[..even]),
                            product(&odds[(first + v) * odd..][..odd], &row[even..]),
                        );
                        assert!((e[v] - expected.0).abs() < 1e-5 && (o[v] - expected.1).abs() < 1e-5);
                    }
                }
                seen[first] += e.len();
            }
            assert!(seen.iter().step_by(WIDTH).all(|n| *n == rows), "{seen:?}");
        }
    }
}
