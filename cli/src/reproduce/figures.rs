//! The panels of figures, drawn from finished runs.

use crate::paper::{Found, Panel, PanelRecord, Scale, Shows};
use crate::progress;
use image::RgbImage;
use image::imageops::overlay as paste;
use pcp::data::loader::Part;
use pcp::evaluate::heatmap::{Picture, SHOWN, heat_in_boxes, overlay, write_png};
use pcp::jobs::{EvalClustersOptions, EvalTsneOptions, eval_clusters, eval_tsne};
use pcp::model::Model;
use pcp::run::RunFolder;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::make_folder;
use std::path::{Path, PathBuf};

/// Rows of a figure of heat.
const ROWS: usize = 6;
/// Images whose heat is measured in boxes, at the most.
const BOXED: usize = 200;

/// Draws `panel` into the `folder` of its scale, unless that has been done from this run. `dir` is where the data sets are.
pub fn draw(
    panel: &Panel,
    scale: Scale,
    run: &RunFolder,
    folder: &Path,
    dir: Option<&str>,
    quiet: bool,
    stop: &Cancel,
) -> Result<()> {
    let result = run.read_result()?;
    if let Some(known) = PanelRecord::read(folder, panel)?
        && result.is_some_and(|result| result.seed == known.seed && result.revision == known.revision)
        && folder.join(panel.id()).is_dir()
        && !(lacks_boxes(&known) && voc(scale, dir).is_some())
    {
        return Ok(());
    }
    let pictures = folder.join(panel.id());
    make_folder(&pictures)?;
    let found = match panel.shows {
        Shows::Clusters => {
            let observer = progress::job(quiet, stop);
            let drawn = EvalTsneOptions { out: Some(pictures), ..EvalTsneOptions::new(run.path()) };
            let trustworthiness = eval_tsne(&drawn, &observer)?.trustworthiness;
            let score = eval_clusters(&EvalClustersOptions::new(run.path()), &observer)?.score;
            Found::Clusters { score, trustworthiness }
        }
        Shows::Heat => heat(scale, run, &pictures, dir, quiet, stop)?,
    };
    PanelRecord::new(panel, scale, run, found)?.write(folder)
}

/// One picture of what the states of a network look at, and how much of it is in boxes.
fn heat(scale: Scale, run: &RunFolder, out: &Path, dir: Option<&str>, quiet: bool, stop: &Cancel) -> Result<Found> {
    let (config, _) = run.read_config()?;
    let augmenter = config.augmenter();
    let states = Model::snapshots_of(run)?;
    let pictures = match voc(scale, dir) {
        Some(voc) => in_boxes(&voc)?,
        None => one_a_class(&progress::read_images(config.load_request()?, quiet, stop)?)?,
    };
    let rows = pictures.len().min(ROWS);
    // First the images as they are.
    let (step, side) = (SHOWN as u32 + 4, SHOWN as u32);
    let mut sheet = RgbImage::from_pixel(step * (states.len() as u32 + 1), step * rows as u32, image::Rgb([255; 3]));
    for (row, picture) in pictures.iter().take(rows).enumerate() {
        let pixels = picture.square(&augmenter, SHOWN).pixels;
        let plain = RgbImage::from_raw(side, side, pixels)
            .ok_or_else(|| Error::file("a picture has an odd size", "please report this"))?;
        paste(&mut sheet, &plain, 0, i64::from(step) * row as i64);
    }
    let bar = progress::bar("heat maps", quiet);
    bar.set_length((states.len() * pictures.len()) as u64);
    let mut seen = Vec::new();
    for (column, state) in states.iter().enumerate() {
        let mut row = 0;
        seen.push(heat_in_boxes(state, &pictures, &augmenter, &mut |picture, heat| {
            stop.check()?;
            bar.inc(1);
            if row < rows {
                let shown = overlay(&picture.square(&augmenter, SHOWN), heat);
                paste(&mut sheet, &shown, i64::from(step) * (column as i64 + 1), i64::from(step) * row as i64);
            }
            row += 1;
            Ok(())
        })?);
    }
    bar.finish_and_clear();
    write_png(&out.join("heat.png"), &sheet)?;
    Ok(Found::Heat { states: seen, images: pictures.len() })
}

/// Where images with boxes are, if they are.
fn voc(scale: Scale, dir: Option<&str>) -> Option<PathBuf> {
    let folder = dir.filter(|_| scale != Scale::Tiny).map(|dir| Path::new(dir).join("VOCdevkit").join("VOC2007"));
    folder.filter(|voc| voc.is_dir())
}

/// Whether heat was drawn without boxes to measure it in.
fn lacks_boxes(record: &PanelRecord) -> bool {
    matches!(&record.found, Found::Heat { states, .. } if states.iter().all(|state| state.inside.is_none()))
}

/// The first images of a VOC folder that have boxes.
fn in_boxes(voc: &Path) -> Result<Vec<Picture>> {
    let entries = std::fs::read_dir(voc.join("Annotations")).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|e| Some(e.path().file_stem()?.to_os_string())).collect();
    names.sort();
    let read = |name| Picture::read(&voc.join("JPEGImages").join(name).with_extension("jpg"), Some(voc));
    names.into_iter().take(BOXED).map(read).collect()
}

/// The first image of every class to test on; without labels, the first images.
fn one_a_class(dataset: &pcp::data::Dataset) -> Result<Vec<Picture>> {
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
