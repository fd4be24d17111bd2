//! Measures of features. Labels are used here, and by the supervised baseline, and nowhere else.

pub mod clusters;
pub mod finetune;
pub mod heatmap;
pub mod linear;

use crate::config::{FeatureKind, Resolved};
use crate::data::loader::{Draw, Loader, Part, View};
use crate::data::{Dataset, Labels};
use crate::model::{Extractor, Network, Weights, whitening};
use crate::observe::Observer;
use crate::patches::PatchModel;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::matrix::Matrix;
use pcp_core::neighbours::{DividedBank, accuracy, nearest, vote};
use std::sync::Arc;

/// Measures weighted kNN accuracy: of the test images, or, without them, of each training image among the others.
#[derive(Clone)]
pub struct Probe {
    dataset: Arc<Dataset>,
    loader: Loader,
    k: usize,
    tau: f32,
    kind: FeatureKind,
    /// Whether there are labelled test images.
    tests: bool,
}

/// The images that a probe learns from and those that it is tested on: the data set's own splits or, without test images, every
/// fifth training image for testing.
#[derive(Clone, Debug)]
pub struct ProbeSplit {
    /// Training rows to learn from.
    pub learn: Vec<usize>,
    /// Rows to test on, and the split they are rows of.
    pub test: (Part, Vec<usize>),
    /// Class of every training row.
    pub labels: Vec<u32>,
    /// Class of every row to test on.
    pub truth: Vec<u32>,
    /// Number of classes.
    pub classes: usize,
}

impl ProbeSplit {
    /// The split of a data set; an error where it has no labels.
    pub fn new(dataset: &Dataset) -> Result<ProbeSplit> {
        let Some(Labels { classes, of }) = &dataset.train.labels else {
            return Err(Error::data(
                format!("{} has no labels to measure against", dataset.name),
                "put the images into one folder per class",
            ));
        };
        let (classes, labels, all) = (classes.len(), of.clone(), 0..of.len());
        if let Some(truth) = dataset.test.as_ref().and_then(|test| test.labels.as_ref()) {
            let test = (Part::Test, (0..truth.of.len()).collect());
            return Ok(ProbeSplit { learn: all.collect(), test, labels, truth: truth.of.clone(), classes });
        }
        let (test, learn): (Vec<usize>, Vec<usize>) = all.partition(|row| row % 5 == 4);
        if test.is_empty() {
            return Err(Error::data(
                format!("{} has {} labelled images, too few to learn and to test", dataset.name, learn.len()),
                "five are needed at least",
            ));
        }
        let truth = test.iter().map(|row| labels[*row]).collect();
        Ok(ProbeSplit { learn, test: (Part::Train, test), labels, truth, classes })
    }

    /// The split in words.
    pub fn protocol(&self) -> String {
        let (learn, test) = (self.learn.len(), self.truth.len());
        match self.test.0 {
            Part::Test => format!("{learn} training images, {test} test images"),
            Part::Train => {
                format!(
                    "{learn} training images; there are no test images, so every fifth training image ({test}) is one"
                )
            }
        }
    }
}

/// Images larger than this are compared pixel by pixel at `SMALL_SIDE`: N large images at once would not fit in memory.
const LARGEST_SIDE: usize = 64;
const SMALL_SIDE: usize = 32;
/// The most bytes that pixels to be compared may take at a larger side than `SMALL_SIDE`, and at any: beyond it, the side
/// is halved. Fixed, so that a result does not depend on the machine.
const LARGE_BYTES: usize = 256 << 20;
const MOST_BYTES: usize = 1 << 30;

/// The side at which `images` of `side` pixels are compared pixel by pixel.
pub fn pixel_side(side: usize, images: usize) -> usize {
    let bytes = |side: usize| side.saturating_mul(side).saturating_mul(images).saturating_mul(12);
    let large = side > LARGEST_SIDE || side > SMALL_SIDE && bytes(side) > LARGE_BYTES;
    let mut side = if large { SMALL_SIDE } else { side };
    while side >= 8 && bytes(side) > MOST_BYTES {
        side /= 2;
    }
    side
}

