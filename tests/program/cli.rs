//! The command line: training runs, their files, and error messages.

use crate::common::*;
use serde_json::Value;
use std::fs;
use std::path::Path;

const QUICK: &[&str] = &["--size", "16", "--width", "4", "--epochs", "2", "--batch", "16", "--quiet"];

fn train(data: &str, out: &Path, more: &[&str]) -> String {
    let mut args = vec!["train", data, "--out", out.to_str().unwrap()];
    args.extend(QUICK);
    args.extend(more);
    succeed(&args)
}

fn refused(code: i32, more: &[&str]) -> String {
    let (_dir, out) = place("run");
    let mut args = vec!["train", "--out", out.to_str().unwrap()];
    args.extend(more);
    let said = fail(code, &args);
    assert!(!out.join("config.toml").exists(), "a refused run leaves nothing");
    said
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn a_run_writes_all_its_files() {
    let (table, said) = (&reference().stdout, &reference().stderr);
    let (_dir, out) = reference().copy();
    for word in
        ["raw pixels", "network before training", "trained network, best", "trained network, last", "clusters", "time"]
    {
        assert!(table.contains(word), "{word} is not in {table}");
    }
    for word in ["data ", "network ", "schedule ", "memory ", "epoch  16/16"] {
        assert!(said.contains(word), "{word} is not in {said}");
    }
    for file in [
        "config.toml",
        "train.log",
        "metrics.jsonl",
        "model.safetensors",
        "model-best.safetensors",
        "files.csv",
        "clusters.csv",
        "embeddings.npy",
        "result.json",
        "clusters/r1-e007.npz",
    ] {
        assert!(out.join(file).is_file(), "{file} is missing");
    }
    assert_eq!(fs::read_dir(out.join("snapshots")).unwrap().count(), 3);
    assert_eq!(fs::read_dir(out.join("checkpoints")).unwrap().count(), 2);

    let metrics: Vec<Value> = fs::read_to_string(out.join("metrics.jsonl")).unwrap().lines().map(json).collect();
    assert_eq!(metrics.len(), 16);
    for key in [
        "round",
        "epoch",
        "clusters",
        "non_empty",
        "kept",
        "pulled_back",
        "dropped",
        "instances",
        "loss",
        "loss_instance",
        "loss_cluster",
        "loss_is",
        "lr",
        "seconds",
        "feature_seconds",
        "cluster_seconds",
        "train_seconds",
        "images_per_second",
        "churn",
        "effective_rank",
        "knn",
    ] {
        assert!(metrics[3].get(key).is_some(), "{key} is not in the metrics");
    }
    // K fell, the warm-up ended, lr dropped, votes were cast, round 2 started.
    assert_eq!(metrics[0]["kept"], 0.0);
    assert_eq!((&metrics[0]["loss_cluster"], &metrics[0]["churn"]), (&Value::Null, &Value::Null));
    assert!(metrics[1]["clusters"].as_u64() > metrics[7]["clusters"].as_u64());
    assert!(metrics[6]["loss_is"].is_f64() && metrics[7]["loss_is"].is_null());
    assert!(metrics[7]["lr"].as_f64() < metrics[0]["lr"].as_f64());
    assert_eq!(metrics[8]["round"], 1);
    let votes: u64 = metrics.iter().map(|m| m["dropped"].as_u64().unwrap() + m["pulled_back"].as_u64().unwrap()).sum();
    assert!(votes > 0, "no vote changed anything");

    let result = json(&fs::read_to_string(out.join("result.json")).unwrap());
    for key in ["knn_raw", "knn_untrained", "knn_best", "knn_last"] {
        assert!(result[key].is_f64(), "{key}: {result}");
    }
    for key in ["epochs", "seconds", "command", "seed", "data", "threads"] {
        assert!(!result[key].is_null(), "{key}: {result}");
    }
    let clusters = fs::read_to_string(out.join("clusters.csv")).unwrap();
    assert!(clusters.starts_with("file,cluster,status,distance,vote\n"));
    assert_eq!(clusters.lines().count(), 61);
    let config = fs::read_to_string(out.join("config.toml")).unwrap();
    for word in ["[about]", "revision", "cpu", "floor = 6", "history = 3", "gamma = 0.5", "alpha = 0.8"] {
        assert!(config.contains(word), "{word} is not in {config}");
    }

    let shown = succeed(&["eval", "knn", out.to_str().unwrap(), "--json"]);
    assert_eq!(json(&shown)["knn"], result["knn_last"], "eval finds what training measured");
    let pooled = json(&succeed(&["eval", "knn", out.to_str().unwrap(), "--features", "pooled", "--k", "3", "--json"]));
    assert_eq!((&pooled["k"], &pooled["features"]), (&Value::from(3), &Value::from("pooled")));
    let best = json(&succeed(&["eval", "knn", out.to_str().unwrap(), "--best", "--json"]));
    assert_eq!(best["knn"], result["knn_best"]);
}

#[test]
fn a_folder_without_labels_trains_without_knn() {
    let (dir, out) = place("run");
    let photos = dir.path().join("my photos, 2024");
    fs::create_dir(&photos).unwrap();
    for i in 0..20 {
        picture(&photos.join(format!("{i}, \"x\".png")), 24, (i % 3) as u8, i);
    }
    fs::write(photos.join("readme.txt"), "no picture").unwrap();
    let shown = train(photos.to_str().unwrap(), &out, &[]);
    assert!(!shown.contains("kNN") && shown.contains("clusters"), "{shown}");
    let result = json(&fs::read_to_string(out.join("result.json")).unwrap());
    assert!(result["knn_last"].is_null());
    assert!(!out.join("model-best.safetensors").exists());
    let clusters = fs::read_to_string(out.join("clusters.csv")).unwrap();
    assert!(clusters.contains("\"0, \"\"x\"\".png\","), "{clusters}");
    let said = fail(1, &["eval", "knn", out.to_str().unwrap()]);
    assert!(said.contains("no labels"), "{said}");
}

#[test]
fn class_folders_without_a_test_split_are_measured_by_leaving_one_out() {
    let (dir, out) = place("run");
    let photos = dir.path().join("photos");
    class_folders(&photos, 8);
    let shown = train(photos.to_str().unwrap(), &out, &["--set", "evaluate.k=3"]);
    assert!(shown.contains("leave-one-out"), "{shown}");
}

#[test]
fn broken_files_are_named_and_shift_nothing() {
    let (dir, _) = place("");
    let photos = dir.path().join("photos");
    class_folders(&photos, 8);
    let order = |out: &Path| {
        let text = fs::read_to_string(out.join("files.csv")).unwrap();
        text.lines().skip(1).map(|l| l.split(',').skip(1).take(2).collect::<Vec<_>>().join(",")).collect::<Vec<_>>()
    };
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    train(photos.to_str().unwrap(), &whole, &[]);
    fs::write(photos.join("b/3.JPG"), "no picture at all").unwrap();
    let mut args = vec!["train", photos.to_str().unwrap(), "--out", broken.to_str().unwrap()];
    args.extend(&QUICK[..QUICK.len() - 1]);
    let shown = run(&args);
    assert!(shown.status.success());
    assert!(String::from_utf8_lossy(&shown.stderr).contains("1 unreadable files were skipped"));
    let bad = fs::read_to_string(broken.join("bad_files.csv")).unwrap();
    assert!(bad.contains("b/3.JPG"), "{bad}");
    let mut expected = order(&whole);
    expected.retain(|line| !line.contains("b/3.JPG"));
    assert_eq!(order(&broken), expected, "ids shift");
}

#[test]
fn identical_images_do_not_panic() {
    let (dir, out) = place("run");
    let photos = dir.path().join("same");
    fs::create_dir(&photos).unwrap();
    for i in 0..12 {
        picture(&photos.join(format!("{i}.png")), 16, 1, 1);
    }
    train(photos.to_str().unwrap(), &out, &["--clusters", "3"]);
    // One colour, so that even the standard deviation of the pixels is zero.
    for i in 0..12 {
        image::RgbImage::from_pixel(16, 16, image::Rgb([9, 9, 9])).save(photos.join(format!("{i}.png"))).unwrap();
    }
    let mut args =
        vec!["train", photos.to_str().unwrap(), "--out", out.to_str().unwrap(), "--overwrite", "--clusters", "3"];
    args.extend(&QUICK[..QUICK.len() - 1]);
    // Without colour jitter there is nothing left to tell them apart by.
    for still in ["augment.brightness=0.0", "augment.contrast=0.0", "augment.saturation=0.0", "augment.hue=0.0"] {
        args.extend(["--set", still]);
    }
    let shown = run(&args);
    assert!(shown.status.success());
    let said = String::from_utf8_lossy(&shown.stderr);
    assert!(said.contains("warning: ") && said.contains("fewer than the batch"), "{said}");
    assert_eq!(said.matches("collapsed").count(), 1, "said once: {said}");
}

#[test]
fn a_loss_that_is_not_finite_stops_the_run() {
    let (_dir, out) = place("run");
    let said = fail(1, &words(&small(&out, &["--quiet", "--set", "train.lr=1e30"])));
    assert!(said.contains("not finite") && said.contains("train.lr"), "{said}");
    assert!(!out.join("result.json").exists());
}

#[test]
fn every_network_trains() {
    for more in
        [&["--arch", "alexnet"][..], &["--arch", "alexnet224", "--size", "64"], &["--arch", "resnet18", "--size", "72"]]
    {
        let (_dir, out) = place("run");
        let mut args =
            vec!["train", "--out", out.to_str().unwrap(), "--limit", "20", "--width", "4", "--epochs", "1", "--quiet"];
        args.extend(more);
        succeed(&args);
    }
}

#[test]
fn data_presets_bring_the_papers_networks() {
    let (dir, _) = place("");
    let photos = dir.path().join("photos");
    class_folders(&photos, 4);
    for (preset, arch) in [("in100", "alexnet224"), ("cub200", "resnet18")] {
        let out = dir.path().join(preset);
        // The floors are too large for this set, so that the network is read from the error message.
        let said = fail(2, &["train", photos.to_str().unwrap(), "--preset", preset, "--out", out.to_str().unwrap()]);
        assert!(said.contains("clusters.floor"), "{said}");
        let (photos, out) = (photos.to_str().unwrap(), out.to_str().unwrap());
        let args =
            ["train", photos, "--preset", preset, "--out", out, "--clusters", "2", "--epochs", "1", "--width", "2"];
        succeed(&[&args[..], &["--size", "70", "--batch", "4"]].concat());
        let config = fs::read_to_string(Path::new(out).join("config.toml")).unwrap();
        for word in [format!("arch = \"{arch}\""), "stored = 256".into(), "mean = [0.485, 0.456, 0.406]".into()] {
            assert!(config.contains(&word), "{word} is not in {config}");
        }
    }
}

#[test]
fn a_closed_or_full_output_is_no_panic() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    for out in [full.ok().map(std::process::Stdio::from), Some(std::process::Stdio::piped())].into_iter().flatten() {
        let mut child = pcp(&["data", "check", "bundled", "--json"])
            .stdout(out)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
    }
}

