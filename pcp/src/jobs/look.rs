//! A first look at a pile of pictures, without training: what is broken, there twice, blurred, dark, of an odd shape, or on both sides of a split.

mod output;
mod rules;
mod strangers;
#[cfg(test)]
mod tests;

use super::copies::{CopyRow, grouped, result as copies_of};
use super::findings::Surveyed;
use super::table::{CsvRow, is_table, write_rows};
use crate::observe::Observer;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder_atomic, require_absent, require_empty};
use pcp_core::io::csv;
use rules::Usual;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use strangers::StrangerTrial;

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookOptions {
    /// A folder of images, cifar10, cifar100 or bundled.
    pub images: String,
    /// Where the CIFAR files are.
    pub data_dir: Option<PathBuf>,
    /// The folder to make, new or empty, or a new `*.csv` for the table alone. Without one nothing is written.
    pub out: Option<PathBuf>,
}

impl LookOptions {
    /// Nothing is written.
    pub fn new(images: impl Into<String>) -> Self {
        LookOptions { images: images.into(), data_dir: None, out: None }
    }
}

/// What can be wrong with a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookKind {
    /// Its file cannot be read.
    Broken,
    /// The same file or the same pixels as another.
    Duplicate,
    /// The same picture as another, resized, saved again, cropped or mirrored.
    NearDuplicate,
    /// A copy of it is in another split.
    Leak,
    /// A copy of it has another label.
    TwoLabels,
    /// All of one colour.
    Blank,
    /// Nothing in it is sharp.
    Blurred,
    /// Too dark to see.
    Dark,
    /// Nearly all white.
    Bright,
    /// Much longer or squarer than usual.
    OddShape,
    /// Much smaller than usual.
    Tiny,
    /// Without colour.
    Grey,
    /// In colours and light unlike the others.
    Unlike,
}

impl LookKind {
    /// All of them, the most serious first.
    pub const ALL: [LookKind; 13] = [
        LookKind::Broken,
        LookKind::Leak,
        LookKind::TwoLabels,
        LookKind::Duplicate,
        LookKind::NearDuplicate,
        LookKind::Blank,
        LookKind::Blurred,
        LookKind::Dark,
        LookKind::Bright,
        LookKind::OddShape,
        LookKind::Tiny,
        LookKind::Grey,
        LookKind::Unlike,
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            LookKind::Broken => "broken",
            LookKind::Duplicate => "duplicate",
            LookKind::NearDuplicate => "near_duplicate",
            LookKind::Leak => "leak",
            LookKind::TwoLabels => "two_labels",
            LookKind::Blank => "blank",
            LookKind::Blurred => "blurred",
            LookKind::Dark => "dark",
            LookKind::Bright => "bright",
            LookKind::OddShape => "odd_shape",
            LookKind::Tiny => "tiny",
            LookKind::Grey => "grey",
            LookKind::Unlike => "unlike",
        }
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            LookKind::Broken => "Broken",
            LookKind::Duplicate => "There twice",
            LookKind::NearDuplicate => "Nearly the same",
            LookKind::Leak => "In two splits",
            LookKind::TwoLabels => "With two labels",
            LookKind::Blank => "Blank",
            LookKind::Blurred => "Blurred",
            LookKind::Dark => "Dark",
            LookKind::Bright => "Bright",
            LookKind::OddShape => "Odd shape",
            LookKind::Tiny => "Tiny",
            LookKind::Grey => "Grey",
            LookKind::Unlike => "Unlike the others",
        }
    }

    /// What it means, and how sure it is.
    pub fn about(self) -> &'static str {
        rules::about(self)
    }
}

impl fmt::Display for LookKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One finding about one picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookRow {
    /// What is wrong.
    pub finding: LookKind,
    /// The group of copies it belongs to, for copies.
    pub group: Option<usize>,
    /// The picture's name.
    pub file: String,
    /// Why: a measured number and its limit, a reason.
    pub why: String,
    /// Its number among all pictures.
    #[serde(skip)]
    row: usize,
    /// How far it is beyond the limit; the farthest come first.
    #[serde(skip)]
    beyond: f32,
}

impl CsvRow for LookRow {
    const HEADING: &'static str = "finding,group,file,why";

    fn line(&self) -> String {
        let group = self.group.map(|group| group.to_string()).unwrap_or_default();
        format!("{},{group},{},{}", self.finding, csv::field(&self.file), csv::field(&self.why))
    }
}

/// How often something was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookCount {
    /// What.
    pub finding: LookKind,
    /// Pictures of which it is true.
    pub pictures: usize,
    /// Whether they are listed: what more than a fifth of the pictures have is how the collection is, and what a trial could not tell is not listed either.
    pub listed: bool,
    /// What it means, and how sure it is.
    pub about: String,
}

