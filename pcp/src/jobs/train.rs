//! Training: a new run, a run that goes on, and what a run would take.

mod extend;
mod minutes;
mod notes;
mod parts;
mod request;
#[cfg(test)]
mod tests;

pub use extend::{ExtendOptions, extend};
pub use request::{DEFAULT_MINUTES, RunRequest};

use super::images::{read, read_again_among};
use super::log::RunLog;
use super::report::report_at_end;
use crate::config::{Resolved, System, check_resumable};
use crate::data::{Dataset, Load};
use crate::method::{Method, Plan};
use crate::model::Network;
use crate::observe::{Expected, Observer, Silent, TrainingStart};
use crate::run::{About, RunFolder, RunResult, VERSION, Warning, cpu, resumed_settings};
use crate::train::setup::check_room;
use crate::train::{self, Forecast, Setup, State};
use minutes::Chosen;
use notes::describe;
use pcp_core::error::{Error, Result, listed};
use pcp_core::io::atomic::write_bytes;
use pcp_core::io::names;
use pcp_core::peers::Team;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The program that calls a job; the run folder remembers it. A library's user may leave it empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The command that the user gave.
    pub command: String,
    /// Revision of the program.
    pub revision: String,
}

/// A new run.
#[derive(Clone, Debug, Default)]
pub struct TrainOptions {
    /// Images and settings.
    pub request: RunRequest,
    /// The run folder; otherwise `runs/<data>-<system>-<n>` with the first free n.
    pub out: Option<PathBuf>,
    /// Begin anew in a run folder that exists, removing the old run's files.
    pub overwrite: bool,
    /// Write no report.html at the end.
    pub no_report: bool,
    /// The calling program.
    pub caller: Caller,
    /// The processes that train together, all with these options.
    pub team: Team,
}

impl TrainOptions {
    /// The usual: every setting as the presets have it, in a new folder, with a page at the end.
    pub fn new(data: impl Into<String>) -> Self {
        TrainOptions { request: RunRequest::new(data), ..TrainOptions::default() }
    }

    /// With one setting, `section.key=value`.
    pub fn set(mut self, assignment: &str) -> Result<Self> {
        self.request = self.request.set(assignment)?;
        Ok(self)
    }
}

/// A run that goes on.
#[derive(Clone, Debug)]
pub struct ResumeOptions {
    /// The run folder.
    pub run: PathBuf,
    /// Images and settings that were given again: they must be those that the run began with, but for how often it saves, where images are
    /// held, and whether unreadable files are refused.
    pub request: RunRequest,
    /// Write no report.html at the end.
    pub no_report: bool,
    /// The calling program; a warning tells where its revision is another than the one that began the run.
    pub caller: Caller,
    /// The processes that train together, all with these options; they need not be as many as began the run.
    pub team: Team,
}

impl ResumeOptions {
    /// Goes on with the run in `run`.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        let (request, caller) = (RunRequest::default(), Caller::default());
        ResumeOptions { run: run.into(), request, no_report: false, caller, team: Team::default() }
    }
}

/// A finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainResult {
    /// The run folder.
    pub run: PathBuf,
    /// Its page, where it has one.
    pub report: Option<PathBuf>,
    /// What was reached; `result.json` has it.
    pub result: RunResult,
}

impl TrainResult {
    fn new(run: &RunFolder, result: RunResult) -> Self {
        let page = run.file("report.html");
        TrainResult { run: run.path().to_path_buf(), report: page.exists().then_some(page), result }
    }
}

/// Trains a network, and leaves embeddings, purified clusters and a result in a run folder. When it is cancelled, everything is saved
/// first, and [`resume`] goes on.
pub fn train(options: &TrainOptions, observer: &Arc<dyn Observer>) -> Result<TrainResult> {
    begin_in_parts(options, None, observer)
}

/// Trains by a method of the caller's own; `resume` does not know it.
pub fn train_with(
    options: &TrainOptions,
    method: &'static dyn Method,
    observer: &Arc<dyn Observer>,
) -> Result<TrainResult> {
    begin_in_parts(options, Some(method), observer)
}

