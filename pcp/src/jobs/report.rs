//! A page about runs.

use super::images::read;
use super::part::on_pool;
use crate::data::Dataset;
use crate::observe::Observer;
use crate::report::{PageLimits, PageSection, page, run_section, steps};
use crate::run::RunFolder;
use pcp_core::error::{Error, Kind, Result};
use pcp_core::io::atomic::{remove_litter, write_bytes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which runs the page is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportOptions {
    /// Run folders, finished or not.
    pub runs: Vec<PathBuf>,
    /// The page; otherwise report.html in the run folder, or of several runs in the current folder.
    pub out: Option<PathBuf>,
    /// Thumbnails at the most.
    pub max_images: usize,
}

impl ReportOptions {
    /// A page about `runs`.
    pub fn new(runs: Vec<PathBuf>) -> Self {
        ReportOptions { runs, out: None, max_images: PageLimits::IMAGES }
    }
}

/// A page that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportResult {
    /// The page.
    pub out: PathBuf,
    /// Its size.
    pub bytes: usize,
    /// What is not on it, and why; also on the page.
    pub notes: Vec<String>,
}

/// Writes a page about runs.
pub fn report(options: &ReportOptions, observer: &Arc<dyn Observer>) -> Result<ReportResult> {
    let runs = options.runs.iter().map(|path| RunFolder::open(path)).collect::<Result<Vec<_>>>()?;
    let out = match (&options.out, &runs[..]) {
        (_, []) => return Err(Error::usage("there is no run to report on", "give one run folder or more")),
        (Some(out), _) => out.clone(),
        (None, [run]) => run.file("report.html"),
        (None, _) => "report.html".into(),
    };
    let limits = PageLimits::shared(options.max_images, runs.len());
    let mut views = Vec::new();
    // One after the other: the images of one run at a time are in memory.
    for run in &runs {
        let images = run.read_config().and_then(|(config, _)| read(config.load_request()?, observer));
        views.push(view(run, images.map(Arc::new), limits, observer)?);
    }
    // Runs of one name are told apart by their paths.
    let names: BTreeSet<String> = views.iter().map(|view| view.name().to_string()).collect();
    if names.len() < views.len() {
        let named = views.into_iter().zip(&runs);
        views = named.map(|(view, run)| view.renamed(&run.path().display().to_string())).collect();
    }
    write(&out, &views)
}

/// Writes the page of a run that has just ended into its folder; `images` are those it learned from.
pub(crate) fn report_at_end(
    run: &RunFolder,
    images: Arc<Dataset>,
    observer: &Arc<dyn Observer>,
) -> Result<ReportResult> {
    let view = view(run, Ok(images), PageLimits::shared(PageLimits::IMAGES, 1), observer)?;
    write(&run.file("report.html"), &[view])
}

fn view(
    run: &RunFolder,
    images: Result<Arc<Dataset>>,
    limits: PageLimits,
    observer: &Arc<dyn Observer>,
) -> Result<PageSection> {
    if let Err(e) = &images
        && e.kind == Kind::Stopped
    {
        return Err(e.clone());
    }
    let run = run.clone();
    on_pool("map", steps(), observer, move |part| {
        run_section(&run, images, limits, &mut |done| part.step(done, steps()))
    })
}

fn write(out: &Path, views: &[PageSection]) -> Result<ReportResult> {
    if out.is_dir() {
        return Err(Error::usage(format!("{} is a folder", out.display()), "give `out` the name of a file"));
    }
    let page = page(views)?;
    remove_litter(out);
    write_bytes(out, page.as_bytes())?;
    let notes = views.iter().flat_map(PageSection::notes).collect();
    Ok(ReportResult { out: out.to_path_buf(), bytes: page.len(), notes })
}
