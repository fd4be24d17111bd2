//! Coordinates of rows by their neighbours: rows that many short ways from neighbour to neighbour connect come near each other, however
//! long or bent their group is (spectral clustering: Shi and Malik 2000; Ng, Jordan and Weiss 2002). k-means on these coordinates finds
//! groups that k-means on the rows divides, because it expects them to be round.
//!
//! Every row is joined with its nearest neighbours, `A = (B + B^T) / 2`. The coordinates are the eigenvectors of the greatest eigenvalues
//! of `D^-1/2 A D^-1/2` (D: the sums of A's rows), as unit rows. They are found by subspace iterations with a polynomial that is small
//! where unwanted eigenvalues lie (Zhou, Saad, Tiago and Chelikowsky 2006), so that memory is a few columns a row.

use crate::cancel::Progress;
use crate::cluster_count::{Choice, Measure, Tried, too_few};
use crate::eigen::eigen;
use crate::eigen::subspace::{gram, orthonormal};
use crate::error::{Error, Result};
use crate::kmeans::{Clusters, MultiStart};
use crate::matrix::{Matrix, Metric};
use crate::neighbours::nearest;
use crate::rng::{Key, Purpose};
use rayon::prelude::*;

/// Neighbours that a row is joined with.
pub const NEIGHBOURS: usize = 10;
/// Directions beside those that are wanted: with them, the last wanted one converges as fast as the others.
const SPARE: usize = 8;
/// Degree of the polynomial, and how often it is applied at the most.
const DEGREE: usize = 12;
const ROUNDS: usize = 25;
/// What the polynomial leaves of every direction.
const TRACE: f64 = 1e-5;
/// The greatest `|M v - w v|` of a wanted direction; the clusters do not change below it.
const TOLERANCE: f64 = 1e-3;

/// Starts of k-means on the coordinates: there are few columns, so that they take little time.
const STARTS: u32 = 10;

/// The most clusters that are found by neighbours unless the caller asks for more: as many coordinates would take long.
pub const MOST: usize = 200;
/// The fewest rows per cluster, on average, where the number of clusters is not known.
const MEMBERS: usize = 10;
/// Columns that the first numbers tried need; twice as many as long as larger numbers are better.
const COLUMNS: usize = 32;

/// Of a row's nearest neighbours, the share that must be in its cluster: with less it is unsorted.
///
/// Chosen on photographs of fruit, birds and CIFAR-10 (docs/plus.md): rows below it have the class of most of their cluster half as often
/// as the others.
pub const SORTED: f32 = 0.4;

/// Whether a row of this agreement ([`NeighbourClusters::agreement`]) is unsorted.
pub fn is_unsorted(agreement: f32) -> bool {
    agreement < SORTED
}

/// Clusters by neighbours.
#[derive(Clone, Debug)]
pub struct NeighbourClusters {
    /// The clusters; centroids and distances are those of the rows themselves.
    pub clusters: Clusters,
    /// The share of every row's ten nearest neighbours that are in its cluster; of a small cluster, of as many neighbours as there are
    /// other members. 0 for the only member.
    pub agreement: Vec<f32>,
}

/// Steps of [`clusters`] that its progress counts: of `fit` on the coordinates, and as many for finding them.
pub fn steps(fit: &MultiStart) -> usize {
    2 * on_coordinates(fit).steps()
}

fn on_coordinates(fit: &MultiStart) -> MultiStart {
    MultiStart { metric: Metric::Cosine, starts: fit.starts.max(STARTS), ..*fit }
}

/// The clusters that `fit` finds in the coordinates of the rows of `features`, which are ready for its metric.
pub fn clusters(features: &Matrix, fit: &MultiStart, progress: Progress) -> Result<NeighbourClusters> {
    let on = on_coordinates(fit);
    let half = on.steps();
    let graph = NeighbourGraph::new(features);
    let found = graph.coordinates(fit.k, &mut |done, all| progress(half * done / all.max(1), 2 * half))?;
    let found = on.run(&found, &mut |done, _| progress(half + done, 2 * half))?;
    Ok(graph.clusters(features, found.assignment, fit))
}

