//! What clustering, purification and the search for duplicates work on: a matrix with names, from a file, a run, a folder of images
//! or memory.

use super::photographs::{Photographs, PhotographsAt, is_images};
use super::pictures::Gallery;
use crate::config::Resolved;
use crate::embed::EMBEDDING;
use crate::observe::Observer;
use crate::run::{RunFolder, Warning};
use pcp_core::error::{Error, Kind, Result};
use pcp_core::io::atomic::{has_file, is_there, write_atomic};
use pcp_core::io::csv;
use pcp_core::io::matrix::{self, NamedMatrix, Unusable};
use pcp_core::io::tensors::sha256_of;
use pcp_core::matrix::Matrix;
use pcp_core::matrix::Metric;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where embeddings come from.
#[derive(Clone, Debug)]
pub enum EmbeddingSource {
    /// A matrix file (.npy, .csv, .safetensors; a row per image), a run folder, or images: a folder of them or `bundled`, whose
    /// features are learned from the images themselves, in seconds.
    Path(PathBuf),
    /// Images (a folder, or `bundled`), the model that gives their features (a run folder, or a model file), and which features
    /// (`embedding`, `pooled`, `whitened` or a layer).
    Images(PathBuf, PathBuf, String),
    /// A matrix in memory, and the names of its rows where they have some.
    Memory(Arc<Matrix>, Option<Vec<String>>),
}

impl EmbeddingSource {
    /// What messages and pages call it.
    fn shown(&self) -> String {
        match self {
            EmbeddingSource::Path(path) | EmbeddingSource::Images(path, ..) => path.display().to_string(),
            EmbeddingSource::Memory(..) => "the matrix".to_string(),
        }
    }

    /// `path`, or the images in it with the `features` that `model` gives, where there is one; `None` for its embeddings.
    pub fn with_model(path: &Path, model: Option<&Path>, features: Option<&str>) -> Result<EmbeddingSource> {
        match (model, features) {
            (Some(model), features) => {
                Ok(EmbeddingSource::Images(path.into(), model.into(), features.unwrap_or(EMBEDDING).into()))
            }
            (None, None) => Ok(EmbeddingSource::Path(path.into())),
            (None, Some(_)) => {
                let message = "`features` chooses among the features of a `model`, and none is given";
                Err(Error::usage(message, "give the images, and the run folder or model file as `model`"))
            }
        }
    }

    /// Whether it is a folder.
    pub(crate) fn is_folder(&self) -> bool {
        matches!(self, EmbeddingSource::Path(path) if path.is_dir()) || matches!(self, EmbeddingSource::Images(..))
    }
}

impl From<&Path> for EmbeddingSource {
    fn from(path: &Path) -> Self {
        EmbeddingSource::Path(path.to_path_buf())
    }
}

impl From<PathBuf> for EmbeddingSource {
    fn from(path: PathBuf) -> Self {
        EmbeddingSource::Path(path)
    }
}

impl From<&str> for EmbeddingSource {
    fn from(path: &str) -> Self {
        EmbeddingSource::Path(path.into())
    }
}

impl From<Matrix> for EmbeddingSource {
    fn from(matrix: Matrix) -> Self {
        EmbeddingSource::Memory(Arc::new(matrix), None)
    }
}

impl From<NamedMatrix> for EmbeddingSource {
    fn from(matrix: NamedMatrix) -> Self {
        EmbeddingSource::Memory(Arc::new(matrix.matrix), matrix.names)
    }
}

/// Embeddings with the names of their rows, and the run they are of.
pub struct Embeddings {
    /// What messages call them.
    pub shown: String,
    /// The rows.
    pub features: Arc<Matrix>,
    /// Names of the rows, where they are known.
    pub names: Option<Vec<String>>,
    /// The number of every row in the source: those left out are counted.
    pub rows: Vec<usize>,
    /// Rows that were left out.
    pub unusable: Vec<Unusable>,
    /// The run and its settings, where they are those of a run.
    pub run: Option<(RunFolder, Resolved)>,
    /// The images, where they were read.
    photographs: Option<PhotographsAt>,
    /// The class folder of every image that was read, where it has one.
    pub(crate) class_folders: Vec<Option<String>>,
}

