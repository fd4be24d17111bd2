//! Resampling of images: bilinear with antialiasing, as Pillow's `BILINEAR` and torchvision's `antialias=True` do it.
//!
//! Along one axis, from `n` pixels to `m`, output `x` is the weighted mean of the pixels around its centre
//! `c = (x + 1/2) n/m`, with the triangle weights `max(0, 1 - |i + 1/2 - c| / s)`, `s = max(1, n/m)`, over the pixels `i`
//! that exist, divided by their sum. For `m >= n` that is plain bilinear interpolation between half-pixel centres; for
//! `m < n` the triangle widens with the step, so that every pixel counts. The two axes are independent: rows first, then
//! columns. Sums are plain multiplications and additions in a fixed order, so the result is the same on every CPU.

use crate::data::Image;

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First row.
    pub top: usize,
    /// First column.
    pub left: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Region {
    /// All of `image`.
    pub fn whole(image: &Image) -> Self {
        Region { top: 0, left: 0, height: image.height, width: image.width }
    }
}

/// The weights of one axis: output `x` takes `count` pixels from `first` on, with weights from `start` on.
#[derive(Default)]
struct AxisWeights {
    spans: Vec<Span>,
    weights: Vec<f32>,
}

#[derive(Clone, Copy)]
struct Span {
    first: usize,
    start: usize,
    count: usize,
}

impl AxisWeights {
    /// Triangle weights from `n` pixels to `m`.
    fn fill(&mut self, n: usize, m: usize) {
        self.spans.clear();
        self.weights.clear();
        let step = n as f64 / m as f64;
        let support = step.max(1.0);
        for x in 0..m {
            let centre = (x as f64 + 0.5) * step;
            let weight = |i: usize| (1.0 - (i as f64 + 0.5 - centre).abs() / support).max(0.0);
            // Pixels of weight zero at either end are left out.
            let mut first = (centre - support + 0.5).max(0.0) as usize;
            let mut end = ((centre + support + 0.5) as usize).min(n);
            while first + 1 < end && weight(first) == 0.0 {
                first += 1;
            }
            while first + 1 < end && weight(end - 1) == 0.0 {
                end -= 1;
            }
            let total: f64 = (first..end).map(weight).sum();
            self.spans.push(Span { first, start: self.weights.len(), count: end - first });
            self.weights.extend((first..end).map(|i| (weight(i) / total) as f32));
        }
    }

    /// For every output, its first input and weights.
    fn iter(&self) -> impl Iterator<Item = (usize, &[f32])> {
        self.spans.iter().map(|s| (s.first, &self.weights[s.start..s.start + s.count]))
    }
}

/// Resamples regions of images; keeps its buffers, so that later calls allocate nothing.
#[derive(Default)]
pub struct Resampler {
    vertical: AxisWeights,
    horizontal: AxisWeights,
    /// After the first pass: `[out_h][w * 3]`.
    rows: Vec<f32>,
    /// The same, as columns of one channel each: `[w][3][out_h]`.
    columns: Vec<f32>,
    /// After the second pass, for [`Resampler::interleaved`].
    planes: Vec<f32>,
}

impl Resampler {
    /// Resamples `region` of `image` to `out_w` x `out_h` into three planes, `[3][out_w][out_h]`, values 0..=1. Planes run
    /// column by column: so both passes, and all that follows, go over contiguous memory.
    pub fn planes(&mut self, image: &Image, region: Region, out_w: usize, out_h: usize, out: &mut [f32]) {
        let Region { top, left, height, width } = region;
        assert!(height > 0 && width > 0 && out_w > 0 && out_h > 0, "nothing to resample");
        assert!(top + height <= image.height && left + width <= image.width, "the region leaves the image");
        assert_eq!(out.len(), out_w * out_h * 3, "output of the wrong size");
        self.vertical.fill(height, out_h);
        self.horizontal.fill(width, out_w);

        let line = width * 3;
        self.rows.resize(out_h * line, 0.0);
        for (row, (first, weights)) in self.rows.chunks_exact_mut(line).zip(self.vertical.iter()) {
            let source = |tap: usize| &image.pixels[((top + first + tap) * image.width + left) * 3..][..line];
            scale_bytes(row, source(0), weights[0] * (1.0 / 255.0));
            for (tap, &w) in weights.iter().enumerate().skip(1) {
                add_bytes(row, source(tap), w * (1.0 / 255.0));
            }
        }

        self.columns.resize(line * out_h, 0.0);
        for (i, column) in self.columns.chunks_exact_mut(out_h).enumerate() {
            for (value, row) in column.iter_mut().zip(self.rows.chunks_exact(line)) {
                *value = row[i];
            }
        }

        for (channel, plane) in out.chunks_exact_mut(out_w * out_h).enumerate() {
            for (column, (first, weights)) in plane.chunks_exact_mut(out_h).zip(self.horizontal.iter()) {
                let source = |tap: usize| &self.columns[((first + tap) * 3 + channel) * out_h..][..out_h];
                scale(column, source(0), weights[0]);
                for (tap, &w) in weights.iter().enumerate().skip(1) {
                    add(column, source(tap), w);
                }
                // Rounding can make the sum of the weights slightly greater than one.
                for value in column {
                    *value = if *value < 1.0 { *value } else { 1.0 };
                }
            }
        }
    }