#[test]
fn a_run_is_resumed_from_any_folder() {
    let (dir, out) = place("run");
    class_folders(&dir.path().join("photos"), 4);
    let mut args = vec!["train", "photos", "--out", "run"];
    args.extend(QUICK);
    assert!(pcp(&args).current_dir(dir.path()).status().unwrap().success());
    fs::remove_file(out.join("result.json")).unwrap();
    succeed(&["train", "--resume", out.to_str().unwrap(), "--quiet"]);
    fs::remove_file(out.join("result.json")).unwrap();
    fs::remove_dir_all(dir.path().join("photos")).unwrap();
    assert!(fail(1, &["train", "--resume", out.to_str().unwrap()]).contains("bring them back"));
}

#[test]
fn presets_combine_and_files_serve_as_presets() {
    let (dir, out) = place("run");
    let mine = dir.path().join("mine.toml");
    fs::write(&mine, "[train]\nepochs = 1\n[network]\nwidth = 4\n").unwrap();
    let args = [
        "--preset",
        "pcp-nowarm",
        "--preset",
        mine.to_str().unwrap(),
        "--limit",
        "30",
        "--set",
        "objective.form=meanlog",
    ];
    let mut all = vec!["train", "--out", out.to_str().unwrap(), "--quiet"];
    all.extend(args);
    succeed(&all);
    let config = fs::read_to_string(out.join("config.toml")).unwrap();
    for word in ["warmup_rounds = 0", "epochs = 1", "width = 4", "form = \"meanlog\"", "\"pcp-nowarm\""] {
        assert!(config.contains(word), "{word} is not in {config}");
    }
}

