//! Boxes: overlap, and the four numbers that encode a box relative to another.

use pulp::Arch;
use rayon::prelude::*;

/// Left, top, right, bottom in pixels; right and bottom are exclusive.
pub type Bounds = [f32; 4];

/// The most by which a box may grow in one step, as a logarithm: from 16 px to 1000.
const MOST_GROWTH: f32 = 4.135_166_6;

/// Width times height.
pub fn area([left, top, right, bottom]: Bounds) -> f32 {
    (right - left) * (bottom - top)
}

/// Intersection over union; 0 for boxes that do not overlap.
pub fn iou(a: Bounds, b: Bounds) -> f32 {
    let width = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let height = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let both = width * height;
    if both > 0.0 { both / (area(a) + area(b) - both) } else { 0.0 }
}

/// Boxes as four rows of numbers and their areas, so that many are compared at once.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    left: Vec<f32>,
    top: Vec<f32>,
    right: Vec<f32>,
    bottom: Vec<f32>,
    area: Vec<f32>,
}

impl Columns {
    /// The boxes in the order of the iterator.
    pub fn new(boxes: impl Iterator<Item = Bounds> + Clone) -> Columns {
        let column = |c: usize| boxes.clone().map(|b| b[c]).collect();
        let [left, top, right, bottom] = [0, 1, 2, 3].map(column);
        Columns { left, top, right, bottom, area: boxes.map(area).collect() }
    }

    /// IoU of `one` with the boxes from `first` on.
    #[inline(always)]
    pub fn overlaps(&self, one: Bounds, first: usize, out: &mut [f32]) {
        let own = area(one);
        let n = self.left.len() - first;
        let (left, top) = (&self.left[first..], &self.top[first..]);
        let (right, bottom, area) = (&self.right[first..], &self.bottom[first..], &self.area[first..]);
        let out = &mut out[..n];
        for j in 0..n {
            let width = (one[2].min(right[j]) - one[0].max(left[j])).max(0.0);
            let height = (one[3].min(bottom[j]) - one[1].max(top[j])).max(0.0);
            let both = width * height;
            // Two empty boxes have no union to divide by.
            out[j] = both / (own + area[j] - both).max(f32::MIN_POSITIVE);
        }
    }
}

/// IoU of every box of `a` with every one of `b`, `[a][b]`.
pub fn iou_matrix(a: &[Bounds], b: &[Bounds]) -> Vec<f32> {
    let mut out = vec![0.0; a.len() * b.len()];
    if b.is_empty() {
        return out;
    }
    let columns = Columns::new(b.iter().copied());
    // A task should be worth its start: some ten thousand pairs.
    let rows = (20_000 / b.len()).max(1);
    out.par_chunks_mut(rows * b.len()).zip(a.par_chunks(rows)).for_each(|(out, a)| {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                for (out, one) in out.chunks_exact_mut(b.len()).zip(a) {
                    columns.overlaps(*one, 0, out);
                }
            },
        );
    });
    out
}

fn centre([left, top, right, bottom]: Bounds) -> [f32; 4] {
    let (width, height) = (right - left, bottom - top);
    [left + 0.5 * width, top + 0.5 * height, width, height]
}

/// How to get from the box `from` to the box `to`: shift by its width and height, and logarithm of the growth, each divided
/// by `unit`.
pub fn encode(from: Bounds, to: Bounds, unit: [f32; 4]) -> [f32; 4] {
    let ([x, y, w, h], [tx, ty, tw, th]) = (centre(from), centre(to));
    let steps = [(tx - x) / w, (ty - y) / h, (tw / w).ln(), (th / h).ln()];
    [0, 1, 2, 3].map(|i| steps[i] / unit[i])
}

/// The reverse of [`encode`]; growth is bounded.
pub fn decode(from: Bounds, steps: [f32; 4], unit: [f32; 4]) -> Bounds {
    let [x, y, w, h] = centre(from);
    let [dx, dy, dw, dh] = [0, 1, 2, 3].map(|i| steps[i] * unit[i]);
    let (x, y) = (x + dx * w, y + dy * h);
    let (w, h) = (w * dw.min(MOST_GROWTH).exp(), h * dh.min(MOST_GROWTH).exp());
    [x - 0.5 * w, y - 0.5 * h, x + 0.5 * w, y + 0.5 * h]
}

/// The part of a box inside an image.
pub fn clip([left, top, right, bottom]: Bounds, width: f32, height: f32) -> Bounds {
    let (x, y) = (|v: f32| v.clamp(0.0, width), |v: f32| v.clamp(0.0, height));
    [x(left), y(top), x(right), y(bottom)]
}

/// The box in the mirror image of an image of that width.
pub fn mirrored([left, top, right, bottom]: Bounds, width: f32) -> Bounds {
    [width - right, top, width - left, bottom]
}

