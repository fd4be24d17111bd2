//! A trial: seconds of the parts of a run on this machine, measured by a few steps, and what the epochs of a run take by them.

use super::forecast::Ahead;
use super::{Setup, State, batch_stream, checkpoints, find_targets, patch_run, plus, step};
use crate::config::{ClusterFeatures, FeatureKind, System};
use crate::data::loader::{Draw, Part, View};
use crate::method::{At, EpochTargets, Memory, Method, Plan};
use crate::patches::PatchModel;
use pcp_core::error::Result;
use pcp_core::kmeans::assign;
use pcp_core::matrix::Matrix;
use pcp_core::neighbours::nearest;
use pcp_core::rng::{Key, Purpose};
use std::sync::Arc;
use std::time::Instant;

/// Steps that are timed at the least, after one that is not.
const STEPS: usize = 3;
/// Steps of a trial at the most.
const MOST: usize = 100;
/// Images that are embedded to time one.
const EMBEDDED: usize = 256;
/// Rows and centroids that are compared to time a comparison.
const COMPARED: (usize, usize) = (8192, 512);
/// Queries of a short and of a long search, and rows that are searched, to time one pair.
const SEARCHED: ([usize; 2], usize) = ([480, 1440], 4096);
/// Numbers of a row that are compared to time a pair; of longer rows, a pair takes longer in proportion.
const LONGEST: usize = 3072;

/// Seconds of the parts of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Learning of patches, where the system has some. What was learned is kept in the run folder.
    pub learn: f64,
    /// From then on until the first epoch.
    pub begin: f64,
    /// A training step: in the first epoch, and in the last.
    pub step: [f64; 2],
    /// A checkpoint.
    save: f64,
    /// The embedding of one image.
    pub embed: f64,
    /// The patch features of one image, where the system reads them out; else 0.
    patches: f64,
    /// Numbers of an embedding of the run.
    pub dim: usize,
    /// The comparison of a row with a centroid.
    comparison: f64,
    /// The search of a neighbour: a pair of embeddings, of pooled features, and of images pixel by pixel; 0 without a probe.
    pairs: [f64; 3],
}

impl Trial {
    /// Times the parts of `setup`; its steps for `least` seconds or longer. Nothing stays but patches that were learned.
    pub fn new(setup: &Setup, least: f64) -> Result<Trial> {
        if setup.plan.config.method.system == System::Patches {
            return Self::of_patches(setup);
        }
        let (plan, train) = (&setup.plan, &setup.plan.config.train);
        let last = (train.rounds.saturating_sub(1), train.epochs.saturating_sub(1));
        let began = Instant::now();
        let (mut state, patches) = match setup.method.reads_out() {
            true => {
                // Patch features of some images are timed; the bank is made up.
                let model = plus::patch_model(setup)?;
                let mut state = State::new(&setup.network, setup.initial()?, setup.method, plan);
                if let Memory::Fixed(bank) = &mut state.memory {
                    Arc::make_mut(bank).rows = made_up(plan.samples(), setup.network.embedding);
                }
                (state, Some(model))
            }
            false => (setup.begin()?, None),
        };
        let learn = began.elapsed().as_secs_f64();
        let embedding = plan.config.network.embedding;
        // Patches and network side by side.
        let dim = patches.as_ref().map_or(embedding, |model| model.dim() + setup.network.pooled.min(embedding));
        let patches = patches.map(|model| patch_seconds(setup, &model)).transpose()?.unwrap_or(0.0);
        let step = match (train.rounds > 0, setup.method.views(plan, (0, 0)) == setup.method.views(plan, last)) {
            (false, _) => [0.0; 2],
            (true, true) => [step_seconds(setup, &mut state, (0, 0), least)?; 2],
            (true, false) => {
                let first = step_seconds(setup, &mut state, (0, 0), least)?;
                [first, step_seconds(setup, &mut state, last, least)?]
            }
        };
        let pairs = pairs(setup, [dim, setup.network.dim(FeatureKind::Pooled)]);
        let save = save_seconds(setup, &state)?;
        let comparison = comparison(dim);
        let clusters = if patches > 0.0 { cluster_seconds(setup, plan, comparison) } else { 0.0 };
        let begin = patches * plan.samples() as f64 + clusters;
        Ok(Trial { learn, begin, step, save, embed: embed_seconds(setup)?, patches, dim, comparison, pairs })
    }

