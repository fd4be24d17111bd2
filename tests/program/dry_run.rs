//! `pcp train --dry-run`: the forecast of time and memory.

use crate::common::*;
use pcp::config::Config;
use pcp::model::Network;
use pcp::train::setup::check_room;
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn a_dry_run_prints_a_forecast_and_writes_nothing() {
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

#[test]
fn a_network_that_does_not_fit_into_memory_is_refused() {
    let config = Config::default();
    let network = Network::new(&config.network, 32).unwrap();
    let refused = check_room(&network, &config.train, 1000, Some(1 << 28)).unwrap_err();
    assert!(refused.message.contains("GB of memory") && refused.hint.contains("network.width"), "{refused}");
    for (images, free) in [(1000, Some(1 << 40)), (1000, None), (2, Some(1 << 30))] {
        check_room(&network, &config.train, images, free).unwrap();
    }
    let mut untrained = config.clone();
    untrained.train.rounds = 0;
    check_room(&network, &untrained.train, 1000, Some(0)).unwrap();
}

/// A stop does not wait for the measured steps, and the temporary folder is removed.
#[cfg(unix)]
#[test]
fn a_dry_run_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = pcp(&["train", "--dry-run", "--width", "32", "--size", "96", "--batch", "16", "--quiet"])
        .env("TMPDIR", dir.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let place = || fs::read_dir(dir.path()).unwrap().count();
    while place() == 0 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(place(), 0, "nothing is left");
}
