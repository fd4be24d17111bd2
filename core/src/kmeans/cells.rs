//! The assignment step of k-means for very many clusters: every row is compared with the centroids of its nearest cells only.
//!
//! A cell is a set of about [`SIZE`] neighbouring centroids. Every row knows the [`NEAR`] cells whose centres are nearest to it, among those
//! of its nearest [`Regions`]; the centroids of these cells are searched exactly. So an assignment costs N x NEAR x SIZE products instead of
//! N x K, and finding the cells, once before the first assignment, about N x REGIONS x sqrt(K / SIZE). A row keeps its cluster unless a nearer
//! centroid is found, so that the sum of squared distances never grows by the search.
//!
//! Between assignments, a lower bound for every row and each of its cells rules out most of the products, as in `assign.rs`.
//! Rows are worked on in the order of their nearest cells; neither the order nor the blocks depend on the number of threads.

use std::ops::Range;

use rayon::prelude::*;

use super::assign::{BLOCK, FILLER, InSlots, Nearest, distance_square, neighbours_together, square};
use super::{assign, by_group, update};
use crate::dots::{Visit, WIDTH, products};
use crate::matrix::Matrix;
use crate::neighbours::{from_sort_key, sort_key};

/// Centroids of a cell, on average: whole panels.
const SIZE: usize = 2 * WIDTH;
/// Cells that a row is compared with.
const NEAR: usize = 32;
/// Regions in which the nearest cells of a row are searched.
const REGIONS: usize = 16;
/// Regions in which the one cell of a centroid is searched.
const REGIONS_OF_ONE: usize = 4;
/// The most members of a cell or a region, in average ones: larger ones are divided. Without it, many equal rows would make one cell of
/// nearly all clusters.
const MOST: usize = 4;
/// Members that the centres of cells and regions are found from, per cell or region, and the iterations of that.
const SAMPLE: usize = 16;
const ITERATIONS: usize = 4;
/// Blocks of rows that an assignment is divided into, unless they are very small or large: the rows of a block that are compared with the
/// same cell are worked on together, so that its centroids come from memory once for all of them.
const BLOCKS: usize = 32;
const MOST_ROWS: usize = 16_384;

/// Centroids and centres that a row is compared with, on average, of `k` clusters.
pub fn compared(k: usize) -> usize {
    let cells = k.div_ceil(SIZE);
    let region = region_size(cells);
    (NEAR * SIZE + REGIONS * region + cells / region).min(k)
}

/// Cells of a region: about as many as there are regions.
fn region_size(cells: usize) -> usize {
    cells.isqrt().max(1)
}

