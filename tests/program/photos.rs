//! A folder of photographs: a run of given minutes, a run that is trained further, and the cache of shrunk images.

use crate::common::*;
use std::fs;
use std::path::Path;

/// The words after `key` in the line of `text` that begins with `line`.
fn flags_of(text: &str, line: &str) -> Vec<String> {
    let line = text.lines().find(|l| l.starts_with(line)).unwrap_or_else(|| panic!("no {line} in {text}"));
    let flags = line.split("the same again: ").nth(1).unwrap().trim_end_matches(')');
    flags.split(' ').map(String::from).collect()
}

/// Training and test folders of pictures in three classes.
fn splits(root: &Path) {
    class_folders(&root.join("train"), 8);
    class_folders(&root.join("test"), 2);
}

#[test]
fn minutes_choose_a_run_that_flags_repeat() {
    let (dir, out) = place("run");
    let photos = dir.path().join("photos");
    splits(&photos);
    let args = ["train", photos.to_str().unwrap(), "--minutes", "0.05", "--no-report", "--out", out.to_str().unwrap()];
    succeed(&args);
    let log = fs::read_to_string(out.join("train.log")).unwrap();
    let chosen = flags_of(&log, "chosen");
    assert!(log.contains("chosen    for 3 s: 2") && chosen.contains(&"--size".to_string()), "{log}");
    assert!(!log.contains("longer"), "nothing is offered where the time was given: {log}");
    let again = dir.path().join("again");
    let mut args = vec!["train", photos.to_str().unwrap(), "--no-report", "--quiet", "--out", again.to_str().unwrap()];
    args.extend(chosen.iter().map(String::as_str));
    succeed(&args);
    let settings = |run: &Path| {
        let text = fs::read_to_string(run.join("config.toml")).unwrap();
        text.split_once("[data]").unwrap().1.to_string()
    };
    assert_eq!(settings(&out), settings(&again));
    assert_same(&bits(&out), &bits(&again));

    // A dry run of a folder without any wish has the default time, and says what more would bring.
    let output = run(&["train", photos.to_str().unwrap(), "--dry-run"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for words in ["chosen    for 20 min 0 s", "--minutes 240 would bring", "--preset pcp --width 64 trains 100 epochs"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(fail(2, &["train", "--minutes", "0"]).contains("--minutes is 0"));
    let all = ["train", "--minutes", "5", "--width", "4", "--size", "16", "--epochs", "2"];
    assert!(fail(2, &all).contains("nothing to choose"));
    assert!(fail(2, &["train", "--preset", "random", "--minutes", "5", "--limit", "20"]).contains("trains nothing"));
    let said = fail(2, &["train", "--resume", out.to_str().unwrap(), "--minutes", "5"]);
    assert!(said.contains("pcp train --extend"), "{said}");
}

/// What `--minutes` chooses where not even one epoch fits.
#[test]
fn patches_without_a_network_are_a_run_too() {
    let (dir, out) = place("run");
    let photos = dir.path().join("photos");
    splits(&photos);
    let (photos, run) = (photos.to_str().unwrap(), out.to_str().unwrap());
    succeed(&["train", photos, "--preset", "pcp-plus", "--rounds", "0", "--size", "16", "--width", "4", "--out", run]);
    let result: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(out.join("result.json")).unwrap()).unwrap();
    assert_eq!((&result["network_share"], &result["epochs"]), (&0.0.into(), &0.into()), "{result}");
    assert_eq!(result["knn_last"], result["knn_patches"]);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("images, without a network; kNN") && page.contains("A guess: images far from all others"));
    succeed(&["train", "--resume", run]);
    succeed(&["check", run]);
    // Of photographs of its own folder, none is its own neighbour.
    let near = succeed(&["neighbours", run, &format!("{photos}/train/a/0.png"), "-k", "3"]);
    assert!(near.contains("train/") && !near.contains("train/a/0.png"), "{near}");
    // Its model gives the run's own embeddings.
    let again = dir.path().join("again.npy");
    succeed(&["embed", run, &format!("{photos}/train"), "--out", again.to_str().unwrap()]);
    // Behind the header, which is written in another way.
    let numbers = |file: &Path| fs::read(file).unwrap()[128..].to_vec();
    assert!(numbers(&again) == numbers(&out.join("embeddings.npy")), "the same bits");
}

#[test]
fn a_finished_run_is_trained_further_in_a_new_folder() {
    let (dir, out) = place("run-1");
    let photos = dir.path().join("photos");
    splits(&photos);
    let quick = ["--size", "16", "--width", "4", "--batch", "16", "--no-report", "--quiet", "--seed", "3"];
    let first = ["train", photos.to_str().unwrap(), "--epochs", "2", "--out", out.to_str().unwrap()];
    succeed(&[&first[..], &quick].concat());
    // Test images have their embeddings, too.
    let files = fs::read_to_string(out.join("files-test.csv")).unwrap();
    assert_eq!((files.lines().count(), files.lines().nth(1).unwrap()), (7, "0,24,test/a/0.png,a"));
    let test = pcp_core::io::npy::read_matrix(&out.join("embeddings-test.npy")).unwrap();
    assert_eq!((test.rows, test.dim), (6, 128));

    let before = bits(&out);
    succeed(&["train", "--extend", out.to_str().unwrap(), "--epochs", "3", "--no-report", "--quiet"]);
    assert_same(&before, &bits(&out));
    let next = dir.path().join("run-2");
    let text = fs::read_to_string(next.join("config.toml")).unwrap();
    for line in ["epochs = 3", "width = 4", "size = 16", "seed = 3", "progressive = false", "warmup_rounds = 0"] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    assert_eq!(fs::read_to_string(next.join("metrics.jsonl")).unwrap().lines().count(), 3);
    // It goes on where the first ended.
    let result: serde_json::Value = serde_json::from_slice(&fs::read(next.join("result.json")).unwrap()).unwrap();
    let ended: serde_json::Value = serde_json::from_slice(&fs::read(out.join("result.json")).unwrap()).unwrap();
    assert_eq!(result["knn_untrained"], ended["knn_last"]);

    let patches = dir.path().join("patches");
    let words = [photos.to_str().unwrap(), "--preset", "patches", "--size", "16", "--out", patches.to_str().unwrap()];
    succeed(&[&["train", "--no-report", "--quiet"], &words[..]].concat());
    let said = fail(2, &["train", "--extend", patches.to_str().unwrap()]);
    assert!(said.contains("no network"), "{said}");
    let said = fail(2, &["train", photos.to_str().unwrap(), "--extend", out.to_str().unwrap()]);
    assert!(said.contains("--extend keeps the images"), "{said}");
    fs::remove_file(next.join("result.json")).unwrap();
    let said = fail(2, &["train", "--extend", next.to_str().unwrap()]);
    assert!(said.contains("not finished") && said.contains("--resume"), "{said}");
    let said = fail(2, &["train", "--resume", out.to_str().unwrap(), "--epochs", "9"]);
    assert!(said.contains("pcp train --extend"), "{said}");

    // A run's class folders are its labels.
    let clean = dir.path().join("clean");
    let summary = succeed(&["purify", out.to_str().unwrap(), "--out", clean.to_str().unwrap(), "--no-sheet", "--json"]);
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["labels"]["labels"], 24, "{summary}");
}

