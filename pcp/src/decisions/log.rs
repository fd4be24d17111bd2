//! The log of decisions: a file of lines that is only appended to, by any number of processes.

use super::{Decided, Decision, DecisionEntry};
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::sync_parent;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A log of decisions. Every change is on disk before it is confirmed; what others append is read before the next own line.
#[derive(Debug)]
pub struct DecisionLog {
    path: PathBuf,
    entries: Vec<DecisionEntry>,
    /// Bytes that were read: whole lines only.
    read: u64,
}

impl DecisionLog {
    /// The log at `path`; one that does not exist yet is empty. A link is refused: it could lead anywhere.
    pub fn open(path: &Path) -> Result<DecisionLog> {
        let mut log = DecisionLog { path: path.to_path_buf(), entries: Vec::new(), read: 0 };
        log.refresh()?;
        Ok(log)
    }

    /// All lines.
    pub fn entries(&self) -> &[DecisionEntry] {
        &self.entries
    }

    fn check_path(&self) -> Result<bool> {
        let about = match std::fs::symlink_metadata(&self.path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            found => found.map_err(|e| Error::io("read", &self.path, &e))?,
        };
        match about.is_file() {
            true => Ok(true),
            false => Err(Error::file(
                format!("{} is not a regular file", self.path.display()),
                "remove it: decisions are written to a file of their own",
            )),
        }
    }

    /// Reads what was appended since, by whomever; returns whether there was anything.
    pub fn refresh(&mut self) -> Result<bool> {
        if !self.check_path()? {
            return Ok(false);
        }
        let mut file = File::open(&self.path).map_err(|e| Error::io("read", &self.path, &e))?;
        self.read_from(&mut file)
    }

    fn read_from(&mut self, file: &mut File) -> Result<bool> {
        let io = |e: std::io::Error| Error::io("read", &self.path, &e);
        let length = file.metadata().map_err(io)?.len();
        if length < self.read {
            let message = format!("{} has become shorter while it was in use", self.path.display());
            return Err(Error::file(message, "restore it and start again: decisions are only ever appended"));
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.read)).and_then(|_| file.read_to_end(&mut bytes)).map_err(io)?;
        // A line without an end is one that a kill cut off: it was never confirmed.
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let first = self.entries.len();
        for (i, line) in bytes[..whole].split(|b| *b == b'\n').filter(|line| !line.is_empty()).enumerate() {
            let entry: DecisionEntry = serde_json::from_slice(line).map_err(|e| {
                let message = format!("{}, line {}: {e}", self.path.display(), first + i + 1);
                Error::file(message, "remove the broken line")
            })?;
            self.entries.push(entry);
        }
        self.read += whole as u64;
        Ok(whole > 0)
    }

    /// Appends a decision of `by`; returns its line. When this returns, it is on disk.
    pub fn append(&mut self, by: &str, decision: Decision) -> Result<usize> {
        decision.check()?;
        self.write(by, |_| Ok(Some(decision))).map(|line| line.unwrap_or_default())
    }

    /// Undoes the last decision of `by`, or of anyone where `by` has none left; returns its line.
    pub fn undo(&mut self, by: &str) -> Result<Option<usize>> {
        let mut undone = None;
        self.write(by, |log| {
            undone = log.stacks(Some(by)).0.pop().or_else(|| log.stacks(None).0.pop());
            Ok(undone.map(|line| Decision::Undo { line }))
        })?;
        Ok(undone)
    }

    /// Redoes what `by`, or otherwise anyone, undid last, unless something was decided since; returns its line.
    pub fn redo(&mut self, by: &str) -> Result<Option<usize>> {
        let mut redone = None;
        self.write(by, |log| {
            redone = log.stacks(Some(by)).1.pop().or_else(|| log.stacks(None).1.pop());
            Ok(redone.map(|line| Decision::Redo { line }))
        })?;
        Ok(redone)
    }

    /// Appends what `choose` decides after it has seen all lines of others. Nobody else writes meanwhile.
    fn write(
        &mut self,
        by: &str,
        choose: impl FnOnce(&DecisionLog) -> Result<Option<Decision>>,
    ) -> Result<Option<usize>> {
        self.check_path()?;
        let path = self.path.clone();
        let io = |e: std::io::Error| Error::io("write", &path, &e);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
        // Some file systems have no locks; there, one process at a time must do.
        let _ = file.lock();
        self.read_from(&mut file)?;
        let Some(decision) = choose(self)? else { return Ok(None) };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
        let entry = DecisionEntry { time, by: by.to_string(), decision };
        let mut line = serde_json::to_vec(&entry).map_err(|e| Error::file(e.to_string(), "please report this"))?;
        line.push(b'\n');
        // Half a line of a killed process is written over.
        file.set_len(self.read).map_err(io)?;
        file.seek(SeekFrom::Start(self.read)).map_err(io)?;
        file.write_all(&line).and_then(|()| file.sync_data()).map_err(io)?;
        if self.read == 0 {
            // The file is new: its name must last, too.
            sync_parent(&path).map_err(io)?;
        }
        self.read += line.len() as u64;
        self.entries.push(entry);
        Ok(Some(self.entries.len() - 1))
    }

    /// Lines of `by` (of all, for `None`) that hold and can be undone, and lines that were undone and can be redone, the last ones last.
    fn stacks(&self, by: Option<&str>) -> (Vec<usize>, Vec<usize>) {
        let (mut done, mut undone): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        let counts = |line: usize| by.is_none_or(|by| self.entries[line].by == by);
        for (at, entry) in self.entries.iter().enumerate() {
            match entry.decision {
                Decision::Undo { line } | Decision::Redo { line } if line >= at => {}
                Decision::Undo { line } => {
                    done.retain(|other| *other != line);
                    if counts(line) {
                        undone.push(line);
                    }
                }
                Decision::Redo { line } => {
                    undone.retain(|other| *other != line);
                    if counts(line) {
                        done.push(line);
                    }
                }
                _ if counts(at) => {
                    done.push(at);
                    undone.clear();
                }
                _ => {}
            }
        }
        (done, undone)
    }

    /// Whether `by` could undo and redo something.
    pub fn can(&self, by: &str) -> (bool, bool) {
        let ((own, own_undone), (all, all_undone)) = (self.stacks(Some(by)), self.stacks(None));
        (!own.is_empty() || !all.is_empty(), !own_undone.is_empty() || !all_undone.is_empty())
    }

    /// What holds after all decisions.
    pub fn decided(&self) -> Decided {
        let mut holds = vec![true; self.entries.len()];
        for (at, entry) in self.entries.iter().enumerate() {
            match entry.decision {
                Decision::Undo { line } if line < at => holds[line] = false,
                Decision::Redo { line } if line < at => holds[line] = true,
                _ => {}
            }
        }
        let mut decided = Decided::default();
        self.entries.iter().zip(holds).filter(|(_, holds)| *holds).for_each(|(entry, _)| decided.take(&entry.decision));
        decided
    }
}
