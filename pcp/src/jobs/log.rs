//! `train.log`: notes and epochs of a run, or of a detector's training.

use crate::observe::{Live, Observer, Pace, TrainingStart};
use crate::run::{DetectorEpoch, EpochRecord, RunFolder, Warning};
use pcp_core::cancel::Cancel;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Passes everything on to another observer, and writes notes and epochs to the log of a run. (Warnings are written where they are made.)
pub(super) struct RunLog {
    told: Arc<dyn Observer>,
    run: RunFolder,
    pace: OnceLock<Pace>,
}

impl RunLog {
    pub(super) fn beside(run: &RunFolder, told: &Arc<dyn Observer>) -> Arc<dyn Observer> {
        Arc::new(RunLog { told: told.clone(), run: run.clone(), pace: OnceLock::new() })
    }
}

impl Observer for RunLog {
    fn begin(&self, part: &'static str, total: usize) {
        self.told.begin(part, total);
    }

    fn advance(&self, units: usize) {
        self.told.advance(units);
    }

    fn end(&self) {
        self.told.end();
    }

    fn status(&self, text: &str) {
        self.told.status(text);
    }

    fn run_began(&self, run: &Path) {
        self.told.run_began(run);
    }

    fn training_began(&self, start: &TrainingStart) {
        self.pace.get_or_init(|| Pace::new(start.clone()));
        self.told.training_began(start);
    }

    fn training_ended(&self) {
        self.told.training_ended();
    }

    fn live(&self, live: &Live) {
        self.told.live(live);
    }

    fn epoch(&self, record: &EpochRecord) {
        if let Some(pace) = self.pace.get() {
            self.run.log(&pace.line(record));
        }
        self.told.epoch(record);
    }

    fn detector_epoch(&self, record: &DetectorEpoch) {
        self.told.detector_epoch(record);
    }

    fn warn(&self, warning: &Warning) {
        self.told.warn(warning);
    }

    fn note(&self, line: &str) {
        self.run.log(line);
        self.told.note(line);
    }

    fn cancel(&self) -> &Cancel {
        self.told.cancel()
    }
}
