//! Anchors: boxes of a few sizes and shapes at every cell of the map; proposals are anchors that the network has moved.

use super::boxes::Bounds;

/// Pixels between two cells of the map: four halvings.
pub const STRIDE: usize = 16;
/// Height over width of the anchors' shapes.
const RATIOS: [f32; 3] = [0.5, 1.0, 2.0];
/// Sizes of the anchors in strides, where the short side is 600 px.
const SCALES: [f32; 3] = [8.0, 16.0, 32.0];
/// The short side that these sizes are for.
const SHORT_SIDE: f32 = 600.0;
/// Anchors per cell.
pub const PER_CELL: usize = RATIOS.len() * SCALES.len();

/// The anchors of the first cell, in whole pixels, shape by shape. Sizes are in proportion to the short side, so that an object
/// has the same anchor at any scale of its image.
///
/// Paper: its one scale is 600, and there the sizes are the paper's.
pub fn base(short_side: usize) -> [Bounds; PER_CELL] {
    let mut out = [[0.0; 4]; PER_CELL];
    for (i, bounds) in out.iter_mut().enumerate() {
        let size = SCALES[i % SCALES.len()] * STRIDE as f32 * short_side as f32 / SHORT_SIDE;
        let tall = RATIOS[i / SCALES.len()].sqrt();
        let (x, y) = ((size / tall / 2.0).round_ties_even(), (size * tall / 2.0).round_ties_even());
        *bounds = [-x, -y, x, y];
    }
    out
}

/// The anchors of a map of `height` x `width` cells, cell by cell.
pub fn grid(base: &[Bounds; PER_CELL], height: usize, width: usize) -> Vec<Bounds> {
    let at = |cell: usize| {
        let (x, y) = ((cell % width * STRIDE) as f32, (cell / width * STRIDE) as f32);
        base.iter().map(move |b| [b[0] + x, b[1] + y, b[2] + x, b[3] + y])
    };
    (0..height * width).flat_map(at).collect()
}

/// Cells of the map along a side of an image, given in pixels.
pub fn cells(pixels: usize) -> usize {
    pixels.div_ceil(STRIDE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// torchvision 0.29: `AnchorGenerator(((128, 256, 512),), ((.5, 1., 2.),))` on an image of 32 x 48 with a map of 2 x 3.
    #[test]
    fn anchors_are_those_of_torchvision() {
        let base = base(600);
        #[rustfmt::skip]
        let golden = [
            [-91.0, -45.0, 91.0, 45.0], [-181.0, -91.0, 181.0, 91.0], [-362.0, -181.0, 362.0, 181.0],
            [-64.0, -64.0, 64.0, 64.0], [-128.0, -128.0, 128.0, 128.0], [-256.0, -256.0, 256.0, 256.0],
            [-45.0, -91.0, 45.0, 91.0], [-91.0, -181.0, 91.0, 181.0], [-181.0, -362.0, 181.0, 362.0],
        ];
        assert_eq!(base, golden);
        let all = grid(&base, 2, 3);
        assert_eq!(all.len(), 54);
        assert_eq!(all[..9], golden);
        assert_eq!(all[9 + 4], [-112.0, -128.0, 144.0, 128.0], "to the right");
        assert_eq!(all[3 * 9 + 4], [-128.0, -112.0, 128.0, 144.0], "and down");
    }

    #[test]
    fn a_smaller_image_has_smaller_anchors() {
        let small = base(300);
        assert_eq!(small[3], [-32.0, -32.0, 32.0, 32.0]);
        assert!(grid(&small, 0, 4).is_empty());
        assert_eq!((cells(1), cells(16), cells(17)), (1, 1, 2));
    }
}
