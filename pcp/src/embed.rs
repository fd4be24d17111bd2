//! What a trained network makes of any images: they are read, looked at and let go batch by batch, however many there are.

use crate::data::augment::Augmenter;
use crate::data::folder::Found;
use crate::data::resize::shrink;
use crate::data::{BadFile, Dataset, Image, decode};
use crate::evaluate::linear::{Layer, layer_features};
use crate::model::{Batch, Network, Weights};
use crate::train::setup;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::write_atomic;
use pcp_core::io::csv;
use pcp_core::io::npy::NpyRows;
use pcp_core::matrix::Matrix;
use rayon::prelude::*;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Images per batch; fixed, so that results do not depend on anything else.
const BATCH: usize = 128;
/// Batches that are ready ahead of the network.
const AHEAD: usize = 2;

/// A trained network and how it looks at images.
#[derive(Clone)]
pub struct Model {
    /// The network.
    pub network: Arc<Network>,
    /// Its numbers.
    pub weights: Weights,
    augmenter: Arc<Augmenter>,
    /// Short side to which larger photographs are shrunk first; 0 keeps them.
    stored: usize,
    /// The file of the weights.
    pub file: String,
}

impl Model {
    /// The network of a run folder (its last weights, or, when `best`, those of the best probe), or of a `model.safetensors`.
    pub fn open(path: &Path, best: bool) -> Result<Model> {
        let (network, weights, card, file) = setup::open_model(path, best)?;
        let (augmenter, stored) = setup::card_views(&card);
        let (network, augmenter) = (Arc::new(network), Arc::new(augmenter));
        Ok(Model { network, weights, augmenter, stored, file: file.display().to_string() })
    }

    /// The layer called `name`.
    pub fn layer(&self, name: &str) -> Result<Layer> {
        let known = Layer::all(&self.network);
        match known.iter().find(|(n, _)| n == name) {
            Some((_, layer)) => Ok(*layer),
            None => Err(Layer::named(&self.network, &[name.to_string()]).err().unwrap_or_else(|| {
                Error::usage("one layer at a time can be written", "name one layer: embedding, pooled, layer4")
            })),
        }
    }

    /// An image as the network takes it.
    pub fn pixels(&self, image: Image) -> Vec<f32> {
        let image = if self.stored > 0 { shrink(image, self.stored) } else { image };
        let mut pixels = vec![0.0; self.network.size * self.network.size * 3];
        self.view(&image, &mut pixels);
        pixels
    }

    fn view(&self, image: &Image, out: &mut [f32]) {
        self.augmenter.clean_view(image, out);
    }
}

/// Images to look at.
#[derive(Clone)]
pub enum Pictures {
    /// Files, which are opened when it is their turn.
    Files(Arc<Vec<Found>>),
    /// A data set in memory: images to learn from, then those to test on.
    Loaded(Arc<Dataset>),
}

impl Pictures {
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

    fn described(&self, at: usize) -> Row {
        match self {
            Pictures::Files(files) => {
                Row { id: at as u64, file: files[at].name.clone(), label: files[at].label.clone() }
            }
            Pictures::Loaded(data) => {
                let (split, row) = split(data, at);
                let label = split.labels.as_ref().map(|l| l.classes[l.of[row] as usize].clone());
                Row { id: split.images.ids()[row], file: split.images.names()[row].clone(), label }
            }
        }
    }

    /// Draws the picture at `at` into `out` as `model` sees it.
    fn draw(&self, model: &Model, at: usize, out: &mut [f32]) -> std::result::Result<(), String> {
        match self {
            Pictures::Files(files) => {
                let image = decode::file(&files[at].path)?;
                let image = if model.stored > 0 { shrink(image, model.stored) } else { image };
                model.view(&image, out);
            }
            Pictures::Loaded(data) => {
                let (split, row) = split(data, at);
                let image = split.images.sample(row).map_err(|e| e.message)?.image;
                // Not smaller than the run had it: a data set's own pixels may be larger.
                if model.stored > 0 && image.width.min(image.height) > model.stored {
                    model.view(&shrink(image.into_owned(), model.stored), out);
                } else {
                    model.view(&image, out);
                }
            }
        }
        Ok(())
    }
}

