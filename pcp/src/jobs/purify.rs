//! Purification of any embeddings: which rows do not belong to their clusters, and which labels are probably wrong.

mod input;
mod labels;
mod output;
mod strangers;
#[cfg(test)]
mod tests;

use super::cluster::{ClusterCount, KMeansOptions, choose_k, fitted};
use super::part::on_pool;
use super::source::{EmbeddingSource, Embeddings};
use super::status_name;
use crate::observe::Observer;
use crate::report::strangers::unlike;
use input::Inputs;
use labels::CheckedLabels;
pub use labels::{LabelError, LabelSummary};
use pcp_core::cluster_count::Choice;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder_atomic, require_empty};
use pcp_core::kmeans::MultiStart;
use pcp_core::matrix::Matrix;
use pcp_core::matrix::Metric;
use pcp_core::purify::{History, Purified, Rules, Status, Votes, purify as purified_by};
use pcp_core::schedule::{PULL_BACK, greatest_vote};
use pcp_core::{history, outliers};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// What is purified, and how.
#[derive(Clone, Debug)]
pub struct PurifyOptions {
    /// Matrices of the same rows, the newest last, or one run.
    pub embeddings: Vec<EmbeddingSource>,
    /// The folder to make; it must be new or empty. Without one nothing is written.
    pub out: Option<PathBuf>,
    /// Number of clusters; otherwise those of the run, or for a matrix one per 50 rows, 2 to 1,000.
    pub k: Option<ClusterCount>,
    /// Share of a cluster that CP_r takes out, the farthest from its centre.
    pub gamma: f64,
    /// Past assignments for CP_s: CSV files with a column `cluster`, and perhaps `file`; the newest last.
    pub past: Vec<PathBuf>,
    /// Past clusterings that vote at the most, or how often k-means is repeated where there are none.
    pub votes: usize,
    /// How much a vote counts less for every step it is older; otherwise 0.8, or 1 for repeated k-means, which has no order.
    pub alpha: Option<f64>,
    /// Kept rows with a vote below this are dropped; otherwise 0, or with one past clustering the middle of its two votes.
    pub lower: Option<f64>,
    /// Rows taken out with at least this vote are pulled back; otherwise 0.617 of the greatest vote.
    pub upper: Option<f64>,
    /// CP_r alone.
    pub no_votes: bool,
    /// Labels to be checked: a CSV file with a column `label`, and perhaps `file`.
    pub labels: Option<PathBuf>,
    /// Decisions of `pcp serve` to honour: its file, or the run folder it is in. Images to remove and copies are left out, images to keep are
    /// kept, labels are as decided; clusters of a run are merged, split and named.
    pub decisions: Option<PathBuf>,
    /// How embeddings are read and clustered.
    pub kmeans: KMeansOptions,
}

impl PurifyOptions {
    /// The usual rules for one matrix or run; nothing is written.
    pub fn new(embeddings: impl Into<EmbeddingSource>) -> Self {
        PurifyOptions {
            embeddings: vec![embeddings.into()],
            out: None,
            k: None,
            gamma: 0.5,
            past: Vec::new(),
            votes: 15,
            alpha: None,
            lower: None,
            upper: None,
            no_votes: false,
            labels: None,
            decisions: None,
            kmeans: KMeansOptions::default(),
        }
    }
}

/// Where clusters come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClustersFrom {
    /// They are the run's.
    #[serde(rename = "the run")]
    Run,
    /// K-means with the number of clusters that has the greatest mean silhouette.
    #[serde(rename = "the greatest mean silhouette")]
    Silhouette,
    /// K-means.
    #[serde(rename = "k-means")]
    KMeans,
}

impl fmt::Display for ClustersFrom {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            ClustersFrom::Run => "the run",
            ClustersFrom::Silhouette => "the greatest mean silhouette",
            ClustersFrom::KMeans => "k-means",
        })
    }
}

