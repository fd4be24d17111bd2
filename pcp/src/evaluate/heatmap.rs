//! Where the network looks: the length of the vector over the channels of its last map, laid over the image.

mod picture;

pub use picture::{HeatInBoxes, Picture, SHOWN, heat_in_boxes};

use crate::data::{Batch, Image};
use crate::model::{Maps, Network, Weights};
use image::{Rgb, RgbImage};
use pcp_core::error::Error;
use pcp_core::error::Result;
use pcp_core::io::atomic::write_atomic;
use std::io::Cursor;
use std::path::Path;

/// Heat over an image: a square of values of at least 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// Values per row and column.
    pub side: usize,
    /// The values, row by row.
    pub values: Vec<f32>,
}

/// The heat of every image of `batch` at the network's last map: `h(y, x) = |f(y, x, .)|_2`.
pub fn heat(network: &Network, weights: &Weights, batch: &Batch) -> Vec<Heat> {
    let last = network.layers().len() - 1;
    network.maps(weights, batch, &[last]).pop().map(|maps| lengths(&maps)).unwrap_or_default()
}

fn lengths(maps: &Maps) -> Vec<Heat> {
    let cells = maps.height * maps.width;
    let length = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>().sqrt();
    let image = |values: &[f32]| Heat { side: maps.height, values: values.chunks(maps.channels).map(length).collect() };
    maps.values.chunks((cells * maps.channels).max(1)).map(image).collect()
}

impl Heat {
    /// The same, bilinear between the middles of its cells, with `side` values per row and column.
    pub fn upsampled(&self, side: usize) -> Heat {
        let scale = self.side as f32 / side as f32;
        // Place of an output between two inputs, and how near it is to the second.
        let between = |i: usize| {
            let at = ((i as f32 + 0.5) * scale - 0.5).clamp(0.0, (self.side - 1) as f32);
            (at as usize, (at as usize + 1).min(self.side - 1), at.fract())
        };
        let mut values = Vec::with_capacity(side * side);
        for y in 0..side {
            let (top, bottom, down) = between(y);
            for x in 0..side {
                let (left, right, across) = between(x);
                let row = |y: usize| {
                    let (a, b) = (self.values[y * self.side + left], self.values[y * self.side + right]);
                    a + (b - a) * across
                };
                values.push(row(top) + (row(bottom) - row(top)) * down);
            }
        }
        Heat { side, values }
    }

    /// From 0 at the least value to 1 at the greatest; all 0 where there is no difference.
    pub fn stretched(&self) -> Heat {
        let least = self.values.iter().copied().fold(f32::INFINITY, f32::min);
        let greatest = self.values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let range = greatest - least;
        let scaled = |v: &f32| if range > 0.0 { (v - least) / range } else { 0.0 };
        Heat { side: self.side, values: self.values.iter().map(scaled).collect() }
    }

    /// Share of the heat inside any of `boxes` (left, top, right, bottom, as shares of the side), with the share of the area
    /// beside it: what an even heat would have inside.
    pub fn inside(&self, boxes: &[[f32; 4]]) -> (f64, f64) {
        let (mut within, mut all, mut area) = (0.0f64, 0.0f64, 0usize);
        for (i, v) in self.values.iter().enumerate() {
            let middle = |n: usize| (n as f32 + 0.5) / self.side as f32;
            let (x, y) = (middle(i % self.side), middle(i / self.side));
            let hit = boxes
                .iter()
                .any(|[left, top, right, bottom]| (*left..*right).contains(&x) && (*top..*bottom).contains(&y));
            all += f64::from(*v);
            if hit {
                within += f64::from(*v);
                area += 1;
            }
        }
        (if all > 0.0 { within / all } else { 0.0 }, area as f64 / self.values.len().max(1) as f64)
    }
}

/// The square picture with its heat over it, from blue (cold) to red.
pub fn overlay(picture: &Image, heat: &Heat) -> RgbImage {
    let side = picture.width.min(picture.height);
    let heat = heat.stretched().upsampled(side);
    RgbImage::from_fn(side as u32, side as u32, |x, y| {
        let (x, y) = (x as usize, y as usize);
        let at = (y * picture.width + x) * 3;
        let v = heat.values[y * side + x];
        let colour = warm(v);
        let strength = 0.25 + 0.4 * v;
        let mix = |c: usize| f32::from(picture.pixels[at + c]) * (1.0 - strength) + colour[c] * strength;
        Rgb([mix(0) as u8, mix(1) as u8, mix(2) as u8])
    })
}

/// A colour from blue over green and yellow to red.
fn warm(v: f32) -> [f32; 3] {
    let ramp = |from: f32| (255.0 * (1.5 - (4.0 * v - from).abs()).clamp(0.0, 1.0)).round();
    [ramp(3.0), ramp(2.0), ramp(1.0)]
}

