//! Classes of rows, known from outside.

/// The class of every image of a split: for evaluation only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// Class names.
    pub classes: Vec<String>,
    /// Class of every row, an index into `classes`.
    pub of: Vec<u32>,
}
