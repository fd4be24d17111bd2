//! Export of networks, and initial weights from files. (`tests/exports/run` compares them with PyTorch and onnxruntime.)

use crate::common::*;
use std::fs;

const TINY: &[&str] =
    &["--limit", "40", "--size", "16", "--width", "4", "--batch", "16", "--epochs", "2", "--clusters", "4"];

/// A run of a second; flags in `more` override its own.
fn tiny<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let own = TINY.chunks(2).filter(|pair| !more.contains(&pair[0])).flatten();
    let fixed = ["train", "--out", out, "--quiet", "--no-report"];
    fixed.into_iter().chain(own.copied()).chain(more.iter().copied()).collect()
}

#[test]
fn an_exported_network_can_be_read_back() {
    let (dir, out) = place("run");
    let run = out.to_str().unwrap();
    succeed(&tiny(run, &[]));
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (onnx, whole, weights, sample) = (at("a.onnx"), at("b.onnx"), at("c.safetensors"), at("s.npz"));
    let said = succeed(&["export", run, "--to", "onnx", "--out", &onnx, "--sample", &sample]);
    assert!(said.contains("a.onnx, ") && said.contains("16 x 16 px") && said.contains("minus mean"), "{said}");
    succeed(&["export", run, "--to", "onnx", "--with-preprocess", "--out", &whole]);
    assert!(fs::metadata(&whole).unwrap().len() > fs::metadata(&onnx).unwrap().len());
    succeed(&["export", run, "--to", "safetensors", "--out", &weights]);
    // The model file gives the same model as the run; weights in torchvision's names have no readout.
    let again = at("d.onnx");
    succeed(&["export", &format!("{run}/model.safetensors"), "--to", "onnx", "--out", &again]);
    assert_eq!(fs::read(&onnx).unwrap(), fs::read(&again).unwrap());
    let has = |file: &str, word: &str| fs::read(file).unwrap().windows(word.len()).any(|w| w == word.as_bytes());
    assert!(["layer4.1.bn2.running_var", "GlobalAveragePool", "embedding", "whitened"].iter().all(|w| has(&onnx, w)));
    let bare = at("e.onnx");
    succeed(&["export", &weights, "--to", "onnx", "--out", &bare]);
    assert!(has(&bare, "embedding") && !has(&bare, "whitened"));
    assert!(pcp_core::io::npy::read_npz::<f32>(sample.as_ref(), "whitened").is_ok());
    assert_eq!(pcp_core::io::npy::read_npz::<f32>(sample.as_ref(), "embedding").unwrap().len(), 8 * 128);

    // A run that starts from it without training ends with it.
    let begun = at("begun");
    succeed(&tiny(&begun, &["--init-from", &weights, "--rounds", "0"]));
    let embeddings = |run: &str| fs::read(format!("{run}/embeddings.npy")).unwrap();
    assert_eq!(embeddings(run), embeddings(&begun));
    let again = at("begun-again");
    succeed(&tiny(&again, &["--init-from", run, "--rounds", "0"]));
    assert_eq!(embeddings(run), embeddings(&again), "a run folder is as good as its file");
    // Another embedding length is accepted, another width is refused.
    let shown = run_with(&tiny(&at("other"), &["--init-from", &weights, "--set", "network.embedding=32"]));
    assert!(shown.contains("all but fc.weight, fc.bias, which start at random"), "{shown}");
    let said = fail(2, &tiny(&at("wide"), &["--init-from", &weights, "--width", "8"]));
    assert!(said.contains("conv1.weight has the shape [4, 3, 3, 3]") && said.contains("--width"), "{said}");
    assert!(!dir.path().join("wide").exists(), "refused before anything was written");
}

/// The program's messages.
fn run_with(args: &[&str]) -> String {
    let loud: Vec<&str> = args.iter().copied().filter(|a| *a != "--quiet").collect();
    let output = run(&loud);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn a_run_with_initial_weights_is_resumed_without_their_file() {
    let (dir, out) = place("run");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (first, weights, whole) = (at("first"), at("w.safetensors"), at("whole"));
    succeed(&tiny(&first, &[]));
    succeed(&["export", &first, "--to", "safetensors", "--out", &weights]);
    let from = ["--quiet", "--no-report", "--init-from", &weights];
    succeed(&words(&small(whole.as_ref(), &from)));
    let mut child = start(&words(&small(&out, &from)));
    assert!(wait_for(&mut child, || out.join("init.safetensors").exists()));
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_file(&weights).unwrap();
    succeed(&["train", "--resume", out.to_str().unwrap(), "--quiet", "--no-report"]);
    assert_same(&bits(whole.as_ref()), &bits(&out));
}

#[test]
fn usage_errors_are_explained() {
    let (dir, out) = place("run");
    let run = out.to_str().unwrap();
    succeed(&tiny(run, &["--epochs", "1"]));
    let said = fail(2, &["export", run, "--to", "safetensors", "--with-preprocess"]);
    assert!(said.contains("ONNX"), "{said}");
    let said = fail(2, &["export", run, "--to", "onnx", "--out", run]);
    assert!(said.contains("there already"), "{said}");
    let model = out.join("model.safetensors").display().to_string();
    let said = fail(2, &["export", &model, "--to", "safetensors", "--out", &model]);
    assert!(said.contains("there already"), "{said}");
    let said = fail(2, &["export", &model, "--to", "onnx", "--best"]);
    assert!(said.contains("--best"), "{said}");
    let junk = dir.path().join("junk.safetensors");
    fs::write(&junk, b"no such thing").unwrap();
    let junk = junk.display().to_string();
    assert!(fail(1, &["export", &junk, "--to", "onnx"]).contains("junk.safetensors"));
    assert!(fail(1, &tiny(&dir.path().join("x").display().to_string(), &["--init-from", &junk])).contains("junk"));
    assert!(fail(1, &["export", "/no/such/file", "--to", "onnx"]).contains("/no/such/file"));
}
