//! Checkpoints of a run: when they are saved, and how a run is restored from the newest.

use super::{DIVERGED, Setup, State};
use crate::run::{Bound, Warning};
use pcp_core::error::{Error, Result};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Writes checkpoints and remembers when the last one was written.
pub struct Checkpoints<'a> {
    setup: &'a Setup,
    bound: Bound,
    saved: Cell<Instant>,
}

impl<'a> Checkpoints<'a> {
    pub fn new(setup: &'a Setup) -> Self {
        Checkpoints { setup, bound: setup.bound(), saved: Cell::new(Instant::now()) }
    }

    /// Saves within an epoch, every `save_minutes`.
    pub fn save_if_due(&self, state: &State) -> Result<()> {
        let pause = Duration::from_secs_f64(self.setup.plan.config.run.save_minutes * 60.0);
        if self.saved.get().elapsed() < pause { Ok(()) } else { self.save(state) }
    }

    /// Saves `state`, then removes all but the last two. Numbers that are not finite are not worth keeping.
    pub fn save(&self, state: &State) -> Result<()> {
        let Setup { network, run, .. } = self.setup;
        if !state.weights.is_finite() {
            return Err(Error::training("the weights are not finite", DIVERGED));
        }
        let p = &state.progress;
        // Names in the order of time.
        let name = format!("r{:03}-e{:05}-b{:07}.safetensors", p.round, p.epoch, p.batch);
        state.save(network, &self.bound, &run.file("checkpoints").join(name))?;
        self.saved.set(Instant::now());
        run.keep_newest()
    }
}

/// The newest state that is whole; the beginning when there is none yet. Damaged ones are put aside and named. What the run folder has
/// of later epochs is cut off: they are trained again. What it lacks of earlier ones is restored.
pub fn restore(setup: &Setup) -> Result<State> {
    let Setup { network, run, method, plan, .. } = setup;
    let bound = setup.bound();
    let restored = run.restore(|path| State::load(network, *method, plan, &bound, path))?;
    let (mut state, known) = restored.state.map_or_else(|| setup.begin().map(|state| (state, true)), Ok)?;
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
    Ok(state)
}
