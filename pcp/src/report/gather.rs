//! The contents of a run folder for the report. Missing or damaged files are left out with a note.

use crate::config::Resolved;
use crate::data::Labels;
use crate::run::{About, EpochRecord, FileRow, RunFolder, RunResult, Warning, WarningRecord};
use pcp_core::error::Result;
use pcp_core::io::atomic::is_there;
use pcp_core::matrix::Matrix;
use pcp_core::purify::Grouping;

/// The contents of a run folder.
pub struct Contents {
    /// The folder's name.
    pub name: String,
    /// Settings.
    pub config: Resolved,
    /// Program, machine, command and data.
    pub about: About,
    /// The epochs so far.
    pub records: Vec<EpochRecord>,
    /// The result, once the run is finished.
    pub result: Option<RunResult>,
    /// The images.
    pub files: Vec<FileRow>,
    /// The class of every file, if each has one.
    pub labels: Option<Labels>,
    /// The newest clusters, unless every image is its own instance.
    pub grouping: Option<Grouping>,
    /// When they were found, for display.
    pub grouped: String,
    /// The previous clusters.
    pub before: Option<Grouping>,
    /// The final embeddings.
    pub embeddings: Option<Matrix>,
    /// The warnings of the run, one of each kind, and how often each was given.
    pub warnings: Vec<(Warning, usize)>,
    /// Notes on what is missing from the page, and why.
    pub notes: Vec<String>,
}

impl Contents {
    /// Number of training images; 0 if unknown.
    pub fn images(&self) -> usize {
        self.result.as_ref().map_or(self.files.len(), |result| result.images)
    }
}

/// Reads a run folder.
pub fn gather(run: &RunFolder) -> Result<Contents> {
    let (config, about) = run.read_config()?;
    let name = run.path().canonicalize().unwrap_or_else(|_| run.path().to_path_buf());
    let name = name.file_name().map_or_else(|| "run".into(), |n| n.to_string_lossy().into_owned());
    let mut parts = Parts { run, notes: Vec::new() };
    let files = parts.read("files.csv", RunFolder::read_files).unwrap_or_default();
    let records = parts.read("metrics.jsonl", RunFolder::read_metrics).unwrap_or_default();
    let result = parts.read("result.json", RunFolder::read_result).flatten();
    let warnings = by_kind(parts.read("warnings.jsonl", RunFolder::read_warnings).unwrap_or_default());
    let fits = |rows: usize| rows == files.len() && rows > 0;
    let embeddings = parts.read("embeddings.npy", RunFolder::read_embeddings);
    let embeddings = parts.fitting("embeddings.npy", embeddings, |e| fits(e.rows));

    // Only the newest two clusterings are read.
    let mut stored = parts.read("clusters", RunFolder::epochs_with_clusters).unwrap_or_default();
    let mut newest = |parts: &mut Parts| {
        let (round, epoch) = stored.pop()?;
        let grouping = parts.read("clusters", |run| run.read_epoch_clusters((round, epoch)));
        let done = round * config.train.epochs + epoch + 1;
        Some((parts.fitting("clusters", grouping, |g| fits(g.cluster.len()))?, format!("of epoch {done}")))
    };
    let last = parts.read("clusters.csv", RunFolder::read_final_clusters);
    let last = parts.fitting("clusters.csv", last, |g| fits(g.cluster.len())).map(|g| (g, "at the end".to_string()));
    let (grouping, grouped) = last.or_else(|| newest(&mut parts)).unzip();
    let before = newest(&mut parts).map(|(grouping, _)| grouping);

    Ok(Contents {
        name,
        labels: labels(&files),
        grouping: grouping.filter(is_clustered),
        grouped: grouped.unwrap_or_default(),
        before: before.filter(is_clustered),
        embeddings,
        warnings,
        notes: parts.notes,
        config,
        about,
        records,
        result,
        files,
    })
}

struct Parts<'a> {
    run: &'a RunFolder,
    notes: Vec<String>,
}

impl Parts<'_> {
    /// Reads a file; `None`, with a note, if it is missing or damaged.
    fn read<T>(&mut self, file: &str, read: impl FnOnce(&RunFolder) -> Result<T>) -> Option<T> {
        let found = match is_there(&self.run.file(file)) {
            Ok(false) => return None,
            found => found.and_then(|_| read(self.run)),
        };
        found.map_err(|e| self.notes.push(format!("{file} is left out: {}.", e.message))).ok()
    }

    /// Checks that a part has the rows of `files.csv`; `None`, with a note, if it does not.
    fn fitting<T>(&mut self, file: &str, part: Option<T>, fits: impl FnOnce(&T) -> bool) -> Option<T> {
        let part = part?;
        if !fits(&part) {
            self.notes.push(format!("{file} is left out: it does not have the rows of files.csv."));
            return None;
        }
        Some(part)
    }
}

/// Whether any two samples share a cluster.
fn is_clustered(grouping: &Grouping) -> bool {
    let mut clusters = grouping.cluster.clone();
    clusters.sort_unstable();
    clusters.windows(2).any(|pair| pair[0] == pair[1])
}

/// Classes by name, when every file has one.
fn labels(files: &[FileRow]) -> Option<Labels> {
    let names: Vec<&String> = files.iter().map(|row| row.label.as_ref()).collect::<Option<_>>()?;
    let mut classes: Vec<String> = names.iter().map(|name| (*name).clone()).collect();
    classes.sort_unstable();
    classes.dedup();
    let of = names.iter().filter_map(|name| classes.binary_search(name).ok().map(|c| c as u32)).collect();
    (!classes.is_empty()).then_some(Labels { classes, of })
}

/// The last warning of each kind and how many there are, in the order of their first time.
fn by_kind(records: Vec<WarningRecord>) -> Vec<(Warning, usize)> {
    let mut found: Vec<(Warning, usize)> = Vec::new();
    for WarningRecord { warning, .. } in records {
        match found.iter_mut().find(|(known, _)| known.kind() == warning.kind()) {
            Some(entry) => *entry = (warning, entry.1 + 1),
            None => found.push((warning, 1)),
        }
    }
    found
}
