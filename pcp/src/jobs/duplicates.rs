//! Groups of near duplicates in any embeddings: what counts as the same depends on the network, so that they are guesses.

use super::part::on_pool;
use super::source::{EmbeddingSource, Embeddings};
use super::table::{CsvRow, write_rows};
use crate::observe::Observer;
use pcp_core::duplicates::groups;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::require_absent;
use pcp_core::io::csv;
use pcp_core::matrix::Metric;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// Where duplicates are looked for, and how alike they are.
#[derive(Clone, Debug)]
pub struct DuplicatesOptions {
    /// The embeddings.
    pub embeddings: EmbeddingSource,
    /// The least cosine of a pair.
    pub threshold: f32,
    /// Names of the rows: a CSV file with a column `file`; otherwise those of the matrix, or of a file beside it.
    pub files: Option<PathBuf>,
    /// Leave out rows that cannot be used (not a number, infinite, zero).
    pub skip_bad_rows: bool,
    /// A new CSV file to write.
    pub out: Option<PathBuf>,
}

impl DuplicatesOptions {
    /// A cosine of 0.98; nothing is written.
    pub fn new(embeddings: impl Into<EmbeddingSource>) -> Self {
        let embeddings = embeddings.into();
        DuplicatesOptions { embeddings, threshold: 0.98, files: None, skip_bad_rows: false, out: None }
    }
}

/// A row that has duplicates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DuplicateRow {
    /// Its group.
    pub group: usize,
    /// Its number in the source.
    pub row: usize,
    /// Its name; empty where it has none.
    pub file: String,
    /// Cosine with the group's first row.
    pub cosine: f32,
}

impl CsvRow for DuplicateRow {
    const HEADING: &'static str = "group,row,file,cosine";

    fn line(&self) -> String {
        format!("{},{},{},{:.4}", self.group, self.row, csv::field(&self.file), self.cosine)
    }
}

/// Groups of near duplicates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DuplicatesResult {
    /// Rows that have duplicates, group by group, the surest group first.
    pub rows: Vec<DuplicateRow>,
    /// The file that was written.
    pub out: Option<PathBuf>,
}

/// Finds groups of rows of which every two have a cosine of `threshold` or more.
pub fn duplicates(options: &DuplicatesOptions, observer: &Arc<dyn Observer>) -> Result<DuplicatesResult> {
    options.out.as_deref().map_or(Ok(()), require_absent)?;
    let threshold = options.threshold;
    if !(threshold > 0.0 && threshold <= 1.0) {
        let hint = "give a cosine above 0, up to 1, such as 0.98";
        return Err(Error::usage(format!("`threshold` is {threshold}"), hint));
    }
    let read = Embeddings::read(&options.embeddings, options.files.as_deref(), 0, observer)?;
    let bad = read.bad_rows(Metric::Cosine, options.skip_bad_rows)?;
    let embeddings = read.ready(bad, Metric::Cosine);
    let (features, count) = (embeddings.features.clone(), embeddings.features.rows);
    let found = on_pool("comparing", count, observer, move |part| {
        // Rounding puts copies a hair below 1.
        groups(&features, threshold - f32::EPSILON * 4.0, &mut |done| part.step(done, count))
    })?;
    let row = |group: usize, row: usize, cosine: f32| DuplicateRow {
        group,
        row: embeddings.rows[row],
        file: embeddings.name(row).to_string(),
        cosine,
    };
    let members = found.iter().enumerate().flat_map(|(g, group)| group.members.iter().map(move |m| (g, m)));
    let rows: Vec<DuplicateRow> = members.map(|(g, m)| row(g, m.0, m.1)).collect();
    write_rows(options.out.as_deref(), &rows)?;
    Ok(DuplicatesResult { rows, out: options.out.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Silent;
    use pcp_core::matrix::Matrix;

    fn silent() -> Arc<dyn Observer> {
        Arc::new(Silent::default())
    }

    #[test]
    fn copies_are_found_and_bad_rows_refused_or_skipped() {
        let values = vec![1.0, 0.0, f32::NAN, 0.0, 0.0, 1.0, 2.0, 0.0];
        let options = DuplicatesOptions::new(Matrix::new(2, values));
        assert!(duplicates(&options, &silent()).unwrap_err().message.contains("row 1"));
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("new/twins.csv");
        let options = DuplicatesOptions { skip_bad_rows: true, threshold: 1.0, out: Some(out.clone()), ..options };
        let found = duplicates(&options, &silent()).unwrap();
        assert_eq!(found.rows.iter().map(|r| r.row).collect::<Vec<_>>(), [0, 3]);
        let text = std::fs::read_to_string(out).unwrap();
        assert_eq!(text, "group,row,file,cosine\n0,0,,1.0000\n0,3,,1.0000\n");
        let json = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<DuplicatesResult>(&json).unwrap(), found);
        assert!(duplicates(&options, &silent()).unwrap_err().message.contains("there already"));
    }

    #[test]
    fn one_row_none_and_a_threshold_that_is_no_cosine() {
        for values in [vec![], vec![1.0, 2.0]] {
            let options = DuplicatesOptions::new(Matrix::new(2, values));
            assert_eq!(duplicates(&options, &silent()).unwrap().rows, []);
            for threshold in [0.0, 1.1, f32::NAN] {
                let e = duplicates(&DuplicatesOptions { threshold, ..options.clone() }, &silent()).unwrap_err();
                assert!(e.message.contains("`threshold` is"), "{e:?}");
            }
        }
    }
}
