//! Every system gives the same bits on any number of threads and after a kill in the middle of an epoch.

use crate::common::*;
use pcp::config::{Config, DATA_PRESETS, PRESETS, preset};
use pcp::data::{Load, Source};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Two rounds, a partial last batch, checkpoints within epochs.
fn arguments(out: &Path, preset: &str, more: &[&str]) -> Vec<String> {
    let own = ["--preset", preset, "--epochs", "3", "--save-minutes", "0.000000001"];
    small(out, &[&own[..], more].concat())
}

/// Threads, then a kill in the middle and a resume: three runs with the same bits.
fn bits_hold(preset: &str, more: &[&str]) {
    let (dir, killed) = place("killed");
    let whole = dir.path().join("whole");
    succeed(&words(&arguments(&whole, preset, &[more, &["--threads", "1", "--quiet"]].concat())));
    // In the second round, within an epoch: there AND has neighbours, LA clusterings, DeepCluster a half-trained classifier.
    let within = (0..20).any(|_| {
        let _ = std::fs::remove_dir_all(&killed);
        let args = arguments(&killed, preset, &[more, &["--threads", "3", "--quiet"]].concat());
        let mut child = pcp(&words(&args)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while !newest(&killed).starts_with("r001-e00001-b0000002") && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(300));
        }
        let _ = child.kill();
        child.wait().unwrap();
        let name = newest(&killed);
        name.starts_with("r001") && !name.contains("-b0000000")
    });
    assert!(within, "it could not be killed within an epoch of the second round");
    succeed(&["train", "--resume", killed.to_str().unwrap(), "--quiet"]);
    assert_same(&bits(&whole), &bits(&killed));
    let metrics = std::fs::read_to_string(whole.join("metrics.jsonl")).unwrap();
    assert_eq!(without_loss(&metrics), Vec::<usize>::new(), "{metrics}");
}

/// The lines of `metrics.jsonl` whose loss is not finite: JSON has no NaN, so that it is written as null.
fn without_loss(metrics: &str) -> Vec<usize> {
    let loss = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["loss"].as_f64();
    let lacks = |(_, line): &(usize, &str)| !loss(line).is_some_and(f64::is_finite);
    metrics.lines().enumerate().filter(lacks).map(|(i, _)| i + 1).collect()
}

#[test]
fn a_loss_that_is_not_finite_is_found() {
    let line = |loss: f64| serde_json::json!({ "epoch": 0, "loss": loss, "knn": null }).to_string();
    let metrics = [line(2.5), line(f64::NAN), line(f64::INFINITY), "{\"epoch\":3}".into()].join("\n");
    assert_eq!(without_loss(&metrics), [2, 3, 4]);
}

/// Without labels, a few epochs on 1,000 bundled images raise kNN from 35 % to 56 % (of 299 test images, whose standard error is 3 %).
#[test]
fn training_without_labels_learns() {
    let (_dir, out) = place("run");
    let data = ["train", "--limit", "1000", "--size", "16", "--clusters", "50", "--no-report", "--quiet", "--json"];
    let network = ["--preset", "pcp", "--width", "8", "--batch", "64", "--epochs", "8", "--out", out.to_str().unwrap()];
    let said = succeed(&[&data[..], &network].concat());
    let result: serde_json::Value = serde_json::from_str(&said).unwrap();
    let (untrained, last) = (result["knn_untrained"].as_f64().unwrap(), result["knn_last"].as_f64().unwrap());
    assert!(last > untrained + 12.0, "kNN went from {untrained} % to {last} %");
}

/// Name of the newest checkpoint.
fn newest(run: &Path) -> String {
    let entries = std::fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".safetensors")).max().unwrap_or_default()
}

#[test]
fn instance_recognition() {
    bits_hold("ir", &[]);
}

#[test]
fn instance_spreading() {
    bits_hold("is", &[]);
}

#[test]
fn anchor_neighbourhoods() {
    bits_hold("and", &["--set", "and.share=0.5", "--set", "and.neighbours=3"]);
}

#[test]
fn local_aggregation() {
    bits_hold("la", &["--set", "la.instances_until=0.4", "--set", "la.background=40"]);
}

