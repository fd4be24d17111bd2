//! Whether a run folder is whole.

use crate::observe::Observer;
use crate::run::{DETECTION, DamagedFile, RunFolder, TRAINING};
use pcp_core::error::{Error, Result, listed};
use pcp_core::io::atomic::is_there;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a check of a run folder found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// The run folder.
    pub run: PathBuf,
    /// Whether the run is finished.
    pub finished: bool,
    /// Whether it has a list of checksums; earlier versions wrote none.
    pub listed: bool,
    /// Files that are whole.
    pub whole: usize,
    /// Files that are not.
    pub damaged: Vec<DamagedFile>,
}

impl CheckResult {
    /// An error that names the files that are not whole.
    pub fn judge(&self) -> Result<()> {
        let few = self.damaged.iter().take(5).map(|d| format!("{} ({})", d.file, d.reason));
        match self.damaged.len() {
            0 => Ok(()),
            n => Err(Error::file(
                format!("{n} files of {} are damaged: {}", self.run.display(), listed(few)),
                "restore them from a copy; what training made is made again by a run with the same settings and seed",
            )),
        }
    }
}

/// Compares the files of a run, of a network or of a detector, with their checksums. Nothing is changed.
pub fn check(run: &Path, observer: &Arc<dyn Observer>) -> Result<CheckResult> {
    observer.cancel().check()?;
    let folder = RunFolder::open_as(&TRAINING, run).or_else(|e| RunFolder::open_as(&DETECTION, run).map_err(|_| e))?;
    let (whole, damaged) = folder.check_files()?;
    let (finished, listed) = (is_there(&folder.file("result.json"))?, folder.has_checksums()?);
    Ok(CheckResult { run: run.to_path_buf(), finished, listed, whole, damaged })
}
