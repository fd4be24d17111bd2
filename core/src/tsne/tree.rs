//! Repulsion in O(n log n) (Barnes and Hut): a distant group of points acts like one point at its mean.
//!
//! A binary tree halves the points along the longer side of their bounding box until `GROUP` are left. So its shape depends on
//! their number alone and its leaves are full. The points of a leaf walk the tree together, one vector lane each: a node acts as
//! one point when its box is small compared with the distance to the whole leaf.

use pulp::Arch;
use rayon::prelude::*;

/// Points of a leaf.
const GROUP: usize = 16;
/// A node acts as one point when its extent is at most this share of its distance.
const THETA: f32 = 0.5;
/// Leaves of a work unit.
const LEAVES: usize = 8;
/// Steps for which the order of the points is reused: they move little, and boxes are always computed again.
const REORDER_EVERY: usize = 4;
/// Nodes of fewer leaves are built by one thread.
const SMALL: usize = 32;

/// A node; nodes are stored depth first.
#[derive(Clone, Copy, Default)]
struct Node {
    /// Mean of its points.
    mean: [f32; 2],
    /// How many.
    count: f32,
    /// The longer side of its box, squared and divided by `THETA` squared.
    reach: f32,
    low: [f32; 2],
    high: [f32; 2],
    /// The node after all descendants of this one.
    next: u32,
    /// Its first leaf.
    leaf: u32,
}

/// The points of a leaf, coordinate by coordinate; a leaf that is not full repeats its first.
#[derive(Clone, Copy)]
struct Leaf {
    x: [f32; GROUP],
    y: [f32; GROUP],
    count: usize,
}

/// The tree over a number of points.
pub struct Tree {
    /// Indices of the points, leaf by leaf.
    order: Vec<u32>,
    leaves: Vec<Leaf>,
    nodes: Vec<Node>,
    /// Steps since the points were last ordered.
    served: usize,
}

impl Tree {
    /// For `n` points, at least one.
    pub fn new(n: usize) -> Self {
        let leaves = n.div_ceil(GROUP);
        Tree {
            order: (0..n as u32).collect(),
            leaves: vec![Leaf { x: [0.0; GROUP], y: [0.0; GROUP], count: 0 }; leaves],
            nodes: vec![Node::default(); 2 * leaves - 1],
            served: 0,
        }
    }

    /// Sets the positions of the points.
    pub fn place(&mut self, places: &[[f32; 2]]) {
        let sort = self.served.is_multiple_of(REORDER_EVERY);
        self.served += 1;
        build(&mut self.order, &mut self.leaves, &mut self.nodes, places, (0, 0), sort);
    }

    /// `sum_j w_ij^2 (y_i - y_j)` for every place, and `Z`, the sum of `w_ij` over all pairs.
    pub fn repulsion(&self) -> (Vec<[f32; 2]>, f64) {
        let arch = Arch::new();
        let units = self.leaves.par_chunks(LEAVES);
        let walked: Vec<Vec<Sums>> =
            units.map(|unit| unit.iter().map(|leaf| arch.dispatch(|| self.walk(leaf))).collect()).collect();
        let mut out = vec![[0.0; 2]; self.order.len()];
        let mut z = 0.0;
        for (sums, indices) in walked.iter().flatten().zip(self.order.chunks(GROUP)) {
            for (l, &i) in indices.iter().enumerate() {
                out[i as usize] = [sums.x[l], sums.y[l]];
                // Includes the point itself: w = 1.
                z += f64::from(sums.w[l]) - 1.0;
            }
        }
        (out, z)
    }

    /// The sums for the points of `leaf`. A node never acts as one point on its own points: its mean lies in the box, nearer than
    /// the diagonal, which is less than twice the extent.
    #[inline(always)]
    fn walk(&self, leaf: &Leaf) -> Sums {
        let mut sums = Sums { x: [0.0; GROUP], y: [0.0; GROUP], w: [0.0; GROUP] };
        let (left, right) = bounds(&leaf.x);
        let (low, high) = bounds(&leaf.y);
        let mut at = 0;
        while let Some(node) = self.nodes.get(at) {
            // From the mean to the group's box.
            let dx = (left - node.mean[0]).max(node.mean[0] - right).max(0.0);
            let dy = (low - node.mean[1]).max(node.mean[1] - high).max(0.0);
            if node.reach < dx * dx + dy * dy {
                sums.add(leaf, node.mean, node.count);
                at = node.next as usize;
            } else {
                if node.next as usize == at + 1 {
                    let other = &self.leaves[node.leaf as usize];
                    for j in 0..other.count {
                        sums.add(leaf, [other.x[j], other.y[j]], 1.0);
                    }
                }
                at += 1;
            }
        }
        sums
    }
}