#[test]
fn deepcluster() {
    bits_hold("deepcluster", &["--set", "deepcluster.components=64"]);
}

#[test]
fn momentum_contrast() {
    bits_hold("moco", &["--set", "moco.queue=40"]);
}

#[test]
fn momentum_contrast_version_two_with_alexnet() {
    bits_hold("moco2", &["--arch", "alexnet"]);
}

#[test]
fn views_matched_within_the_batch() {
    bits_hold("simclr", &[]);
}

#[test]
fn views_that_predict_each_other() {
    bits_hold("byol", &[]);
}

#[test]
fn many_views_and_their_coding_rate() {
    bits_hold("emp", &["--set", "emp.views=3"]);
}

#[test]
fn patch_features_as_targets() {
    bits_hold("pcp-plus", &[]);
}

#[test]
fn patch_features_and_purified_clusters_as_targets() {
    bits_hold("pcp-plus", &["--set", "plus.clusters=true", "--set", "plus.share=0.25"]);
}

/// The patch features have more numbers than the embedding that learns them.
#[test]
fn the_leading_numbers_of_patch_features_as_targets() {
    bits_hold("pcp-plus", &["--set", "network.embedding=6", "--set", "plus.share=0.25"]);
}

#[test]
fn supervised() {
    bits_hold("supervised", &[]);
}

#[test]
fn nothing_is_trained_at_random() {
    let (_dir, out) = place("random");
    let said = succeed(&words(&small(&out, &["--preset", "random", "--rounds", "0", "--quiet", "--json"])));
    let result: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(result["knn_last"], result["knn_untrained"]);
    assert_eq!(result["epochs"], 0);
    assert!(out.join("model.safetensors").exists() && out.join("clusters.csv").exists());
}

#[test]
fn the_paper_alexnet_with_dropout_trains_under_momentum_contrast() {
    let (_dir, out) = place("alexnet");
    let args = ["--preset", "moco", "--arch", "alexnet224", "--size", "80", "--limit", "24", "--epochs", "1"];
    succeed(&words(&small(&out, &[&args[..], &["--rounds", "1", "--quiet"]].concat())));
}

#[test]
fn labels_are_needed_to_learn_by_them() {
    let (dir, out) = place("run");
    let flat = dir.path().join("flat");
    std::fs::create_dir(&flat).unwrap();
    for i in 0..4 {
        picture(&flat.join(format!("{i}.png")), 20, 0, i);
    }
    let said = fail(1, &["train", flat.to_str().unwrap(), "--preset", "supervised", "--out", out.to_str().unwrap()]);
    assert!(said.contains("no labels"), "{said}");
    assert!(!out.exists(), "nothing is left behind");
}

/// Degenerate sets by name: two images, and all the same image.
#[test]
fn two_images_and_equal_images_train_under_every_system() {
    let (dir, _) = place("");
    for (name, count, kind) in [("two", 2, 1), ("same", 9, 0)] {
        for i in 0..count {
            let folder = dir.path().join(name).join(if i % 2 == 0 { "a" } else { "b" });
            std::fs::create_dir_all(&folder).unwrap();
            picture(&folder.join(format!("{i}.png")), 20, kind, if name == "same" { 0 } else { i });
        }
        for preset in
            ["ir", "is", "and", "la", "deepcluster", "moco", "simclr", "byol", "emp", "pcp-plus", "supervised"]
        {
            let out = dir.path().join(format!("{name}-{preset}"));
            let root = dir.path().join(name);
            let args =
                ["--preset", preset, "--size", "16", "--width", "4", "--epochs", "2", "--rounds", "2", "--quiet"];
            let args = [&["train", root.to_str().unwrap(), "--out", out.to_str().unwrap()][..], &args].concat();
            succeed(&args);
        }
    }
}

