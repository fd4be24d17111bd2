//! Edited settings, names that lead elsewhere, links in circles, leftovers of killed processes, two processes at once, and limits of the
//! system.

#![allow(unsafe_code)]

use crate::common::*;
use pcp_core::io::npy::{read_matrix, write_npy};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A run that was killed after its first epochs.
fn killed(out: &Path) {
    killed_after(3, out);
}

/// A run that was killed after so many epochs.
fn killed_after(epochs: usize, out: &Path) {
    let mut child = start(&words(&small(out, &["--quiet", "--no-report"])));
    let lines = || fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default().lines().count();
    assert!(wait_for(&mut child, || checkpoints(out).len() >= 2 && lines() >= epochs));
    child.kill().unwrap();
    child.wait().unwrap();
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn edited_settings_are_refused_by_name_and_other_runs_checkpoints_too() {
    let (dir, out) = place("run");
    killed(&out);
    let resume = ["train", "--resume", out.to_str().unwrap(), "--quiet", "--no-report"];
    let config = out.join("config.toml");
    for (from, to, word) in [
        ("\nlr = 0.03", "\nlr = 0.05", "train.lr was 0.03, not 0.05"),
        ("\nseed = 7", "\nseed = 6", "train.seed was 7, not 6"),
        ("\ngamma = 0.5", "\ngamma = 0.4", "purify.gamma was 0.5, not 0.4"),
    ] {
        edit(&config, from, to);
        let said = fail(2, &resume);
        assert!(said.contains(word), "{said}");
        edit(&config, to, from);
    }
    // The checkpoint of another seed, under the name of the newest.
    let other = dir.path().join("other");
    let mut child = start(&words(&small(&other, &["--quiet", "--no-report", "--seed", "8"])));
    assert!(wait_for(&mut child, || checkpoints(&other).len() >= 2));
    child.kill().unwrap();
    child.wait().unwrap();
    let newest = checkpoints(&out).pop().unwrap();
    let own = fs::read(&newest).unwrap();
    fs::copy(checkpoints(&other).pop().unwrap(), &newest).unwrap();
    assert!(fail(2, &resume).contains("train.seed was 8, not 7"));
    fs::write(&newest, own).unwrap();
    succeed(&resume);
    assert_same(&reference().bits, &bits(&out));
}

#[test]
fn what_a_checkpoint_has_is_restored_and_said() {
    let (_dir, out) = place("run");
    killed(&out);
    let (metrics, events) = (out.join("metrics.jsonl"), out.join("tensorboard/events.out.tfevents.0.pcp"));
    let resume = ["train", "--resume", out.to_str().unwrap(), "--no-report"];
    let text = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, text.replacen("\"loss\":", "\"lost\":", 1)).unwrap();
    fs::remove_file(&events).unwrap();
    let output = run(&resume);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("metrics.jsonl was missing or damaged: it is restored"), "{said}");
    let warnings = fs::read_to_string(out.join("warnings.jsonl")).unwrap();
    assert!(warnings.contains("TensorBoard's file was missing"), "{warnings}");
    let others: String =
        warnings.lines().filter(|line| !line.contains("restored")).map(|line| format!("{line}\n")).collect();
    fs::write(out.join("warnings.jsonl"), others).unwrap();
    let lacks =
        |files: Vec<(String, Vec<u8>)>| -> Vec<_> { files.into_iter().filter(|file| !file.1.is_empty()).collect() };
    assert_same(&lacks(reference().bits.clone()), &lacks(bits(&out)));
}

#[test]
fn a_flipped_bit_in_a_run_is_noticed_by_readers_and_by_the_check() {
    let (dir, run) = reference().copy();
    let (run_, out) = (run.to_str().unwrap(), dir.path().join("clusters"));
    assert!(succeed(&["check", run_]).contains("files are whole"));
    let cluster = ["cluster", run_, "--k", "2", "--no-sheet", "--out", out.to_str().unwrap()];
    let resume = ["train", "--resume", run_];
    for (name, reader) in [("embeddings.npy", &cluster[..]), ("files.csv", &cluster[..]), ("result.json", &resume[..])]
    {
        let sound = fs::read(run.join(name)).unwrap();
        let mut flipped = sound.clone();
        *flipped.last_mut().unwrap() ^= 1;
        fs::write(run.join(name), flipped).unwrap();
        let said = fail(1, &["check", run_]);
        assert!(said.contains(name) && said.contains("1 files"), "{said}");
        let said = fail(1, reader);
        assert!(said.contains(name) && said.contains("changed or damaged"), "{said}");
        fs::write(run.join(name), sound).unwrap();
    }
    succeed(&["check", run_]);
    succeed(&cluster);
}

