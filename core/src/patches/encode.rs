//! Images encoded by their patches: products with all filters, thresholded and averaged over the cells of a grid.
//!
//! A filter and its mirror image are multiplied at once, by what is even and what is odd about a patch
//! ([`crate::dots::paired`]): with `p` and `p'` a pixel and its mirror image within the patch, the even numbers are `p + p'` and
//! the odd ones `p - p'`.

use super::{Images, Level, Patches, extract};
use crate::cancel::Cancel;
use crate::dots::WIDTH;
use crate::dots::paired::{PackedPairs, VisitPairs, products};
use crate::error::Result;
use crate::matrix::Matrix;
use rayon::prelude::*;

pub(super) fn encode(patches: &Patches, images: &dyn Images, rows: &[usize], cancel: &Cancel) -> Result<Matrix> {
    let (side, dim) = (patches.side, patches.features());
    assert_eq!(images.side(), side, "images of another size than the patches were learned from");
    let mut values = vec![0.0f32; rows.len() * dim];
    values.par_chunks_mut(dim).zip(rows).try_for_each_init(
        || Scratch::new(patches),
        |scratch, (out, &i)| {
            cancel.check()?;
            images.read(i, &mut scratch.image)?;
            for (level, out) in out.chunks_exact_mut(patches.settings.level_features()).enumerate() {
                if level > 0 {
                    extract::halve(&mut scratch.image, side >> (level - 1));
                }
                scratch.encode(patches, level, out);
            }
            Ok::<(), crate::error::Error>(())
        },
    )?;
    Ok(Matrix { rows: rows.len(), dim, values })
}

/// Numbers of the even part of a patch, with the constant, and of its odd part.
fn parts(patch: usize) -> (usize, usize) {
    (patch * patch.div_ceil(2) * 3 + 1, patch * (patch / 2) * 3)
}

/// Splits `[patch, patch, 3]` numbers into even and odd ones. For filters, `half` is a half, so that products stay the same.
fn split(from: &[f32], patch: usize, half: f32, even: &mut [f32], odd: &mut [f32]) {
    let (left, right) = (patch.div_ceil(2) * 3, patch / 2 * 3);
    for (y, line) in from.chunks_exact(patch * 3).enumerate() {
        let (even, odd) = (&mut even[y * left..][..left], &mut odd[y * right..][..right]);
        for x in 0..patch / 2 {
            for channel in 0..3 {
                let (own, mirror) = (line[x * 3 + channel], line[(patch - 1 - x) * 3 + channel]);
                even[x * 3 + channel] = (own + mirror) * half;
                odd[x * 3 + channel] = (own - mirror) * half;
            }
        }
        // The column in the middle is its own mirror image.
        if patch % 2 == 1 {
            even[right..].copy_from_slice(&line[right..right + 3]);
        }
    }
}

/// The filters as [`products`] takes them: of each, the even part with its constant, and the odd part. Patches of one pixel have
/// no odd part: a zero stands for it.
pub(super) fn packed(filters: &Matrix, patch: usize) -> PackedPairs {
    let (evens, odds) = parts(patch);
    let filled = odds.max(1);
    let (mut even, mut odd) = (vec![0.0f32; filters.rows * evens], vec![0.0f32; filters.rows * filled]);
    for ((row, even), odd) in
        filters.values.chunks_exact(filters.dim).zip(even.chunks_exact_mut(evens)).zip(odd.chunks_exact_mut(filled))
    {
        let (pixels, constant) = row.split_at(filters.dim - 1);
        split(pixels, patch, 0.5, even, &mut odd[..odds]);
        even[evens - 1] = constant[0];
    }
    PackedPairs::new(&even, &odd, (evens, filled))
}

/// Memory for one image.
struct Scratch {
    image: Vec<f32>,
    /// One patch.
    patch: Vec<f32>,
    /// Patches of one cell, contrast normalised and split; behind the even part, a 1 for the filter's constant.
    rows: Vec<f32>,
    /// `[cells^2, 4, filters filled up to WIDTH]`: own and positive, own and negative, mirrored and positive, mirrored and negative.
    sums: Vec<f32>,
}

