//! `pcp train`.

use super::data::offer;
use super::progress::{self, Progress};
use super::{report as pages, table};
use clap::Parser;
use pcp::config::{Config, DATA_PRESETS, Resolved, SettingsLayer as Layer, System, is_system, preset};
use pcp::data::{self, Source};
use pcp::model::Network;
use pcp::observe::{Observer, Silent};
use pcp::run::{About, RunFolder, RunResult, resumed_settings};
use pcp::train::{Setup, State, forecast, setup, train};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Kind, Result, listed};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
pub(super) const REVISION: &str = env!("PCP_REVISION");

#[derive(Parser)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp train                                                  bundled photographs, a few minutes
  pcp train PHOTOS/ --out runs/photos                        a folder; class folders give labels for the kNN probe
  pcp train cifar10 --data-dir DATA --epochs 200             the paper's setting
  pcp train cifar10 --data-dir DATA --limit 10000 --width 16 --epochs 40 --clusters 200
  pcp train PHOTOS/ --preset moco --set moco.queue=4096      another system, any setting
  pcp train --resume runs/photos                             go on where it was stopped
  pcp train PHOTOS/ --dry-run                                what would it take?

Systems (--preset): pcp (default), pcp-nowarm, pcp-paper, pcp-release, pc, pc-cpr, dc, ir, is, and, and-oneoff, la,
deepcluster, moco, moco2, supervised, random. Data: bundled, folder, idx, cifar10, cifar100, in100, cub200.
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
    /// Write no report.html at the end
    #[arg(long)]
    no_report: bool,
    /// Show no progress: only warnings, errors and the result
    #[arg(long, short)]
    quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The flags as config layers, in the order in which they win.
    fn overrides(&self) -> Result<Vec<Layer>> {
        let mut layers: Vec<Layer> = self.set.iter().map(|s| Layer::assignment(s)).collect::<Result<_>>()?;
        let mut integer = |flag: &str, path: &str, value: Option<i64>| {
            layers.extend(value.map(|v| Layer::flag(flag, path, v)));
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
        layers.extend(self.gamma.map(|v| Layer::flag("--gamma", "purify.gamma", v)));
        layers.extend(self.save_minutes.map(|v| Layer::flag("--save-minutes", "run.save_minutes", v)));
        layers.extend(self.cache.as_ref().map(|v| Layer::flag("--cache", "data.cache", v.as_str())));
        layers.extend(self.strict.then(|| Layer::flag("--strict", "data.strict", true)));
        layers.extend(self.arch.as_ref().map(|v| Layer::flag("--arch", "network.arch", v.as_str())));
        if let Some(clusters) = &self.clusters {
            let value = clusters.parse::<i64>().map(toml::Value::from).unwrap_or_else(|_| clusters.as_str().into());
            layers.push(Layer::flag("--clusters", "clusters.floor", value));
        }
        if let Some(dir) = &self.data_dir {
            layers.push(Layer::flag("--data-dir", "data.dir", absolute(Path::new(dir)).display().to_string()));
        }
        if let Some(file) = &self.init_from {
            layers.push(Layer::flag("--init-from", "train.init_from", absolute(file).display().to_string()));
        }
        if let Some(limit) = self.limit.filter(|n| *n < 2) {
            return Err(Error::usage(
                format!("--limit is {limit}"),
                "give it 2 or more, or leave it out for all images",
            ));
        }
        Ok(layers)
    }
}

pub fn run(args: Args, stop: &Cancel) -> Result<()> {
    super::use_threads(args.threads)?;
    if args.dry_run {
        return dry_run(&args, stop);
    }
    let (run, result) = execute(&args, command(std::env::args().skip(1)), stop)?;
    report(&args, &run, &result)
}

