//! The supervised baseline: classification by the labels. The only system that learns from them.

use super::{EpochTargets, Memory, Method, Plan, StepResult, Task, classify};
use crate::data::Labels;
use crate::model::classifier::{Classifier, Sgd};
use crate::model::{FeatureKind, Network, Step, Weights};
use pcp_core::error::{Error, Result};
use std::sync::Arc;

/// A linear classifier over the pooled features, trained with the network.
pub struct Supervised;

impl Method for Supervised {
    fn describe(&self, plan: &Plan) -> String {
        format!("{} classes, by their labels", classes(plan))
    }

    fn tap(&self) -> FeatureKind {
        FeatureKind::Pooled
    }

    fn memory(&self, plan: &Plan, network: &Network, _weights: &Weights) -> Memory {
        let classifier = Classifier::new(classes(plan), network.pooled, plan.config.train.seed, (0, 0));
        Memory::Classifier(Arc::new(classifier))
    }

    fn step(&self, plan: &Plan, task: Task, memory: &Memory, _targets: &EpochTargets) -> Result<Step<StepResult>> {
        let Task { network, weights, batch, share, rows, dropout, at, .. } = task;
        let t = &plan.config.train;
        let sgd = Sgd { lr: plan.schedule.lr(at.1), momentum: t.momentum as f32, decay: t.weight_decay as f32 };
        let Some(Labels { of, .. }) = &plan.dataset.train.labels else {
            return Err(Error::data("supervised training needs labels", "choose a system that needs no labels"));
        };
        let (classifier, labels) = (memory.classifier()?, rows.iter().map(|row| of[*row]).collect::<Vec<_>>());
        Ok(network.step(weights, batch, share, dropout, FeatureKind::Pooled, |x| classify(classifier, x, &labels, sgd)))
    }
}

fn classes(plan: &Plan) -> usize {
    plan.dataset.train.labels.as_ref().map_or(0, |labels| labels.classes.len())
}
