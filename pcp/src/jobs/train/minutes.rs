//! A run that ends in a given number of minutes: trial steps on this machine choose width, image side, epochs and, where even
//! that is too much, the number of images.

use super::trial_folder;
use crate::config::{Arch, Auto, Config, PHOTOGRAPH_SIDE, Resolved, System, usual_stored_side};
use crate::data::{Dataset, Source, count_images, survey};
use crate::jobs::images::read;
use crate::jobs::part::on_pool;
use crate::method::Plan;
use crate::observe::{Expected, Observer, Silent};
use crate::patches::{PatchModel, PatchModelSettings};
use crate::report::page_seconds;
use crate::run::{About, RunFolder};
use crate::train::{Setup, Trial};
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{is_there, read_bytes};
use pcp_core::schedule::probe_interval;
use pcp_core::text::duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// Image sides and widths from the cheapest to the dearest. A side is never larger than the images.
const RUNGS: [(usize, usize); 9] =
    [(32, 16), (48, 16), (64, 16), (64, 24), (64, 32), (64, 48), (96, 48), (96, 64), (128, 64)];
/// Images that an epoch count is wanted to show at the least, and the range of that count: a dearer rung is taken only when it allows
/// so many epochs.
const SHOWN: f64 = 300_000.0;
const WANTED: (f64, f64) = (12.0, 100.0);
/// The most epochs; more bring little.
const MOST_EPOCHS: u32 = 400;
/// With fewer epochs than this, images are left out instead; at least `FEWEST_IMAGES` stay.
fn fewest_epochs(system: System) -> u32 {
    match system {
        // Its patches learn from every image before the first epoch, and its memory bank is made by then.
        System::Plus => 1,
        _ => 5,
    }
}
const FEWEST_IMAGES: usize = 2000;
/// Share of the time that is planned for: the rest is for what a trial does not see.
const PLANNED: f64 = 0.97;
/// Shares of the time that reading and probes may take.
const READING: f64 = 0.35;
const PROBES: f64 = 0.04;
/// What an epoch of PCP takes, in epochs of PCP+: features of all images and clusters of them come before its steps (docs/systems.md).
const PCP_PASSES: f64 = 2.4;
/// Share of the time that the second layer of patches may take; where it takes more, a network makes better use of it.
const SECOND_LAYER: f64 = 0.25;
/// Seconds that it adds to encoding an image of 32 px on two cores without AVX-512.
const SLOW_PACE: f64 = 0.001;
/// Share of the time that timing one rung takes, and its range in seconds.
const TIMED: f64 = 0.005;
const TIMED_SECONDS: (f64, f64) = (0.2, 3.0);

/// The time that a run may take.
#[derive(Clone, Debug)]
pub(super) struct TimeBudget {
    pub minutes: f64,
    /// Whether the caller gave the minutes; otherwise they are the default.
    pub stated: bool,
    /// The system that is trained where the caller named none.
    pub implied: Option<&'static str>,
    /// Settings that the caller gave: they are not changed.
    pub given: BTreeSet<String>,
    pub began: Instant,
}

/// What was chosen.
pub(super) struct Chosen {
    pub config: Resolved,
    pub dataset: Arc<Dataset>,
    /// What was chosen and what more time would bring, for people.
    pub lines: Vec<String>,
    /// What the run will take.
    pub expected: Expected,
    /// The file of the patches that a trial has learned from the same images: the run need not learn them again.
    pub patches: Option<Vec<u8>>,
}

/// A rung that was timed: how many epochs fit, what each takes, and what comes before and after them.
#[derive(Clone)]
struct Timed {
    epochs: u32,
    /// Whether even one does.
    fits: bool,
    /// Epochs between probes.
    every: u32,
    seconds: Vec<f64>,
    before: f64,
    after: f64,
}

impl Timed {
    fn epoch(&self) -> f64 {
        self.seconds.iter().sum::<f64>() / self.seconds.len().max(1) as f64
    }

    /// What is no part of an epoch.
    fn around(&self) -> f64 {
        self.before + self.after
    }
}

impl TimeBudget {
    fn gave(&self, key: &str) -> bool {
        self.given.contains(key)
    }

