//! From photographs to the network's input: scaled to a short side, mirrored or not, put together in batches.

use super::boxes::{Bounds, mirrored, scaled};
use super::targets::Truth;
use crate::data::Image;
use crate::data::resize::{Region, Resampler};
use crate::model::Frames;
use pcp_core::rng::Key;

/// How much longer the long side may be than the short one is to be: 1000 px where that is 600. Paper: the short side alone is given;
/// the bound is that of Faster R-CNN.
const LONGEST: f64 = 1000.0 / 600.0;
/// Streams of an image: its place in the epoch is 0.
const MIRROR: u32 = 1;

/// How images are prepared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preparation {
    /// The shorter side in pixels, unless the longer one would be too long.
    pub short_side: usize,
    /// Channel means.
    pub mean: [f32; 3],
    /// Channel standard deviations.
    pub std: [f32; 3],
}

/// An image that is ready for the network.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Red, green, blue, pixel by pixel, normalised.
    pub pixels: Vec<f32>,
    /// How much larger it is than the photograph, across and down.
    pub factor: [f32; 2],
}

impl Preparation {
    /// Width and height of the frame of an image.
    pub fn size(&self, width: usize, height: usize) -> (usize, usize) {
        let (short, long) = (width.min(height) as f64, width.max(height) as f64);
        let factor = (self.short_side as f64 / short).min(self.short_side as f64 * LONGEST / long);
        let side = |pixels: usize| ((pixels as f64 * factor).round() as usize).max(1);
        (side(width), side(height))
    }

    /// The frame of an image.
    pub fn frame(&self, image: &Image, mirror: bool) -> Frame {
        let (width, height) = self.size(image.width, image.height);
        let mut pixels = vec![0.0; width * height * 3];
        Resampler::default().interleaved(image, Region::whole(image), width, height, &mut pixels);
        for row in pixels.chunks_exact_mut(width * 3) {
            if mirror {
                for x in 0..width / 2 {
                    for c in 0..3 {
                        row.swap(x * 3 + c, (width - 1 - x) * 3 + c);
                    }
                }
            }
            for pixel in row.chunks_exact_mut(3) {
                for c in 0..3 {
                    pixel[c] = (pixel[c] - self.mean[c]) / self.std[c];
                }
            }
        }
        let factor = [width as f32 / image.width as f32, height as f32 / image.height as f32];
        Frame { width, height, pixels, factor }
    }
}

impl Frame {
    /// Objects of the photograph where they are in the frame.
    pub fn truths(&self, truths: &[Truth], mirror: bool) -> Vec<Truth> {
        let place = |bounds: Bounds| {
            let bounds = scaled(bounds, self.factor);
            if mirror { mirrored(bounds, self.width as f32) } else { bounds }
        };
        truths.iter().map(|t| Truth { bounds: place(t.bounds), ..*t }).collect()
    }

    /// A box of the frame where it is in the photograph.
    pub fn back(&self, bounds: Bounds) -> Bounds {
        scaled(bounds, self.factor.map(|f| 1.0 / f))
    }
}

/// Frames in the upper left corners of a batch, zeros around them.
pub fn stacked(frames: &[Frame]) -> Frames {
    let width = frames.iter().map(|f| f.width).max().unwrap_or(0);
    let height = frames.iter().map(|f| f.height).max().unwrap_or(0);
    let mut pixels = vec![0.0; frames.len() * height * width * 3];
    for (to, frame) in pixels.chunks_mut((height * width * 3).max(1)).zip(frames) {
        for (to, row) in to.chunks_mut(width * 3).zip(frame.pixels.chunks_exact(frame.width * 3)) {
            to[..row.len()].copy_from_slice(row);
        }
    }
    Frames { rows: frames.len(), height, width, pixels }
}

/// Whether the image of that id is mirrored in this epoch.
pub fn is_mirrored(key: Key, id: u64) -> bool {
    key.stream(id, MIRROR).chance(0.5)
}

