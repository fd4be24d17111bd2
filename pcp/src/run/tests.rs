//! Tests of the run folder.

use super::*;
use crate::config::SettingsLayer;

fn record(epoch: u32) -> EpochRecord {
    EpochRecord {
        round: 0,
        epoch,
        clusters: 9,
        non_empty: 8,
        kept: 0.1 + 0.2,
        pulled_back: 0,
        dropped: 0,
        instances: 1,
        loss: 1.0 / 3.0,
        loss_instance: None,
        loss_cluster: Some(2.5),
        loss_is: None,
        lr: 0.03,
        seconds: 1.0,
        feature_seconds: 0.1,
        cluster_seconds: 0.2,
        train_seconds: 0.7,
        images_per_second: 10.0,
        churn: None,
        effective_rank: None,
        knn: None,
        classifier: None,
    }
}

fn about() -> About {
    let text = || "x".to_string();
    About {
        version: text(),
        revision: text(),
        cpu: text(),
        command: "pcp train \"my photos\"".into(),
        data: text(),
        fingerprint: text(),
        presets: vec!["pcp".into()],
    }
}

#[test]
fn a_folder_with_anything_in_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let run = RunFolder::create(&out, false).unwrap();
    run.write_config(&resolved(), &about()).unwrap();
    std::fs::write(out.join("notes.txt"), "mine").unwrap();
    let e = RunFolder::create(&out, false).unwrap_err();
    assert!(e.hint.contains("--resume") && e.hint.contains("--overwrite"), "{e:?}");
    let e = RunFolder::create(&out, true).unwrap_err();
    assert!(e.message.contains(&format!("in use by process {}", std::process::id())), "{e:?}");
    drop(run);
    RunFolder::create(&out, true).unwrap();
    assert!(!out.join("config.toml").exists() && out.join("notes.txt").exists());
    // Settings of another program are not ours to overwrite.
    std::fs::write(out.join("config.toml"), "[model]\nwidth = 3\n").unwrap();
    assert!(RunFolder::create(&out, true).unwrap_err().message.contains("not written by pcp"));
    std::fs::remove_file(out.join("config.toml")).unwrap();
    // Now it holds no run: there is nothing that may be overwritten.
    assert!(RunFolder::create(&out, true).is_err());
    assert!(RunFolder::open(&out).unwrap_err().message.contains("not a run folder"));
}

#[test]
fn a_run_killed_before_its_settings_were_written_can_be_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    RunFolder::create(&out, false).unwrap();
    std::fs::write(out.join("config.toml.pcp-unfinished"), "half").unwrap();
    RunFolder::create(&out, false).unwrap();
    RunFolder::create(&out, true).unwrap();
    // Files of somebody's, even by names that a run uses, are not a beginning.
    for name in ["embeddings.npy", "checkpoints/best.safetensors"] {
        std::fs::write(out.join(name), "mine").unwrap();
        assert!(RunFolder::create(&out, false).is_err() && RunFolder::create(&out, true).is_err());
        assert_eq!(std::fs::read(out.join(name)).unwrap(), b"mine");
        std::fs::remove_file(out.join(name)).unwrap();
    }
    let file = dir.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(RunFolder::create(&file, true).is_err() && RunFolder::create(&file, false).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    assert!(RunFolder::create(&file.join("below"), false).unwrap_err().message.contains("make the folder"));
}

#[test]
fn config_and_about_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunFolder::create(dir.path(), false).unwrap();
    run.write_config(&resolved(), &about()).unwrap();
    assert_eq!(run.read_config().unwrap(), (resolved(), about()));
    // Keys that older versions did not write have defaults; those that depend on the images must be present.
    let path = run.file("config.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let without = |key: &str| -> String {
        text.lines().filter(|line| !line.starts_with(&format!("{key} ="))).map(|line| format!("{line}\n")).collect()
    };
    for key in ["stored", "size", "history", "lower", "upper", "every"] {
        std::fs::write(&path, without(key)).unwrap();
        assert_eq!(run.read_config().unwrap().0, resolved(), "{key}");
    }
    // Before there was a choice, all was f32.
    std::fs::write(&path, without("precision")).unwrap();
    assert_eq!(run.read_config().unwrap().0.train.precision, crate::config::Precision::F32);
    for key in ["mean", "std", "floor"] {
        std::fs::write(&path, without(key)).unwrap();
        let e = run.read_config().unwrap_err();
        assert!(e.message.contains("config.toml") && e.message.contains(key), "{e:?}");
    }
}

/// Settings for four of the bundled images.
fn resolved() -> Resolved {
    let load = crate::data::Load { limit: Some(4), ..crate::data::Load::new(crate::data::Source::Bundled) };
    Config::default().resolve(&crate::data::load(&load, &|_, _| ()).unwrap()).unwrap()
}

