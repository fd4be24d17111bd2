//! Who watches a run: a progress bar, a log, a test.

use crate::run::{EpochRecord, Warning};

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Features of all images, to be clustered.
    Features,
    /// k-means and purification.
    Clusters,
    /// Steps.
    Training,
    /// The kNN probe.
    Probe,
    /// Clean embeddings at the end.
    Embeddings,
    /// The final clusters.
    FinalClusters,
}

impl Phase {
    /// In a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Features => "features",
            Phase::Clusters => "clustering",
            Phase::Training => "training",
            Phase::Probe => "kNN probe",
            Phase::Embeddings => "embeddings",
            Phase::FinalClusters => "final clusters",
        }
    }
}

/// How the epoch goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Live {
    /// Mean loss so far.
    pub loss: f64,
    /// Images per second so far.
    pub images_per_second: f64,
    /// Learning rate.
    pub lr: f32,
    /// K_t.
    pub clusters: usize,
    /// Share of samples that have a positive set.
    pub kept: f64,
}

/// Is told what happens, from any thread. Every method may do nothing.
pub trait Observer: Send + Sync {
    /// A phase begins, of `total` units.
    fn phase(&self, _phase: Phase, _total: usize) {}
    /// `units` of the phase are done.
    fn advance(&self, _units: usize) {}
    /// A step was made.
    fn live(&self, _live: &Live) {}
    /// An epoch ended.
    fn epoch(&self, _record: &EpochRecord) {}
    /// Something may not be meant.
    fn warn(&self, _warning: &Warning) {}
}

/// Watches nothing.
pub struct Silent;

impl Observer for Silent {}