#[test]
fn usage_errors_are_explained() {
    for (more, words) in [
        (&["--set", "purify.gama=0.5"][..], &["purify.gama", "purify.gamma"][..]),
        (&["--set", "train.lr=fast"], &["train.lr"]),
        (&["--gamma", "1.5"], &["purify.gamma", "between 0 and 1"]),
        (&["--set", "purify.alpha=0.4", "--set", "purify.lower=0"], &["purify.lower", "alpha must be above"]),
        (&["--set", "purify.alpha=1.4"], &["purify.alpha"]),
        (&["--clusters", "31", "--limit", "30"], &["31", "30 training images"]),
        (&["--clusters", "many"], &["clusters.floor"]),
        (&["--arch", "vgg"], &["network.arch", "vgg"]),
        (&["--preset", "pcpp"], &["pcpp", "did you mean pcp?"]),
        (&["--epoch", "3"], &["--epoch"]),
        (&["--epochs", "-3"], &["train.epochs"]),
        (&["--epochs", "0"], &["train.epochs"]),
        (&["--batch", "x"], &["--batch"]),
        (&["--size", "4"], &["data.size"]),
        (&["--arch", "alexnet224", "--size", "32"], &["32 px", "--size"]),
        (&["--data-dir", "x"], &["--data-dir"]),
        (&["--limit", "1"], &["--limit"]),
        (&["--eval-every", "0"], &["evaluate.every"]),
        (&["--threads", "99999"], &["--threads"]),
        (&["--preset", "nosuch.toml"], &["nosuch.toml"]),
        (&["--preset", "moco", "--preset", "dc"], &["moco", "dc", "two systems"]),
        (&["--set", "moco.queue=64"], &["moco.queue=64", "--preset moco"]),
        (&["--set", "data.mean=[nan, 0.5, 0.5]"], &["data.mean"]),
        (&["--set", "purify.upper=nan"], &["purify.upper"]),
        (&["--set", "train.lr_steps=[[0.5, nan]]"], &["train.lr_steps"]),
        (&["--cache", "disk"], &["data.cache", "memory"]),
    ] {
        let said = refused(2, more);
        for word in words {
            assert!(said.contains(word), "{more:?}: {word} is not in {said}");
        }
    }
    assert!(fail(2, &["tran"]).contains("did you mean train"));
    assert!(fail(2, &["train", "--epochs"]).contains("--help"), "a hint that says something");
    assert!(fail(2, &["data", "check", ".", "--data-dir", "x"]).contains("--data-dir is for cifar10"));
    assert!(fail(2, &["bench", "kmeans", "--n", "18446744073709551615"]).contains("--n"));
    assert!(fail(2, &["bench", "step", "--size", "100000"]).contains("--size"));
    assert!(fail(2, &["bench", "knn", "--n", "10", "--queries", "2", "--k", "11"]).contains("--k"));
    assert!(fail(2, &["eval", "finetune", "x", "--untrained", "--best"]).contains("--best"));
    assert!(fail(2, &["cluster", "x.npy", "--images", ".", "--no-sheet", "--out", "x"]).contains("--images"));
    assert!(fail(2, &[]).contains("pcp train"));
    assert!(fail(2, &["train", "cifar1"]).contains("cifar10"));
    assert!(fail(2, &["train", "--resume", "no/such/run"]).contains("no/such/run"));
    assert!(fail(2, &["eval", "knn", "no/such/run"]).contains("run folder"));
    assert!(fail(2, &["bench", "step", "--width", "0"]).contains("--width"));
}

