//! One process at a time writes to a run folder. The system forgets the lock when its process ends, however it ends.

use super::RunFolder;
use pcp_core::error::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::sync::Arc;

/// The file that is locked. It stays when the run is over: removing it would let two processes lock two files of one name.
pub(super) const FILE: &str = "lock";

impl RunFolder {
    /// The same folder, held by this process until the last copy of it is gone. Fails while another process holds it.
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
                    format!("wait until it is done, or stop it (kill {process}) and give the same command again"),
                ));
            }
            // File systems without locks have to do without.
            Err(TryLockError::Error(_)) => {}
        }
        let said = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| write!(file, "{}", std::process::id()));
        said.map_err(|e| io(&e))?;
        self.lock = Some(Arc::new(file));
        Ok(self)
    }
}

/// A lock that is held; only its life matters.
pub(super) type Held = Option<Arc<File>>;
