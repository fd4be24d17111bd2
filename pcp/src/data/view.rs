//! Input of a network: batches of pixels, and the clean view.

use super::Image;
use super::augment::Augmenter;
use super::resize::shrink;
use std::sync::Arc;

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
    /// A second view that follows the first in every row: for networks whose embedding has patch features beside it.
    pub squares: Option<Arc<CleanView>>,
}

impl CleanView {
    /// Values of one row: of the view, and of the second one.
    pub fn floats(&self) -> usize {
        self.augmenter.size * self.augmenter.size * 3 + self.squares.as_ref().map_or(0, |squares| squares.floats())
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
        let squares = self.squares.as_ref().map_or(0, |squares| squares.floats());
        let (own, second) = out.split_at_mut(out.len() - squares);
        if let Some(squares) = &self.squares {
            squares.write(image.clone(), second);
        }
        let image = if self.stored > 0 { shrink(image, self.stored) } else { image };
        self.augmenter.clean_view(&image, own);
    }
}
