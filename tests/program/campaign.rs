//! A kill campaign: `cargo test --release -p pcp-cli --test program campaign -- --ignored --nocapture`. It takes a while, and
//! writes its result to `results/kill-campaign.json`.

use crate::common::*;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

const KILLS: usize = 200;
const PRESETS: [&str; 8] = ["pcp", "pc-cpr", "ir", "is", "and", "deepcluster", "moco2", "supervised"];

/// Kills and resumes a run of `preset` at random moments until it is finished; returns the number of kills, of kills during the
/// writing of a file, of epochs lost, and whether the bits are those of an uninterrupted run.
fn campaign(dir: &Path, preset: &str, random: &mut u64) -> (usize, usize, usize, bool) {
    let own = ["--quiet", "--no-report", "--preset", preset];
    let whole = dir.join(format!("{preset}-whole"));
    let began = Instant::now();
    succeed(&words(&small(&whole, &own)));
    let usual = began.elapsed();
    let out = dir.join(preset);
    let (mut kills, mut inside) = (0, 0);
    let mut child = start(&words(&small(&out, &own)));
    loop {
        *random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // Some time after a new checkpoint, so that it makes progress; every fifth time at once.
        let saved = checkpoints(&out);
        if kills % 5 != 0 {
            wait_for(&mut child, || checkpoints(&out) != saved);
        }
        let pause = usual.mul_f64(0.1 * ((*random >> 33) as f64 / f64::from(1u32 << 31)));
        std::thread::sleep(pause);
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            break;
        }
        kills += 1;
        let half = |folder: &str| {
            let entries = std::fs::read_dir(out.join(folder)).into_iter().flatten().flatten();
            entries.into_iter().any(|e| e.path().extension().is_some_and(|e| e == pcp_core::io::atomic::UNFINISHED))
        };
        inside += usize::from(["", "checkpoints", "clusters", "snapshots"].iter().any(|folder| half(folder)));
        assert!(kills < 500, "{preset} does not get on");
        let resume = ["train", "--resume", out.to_str().unwrap(), "--quiet", "--no-report"];
        // A run that is killed before its settings are written cannot be resumed.
        let begun = out.join("config.toml").exists();
        child = if begun { start(&resume) } else { start(&words(&small(&out, &own))) };
    }
    let epochs = |run: &Path| std::fs::read_to_string(run.join("metrics.jsonl")).unwrap().lines().count();
    // The result without times, versions and speeds.
    let result = |run: &Path| {
        let mut result: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&std::fs::read(run.join("result.json")).unwrap()).unwrap();
        result.retain(|key, _| !matches!(key.as_str(), "seconds" | "command"));
        result
    };
    let same = bits(&whole) == bits(&out) && result(&whole) == result(&out);
    (kills, inside, epochs(&whole).abs_diff(epochs(&out)), same)
}

#[test]
#[ignore = "takes many minutes"]
fn two_hundred_kills_change_no_bit() {
    let began = Instant::now();
    let mut random = 20_240_607u64;
    let (mut all, mut runs) = (0, Vec::new());
    while all < KILLS {
        let preset = PRESETS[runs.len() % PRESETS.len()];
        let dir = tempfile::tempdir().unwrap();
        let (kills, inside, lost, same) = campaign(dir.path(), preset, &mut random);
        println!(
            "{preset}: {kills} kills, {inside} while a file was being written, {}",
            if same { "same bits" } else { "OTHER BITS" }
        );
        all += kills;
        runs.push(json!({ "preset": preset, "kills": kills, "inside_a_write": inside, "lost_epochs": lost, "same_bits": same }));
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
