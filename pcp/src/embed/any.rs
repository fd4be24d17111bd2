//! A model of any kind: a network, or clusters of patches.

use crate::data::{FileRow, Pictures};
use crate::model::{Embedded, Model, WhichWeights};
use crate::patches::PatchModel;
use crate::run::RunFolder;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::matrix::Matrix;
use std::path::{Path, PathBuf};

/// The features that every model has.
pub const EMBEDDING: &str = "embedding";

/// A network, or clusters of patches.
pub enum AnyModel {
    /// A network.
    Network(Box<Model>),
    /// Clusters of patches, and their file, where they have one.
    Patches(Box<PatchModel>, Option<PathBuf>),
}

impl AnyModel {
    /// The model of a run folder or of a safetensors file.
    pub fn open(path: &Path, which: WhichWeights) -> Result<AnyModel> {
        let file = match RunFolder::open(path) {
            Ok(run) => run.last_weights(),
            Err(_) => path.to_path_buf(),
        };
        if !PatchModel::is_file(&file) {
            return Ok(AnyModel::Network(Box::new(Model::open_weights(path, which)?)));
        }
        if which != WhichWeights::Last {
            let message = format!("{} is a patch model, which has one set of weights", file.display());
            return Err(Error::usage(message, "leave out --best"));
        }
        Ok(AnyModel::Patches(Box::new(PatchModel::open(&file)?), Some(file)))
    }

    /// The file that it was read from.
    pub fn file(&self) -> Option<&Path> {
        match self {
            AnyModel::Network(model) => model.file.as_deref(),
            AnyModel::Patches(_, file) => file.as_deref(),
        }
    }

    /// An error if it has no features of that name.
    pub fn check_features(&self, name: &str) -> Result<()> {
        match self {
            AnyModel::Network(model) => model.feature_kind(name).map(|_| ()),
            AnyModel::Patches(..) if name == EMBEDDING => Ok(()),
            AnyModel::Patches(..) => Err(Error::usage(
                format!("patch models have no features called {name}"),
                format!("leave `features` out: they have one kind, {EMBEDDING}"),
            )),
        }
    }

    /// Calls `take` with the rows and features of every batch of `pictures`, in order, and `on_images` with the number of
    /// pictures of every batch. Must not be called from rayon's thread pool, which makes the batches.
    pub fn for_each_batch(
        &self,
        pictures: &Pictures,
        features: &str,
        cancel: &Cancel,
        on_images: &dyn Fn(usize),
        take: &mut dyn FnMut(&[FileRow], &Matrix) -> Result<()>,
    ) -> Result<Embedded> {
        self.check_features(features)?;
        match self {
            AnyModel::Network(model) => {
                model.for_each_batch(pictures, model.feature_kind(features)?, cancel, on_images, take)
            }
            AnyModel::Patches(model, _) => model.for_each_batch(pictures, cancel, on_images, take),
        }
    }

    /// The features called `name` of all `pictures` in one matrix.
    pub fn features_of(
        &self,
        pictures: &Pictures,
        name: &str,
        cancel: &Cancel,
        on_images: &dyn Fn(usize),
    ) -> Result<(Matrix, Embedded)> {
        let mut all = Matrix::default();
        let found = self.for_each_batch(pictures, name, cancel, on_images, &mut |_, made| {
            all.rows += made.rows;
            all.dim = made.dim;
            all.values.extend_from_slice(&made.values);
            Ok(())
        })?;
        Ok((all, found))
    }
}
