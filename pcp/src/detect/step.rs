//! One training step: proposals, samples, losses and gradients of a batch.

use super::anchors::{PER_CELL, base, cells, grid};
use super::boxes::Bounds;
use super::frame::{Frame, stacked};
use super::losses::{SIGMA_HEADS, SIGMA_PROPOSALS, cross_entropy, objectness, smooth_l1};
use super::proposals::{ProposalLimits, propose};
use super::roi::{self, OUT, Roi};
use super::targets::{ProposalSample, Truth, sample_anchors, sample_proposals};
use crate::model::{Detector, Maps, PartialGradients, ProposalMaps, Weights};
use pcp_core::rng::Key;
use rayon::prelude::*;

/// Streams of an image: its place in the epoch is 0, whether it is mirrored 1.
const ANCHORS: u32 = 2;
const PROPOSALS: u32 = 3;

/// How many anchors and boxes a step samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The shorter side of images, which anchors are in proportion to.
    pub short_side: usize,
    /// Anchors per image that the loss looks at.
    pub anchors: usize,
    /// Boxes per image that the heads look at.
    pub rois: usize,
    /// How many proposals there are to draw from.
    pub limits: ProposalLimits,
}

/// An image of the batch.
#[derive(Clone, Debug)]
pub struct Example {
    /// Its id.
    pub id: u64,
    /// Its pixels.
    pub frame: Frame,
    /// Its objects, in the frame.
    pub truths: Vec<Truth>,
}

/// The four losses, each a mean over the sampled anchors or boxes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Losses {
    /// Classification of the anchors: object or background.
    pub objectness: f64,
    /// Regression from anchors to their objects.
    pub proposals: f64,
    /// Classification of the boxes.
    pub classes: f64,
    /// Regression from boxes to their objects.
    pub boxes: f64,
}

impl Losses {
    /// Their sum.
    pub fn total(&self) -> f64 {
        self.objectness + self.proposals + self.classes + self.boxes
    }
}

/// Losses and gradients of a batch; `key` is the epoch's.
pub fn step(
    detector: &Detector,
    weights: &Weights,
    examples: &[Example],
    sampling: &Sampling,
    key: Key,
) -> (Losses, [PartialGradients; 2]) {
    let frames: Vec<Frame> = examples.iter().map(|e| e.frame.clone()).collect();
    let look = detector.propose_in_training(weights, stacked(&frames));
    let base = base(sampling.short_side);
    let targets: Vec<ImageTargets> = examples
        .par_iter()
        .enumerate()
        .map(|(image, example)| ImageTargets::new(&base, image, example, &look.seen, sampling, key))
        .collect();
    let first = proposal_losses(&targets, &look.seen);

    let rois: Vec<Roi> = (targets.iter().enumerate())
        .flat_map(|(image, own)| own.sample.bounds.iter().map(move |bounds| Roi { image, bounds: *bounds }))
        .collect();
    let shows: Vec<_> = targets.iter().flat_map(|image| image.sample.shows.iter().copied()).collect();
    let judgement = detector.classify_in_training(weights, roi::forward(&look.seen.maps, &rois), OUT);
    let second = head_losses(&shows, &judgement.scores.values, &judgement.boxes.values);
    let (heads, by_crops) = detector.classify_gradients(judgement, second.by_scores, second.by_boxes);
    let by_maps = roi::backward(&look.seen.maps, &rois, &by_crops);
    let trunk = detector.proposal_gradients(look, by_maps, first.by_objectness, first.by_steps);
    let losses =
        Losses { objectness: first.objectness, proposals: first.steps, classes: second.classes, boxes: second.boxes };
    (losses, [trunk, heads])
}

/// Targets of one image.
struct ImageTargets {
    /// Places of anchors in the batch's outputs, whether each is an object, and the step to it.
    anchors: Vec<(usize, Option<[f32; 4]>)>,
    sample: ProposalSample,
}

impl ImageTargets {
    fn new(
        base: &[Bounds; PER_CELL],
        image: usize,
        example: &Example,
        seen: &ProposalMaps,
        sampling: &Sampling,
        key: Key,
    ) -> ImageTargets {
        let view = ImageCells::new(base, image, &example.frame, &seen.maps);
        let (scores, steps) = view.outputs(seen);
        let size = (example.frame.width as f32, example.frame.height as f32);
        let proposals = propose(&view.anchors, &scores, &steps, size, sampling.limits);
        let stream = |view| key.stream(example.id, view);
        let drawn = sample_anchors(&view.anchors, &example.truths, sampling.anchors, &mut stream(ANCHORS));
        let objects = drawn.objects.into_iter().map(|(i, step)| (view.place(i), Some(step)));
        let nothing = drawn.nothing.into_iter().map(|i| (view.place(i), None));
        let sample = sample_proposals(&proposals, &example.truths, sampling.rois, &mut stream(PROPOSALS));
        ImageTargets { anchors: objects.chain(nothing).collect(), sample }
    }
}

