//! Inference: the objects that a trained detector finds in an image.

use super::anchors::base;
use super::ap::Detection;
use super::boxes::{Bounds, clip, decode};
use super::frame::{Preparation, stacked};
use super::losses::softmax;
use super::nms::nms;
use super::proposals::{ProposalLimits, propose};
use super::roi::{self, OUT, Roi};
use super::step::ImageCells;
use super::targets::UNIT;
use super::voc::Devkit;
use crate::data::Image;
use crate::model::{Detector, Weights};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use rayon::prelude::*;
use std::sync::Arc;

/// Boxes of a class that overlap more than this are the same.
const NMS: f32 = 0.3;
/// Detections per image at the most.
const MOST: usize = 100;
/// Detections of a lower score are dropped. Paper: not said; released code of Faster R-CNN has 0 or 0.05. AP hardly sees what is below.
const LEAST: f32 = 0.01;

/// How an image is searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// How the image is prepared.
    pub preparation: Preparation,
    /// How many proposals are classified.
    pub limits: ProposalLimits,
}

/// Finds the objects of `image`, best first, in its own pixels. One image at a time, so that the result does not depend on others.
pub fn find(detector: &Detector, weights: &Weights, image: &Image, search: &Search) -> Vec<Detection> {
    let frame = search.preparation.frame(image, false);
    let (width, height) = (frame.width as f32, frame.height as f32);
    let seen = detector.propose(weights, stacked(std::slice::from_ref(&frame)));
    let view = ImageCells::new(&base(search.preparation.short_side), 0, &frame, &seen.maps);
    let (scores, steps) = view.outputs(&seen);
    let proposals = propose(&view.anchors, &scores, &steps, (width, height), search.limits);
    if proposals.is_empty() {
        return Vec::new();
    }
    let rois: Vec<Roi> = proposals.iter().map(|bounds| Roi { image: 0, bounds: *bounds }).collect();
    let [scores, boxes] = detector.classify(weights, roi::forward(&seen.maps, &rois), OUT);
    let classes = boxes.dim / 4;
    let chances: Vec<Vec<f32>> = (0..rois.len()).map(|row| softmax(scores.row(row))).collect();
    let inside = |bounds| clip(bounds, image.width as f32, image.height as f32);
    let mut found = Vec::new();
    for class in 0..classes {
        let mut of_class: Vec<(Bounds, f32)> = Vec::new();
        for (row, proposal) in proposals.iter().enumerate().filter(|(row, _)| chances[*row][class + 1] > LEAST) {
            let step = [0, 1, 2, 3].map(|c| boxes.row(row)[class * 4 + c]);
            let bounds = clip(decode(*proposal, step, UNIT), width, height);
            if bounds[2] > bounds[0] && bounds[3] > bounds[1] {
                of_class.push((bounds, chances[row][class + 1]));
            }
        }
        let (bounds, scores): (Vec<Bounds>, Vec<f32>) = of_class.into_iter().unzip();
        let kept = nms(&bounds, &scores, NMS, MOST);
        found.extend(kept.into_iter().map(|i| Detection {
            class,
            score: scores[i],
            bounds: inside(frame.back(bounds[i])),
        }));
    }
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found.truncate(MOST);
    found
}

/// Finds the objects of every image of a devkit; `on_images` is told how many more are done.
pub fn find_all(
    detector: &Arc<Detector>,
    weights: &Weights,
    data: &Arc<Devkit>,
    search: Search,
    cancel: &Cancel,
    on_images: &dyn Fn(usize),
) -> Result<Vec<Vec<Detection>>> {
    // As many at a time as keep all threads busy; cancelling waits for none of them.
    let block = 2 * rayon::current_num_threads();
    let mut found = Vec::new();
    for first in (0..data.items.len()).step_by(block) {
        let (detector, weights, data) = (detector.clone(), weights.clone(), data.clone());
        let part: Vec<Result<Vec<Detection>>> = cancel.run(move || {
            let items = &data.items[first..(first + block).min(data.items.len())];
            items.par_iter().map(|item| Ok(find(&detector, &weights, &item.image()?, &search))).collect()
        })?;
        on_images(part.len());
        for of_image in part {
            found.push(of_image?);
        }
    }
    Ok(found)
}
