//! Shared parts of the tests of the program: running it, and synthetic data sets.

#![allow(unsafe_code)]
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The program, as a user would call it.
pub fn pcp(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcp"));
    // Tests leave nothing in the user's cache.
    command.args(args).stdin(Stdio::null()).env("PCP_CACHE", "off");
    // Whatever the tests were started by: the program is started as from a terminal, where SIGHUP ends it.
    // SAFETY: `signal` may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        });
    }
    command
}

/// Runs it to the end.
pub fn run(args: &[&str]) -> Output {
    pcp(args).output().expect("the program starts")
}

/// Runs it and expects success; returns what it printed.
pub fn succeed(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "pcp {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs it and expects exit code `code` with one error and one hint; returns both as text.
pub fn fail(code: i32, args: &[&str]) -> String {
    let output = run(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "pcp {args:?}: {text}");
    assert_eq!(text.lines().filter(|l| l.starts_with("error: ")).count(), 1, "one error: {text}");
    assert_eq!(text.lines().filter(|l| l.starts_with("hint: ")).count(), 1, "one hint: {text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// A run with every feature: two rounds, the warm-up and its end, votes in both rounds, mid-epoch checkpoints.
pub const SMALL: &[&str] = &[
    "--limit",
    "60",
    "--size",
    "16",
    "--width",
    "4",
    "--batch",
    "16",
    "--epochs",
    "8",
    "--rounds",
    "2",
    "--clusters",
    "6",
    "--eval-every",
    "3",
    "--snapshots",
    "3",
    "--seed",
    "7",
    "--save-minutes",
    "0.0005",
    "--set",
    "evaluate.k=5",
];

/// `pcp train` of the small run into `out`; flags in `more` override its own.
pub fn small(out: &Path, more: &[&str]) -> Vec<String> {
    let mut args = vec!["train".to_string(), "--out".into(), out.display().to_string()];
    let own = SMALL.chunks(2).filter(|pair| !more.contains(&pair[0])).flatten();
    args.extend(own.chain(more).map(|a| a.to_string()));
    args
}

/// Borrowed arguments.
pub fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// A finished run in memory: its output and all its files.
pub struct Finished {
    pub stdout: String,
    pub stderr: String,
    files: Vec<(String, Vec<u8>)>,
    /// The parts that are equal in every run with the same settings.
    pub bits: Vec<(String, Vec<u8>)>,
}

impl Finished {
    /// Trains the small run with flags in `more` that override its own.
    pub fn train(more: &[&str]) -> Finished {
        let (_dir, out) = place("run");
        let output = run(&words(&small(&out, more)));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{stderr}");
        let mut names = Vec::new();
        collect(&out, &out, &mut names);
        // In the order in which they were written, so that a copy keeps it.
        names.sort_by_key(|name| (std::fs::metadata(out.join(name)).unwrap().modified().unwrap(), name.clone()));
        let files = names.into_iter().map(|name| (name.clone(), std::fs::read(out.join(name)).unwrap())).collect();
        Finished { stdout, stderr, files, bits: bits(&out) }
    }

    /// Writes its files into a temporary folder, and returns that folder and the run's in it.
    pub fn copy(&self) -> (tempfile::TempDir, PathBuf) {
        let (dir, out) = place("run");
        for (name, bytes) in &self.files {
            let path = out.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        (dir, out)
    }
}

/// The uninterrupted small run, trained once for all tests that need it.
pub fn reference() -> &'static Finished {
    static REFERENCE: OnceLock<Finished> = OnceLock::new();
    REFERENCE.get_or_init(|| Finished::train(&[]))
}

/// Everything of a finished run that must be equal when its bits are: all files but the log, times and commands.
pub fn bits(run: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    collect(run, run, &mut files);
    files.sort();
    files
        .into_iter()
        .filter(|name| {
            !matches!(
                name.as_str(),
                "train.log" | "config.toml" | "result.json" | "report.html" | "lock" | "checksums.txt"
            )
        })
        .filter(|name| !name.starts_with("checkpoints") && !name.starts_with("tensorboard"))
        .map(|name| {
            let bytes = std::fs::read(run.join(&name)).unwrap();
            let bytes = if name == "metrics.jsonl" { without_times(&bytes) } else { bytes };
            (name, bytes)
        })
        .collect()
}

pub fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            files.push(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
}

fn without_times(metrics: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(metrics.to_vec()).unwrap();
    let mut out = String::new();
    for line in text.lines() {
        let mut record: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
        record.retain(|key, _| !key.ends_with("seconds") && key != "images_per_second");
        out.push_str(&serde_json::to_string(&record).unwrap());
        out.push('\n');
    }
    out.into_bytes()
}

/// Compares files by name instead of printing their bytes.
pub fn assert_same(a: &[(String, Vec<u8>)], b: &[(String, Vec<u8>)]) {
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|f| f.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(a), names(b), "the runs have different files");
    let differ: Vec<&str> = a.iter().zip(b).filter(|(x, y)| x.1 != y.1).map(|(x, _)| x.0.as_str()).collect();
    assert!(differ.is_empty(), "these differ: {differ:?}");
}

/// A picture of `side` px in two colours that depend on `kind`, with some noise from `index`.
pub fn picture(path: &Path, side: u32, kind: u8, index: u32) {
    let pixels = image::RgbImage::from_fn(side, side, |x, y| {
        let noise = (x * 7 + y * 13 + index * 31) % 40;
        let stripe = if kind.is_multiple_of(2) { x / 4 % 2 } else { y / 4 % 2 };
        let base = 60 + 100 * stripe as u8;
        image::Rgb([base + noise as u8, base.wrapping_add(kind * 40), 200 - noise as u8])
    });
    pixels.save(path).unwrap();
}

/// Class folders `a`, `b`, `c` with `each` pictures.
pub fn class_folders(root: &Path, each: u32) {
    for (kind, class) in ["a", "b", "c"].iter().enumerate() {
        let folder = root.join(class);
        std::fs::create_dir_all(&folder).unwrap();
        for index in 0..each {
            let name = if index % 2 == 0 { format!("{index}.png") } else { format!("{index}.JPG") };
            picture(&folder.join(name), 20 + index % 5, kind as u8, index);
        }
    }
}

/// A temporary folder and a path in it.
pub fn place(name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    (dir, path)
}

/// Starts the program without waiting for it.
pub fn start(args: &[&str]) -> Child {
    pcp(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends it a signal.
pub fn signal(child: &Child, signal: i32) {
    // SAFETY: kill(2) takes two numbers and touches no memory; the child is ours and has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Waits for its end; returns its exit code and its messages.
pub fn text(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Waits until `ready` is true or the child has ended; returns whether it is ready.
pub fn wait_for(child: &mut Child, ready: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(120) {
        if ready() {
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    panic!("nothing happened for two minutes");
}

/// The checkpoints of a run, oldest first.
pub fn checkpoints(out: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(out.join("checkpoints")).into_iter().flatten().flatten();
    let whole = |p: &PathBuf| p.extension().is_some_and(|e| e == "safetensors");
    let mut paths: Vec<_> = entries.map(|e| e.path()).filter(whole).collect();
    paths.sort();
    paths
}