/// Assigns rows to centroids, again after every update of the centroids.
pub struct CellAssigner<'a> {
    features: &'a Matrix,
    /// `|x|^2` of every row.
    squares: Vec<f32>,
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
            cells: Cells::default(),
            last: None,
            entered: Vec::new(),
        }
    }

    /// `repaired` (an empty cluster, its donor): the first is now where the second is, so it enters the second's cell.
    pub fn repaired(&mut self, repaired: &[(usize, usize)]) {
        for &(empty, donor) in repaired {
            let (from, to) = (self.cells.of[empty] as usize, self.cells.of[donor] as usize);
            // A full cell takes no more: most members of the donor do not find this cluster.
            if from != to && (self.cells.sizes[to] as usize) < MOST * SIZE {
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
        if before.is_none() {
            self.cells = Cells::new(self.features, centroids);
        }
        let mut stale = vec![false; self.cells.moved.len()];
        if let Some(before) = &before {
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

        let Cells { of, sizes, order, near, bounds, moved } = &mut self.cells;
        let step = CellStep {
            features: self.features,
            squares: &self.squares,
            centroids,
            grouped: Grouped::new(centroids, of, sizes),
            of,
            moved,
            stale: &stale,
            before: assignment.as_deref(),
        };
        let rows = order.len().div_ceil(BLOCKS).clamp(BLOCK, MOST_ROWS);
        let blocks = order.par_chunks(rows).zip(near.par_chunks(rows * NEAR)).zip(bounds.par_chunks_mut(rows * NEAR));
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

/// Centroids group by group, each group filled up to whole panels.
struct Grouped {
    in_slots: InSlots,
    /// The centroid of every slot, or [`FILLER`].
    slots: Vec<u32>,
    /// The panel at which each group begins, with a last entry for the end.
    panels: Vec<usize>,
}

impl Grouped {
    /// `of` is the group of every centroid, and `sizes` has the centroids of every group.
    fn new(centroids: &Matrix, of: &[u32], sizes: &[u32]) -> Grouped {
        let mut panels = vec![0];
        for size in sizes {
            panels.push(panels[panels.len() - 1] + (*size as usize).div_ceil(WIDTH));
        }
        let mut slots = vec![FILLER; panels[panels.len() - 1] * WIDTH];
        let mut next: Vec<usize> = panels.iter().map(|p| p * WIDTH).collect();
        for (j, &group) in of.iter().enumerate() {
            slots[next[group as usize]] = j as u32;
            next[group as usize] += 1;
        }
        Grouped { in_slots: InSlots::new(centroids, &slots), slots, panels }
    }

    fn panels_of(&self, group: usize) -> Range<usize> {
        self.panels[group]..self.panels[group + 1]
    }

    /// The `most` nearest centroids of every one of `rows`, nearest first, of the groups that it is listed for; [`FILLER`] where there are
    /// fewer. Of equally near ones at the end of the list, those of the first groups.
    fn nearest(&self, rows: &[f32], dim: usize, lists: &[Vec<u32>], most: usize) -> Vec<u32> {
        let n = rows.len() / dim;
        let mut several = Several {
            half_squares: &self.in_slots.half_squares,
            slots: &self.slots,
            most,
            keys: vec![Vec::with_capacity(2 * most + WIDTH); n],
            threshold: vec![f32::NEG_INFINITY; n],
        };
        for (group, list) in lists.iter().enumerate() {
            products(rows, list, &self.in_slots.right, self.panels_of(group), &mut several);
        }
        let mut found = vec![FILLER; n * most];
        for (keys, found) in several.keys.iter_mut().zip(found.chunks_exact_mut(most)) {
            keys.sort_unstable_by(|a, b| b.cmp(a));
            found.iter_mut().zip(keys).for_each(|(centroid, key)| *centroid = from_sort_key(*key).1);
        }
        found
    }
}

/// The centres of cells in *regions*: those near to a row are searched in the regions near to it.
struct Regions {
    /// The centres of the cells, region by region.
    cells: Grouped,
    /// The centres of the regions, all in one group.
    regions: Grouped,
}

impl Regions {
    fn new(centres: &Matrix) -> Regions {
        let (of, sizes, regions) = divide(centres, region_size(centres.rows), |rows, centres| assign(rows, centres).0);
        let all = Grouped::new(&regions, &vec![0; regions.rows], &[regions.rows as u32]);
        Regions { cells: Grouped::new(centres, &of, &sizes), regions: all }
    }

    /// The `most` nearest centres of cells for every row of `rows`, in its nearest `regions`, nearest first; [`FILLER`] where there are fewer.
    fn nearest(&self, rows: &Matrix, most: usize, regions: usize) -> Vec<u32> {
        let count = self.cells.panels.len() - 1;
        let looked = regions.min(count);
        let dim = rows.dim;
        let block = |rows: &[f32]| {
            let all = (0..(rows.len() / dim) as u32).collect();
            let near = self.regions.nearest(rows, dim, &[all], looked);
            let mut lists = vec![Vec::new(); count];
            for (p, &region) in near.iter().enumerate() {
                lists[region as usize].push((p / looked) as u32);
            }
            self.cells.nearest(rows, dim, &lists, most)
        };
        rows.values.par_chunks(BLOCK * dim).flat_map_iter(block).collect()
    }
}

impl Cells {
    /// Cells of `centroids`, and those near to every row of `features`.
    fn new(features: &Matrix, centroids: &Matrix) -> Cells {
        let search = |rows: &Matrix, centres: &Matrix| Regions::new(centres).nearest(rows, 1, REGIONS_OF_ONE);
        let (of, sizes, centres) = divide(centroids, SIZE, search);
        let found = Regions::new(&centres).nearest(features, NEAR, REGIONS);
        let nearest: Vec<u32> = found.iter().step_by(NEAR).copied().collect();
        let (_, order) = by_group(&nearest, centres.rows);
        let near: Vec<u32> = order.iter().flat_map(|&row| &found[row as usize * NEAR..][..NEAR]).copied().collect();
        let bounds = vec![f32::NEG_INFINITY; near.len()];
        Cells { of, sizes, order, near, bounds, moved: vec![0.0; centres.rows] }
    }
}

/// Divides `rows` into groups of about `size` neighbours, near groups having near numbers: the group of every row, the rows of every group, and
/// the centres of the groups. `search` finds the nearest centre of every row.
fn divide(rows: &Matrix, size: usize, search: impl Fn(&Matrix, &Matrix) -> Vec<u32>) -> (Vec<u32>, Vec<u32>, Matrix) {
    let most = MOST * size;
    let wanted = rows.rows.div_ceil(size);
    let every = (rows.rows / (wanted * SAMPLE)).max(1);
    let sample = rows.select_rows(&(0..rows.rows).step_by(every).collect::<Vec<_>>());
    let spread: Vec<usize> = (0..wanted).map(|group| group * sample.rows / wanted).collect();
    let mut centres = sample.select_rows(&spread);
    for _ in 0..ITERATIONS {
        let assignment = search(&sample, &centres);
        update(&sample, &assignment, &mut centres);
    }
    let mut order: Vec<u32> = (0..wanted as u32).collect();
    neighbours_together(&centres, &mut order);
    let centres = centres.select_rows(&order.iter().map(|&group| group as usize).collect::<Vec<_>>());
    let (starts, mut members) = by_group(&search(rows, &centres), wanted);
    let (mut of, mut sizes) = (vec![0; rows.rows], Vec::with_capacity(wanted));
    for group in 0..wanted {
        let members = &mut members[starts[group]..starts[group + 1]];
        let whole = members.len() <= most;
        if !whole {
            neighbours_together(rows, members);
        }
        for part in members.chunks(if whole { most } else { most.div_ceil(2) }) {
            part.iter().for_each(|&row| of[row as usize] = sizes.len() as u32);
            sizes.push(part.len() as u32);
        }
    }
    let mut centres = Matrix::new(rows.dim, vec![0.0; sizes.len() * rows.dim]);
    update(rows, &of, &mut centres);
    (of, sizes, centres)
}

/// The `most` nearest centres of every row of a block, by `x . c - |c|^2 / 2`: keys of [`sort_key`], of which the best are kept whenever there
/// are twice as many.
struct Several<'a> {
    half_squares: &'a [f32],
    slots: &'a [u32],
    most: usize,
    keys: Vec<Vec<u64>>,
    /// Of every row, what a centre must exceed.
    threshold: Vec<f32>,
}

impl Visit for Several<'_> {
    #[inline(always)]
    fn visit(&mut self, row: usize, first: usize, products: &[f32; WIDTH]) {
        let threshold = self.threshold[row];
        let mut scores = [0.0; WIDTH];
        let mut any = false;
        for ((s, h), p) in scores.iter_mut().zip(&self.half_squares[first..first + WIDTH]).zip(products) {
            *s = p - h;
            any |= *s > threshold;
        }
        if any {
            self.take(row, first, &scores);
        }
    }
}

impl Several<'_> {
    #[cold]
    #[inline(never)]
    fn take(&mut self, row: usize, first: usize, scores: &[f32; WIDTH]) {
        let (keys, threshold) = (&mut self.keys[row], self.threshold[row]);
        for (&score, &slot) in scores.iter().zip(&self.slots[first..]) {
            if score > threshold {
                keys.push(sort_key(score, slot));
            }
        }
        if keys.len() >= 2 * self.most {
            let (_, last, _) = keys.select_nth_unstable_by(self.most - 1, |a, b| b.cmp(a));
            self.threshold[row] = from_sort_key(*last).0;
            keys.truncate(self.most);
        }
    }
}

/// Data that all blocks of one assignment share.
struct CellStep<'a> {
    features: &'a Matrix,
    squares: &'a [f32],
    centroids: &'a Matrix,
    grouped: Grouped,
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
        let error = self.grouped.in_slots.errors(&squares, dim);
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
        // The cells to be searched, and their places in `near`; then cell by cell.
        let (mut cells, mut places) = (Vec::with_capacity(n * NEAR), Vec::with_capacity(n * NEAR));
        for (p, (&cell, bound)) in near.iter().zip(&*bounds).enumerate() {
            if cell != FILLER && (self.stale[cell as usize] || bound - self.moved[cell as usize] < own[p / NEAR]) {
                cells.push(cell);
                places.push(p);
            }
        }
        let (starts, order) = by_group(&cells, self.moved.len());
        let mut clusters = vec![FILLER; n];
        let mut search = Nearest {
            half_squares: &self.grouped.in_slots.half_squares,
            slots: &self.grouped.slots,
            // The score at that distance, which the row's own centroid stays below.
            best: own.iter().zip(&squares).map(|(u, x)| (u * u - x) / 2.0).collect(),
            cluster: &mut clusters,
            lowest: vec![f32::INFINITY; n],
        };
        let mut list = Vec::with_capacity(n);
        for cell in 0..self.moved.len() {
            let places = || order[starts[cell]..starts[cell + 1]].iter().map(|&at| places[at as usize]);
            list.clear();
            list.extend(places().map(|p| (p / NEAR) as u32));
            products(&values, &list, &self.grouped.in_slots.right, self.grouped.panels_of(cell), &mut search);
            for p in places() {
                let i = p / NEAR;
                let lowest = std::mem::replace(&mut search.lowest[i], f32::INFINITY);
                bounds[p] = (squares[i] + 2.0 * (lowest - error[i])).max(0.0).sqrt() + self.moved[cell];
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
