//! Results that are rows of a table.

use pcp_core::error::Result;
use pcp_core::io::atomic::{make_parent, write_new};
use std::io::Write;
use std::path::Path;

/// A row of a CSV file.
pub trait CsvRow {
    /// The first line of the file.
    const HEADING: &'static str;

    /// The row as a line.
    fn line(&self) -> String;
}

/// Whether an output is a table alone, not a folder: its name ends in `.csv`.
pub fn is_table(out: &Path) -> bool {
    out.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"))
}

/// Rows as the text of a CSV file.
pub fn csv_text<'a, T: CsvRow + 'a>(rows: impl IntoIterator<Item = &'a T>) -> String {
    let mut text = format!("{}\n", T::HEADING);
    for row in rows {
        text += &row.line();
        text.push('\n');
    }
    text
}

/// Writes the new file `out`, where one is asked for.
pub(crate) fn write_rows<T: CsvRow>(out: Option<&Path>, rows: &[T]) -> Result<()> {
    let Some(out) = out else { return Ok(()) };
    make_parent(out)?;
    write_new(out, |w| w.write_all(csv_text(rows).as_bytes()))
}
