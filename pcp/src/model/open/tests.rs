//! Opening a network: from every source, and damaged ones.

use super::*;
use crate::config::{Auto, Config, FeatureKind, Resolved};
use crate::data::Image;
use crate::run::{About, DETECTION};
use pcp_core::error::Kind;
use pcp_core::io::tensors::Array;
use std::collections::BTreeMap;
use std::fs;
use tempfile::TempDir;

/// Settings of a small network, as a run folder has them.
fn config() -> Resolved {
    let mut config = Config::default();
    config.network.width = 4;
    config.data.size = Auto::Value(32);
    config.data.mean = Auto::Value([0.1, 0.2, 0.3]);
    config.data.std = Auto::Value([0.4, 0.5, 0.6]);
    let five = crate::data::Load { limit: Some(5), ..crate::data::Load::new(crate::data::Source::Bundled) };
    config.resolve(&crate::data::load(&five, &|_, _| ()).unwrap()).unwrap()
}

/// A run folder without weights.
fn run() -> (TempDir, RunFolder) {
    let dir = tempfile::tempdir().unwrap();
    let run = RunFolder::create(&dir.path().join("run"), false).unwrap();
    run.write_config(&config(), &About::default()).unwrap();
    (dir, run)
}

/// A network with weights of `seed`, saved in this round and epoch.
fn model(seed: u64, at: (u32, u32)) -> Model {
    Model::untrained(ModelCard::of_run(&config(), at), seed).unwrap()
}

fn arrays(model: &Model) -> BTreeMap<String, Array> {
    model.network.arrays(&model.weights)
}

/// A file with arrays alone, as other tools write it.
fn write_foreign(path: &Path, model: &Model) {
    let named = model.network.named(&model.weights);
    let bytes: Vec<Vec<u8>> = named.iter().map(|n| n.values.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let view = |(n, bytes): (&Named, &'_ Vec<u8>)| {
        let shape = n.shape.clone();
        let bytes: &[u8] = Vec::leak(bytes.clone());
        (n.name.clone(), safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, bytes).unwrap())
    };
    let views: Vec<_> = named.iter().zip(&bytes).map(view).collect();
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn a_run_folder_has_last_and_best_and_untrained_weights() {
    let (_dir, run) = run();
    model(1, (2, 7)).write_safetensors(&run.last_weights()).unwrap();
    model(2, (1, 3)).write_safetensors(&run.best_weights()).unwrap();
    let last = Model::open(run.path()).unwrap();
    assert_eq!((arrays(&last), last.trained), (arrays(&model(1, (0, 0))), Some((2, 7))));
    assert_eq!((last.file_name().as_str(), last.card.epoch), ("model.safetensors", 7));
    let best = Model::open_weights(run.path(), WhichWeights::best(true)).unwrap();
    assert_eq!((arrays(&best), best.trained), (arrays(&model(2, (0, 0))), Some((1, 3))));
    assert_eq!(best.file, Some(run.best_weights()));
    let untrained = Model::open_weights(run.path(), WhichWeights::Untrained).unwrap();
    assert_eq!((untrained.file_name().as_str(), untrained.trained), ("untrained", None));
    assert_eq!(arrays(&untrained), arrays(&model(config().train.seed, (0, 0))));
}

#[test]
fn an_unfinished_run_has_the_weights_of_its_newest_checkpoint() {
    let (_dir, run) = run();
    let write = |name: &str, seed: u64, about: CheckpointPosition| {
        let prefixed = arrays(&model(seed, (0, 0))).into_iter().map(|(n, a)| (format!("{CHECKPOINT_PREFIX}{n}"), a));
        // A checkpoint has other arrays, too.
        let other = ("velocity/0000".to_string(), Array::F32(vec![1], vec![0.5]));
        let arrays = prefixed.chain([other]).collect();
        Tensors { about, arrays }.write(&run.file("checkpoints").join(name)).unwrap();
    };
    write("r0-e000-b00004.safetensors", 1, CheckpointPosition { round: 0, epoch: 0, batch: 4 });
    write("r1-e000-b00000.safetensors", 2, CheckpointPosition { round: 1, epoch: 0, batch: 0 });
    let found = Model::open(run.path()).unwrap();
    assert_eq!(arrays(&found), arrays(&model(2, (0, 0))));
    // Nothing of round 1 was trained yet: the last epoch of round 0 was the last.
    assert_eq!(found.trained, Some((0, config().train.epochs - 1)));
    assert_eq!(found.file_name(), "r1-e000-b00000.safetensors");
}

#[test]
fn the_position_of_a_checkpoint_gives_the_last_trained_epoch() {
    let trained = |round, epoch, batch| CheckpointPosition { round, epoch, batch }.trained(10);
    assert_eq!(trained(0, 0, 0), None);
    assert_eq!((trained(0, 0, 1), trained(0, 3, 0), trained(2, 0, 0)), (Some((0, 0)), Some((0, 2)), Some((1, 9))));
}

#[test]
fn snapshots_come_in_the_order_of_time() {
    let (_dir, run) = run();
    assert!(Model::snapshots_of(&run).unwrap().is_empty());
    fs::create_dir(run.file("snapshots")).unwrap();
    for (name, seed) in [("r0-e009.safetensors", 2), ("r0-e004.safetensors", 1)] {
        model(seed, (0, 4)).write_safetensors(&run.file("snapshots").join(name)).unwrap();
    }
    let found = Model::snapshots_of(&run).unwrap();
    let names: Vec<String> = found.iter().map(Model::file_name).collect();
    assert_eq!(names, ["r0-e004.safetensors", "r0-e009.safetensors"]);
    assert_eq!(arrays(&found[0]), arrays(&model(1, (0, 0))));
}

#[test]
fn a_model_file_describes_itself() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("any name");
    model(3, (1, 2)).write_safetensors(&file).unwrap();
    let found = Model::open(&file).unwrap();
    assert_eq!((&found.card, found.trained), (&model(3, (1, 2)).card, Some((1, 2))));
    assert_eq!(found.file, Some(file));
}

