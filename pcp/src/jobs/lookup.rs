//! Which clusters of a finished run new images belong to, and which images of a run or a folder are most like one.

mod page;
#[cfg(test)]
mod tests;

use super::images::listed;
use super::part::JobPart;
use super::photographs::{Photographs, is_images};
use super::pictures::Gallery;
use super::source::require_embeddings;
use super::status_name;
use super::table::{CsvRow, write_rows};
use crate::config::Resolved;
use crate::data::folder::list;
use crate::data::{BadFile, Pictures};
use crate::decisions::{self, Decided, DecisionLog};
use crate::embed::{AnyModel, EMBEDDING};
use crate::model::{Embedded, WhichWeights};
use crate::observe::Observer;
use crate::run::{FileRow, RunFolder, Warning};
use page::PagePictures;
use pcp_core::centres::Centres;
use pcp_core::error::{Error, Kind, Result, nearest as nearest_word};
use pcp_core::io::atomic::require_absent;
use pcp_core::io::csv;
use pcp_core::matrix::Matrix;
use pcp_core::matrix::Metric;
use pcp_core::neighbours::nearest;
use pcp_core::purify::{Grouping, Status};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which images are assigned, and to the clusters of which run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignOptions {
    /// A finished run.
    pub run: PathBuf,
    /// A folder of images, one image, cifar10, cifar100 or bundled.
    pub images: String,
    /// Where the CIFAR files are.
    pub data_dir: Option<PathBuf>,
    /// A new CSV file to write.
    pub out: Option<PathBuf>,
    /// A new page with pictures to write.
    pub page: Option<PathBuf>,
}

impl AssignOptions {
    /// Assigns `images`; nothing is written.
    pub fn new(run: impl Into<PathBuf>, images: impl Into<String>) -> Self {
        AssignOptions { run: run.into(), images: images.into(), data_dir: None, out: None, page: None }
    }
}

/// An image and the cluster it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AssignedImage {
    /// Its name.
    pub file: String,
    /// The nearest purified cluster.
    pub cluster: u32,
    /// Distance to the cluster's centre.
    pub distance: f32,
    /// Softmax of the cosines with all centres over the run's temperature.
    pub confidence: f32,
    /// Share of the cluster's members that are as far from its centre or farther.
    pub fit: f32,
    /// What the cluster is called, where somebody named it on the page of `pcp serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl CsvRow for AssignedImage {
    const HEADING: &'static str = "file,cluster,distance,confidence,fit,name";

    fn line(&self) -> String {
        let file = csv::field(&self.file);
        let name = self.name.as_deref().map(csv::field).unwrap_or_default();
        format!("{file},{},{:.4},{:.4},{:.3},{name}", self.cluster, self.distance, self.confidence, self.fit)
    }
}

/// Where images belong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AssignResult {
    /// The images that could be read.
    pub images: Vec<AssignedImage>,
    /// Those that could not.
    pub left_out: Vec<BadFile>,
    /// The file that was written.
    pub out: Option<PathBuf>,
}

/// Says which of a run's purified clusters images belong to.
pub fn assign(options: &AssignOptions, observer: &Arc<dyn Observer>) -> Result<AssignResult> {
    options.out.as_deref().map_or(Ok(()), require_absent)?;
    options.page.as_deref().map_or(Ok(()), require_absent)?;
    let run = FinishedRun::open(&options.run)?;
    let centres = Centres::new(&run.features, &run.grouping);
    if centres.is_empty() {
        let message = format!("no cluster of {} has purified members", options.run.display());
        return Err(Error::data(message, "train with fewer `clusters`, or cluster its embeddings instead"));
    }
    let tau = run.folder.read_config()?.0.objective.tau;
    let pictures = listed(&options.images, options.data_dir.as_deref(), observer)?;
    let (rows, found) = run.embed(&pictures, observer)?;
    for bad in &found.bad {
        observer.warn(&Warning::LeftOut { file: bad.name.clone(), reason: bad.reason.clone() });
    }
    let places = observer.cancel().run(move || centres.assign(&rows, tau))?;
    let decided = run.decided()?;
    let assigned = found.rows.into_iter().zip(&places).map(|(row, place)| AssignedImage {
        file: row.file,
        cluster: place.cluster,
        distance: place.distance,
        confidence: place.confidence,
        fit: place.fit,
        name: decided.name(place.cluster).map(str::to_string),
    });
    let images: Vec<AssignedImage> = assigned.collect();
    if let Some(page) = &options.page {
        run.write_assigned(page, &options.images, &images, pictures, observer)?;
    }
    write_rows(options.out.as_deref(), &images)?;
    Ok(AssignResult { images, left_out: found.bad, out: options.out.clone() })
}

