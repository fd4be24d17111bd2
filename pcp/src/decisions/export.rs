//! Decisions as tables, lists and folders of links, for other programs.

use super::{Decided, Mark};
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{link, make_folder, make_folder_atomic, write_bytes};
use pcp_core::io::csv;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// An image of the collection that was decided about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecidedImage {
    /// Its name.
    pub file: String,
    /// Its file, where it is one.
    pub path: Option<PathBuf>,
    /// Its label before.
    pub label: Option<String>,
    /// Its cluster before.
    pub cluster: Option<u32>,
}

impl Decided {
    /// A table of all images: `file,decision,label,same_as,cluster,name`. `decision` is keep, remove or empty.
    pub fn table(&self, images: &[DecidedImage]) -> String {
        let mut text = "file,decision,label,same_as,cluster,name\n".to_string();
        for image in images {
            let mark = self.marks.get(&image.file).copied().map_or("", Mark::name);
            let label = self.labels.get(&image.file).or(image.label.as_ref()).map(|l| csv::field(l));
            let same = self.same.get(&image.file).map(|of| csv::field(of));
            let cluster = self.cluster_of(image);
            let name = cluster.and_then(|cluster| self.name(cluster)).map(csv::field);
            text += &format!(
                "{},{mark},{},{},{},{}\n",
                csv::field(&image.file),
                label.unwrap_or_default(),
                same.unwrap_or_default(),
                cluster.map(|c| c.to_string()).unwrap_or_default(),
                name.unwrap_or_default()
            );
        }
        text
    }

    fn cluster_of(&self, image: &DecidedImage) -> Option<u32> {
        match image.cluster {
            Some(own) => Some(self.cluster(&image.file, own)),
            None => self.moved.get(&image.file).map(|to| self.root(*to)),
        }
    }

    /// The names of the images that stay, or of those that are left out, one a line.
    pub fn list(&self, images: &[DecidedImage], stay: bool) -> String {
        let chosen = images.iter().filter(|image| self.leaves_out(&image.file) != stay);
        chosen.map(|image| format!("{}\n", image.file.replace(['\n', '\r'], " "))).collect()
    }

    /// Makes the new folder `out`: `decisions.csv`, `keep.txt`, `remove.txt`, and with `links` a link to every image in `keep/CLUSTER/` or
    /// `remove/CLUSTER/`. The images themselves stay where they are.
    pub fn export(&self, out: &Path, images: &[DecidedImage], links: bool) -> Result<()> {
        if out.exists() || out.is_symlink() {
            return Err(Error::usage(format!("{} exists", out.display()), "remove it, or choose another folder"));
        }
        make_folder_atomic(out, |out| {
            write_bytes(&out.join("decisions.csv"), self.table(images).as_bytes())?;
            write_bytes(&out.join("keep.txt"), self.list(images, true).as_bytes())?;
            write_bytes(&out.join("remove.txt"), self.list(images, false).as_bytes())?;
            if links { self.link_all(out, images) } else { Ok(()) }
        })
    }

    fn link_all(&self, out: &Path, images: &[DecidedImage]) -> Result<()> {
        let (mut made, mut taken): (HashSet<PathBuf>, HashSet<String>) = (HashSet::new(), HashSet::new());
        for image in images {
            let Some(path) = &image.path else { continue };
            let side = if self.leaves_out(&image.file) { "remove" } else { "keep" };
            let cluster = match self.cluster_of(image) {
                None => "images".to_string(),
                Some(cluster) => match self.name(cluster) {
                    Some(name) => format!("{cluster}-{}", tidy(name)),
                    None => format!("cluster-{cluster}"),
                },
            };
            let folder = out.join(side).join(cluster);
            if made.insert(folder.clone()) {
                make_folder(&folder)?;
            }
            // Names differ in the whole path: folders become part of the name.
            let plain = tidy(&image.file);
            let (stem, ending) =
                plain.rsplit_once('.').map_or((plain.as_str(), String::new()), |(s, e)| (s, format!(".{e}")));
            let numbered = |n: usize| if n == 1 { plain.clone() } else { format!("{stem}-{n}{ending}") };
            let key = |n: usize| folder.join(numbered(n)).to_string_lossy().to_lowercase();
            let n = (1..).find(|n| taken.insert(key(*n))).unwrap_or(1);
            let target = path.canonicalize().map_err(|e| Error::io("find", path, &e))?;
            link(&target, &folder.join(numbered(n)))?;
        }
        Ok(())
    }
}

/// A name that is one part of a path everywhere.
fn tidy(name: &str) -> String {
    let fits = |c: char| if c.is_control() || "/\\:*?\"<>|".contains(c) { '_' } else { c };
    let text: String = name.chars().map(fits).take(120).collect();
    match text.trim_matches([' ', '.']) {
        "" => "_".to_string(),
        text => text.to_string(),
    }
}