    /// Resamples `region` of `image` to `out_w` x `out_h`, red, green, blue pixel by pixel, values 0..=1.
    pub fn interleaved(&mut self, image: &Image, region: Region, out_w: usize, out_h: usize, out: &mut [f32]) {
        let mut planes = std::mem::take(&mut self.planes);
        planes.resize(out_w * out_h * 3, 0.0);
        self.planes(image, region, out_w, out_h, &mut planes);
        for (channel, plane) in planes.chunks_exact(out_w * out_h).enumerate() {
            for (x, column) in plane.chunks_exact(out_h).enumerate() {
                for (y, &value) in column.iter().enumerate() {
                    out[(y * out_w + x) * 3 + channel] = value;
                }
            }
        }
        self.planes = planes;
    }
}

fn scale_bytes(out: &mut [f32], bytes: &[u8], weight: f32) {
    for (o, &b) in out.iter_mut().zip(bytes) {
        *o = weight * f32::from(b);
    }
}

fn add_bytes(out: &mut [f32], bytes: &[u8], weight: f32) {
    for (o, &b) in out.iter_mut().zip(bytes) {
        *o += weight * f32::from(b);
    }
}

fn scale(out: &mut [f32], values: &[f32], weight: f32) {
    for (o, &v) in out.iter_mut().zip(values) {
        *o = weight * v;
    }
}

fn add(out: &mut [f32], values: &[f32], weight: f32) {
    for (o, &v) in out.iter_mut().zip(values) {
        *o += weight * v;
    }
}

/// `image` at exactly `width` x `height`, rounded to bytes.
pub fn resize(image: &Image, width: usize, height: usize) -> Image {
    let mut values = vec![0.0; width * height * 3];
    Resampler::default().interleaved(image, Region::whole(image), width, height, &mut values);
    Image { width, height, pixels: values.into_iter().map(|v| (v * 255.0 + 0.5) as u8).collect() }
}

/// Width and height with which `image` has the short side `short`, the long side rounded down as torchvision does.
pub fn fitted(image: &Image, short: usize) -> (usize, usize) {
    let (w, h) = (image.width, image.height);
    if w <= h { (short, short * h / w) } else { (short * w / h, short) }
}

/// Width and height of `image` after [`shrink`].
pub fn shrunk(image: &Image, short_side: usize) -> (usize, usize) {
    if image.width.min(image.height) <= short_side { (image.width, image.height) } else { fitted(image, short_side) }
}

