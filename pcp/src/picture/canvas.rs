//! A raster image on white: antialiased dots, rectangles and bitmap letters.

use super::glyphs::{GLYPHS, HEIGHT, WIDTH};
use image::{ExtendedColorType, ImageEncoder, ImageResult};

/// Scale of the letters, and the distance from one letter to the next.
const ZOOM: usize = 2;
pub const ADVANCE: usize = (WIDTH + 1) * ZOOM;
/// The height of a line of letters.
pub const LINE: usize = HEIGHT * ZOOM;

/// Red, green and blue, pixel by pixel.
pub struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    /// A canvas with the given picture.
    pub fn of(width: usize, height: usize, pixels: Vec<u8>) -> Self {
        Canvas { width, height, pixels }
    }

    /// A filled rectangle, clipped to the canvas.
    pub fn rectangle(&mut self, x: usize, y: usize, width: usize, height: usize, colour: [u8; 3]) {
        for row in y..(y + height).min(self.height) {
            for column in x..(x + width).min(self.width) {
                self.cover(column, row, colour, 1.0);
            }
        }
    }

    pub fn new(width: usize, height: usize) -> Self {
        Canvas { width, height, pixels: vec![255; width * height * 3] }
    }

    /// Blends `colour` into a pixel; does nothing outside the canvas.
    fn cover(&mut self, x: usize, y: usize, colour: [u8; 3], share: f32) {
        if x < self.width && y < self.height {
            let pixel = &mut self.pixels[(y * self.width + x) * 3..][..3];
            for (p, c) in pixel.iter_mut().zip(colour) {
                *p = (f32::from(*p) * (1.0 - share) + f32::from(c) * share).round() as u8;
            }
        }
    }

    /// A disc; pixels at its edge are blended by their approximate coverage.
    pub fn dot(&mut self, x: f32, y: f32, radius: f32, colour: [u8; 3], opacity: f32) {
        let span = |v: f32| (v - radius - 1.0).max(0.0) as usize..=(v + radius + 1.0).max(0.0) as usize;
        for row in span(y) {
            for column in span(x) {
                let distance = (column as f32 - x).hypot(row as f32 - y);
                self.cover(column, row, colour, opacity * (radius + 0.5 - distance).clamp(0.0, 1.0));
            }
        }
    }

    /// Text with its upper left corner at (`x`, `y`).
    pub fn text(&mut self, x: usize, y: usize, text: &str, colour: [u8; 3]) {
        for (i, letter) in text.chars().enumerate() {
            let known = (letter as usize).checked_sub(' ' as usize).and_then(|place| GLYPHS.get(place));
            let glyph = known.unwrap_or(&GLYPHS['?' as usize - ' ' as usize]);
            for at in 0..WIDTH * HEIGHT * ZOOM * ZOOM {
                let (column, row) = (at % (WIDTH * ZOOM), at / (WIDTH * ZOOM));
                let set = glyph[column / ZOOM] >> (row / ZOOM) & 1;
                self.cover(x + i * ADVANCE + column, y + row, colour, f32::from(set));
            }
        }
    }

    /// The picture as a PNG file.
    pub fn png(&self) -> ImageResult<Vec<u8>> {
        let mut out = Vec::new();
        let encoder = image::codecs::png::PngEncoder::new(&mut out);
        encoder.write_image(&self.pixels, self.width as u32, self.height as u32, ExtendedColorType::Rgb8)?;
        Ok(out)
    }
}
