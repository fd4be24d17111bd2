//! Results of other verbs that cells are made of, read back from run folders.

use super::scale::Scale;
use pcp::evaluate::linear::{LinearResult, LinearSettings};
use pcp::run::RunFolder;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::read_bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use std::path::{Path, PathBuf};

/// The layer that linear cells are measured on.
pub const LINEAR_LAYER: &str = "conv5";

/// What is read of `eval/linear.json`.
#[derive(Deserialize)]
struct LinearFile {
    settings: LinearSettings,
    weights: String,
    layers: Vec<LinearResult>,
}

/// What is read of a detector's `result.json`.
#[derive(Deserialize)]
struct DetectorFile {
    seconds: f64,
    command: String,
}

/// What is read of a detector's `eval/test.json`.
#[derive(Deserialize)]
struct ScoresFile {
    map11: f64,
    map: f64,
    seconds: f64,
}

/// The result in `path`; `None` when it is not there, or is one of another version, which is made again.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    if !path.exists() {
        return Ok(None);
    }
    match serde_json::from_slice(&read_bytes(path)?) {
        Ok(result) => Ok(Some(result)),
        Err(e) if e.classify() == Category::Data => Ok(None),
        Err(e) => Err(Error::file(format!("{}: {e}", path.display()), "remove the file: it is made again")),
    }
}

/// Last and best accuracy of a run's linear probe, if it has one of the scale's length.
pub fn linear(run: &RunFolder, scale: Scale) -> Result<Option<(f64, f64)>> {
    let found: Option<LinearFile> = read(&run.file("eval").join("linear.json"))?;
    // A probe that somebody made in another way is none of the table's.
    let usual = LinearSettings { epochs: scale.linear_epochs(), ..LinearSettings::default() };
    let found = found.filter(|file| file.settings == usual && file.weights == "model.safetensors");
    let layer = found.and_then(|file| file.layers.into_iter().find(|layer| layer.layer == LINEAR_LAYER));
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
    let folder = detector_folder(run);
    let trained: Option<DetectorFile> = read(&folder.join("result.json"))?;
    let measured: Option<ScoresFile> = read(&folder.join("eval/test.json"))?;
    let (Some(trained), Some(measured)) = (trained, measured) else { return Ok(None) };
    Ok(Some(Detected {
        map11: measured.map11,
        map: measured.map,
        seconds: trained.seconds + measured.seconds,
        command: trained.command,
    }))
}
