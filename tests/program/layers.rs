//! The layout of the source: which module may use which, that every file says what it is, that none grows too long, that no two types of a crate
//! share a name, and that ARCHITECTURE.md names files and functions that exist. Which crate may use which is not checked here: Cargo does not let a crate use one that it does not depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Modules of a crate from the ground up: a module may use those of its own level and of the levels before it.
const CORE: &[&[&str]] = &[
    &["error", "rng", "cancel", "matmul", "dots", "matrix", "text", "memory", "peers"],
    &["io", "testing"],
    &["labels", "kmeans", "purify", "neighbours", "pca", "scores", "schedule", "eigen", "scatter"],
    &[
        "appearance",
        "tsne",
        "readout",
        "patches",
        "centres",
        "cluster_count",
        "spectral",
        "copies",
        "duplicates",
        "history",
        "label_errors",
        "outliers",
        "quality",
    ],
];
const PCP: &[&[&str]] = &[
    &["picture", "decisions"],
    // Settings are resolved for a data set, and data sets are read by settings.
    &["config", "data"],
    &["run"],
    &["model"],
    &["method", "evaluate", "observe", "embed", "patches"],
    &["train"],
    &["detect"],
    &["report"],
    &["jobs"],
];
/// The modules of `pcp` that may use Burn. (`core` and `cli` do not depend on it.)
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
fn modules_use_only_those_below() {
    in_order("core/src", CORE);
    in_order("pcp/src", PCP);
}

#[test]
fn only_models_use_burn() {
    for (file, text) in sources("pcp/src") {
        let module = file.split(['/', '.']).next().unwrap();
        assert!(!text.contains("burn::") || WITH_TENSORS.contains(&module), "{file} uses Burn");
    }
}

fn in_order(folder: &str, order: &[&[&str]]) {
    let level: BTreeMap<&str, usize> = order
        .iter()
        .enumerate()
        .flat_map(|(level, modules)| modules.iter().map(move |module| (*module, level)))
        .collect();
    for (file, text) in sources(folder) {
        let module = file.split(['/', '.']).next().unwrap();
        if module == "lib" {
            continue;
        }
        let own =
            *level.get(module).unwrap_or_else(|| panic!("{folder}/{file} has no level: add {module} to the order"));
        let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
        assert!(!text.contains("crate::{"), "{file}: name one module per `use crate::`, so that this test sees it");
        for used in code.flat_map(|l| l.split("crate::").skip(1)) {
            let used = used.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap();
            let Some(other) = level.get(used) else { continue };
            assert!(*other <= own, "{file} uses crate::{used}, which is above it");
        }
    }
}

#[test]
fn every_file_says_what_it_is_and_none_is_too_long() {
    for folder in ["core/src", "pcp/src", "serve/src", "cli/src", "tests", "kernels/src", "python/src"] {
        for (file, text) in sources(folder) {
            assert!(text.starts_with("//!"), "{folder}/{file} does not say what it is");
            let lines = text.lines().count();
            assert!(lines <= LONGEST, "{folder}/{file} has {lines} lines");
        }
    }
}

/// The table of the paper on the library's front page names files, and functions or types in them.
#[test]
fn the_front_page_is_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("pcp/src/lib.rs")).unwrap();
    let mut rows = 0;
    for row in page.lines().filter(|line| line.starts_with("//! | ") && line.contains(".rs` | `")) {
        let mut words = row.split('`').skip(1).step_by(2);
        let file = words.next().unwrap();
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        for name in words {
            let defined = |kind: &&str| {
                let after = |at: usize| text[at + kind.len() + name.len() + 1..].chars().next();
                let definition = format!("{kind} {name}");
                text.match_indices(&definition)
                    .any(|(at, _)| after(at).is_some_and(|c| !c.is_alphanumeric() && c != '_'))
            };
            assert!(["fn", "struct", "trait"].iter().any(defined), "{file} has no {name}");
            rows += 1;
        }
    }
    assert!(rows > 20, "{rows}");
}

/// The names of the types that `text` defines.
fn types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words =
            line.split_whitespace().skip_while(|w| w.starts_with("pub") || w.ends_with(')') || *w == "unsafe");
        let kind = words.next()?;
        let name = words.next().filter(|_| matches!(kind, "struct" | "enum" | "trait" | "union"))?;
        name.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
    })
}

#[test]
fn no_two_types_of_a_crate_share_a_name() {
    let allowed: BTreeSet<(&str, &str)> = include_str!("names.txt")
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
        .map(|l| {
            l.split_once(": ").unwrap_or_else(|| panic!("names.txt: no reason in {l:?}")).0.split_once(' ').unwrap()
        })
        .collect();
    let mut faults = Vec::new();
    for name in ["kernels", "core", "pcp", "serve", "cli", "python"] {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (file, text) in sources(&format!("{name}/src")).iter().filter(|(file, _)| !file.ends_with("tests.rs")) {
            types(text).for_each(|t| places.entry(t.to_string()).or_default().push(file.clone()));
        }
        places.retain(|_, files| files.len() > 1);
        for (found, files) in &places {
            if !allowed.contains(&(name, found.as_str())) {
                faults.push(format!("{name}: {found} is defined in {}: rename all but one", files.join(", ")));
            }
        }
        for (_, gone) in allowed.iter().filter(|(of, found)| *of == name && !places.contains_key(*found)) {
            faults.push(format!("{name}: {gone} is defined at most once: take it out of tests/program/names.txt"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Texts in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_tables_of_the_architecture_name_what_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let is_path = |name: &str| name.contains('/') && !name.contains([' ', '<', '*']);
    let missing: Vec<&str> = text
        .lines()
        .flat_map(quoted)
        .filter(|name| is_path(name) && !root.join(name.trim_end_matches('/')).exists())
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names files that do not exist: {missing:?}");
    let mut faults = Vec::new();
    // Rows of three columns: what, files, functions or types.
    for row in text.lines().filter(|line| line.starts_with("| ") && line.contains(".rs`")) {
        let columns: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [_, files, functions] = columns[..] else { panic!("not three columns: {row}") };
        let files = quoted(files).filter(|file| file.ends_with(".rs"));
        let code: String = files.map(|file| std::fs::read_to_string(root.join(file)).unwrap()).collect();
        for name in quoted(functions).flat_map(|name| name.split("::")) {
            let defined = ["fn", "struct", "enum", "trait"].iter().any(|kind| {
                code.match_indices(&format!("{kind} {name}"))
                    .any(|(at, found)| !code[at + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
            });
            if !defined {
                faults.push(format!("{name} is not defined in the files of its row: {row}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
