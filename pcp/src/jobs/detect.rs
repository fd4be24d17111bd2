//! Object detectors on the network of a run: training, average precision, objects in photographs.

mod eval;
mod predict;
#[cfg(test)]
mod tests;
mod train;

pub use eval::{DetectEvalOptions, DetectionReport, detect_eval, read_detection};
pub use predict::{CocoDetection, DetectPredictOptions, DetectPredictResult, detect_predict};
pub use train::{DetectTrainOptions, detect_resume, detect_train};

use super::part::JobPart;
use crate::detect::voc::Devkit;
use crate::observe::Observer;
use pcp_core::error::{Error, Result};
use std::path::Path;
use std::sync::Arc;

/// The number of images to read, 0 for all; refuses a limit of no images.
fn checked_limit(limit: Option<usize>) -> Result<usize> {
    match limit {
        Some(0) => Err(Error::usage("`limit` is 0", "give it 1 or more, or leave it out for all images")),
        limit => Ok(limit.unwrap_or(0)),
    }
}

/// Reads the first `limit` images of an image set with their boxes (all when 0).
fn read_voc(
    root: &Path,
    set: &str,
    classes: &[String],
    limit: usize,
    observer: &Arc<dyn Observer>,
) -> Result<Arc<Devkit>> {
    let part = JobPart::begin("reading", 0, observer);
    let read = Devkit::read(root, set, classes, limit, observer.cancel(), &|done, total| part.at(done, total));
    part.end();
    Ok(Arc::new(read?))
}
