//! Gaussian blur, as torchvision's `gaussian_blur` does it.
//!
//! Along one axis, pixel `x` becomes the weighted mean of the pixels `x - r ..= x + r`, with the weights
//! `exp(-t^2 / (2 sigma^2))` at distance `t`, divided by their sum. The radius is `r = ceil(3 sigma)`: the kernel covers three
//! standard deviations to either side, 99.7 % of the bell. Beyond the border the image is mirrored at its outermost pixel
//! (`... 2 1 | 0 1 2 ... `), and again at the other end where it is smaller than the radius, which torchvision refuses. The
//! two axes are independent: columns first, then rows.

/// Blurs planes; holds the working memory, so that a call allocates nothing once it has grown.
#[derive(Default)]
pub(super) struct Blur {
    /// Weights of the distances 0 to `r`.
    weights: Vec<f32>,
    /// A column with its mirrored ends.
    column: Vec<f32>,
    /// A plane after the first pass.
    half: Vec<f32>,
}

impl Blur {
    /// Blurs planes of `side` x `side` pixels, which run column by column.
    pub fn apply(&mut self, planes: &mut [f32], side: usize, sigma: f32) {
        self.fill(sigma);
        let Blur { weights, column, half } = self;
        let radius = weights.len() - 1;
        column.resize(side + 2 * radius, 0.0);
        half.resize(side * side, 0.0);
        for plane in planes.chunks_exact_mut(side * side) {
            for (out, source) in half.chunks_exact_mut(side).zip(plane.chunks_exact(side)) {
                column[radius..radius + side].copy_from_slice(source);
                for t in 1..=radius {
                    column[radius - t] = source[mirrored(-(t as isize), side)];
                    column[radius + side - 1 + t] = source[mirrored((side - 1 + t) as isize, side)];
                }
                weigh(out, weights, |t| &column[radius.strict_add_signed(t)..][..side]);
            }
            for (x, out) in plane.chunks_exact_mut(side).enumerate() {
                weigh(out, weights, |t| &half[mirrored(x as isize + t, side) * side..][..side]);
            }
        }
    }

    /// The weights of `sigma`. That of distance 0 is 1 before the division, also for a sigma so small that it is zero.
    fn fill(&mut self, sigma: f32) {
        let sigma = f64::from(sigma);
        let bell = |t: usize| if t == 0 { 1.0 } else { (-0.5 * (t as f64 / sigma).powi(2)).exp() };
        let radius = (3.0 * sigma).ceil() as usize;
        let total = 1.0 + 2.0 * (1..=radius).map(bell).sum::<f64>();
        self.weights.clear();
        self.weights.extend((0..=radius).map(|t| (bell(t) / total) as f32));
    }
}

/// The sum of the lines `at` every distance, each times its weight.
fn weigh<'a>(out: &mut [f32], weights: &[f32], at: impl Fn(isize) -> &'a [f32]) {
    for (o, v) in out.iter_mut().zip(at(0)) {
        *o = weights[0] * v;
    }
    for (t, w) in weights.iter().enumerate().skip(1) {
        // The kernel is symmetric: one multiplication for both sides.
        let (before, after) = (at(-(t as isize)), at(t as isize));
        for ((o, a), b) in out.iter_mut().zip(before).zip(after) {
            *o += w * (a + b);
        }
    }
}

