//! What a run will take, before it is begun.

#![allow(clippy::unwrap_used)]

mod common;
use common::*;
use serde_json::Value;
use std::fs;

#[test]
fn a_dry_run_says_what_is_to_come_and_writes_nothing() {
    let (dir, _) = place("x");
    for preset in ["pcp", "ir", "is", "and", "la", "deepcluster", "moco2", "supervised", "random"] {
        let args =
            ["train", "--dry-run", "--preset", preset, "--limit", "60", "--size", "16", "--width", "4", "--json"];
        let own = ["--batch", "16", "--epochs", "10", "--clusters", "6"];
        let output = pcp(&[&args[..], &own].concat()).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{preset}: {}", String::from_utf8_lossy(&output.stderr));
        let found = serde_json::from_slice::<Value>(&output.stdout).unwrap();
        let epochs = found["epochs"].as_array().unwrap();
        if preset == "random" {
            assert!(epochs.is_empty());
            continue;
        }
        assert!(epochs.len() >= 10 && found["seconds"].as_f64().unwrap() > 0.0, "{preset}: {found}");
        assert!(found["step_seconds"][0].as_f64().unwrap() > 0.0 && found["disk"].as_f64().unwrap() > 0.0);
        if preset == "pcp" {
            assert_eq!((&epochs[0]["clusters"], &epochs[9]["clusters"]), (&Value::from(60), &Value::from(6)));
        }
    }
    let output =
        pcp(&["train", "--dry-run", "--limit", "60", "--width", "4"]).current_dir(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in ["memory", "disk at the end", "an epoch", "60 from epoch 1", "nothing was written"] {
        assert!(said.contains(word), "{word} is not in {said}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(fail(2, &["train", "--dry-run", "--out", "x"]).contains("--dry-run"));
}
