//! Patches out of images, with their contrast normalised.

use super::{Images, PatchSettings};
use crate::cancel::Cancel;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::rng::{Key, Purpose};
use rayon::prelude::*;

/// Added to the variance of a patch, so that flat ones are not blown up: ten grey levels, squared.
pub const FLAT: f32 = 10.0 / (255.0 * 255.0);
/// Patches that are taken from one image at the least: fewer images are opened.
const PER_IMAGE: usize = 4;

/// Patches at random places of random images at a level, contrast normalised, a row each.
pub(super) fn sampled(images: &dyn Images, settings: &PatchSettings, level: usize, cancel: &Cancel) -> Result<Matrix> {
    let (n, whole, patch, dim) = (images.len(), images.side(), settings.patch, settings.dim());
    let side = settings.level(whole, level).side;
    let key = Key { purpose: Purpose::Patches, seed: settings.seed, round: 0, epoch: level as u32 };
    let each = settings.samples.div_ceil(n).max(PER_IMAGE);
    let opened = settings.samples.div_ceil(each).min(n);
    let mut chosen: Vec<usize> = if opened == n {
        (0..n).collect()
    } else {
        key.shuffled(&(0..n as u64).collect::<Vec<_>>()).into_iter().take(opened).collect()
    };
    chosen.sort_unstable();
    let mut values = vec![0.0f32; opened * each * dim];
    let places = (side - patch + 1) as u64;
    values.par_chunks_mut(each * dim).zip(&chosen).try_for_each_init(
        || vec![0.0f32; whole * whole * 3],
        |image, (out, &i)| {
            cancel.check()?;
            images.read(i, image)?;
            (0..level).for_each(|l| halve(image, whole >> l));
            let mut random = key.stream(i as u64, 1);
            for row in out.chunks_exact_mut(dim) {
                let (y, x) = (random.below(places) as usize, random.below(places) as usize);
                copy(image, side, patch, (y, x), row);
                normalise_contrast(row);
            }
            Ok::<(), crate::error::Error>(())
        },
    )?;
    values.truncate(settings.samples.min(opened * each) * dim);
    Ok(Matrix::new(dim, values))
}

/// Halves a square image in place: every pixel becomes the mean of four. Of an odd side the last row and column are left out.
pub(super) fn halve(image: &mut [f32], side: usize) {
    let half = side / 2;
    for (y, x, channel) in (0..half * half * 3).map(|i| (i / (half * 3), i / 3 % half, i % 3)) {
        let at = |dy: usize, dx: usize| image[((2 * y + dy) * side + 2 * x + dx) * 3 + channel];
        image[(y * half + x) * 3 + channel] = 0.25 * (at(0, 0) + at(0, 1) + at(1, 0) + at(1, 1));
    }
}

/// Copies the patch whose upper left corner is at `(y, x)`, `[patch, patch, 3]`.
pub(super) fn copy(image: &[f32], side: usize, patch: usize, (y, x): (usize, usize), out: &mut [f32]) {
    for (dy, line) in out.chunks_exact_mut(patch * 3).enumerate() {
        let from = ((y + dy) * side + x) * 3;
        line.copy_from_slice(&image[from..from + patch * 3]);
    }
}

/// `(p - mean(p)) / sqrt(var(p) + 10 / 255^2)`.
pub(super) fn normalise_contrast(patch: &mut [f32]) {
    let n = patch.len() as f32;
    let mean = patch.iter().sum::<f32>() / n;
    let variance = patch.iter().map(|p| (p - mean) * (p - mean)).sum::<f32>() / (n - 1.0);
    let scale = 1.0 / (variance + FLAT).sqrt();
    patch.iter_mut().for_each(|p| *p = (*p - mean) * scale);
}

/// The mirror image of a patch `[patch, patch, 3]`.
pub(super) fn mirrored(from: &[f32], patch: usize, out: &mut [f32]) {
    for (line, out) in from.chunks_exact(patch * 3).zip(out.chunks_exact_mut(patch * 3)) {
        for (pixel, out) in line.chunks_exact(3).zip(out.chunks_exact_mut(3).rev()) {
            out.copy_from_slice(pixel);
        }
    }
}