/// Which past clusterings vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VotesFrom {
    /// Past assignments in files.
    #[serde(rename = "past assignments")]
    Files,
    /// None.
    #[serde(rename = "nothing")]
    Nothing,
    /// Those of earlier matrices.
    #[serde(rename = "the matrices before")]
    Matrices,
    /// Those of the run's epochs.
    #[serde(rename = "the run's epochs")]
    Epochs,
    /// K-means, repeated.
    #[serde(rename = "repeated k-means")]
    Repeated,
}

impl fmt::Display for VotesFrom {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            VotesFrom::Files => "past assignments",
            VotesFrom::Nothing => "nothing",
            VotesFrom::Matrices => "the matrices before",
            VotesFrom::Epochs => "the run's epochs",
            VotesFrom::Repeated => "repeated k-means",
        })
    }
}

/// Key figures of a purification; `summary.json` has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PurifySummary {
    /// Rows that were purified.
    pub rows: usize,
    /// Rows that were left out.
    pub unusable: usize,
    /// Of these, rows that decisions leave out.
    #[serde(default)]
    pub decided_out: usize,
    /// Columns.
    pub dim: usize,
    /// What counted as near.
    pub metric: Metric,
    /// The seed.
    pub seed: u64,
    /// Clusters.
    pub clusters: usize,
    /// Where they come from.
    pub clusters_from: ClustersFrom,
    /// Share that CP_r took out.
    pub gamma: f64,
    /// Which past clusterings voted.
    pub votes_from: VotesFrom,
    /// How many voted.
    pub votes: usize,
    /// How much a vote counted less for every step it was older; 0 without votes, as the next two.
    pub alpha: f64,
    /// Kept rows with a vote below this were dropped.
    pub lower: f64,
    /// Rows taken out with at least this vote were pulled back.
    pub upper: f64,
    /// Rows near their centre.
    pub kept: usize,
    /// Rows too far from their centre (CP_r).
    pub filtered: usize,
    /// Rows near their centre that were seldom in one cluster with it before (CP_s).
    pub dropped: usize,
    /// Rows far from their centre that were nearly always in one cluster with it before (CP_s).
    pub pulled_back: usize,
    /// Rows that are alone.
    pub instances: usize,
    /// Rows that are listed as most unlike all others: a guess.
    #[serde(default)]
    pub outliers: usize,
    /// What the check of the labels found, where there are labels.
    pub labels: Option<LabelSummary>,
    /// The folder that was made.
    pub out: Option<PathBuf>,
    /// Whether it has a page.
    pub sheet: bool,
}

/// A row of a purification.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PurifiedRow {
    /// Its number in the source.
    pub row: usize,
    /// Its cluster.
    pub cluster: u32,
    /// What became of it.
    #[serde(with = "status_name")]
    pub status: Status,
    /// Distance to the mean of its cluster.
    pub distance: f32,
    /// V(i), where past clusterings voted.
    pub vote: Option<f32>,
    /// How doubtful it is that it belongs, from 0 to 1.
    pub doubt: f32,
}

/// A purification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PurifyResult {
    /// Key figures.
    pub summary: PurifySummary,
    /// All rows that were purified, in order.
    pub rows: Vec<PurifiedRow>,
    /// Numbers of the rows that do not belong to their clusters, those that belong least first.
    pub suspicious: Vec<usize>,
    /// The rows that are most unlike all others, with their scores, the most unlike first: a guess. A twentieth of all, 200 at the most.
    pub outliers: Vec<(usize, f32)>,
    /// Labels that are more probably wrong than right, the most doubtful first.
    pub label_errors: Vec<LabelError>,
    /// Labels that are probably right, though another one fits better, the most doubtful first.
    pub doubtful_labels: Vec<LabelError>,
}

/// All that was found.
struct PurifiedRows {
    assignment: Vec<u32>,
    purified: Purified,
    doubts: Vec<f32>,
    suspicious: Vec<usize>,
    /// The rows that are most unlike all others, and how much.
    unlike: Vec<(usize, f32)>,
    labelled: Option<CheckedLabels>,
    choice: Option<Choice>,
}