/// Names of rows: the names, where they are from, and whether they must fit.
type Names = Option<(Vec<String>, PathBuf, bool)>;

impl Embeddings {
    /// Reads `source`. Names of the rows are in `files`, in the matrix, or in a file beside it.
    /// Features that are learned from images follow from `seed`.
    pub fn read(
        source: &EmbeddingSource,
        files: Option<&Path>,
        seed: u64,
        observer: &Arc<dyn Observer>,
    ) -> Result<Embeddings> {
        let (mut photographs, mut class_folders) = (None, Vec::new());
        let mut read = |path: &Path, model: Option<(&Path, &str)>| -> Result<Read> {
            let (read, at, classes) = of_photographs(path, model, files, seed, observer)?;
            (photographs, class_folders) = (Some(at), classes);
            Ok(read)
        };
        let (features, names, run) = match source {
            EmbeddingSource::Memory(matrix, own) => {
                let named = match (files, own) {
                    (Some(file), _) => Some((names_in(file)?, file.to_path_buf(), true)),
                    (None, Some(own)) => Some((own.clone(), PathBuf::from("the list of names"), true)),
                    (None, None) => None,
                };
                (matrix.clone(), named, None)
            }
            EmbeddingSource::Images(path, model, features) => read(path, Some((model, features)))?,
            EmbeddingSource::Path(path) if is_images(path) => read(path, None)?,
            EmbeddingSource::Path(path) if path.is_dir() => of_run(path, files)?,
            EmbeddingSource::Path(path) => {
                let (features, names) = of_file(path, files, observer)?;
                (Arc::new(features), names, None)
            }
        };
        let shown = source.shown();
        let names = match names {
            Some((names, _, _)) if names.len() == features.rows => Some(names),
            Some((names, file, must_fit)) => {
                let (file, count, rows) = (file.display().to_string(), names.len(), features.rows);
                if must_fit {
                    let hint = match run {
                        Some(_) => "restore the run's files, or train it again",
                        None => "give the names that belong to the matrix with `files`",
                    };
                    return Err(Error::data(format!("{file} names {count} rows, {shown} has {rows}"), hint));
                }
                observer.warn(&Warning::NamesDoNotFit { file, names: count, matrix: shown.clone(), rows });
                None
            }
            None => None,
        };
        let rows = (0..features.rows).collect();
        Ok(Embeddings { shown, features, names, rows, unusable: Vec::new(), run, photographs, class_folders })
    }

    /// The rows that cannot be used; an error unless they are to be skipped.
    pub fn bad_rows(&self, metric: Metric, skip: bool) -> Result<Vec<Unusable>> {
        let bad = matrix::unusable(&self.features, metric == Metric::Cosine);
        if !skip {
            matrix::refuse(&self.shown, &bad)?;
        }
        match bad.first() {
            Some(first) if bad.len() == self.features.rows => Err(Error::data(
                format!("{}: none of its rows can be used: {}", self.shown, first.reason),
                "check how the embeddings were made",
            )),
            _ => Ok(bad),
        }
    }

    /// Leaves the `bad` rows out and makes the others ready for `metric`.
    pub fn ready(mut self, bad: Vec<Unusable>, metric: Metric) -> Embeddings {
        let out: Vec<usize> = bad.iter().map(|u| u.row).collect();
        let mut features = Arc::unwrap_or_clone(self.features);
        if !out.is_empty() {
            features = features.remove_rows(&out);
        }
        self.features = Arc::new(metric.prepared(features));
        self.rows = matrix::without(self.rows, &out);
        self.unusable = bad;
        if let Some(names) = self.names.take() {
            self.names = Some(matrix::without(names, &out));
        }
        self
    }

