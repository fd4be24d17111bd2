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
    let dim = patches.features();
    let mut values = vec![0.0f32; rows.len() * dim];
    values.par_chunks_mut(dim).zip(rows).try_for_each_init(
        || Scratch::new(patches),
        |scratch, (out, &i)| {
            cancel.check()?;
            scratch.read(images, i)?;
            let (levels, second) = out.split_at_mut(patches.settings.levels * patches.settings.level_features());
            for (level, out) in levels.chunks_exact_mut(patches.settings.level_features()).enumerate() {
                scratch.sum(patches, level);
                scratch.code(patches, level, out);
                if let (0, Some(layer)) = (level, &patches.second) {
                    layer.encode(patches, scratch, second);
                }
            }
            Ok::<(), crate::error::Error>(())
        },
    )?;
    Ok(Matrix { rows: rows.len(), dim, values })
}

/// The first of `of` positions that belongs to `part` of `parts` along a side: position p belongs to part `p * parts / of`.
pub(super) fn first(part: usize, parts: usize, of: usize) -> usize {
    (part * of).div_ceil(parts)
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
pub(super) struct Scratch {
    image: Vec<f32>,
    /// One patch.
    patch: Vec<f32>,
    /// Patches of one cell, contrast normalised and split; behind the even part, a 1 for the filter's constant.
    rows: Vec<f32>,
    /// The area of every row, counted within the cell.
    area_of: Vec<u32>,
    /// `[cells^2, areas of a cell, 4, filters filled up to WIDTH]`: own and positive, own and negative, mirrored and positive, mirrored and negative.
    sums: Vec<f32>,
    /// `[cells^2, 4, filters filled up to WIDTH]`: the sums of the areas of a cell.
    cells: Vec<f32>,
}

impl Scratch {
    pub fn new(patches: &Patches) -> Scratch {
        let settings = &patches.settings;
        let strip = 4 * settings.centroids.next_multiple_of(WIDTH);
        let areas = (0..settings.levels).map(|level| patches.areas(level)).max().unwrap_or(1);
        Scratch {
            image: vec![0.0; patches.side * patches.side * 3],
            patch: vec![0.0; settings.dim()],
            rows: Vec::new(),
            area_of: Vec::new(),
            sums: vec![0.0; areas * areas * strip],
            cells: vec![0.0; settings.cells * settings.cells * strip],
        }
    }

    /// Opens image `i`.
    pub fn read(&mut self, images: &dyn Images, i: usize) -> Result<()> {
        assert_eq!(
            images.side() * images.side() * 3,
            self.image.len(),
            "images of another size than the patches were learned from"
        );
        images.read(i, &mut self.image)
    }

    /// Adds up, area by area and cell by cell, what the products at `level` have above the threshold. Levels come in order, from 0.
    pub fn sum(&mut self, patches: &Patches, level: usize) {
        if level > 0 {
            extract::halve(&mut self.image, patches.side >> (level - 1));
        }
        let settings = &patches.settings;
        let (cells, areas) = (settings.cells, patches.areas(level));
        let Level { side, stride, positions } = settings.level(patches.side, level);
        let padded = settings.centroids.next_multiple_of(WIDTH);
        // Areas of a cell along a side.
        let within = areas / cells;
        let strip = within * within * 4 * padded;
        self.sums[..cells * cells * strip].fill(0.0);
        self.cells.fill(0.0);
        for cell in 0..cells * cells {
            self.rows.clear();
            self.area_of.clear();
            for area in 0..within * within {
                let y = cell / cells * within + area / within;
                let x = cell % cells * within + area % within;
                for row in first(y, areas, positions)..first(y + 1, areas, positions) {
                    for column in first(x, areas, positions)..first(x + 1, areas, positions) {
                        extract::copy(
                            &self.image,
                            side,
                            settings.patch,
                            (row * stride, column * stride),
                            &mut self.patch,
                        );
                        extract::normalise_contrast(&mut self.patch);
                        push(&self.patch, settings.patch, &mut self.rows);
                        self.area_of.push(area as u32);
                    }
                }
            }
            let sums = &mut self.sums[cell * strip..][..strip];
            let mut above = Above::new(settings.threshold, padded, sums, &self.area_of);
            products(&self.rows, &patches.packed[level], &mut above);
            let total = &mut self.cells[cell * 4 * padded..][..4 * padded];
            for area in sums.chunks_exact(4 * padded) {
                total.iter_mut().zip(area).for_each(|(t, s)| *t += s);
            }
        }
    }

    /// The code of the level that was summed last.
    pub fn code(&self, patches: &Patches, level: usize, out: &mut [f32]) {
        let settings = &patches.settings;
        let (cells, k) = (settings.cells, settings.centroids);
        let positions = settings.level(patches.side, level).positions;
        CellSums { sums: &self.cells, padded: k.next_multiple_of(WIDTH), k, cells, positions }.code(out);
    }

    /// The sums of an area of level 0, the distance between their four parts, and the patches of the area.
    pub fn area(&self, patches: &Patches, y: usize, x: usize) -> (&[f32], usize, usize) {
        let (cells, areas) = (patches.settings.cells, patches.areas(0));
        let (within, positions) = (areas / cells, patches.settings.level(patches.side, 0).positions);
        let padded = patches.settings.centroids.next_multiple_of(WIDTH);
        let cell = y / within * cells + x / within;
        let at = cell * within * within + y % within * within + x % within;
        let count = |area: usize| first(area + 1, areas, positions) - first(area, areas, positions);
        (&self.sums[at * 4 * padded..][..4 * padded], padded, count(y) * count(x))
    }
}

/// Sums over the cells of a grid, `[cells^2, 4, padded]`, of `positions` patches a side.
pub(super) struct CellSums<'a> {
    pub sums: &'a [f32],
    pub padded: usize,
    pub k: usize,
    pub cells: usize,
    pub positions: usize,
}

