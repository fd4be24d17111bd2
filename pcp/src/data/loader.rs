//! Batches of views, made in parallel ahead of whoever takes them.

use crate::data::augment::Augmenter;
use crate::data::{Dataset, Images};
use crate::model::{Batch, Network, Tap, Weights};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::matrix::Matrix;
use pcp_core::rng::Key;
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

/// An image in an epoch: which one, and how many times it was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The image's row.
    pub row: usize,
    /// Copies of an image get views of their own.
    pub copy: u32,
}

impl Draw {
    /// Each of `rows`, for the first time.
    pub fn first(rows: &[usize]) -> Vec<Draw> {
        rows.iter().map(|row| Draw { row: *row, copy: 0 }).collect()
    }
}

/// Views of one copy of an image at the most; the next copy's come after them.
const VIEWS: u32 = 16;

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

    /// The `views` of `draws`: all of the first view, then all of the second. An image is read once for all its views.
    pub fn batch(&self, part: Part, draws: &[Draw], views: &[View]) -> Result<Batch> {
        let images = self.images(part);
        let n = self.floats();
        let mut pixels = vec![0.0f32; n * draws.len() * views.len()];
        let mut places: Vec<Vec<&mut [f32]>> = draws.iter().map(|_| Vec::with_capacity(views.len())).collect();
        for (i, place) in pixels.chunks_exact_mut(n).enumerate() {
            places[i % draws.len()].push(place);
        }
        draws.par_iter().zip(places).try_for_each(|(&Draw { row, copy }, places)| {
            let sample = images.sample(row)?;
            for (view, out) in views.iter().zip(places) {
                match *view {
                    View::Clean => self.augmenter.clean_view(&sample.image, out),
                    View::Random(key, view) => {
                        self.augmenter.train_view(&sample.image, &mut key.stream(sample.id, copy * VIEWS + view), out);
                    }
                }
            }
            Ok(())
        })?;
        Ok(Batch { rows: draws.len() * views.len(), pixels })
    }

    /// The batches, in order, made ahead by a thread of their own; an image that cannot be read again ends them.
    pub fn stream(
        &self,
        part: Part,
        batches: Vec<Vec<Draw>>,
        views: Vec<View>,
    ) -> Receiver<Result<(Vec<Draw>, Batch)>> {
        let (sender, receiver) = sync_channel(AHEAD);
        let loader = self.clone();
        std::thread::spawn(move || {
            for draws in batches {
                let batch = loader.batch(part, &draws, &views).map(|batch| (draws, batch));
                let failed = batch.is_err();
                // The taker has gone: it was stopped.
                if sender.send(batch).is_err() || failed {
                    return;
                }
            }
        });
        receiver
    }

    /// What the network makes of every image of `part`; `done(n)` is told of every `n` more. Not to be called from the
    /// thread pool: it waits for batches that the pool makes.
    #[allow(clippy::too_many_arguments)]
    pub fn embed(
        &self,
        network: &Arc<Network>,
        weights: &Weights,
        part: Part,
        view: View,
        tap: Tap,
        stop: &Cancel,
        done: &dyn Fn(usize),
    ) -> Result<Matrix> {
        let all = Draw::first(&(0..self.images(part).len()).collect::<Vec<_>>());
        let dim = network.dim(tap);
        let mut out = Matrix { rows: 0, dim, values: Vec::with_capacity(dim * all.len()) };
        for made in self.stream(part, all.chunks(EMBED_BATCH).map(<[Draw]>::to_vec).collect(), vec![view]) {
            let (draws, batch) = made?;
            let (network, weights) = (network.clone(), weights.clone());
            let made = stop.run(move || network.embed(&weights, &batch, tap))?;
            out.rows += made.rows;
            out.values.extend(made.values);
            done(draws.len());
        }
        if out.rows < all.len() {
            return Err(Error::training("the loader ended early", "please report this"));
        }
        Ok(out)
    }
}