impl Probe {
    /// A probe with the settings of `config`; `None` when there are no labels.
    pub fn new(dataset: Arc<Dataset>, loader: Loader, config: &Resolved) -> Option<Probe> {
        dataset.train.labels.as_ref()?;
        let e = &config.evaluate;
        let tests = dataset.test.as_ref().is_some_and(|test| test.labels.is_some());
        Some(Probe { dataset, loader, k: e.k, tau: e.tau as f32, kind: e.features, tests })
    }

    /// The same with other features.
    pub fn with_features(&self, kind: FeatureKind) -> Self {
        Probe { kind, ..self.clone() }
    }

    /// Whether it measures embeddings, and no other features.
    pub fn of_embeddings(&self) -> bool {
        self.kind == FeatureKind::Embedding
    }

    /// Neighbours that an image has at the most.
    pub fn available(&self) -> usize {
        self.dataset.train.images.len() - usize::from(!self.tests)
    }

    /// How it measures, in words.
    pub fn protocol(&self) -> String {
        let (k, tau) = (self.k.min(self.available()), self.tau);
        let kind = match self.kind {
            FeatureKind::Embedding => "embeddings",
            FeatureKind::Pooled => "pooled features",
            FeatureKind::Whitened => "whitened pooled features",
            FeatureKind::RawEmbedding | FeatureKind::Prediction | FeatureKind::Map(_) => "features of a layer",
        };
        let small = match self.pixel_side() {
            side if side < self.loader.side() => format!("; raw pixels at {side} px"),
            _ => String::new(),
        };
        match self.tests {
            true => {
                let n = self.loader.images(Part::Test).len();
                format!("weighted kNN of {n} test images, k = {k}, tau = {tau}, {kind}{small}")
            }
            false => format!("leave-one-out weighted kNN of the training images, k = {k}, tau = {tau}, {kind}{small}"),
        }
    }

    /// The side at which images are compared pixel by pixel.
    pub fn pixel_side(&self) -> usize {
        pixel_side(self.loader.side(), self.images())
    }

    /// Bytes that one measurement of pixels holds.
    pub fn pixel_bytes(&self) -> usize {
        12 * self.images() * self.pixel_side().pow(2)
    }

    /// Images whose class one measurement predicts.
    pub fn queries(&self) -> usize {
        self.loader.images(if self.tests { Part::Test } else { Part::Train }).len()
    }

    /// Images that one measurement looks at.
    pub fn images(&self) -> usize {
        self.dataset.train.images.len() + if self.tests { self.loader.images(Part::Test).len() } else { 0 }
    }

    /// Accuracy of the network in percent.
    pub fn network(
        &self,
        network: &Arc<Network>,
        weights: &Weights,
        stop: &Cancel,
        done: &dyn Fn(usize),
    ) -> Result<f64> {
        let extractor = Extractor { network, weights, cancel: stop, on_images: done };
        // Weights without a readout get one from the training images.
        let learns = self.kind == FeatureKind::Whitened && !weights.has_whitened();
        let kind = if learns { FeatureKind::Pooled } else { self.kind };
        let features = |part| match learns {
            true => extractor.all(&self.loader, part, View::Clean, kind),
            false => extractor.own(&self.loader, part, View::Clean, kind),
        };
        let mut train = features(Part::Train)?;
        let mut test = self.tests.then(|| features(Part::Test)).transpose()?;
        let probe = self.clone();
        stop.run(move || {
            if learns {
                let readout = whitening(&train)?;
                train = probe.own(Part::Train, readout.apply(&train));
                test = test.map(|test| probe.own(Part::Test, readout.apply(&test)));
            } else if probe.kind != FeatureKind::Embedding {
                train = train.normalised();
                test = test.map(Matrix::normalised);
            }
            Ok(probe.accuracy(&train, test.as_ref()))
        })?
    }

