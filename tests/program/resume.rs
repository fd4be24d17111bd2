//! Resuming: a run that is stopped or killed any number of times ends with the bits of an uninterrupted one.

use crate::common::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn unfinished_checkpoint(out: &Path) -> bool {
    let entries = std::fs::read_dir(out.join("checkpoints")).into_iter().flatten().flatten();
    entries.into_iter().any(|e| e.path().extension().is_some_and(|e| e == pcp_core::io::atomic::UNFINISHED))
}

#[test]
fn killed_again_and_again_it_ends_with_the_same_bits() {
    let (_dir, out) = place("killed");
    let resume = ["train", "--resume", out.to_str().unwrap(), "--quiet"];
    let mut child = start(&words(&small(&out, &["--quiet"])));
    // Before the first checkpoint, as soon as the folder can be resumed.
    wait_for(&mut child, || out.join("config.toml").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    // A random while after the first new checkpoint, again and again; every third time while one is being written.
    let mut random = 12345u64;
    let (mut kills, mut inside) = (1, 0);
    loop {
        let before = checkpoints(&out);
        let mut child = start(&resume);
        let while_writing = kills % 3 == 0;
        let moment = || checkpoints(&out) != before && (!while_writing || unfinished_checkpoint(&out));
        if !wait_for(&mut child, moment) {
            break;
        }
        if !while_writing {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            std::thread::sleep(Duration::from_millis((random >> 33) % 40));
        }
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            break;
        }
        inside += usize::from(unfinished_checkpoint(&out));
        kills += 1;
    }
    assert!(kills >= 6 && inside >= 1, "{kills} kills, {inside} of them inside the writing of a checkpoint");
    succeed(&resume);
    assert_same(&reference().bits, &bits(&out));
    let rest = std::fs::read_dir(out.join("checkpoints")).unwrap().count();
    assert_eq!(rest, 2, "the last two checkpoints are kept, and nothing else");
}

#[test]
fn an_interrupt_saves_and_prints_the_command_to_resume() {
    let (_dir, out) = place("interrupted");
    let mut child = start(&words(&small(&out, &["--quiet"])));
    wait_for(&mut child, || out.join("metrics.jsonl").exists());
    let asked = Instant::now();
    signal(&child, libc::SIGINT);
    let (code, said) = text(child);
    assert!(asked.elapsed() < Duration::from_secs(2), "it took {:?}", asked.elapsed());
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("everything is saved") && said.contains("pcp train --resume"), "{said}");
    succeed(&["train", "--resume", out.to_str().unwrap(), "--quiet"]);
    assert_same(&reference().bits, &bits(&out));
}

/// Runs until there are two checkpoints, then kills.
fn killed_with_two_checkpoints(out: &Path) -> Vec<PathBuf> {
    let mut child = start(&words(&small(out, &["--quiet"])));
    assert!(wait_for(&mut child, || checkpoints(out).len() >= 2 && out.join("metrics.jsonl").exists()));
    child.kill().unwrap();
    child.wait().unwrap();
    checkpoints(out)
}

#[test]
fn a_damaged_checkpoint_is_noticed_and_the_one_before_it_used() {
    let (_dir, out) = place("damaged");
    let checkpoints = killed_with_two_checkpoints(&out);
    let newest = checkpoints.last().unwrap();
    let mut bytes = std::fs::read(newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(newest, bytes).unwrap();
    let output = run(&["train", "--resume", out.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let name = newest.file_name().unwrap().to_str().unwrap();
    assert!(said.contains("warning: ") && said.contains(name) && said.contains("checksum"), "{said}");
    // Apart from the warning, the files are the same.
    let warnings = std::fs::read_to_string(out.join("warnings.jsonl")).unwrap();
    let (damaged, others): (Vec<&str>, Vec<&str>) = warnings.lines().partition(|line| line.contains(name));
    assert!(damaged.len() == 1 && damaged[0].contains("damaged_checkpoint"), "{warnings}");
    std::fs::write(out.join("warnings.jsonl"), others.iter().map(|line| format!("{line}\n")).collect::<String>())
        .unwrap();
    let lacks =
        |files: Vec<(String, Vec<u8>)>| -> Vec<_> { files.into_iter().filter(|file| !file.1.is_empty()).collect() };
    assert_same(&lacks(reference().bits.clone()), &lacks(bits(&out)));
}

#[test]
fn without_a_readable_checkpoint_it_is_an_error() {
    let (_dir, out) = place("hopeless");
    for path in killed_with_two_checkpoints(&out) {
        std::fs::write(path, b"nothing").unwrap();
    }
    let said = fail(1, &["train", "--resume", out.to_str().unwrap(), "--quiet"]);
    assert!(said.contains("no checkpoint") && said.contains("--overwrite"), "{said}");
}

#[test]
fn other_settings_or_images_are_refused_and_a_finished_run_says_so() {
    let (dir, out) = place("run");
    let photos = dir.path().join("photos");
    class_folders(&photos, 6);
    let (photos_text, out_text) = (photos.to_str().unwrap(), out.to_str().unwrap());
    let args = ["train", photos_text, "--out", out_text, "--size", "16", "--width", "4", "--epochs", "2", "--quiet"];
    succeed(&args);
    let said = fail(2, &["train", "--resume", out_text, "--gamma", "0.3", "--epochs", "9"]);
    assert!(said.contains("purify.gamma is 0.5, not 0.3") && said.contains("train.epochs is 2, not 9"), "{said}");
    let output = run(&["train", "--resume", out_text, "--threads", "1"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("is finished"));
    std::fs::remove_file(out.join("result.json")).unwrap();
    picture(&photos.join("a/0.png"), 20, 5, 99);
    let said = fail(1, &["train", "--resume", out_text]);
    assert!(said.contains("images"), "{said}");
    let said = fail(2, &args);
    assert!(said.contains("exists") && said.contains("--resume"), "{said}");
}
