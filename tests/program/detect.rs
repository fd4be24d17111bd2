//! Detectors: training, evaluation and prediction on synthetic shapes, stopping and resuming, and broken data.

#![allow(unsafe_code)]

use crate::common::*;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const CLASSES: &str = "disc,square,triangle";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs a command line.
fn spoken(line: &str) -> String {
    succeed(&line.split(' ').collect::<Vec<_>>())
}

/// A temporary folder, and a synthetic detection set in it.
fn shapes(train: &str, test: &str, side: &str) -> (tempfile::TempDir, PathBuf) {
    let (dir, voc) = place("shapes");
    succeed(&["data", "shapes", "--train", train, "--test", test, "--side", side, "--out", text(&voc)]);
    (dir, voc)
}

/// A short run with both kinds of batches, checkpoints within epochs, and the fall of the learning rate.
fn small_detector<'a>(voc: &'a Path, out: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["detect", "train", "random", "--width", "4", "--voc", text(voc), "--classes", CLASSES];
    args.extend(["--short-side", "48", "--rois", "8", "--proposals", "40", "--test-proposals", "20", "--epochs", "6"]);
    args.extend(["--batch", "4", "--seed", "3", "--save-minutes", "0.0001", "--quiet", "--out", text(out)]);
    args.extend(more);
    args
}

fn bits_of(run: &Path) -> Vec<(String, Vec<u8>)> {
    bits(run).into_iter().filter(|(name, _)| name != "detect.toml").collect()
}

/// The network of a short run on photographs learns shapes on noise, and detections are written in COCO's format.
#[test]
fn shapes_on_noise_are_learned() {
    let (dir, voc) = shapes("160", "32", "96");
    let (run, det) = (dir.path().join("run"), dir.path().join("det"));
    spoken(&format!(
        "train --limit 400 --size 32 --width 8 --epochs 4 --batch 64 --preset ir --quiet --no-report --out {}",
        text(&run)
    ));
    let shown = spoken(&format!(
        "detect train {} --voc {} --classes {CLASSES} --short-side 96 --rois 32 --proposals 100 --test-proposals 50 --epochs 40 \
         --batch 4 --lr 0.01 --quiet --out {}",
        text(&run),
        text(&voc),
        text(&det)
    ));
    assert!(shown.contains("short side 96, width 8, 32 boxes an image"), "{shown}");
    let report: Value = serde_json::from_str(&succeed(&["detect", "eval", text(&det), "--json"])).unwrap();
    let map = |key: &str| report[key].as_f64().unwrap();
    assert!(map("map11") > 60.0 && map("map") > 60.0, "{report}");
    assert_eq!(report["classes"].as_array().unwrap().len(), 3);
    let table = succeed(&["detect", "eval", text(&det), "--voc", text(&voc), "--set", "trainval", "--limit", "5"]);
    assert!(table.contains("mean (mAP)") && table.contains("(5 images)") && table.contains("triangle"), "{table}");

    let out = dir.path().join("found");
    let photographs = voc.join("JPEGImages");
    let one = photographs.join("000170.png");
    succeed(&["detect", "predict", text(&det), text(&one), "--out", text(&out)]);
    let found: Value = serde_json::from_slice(&fs::read(out.join("detections.json")).unwrap()).unwrap();
    let best = &found[0];
    assert_eq!((&best["image_id"], best["bbox"].as_array().unwrap().len()), (&Value::from(170), 4));
    assert!(best["score"].as_f64().unwrap() > 0.3 && best["category_id"].as_u64().unwrap() <= 3, "{best}");
    let (picture, plain) = (image::open(out.join("000170.png")).unwrap(), image::open(&one).unwrap());
    assert_eq!((picture.width(), picture.height()), (plain.width(), plain.height()));
}

