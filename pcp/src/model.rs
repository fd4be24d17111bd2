//! Networks and their weights: built, opened from anywhere, used for inference, trained, and exported.
//!
//! A [`Network`] is a description without numbers; its [`Weights`] are a flat, named list that training holds, passes and
//! saves. Names and shapes are torchvision's, so that other tools can load them. A [`Model`] is both together with what must
//! be known to feed it.

mod alexnet;
mod card;
pub(crate) mod classifier;
mod detector;
mod embed;
mod export;
mod features;
mod foreign;
mod graph;
mod layers;
mod network;
mod onnx;
mod open;
mod resnet;
mod weights;

pub use crate::config::FeatureKind;
pub use card::ModelCard;
pub use embed::Embedded;
pub use foreign::Adopted;
pub use network::Network;
pub use open::{CHECKPOINT_PREFIX, WeightsFile, WhichWeights, untrained_card, weights_file};
pub(crate) use weights::named_arrays;
pub use weights::{Named, Weights};
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

/// A network with its weights, how images are prepared for it, and where it came from.
///
/// ```
/// # use pcp::{config, data, model::{Model, untrained_card}};
/// # let folder = tempfile::tempdir().unwrap();
/// # let file = folder.path().join("model.safetensors");
/// # let network = config::Network { width: 4, ..config::Config::default().network };
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
    /// Its description, with how images are prepared for it.
    pub card: ModelCard,
    /// The file of the weights; `None` for an untrained network.
    pub file: Option<PathBuf>,
    /// Round and epoch that the weights were last trained in, where that is known.
    pub trained: Option<(u32, u32)>,
}

impl Model {
    /// The name of the weights' file, without its folder; `untrained` where there is none.
    pub fn file_name(&self) -> String {
        let name = self.file.as_ref().and_then(|file| file.file_name());
        name.map_or_else(|| "untrained".into(), |name| name.to_string_lossy().into_owned())
    }
}
