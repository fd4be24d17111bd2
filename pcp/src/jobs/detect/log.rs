//! `train.log` of a detector: what an observer is told of its training.

use crate::observe::{Live, Observer};
use crate::run::{DetectorEpoch, EpochRecord, RunFolder, Warning};
use pcp_core::cancel::Cancel;
use pcp_core::text::duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Tells everything to another observer, and writes notes and epochs to the log of a run. An epoch is a note, too. (Warnings are
/// written where they are made.)
pub(super) struct DetectorLog {
    told: Arc<dyn Observer>,
    run: RunFolder,
    /// Epochs in all.
    epochs: u32,
    /// Epochs done.
    done: AtomicU32,
}

impl DetectorLog {
    pub(super) fn new(run: &RunFolder, epochs: u32, told: &Arc<dyn Observer>) -> Arc<DetectorLog> {
        Arc::new(DetectorLog { told: told.clone(), run: run.clone(), epochs, done: AtomicU32::new(0) })
    }

    /// Goes on after `epochs` epochs.
    pub(super) fn resumed_after(&self, epochs: u32) {
        self.done.store(epochs, Ordering::Relaxed);
    }
}

impl Observer for DetectorLog {
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

    fn live(&self, live: &Live) {
        self.told.live(live);
        let epoch = self.done.load(Ordering::Relaxed) + 1;
        self.told.status(&format!("epoch {epoch}/{}, loss {:.3}", self.epochs, live.loss));
    }

    fn epoch(&self, record: &EpochRecord) {
        self.told.epoch(record);
    }

    fn detector_epoch(&self, r: &DetectorEpoch) {
        self.done.store(r.epoch + 1, Ordering::Relaxed);
        self.note(&format!(
            "epoch {:>3}/{}: loss {:.3} (objectness {:.3}, proposals {:.3}, classes {:.3}, boxes {:.3}), lr {}, {:.1} images/s, {}",
            r.epoch + 1,
            self.epochs,
            r.loss,
            r.loss_objectness,
            r.loss_proposals,
            r.loss_classes,
            r.loss_boxes,
            r.lr,
            r.images_per_second,
            duration(r.seconds)
        ));
        self.told.detector_epoch(r);
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
