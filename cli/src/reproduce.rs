//! `pcp reproduce`.

mod figures;

use super::detect;
use super::table::duration;
use super::terminal::say;
use super::{progress, train};
use crate::paper::{self, Cell, CellRecord, Figure, Job, Known, Measure, Panel, PanelRecord, Scale, Table};
use clap::Parser;
use pcp::config::Config;
use pcp::detect::shapes;
use pcp::jobs::{
    DetectEvalOptions, DetectorSettings, EvalLinearOptions, ResumeOptions, TrainOptions, detect_eval, detect_resume,
    detect_train, eval_linear, resume,
};
use pcp::run::{DETECTION, RunFolder, RunResult};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Kind, Result, listed};
use pcp_core::io::atomic::{make_tidy_folder, write_bytes};
use std::collections::BTreeMap;
use std::path::PathBuf;

const ALL: &str = "all";

#[derive(Parser)]
#[command(after_help = "\
Examples:
  pcp reproduce all --scale tiny                                   everything on the bundled images, a few minutes
  pcp reproduce table5 --data-dir DATA --out results               all systems on CIFAR-10, on two cores
  pcp reproduce table5 table1 --data-dir DATA --seeds 0,1          two tables, two seeds
  pcp reproduce table3 --data-dir DATA --only table3/dc-nc100      one cell
  pcp reproduce figure5 --data-dir DATA                            t-SNE and clusters of DC, AND and PCP
  pcp reproduce all --scale full --data-dir DATA --list            what would be run

Scales: full is the paper's setting; mini has 5,120 images, width 16 (Table 9: 10,000 and 32) and the paper's 200 epochs; tiny runs
on the bundled images.
DATA holds cifar-10-batches-bin, cifar-100-binary, in100, cub200 and VOCdevkit/VOC2007, as far as they are needed. With the
last, figures 1 and 4 say how much of the heat lies in its boxes. A figure is drawn from the first seed.
Stopped or killed, the same command goes on where it was. Runs that several cells share are made once.")]
pub struct Args {
    /// Which tables and figures
    #[arg(required = true, value_name = "TABLE|FIGURE", value_parser = [
        "table1", "table2", "table3", "table4", "table5", "table6", "table7", "table8", "table9", "figure1", "figure4", "figure5", ALL,
    ])]
    asked: Vec<String>,
    /// How large the runs are
    #[arg(long, default_value = "mini", value_parser = Scale::ALL.map(Scale::name))]
    scale: String,
    /// Only this cell, or all whose names have this in them; may be repeated
    #[arg(long, value_name = "CELL")]
    only: Vec<String>,
    /// Where the data sets are
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Seeds, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "SEEDS")]
    seeds: Vec<u32>,
    /// Threads [default: all cores]; results do not depend on it
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Show cells, commands and what is done, and run nothing
    #[arg(long)]
    list: bool,
    /// Where runs, records and tables go, in a folder for every scale
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Show no progress: only warnings, errors and the tables
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: Args, stop: &Cancel) -> Result<()> {
    super::use_threads(args.threads)?;
    let mut session = Session::new(args)?;
    if session.args.list { session.list() } else { session.run(stop) }
}

/// Some tables and figures at some scale.
struct Session {
    args: Args,
    scale: Scale,
    tables: Vec<Table>,
    figures: Vec<Figure>,
    jobs: Vec<Job>,
    /// Why cells failed, by their names.
    failed: BTreeMap<String, Error>,
}

