//! Files and folders that are whole or not there: made beside their place, then renamed into it.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Ending of files and folders that are being written.
pub const UNFINISHED: &str = "tmp";

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

/// Makes the folder `path`, which is empty or not there, with what `fill` puts into the folder it is given. A failure leaves
/// nothing; a crash at worst the unfinished folder beside it, which is never touched again, since it might be someone's own.
pub fn make_whole(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let unfinished = unfinished(path);
    path.parent().map_or(Ok(()), make_folder)?;
    fs::create_dir(&unfinished).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => Error::file(
            format!("{} is in the way", unfinished.display()),
            "a command that was killed leaves such a folder: remove it, then run the command again",
        ),
        _ => Error::io("make the folder", &unfinished, &e),
    })?;
    let outcome = fill(&unfinished).and_then(|()| rename(&unfinished, path).map_err(|e| Error::io("make", path, &e)));
    if outcome.is_err() {
        // Best effort: what made the folder fail may make this fail, too.
        let _ = fs::remove_dir_all(&unfinished);
    }
    outcome
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
        assert!(make_whole(&path, fill).unwrap_err().message.contains("folder"), "it holds something");
        assert!(!unfinished(&path).exists());
        fs::create_dir(unfinished(&path)).unwrap();
        let e = make_whole(&path, fill).unwrap_err();
        assert!(e.message.contains("folder.tmp is in the way") && e.hint.contains("remove it"), "{e:?}");
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
    fn csv_fields_are_quoted_where_they_must() {
        assert_eq!(csv_field("a b"), "a b");
        assert_eq!(csv_field("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
