//! Atomic writes: a file or folder is made under another name, then renamed, so that it is complete or absent.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The extension of files and folders that are being written; no other program uses it.
pub const UNFINISHED: &str = "pcp-unfinished";

/// Writes the file `path`, whose contents `fill` writes. A crash at any moment leaves the old file or the new one, never a part.
pub fn write_atomic(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let unfinished = unfinished(path);
    let outcome = fill_and_rename(path, &unfinished, fill);
    outcome.map_err(|e| {
        // Best effort: a leftover is also removed when the run is resumed.
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

/// Makes the folder `path`, which must be empty or absent. `fill` writes its contents into a temporary folder beside it, which
/// is then renamed. An error of `fill` leaves nothing; a crash may leave the temporary folder, which is never removed
/// automatically, since it could belong to somebody else.
pub fn make_folder_atomic(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let unfinished = unfinished(path);
    make_parent(path)?;
    fs::create_dir(&unfinished).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => Error::file(
            format!("{} exists", unfinished.display()),
            "a command that was killed leaves such a folder: remove it, then run the command again",
        ),
        _ => Error::io("make the folder", &unfinished, &e),
    })?;
    if let Err(e) = fill(&unfinished) {
        // Best effort: the cause of the error may also prevent this.
        let _ = fs::remove_dir_all(&unfinished);
        return Err(e);
    }
    rename(&unfinished, path).map_err(|e| {
        let message = format!("cannot make {}: {e}", path.display());
        Error::file(
            message,
            format!("all files are complete in {}: move that folder where you want it", unfinished.display()),
        )
    })
}

/// An error unless the folder `out` is new or empty.
pub fn require_empty(out: &Path) -> Result<()> {
    if out.file_name().is_none() {
        return Err(Error::usage(
            format!("'{}' cannot be the name of a new folder", out.display()),
            "give `out` the name of a folder to make",
        ));
    }
    let taken = match fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_some(),
        // A broken link counts, too.
        Err(e) if e.kind() == ErrorKind::NotFound => out.symlink_metadata().is_ok(),
        Err(e) if e.kind() == ErrorKind::NotADirectory => true,
        Err(e) => return Err(Error::io("list", out, &e)),
    };
    match taken {
        true => Err(Error::usage(
            format!("{} is there already", out.display()),
            "give `out` a folder that is new or empty, or remove this one first",
        )),
        false => Ok(()),
    }
}

/// An error if there is a file or folder at `out`.
pub fn require_absent(out: &Path) -> Result<()> {
    if out.file_name().is_none() || out.symlink_metadata().is_ok() {
        return Err(Error::usage(
            format!("{} is there already", out.display()),
            "give `out` the name of a new file, or remove this one first",
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
        format!("cannot make the link {}: symbolic links are not supported on this system", path.display()),
        "run it on Linux or macOS, or copy the images instead",
    ))
}

/// The temporary name of `path` while it is being written.
pub fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{UNFINISHED}"));
    path.with_file_name(name)
}

/// Writes a file atomically.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomic(path, |w| w.write_all(bytes))
}

/// Reads a whole file.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| Error::io("read", path, &e))
}

/// Makes a folder and its parents.
pub fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|e| Error::io("make the folder", path, &e))
}

/// Makes the parent folder of `path`.
pub fn make_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), make_folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write_bytes(&path, b"old").unwrap();
        let failed = write_atomic(&path, |w| {
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
    fn a_folder_is_complete_or_absent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/folder");
        let failed = make_folder_atomic(&path, |inside| {
            write_bytes(&inside.join("a"), b"half")?;
            Err(Error::stopped())
        });
        assert_eq!(failed.unwrap_err().exit_code(), 130);
        assert!(!path.exists() && !unfinished(&path).exists());
        make_folder(&path).unwrap();
        let fill = |inside: &Path| write_bytes(&inside.join("a"), b"whole");
        make_folder_atomic(&path, fill).unwrap();
        assert_eq!(read_bytes(&path.join("a")).unwrap(), b"whole");
        assert!(!unfinished(&path).exists());
        let e = make_folder_atomic(&path, fill).unwrap_err();
        assert!(e.message.contains("folder") && e.hint.contains("folder.pcp-unfinished"), "it is not empty: {e:?}");
        assert_eq!(read_bytes(&unfinished(&path).join("a")).unwrap(), b"whole", "the new files are not lost");
        let e = make_folder_atomic(&path, fill).unwrap_err();
        assert!(e.message.contains("folder.pcp-unfinished exists") && e.hint.contains("remove it"), "{e:?}");
        assert!(unfinished(&path).exists(), "it could be somebody else's");
    }

    #[test]
    fn existing_files_and_folders_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("there");
        require_empty(&path).unwrap();
        require_absent(&path).unwrap();
        make_folder(&path).unwrap();
        require_empty(&path).unwrap();
        assert!(require_absent(&path).is_err());
        write_bytes(&path.join("a"), b"").unwrap();
        assert!(require_empty(&path).unwrap_err().message.contains("there already"));
        assert!(require_empty(&path.join("a")).is_err() && require_absent(&path.join("a")).is_err());
        assert!(require_empty(Path::new("/")).is_err());
        #[cfg(unix)]
        {
            link(Path::new("nowhere"), &path.join("l")).unwrap();
            assert!(require_empty(&path.join("l")).is_err() && require_absent(&path.join("l")).is_err());
        }
    }
}
