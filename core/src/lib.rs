//! Clustering and purifying the rows of a matrix: the parts of Progressive Cluster Purification (PCP; Zhang et al., ICPR 2020)
//! that need no neural network.
//!
//! Cluster the rows of a matrix:
//!
//! ```
//! use pcp_core::kmeans::{KMeans, kmeans};
//! use pcp_core::matrix::Matrix;
//!
//! let rows = Matrix::new(2, vec![0.0, 0.1, 9.0, 9.1, 0.1, 0.0, 9.1, 9.0]);
//! let clusters = kmeans(&rows, &KMeans::new(2))?;
//! assert_eq!(clusters.assignment[0], clusters.assignment[2]);
//! # Ok::<(), pcp_core::error::Error>(())
//! ```
//!
//! Purify the clusters: in each, the half farthest from the centre is filtered out.
//!
//! ```
//! # use pcp_core::matrix::Matrix;
//! use pcp_core::purify::{History, Rules, purify};
//!
//! let rows = Matrix::new(1, vec![0.0, 0.1, -0.1, 5.0]);
//! let rules = Rules { gamma: Some(0.5), ..Rules::WHOLE };
//! let purified = purify(&rows, &[0, 0, 0, 0], 1, &rules, &History::default());
//! assert!(!purified.status[3].belongs());
//! ```
//!
//! Find nearest neighbours by cosine; rows have unit length:
//!
//! ```
//! # use pcp_core::matrix::Matrix;
//! use pcp_core::neighbours::nearest;
//!
//! let bank = Matrix::new(2, vec![1.0, 0.0, 0.0, 1.0, 0.6, 0.8]);
//! let query = Matrix::new(2, vec![0.9, 0.1]).normalised();
//! let found = nearest(&query, &bank, 2, false, &|_| ());
//! assert_eq!(found.index, [0, 2]);
//! ```
//!
//! Files: [`io::matrix::read`] reads a matrix and the names of its rows from NumPy, CSV or safetensors.
//! `examples/purify_rows.rs` shows all of it together.

pub mod appearance;
pub mod cancel;
pub mod centres;
pub mod cluster_count;
pub mod copies;
mod dots;
pub mod duplicates;
pub mod eigen;
pub mod error;
pub mod history;
pub mod io;
pub mod kmeans;
pub mod label_errors;
pub mod labels;
pub mod matmul;
pub mod matrix;
pub mod memory;
pub mod neighbours;
pub mod outliers;
pub mod patches;
pub mod pca;
pub mod peers;
pub mod purify;
pub mod quality;
pub mod readout;
pub mod rng;
mod scatter;
pub mod schedule;
pub mod scores;
pub mod spectral;
#[cfg(test)]
mod testing;
pub mod text;
pub mod tsne;
