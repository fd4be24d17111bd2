//! The lock of a run folder: one process at a time writes to it. The operating system releases the lock when the process ends.

use super::RunFolder;
use pcp_core::error::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;

/// The lock file. It is never removed: otherwise two processes could lock two files of the same name.
pub(super) const FILE: &str = "lock";

impl RunFolder {
    /// Whether the process that made the folder `path` and locked it has ended; it was `process`.
    pub fn is_abandoned(path: &Path, process: &str) -> bool {
        match File::open(path.join(FILE)) {
            Ok(file) => file.try_lock().is_ok(),
            // It was killed before it could lock it, or is about to do so.
            Err(_) => Path::new("/proc/self").exists() && !Path::new("/proc").join(process).exists(),
        }
    }

    /// Locks the folder until the last clone of it is dropped. An error if another process has locked it.
    pub fn locked(mut self) -> Result<RunFolder> {
        let path = self.file(FILE);
        let io = |e: &std::io::Error| Error::io("write", &path, e);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(|e| io(&e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut process = String::new();
                let _ = file.read_to_string(&mut process);
                let process = if process.trim().is_empty() { "another one".into() } else { process.trim().to_string() };
                return Err(Error::usage(
                    format!("{} is in use by process {process}", self.path().display()),
                    format!("wait until it ends, or stop it (kill {process}) and run the same command again"),
                ));
            }
            // Some file systems have no locks.
            Err(TryLockError::Error(_)) => {}
        }
        let said = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| write!(file, "{}", std::process::id()));
        said.map_err(|e| io(&e))?;
        self.lock = Some(Arc::new(file));
        Ok(self)
    }
}

/// A lock; dropping it releases the lock.
pub(super) type Lock = Option<Arc<File>>;
