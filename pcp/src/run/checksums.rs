//! `checksums.txt`: the SHA-256 of the files of a run, as `sha256sum` writes and checks it. Every reader of a file that is listed compares it
//! first, so that a flipped bit is an error and not another result. Checkpoints and weights have checksums of their own inside.
//!
//! The list is written when a run begins or goes on, with the files that do not change any more, and again just before the result, with all.
//! Run folders of versions that did not write it are read as they are.

use super::RunFolder;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{entries, has_file, is_there, read_bytes, write_bytes};
use pcp_core::io::tensors::{Tensors, hex, sha256_of};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The list.
pub(super) const FILE: &str = "checksums.txt";

/// Files that a run writes before its first epoch.
const FIRST: [&str; 5] = ["config.toml", "detect.toml", "files.csv", "stamps.csv", "bad_files.csv"];
/// Files that it writes until its end, and folders of such.
const LAST: [&str; 10] = [
    "metrics.jsonl",
    "clusters.csv",
    "embeddings.npy",
    "embeddings-test.npy",
    "files-test.csv",
    "patches.safetensors",
    "heat.npz",
    "init.safetensors",
    "model.safetensors",
    "model-best.safetensors",
];
const FOLDERS: [&str; 2] = ["clusters", "snapshots"];

/// A file of a run that is not whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedFile {
    /// Its name in the run folder.
    pub file: String,
    /// What is wrong with it.
    pub reason: String,
}

impl RunFolder {
    /// Lists the files that do not change any more.
    pub(crate) fn write_first_checksums(&self) -> Result<()> {
        self.write_checksums(FIRST.iter().map(|name| name.to_string()).collect(), None)
    }

    /// Lists all files, and the result that is about to be written.
    pub(super) fn write_last_checksums(&self, name: &str, result: &[u8]) -> Result<()> {
        let mut names: Vec<String> = FIRST.iter().chain(&LAST).map(|name| name.to_string()).collect();
        for folder in FOLDERS {
            let found = entries(&self.file(folder))?;
            names.extend(found.iter().filter_map(|path| Some(format!("{folder}/{}", path.file_name()?.to_str()?))));
        }
        names.sort();
        self.write_checksums(names, Some((name, hex(&Sha256::digest(result)))))
    }

    fn write_checksums(&self, names: Vec<String>, more: Option<(&str, String)>) -> Result<()> {
        let mut text = String::new();
        for name in &names {
            if has_file(&self.file(name))? {
                text += &format!("{}  {name}\n", sha256_of(&self.file(name))?);
            }
        }
        text += &more.map(|(name, sum)| format!("{sum}  {name}\n")).unwrap_or_default();
        write_bytes(&self.file(FILE), text.as_bytes())
    }

    /// The checksums by name; empty where the run has no list.
    fn checksums(&self) -> Result<BTreeMap<String, String>> {
        let path = self.file(FILE);
        if !is_there(&path)? {
            return Ok(BTreeMap::new());
        }
        let text = String::from_utf8_lossy(&read_bytes(&path)?).into_owned();
        Ok(text.lines().filter_map(|line| line.split_once("  ")).map(|(sum, name)| (name.into(), sum.into())).collect())
    }

    /// The path of the file `name`, which is whole as far as the list knows it; an error where it is not.
    pub fn whole(&self, name: &str) -> Result<PathBuf> {
        let path = self.file(name);
        if let Some(sum) = self.checksums()?.get(name)
            && has_file(&path)?
            && sha256_of(&path)? != *sum
        {
            return Err(Error::file(
                format!("{} was changed or damaged: its checksum is not that in {FILE}", path.display()),
                format!("restore the file; if you changed it on purpose, remove its line from {FILE}"),
            ));
        }
        Ok(path)
    }

