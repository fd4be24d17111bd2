//! Checkpoints of a run: when they are saved, and how a run is restored from the newest.

use super::{DIVERGED, Setup, State};
use crate::run::{Bound, Warning};
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{has_file, make_folder};
use pcp_core::io::names;
use pcp_core::io::tensors::Tensors;
use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

/// Share of the time that saving may take, and seconds that it may always take: large states after short epochs are not saved after each of them.
const SHARE: f64 = 0.05;
const GRACE: f64 = 5.0;

/// Writes checkpoints, and remembers when the last one was written and what all of them took.
pub struct Checkpoints<'a> {
    setup: &'a Setup,
    bound: Bound,
    began: Instant,
    saved: Cell<Instant>,
    taken: Cell<Duration>,
}

/// Whether another may be saved, when those of `elapsed` have taken `taken`.
fn is_affordable(taken: Duration, elapsed: Duration) -> bool {
    taken.as_secs_f64() <= GRACE + SHARE * elapsed.as_secs_f64()
}

/// Seconds that saving adds to an epoch of `epoch` seconds, where one checkpoint takes `save`.
pub fn seconds_in_epoch(save: f64, epoch: f64) -> f64 {
    save.min(SHARE * epoch)
}

impl<'a> Checkpoints<'a> {
    pub fn new(setup: &'a Setup) -> Self {
        let now = Instant::now();
        Checkpoints { setup, bound: setup.bound(), began: now, saved: Cell::new(now), taken: Cell::default() }
    }

    /// Saves within an epoch, every `save_minutes`.
    pub fn save_if_due(&self, state: &State) -> Result<()> {
        let pause = Duration::from_secs_f64(self.setup.plan.config.run.save_minutes * 60.0);
        if self.decide(self.saved.get().elapsed() >= pause) { self.save(state) } else { Ok(()) }
    }

    /// Saves at the end of an epoch: of the last one always, of others unless saving has taken too much of the time.
    pub fn save_after_epoch(&self, state: &State) -> Result<()> {
        let last = state.progress.round == self.setup.plan.config.train.rounds;
        let affordable = is_affordable(self.taken.get(), self.began.elapsed());
        if self.decide(last || affordable) { self.save(state) } else { Ok(()) }
    }

    /// What the process that writes wants: clocks differ, and all take part in saving.
    fn decide(&self, wanted: bool) -> bool {
        let team = self.setup.team();
        team.any(team.leads() && wanted)
    }

    /// Saves `state`, then removes all but the last two. Numbers that are not finite are not worth keeping.
    pub fn save(&self, state: &State) -> Result<()> {
        let Setup { network, plan, run, .. } = self.setup;
        if !state.weights.is_finite() {
            return Err(Error::training("the weights are not finite", DIVERGED));
        }
        let began = Instant::now();
        self.saved.set(began);
        let p = &state.progress;
        // Names in the order of time.
        let name = format!("r{:03}-e{:05}-b{:07}.safetensors", p.round, p.epoch, p.batch);
        state.save(network, plan, &self.bound, &run.file("checkpoints").join(name))?;
        if self.setup.run_to_write().is_some() {
            run.keep_newest()?;
        }
        self.saved.set(Instant::now());
        self.taken.set(self.taken.get() + began.elapsed());
        Ok(())
    }
}

/// The newest state that is whole; the beginning when there is none yet. Damaged ones are put aside and named. What the run folder has
/// of later epochs is cut off: they are trained again. What it lacks of earlier ones is restored.
pub fn restore(setup: &Setup) -> Result<State> {
    let Setup { network, run, method, plan, .. } = setup;
    let bound = setup.bound();
    let load = |path: &Path| State::load(network, *method, plan, &bound, path);
    if setup.run_to_write().is_none() {
        return follow(setup, load);
    }
    ["checkpoints", "clusters"].iter().try_for_each(|folder| make_folder(&run.file(folder)))?;
    let restored = run.restore(|path| load(path).map(|loaded| (path.clone(), loaded)))?;
    // The line of the first epoch is written before the first checkpoint.
    if restored.state.is_none() && run.metrics_lines()? > 1 {
        let what = "there is no checkpoint any more: the run begins anew".to_string();
        setup.warn(None, Warning::Restored { what });
    }
    let (path, state) = restored.state.unzip();
    setup.team().from_leader(path.map(|path| names::of(path.as_os_str())).unwrap_or_default().as_bytes());
    let (mut state, known) = state.map_or_else(|| setup.begin().map(|state| (state, true)), Ok)?;
    // An epoch whose targets are known has given its warnings.
    let given = |at| at < state.at() || at == state.at() && state.targets.is_some();
    run.cut_warnings(|record| record.at.is_none_or(given))?;
    restored.damaged.into_iter().for_each(|what| setup.warn(None, Warning::DamagedCheckpoint { what }));
    if !known {
        setup
            .observer
            .note("the checkpoint is of an earlier version and does not name its settings: they are taken as they are");
        run.cut_metrics(state.progress.metrics_lines)?;
        state.records = if state.progress.metrics_lines > 0 { run.read_metrics()? } else { Vec::new() };
    }
    for what in [run.restore_metrics(&state.records)?, run.restore_events(&state.records)?].into_iter().flatten() {
        setup.warn(None, Warning::Restored { what });
    }
    if state.progress.best.is_some() {
        check_best(setup)?;
    }
    Ok(state)
}

/// Puts the weights of the best epoch aside where they are damaged, and warns where they are lost: no checkpoint has them.
fn check_best(setup: &Setup) -> Result<()> {
    let path = setup.run.best_weights();
    let reason = match Tensors::<serde_json::Value>::read(&path) {
        Ok(_) => return Ok(()),
        Err(e) if has_file(&path)? && e.is_of_system() => return Err(e),
        Err(e) => e.message,
    };
    let mut aside = path.clone().into_os_string();
    aside.push(".damaged");
    let _ = std::fs::rename(&path, aside);
    let what = format!("the weights of the best epoch so far are lost ({reason}); those of a better one will be kept");
    setup.warn(None, Warning::Restored { what });
    Ok(())
}

/// The state that the process which writes has restored.
fn follow(setup: &Setup, load: impl Fn(&Path) -> Result<(State, bool)>) -> Result<State> {
    let path = String::from_utf8_lossy(&setup.team().from_leader(&[])).into_owned();
    if path.is_empty() { setup.begin() } else { load(&names::path(&path)).map(|(state, _)| state) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs of a run of so many seconds each after which a checkpoint of `save` seconds is saved, and the share of the time that this takes.
    fn saved(epochs: usize, epoch: f64, save: f64) -> (usize, f64) {
        let (mut taken, mut elapsed, mut count) = (0.0, 0.0, 0);
        for _ in 0..epochs {
            elapsed += epoch;
            if is_affordable(Duration::from_secs_f64(taken), Duration::from_secs_f64(elapsed)) {
                (taken, elapsed, count) = (taken + save, elapsed + save, count + 1);
            }
        }
        (count, taken / elapsed)
    }

    #[test]
    fn saving_takes_a_small_share_of_a_long_run() {
        assert_eq!(saved(400, 1.8, 0.01).0, 400, "small states are saved after every epoch");
        assert_eq!(saved(20, 0.001, 0.1).0, 20, "and so are those of short runs");
        let (count, share) = saved(400, 1.8, 0.44);
        assert!((80..130).contains(&count) && share < SHARE + GRACE / 720.0 + 0.01, "{count}, {share}");
        assert_eq!((seconds_in_epoch(0.01, 1.8), seconds_in_epoch(0.44, 1.8)), (0.01, SHARE * 1.8));
    }
}
