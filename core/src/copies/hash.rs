//! Perceptual hashes: the signs of the lowest frequencies of a grey picture, relative to their median.
//!
//! `F(u, v) = sum over x, y of cos(pi u (2x + 1) / 2n) cos(pi v (2y + 1) / 2n) g(x, y)`, a discrete cosine transform, for u, v < 8 but (0, 0).

use super::{SIDE, Thumbnail};
use std::f32::consts::PI;
use std::sync::OnceLock;

/// Frequencies along an axis.
const LOW: usize = 8;
/// Share of the width, and of the height, that the inner part leaves out on every side.
const MARGIN: f32 = 0.05;
/// Deviations of the grey values, of 255, that count as none.
const FLAT: f32 = 0.5;

/// The hashes of a picture, of its mirror image, of its inner part, and of the mirror image of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashes([u64; 4]);

impl Hashes {
    pub fn of(thumbnail: &Thumbnail) -> Hashes {
        let grey: Vec<f32> = (thumbnail.pixels.chunks_exact(3))
            .map(|p| 0.299 * f32::from(p[0]) + 0.587 * f32::from(p[1]) + 0.114 * f32::from(p[2]))
            .collect();
        let inner = inner(&grey);
        Hashes([hash(&grey), hash(&mirrored(&grey)), hash(&inner), hash(&mirrored(&inner))])
    }

    /// Bits in which one picture, or its mirror image, differs from the other or from its inner part: the least of all.
    pub fn distance(&self, other: &Hashes) -> u32 {
        let [whole, _, inner, turned] = self.0;
        let theirs = other.0;
        let between = |a: u64, b: u64| (a ^ b).count_ones();
        let of_whole = theirs.map(|hash| between(whole, hash));
        let least = of_whole[0].min(of_whole[1]).min(of_whole[2]).min(of_whole[3]);
        least.min(between(inner, theirs[0])).min(between(turned, theirs[0]))
    }
}

fn mirrored(grey: &[f32]) -> Vec<f32> {
    grey.chunks_exact(SIDE).flat_map(|row| row.iter().rev().copied()).collect()
}

/// The inner part, stretched to the whole.
fn inner(grey: &[f32]) -> Vec<f32> {
    let place = |i: usize| {
        let at = MARGIN * SIDE as f32 + (i as f32 + 0.5) * (1.0 - 2.0 * MARGIN) - 0.5;
        (at as usize, at.fract())
    };
    let value = |i: usize| {
        let ((y, down), (x, right)) = (place(i / SIDE), place(i % SIDE));
        let along = |row: usize| grey[row * SIDE + x] * (1.0 - right) + grey[row * SIDE + x + 1] * right;
        along(y) * (1.0 - down) + along(y + 1) * down
    };
    (0..SIDE * SIDE).map(value).collect()
}

/// `cos(pi u (2x + 1) / 2n)`, a row per frequency.
fn cosines() -> &'static [[f32; SIDE]; LOW] {
    static COSINES: OnceLock<[[f32; SIDE]; LOW]> = OnceLock::new();
    COSINES.get_or_init(|| {
        std::array::from_fn(|u| std::array::from_fn(|x| (PI * (u * (2 * x + 1)) as f32 / (2 * SIDE) as f32).cos()))
    })
}

fn hash(grey: &[f32]) -> u64 {
    let mean = grey.iter().sum::<f32>() / grey.len() as f32;
    // A picture of one colour has no frequencies: rounding must not make some up.
    if grey.iter().all(|g| (g - mean).abs() < FLAT) {
        return 0;
    }
    let basis = cosines();
    let mut along = [[0.0f32; LOW]; SIDE];
    for (sums, row) in along.iter_mut().zip(grey.chunks_exact(SIDE)) {
        for (sum, cosine) in sums.iter_mut().zip(basis) {
            *sum = row.iter().zip(cosine).map(|(g, c)| (g - mean) * c).sum();
        }
    }
    let frequency = |i: usize| basis[i / LOW].iter().zip(&along).map(|(c, sums)| c * sums[i % LOW]).sum::<f32>();
    let found: Vec<f32> = (1..LOW * LOW).map(frequency).collect();
    let mut sorted = found.clone();
    sorted.sort_unstable_by(f32::total_cmp);
    let median = sorted[sorted.len() / 2];
    found.iter().enumerate().fold(0, |bits, (i, f)| bits | (u64::from(*f > median) << i))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transform by its definition, in f64.
    fn slow(grey: &[f32]) -> u64 {
        let n = SIDE as f64;
        let angle = |u: usize, x: usize| (std::f64::consts::PI * u as f64 * (2.0 * x as f64 + 1.0) / (2.0 * n)).cos();
        let one = |i: usize| {
            let (v, u) = (i / LOW, i % LOW);
            let pixels = (0..SIDE * SIDE).map(|p| f64::from(grey[p]) * angle(u, p % SIDE) * angle(v, p / SIDE));
            pixels.sum::<f64>()
        };
        let found: Vec<f64> = (1..LOW * LOW).map(one).collect();
        let mut sorted = found.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        (0..found.len()).fold(0, |bits, i| bits | (u64::from(found[i] > sorted[31]) << i))
    }

    #[test]
    fn hashes_are_those_of_the_definition() {
        let grey: Vec<f32> = (0..SIDE * SIDE).map(|i| ((i * i * 7 + i / 5) % 251) as f32).collect();
        assert_eq!(hash(&grey), slow(&grey));
        assert_eq!(hash(&grey).count_ones(), 31, "half are above the median");
        assert_eq!(hash(&vec![77.0; SIDE * SIDE]), 0);
    }

    #[test]
    fn a_mirror_image_and_an_inner_part_are_near() {
        let pixel = |x: usize, y: usize| {
            (128.0 + 60.0 * (x as f32 / 7.0).sin() + 50.0 * ((x + 2 * y) as f32 / 11.0).cos()) as u8
        };
        let of = |pixels: Vec<u8>| Thumbnail { pixels, small: false };
        let picture = of((0..SIDE * SIDE).flat_map(|i| [pixel(i % SIDE, i / SIDE); 3]).collect());
        let turned = of((0..SIDE * SIDE).flat_map(|i| [pixel(SIDE - 1 - i % SIDE, i / SIDE); 3]).collect());
        let grey: Vec<f32> = picture.pixels.chunks(3).map(|p| f32::from(p[0])).collect();
        let part = of(inner(&grey).iter().flat_map(|g| [g.round() as u8; 3]).collect());
        let hashes = [picture, turned, part].map(|t| Hashes::of(&t));
        assert_eq!(hashes[0].distance(&hashes[1]), 0);
        assert!(hashes[0].distance(&hashes[2]) <= 2 && hashes[2].distance(&hashes[1]) <= 2);
    }
}
