//! Too little memory: an error with a remedy, never an abort.

#![allow(unsafe_code)]

use crate::common::*;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

/// Runs the program with `megabytes` of address space; returns its exit code, what it printed and what it said.
fn with_memory(megabytes: u64, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = pcp(args);
    let limit = move || {
        let most = libc::rlimit { rlim_cur: megabytes << 20, rlim_max: megabytes << 20 };
        // SAFETY: the call takes plain values, allocates nothing, and is allowed between fork and exec.
        match unsafe { libc::setrlimit(libc::RLIMIT_AS, &most) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure does only what may be done between fork and exec.
    let child = unsafe { command.pre_exec(limit) }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_training_that_finds_no_memory_ends_with_an_error() {
    let (_dir, out) = place("run");
    let args =
        ["train", "--limit", "300", "--width", "16", "--batch", "64", "--epochs", "1", "--threads", "2", "--quiet"];
    let out = out.to_str().unwrap();
    for megabytes in [150, 200, 250, 290] {
        let (code, _, said) = with_memory(megabytes, &[&args[..], &["--out", out]].concat());
        assert!(matches!(code, Some(0..=2)), "{megabytes} MB: {code:?}: {said}");
        assert!(code == Some(0) || said.contains("error: ") && said.contains("hint: "), "{megabytes} MB: {said}");
        let _ = fs::remove_dir_all(out);
    }
}

/// A PNG of `side` x `side` black pixels, in few bytes.
fn png(path: &Path, side: u32) {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    let row = vec![0; 1 + 3 * side as usize];
    (0..side).for_each(|_| packed.write_all(&row).unwrap());
    let packed = packed.finish().unwrap();
    let header = [&side.to_be_bytes()[..], &side.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [(b"IHDR", header), (b"IDAT", packed), (b"IEND", Vec::new())] {
        let body = [&kind[..], &data].concat();
        let mut sum = flate2::Crc::new();
        sum.update(&body);
        bytes.extend([&(data.len() as u32).to_be_bytes()[..], &body, &sum.sum().to_be_bytes()].concat());
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn an_image_that_does_not_fit_is_listed_and_the_others_are_read() {
    let dir = tempfile::tempdir().unwrap();
    class_folders(dir.path(), 2);
    png(&dir.path().join("a/huge.png"), 6000);
    let data = dir.path().to_str().unwrap();
    let check = ["data", "check", data, "--json"];
    let whole: serde_json::Value = serde_json::from_str(&succeed(&check)).unwrap();
    assert_eq!((whole["train"].as_u64(), whole["bad"].as_array().unwrap().len()), (Some(7), 0), "it is a picture");
    let (code, shown, said) = with_memory(400, &check);
    assert_eq!(code, Some(0), "{said}");
    let found: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(found["train"], 6, "{found}");
    let reason = found["bad"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("6000 x 6000 pixels: decoding it takes") && reason.contains("less is free"), "{reason}");
}

#[test]
fn matrices_that_do_not_fit_are_refused_before_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.npy");
    let (rows, dim) = (1_000_000u64, 250u64);
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {dim}), }}");
    text += &" ".repeat(127 - 10 - text.len());
    text.push('\n');
    fs::write(&path, [b"\x93NUMPY\x01\x00", &118u16.to_le_bytes()[..], text.as_bytes()].concat()).unwrap();
    // A gigabyte of zeros that takes no room on the disk.
    fs::File::options().write(true).open(&path).unwrap().set_len(128 + rows * dim * 4).unwrap();
    let out = dir.path().join("out");
    let args = ["cluster", path.to_str().unwrap(), "--k", "2", "--metric", "euclidean", "--out", out.to_str().unwrap()];
    let (code, _, said) = with_memory(700, &args);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("takes 1.0 GB of memory, and") && said.contains("hint: "), "{said}");
    // A small archive that unpacks to much.
    let (_run, run) = reference().copy();
    let sums = fs::read_to_string(run.join("checksums.txt")).unwrap();
    let others: String = sums.lines().filter(|l| !l.contains("heat.npz")).map(|l| format!("{l}\n")).collect();
    fs::write(run.join("checksums.txt"), others).unwrap();
    let mut zip = zip::ZipWriter::new(fs::File::create(run.join("heat.npz")).unwrap());
    let options = zip::write::SimpleFileOptions::default();
    for name in ["row.npy", "side.npy", "heat.npy"] {
        zip.start_file(name, options).unwrap();
        let zeros = vec![0; 1 << 20];
        (0..600).try_for_each(|_| zip.write_all(&zeros)).unwrap();
    }
    zip.finish().unwrap();
    let page = dir.path().join("page.html");
    let (code, _, said) = with_memory(700, &["report", run.to_str().unwrap(), "--out", page.to_str().unwrap()]);
    assert!(matches!(code, Some(0 | 1)), "{code:?}: {said}");
}
