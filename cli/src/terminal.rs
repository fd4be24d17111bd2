//! Writing to the terminal: no failure of it ends a run, and no name in a message controls it.

use pcp_core::error::{Error, Result};
use pcp_core::io::names::visible;
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;

/// Prints a line to the standard error. A terminal that was closed, a reader that has gone or a full disk is no reason to stop.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{}", visible(line));
}

/// Asks for an answer on the same line.
#[cfg(feature = "fetch")]
pub fn ask(question: &str) {
    let _ = write!(io::stderr(), "{}", visible(question));
}

/// Prints to standard output. A reader that has gone (`pcp ... | head`) and a terminal that was closed are no failure; a full disk is.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{}", visible(text)).and_then(|()| out.flush()) {
        Err(e) if !has_gone(&e) => Err(Error::io("write to", Path::new("the standard output"), &e)),
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    print(&serde_json::to_string(value).map_err(|e| Error::file(e.to_string(), "please report this"))?)
}

/// Whether the reader of the standard output has gone.
fn has_gone(e: &io::Error) -> bool {
    // What a closed terminal answers (EIO). A file's disk answers the same when it is broken.
    const INPUT_OUTPUT: i32 = 5;
    e.kind() == io::ErrorKind::BrokenPipe || cfg!(unix) && e.raw_os_error() == Some(INPUT_OUTPUT) && !is_file()
}

/// Whether the standard output is a file.
#[cfg(unix)]
fn is_file() -> bool {
    use std::os::fd::AsFd;
    let copy = io::stdout().as_fd().try_clone_to_owned();
    copy.and_then(|fd| std::fs::File::from(fd).metadata()).is_ok_and(|about| about.is_file())
}

#[cfg(not(unix))]
fn is_file() -> bool {
    true
}
