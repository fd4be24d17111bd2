//! The map: places of all images in the plane. Principal components are there at once; t-SNE follows, and is held in the run folder.

use crate::subject::{Subject, View, locked};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use pcp_core::io::npy::{read_npz, write_npz};
use pcp_core::matrix::Matrix;
use pcp_core::neighbours::nearest;
use pcp_core::pca::Pca;
use pcp_core::tsne::{Tsne, tsne};
use std::sync::{Arc, Mutex};

/// The file of the places.
pub const FILE: &str = "map.npz";
/// Images that t-SNE places itself; the others lie among the nearest of these.
const PLACED: usize = 10_000;
/// Images that the principal components are found by.
const FITTED: usize = 4096;
/// Nearest images between which one of the others lies.
const NEAR: usize = 5;
/// Images that are placed at a time.
const BLOCK: usize = 8192;

/// How the places were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutKind {
    /// By the two greatest principal components.
    Components,
    /// By t-SNE.
    Tsne,
}

/// Places of all images, from 0 to 65535: all x, then all y.
pub struct Places {
    /// How they were found.
    pub kind: LayoutKind,
    /// The version of the embeddings.
    pub version: u64,
    /// The places.
    pub places: Vec<u16>,
}

/// The map of a subject.
#[derive(Default)]
pub struct Layout {
    places: Mutex<Option<Arc<Places>>>,
    /// Whether t-SNE is under way, and how much of it is done, in thousandths.
    working: Mutex<Option<usize>>,
    cancel: Cancel,
}

impl Layout {
    /// The best places so far; `None` without embeddings. Principal components take a moment the first time.
    pub fn get(&self, subject: &Subject, view: &View) -> Option<Arc<Places>> {
        let features = view.features.as_ref()?;
        let mut held = locked(&self.places);
        if let Some(places) = held.as_ref().filter(|places| places.version == view.version) {
            return Some(places.clone());
        }
        let places = match stored(subject, view) {
            Some(places) => Places { kind: LayoutKind::Tsne, version: view.version, places },
            None => {
                let places = components(features).ok()?;
                Places { kind: LayoutKind::Components, version: view.version, places: scaled(&places) }
            }
        };
        let places = Arc::new(places);
        *held = Some(places.clone());
        Some(places)
    }

    /// How the places that are known were found.
    pub fn kind(&self) -> Option<LayoutKind> {
        locked(&self.places).as_ref().map(|places| places.kind)
    }

    /// Thousandths of t-SNE that are done, while it is under way.
    pub fn progress(&self) -> Option<usize> {
        *locked(&self.working)
    }

    /// Begins t-SNE on a thread of its own, unless it is done or under way.
    pub fn begin(subject: &Arc<Subject>, view: &Arc<View>) {
        let layout = &subject.layout;
        let Some(features) = view.features.clone() else { return };
        {
            let mut working = locked(&layout.working);
            if working.is_some() || layout.kind() == Some(LayoutKind::Tsne) {
                return;
            }
            *working = Some(0);
        }
        let (subject, view) = (subject.clone(), view.clone());
        let started = std::thread::Builder::new().name("pcp-map".into()).spawn(move || {
            let layout = &subject.layout;
            let steps = Tsne::default().iterations;
            let found = neighbourhoods(&features, PLACED, &mut |done| {
                *locked(&layout.working) = Some(done * 1000 / steps.max(1));
                layout.cancel.check()
            });
            // Without t-SNE the components stay: embeddings that it refuses have no better map.
            if let Ok(found) = found {
                let places = scaled(&found);
                store(&subject, &view, &places);
                let places = Places { kind: LayoutKind::Tsne, version: view.version, places };
                *locked(&layout.places) = Some(Arc::new(places));
            }
            *locked(&layout.working) = None;
        });
        if started.is_err() {
            *locked(&layout.working) = None;
        }
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        self.cancel.request();
    }
}

/// Both coordinates along the principal components of evenly chosen rows: a few thousand tell them as well as all.
fn components(features: &Matrix) -> Result<Matrix> {
    let few = FITTED.min(features.rows);
    let chosen: Vec<usize> = (0..few).map(|i| i * features.rows / few).collect();
    let pca = Pca::fit(&features.select_rows(&chosen), 2, &mut || Ok(()))?;
    let found = pca.apply(features, false);
    // A single column has a single component.
    let coordinate = |row: usize, d: usize| if d < found.dim { found.row(row)[d] } else { 0.0 };
    Ok(Matrix::new(2, (0..features.rows).flat_map(|row| [coordinate(row, 0), coordinate(row, 1)]).collect()))
}

