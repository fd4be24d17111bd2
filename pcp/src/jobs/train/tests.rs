//! Training, resuming and forecasting as jobs, on a few bundled images.

use super::*;
use pcp_core::cancel::Cancel;
use std::sync::Mutex;

/// Keeps what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<String>>, Cancel);

impl Told {
    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Told {
    fn training_began(&self, start: &TrainingStart) {
        self.0.lock().unwrap().push(format!("began {} of {}", start.done, start.total_epochs));
    }
    fn training_ended(&self) {
        self.0.lock().unwrap().push("ended".into());
    }
    fn note(&self, line: &str) {
        self.0.lock().unwrap().push(line.into());
    }
    fn cancel(&self) -> &Cancel {
        &self.1
    }
}

/// Cancels when an epoch is over.
#[derive(Default)]
struct StopsAfterEpoch(Cancel);

impl Observer for StopsAfterEpoch {
    fn epoch(&self, _: &crate::run::EpochRecord) {
        self.0.request();
    }
    fn cancel(&self) -> &Cancel {
        &self.0
    }
}

fn tiny(out: &Path) -> TrainOptions {
    let settings = ["data.limit=16", "data.size=16", "network.width=4", "train.epochs=2", "train.batch=8"];
    let options = settings.iter().fold(TrainOptions::new("bundled"), |options, s| options.set(s).unwrap());
    let caller = Caller { command: "a command".into(), revision: "a revision".into() };
    TrainOptions { out: Some(out.to_path_buf()), no_report: true, caller, ..options }
}

#[test]
fn a_run_is_told_of_logged_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let told = Arc::new(Told::default());
    let observer: Arc<dyn Observer> = told.clone();
    let options = tiny(&dir.path().join("run"));
    let done = train(&options, &observer).unwrap();
    assert_eq!((done.result.epochs, done.result.images, &done.report), (2, 16, &None));
    assert_eq!((done.result.command.as_str(), done.result.revision.as_str()), ("a command", "a revision"));
    let lines = told.lines();
    let heads: Vec<&str> = lines.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(heads, ["data", "network", "system", "schedule", "memory", "folder", "began", "ended"], "{lines:?}");
    let log = std::fs::read_to_string(done.run.join("train.log")).unwrap();
    assert!(lines[..6].iter().all(|line| log.contains(line.as_str())), "{log}");
    assert!(log.contains("epoch   1/2: loss") && log.contains("epoch   2/2: loss"), "{log}");
    assert!(log.contains("images, epochs"), "the result: {log}");
    let json = serde_json::to_string(&done).unwrap();
    assert_eq!(serde_json::from_str::<TrainResult>(&json).unwrap(), done);

    let again = resume(&ResumeOptions::new(&done.run), &observer).unwrap();
    assert_eq!(again, done);
    assert!(told.lines()[0].contains("is finished"));
    let e = train(&options, &observer).unwrap_err();
    assert!(e.message.contains("exists"), "{e:?}");
    let request = RunRequest::default().set("purify.gamma=0.3").unwrap();
    let e = resume(&ResumeOptions { request, ..ResumeOptions::new(&done.run) }, &observer).unwrap_err();
    assert!(e.message.contains("purify.gamma is 0.5, not 0.3"), "{e:?}");
}

#[test]
fn a_cancelled_run_is_resumed_to_the_same_result() {
    let dir = tempfile::tempdir().unwrap();
    let whole = train(&tiny(&dir.path().join("whole")), &crate::observe::silent()).unwrap();
    let out = dir.path().join("stopped");
    let stops: Arc<dyn Observer> = Arc::new(StopsAfterEpoch::default());
    let e = train(&tiny(&out), &stops).unwrap_err();
    assert!(e.hint.contains("`resume`"), "{e:?}");
    let told = Arc::new(Told::default());
    let observer: Arc<dyn Observer> = told.clone();
    let options = ResumeOptions { no_report: true, ..ResumeOptions::new(&out) };
    let resumed = resume(&options, &observer).unwrap();
    assert!(told.lines().contains(&"began 1 of 2".to_string()));
    assert_eq!(resumed.result.knn_last, whole.result.knn_last);
    let weights = |run: &Path| std::fs::read(run.join("model.safetensors")).unwrap();
    assert!(weights(&resumed.run) == weights(&whole.run), "the same bits");
}

/// Cancels after so many steps.
struct StopsAfterSteps(Mutex<usize>, Cancel);