impl Scratch {
    fn new(patches: &Patches) -> Scratch {
        let settings = &patches.settings;
        let padded = settings.centroids.next_multiple_of(WIDTH);
        Scratch {
            image: vec![0.0; patches.side * patches.side * 3],
            patch: vec![0.0; settings.dim()],
            rows: Vec::new(),
            sums: vec![0.0; settings.cells * settings.cells * 4 * padded],
        }
    }

    /// Encodes the image, which is that of `level`.
    fn encode(&mut self, patches: &Patches, level: usize, out: &mut [f32]) {
        let settings = &patches.settings;
        let (cells, k) = (settings.cells, settings.centroids);
        let (Level { side, stride, positions }, padded) =
            (settings.level(patches.side, level), k.next_multiple_of(WIDTH));
        // Position p belongs to cell p * cells / positions.
        let first = |cell: usize| (cell * positions).div_ceil(cells);
        self.sums.fill(0.0);
        for (cell, sums) in self.sums.chunks_exact_mut(4 * padded).enumerate() {
            let (y, x) = (cell / cells, cell % cells);
            self.rows.clear();
            for row in first(y)..first(y + 1) {
                for column in first(x)..first(x + 1) {
                    let corner = (row * stride, column * stride);
                    extract::copy(&self.image, side, settings.patch, corner, &mut self.patch);
                    extract::normalise_contrast(&mut self.patch);
                    push(&self.patch, settings.patch, &mut self.rows);
                }
            }
            products(&self.rows, &patches.packed[level], &mut Above { threshold: settings.threshold, padded, sums });
        }
        let count = |cell: usize| first(cell + 1) - first(cell);
        for (c, out) in out.chunks_exact_mut(2 * k).enumerate() {
            let (y, x) = (c / cells, c % cells);
            // The mirror image of the cell may be larger or smaller by one.
            let (own, mirror) = (y * cells + x, y * cells + cells - 1 - x);
            let [own_scale, mirror_scale] = [x, cells - 1 - x].map(|x| 0.5 / (count(y) * count(x)) as f32);
            for (sign, out) in out.chunks_exact_mut(k).enumerate() {
                let own = &self.sums[(own * 4 + sign) * padded..][..k];
                let mirror = &self.sums[(mirror * 4 + 2 + sign) * padded..][..k];
                out.iter_mut().zip(own).zip(mirror).for_each(|((o, s), m)| *o = s * own_scale + m * mirror_scale);
            }
        }
    }
}

/// Adds a patch to `rows`: its even part, a 1, its odd part.
fn push(values: &[f32], patch: usize, rows: &mut Vec<f32>) {
    let (evens, odds) = parts(patch);
    let at = rows.len();
    rows.resize(at + evens + odds.max(1), 0.0);
    let (even, odd) = rows[at..].split_at_mut(evens);
    split(values, patch, 1.0, even, odd);
    even[evens - 1] = 1.0;
}

/// Adds up what is above the threshold, on both sides, for filters and their mirror images.
struct Above<'a> {
    threshold: f32,
    padded: usize,
    sums: &'a mut [f32],
}

impl VisitPairs for Above<'_> {
    #[inline(always)]
    fn visit(&mut self, first: usize, even: &[[f32; WIDTH]], odd: &[[f32; WIDTH]]) {
        let mut sums = [[0.0f32; WIDTH]; 4];
        for (even, odd) in even.iter().zip(odd) {
            for i in 0..WIDTH {
                let (own, mirror) = (even[i] + odd[i], even[i] - odd[i]);
                sums[0][i] += (own - self.threshold).max(0.0);
                sums[1][i] += (-own - self.threshold).max(0.0);
                sums[2][i] += (mirror - self.threshold).max(0.0);
                sums[3][i] += (-mirror - self.threshold).max(0.0);
            }
        }
        for (total, sums) in self.sums.chunks_exact_mut(self.padded).zip(&sums) {
            total[first..first + WIDTH].iter_mut().zip(sums).for_each(|(t, s)| *t += s);
        }
    }
}