#[test]
fn shrunk_images_are_kept_and_give_the_same_bits() {
    let (dir, photos) = place("photos");
    let cache = dir.path().join("cache");
    for class in ["a", "b"] {
        fs::create_dir_all(photos.join(class)).unwrap();
        for index in 0..3 {
            // 12 MB each: worth keeping.
            let seed = index * 7 + class.len() as u32;
            let noise = |x: u32, y: u32| (x.wrapping_mul(31) ^ y.wrapping_mul(17).wrapping_add(seed * 99)) as u8;
            let image = image::RgbImage::from_fn(2000, 2000, |x, y| image::Rgb([noise(x, y), x as u8, y as u8]));
            image.save(photos.join(class).join(format!("{index}.bmp"))).unwrap();
        }
    }
    let train = |name: &str, more: &[&str]| {
        let out = dir.path().join(name);
        let words = ["train", photos.to_str().unwrap(), "--out", out.to_str().unwrap(), "--no-report", "--quiet"];
        let quick = ["--size", "16", "--width", "4", "--epochs", "1", "--clusters", "2"];
        let mut command = pcp(&[&words[..], &quick, more].concat());
        assert!(command.env("PCP_CACHE", &cache).status().unwrap().success());
        bits(&out)
    };
    let kept = || -> Vec<String> {
        let entries = fs::read_dir(&cache).into_iter().flatten().flatten();
        entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    };
    let without = train("without", &["--no-cache"]);
    assert!(kept().is_empty());
    assert_same(&without, &train("first", &[]));
    assert!(kept().len() == 1 && kept()[0].ends_with(".pixels"), "{:?}", kept());
    assert_same(&without, &train("second", &[]));
    // A damaged cache is no loss.
    let path = cache.join(&kept()[0]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[20..200].fill(7);
    fs::write(&path, &bytes).unwrap();
    assert_same(&without, &train("third", &[]));
}

#[test]
fn splits_are_named_and_one_folder_too_high_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let flowers = dir.path().join("flowers/flowers");
    splits(&flowers);
    class_folders(&flowers.join("valid"), 1);
    let shown = succeed(&["data", "check", flowers.to_str().unwrap()]);
    for words in ["24  (in train/)", "6  (in test/)", "3 images in valid/"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let above = dir.path().join("flowers");
    for args in [["data", "check"], ["train", "--dry-run"]] {
        let said = fail(1, &[&args[..], &[above.to_str().unwrap()]].concat());
        assert!(said.contains(&format!("did you mean {}?", flowers.display())), "{said}");
    }
    splits(&dir.path().join("flowers/herbs"));
    assert!(fail(1, &["data", "check", above.to_str().unwrap()]).contains("give one of them"));
    // Without splits: all images are in one folder, whose folders could be classes.
    let birds = dir.path().join("birds");
    class_folders(&birds.join("all"), 2);
    let shown = succeed(&["data", "check", birds.to_str().unwrap()]);
    let hint = format!("whose folders are classes if you give {}", birds.join("all").display());
    assert!(shown.contains(&hint), "{shown}");
    assert!(!succeed(&["data", "check", birds.join("all").to_str().unwrap()]).contains("if you give"));
}

/// Without --out, findings go into a new folder below findings/; class folders are labels; every list is there as table, as paths and as links.
#[test]
fn a_folder_is_clustered_and_purified_without_another_word() {
    let dir = tempfile::tempdir().unwrap();
    class_folders(&dir.path().join("photos"), 15);
    let succeed = |args: &[&str]| {
        let output = pcp(args).current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for n in ["1", "2"] {
        let said = succeed(&["cluster", "photos", "--k", "3"]);
        assert!(said.contains(&format!("findings/photos-cluster-{n}")), "{said}");
    }
    let said = succeed(&["purify", "photos", "--k", "3"]);
    for words in ["findings/photos-purify-1", "wrong labels", "a guess  (outliers.csv)"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let out = dir.path().join("findings/photos-purify-1");
    let lines = |name: &str| fs::read_to_string(out.join(name)).unwrap().lines().map(String::from).collect::<Vec<_>>();
    for name in ["outliers", "label_errors", "suspicious"] {
        let (rows, paths) = (lines(&format!("{name}.csv")).len() - 1, out.join(format!("{name}.txt")));
        // What nothing is found of has a table alone.
        if rows == 0 {
            assert!(!paths.exists() && !out.join("links").join(name).exists(), "{name}");
            continue;
        }
        let paths = lines(&format!("{name}.txt"));
        assert!(paths.iter().all(|path| Path::new(path).is_file()), "{paths:?}");
        assert_eq!((rows, fs::read_dir(out.join("links").join(name)).unwrap().count()), (paths.len(), rows), "{name}");
    }
    assert!(lines("outliers.csv").len() > 1);
    // With --json and without --out nothing is written.
    let summary: serde_json::Value = serde_json::from_str(&succeed(&["purify", "photos", "--json"])).unwrap();
    assert!(summary["labels"].is_object() && summary["out"].is_null(), "{summary}");
    assert_eq!(fs::read_dir(dir.path().join("findings")).unwrap().count(), 3);
}
