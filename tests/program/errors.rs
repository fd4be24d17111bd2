//! Every error of every system call, once: a command that meets one succeeds or ends with a clear error, and then goes on to the same bits. A
//! few are tried in every test run, all of them (hours) by
//! `PCP_SYSTEM_ERRORS=all cargo test --release -p pcp-cli --test program errors -- --nocapture`, and N of each command by a number. It
//! needs `strace`.

#![allow(clippy::print_stdout)]

use crate::common::*;
use crate::disk::have_strace;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Calls on files and folders.
const CALLS: &str =
    "openat,read,write,lseek,fsync,rename,unlink,unlinkat,mkdir,rmdir,link,linkat,statx,getdents64,flock,ftruncate";
const ERRORS: [&str; 7] = ["ENOSPC", "EIO", "EINTR", "EMFILE", "EACCES", "EAGAIN", "ENOMEM"];

/// Runs the program under `strace` with more options; returns what it said and the calls.
fn traced(options: &[&str], args: &[&str]) -> (Output, String) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-e", &format!("trace={CALLS}")]).args(options).arg("-o").arg(log.path());
    let output = command.arg(env!("CARGO_BIN_EXE_pcp")).args(args).stdin(Stdio::null()).output().unwrap();
    (output, std::fs::read_to_string(log.path()).unwrap_or_default())
}

