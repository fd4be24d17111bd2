//! Clusters of patches: features without a network. They are learned before the first epoch, and there is none.

use super::{Method, Plan};

/// No epoch is trained: the defaults of [`Method`] are never used.
pub struct WithoutNetwork;

impl Method for WithoutNetwork {
    fn describe(&self, _plan: &Plan) -> String {
        "clusters of patches, without a network".into()
    }
}