impl Session {
    fn new(args: Args) -> Result<Session> {
        let scale = Scale::named(&args.scale).unwrap_or(Scale::Mini);
        let mut tables: Vec<Table> = Vec::new();
        let mut figures: Vec<Figure> = Vec::new();
        for name in &args.asked {
            let new = |table: &Table| (name == ALL || table.name() == *name) && !tables.contains(table);
            let new: Vec<Table> = paper::tables().into_iter().filter(new).collect();
            tables.extend(new);
            let new = |figure: &Figure| (name == ALL || figure.name() == *name) && !figures.contains(figure);
            let new: Vec<Figure> = paper::figures().into_iter().filter(new).collect();
            figures.extend(new);
        }
        let (cells, panels) = paper::select(&tables, &figures, &args.only)?;
        let mut seeds = args.seeds.clone();
        seeds.sort_unstable();
        seeds.dedup();
        let jobs = paper::plan(&cells, &panels, scale, args.data_dir.as_deref(), &seeds);
        Ok(Session { args, scale, tables, figures, jobs, failed: BTreeMap::new() })
    }

    /// Where everything of this scale is.
    fn folder(&self) -> PathBuf {
        self.args.out.join(self.scale.name())
    }

    fn run_folder(&self, job: &Job) -> PathBuf {
        self.folder().join("runs").join(&job.run.name)
    }

    /// The command that makes a job's run.
    fn command(&self, job: &Job) -> String {
        let mut words = vec!["train".to_string()];
        words.extend(job.run.arguments());
        if self.args.threads > 0 {
            words.extend(["--threads".into(), self.args.threads.to_string()]);
        }
        words.extend(["--out".into(), self.run_folder(job).display().to_string()]);
        train::command(words)
    }

    /// The result of a job's run, once it is finished.
    fn result(&self, job: &Job) -> Option<RunResult> {
        RunFolder::open(&self.run_folder(job)).ok()?.read_result().ok()?
    }

    fn list(&self) -> Result<()> {
        let mut rows = Vec::new();
        for job in &self.jobs {
            let begun = RunFolder::open(&self.run_folder(job)).is_ok();
            let state = match self.result(job) {
                Some(_) if self.detected(job) => "done",
                _ if begun => "begun",
                _ => "to do",
            };
            let command = self.command(job);
            rows.extend(job.ids().into_iter().map(|id| (format!("{state:7} {id}"), command.clone())));
        }
        super::print(super::table::columns(&rows).trim_end())
    }

    fn run(&mut self, stop: &Cancel) -> Result<()> {
        make_tidy_folder(&self.folder())?;
        for i in 0..self.jobs.len() {
            let job = self.jobs[i].clone();
            let place = format!("[{}/{}] {}", i + 1, self.jobs.len(), job.title());
            let before = self.result(&job).is_some();
            if !before {
                self.say(&format!("{place}: {}", self.command(&job)));
            }
            let made = stop.check().and_then(|()| self.make(&job, stop)).and_then(|run| {
                self.probe(&job, &run, stop)?;
                self.detect(&job, &run, stop)?;
                self.draw(&job.panels, &run, stop)?;
                self.keep(&job, &run)
            });
            match made {
                Ok(first) => {
                    let when = if before { "made before, " } else { "" };
                    let said = first.map(|(cell, record)| {
                        let figure = paper::text(&cell, &Known { records: vec![record.clone()], failed: None });
                        format!("{figure}, paper {:.1}; {when}{}", record.paper, duration(record.seconds))
                    });
                    self.say(&format!("{place}: {}{}", said.unwrap_or("drawn".into()), self.to_go(i + 1)));
                }
                Err(e) if e.kind == Kind::Stopped => {
                    let command = train::command(crate::words());
                    let hint = format!("go on with the same command: {command}");
                    return Err(Error { message: format!("{}: {}", job.title(), e.message), hint, ..e });
                }
                Err(e) => {
                    self.say(&format!("{place} failed: {}", e.message));
                    self.failed.extend(job.ids().into_iter().map(|id| (id, e.clone())));
                }
            }
            self.render()?;
        }
        // Without a single run there is still a table to show.
        super::print(&self.render()?.join("\n"))?;
        self.summary()
    }

