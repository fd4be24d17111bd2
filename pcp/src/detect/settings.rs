//! The settings of a detector, and the weights that it begins with.

use super::anchors::PER_CELL;
use super::find::Search;
use super::frame::Preparation;
use super::proposals::ProposalLimits;
use super::step::Sampling;
use crate::config::{self, MOST_MINUTES, Precision};
use crate::model::{
    CHECKPOINT_PREFIX, Detector, Model, Weights, WeightsFile, WhichWeights, named_arrays, untrained_card, weights_file,
};
use crate::run::{About, DETECTION, RunFolder};
use pcp_core::error::{Error, Result};
use pcp_core::io::tensors::{Array, Tensors};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Share of the epochs after which the learning rate falls: 25 of 30.
const DROP_AT: f64 = 25.0 / 30.0;
/// Boxes that go into suppression for each that comes out: in training, at the test.
const BEFORE_TRAINING: usize = 6;
const BEFORE_TEST: usize = 20;

/// The word for a network that was not trained.
pub const RANDOM: &str = "random";

/// Everything that a detector's training depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetectorSettings {
    /// Where the network came from: a run folder, a file, or `random`.
    pub backbone: String,
    /// The folder of the images, in the layout of the VOC devkit.
    pub voc: String,
    /// The image set to learn from.
    pub set: String,
    /// The classes.
    pub classes: Vec<String>,
    /// The first images only; 0 for all.
    pub limit: usize,
    /// The shorter side of images.
    pub short_side: usize,
    /// Epochs.
    pub epochs: u32,
    /// Images per step.
    pub batch: usize,
    /// Learning rate; a tenth of it after five sixths of the epochs.
    pub lr: f64,
    /// Momentum.
    pub momentum: f64,
    /// Weight decay, of biases, too. Paper: 1e-4; Faster R-CNN's own release has none on biases.
    pub weight_decay: f64,
    /// Anchors per image that a step looks at.
    pub anchors: usize,
    /// Boxes per image that the heads look at.
    pub rois: usize,
    /// Proposals per image in training.
    pub proposals: usize,
    /// Proposals per image at the test.
    pub test_proposals: usize,
    /// Everything random follows from it.
    pub seed: u64,
    /// Minutes between checkpoints within an epoch.
    pub save_minutes: f64,
    /// The precision of the network's layers.
    #[serde(default)]
    pub precision: Precision,
    /// Side of the images that the network was trained on.
    pub size: usize,
    /// Channel means.
    pub mean: [f64; 3],
    /// Channel standard deviations.
    pub std: [f64; 3],
    /// The network.
    pub network: config::NetworkSettings,
}

#[derive(Serialize, Deserialize)]
struct DetectorFile {
    about: About,
    detect: DetectorSettings,
}

