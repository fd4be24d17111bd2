//! Dot products of rows rounded to bf16, twice as many in a second as in f32, and how far they may be off.
//!
//! With `x'` the rounded row, `x . y - x' . y' = (x - x') . y + x' . (y - y')`, so that the two differ by at most
//! `|x - x'| |y| + |x'| |y - y'|`; these lengths are computed, not assumed ([`RoundedLengths`]). A search for the largest products
//! skips what cannot reach them and computes the others in full: the same result.

use super::{Visit, WIDTH, in_panels};
use crate::matrix::Matrix;
use rayon::prelude::*;
use std::ops::Range;

/// Left rows of a tile: with two vectors each they fill 24 of the 32 registers.
const ROWS: usize = 12;

/// Whether this CPU multiplies bf16.
pub fn supported() -> bool {
    // All that the kernel is compiled for.
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bf16")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Lengths that bound what rounding changes: of one row, or the greatest of many.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundedLengths {
    /// `|x|`.
    pub exact: f32,
    /// `|x'|`.
    pub rounded: f32,
    /// `|x - x'|`.
    pub lost: f32,
}

impl RoundedLengths {
    fn of(row: &[f32]) -> Self {
        let length = |part: &dyn Fn(f32) -> f32| {
            row.iter().map(|x| f64::from(part(*x)).powi(2)).sum::<f64>().sqrt() as f32 * (1.0 + f32::EPSILON)
        };
        let nearest = |x: f32| widened(nearest(x));
        RoundedLengths { exact: length(&|x| x), rounded: length(&nearest), lost: length(&|x| x - nearest(x)) }
    }

    fn max(self, other: Self) -> Self {
        // NaN stays: nothing is known about such rows.
        let max = |a: f32, b: f32| if a >= b || a.is_nan() { a } else { b };
        RoundedLengths {
            exact: max(self.exact, other.exact),
            rounded: max(self.rounded, other.rounded),
            lost: max(self.lost, other.lost),
        }
    }

    /// The greatest difference between the product of the rounded rows, of `dim` components, and that of the rows.
    pub fn error(self, other: Self, dim: usize) -> f32 {
        // Sums of `dim` products in f32; what is too small for a number counts as zero.
        let sums = dim as f32 * (f32::EPSILON * self.rounded * other.rounded + f32::MIN_POSITIVE);
        (self.lost * other.exact + self.rounded * other.lost + sums) * (1.0 + 8.0 * f32::EPSILON)
    }
}

/// Rows in bf16, two components to a word; beside an odd last one is a zero.
pub struct HalfRows {
    /// Words of a row.
    pub pairs: usize,
    /// Row after row.
    pub words: Vec<u32>,
    /// Of every row.
    pub lengths: Vec<RoundedLengths>,
}

impl HalfRows {
    /// Rounds `rows`.
    pub fn new(rows: &Matrix) -> Self {
        let pairs = rows.dim.div_ceil(2);
        let mut words = vec![0; rows.rows * pairs];
        words.par_chunks_mut(pairs).zip(rows.values.par_chunks(rows.dim)).for_each(|(words, row)| {
            for (word, pair) in words.iter_mut().zip(row.chunks(2)) {
                let high = pair.get(1).map_or(0, |x| nearest(*x));
                *word = u32::from(high) << 16 | u32::from(nearest(pair[0]));
            }
        });
        let lengths = rows.values.par_chunks(rows.dim).map(RoundedLengths::of).collect();
        HalfRows { pairs, words, lengths }
    }

    /// The greatest lengths of all rows.
    pub fn greatest(&self) -> RoundedLengths {
        self.lengths.iter().copied().fold(RoundedLengths::default(), RoundedLengths::max)
    }
}

/// Rows in bf16, rearranged for the kernel as [`super::Packed`] is: panels of [`WIDTH`] rows, `[panel][pair][WIDTH]`.
pub struct PackedHalves {
    pairs: usize,
    words: Vec<u32>,
}

impl PackedHalves {
    /// Packs `rows`.
    pub fn new(rows: &HalfRows) -> Self {
        PackedHalves { pairs: rows.pairs, words: in_panels(&rows.words, rows.pairs) }
    }
}

