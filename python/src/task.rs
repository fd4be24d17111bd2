//! Long work: on a thread of its own, while the calling thread shows progress and listens for Ctrl-C.

use crate::fault::raised;
use pcp::observe::{Live, Observer, TrainingStart};
use pcp::run::{EpochRecord, Warning};
use pcp_core::cancel::{Cancel, Progress};
use pcp_core::error::{Error, Result};
use pyo3::prelude::*;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often progress is shown and signals are looked for.
const PERIOD: Duration = Duration::from_millis(50);

/// What a job reports, as a call of a method of `pcp/progress.py`.
enum Call {
    Begin(&'static str, usize),
    Advance(usize),
    End,
    Status(String),
    TrainingBegan(TrainingStart),
    TrainingEnded,
    Live(Live),
    Epoch(EpochRecord),
    Warn(String),
    Note(String),
}

/// Collects what a job reports, until the calling thread shows it.
#[derive(Default)]
struct Collector {
    calls: Mutex<Vec<Call>>,
    cancel: Cancel,
}

impl Collector {
    fn add(&self, call: Call) {
        let Ok(mut calls) = self.calls.lock() else { return };
        match (call, calls.last_mut()) {
            (Call::Advance(more), Some(Call::Advance(units))) => *units += more,
            (Call::Live(new), Some(Call::Live(live))) => *live = new,
            (call, _) => calls.push(call),
        }
    }

    fn take(&self) -> Vec<Call> {
        self.calls.lock().map(|mut calls| std::mem::take(&mut *calls)).unwrap_or_default()
    }
}

impl Observer for Collector {
    fn begin(&self, part: &'static str, total: usize) {
        self.add(Call::Begin(part, total));
    }
    fn advance(&self, units: usize) {
        self.add(Call::Advance(units));
    }
    fn end(&self) {
        self.add(Call::End);
    }
    fn status(&self, text: &str) {
        self.add(Call::Status(text.into()));
    }
    fn training_began(&self, start: &TrainingStart) {
        self.add(Call::TrainingBegan(start.clone()));
    }
    fn training_ended(&self) {
        self.add(Call::TrainingEnded);
    }
    fn live(&self, live: &Live) {
        self.add(Call::Live(*live));
    }
    fn epoch(&self, record: &EpochRecord) {
        self.add(Call::Epoch(record.clone()));
    }
    fn warn(&self, warning: &Warning) {
        self.add(Call::Warn(warning.to_string()));
    }
    fn note(&self, line: &str) {
        self.add(Call::Note(line.into()));
    }
    fn cancel(&self) -> &Cancel {
        &self.cancel
    }
}

/// Tells `progress`, an object of `pcp/progress.py`.
fn tell(progress: &Bound<'_, PyAny>, calls: Vec<Call>) -> PyResult<()> {
    for call in calls {
        match call {
            Call::Begin(part, total) => progress.call_method1("begin", (part, total))?,
            Call::Advance(units) => progress.call_method1("advance", (units,))?,
            Call::End => progress.call_method0("end")?,
            Call::Status(text) => progress.call_method1("status", (text,))?,
            Call::TrainingBegan(start) => {
                progress.call_method1("training_began", (start.total_epochs, start.done, start.images))?
            }
            Call::TrainingEnded => progress.call_method0("training_ended")?,
            Call::Live(live) => progress.call_method1("live", (live.loss, live.clusters, live.kept))?,
            Call::Epoch(record) => {
                let record = serde_json::to_string(&record).unwrap_or_default();
                progress.call_method1("epoch", (record,))?
            }
            Call::Warn(text) => progress.call_method1("warn", (text,))?,
            Call::Note(line) => progress.call_method1("note", (line,))?,
        };
    }
    Ok(())
}

/// Does `work` on a thread of its own, with the interpreter lock released. `progress`, when there is one, is told how far it is. Ctrl-C cancels the
/// work, which saves what it has to, and raises KeyboardInterrupt; a second one does not wait for that. What `progress` raises cancels the
/// work, too.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Arc<dyn Observer>) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let collector = Arc::new(Collector::default());
    let cancel = collector.cancel.clone();
    let observer: Arc<dyn Observer> = collector.clone();
    let (sender, mut receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        // A panic of the work is an error of `run_beside`.
        let inside = observer.clone();
        let outcome = Cancel::default().run_beside(move || work(&inside)).and_then(|outcome| outcome);
        let _ = sender.send(outcome);
    });
    let mut failed: Option<PyErr> = None;
    loop {
        let waiting = &mut receiver;
        let waited = py.detach(move || waiting.recv_timeout(PERIOD));
        let calls = collector.take();
        let mut told = match progress {
            Some(progress) if failed.is_none() => tell(progress, calls),
            _ => Ok(()),
        };
        told = py.check_signals().and(told);
        match (waited, told, failed.take()) {
            // Asked to stop for the second time.
            (_, Err(again), Some(_)) => return Err(again),
            (Ok(outcome), told, before) => {
                told?;
                before.map_or(Ok(()), Err)?;
                return outcome.map_err(|e| raised(py, &e));
            }
            (Err(RecvTimeoutError::Disconnected), ..) => {
                return Err(raised(py, &Error::training("a calculation ended without a result", "please report this")));
            }
            (Err(RecvTimeoutError::Timeout), Err(e), None) => {
                cancel.request();
                failed = Some(e);
            }
            (Err(RecvTimeoutError::Timeout), Ok(()), before) => failed = before,
        }
    }
}

/// Does a part of the work on the thread pool, where cancelling does not wait for it. `work` calls what it is given with (steps done, steps in
/// all).
pub fn part<T: Send + 'static>(
    name: &'static str,
    observer: &Arc<dyn Observer>,
    work: impl FnOnce(Progress) -> Result<T> + Send + 'static,
) -> Result<T> {
    let inside = observer.clone();
    let outcome = observer.cancel().run(move || {
        let (mut shown, mut of) = (0, 0);
        work(&mut |done, all| {
            if of != all {
                inside.begin(name, all);
                (shown, of) = (0, all);
            }
            if done > shown {
                inside.advance(done - shown);
                shown = done;
            }
            inside.cancel().check()
        })
    });
    observer.end();
    outcome?
}
