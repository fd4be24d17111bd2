//! A look at a folder before it is read: how many images there are, and how long reading one takes.

use std::path::Path;

use super::{Load, folder};
use pcp_core::error::Result;

/// Images that are read to time one; of small ones, which take less than `LEAST` seconds together, more.
const READ: [usize; 2] = [24, 480];
const LEAST: f64 = 0.05;

/// What a folder holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Survey {
    /// Images to learn from.
    pub train: usize,
    /// Images to test on.
    pub test: usize,
    /// Seconds that reading one takes, when all cores read.
    pub seconds_per_image: f64,
}

/// Counts the images that `load` asks for of the folder `path`.
pub fn count_images(path: &Path, load: &Load) -> Result<usize> {
    Ok(folder::plan(path, load)?.len())
}

/// Counts the images that `load` asks for of the folder `path`, and reads some of them.
pub fn survey(path: &Path, load: &Load) -> Result<Survey> {
    let mut plan = folder::plan(path, load)?;
    // What all files take once is no part of what one image takes.
    plan.stamp();
    let mut timed = plan.read_some(load, READ[0]);
    if timed.1 < LEAST {
        timed = plan.read_some(load, READ[1]);
    }
    let test = plan.test_len();
    Ok(Survey { train: plan.len() - test, test, seconds_per_image: timed.1 / timed.0.max(1) as f64 })
}