    /// Whether the rows are those of images that were read.
    pub(crate) fn are_photographs(&self) -> bool {
        self.photographs.is_some()
    }

    /// The last part of the source's path, for titles.
    pub fn title(&self) -> String {
        let path = Path::new(&self.shown);
        path.file_name().map_or_else(|| self.shown.clone(), |n| n.to_string_lossy().into_owned())
    }

    /// The name of row `i`; empty when it has none.
    pub fn name(&self, i: usize) -> &str {
        self.names.as_ref().map_or("", |names| &names[i])
    }

    /// `row,file` of row `i`, for CSV files.
    pub fn row_and_file(&self, i: usize) -> String {
        format!("{},{}", self.rows[i], csv::field(self.name(i)))
    }

    /// The images of the rows: below `folder`, or those of the run; `None` when none of them is at hand.
    pub fn gallery(&self, folder: Option<&Path>, observer: &Arc<dyn Observer>) -> Result<Option<Gallery>> {
        let Some(names) = &self.names else {
            return match folder {
                Some(_) => Err(Error::usage(
                    "`images` needs the names of the rows",
                    "give them with `files`, a CSV file with a column file and a line per row",
                )),
                None => Ok(None),
            };
        };
        let found = match (&self.run, &self.photographs, folder) {
            (None, Some(photographs), None) => photographs.gallery(names),
            (Some((_, config)), _, None) => Gallery::of_run(config, names, observer),
            _ => Gallery::of_files(folder, names),
        };
        match found {
            Ok(gallery) if gallery.found() > 0 => Ok(Some(gallery)),
            Ok(_) if folder.is_some() => Err(Error::data(
                format!("none of the images is there, for example {}", names.first().map_or("", String::as_str)),
                "give `images` the folder that the names are below",
            )),
            Ok(_) => Ok(None),
            Err(e) if folder.is_some() || e.kind == Kind::Stopped => Err(e),
            // A run whose images have gone can be clustered all the same.
            Err(_) => Ok(None),
        }
    }

    /// Writes `unusable.csv`, when rows were left out.
    pub fn write_unusable(&self, out: &Path) -> Result<()> {
        if self.unusable.is_empty() {
            return Ok(());
        }
        write_atomic(&out.join("unusable.csv"), |w| {
            writeln!(w, "row,reason")?;
            self.unusable.iter().try_for_each(|u| writeln!(w, "{},{}", u.row, u.reason))
        })
    }
}

type Read = (Arc<Matrix>, Names, Option<(RunFolder, Resolved)>);

/// The features of images, by a model that is given or learned from them.
fn of_photographs(
    path: &Path,
    model: Option<(&Path, &str)>,
    files: Option<&Path>,
    seed: u64,
    observer: &Arc<dyn Observer>,
) -> Result<(Read, PhotographsAt, Vec<Option<String>>)> {
    if files.is_some() {
        return Err(Error::usage("`files` is for matrices", "leave it out: images have their own names"));
    }
    let photographs = Photographs::open(&path.to_string_lossy(), None, model.map(|(path, _)| path), seed, observer)?;
    let found = photographs.features(model.map_or(EMBEDDING, |(_, features)| features), observer)?;
    for bad in &found.bad {
        observer.warn(&Warning::LeftOut { file: bad.name.clone(), reason: bad.reason.clone() });
    }
    let (names, classes) = found.rows.into_iter().map(|row| (row.file, row.label)).unzip();
    Ok(((Arc::new(found.features), Some((names, path.to_path_buf(), true)), None), photographs.at(), classes))
}

