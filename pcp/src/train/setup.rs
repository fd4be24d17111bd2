//! What a run is made of: settings, data, network and folder, put together and checked before the first step.

use super::checkpoints;
pub use super::foreign::named;
use super::foreign::{self, told};
use super::{Progress, State};
use crate::config::{self, Arch, Auto, Config, FeatureKind, System};
use crate::data::augment::Augmenter;
use crate::data::loader::{Draw, Loader, Part, View};
use crate::data::{self, Dataset};
use crate::evaluate::Probe;
use crate::evaluate::heatmap::heat;
use crate::method::{self, At, Method, Plan};
use crate::model::{Network, Tap, Weights};
use crate::observe::Observer;
use crate::run::{About, RunFolder, Warning};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::tensors::{Array, Source, Tensors, read_arrays};
use pcp_core::matrix::Matrix;
use pcp_core::neighbours::accuracy;
use pcp_core::schedule::probe_interval;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Images whose heat maps a run keeps.
const HEATED: usize = 48;

/// A run, ready to train.
pub struct Setup {
    /// Settings, schedule and images.
    pub plan: Arc<Plan>,
    /// The system.
    pub method: &'static dyn Method,
    /// Views of the images.
    pub loader: Loader,
    /// The network.
    pub network: Arc<Network>,
    /// The kNN probe, when there are labels.
    pub probe: Option<Probe>,
    /// The run's folder.
    pub run: RunFolder,
    /// What made the run.
    pub about: About,
    /// The user's stop.
    pub stop: Cancel,
    /// Who watches.
    pub observer: Arc<dyn Observer>,
}

/// What a model file says of itself: enough to build the network and to feed it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelCard {
    /// The network.
    pub network: config::Network,
    /// Side of its images.
    pub size: usize,
    /// The clean view's margin.
    pub margin: f64,
    /// The short side to which photographs are shrunk first; 0 keeps them as they are.
    #[serde(default)]
    pub stored: Option<usize>,
    /// Channel means.
    pub mean: [f64; 3],
    /// Channel standard deviations.
    pub std: [f64; 3],
    /// Round it was saved in.
    pub round: u32,
    /// Epoch it was saved after.
    pub epoch: u32,
}

/// The side of the images that `config` trains on.
pub fn image_side(config: &Config) -> usize {
    config.data.size.or(match (config.network.arch, config.data.source.as_str()) {
        (Arch::Alexnet224, _) => 224,
        (_, "bundled" | "cifar10" | "cifar100") => 32,
        _ => 64,
    })
}

/// The short side to which photographs are shrunk when read; 0 keeps them as they are.
pub fn stored_side(config: &Config) -> usize {
    config.data.stored.or(usual_stored_side(image_side(config)))
}

fn usual_stored_side(size: usize) -> usize {
    (size as f64 * 256.0 / 224.0).round() as usize
}

/// What to load for `config`.
pub fn load_request(config: &Config) -> Result<data::Load> {
    let d = &config.data;
    Ok(data::Load {
        source: data::Source::parse(&d.source)?,
        data_dir: (!d.dir.is_empty()).then(|| d.dir.clone().into()),
        limit: (d.limit > 0).then_some(d.limit),
        stored_side: Some(stored_side(config)).filter(|side| *side > 0),
        labels: d.labels,
        cache: d.cache,
        strict: d.strict,
    })
}

/// `config` with every `"auto"` replaced by what fits `dataset`.
pub fn resolve(mut config: Config, dataset: &Dataset) -> Result<Config> {
    let schedule = config.schedule(dataset.train.images.len())?;
    method::of(config.method.system).check(dataset)?;
    let side = image_side(&config);
    Network::new(&config.network, side)?;
    let shown = |x: f32| (f64::from(x) * 1e6).round() / 1e6;
    if config.data.mean == Auto::AUTO || config.data.std == Auto::AUTO {
        let (mean, std) = dataset.mean_std();
        config.data.mean = Auto::Value(config.data.mean.or(mean.map(shown)));
        config.data.std = Auto::Value(config.data.std.or(std.map(shown)));
    }
    config.data.size = Auto::Value(side);
    config.data.stored = Auto::Value(stored_side(&config));
    config.clusters.floor = Auto::Value(schedule.floor);
    config.purify.history = Auto::Value(schedule.history);
    config.purify.upper = Auto::Value(schedule.upper);
    config.evaluate.every = Auto::Value(config.evaluate.every.or(probe_interval(config.train.epochs)));
    config.check()?;
    Ok(config)
}

