//! Random views of images: (image, random stream) -> normalised view.
//!
//! A training view is RandomResizedCrop (or a clean view through RandomCrop with padding) -> colour jitter -> grey -> blur ->
//! horizontal flip -> normalise, each as torchvision does it on tensors of floats; a clean view is resize -> centre crop ->
//! normalise. A [`ViewPlan`] holds everything random about a view, so that drawing and applying it are two
//! separate functions. Luma is `L = .299 R + .587 G + .114 B`. All arithmetic on pixels is multiplications, additions, divisions and
//! comparisons in a fixed order: same inputs, same bits.

mod blur;

use std::cell::RefCell;
use std::ops::Range;

use crate::config::{AugmentSettings, Crop};
use crate::data::Image;
use crate::data::resize::{Region, Resampler, fitted};
use blur::Blur;
use pcp_core::error::{Error, Result};
use pcp_core::rng::Stream;

impl AugmentSettings {
    /// An error for values out of range.
    pub fn check(&self) -> Result<()> {
        let rules = [
            ("pad", (0.0..=0.5).contains(&self.pad), "0 to 0.5"),
            (
                "scale",
                0.0 < self.scale[0] && self.scale[0] <= self.scale[1] && self.scale[1] <= 1.0,
                "0 < from <= to <= 1",
            ),
            (
                "ratio",
                0.0 < self.ratio[0] && self.ratio[0] <= self.ratio[1] && self.ratio[1] < 1e3,
                "0 < from <= to < 1000",
            ),
            ("brightness", (0.0..=1.0).contains(&self.brightness), "0 to 1"),
            ("contrast", (0.0..=1.0).contains(&self.contrast), "0 to 1"),
            ("saturation", (0.0..=1.0).contains(&self.saturation), "0 to 1"),
            ("hue", (0.0..=0.5).contains(&self.hue), "0 to 0.5 turns"),
            ("jitter_probability", (0.0..=1.0).contains(&self.jitter_probability), "0 to 1"),
            ("grey", (0.0..=1.0).contains(&self.grey), "0 to 1"),
            ("blur", (0.0..=1.0).contains(&self.blur), "0 to 1"),
            (
                "blur_sigma",
                0.0 < self.blur_sigma[0] && self.blur_sigma[0] <= self.blur_sigma[1] && self.blur_sigma[1] <= 100.0,
                "0 < from <= to <= 100",
            ),
            ("flip", (0.0..=1.0).contains(&self.flip), "0 to 1"),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            Some((name, _, range)) => {
                Err(Error::usage(format!("augment.{name} is out of range"), format!("it takes {range}")))
            }
            None => Ok(()),
        }
    }

    /// Draws a view of `size` pixels of a `width` x `height` image. Always in this order: jitter or not, order of the
    /// jitter, brightness, contrast, saturation, hue, grey or not, flip or not (one number each, whether used or not); then
    /// the crop: the tries of a resized one take two numbers each, and two more when one succeeds, a padded one takes its
    /// shift down and its shift to the right; last, blur or not and its sigma, so that settings without blur give the same
    /// views as versions that had no blur.
    pub fn draw(&self, width: usize, height: usize, size: usize, rng: &mut Stream) -> ViewPlan {
        let jitter = rng.chance(self.jitter_probability as f32);
        let order = PERMUTATIONS[((rng.unit() * 24.0) as usize).min(23)];
        let mut factor = |spread: f64| rng.uniform((1.0 - spread) as f32, (1.0 + spread) as f32);
        let (brightness, contrast) = (factor(self.brightness), factor(self.contrast));
        let saturation = factor(self.saturation);
        let hue = rng.uniform(-self.hue as f32, self.hue as f32);
        let grey = rng.chance(self.grey as f32);
        let flip = rng.chance(self.flip as f32);
        let steps = [
            JitterStep::Brightness(brightness),
            JitterStep::Contrast(contrast),
            JitterStep::Saturation(saturation),
            JitterStep::Hue(hue),
        ];
        let jitter = jitter.then(|| order.map(|i| steps[i as usize]));
        let cut = match self.crop {
            Crop::Resized => Cut::Resized(self.resized_crop(width, height, rng)),
            Crop::Padded => {
                let most = (self.pad * size as f64).round() as u64;
                let mut shift = || rng.below(2 * most + 1) as isize - most as isize;
                Cut::Padded { down: shift(), right: shift() }
            }
        };
        let blur = rng.chance(self.blur as f32);
        let sigma = rng.uniform(self.blur_sigma[0] as f32, self.blur_sigma[1] as f32);
        ViewPlan { cut, jitter, grey, blur: blur.then_some(sigma), flip }
    }

