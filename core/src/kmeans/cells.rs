//! The assignment step of k-means for very many clusters: every row is compared with the centroids of its nearest cells only.
//!
//! A cell is a set of about [`size`] neighbouring centroids, 32 to 128. Every row knows the [`NEAR`] cells whose centres are nearest to it,
//! and its own cluster's cell; the centroids of these are searched exactly. So an assignment costs N x NEAR x size products
//! instead of N x K, and finding the cells N x K / size. Cells are made anew at the iterations of [`RENEWED`], because centroids
//! move. A row keeps its cluster unless a nearer centroid is found, so that the sum of squared distances never grows by the search.
//!
//! Between renewals, a lower bound for every row and each of its cells rules out most of the products, as in `assign.rs`.
//! Rows are worked on in the order of their nearest cells; neither the order nor the blocks depend on the number of threads.

use rayon::prelude::*;

use super::assign::{Assigner, BLOCK, FILLER, InSlots, Nearest, distance_square, neighbours_together, square};
use super::{assign, update};
use crate::dots::{Packed, Visit, WIDTH, products};
use crate::matrix::Matrix;

/// Cells that a row is compared with.
pub const NEAR: usize = 32;
/// The most centroids of a cell, in average cells: larger ones are divided. Without it, many equal rows would make one cell of nearly all
/// clusters.
const MOST: usize = 4;
/// Centroids that the centres of cells are found from, per cell, and the iterations of that.
const SAMPLE: usize = 32;
const ITERATIONS: usize = 4;
/// The assignments before which cells are made: the first, and while centroids move much.
const RENEWED: [usize; 2] = [0, 1];

/// Centroids and centres of cells that a row is compared with, on average, of `k` clusters.
pub fn compared(k: usize) -> usize {
    (size(k) * NEAR + k.div_ceil(size(k))).min(k)
}

/// Centroids of a cell, on average: whole panels, more of them where there are many clusters, so that cells stay few.
fn size(k: usize) -> usize {
    WIDTH * k.div_ceil(16_384).clamp(1, 4)
}

/// Assigns rows to centroids, again after every update of the centroids.
pub struct CellAssigner<'a> {
    features: &'a Matrix,
    /// `|x|^2` of every row.
    squares: Vec<f32>,
    /// How many assignments were made.
    done: usize,
    cells: Cells,
    /// The centroids of the previous assignment and the cluster of every row.
    last: Option<(Matrix, Vec<u32>)>,
    /// Clusters that have entered another cell since the previous assignment.
    entered: Vec<u32>,
}

/// Which centroids are in which cell, and which cells every row is compared with.
#[derive(Default)]
struct Cells {
    /// Cell of every cluster.
    of: Vec<u32>,
    /// Clusters in every cell.
    sizes: Vec<u32>,
    /// The rows, in the order of their nearest cell.
    order: Vec<u32>,
    /// For every place in `order`, [`NEAR`] cells; [`FILLER`] where there are fewer.
    near: Vec<u32>,
    /// For every entry of `near`: the lower bound when it was computed, plus `moved` at that time.
    bounds: Vec<f32>,
    /// For every cell, the sum over the updates of the farthest move of a member.
    moved: Vec<f32>,
}

impl<'a> CellAssigner<'a> {
    pub fn new(features: &'a Matrix) -> Self {
        CellAssigner {
            features,
            squares: features.values.par_chunks(features.dim).map(square).collect(),
            done: 0,
            cells: Cells::default(),
            last: None,
            entered: Vec::new(),
        }
    }

    /// `repaired` (an empty cluster, its donor): the first is now where the second is, so it enters the second's cell.
    pub fn repaired(&mut self, repaired: &[(usize, usize)]) {
        for &(empty, donor) in repaired {
            let (from, to) = (self.cells.of[empty] as usize, self.cells.of[donor] as usize);
            // A full cell takes no more: the members of the donor do not find this cluster until cells are made again.
            if from != to && (self.cells.sizes[to] as usize) < MOST * size(self.cells.of.len()) {
                self.cells.sizes[from] -= 1;
                self.cells.sizes[to] += 1;
                self.cells.of[empty] = to as u32;
                self.entered.push(empty as u32);
            }
        }
    }

