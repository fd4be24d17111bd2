//! Features of a folder of images without any training: clusters of patches, learned from the images themselves in seconds. Or
//! those of a model that is there.

use super::images;
use super::part::JobPart;
use super::pictures::Gallery;
use crate::config::{PHOTOGRAPH_SIDE, usual_stored_side};
use crate::data::{BadFile, Dataset, FileRow, Load, Pictures, Source, count_images};
use crate::embed::{AnyModel, EMBEDDING};
use crate::model::WhichWeights;
use crate::observe::Observer;
use crate::patches::{PatchModel, PatchModelSettings};
use pcp_core::error::{Error, Kind, Result};
use pcp_core::matrix::Matrix;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// More photographs than this are stored smaller: they would take more than 2 GB.
const MANY: usize = 20_000;

/// Images, and the model that gives their features.
pub(crate) struct Photographs {
    /// The model: given, or learned from the images.
    pub model: AnyModel,
    /// The images, training images first.
    pub data: Arc<Dataset>,
    /// The folder that the names are below, where the images are files.
    pub folder: Option<PathBuf>,
}

/// Where images that were read can be shown from.
pub(crate) enum PhotographsAt {
    /// Files below a folder.
    Folder(PathBuf),
    /// In memory alone.
    Memory(Arc<Dataset>),
}

impl PhotographsAt {
    /// The images of these names.
    pub(crate) fn gallery(&self, names: &[String]) -> Result<Gallery> {
        match self {
            PhotographsAt::Folder(path) => Gallery::of_files(Some(path), names),
            PhotographsAt::Memory(data) => Ok(Gallery::of_data(data.clone(), names)),
        }
    }
}

/// Embedded images.
pub(crate) struct EmbeddedPhotographs {
    /// Unit features, a row each.
    pub features: Matrix,
    /// The image of every row.
    pub rows: Vec<FileRow>,
    /// Images that could not be read.
    pub bad: Vec<BadFile>,
}

/// Whether `path` can only mean images: the name of a data set, a folder that is no run, or a folder of idx files.
pub(crate) fn is_images(path: &Path) -> bool {
    let named = !path.exists() && path.to_str().is_some_and(|name| Source::NAMES.contains(&name));
    let is_run = || crate::run::RunFolder::open(path).map_or_else(|e| e.kind != Kind::Usage, |_| true);
    named || path.is_dir() && !is_run()
}

impl Photographs {
    /// Reads the images that `text` names (a folder, bundled, cifar10, cifar100), and opens `model` or learns a patch model from
    /// them: from the training images, where they are divided. Everything random follows from `seed`.
    pub(crate) fn open(
        text: &str,
        data_dir: Option<&Path>,
        model: Option<&Path>,
        seed: u64,
        observer: &Arc<dyn Observer>,
    ) -> Result<Photographs> {
        let source = Source::parse(text)?;
        source.check_dir(data_dir.is_some())?;
        let folder = match &source {
            Source::Folder(path) => Some(path.clone()),
            _ => None,
        };
        let opened = model.map(|path| AnyModel::open(path, WhichWeights::Last)).transpose()?;
        let load = Load { data_dir: data_dir.map(Path::to_path_buf), ..Load::new(source) };
        let stored = match (&opened, &folder) {
            (Some(model), _) => model.view().stored,
            (None, Some(folder)) if count_images(folder, &load).map_err(|e| no_photographs(text, e))? <= MANY => {
                PHOTOGRAPH_SIDE
            }
            (None, _) => usual_stored_side(PatchModelSettings::default().side),
        };
        let load = Load { stored_side: Some(stored).filter(|side| *side > 0), ..load };
        let data = images::read(load, observer).map_err(|e| no_photographs(text, e))?;
        let model = match opened {
            Some(model) => model,
            None => {
                let settings = PatchModelSettings { stored, ..PatchModelSettings::fitting(&data.train.images, seed)? };
                let learned = PatchModel::learn(&data.train.images, &settings, observer)?;
                AnyModel::Patches(Box::new(learned), None)
            }
        };
        Ok(Photographs { model, data: Arc::new(data), folder })
    }

    /// Where they can be shown from.
    pub(crate) fn at(&self) -> PhotographsAt {
        match &self.folder {
            Some(folder) => PhotographsAt::Folder(folder.clone()),
            None => PhotographsAt::Memory(self.data.clone()),
        }
    }

    /// All images, training images first.
    pub(crate) fn pictures(&self) -> Pictures {
        Pictures::Loaded(self.data.clone())
    }

    /// Embeddings of all images.
    pub(crate) fn embed(&self, observer: &Arc<dyn Observer>) -> Result<EmbeddedPhotographs> {
        self.features(EMBEDDING, observer)
    }

    /// The features called `name` of all images.
    pub(crate) fn features(&self, name: &str, observer: &Arc<dyn Observer>) -> Result<EmbeddedPhotographs> {
        self.model.check_features(name)?;
        let pictures = self.pictures();
        let part = JobPart::begin("embedding", pictures.len(), observer);
        let made = self.model.features_of(&pictures, name, observer.cancel(), &|n| part.more(n));
        part.end();
        let (features, mut found) = made?;
        found.bad.extend(self.data.bad.iter().cloned());
        Ok(EmbeddedPhotographs { features, rows: found.rows, bad: found.bad })
    }
}

/// A folder without images may have been meant as a run.
fn no_photographs(text: &str, e: Error) -> Error {
    if !(Path::new(text).is_dir() && e.message.starts_with("no images")) {
        return e;
    }
    let hint = format!("a run folder has a config.toml, and this one has none; {}", e.hint);
    Error { hint, ..e }
}

#[cfg(test)]
pub(crate) mod tests;