/// Which image's neighbours are looked for, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighboursOptions {
    /// A finished run; or images (a folder of them, or `bundled`), whose features are learned from them in seconds.
    pub run: PathBuf,
    /// An image file, or the name of one of the run's or the folder's images.
    pub image: PathBuf,
    /// The model that gives the features of a folder's images: a run folder, or a model file.
    pub model: Option<PathBuf>,
    /// Neighbours to find.
    pub count: usize,
    /// A new CSV file to write.
    pub out: Option<PathBuf>,
    /// A new page with pictures to write.
    pub page: Option<PathBuf>,
}

impl NeighboursOptions {
    /// Ten neighbours; nothing is written.
    pub fn new(run: impl Into<PathBuf>, image: impl Into<PathBuf>) -> Self {
        NeighboursOptions { run: run.into(), image: image.into(), model: None, count: 10, out: None, page: None }
    }
}

/// An image that is like another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighbourImage {
    /// Its name.
    pub file: String,
    /// Cosine of the embeddings.
    pub cosine: f32,
    /// Its cluster, where it is an image of a run.
    pub cluster: Option<u32>,
    /// What purification made of it, where it is an image of a run.
    #[serde(with = "status_name::option")]
    pub status: Option<Status>,
    /// Its class, where there is one.
    pub label: Option<String>,
}

impl CsvRow for NeighbourImage {
    const HEADING: &'static str = "file,cosine,cluster,status,label";

    fn line(&self) -> String {
        let label = self.label.as_deref().map(csv::field).unwrap_or_default();
        let (cluster, status) = (self.cluster.map(|c| c.to_string()), self.status.map(Status::name));
        let (cluster, status) = (cluster.unwrap_or_default(), status.unwrap_or_default());
        format!("{},{:.4},{cluster},{status},{label}", csv::field(&self.file), self.cosine)
    }
}

/// The images that are most like one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NeighboursResult {
    /// The most alike first.
    pub images: Vec<NeighbourImage>,
    /// The file that was written.
    pub out: Option<PathBuf>,
}

/// Finds the images of a run, or of a folder, that are most like one.
pub fn neighbours(options: &NeighboursOptions, observer: &Arc<dyn Observer>) -> Result<NeighboursResult> {
    options.out.as_deref().map_or(Ok(()), require_absent)?;
    options.page.as_deref().map_or(Ok(()), require_absent)?;
    if options.count == 0 {
        return Err(Error::usage("`count` is 0", "ask for at least one neighbour"));
    }
    let among = Searched::open(options, observer)?;
    let name = options.image.to_string_lossy();
    let own = among.own(&options.image);
    let query = match own {
        Some(row) => Matrix::new(among.features.dim, among.features.row(row).to_vec()),
        None if options.image.is_file() => among.embed(&Pictures::Files(Arc::new(list(&options.image)?)), observer)?.0,
        None => {
            let like = nearest_word(&name, among.files.iter().map(|f| f.file.as_str()));
            let hint = like.map_or_else(|| "check the path".to_string(), |like| format!("did you mean {like}?"));
            let message = format!("{name} is no image file and no image of the {}", among.whole());
            return Err(Error::usage(message, hint));
        }
    };
    // One more, since an image of the run finds itself.
    let count = options.count.saturating_add(usize::from(own.is_some()));
    let found = nearest(&query, &among.features, count, false, &|_| ());
    let neighbour = |(i, cosine): (&u32, &f32)| {
        let row = *i as usize;
        NeighbourImage {
            file: among.files[row].file.clone(),
            cosine: *cosine,
            cluster: among.grouping().map(|grouping| grouping.cluster[row]),
            status: among.grouping().map(|grouping| grouping.status[row]),
            label: among.files[row].label.clone(),
        }
    };
    let pairs = found.index.iter().zip(&found.similarity).filter(|(i, _)| Some(**i as usize) != own);
    let pairs: Vec<(&u32, &f32)> = pairs.take(options.count).collect();
    let known: Vec<usize> = pairs.iter().map(|(i, _)| **i as usize).collect();
    let images: Vec<NeighbourImage> = pairs.into_iter().map(neighbour).collect();
    if let Some(page) = &options.page {
        let pictures = PagePictures::new(among.gallery(observer)?, None);
        page::write_neighbours(page, &options.image, (own, &known), &images, pictures, observer)?;
    }
    write_rows(options.out.as_deref(), &images)?;
    Ok(NeighboursResult { images, out: options.out.clone() })
}

