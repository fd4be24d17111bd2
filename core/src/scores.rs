//! Scores of clusterings against classes (purity, accuracy, NMI, ARI), and of pictures against features (trustworthiness).
//!
//! All but [`FilterScore`] have scikit-learn's definitions and scale: 1 is perfect agreement.

mod assignment;
mod distances;
mod filter;

pub use distances::{silhouette, trustworthiness};
pub use filter::FilterScore;

/// The contingency table: how many samples of every class each cluster has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contingency {
    clusters: usize,
    classes: usize,
    /// Row by row, one row a cluster.
    counts: Vec<u64>,
}

impl Contingency {
    /// Counts samples by their cluster, below `clusters`, and their class, below `classes`.
    pub fn new(cluster_of: &[u32], class_of: &[u32], clusters: usize, classes: usize) -> Self {
        assert_eq!(cluster_of.len(), class_of.len(), "one class per sample");
        let mut counts = vec![0; clusters * classes];
        for (&cluster, &class) in cluster_of.iter().zip(class_of) {
            counts[cluster as usize * classes + class as usize] += 1;
        }
        Contingency { clusters, classes, counts }
    }

    /// Samples in all.
    pub fn samples(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many of each class `cluster` has.
    pub fn row(&self, cluster: usize) -> &[u64] {
        &self.counts[cluster * self.classes..(cluster + 1) * self.classes]
    }

    /// The class that `cluster` has most of, the lowest of equals, and how many; `None` when the cluster is empty.
    pub fn majority(&self, cluster: usize) -> Option<(u32, u64)> {
        majority(self.row(cluster))
    }

    /// The share of samples that are of their cluster's majority class; 0 without samples.
    pub fn purity(&self) -> f64 {
        let right: u64 = (0..self.clusters).filter_map(|c| self.majority(c)).map(|m| m.1).sum();
        share(right, self.samples()).unwrap_or(0.0)
    }

    /// Classes with samples that are the majority of no cluster.
    pub fn missed(&self) -> Vec<u32> {
        let mut found = vec![false; self.classes];
        for (class, _) in (0..self.clusters).filter_map(|c| self.majority(c)) {
            found[class as usize] = true;
        }
        let (_, sizes) = self.margins();
        (0..self.classes).filter(|&c| sizes[c] > 0 && !found[c]).map(|c| c as u32).collect()
    }

    /// Hungarian accuracy: the share of samples in the right class under the best one-to-one matching of clusters and classes.
    /// With more clusters than classes, samples of unmatched clusters count as wrong.
    pub fn accuracy(&self) -> f64 {
        let count = |cluster: usize, class: usize| self.counts[cluster * self.classes + class];
        let right = match self.clusters <= self.classes {
            true => assignment::greatest(self.clusters, self.classes, &|a, b| count(a, b) as i64),
            false => assignment::greatest(self.classes, self.clusters, &|a, b| count(b, a) as i64),
        };
        share(right as u64, self.samples()).unwrap_or(0.0)
    }

    /// Normalised mutual information `2 I(U; V) / (H(U) + H(V))`; 1 when both have at most one part.
    pub fn nmi(&self) -> f64 {
        let n = self.samples() as f64;
        let (rows, columns) = self.margins();
        let parts = |sizes: &[u64]| sizes.iter().filter(|s| **s > 0).count();
        if parts(&rows) <= 1 && parts(&columns) <= 1 {
            return 1.0;
        }
        let entropy = |sizes: &[u64]| -> f64 {
            sizes.iter().filter(|s| **s > 0).map(|s| *s as f64 / n).map(|p| -p * p.ln()).sum()
        };
        let mut shared = 0.0;
        for (cluster, size) in rows.iter().enumerate() {
            for (&count, class_size) in self.row(cluster).iter().zip(&columns).filter(|(count, _)| **count > 0) {
                let p = count as f64 / n;
                // p ln(p / (p_u p_v)), the n of the shares cancelled.
                shared += p * (count as f64 * n / (*size as f64 * *class_size as f64)).ln();
            }
        }
        (2.0 * shared / (entropy(&rows) + entropy(&columns))).clamp(0.0, 1.0)
    }

    /// Adjusted Rand index: agreement over pairs of samples, 0 by chance, 1 when all agree.
    ///
    /// With the pairs together in both (tp), in clusters alone (fp), in classes alone (fn) and in neither (tn):
    /// `2 (tp tn - fn fp) / ((tp + fn)(fn + tn) + (tp + fp)(fp + tn))`.
    pub fn ari(&self) -> f64 {
        let pairs = |counts: &[u64]| -> f64 { counts.iter().map(|c| *c as f64 * (*c as f64 - 1.0) / 2.0).sum() };
        let (rows, columns) = self.margins();
        let tp = pairs(&self.counts);
        let (fp, fne) = (pairs(&rows) - tp, pairs(&columns) - tp);
        if fp == 0.0 && fne == 0.0 {
            return 1.0;
        }
        let tn = pairs(&[self.samples()]) - tp - fp - fne;
        2.0 * (tp * tn - fne * fp) / ((tp + fne) * (fne + tn) + (tp + fp) * (fp + tn))
    }

    /// Sizes of the clusters, sizes of the classes.
    fn margins(&self) -> (Vec<u64>, Vec<u64>) {
        let rows: Vec<u64> = (0..self.clusters).map(|c| self.row(c).iter().sum()).collect();
        let mut columns = vec![0; self.classes];
        for cluster in 0..self.clusters {
            columns.iter_mut().zip(self.row(cluster)).for_each(|(sum, count)| *sum += count);
        }
        (rows, columns)
    }
}

/// The greatest of `counts`, the lowest of equals; `None` when all are zero.
fn majority(counts: &[u64]) -> Option<(u32, u64)> {
    let best = (0..counts.len()).fold(None, |best: Option<usize>, c| match best {
        Some(b) if counts[b] >= counts[c] => best,
        _ => Some(c),
    })?;
    (counts[best] > 0).then(|| (best as u32, counts[best]))
}

/// `part / whole`; `None` when `whole` is zero.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests;
