//! Checks of a checkpoint as a whole, before anything of it is used: its parts have the sizes that the settings and the images ask for, and
//! refer to nothing outside them.

use super::state::State;
use crate::config::System;
use crate::method::{EpochTargets, Memory, Method, Plan};
use crate::model::{Network, Optimizer};
use pcp_core::error::{Error, Result};

impl State {
    /// An error that names the first part that does not fit. The records are checked where they are `known`.
    pub(super) fn validate(&self, network: &Network, method: &dyn Method, plan: &Plan, known: bool) -> Result<()> {
        let fits = |right: bool, what: &str| match right {
            true => Ok(()),
            false => {
                Err(Error::file(format!("the checkpoint does not fit together: {what}"), "use the checkpoint before"))
            }
        };
        let (samples, p) = (plan.samples(), &self.progress);
        let (rounds, epochs) = (plan.config.train.rounds, plan.config.train.epochs);
        let over = p.round == rounds && p.epoch == 0 && self.targets.is_none();
        fits(p.round < rounds && p.epoch < epochs || over, "its round or epoch is beyond the last")?;
        let lines = u64::from(p.round) * u64::from(epochs) + u64::from(p.epoch);
        fits(p.metrics_lines as u64 == lines, "its number of records is not that of its epochs")?;
        fits(!known || self.records.len() as u64 == lines, "its records are not those of its epochs")?;
        let ordered =
            self.records.iter().zip(0u64..).all(|(r, i)| {
                (u64::from(r.round), u64::from(r.epoch)) == (i / u64::from(epochs), i % u64::from(epochs))
            });
        fits(ordered, "its records are not in order")?;
        let (c, s) = (&p.counts, &p.sums);
        let share = |x: f64| (0.0..=1.0).contains(&x);
        let percent = |x: f64| (0.0..=100.0).contains(&x);
        fits(
            c.clusters <= samples
                && c.non_empty <= samples
                && c.pulled_back <= samples
                && c.dropped <= samples
                && share(c.largest)
                && c.churn.is_none_or(share),
            "it counts more clusters or images than there are",
        )?;
        let sums = [s.total, s.instance.0, s.cluster.0, s.spreading.0];
        let seconds = [s.feature_seconds, s.cluster_seconds, s.train_seconds, p.seconds];
        fits(
            sums.iter().all(|x| x.is_finite()) && seconds.iter().all(|x| x.is_finite() && *x >= 0.0),
            "its sums are not finite",
        )?;
        fits(
            p.last.is_none_or(percent)
                && p.classifier.is_none_or(percent)
                && p.best.is_none_or(|(knn, at)| percent(knn) && u64::from(at) <= lines),
            "its probes are out of range",
        )?;

        fits(self.weights.is_finite(), "its weights are not finite")?;
        let (velocities, expected) = (self.optimizer.velocities(), Optimizer::new(&self.weights).velocities());
        let sound = |(a, b): (&Vec<f32>, &Vec<f32>)| a.len() == b.len() && a.iter().all(|x| x.is_finite());
        fits(
            velocities.len() == expected.len() && velocities.iter().zip(&expected).all(sound),
            "its momentum is not that of the network",
        )?;
        fits(
            memory_fits(&self.memory, &method.memory(plan, network, &self.weights), plan),
            "its memory has other sizes",
        )?;

        let labels_fit = |labels: &[u32], below: usize| {
            labels.len() == samples && labels.iter().all(|label| (*label as usize) < below)
        };
        let history: Vec<&[u32]> = self.history.iter().map(|labels| labels.as_slice()).collect();
        fits(
            history.len() <= plan.schedule.history && history.iter().all(|labels| labels_fit(labels, samples)),
            "its history is that of other images",
        )?;
        let targets_fit = |targets: &EpochTargets, clusters: usize| {
            targets.positives.samples() == samples
                && targets.labels.as_ref().is_none_or(|labels| labels_fit(labels, clusters))
                && targets.clusterings.iter().all(|labels| labels_fit(labels, samples))
        };
        fits(
            self.previous.as_ref().is_none_or(|targets| targets_fit(targets, samples))
                && self.targets.as_ref().is_none_or(|targets| targets_fit(targets, c.clusters)),
            "its clusters are those of other images",
        )?;
        if let (Some(targets), Memory::Classifier(classifier)) = (&self.targets, &self.memory) {
            let classes = classifier.classes();
            let known = targets.labels.iter().flatten().all(|label| (*label as usize) < classes);
            fits(known, "its classifier has fewer classes than its clusters")?;
        }
        if let Some(centroids) = &self.centroids {
            let tap = method.needed_features(plan, self.at()).map_or(method.tap(), |needed| needed.tap);
            let sound = centroids.rows <= samples && centroids.dim == network.dim(tap);
            fits(sound && centroids.values.iter().all(|x| x.is_finite()), "its centroids have other sizes")?;
        }
        let batches = self.targets.as_ref().map_or(0, |targets| method.batches(plan, self.at(), targets).len());
        fits(p.batch <= batches, "it has more steps than its epoch")
    }
}

