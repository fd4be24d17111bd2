//! Warnings of a run, and `warnings.jsonl`, which stores them.
//!
//! A line is one warning, with its round and epoch if it belongs to one. Run folders of versions that did not write the file have
//! no warnings.

use super::RunFolder;
use pcp_core::error::{Error, Result, listed};
use pcp_core::io::atomic::{append, is_there, read_bytes, write_bytes};
use serde::{Deserialize, Serialize};
use std::fmt;

const FILE: &str = "warnings.jsonl";

/// A line of `warnings.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WarningRecord {
    /// Round and epoch, both from 0; `None` for warnings about the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<(u32, u32)>,
    /// The warning.
    pub warning: Warning,
}

/// A warning: a possible problem that does not stop the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Warning {
    /// All embeddings are nearly the same.
    Collapse {
        /// Standard deviation divided by that of uniformly distributed unit vectors.
        spread: f64,
    },
    /// One cluster holds most samples.
    Imbalance {
        /// Its share.
        share: f64,
    },
    /// Purification left no positive sets.
    NothingKept,
    /// There are fewer images than a batch has.
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
    /// The run was started with another version or on another kind of CPU.
    OtherOrigin {
        /// What differs.
        what: String,
    },
    /// The floor of the number of clusters is so near to the number of images that nothing is ever clustered.
    NothingToCluster,
    /// Parts of a batch have fewer images than there are processes, so that each computes the whole batch.
    Undivided {
        /// Images of a part.
        rows: usize,
        /// Processes.
        processes: usize,
    },
    /// A checkpoint that cannot be used.
    DamagedCheckpoint {
        /// Which, and why.
        what: String,
    },
    /// A file of the run was missing or damaged, and was restored from the checkpoint.
    Restored {
        /// Which, and what of it is lost.
        what: String,
    },
    /// Classes of which no image shows an object.
    UnseenClasses {
        /// Their names.
        classes: Vec<String>,
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
    /// The names beside a matrix were written with another one.
    NamesOfAnother {
        /// The file of the names.
        file: String,
        /// The matrix.
        matrix: String,
    },
    /// An image that cannot be read.
    LeftOut {
        /// Its name.
        file: String,
        /// Why it cannot be read.
        reason: String,
    },
    /// A run ended without its page.
    NoReport {
        /// Why.
        reason: String,
        /// The run folder.
        run: String,
    },
}

impl Warning {
    /// The name of its kind, for showing each kind once.
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
            Warning::Undivided { .. } => "processes",
            Warning::DamagedCheckpoint { .. } => "checkpoint",
            Warning::Restored { .. } => "restored",
            Warning::UnseenClasses { .. } => "unseen classes",
            Warning::NamesDoNotFit { .. } => "names",
            Warning::NamesOfAnother { .. } => "other names",
            Warning::LeftOut { .. } => "left out",
            Warning::NoReport { .. } => "report",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Warning::Collapse { spread } => write!(
                f,
                "the embeddings have nearly collapsed: their spread is {spread:.3} of a uniform one; try a lower train.lr or more varied images"
            ),
            Warning::Imbalance { share } => write!(
                f,
                "one cluster holds {:.0} % of all samples; more clusters (clusters.floor) or a longer warm-up may help",
                share * 100.0
            ),
            Warning::NothingKept => {
                write!(
                    f,
                    "purification left no positives, so every image learns alone; a lower purify.gamma or a lower clusters.floor keeps more"
                )
            }
            Warning::FewerThanBatch { images, batch } => {
                write!(
                    f,
                    "there are only {images} images, fewer than the batch of {batch}: every epoch is a single step"
                )
            }
            Warning::FewerThanK { images, k } => {
                write!(f, "kNN needs {k} neighbours, but there are only {images}: it uses those")
            }
            Warning::BadFiles { count } => {
                write!(f, "{count} unreadable files were skipped; bad_files.csv lists them with the reasons")
            }
            Warning::OtherOrigin { what } => {
                write!(f, "{what}: the run continues, but the last bits may differ")
            }
            Warning::NothingToCluster => {
                write!(
                    f,
                    "clusters.floor is nearly the number of images, so every image learns alone, as in instance recognition"
                )
            }
            Warning::Undivided { rows, processes } => write!(
                f,
                "{processes} processes cannot divide batches with parts of {rows} images: each computes all of them; give a larger --batch"
            ),
            Warning::DamagedCheckpoint { what } => write!(f, "{what}; continuing from the one before"),
            Warning::Restored { what } => f.write_str(what),
            Warning::UnseenClasses { classes } => write!(f, "no image shows {}", listed(classes)),
            Warning::NamesDoNotFit { file, names, matrix, rows } => {
                write!(f, "{file} names {names} rows, {matrix} has {rows}; rows stay without names")
            }
            Warning::NamesOfAnother { file, matrix } => {
                write!(f, "{file} names the rows of another matrix than {matrix}; rows stay without names")
            }
            Warning::LeftOut { file, reason } => write!(f, "{file} is left out: {reason}"),
            Warning::NoReport { reason, run } => write!(f, "there is no report: {reason}; try: pcp report {run}"),
        }
    }
}

impl RunFolder {
    /// Adds a warning to `train.log` and `warnings.jsonl`. A warning about the whole run is stored once, however often the run is
    /// resumed. Errors are ignored: the file is not needed.
    pub fn warn(&self, record: &WarningRecord) {
        self.log(&format!("warning: {}", record.warning));
        if record.at.is_none() && self.read_warnings().is_ok_and(|known| known.contains(record)) {
            return;
        }
        if let Ok(line) = serde_json::to_string(record) {
            let _ = append(&self.file(FILE), format!("{line}\n").as_bytes());
        }
    }

    /// All warnings so far, in order.
    pub fn read_warnings(&self) -> Result<Vec<WarningRecord>> {
        let path = self.file(FILE);
        if !is_there(&path)? {
            return Ok(Vec::new());
        }
        let text = String::from_utf8_lossy(&read_bytes(&path)?).into_owned();
        let parse = |(i, line): (usize, &str)| {
            serde_json::from_str(line)
                .map_err(|e| Error::file(format!("{}, line {}: {e}", path.display(), i + 1), "remove the broken line"))
        };
        text.lines().enumerate().map(parse).collect()
    }

    /// Removes the warnings for which `stays` is false, and an incomplete line at the end.
    pub fn cut_warnings(&self, stays: impl Fn(&WarningRecord) -> bool) -> Result<()> {
        let path = self.file(FILE);
        if !is_there(&path)? {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&read_bytes(&path)?).into_owned();
        let kept = |line: &&str| line.ends_with('\n') && serde_json::from_str(line).is_ok_and(|record| stays(&record));
        let left: String = text.split_inclusive('\n').filter(kept).collect();
        if left.len() == text.len() { Ok(()) } else { write_bytes(&path, left.as_bytes()) }
    }
}
