//! The report: one HTML page that shows what the network of a run learned and which images may not belong.
//!
//! ```text
//! run folder -> gather -> sheets, curves, health, summary, t-SNE -> sprites -> page
//! ```
//!
//! It reads run folders and images only. Its size is limited however large the run is: curves are thinned, the most important
//! images get thumbnails, and thumbnails have a budget in bytes ([`PageLimits`]).

mod collection;
mod curves;
mod findings;
mod gather;
mod health;
mod page;
mod sheets;
mod sprites;
pub(crate) mod strangers;
mod summary;
#[cfg(test)]
mod tests;

pub use collection::{Collection, Suspect, collection_section};
pub use findings::{Findings, PictureSource, ShownGroup, ShownPicture, ShownSection, findings_page};
pub use gather::{Contents, gather};
pub use page::{DRAWING, STYLE, page};

use crate::data::augment::Augmenter;
use crate::data::{Dataset, Images, Labels, Source};
use crate::evaluate::clusters::filters;
use crate::run::RunFolder;
use pcp_core::error::{Error, Kind, Result};
use pcp_core::io::atomic::is_there;
use pcp_core::io::npy::read_npz;
use pcp_core::matrix::Matrix;
use pcp_core::neighbours;
use pcp_core::purify::Grouping;
use pcp_core::rng::{Key, Purpose};
use pcp_core::tsne::{Tsne, tsne};
use serde::Serialize;
use serde_json::{Value, json};
use sheets::Clustering;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Points of the map.
const POINTS: usize = 10_000;
/// Epochs whose purification is judged by labels, at the most.
const JUDGED: usize = 100;
/// Images that may not belong, at the most.
const OUTLIERS: usize = 30;
/// Images whose neighbours are shown, and how many of each.
const SAMPLES: usize = 12;
const NEIGHBOURS: usize = 8;
/// Number of heat maps, and the side of their pictures in pixels.
const HEAT_MAPS: usize = 24;
const HEAT_SIDE: usize = 96;
/// Images that can be enlarged beyond their thumbnails: the first, which are the most important; and their side in pixels.
const LARGE: usize = 240;
const LARGE_SIDE: usize = 224;

/// Limits on what a page shows of one run.
///
/// The whole page stays below 15 MB: thumbnails take 9 MB of base64 at the most (fewer or coarser ones where they would take
/// more), heat maps 1 MB, 10,000 points with names of 80 characters about 2 MB, the rest a few hundred kB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// Number of thumbnails.
    pub images: usize,
    /// Number of points on the map.
    pub points: usize,
    /// Bytes of the thumbnails.
    pub bytes: usize,
}

impl PageLimits {
    /// Default number of thumbnails on a page.
    pub const IMAGES: usize = 6000;

    /// The limits of each of `runs` runs on one page with `images` thumbnails.
    pub fn shared(images: usize, runs: usize) -> Self {
        let runs = runs.max(1);
        PageLimits { images: images / runs, points: POINTS / runs, bytes: 9_000_000 / runs }
    }
}

/// The section of a page about one run or collection, as JSON for the page's script.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct PageSection(Value);

impl PageSection {
    /// The run's name.
    pub fn name(&self) -> &str {
        self.0["name"].as_str().unwrap_or_default()
    }

    /// What is missing from it, and why.
    pub fn notes(&self) -> Vec<String> {
        let notes = self.0["notes"].as_array().into_iter().flatten();
        notes.filter_map(|note| note.as_str().map(String::from)).collect()
    }

    /// Sets the name.
    pub fn renamed(mut self, name: &str) -> PageSection {
        self.0["name"] = name.into();
        self
    }
}

/// Number of progress steps of a section: those of the map, which takes longest.
pub fn steps() -> usize {
    Tsne::default().iterations
}

