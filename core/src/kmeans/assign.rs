//! The assignment step of k-means, exact, without computing most of the distances.
//!
//! Centroids are ordered so that near ones are adjacent, and divided into groups. For every row `x` and group `G` a lower
//! bound on `min_{c in G} |x - c|` is kept. A centroid that moves by `m` comes nearer by at most `m`, so after an update the
//! bound minus the farthest move within the group still holds; while it exceeds the distance of `x` to its own centroid, no
//! member of the group can be nearer (Yinyang k-means, Ding et al. 2015). Only the other groups are computed again, as tiles
//! of the rows that need them.
//!
//! Bounds include the rounding errors of single precision, so that skipping never changes a result.

use pulp::Arch;
use rayon::prelude::*;

use crate::dots::{Packed, Visit, WIDTH, products};
use crate::matrix::Matrix;

/// Rows of a work unit: few enough for the L2 cache, enough to fill tiles when most rows are skipped.
pub(super) const BLOCK: usize = 480;

/// More groups make tighter bounds and take more memory: at most 4 * 320 bytes a row.
const GROUPS: usize = 320;

/// Assigns rows to centroids, again after every update of the centroids.
pub struct Assigner<'a> {
    features: &'a Matrix,
    /// `|x|^2` of every row.
    squares: Vec<f32>,
    /// Cluster of every slot, near ones adjacent; [`FILLER`] in the slots that fill up the last panel.
    slots: Vec<u32>,
    /// Group of every cluster.
    group: Vec<u32>,
    /// Panels of [`WIDTH`] slots in a group.
    panels: usize,
    /// By block, group and row: the lower bound when it was computed, plus `moved` at that time.
    bounds: Vec<f32>,
    /// For every group, the sum over the updates of the farthest move of a member.
    moved: Vec<f32>,
    /// The centroids of the previous assignment and the cluster of every row.
    last: Option<(Matrix, Vec<u32>)>,
}

/// The cluster of a slot, or the cell of a place, where there is none.
pub(super) const FILLER: u32 = u32::MAX;

impl<'a> Assigner<'a> {
    /// Prepares for centroids that start near `centroids`.
    pub fn new(features: &'a Matrix, centroids: &Matrix) -> Self {
        Self::with_groups(features, centroids, GROUPS)
    }

    /// The same with at most `most` groups.
    pub fn with_groups(features: &'a Matrix, centroids: &Matrix, most: usize) -> Self {
        assert!(centroids.rows > 0 && centroids.dim == features.dim, "no centroids of that size");
        let mut slots: Vec<u32> = (0..centroids.rows as u32).collect();
        neighbours_together(centroids, &mut slots);
        let panels = centroids.rows.div_ceil(WIDTH).div_ceil(most);
        let mut group = vec![0; centroids.rows];
        for (slot, &cluster) in slots.iter().enumerate() {
            group[cluster as usize] = (slot / (panels * WIDTH)) as u32;
        }
        slots.resize(slots.len().next_multiple_of(WIDTH), FILLER);
        let groups = slots.len().div_ceil(panels * WIDTH);
        Assigner {
            features,
            squares: features.values.par_chunks(features.dim).map(square).collect(),
            slots,
            group,
            panels,
            bounds: vec![f32::NEG_INFINITY; features.rows.div_ceil(BLOCK) * BLOCK * groups],
            moved: vec![0.0; groups],
            last: None,
        }
    }

    /// The nearest of `centroids` for every row, ties to the lowest.
    pub fn assign(&mut self, centroids: &Matrix) -> &[u32] {
        let dim = self.features.dim;
        let mut assignment = match self.last.take() {
            None => vec![FILLER; self.features.rows],
            Some((before, assignment)) => {
                let mut moves = vec![0.0f32; self.moved.len()];
                for (j, &g) in self.group.iter().enumerate() {
                    moves[g as usize] = moves[g as usize].max(distance_square(before.row(j), centroids.row(j)).sqrt());
                }
                for (sum, m) in self.moved.iter_mut().zip(moves) {
                    *sum += m * (1.0 + 1e-5);
                }
                assignment
            }
        };
        let step = Step {
            centroids,
            in_slots: InSlots::new(centroids, &self.slots),
            slots: &self.slots,
            group: &self.group,
            panels: self.panels,
            moved: &self.moved,
        };
        let blocks = assignment.par_chunks_mut(BLOCK).zip(self.bounds.par_chunks_mut(BLOCK * self.moved.len()));
        let inputs = self.features.values.par_chunks(BLOCK * dim).zip(self.squares.par_chunks(BLOCK));
        blocks.zip(inputs).for_each(|((assignment, bounds), (rows, squares))| {
            step.block(rows, squares, assignment, bounds);
        });
        let (_, assignment) = self.last.insert((centroids.clone(), assignment));
        assignment
    }
}

