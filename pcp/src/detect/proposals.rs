//! The proposal layer: of all anchors, moved by the network's outputs, those with the highest scores that do not overlap much.

use super::boxes::{Bounds, clip, decode};
use super::nms::{best_first, nms};

/// Proposals that overlap more than this are the same.
const NMS: f32 = 0.7;
/// Boxes narrower or lower than this, in pixels, are dropped.
const LEAST: f32 = 1.0;

/// How many boxes go into suppression, and how many come out at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProposalLimits {
    /// The best by score, before suppression.
    pub before: usize,
    /// Proposals.
    pub after: usize,
}

/// The proposals of an image of `width` x `height`, best first: `anchors` moved by `steps`, four for each, by their `scores`.
pub fn propose(
    anchors: &[Bounds],
    scores: &[f32],
    steps: &[f32],
    (width, height): (f32, f32),
    limits: ProposalLimits,
) -> Vec<Bounds> {
    let mut boxes = Vec::new();
    let mut of = Vec::new();
    for i in best_first(scores, limits.before) {
        let step = [0, 1, 2, 3].map(|c| steps[i * 4 + c]);
        let bounds = clip(decode(anchors[i], step, [1.0; 4]), width, height);
        if bounds[2] - bounds[0] >= LEAST && bounds[3] - bounds[1] >= LEAST {
            boxes.push(bounds);
            of.push(scores[i]);
        }
    }
    nms(&boxes, &of, NMS, limits.after).into_iter().map(|i| boxes[i]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ProposalLimits = ProposalLimits { before: 4, after: 2 };

    #[test]
    fn the_best_stay_inside_the_image_and_apart() {
        let anchors = [
            [-10.0, -10.0, 20.0, 20.0],
            [0.0, 0.0, 20.0, 20.0], // the same, once the first is clipped
            [40.0, 40.0, 60.0, 60.0],
            [100.0, 100.0, 120.0, 120.0], // outside
            [30.0, 0.0, 50.0, 20.0],      // too bad to be looked at
        ];
        let scores = [0.9, 0.8, 0.5, 0.7, 0.1];
        let mut steps = vec![0.0; 20];
        steps[8] = -0.5; // the third one moves by half its width to the left
        let found = propose(&anchors, &scores, &steps, (50.0, 50.0), LIMITS);
        assert_eq!(found, [[0.0, 0.0, 20.0, 20.0], [30.0, 40.0, 50.0, 50.0]]);
        assert!(propose(&[], &[], &[], (50.0, 50.0), LIMITS).is_empty());
    }
}
