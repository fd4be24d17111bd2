//! Embeddings of any images by a trained network, in a file.

use super::images::listed;
use super::part::JobPart;
use crate::embed::{Format, bad_files_csv, files_csv, write};
use crate::model::{Model, WhichWeights};
use crate::observe::Observer;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_parent, read_bytes, require_absent, write_bytes};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which images are embedded, by which network, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbedOptions {
    /// A run folder, or the model.safetensors of one.
    pub model: PathBuf,
    /// A folder of images, one image, cifar10, cifar100 or bundled.
    pub images: String,
    /// The file to make.
    pub out: PathBuf,
    /// Which features: embedding, pooled, or a layer, such as layer4.
    pub features: String,
    /// How they are written; otherwise CSV for names that end in .csv, else NumPy's format.
    pub format: Option<Format>,
    /// Use the weights of the best probe instead of the last.
    pub best: bool,
    /// Where the CIFAR files are.
    pub data_dir: Option<PathBuf>,
}

impl EmbedOptions {
    /// Unit embeddings of `images` by the last weights of `model`, in the new file `out`.
    pub fn new(model: impl Into<PathBuf>, images: impl Into<String>, out: impl Into<PathBuf>) -> Self {
        EmbedOptions {
            model: model.into(),
            images: images.into(),
            out: out.into(),
            features: "embedding".into(),
            format: None,
            best: false,
            data_dir: None,
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
    /// The file of the network's weights.
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
    let model = Model::open_weights(&options.model, WhichWeights::best(options.best))?;
    let layer = model.feature_kind(&options.features)?;
    let pictures = listed(&options.images, options.data_dir.as_deref(), observer)?;
    make_parent(out)?;
    let part = JobPart::begin("embedding", pictures.len(), observer);
    let written = write(&model, &pictures, layer, (out, format), observer.cancel(), &|n| part.more(n));
    part.end();
    let (found, dim) = written?;
    let files = beside(out, "files.csv", &files_csv(&found.rows))?;
    let bad_files = match found.bad.is_empty() {
        true => None,
        false => Some(beside(out, "bad_files.csv", &bad_files_csv(&found.bad))?),
    };
    Ok(EmbedResult {
        rows: found.rows.len(),
        dim,
        features: options.features.clone(),
        model: model.file.as_deref().unwrap_or(&options.model).display().to_string(),
        unreadable: found.bad.len(),
        out: out.clone(),
        files,
        bad_files,
    })
}

/// Writes `text` beside `out`, as `name`, or, where another file has that name already, with `out`'s name before it. Nothing is
/// written over.
fn beside(out: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let own = out.with_extension(name);
    for place in [out.with_file_name(name), own.clone()] {
        if place.symlink_metadata().is_err() {
            write_bytes(&place, text.as_bytes())?;
            return Ok(place);
        }
        // The same text need not be written again.
        if place.is_file() && read_bytes(&place)? == text.as_bytes() {
            return Ok(place);
        }
    }
    Err(Error::usage(
        format!("{} is there already, and says something else", own.display()),
        format!("{} is written; remove that file to have its rows named", out.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_beside_the_matrix_and_over_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (out, file) = (dir.path().join("e.npy"), |name: &str| dir.path().join(name));
        assert_eq!(beside(&out, "files.csv", "a").unwrap(), file("files.csv"));
        assert_eq!(beside(&out, "files.csv", "a").unwrap(), file("files.csv"));
        assert_eq!(beside(&out, "files.csv", "b").unwrap(), file("e.files.csv"));
        assert!(beside(&out, "files.csv", "c").unwrap_err().message.contains("e.files.csv is there already"));
        assert_eq!(std::fs::read_to_string(file("files.csv")).unwrap(), "a");
    }
}