/// Centroids in the order of their slots.
pub(super) struct InSlots {
    /// As [`products`] takes them.
    pub right: Packed,
    /// `|c|^2 / 2` by slot, infinite for fillers.
    pub half_squares: Vec<f32>,
    /// The greatest `|c|^2`.
    longest: f32,
}

impl InSlots {
    /// `slots` has the centroid of every slot, or [`FILLER`].
    pub fn new(centroids: &Matrix, slots: &[u32]) -> InSlots {
        let dim = centroids.dim;
        let mut values = vec![0.0f32; slots.len() * dim];
        let fill = |(row, &j): (&mut [f32], &u32)| {
            if j == FILLER {
                return f32::INFINITY;
            }
            row.copy_from_slice(centroids.row(j as usize));
            square(row) / 2.0
        };
        let half_squares: Vec<f32> = values.par_chunks_mut(dim).zip(slots).map(fill).collect();
        let longest = half_squares.iter().copied().filter(|half| half.is_finite()).fold(0.0, f32::max) * 2.0;
        InSlots { right: Packed::new(&values, dim), half_squares, longest }
    }

    /// The greatest error of a computed `|x|^2 / 2 + |c|^2 / 2 - x . c`, for rows of `dim` numbers with these `|x|^2`.
    pub fn errors(&self, squares: &[f32], dim: usize) -> Vec<f32> {
        squares.iter().map(|x| (dim + 8) as f32 * f32::EPSILON * (x + self.longest)).collect()
    }
}

/// Data that all blocks of one assignment share.
struct Step<'a> {
    centroids: &'a Matrix,
    in_slots: InSlots,
    slots: &'a [u32],
    group: &'a [u32],
    panels: usize,
    moved: &'a [f32],
}

impl Step<'_> {
    fn block(&self, rows: &[f32], squares: &[f32], assignment: &mut [u32], bounds: &mut [f32]) {
        let dim = self.centroids.dim;
        let n = assignment.len();
        let error = self.in_slots.errors(squares, dim);
        let mut own = vec![f32::INFINITY; n];
        for (i, row) in rows.chunks_exact(dim).enumerate() {
            let cluster = assignment[i];
            if cluster != FILLER {
                own[i] = (distance_square(row, self.centroids.row(cluster as usize)) + 16.0 * error[i]).sqrt();
                // The row's own group is never skipped: it contains the row's centroid.
                bounds[self.group[cluster as usize] as usize * BLOCK + i] = f32::NEG_INFINITY;
            }
        }
        assignment.fill(FILLER);
        let mut nearest = Nearest {
            half_squares: &self.in_slots.half_squares,
            slots: self.slots,
            // The score at that distance, which the row's own centroid stays below.
            best: own.iter().zip(squares).map(|(u, x)| (u * u - x) / 2.0).collect(),
            cluster: assignment,
            lowest: vec![f32::INFINITY; n],
        };
        let mut list = vec![0u32; n];
        let all = self.slots.len() / WIDTH;
        for (g, (bounds, &moved)) in bounds.chunks_exact_mut(BLOCK).zip(self.moved).enumerate() {
            let mut count = 0;
            for (i, (bound, own)) in bounds.iter().zip(&own).enumerate() {
                list[count] = i as u32;
                count += usize::from(*bound - moved < *own);
            }
            let panels = g * self.panels..((g + 1) * self.panels).min(all);
            products(rows, &list[..count], &self.in_slots.right, panels, &mut nearest);
            for &i in &list[..count] {
                let i = i as usize;
                let lowest = std::mem::replace(&mut nearest.lowest[i], f32::INFINITY);
                bounds[i] = (squares[i] + 2.0 * (lowest - error[i])).max(0.0).sqrt() + moved;
            }
        }
        // NaN rows go to cluster 0.
        assignment.iter_mut().filter(|j| **j == FILLER).for_each(|j| *j = 0);
    }
}