/// A finished run: its embeddings as unit rows, with their names and clusters.
struct FinishedRun {
    folder: RunFolder,
    features: Matrix,
    files: Vec<FileRow>,
    grouping: Grouping,
}

impl FinishedRun {
    fn open(path: &Path) -> Result<FinishedRun> {
        let folder = RunFolder::open(path)?;
        require_embeddings(&folder)?;
        let (features, files) = (folder.read_embeddings()?, folder.read_files()?);
        let grouping = folder.read_final_clusters()?;
        if files.len() != features.rows || grouping.cluster.len() != features.rows {
            let message = format!("files.csv, clusters.csv and embeddings.npy of {} differ in length", path.display());
            return Err(Error::file(message, "restore the files, or run it again"));
        }
        Ok(FinishedRun { folder, features: Metric::Cosine.prepared(features), files, grouping })
    }

    /// What was decided about the run on the page of `pcp serve`.
    fn decided(&self) -> Result<Decided> {
        Ok(DecisionLog::open(&self.folder.file(decisions::FILE))?.decided())
    }

    /// Writes the page of new images, which are among `pictures`, beside some members of their clusters.
    fn write_assigned(
        &self,
        page: &Path,
        name: &str,
        assigned: &[AssignedImage],
        pictures: Pictures,
        observer: &Arc<dyn Observer>,
    ) -> Result<()> {
        let numbers: HashMap<String, usize> = (0..pictures.len()).map(|i| (pictures.row(i).file, i)).collect();
        let new: Vec<Option<usize>> = assigned.iter().map(|image| numbers.get(&image.file).copied()).collect();
        let mut nearest: Vec<usize> = (0..self.files.len()).filter(|i| self.grouping.status[*i].belongs()).collect();
        nearest.sort_by(|a, b| self.grouping.distance[*a].total_cmp(&self.grouping.distance[*b]));
        let mut examples: BTreeMap<u32, Vec<(String, usize)>> = BTreeMap::new();
        for row in nearest {
            let of_cluster = examples.entry(self.grouping.cluster[row]).or_default();
            if of_cluster.len() < page::EXAMPLES {
                of_cluster.push((self.files[row].file.clone(), row));
            }
        }
        let config = self.folder.read_config()?.0;
        let shown = PagePictures::new(gallery_of_run(&config, &self.files, observer)?, Some(pictures));
        page::write_assigned(page, name, assigned, &new, &examples, shown, observer)
    }

    /// Unit embeddings of `pictures` by the run's model.
    fn embed(&self, pictures: &Pictures, observer: &Arc<dyn Observer>) -> Result<(Matrix, Embedded)> {
        embed(&AnyModel::open(self.folder.path(), WhichWeights::Last)?, pictures, observer)
    }
}

