//! Objects in photographs.

use crate::data::BadFile;
use crate::data::decode;
use crate::data::folder::list;
use crate::detect::ap::Detection;
use crate::detect::find::find;
use crate::detect::settings::read_detector;
use crate::jobs::part::JobPart;
use crate::observe::Observer;
use crate::picture::{Boxed, boxed};
use crate::run::{DETECTION, RunFolder, Warning};
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder_atomic, require_empty, write_bytes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which photographs are searched, by which detector.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectPredictOptions {
    /// A detector's run folder.
    pub run: PathBuf,
    /// Photographs, or folders of them at any depth.
    pub images: Vec<PathBuf>,
    /// The folder to make; it must be new or empty.
    pub out: PathBuf,
    /// Draw the objects of at least this score, from 0 to 1.
    pub score: f32,
}

impl DetectPredictOptions {
    /// Draws objects of score 0.5 or more.
    pub fn new(
        run: impl Into<PathBuf>,
        images: impl IntoIterator<Item = impl Into<PathBuf>>,
        out: impl Into<PathBuf>,
    ) -> Self {
        let images = images.into_iter().map(Into::into).collect();
        DetectPredictOptions { run: run.into(), images, out: out.into(), score: 0.5 }
    }
}

/// A detection in COCO's results format, with the names of file and class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CocoDetection {
    /// The number that the file is named by, where all are; otherwise the photograph's place from 1.
    pub image_id: u64,
    /// The class, from 1.
    pub category_id: usize,
    /// Left, top, width, height in pixels.
    pub bbox: [f32; 4],
    /// The detector's score, from 0 to 1.
    pub score: f32,
    /// The photograph.
    pub file_name: String,
    /// Name of the class.
    pub category: String,
}

impl CocoDetection {
    fn new(d: &Detection, image_id: u64, file: &Path, classes: &[String]) -> Self {
        let [left, top, right, bottom] = d.bounds;
        CocoDetection {
            image_id,
            category_id: d.class + 1,
            bbox: [left, top, right - left, bottom - top],
            score: d.score,
            file_name: file.display().to_string(),
            category: classes[d.class].clone(),
        }
    }
}

/// Objects that were found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetectPredictResult {
    /// Photographs that could be read.
    pub photographs: usize,
    /// Those that could not.
    pub left_out: Vec<BadFile>,
    /// Objects that were drawn.
    pub drawn: usize,
    /// All that were found.
    pub detections: Vec<CocoDetection>,
    /// The file that lists them; the pictures are beside it.
    pub file: PathBuf,
}

const FILE: &str = "detections.json";

/// Finds objects in photographs; writes a picture with boxes for each, and `detections.json` with all that was found.
pub fn detect_predict(options: &DetectPredictOptions, observer: &Arc<dyn Observer>) -> Result<DetectPredictResult> {
    if !(0.0..=1.0).contains(&options.score) {
        return Err(Error::usage(format!("`score` is {}", options.score), "give a number from 0 to 1"));
    }
    let run = RunFolder::open_as(&DETECTION, &options.run)?;
    let (settings, detector, weights, _) = read_detector(&run)?;
    let (detector, search, classes) = (Arc::new(detector), settings.search(), &settings.classes);
    let files = photographs(&options.images)?;
    let (ids, names) = (numbers(&files), picture_names(&files));
    require_empty(&options.out)?;
    let file = options.out.join(FILE);
    let mut result =
        DetectPredictResult { photographs: 0, left_out: Vec::new(), drawn: 0, detections: Vec::new(), file };
    let part = JobPart::begin("finding", files.len(), observer);
    let made = make_folder_atomic(&options.out, |out| {
        for (place, ((file, id), name)) in files.iter().zip(ids).zip(&names).enumerate() {
            let (detector, weights, path) = (detector.clone(), weights.clone(), file.clone());
            let searched = observer.cancel().run(move || {
                let image = decode::file(&path)?;
                let found = find(&detector, &weights, &image, &search);
                Ok::<_, String>((image, found))
            })?;
            part.more(1);
            match searched {
                Ok((image, found)) => {
                    let likely = found.iter().filter(|d| d.score >= options.score);
                    let boxes: Vec<Boxed> = likely.map(|d| captioned(d, classes)).collect();
                    write_bytes(&out.join(name), &boxed(image.width, image.height, image.pixels, &boxes)?)?;
                    result.photographs += 1;
                    result.drawn += boxes.len();
                    result.detections.extend(found.iter().map(|d| CocoDetection::new(d, id, file, classes)));
                }
                Err(reason) => {
                    let name = file.display().to_string();
                    observer.warn(&Warning::LeftOut { file: name.clone(), reason: reason.clone() });
                    result.left_out.push(BadFile { id: place as u64, name, reason });
                }
            }
        }
        if result.photographs == 0 {
            return Err(Error::data(
                "none of the photographs can be read",
                "give images that pcp data check finds sound",
            ));
        }
        let text = serde_json::to_string(&result.detections);
        let text = text.map_err(|e| Error::file(e.to_string(), "please report this"))?;
        write_bytes(&out.join(FILE), format!("{text}\n").as_bytes())
    });
    part.end();
    made?;
    Ok(result)
}

/// The box of a detection, with its class and score for a caption.
fn captioned(d: &Detection, classes: &[String]) -> Boxed {
    let text = format!("{} {:.2}", classes[d.class], d.score);
    Boxed { bounds: d.bounds, text, group: (d.class, classes.len()) }
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
