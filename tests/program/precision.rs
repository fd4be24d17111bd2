//! `--precision`: training in bf16 from the command to the files, the same bits on any number of threads and after a resume.

use crate::common::*;
use serde_json::Value;
use std::path::Path;

/// Whether this CPU computes in bf16; otherwise the test says that it is skipped.
#[allow(clippy::print_stderr)]
fn supported() -> bool {
    let supported = kernels::bf16_supported();
    if !supported {
        eprintln!("skipped: this CPU has no avx512_bf16");
    }
    supported
}

fn result(run: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(run.join("result.json")).unwrap()).unwrap()
}

#[test]
fn bf16_gives_the_same_bits_on_any_number_of_threads_and_after_a_kill() {
    if !supported() {
        return;
    }
    let whole = Finished::train(&["--precision", "bf16", "--quiet", "--no-report"]);
    let other = Finished::train(&["--precision", "bf16", "--quiet", "--no-report", "--threads", "1"]);
    assert_same(&whole.bits, &other.bits);
    let model = |bits: &[(String, Vec<u8>)]| bits.iter().find(|f| f.0 == "model.safetensors").unwrap().1.clone();
    assert_eq!(model(&whole.bits), model(&reference().bits), "auto is bf16 where the CPU has it");
    let exact = Finished::train(&["--precision", "f32", "--quiet", "--no-report"]);
    assert_ne!(model(&whole.bits), model(&exact.bits), "bf16 rounds otherwise than f32");

    let (_dir, out) = place("killed");
    let mut child = start(&words(&small(&out, &["--precision", "bf16", "--quiet", "--no-report"])));
    assert!(wait_for(&mut child, || checkpoints(&out).len() >= 2 && out.join("metrics.jsonl").exists()));
    child.kill().unwrap();
    child.wait().unwrap();
    let said = fail(2, &["train", "--resume", out.to_str().unwrap(), "--precision", "f32"]);
    assert!(said.contains("train.precision is \"bf16\", not \"f32\""), "{said}");
    succeed(&["train", "--resume", out.to_str().unwrap(), "--quiet", "--no-report"]);
    assert_same(&whole.bits, &bits(&out));
}

#[test]
fn the_precision_stands_in_settings_model_and_result_and_other_commands_follow_it() {
    if !supported() {
        return;
    }
    let (dir, run) = place("run");
    let photos = dir.path().join("photos");
    class_folders(&photos, 6);
    let photos = photos.to_str().unwrap();
    succeed(&words(&small(&run, &[photos, "--precision", "bf16", "--quiet", "--no-report"])));
    let settings = std::fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(settings.contains("precision = \"bf16\""), "{settings}");
    assert_eq!(result(&run)["precision"], "bf16");
    let model = pcp::model::Model::open(run.join("model.safetensors")).unwrap();
    assert_eq!(model.card.precision, pcp::config::Precision::Bf16);
    assert_eq!(model.network.precision, pcp::config::Precision::Bf16);
    // The embeddings of the training images are those that the run has written; in f32 they would be off by some thousandths.
    let out = dir.path().join("embeddings.npy");
    succeed(&["embed", run.to_str().unwrap(), photos, "--out", out.to_str().unwrap()]);
    let [again, written] =
        [&out, &run.join("embeddings.npy")].map(|path| pcp_core::io::matrix::read(path).unwrap().matrix);
    assert_eq!((again.rows, again.dim), (written.rows, written.dim));
    let far = again.values.iter().zip(&written.values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far < 1e-6, "{far}");

    let (_dir, run) = reference().copy();
    let settings = std::fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(settings.contains("precision = \"bf16\"") && result(&run)["precision"] == "bf16", "{settings}");
}

#[test]
fn a_step_in_bf16_takes_less_memory() {
    if !supported() {
        return;
    }
    let memory = |precision: &str| {
        let args = ["train", "--dry-run", "--json", "--limit", "60", "--width", "16", "--precision", precision];
        serde_json::from_str::<Value>(&succeed(&args)).unwrap()["memory"][2].as_f64().unwrap()
    };
    let share = memory("bf16") / memory("f32");
    assert!(share > 0.4 && share < 0.7, "{share}");
}

#[test]
fn other_words_and_cpus_without_it_are_refused() {
    let said = fail(2, &["train", "--precision", "fp16", "--dry-run"]);
    assert!(said.contains("train.precision") && said.contains(r#"expected one of "auto", "f32", "bf16""#), "{said}");
    // At a lower level the CPU counts as one without.
    for kind in ["step", "infer"] {
        let said = fail(2, &["bench", kind, "--level", "portable", "--precision", "bf16"]);
        assert!(said.contains("avx512_bf16") && said.contains("--precision auto or f32"), "{said}");
    }
}