/// The epoch's batches of rows, by the (id, width, height) of every image: in random order, broad images and upright ones apart,
/// so that little is padding. The last batch of either kind may be smaller.
pub fn batches(key: Key, images: &[(u64, usize, usize)], batch: usize) -> Vec<Vec<usize>> {
    let ids: Vec<u64> = images.iter().map(|i| i.0).collect();
    let mut waiting = [Vec::new(), Vec::new()];
    let mut out = Vec::new();
    for row in key.shuffled(&ids) {
        let kind = &mut waiting[usize::from(images[row].2 > images[row].1)];
        kind.push(row);
        if kind.len() == batch {
            out.push(std::mem::take(kind));
        }
    }
    out.extend(waiting.into_iter().filter(|rest| !rest.is_empty()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_core::rng::Purpose;

    const KEY: Key = Key { purpose: Purpose::Detection, seed: 1, round: 0, epoch: 2 };
    const PREPARATION: Preparation = Preparation { short_side: 12, mean: [0.5; 3], std: [0.25; 3] };

    #[test]
    fn the_short_side_counts_until_the_long_one_is_too_long() {
        assert_eq!(Preparation { short_side: 600, ..PREPARATION }.size(500, 375), (800, 600));
        assert_eq!(Preparation { short_side: 600, ..PREPARATION }.size(100, 500), (200, 1000));
        assert_eq!(PREPARATION.size(1, 900), (1, 20), "never nothing");
    }

    #[test]
    fn a_frame_and_its_boxes_are_mirrored_alike() {
        let pixels = (0..24 * 12).flat_map(|at| [if at % 24 < 6 { 255 } else { 0 }, 128, 64]).collect();
        let image = Image { width: 24, height: 12, pixels };
        let truths = [Truth { class: 1, bounds: [0.0, 0.0, 6.0, 12.0] }];
        for mirror in [false, true] {
            let preparation = Preparation { short_side: 24, ..PREPARATION };
            let frame = preparation.frame(&image, mirror);
            assert_eq!((frame.width, frame.height), (40, 20), "as long as it may be");
            let [left, _, right, bottom] = frame.truths(&truths, mirror)[0].bounds;
            assert!((right - left - 10.0).abs() < 1e-4 && (bottom - 20.0).abs() < 1e-4);
            let red = |x: usize| frame.pixels[(5 * frame.width + x) * 3];
            assert!(red((left + right) as usize / 2) > 1.9 && red(20) < -1.9);
            let back = frame.back(frame.truths(&truths, false)[0].bounds);
            assert!((back[2] - 6.0).abs() < 1e-4);
        }
    }

    #[test]
    fn frames_of_several_sizes_are_stacked_with_zeros_around() {
        let frame = |width: usize, height: usize, v: f32| Frame {
            width,
            height,
            pixels: vec![v; width * height * 3],
            factor: [1.0; 2],
        };
        let found = stacked(&[frame(2, 1, 1.0), frame(1, 3, 2.0)]);
        assert_eq!((found.rows, found.height, found.width), (2, 3, 2));
        let red: Vec<f32> = found.pixels.iter().step_by(3).copied().collect();
        assert_eq!(red, [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0]);
        assert_eq!(stacked(&[]).rows, 0);
    }

    #[test]
    fn batches_hold_every_image_once_and_one_kind_each() {
        let images: Vec<(u64, usize, usize)> =
            (0..23).map(|i| if i % 3 == 0 { (i, 10, 20) } else { (i, 20, 10) }).collect();
        let found = batches(KEY, &images, 4);
        let mut all: Vec<usize> = found.iter().flatten().copied().collect();
        assert_ne!(all, (0..23).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..23).collect::<Vec<_>>());
        assert!(found.iter().all(|b| b.len() <= 4 && b.iter().all(|r| (r % 3 == 0) == (b[0] % 3 == 0))));
        assert_eq!(found.iter().filter(|b| b.len() < 4).count(), 1, "15 broad ones leave a rest, 8 upright ones none");
        assert_eq!(found, batches(KEY, &images, 4));
        assert_ne!(found, batches(Key { epoch: 3, ..KEY }, &images, 4));
        assert!(batches(KEY, &[], 4).is_empty());
        let mirrored = (0..1000).filter(|id| is_mirrored(KEY, *id)).count();
        assert!((400..600).contains(&mirrored), "{mirrored}");
    }
}
