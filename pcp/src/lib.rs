//! Image features without labels, by Progressive Cluster Purification (PCP; Zhang et al., ICPR 2020).
//!
//! Everything is a job: options in, a typed result out, and an observer that is told how far the work is and can cancel it. [`jobs`] lists
//! them all.
//!
//! Train on a folder of images; the run folder then holds embeddings, purified clusters, the network and a page about them:
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! use pcp::jobs::{TrainOptions, train};
//! use pcp::observe::silent;
//!
//! let options = TrainOptions::new("bundled").set("train.epochs=2")?; // a folder, or the photographs that come with the library
//! # let options = options.set("data.limit=32")?.set("data.size=16")?.set("network.width=4")?.set("train.batch=16")?;
//! # let options = TrainOptions { out: Some(folder.path().join("run")), no_report: true, ..options };
//! let done = train(&options, &silent())?;
//! println!("{}: {} clusters keep {:.0} %", done.run.display(), done.result.clusters, 100.0 * done.result.kept);
//! # assert_eq!((done.result.images, done.result.epochs), (32, 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Purify any matrix: which rows do not belong to their clusters?
//!
//! ```
//! use pcp::core::matrix::Matrix;
//! use pcp::jobs::{ClusterCount, PurifyOptions, purify};
//! use pcp::observe::silent;
//!
//! let matrix = Matrix::new(2, vec![1.0, 0.0, 1.0, 0.1, 0.7, 0.6, 0.0, 1.0, 0.1, 1.0, 0.1, 0.9]);
//! let options = PurifyOptions { k: Some(ClusterCount::Exactly(2)), gamma: 0.3, no_votes: true, ..PurifyOptions::new(matrix) };
//! let found = purify(&options, &silent())?;
//! assert_eq!(found.suspicious[0], 2); // the row between the two clusters
//! # Ok::<(), pcp::core::error::Error>(())
//! ```
//!
//! Embed an image with a trained network:
//!
//! ```
//! # use pcp::{config, model::untrained_card};
//! # let folder = tempfile::tempdir()?;
//! # let (file, photo) = (folder.path().join("model.safetensors"), folder.path().join("photo.png"));
//! # let network = config::NetworkSettings { width: 4, ..config::Config::default().network };
//! # Model::untrained(untrained_card(network), 0)?.write_safetensors(&file)?;
//! # image::RgbImage::new(40, 30).save(&photo)?;
//! use pcp::data::decode;
//! use pcp::model::Model;
//!
//! let model = Model::open(&file)?; // a run folder, or its model.safetensors
//! let embedding = model.embed([decode::file(&photo)?]);
//! assert_eq!((embedding.rows, embedding.dim), (1, 128));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where the paper is
//!
//! | paper | file | functions and types |
//! |---|---|---|
//! | Algorithm 1, the loop | `pcp/src/train.rs` | `rounds` |
//! | Eq. 1, number of clusters K_t | `core/src/schedule.rs` | `eq1` |
//! | k-means | `core/src/kmeans.rs` | `kmeans` |
//! | CP_r and CP_s, purification | `core/src/purify.rs` | `purify` |
//! | Eq. 2, vote V(i) | `core/src/purify.rs` | `History`, `vote` |
//! | Eq. 3, P(j\|v) over the memory bank | `kernels/src/bank.rs` | `bank_softmax` |
//! | Eq. 4 to 6, instance and cluster loss | `pcp/src/method/objective.rs` | `bank_loss` |
//! | memory bank and its update | `pcp/src/method/bank.rs` | `Bank`, `update` |
//! | warm-up by instance spreading | `pcp/src/method/objective.rs` | `spreading_loss` |
//! | the mix of both losses | `pcp/src/method/pcp.rs` | `loss` |
//! | the compared systems, one file each | `pcp/src/method.rs` | `Method` |
//! | networks | `pcp/src/model/network.rs` | `Network` |
//! | training views | `pcp/src/data/augment.rs` | `Augmenter` |
//! | weighted kNN | `core/src/neighbours.rs` | `nearest`, `vote` |
//! | clusters against classes (Fig. 5 d to f) | `core/src/scores.rs` | `Contingency` |
//! | t-SNE (Fig. 5 a to c) | `core/src/tsne.rs` | `tsne` |
//! | heat maps (Fig. 1 and 4) | `pcp/src/evaluate/heatmap.rs` | `heat` |
//! | linear probe (Table 6) | `pcp/src/evaluate/linear.rs` | `LinearProbe` |
//! | detection (Table 9) | `pcp/src/detect/step.rs` | `step` |
//! | Tables 1 to 9 | `cli/src/paper/tables.rs` | `tables` |
//!
//! Data flows one way; the run folder is the only meeting point between training and all that comes after:
//!
//! ```text
//! data -> model -> method (core: schedule, kmeans, purify) -> train -> [run folder] -> jobs -> [run folder, tables, pages]
//! ```

pub mod config;
pub mod data;
pub mod decisions;
pub mod jobs;
pub mod method;
pub mod model;
pub mod observe;
pub mod patches;
pub mod run;

// Public for the program, its tests and tests/fuzz.rs alone: the jobs are the way to these.
#[doc(hidden)]
pub mod detect;
#[doc(hidden)]
pub mod embed;
#[doc(hidden)]
pub mod evaluate;
#[doc(hidden)]
pub mod picture;
#[doc(hidden)]
pub mod report;
#[doc(hidden)]
pub mod train;

/// The parts that know no network: matrices, k-means, purification, nearest neighbours, files, errors.
pub use pcp_core as core;