/// Trains as `args` say, or goes on; `command` is what the run folder tells of its making. Leaves the threads as they are.
pub(super) fn execute(args: &Args, command: String, stop: &Cancel) -> Result<(RunFolder, RunResult)> {
    let (setup, state, progress) = match &args.resume {
        Some(path) => match resume(args, path, stop)? {
            Some(prepared) => prepared,
            None => return finished(args, path),
        },
        None => begin(args, command, stop)?,
    };
    let result = train(&setup, state);
    progress.done();
    let result = result?;
    setup.run.log(&table::result(&result));
    // The run is done and saved: a page that cannot be written, or that is not waited for, takes nothing from it.
    if !args.no_report
        && let Err(e) = pages::at_the_end(&setup.run, setup.plan.dataset.clone(), args.quiet, stop)
    {
        let warning =
            format!("warning: there is no report: {}; try: pcp report {}", e.message, setup.run.path().display());
        setup.run.log(&warning);
        eprintln!("{warning}");
    }
    Ok((setup.run, result))
}

fn report(args: &Args, run: &RunFolder, result: &RunResult) -> Result<()> {
    if args.json {
        return super::print_json(result);
    }
    let page = run.file("report.html");
    let look = if page.exists() { format!("; open {} in a browser", page.display()) } else { String::new() };
    super::print(&format!("\n{}\n  everything is in {}{look}", table::result(result), run.path().display()))
}

/// A run that has a result: says so.
fn finished(args: &Args, path: &Path) -> Result<(RunFolder, RunResult)> {
    let run = RunFolder::open(path)?;
    match run.read_result()? {
        Some(result) => {
            if !args.quiet {
                eprintln!("{} is finished; this is its result", run.path().display());
            }
            Ok((run, result))
        }
        None => Err(Error::file("the result is gone", "run it again with --resume")),
    }
}

/// The path as it holds from any folder.
pub(super) fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// The source as it holds from any folder, so that a run can go on from anywhere.
fn lasting(source: Source) -> Source {
    match source {
        Source::Folder(path) => Source::Folder(absolute(&path)),
        Source::Idx(path) => Source::Idx(absolute(&path)),
        other => other,
    }
}

type Prepared = (Setup, State, Arc<Progress>);

/// The presets that were named or implied for images from `source`, and the settings that come of everything given.
pub(super) fn asked(args: &Args, source: &Source) -> Result<(Vec<String>, Config)> {
    let data_preset = match source {
        Source::Bundled => "bundled",
        Source::Cifar10 => "cifar10",
        Source::Cifar100 => "cifar100",
        Source::Folder(_) => "folder",
        Source::Idx(_) => "idx",
    };
    // A named data preset takes the place of the one that the data implies.
    let named = args.preset.iter().any(|p| DATA_PRESETS.contains(&p.as_str()));
    let mut names: Vec<String> = (!named).then(|| data_preset.to_string()).into_iter().collect();
    names.extend(args.preset.iter().cloned());
    // Settings of one would stay under the name of the other.
    let mut systems = names.iter().filter(|name| is_system(name));
    if let Some(first) = systems.next()
        && let Some(second) = systems.find(|name| *name != first)
    {
        let message = format!("--preset {first} and --preset {second} are two systems");
        return Err(Error::usage(message, "give one of them; single settings are changed with --set KEY=VALUE"));
    }
    // A system's own settings win over those of its data, in whatever order they are named.
    names.sort_by_key(|name| !DATA_PRESETS.contains(&name.as_str()));
    let mut layers = names.iter().map(|n| preset(n)).collect::<Result<Vec<_>>>()?;
    layers.push(Layer::flag("DATA", "data.source", source.to_string()));
    layers.extend(args.overrides()?);
    let config = Config::from_layers(&layers)?;
    for set in &args.set {
        if let Some((name, owner)) = System::owner_of(set.split(['.', '=']).next().unwrap_or_default().trim())
            && owner != config.method.system
        {
            let message = format!("--set {set} is a setting of {name}, and this is another system");
            return Err(Error::usage(message, format!("leave it out, or give --preset {name}")));
        }
    }
    Ok((names, config))
}

