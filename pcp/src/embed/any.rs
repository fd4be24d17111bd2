//! A model of any kind: a network, clusters of patches, or an encoder of another tool.

use crate::data::{Batch, CleanView, FileRow, Pictures};
use crate::model::{Embedded, Model, Preprocess, WhichWeights, embed_batches};
use crate::patches::PatchModel;
use crate::run::RunFolder;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::matrix::Matrix;
use std::path::{Path, PathBuf};

/// The features that every model has.
pub const EMBEDDING: &str = "embedding";

/// A network, clusters of patches, or an encoder of another tool.
pub enum AnyModel {
    /// A network.
    Network(Box<Model>),
    /// Clusters of patches, and their file, where they have one.
    Patches(Box<PatchModel>, Option<PathBuf>),
    /// An encoder in ONNX.
    #[cfg(feature = "onnx")]
    Encoder(std::sync::Arc<crate::model::Encoder>),
}

impl AnyModel {
    /// Whether `path` is named as an ONNX file.
    pub fn is_onnx(path: &Path) -> bool {
        path.extension().is_some_and(|e| e.eq_ignore_ascii_case("onnx"))
    }

    /// The encoder of an ONNX file, with its output called `features`; how images are made for it is as `asked`, or as is said beside it or
    /// in it.
    #[cfg(feature = "onnx")]
    pub fn open_onnx(path: &Path, features: &str, asked: Preprocess) -> Result<AnyModel> {
        Ok(AnyModel::Encoder(std::sync::Arc::new(crate::model::Encoder::open(path, features, asked)?)))
    }

    /// An error: ONNX files are run where the library was built for it.
    #[cfg(not(feature = "onnx"))]
    pub fn open_onnx(path: &Path, _: &str, _: Preprocess) -> Result<AnyModel> {
        let hint = "build it with it (cargo install --path cli --features onnx), or use the one of the Python package";
        Err(Error::usage(format!("{}: this program was built without ONNX", path.display()), hint))
    }

    /// The model of a run folder, of a safetensors file, or of an ONNX file that says how its images are made.
    pub fn open(path: &Path, which: WhichWeights) -> Result<AnyModel> {
        if AnyModel::is_onnx(path) {
            if which != WhichWeights::Last {
                let message = format!("{} is an ONNX file, which has one set of weights", path.display());
                return Err(Error::usage(message, "leave out --best"));
            }
            return AnyModel::open_onnx(path, EMBEDDING, Preprocess::default());
        }
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
            #[cfg(feature = "onnx")]
            AnyModel::Encoder(encoder) => Some(&encoder.file),
        }
    }

    /// What a user should know about it.
    pub fn note(&self) -> Option<&'static str> {
        match self {
            #[cfg(feature = "onnx")]
            AnyModel::Encoder(encoder) if encoder.bicubic => {
                Some("this encoder was trained on images resized by bicubic interpolation; here it is bilinear")
            }
            _ => None,
        }
    }

    /// What the features that were asked for as `name` are called.
    pub fn features_name<'a>(&'a self, name: &'a str) -> &'a str {
        match self {
            #[cfg(feature = "onnx")]
            AnyModel::Encoder(encoder) => &encoder.output,
            _ => name,
        }
    }

    /// How images are brought to what it takes.
    pub fn view(&self) -> CleanView {
        match self {
            AnyModel::Network(model) => model.card.clean_view(),
            AnyModel::Patches(model, _) => model.card.patch_model.view(),
            #[cfg(feature = "onnx")]
            AnyModel::Encoder(encoder) => encoder.view.clone(),
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
            // The output was chosen when it was opened.
            #[cfg(feature = "onnx")]
            AnyModel::Encoder(_) => Ok(()),
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
        let mut of_batch = |batch: Batch| match self {
            AnyModel::Network(model) => model.batch(batch, model.feature_kind(features)?, cancel),
            AnyModel::Patches(model, _) => model.batch(&batch, cancel),
            #[cfg(feature = "onnx")]
            AnyModel::Encoder(encoder) => encoder.batch(batch, cancel),
        };
        embed_batches(pictures, self.view(), cancel, on_images, &mut of_batch, take)
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
