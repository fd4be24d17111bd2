//! `pcp detect eval`.

use crate::{progress, table};
use pcp::jobs::{DetectEvalOptions, detect_eval};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

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

pub fn run(args: &Args, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.threads)?;
    let options = DetectEvalOptions {
        voc: args.voc.clone(),
        set: args.set.clone(),
        limit: args.limit,
        ..DetectEvalOptions::new(&args.run)
    };
    let report = detect_eval(&options, &progress::job(args.json, stop))?;
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