    /// Says which cells failed, each with its reason, and fails itself when one did.
    fn summary(&self) -> Result<()> {
        if self.failed.is_empty() {
            return Ok(());
        }
        for (cell, Error { message, hint, .. }) in &self.failed {
            say(&format!("failed  {cell}: {message} ({hint})"));
        }
        let cells: usize = self.jobs.iter().map(|job| job.ids().len()).sum();
        Err(Error::training(
            format!("{} of {cells} cells failed: {}", self.failed.len(), listed(self.failed.keys())),
            "mend what is said of each above, then give the same command: what is done is kept",
        ))
    }

    /// The run of a job: the finished one, the unfinished one brought to its end, or a new one.
    fn make(&self, job: &Job, stop: &Cancel) -> Result<RunFolder> {
        let folder = self.run_folder(job);
        let begun = RunFolder::open(&folder).ok();
        if let Some(run) = &begun {
            let finished = run.read_result()?.is_some();
            refuse_other_settings(run, &job.run.request()?.config()?, finished)?;
            if finished {
                return Ok(run.clone());
            }
        }
        self.scale.check_data(job.data, self.args.data_dir.as_deref())?;
        // Better now than after hours of training.
        if detects(job) && self.scale != Scale::Tiny {
            self.scale.voc(self.args.data_dir.as_deref())?;
        }
        let (request, caller) = (job.run.request()?, train::caller(self.command(job)));
        if begun.is_some() {
            let options = ResumeOptions { request, no_report: true, caller, ..ResumeOptions::new(&folder) };
            resume(&options, &progress::training(self.args.quiet, stop))?;
        } else {
            let out = Some(folder.clone());
            let options = TrainOptions { request, out, no_report: true, caller, ..TrainOptions::default() };
            train::begin(&options, self.args.quiet, stop)?;
        }
        RunFolder::open(&folder)
    }

    /// The linear probe that a job's cells ask for, unless it has been made.
    fn probe(&self, job: &Job, run: &RunFolder, stop: &Cancel) -> Result<()> {
        let asked = job.cells.iter().any(|cell| cell.measure == Measure::Linear);
        if !asked || paper::linear(run, self.scale)?.is_some() {
            return Ok(());
        }
        let options = EvalLinearOptions {
            layers: vec![paper::LINEAR_LAYER.into()],
            epochs: self.scale.linear_epochs(),
            ..EvalLinearOptions::new(run.path())
        };
        eval_linear(&options, &progress::job(self.args.quiet, stop)).map(|_| ())
    }

    /// Whether the detector that a job's cells ask for, if they do, has been made.
    fn detected(&self, job: &Job) -> bool {
        let run = RunFolder::open(&self.run_folder(job));
        !detects(job) || run.is_ok_and(|run| matches!(paper::detection(&run), Ok(Some(_))))
    }

    /// The detector that a job's cells ask for, trained and measured, unless that has been done.
    fn detect(&self, job: &Job, run: &RunFolder, stop: &Cancel) -> Result<()> {
        if !detects(job) || paper::detection(run)?.is_some() {
            return Ok(());
        }
        let folder = paper::detector_folder(run);
        let voc = match self.scale {
            Scale::Tiny => self.shapes(stop)?,
            _ => self.scale.voc(self.args.data_dir.as_deref())?,
        };
        let seed = run.read_result()?.map_or(0, |result| result.seed).to_string();
        let [run, voc, out] = [run.path(), &voc, &folder].map(|path| path.display().to_string());
        let mut words = vec!["train", &run, "--voc", &voc];
        words.extend(self.scale.detector_arguments());
        words.extend(["--seed", &seed, "--out", &out]);
        let command = train::command(["detect"].into_iter().chain(words.iter().copied()).map(String::from));
        let parsed = detect::train::Args::try_parse_from(&words).map_err(|e| super::help::usage(&e))?;
        let options = parsed.options(command.clone())?;
        let observer = progress::training(self.args.quiet, stop);
        match RunFolder::open_as(&DETECTION, &folder) {
            Ok(begun) => {
                let (was, _) = DetectorSettings::read(&begun)?;
                if was != options.settings()? {
                    return Err(Error::usage(
                        format!("the detector in {out} was begun with other settings"),
                        format!("move {out} away to have it trained anew, or choose another --out"),
                    ));
                }
                detect_resume(&folder, &observer)?;
            }
            Err(_) => {
                self.say(&format!("{}: {command}", job.title()));
                detect_train(&options, &observer)?;
            }
        }
        detect_eval(&DetectEvalOptions::new(folder), &progress::job(self.args.quiet, stop)).map(|_| ())
    }

