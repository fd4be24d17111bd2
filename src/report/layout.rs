//! Where the images lie on the map.

use crate::features::Features;
use crate::pca::Pca;

/// How places are found, for people.
pub const METHOD: &str = "the first two principal components";

/// A place in the plane for every row.
pub fn layout(embeddings: &Features) -> Vec<[f32; 2]> {
    let plane = Pca::fit(embeddings, 2).apply(embeddings, false);
    // One dimension leaves a line.
    plane.values.chunks(plane.dim.max(1)).map(|p| [p[0], p.get(1).copied().unwrap_or(0.0)]).collect()
}
