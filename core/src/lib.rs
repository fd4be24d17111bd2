//! Clusters of any matrix, purified: the parts of Progressive Cluster Purification (PCP) that know no network.

pub mod cancel;
pub mod curate;
pub mod dots;
pub mod error;
pub mod io;
pub mod kmeans;
pub mod labels;
pub mod matmul;
pub mod matrix;
pub mod neighbours;
pub mod pca;
pub mod purify;
pub mod rng;
pub mod scores;
pub mod tsne;
