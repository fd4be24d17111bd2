//! A matrix from a CSV file: one line per row, with an optional heading and an optional column of names.
//!
//! The names are in a column called `file`, `name`, `path`, `filename` or `image`; without a heading, in the first column if its
//! fields are not numbers. Columns called `row`, `id`, `label` or with an empty name are ignored. All others must be numbers.
//! A first line that counts the columns from 0 (as pandas writes it) is a heading.

use super::NamedMatrix;
use crate::error::{Error, Result, listed};
use crate::io::csv::{self, Record};
use crate::matrix::Matrix;
use std::path::Path;

const NAMES: [&str; 5] = ["file", "name", "path", "filename", "image"];
const IGNORED: [&str; 4] = ["row", "id", "label", ""];

pub fn read(path: &Path) -> Result<NamedMatrix> {
    let wrong = |line: usize, what: String| {
        let message = format!("{}, line {line}: {what}", path.display());
        let names = listed(NAMES);
        let hint =
            format!("give one line per image: numbers separated by commas, and at most one column of names ({names})");
        Error::data(message, hint)
    };
    let mut reader = csv::Reader::open(path)?;
    let (mut names, mut values) = (Vec::new(), Vec::new());
    // The column of names, the number of columns, and which of them are numbers.
    let (mut name_column, mut columns): (Option<usize>, Option<(usize, Vec<usize>)>) = (None, None);
    while let Some(record) = reader.next()? {
        let line = record.line;
        if record.len() == 1 && record.get(0).trim().is_empty() {
            continue;
        }
        if columns.is_none() {
            let heading = (0..record.len()).filter(|&i| number(record.get(i)).is_none()).count();
            let titled = heading == record.len() || heading > 1 || counted(&record);
            let title = |i: usize| record.get(i).trim().to_lowercase();
            let named = |i: &usize| NAMES.contains(&title(*i).as_str());
            let is_heading = titled || (0..record.len()).any(|i| named(&i) || IGNORED.contains(&title(i).as_str()));
            name_column = match is_heading {
                true => (0..record.len()).find(named),
                false => (heading == 1 && number(record.get(0)).is_none()).then_some(0),
            };
            let aside = |i: usize| is_heading && IGNORED.contains(&title(i).as_str());
            let numeric: Vec<usize> = (0..record.len()).filter(|&i| Some(i) != name_column && !aside(i)).collect();
            if numeric.is_empty() {
                return Err(wrong(line, "there is no column of numbers".into()));
            }
            columns = Some((record.len(), numeric));
            if is_heading {
                continue;
            }
        }
        let Some((all, numeric)) = &columns else { continue };
        if record.len() != *all {
            return Err(wrong(line, format!("it has {} fields, not {all}", record.len())));
        }
        for &i in numeric {
            let field = record.get(i);
            values.push(number(field).ok_or_else(|| wrong(line, format!("'{field}' is not a number")))?);
        }
        if let Some(i) = name_column {
            names.push(record.get(i).to_string());
        }
    }
    let dim = columns.map_or(0, |(_, numeric)| numeric.len());
    if values.is_empty() {
        return Err(wrong(1, "it has no rows".into()));
    }
    Ok(NamedMatrix { matrix: Matrix::new(dim, values), names: name_column.map(|_| names) })
}

/// Whether the fields are 0, 1, 2 and so on, perhaps after an empty one.
fn counted(record: &Record) -> bool {
    let from = usize::from(record.get(0).is_empty());
    record.len() > from + 2 && (from..record.len()).all(|i| record.get(i).trim() == (i - from).to_string())
}

/// Parses a number; `nan` and `inf` are numbers, an empty field is not.
fn number(field: &str) -> Option<f32> {
    field.trim().parse::<f64>().ok().map(|x| x as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<NamedMatrix> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.csv");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn with_and_without_heading_and_names() {
        let expected = Matrix::new(2, vec![1.0, 2.5, -3.0, 4e-3]);
        for text in [
            "1,2.5\n-3,4e-3\n",
            "a,b\n1,2.5\n-3,4e-3",
            "1, 2.5\r\n-3,4e-3\r\n\r\n",
            "row,id,0,1,label\n0,7,1,2.5,cat\n1,9,-3,4e-3,\"big, dog\"\n",
            "\u{feff}1,2.5\n-3,4e-3\n",
            ",x,y\n0,1,2.5\n1,-3,4e-3\n",
        ] {
            let matrix = parsed(text).unwrap();
            assert_eq!(matrix.matrix, expected, "{text}");
            assert_eq!(matrix.names, None, "{text}");
        }
        for text in [
            "file,0,1\n\"a, \"\"b\"\"\nc.png\",1,2.5\nä.png,-3,4e-3\n",
            "\"a, \"\"b\"\"\nc.png\",1,2.5\nä.png,-3,4e-3\n",
            "0,Path,1\n1,\"a, \"\"b\"\"\nc.png\",2.5\n-3,ä.png,4e-3\n",
        ] {
            let matrix = parsed(text).unwrap();
            assert_eq!(matrix.matrix, expected, "{text}");
            assert_eq!(matrix.names.unwrap(), ["a, \"b\"\nc.png", "ä.png"], "{text}");
        }
        for text in ["0,1,2\n5,6,7\n", ",0,1,2\n0,5,6,7\n"] {
            assert_eq!(parsed(text).unwrap(), NamedMatrix { matrix: Matrix::new(3, vec![5.0, 6.0, 7.0]), names: None });
        }
        assert!(parsed("1,nan\n2,inf\n").unwrap().matrix.values[1].is_nan());
    }

    #[test]
    fn errors_name_their_line() {
        let says = |text: &str, word: &str| {
            let e = parsed(text).unwrap_err();
            assert!(e.message.contains(word), "{word} is not in {}", e.message);
        };
        says("1,2\n3\n", "line 2: it has 1 fields, not 2");
        says("1,2\n3,x\n", "line 2: 'x' is not a number");
        says("1,2\n3,\n", "line 2: '' is not a number");
        says("a,\"b\nc\"\n1,2\n3,4,5\n", "line 4: it has 3 fields");
        says("", "no rows");
        says("a,b\n", "no rows");
        says("file\na.png\n", "no column of numbers");
        says("1,2\n\"3,4\n", "ends within quotes");
    }
}
