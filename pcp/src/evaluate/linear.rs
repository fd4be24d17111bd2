//! The linear probe: how far does one linear layer come on frozen features?
//!
//! The network stays in eval mode. Maps are average-pooled to about 9,000 numbers, training views are random as in training,
//! and a classifier learns for 90 epochs: SGD with momentum 0.9, weight decay 1e-4, batch 256,
//! `lr = 0.1 / sqrt(1 + 0.1 * 1e-4 * iteration)`. The fast mode takes the features of the clean views once and learns on those.

use super::Exam;
use crate::data::loader::{Draw, Loader, Part, View};
use crate::model::classifier::{Classifier, Sgd};
use crate::model::{Batch, Maps, Network, Tap, Weights};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result, listed};
use pcp_core::matrix::Matrix;
use pcp_core::neighbours::accuracy;
use pcp_core::rng::{Key, Purpose};
use serde::Serialize;
use std::sync::Arc;

/// Where features are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The map at this place of [`Network::stages`].
    Stage(usize),
    /// What the layer before the embedding gives.
    Pooled,
    /// The unit vectors.
    Embedding,
}

impl Layer {
    /// Every layer of `network` with its name.
    pub fn all(network: &Network) -> Vec<(String, Layer)> {
        let stages = network.stages().into_iter().enumerate().map(|(i, name)| (name, Layer::Stage(i)));
        stages.chain([("pooled".into(), Layer::Pooled), ("embedding".into(), Layer::Embedding)]).collect()
    }

    /// The layers that `names` name; `all` names every one.
    pub fn named(network: &Network, names: &[String]) -> Result<Vec<(String, Layer)>> {
        let all = Layer::all(network);
        if names.iter().any(|name| name == "all") {
            return Ok(all);
        }
        let find = |name: &String| {
            all.iter().find(|(n, _)| n == name).cloned().ok_or_else(|| {
                let known = listed(all.iter().map(|(n, _)| n));
                Error::usage(format!("this network has no layer {name}"), format!("its layers are {known}, or all"))
            })
        };
        names.iter().map(find).collect()
    }
}

/// How the classifier learns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Settings {
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

impl Default for Settings {
    fn default() -> Self {
        Settings { epochs: 90, batch: 256, lr: 0.1, decay: 1e-4, fast: false, seed: 0 }
    }
}

/// What a layer's classifier reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// The layer.
    pub layer: String,
    /// Length of its features.
    pub features: usize,
    /// Accuracy on the test images after the last epoch, in percent.
    pub last: f64,
    /// The best one.
    pub best: f64,
    /// Its epoch, from 1.
    pub best_epoch: usize,
    /// After every epoch.
    pub accuracy: Vec<f64>,
    /// Mean loss of every epoch.
    pub loss: Vec<f64>,
}

/// A network with the images to probe it on.
pub struct Probing<'a> {
    /// The network.
    pub network: &'a Arc<Network>,
    /// Its numbers.
    pub weights: &'a Weights,
    /// Views of the images.
    pub loader: &'a Loader,
    /// What is learned and tested.
    pub exam: &'a Exam,
    /// The user's stop.
    pub stop: &'a Cancel,
}

/// Images whose features are taken at once.
const BATCH: usize = 256;