#[test]
fn names_of_another_matrix_are_not_used_and_a_killed_embed_is_no_obstacle() {
    let (_dir, run) = reference().copy();
    let dir = tempfile::tempdir().unwrap();
    let (photos, at) = (dir.path().join("photos"), |name: &str| dir.path().join(name));
    class_folders(&photos, 3);
    let embed = |out: &Path| {
        let mut command = pcp(&["embed", run.to_str().unwrap(), photos.to_str().unwrap(), "--out"]);
        command.arg(out).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    assert!(embed(&at("a.npy")).status().unwrap().success());
    // A matrix of as many rows, without names of its own.
    let a = read_matrix(&at("a.npy")).unwrap();
    write_npy(&at("b.npy"), &[a.rows, a.dim], &a.values.iter().map(|x| -x).collect::<Vec<f32>>()).unwrap();
    let clustered = |matrix: &str, out: &str| {
        let output = crate::common::run(&[
            "cluster",
            at(matrix).to_str().unwrap(),
            "--k",
            "2",
            "--no-sheet",
            "--out",
            at(out).to_str().unwrap(),
        ]);
        assert!(output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (said, fs::read_to_string(at(out).join("clusters.csv")).unwrap())
    };
    let (said, table) = clustered("b.npy", "b");
    assert!(said.contains("names the rows of another matrix"), "{said}");
    assert!(table.lines().nth(1).unwrap().starts_with("0,,"), "{table}");
    assert!(clustered("a.npy", "a").1.lines().nth(1).unwrap().starts_with("0,a/0.png,"));
    // What a killed process leaves: a temporary file, and names without their matrix.
    fs::write(at("c.npy.99999-0.pcp-unfinished"), "half").unwrap();
    let names = fs::read_to_string(at("files.csv")).unwrap();
    fs::write(at("c.files.csv"), names.replacen("a/0.png", "gone.png", 1)).unwrap();
    assert!(embed(&at("c.npy")).status().unwrap().success());
    assert!(!at("c.npy.99999-0.pcp-unfinished").exists());
    assert!(clustered("c.npy", "c").1.lines().nth(1).unwrap().starts_with("0,a/0.png,"));
}

#[test]
fn of_two_processes_that_make_one_file_one_is_told() {
    let (_dir, run) = reference().copy();
    let dir = tempfile::tempdir().unwrap();
    for (class, count) in [("one", 4), ("two", 7)] {
        let folder = dir.path().join(class);
        fs::create_dir(&folder).unwrap();
        (0..count).for_each(|i| picture(&folder.join(format!("{class}{i}.png")), 20, 1, i));
    }
    let mut told = 0;
    for round in 0..6 {
        let out = dir.path().join(format!("{round}/e.npy"));
        let start = |images: &str| {
            let images = dir.path().join(images);
            start(&["embed", run.to_str().unwrap(), images.to_str().unwrap(), "--out", out.to_str().unwrap()])
        };
        let children = [start("one"), start("two")];
        let ended = children.map(text);
        let winners: Vec<usize> = (0..2).filter(|i| ended[*i].0 == Some(0)).collect();
        assert_eq!(winners.len(), 1, "{ended:?}");
        let loser = &ended[1 - winners[0]];
        assert_eq!(loser.0, Some(2), "{ended:?}");
        told += usize::from(loser.1.contains("another process made"));
        let class = ["one", "two"][winners[0]];
        assert_eq!(read_matrix(&out).unwrap().rows, [4, 7][winners[0]], "the one that succeeded is there");
        let result = crate::common::run(&[
            "cluster",
            out.to_str().unwrap(),
            "--k",
            "1",
            "--no-sheet",
            "--out",
            out.with_file_name("c").to_str().unwrap(),
        ]);
        assert!(result.status.success());
        let table = fs::read_to_string(out.with_file_name("c/clusters.csv")).unwrap();
        assert!(table.lines().skip(1).all(|line| line.contains(class)), "with its own names: {table}");
        assert!(
            !fs::read_dir(out.parent().unwrap())
                .unwrap()
                .flatten()
                .any(|e| { e.path().extension().is_some_and(|e| e == pcp_core::io::atomic::UNFINISHED) })
        );
    }
    println!("{told} of 6 were told at the end, the others at the beginning");
}

#[test]
fn leftovers_of_killed_processes_are_replaced_and_living_ones_refuse() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("shapes");
    let make = ["data", "shapes", "--train", "4000", "--test", "1", "--side", "96", "--out", out.to_str().unwrap()];
    let temporary = || {
        let names = fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.path());
        names.into_iter().find(|p| p.extension().is_some_and(|e| e == pcp_core::io::atomic::UNFINISHED))
    };
    let mut child = start(&make);
    // With something in it, the folder is locked, too.
    let filled =
        || temporary().and_then(|folder| fs::read_dir(folder).ok()).is_some_and(|mut found| found.next().is_some());
    assert!(wait_for(&mut child, filled), "it is still writing");
    let said = fail(2, &make);
    assert!(said.contains(&format!("is being made by process {}", child.id())), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
    let left = temporary().expect("a killed process leaves its folder");
    let few = ["data", "shapes", "--train", "2", "--test", "1", "--side", "48", "--out", out.to_str().unwrap()];
    succeed(&few);
    assert!(!left.exists() && temporary().is_none() && out.join("ImageSets").is_dir());
}

#[test]
fn a_trial_leaves_nothing_even_when_it_was_killed() {
    let temporary = tempfile::tempdir().unwrap();
    let trial = || {
        let mut command =
            pcp(&["train", "--dry-run", "--limit", "60", "--size", "16", "--width", "4", "--batch", "16"]);
        command.env("TMPDIR", temporary.path()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let left = || fs::read_dir(temporary.path()).unwrap().count();
    let mut child = trial();
    assert!(wait_for(&mut child, || left() > 0));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(left(), 1);
    assert!(trial().wait().unwrap().success());
    assert_eq!(left(), 0, "the next one removes what the killed one left");
}

#[test]
fn a_list_of_names_cannot_choose_files_outside_the_images() {
    let dir = tempfile::tempdir().unwrap();
    let (images, secret) = (dir.path().join("images"), dir.path().join("secret.png"));
    class_folders(&images, 1);
    fs::write(&secret, "secret").unwrap();
    let (matrix, files) = (dir.path().join("e.npy"), dir.path().join("list.csv"));
    write_npy(&matrix, &[2, 2], &[1.0f32, 0.0, 0.0, 1.0]).unwrap();
    for name in [secret.to_str().unwrap(), "../secret.png", "a/../../secret.png", "/etc/passwd"] {
        fs::write(&files, format!("file\na/0.png\n{name}\n")).unwrap();
        for how in ["copy", "link"] {
            let out = dir.path().join("out");
            let said = fail(
                1,
                &[
                    "cluster",
                    matrix.to_str().unwrap(),
                    "--k",
                    "1",
                    "--folders",
                    how,
                    "--files",
                    files.to_str().unwrap(),
                    "--images",
                    images.to_str().unwrap(),
                    "--out",
                    out.to_str().unwrap(),
                ],
            );
            assert!(said.contains(name) && said.contains("leads out of"), "{said}");
            assert!(!out.exists());
        }
        // Without a folder of images no file is looked for.
        let out = dir.path().join(format!("plain{}", name.len()));
        let (matrix, files) = (matrix.to_str().unwrap(), files.to_str().unwrap());
        succeed(&["cluster", matrix, "--k", "1", "--files", files, "--out", out.to_str().unwrap()]);
        assert!(!out.join("sheet.html").exists() && !out.join("report.html").exists());
    }
}

#[test]
fn folders_that_link_to_each_other_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |i: usize| dir.path().join(format!("f{i}"));
    for i in 0..8 {
        fs::create_dir(folder(i)).unwrap();
        picture(&folder(i).join("x.png"), 16, 1, i as u32);
    }
    for i in 0..8 {
        (0..8).filter(|j| *j != i).for_each(|j| symlink(folder(j), folder(i).join(format!("to{j}"))).unwrap());
    }
    let check: serde_json::Value =
        serde_json::from_str(&succeed(&["data", "check", dir.path().to_str().unwrap(), "--json"])).unwrap();
    assert_eq!(check["train"], 8, "{check}");
    assert_eq!(check["ignored"], 8 * 7, "links to folders that were read already");
}

#[test]
fn folders_that_cannot_be_read_are_listed_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    class_folders(dir.path(), 2);
    let data = dir.path().to_str().unwrap();
    let check = || -> serde_json::Value { serde_json::from_str(&succeed(&["data", "check", data, "--json"])).unwrap() };
    // Deeper than a path may be long; made step by step, as no single call can name it.
    let deep = "d".repeat(200);
    let script = format!("cd \"$0\" && for i in $(seq 25); do mkdir {deep} && cd {deep} || exit 1; done; : > last.png");
    assert!(std::process::Command::new("bash").args(["-c", &script, data]).status().unwrap().success());
    let found = check();
    assert_eq!(found["train"], 6);
    let bad = found["bad"].as_array().unwrap();
    assert_eq!(bad.len(), 1, "{found}");
    assert!(bad[0]["reason"].as_str().unwrap().contains("too long"), "{found}");
    assert!(
        std::process::Command::new("bash").args(["-c", "cd \"$0\" && rm -rf ddd*", data]).status().unwrap().success()
    );
    // Pipes and devices are no images, and nobody waits for them.
    let pipe = dir.path().join("a/pipe.png");
    let name = std::ffi::CString::new(pipe.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name ends with a zero and lives as long as the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    symlink("/dev/zero", dir.path().join("a/zero.png")).unwrap();
    let found = check();
    assert_eq!((found["train"].as_u64(), found["bad"].as_array().unwrap().len()), (Some(6), 2), "{found}");
    // Root reads everything: there is nothing to see then.
    let closed = dir.path().join("b/closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read_dir(&closed).is_err() {
        assert_eq!(check()["bad"].as_array().unwrap().len(), 3);
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn absurd_settings_and_names_that_are_no_text_are_errors() {
    let (dir, out) = place("run");
    for minutes in ["1e18", "1e300", "inf", "nan", "-1"] {
        let said = fail(2, &words(&small(&out, &["--quiet", "--save-minutes", minutes])));
        assert!(said.contains("save_minutes") || said.contains("--save-minutes"), "{said}");
    }
    assert!(!out.exists());
    let shapes = dir.path().join("shapes");
    succeed(&["data", "shapes", "--train", "2", "--test", "1", "--side", "48", "--out", shapes.to_str().unwrap()]);
    let (shapes, out) = (shapes.to_str().unwrap(), out.to_str().unwrap());
    let detect = [
        "detect",
        "train",
        "random",
        "--voc",
        shapes,
        "--out",
        out,
        "--width",
        "4",
        "--classes",
        "disc,square,triangle",
    ];
    assert!(fail(2, &[&detect[..], &["--save-minutes", "1e300"]].concat()).contains("--save-minutes"));
    // Two names that differ only in bytes that are no text.
    let photos = dir.path().join("photos");
    class_folders(&photos, 2);
    for byte in [0xfeu8, 0xff] {
        let name = [b"a/", &[byte][..], b"\x1b[2J.png"].concat();
        picture(&photos.join("a/0.png"), 20, 1, u32::from(byte));
        fs::copy(photos.join("a/0.png"), photos.join(std::ffi::OsStr::from_bytes(&name))).unwrap();
    }
    let named = dir.path().join(std::ffi::OsStr::from_bytes(b"r\xffn"));
    let mut command =
        pcp(&["train", photos.to_str().unwrap(), "--size", "16", "--width", "4", "--epochs", "1", "--out"]);
    let output = command.arg(&named).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let files = fs::read(named.join("files.csv")).unwrap();
    let files = String::from_utf8(files).expect("the list is text");
    assert!(files.contains("a/\\xFE\\x1B[2J.png") && files.contains("a/\\xFF\\x1B[2J.png"), "{files}");
    assert!(!files.contains('\u{1b}'));
    let output = pcp(&["data", "check"]).arg(&photos).output().unwrap();
    assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b));
    // And the images are found by these names.
    let clusters = dir.path().join("clusters");
    let mut command = pcp(&["cluster"]);
    command.arg(&named).args(["--k", "1", "--folders", "copy", "--out"]).arg(&clusters);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let copied: Vec<PathBuf> =
        fs::read_dir(clusters.join("folders/cluster-0")).unwrap().flatten().map(|e| e.path()).collect();
    assert_eq!(copied.len(), 8);
}

#[test]
fn few_processes_are_an_error_and_no_panic() {
    // Root is not bound by the limit on processes: it is somebody else's here.
    let (dir, out) = place("run");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = pcp(&words(&small(&out, &["--threads", "4", "--no-report"])));
    let limit = || {
        let most = libc::rlimit { rlim_cur: 3, rlim_max: 3 };
        // SAFETY: the calls take plain values, allocate nothing, and are allowed between fork and exec.
        unsafe {
            if libc::geteuid() == 0 && libc::setuid(65_533) != 0 || libc::setrlimit(libc::RLIMIT_NPROC, &most) != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure does only what may be done between fork and exec (see above).
    let child = unsafe { command.pre_exec(limit) }.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let Ok(child) = child else {
        println!("skipped: another user cannot start the program from here");
        return;
    };
    let (code, said) = text(child);
    assert!(matches!(code, Some(1 | 2)), "{code:?}: {said}");
    assert!(said.contains("error: ") && said.contains("thread"), "{said}");
}

#[test]
fn of_two_exports_to_one_file_one_is_told() {
    let (_dir, run) = reference().copy();
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let out = dir.path().join(format!("{round}.onnx"));
        let start = || start(&["export", run.to_str().unwrap(), "--to", "onnx", "--out", out.to_str().unwrap()]);
        let mut codes = [start(), start()].map(|child| text(child).0);
        codes.sort();
        assert_eq!(codes, [Some(0), Some(2)]);
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, round + 1, "nothing but the files");
    }
}

/// A name with a line break would be two lines of a list of paths, the second of which could be any file.
#[test]
fn lists_of_paths_leave_out_names_with_line_breaks_and_links_that_lead_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let (photos, victim) = (dir.path().join("photos"), dir.path().join("victim.png"));
    let hostile = photos.join("x\n/elsewhere/y");
    fs::create_dir_all(&hostile).unwrap();
    picture(&victim, 64, 1, 3);
    for to in [hostile.join("victim.png"), photos.join("a.png"), photos.join("b.png")] {
        fs::copy(&victim, to).unwrap();
    }
    symlink("nowhere", photos.join("lost.jpg")).unwrap();
    for (verb, list) in [("duplicates", "copies.txt"), ("look", "duplicate.txt")] {
        let out = dir.path().join(verb);
        let output = run(&[verb, photos.to_str().unwrap(), "--out", out.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("line break"), "{verb}: {said}");
        let text = fs::read_to_string(out.join(list)).unwrap();
        assert!(text.lines().count() > 0 && text.lines().all(|line| Path::new(line).starts_with(&photos)), "{text}");
    }
}

/// What no checkpoint has, and what another program left under our names.
#[test]
fn lost_weights_and_folders_are_said_and_a_pipe_is_not_waited_for() {
    let (_dir, out) = place("run");
    // The first probe is after the third epoch.
    killed_after(5, &out);
    let best = out.join("model-best.safetensors");
    let mut bytes = fs::read(&best).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&best, bytes).unwrap();
    fs::remove_dir_all(out.join("clusters")).unwrap();
    let output = run(&["train", "--resume", out.to_str().unwrap(), "--no-report"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("the weights of the best epoch so far are lost"), "{said}");
    assert!(out.join("model-best.safetensors.damaged").exists());
    succeed(&["check", out.to_str().unwrap()]);

    let (dir, run_) = reference().copy();
    let (pipe, matrix) = (dir.path().join("e.npy.1-0.pcp-unfinished"), dir.path().join("e.npy"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    succeed(&["embed", run_.to_str().unwrap(), "bundled", "--out", matrix.to_str().unwrap()]);
    assert!(pipe.exists() && matrix.exists());
}
