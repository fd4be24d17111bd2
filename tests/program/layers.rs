//! The layout of the house: who may use whom, that every file says what it is, and that none grows too long.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Rooms of the crates from the ground up: a room may use those of its own level and before it. Which crate may use which, the crate graph says.
const CORE: &[&[&str]] = &[
    &["error", "rng", "cancel", "matmul", "dots", "matrix"],
    &["io", "testing"],
    &["labels", "kmeans", "purify", "neighbours", "pca", "scores", "schedule"],
    &["tsne", "centres", "cluster_count", "duplicates", "history", "label_errors", "outliers"],
];
const PCP: &[&[&str]] = &[
    &["config", "picture"],
    &["data"],
    &["run", "schedule"],
    &["model"],
    &["method", "evaluate", "observe", "embed"],
    &["train"],
    &["detect"],
    &["report"],
    &["jobs"],
];
/// Rooms that touch tensors; nobody else loads Burn.
const WITH_TENSORS: &[&str] = &["model"];
const LONGEST: usize = 500;

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

fn sources(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let mut paths = Vec::new();
    files(&root, &mut paths);
    paths.sort();
    let name = |p: &PathBuf| p.strip_prefix(&root).unwrap().display().to_string();
    paths.iter().map(|p| (name(p), std::fs::read_to_string(p).unwrap())).collect()
}

#[test]
fn rooms_use_only_those_below() {
    in_order("core/src", CORE);
    in_order("pcp/src", PCP);
}

fn in_order(folder: &str, order: &[&[&str]]) {
    let level: BTreeMap<&str, usize> =
        order.iter().enumerate().flat_map(|(level, rooms)| rooms.iter().map(move |room| (*room, level))).collect();
    for (file, text) in sources(folder) {
        let room = file.split(['/', '.']).next().unwrap().to_string();
        if room == "lib" || room == "main" {
            continue;
        }
        let own = *level.get(room.as_str()).unwrap_or_else(|| panic!("{file} is in no room: add it to the order"));
        let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
        assert!(!text.contains("crate::{"), "{file}: name one room per `use crate::`, so that this test sees it");
        for used in code.flat_map(|l| l.split("crate::").skip(1)) {
            let used = used.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap();
            let Some(other) = level.get(used) else { continue };
            assert!(*other <= own, "{file} uses crate::{used}, which is above it");
        }
        if text.contains("burn::") {
            assert!(WITH_TENSORS.contains(&room.as_str()), "{file} loads Burn");
        }
    }
}

#[test]
fn every_file_says_what_it_is_and_none_is_too_long() {
    for folder in ["core/src", "pcp/src", "cli/src", "tests", "kernels/src"] {
        for (file, text) in sources(folder) {
            assert!(text.starts_with("//!"), "{folder}/{file} does not say what it is");
            let lines = text.lines().count();
            assert!(lines <= LONGEST, "{folder}/{file} has {lines} lines");
        }
    }
}