/// The images of a run; none where they have gone, so that a page shows their names alone.
fn gallery_of_run(config: &Resolved, files: &[FileRow], observer: &Arc<dyn Observer>) -> Result<Gallery> {
    let names: Vec<String> = files.iter().map(|f| f.file.clone()).collect();
    match Gallery::of_run(config, &names, observer) {
        Err(e) if e.kind != Kind::Stopped => Gallery::of_files(None, &names),
        found => found,
    }
}

/// Unit embeddings of `pictures`.
fn embed(model: &AnyModel, pictures: &Pictures, observer: &Arc<dyn Observer>) -> Result<(Matrix, Embedded)> {
    let part = JobPart::begin("embedding", pictures.len(), observer);
    let found = model.features_of(pictures, EMBEDDING, observer.cancel(), &|n| part.more(n));
    part.end();
    found
}

/// Images to search.
struct Searched {
    /// Unit rows.
    features: Matrix,
    files: Vec<FileRow>,
    of: SearchedImages,
}

/// Whose images are searched.
enum SearchedImages {
    /// A finished run's, with its clusters.
    Run(RunFolder, Grouping),
    /// Those of a folder or a data set.
    Read(Photographs),
}

impl Searched {
    fn open(options: &NeighboursOptions, observer: &Arc<dyn Observer>) -> Result<Searched> {
        let path = &options.run;
        if options.model.is_none() && !is_images(path) {
            let FinishedRun { folder, features, files, grouping } = FinishedRun::open(path)?;
            return Ok(Searched { features, files, of: SearchedImages::Run(folder, grouping) });
        }
        let photographs = Photographs::open(&path.to_string_lossy(), None, options.model.as_deref(), 0, observer)?;
        let found = photographs.embed(observer)?;
        for bad in &found.bad {
            observer.warn(&Warning::LeftOut { file: bad.name.clone(), reason: bad.reason.clone() });
        }
        let features = Metric::Cosine.prepared(found.features);
        Ok(Searched { features, files: found.rows, of: SearchedImages::Read(photographs) })
    }

    /// What messages call the whole of the images.
    fn whole(&self) -> &'static str {
        match &self.of {
            SearchedImages::Run(..) => "run",
            SearchedImages::Read(_) => "folder",
        }
    }

    /// The clusters, of a run.
    fn grouping(&self) -> Option<&Grouping> {
        match &self.of {
            SearchedImages::Run(_, grouping) => Some(grouping),
            SearchedImages::Read(_) => None,
        }
    }

    /// The images.
    fn gallery(&self, observer: &Arc<dyn Observer>) -> Result<Gallery> {
        match &self.of {
            SearchedImages::Run(run, _) => gallery_of_run(&run.read_config()?.0, &self.files, observer),
            SearchedImages::Read(photographs) => {
                let names: Vec<String> = self.files.iter().map(|f| f.file.clone()).collect();
                photographs.at().gallery(&names)
            }
        }
    }

    /// The row of `image`, where it is one of them: by its name, or by its path.
    fn own(&self, image: &Path) -> Option<usize> {
        let name = image.to_string_lossy();
        let folder = match &self.of {
            SearchedImages::Read(photographs) => photographs.folder.clone(),
            SearchedImages::Run(run, _) => run.read_config().ok().map(|(config, _)| config.data.source.into()),
        };
        let below = folder.and_then(|folder| name_below(&folder, image));
        self.files.iter().position(|f| f.file == name || Some(&f.file) == below.as_ref())
    }

    fn embed(&self, pictures: &Pictures, observer: &Arc<dyn Observer>) -> Result<(Matrix, Embedded)> {
        match &self.of {
            SearchedImages::Run(run, _) => embed(&AnyModel::open(run.path(), WhichWeights::Last)?, pictures, observer),
            SearchedImages::Read(photographs) => embed(&photographs.model, pictures, observer),
        }
    }
}

/// What `image` is called among the images below `folder`, where it is one of them.
fn name_below(folder: &Path, image: &Path) -> Option<String> {
    let (folder, image) = (folder.canonicalize().ok()?, image.canonicalize().ok()?);
    Some(image.strip_prefix(folder).ok()?.to_string_lossy().into_owned())
}