/// How often the busiest thread makes each call.
fn counts(log: &str) -> BTreeMap<String, usize> {
    let mut all: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for line in log.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        if let Some((call, _)) =
            rest.trim_start().split_once('(').filter(|(call, _)| CALLS.split(',').any(|c| c == *call))
        {
            *all.entry((call.to_string(), thread)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((call, _), n) in all {
        let of = most.entry(call).or_insert(0);
        *of = n.max(*of);
    }
    most
}

/// Tries errors at calls of a command: `usual` of them, or as many as the environment says. `args` are its arguments for outputs in a folder,
/// `again` those to give after an error (`None` when there is nothing left to do), and `result` what must be the same. Returns what went
/// wrong.
fn try_errors<T: PartialEq + Sync>(
    name: &str,
    usual: usize,
    args: impl Fn(&Path) -> Vec<String> + Sync,
    again: impl Fn(&Path) -> Option<Vec<String>> + Sync,
    result: impl Fn(&Path) -> T + Sync,
) -> Vec<String> {
    if !have_strace() {
        return Vec::new();
    }
    let whole = tempfile::tempdir().unwrap();
    let (output, log) = traced(&[], &words(&args(whole.path())));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = result(whole.path());
    let all: Vec<(&str, String, usize)> = ERRORS
        .iter()
        .flat_map(|error| counts(&log).into_iter().map(move |(call, n)| (*error, call, n)))
        .flat_map(|(error, call, n)| (1..=n).map(move |i| (error, call.clone(), i)))
        .collect();
    let most = match std::env::var("PCP_SYSTEM_ERRORS") {
        Ok(all) if all == "all" => usize::MAX,
        Ok(number) => number.parse().unwrap(),
        Err(_) => usual,
    };
    // A step that divides nothing, so that all kinds of calls and errors come.
    let step = (all.len() / most.max(1)).max(1) | 1;
    let chosen: Vec<_> = all.iter().step_by(step).collect();
    // Whether the command ended, and what went wrong; `None` where it never came to that call.
    let attempt = |(error, call, n): &(&str, String, usize)| {
        let dir = tempfile::tempdir().unwrap();
        let inject = format!("inject={call}:error={error}:when={n}");
        let (output, log) = traced(&["-e", &inject], &words(&args(dir.path())));
        if !log.contains("(INJECTED)") {
            return None;
        }
        let fault = fault_of(&output)
            .or_else(|| {
                let output = run(&words(&again(dir.path())?));
                (!output.status.success()).then(|| format!("then {}", String::from_utf8_lossy(&output.stderr)))
            })
            .or_else(|| {
                // What cannot be read is left out, and that is said: images, and parts of a page.
                let said = String::from_utf8_lossy(&output.stdout);
                let told = said.contains("cannot be read") || said.contains("note: ");
                (!told && result(dir.path()) != expected).then(|| "other bits".to_string())
            });
        let wrong = fault.map(|fault| {
            let said = String::from_utf8_lossy(&output.stderr);
            println!("{name}, {inject}: {:?}: {said}\n{fault}", output.status);
            format!("{name}, {inject}")
        });
        Some((!output.status.success(), wrong))
    };
    let tried: Vec<(bool, Option<String>)> = chosen.into_par_iter().filter_map(attempt).collect();
    let ended = tried.iter().filter(|(ended, _)| *ended).count();
    let (n, all) = (tried.len(), all.len());
    let wrong: Vec<String> = tried.into_iter().filter_map(|(_, wrong)| wrong).collect();
    println!("{name}: {n} of {all} errors tried, {ended} ended the command, {} were not met well", wrong.len());
    wrong
}

/// What is wrong with the way a command ended.
fn fault_of(output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("panicked") {
        return Some("a panic".to_string());
    }
    // The loader of libraries has its own code.
    if said.contains("error while loading shared libraries") || output.status.success() {
        return None;
    }
    let clear = said.contains("error: ") && said.contains("hint: ");
    match output.status.code() {
        Some(1 | 2) if clear => None,
        Some(1 | 2) => Some("no clear error".to_string()),
        Some(code) => Some(format!("exit code {code}")),
        None => Some(format!("ended by signal {:?}", output.status.signal())),
    }
}

fn owned(args: &[&str]) -> Vec<String> {
    args.iter().map(|a| a.to_string()).collect()
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = Vec::new();
    collect(folder, folder, &mut names);
    names.sort();
    names.into_iter().map(|name| (name.clone(), std::fs::read(folder.join(name)).unwrap())).collect()
}

#[test]
fn training_and_going_on_meet_system_errors() {
    let tiny = ["--limit", "40", "--epochs", "2", "--rounds", "1", "--snapshots", "1", "--quiet", "--no-report"];
    let train = |root: &Path| small(&root.join("run"), &[&tiny[..], &["--threads", "1"]].concat());
    let again = |root: &Path| {
        let run = root.join("run");
        Some(match run.join("config.toml").exists() {
            true => owned(&["train", "--resume", run.to_str().unwrap(), "--quiet", "--no-report"]),
            false => train(root),
        })
    };
    // Warnings may tell of what was met.
    let result = |root: &Path| {
        bits(&root.join("run")).into_iter().filter(|(name, _)| name != "warnings.jsonl").collect::<Vec<_>>()
    };
    let mut wrong = try_errors("train", 6, train, again, result);
    // A run that was killed after its first epoch goes on.
    let begun = tempfile::tempdir().unwrap();
    let out = begun.path().join("run");
    let mut child = start(&words(&small(&out, &tiny)));
    wait_for(&mut child, || out.join("metrics.jsonl").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let resume = |root: &Path| {
        let (from, to) = (begun.path().join("run"), root.join("run"));
        assert!(Command::new("cp").arg("-r").args([&from, &to]).status().unwrap().success());
        owned(&["train", "--resume", to.to_str().unwrap(), "--quiet", "--no-report", "--threads", "1"])
    };
    wrong.extend(try_errors("train --resume", 6, resume, again, result));
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}

#[test]
fn other_commands_meet_system_errors() {
    let (_dir, run) = reference().copy();
    let dir = tempfile::tempdir().unwrap();
    let photos = dir.path().join("photos");
    class_folders(&photos, 2);
    let (run_, photos) = (run.to_str().unwrap(), photos.to_str().unwrap());
    let unless = |out: &'static str, args: &dyn Fn(&Path) -> Vec<String>, root: &Path| {
        (!root.join(out).exists()).then(|| args(root))
    };
    let embed = |root: &Path| {
        owned(&["embed", run_, photos, "--threads", "1", "--out", root.join("n/e.npy").to_str().unwrap()])
    };
    let mut wrong = try_errors("embed", 6, embed, |root| unless("n/e.npy", &embed, root), files);
    let matrix = run.join("embeddings.npy");
    let matrix = matrix.to_str().unwrap();
    let cluster = |root: &Path| {
        owned(&["cluster", matrix, "--k", "3", "--threads", "1", "--out", root.join("n/c").to_str().unwrap()])
    };
    let without_summary = |root: &Path| {
        // The folder's own path is in it.
        files(root).into_iter().filter(|(name, _)| !name.ends_with("summary.json")).collect::<Vec<_>>()
    };
    wrong.extend(try_errors("cluster", 6, cluster, |root| unless("n/c", &cluster, root), without_summary));
    let export =
        |root: &Path| owned(&["export", run_, "--to", "onnx", "--out", root.join("n/net.onnx").to_str().unwrap()]);
    wrong.extend(try_errors("export", 4, export, |root| unless("n/net.onnx", &export, root), files));
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}

#[test]
fn pages_meet_system_errors() {
    let (_dir, run) = reference().copy();
    let report =
        |root: &Path| owned(&["report", run.to_str().unwrap(), "--out", root.join("page.html").to_str().unwrap()]);
    // A page that a failed command left is made again.
    let wrong = try_errors("report", 4, report, |root| Some(report(root)), files);
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}