/// Says what a run would take.
fn dry_run(args: &Args, stop: &Cancel) -> Result<()> {
    let (_, config, dataset) = read(args, stop)?;
    // A place for what the trial needs to be, which goes with it.
    let place = std::env::temp_dir().join(format!("pcp-dry-run-{}", std::process::id()));
    let run = RunFolder::create(&place, false)?;
    let outcome = (|| {
        let about = About { presets: args.preset.clone(), ..About::default() };
        let schedule = config.schedule(dataset.train.images.len())?;
        let progress = Progress::new(args.quiet || args.json, &schedule, dataset.train.images.len(), &run, stop);
        let setup = Setup::new(config, dataset, run, about, Arc::new(Silent(stop.clone())))?;
        plan(&setup, &progress);
        // What is written is written before there are two threads.
        setup.initial()?;
        stop.run_beside(move || forecast(&setup))?
    })();
    let _ = std::fs::remove_dir_all(&place);
    let found = outcome?;
    if args.json { super::print_json(&found) } else { super::print(table::forecast(&found).trim_end()) }
}

/// Presets, resolved settings and images of a new run.
fn read(args: &Args, stop: &Cancel) -> Result<(Vec<String>, Resolved, data::Dataset)> {
    let source = lasting(Source::parse(args.data.as_deref().unwrap_or("bundled"))?);
    let (names, config) = asked(args, &source)?;
    source.check_dir(!config.data.dir.is_empty())?;
    if let Some(out) = &args.out {
        // Refuse before the images are read.
        if !args.overwrite && RunFolder::open(out).is_ok() {
            RunFolder::create(out, false)?;
        }
    }
    let dataset = match progress::read_images(config.load_request()?, args.quiet, stop) {
        Err(e) if e.kind == Kind::Data && offer(&source, Path::new(&config.data.dir), args.quiet, stop)? => {
            progress::read_images(config.load_request()?, args.quiet, stop)?
        }
        read => read?,
    };
    let config = config.resolve(&dataset)?;
    // Refuse before anything is written.
    let network = Network::new(&config.network, config.data.size)?;
    setup::check_room(&network, &config.train, dataset.train.images.len(), data::free_memory())?;
    if !config.train.init_from.is_empty() {
        let adopted = network.adopt(Path::new(&config.train.init_from), config.train.seed)?;
        if !args.quiet {
            eprintln!("begins with {}: {}", config.train.init_from, adopted.summary());
        }
    }
    Ok((names, config, dataset))
}

fn begin(args: &Args, command: String, stop: &Cancel) -> Result<Prepared> {
    let (names, config, dataset) = read(args, stop)?;
    let about = about(&dataset, names, command);
    let system = Path::new(about.system()).file_stem().map_or("pcp".into(), |s| s.to_string_lossy());
    let out = args.out.clone().unwrap_or_else(|| RunFolder::fresh_path(&dataset.name, &system));
    let run = RunFolder::begin(&out, args.overwrite, &config, &about, &dataset)?;
    let (setup, progress) = prepare(args, config, dataset, run, about, stop)?;
    let state = setup.begin()?;
    Ok((setup, state, progress))
}

