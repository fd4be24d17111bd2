//! Features of any number of images, which are read and embedded batch by batch.

use super::{Extractor, Model, WHITENED};
use crate::config::FeatureKind;
use crate::data::{BadFile, Batch, CleanView, FileRow, Image, Pictures};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::matrix::Matrix;

/// The images that were embedded, and those that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Embedded {
    /// The image of every row, in order.
    pub rows: Vec<FileRow>,
    /// Images that could not be read.
    pub bad: Vec<BadFile>,
}

impl Model {
    /// The features called `name`: `embedding`, `pooled`, `whitened` where the model has a readout, or a layer (`layer1` to
    /// `layer4`, `conv1` to `conv5`).
    pub fn feature_kind(&self, name: &str) -> Result<FeatureKind> {
        match name {
            WHITENED if self.weights.has_whitened() => Ok(FeatureKind::Whitened),
            WHITENED => Err(Error::usage(
                "this model has no readout that whitens its features",
                "use the last weights of a finished run, which have one, or the features pooled",
            )),
            name => self.network.feature_kind(name),
        }
    }

    /// Embeddings of images in memory, as unit vectors, one row per image.
    pub fn embed(&self, images: impl IntoIterator<Item = Image>) -> Matrix {
        self.features(images, FeatureKind::Embedding)
    }

    /// Features of images in memory, one row per image.
    pub fn features(&self, images: impl IntoIterator<Item = Image>, kind: FeatureKind) -> Matrix {
        self.network.features(&self.weights, &self.card.clean_view().batch(images), kind)
    }

    /// Features of a batch of views.
    pub(crate) fn batch(&self, batch: Batch, kind: FeatureKind, cancel: &Cancel) -> Result<Matrix> {
        let extractor = Extractor { network: &self.network, weights: &self.weights, cancel, on_images: &|_| () };
        Ok(extractor.batch(batch, &[kind])?.into_iter().next().unwrap_or_default())
    }
}

/// Calls `take` with the rows and the `features` of every batch of views of `pictures`, in order, and `on_images` with the number
/// of pictures of every batch. Must not be called from rayon's thread pool, which makes the batches.
pub(crate) fn embed_batches(
    pictures: &Pictures,
    view: CleanView,
    cancel: &Cancel,
    on_images: &dyn Fn(usize),
    features: &mut dyn FnMut(Batch) -> Result<Matrix>,
    take: &mut dyn FnMut(&[FileRow], &Matrix) -> Result<()>,
) -> Result<Embedded> {
    let mut all = Embedded::default();
    for made in pictures.stream(view) {
        let made = made?;
        let images = made.rows.len() + made.bad.len();
        if made.batch.rows > 0 {
            take(&made.rows, &features(made.batch)?)?;
        }
        cancel.check()?;
        all.rows.extend(made.rows);
        all.bad.extend(made.bad);
        on_images(images);
    }
    match (all.rows.is_empty(), all.bad.first()) {
        (true, Some(bad)) => Err(Error::data(
            format!("none of the images can be read; {}: {}", bad.name, bad.reason),
            "JPEG, PNG, WebP, BMP, GIF and TIFF can be read: convert the files, or get them again",
        )),
        _ => Ok(all),
    }
}
