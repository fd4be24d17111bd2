//! Commands on users' images and embeddings: embed, cluster, purify, assign, neighbours, duplicates.

use crate::common::*;
use pcp_core::io::npy::{read_matrix, write_npy};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The lines of a CSV file below its heading, by the heading.
fn table(path: &Path) -> Vec<BTreeMap<String, String>> {
    let rows = pcp_core::io::csv::rows(&fs::read_to_string(path).unwrap());
    rows[1..].iter().map(|row| rows[0].iter().cloned().zip(row.iter().cloned()).collect()).collect()
}

fn column(path: &Path, name: &str) -> Vec<String> {
    table(path).into_iter().map(|row| row[name].clone()).collect()
}

/// A folder with spaces, non-Latin letters, names that differ only in case, links, loops and broken files.
fn odd_images(root: &Path) {
    class_folders(root, 8);
    picture(&root.join("a/two words.png"), 24, 0, 100);
    picture(&root.join("b/Ünï ко́шка 猫.PNG"), 24, 1, 101);
    picture(&root.join("c/x.png"), 24, 2, 102);
    picture(&root.join("c/X.png"), 24, 2, 103);
    picture(&root.join("c/<img src=x onerror=alert(1)>, \"q\".png"), 24, 2, 104);
    fs::write(root.join("a/broken.jpg"), b"no picture").unwrap();
    fs::write(root.join("a/notes.txt"), b"no picture at all").unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(root.join("a/0.png"), root.join("b/link.png")).unwrap();
        std::os::unix::fs::symlink(root, root.join("b/loop")).unwrap();
        std::os::unix::fs::symlink("nowhere.png", root.join("c/dangling.png")).unwrap();
    }
}

/// Every path below `root` with its content, to see that nothing changes.
pub fn snapshot(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root).unwrap().flatten() {
        let path = entry.path();
        match path.is_symlink() || path.is_file() {
            true => all.push((path.clone(), fs::read(&path).unwrap_or_default())),
            false => all.extend(snapshot(&path)),
        }
    }
    all.sort();
    all
}

fn trained(root: &Path) -> (PathBuf, PathBuf) {
    let (images, run) = (root.join("my images"), root.join("run"));
    odd_images(&images);
    let (data, out) = (images.to_str().unwrap(), run.to_str().unwrap());
    let quick = ["--size", "16", "--width", "4", "--epochs", "3", "--batch", "8", "--clusters", "4", "--quiet"];
    succeed(&[&["train", data, "--out", out, "--no-report"][..], &quick].concat());
    (images, run)
}

/// Rows around four centres, in the order 0 1 2 3 0 1 2 3 ...; the last rows are outliers.
fn rows(each: usize, odd: usize) -> (usize, Vec<f32>) {
    let dim = 6;
    let noise = |i: usize, d: usize| ((i * 37 + d * 101) % 97) as f32 / 97.0 - 0.5;
    let near = (0..4 * each).flat_map(|i| (0..dim).map(move |d| if d == i % 4 { 1.0 } else { 0.08 * noise(i, d) }));
    let far = (0..odd).flat_map(|i| (0..dim).map(move |d| if d >= 4 { 1.0 + noise(i, d) } else { 0.3 + noise(i, d) }));
    (dim, near.chain(far).collect())
}