/// As [`clusters`], with the number of clusters whose modularity is the greatest: the share of neighbours that are in one cluster, less
/// what it would be if every row kept as many neighbours, but at random (Newman and Girvan 2004). `fit.k` is ignored.
///
/// Numbers grow by about a tenth each, and end where more clusters have less modularity. `step` is told the numbers tried, of so many as
/// are tried at least.
pub fn clusters_of_any_number(
    features: &Matrix,
    fit: &MultiStart,
    step: Progress,
) -> Result<(NeighbourClusters, Choice)> {
    let most = MOST.min(features.rows / MEMBERS).max(2).min(features.rows.saturating_sub(1));
    if most < 2 {
        return Err(too_few(features.rows));
    }
    let numbers: Vec<usize> = std::iter::successors(Some(2), |k| Some((k + 1).max((*k as f64 * 1.1).round() as usize)))
        .take_while(|k| *k <= most)
        .collect();
    let graph = NeighbourGraph::new(features);
    // The greatest score, the smallest number of clusters that has it, and these clusters.
    let (mut tried, mut best): (Vec<Tried>, (f64, usize, Vec<u32>)) = (Vec::new(), (f64::NEG_INFINITY, 0, Vec::new()));
    let mut columns = COLUMNS.min(most);
    loop {
        let all = numbers.partition_point(|k| *k <= columns);
        let vectors = graph.leading(columns, &mut |_, _| step(tried.len(), all))?;
        let mut attempt = |k: usize, tried: &mut Vec<Tried>| {
            let on = MultiStart { k, ..on_coordinates(fit) };
            let found = on.run(&graph.unit_rows(&vectors, k), &mut |_, _| step(tried.len().min(all), all))?.assignment;
            let score = graph.modularity(&found, k);
            let inertia = Clusters::of(features, found.clone(), k, fit.metric == Metric::Cosine).objective;
            tried.push(Tried { k, score, inertia: inertia / features.rows as f64 });
            if score > best.0 || score == best.0 && k < best.1 {
                best = (score, k, found);
            }
            Ok(())
        };
        numbers[tried.len()..all].iter().try_for_each(|k| attempt(*k, &mut tried))?;
        let found = Choice::of(Measure::Modularity, tried.clone()).k;
        // Far enough below the largest that was tried, or there are no larger ones: what is left are the numbers beside it.
        if 4 * found < 3 * columns || columns == most {
            let beside = |k: &usize| found.abs_diff(*k) <= found / 10 && *k >= 2 && !numbers.contains(k);
            (2..=columns).filter(beside).try_for_each(|k| attempt(k, &mut tried))?;
            break;
        }
        columns = (2 * columns).min(most);
    }
    tried.sort_by_key(|t| t.k);
    let choice = Choice::of(Measure::Modularity, tried);
    Ok((graph.clusters(features, best.2, &MultiStart { k: best.1, ..*fit }), choice))
}

/// `M = D^-1/2 A D^-1/2`, row by row.
struct NeighbourGraph {
    /// The nearest neighbours of every row, `nearest` of each.
    neighbours: Vec<u32>,
    nearest: usize,
    /// Where the entries of every row begin; one more for the end.
    starts: Vec<usize>,
    entries: Vec<(u32, f64)>,
    /// The diagonal of D.
    degrees: Vec<f64>,
}

