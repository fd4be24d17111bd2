//! Tests of atomic writes.

use super::*;

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_failed_write_leaves_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.txt");
    write_bytes(&path, b"old").unwrap();
    let failed = write_atomic(&path, |w| {
        w.write_all(b"half of the ne")?;
        Err(std::io::Error::from(std::io::ErrorKind::StorageFull))
    });
    let e = failed.unwrap_err();
    assert!(e.message.contains("a.txt") && e.hint.contains("disk space"), "{e:?}");
    assert_eq!(read_bytes(&path).unwrap(), b"old");
    write_bytes(&path, b"new").unwrap();
    assert_eq!(read_bytes(&path).unwrap(), b"new");
    assert_eq!(names(dir.path()), ["a.txt"]);
    assert!(read_bytes(&dir.path().join("b")).unwrap_err().message.contains("cannot read"));
    assert!(write_bytes(&dir.path().join("no/such/b"), b"").is_err());
}

#[test]
fn a_new_file_is_written_by_one_of_two() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npy");
    fs::write(dir.path().join("a.npy.1-0.pcp-unfinished"), "of a dead process").unwrap();
    // The second begins and ends while the first is writing.
    let first = write_new(&path, |w| {
        write_new(&path, |w| w.write_all(b"second")).unwrap();
        w.write_all(b"first")
    });
    let e = first.unwrap_err();
    assert!(e.message.contains("another process made") && e.message.contains("a.npy"), "{e:?}");
    assert_eq!(read_bytes(&path).unwrap(), b"second", "the one that succeeded is there");
    assert_eq!(names(dir.path()), ["a.npy"]);
}

#[test]
fn a_folder_is_complete_or_absent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/folder");
    let failed = make_folder_atomic(&path, |inside| {
        write_bytes(&inside.join("a"), b"half")?;
        Err(Error::stopped())
    });
    assert_eq!(failed.unwrap_err().exit_code(), 130);
    assert!(names(&dir.path().join("new")).is_empty());
    make_folder(&path).unwrap();
    let fill = |inside: &Path| write_bytes(&inside.join("a"), b"whole");
    make_folder_atomic(&path, fill).unwrap();
    assert_eq!(read_bytes(&path.join("a")).unwrap(), b"whole");
    let e = make_folder_atomic(&path, fill).unwrap_err();
    assert!(e.message.contains("folder"), "it is not empty: {e:?}");
    assert_eq!(names(&dir.path().join("new")), ["folder"]);
}

#[test]
fn a_killed_process_is_no_obstacle_and_a_living_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    for name in ["out.pcp-unfinished", "out.99-3.pcp-unfinished"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    make_folder_atomic(&path, |inside| {
        let e = make_folder_atomic(&path, |_| Ok(())).unwrap_err();
        assert!(e.message.contains(&format!("by process {}", std::process::id())), "{e:?}");
        write_bytes(&inside.join("a"), b"")
    })
    .unwrap();
    assert_eq!(names(dir.path()), ["out"]);
}

#[test]
fn passing_errors_are_tried_again() {
    let count = std::cell::Cell::new(0);
    let fails = |times: i32, code: i32| {
        count.set(0);
        retried(|| {
            count.set(count.get() + 1);
            if count.get() <= times { Err(std::io::Error::from_raw_os_error(code)) } else { Ok(count.get()) }
        })
    };
    if cfg!(unix) {
        assert_eq!(fails(2, 24).unwrap(), 3, "too many open files");
        assert!(fails(3, 5).is_err());
    }
    assert!(fails(1, 2).is_err() && count.get() == 1, "a file that is not there is not looked for again");
}

#[test]
fn existing_files_and_folders_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("there");
    require_empty(&path).unwrap();
    require_absent(&path).unwrap();
    make_folder(&path).unwrap();
    require_empty(&path).unwrap();
    assert!(require_absent(&path).is_err());
    write_bytes(&path.join("a"), b"").unwrap();
    assert!(require_empty(&path).unwrap_err().message.contains("there already"));
    assert!(require_empty(&path.join("a")).is_err() && require_absent(&path.join("a")).is_err());
    assert!(require_empty(Path::new("/")).is_err());
    #[cfg(unix)]
    {
        link(Path::new("nowhere"), &path.join("l")).unwrap();
        assert!(require_empty(&path.join("l")).is_err() && require_absent(&path.join("l")).is_err());
    }
}

#[test]
fn what_the_system_cannot_tell_is_no_absence() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("b");
    fs::write(&file, "x").unwrap();
    fs::write(dir.path().join("a"), "x").unwrap();
    let there = |path: &Path| is_there(path).unwrap();
    assert!(there(dir.path()) && there(&file));
    assert!(has_file(&file).unwrap() && !has_file(dir.path()).unwrap() && !has_file(&dir.path().join("c")).unwrap());
    assert!(!there(&dir.path().join("c")) && !there(&file.join("below a file")));
    assert!(!there(&dir.path().join("n".repeat(300))), "no file has such a name");
    assert_eq!(entries(dir.path()).unwrap(), [dir.path().join("a"), file.clone()]);
    assert!(entries(&dir.path().join("c")).unwrap().is_empty());
    #[cfg(unix)]
    {
        // A link to itself: the system gives up.
        let link = dir.path().join("loop");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        assert!(is_there(&link).unwrap_err().message.contains("cannot read"));
        assert!(entries(&link.join("x")).unwrap_err().message.contains("cannot read"));
    }
}

#[cfg(unix)]
#[test]
fn a_device_without_an_end_is_an_error() {
    assert!(read_bytes(Path::new("/dev/null")).unwrap().is_empty());
    let e = read_bytes(Path::new("/dev/zero")).unwrap_err();
    assert!(e.message.contains("does not end"), "{e:?}");
}
