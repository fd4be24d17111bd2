//! The supervised baseline: classification by the labels. The only system that learns from them.

use super::{Lesson, Memory, Method, Outcome, Plan, Task, classify};
use crate::data::Dataset;
use crate::model::classifier::{Classifier, Sgd};
use crate::model::{FeatureKind, Network, Step};
use pcp_core::error::{Error, Result};
use std::sync::Arc;

/// A linear classifier over the pooled features, trained with the network.
pub struct Supervised;

impl Method for Supervised {
    fn check(&self, dataset: &Dataset) -> Result<()> {
        match dataset.train.labels {
            Some(_) => Ok(()),
            None => Err(Error::data(
                format!("{} has no labels, and supervised training needs them", dataset.name),
                "put the images into one folder per class, or choose another --preset",
            )),
        }
    }

    fn describe(&self, plan: &Plan) -> String {
        format!("{} classes, by their labels", classes(plan))
    }

    fn tap(&self) -> FeatureKind {
        FeatureKind::Pooled
    }

    fn memory(&self, plan: &Plan, network: &Network) -> Memory {
        let classifier = Classifier::new(classes(plan), network.pooled, plan.config.train.seed, (0, 0));
        Memory { classifier: Some(Arc::new(classifier)), ..Memory::default() }
    }

    fn step(&self, plan: &Plan, task: Task, memory: &Memory, _lesson: &Lesson) -> Step<Outcome> {
        let Task { network, weights, batch, rows, dropout, at, .. } = task;
        let t = &plan.config.train;
        let sgd = Sgd { lr: plan.schedule.lr(at.1), momentum: t.momentum as f32, decay: t.weight_decay as f32 };
        let labels: Vec<u32> = match &plan.dataset.train.labels {
            Some(labels) => rows.iter().map(|row| labels.of[*row]).collect(),
            None => vec![0; rows.len()],
        };
        network.step(weights, batch, 1, dropout, FeatureKind::Pooled, |x| match &memory.classifier {
            Some(classifier) => classify(classifier, x, &labels, sgd),
            None => (Outcome::default(), vec![0.0; x.values.len()]),
        })
    }
}

fn classes(plan: &Plan) -> usize {
    plan.dataset.train.labels.as_ref().map_or(0, |labels| labels.classes.len())
}
