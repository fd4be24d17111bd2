//! Columns of a CSV file with one line per row of a matrix, matched by the names in its column `file` or by the order of lines.

use crate::error::{Error, Result, listed};
use crate::io::csv;
use std::collections::HashMap;
use std::path::Path;

/// The columns `file` (empty when there is none) and `wanted` of a CSV file with a heading.
pub fn columns(path: &Path, wanted: &str) -> Result<(Vec<String>, Vec<String>)> {
    let wrong = |what: String| {
        let both = if wanted == "file" { String::new() } else { format!("the heading file,{wanted}, or ") };
        let hint = format!("give a CSV file with {both}{wanted} alone and a line per row");
        Error::data(format!("{}: {what}", path.display()), hint)
    };
    let mut reader = csv::Reader::open(path)?;
    let Some(heading) = reader.next()? else { return Err(wrong("it is empty".into())) };
    let titles: Vec<String> = (0..heading.len()).map(|i| heading.get(i).trim().to_lowercase()).collect();
    let find = |name: &str| titles.iter().position(|t| t == name);
    let Some(value) = find(wanted) else {
        return Err(wrong(format!("it has no column {wanted}; its columns are {}", listed(&titles))));
    };
    let file = find("file");
    let (mut files, mut values) = (Vec::new(), Vec::new());
    while let Some(record) = reader.next()? {
        if record.len() == 1 && titles.len() > 1 && record.get(0).is_empty() {
            continue;
        }
        if record.len() != titles.len() {
            return Err(wrong(format!("line {} has {} fields, not {}", record.line, record.len(), titles.len())));
        }
        values.push(record.get(value).to_string());
        files.extend(file.map(|i| record.get(i).to_string()));
    }
    Ok((files, values))
}

/// `values` in the order of the rows: matched by name when both sides have names, else in the order of the lines.
pub fn aligned(
    path: &Path,
    files: &[String],
    values: &[String],
    rows: usize,
    names: Option<&[String]>,
) -> Result<Vec<String>> {
    let wrong = |what: String| {
        Error::data(format!("{}: {what}", path.display()), "give a file about the same images as the matrix")
    };
    if let (Some(names), false) = (names, files.is_empty()) {
        let mut of: HashMap<&str, usize> = HashMap::new();
        for (i, file) in files.iter().enumerate() {
            if of.insert(file, i).is_some() {
                return Err(wrong(format!("'{file}' occurs twice")));
            }
        }
        let find = |name: &String| {
            of.get(name.as_str()).map(|i| values[*i].clone()).ok_or_else(|| wrong(format!("'{name}' is not in it")))
        };
        return names.iter().map(find).collect();
    }
    if values.len() != rows {
        return Err(wrong(format!("it has {} lines below its heading, the matrix has {rows} rows", values.len())));
    }
    Ok(values.to_vec())
}
