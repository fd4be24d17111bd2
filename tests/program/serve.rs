//! `pcp serve` and `pcp train --serve` as programs, and the commands that honour decisions.

use crate::common::*;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

const QUICK: &[&str] =
    &["--size", "16", "--width", "4", "--batch", "8", "--clusters", "3", "--quiet", "--no-report", "--epochs"];

/// Three classes of photographs and a run on them.
pub fn trained(root: &Path) -> (PathBuf, PathBuf) {
    let (images, run) = (root.join("images"), root.join("run"));
    class_folders(&images, 8);
    let (data, out) = (images.to_str().unwrap(), run.to_str().unwrap());
    succeed(&[&["train", data, "--out", out][..], QUICK, &["3"]].concat());
    (images, run)
}

/// Starts the program and waits for its link; returns it with the place and the token of the page.
fn page(args: &[&str]) -> (Child, String, String) {
    let mut child = pcp(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (host, token) = link(&mut child);
    (child, host, token)
}

/// The place and the token of the page whose link a program prints.
pub fn link(child: &mut Child) -> (String, String) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let link = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_string();
    let (host, token) = link["http://".len()..].split_once('/').unwrap();
    (host.to_string(), format!("/{token}"))
}

/// Sends `body` as the page does; returns the answer.
pub fn post(host: &str, path: &str, cookie: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!("host: {host}\r\norigin: http://{host}\r\ncookie: {cookie}\r\ncontent-type: application/json");
    let length = body.len();
    write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
        .unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn get(host: &str, path: &str, cookie: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The cookie that the token is exchanged for.
pub fn welcome(host: &str, token: &str) -> String {
    let answer = get(host, token, "");
    let line = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    line.unwrap_or_else(|| panic!("{answer}")).split(';').next().unwrap().to_string()
}

#[test]
fn a_page_is_served_until_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    let (_, run) = trained(dir.path());
    // A folder of runs; the matrix alone with its images.
    let (mut child, host, token) = page(&["serve", dir.path().to_str().unwrap()]);
    assert!(host.starts_with("127.0.0.1:"), "{host}");
    let cookie = welcome(&host, &token);
    assert!(get(&host, "/api/runs", &cookie).contains("\"name\":\"run\""));
    assert!(get(&host, "/api/runs", "").starts_with("HTTP/1.1 403"));
    signal(&child, libc::SIGINT);
    assert!(child.wait().unwrap().success());
    let (matrix, images) = (run.join("embeddings.npy"), dir.path().join("images"));
    let (mut child, host, token) =
        page(&["serve", matrix.to_str().unwrap(), "--images", images.to_str().unwrap(), "--port", "0"]);
    let overview = get(&host, "/api/runs/0/overview", &welcome(&host, &token));
    assert!(overview.contains("\"found\":24"), "{overview}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_cannot_be_served_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().to_str().unwrap();
    assert!(fail(2, &["serve", empty]).contains("there is no run in"));
    assert!(fail(2, &["serve", "no/such"]).contains("no/such is no run folder"));
    let file = dir.path().join("x.csv");
    fs::write(&file, "1,2\n3,4\n").unwrap();
    assert!(fail(1, &["serve", file.to_str().unwrap()]).contains("have no names"));
    assert!(fail(2, &["serve", file.to_str().unwrap(), empty]).contains("stands alone"));
    fail(2, &["train", "bundled", "--open"]);
}

#[test]
fn a_training_is_watched_and_stopped_as_by_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let more = ["--limit", "40", "--size", "16", "--width", "4", "--epochs", "4000", "--batch", "8", "--clusters", "3"];
    let (mut child, host, token) =
        page(&[&["train", "bundled", "--quiet", "--serve", "--out", out.to_str().unwrap()][..], &more].concat());
    let cookie = welcome(&host, &token);
    assert!(wait_for(&mut child, || fs::read_to_string(out.join("metrics.jsonl")).is_ok_and(|m| m.lines().count() > 1)));
    assert!(get(&host, "/api/runs", &cookie).contains("\"training\":true"));
    assert!(get(&host, "/api/runs/0/overview", &cookie).contains("\"finished\":false"));
    let answer = post(&host, "/api/runs/0/stop", &cookie, "{}");
    assert_eq!(child.wait().unwrap().code(), Some(130), "{answer}");
    assert!(fs::read_dir(out.join("checkpoints")).unwrap().count() > 0, "it was saved");
}

/// The lines of a CSV file by its heading.
fn table(path: &Path) -> Vec<BTreeMap<String, String>> {
    let rows = pcp_core::io::csv::rows(&fs::read_to_string(path).unwrap());
    rows[1..].iter().map(|row| rows[0].iter().cloned().zip(row.iter().cloned()).collect()).collect()
}

/// Decisions as the page writes them.
fn decide(run: &Path, lines: &[&str]) {
    let text: String = lines.iter().map(|line| format!("{{\"time\":1,\"by\":\"t\",{line}}}\n")).collect();
    fs::write(run.join("decisions.jsonl"), text).unwrap();
}

#[test]
fn purify_and_assign_honour_decisions() {
    let dir = tempfile::tempdir().unwrap();
    let (images, run) = trained(dir.path());
    let files: Vec<String> = table(&run.join("files.csv")).into_iter().map(|row| row["file"].clone()).collect();
    decide(
        &run,
        &[
            &format!("\"op\":\"mark\",\"files\":[{:?},{:?}],\"mark\":\"remove\"", files[0], files[1]),
            &format!("\"op\":\"same\",\"files\":[{:?}],\"of\":{:?}", files[2], files[3]),
            &format!("\"op\":\"mark\",\"files\":[{:?},{:?},{:?}],\"mark\":\"keep\"", files[4], files[5], files[6]),
            "\"op\":\"merge\",\"clusters\":[0,1,2],\"into\":0",
            "\"op\":\"name\",\"cluster\":0,\"name\":\"every, thing\"",
            &format!("\"op\":\"mark\",\"files\":[{:?}],\"mark\":\"remove\"", files[7]),
            "\"op\":\"undo\",\"line\":5",
        ],
    );
    let (run_text, out) = (run.to_str().unwrap(), dir.path().join("clean"));
    let said = succeed(&["purify", run_text, "--decisions", run_text, "--out", out.to_str().unwrap(), "--no-sheet"]);
    assert!(said.contains("left out by decision"), "{said}");
    let rows = table(&out.join("clusters.csv"));
    let named: Vec<&String> = rows.iter().map(|row| &row["file"]).collect();
    assert_eq!(rows.len(), files.len() - 3);
    assert!(files[..3].iter().all(|gone| !named.contains(&gone)) && named.contains(&&files[7]));
    assert!(rows.iter().all(|row| row["cluster"] == "0"), "three clusters became one");
    let belongs = ["kept", "pulled_back"];
    let kept = |file: &String| rows.iter().any(|row| row["file"] == *file && belongs.contains(&row["status"].as_str()));
    assert!(files[4..7].iter().all(kept));
    assert_eq!(fs::read_to_string(out.join("cluster_names.csv")).unwrap(), "cluster,name\n0,\"every, thing\"\n");
    assert!(fs::read_to_string(out.join("unusable.csv")).unwrap().contains("0,left out by decision"));
    let assigned = succeed(&["assign", run_text, images.join(&files[8]).to_str().unwrap(), "--json"]);
    assert!(assigned.contains("\"name\":\"every, thing\""), "{assigned}");
    let missing = dir.path().join("none.jsonl");
    let e = fail(2, &["purify", run_text, "--decisions", missing.to_str().unwrap(), "--out", "x"]);
    assert!(e.contains("there are no decisions in"), "{e}");
}

#[test]
fn train_leaves_out_what_was_removed_and_resumes_without_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (images, run) = trained(dir.path());
    let rows = table(&run.join("files.csv"));
    let (gone, relabelled) = (&rows[0]["file"], &rows[1]["file"]);
    decide(
        &run,
        &[
            &format!("\"op\":\"mark\",\"files\":[{gone:?}],\"mark\":\"remove\""),
            &format!("\"op\":\"label\",\"files\":[{relabelled:?}],\"label\":\"new kind\""),
        ],
    );
    let again = dir.path().join("again");
    let (data, out) = (images.to_str().unwrap(), again.to_str().unwrap());
    let log = run.join("decisions.jsonl");
    let honouring = ["train", data, "--out", out, "--decisions", run.to_str().unwrap()];
    let mut child = start(&[&honouring[..], QUICK, &["300"]].concat());
    assert!(wait_for(&mut child, || !checkpoints(&again).is_empty()));
    child.kill().unwrap();
    child.wait().unwrap();
    let after = table(&again.join("files.csv"));
    assert_eq!(after.len(), rows.len() - 1);
    assert_eq!((&after[0]["file"], after[0]["label"].as_str(), after[0]["id"].as_str()), (relabelled, "new kind", "1"));
    // The run has a copy: later decisions do not change it.
    fs::remove_file(log).unwrap();
    let mut child = start(&["train", "--resume", out, "--quiet", "--no-report"]);
    let lines = || fs::read_to_string(again.join("metrics.jsonl")).unwrap_or_default().lines().count();
    let before = lines();
    assert!(wait_for(&mut child, || lines() > before), "it goes on");
    child.kill().unwrap();
    child.wait().unwrap();
}
