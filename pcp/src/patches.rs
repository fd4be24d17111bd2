//! Features from clusters of patches, for any images: learned in seconds, without a network and without labels.
//!
//! [`pcp_core::patches`] has the method; this is its model: which views of images it is learned from, how photographs are brought
//! to its size (all of their area counts), and its file. [`PatchModel::learn`] takes the images of a data set,
//! [`PatchModel::embed`] gives unit features of any images, [`PatchModel::save`] and [`PatchModel::open`] keep it.

mod export;
mod settings;
#[cfg(test)]
mod tests;
mod views;

pub use settings::PatchModelSettings;

use crate::data::{Batch, Images};
use crate::observe::Observer;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::tensors::{Array, Source, Tensors};
use pcp_core::matrix::Matrix;
use pcp_core::patches::{Patches, SquareBatch};
use pcp_core::readout::Readout;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use views::Squares;

/// Images that a trial encodes, patches of each that it learns from, and how often it encodes them: the fastest counts.
const TRIED: usize = 256;
const PER_TRIED: usize = 20;
const TRIALS: usize = 3;

/// The description inside a file of a patch model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchCard {
    /// How it was learned, with the size of its images.
    pub patch_model: PatchModelSettings,
    /// Images that it was learned from.
    pub images: usize,
}

/// Filters learned from patches, the readout, and the preprocessing of images.
///
/// ```
/// use pcp::data::{Image, Images};
/// use pcp::observe::silent;
/// use pcp::patches::{PatchModel, PatchModelSettings};
///
/// let mut images = Images::default();
/// for i in 0..20u64 {
///     let pixels = (0..40 * 30 * 3).map(|at| (at as u64 * (i + 3) % 251) as u8).collect();
///     images.push(i, format!("{i}.png"), Image { width: 40, height: 30, pixels });
/// }
/// let settings = PatchModelSettings::fitting(&images, 0)?;
/// let model = PatchModel::learn(&images, &settings, &silent())?;
/// let features = model.embed(&images, &silent())?;
/// assert_eq!((features.rows, features.dim), (20, 8));
/// # Ok::<(), pcp::core::error::Error>(())
/// ```
pub struct PatchModel {
    /// How it was learned.
    pub card: PatchCard,
    patches: Patches,
    readout: Readout,
}

impl PatchModel {
    /// Learns from `images`. Their labels, where they have some, play no part.
    pub fn learn(images: &Images, settings: &PatchModelSettings, observer: &Arc<dyn Observer>) -> Result<PatchModel> {
        let cancel = observer.cancel();
        settings.check()?;
        observer.begin("patches", 0);
        let clean = Squares::clean(images, settings);
        let patches = Patches::learn(&clean, &settings.patches, cancel);
        observer.end();
        let patches = patches?;
        let (members, all) = (settings.members, images.len().min(settings.images));
        let again = usize::from(members > 1);
        observer.begin("readout", all * (members * (1 + settings.views) + again));
        let readout = Self::learn_readout(images, settings, &patches, observer.as_ref());
        observer.end();
        let card = PatchCard { patch_model: settings.clone(), images: images.len() };
        Ok(PatchModel { card, patches, readout: readout? })
    }

    /// Seconds that the second layer adds to encoding an image on this machine, by a trial with a few of `images`. What is learned for it, in next to
    /// no time, is of no other use.
    pub(crate) fn second_layer_pace(images: &Images, settings: &PatchModelSettings, cancel: &Cancel) -> Result<f64> {
        let tried = Squares::clean(images, settings).first(TRIED);
        let rows: Vec<usize> = (0..pcp_core::patches::Images::len(&tried)).collect();
        let mut learned = settings.patches.clone();
        learned.samples = learned.samples.min(PER_TRIED * TRIED);
        learned.second.samples = learned.samples;
        learned.iterations = 1;
        let with = Patches::learn(&tried, &learned, cancel)?;
        learned.second.centroids = 0;
        let without = Patches::learn(&tried, &learned, cancel)?;
        let seconds = |patches: &Patches| -> Result<f64> {
            let mut best = f64::INFINITY;
            for _ in 0..TRIALS {
                let began = Instant::now();
                patches.roots(&tried, &rows, cancel)?;
                best = best.min(began.elapsed().as_secs_f64());
            }
            Ok(best)
        };
        Ok((seconds(&with)? - seconds(&without)?).max(0.0) / rows.len().max(1) as f64)
    }