#[test]
fn warnings_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunFolder::create(dir.path(), false).unwrap();
    assert_eq!(run.read_warnings().unwrap(), []);
    let of_run = |count| WarningRecord { at: None, warning: Warning::BadFiles { count } };
    let of_epoch = |at, share| WarningRecord { at: Some(at), warning: Warning::Imbalance { share } };
    let all = [
        of_run(3),
        WarningRecord { at: Some((0, 0)), warning: Warning::NothingKept },
        of_epoch((0, 1), 0.1 + 0.2),
        of_epoch((1, 0), 1.0 / 3.0),
        WarningRecord { at: None, warning: Warning::OtherOrigin { what: "a \"CPU\"\nof another kind".into() } },
    ];
    all.iter().for_each(|record| run.warn(record));
    // A resumed run says again what holds for all of it.
    run.warn(&of_run(3));
    assert_eq!(run.read_warnings().unwrap(), all);
    // Half a line is left by a crash; epochs after the checkpoint are trained again.
    let path = run.file("warnings.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}{{\"at\":[1,")).unwrap();
    assert!(run.read_warnings().unwrap_err().message.contains("line 6"));
    run.cut_warnings(|record| record.at.is_none_or(|at| at < (0, 1))).unwrap();
    assert_eq!(run.read_warnings().unwrap(), [all[0].clone(), all[1].clone(), all[4].clone()]);
}

#[test]
fn metrics_are_cut_back_to_whole_lines() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunFolder::create(dir.path(), false).unwrap();
    run.cut_metrics(0).unwrap();
    for epoch in 0..3 {
        run.append_metrics(&record(epoch)).unwrap();
    }
    let path = run.file("metrics.jsonl");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"round\":0,\"ep");
    std::fs::write(&path, text).unwrap();
    assert!(run.read_metrics().unwrap_err().message.contains("line 4"));
    run.cut_metrics(2).unwrap();
    assert_eq!(run.read_metrics().unwrap(), [record(0), record(1)]);
    assert!(run.cut_metrics(5).unwrap_err().message.contains("2 lines"));
}

#[test]
fn changed_settings_are_named() {
    let before = resolved();
    let layer = || SettingsLayer::new("config.toml".into(), before.to_table());
    let change = |text: &str| Config::from_layers(&[layer(), SettingsLayer::assignment(text).unwrap()]).unwrap();
    let e = resumed_settings(before.clone(), &change("purify.gamma=0.3")).unwrap_err();
    assert!(e.message.contains("purify.gamma is 0.5, not 0.3"), "{e:?}");
    assert_eq!(resumed_settings(before.clone(), &change("run.save_minutes=1")).unwrap().run.save_minutes, 1.0);
    assert_eq!(resumed_settings(before.clone(), &before.clone().into()).unwrap(), before);
}

#[test]
fn leftovers_of_a_crash_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunFolder::create(dir.path(), false).unwrap();
    std::fs::write(run.file("checkpoints/r0.safetensors.pcp-unfinished"), "half").unwrap();
    std::fs::write(run.file("checkpoints/keep.safetensors"), "whole").unwrap();
    run.remove_unfinished();
    assert!(
        !run.file("checkpoints/r0.safetensors.pcp-unfinished").exists()
            && run.file("checkpoints/keep.safetensors").exists()
    );
}

#[test]
fn what_a_run_wrote_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunFolder::create(&dir.path().join("run"), false).unwrap();
    let load = crate::data::Load { limit: Some(4), ..crate::data::Load::new(crate::data::Source::Bundled) };
    let data = crate::data::load(&load, &|_, _| ()).unwrap();
    run.write_files(&data).unwrap();
    let files = run.read_files().unwrap();
    assert_eq!(files.iter().map(|f| f.file.clone()).collect::<Vec<_>>(), data.train.images.names().to_vec());
    assert!(files.iter().all(|f| f.label.is_some()));

    let purified = Purified {
        positives: pcp_core::purify::Positives::instances(4),
        status: vec![Status::Kept, Status::PulledBack, Status::Dropped, Status::Instance],
        distance: vec![0.25, 0.5, 1.0, 0.0],
        vote: vec![f32::NAN, 3.5, -1.0, f32::NAN],
    };
    run.write_epoch_clusters(1, 12, &[0, 0, 1, 2], &purified).unwrap();
    run.write_epoch_clusters(0, 7, &[0, 0, 1, 2], &purified).unwrap();
    run.write_final_clusters(&data, &[0, 0, 1, 2], &purified).unwrap();
    assert_eq!(run.epochs_with_clusters().unwrap(), [(0, 7), (1, 12)]);
    for found in [run.read_epoch_clusters((1, 12)).unwrap(), run.read_final_clusters().unwrap()] {
        assert_eq!((&found.cluster, &found.status), (&vec![0, 0, 1, 2], &purified.status));
        assert_eq!(found.distance, purified.distance);
        assert!(found.vote[0].is_nan() && found.vote[1] == 3.5);
    }
    let path = run.file("clusters.csv");
    std::fs::write(&path, "file,cluster,status,distance,vote\na.png,0,kept,0.5,\nb.png,x,kept,0.5,\n").unwrap();
    let e = run.read_final_clusters().unwrap_err();
    assert!(e.message.contains("clusters.csv, row 3: x is not a number"), "{e:?}");
    std::fs::write(&path, "file,cluster,status,distance,vote\na.png,0,keen,0.5,\n").unwrap();
    assert!(run.read_final_clusters().unwrap_err().message.contains("keen"));
}