/// The embeddings of a run.
fn of_run(path: &Path, files: Option<&Path>) -> Result<Read> {
    let run = RunFolder::open(path)?;
    if files.is_some() {
        return Err(Error::usage("`files` is for matrices", "leave it out: a run has its own files.csv"));
    }
    let (config, _) = run.read_config()?;
    require_embeddings(&run)?;
    let features = matrix::read(&run.whole("embeddings.npy")?)?.matrix;
    let names: Vec<String> = run.read_files()?.into_iter().map(|f| f.file).collect();
    Ok((Arc::new(features), Some((names, run.file("files.csv"), true)), Some((run, config))))
}

/// An error when `run` has not written its embeddings yet.
pub(crate) fn require_embeddings(run: &RunFolder) -> Result<()> {
    if is_there(&run.file("embeddings.npy"))? {
        return Ok(());
    }
    let path = run.path().display();
    Err(Error::usage(format!("{path} has no embeddings yet"), format!("finish the run: `resume` {path}")))
}

/// The matrix in a file, and names of its rows: those given, its own, or those beside it, which need not be its.
fn of_file(path: &Path, files: Option<&Path>, observer: &Arc<dyn Observer>) -> Result<(Matrix, Names)> {
    // It may be that of a run.
    RunFolder::require_whole(path)?;
    let matrix = matrix::read(path)?;
    let own = matrix.names.map(|names| (names, path.to_path_buf(), true));
    let names = match files {
        Some(file) => Some((names_in(file)?, file.to_path_buf(), true)),
        None if own.is_some() => own,
        None => beside(path, observer)?,
    };
    Ok((matrix.matrix, names))
}

/// The names in the column `file` of a CSV file.
fn names_in(path: &Path) -> Result<Vec<String>> {
    Ok(pcp_core::io::table::columns(path, "file")?.1)
}

/// The names beside a matrix. Those that were written with a matrix have its checksum: they name the rows of no other. Those of a run name the
/// rows of its own matrices.
fn beside(path: &Path, observer: &Arc<dyn Observer>) -> Result<Names> {
    let mut of_another = None;
    let in_run = is_there(&path.with_file_name("config.toml"))?;
    let own = match path.file_name().and_then(|name| name.to_str()) {
        Some("embeddings-test.npy") if in_run => "files-test.csv",
        _ => "files.csv",
    };
    let of_run = |file: &Path| in_run && file.file_name() == Some(own.as_ref());
    let is_run_matrix = path.file_stem().is_some_and(|stem| stem == "embeddings" || stem == "embeddings-test");
    for file in [path.with_extension("files.csv"), path.with_file_name(own)] {
        if !has_file(&file)? {
            continue;
        }
        match matrix_of(&file)? {
            Some(sum) if sha256_of(path)? != sum => of_another = of_another.or(Some(file)),
            None if of_run(&file) && !is_run_matrix => of_another = of_another.or(Some(file)),
            sum => {
                RunFolder::require_whole(&file)?;
                return Ok(Some((names_in(&file)?, file, sum.is_some())));
            }
        }
    }
    if let Some(file) = of_another {
        let (file, matrix) = (file.display().to_string(), path.display().to_string());
        observer.warn(&Warning::NamesOfAnother { file, matrix });
    }
    Ok(None)
}