/// t-SNE of at most `most` rows, evenly chosen; every other row lies at the mean of its nearest among them, weighted by likeness.
fn neighbourhoods(features: &Matrix, most: usize, on_step: &mut dyn FnMut(usize) -> Result<()>) -> Result<Matrix> {
    let n = features.rows;
    let chosen: Vec<usize> = (0..most.min(n)).map(|i| i * n / most.min(n)).collect();
    let few = features.select_rows(&chosen);
    let placed = tsne(&few, &Tsne::default(), on_step)?;
    if chosen.len() == n {
        return Ok(placed);
    }
    let mut values = vec![0.0f32; 2 * n];
    for first in (0..n).step_by(BLOCK) {
        on_step(Tsne::default().iterations)?;
        let rows: Vec<usize> = (first..(first + BLOCK).min(n)).collect();
        let found = nearest(&features.select_rows(&rows), &few, NEAR, false, &|_| ());
        for (i, row) in rows.iter().enumerate() {
            let near = i * found.k..(i + 1) * found.k;
            let least = near.clone().map(|at| found.similarity[at]).fold(f32::INFINITY, f32::min);
            let weight = |at: usize| (found.similarity[at] - least).max(0.0) + 1e-3;
            let all: f32 = near.clone().map(weight).sum();
            for d in 0..2 {
                let of = |at: usize| weight(at) / all * placed.row(found.index[at] as usize)[d];
                values[2 * row + d] = near.clone().map(of).sum();
            }
        }
    }
    // The chosen ones stay where t-SNE put them.
    for (i, row) in chosen.iter().enumerate() {
        values[2 * row..2 * row + 2].copy_from_slice(placed.row(i));
    }
    Ok(Matrix::new(2, values))
}

/// Both coordinates from 0 to 65535; what is not a number lies in the middle.
fn scaled(places: &Matrix) -> Vec<u16> {
    let axis = |d: usize| -> Vec<u16> {
        let all = || places.values.iter().skip(d).step_by(2).copied();
        let finite = || all().filter(|x| x.is_finite());
        let (low, high) = (finite().fold(f32::INFINITY, f32::min), finite().fold(f32::NEG_INFINITY, f32::max));
        let extent = (high - low).max(f32::MIN_POSITIVE);
        all().map(|x| if x.is_finite() { ((x - low) / extent * 65535.0) as u16 } else { 32768 }).collect()
    };
    [axis(0), axis(1)].concat()
}

/// The places that an earlier server stored for these embeddings.
fn stored(subject: &Subject, view: &View) -> Option<Vec<u16>> {
    let (folder, prefix) = subject.beside();
    let path = folder.join(format!("{prefix}{FILE}"));
    if !path.is_file() || path.is_symlink() {
        return None;
    }
    let version: Vec<u32> = read_npz(&path, "version").ok()?;
    let places: Vec<u32> = read_npz(&path, "places").ok()?;
    let same = version == halves(fingerprint(view)) && places.len() == 2 * view.names.len();
    same.then(|| places.into_iter().map(|x| x.min(65535) as u16).collect())
}

/// Stores places; a folder that cannot be written to is no failure.
fn store(subject: &Subject, view: &View, places: &[u16]) {
    let (folder, prefix) = subject.beside();
    let path = folder.join(format!("{prefix}{FILE}"));
    if path.is_symlink() {
        return;
    }
    let wide: Vec<u32> = places.iter().map(|x| u32::from(*x)).collect();
    let _ = write_npz(&path, |z| {
        z.add("version", &halves(fingerprint(view)))?;
        z.add("places", &wide)
    });
}

fn halves(x: u64) -> Vec<u32> {
    vec![(x >> 32) as u32, x as u32]
}

/// A number that changes with the embeddings.
fn fingerprint(view: &View) -> u64 {
    let mut all = 0xcbf2_9ce4_8422_2325u64;
    for value in view.features.iter().flat_map(|features| &features.values) {
        all = (all ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_lie_among_the_nearest_of_those_that_were_placed() {
        // Two bundles of directions: even rows near x, odd rows near y.
        let row = |i: usize| {
            let small = 0.02 * ((i * 7) % 11) as f32;
            if i.is_multiple_of(2) { [1.0, small] } else { [small, 1.0] }
        };
        let features = Matrix::new(2, (0..90).flat_map(row).collect()).normalised();
        let places = neighbourhoods(&features, 31, &mut |_| Ok(())).unwrap();
        let mean = |odd: usize| (0..45).map(|i| f64::from(places.row(2 * i + odd)[0])).sum::<f64>() / 45.0;
        let spread =
            |odd: usize| (0..45).map(|i| (f64::from(places.row(2 * i + odd)[0]) - mean(odd)).abs()).fold(0.0, f64::max);
        let apart = (mean(0) - mean(1)).abs();
        assert!(apart > spread(0).max(spread(1)), "{apart} {} {}", spread(0), spread(1));
        assert_eq!(scaled(&places).len(), 180);
    }

    #[test]
    fn degenerate_places_are_places() {
        assert!(scaled(&Matrix::new(2, vec![])).is_empty());
        assert_eq!(scaled(&Matrix::new(2, vec![3.0, f32::NAN])), [0, 32768]);
        let one = components(&Matrix::new(1, vec![1.0, 1.0, -1.0])).unwrap();
        assert_eq!((one.rows, one.dim), (3, 2));
        assert_eq!(scaled(&Matrix::new(2, vec![0.0, 5.0, 1.0, 5.0])), [0, 65535, 0, 0]);
    }
}
