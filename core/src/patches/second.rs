//! The second layer: clusters of patches of codes.
//!
//! 1. The codes of the image's own size are averaged over a finer grid, of *areas*. With `o` the square root of the code of an area
//!    and `m` that of the same area for the mirrored centroids, the even part is `o + m`, the odd part `o - m`: in the mirror image, even
//!    parts stand in the mirrored area, and odd parts there with the other sign.
//! 2. Even and odd parts are reduced to the principal directions of both. A direction of variance `v` is divided by `sqrt(v + floor)`, so
//!    that all are nearly white.
//! 3. Patches of neighbouring areas, at unit length, are clustered by spherical k-means, in which a centroid stands for its negative and its mirror image,
//!    too.
//! 4. An image is encoded by all these patches as by those of pixels: what products have above a threshold, averaged over the cells
//!    of the grid; a patch and its mirror image are multiplied at once.

use super::encode::{Above, CellSums, Scratch, first};
use super::{Images, PatchSettings, Patches, centroids};
use crate::cancel::Cancel;
use crate::dots::WIDTH;
use crate::dots::paired::{PackedPairs, products};
use crate::eigen::{Eigen, eigen};
use crate::error::{Error, Result};
use crate::matmul::matmul;
use crate::matrix::{Matrix, MatrixRef, normalise};
use crate::rng::{Key, Purpose};
use crate::scatter::Scatter;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Images that the directions and the patches are taken from at the most.
const IMAGES: usize = 2000;
/// Images whose areas are held at a time.
const BLOCK: usize = 32;
/// Share of the greatest variance below which directions are not made white.
const FLOOR: f64 = 0.01;

/// How the second layer is learned and encoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecondSettings {
    /// Number of centroids; each stands for its negative and its mirror image, too. With 0 there is no second layer.
    pub centroids: usize,
    /// Areas along a side at the most: images with fewer patches have fewer.
    pub areas: usize,
    /// Numbers that the code of an area is reduced to, at the most.
    pub numbers: usize,
    /// Side of a patch in areas.
    pub patch: usize,
    /// Patches to learn from.
    pub samples: usize,
    /// Products below this count as 0.
    pub threshold: f32,
}

impl SecondSettings {
    /// Areas along a side on top of `patches`, which have so many positions a side: a multiple of their cells.
    pub(super) fn areas_of(&self, patches: &PatchSettings, positions: usize) -> usize {
        let most = self.areas.min(positions);
        most - most % patches.cells
    }

    /// Numbers of an area on top of `patches`.
    pub(super) fn numbers_of(&self, patches: &PatchSettings) -> usize {
        self.numbers.min(2 * patches.centroids)
    }

    /// An error for settings that cannot work on top of `patches`, which have so many positions a side.
    pub(super) fn check(&self, patches: &PatchSettings, positions: usize) -> Result<()> {
        let wrong = |message: String, remedy: String| Err(Error::usage(message, remedy));
        if self.centroids == 0 {
            return Ok(());
        }
        let areas = self.areas_of(patches, positions);
        if self.patch == 0 || self.patch + patches.cells > areas + 1 {
            let message = format!("patches.second.patch cannot be {} on a grid of {areas} areas a side", self.patch);
            return wrong(message, "give a smaller one, more patches.second.areas or larger images".into());
        }
        if self.numbers < 2 {
            let message = format!("patches.second.numbers cannot be {}", self.numbers);
            return wrong(message, "give a number above 1".into());
        }
        if self.samples == 0 {
            return wrong("patches.second.samples is 0".into(), "give it a number above 0".into());
        }
        Ok(())
    }
}

impl Default for SecondSettings {
    fn default() -> Self {
        SecondSettings { centroids: 0, areas: 14, numbers: 64, patch: 2, samples: 50_000, threshold: 0.05 }
    }
}

/// What the second layer has learned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Second {
    /// Mean of the even parts, `[2 * centroids of the first layer]`.
    pub mean: Vec<f32>,
    /// Directions of the even parts, scaled, a row each.
    pub even: Matrix,
    /// Directions of the odd parts, scaled, a row each.
    pub odd: Matrix,
    /// Centroids, `[centroids, patch * patch * (even + odd numbers)]`.
    pub filters: Matrix,
}

/// The second layer, ready to encode.
#[derive(Clone)]
pub(super) struct SecondLayer {
    pub learned: Second,
    pub settings: SecondSettings,
    packed: PackedPairs,
}

