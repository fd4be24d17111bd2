//! Files of a look: tables, lists of paths, links, a page.

use super::{LookCount, LookKind, LookOptions, LookResult, LookRow};
use crate::jobs::copies::{CopyRow, Member, section as copies_section};
use crate::jobs::findings::{Surveyed, write_json, write_links, write_page, write_paths};
use crate::jobs::table::{CsvRow, write_rows};
use crate::observe::Observer;
use crate::report::{Findings, PictureSource, ShownGroup, ShownPicture, ShownSection};
use pcp_core::error::Result;
use pcp_core::io::csv;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everything that was measured about a picture: a row of `images.csv`.
struct MeasuredRow(String);

impl CsvRow for MeasuredRow {
    const HEADING: &'static str = "file,width,height,bytes,low,middle,high,contrast,colour,blur,measured_at";

    fn line(&self) -> String {
        self.0.clone()
    }
}

/// Writes everything into the new folder `out`.
pub(super) fn write(
    out: &Path,
    options: &LookOptions,
    surveyed: &Arc<Surveyed>,
    groups: &[Vec<Member>],
    copies: &[CopyRow],
    result: &LookResult,
    observer: &Arc<dyn Observer>,
) -> Result<()> {
    write_rows(Some(&out.join("findings.csv")), &result.findings)?;
    write_rows(Some(&out.join("images.csv")), &measured(surveyed))?;
    let path = |row: &LookRow| match row.finding {
        LookKind::Broken => broken_path(surveyed, &row.file),
        _ => surveyed.path(row.row),
    };
    for kind in LookKind::ALL {
        let paths: Vec<Option<PathBuf>> = result.of(kind).map(path).collect();
        write_paths(out, kind.name(), &paths, observer)?;
    }
    let folder = |row: &LookRow| match row.group {
        Some(group) => format!("{}/group-{group}", row.finding),
        None => row.finding.to_string(),
    };
    write_links(out, result.findings.iter().map(|row| (folder(row), path(row))).collect(), observer)?;
    write_json(out, result)?;
    write_page(&out.join("page.html"), page(options, groups, copies, result), surveyed, observer)
}

/// The file of a picture that cannot be read.
fn broken_path(surveyed: &Surveyed, name: &str) -> Option<PathBuf> {
    let bad = surveyed.broken.iter().find(|bad| bad.name == name)?;
    (bad.id < surveyed.pictures.len() as u64).then(|| surveyed.pictures.path(bad.id as usize).map(Path::to_path_buf))?
}

fn measured(surveyed: &Surveyed) -> Vec<MeasuredRow> {
    let row = |(at, facts): (usize, &crate::data::facts::PictureFacts)| {
        let q = &facts.quality;
        let bytes = facts.bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        let blur = q.blur.map(|blur| format!("{blur:.2}")).unwrap_or_default();
        MeasuredRow(format!(
            "{},{},{},{bytes},{:.0},{:.0},{:.0},{:.1},{:.0},{blur},{}",
            csv::field(&surveyed.name(at)),
            facts.size.width,
            facts.size.height,
            q.low,
            q.middle,
            q.high,
            q.contrast,
            q.colour,
            facts.side
        ))
    };
    surveyed.facts.iter().enumerate().map(row).collect()
}

fn page(options: &LookOptions, groups: &[Vec<Member>], copies: &[CopyRow], result: &LookResult) -> Findings {
    let section = |kind: LookKind| {
        let picture = |row: &LookRow| ShownPicture { row: row.row, caption: row.why.clone(), marked: false };
        let rows: Vec<&LookRow> = result.of(kind).collect();
        let groups = match kind {
            // Copies beside each other.
            LookKind::Leak | LookKind::TwoLabels => (rows.chunk_by(|a, b| a.group == b.group))
                .map(|group| ShownGroup {
                    caption: String::new(),
                    pictures: group.iter().map(|row| picture(row)).collect(),
                })
                .collect(),
            LookKind::Broken | LookKind::Duplicate => Vec::new(),
            LookKind::NearDuplicate => copies_section(groups, copies).groups,
            _ => vec![ShownGroup { caption: String::new(), pictures: rows.iter().map(|row| picture(row)).collect() }],
        };
        let title = if kind == LookKind::NearDuplicate { "There twice, or nearly" } else { kind.title() };
        let about = result
            .counts
            .iter()
            .find(|count| count.finding == kind)
            .map_or_else(String::new, |count| count.about.clone());
        ShownSection { title: title.to_string(), about, groups }
    };
    let tiles = result.counts.iter().map(|count| {
        let note = match (count.pictures, count.listed) {
            (_, false) if count.finding == LookKind::Unlike => "cannot be told here",
            (0, _) => "",
            (_, true) => count.about.split(':').next().unwrap_or_default(),
            (_, false) => "usual here: not listed",
        };
        [count.finding.title().to_string(), count.pictures.to_string(), note.to_string()]
    });
    let broken = result.of(LookKind::Broken).map(|row| format!("{} cannot be read: {}", row.file, row.why));
    let usual = |count: &&LookCount| !count.listed && count.finding != LookKind::Unlike;
    let common = result.counts.iter().filter(usual).map(|count| {
        format!(
            "{} of {} pictures are {}: that is how this collection is, so they are not listed.",
            count.pictures,
            result.images,
            count.finding.title().to_lowercase()
        )
    });
    Findings {
        name: options.images.clone(),
        sentence: result.sentence(),
        tiles: tiles.collect(),
        notes: broken.take(20).chain(common).collect(),
        sections: LookKind::ALL.into_iter().map(section).collect(),
    }
}

impl LookResult {
    /// What was found, in a sentence.
    pub fn sentence(&self) -> String {
        let listed = self.counts.iter().filter(|count| count.listed && count.pictures > 0);
        let words: Vec<String> =
            listed.map(|count| format!("{} {}", count.pictures, count.finding.title().to_lowercase())).collect();
        match words.len() {
            0 => format!("{} pictures, and nothing conspicuous among them.", self.images),
            _ => format!("{} pictures: {}.", self.images, words.join(", ")),
        }
    }
}
