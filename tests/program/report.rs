//! Reports: of labelled and unlabelled images, hostile names, unfinished and degenerate runs, several at once.

use crate::common::*;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The data of a page, after checking that it contains no addresses.
fn read(page: &Path) -> Value {
    let text = fs::read_to_string(page).unwrap();
    // The name of the SVG language is the only address in it; nothing is fetched.
    let fetched = text.replace("http://www.w3.org/2000/svg", "");
    assert!(!fetched.contains("http://") && !fetched.contains("https://"), "an address");
    assert!(!fetched.contains("src=") && !fetched.contains("@import"));
    assert!(text.contains("default-src 'none'"));
    let (_, data) = text.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    assert!(!data.contains('<'), "data is never markup");
    serde_json::from_str(data).unwrap()
}

/// `pcp train` on `data`, small and short.
fn train(data: &Path, out: &Path, more: &[&str]) {
    let mut args = vec!["train", data.to_str().unwrap(), "--out", out.to_str().unwrap()];
    args.extend(["--size", "16", "--width", "4", "--epochs", "3", "--batch", "8", "--quiet"]);
    if !more.contains(&"--clusters") {
        args.extend(["--clusters", "3"]);
    }
    args.extend(["--set", "evaluate.k=3"]);
    args.extend(more);
    succeed(&args);
}

fn report(args: &[&str]) -> String {
    let mut words = vec!["report"];
    words.extend(args);
    succeed(&words)
}

