//! Files about copies: a table, the paths of all but the best, links group by group, a page.

use super::{CopiesOptions, CopiesResult, CopyKind, CopyRow, Member};
use crate::jobs::findings::{Surveyed, write_json, write_links, write_page, write_paths};
use crate::jobs::folders::numbered;
use crate::jobs::table::write_rows;
use crate::observe::Observer;
use crate::report::{Findings, PictureSource, ShownGroup, ShownPicture, ShownSection};
use pcp_core::error::Result;
use pcp_core::text::bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is known about copies that are not exact, for pages and lists.
pub(crate) const ABOUT: &str = "The same picture by its files, its pixels, or its edges laid upon each other: resized, saved again, cropped by up to a tenth, \
    mirrored or brightened. In every group, any two are copies; the surest groups come first. The best one, with a green frame, is the largest of those that are about as \
    sharp as the sharpest.";

/// Writes everything into the new folder `out`.
pub(super) fn write(
    out: &Path,
    options: &CopiesOptions,
    surveyed: &Arc<Surveyed>,
    found: &[Vec<Member>],
    result: &CopiesResult,
    observer: &Arc<dyn Observer>,
) -> Result<()> {
    write_rows(Some(&out.join("copies.csv")), &result.rows)?;
    let path = |member: &Member| surveyed.path(member.at);
    let others: Vec<Option<PathBuf>> =
        found.iter().flatten().filter(|member| member.kind != CopyKind::Best).map(path).collect();
    write_paths(out, "copies", &others, observer)?;
    let groups: Vec<u32> = result.rows.iter().map(|row| row.group as u32).collect();
    let links = numbered("group", &groups).into_iter().zip(found.iter().flatten().map(path)).collect();
    write_links(out, links, observer)?;
    write_json(out, result)?;
    let sentence = match result.groups {
        0 => format!("None of {} pictures is there twice.", result.images),
        n => format!("{} of {} pictures are copies of others, in {n} groups.", result.copies, result.images),
    };
    let tile = |name: &str, value: String, note: &str| [name.to_string(), value, note.to_string()];
    let page = Findings {
        name: options.images.clone(),
        sentence,
        tiles: vec![
            tile("pictures", result.images.to_string(), "compared"),
            tile("groups", result.groups.to_string(), "of copies"),
            tile("copies", result.copies.to_string(), "beside the best of each group"),
            tile("exact", result.exact.to_string(), "the same file or pixels"),
            tile("space", bytes(result.bytes as f64), "that the copies take"),
            tile("broken", result.broken.len().to_string(), "cannot be read"),
        ],
        notes: Vec::new(),
        sections: vec![section(found, &result.rows)],
    };
    write_page(&out.join("page.html"), page, surveyed, observer)
}

/// Groups of copies on a page; `rows` are those of `found`, one after the other.
pub(crate) fn section(found: &[Vec<Member>], rows: &[CopyRow]) -> ShownSection {
    let mut rows = rows.iter();
    let groups = found.iter().map(|members| {
        let pictures: Vec<ShownPicture> = members
            .iter()
            .zip(&mut rows)
            .map(|(member, row)| ShownPicture {
                row: member.at,
                caption: caption(row),
                marked: row.copy == CopyKind::Best,
            })
            .collect();
        let least = members.iter().map(|m| m.likeness).fold(1.0, f32::min);
        ShownGroup { caption: format!("{} pictures, likeness {least:.2}", members.len()), pictures }
    });
    ShownSection { title: "Copies".into(), about: ABOUT.into(), groups: groups.collect() }
}

/// How a picture is like the best one, and its size.
fn caption(row: &CopyRow) -> String {
    let size = row.bytes.map(|size| format!(", {}", bytes(size as f64))).unwrap_or_default();
    format!("{}, {} x {}{size}", row.copy, row.width, row.height)
}