fn begin_in_parts(
    options: &TrainOptions,
    method: Option<&'static dyn Method>,
    observer: &Arc<dyn Observer>,
) -> Result<TrainResult> {
    let parts = options.request.config()?.train.parts;
    parts::in_parts(&options.team, parts, observer, |team, observer| {
        begin(&TrainOptions { team: team.clone(), ..options.clone() }, method, observer)
    })
}

fn begin(
    options: &TrainOptions,
    method: Option<&'static dyn Method>,
    observer: &Arc<dyn Observer>,
) -> Result<TrainResult> {
    let team = &options.team;
    agree(team, &options.caller)?;
    if let Some(out) = options.out.as_ref().filter(|_| team.leads()) {
        // Refuse before the images are read.
        if !options.overwrite && RunFolder::open(out).is_ok() {
            RunFolder::create(out, false)?;
        }
    }
    let Prepared { presets, config, dataset, lines, expected, patches } = prepare(&options.request, team, observer)?;
    let fingerprint = dataset.fingerprint();
    agree_on(team, &fingerprint, &config)?;
    let about = About {
        version: VERSION.into(),
        revision: options.caller.revision.clone(),
        cpu: cpu(),
        command: options.caller.command.clone(),
        data: dataset.name.clone(),
        fingerprint,
        presets,
    };
    let system = Path::new(about.system()).file_stem().map_or("pcp".into(), |s| s.to_string_lossy());
    let out = options.out.clone().unwrap_or_else(|| RunFolder::fresh_path(&dataset.name, &system));
    let begun =
        team.leads().then(|| RunFolder::begin(&out, options.overwrite, &config, &about, &dataset)).transpose()?;
    // The others learn its name when it is there: what they find in it is of this run.
    let path = team.from_leader(names::of(out.as_os_str()).as_bytes());
    let run = begun.unwrap_or_else(|| RunFolder::of_other(&names::path(&String::from_utf8_lossy(&path))));
    if let Some(patches) = patches {
        write_bytes(&run.patches(), &patches)?;
    }
    let mut setup = Setup::new(config, dataset, run.clone(), about, log_beside(&run, team, observer))?;
    setup.method = method.unwrap_or(setup.method);
    tell(&setup);
    lines.iter().for_each(|line| setup.observer.note(line));
    let state = setup.begin()?;
    finish(&setup, state, options.no_report, expected)
}

/// Goes on with a run that was cancelled or killed; the result is bit for bit that of a run that was not. Of a finished run it returns the
/// result.
pub fn resume(options: &ResumeOptions, observer: &Arc<dyn Observer>) -> Result<TrainResult> {
    let parts = RunFolder::open(&options.run)?.read_any_config()?.0.train.parts;
    parts::in_parts(&options.team, parts, observer, |team, observer| {
        go_on(&ResumeOptions { team: team.clone(), ..options.clone() }, observer)
    })
}

fn go_on(options: &ResumeOptions, observer: &Arc<dyn Observer>) -> Result<TrainResult> {
    let (path, team) = (&options.run, &options.team);
    agree(team, &options.caller)?;
    let run = RunFolder::open(path)?;
    if options.request.minutes.is_some() {
        let hint = format!("leave it out; a finished run is trained further with: `extend` {}", path.display());
        return Err(Error::usage("`minutes` is for a new run, and this one goes on as it began", hint));
    }
    // The checkpoint says which settings were changed; without one, the list of checksums says that some were.
    let (config, about) = match run.checkpoints()?.is_empty() {
        false => run.read_any_config()?,
        true => run.read_config()?,
    };
    let changed = options.request.config_over(&config)?;
    let config = resumed_settings(config, &changed)?;
    if let Some(result) = run.read_result()? {
        observer.note(&format!("{} is finished; this is its result", path.display()));
        return Ok(TrainResult::new(&run, result));
    }
    check_resumable(path, config.train.precision)?;
    trained_by(team.count(), &config)?;
    let run = if team.leads() { run.locked()? } else { run };
    let dataset = read_again_among(team, &config, observer)?;
    let replaced = run.changed_files(&dataset);
    let fingerprint = dataset.fingerprint();
    agree_on(team, &fingerprint, &config)?;
    if fingerprint != about.fingerprint {
        let named = match replaced.as_slice() {
            [] => String::new(),
            few @ [_, ..] if few.len() <= 3 => format!(": {}", listed(few)),
            many => format!(": {} and {} more", listed(&many[..3]), many.len() - 3),
        };
        return Err(Error::data(
            format!("the images of {} are not those that {} began with{named}", config.data.source, path.display()),
            "bring the images back as they were, or start another run",
        ));
    }
    let setup = Setup::new(config, dataset, run.clone(), about, log_beside(&run, team, observer))?;
    tell(&setup);
    setup.warn_of_origin(VERSION, &options.caller.revision, &cpu());
    let state = setup.restore()?;
    if team.leads() {
        // A kill may have come between the settings and the list of files.
        run.write_files(&setup.plan.dataset)?;
    }
    if !replaced.is_empty() {
        let n = replaced.len();
        setup
            .observer
            .note(&format!("{n} files have another size or time than when the run began, but the same pixels"));
    }
    setup.observer.note(&format!("going on {}", state.progress.place(setup.plan.config.train.rounds)));
    finish(&setup, state, options.no_report, None)
}

