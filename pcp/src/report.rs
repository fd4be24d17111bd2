//! A run as a page: one HTML file that shows what the network learned and which images do not belong.
//!
//! ```text
//! run folder -> gather -> sheets, curves, health, summary, t-SNE -> sprites -> page
//! ```
//!
//! It reads run folders and images and nothing else. Its size is bounded whatever the run's: curves are thinned, images are
//! drawn from a pool in the order of their importance, and thumbnails have a budget ([`Limits`]).

mod collection;
mod curves;
mod gather;
mod health;
mod page;
mod sheets;
mod sprites;
mod summary;
#[cfg(test)]
mod tests;

pub use collection::{Collection, Suspect, look_at};
pub use page::page;

use crate::data::{Dataset, Images, Labels};
use crate::run::RunFolder;
use gather::Contents;
use pcp_core::error::{Error, Result};
use pcp_core::io::npy::read_npz;
use pcp_core::matrix::Matrix;
use pcp_core::neighbours;
use pcp_core::purify::Grouping;
use pcp_core::tsne::{Tsne, tsne};
use serde::Serialize;
use serde_json::{Value, json};
use sheets::Clustering;
use std::collections::HashMap;
use std::sync::Arc;

/// Points of the map.
const POINTS: usize = 10_000;
/// Images whose neighbours are shown, and how many of each.
const SAMPLES: usize = 12;
const NEIGHBOURS: usize = 8;
/// Heat maps shown, and the side of their pictures.
const HEAT_MAPS: usize = 24;
const HEAT_SIDE: usize = 96;

/// How much of a run one page may show.
///
/// The whole page stays below 15 MB: thumbnails take 9 MB of base64 at the most (fewer or coarser ones where they would take
/// more), heat maps 1 MB, 10,000 points with names of 80 characters about 2 MB, the rest a few hundred kB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Thumbnails.
    pub images: usize,
    /// Points of the map.
    pub points: usize,
    /// Bytes of the thumbnails.
    pub bytes: usize,
}

impl Limits {
    /// Thumbnails on a page when nothing else is asked for.
    pub const IMAGES: usize = 6000;

    /// The share of each of `runs` on a page with `images` thumbnails.
    pub fn shared(images: usize, runs: usize) -> Self {
        let runs = runs.max(1);
        Limits { images: images / runs, points: POINTS / runs, bytes: 9_000_000 / runs }
    }
}

/// What a page says of one run.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct View(Value);

impl View {
    /// The run's name.
    pub fn name(&self) -> &str {
        self.0["name"].as_str().unwrap_or_default()
    }

    /// The same under another name.
    pub fn renamed(mut self, name: &str) -> View {
        self.0["name"] = name.into();
        self
    }
}

/// Steps of what takes longest, the map.
pub fn steps() -> usize {
    Tsne::default().iterations
}

