//! What takes a while to find: copies, with the best of each proposed, and labels that are probably wrong. Found on a thread of its own when
//! the page asks for it.

use crate::pictures::Gallery;
use crate::subject::{Subject, View, locked};
use pcp::data::Size;
use pcp::data::facts::{self, PictureFacts};
use pcp::jobs::LabelSummary;
use pcp_core::copies::{self, Thumbnail};
use pcp_core::duplicates::groups;
use pcp_core::error::{Error, Result};
use pcp_core::label_errors;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// The least cosine of two images that may be copies.
const COSINE: f32 = 0.98;
/// Larger groups of like embeddings are kinds of images rather than copies.
const LARGEST: usize = 60;
/// Pictures that are looked at, and groups and labels that are listed, at the most.
const PICTURES: usize = 20_000;
const LISTED: usize = 2000;

/// Images that are copies of each other, or may be.
#[derive(Debug, Serialize)]
pub struct CopyGroup {
    /// The rows; of sure copies the [best](facts::best) one first.
    pub rows: Vec<u32>,
    /// Whether their pictures were compared, and are copies; otherwise only their embeddings are nearly the same.
    pub sure: bool,
}

/// All copies.
#[derive(Debug, Serialize)]
pub struct Copies {
    /// What they are, for people.
    pub about: String,
    /// Sure ones first.
    pub groups: Vec<CopyGroup>,
}

/// A label in doubt.
#[derive(Debug, Serialize)]
pub struct DoubtfulLabel {
    /// The row.
    pub row: u32,
    /// The label that fits better.
    pub suggested: String,
    /// The probability that the own one is wrong.
    pub wrong: f32,
}

/// All labels in doubt.
#[derive(Debug, Serialize)]
pub struct Doubts {
    /// What is known about wrong labels.
    pub about: String,
    /// Labels that are more probably wrong than right, the most doubtful first.
    pub errors: Vec<DoubtfulLabel>,
    /// Labels that are probably right, though another one fits better.
    pub doubtful: Vec<DoubtfulLabel>,
}

#[derive(Default)]
enum Progress<T> {
    #[default]
    Idle,
    /// Rows done, and in all.
    Working(usize, usize),
    Done(u64, Arc<T>),
    Failed(String),
}

/// Something that is found on demand.
pub struct Finding<T>(Mutex<Progress<T>>);

impl<T> Default for Finding<T> {
    fn default() -> Self {
        Finding(Mutex::default())
    }
}

impl<T: Serialize + Send + Sync + 'static> Finding<T> {
    /// How far it is, or what was found.
    pub fn state(&self) -> Value {
        match &*locked(&self.0) {
            Progress::Idle => json!({ "state": "idle" }),
            Progress::Working(done, total) => json!({ "state": "working", "done": done, "total": total }),
            Progress::Done(version, found) => json!({ "state": "done", "version": version, "found": found.as_ref() }),
            Progress::Failed(reason) => json!({ "state": "failed", "error": reason }),
        }
    }

    /// Begins, unless it is under way or done for this version.
    fn begin(&self, version: u64, total: usize) -> bool {
        let mut state = locked(&self.0);
        let busy = match &*state {
            Progress::Working(..) => true,
            Progress::Done(known, _) => *known == version,
            Progress::Idle | Progress::Failed(_) => false,
        };
        if !busy {
            *state = Progress::Working(0, total);
        }
        !busy
    }

    fn tick(&self, done: usize, total: usize) {
        *locked(&self.0) = Progress::Working(done, total);
    }

    fn end(&self, version: u64, found: Result<T>) {
        *locked(&self.0) = match found {
            Ok(found) => Progress::Done(version, Arc::new(found)),
            Err(e) => Progress::Failed(e.message),
        };
    }
}

/// Runs `find` on a thread of its own.
fn on_a_thread<T: Serialize + Send + Sync + 'static>(
    subject: &Arc<Subject>,
    of: fn(&Subject) -> &Finding<T>,
    find: fn(&Subject, &View) -> Result<T>,
) -> Result<()> {
    let view = subject.view()?;
    if !of(subject).begin(view.version, view.names.len()) {
        return Ok(());
    }
    let inside = subject.clone();
    let started = std::thread::Builder::new().name("pcp-find".into()).spawn(move || {
        let found = find(&inside, &view);
        of(&inside).end(view.version, found);
    });
    if let Err(e) = started {
        of(subject).end(0, Err(Error::file(e.to_string(), "try again")));
    }
    Ok(())
}

