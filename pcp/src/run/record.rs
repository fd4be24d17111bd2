//! The records of a run: one per epoch and one result at the end, for networks and for detectors.

use crate::config::Precision;
use pcp_core::text::{columns, duration};
use serde::{Deserialize, Serialize};

/// A line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Round, from 0.
    pub round: u32,
    /// Epoch within the round, from 0.
    pub epoch: u32,
    /// K_t.
    pub clusters: usize,
    /// Clusters that have members; every sample counts as one when each is its own instance.
    pub non_empty: usize,
    /// Share of samples that have a positive set: kept by CP_r or pulled back by CP_s, with at least one other member.
    pub kept: f64,
    /// Samples that CP_r filtered and CP_s pulled back, because past clusterings vote for them.
    pub pulled_back: usize,
    /// Samples that CP_r kept and CP_s dropped, because past clusterings vote against them.
    pub dropped: usize,
    /// Samples without a positive set.
    pub instances: usize,
    /// Mean loss.
    pub loss: f64,
    /// Mean bank loss of samples that are instances.
    pub loss_instance: Option<f64>,
    /// Mean bank loss of samples that have a positive set.
    pub loss_cluster: Option<f64>,
    /// Mean warm-up loss.
    pub loss_is: Option<f64>,
    /// Learning rate.
    pub lr: f32,
    /// Total seconds.
    pub seconds: f64,
    /// Seconds for the features that are clustered.
    pub feature_seconds: f64,
    /// Seconds for k-means and purification.
    pub cluster_seconds: f64,
    /// Seconds for training.
    pub train_seconds: f64,
    /// Images trained on per second; an image with several views counts once.
    pub images_per_second: f64,
    /// Mean share of a sample's cluster partners, old and new together, that changed since the last clustering.
    pub churn: Option<f64>,
    /// How many directions the features use that the epoch's clusters are of ([`pcp_core::eigen::effective_rank`]); `None` where none were computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_rank: Option<f64>,
    /// kNN accuracy in percent, when probed.
    pub knn: Option<f64>,
    /// The classifier's accuracy in percent, if the system is supervised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classifier: Option<f64>,
}

/// `result.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// kNN of the clean, normalised pixels, in percent.
    pub knn_raw: Option<f64>,
    /// kNN of the network before training.
    pub knn_untrained: Option<f64>,
    /// kNN at the best probed epoch.
    pub knn_best: Option<f64>,
    /// kNN at the last epoch.
    pub knn_last: Option<f64>,
    /// kNN of the pooled features at the last epoch.
    #[serde(default)]
    pub knn_pooled: Option<f64>,
    /// kNN of the pooled features, partially whitened, at the last epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knn_whitened: Option<f64>,
    /// kNN of the patch features alone, where the system has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knn_patches: Option<f64>,
    /// The network's share of the embedding, where patch features are beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_share: Option<f64>,
    /// How many directions the embeddings use ([`pcp_core::eigen::effective_rank`]): a guess at how good they are that needs no labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_rank: Option<f64>,
    /// The classifier's accuracy at the last epoch, if the system is supervised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classifier: Option<f64>,
    /// The epoch of `knn_best`, counted from 1 over all rounds.
    pub best_epoch: Option<u32>,
    /// How the kNN was measured.
    pub protocol: Option<String>,
    /// Training images.
    pub images: usize,
    /// Clusters at the end that have members.
    pub clusters: usize,
    /// Share of samples that have a positive set in the final clusters.
    pub kept: f64,
    /// Epochs over all rounds.
    pub epochs: u32,
    /// Total seconds, over all sessions of a resumed run.
    pub seconds: f64,
    /// The command that started the run.
    pub command: String,
    /// The seed.
    pub seed: u64,
    /// The data set.
    pub data: String,
    /// The precision that the network was trained in.
    #[serde(default)]
    pub precision: Precision,
    /// Threads of the last session.
    pub threads: usize,
    /// Processes that trained it together; 1 in results of versions that knew no others.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub processes: usize,
    /// Version of this program.
    pub version: String,
    /// Its revision, if known.
    pub revision: String,
}

fn one() -> usize {
    1
}

