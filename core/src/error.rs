//! The error type: its kind, a message, a hint what to do, and the error that caused it.
//!
//! Messages and hints name settings in backticks (`` `train.lr` ``, `` `skip_bad_rows` ``); the program shows them as flags.

use std::fmt::{self, Display};
use std::path::Path;
use std::sync::Arc;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an error; the exit code depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command, an option or a config value is wrong.
    Usage,
    /// The data cannot be read or cannot be used.
    Data,
    /// A file cannot be read or written.
    File,
    /// Training cannot continue.
    Training,
    /// The user asked to stop; everything is saved.
    Stopped,
}

/// An error with its remedy. The program shows it as one `error:` line and one `hint:` line.
#[derive(Clone, Debug)]
pub struct Error {
    /// Its kind.
    pub kind: Kind,
    /// What went wrong, with the name of the file, setting or row.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// The error that caused it, where there is one.
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl Error {
    fn new(kind: Kind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Error { kind, message: message.into(), hint: hint.into(), source: None }
    }

    /// A wrong command, option or config value.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message, hint)
    }

    /// Data that cannot be used.
    pub fn data(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Kind::Data, message, hint)
    }

    /// A file with unexpected contents.
    pub fn file(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Kind::File, message, hint)
    }

    /// Training cannot continue.
    pub fn training(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Kind::Training, message, hint)
    }

    /// The user requested a stop.
    pub fn stopped() -> Self {
        Self::new(Kind::Stopped, "stopped", "run the command again")
    }

    /// A failed system call on `path`; `doing` completes "cannot ...", as in "cannot read".
    pub fn io(doing: &str, path: &Path, source: &std::io::Error) -> Self {
        use std::io::ErrorKind::*;
        let hint = match source.kind() {
            NotFound => "check the path: the file or its folder may have been moved or removed",
            PermissionDenied | ReadOnlyFilesystem => "check the permissions of the file and its folder",
            StorageFull | QuotaExceeded | FileTooLarge => "free some disk space, then continue with `resume`",
            _ => "check the file and the disk it is on",
        };
        let copy = match source.raw_os_error() {
            Some(code) => std::io::Error::from_raw_os_error(code),
            None => std::io::Error::new(source.kind(), source.to_string()),
        };
        Self::new(Kind::File, format!("cannot {doing} {}: {source}", path.display()), hint).with_source(copy)
    }

    /// Adds `source` as the cause.
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Error { source: Some(Arc::new(source)), ..self }
    }

    /// Whether the operating system reported it: a file that could not be read may be whole.
    pub fn is_of_system(&self) -> bool {
        let source = self.source.as_ref().and_then(|source| source.downcast_ref::<std::io::Error>());
        source.is_some_and(|e| e.raw_os_error().is_some())
    }

    /// Puts `path` in front of the message.
    pub fn at(self, path: &Path) -> Self {
        Error { message: format!("{}: {}", path.display(), self.message), ..self }
    }

    /// The process exit code: 2 for wrong use, 130 for a stop, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Usage => 2,
            Kind::Stopped => 130,
            _ => 1,
        }
    }
}

/// The candidate most similar to `word`, for hints in error messages; `None` when none is similar.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|c| (edit_distance(word, c), c))
        .filter(|(d, c)| *d <= (word.len().max(c.len()) / 2).max(1))
        .min()
        .map(|(_, c)| c)
}

/// Levenshtein distance in characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// A list for people: `a, b, c`.
pub fn listed<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|i| i.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(edit_distance("gama", "gamma"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn errors_give_their_source() {
        use std::error::Error as _;
        let missing = std::fs::File::open("/no/such/file").unwrap_err();
        let e = Error::io("read", Path::new("/no/such/file"), &missing).at(Path::new("a"));
        let source = e.source().and_then(|s| s.downcast_ref::<std::io::Error>()).unwrap();
        assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
        assert_eq!(source.raw_os_error(), missing.raw_os_error());
        let other = Error::io("write", Path::new("b"), &std::io::ErrorKind::WriteZero.into());
        assert!(other.source().unwrap().downcast_ref::<std::io::Error>().is_some());
        assert!(Error::stopped().source().is_none());
    }

    #[test]
    fn nearest_finds_similar_words_only() {
        assert_eq!(nearest("gama", ["gamma", "alpha"]), Some("gamma"));
        assert_eq!(nearest("zzzzzz", ["gamma", "alpha"]), None);
    }
}
