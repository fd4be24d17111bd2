//! Where the network of a run looks: heat over images, and its share inside boxes.

use super::{eval_folder, read_report, write_report};
use crate::evaluate::heatmap::{HeatInBoxes, Picture, SHOWN, heat_in_boxes, overlay, write_png};
use crate::jobs::part::JobPart;
use crate::model::{Model, WhichWeights};
use crate::observe::Observer;
use crate::run::RunFolder;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::make_tidy_folder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILE: &str = "heat.json";

/// Which images are looked at, by the network of which run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalHeatmapOptions {
    /// A run folder.
    pub run: PathBuf,
    /// Image files.
    pub images: Vec<PathBuf>,
    /// Also the snapshots along the way.
    pub snapshots: bool,
    /// A VOC folder: its Annotations have the boxes.
    pub boxes: Option<PathBuf>,
    /// The folder for the pictures; otherwise `eval/heat` of the run.
    pub out: Option<PathBuf>,
    /// Use the weights of the best probe instead of the last.
    pub best: bool,
}

impl EvalHeatmapOptions {
    /// Pictures of `images` by the last weights of `run`.
    pub fn new(run: impl Into<PathBuf>, images: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        let images = images.into_iter().map(Into::into).collect();
        EvalHeatmapOptions { run: run.into(), images, snapshots: false, boxes: None, out: None, best: false }
    }
}

/// Heat of networks over images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeatmapReport {
    /// Images that were looked at.
    pub images: usize,
    /// The folder with the pictures, one per image and network.
    pub pictures: String,
    /// The networks: the snapshots in the order of time, then the run's own weights.
    pub states: Vec<HeatInBoxes>,
}

/// Draws where the network of a run looks, and keeps the report as `eval/heat.json` of the run.
pub fn eval_heatmap(options: &EvalHeatmapOptions, observer: &Arc<dyn Observer>) -> Result<HeatmapReport> {
    if options.images.is_empty() {
        return Err(Error::usage("`images` names no file", "give at least one image file"));
    }
    let run = RunFolder::open(&options.run)?;
    let (config, _) = run.read_config()?;
    let model = Model::of_run(&run, WhichWeights::best(options.best))?;
    let augmenter = config.augmenter();
    let pictures = read_pictures(&options.images, options.boxes.as_deref())?;
    let mut states = if options.snapshots { Model::snapshots_of(&run)? } else { Vec::new() };
    if options.snapshots && states.is_empty() {
        return Err(Error::usage(
            format!("{} has no snapshots", run.path().display()),
            "train with `snapshots` N, or leave out `snapshots`",
        ));
    }
    states.push(model);
    let out = options.out.clone().unwrap_or_else(|| eval_folder(&run).join("heat"));
    make_tidy_folder(&out)?;
    let part = JobPart::begin("heat maps", states.len() * pictures.len(), observer);
    let heat_of = |model: &Model| {
        let stem = stem(Path::new(&model.file_name()));
        heat_in_boxes(model, &pictures, &augmenter, &mut |picture, heat| {
            observer.cancel().check()?;
            part.more(1);
            let shown = overlay(&picture.square(&augmenter, SHOWN), heat);
            write_png(&out.join(format!("{}-{stem}.png", picture.name)), &shown)
        })
    };
    let found: Result<Vec<HeatInBoxes>> = states.iter().map(heat_of).collect();
    part.end();
    let report = HeatmapReport { images: pictures.len(), pictures: out.display().to_string(), states: found? };
    write_report(&run, FILE, &report)?;
    Ok(report)
}

/// The images with their boxes; those of the same name in several folders are numbered.
fn read_pictures(files: &[PathBuf], boxes: Option<&Path>) -> Result<Vec<Picture>> {
    let mut pictures = files.iter().map(|path| Picture::read(path, boxes)).collect::<Result<Vec<_>>>()?;
    if let Some(voc) = boxes.filter(|_| pictures.iter().all(|picture| picture.annotation.is_none())) {
        let message = format!("{} has no annotation of any of these images", voc.join("Annotations").display());
        return Err(Error::data(message, "give images of that folder, or leave `boxes` out"));
    }
    let names: BTreeSet<&String> = pictures.iter().map(|picture| &picture.name).collect();
    if names.len() < pictures.len() {
        pictures.iter_mut().enumerate().for_each(|(i, picture)| picture.name = format!("{}-{}", i + 1, picture.name));
    }
    Ok(pictures)
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The report of the last [`eval_heatmap`] of a run; `None` where there was none.
pub fn read_heatmap(run: &RunFolder) -> Result<Option<HeatmapReport>> {
    read_report(run, FILE)
}
