//! Faults around a run: their messages, and that nothing is lost. `docs/faults.md` has the table.

#![allow(unsafe_code)]

use crate::common::*;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

#[test]
fn a_second_process_is_refused_with_the_first_ones_number() {
    let (_dir, out) = place("run");
    let long = small(&out, &["--quiet", "--no-report", "--epochs", "400"]);
    let mut first = start(&words(&long));
    assert!(wait_for(&mut first, || out.join("metrics.jsonl").exists()));
    let who = format!("in use by process {}", first.id());
    let resume = ["train", "--resume", out.to_str().unwrap(), "--quiet"];
    let said = fail(2, &resume);
    assert!(said.contains(&who) && said.contains("kill"), "{said}");
    // Overwriting would destroy the files of the first process.
    let said = fail(2, &words(&small(&out, &["--quiet", "--no-report", "--overwrite"])));
    assert!(said.contains(&who), "{said}");
    assert!(out.join("config.toml").exists(), "and nothing was removed");
    // When the process has ended, the folder is no longer locked.
    first.kill().unwrap();
    first.wait().unwrap();
    let mut second = start(&resume);
    let lines = || fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default().lines().count();
    let before = lines();
    assert!(wait_for(&mut second, || lines() > before));
    second.kill().unwrap();
    second.wait().unwrap();
}

#[test]
fn a_request_to_end_is_an_interrupt() {
    let (_dir, out) = place("terminated");
    let mut child = start(&words(&small(&out, &["--quiet", "--no-report"])));
    assert!(wait_for(&mut child, || out.join("metrics.jsonl").exists()));
    signal(&child, libc::SIGTERM);
    let (code, said) = text(child);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("everything is saved") && said.contains("pcp train --resume"), "{said}");
    succeed(&["train", "--resume", out.to_str().unwrap(), "--quiet", "--no-report"]);
    assert_same(&reference().bits, &bits(&out));
}

/// Runs the program with a limit of `bytes` on the size of files, which acts like a full disk.
fn with_a_full_disk(args: &[&str], bytes: u64) -> (Option<i32>, String) {
    let mut command = pcp(args);
    let limit = move || {
        let most = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: both calls take plain values, allocate nothing, and are allowed between fork and exec. The signal is
        // ignored, so that the write fails as on a full disk instead of ending the process.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            if libc::setrlimit(libc::RLIMIT_FSIZE, &most) != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure does only what may be done between fork and exec (see above).
    let child = unsafe { command.pre_exec(limit) }.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    text(child)
}

#[test]
fn a_full_disk_is_named_and_the_run_continues_when_there_is_space() {
    let (_dir, out) = place("full");
    let args = small(&out, &["--quiet", "--no-report"]);
    // The first checkpoint does not fit.
    let (code, said) = with_a_full_disk(&words(&args), 100_000);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("error: cannot write") && said.contains("checkpoints"), "{said}");
    assert!(said.contains("hint: ") && !said.contains("panicked"), "{said}");
    let resume = ["train", "--resume", out.to_str().unwrap(), "--quiet", "--no-report"];
    // Still no space: the same error, and no further damage.
    let (code, said) = with_a_full_disk(&resume, 100_000);
    assert_eq!(code, Some(1), "{said}");
    assert!(checkpoints(&out).is_empty() && fs::read_dir(out.join("checkpoints")).unwrap().count() == 0, "{said}");
    // Space for some time, then none for the next checkpoint.
    let mut child = start(&resume);
    assert!(wait_for(&mut child, || checkpoints(&out).len() == 2 && out.join("metrics.jsonl").exists()));
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = checkpoints(&out);
    assert_eq!(with_a_full_disk(&resume, 100_000).0, Some(1));
    assert_eq!(checkpoints(&out), kept, "what was there is still there");
    succeed(&resume);
    assert_same(&reference().bits, &bits(&out));
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    // Not even root can make folders there.
    let said =
        fail(1, &["train", "--out", "/proc/pcp-run", "--limit", "20", "--epochs", "1", "--width", "4", "--quiet"]);
    assert!(said.contains("/proc/pcp-run"), "{said}");
}

#[test]
fn a_folder_that_is_removed_while_it_is_written_to_ends_the_run() {
    let (dir, out) = place("removed");
    let mut child = start(&words(&small(&out, &["--quiet", "--no-report", "--epochs", "400"])));
    assert!(wait_for(&mut child, || out.join("metrics.jsonl").exists()));
    fs::rename(&out, dir.path().join("elsewhere")).unwrap();
    let (code, said) = text(child);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("error: cannot") && said.contains("removed"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    // The moved folder is complete and can be resumed.
    let elsewhere = dir.path().join("elsewhere");
    let mut child = start(&["train", "--resume", elsewhere.to_str().unwrap(), "--quiet", "--no-report"]);
    let lines = || fs::read_to_string(elsewhere.join("metrics.jsonl")).unwrap_or_default().lines().count();
    let before = lines();
    assert!(wait_for(&mut child, || lines() > before));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_clock_that_was_set_back_does_no_harm() {
    let (_dir, out) = place("clock");
    let mut child = start(&words(&small(&out, &["--quiet", "--no-report"])));
    assert!(wait_for(&mut child, || checkpoints(&out).len() == 2 && out.join("metrics.jsonl").exists()));
    child.kill().unwrap();
    child.wait().unwrap();
    // The newest checkpoint has the oldest time, and all other files are in the future.
    let far = SystemTime::now() + Duration::from_secs(10 * 365 * 86_400);
    let set = |path: &Path, time| fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
    for (path, time) in checkpoints(&out).iter().rev().zip([SystemTime::UNIX_EPOCH + Duration::from_secs(1), far]) {
        set(path, time);
    }
    set(&out.join("config.toml"), far);
    set(&out.join("metrics.jsonl"), far);
    succeed(&["train", "--resume", out.to_str().unwrap(), "--quiet", "--no-report"]);
    assert_same(&reference().bits, &bits(&out));
}

/// Steps of the events that a run wrote for TensorBoard.
fn steps(run: &Path) -> Vec<u64> {
    let bytes = fs::read(run.join("tensorboard/events.out.tfevents.0.pcp")).unwrap();
    let (mut at, mut steps) = (0, Vec::new());
    while at < bytes.len() {
        let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let event = &bytes[at + 12..at + 12 + length];
        // Nine bytes of time, the key of the step, the step.
        assert_eq!((event[0], event[9]), (0x09, 0x10));
        steps.push(u64::from(event[10]));
        at += length + 16;
    }
    steps
}

#[test]
fn tensorboard_has_every_epoch_once_whatever_happened() {
    let (_dir, out) = place("events");
    let mut child = start(&words(&small(&out, &["--quiet", "--no-report"])));
    for _ in 0..3 {
        let before = checkpoints(&out);
        if !wait_for(&mut child, || checkpoints(&out) != before && out.join("metrics.jsonl").exists()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(30));
        child.kill().unwrap();
        child.wait().unwrap();
        child = start(&["train", "--resume", out.to_str().unwrap(), "--quiet", "--no-report"]);
    }
    child.wait().unwrap();
    assert_eq!(steps(&out), (0..=16).collect::<Vec<u64>>());
}
