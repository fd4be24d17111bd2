//! A run put together: settings, data, network and folder.

use super::State;
use super::{checkpoints, plus};
use crate::config::{FeatureKind, Resolved, System};
use crate::data::Dataset;
use crate::data::loader::{Draw, Loader, Part, View};
use crate::evaluate::Probe;
use crate::evaluate::heatmap::heat;
use crate::method::{self, At, Memory, Method, Plan, pcp};
use crate::model::classifier::Classifier;
use crate::model::{Extractor, ModelCard, Network, Weights, named_arrays, whitening, whitening_arrays};
use crate::observe::Observer;
use crate::patches::PatchModelSettings;
use crate::run::{About, Bound, RunFolder, Warning, WarningRecord};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::is_there;
use pcp_core::io::tensors::{Array, Tensors};
use pcp_core::matrix::Matrix;
use pcp_core::neighbours::accuracy;
use pcp_core::peers::Team;
use pcp_core::purify::{History, Purified};
use pcp_core::readout::Readout;
use pcp_core::rng::Purpose;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Images whose heat maps a run keeps.
const HEATED: usize = 48;
/// Images that a readout is learned from at the most.
const READ_OUT: usize = 20_000;

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
    /// Is told what happens, and can cancel it.
    pub observer: Arc<dyn Observer>,
    /// Patch features of the training images, once a system that begins with them has computed them.
    pub(super) patch_features: OnceLock<Arc<Matrix>>,
}

impl Setup {
    /// Puts a run together.
    pub fn new(
        config: Resolved,
        dataset: impl Into<Arc<Dataset>>,
        run: RunFolder,
        about: About,
        observer: Arc<dyn Observer>,
    ) -> Result<Setup> {
        let dataset = dataset.into();
        let mut network = Network::new(&config.network, config.data.size)?.with_precision(config.train.precision);
        network.sync_norm = config.train.sync_norm;
        let network = Arc::new(network);
        let loader = Loader::new(dataset.clone(), config.augmenter());
        let probe = Probe::new(dataset.clone(), loader.clone(), &config);
        let method = method::of(config.method.system);
        let plan = Arc::new(Plan::new(config, dataset)?);
        Ok(Setup { plan, method, loader, network, probe, run, about, observer, patch_features: OnceLock::new() })
    }

    /// The processes that train together.
    pub fn team(&self) -> &Team {
        &self.plan.dataset.team
    }

    /// The run's folder, if this process writes there: one of them does.
    pub(super) fn run_to_write(&self) -> Option<&RunFolder> {
        self.team().leads().then_some(&self.run)
    }

    /// Ends here, in all processes, where one of them is to stop.
    pub(super) fn stop_together(&self) -> Result<()> {
        self.team().agree_to_stop(self.cancel());
        self.cancel().check()
    }

    /// An error unless all processes are at the same place with the same weights: everything else follows from these.
    pub(super) fn agree_on(&self, state: &State) -> Result<()> {
        if !self.team().several() {
            return Ok(());
        }
        self.stop_together()?;
        let (round, epoch) = state.at();
        self.team().agree("state", format!("{round} {epoch} {}", state.weights.digest()).as_bytes())
    }

    /// The flag that cancels the run.
    pub fn cancel(&self) -> &Cancel {
        self.observer.cancel()
    }

    /// The random views of every image in the epoch `at`.
    pub(super) fn views(&self, at: At) -> Vec<View> {
        let random = self.plan.key(Purpose::View, at);
        (0..self.method.views(&self.plan, at) as u32).map(|view| View::Random(random, view)).collect()
    }

    /// Warns of what is unusual about this run before it begins.
    pub fn warn_beforehand(&self) {
        let images = self.plan.samples();
        let batch = self.plan.config.train.batch;
        if !self.plan.dataset.bad.is_empty() {
            self.warn(None, Warning::BadFiles { count: self.plan.dataset.bad.len() });
        }
        if images < batch && self.plan.config.train.rounds > 0 {
            self.warn(None, Warning::FewerThanBatch { images, batch });
        }
        let clusters = self.plan.config.method.system == System::Pcp;
        if clusters && self.plan.schedule.all_instances(self.plan.schedule.floor) {
            self.warn(None, Warning::NothingToCluster);
        }
        let each = batch.min(images) * self.method.views(&self.plan, (0, 0))
            / self.method.parts(&self.plan, (0, 0), batch.min(images)).max(1);
        if self.team().several() && each < self.team().count() && self.plan.config.train.rounds > 0 {
            self.warn(None, Warning::Undivided { rows: each, processes: self.team().count() });
        }
        if let Some(probe) = &self.probe
            && probe.available() < self.plan.config.evaluate.k
        {
            self.warn(None, Warning::FewerThanK { images: probe.available(), k: self.plan.config.evaluate.k });
        }
    }

