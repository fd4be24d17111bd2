//! The linear probe: accuracy of a linear classifier on frozen features.
//!
//! The network stays in eval mode. Maps are average-pooled to about 9,000 numbers, training views are random as in training,
//! and a classifier learns for 90 epochs: SGD with momentum 0.9, weight decay 1e-4, batch 256,
//! `lr_t = lr / sqrt(1 + lr * decay * t)` at iteration t, lr 0.1. The fast mode takes the features of the clean views once and learns on those.

use super::ProbeSplit;
use crate::data::loader::{Draw, Loader, Part, View};
use crate::model::classifier::{Classifier, Sgd};
use crate::model::{Extractor, FeatureKind, Network, Weights};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use pcp_core::matrix::Matrix;
use pcp_core::neighbours::accuracy;
use pcp_core::rng::{Key, Purpose};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

/// How the classifier learns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearSettings {
    /// Epochs.
    pub epochs: u32,
    /// Features per step.
    pub batch: usize,
    /// Learning rate at the beginning.
    pub lr: f64,
    /// Weight decay.
    pub decay: f64,
    /// Clean features taken once instead of random views.
    pub fast: bool,
    /// Everything random follows from it.
    pub seed: u64,
}

impl Default for LinearSettings {
    fn default() -> Self {
        LinearSettings { epochs: 90, batch: 256, lr: 0.1, decay: 1e-4, fast: false, seed: 0 }
    }
}

/// Accuracy and loss of a layer's classifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearResult {
    /// The layer.
    pub layer: String,
    /// Length of its features.
    pub features: usize,
    /// Accuracy on the test images after the last epoch, in percent.
    pub last: f64,
    /// The best accuracy.
    pub best: f64,
    /// The epoch of the best accuracy, from 1.
    pub best_epoch: usize,
    /// Accuracy after every epoch.
    pub accuracy: Vec<f64>,
    /// Mean loss of every epoch; NaN, which JSON has as null, where it diverged.
    #[serde(deserialize_with = "nan_for_null")]
    pub loss: Vec<f64>,
}

fn nan_for_null<'a, D: Deserializer<'a>>(from: D) -> std::result::Result<Vec<f64>, D::Error> {
    let values = Vec::<Option<f64>>::deserialize(from)?;
    Ok(values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
}

/// A network with the images to probe it on.
pub struct LinearProbe<'a> {
    /// The network.
    pub network: &'a Arc<Network>,
    /// Its weights.
    pub weights: &'a Weights,
    /// Views of the images.
    pub loader: &'a Loader,
    /// The images to learn from and to test on.
    pub split: &'a ProbeSplit,
    /// The flag that cancels the work.
    pub cancel: &'a Cancel,
}

impl LinearProbe<'_> {
    /// Trains a classifier on every layer; `on_images` is told how many images were looked at, `on_epoch(layer, epoch, accuracy)` of every epoch.
    pub fn run(
        &self,
        layers: &[(String, FeatureKind)],
        settings: &LinearSettings,
        on_images: &dyn Fn(usize),
        on_epoch: &dyn Fn(&str, u32, f64),
    ) -> Result<Vec<LinearResult>> {
        // Cached features of one layer at a time, or random views for all layers at once.
        let groups: Vec<&[(String, FeatureKind)]> =
            if settings.fast { layers.chunks(1).collect() } else { vec![layers] };
        let mut curves = Vec::new();
        for group in groups {
            curves.extend(self.run_group(group, settings, on_images, on_epoch)?);
        }
        Ok(curves)
    }

    fn run_group(
        &self,
        group: &[(String, FeatureKind)],
        settings: &LinearSettings,
        on_images: &dyn Fn(usize),
        on_epoch: &dyn Fn(&str, u32, f64),
    ) -> Result<Vec<LinearResult>> {
        let kinds: Vec<FeatureKind> = group.iter().map(|(_, kind)| *kind).collect();
        let split = self.split;
        let extractor = Extractor { network: self.network, weights: self.weights, cancel: self.cancel, on_images };
        let clean = |part: Part, rows: &[usize]| {
            extractor.stream(self.loader.rows(part, rows, View::Clean), rows.len(), &kinds)
        };
        let test = clean(split.test.0, &split.test.1)?;
        let cached = settings.fast.then(|| clean(Part::Train, &split.learn)).transpose()?;
        let new = |test: &Matrix| Classifier::new(split.classes, test.dim, settings.seed, (0, 0));
        let mut students: Vec<Student> = test.iter().map(|test| Student::new(new(test))).collect();
        let mut curves: Vec<LinearResult> = (group.iter().zip(&test))
            .map(|((name, _), test)| LinearResult {
                layer: name.clone(),
                features: test.dim,
                last: 0.0,
                best: -1.0,
                best_epoch: 0,
                accuracy: Vec::new(),
                loss: Vec::new(),
            })
            .collect();
        let ids: Vec<u64> = split.learn.iter().map(|row| self.loader.images(Part::Train).ids()[*row]).collect();
        for epoch in 0..settings.epochs {
            let key = Key { purpose: Purpose::Probe, seed: settings.seed, round: 0, epoch };
            let order = key.shuffled(&ids);
            students.iter_mut().for_each(Student::begin_epoch);
            if let Some(cached) = &cached {
                for places in order.chunks(settings.batch) {
                    self.cancel.check()?;
                    let labels: Vec<u32> = places.iter().map(|place| split.labels[split.learn[*place]]).collect();
                    for (student, all) in students.iter_mut().zip(cached) {
                        student.learn(&gathered(all, places), &labels, settings);
                    }
                }
            } else {
                let rows: Vec<usize> = order.iter().map(|place| split.learn[*place]).collect();
                let batches = Draw::first(&rows).chunks(settings.batch).map(<[Draw]>::to_vec).collect();
                for made in self.loader.stream(Part::Train, batches, vec![View::Random(key, 0)]) {
                    let (draws, batch) = made?;
                    let labels: Vec<u32> = draws.iter().map(|draw| split.labels[draw.row]).collect();
                    for (student, x) in students.iter_mut().zip(extractor.batch(batch, &kinds)?) {
                        student.learn(&x, &labels, settings);
                    }
                    on_images(draws.len());
                }
            }
            for ((student, test), curve) in students.iter().zip(&test).zip(&mut curves) {
                let now = accuracy(&student.classifier.predict(test), &split.truth);
                curve.accuracy.push(now);
                curve.loss.push(student.loss.0 / student.loss.1.max(1) as f64);
                curve.last = now;
                if now > curve.best {
                    (curve.best, curve.best_epoch) = (now, curve.accuracy.len());
                }
                on_epoch(&curve.layer, epoch, now);
            }
        }
        Ok(curves)
    }
}