    /// The same of a run of clusters of patches, which has no network and no epochs.
    fn of_patches(setup: &Setup) -> Result<Trial> {
        let began = Instant::now();
        let model = patch_run::model(setup)?;
        let (learn, dim) = (began.elapsed().as_secs_f64(), model.dim());
        let patches = patch_seconds(setup, &model)?;
        let [embeddings, _, pixels] = pairs(setup, [dim; 2]);
        Ok(Trial {
            learn,
            begin: patches * setup.plan.samples() as f64,
            step: [0.0; 2],
            save: 0.0,
            embed: 0.0,
            patches,
            dim,
            comparison: comparison(dim),
            pairs: [embeddings, 0.0, pixels],
        })
    }

    /// What every epoch of `plan` takes, by `method` and with the probe of `setup`.
    pub fn epochs(&self, setup: &Setup, plan: &Plan) -> Vec<Ahead> {
        if plan.config.method.system == System::Patches {
            return Vec::new();
        }
        let (schedule, train, n) = (&plan.schedule, &plan.config.train, plan.samples());
        let method: &dyn Method = setup.method;
        let first = method.views(plan, (0, 0));
        let ahead = |at: At| {
            let step = if method.views(plan, at) == first { self.step[0] } else { self.step[1] };
            let needed = method.needed_features(plan, at);
            let seen = needed.filter(|needed| needed.view != ClusterFeatures::Bank).map_or(0, |_| n);
            let clusters = schedule.clusters(at.0, at.1);
            let clusters = if needed.is_none() || schedule.all_instances(clusters) { n } else { clusters };
            let assignments = if clusters < n { method.clustering_steps(plan) } else { 0 };
            let probes = schedule.probes(at.1) && !method.reads_out();
            let probed = if probes { self.probe_seconds(setup) } else { 0.0 };
            let seconds = method.steps(plan) as f64 * step
                + seen as f64 * self.embed
                + (assignments * n) as f64 * plan.config.clusters.search.compared(n, clusters) as f64 * self.comparison
                + probed;
            let seconds = seconds + checkpoints::seconds_in_epoch(self.save, seconds);
            Ahead { epoch: schedule.finished_epochs(at.0, at.1), clusters, seconds }
        };
        (0..train.rounds).flat_map(|round| (0..train.epochs).map(move |epoch| (round, epoch))).map(ahead).collect()
    }

    /// What comes after the last epoch, but for the page: embeddings, final clusters and the last probes.
    pub fn end(&self, setup: &Setup, plan: &Plan) -> f64 {
        let n = plan.samples();
        let test = plan.dataset.test.as_ref().map_or(0, |test| test.images.len());
        let clusters = cluster_seconds(setup, plan, self.comparison);
        let [embeddings, pooled, pixels] = self.pairs;
        let probes = self.probe(setup, embeddings) + self.probe(setup, pooled) + self.compared(setup) * pixels;
        let features = match setup.method.reads_out() {
            // Every image and its mirror image. Two more searches.
            true => {
                (n + test) as f64 * 2.0 * self.embed
                    + test as f64 * self.patches
                    + 2.0 * self.compared(setup) * embeddings
            }
            // Once more for the whitening, which is probed, too.
            false => (2 * n + test) as f64 * self.embed + test as f64 * self.patches + self.probe(setup, pooled),
        };
        features + clusters + probes
    }

    /// One probe of the embeddings.
    pub fn probe_seconds(&self, setup: &Setup) -> f64 {
        self.probe(setup, self.pairs[0])
    }

    /// One probe of a network, whose search takes `pair` for a pair of rows.
    fn probe(&self, setup: &Setup, pair: f64) -> f64 {
        let images = setup.probe.as_ref().map_or(0, |probe| probe.images());
        images as f64 * self.embed + self.compared(setup) * pair
    }

    /// Pairs of rows that a probe compares.
    fn compared(&self, setup: &Setup) -> f64 {
        setup.probe.as_ref().map_or(0.0, |probe| probe.queries() as f64 * probe.available() as f64)
    }
}

/// Seconds of a step in the epoch `at`, on made-up features. Its functions are the training loop's own.
fn step_seconds(setup: &Setup, state: &mut State, at: At, least: f64) -> Result<f64> {
    let (plan, method) = (&setup.plan, setup.method);
    (state.progress.round, state.progress.epoch) = at;
    let tap = method.needed_features(plan, at).map_or(method.tap(), |needed| needed.tap);
    let mut found = find_targets(setup, state, made_up(plan.samples(), setup.network.dim(tap)))?;
    state.memory.begin_epoch(&mut found);
    let targets = Arc::new(EpochTargets::new(found, plan.samples()));
    // Small epochs are repeated.
    let batches: Vec<Vec<Draw>> = method.batches(plan, at, &targets).into_iter().take(MOST).collect();
    let batches: Vec<Vec<Draw>> = batches.iter().cycle().take(MOST * batches.len().min(1)).cloned().collect();
    // The first is slower than the others, and is not counted.
    let (mut timed, mut began) = (0, Instant::now());
    for (i, made) in batch_stream(setup, at, batches).enumerate() {
        step(setup, state, &targets, made?)?;
        if i == 0 {
            began = Instant::now();
        }
        timed = i;
        if timed >= STEPS && began.elapsed().as_secs_f64() >= least {
            break;
        }
    }
    Ok(began.elapsed().as_secs_f64() / timed.max(1) as f64)
}