#[test]
fn bad_data_is_explained() {
    let (dir, out) = place("run");
    let photos = dir.path().join("photos");
    fs::create_dir(&photos).unwrap();
    let try_it = |code: i32| fail(code, &["train", photos.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert!(try_it(1).contains("photos"), "an empty folder");
    fs::write(photos.join("a.png"), "broken").unwrap();
    assert!(try_it(1).contains("photos"), "nothing but broken files");
    picture(&photos.join("b.png"), 20, 0, 0);
    assert!(try_it(1).contains("two"), "one image");
    let cifar = dir.path().join("cifar-10-batches-bin");
    fs::create_dir(&cifar).unwrap();
    let data = dir.path().to_str().unwrap();
    assert!(fail(1, &["train", "cifar10", "--data-dir", data]).contains("data_batch_1.bin"));
    for name in ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"] {
        fs::write(cifar.join(format!("{name}.bin")), vec![1u8; 3073 * 10 + 5]).unwrap();
    }
    let said = fail(1, &["train", "cifar10", "--data-dir", data, "--out", out.to_str().unwrap()]);
    assert!(said.contains("data_batch_1.bin") && said.contains("30735"), "{said}");
    assert!(!out.exists(), "nothing is left of a run that could not begin");
    let said = fail(2, &["train", "cifar10"]);
    assert!(said.contains("--data-dir"), "{said}");
}

#[test]
fn data_check_counts_images_and_classes() {
    let bundled = json(&succeed(&["data", "check", "bundled", "--json"]));
    assert_eq!((&bundled["train"], &bundled["test"]), (&Value::from(1094), &Value::from(299)));
    assert_eq!(bundled["classes"].as_array().unwrap().len(), 14);
    let (_dir, photos) = place("photos");
    class_folders(&photos, 3);
    fs::write(photos.join("c/bad.png"), "").unwrap();
    let shown = succeed(&["data", "check", photos.to_str().unwrap()]);
    assert!(shown.contains("c/bad.png") && shown.contains("broken files"), "{shown}");
}

#[cfg(unix)]
#[test]
fn imagenet_100_is_made_by_links_and_read_through_them() {
    let (dir, _) = place("");
    let root = dir.path();
    let classes: Vec<&str> = include_str!("../../pcp/assets/imagenet100_classes.txt").lines().collect();
    for (index, class) in classes.iter().chain(&["n99999999"]).enumerate() {
        for (split, images) in [("train", 2), ("val", 1)] {
            let folder = root.join("imagenet").join(split).join(class);
            fs::create_dir_all(&folder).unwrap();
            for image in 0..images {
                picture(&folder.join(format!("{class}_{image}.JPEG")), 12, image, index as u32);
            }
        }
    }
    // Relative paths must also work from another folder.
    let made = pcp(&["data", "in100", "imagenet", "--out", "made/in100", "--json"]).current_dir(root).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made = json(&String::from_utf8_lossy(&made.stdout));
    assert_eq!(made, serde_json::json!({"classes": 100, "train": 200, "test": 100}));
    let out = root.join("made/in100");
    let out = out.to_str().unwrap();
    let check = json(&succeed(&["data", "check", out, "--json"]));
    assert_eq!((&check["train"], &check["test"]), (&Value::from(200), &Value::from(100)));
    assert_eq!((check["classes"].as_array().unwrap().len(), &check["ignored"]), (100, &Value::from(0)));
    assert_eq!(check["bad"], serde_json::json!([]));

    let imagenet = root.join("imagenet");
    let (imagenet, other) = (imagenet.to_str().unwrap(), root.join("other"));
    assert!(fail(2, &["data", "in100", imagenet, "--out", out]).contains("new or empty"));
    assert!(fail(2, &["data", "in100", imagenet]).contains("--out"));
    let other = other.to_str().unwrap();
    assert!(fail(2, &["data", "in100", "no/such", "--out", other]).contains("no/such"));
    fs::remove_dir_all(root.join("imagenet/train").join(classes[3])).unwrap();
    let said = fail(1, &["data", "in100", imagenet, "--out", other]);
    assert!(said.contains("1 of the 200") && said.contains(classes[3]), "{said}");
    assert!(!Path::new(other).exists());
}

#[cfg(unix)]
#[test]
fn cub_200_is_made_by_links_and_read_through_them() {
    let (dir, out) = place("cub200");
    let cub = dir.path().join("CUB_200_2011");
    let (mut images, mut split) = (String::new(), String::new());
    for (id, name) in ["001.Crow/1.jpg", "001.Crow/2.jpg", "002.Gull/1.jpg", "002.Gull/2.jpg"].into_iter().enumerate() {
        let path = cub.join("images").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        picture(&path, 12, 0, id as u32);
        images += &format!("{} {name}\n", id + 1);
        split += &format!("{} {}\n", id + 1, u8::from(id != 1));
    }
    fs::write(cub.join("images.txt"), images).unwrap();
    fs::write(cub.join("train_test_split.txt"), &split).unwrap();
    let (cub_path, out) = (cub.to_str().unwrap(), out.to_str().unwrap());
    let shown = succeed(&["data", "cub200", cub_path, "--out", out]);
    for word in ["made", "classes", "images to learn from   3", "images to test on      1"] {
        assert!(shown.contains(word), "{word} is not in {shown}");
    }
    let check = json(&succeed(&["data", "check", out, "--json"]));
    assert_eq!((&check["train"], &check["test"]), (&Value::from(3), &Value::from(1)));
    assert_eq!(check["classes"][0], serde_json::json!({"name": "001.Crow", "train": 1, "test": 1}));

    fs::remove_dir_all(out).unwrap();
    fs::write(cub.join("train_test_split.txt"), split.replace("3 1", "3 one")).unwrap();
    let said = fail(1, &["data", "cub200", cub_path, "--out", out, "--json"]);
    assert!(said.contains("train_test_split.txt line 3") && said.contains("'one'"), "{said}");
    assert!(!Path::new(out).exists());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing half");
}

#[test]
fn benches_report_json() {
    let network = ["--width", "4", "--batch", "4", "--iters", "1", "--json"];
    for (verb, more, key) in
        [("step", &["--bank", "100"][..], "images_per_second"), ("infer", &[], "images_per_second")]
    {
        let mut args = vec!["bench", verb];
        args.extend(network.iter().chain(more));
        assert!(json(&succeed(&args))[key].as_f64().unwrap() > 0.0, "{verb}");
    }
    let kmeans =
        json(&succeed(&["bench", "kmeans", "--n", "500", "--dim", "8", "--k", "10", "--iters", "3", "--json"]));
    assert!(kmeans["seconds"].is_f64() && kmeans["objective"].as_f64().unwrap() > 0.0);
    let knn = ["bench", "knn", "--n", "500", "--queries", "50", "--dim", "8", "--k", "5", "--json"];
    assert!(json(&succeed(&knn))["seconds"].is_f64());
    let augment = json(&succeed(&["bench", "augment", "--size", "16", "--views", "1", "--iters", "10", "--json"]));
    assert!(augment["images_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn help_has_examples() {
    for args in [
        &["--help"][..],
        &["train", "--help"],
        &["eval", "knn", "--help"],
        &["data", "check", "--help"],
        &["data", "in100", "--help"],
        &["data", "cub200", "--help"],
        &["reproduce", "--help"],
        &["bench", "--help"],
    ] {
        assert!(succeed(args).contains("Examples:"), "{args:?}");
    }
    assert!(succeed(&["--version"]).contains(env!("CARGO_PKG_VERSION")));
}