fn split(data: &Dataset, at: usize) -> (&crate::data::Split, usize) {
    let first = data.train.images.len();
    match &data.test {
        Some(test) if at >= first => (test, at - first),
        _ => (&data.train, at),
    }
}

/// An image that was embedded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its place among all images, those that cannot be read included.
    pub id: u64,
    /// Its name.
    pub file: String,
    /// Its class, where there is one.
    pub label: Option<String>,
}

/// What came of embedding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Embedded {
    /// The images of the rows, in order.
    pub rows: Vec<Row>,
    /// Those that could not be read.
    pub bad: Vec<BadFile>,
}

struct Ready {
    rows: Vec<Row>,
    bad: Vec<BadFile>,
    batch: Batch,
}

/// Hands the features of all `pictures` at `layer` to `take`, batch by batch, in order. `done` is told of every batch how many
/// pictures it took. Not to be called from the thread pool.
pub fn embed(
    model: &Model,
    pictures: &Pictures,
    layer: Layer,
    stop: &Cancel,
    done: &dyn Fn(usize),
    take: &mut dyn FnMut(&[Row], &Matrix) -> Result<()>,
) -> Result<Embedded> {
    let mut all = Embedded::default();
    let mut seen = 0;
    for Ready { rows, bad, batch } in stream(model.clone(), pictures.clone()) {
        let looked_at = rows.len() + bad.len();
        if batch.rows > 0 {
            let (network, weights) = (model.network.clone(), model.weights.clone());
            let made = stop.run(move || layer_features(&network, &weights, &batch, &[layer]))?;
            made.first().map_or(Ok(()), |features| take(&rows, features))?;
        }
        stop.check()?;
        all.rows.extend(rows);
        all.bad.extend(bad);
        seen += looked_at;
        done(looked_at);
    }
    if seen < pictures.len() {
        return Err(Error::training("the reader of images ended early", "please report this"));
    }
    match (all.rows.is_empty(), all.bad.first()) {
        (true, Some(bad)) => Err(Error::data(
            format!("none of the images can be read; {}: {}", bad.name, bad.reason),
            "JPEG, PNG, WebP, BMP, GIF and TIFF can be read: convert the files, or get them again",
        )),
        _ => Ok(all),
    }
}

/// All features at once, for few images.
pub fn features_of(
    model: &Model,
    pictures: &Pictures,
    layer: Layer,
    stop: &Cancel,
    done: &dyn Fn(usize),
) -> Result<(Matrix, Embedded)> {
    let mut features = Matrix::default();
    let found = embed(model, pictures, layer, stop, done, &mut |_, made| {
        features.rows += made.rows;
        features.dim = made.dim;
        features.values.extend_from_slice(&made.values);
        Ok(())
    })?;
    Ok((features, found))
}

/// Batches in order, made ahead by a thread of their own.
fn stream(model: Model, pictures: Pictures) -> Receiver<Ready> {
    let (sender, receiver) = sync_channel(AHEAD);
    std::thread::spawn(move || {
        let side = model.network.size;
        for first in (0..pictures.len()).step_by(BATCH) {
            let n = BATCH.min(pictures.len() - first);
            let mut pixels = vec![0.0f32; n * side * side * 3];
            let outcomes: Vec<std::result::Result<(), String>> = (pixels.par_chunks_mut(side * side * 3).enumerate())
                .map(|(i, out)| pictures.draw(&model, first + i, out))
                .collect();
            let mut ready = Ready { rows: Vec::new(), bad: Vec::new(), batch: Batch { rows: 0, pixels: Vec::new() } };
            let mut kept = 0;
            for (i, outcome) in outcomes.into_iter().enumerate() {
                let row = pictures.described(first + i);
                match outcome {
                    Ok(()) => {
                        let view = side * side * 3;
                        pixels.copy_within(i * view..(i + 1) * view, kept * view);
                        kept += 1;
                        ready.rows.push(row);
                    }
                    Err(reason) => ready.bad.push(BadFile { id: row.id, name: row.file, reason }),
                }
            }
            pixels.truncate(kept * side * side * 3);
            ready.batch = Batch { rows: kept, pixels };
            // The taker has gone: it was stopped.
            if sender.send(ready).is_err() {
                return;
            }
        }
    });
    receiver
}