/// Seconds that the page of a run on `images` images will take on this machine, from a short trial: of the map, which takes longest, and
/// of thumbnails.
pub fn page_seconds(images: usize, dim: usize) -> f64 {
    const POINTS_TRIED: usize = 800;
    const ITERATIONS: [usize; 2] = [20, 60];
    let key = Key { purpose: Purpose::Synthetic, seed: 1, round: 0, epoch: 0 };
    let mut stream = key.stream(0, 0);
    let features = Matrix::new(dim, (0..POINTS_TRIED * dim).map(|_| stream.normal()).collect()).normalised();
    let seconds = |iterations: usize| {
        let began = Instant::now();
        let _ = tsne(&features, &Tsne { iterations, ..Tsne::default() }, &mut |_| Ok(()));
        began.elapsed().as_secs_f64() / POINTS_TRIED as f64
    };
    // Of a point: an iteration, and what comes before the first.
    let [few, many] = ITERATIONS.map(seconds);
    let iteration = (many - few).max(0.0) / (ITERATIONS[1] - ITERATIONS[0]) as f64;
    let before = (few - iteration * ITERATIONS[0] as f64).max(0.0);
    let shown = images.min(POINTS) as f64;
    let deeper = (shown.max(2.0).ln() / (POINTS_TRIED as f64).ln()).max(1.0);
    shown * (steps() as f64 * iteration * deeper + before + 1e-3)
}