impl SecondLayer {
    pub fn new(learned: Second, settings: SecondSettings) -> SecondLayer {
        let shape = Shape::new(&learned, &settings);
        let (evens, odds) = shape.parts();
        let (mut even, mut odd) = (Vec::new(), Vec::new());
        let mut row = vec![0.0f32; evens + odds];
        for filter in learned.filters.values.chunks_exact(learned.filters.dim) {
            shape.split(filter, 0.5, &mut row);
            even.extend_from_slice(&row[..evens]);
            odd.extend_from_slice(&row[evens..]);
        }
        let packed = PackedPairs::new(&even, &odd, (evens, odds));
        SecondLayer { learned, settings, packed }
    }

    /// Learns directions and centroids from `images`, whose first layer is `patches`.
    pub fn learn(patches: &Patches, images: &dyn Images, cancel: &Cancel) -> Result<SecondLayer> {
        let settings = patches.settings.second.clone();
        let key = Key { purpose: Purpose::Patches, seed: patches.settings.seed, round: 2, epoch: 0 };
        let all: Vec<u64> = (0..images.len() as u64).collect();
        let mut chosen: Vec<usize> = key.shuffled(&all).into_iter().take(IMAGES).collect();
        chosen.sort_unstable();
        let columns = 2 * patches.settings.centroids;
        let (mut evens, mut odds) = (Scatter::new(columns), Scatter::new(columns));
        for rows in chosen.chunks(BLOCK) {
            let (even, odd) = areas(patches, images, rows, cancel)?;
            evens.add(even);
            odds.add(odd);
        }
        let (mean, even, odd) = directions(&evens, &odds, settings.numbers_of(&patches.settings))?;
        let mut learned = Second { mean, even, odd, ..Second::default() };
        let shape = Shape::new(&learned, &settings);
        let side = patches.areas(0);
        let positions = side - settings.patch + 1;
        let each = settings.samples.div_ceil(chosen.len()).clamp(1, positions * positions);
        let mut sampled = Vec::with_capacity(chosen.len() * each * shape.dim());
        for rows in chosen.chunks(BLOCK) {
            let (even, odd) = areas(patches, images, rows, cancel)?;
            let per_image = side * side * columns;
            let blocks = even.values.par_chunks(per_image).zip(odd.values.par_chunks(per_image)).zip(rows);
            let taken: Vec<Vec<f32>> = blocks
                .map(|((even, odd), &i)| {
                    let reduced = reduce(&learned, even.to_vec(), odd);
                    let mut random = key.stream(i as u64, 1);
                    let mut out = vec![0.0f32; each * shape.dim()];
                    for row in out.chunks_exact_mut(shape.dim()) {
                        let place = [0; 2].map(|_: usize| random.below(positions as u64) as usize);
                        shape.copy(&reduced, side, place, row);
                    }
                    out
                })
                .collect();
            taken.iter().for_each(|rows| sampled.extend_from_slice(rows));
        }
        let sampled = Matrix::new(shape.dim(), sampled);
        let key = Key { purpose: Purpose::PatchCentroids, seed: patches.settings.seed, round: 1, epoch: 0 };
        let wanted = centroids::Wanted { k: settings.centroids, iterations: patches.settings.iterations, key };
        learned.filters = centroids::learn(&sampled, &wanted, &|from, to| shape.mirrored(from, to), cancel)?;
        Ok(SecondLayer::new(learned, settings))
    }

    /// Adds the code of an image, whose first layer has just been summed in `scratch`.
    pub fn encode(&self, patches: &Patches, scratch: &Scratch, out: &mut [f32]) {
        let (settings, cells) = (&self.settings, patches.settings.cells);
        let (mut even, mut odd) = (Vec::new(), Vec::new());
        parts_of_areas(patches, scratch, &mut even, &mut odd);
        let reduced = reduce(&self.learned, even, &odd);
        let shape = Shape::new(&self.learned, settings);
        let areas = patches.areas(0);
        let positions = areas - settings.patch + 1;
        let padded = settings.centroids.next_multiple_of(WIDTH);
        let mut sums = vec![0.0f32; cells * cells * 4 * padded];
        let (mut patch, mut rows) = (vec![0.0f32; shape.dim()], Vec::new());
        let (evens, odds) = shape.parts();
        for (cell, sums) in sums.chunks_exact_mut(4 * padded).enumerate() {
            let (y, x) = (cell / cells, cell % cells);
            rows.clear();
            for row in first(y, cells, positions)..first(y + 1, cells, positions) {
                for column in first(x, cells, positions)..first(x + 1, cells, positions) {
                    shape.copy(&reduced, areas, [row, column], &mut patch);
                    let at = rows.len();
                    rows.resize(at + evens + odds, 0.0);
                    shape.split(&patch, 1.0, &mut rows[at..]);
                }
            }
            products(&rows, &self.packed, &mut Above::new(settings.threshold, padded, sums, &[]));
        }
        let sums = CellSums { sums: &sums, padded, k: settings.centroids, cells, positions };
        sums.code(out);
    }
}

