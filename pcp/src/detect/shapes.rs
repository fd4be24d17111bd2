//! A made-up detection set in VOC's layout: discs, squares and triangles on noise. It is learned in seconds.

use crate::data::Image;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder, make_folder_atomic, require_empty, write_bytes};
use pcp_core::rng::{Key, Purpose, Stream};
use std::path::Path;

const NAMES: [&str; 3] = ["disc", "square", "triangle"];

/// Size of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Images to learn from.
    pub train: usize,
    /// Images to test on.
    pub test: usize,
    /// Their shorter side in pixels; at least 48.
    pub side: usize,
    /// Everything random follows from it.
    pub seed: u64,
}

/// A shape in an image.
struct Shape {
    class: usize,
    left: usize,
    top: usize,
    size: usize,
}

impl Shape {
    fn covers(&self, x: usize, y: usize) -> bool {
        if x < self.left || y < self.top || x >= self.left + self.size || y >= self.top + self.size {
            return false;
        }
        let half = self.size as f32 / 2.0;
        let (dx, dy) = ((x - self.left) as f32 + 0.5 - half, (y - self.top) as f32 + 0.5);
        match self.class {
            0 => dx.hypot(dy - half) <= half,
            1 => true,
            _ => dx.abs() <= dy / 2.0,
        }
    }

    fn overlaps(&self, other: &Shape) -> bool {
        let apart = |a: usize, b: usize, sa: usize, sb: usize| a + sa < b || b + sb < a;
        !apart(self.left, other.left, self.size, other.size) && !apart(self.top, other.top, self.size, other.size)
    }
}

/// The classes.
pub fn classes() -> Vec<String> {
    NAMES.map(String::from).to_vec()
}

/// Writes the folder `root`, which is new or empty.
pub fn write(root: &Path, request: &Request, stop: &Cancel) -> Result<()> {
    if !(48..=4096).contains(&request.side) {
        return Err(Error::usage(format!("`side` is {}", request.side), "give a number from 48 to 4096"));
    }
    if ![request.train, request.test].iter().all(|n| (1..=1_000_000).contains(n)) {
        let message = format!("`train` is {}, `test` is {}", request.train, request.test);
        return Err(Error::usage(message, "give numbers from 1 to 1,000,000"));
    }
    require_empty(root)?;
    make_folder_atomic(root, |folder| {
        for part in ["Annotations", "JPEGImages", "ImageSets/Main"] {
            make_folder(&folder.join(part))?;
        }
        let mut sets = [String::new(), String::new()];
        for index in 0..request.train + request.test {
            stop.check()?;
            let name = format!("{index:06}");
            let (image, shapes) = drawn(index as u64, request);
            write_bytes(&folder.join(format!("JPEGImages/{name}.png")), &png(&image)?)?;
            write_bytes(&folder.join(format!("Annotations/{name}.xml")), xml(&image, &shapes).as_bytes())?;
            sets[usize::from(index >= request.train)] += &format!("{name}\n");
        }
        for (set, text) in ["trainval", "test"].iter().zip(sets) {
            write_bytes(&folder.join(format!("ImageSets/Main/{set}.txt")), text.as_bytes())?;
        }
        Ok(())
    })
}