#[test]
fn a_run_embeds_its_own_and_other_images() {
    let dir = tempfile::tempdir().unwrap();
    let (images, run) = trained(dir.path());
    let before = snapshot(&images);
    let (run_, images_) = (run.to_str().unwrap(), images.to_str().unwrap());
    let file = |name: &str| dir.path().join(name);
    let path = |name: &str| file(name).display().to_string();

    // The run's own embeddings come back, from the run and from the model file alone, on any number of threads.
    let shown = succeed(&["embed", run_, images_, "--out", &path("emb.npy"), "--threads", "1"]);
    let (n, unreadable) = if cfg!(unix) { (30, 2) } else { (29, 1) };
    assert!(shown.contains(&format!("{n} images, 128 numbers each")), "{shown}");
    assert!(shown.contains(&format!("{unreadable}  (")), "{shown}");
    let embedded = read_matrix(&file("emb.npy")).unwrap();
    let own = read_matrix(&run.join("embeddings.npy")).unwrap();
    assert_eq!((embedded.rows, embedded.dim), (own.rows, own.dim));
    assert!(embedded.values.iter().zip(&own.values).all(|(a, b)| (a - b).abs() < 1e-5));
    assert_eq!(column(&file("files.csv"), "file"), column(&run.join("files.csv"), "file"));
    assert_eq!(column(&file("files.csv"), "label"), column(&run.join("files.csv"), "label"));
    let model = run.join("model.safetensors");
    succeed(&["embed", model.to_str().unwrap(), images_, "--out", &path("again.npy"), "--threads", "3"]);
    assert_eq!(fs::read(file("emb.npy")).unwrap(), fs::read(file("again.npy")).unwrap());
    assert!(!file("again.files.csv").exists(), "the same files.csv serves both");

    // Other features, as CSV; another folder's names do not replace those that are there.
    let report = json(&succeed(&["embed", run_, images_, "--features", "layer4", "--out", &path("l4.csv"), "--json"]));
    assert_eq!(report["rows"], n);
    let cells = fs::read_to_string(file("l4.csv")).unwrap();
    assert!(cells.starts_with("file,0,1,2,"), "{}", &cells[..40]);
    let one = images.join("a/two words.png");
    let report = json(&succeed(&["embed", run_, one.to_str().unwrap(), "--out", &path("one.npy"), "--json"]));
    assert!(report["files"].as_str().unwrap().ends_with("one.files.csv"), "{report}");
    let at = column(&file("files.csv"), "file").iter().position(|f| f == "a/two words.png").unwrap();
    let alone = read_matrix(&file("one.npy")).unwrap();
    assert!(alone.values.iter().zip(embedded.row(at)).all(|(a, b)| (a - b).abs() < 1e-5));

    // Errors.
    assert!(fail(2, &["embed", run_, images_, "--out", &path("emb.npy")]).contains("there already"));
    let said = fail(2, &["embed", run_, images_, "--features", "layer9", "--out", &path("n.npy")]);
    assert!(said.contains("layer9") && said.contains("layer4"), "{said}");
    assert!(fail(2, &["embed", run_, images_, "--features", "all", "--out", &path("n.npy")]).contains("no layer all"));
    assert!(
        fail(1, &["embed", run_, images.join("a/broken.jpg").to_str().unwrap(), "--out", &path("n.npy")])
            .contains("none of the images can be read")
    );
    let left = fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    assert!(!left.into_iter().any(|name| name.starts_with("n.npy")));
    let bare = file("bare.safetensors");
    fs::write(&bare, without_description(&fs::read(&model).unwrap())).unwrap();
    // A file with weights only is recognised by names and shapes, with the usual preprocessing.
    succeed(&["embed", bare.to_str().unwrap(), images_, "--out", &path("bare.npy")]);
    assert_eq!(read_matrix(&file("bare.npy")).unwrap().rows, embedded.rows);
    let beside = file("beside");
    fs::create_dir(&beside).unwrap();
    fs::copy(&bare, beside.join("m.safetensors")).unwrap();
    fs::copy(run.join("config.toml"), beside.join("config.toml")).unwrap();
    succeed(&["embed", beside.join("m.safetensors").to_str().unwrap(), images_, "--out", &path("beside/e.npy")]);
    assert_eq!(fs::read(file("emb.npy")).unwrap(), fs::read(beside.join("e.npy")).unwrap());

    // Most of the run's own images are assigned to their own clusters.
    let assigned = json(&succeed(&["assign", run_, images_, "--json"]));
    let assigned = assigned.as_array().unwrap();
    assert_eq!(assigned.len(), n);
    let clusters: Vec<Value> = assigned.iter().map(|a| a["cluster"].clone()).collect();
    let theirs = column(&run.join("clusters.csv"), "cluster");
    let same = clusters.iter().zip(&theirs).filter(|(a, b)| a.to_string() == **b).count();
    assert!(same > 20, "{same} of {n}");
    for a in assigned {
        let number = |key: &str| a[key].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&number("confidence")) && (0.0..=1.0).contains(&number("fit")), "{a}");
    }
    // Into a new folder, beside another file.
    fs::write(file("assigned.csv.tmp"), "mine").unwrap();
    succeed(&["assign", run_, images_, "--out", &path("new/assigned.csv")]);
    succeed(&["assign", run_, images_, "--out", &path("assigned.csv"), "--page", &path("assigned.html")]);
    let page = std::fs::read_to_string(path("assigned.html")).unwrap();
    assert!(page.contains("Where they belong") && page.contains("of the run") && page.contains("fit "), "{page}");
    assert_eq!(fs::read(file("assigned.csv.tmp")).unwrap(), b"mine");
    assert_eq!(fs::read(file("new/assigned.csv")).unwrap(), fs::read(file("assigned.csv")).unwrap());
    assert!(fail(2, &["assign", run_, images_, "--data-dir", "x"]).contains("--data-dir is for cifar10"));
    assert_eq!(column(&file("assigned.csv"), "cluster").len(), n);
    fail(2, &["assign", run_, images_, "--out", &path("assigned.csv")]);

    // Neighbours of an image of the run, and of a file.
    let near = json(&succeed(&["neighbours", run_, "a/0.png", "-k", "3", "--json"]));
    assert_eq!(near.as_array().unwrap().len(), 3);
    assert!(near.as_array().unwrap().iter().all(|n| n["file"] != "a/0.png"));
    if cfg!(unix) {
        assert_eq!(near[0]["file"], "b/link.png", "a link to the same picture is the nearest");
    }
    let near = json(&succeed(&["neighbours", run_, one.to_str().unwrap(), "--json"]));
    assert!(
        near.as_array().unwrap().iter().all(|n| n["file"] != "a/two words.png"),
        "by its path it is the same: {near}"
    );
    fs::copy(&one, file("elsewhere.png")).unwrap();
    let near = json(&succeed(&["neighbours", run_, &path("elsewhere.png"), "--json"]));
    assert_eq!((near.as_array().unwrap().len(), &near[0]["file"]), (10, &Value::from("a/two words.png")));
    assert!(fail(2, &["neighbours", run_, "a/O.png"]).contains("did you mean"));

    // The same picture twice is a duplicate.
    if cfg!(unix) {
        let twins = json(&succeed(&["duplicates", run_, "--threshold", "1", "--json"]));
        let files: Vec<&str> = twins.as_array().unwrap().iter().map(|t| t["file"].as_str().unwrap()).collect();
        assert!(files.contains(&"a/0.png") && files.contains(&"b/link.png"), "{files:?}");
        // By the pictures themselves, with pairs that the network proposes.
        let twins = json(&succeed(&["duplicates", run_, "--json"]));
        let group = |file: &str| {
            twins["rows"].as_array().unwrap().iter().find(|row| row["file"] == file).unwrap()["group"].clone()
        };
        assert_eq!(group("a/0.png"), group("b/link.png"));
    }
    assert!(fail(2, &["duplicates", run_, "--threshold", "1.5"]).contains("--threshold"));

    // A run is clustered and purified with its images.
    let shown = succeed(&["cluster", run_, "--k", "3", "--folders", "copy", "--out", &path("sorted")]);
    assert!(shown.contains("sheet.html"), "{shown}");
    let made = column(&file("sorted/folders.csv"), "path");
    assert_eq!(made.len(), n);
    let names = column(&file("sorted/folders.csv"), "file");
    for (made, name) in made.iter().zip(&names) {
        assert_eq!(fs::read(file("sorted").join(made)).unwrap(), fs::read(images.join(name)).unwrap(), "{name}");
    }
    let shown = succeed(&["purify", run_, "--labels", run.join("files.csv").to_str().unwrap(), "--out", &path("pure")]);
    assert!(shown.contains("from the run"), "{shown}");
    let page = fs::read_to_string(file("pure/sheet.html")).unwrap();
    assert!(page.contains("default-src 'none'") && !page.contains("<img src=x"), "names are text");
    assert!(page.contains("\\u003cimg src=x"), "the odd name is there");
    assert_eq!(snapshot(&images), before, "nothing in the user's folder has changed");
}