/// How a patch of reduced areas lies in memory.
struct Shape {
    patch: usize,
    even: usize,
    odd: usize,
}

impl Shape {
    fn new(learned: &Second, settings: &SecondSettings) -> Shape {
        Shape { patch: settings.patch, even: learned.even.rows, odd: learned.odd.rows }
    }

    fn numbers(&self) -> usize {
        self.even + self.odd
    }

    fn dim(&self) -> usize {
        self.patch * self.patch * self.numbers()
    }

    /// Numbers of the part of a patch that its mirror image shares, and of the part that changes its sign there.
    fn parts(&self) -> (usize, usize) {
        let (pairs, middle) = (self.patch / 2 * self.patch, self.patch % 2 * self.patch);
        (pairs * self.numbers() + middle * self.even, (pairs * self.numbers() + middle * self.odd).max(1))
    }

    /// Copies the patch whose upper left area is at `(y, x)` of a grid of `areas`, at unit length.
    fn copy(&self, reduced: &[f32], areas: usize, [y, x]: [usize; 2], out: &mut [f32]) {
        let width = self.patch * self.numbers();
        for (dy, line) in out.chunks_exact_mut(width).enumerate() {
            line.copy_from_slice(&reduced[((y + dy) * areas + x) * self.numbers()..][..width]);
        }
        normalise(out);
    }

    /// The mirror image of a patch.
    fn mirrored(&self, from: &[f32], out: &mut [f32]) {
        let width = self.patch * self.numbers();
        for (line, out) in from.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            for (area, out) in line.chunks_exact(self.numbers()).zip(out.chunks_exact_mut(self.numbers()).rev()) {
                out[..self.even].copy_from_slice(&area[..self.even]);
                out[self.even..].iter_mut().zip(&area[self.even..]).for_each(|(o, a)| *o = -a);
            }
        }
    }

    /// Splits a patch into the part that its mirror image shares, and behind it the part that changes its sign there. For filters, `half` is a half, so
    /// that products stay the same.
    fn split(&self, from: &[f32], half: f32, out: &mut [f32]) {
        let (n, width) = (self.numbers(), self.patch * self.numbers());
        let (shared, turned) = out.split_at_mut(self.parts().0);
        let (mut s, mut t) = (0, 0);
        for line in from.chunks_exact(width) {
            for x in 0..self.patch / 2 {
                let (own, mirror) = (&line[x * n..][..n], &line[(self.patch - 1 - x) * n..][..n]);
                for i in 0..n {
                    let sign = if i < self.even { mirror[i] } else { -mirror[i] };
                    shared[s + i] = (own[i] + sign) * half;
                    turned[t + i] = (own[i] - sign) * half;
                }
                (s, t) = (s + n, t + n);
            }
            // The area in the middle is its own mirror image.
            if self.patch % 2 == 1 {
                let middle = &line[self.patch / 2 * n..][..n];
                shared[s..s + self.even].copy_from_slice(&middle[..self.even]);
                turned[t..t + self.odd].copy_from_slice(&middle[self.even..]);
                (s, t) = (s + self.even, t + self.odd);
            }
        }
    }
}

