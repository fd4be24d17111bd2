//! `pcp eval heatmap`.

use super::Common;
use crate::progress::bar;
use crate::table;
use clap::Args;
use pcp::evaluate::heatmap::{HeatInBoxes, Picture, SHOWN, heat_in_boxes, overlay, write_png};
use pcp::model::{Model, WhichWeights};
use pcp::run::RunFolder;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::make_folder;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp eval heatmap runs/photos --images a.jpg b.jpg            overlays in runs/photos/eval/heat
  pcp eval heatmap runs/c10 --images *.png --snapshots all     one picture per snapshot (train with --snapshots N)
  pcp eval heatmap runs/c10 --images VOC2007/JPEGImages/*.jpg --boxes VOC2007    share of the heat inside the boxes")]
pub struct Heatmap {
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

#[derive(Serialize)]
struct Report {
    images: usize,
    pictures: String,
    states: Vec<HeatInBoxes>,
}

pub fn run(args: &Heatmap, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.common.threads)?;
    let run = RunFolder::open(&args.run)?;
    let (config, _) = run.read_config()?;
    let model = Model::of_run(&run, WhichWeights::best(args.common.best))?;
    let augmenter = config.augmenter();
    let mut pictures =
        args.images.iter().map(|path| Picture::read(path, args.boxes.as_deref())).collect::<Result<Vec<_>>>()?;
    if let Some(voc) = args.boxes.as_ref().filter(|_| pictures.iter().all(|picture| picture.annotation.is_none())) {
        let message = format!("{} has no annotation of any of these images", voc.join("Annotations").display());
        return Err(Error::data(message, "give images of that folder, or leave --boxes out"));
    }
    let names: BTreeSet<&String> = pictures.iter().map(|picture| &picture.name).collect();
    if names.len() < pictures.len() {
        // Files of one name in several folders.
        pictures.iter_mut().enumerate().for_each(|(i, picture)| picture.name = format!("{}-{}", i + 1, picture.name));
    }
    let mut states = match args.snapshots {
        Some(_) => Model::snapshots_of(&run)?,
        None => Vec::new(),
    };
    if args.snapshots.is_some() && states.is_empty() {
        return Err(Error::usage(
            format!("{} has no snapshots", run.path().display()),
            "train with --snapshots N, or leave out --snapshots",
        ));
    }
    states.push(model);
    let out = args.out.clone().unwrap_or_else(|| run.file("eval").join("heat"));
    make_folder(&out)?;
    let bar = bar("heat maps", args.common.json);
    bar.set_length((states.len() * pictures.len()) as u64);
    let mut seen = Vec::new();
    for state in &states {
        let stem =
            Path::new(&state.file_name()).file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        seen.push(heat_in_boxes(state, &pictures, &augmenter, &mut |picture, heat| {
            stop.check()?;
            bar.inc(1);
            let shown = overlay(&picture.square(&augmenter, SHOWN), heat);
            write_png(&out.join(format!("{}-{stem}.png", picture.name)), &shown)
        })?);
    }
    bar.finish_and_clear();
    let report = Report { images: pictures.len(), pictures: out.display().to_string(), states: seen };
    super::keep(&run, "heat.json", &report)?;
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