/// The pixel at index `i` of a line of `n` pixels that is mirrored at both ends: a wave of period `2 (n - 1)`.
fn mirrored(i: isize, n: usize) -> usize {
    let last = n as isize - 1;
    if last == 0 {
        return 0;
    }
    let i = i.rem_euclid(2 * last);
    i.min(2 * last - i) as usize
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use pcp_core::rng::{Key, Purpose};

    /// Direct two-dimensional convolution in double precision; `plane[a][b]` in either order, since the kernel is the same
    /// both ways.
    pub fn twin(plane: &[f64], side: usize, sigma: f64) -> Vec<f64> {
        let r = (3.0 * sigma).ceil() as i64;
        let bell = |t: i64| (-((t * t) as f64) / (2.0 * sigma * sigma)).exp();
        let total: f64 = (-r..=r).map(bell).sum();
        // From mirror to mirror, until it is inside.
        let inside = |mut i: i64| {
            let last = side as i64 - 1;
            while last > 0 && !(0..=last).contains(&i) {
                i = if i < 0 { -i } else { 2 * last - i };
            }
            if last == 0 { 0 } else { i as usize }
        };
        let mut out = Vec::new();
        for a in 0..side as i64 {
            for b in 0..side as i64 {
                let mut sum = 0.0;
                for s in -r..=r {
                    for t in -r..=r {
                        sum += bell(s) * bell(t) / (total * total) * plane[inside(a + s) * side + inside(b + t)];
                    }
                }
                out.push(sum);
            }
        }
        out
    }

    fn noise(n: usize) -> Vec<f32> {
        let mut rng = Key { purpose: Purpose::Synthetic, seed: 8, round: 0, epoch: 0 }.stream(0, 0);
        (0..n).map(|_| rng.unit()).collect()
    }

    fn blurred(planes: &[f32], side: usize, sigma: f32) -> Vec<f32> {
        let mut out = planes.to_vec();
        Blur::default().apply(&mut out, side, sigma);
        out
    }

    #[test]
    fn matches_direct_convolution_also_in_images_smaller_than_the_radius() {
        let mut blur = Blur::default();
        for (side, sigma) in [(1, 2.0), (2, 2.0), (3, 5.0), (5, 0.1), (8, 2.0), (20, 0.7), (20, 2.0), (33, 1.3)] {
            let planes = noise(3 * side * side);
            let mut got = planes.clone();
            // The same buffers for all sizes.
            blur.apply(&mut got, side, sigma);
            for (plane, got) in planes.chunks(side * side).zip(got.chunks(side * side)) {
                let plane: Vec<f64> = plane.iter().map(|v| f64::from(*v)).collect();
                for (got, want) in got.iter().zip(twin(&plane, side, f64::from(sigma))) {
                    assert!((f64::from(*got) - want).abs() < 1e-6, "side {side}, sigma {sigma}: {got} {want}");
                }
            }
            assert_eq!(got, blurred(&planes, side, sigma), "the same bits again");
        }
    }

    /// torchvision's `_get_gaussian_kernel1d(2 * ceil(3 * sigma) + 1, sigma)`, its second half, in double precision:
    /// `p = np.exp(-0.5 * (np.linspace(-r, r, 2 * r + 1) / sigma) ** 2); (p / p.sum())[r:]`.
    #[test]
    fn golden_kernels() {
        let kernel = |sigma: f32| {
            let mut blur = Blur::default();
            blur.fill(sigma);
            blur.weights
        };
        for (sigma, want) in [
            (0.5, &[0.786_570_7, 0.106_450_77, 0.000_263_865][..]),
            (1.0, &[0.399_050_28, 0.242_036_23, 0.054_005_583, 0.004_433_048]),
            (
                2.0,
                &[0.199_675_63, 0.176_213_12, 0.121_109_39, 0.064_825_185, 0.027_023_158, 0.008_773_135, 0.002_218_196],
            ),
        ] {
            let got = kernel(sigma);
            assert_eq!(got.len(), want.len(), "radius of {sigma}");
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() < 1e-7, "{sigma}: {got} {want}");
            }
        }
        for sigma in [1e-30, 0.1, 0.34, 1.7, 100.0] {
            let weights = kernel(sigma);
            assert_eq!(weights.len(), 1 + (3.0 * f64::from(sigma)).ceil() as usize);
            let total: f32 = weights[0] + 2.0 * weights[1..].iter().sum::<f32>();
            assert!((total - 1.0).abs() < 1e-5, "{sigma}: {total}");
        }
        assert_eq!(kernel(0.0), [1.0], "no blur at all");
    }

    #[test]
    fn a_point_spreads_and_keeps_its_sum_and_one_colour_stays() {
        let (side, sigma) = (25, 2.0);
        let mut point = vec![0.0; side * side];
        point[12 * side + 12] = 1.0;
        let spread = blurred(&point, side, sigma);
        assert!((spread.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        let at = |x: usize, y: usize| spread[x * side + y];
        assert_eq!((at(12, 6), at(12, 5)), (at(6, 12), 0.0), "round, and nothing beyond the radius of six");
        assert_eq!(at(10, 12), at(14, 12));
        assert!(at(12, 12) > at(12, 11) && at(12, 11) > at(11, 11));
        for side in [1, 4, 25] {
            assert!(blurred(&vec![0.7; side * side], side, sigma).iter().all(|v| (v - 0.7).abs() < 1e-6));
        }
    }

    #[test]
    fn lines_are_mirrored_at_their_ends() {
        let line = |n: usize| (-5..8).map(|i| mirrored(i, n)).collect::<Vec<_>>();
        assert_eq!(line(4), [1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1]);
        assert_eq!(line(2), [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
        assert_eq!(line(1), [0; 13]);
    }
}