/// The section about a run. `images` are its training images, or the error why they cannot be read: then there are no thumbnails.
/// `on_step` is called with the number of [`steps`] done, and often in between while the map starts; its error ends the report.
pub fn run_section(
    run: &RunFolder,
    images: Result<Arc<Dataset>>,
    limits: PageLimits,
    on_step: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<PageSection> {
    let mut contents = gather(run)?;
    let mut notes = std::mem::take(&mut contents.notes);
    let images = pictures(&contents, images, &mut notes);
    let mut pool = Pool::default();
    let judged = filters(run, JUDGED).unwrap_or_else(|e| {
        notes.push(format!("Purification is not judged by labels: {}.", e.message));
        Vec::new()
    });

    let clustering = contents
        .grouping
        .as_ref()
        .map(|grouping| Clustering::new(grouping, contents.labels.as_ref(), contents.before.as_ref()));
    let mut sheets = clustering.as_ref().map(|c| c.sheets(&mut pool));
    let outliers = contents.embeddings.as_ref().map(|features| {
        let unlike = strangers::of_images(features, images.as_ref().map(|data| &data.train.images));
        unlike.into_iter().take(OUTLIERS).map(|(row, _)| pool.add(row as u32)).collect::<Vec<_>>()
    });
    let neighbours = contents.embeddings.as_ref().map(|features| neighbours(features, &mut pool));
    let heat = images.as_ref().and_then(|data| {
        let view = contents.config.augmenter();
        let outcome = heat(run, &data.train.images, &view, &mut pool, limits.bytes / 9).transpose()?;
        outcome.map_err(|e| notes.push(format!("The heat maps are left out: {}.", e.message))).ok()
    });
    if let (Some(clustering), Some(sheets)) = (&clustering, &mut sheets) {
        clustering.all_sheets(sheets, &mut pool);
    }
    let map = match contents.embeddings.as_ref().map(|features| map(features, limits.points, &mut pool, on_step)) {
        Some(Err(e)) if e.kind == Kind::Stopped => return Err(e),
        Some(Err(e)) => {
            notes.push(format!("The map is left out: {}.", e.message));
            None
        }
        made => made.transpose()?,
    };
    let source = source_folder(&contents);
    let pictures = images.as_ref().and_then(|data| {
        let rows = &pool.rows[..pool.rows.len().min(limits.images)];
        let images = sprites::Shown {
            images: &data.train.images,
            files: source.as_deref().map(|folder| (folder, contents.config.data.stored)),
        };
        let large = &rows[..rows.len().min(LARGE)];
        let made = images
            .thumbnails(rows, limits.bytes * 2 / 3)
            .and_then(|thumbnails| Ok((thumbnails, images.tiles(large, LARGE_SIDE, limits.bytes / 3)?)));
        made.map_err(|e| notes.push(format!("The images are left out: {}.", e.message))).ok()
    });
    let (thumbnails, large) = pictures.unwrap_or_default();

    Ok(PageSection(json!({
        "name": contents.name,
        "sentence": summary::sentence(&contents),
        "tiles": summary::tiles(&contents),
        "results": summary::results(&contents),
        "lights": health::lights(&contents, clustering.as_ref()),
        "warnings": contents.warnings.iter().map(|(w, times)| (w.to_string(), times)).collect::<Vec<_>>(),
        "notes": notes,
        "curves": curves::curves(&contents.records, contents.config.train.epochs, contents.images()),
        "judged": curves::judged(&judged, contents.config.train.epochs),
        "classes": contents.labels.as_ref().map(|labels| &labels.classes),
        "grouped": contents.grouped,
        "clusters": clustering.as_ref().map(Clustering::list),
        "clusters_in_all": clustering.as_ref().map_or(0, Clustering::len),
        "sheets": sheets,
        "outliers": outliers,
        "outliers_about": format!("{} pcp purify RUN lists more of them; pcp look tries strangers among your own pictures.", strangers::ABOUT),
        "confusion": clustering.as_ref().and_then(Clustering::confusion),
        "neighbours": neighbours,
        "heat": heat,
        "map": map,
        "images": pool.columns(
            &|row| &contents.files[row].file,
            contents.labels.as_ref(),
            contents.grouping.as_ref(),
        ),
        "thumbnails": thumbnails,
        "large": large,
        "source": source.map(|folder| folder.display().to_string()),
        "config": summary::config(&contents.config),
        "about": summary::about(&contents),
    })))
}

/// The parts of a section that need no images: summary, lights, warnings, curves and settings. They are made anew while a run goes on.
pub fn overview(contents: &Contents) -> PageSection {
    let clustering = contents
        .grouping
        .as_ref()
        .map(|grouping| Clustering::new(grouping, contents.labels.as_ref(), contents.before.as_ref()));
    PageSection(json!({
        "name": contents.name,
        "sentence": summary::sentence(contents),
        "tiles": summary::tiles(contents),
        "results": summary::results(contents),
        "lights": health::lights(contents, clustering.as_ref()),
        "warnings": contents.warnings.iter().map(|(w, times)| (w.to_string(), times)).collect::<Vec<_>>(),
        "notes": contents.notes,
        "curves": curves::curves(&contents.records, contents.config.train.epochs, contents.images()),
        "grouped": contents.grouped,
        "clusters": clustering.as_ref().map(Clustering::list),
        "config": summary::config(&contents.config),
        "about": summary::about(contents),
    }))
}

/// The images, if they are those that the run was trained on.
fn pictures(contents: &Contents, images: Result<Arc<Dataset>>, notes: &mut Vec<String>) -> Option<Arc<Dataset>> {
    let data = match images {
        Ok(data) => data,
        Err(e) => {
            notes.push(format!("There are no thumbnails: {}.", e.message));
            return None;
        }
    };
    let same = contents.files.iter().map(|row| &row.file).eq(data.train.images.names());
    if !same {
        notes.push("There are no thumbnails: the images have changed since the run began.".into());
    }
    same.then_some(data)
}

/// The folder of the photographs, if the run learned from one that is still there.
fn source_folder(contents: &Contents) -> Option<PathBuf> {
    match Source::parse(&contents.config.data.source) {
        Ok(Source::Folder(path)) => Some(path),
        _ => None,
    }
}

/// The images that a page mentions, each once, the most important first; the first ones get thumbnails.
#[derive(Default)]
struct Pool {
    place: HashMap<u32, u32>,
    rows: Vec<u32>,
}

impl Pool {
    /// Adds the image of `row` if it is not there yet; returns its index.
    fn add(&mut self, row: u32) -> u32 {
        let rows = &mut self.rows;
        *self.place.entry(row).or_insert_with(|| {
            rows.push(row);
            rows.len() as u32 - 1
        })
    }

    /// The columns of the page's table of images.
    fn columns<'a>(
        &self,
        file: &dyn Fn(usize) -> &'a str,
        labels: Option<&Labels>,
        grouping: Option<&Grouping>,
    ) -> Value {
        let column = |f: &dyn Fn(usize) -> Value| -> Vec<Value> { self.rows.iter().map(|r| f(*r as usize)).collect() };
        let mut columns = json!({ "file": column(&|r| elided(file(r)).into()) });
        if let Some(labels) = labels {
            columns["label"] = column(&|r| labels.of[r].into()).into();
        }
        if let Some(g) = grouping {
            columns["cluster"] = column(&|r| g.cluster[r].into()).into();
            columns["status"] = column(&|r| (g.status[r] as u8).into()).into();
            columns["distance"] = column(&|r| rounded(g.distance[r], 3)).into();
            if g.vote.iter().any(|v| v.is_finite()) {
                columns["vote"] = column(&|r| rounded(g.vote[r], 2)).into();
            }
        }
        columns
    }
}