impl NeighbourGraph {
    /// Neighbours by the cosine are the neighbours of unit rows; with other lengths, of their directions.
    fn new(features: &Matrix) -> Self {
        let unit = features.clone().normalised();
        let found = nearest(&unit, &unit, NEIGHBOURS, true, &|_| ());
        let mut pairs: Vec<(u32, u32)> = Vec::with_capacity(2 * found.index.len());
        for (i, others) in found.index.chunks(found.k.max(1)).enumerate() {
            pairs.extend(others.iter().flat_map(|j| [(i as u32, *j), (*j, i as u32)]));
        }
        pairs.par_sort_unstable();
        // A pair stands twice where each is the other's neighbour.
        let mut entries: Vec<(u32, f64)> = Vec::with_capacity(pairs.len());
        let mut starts = vec![0; features.rows + 1];
        for of_pair in pairs.chunk_by(|a, b| a == b) {
            let (i, j) = of_pair[0];
            entries.push((j, of_pair.len() as f64 / 2.0));
            starts[i as usize + 1] = entries.len();
        }
        let degrees: Vec<f64> = starts.windows(2).map(|w| entries[w[0]..w[1]].iter().map(|e| e.1).sum()).collect();
        for (i, range) in starts.windows(2).enumerate() {
            for (j, weight) in &mut entries[range[0]..range[1]] {
                *weight /= (degrees[i] * degrees[*j as usize]).sqrt();
            }
        }
        NeighbourGraph { neighbours: found.index, nearest: found.k, starts, entries, degrees }
    }

    /// Clusters of the rows, and how many of their neighbours agree.
    fn clusters(&self, features: &Matrix, assignment: Vec<u32>, fit: &MultiStart) -> NeighbourClusters {
        let mut sizes = vec![0; fit.k];
        assignment.iter().for_each(|c| sizes[*c as usize] += 1);
        let agreement = |row: usize| {
            let cluster = assignment[row];
            let near = self.nearest.min(sizes[cluster as usize] - 1);
            let others = &self.neighbours[row * self.nearest..][..near];
            let same = others.iter().filter(|j| assignment[**j as usize] == cluster).count();
            same as f32 / near.max(1) as f32
        };
        let agreement = (0..features.rows).map(agreement).collect();
        let clusters = Clusters::of(features, assignment, fit.k, fit.metric == Metric::Cosine);
        NeighbourClusters { clusters, agreement }
    }

    /// `sum_c inside_c / all - (degree_c / all)^2`: what of all weight is inside of clusters, less what would be there by chance.
    fn modularity(&self, assignment: &[u32], k: usize) -> f64 {
        let (mut inside, mut degree) = (vec![0.0; k], vec![0.0; k]);
        for (i, range) in self.starts.windows(2).enumerate() {
            let cluster = assignment[i] as usize;
            degree[cluster] += self.degrees[i];
            for (j, weight) in &self.entries[range[0]..range[1]] {
                if assignment[*j as usize] == assignment[i] {
                    inside[cluster] += weight * (self.degrees[i] * self.degrees[*j as usize]).sqrt();
                }
            }
        }
        let all: f64 = degree.iter().sum();
        inside.iter().zip(&degree).map(|(inside, degree)| inside / all - (degree / all).powi(2)).sum()
    }

    /// `columns` coordinates of every row; fewer where there are fewer rows. `step` is told rounds.
    fn coordinates(&self, columns: usize, step: Progress) -> Result<Matrix> {
        let columns = columns.clamp(1, self.rows().max(1));
        step(0, ROUNDS)?;
        Ok(self.unit_rows(&self.leading(columns, step)?, columns))
    }

    /// The first `columns` numbers of every row of the vectors, as unit rows.
    fn unit_rows(&self, vectors: &[f64], columns: usize) -> Matrix {
        let n = self.rows();
        let mut values = vec![0.0f32; n * columns];
        values.par_chunks_mut(columns).enumerate().for_each(|(i, row)| {
            let length = (0..columns).map(|c| vectors[c * n + i].powi(2)).sum::<f64>().sqrt();
            for (c, x) in row.iter_mut().enumerate() {
                *x = (vectors[c * n + i] / length.max(1e-300)) as f32;
            }
        });
        Matrix { rows: n, dim: columns, values }
    }

    fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// `M x` for every vector of `x`.
    fn times(&self, x: &[f64]) -> Vec<f64> {
        let n = self.rows();
        let mut out = vec![0.0; x.len()];
        out.par_chunks_mut(n).zip(x.par_chunks(n)).for_each(|(out, x)| {
            for (o, range) in out.iter_mut().zip(self.starts.windows(2)) {
                *o = self.entries[range[0]..range[1]].iter().map(|(j, weight)| weight * x[*j as usize]).sum();
            }
        });
        out
    }

    /// The eigenvectors of the `count` greatest eigenvalues, the greatest first.
    fn leading(&self, count: usize, step: Progress) -> Result<Vec<f64>> {
        let n = self.rows();
        if n < 3 {
            // One row is its own group, and so is each of two.
            return Ok((0..count * n).map(|at| f64::from(u8::from(at / n == at % n))).collect());
        }
        let block = (count + SPARE).min(n);
        let mut stream = Key { purpose: Purpose::Subset, seed: 0, round: 5, epoch: 0 }.stream(0, 0);
        let mut x: Vec<f64> = (0..block * n).map(|_| f64::from(stream.normal())).collect();
        // Eigenvalues are between -1 and 1; those up to `cut` are not wanted.
        let mut cut = 0.0;
        for round in 0..ROUNDS {
            step(round, ROUNDS)?;
            if block < n {
                x = self.filtered(x, cut);
            }
            x = orthonormal(orthonormal(x, n)?, n)?;
            // Rayleigh-Ritz: the best eigenvectors within the space.
            let image = self.times(&x);
            let found = eigen(gram(&x, &image, n), block)?;
            (x, cut) = (turned(&found.vectors, &x, n), found.values[block - 1].clamp(-0.9, 0.999));
            let image = turned(&found.vectors, &image, n);
            let error = |v: usize| {
                let pairs = x[v * n..(v + 1) * n].iter().zip(&image[v * n..(v + 1) * n]);
                pairs.map(|(x, m)| (m - found.values[v] * x).powi(2)).sum::<f64>().sqrt()
            };
            if (0..count).all(|v| error(v) < TOLERANCE) {
                break;
            }
        }
        x.truncate(count * n);
        if x.iter().all(|v| v.is_finite()) {
            return Ok(x);
        }
        Err(Error::data(
            "the neighbours of these rows give no coordinates",
            "check them for values that are not numbers",
        ))
    }

    /// The Chebyshev polynomial of M that stays small on eigenvalues from -1 to `cut` and grows fast above, scaled to 1 at 1. A trace of
    /// `x` stays: the vectors remain independent where M has hardly any other eigenvalues.
    fn filtered(&self, x: Vec<f64>, cut: f64) -> Vec<f64> {
        let (half, centre) = ((cut + 1.0) / 2.0, (cut - 1.0) / 2.0);
        let top = half / (1.0 - centre);
        let mut scale = top;
        let combine = |image: &[f64], x: &[f64], before: Option<&[f64]>, a: f64, b: f64| -> Vec<f64> {
            let value = |at: usize| a * (image[at] - centre * x[at]) - before.map_or(0.0, |before| b * before[at]);
            (0..x.len()).into_par_iter().map(value).collect()
        };
        let mut now = combine(&self.times(&x), &x, None, scale / half, 0.0);
        let mut before = x.clone();
        for _ in 1..DEGREE {
            let next_scale = 1.0 / (2.0 / top - scale);
            let next = combine(&self.times(&now), &now, Some(&before), 2.0 * next_scale / half, scale * next_scale);
            (before, now, scale) = (now, next, next_scale);
        }
        now.iter_mut().zip(&x).for_each(|(now, x)| *now += TRACE * x);
        now
    }
}

