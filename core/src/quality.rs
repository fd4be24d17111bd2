//! Plain properties of a picture: how dark, how bright, how colourful, how blurred.
//!
//! The blur of an edge is found by blurring it once more (Zhuo and Sim 2011): an edge that a Gaussian of width `s` has blurred has a gradient
//! that shrinks by `R = sqrt(s^2 + s0^2) / s` when a Gaussian of width `s0` blurs it again, so that `s = s0 / sqrt(R^2 - 1)`. Only the
//! strongest gradients of a picture are edges, and the sharper ones of them decide: what is before a blurred background counts.

/// Width of the second Gaussian, in pixels.
const SECOND: f32 = 1.5;
/// Half the length of its kernel.
const REACH: usize = 5;
/// Share of the pixels that count as edges: those with the strongest gradients.
const EDGES: f32 = 0.02;
/// Share of the edges that are sharper than the blur that is given.
const SHARPER: f32 = 0.25;
/// A gradient, in grey values of 255 per pixel, below which nothing is an edge.
const FAINT: f32 = 1.0;
/// The widest blur that can be told from a wider one.
const WIDEST: f32 = 8.0;

/// Properties of a picture. Grey values are from 0 to 255.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// The grey value below which 5 % of the pixels are.
    pub low: f32,
    /// The grey value below which half of the pixels are.
    pub middle: f32,
    /// The grey value below which 99 % of the pixels are.
    pub high: f32,
    /// Standard deviation of the grey values.
    pub contrast: f32,
    /// The difference between the greatest and the least of red, green and blue that 99 % of the pixels stay below.
    pub colour: f32,
    /// Width of the blur of its sharper edges, in pixels: the standard deviation of a Gaussian. `None` without edges.
    pub blur: Option<f32>,
}

impl Quality {
    /// Of a picture of `width` pixels a row, `[height, width, 3]`.
    pub fn of(pixels: &[u8], width: usize) -> Quality {
        let (mut greys, mut spreads) = ([0usize; 256], [0usize; 256]);
        let grey: Vec<f32> = (pixels.chunks_exact(3))
            .map(|p| {
                let grey = 0.299 * f32::from(p[0]) + 0.587 * f32::from(p[1]) + 0.114 * f32::from(p[2]);
                greys[(grey + 0.5) as usize] += 1;
                spreads[usize::from(p[0].max(p[1]).max(p[2]) - p[0].min(p[1]).min(p[2]))] += 1;
                grey
            })
            .collect();
        let count = grey.len().max(1) as f32;
        let mean = grey.iter().sum::<f32>() / count;
        let variance = grey.iter().map(|g| (g - mean) * (g - mean)).sum::<f32>() / count;
        Quality {
            low: below(&greys, 0.05),
            middle: below(&greys, 0.5),
            high: below(&greys, 0.99),
            contrast: variance.sqrt(),
            colour: below(&spreads, 0.99),
            blur: blur(&grey, width.max(1)),
        }
    }
}

/// The value below or at which this share of the counted ones is.
fn below(counts: &[usize; 256], share: f32) -> f32 {
    let all: usize = counts.iter().sum();
    let wanted = (all as f32 * share) as usize;
    let mut seen = 0;
    for (value, count) in counts.iter().enumerate() {
        seen += count;
        if seen > wanted {
            return value as f32;
        }
    }
    0.0
}