/// The cells of a batch's map that belong to one image: what lies below and to the right of it is padding.
pub struct ImageCells {
    /// Its anchors.
    pub anchors: Vec<Bounds>,
    image: usize,
    /// Columns of its own, and rows and columns of the map.
    own: usize,
    map: [usize; 2],
}

impl ImageCells {
    /// The cells of image `image` of the batch.
    pub fn new(base: &[Bounds; PER_CELL], image: usize, frame: &Frame, maps: &Maps) -> ImageCells {
        let (height, width) = (cells(frame.height).min(maps.height), cells(frame.width).min(maps.width));
        ImageCells { anchors: grid(base, height, width), image, own: width, map: [maps.height, maps.width] }
    }

    /// The place of an anchor in the outputs of the batch.
    fn place(&self, anchor: usize) -> usize {
        let (cell, rest) = (anchor / PER_CELL, anchor % PER_CELL);
        let [rows, columns] = self.map;
        ((self.image * rows + cell / self.own) * columns + cell % self.own) * PER_CELL + rest
    }

    /// Scores and steps of its anchors.
    pub fn outputs(&self, seen: &ProposalMaps) -> (Vec<f32>, Vec<f32>) {
        let places: Vec<usize> = (0..self.anchors.len()).map(|i| self.place(i)).collect();
        let steps = places.iter().flat_map(|p| seen.steps[4 * p..4 * p + 4].iter().copied()).collect();
        (places.iter().map(|p| seen.objectness[*p]).collect(), steps)
    }
}

struct ProposalLosses {
    objectness: f64,
    steps: f64,
    by_objectness: Vec<f32>,
    by_steps: Vec<f32>,
}

fn proposal_losses(targets: &[ImageTargets], seen: &ProposalMaps) -> ProposalLosses {
    let share = 1.0 / targets.iter().map(|image| image.anchors.len()).sum::<usize>().max(1) as f32;
    let mut out = ProposalLosses {
        objectness: 0.0,
        steps: 0.0,
        by_objectness: vec![0.0; seen.objectness.len()],
        by_steps: vec![0.0; seen.steps.len()],
    };
    for (place, step) in targets.iter().flat_map(|image| &image.anchors) {
        let (loss, gradient) = objectness(seen.objectness[*place], step.is_some());
        out.objectness += f64::from(loss * share);
        out.by_objectness[*place] = gradient * share;
        for (c, target) in step.iter().flatten().enumerate() {
            let (loss, gradient) = smooth_l1(seen.steps[4 * place + c] - target, SIGMA_PROPOSALS);
            out.steps += f64::from(loss * share);
            out.by_steps[4 * place + c] = gradient * share;
        }
    }
    out
}

struct HeadLosses {
    classes: f64,
    boxes: f64,
    by_scores: Vec<f32>,
    by_boxes: Vec<f32>,
}