    /// Seconds of the planned time that are left.
    fn left(&self) -> f64 {
        self.left_of(1.0)
    }

    /// The same, had the caller given `times` the time.
    fn left_of(&self, times: f64) -> f64 {
        PLANNED * times * self.minutes * 60.0 - self.began.elapsed().as_secs_f64()
    }

    /// Before the images are read: the side that they are stored with, and, where reading them all takes too long, how many are read.
    pub fn before_reading(&self, config: &mut Config, source: &Source, observer: &Arc<dyn Observer>) -> Result<()> {
        let Source::Folder(path) = source else { return Ok(()) };
        let chooses_side = config.network.arch == Arch::Resnet18 && !self.gave("data.size");
        if config.data.stored == Auto::AUTO && chooses_side {
            let (path, load) = (path.clone(), config.load_request()?);
            let images = on_pool("a look at the images", 0, observer, move |_| count_images(&path, &load))?;
            let bytes = (PHOTOGRAPH_SIDE * PHOTOGRAPH_SIDE * 9 / 2) as u64 * images as u64;
            let roomy = pcp_core::memory::free().is_none_or(|free| bytes < free / 4);
            config.data.stored = Auto::Value(if roomy { PHOTOGRAPH_SIDE } else { usual_stored_side(64) });
        }
        // With the side that they will have: what the cache holds is read in no time.
        let (path, load) = (path.clone(), config.load_request()?);
        let found = on_pool("a look at the images", 0, observer, move |_| survey(&path, &load))?;
        let affordable = READING * self.minutes * 60.0 / found.seconds_per_image.max(1e-9);
        let learned = (affordable as usize).saturating_sub(found.test);
        if learned < found.train && found.train > FEWEST_IMAGES && !self.gave("data.limit") {
            config.data.limit = learned.max(FEWEST_IMAGES);
        }
        Ok(())
    }

    /// Times some rungs and chooses: the dearest that allows enough epochs, and as many epochs as fit.
    pub fn choose(&self, config: Config, dataset: Arc<Dataset>, observer: &Arc<dyn Observer>) -> Result<Chosen> {
        if config.train.rounds == 0 || config.method.system == System::Patches {
            return Err(Error::usage(
                "`minutes` is for training, and this system trains nothing",
                "leave `minutes` out",
            ));
        }
        let (budget, told) = (self.clone(), observer.clone());
        observer.begin("trial steps", 0);
        let chosen = observer.cancel().run_beside(move || budget.chosen(config, dataset, &told))?;
        observer.end();
        chosen
    }

    fn chosen(&self, mut config: Config, mut dataset: Arc<Dataset>, observer: &Arc<dyn Observer>) -> Result<Chosen> {
        let resolved = config.clone().resolve(&dataset)?.data;
        (config.data.mean, config.data.std) = (Auto::Value(resolved.mean), Auto::Value(resolved.std));
        // Images of files with records are not shrunk; what a rung would say of it must not change the patches.
        config.data.stored = Auto::Value(resolved.stored);
        if config.method.system == System::Plus && !self.gave("plus.second") {
            config.plus.second = self.allows_second_layer(&dataset, observer)?;
        }
        let rungs = self.rungs(&config, &dataset);
        let mut ladder =
            Ladder { budget: self, config: config.clone(), dataset: dataset.clone(), rungs, timed: BTreeMap::new() };
        let (mut at, mut patches) = trial_folder(|run| ladder.climbed(&run, observer))?;
        let fewest = fewest_epochs(config.method.system);
        let fits = ladder.timed[&at].fits && ladder.fitting(at, 1.0) >= f64::from(fewest);
        let many = dataset.train.images.len() > FEWEST_IMAGES;
        let few = many && !fits && !self.gave("data.limit") && !self.gave("train.epochs");
        let alone = config.method.system == System::Plus && !self.gave("train.rounds");
        if few && alone && ladder.timed[&at].around() <= self.left() {
            // The patch features of all images are worth more than a network that has seen a few of them.
            ladder.without_network(at);
        } else if few {
            let share = match config.method.system {
                System::Plus => self.left() / (ladder.timed[&at].around() + ladder.timed[&at].epoch()),
                _ => ladder.fitting(at, 1.0) / f64::from(fewest),
            };
            let fitting = (dataset.train.images.len() as f64 * share.clamp(0.0, 1.0)) as usize;
            config.data.limit = fitting.clamp(FEWEST_IMAGES, dataset.train.images.len());
            // Mean and deviation are those of the images that are left.
            (config.data.mean, config.data.std) = (Auto::AUTO, Auto::AUTO);
            dataset = Arc::new(read(config.load_request()?, observer)?);
            let resolved = config.clone().resolve(&dataset)?;
            (config.data.mean, config.data.std) = (Auto::Value(resolved.data.mean), Auto::Value(resolved.data.std));
            let rungs = vec![ladder.rungs[at]];
            ladder =
                Ladder { config: config.clone(), dataset: dataset.clone(), rungs, timed: BTreeMap::new(), ..ladder };
            (at, patches) = trial_folder(|run| ladder.climbed(&run, observer))?;
            if alone && !ladder.timed[&at].fits {
                ladder.without_network(at);
            }
        }
        let timed = ladder.timed[&at].clone();
        let config = ladder.settings(at, timed.epochs, Some(timed.every))?;
        let lines = ladder.lines(at, &config);
        let expected = Expected { epochs: timed.seconds, after: timed.after };
        Ok(Chosen { config, dataset, lines, expected, patches })
    }

