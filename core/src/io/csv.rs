//! CSV: reading record by record, and quoting of fields.
//!
//! The parser is `csv-core`, on which the `csv` crate is built. Records are split at line ends outside quotes here, so that
//! every error names its line, a blank line is a record of one empty field, and a file that ends within quotes is refused.
//!
//! Spreadsheets take a field that begins with `=`, `+`, `-` or `@` for a formula, which can run commands. Texts that do are written with an
//! apostrophe before them, which is taken away again when they are read.

use crate::error::{Error, Result};
use csv_core::ReadRecordResult;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// All records of a CSV text. A text that ends within quotes ends there.
pub fn rows(text: &str) -> Vec<Vec<String>> {
    let mut records = Records::new(text.as_bytes());
    let mut rows = Vec::new();
    // Reading from memory does not fail.
    while let Ok(Some((record, _))) = records.next() {
        rows.push((0..record.len()).map(|i| record.get(i).to_string()).collect());
    }
    rows
}

/// `text` as a CSV field, quoted if necessary, and never a formula.
pub fn field(text: &str) -> String {
    let text = if is_formula(text) { &format!("'{text}") } else { text };
    let mut writer = csv_core::Writer::new();
    // Two quotes around it; in the worst case every byte is a quote and doubled.
    let mut out = vec![0; 2 * text.len() + 2];
    let (_, _, written) = writer.field(text.as_bytes(), &mut out);
    let (_, closed) =
        if text.is_empty() { (csv_core::WriteResult::InputEmpty, 0) } else { writer.finish(&mut out[written..]) };
    out.truncate(written + closed);
    // The bytes of `text`, with ASCII quotes between them.
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether a spreadsheet would take `text` for a formula, or an earlier apostrophe protects one.
fn is_formula(text: &str) -> bool {
    text.trim_start_matches('\'').starts_with(['=', '+', '-', '@', '\t', '\r'])
}

/// A CSV file, record by record.
pub struct Reader {
    path: PathBuf,
    records: Records<BufReader<File>>,
}

impl Reader {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Reader> {
        let file = File::open(path).map_err(|e| Error::io("read", path, &e))?;
        let records = Records::new(BufReader::with_capacity(1 << 20, file));
        Ok(Reader { path: path.to_path_buf(), records })
    }

    /// The next record; `None` at the end. Bytes that are not UTF-8 are replaced.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Record>> {
        match self.records.next().map_err(|e| Error::io("read", &self.path, &e))? {
            Some((record, false)) => Err(Error::data(
                format!("{}, line {}: it ends within quotes", self.path.display(), record.line),
                "end the quoted field, or get the whole file",
            )),
            found => Ok(found.map(|(record, _)| record)),
        }
    }
}

/// One record.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Record {
    text: String,
    /// Where each field ends in `text`.
    ends: Vec<usize>,
    /// The line that it begins on, from 1.
    pub line: usize,
}

impl Record {
    /// How many fields.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Field `i`; empty beyond the last.
    pub fn get(&self, i: usize) -> &str {
        let from = if i == 0 { 0 } else { self.ends.get(i - 1).copied().unwrap_or(self.text.len()) };
        &self.text[from..self.ends.get(i).copied().unwrap_or(self.text.len())]
    }
}

impl Record {
    /// The record without the apostrophes that protect formulas.
    fn without_apostrophes(&self) -> Record {
        let mut plain = Record { line: self.line, ..Record::default() };
        for field in (0..self.len()).map(|i| self.get(i)) {
            let inner = field.strip_prefix('\'').filter(|inner| is_formula(inner));
            plain.text.push_str(inner.unwrap_or(field));
            plain.ends.push(plain.text.len());
        }
        plain
    }
}

struct Records<R> {
    input: R,
    parser: csv_core::Reader,
    /// Lines read so far.
    lines: usize,
}

impl<R: BufRead> Records<R> {
    fn new(input: R) -> Self {
        Records { input, parser: csv_core::Reader::new(), lines: 0 }
    }