/// A safetensors file without its metadata.
fn without_description(bytes: &[u8]) -> Vec<u8> {
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: serde_json::Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    header.remove("__metadata__");
    let header = serde_json::to_vec(&header).unwrap();
    [&(header.len() as u64).to_le_bytes()[..], &header, &bytes[8 + length..]].concat()
}

#[test]
fn any_matrix_is_clustered() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let path = |name: &str| file(name).display().to_string();
    let (dim, values) = rows(20, 0);
    let n = values.len() / dim;
    write_npy(&file("e.npy"), &[n, dim], &values).unwrap();
    let lines = |heading: &str| {
        let line = |(i, row): (usize, &[f32])| {
            let numbers: Vec<String> = row.iter().map(f32::to_string).collect();
            if heading.starts_with("file") {
                format!("{i}.png,{}\n", numbers.join(","))
            } else {
                numbers.join(",") + "\n"
            }
        };
        heading.to_string() + &values.chunks(dim).enumerate().map(line).collect::<String>()
    };
    fs::write(file("e.csv"), lines("file,a,b,c,d,e,f\n")).unwrap();
    fs::write(file("plain.csv"), lines("")).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let header = format!("{{\"e\":{{\"dtype\":\"F32\",\"shape\":[{n},{dim}],\"data_offsets\":[0,{}]}}}}", bytes.len());
    let tensors = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &bytes].concat();
    fs::write(file("e.safetensors"), tensors).unwrap();

    // Four groups are found, from every kind of file alike, on any number of threads.
    let shown = succeed(&["cluster", &path("e.npy"), "--out", &path("1")]);
    assert!(shown.contains("4, by centres  (the greatest mean silhouette"), "{shown}");
    let clusters = column(&file("1/clusters.csv"), "cluster");
    assert!((0..n).all(|i| clusters[i] == clusters[i % 4]), "{clusters:?}");
    assert_eq!(column(&file("1/sizes.csv"), "size"), ["20"; 4]);
    assert_eq!(table(&file("1/representatives.csv")).len(), 20);
    let curve = table(&file("1/k.csv"));
    assert_eq!(curve.iter().filter(|t| t["chosen"] == "1").map(|t| t["k"].as_str()).collect::<Vec<_>>(), ["4"]);
    assert_eq!(read_matrix(&file("1/centroids.npy")).unwrap().rows, 4);
    for (i, (name, threads)) in [("e.csv", "1"), ("plain.csv", "2"), ("e.safetensors", "3")].iter().enumerate() {
        let out = path(&format!("kind{i}"));
        succeed(&["cluster", &path(name), "--k", "4", "--out", &out, "--threads", threads]);
        assert_eq!(column(&file(&format!("kind{i}/clusters.csv")), "cluster"), clusters, "{name}");
    }
    assert_eq!(column(&file("kind0/clusters.csv"), "file")[3], "3.png");
    let summary = json(&succeed(&[
        "cluster",
        &path("e.npy"),
        "--k",
        "4",
        "--metric",
        "euclidean",
        "--json",
        "--out",
        &path("j"),
    ]));
    assert_eq!((&summary["k"], &summary["metric"], &summary["largest"]), (&4.into(), &"euclidean".into(), &20.into()));

    // Existing outputs are refused.
    fs::create_dir(file("mine")).unwrap();
    fs::write(file("mine/precious"), b"x").unwrap();
    for out in ["mine", "1", "e.npy", "mine/precious"] {
        assert!(
            fail(2, &["cluster", &path("e.npy"), "--k", "2", "--out", &path(out)]).contains("there already"),
            "{out}"
        );
    }
    assert_eq!(fs::read(file("mine/precious")).unwrap(), b"x");
    assert!(
        fail(2, &["cluster", &path("e.npy"), "--k", "2", "--folders", "link", "--out", &path("n")])
            .contains("--images")
    );
    assert!(fail(2, &["cluster", &path("e.npy"), "--k", "0", "--out", &path("n")]).contains("--k is 0"));
    assert!(fail(2, &["cluster", &path("e.npy"), "--k", "81", "--out", &path("n")]).contains("1 to 80"));
    assert!(!file("n").exists());
}