/// A number rounded to `digits`; null if it is not finite.
fn rounded(x: f32, digits: i32) -> Value {
    let scale = 10f64.powi(digits);
    if x.is_finite() { ((f64::from(x) * scale).round() / scale).into() } else { Value::Null }
}

/// A name shortened in the middle to at most 80 characters.
fn elided(name: &str) -> String {
    const LONGEST: usize = 80;
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= LONGEST {
        return name.to_string();
    }
    let text = |chars: &[char]| chars.iter().collect::<String>();
    format!("{}…{}", text(&chars[..LONGEST / 3]), text(&chars[chars.len() - LONGEST * 2 / 3 + 1..]))
}

/// `count` of the indices `0..n`, evenly spaced; all of them when there are fewer.
fn evenly(n: usize, count: usize) -> impl Iterator<Item = usize> {
    let count = count.min(n);
    (0..count).map(move |i| i * n / count)
}

/// The t-SNE map of the images; coordinates are scaled to 0..65535.
fn map(features: &Matrix, most: usize, pool: &mut Pool, on_step: &mut dyn FnMut(usize) -> Result<()>) -> Result<Value> {
    let rows: Vec<usize> = evenly(features.rows, most).collect();
    let places = tsne(&features.select_rows(&rows).normalised(), &Tsne::default(), on_step)?;
    let axis = |d: usize| -> Vec<u16> {
        let all = || places.values.iter().skip(d).step_by(2).copied();
        let (low, high) = (all().fold(f32::INFINITY, f32::min), all().fold(f32::NEG_INFINITY, f32::max));
        let extent = (high - low).max(f32::MIN_POSITIVE);
        all().map(|x| ((x - low) / extent * 65535.0) as u16).collect()
    };
    let image: Vec<u32> = rows.iter().map(|row| pool.add(*row as u32)).collect();
    Ok(json!({ "of": features.rows, "x": axis(0), "y": axis(1), "image": image }))
}

/// The nearest neighbours of some images: (image, its neighbours, their cosines).
fn neighbours(features: &Matrix, pool: &mut Pool) -> Vec<(u32, Vec<u32>, Vec<Value>)> {
    let rows: Vec<usize> = evenly(features.rows, SAMPLES).collect();
    // One more than is shown, since the nearest neighbour of an image is itself.
    let found = neighbours::nearest(&features.select_rows(&rows), features, NEIGHBOURS + 1, false, &|_| ());
    let mut shown = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let near = (i * found.k..(i + 1) * found.k).filter(|at| found.index[*at] as usize != *row).take(NEIGHBOURS);
        let image = pool.add(*row as u32);
        let (near, cosines) = near.map(|at| (pool.add(found.index[at]), rounded(found.similarity[at], 2))).unzip();
        shown.push((image, near, cosines));
    }
    shown
}

/// The heat maps of `heat.npz`, each beside its image; `None` when there is no such file.
fn heat(run: &RunFolder, images: &Images, view: &Augmenter, pool: &mut Pool, budget: usize) -> Result<Option<Value>> {
    let path = run.whole("heat.npz")?;
    if !is_there(&path)? {
        return Ok(None);
    }
    let (rows, side, heat) =
        (read_npz::<u32>(&path, "row")?, read_npz::<u32>(&path, "side")?, read_npz(&path, "heat")?);
    let side = side.first().map_or(0, |s| *s as usize);
    let fits = side > 0 && heat.len() == rows.len() * side * side && rows.iter().all(|r| (*r as usize) < images.len());
    if !fits {
        return Err(Error::file("heat.npz does not fit the run", "make it again"));
    }
    let shown: Vec<(u32, &[f32])> = rows.iter().copied().zip(heat.chunks(side * side)).take(HEAT_MAPS).collect();
    let pictures = sprites::heat_maps(images, view, &shown, side, HEAT_SIDE, budget)?;
    let image: Vec<u32> = shown.iter().map(|(row, _)| pool.add(*row)).collect();
    Ok(Some(json!({ "image": image, "pictures": pictures })))
}
