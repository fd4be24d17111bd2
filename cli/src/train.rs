//! `pcp train`.

use super::data::offer;
use super::serve::PageArgs;
use super::terminal::say;
use super::{progress, table, together};
use clap::Parser;
use pcp::config::SettingsLayer;
use pcp::jobs::{
    Caller, ExtendOptions, ResumeOptions, RunRequest, TrainOptions, TrainResult, extend, forecast, resume, train,
};
use pcp::observe::{Observer, Silent};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Kind, Result};
use pcp_serve::{Catalogue, Watch};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The revision that the program was built from; `unknown` where git does not know.
pub const REVISION: &str = env!("PCP_REVISION");

#[derive(Parser)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp train                                                  bundled photographs, a few minutes
  pcp train PHOTOS/                                          a folder, about 20 minutes; class folders give labels for the kNN probe
  pcp train PHOTOS/ --minutes 5 --out runs/photos            the best that can be had in 5 minutes
  pcp train cifar10 --data-dir DATA --epochs 200             the paper's setting
  pcp train cifar10 --data-dir DATA --limit 10000 --width 16 --epochs 40 --clusters 200
  pcp train PHOTOS/ --preset moco --set moco.queue=4096      another system, any setting
  pcp train --resume runs/photos                             go on where it was stopped
  pcp train --extend runs/photos --minutes 30                train a finished run further, in a new folder
  pcp train PHOTOS/ --serve --open                           watch it in the browser, and explore it afterwards
  pcp train PHOTOS/ --decisions runs/photos                  without the images that were removed on the page of pcp serve
  pcp train PHOTOS/ --dry-run                                what would it take?
  pcp train PHOTOS/ --preset pcp --dry-run --processes 64    and with 64 processes?
  mpirun -n 4 pcp train PHOTOS/ --preset pcp --epochs 200    several processes, built with --features mpi (docs/scale.md)

