//! Batches of views of a data set's images, made in parallel and in advance.

use crate::data::augment::Augmenter;
use crate::data::{Batch, CleanView, Dataset, Images, Prefetch};
use pcp_core::error::Result;
use pcp_core::matrix::Matrix;
use pcp_core::peers::Team;
use pcp_core::rng::Key;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which images of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Training images.
    Train,
    /// Test images.
    Test,
}

/// A view of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The plain view: resized and cut from the centre.
    Clean,
    /// A random view, determined by the key, the image's id and this number.
    Random(Key, u32),
}

/// An image in an epoch, and how often it occurred before in the same epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The image's row.
    pub row: usize,
    /// The occurrence, from 0; every one gets other views.
    pub copy: u32,
}

impl Draw {
    /// One draw of each of `rows`.
    pub fn first(rows: &[usize]) -> Vec<Draw> {
        rows.iter().map(|row| Draw { row: *row, copy: 0 }).collect()
    }
}

/// The most views of one occurrence of an image; the numbers of the next occurrence's views follow.
const VIEWS: u32 = 16;

/// Makes views of the images of a data set.
#[derive(Clone)]
pub struct Loader {
    dataset: Arc<Dataset>,
    augmenter: Arc<Augmenter>,
    /// A second view that follows the clean one in every row.
    squares: Option<Arc<CleanView>>,
}

/// Images per batch in inference; fixed, so that results do not depend on anything else.
const INFERENCE_BATCH: usize = super::pictures::BATCH;

impl Loader {
    /// Views of `dataset` by `augmenter`.
    pub fn new(dataset: Arc<Dataset>, augmenter: Augmenter) -> Self {
        Loader { dataset, augmenter: Arc::new(augmenter), squares: None }
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

    /// The loader with views of another side.
    pub fn with_side(&self, size: usize) -> Self {
        let augmenter = Augmenter { size, ..(*self.augmenter).clone() };
        Loader { dataset: self.dataset.clone(), augmenter: Arc::new(augmenter), squares: None }
    }

    /// The loader with a second view behind every clean one, where `squares` is one.
    pub fn with_squares(&self, squares: Option<CleanView>) -> Self {
        Loader { squares: squares.map(Arc::new), ..self.clone() }
    }

    /// The processes that have the images.
    pub fn team(&self) -> &Team {
        &self.dataset.team
    }

    /// Of `rows` of the images of `part`, those of this process.
    pub fn own_rows(&self, part: Part, rows: &[usize]) -> Vec<usize> {
        let (images, rank) = (self.images(part), self.team().rank());
        rows.iter().copied().filter(|row| images.reader(*row) == rank).collect()
    }

    /// How many of the images of `part` every process has read.
    pub fn shares(&self, part: Part) -> Vec<usize> {
        let (images, mut shares) = (self.images(part), vec![0; self.team().count()]);
        (0..images.len()).for_each(|row| shares[images.reader(row)] += 1);
        shares
    }

    /// `dim` values for each of `rows`, which are ascending, from those that every process has made of its [own](Self::own_rows).
    pub fn gathered(&self, part: Part, rows: &[usize], dim: usize, own: Vec<f32>) -> Matrix {
        let (images, team) = (self.images(part), self.team());
        let mut counts = vec![0; team.count()];
        rows.iter().for_each(|row| counts[images.reader(*row)] += dim);
        let values = if team.several() { team.all_gather_values(&own, &counts) } else { own };
        Matrix { rows: rows.len(), dim, values }
    }

    /// Values of one view.
    pub(super) fn floats(&self) -> usize {
        self.augmenter.size * self.augmenter.size * 3 + self.squares.as_ref().map_or(0, |squares| squares.floats())
    }

    /// The `views` of `draws`: all of the first view, then all of the second. An image is read once for all its views.
    pub fn batch(&self, part: Part, draws: &[Draw], views: &[View]) -> Result<Batch> {
        let wanted: Vec<(Draw, View)> = views.iter().flat_map(|view| draws.iter().map(|draw| (*draw, *view))).collect();
        self.views(part, &wanted)
    }

    /// Views of images, in order. An image is read once for all its views.
    pub(super) fn views(&self, part: Part, wanted: &[(Draw, View)]) -> Result<Batch> {
        let images = self.images(part);
        let mut pixels = vec![0.0f32; self.floats() * wanted.len()];
        // By image and occurrence: its views, and their places.
        let mut places = BTreeMap::<_, Vec<_>>::new();
        for ((draw, view), place) in wanted.iter().zip(pixels.chunks_exact_mut(self.floats())) {
            places.entry((draw.row, draw.copy)).or_default().push((*view, place));
        }
        places.into_par_iter().try_for_each(|((row, copy), places)| {
            let sample = images.sample(row)?;
            for (view, out) in places {
                match view {
                    View::Clean => {
                        let own = self.augmenter.size * self.augmenter.size * 3;
                        self.augmenter.clean_view(&sample.image, &mut out[..own]);
                        if let Some(squares) = &self.squares {
                            squares.write(sample.image.clone().into_owned(), &mut out[own..]);
                        }
                    }
                    View::Random(key, view) => {
                        let own = self.augmenter.size * self.augmenter.size * 3;
                        let mut random = key.stream(sample.id, copy * VIEWS + view);
                        self.augmenter.train_view(&sample.image, &mut random, &mut out[..own]);
                    }
                }
            }
            Ok(())
        })?;
        Ok(Batch { rows: wanted.len(), pixels })
    }

    /// The `views` of all `batches`, in order, made in advance by a thread. An image that cannot be read again ends the stream with
    /// an error.
    pub fn stream(&self, part: Part, batches: Vec<Vec<Draw>>, views: Vec<View>) -> Prefetch<(Vec<Draw>, Batch)> {
        let loader = self.clone();
        Prefetch::new(batches, move |draws| loader.batch(part, &draws, &views).map(|batch| (draws, batch)))
    }

    /// Clean or random views of every image of `part`, in order.
    pub fn all(&self, part: Part, view: View) -> Prefetch<(Vec<Draw>, Batch)> {
        let rows: Vec<usize> = (0..self.images(part).len()).collect();
        self.rows(part, &rows, view)
    }

    /// One view of each of `rows`, in order.
    pub fn rows(&self, part: Part, rows: &[usize], view: View) -> Prefetch<(Vec<Draw>, Batch)> {
        let batches = Draw::first(rows).chunks(INFERENCE_BATCH).map(<[Draw]>::to_vec).collect();
        self.stream(part, batches, vec![view])
    }
}
