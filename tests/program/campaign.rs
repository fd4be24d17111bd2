//! A kill campaign over every command that writes: `cargo test --release -p pcp-cli --test program campaign -- --ignored --nocapture`. It
//! takes a while, and writes its result to `results/kill-campaign.json`.

use crate::common::*;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Kills in all; `PCP_KILLS` changes it.
const KILLS: usize = 1000;
const PRESETS: [&str; 9] = ["pcp", "pc-cpr", "ir", "is", "and", "deepcluster", "moco2", "supervised", "pcp-plus"];
/// Kills of a command without checkpoints, each time it comes.
const EACH: usize = 12;

/// Random numbers.
struct Random(u64);

impl Random {
    /// From 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as f64 / f64::from(1u32 << 31)
    }
}

/// Whether a killed process has left a temporary file or folder below `folder`.
fn unfinished(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    entries.into_iter().any(|path| {
        path.extension().is_some_and(|e| e == pcp_core::io::atomic::UNFINISHED) || path.is_dir() && unfinished(&path)
    })
}

/// Kills and resumes a run of `preset` at random moments until it is finished; returns what happened.
fn trainings(dir: &Path, preset: &str, random: &mut Random) -> Value {
    let own = ["--quiet", "--no-report", "--preset", preset];
    let whole = dir.join(format!("{preset}-whole"));
    let began = Instant::now();
    succeed(&words(&small(&whole, &own)));
    let usual = began.elapsed();
    let out = dir.join(preset);
    let (mut kills, mut inside) = (0, 0);
    let mut child = start(&words(&small(&out, &own)));
    loop {
        // Some time after a new checkpoint, so that it makes progress; every fifth time at once.
        let saved = checkpoints(&out);
        if kills % 5 != 0 {
            wait_for(&mut child, || checkpoints(&out) != saved);
        }
        std::thread::sleep(usual.mul_f64(0.1 * random.next()));
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            break;
        }
        kills += 1;
        inside += usize::from(unfinished(&out));
        assert!(kills < 500, "{preset} does not get on");
        let resume = ["train", "--resume", out.to_str().unwrap(), "--quiet", "--no-report"];
        // A run that is killed before its settings are written cannot be resumed.
        let begun = out.join("config.toml").exists();
        child = if begun { start(&resume) } else { start(&words(&small(&out, &own))) };
    }
    let epochs = |run: &Path| std::fs::read_to_string(run.join("metrics.jsonl")).unwrap().lines().count();
    // The result without times, versions and speeds.
    let result = |run: &Path| {
        let mut result: serde_json::Map<String, Value> =
            serde_json::from_slice(&std::fs::read(run.join("result.json")).unwrap()).unwrap();
        result.retain(|key, _| !matches!(key.as_str(), "seconds" | "command"));
        result
    };
    let same = bits(&whole) == bits(&out)
        && result(&whole) == result(&out)
        && run(&["check", out.to_str().unwrap()]).status.success();
    let lost = epochs(&whole).abs_diff(epochs(&out));
    json!({ "command": "train", "preset": preset, "kills": kills, "inside_a_write": inside, "lost_epochs": lost, "same_bits": same })
}

/// Kills a command that makes `out` below a new folder at random moments, [`EACH`] times, giving the same command again each time; then lets it
/// end, and compares its files, but for those that hold their own path or times.
fn outputs(name: &str, out: &str, args: &dyn Fn(&Path) -> Vec<String>, random: &mut Random) -> Value {
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let began = Instant::now();
    succeed(&words(&args(whole.path())));
    let usual = began.elapsed();
    let (mut kills, mut inside) = (0, 0);
    while kills < EACH {
        let mut child = start(&words(&args(killed.path())));
        std::thread::sleep(usual.mul_f64(1.2 * random.next()));
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            // It was quicker: once more, from the beginning.
            std::fs::remove_dir_all(killed.path()).unwrap();
            std::fs::create_dir(killed.path()).unwrap();
            continue;
        }
        kills += 1;
        inside += usize::from(unfinished(killed.path()));
        assert!(began.elapsed() < Duration::from_secs(1200), "{name} does not get on");
    }
    // A kill may have come after the last rename.
    if !killed.path().join(out).exists() {
        succeed(&words(&args(killed.path())));
    }
    let same = !unfinished(killed.path()) && contents(whole.path()) == contents(killed.path());
    json!({ "command": name, "kills": kills, "inside_a_write": inside, "same_bits": same })
}

fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = Vec::new();
    collect(folder, folder, &mut names);
    names.sort();
    let own = |name: &String| {
        let file = name.rsplit('/').next().unwrap_or_default();
        !matches!(
            file,
            "summary.json" | "train.log" | "detect.toml" | "result.json" | "lock" | "checksums.txt" | "metrics.jsonl"
        ) && !name.contains("checkpoints/")
    };
    names.into_iter().filter(own).map(|name| (name.clone(), std::fs::read(folder.join(name)).unwrap())).collect()
}

#[test]
#[ignore = "takes many minutes"]
fn a_thousand_kills_change_no_bit() {
    let most = std::env::var("PCP_KILLS").map_or(KILLS, |n| n.parse().unwrap());
    let began = Instant::now();
    let mut random = Random(20_240_607);
    let (_dir, run) = reference().copy();
    let made = tempfile::tempdir().unwrap();
    let (photos, voc) = (made.path().join("photos"), made.path().join("voc"));
    class_folders(&photos, 8);
    let (run, photos, voc) = (run.to_str().unwrap(), photos.to_str().unwrap(), voc.to_str().unwrap());
    succeed(&["data", "shapes", "--train", "8", "--test", "2", "--side", "48", "--out", voc]);
    let owned = |args: &[&str]| args.iter().map(|a| a.to_string()).collect::<Vec<String>>();
    let with = |args: &[&str], root: &Path, out: &str| {
        let mut args = owned(args);
        args.extend(["--out".to_string(), root.join(out).display().to_string()]);
        args
    };
    let detect = |root: &Path| {
        let det = root.join("det");
        if det.join("detect.toml").exists() {
            return owned(&["detect", "train", "--resume", det.to_str().unwrap(), "--quiet"]);
        }
        let own =
            ["--classes", "disc,square,triangle", "--epochs", "3", "--short-side", "48", "--rois", "8", "--batch", "2"];
        let all = ["detect", "train", "random", "--width", "2", "--voc", voc, "--quiet", "--save-minutes", "0.0002"];
        with(&[&all[..], &own].concat(), root, "det")
    };
    let image = format!("{photos}/a/0.png");
    // What each makes, and how it is called; `detect train` is in its own way.
    let commands: [(&str, &str, &[&str]); 12] = [
        ("embed", "e.npy", &["embed", run, photos]),
        ("cluster", "c", &["cluster", run, "--k", "5"]),
        ("purify", "p", &["purify", run, "--k", "5"]),
        ("data shapes", "s", &["data", "shapes", "--train", "60", "--test", "4", "--side", "64"]),
        ("export", "n.onnx", &["export", run, "--to", "onnx"]),
        ("detect train", "det/result.json", &[]),
        ("eval tsne", "t/tsne.png", &["eval", "tsne", run]),
        ("report", "page.html", &["report", run]),
        ("look", "l", &["look", photos]),
        ("duplicates", "d", &["duplicates", photos]),
        ("assign", "a.csv", &["assign", run, photos]),
        ("neighbours", "n.csv", &["neighbours", run, &image]),
    ];
    let (mut all, mut runs) = (0, Vec::new());
    let mut note = |made: Value| {
        println!("{made}");
        let kills = made["kills"].as_u64().unwrap() as usize;
        runs.push(made);
        kills
    };
    let mut turn = 0;
    while all < most {
        let dir = tempfile::tempdir().unwrap();
        all += note(trainings(dir.path(), PRESETS[turn % PRESETS.len()], &mut random));
        let (name, out, args) = commands[turn % commands.len()];
        let made = match args {
            [] => outputs(name, out, &detect, &mut random),
            args => outputs(name, out, &|root| with(args, root, out.split('/').next().unwrap_or(out)), &mut random),
        };
        all += note(made);
        turn += 1;
    }
    let lost: u64 = runs.iter().filter_map(|run| run["lost_epochs"].as_u64()).sum();
    let same = runs.iter().all(|run| run["same_bits"] == true);
    let report = json!({
        "command": "cargo test --release -p pcp-cli --test program campaign -- --ignored --nocapture",
        "version": env!("CARGO_PKG_VERSION"),
        "kills": all,
        "same_bits": same,
        "lost_epochs": lost,
        "seconds": began.elapsed().as_secs(),
        "runs": runs,
    });
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/kill-campaign.json");
    std::fs::write(path, serde_json::to_string_pretty(&report).unwrap() + "\n").unwrap();
    assert!(same && lost == 0);
}
