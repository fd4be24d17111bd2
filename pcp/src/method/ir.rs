//! IR, instance recognition (Wu et al. 2018): every image is a class of its own in the softmax over the memory bank.

use super::{Method, Plan};

/// The only positive is the image itself; the loss is Eq. 4, on one view. These are the defaults of [`Method`].
pub struct Ir;

impl Method for Ir {
    fn describe(&self, _plan: &Plan) -> String {
        "every image alone".into()
    }
}
