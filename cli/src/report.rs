//! `pcp report`.

use super::progress;
use clap::Parser;
use pcp::data::Dataset;
use pcp::report::{Limits, View, look, page, steps};
use pcp::run::RunFolder;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Kind, Result};
use pcp_core::io::atomic::write_bytes;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Parser)]
#[command(after_help = "\
Examples:
  pcp report runs/photos                                 writes runs/photos/report.html
  pcp report runs/a runs/b --out compared.html           two runs side by side
  pcp report runs/photos --max-images 0                  no thumbnails: a small file that shows no picture")]
pub struct Args {
    /// Run folders, finished or not
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The page [default: report.html in the run folder; of several runs, here]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Thumbnails at the most
    #[arg(long, value_name = "N", default_value_t = Limits::IMAGES, allow_negative_numbers = true)]
    max_images: usize,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: &Args, stop: &Cancel) -> Result<()> {
    super::use_threads(args.threads)?;
    let runs = args.runs.iter().map(|path| RunFolder::open(path)).collect::<Result<Vec<_>>>()?;
    let out = match (&args.out, &runs[..]) {
        (Some(out), _) => out.clone(),
        (None, [run]) => run.file("report.html"),
        (None, _) => "report.html".into(),
    };
    let limits = Limits::shared(args.max_images, runs.len());
    let mut views = Vec::new();
    // One after the other: the images of one run at a time are in memory.
    for run in &runs {
        let images =
            run.read_config().and_then(|(config, _)| progress::read_images(config.load_request()?, args.quiet, stop));
        views.push(view(run, images.map(Arc::new), limits, args.quiet, stop)?);
    }
    // Runs of one name are told apart by their paths.
    let names: BTreeSet<String> = views.iter().map(|view| view.name().to_string()).collect();
    if names.len() < views.len() {
        views =
            views.into_iter().zip(&runs).map(|(view, run)| view.renamed(&run.path().display().to_string())).collect();
    }
    let bytes = write(&out, &views)?;
    if args.quiet {
        return Ok(());
    }
    super::print(&format!("{} ({}); open it in a browser", out.display(), super::table::bytes(bytes as f64)))
}

/// Looks at a run on the pool, so that a stop need not wait.
fn view(run: &RunFolder, images: Result<Arc<Dataset>>, limits: Limits, quiet: bool, stop: &Cancel) -> Result<View> {
    if let Err(e) = &images
        && e.kind == Kind::Stopped
    {
        return Err(e.clone());
    }
    let run = run.clone();
    let shown = progress::bar("map", quiet);
    shown.set_length(steps() as u64);
    let seen = shown.clone();
    let view = stop.run(move || look(&run, images, limits, &mut |done| seen.set_position(done as u64)));
    shown.finish_and_clear();
    view?
}

fn write(out: &Path, views: &[View]) -> Result<usize> {
    if out.is_dir() {
        return Err(Error::usage(format!("{} is a folder", out.display()), "give --out the name of a file"));
    }
    let page = page(views)?;
    write_bytes(out, page.as_bytes())?;
    Ok(page.len())
}

/// The report of a run that has just ended, in its folder; `images` are what it learned from.
pub fn at_the_end(run: &RunFolder, images: Arc<Dataset>, quiet: bool, stop: &Cancel) -> Result<PathBuf> {
    let out = run.file("report.html");
    let view = view(run, Ok(images), Limits::shared(Limits::IMAGES, 1), quiet, stop)?;
    write(&out, &[view])?;
    Ok(out)
}