#[test]
fn a_file_of_another_tool_is_known_by_its_run_or_by_its_arrays() {
    let (dir, run) = run();
    let inside = run.file("theirs.safetensors");
    write_foreign(&inside, &model(4, (0, 0)));
    let found = Model::open(&inside).unwrap();
    assert_eq!((found.card.mean, found.trained), ([0.1, 0.2, 0.3], None));
    let alone = dir.path().join("theirs.safetensors");
    fs::copy(&inside, &alone).unwrap();
    let found = Model::open(&alone).unwrap();
    assert_eq!((found.card.mean, found.card.network.width), (CIFAR.0, 4));
    assert_eq!(arrays(&found), arrays(&model(4, (0, 0))));
}

#[test]
fn a_missing_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let e = Model::open(dir.path().join("none.safetensors")).unwrap_err();
    assert!(e.kind == Kind::File && e.message.contains("none.safetensors"), "{e:?}");
    let e = Model::open(dir.path()).unwrap_err();
    assert!(e.message.contains("is not a run folder") && e.hint.contains("pcp train"), "{e:?}");
    let (_dir, run) = run();
    let e = Model::open(run.path()).unwrap_err();
    assert!(e.message.contains("has no weights yet") && e.hint.contains("--resume"), "{e:?}");
    let e = Model::open_weights(run.path(), WhichWeights::Best).unwrap_err();
    assert!(e.message.contains("model-best.safetensors") && e.hint.contains("--best"), "{e:?}");
}