/// The vectors `sum_j turn_ij x_j`.
fn turned(turn: &[f64], x: &[f64], n: usize) -> Vec<f64> {
    let m = x.len() / n;
    let mut out = vec![0.0; x.len()];
    out.par_chunks_mut(n).zip(turn.par_chunks(m)).for_each(|(out, turn)| {
        for (weight, x) in turn.iter().zip(x.chunks_exact(n)) {
            out.iter_mut().zip(x).for_each(|(o, x)| *o += weight * x);
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scores::Contingency;
    use crate::testing::blobs;

    /// Two long bent groups, a row each in turn: arcs on the sphere beside each other.
    fn arcs(each: usize) -> (Matrix, Vec<u32>) {
        let mut stream = Key { purpose: Purpose::Synthetic, seed: 1, round: 0, epoch: 0 }.stream(0, 0);
        let mut values = Vec::new();
        for i in 0..2 * each {
            let along = 3.0 * (i / 2) as f32 / each as f32;
            let height = if i % 2 == 0 { 0.25 } else { -0.25 };
            let mut noise = || 0.03 * stream.normal();
            values.extend([along.cos() + noise(), along.sin() + noise(), height + noise()]);
        }
        (Matrix::new(3, values).normalised(), (0..2 * each as u32).map(|i| i % 2).collect())
    }

    const FIT: MultiStart = MultiStart { k: 2, metric: Metric::Cosine, iterations: 30, starts: 5, seed: 0 };

    #[test]
    fn bent_groups_are_found_that_k_means_divides() {
        let (rows, truth) = arcs(300);
        let score = |found: &Clusters| Contingency::new(&found.assignment, &truth, 2, 2).ari();
        assert!(score(&FIT.run(&rows, &mut |_, _| Ok(())).unwrap()) < 0.2);
        let mut told = Vec::new();
        let found = clusters(&rows, &FIT, &mut |done, of| {
            told.push((done, of));
            Ok(())
        });
        let found = found.unwrap();
        // Hardly any row has neighbours in the other group.
        assert!(found.agreement.iter().sum::<f32>() / rows.rows as f32 > 0.98);
        let found = found.clusters;
        assert!(score(&found) > 0.95);
        assert!(told.is_sorted() && told.last() == Some(&(steps(&FIT), steps(&FIT))));
        // Centroids and distances are those of the rows.
        let (row, centroid) = (rows.row(7), found.centroids.row(found.assignment[7] as usize));
        let distance: f32 = row.iter().zip(centroid).map(|(x, c)| (x - c).powi(2)).sum::<f32>().sqrt();
        assert!((found.distances[7] - distance).abs() < 1e-6);
        let found = NeighbourGraph::new(&rows).coordinates(2, &mut |_, _| Ok(())).unwrap();
        assert!(found.values.chunks(2).all(|row| (row[0] * row[0] + row[1] * row[1] - 1.0).abs() < 1e-5));
    }

    /// Against a whole decomposition of the dense matrix.
    #[test]
    fn eigenvectors_are_those_of_the_dense_matrix() {
        let (rows, _) = arcs(60);
        let (graph, n, count) = (NeighbourGraph::new(&rows), rows.rows, 6);
        let mut dense = vec![0.0; n * n];
        for (i, range) in graph.starts.windows(2).enumerate() {
            graph.entries[range[0]..range[1]].iter().for_each(|(j, weight)| dense[i * n + *j as usize] = *weight);
        }
        (0..n * n).for_each(|at| assert_eq!(dense[at], dense[at % n * n + at / n], "symmetric"));
        let exact = eigen(dense, n).unwrap();
        assert!((exact.values[0] - 1.0).abs() < 1e-9);
        let found = graph.leading(count, &mut |_, _| Ok(())).unwrap();
        let image = graph.times(&found);
        for v in 0..count {
            let (x, m) = (&found[v * n..(v + 1) * n], &image[v * n..(v + 1) * n]);
            let value: f64 = x.iter().zip(m).map(|(x, m)| x * m).sum();
            assert!((value - exact.values[v]).abs() < 1e-4, "eigenvalue {v}: {value} is not {}", exact.values[v]);
        }
    }

    #[test]
    fn few_rows_equal_rows_and_more_columns_than_rows() {
        for n in [0, 1, 2, 3, 5] {
            let rows = Matrix::new(2, [0.6, 0.8].repeat(n));
            let found = NeighbourGraph::new(&rows).coordinates(4, &mut |_, _| Ok(())).unwrap();
            assert_eq!((found.rows, found.dim), (n, 4.min(n.max(1))));
            assert!(found.values.iter().all(|x| x.is_finite()));
        }
        let same =
            NeighbourGraph::new(&Matrix::new(2, [0.6, 0.8].repeat(300))).coordinates(3, &mut |_, _| Ok(())).unwrap();
        assert!(same.values.iter().all(|x| x.is_finite()));
    }

    #[test]
    fn the_number_of_groups_is_found() {
        let any = |rows: &Matrix| clusters_of_any_number(rows, &FIT, &mut |_, _| Ok(()));
        for groups in [2, 7, 30, 50] {
            // More columns than at first are needed for the last two.
            let rows = blobs(groups, 24, 64, 0.05, groups as u64).normalised();
            let (found, choice) = any(&rows).unwrap();
            assert_eq!((choice.k, found.clusters.centroids.rows), (groups, groups), "{choice:?}");
            assert!(found.agreement.iter().all(|share| *share == 1.0));
            assert_eq!(choice.measure, Measure::Modularity);
            assert!((choice.score() - (1.0 - 1.0 / groups as f64)).abs() < 1e-9, "all inside, in equal parts");
        }
        // Degenerate ones: no row, one, two, and rows that are all the same.
        for n in [0, 1, 2] {
            assert!(any(&Matrix::new(2, [0.6, 0.8].repeat(n))).unwrap_err().message.contains("too few"));
        }
        let (found, choice) = any(&Matrix::new(2, [0.6, 0.8].repeat(40))).unwrap();
        assert!((2..=4).contains(&choice.k) && found.clusters.assignment.len() == 40);
        assert!(clusters_of_any_number(&arcs(20).0, &FIT, &mut |_, _| Err(Error::stopped())).is_err());
    }

    /// By the definition: over all pairs of rows.
    #[test]
    fn modularity_is_its_definition() {
        let (rows, _) = arcs(40);
        let (graph, n) = (NeighbourGraph::new(&rows), rows.rows);
        let assignment: Vec<u32> = (0..n as u32).map(|i| i * i % 3).collect();
        let mut weight = vec![0.0; n * n];
        for (i, others) in graph.neighbours.chunks(NEIGHBOURS).enumerate() {
            for j in others.iter().map(|j| *j as usize) {
                weight[i * n + j] += 0.5;
                weight[j * n + i] += 0.5;
            }
        }
        let degree = |i: usize| weight[i * n..(i + 1) * n].iter().sum::<f64>();
        let all: f64 = weight.iter().sum();
        let pairs = (0..n * n).filter(|at| assignment[at / n] == assignment[at % n]);
        let slow: f64 = pairs.map(|at| weight[at] / all - degree(at / n) * degree(at % n) / (all * all)).sum();
        assert!((graph.modularity(&assignment, 3) - slow).abs() < 1e-12);
    }

    #[test]
    fn more_clusters_than_rows_are_refused_by_name() {
        let rows = Matrix::new(2, [0.6, 0.8].repeat(3));
        let fit = MultiStart { k: 4, ..FIT };
        assert!(clusters(&rows, &fit, &mut |_, _| Ok(())).unwrap_err().hint.contains("1 to 3"));
        assert_eq!(
            clusters(&rows, &MultiStart { k: 1, ..FIT }, &mut |_, _| Ok(())).unwrap().clusters.assignment,
            [0, 0, 0]
        );
    }

    #[test]
    fn threads_do_not_change_a_bit_and_a_stop_is_heard() {
        let (rows, _) = arcs(200);
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| NeighbourGraph::new(&rows).coordinates(5, &mut |_, _| Ok(())).unwrap())
        };
        assert_eq!(with(1), with(3));
        assert!(NeighbourGraph::new(&rows).coordinates(5, &mut |_, _| Err(Error::stopped())).is_err());
    }
}
