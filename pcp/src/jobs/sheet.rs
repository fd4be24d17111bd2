//! The page about a collection that was clustered or purified.

use super::part::on_pool;
use super::pictures::Gallery;
use crate::observe::Observer;
use crate::report::{Collection, PageLimits, collection_section, page, steps};
use pcp_core::error::Result;
use pcp_core::io::atomic::write_bytes;
use std::path::Path;
use std::sync::Arc;

/// Writes `sheet.html` into `out`.
pub(crate) fn write_sheet(
    out: &Path,
    collection: Collection,
    gallery: Gallery,
    observer: &Arc<dyn Observer>,
) -> Result<()> {
    let limits = PageLimits::shared(PageLimits::IMAGES, 1);
    let view = on_pool("page", steps(), observer, move |part| {
        let mut on_step = |done| part.step(done, steps());
        collection_section(&collection, &|rows| gallery.pictures(rows), limits, &mut on_step)
    })?;
    write_bytes(&out.join("sheet.html"), page(&[view])?.as_bytes())
}

/// A key figure: its name, its value and a note.
pub(crate) fn tile(name: &str, value: usize, note: &str) -> [String; 3] {
    [name.to_string(), value.to_string(), note.to_string()]
}

/// What a page says when some images are not there.
pub(crate) fn missing(gallery: &Gallery, rows: usize) -> Vec<String> {
    match rows - gallery.found() {
        0 => Vec::new(),
        n => vec![format!("{n} of the {rows} images are not where their names say: they are grey.")],
    }
}
