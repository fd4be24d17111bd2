//! Flags that the verbs about embeddings share, and the last lines of what they print.

use clap::{Args, ValueEnum};
use pcp::jobs::{EmbeddingSource, KMeansOptions, findings};
use pcp_core::error::Result;
use pcp_core::matrix::Metric;
use std::path::{Path, PathBuf};

/// Flags of every verb that clusters embeddings.
#[derive(Args)]
pub struct EmbeddingsArgs {
    /// The model that gives the features of a folder of images: a run folder or a model file [default: clusters of patches, learned from
    /// the images in seconds]
    #[arg(long, value_name = "MODEL")]
    pub model: Option<PathBuf>,
    /// Which of the model's features: embedding, pooled, whitened (pooled, partially whitened), or a layer [default: embedding]
    #[arg(long, value_name = "NAME", requires = "model")]
    pub features: Option<String>,
    /// Names of the rows: a CSV file with a column `file` [default: EMB.files.csv for EMB.npy, or files.csv beside it]
    #[arg(long, value_name = "FILE")]
    pub files: Option<PathBuf>,
    /// What counts as near
    #[arg(long, value_enum, default_value = "cosine")]
    pub metric: MetricArg,
    /// Leave out rows that cannot be used (not a number, infinite, zero), and list them
    #[arg(long)]
    pub skip_bad_rows: bool,
    /// Everything random follows from it
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub threads: usize,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

impl EmbeddingsArgs {
    /// The folder to make: as given, or a new one below findings/. With --json and without a folder nothing is written.
    pub fn out(&self, given: Option<&Path>, input: Option<&PathBuf>, verb: &str) -> Option<PathBuf> {
        let fresh =
            || input.filter(|_| !self.json).map(|input| findings::fresh_path(&input.display().to_string(), verb));
        given.map(Path::to_path_buf).or_else(fresh)
    }

    /// What `input` and these flags name.
    pub fn source(&self, input: &Path) -> Result<EmbeddingSource> {
        EmbeddingSource::with_model(input, self.model.as_deref(), self.features.as_deref())
    }
}

/// Flags of k-means and of the page.
#[derive(Args)]
pub struct KMeansArgs {
    /// The folder that the names of the images are below [default: the run's]
    #[arg(long, value_name = "DIR")]
    pub images: Option<PathBuf>,
    /// Starts of k-means, of which the best counts; clusters that a run has made need none
    #[arg(long, default_value_t = 3)]
    pub starts: u32,
    /// Updates of the centroids at the most (20 where k-means is repeated for votes)
    #[arg(long, default_value_t = 30)]
    pub iterations: usize,
    /// Write no page, even where there are images
    #[arg(long)]
    pub no_sheet: bool,
}

/// The options of both.
pub fn kmeans_options(embeddings: &EmbeddingsArgs, kmeans: &KMeansArgs) -> KMeansOptions {
    KMeansOptions {
        files: embeddings.files.clone(),
        metric: embeddings.metric.into(),
        skip_bad_rows: embeddings.skip_bad_rows,
        starts: kmeans.starts,
        iterations: kmeans.iterations,
        seed: embeddings.seed,
        images: kmeans.images.clone(),
        no_sheet: kmeans.no_sheet,
    }
}

/// The last lines about a folder that was made: rows left out, where it is, its page.
pub fn written(unusable: usize, out: Option<&Path>, sheet: bool) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    if unusable > 0 {
        rows.push(("rows left out".to_string(), format!("{unusable}  (unusable.csv)")));
    }
    if let Some(out) = out {
        rows.push(("written".into(), out.display().to_string()));
        if sheet {
            rows.push(("page".into(), out.join("sheet.html").display().to_string()));
        }
    }
    rows
}

#[derive(Clone, Copy, ValueEnum)]
pub enum MetricArg {
    /// The angle between rows
    Cosine,
    /// The straight line between rows
    Euclidean,
}

impl From<MetricArg> for Metric {
    fn from(metric: MetricArg) -> Metric {
        match metric {
            MetricArg::Cosine => Metric::Cosine,
            MetricArg::Euclidean => Metric::Euclidean,
        }
    }
}
