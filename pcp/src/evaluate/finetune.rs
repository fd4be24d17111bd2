//! Fine-tuning: the whole network, end to end, on a share of the labels.

use super::ProbeSplit;
use crate::data::loader::{Draw, Loader, Part, View};
use crate::model::classifier::{Classifier, Sgd};
use crate::model::{DropoutKey, Extractor, FeatureKind, Network, Optimizer, Weights};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::neighbours::accuracy;
use pcp_core::rng::{Key, Purpose};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How it is trained: SGD with momentum 0.9 and a cosine to zero, the classifier ten times as fast as the network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinetuneSettings {
    /// Share of the labels that may be used, of every class alike, one image at the least.
    pub share: f64,
    /// Epochs.
    pub epochs: u32,
    /// Images per step.
    pub batch: usize,
    /// Learning rate of the network at the beginning.
    pub lr: f64,
    /// Weight decay.
    pub decay: f64,
    /// Everything random follows from it.
    pub seed: u64,
    /// Epochs between tests; 0 for one at the end. The last epoch is always tested.
    #[serde(default)]
    pub test_every: u32,
}

/// Accuracy and loss of fine-tuning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinetuneResult {
    /// Images whose labels were used.
    pub labelled: usize,
    /// Accuracy on the test images after the last epoch, in percent.
    pub last: f64,
    /// The best accuracy.
    pub best: f64,
    /// The epoch of the best accuracy, from 1.
    pub best_epoch: usize,
    /// Accuracy after every epoch that was tested.
    pub accuracy: Vec<f64>,
    /// Mean loss of every epoch.
    pub loss: Vec<f64>,
}

impl FinetuneSettings {
    /// Whether the network is tested after `epoch`.
    fn tests(&self, epoch: u32) -> bool {
        epoch + 1 == self.epochs || self.test_every > 0 && (epoch + 1).is_multiple_of(self.test_every)
    }

    /// How often it is tested.
    pub fn tested(&self) -> usize {
        (0..self.epochs).filter(|epoch| self.tests(*epoch)).count()
    }
}

/// The first images of every class in an order drawn from the seed: `share` of each class, one at the least. A larger share
/// holds all of a smaller one.
pub fn labelled(split: &ProbeSplit, ids: &[u64], share: f64, seed: u64) -> Vec<usize> {
    let key = Key { purpose: Purpose::Probe, seed, round: 1, epoch: 0 };
    let own: Vec<u64> = split.learn.iter().map(|row| ids[*row]).collect();
    let order: Vec<usize> = key.shuffled(&own).into_iter().map(|place| split.learn[place]).collect();
    let mut left: Vec<usize> = (0..split.classes as u32)
        .map(|class| split.learn.iter().filter(|row| split.labels[**row] == class).count())
        .map(|count| ((count as f64 * share).round() as usize).max(1))
        .collect();
    let mut rows: Vec<usize> = order
        .into_iter()
        .filter(|row| {
            let left = &mut left[split.labels[*row] as usize];
            let taken = *left > 0;
            *left -= usize::from(taken);
            taken
        })
        .collect();
    rows.sort_unstable();
    rows
}

/// A network with the images to fine-tune it on.
pub struct FinetuneProbe<'a> {
    /// The network.
    pub network: &'a Arc<Network>,
    /// Views of the images.
    pub loader: &'a Loader,
    /// The images to learn from and to test on.
    pub split: &'a ProbeSplit,
    /// The flag that cancels the work.
    pub cancel: &'a Cancel,
}

