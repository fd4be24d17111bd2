//! One run, or one matrix: read when it is asked for, and again when its files have changed.

use crate::findings::{Copies, Doubts, Finding};
use crate::layout::Layout;
use crate::live::Watch;
use crate::pictures::{Gallery, GallerySource};
use pcp::data::Labels;
use pcp::decisions::{self, DecisionLog};
use pcp::jobs::{EmbeddingSource, PurifyOptions, purify, source::Embeddings};
use pcp::model::Model;
use pcp::observe::Observer;
use pcp::report::{self, Contents};
use pcp::run::RunFolder;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::entries;
use pcp_core::matrix::Matrix;
use pcp_core::outliers::doubts;
use pcp_core::purify::{Grouping, Positives, Purified};
use pcp_core::schedule::greatest_vote;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::UNIX_EPOCH;

/// Files of a run that are read.
const READ: &[&str] = &[
    "config.toml",
    "files.csv",
    "metrics.jsonl",
    "warnings.jsonl",
    "result.json",
    "clusters.csv",
    "embeddings.npy",
    "stamps.csv",
    "model.safetensors",
    "lock",
    "clusters",
    "checkpoints",
    crate::layout::FILE,
];
/// Files whose change means that a run is to be read again.
const WATCHED: &[&str] =
    &["files.csv", "metrics.jsonl", "warnings.jsonl", "result.json", "clusters.csv", "embeddings.npy"];

/// A matrix that is explored: its file, and the folder and names of its images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatrixOptions {
    /// The matrix.
    pub file: PathBuf,
    /// The folder that the names of the images are below.
    pub images: Option<PathBuf>,
    /// A CSV file with a column `file`; otherwise the names beside the matrix.
    pub files: Option<PathBuf>,
}

/// What is known about the images of a subject at one time.
pub struct View {
    /// Changes with the files.
    pub version: u64,
    /// Names of the images.
    pub names: Vec<String>,
    /// Their classes, where each has one.
    pub labels: Option<Labels>,
    /// Clusters and what purification made of them.
    pub grouping: Option<Grouping>,
    /// The clusters before, and when the two were found.
    pub before: Option<Grouping>,
    /// Unit embeddings, once the run is finished.
    pub features: Option<Arc<Matrix>>,
    /// How doubtful it is that each image belongs, where it is known.
    pub doubt: Vec<f32>,
    /// Summary, lights, curves, settings.
    pub overview: Value,
    /// Whether the run has a result.
    pub finished: bool,
    rows: OnceLock<HashMap<String, u32>>,
}

impl View {
    /// The row of an image by its name.
    pub fn row(&self, name: &str) -> Option<u32> {
        let all = || self.names.iter().enumerate().map(|(row, name)| (name.clone(), row as u32)).collect();
        self.rows.get_or_init(all).get(name).copied()
    }

    fn of_run(run: &RunFolder, version: u64) -> Result<View> {
        let mut contents = report::gather(run)?;
        let overview = serde_json::to_value(report::overview(&contents))
            .map_err(|e| Error::file(e.to_string(), "please report this"))?;
        let features = contents.embeddings.take().map(Matrix::normalised);
        let doubt = match (&features, &contents.grouping) {
            (Some(features), Some(grouping)) => doubtful(features, grouping, greatest(&contents)),
            _ => Vec::new(),
        };
        Ok(View {
            version,
            names: contents.files.into_iter().map(|row| row.file).collect(),
            labels: contents.labels,
            grouping: contents.grouping,
            before: contents.before,
            features: features.map(Arc::new),
            doubt,
            overview,
            finished: contents.result.is_some(),
            rows: OnceLock::new(),
        })
    }
}

/// V_max of a run.
fn greatest(contents: &Contents) -> f64 {
    let p = &contents.config.purify;
    if p.votes { greatest_vote(p.alpha, p.history) } else { 1.0 }
}

/// Outlier scores. Clusters are counted anew: their numbers come from a file, and may be anything.
fn doubtful(features: &Matrix, grouping: &Grouping, greatest: f64) -> Vec<f32> {
    let mut number: BTreeMap<u32, u32> = BTreeMap::new();
    for cluster in &grouping.cluster {
        let next = number.len() as u32;
        number.entry(*cluster).or_insert(next);
    }
    let assignment: Vec<u32> = grouping.cluster.iter().map(|cluster| number[cluster]).collect();
    let purified = Purified {
        positives: Positives::instances(0),
        status: grouping.status.clone(),
        distance: grouping.distance.clone(),
        vote: grouping.vote.clone(),
    };
    doubts(features, &assignment, number.len(), &purified, greatest)
}