/// The run in `path`, ready to go on; `None` when it is finished.
fn resume(args: &Args, path: &Path, stop: &Cancel) -> Result<Option<Prepared>> {
    let run = RunFolder::open(path)?;
    let (config, about) = run.read_config()?;
    let mut layers = vec![Layer::new("config.toml".into(), config.to_table())];
    for name in &args.preset {
        layers.push(preset(name)?);
    }
    if let Some(data) = &args.data {
        layers.push(Layer::flag("DATA", "data.source", lasting(Source::parse(data)?).to_string()));
    }
    layers.extend(args.overrides()?);
    let changed = Config::from_layers(&layers)?;
    let config = resumed_settings(config, &changed)?;
    if run.read_result()?.is_some() {
        return Ok(None);
    }
    let run = run.locked()?;
    let dataset = progress::read_images_again(&config, args.quiet, stop)?;
    let replaced = run.changed_files(&dataset);
    if dataset.fingerprint() != about.fingerprint {
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
    // A kill may have come between the settings and the list of files.
    run.write_files(&dataset)?;
    let (setup, progress) = prepare(args, config, dataset, run, about, stop)?;
    setup.warn_of_origin(VERSION, REVISION, &super::bench::cpu());
    let state = setup.restore()?;
    let p = &state.progress;
    if !replaced.is_empty() {
        let n = replaced.len();
        progress.say(&format!("{n} files have another size or time than when the run began, but the same pixels"));
    }
    progress.say(&format!("going on {}", p.place(setup.plan.config.train.rounds)));
    progress.resumed_at(p.metrics_lines as u32);
    Ok(Some((setup, state, progress)))
}

fn prepare(
    args: &Args,
    config: Resolved,
    dataset: data::Dataset,
    run: RunFolder,
    about: About,
    stop: &Cancel,
) -> Result<(Setup, Arc<Progress>)> {
    let schedule = config.schedule(dataset.train.images.len())?;
    let progress = Arc::new(Progress::new(args.quiet, &schedule, dataset.train.images.len(), &run, stop));
    let observer: Arc<dyn Observer> = progress.clone();
    let setup = Setup::new(config, dataset, run, about, observer)?;
    plan(&setup, &progress);
    progress.say(&format!("folder    {}", setup.run.path().display()));
    setup.warn_beforehand();
    Ok((setup, progress))
}

/// Says what the run will do.
fn plan(setup: &Setup, progress: &Progress) {
    let (config, data, network) = (&setup.plan.config, &setup.plan.dataset, &setup.network);
    let count = |labels: &Option<data::Labels>| labels.as_ref().map(|l| l.classes.len());
    let test = data.test.as_ref().map(|t| format!(", {} to test on", t.images.len())).unwrap_or_default();
    let use_of = if config.method.system == System::Supervised { "" } else { " (for evaluation only)" };
    let classes = count(&data.train.labels).map(|n| format!(", {n} classes{use_of}")).unwrap_or_default();
    progress.say(&format!("data      {}: {} images to learn from{test}{classes}", data.name, data.train.images.len()));
    progress.say(&format!(
        "network   {:?}, width {}, {} px, {:.1} M parameters",
        config.network.arch,
        config.network.width,
        network.size,
        network.parameter_count() as f64 / 1e6
    ));
    let trains = match config.train.rounds {
        0 => "nothing is trained".to_string(),
        _ => setup.method.describe(&setup.plan),
    };
    progress.say(&format!("system    {}: {trains}", setup.about.system()));
    progress.say(&format!(
        "schedule  {} x {} epochs of {} steps; seed {}",
        config.train.rounds,
        config.train.epochs,
        setup.method.steps(&setup.plan),
        config.train.seed
    ));
    let memory = setup.memory();
    let decoded = data.train.images.decoded_bytes() + data.test.as_ref().map_or(0, |t| t.images.decoded_bytes());
    let images = match data.train.images.held() {
        true => format!("images {}", table::bytes(memory[0])),
        false => format!("images none ({} decoded, ahead of every step)", table::bytes(decoded as f64)),
    };
    progress.say(&format!(
        "memory    about {}: {images}, bank and features {} ({} for every image more), network and a step {}; {} threads",
        table::bytes(memory.iter().sum()),
        table::bytes(memory[1]),
        table::bytes(setup.memory_per_image()),
        table::bytes(memory[2]),
        rayon::current_num_threads()
    ));
}

fn about(dataset: &data::Dataset, presets: Vec<String>, command: String) -> About {
    About {
        version: VERSION.into(),
        revision: REVISION.into(),
        cpu: super::bench::cpu(),
        command,
        data: dataset.name.clone(),
        fingerprint: dataset.fingerprint(),
        presets,
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
