//! `pcp reproduce`: whole tables, stopped and resumed, single cells, and missing data.

use crate::common::*;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// `pcp reproduce` at the smallest scale.
fn tiny<'a>(out: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["reproduce", "--scale", "tiny", "--out", out.to_str().unwrap()];
    args.extend(more);
    args
}

fn record(out: &Path, name: &str) -> Value {
    let path = out.join("tiny").join(name);
    serde_json::from_str(&fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))).unwrap()
}

fn page(out: &Path, name: &str) -> String {
    fs::read_to_string(out.join("tiny").join(name)).unwrap()
}

/// When every run was last written to.
fn times(out: &Path) -> Vec<(String, SystemTime)> {
    let runs = fs::read_dir(out.join("tiny/runs")).unwrap().flatten();
    let time = |path: &Path| fs::metadata(path.join("train.log")).unwrap().modified().unwrap();
    let mut times: Vec<_> =
        runs.map(|run| (run.file_name().to_string_lossy().into_owned(), time(&run.path()))).collect();
    times.sort();
    times
}

#[test]
fn a_table_is_run_cell_by_cell_and_never_twice() {
    let (_dir, out) = place("results");
    fs::create_dir_all(out.join("tiny")).unwrap();
    fs::write(out.join("tiny/table1.notes.md"), "Nothing was found.\n").unwrap();
    let shown = run(&tiny(&out, &["table1"]));
    let said = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(shown.status.success(), "{said}");
    for word in ["[1/4] table1/dc: pcp train bundled --preset dc", "[4/4] table1/cps: ", "to go", "epoch  12/12"] {
        assert!(said.contains(word), "{word} is not in {said}");
    }
    for (cell, system, paper) in
        [("dc", "dc", 73.6), ("pc", "pc", 76.9), ("cpr", "pc-cpr", 78.9), ("cps", "pcp-nowarm", 81.6)]
    {
        let record = record(&out, &format!("table1/{cell}-s0.json"));
        assert_eq!((&record["table"], &record["cell"]), (&Value::from("table1"), &Value::from(cell)));
        assert_eq!((&record["system"], &record["scale"]), (&Value::from(system), &Value::from("tiny")));
        assert_eq!((&record["paper"], &record["seed"]), (&Value::from(paper), &Value::from(0)));
        assert_eq!((&record["images"], &record["epochs"]), (&Value::from(400), &Value::from(12)));
        assert_eq!(record["accuracy_per_epoch"].as_array().unwrap().len(), 12);
        assert_eq!(record["accuracy_per_epoch"][11], serde_json::json!([12, record["knn_last"]]));
        for key in ["data", "revision", "version", "seconds", "knn_best", "best_epoch", "threads"] {
            assert!(!record[key].is_null(), "{key}: {record}");
        }
        let command = record["command"].as_str().unwrap();
        assert!(command.starts_with(&format!("pcp train bundled --preset {system} --clusters 13 ")), "{command}");
        assert!(command.contains(" --out ") && !command.contains("reproduce"), "{command}");
    }
    let table = page(&out, "table1.md");
    assert_eq!(String::from_utf8_lossy(&shown.stdout).trim(), table.trim(), "the table is shown, too");
    assert!(table.contains("| + CP_s | ") && !table.contains("| - |"), "{table}");
    assert!(table.ends_with("\nNothing was found.\n"), "{table}");

    // The cells that other tables have in common with it need no run either.
    let before = times(&out);
    let shared = ["--only", "table1", "--only", "gamma0.5", "--only", "table2/cpr-gamma0"];
    let shown = run(&[tiny(&out, &["table1", "table2"]), shared.to_vec()].concat());
    let said = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(shown.status.success() && said.contains("[4/4] table1/cps and 1 more: "), "{said}");
    assert_eq!(said.matches("made before").count(), 4, "{said}");
    assert_eq!(times(&out), before, "nothing was trained");
    let ours = record(&out, "table2/cpr-cps-gamma0.5-s0.json");
    assert_eq!(ours["knn_last"], record(&out, "table1/cps-s0.json")["knn_last"]);
}

