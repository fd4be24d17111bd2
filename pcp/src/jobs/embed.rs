//! Embeddings of any images, by a trained network or by clusters of patches, in a file.

use super::images::listed;
use super::part::JobPart;
use super::photographs::Photographs;
use crate::data::{BadFile, Pictures};
use crate::embed::{AnyModel, Format, bad_files_csv, files_csv, write};
use crate::model::{Preprocess, WhichWeights};
use crate::observe::Observer;
use pcp_core::error::{Error, Kind, Result};
use pcp_core::io::atomic::{is_there, make_parent, read_bytes, remove_litter, require_absent, write_bytes, write_new};
use pcp_core::io::tensors::sha256_of;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which images are embedded, by which network, and where to.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedOptions {
    /// A run folder, or a model file: that of a network, one that `save_model` wrote, or an encoder in ONNX. Without one, clusters of patches are
    /// learned from the images, in seconds.
    pub model: Option<PathBuf>,
    /// A folder of images, one image, cifar10, cifar100 or bundled.
    pub images: String,
    /// The file to make.
    pub out: PathBuf,
    /// Which features: embedding, pooled, or a layer, such as layer4; of an ONNX file an output, where embedding is the usual one.
    pub features: String,
    /// How they are written; otherwise CSV for names that end in .csv, else NumPy's format.
    pub format: Option<Format>,
    /// Use the weights of the best probe instead of the last.
    pub best: bool,
    /// Where the CIFAR files are.
    pub data_dir: Option<PathBuf>,
    /// A new file for the patch model that is learned from the images.
    pub save_model: Option<PathBuf>,
    /// Everything random about a patch model that is learned follows from it.
    pub seed: u64,
    /// How images are made for an ONNX file; otherwise as a preprocessor_config.json beside it says, or the file itself.
    pub preprocess: Preprocess,
}

impl EmbedOptions {
    /// Unit embeddings of `images` by the last weights of `model`, in the new file `out`.
    pub fn new(model: impl Into<PathBuf>, images: impl Into<String>, out: impl Into<PathBuf>) -> Self {
        EmbedOptions { model: Some(model.into()), ..EmbedOptions::patches(images, out) }
    }

    /// Unit features of `images` by clusters of patches that are learned from them, in the new file `out`.
    pub fn patches(images: impl Into<String>, out: impl Into<PathBuf>) -> Self {
        EmbedOptions {
            model: None,
            images: images.into(),
            out: out.into(),
            features: "embedding".into(),
            format: None,
            best: false,
            data_dir: None,
            save_model: None,
            seed: 0,
            preprocess: Preprocess::default(),
        }
    }
}

/// Embeddings that were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbedResult {
    /// Images.
    pub rows: usize,
    /// Numbers of each.
    pub dim: usize,
    /// Which features they are.
    pub features: String,
    /// The file of the model; empty where it was learned from the images and is not kept.
    pub model: String,
    /// Images that could not be read.
    pub unreadable: usize,
    /// The file that was made.
    pub out: PathBuf,
    /// The file with the names of the rows.
    pub files: PathBuf,
    /// The file that lists the images that could not be read.
    pub bad_files: Option<PathBuf>,
}

/// Embeds images into a new file; the names of its rows are in a CSV file beside it.
///
/// ```no_run
/// use pcp::jobs::{EmbedOptions, embed};
/// # use std::sync::Arc;
/// # let observer: Arc<dyn pcp::observe::Observer> = Arc::new(pcp::observe::Silent::default());
/// let made = embed(&EmbedOptions::new("runs/photos", "PHOTOS/", "emb.npy"), &observer)?;
/// let matrix = pcp_core::io::npy::read_matrix(&made.out)?;
/// println!("{} images, {} numbers each; names in {}", matrix.rows, matrix.dim, made.files.display());
/// # Ok::<(), pcp_core::error::Error>(())
/// ```
pub fn embed(options: &EmbedOptions, observer: &Arc<dyn Observer>) -> Result<EmbedResult> {
    let out = &options.out;
    require_absent(out)?;
    let csv = out.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"));
    let format = options.format.unwrap_or(if csv { Format::Csv } else { Format::Npy });
    if let Some(file) = &options.save_model {
        require_absent(file)?;
        if options.model.is_some() || file == out {
            let message = "`save_model` keeps a patch model that is learned from the images";
            return Err(Error::usage(message, "leave `model` out, and give `save_model` a name of its own"));
        }
    }
    let onnx = options.model.as_deref().is_some_and(AnyModel::is_onnx);
    if !onnx && options.preprocess != Preprocess::default() {
        let message = "`size`, `resize`, `squash`, `mean` and `std` are for ONNX files";
        return Err(Error::usage(message, "leave them out: other models know how their images are made"));
    }
    let (model, pictures, unread) = match &options.model {
        Some(path) => {
            let model = match onnx && !options.best {
                true => AnyModel::open_onnx(path, &options.features, options.preprocess)?,
                false => AnyModel::open(path, WhichWeights::best(options.best))?,
            };
            model.check_features(&options.features)?;
            model.note().into_iter().for_each(|note| observer.note(note));
            (model, listed(&options.images, options.data_dir.as_deref(), observer)?, Vec::new())
        }
        None => learned(options, observer)?,
    };
    make_parent(out)?;
    let part = JobPart::begin("embedding", pictures.len(), observer);
    let written = write(&model, &pictures, &options.features, (out, format), observer.cancel(), &|n| part.more(n));
    part.end();
    let (mut found, dim, matrix) = written?;
    found.bad.extend(unread);
    // The names come first: a matrix without them is never seen, and names without their matrix are recognised by its checksum.
    let sum = sha256_of(matrix.contents())?;
    let files = beside(out, "files.csv", &files_csv(&found.rows, &sum))?;
    let bad_files = match found.bad.is_empty() {
        true => None,
        false => Some(beside(out, "bad_files.csv", &bad_files_csv(&found.bad))?),
    };
    if let Err(e) = matrix.publish() {
        // Another process may have written the same.
        if !sha256_of(out).is_ok_and(|other| other == sum) {
            let written = [Some(&files), bad_files.as_ref()].into_iter().flatten().filter(|place| place.written);
            written.for_each(|place| drop(std::fs::remove_file(&place.path)));
        }
        return Err(e);
    }
    Ok(EmbedResult {
        rows: found.rows.len(),
        dim,
        features: model.features_name(&options.features).to_string(),
        model: model.file().or(options.save_model.as_deref()).map_or(String::new(), |file| file.display().to_string()),
        unreadable: found.bad.len(),
        out: out.clone(),
        files: files.path,
        bad_files: bad_files.map(|place| place.path),
    })
}