enum Place {
    Run(RunFolder),
    Matrix { file: PathBuf, view: Arc<View>, images: Option<PathBuf> },
}

/// A run or a matrix, and what has been read and found out about it.
pub struct Subject {
    /// Its number in the catalogue.
    pub id: usize,
    /// Its name for people.
    pub name: String,
    place: Place,
    /// The folder of the images, where the user named one.
    images: Option<PathBuf>,
    /// The training of this very process, where it is one.
    pub watch: Option<Arc<Watch>>,
    view: Mutex<Option<Arc<View>>>,
    gallery: Mutex<Option<Arc<Gallery>>>,
    model: Mutex<Option<Arc<Model>>>,
    log: Mutex<Option<DecisionLog>>,
    /// The map.
    pub layout: Layout,
    /// Copies.
    pub copies: Finding<Copies>,
    /// Labels that are probably wrong.
    pub doubts: Finding<Doubts>,
}

/// What a lock protects stays usable when a request has panicked: it is replaced as a whole.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Subject {
    fn new(id: usize, name: String, place: Place, images: Option<PathBuf>, watch: Option<Arc<Watch>>) -> Subject {
        Subject {
            id,
            name,
            place,
            images,
            watch,
            view: Mutex::default(),
            gallery: Mutex::default(),
            model: Mutex::default(),
            log: Mutex::default(),
            layout: Layout::default(),
            copies: Finding::default(),
            doubts: Finding::default(),
        }
    }

    /// The run in `path`. Its images are those that it was trained on, if they have not changed since, or those below `images`.
    pub fn run(id: usize, path: &Path, images: Option<PathBuf>, watch: Option<Arc<Watch>>) -> Result<Subject> {
        let run = RunFolder::open(path)?;
        confined(&run)?;
        let whole = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let name = whole.file_name().map_or_else(|| "run".to_string(), |name| name.to_string_lossy().into_owned());
        Ok(Subject::new(id, name, Place::Run(run), images, watch))
    }

    /// A matrix, which is clustered and purified now.
    pub fn matrix(id: usize, options: &MatrixOptions, observer: &Arc<dyn Observer>) -> Result<Subject> {
        let source = EmbeddingSource::from(options.file.as_path());
        let read = Embeddings::read(&source, options.files.as_deref(), 0, observer)?;
        let Some(names) = &read.names else {
            return Err(Error::data(
                format!("the rows of {} have no names", options.file.display()),
                "give them with `files`, a CSV file with a column file and a line per row",
            ));
        };
        let mut purifying = PurifyOptions::new(source);
        (purifying.kmeans.files, purifying.kmeans.skip_bad_rows) = (options.files.clone(), true);
        let found = purify(&purifying, observer)?;
        let (count, dim) = (found.rows.len(), read.features.dim);
        let mut grouping = Grouping::default();
        for row in &found.rows {
            grouping.cluster.push(row.cluster);
            grouping.status.push(row.status);
            grouping.distance.push(row.distance);
            grouping.vote.push(row.vote.unwrap_or(f32::NAN));
        }
        let rows: Vec<usize> = found.rows.iter().map(|row| row.row).collect();
        let s = &found.summary;
        let sentence = format!(
            "{count} rows of {dim} numbers in {} clusters; purification keeps {:.0} % of them.",
            s.clusters,
            100.0 * (s.kept + s.pulled_back) as f64 / count.max(1) as f64
        );
        let name = options.file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let overview = json!({
            "name": name, "sentence": sentence, "results": [], "lights": [], "warnings": [], "notes": [],
            "tiles": [["Images", count.to_string(), ""], ["Clusters", s.clusters.to_string(), ""]],
        });
        let view = View {
            version: 1,
            names: rows.iter().map(|row| names[*row].clone()).collect(),
            labels: None,
            grouping: Some(grouping),
            before: None,
            features: Some(Arc::new(read.features.select_rows(&rows).normalised())),
            doubt: found.rows.iter().map(|row| row.doubt).collect(),
            overview,
            finished: true,
            rows: OnceLock::new(),
        };
        let place = Place::Matrix { file: options.file.clone(), view: Arc::new(view), images: options.images.clone() };
        Ok(Subject::new(id, name, place, options.images.clone(), None))
    }

    /// The run folder; a matrix has none.
    pub fn folder(&self) -> Option<&RunFolder> {
        match &self.place {
            Place::Run(run) => Some(run),
            Place::Matrix { .. } => None,
        }
    }

    /// The folder that decisions, exports and the map are written to, and what their names begin with.
    pub fn beside(&self) -> (PathBuf, String) {
        match &self.place {
            Place::Run(run) => (run.path().to_path_buf(), String::new()),
            Place::Matrix { file, .. } => {
                let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                (folder.to_path_buf(), format!("{}.", self.name))
            }
        }
    }

    /// What is known now; read again when files have changed.
    pub fn view(&self) -> Result<Arc<View>> {
        let run = match &self.place {
            Place::Matrix { view, .. } => return Ok(view.clone()),
            Place::Run(run) => run,
        };
        let version = version(run);
        let mut held = locked(&self.view);
        if let Some(view) = held.as_ref().filter(|view| view.version == version) {
            return Ok(view.clone());
        }
        confined(run)?;
        // The old one goes first: two large matrices at once are too many.
        *held = None;
        let view = Arc::new(View::of_run(run, version)?);
        *held = Some(view.clone());
        Ok(view)
    }

    /// The pictures.
    pub fn gallery(&self) -> Result<Arc<Gallery>> {
        let view = self.view()?;
        let mut held = locked(&self.gallery);
        if let Some(gallery) = held.as_ref().filter(|gallery| gallery.len() == view.names.len()) {
            return Ok(gallery.clone());
        }
        let source = match (&self.place, &self.images) {
            (_, Some(folder)) => GallerySource::Below(folder),
            (Place::Run(run), None) => GallerySource::OfRun(run),
            (Place::Matrix { images: None, .. } | Place::Matrix { .. }, None) => GallerySource::Nowhere,
        };
        let gallery = Arc::new(Gallery::find(source, &view.names)?);
        *held = Some(gallery.clone());
        Ok(gallery)
    }

    /// The network, to embed new pictures.
    pub fn model(&self) -> Result<Arc<Model>> {
        let Place::Run(run) = &self.place else {
            return Err(Error::usage("a matrix has no network to embed a picture with", "serve the run instead"));
        };
        let mut held = locked(&self.model);
        if let Some(model) = held.as_ref() {
            return Ok(model.clone());
        }
        confined(run)?;
        let model = Arc::new(Model::open(run.path())?);
        *held = Some(model.clone());
        Ok(model)
    }

    /// Calls `use_it` with the log of decisions.
    pub fn with_log<T>(&self, use_it: impl FnOnce(&mut DecisionLog) -> Result<T>) -> Result<T> {
        let mut held = locked(&self.log);
        let log = match held.take() {
            Some(log) => held.insert(log),
            None => {
                let (folder, prefix) = self.beside();
                held.insert(DecisionLog::open(&folder.join(format!("{prefix}{}", decisions::FILE)))?)
            }
        };
        use_it(log)
    }
}

