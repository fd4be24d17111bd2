//! Results of other verbs that cells are made of, read back from run folders.

use super::scale::Scale;
use pcp::jobs::{LinearSettings, read_detection, read_linear};
use pcp::run::{DETECTION, DetectorResult, RunFolder};
use pcp_core::error::Result;
use std::path::PathBuf;

/// The layer that linear cells are measured on.
pub const LINEAR_LAYER: &str = "conv5";

/// Last and best accuracy of a run's linear probe, if it has one of the scale's length.
pub fn linear(run: &RunFolder, scale: Scale) -> Result<Option<(f64, f64)>> {
    // A probe that somebody made in another way is none of the table's.
    let usual = LinearSettings { epochs: scale.linear_epochs(), ..LinearSettings::default() };
    let found = read_linear(run)?.filter(|report| report.settings == usual && report.weights == "model.safetensors");
    let layer = found.and_then(|report| report.layers.into_iter().find(|layer| layer.layer == LINEAR_LAYER));
    Ok(layer.map(|layer| (layer.last, layer.best)))
}

/// Where the detector on a run's network is trained.
pub fn detector_folder(run: &RunFolder) -> PathBuf {
    let mut name = run.path().as_os_str().to_os_string();
    name.push("-voc");
    name.into()
}

/// What the detector on a run's network reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Detected {
    /// mAP by eleven points.
    pub map11: f64,
    /// mAP by all points.
    pub map: f64,
    /// Seconds of its training and its test.
    pub seconds: f64,
    /// The command that trained it.
    pub command: String,
}

/// What the detector on a run's network reached, once it is trained and measured.
pub fn detection(run: &RunFolder) -> Result<Option<Detected>> {
    let Ok(run) = RunFolder::open_as(&DETECTION, &detector_folder(run)) else { return Ok(None) };
    let trained: Option<DetectorResult> = run.read_result_as()?;
    let (Some(trained), Some(measured)) = (trained, read_detection(&run, "test")?) else { return Ok(None) };
    Ok(Some(Detected {
        map11: measured.scores.map11,
        map: measured.scores.map,
        seconds: trained.seconds + measured.seconds,
        command: trained.command,
    }))
}
