//! Progressive Cluster Purification (PCP; Zhang et al., ICPR 2020): image features without labels.
//!
//! | paper | file | function |
//! |---|---|---|
//! | Algorithm 1, the loop | `train.rs` | [`train::train`] |
//! | Eq. 1, number of clusters K_t | `core/src/schedule.rs` | [`pcp_core::schedule::eq1`] |
//! | k-means | `kmeans.rs` | [`kmeans::kmeans`] |
//! | CP_r and CP_s, purification | `purify.rs` | [`purify::purify`] |
//! | Eq. 2, vote V(i) | `purify.rs` | [`purify::History::vote`] |
//! | Eq. 3, P(j\|v) over the memory bank | `kernels` | [`kernels::bank_softmax`] |
//! | Eq. 4 to 6, instance and cluster loss | `objective.rs` | [`objective::bank_loss`] |
//! | memory bank and its update | `memory.rs` | [`memory::Bank`] |
//! | warm-up by instance spreading | `objective.rs`, `method/pcp.rs` | [`objective::spreading_loss`], [`method::pcp::loss`] |
//! | the compared systems | `method/*.rs`, one file each | [`method::Method`] |
//! | networks | `backbone.rs` | [`backbone::Network`] |
//! | training views | `augment.rs` | [`augment::Augmenter`] |
//! | weighted kNN | `evaluate/knn.rs` | [`evaluate::knn::nearest`], [`evaluate::knn::vote`] |
//! | clusters against classes (Fig. 5 d to f), the filter against labels | `scores.rs`, `evaluate/clusters.rs` | [`scores::Contingency`], [`scores::FilterScore`] |
//! | t-SNE (Fig. 5 a to c) | `tsne.rs` | [`tsne::tsne`] |
//! | detection (Table 9) | `detect.rs`, one file per part | [`detect::step::step`], [`detect::find::find`], [`detect::ap::score`] |
//! | purification of anybody's embeddings | `core/src/history.rs`, `core/src/label_errors.rs` | [`pcp_core::history::repeated`], [`pcp_core::label_errors::ClusterVote`] |
//! | Tables 1 to 9 | `reproduce/tables.rs` | [`reproduce::tables`] |
//!
//! Data flows one way; the run folder is the only meeting point between training and all that comes after:
//!
//! ```text
//! data -> augment -> loader -> backbone -> memory --+
//!             schedule -> kmeans -> purify ---------+-> objective -> method -> train -> [run folder] -> evaluate
//! ```

pub mod config;
pub mod data;
pub mod detect;
pub mod embed;
pub mod evaluate;
pub mod jobs;
pub mod method;
pub mod model;
pub mod observe;
pub mod picture;
pub mod report;
pub mod run;
pub mod train;
