//! A trained network as a file for PyTorch, onnxruntime and others.

use crate::embed::AnyModel;
use crate::model::WhichWeights;
use crate::observe::Observer;
use crate::run::RunFolder;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_parent, require_absent};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// Images of a sample.
const SAMPLE: usize = 8;

/// The format of an exported network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExportFormat {
    /// Weights in torchvision's names.
    Safetensors,
    /// The network with its weights, opset 17.
    Onnx,
}

/// What of patches and a network side by side is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExportPart {
    /// The network: its embedding is that of its last layer.
    Network,
    /// The patches.
    Patches,
}

/// Which network is exported, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// A run folder, or a safetensors file in torchvision's names.
    pub model: PathBuf,
    /// The format.
    pub to: ExportFormat,
    /// Where patches and a network stand side by side, one of them; otherwise both (ONNX alone).
    pub part: Option<ExportPart>,
    /// The file; otherwise the name of the run, in the current folder.
    pub out: Option<PathBuf>,
    /// Normalise inside the ONNX model.
    pub with_preprocess: bool,
    /// Also write eight images of noise, and the network's features of them, as NPZ.
    pub sample: Option<PathBuf>,
    /// Use the weights of the best probe instead of the last.
    pub best: bool,
}

impl ExportOptions {
    /// The last weights of `model`, in a file of its name.
    pub fn new(model: impl Into<PathBuf>, to: ExportFormat) -> Self {
        let model = model.into();
        ExportOptions { model, to, part: None, out: None, with_preprocess: false, sample: None, best: false }
    }
}

/// A network that was exported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportResult {
    /// The file.
    pub out: PathBuf,
    /// The file of the sample.
    pub sample: Option<PathBuf>,
    /// Side of the images it takes, in pixels.
    pub side: usize,
    /// Whether it normalises images itself.
    pub with_preprocess: bool,
    /// What is done to an image before it is normalised; the file says it, too.
    pub preprocessing: String,
    /// Where it takes a second view of the image, with values from 0 to 1: its side, and what is done to the image.
    pub square: Option<(usize, String)>,
    /// Channel means and standard deviations of the normalisation.
    pub mean: [f64; 3],
    /// See `mean`.
    pub std: [f64; 3],
}

/// Writes a network for other tools.
pub fn export(options: &ExportOptions, observer: &Arc<dyn Observer>) -> Result<ExportResult> {
    if options.with_preprocess && options.to != ExportFormat::Onnx {
        return Err(Error::usage("`with_preprocess` is for ONNX: safetensors has weights alone", "leave it out"));
    }
    let model = exported(options)?;
    let out = options.out.clone().unwrap_or_else(|| {
        let full = options.model.canonicalize().unwrap_or_else(|_| options.model.clone());
        let name = if full.is_dir() { full.file_name() } else { full.file_stem() };
        let ending = match options.to {
            ExportFormat::Safetensors => "safetensors",
            ExportFormat::Onnx => "onnx",
        };
        PathBuf::from(name.unwrap_or_default()).with_added_extension(ending)
    });
    let files = || std::iter::once(&out).chain(&options.sample);
    files().try_for_each(|file| require_absent(file))?;
    if options.sample.as_ref() == Some(&out) {
        return Err(Error::usage("`sample` and `out` are one file", "give them two names"));
    }
    observer.cancel().check()?;
    files().try_for_each(|file| make_parent(file))?;
    let sample = options.sample.as_deref();
    let (side, with_preprocess, preprocessing, square, mean, std) = match &model {
        AnyModel::Network(model) => {
            match options.to {
                ExportFormat::Onnx => model.write_onnx(&out, options.with_preprocess)?,
                ExportFormat::Safetensors => model.write_safetensors(&out)?,
            }
            sample.map_or(Ok(()), |sample| model.write_sample(sample, SAMPLE, options.with_preprocess))?;
            let card = &model.card;
            let square = card.combination.as_ref().map(|card| (card.side, card.preprocessing()));
            (model.network.size, options.with_preprocess, card.preprocessing(), square, card.mean, card.std)
        }
        AnyModel::Patches(model, _) => {
            match options.to {
                ExportFormat::Onnx => model.write_onnx(&out)?,
                ExportFormat::Safetensors => model.save_new(&out)?,
            }
            sample.map_or(Ok(()), |sample| model.write_sample(sample, SAMPLE))?;
            // Its ONNX model takes values from 0 to 1 in any case.
            (model.patches().side(), true, model.preprocessing(), None, [0.0; 3], [1.0; 3])
        }
        #[cfg(feature = "onnx")]
        AnyModel::Encoder(encoder) => {
            let message = format!("{} is an ONNX file already", encoder.file.display());
            return Err(Error::usage(message, "give a run folder, or a model file of pcp"));
        }
    };
    let sample = options.sample.clone();
    Ok(ExportResult { out, sample, side, with_preprocess, preprocessing, square, mean, std })
}

/// The model, or the part of it that is asked for.
fn exported(options: &ExportOptions) -> Result<AnyModel> {
    let named = options.model.display();
    let lacks = |has: &str, lacks: &str| {
        Err(Error::usage(format!("{named} has {has} and no {lacks}"), "leave `part` out: there is one alone"))
    };
    match (AnyModel::open(&options.model, WhichWeights::best(options.best))?, options.part) {
        (AnyModel::Network(model), part) if model.card.combination.is_some() => match (part, options.to) {
            (Some(ExportPart::Network), _) => Ok(AnyModel::Network(Box::new(model.network_alone()))),
            (Some(ExportPart::Patches), _) => {
                AnyModel::open(&RunFolder::open(&options.model)?.patches(), WhichWeights::Last)
            }
            (None, ExportFormat::Onnx) => Ok(AnyModel::Network(model)),
            (None, ExportFormat::Safetensors) => Err(Error::usage(
                format!("{named} has patches and a network side by side; safetensors for other tools has one of them"),
                "give `part`: network or patches; ONNX takes both",
            )),
        },
        (AnyModel::Network(_), Some(ExportPart::Patches)) => lacks("a network", "patches"),
        (AnyModel::Patches(..), Some(ExportPart::Network)) => lacks("clusters of patches", "network"),
        (model, _) => Ok(model),
    }
}