impl Setup {
    /// Puts a run together; `config` must be resolved.
    pub fn new(
        config: Config,
        dataset: Dataset,
        run: RunFolder,
        about: About,
        stop: Cancel,
        observer: Arc<dyn Observer>,
    ) -> Result<Setup> {
        let dataset = Arc::new(dataset);
        let size = image_side(&config);
        let schedule = config.schedule(dataset.train.images.len())?;
        let network = Arc::new(Network::new(&config.network, size)?);
        let loader = Loader::new(dataset.clone(), augmenter(&config));
        let probe = Probe::new(dataset.clone(), loader.clone(), &config);
        let method = method::of(config.method.system);
        let plan = Arc::new(Plan { config, schedule, dataset });
        Ok(Setup { plan, method, loader, network, probe, run, about, stop, observer })
    }

    /// Says what is unusual about this run before it begins.
    pub fn warn_beforehand(&self) {
        let images = self.plan.samples();
        let batch = self.plan.config.train.batch;
        if !self.plan.dataset.bad.is_empty() {
            self.warn(Warning::BadFiles { count: self.plan.dataset.bad.len() });
        }
        if images < batch && self.plan.config.train.rounds > 0 {
            self.warn(Warning::FewerThanBatch { images, batch });
        }
        let clusters = self.plan.config.method.system == System::Pcp;
        if clusters && self.plan.schedule.all_instances(self.plan.schedule.floor) {
            self.warn(Warning::NothingToCluster);
        }
        if let Some(probe) = &self.probe
            && probe.available() < self.plan.config.evaluate.k
        {
            self.warn(Warning::FewerThanK { images: probe.available(), k: self.plan.config.evaluate.k });
        }
    }

    /// Says how this program and machine differ from those that the run began with.
    pub fn warn_of_origin(&self, version: &str, revision: &str, cpu: &str) {
        let began = &self.about;
        let differ =
            [("version", &began.version, version), ("revision", &began.revision, revision), ("CPU", &began.cpu, cpu)];
        let what: Vec<String> = differ
            .iter()
            .filter(|(_, began, now)| began.as_str() != *now)
            .map(|(name, began, now)| format!("the run began with {name} {began}, this is {now}"))
            .collect();
        if !what.is_empty() {
            self.warn(Warning::OtherOrigin { what: what.join("; ") });
        }
    }

    /// Bytes that grow with every training image, besides its pixels: bank, features, the embeddings of a probe, the history
    /// of clusters, and the image's name, place and marks.
    pub fn memory_per_image(&self) -> f64 {
        const MARKS: usize = 400;
        (3 * self.plan.config.network.embedding * 4 + 4 * self.plan.schedule.history + MARKS) as f64
    }

    /// Bytes that the run will hold: images, bank with features, network with one step.
    pub fn memory(&self) -> [f64; 3] {
        let images = &self.plan.dataset.train.images;
        let pixels = images.bytes() + self.plan.dataset.test.as_ref().map_or(0, |t| t.images.bytes());
        // At the end, pixels are compared with each other: more where images are many, but bounded.
        let compared = self.probe.as_ref().map_or(0, Probe::pixel_bytes) as f64;
        let vectors = (self.memory_per_image() * images.len() as f64).max(compared);
        let views = self.method.views(&self.plan, (0, 0));
        let shown = self.plan.config.train.batch.min(images.len()) * views;
        [pixels as f64, vectors, training_bytes(&self.network, shown, usize::from(self.method.has_keys()))]
    }

    /// The newest checkpoint's state, or the beginning.
    pub fn restore(&self) -> Result<State> {
        checkpoints::restore(self)
    }

    /// The beginning.
    pub fn begin(&self) -> Result<State> {
        Ok(State::new(&self.network, self.initial()?, self.method, &self.plan))
    }