/// The nearest bf16, as its bits; of two, the even one.
fn nearest(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

fn widened(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Passes `visit` the products of the given `rows` of `left` with the rows of `panels` of `right`, panel by panel; see
/// [`super::products`]. For CPUs that are [`supported`].
#[allow(unsafe_code)]
pub fn products(left: &[u32], rows: &[u32], right: &PackedHalves, panels: Range<usize>, visit: &mut impl Visit) {
    assert!(supported(), "products of bf16 on a CPU without them");
    // Tiles of `ROWS` rows, `[tile][pair][ROWS]`, the last filled up with zeros.
    let pairs = right.pairs;
    let mut tiles = vec![[0; ROWS]; rows.len().div_ceil(ROWS) * pairs];
    for (i, row) in rows.iter().enumerate() {
        let row = &left[*row as usize * pairs..][..pairs];
        for (word, place) in row.iter().zip(&mut tiles[i / ROWS * pairs..]) {
            place[i % ROWS] = *word;
        }
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the CPU has the features, as asserted.
    unsafe {
        run(&tiles, rows, right, panels, visit);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (tiles, panels, &right.words, visit);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16,avx512bw,avx512dq,avx512vl")]
fn run(tiles: &[[u32; ROWS]], rows: &[u32], right: &PackedHalves, panels: Range<usize>, visit: &mut impl Visit) {
    let pairs = right.pairs;
    let mut strips = [[0.0f32; WIDTH]; ROWS];
    for p in panels {
        let panel = &right.words[p * WIDTH * pairs..][..WIDTH * pairs];
        for (rows, left) in rows.chunks(ROWS).zip(tiles.chunks_exact(pairs)) {
            tile(left, panel.as_chunks().0, &mut strips);
            for (row, strip) in rows.iter().zip(&strips) {
                visit.visit(*row as usize, p * WIDTH, strip);
            }
        }
    }
}

/// `ROWS` x `WIDTH` dot products.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16,avx512bw,avx512dq,avx512vl")]
#[inline]
#[allow(unsafe_code)]
fn tile(left: &[[u32; ROWS]], panel: &[[u32; WIDTH]], out: &mut [[f32; WIDTH]; ROWS]) {
    use std::arch::x86_64::*;
    use std::mem::transmute;
    let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
    for (rows, others) in left.iter().zip(panel) {
        // SAFETY: 32 words are two vectors of 16; a vector of words is one of pairs of bf16.
        let halves = unsafe { transmute::<[u32; WIDTH], [__m512bh; 2]>(*others) };
        for r in 0..ROWS {
            // SAFETY: the two types are the same 512 bits.
            let row = unsafe { transmute::<__m512i, __m512bh>(_mm512_set1_epi32(rows[r] as i32)) };
            for v in 0..2 {
                sums[r][v] = _mm512_dpbf16_ps(sums[r][v], row, halves[v]);
            }
        }
    }
    for (strip, sums) in out.iter_mut().zip(sums) {
        // SAFETY: two vectors of 16 are 32 numbers.
        *strip = unsafe { transmute::<[__m512; 2], [f32; WIDTH]>(sums) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Store;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against sums of the rounded components in double precision, and of the components themselves: never farther off
        /// than the error.
        #[test]
        fn products_are_off_by_no_more_than_their_error(
            (dim, a, b) in (1usize..40).prop_flat_map(|dim| {
                let rows = |most: usize| prop::collection::vec(-2.0f32..2.0, 0..most * dim);
                (Just(dim), rows(30), rows(70))
            }),
        ) {
            let whole = |mut values: Vec<f32>| { values.truncate(values.len() / dim * dim); Matrix::new(dim, values) };
            let (a, b) = (whole(a), whole(b));
            if !supported() {
                eprintln!("skipped: this CPU does not multiply bf16");
                return Ok(());
            }
            let (left, right) = (HalfRows::new(&a), HalfRows::new(&b));
            let mut out = vec![f32::NAN; a.rows * b.rows];
            let all: Vec<u32> = (0..a.rows as u32).collect();
            let panels = 0..b.rows.div_ceil(WIDTH);
            products(&left.words, &all, &PackedHalves::new(&right), panels, &mut Store { out: &mut out, columns: b.rows });
            for i in 0..a.rows {
                for j in 0..b.rows {
                    let found = f64::from(out[i * b.rows + j]);
                    let sum = |part: &dyn Fn(f32) -> f32| -> f64 {
                        a.row(i).iter().zip(b.row(j)).map(|(x, y)| f64::from(part(*x)) * f64::from(part(*y))).sum()
                    };
                    prop_assert!((found - sum(&|x| widened(nearest(x)))).abs() < 1e-5);
                    let error = left.lengths[i].error(right.greatest(), dim);
                    prop_assert!((found - sum(&|x| x)).abs() <= f64::from(error));
                }
            }
        }

        #[test]
        fn rounding_is_to_the_nearest_and_even(x in -1e30f32..1e30) {
            let found = widened(nearest(x));
            let (below, above) = (nearest(x).wrapping_sub(1), nearest(x).wrapping_add(1));
            for other in [below, above].map(widened).into_iter().filter(|o| o.is_finite() && o.signum() == x.signum()) {
                let (own, its) = ((f64::from(x) - f64::from(found)).abs(), (f64::from(x) - f64::from(other)).abs());
                prop_assert!(own < its || own == its && nearest(x) & 1 == 0);
            }
        }
    }

    #[test]
    fn what_is_no_number_stays_none_and_bounds_nothing() {
        assert!(widened(nearest(f32::NAN)).is_nan() && widened(nearest(f32::from_bits(0x7f80_0001))).is_nan());
        assert_eq!((nearest(1.0), widened(nearest(f32::INFINITY))), (0x3f80, f32::INFINITY));
        let rows = HalfRows::new(&Matrix::new(1, vec![1.0, f32::NAN, 2.0]));
        assert!(rows.greatest().exact.is_nan() && rows.lengths[0].error(rows.greatest(), 1).is_nan());
    }
}
