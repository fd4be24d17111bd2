//! Temporary files and folders: their names are unique, a lock tells whether their process still lives, and those of dead processes are
//! removed.

use crate::error::{Error, Result};
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The extension of files and folders that are being written; no other program uses it.
pub const UNFINISHED: &str = "pcp-unfinished";

/// Times that a temporary file or folder is made anew, where another process took it for litter before it was locked.
const ATTEMPTS: usize = 20;

/// A temporary file or folder of this process. Its lock is released when the process ends, however it ends.
pub(super) struct Unfinished {
    path: PathBuf,
    /// Holds the lock.
    _lock: Option<File>,
}

impl Unfinished {
    /// A new file beside `path`, open for writing.
    pub fn file(path: &Path) -> std::io::Result<(Unfinished, File)> {
        for _ in 0..ATTEMPTS {
            let temporary = temporary(path);
            let file = File::options().write(true).create_new(true).open(&temporary)?;
            // Another error: some file systems have no locks. Then nothing is taken for litter.
            let taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            if !taken && temporary.exists() {
                let lock = file.try_clone().ok();
                return Ok((Unfinished { path: temporary, _lock: lock }, file));
            }
            // Another process takes it for litter, or has removed it, or the system could not say: it must not stay.
            let _ = fs::remove_file(&temporary);
        }
        Err(std::io::Error::other("other processes remove its temporary file; wait until they end"))
    }

    /// A new folder beside `path`. Those of dead processes are removed; one of a process that lives is an error.
    pub fn folder(path: &Path) -> Result<Unfinished> {
        for _ in 0..ATTEMPTS {
            if let Some(other) = remove_litter(path) {
                return Err(in_use(path, &other));
            }
            let temporary = temporary(path);
            match fs::create_dir(&temporary) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                made => made.map_err(|e| Error::io("make the folder", &temporary, &e))?,
            }
            // Some systems do not open or lock folders: then nothing is taken for litter.
            let lock = File::open(&temporary).map(|folder| (folder.try_lock(), folder)).ok();
            let taken = matches!(lock, Some((Err(TryLockError::WouldBlock), _)));
            if !taken && temporary.is_dir() {
                return Ok(Unfinished { path: temporary, _lock: lock.map(|(_, folder)| folder) });
            }
            // As above.
            let _ = fs::remove_dir(&temporary);
        }
        Err(Error::file(
            format!("cannot make a temporary folder beside {}: other processes remove it", path.display()),
            "wait until they end, then run the command again",
        ))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it, as far as the cause of `error` allows; returns `error`.
    pub fn failed(&self, error: Error) -> Error {
        let _ = if self.path.is_dir() { fs::remove_dir_all(&self.path) } else { fs::remove_file(&self.path) };
        error
    }
}

/// `NAME.PROCESS-NUMBER.pcp-unfinished`.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}-{number}.{UNFINISHED}", std::process::id()));
    path.with_file_name(name)
}

/// Removes what dead processes left of their writing of `path`; returns a temporary file or folder of one that lives, if there is one.
pub fn remove_litter(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name()?.as_encoded_bytes();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of_path = entries.map(|entry| entry.path()).filter(|other| is_unfinished(other, name));
    of_path.filter(|other| !removed(other)).last()
}

/// Removes all temporary files in `folder` whose processes are dead.
pub fn remove_all_litter(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|e| e == UNFINISHED) {
            removed(&entry.path());
        }
    }
}

/// Whether `other` is a temporary file or folder for `name`; earlier versions had no number in theirs.
fn is_unfinished(other: &Path, name: &[u8]) -> bool {
    let rest = other.file_name().and_then(|other| other.as_encoded_bytes().strip_prefix(name));
    let Some(number) = rest.and_then(|rest| rest.strip_suffix(UNFINISHED.as_bytes())) else { return false };
    let is_number = |text: &[u8]| text.iter().all(|c| c.is_ascii_digit() || *c == b'-');
    number == b"." || matches!(number, [b'.', number @ .., b'.'] if is_number(number))
}

