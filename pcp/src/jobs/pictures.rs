//! Where the images of the rows are, and small pictures of some of them.

use super::images;
use crate::config::Resolved;
use crate::data::folder::list;
use crate::data::{Dataset, Image, Images, Source, decode};
use crate::observe::Observer;
use pcp_core::error::{Error, Result, listed};
use pcp_core::io::names;
use rayon::prelude::*;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Short side of the pictures.
const SIDE: usize = 112;

/// The images of the rows, as far as they are at hand.
pub enum Gallery {
    /// The file of every row, where it is known.
    Files(Vec<Option<PathBuf>>),
    /// Images in memory, and the row of each row there.
    Loaded(Arc<Dataset>, Vec<Option<usize>>),
}

impl Gallery {
    /// Looks for files of these `names` below `folder`; without one, none is at hand. Names that lead out of the folder are an error: a list
    /// of names from elsewhere must not choose which files are read.
    pub fn of_files(folder: Option<&Path>, names: &[String]) -> Result<Gallery> {
        let Some(folder) = folder else { return Ok(Gallery::Files(vec![None; names.len()])) };
        let found: HashMap<String, PathBuf> = list(folder)?.into_iter().map(|f| (f.name, f.path)).collect();
        let find = |name: &String| match found.get(name) {
            Some(path) => Ok(Some(path.clone())),
            None => below(folder, name).map(|path| Some(path).filter(|path| path.is_file())),
        };
        Ok(Gallery::Files(names.iter().map(find).collect::<Result<_>>()?))
    }

    /// The images of `data` by their names; test images follow the training images.
    pub fn of_data(data: Arc<Dataset>, names: &[String]) -> Gallery {
        let test = data.test.iter().flat_map(|test| test.images.names());
        let rows: HashMap<&String, usize> =
            data.train.images.names().iter().chain(test).enumerate().map(|(i, n)| (n, i)).collect();
        let found = names.iter().map(|name| rows.get(name).copied()).collect();
        Gallery::Loaded(data, found)
    }

    /// How many rows have an image.
    pub fn found(&self) -> usize {
        match self {
            Gallery::Files(paths) => paths.iter().flatten().count(),
            Gallery::Loaded(_, rows) => rows.iter().flatten().count(),
        }
    }

    /// The files of all rows; an error when some have none.
    pub fn paths(&self, names: &[String]) -> Result<Vec<PathBuf>> {
        let Gallery::Files(paths) = self else {
            return Err(Error::usage(
                "the images of this data set are not files of their own, so there is nothing to copy or link",
                "leave out `folders`; clusters.csv says which image is in which cluster",
            ));
        };
        let missing: Vec<&String> = names.iter().zip(paths).filter(|(_, p)| p.is_none()).map(|(n, _)| n).collect();
        if !missing.is_empty() {
            return Err(Error::data(
                format!("{} images are not there: {}", missing.len(), listed(missing.iter().take(3))),
                "say which folder the names are below with `images`",
            ));
        }
        Ok(paths.iter().flatten().cloned().collect())
    }

    /// The images of a run that was trained by `config`: the files in its folder, or its data set.
    pub fn of_run(config: &Resolved, names: &[String], observer: &Arc<dyn Observer>) -> Result<Gallery> {
        match Source::parse(&config.data.source) {
            Ok(Source::Folder(path)) if path.is_dir() => Gallery::of_files(Some(&path), names),
            _ => {
                let data = images::read(config.load_request()?, observer)?;
                Ok(Gallery::of_data(Arc::new(data), names))
            }
        }
    }

    /// The file of a row, where it is known.
    pub fn path(&self, row: usize) -> Option<&Path> {
        match self {
            Gallery::Files(paths) => paths[row].as_deref(),
            Gallery::Loaded(..) => None,
        }
    }

    /// The image of a row, where it can be read; files are shrunk to a short side of `side`.
    pub fn image(&self, row: usize, side: usize) -> Option<Image> {
        match self {
            Gallery::Files(paths) => decode::shrunk_file(paths[row].as_ref()?, side).ok(),
            Gallery::Loaded(data, found) => {
                let at = found[row]?;
                let sample = match (&data.test, at.checked_sub(data.train.images.len())) {
                    (Some(test), Some(at)) => test.images.sample(at),
                    _ => data.train.images.sample(at),
                };
                sample.ok().map(|sample| sample.image.into_owned())
            }
        }
    }

    /// Small pictures of `rows`, in that order; grey where one cannot be read.
    pub fn pictures(&self, rows: &[u32]) -> Images {
        let grey = || Image { width: 8, height: 8, pixels: vec![128; 8 * 8 * 3] };
        let picture = |row: &u32| self.image(*row as usize, SIDE).unwrap_or_else(grey);
        let mut images = Images::default();
        for (i, image) in rows.par_iter().map(picture).collect::<Vec<Image>>().into_iter().enumerate() {
            images.push(i as u64, String::new(), image);
        }
        images
    }
}

/// The path of the image called `name` below `folder`; whole paths must lead into it.
fn below(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = names::path(name);
    let inside = match path.is_absolute() {
        true => path.strip_prefix(folder).or_else(|_| path.strip_prefix(folder.canonicalize().unwrap_or_default())),
        false => Ok(path.as_path()),
    };
    match inside {
        Ok(inside) if names::stays_below(inside) || name.is_empty() => Ok(folder.join(inside)),
        _ => Err(Error::data(
            format!("the name '{name}' leads out of {}", folder.display()),
            "nothing outside `images` is read: give the folder that all names are below, or mend the list of names",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_name_or_by_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        image::RgbImage::from_pixel(190, 200, image::Rgb([200, 0, 0])).save(dir.path().join("sub/ä b.png")).unwrap();
        std::fs::write(dir.path().join("broken.png"), b"no").unwrap();
        let names = ["sub/ä b.png", "gone.png", "broken.png"].map(String::from);
        let gallery = Gallery::of_files(Some(dir.path()), &names).unwrap();
        assert_eq!(gallery.found(), 2);
        let e = gallery.paths(&names).unwrap_err();
        assert!(e.message.contains("1 images are not there: gone.png") && e.hint.contains("`images`"), "{e:?}");
        let pictures = gallery.pictures(&[0, 1, 2, 0]);
        assert_eq!(pictures.len(), 4);
        assert_eq!(pictures.sample(0).unwrap().image.pixels[..3], [200, 0, 0]);
        assert_eq!(pictures.sample(3).unwrap().image.width, SIDE);
        assert_eq!(pictures.sample(1).unwrap().image.pixels[0], 128);
        let whole = [dir.path().join("sub/ä b.png").display().to_string(), "sub/ä b.png".into()];
        assert_eq!(Gallery::of_files(Some(dir.path()), &whole).unwrap().found(), 2);
        assert_eq!(Gallery::of_files(None, &whole).unwrap().found(), 0);
    }

    #[test]
    fn names_that_lead_out_of_the_folder_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        std::fs::create_dir_all(images.join("sub")).unwrap();
        image::RgbImage::new(8, 8).save(images.join("a.png")).unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        let secret = dir.path().join("secret").display().to_string();
        for name in ["../secret", "sub/../../secret", "/etc/passwd", secret.as_str()] {
            let e = Gallery::of_files(Some(&images), &["a.png".into(), name.into()]).err().unwrap();
            assert!(e.message.contains(name) && e.hint.contains("`images`"), "{e:?}");
        }
    }
}