/// `image` with a short side of at most `short_side`, its aspect kept; returned as it is when it is no larger.
pub fn shrink(image: Image, short_side: usize) -> Image {
    match shrunk(&image, short_side) {
        size if size == (image.width, image.height) => image,
        (width, height) => resize(&image, width, height),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A picture without symmetry: bytes `(7 x + 13 y + 50 c + x y) mod 256`.
    fn picture(width: usize, height: usize) -> Image {
        let byte = |i: usize| {
            let (c, x, y) = (i % 3, i / 3 % width, i / 3 / width);
            (7 * x + 13 * y + 50 * c + x * y) as u8
        };
        Image { width, height, pixels: (0..width * height * 3).map(byte).collect() }
    }

    /// The formula at the top of this file, in two dimensions at once, pixel by pixel.
    fn twin(image: &Image, r: Region, out_w: usize, out_h: usize) -> Vec<f32> {
        let weights = |n: usize, m: usize, x: usize| -> Vec<f64> {
            let (step, s) = (n as f64 / m as f64, (n as f64 / m as f64).max(1.0));
            let w: Vec<f64> =
                (0..n).map(|i| (1.0 - (i as f64 + 0.5 - (x as f64 + 0.5) * step).abs() / s).max(0.0)).collect();
            let total: f64 = w.iter().sum();
            w.into_iter().map(|w| w / total).collect()
        };
        let mut out = Vec::new();
        for y in 0..out_h {
            let wy = weights(r.height, out_h, y);
            for x in 0..out_w {
                let wx = weights(r.width, out_w, x);
                for c in 0..3 {
                    let mut sum = 0.0;
                    for i in 0..r.height {
                        for j in 0..r.width {
                            let at = ((r.top + i) * image.width + r.left + j) * 3 + c;
                            sum += wy[i] * wx[j] * f64::from(image.pixels[at]) / 255.0;
                        }
                    }
                    out.push(sum as f32);
                }
            }
        }
        out
    }

    proptest! {
        #[test]
        fn matches_the_slow_twin(
            (w, h) in (1usize..20, 1usize..20), (ow, oh) in (1usize..24, 1usize..24), cut in prop::array::uniform4(0.0..1.0f64),
        ) {
            let image = picture(w, h);
            let (top, left) = ((cut[0] * h as f64) as usize, (cut[1] * w as f64) as usize);
            let height = 1 + (cut[2] * (h - top) as f64) as usize;
            let width = 1 + (cut[3] * (w - left) as f64) as usize;
            let region = Region { top, left, height: height.min(h - top), width: width.min(w - left) };
            let mut out = vec![f32::NAN; ow * oh * 3];
            let mut resampler = Resampler::default();
            resampler.interleaved(&picture(3, 2), Region { top: 0, left: 0, height: 2, width: 3 }, 5, 7, &mut [0.0; 105]);
            resampler.interleaved(&image, region, ow, oh, &mut out);
            for (a, b) in out.iter().zip(twin(&image, region, ow, oh)) {
                prop_assert!((a - b).abs() < 1e-6 && (0.0..=1.0).contains(a), "{a} {b}");
            }
        }
    }

    /// Pillow 13: `Image.fromarray(picture).resize((w, h), Image.BILINEAR)` for the picture above, 11 x 7 pixels.
    /// Pillow rounds to bytes between its passes, so ours may differ by one.
    #[test]
    fn golden_values_of_pillow() {
        let image = picture(11, 7);
        for (w, h, expected) in [GOLDEN_DOWN, GOLDEN_UP].map(|(w, h, bytes)| (w, h, bytes.to_vec())) {
            let got = resize(&image, w, h).pixels;
            assert_eq!(got.len(), expected.len());
            for (a, b) in got.iter().zip(&expected) {
                assert!(a.abs_diff(*b) <= 1, "{got:?} {expected:?}");
            }
        }
    }

    const GOLDEN_DOWN: (usize, usize, &[u8]) = (
        4,
        3,
        &[
            20, 70, 120, 40, 90, 140, 61, 111, 161, 81, 131, 181, 50, 100, 150, 75, 125, 175, 103, 153, 200, 128, 178,
            197, 81, 131, 181, 111, 161, 207, 144, 194, 156, 174, 199, 68,
        ],
    );
    const GOLDEN_UP: (usize, usize, &[u8]) = (
        13,
        2,
        &[
            21, 71, 121, 27, 77, 127, 35, 85, 135, 42, 92, 142, 49, 99, 149, 56, 106, 156, 63, 113, 163, 71, 121, 171,
            78, 128, 178, 85, 135, 185, 92, 142, 192, 100, 150, 196, 106, 156, 189, 57, 107, 157, 66, 116, 166, 76,
            126, 176, 86, 136, 186, 95, 145, 195, 105, 155, 205, 115, 165, 215, 124, 174, 179, 134, 184, 180, 143, 193,
            148, 153, 203, 122, 163, 200, 117, 172, 168, 75,
        ],
    );

    #[test]
    fn the_same_size_is_the_same_image() {
        let image = picture(9, 5);
        assert_eq!(resize(&image, 9, 5), image);
    }

    #[test]
    fn one_pixel_fills_any_size() {
        let image = Image { width: 1, height: 1, pixels: vec![255, 0, 7] };
        assert_eq!(resize(&image, 4, 3).pixels, [255, 0, 7].repeat(12));
    }

    #[test]
    fn shrink_keeps_aspect_and_small_images() {
        let size = |w, h, s| {
            let image = shrink(picture(w, h), s);
            (image.width, image.height)
        };
        assert_eq!(size(100, 51, 20), (39, 20));
        assert_eq!(size(51, 100, 20), (20, 39));
        assert_eq!(size(30, 20, 20), (30, 20));
        assert_eq!(shrink(picture(8, 5), 5), picture(8, 5));
        assert_eq!(size(500, 2, 1), (250, 1));
    }
}
