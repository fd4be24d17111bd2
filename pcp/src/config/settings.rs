//! The settings. Shares of the epochs are fractions of one round's length T.

use super::TrainSettings;
use super::systems::{
    AndSettings, ByolSettings, DeepClusterSettings, EmpSettings, LaSettings, MethodSettings, MocoSettings, PlusSettings,
};
use pcp_core::kmeans::Search;
use serde::{Deserialize, Serialize};

/// A value, or `"auto"`: a value chosen for the data set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Auto<T> {
    /// A value.
    Value(T),
    /// Chosen for the data set.
    Auto(AutoWord),
}

/// The word `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AutoWord {
    /// Chosen for the data set.
    Auto,
}

impl<T: Copy> Auto<T> {
    /// `"auto"`.
    pub const AUTO: Self = Auto::Auto(AutoWord::Auto);

    /// The value, or `fitting` where it is `"auto"`.
    pub fn or(self, fitting: T) -> T {
        match self {
            Auto::Value(value) => value,
            Auto::Auto(_) => fitting,
        }
    }
}

/// The settings as users write them: a value, or `"auto"` for one that depends on the data. A run uses [`Resolved`](super::Resolved).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The images.
    pub data: DataSettings,
    /// The training views.
    pub augment: AugmentSettings,
    /// The network.
    pub network: NetworkSettings,
    /// Epochs, optimiser and seed.
    pub train: TrainSettings,
    /// Number of clusters, and k-means.
    pub clusters: ClusterSettings,
    /// Purification of clusters.
    pub purify: PurifySettings,
    /// The losses and the memory bank.
    pub objective: ObjectiveSettings,
    /// The training system.
    pub method: MethodSettings,
    /// Settings of AND only.
    pub and: AndSettings,
    /// Settings of LA only.
    pub la: LaSettings,
    /// Settings of DeepCluster only.
    pub deepcluster: DeepClusterSettings,
    /// Settings of MoCo only.
    pub moco: MocoSettings,
    /// Settings of BYOL only.
    pub byol: ByolSettings,
    /// Settings of EMP-SSL only.
    pub emp: EmpSettings,
    /// Settings of PCP+ only.
    pub plus: PlusSettings,
    /// The kNN probe.
    pub evaluate: EvaluateSettings,
    /// Snapshots and checkpoints.
    pub run: RunSettings,
}

/// The images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSettings<Side = Auto<usize>, Channels = Auto<[f64; 3]>> {
    /// `bundled`, `cifar10`, `cifar100`, or a folder.
    pub source: String,
    /// The folder of the CIFAR files.
    pub dir: String,
    /// Limit on the number of training images, 0 for all: the first records, or, of a folder, the first of every class folder in turn.
    pub limit: usize,
    /// Side of the network's square input. Auto: 224 for `alexnet224`, else 32 for CIFAR and the bundled images (for patches 64), 64 for folders.
    pub size: Side,
    /// Clean view: the short side is resized to `size * margin`, then the centre is cut out (256/224 for 224-px sets). 0: the whole image is
    /// resized to a square, whatever its shape, so that nothing of it is lost.
    pub margin: f64,
    /// Short side to which decoded photographs are shrunk when read; 0 keeps them as they are. Auto: `size * 256/224`.
    pub stored: Side,
    /// Whether class folders give labels (for evaluation).
    pub labels: bool,
    /// Channel means, in 0..1. Auto: those of the training images.
    pub mean: Channels,
    /// Channel standard deviations. Auto: those of the training images.
    pub std: Channels,
    /// Whether decoded images stay in memory.
    pub cache: Cache,
    /// Whether an unreadable file is an error; otherwise it is skipped.
    pub strict: bool,
    /// Decisions of `pcp serve` to honour (a file or a run folder): images to remove and copies are left out, labels are as decided. Empty for
    /// none.
    pub decisions: String,
}

/// Whether decoded images stay in memory; results do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// In memory if they take at most half of the available memory; otherwise not.
    Auto,
    /// In memory.
    Memory,
    /// Not in memory: they are decoded again whenever they are needed, ahead of the training.
    None,
}

impl Default for DataSettings {
    fn default() -> Self {
        DataSettings {
            source: "bundled".into(),
            dir: String::new(),
            limit: 0,
            size: Auto::AUTO,
            margin: 1.0,
            stored: Auto::AUTO,
            labels: true,
            mean: Auto::AUTO,
            std: Auto::AUTO,
            cache: Cache::Auto,
            strict: false,
            decisions: String::new(),
        }
    }
}

/// How a training view is cropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Crop {
    /// A crop of random area and aspect, resized.
    Resized,
    /// The clean view, moved by up to `pad` of its side, black where it leaves the image.
    Padded,
}