impl Probing<'_> {
    /// Features of `rows` at all `layers`, one matrix a layer.
    fn features(
        &self,
        part: Part,
        rows: &[usize],
        view: View,
        layers: &[Layer],
        done: &dyn Fn(usize),
    ) -> Result<Vec<Matrix>> {
        let mut all: Vec<Matrix> = vec![Matrix::default(); layers.len()];
        let batches = Draw::first(rows).chunks(BATCH).map(<[Draw]>::to_vec).collect();
        for made in self.loader.stream(part, batches, vec![view]) {
            let (draws, batch) = made?;
            let found = self.of_batch(batch, layers)?;
            for (all, part) in all.iter_mut().zip(found) {
                all.values.reserve_exact(if all.rows == 0 { rows.len() * part.dim } else { 0 });
                all.values.extend(part.values);
                (all.rows, all.dim) = (all.rows + part.rows, part.dim);
            }
            done(draws.len());
        }
        Ok(all)
    }

    fn of_batch(&self, batch: Batch, layers: &[Layer]) -> Result<Vec<Matrix>> {
        let (network, weights, layers) = (self.network.clone(), self.weights.clone(), layers.to_vec());
        self.stop.run(move || layer_features(&network, &weights, &batch, &layers))
    }

    /// Trains a classifier on every layer; `done(layer, epoch, accuracy)` is told of every epoch, `seen` of every image.
    pub fn run(
        &self,
        layers: &[(String, Layer)],
        settings: &Settings,
        seen: &dyn Fn(usize),
        done: &dyn Fn(&str, u32, f64),
    ) -> Result<Vec<Curve>> {
        // Cached features of one layer at a time, or random views for all layers at once.
        let groups: Vec<&[(String, Layer)]> = if settings.fast { layers.chunks(1).collect() } else { vec![layers] };
        let mut curves = Vec::new();
        for group in groups {
            curves.extend(self.run_group(group, settings, seen, done)?);
        }
        Ok(curves)
    }

    fn run_group(
        &self,
        group: &[(String, Layer)],
        settings: &Settings,
        seen: &dyn Fn(usize),
        done: &dyn Fn(&str, u32, f64),
    ) -> Result<Vec<Curve>> {
        let layers: Vec<Layer> = group.iter().map(|(_, layer)| *layer).collect();
        let exam = self.exam;
        let test = self.features(exam.test.0, &exam.test.1, View::Clean, &layers, seen)?;
        let cached = match settings.fast {
            true => Some(self.features(Part::Train, &exam.learn, View::Clean, &layers, seen)?),
            false => None,
        };
        let new = |test: &Matrix| Classifier::new(exam.classes, test.dim, settings.seed, (0, 0));
        let mut students: Vec<Student> = test.iter().map(|test| Student::new(new(test))).collect();
        let mut curves: Vec<Curve> = (group.iter().zip(&test))
            .map(|((name, _), test)| Curve {
                layer: name.clone(),
                features: test.dim,
                last: 0.0,
                best: -1.0,
                best_epoch: 0,
                accuracy: Vec::new(),
                loss: Vec::new(),
            })
            .collect();
        let ids: Vec<u64> = exam.learn.iter().map(|row| self.loader.images(Part::Train).ids()[*row]).collect();
        for epoch in 0..settings.epochs {
            let key = Key { purpose: Purpose::Probe, seed: settings.seed, round: 0, epoch };
            let order = key.shuffled(&ids);
            students.iter_mut().for_each(Student::begin_epoch);
            if let Some(cached) = &cached {
                for places in order.chunks(settings.batch) {
                    self.stop.check()?;
                    let labels: Vec<u32> = places.iter().map(|place| exam.labels[exam.learn[*place]]).collect();
                    for (student, all) in students.iter_mut().zip(cached) {
                        student.learn(&gathered(all, places), &labels, settings);
                    }
                }
            } else {
                let rows: Vec<usize> = order.iter().map(|place| exam.learn[*place]).collect();
                let batches = Draw::first(&rows).chunks(settings.batch).map(<[Draw]>::to_vec).collect();
                for made in self.loader.stream(Part::Train, batches, vec![View::Random(key, 0)]) {
                    let (draws, batch) = made?;
                    let labels: Vec<u32> = draws.iter().map(|draw| exam.labels[draw.row]).collect();
                    for (student, x) in students.iter_mut().zip(self.of_batch(batch, &layers)?) {
                        student.learn(&x, &labels, settings);
                    }
                    seen(draws.len());
                }
            }
            for ((student, test), curve) in students.iter().zip(&test).zip(&mut curves) {
                let now = accuracy(&student.classifier.predict(test), &exam.truth);
                curve.accuracy.push(now);
                curve.loss.push(student.loss.0 / student.loss.1.max(1) as f64);
                curve.last = now;
                if now > curve.best {
                    (curve.best, curve.best_epoch) = (now, curve.accuracy.len());
                }
                done(&curve.layer, epoch, now);
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

    fn learn(&mut self, x: &Matrix, labels: &[u32], settings: &Settings) {
        let found = self.classifier.cross_entropy(x, labels);
        let lr = settings.lr / (1.0 + 0.1 * 1e-4 * self.iteration as f64).sqrt();
        self.classifier.step(&found.by_weights, Sgd { lr: lr as f32, momentum: 0.9, decay: settings.decay as f32 });
        self.iteration += 1;
        self.loss = (self.loss.0 + found.each.iter().sum::<f64>(), self.loss.1 + labels.len());
    }
}

fn gathered(all: &Matrix, places: &[usize]) -> Matrix {
    let values = places.iter().flat_map(|place| all.row(*place)).copied().collect();
    Matrix { rows: places.len(), dim: all.dim, values }
}

/// Features of a batch at all `layers`: one pass for the maps, one for each of the others.
pub fn layer_features(network: &Network, weights: &Weights, batch: &Batch, layers: &[Layer]) -> Vec<Matrix> {
    let stage = |layer: &Layer| if let Layer::Stage(stage) = layer { Some(*stage) } else { None };
    let stages: Vec<usize> = layers.iter().filter_map(stage).collect();
    let mut maps = if stages.is_empty() { Vec::new() } else { network.maps(weights, batch, &stages) }.into_iter();
    let of = |layer: &Layer| match layer {
        Layer::Stage(_) => maps.next().map(|maps| average_pooled(&maps)).unwrap_or_default(),
        Layer::Pooled => network.embed(weights, batch, Tap::Pooled),
        Layer::Embedding => network.embed(weights, batch, Tap::Unit),
    };
    layers.iter().map(of).collect()
}

/// More features than this are pooled further.
const MOST: usize = 10_000;

/// Size (and stride) and padding of the average pool that leaves about 9,000 numbers of a map, as the paper has it: AlexNet 224
/// conv1 6 with padding 3, conv2 4, conv3 and conv4 3 with padding 1, conv5 2; AlexNet 32 conv5 2; ResNet18 layer4 2 with
/// padding 1. Elsewhere the least size whose result is small enough, but 2 at the least.
fn pool_of(side: usize, channels: usize) -> (usize, usize) {
    match (side, channels) {
        (55, 96) => (6, 3),
        (27, 256) => (4, 0),
        (13, 384) => (3, 1),
        (13, 256) => (2, 0),
        (4, _) => (2, 1),
        _ => {
            let fits = |size: &usize| (side / size).pow(2) * channels <= MOST;
            ((2..=side).find(fits).unwrap_or(side.max(1)), 0)
        }
    }
}

/// Average pooling of maps into rows of features; the zeros of the padding count, as in PyTorch.
fn average_pooled(maps: &Maps) -> Matrix {
    let Maps { rows, height, width, channels, values } = maps;
    let (size, padding) = pool_of(*height, *channels);
    let size = size.min(height + 2 * padding).max(1);
    let outputs = |side: usize| (side + 2 * padding).saturating_sub(size) / size + 1;
    let (oh, ow) = (outputs(*height), outputs(*width));
    let mut out = vec![0.0f32; rows * oh * ow * channels];
    let scale = 1.0 / (size * size) as f32;
    for (row, out) in out.chunks_mut(oh * ow * channels).enumerate() {
        for (cell, out) in out.chunks_mut(*channels).enumerate() {
            let (top, left) = (cell / ow * size, cell % ow * size);
            for y in top.max(padding)..(top + size).min(height + padding) {
                for x in left.max(padding)..(left + size).min(width + padding) {
                    let at = ((row * height + y - padding) * width + x - padding) * channels;
                    out.iter_mut().zip(&values[at..at + channels]).for_each(|(o, v)| *o += v * scale);
                }
            }
        }
    }
    Matrix { rows: *rows, dim: oh * ow * channels, values: out }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's pools, by the features that they leave.
    #[test]
    fn pools_leave_the_features_that_the_paper_has() {
        let cases = [
            (55, 96, 9600),
            (27, 256, 9216),
            (13, 384, 9600),
            (13, 256, 9216),
            (4, 512, 4608),
            (8, 256, 4096),
            (32, 64, 6400),
            (1, 128, 128),
        ];
        for (side, channels, expected) in cases {
            let maps = Maps { rows: 1, height: side, width: side, channels, values: vec![1.0; side * side * channels] };
            assert_eq!(average_pooled(&maps).dim, expected, "{side} {channels}");
        }
    }

    #[test]
    fn pooling_is_a_mean_with_zeros_around() {
        // 4x4, one channel, padding 1, size 2: corners are a quarter of one pixel, the middle a mean of four.
        let maps = Maps { rows: 1, height: 4, width: 4, channels: 1, values: (0..16).map(|v| v as f32).collect() };
        let pooled = average_pooled(&maps).values;
        assert_eq!(pooled, [0.0, 0.75, 0.75, 3.0, 7.5, 4.5, 3.0, 6.75, 3.75]);
    }

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
        let settings = Settings::default();
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

    #[test]
    fn layers_have_the_networks_own_names() {
        let config = crate::config::Network { width: 4, ..crate::config::Config::default().network };
        let network = Network::new(&config, 32).unwrap();
        let named = |names: &[&str]| Layer::named(&network, &names.iter().map(|n| n.to_string()).collect::<Vec<_>>());
        assert_eq!(named(&["layer4", "pooled"]).unwrap().len(), 2);
        assert_eq!(named(&["all"]).unwrap().len(), 6);
        let e = named(&["conv5"]).unwrap_err();
        assert!(e.message.contains("conv5") && e.hint.contains("layer1"), "{e:?}");
    }

    #[test]
    fn features_of_a_layer_are_its_pooled_maps() {
        let config = crate::config::Network { width: 4, ..crate::config::Config::default().network };
        let network = Network::new(&config, 32).unwrap();
        let weights = network.init(3);
        let batch = Batch { rows: 3, pixels: (0..3 * 32 * 32 * 3).map(|i| (i as f32 * 0.37).sin()).collect() };
        let layers = [Layer::Pooled, Layer::Stage(3), Layer::Embedding, Layer::Stage(0)];
        let found = layer_features(&network, &weights, &batch, &layers);
        assert_eq!(found.iter().map(|f| f.dim).collect::<Vec<_>>(), [32, 9 * 32, 128, 16 * 16 * 4]);
        // The mean over the map of layer4 is what pooling gives.
        let map = &network.maps(&weights, &batch, &[3])[0];
        let mean: f32 = (0..16).map(|cell| map.values[cell * 32]).sum::<f32>() / 16.0;
        assert!((mean - found[0].row(0)[0]).abs() < 1e-5);
    }
}