    /// The weights that the run begins with. Those from elsewhere are kept in the run folder, so that it can go on without
    /// the file that they came from.
    pub fn initial(&self) -> Result<Weights> {
        let train = &self.plan.config.train;
        if train.init_from.is_empty() {
            return Ok(self.network.init(train.seed));
        }
        let kept = self.run.file("init.safetensors");
        if kept.exists() {
            return self.network.from_named(&named(Tensors::<ModelCard>::read(&kept)?.arrays, ""));
        }
        let (weights, left) = foreign_beginning(&self.network, &self.plan.config)?;
        self.run.log(&format!("begins with {}: {}", train.init_from, told(&left)));
        let arrays =
            self.network.named(&weights).into_iter().map(|n| (n.name, Array::F32(n.shape, n.values))).collect();
        Tensors { about: card(&self.plan.config, &self.network, (0, 0)), arrays }.write(&kept)?;
        Ok(weights)
    }

    pub(super) fn warn(&self, warning: Warning) {
        self.run.log(&format!("warning: {warning}"));
        self.observer.warn(&warning);
    }

    pub(super) fn sgd(&self, epoch: u32) -> kernels::Sgd {
        let t = &self.plan.config.train;
        kernels::Sgd {
            lr: self.plan.schedule.lr(epoch),
            momentum: t.momentum as f32,
            decay: t.weight_decay as f32,
            nesterov: t.nesterov,
        }
    }

    /// Assignments that the final clustering makes.
    pub(super) fn final_steps(&self) -> usize {
        let c = &self.plan.config.clusters;
        (c.iterations + 1) * c.runs as usize
    }

    /// Features of all training images.
    pub(super) fn embed(&self, weights: &Weights, view: View, tap: Tap) -> Result<Matrix> {
        self.loader.embed(&self.network, weights, Part::Train, view, tap, &self.stop, &|n| self.observer.advance(n))
    }

    /// Accuracy of the classifier on the test images in percent, when the system learns by labels and there are any.
    pub(super) fn classify(&self, state: &State) -> Result<Option<f64>> {
        let test = self.plan.dataset.test.as_ref().and_then(|test| test.labels.as_ref());
        let supervised = self.plan.config.method.system == System::Supervised;
        let (Some(classifier), Some(truth), true) = (&state.memory.classifier, test, supervised) else {
            return Ok(None);
        };
        self.observer.begin("kNN probe", truth.of.len());
        let done = |n| self.observer.advance(n);
        let (view, tap) = (View::Clean, Tap::Pooled);
        let features = self.loader.embed(&self.network, &state.weights, Part::Test, view, tap, &self.stop, &done)?;
        Ok(Some(accuracy(&classifier.predict(&features), &truth.of)))
    }

    /// kNN accuracy of `weights`, when there are labels.
    pub(super) fn probe(&self, weights: &Weights) -> Result<Option<f64>> {
        let Some(probe) = &self.probe else { return Ok(None) };
        self.observer.begin("kNN probe", probe.images());
        probe.network(&self.network, weights, &self.stop, &|n| self.observer.advance(n)).map(Some)
    }

    /// kNN accuracy of the pooled features of `weights`, when there are labels.
    pub(super) fn probe_pooled(&self, weights: &Weights) -> Result<Option<f64>> {
        let Some(probe) = &self.probe else { return Ok(None) };
        self.observer.begin("kNN probe", probe.images());
        let pooled = probe.with_features(FeatureKind::Pooled);
        pooled.network(&self.network, weights, &self.stop, &|n| self.observer.advance(n)).map(Some)
    }

    /// kNN accuracy of the pixels, when there are labels.
    pub(super) fn probe_pixels(&self) -> Result<Option<f64>> {
        self.probe.as_ref().map(|probe| probe.pixels(&self.stop)).transpose()
    }

