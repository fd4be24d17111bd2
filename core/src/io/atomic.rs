//! Atomic writes: a file or folder is made under another name, then renamed, so that it is complete or absent.

mod litter;

pub use litter::{UNFINISHED, remove_all_litter, remove_litter};

use crate::error::{Error, Result};
use crate::memory;
use litter::Unfinished;
use rayon::prelude::*;
use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Writes the file `path`, whose contents `fill` writes. A crash at any moment leaves the old file or the new one, never a part.
pub fn write_atomic(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let unfinished = filled(path, fill)?;
    let done = fs::rename(unfinished.path(), path).and_then(|()| sync_parent(path));
    done.map_err(|e| unfinished.failed(Error::io("write", path, &e)))
}

/// As [`write_atomic`], for a file that must not be there yet: where another process makes it meanwhile, that one's stays, and this is an
/// error. What processes that were killed left beside it is removed.
pub fn write_new(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    NewFile::filled(path, fill)?.publish()
}

/// A new file whose contents are on the disk, but that does not have its name yet: what belongs to it can be written first. Dropping it
/// removes it.
pub struct NewFile {
    path: PathBuf,
    unfinished: Unfinished,
}

impl NewFile {
    /// The file `path` with what `fill` writes.
    pub fn filled(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<NewFile> {
        remove_litter(path);
        Ok(NewFile { path: path.to_path_buf(), unfinished: filled(path, fill)? })
    }

    /// Where its contents are until it is published.
    pub fn contents(&self) -> &Path {
        self.unfinished.path()
    }

    /// Gives it its name; an error where another process has made a file of that name meanwhile.
    pub fn publish(self) -> Result<()> {
        publish(self.contents(), &self.path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => taken_meanwhile(&self.path),
            _ => Error::io("write", &self.path, &e),
        })
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Once it is published, there is nothing of this name.
        let _ = fs::remove_file(self.contents());
    }
}

/// Gives the file `unfinished` the name `path`, unless there is one of that name.
fn publish(unfinished: &Path, path: &Path) -> std::io::Result<()> {
    match fs::hard_link(unfinished, path) {
        Ok(()) => fs::remove_file(unfinished)?,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => return Err(e),
        // Some file systems have no links.
        Err(_) if path.symlink_metadata().is_err() => fs::rename(unfinished, path)?,
        Err(_) => return Err(ErrorKind::AlreadyExists.into()),
    }
    sync_parent(path)
}

fn taken_meanwhile(path: &Path) -> Error {
    Error::usage(
        format!("another process made {} meanwhile", path.display()),
        "what that one wrote is there; give another `out`, or remove it first",
    )
}

/// A temporary file beside `path` with what `fill` writes, on the disk.
fn filled(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<Unfinished> {
    let (unfinished, file) = Unfinished::file(path).map_err(|e| Error::io("write", path, &e))?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    let done = fill(&mut writer).and_then(|()| {
        let file = writer.into_inner().map_err(|e| e.into_error())?;
        file.sync_all()
    });
    match done {
        Ok(()) => Ok(unfinished),
        Err(e) => Err(unfinished.failed(Error::io("write", path, &e))),
    }
}

/// Makes a name in the folder of `path` survive a loss of power.
pub fn sync_parent(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => sync_folder(folder),
        _ => sync_folder(Path::new(".")),
    }
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Other systems do not open folders; renaming is as durable as their file system makes it.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> std::io::Result<()> {
    Ok(())
}

/// Makes the folder `path`, which must be empty or absent. `fill` writes its contents into a temporary folder beside it, which
/// is then renamed. An error leaves nothing. A crash leaves the temporary folder, which the next process that makes `path` removes; while
/// a process is still filling one, others are refused.
pub fn make_folder_atomic(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    make_parent(path)?;
    let unfinished = Unfinished::folder(path)?;
    if let Err(e) = fill(unfinished.path()) {
        return Err(unfinished.failed(e));
    }
    let done = sync_all(unfinished.path()).and_then(|()| fs::rename(unfinished.path(), path));
    match done.and_then(|()| sync_parent(path)) {
        Ok(()) => Ok(()),
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists | ErrorKind::NotADirectory
            ) =>
        {
            Err(unfinished.failed(taken_meanwhile(path)))
        }
        Err(e) => Err(unfinished.failed(Error::io("make the folder", path, &e))),
    }
}