/// Clusters, and the past clusterings that vote.
struct Clustered {
    assignment: Vec<u32>,
    clusters: usize,
    clusters_from: ClustersFrom,
    /// Newest first.
    past: Vec<Vec<u32>>,
    votes_from: VotesFrom,
    choice: Option<Choice>,
}

/// Purifies clusters of embeddings, and writes the folder `out` where one is given.
///
/// ```
/// use pcp::jobs::{ClusterCount, PurifyOptions, purify};
/// # use std::sync::Arc;
/// # let observer: Arc<dyn pcp::observe::Observer> = Arc::new(pcp::observe::Silent::default());
/// # let near = |x: f32, i: usize| (0..12).map(move |j| if j == i { [0.1, 1.0] } else { [1.0, x * j as f32] });
/// # let values: Vec<f32> = near(0.01, 5).flatten().collect();
/// let matrix = pcp_core::matrix::Matrix::new(2, values); // twelve rows; the sixth is unlike the others
/// let k = Some(ClusterCount::Exactly(1));
/// let options = PurifyOptions { k, gamma: 0.2, no_votes: true, ..PurifyOptions::new(matrix) };
/// let found = purify(&options, &observer)?;
/// assert!(found.suspicious.contains(&5));
/// # Ok::<(), pcp_core::error::Error>(())
/// ```
pub fn purify(options: &PurifyOptions, observer: &Arc<dyn Observer>) -> Result<PurifyResult> {
    check(options)?;
    let Inputs { embeddings, older, assignments, labels, run, decided } = Inputs::read(options, observer)?;
    let gallery = match options.kmeans.no_sheet || options.out.is_none() {
        true => None,
        false => embeddings.gallery(options.kmeans.images.as_deref(), observer)?,
    };
    let clustered = cluster(options, &embeddings, older, assignments, run, observer)?;
    let (votes, greatest) = votes(options, &clustered)?;
    let rules = Rules { gamma: Some(options.gamma), whole_up_to: 0, votes, stop_at_first_single: false };
    let mut summary = PurifySummary {
        rows: embeddings.features.rows,
        unusable: embeddings.unusable.len(),
        decided_out: embeddings.unusable.iter().filter(|u| u.reason == input::DECIDED).count(),
        dim: embeddings.features.dim,
        metric: options.kmeans.metric,
        seed: options.kmeans.seed,
        clusters: clustered.clusters,
        clusters_from: clustered.clusters_from,
        gamma: options.gamma,
        votes_from: clustered.votes_from,
        votes: clustered.past.len(),
        alpha: votes.map_or(0.0, |v| v.alpha),
        lower: votes.map_or(0.0, |v| v.lower),
        upper: votes.map_or(0.0, |v| v.upper),
        kept: 0,
        filtered: 0,
        dropped: 0,
        pulled_back: 0,
        instances: 0,
        outliers: 0,
        labels: None,
        out: options.out.clone(),
        sheet: false,
    };
    let features = embeddings.features.clone();
    let (count, seed) = (features.rows, options.kmeans.seed);
    let seen = gallery.as_ref().map(|gallery| strangers::described(gallery, count, observer)).transpose()?;
    let mut found = on_pool("purifying", count, observer, move |part| {
        let mut found = judge(&features, clustered, &rules, greatest);
        part.step(0, count)?;
        found.unlike = unlike(&features, seen.as_ref());
        part.step(0, count)?;
        let mut tick = |done| part.step(done, count);
        found.labelled = labels.map(|labels| CheckedLabels::new(&features, labels, seed, &mut tick)).transpose()?;
        part.step(count, count)?;
        Ok(found)
    })?;
    if let Some(decided) = &decided {
        keep(&mut found, &|i| decided.keeps(embeddings.name(i)));
    }
    output::count(&mut summary, &found);
    if let Some(out) = &options.out {
        make_folder_atomic(out, |out| {
            let names =
                decided.filter(|_| summary.clusters_from == ClustersFrom::Run).map(|d| d.names).unwrap_or_default();
            output::write_names(out, &names)?;
            output::write(out, &embeddings, &found, gallery, &mut summary, observer)
        })?;
    }
    Ok(result(summary, &embeddings, &found))
}