/// The box in an image that was made larger by `factor`.
pub fn scaled(bounds: Bounds, factor: [f32; 2]) -> Bounds {
    [bounds[0] * factor[0], bounds[1] * factor[1], bounds[2] * factor[0], bounds[3] * factor[1]]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Twelve boxes for goldens; in Python, with `i = torch.arange(12.)`:
    /// `left, top = i*37 % 50, i*23 % 40; b = stack([left, top, left + 10 + i*7 % 25, top + 8 + i*11 % 30], 1)`.
    pub fn twelve() -> Vec<Bounds> {
        let of = |i: usize| {
            let (left, top) = (i * 37 % 50, i * 23 % 40);
            [left, top, left + 10 + i * 7 % 25, top + 8 + i * 11 % 30].map(|v| v as f32)
        };
        (0..12).map(of).collect()
    }

    pub fn near(found: &[f32], expected: &[f32], within: f32) {
        assert_eq!(found.len(), expected.len());
        for (i, (a, b)) in found.iter().zip(expected).enumerate() {
            assert!((a - b).abs() <= within * b.abs().max(1.0), "value {i} is {a}, not {b}");
        }
    }

    /// torchvision 0.29: `box_iou(b[:4], b[4:9])`.
    #[test]
    fn overlaps_are_those_of_torchvision() {
        let b = twelve();
        #[rustfmt::skip]
        let golden = [
            0.0, 0.0, 0.0, 0.007584, 0.0, 0.121547, 0.137731, 0.182125, 0.015584, 0.190728,
            0.0, 0.00951, 0.440945, 0.319328, 0.018868, 0.0, 0.036232, 0.091047, 0.0, 0.0,
        ];
        near(&iou_matrix(&b[..4], &b[4..9]), &golden, 1e-6);
        assert!(iou_matrix(&b, &[]).is_empty() && iou_matrix(&[], &b).is_empty());
    }

    /// torchvision 0.29: `BoxCoder((10, 10, 5, 5))`, `encode([b[:4]], [b[4:8]])`, `decode_single`, and growth beyond the bound.
    #[test]
    fn steps_between_boxes_are_those_of_torchvision() {
        let (b, unit) = (twelve(), [0.1, 0.1, 0.2, 0.2]);
        let found: Vec<f32> = (0..4).flat_map(|i| encode(b[4 + i], b[i], unit)).collect();
        #[rustfmt::skip]
        let golden = [
            -38.07692, -8.636364, -1.311821, -5.058004, 0.25, -5.757576, -0.812595, -2.760343,
            0.185185, -2.857143, -0.588915, 3.8107, 0.147059, 8.4, -0.461867, -4.104903,
        ];
        near(&found, &golden, 1e-6);
        let steps = [[0.5, -1.0, 0.2, 0.3], [1.0, 2.0, -3.0, 4.0], [0.0, 0.0, 30.0, -2.0], [-0.7, 0.1, 0.0, 50.0]];
        let found: Vec<f32> = (0..4).flat_map(|i| decode(b[4 + i], steps[i], unit)).collect();
        #[rustfmt::skip]
        let golden = [
            48.38473, 9.119797, 61.91527, 32.4802, 41.51188, 21.37857, 52.48812, 94.82143,
            -808.2501, 20.30776, 879.2501, 29.69224, 6.619999, -767.5001, 40.62, 795.0001,
        ];
        near(&found, &golden, 1e-6);
        near(&decode(b[4], [0.0, 0.0, 5.0, -5.0], [1.0; 4]), &[-351.75, 22.92588, 460.75, 23.07412], 1e-6);
    }

    #[test]
    fn empty_boxes_overlap_nothing() {
        let empty = [5.0, 5.0, 5.0, 5.0];
        assert_eq!(iou(empty, empty), 0.0);
        assert_eq!(iou_matrix(&[empty], &[empty, [0.0, 0.0, 9.0, 9.0]]), [0.0, 0.0]);
    }

    fn bounds() -> impl Strategy<Value = Bounds> {
        (-50.0f32..50.0, -50.0f32..50.0, 1.0f32..60.0, 1.0f32..60.0).prop_map(|(x, y, w, h)| [x, y, x + w, y + h])
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(from in bounds(), to in bounds()) {
            let unit = [0.1, 0.1, 0.2, 0.2];
            near(&decode(from, encode(from, to, unit), unit), &to, 1e-4);
        }

        #[test]
        fn the_matrix_is_every_pair(a in prop::collection::vec(bounds(), 1..20), b in prop::collection::vec(bounds(), 1..20)) {
            let slow: Vec<f32> = a.iter().flat_map(|a| b.iter().map(move |b| iou(*a, *b))).collect();
            prop_assert_eq!(iou_matrix(&a, &b), slow);
        }

        #[test]
        fn two_mirrors_and_two_scales_lead_back(b in bounds()) {
            near(&mirrored(mirrored(b, 77.0), 77.0), &b, 1e-5);
            near(&scaled(scaled(b, [2.0, 4.0]), [0.5, 0.25]), &b, 1e-6);
            let [left, top, right, bottom] = clip(b, 20.0, 10.0);
            prop_assert!(left >= 0.0 && top >= 0.0 && right <= 20.0 && bottom <= 10.0 && left <= right && top <= bottom);
        }
    }
}