/// What a look found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookResult {
    /// Pictures that can be read.
    pub images: usize,
    /// How often every kind of finding was made, the most serious first; those that were not made are there, too.
    pub counts: Vec<LookCount>,
    /// The findings, kind by kind, the farthest from the usual first.
    pub findings: Vec<LookRow>,
    /// The folder that was made.
    pub out: Option<PathBuf>,
}

impl LookResult {
    /// Findings of one kind.
    pub fn of(&self, kind: LookKind) -> impl Iterator<Item = &LookRow> {
        self.findings.iter().filter(move |row| row.finding == kind)
    }
}

/// Looks at pictures.
///
/// ```no_run
/// use pcp::jobs::{LookKind, LookOptions, look};
/// let found = look(&LookOptions::new("PHOTOS/"), &pcp::observe::silent())?;
/// for row in found.of(LookKind::Blurred) {
///     println!("{}: {}", row.file, row.why);
/// }
/// # Ok::<(), pcp_core::error::Error>(())
/// ```
pub fn look(options: &LookOptions, observer: &Arc<dyn Observer>) -> Result<LookResult> {
    let table = options.out.as_deref().is_some_and(is_table);
    options.out.as_deref().map_or(Ok(()), if table { require_absent } else { require_empty })?;
    let surveyed = Arc::new(Surveyed::read(&options.images, options.data_dir.as_deref(), observer)?);
    if surveyed.rows.is_empty() {
        let reason = surveyed.broken.first().map_or(String::new(), |bad| format!("; {}: {}", bad.name, bad.reason));
        return Err(Error::data(
            format!("none of the {} images can be read{reason}", surveyed.broken.len()),
            "convert the files, or get them again",
        ));
    }
    let groups = grouped(&surveyed, Vec::new(), observer)?;
    let copies: Vec<CopyRow> = copies_of(&surveyed, &groups).rows;
    let places: Vec<usize> = groups.iter().flatten().map(|member| member.at).collect();
    let mut found = broken(&surveyed);
    found.extend(rules::of_copies(&surveyed, &copies, &places));
    let usual = Usual::of(&surveyed.facts);
    for (at, facts) in surveyed.facts.iter().enumerate() {
        found.extend(usual.judge(facts).into_iter().map(|(finding, beyond, why)| LookRow {
            finding,
            group: None,
            file: surveyed.name(at),
            why,
            row: at,
            beyond,
        }));
    }
    let trial = strangers::unlike(&surveyed, observer)?;
    found.extend(trial.rows.iter().map(|(at, score)| LookRow {
        finding: LookKind::Unlike,
        group: None,
        file: surveyed.name(*at),
        why: format!("farther from its neighbours in colours and light than {:.1} % of the pictures", 100.0 * score),
        row: *at,
        beyond: *score,
    }));
    let mut result = arranged(surveyed.rows.len(), found, &trial);
    if let Some(out) = &options.out {
        result.out = Some(out.clone());
        if table {
            write_rows(Some(out), &result.findings)?;
            return Ok(result);
        }
        make_folder_atomic(out, |out| output::write(out, options, &surveyed, &groups, &copies, &result, observer))?;
    }
    Ok(result)
}

fn broken(surveyed: &Surveyed) -> Vec<LookRow> {
    let row = |bad: &crate::data::BadFile| LookRow {
        finding: LookKind::Broken,
        group: None,
        file: bad.name.clone(),
        why: bad.reason.clone(),
        row: usize::MAX,
        beyond: 0.0,
    };
    surveyed.broken.iter().map(row).collect()
}

/// Findings in order, without those that are how the collection is.
fn arranged(images: usize, found: Vec<LookRow>, trial: &StrangerTrial) -> LookResult {
    let (mut counts, mut findings) = (Vec::new(), Vec::new());
    for finding in LookKind::ALL {
        let mut rows: Vec<LookRow> = found.iter().filter(|row| row.finding == finding).cloned().collect();
        rows.sort_by(|a, b| b.beyond.total_cmp(&a.beyond).then(a.group.cmp(&b.group)));
        let usual = rules::is_relative(finding) && rows.len() as f32 > (rules::COMMON * images as f32).max(rules::FEW);
        let (listed, about) = match finding {
            LookKind::Unlike => (trial.tells, trial.about.clone()),
            _ => (!usual, finding.about().to_string()),
        };
        counts.push(LookCount { finding, pictures: rows.len(), listed, about });
        if listed {
            findings.extend(rows);
        }
    }
    LookResult { images, counts, findings, out: None }
}
