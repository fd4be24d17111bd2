//! Resolving: from the settings that users write to those that a run uses. Every `"auto"` becomes a value for the data set, and
//! everything is checked.

use super::*;
use crate::data::augment::Augmenter;
use crate::data::{Dataset, Load, Source};
use crate::decisions;
use pcp_core::peers::Team;
use pcp_core::schedule::{Schedule, probe_interval};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// The settings that a run uses: complete and checked. Made by [`Config::resolve`], written to `config.toml`, read back by
/// [`Resolved::read`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resolved {
    /// The images.
    pub data: DataSettings<usize, [f64; 3]>,
    /// The training views.
    pub augment: AugmentSettings,
    /// The network.
    pub network: NetworkSettings,
    /// Epochs, optimiser and seed.
    pub train: TrainSettings<Precision>,
    /// Number of clusters, and k-means.
    pub clusters: ClusterSettings<usize>,
    /// Purification of clusters.
    pub purify: PurifySettings<usize, f64>,
    /// The losses and the memory bank.
    pub objective: ObjectiveSettings,
    /// The training system.
    pub method: MethodSettings,
    /// Settings of AND only.
    pub and: AndSettings,
    /// Settings of LA only.
    pub la: LaSettings,
    /// Settings of DeepCluster only.
    pub deepcluster: DeepClusterSettings,
    /// Settings of MoCo only.
    pub moco: MocoSettings,
    /// Settings of BYOL only.
    pub byol: ByolSettings,
    /// Settings of EMP-SSL only.
    pub emp: EmpSettings,
    /// Settings of PCP+ only.
    pub plus: PlusSettings,
    /// The kNN probe.
    pub evaluate: EvaluateSettings<u32>,
    /// Snapshots and checkpoints.
    pub run: RunSettings,
}

/// The short side to which photographs are shrunk when read, for images of `size` pixels.
pub fn usual_stored_side(size: usize) -> usize {
    (size as f64 * 256.0 / 224.0).round() as usize
}

/// The short side that photographs are stored with by `minutes` and by commands without training, unless there are too many for the memory: enough
/// for the largest networks that `minutes` chooses, and for sharp crops and thumbnails. It is one number, so that these commands share the cache of shrunk photographs.
pub const PHOTOGRAPH_SIDE: usize = 146;

impl Config {
    /// The side of the network's input images.
    pub fn image_side(&self) -> usize {
        self.data.size.or(match (self.network.arch, self.data.source.as_str()) {
            (Arch::Alexnet224, _) => 224,
            // Small, so that a network learns from them in a minute; patches need no more time for photographs as they are.
            (_, "bundled") if self.method.system != System::Patches => 32,
            (_, "cifar10" | "cifar100") => 32,
            _ => 64,
        })
    }

    /// The short side to which photographs are shrunk when read; 0 keeps them as they are.
    fn stored_side(&self) -> usize {
        self.data.stored.or(usual_stored_side(self.image_side()))
    }

    /// The request for loading the images; it needs no resolved settings.
    pub fn load_request(&self) -> Result<Load> {
        let d = &self.data;
        Ok(Load {
            source: Source::parse(&d.source)?,
            data_dir: (!d.dir.is_empty()).then(|| d.dir.clone().into()),
            limit: (d.limit > 0).then_some(d.limit),
            stored_side: Some(self.stored_side()).filter(|side| *side > 0),
            labels: d.labels,
            cache: d.cache,
            strict: d.strict,
            decided: match d.decisions.as_str() {
                "" => None,
                path => Some(Arc::new(decisions::read(Path::new(path))?)),
            },
            team: Team::default(),
        })
    }

    /// The settings of a run on `dataset`; an error if they cannot work with it.
    pub fn resolve(self, dataset: &Dataset) -> Result<Resolved> {
        if self.method.system == System::Supervised && dataset.train.labels.is_none() {
            return Err(Error::data(
                format!("{} has no labels, and supervised training needs them", dataset.name),
                "put the images into one folder per class, or choose a system that needs no labels",
            ));
        }
        let shown = |x: f32| (f64::from(x) * 1e6).round() / 1e6;
        let precision = self.train.precision.resolve()?;
        self.complete(dataset.train.images.len(), precision, || {
            let (mean, std) = dataset.mean_std();
            Ok([mean.map(shown), std.map(shown)])
        })
    }

    /// Every `"auto"` replaced by a value for `samples` training images; `mean_std` is called only if the mean or the deviation is `"auto"`.
    fn complete(
        self,
        samples: usize,
        precision: Precision,
        mean_std: impl FnOnce() -> Result<[[f64; 3]; 2]>,
    ) -> Result<Resolved> {
        let Schedule { floor, history, lower, upper, .. } = self.schedule(samples)?;
        let (size, stored) = (self.image_side(), self.stored_side());
        let every = self.evaluate.every.or(probe_interval(self.train.epochs));
        let (d, c, p, e) = (self.data, self.clusters, self.purify, self.evaluate);
        let [mean, std] = match (d.mean, d.std) {
            (Auto::Value(mean), Auto::Value(std)) => [mean, std],
            (mean, std) => {
                let [of_images, deviation] = mean_std()?;
                [mean.or(of_images), std.or(deviation)]
            }
        };
        let resolved = Resolved {
            data: d.with(size, stored, mean, std),
            augment: self.augment,
            network: self.network,
            train: self.train.with(precision),
            clusters: c.with(floor),
            purify: p.with(history, lower, upper),
            objective: self.objective,
            method: self.method,
            and: self.and,
            la: self.la,
            deepcluster: self.deepcluster,
            moco: self.moco,
            byol: self.byol,
            emp: self.emp,
            plus: self.plus,
            evaluate: e.with(every),
            run: self.run,
        };
        resolved.check()?;
        Ok(resolved)
    }
}

