//! `pcp eval clusters` and `pcp eval tsne`.

use crate::common::*;
use serde_json::Value;
use std::fs;
use std::path::Path;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn train(data: &str, out: &Path, more: &[&str]) {
    let quick = ["--size", "16", "--width", "4", "--epochs", "2", "--batch", "16", "--quiet"];
    succeed(&[&["train", data, "--out", out.to_str().unwrap()][..], &quick, more].concat());
}

#[test]
fn a_labelled_run() {
    let (dir, out) = reference().copy();
    let path = out.to_str().unwrap();

    let shown = succeed(&["eval", "clusters", path]);
    for word in [
        "14 clusters of 299 test images",
        "purity",
        "no majority",
        "Hungarian",
        "NMI",
        "ARI",
        "silhouette",
        "majority",
        "precision",
        "pulled back rightly",
    ] {
        assert!(shown.contains(word), "{word} is not in {shown}");
    }
    let clusters = json(&succeed(&["eval", "clusters", path, "--json"]));
    assert_eq!(json(&fs::read_to_string(out.join("eval/clusters.json")).unwrap()), clusters);
    for key in ["purity", "accuracy", "nmi"] {
        let value = clusters["agreement"][key].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&value), "{key}: {value}");
    }
    assert!(clusters["agreement"]["accuracy"].as_f64() <= clusters["agreement"]["purity"].as_f64());
    assert!(clusters["silhouette"].is_f64());
    let sizes = clusters["clusters"].as_array().unwrap().iter().map(|c| c["size"].as_u64().unwrap());
    assert_eq!(sizes.sum::<u64>(), 299);
    let filter = clusters["filter"].as_array().unwrap();
    assert_eq!(filter.len(), 16, "every epoch");
    for epoch in filter {
        let count = |key: &str| epoch[key].as_u64().unwrap();
        assert_eq!(count("members") + count("alone"), 60);
        assert_eq!(count("left") + count("removed") + count("instances"), count("members"));
        assert_eq!(count("removed_rightly") + count("lost"), count("removed"));
    }
    assert!(filter.iter().any(|e| e["precision"].is_f64() && e["purity_after"].is_f64()));

    let one = json(&succeed(&["eval", "clusters", path, "--k", "1", "--best", "--threads", "1", "--json"]));
    assert_eq!((&one["silhouette"], one["agreement"]["nmi"].as_f64()), (&Value::Null, Some(0.0)));
    assert_eq!(one["weights"], "model-best.safetensors");

    let tsne = json(&succeed(&["eval", "tsne", path, "--json"]));
    assert_eq!((&tsne["images"], &tsne["images_of"]), (&Value::from(299), &Value::from("test images")));
    let csv = fs::read_to_string(out.join("eval/tsne.csv")).unwrap();
    assert!(csv.starts_with("file,label,x,y\n") && csv.lines().count() == 300, "{csv}");
    let svg = fs::read(out.join("eval/tsne.svg")).unwrap();
    let png = image::open(out.join("eval/tsne.png")).unwrap().to_rgb8();
    assert_eq!(png.get_pixel(0, 0).0, [255; 3]);
    assert!(png.pixels().any(|p| p.0 != [255; 3]));

    let elsewhere = dir.path().join("new/pictures");
    let more = ["--out", elsewhere.to_str().unwrap(), "--threads", "1"];
    succeed(&[&["eval", "tsne", path][..], &more].concat());
    assert_eq!(fs::read(elsewhere.join("tsne.svg")).unwrap(), svg, "threads change nothing");
    let some = json(&succeed(&["eval", "tsne", path, "--part", "train", "--limit", "20", "--seed", "3", "--json"]));
    assert_eq!((&some["images"], &some["images_of"]), (&Value::from(20), &Value::from("training images")));
    assert!(some["perplexity"].as_f64().unwrap() < 7.0, "a third of the other images");

    for (args, words) in [
        (&["clusters", path, "--k", "300"][..], &["300", "1 to 299"][..]),
        (&["clusters", path, "--k", "0"], &["--k", "classes"]),
        (&["clusters", path, "--k", "many"], &["many", "classes"]),
        (&["clusters", path, "--k", "-3"], &["-3", "classes"]),
        (&["clusters", "no/such/run"], &["run folder"]),
        (&["tsne", path, "--perplexity", "0"], &["perplexity", "from 1 on"]),
        (&["tsne", path, "--perplexity", "nan"], &["perplexity", "from 1 on"]),
        (&["tsne", path, "--limit", "0"], &["--limit", "leave it out"]),
        (&["tsne", path, "--part", "all"], &["--part", "test, train"]),
    ] {
        let said = fail(2, &[&["eval"], args].concat());
        for word in words {
            assert!(said.contains(word), "{args:?}: {word} is not in {said}");
        }
    }
}

