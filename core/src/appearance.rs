//! Colours and light of a picture as numbers, so that pictures are compared without a network.

use crate::copies::{SIDE, Thumbnail};
use crate::matrix::Matrix;

/// Steps of red, green and blue in the table of colours.
const STEPS: usize = 4;
/// Numbers of [`light`].
const LIGHT: usize = 12;
/// A deviation that counts as none.
const FLAT: f32 = 1e-3;

/// Two descriptions of pictures, a row each: their colours, and their light and shape with every column of mean 0 and deviation 1. `shapes` are width over height.
pub fn described(thumbnails: &[&Thumbnail], shapes: &[f32]) -> [Matrix; 2] {
    let table = thumbnails.iter().flat_map(|thumbnail| colours(thumbnail)).collect();
    let mut values: Vec<f32> =
        thumbnails.iter().zip(shapes).flat_map(|(thumbnail, shape)| light(thumbnail, *shape)).collect();
    let rows = thumbnails.len();
    for column in 0..LIGHT {
        let all = || values.iter().skip(column).step_by(LIGHT);
        let mean = all().sum::<f32>() / rows.max(1) as f32;
        let deviation = (all().map(|x| (x - mean) * (x - mean)).sum::<f32>() / rows.max(1) as f32).sqrt() + FLAT;
        values.iter_mut().skip(column).step_by(LIGHT).for_each(|x| *x = (*x - mean) / deviation);
    }
    let matrix = |dim: usize, values: Vec<f32>| Matrix { rows, dim, values };
    [matrix(STEPS * STEPS * STEPS, table), matrix(LIGHT, values)]
}

/// Square roots of the shares of 64 colours: unit vectors, whose distances are Hellinger's.
fn colours(thumbnail: &Thumbnail) -> Vec<f32> {
    let mut counts = [0u32; STEPS * STEPS * STEPS];
    let step = |x: u8| usize::from(x) * STEPS / 256;
    for p in thumbnail.pixels.chunks_exact(3) {
        counts[(step(p[0]) * STEPS + step(p[1])) * STEPS + step(p[2])] += 1;
    }
    counts.iter().map(|count| (*count as f32 / (SIDE * SIDE) as f32).sqrt()).collect()
}

/// Mean and deviation of the grey values, their 5th and 95th hundredths, mean and deviation of the saturation, mean differences of pixels beside and below
/// each other, the logarithm of the shape, means of red, green and blue.
fn light(thumbnail: &Thumbnail, shape: f32) -> [f32; LIGHT] {
    let count = (SIDE * SIDE) as f32;
    let pixels = || thumbnail.pixels.chunks_exact(3).map(|p| [p[0], p[1], p[2]].map(|x| f32::from(x) / 255.0));
    let moments = |values: &[f32]| {
        let mean = values.iter().sum::<f32>() / count;
        (mean, (values.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count).sqrt())
    };
    let grey: Vec<f32> = pixels().map(|p| (p[0] + p[1] + p[2]) / 3.0).collect();
    let saturation = |p: [f32; 3]| {
        let (most, least) = (p[0].max(p[1]).max(p[2]), p[0].min(p[1]).min(p[2]));
        if most > 0.0 { (most - least) / most } else { 0.0 }
    };
    let (mean, deviation) = moments(&grey);
    let (colourful, spread) = moments(&pixels().map(saturation).collect::<Vec<f32>>());
    let beside = grey.chunks_exact(SIDE).flat_map(|row| row.windows(2)).map(|w| (w[1] - w[0]).abs()).sum::<f32>();
    let below = grey.iter().zip(&grey[SIDE..]).map(|(a, b)| (b - a).abs()).sum::<f32>();
    let mut sorted = grey;
    sorted.sort_unstable_by(f32::total_cmp);
    let plane = |c: usize| pixels().map(|p| p[c]).sum::<f32>() / count;
    let (low, high) = (sorted[sorted.len() / 20], sorted[sorted.len() * 19 / 20]);
    let shape = shape.max(f32::MIN_POSITIVE).ln();
    [mean, deviation, low, high, colourful, spread, beside / count, below / count, shape, plane(0), plane(1), plane(2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(colour: [u8; 3]) -> Thumbnail {
        Thumbnail { pixels: colour.repeat(SIDE * SIDE), small: false }
    }

    #[test]
    fn colours_are_unit_vectors_of_shares() {
        let half: Vec<u8> = [[255, 0, 0].repeat(SIDE * SIDE / 2), [0, 0, 255].repeat(SIDE * SIDE / 2)].concat();
        let found = colours(&Thumbnail { pixels: half, small: false });
        assert!((found[3 * 16] - 0.5f32.sqrt()).abs() < 1e-6 && (found[3] - 0.5f32.sqrt()).abs() < 1e-6);
        assert!((found.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    }

    /// Columns of black and white, one pixel each: every neighbour beside differs by 1, none below.
    #[test]
    fn light_check_values() {
        let stripes = (0..SIDE * SIDE).flat_map(|i| [if i % 2 == 0 { 0 } else { 255 }; 3]).collect();
        let found = light(&Thumbnail { pixels: stripes, small: false }, 1.0);
        let beside = (SIDE - 1) as f32 / SIDE as f32;
        let expected = [0.5, 0.5, 0.0, 1.0, 0.0, 0.0, beside, 0.0, 0.0, 0.5, 0.5, 0.5];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?}");
        let red = light(&flat([255, 0, 0]), 2.0);
        assert!((red[4] - 1.0).abs() < 1e-6 && (red[8] - 2f32.ln()).abs() < 1e-6 && red[9] == 1.0 && red[10] == 0.0);
    }

    #[test]
    fn descriptions_of_the_same_and_of_none() {
        let [colours, light] = described(&[&flat([9; 3]), &flat([9; 3])], &[1.0, 1.0]);
        assert_eq!((colours.row(0), light.row(0)), (colours.row(1), light.row(1)));
        assert!(light.values.iter().all(|x| x.abs() < 1e-3));
        let [colours, light] = described(&[], &[]);
        assert_eq!((colours.rows, light.rows, colours.dim, light.dim), (0, 0, 64, 12));
    }
}
