//! Linear probe, fine-tuning and heat maps.

use crate::common::*;
use std::path::Path;

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&succeed(args)).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_linear_probe_measures_every_layer_and_keeps_its_report() {
    let (_dir, run) = reference().copy();
    let fast = ["eval", "linear", text(&run), "--layer", "all", "--fast", "--epochs", "20", "--json"];
    let report = json(&fast);
    let layers: Vec<&str> = report["layers"].as_array().unwrap().iter().map(|l| l["layer"].as_str().unwrap()).collect();
    assert_eq!(layers, ["layer1", "layer2", "layer3", "layer4", "pooled", "embedding"]);
    for layer in report["layers"].as_array().unwrap() {
        let curve = layer["accuracy"].as_array().unwrap();
        assert_eq!(curve.len(), 20);
        assert!(layer["best"].as_f64().unwrap() >= layer["last"].as_f64().unwrap());
        let loss: Vec<f64> = layer["loss"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        assert!(loss[19] < loss[0], "it learns: {loss:?}");
    }
    assert!(report["protocol"].as_str().unwrap().contains("fast"));
    assert!(run.join("eval/linear-fast.json").exists());
    assert_eq!(report, json(&[&fast[..], &["--threads", "1"]].concat()), "the same bits on one thread");

    let views = json(&["eval", "linear", text(&run), "--layer", "layer4,embedding", "--epochs", "2", "--json"]);
    assert_eq!(views["layers"].as_array().unwrap().len(), 2);
    assert!(run.join("eval/linear.json").exists());
    let said = fail(2, &["eval", "linear", text(&run), "--layer", "conv5"]);
    assert!(said.contains("conv5") && said.contains("layer4"), "{said}");
    fail(2, &["eval", "linear", text(&run), "--epochs", "0"]);
}

#[test]
fn alexnet_has_layers_of_its_own_and_a_set_without_tests_is_split() {
    let (dir, out) = place("run");
    let images = dir.path().join("images");
    class_folders(&images, 8);
    let args = ["train", text(&images), "--arch", "alexnet", "--size", "16", "--width", "4", "--epochs", "1"];
    succeed(&[&args[..], &["--out", text(&out), "--quiet"]].concat());
    let report = json(&["eval", "linear", text(&out), "--layer", "conv5,pooled", "--fast", "--epochs", "3", "--json"]);
    assert!(report["protocol"].as_str().unwrap().contains("every fifth training image"), "{report}");
    assert_eq!(report["layers"][0]["layer"], "conv5");
}

#[test]
fn fine_tuning_uses_its_share_of_the_labels() {
    let (_dir, run) = reference().copy();
    let args = ["eval", "finetune", text(&run), "--labels", "50%", "--epochs", "3", "--batch", "16", "--json"];
    let report = json(&args);
    assert!((25..=40).contains(&report["result"]["labelled"].as_u64().unwrap()), "{report}");
    assert_eq!(report["result"]["accuracy"].as_array().unwrap().len(), 1, "tested at the end");
    assert_eq!(report, json(&args), "the same bits again");
    let each = json(&[&args[..], &["--test-every", "1"]].concat());
    assert_eq!(each["result"]["accuracy"].as_array().unwrap().len(), 3);
    assert_eq!(each["result"]["last"], report["result"]["last"]);
    let untrained = json(&[&args[..], &["--untrained"]].concat());
    assert_eq!(untrained["weights"], "untrained");
    assert!(run.join("eval/finetune.json").exists() && run.join("eval/finetune-untrained.json").exists());
    let said = fail(2, &["eval", "finetune", text(&run), "--labels", "0%"]);
    assert!(said.contains("--labels"), "{said}");
}

#[test]
fn probes_need_labels() {
    let (dir, out) = place("run");
    let flat = dir.path().join("flat");
    std::fs::create_dir(&flat).unwrap();
    (0..6).for_each(|i| picture(&flat.join(format!("{i}.png")), 20, 0, i));
    let args = ["train", text(&flat), "--size", "16", "--width", "4", "--epochs", "1", "--out", text(&out), "--quiet"];
    succeed(&args);
    for verb in ["linear", "finetune"] {
        let said = fail(1, &["eval", verb, text(&out)]);
        assert!(said.contains("no labels") && said.contains("folder per class"), "{said}");
    }
}

#[test]
fn heat_is_drawn_for_every_snapshot_and_measured_in_boxes() {
    let (dir, run) = reference().copy();
    let voc = dir.path().join("voc");
    std::fs::create_dir_all(voc.join("Annotations")).unwrap();
    let (one, two) = (dir.path().join("one.png"), dir.path().join("two.png"));
    picture(&one, 40, 0, 1);
    picture(&two, 30, 1, 2);
    let xml = "<annotation><object><name>x</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>20</xmax><ymax>40</ymax>\
        </bndbox></object></annotation>";
    std::fs::write(voc.join("Annotations/one.xml"), xml).unwrap();
    let args = ["eval", "heatmap", text(&run), "--images", text(&one), text(&two), "--boxes", text(&voc), "--json"];
    let report = json(&[&args[..], &["--snapshots", "all"]].concat());
    let states = report["states"].as_array().unwrap();
    assert_eq!(states.len(), 4, "three snapshots and the end: {report}");
    for state in states {
        assert_eq!(state["images_with_boxes"], 1);
        assert!((state["area"].as_f64().unwrap() - 0.5).abs() < 0.01, "half of the picture: {state}");
        assert!((0.0..=1.0).contains(&state["inside"].as_f64().unwrap()));
    }
    assert!(run.join("eval/heat/one-model.png").exists() && run.join("eval/heat/two-r0-e005.png").exists());
    let picture = image::open(run.join("eval/heat/one-model.png")).unwrap();
    assert_eq!((picture.width(), picture.height()), (224, 224));

    std::fs::write(voc.join("Annotations/one.xml"), xml.replace("20", "wide")).unwrap();
    let said = fail(1, &args);
    assert!(said.contains("one.xml, line 1") && said.contains("wide"), "{said}");
    let said = fail(1, &["eval", "heatmap", text(&run), "--images", "nowhere.png"]);
    assert!(said.contains("nowhere.png"), "{said}");
    let said = fail(1, &["eval", "heatmap", text(&run), "--images", text(&one), "--boxes", text(dir.path())]);
    assert!(said.contains("Annotations"), "{said}");
    std::fs::remove_file(voc.join("Annotations/one.xml")).unwrap();
    assert!(fail(1, &args).contains("no annotation of any of these images"));
}
