//! Loss of power after every system call of a command, under three rules of what is on the disk then: the same command, or `--resume`, ends
//! with the same bits. A few of the states are tried in every test run, all of them by
//! `PCP_POWER_STATES=all cargo test --release -p pcp-cli --test program power -- --nocapture`. It needs `strace`.

#![allow(clippy::print_stdout)]

use crate::common::*;
use crate::disk::*;
use crate::serve::{link, post, trained, welcome};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pcp");

/// Tries what is left of a command at some of its calls. `args` are its arguments for outputs in a folder, `again` those to give after a loss
/// of power (`None` when there is nothing left to do), and `result` what must be the same.
fn try_losses<T: PartialEq>(
    name: &str,
    usual: usize,
    args: impl Fn(&Path) -> Vec<String>,
    again: impl Fn(&Path) -> Option<Vec<String>>,
    result: impl Fn(&Path) -> T,
) {
    if !have_strace() {
        return;
    }
    let whole = tempfile::tempdir().unwrap();
    let root = whole.path().canonicalize().unwrap();
    let before = Disk::of(&root);
    let calls = recorded(PROGRAM, &words(&args(&root)));
    let expected = result(&root);
    let most = match std::env::var("PCP_POWER_STATES") {
        Ok(all) if all == "all" => usize::MAX,
        Ok(number) => number.parse().unwrap(),
        Err(_) => usual,
    };
    for rule in RULES {
        // Which calls leave the disk in a state that none before them left.
        let (mut disk, mut seen, mut new) = (before.clone(), HashSet::new(), Vec::new());
        for (i, call) in calls.iter().enumerate() {
            if disk.make(call) {
                let mut hasher = DefaultHasher::new();
                disk.left(rule).hash(&mut hasher);
                if seen.insert(hasher.finish()) {
                    new.push(i);
                }
            }
        }
        let step = new.len().div_ceil(most.max(1)).max(1);
        // Not always the same ones, and always the last.
        let tried: HashSet<usize> = new.iter().rev().step_by(step).copied().collect();
        let mut disk = before.clone();
        for (i, call) in calls.iter().enumerate() {
            disk.make(call);
            if tried.contains(&i) {
                try_one(name, (rule, i), &disk.left(rule), &again, &|root| result(root) == expected);
            }
        }
        println!("{name}, {rule:?}: {} calls, {} states, {} tried: the same bits", calls.len(), new.len(), tried.len());
    }
}

fn try_one(
    name: &str,
    at: (Rule, usize),
    left: &BTreeMap<PathBuf, Left>,
    again: &impl Fn(&Path) -> Option<Vec<String>>,
    same: &dyn Fn(&Path) -> bool,
) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    restore(left, &root);
    if let Some(args) = again(&root) {
        let output = run(&words(&args));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let names: Vec<_> = left.keys().collect();
        assert!(output.status.success(), "{name} after {at:?}: {said}\nleft: {names:?}");
    }
    assert!(same(&root), "{name} after {at:?}: other bits");
}

/// All files below a folder but temporary ones.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = Vec::new();
    if folder.exists() {
        collect(folder, folder, &mut names);
    }
    // A new file has two names for a moment: the temporary one goes when it is made again.
    names.retain(|name| !name.ends_with(pcp_core::io::atomic::UNFINISHED));
    names.sort();
    names.into_iter().map(|name| (name.clone(), std::fs::read(folder.join(name)).unwrap())).collect()
}

fn owned(args: &[&str]) -> Vec<String> {
    args.iter().map(|a| a.to_string()).collect()
}

#[test]
fn training_survives_a_loss_of_power_at_any_call() {
    let train = |root: &Path| {
        let more = ["--limit", "40", "--epochs", "3", "--rounds", "1", "--snapshots", "1", "--quiet", "--no-report"];
        small(&root.join("run"), &more)
    };
    let again = |root: &Path| {
        let run = root.join("run");
        Some(match run.join("config.toml").exists() {
            true => owned(&["train", "--resume", run.to_str().unwrap(), "--quiet", "--no-report"]),
            false => train(root),
        })
    };
    let result = |root: &Path| {
        let check = run(&["check", root.join("run").to_str().unwrap()]);
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
        bits(&root.join("run"))
    };
    try_losses("train", 6, train, again, result);
}

#[test]
fn detectors_survive_a_loss_of_power_at_any_call() {
    let shapes = tempfile::tempdir().unwrap();
    let voc = shapes.path().join("voc");
    let voc = voc.to_str().unwrap();
    succeed(&["data", "shapes", "--train", "4", "--test", "1", "--side", "48", "--out", voc]);
    let train = |root: &Path| {
        let out = root.join("det");
        let own =
            ["--classes", "disc,square,triangle", "--epochs", "2", "--short-side", "32", "--rois", "8", "--batch", "2"];
        let all =
            ["detect", "train", "random", "--width", "2", "--voc", voc, "--quiet", "--out", out.to_str().unwrap()];
        owned(&[&all[..], &own, &["--save-minutes", "0.0001"]].concat())
    };
    let again = |root: &Path| {
        let run = root.join("det");
        Some(match run.join("detect.toml").exists() {
            true => owned(&["detect", "train", "--resume", run.to_str().unwrap(), "--quiet"]),
            false => train(root),
        })
    };
    let result = |root: &Path| std::fs::read(root.join("det/model.safetensors")).unwrap();
    try_losses("detect train", 3, train, again, result);
}

