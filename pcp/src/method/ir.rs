//! IR, instance recognition (Wu et al. 2018): every image is a class of its own in the softmax over the memory bank.

use super::{Method, Plan};

/// Its positives are the image itself; its loss is Eq. 4, on one view. All of it is what every bank-based system begins with.
pub struct Ir;

impl Method for Ir {
    fn describe(&self, _plan: &Plan) -> String {
        "every image alone".into()
    }
}