/// Sums for the points of a leaf.
struct Sums {
    x: [f32; GROUP],
    y: [f32; GROUP],
    w: [f32; GROUP],
}

impl Sums {
    /// Adds `count` points at `from`.
    #[inline(always)]
    fn add(&mut self, leaf: &Leaf, from: [f32; 2], count: f32) {
        for l in 0..GROUP {
            let (dx, dy) = (leaf.x[l] - from[0], leaf.y[l] - from[1]);
            let w = 1.0 / (1.0 + dx * dx + dy * dy);
            let many = count * w;
            self.w[l] += many;
            self.x[l] += many * w * dx;
            self.y[l] += many * w * dy;
        }
    }
}

#[inline(always)]
fn bounds(values: &[f32; GROUP]) -> (f32, f32) {
    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v)))
}

/// Fills `nodes` and `leaves` for the points in `order`; `(node, leaf)` are the indices of the first of each.
fn build(
    order: &mut [u32],
    leaves: &mut [Leaf],
    nodes: &mut [Node],
    places: &[[f32; 2]],
    (node, leaf): (usize, usize),
    sort: bool,
) {
    let next = (node + nodes.len()) as u32;
    if let [one] = leaves {
        *one = gather(order, places);
        let count = one.count as f32;
        let ((left, right), (low, high)) = (bounds(&one.x), bounds(&one.y));
        let mean = [&one.x, &one.y].map(|v| v[..one.count].iter().sum::<f32>() / count);
        let (low, high) = ([left, low], [right, high]);
        nodes[0] = Node { mean, count, reach: reach(low, high), low, high, next, leaf: leaf as u32 };
        return;
    }
    let half = leaves.len().div_ceil(2);
    if sort {
        let (low, high) = order.iter().fold(([f32::INFINITY; 2], [f32::NEG_INFINITY; 2]), |(low, high), i| {
            let p = places[*i as usize];
            ([low[0].min(p[0]), low[1].min(p[1])], [high[0].max(p[0]), high[1].max(p[1])])
        });
        let axis = usize::from(high[1] - low[1] > high[0] - low[0]);
        let along = |a: &u32, b: &u32| places[*a as usize][axis].total_cmp(&places[*b as usize][axis]).then(a.cmp(b));
        order.select_nth_unstable_by(half * GROUP, along);
    }
    let parallel = leaves.len() >= SMALL;
    let (near, far) = order.split_at_mut(half * GROUP);
    let (near_leaves, far_leaves) = leaves.split_at_mut(half);
    let (own, below) = nodes.split_at_mut(1);
    let (near_nodes, far_nodes) = below.split_at_mut(2 * half - 1);
    let (a, b) = ((node + 1, leaf), (node + 2 * half, leaf + half));
    if parallel {
        rayon::join(
            || build(near, near_leaves, near_nodes, places, a, sort),
            || build(far, far_leaves, far_nodes, places, b, sort),
        );
    } else {
        build(near, near_leaves, near_nodes, places, a, sort);
        build(far, far_leaves, far_nodes, places, b, sort);
    }
    let (a, b) = (&near_nodes[0], &far_nodes[0]);
    let count = a.count + b.count;
    let mean = [0, 1].map(|c| (a.mean[c] * a.count + b.mean[c] * b.count) / count);
    let (low, high) = ([0, 1].map(|c| a.low[c].min(b.low[c])), [0, 1].map(|c| a.high[c].max(b.high[c])));
    own[0] = Node { mean, count, reach: reach(low, high), low, high, next, leaf: leaf as u32 };
}

fn gather(order: &[u32], places: &[[f32; 2]]) -> Leaf {
    let place = |l: usize, c: usize| places[*order.get(l).unwrap_or(&order[0]) as usize][c];
    Leaf { x: std::array::from_fn(|l| place(l, 0)), y: std::array::from_fn(|l| place(l, 1)), count: order.len() }
}

fn reach(low: [f32; 2], high: [f32; 2]) -> f32 {
    let extent = (high[0] - low[0]).max(high[1] - low[1]);
    extent * extent / (THETA * THETA)
}
