//! A picture of a run's features: t-SNE in two dimensions.

use super::{EmbeddedSplit, MeasuredImages, eval_folder};
use crate::data::loader::Part;
use crate::evaluate::clusters::drawn_rows;
use crate::jobs::part::on_pool;
use crate::observe::Observer;
use crate::picture::Scatter;
use crate::run::RunFolder;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_tidy_folder, write_atomic, write_bytes};
use pcp_core::io::csv;
use pcp_core::matrix::Matrix;
use pcp_core::scores::trustworthiness;
use pcp_core::tsne::{self, Tsne};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Neighbours that trustworthiness looks at.
pub const TRUSTWORTHINESS_NEIGHBOURS: usize = 5;
/// Images that trustworthiness looks at, at the most: it compares all pairs.
const PAIRED: usize = 20_000;

/// Which features are drawn, and where to.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalTsneOptions {
    /// A run folder.
    pub run: PathBuf,
    /// The folder for the files; otherwise `eval` of the run.
    pub out: Option<PathBuf>,
    /// How many neighbours count, roughly; at most a third of the other images.
    pub perplexity: f64,
    /// Which images; otherwise the test images, or the training images where there are no test images or where only the training images
    /// have labels.
    pub part: Option<Part>,
    /// Draw at most this many images, chosen at random.
    pub limit: Option<usize>,
    /// Which images `limit` chooses.
    pub seed: u64,
    /// Use the weights of the best probe instead of the last.
    pub best: bool,
}

impl EvalTsneOptions {
    /// All test images by the last weights of `run`.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        let perplexity = Tsne::default().perplexity;
        EvalTsneOptions { run: run.into(), out: None, perplexity, part: None, limit: None, seed: 0, best: false }
    }
}

/// A picture of features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TsneReport {
    /// What was drawn.
    #[serde(flatten)]
    pub origin: MeasuredImages,
    /// Images.
    pub images: usize,
    /// The perplexity that was used.
    pub perplexity: f64,
    /// Share of neighbours in the picture that are neighbours of the features ([`TRUSTWORTHINESS_NEIGHBOURS`] of each); `None` for very
    /// few images and for very many.
    pub trustworthiness: Option<f64>,
    /// The files that were written.
    pub files: Vec<String>,
}

/// Lays out the features of a run in the plane, and writes `tsne.csv`, `tsne.svg` and `tsne.png`.
pub fn eval_tsne(options: &EvalTsneOptions, observer: &Arc<dyn Observer>) -> Result<TsneReport> {
    let settings = Tsne { perplexity: options.perplexity, ..Tsne::default() };
    settings.check()?;
    if options.limit == Some(0) {
        return Err(Error::usage("`limit` is 0", "give a number from 1 on, or leave it out for all images"));
    }
    let run = RunFolder::open(&options.run)?;
    let (config, _) = run.read_config()?;
    let embedded = EmbeddedSplit::new(&run, &config, options.best, options.part, observer)?;
    let rows = drawn_rows(embedded.images().ids(), options.limit.unwrap_or(usize::MAX), options.seed);
    let values = rows.iter().flat_map(|&row| embedded.features.row(row)).copied().collect();
    let features = Matrix { rows: rows.len(), dim: embedded.features.dim, values };
    let (places, trustworthiness) = on_pool("t-SNE", settings.iterations, observer, move |part| {
        let places = tsne::tsne(&features, &settings, &mut |done| part.step(done, settings.iterations))?;
        let few = features.rows <= PAIRED;
        let trust = few.then(|| trustworthiness(&features, &places, TRUSTWORTHINESS_NEIGHBOURS)).flatten();
        Ok((places, trust))
    })?;
    let points: Vec<[f32; 2]> = places.values.as_chunks().0.to_vec();
    let names: Vec<&str> = rows.iter().map(|&row| embedded.images().names()[row].as_str()).collect();
    let classes = embedded.labels().map(|labels| &labels.classes[..]);
    let of: Option<Vec<u32>> = embedded.labels().map(|labels| rows.iter().map(|&row| labels.of[row]).collect());
    let out = options.out.clone().unwrap_or_else(|| eval_folder(&run));
    let files = write(&out, &points, &names, of.as_deref().zip(classes))?;
    let perplexity = settings.perplexity_of(points.len());
    Ok(TsneReport { origin: embedded.origin, images: points.len(), perplexity, trustworthiness, files })
}

/// Writes the places and their pictures into the folder `out`; returns the files.
fn write(out: &Path, points: &[[f32; 2]], names: &[&str], groups: Option<(&[u32], &[String])>) -> Result<Vec<String>> {
    make_tidy_folder(out)?;
    let [csv, svg, png] = ["tsne.csv", "tsne.svg", "tsne.png"].map(|name| out.join(name));
    write_atomic(&csv, |w| {
        writeln!(w, "file,label,x,y")?;
        for (i, ([x, y], name)) in points.iter().zip(names).enumerate() {
            let label = groups.map_or(String::new(), |(of, classes)| csv::field(&classes[of[i] as usize]));
            writeln!(w, "{},{label},{x},{y}", csv::field(name))?;
        }
        Ok(())
    })?;
    let scatter = Scatter { points, groups };
    write_bytes(&svg, scatter.svg().as_bytes())?;
    write_bytes(&png, &scatter.png()?)?;
    Ok([csv, svg, png].iter().map(|path| path.display().to_string()).collect())
}