/// Whether `memory` has the kind and the sizes of `initial`.
fn memory_fits(memory: &Memory, initial: &Memory, plan: &Plan) -> bool {
    let finite = |values: &[f32]| values.iter().all(|x| x.is_finite());
    match (memory, initial) {
        (Memory::Nothing, Memory::Nothing) => true,
        // One is whole, with the rows of all processes, or filled when a run begins.
        (Memory::Bank(a), Memory::Bank(b)) | (Memory::Fixed(a), Memory::Fixed(b)) => {
            (a.rows.rows, a.rows.dim) == (plan.samples(), b.rows.dim) && finite(&a.rows.values)
        }
        (Memory::Keys { encoder, queue: a }, Memory::Keys { queue: b, .. }) => {
            let same = (a.rows.rows, a.rows.dim) == (b.rows.rows, b.rows.dim);
            same && a.next < a.rows.rows && finite(&a.rows.values) && encoder.is_finite()
        }
        (Memory::Average(average), Memory::Average(_)) => average.is_finite(),
        (Memory::Classifier(a), Memory::Classifier(b)) => {
            // DeepCluster has a new one for the clusters of every epoch.
            let own = plan.config.method.system == System::Deepcluster;
            let (rows, dim) = (a.weight.rows, a.weight.dim);
            dim == b.weight.dim
                && (own && rows <= plan.samples().max(b.weight.rows) || rows == b.weight.rows)
                && a.bias.len() == rows
                && a.velocity.len() == rows * dim + rows
                && finite(&a.weight.values)
                && finite(&a.bias)
                && finite(&a.velocity)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::state;
    use super::*;
    use crate::method::{self, bank::Bank};
    use pcp_core::matrix::Matrix;
    use std::sync::Arc;

    /// What `change` makes of a sound state is refused, with a reason that has `word`.
    fn refused(system: &str, word: &str, change: impl FnOnce(&mut State)) {
        let (network, plan, mut state) = state(system);
        let method = method::of(plan.config.method.system);
        state.validate(&network, method, &plan, true).unwrap();
        change(&mut state);
        let e = state.validate(&network, method, &plan, true).unwrap_err();
        assert!(e.message.contains(word), "{system}, {word}: {e:?}");
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        refused("pcp", "memory", |s| {
            let Memory::Bank(bank) = &s.memory else { unreachable!() };
            let rows = bank.rows.clone().remove_rows(&[4]);
            s.memory = Memory::Bank(Arc::new(Bank { rows, first: 0, momentum: bank.momentum }));
        });
        refused("pcp", "momentum", |s| {
            let mut velocities = s.optimizer.velocities();
            velocities.pop();
            s.optimizer = Optimizer::from_velocities(velocities);
        });
        refused("pcp", "momentum", |s| {
            let mut velocities = s.optimizer.velocities();
            velocities[0].pop();
            s.optimizer = Optimizer::from_velocities(velocities);
        });
        refused("pcp", "clusters or images", |s| s.progress.counts.clusters = 4_000_000_000);
        let targets = |s: &State| EpochTargets::clone(s.targets.as_ref().unwrap());
        refused("pcp", "clusters are", |s| {
            s.targets = Some(Arc::new(EpochTargets { labels: Some(vec![0, 1, 1, 2, 3]), ..targets(s) }));
        });
        refused("pcp", "clusters are", |s| {
            s.targets = Some(Arc::new(EpochTargets { labels: Some(vec![0; 4]), ..targets(s) }));
        });
        refused("la", "clusters are", |s| {
            s.targets = Some(Arc::new(EpochTargets { clusterings: vec![vec![9; 5]], ..targets(s) }));
        });
        refused("pcp", "history", |s| s.history.push(vec![0, 1], 9));
        refused("pcp", "history", |s| s.history.push(vec![7; 5], 9));
        refused("pcp", "centroids", |s| s.centroids = Some(Matrix::new(3, vec![0.0; 6])));
        refused("pcp", "steps", |s| s.progress.batch = 99);
        refused("pcp", "round or epoch", |s| s.progress.round = 9);
        refused("pcp", "round or epoch", |s| s.progress.epoch = 9_999);
        refused("pcp", "records", |s| s.progress.metrics_lines = 1);
        refused("pcp", "sums", |s| s.progress.sums.total = f64::NAN);
        refused("pcp", "probes", |s| s.progress.last = Some(1e9));
        refused("deepcluster", "classifier has fewer", |s| {
            let Memory::Classifier(c) = &s.memory else { unreachable!() };
            let mut c = crate::model::classifier::Classifier::clone(c);
            c.weight = Matrix { rows: 1, dim: c.weight.dim, values: vec![0.0; c.weight.dim] };
            (c.bias, c.velocity) = (vec![0.0], vec![0.0; c.weight.dim + 1]);
            s.memory = Memory::Classifier(Arc::new(c));
        });
        refused("supervised", "memory", |s| {
            let Memory::Classifier(c) = &s.memory else { unreachable!() };
            let mut c = crate::model::classifier::Classifier::clone(c);
            c.velocity.pop();
            s.memory = Memory::Classifier(Arc::new(c));
        });
        refused("moco", "memory", |s| {
            let Memory::Keys { queue, .. } = &mut s.memory else { unreachable!() };
            Arc::make_mut(queue).next = 1 << 40;
        });
    }
}