    /// The nearest of the centroids in the cells near to it, for every row, ties to the lowest.
    pub fn assign(&mut self, centroids: &Matrix) -> &[u32] {
        let (before, mut assignment) = self.last.take().unzip();
        let mut stale = vec![false; self.cells.moved.len()];
        if RENEWED.contains(&self.done) {
            self.cells = Cells::new(self.features, centroids, assignment.as_deref());
            stale = vec![false; self.cells.moved.len()];
        } else if let Some(before) = &before {
            let mut entered = vec![false; centroids.rows];
            for &j in &self.entered {
                entered[j as usize] = true;
                stale[self.cells.of[j as usize] as usize] = true;
            }
            let moves: Vec<f32> = (0..centroids.rows)
                .into_par_iter()
                .map(|j| if entered[j] { 0.0 } else { distance_square(before.row(j), centroids.row(j)).sqrt() })
                .collect();
            let mut farthest = vec![0.0f32; self.cells.moved.len()];
            for (&cell, m) in self.cells.of.iter().zip(moves) {
                farthest[cell as usize] = farthest[cell as usize].max(m);
            }
            for (sum, m) in self.cells.moved.iter_mut().zip(farthest) {
                *sum += m * (1.0 + 1e-5);
            }
        }
        self.entered.clear();
        self.done += 1;

        let Cells { of, sizes, order, near, bounds, moved } = &mut self.cells;
        let (slots, panels) = layout(of, sizes);
        let step = CellStep {
            features: self.features,
            squares: &self.squares,
            centroids,
            in_slots: InSlots::new(centroids, &slots),
            slots: &slots,
            panels: &panels,
            of,
            moved,
            stale: &stale,
            before: assignment.as_deref(),
        };
        let blocks =
            order.par_chunks(BLOCK).zip(near.par_chunks(BLOCK * NEAR)).zip(bounds.par_chunks_mut(BLOCK * NEAR));
        let found: Vec<Vec<u32>> = blocks.map(|((rows, near), bounds)| step.block(rows, near, bounds)).collect();
        let assignment = assignment.get_or_insert_with(|| vec![FILLER; self.features.rows]);
        for (row, cluster) in order.iter().zip(found.iter().flatten()) {
            assignment[*row as usize] = *cluster;
        }
        let assignment = std::mem::take(assignment);
        let (_, assignment) = self.last.insert((centroids.clone(), assignment));
        assignment
    }
}

/// The clusters cell by cell, each cell filled up to whole panels, and the panel at which each begins, with a last entry for
/// the end.
fn layout(of: &[u32], sizes: &[u32]) -> (Vec<u32>, Vec<usize>) {
    let mut panels = vec![0];
    for size in sizes {
        panels.push(panels[panels.len() - 1] + (*size as usize).div_ceil(WIDTH));
    }
    let mut slots = vec![FILLER; panels[panels.len() - 1] * WIDTH];
    let mut next: Vec<usize> = panels.iter().map(|p| p * WIDTH).collect();
    for (j, &cell) in of.iter().enumerate() {
        slots[next[cell as usize]] = j as u32;
        next[cell as usize] += 1;
    }
    (slots, panels)
}

impl Cells {
    /// Cells of `centroids`, and those near to every row of `features`, whose clusters are `assignment`.
    fn new(features: &Matrix, centroids: &Matrix, assignment: Option<&[u32]>) -> Cells {
        let (of, centres) = divide(centroids);
        let mut sizes = vec![0; centres.rows];
        of.iter().for_each(|&cell| sizes[cell as usize] += 1);
        let mut found = nearest(features, &centres);
        if let Some(assignment) = assignment {
            // The row's own cluster must be among those searched.
            for (near, &cluster) in found.chunks_exact_mut(NEAR).zip(assignment) {
                let own = of[cluster as usize];
                if !near.contains(&own) {
                    near[NEAR - 1] = own;
                }
            }
        }
        // Counting sort by the nearest cell.
        let mut starts = vec![0u32; centres.rows + 1];
        found.iter().step_by(NEAR).for_each(|&cell| starts[cell as usize + 1] += 1);
        for cell in 0..centres.rows {
            starts[cell + 1] += starts[cell];
        }
        let mut order = vec![0; features.rows];
        for (row, &cell) in found.iter().step_by(NEAR).enumerate() {
            order[starts[cell as usize] as usize] = row as u32;
            starts[cell as usize] += 1;
        }
        let near: Vec<u32> = order.iter().flat_map(|&row| &found[row as usize * NEAR..][..NEAR]).copied().collect();
        let bounds = vec![f32::NEG_INFINITY; near.len()];
        Cells { of, sizes, order, near, bounds, moved: vec![0.0; centres.rows] }
    }
}