/// The training view: a random resized crop, colour jitter, grey, blur and a flip. The defaults are the paper's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AugmentSettings {
    /// How it is cropped.
    pub crop: Crop,
    /// The most that a `padded` crop moves, as a share of the side.
    pub pad: f64,
    /// Range of a crop's share of the image's area.
    pub scale: [f64; 2],
    /// Range of a crop's aspect ratio (width by height), drawn log-uniformly.
    pub ratio: [f64; 2],
    /// Brightness factors are drawn from 1 - b to 1 + b.
    pub brightness: f64,
    /// Contrast factors are drawn from 1 - c to 1 + c.
    pub contrast: f64,
    /// Saturation factors are drawn from 1 - s to 1 + s.
    pub saturation: f64,
    /// Hue is shifted by -h to h turns.
    pub hue: f64,
    /// Probability of the four colour changes above.
    pub jitter_probability: f64,
    /// Probability of conversion to grey.
    pub grey: f64,
    /// Probability of a Gaussian blur.
    pub blur: f64,
    /// Range of its standard deviation in pixels.
    pub blur_sigma: [f64; 2],
    /// Probability of a left-right flip.
    pub flip: f64,
}

impl Default for AugmentSettings {
    fn default() -> Self {
        AugmentSettings {
            crop: Crop::Resized,
            pad: 0.125,
            scale: [0.2, 1.0],
            ratio: [3.0 / 4.0, 4.0 / 3.0],
            brightness: 0.4,
            contrast: 0.4,
            saturation: 0.4,
            hue: 0.4,
            jitter_probability: 1.0,
            grey: 0.2,
            blur: 0.0,
            blur_sigma: [0.1, 2.0],
            flip: 0.5,
        }
    }
}

/// Architecture of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// ResNet18.
    Resnet18,
    /// AlexNet for small images.
    Alexnet,
    /// The paper's AlexNet for 224-px images.
    Alexnet224,
}

/// First layers of a ResNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stem {
    /// `small` up to 64 px, `large` above.
    Auto,
    /// 3x3, stride 1.
    Small,
    /// 7x7, stride 2, and a max-pool.
    Large,
}

/// The layers from the pooled features to the embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Head {
    /// One layer.
    Linear,
    /// Two layers with a ReLU between them, the first as wide as the pooled features.
    Mlp,
    /// Two layers with batch norm and a ReLU between them, the first of 512.
    Projector,
    /// The same; and two such layers more, which training alone uses: they predict another embedding from the embedding before scaling.
    Predictor,
}

/// The network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkSettings {
    /// The architecture.
    pub arch: Arch,
    /// Channels of the first stage; everything scales with it. 64 is the paper's.
    pub width: usize,
    /// Length D of an embedding.
    pub embedding: usize,
    /// First layers of a ResNet.
    pub stem: Stem,
    /// The layers from the pooled features to the embedding.
    pub head: Head,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        NetworkSettings { arch: Arch::Resnet18, width: 64, embedding: 128, stem: Stem::Auto, head: Head::Linear }
    }
}

/// Which features are clustered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterFeatures {
    /// Of one random training view per image.
    Augmented,
    /// Of the clean view.
    Clean,
    /// The rows of the memory bank.
    Bank,
}

/// Number of clusters, and k-means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterSettings<Count = Auto<usize>> {
    /// The floor N_c. Auto: a fiftieth of the images (a fortieth for LA), at least 2.
    pub floor: Count,
    /// Whether K_t falls from N to the floor (Eq. 1); otherwise it is the floor from the start, as LA and DeepCluster have it.
    pub progressive: bool,
    /// Which features are clustered.
    pub features: ClusterFeatures,
    /// While K_t is at least this share of N, nothing is clustered: every sample is its own instance. Paper: not there; with K_t so near
    /// to N, k-means would cost most and group next to nothing.
    pub instances_from: f64,
    /// k-means iterations.
    pub iterations: usize,
    /// Whether centroids are scaled to unit length.
    pub spherical: bool,
    /// k-means starts per epoch of PCP, and at the end; the one with the smallest objective is used.
    pub runs: u32,
    /// Whether PCP's k-means starts from the centroids of the epoch before, once K_t stays the same; otherwise from random samples.
    pub warm_start: bool,
    /// How k-means searches the nearest centroid: `exact`, among the nearest `cells` of centroids, or `auto`: exact up to 2.5 billion
    /// pairs of an image and a cluster.
    pub search: Search,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        ClusterSettings {
            floor: Auto::AUTO,
            progressive: true,
            features: ClusterFeatures::Augmented,
            instances_from: 0.95,
            iterations: 20,
            spherical: false,
            runs: 1,
            warm_start: false,
            search: Search::Auto,
        }
    }
}

