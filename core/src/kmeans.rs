//! k-means (step c of Algorithm 1): Lloyd's iterations on squared Euclidean distance, with repair of empty clusters.
//!
//! Assign: `a_i = argmin_j |x_i - c_j|^2 = argmin_j |c_j|^2 / 2 - x_i . c_j`, ties to the lowest `j`. Update:
//! `c_j` = mean of its members (scaled to unit length when `spherical`). Repair: an empty cluster splits
//! a large one, the donor; the donor is drawn with probability proportional to its size - 1, and the two centroids become copies of
//! the donor's, nudged by `1 +- 1/1024` on alternate coordinates. After the last update, one more assignment.
//!
//! Of very many clusters, only those near to a row are searched (`kmeans/cells.rs`).
//!
//! The N x K products are computed tile by tile and never stored (`dots.rs`); those that bounds rule out are skipped
//! (`kmeans/assign.rs`). The units of parallel work are blocks of rows and of clusters, which do not depend on the number of
//! threads: same inputs, same bits.

mod assign;
mod cells;
mod multistart;
mod repair;
pub(crate) mod seeding;
mod shared;

pub use multistart::MultiStart;
pub use shared::kmeans_among;

use pulp::Arch;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use self::assign::Assigner;
use self::cells::CellAssigner;
use self::repair::repair;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::rng::{Key, Purpose};

/// How the nearest centroid of a row is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Search {
    /// `exact` up to [`EXACT_PAIRS`] pairs of a row and a cluster, `cells` above.
    #[default]
    Auto,
    /// Among all centroids.
    Exact,
    /// Among those of the nearest cells: the cost grows with N instead of N K, and a few rows miss their nearest centroid.
    Cells,
}

/// The most pairs of a row and a cluster, N K, that [`Search::Auto`] searches exactly: those of 50,000 rows, whatever K is.
pub const EXACT_PAIRS: u64 = 2_500_000_000;

impl Search {
    /// Whether `rows` are searched among the cells of `k` clusters.
    pub fn by_cells(self, rows: usize, k: usize) -> bool {
        match self {
            Search::Auto => rows as u64 * k as u64 > EXACT_PAIRS,
            Search::Exact => false,
            Search::Cells => true,
        }
    }

    /// Centroids that one of `rows` is compared with in an assignment to `k` clusters, at the most.
    pub fn compared(self, rows: usize, k: usize) -> usize {
        if self.by_cells(rows, k) { cells::compared(k) } else { k }
    }
}

/// Settings of k-means. [`KMeans::new`] has defaults: `KMeans { seed: 7, ..KMeans::new(10) }`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KMeans<'a> {
    /// Number of clusters, K.
    pub k: usize,
    /// Updates of the centroids. Paper: 20.
    pub iterations: usize,
    /// Whether centroids are scaled to unit length. Paper: plain means.
    pub spherical: bool,
    /// The first centroids, K of them. Paper: `None`, K distinct random rows.
    pub start: Option<&'a Matrix>,
    /// A stable id for every row, from which the random choice of first rows follows, so that removing a row leaves the draws of
    /// the others unchanged; `None` numbers the rows from 0.
    pub ids: Option<&'a [u64]>,
    /// Seed of the random numbers.
    pub seed: u64,
    /// How the nearest centroid is searched.
    pub search: Search,
    /// Further coordinates of the random numbers: (round, epoch) in training, (0, i) for the i-th of several starts.
    pub draw: (u32, u32),
}

impl KMeans<'_> {
    /// `k` clusters as in the paper: plain means of random first rows, 20 updates, seed 0. The search is exact unless there are very
    /// many rows and clusters.
    pub fn new(k: usize) -> Self {
        KMeans {
            k,
            iterations: 20,
            spherical: false,
            start: None,
            ids: None,
            seed: 0,
            search: Search::Auto,
            draw: (0, 0),
        }
    }
}

/// A partition of the rows. Clusters may be empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    /// The cluster of every row.
    pub assignment: Vec<u32>,
    /// The centroid of every cluster.
    pub centroids: Matrix,
    /// Euclidean distance of every row to the centroid of its cluster.
    pub distances: Vec<f32>,
    /// Sum of the squared distances.
    pub objective: f64,
}

/// Clusters the rows of `features`.
///
/// ```
/// use pcp_core::kmeans::{KMeans, kmeans};
/// use pcp_core::matrix::Matrix;
///
/// let rows = Matrix::new(2, vec![0.0, 0.1, 9.0, 9.1, 0.1, 0.0, 9.1, 9.0]);
/// let clusters = kmeans(&rows, &KMeans { seed: 7, ..KMeans::new(2) })?;
/// assert_eq!(clusters.assignment[0], clusters.assignment[2]);
/// assert_ne!(clusters.assignment[0], clusters.assignment[1]);
/// # Ok::<(), pcp_core::error::Error>(())
/// ```
pub fn kmeans(features: &Matrix, settings: &KMeans) -> Result<Clusters> {
    kmeans_with(features, settings, &mut |_| Ok(()))
}

