//! The command line: one file per verb, each of which builds values and calls one job.

mod bench;
mod check;
mod cluster;
mod data;
mod detect;
mod embed;
mod eval;
mod export;
mod flags;
mod hangup;
mod help;
mod input;
mod look;
mod paper;
mod precision;
mod progress;
mod purify;
mod report;
mod reproduce;
mod search;
mod serve;
mod table;
mod terminal;
mod together;
mod train;

pub use train::REVISION;

use clap::error::ErrorKind;
use clap::{FromArgMatches, Parser, Subcommand};
use pcp_core::cancel::{Cancel, panicked};
use pcp_core::error::{Error, Kind, Result};
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use terminal::{print, print_json, say};

/// Learn image features without labels: Progressive Cluster Purification.
///
/// Hand it a folder of images; it trains a network, and leaves embeddings, purified clusters and a result in a run folder.
#[derive(Parser)]
#[command(
    name = "pcp",
    version,
    propagate_version = true,
    after_help = "\
Examples:
  pcp train                                   train on the bundled photographs, a few minutes
  pcp train PHOTOS/ --out runs/photos         train on any folder of images, about 20 minutes (--minutes N for another time)
  pcp train --extend runs/photos --minutes 30 train it further
  pcp train --resume runs/photos              go on where a run was stopped
  pcp eval knn runs/photos                    measure its features
  pcp eval tsne runs/photos                   make a picture of them
  pcp report runs/photos                      see what it learned, as a page
  pcp serve runs/photos --open                explore it, and decide what belongs
  pcp embed runs/photos NEW/ --out emb.npy    a row of numbers per image
  pcp cluster emb.npy --out sorted            clusters of any embeddings; a folder each with --folders link
  pcp purify emb.npy --labels l.csv --out p   which images may not belong, which labels are wrong
  pcp assign runs/photos NEW/                 which clusters do new images belong to
  pcp neighbours runs/photos NEW.jpg          the images most like it
  pcp duplicates PHOTOS/                      what is there twice, without training
  pcp look PHOTOS/                            what is broken, blurred, dark, odd, there twice
  pcp detect train runs/photos --voc VOC --out runs/det   build a detector on it
  pcp export runs/photos --to onnx            take the network elsewhere
  pcp check runs/photos                       are all its files whole
  pcp data check PHOTOS/                      see what is there and what is broken
  pcp data fetch cifar10 --data-dir DATA      download CIFAR-10
  pcp data in100 IMAGENET/ --out DATA/in100   make the paper's ImageNet-100
  pcp reproduce table5 --data-dir DATA        run the paper's comparison of all systems"
)]
struct Cli {
    /// Neither use nor write the cache of shrunk photographs (in the user's cache folder; the variable PCP_CACHE names another, or `off`)
    #[arg(long, global = true)]
    no_cache: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Train a network on images, or go on with a run
    Train(Box<train::Args>),
    /// Measure the features of a run
    #[command(subcommand)]
    Eval(eval::Verb),
    /// Train, measure and use an object detector on the network of a run
    #[command(subcommand)]
    Detect(detect::Verb),
    /// Write a page about runs: what was learned, which images may not belong
    Report(report::ReportArgs),
    /// Open a page on this machine: watch runs, explore their images, decide what belongs
    Serve(serve::ServeArgs),
    /// Embed images with a trained network
    Embed(embed::EmbedArgs),
    /// Cluster any embeddings: tables, a page, a folder per cluster
    Cluster(cluster::ClusterArgs),
    /// Purify clusters of any embeddings: what does not belong, which labels are probably wrong
    Purify(Box<purify::PurifyArgs>),
    /// Say which of a run's purified clusters new images belong to
    Assign(search::AssignArgs),
    /// Find the images of a run that are most like one
    Neighbours(search::NeighboursArgs),
    /// Find copies of pictures, or near duplicates in embeddings
    Duplicates(search::DuplicatesArgs),
    /// Look at a folder of pictures: what is broken, blurred, dark, odd, there twice
    Look(look::LookArgs),
    /// Write a network for PyTorch, onnxruntime and others
    Export(export::ExportArgs),
    /// Say whether all files of a run folder are whole
    Check(check::CheckRunArgs),
    /// Look at data sets, download them, or make the paper's
    #[command(subcommand)]
    Data(data::DataVerb),
    /// Run the paper's tables, cell by cell
    Reproduce(Box<reproduce::Args>),
    /// Measure this machine
    #[command(subcommand)]
    Bench(bench::Verb),
}

/// The command line after the program's name; the run folder remembers it.
static WORDS: OnceLock<Vec<String>> = OnceLock::new();

