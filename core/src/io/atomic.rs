//! Files and folders that are whole or not there: made beside their place, then renamed into it.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Ending of files and folders that are being written, which no file of anybody else has.
pub const UNFINISHED: &str = "pcp-unfinished";

/// Writes `path` with what `fill` puts into it. A crash at any moment leaves the old file or the new one, never a part.
pub fn write_whole(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let unfinished = unfinished(path);
    let outcome = fill_and_rename(path, &unfinished, fill);
    outcome.map_err(|e| {
        // Best effort: a leftover is also removed when the run goes on.
        let _ = fs::remove_file(&unfinished);
        Error::io("write", path, &e)
    })
}

fn fill_and_rename(
    path: &Path,
    unfinished: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 20, File::create(unfinished)?);
    fill(&mut writer)?;
    writer.into_inner().map_err(|e| e.into_error())?.sync_all()?;
    rename(unfinished, path)
}

fn rename(unfinished: &Path, path: &Path) -> std::io::Result<()> {
    fs::rename(unfinished, path)?;
    // The rename itself must reach the disk, too.
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

/// Makes the folder `path`, which is empty or not there, with what `fill` puts into the folder it is given. A failure of `fill`
/// leaves nothing; a crash at worst the unfinished folder beside it, which is never touched again, since it might be someone's own.
pub fn make_whole(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let unfinished = unfinished(path);
    make_parent(path)?;
    fs::create_dir(&unfinished).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => Error::file(
            format!("{} is in the way", unfinished.display()),
            "a command that was killed leaves such a folder: remove it, then run the command again",
        ),
        _ => Error::io("make the folder", &unfinished, &e),
    })?;
    if let Err(e) = fill(&unfinished) {
        // Best effort: what made the folder fail may make this fail, too.
        let _ = fs::remove_dir_all(&unfinished);
        return Err(e);
    }
    rename(&unfinished, path).map_err(|e| {
        let message = format!("cannot make {}: {e}", path.display());
        Error::file(message, format!("everything is whole in {}: move it where you want it", unfinished.display()))
    })
}

/// Refuses to make the folder `out` where something is already: it must be new or empty.
pub fn free(out: &Path) -> Result<()> {
    if out.file_name().is_none() {
        return Err(Error::usage(
            format!("'{}' is no name for a new folder", out.display()),
            "give --out the name of a folder to make",
        ));
    }
    let taken = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_some(),
        // A link to nowhere is something, too.
        Err(e) if e.kind() == ErrorKind::NotFound => out.symlink_metadata().is_ok(),
        Err(e) if e.kind() == ErrorKind::NotADirectory => true,
        Err(e) => return Err(Error::io("list", out, &e)),
    };
    match taken {
        true => Err(Error::usage(
            format!("{} is there already", out.display()),
            "give --out a folder that is new or empty, or remove this one first",
        )),
        false => Ok(()),
    }
}

/// Refuses to write the file `out` where something is already.
pub fn free_file(out: &Path) -> Result<()> {
    if out.file_name().is_none() || out.symlink_metadata().is_ok() {
        return Err(Error::usage(
            format!("{} is there already", out.display()),
            "give --out the name of a new file, or remove this one first",
        ));
    }
    Ok(())
}

/// Makes the symbolic link `path` to `target`.
#[cfg(unix)]
pub fn link(target: &Path, path: &Path) -> Result<()> {
    std::os::unix::fs::symlink(target, path).map_err(|e| Error::io("make the link", path, &e))
}

/// Makes the symbolic link `path` to `target`.
#[cfg(not(unix))]
pub fn link(_: &Path, path: &Path) -> Result<()> {
    Err(Error::usage(
        format!("cannot make the link {}: this system has no symbolic links for everyone", path.display()),
        "run it on Linux or macOS, or copy the images instead",
    ))
}

/// Where `path` is written before it is whole.
pub fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{UNFINISHED}"));
    path.with_file_name(name)
}

/// The fields of every line of a CSV text; fields in quotes may hold commas, line ends and doubled quotes.
pub fn csv_rows(text: &str) -> Vec<Vec<String>> {
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

/// A CSV file, record by record, however large it is.
pub struct CsvReader {
    path: PathBuf,
    reader: BufReader<File>,
    /// Lines read so far.
    lines: usize,
}

/// The fields of one record.
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

    /// Field `i`, or nothing beyond the last.
    pub fn get(&self, i: usize) -> &str {
        let from = if i == 0 { 0 } else { self.ends.get(i - 1).copied().unwrap_or(self.text.len()) };
        &self.text[from..self.ends.get(i).copied().unwrap_or(self.text.len())]
    }
}

impl CsvReader {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<CsvReader> {
        let file = File::open(path).map_err(|e| Error::io("read", path, &e))?;
        Ok(CsvReader { path: path.to_path_buf(), reader: BufReader::with_capacity(1 << 20, file), lines: 0 })
    }