fn drawn(index: u64, request: &Request) -> (Image, Vec<Shape>) {
    let key = Key { purpose: Purpose::Synthetic, seed: request.seed, round: 0, epoch: 0 };
    let mut stream = key.stream(index, 0);
    let long = request.side + stream.below(request.side as u64 / 3) as usize;
    // Some are upright, so that batches have both kinds.
    let (width, height) = if stream.chance(0.3) { (request.side, long) } else { (long, request.side) };
    let mut shapes: Vec<Shape> = Vec::new();
    for _ in 0..1 + stream.below(3) {
        let size = request.side / 4 + stream.below(request.side as u64 / 4) as usize;
        let class = stream.below(NAMES.len() as u64) as usize;
        let place = |stream: &mut Stream, side: usize| stream.below((side - size) as u64) as usize;
        let (left, top) = (place(&mut stream, width), place(&mut stream, height));
        let shape = Shape { class, left, top, size };
        if !shapes.iter().any(|other| other.overlaps(&shape)) {
            shapes.push(shape);
        }
    }
    // A shape is darker or lighter than the noise; colours are no clue to its class.
    let colours: Vec<[u8; 3]> = shapes
        .iter()
        .map(|_| {
            let base = if stream.chance(0.5) { 20.0 } else { 190.0 };
            [0, 1, 2].map(|_| (base + stream.uniform(0.0, 45.0)) as u8)
        })
        .collect();
    let mut pixels = Vec::with_capacity(width * height * 3);
    for at in 0..width * height {
        let shape = shapes.iter().position(|s| s.covers(at % width, at / width));
        let bits = stream.next_u64();
        for c in 0..3 {
            let noise = (bits >> (16 * c) & 0x3f) as u8;
            pixels.push(match shape {
                Some(shape) => colours[shape][c].saturating_add(noise / 4),
                None => 96 + noise,
            });
        }
    }
    (Image { width, height, pixels }, shapes)
}

fn png(image: &Image) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    PngEncoder::new(&mut out)
        .write_image(&image.pixels, image.width as u32, image.height as u32, ExtendedColorType::Rgb8)
        .map_err(|e| Error::file(format!("the picture: {e}"), "please report this"))?;
    Ok(out)
}

fn xml(image: &Image, shapes: &[Shape]) -> String {
    let mut out = format!(
        "<annotation>\n<size><width>{}</width><height>{}</height><depth>3</depth></size>\n",
        image.width, image.height
    );
    for Shape { class, left, top, size } in shapes {
        out += &format!(
            "<object>\n<name>{}</name><difficult>0</difficult>\n<bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax>\
             <ymax>{}</ymax></bndbox>\n</object>\n",
            NAMES[*class],
            left + 1,
            top + 1,
            left + size,
            top + size
        );
    }
    out + "</annotation>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_as_tight_as_their_shapes() {
        let request = Request { train: 1, test: 1, side: 64, seed: 0 };
        for index in 0..20 {
            let (image, shapes) = drawn(index, &request);
            assert!(!shapes.is_empty() && image.pixels.len() == image.width * image.height * 3);
            for shape in &shapes {
                let covered: Vec<(usize, usize)> = (0..image.width * image.height)
                    .map(|at| (at % image.width, at / image.width))
                    .filter(|(x, y)| shape.covers(*x, *y))
                    .collect();
                let span = |of: fn(&(usize, usize)) -> usize| {
                    let low = covered.iter().map(of).min().unwrap();
                    (low, covered.iter().map(of).max().unwrap() + 1 - low)
                };
                let ((left, width), (top, height)) = (span(|p| p.0), span(|p| p.1));
                assert!(left - shape.left <= 1 && top - shape.top <= 1);
                assert!(shape.size - width <= 2 && shape.size - height <= 2, "{width} x {height} of {}", shape.size);
            }
        }
    }

    #[test]
    fn the_same_request_makes_the_same_files() {
        let dir = tempfile::tempdir().unwrap();
        let request = Request { train: 1, test: 1, side: 48, seed: 4 };
        for name in ["a", "b"] {
            write(&dir.path().join(name), &request, &Cancel::default()).unwrap();
        }
        for file in ["JPEGImages/000001.png", "Annotations/000000.xml", "ImageSets/Main/test.txt"] {
            let read = |name: &str| std::fs::read(dir.path().join(name).join(file)).unwrap();
            assert_eq!(read("a"), read("b"));
        }
        assert!(write(&dir.path().join("c"), &Request { side: 8, ..request }, &Cancel::default()).is_err());
        assert!(write(&dir.path().join("a"), &request, &Cancel::default()).is_err(), "it is there");
    }
}