    /// Accuracy of the features that patches give, in percent.
    pub fn patches(&self, model: &PatchModel, observer: &Arc<dyn Observer>) -> Result<f64> {
        let train = Arc::new(model.embed(self.loader.images(Part::Train), observer)?);
        let test = self.tests.then(|| model.embed(self.loader.images(Part::Test), observer)).transpose()?;
        self.features(train, test, observer.cancel())
    }

    /// Accuracy of unit features of the training images and of the test images, in percent.
    pub fn features(&self, train: Arc<Matrix>, test: Option<Matrix>, stop: &Cancel) -> Result<f64> {
        let (probe, test) = (self.clone(), test.filter(|_| self.tests));
        if self.loader.team().several() {
            let (train, test) =
                (probe.own(Part::Train, (*train).clone()), test.map(|test| probe.own(Part::Test, test)));
            return stop.run(move || probe.accuracy(&train, test.as_ref()));
        }
        stop.run(move || probe.accuracy(&train, test.as_ref()))
    }

    /// Accuracy of the clean, normalised pixels in percent.
    pub fn pixels(&self, stop: &Cancel) -> Result<f64> {
        let probe = self.clone();
        stop.run(move || probe.pixel_accuracy())?
    }

    fn pixel_accuracy(&self) -> Result<f64> {
        let loader = self.loader.with_side(self.pixel_side());
        let features = |part: Part| -> Result<Matrix> {
            let rows: Vec<usize> = (0..loader.images(part).len()).collect();
            let batch = loader.batch(part, &Draw::first(&loader.own_rows(part, &rows)), &[View::Clean])?;
            let dim = 3 * loader.side() * loader.side();
            Ok(Matrix { rows: batch.rows, dim, values: batch.pixels }.normalised())
        };
        let test = self.tests.then(|| features(Part::Test)).transpose()?;
        Ok(self.accuracy(&features(Part::Train)?, test.as_ref()))
    }

    /// Of the rows of all images of `part`, those of this process.
    fn own(&self, part: Part, all: Matrix) -> Matrix {
        let rows: Vec<usize> = (0..all.rows).collect();
        if self.loader.team().several() { all.select_rows(&self.loader.own_rows(part, &rows)) } else { all }
    }

    /// By the rows of this process.
    fn accuracy(&self, train: &Matrix, test: Option<&Matrix>) -> f64 {
        let Some(labels) = &self.dataset.train.labels else { return 0.0 };
        let Labels { classes, of } = labels;
        let truth = match self.dataset.test.as_ref().and_then(|test| test.labels.as_ref()) {
            Some(labels) => &labels.of,
            None => of,
        };
        let (team, classes) = (self.loader.team(), classes.len());
        let predicted = if team.several() {
            let (counts, asked) = (self.loader.shares(Part::Train), self.loader.shares(Part::Test));
            let bank = DividedBank { peers: &**team, held: train, counts: &counts };
            bank.votes(test.map(|test| (test, asked.as_slice())), of, classes, self.k, self.tau)
        } else {
            let neighbours = nearest(test.unwrap_or(train), train, self.k, test.is_none(), &|_| ());
            vote(&neighbours, of, classes, self.k, self.tau)
        };
        accuracy(&predicted, truth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_compared_at_a_side_that_fits() {
        assert_eq!(pixel_side(32, 60_000), 32, "CIFAR as it is");
        assert_eq!((pixel_side(64, 1_000), pixel_side(64, 20_000)), (64, 32));
        assert_eq!((pixel_side(224, 10), pixel_side(224, 130_000), pixel_side(224, 1_200_000)), (32, 16, 8));
        assert_eq!((pixel_side(16, 100), pixel_side(8, usize::MAX)), (16, 4));
    }
}