/// Removes a temporary file or folder, unless its process lives; returns whether it has gone.
fn removed(path: &Path) -> bool {
    let about = match path.symlink_metadata() {
        Ok(about) => about,
        Err(e) => return e.kind() == ErrorKind::NotFound,
    };
    // Nobody of us makes pipes, devices or links of such a name, and opening one may never end.
    if !about.is_file() && !about.is_dir() {
        return true;
    }
    let Ok(file) = File::open(path) else { return false };
    // The lock is held while it is removed, so that nobody begins to use it.
    match file.try_lock() {
        Ok(()) if about.is_dir() => fs::remove_dir_all(path).is_ok(),
        Ok(()) => fs::remove_file(path).is_ok(),
        Err(_) => false,
    }
}

/// The error for a `path` that another process is making, under the name `other`.
fn in_use(path: &Path, other: &Path) -> Error {
    let name = other.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let number = name.trim_end_matches(UNFINISHED).trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    match number.split('-').next().filter(|process| !process.is_empty() && process.bytes().all(|c| c.is_ascii_digit()))
    {
        Some(process) => Error::usage(
            format!("{} is being made by process {process}", path.display()),
            format!(
                "wait until it ends, or stop it (kill {process}), or give another `out`; if there is no such process, remove {}",
                other.display()
            ),
        ),
        None => Error::usage(
            format!("{} exists", other.display()),
            "a command that was killed leaves such a folder: remove it, then run the command again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn litter_is_known_by_its_name() {
        for (other, is) in [
            ("a.npy.12-0.pcp-unfinished", true),
            ("a.npy.pcp-unfinished", true),
            ("a.npy", false),
            ("a.npy.b.pcp-unfinished", false),
            ("aa.npy.12-0.pcp-unfinished", false),
            ("a.npy.files.csv.12-0.pcp-unfinished", false),
        ] {
            assert_eq!(is_unfinished(Path::new(other), b"a.npy"), is, "{other}");
        }
        let (one, two) = (temporary(Path::new("x/a")), temporary(Path::new("x/a")));
        assert!(one != two && is_unfinished(&one, b"a") && one.parent() == Some(Path::new("x")));
    }

    /// Others look for litter all the time: what is made is there until it is dropped.
    #[test]
    fn a_new_file_is_never_taken_for_litter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        remove_litter(&path);
                    }
                });
            }
            for round in 0..500 {
                let (file, _) = Unfinished::file(&path).unwrap();
                std::thread::yield_now();
                assert!(file.path().exists(), "round {round}");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn of_the_dead_it_is_removed_of_the_living_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        // Of a process that was killed: nobody holds its lock.
        fs::create_dir(dir.path().join("out.1-0.pcp-unfinished")).unwrap();
        fs::write(dir.path().join("out.1-0.pcp-unfinished/a"), "half").unwrap();
        fs::write(dir.path().join("out.2-7.pcp-unfinished"), "half").unwrap();
        fs::write(dir.path().join("other.2-7.pcp-unfinished"), "half").unwrap();
        assert_eq!(remove_litter(&path), None);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["other.2-7.pcp-unfinished"], "other names are left alone");
        let living = Unfinished::folder(&path).unwrap();
        let e = Unfinished::folder(&path).map(|_| ()).unwrap_err();
        assert!(e.message.contains(&format!("by process {}", std::process::id())), "{e:?}");
        assert!(living.path().is_dir());
        let (file, _) = Unfinished::file(&dir.path().join("f")).unwrap();
        assert_eq!(remove_litter(&dir.path().join("f")).as_deref(), Some(file.path()));
        remove_all_litter(dir.path());
        assert!(file.path().exists() && living.path().exists(), "their process lives");
        drop((living, file));
        remove_all_litter(dir.path());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
