//! Copies of pictures in a folder, without training: the same file, or the same picture resized, saved again, cropped or mirrored.

mod output;
#[cfg(test)]
mod tests;

pub(super) use output::section;

use super::findings::Surveyed;
use super::part::on_pool;
use super::source::require_embeddings;
use super::table::{CsvRow, is_table, write_rows};
use crate::data::BadFile;
use crate::data::facts::best;
use crate::observe::Observer;
use crate::run::RunFolder;
use pcp_core::copies::link::Linked;
use pcp_core::copies::{Thumbnail, compare, groups};
use pcp_core::error::{Error, Kind, Result};
use pcp_core::io::atomic::{make_folder_atomic, require_absent, require_empty};
use pcp_core::io::csv;
use pcp_core::matrix::Metric;
use pcp_core::neighbours::nearest;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Neighbours by a run's network that are compared with every picture.
const ASKED: usize = 4;

/// Where copies are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiesOptions {
    /// A folder of images, cifar10, cifar100 or bundled; or a run folder: its images, and its network proposes pairs.
    pub images: String,
    /// Where the CIFAR files are.
    pub data_dir: Option<PathBuf>,
    /// The folder to make, new or empty, or a new `*.csv` for the table alone. Without one nothing is written.
    pub out: Option<PathBuf>,
}

impl CopiesOptions {
    /// Nothing is written.
    pub fn new(images: impl Into<String>) -> Self {
        CopiesOptions { images: images.into(), data_dir: None, out: None }
    }
}

/// How a picture is like the best one of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyKind {
    /// It is the best one.
    #[serde(rename = "best")]
    Best,
    /// The files are the same.
    #[serde(rename = "same file")]
    SameFile,
    /// The pixels are the same.
    #[serde(rename = "same pixels")]
    SamePixels,
    /// Resized, saved again, or changed a little.
    #[serde(rename = "saved again")]
    Resaved,
    /// The mirror image.
    #[serde(rename = "mirrored")]
    Mirrored,
    /// One shows only a part of the other.
    #[serde(rename = "cropped")]
    Cropped,
    /// Both.
    #[serde(rename = "mirrored and cropped")]
    MirroredCropped,
}

impl CopyKind {
    /// Whether no pixel differs.
    pub fn is_exact(self) -> bool {
        matches!(self, CopyKind::SameFile | CopyKind::SamePixels)
    }
}

impl fmt::Display for CopyKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            CopyKind::Best => "best",
            CopyKind::SameFile => "same file",
            CopyKind::SamePixels => "same pixels",
            CopyKind::Resaved => "saved again",
            CopyKind::Mirrored => "mirrored",
            CopyKind::Cropped => "cropped",
            CopyKind::MirroredCropped => "mirrored and cropped",
        })
    }
}

/// A picture that has copies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyRow {
    /// Its group.
    pub group: usize,
    /// How it is like the best one of its group.
    pub copy: CopyKind,
    /// Its name.
    pub file: String,
    /// Correlation of its edges with those of the best one.
    pub likeness: f32,
    /// Pixels per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Size of its file.
    pub bytes: Option<u64>,
    /// Edges that its short side can show beside each other, at 256 pixels at the most.
    pub detail: f32,
    /// Its class, where there is one.
    pub label: Option<String>,
}

impl CsvRow for CopyRow {
    const HEADING: &'static str = "group,copy,file,likeness,width,height,bytes,detail,label";

    fn line(&self) -> String {
        let bytes = self.bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        let label = self.label.as_deref().map(csv::field).unwrap_or_default();
        let (file, copy) = (csv::field(&self.file), self.copy);
        format!(
            "{},{copy},{file},{:.3},{},{},{bytes},{:.0},{label}",
            self.group, self.likeness, self.width, self.height, self.detail
        )
    }
}

/// Copies that were found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopiesResult {
    /// Pictures that were compared.
    pub images: usize,
    /// Groups of copies.
    pub groups: usize,
    /// Pictures beside the best one of their group.
    pub copies: usize,
    /// Of these, the same file or the same pixels.
    pub exact: usize,
    /// Bytes that they take.
    pub bytes: u64,
    /// Pictures with copies, group by group, the surest group first, the best of every group first.
    pub rows: Vec<CopyRow>,
    /// Files that cannot be read.
    pub broken: Vec<BadFile>,
    /// The folder that was made.
    pub out: Option<PathBuf>,
}

/// A picture of a group: its place among those that can be read, and how it is like the best one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Member {
    pub at: usize,
    pub kind: CopyKind,
    pub likeness: f32,
}

/// Finds copies of pictures.
///
/// ```no_run
/// use pcp::jobs::{CopiesOptions, copies};
/// let found = copies(&CopiesOptions::new("PHOTOS/"), &pcp::observe::silent())?;
/// println!("{} of {} pictures are copies of others", found.copies, found.images);
/// # Ok::<(), pcp_core::error::Error>(())
/// ```
pub fn copies(options: &CopiesOptions, observer: &Arc<dyn Observer>) -> Result<CopiesResult> {
    let table = options.out.as_deref().is_some_and(is_table);
    options.out.as_deref().map_or(Ok(()), if table { require_absent } else { require_empty })?;
    let run = RunFolder::open(Path::new(&options.images)).ok();
    let surveyed = match &run {
        Some(run) => {
            let load = run.read_config()?.0.load_request()?;
            let gone = |e: Error| match e.kind {
                Kind::Stopped => e,
                _ => Error {
                    hint: format!(
                        "bring the run's images back, or compare its embeddings alone with `threshold`; {}",
                        e.hint
                    ),
                    ..e
                },
            };
            Surveyed::read(&load.source.to_string(), load.data_dir.as_deref(), observer).map_err(gone)?
        }
        None => Surveyed::read(&options.images, options.data_dir.as_deref(), observer)?,
    };
    let candidates = run.map_or_else(|| Ok(Vec::new()), |run| proposed(&run, &surveyed))?;
    let surveyed = Arc::new(surveyed);
    let found = grouped(&surveyed, candidates, observer)?;
    let mut result = result(&surveyed, &found);
    if let Some(out) = &options.out {
        result.out = Some(out.clone());
        if table {
            write_rows(Some(out), &result.rows)?;
            return Ok(result);
        }
        make_folder_atomic(out, |out| output::write(out, options, &surveyed, &found, &result, observer))?;
    }
    Ok(result)
}