    /// The made-up detection set of the tiny scale.
    fn shapes(&self, stop: &Cancel) -> Result<PathBuf> {
        let folder = self.folder().join("shapes");
        if !folder.is_dir() {
            shapes::write(&folder, &shapes::Request { train: 12, test: 8, side: 48, seed: 0 }, stop)?;
        }
        Ok(folder)
    }

    fn draw(&self, panels: &[Panel], run: &RunFolder, stop: &Cancel) -> Result<()> {
        let (dir, quiet) = (self.args.data_dir.as_deref(), self.args.quiet);
        panels.iter().try_for_each(|panel| figures::draw(panel, self.scale, run, &self.folder(), dir, quiet, stop))
    }

    /// Writes the records of a job's cells; returns the first.
    fn keep(&self, job: &Job, run: &RunFolder) -> Result<Option<(Cell, CellRecord)>> {
        let mut first = None;
        for cell in &job.cells {
            let record = CellRecord::of(cell, self.scale, run)?;
            record.write(&self.folder())?;
            first.get_or_insert((cell.clone(), record));
        }
        Ok(first)
    }

    /// Writes all tables and figures anew; returns their text.
    fn render(&self) -> Result<Vec<String>> {
        let folder = self.folder();
        let mut pages = Vec::new();
        for table in &self.tables {
            let mut known = BTreeMap::new();
            for cell in table.cells() {
                let records = CellRecord::read_all(&folder, cell)?;
                let failed = self.failed.get(&cell.id()).map(|e| e.message.clone());
                known.insert(cell.id(), Known { records, failed });
            }
            let findings = std::fs::read_to_string(folder.join(format!("{}.notes.md", table.name()))).ok();
            let of = |cell: &Cell| known.get(&cell.id()).cloned().unwrap_or_default();
            let page = paper::page(table, self.scale, &of, findings.as_deref());
            write_bytes(&folder.join(format!("{}.md", table.name())), page.as_bytes())?;
            pages.push(page);
        }
        for figure in &self.figures {
            let read = |panel: &Panel| Ok((panel.clone(), PanelRecord::read(&folder, panel)?));
            let known = figure.panels.iter().map(read).collect::<Result<Vec<_>>>()?;
            let page = paper::figure_page(figure, self.scale, &known);
            write_bytes(&folder.join(format!("{}.md", figure.name())), page.as_bytes())?;
            pages.push(page);
        }
        Ok(pages)
    }

    /// How long the jobs from `next` on will take, in words, going by the time of all that is done.
    fn to_go(&self, next: usize) -> String {
        let images = |job: &Job| self.scale.images(job.data);
        let config = |job: &Job| job.run.request().and_then(|request| request.config());
        let work = |job: &Job| config(job).map_or(0.0, |config| paper::work(&config, images(job)));
        let (mut seconds, mut done, mut left) = (0.0, 0.0, 0.0);
        for (i, job) in self.jobs.iter().enumerate() {
            match self.result(job) {
                Some(result) => {
                    seconds += result.seconds;
                    done += work(job);
                }
                None if i >= next => left += work(job),
                None => {}
            }
        }
        if left > 0.0 && done > 0.0 {
            format!("; about {} to go", duration(seconds / done * left))
        } else {
            String::new()
        }
    }

    fn say(&self, line: &str) {
        if !self.args.quiet {
            say(line);
        }
    }
}