Systems (--preset): pcp-plus (default where nothing else is asked for), patches, pcp (the paper's), pcp-nowarm, pcp-paper, pcp-release, pc,
pc-cpr, dc, ir, is, and, and-oneoff, la, deepcluster, moco, moco2, simclr, byol, emp, supervised, random. Data: bundled, folder, idx, cifar10, cifar100, in100, cub200.
Every setting and its value is in the run folder's config.toml."
)]
pub struct Args {
    /// What to train on: a folder of images or of idx files, cifar10, cifar100 or bundled
    data: Option<String>,
    /// Where the CIFAR files are
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Run folder [default: runs/<data>-<preset>-<n>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run in this folder
    #[arg(long, value_name = "RUN", conflicts_with_all = ["out", "overwrite"])]
    resume: Option<PathBuf>,
    /// Train the finished run in this folder further, in a new folder, for --minutes or --epochs [default: 20 minutes]
    #[arg(long, value_name = "RUN", conflicts_with_all = ["resume", "dry_run"])]
    extend: Option<PathBuf>,
    /// A system or a data set by name, or a TOML file of settings; may be repeated (one system), later ones win
    #[arg(long, value_name = "NAME|FILE.toml")]
    preset: Vec<String>,
    /// Any setting, as section.key=value; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Everything random follows from it [default: 0]
    #[arg(long)]
    seed: Option<i64>,
    /// Threads [default: all cores]; results do not depend on it
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Choose width, image size, epochs and number of images, as far as they are not given, so that the run with its report
    /// ends in N minutes on this machine [default: 20 for a folder, when nothing else is asked for]
    #[arg(long, value_name = "N")]
    minutes: Option<f64>,
    /// Epochs per round
    #[arg(long)]
    epochs: Option<i64>,
    /// Rounds
    #[arg(long)]
    rounds: Option<i64>,
    /// Images per step
    #[arg(long)]
    batch: Option<i64>,
    /// Share of a cluster that is filtered out
    #[arg(long)]
    gamma: Option<f64>,
    /// The least number of clusters: auto (a fiftieth of the images, for LA a fortieth) or a number
    #[arg(long, value_name = "auto|N")]
    clusters: Option<String>,
    /// Network: resnet18, alexnet or alexnet224
    #[arg(long)]
    arch: Option<String>,
    /// Channels of the first stage; 64 is the paper's
    #[arg(long)]
    width: Option<i64>,
    /// Precision of the network's layers: auto (bf16 where the CPU has avx512_bf16), f32 or bf16
    #[arg(long, value_name = "auto|f32|bf16")]
    precision: Option<String>,
    /// Begin with these weights instead of random ones: a safetensors file in torchvision's names, or a run folder
    #[arg(long, value_name = "FILE|RUN")]
    init_from: Option<PathBuf>,
    /// Side of the images that the network sees
    #[arg(long)]
    size: Option<i64>,
    /// Train on N images only: the first, or, of a folder, the first of every class folder in turn
    #[arg(long, value_name = "N")]
    limit: Option<i64>,
    /// Where decoded images are held: auto (in memory, when they fit), memory, or none (decoded again whenever needed)
    #[arg(long, value_name = "auto|memory|none")]
    cache: Option<String>,
    /// Refuse files that cannot be read, instead of passing over them
    #[arg(long)]
    strict: bool,
    /// Epochs between kNN probes
    #[arg(long, value_name = "N")]
    eval_every: Option<i64>,
    /// Keep so many snapshots of the weights, evenly spaced
    #[arg(long, value_name = "N")]
    snapshots: Option<i64>,
    /// Minutes between checkpoints within an epoch
    #[arg(long, value_name = "MINUTES")]
    save_minutes: Option<f64>,
    /// Begin anew in a run folder that exists, removing the old run's files
    #[arg(long)]
    overwrite: bool,
    /// Try a few steps, say what the run will take (memory, disk, time, clusters over the epochs), and write nothing
    #[arg(long, conflicts_with_all = ["resume", "overwrite", "out"])]
    dry_run: bool,
    /// With --dry-run: also say what as many processes would take, each on a machine like this one
    #[arg(long, value_name = "N", requires = "dry_run")]
    processes: Option<usize>,
    /// Write no report.html at the end
    #[arg(long)]
    no_report: bool,
    /// Open a page on this machine to watch the run, on any free port or on PORT; it stays after the run until Ctrl-C
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0", conflicts_with = "dry_run")]
    serve: Option<u16>,
    /// Open that page in the browser
    #[arg(long, requires = "serve")]
    open: bool,
    /// Leave out the images that were removed, and use the labels that were given, on the page of `pcp serve`: its decisions.jsonl, or the run
    /// folder it is in
    #[arg(long, value_name = "FILE|RUN")]
    decisions: Option<PathBuf>,
    /// Show no progress: only warnings, errors and the result
    #[arg(long, short)]
    quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The flags as settings, in the order in which they win.
    fn settings(&self) -> Result<Vec<SettingsLayer>> {
        let mut layers: Vec<SettingsLayer> =
            self.set.iter().map(|s| SettingsLayer::assignment(s)).collect::<Result<_>>()?;
        let mut integer = |flag: &str, path: &str, value: Option<i64>| {
            layers.extend(value.map(|v| SettingsLayer::flag(flag, path, v)));
        };
        integer("--seed", "train.seed", self.seed);
        integer("--epochs", "train.epochs", self.epochs);
        integer("--rounds", "train.rounds", self.rounds);
        integer("--batch", "train.batch", self.batch);
        integer("--width", "network.width", self.width);
        integer("--size", "data.size", self.size);
        integer("--limit", "data.limit", self.limit);
        integer("--eval-every", "evaluate.every", self.eval_every);
        integer("--snapshots", "run.snapshots", self.snapshots);
        layers.extend(self.gamma.map(|v| SettingsLayer::flag("--gamma", "purify.gamma", v)));
        layers.extend(self.save_minutes.map(|v| SettingsLayer::flag("--save-minutes", "run.save_minutes", v)));
        layers.extend(self.cache.as_ref().map(|v| SettingsLayer::flag("--cache", "data.cache", v.as_str())));
        layers.extend(self.strict.then(|| SettingsLayer::flag("--strict", "data.strict", true)));
        layers.extend(self.arch.as_ref().map(|v| SettingsLayer::flag("--arch", "network.arch", v.as_str())));
        layers
            .extend(self.precision.as_ref().map(|v| SettingsLayer::flag("--precision", "train.precision", v.as_str())));
        if let Some(clusters) = &self.clusters {
            let value = clusters.parse::<i64>().map(toml::Value::from).unwrap_or_else(|_| clusters.as_str().into());
            layers.push(SettingsLayer::flag("--clusters", "clusters.floor", value));
        }
        if let Some(limit) = self.limit.filter(|n| *n < 2) {
            return Err(Error::usage(
                format!("--limit is {limit}"),
                "give it 2 or more, or leave it out for all images",
            ));
        }
        Ok(layers)
    }

    /// Images and settings that the flags ask for.
    pub(super) fn request(&self) -> Result<RunRequest> {
        Ok(RunRequest {
            data: self.data.clone(),
            data_dir: self.data_dir.as_ref().map(PathBuf::from),
            presets: self.preset.clone(),
            init_from: self.init_from.clone(),
            decisions: self.decisions.clone(),
            settings: self.settings()?,
            minutes: self.minutes,
        })
    }
}

pub fn run(args: Args, stop: &Cancel) -> Result<()> {
    if args.dry_run || args.extend.is_some() || args.serve.is_some() {
        together::require_one("training with --dry-run, --extend or --serve")?;
    }
    let team = together::team(stop)?;
    super::use_threads_of(args.threads, team.on_this_machine())?;
    let (request, no_report) = (args.request()?, args.no_report);
    // Several processes stop when all of them have agreed on it; one of them writes and prints.
    let agreed = Cancel::default();
    let stop = if team.several() { &agreed } else { stop };
    if args.dry_run {
        let quiet = args.quiet || args.json;
        let observer = progress::training(quiet, stop);
        let found =
            with_offer(&request, &observer, quiet, stop, |observer| forecast(&request, args.processes, observer))?;
        return if args.json { super::print_json(&found) } else { super::print(table::forecast(&found).trim_end()) };
    }
    let caller = caller(command(crate::words()));
    let mut observer = match team.leads() {
        true => progress::training(args.quiet, stop),
        false => Arc::new(Silent(stop.clone())),
    };
    let mut page = None;
    if let Some(port) = args.serve {
        let watch = Watch::new(observer);
        page = Some(PageArgs::on(port, args.open).start(Catalogue::of_training(watch.clone()))?);
        observer = watch;
    }
    let (out, overwrite) = (args.out, args.overwrite);
    let done = match (args.resume, args.extend) {
        (Some(run), _) => resume(&ResumeOptions { run, request, no_report, caller, team: team.clone() }, &observer)?,
        (None, Some(run)) => extend(&ExtendOptions { run, request, out, overwrite, no_report, caller }, &observer)?,
        (None, None) => {
            let options = TrainOptions { request, out, overwrite, no_report, caller, team: team.clone() };
            match team.several() {
                true => train(&options, &observer)?,
                false => {
                    with_offer(&options.request, &observer, args.quiet, stop, |observer| train(&options, observer))?
                }
            }
        }
    };
    if team.leads() {
        show(&done, args.json)?;
    }
    if let Some(page) = page {
        say("the page is still there; Ctrl-C ends it");
        page.wait(stop);
    }
    Ok(())
}

/// Prints the result.
fn show(done: &TrainResult, json: bool) -> Result<()> {
    if json {
        return super::print_json(&done.result);
    }
    let page = done.report.as_ref().map(|page| format!("; open {} in a browser", page.display())).unwrap_or_default();
    super::print(&format!("\n{}\n  everything is in {}{page}", done.result.table(), done.run.display()))
}

/// This program, called by `command`.
pub(super) fn caller(command: String) -> Caller {
    Caller { command, revision: REVISION.into() }
}

/// Trains, and offers to download data that is missing.
pub(super) fn begin(options: &TrainOptions, quiet: bool, stop: &Cancel) -> Result<TrainResult> {
    let observer = progress::training(quiet, stop);
    with_offer(&options.request, &observer, quiet, stop, |observer| train(options, observer))
}

/// Runs a job; where its data is missing and the user agrees to download it, runs it again.
fn with_offer<T>(
    request: &RunRequest,
    observer: &Arc<dyn Observer>,
    quiet: bool,
    stop: &Cancel,
    job: impl Fn(&Arc<dyn Observer>) -> Result<T>,
) -> Result<T> {
    match job(observer) {
        Err(e) if e.kind == Kind::Data => {
            let (source, config) = (request.source()?, request.config()?);
            if offer(&source, Path::new(&config.data.dir), quiet, stop)? { job(observer) } else { Err(e) }
        }
        done => done,
    }
}

/// The command that has these words after `pcp`, quoted where a shell needs it.
pub(super) fn command(words: impl IntoIterator<Item = String>) -> String {
    let quote = |word: String| {
        let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    std::iter::once("pcp".to_string()).chain(words).map(quote).collect::<Vec<_>>().join(" ")
}
