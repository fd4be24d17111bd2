//! Decisions as the page sends and sees them: images by their numbers.

use crate::subject::{Subject, View};
use pcp::decisions::{Decided, DecidedImage, Decision, Mark};
use pcp_core::error::{Error, Result};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Images of one decision at the most.
const MOST: usize = 1_000_000;
/// Exports of one subject at the most.
const EXPORTS: usize = 1000;

/// A decision about rows.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum RowDecision {
    Mark { rows: Vec<u32>, mark: Option<Mark> },
    Label { rows: Vec<u32>, label: Option<String> },
    Same { rows: Vec<u32>, of: Option<u32> },
    Name { cluster: u32, name: Option<String> },
    Merge { clusters: Vec<u32>, into: u32 },
    Move { rows: Vec<u32>, to: Option<u32> },
    Undo,
    Redo,
}

/// What the page sends.
#[derive(Debug, Deserialize)]
struct PageDecision {
    by: String,
    #[serde(flatten)]
    asked: RowDecision,
}

fn wrong(message: impl Into<String>) -> Error {
    Error::usage(message, "load the page again")
}

/// Writes the decision in `body`; returns what holds then.
pub fn decide(subject: &Subject, body: &[u8]) -> Result<Value> {
    let PageDecision { by, asked } = serde_json::from_slice(body).map_err(|e| wrong(format!("not a decision: {e}")))?;
    if by.is_empty() || by.len() > 40 || !by.chars().all(|c| c.is_ascii_alphanumeric()) {
        return Err(wrong("a page has no such name"));
    }
    let view = subject.view()?;
    let name = |row: u32| {
        let name = view.names.get(row as usize).cloned();
        name.ok_or_else(|| wrong(format!("there is no row {row}")))
    };
    let files = |rows: Vec<u32>| match rows.len() > MOST {
        true => Err(wrong("too many images at once")),
        false => rows.into_iter().map(name).collect::<Result<Vec<String>>>(),
    };
    let cluster = |cluster: u32| match cluster > i32::MAX as u32 {
        true => Err(wrong(format!("there is no cluster {cluster}"))),
        false => Ok(cluster),
    };
    let decision = match asked {
        RowDecision::Undo => None,
        RowDecision::Redo => {
            subject.with_log(|log| log.redo(&by))?;
            return state(subject, &view, &by);
        }
        RowDecision::Mark { rows, mark } => Some(Decision::Mark { files: files(rows)?, mark }),
        RowDecision::Label { rows, label } => Some(Decision::Label { files: files(rows)?, label }),
        RowDecision::Same { rows, of } => Some(Decision::Same { files: files(rows)?, of: of.map(name).transpose()? }),
        RowDecision::Name { cluster: c, name } => Some(Decision::Name { cluster: cluster(c)?, name }),
        RowDecision::Merge { clusters, into } => {
            let clusters = clusters.into_iter().map(cluster).collect::<Result<_>>()?;
            Some(Decision::Merge { clusters, into: cluster(into)? })
        }
        RowDecision::Move { rows, to } => {
            Some(Decision::Move { files: files(rows)?, to: to.map(cluster).transpose()? })
        }
    };
    subject.with_log(|log| match decision {
        Some(decision) => log.append(&by, decision).map(|_| ()),
        None => log.undo(&by).map(|_| ()),
    })?;
    state(subject, &view, &by)
}

/// What holds now, by rows; names that are not of this run are left out.
pub fn state(subject: &Subject, view: &View, by: &str) -> Result<Value> {
    subject.with_log(|log| {
        log.refresh()?;
        let decided = log.decided();
        let (undo, redo) = log.can(by);
        Ok(json!({
            "lines": log.entries().len(),
            "can_undo": undo,
            "can_redo": redo,
            "marks": by_row(view, &decided.marks, |mark| mark.name().into()),
            "labels": by_row(view, &decided.labels, |label| label.as_str().into()),
            "same": by_row(view, &decided.same, |of| view.row(of).map_or(Value::Null, Value::from)),
            "moved": by_row(view, &decided.moved, |to| (*to).into()),
            "merged": decided.merged,
            "names": decided.names,
        }))
    })
}

fn by_row<'a, T: 'a>(
    view: &View,
    all: impl IntoIterator<Item = (&'a String, &'a T)>,
    shown: impl Fn(&T) -> Value,
) -> Map<String, Value> {
    let one = |(file, value): (&String, &T)| Some((view.row(file)?.to_string(), shown(value)));
    all.into_iter().filter_map(one).collect()
}

/// All images with what is known about them, and what was decided.
pub fn decided(subject: &Subject) -> Result<(Vec<DecidedImage>, Decided)> {
    let view = subject.view()?;
    // Without pictures there are no links, but tables all the same.
    let gallery = subject.gallery().ok();
    let image = |(row, file): (usize, &String)| DecidedImage {
        file: file.clone(),
        path: gallery.as_ref().and_then(|gallery| gallery.path(row)).map(Into::into),
        label: view.labels.as_ref().map(|labels| labels.classes[labels.of[row] as usize].clone()),
        cluster: view.grouping.as_ref().map(|grouping| grouping.cluster[row]),
    };
    let images = view.names.iter().enumerate().map(image).collect();
    let decided = subject.with_log(|log| {
        log.refresh()?;
        Ok(log.decided())
    })?;
    Ok((images, decided))
}

/// Writes a new folder `decided-N` beside the decisions; returns its path.
pub fn export(subject: &Subject, links: bool) -> Result<PathBuf> {
    let (images, decided) = decided(subject)?;
    let (folder, prefix) = subject.beside();
    let free =
        (1..=EXPORTS).map(|n| folder.join(format!("{prefix}decided-{n}"))).find(|p| !p.exists() && !p.is_symlink());
    let out = free.ok_or_else(|| Error::usage("there are too many exports", "remove some decided-N folders"))?;
    decided.export(&out, &images, links)?;
    Ok(out.canonicalize().unwrap_or(out))
}
