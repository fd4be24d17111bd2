//! What holds after all decisions.

use super::{Decision, Mark};
use std::collections::BTreeMap;

/// What holds after all decisions, by the names of the images and the numbers of the clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Images that stay or go.
    pub marks: BTreeMap<String, Mark>,
    /// Labels of images.
    pub labels: BTreeMap<String, String>,
    /// Copies, and the image that stays in their place.
    pub same: BTreeMap<String, String>,
    /// Images that were put into another cluster.
    pub moved: BTreeMap<String, u32>,
    /// Clusters that became part of another.
    pub merged: BTreeMap<u32, u32>,
    /// Names of clusters.
    pub names: BTreeMap<u32, String>,
}

/// Sets or removes the value of every file.
fn put<T: Clone>(map: &mut BTreeMap<String, T>, files: &[String], value: &Option<T>) {
    for file in files {
        match value {
            Some(value) => map.insert(file.clone(), value.clone()),
            None => map.remove(file),
        };
    }
}

impl Decided {
    /// Takes one more decision into account; undo and redo are not decisions about images, and change nothing here.
    pub fn take(&mut self, decision: &Decision) {
        match decision {
            Decision::Mark { files, mark } => put(&mut self.marks, files, mark),
            Decision::Label { files, label } => put(&mut self.labels, files, label),
            Decision::Same { files, of } => put(&mut self.same, files, of),
            Decision::Move { files, to } => put(&mut self.moved, files, to),
            Decision::Name { cluster, name } => {
                let cluster = self.root(*cluster);
                match name {
                    Some(name) => self.names.insert(cluster, name.clone()),
                    None => self.names.remove(&cluster),
                };
            }
            Decision::Merge { clusters, into } => {
                let into = self.root(*into);
                for cluster in clusters {
                    let root = self.root(*cluster);
                    if root != into {
                        self.merged.insert(root, into);
                    }
                }
            }
            Decision::Undo { .. } | Decision::Redo { .. } => {}
        }
    }

    /// The cluster that `cluster` became part of; itself where it was not merged.
    pub fn root(&self, mut cluster: u32) -> u32 {
        // Only roots are merged, into other roots: the chain ends.
        while let Some(into) = self.merged.get(&cluster) {
            cluster = *into;
        }
        cluster
    }

    /// The cluster of an image that is in `own` by its features.
    pub fn cluster(&self, file: &str, own: u32) -> u32 {
        self.root(self.moved.get(file).copied().unwrap_or(own))
    }

    /// The name of a cluster, or of the one that it became part of.
    pub fn name(&self, cluster: u32) -> Option<&str> {
        self.names.get(&self.root(cluster)).map(String::as_str)
    }

    /// Whether an image is left out: it was marked so, or is a copy of another one and not marked to stay.
    pub fn leaves_out(&self, file: &str) -> bool {
        match self.marks.get(file) {
            Some(mark) => *mark == Mark::Remove,
            None => self.same.contains_key(file),
        }
    }

    /// Whether an image was marked to stay.
    pub fn keeps(&self, file: &str) -> bool {
        self.marks.get(file) == Some(&Mark::Keep)
    }

    /// Whether nothing was decided.
    pub fn is_empty(&self) -> bool {
        *self == Decided::default()
    }
}