#[test]
fn threads_stops_and_kills_change_no_bit() {
    let (dir, voc) = shapes("12", "4", "64");
    let (whole, one, cut) = (dir.path().join("whole"), dir.path().join("one"), dir.path().join("cut"));
    succeed(&small_detector(&voc, &whole, &[]));
    succeed(&small_detector(&voc, &one, &["--threads", "1"]));
    assert_same(&bits_of(&whole), &bits_of(&one));
    let epochs = fs::read_to_string(whole.join("metrics.jsonl")).unwrap();
    let lr: Vec<f64> =
        epochs.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["lr"].as_f64().unwrap()).collect();
    assert_eq!(lr, [0.001, 0.001, 0.001, 0.001, 0.001, 0.0001]);

    let resume = ["detect", "train", "--resume", text(&cut), "--quiet"];
    let checkpoints = || fs::read_dir(cut.join("checkpoints")).map_or(0, |entries| entries.count());
    let newest = || {
        let entries = fs::read_dir(cut.join("checkpoints")).into_iter().flatten().flatten();
        entries.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|n| n.ends_with("safetensors")).max()
    };
    let mut child = pcp(&small_detector(&voc, &cut, &[])).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while !cut.join("detect.toml").exists() {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for round in 0..8 {
        let before = newest();
        let mut child = pcp(&resume).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        while newest() == before && child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < Duration::from_secs(120), "{} checkpoints", checkpoints());
            std::thread::sleep(Duration::from_millis(1));
        }
        if round % 2 == 0 {
            let _ = child.kill();
        } else {
            // SAFETY: kill(2) takes two numbers and touches no memory; the child is ours and has not been waited for.
            unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            break;
        }
        if round % 2 == 1 {
            assert!(said.contains("everything is saved") && said.contains("pcp detect train --resume"), "{said}");
        }
    }
    succeed(&resume);
    assert_same(&bits_of(&whole), &bits_of(&cut));
    let again = succeed(&["detect", "train", "--resume", text(&cut), "--json"]);
    assert!(again.contains("\"loss\":"), "a finished run says its result: {again}");

    // A damaged checkpoint is skipped.
    fs::remove_file(cut.join("result.json")).unwrap();
    fs::remove_file(cut.join("model.safetensors")).unwrap();
    let last = cut.join("checkpoints").join(newest().unwrap());
    let mut bytes = fs::read(&last).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&last, bytes).unwrap();
    let said = String::from_utf8_lossy(&run(&resume).stderr).into_owned();
    assert!(
        said.contains("warning: ") && said.contains("is damaged") && said.contains("continuing from the one before"),
        "{said}"
    );
    assert_eq!(fs::read(whole.join("model.safetensors")).unwrap(), fs::read(cut.join("model.safetensors")).unwrap());
}

#[test]
fn an_unfinished_detector_can_be_measured_and_others_are_told_apart() {
    let (dir, voc) = shapes("4", "2", "48");
    let det = dir.path().join("det");
    succeed(&small_detector(&voc, &det, &["--set", "test"]));
    fs::remove_file(det.join("model.safetensors")).unwrap();
    let report: Value = serde_json::from_str(&succeed(&["detect", "eval", text(&det), "--json"])).unwrap();
    assert!(report["weights"].as_str().unwrap().starts_with("e00006-"), "{report}");
    // Another data set has another report.
    let elsewhere = dir.path().join("elsewhere");
    succeed(&["data", "shapes", "--train", "1", "--test", "1", "--side", "48", "--out", text(&elsewhere)]);
    let own = fs::read(det.join("eval/test.json")).unwrap();
    succeed(&["detect", "eval", text(&det), "--voc", text(&elsewhere)]);
    assert_eq!(fs::read(det.join("eval/test.json")).unwrap(), own);
    assert!(det.join("eval/test-elsewhere.json").exists());
    assert!(fail(2, &["detect", "eval", text(&det), "--set", "../Main/test"]).contains("--set"));
    assert!(fail(2, &["detect", "eval", text(&det), "--limit", "0"]).contains("--limit is 0"));
    // Photographs are found at any depth; unreadable ones give no output.
    let found = dir.path().join("found");
    succeed(&["detect", "predict", text(&det), text(&elsewhere), "--out", text(&found)]);
    assert!(found.join("000000.png").exists() && found.join("000001.png").exists());
    let broken = dir.path().join("broken.png");
    fs::write(&broken, "no picture").unwrap();
    let nothing = dir.path().join("nothing");
    fail(1, &["detect", "predict", text(&det), text(&broken), "--out", text(&nothing)]);
    assert!(!nothing.exists());
    assert!(fail(2, &["eval", "knn", text(&det)]).contains("config.toml"));
    assert!(fail(2, &["detect", "eval", text(dir.path())]).contains("pcp detect train"));
    assert!(fail(2, &small_detector(&voc, &det, &[])).contains("--resume"));
    succeed(&small_detector(&voc, &det, &["--overwrite"]));
}