fn result(summary: PurifySummary, embeddings: &Embeddings, found: &PurifiedRows) -> PurifyResult {
    let p = &found.purified;
    let row = |i: usize| PurifiedRow {
        row: embeddings.rows[i],
        cluster: found.assignment[i],
        status: p.status[i],
        distance: p.distance[i],
        vote: Some(p.vote[i]).filter(|vote| !vote.is_nan()),
        doubt: found.doubts[i],
    };
    PurifyResult {
        summary,
        rows: (0..found.assignment.len()).map(row).collect(),
        suspicious: found.suspicious.iter().map(|i| embeddings.rows[*i]).collect(),
        outliers: found.unlike.iter().map(|(i, score)| (embeddings.rows[*i], *score)).collect(),
        label_errors: (found.labelled.iter().flat_map(CheckedLabels::errors))
            .map(|suspect| output::in_source(suspect, embeddings))
            .collect(),
        doubtful_labels: (found.labelled.iter().flat_map(CheckedLabels::doubtful))
            .map(|suspect| output::in_source(suspect, embeddings))
            .collect(),
    }
}

fn check(options: &PurifyOptions) -> Result<()> {
    options.out.as_deref().map_or(Ok(()), require_empty)?;
    options.kmeans.check()?;
    let wrong = |message: &str, hint: &str| Err(Error::usage(message, hint));
    let several = options.embeddings.len() > 1;
    if !(0.0..1.0).contains(&options.gamma) {
        return wrong("`gamma` is out of range", "give a share from 0 (keep all) to below 1");
    }
    if options.alpha.is_some_and(|a| !(a > 0.0 && a <= 1.0)) {
        return wrong("`alpha` is out of range", "give a number above 0, up to 1");
    }
    if options.votes == 0 && !options.no_votes {
        return wrong("`votes` is 0", "let at least one clustering vote, or leave CP_s out with `no_votes`");
    }
    if options.lower.is_some_and(|l| !l.is_finite()) || options.upper.is_some_and(|u| !u.is_finite()) {
        return wrong("`lower` and `upper` must be numbers", "leave them out for the paper's");
    }
    if options.k == Some(ClusterCount::Exactly(0)) {
        return wrong("`k` is 0", "give a number from 1 on, or auto");
    }
    if !options.past.is_empty() && several {
        let message = "use `past` or earlier matrices, not both";
        return wrong(message, "give the newest matrix alone with `past`, or leave `past` out");
    }
    if options.no_votes && several {
        return wrong("earlier matrices are there to vote", "give the newest alone, or leave `no_votes` out");
    }
    if options.kmeans.no_sheet && options.kmeans.images.is_some() {
        return wrong("`images` is for the page that `no_sheet` leaves out", "leave one of them out");
    }
    if several && options.embeddings.iter().any(EmbeddingSource::is_folder) {
        return wrong("a run folder stands alone", "give one run folder, or several matrices of the same rows");
    }
    Ok(())
}