/// Writes a picture as PNG.
pub fn write_png(path: &Path, picture: &RgbImage) -> Result<()> {
    let mut bytes = Cursor::new(Vec::new());
    picture
        .write_to(&mut bytes, image::ImageFormat::Png)
        .map_err(|e| Error::file(format!("{}: {e}", path.display()), "please report this"))?;
    write_atomic(path, |w| std::io::Write::write_all(w, bytes.get_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, NetworkSettings as Settings};

    /// A ResNet whose answer is known: every weight is zero but those that hand channel 0 on, so that the last map is the
    /// brightness of every eighth pixel.
    fn transparent() -> (Network, Weights) {
        let network = Network::new(&Settings { width: 4, ..Config::default().network }, 32).unwrap();
        let mut named = network.named(&network.init(0));
        for array in &mut named {
            let hands_on = array.name == "conv1.weight" || array.name.contains("downsample.0");
            let scale = array.name.contains("bn") || array.name.contains("downsample.1");
            if array.shape.len() == 4 {
                array.values.fill(0.0);
                let middle = array.shape[2] * array.shape[3] / 2;
                if hands_on {
                    array.values[middle] = 1.0;
                }
            } else if scale && array.name.ends_with("weight") {
                array.values.fill(1.0);
            }
        }
        let weights = network.from_named(&named).unwrap();
        (network, weights)
    }

    #[test]
    fn the_heat_is_where_the_known_network_looks() {
        let (network, weights) = transparent();
        // Dark, with one bright patch of 8 x 8 pixels in the third row and second column of the four by four map.
        let mut pixels = vec![0.0f32; 32 * 32 * 3];
        for y in 16..24 {
            for x in 8..16 {
                pixels[(y * 32 + x) * 3] = 1.0;
            }
        }
        let found = heat(&network, &weights, &Batch { rows: 1, pixels }).remove(0);
        assert_eq!(found.side, 4);
        let hottest = (0..16).max_by(|a, b| found.values[*a].total_cmp(&found.values[*b])).unwrap();
        assert_eq!(hottest, 2 * 4 + 1, "{:?}", found.values);
        assert!(found.values.iter().enumerate().all(|(i, v)| i == hottest || *v < 1e-3), "{:?}", found.values);
        let (share, area) = found.inside(&[[0.25, 0.5, 0.5, 0.75]]);
        assert!(share > 0.999 && (area - 1.0 / 16.0).abs() < 1e-9, "{share} {area}");
        assert!(found.inside(&[[0.5, 0.0, 1.0, 0.5]]).0 < 1e-3);
    }

    #[test]
    fn upsampling_keeps_corners_and_constants() {
        let heat = Heat { side: 2, values: vec![0.0, 1.0, 2.0, 3.0] };
        let large = heat.upsampled(8);
        assert_eq!((large.values[0], large.values[7], large.values[56], large.values[63]), (0.0, 1.0, 2.0, 3.0));
        assert!((large.values[3 * 8 + 3] - (1.5 - 0.125 - 0.25)).abs() < 1e-6);
        let flat = Heat { side: 1, values: vec![2.0] };
        assert_eq!(flat.upsampled(3).values, [2.0; 9]);
        assert_eq!(flat.stretched().values, [0.0]);
        assert_eq!(heat.stretched().values, [0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0]);
    }

    #[test]
    fn boxes_that_overlap_count_once_and_no_heat_is_no_share() {
        let even = Heat { side: 10, values: vec![1.0; 100] };
        let (share, area) = even.inside(&[[0.0, 0.0, 0.5, 1.0], [0.2, 0.0, 0.5, 1.0]]);
        assert!((share - 0.5).abs() < 1e-9 && (area - 0.5).abs() < 1e-9);
        assert_eq!(Heat { side: 2, values: vec![0.0; 4] }.inside(&[[0.0, 0.0, 1.0, 1.0]]), (0.0, 1.0));
        assert_eq!(even.inside(&[]).0, 0.0);
    }

    #[test]
    fn the_overlay_has_the_pictures_size_and_a_red_spot() {
        let picture = Image { width: 6, height: 6, pixels: vec![100; 108] };
        let shown = overlay(&picture, &Heat { side: 2, values: vec![0.0, 0.0, 0.0, 1.0] });
        assert_eq!(shown.dimensions(), (6, 6));
        let (cold, hot) = (shown.get_pixel(0, 0), shown.get_pixel(5, 5));
        assert!(hot[0] > hot[2] && cold[2] > cold[0], "{cold:?} {hot:?}");
    }
}