/// The cell of every centroid, near cells having near numbers, and the centres of the cells.
fn divide(centroids: &Matrix) -> (Vec<u32>, Matrix) {
    let most = MOST * size(centroids.rows);
    let wanted = centroids.rows.div_ceil(size(centroids.rows));
    let every = (centroids.rows / (wanted * SAMPLE)).max(1);
    let sample: Vec<usize> = (0..centroids.rows).step_by(every).collect();
    let sample = centroids.select_rows(&sample);
    let spread: Vec<usize> = (0..wanted).map(|cell| cell * sample.rows / wanted).collect();
    let mut centres = sample.select_rows(&spread);
    let mut assigner = Assigner::new(&sample, &centres);
    for _ in 0..ITERATIONS {
        let assignment = assigner.assign(&centres);
        update(&sample, assignment, &mut centres);
    }
    let mut order: Vec<u32> = (0..wanted as u32).collect();
    neighbours_together(&centres, &mut order);
    let centres = centres.select_rows(&order.iter().map(|&cell| cell as usize).collect::<Vec<_>>());
    let (coarse, _) = assign(centroids, &centres);
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); wanted];
    for (j, &cell) in coarse.iter().enumerate() {
        members[cell as usize].push(j as u32);
    }
    let mut of = vec![0; centroids.rows];
    let mut cells = 0;
    for mut members in members {
        let whole = members.len() <= most;
        if !whole {
            neighbours_together(centroids, &mut members);
        }
        for part in members.chunks(if whole { most } else { most / 2 }) {
            part.iter().for_each(|&j| of[j as usize] = cells);
            cells += 1;
        }
    }
    let mut centres = Matrix::new(centroids.dim, vec![0.0; cells as usize * centroids.dim]);
    update(centroids, &of, &mut centres);
    (of, centres)
}

/// The [`NEAR`] nearest of `centres` for every row of `features`, nearest first, ties to the lowest; [`FILLER`] where there are
/// fewer.
fn nearest(features: &Matrix, centres: &Matrix) -> Vec<u32> {
    let dim = features.dim;
    let right = Packed::new(&centres.values, dim);
    let mut half_squares: Vec<f32> = centres.values.chunks_exact(dim).map(|row| square(row) / 2.0).collect();
    half_squares.resize(half_squares.len().next_multiple_of(WIDTH), f32::INFINITY);
    let mut found = vec![FILLER; features.rows * NEAR];
    let blocks = found.par_chunks_mut(BLOCK * NEAR).zip(features.values.par_chunks(BLOCK * dim));
    blocks.for_each(|(found, rows)| {
        let n = rows.len() / dim;
        let mut several = Several { half_squares: &half_squares, scores: vec![f32::INFINITY; n * NEAR], found };
        let all: Vec<u32> = (0..n as u32).collect();
        products(rows, &all, &right, 0..half_squares.len() / WIDTH, &mut several);
    });
    found
}

/// The lowest scores `|c|^2 / 2 - x . c` of every row of a block, ascending.
struct Several<'a> {
    half_squares: &'a [f32],
    scores: Vec<f32>,
    found: &'a mut [u32],
}

impl Visit for Several<'_> {
    #[inline(always)]
    fn visit(&mut self, row: usize, first: usize, products: &[f32; WIDTH]) {
        let worst = self.scores[row * NEAR + NEAR - 1];
        let mut scores = [0.0; WIDTH];
        let mut any = false;
        for ((s, h), p) in scores.iter_mut().zip(&self.half_squares[first..first + WIDTH]).zip(products) {
            *s = h - p;
            any |= *s < worst;
        }
        if any {
            self.insert(row, first, &scores);
        }
    }
}