#[test]
fn killed_or_stopped_inside_a_cell_it_resumes_there() {
    let (dir, out) = place("killed");
    let whole = dir.path().join("whole");
    succeed(&tiny(&whole, &["table1", "--only", "table1/dc", "--quiet"]));
    let args = tiny(&out, &["table1", "--only", "table1/dc", "--only", "table1/pc", "--quiet"]);
    let run_folder = out.join("tiny/runs/bundled-dc-k13-s0");
    let epochs = || fs::read_to_string(run_folder.join("metrics.jsonl")).unwrap_or_default().lines().count();
    let start = || pcp(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();

    let mut child = start();
    wait_for(&mut child, || epochs() >= 2);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!run_folder.join("result.json").exists(), "killed inside the run");
    let listed = succeed(&tiny(&out, &["table1", "--list"]));
    assert!(listed.contains("begun   table1/dc") && listed.contains("to do   table1/pc"), "{listed}");

    let done = epochs();
    let mut child = start();
    wait_for(&mut child, || epochs() > done + 1);
    signal(&child, libc::SIGINT);
    let stopped = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert_eq!(stopped.status.code(), Some(130), "{said}");
    assert!(said.contains("everything is saved") && said.contains("the same command: pcp reproduce"), "{said}");
    assert!(!out.join("tiny/table1/dc-s0.json").exists());

    succeed(&args);
    let log = fs::read_to_string(run_folder.join("train.log")).unwrap();
    assert_eq!(log.matches("going on").count(), 2, "{log}");
    assert_same(&bits(&whole.join("tiny/runs/bundled-dc-k13-s0")), &bits(&run_folder));
    let (whole, resumed) = (record(&whole, "table1/dc-s0.json"), record(&out, "table1/dc-s0.json"));
    assert_eq!(whole["accuracy_per_epoch"], resumed["accuracy_per_epoch"]);
    assert!(succeed(&tiny(&out, &["table1", "--list"])).contains("done    table1/pc"));
}

