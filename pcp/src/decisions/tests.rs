//! Tests of decisions: what holds, undo and redo, several writers, kills, and bad files.

use super::*;
use std::io::Write;

fn files(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| n.to_string()).collect()
}

fn mark(names: &[&str], mark: Option<Mark>) -> Decision {
    Decision::Mark { files: files(names), mark }
}

#[test]
fn later_decisions_win_and_none_takes_them_back() {
    let mut d = Decided::default();
    assert!(d.is_empty());
    d.take(&mark(&["a", "b"], Some(Mark::Remove)));
    d.take(&mark(&["b"], Some(Mark::Keep)));
    d.take(&Decision::Same { files: files(&["c", "d"]), of: Some("b".into()) });
    d.take(&mark(&["d"], Some(Mark::Keep)));
    assert_eq!(["a", "b", "c", "d", "e"].map(|f| d.leaves_out(f)), [true, false, true, false, false]);
    assert!(d.keeps("b") && !d.keeps("e"));
    d.take(&mark(&["a", "b", "d"], None));
    d.take(&Decision::Same { files: files(&["c", "d"]), of: None });
    assert!(d.is_empty());
    d.take(&Decision::Label { files: files(&["a"]), label: Some("cat".into()) });
    assert_eq!(d.labels["a"], "cat");
}

#[test]
fn merged_clusters_share_a_name_and_never_run_in_circles() {
    let mut d = Decided::default();
    d.take(&Decision::Name { cluster: 7, name: Some("cats".into()) });
    d.take(&Decision::Merge { clusters: vec![3, 7], into: 7 });
    assert_eq!((d.root(3), d.name(3), d.name(4)), (7, Some("cats"), None));
    // The other way round changes nothing: they are one already.
    d.take(&Decision::Merge { clusters: vec![3, 7], into: 3 });
    assert_eq!((d.root(3), d.root(7)), (7, 7));
    d.take(&Decision::Merge { clusters: vec![9, 3], into: 9 });
    assert_eq!([3, 7, 9].map(|c| d.root(c)), [9, 9, 9]);
    assert_eq!(d.name(3), None, "cluster 9 has no name");
    d.take(&Decision::Name { cluster: 3, name: Some("all".into()) });
    assert_eq!(d.name(9), Some("all"));
    d.take(&Decision::Move { files: files(&["x"]), to: Some(7) });
    assert_eq!((d.cluster("x", 1), d.cluster("y", 1), d.cluster("y", 3)), (9, 1, 9));
}

#[test]
fn undo_and_redo_follow_each_pages_own_decisions_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let (mut one, mut two) = (DecisionLog::open(&path).unwrap(), DecisionLog::open(&path).unwrap());
    assert_eq!((one.undo("1").unwrap(), one.redo("1").unwrap(), path.exists()), (None, None, true));
    one.append("1", mark(&["a"], Some(Mark::Remove))).unwrap();
    two.append("2", mark(&["b"], Some(Mark::Remove))).unwrap();
    one.append("1", mark(&["c"], Some(Mark::Remove))).unwrap();
    // Neither page lost what the other decided.
    two.refresh().unwrap();
    assert_eq!(one.decided(), two.decided());
    assert_eq!(one.decided().marks.len(), 3);
    assert_eq!(two.undo("2").unwrap(), Some(1), "its own, not the last");
    assert_eq!(one.undo("1").unwrap(), Some(2));
    assert_eq!(one.decided().marks.keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(one.can("1"), (true, true));
    assert_eq!(one.redo("1").unwrap(), Some(2));
    assert_eq!(one.redo("1").unwrap(), Some(1), "then what the other page undid");
    assert_eq!(one.undo("3").unwrap(), Some(1), "a new page undoes the last of anyone: the one that was redone last");
    one.append("3", mark(&["d"], Some(Mark::Keep))).unwrap();
    assert_eq!(one.redo("3").unwrap(), None, "something was decided since");
    let again = DecisionLog::open(&path).unwrap();
    assert_eq!(again.decided(), one.decided());
    assert_eq!(again.decided().marks.keys().collect::<Vec<_>>(), ["a", "c", "d"]);
}