    /// The next record, and whether all its quotes are closed.
    fn next(&mut self) -> std::io::Result<Option<(Record, bool)>> {
        let line = self.lines + 1;
        let mut bytes = Vec::new();
        let (mut closed, mut from) = (true, 0);
        while self.input.read_until(b'\n', &mut bytes)? > 0 {
            self.lines += 1;
            closed ^= bytes[from..].iter().filter(|b| **b == b'"').count() % 2 == 1;
            from = bytes.len();
            if closed {
                break;
            }
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = if line == 1 { text.trim_start_matches('\u{feff}') } else { &text };
        Ok(Some((Record { line, ..self.parsed(text) }, closed)))
    }

    /// Parses `text`, which is one record.
    fn parsed(&mut self, text: &str) -> Record {
        if text.trim_end_matches(['\r', '\n']).is_empty() {
            // The parser skips blank lines.
            return Record { ends: vec![0], ..Record::default() };
        }
        self.parser.reset();
        let (mut out, mut ends) = (vec![0; text.len()], vec![0; text.matches(',').count() + 1]);
        let (state, read, mut written, mut fields) = self.parser.read_record(text.as_bytes(), &mut out, &mut ends);
        if state == ReadRecordResult::InputEmpty {
            // A last line without a line end: an empty input tells the parser that nothing follows.
            let rest = self.parser.read_record(&text.as_bytes()[read..], &mut out[written..], &mut ends[fields..]);
            (written, fields) = (written + rest.2, fields + rest.3);
        }
        out.truncate(written);
        ends.truncate(fields);
        // A valid text, split only at ASCII bytes.
        let record = Record { text: String::from_utf8_lossy(&out).into_owned(), ends, line: 0 };
        if record.text.contains('\'') { record.without_apostrophes() } else { record }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Fields by the rules of RFC 4180, character by character.
    fn twin(text: &str) -> Vec<Vec<String>> {
        let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), String::new());
        let mut quoted = false;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
                '"' => quoted = !quoted,
                ',' if !quoted => row.push(std::mem::take(&mut field)),
                '\r' if !quoted && chars.peek() == Some(&'\n') => {}
                '\n' if !quoted => {
                    row.push(std::mem::take(&mut field));
                    rows.push(std::mem::take(&mut row));
                }
                c => field.push(c),
            }
        }
        if !row.is_empty() || !field.is_empty() {
            row.push(field);
            rows.push(row);
        }
        rows
    }

    fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        std::fs::write(&path, bytes).unwrap();
        (dir, path)
    }

    /// Short texts of letters and of all characters that mean something.
    fn text() -> impl Strategy<Value = String> {
        let letters = prop::sample::select(vec!['a', ',', '"', '\n', '\r', 'ä', '=', '\'', '@', ' ']);
        prop::collection::vec(letters, 0..7).prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn written_records_are_read_back(
            table in prop::collection::vec(prop::collection::vec(text(), 1..5), 0..6),
            end in prop::sample::select(vec!["\n", "\r\n"]),
            ended: bool,
        ) {
            let mut text: String = table.iter().map(|row| row.iter().map(|f| field(f)).collect::<Vec<_>>().join(",") + end).collect();
            if !ended && table.last().is_some_and(|row| row.len() > 1) {
                text.truncate(text.len() - end.len());
            }
            prop_assert_eq!(rows(&text), table);
            let written = twin(&text);
            prop_assert!(written.iter().flatten().all(|field| !field.starts_with(['=', '@', '\r'])), "no formula: {:?}", written);
            let unprotected = |field: &String| match field.strip_prefix('\'') {
                Some(rest) if is_formula(rest) => rest.to_string(),
                _ => field.clone(),
            };
            let read: Vec<Vec<String>> = written.iter().map(|row| row.iter().map(unprotected).collect()).collect();
            prop_assert_eq!(rows(&text), read);
        }
    }

    #[test]
    fn fields_are_quoted_where_necessary() {
        assert_eq!(field("a b"), "a b");
        assert_eq!(field(""), "");
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(field("a\r"), "\"a\r\"");
        assert_eq!(field("=1+1"), "'=1+1");
        assert_eq!(field("'-x"), "''-x");
        assert_eq!(field("'x"), "'x");
        assert_eq!(rows("'=a,''-b,'c,-1.5\n"), [["=a", "'-b", "'c", "-1.5"]]);
    }

    #[test]
    fn records_name_their_lines() {
        let text = "\u{feff}a,\"b,\n\"\"c\"\"\r\nd\",e\r\n1,,3\n\n\"\"\"\",\"x\ny\",\nä";
        let (_dir, path) = file(text.as_bytes());
        let mut reader = Reader::open(&path).unwrap();
        let (mut found, mut lines) = (Vec::new(), Vec::new());
        while let Some(record) = reader.next().unwrap() {
            found.push((0..record.len()).map(|i| record.get(i).to_string()).collect::<Vec<_>>());
            lines.push(record.line);
            assert!(!record.is_empty() && record.get(99).is_empty());
        }
        assert_eq!(found, twin(text.trim_start_matches('\u{feff}')));
        assert_eq!(lines, [1, 4, 5, 6, 8]);
    }

    #[test]
    fn truncated_empty_and_binary_files() {
        let next = |bytes: &[u8]| Reader::open(&file(bytes).1).unwrap().next();
        assert!(next(b"a,\"b\nc").unwrap_err().message.contains("line 1: it ends within quotes"));
        assert_eq!(next(b"").unwrap(), None);
        assert_eq!(next(b"\xff,b").unwrap().unwrap().get(0), "\u{fffd}");
        assert_eq!(rows("a\n\"b"), [["a"], ["b"]]);
        assert!(rows("").is_empty());
    }
}