/// A number that changes when a file of the run does.
pub fn version(run: &RunFolder) -> u64 {
    let mut all = 0xcbf2_9ce4_8422_2325u64;
    for name in WATCHED {
        let about = std::fs::metadata(run.file(name)).ok();
        let time = about.as_ref().and_then(|a| a.modified().ok()).and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        for part in [about.map_or(u64::MAX, |a| a.len()), time.map_or(0, |t| t.as_nanos() as u64)] {
            all = (all ^ part).wrapping_mul(0x0100_0000_01b3);
        }
    }
    // Numbers that JavaScript can hold.
    all >> 12
}

/// An error when a file of the run is a link that leads out of its folder.
pub fn confined(run: &RunFolder) -> Result<()> {
    let Ok(home) = run.path().canonicalize() else { return Ok(()) };
    let mut paths: Vec<PathBuf> = READ.iter().map(|name| run.file(name)).collect();
    for folder in ["clusters", "checkpoints"] {
        paths.extend(entries(&run.file(folder))?.into_iter().filter(|path| path.is_symlink()));
    }
    for path in paths {
        // A link to nowhere cannot be followed; a missing file is no link.
        if path.is_symlink() && !path.canonicalize().is_ok_and(|real| real.starts_with(&home)) {
            let message = format!("{} is a link that leads out of the run folder", path.display());
            return Err(Error::file(message, "put the file itself there, if you trust it"));
        }
    }
    Ok(())
}
