//! The last two states of a run on disk.

use super::{Setup, State};
use crate::error::{Error, Result};
use crate::run::{RunFolder, Warning};
use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How many are kept.
const KEEP: usize = 2;

/// Writes checkpoints and remembers when the last one was written.
pub struct Checkpoints<'a> {
    setup: &'a Setup,
    saved: Cell<Instant>,
}

impl<'a> Checkpoints<'a> {
    pub fn new(setup: &'a Setup) -> Self {
        Checkpoints { setup, saved: Cell::new(Instant::now()) }
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
            return Err(Error::training(
                "the weights are not finite",
                "start anew with a lower learning rate (--set train.lr=...); checkpoints from before are kept",
            ));
        }
        let p = &state.progress;
        // Names in the order of time.
        let name = format!("r{:03}-e{:05}-b{:07}.safetensors", p.round, p.epoch, p.batch);
        state.save(network, &run.file("checkpoints").join(name))?;
        self.saved.set(Instant::now());
        for old in list(run)?.into_iter().rev().skip(KEEP) {
            fs::remove_file(&old).map_err(|e| Error::io("remove", &old, &e))?;
        }
        Ok(())
    }
}

/// All checkpoints, oldest first.
pub fn list(run: &RunFolder) -> Result<Vec<PathBuf>> {
    let folder = run.file("checkpoints");
    let entries = fs::read_dir(&folder).map_err(|e| Error::io("read", &folder, &e))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "safetensors"));
    paths.sort();
    Ok(paths)
}

/// The newest state that is whole; the beginning when there is none yet. Damaged ones are put aside and named.
pub fn restore(setup: &Setup) -> Result<State> {
    setup.run.remove_unfinished();
    let mut damaged = Vec::new();
    for path in list(&setup.run)?.into_iter().rev() {
        match State::load(&setup.network, &setup.plan, &path) {
            Ok(state) => {
                for (path, what) in damaged {
                    setup.warn(Warning::DamagedCheckpoint { what });
                    put_aside(&path);
                }
                setup.run.cut_metrics(state.progress.metrics_lines)?;
                setup.run.cut_events(state.progress.metrics_lines)?;
                return Ok(state);
            }
            Err(e) => damaged.push((path, e.message)),
        }
    }
    if let Some((_, why)) = damaged.first() {
        return Err(Error::file(
            format!("no checkpoint of {} can be used: {why}", setup.run.path().display()),
            "begin the run anew with --overwrite",
        ));
    }
    setup.run.cut_metrics(0)?;
    setup.run.cut_events(0)?;
    setup.begin()
}

/// A damaged file stays for whoever wants to look at it, under a name that is not read again.
fn put_aside(path: &PathBuf) {
    let mut name = path.clone().into_os_string();
    name.push(".damaged");
    let _ = fs::rename(path, name);
}
