//! Measures of a run's features: one file per measure. Reports are kept in the run's `eval` folder and read back as the same types.

mod clusters;
mod finetune;
mod heat_sheet;
mod heatmap;
mod knn;
mod linear;
#[cfg(test)]
mod tests;
mod tsne;

pub use clusters::{ClustersReport, EvalClusterCount, EvalClustersOptions, eval_clusters, read_clusters};
pub use finetune::{EvalFinetuneOptions, FinetuneReport, eval_finetune, read_finetune};
pub use heat_sheet::{HeatSheetOptions, HeatSheetResult, heat_sheet};
pub use heatmap::{EvalHeatmapOptions, HeatmapReport, eval_heatmap, read_heatmap};
pub use knn::{EvalKnnOptions, KnnReport, eval_knn};
pub use linear::{EvalLinearOptions, LinearReport, eval_linear, read_fast_linear, read_linear};
pub use tsne::{EvalTsneOptions, TRUSTWORTHINESS_NEIGHBOURS, TsneReport, eval_tsne};

use super::images::read_again;
use super::part::JobPart;
use crate::config::{Resolved, System};
use crate::data::loader::{Loader, Part, View};
use crate::data::{Dataset, Images, Labels, Split};
use crate::model::{Extractor, FeatureKind, Model, WhichWeights};
use crate::observe::Observer;
use crate::patches::PatchModel;
use crate::run::RunFolder;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{is_there, make_tidy_folder, read_bytes, write_bytes};
use pcp_core::matrix::Matrix;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use std::path::PathBuf;
use std::sync::Arc;

/// The weights that were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredWeights {
    /// Their file.
    pub weights: String,
    /// The round in which they were last trained, from 0; `None` where they never were.
    pub round: Option<u32>,
    /// The epoch of that round, from 0.
    pub epoch: Option<u32>,
}

impl MeasuredWeights {
    fn of(model: &Model) -> MeasuredWeights {
        let (round, epoch) = model.trained.unzip();
        MeasuredWeights { weights: model.file_name(), round, epoch }
    }

    /// Clusters of patches, which no epoch trained.
    fn of_patches(run: &RunFolder) -> MeasuredWeights {
        let weights = run.last_weights().file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
        MeasuredWeights { weights, round: None, epoch: None }
    }
}

/// The images and the weights that were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredImages {
    /// Which images, in words.
    pub images_of: String,
    /// The weights.
    #[serde(flatten)]
    pub weights: MeasuredWeights,
}

/// The folder of a run that holds reports.
fn eval_folder(run: &RunFolder) -> PathBuf {
    run.file("eval")
}

/// Writes a report into the run's `eval` folder.
pub(super) fn write_report(run: &RunFolder, name: &str, report: &impl Serialize) -> Result<()> {
    let folder = eval_folder(run);
    make_tidy_folder(&folder)?;
    let text =
        serde_json::to_string_pretty(report).map_err(|e| Error::file(format!("{name}: {e}"), "please report this"))?;
    write_bytes(&folder.join(name), format!("{text}\n").as_bytes())
}

/// The report of that name in the run's `eval` folder; `None` where there is none, or one that another version of the program wrote.
pub(super) fn read_report<T: DeserializeOwned>(run: &RunFolder, name: &str) -> Result<Option<T>> {
    let path = eval_folder(run).join(name);
    if !is_there(&path)? {
        return Ok(None);
    }
    match serde_json::from_slice(&read_bytes(&path)?) {
        Ok(report) => Ok(Some(report)),
        Err(e) if e.classify() == Category::Data => Ok(None),
        Err(e) => Err(Error::file(format!("{}: {e}", path.display()), "remove the file: it is made again")),
    }
}

/// Refuses settings that no classifier can be trained with.
fn check_training(epochs: u32, batch: usize, lr: f64, usual: &str) -> Result<()> {
    if epochs == 0 || batch == 0 || !(lr > 0.0 && lr.is_finite()) {
        let hint = format!("leave them out for {usual} values");
        return Err(Error::usage("`epochs`, `batch` and `lr` must be above 0", hint));
    }
    Ok(())
}

/// The clean embeddings of one split of a data set.
struct EmbeddedSplit {
    dataset: Arc<Dataset>,
    part: Part,
    features: Matrix,
    origin: MeasuredImages,
}

impl EmbeddedSplit {
    fn split(&self) -> &Split {
        match (&self.dataset.test, self.part) {
            (Some(test), Part::Test) => test,
            _ => &self.dataset.train,
        }
    }

    fn images(&self) -> &Images {
        &self.split().images
    }

    fn labels(&self) -> Option<&Labels> {
        self.split().labels.as_ref()
    }

    /// Embeds the images of `part`. Without one: the test images, or the training images where there are no test images or
    /// where only the training images have labels.
    fn new(
        run: &RunFolder,
        config: &Resolved,
        best: bool,
        part: Option<Part>,
        observer: &Arc<dyn Observer>,
    ) -> Result<EmbeddedSplit> {
        let patches = patches_of(run, config, best)?;
        let model = if patches.is_none() { Some(Model::of_run(run, WhichWeights::best(best))?) } else { None };
        let dataset = Arc::new(read_again(config, observer)?);
        if part == Some(Part::Test) && dataset.test.is_none() {
            let message = format!("{} has no test images", config.data.source);
            return Err(Error::data(message, "look at the training images: `part` train"));
        }
        let part = part.unwrap_or(usual_part(&dataset));
        let images_of = match (part, &dataset.test) {
            (Part::Test, _) => "test images",
            (Part::Train, Some(_)) => "training images",
            (Part::Train, None) => "training images (there are no test images)",
        };
        let loader = Loader::new(dataset.clone(), config.augmenter());
        let (features, weights) = match (&model, &patches) {
            (Some(model), _) => {
                let embedding = JobPart::begin("embedding", loader.images(part).len(), observer);
                let on_images = |n| embedding.more(n);
                let (network, weights, cancel) = (&model.network, &model.weights, observer.cancel());
                let extractor = Extractor { network, weights, cancel, on_images: &on_images };
                let features = extractor.all(&loader, part, View::Clean, FeatureKind::Embedding);
                embedding.end();
                (features?, MeasuredWeights::of(model))
            }
            (None, Some(patches)) => (patches.embed(loader.images(part), observer)?, MeasuredWeights::of_patches(run)),
            (None, None) => unreachable!("a run has a network or patches"),
        };
        let origin = MeasuredImages { images_of: images_of.into(), weights };
        Ok(EmbeddedSplit { dataset, part, features, origin })
    }
}

/// The patch model of a run that has one.
fn patches_of(run: &RunFolder, config: &Resolved, best: bool) -> Result<Option<PatchModel>> {
    if config.method.system != System::Patches {
        return Ok(None);
    }
    if best {
        return Err(Error::usage(
            "`best` chooses among the weights of a network, and this run has none",
            "leave it out",
        ));
    }
    let file = run.last_weights();
    if !is_there(&file)? {
        let message = format!("{} has no model yet", run.path().display());
        return Err(Error::usage(message, format!("finish the run: `resume` {}", run.path().display())));
    }
    PatchModel::open(&file).map(Some)
}

/// The test images, or the training images where there are no test images or where only the training images have labels.
fn usual_part(dataset: &Dataset) -> Part {
    let labelled = |split: &Split| split.labels.is_some();
    match &dataset.test {
        Some(test) if labelled(test) || !labelled(&dataset.train) => Part::Test,
        _ => Part::Train,
    }
}
