//! Images encoded by their patches: products with all filters, thresholded and averaged over the cells of a grid.

use super::{Images, Patches, extract};
use crate::cancel::Cancel;
use crate::dots::{Visit, WIDTH, products};
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
            scratch.encode(patches, out);
            Ok::<(), crate::error::Error>(())
        },
    )?;
    Ok(Matrix { rows: rows.len(), dim, values })
}

/// Memory for one image.
struct Scratch {
    image: Vec<f32>,
    /// Patches, contrast normalised, with a 1 behind each for the filter's constant; line by line.
    rows: Vec<f32>,
    order: Vec<u32>,
    /// `[cells^2, 2, filters filled up to WIDTH]`.
    sums: Vec<f32>,
}

impl Scratch {
    fn new(patches: &Patches) -> Scratch {
        let settings = &patches.settings;
        let positions = settings.positions(patches.side);
        Scratch {
            image: vec![0.0; patches.side * patches.side * 3],
            rows: vec![1.0; positions * positions * (settings.dim() + 1)],
            order: (0..(positions * positions) as u32).collect(),
            sums: vec![0.0; settings.cells * settings.cells * 2 * (2 * settings.centroids).next_multiple_of(WIDTH)],
        }
    }

    fn encode(&mut self, patches: &Patches, out: &mut [f32]) {
        let settings = &patches.settings;
        let cells = settings.cells;
        let (patch, stride, k) = (settings.patch, settings.stride, settings.centroids);
        let (positions, padded, d) =
            (settings.positions(patches.side), (2 * k).next_multiple_of(WIDTH), settings.dim());
        for (at, row) in self.rows.chunks_exact_mut(d + 1).enumerate() {
            let corner = (at / positions * stride, at % positions * stride);
            extract::copy(&self.image, patches.side, patch, corner, &mut row[..d]);
            extract::normalise_contrast(&mut row[..d]);
        }
        self.sums.fill(0.0);
        let mut visit = Above { threshold: settings.threshold, padded, positions, cells, sums: &mut self.sums };
        products(&self.rows, &self.order, &patches.packed, 0..padded / WIDTH, &mut visit);
        let mut counts = vec![0usize; cells];
        (0..positions).for_each(|p| counts[cell(p, positions, cells)] += 1);
        for (c, out) in out.chunks_exact_mut(2 * k).enumerate() {
            let (y, x) = (c / cells, c % cells);
            // The mirror image of the cell may be larger or smaller by one.
            let (own, mirror) = (y * cells + x, y * cells + cells - 1 - x);
            let [own_scale, mirror_scale] = [x, cells - 1 - x].map(|x| 0.5 / (counts[y] * counts[x]) as f32);
            for (sign, out) in out.chunks_exact_mut(k).enumerate() {
                let own = &self.sums[(own * 2 + sign) * padded..][..k];
                let mirror = &self.sums[(mirror * 2 + sign) * padded + k..][..k];
                out.iter_mut().zip(own).zip(mirror).for_each(|((o, s), m)| *o = s * own_scale + m * mirror_scale);
            }
        }
    }
}

/// The cell that position `p` of `positions` belongs to.
fn cell(p: usize, positions: usize, cells: usize) -> usize {
    p * cells / positions
}

/// Adds up what is above the threshold, on both sides, per cell.
struct Above<'a> {
    threshold: f32,
    padded: usize,
    positions: usize,
    cells: usize,
    sums: &'a mut [f32],
}

impl Visit for Above<'_> {
    #[inline(always)]
    fn visit(&mut self, row: usize, first: usize, products: &[f32; WIDTH]) {
        let (y, x) = (
            cell(row / self.positions, self.positions, self.cells),
            cell(row % self.positions, self.positions, self.cells),
        );
        let from = (y * self.cells + x) * 2 * self.padded + first;
        let (positive, negative) = self.sums[from..].split_at_mut(self.padded);
        for i in 0..WIDTH {
            positive[i] += (products[i] - self.threshold).max(0.0);
            negative[i] += (-products[i] - self.threshold).max(0.0);
        }
    }
}