    /// Warns where this program or machine differs from those that the run began with.
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
            self.warn(None, Warning::OtherOrigin { what: what.join("; ") });
        }
    }

    /// Bytes that grow with every training image, besides its pixels.
    pub fn memory_per_image(&self) -> f64 {
        bytes_per_image(&self.plan, &self.network, self.team().count())
    }

    /// Bytes that the run will hold: images, bank with features, network with one step.
    pub fn memory(&self) -> [f64; 3] {
        let images = &self.plan.dataset.train.images;
        let pixels = images.bytes() + self.plan.dataset.test.as_ref().map_or(0, |t| t.images.bytes());
        let views = self.method.views(&self.plan, (0, 0));
        let shown = self.plan.config.train.batch.min(images.len()).div_ceil(self.team().count()) * views;
        let vectors = self.vector_bytes(self.team().count());
        [pixels as f64, vectors, training_bytes(&self.network, shown, usize::from(self.method.has_key_encoder()))]
    }

    /// Bytes of bank and features that each of so many processes will hold.
    pub(super) fn vector_bytes(&self, processes: usize) -> f64 {
        // At the end, pixels are compared with each other: more where images are many, but bounded.
        let compared = self.probe.as_ref().map_or(0, Probe::pixel_bytes) as f64;
        (bytes_per_image(&self.plan, &self.network, processes) * self.plan.samples() as f64).max(compared)
    }

    /// What the checkpoints of the run belong to.
    pub(super) fn bound(&self) -> Bound {
        Bound::new(self.plan.config.entries(), &self.about.fingerprint)
    }

    /// The newest checkpoint's state, or the beginning.
    pub fn restore(&self) -> Result<State> {
        checkpoints::restore(self)
    }

    /// The beginning.
    pub fn begin(&self) -> Result<State> {
        let mut state = State::new(&self.network, self.initial()?, self.method, &self.plan);
        if let Memory::Fixed(bank) = &mut state.memory {
            let started = Instant::now();
            Arc::make_mut(bank).rows = plus::first_features(self)?;
            state.progress.seconds = started.elapsed().as_secs_f64();
        }
        Ok(state)
    }

    /// The weights that the run begins with. Those from elsewhere are kept in the run folder, so that it can go on without
    /// the file that they came from.
    pub fn initial(&self) -> Result<Weights> {
        let train = &self.plan.config.train;
        if train.init_from.is_empty() {
            return Ok(self.network.init(train.seed));
        }
        let kept = self.run.initial_weights();
        if is_there(&kept)? {
            return self.network.from_named(&named_arrays(Tensors::<ModelCard>::read(&kept)?.arrays, ""));
        }
        let adopted = self.network.adopt(Path::new(&train.init_from), train.seed)?;
        if let Some(run) = self.run_to_write() {
            run.log(&format!("begins with {}: {}", train.init_from, adopted.summary()));
            let arrays = self.network.arrays(&adopted.weights);
            Tensors { about: ModelCard::of_run(&self.plan.config, (0, 0)), arrays }.write(&kept)?;
        }
        Ok(adopted.weights)
    }

    /// Tells a warning to the observer and the run folder; `at` is the epoch that it is about, where it is about one.
    pub(super) fn warn(&self, at: Option<At>, warning: Warning) {
        self.observer.warn(&warning);
        if let Some(run) = self.run_to_write() {
            run.warn(&WarningRecord { at, warning });
        }
    }

    /// SGD when the share `done` of the epoch is done.
    pub(super) fn sgd(&self, epoch: u32, done: f64) -> kernels::Sgd {
        let t = &self.plan.config.train;
        kernels::Sgd {
            lr: self.plan.schedule.lr_within(epoch, done),
            momentum: t.momentum as f32,
            decay: t.weight_decay as f32,
            nesterov: t.nesterov,
        }
    }

    /// Clusters and purifies the features of all training images, and writes the clusters of the run; `part` is what the observer is told.
    pub(super) fn write_clusters(
        &self,
        part: &'static str,
        features: &Arc<Matrix>,
        history: History,
    ) -> Result<(Vec<u32>, Purified)> {
        self.observer.begin(part, self.final_steps());
        let (plan, features, observer) = (self.plan.clone(), features.clone(), self.observer.clone());
        let (labels, purified) = self.cancel().run(move || {
            pcp::final_clusters(&plan, &features, &history, &mut |_| {
                observer.advance(1);
                observer.cancel().check()
            })
        })??;
        if let Some(run) = self.run_to_write() {
            run.write_final_clusters(&self.plan.dataset, &labels, &purified)?;
        }
        Ok((labels, purified))
    }

    /// Assignments that the final clustering makes.
    pub(super) fn final_steps(&self) -> usize {
        let c = &self.plan.config.clusters;
        (c.iterations + 1) * c.runs as usize
    }

    /// Features of all training images.
    pub(super) fn embed(&self, weights: &Weights, view: View, kind: FeatureKind) -> Result<Matrix> {
        self.features(weights, Part::Train, view, kind)
    }

    /// Features of all images of `part`.
    pub(super) fn features(&self, weights: &Weights, part: Part, view: View, kind: FeatureKind) -> Result<Matrix> {
        let on_images = |n| self.observer.advance(n);
        let extractor = Extractor { network: &self.network, weights, cancel: self.cancel(), on_images: &on_images };
        extractor.all(&self.loader, part, view, kind)
    }

    /// The classifier by labels, where the system learns by them.
    fn label_classifier<'a>(&self, state: &'a State) -> Option<&'a Classifier> {
        let supervised = self.plan.config.method.system == System::Supervised;
        if supervised { state.memory.classifier().ok() } else { None }
    }

    /// Accuracy of the classifier on the test images in percent, when the system learns by labels and there are any.
    pub(super) fn classify(&self, state: &State) -> Result<Option<f64>> {
        let test = self.plan.dataset.test.as_ref().and_then(|test| test.labels.as_ref());
        let (Some(classifier), Some(truth)) = (self.label_classifier(state), test) else { return Ok(None) };
        self.observer.begin("kNN probe", truth.of.len());
        let features = self.features(&state.weights, Part::Test, View::Clean, FeatureKind::Pooled)?;
        Ok(Some(accuracy(&classifier.predict(&features), &truth.of)))
    }

    /// kNN accuracy of `weights`, when there are labels.
    pub(super) fn probe(&self, weights: &Weights) -> Result<Option<f64>> {
        let Some(probe) = &self.probe else { return Ok(None) };
        self.observer.begin("kNN probe", probe.images());
        probe.network(&self.network, weights, self.cancel(), &|n| self.observer.advance(n)).map(Some)
    }

    /// kNN accuracy of the pooled features of `weights`, when there are labels.
    pub(super) fn probe_features(&self, weights: &Weights, kind: FeatureKind) -> Result<Option<f64>> {
        let Some(probe) = &self.probe else { return Ok(None) };
        self.observer.begin("kNN probe", probe.images());
        let probe = probe.with_features(kind);
        probe.network(&self.network, weights, self.cancel(), &|n| self.observer.advance(n)).map(Some)
    }

    /// kNN accuracy of the pixels, when there are labels.
    pub(super) fn probe_pixels(&self) -> Result<Option<f64>> {
        self.probe.as_ref().map(|probe| probe.pixels(self.cancel())).transpose()
    }

    /// The readout that whitens the pooled features, learned from the training images, or from some of very many.
    pub(super) fn whitening(&self, weights: &Weights) -> Result<Readout> {
        let n = self.plan.samples();
        let read = n.min(READ_OUT);
        let rows: Vec<usize> = (0..read).map(|i| i * n / read).collect();
        self.observer.begin("readout", rows.len());
        let extractor = Extractor {
            network: &self.network,
            weights,
            cancel: self.cancel(),
            on_images: &|n| self.observer.advance(n),
        };
        let pooled = extractor.rows(&self.loader, Part::Train, &rows, View::Clean, FeatureKind::Pooled)?;
        self.cancel().run(move || whitening(&pooled))?
    }

    /// Writes where the network looks in a few of the images.
    pub(super) fn write_heat(&self, weights: &Weights) -> Result<()> {
        let Some(run) = self.run_to_write() else { return Ok(()) };
        let n = self.plan.samples();
        let shown = n.min(HEATED);
        let rows: Vec<usize> = (0..shown).map(|i| i * n / shown).collect();
        let (loader, network, weights) = (self.loader.clone(), self.network.clone(), weights.clone());
        let draws = Draw::first(&rows);
        let heats = self
            .cancel()
            .run(move || Ok(heat(&network, &weights, &loader.batch(Part::Train, &draws, &[View::Clean])?)))??;
        run.write_heat(
            &rows,
            heats.first().map_or(0, |h| h.side),
            &heats.iter().flat_map(|h| h.values.clone()).collect::<Vec<_>>(),
        )
    }

    /// Writes the weights with a card that describes them, and, where the system learns by labels, its classifier.
    pub(super) fn save_model(
        &self,
        state: &State,
        weights: &Weights,
        (round, epoch): (u32, u32),
        path: &Path,
    ) -> Result<()> {
        if self.run_to_write().is_none() {
            return Ok(());
        }
        let mut about = ModelCard::of_run(&self.plan.config, (round, epoch));
        let mut arrays = self.network.arrays(weights);
        if let Some(combination) = weights.combination() {
            about.combination = Some(combination.card.clone());
            arrays.extend(combination.arrays());
        }
        if let Some(readout) = weights.readout() {
            arrays.extend(whitening_arrays(readout));
        }
        if let Some(c) = self.label_classifier(state) {
            let shape = vec![c.weight.rows, c.weight.dim];
            arrays.insert("head.weight".into(), Array::F32(shape, c.weight.values.clone()));
            arrays.insert("head.bias".into(), Array::F32(vec![c.bias.len()], c.bias.clone()));
        }
        Tensors { about, arrays }.write(path)
    }
}