fn cluster(
    options: &PurifyOptions,
    embeddings: &Embeddings,
    older: Vec<Arc<Matrix>>,
    mut assignments: Vec<Vec<u32>>,
    run: Option<(Vec<u32>, Vec<Vec<u32>>)>,
    observer: &Arc<dyn Observer>,
) -> Result<Clustered> {
    let rows = embeddings.features.rows;
    let mut fit = options.kmeans.fit((rows / 50).clamp(2, 1000).min(rows));
    let mut choice = None;
    let (own, run_past) = run.map_or((None, Vec::new()), |(last, past)| (Some(last), past));
    let (assignment, clusters, clusters_from) = match (own, options.k) {
        (Some(last), None) => {
            let clusters = last.iter().max().map_or(0, |c| *c as usize + 1);
            (last, clusters, ClustersFrom::Run)
        }
        (_, asked) => {
            if let Some(k) = asked {
                choice = choose_k(embeddings, &mut fit, k, observer)?;
            }
            let found = fitted("clustering", embeddings.features.clone(), fit, observer)?;
            let from = if choice.is_some() { ClustersFrom::Silhouette } else { ClustersFrom::KMeans };
            (found.assignment, fit.k, from)
        }
    };
    let (n, seed) = (options.votes, options.kmeans.seed);
    let mut votes_from = VotesFrom::Files;
    if options.no_votes {
        (assignments, votes_from) = (Vec::new(), VotesFrom::Nothing);
    } else if assignments.is_empty() && !older.is_empty() {
        votes_from = VotesFrom::Matrices;
        // The paper's way: one start, one seed for every step.
        for (i, features) in older.into_iter().enumerate() {
            let fit = MultiStart { starts: 1, seed: seed.wrapping_add(1 + i as u64), ..fit };
            assignments.push(fitted("the past", features, fit, observer)?.assignment);
        }
    } else if assignments.is_empty() && !run_past.is_empty() {
        (assignments, votes_from) = (run_past, VotesFrom::Epochs);
        // As many as the run let vote, so that as many are kept as the run says.
        let own = embeddings.run.as_ref().map_or(n, |(_, config)| config.purify.history);
        if assignments.len() >= own {
            assignments.truncate(own);
        }
    } else if assignments.is_empty() {
        votes_from = VotesFrom::Repeated;
        let features = embeddings.features.clone();
        let k = clusters.min(rows);
        assignments = on_pool("repeating", 0, observer, move |part| {
            history::repeated(&features, k, n, seed, &mut |done, all| part.step(done, all))
        })?;
    }
    Ok(Clustered { assignment, clusters, clusters_from, past: assignments, votes_from, choice })
}

/// The rules of CP_s and the greatest vote; no rules when there is no past.
fn votes(options: &PurifyOptions, clustered: &Clustered) -> Result<(Option<Votes>, f64)> {
    let n = clustered.past.len();
    if n == 0 {
        return Ok((None, 1.0));
    }
    let usual = if clustered.votes_from == VotesFrom::Repeated { 1.0 } else { 0.8 };
    let alpha = options.alpha.unwrap_or(usual);
    let greatest = greatest_vote(alpha, n);
    let upper = options.upper.unwrap_or(PULL_BACK * greatest);
    if upper > greatest {
        return Err(Error::usage(
            format!(
                "no vote can reach `upper` {upper}: with {n} past clusterings and `alpha` {alpha} the greatest is {greatest:.3}"
            ),
            "leave `upper` out, or give more of the past",
        ));
    }
    let least = 2.0 - greatest;
    let usual = if least < 0.0 { 0.0 } else { (least + greatest) / 2.0 };
    let lower = options.lower.unwrap_or(usual);
    if least >= lower {
        return Err(Error::usage(
            format!(
                "no vote can fall below `lower` {lower}: with {n} past clusterings and `alpha` {alpha} the least is {least:.3}"
            ),
            format!("give more of the past, a `lower` above {least:.3}, or `no_votes`"),
        ));
    }
    Ok((Some(Votes { alpha, lower, upper }), greatest))
}

/// Rows that somebody decided to keep are kept, and suspicious no more.
fn keep(found: &mut PurifiedRows, keeps: &dyn Fn(usize) -> bool) {
    for (i, status) in found.purified.status.iter_mut().enumerate() {
        if !status.belongs() && keeps(i) {
            *status = Status::Kept;
        }
    }
    let status = &found.purified.status;
    found.suspicious.retain(|i| !status[*i].belongs());
}

/// Purifies, and ranks what does not belong.
fn judge(features: &Matrix, clustered: Clustered, rules: &Rules, greatest: f64) -> PurifiedRows {
    let Clustered { assignment, clusters, past, choice, .. } = clustered;
    let purified = purified_by(features, &assignment, clusters, rules, &History::from_newest(past));
    let doubts = outliers::doubts(features, &assignment, clusters, &purified, greatest);
    let suspicious = outliers::ranked(&purified.status, &doubts);
    PurifiedRows { assignment, purified, doubts, suspicious, unlike: Vec::new(), labelled: None, choice }
}
