//! Batches of views, made in parallel ahead of whoever takes them.

use crate::augment::Augmenter;
use crate::backbone::{Batch, Network, Weights};
use crate::config::FeatureKind;
use crate::data::{Dataset, Images};
use crate::error::{Error, Result};
use crate::features::Features;
use crate::rng::Key;
use crate::work::Stop;
use rayon::prelude::*;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Which images of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those to learn from.
    Train,
    /// Those to test on.
    Test,
}

/// How an image is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The plain view: resized and cut from the centre.
    Clean,
    /// A random view, drawn from the key, the image's id and this number.
    Random(Key, u32),
}

/// Makes views of the images of a data set.
#[derive(Clone)]
pub struct Loader {
    dataset: Arc<Dataset>,
    augmenter: Arc<Augmenter>,
}

/// How many batches are ready ahead of the taker.
const AHEAD: usize = 2;
/// Images per batch in inference; fixed, so that results do not depend on anything else.
const EMBED_BATCH: usize = 128;

impl Loader {
    /// Views of `dataset` by `augmenter`.
    pub fn new(dataset: Arc<Dataset>, augmenter: Augmenter) -> Self {
        Loader { dataset, augmenter: Arc::new(augmenter) }
    }

    /// The images of `part`.
    pub fn images(&self, part: Part) -> &Images {
        match (&self.dataset.test, part) {
            (Some(test), Part::Test) => &test.images,
            _ => &self.dataset.train.images,
        }
    }

    /// Side of a view.
    pub fn side(&self) -> usize {
        self.augmenter.size
    }

    /// The same with views of another side.
    pub fn with_side(&self, size: usize) -> Self {
        let augmenter = Augmenter { size, ..(*self.augmenter).clone() };
        Loader { dataset: self.dataset.clone(), augmenter: Arc::new(augmenter) }
    }

    /// Values of one view.
    fn floats(&self) -> usize {
        self.augmenter.size * self.augmenter.size * 3
    }

    /// The `views` of `rows`: all of the first view, then all of the second.
    pub fn batch(&self, part: Part, rows: &[usize], views: &[View]) -> Batch {
        let images = self.images(part);
        let n = self.floats();
        let mut pixels = vec![0.0f32; n * rows.len() * views.len()];
        pixels.par_chunks_mut(n).enumerate().for_each(|(i, out)| {
            let sample = images.sample(rows[i % rows.len()]);
            match views[i / rows.len()] {
                View::Clean => self.augmenter.clean_view(sample.image, out),
                View::Random(key, view) => {
                    self.augmenter.train_view(sample.image, &mut key.stream(sample.id, view), out);
                }
            }
        });
        Batch { rows: rows.len() * views.len(), pixels }
    }

    /// The batches of `batches` (rows of each), in order, made ahead by a thread of their own.
    pub fn stream(&self, part: Part, batches: Vec<Vec<usize>>, views: Vec<View>) -> Receiver<(Vec<usize>, Batch)> {
        let (sender, receiver) = sync_channel(AHEAD);
        let loader = self.clone();
        std::thread::spawn(move || {
            for rows in batches {
                let batch = loader.batch(part, &rows, &views);
                // The taker has gone: it was stopped.
                if sender.send((rows, batch)).is_err() {
                    return;
                }
            }
        });
        receiver
    }

    /// What the network makes of every image of `part`, as unit vectors; `done(n)` is told of every `n` more. Not to be called
    /// from the thread pool: it waits for batches that the pool makes.
    #[allow(clippy::too_many_arguments)]
    pub fn embed(
        &self,
        network: &Arc<Network>,
        weights: &Weights,
        part: Part,
        view: View,
        kind: FeatureKind,
        stop: &Stop,
        done: &dyn Fn(usize),
    ) -> Result<Features> {
        let all: Vec<usize> = (0..self.images(part).len()).collect();
        let dim = if kind == FeatureKind::Embedding { network.embedding } else { network.pooled };
        let mut out = Features { rows: 0, dim, values: Vec::with_capacity(dim * all.len()) };
        for (rows, batch) in self.stream(part, all.chunks(EMBED_BATCH).map(<[usize]>::to_vec).collect(), vec![view]) {
            let (network, weights) = (network.clone(), weights.clone());
            let made = stop.run(move || network.embed(&weights, batch))?;
            let made = match kind {
                FeatureKind::Embedding => made.embedding,
                FeatureKind::Pooled => made.pooled.normalised(),
            };
            out.rows += made.rows;
            out.values.extend(made.values);
            done(rows.len());
        }
        if out.rows < all.len() {
            return Err(Error::training("the loader ended early", "please report this"));
        }
        Ok(out)
    }
}