/// Waits until `ready`; the child must not have ended before.
fn wait_for(child: &mut Child, ready: impl Fn() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        assert!(started.elapsed() < Duration::from_secs(120), "nothing happened for two minutes");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn seeds_make_a_mean_and_a_spread() {
    let (_dir, out) = place("results");
    succeed(&tiny(&out, &["table5", "--only", "table5/dc", "--seeds", "0", "--quiet"]));
    succeed(&tiny(&out, &["table5", "--only", "table5/dc", "--seeds", "0,1", "--quiet"]));
    let table = page(&out, "table5.md");
    let line = table.lines().find(|l| l.starts_with("| DC |")).unwrap();
    assert!(line.contains(" ± ") && table.contains("seeds, which are 0, 1"), "{table}");
    assert!(table.contains("| PCP | - | 84.7 |"), "{table}");
}

#[test]
fn rounds_of_one_run_are_cells_of_their_own() {
    let (_dir, out) = place("results");
    succeed(&tiny(&out, &["table4", "--only", "table4/pcp-round", "--quiet"]));
    let (first, second) = (record(&out, "table4/pcp-round0-s0.json"), record(&out, "table4/pcp-round1-s0.json"));
    assert_eq!((&first["epochs"], &second["epochs"]), (&Value::from(12), &Value::from(24)));
    assert_eq!(first["accuracy_per_epoch"][11], second["accuracy_per_epoch"][11]);
    let table = page(&out, "table4.md");
    let line = table.lines().find(|l| l.starts_with("| PCP |")).unwrap();
    assert!(line.ends_with("| - | - | - |") && line.matches(" - ").count() == 3, "{table}");
}

#[test]
fn a_failed_cell_is_reported_and_the_others_run() {
    let (_dir, out) = place("results");
    succeed(&tiny(&out, &["table1", "--only", "table1/dc", "--quiet"]));
    let config = out.join("tiny/runs/bundled-dc-k13-s0/config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("lr = 0.03\n", "lr = 0.5\n")).unwrap();
    let said = fail(1, &tiny(&out, &["table1", "--only", "table1/dc", "--only", "table1/pc"]));
    for word in ["failed  table1/dc: ", "config.toml was changed or damaged", "1 of 2 cells failed: table1/dc"] {
        assert!(said.contains(word), "{word} is not in {said}");
    }
    let table = page(&out, "table1.md");
    assert!(table.contains("failed: "), "{table}");
    assert!(record(&out, "table1/pc-s0.json")["knn_last"].is_f64(), "the other one was run");
}

#[test]
fn missing_data_is_named_for_every_cell() {
    let (dir, out) = place("results");
    let (text, data) = (out.to_str().unwrap(), dir.path().to_str().unwrap());
    let said = fail(1, &["reproduce", "table1", "--out", text]);
    assert!(said.contains("4 of 4 cells failed") && said.matches("give --data-dir").count() == 4, "{said}");
    let said = fail(
        1,
        &["reproduce", "table6", "table8", "--scale", "full", "--only", "/dc", "--data-dir", data, "--out", text],
    );
    for word in [
        "table6/dc-knn-cifar10: CIFAR-10 is incomplete",
        "table6/dc-knn-cifar100: CIFAR-100",
        "table8/dc: there is no folder",
    ] {
        assert!(said.contains(word), "{word} is not in {said}");
    }
    let table = fs::read_to_string(out.join("full/table6.md")).unwrap();
    assert!(table.contains("| DC | failed: CIFAR-10") && table.contains("failed: CIFAR-100"), "{table}");
    let said = fail(1, &["reproduce", "table9", "--only", "table9/pcp", "--data-dir", data, "--out", text]);
    assert!(said.contains("there is no folder") && said.contains("VOCdevkit/VOC2007"), "{said}");
}

#[test]
fn unknown_names_are_answered_with_suggestions() {
    let (_dir, out) = place("results");
    let said = fail(2, &tiny(&out, &["table5", "--only", "pcq"]));
    assert!(said.contains("there is no cell pcq") && said.contains("table5/pcp-rounds5"), "{said}");
    assert!(fail(2, &tiny(&out, &["table10"])).contains("table1"));
    assert!(fail(2, &tiny(&out, &[])).contains("TABLE"));
    assert!(fail(2, &["reproduce", "all", "--scale", "huge"]).contains("mini"));
    assert!(fail(2, &tiny(&out, &["table1", "--seeds", "a"])).contains("seeds"));
    let listed = succeed(&[
        "reproduce",
        "all",
        "--scale",
        "mini",
        "--data-dir",
        "DATA",
        "--out",
        out.to_str().unwrap(),
        "--list",
    ]);
    assert!(listed.contains("to do   table7/moco-knn") && listed.contains("to do   table9/pcp"), "{listed}");
    assert!(listed.contains("pcp train DATA/in100 --preset in100 --preset moco"), "{listed}");
    assert!(!out.exists(), "nothing was run");
}

/// Linear cells probe the runs of the kNN cells, once.
#[test]
fn linear_cells_probe_the_runs_that_are_there() {
    let (_dir, out) = place("results");
    let args = ["reproduce", "table7", "--scale", "tiny", "--only", "pcp", "--quiet", "--out", out.to_str().unwrap()];
    succeed(&args);
    let record = std::fs::read_to_string(out.join("tiny/table7/pcp-linear-s0.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert!(record["linear_last"].as_f64().unwrap() > 0.0 && record["linear_best"].is_number(), "{record}");
    let runs: Vec<_> = std::fs::read_dir(out.join("tiny/runs")).unwrap().flatten().map(|e| e.path()).collect();
    assert_eq!(runs.len(), 1, "one run has both cells");
    let probe = runs[0].join("eval/linear.json");
    let before = std::fs::metadata(&probe).unwrap().modified().unwrap();
    succeed(&args);
    assert_eq!(std::fs::metadata(&probe).unwrap().modified().unwrap(), before, "what is there is not made again");
}

/// Cells of Table 9 are detectors on the networks of runs, trained and measured once.
#[test]
fn detectors_are_built_on_the_runs_that_are_there() {
    let (_dir, out) = place("results");
    let args = tiny(&out, &["table9", "--only", "table9/pcp", "--only", "table9/random", "--quiet"]);
    let table = succeed(&args);
    assert!(table.contains("| PCP | ") && table.contains("all points"), "{table}");
    let found = record(&out, "table9/pcp-s0.json");
    assert!(found["map11"].is_number() && found["map"].is_number(), "{found}");
    let command = found["detector_command"].as_str().unwrap();
    assert!(
        command.starts_with("pcp detect train ") && command.contains(" --classes disc,square,triangle "),
        "{command}"
    );
    let made = out.join("tiny/runs/bundled-pcp-k46-s0-voc/eval/test.json");
    let before = fs::metadata(&made).unwrap().modified().unwrap();
    succeed(&args);
    assert_eq!(fs::metadata(&made).unwrap().modified().unwrap(), before, "what is there is not made again");
    assert!(succeed(&tiny(&out, &["table9", "--list"])).contains("done    table9/pcp"));
}

/// The tiny cell of PCP with warm-up and rounds has all the phases of the full one.
#[test]
fn the_tiny_pcp_cell_has_all_phases() {
    let (_dir, out) = place("results");
    succeed(&[
        "reproduce",
        "table4",
        "--scale",
        "tiny",
        "--only",
        "pcp-warm",
        "--quiet",
        "--out",
        out.to_str().unwrap(),
    ]);
    let runs: Vec<_> = std::fs::read_dir(out.join("tiny/runs")).unwrap().flatten().map(|e| e.path()).collect();
    assert_eq!(runs.len(), 1, "rounds are cells of one run: {runs:?}");
    let metrics = std::fs::read_to_string(runs[0].join("metrics.jsonl")).unwrap();
    let epochs: Vec<serde_json::Value> = metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let number = |epoch: &serde_json::Value, key: &str| epoch[key].as_f64().unwrap();
    let any = |key: &str| epochs.iter().any(|e| number(e, key) > 0.0);
    let (first, last) = (&epochs[0], epochs.iter().rfind(|e| number(e, "round") == 0.0).unwrap());
    assert!(number(first, "clusters") > 300.0 && number(last, "clusters") == 46.0, "K fell to its floor");
    assert!(any("kept") && any("dropped") && any("pulled_back"), "CP_r and CP_s acted: {metrics}");
    assert!(first["loss_is"].is_number() && last["loss_is"].is_null(), "the warm-up ended");
    assert!(number(last, "lr") < 0.02 * number(first, "lr"), "lr dropped twice");
    let second: Vec<_> = epochs.iter().filter(|e| number(e, "round") == 1.0).collect();
    assert_eq!(second.len(), 12, "round 2 was there");
    assert_eq!(number(second[0], "lr"), number(first, "lr"), "and began with the lr of the first");
    assert!(second.iter().all(|e| number(e, "clusters") == 46.0 && e["loss_is"].is_null()));
}

#[test]
fn figures_are_drawn_once() {
    let (_dir, out) = place("results");
    succeed(&tiny(&out, &["figure4", "figure5", "--only", "figure4/pcp-warm", "--only", "figure5/dc", "--quiet"]));
    let page5 = page(&out, "figure5.md");
    for words in ["majority purity", "classes that are no majority", "AND has not been drawn", "figure5/dc/tsne.png"] {
        assert!(page5.contains(words), "{words} is not in {page5}");
    }
    assert!(page(&out, "figure4.md").contains("There were no boxes"));
    let dc = record(&out, "figure5/dc.json");
    assert_eq!((&dc["system"], &dc["clusters"]["score"]["k"]), (&Value::from("dc"), &Value::from(14)));
    assert!(dc["clusters"]["trustworthiness"].as_f64().unwrap() > 0.5);
    assert_eq!(record(&out, "figure4/pcp-warm.json")["heat"]["states"].as_array().unwrap().len(), 5);
    let picture = out.join("tiny/figure4/pcp-warm/heat.png");
    let before = fs::metadata(&picture).unwrap().modified().unwrap();
    let (width, height) = image::image_dimensions(&picture).unwrap();
    assert_eq!((width, height), (6 * 228, 6 * 228), "an image and five states, six rows");
    for name in ["tsne.svg", "tsne.csv", "tsne.png"] {
        assert!(out.join("tiny/figure5/dc").join(name).exists(), "{name}");
    }
    succeed(&tiny(&out, &["figure4", "--only", "figure4/pcp-warm", "--quiet"]));
    assert_eq!(fs::metadata(&picture).unwrap().modified().unwrap(), before, "it was drawn before");
}