/// The checksum of the matrix that a file of names was written with; `None` where it names none.
fn matrix_of(file: &Path) -> Result<Option<String>> {
    let mut reader = csv::Reader::open(file)?;
    let Some(heading) = reader.next()? else { return Ok(None) };
    let column = (0..heading.len()).find(|i| heading.get(*i) == "matrix");
    let (Some(column), Some(first)) = (column, reader.next()?) else { return Ok(None) };
    Ok(Some(first.get(column).to_string()).filter(|sum| !sum.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Silent;
    use pcp_core::io::npy::write_npy;

    fn silent() -> Arc<dyn Observer> {
        Arc::new(Silent::default())
    }

    #[test]
    fn bad_rows_are_refused_or_left_out_with_their_names() {
        let features = Matrix::new(2, vec![3.0, 4.0, f32::NAN, 0.0, 0.0, 2.0]);
        let names = Some(["a", "b", "c"].map(String::from).to_vec());
        let source = EmbeddingSource::from(NamedMatrix { matrix: features, names });
        let read = || Embeddings::read(&source, None, 0, &silent()).unwrap();
        let e = read().bad_rows(Metric::Cosine, false).unwrap_err();
        assert!(e.message.contains("the matrix: 1 rows cannot be used: row 1"), "{e:?}");
        let bad = read().bad_rows(Metric::Cosine, true).unwrap();
        let ready = read().ready(bad, Metric::Cosine);
        assert_eq!(ready.features.values, [0.6, 0.8, 0.0, 1.0]);
        assert_eq!((ready.rows.as_slice(), ready.row_and_file(1).as_str()), ([0, 2].as_slice(), "2,c"));
        let all = EmbeddingSource::from(Matrix::new(1, vec![f32::NAN]));
        let e = Embeddings::read(&all, None, 0, &silent()).unwrap().bad_rows(Metric::Cosine, true).unwrap_err();
        assert!(e.message.contains("none of its rows"), "{e:?}");
        let none = EmbeddingSource::from(Matrix::default());
        assert!(
            Embeddings::read(&none, None, 0, &silent()).unwrap().bad_rows(Metric::Cosine, true).unwrap().is_empty()
        );
    }

    #[test]
    fn names_beside_a_matrix_may_be_of_another_those_given_must_fit() {
        let dir = tempfile::tempdir().unwrap();
        let (matrix, names) = (dir.path().join("e.npy"), dir.path().join("files.csv"));
        write_npy(&matrix, &[2, 1], &[1.0, 2.0]).unwrap();
        std::fs::write(&names, "file\na\n").unwrap();
        let source = EmbeddingSource::from(matrix.as_path());
        assert_eq!(Embeddings::read(&source, None, 0, &silent()).unwrap().names, None);
        let e = Embeddings::read(&source, Some(&names), 0, &silent()).err().unwrap();
        assert!(e.message.contains("names 1 rows, ") && e.hint.contains("`files`"), "{e:?}");
        std::fs::write(&names, "file\na\nb\n").unwrap();
        let found = Embeddings::read(&source, None, 0, &silent()).unwrap();
        assert_eq!((found.name(1), found.title().as_str()), ("b", "e.npy"));
        assert!(found.gallery(None, &silent()).unwrap().is_none(), "no image is there");
        assert!(found.gallery(Some(dir.path()), &silent()).is_err());
        // With the checksum of a matrix they are the names of that one alone.
        let sum = sha256_of(&matrix).unwrap();
        std::fs::write(&names, format!("file,matrix\na,{sum}\nb,\n")).unwrap();
        assert_eq!(Embeddings::read(&source, None, 0, &silent()).unwrap().name(1), "b");
        write_npy(&matrix, &[2, 1], &[1.0, 3.0]).unwrap();
        assert_eq!(
            Embeddings::read(&source, None, 0, &silent()).unwrap().names,
            None,
            "of another matrix of as many rows"
        );
        assert_eq!(Embeddings::read(&source, Some(&names), 0, &silent()).unwrap().name(1), "b", "the caller says so");
    }

    #[test]
    fn names_of_a_run_are_those_of_its_own_matrices() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("config.toml", ""), ("files.csv", "file\na\nb\n"), ("files-test.csv", "file\nc\nd\n")] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let names = |name: &str| {
            let matrix = dir.path().join(name);
            write_npy(&matrix, &[2, 1], &[1.0, 2.0]).unwrap();
            Embeddings::read(&EmbeddingSource::from(matrix), None, 0, &silent()).unwrap().names
        };
        let words = |words: [&str; 2]| Some(words.map(String::from).to_vec());
        assert_eq!(names("embeddings.npy"), words(["a", "b"]));
        assert_eq!(names("embeddings-test.npy"), words(["c", "d"]));
        assert_eq!(names("other.npy"), None, "nobody says whose rows these are");
    }
}