/// As [`kmeans`]; `on_iteration` is called before each of the `iterations + 1` assignments with the number of those done, and
/// its error ends the clustering.
pub fn kmeans_with(
    features: &Matrix,
    settings: &KMeans,
    on_iteration: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Clusters> {
    check(features, settings)?;
    let mut searcher = Searcher::new(features, features.rows, settings.k, settings.search);
    kmeans_by(features, settings, &mut searcher, on_iteration)
}

/// The assignment step of k-means.
pub trait Assign {
    /// The cluster of every row for these centroids. Since the last call, every first of `repaired`, an empty cluster, was put where the
    /// second is.
    fn assign(&mut self, centroids: &Matrix, repaired: &[(usize, usize)]) -> Result<Vec<u32>>;
}

/// As [`kmeans_with`], with assignments by `assigner`: several processes may have a part of the rows each.
pub fn kmeans_by(
    features: &Matrix,
    settings: &KMeans,
    assigner: &mut dyn Assign,
    on_iteration: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Clusters> {
    let &KMeans { k, iterations, spherical, start, ids, seed, draw: (round, epoch), .. } = settings;
    check(features, settings)?;
    let key = |purpose| Key { purpose, seed, round, epoch };

    let mut centroids = start.cloned().unwrap_or_else(|| {
        let counted: Vec<u64>;
        let ids = match ids {
            Some(ids) => ids,
            None => {
                counted = (0..features.rows as u64).collect();
                &counted
            }
        };
        let drawn = key(Purpose::Centroids).shuffled(ids).into_iter().take(k);
        Matrix::new(features.dim, drawn.flat_map(|i| features.row(i)).copied().collect())
    });
    let mut repaired = Vec::new();
    for iteration in 0..iterations {
        on_iteration(iteration)?;
        let assignment = assigner.assign(&centroids, &repaired)?;
        let mut sizes = update(features, &assignment, &mut centroids);
        repaired = repair(&mut centroids, &mut sizes, key(Purpose::Repair), iteration);
        if spherical {
            centroids = centroids.normalised();
        }
    }
    on_iteration(iterations)?;
    let assignment = assigner.assign(&centroids, &repaired)?;
    Ok(Clusters::around(features, assignment, centroids))
}

impl Clusters {
    /// Clusters that were found in another way: their centroids are the means of the rows, scaled to unit length when `spherical`.
    pub fn of(features: &Matrix, assignment: Vec<u32>, k: usize, spherical: bool) -> Clusters {
        let mut centroids = Matrix { rows: k, dim: features.dim, values: vec![0.0; k * features.dim] };
        update(features, &assignment, &mut centroids);
        let centroids = if spherical { centroids.normalised() } else { centroids };
        Self::around(features, assignment, centroids)
    }

    fn around(features: &Matrix, assignment: Vec<u32>, centroids: Matrix) -> Clusters {
        let distances = distances(features, &centroids, &assignment);
        let objective = distances.iter().map(|d| f64::from(*d) * f64::from(*d)).sum();
        Clusters { assignment, centroids, distances, objective }
    }
}

/// The assignment step on one process.
pub struct Searcher<'a> {
    features: &'a Matrix,
    cells: bool,
    /// `None` before the first assignment.
    state: Option<SearchState<'a>>,
}

enum SearchState<'a> {
    Exact(Assigner<'a>),
    Cells(CellAssigner<'a>),
}

impl<'a> Searcher<'a> {
    /// Of the rows of `features`, which may be a part of `all` rows, among `k` clusters.
    pub fn new(features: &'a Matrix, all: usize, k: usize, search: Search) -> Self {
        Searcher { features, cells: search.by_cells(all, k), state: None }
    }
}

impl Assign for Searcher<'_> {
    fn assign(&mut self, centroids: &Matrix, repaired: &[(usize, usize)]) -> Result<Vec<u32>> {
        let state = self.state.get_or_insert_with(|| match self.cells {
            true => SearchState::Cells(CellAssigner::new(self.features)),
            false => SearchState::Exact(Assigner::new(self.features, centroids)),
        });
        Ok(match state {
            SearchState::Exact(all) => all.assign(centroids).to_vec(),
            SearchState::Cells(near) => {
                near.repaired(repaired);
                near.assign(centroids).to_vec()
            }
        })
    }
}

/// The clustering with the smallest objective of `run(0)` to `run(runs - 1)`, the first of equals; runs at least once.
pub fn best_of(runs: u32, mut run: impl FnMut(u32) -> Result<Clusters>) -> Result<Clusters> {
    let mut best = run(0)?;
    for i in 1..runs {
        let found = run(i)?;
        if found.objective < best.objective {
            best = found;
        }
    }
    Ok(best)
}

fn check(features: &Matrix, &KMeans { k, start, ids, .. }: &KMeans) -> Result<()> {
    if k == 0 || k > features.rows {
        return Err(Error::usage(
            format!("cannot make {k} clusters of {} images", features.rows),
            format!("ask for 1 to {} clusters", features.rows.max(1)),
        ));
    }
    let bounded = |f: &Matrix| f.values.par_chunks(1 << 16).all(|chunk| chunk.iter().all(|x| x.abs() < 1e15));
    if !bounded(features) {
        return Err(Error::training(
            "some features are not finite or too large: they cannot be clustered",
            "train again with a lower learning rate (`train.lr`) or a higher temperature (`objective.tau`)",
        ));
    }
    if let Some(ids) = ids.filter(|ids| ids.len() != features.rows) {
        return Err(Error::usage(
            format!("there are {} ids for {} rows", ids.len(), features.rows),
            "give one id per row",
        ));
    }
    let Some(start) = start else { return Ok(()) };
    if (start.rows, start.dim) != (k, features.dim) {
        return Err(Error::usage(
            format!(
                "{} first centroids of length {} do not start {k} clusters of length {}",
                start.rows, start.dim, features.dim
            ),
            format!("give {k} rows of {} numbers", features.dim),
        ));
    }
    if !bounded(start) {
        return Err(Error::usage(
            "some first centroids are not finite or too large",
            "give centroids of finite numbers",
        ));
    }
    Ok(())
}

/// The nearest of `centroids` for every row of `features`, ties to the lowest, and the Euclidean distance to it.
pub fn assign(features: &Matrix, centroids: &Matrix) -> (Vec<u32>, Vec<f32>) {
    if features.rows == 0 {
        return (Vec::new(), Vec::new());
    }
    let assignment = Assigner::new(features, centroids).assign(centroids).to_vec();
    let distances = distances(features, centroids, &assignment);
    (assignment, distances)
}

/// Euclidean distance of every row to the centroid of its cluster.
fn distances(features: &Matrix, centroids: &Matrix, assignment: &[u32]) -> Vec<f32> {
    let distance = |(row, &cluster): (&[f32], &u32)| {
        let mut lanes = [0.0f64; 4];
        for (d, (x, c)) in row.iter().zip(centroids.row(cluster as usize)).enumerate() {
            lanes[d % 4] += f64::from(x - c) * f64::from(x - c);
        }
        lanes.iter().sum::<f64>().sqrt() as f32
    };
    features.values.par_chunks(features.dim).zip(assignment).map(distance).collect()
}

/// Sets every centroid to the mean of its members, summed in the order of the rows; those of empty clusters stay. Returns
/// the sizes.
fn update(features: &Matrix, assignment: &[u32], centroids: &mut Matrix) -> Vec<usize> {
    let dim = features.dim;
    let (starts, members) = by_group(assignment, centroids.rows);
    let arch = Arch::new();
    let mean = |sum: &mut Vec<f64>, (j, centroid): (usize, &mut [f32])| {
        let members = &members[starts[j]..starts[j + 1]];
        if !members.is_empty() {
            sum.fill(0.0);
            arch.dispatch(|| {
                for &row in members {
                    for (s, x) in sum.iter_mut().zip(features.row(row as usize)) {
                        *s += f64::from(*x);
                    }
                }
            });
            for (c, s) in centroid.iter_mut().zip(&*sum) {
                *c = (*s / members.len() as f64) as f32;
            }
        }
    };
    centroids.values.par_chunks_mut(dim).enumerate().for_each_init(|| vec![0.0; dim], mean);
    starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// The places of `group_of` by their group, those of one group ascending, and where each of the `groups` begins, with a last entry for the end: a
/// counting sort.
fn by_group(group_of: &[u32], groups: usize) -> (Vec<usize>, Vec<u32>) {
    let mut starts = vec![0usize; groups + 1];
    for &group in group_of {
        starts[group as usize + 1] += 1;
    }
    for group in 0..groups {
        starts[group + 1] += starts[group];
    }
    let (mut next, mut places) = (starts.clone(), vec![0u32; group_of.len()]);
    for (place, &group) in group_of.iter().enumerate() {
        places[next[group as usize]] = place as u32;
        next[group as usize] += 1;
    }
    (starts, places)
}

#[cfg(test)]
mod tests;
