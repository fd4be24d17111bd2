//! A photograph with boxes and their captions.

use super::canvas::{ADVANCE, Canvas, LINE};
use super::colour;
use pcp_core::error::{Error, Result};

/// Width of the lines in pixels.
const PEN: usize = 2;

/// A box with its caption.
pub struct Boxed {
    /// Left, top, right, bottom.
    pub bounds: [f32; 4],
    /// The caption.
    pub text: String,
    /// Its group and the number of groups, for its colour.
    pub group: (usize, usize),
}

/// The picture of `width` x `height` pixels (red, green, blue) with the boxes drawn on it, the first on top, as a PNG file.
pub fn boxed(width: usize, height: usize, pixels: Vec<u8>, boxes: &[Boxed]) -> Result<Vec<u8>> {
    let mut canvas = Canvas::of(width, height, pixels);
    for Boxed { bounds, text, group } in boxes.iter().rev() {
        let ink = colour(group.0, group.1);
        let at = |v: f32, most: usize| (v.max(0.0).round() as usize).min(most);
        let (left, top) = (at(bounds[0], width), at(bounds[1], height));
        let (right, bottom) = (at(bounds[2], width).max(left), at(bounds[3], height).max(top));
        let (w, h) = (right - left, bottom - top);
        canvas.rectangle(left, top, w, PEN, ink);
        canvas.rectangle(left, bottom.saturating_sub(PEN), w, PEN, ink);
        canvas.rectangle(left, top, PEN, h, ink);
        canvas.rectangle(right.saturating_sub(PEN), top, PEN, h, ink);
        // The caption is above the box, or inside it at the top edge of the picture.
        let line = LINE + 2 * PEN;
        let y = if top >= line { top - line } else { top };
        let long = text.chars().count() * ADVANCE + 2 * PEN;
        let x = left.min(width.saturating_sub(long));
        canvas.rectangle(x, y, long, line, ink);
        let light = ink.iter().map(|c| u32::from(*c)).sum::<u32>() > 3 * 140;
        canvas.text(x + PEN, y + PEN, text, if light { [0; 3] } else { [255; 3] });
    }
    canvas.png().map_err(|e| Error::file(format!("the picture: {e}"), "please report this"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_drawn_where_they_are_and_never_outside() {
        let grey = vec![100u8; 60 * 40 * 3];
        let box_at = |bounds| Boxed { bounds, text: "cat 0.9".into(), group: (0, 2) };
        let png = boxed(60, 40, grey.clone(), &[box_at([10.0, 25.0, 50.0, 38.0])]).unwrap();
        let image = image::load_from_memory(&png).unwrap().into_rgb8();
        let at = |x, y| image.get_pixel(x, y).0;
        assert_ne!(at(10, 30), [100; 3], "the left side");
        assert_eq!(at(30, 31), [100; 3], "the middle stays");
        assert_ne!(at(30, 37), [100; 3], "the lower side");
        assert_eq!(at(5, 2), [100; 3]);
        for bounds in [[-9.0, -9.0, 900.0, 900.0], [70.0, 50.0, 80.0, 60.0], [f32::NAN; 4]] {
            boxed(60, 40, grey.clone(), &[box_at(bounds)]).unwrap();
        }
    }
}