/// Whether a job's cells ask for a detector.
fn detects(job: &Job) -> bool {
    job.cells.iter().any(|cell| cell.measure == Measure::Detection)
}

/// Refuses a run that was begun with other settings than are asked for now. What was left to the data (`auto`, or no folder)
/// has been found out since. Where the data was does not matter to a run that is finished.
fn refuse_other_settings(run: &RunFolder, asked: &Config, finished: bool) -> Result<()> {
    let (began, _) = run.read_config()?;
    let open = |key: &str, now: &toml::Value| {
        let left = matches!(now.as_str(), Some("auto" | ""));
        left || key == "run.save_minutes" || finished && matches!(key, "data.source" | "data.dir")
    };
    let differ: Vec<String> = (began.entries().into_iter().zip(asked.entries()))
        .filter(|((key, was), (_, now))| was != now && !open(key, now))
        .map(|((key, was), (_, now))| format!("{key} is {was}, not {now}"))
        .collect();
    if differ.is_empty() {
        return Ok(());
    }
    let folder = run.path().display();
    Err(Error::usage(
        format!("the run in {folder} was begun with other settings: {}", listed(differ)),
        format!("move {folder} away to have it run anew, or choose another --out"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(scale: &str, out: &str) -> Session {
        let words = ["reproduce", ALL, "--scale", scale, "--data-dir", "DATA", "--out", out];
        Session::new(Args::try_parse_from(words).unwrap()).unwrap()
    }

    #[test]
    fn every_cell_is_a_command_that_train_takes() {
        for scale in Scale::ALL {
            let session = session(scale.name(), "results");
            assert!(session.jobs.len() > 40);
            for job in &session.jobs {
                let config = job.run.request().and_then(|request| request.config());
                let config = config.unwrap_or_else(|e| panic!("{}: {e:?}", job.title()));
                let words = ["train".to_string()].into_iter().chain(job.run.arguments());
                let given = train::Args::try_parse_from(words).unwrap().request().unwrap();
                assert_eq!(given.config().unwrap(), config, "the printed command asks for the same");
                let images = scale.images(job.data);
                assert!(config.data.limit == 0 || config.data.limit.min(images) == images, "{}", job.title());
                config.schedule(images).unwrap_or_else(|e| panic!("{}: {e:?}", job.title()));
                pcp::model::Network::new(&config.network, config.image_side()).unwrap();
                assert_eq!(config.train.epochs, if scale == Scale::Tiny { 12 } else { 200 }, "{}", job.title());
            }
        }
    }

    #[test]
    fn every_scale_has_detectors_that_train_takes() {
        for scale in Scale::ALL {
            let words = ["train", "RUN", "--voc", "VOC", "--out", "OUT"].iter().chain(scale.detector_arguments());
            assert!(detect::train::Args::try_parse_from(words).is_ok(), "{}", scale.name());
        }
    }

    #[test]
    fn commands_are_whole_and_name_their_folder() {
        let session = session("mini", "my results");
        let job = session.jobs.iter().find(|job| job.title().starts_with("table1/dc")).unwrap();
        assert_eq!(
            session.command(job),
            "pcp train cifar10 --data-dir DATA --preset dc --clusters 38 --limit 5120 --width 16 --seed 0 --out \
             'my results/mini/runs/cifar10-dc-k38-s0'"
        );
    }

    #[test]
    fn tables_come_in_the_order_given_and_once() {
        let words = ["reproduce", "table5", "table1", ALL, "--scale", "tiny"];
        let session = Session::new(Args::try_parse_from(words).unwrap()).unwrap();
        let numbers: Vec<u8> = session.tables.iter().map(|t| t.number).collect();
        assert_eq!(numbers, [5, 1, 2, 3, 4, 6, 7, 8, 9]);
        assert_eq!(session.figures.iter().map(|f| f.number).collect::<Vec<_>>(), [1, 4, 5]);
    }
}
