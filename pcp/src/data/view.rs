//! Input of a network: batches of pixels, and the clean view.

use super::Image;
use super::augment::Augmenter;
use super::resize::shrink;

/// Input of a network: `rows` square images in height, width, channel order, normalised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// How many images.
    pub rows: usize,
    /// `rows * side * side * 3` values.
    pub pixels: Vec<f32>,
}

/// The clean view: the image is shrunk to its stored side, resized, cropped at the centre and normalised.
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
