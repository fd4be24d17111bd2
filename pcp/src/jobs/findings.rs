//! Findings among pictures as files: tables, plain lists of paths, folders of links, a page. The pictures themselves stay as they are.

use super::folders::{How, make};
use super::images::listed;
use super::part::on_pool;
use crate::data::facts::{PictureFacts, measure};
use crate::data::{BadFile, Image, Pictures};
use crate::observe::Observer;
use crate::report::{Findings, PictureSource, findings_page};
use crate::run::Warning;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{write_atomic, write_bytes, write_new};
use pcp_core::io::names;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `findings/<images>-<verb>-<n>` with the first unused n: where findings go when nobody says so.
pub fn fresh_path(images: &str, verb: &str) -> PathBuf {
    let path = Path::new(images);
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let name = whole.file_name().map_or_else(|| "images".into(), |name| name.to_string_lossy().into_owned());
    let name: String = name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    (1..).map(|n| PathBuf::from(format!("findings/{name}-{verb}-{n}"))).find(|p| !p.exists()).unwrap_or_default()
}

/// Pictures that were measured.
pub(crate) struct Surveyed {
    /// The pictures.
    pub pictures: Pictures,
    /// The numbers of those that can be read.
    pub rows: Vec<usize>,
    /// What is known about each of these.
    pub facts: Vec<PictureFacts>,
    /// Those that cannot be read.
    pub broken: Vec<BadFile>,
}

impl Surveyed {
    /// Measures the pictures that `images` names: a folder of images, one image, cifar10, cifar100 or bundled.
    pub(crate) fn read(images: &str, data_dir: Option<&Path>, observer: &Arc<dyn Observer>) -> Result<Surveyed> {
        let pictures = listed(images, data_dir, observer)?;
        let (inside, count) = (pictures.clone(), pictures.len());
        let found =
            on_pool("reading", count, observer, move |part| Ok(measure(&inside, &|done| part.at(done, count))))?;
        let mut broken = match &pictures {
            Pictures::Files(_) => Vec::new(),
            Pictures::Loaded(data) => data.bad.clone(),
        };
        let (mut rows, mut facts) = (Vec::new(), Vec::new());
        for (row, found) in found.into_iter().enumerate() {
            match found {
                Ok(found) => {
                    rows.push(row);
                    facts.push(found);
                }
                Err(reason) => broken.push(BadFile { id: row as u64, name: pictures.row(row).file, reason }),
            }
        }
        Ok(Surveyed { pictures, rows, facts, broken })
    }

    /// The name of the `at`-th readable picture.
    pub(crate) fn name(&self, at: usize) -> String {
        self.pictures.row(self.rows[at]).file
    }
}

impl PictureSource for Surveyed {
    fn name(&self, row: usize) -> String {
        Surveyed::name(self, row)
    }

    fn path(&self, row: usize) -> Option<PathBuf> {
        self.pictures.path(self.rows[row]).map(Path::to_path_buf)
    }

    fn image(&self, row: usize) -> Option<Image> {
        self.pictures.image(self.rows[row]).ok()
    }
}

/// Writes `NAME.txt`, a path per line; nothing where the pictures are not files. A path with a line break would be taken for two others: it is
/// left out, with a warning.
pub(crate) fn write_paths(
    out: &Path,
    name: &str,
    paths: &[Option<PathBuf>],
    observer: &Arc<dyn Observer>,
) -> Result<()> {
    let broken = |path: &&PathBuf| super::absolute(path).as_os_str().as_encoded_bytes().contains(&b'\n');
    for path in paths.iter().flatten().filter(broken) {
        let reason = format!("its path has a line break, so that {name}.txt does not list it");
        observer.warn(&Warning::LeftOut { file: names::of(path.as_os_str()), reason });
    }
    if paths.iter().all(Option::is_none) {
        return Ok(());
    }
    write_atomic(&out.join(format!("{name}.txt")), |w| {
        for path in paths.iter().flatten().filter(|path| !broken(path)) {
            w.write_all(super::absolute(path).as_os_str().as_encoded_bytes())?;
            w.write_all(b"\n")?;
        }
        Ok(())
    })
}

/// Makes the folder `links`: for every (folder, file) a link to the file, by its own name. Nothing where links cannot be made.
pub(crate) fn write_links(
    out: &Path,
    files: Vec<(String, Option<PathBuf>)>,
    observer: &Arc<dyn Observer>,
) -> Result<()> {
    // A link that leads nowhere, which is listed as broken, has nothing to link to.
    let there = |(to, path): (String, Option<PathBuf>)| Some((to, path.filter(|path| path.exists())?));
    let files: Vec<(String, PathBuf)> = files.into_iter().filter_map(there).collect();
    if files.is_empty() || !cfg!(unix) {
        return Ok(());
    }
    let (folders, paths): (Vec<String>, Vec<PathBuf>) = files.into_iter().unzip();
    make(&out.join("links"), &folders, &paths, How::Link, observer.cancel(), &|_| ()).map(drop)
}

/// Writes the page `file`.
pub(crate) fn write_page<S: PictureSource + Send + Sync + 'static>(
    file: &Path,
    findings: Findings,
    source: &Arc<S>,
    observer: &Arc<dyn Observer>,
) -> Result<()> {
    let source = source.clone();
    let page = on_pool("page", 0, observer, move |part| {
        findings_page(&findings, source.as_ref(), &mut |done, all| part.step(done, all))
    })?;
    write_new(file, |w| w.write_all(page.as_bytes()))
}

/// Writes the typed result as `summary.json`.
pub(crate) fn write_json(out: &Path, result: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(result).map_err(|e| Error::file(e.to_string(), "please report this"))?;
    write_bytes(&out.join("summary.json"), format!("{text}\n").as_bytes())
}