    /// Writes where the network looks in a few of the images.
    pub(super) fn write_heat(&self, weights: &Weights) -> Result<()> {
        let n = self.plan.samples();
        let shown = n.min(HEATED);
        let rows: Vec<usize> = (0..shown).map(|i| i * n / shown).collect();
        let (loader, network, weights) = (self.loader.clone(), self.network.clone(), weights.clone());
        let draws = Draw::first(&rows);
        let heats = self
            .stop
            .run(move || Ok(heat(&network, &weights, &loader.batch(Part::Train, &draws, &[View::Clean])?)))??;
        self.run.write_heat(
            &rows,
            heats.first().map_or(0, |h| h.side),
            &heats.iter().flat_map(|h| h.values.clone()).collect::<Vec<_>>(),
        )
    }

    /// Writes the weights with a card that describes them, and, where the system learns by labels, its classifier.
    pub(super) fn save_model(&self, state: &State, (round, epoch): (u32, u32), path: &Path) -> Result<()> {
        let about = card(&self.plan.config, &self.network, (round, epoch));
        let named = self.network.named(&state.weights).into_iter();
        let mut arrays: BTreeMap<_, _> = named.map(|n| (n.name, Array::F32(n.shape, n.values))).collect();
        let supervised = self.plan.config.method.system == System::Supervised;
        if let Some(c) = state.memory.classifier.as_ref().filter(|_| supervised) {
            let shape = vec![c.weight.rows, c.weight.dim];
            arrays.insert("head.weight".into(), Array::F32(shape, c.weight.values.clone()));
            arrays.insert("head.bias".into(), Array::F32(vec![c.bias.len()], c.bias.clone()));
        }
        Tensors { about, arrays }.write(path)
    }
}

/// What is said in a file of the weights that a run has in some round and epoch.
pub fn card(config: &Config, network: &Network, (round, epoch): At) -> ModelCard {
    let (mean, std) = normalisation(config);
    let (margin, size) = (config.data.margin, network.size);
    let stored = Some(stored_side(config));
    ModelCard { network: config.network.clone(), size, margin, stored, mean, std, round, epoch }
}

/// The network in the file `path`, with what must be known to feed it: by its own description, by the settings of the run that it
/// lies in, or else by its arrays.
fn read_model_file(path: &Path) -> Result<(Network, Weights, ModelCard)> {
    let (card, arrays) = match Tensors::<ModelCard>::read_any(path)? {
        Source::Ours(file) => (file.about, named(file.arrays, "")),
        Source::Theirs(arrays) => {
            let arrays = named(arrays, "");
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let card = match RunFolder::open(folder) {
                Ok(run) => {
                    let (config, _) = run.read_config()?;
                    card(&config, &Network::new(&config.network, image_side(&config))?, (0, 0))
                }
                Err(_) => foreign::recognised(&arrays).map_err(|e| e.at(path))?,
            };
            (card, arrays)
        }
    };
    let network = Network::new(&card.network, card.size)?;
    let weights = network.from_named(&arrays).map_err(|e| e.at(path))?;
    Ok((network, weights, card))
}

/// The network of a run folder (its last weights, or, when `best`, those of the best probe), or of a safetensors file, and the file that
/// it was read from.
pub fn open_model(path: &Path, best: bool) -> Result<(Network, Weights, ModelCard, PathBuf)> {
    if path.is_dir() {
        let run = RunFolder::open(path)?;
        let (config, _) = run.read_config()?;
        let (network, weights, learned, file) = read_model(&run, &config, best)?;
        let card = card(&config, &network, learned.unwrap_or_default());
        return Ok((network, weights, card, run.file(&file)));
    }
    if best {
        let message = format!("--best chooses among the weights of a run folder, and {} is a file", path.display());
        return Err(Error::usage(message, "leave out --best, or give the run folder"));
    }
    let (network, weights, card) = read_model_file(path)?;
    Ok((network, weights, card, path.to_path_buf()))
}

/// Bytes of weights, gradients, momentum and `more` copies of the weights, and of a step that is shown so many views. A step
/// peaks at about five times the outputs of its convolutions (as measured): what they give, what batch norm makes of it,
/// gradients of both, and room to work in.
fn training_bytes(network: &Network, shown: usize, more: usize) -> f64 {
    4.0 * ((3 + more) as f64 * network.parameter_count() as f64 + 5.0 * network.map_floats() as f64 * shown as f64)
}

