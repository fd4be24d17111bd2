//! Targets of the two stages: which anchors and proposals are objects, and the steps from them to the objects.

use super::boxes::{Bounds, encode, iou_matrix};
use pcp_core::rng::Stream;

/// An object to learn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// Its class, from 0.
    pub class: usize,
    /// Its box.
    pub bounds: Bounds,
}

/// Units of the box head's targets.
pub const UNIT: [f32; 4] = [0.1, 0.1, 0.2, 0.2];

/// Anchors with at least this IoU with an object are positive, those below the second with all objects are negative.
const ANCHOR_IS: f32 = 0.7;
const ANCHOR_IS_NOT: f32 = 0.3;
/// Proposals with at least this IoU show the object.
const PROPOSAL_IS: f32 = 0.5;
/// Share of a sample that may show objects: of anchors, of proposals.
const ANCHORS_SHARE: f64 = 0.5;
const PROPOSALS_SHARE: f64 = 0.25;

/// The anchors of one image that enter the loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnchorSample {
    /// Positive anchors, each with the step from it to its object.
    pub objects: Vec<(usize, [f32; 4])>,
    /// Negative anchors.
    pub nothing: Vec<usize>,
}

/// The proposals of one image that enter the loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProposalSample {
    /// Their boxes.
    pub bounds: Vec<Bounds>,
    /// The class and the step to its object of each; `None` for background.
    pub shows: Vec<Option<(usize, [f32; 4])>>,
}

/// For every box the truth it overlaps most (the first of equals) and by how much; and for every truth its best overlap.
fn matched(boxes: &[Bounds], truths: &[Truth]) -> (Vec<(usize, f32)>, Vec<f32>, Vec<f32>) {
    let bounds: Vec<Bounds> = truths.iter().map(|t| t.bounds).collect();
    let overlap = iou_matrix(boxes, &bounds);
    let mut best = vec![0.0f32; truths.len()];
    let mut of_box = vec![(0, 0.0f32); boxes.len()];
    if !truths.is_empty() {
        for (row, found) in overlap.chunks_exact(truths.len()).zip(&mut of_box) {
            for (t, o) in row.iter().enumerate() {
                best[t] = best[t].max(*o);
                if *o > found.1 {
                    *found = (t, *o);
                }
            }
        }
    }
    (of_box, best, overlap)
}

/// `most` of `items` at random, in their order.
fn drawn(mut items: Vec<usize>, most: usize, stream: &mut Stream) -> Vec<usize> {
    let n = items.len();
    if n <= most {
        return items;
    }
    for i in 0..most {
        let other = i + stream.below((n - i) as u64) as usize;
        items.swap(i, other);
    }
    items.truncate(most);
    items.sort_unstable();
    items
}

/// Draws `count` anchors, at most half of them objects: anchors with IoU of at least 0.7 with an object, or, of each object,
/// the anchors that overlap it most. Those below 0.3 are negative.
///
/// Paper: Faster R-CNN leaves anchors that cross the image's border out of training. Here they count: with few pixels most of the large
/// ones cross it.
pub fn sample_anchors(anchors: &[Bounds], truths: &[Truth], count: usize, stream: &mut Stream) -> AnchorSample {
    let (of_box, best, overlap) = matched(anchors, truths);
    let mut objects = Vec::new();
    let mut nothing = Vec::new();
    for (i, (_, found)) in of_box.iter().enumerate() {
        let row = &overlap[i * truths.len()..(i + 1) * truths.len()];
        let is_best = row.iter().zip(&best).any(|(o, best)| *o > 0.0 && o == best);
        if *found >= ANCHOR_IS || is_best {
            objects.push(i);
        } else if *found < ANCHOR_IS_NOT {
            nothing.push(i);
        }
    }
    let objects = drawn(objects, (count as f64 * ANCHORS_SHARE) as usize, stream);
    let nothing = drawn(nothing, count - objects.len(), stream);
    let step = |i: usize| (i, encode(anchors[i], truths[of_box[i].0].bounds, [1.0; 4]));
    AnchorSample { objects: objects.into_iter().map(step).collect(), nothing }
}