impl FinetuneProbe<'_> {
    /// Trains from `weights`; `on_images` is told how many images were looked at, `on_epoch(epoch, loss, accuracy)` of every epoch, the accuracy
    /// where it was tested.
    pub fn run(
        &self,
        mut weights: Weights,
        settings: &FinetuneSettings,
        on_images: &dyn Fn(usize),
        on_epoch: &dyn Fn(u32, f64, Option<f64>),
    ) -> Result<FinetuneResult> {
        let split = self.split;
        let ids = self.loader.images(Part::Train).ids();
        let rows = labelled(split, ids, settings.share, settings.seed);
        let own: Vec<u64> = rows.iter().map(|row| ids[*row]).collect();
        let mut classifier = Arc::new(Classifier::new(split.classes, self.network.pooled, settings.seed, (0, 0)));
        let mut optimizer = Optimizer::new(&weights);
        let mut tuned = FinetuneResult {
            labelled: rows.len(),
            last: 0.0,
            best: -1.0,
            best_epoch: 0,
            accuracy: Vec::new(),
            loss: Vec::new(),
        };
        for epoch in 0..settings.epochs {
            let key = Key { purpose: Purpose::Probe, seed: settings.seed, round: 2, epoch };
            let order: Vec<usize> = key.shuffled(&own).into_iter().map(|place| rows[place]).collect();
            let batches = Draw::first(&order).chunks(settings.batch).map(<[Draw]>::to_vec).collect();
            let cosine = 0.5 * (1.0 + (std::f64::consts::PI * f64::from(epoch) / f64::from(settings.epochs)).cos());
            let (lr, decay) = ((settings.lr * cosine) as f32, settings.decay as f32);
            let mut sum = 0.0;
            for made in self.loader.stream(Part::Train, batches, vec![View::Random(key, 0)]) {
                let (draws, batch) = made?;
                let labels: Vec<u32> = draws.iter().map(|draw| split.labels[draw.row]).collect();
                let dropout = DropoutKey { key, ids: draws.iter().map(|draw| ids[draw.row]).collect() };
                let (net, now, head) = (self.network.clone(), weights.clone(), classifier.clone());
                let step = self.cancel.run(move || {
                    net.step(&now, batch, 1, dropout, FeatureKind::Pooled, |x| {
                        let found = head.cross_entropy(x, &labels);
                        let mut head = (*head).clone();
                        head.step(&found.by_weights, Sgd { lr: 10.0 * lr, momentum: 0.9, decay });
                        ((found.each.iter().sum::<f64>(), head), found.by_features)
                    })
                })?;
                let (loss, head) = step.loss;
                if !loss.is_finite() {
                    return Err(Error::training("the loss is not finite", "try a lower `lr`"));
                }
                sum += loss;
                classifier = Arc::new(head);
                weights.update_running_stats(&step.moments);
                optimizer.step(
                    &mut weights,
                    step.gradients,
                    kernels::Sgd { lr, momentum: 0.9, decay, nesterov: false },
                );
                on_images(draws.len());
            }
            let loss = sum / tuned.labelled.max(1) as f64;
            tuned.loss.push(loss);
            if !settings.tests(epoch) {
                on_epoch(epoch, loss, None);
                continue;
            }
            let (part, rows) = (split.test.0, &split.test.1);
            let extractor = Extractor { network: self.network, weights: &weights, cancel: self.cancel, on_images };
            let features = extractor.all(self.loader, part, View::Clean, FeatureKind::Pooled)?;
            let predicted = classifier.predict(&features);
            let chosen: Vec<u32> = rows.iter().map(|row| predicted[*row]).collect();
            let now = accuracy(&chosen, &split.truth);
            tuned.accuracy.push(now);
            tuned.last = now;
            if now > tuned.best {
                (tuned.best, tuned.best_epoch) = (now, epoch as usize + 1);
            }
            on_epoch(epoch, loss, Some(now));
        }
        Ok(tuned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split() -> ProbeSplit {
        // Classes of 50, 20 and 2 images.
        let labels: Vec<u32> = (0..72)
            .map(|i| {
                if i < 50 {
                    0
                } else if i < 70 {
                    1
                } else {
                    2
                }
            })
            .collect();
        ProbeSplit { learn: (0..72).collect(), test: (Part::Train, vec![]), truth: vec![], classes: 3, labels }
    }

    #[test]
    fn tests_are_at_the_end_or_as_asked() {
        let settings =
            FinetuneSettings { share: 1.0, epochs: 7, batch: 1, lr: 1.0, decay: 0.0, seed: 0, test_every: 0 };
        let tested = |test_every: u32| {
            let settings = FinetuneSettings { test_every, ..settings };
            let epochs: Vec<u32> = (0..7).filter(|epoch| settings.tests(*epoch)).collect();
            assert_eq!(settings.tested(), epochs.len());
            epochs
        };
        assert_eq!((tested(0), tested(3), tested(9)), (vec![6], vec![2, 5, 6], vec![6]));
        assert_eq!(tested(1).len(), 7);
    }

    #[test]
    fn labels_are_drawn_from_every_class_alike() {
        let ids: Vec<u64> = (0..72).collect();
        let rows = labelled(&split(), &ids, 0.1, 3);
        let count = |class: u32| rows.iter().filter(|row| split().labels[**row] == class).count();
        assert_eq!([count(0), count(1), count(2)], [5, 2, 1]);
        assert_ne!(rows, labelled(&split(), &ids, 0.1, 4));
        assert_eq!(labelled(&split(), &ids, 1.0, 3).len(), 72);
        let more = labelled(&split(), &ids, 0.5, 3);
        assert!(rows.iter().all(|row| more.contains(row)), "a larger share holds the smaller one");
    }
}