/// Looks at a run; `images` are what it learned from, or why they cannot be read: then the page does without thumbnails.
/// `on_step` is called with the number of [`steps`] done.
pub fn look(
    run: &RunFolder,
    images: Result<Arc<Dataset>>,
    limits: Limits,
    on_step: &mut dyn FnMut(usize),
) -> Result<View> {
    let mut contents = gather::gather(run)?;
    let mut notes = std::mem::take(&mut contents.notes);
    let images = pictures(&contents, images, &mut notes);
    let mut pool = Pool::default();

    let clustering = contents
        .grouping
        .as_ref()
        .map(|grouping| Clustering::new(grouping, contents.labels.as_ref(), contents.before.as_ref()));
    let sheets = clustering.as_ref().map(|c| c.sheets(&mut pool));
    let outliers = clustering.as_ref().map(|c| c.outliers(&mut pool));
    let neighbours = contents.embeddings.as_ref().map(|features| neighbours(features, &mut pool));
    let heat = images.as_ref().and_then(|data| {
        let outcome = heat(run, &data.train.images, &mut pool, limits.bytes / 9).transpose()?;
        outcome.map_err(|e| notes.push(format!("The heat maps are left out: {}.", e.message))).ok()
    });
    let map = contents.embeddings.as_ref().and_then(|features| {
        let outcome = map(features, limits.points, &mut pool, on_step);
        outcome.map_err(|e| notes.push(format!("The map is left out: {}.", e.message))).ok()
    });
    let thumbnails = images.as_ref().and_then(|data| {
        let rows = &pool.rows[..pool.rows.len().min(limits.images)];
        let made = sprites::thumbnails(&data.train.images, rows, limits.bytes);
        made.map_err(|e| notes.push(format!("The images are left out: {}.", e.message))).ok()
    });
    let thumbnails = thumbnails.unwrap_or_default();

    Ok(View(json!({
        "name": contents.name,
        "sentence": summary::sentence(&contents),
        "tiles": summary::tiles(&contents),
        "results": summary::results(&contents),
        "lights": health::lights(&contents, clustering.as_ref()),
        "warnings": contents.warnings.iter().map(|(w, times)| (w.to_string(), times)).collect::<Vec<_>>(),
        "notes": notes,
        "curves": curves::curves(&contents.records, contents.config.train.epochs, contents.images()),
        "classes": contents.labels.as_ref().map(|labels| &labels.classes),
        "grouped": contents.grouped,
        "clusters": clustering.as_ref().map(Clustering::list),
        "clusters_in_all": clustering.as_ref().map_or(0, Clustering::len),
        "sheets": sheets,
        "outliers": outliers,
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
        "config": summary::config(&contents.config),
        "about": summary::about(&contents),
    })))
}

/// The images, when they are those that the run saw.
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
        notes.push("There are no thumbnails: the images are not those that the run began with.".into());
    }
    same.then_some(data)
}

/// The images that a page mentions, each once, the most important first: the first of them get thumbnails.
#[derive(Default)]
struct Pool {
    place: HashMap<u32, u32>,
    rows: Vec<u32>,
}

impl Pool {
    /// The place of the image of `row`.
    fn add(&mut self, row: u32) -> u32 {
        let rows = &mut self.rows;
        *self.place.entry(row).or_insert_with(|| {
            rows.push(row);
            rows.len() as u32 - 1
        })
    }

    /// What is known of each image.
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

/// A number with few digits; nothing where there is none.
fn rounded(x: f32, digits: i32) -> Value {
    let scale = 10f64.powi(digits);
    if x.is_finite() { ((f64::from(x) * scale).round() / scale).into() } else { Value::Null }
}

/// A name that is not too long to show, nor to store ten thousand times.
fn elided(name: &str) -> String {
    const LONGEST: usize = 80;
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= LONGEST {
        return name.to_string();
    }
    let text = |chars: &[char]| chars.iter().collect::<String>();
    format!("{}…{}", text(&chars[..LONGEST / 3]), text(&chars[chars.len() - LONGEST * 2 / 3 + 1..]))
}

/// `count` of `n` places, evenly spaced; all of them when there are fewer.
fn evenly(n: usize, count: usize) -> impl Iterator<Item = usize> {
    let count = count.min(n);
    (0..count).map(move |i| i * n / count)
}

/// Where every image lies in the plane, in steps of 1/65535 of its extent.
fn map(features: &Matrix, most: usize, pool: &mut Pool, on_step: &mut dyn FnMut(usize)) -> Result<Value> {
    let rows: Vec<usize> = evenly(features.rows, most).collect();
    let places = tsne(&features.select_rows(&rows).normalised(), &Tsne::default(), &mut |done| {
        on_step(done);
        Ok(())
    })?;
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
    // One more than is shown, since an image finds itself.
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

/// The heat maps of `heat.npz`, each beside its image; nothing when there is no such file.
fn heat(run: &RunFolder, images: &Images, pool: &mut Pool, budget: usize) -> Result<Option<Value>> {
    let path = run.file("heat.npz");
    if !path.exists() {
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
    let pictures = sprites::heat_maps(images, &shown, side, HEAT_SIDE, budget)?;
    let image: Vec<u32> = shown.iter().map(|(row, _)| pool.add(*row)).collect();
    Ok(Some(json!({ "image": image, "pictures": pictures })))
}