/// Parses the command line, whose first word is the program's name, does what it says, and reports errors as one `error:` and one `hint:`.
/// Returns the exit code. To be called once in a process.
pub fn main(words: impl IntoIterator<Item = OsString>) -> u8 {
    let words: Vec<OsString> = words.into_iter().collect();
    let _ = WORDS.set(words.iter().skip(1).map(pcp_core::io::names::of).collect());
    let stop = Cancel::default();
    let (asked, first) = (stop.clone(), OnceLock::new());
    // The first Ctrl-C, or closing the terminal, asks everything to stop and save; the second quits at once. A terminal that is closed sends
    // its signal more than once.
    let unheard = hangup::is_ignored();
    let handler = ctrlc::set_handler(move || match asked.request() {
        true if first.get_or_init(Instant::now).elapsed() > Duration::from_millis(500) => std::process::exit(130),
        true => {}
        false => {
            first.get_or_init(Instant::now);
            if together::speaks() {
                say("stopping; press Ctrl-C again to quit at once");
            }
        }
    });
    if unheard {
        hangup::ignore();
    }
    // The signal by which SLURM warns before the time of a job is over.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGUSR1, stop.flag());
    let parsed = help::command().try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches));
    let outcome = match parsed {
        Ok(cli) => match handler {
            Ok(()) => {
                if cli.no_cache {
                    pcp::data::pixel_cache::disable();
                }
                let done = catch_unwind(AssertUnwindSafe(|| run(cli.verb, &stop)));
                let done = done.unwrap_or_else(|p| Err(panicked(p.as_ref())));
                // Where several processes work together, one that fails ends here.
                done.as_ref().err().into_iter().for_each(together::fail);
                done
            }
            Err(e) => Err(Error::usage(format!("cannot listen for Ctrl-C: {e}"), "run it from an ordinary shell")),
        },
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            // A closed pipe (`pcp --help | head`) is no failure.
            let _ = e.print();
            return 0;
        }
        Err(e) => Err(help::usage(&e)),
    };
    let code = match outcome {
        Ok(()) => 0,
        Err(e) if !together::speaks() => e.exit_code(),
        Err(e) => {
            tell(&e);
            e.exit_code()
        }
    };
    together::end();
    code
}

/// Prints an error and its remedy.
fn tell(e: &Error) {
    // A stop that was asked for is no error.
    let kind = if e.kind == Kind::Stopped { "" } else { "error: " };
    say(&format!("{kind}{}", one_line(&flags::flags(&e.message))));
    say(&format!("hint: {}", one_line(&flags::flags(&e.hint))));
}

/// The command line after the program's name.
fn words() -> impl Iterator<Item = String> {
    WORDS.get().into_iter().flatten().cloned()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn run(verb: Verb, stop: &Cancel) -> Result<()> {
    match verb {
        Verb::Train(args) => train::run(*args, stop),
        Verb::Eval(verb) => eval::run(verb, stop),
        Verb::Detect(verb) => detect::run(verb, stop),
        Verb::Report(args) => report::run(&args, stop),
        Verb::Serve(args) => serve::run(&args, stop),
        Verb::Embed(args) => embed::run(&args, stop),
        Verb::Cluster(args) => cluster::run(&args, stop),
        Verb::Purify(args) => purify::run(&args, stop),
        Verb::Assign(args) => search::assign(&args, stop),
        Verb::Neighbours(args) => search::neighbours(&args, stop),
        Verb::Duplicates(args) => search::duplicates(&args, stop),
        Verb::Look(args) => look::run(&args, stop),
        Verb::Export(args) => export::run(&args, stop),
        Verb::Check(args) => check::run(&args, stop),
        Verb::Data(verb) => data::run(verb, stop),
        Verb::Reproduce(args) => reproduce::run(*args, stop),
        Verb::Bench(verb) => bench::run(verb, stop),
    }
}

/// Sets how many threads work; 0 for all cores, of which every one of `processes` on this machine has a part.
fn use_threads_of(threads: usize, processes: usize) -> Result<()> {
    // Those that this process may use: a part of the machine's, where its starter has divided them already.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = (together::cores_of_machine().unwrap_or(cores) / processes.max(1)).max(1);
    use_threads(if threads == 0 && processes > 1 { cores.min(share) } else { threads })
}

/// Sets how many threads work; 0 for all cores.
fn use_threads(threads: usize) -> Result<()> {
    const MOST: usize = 1024;
    if threads > MOST {
        return Err(Error::usage(
            format!("--threads is {threads}"),
            format!("give at most {MOST}, or leave it out for all cores"),
        ));
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .map_err(|e| Error::usage(format!("cannot use {threads} threads: {e}"), "try fewer --threads"))
}