/// The even and the odd parts of the areas of some images, `[images * areas^2, 2 * centroids]` each.
fn areas(patches: &Patches, images: &dyn Images, rows: &[usize], cancel: &Cancel) -> Result<(Matrix, Matrix)> {
    let found: Result<Vec<(Vec<f32>, Vec<f32>)>> = rows
        .par_iter()
        .map_init(
            || Scratch::new(patches),
            |scratch, &i| {
                cancel.check()?;
                scratch.read(images, i)?;
                scratch.sum(patches, 0);
                let (mut even, mut odd) = (Vec::new(), Vec::new());
                parts_of_areas(patches, scratch, &mut even, &mut odd);
                Ok::<_, Error>((even, odd))
            },
        )
        .collect();
    let (mut even, mut odd) = (Vec::new(), Vec::new());
    for (e, o) in found? {
        even.extend(e);
        odd.extend(o);
    }
    let columns = 2 * patches.settings.centroids;
    Ok((Matrix::new(columns, even), Matrix::new(columns, odd)))
}

/// The same of one image, whose first layer has just been summed.
fn parts_of_areas(patches: &Patches, scratch: &Scratch, even: &mut Vec<f32>, odd: &mut Vec<f32>) {
    let (k, areas) = (patches.settings.centroids, patches.areas(0));
    even.resize(areas * areas * 2 * k, 0.0);
    odd.resize(areas * areas * 2 * k, 0.0);
    for (area, (even, odd)) in even.chunks_exact_mut(2 * k).zip(odd.chunks_exact_mut(2 * k)).enumerate() {
        let (sums, padded, count) = scratch.area(patches, area / areas, area % areas);
        let scale = 1.0 / count as f32;
        for sign in 0..2 {
            let (own, mirror) = (&sums[sign * padded..][..k], &sums[(2 + sign) * padded..][..k]);
            for i in 0..k {
                let (o, m) = ((own[i] * scale).sqrt(), (mirror[i] * scale).sqrt());
                even[sign * k + i] = o + m;
                odd[sign * k + i] = o - m;
            }
        }
    }
}

/// The numbers of all areas of an image, `[areas^2, even + odd numbers]`.
fn reduce(learned: &Second, mut even: Vec<f32>, odd: &[f32]) -> Vec<f32> {
    let columns = learned.mean.len();
    for row in even.chunks_exact_mut(columns) {
        row.iter_mut().zip(&learned.mean).for_each(|(x, m)| *x -= m);
    }
    let rows = even.len() / columns;
    let product = |values: &[f32], map: &Matrix| {
        let mut out = vec![0.0f32; rows * map.rows];
        matmul(MatrixRef::new(values, rows, columns), map.view().t(), &mut out, false);
        out
    };
    let (e, o) = (learned.even.rows, learned.odd.rows);
    let left = product(&even, &learned.even);
    let right = product(odd, &learned.odd);
    let mut out = Vec::with_capacity(rows * (e + o));
    for row in 0..rows {
        out.extend_from_slice(&left[row * e..][..e]);
        out.extend_from_slice(&right[row * o..][..o]);
    }
    out
}

/// The mean of the even parts, and the `numbers` directions of greatest variance among those of the even and of the odd parts, scaled; at least one of each.
fn directions(evens: &Scatter, odds: &Scatter, numbers: usize) -> Result<(Vec<f32>, Matrix, Matrix)> {
    let columns = evens.dim();
    // As if the mirror image of every image had been counted, too: the mean of the odd parts is 0.
    let (mut around_zero, mean) = (odds.covariance(), odds.mean());
    for (row, left) in around_zero.chunks_exact_mut(columns).zip(&mean) {
        row.iter_mut().zip(&mean).for_each(|(x, right)| *x += left * right);
    }
    let (even, odd) = (eigen(evens.covariance(), columns)?, eigen(around_zero, columns)?);
    let mut all: Vec<(f64, bool)> = even.values.iter().map(|v| (*v, false)).collect();
    all.extend(odd.values.iter().map(|v| (*v, true)));
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let floor = FLOOR * all[0].0.max(f64::MIN_POSITIVE);
    let of_odd = all.iter().take(numbers).filter(|(_, odd)| *odd).count().clamp(1, numbers - 1);
    let scaled = |found: &Eigen, count: usize| {
        let rows = found.values.iter().zip(found.vectors.chunks_exact(columns)).take(count);
        let values = rows.flat_map(|(value, vector)| {
            let scale = 1.0 / (value.max(0.0) + floor).sqrt();
            vector.iter().map(move |x| (x * scale) as f32)
        });
        Matrix { rows: count, dim: columns, values: values.collect() }
    };
    let mean = evens.mean().iter().map(|m| *m as f32).collect();
    Ok((mean, scaled(&even, numbers - of_odd), scaled(&odd, of_odd)))
}