    /// The next record; `None` at the end. Bytes that are not UTF-8 are replaced.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Record>> {
        let mut record = Record { line: self.lines + 1, ..Record::default() };
        let (mut quoted, mut bytes) = (false, Vec::new());
        loop {
            bytes.clear();
            self.reader.read_until(b'\n', &mut bytes).map_err(|e| Error::io("read", &self.path, &e))?;
            if bytes.is_empty() {
                return match (quoted, record.line > self.lines) {
                    (false, true) => Ok(None),
                    _ => Err(Error::data(
                        format!("{}, line {}: it ends within quotes", self.path.display(), record.line),
                        "end the quoted field, or get the whole file",
                    )),
                };
            }
            self.lines += 1;
            let text = String::from_utf8_lossy(&bytes);
            let mut text = if self.lines == 1 { text.trim_start_matches('\u{feff}') } else { &text };
            let ended = text.strip_suffix('\n').map(|t| t.strip_suffix('\r').unwrap_or(t));
            // Within quotes the end of the line belongs to the field: told once the line's own quotes are counted.
            let inside = quoted ^ (text.matches('"').count() % 2 == 1);
            if let (Some(short), false) = (ended, inside) {
                text = short;
            }
            let mut chars = text.chars().peekable();
            while let Some(c) = chars.next() {
                match c {
                    '"' if quoted && chars.peek() == Some(&'"') => record.text.extend(chars.next()),
                    '"' => quoted = !quoted,
                    ',' if !quoted => record.ends.push(record.text.len()),
                    c => record.text.push(c),
                }
            }
            if !quoted {
                record.ends.push(record.text.len());
                return Ok(Some(record));
            }
        }
    }
}

/// Writes bytes whole.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    write_whole(path, |w| w.write_all(bytes))
}

/// Reads a whole file.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| Error::io("read", path, &e))
}

/// Makes a folder and those above it.
pub fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|e| Error::io("make the folder", path, &e))
}

/// Makes the folder that the file or folder `path` is to be in.
pub fn make_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), make_folder)
}

/// A field of a CSV file, quoted where it must be.
pub fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write_bytes(&path, b"old").unwrap();
        let failed = write_whole(&path, |w| {
            w.write_all(b"half of the ne")?;
            Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
        });
        let e = failed.unwrap_err();
        assert!(e.message.contains("a.txt") && e.hint.contains("disk space"), "{e:?}");
        assert_eq!(read_bytes(&path).unwrap(), b"old");
        assert!(!unfinished(&path).exists());
        write_bytes(&path, b"new").unwrap();
        assert_eq!(read_bytes(&path).unwrap(), b"new");
        assert!(read_bytes(&dir.path().join("b")).unwrap_err().message.contains("cannot read"));
        assert!(write_bytes(&dir.path().join("no/such/b"), b"").is_err());
    }

    #[test]
    fn a_folder_is_whole_or_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/folder");
        let failed = make_whole(&path, |inside| {
            write_bytes(&inside.join("a"), b"half")?;
            Err(Error::stopped())
        });
        assert_eq!(failed.unwrap_err().exit_code(), 130);
        assert!(!path.exists() && !unfinished(&path).exists());
        make_folder(&path).unwrap();
        let fill = |inside: &Path| write_bytes(&inside.join("a"), b"whole");
        make_whole(&path, fill).unwrap();
        assert_eq!(read_bytes(&path.join("a")).unwrap(), b"whole");
        assert!(!unfinished(&path).exists());
        let e = make_whole(&path, fill).unwrap_err();
        assert!(e.message.contains("folder") && e.hint.contains("folder.pcp-unfinished"), "it holds something: {e:?}");
        assert_eq!(read_bytes(&unfinished(&path).join("a")).unwrap(), b"whole", "what was made is not lost");
        let e = make_whole(&path, fill).unwrap_err();
        assert!(e.message.contains("folder.pcp-unfinished is in the way") && e.hint.contains("remove it"), "{e:?}");
        assert!(unfinished(&path).exists(), "not ours to remove");
    }

    #[test]
    fn csv_lines_come_apart_as_they_were_put_together() {
        let fields = ["plain", "a,b", "say \"x\"", "two\nlines", "", "ä"];
        let line = fields.map(csv_field).join(",");
        assert_eq!(csv_rows(&format!("{line}\nlast,1\r\nend")), [fields.to_vec(), vec!["last", "1"], vec!["end"]]);
        assert!(csv_rows("").is_empty());
    }

    #[test]
    fn records_are_what_all_rows_at_once_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        let text = "a,\"b,\n\"\"c\"\"\r\nd\",e\r\n1,,3\n\"\"\"\",\"x\ny\",\nä";
        write_bytes(&path, text.as_bytes()).unwrap();
        let mut reader = CsvReader::open(&path).unwrap();
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        while let Some(record) = reader.next().unwrap() {
            rows.push((0..record.len()).map(|i| record.get(i).to_string()).collect::<Vec<_>>());
            lines.push(record.line);
            assert!(!record.is_empty() && record.get(99).is_empty());
        }
        assert_eq!(rows, csv_rows(text));
        assert_eq!(lines, [1, 4, 5, 7]);
        write_bytes(&path, b"a,\"b\nc").unwrap();
        assert!(CsvReader::open(&path).unwrap().next().unwrap_err().message.contains("line 1: it ends within quotes"));
        write_bytes(&path, b"").unwrap();
        assert_eq!(CsvReader::open(&path).unwrap().next().unwrap(), None);
    }

    #[test]
    fn nothing_is_written_where_something_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("there");
        free(&path).unwrap();
        free_file(&path).unwrap();
        make_folder(&path).unwrap();
        free(&path).unwrap();
        assert!(free_file(&path).is_err());
        write_bytes(&path.join("a"), b"").unwrap();
        assert!(free(&path).unwrap_err().message.contains("there already"));
        assert!(free(&path.join("a")).is_err() && free_file(&path.join("a")).is_err());
        assert!(free(Path::new("/")).is_err());
        #[cfg(unix)]
        {
            link(Path::new("nowhere"), &path.join("l")).unwrap();
            assert!(free(&path.join("l")).is_err() && free_file(&path.join("l")).is_err());
        }
    }

    #[test]
    fn csv_fields_are_quoted_where_they_must() {
        assert_eq!(csv_field("a b"), "a b");
        assert_eq!(csv_field("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
