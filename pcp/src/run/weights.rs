//! The files of weights in a run folder.

use super::RunFolder;
use std::path::{Path, PathBuf};

impl RunFolder {
    /// The last weights, once the run is finished.
    pub fn last_weights(&self) -> PathBuf {
        Self::last_weights_in(&self.path)
    }

    /// The same for any folder, also one that was left with nothing else.
    pub fn last_weights_in(folder: &Path) -> PathBuf {
        folder.join("model.safetensors")
    }

    /// The weights of the best probe, once there was one.
    pub fn best_weights(&self) -> PathBuf {
        self.file("model-best.safetensors")
    }

    /// The weights that the run began with, where they came from a file.
    pub fn initial_weights(&self) -> PathBuf {
        self.file("init.safetensors")
    }

    /// The snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.file("snapshots")).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|e| e.path()).collect();
        paths.retain(|p| p.extension().is_some_and(|e| e == "safetensors"));
        paths.sort();
        paths
    }
}
