//! Observing long work: a progress bar, a log, a page or a test is told how far it is, and can cancel it.

use crate::run::{DetectorEpoch, EpochRecord, Warning};
use pcp_core::cancel::Cancel;
use pcp_core::text::duration;
use std::path::Path;
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

/// Seconds that a training is expected to take, by a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected {
    /// Of every epoch.
    pub epochs: Vec<f64>,
    /// Of all that follows the last one.
    pub after: f64,
}

/// Length of a training that begins or goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingStart {
    /// Epochs of a round.
    pub epochs_per_round: u32,
    /// Epochs over all rounds.
    pub total_epochs: u32,
    /// Of these, epochs that are done already.
    pub done: u32,
    /// Images of an epoch.
    pub images: usize,
    /// What it is expected to take, where that was measured.
    pub expected: Option<Expected>,
}

/// Seconds for which an expectation counts against what is observed.
const TRUST: f64 = 30.0;

/// Clusters and the share of images that are kept in them, for a line; nothing where every image learns alone.
pub fn clusters_in_words(clusters: usize, kept: f64) -> String {
    if kept > 0.0 { format!(", K {clusters}, kept {:.0} %", kept * 100.0) } else { String::new() }
}

/// How fast a training goes: its epochs as lines for people, with an estimate of the time to go.
#[derive(Clone, Debug)]
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
            "epoch {done:>3}/{}: loss {:.3}, lr {}{}, {:.0} images/s, {:.1} s{knn}{}",
            self.start.total_epochs,
            r.loss,
            r.lr,
            clusters_in_words(r.clusters, r.kept),
            r.images_per_second,
            r.seconds,
            self.left(done, 0.0).map(|left| format!(", {} to go", duration(left))).unwrap_or_default()
        )
    }

    /// Seconds to go when `done` epochs and `share` of the next are done: at the pace so far and, where it was measured beforehand, as
    /// expected. `None` while nobody knows, and at the end.
    pub fn left(&self, done: u32, share: f64) -> Option<f64> {
        self.left_after(done, share, self.since.elapsed().as_secs_f64())
    }

    fn left_after(&self, done: u32, share: f64, seconds: f64) -> Option<f64> {
        let start = &self.start;
        if done < start.done || done >= start.total_epochs {
            return None;
        }
        let expected = start.expected.as_ref().filter(|e| e.epochs.len() == start.total_epochs as usize);
        let weight = |epoch: u32| expected.map_or(1.0, |e| e.epochs[epoch as usize]);
        let sum = |from: u32, to: u32| (from..to).map(weight).sum::<f64>();
        let past = sum(start.done, done) + share * weight(done);
        let ahead = sum(done, start.total_epochs) - share * weight(done);
        match expected {
            Some(e) => Some((ahead + e.after) * (seconds + TRUST) / (past + TRUST)),
            None if past > 0.02 => Some(ahead * seconds / past),
            None => None,
        }
    }
}

/// Is told what a job does, from any thread. Every method but `cancel` may do nothing: what an observer does not do itself, it passes on to
/// its `next`.
pub trait Observer: Send + Sync {
    /// The observer that is told what this one does not handle. One that handles a call itself passes it on by itself, where it should.
    fn next(&self) -> Option<&dyn Observer> {
        None
    }
    /// A part of the work begins; it has `total` units (images, rows, steps).
    fn begin(&self, part: &'static str, total: usize) {
        self.next().into_iter().for_each(|next| next.begin(part, total));
    }
    /// `units` more of the part are done.
    fn advance(&self, units: usize) {
        self.next().into_iter().for_each(|next| next.advance(units));
    }
    /// The part is over.
    fn end(&self) {
        self.next().into_iter().for_each(|next| next.end());
    }
    /// How the part is going, in a few words that replace the ones before.
    fn status(&self, text: &str) {
        self.next().into_iter().for_each(|next| next.status(text));
    }
    /// The folder of the run is there; the training follows.
    fn run_began(&self, run: &Path) {
        self.next().into_iter().for_each(|next| next.run_began(run));
    }
    /// A training begins or goes on; parts, steps and epochs up to `training_ended` belong to it.
    fn training_began(&self, start: &TrainingStart) {
        self.next().into_iter().for_each(|next| next.training_began(start));
    }
    /// The training ended, was cancelled or failed.
    fn training_ended(&self) {
        self.next().into_iter().for_each(|next| next.training_ended());
    }
    /// A training step was made.
    fn live(&self, live: &Live) {
        self.next().into_iter().for_each(|next| next.live(live));
    }
    /// An epoch ended.
    fn epoch(&self, record: &EpochRecord) {
        self.next().into_iter().for_each(|next| next.epoch(record));
    }
    /// An epoch of a detector's training ended.
    fn detector_epoch(&self, record: &DetectorEpoch) {
        self.next().into_iter().for_each(|next| next.detector_epoch(record));
    }
    /// The work goes on, but the user should know this.
    fn warn(&self, warning: &Warning) {
        self.next().into_iter().for_each(|next| next.warn(warning));
    }
    /// A line about what the job is doing, for people.
    fn note(&self, line: &str) {
        self.next().into_iter().for_each(|next| next.note(line));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_go_is_that_of_the_pace_so_far_and_of_the_trial() {
        let start = TrainingStart { epochs_per_round: 4, total_epochs: 4, done: 0, images: 10, expected: None };
        let pace = Pace::new(start.clone());
        assert_eq!(pace.left_after(0, 0.0, 5.0), None, "nothing is known");
        assert_eq!(pace.left_after(0, 0.5, 5.0), Some(35.0));
        assert_eq!(pace.left_after(1, 0.0, 10.0), Some(30.0));
        assert_eq!(pace.left_after(4, 0.0, 40.0), None, "the end");
        let resumed = Pace::new(TrainingStart { done: 2, ..start.clone() });
        assert_eq!(resumed.left_after(3, 0.0, 7.0), Some(7.0));
        let expected = Some(Expected { epochs: vec![10.0, 10.0, 20.0, 20.0], after: 5.0 });
        let pace = Pace::new(TrainingStart { expected, ..start });
        assert_eq!(pace.left_after(0, 0.0, 0.0), Some(65.0), "as expected");
        assert_eq!(pace.left_after(2, 0.0, 20.0), Some(45.0), "neither faster nor slower");
        assert_eq!(pace.left_after(2, 0.0, 70.0), Some(90.0), "twice as slow, expectation included");
    }
}