/// Bytes of weights, gradients, momentum and `more` copies of the weights, and of a step that is shown so many views. A step
/// peaks at about three times the outputs of its convolutions (measured: 2.7 to 2.9 times in f32, 3.1 to 3.2 times in bf16): what
/// they give, what batch norm makes of it, gradients, and room to work in.
pub(super) fn training_bytes(network: &Network, shown: usize, more: usize) -> f64 {
    let maps = (network.precision.bytes() * network.map_floats() * shown) as f64;
    4.0 * (3 + more) as f64 * network.parameter_count() as f64 + 3.2 * maps
}

/// Refuses a run that has no room to train in the memory that is free, as far as that is known. Its images are in memory already.
pub fn check_room(network: &Network, plan: &Plan, free: Option<u64>) -> Result<()> {
    let (method, images) = (method::of(plan.config.method.system), plan.samples());
    let team = &plan.dataset.team;
    let shown = plan.config.train.batch.min(images).div_ceil(team.count()) * method.views(plan, (0, 0));
    let one = training_bytes(network, shown, usize::from(method.has_key_encoder()))
        + bytes_per_image(plan, network, team.count()) * images as f64;
    let needed = one * team.on_this_machine() as f64;
    match free {
        Some(free) if plan.config.train.rounds > 0 && needed > free as f64 => Err(Error::usage(
            format!(
                "training this network takes {:.1} GB of memory, and {:.1} GB are free",
                needed / 1e9,
                free as f64 / 1e9
            ),
            "give a smaller `network.width`, `train.batch` or `data.size`",
        )),
        _ => Ok(()),
    }
}

/// Bytes of each of so many processes that grow with every training image, besides its pixels: its share of the bank, features, the
/// embeddings of a probe, the history of clusters, and the image's name, place and marks.
fn bytes_per_image(plan: &Plan, network: &Network, processes: usize) -> f64 {
    const MARKS: usize = 400;
    // Patch features, pooled features, and the embedding of both, where they are put side by side.
    let both = match method::of(plan.config.method.system).reads_out() {
        true => 2 * (network.pooled + PatchModelSettings::MOST_COMPONENTS),
        false => 0,
    };
    let embedding = plan.config.network.embedding;
    let bank = (embedding * 4) as f64 / processes as f64;
    bank + ((2 * embedding + both) * 4 + 4 * plan.schedule.history + MARKS) as f64
}
