//! Watching a run: the training of this process tells what it does, that of another one is seen by its files. The page hears of changes by
//! server-sent events.

use crate::layout::LayoutKind;
use crate::reply::Stream;
use crate::subject::{Subject, locked, version};
use pcp::observe::{Live, Observer, Pace, TrainingStart};
use pcp::run::EpochRecord;
use pcp_core::cancel::Cancel;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Looks between two signs of life of a stream on which nothing happens.
const SIGN: usize = 15;

/// An observer that passes everything on, and remembers where the training is.
pub struct Watch {
    told: Arc<dyn Observer>,
    state: Mutex<WatchState>,
}

#[derive(Default)]
struct WatchState {
    run: Option<PathBuf>,
    part: &'static str,
    done: usize,
    total: usize,
    live: Option<Live>,
    training: Option<Pace>,
    /// Epochs done.
    epochs: u32,
    ended: bool,
}

impl Watch {
    /// Passes everything on to `told`.
    pub fn new(told: Arc<dyn Observer>) -> Arc<Watch> {
        Arc::new(Watch { told, state: Mutex::default() })
    }

    /// The run's folder, once there is one.
    pub fn run(&self) -> Option<PathBuf> {
        locked(&self.state).run.clone()
    }

    /// Asks the training to save and stop, as Ctrl-C does.
    pub fn stop(&self) {
        self.told.cancel().request();
    }

    /// Where the training is.
    pub fn snapshot(&self) -> Value {
        let state = locked(&self.state);
        let stopping = self.told.cancel().requested();
        let mut said = json!({
            "part": state.part, "done": state.done, "total": state.total,
            "ended": state.ended, "stopping": stopping && !state.ended, "memory": memory("self"),
        });
        if let Some(live) = state.live {
            said["live"] = json!({
                "loss": live.loss, "images_per_second": live.images_per_second, "lr": live.lr,
                "clusters": live.clusters, "kept": live.kept,
            });
        }
        if let Some(pace) = &state.training {
            let images = pace.start.images.max(1) as f64;
            let share = if state.part == "training" { (state.done as f64 / images).min(1.0) } else { 0.0 };
            said["epoch"] = state.epochs.into();
            said["epochs"] = pace.start.total_epochs.into();
            if let Some(left) = pace.left(state.epochs, share) {
                said["seconds_left"] = left.round().into();
            }
        }
        said
    }
}

/// Resident bytes of a process, by its number or `self`; `None` where the system does not tell.
fn memory(process: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    Some(text.split_whitespace().nth(1)?.parse::<u64>().ok()? * 4096)
}

/// The process that holds the lock of a run, if it is a living `pcp`.
fn trainer(subject: &Subject) -> Option<u32> {
    let text = std::fs::read_to_string(subject.folder()?.file("lock")).ok()?;
    let process: u32 = text.trim().parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    (name.trim() == "pcp" && process != std::process::id()).then_some(process)
}

impl Observer for Watch {
    fn next(&self) -> Option<&dyn Observer> {
        Some(self.told.as_ref())
    }

    fn begin(&self, part: &'static str, total: usize) {
        let mut state = locked(&self.state);
        (state.part, state.done, state.total) = (part, 0, total);
        drop(state);
        self.told.begin(part, total);
    }

    fn advance(&self, units: usize) {
        locked(&self.state).done += units;
        self.told.advance(units);
    }

    fn run_began(&self, run: &Path) {
        locked(&self.state).run = Some(run.to_path_buf());
        self.told.run_began(run);
    }

    fn training_began(&self, start: &TrainingStart) {
        let mut state = locked(&self.state);
        (state.training, state.epochs) = (Some(Pace::new(start.clone())), start.done);
        drop(state);
        self.told.training_began(start);
    }

    fn training_ended(&self) {
        locked(&self.state).ended = true;
        self.told.training_ended();
    }

    fn live(&self, live: &Live) {
        locked(&self.state).live = Some(*live);
        self.told.live(live);
    }

    fn epoch(&self, record: &EpochRecord) {
        let mut state = locked(&self.state);
        state.epochs = state.training.as_ref().map_or(state.epochs, |pace| pace.done(record));
        drop(state);
        self.told.epoch(record);
    }

    fn cancel(&self) -> &Cancel {
        self.told.cancel()
    }
}

/// What a page hears of: the version of the files, the training, the decisions, the map.
pub fn state(subject: &Subject) -> Value {
    let lines = subject.with_log(|log| {
        log.refresh()?;
        Ok(log.entries().len())
    });
    let layout = match subject.layout.kind() {
        Some(LayoutKind::Tsne) => "tsne",
        Some(LayoutKind::Components) => "components",
        None => "none",
    };
    let mut said = json!({
        "version": subject.folder().map_or(1, version),
        "decisions": lines.unwrap_or(0),
        "map": layout,
        "map_progress": subject.layout.progress(),
    });
    match (&subject.watch, subject.folder()) {
        (Some(watch), _) => said["training"] = watch.snapshot(),
        (None, Some(run)) if !run.file("result.json").exists() => {
            let process = trainer(subject);
            said["training"] =
                json!({ "elsewhere": process.is_some(), "memory": process.and_then(|p| memory(&p.to_string())) });
        }
        _ => {}
    }
    said
}

/// A stream of [`state`]s, one whenever it changes, until the client or the server ends.
pub fn events(subject: Arc<Subject>, end: Cancel) -> Stream {
    Box::new(move |out: &mut dyn Write| {
        let (mut before, mut silent) = (Value::Null, 0);
        while !end.requested() {
            let now = state(&subject);
            if now != before {
                write!(out, "retry: 1000\ndata: {now}\n\n")?;
                (before, silent) = (now, 0);
            } else if silent == SIGN {
                out.write_all(b": still here\n\n")?;
                silent = 0;
            }
            silent += 1;
            std::thread::sleep(LOOK);
        }
        Ok(())
    })
}