#[test]
fn rows_that_cannot_be_used_are_refused_or_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let path = |name: &str| file(name).display().to_string();
    let (dim, mut values) = rows(10, 0);
    let n = values.len() / dim;
    values[3 * dim + 1] = f32::NAN;
    values[7 * dim] = f32::INFINITY;
    values[9 * dim..10 * dim].fill(0.0);
    write_npy(&file("e.npy"), &[n, dim], &values).unwrap();
    let names: String = (0..n).map(|i| format!("{i}.png\n")).collect();
    fs::write(file("files.csv"), format!("file\n{names}")).unwrap();
    let said = fail(1, &["cluster", &path("e.npy"), "--k", "4", "--out", &path("n")]);
    assert!(said.contains("3 rows cannot be used: row 3 (not a number), row 7 (infinite), row 9 (zero"), "{said}");
    let shown = succeed(&["cluster", &path("e.npy"), "--k", "4", "--skip-bad-rows", "--out", &path("c")]);
    assert!(shown.contains("37 of 6") && shown.contains("3  (unusable.csv)"), "{shown}");
    assert_eq!(column(&file("c/unusable.csv"), "row"), ["3", "7", "9"]);
    let clusters = table(&file("c/clusters.csv"));
    assert_eq!((clusters[3]["row"].as_str(), clusters[3]["file"].as_str()), ("4", "4.png"));
    succeed(&["cluster", &path("e.npy"), "--k", "4", "--metric", "euclidean", "--skip-bad-rows", "--out", &path("d")]);
    assert_eq!(column(&file("d/unusable.csv"), "row"), ["3", "7"], "a zero row is valid with the Euclidean metric");
    let labels: String = (0..n).map(|i| format!("{}\n", ["a", "b", "c", "d"][i % 4])).collect();
    fs::write(file("labels.csv"), format!("label\n{labels}")).unwrap();
    let all = ["purify", &path("e.npy"), "--k", "4", "--skip-bad-rows", "--labels", &path("labels.csv")];
    succeed(&[&all[..], &["--out", &path("p")]].concat());
    let pure = table(&file("p/clusters.csv"));
    assert!(pure.iter().all(|r| r["suggested"] == r["label"]), "labels follow their rows");
    write_npy(&file("bad.npy"), &[2, 2], &[f32::NAN; 4]).unwrap();
    let said = fail(1, &["duplicates", &path("bad.npy"), "--skip-bad-rows", "--files", &path("files.csv")]);
    assert!(said.contains("names 40 rows, "), "{said}");
    fs::remove_file(file("files.csv")).unwrap();
    assert!(fail(1, &["duplicates", &path("bad.npy"), "--skip-bad-rows"]).contains("none of its rows"));
}