impl Observer for StopsAfterSteps {
    fn live(&self, _: &crate::observe::Live) {
        let mut left = self.0.lock().unwrap();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.1.request();
        }
    }
    fn cancel(&self) -> &Cancel {
        &self.1
    }
}

/// Where a sample of the bank's rows stands for the others, it is that of the batch also in a run that was stopped within an epoch.
#[test]
fn a_sampled_bank_goes_on_within_an_epoch() {
    let dir = tempfile::tempdir().unwrap();
    for preset in ["pcp", "ir"] {
        let run = |name: &str, rows: usize, observer: &Arc<dyn Observer>| {
            let settings = ["train.batch=4".to_string(), format!("objective.bank_rows={rows}")];
            let options = tiny(&dir.path().join(format!("{preset}-{name}")));
            let mut options = settings.iter().fold(options, |options, s| options.set(s).unwrap());
            options.request.presets = vec![preset.into()];
            train(&options, observer)
        };
        let weights = |run: &Path| std::fs::read(run.join("model.safetensors")).unwrap();
        let silent = crate::observe::silent();
        let whole = weights(&run("whole", 5, &silent).unwrap().run);
        assert!(whole != weights(&run("other", 0, &silent).unwrap().run), "the setting has an effect");
        let stops: Arc<dyn Observer> = Arc::new(StopsAfterSteps(Mutex::new(6), Cancel::default()));
        assert_eq!(run("stopped", 5, &stops).unwrap_err().kind, pcp_core::error::Kind::Stopped);
        let out = dir.path().join(format!("{preset}-stopped"));
        let resumed = resume(&ResumeOptions { no_report: true, ..ResumeOptions::new(&out) }, &silent).unwrap();
        assert!(weights(&resumed.run) == whole, "{preset}: the same bits");
    }
}

#[test]
fn a_forecast_has_every_epoch() {
    let request = tiny(Path::new("unused")).request;
    let found = forecast(&request, Some(4), &crate::observe::silent()).unwrap();
    assert!(found.epochs.len() == 2 && found.seconds > 0.0, "{found:?}");
}

/// What the first of this many processes (threads here) returns.
fn by_processes<T: Send>(processes: usize, job: impl Fn(Team, &Arc<dyn Observer>) -> T + Sync) -> T {
    let found = pcp_core::peers::parts::together(processes, |peers| {
        let observer: Arc<dyn Observer> = Arc::new(StopsAfterEpoch::default());
        // Several processes stop together; one of them alone by its observer.
        let team = if processes == 1 { Team::default() } else { Team::new(peers, observer.cancel().clone()) };
        job(team, &observer)
    });
    found.into_iter().next().unwrap()
}

/// A run of PCP in this many parts, the first epoch by this many processes, the last by others: all that it leaves.
fn in_parts(dir: &Path, parts: usize, first: usize, later: usize) -> Vec<Vec<u8>> {
    let out = dir.join(format!("run-{parts}-{first}-{later}"));
    let mut options = tiny(&out).set(&format!("train.parts={parts}")).unwrap().set("objective.bank_rows=9").unwrap();
    options.request.presets = vec!["pcp".into()];
    let begun = by_processes(first, |team, observer| train(&TrainOptions { team, ..options.clone() }, observer));
    assert_eq!(begun.unwrap_err().kind, pcp_core::error::Kind::Stopped);
    let options = ResumeOptions::new(&out);
    let done =
        by_processes(later, |team, _| resume(&ResumeOptions { team, ..options.clone() }, &crate::observe::silent()));
    assert_eq!(done.unwrap().result.processes, 1, "all of them are threads of this one");
    let file = |name: &str| std::fs::read(out.join(name)).unwrap();
    ["model.safetensors", "embeddings.npy", "clusters.csv"].map(file).to_vec()
}

#[test]
fn with_as_many_parts_any_number_of_processes_gives_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let one = in_parts(dir.path(), 3, 1, 1);
    assert!(one == in_parts(dir.path(), 3, 1, 2), "one process, then two");
    assert!(one == in_parts(dir.path(), 3, 3, 1), "three processes, then one");
    assert!(one != in_parts(dir.path(), 2, 1, 1), "other parts have other sums");
}

#[test]
fn parts_are_refused_where_one_process_learns_patches() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = tiny(&dir.path().join("run")).set("train.parts=2").unwrap();
    options.request.presets = vec!["pcp-plus".into()];
    let e = train(&options, &crate::observe::silent()).unwrap_err();
    assert!(e.message.contains("patches are learned by one process") && e.hint.contains("train.parts"), "{e:?}");
    assert!(!options.out.unwrap().exists());
}