fn is_one(n: &usize) -> bool {
    *n == 1
}

impl RunResult {
    /// The result as a table for people.
    pub fn table(&self) -> String {
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut percent = |name: &str, value: Option<f64>, note: String| {
            if let Some(value) = value {
                rows.push((name.to_string(), format!("{value:5.1} %{note}")));
            }
        };
        percent("kNN of raw pixels", self.knn_raw, String::new());
        percent("kNN of the network before training", self.knn_untrained, String::new());
        let (best, last) = if self.epochs > 0 { (self.knn_best, self.knn_last) } else { (None, None) };
        let best_at = self.best_epoch.map(|e| format!("  (epoch {e})")).unwrap_or_default();
        match self.network_share {
            Some(share) => {
                percent("kNN of clusters of patches", self.knn_patches, String::new());
                let note = format!("  (the network's share: {share:.2})");
                percent("kNN of patches and network", last, note);
            }
            None => {
                percent("kNN of the trained network, best", best, best_at);
                percent("kNN of the trained network, last", last, String::new());
            }
        }
        if self.epochs == 0 && self.knn_untrained.is_none() {
            percent("kNN of clusters of patches", self.knn_last, String::new());
        }
        let pooled = if self.network_share.is_some() {
            "kNN of the network's pooled features"
        } else {
            "the same on pooled features"
        };
        percent(pooled, self.knn_pooled, String::new());
        percent("the same, whitened", self.knn_whitened, String::new());
        percent("classifier on the test images", self.classifier, String::new());
        if let Some(rank) = self.effective_rank {
            rows.push((
                "directions that embeddings use".into(),
                format!("{rank:5.1}  (effective rank; a guess at quality: more is mostly better)"),
            ));
        }
        rows.push(("clusters".into(), self.clusters.to_string()));
        rows.push(("images kept in them, at the end".into(), format!("{:.0} %", self.kept * 100.0)));
        rows.push(("images, epochs".into(), format!("{}, {}", self.images, self.epochs)));
        rows.push(("time".into(), duration(self.seconds)));
        let protocol = self.protocol.as_ref().map(|p| format!("  ({p})\n")).unwrap_or_default();
        format!("{}{protocol}", columns(&rows))
    }
}

/// A line of `metrics.jsonl` of a detector's training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetectorEpoch {
    /// From 0.
    pub epoch: u32,
    /// Mean of the whole loss over the steps.
    pub loss: f64,
    /// Part of it: the objectness of anchors.
    pub loss_objectness: f64,
    /// Part of it: the offsets of anchors.
    pub loss_proposals: f64,
    /// Part of it: the classes of boxes.
    pub loss_classes: f64,
    /// Part of it: the offsets of boxes.
    pub loss_boxes: f64,
    /// Learning rate.
    pub lr: f64,
    /// Seconds.
    pub seconds: f64,
    /// Images per second.
    pub images_per_second: f64,
}

impl DetectorEpoch {
    /// The epoch, one of `epochs`, as a line for people.
    pub fn line(&self, epochs: u32) -> String {
        let r = self;
        format!(
            "epoch {:>3}/{epochs}: loss {:.3} (objectness {:.3}, proposals {:.3}, classes {:.3}, boxes {:.3}), lr {}, {:.1} images/s, {}",
            r.epoch + 1,
            r.loss,
            r.loss_objectness,
            r.loss_proposals,
            r.loss_classes,
            r.loss_boxes,
            r.lr,
            r.images_per_second,
            duration(r.seconds)
        )
    }
}

/// `result.json` of a detector's training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetectorResult {
    /// Mean loss of the last epoch.
    pub loss: f64,
    /// Images.
    pub images: usize,
    /// Total seconds, over all sessions of a resumed run.
    pub seconds: f64,
    /// The settings in a line.
    pub protocol: String,
    /// The command that started the run.
    pub command: String,
    /// The seed.
    pub seed: u64,
    /// The precision that the network was trained in.
    #[serde(default)]
    pub precision: Precision,
    /// Threads of the last session.
    pub threads: usize,
    /// Version of this program.
    pub version: String,
    /// Its revision, if known.
    pub revision: String,
}
