//! The training systems, and the settings of one system only.

use super::settings::Auto;
use serde::{Deserialize, Serialize};

/// The systems that the paper compares, PCP+, and its rivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// Progressive Cluster Purification, its ablations, and the paper's DC.
    Pcp,
    /// Instance recognition (Wu et al. 2018).
    Ir,
    /// Invariance and spreading of instances (Ye et al. 2019).
    Is,
    /// Anchor neighbourhood discovery (Huang et al. 2019).
    And,
    /// Local aggregation (Zhuang et al. 2019).
    La,
    /// DeepCluster as published (Caron et al. 2018).
    Deepcluster,
    /// Momentum contrast (He et al. 2020).
    Moco,
    /// Two views that attract among all views of the batch (Chen et al. 2020).
    Simclr,
    /// Each of two views predicts what a moving average of the network makes of the other (Grill et al. 2020).
    Byol,
    /// Many views of every image, pulled to their mean and spread by the coding rate (Tong et al. 2023, EMP-SSL).
    Emp,
    /// PCP+: the network learns from clusters of patches.
    Plus,
    /// Classification by the labels.
    Supervised,
    /// Clusters of patches, without a network.
    Patches,
}

impl System {
    /// The name of the system that the settings of `section` belong to, and the system; `None` for general sections.
    pub fn owner_of(section: &str) -> Option<(&'static str, System)> {
        [
            ("and", System::And),
            ("la", System::La),
            ("deepcluster", System::Deepcluster),
            ("moco", System::Moco),
            ("byol", System::Byol),
            ("emp", System::Emp),
            ("plus", System::Plus),
        ]
        .into_iter()
        .find(|(name, _)| *name == section)
    }
}

/// The training system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MethodSettings {
    /// Its name.
    pub system: System,
}

impl Default for MethodSettings {
    fn default() -> Self {
        MethodSettings { system: System::Pcp }
    }
}

/// Settings of AND only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AndSettings {
    /// Neighbours of an anchor, k.
    pub neighbours: usize,
    /// Share of the samples that become anchors in addition in every round.
    pub share: f64,
}

impl Default for AndSettings {
    fn default() -> Self {
        AndSettings { neighbours: 1, share: 0.25 }
    }
}

/// Settings of LA only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LaSettings {
    /// Number of clusterings whose union gives the close neighbours.
    pub clusterings: u32,
    /// Number of nearest bank rows that form the background.
    pub background: usize,
    /// Share of the epochs that train by instance recognition first.
    pub instances_until: f64,
}

impl Default for LaSettings {
    fn default() -> Self {
        LaSettings { clusterings: 10, background: 4096, instances_until: 0.05 }
    }
}

/// Settings of DeepCluster only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeepClusterSettings {
    /// Number of whitened principal components that longer features are reduced to.
    pub components: usize,
    /// Learning rate of the classifier.
    pub head_lr: f64,
    /// Weight decay of the classifier.
    pub head_decay: f64,
}

impl Default for DeepClusterSettings {
    fn default() -> Self {
        DeepClusterSettings { components: 256, head_lr: 0.05, head_decay: 1e-5 }
    }
}

/// Settings of MoCo only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MocoSettings {
    /// The most keys in the queue; its length is the largest multiple of the batch up to this and N.
    pub queue: usize,
    /// Share of the old key encoder in an updated one.
    pub momentum: f64,
    /// Number of groups of a batch with separate batch-norm statistics, between which keys are shuffled; 1 for none.
    pub groups: usize,
}

impl Default for MocoSettings {
    fn default() -> Self {
        MocoSettings { queue: 65536, momentum: 0.999, groups: 4 }
    }
}

/// Settings of BYOL only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ByolSettings {
    /// Share of the old average of the network in an updated one.
    pub momentum: f64,
}

impl Default for ByolSettings {
    fn default() -> Self {
        ByolSettings { momentum: 0.99 }
    }
}

/// Settings of EMP-SSL only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmpSettings {
    /// Views of every image in a step.
    pub views: usize,
    /// What one unit of coding rate weighs beside the views' agreement.
    pub spread: f64,
    /// Precision of the coding rate, epsilon squared.
    pub precision: f64,
}

impl Default for EmpSettings {
    fn default() -> Self {
        EmpSettings { views: 20, spread: 1.0 / 200.0, precision: 0.2 }
    }
}

/// Settings of PCP+ only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlusSettings {
    /// Whether purified clusters of the bank's rows are positive sets.
    pub clusters: bool,
    /// Hue of training views is shifted by at most so many turns; `augment.hue` holds where it is less.
    pub hue: f64,
    /// The network's share of the embedding, beside the patch features. Auto: by how well it recognises images that it was not trained on.
    pub share: Auto<f64>,
    /// Whether patches have their second layer, where there are images enough for it.
    pub second: bool,
}

impl Default for PlusSettings {
    fn default() -> Self {
        PlusSettings { clusters: false, hue: 0.1, share: Auto::AUTO, second: true }
    }
}
