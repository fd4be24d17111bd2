//! `pcp train --dry-run`: the forecast of time and memory.

use crate::common::*;
use pcp::config::Config;
use pcp::data::{Load, Source, load as load_images};
use pcp::method::Plan;
use pcp::model::Network;
use pcp::train::setup::check_room;
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_dry_run_prints_a_forecast_and_writes_nothing() {
    let (dir, _) = place("x");
    for preset in ["pcp", "ir", "is", "and", "la", "deepcluster", "moco2", "supervised", "random", "patches"] {
        let args =
            ["train", "--dry-run", "--preset", preset, "--limit", "60", "--size", "16", "--width", "4", "--json"];
        let own = ["--batch", "16", "--epochs", "10", "--clusters", "6"];
        let output = pcp(&[&args[..], &own].concat()).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{preset}: {}", String::from_utf8_lossy(&output.stderr));
        let found = serde_json::from_slice::<Value>(&output.stdout).unwrap();
        let epochs = found["epochs"].as_array().unwrap();
        if ["random", "patches"].contains(&preset) {
            assert!(epochs.is_empty() && found["step_seconds"][0] == 0.0, "{preset}: {found}");
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
fn a_dry_run_says_what_several_processes_would_take() {
    let args =
        ["train", "--dry-run", "--preset", "is", "--limit", "60", "--size", "16", "--width", "4", "--batch", "16"];
    let said = succeed(&[&args[..], &["--processes", "4"]].concat());
    for word in ["4 processes: memory of each", "4 processes: a step", "gradients, in 51 messages"] {
        assert!(said.contains(word), "{word} is not in {said}");
    }
    let found: Value = serde_json::from_str(&succeed(&[&args[..], &["--processes", "2", "--json"]].concat())).unwrap();
    let spread = &found["processes"];
    let number = |value: &Value| value.as_f64().unwrap();
    // Two views of 16 x 16 pixels of 16 images, half of which are of the other process, and half of those computed here.
    assert_eq!(number(&spread["step_bytes"][0]), (2 * 16 / 2 * 16 * 16 * 3 * 4) as f64 / 2.0);
    assert_eq!(number(&spread["assignment_bytes"]), 120.0);
    assert_eq!(number(&spread["feature_bytes"]), (4 * 60 * 128 / 2) as f64);
    assert!(number(&spread["step_seconds"][0]) > 0.0 && number(&spread["seconds"]) > 0.0);
    assert!(fail(2, &[&args[..], &["--processes", "0"]].concat()).contains("0 processes"));
    assert!(fail(2, &["train", "--processes", "2"]).contains("--dry-run"));
}

#[test]
fn a_network_that_does_not_fit_into_memory_is_refused() {
    let plan = |images: usize, rounds: u32| {
        let load = Load { limit: Some(images), ..Load::new(Source::Bundled) };
        let dataset = Arc::new(load_images(&load, &|_, _| ()).unwrap());
        let mut config = Config::default();
        config.train.rounds = rounds;
        Plan::new(config.resolve(&dataset).unwrap(), dataset).unwrap()
    };
    let (many, few) = (plan(200, 1), plan(2, 1));
    let network = Network::new(&many.config.network, 32).unwrap();
    let refused = check_room(&network, &many, Some(1 << 28)).unwrap_err();
    assert!(refused.message.contains("GB of memory") && refused.hint.contains("network.width"), "{refused}");
    for (plan, free) in [(&many, Some(1 << 40)), (&many, None), (&few, Some(1 << 30)), (&plan(200, 0), Some(0))] {
        check_room(&network, plan, free).unwrap();
    }
    // No margin: what is planned must fit into what is free.
    let fits = |free: u64| check_room(&network, &many, Some(free)).is_ok();
    let least = (1 << 24..1 << 36).step_by(1 << 24).find(|free| fits(*free)).unwrap();
    assert!(!fits(least - (1 << 24)) && fits(least));
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
