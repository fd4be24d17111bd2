//! Non-maximum suppression: of boxes that overlap, the one with the highest score stays.

use super::boxes::{Bounds, Columns};
use pulp::Arch;

/// The rows of the boxes that stay, best first, at most `most`: a box goes when its IoU with a better one that stays is above
/// `threshold`. Of equal scores the earlier is the better one.
pub fn nms(boxes: &[Bounds], scores: &[f32], threshold: f32, most: usize) -> Vec<usize> {
    assert_eq!(boxes.len(), scores.len(), "a score for every box");
    let order = best_first(scores, boxes.len());
    let columns = Columns::new(order.iter().map(|i| boxes[*i]));
    let mut gone = vec![false; order.len()];
    let mut overlap = vec![0.0f32; order.len()];
    let mut kept = Vec::new();
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for i in 0..order.len() {
                if kept.len() == most {
                    break;
                }
                if gone[i] {
                    continue;
                }
                kept.push(order[i]);
                let rest = order.len() - i - 1;
                columns.overlaps(boxes[order[i]], i + 1, &mut overlap[..rest]);
                for (gone, overlap) in gone[i + 1..].iter_mut().zip(&overlap[..rest]) {
                    *gone |= *overlap > threshold;
                }
            }
        },
    );
    kept
}

/// The rows of the `most` highest scores, best first; of equal ones the earlier first.
pub fn best_first(scores: &[f32], most: usize) -> Vec<usize> {
    // A number that is none is worse than any.
    let worth = |i: &usize| if scores[*i].is_nan() { f32::NEG_INFINITY } else { scores[*i] };
    let better = |a: &usize, b: &usize| worth(b).total_cmp(&worth(a)).then(a.cmp(b));
    let mut order: Vec<usize> = (0..scores.len()).collect();
    if most < order.len() {
        order.select_nth_unstable_by(most, better);
        order.truncate(most);
    }
    order.sort_unstable_by(better);
    order
}

#[cfg(test)]
mod tests {
    use super::super::boxes::tests::twelve;
    use super::super::boxes::{area, iou};
    use super::*;
    use proptest::prelude::*;

    /// The definition: a box stays when no better one that stays overlaps it.
    fn slow(boxes: &[Bounds], scores: &[f32], threshold: f32) -> Vec<usize> {
        let mut kept: Vec<usize> = Vec::new();
        for i in best_first(scores, scores.len()) {
            if kept.iter().all(|k| iou(boxes[*k], boxes[i]) <= threshold) {
                kept.push(i);
            }
        }
        kept
    }

    /// torchvision 0.29: `nms(b, torch.sin(i * 1.3), t)` of the twelve boxes.
    #[test]
    fn what_stays_is_what_torchvision_keeps() {
        let scores: Vec<f32> = (0..12).map(|i| (i as f32 * 1.3).sin()).collect();
        assert_eq!(nms(&twelve(), &scores, 0.1, 99), [6, 11, 10, 0, 8]);
        assert_eq!(nms(&twelve(), &scores, 0.3, 99), [6, 11, 1, 10, 7, 5, 0, 3, 9, 8, 4]);
        assert_eq!(nms(&twelve(), &scores, 0.5, 99), [6, 11, 1, 2, 10, 7, 5, 0, 3, 9, 8, 4]);
        assert_eq!(nms(&twelve(), &scores, 0.5, 3), [6, 11, 1]);
    }

    #[test]
    fn nothing_one_and_all_the_same() {
        assert!(nms(&[], &[], 0.5, 10).is_empty());
        let one = [1.0, 1.0, 4.0, 4.0];
        assert_eq!(nms(&[one], &[0.1], 0.5, 10), [0]);
        assert_eq!(nms(&[one; 5], &[0.1; 5], 0.5, 10), [0]);
        assert_eq!(nms(&[one; 3], &[f32::NAN, 0.0, 1.0], 1.0, 10), [2, 1, 0], "nothing is above 1");
        assert!(nms(&[one], &[0.1], 0.5, 0).is_empty());
    }

    proptest! {
        #[test]
        fn it_is_its_definition(
            found in prop::collection::vec((0i32..30, 0i32..30, 1i32..20, 1i32..20, 0i32..6), 0..60),
            threshold in 0.05f32..0.95,
        ) {
            let boxes: Vec<Bounds> =
                found.iter().map(|(x, y, w, h, _)| [*x, *y, x + w, y + h].map(|v| v as f32)).collect();
            let scores: Vec<f32> = found.iter().map(|f| f.4 as f32).collect();
            prop_assert!(boxes.iter().all(|b| area(*b) > 0.0));
            prop_assert_eq!(nms(&boxes, &scores, threshold, usize::MAX), slow(&boxes, &scores, threshold));
        }

        #[test]
        fn the_best_few_are_the_first_of_all(scores in prop::collection::vec(0i32..9, 0..50), most in 0usize..60) {
            let scores: Vec<f32> = scores.into_iter().map(|s| s as f32).collect();
            let all = best_first(&scores, scores.len());
            prop_assert_eq!(best_first(&scores, most), &all[..most.min(all.len())]);
        }
    }
}
