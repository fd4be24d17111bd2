//! DeepCluster as published (Caron et al. 2018): k-means on the features makes classes, a classifier over the features learns
//! them for an epoch; every epoch starts with new classes and a new classifier.

use super::pcp::cluster;
use super::{At, EpochTargets, FeatureRequest, FoundTargets, Memory, Method, Past, Plan, StepResult, Task, classify};
use crate::data::loader::Draw;
use crate::model::classifier::{Classifier, Sgd};
use crate::model::{FeatureKind, Network, Step, Weights};
use pcp_core::error::{Error, Result};
use pcp_core::matrix::Matrix;
use pcp_core::pca::Pca;
use pcp_core::purify::{History, Rules, purify};
use pcp_core::rng::{Key, Purpose};
use std::sync::Arc;

/// Features are the embeddings before ReLU and scaling; the classifier takes them after a ReLU. For clustering, long features are
/// whitened, and all are scaled to unit length. The sampler draws equally from all clusters.
pub struct DeepCluster;

impl Method for DeepCluster {
    fn describe(&self, plan: &Plan) -> String {
        format!("{} clusters as classes", plan.schedule.floor)
    }

    /// A classifier; every epoch starts with a new one.
    fn memory(&self, plan: &Plan, network: &Network, _weights: &Weights) -> Memory {
        let (classes, dim) = (plan.schedule.floor, network.dim(FeatureKind::RawEmbedding));
        Memory::Classifier(Arc::new(Classifier::new(classes, dim, plan.config.train.seed, (0, 0))))
    }

    fn clustering_steps(&self, plan: &Plan) -> usize {
        plan.config.clusters.iterations + 1
    }

    fn needed_features(&self, plan: &Plan, _at: At) -> Option<FeatureRequest> {
        Some(FeatureRequest { view: plan.config.clusters.features, tap: FeatureKind::RawEmbedding })
    }