impl DetectorSettings {
    /// Refuses settings that nothing can be trained with.
    pub fn check(&self) -> Result<()> {
        let counts = [
            ("epochs", self.epochs as usize),
            ("batch", self.batch),
            ("rois", self.rois),
            ("proposals", self.proposals),
            ("test_proposals", self.test_proposals),
            ("width", self.network.width),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, n)| *n == 0) {
            return Err(Error::usage(format!("`{name}` is 0"), format!("give `{name}` a number above 0")));
        }
        if !(32..=4096).contains(&self.short_side) {
            return Err(Error::usage(format!("`short_side` is {}", self.short_side), "give 32 to 4096 pixels"));
        }
        if !(self.lr > 0.0 && self.lr.is_finite()) {
            return Err(Error::usage(format!("`lr` is {}", self.lr), "give `lr` a number above 0"));
        }
        if !(self.save_minutes > 0.0 && self.save_minutes <= MOST_MINUTES) {
            let message = format!("`save_minutes` is {}", self.save_minutes);
            return Err(Error::usage(message, format!("give `save_minutes` a number above 0, at most {MOST_MINUTES}")));
        }
        Ok(())
    }

    /// The network. It computes in the precision that it is trained in, or in f32 where the CPU has no other.
    pub fn detector(&self) -> Result<Detector> {
        let detector = Detector::new(&self.network, self.size, self.classes.len(), PER_CELL)?;
        Ok(detector.with_precision(self.precision.or_f32()))
    }

    /// How images are prepared.
    pub fn preparation(&self) -> Preparation {
        let narrow = |v: [f64; 3]| v.map(|x| x as f32);
        Preparation { short_side: self.short_side, mean: narrow(self.mean), std: narrow(self.std) }
    }

    /// How many anchors and boxes a step samples.
    pub fn sampling(&self) -> Sampling {
        let limits = ProposalLimits { before: BEFORE_TRAINING * self.proposals, after: self.proposals };
        Sampling { short_side: self.short_side, anchors: self.anchors, rois: self.rois, limits }
    }

    /// How an image is searched.
    pub fn search(&self) -> Search {
        let limits = ProposalLimits { before: BEFORE_TEST * self.test_proposals, after: self.test_proposals };
        Search { preparation: self.preparation(), limits }
    }

    /// The learning rate of an epoch.
    pub fn lr(&self, epoch: u32) -> f64 {
        let drop = (DROP_AT * f64::from(self.epochs)).round() as u32;
        if epoch >= drop { 0.1 * self.lr } else { self.lr }
    }

    /// The settings that results depend on most, in words.
    pub fn summary(&self) -> String {
        format!(
            "short side {}, width {}, {} boxes an image, {} proposals ({} at the test), {} epochs, batch {}, lr {}, {}",
            self.short_side,
            self.network.width,
            self.rois,
            self.proposals,
            self.test_proposals,
            self.epochs,
            self.batch,
            self.lr,
            self.precision
        )
    }

    /// Every setting as `detect.key` with its value.
    pub fn entries(&self) -> Vec<(String, toml::Value)> {
        match toml::Value::try_from(self) {
            Ok(toml::Value::Table(table)) => {
                table.into_iter().map(|(key, value)| (format!("detect.{key}"), value)).collect()
            }
            other => unreachable!("settings are a table: {other:?}"),
        }
    }

    /// Writes `detect.toml`, before anything else happens.
    pub fn write(&self, run: &RunFolder, about: &About) -> Result<()> {
        let file = DetectorFile { about: about.clone(), detect: self.clone() };
        let text =
            toml::to_string(&file).map_err(|e| Error::file(format!("detect.toml: {e}"), "please report this"))?;
        pcp_core::io::atomic::write_bytes(&run.file(DETECTION.settings), text.as_bytes())?;
        run.write_first_checksums()
    }

    /// The settings of a run, with program, machine, command and data.
    pub fn read(run: &RunFolder) -> Result<(DetectorSettings, About)> {
        run.whole(DETECTION.settings)?;
        Self::read_any(run)
    }

    /// As [`read`](Self::read), whether or not the file was changed since the run began: its checkpoints tell what was.
    pub fn read_any(run: &RunFolder) -> Result<(DetectorSettings, About)> {
        let path = run.file(DETECTION.settings);
        let text = String::from_utf8_lossy(&pcp_core::io::atomic::read_bytes(&path)?).into_owned();
        let file: DetectorFile = toml::from_str(&text).map_err(|e| {
            Error::file(format!("{}: {}", path.display(), e.message()), "restore the file or start a new run")
        })?;
        file.detect.check()?;
        Ok((file.detect, file.about))
    }
}

/// The network that `word` names, to build a detector on: a run folder, a model file, or `random`, an untrained one of `width`.
pub fn backbone(word: &str, width: Option<usize>) -> Result<Model> {
    if word == RANDOM {
        if width == Some(0) {
            return Err(Error::usage("`width` is 0", "give `width` a number above 0"));
        }
        let usual = config::Config::default().network;
        return Model::untrained(
            untrained_card(config::NetworkSettings { width: width.unwrap_or(usual.width), ..usual }),
            0,
        );
    }
    if width.is_some() {
        return Err(Error::usage("`width` is for an untrained network", format!("leave it out: {word} has its own")));
    }
    if !Path::new(word).exists() {
        return Err(Error::usage(
            format!("there is no run folder or file {word}"),
            "give a folder that pcp train wrote, its model.safetensors, or the word random",
        ));
    }
    Model::open(word)
}

/// A trained detector: the last weights of a run, or those of its newest checkpoint.
pub fn read_detector(run: &RunFolder) -> Result<(DetectorSettings, Detector, Weights, String)> {
    let (settings, _) = DetectorSettings::read(run)?;
    let detector = settings.detector()?;
    let (path, prefix) = match weights_file(run, WhichWeights::Last) {
        Ok(WeightsFile::Model(path)) => (path, ""),
        Ok(WeightsFile::Checkpoint(path)) => (path, CHECKPOINT_PREFIX),
        Err(e) => return Err(Error { hint: "train it further: `detect_resume`".into(), ..e }),
    };
    let file = Tensors::<serde_json::Value>::read(&path)?;
    let weights = detector.from_named(&named_arrays(file.arrays, prefix)).map_err(|e| e.at(&path))?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Ok((settings, detector, weights, name))
}

/// Writes the weights of a finished run.
pub fn write_detector(
    run: &RunFolder,
    settings: &DetectorSettings,
    detector: &Detector,
    weights: &Weights,
) -> Result<()> {
    let named = detector.named(weights).into_iter();
    let arrays = named.map(|n| (n.name, Array::F32(n.shape, n.values))).collect();
    Tensors { about: settings.clone(), arrays }.write(&run.last_weights())
}
