//! Dead terminals and readers: no write to them ends a run, and closing the terminal saves it.

#![allow(unsafe_code)]

use crate::common::*;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

/// A terminal: the end of the person before it, and that of the program.
fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut person, mut program) = (0, 0);
    let null = std::ptr::null_mut();
    // SAFETY: both numbers are written by the call; names and settings are not asked for.
    assert_eq!(unsafe { libc::openpty(&mut person, &mut program, null, null.cast(), null.cast()) }, 0);
    // SAFETY: the call has just opened both, and nobody else has them. Closed in children, as everything else that Rust opens.
    unsafe {
        libc::fcntl(person, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(program, libc::F_SETFD, libc::FD_CLOEXEC);
        (OwnedFd::from_raw_fd(person), OwnedFd::from_raw_fd(program))
    }
}

/// Starts the program in a session of its own whose terminal is `terminal`.
fn start_in(terminal: &OwnedFd, args: &[&str]) -> Child {
    let mut command = pcp(args);
    let end = || Stdio::from(terminal.try_clone().unwrap());
    command.stdout(end()).stderr(end());
    let own_session = || {
        // SAFETY: both calls take plain values and may be made between fork and exec; the standard error is the terminal.
        match unsafe { libc::setsid() == -1 || libc::ioctl(2, libc::TIOCSCTTY, 0) == -1 } {
            true => Err(std::io::Error::last_os_error()),
            false => Ok(()),
        }
    };
    // SAFETY: the closure does only what may be done between fork and exec.
    unsafe { command.pre_exec(own_session) }.spawn().unwrap()
}

#[test]
fn a_reader_that_goes_or_a_full_disk_behind_the_messages_ends_no_run() {
    let (dir, _) = place("");
    // As `2>&1 | head -1`: the reader goes after the first bytes. `2>/dev/full`: every write fails.
    for (name, full) in [("pipe", false), ("full", true)] {
        let out = dir.path().join(name);
        let args = small(&out, &["--no-report"]);
        let mut command = pcp(&words(&args));
        let stderr = match full {
            true => Stdio::from(File::options().write(true).open("/dev/full").unwrap()),
            false => Stdio::piped(),
        };
        let mut child = command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{name}");
        assert_same(&reference().bits, &bits(&out));
    }
}

#[test]
fn a_closed_terminal_saves_the_run_and_it_goes_on_with_the_same_bits() {
    let (_dir, out) = place("run");
    let (person, program) = terminal();
    let mut child = start_in(&program, &words(&small(&out, &["--no-report"])));
    drop(program);
    // The person reads what is shown, as a terminal does, so that the program does not wait.
    let mut shown = File::from(person.try_clone().unwrap());
    let reading = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while std::io::Read::read(&mut shown, &mut bytes).is_ok_and(|n| n > 0) {}
    });
    assert!(wait_for(&mut child, || out.join("metrics.jsonl").exists()));
    let null = File::open("/dev/null").unwrap();
    // SAFETY: dup2 takes two numbers: the terminal's end becomes another file, which closes it although the thread still reads it.
    assert!(unsafe { libc::dup2(null.as_raw_fd(), person.as_raw_fd()) } >= 0);
    signal(&child, libc::SIGHUP);
    std::thread::sleep(Duration::from_millis(20));
    // A shell sends it, too.
    if child.try_wait().unwrap().is_none() {
        signal(&child, libc::SIGHUP);
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(person);
    let _ = reading.join();
    assert!(!checkpoints(&out).is_empty());
    succeed(&["train", "--resume", out.to_str().unwrap(), "--quiet", "--no-report"]);
    assert_same(&reference().bits, &bits(&out));
}

#[test]
fn a_terminal_that_is_closed_without_a_signal_ends_nothing() {
    let (_dir, out) = place("run");
    let (person, program) = terminal();
    let args = small(&out, &["--no-report"]);
    let end = || Stdio::from(program.try_clone().unwrap());
    let mut child = pcp(&words(&args)).stdout(end()).stderr(end()).spawn().unwrap();
    drop((program, person));
    // Every write answers EIO now, those of the progress bars and of the result alike.
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_same(&reference().bits, &bits(&out));
    assert!(fs::read_to_string(out.join("train.log")).unwrap().contains("epoch"));
}

/// As by `nohup`: who starts the program with SIGHUP ignored wants it to go on.
#[test]
fn a_hangup_that_was_ignored_from_the_start_ends_nothing() {
    let (_dir, out) = place("run");
    let mut command = pcp(&words(&small(&out, &["--no-report", "--quiet"])));
    // SAFETY: `signal` may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    assert!(wait_for(&mut child, || out.join("metrics.jsonl").exists()));
    signal(&child, libc::SIGHUP);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_same(&reference().bits, &bits(&out));
}
