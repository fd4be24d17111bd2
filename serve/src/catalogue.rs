//! The runs and matrices that a server shows: those that were named, those found in a folder of runs, and the one that this process trains.

use crate::live::Watch;
use crate::subject::{MatrixOptions, Subject, locked};
use pcp::observe::Observer;
use pcp::run::RunFolder;
use pcp_core::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The most runs that are listed of a folder.
const MOST: usize = 500;

/// The subjects of a server.
#[derive(Default)]
pub struct Catalogue {
    folders: Vec<PathBuf>,
    images: Option<PathBuf>,
    /// The training of this process.
    watch: Option<Arc<Watch>>,
    known: Mutex<Vec<(PathBuf, Arc<Subject>)>>,
}

impl Catalogue {
    /// Runs and folders of runs; `images` is the folder of their images, where it is not the one they were trained on.
    pub fn of_runs(paths: &[PathBuf], images: Option<PathBuf>) -> Result<Catalogue> {
        let mut catalogue = Catalogue { images, ..Catalogue::default() };
        for path in paths {
            if RunFolder::open(path).is_ok() {
                catalogue.add(path)?;
            } else if path.is_dir() {
                catalogue.folders.push(path.clone());
            } else {
                let message = format!("{} is no run folder and no folder of runs", path.display());
                return Err(Error::usage(message, "give what `pcp train` wrote, or a matrix with `images`"));
            }
        }
        if catalogue.list().is_empty() {
            let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            let message = format!("there is no run in {}", shown.join(", "));
            return Err(Error::usage(message, "train one: pcp train PHOTOS/ --out runs/photos"));
        }
        Ok(catalogue)
    }

    /// One matrix, which is clustered and purified first.
    pub fn of_matrix(options: &MatrixOptions, observer: &Arc<dyn Observer>) -> Result<Catalogue> {
        let subject = Arc::new(Subject::matrix(0, options, observer)?);
        Ok(Catalogue { known: Mutex::new(vec![(options.file.clone(), subject)]), ..Catalogue::default() })
    }

    /// The run that `watch` is told about, once it begins.
    pub fn of_training(watch: Arc<Watch>) -> Catalogue {
        Catalogue { watch: Some(watch), ..Catalogue::default() }
    }

    fn add(&self, path: &Path) -> Result<()> {
        let whole = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let mut known = locked(&self.known);
        if known.iter().all(|(other, _)| *other != whole) {
            let subject = Subject::run(known.len(), path, self.images.clone(), self.watch.clone())?;
            known.push((whole, Arc::new(subject)));
        }
        Ok(())
    }

    /// All subjects, after a look for new ones. Their numbers never change.
    pub fn list(&self) -> Vec<Arc<Subject>> {
        if let Some(run) = self.watch.as_ref().and_then(|watch| watch.run()) {
            // A run that has just been made is there, unless somebody removed it.
            let _ = self.add(&run);
        }
        for folder in &self.folders {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            found.sort();
            for path in found.iter().filter(|path| RunFolder::open(path).is_ok()).take(MOST) {
                // A run that leads out of its folder is not shown.
                let _ = self.add(path);
            }
        }
        locked(&self.known).iter().map(|(_, subject)| subject.clone()).collect()
    }

    /// A subject by its number.
    pub fn get(&self, id: usize) -> Option<Arc<Subject>> {
        locked(&self.known).get(id).map(|(_, subject)| subject.clone())
    }
}