impl Resolved {
    /// Reads the `config.toml` of a run folder. Keys that an older version did not write have their defaults; those that depend on
    /// the data must be present.
    pub fn read(path: &Path) -> Result<Resolved> {
        let config = Config::read(path)?;
        let open = |key: &str| {
            let message = format!("{}: {key} is not a number", path.display());
            Error::file(message, "restore the file or start a new run")
        };
        let Auto::Value(floor) = config.clusters.floor else { return Err(open("clusters.floor")) };
        // The other values do not depend on the number of images, which is not known here: the floor is the least that is valid.
        let precision = config.train.precision.written();
        config.complete(floor, precision, || Err(open("data.mean or data.std")))
    }

    /// The request for loading the images.
    pub fn load_request(&self) -> Result<Load> {
        Config::from(self.clone()).load_request()
    }

    /// The schedule for `samples` training images.
    pub fn schedule(&self, samples: usize) -> Result<Schedule> {
        Config::from(self.clone()).schedule(samples)
    }

    /// The augmenter with these settings.
    pub fn augmenter(&self) -> Augmenter {
        let most = if self.method.system == System::Plus { self.plus.hue } else { 0.5 };
        Augmenter {
            size: self.data.size,
            margin: self.data.margin as f32,
            mean: self.data.mean.map(|x| x as f32),
            std: self.data.std.map(|x| x as f32),
            recipe: AugmentSettings { hue: self.augment.hue.min(most), ..self.augment.clone() },
        }
    }

    /// An error for values out of range; it names the key and the range.
    pub fn check(&self) -> Result<()> {
        Config::from(self.clone()).check()
    }

    /// The settings as a TOML table.
    pub fn to_table(&self) -> Table {
        table(self)
    }

    /// Every setting as `section.key` with its value.
    pub fn entries(&self) -> Vec<(String, Value)> {
        entries(self.to_table())
    }
}

// Each section with its open values replaced: what a user writes becomes what a run uses, and the other way round.

impl<A, B> DataSettings<A, B> {
    fn with<S, C>(self, size: S, stored: S, mean: C, std: C) -> DataSettings<S, C> {
        let DataSettings { source, dir, limit, margin, labels, cache, strict, decisions, .. } = self;
        DataSettings { source, dir, limit, size, margin, stored, labels, mean, std, cache, strict, decisions }
    }
}

impl<A> TrainSettings<A> {
    fn with<P>(self, precision: P) -> TrainSettings<P> {
        TrainSettings {
            seed: self.seed,
            rounds: self.rounds,
            epochs: self.epochs,
            batch: self.batch,
            lr: self.lr,
            lr_schedule: self.lr_schedule,
            lr_steps: self.lr_steps,
            momentum: self.momentum,
            nesterov: self.nesterov,
            sync_norm: self.sync_norm,
            parts: self.parts,
            weight_decay: self.weight_decay,
            precision,
            init_from: self.init_from,
        }
    }
}

impl<A> ClusterSettings<A> {
    fn with<F>(self, floor: F) -> ClusterSettings<F> {
        ClusterSettings {
            floor,
            progressive: self.progressive,
            features: self.features,
            instances_from: self.instances_from,
            iterations: self.iterations,
            spherical: self.spherical,
            runs: self.runs,
            warm_start: self.warm_start,
            search: self.search,
        }
    }
}

impl<A, B> PurifySettings<A, B> {
    fn with<H, T>(self, history: H, lower: T, upper: T) -> PurifySettings<H, T> {
        PurifySettings {
            gamma: self.gamma,
            alpha: self.alpha,
            history,
            lower,
            upper,
            votes: self.votes,
            reliable_from: self.reliable_from,
            stable_from: self.stable_from,
            stable_from_later: self.stable_from_later,
            small: self.small,
            small_until: self.small_until,
            stop_at_first_single: self.stop_at_first_single,
        }
    }
}

impl<A> EvaluateSettings<A> {
    fn with<E>(self, every: E) -> EvaluateSettings<E> {
        EvaluateSettings { every, k: self.k, tau: self.tau, features: self.features }
    }
}

/// Settings without `"auto"`.
impl From<Resolved> for Config {
    fn from(resolved: Resolved) -> Config {
        let Resolved { data: d, clusters: c, purify: p, evaluate: e, .. } = resolved;
        let (size, stored, mean, std) = (d.size, d.stored, d.mean, d.std);
        let precision = resolved.train.precision.into();
        let (floor, history, lower, upper, every) = (c.floor, p.history, p.lower, p.upper, e.every);
        Config {
            data: d.with(Auto::Value(size), Auto::Value(stored), Auto::Value(mean), Auto::Value(std)),
            augment: resolved.augment,
            network: resolved.network,
            train: resolved.train.with(precision),
            clusters: c.with(Auto::Value(floor)),
            purify: p.with(Auto::Value(history), Auto::Value(lower), Auto::Value(upper)),
            objective: resolved.objective,
            method: resolved.method,
            and: resolved.and,
            la: resolved.la,
            deepcluster: resolved.deepcluster,
            moco: resolved.moco,
            byol: resolved.byol,
            emp: resolved.emp,
            plus: resolved.plus,
            evaluate: e.with(Auto::Value(every)),
            run: resolved.run,
        }
    }
}
