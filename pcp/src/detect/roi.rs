//! RoIAlign (He et al. 2017): a map's values at fixed places of a box, and the gradient back to the map.
//!
//! A box is cut into `OUT` x `OUT` bins, and a bin is the mean of 2 x 2 bilinear samples. Both axes are independent: a bin's row is
//! a weighted sum of a few rows of the map, its column of a few columns. So the weights are made once per row and column of
//! bins, and a bin costs as many products as cells that it touches. Maps are channel-last: every product is over all channels
//! at once. Half-pixel centres (torchvision's `aligned=True`).

use super::anchors::STRIDE;
use super::boxes::Bounds;
use crate::model::Maps;
use pulp::Arch;
use rayon::prelude::*;

/// Bins along a side.
pub const OUT: usize = 7;
/// Samples along a side of a bin.
const SAMPLES: usize = 2;
/// Channels of the map that one task of the backward pass adds to.
const BLOCK: usize = 64;

/// A box on one of the images of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roi {
    /// The image.
    pub image: usize,
    /// Its place in pixels.
    pub bounds: Bounds,
}

/// The cells that a bin touches along one axis, and their weights.
#[derive(Clone, Copy, Debug, Default)]
struct BinTaps {
    count: usize,
    cell: [usize; 2 * SAMPLES],
    weight: [f32; 2 * SAMPLES],
}

impl BinTaps {
    fn add(&mut self, cell: usize, weight: f32) {
        let known = self.cell[..self.count].iter().position(|c| *c == cell);
        let place = known.unwrap_or(self.count);
        self.count = self.count.max(place + 1);
        self.cell[place] = cell;
        self.weight[place] += weight;
    }

    fn iter(&self) -> impl Iterator<Item = (usize, f32)> {
        self.cell[..self.count].iter().copied().zip(self.weight)
    }
}

/// The taps of all bins along an axis of `cells` cells, for a box from `low` to `high` pixels.
fn taps<const BINS: usize>(low: f32, high: f32, cells: usize) -> [BinTaps; BINS] {
    let scale = 1.0 / STRIDE as f32;
    let start = low * scale - 0.5;
    let bin = (high * scale - 0.5 - start) / BINS as f32;
    let last = cells - 1;
    std::array::from_fn(|b| {
        let mut taps = BinTaps::default();
        for s in 0..SAMPLES {
            let at = start + b as f32 * bin + (s as f32 + 0.5) * bin / SAMPLES as f32;
            // Samples more than a cell outside see nothing.
            if !(-1.0..=cells as f32).contains(&at) {
                continue;
            }
            let at = at.max(0.0).min(last as f32);
            let share = at - at.floor();
            taps.add(at as usize, (1.0 - share) / SAMPLES as f32);
            if share > 0.0 {
                taps.add(at as usize + 1, share / SAMPLES as f32);
            }
        }
        taps
    })
}

/// Crops of the maps: `[rois][OUT][OUT][channels]`.
pub fn forward(maps: &Maps, rois: &[Roi]) -> Vec<f32> {
    forward_of::<OUT>(maps, rois)
}

/// The gradient by maps of the shape of `maps` (its values do not matter), from the gradient by the output of [`forward`].
pub fn backward(maps: &Maps, rois: &[Roi], gradient: &[f32]) -> Vec<f32> {
    backward_of::<OUT>(maps, rois, gradient)
}

fn forward_of<const BINS: usize>(maps: &Maps, rois: &[Roi]) -> Vec<f32> {
    let c = maps.channels;
    let mut out = vec![0.0; rois.len() * BINS * BINS * c];
    out.par_chunks_mut((BINS * BINS * c).max(1)).zip(rois).for_each(|(out, roi)| {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                let [left, top, right, bottom] = roi.bounds;
                let rows = taps::<BINS>(top, bottom, maps.height);
                let columns = taps::<BINS>(left, right, maps.width);
                let image = &maps.values[roi.image * maps.height * maps.width * c..];
                for (bin, out) in out.chunks_exact_mut(c).enumerate() {
                    for (row, wy) in rows[bin / BINS].iter() {
                        for (column, wx) in columns[bin % BINS].iter() {
                            let (w, from) = (wy * wx, &image[(row * maps.width + column) * c..][..c]);
                            out.iter_mut().zip(from).for_each(|(out, x)| *out += w * x);
                        }
                    }
                }
            },
        );
    });
    out
}