/// Pairs that a run's network finds alike: every picture and its nearest neighbours.
fn proposed(run: &RunFolder, surveyed: &Surveyed) -> Result<Vec<(usize, usize)>> {
    require_embeddings(run)?;
    let features = Metric::Cosine.prepared(run.read_embeddings()?);
    let place: HashMap<String, usize> = (0..surveyed.rows.len()).map(|at| (surveyed.name(at), at)).collect();
    let places: Vec<Option<usize>> = run.read_files()?.iter().map(|row| place.get(&row.file).copied()).collect();
    if places.len() != features.rows {
        return Ok(Vec::new());
    }
    let near = nearest(&features, &features, ASKED + 1, false, &|_| ());
    let pairs = near
        .index
        .chunks(near.k.max(1))
        .enumerate()
        .flat_map(|(row, near)| near.iter().map(move |i| (row, *i as usize)));
    Ok(pairs.filter(|(a, b)| a != b).filter_map(|(a, b)| Some((places[a]?, places[b]?))).collect())
}

/// Groups of copies, the surest first, the best of every group first.
pub(super) fn grouped(
    surveyed: &Arc<Surveyed>,
    candidates: Vec<(usize, usize)>,
    observer: &Arc<dyn Observer>,
) -> Result<Vec<Vec<Member>>> {
    let (inside, count) = (surveyed.clone(), surveyed.rows.len());
    on_pool("comparing", count, observer, move |part| {
        let thumbnails: Vec<Thumbnail> = inside.facts.iter().map(|facts| facts.thumbnail.clone()).collect();
        let linked = groups(&thumbnails, &candidates, &mut |done| part.step(done, count))?;
        drop(thumbnails);
        Ok(linked.par_iter().map(|group| members(&inside, group)).collect())
    })
}

/// The members of a group, the best first, then in their order.
fn members(surveyed: &Surveyed, group: &Linked) -> Vec<Member> {
    let facts = |at: usize| &surveyed.facts[at];
    let best = group.rows[best(&group.rows.iter().map(|at| facts(*at)).collect::<Vec<_>>())];
    let mut pixels = None;
    let mut member = |at: usize| {
        let (a, b) = (facts(best), facts(at));
        if a.digest == b.digest {
            return Member { at, kind: CopyKind::SameFile, likeness: 1.0 };
        }
        let copy = compare(&a.thumbnail, &b.thumbnail);
        let (likeness, mirrored, cropped) =
            copy.map_or((group.likeness, false, false), |c| (c.likeness, c.mirrored, c.cropped));
        let kind = match (mirrored, cropped) {
            (true, true) => CopyKind::MirroredCropped,
            (true, false) => CopyKind::Mirrored,
            (false, true) => CopyKind::Cropped,
            // Decoded once more, at full size: a thumbnail hides small differences.
            (false, false) if a.size == b.size && a.thumbnail == b.thumbnail => {
                let whole = |at: usize| surveyed.pictures.image(surveyed.rows[at]).ok();
                let best = pixels.get_or_insert_with(|| whole(best));
                if best.is_some() && *best == whole(at) { CopyKind::SamePixels } else { CopyKind::Resaved }
            }
            (false, false) => CopyKind::Resaved,
        };
        Member { at, kind, likeness }
    };
    let others = group.rows.iter().filter(|at| **at != best).map(|at| member(*at)).collect::<Vec<Member>>();
    [vec![Member { at: best, kind: CopyKind::Best, likeness: 1.0 }], others].concat()
}

pub(super) fn result(surveyed: &Surveyed, found: &[Vec<Member>]) -> CopiesResult {
    let row = |group: usize, member: &Member| {
        let (facts, picture) = (&surveyed.facts[member.at], surveyed.pictures.row(surveyed.rows[member.at]));
        CopyRow {
            group,
            copy: member.kind,
            file: picture.file,
            likeness: member.likeness,
            width: facts.size.width,
            height: facts.size.height,
            bytes: facts.bytes,
            detail: facts.detail(),
            label: picture.label,
        }
    };
    let rows: Vec<CopyRow> =
        found.iter().enumerate().flat_map(|(group, members)| members.iter().map(move |m| row(group, m))).collect();
    let others = || rows.iter().filter(|row| row.copy != CopyKind::Best);
    CopiesResult {
        images: surveyed.rows.len(),
        groups: found.len(),
        copies: others().count(),
        exact: others().filter(|row| row.copy.is_exact()).count(),
        bytes: others().filter_map(|row| row.bytes).sum(),
        broken: surveyed.broken.clone(),
        out: None,
        rows,
    }
}
