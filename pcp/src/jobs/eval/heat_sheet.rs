//! What the snapshots of a run look at, side by side on one picture: Figures 1 and 4 of the paper.

use crate::data::Dataset;
use crate::data::loader::Part;
use crate::evaluate::heatmap::{HeatInBoxes, Picture, SHOWN, heat_in_boxes, overlay, write_png};
use crate::jobs::images::read;
use crate::jobs::part::JobPart;
use crate::model::Model;
use crate::observe::Observer;
use crate::run::RunFolder;
use image::RgbImage;
use image::imageops::overlay as paste;
use pcp_core::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows of the picture.
const ROWS: usize = 6;
/// Images whose heat is measured in boxes, at the most.
const BOXED: usize = 200;
/// Pixels between two images.
const GAP: u32 = 4;

/// The run, and where its picture goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatSheetOptions {
    /// A run folder with snapshots.
    pub run: PathBuf,
    /// A VOC folder whose images are looked at, and whose boxes the heat is measured in; otherwise the first image of every class of the run's own.
    pub voc: Option<PathBuf>,
    /// The file to write, a PNG.
    pub out: PathBuf,
}

/// Heat of the snapshots of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeatSheetResult {
    /// The snapshots, in the order of time.
    pub states: Vec<HeatInBoxes>,
    /// Images that were looked at.
    pub images: usize,
}

/// Draws a row per image: the image as it is, then its heat by every snapshot.
pub fn heat_sheet(options: &HeatSheetOptions, observer: &Arc<dyn Observer>) -> Result<HeatSheetResult> {
    let run = RunFolder::open(&options.run)?;
    let (config, _) = run.read_config()?;
    let augmenter = config.augmenter();
    let states = Model::snapshots_of(&run)?;
    let pictures = match &options.voc {
        Some(voc) => with_boxes(voc)?,
        None => one_per_class(&read(config.load_request()?, observer)?)?,
    };
    let rows = pictures.len().min(ROWS);
    let (step, side) = (SHOWN as u32 + GAP, SHOWN as u32);
    let mut sheet = RgbImage::from_pixel(step * (states.len() as u32 + 1), step * rows as u32, image::Rgb([255; 3]));
    for (row, picture) in pictures.iter().take(rows).enumerate() {
        let pixels = picture.square(&augmenter, SHOWN).pixels;
        let plain = RgbImage::from_raw(side, side, pixels)
            .ok_or_else(|| Error::file("a picture has an odd size", "please report this"))?;
        paste(&mut sheet, &plain, 0, i64::from(step) * row as i64);
    }
    let part = JobPart::begin("heat maps", states.len() * pictures.len(), observer);
    let mut seen = Vec::new();
    for (column, state) in states.iter().enumerate() {
        let mut row = 0;
        seen.push(heat_in_boxes(state, &pictures, &augmenter, &mut |picture, heat| {
            observer.cancel().check()?;
            part.more(1);
            if row < rows {
                let shown = overlay(&picture.square(&augmenter, SHOWN), heat);
                paste(&mut sheet, &shown, i64::from(step) * (column as i64 + 1), i64::from(step) * row as i64);
            }
            row += 1;
            Ok(())
        })?);
    }
    part.end();
    write_png(&options.out, &sheet)?;
    Ok(HeatSheetResult { states: seen, images: pictures.len() })
}

/// The first images of a VOC folder that have boxes.
fn with_boxes(voc: &Path) -> Result<Vec<Picture>> {
    let entries = std::fs::read_dir(voc.join("Annotations")).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|e| Some(e.path().file_stem()?.to_os_string())).collect();
    names.sort();
    let read = |name| Picture::read(&voc.join("JPEGImages").join(name).with_extension("jpg"), Some(voc));
    names.into_iter().take(BOXED).map(read).collect()
}

/// The first test image of every class; without labels, the first images.
fn one_per_class(dataset: &Dataset) -> Result<Vec<Picture>> {
    let (part, split) = match &dataset.test {
        Some(test) => (Part::Test, test),
        None => (Part::Train, &dataset.train),
    };
    let first = |class: u32| split.labels.as_ref()?.of.iter().position(|c| *c == class);
    let rows: Vec<usize> = match &split.labels {
        Some(labels) => (0..labels.classes.len() as u32).filter_map(first).collect(),
        None => (0..split.images.len().min(ROWS)).collect(),
    };
    let name = |row: usize| format!("{}{row}", if part == Part::Test { "test" } else { "train" });
    let picture = |row: usize| {
        let image = split.images.sample(row)?.image.into_owned();
        Ok(Picture { name: name(row), image, annotation: None })
    };
    rows.into_iter().map(picture).collect()
}
