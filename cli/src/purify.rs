//! `pcp purify`.

use super::input::{EmbeddingsArgs, KMeansArgs, kmeans_options, written};
use super::{progress, table};
use clap::Args;
use pcp::jobs::{ClusterCount, LabelSummary, PurifyOptions, PurifySummary, purify};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp purify PHOTOS/                                                no training: which photographs may not belong? which labels (class folders) are wrong?
  pcp purify emb.npy --k 100 --out clean                            one matrix: CP_r, and CP_s by repeated k-means
  pcp purify emb.npy --k 100 --labels labels.csv --out clean        which labels are probably wrong?
  pcp purify day1.npy day2.npy day3.npy --k 100 --out clean         CP_s by the clusterings of days 1 and 2
  pcp purify emb.npy --k 100 --past old1.csv old2.csv --out clean   CP_s by past assignments (file,cluster), oldest first
  pcp purify runs/photos --out clean                                a run: its clusters, its past, its class folders as labels
  pcp purify runs/photos --decisions runs/photos --out clean        without what was removed on the page of pcp serve

The new folder holds clusters.csv (row, file, cluster, status, distance, vote, doubt), clean.csv (what belongs), suspicious.csv
(what was taken out of its cluster, the most doubtful first), with images outliers.csv (what is unlike all others, a guess), with --labels label_errors.csv (labels that are more probably wrong than right) and
doubtful_labels.csv (other labels that do not fit well), the most doubtful first, summary.json, and with images sheet.html; of files, outliers.txt, label_errors.txt and
suspicious.txt (paths for xargs) and links/. Nothing else is written, and no image is moved or changed. docs/purify.md says what each column means."
)]
pub struct PurifyArgs {
    /// A folder of images, a run folder, or matrices (.npy, .csv, .safetensors) of the same rows, the newest last
    #[arg(required = true, value_name = "FOLDER|RUN|EMB")]
    inputs: Vec<PathBuf>,
    /// The folder to make; it must be new or empty [default: findings/<input>-purify-<n>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Clusters: a number, or `auto` [default: those of the run; for a matrix one per 50 rows, 2 to 1,000]
    #[arg(long, value_name = "N|auto")]
    k: Option<String>,
    /// Share of a cluster that CP_r takes out, the farthest from its centre
    #[arg(long, default_value_t = 0.5)]
    gamma: f64,
    /// Past assignments for CP_s: CSV files with a column `cluster`, and perhaps `file`; the newest last
    #[arg(long, value_name = "FILE", num_args = 1..)]
    past: Vec<PathBuf>,
    /// Past clusterings that vote at the most, or how often k-means is repeated where there are none
    #[arg(long, value_name = "N", default_value_t = 15)]
    votes: usize,
    /// How much a vote counts less for every step it is older [default: 0.8; for repeated k-means, which has no order, 1]
    #[arg(long)]
    alpha: Option<f64>,
    /// Kept rows with a vote below this are dropped [default: 0; with one past clustering, the middle of its two votes]
    #[arg(long)]
    lower: Option<f64>,
    /// Rows taken out with at least this vote are pulled back [default: 0.617 of the greatest vote]
    #[arg(long)]
    upper: Option<f64>,
    /// CP_r alone
    #[arg(long, conflicts_with_all = ["past", "votes", "alpha", "lower", "upper"])]
    no_votes: bool,
    /// Labels to be doubted: a CSV file with a column `label`, and perhaps `file` [default: the class folders of a run or of a folder of images]
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Honour what was decided on the page of `pcp serve`: its decisions.jsonl, or the run folder it is in
    #[arg(long, value_name = "FILE|RUN")]
    decisions: Option<PathBuf>,
    #[command(flatten)]
    kmeans: KMeansArgs,
    #[command(flatten)]
    common: EmbeddingsArgs,
}

impl PurifyArgs {
    fn options(&self) -> Result<PurifyOptions> {
        Ok(PurifyOptions {
            embeddings: self.inputs.iter().map(|input| self.common.source(input)).collect::<Result<_>>()?,
            out: self.common.out(self.out.as_deref(), self.inputs.last(), "purify"),
            k: self.k.as_deref().map(ClusterCount::parse).transpose()?,
            gamma: self.gamma,
            past: self.past.clone(),
            votes: self.votes,
            alpha: self.alpha,
            lower: self.lower,
            upper: self.upper,
            no_votes: self.no_votes,
            labels: self.labels.clone(),
            decisions: self.decisions.clone(),
            kmeans: kmeans_options(&self.common, &self.kmeans),
        })
    }
}

pub fn run(args: &PurifyArgs, stop: &Cancel) -> Result<()> {
    super::use_threads(args.common.threads)?;
    let found = purify(&args.options()?, &progress::job(args.common.json, stop))?;
    if args.common.json { super::print_json(&found.summary) } else { super::print(show(&found.summary).trim_end()) }
}

/// The summary for people.
fn show(s: &PurifySummary) -> String {
    let share = |n: usize| format!("{n}  ({:.1} %)", 100.0 * n as f64 / s.rows.max(1) as f64);
    let votes = match s.votes {
        0 => "none: CP_r alone".to_string(),
        n => format!(
            "{n}, from {}; alpha {}, below {} dropped, from {:.3} pulled back",
            s.votes_from, s.alpha, s.lower, s.upper
        ),
    };
    let mut rows = vec![
        ("rows".to_string(), format!("{} of {} numbers", s.rows, s.dim)),
        ("clusters".into(), format!("{}, from {}", s.clusters, s.clusters_from)),
        ("votes".into(), votes),
        ("kept  (clean.csv)".into(), share(s.kept + s.pulled_back)),
        ("  of them pulled back".into(), s.pulled_back.to_string()),
        ("taken out of their clusters".into(), share(s.filtered + s.dropped + s.instances)),
        ("  filtered, dropped, alone".into(), format!("{}, {}, {}", s.filtered, s.dropped, s.instances)),
    ];
    if let Some(labels) = &s.labels {
        rows.extend(label_rows(labels));
    }
    if s.sheet {
        rows.push(("most unlike all others".into(), format!("{}, a guess  (outliers.csv)", s.outliers)));
    }
    if s.decided_out > 0 {
        rows.push(("left out by decision".into(), s.decided_out.to_string()));
    }
    rows.extend(written(s.unusable, s.out.as_deref(), s.sheet));
    table::columns(&rows)
}

/// What is known about wrong labels: the estimate, its interval, what the features can tell, and the list.
fn label_rows(labels: &LabelSummary) -> Vec<(String, String)> {
    let Some(noise) = labels.noise else {
        return vec![("wrong labels".into(), labels.sentence())];
    };
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let estimate = format!("about {}  (95 %: {} to {})", percent(noise.share), percent(noise.low), percent(noise.high));
    let recognised = format!("{:.0} % of wrong labels", 100.0 * noise.recognised);
    let features = match labels.weak {
        true => format!("too weak to tell: they recognise about {recognised}"),
        false => format!("recognise about {recognised}"),
    };
    vec![
        ("wrong labels".into(), estimate),
        ("  the features".into(), features),
        (
            "  more probably wrong than right".into(),
            format!("{}, of which about {:.0} are", labels.errors, labels.expected),
        ),
        ("  doubtful, but probably right".into(), labels.doubtful.to_string()),
    ]
}
