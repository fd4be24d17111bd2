//! The files of weights in a run folder.

use super::RunFolder;
use pcp_core::error::Result;
use pcp_core::io::atomic::entries;
use std::path::{Path, PathBuf};

impl RunFolder {
    /// The last weights, once the run is finished.
    pub fn last_weights(&self) -> PathBuf {
        Self::last_weights_in(&self.path)
    }

    /// The file of the last weights in any folder, also one with no other files of a run.
    pub fn last_weights_in(folder: &Path) -> PathBuf {
        folder.join("model.safetensors")
    }

    /// The weights with the best kNN probe, if there was a probe.
    pub fn best_weights(&self) -> PathBuf {
        self.file("model-best.safetensors")
    }

    /// The patches that a network learned from.
    pub fn patches(&self) -> PathBuf {
        self.file("patches.safetensors")
    }

    /// The initial weights, if they came from a file.
    pub fn initial_weights(&self) -> PathBuf {
        self.file("init.safetensors")
    }

    /// The snapshots, oldest first.
    pub fn snapshots(&self) -> Result<Vec<PathBuf>> {
        let mut paths = entries(&self.file("snapshots"))?;
        paths.retain(|p| p.extension().is_some_and(|e| e == "safetensors"));
        Ok(paths)
    }
}
