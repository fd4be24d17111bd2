//! `pcp detect eval`.

use super::read_voc;
use crate::eval::keep;
use crate::progress::bar;
use crate::table;
use crate::train::absolute;
use pcp::detect::ap::{Scores, score};
use pcp::detect::find::find_all;
use pcp::detect::settings::read_detector;
use pcp::run::{DETECTION, RunFolder};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use serde::Serialize;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pcp detect eval runs/det                                           on the test images of the devkit it was trained on
  pcp detect eval runs/det --voc VOCdevkit/VOC2007 --json
  pcp detect eval runs/det --set trainval --limit 12                 on images it has learned from

AP is at IoU 0.5, by eleven points (VOC 2007, the paper's) and by all points. Difficult objects do not count.")]
pub struct Args {
    /// A detector's run folder
    run: PathBuf,
    /// Images with boxes [default: those it was trained on]
    #[arg(long, value_name = "DIR")]
    voc: Option<PathBuf>,
    /// Image set
    #[arg(long, default_value = "test", value_name = "NAME")]
    set: String,
    /// The first N images only
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// What is kept of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    scores: Scores,
    voc: String,
    set: String,
    images: usize,
    weights: String,
    settings: String,
    seconds: f64,
}

pub fn run(args: &Args, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.threads)?;
    let run = RunFolder::open_as(&DETECTION, &args.run)?;
    super::check_limit(args.limit)?;
    let report = measure(&run, args.voc.as_deref(), &args.set, args.limit.unwrap_or(0), args.json, stop)?;
    if args.json {
        return crate::print_json(&report);
    }
    let percent = |value: Option<f64>| value.map_or("    -".into(), |v| format!("{v:5.1}"));
    let mut rows = vec![(String::new(), "11-point   all-point   objects".to_string())];
    for class in &report.scores.classes {
        let line = format!("{}      {}       {}", percent(class.ap11), percent(class.ap), class.objects);
        rows.push((class.class.clone(), line));
    }
    let (map11, map) = (percent(Some(report.scores.map11)), percent(Some(report.scores.map)));
    rows.push(("mean (mAP)".into(), format!("{map11}      {map}       ({} images)", report.images)));
    crate::print(&format!("{}  ({}; image set {})", table::columns(&rows), report.settings, report.set))
}

/// Measures, and keeps the report in the run's folder as `eval/<set>.json`; of other images than those beside which it was
/// trained as `eval/<set>-<folder>.json`, of the first few as `eval/<set>-first<limit>.json`.
pub(crate) fn measure(
    run: &RunFolder,
    voc: Option<&Path>,
    set: &str,
    limit: usize,
    quiet: bool,
    stop: &Cancel,
) -> Result<Report> {
    let started = Instant::now();
    if Path::new(set).file_name() != Some(OsStr::new(set)) {
        return Err(Error::usage(format!("--set is {set}"), "give the name of a file of ImageSets/Main, without .txt"));
    }
    let (settings, detector, weights, file) = read_detector(run)?;
    let root = voc.unwrap_or(Path::new(&settings.voc));
    let data = Arc::new(read_voc(root, set, &settings.classes, limit, quiet, stop)?);
    let shown = bar("finding", quiet);
    shown.set_length(data.items.len() as u64);
    let detector = Arc::new(detector);
    let found = find_all(&detector, &weights, &data, settings.search(), stop, &|n| shown.inc(n as u64))?;
    shown.finish_and_clear();
    let truth: Vec<_> = data.items.iter().map(|item| item.objects.clone()).collect();
    let report = Report {
        scores: score(&found, &truth, &settings.classes),
        voc: root.display().to_string(),
        set: set.into(),
        images: data.items.len(),
        weights: file,
        settings: settings.summary(),
        seconds: started.elapsed().as_secs_f64(),
    };
    let mut name = set.to_string();
    if voc.is_some_and(|voc| absolute(voc) != absolute(Path::new(&settings.voc))) {
        name += &format!("-{}", absolute(root).file_name().unwrap_or_default().to_string_lossy());
    }
    if limit > 0 {
        name += &format!("-first{limit}");
    }
    keep(run, &format!("{name}.json"), &report)?;
    Ok(report)
}