/// The running argmin of every row of a block, by score `|c|^2 / 2 - x . c`.
pub(super) struct Nearest<'a> {
    /// `|c|^2 / 2` by slot, infinite for fillers.
    pub half_squares: &'a [f32],
    /// Cluster of every slot.
    pub slots: &'a [u32],
    pub best: Vec<f32>,
    pub cluster: &'a mut [u32],
    /// The lowest score in the current group.
    pub lowest: Vec<f32>,
}

impl Visit for Nearest<'_> {
    #[inline(always)]
    fn visit(&mut self, row: usize, first: usize, products: &[f32; WIDTH]) {
        let mut scores = [0.0; WIDTH];
        for ((s, h), p) in scores.iter_mut().zip(&self.half_squares[first..first + WIDTH]).zip(products) {
            *s = h - p;
        }
        let mut low = scores;
        for half in [16, 8, 4, 2, 1] {
            for l in 0..half {
                low[l] = if low[l + half] < low[l] { low[l + half] } else { low[l] };
            }
        }
        self.lowest[row] = if low[0] < self.lowest[row] { low[0] } else { self.lowest[row] };
        if low[0] <= self.best[row] {
            self.take(row, first, &scores);
        }
    }
}

impl Nearest<'_> {
    #[cold]
    #[inline(never)]
    fn take(&mut self, row: usize, first: usize, scores: &[f32; WIDTH]) {
        for (&score, &cluster) in scores.iter().zip(&self.slots[first..]) {
            if score < self.best[row] || (score == self.best[row] && cluster < self.cluster[row]) {
                (self.best[row], self.cluster[row]) = (score, cluster);
            }
        }
    }
}

/// Orders `slots` so that near centroids are adjacent: splits them in half along the line between two distant ones, then each
/// half again, down to panels.
pub(super) fn neighbours_together(centroids: &Matrix, slots: &mut [u32]) {
    if slots.len() <= WIDTH {
        return;
    }
    let farthest = |from: u32| {
        let far = |&j: &u32| distance_square(centroids.row(from as usize), centroids.row(j as usize));
        slots.iter().copied().map(|j| (far(&j), j)).fold((-1.0, 0), |a, b| if b.0 > a.0 { b } else { a }).1
    };
    let (one, other) = (farthest(slots[0]), farthest(farthest(slots[0])));
    let along = |j: u32| -> f32 {
        let ends = centroids.row(one as usize).iter().zip(centroids.row(other as usize));
        ends.zip(centroids.row(j as usize)).map(|((a, b), c)| (a - b) * c).sum()
    };
    let mut placed: Vec<(f32, u32)> = slots.iter().map(|&j| (along(j), j)).collect();
    placed.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    for (slot, (_, j)) in slots.iter_mut().zip(placed) {
        *slot = j;
    }
    let (left, right) = slots.split_at_mut(slots.len().div_ceil(WIDTH) / 2 * WIDTH);
    neighbours_together(centroids, left);
    neighbours_together(centroids, right);
}

/// `|row|^2`.
pub(super) fn square(row: &[f32]) -> f32 {
    row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() as f32
}

/// `|a - b|^2`, in sixteen fixed lanes.
pub(super) fn distance_square(a: &[f32], b: &[f32]) -> f32 {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let mut lanes = [0.0f32; 16];
            let (ca, cb) = (a.chunks_exact(16), b.chunks_exact(16));
            let rest: f32 = ca.remainder().iter().zip(cb.remainder()).map(|(x, y)| (x - y) * (x - y)).sum();
            for (x, y) in ca.zip(cb) {
                for l in 0..16 {
                    lanes[l] += (x[l] - y[l]) * (x[l] - y[l]);
                }
            }
            lanes.iter().sum::<f32>() + rest
        },
    )
}