#[test]
fn only_a_run_folder_has_a_choice_of_weights() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m.safetensors");
    model(0, (0, 0)).write_safetensors(&file).unwrap();
    for which in [WhichWeights::Best, WhichWeights::Untrained] {
        let e = Model::open_weights(&file, which).unwrap_err();
        assert!(e.kind == Kind::Usage && e.message.contains("is a file") && e.hint.contains("run folder"), "{e:?}");
    }
}

#[test]
fn damaged_files_are_refused() {
    let (_dir, run) = run();
    let file = run.last_weights();
    model(0, (0, 0)).write_safetensors(&file).unwrap();
    let whole = fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for (bytes, folder) in [(&flipped[..], true), (&flipped[..], false), (&whole[..whole.len() / 2], true), (b"", true)]
    {
        fs::write(&file, bytes).unwrap();
        let e = Model::open(if folder { run.path() } else { &file }).unwrap_err();
        assert!(e.kind == Kind::File && e.message.contains("model.safetensors is damaged"), "{e:?}");
    }
    fs::write(&file, b"no tensors at all").unwrap();
    let e = Model::open(&file).unwrap_err();
    assert!(e.kind == Kind::File && e.message.contains("model.safetensors"), "{e:?}");
}

#[test]
fn files_of_another_kind_are_refused() {
    let (dir, run) = run();
    // A checkpoint where a model should be, and a detector's file, whose description is another.
    let file = run.last_weights();
    let about = CheckpointPosition { round: 0, epoch: 0, batch: 0 };
    Tensors { about, arrays: arrays(&model(0, (0, 0))) }.write(&file).unwrap();
    for path in [run.path(), &file] {
        let e = Model::open(path).unwrap_err();
        assert!(e.message.contains("another kind or version") && e.hint.contains("model.safetensors"), "{e:?}");
    }
    // The run of a detector is not that of a network.
    let detection = RunFolder::create_as(&DETECTION, &dir.path().join("detect"), false).unwrap();
    fs::write(detection.file(DETECTION.settings), "").unwrap();
    assert!(Model::open(detection.path()).unwrap_err().message.contains("it has no config.toml"));
}

#[test]
fn wrong_shapes_and_missing_arrays_are_named() {
    let (_dir, run) = run();
    let file = run.last_weights();
    let about = model(0, (0, 0)).card;
    let other = config::NetworkSettings { width: 8, ..about.network.clone() };
    let other = Model::untrained(ModelCard { network: other, ..about.clone() }, 0).unwrap();
    Tensors { about: about.clone(), arrays: arrays(&other) }.write(&file).unwrap();
    for path in [run.path(), &file] {
        let e = Model::open(path).unwrap_err();
        assert!(e.message.contains("model.safetensors") && e.message.contains("conv1.weight"), "{e:?}");
        assert!(e.message.contains("[8, 3, 3, 3]") && e.hint.contains("same network"), "{e:?}");
    }
    let mut part = arrays(&model(0, (0, 0)));
    part.remove("layer2.0.bn1.bias");
    Tensors { about, arrays: part }.write(&file).unwrap();
    let e = Model::open(&file).unwrap_err();
    assert!(e.message.contains("layer2.0.bn1.bias is missing"), "{e:?}");
}

#[test]
fn an_opened_network_embeds_as_it_did_before_it_was_saved() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m.safetensors");
    let before = model(5, (0, 0));
    before.write_safetensors(&file).unwrap();
    let image = |v: u8| Image { width: 40, height: 50, pixels: (0..6000).map(|i| (i % 251) as u8 ^ v).collect() };
    let after = Model::open(&file).unwrap();
    let found = after.embed([image(0), image(9)]);
    assert_eq!((found.rows, found.dim), (2, after.network.embedding));
    assert_eq!(found, before.embed([image(0), image(9)]));
    assert_eq!(found.row(1), after.embed([image(9)]).row(0));
    assert!((found.row(0).iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    assert_eq!(after.features([image(0)], FeatureKind::Pooled).dim, after.network.pooled);
    assert_eq!(after.embed([]).rows, 0);
}