#[test]
fn training_ends_with_a_report() {
    let said = &reference().stdout;
    let (_dir, out) = reference().copy();
    assert!(said.contains("report.html in a browser"), "{said}");
    let page = out.join("report.html");
    assert!(fs::metadata(&page).unwrap().len() < 600_000);
    let data = read(&page);
    let run = &data["runs"][0];
    let sentence = run["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("ResNet18 (width 4) learned from 60 unlabelled images for 16 epochs; kNN"),
        "{sentence}"
    );
    assert!(sentence.contains("6 clusters keep"), "{sentence}");
    assert_eq!(run["curves"]["epoch"].as_array().unwrap().len(), 16);
    assert_eq!(run["map"]["x"].as_array().unwrap().len(), 60);
    assert_eq!((&run["thumbnails"]["count"], &run["notes"]), (&Value::from(60), &serde_json::json!([])));
    assert_eq!(run["neighbours"].as_array().unwrap().len(), 12);
    assert!(run["neighbours"][0][1].as_array().unwrap().iter().all(|i| *i != run["neighbours"][0][0]), "not itself");
    let kinds: Vec<&str> =
        run["sheets"]["kinds"].as_array().unwrap().iter().map(|k| k["name"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Largest", "Purest", "Most mixed", "Most changed"]);
    let clusters = run["clusters"].as_array().unwrap();
    assert_eq!(clusters.iter().map(|c| c["size"].as_u64().unwrap()).sum::<u64>(), 60);
    let counted: u64 = run["confusion"]["counts"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|r| r.as_array().unwrap())
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(counted, 60);
    assert_eq!(run["lights"].as_array().unwrap().len(), 5);
    assert!(run["heat"].is_object());

    // Again by hand, with fewer pictures; then without the flag's file.
    let before = fs::read(&page).unwrap();
    assert!(report(&[out.to_str().unwrap()]).contains("report.html"));
    assert_eq!(fs::read(&page).unwrap(), before, "the same run gives the same page");
    assert_eq!(report(&[out.to_str().unwrap(), "--max-images", "7", "--quiet"]), "");
    assert_eq!(read(&page)["runs"][0]["thumbnails"]["count"], 7);
    succeed(&words(&small(&out, &["--overwrite", "--no-report", "--epochs", "1", "--rounds", "1"])));
    assert!(!page.exists(), "--overwrite removed it, and --no-report writes none");
}

#[test]
fn names_are_only_ever_text() {
    let (dir, out) = place("run");
    let photos = dir.path().join("photos");
    fs::create_dir(&photos).unwrap();
    let names = [
        "<script>alert(1)<.png",
        "\"quoted\" 'name' & co.png",
        "猫の写真.png",
        "кот, собака.png",
        "a.png",
        "b.png",
        "c.png",
    ];
    for (i, name) in names.iter().enumerate() {
        picture(&photos.join(name), 20, i as u8 % 3, i as u32);
    }
    train(&photos, &out, &[]);
    let data = read(&out.join("report.html"));
    let run = &data["runs"][0];
    let shown: Vec<&str> = run["images"]["file"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    for name in names {
        assert!(shown.contains(&name), "{name} is not in {shown:?}");
    }
    // Without labels, the parts that need them are missing.
    assert!(run["classes"].is_null() && run["confusion"].is_null());
    assert!(!run["sentence"].as_str().unwrap().contains("kNN"));
    assert_eq!(run["sheets"]["kinds"][0]["name"], "Largest");

    // Without its images, a page has no thumbnails and a note.
    fs::rename(&photos, dir.path().join("moved")).unwrap();
    report(&[out.to_str().unwrap()]);
    let data = read(&out.join("report.html"));
    assert_eq!(data["runs"][0]["thumbnails"]["count"], 0);
    assert!(data["runs"][0]["notes"][0].as_str().unwrap().starts_with("There are no thumbnails: "));
}

#[test]
fn degenerate_runs_have_pages() {
    let (dir, out) = place("run");
    let photos = dir.path().join("photos");
    class_folders(&photos, 4);
    // One cluster.
    train(&photos, &out, &["--clusters", "1", "--set", "clusters.progressive=false"]);
    let data = read(&out.join("report.html"));
    let run = &data["runs"][0];
    assert_eq!(run["clusters"].as_array().unwrap().len(), 1);
    assert!(run["sentence"].as_str().unwrap().contains("one cluster keeps"), "{}", run["sentence"]);
    assert_eq!(run["lights"][2]["text"], "All images are in one cluster.");

    // Stopped in its first epoch: there are only settings and files.
    for file in ["metrics.jsonl", "clusters.csv", "embeddings.npy", "result.json", "report.html"] {
        fs::remove_file(out.join(file)).unwrap();
    }
    fs::remove_dir_all(out.join("clusters")).unwrap();
    report(&[out.to_str().unwrap()]);
    let data = read(&out.join("report.html"));
    let run = &data["runs"][0];
    assert!(
        run["sentence"].as_str().unwrap().contains("has not finished its first of 3 epochs"),
        "{}",
        run["sentence"]
    );
    assert!(run["map"].is_null() && run["sheets"].is_null() && run["curves"]["epoch"].as_array().unwrap().is_empty());
    assert_eq!(run["notes"], serde_json::json!([]));

    // Damaged files are noted, not fatal; without checksums they are read as they are.
    fs::remove_file(out.join("checksums.txt")).unwrap();
    let files = fs::read_to_string(out.join("files.csv")).unwrap();
    let two: Vec<&str> = files.lines().take(2).collect();
    fs::write(out.join("files.csv"), two.join("\n") + "\n").unwrap();
    fs::write(out.join("clusters.csv"), "file,cluster,status,distance,vote\na/0.png,0,instance,0,\n").unwrap();
    fs::write(out.join("metrics.jsonl"), "{\"round\":0").unwrap();
    report(&[out.to_str().unwrap()]);
    let data = read(&out.join("report.html"));
    let run = &data["runs"][0];
    assert!(run["sentence"].as_str().unwrap().contains("one image"), "{}", run["sentence"]);
    let notes = run["notes"].to_string();
    assert!(notes.contains("metrics.jsonl is left out") && notes.contains("no thumbnails"), "{notes}");
}

#[test]
fn runs_stand_side_by_side() {
    let (dir, a) = place("first");
    let (b, out, photos) = (dir.path().join("second"), dir.path().join("both.html"), dir.path().join("photos"));
    class_folders(&photos, 4);
    train(&photos, &a, &["--no-report"]);
    train(&photos, &b, &["--no-report", "--gamma", "0.2"]);
    assert!(!a.join("report.html").exists());
    let said = report(&[a.to_str().unwrap(), b.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert!(said.contains("both.html"));
    let data = read(&out);
    let names: Vec<&str> = data["runs"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "second"]);
    let gamma =
        |run: &Value| run["config"].as_array().unwrap().iter().find(|c| c[0] == "purify.gamma").unwrap()[1].clone();
    assert_eq!((gamma(&data["runs"][0]), gamma(&data["runs"][1])), ("0.5".into(), "0.2".into()));
}

#[test]
fn usage_errors_are_explained() {
    let (dir, out) = place("run");
    assert!(fail(2, &["report"]).contains("RUN"));
    assert!(fail(2, &["report", dir.path().to_str().unwrap()]).contains("not a run folder"));
    let photos = dir.path().join("photos");
    class_folders(&photos, 2);
    train(&photos, &out, &["--no-report"]);
    let folder = fail(2, &["report", out.to_str().unwrap(), "--out", dir.path().to_str().unwrap()]);
    assert!(folder.contains("is a folder"), "{folder}");
    // A run does not fail when its report cannot be written.
    let blocked = dir.path().join("blocked");
    train(&photos, &blocked, &["--no-report"]);
    fs::create_dir(blocked.join("report.html")).unwrap();
    fs::remove_file(blocked.join("result.json")).unwrap();
    let again = run(&["train", "--resume", blocked.to_str().unwrap(), "--quiet"]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success() && said.contains("warning: there is no report"), "{said}");
}