/// Refuses a network that has no room to train in the memory that is free, as far as that is known. What it needs is estimated
/// from below and may be half as much again: better a run that swaps than none where there might have been one.
pub fn check_room(network: &Network, config: &Config, images: usize, free: Option<u64>) -> Result<()> {
    let needed = training_bytes(network, config.train.batch.min(images), 0);
    match free {
        Some(free) if config.train.rounds > 0 && needed > 1.5 * free as f64 => Err(Error::usage(
            format!(
                "training this network takes {:.1} GB of memory, and {:.1} GB are free",
                needed / 1e9,
                free as f64 / 1e9
            ),
            "give a smaller --width, --batch or --size",
        )),
        _ => Ok(()),
    }
}

/// The weights that `train.init_from` gives `network`, and the arrays that it does not.
pub fn foreign_beginning(network: &Network, config: &Config) -> Result<(Weights, Vec<String>)> {
    let given = Path::new(&config.train.init_from);
    let path = if given.is_dir() { given.join("model.safetensors") } else { given.to_path_buf() };
    let arrays = named(read_arrays(&path)?, "");
    foreign::beginning(network, &arrays, config.train.seed).map_err(|e| e.at(&path))
}

/// The weights of a run: the last (or, when `best`, those of the best probe), or those of the newest checkpoint of a run that
/// is not finished. Also returns the round and epoch that they last learned in, where they have, and the file's name.
pub fn read_model(run: &RunFolder, config: &Config, best: bool) -> Result<(Network, Weights, Option<At>, String)> {
    let network = Network::new(&config.network, image_side(config))?;
    let name = if best { "model-best.safetensors" } else { "model.safetensors" };
    let path = run.file(name);
    if best && !path.exists() {
        return Err(Error::file(
            format!("{} is not there yet", path.display()),
            "leave out --best: only runs with labels have a best probe, and only once they were probed",
        ));
    }
    if path.exists() {
        let file = Tensors::<ModelCard>::read(&path)?;
        let weights = network.from_named(&named(file.arrays, "")).map_err(|e| e.at(&path))?;
        let learned = (config.train.rounds > 0).then_some((file.about.round, file.about.epoch));
        return Ok((network, weights, learned, name.to_string()));
    }
    let Some(newest) = run.checkpoints()?.pop() else {
        return Err(Error::file(
            format!("{} has no weights yet", run.path().display()),
            "train it further with --resume",
        ));
    };
    let file = Tensors::<Progress>::read(&newest)?;
    let weights = network.from_named(&named(file.arrays, "model/")).map_err(|e| e.at(&newest))?;
    let name = newest.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    Ok((network, weights, file.about.learned(config.train.epochs), name))
}

/// The clean views that `card` describes, and the short side to which larger photographs are shrunk before.
pub fn card_views(card: &ModelCard) -> (Augmenter, usize) {
    let augmenter = Augmenter {
        size: card.size,
        margin: card.margin as f32,
        mean: card.mean.map(|x| x as f32),
        std: card.std.map(|x| x as f32),
        recipe: config::Recipe::default(),
    };
    (augmenter, card.stored.unwrap_or(usual_stored_side(card.size)))
}

/// The snapshots of a run, in the order of time: file name and weights.
pub fn read_snapshots(run: &RunFolder, config: &Config) -> Result<Vec<(String, Weights)>> {
    let network = Network::new(&config.network, image_side(config))?;
    let entries = std::fs::read_dir(run.file("snapshots")).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "safetensors"));
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let file = Tensors::<ModelCard>::read(path)?;
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Ok((name, network.from_named(&named(file.arrays, ""))?))
    };
    paths.iter().map(read).collect()
}

fn normalisation(config: &Config) -> ([f64; 3], [f64; 3]) {
    (config.data.mean.or([0.0; 3]), config.data.std.or([1.0; 3]))
}

/// The views that `config` describes.
pub fn augmenter(config: &Config) -> Augmenter {
    let (mean, std) = normalisation(config);
    Augmenter {
        size: image_side(config),
        margin: config.data.margin as f32,
        mean: mean.map(|x| x as f32),
        std: std.map(|x| x as f32),
        recipe: config.augment.clone(),
    }
}
