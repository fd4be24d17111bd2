//! `pcp detect predict`.

use crate::progress::bar;
use pcp::data::decode;
use pcp::data::folder::list;
use pcp::detect::ap::Detection;
use pcp::detect::find::find;
use pcp::detect::settings::read_detector;
use pcp::picture::{Boxed, boxed};
use pcp::run::{DETECTION, RunFolder};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder_atomic, require_empty, write_bytes};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// A detection as COCO's results have it, with names.
#[derive(Serialize)]
struct Found {
    image_id: u64,
    category_id: usize,
    bbox: [f32; 4],
    score: f32,
    file_name: String,
    category: String,
}

impl Found {
    fn new(d: &Detection, image_id: u64, file: &Path, classes: &[String]) -> Found {
        let [left, top, right, bottom] = d.bounds;
        Found {
            image_id,
            category_id: d.class + 1,
            bbox: [left, top, right - left, bottom - top],
            score: d.score,
            file_name: file.display().to_string(),
            category: classes[d.class].clone(),
        }
    }
}

/// The box of a detection, with its class and score for a caption.
fn captioned(d: &Detection, classes: &[String]) -> Boxed {
    let text = format!("{} {:.2}", classes[d.class], d.score);
    Boxed { bounds: d.bounds, text, group: (d.class, classes.len()) }
}

pub fn run(args: &Args, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.threads)?;
    if !(0.0..=1.0).contains(&args.score) {
        return Err(Error::usage(format!("--score is {}", args.score), "give a number from 0 to 1"));
    }
    let run = RunFolder::open_as(&DETECTION, &args.run)?;
    let (settings, detector, weights, _) = read_detector(&run)?;
    let (detector, search) = (Arc::new(detector), settings.search());
    let files = photographs(&args.images)?;
    let (ids, names) = (numbers(&files), picture_names(&files));
    require_empty(&args.out)?;
    let shown = bar("finding", args.json);
    shown.set_length(files.len() as u64);
    let (mut all, mut drawn, mut broken) = (Vec::new(), 0, 0);
    let made = make_folder_atomic(&args.out, |out| {
        for ((file, id), name) in files.iter().zip(ids).zip(&names) {
            let (detector, weights, path) = (detector.clone(), weights.clone(), file.clone());
            let looked = stop.run(move || {
                let image = decode::file(&path)?;
                let found = find(&detector, &weights, &image, &search);
                Ok::<_, String>((image, found))
            })?;
            shown.inc(1);
            match looked {
                Ok((image, found)) => {
                    let likely = found.iter().filter(|d| d.score >= args.score);
                    let boxes: Vec<Boxed> = likely.map(|d| captioned(d, &settings.classes)).collect();
                    drawn += boxes.len();
                    write_bytes(&out.join(name), &boxed(image.width, image.height, image.pixels, &boxes)?)?;
                    all.extend(found.iter().map(|d| Found::new(d, id, file, &settings.classes)));
                }
                Err(why) => {
                    shown.suspend(|| eprintln!("warning: {} is left out: {why}", file.display()));
                    broken += 1;
                }
            }
        }
        if broken == files.len() {
            return Err(Error::data(
                "none of the photographs can be read",
                "give images that pcp data check finds sound",
            ));
        }
        let text = serde_json::to_string(&all).map_err(|e| Error::file(e.to_string(), "please report this"))?;
        write_bytes(&out.join("detections.json"), format!("{text}\n").as_bytes())
    });
    shown.finish_and_clear();
    made?;
    if args.json {
        return crate::print_json(&all);
    }
    crate::print(&format!(
        "  {} photographs, {drawn} objects of score {} or more drawn; all {} are in {}",
        files.len() - broken,
        args.score,
        all.len(),
        args.out.join("detections.json").display()
    ))
}

/// The files, and those below the folders, by name.
fn photographs(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let listed = given.iter().map(|path| list(path)).collect::<Result<Vec<_>>>()?;
    Ok(listed.into_iter().flatten().map(|found| found.path).collect())
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The numbers that the files are named by; where one has none, or two have the same, their places from 1.
fn numbers(files: &[PathBuf]) -> Vec<u64> {
    let named: Vec<u64> = files.iter().filter_map(|f| stem(f).parse().ok()).collect();
    let distinct: BTreeSet<&u64> = named.iter().collect();
    if distinct.len() == files.len() { named } else { (1..=files.len() as u64).collect() }
}

/// A name for every picture; files of the same name in different folders get their places.
fn picture_names(files: &[PathBuf]) -> Vec<String> {
    let stems: Vec<String> = files.iter().map(|f| stem(f)).collect();
    let distinct: BTreeSet<&String> = stems.iter().collect();
    let plain = distinct.len() == stems.len();
    let name =
        |(i, stem): (usize, &String)| if plain { format!("{stem}.png") } else { format!("{}-{stem}.png", i + 1) };
    stems.iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_numbered_by_their_names_where_they_can_be() {
        let files = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(numbers(&files(&["a/000012.jpg", "7.png"])), [12, 7]);
        assert_eq!(numbers(&files(&["a/12.jpg", "b/012.jpg"])), [1, 2]);
        assert_eq!(numbers(&files(&["cat.jpg", "7.png"])), [1, 2]);
        assert_eq!(picture_names(&files(&["a/1.jpg", "b/2.jpg"])), ["1.png", "2.png"]);
        assert_eq!(picture_names(&files(&["a/1.jpg", "b/1.jpg"])), ["1-1.png", "2-1.png"]);
    }
}