#[test]
fn outputs_survive_a_loss_of_power_at_any_call() {
    let (_dir, run) = reference().copy();
    let dir = tempfile::tempdir().unwrap();
    let photos = dir.path().join("photos");
    class_folders(&photos, 3);
    let (run_, photos) = (run.to_str().unwrap(), photos.to_str().unwrap());
    let embed = |root: &Path| owned(&["embed", run_, photos, "--out", root.join("new/e.npy").to_str().unwrap()]);
    let unless = |out: &'static str, args: &dyn Fn(&Path) -> Vec<String>, root: &Path| {
        (!root.join(out).exists()).then(|| args(root))
    };
    try_losses("embed", 4, embed, |root| unless("new/e.npy", &embed, root), files);
    let matrix = run.join("embeddings.npy");
    let matrix = matrix.to_str().unwrap();
    let cluster = |root: &Path| owned(&["cluster", matrix, "--k", "3", "--out", root.join("new/c").to_str().unwrap()]);
    let without_summary = |root: &Path| {
        // The folder's own path is in it.
        files(root).into_iter().filter(|(name, _)| !name.ends_with("summary.json")).collect::<Vec<_>>()
    };
    try_losses("cluster", 4, cluster, |root| unless("new/c", &cluster, root), without_summary);
    let purify = |root: &Path| owned(&["purify", matrix, "--k", "3", "--out", root.join("new/p").to_str().unwrap()]);
    try_losses("purify", 4, purify, |root| unless("new/p", &purify, root), without_summary);
    let export =
        |root: &Path| owned(&["export", run_, "--to", "onnx", "--out", root.join("new/net.onnx").to_str().unwrap()]);
    try_losses("export", 2, export, |root| unless("new/net.onnx", &export, root), files);
    let shapes = |root: &Path| {
        let out = root.join("new/s");
        owned(&["data", "shapes", "--train", "3", "--test", "1", "--side", "48", "--out", out.to_str().unwrap()])
    };
    try_losses("data shapes", 3, shapes, |root| unless("new/s", &shapes, root), files);
}

#[test]
fn a_reproduction_survives_a_loss_of_power_at_any_call() {
    let reproduce = |root: &Path| {
        let out = root.join("r");
        let own = ["reproduce", "table1", "--only", "table1/dc", "--scale", "tiny", "--quiet", "--out"];
        owned(&[&own[..], &[out.to_str().unwrap()]].concat())
    };
    let result = |root: &Path| {
        let record = std::fs::read_to_string(root.join("r/tiny/table1/dc-s0.json")).unwrap();
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        (bits(&root.join("r/tiny/runs/bundled-dc-k13-s0")), record["accuracy_per_epoch"].to_string())
    };
    try_losses("reproduce", 1, reproduce, |root| Some(reproduce(root)), result);
}

/// What a page was told is decided is on the disk, and the decisions can be read whenever the power goes.
#[test]
fn decisions_survive_a_loss_of_power_at_any_call() {
    if !have_strace() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let (_, run_folder) = trained(&root);
    let before = Disk::of(&root);
    let log = tempfile::NamedTempFile::new().unwrap();
    let serve = ["serve", run_folder.to_str().unwrap()];
    let mut tracer = traced(PROGRAM, &serve, log.path()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (host, token) = link(&mut tracer);
    let cookie = welcome(&host, &token);
    let decided = [
        r#"{"by":"t","op":"mark","rows":[0,1],"mark":"remove"}"#,
        r#"{"by":"t","op":"label","rows":[2],"label":"tea pot"}"#,
        r#"{"by":"t","op":"undo"}"#,
        r#"{"by":"t","op":"name","cluster":0,"name":"kettles"}"#,
    ];
    for body in decided {
        let answer = post(&host, "/api/runs/0/decisions", &cookie, body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let children = format!("/proc/{0}/task/{0}/children", tracer.id());
    let program = std::fs::read_to_string(children).unwrap();
    let stopped = Command::new("kill").args(["-INT", program.trim()]).status().unwrap();
    assert!(stopped.success() && tracer.wait().unwrap().success());

    let calls = calls_in(log.path());
    let file = Path::new("run/decisions.jsonl");
    for rule in RULES {
        let (mut disk, mut told, mut seen) = (before.clone(), 0, HashSet::new());
        for (i, call) in calls.iter().enumerate() {
            disk.make(call);
            told += usize::from(call.sends("HTTP/1.1 200 OK\r\ncontent-type: application/json"));
            let left = disk.left(rule);
            let text = match left.get(file) {
                Some(Left::File(text)) => text.clone(),
                _ => Vec::new(),
            };
            let lines = text.iter().filter(|c| **c == b'\n').count();
            assert!(lines >= told, "{rule:?}, call {i}: {told} decisions were told, {lines} are on the disk");
            if !text.is_empty() && seen.insert(text) {
                let dir = tempfile::tempdir().unwrap();
                restore(&left, dir.path());
                let (run_, out) = (dir.path().join("run"), dir.path().join("out"));
                let run_ = run_.to_str().unwrap();
                succeed(&["purify", run_, "--decisions", run_, "--no-sheet", "--out", out.to_str().unwrap()]);
            }
        }
        assert_eq!(told, decided.len());
        println!("decisions, {rule:?}: {} calls, {} states tried", calls.len(), seen.len());
    }
}