    fn find_targets(
        &self,
        plan: &Plan,
        at: At,
        features: &Matrix,
        _memory: &Memory,
        _past: Past,
        on_iteration: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<FoundTargets> {
        let (k, dim) = (plan.schedule.floor, features.dim);
        let reduced = whitened(features, plan.config.deepcluster.components, &mut || on_iteration(0))?;
        let labels = cluster(plan, &reduced, k, None, at, 0, on_iteration)?.assignment;
        let purified = purify(&reduced, &labels, k, &Rules::WHOLE, &History::default());
        let classifier = Classifier::new(k, dim, plan.config.train.seed, at);
        Ok(FoundTargets {
            clusters: k,
            labels: Some(labels),
            purified: Some(purified),
            classifier: Some(classifier),
            ..FoundTargets::default()
        })
    }

    fn batches(&self, plan: &Plan, at: At, targets: &EpochTargets) -> Vec<Vec<Draw>> {
        let labels = targets.labels.as_deref().unwrap_or_default();
        plan.cut(&sample(labels, plan.ids(), plan.key(Purpose::Sampler, at), plan.key(Purpose::Order, at)))
    }

    fn step(&self, plan: &Plan, task: Task, memory: &Memory, targets: &EpochTargets) -> Result<Step<StepResult>> {
        let Task { network, weights, batch, share, rows, dropout, .. } = task;
        let d = &plan.config.deepcluster;
        let sgd = Sgd { lr: d.head_lr as f32, momentum: 0.0, decay: d.head_decay as f32 };
        let Some(clusters) = &targets.labels else {
            return Err(Error::training(
                "DeepCluster has no clusters to learn from",
                "resume from the checkpoint before",
            ));
        };
        let (classifier, labels) = (memory.classifier()?, rows.iter().map(|row| clusters[*row]).collect::<Vec<_>>());
        Ok(network.step(weights, batch, share, dropout, FeatureKind::RawEmbedding, |x| {
            let mut active = x.clone();
            active.values.iter_mut().for_each(|v| *v = v.max(0.0));
            let (outcome, mut gradient) = classify(classifier, &active, &labels, sgd);
            gradient.iter_mut().zip(&x.values).filter(|(_, x)| **x <= 0.0).for_each(|(g, _)| *g = 0.0);
            (outcome, gradient)
        }))
    }
}

/// Features scaled to unit length; those of more than `components` numbers are first reduced to that many and whitened.
fn whitened(features: &Matrix, components: usize, on_step: &mut dyn FnMut() -> Result<()>) -> Result<Matrix> {
    Ok(match features.dim > components {
        true => Pca::fit(features, components, on_step)?.apply(features, true).normalised(),
        false => features.clone().normalised(),
    })
}

/// DeepCluster's sampler: int(N / non-empty clusters) + 1 samples of every cluster that has any, with replacement where it is
/// smaller, shuffled and truncated to N.
pub fn sample(labels: &[u32], ids: &[u64], draw: Key, order: Key) -> Vec<Draw> {
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); labels.iter().max().map_or(0, |m| *m as usize + 1)];
    for (row, label) in labels.iter().enumerate() {
        members[*label as usize].push(row);
    }
    let filled = members.iter().filter(|m| !m.is_empty()).count();
    let each = labels.len() / filled.max(1) + 1;
    let mut draws = Vec::with_capacity(each * filled);
    for (cluster, members) in members.iter().enumerate().filter(|(_, m)| !m.is_empty()) {
        if members.len() < each {
            // Samples draw at view 0 below, clusters at view 1.
            let mut stream = draw.stream(cluster as u64, 1);
            draws.extend((0..each).map(|_| members[stream.below(members.len() as u64) as usize]));
        } else {
            let of: Vec<u64> = members.iter().map(|row| ids[*row]).collect();
            draws.extend(draw.shuffled(&of).into_iter().take(each).map(|i| members[i]));
        }
    }
    // Shuffled by index, not by sample: a sample may occur twice.
    let places: Vec<u64> = (0..draws.len() as u64).collect();
    let mut copies = vec![0u32; labels.len()];
    let shuffled = order.shuffled(&places).into_iter().take(labels.len());
    shuffled
        .map(|place| {
            let row = draws[place];
            let copy = copies[row];
            copies[row] += 1;
            Draw { row, copy }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> (Key, Key) {
        let key = |purpose| Key { purpose, seed: 4, round: 0, epoch: 2 };
        (key(Purpose::Sampler), key(Purpose::Order))
    }

    #[test]
    fn the_sampler_draws_from_all_clusters_alike() {
        // Clusters of 1, 0, 30 and 69 samples: int(100 / 3) + 1 = 34 of each, 102 in all, cut to 100.
        let labels: Vec<u32> = (0..100)
            .map(|i| {
                if i == 0 {
                    0
                } else if i <= 30 {
                    2
                } else {
                    3
                }
            })
            .collect();
        let ids: Vec<u64> = (0..100).collect();
        let draws = sample(&labels, &ids, keys().0, keys().1);
        assert_eq!(draws.len(), 100);
        let count = |label: u32| draws.iter().filter(|d| labels[d.row] == label).count();
        assert_eq!(count(1), 0);
        assert!([0, 2, 3].iter().all(|c| (32..=34).contains(&count(*c))), "{:?}", [count(0), count(2), count(3)]);
        // The large cluster gives no sample twice, the single one is there again and again, each time with a new view.
        assert!(draws.iter().filter(|d| labels[d.row] == 3).all(|d| d.copy == 0));
        let copies: Vec<u32> = draws.iter().filter(|d| d.row == 0).map(|d| d.copy).collect();
        assert_eq!(copies, (0..count(0) as u32).collect::<Vec<_>>());
        assert_eq!(draws, sample(&labels, &ids, keys().0, keys().1));
    }

    #[test]
    fn one_cluster_is_drawn_from_with_replacement_and_none_gives_nothing() {
        let draws = sample(&[0; 5], &[0, 1, 2, 3, 4], keys().0, keys().1);
        // int(5 / 1) + 1 = 6 of 5: with replacement, as published.
        assert_eq!(draws.len(), 5);
        assert!(sample(&[], &[], keys().0, keys().1).is_empty());
    }

    #[test]
    fn short_features_are_scaled_and_long_ones_whitened() {
        let x = Matrix::new(3, vec![3.0, 0.0, 4.0, 0.0, 2.0, 0.0, 1.0, 1.0, 1.0, -5.0, 0.5, 2.0]);
        assert_eq!(whitened(&x, 3, &mut || Ok(())).unwrap().row(0), [0.6, 0.0, 0.8]);
        let reduced = whitened(&x, 2, &mut || Ok(())).unwrap();
        assert_eq!((reduced.rows, reduced.dim), (4, 2));
        assert!((0..4).all(|i| (reduced.row(i).iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-5));
    }
}