/// The presets of systems, and the settings that each may change.
const OWN: &[(&str, &[&str])] = &[
    ("pcp", &[]),
    ("pc", &["purify.gamma", "purify.votes", "objective.warmup_rounds"]),
    ("pc-cpr", &["purify.votes", "objective.warmup_rounds"]),
    ("pcp-nowarm", &["objective.warmup_rounds"]),
    ("pcp-paper", &["purify.reliable_from", "objective.form", "objective.bank_rows"]),
    ("pcp-release", &["purify.stop_at_first_single", "objective.warmup_rounds"]),
    ("dc", &["clusters.progressive", "purify.gamma", "purify.votes", "objective.warmup_rounds"]),
    ("ir", &["method.system", "objective.warmup_rounds"]),
    ("is", &["method.system", "train.lr_steps", "objective.warmup_rounds"]),
    ("and", &["method.system", "train.rounds", "train.nesterov", "objective.warmup_rounds"]),
    ("and-oneoff", &["method.system", "train.rounds", "train.nesterov", "and.share", "objective.warmup_rounds"]),
    (
        "la",
        &[
            "method.system",
            "train.weight_decay",
            "clusters.features",
            "clusters.floor",
            "objective.tau",
            "objective.warmup_rounds",
        ],
    ),
    (
        "deepcluster",
        &[
            "method.system",
            "train.batch",
            "train.lr",
            "train.lr_steps",
            "train.weight_decay",
            "clusters.features",
            "objective.warmup_rounds",
        ],
    ),
    ("moco", &["method.system", "train.weight_decay", "objective.tau", "objective.warmup_rounds"]),
    (
        "moco2",
        &[
            "method.system",
            "augment.hue",
            "augment.jitter_probability",
            "augment.blur",
            "network.head",
            "train.lr_schedule",
            "train.weight_decay",
            "objective.tau",
            "objective.warmup_rounds",
        ],
    ),
    (
        "simclr",
        &[
            "method.system",
            "augment.hue",
            "augment.jitter_probability",
            "network.head",
            "train.lr_schedule",
            "train.nesterov",
            "objective.tau",
            "objective.warmup_rounds",
        ],
    ),
    (
        "byol",
        &[
            "method.system",
            "augment.hue",
            "augment.jitter_probability",
            "network.head",
            "train.lr_schedule",
            "train.nesterov",
            "objective.warmup_rounds",
        ],
    ),
    (
        "emp",
        &[
            "method.system",
            "augment.scale",
            "augment.hue",
            "augment.jitter_probability",
            "network.head",
            "train.batch",
            "train.lr",
            "train.lr_schedule",
            "train.nesterov",
            "objective.warmup_rounds",
        ],
    ),
    (
        "pcp-plus",
        &[
            "method.system",
            "augment.scale",
            "augment.jitter_probability",
            "network.embedding",
            "network.head",
            "train.lr",
            "train.lr_schedule",
            "train.nesterov",
            "objective.warmup_rounds",
        ],
    ),
    (
        "supervised",
        &[
            "method.system",
            "augment.crop",
            "augment.jitter_probability",
            "augment.grey",
            "train.lr",
            "train.lr_schedule",
            "objective.warmup_rounds",
            "evaluate.features",
        ],
    ),
    // Photographs as they are: no network has to be small.
    ("patches", &["method.system", "data.size", "data.stored", "train.rounds", "objective.warmup_rounds"]),
    ("random", &["train.rounds", "objective.warmup_rounds"]),
];

#[test]
fn systems_differ_in_nothing_but_their_own_settings() {
    let systems: Vec<&str> = PRESETS.iter().map(|p| p.0).filter(|p| !DATA_PRESETS.contains(p)).collect();
    assert_eq!(systems.len(), OWN.len(), "every system's preset is in the list");
    let load = Load { limit: Some(400), ..Load::new(Source::Bundled) };
    let dataset = pcp::data::load(&load, &|_, _| ()).unwrap();
    let resolved = |name: &str| {
        let config = Config::from_layers(&[preset(name).unwrap()]).unwrap();
        config.resolve(&dataset).unwrap().entries()
    };
    let common = resolved("pcp");
    for (name, own) in OWN {
        let differs: BTreeSet<String> =
            resolved(name).into_iter().zip(&common).filter(|(a, b)| a != *b).map(|(a, _)| a.0).collect();
        assert_eq!(differs, own.iter().map(|s| s.to_string()).collect(), "{name}");
    }
}