    /// The readouts of the committee, each from views of its own, as one.
    fn learn_readout(
        images: &Images,
        settings: &PatchModelSettings,
        patches: &Patches,
        observer: &dyn Observer,
    ) -> Result<Readout> {
        let clean = || Squares::clean(images, settings).told(observer);
        let member = |number: usize| {
            let numbers = number * settings.views..(number + 1) * settings.views;
            let random = numbers.map(|view| Squares::random(images, settings, view as u32).told(observer));
            let views: Vec<Squares> = std::iter::once(clean()).chain(random).collect();
            let views: Vec<&dyn pcp_core::patches::Images> = views.iter().map(|v| v as _).collect();
            patches.learn_readout(&views, settings.images, &settings.readout, observer.cancel())
        };
        let mut members = (0..settings.members).map(member).collect::<Result<Vec<Readout>>>()?;
        match members.len() {
            1 => Ok(members.swap_remove(0)),
            _ => patches.committee(&members, &clean(), settings.images, settings.components(), observer.cancel()),
        }
    }

    /// Unit features of `images`, a row each.
    pub fn embed(&self, images: &Images, observer: &Arc<dyn Observer>) -> Result<Matrix> {
        observer.begin("embedding", images.len());
        let squares = Squares::clean(images, &self.card.patch_model).told(observer.as_ref());
        let features = self.patches.embed(&self.readout, &squares, observer.cancel());
        observer.end();
        features
    }

    /// Features of a batch of views.
    pub(crate) fn batch(&self, batch: &Batch, cancel: &Cancel) -> Result<Matrix> {
        let squares = SquareBatch { side: self.patches.side(), pixels: &batch.pixels };
        self.patches.embed(&self.readout, &squares, cancel)
    }

    /// Numbers of a feature.
    #[expect(clippy::misnamed_getters, reason = "the rows of the map are the columns of the features")]
    pub fn dim(&self) -> usize {
        self.readout.map.rows
    }

    /// The filters.
    pub fn patches(&self) -> &Patches {
        &self.patches
    }

    /// The readout of the square roots of codes.
    pub fn readout(&self) -> &Readout {
        &self.readout
    }

    /// Writes a safetensors file: the arrays of the patches, `readout.mean` and `readout.map`, described by its card.
    pub fn save(&self, path: &Path) -> Result<()> {
        self.tensors().write(path)
    }

    /// The same for a file that must not be there yet: one that another process makes meanwhile stays, and this is an error.
    pub fn save_new(&self, path: &Path) -> Result<()> {
        self.tensors().write_new(path)
    }

    fn tensors(&self) -> Tensors<PatchCard> {
        let Readout { mean, map } = &self.readout;
        let mut arrays = self.patches.arrays("");
        arrays.push(("readout.map".into(), (vec![map.rows, map.dim], map.values.clone())));
        arrays.push(("readout.mean".into(), (vec![mean.len()], mean.clone())));
        let arrays = arrays.into_iter().map(|(name, (shape, values))| (name, Array::F32(shape, values)));
        Tensors { about: self.card.clone(), arrays: arrays.collect() }
    }

    /// The model in a file that [`save`](Self::save) wrote.
    pub fn open(path: &Path) -> Result<PatchModel> {
        let mut file = Tensors::<PatchCard>::read(path)?;
        let settings = &file.about.patch_model;
        settings.check().map_err(|e| e.at(path))?;
        let (side, settings) = (settings.side, settings.patches.clone());
        let codes = settings.features();
        let patches =
            Patches::from_arrays(settings, side, "", &mut |name| file.take_f32(name)).map_err(|e| e.at(path))?;
        let (map, mean) = (file.take_f32("readout.map")?, file.take_f32("readout.mean")?);
        let wrong = |what: &str| {
            let message = format!("{}: {what} has another shape than its card says", path.display());
            Error::file(message, "use another file, or learn it again")
        };
        if map.0.len() != 2 || map.0[0] == 0 || map.0[1] != codes {
            return Err(wrong("readout.map"));
        }
        if mean.0 != [codes] {
            return Err(wrong("readout.mean"));
        }
        let readout = Readout { mean: mean.1, map: Matrix::new(codes, map.1) };
        Ok(PatchModel { card: file.about, patches, readout })
    }

    /// Whether `path` is a file of a patch model, whole or not.
    pub fn is_file(path: &Path) -> bool {
        path.is_file()
            && matches!(Tensors::<serde_json::Value>::read_any(path),
                Ok(Source::Ours(file)) if file.about.get("patch_model").is_some())
    }
}