/// A patch model learned from the images, the images, and those that cannot be read.
fn learned(options: &EmbedOptions, observer: &Arc<dyn Observer>) -> Result<(AnyModel, Pictures, Vec<BadFile>)> {
    if options.best {
        return Err(Error::usage("`best` chooses among the weights of a run", "leave it out, or give a run folder"));
    }
    let dir = options.data_dir.as_deref();
    let photographs = Photographs::open(&options.images, dir, None, options.seed, observer)?;
    photographs.model.check_features(&options.features)?;
    if let (Some(file), AnyModel::Patches(model, _)) = (&options.save_model, &photographs.model) {
        make_parent(file)?;
        model.save_new(file)?;
    }
    let (pictures, bad) = (photographs.pictures(), photographs.data.bad.clone());
    Ok((photographs.model, pictures, bad))
}

/// A file beside a matrix.
#[derive(Debug, PartialEq)]
struct Beside {
    path: PathBuf,
    /// Whether it was written, and not there before.
    written: bool,
}

/// Writes `text` beside the file `out` that is about to be made, as `name`, or, where another file has that name already, with `out`'s name
/// before it. Nothing is written over, but for what an earlier attempt to make `out` left.
fn beside(out: &Path, name: &str, text: &str) -> Result<Beside> {
    let own = out.with_extension(name);
    // Its matrix was never published.
    let stale = own.is_file() && text.lines().next() == String::from_utf8_lossy(&read_bytes(&own)?).lines().next();
    if stale && read_bytes(&own)? != text.as_bytes() {
        write_bytes(&own, text.as_bytes())?;
        return Ok(Beside { path: own, written: true });
    }
    for path in [out.with_file_name(name), own.clone()] {
        remove_litter(&path);
        if !is_there(&path)? {
            match write_new(&path, |w| w.write_all(text.as_bytes())) {
                Ok(()) => return Ok(Beside { path, written: true }),
                // Another process has taken the name meanwhile.
                Err(e) if e.kind == Kind::Usage => (),
                Err(e) => return Err(e),
            }
        }
        // The same text need not be written again.
        if path.is_file() && read_bytes(&path)? == text.as_bytes() {
            return Ok(Beside { path, written: false });
        }
    }
    Err(Error::usage(
        format!("{} is there already, and says something else", own.display()),
        format!("remove that file, or give another `out` than {}", out.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_beside_the_matrix_and_over_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (out, file) = (dir.path().join("e.npy"), |name: &str| dir.path().join(name));
        let at = |name: &str, written: bool| Beside { path: file(name), written };
        assert_eq!(beside(&out, "files.csv", "row\na").unwrap(), at("files.csv", true));
        assert_eq!(beside(&out, "files.csv", "row\na").unwrap(), at("files.csv", false));
        assert_eq!(beside(&out, "files.csv", "row\nb").unwrap(), at("e.files.csv", true));
        // Its matrix is not there: a process was killed before it made one.
        assert_eq!(beside(&out, "files.csv", "row\nc").unwrap(), at("e.files.csv", true));
        std::fs::write(file("e.files.csv"), "somebody's own").unwrap();
        assert!(beside(&out, "files.csv", "row\nd").unwrap_err().message.contains("e.files.csv is there already"));
        assert_eq!(std::fs::read_to_string(file("files.csv")).unwrap(), "row\na");
        assert_eq!(std::fs::read_to_string(file("e.files.csv")).unwrap(), "somebody's own");
    }
}
