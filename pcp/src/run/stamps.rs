//! `stamps.csv`: size and modification time of every image file when it was read, so that changed files can be named.

use super::RunFolder;
use crate::data::{Dataset, FileStamp, Stamp};
use pcp_core::error::Result;
use pcp_core::io::atomic::write_atomic;
use pcp_core::io::csv;
use std::collections::BTreeMap;
use std::io::Write;

const NAME: &str = "stamps.csv";

impl RunFolder {
    /// Writes the stamps of the files of `data`, if it has any.
    pub(super) fn write_stamps(&self, data: &Dataset) -> Result<()> {
        if data.stamps.is_empty() {
            return Ok(());
        }
        write_atomic(&self.file(NAME), |w| {
            writeln!(w, "file,bytes,modified")?;
            for FileStamp { name, stamp } in &data.stamps {
                writeln!(w, "{},{},{}", csv::field(name), stamp.size, stamp.modified)?;
            }
            Ok(())
        })
    }

    /// Size and time of every file when the run read it, `None` where the list is damaged; `None` without a list.
    pub fn read_stamps(&self) -> Option<BTreeMap<String, Option<Stamp>>> {
        let bytes = std::fs::read(self.file(NAME)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let mut stamps: BTreeMap<String, Option<Stamp>> = BTreeMap::new();
        for row in csv::rows(&text).into_iter().skip(1) {
            let [name, size, modified] = row.as_slice() else { continue };
            let stamp = size.parse().ok().zip(modified.parse().ok());
            stamps.insert(name.clone(), stamp.map(|(size, modified)| Stamp { size, modified }));
        }
        Some(stamps)
    }

    /// The files of `data` that changed since the run began, each with the kind of change. Without `stamps.csv`, as in runs of earlier
    /// versions, no change is reported.
    pub fn changed_files(&self, data: &Dataset) -> Vec<String> {
        let Some(mut before) = self.read_stamps() else { return Vec::new() };
        let mut changed = Vec::new();
        for FileStamp { name, stamp } in &data.stamps {
            match before.remove(name) {
                Some(old) if old == Some(*stamp) => {}
                Some(old) if old.is_none_or(|old| old.size != stamp.size) => {
                    changed.push(format!("{name} (another size)"))
                }
                Some(_) => changed.push(format!("{name} (changed at another time)")),
                None => changed.push(format!("{name} (new)")),
            }
        }
        changed.extend(before.into_keys().map(|name| format!("{name} (gone)")));
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder::create(&dir.path().join("run"), false).unwrap();
        let of = |files: &[(&str, u64, i64)]| {
            let stamp = |(name, size, modified): &(&str, u64, i64)| FileStamp {
                name: name.to_string(),
                stamp: Stamp { size: *size, modified: *modified },
            };
            Dataset { stamps: files.iter().map(stamp).collect(), ..Dataset::default() }
        };
        let began = [("a,\"1\".png", 10, 5), ("b.png", 10, -7), ("c.png", 0, 0), ("d.png", 1, 1)];
        assert!(run.changed_files(&of(&began)).is_empty(), "nothing is known");
        run.write_stamps(&of(&[])).unwrap();
        assert!(!run.file(NAME).exists());
        run.write_stamps(&of(&began)).unwrap();
        assert!(run.changed_files(&of(&began)).is_empty());
        let now = [("a,\"1\".png", 11, 5), ("b.png", 10, -8), ("c.png", 0, 0), ("e.png", 1, 1)];
        let expected = ["a,\"1\".png (another size)", "b.png (changed at another time)", "e.png (new)", "d.png (gone)"];
        assert_eq!(run.changed_files(&of(&now)), expected);
        std::fs::write(run.file(NAME), "file,bytes,modified\nc.png,x,y\n\"").unwrap();
        assert_eq!(run.changed_files(&of(&began)).len(), 4, "a damaged list is ignored");
    }
}