#[test]
fn embeddings_of_any_network_are_purified() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let path = |name: &str| file(name).display().to_string();
    let (dim, values) = rows(25, 5);
    let n = values.len() / dim;
    write_npy(&file("e.npy"), &[n, dim], &values).unwrap();

    // Outliers have the highest scores; a wrong label is found.
    let label = |i: usize| if i == 8 { "b" } else { ["a", "b", "c", "d"][i % 4] };
    let labels: String = (0..n).map(|i| format!("{}\n", label(i))).collect();
    fs::write(file("labels.csv"), format!("label\n{labels}")).unwrap();
    let base = ["purify", &path("e.npy"), "--k", "4", "--labels", &path("labels.csv")];
    let shown = succeed(&[&base[..], &["--out", &path("1"), "--threads", "1"]].concat());
    assert!(shown.contains("15, from repeated k-means; alpha 1"), "{shown}");
    let suspicious = table(&file("1/suspicious.csv"));
    let rows: Vec<usize> = suspicious.iter().map(|r| r["row"].parse().unwrap()).collect();
    assert!(rows[..5].iter().all(|row| *row >= 100), "{:?}", &rows[..8]);
    let doubts: Vec<f32> = suspicious.iter().map(|r| r["doubt"].parse().unwrap()).collect();
    assert!(doubts.windows(2).all(|w| w[0] >= w[1]));
    let clean = table(&file("1/clean.csv"));
    assert_eq!(clean.len() + suspicious.len(), n);
    let errors = table(&file("1/label_errors.csv"));
    let doubtful = table(&file("1/doubtful_labels.csv"));
    let of = |row: &str| errors.iter().chain(&doubtful).find(|e| e["row"] == row);
    assert_eq!(of("8").map(|e| (e["label"].as_str(), e["suggested"].as_str())), Some(("b", "a")));
    let others = errors.iter().filter(|e| e["row"] != "8").map(|e| e["row"].parse::<usize>().unwrap());
    assert!(others.into_iter().all(|row| row >= 100), "{errors:?}: only odd ones beside it");
    succeed(&[&base[..], &["--out", &path("2"), "--threads", "3"]].concat());
    for name in ["clusters.csv", "suspicious.csv", "label_errors.csv", "doubtful_labels.csv"] {
        assert_eq!(fs::read(file("1").join(name)).unwrap(), fs::read(file("2").join(name)).unwrap(), "{name}");
    }

    // CP_s from matrices, from past assignments, and not at all.
    let mut older: Vec<f32> = values.clone();
    older[..dim].copy_from_slice(&values[dim..2 * dim]);
    write_npy(&file("old.npy"), &[n, dim], &older).unwrap();
    let votes = |name: &str, more: &[&str]| {
        let mut args = vec!["purify"];
        args.extend(more);
        let out = path(name);
        args.extend(["--k", "4", "--gamma", "0", "--json", "--out", &out]);
        let summary = json(&succeed(&args));
        (
            summary["votes_from"].as_str().unwrap().to_string(),
            summary["votes"].as_u64().unwrap(),
            column(&file(name).join("clusters.csv"), "status"),
        )
    };
    let (old, new) = (path("old.npy"), path("e.npy"));
    let (from, n_votes, status) = votes("3", &[&old, &old, &old, &new]);
    assert_eq!((from.as_str(), n_votes), ("the matrices before", 3));
    assert_eq!(status[0], "dropped", "it was with others before");
    assert_eq!(status[4], "kept");
    let past: String = (0..n).map(|i| format!("{}\n", if i == 0 { 1 } else { i % 4 })).collect();
    fs::write(file("past.csv"), format!("cluster\n{past}")).unwrap();
    let past = path("past.csv");
    let (from, n_votes, status) = votes("4", &[&new, "--past", &past, &past, &past]);
    assert_eq!((from.as_str(), n_votes, status[0].as_str()), ("past assignments", 3, "dropped"));
    // One past clustering has two votes: together or not.
    let (_, n_votes, status) = votes("6", &[&new, "--past", &past]);
    assert_eq!((n_votes, status[0].as_str()), (1, "dropped"));
    let (from, n_votes, status) = votes("5", &[&new, "--no-votes"]);
    assert_eq!((from.as_str(), n_votes, status[0].as_str()), ("nothing", 0, "kept"));

    // Invalid options are refused with the reason.
    let refused = |more: &[&str], word: &str| {
        let out = path("n");
        let said = fail(if word == "rows" { 1 } else { 2 }, &[&["purify"], more, &["--out", &out]].concat());
        assert!(said.contains(word), "{word} is not in {said}");
        assert!(!file("n").exists());
    };
    refused(&[&new, "--gamma", "1"], "--gamma");
    refused(&[&new, "--alpha", "0"], "--alpha");
    refused(&[&new, "--k", "4", "--past", &past, "--lower", "0"], "no vote can fall below --lower 0");
    refused(&[&old, &new, "--k", "4", "--past", &past], "use --past or earlier matrices");
    refused(&[&new, "--no-votes", "--lower", "1"], "--no-votes");
    refused(&[&new, "--no-votes", "--votes", "5"], "--no-votes");
    refused(&[&old, &new, "--no-votes"], "--no-votes");
    refused(&[&new, "--no-sheet", "--images", "."], "--no-sheet");
    refused(&[&new, "--k", "4", "--upper", "99"], "no vote can reach --upper 99");
    write_npy(&file("short.npy"), &[4, dim], &values[..4 * dim]).unwrap();
    refused(&[&path("short.npy"), &new, "--k", "4"], "rows");
}

#[test]
fn cifar_like_data_sets_have_no_files_to_copy() {
    let (dir, run) = reference().copy();
    let out = dir.path().join("sorted");
    let args = ["cluster", run.to_str().unwrap(), "--k", "4", "--out", out.to_str().unwrap()];
    let said = fail(2, &[&args[..], &["--folders", "link"]].concat());
    assert!(said.contains("not files of their own"), "{said}");
    assert!(!out.exists());
    assert!(succeed(&args).contains("sheet.html"), "pictures come from memory");
}
