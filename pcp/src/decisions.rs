//! Decisions of a person about a collection of images: which stay, which go, what they show, which are copies, and what clusters are called.
//!
//! They are lines of `decisions.jsonl` beside the run, which is only ever appended to ([`DecisionLog`]); what holds after all of them is
//! [`Decided`]. Images are meant by their names, so that decisions about one run hold for another one on the same images. The images
//! themselves are never touched.

mod export;
mod log;
mod state;
#[cfg(test)]
mod tests;

pub use export::DecidedImage;
pub use log::DecisionLog;
pub use state::Decided;

use pcp_core::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file of decisions in a run folder.
pub const FILE: &str = "decisions.jsonl";
/// The longest name of a cluster and label of an image, in characters.
const LONGEST: usize = 200;

/// Whether an image stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// It belongs, whatever purification says.
    Keep,
    /// It is to be left out.
    Remove,
}

impl Mark {
    /// The word in files.
    pub fn name(self) -> &'static str {
        match self {
            Mark::Keep => "keep",
            Mark::Remove => "remove",
        }
    }
}

/// One decision. `None` takes an earlier one of the same kind back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Decision {
    /// Images stay or go.
    Mark {
        /// The images.
        files: Vec<String>,
        /// Whether they stay.
        mark: Option<Mark>,
    },
    /// What images show.
    Label {
        /// The images.
        files: Vec<String>,
        /// Their label.
        label: Option<String>,
    },
    /// Images are copies of another one, which stays in their place.
    Same {
        /// The copies.
        files: Vec<String>,
        /// The image that stays.
        of: Option<String>,
    },
    /// What a cluster is called.
    Name {
        /// The cluster.
        cluster: u32,
        /// Its name.
        name: Option<String>,
    },
    /// Clusters are one.
    Merge {
        /// The clusters.
        clusters: Vec<u32>,
        /// The one whose number and name they get.
        into: u32,
    },
    /// Images belong to another cluster: splitting moves some to a new one.
    Move {
        /// The images.
        files: Vec<String>,
        /// Their cluster.
        to: Option<u32>,
    },
    /// The decision of a line no longer holds.
    Undo {
        /// The line, counted from 0.
        line: usize,
    },
    /// The decision of a line that was undone holds again.
    Redo {
        /// The line, counted from 0.
        line: usize,
    },
}

impl Decision {
    /// An error for texts that cannot be names, and for decisions about nothing.
    pub fn check(&self) -> Result<()> {
        let text = |text: &Option<String>| match text {
            Some(text)
                if text.trim().is_empty() || text.chars().count() > LONGEST || text.contains(char::is_control) =>
            {
                let message = format!("{text:?} is no name");
                Err(Error::usage(message, format!("give 1 to {LONGEST} characters in one line")))
            }
            _ => Ok(()),
        };
        let some = |empty: bool| match empty {
            true => {
                Err(Error::usage("a decision about nothing", "choose at least one image, or two clusters to merge"))
            }
            false => Ok(()),
        };
        match self {
            Decision::Mark { files, .. } | Decision::Move { files, .. } => some(files.is_empty()),
            Decision::Label { files, label } => some(files.is_empty()).and_then(|()| text(label)),
            Decision::Same { files, of } => {
                if of.as_ref().is_some_and(|of| files.contains(of)) {
                    return Err(Error::usage("an image is no copy of itself", "leave it out of the copies"));
                }
                some(files.is_empty())
            }
            Decision::Name { name, .. } => text(name),
            Decision::Merge { clusters, into } => some(clusters.iter().all(|c| c == into)),
            Decision::Undo { .. } | Decision::Redo { .. } => Ok(()),
        }
    }
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionEntry {
    /// Seconds since 1970.
    pub time: u64,
    /// Who decided: an open page, so that each undoes its own decisions first.
    pub by: String,
    /// The decision.
    #[serde(flatten)]
    pub decision: Decision,
}

/// The file of decisions that `path` means, a file or a run folder.
pub(crate) fn file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(FILE) } else { path.to_path_buf() }
}

/// The decisions in `path`, a file or a run folder; a missing file is an error.
pub fn read(path: &Path) -> Result<Decided> {
    let file = file(path);
    if !file.is_file() {
        let message = format!("there are no decisions in {}", path.display());
        return Err(Error::usage(
            message,
            "give the decisions.jsonl that `pcp serve` wrote, or the run folder it is in",
        ));
    }
    Ok(DecisionLog::open(&file)?.decided())
}