/// Seconds of a checkpoint of `state`, which is not kept.
fn save_seconds(setup: &Setup, state: &State) -> Result<f64> {
    let path = setup.run.file("trial.safetensors");
    let began = Instant::now();
    state.save(&setup.network, &setup.plan, &setup.bound(), &path)?;
    let seconds = began.elapsed().as_secs_f64();
    let _ = std::fs::remove_file(path);
    Ok(seconds)
}

/// Seconds of the patch features of one image.
fn patch_seconds(setup: &Setup, model: &PatchModel) -> Result<f64> {
    let some = setup.plan.dataset.train.images.first(EMBEDDED)?;
    let embed = || -> Result<f64> {
        let began = Instant::now();
        model.embed(&some, &setup.observer)?;
        Ok(began.elapsed().as_secs_f64() / some.len().max(1) as f64)
    };
    // The first time is slower.
    embed()?;
    embed()
}

/// Seconds of a pair in the probes: of features of these two lengths, and of images pixel by pixel; 0 without a probe.
fn pairs(setup: &Setup, [embedding, pooled]: [usize; 2]) -> [f64; 3] {
    let Some(probe) = &setup.probe else { return [0.0; 3] };
    let (k, queries) = (setup.plan.config.evaluate.k, probe.queries());
    [embedding, pooled, 3 * probe.pixel_side().pow(2)].map(|dim| pair(dim, k, queries))
}

/// Seconds of a clustering of all embeddings.
fn cluster_seconds(setup: &Setup, plan: &Plan, comparison: f64) -> f64 {
    let n = plan.samples();
    let compared = plan.config.clusters.search.compared(n, plan.schedule.floor);
    (setup.final_steps() * n) as f64 * compared as f64 * comparison
}

/// Seconds to embed one image.
fn embed_seconds(setup: &Setup) -> Result<f64> {
    let rows: Vec<usize> = (0..setup.plan.samples().min(EMBEDDED)).collect();
    let weights = setup.initial()?;
    let embed = || -> Result<f64> {
        let began = Instant::now();
        let batch = setup.loader.batch(Part::Train, &Draw::first(&rows), &[View::Clean])?;
        setup.network.features(&weights, &batch, setup.method.tap());
        Ok(began.elapsed().as_secs_f64() / rows.len().max(1) as f64)
    };
    // The first time is slower.
    embed()?;
    embed()
}

/// Seconds of the comparison of a row with a centroid.
fn comparison(dim: usize) -> f64 {
    let (rows, centroids) = (made_up(COMPARED.0, dim), made_up(COMPARED.1, dim));
    assign(&rows, &centroids);
    let began = Instant::now();
    assign(&rows, &centroids);
    began.elapsed().as_secs_f64() / (rows.rows * centroids.rows) as f64
}

/// Seconds of a pair of rows in a search for `k` neighbours of so many `queries`. What a search makes once for all of them, in the time of a row of
/// the bank, is found from two searches of different length.
fn pair(dim: usize, k: usize, queries: usize) -> f64 {
    if dim > LONGEST {
        return pair(LONGEST, k, queries) * dim as f64 / LONGEST as f64;
    }
    let ([short, long], rows) = SEARCHED;
    let bank = made_up(rows, dim);
    let seconds = |queries: usize| {
        let queries = made_up(queries, dim);
        let began = Instant::now();
        nearest(&queries, &bank, k, false, &|_| ());
        began.elapsed().as_secs_f64()
    };
    let (a, b) = (seconds(short), seconds(long));
    let each = ((b - a).max(0.0) / (long - short) as f64).max(0.1 * b / long as f64);
    let once = (a - each * short as f64).max(0.0);
    each / rows as f64 + once / (rows * queries.max(1)) as f64
}

/// Random rows of unit length.
fn made_up(rows: usize, dim: usize) -> Matrix {
    let key = Key { purpose: Purpose::Synthetic, seed: 0, round: 0, epoch: 0 };
    let row = |i: usize| {
        let mut stream = key.stream(i as u64, 0);
        (0..dim).map(move |_| stream.normal()).collect::<Vec<f32>>()
    };
    Matrix { rows, dim, values: (0..rows).flat_map(row).collect() }.normalised()
}
