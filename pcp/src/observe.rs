//! Observing long work: a progress bar, a log, a page or a test is told how far it is, and can cancel it.

use crate::run::{DetectorEpoch, EpochRecord, Warning};
use pcp_core::cancel::Cancel;

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
