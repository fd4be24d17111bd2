//! What a practitioner wants to be told.

use std::fmt;

/// Something that goes on, but may not be meant.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// All embeddings are nearly the same.
    Collapse {
        /// Standard deviation over that of evenly spread unit vectors.
        spread: f64,
    },
    /// One cluster holds most samples.
    Imbalance {
        /// Its share.
        share: f64,
    },
    /// Purification left no positive set.
    NothingKept,
    /// There are fewer images than fit in a batch.
    FewerThanBatch {
        /// Images.
        images: usize,
        /// Batch.
        batch: usize,
    },
    /// The kNN probe asks for more neighbours than there are.
    FewerThanK {
        /// Neighbours that are there.
        images: usize,
        /// Neighbours asked for.
        k: usize,
    },
    /// Files that could not be used.
    BadFiles {
        /// How many.
        count: usize,
    },
    /// The run began with another program or on another kind of CPU.
    OtherOrigin {
        /// What differs.
        what: String,
    },
    /// The floor of the number of clusters is so near to the number of images that nothing is ever clustered.
    NothingToCluster,
    /// A checkpoint that cannot be used.
    DamagedCheckpoint {
        /// Which, and why.
        what: String,
    },
    /// The names beside a matrix are not those of its rows.
    NamesDoNotFit {
        /// The file of the names.
        file: String,
        /// Names in it.
        names: usize,
        /// The matrix.
        matrix: String,
        /// Rows of the matrix.
        rows: usize,
    },
    /// An image that cannot be read.
    LeftOut {
        /// Its name.
        file: String,
        /// Why it cannot be read.
        reason: String,
    },
}

impl Warning {
    /// A name for each kind, so that one kind need not be said again and again.
    pub fn kind(&self) -> &'static str {
        match self {
            Warning::Collapse { .. } => "collapse",
            Warning::Imbalance { .. } => "imbalance",
            Warning::NothingKept => "nothing kept",
            Warning::FewerThanBatch { .. } => "batch",
            Warning::FewerThanK { .. } => "k",
            Warning::BadFiles { .. } => "bad files",
            Warning::OtherOrigin { .. } => "origin",
            Warning::NothingToCluster => "nothing to cluster",
            Warning::DamagedCheckpoint { .. } => "checkpoint",
            Warning::NamesDoNotFit { .. } => "names",
            Warning::LeftOut { .. } => "left out",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Warning::Collapse { spread } => write!(
                f,
                "the embeddings have nearly collapsed: their spread is {spread:.3} of an even one; try a lower lr or more varied images"
            ),
            Warning::Imbalance { share } => write!(
                f,
                "one cluster holds {:.0} % of all samples; more clusters (--clusters) or a longer warm-up may help",
                share * 100.0
            ),
            Warning::NothingKept => {
                write!(
                    f,
                    "purification left no positives, so every image learns alone; a lower --gamma or fewer --clusters keeps more"
                )
            }
            Warning::FewerThanBatch { images, batch } => {
                write!(
                    f,
                    "there are only {images} images, fewer than the batch of {batch}: every epoch is a single step"
                )
            }
            Warning::FewerThanK { images, k } => {
                write!(f, "kNN asks for {k} neighbours, but there are {images}: it uses those")
            }
            Warning::BadFiles { count } => {
                write!(f, "{count} unreadable files were skipped; bad_files.csv names them and says why")
            }
            Warning::OtherOrigin { what } => {
                write!(f, "{what}: the run goes on, but not to the bit as it would have")
            }
            Warning::NothingToCluster => {
                write!(
                    f,
                    "there are nearly as many --clusters as images, so every image learns alone, as in instance recognition"
                )
            }
            Warning::DamagedCheckpoint { what } => write!(f, "{what}; going on from the one before"),
            Warning::NamesDoNotFit { file, names, matrix, rows } => {
                write!(f, "{file} names {names} rows, {matrix} has {rows}; rows stay without names")
            }
            Warning::LeftOut { file, reason } => write!(f, "{file} is left out: {reason}"),
        }
    }
}
