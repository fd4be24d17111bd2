//! The checkpoint files of a run folder, of any kind of run.

use super::RunFolder;
use pcp_core::error::{Error, Kind, Result};
use pcp_core::io::atomic::entries;
use std::fs;
use std::path::PathBuf;

/// Number of checkpoints that are kept.
const KEEP: usize = 2;

/// The newest readable checkpoint, and the errors of newer ones, which were renamed.
pub struct Restored<T> {
    /// Its contents; `None` if there is no checkpoint yet.
    pub state: Option<T>,
    /// Why newer ones cannot be used.
    pub damaged: Vec<String>,
}

impl RunFolder {
    /// All checkpoints, oldest first: their names sort by time.
    pub fn checkpoints(&self) -> Result<Vec<PathBuf>> {
        let mut paths = entries(&self.file("checkpoints"))?;
        paths.retain(|p| p.extension().is_some_and(|e| e == "safetensors"));
        Ok(paths)
    }

    /// Removes all checkpoints but the last two.
    pub fn keep_newest(&self) -> Result<()> {
        for old in self.checkpoints()?.into_iter().rev().skip(KEEP) {
            fs::remove_file(&old).map_err(|e| Error::io("remove", &old, &e))?;
        }
        Ok(())
    }

    /// The newest state that `load` can read. Damaged files stay, under names that are not
    /// read again; an error where all are damaged. A file that the system cannot read now, or that is refused, is no damaged one: that is
    /// an error.
    pub fn restore<T>(&self, load: impl Fn(&PathBuf) -> Result<T>) -> Result<Restored<T>> {
        self.remove_unfinished();
        let mut damaged = Vec::new();
        for path in self.checkpoints()?.into_iter().rev() {
            match load(&path) {
                Ok(state) => {
                    let (paths, why): (Vec<PathBuf>, Vec<String>) = damaged.into_iter().unzip();
                    for path in paths {
                        let mut name = path.clone().into_os_string();
                        name.push(".damaged");
                        let _ = fs::rename(path, name);
                    }
                    // A killed process may not have removed the oldest.
                    self.keep_newest()?;
                    return Ok(Restored { state: Some(state), damaged: why });
                }
                // It may be whole: the disk did not answer, or it belongs to other settings.
                Err(e) if e.kind == Kind::Usage || e.is_of_system() => return Err(e),
                Err(e) => damaged.push((path, e.message)),
            }
        }
        match damaged.first() {
            Some((_, why)) => Err(Error::file(
                format!("no checkpoint of {} can be used: {why}", self.path().display()),
                "start the run again with --overwrite",
            )),
            None => Ok(Restored { state: None, damaged: Vec::new() }),
        }
    }
}
