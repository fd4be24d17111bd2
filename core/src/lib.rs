//! Clusters of any matrix, purified: the parts of Progressive Cluster Purification (PCP) that know no network.

pub mod cancel;
pub mod centres;
pub mod cluster_count;
pub mod dots;
pub mod duplicates;
pub mod error;
pub mod history;
pub mod io;
pub mod kmeans;
pub mod label_errors;
pub mod labels;
pub mod matmul;
pub mod matrix;
pub mod neighbours;
pub mod outliers;
pub mod pca;
pub mod purify;
pub mod rng;
pub mod schedule;
pub mod scores;
#[cfg(test)]
mod testing;
pub mod tsne;