/// Says what a run would take (memory, disk, time, clusters over the epochs), from a trial of a few steps; with a number of `processes`, also
/// what as many would take together. Nothing is left behind.
pub fn forecast(request: &RunRequest, processes: Option<usize>, observer: &Arc<dyn Observer>) -> Result<Forecast> {
    if processes == Some(0) {
        return Err(Error::usage("0 processes train nothing", "give --processes 2 or more"));
    }
    let Prepared { presets, config, dataset, lines, .. } = prepare(request, &Team::default(), observer)?;
    trained_by(processes.unwrap_or(1), &config)?;
    trial_folder(|run| {
        let about = About { presets, ..About::default() };
        let cancel = observer.cancel().clone();
        let setup = Setup::new(config, dataset, run, about, Arc::new(Silent(cancel.clone())))?;
        describe(&setup, observer.as_ref());
        lines.iter().for_each(|line| observer.note(line));
        // What is written is written before there are two threads.
        setup.initial()?;
        cancel.run_beside(move || train::forecast(&setup, processes))?
    })
}

/// Calls `job` with a folder for what a trial writes, which is removed afterwards.
fn trial_folder<T>(job: impl FnOnce(RunFolder) -> Result<T>) -> Result<T> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let place = std::env::temp_dir().join(format!("{TRIAL}{}-{number}", std::process::id()));
    remove_dead_trials();
    let outcome = RunFolder::create(&place, false).and_then(job);
    let _ = std::fs::remove_dir_all(&place);
    outcome
}

/// The beginning of the names of trials' folders.
const TRIAL: &str = "pcp-dry-run-";

/// Removes the folders of trials whose processes were killed.
fn remove_dead_trials() {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(TRIAL).and_then(|rest| rest.split('-').next());
        let Some(process) = process.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir())) else { continue };
        if RunFolder::is_abandoned(&entry.path(), process) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Presets, resolved settings and images of a new run.
struct Prepared {
    presets: Vec<String>,
    config: Resolved,
    dataset: Arc<Dataset>,
    /// What was chosen for a given time.
    lines: Vec<String>,
    /// Expected seconds of the epochs and of what follows, where they were measured.
    expected: Option<Expected>,
    /// The file of the patches that were learned meanwhile.
    patches: Option<Vec<u8>>,
}