fn backward_of<const BINS: usize>(maps: &Maps, rois: &[Roi], gradient: &[f32]) -> Vec<f32> {
    let (c, cells) = (maps.channels, maps.height * maps.width);
    assert_eq!(gradient.len(), rois.len() * BINS * BINS * c, "a gradient for every bin");
    let blocks = c.div_ceil(BLOCK);
    // Every task has an image and some channels to itself and takes the boxes in their order: sums never depend on threads.
    let parts: Vec<Vec<f32>> = (0..maps.rows * blocks)
        .into_par_iter()
        .map(|task| {
            let (image, first) = (task / blocks, task % blocks * BLOCK);
            let width = BLOCK.min(c - first);
            let mut part = vec![0.0f32; cells * width];
            Arch::new().dispatch(
                #[inline(always)]
                || {
                    for (i, roi) in rois.iter().enumerate().filter(|(_, roi)| roi.image == image) {
                        let [left, top, right, bottom] = roi.bounds;
                        let rows = taps::<BINS>(top, bottom, maps.height);
                        let columns = taps::<BINS>(left, right, maps.width);
                        for bin in 0..BINS * BINS {
                            let from = &gradient[(i * BINS * BINS + bin) * c + first..][..width];
                            for (row, wy) in rows[bin / BINS].iter() {
                                for (column, wx) in columns[bin % BINS].iter() {
                                    let (w, at) = (wy * wx, (row * maps.width + column) * width);
                                    let to = &mut part[at..][..width];
                                    to.iter_mut().zip(from).for_each(|(to, g)| *to += w * g);
                                }
                            }
                        }
                    }
                },
            );
            part
        })
        .collect();
    let mut out = vec![0.0; maps.rows * cells * c];
    out.par_chunks_mut((maps.width * c).max(1)).enumerate().for_each(|(line, out)| {
        let (image, row) = (line / maps.height, line % maps.height);
        for (column, out) in out.chunks_exact_mut(c).enumerate() {
            for (block, out) in out.chunks_mut(BLOCK).enumerate() {
                let width = out.len();
                out.copy_from_slice(&parts[image * blocks + block][(row * maps.width + column) * width..][..width]);
            }
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::super::boxes::tests::near;
    use super::*;
    use proptest::prelude::*;

    fn maps(rows: usize, height: usize, width: usize, channels: usize, value: impl Fn(usize) -> f32) -> Maps {
        let values = (0..rows * height * width * channels).map(value).collect();
        Maps { rows, height, width, channels, values }
    }

    fn example() -> (Maps, [Roi; 4]) {
        let roi = |image, bounds| Roi { image, bounds };
        let rois = [
            roi(0, [10.0, 6.0, 70.0, 60.0]),
            roi(1, [-20.0, -9.0, 40.0, 33.0]),
            roi(0, [50.0, 40.0, 140.0, 95.0]),
            roi(1, [30.0, 30.0, 30.5, 30.5]),
        ];
        (maps(2, 5, 6, 2, |n| (n as f32 * 0.37).sin()), rois)
    }

    /// torchvision 0.29, `x = sin(0.37 n)` with n counting in the order [image, row, column, channel]:
    /// `y = roi_align(x, rois, 2, 1/16, 2, aligned=True)`, then `(y * g).sum().backward()` with `g = cos(0.61 m)`, m counting
    /// in the order [roi, row, column, channel]. The first box leaves no border, the second does on two sides, the third ends
    /// beyond the map, the last is next to nothing.
    #[test]
    fn values_and_gradients_are_those_of_torchvision() {
        let (maps, rois) = example();
        #[rustfmt::skip]
        let golden = [
            -0.237754, -0.074036, 0.356997, 0.444733, 0.235295, 0.046196, -0.426872, -0.51375,
            -0.103669, -0.273531, -0.737663, -0.860212, 0.294077, 0.264583, 0.331333, 0.164576,
            -0.30034, -0.368463, 0.0, 0.0, 0.386762, 0.313392, 0.0, 0.0,
            0.559654, 0.451615, 0.55671, 0.446514, 0.560452, 0.46078, 0.557787, 0.455927,
        ];
        near(&forward_of::<2>(&maps, &rois), &golden, 2e-6);
        let gradient: Vec<f32> = (0..32).map(|m| (m as f32 * 0.61).cos()).collect();
        #[rustfmt::skip]
        let golden = [
            0.071411, 0.058532, 0.186768, 0.153084, 0.125475, 0.052607, 0.064182, -0.047871, 0.02454, -0.018303, 0.0, 0.0,
            0.11622, 0.094672, 0.303959, 0.247605, 0.202949, 0.083554, 0.101938, -0.080497, 0.038976, -0.030778, 0.0, 0.0,
            -0.075414, -0.105233, -0.197236, -0.275225, -0.225587, -0.20814, -0.344401, -0.19715, -0.177038, -0.103504, -0.098878, -0.061312,
            -0.064242, -0.083754, -0.168017, -0.219049, -0.179543, -0.156609, -0.371994, -0.206357, -0.232943, -0.135148, -0.197755, -0.122624,
            0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.11097, 0.134577, 0.098067, 0.118929, 0.121293, 0.147096,
            0.309678, 0.486443, 0.451375, 0.375734, 0.225688, 0.187867, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
            0.084529, -0.156868, -0.541383, -0.444171, -0.311063, -0.230288, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
            0.014743, -0.027361, -0.225088, -0.100888, -0.135847, -0.052313, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
            0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
            0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
        ];
        near(&backward_of::<2>(&maps, &rois, &gradient), &golden, 2e-6);
    }

    /// Every bin by the book: the mean of its samples, each interpolated between its four neighbours.
    fn slow(maps: &Maps, roi: &Roi, bins: usize) -> Vec<f32> {
        let (h, w, c) = (maps.height as f32, maps.width as f32, maps.channels);
        let at = |y: usize, x: usize, k: usize| maps.values[((roi.image * maps.height + y) * maps.width + x) * c + k];
        let sample = |y: f32, x: f32, k: usize| {
            if y < -1.0 || y > h || x < -1.0 || x > w {
                return 0.0;
            }
            let (y, x) = (y.clamp(0.0, h - 1.0), x.clamp(0.0, w - 1.0));
            let (y0, x0) = (y as usize, x as usize);
            let (y1, x1) = ((y0 + 1).min(maps.height - 1), (x0 + 1).min(maps.width - 1));
            let (fy, fx) = (y - y0 as f32, x - x0 as f32);
            (1.0 - fy) * ((1.0 - fx) * at(y0, x0, k) + fx * at(y0, x1, k))
                + fy * ((1.0 - fx) * at(y1, x0, k) + fx * at(y1, x1, k))
        };
        let [left, top, right, bottom] = roi.bounds.map(|v| v / STRIDE as f32 - 0.5);
        let (bw, bh) = ((right - left) / bins as f32, (bottom - top) / bins as f32);
        let mut out = Vec::new();
        for bin in 0..bins * bins {
            for k in 0..c {
                let place = |i: usize| (i as f32 + 0.5) / SAMPLES as f32;
                let samples = (0..SAMPLES * SAMPLES).map(|s| {
                    let y = top + ((bin / bins) as f32 + place(s / SAMPLES)) * bh;
                    sample(y, left + ((bin % bins) as f32 + place(s % SAMPLES)) * bw, k)
                });
                out.push(samples.sum::<f32>() / (SAMPLES * SAMPLES) as f32);
            }
        }
        out
    }

    proptest! {
        /// The forward pass is its slow twin, and the backward pass its transpose: <y(x), g> = <x, y'(g)>, y being linear.
        #[test]
        fn it_is_its_slow_twin_and_its_gradient_the_transpose(
            shape in (1usize..7, 1usize..7, 1usize..70),
            at in (-40.0f32..120.0, -40.0f32..120.0, 0.0f32..300.0, 0.0f32..300.0),
        ) {
            let maps = maps(2, shape.0, shape.1, shape.2, |n| ((n * n % 1013) as f32 * 0.77).sin());
            let roi = Roi { image: 1, bounds: [at.0, at.1, at.0 + at.2, at.1 + at.3] };
            let other = Roi { image: 0, bounds: [3.0, 5.0, 40.0, 30.0] };
            let rois = [roi, other, roi];
            let found = forward(&maps, &rois);
            let (len, c) = (OUT * OUT * maps.channels, maps.channels);
            near(&found[..len], &slow(&maps, &roi, OUT), 1e-3);
            near(&found[len..2 * len], &slow(&maps, &other, OUT), 1e-3);
            let g: Vec<f32> = (0..found.len()).map(|m| ((m % (7 * c + 3)) as f32 * 0.31).cos()).collect();
            let back = backward(&maps, &rois, &g);
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            let (one, two) = (dot(&found, &g), dot(&maps.values, &back));
            prop_assert!((one - two).abs() < 1e-3 * (1.0 + one.abs()), "{} is not {}", one, two);
        }
    }

    #[test]
    fn no_boxes_and_boxes_off_the_map_give_nothing() {
        let (maps, _) = example();
        assert!(forward(&maps, &[]).is_empty());
        assert!(backward(&maps, &[], &[]).iter().all(|g| *g == 0.0));
        let far = [Roi { image: 0, bounds: [900.0, 900.0, 1000.0, 1000.0] }];
        assert!(forward(&maps, &far).iter().all(|v| *v == 0.0));
    }
}