/// Draws `count` of the proposals and the truths themselves, at most a quarter of them with objects (IoU of at least 0.5).
pub fn sample_proposals(proposals: &[Bounds], truths: &[Truth], count: usize, stream: &mut Stream) -> ProposalSample {
    let all: Vec<Bounds> = proposals.iter().copied().chain(truths.iter().map(|t| t.bounds)).collect();
    let (of_box, ..) = matched(&all, truths);
    let (objects, nothing) = (0..all.len()).partition(|i: &usize| of_box[*i].1 >= PROPOSAL_IS);
    let objects = drawn(objects, ((count as f64 * PROPOSALS_SHARE) as usize).max(1), stream);
    let nothing = drawn(nothing, count - objects.len().min(count), stream);
    let object = |i: &usize| {
        let truth = truths[of_box[*i].0];
        Some((truth.class, encode(all[*i], truth.bounds, UNIT)))
    };
    ProposalSample {
        bounds: objects.iter().chain(&nothing).map(|i| all[*i]).collect(),
        shows: objects.iter().map(object).chain(nothing.iter().map(|_| None)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::boxes::decode;
    use super::super::boxes::tests::near;
    use super::*;
    use pcp_core::rng::{Key, Purpose};

    fn stream() -> Stream {
        Key { purpose: Purpose::Detection, seed: 3, round: 0, epoch: 0 }.stream(0, 0)
    }

    fn truth(class: usize, bounds: Bounds) -> Truth {
        Truth { class, bounds }
    }

    #[test]
    fn anchors_are_told_apart_by_their_overlap() {
        let object = [0.0, 0.0, 10.0, 10.0];
        // IoU with the object: 1, 0.8, 0.5 (neither), 0.2, 0; the fifth is the best of the second object with 0.25.
        let anchors = [
            object,
            [0.0, 0.0, 8.0, 10.0],
            [0.0, 0.0, 5.0, 10.0],
            [0.0, 0.0, 2.0, 10.0],
            [50.0, 50.0, 60.0, 60.0],
            [80.0, 80.0, 90.0, 90.0],
        ];
        let truths = [truth(0, object), truth(1, [50.0, 50.0, 70.0, 70.0])];
        let found = sample_anchors(&anchors, &truths, 100, &mut stream());
        assert_eq!(found.objects.iter().map(|o| o.0).collect::<Vec<_>>(), [0, 1, 4]);
        assert_eq!(found.nothing, [3, 5]);
        assert_eq!(found.objects[0].1, [0.0; 4]);
        near(&decode(anchors[4], found.objects[2].1, [1.0; 4]), &truths[1].bounds, 1e-5);
    }

    #[test]
    fn samples_keep_to_their_shares_and_follow_the_seed() {
        let anchors = [[0.0, 0.0, 10.0, 10.0]; 400];
        let mut all = anchors.to_vec();
        all.extend([[90.0, 90.0, 99.0, 99.0]; 400]);
        let truths = [truth(2, anchors[0])];
        let found = sample_anchors(&all, &truths, 256, &mut stream());
        assert_eq!((found.objects.len(), found.nothing.len()), (128, 128));
        assert_eq!(found, sample_anchors(&all, &truths, 256, &mut stream()));
        let found = sample_proposals(&all, &truths, 128, &mut stream());
        assert_eq!(found.shows.iter().flatten().count(), 32);
        assert_eq!(found.bounds.len(), 128);
        assert!(found.shows[..32].iter().all(|s| *s == Some((2, [0.0; 4]))));
    }

    #[test]
    fn an_image_without_objects_has_nothing_to_find() {
        let anchors = [[0.0, 0.0, 10.0, 10.0]; 5];
        let found = sample_anchors(&anchors, &[], 256, &mut stream());
        assert!(found.objects.is_empty() && found.nothing.len() == 5);
        let found = sample_proposals(&anchors, &[], 3, &mut stream());
        assert_eq!(found.shows, [None; 3]);
        assert_eq!(sample_proposals(&[], &[], 3, &mut stream()), ProposalSample::default());
    }

    #[test]
    fn without_proposals_the_objects_themselves_are_learned() {
        let truths = [truth(1, [3.0, 3.0, 20.0, 20.0])];
        let found = sample_proposals(&[], &truths, 32, &mut stream());
        assert_eq!(found.bounds, [truths[0].bounds]);
        assert_eq!(found.shows, [Some((1, [0.0; 4]))]);
    }
}
