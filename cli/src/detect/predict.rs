//! `pcp detect predict`.

use crate::progress;
use pcp::jobs::{DetectPredictOptions, detect_predict};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  pcp detect predict runs/det PHOTO.jpg --out found
  pcp detect predict runs/det PHOTOS/ --score 0.7 --out found

Writes a picture with boxes for every photograph, and detections.json with all that was found, in COCO's results format (image_id,
category_id from 1 in the order of the classes, bbox as left, top, width, height, score) with the names of file and class.
image_id is the number that a file is named by, where all are; otherwise it counts the photographs from 1.")]
pub struct Args {
    /// A detector's run folder
    run: PathBuf,
    /// Photographs, or folders of them at any depth
    #[arg(required = true, value_name = "IMAGES")]
    images: Vec<PathBuf>,
    /// Where pictures and detections.json go
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Draw what is at least as likely as this
    #[arg(long, default_value_t = 0.5, allow_negative_numbers = true)]
    score: f32,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print all detections as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.threads)?;
    let options =
        DetectPredictOptions { score: args.score, ..DetectPredictOptions::new(&args.run, &args.images, &args.out) };
    let found = detect_predict(&options, &progress::job(args.json, stop))?;
    if args.json {
        return crate::print_json(&found.detections);
    }
    crate::print(&format!(
        "  {} photographs, {} objects of score {} or more drawn; all {} are in {}",
        found.photographs,
        found.drawn,
        args.score,
        found.detections.len(),
        found.file.display()
    ))
}
