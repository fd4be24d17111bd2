//! How good are the features? Labels are used here and nowhere else.

pub mod knn;

use crate::backbone::{Network, Output, Weights};
use crate::config::{Config, FeatureKind};
use crate::data::{Dataset, Labels};
use crate::error::Result;
use crate::features::Features;
use crate::loader::{Loader, Part, View};
use crate::work::Stop;
use knn::{accuracy, nearest, vote};
use std::sync::Arc;

/// Measures weighted kNN accuracy: of the test images, or, without them, of each training image among the others.
#[derive(Clone)]
pub struct Probe {
    dataset: Arc<Dataset>,
    loader: Loader,
    k: usize,
    tau: f32,
    kind: FeatureKind,
}

impl Probe {
    /// A probe with the settings of `config`; `None` when there are no labels.
    pub fn new(dataset: Arc<Dataset>, loader: Loader, config: &Config) -> Option<Probe> {
        dataset.train.labels.as_ref()?;
        let e = &config.evaluate;
        let probe = Probe { dataset, loader, k: e.k, tau: e.tau as f32, kind: e.features };
        match &probe.dataset.test {
            Some(test) if test.labels.is_none() => None,
            _ => Some(probe),
        }
    }

    /// Neighbours that can be had at the most.
    pub fn available(&self) -> usize {
        self.dataset.train.images.len() - usize::from(self.dataset.test.is_none())
    }

    /// How it measures, in words.
    pub fn protocol(&self) -> String {
        let (k, tau) = (self.k.min(self.available()), self.tau);
        let kind = match self.kind {
            FeatureKind::Embedding => "embeddings",
            FeatureKind::Pooled => "pooled features",
        };
        match &self.dataset.test {
            Some(test) => format!("weighted kNN of {} test images, k = {k}, tau = {tau}, {kind}", test.images.len()),
            None => format!("leave-one-out weighted kNN of the training images, k = {k}, tau = {tau}, {kind}"),
        }
    }

    /// Images that one measurement looks at.
    pub fn images(&self) -> usize {
        self.dataset.train.images.len() + self.dataset.test.as_ref().map_or(0, |t| t.images.len())
    }

    /// Accuracy of the network in percent.
    pub fn network(&self, network: &Arc<Network>, weights: &Weights, stop: &Stop, done: &dyn Fn(usize)) -> Result<f64> {
        let features = |part| -> Result<Features> {
            Ok(self.chosen(self.loader.embed(network, weights, part, View::Clean, stop, done)?))
        };
        let train = features(Part::Train)?;
        let test = self.dataset.test.as_ref().map(|_| features(Part::Test)).transpose()?;
        let probe = self.clone();
        stop.run(move || probe.accuracy(&train, test.as_ref()))
    }

    fn chosen(&self, out: Output) -> Features {
        match self.kind {
            FeatureKind::Embedding => out.embedding,
            FeatureKind::Pooled => out.pooled.normalised(),
        }
    }

    /// Accuracy of the clean, normalised pixels in percent.
    pub fn pixels(&self, stop: &Stop) -> Result<f64> {
        let probe = self.clone();
        stop.run(move || probe.pixel_accuracy())
    }

    fn pixel_accuracy(&self) -> f64 {
        let features = |part: Part| {
            let rows: Vec<usize> = (0..self.loader.images(part).len()).collect();
            let batch = self.loader.batch(part, &rows, &[View::Clean]);
            Features::new((batch.pixels.len() / batch.rows.max(1)).max(1), batch.pixels).normalised()
        };
        let test = self.dataset.test.as_ref().map(|_| features(Part::Test));
        self.accuracy(&features(Part::Train), test.as_ref())
    }

    fn accuracy(&self, train: &Features, test: Option<&Features>) -> f64 {
        let Some(labels) = &self.dataset.train.labels else { return 0.0 };
        let Labels { classes, of } = labels;
        let truth = match &self.dataset.test {
            Some(test) => test.labels.as_ref().map_or(&[][..], |l| &l.of),
            None => of,
        };
        let neighbours = nearest(test.unwrap_or(train), train, self.k, test.is_none(), &|_| ());
        accuracy(&vote(&neighbours, of, classes.len(), self.k, self.tau), truth)
    }
}
