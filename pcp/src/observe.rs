//! Observing long work: a progress bar, a log, a page or a test is told how far it is, and can cancel it.

use crate::run::{DetectorEpoch, EpochRecord, Warning};
use pcp_core::cancel::Cancel;
use pcp_core::text::duration;
use std::sync::Arc;
use std::time::Instant;

/// State of the running epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Live {
    /// Mean loss so far.
    pub loss: f64,
    /// Images per second so far.
    pub images_per_second: f64,
    /// Learning rate.
    pub lr: f32,
    /// K_t; 0 where nothing is clustered.
    pub clusters: usize,
    /// Share of images that have a positive set.
    pub kept: f64,
}

/// Length of a training that begins or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingStart {
    /// Epochs of a round.
    pub epochs_per_round: u32,
    /// Epochs over all rounds.
    pub total_epochs: u32,
    /// Of these, epochs that are done already.
    pub done: u32,
    /// Images of an epoch.
    pub images: usize,
}

/// How fast a training goes: its epochs as lines for people, with an estimate of the time to go.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The training.
    pub start: TrainingStart,
    since: Instant,
}

impl Pace {
    /// Begins to count now.
    pub fn new(start: TrainingStart) -> Self {
        Pace { start, since: Instant::now() }
    }

    /// Epochs that are done after the one of `record`, over all rounds.
    pub fn done(&self, record: &EpochRecord) -> u32 {
        record.round * self.start.epochs_per_round + record.epoch + 1
    }

    /// An epoch that has just ended, in a line.
    pub fn line(&self, record: &EpochRecord) -> String {
        let (r, done) = (record, self.done(record));
        let knn = r.knn.map(|knn| format!(", kNN {knn:.1} %")).unwrap_or_default();
        format!(
            "epoch {done:>3}/{}: loss {:.3}, lr {}, K {}, kept {:.0} %, {:.0} images/s, {:.1} s{knn}{}",
            self.start.total_epochs,
            r.loss,
            r.lr,
            r.clusters,
            r.kept * 100.0,
            r.images_per_second,
            r.seconds,
            self.time_left(done)
        )
    }

    /// How long the rest takes at this pace.
    fn time_left(&self, done: u32) -> String {
        if done <= self.start.done || done >= self.start.total_epochs {
            return String::new();
        }
        let per_epoch = self.since.elapsed().as_secs_f64() / f64::from(done - self.start.done);
        format!(", {} to go", duration(per_epoch * f64::from(self.start.total_epochs - done)))
    }
}

/// Is told what a job does, from any thread. Every method but `cancel` may do nothing.
pub trait Observer: Send + Sync {
    /// A part of the work begins; it has `total` units (images, rows, steps).
    fn begin(&self, _part: &'static str, _total: usize) {}
    /// `units` more of the part are done.
    fn advance(&self, _units: usize) {}
    /// The part is over.
    fn end(&self) {}
    /// How the part is going, in a few words that replace the ones before.
    fn status(&self, _text: &str) {}
    /// A training begins or goes on; parts, steps and epochs up to `training_ended` belong to it.
    fn training_began(&self, _start: &TrainingStart) {}
    /// The training ended, was cancelled or failed.
    fn training_ended(&self) {}
    /// A training step was made.
    fn live(&self, _live: &Live) {}
    /// An epoch ended.
    fn epoch(&self, _record: &EpochRecord) {}
    /// An epoch of a detector's training ended.
    fn detector_epoch(&self, _record: &DetectorEpoch) {}
    /// The work goes on, but the user should know this.
    fn warn(&self, _warning: &Warning) {}
    /// A line about what the job is doing, for people.
    fn note(&self, _line: &str) {}
    /// The flag that cancels the work.
    fn cancel(&self) -> &Cancel;
}

/// Shows nothing; the work can still be cancelled.
#[derive(Clone, Debug, Default)]
pub struct Silent(pub Cancel);

impl Observer for Silent {
    fn cancel(&self) -> &Cancel {
        &self.0
    }
}

/// An observer that shows nothing and never cancels.
pub fn silent() -> Arc<dyn Observer> {
    Arc::new(Silent::default())
}
