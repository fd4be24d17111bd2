//! The pages of `assign` and `neighbours`: pictures beside those of the run or folder that they are like.

use super::{AssignedImage, NeighbourImage};
use crate::data::{Image, Pictures, decode};
use crate::jobs::findings::write_page;
use crate::jobs::pictures::Gallery;
use crate::observe::Observer;
use crate::report::{Findings, PictureSource, ShownGroup, ShownPicture, ShownSection};
use pcp_core::error::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Short side of pictures that are read for the page.
const SIDE: usize = 384;
/// Members of a cluster that are shown beside new images.
pub(super) const EXAMPLES: usize = 4;

/// Where a picture of the page is.
enum PictureAt {
    /// A row of the gallery.
    Known(usize),
    /// One of the new pictures, by its number, where it is known.
    New(Option<usize>),
    /// A file.
    File(PathBuf),
}

/// The pictures of a page.
pub(super) struct PagePictures {
    /// The pictures of the run or folder.
    gallery: Gallery,
    /// New pictures.
    pictures: Option<Pictures>,
    places: Vec<(String, PictureAt)>,
}

impl PagePictures {
    /// Pictures of `gallery`, and new ones.
    pub(super) fn new(gallery: Gallery, pictures: Option<Pictures>) -> PagePictures {
        PagePictures { gallery, pictures, places: Vec::new() }
    }

    fn push(&mut self, name: &str, place: PictureAt, caption: String, marked: bool) -> ShownPicture {
        self.places.push((name.to_string(), place));
        ShownPicture { row: self.places.len() - 1, caption, marked }
    }
}

impl PictureSource for PagePictures {
    fn name(&self, row: usize) -> String {
        self.places[row].0.clone()
    }

    fn path(&self, row: usize) -> Option<PathBuf> {
        match (&self.places[row].1, &self.pictures) {
            (PictureAt::Known(at), _) => self.gallery.path(*at).map(Path::to_path_buf),
            (PictureAt::New(Some(at)), Some(pictures)) => pictures.path(*at).map(Path::to_path_buf),
            (PictureAt::New(_), _) => None,
            (PictureAt::File(path), _) => Some(path.clone()),
        }
    }

    fn image(&self, row: usize) -> Option<Image> {
        match (&self.places[row].1, &self.pictures) {
            (PictureAt::Known(at), _) => self.gallery.image(*at, SIDE),
            (PictureAt::New(Some(at)), Some(pictures)) => pictures.image(*at).ok(),
            (PictureAt::New(_), _) => None,
            (PictureAt::File(path), _) => decode::shrunk_file(path, SIDE).ok(),
        }
    }
}

/// Writes the page of an image and its neighbours; `known` are the rows of the gallery of the image, if it is there, and of its neighbours.
pub(super) fn write_neighbours(
    page: &Path,
    image: &Path,
    (own, known): (Option<usize>, &[usize]),
    found: &[NeighbourImage],
    mut pictures: PagePictures,
    observer: &Arc<dyn Observer>,
) -> Result<()> {
    let name = image.to_string_lossy();
    let place = own.map_or_else(|| PictureAt::File(image.to_path_buf()), PictureAt::Known);
    let mut shown = vec![pictures.push(&name, place, "asked about".into(), true)];
    for (neighbour, row) in found.iter().zip(known) {
        let cluster = neighbour.cluster.map_or_else(String::new, |cluster| format!(", cluster {cluster}"));
        let label = neighbour.label.as_ref().map_or_else(String::new, |label| format!(", {label}"));
        let caption = format!("cosine {:.2}{cluster}{label}", neighbour.cosine);
        shown.push(pictures.push(&neighbour.file, PictureAt::Known(*row), caption, false));
    }
    let section = ShownSection {
        title: "Most like it".into(),
        about: "The most alike first, by the cosine of the embeddings.".into(),
        groups: vec![ShownGroup { caption: String::new(), pictures: shown }],
    };
    let sentence = format!("{} images that are most like {name}.", found.len());
    let findings = Findings { name: name.into_owned(), sentence, sections: vec![section], ..Findings::default() };
    write_page(page, findings, &Arc::new(pictures), observer)
}

/// Writes the page of new images by the clusters that they were assigned to; `new` are their numbers among the new pictures, and
/// `examples` names and rows of each cluster's purest members.
pub(super) fn write_assigned(
    page: &Path,
    images: &str,
    assigned: &[AssignedImage],
    new: &[Option<usize>],
    examples: &BTreeMap<u32, Vec<(String, usize)>>,
    mut pictures: PagePictures,
    observer: &Arc<dyn Observer>,
) -> Result<()> {
    let mut clusters: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let (fitting, others): (Vec<usize>, Vec<usize>) = (0..assigned.len()).partition(|i| assigned[*i].fit > 0.0);
    for i in &fitting {
        clusters.entry(assigned[*i].cluster).or_default().push(*i);
    }
    let mut groups = Vec::new();
    for (cluster, mut rows) in clusters {
        rows.sort_by(|a, b| assigned[*b].fit.total_cmp(&assigned[*a].fit));
        let mut shown = Vec::new();
        for (name, row) in examples.get(&cluster).into_iter().flatten() {
            shown.push(pictures.push(name, PictureAt::Known(*row), "of the run".into(), true));
        }
        for i in &rows {
            let AssignedImage { file, fit, confidence, .. } = &assigned[*i];
            let caption = format!("fit {fit:.2}, confidence {confidence:.2}");
            shown.push(pictures.push(file, PictureAt::New(new[*i]), caption, false));
        }
        let name = assigned[rows[0]].name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
        groups.push(ShownGroup { caption: format!("cluster {cluster}{name}: {} images", rows.len()), pictures: shown });
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.pictures.len()));
    let mut sections = vec![ShownSection {
        title: "Where they belong".into(),
        about: "By cluster, the largest first. Framed: images of the run that are nearest to the cluster's centre. fit: the share of the \
                cluster's members that are as far from its centre or farther."
            .into(),
        groups,
    }];
    let mut far = Vec::new();
    for i in &others {
        let AssignedImage { file, cluster, confidence, .. } = &assigned[*i];
        let caption = format!("nearest: cluster {cluster}, confidence {confidence:.2}");
        far.push(pictures.push(file, PictureAt::New(new[*i]), caption, false));
    }
    if !far.is_empty() {
        sections.push(ShownSection {
            title: "Perhaps to none".into(),
            about: "Farther from the nearest cluster's centre than all of its members. A guess: look at them.".into(),
            groups: vec![ShownGroup { caption: String::new(), pictures: far }],
        });
    }
    let tiles = vec![
        ["images".to_string(), assigned.len().to_string(), String::new()],
        ["in a cluster's range".to_string(), fitting.len().to_string(), String::new()],
        ["perhaps to none".to_string(), others.len().to_string(), "a guess".to_string()],
    ];
    let sentence = format!("{} of {} images are in the range of a cluster.", fitting.len(), assigned.len());
    let findings = Findings { name: images.to_string(), sentence, tiles, sections, ..Findings::default() };
    write_page(page, findings, &Arc::new(pictures), observer)
}