impl Several<'_> {
    #[cold]
    #[inline(never)]
    fn insert(&mut self, row: usize, first: usize, strip: &[f32; WIDTH]) {
        let (scores, found) = (&mut self.scores[row * NEAR..][..NEAR], &mut self.found[row * NEAR..][..NEAR]);
        for (i, &score) in strip.iter().enumerate() {
            if score < scores[NEAR - 1] {
                let at = scores.partition_point(|s| *s <= score);
                scores[at..].rotate_right(1);
                found[at..].rotate_right(1);
                (scores[at], found[at]) = (score, (first + i) as u32);
            }
        }
    }
}

/// Data that all blocks of one assignment share.
struct CellStep<'a> {
    features: &'a Matrix,
    squares: &'a [f32],
    centroids: &'a Matrix,
    in_slots: InSlots,
    slots: &'a [u32],
    panels: &'a [usize],
    of: &'a [u32],
    moved: &'a [f32],
    /// Cells that a cluster has entered: their bounds do not hold.
    stale: &'a [bool],
    before: Option<&'a [u32]>,
}

impl CellStep<'_> {
    /// The clusters of the given rows; `near` and `bounds` are theirs.
    fn block(&self, rows: &[u32], near: &[u32], bounds: &mut [f32]) -> Vec<u32> {
        let (dim, n) = (self.centroids.dim, rows.len());
        let mut values = Vec::with_capacity(n * dim);
        rows.iter().for_each(|&row| values.extend_from_slice(self.features.row(row as usize)));
        let squares: Vec<f32> = rows.iter().map(|&row| self.squares[row as usize]).collect();
        let error = self.in_slots.errors(&squares, dim);
        let mut own = vec![f32::INFINITY; n];
        if let Some(before) = self.before {
            for (i, row) in values.chunks_exact(dim).enumerate() {
                let cluster = before[rows[i] as usize] as usize;
                own[i] = (distance_square(row, self.centroids.row(cluster)) + 16.0 * error[i]).sqrt();
                // The row's own cell is never skipped: it contains the row's centroid.
                let places = near[i * NEAR..][..NEAR].iter().zip(&mut bounds[i * NEAR..][..NEAR]);
                places.filter(|(cell, _)| **cell == self.of[cluster]).for_each(|(_, b)| *b = f32::NEG_INFINITY);
            }
        }
        // (cell, row, place among its cells) of the rows that a cell must be searched for.
        let mut wanted: Vec<(u32, u32, u32)> = Vec::with_capacity(n * NEAR);
        for i in 0..n {
            for p in i * NEAR..(i + 1) * NEAR {
                let cell = near[p];
                if cell != FILLER && (self.stale[cell as usize] || bounds[p] - self.moved[cell as usize] < own[i]) {
                    wanted.push((cell, i as u32, p as u32));
                }
            }
        }
        wanted.sort_unstable();
        let mut clusters = vec![FILLER; n];
        let mut search = Nearest {
            half_squares: &self.in_slots.half_squares,
            slots: self.slots,
            // The score at that distance, which the row's own centroid stays below.
            best: own.iter().zip(&squares).map(|(u, x)| (u * u - x) / 2.0).collect(),
            cluster: &mut clusters,
            lowest: vec![f32::INFINITY; n],
        };
        let mut list = Vec::with_capacity(n);
        for group in wanted.chunk_by(|a, b| a.0 == b.0) {
            let cell = group[0].0 as usize;
            list.clear();
            list.extend(group.iter().map(|w| w.1));
            products(&values, &list, &self.in_slots.right, self.panels[cell]..self.panels[cell + 1], &mut search);
            for &(_, i, p) in group {
                let i = i as usize;
                let lowest = std::mem::replace(&mut search.lowest[i], f32::INFINITY);
                bounds[p as usize] = (squares[i] + 2.0 * (lowest - error[i])).max(0.0).sqrt() + self.moved[cell];
            }
        }
        // A row for which nothing was found stays where it was.
        for (cluster, row) in clusters.iter_mut().zip(rows).filter(|(cluster, _)| **cluster == FILLER) {
            *cluster = self.before.map_or(0, |before| before[*row as usize]);
        }
        clusters
    }
}

#[cfg(test)]
mod tests;