    /// An error where the file `path` is listed in a `checksums.txt` beside it, and not whole.
    pub fn require_whole(path: &Path) -> Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let run = RunFolder { path: folder.to_path_buf(), lock: None };
        match path.file_name().and_then(|name| name.to_str()) {
            Some(name) => run.whole(name).map(drop),
            None => Ok(()),
        }
    }

    /// Compares every file that is listed, and those that have their own checksums. Returns the number of files that are whole, and the
    /// others.
    pub fn check_files(&self) -> Result<(usize, Vec<DamagedFile>)> {
        let (mut whole, mut damaged) = (0, Vec::new());
        let mut count = |file: String, reason: Option<String>| match reason {
            None => whole += 1,
            Some(reason) => damaged.push(DamagedFile { file, reason }),
        };
        let listed = self.checksums()?;
        let finished = is_there(&self.file("result.json"))?;
        if let Some(reason) = self.damaged_list(finished)? {
            count(FILE.into(), Some(reason));
        }
        for (name, sum) in &listed {
            let path = self.file(name);
            let reason = match has_file(&path)? {
                true if sha256_of(&path)? == *sum => None,
                true => Some("its checksum is another".to_string()),
                // A run that was killed just before its end: it writes it when it goes on.
                false if name == "result.json" => continue,
                false => Some("it is missing".to_string()),
            };
            count(name.clone(), reason);
        }
        let mut own = self.checkpoints()?;
        for path in [self.last_weights(), self.best_weights()] {
            own.extend(has_file(&path)?.then_some(path));
        }
        own.extend(self.snapshots()?);
        for path in own {
            let name = path.strip_prefix(&self.path).unwrap_or(&path).display().to_string();
            if !listed.contains_key(&name) {
                count(name, Tensors::<serde_json::Value>::read(&path).err().map(|e| e.message));
            }
        }
        if finished && !listed.contains_key("result.json") && !listed.is_empty() {
            count("result.json".into(), Some(format!("{FILE} does not list it")));
        }
        Ok((whole, damaged))
    }

    /// What is wrong with the list itself.
    fn damaged_list(&self, finished: bool) -> Result<Option<String>> {
        if !self.has_checksums()? {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&read_bytes(&self.file(FILE))?).into_owned();
        let sound = |line: &str| {
            let sum = line.split_once("  ").map(|(sum, _)| sum);
            sum.is_some_and(|sum| sum.len() == 64 && sum.bytes().all(|c| c.is_ascii_hexdigit()))
        };
        let bad = text.lines().position(|line| !sound(line)).map(|at| format!("line {} is no checksum", at + 1));
        Ok(bad.or((finished && text.is_empty()).then(|| "it is empty".to_string())))
    }

    /// Whether the run has a list of checksums.
    pub fn has_checksums(&self) -> Result<bool> {
        has_file(&self.file(FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_is_an_error_for_readers_and_named_by_the_check() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunFolder::create(&dir.path().join("run"), false).unwrap();
        std::fs::write(run.file("config.toml"), "a = 1\n").unwrap();
        assert_eq!(run.check_files().unwrap(), (0, Vec::new()), "without a list nothing is known");
        run.whole("config.toml").unwrap();
        run.write_first_checksums().unwrap();
        std::fs::write(run.file("embeddings.npy"), "numbers").unwrap();
        std::fs::write(run.file("clusters/r0-e000.npz"), "labels").unwrap();
        run.write_result(&7).unwrap();
        assert_eq!(run.check_files().unwrap(), (4, Vec::new()));
        for name in ["embeddings.npy", "result.json", "config.toml", "clusters/r0-e000.npz"] {
            let sound = std::fs::read(run.file(name)).unwrap();
            let mut flipped = sound.clone();
            flipped[0] ^= 1;
            std::fs::write(run.file(name), flipped).unwrap();
            let e = run.whole(name).unwrap_err();
            assert!(e.message.contains(name) && e.hint.contains("checksums.txt"), "{e:?}");
            let (whole, damaged) = run.check_files().unwrap();
            assert_eq!((whole, damaged.len(), damaged[0].file.as_str()), (3, 1, name));
            std::fs::write(run.file(name), sound).unwrap();
        }
        let e = RunFolder::require_whole(&run.file("embeddings.npy"));
        e.unwrap();
        std::fs::write(run.file("embeddings.npy"), "numbery").unwrap();
        assert!(RunFolder::require_whole(&run.file("embeddings.npy")).is_err());
        std::fs::remove_file(run.file("embeddings.npy")).unwrap();
        assert_eq!(run.check_files().unwrap().1[0].reason, "it is missing");
        // The list itself.
        for (text, reason) in [("", "it is empty"), ("rubbish\n", "line 1 is no checksum")] {
            std::fs::write(run.file(FILE), text).unwrap();
            let (_, damaged) = run.check_files().unwrap();
            assert_eq!((damaged[0].file.as_str(), damaged[0].reason.as_str()), (FILE, reason));
        }
    }
}