/// A classifier that learns.
struct Student {
    classifier: Classifier,
    iteration: u64,
    /// Sum of this epoch's losses, and how many.
    loss: (f64, usize),
}

impl Student {
    fn new(classifier: Classifier) -> Self {
        Student { classifier, iteration: 0, loss: (0.0, 0) }
    }

    fn begin_epoch(&mut self) {
        self.loss = (0.0, 0);
    }

    fn learn(&mut self, x: &Matrix, labels: &[u32], settings: &LinearSettings) {
        let found = self.classifier.cross_entropy(x, labels);
        let lr = settings.lr / (1.0 + settings.lr * settings.decay * self.iteration as f64).sqrt();
        self.classifier.step(&found.by_weights, Sgd { lr: lr as f32, momentum: 0.9, decay: settings.decay as f32 });
        self.iteration += 1;
        self.loss = (self.loss.0 + found.each.iter().sum::<f64>(), self.loss.1 + labels.len());
    }
}

fn gathered(all: &Matrix, places: &[usize]) -> Matrix {
    let values = places.iter().flat_map(|place| all.row(*place)).copied().collect();
    Matrix { rows: places.len(), dim: all.dim, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three overlapping classes in eight dimensions, drawn by a generator that is as easily written in Python.
    fn example(seed: u64, n: usize) -> (Matrix, Vec<u32>) {
        let mut state = seed;
        let mut unit = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        for i in 0..n {
            let class = i % 3;
            for d in 0..8 {
                let noise: f64 = (0..12).map(|_| unit()).sum::<f64>() - 6.0;
                values.push((((class * 8 + d) as f64).sin() + noise) as f32);
            }
            labels.push(class as u32);
        }
        (Matrix::new(8, values), labels)
    }

    /// Recipe: `example(1, 600)` and `example(2, 600)` in Python, `LogisticRegression(C=1.0).fit(...).score(...)` of
    /// scikit-learn: 88.17 %.
    #[test]
    fn it_comes_as_far_as_scikit_learn() {
        let ((x, labels), (test, truth)) = (example(1, 600), example(2, 600));
        let mut student = Student::new(Classifier::new(3, 8, 0, (0, 0)));
        let settings = LinearSettings::default();
        for epoch in 0..90 {
            let key = Key { purpose: Purpose::Probe, seed: 0, round: 0, epoch };
            let order = key.shuffled(&(0..600).collect::<Vec<u64>>());
            for places in order.chunks(settings.batch) {
                let own: Vec<u32> = places.iter().map(|p| labels[*p]).collect();
                student.learn(&gathered(&x, places), &own, &settings);
            }
        }
        let reached = accuracy(&student.classifier.predict(&test), &truth);
        assert!((reached - SKLEARN).abs() <= 1.0, "{reached}");
    }

    const SKLEARN: f64 = 88.17;
}
