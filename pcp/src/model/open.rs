//! Opening a trained network: from a run folder, one of its files, or a file of another tool.

use super::foreign::recognised;
use super::{Combination, CombinationCard, Model, ModelCard, Named, named_arrays, whitening};
use crate::config;
use crate::run::RunFolder;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::is_there;
use pcp_core::io::tensors::{Array, Source, Tensors};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The choice among the weights of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhichWeights {
    /// The last ones: those of the finished run, or of the newest checkpoint of an unfinished one.
    #[default]
    Last,
    /// Those with the best kNN probe.
    Best,
    /// The initial random weights of the run's seed.
    Untrained,
}

impl WhichWeights {
    /// The best, or the last.
    pub fn best(best: bool) -> WhichWeights {
        if best { WhichWeights::Best } else { WhichWeights::Last }
    }
}

/// The position of a checkpoint in its run, from its description.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct CheckpointPosition {
    round: u32,
    epoch: u32,
    batch: usize,
}

impl CheckpointPosition {
    /// The round and epoch that the weights were last trained in; `None` for untrained weights.
    fn trained(&self, epochs: u32) -> Option<(u32, u32)> {
        match (self.batch, self.epoch, self.round) {
            (0, 0, 0) => None,
            (0, 0, 1..) => Some((self.round - 1, epochs.saturating_sub(1))),
            (0, 1.., _) => Some((self.round, self.epoch - 1)),
            _ => Some((self.round, self.epoch)),
        }
    }
}

impl Model {
    /// The network of a run folder (its last weights) or of a safetensors file.
    ///
    /// The network of a file is given by its description, by the settings of the run folder that contains it, or by the names and
    /// shapes of its arrays, which are torchvision's.
    pub fn open(path: impl AsRef<Path>) -> Result<Model> {
        Model::open_weights(path, WhichWeights::Last)
    }

    /// As [`open`](Self::open), with a choice of weights, which only run folders have.
    pub fn open_weights(path: impl AsRef<Path>, which: WhichWeights) -> Result<Model> {
        let path = path.as_ref();
        match which {
            _ if path.is_dir() => Model::of_run(&RunFolder::open(path)?, which),
            WhichWeights::Last => Model::of_file(path),
            WhichWeights::Best => Err(Error::usage(
                format!("--best chooses among the weights of a run folder, and {} is a file", path.display()),
                "leave out --best, or give the run folder",
            )),
            WhichWeights::Untrained => Err(Error::usage(
                format!("the untrained network is that of a run folder, and {} is a file", path.display()),
                "give the run folder",
            )),
        }
    }

    /// The network of a run.
    pub fn of_run(run: &RunFolder, which: WhichWeights) -> Result<Model> {
        let (config, _) = run.read_config()?;
        if config.method.system == config::System::Patches {
            let message = format!("{} has clusters of patches and no network", run.path().display());
            return Err(Error::usage(
                message,
                "knn, clusters, tsne, embed, assign, neighbours and export take it; this needs a network",
            ));
        }
        let mut card = ModelCard::of_run(&config, (0, 0));
        let network = card.build()?;
        if which == WhichWeights::Untrained {
            return Model::untrained(card, config.train.seed);
        }
        let (mut beside, mut readout) = (None, None);
        let (file, trained, arrays) = match weights_file(run, which)? {
            WeightsFile::Model(file) => {
                let Tensors { about: ModelCard { round, epoch, combination, .. }, arrays } = Tensors::read(&file)?;
                card.combination = combination;
                beside = combined(&card, &arrays, network.pooled).map_err(|e| e.at(&file))?;
                readout = whitening::from_arrays(&arrays, network.pooled).map_err(|e| e.at(&file))?;
                let trained = (config.train.rounds > 0).then_some((round, epoch));
                (file, trained, named_arrays(arrays, ""))
            }
            WeightsFile::Checkpoint(file) => {
                let Tensors { about, arrays } = Tensors::<CheckpointPosition>::read(&file)?;
                (file, about.trained(config.train.epochs), named_arrays(arrays, CHECKPOINT_PREFIX))
            }
        };
        (card.round, card.epoch) = trained.unwrap_or_default();
        let mut weights = network.from_named(&arrays).map_err(|e| e.at(&file))?;
        (weights.combination, weights.readout) = (beside, readout);
        Ok(Model { network: Arc::new(network), weights, card, file: Some(file), trained })
    }