    /// Whether patches have a second layer: by what it takes on a slow machine or, where that is too much, on this one.
    fn allows_second_layer(&self, dataset: &Dataset, observer: &Arc<dyn Observer>) -> Result<bool> {
        let (images, test) = (dataset.train.images.len(), dataset.test.as_ref().map_or(0, |test| test.images.len()));
        let affordable = |pace: f64| second_layer_seconds(images, test, pace) <= SECOND_LAYER * self.left();
        if affordable(SLOW_PACE) {
            return Ok(true);
        }
        let settings = PatchModelSettings::fitting(&dataset.train.images, 0)?;
        Ok(affordable(PatchModel::second_layer_pace(&dataset.train.images, &settings, observer.cancel())?))
    }

    /// The rungs for these settings and images.
    fn rungs(&self, config: &Config, dataset: &Dataset) -> Vec<(usize, usize)> {
        let usual = config.image_side();
        let largest = match config.network.arch {
            Arch::Resnet18 => match dataset.train.images.middle_side().unwrap_or(usual) {
                small @ 0..32 => small.next_multiple_of(8).max(16),
                large => large / 16 * 16,
            },
            Arch::Alexnet | Arch::Alexnet224 => usual,
        };
        let side = |side: usize| match self.gave("data.size") || config.network.arch != Arch::Resnet18 {
            true => usual,
            false => side.min(largest),
        };
        let width = |width: usize| if self.gave("network.width") { config.network.width } else { width };
        let mut rungs: Vec<(usize, usize)> = RUNGS.iter().map(|(s, w)| (side(*s), width(*w))).collect();
        rungs.dedup();
        rungs
    }
}

/// The rungs, and what was timed of them.
struct Ladder<'a> {
    budget: &'a TimeBudget,
    config: Config,
    dataset: Arc<Dataset>,
    rungs: Vec<(usize, usize)>,
    timed: BTreeMap<usize, Timed>,
}

