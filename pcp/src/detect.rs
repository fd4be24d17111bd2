//! Object detection: a Faster R-CNN (Ren et al. 2015) on a network that was trained without labels (Table 9).
//!
//! ```text
//! photographs -> frame -> backbone (stem..layer3) -> anchors, proposals -> roi (7x7) -> backbone (layer4, heads)
//!                                   |                     |                                |
//!                              targets, losses <----------+--------------------------------+-> find -> ap
//! ```
//!
//! A training step (`step.rs`) is two passes through tensors ([`crate::model::Detector`]) with plain arithmetic between
//! them. Each part is one file with its own reference values in its tests. `jobs` has the functions that train, measure and use a detector.
//!
//! A detector's run folder:
//!
//! ```text
//! detect.toml           every setting, with version, revision, CPU and data fingerprint under [about]
//! train.log             what the program said
//! metrics.jsonl         one line an epoch
//! warnings.jsonl        one line a warning
//! checkpoints/          the last two
//! model.safetensors     the weights
//! eval/                 what `pcp detect eval` found
//! result.json           the result
//! ```

pub mod anchors;
pub mod ap;
pub mod boxes;
pub mod find;
pub mod frame;
pub mod losses;
pub mod nms;
pub mod proposals;
pub mod roi;
pub mod settings;
pub mod shapes;
pub mod step;
pub mod targets;
pub mod train;
pub mod voc;