    /// torchvision's RandomResizedCrop: ten tries at an area and an aspect that fit; else the largest central crop whose
    /// aspect is within bounds.
    fn resized_crop(&self, width: usize, height: usize, rng: &mut Stream) -> Region {
        let [low, high] = self.ratio;
        for _ in 0..10 {
            let area = (width * height) as f64 * f64::from(rng.uniform(self.scale[0] as f32, self.scale[1] as f32));
            let aspect = (low.ln() + (high.ln() - low.ln()) * f64::from(rng.unit())).exp();
            let w = (area * aspect).sqrt().round_ties_even() as usize;
            let h = (area / aspect).sqrt().round_ties_even() as usize;
            if 0 < w && w <= width && 0 < h && h <= height {
                let top = rng.below((height - h + 1) as u64) as usize;
                let left = rng.below((width - w + 1) as u64) as usize;
                return Region { top, left, height: h, width: w };
            }
        }
        let (w, h) = (width as f64, height as f64);
        let (w, h) = match w / h {
            aspect if aspect < low => (w, (w / low).round_ties_even()),
            aspect if aspect > high => ((h * high).round_ties_even(), h),
            _ => (w, h),
        };
        let (w, h) = ((w as usize).clamp(1, width), (h as usize).clamp(1, height));
        Region { top: (height - h) / 2, left: (width - w) / 2, height: h, width: w }
    }
}

/// All orders of four steps.
const PERMUTATIONS: [[u8; 4]; 24] = {
    let mut all = [[0; 4]; 24];
    let (mut n, mut code) = (0, 0);
    while code < 256 {
        let p = [code as u8 & 3, (code >> 2) as u8 & 3, (code >> 4) as u8 & 3, (code >> 6) as u8 & 3];
        if (1 << p[0]) | (1 << p[1]) | (1 << p[2]) | (1 << p[3]) == 15 {
            all[n] = p;
            n += 1;
        }
        code += 1;
    }
    all
};

/// One step of colour jitter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JitterStep {
    /// Values times a factor.
    Brightness(f32),
    /// Distance to the mean luma of the view times a factor.
    Contrast(f32),
    /// Distance to the pixel's own luma times a factor.
    Saturation(f32),
    /// Hue turned by a part of the circle.
    Hue(f32),
}

/// How a view is cropped from its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// This region, resized.
    Resized(Region),
    /// The clean view shifted by some pixels, black where it ends. Like torchvision's RandomCrop with padding after Resize and
    /// CenterCrop: the parts of a wide image beside its centre are never visible.
    Padded {
        /// Rows by which the window moves down, negative for up.
        down: isize,
        /// Columns by which it moves to the right, negative for left.
        right: isize,
    },
}

/// All random choices of a view.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewPlan {
    /// The crop.
    pub cut: Cut,
    /// The colour jitter, if any, in its order.
    pub jitter: Option<[JitterStep; 4]>,
    /// Whether it is converted to grey.
    pub grey: bool,
    /// The standard deviation of the Gaussian blur in pixels, if there is one.
    pub blur: Option<f32>,
    /// Whether it is flipped left to right.
    pub flip: bool,
}

/// Makes views of `size` x `size` pixels, `[size][size][3]`, normalised.
#[derive(Clone, Debug, PartialEq)]
pub struct Augmenter {
    /// Side of a view.
    pub size: usize,
    /// Short side of the image over the side of the centre crop in a clean view, at least 1 (256/224 for 224-px sets); 0 keeps the whole image,
    /// resized to a square whatever its shape.
    pub margin: f32,
    /// Mean per channel.
    pub mean: [f32; 3],
    /// Standard deviation per channel.
    pub std: [f32; 3],
    /// The settings of training views.
    pub recipe: AugmentSettings,
}

/// Buffers of a thread, so that making a view allocates nothing.
#[derive(Default)]
struct Scratch {
    resampler: Resampler,
    /// The view.
    planes: Vec<f32>,
    /// The image that a clean view is cut out of.
    fitted: Vec<f32>,
    blur: Blur,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The preprocessing that keeps the whole area of an image, in words.
pub fn whole_image(side: usize) -> String {
    format!("the whole image resized to {side} x {side} px, whatever its shape")
}

impl Augmenter {
    /// A random view of `image` into `out`, `size * size * 3` values.
    pub fn train_view(&self, image: &Image, rng: &mut Stream, out: &mut [f32]) {
        let plan = self.recipe.draw(image.width, image.height, self.size, rng);
        self.planned_view(image, &plan, out);
    }