    /// The snapshots of a run, oldest first.
    pub fn snapshots_of(run: &RunFolder) -> Result<Vec<Model>> {
        run.snapshots()?.iter().map(|file| Model::of_file(file)).collect()
    }

    /// The network that `card` describes, with random weights of `seed`.
    pub fn untrained(card: ModelCard, seed: u64) -> Result<Model> {
        let network = card.build()?;
        Ok(Model { weights: network.init(seed), network: Arc::new(network), card, file: None, trained: None })
    }

    /// The network of a safetensors file.
    fn of_file(path: &Path) -> Result<Model> {
        let (mut beside, mut readout) = (None, None);
        let (card, arrays, ours) = match Tensors::<ModelCard>::read_any(path)? {
            Source::Ours(file) => {
                let pooled = file.about.build()?.pooled;
                beside = combined(&file.about, &file.arrays, pooled).map_err(|e| e.at(path))?;
                readout = whitening::from_arrays(&file.arrays, pooled).map_err(|e| e.at(path))?;
                (file.about, named_arrays(file.arrays, ""), true)
            }
            Source::Theirs(arrays) => {
                let arrays = named_arrays(arrays, "");
                (card_of(path, &arrays)?, arrays, false)
            }
        };
        let network = card.build()?;
        let mut weights = network.from_named(&arrays).map_err(|e| e.at(path))?;
        (weights.combination, weights.readout) = (beside, readout);
        let trained = ours.then_some((card.round, card.epoch));
        Ok(Model { network: Arc::new(network), weights, card, file: Some(path.to_path_buf()), trained })
    }
}

/// The patch features beside a network with `pooled` features, where `card` says that there are some.
fn combined(card: &ModelCard, arrays: &BTreeMap<String, Array>, pooled: usize) -> Result<Option<Arc<Combination>>> {
    let read = |card: &CombinationCard| Combination::from_arrays(card.clone(), arrays, pooled).map(Arc::new);
    card.combination.as_ref().map(read).transpose()
}

/// The card of a file without a description: from the settings of the run folder that contains it, or from its arrays.
fn card_of(path: &Path, arrays: &[Named]) -> Result<ModelCard> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match RunFolder::open(folder) {
        Ok(run) => Ok(ModelCard::of_run(&run.read_config()?.0, (0, 0))),
        Err(_) => recognised(arrays).map_err(|e| e.at(path)),
    }
}

/// The names of the weights in a checkpoint begin with this.
pub const CHECKPOINT_PREFIX: &str = "model/";

/// A file with the weights of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsFile {
    /// Weights and their description.
    Model(PathBuf),
    /// A checkpoint: the weights are among other arrays, with [`CHECKPOINT_PREFIX`].
    Checkpoint(PathBuf),
}

/// The file with the weights of a run, of a network or of a detector.
pub fn weights_file(run: &RunFolder, which: WhichWeights) -> Result<WeightsFile> {
    if which == WhichWeights::Best {
        let file = run.best_weights();
        return match is_there(&file)? {
            true => Ok(WeightsFile::Model(file)),
            false => Err(Error::file(
                format!("{} does not exist yet", file.display()),
                "leave out --best: only runs with labels have a best probe, after the first probe",
            )),
        };
    }
    let file = run.last_weights();
    if is_there(&file)? {
        return Ok(WeightsFile::Model(file));
    }
    match run.checkpoints()?.pop() {
        Some(newest) => Ok(WeightsFile::Checkpoint(newest)),
        None => {
            Err(Error::file(format!("{} has no weights yet", run.path().display()), "train it further with --resume"))
        }
    }
}

/// Channel means and deviations of CIFAR-10, for networks without training data.
pub(super) const CIFAR: ([f64; 3], [f64; 3]) = ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]);

/// The card of an untrained network for images of CIFAR's size.
pub fn untrained_card(network: config::NetworkSettings) -> ModelCard {
    let (mean, std) = CIFAR;
    let precision = config::Precision::F32;
    ModelCard {
        network,
        precision,
        size: 32,
        margin: 1.0,
        stored: None,
        mean,
        std,
        round: 0,
        epoch: 0,
        combination: None,
    }
}

#[cfg(test)]
mod tests;
