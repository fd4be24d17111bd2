//! Labels: the classes of rows, from the names of folders or a column of a CSV file.

use crate::error::{Error, Result};
use crate::io::table::{aligned, columns};
use std::collections::BTreeSet;
use std::path::Path;

/// The class of every image of a split: for evaluation only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// Class names.
    pub classes: Vec<String>,
    /// Class of every row, an index into `classes`.
    pub of: Vec<u32>,
}

/// The sorted class names among `texts`, and the class of every row; an empty text means no class.
fn classes_of(texts: &[String]) -> (Vec<String>, Vec<Option<u32>>) {
    let classes: BTreeSet<&String> = texts.iter().filter(|t| !t.is_empty()).collect();
    let classes: Vec<String> = classes.into_iter().cloned().collect();
    let of = texts.iter().map(|t| classes.binary_search(t).ok().map(|c| c as u32)).collect();
    (classes, of)
}

/// Labels from a CSV file with a column `label`: matched by the names in its column `file`, if it has one and the rows have
/// names, else by the order of lines.
pub fn read(path: &Path, rows: usize, names: Option<&[String]>) -> Result<(Vec<String>, Vec<Option<u32>>)> {
    let (files, labels) = columns(path, "label")?;
    let found = classes_of(&aligned(path, &files, &labels, rows, names)?);
    if found.0.len() < 2 {
        let message = format!("{}: it has {} different labels", path.display(), found.0.len());
        return Err(Error::data(message, "give a file with at least two different labels"));
    }
    Ok(found)
}

/// The labels, if every row has one.
pub fn complete(classes: &[String], of: &[Option<u32>]) -> Option<Labels> {
    let of: Option<Vec<u32>> = of.iter().copied().collect();
    Some(Labels { classes: classes.to_vec(), of: of? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_matched_by_name_or_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("labels.csv");
        std::fs::write(&path, "file,label\nb,dog\na,cat\nc,\n").unwrap();
        let names = ["a", "b", "c"].map(String::from);
        let (classes, of) = read(&path, 3, Some(&names)).unwrap();
        assert_eq!((classes, of), (vec!["cat".to_string(), "dog".into()], vec![Some(0), Some(1), None]));
        let (classes, of) = read(&path, 3, None).unwrap();
        assert_eq!(of, [Some(1), Some(0), None]);
        assert_eq!(complete(&classes, &of), None);
        assert_eq!(complete(&classes, &of[..2]).unwrap().of, [1, 0]);
        std::fs::write(&path, "label\ncat\ncat\n").unwrap();
        assert!(read(&path, 2, None).unwrap_err().message.contains("1 different labels"));
    }
}