impl Ladder<'_> {
    /// Epochs that a rung must allow.
    fn wanted(&self) -> f64 {
        match self.budget.gave("train.epochs") {
            true => f64::from(self.config.train.epochs),
            false => (SHOWN / self.dataset.train.images.len() as f64).clamp(WANTED.0, WANTED.1),
        }
    }

    /// As [`climb`](Self::climb), with the file of the patches that were learned meanwhile.
    fn climbed(&mut self, run: &RunFolder, observer: &Arc<dyn Observer>) -> Result<(usize, Option<Vec<u8>>)> {
        let at = self.climb(run, observer)?;
        let file = run.patches();
        Ok((at, if is_there(&file)? { Some(read_bytes(&file)?) } else { None }))
    }

    /// Times rungs until the dearest that allows the wanted epochs is among them; returns it, or the cheapest.
    fn climb(&mut self, run: &RunFolder, observer: &Arc<dyn Observer>) -> Result<usize> {
        let mut at = 0;
        loop {
            if self.timed.contains_key(&at) {
                return Ok(at);
            }
            let timed = self.time(at, run, observer)?;
            self.timed.insert(at, timed);
            let wanted = self.wanted();
            at = (0..self.rungs.len()).rev().find(|rung| self.fitting(*rung, 1.0) >= wanted).unwrap_or(0);
        }
    }

    /// Trains no network on the rung `at`.
    fn without_network(&mut self, at: usize) {
        self.config.train.rounds = 0;
        let timed = Timed { epochs: 1, fits: true, every: 1, seconds: Vec::new(), ..self.timed[&at] };
        self.timed.insert(at, timed);
    }

    /// Seconds of an epoch on a rung relative to another, by the usual growth with side and width.
    fn relative(&self, rung: usize, other: usize) -> f64 {
        let cost = |(side, width): (usize, usize)| (side * side) as f64 * (width as f64).powf(1.5);
        cost(self.rungs[rung]) / cost(self.rungs[other])
    }

    /// Epochs that fit on a rung into `times` the time: as timed, or guessed from the nearest that was.
    fn fitting(&self, rung: usize, times: f64) -> f64 {
        let nearest = self.timed.keys().min_by_key(|timed| timed.abs_diff(rung));
        let Some((near, timed)) = nearest.map(|near| (*near, &self.timed[near])) else { return 0.0 };
        let exact = if near == rung && times == 1.0 { f64::from(timed.epochs) } else { f64::INFINITY };
        let epoch = timed.epoch() * self.relative(rung, near);
        exact.min((self.budget.left_of(times) - timed.around()) / epoch.max(1e-9))
    }

    /// The settings of a run on a rung.
    fn settings(&self, rung: usize, epochs: u32, every: Option<u32>) -> Result<Resolved> {
        let mut config = self.config.clone();
        let (side, width) = self.rungs[rung];
        config.data.size = Auto::Value(side);
        config.network.width = width;
        config.train.epochs = if self.budget.gave("train.epochs") { self.config.train.epochs } else { epochs };
        if let (Some(every), Auto::Auto(_)) = (every, config.evaluate.every) {
            config.evaluate.every = Auto::Value(every.min(config.train.epochs).max(1));
        }
        config.resolve(&self.dataset)
    }

    /// Times a rung, and finds how many epochs fit.
    fn time(&mut self, rung: usize, run: &RunFolder, observer: &Arc<dyn Observer>) -> Result<Timed> {
        let silent: Arc<dyn Observer> = Arc::new(Silent(observer.cancel().clone()));
        let rounds = self.config.train.rounds.max(1);
        // Weights from elsewhere are kept in the folder, and are those of another width now.
        let _ = std::fs::remove_file(run.initial_weights());
        let config = self.settings(rung, 20, None)?;
        let setup = Setup::new(config, self.dataset.clone(), run.clone(), About::default(), silent)?;
        let least = (TIMED * self.budget.minutes * 60.0).clamp(TIMED_SECONDS.0, TIMED_SECONDS.1);
        let trial = Trial::new(&setup, least)?;
        let n = setup.plan.samples();
        // What the first trial learned from patches serves the others, and the run. The page of the patches comes before the first epoch.
        let page = page_seconds(n, trial.dim);
        let before = trial.begin + if setup.method.reads_out() { page } else { 0.0 };
        let after = trial.end(&setup, &setup.plan) + page;
        let left = (self.budget.left() - before - after).max(0.0);
        let seconds = |epochs: u32, every: Option<u32>| -> Result<Vec<f64>> {
            let plan = Plan::new(self.settings(rung, epochs, every)?, self.dataset.clone())?;
            Ok(trial.epochs(&setup, &plan).iter().map(|ahead| ahead.seconds).collect())
        };
        let probe = trial.probe_seconds(&setup);
        let fits = |epochs: u32| -> Result<bool> {
            let every = probe_every(epochs, probe, left, rounds);
            Ok(seconds(epochs, Some(every))?.iter().sum::<f64>() <= left)
        };
        let (mut low, mut high) = match self.budget.gave("train.epochs") {
            true => (self.config.train.epochs, self.config.train.epochs + 1),
            false => (1, MOST_EPOCHS + 1),
        };
        while high - low > 1 {
            let middle = (low + high) / 2;
            if fits(middle)? { low = middle } else { high = middle }
        }
        let every = probe_every(low, probe, left, rounds);
        let (fits, seconds) = (fits(low)?, seconds(low, Some(every))?);
        Ok(Timed { epochs: low, fits, every, seconds, before, after })
    }

    /// What was chosen and what more time would bring.
    fn lines(&self, at: usize, config: &Resolved) -> Vec<String> {
        let timed = &self.timed[&at];
        let (size, width) = (config.data.size, config.network.width);
        let (epochs, images) = (config.train.epochs, self.dataset.train.images.len());
        let takes = self.budget.began.elapsed().as_secs_f64() + timed.seconds.iter().sum::<f64>() + timed.around();
        let limit = match self.config.data.limit {
            0 => String::new(),
            limit => format!(" --limit {limit}"),
        };
        let shown = duration(self.budget.minutes * 60.0);
        let (what, rounds) = match config.train.rounds {
            0 => (format!("patches of {images} images, no time for a network"), " --rounds 0"),
            _ => (format!("{size} px, width {width}, {epochs} epochs of {images} images"), ""),
        };
        let second = if config.plus.second { "" } else { " --set plus.second=false" };
        let mut lines = vec![format!(
            "chosen    for {shown}: {what}, in all about {} (the same again:{} --size {size} --width {width} --epochs {epochs}{rounds} \
             --eval-every {} --set data.stored={}{second}{limit})",
            duration(takes),
            self.budget.implied.map(|name| format!(" --preset {name}")).unwrap_or_default(),
            config.evaluate.every,
            config.data.stored,
        )];
        if !self.budget.stated && config.train.rounds > 0 {
            lines.push(self.offer());
        }
        lines
    }

    /// What a longer run would bring.
    fn offer(&self) -> String {
        let longer = 240.0 / self.budget.minutes;
        let best = (0..self.rungs.len()).rev().find(|rung| self.fitting(*rung, longer) >= self.wanted()).unwrap_or(0);
        let (side, width) = self.rungs[best];
        let epochs = (self.fitting(best, longer) as u32).clamp(1, MOST_EPOCHS);
        let full = Config::default().network.width;
        let near = *self.timed.keys().max().unwrap_or(&0);
        let (usual, (near_side, near_width)) = (self.config.image_side(), self.rungs[near]);
        let grown = (usual as f64 / near_side as f64).powi(2) * (full as f64 / near_width as f64).powf(1.5);
        let passes = if self.config.method.system == System::Plus { PCP_PASSES } else { 1.0 };
        let takes = self.timed[&near].epoch() * passes * grown * f64::from(self.config.train.epochs);
        format!(
            "longer    --minutes 240 would bring {side} px, width {width}, {epochs} epochs; --preset pcp --width {full} trains {} epochs at \
             {usual} px, in about {}",
            self.config.train.epochs,
            duration(takes),
        )
    }
}

/// Seconds that the second layer of patches takes for so many images and test images, where it adds `pace` seconds to encoding an image: learning its centroids is like encoding
/// 20,000, and the readout, of three views, like 8.4 times the images that it is learned from. All are embedded, the images twice.
fn second_layer_seconds(images: usize, test: usize, pace: f64) -> f64 {
    pace * (20_000.0 + 8.4 * images.min(10_000) as f64 + (2 * images + test) as f64)
}

/// Epochs between probes of `probe` seconds, so that they take a small share of `left`; all of them where that is too much.
fn probe_every(epochs: u32, probe: f64, left: f64, rounds: u32) -> u32 {
    let affordable = (PROBES * left / probe.max(1e-9) / f64::from(rounds)).clamp(1.0, 1e6) as u32;
    epochs.div_ceil(affordable).max(probe_interval(epochs))
}