#[test]
fn many_writers_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    std::thread::scope(|scope| {
        for t in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut log = DecisionLog::open(path).unwrap();
                for i in 0..25 {
                    log.append(&t.to_string(), mark(&[&format!("{t}-{i}")], Some(Mark::Keep))).unwrap();
                }
            });
        }
    });
    assert_eq!(DecisionLog::open(&path).unwrap().decided().marks.len(), 100);
}

#[test]
fn half_a_line_of_a_kill_is_written_over_and_a_broken_one_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let mut log = DecisionLog::open(&path).unwrap();
    log.append("1", mark(&["a"], Some(Mark::Keep))).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&whole[..whole.len() / 2]).unwrap();
    let mut again = DecisionLog::open(&path).unwrap();
    assert_eq!(again.entries().len(), 1);
    again.append("1", mark(&["b"], Some(Mark::Keep))).unwrap();
    assert_eq!(DecisionLog::open(&path).unwrap().decided().marks.len(), 2);
    log.refresh().unwrap();
    assert_eq!(log.entries().len(), 2);
    std::fs::write(&path, "{\"time\":1}\n").unwrap();
    let e = DecisionLog::open(&path).unwrap_err();
    assert!(e.message.contains("line 1"), "{e:?}");
    assert!(log.append("1", mark(&["c"], None)).unwrap_err().message.contains("shorter"));
}

#[test]
fn a_link_and_names_that_are_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let mut log = DecisionLog::open(&path).unwrap();
    for bad in [
        mark(&[], None),
        Decision::Name { cluster: 1, name: Some(" ".into()) },
        Decision::Name { cluster: 1, name: Some("a\nb".into()) },
        Decision::Label { files: files(&["a"]), label: Some("x".repeat(201)) },
        Decision::Merge { clusters: vec![4], into: 4 },
        Decision::Same { files: files(&["a"]), of: Some("a".into()) },
    ] {
        assert!(log.append("1", bad.clone()).is_err(), "{bad:?}");
    }
    assert!(!path.exists());
    assert!(read(dir.path()).unwrap_err().message.contains("no decisions"));
    #[cfg(unix)]
    {
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "dear").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert!(DecisionLog::open(&path).is_err());
        assert!(log.append("1", mark(&["a"], None)).is_err());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "dear");
    }
}

#[test]
fn exports_are_new_folders_of_tables_lists_and_links() {
    let dir = tempfile::tempdir().unwrap();
    let photo = |name: &str| {
        let path = dir.path().join(name.replace('/', "-"));
        std::fs::write(&path, name).unwrap();
        DecidedImage { file: name.into(), path: Some(path), label: Some("a,b".into()), cluster: Some(3) }
    };
    let images = [photo("x/1.png"), photo("y/1.png"), photo("z.png")];
    let mut d = Decided::default();
    d.take(&mark(&["z.png"], Some(Mark::Remove)));
    d.take(&Decision::Name { cluster: 3, name: Some("../up".into()) });
    d.take(&Decision::Label { files: files(&["y/1.png"]), label: Some("dog".into()) });
    let out = dir.path().join("out");
    d.export(&out, &images, true).unwrap();
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(
        read("decisions.csv"),
        "file,decision,label,same_as,cluster,name\nx/1.png,,\"a,b\",,3,../up\ny/1.png,,dog,,3,../up\nz.png,remove,\"a,b\",,3,../up\n"
    );
    assert_eq!((read("keep.txt").as_str(), read("remove.txt").as_str()), ("x/1.png\ny/1.png\n", "z.png\n"));
    // A name cannot lead out of the folder.
    assert_eq!(read("keep/3-_up/x_1.png"), "x/1.png");
    assert_eq!(read("remove/3-_up/z.png"), "z.png");
    assert!(out.join("keep/3-_up/y_1.png").is_symlink());
    assert!(d.export(&out, &images, false).unwrap_err().message.contains("exists"));
    assert_eq!(std::fs::read_to_string(dir.path().join("z.png")).unwrap(), "z.png");
}
