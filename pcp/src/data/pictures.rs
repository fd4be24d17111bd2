//! Images to embed: files, each opened when it is needed, or a loaded data set.

use super::folder::{ImageFile, split_name};
use super::pixel_cache::PixelCache;
use super::{BadFile, Batch, CleanView, Dataset, Image, Images, Prefetch, Split, Stamp, decode};
use rayon::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// Images per batch; fixed, so that results do not depend on anything else.
pub(super) const BATCH: usize = 128;

/// Images to embed.
#[derive(Clone)]
pub enum Pictures {
    /// Files, each opened when it is needed.
    Files(Arc<Vec<ImageFile>>),
    /// A loaded data set: training images, then test images.
    Loaded(Arc<Dataset>),
}

/// An image of a list: a row of `files.csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow {
    /// Its index among all images, unreadable ones included; it never changes.
    pub id: u64,
    /// Its file.
    pub file: String,
    /// Its class, where there is one.
    pub label: Option<String>,
}

/// Views of some pictures, and those that could not be read.
#[derive(Clone, Debug, Default)]
pub struct PictureBatch {
    /// The picture of every row of the batch.
    pub rows: Vec<FileRow>,
    /// Pictures that could not be read.
    pub bad: Vec<BadFile>,
    /// The views.
    pub batch: Batch,
}

impl Pictures {
    /// Images in memory, named by their numbers.
    pub fn of(images: impl IntoIterator<Item = Image>) -> Pictures {
        let mut all = Images::default();
        images.into_iter().enumerate().for_each(|(i, image)| all.push(i as u64, i.to_string(), image));
        let train = Split { images: all, labels: None };
        Pictures::Loaded(Arc::new(Dataset { train, ..Dataset::default() }))
    }

    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Pictures::Files(files) => files.len(),
            Pictures::Loaded(data) => data.train.images.len() + data.test.as_ref().map_or(0, |t| t.images.len()),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Batches of clean views, in order, made in advance by a thread. Unreadable pictures are left out and listed.
    pub fn stream(&self, view: CleanView) -> Prefetch<PictureBatch> {
        let (pictures, mut cache) = (self.clone(), self.cache(view.stored));
        Prefetch::new((0..self.len()).step_by(BATCH), move |first| {
            let batch = pictures.batch(first, &view, cache.as_ref());
            // What was decoded is kept if all of it was.
            if first + BATCH >= pictures.len()
                && let Some(cache) = cache.take()
            {
                cache.finish();
            }
            Ok(batch)
        })
    }

    /// The cache of files that are shrunk to a short side of `side`.
    fn cache(&self, side: usize) -> Option<PixelCache> {
        let Pictures::Files(files) = self else { return None };
        // The folder that the names are below.
        let first = files.first()?;
        let folder = first.path.ancestors().nth(first.name.split('/').count())?;
        let stamped = files.iter().filter_map(|file| Some((file.path.as_path(), Stamp::of(&file.path).ok()?)));
        if side > 0 { PixelCache::open(folder, side, stamped, true) } else { None }
    }

    /// The batch that begins with picture `first`.
    fn batch(&self, first: usize, view: &CleanView, cache: Option<&PixelCache>) -> PictureBatch {
        let floats = view.floats();
        let mut pixels = vec![0.0f32; BATCH.min(self.len() - first) * floats];
        let outcomes: Vec<std::result::Result<(), String>> = (pixels.par_chunks_mut(floats).enumerate())
            .map(|(i, out)| self.write_view(first + i, view, cache, out))
            .collect();
        let mut made = PictureBatch::default();
        for (i, outcome) in outcomes.into_iter().enumerate() {
            let row = self.row(first + i);
            match outcome {
                Ok(()) => {
                    pixels.copy_within(i * floats..(i + 1) * floats, made.rows.len() * floats);
                    made.rows.push(row);
                }
                Err(reason) => made.bad.push(BadFile { id: row.id, name: row.file, reason }),
            }
        }
        pixels.truncate(made.rows.len() * floats);
        made.batch = Batch { rows: made.rows.len(), pixels };
        made
    }

    /// Picture `at`; the error is the reason why it cannot be read.
    pub fn image(&self, at: usize) -> std::result::Result<Image, String> {
        match self {
            Pictures::Files(files) => decode::file(&files[at].path),
            Pictures::Loaded(data) => {
                let (split, row) = split(data, at);
                Ok(split.images.sample(row).map_err(|e| e.message)?.image.into_owned())
            }
        }
    }

    /// The file of picture `at`; `None` where it has none.
    pub fn path(&self, at: usize) -> Option<&Path> {
        match self {
            Pictures::Files(files) => Some(&files[at].path),
            Pictures::Loaded(_) => None,
        }
    }

    /// The split of picture `at` (train, test, validation); `None` where there are none.
    pub fn split_name(&self, at: usize) -> Option<&'static str> {
        match self {
            Pictures::Files(files) => split_name(&files[at].name),
            Pictures::Loaded(data) => {
                data.test.as_ref().map(|_| if at < data.train.images.len() { "train" } else { "test" })
            }
        }
    }

    /// The name, number and class of picture `at`.
    pub fn row(&self, at: usize) -> FileRow {
        match self {
            Pictures::Files(files) => {
                FileRow { id: at as u64, file: files[at].name.clone(), label: files[at].label.clone() }
            }
            Pictures::Loaded(data) => {
                let (split, row) = split(data, at);
                let label = split.labels.as_ref().map(|l| l.classes[l.of[row] as usize].clone());
                FileRow { id: split.images.ids()[row], file: split.images.names()[row].clone(), label }
            }
        }
    }

    /// Writes the view of picture `at` to `out`; the error is the reason why it cannot be read.
    fn write_view(
        &self,
        at: usize,
        view: &CleanView,
        cache: Option<&PixelCache>,
        out: &mut [f32],
    ) -> std::result::Result<(), String> {
        match self {
            Pictures::Files(files) if view.stored == 0 => {
                decode::file_then(&files[at].path, |image| view.write(image, out))?;
            }
            Pictures::Files(files) => {
                let path = &files[at].path;
                let read = || decode::shrunk_file(path, view.stored);
                let image = match (cache, cache.and_then(|_| Stamp::of(path).ok())) {
                    (Some(cache), Some(stamp)) => cache.get(path, stamp, read),
                    _ => read(),
                };
                view.write(image?, out);
            }
            Pictures::Loaded(data) => {
                let (split, row) = split(data, at);
                let image = split.images.sample(row).map_err(|e| e.message)?.image;
                // Images that `shrink` would not change need not be copied.
                if view.squares.is_some() || view.stored > 0 && image.width.min(image.height) > view.stored {
                    view.write(image.into_owned(), out);
                } else {
                    view.augmenter.clean_view(&image, out);
                }
            }
        }
        Ok(())
    }
}

fn split(data: &Dataset, at: usize) -> (&Split, usize) {
    let first = data.train.images.len();
    match &data.test {
        Some(test) if at >= first => (test, at - first),
        _ => (&data.train, at),
    }
}