/// Reads the images and checks, before anything is written, that the network can be trained on them.
fn prepare(request: &RunRequest, team: &Team, observer: &Arc<dyn Observer>) -> Result<Prepared> {
    let source = request.source()?;
    let (presets, mut config) = request.config_for(&source)?;
    source.check_dir(!config.data.dir.is_empty())?;
    let budget = request.time_budget(&source)?;
    if budget.is_some() && team.several() {
        return Err(Error::usage(
            format!("a run of given minutes is chosen by one process, and there are {}", team.count()),
            "name the system and its length, for example `--preset pcp --width 64 --epochs 200`",
        ));
    }
    if let Some(budget) = &budget {
        budget.before_reading(&mut config, &source, observer)?;
    }
    let load = Load { team: team.clone(), ..config.load_request()? };
    let dataset = Arc::new(read(load, observer)?);
    let (config, dataset, lines, expected, patches) = match budget {
        Some(budget) => {
            let Chosen { config, dataset, lines, expected, patches } = budget.choose(config, dataset, observer)?;
            (config, dataset, lines, Some(expected), patches)
        }
        None => (config.resolve(&dataset)?, dataset, Vec::new(), None, None),
    };
    trained_by(team.count(), &config)?;
    let plan = Plan::new(config, dataset)?;
    let network =
        Network::new(&plan.config.network, plan.config.data.size)?.with_precision(plan.config.train.precision);
    check_room(&network, &plan, pcp_core::memory::free())?;
    let Plan { config, dataset, .. } = plan;
    if !config.train.init_from.is_empty() {
        let adopted = network.adopt(Path::new(&config.train.init_from), config.train.seed)?;
        observer.note(&format!("begins with {}: {}", config.train.init_from, adopted.summary()));
    }
    Ok(Prepared { presets, config, dataset, lines, expected, patches })
}

/// An error unless all processes are of one program, on CPUs of one kind: on others the same numbers have other last bits.
fn agree(team: &Team, caller: &Caller) -> Result<()> {
    team.agree("program", format!("{VERSION} {}", caller.revision).as_bytes())?;
    team.agree("command", caller.command.as_bytes())?;
    team.agree("kind of CPU", cpu().as_bytes())
}

/// An error unless all processes have the same images and settings.
fn agree_on(team: &Team, fingerprint: &str, config: &Resolved) -> Result<()> {
    team.agree("data", fingerprint.as_bytes())?;
    team.agree("settings", format!("{:?}", config.entries()).as_bytes())
}

/// An error where several processes cannot train the system together.
fn trained_by(processes: usize, config: &Resolved) -> Result<()> {
    let system = config.method.system;
    if processes > 1 && matches!(system, System::Plus | System::Patches) {
        return Err(Error::usage(
            format!("patches are learned by one process, not by {processes}"),
            "train another system, such as `--preset pcp`, or start one process, with `train.parts` 0",
        ));
    }
    Ok(())
}

/// The observer, with a log of the run where this process writes one.
fn log_beside(run: &RunFolder, team: &Team, observer: &Arc<dyn Observer>) -> Arc<dyn Observer> {
    if team.leads() { RunLog::beside(run, observer) } else { observer.clone() }
}

/// Tells what the run will do, and what is unusual about it.
fn tell(setup: &Setup) {
    describe(setup, setup.observer.as_ref());
    setup.observer.note(&format!("folder    {}", setup.run.path().display()));
    setup.observer.run_began(setup.run.path());
    setup.warn_beforehand();
}

/// Trains to the end, and writes the page.
fn finish(setup: &Setup, state: State, no_report: bool, expected: Option<Expected>) -> Result<TrainResult> {
    let trains = setup.plan.config.train.rounds > 0;
    if setup.method.reads_out() && trains && state.progress.metrics_lines == 0 && !no_report {
        // A first page, of the patch features; the one at the end takes its place.
        write_page(setup);
    }
    let schedule = &setup.plan.schedule;
    let start = TrainingStart {
        epochs_per_round: schedule.epochs(),
        total_epochs: schedule.total_epochs(),
        done: state.progress.metrics_lines as u32,
        images: setup.plan.samples(),
        expected,
    };
    setup.observer.training_began(&start);
    let result = train::train(setup, state);
    setup.observer.training_ended();
    let result = result?;
    let run = &setup.run;
    if setup.team().leads() {
        run.log(&result.table());
        if !no_report {
            write_page(setup);
        }
    }
    Ok(TrainResult::new(run, result))
}

/// Writes the page about the run. What was learned is saved: a page that cannot be written, or that is not waited for, takes nothing from
/// it.
fn write_page(setup: &Setup) {
    let run = &setup.run;
    if let Err(e) = report_at_end(run, setup.plan.dataset.clone(), &setup.observer) {
        let warning = Warning::NoReport { reason: e.message, run: run.path().display().to_string() };
        run.log(&format!("warning: {warning}"));
        setup.observer.warn(&warning);
    }
}
