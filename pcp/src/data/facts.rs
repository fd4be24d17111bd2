//! What can be measured in every picture of a collection, each decoded once.

use super::{Image, Pictures, Size, decode, resize};
use pcp_core::copies::{SIDE, Thumbnail};
use pcp_core::quality::Quality;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Short side, in pixels, at which pictures are measured; smaller ones stay as they are.
pub const MEASURED: usize = 256;

/// A copy is about as sharp as the sharpest one if it shows at least this share of its detail.
const AS_SHARP: f32 = 0.8;

/// What is known about a picture.
#[derive(Clone, Debug)]
pub struct PictureFacts {
    /// Width and height, as it is looked at.
    pub size: Size,
    /// Size of its file; `None` where it has none.
    pub bytes: Option<u64>,
    /// SHA-256 of its file, or of its pixels where it has none.
    pub digest: [u8; 32],
    /// The picture as a small square.
    pub thumbnail: Thumbnail,
    /// Short side at which its quality was measured.
    pub side: usize,
    /// Its properties.
    pub quality: Quality,
}

impl PictureFacts {
    /// Of a picture of `size`, whose file has `bytes`; `image` may have been shrunk, to [`MEASURED`] at the least.
    pub fn new(image: Image, size: Size, bytes: Option<u64>, digest: [u8; 32]) -> PictureFacts {
        let small = resize::shrink(image, MEASURED);
        let quality = Quality::of(&small.pixels, small.width);
        let side = small.width.min(small.height);
        let pixels = resize::resize(&small, SIDE, SIDE).pixels;
        let thumbnail = Thumbnail { pixels, small: size.width.min(size.height) < SIDE };
        PictureFacts { size, bytes, digest, thumbnail, side, quality }
    }

    /// Width over height.
    pub fn shape(&self) -> f32 {
        self.size.width as f32 / self.size.height.max(1) as f32
    }

    /// Pixels of the whole picture.
    pub fn pixels(&self) -> usize {
        self.size.width * self.size.height
    }

    /// How many edges its short side can show beside each other: less than its pixels when it is blurred.
    pub fn detail(&self) -> f32 {
        // An edge of a sharp picture is about 0.6 pixels wide.
        self.side as f32 / self.quality.blur.map_or(1.0, |blur| (blur / 0.6).max(1.0))
    }
}

/// The best of several copies: of those that are about as sharp as the sharpest, the one with the most pixels, then the largest file, then the
/// first.
pub fn best(copies: &[&PictureFacts]) -> usize {
    let sharpest = copies.iter().map(|facts| facts.detail()).fold(0.0, f32::max);
    let worth = |at: usize| (copies[at].pixels(), copies[at].bytes);
    let sharp = (0..copies.len()).filter(|at| copies[*at].detail() >= AS_SHARP * sharpest);
    sharp.reduce(|best, at| if worth(at) > worth(best) { at } else { best }).unwrap_or(0)
}

/// The facts about every picture, or why it cannot be read; `tick` gets the number of pictures done.
pub fn measure(pictures: &Pictures, tick: &(dyn Fn(usize) + Sync)) -> Vec<Result<PictureFacts, String>> {
    let done = AtomicUsize::new(0);
    let facts = |at: usize| {
        let found = facts(pictures, at);
        tick(done.fetch_add(1, Ordering::Relaxed) + 1);
        found
    };
    (0..pictures.len()).into_par_iter().with_max_len(8).map(facts).collect()
}

fn facts(pictures: &Pictures, at: usize) -> Result<PictureFacts, String> {
    match pictures {
        Pictures::Files(files) => {
            let bytes = decode::contents(&files[at].path)?;
            let digest = Sha256::digest(&bytes).into();
            // Large photographs are decoded at a part of their size.
            let image = decode::shrunk_bytes(&bytes, MEASURED)?;
            let (width, height) = decode::size(&bytes)?;
            Ok(PictureFacts::new(image, Size { width, height }, Some(bytes.len() as u64), digest))
        }
        Pictures::Loaded(_) => {
            let image = pictures.image(at)?;
            let digest = Sha256::digest(&image.pixels).into();
            let size = Size { width: image.width, height: image.height };
            Ok(PictureFacts::new(image, size, None, digest))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::folder::list;
    use std::sync::Arc;

    #[test]
    fn files_are_measured_and_broken_ones_named() {
        let dir = tempfile::tempdir().unwrap();
        let wave = |x: u32, y: u32| image::Rgb([(x * 3 + y) as u8, (128 + x / 2 * (y % 3)) as u8, (y * 5) as u8]);
        image::RgbImage::from_fn(600, 300, wave).save(dir.path().join("a.png")).unwrap();
        std::fs::copy(dir.path().join("a.png"), dir.path().join("b.png")).unwrap();
        std::fs::write(dir.path().join("c.png"), "no").unwrap();
        image::RgbImage::from_pixel(1, 1, image::Rgb([7; 3])).save(dir.path().join("d.png")).unwrap();
        let pictures = Pictures::Files(Arc::new(list(dir.path()).unwrap()));
        let told = AtomicUsize::new(0);
        let found = measure(&pictures, &|done| {
            told.fetch_max(done, Ordering::Relaxed);
        });
        assert_eq!((found.len(), told.into_inner()), (4, 4));
        let (a, b) = (found[0].as_ref().unwrap(), found[1].as_ref().unwrap());
        assert_eq!((a.size, a.side, a.pixels()), (Size { width: 600, height: 300 }, MEASURED, 180_000));
        assert_eq!((a.digest, &a.thumbnail, a.bytes), (b.digest, &b.thumbnail, b.bytes));
        assert!(found[2].as_ref().unwrap_err().contains("not an image"));
        let one = found[3].as_ref().unwrap();
        assert_eq!((one.side, one.detail(), one.thumbnail.pixels[0]), (1, 1.0, 7));
    }

    #[test]
    fn the_best_copy_is_the_largest_of_the_sharp_ones() {
        let facts = |side: usize, blur: Option<f32>, bytes: u64| {
            let flat = Image { width: 4, height: 4, pixels: vec![9; 48] };
            let mut facts = PictureFacts::new(flat, Size { width: side, height: side }, Some(bytes), [0; 32]);
            (facts.side, facts.quality.blur) = (side.min(MEASURED), blur);
            facts
        };
        let (sharp, enlarged, smaller) = (facts(300, None, 10), facts(600, Some(1.5), 99), facts(250, None, 99));
        assert_eq!(best(&[&enlarged, &smaller, &sharp]), 2, "pixels that show nothing do not count");
        let again = facts(300, None, 11);
        assert_eq!((best(&[&sharp, &again]), best(&[&sharp, &sharp]), best(&[&sharp])), (1, 0, 0));
    }
}