/// `scores` are `[rois][1 + classes]`, `boxes` `[rois][classes][4]`; the first score is that of the background.
fn head_losses(shows: &[Option<(usize, [f32; 4])>], scores: &[f32], boxes: &[f32]) -> HeadLosses {
    let share = 1.0 / shows.len().max(1) as f32;
    let (width, classes) = (scores.len() / shows.len().max(1), boxes.len() / shows.len().max(1) / 4);
    let mut out = HeadLosses { classes: 0.0, boxes: 0.0, by_scores: Vec::new(), by_boxes: vec![0.0; boxes.len()] };
    for (row, show) in shows.iter().enumerate() {
        let class = show.map_or(0, |(class, _)| class + 1);
        let (loss, gradient) = cross_entropy(&scores[row * width..(row + 1) * width], class);
        out.classes += f64::from(loss * share);
        out.by_scores.extend(gradient.iter().map(|g| g * share));
        let Some((class, target)) = show else { continue };
        for c in 0..4 {
            let place = (row * classes + class) * 4 + c;
            let (loss, gradient) = smooth_l1(boxes[place] - target[c], SIGMA_HEADS);
            out.boxes += f64::from(loss * share);
            out.by_boxes[place] = gradient * share;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use pcp_core::rng::Purpose;

    const KEY: Key = Key { purpose: Purpose::Detection, seed: 1, round: 0, epoch: 0 };

    fn frame(width: usize, height: usize) -> Frame {
        let pixels = (0..width * height * 3).map(|i| (i as f32 * 0.37).sin()).collect();
        Frame { width, height, pixels, factor: [1.0; 2] }
    }

    #[test]
    fn an_image_knows_its_own_cells_of_a_padded_batch() {
        let maps = Maps { rows: 2, height: 3, width: 4, channels: 1, values: vec![0.0; 24] };
        let view = ImageCells::new(&base(60), 1, &frame(40, 20), &maps);
        assert_eq!(view.anchors.len(), 2 * 3 * PER_CELL);
        assert_eq!(view.place(0), 12 * PER_CELL);
        assert_eq!(view.place(3 * PER_CELL + 5), (12 + 4) * PER_CELL + 5, "the second row begins after the padding");
        let seen = ProposalMaps {
            objectness: (0..24 * PER_CELL).map(|i| i as f32).collect(),
            steps: (0..24 * PER_CELL * 4).map(|i| i as f32).collect(),
            maps,
        };
        let (scores, steps) = view.outputs(&seen);
        assert_eq!(scores[3 * PER_CELL + 5], ((12 + 4) * PER_CELL + 5) as f32);
        assert_eq!(steps[4..8], [1.0, 2.0, 3.0, 4.0].map(|c| (12 * PER_CELL * 4) as f32 + 3.0 + c));
    }

    #[test]
    fn head_losses_are_means_and_their_gradients_differences() {
        let shows = [Some((1, [0.3, -2.0, 0.1, 0.0])), None, Some((0, [0.0; 4]))];
        let scores: Vec<f32> = (0..9).map(|i| (i as f32 * 0.9).sin()).collect();
        let boxes: Vec<f32> = (0..24).map(|i| (i as f32 * 0.4).cos()).collect();
        let found = head_losses(&shows, &scores, &boxes);
        let total = |scores: &[f32], boxes: &[f32]| {
            let l = head_losses(&shows, scores, boxes);
            l.classes + l.boxes
        };
        let check = |by: f32, moved: &dyn Fn(f32) -> f64| {
            let difference = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!((difference - f64::from(by)).abs() < 1e-3, "{difference} is not {by}");
        };
        for i in 0..9 {
            check(found.by_scores[i], &|by| {
                let mut s = scores.clone();
                s[i] += by;
                total(&s, &boxes)
            });
        }
        for i in 0..24 {
            check(found.by_boxes[i], &|by| {
                let mut b = boxes.clone();
                b[i] += by;
                total(&scores, &b)
            });
        }
        assert!(found.by_boxes[8..16].iter().all(|g| *g == 0.0), "nothing has no box");
    }

    /// The whole step, sampling and all, lowers its loss along its gradient; an image without objects takes part.
    #[test]
    fn a_step_goes_downhill_and_is_the_same_every_time() {
        let network = config::NetworkSettings { width: 4, ..config::Config::default().network };
        let detector = Detector::new(&network, 32, 2, PER_CELL).unwrap();
        let mut weights = detector.init(0);
        let mut optimizer = crate::model::Optimizer::new(&weights);
        let truths = vec![Truth { class: 1, bounds: [4.0, 8.0, 40.0, 44.0] }];
        let examples =
            [Example { id: 0, frame: frame(64, 48), truths }, Example { id: 1, frame: frame(48, 48), truths: vec![] }];
        let limits = ProposalLimits { before: 100, after: 30 };
        let sampling = Sampling { short_side: 48, anchors: 32, rois: 8, limits };
        let losses = |weights: &Weights| step(&detector, weights, &examples, &sampling, KEY).0;
        let first = losses(&weights);
        assert_eq!(first, losses(&weights));
        assert!((first.classes - 3f64.ln()).abs() < 0.1 && (first.objectness - 2f64.ln()).abs() < 0.1, "{first:?}");
        for _ in 0..20 {
            let (_, [trunk, heads]) = step(&detector, &weights, &examples, &sampling, KEY);
            let sgd = kernels::Sgd { lr: 0.05, momentum: 0.9, decay: 0.0, nesterov: false };
            optimizer.step_some(&mut weights, trunk.with(heads), sgd);
        }
        let last = losses(&weights);
        assert!(last.total() < 0.8 * first.total(), "{first:?} became {last:?}");
    }
}