    /// The view of `image` that `plan` describes.
    pub fn planned_view(&self, image: &Image, plan: &ViewPlan, out: &mut [f32]) {
        SCRATCH.with_borrow_mut(|Scratch { resampler, planes, fitted, blur }| {
            planes.resize(self.size * self.size * 3, 0.0);
            match plan.cut {
                Cut::Resized(region) => resampler.planes(image, region, self.size, self.size, planes),
                Cut::Padded { down, right } => {
                    let window = self.fit(image, resampler, fitted);
                    self.shift(fitted, window, down, right, planes);
                }
            }
            let [r, g, b] = split(planes);
            for step in plan.jitter.iter().flatten() {
                apply(*step, r, g, b);
            }
            if plan.grey {
                grey(r, g, b);
            }
            if let Some(sigma) = plan.blur {
                blur.apply(planes, self.size, sigma);
            }
            self.write(planes, Region { top: 0, left: 0, height: self.size, width: self.size }, plan.flip, out);
        });
    }

    /// The view of `image` without any randomness: short side to `round(size * margin)`, then the centre; or the whole image.
    pub fn clean_view(&self, image: &Image, out: &mut [f32]) {
        SCRATCH.with_borrow_mut(|Scratch { resampler, fitted, .. }| {
            let window = self.fit(image, resampler, fitted);
            self.write(fitted, window, false, out);
        });
    }

    /// The clean view of `image` as a picture of `side` x `side` pixels, not normalised.
    pub fn picture(&self, image: &Image, side: usize) -> Image {
        let plain = Augmenter { size: side, mean: [0.0; 3], std: [1.0; 3], ..self.clone() };
        let mut values = vec![0.0; side * side * 3];
        plain.clean_view(image, &mut values);
        let pixels = values.iter().map(|v| (v * 255.0).round().clamp(0.0, 255.0) as u8).collect();
        Image { width: side, height: side, pixels }
    }

    /// Resizes the short side of `image` to `round(size * margin)`, or, without a margin, both sides to `size`, into planes; gives the
    /// window of the clean view, as [`Augmenter::write`] takes it.
    fn fit(&self, image: &Image, resampler: &mut Resampler, planes: &mut Vec<f32>) -> Region {
        let (width, height) = match self.margin {
            0.0 => (self.size, self.size),
            margin => fitted(image, ((self.size as f32 * margin).round() as usize).max(self.size)),
        };
        planes.resize(width * height * 3, 0.0);
        resampler.planes(image, Region::whole(image), width, height, planes);
        // torchvision's centre crop rounds half an odd margin to even.
        let middle = |side: usize| ((side - self.size) as f64 / 2.0).round_ties_even() as usize;
        Region { top: middle(height), left: middle(width), height, width }
    }

    /// Copies the clean view, which is a `window` of `fitted`, into `planes`, seen through a window moved `down` and to
    /// the `right`.
    fn shift(&self, fitted: &[f32], window: Region, down: isize, right: isize, planes: &mut [f32]) {
        planes.fill(0.0);
        // Shifted by more than its side, all of it is black.
        let [down, right] = [down, right].map(|by| by.clamp(-(self.size as isize), self.size as isize));
        let (rows, columns) = (overlap(self.size, down), overlap(self.size, right));
        let (from, to) =
            (fitted.chunks_exact(window.width * window.height), planes.chunks_exact_mut(self.size * self.size));
        for (from, to) in from.zip(to) {
            for x in columns.clone() {
                let column = (window.left + x).strict_add_signed(right) * window.height;
                let first = column + (window.top + rows.start).strict_add_signed(down);
                to[x * self.size..][rows.clone()].copy_from_slice(&from[first..][..rows.len()]);
            }
        }
    }