impl CellSums<'_> {
    /// The code: the mean of an image and its mirror image, for every cell the positive sides of all centroids, then the negative.
    pub fn code(&self, out: &mut [f32]) {
        let CellSums { sums, padded, k, cells, positions } = *self;
        let count = |cell: usize| first(cell + 1, cells, positions) - first(cell, cells, positions);
        for (c, out) in out.chunks_exact_mut(2 * k).enumerate() {
            let (y, x) = (c / cells, c % cells);
            // The mirror image of the cell may be larger or smaller by one.
            let (own, mirror) = (y * cells + x, y * cells + cells - 1 - x);
            let [own_scale, mirror_scale] = [x, cells - 1 - x].map(|x| 0.5 / (count(y) * count(x)) as f32);
            for (sign, out) in out.chunks_exact_mut(k).enumerate() {
                let own = &sums[(own * 4 + sign) * padded..][..k];
                let mirror = &sums[(mirror * 4 + 2 + sign) * padded..][..k];
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

/// Adds up what is above the threshold, on both sides, for filters and their mirror images: `[areas, 4, padded]`.
pub(super) struct Above<'a> {
    threshold: f32,
    padded: usize,
    sums: &'a mut [f32],
    /// The area of every row, in order; with none, all rows are of one area.
    area_of: &'a [u32],
    /// The panel that is visited, and its next row.
    panel: usize,
    row: usize,
}

impl<'a> Above<'a> {
    pub fn new(threshold: f32, padded: usize, sums: &'a mut [f32], area_of: &'a [u32]) -> Above<'a> {
        Above { threshold, padded, sums, area_of, panel: 0, row: 0 }
    }

    #[inline(always)]
    fn add(&mut self, first: usize, area: usize, sums: &[[f32; WIDTH]; 4]) {
        let of_area = &mut self.sums[area * 4 * self.padded..][..4 * self.padded];
        for (total, sums) in of_area.chunks_exact_mut(self.padded).zip(sums) {
            total[first..first + WIDTH].iter_mut().zip(sums).for_each(|(t, s)| *t += s);
        }
    }
}

impl VisitPairs for Above<'_> {
    #[inline(always)]
    fn visit(&mut self, first: usize, even: &[[f32; WIDTH]], odd: &[[f32; WIDTH]]) {
        if first != self.panel {
            (self.panel, self.row) = (first, 0);
        }
        let mut sums = [[0.0f32; WIDTH]; 4];
        let mut area = self.area_of.get(self.row).copied().unwrap_or(0);
        for (even, odd) in even.iter().zip(odd) {
            let next = self.area_of.get(self.row).copied().unwrap_or(0);
            if next != area {
                self.add(first, area as usize, &sums);
                (sums, area) = ([[0.0f32; WIDTH]; 4], next);
            }
            self.row += 1;
            for i in 0..WIDTH {
                let (own, mirror) = (even[i] + odd[i], even[i] - odd[i]);
                sums[0][i] += (own - self.threshold).max(0.0);
                sums[1][i] += (-own - self.threshold).max(0.0);
                sums[2][i] += (mirror - self.threshold).max(0.0);
                sums[3][i] += (-mirror - self.threshold).max(0.0);
            }
        }
        self.add(first, area as usize, &sums);
    }
}
