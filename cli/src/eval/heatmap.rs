//! `pcp eval heatmap`.

use super::Common;
use crate::{progress, table};
use clap::Args;
use pcp::jobs::{EvalHeatmapOptions, HeatInBoxes, eval_heatmap};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp eval heatmap runs/photos --images a.jpg b.jpg            overlays in runs/photos/eval/heat
  pcp eval heatmap runs/c10 --images *.png --snapshots all     one picture per snapshot (train with --snapshots N)
  pcp eval heatmap runs/c10 --images VOC2007/JPEGImages/*.jpg --boxes VOC2007    share of the heat inside the boxes")]
pub struct EvalHeatmapArgs {
    /// A run folder
    run: PathBuf,
    /// Image files
    #[arg(long, num_args = 1.., required = true, value_name = "FILE")]
    images: Vec<PathBuf>,
    /// Also the snapshots along the way
    #[arg(long, value_name = "all", value_parser = ["all"])]
    snapshots: Option<String>,
    /// A VOC folder: its Annotations have the boxes
    #[arg(long, value_name = "VOC")]
    boxes: Option<PathBuf>,
    /// Where the pictures go [default: RUN/eval/heat]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

pub fn run(args: &EvalHeatmapArgs, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.common.threads)?;
    let options = EvalHeatmapOptions {
        snapshots: args.snapshots.is_some(),
        boxes: args.boxes.clone(),
        out: args.out.clone(),
        best: args.common.best,
        ..EvalHeatmapOptions::new(&args.run, &args.images)
    };
    let report = eval_heatmap(&options, &progress::job(args.common.json, stop))?;
    if args.common.json {
        return crate::print_json(&report);
    }
    let share = |s: &HeatInBoxes| match (s.inside, s.area) {
        (Some(inside), Some(area)) => {
            format!("{:.1} % of the heat in the boxes, which are {:.1} % of the area", inside * 100.0, area * 100.0)
        }
        _ => "no boxes".into(),
    };
    let rows: Vec<_> = report.states.iter().map(|s| (s.weights.clone(), share(s))).collect();
    crate::print(&format!("{}  {} pictures a state in {}", table::columns(&rows), report.images, report.pictures))
}