/// Width of the blur of the sharper edges.
fn blur(grey: &[f32], width: usize) -> Option<f32> {
    let height = grey.len() / width;
    if width < 2 * REACH || height < 2 * REACH {
        return None;
    }
    let again = smoothed(grey, width);
    // Squared gradients of both, by their places; the border, where the second blur has nothing to reach, does not count.
    let inner = |from: usize| REACH..from - REACH;
    let slope = |of: &[f32], at: usize| {
        let (across, along) = (of[at + 1] - of[at - 1], of[at + width] - of[at - width]);
        (across * across + along * along) / 4.0
    };
    let mut slopes: Vec<(f32, u32)> = inner(height)
        .flat_map(|y| inner(width).map(move |x| y * width + x))
        .map(|at| (slope(grey, at), at as u32))
        .collect();
    let edges = ((slopes.len() as f32 * EDGES) as usize).max(1);
    if slopes.is_empty() {
        return None;
    }
    slopes.select_nth_unstable_by(edges - 1, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut widths: Vec<f32> = (slopes[..edges].iter().filter(|(first, _)| *first > FAINT * FAINT))
        .map(|(first, at)| {
            let squared = first / slope(&again, *at as usize).max(f32::MIN_POSITIVE);
            if squared > 1.0 { (SECOND / (squared - 1.0).sqrt()).min(WIDEST) } else { WIDEST }
        })
        .collect();
    if widths.is_empty() {
        return None;
    }
    let at = (widths.len() as f32 * SHARPER) as usize;
    Some(*widths.select_nth_unstable_by(at, f32::total_cmp).1)
}

/// The picture blurred by a Gaussian of width [`SECOND`]; pixels near the border keep what the shorter kernel gives.
fn smoothed(grey: &[f32], width: usize) -> Vec<f32> {
    let height = grey.len() / width;
    let weight = |d: usize| (-((d * d) as f32) / (2.0 * SECOND * SECOND)).exp();
    let total = 1.0 + 2.0 * (1..=REACH).map(weight).sum::<f32>();
    let weights: [f32; REACH + 1] = std::array::from_fn(|d| weight(d) / total);
    let mut rows = grey.to_vec();
    for (out, row) in rows.chunks_exact_mut(width).zip(grey.chunks_exact(width)) {
        for (x, out) in out[REACH..width - REACH].iter_mut().enumerate() {
            let near = &row[x..x + 2 * REACH + 1];
            *out = near[REACH] * weights[0]
                + (1..=REACH).map(|d| (near[REACH - d] + near[REACH + d]) * weights[d]).sum::<f32>();
        }
    }
    let mut both = rows.clone();
    for y in REACH..height - REACH {
        let out = &mut both[y * width..(y + 1) * width];
        out.iter_mut().zip(&rows[y * width..]).for_each(|(o, r)| *o = r * weights[0]);
        for (d, weight) in weights.iter().enumerate().skip(1) {
            let (above, below) = (&rows[(y - d) * width..], &rows[(y + d) * width..]);
            out.iter_mut().zip(above.iter().zip(below)).for_each(|(o, (a, b))| *o += (a + b) * weight);
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The integral of a Gaussian of width `s`, from 0 to 1: a step that it has blurred.
    fn step(x: f32, s: f32) -> f32 {
        let t = x / s;
        // Abramowitz and Stegun 7.1.26, to 1e-7.
        let z = t.abs() / std::f32::consts::SQRT_2;
        let k = 1.0 / (1.0 + 0.327_591_1 * z);
        let tail = k * (0.254_829_6 + k * (-0.284_496_7 + k * (1.421_413_7 + k * (-1.453_152 + k * 1.061_405_4))));
        let erf = 1.0 - tail * (-z * z).exp();
        0.5 + 0.5 * erf * t.signum()
    }

    fn edges(side: usize, s: f32) -> Vec<u8> {
        let grey = |i: usize| (30.0 + 180.0 * step((i % side) as f32 - side as f32 / 2.0, s)) as u8;
        (0..side * side).flat_map(|i| [grey(i); 3]).collect()
    }

    #[test]
    fn the_blur_of_a_step_is_found() {
        for s in [1.0, 2.0, 3.0, 4.0f32] {
            let found = Quality::of(&edges(96, s), 96).blur.unwrap();
            // The difference of two pixels, of which slopes are made, widens the narrowest edges by a sixth.
            assert!((found / s - 1.0).abs() < 0.2, "{found} is not {s}");
        }
        let sharp = Quality::of(&edges(96, 0.2), 96).blur.unwrap();
        assert!(sharp < 1.1, "{sharp}: a step that nothing blurred is narrower than the narrowest above");
    }

    #[test]
    fn the_second_blur_is_that_of_its_definition() {
        let (width, height) = (17, 14);
        let grey: Vec<f32> = (0..width * height).map(|i| ((i * i * 7 + i / 3) % 251) as f32).collect();
        let fast = smoothed(&grey, width);
        let weight = |d: isize| (-((d * d) as f64) / (2.0 * f64::from(SECOND).powi(2))).exp();
        let reach = -(REACH as isize)..=REACH as isize;
        let total: f64 = reach.clone().map(weight).sum();
        for y in REACH..height - REACH {
            for x in REACH..width - REACH {
                let at = |dy: isize, dx: isize| {
                    let (row, column) = (y.checked_add_signed(dy).unwrap(), x.checked_add_signed(dx).unwrap());
                    f64::from(grey[row * width + column]) * weight(dy) * weight(dx)
                };
                let slow: f64 =
                    reach.clone().flat_map(|dy| reach.clone().map(move |dx| (dy, dx))).map(|(dy, dx)| at(dy, dx)).sum();
                assert!((f64::from(fast[y * width + x]) - slow / total / total).abs() < 1e-3, "{x} {y}");
            }
        }
    }

    #[test]
    fn grey_values_and_colours_are_counted() {
        // 90 of 100 pixels are (100, 100, 100), ten are red.
        let pixels: Vec<u8> = (0..100).flat_map(|i| if i < 90 { [100; 3] } else { [255, 0, 0] }).collect();
        let found = Quality::of(&pixels, 10);
        assert_eq!((found.low, found.middle, found.high, found.colour), (76.0, 100.0, 100.0, 255.0));
        // Variance of 90 times 100 and 10 times 76.245: 0.09 * 23.755^2.
        assert!((found.contrast - 0.3 * 23.755).abs() < 1e-3, "{}", found.contrast);
        let red = |n: usize| (0..1000).flat_map(|i| if i < n { [200, 10, 10] } else { [9; 3] }).collect::<Vec<u8>>();
        assert_eq!(
            (Quality::of(&red(9), 10).colour, Quality::of(&red(11), 10).colour),
            (0.0, 190.0),
            "1 % may have colour"
        );
    }

    #[test]
    fn flat_tiny_and_empty_pictures_have_no_edges() {
        for (side, level) in [(40, 0), (40, 255), (3, 7), (1, 9), (0, 0)] {
            let found = Quality::of(&vec![level; side * side * 3], side);
            assert_eq!((found.blur, found.contrast), (None, 0.0), "{side}");
        }
    }
}