/// Begins to look for copies.
pub fn find_copies(subject: &Arc<Subject>) -> Result<()> {
    on_a_thread(
        subject,
        |subject| &subject.copies,
        |subject, view| {
            let features = crate::search::features(view)?;
            let n = features.rows;
            let found = groups(features, COSINE, &mut |done| {
                subject.copies.tick(done / 2, n);
                Ok(())
            })?;
            let small = found.iter().filter(|group| group.members.len() <= LARGEST).take(LISTED);
            let candidates: Vec<Vec<u32>> =
                small.map(|group| group.members.iter().map(|(row, _)| *row as u32).collect()).collect();
            let gallery = subject.gallery()?;
            let (mut sure, mut guesses, mut looked) = (Vec::new(), Vec::new(), 0);
            for (i, rows) in candidates.iter().enumerate() {
                subject.copies.tick(n / 2 + n / 2 * i / candidates.len(), n);
                looked += rows.len();
                let measured = if looked <= PICTURES { measured(&gallery, rows) } else { None };
                let Some(measured) = measured else {
                    guesses.push(CopyGroup { rows: rows.clone(), sure: false });
                    continue;
                };
                let thumbnails: Vec<Thumbnail> = measured.iter().map(|facts| facts.thumbnail.clone()).collect();
                for linked in copies::groups(&thumbnails, &[], &mut |_| Ok(()))? {
                    let mut members = linked.rows;
                    members.sort_unstable();
                    let best = facts::best(&members.iter().map(|at| &measured[*at]).collect::<Vec<_>>());
                    members[..=best].rotate_right(1);
                    sure.push(CopyGroup { rows: members.into_iter().map(|at| rows[at]).collect(), sure: true });
                }
            }
            let about = format!(
                "Images with nearly the same embedding (cosine {COSINE} or more) whose pictures were compared and are copies: the same picture resized, \
             recompressed, cropped a little or mirrored. The first of each group is the largest of those that are about as sharp as the sharpest.{}",
                if guesses.is_empty() { "" } else { " Groups called a guess could not be compared." }
            );
            sure.extend(guesses);
            Ok(Copies { about, groups: sure })
        },
    )
}

/// The facts about the pictures of `rows`; `None` when one of them cannot be read.
fn measured(gallery: &Gallery, rows: &[u32]) -> Option<Vec<PictureFacts>> {
    let one = |row: &u32| {
        let image = gallery.read(*row as usize).ok()?;
        let size = Size { width: image.width, height: image.height };
        let bytes = gallery.path(*row as usize).and_then(|path| path.metadata().ok()).map(|about| about.len());
        Some(PictureFacts::new(image, size, bytes, [0; 32]))
    };
    rows.iter().map(one).collect()
}

/// Begins to look for wrong labels.
pub fn find_doubts(subject: &Arc<Subject>) -> Result<()> {
    on_a_thread(
        subject,
        |subject| &subject.doubts,
        |subject, view| {
            let features = crate::search::features(view)?;
            let Some(labels) = &view.labels else {
                return Err(Error::data("the images have no labels", "folders of classes give labels"));
            };
            let of: Vec<Option<u32>> = labels.of.iter().map(|class| Some(*class)).collect();
            let n = features.rows;
            let check = label_errors::check(features, &of, labels.classes.len(), 0, &mut |done| {
                subject.doubts.tick(done, n);
                Ok(())
            })?;
            let (errors, doubtful) = label_errors::ranked(&of, &check.verdicts);
            let wrong = |row: &usize| check.verdicts[*row].map_or(0.0, |v| f64::from(v.wrong));
            let summary = LabelSummary {
                labels: n,
                noise: check.noise,
                weak: check.noise.is_some_and(|noise| noise.is_weak()),
                errors: errors.len(),
                expected: errors.iter().map(wrong).fold(0.0, |sum, wrong| sum + wrong),
                doubtful: doubtful.len(),
            };
            let listed = |rows: &[usize]| -> Vec<DoubtfulLabel> {
                let one = |row: &usize| {
                    let verdict = check.verdicts[*row]?;
                    let suggested = labels.classes.get(verdict.suggested as usize)?.clone();
                    Some(DoubtfulLabel { row: *row as u32, suggested, wrong: verdict.wrong })
                };
                rows.iter().take(LISTED).filter_map(one).collect()
            };
            Ok(Doubts { about: summary.sentence(), errors: listed(&errors), doubtful: listed(&doubtful) })
        },
    )
}
