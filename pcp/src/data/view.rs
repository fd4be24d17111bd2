//! Images as a network takes them: batches of pixels, the clean view, and the sides that the settings ask for.

use super::Image;
use super::augment::Augmenter;
use super::resize::shrink;
use crate::config::{Arch, Config};

/// Images as a network takes them: `rows` squares in height, width, channel order, normalised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// How many images.
    pub rows: usize,
    /// `rows * side * side * 3` values.
    pub pixels: Vec<f32>,
}

/// The view without randomness: the image shrunk to its stored side, resized, cut from the centre and normalised.
#[derive(Clone, Debug)]
pub struct CleanView {
    /// Side, margin and normalisation.
    pub augmenter: Augmenter,
    /// Short side to which larger photographs are shrunk first; 0 keeps them.
    pub stored: usize,
}

impl CleanView {
    /// Values of one view.
    pub fn floats(&self) -> usize {
        self.augmenter.size * self.augmenter.size * 3
    }

    /// The view of one image.
    pub fn pixels(&self, image: Image) -> Vec<f32> {
        let mut pixels = vec![0.0; self.floats()];
        self.write(image, &mut pixels);
        pixels
    }

    /// The views of `images`.
    pub fn batch(&self, images: impl IntoIterator<Item = Image>) -> Batch {
        let mut batch = Batch::default();
        for image in images {
            batch.pixels.extend(self.pixels(image));
            batch.rows += 1;
        }
        batch
    }

    /// Writes the view of `image` to `out`.
    pub(super) fn write(&self, image: Image, out: &mut [f32]) {
        let image = if self.stored > 0 { shrink(image, self.stored) } else { image };
        self.augmenter.clean_view(&image, out);
    }
}

/// The side of the images that `config` trains on.
pub fn image_side(config: &Config) -> usize {
    config.data.size.or(match (config.network.arch, config.data.source.as_str()) {
        (Arch::Alexnet224, _) => 224,
        (_, "bundled" | "cifar10" | "cifar100") => 32,
        _ => 64,
    })
}

/// The short side to which `config` shrinks photographs when they are read; 0 keeps them as they are.
pub fn stored_side(config: &Config) -> usize {
    config.data.stored.or(usual_stored_side(image_side(config)))
}

/// The stored side for images of `size` px, where none is set: 256 for 224.
pub fn usual_stored_side(size: usize) -> usize {
    (size as f64 * 256.0 / 224.0).round() as usize
}