/// Purification: which members of a cluster are kept as positives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PurifySettings<Count = Auto<usize>, Threshold = Auto<f64>> {
    /// Share of a cluster that CP_r filters out, the farthest from its centre. The final clusters of every system use it, too.
    pub gamma: f64,
    /// Factor on the weight of a vote for every epoch of its age (Eq. 2).
    pub alpha: f64,
    /// How many past clusterings vote, n. Auto: 15 of 200 epochs, at least 3.
    pub history: Count,
    /// Kept members with a vote below this are dropped. Auto: 0 at n = 15 and alpha = 0.8; the same agreement of other histories.
    pub lower: Threshold,
    /// Filtered members with at least this vote are pulled back. Auto: 0.617378 of the greatest vote, 3.0 at n = 15.
    pub upper: Threshold,
    /// Whether CP_s votes at all.
    pub votes: bool,
    /// Share of the epochs from which CP_r acts; before it, clusters are kept whole. Paper: not said; `pcp-paper` has 0.5.
    pub reliable_from: f64,
    /// Share of the epochs of round 0 from which clusterings are stored, and CP_s acts once n of them are.
    pub stable_from: f64,
    /// The same in later rounds (for CP_s alone; clusterings are always stored there).
    pub stable_from_later: f64,
    /// Clusters of 2 to this many members are kept whole in round 0 before `small_until`. Paper: not there; it is in the authors' released
    /// code, where early clusters of one member make nearly all samples instances, which they are not here.
    pub small: usize,
    /// Share of the epochs before which small clusters are kept whole.
    pub small_until: f64,
    /// As in the released code: before `stable_from`, samples from the first cluster of fewer than two on are instances.
    pub stop_at_first_single: bool,
}

impl Default for PurifySettings {
    fn default() -> Self {
        PurifySettings {
            gamma: 0.5,
            alpha: 0.8,
            history: Auto::AUTO,
            lower: Auto::AUTO,
            upper: Auto::AUTO,
            votes: true,
            reliable_from: 0.0,
            stable_from: 0.5,
            stable_from_later: 0.1,
            small: 5,
            small_until: 0.5,
            stop_at_first_single: false,
        }
    }
}

/// The three forms of the cluster loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossForm {
    /// `-log sum_j P(j)`. Paper: Eq. 5 is the sum of logarithms; this is what the authors' released code computes.
    Logsum,
    /// `-sum_j log P(j)`, Eq. 5 as printed; its gradients grow with the cluster.
    Sumlog,
    /// `-1/|S| sum_j log P(j)`.
    Meanlog,
}

/// The losses and the memory bank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ObjectiveSettings {
    /// Temperature of Eq. 3, of the warm-up loss, and of every other contrastive loss.
    pub tau: f64,
    /// Form of the cluster loss.
    pub form: LossForm,
    /// Share of the old row in an updated bank row.
    pub bank_momentum: f64,
    /// Number of views in PCP's bank loss, 1 or 2.
    pub bank_views: u32,
    /// Rows of the bank that stand for all others in the sum of Eq. 3, drawn anew for every batch; those of the batch's images and of their
    /// positives are always in it. 0, or as many as there are images: all rows. `auto`: all rows of up to 65,536 images, 16,384 of more. Paper:
    /// all rows; an epoch then costs N^2. LA's background is always searched among all.
    pub bank_rows: Auto<usize>,
    /// Rounds with the IS warm-up; 0 for none.
    pub warmup_rounds: u32,
    /// Weight of the IS loss at the start of a warm-up round.
    pub warmup_start: f64,
    /// Weight at the end of the warm-up.
    pub warmup_end: f64,
    /// Share of the epochs at which the warm-up ends.
    pub warmup_until: f64,
}

impl Default for ObjectiveSettings {
    fn default() -> Self {
        ObjectiveSettings {
            tau: 0.1,
            form: LossForm::Logsum,
            bank_momentum: 0.5,
            bank_views: 1,
            bank_rows: Auto::AUTO,
            warmup_rounds: 1,
            warmup_start: 0.8,
            warmup_end: 0.5,
            warmup_until: 0.9,
        }
    }
}

/// Which features of a network. Config files can name the first three; the others are for options that name a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureKind {
    /// The embedding as a unit vector, which the loss is computed on.
    Embedding,
    /// The output of the layer before the embedding. The kNN probe scales it to unit length.
    Pooled,
    /// The pooled features, partially whitened, as a unit vector: a linear readout that is learned without labels.
    Whitened,
    /// The embedding before it is scaled to unit length.
    #[serde(skip)]
    RawEmbedding,
    /// The prediction of another embedding, as a unit vector, in training.
    #[serde(skip)]
    Prediction,
    /// The map of a layer, by its index among the network's layers, average-pooled to at most 10,000 numbers.
    #[serde(skip)]
    Map(usize),
}

/// The kNN probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluateSettings<Interval = Auto<u32>> {
    /// Epochs between probes; the last epoch is always probed. Auto: a twentieth of a round.
    pub every: Interval,
    /// Number of neighbours.
    pub k: usize,
    /// Temperature of their weights.
    pub tau: f64,
    /// Which features.
    pub features: FeatureKind,
}

impl Default for EvaluateSettings {
    fn default() -> Self {
        EvaluateSettings { every: Auto::AUTO, k: 200, tau: 0.1, features: FeatureKind::Embedding }
    }
}

/// The most minutes between two checkpoints: a year.
pub const MOST_MINUTES: f64 = 525_600.0;

/// Snapshots and checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// Number of snapshots of the weights, evenly spaced over the run.
    pub snapshots: u32,
    /// Minutes between checkpoints within an epoch.
    pub save_minutes: f64,
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings { snapshots: 0, save_minutes: 10.0 }
    }
}
