//! `train.log`: notes and epochs of a run, or of a detector's training.

use crate::observe::{Observer, Pace, TrainingStart};
use crate::run::{EpochRecord, RunFolder};
use pcp_core::cancel::Cancel;
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
    fn next(&self) -> Option<&dyn Observer> {
        Some(self.told.as_ref())
    }

    fn training_began(&self, start: &TrainingStart) {
        self.pace.get_or_init(|| Pace::new(start.clone()));
        self.told.training_began(start);
    }

    fn epoch(&self, record: &EpochRecord) {
        if let Some(pace) = self.pace.get() {
            self.run.log(&pace.line(record));
        }
        self.told.epoch(record);
    }

    fn note(&self, line: &str) {
        self.run.log(line);
        self.told.note(line);
    }

    fn cancel(&self) -> &Cancel {
        self.told.cancel()
    }
}