    /// Normalises a `size` x `size` window of planes `[3][width][height]` into pixels `[size][size][3]`. `window` has the
    /// window's first row and column, and the height and width of the planes.
    fn write(&self, planes: &[f32], window: Region, flip: bool, out: &mut [f32]) {
        assert_eq!(out.len(), self.size * self.size * 3, "output of the wrong size");
        let plane = window.width * window.height;
        let scale = self.std.map(|s| 1.0 / s);
        for x in 0..self.size {
            let from = (window.left + x) * window.height + window.top;
            let to = if flip { self.size - 1 - x } else { x };
            let column = |c: usize| &planes[c * plane + from..][..self.size];
            let (r, g, b) = (column(0), column(1), column(2));
            for (y, line) in out.chunks_exact_mut(self.size * 3).enumerate() {
                let pixel = &mut line[to * 3..to * 3 + 3];
                pixel[0] = (r[y] - self.mean[0]) * scale[0];
                pixel[1] = (g[y] - self.mean[1]) * scale[1];
                pixel[2] = (b[y] - self.mean[2]) * scale[2];
            }
        }
    }
}

/// The indices `i` of a line of `n` pixels with `0 <= i + by < n`: those that show a pixel after a shift by `by`.
fn overlap(n: usize, by: isize) -> Range<usize> {
    if by < 0 { by.unsigned_abs()..n } else { 0..n - by.unsigned_abs() }
}

/// The three planes of an image.
fn split(planes: &mut [f32]) -> [&mut [f32]; 3] {
    let (r, rest) = planes.split_at_mut(planes.len() / 3);
    let (g, b) = rest.split_at_mut(rest.len() / 2);
    [r, g, b]
}

/// `v` held within 0..=1; written so that it compiles to two instructions, as `f32::clamp` does not.
#[inline(always)]
fn unit(v: f32) -> f32 {
    let v = if v > 0.0 { v } else { 0.0 };
    if v < 1.0 { v } else { 1.0 }
}

#[inline(always)]
fn luma(r: f32, g: f32, b: f32) -> f32 {
    0.299 * r + 0.587 * g + 0.114 * b
}

fn apply(step: JitterStep, r: &mut [f32], g: &mut [f32], b: &mut [f32]) {
    match step {
        JitterStep::Brightness(factor) => {
            for plane in [r, g, b] {
                blend(plane, factor, 0.0);
            }
        }
        JitterStep::Contrast(factor) => {
            let mean = mean_luma(r, g, b);
            for plane in [r, g, b] {
                blend(plane, factor, mean);
            }
        }
        JitterStep::Saturation(factor) => saturation(r, g, b, factor),
        JitterStep::Hue(turns) => hue(r, g, b, turns),
    }
}

/// `factor v + (1 - factor) target`, held within 0..=1.
fn blend(plane: &mut [f32], factor: f32, target: f32) {
    let offset = (1.0 - factor) * target;
    for v in plane {
        *v = unit(*v * factor + offset);
    }
}

/// Mean of the luma: in eight lanes within a block, in double precision over the blocks.
fn mean_luma(r: &[f32], g: &[f32], b: &[f32]) -> f32 {
    let mut total = 0.0f64;
    for ((r, g), b) in r.chunks(1024).zip(g.chunks(1024)).zip(b.chunks(1024)) {
        let mut lanes = [0.0f32; 8];
        for ((r, g), b) in r.chunks_exact(8).zip(g.chunks_exact(8)).zip(b.chunks_exact(8)) {
            for l in 0..8 {
                lanes[l] += luma(r[l], g[l], b[l]);
            }
        }
        let done = r.len() / 8 * 8;
        let rest: f32 = (done..r.len()).map(|i| luma(r[i], g[i], b[i])).sum();
        total += f64::from(lanes.iter().sum::<f32>() + rest);
    }
    (total / r.len() as f64) as f32
}

fn saturation(r: &mut [f32], g: &mut [f32], b: &mut [f32], factor: f32) {
    for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
        let offset = (1.0 - factor) * luma(*r, *g, *b);
        *r = unit(*r * factor + offset);
        *g = unit(*g * factor + offset);
        *b = unit(*b * factor + offset);
    }
}

fn grey(r: &mut [f32], g: &mut [f32], b: &mut [f32]) {
    for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
        *r = luma(*r, *g, *b);
        *g = *r;
        *b = *r;
    }
}

/// Turns the hue by way of HSV. With `max` and `min` of the channels and `C = max - min`, the hue in sixths of a turn is
/// `(g-b)/C`, `2 + (b-r)/C` or `4 + (r-g)/C`, whichever channel is the greatest; and back, channel `n` (5, 3, 1 for r, g, b)
/// is `max - C clamp(min(k, 4 - k), 0, 1)` with `k = (n + hue) mod 6`. Value and saturation stay, so neither is computed.
fn hue(r: &mut [f32], g: &mut [f32], b: &mut [f32], turns: f32) {
    let shift = 6.0 * turns;
    for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
        let (red, green, blue) = (*r, *g, *b);
        let (high, low) = if red > green { (red, green) } else { (green, red) };
        let max = if high > blue { high } else { blue };
        let min = if low < blue { low } else { blue };
        let chroma = max - min;
        let (offset, difference) = if max == green { (2.0, blue - red) } else { (4.0, red - green) };
        let (offset, difference) = if max == red { (0.0, green - blue) } else { (offset, difference) };
        let sixths = offset + difference / if chroma > 0.0 { chroma } else { 1.0 } + shift;
        // Within -4..8 for half a turn at most: one wrap at either end.
        let sixths = if sixths < 0.0 { sixths + 6.0 } else { sixths };
        let sixths = if sixths >= 6.0 { sixths - 6.0 } else { sixths };
        let channel = |n: f32| {
            let k = n + sixths;
            let k = if k >= 6.0 { k - 6.0 } else { k };
            max - chroma * unit(if k < 4.0 - k { k } else { 4.0 - k })
        };
        (*r, *g, *b) = (channel(5.0), channel(3.0), channel(1.0));
    }
}

#[cfg(test)]
mod tests;