/// How embeddings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// NumPy's, float32; names are in a file beside it.
    Npy,
    /// A line per image: its name, then its numbers.
    Csv,
}

/// Embeds all `pictures` into the new file `out`.
pub fn write(
    model: &Model,
    pictures: &Pictures,
    layer: Layer,
    (out, format): (&Path, Format),
    stop: &Cancel,
    done: &dyn Fn(usize),
) -> Result<(Embedded, usize)> {
    let mut outcome = None;
    let written = write_atomic(out, |w| {
        let mut sink = Sink::None(Some(w));
        let mut failed: Option<io::Error> = None;
        let mut dim = 0;
        let made = embed(model, pictures, layer, stop, done, &mut |rows, features| {
            dim = features.dim;
            sink.add(format, rows, features).map_err(|e| {
                let shown = Error::io("write", out, &e);
                failed = Some(e);
                shown
            })
        });
        if let Some(e) = failed {
            return Err(e);
        }
        let fine = made.is_ok();
        outcome = Some(made.map(|made| (made, dim)));
        match fine {
            true => sink.finish(),
            false => Err(io::Error::other("not finished")),
        }
    });
    // What went wrong in embedding is worth more than that its file was not finished.
    match outcome {
        Some(made) => made.and_then(|made| written.map(|()| made)),
        None => Err(written.err().unwrap_or_else(Error::stopped)),
    }
}

enum Sink<W: Write + io::Seek> {
    None(Option<W>),
    Npy(NpyRows<W>),
    Csv(W),
}

impl<W: Write + io::Seek> Sink<W> {
    fn add(&mut self, format: Format, rows: &[Row], features: &Matrix) -> io::Result<()> {
        if let Sink::None(out) = self
            && let Some(mut out) = out.take()
        {
            *self = match format {
                Format::Npy => Sink::Npy(NpyRows::new(out, features.dim)?),
                Format::Csv => {
                    write!(out, "file")?;
                    (0..features.dim).try_for_each(|d| write!(out, ",{d}"))?;
                    writeln!(out)?;
                    Sink::Csv(out)
                }
            };
        }
        match self {
            Sink::Npy(npy) => npy.extend(&features.values),
            Sink::Csv(out) => {
                for (row, values) in rows.iter().zip(features.values.chunks(features.dim)) {
                    write!(out, "{}", csv::field(&row.file))?;
                    values.iter().try_for_each(|x| write!(out, ",{x}"))?;
                    writeln!(out)?;
                }
                Ok(())
            }
            Sink::None(_) => Ok(()),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Sink::Npy(npy) => npy.finish(),
            Sink::Csv(mut out) => out.flush(),
            Sink::None(_) => Ok(()),
        }
    }
}

/// `files.csv` of what was embedded.
pub fn files_csv(rows: &[Row]) -> String {
    let mut text = "row,id,file,label\n".to_string();
    for (i, row) in rows.iter().enumerate() {
        let label = row.label.as_deref().map(csv::field).unwrap_or_default();
        text += &format!("{i},{},{},{label}\n", row.id, csv::field(&row.file));
    }
    text
}

/// `bad_files.csv` of what could not be read.
pub fn bad_files_csv(bad: &[BadFile]) -> String {
    let mut text = "id,file,reason\n".to_string();
    for bad in bad {
        text += &format!("{},{},{}\n", bad.id, csv::field(&bad.name), csv::field(&bad.reason));
    }
    text
}