#[test]
fn a_folder_without_labels() {
    let (dir, out) = place("run");
    let photos = dir.path().join("photos");
    fs::create_dir(&photos).unwrap();
    for i in 0..20 {
        picture(&photos.join(format!("{i}, <b>.png")), 24, (i % 3) as u8, i);
    }
    train(photos.to_str().unwrap(), &out, &["--clusters", "4"]);
    let path = out.to_str().unwrap();
    let shown = succeed(&["eval", "clusters", path]);
    for word in ["4 clusters of 20 training images (there are no test images)", "silhouette", "no labels"] {
        assert!(shown.contains(word), "{word} is not in {shown}");
    }
    assert!(!shown.contains("NMI") && !shown.contains("precision"), "{shown}");
    assert_eq!(json(&succeed(&["eval", "clusters", path, "--k", "7", "--json"]))["k"], 7);
    let said = fail(1, &["eval", "clusters", path, "--k", "classes"]);
    assert!(said.contains("no labels") && said.contains("--k 10"), "{said}");
    succeed(&["eval", "tsne", path]);
    let csv = fs::read_to_string(out.join("eval/tsne.csv")).unwrap();
    assert!(csv.contains("\"0, <b>.png\",,"), "{csv}");
    assert!(!fs::read_to_string(out.join("eval/tsne.svg")).unwrap().contains("<text"));
}

#[test]
fn class_folders_with_one_cluster() {
    let (dir, out) = place("run");
    let photos = dir.path().join("photos");
    class_folders(&photos, 5);
    train(photos.to_str().unwrap(), &out, &["--clusters", "1"]);
    let path = out.to_str().unwrap();
    let report = json(&succeed(&["eval", "clusters", path, "--json"]));
    assert_eq!((&report["k"], &report["images"]), (&Value::from(3), &Value::from(15)));
    assert!(report["images_of"].as_str().unwrap().contains("no test images"));
    // What a killed command left is removed by the next one.
    let litter = out.join("eval/tsne.svg.1-0.pcp-unfinished");
    fs::write(&litter, "half").unwrap();
    succeed(&["eval", "tsne", path]);
    assert!(!litter.exists());
    let said = fail(1, &["eval", "tsne", path, "--part", "test"]);
    assert!(said.contains("no test images") && said.contains("--part train"), "{said}");
}

#[test]
fn a_run_that_was_stopped_at_its_first_epoch() {
    let (_dir, out) = place("run");
    succeed(&words(&small(&out, &["--quiet", "--epochs", "1", "--rounds", "1"])));
    // Before the end of the first epoch there are checkpoints, but no clusters and no model.
    for name in ["model.safetensors", "model-best.safetensors", "result.json", "clusters.csv", "metrics.jsonl"] {
        let _ = fs::remove_file(out.join(name));
    }
    fs::remove_dir_all(out.join("clusters")).unwrap();
    let path = out.to_str().unwrap();
    let report = json(&succeed(&["eval", "clusters", path, "--json"]));
    assert_eq!(report["filter"], serde_json::json!([]));
    assert!(report["agreement"].is_object());
    assert!(succeed(&["eval", "clusters", path]).contains("purity"));
    succeed(&["eval", "tsne", path]);
    fs::remove_dir_all(out.join("checkpoints")).unwrap();
    fs::create_dir(out.join("checkpoints")).unwrap();
    for verb in ["clusters", "tsne"] {
        assert!(fail(1, &["eval", verb, path]).contains("no weights yet"));
    }
}

#[test]
fn a_network_that_has_not_learned() {
    let (_dir, out) = place("run");
    succeed(&words(&small(&out, &["--quiet", "--rounds", "0"])));
    let path = out.to_str().unwrap();
    for verb in ["knn", "clusters", "tsne"] {
        let shown = succeed(&["eval", verb, path]);
        assert!(shown.contains("model.safetensors, untrained"), "{shown}");
        let report = json(&succeed(&["eval", verb, path, "--json"]));
        assert_eq!((&report["round"], &report["epoch"]), (&Value::Null, &Value::Null), "{report}");
    }
}

#[test]
fn a_checkpoint_is_no_model() {
    let (dir, out) = place("run");
    succeed(&words(&small(&out, &["--quiet", "--epochs", "1", "--rounds", "1"])));
    let shown = succeed(&["eval", "knn", out.to_str().unwrap()]);
    assert!(shown.contains("model.safetensors, round 1, epoch 1"), "{shown}");
    let checkpoint = fs::read_dir(out.join("checkpoints")).unwrap().next().unwrap().unwrap().path();
    let table = dir.path().join("table.npy");
    let args = ["embed", checkpoint.to_str().unwrap(), "bundled", "--out", table.to_str().unwrap()];
    let said = fail(1, &args);
    assert!(said.contains("of another kind") && said.contains("model.safetensors"), "{said}");
    assert!(!table.exists());
}

#[test]
fn the_bench_reports_json() {
    let report = json(&succeed(&["bench", "tsne", "--n", "50", "--dim", "4", "--json"]));
    assert!(report["seconds"].is_f64() && report["trustworthiness"].as_f64().unwrap() > 0.5, "{report}");
}

#[test]
fn help_has_examples() {
    for verb in ["clusters", "tsne"] {
        assert!(succeed(&["eval", verb, "--help"]).contains("Examples:"));
    }
}