#[test]
fn broken_data_and_wrong_words_are_named() {
    let (dir, voc) = shapes("4", "2", "48");
    let out = dir.path().join("det");
    let said = |more: &[&str], code: i32| fail(code, &small_detector(&voc, &out, more));
    assert!(said(&["--set", "val"], 2).contains("val.txt"));
    let with = |from: &str, to: &str| -> Vec<String> {
        let of = small_detector(&voc, &out, &[]);
        of.into_iter().map(|word| if word == from { to.to_string() } else { word.to_string() }).collect()
    };
    let refused = |from: &str, to: &str, code: i32| fail(code, &words(&with(from, to)));
    let instead = |flag: &str, value: &'static str| {
        let mut args = small_detector(&voc, &out, &[]);
        let at = args.iter().position(|word| *word == flag).unwrap() + 1;
        args[at] = value;
        fail(2, &args)
    };
    for (flag, bad) in [("--rois", "0"), ("--short-side", "8")] {
        let said = instead(flag, bad);
        assert!(said.contains(flag) && !said.contains("multiple times"), "{said}");
    }
    assert!(said(&["--lr", "-1"], 2).contains("--lr"));
    assert!(said(&["--limit", "0"], 2).contains("--limit is 0"));
    assert!(refused(CLASSES, "disc,square", 1).contains("there is no class triangle"), "or no image has one");
    assert!(refused(CLASSES, "disc,disc", 2).contains("disc twice"));
    assert!(refused("random", "nowhere", 2).contains("nowhere"));
    assert!(refused(text(&voc), text(dir.path()), 2).contains("not laid out like VOC"));
    let file = voc.join("Annotations/000001.xml");
    let good = fs::read_to_string(&file).unwrap();
    for (bad, word) in [
        (good.replace("</annotation>", ""), "line "),
        (good.replacen("<xmax>", "<xmax>9", 1), "leaves the image"),
        (good.replacen("<ymin>", "<ymin>999", 1), "the box is empty"),
        (good.replacen("<name>", "<name>x", 1), "there is no class x"),
    ] {
        fs::write(&file, bad).unwrap();
        let said = fail(1, &small_detector(&voc, &out, &[]));
        assert!(said.contains(word) && said.contains("000001.xml, line "), "{said}");
    }
    fs::write(&file, good).unwrap();
    fs::remove_file(voc.join("JPEGImages/000002.png")).unwrap();
    let said = fail(1, &small_detector(&voc, &out, &[]));
    assert!(said.contains("trainval.txt, line 3: 000002 has no file in JPEGImages"), "{said}");
    assert!(!out.exists(), "nothing was begun");
    assert!(fail(2, &["detect", "train"]).contains("--voc"));
    for (flag, bad) in [("--side", "9"), ("--side", "100000"), ("--train", "0"), ("--test", "18446744073709551615")] {
        assert!(fail(2, &["data", "shapes", flag, bad, "--out", text(&out)]).contains(flag), "{flag} {bad}");
    }
    assert!(fail(2, &["data", "shapes", "--out", text(&voc)]).contains("there already"));
}
