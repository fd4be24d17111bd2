//! Networks and their weights: building, opening from files, inference, training and export.
//!
//! A [`Network`] is an architecture without weights; its [`Weights`] are a flat list of named arrays. Names and shapes are
//! torchvision's, so that other tools can load them. A [`Model`] is both together with the description of its input.

mod alexnet;
mod card;
pub(crate) mod classifier;
mod combination;
mod detector;
mod embed;
#[cfg(feature = "onnx")]
mod encoder;
mod export;
mod features;
mod foreign;
mod graph;
mod layers;
mod network;
pub(crate) mod onnx;
mod open;
mod preprocess;
mod resnet;
mod weights;
mod whitening;

pub use crate::config::FeatureKind;
pub use card::ModelCard;
pub use combination::CombinationCard;
pub(crate) use combination::{Combination, both_sides};
pub use embed::Embedded;
pub(crate) use embed::embed_batches;
#[cfg(feature = "onnx")]
pub use encoder::Encoder;
pub(crate) use export::made_images;
pub use foreign::Adopted;
pub use network::Network;
pub use open::{CHECKPOINT_PREFIX, WeightsFile, WhichWeights, untrained_card, weights_file};
pub use preprocess::Preprocess;
pub(crate) use weights::named_arrays;
pub use weights::{Named, Weights};
pub(crate) use whitening::{WHITENED, arrays as whitening_arrays, whitening};
// Public for the program's benches, evaluations and detectors alone.
#[doc(hidden)]
pub use detector::{CropPass, Detector, Frames, PartialGradients, ProposalMaps, ProposalPass};
#[doc(hidden)]
pub use features::Extractor;
#[doc(hidden)]
pub use network::{DropoutKey, Maps, Step};
#[doc(hidden)]
pub use weights::Optimizer;

use std::path::PathBuf;
use std::sync::Arc;

/// A network with its weights, the preprocessing of its images, and its origin.
///
/// ```
/// # use pcp::{config, data, model::{Model, untrained_card}};
/// # let folder = tempfile::tempdir().unwrap();
/// # let file = folder.path().join("model.safetensors");
/// # let network = config::NetworkSettings { width: 4, ..config::Config::default().network };
/// # Model::untrained(untrained_card(network), 0)?.write_safetensors(&file)?;
/// # let photo = folder.path().join("photo.png");
/// # image::RgbImage::new(40, 30).save(&photo).unwrap();
/// let model = Model::open(&file)?; // a run folder, or the model.safetensors of one
/// let image = data::decode::file(&photo).unwrap();
/// let embedding = model.embed([image]);
/// assert_eq!((embedding.rows, embedding.dim), (1, 128));
/// # Ok::<(), pcp_core::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    /// The network.
    pub network: Arc<Network>,
    /// Its weights.
    pub weights: Weights,
    /// Its description, with the preprocessing of images.
    pub card: ModelCard,
    /// The file of the weights; `None` for an untrained network.
    pub file: Option<PathBuf>,
    /// Round and epoch that the weights were last trained in, if known.
    pub trained: Option<(u32, u32)>,
}

impl Model {
    /// The network without patch features beside it: its embedding is that of its last layer.
    pub fn network_alone(mut self) -> Model {
        self.weights.combination = None;
        self.card.combination = None;
        self
    }

    /// The name of the weights' file, without its folder; `untrained` if there is none.
    pub fn file_name(&self) -> String {
        let name = self.file.as_ref().and_then(|file| file.file_name());
        name.map_or_else(|| "untrained".into(), |name| name.to_string_lossy().into_owned())
    }
}