/// Brings everything below `folder` to the disk: renaming it must not survive a loss of power that its contents do not.
fn sync_all(folder: &Path) -> std::io::Result<()> {
    let entries: Vec<(PathBuf, fs::FileType)> = fs::read_dir(folder)?
        .map(|entry| entry.and_then(|e| Ok((e.path(), e.file_type()?))))
        .collect::<std::io::Result<_>>()?;
    entries.par_iter().try_for_each(|(path, kind)| match kind {
        kind if kind.is_dir() => sync_all(path),
        kind if kind.is_file() => File::open(path)?.sync_all(),
        _ => Ok(()),
    })?;
    sync_folder(folder)
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

/// An error if there is a file or folder at `out`. What processes that were killed left of their writing of it is removed.
pub fn require_absent(out: &Path) -> Result<()> {
    remove_litter(out);
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

/// Writes a file atomically.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomic(path, |w| w.write_all(bytes))
}

/// Whether there is something of this name; an error where the system cannot say. ([`Path::exists`] takes a disk that fails for an absence.)
pub fn is_there(path: &Path) -> Result<bool> {
    Ok(about(path)?.is_some())
}

/// Whether there is a file of this name; an error where the system cannot say.
pub fn has_file(path: &Path) -> Result<bool> {
    Ok(about(path)?.is_some_and(|about| about.is_file()))
}

fn about(path: &Path) -> Result<Option<fs::Metadata>> {
    match path.metadata() {
        Ok(about) => Ok(Some(about)),
        Err(e) if is_absence(&e) => Ok(None),
        Err(e) => Err(Error::io("read", path, &e)),
    }
}

/// What is in a folder, in the order of names; nothing where there is no such folder.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = match paths {
        Err(e) if is_absence(&e) => return Ok(Vec::new()),
        paths => paths.map_err(|e| Error::io("read", folder, &e))?,
    };
    paths.sort();
    Ok(paths)
}

fn is_absence(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename)
}

/// Adds `bytes` to the end of the file `path`, which is made if it is not there; they are on the disk when this returns. A crash may leave a
/// part of them.
pub fn append(path: &Path, bytes: &[u8]) -> Result<()> {
    let add = || {
        let new = !path.exists();
        let mut file = File::options().create(true).append(true).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        if new { sync_parent(path) } else { Ok(()) }
    };
    add().map_err(|e| Error::io("write", path, &e))
}

/// Reads a whole file, if it fits into the memory that is free. Errors that may pass are tried again.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let about = fs::metadata(path);
    // A pipe or a device has no size, and perhaps no end.
    if about.as_ref().is_ok_and(|about| !about.is_file() && !about.is_dir()) {
        return read_stream(path);
    }
    if let Ok(size) = about.map(|about| about.len()) {
        let hint = "free some memory, allow more (`ulimit -v`), or use a smaller file";
        memory::require(size, &format!("reading {}", path.display()), hint)?;
    }
    retried(|| fs::read(path)).map_err(|e| Error::io("read", path, &e))
}

/// The longest stream that is read.
const LONGEST_STREAM: u64 = 1 << 30;

/// Reads a file that is no regular one to its end.
fn read_stream(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut read = || fs::File::open(path)?.take(LONGEST_STREAM + 1).read_to_end(&mut bytes);
    read().map_err(|e| Error::io("read", path, &e))?;
    if bytes.len() as u64 > LONGEST_STREAM {
        let message = format!("{} is no file and does not end within a gigabyte", path.display());
        return Err(Error::file(message, "give a file"));
    }
    Ok(bytes)
}

/// The result of `read`, which is tried three times where its error may pass: too many open files, no memory, a broken connection to
/// the disk.
pub fn retried<T>(read: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    // EIO, EAGAIN, ENOMEM, ENFILE, EMFILE.
    const PASSING: [i32; 5] = [5, 11, 12, 23, 24];
    let passes = |e: &std::io::Error| cfg!(unix) && e.raw_os_error().is_some_and(|code| PASSING.contains(&code));
    for pause in [50, 300] {
        match read() {
            Err(e) if passes(&e) => std::thread::sleep(Duration::from_millis(pause)),
            done => return done,
        }
    }
    read()
}

/// Makes a folder and its parents, on the disk.
pub fn make_folder(path: &Path) -> Result<()> {
    let make = || {
        let new: Vec<&Path> =
            path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
        fs::create_dir_all(path)?;
        new.into_iter().try_for_each(sync_parent)
    };
    make().map_err(|e| Error::io("make the folder", path, &e))
}

/// Makes a folder for files that are replaced one by one; what killed processes left of theirs in it is removed.
pub fn make_tidy_folder(path: &Path) -> Result<()> {
    make_folder(path)?;
    remove_all_litter(path);
    Ok(())
}

/// Makes the parent folder of `path`.
pub fn make_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), make_folder)
}

#[cfg(test)]
mod tests;
