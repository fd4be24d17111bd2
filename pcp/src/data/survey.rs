//! A look at a folder before it is read: how many images there are, and how long reading one takes.

use std::path::Path;
use std::time::Instant;

use super::{Load, folder};
use pcp_core::error::Result;

/// Images that are read to time one.
const READ: usize = 24;

/// What a folder holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Survey {
    /// Images to learn from and to test on.
    pub images: usize,
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
    let began = Instant::now();
    let read = plan.read_some(load, READ);
    Ok(Survey { images: plan.len(), seconds_per_image: began.elapsed().as_secs_f64() / read.max(1) as f64 })
}
