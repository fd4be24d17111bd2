//! `pcp purify`.

mod output;

use super::input::{Common, Input, Making, number_or_auto, with_bar};
use clap::Args as ClapArgs;
use pcp::run::RunFolder;
use pcp_core::cancel::Cancel;
use pcp_core::cluster_count::{Tried, choose};
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder_atomic, require_empty};
use pcp_core::io::matrix::{Unusable, without};
use pcp_core::kmeans::MultiStart;
use pcp_core::label_errors::{ClusterVote, RidgeProbe, Verdict};
use pcp_core::matrix::{Matrix, Metric};
use pcp_core::purify::{History, Purified, Rules, Votes, purify};
use pcp_core::schedule::{PULL_BACK, greatest_vote};
use pcp_core::{history, label_errors, labels, outliers};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(ClapArgs)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp purify emb.npy --k 100 --out clean                            one matrix: CP_r, and CP_s by repeated k-means
  pcp purify emb.npy --k 100 --labels labels.csv --out clean        which labels are probably wrong?
  pcp purify day1.npy day2.npy day3.npy --k 100 --out clean         CP_s by the clusterings of days 1 and 2
  pcp purify emb.npy --k 100 --past old1.csv old2.csv --out clean   CP_s by past assignments (file,cluster), oldest first
  pcp purify runs/photos --out clean                                a run: its clusters, its past

The new folder holds clusters.csv (row, file, cluster, status, distance, vote, doubt), clean.csv (what belongs), suspicious.csv
(what does not, the least first), with --labels label_errors.csv (the most doubtful labels first), summary.json, and with images
sheet.html. Nothing else is written, and no image is moved or changed. docs/purify.md says what each column means."
)]
pub struct Args {
    /// Matrices (.npy, .csv, .safetensors) of the same rows, the newest last, or a run folder
    #[arg(required = true, value_name = "EMB|RUN")]
    inputs: Vec<PathBuf>,
    /// The folder to make; it must be new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
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
    /// Labels to be doubted: a CSV file with a column `label`, and perhaps `file`
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    #[command(flatten)]
    making: Making,
    #[command(flatten)]
    common: Common,
}

/// What is said at the end.
#[derive(Serialize)]
struct Summary {
    rows: usize,
    unusable: usize,
    dim: usize,
    metric: Metric,
    seed: u64,
    clusters: usize,
    clusters_from: &'static str,
    gamma: f64,
    votes_from: &'static str,
    votes: usize,
    alpha: f64,
    lower: f64,
    upper: f64,
    kept: usize,
    filtered: usize,
    dropped: usize,
    pulled_back: usize,
    instances: usize,
    label_errors: Option<usize>,
    out: PathBuf,
    sheet: bool,
}

/// Labels and what their company says of them.
struct Labelled {
    classes: Vec<String>,
    of: Vec<Option<u32>>,
    verdicts: Vec<Option<Verdict>>,
    ranked: Vec<usize>,
}

/// All that was found.
struct Outcome {
    assignment: Vec<u32>,
    purified: Purified,
    doubts: Vec<f32>,
    suspicious: Vec<usize>,
    labelled: Option<Labelled>,
    tried: Option<(usize, Vec<Tried>)>,
}

/// Where clusters come from, and the past.
struct Clustered {
    assignment: Vec<u32>,
    clusters: usize,
    clusters_from: &'static str,
    /// Newest first.
    past: Vec<Vec<u32>>,
    past_from: &'static str,
    tried: Option<(usize, Vec<Tried>)>,
}

pub fn run(args: &Args, stop: &Cancel) -> Result<()> {
    super::use_threads(args.common.threads)?;
    require_empty(&args.out)?;
    check(args)?;
    let quiet = args.common.json;
    let Read { input, older, assignments, labels, run } = read(args)?;
    let gallery = match args.making.no_sheet {
        true => None,
        false => input.gallery(args.making.images.as_deref(), quiet, stop)?,
    };
    let clustered = cluster(args, &input, older, assignments, run, stop)?;
    let (votes, greatest) = votes(args, &clustered)?;
    let rules = Rules { gamma: Some(args.gamma), whole_up_to: 0, votes, stop_at_first_single: false };
    let mut summary = Summary {
        rows: input.features.rows,
        unusable: input.unusable.len(),
        dim: input.features.dim,
        metric: args.common.metric.into(),
        seed: args.common.seed,
        clusters: clustered.clusters,
        clusters_from: clustered.clusters_from,
        gamma: args.gamma,
        votes_from: clustered.past_from,
        votes: clustered.past.len(),
        alpha: votes.map_or(0.0, |v| v.alpha),
        lower: votes.map_or(0.0, |v| v.lower),
        upper: votes.map_or(0.0, |v| v.upper),
        kept: 0,
        filtered: 0,
        dropped: 0,
        pulled_back: 0,
        instances: 0,
        label_errors: None,
        out: args.out.clone(),
        sheet: false,
    };
    let features = input.features.clone();
    let found = with_bar("purifying", quiet, stop, move |step| {
        step(0, 1)?;
        let found = judge(&features, clustered, labels, &rules, greatest);
        step(1, 1)?;
        Ok(found)
    })?;
    output::count(&mut summary, &found);
    make_folder_atomic(&args.out, |out| {
        output::write(out, &input, &found, gallery.as_ref(), args.making.no_sheet, &mut summary)
    })?;
    if args.common.json { super::print_json(&summary) } else { super::print(output::show(&summary).trim_end()) }
}

fn check(args: &Args) -> Result<()> {
    args.making.check()?;
    let wrong = |message: &str, hint: &str| Err(Error::usage(message, hint));
    if !(0.0..1.0).contains(&args.gamma) {
        return wrong("--gamma is out of range", "give a share from 0 (keep all) to below 1");
    }
    if args.alpha.is_some_and(|a| !(a > 0.0 && a <= 1.0)) {
        return wrong("--alpha is out of range", "give a number above 0, up to 1");
    }
    if args.votes == 0 && !args.no_votes {
        return wrong("--votes is 0", "let at least one clustering vote, or leave CP_s out with --no-votes");
    }
    if args.lower.is_some_and(|l| !l.is_finite()) || args.upper.is_some_and(|u| !u.is_finite()) {
        return wrong("--lower and --upper must be numbers", "leave them out for the paper's");
    }
    if !args.past.is_empty() && args.inputs.len() > 1 {
        let message = "--past and earlier matrices are two pasts";
        return wrong(message, "give the newest matrix alone with --past, or leave --past out");
    }
    if args.no_votes && args.inputs.len() > 1 {
        return wrong("earlier matrices are there to vote", "give the newest alone, or leave --no-votes out");
    }
    if args.making.no_sheet && args.making.images.is_some() {
        return wrong("--images is for the page that --no-sheet leaves out", "leave one of them out");
    }
    if args.inputs.len() > 1 && args.inputs.iter().any(|path| path.is_dir()) {
        return wrong("a run folder stands alone", "give one run folder, or several matrices of the same rows");
    }
    Ok(())
}

/// What the files hold, without the rows that cannot be used.
struct Read {
    /// The newest matrix.
    input: Input,
    /// Those before it, newest first.
    older: Vec<Arc<Matrix>>,
    /// Past assignments, newest first.
    assignments: Vec<Vec<u32>>,
    labels: Option<(Vec<String>, Vec<Option<u32>>)>,
    /// Final clusters of a run, and those of its epochs, newest first.
    run: Option<(Vec<u32>, Vec<Vec<u32>>)>,
}

fn read(args: &Args) -> Result<Read> {
    let metric = Metric::from(args.common.metric);
    let Some((newest, before)) = args.inputs.split_last() else {
        return Err(Error::usage("there is no matrix", "give one, or a run folder"));
    };
    let input = Input::read(newest, args.common.files.as_deref())?;
    let (rows, names) = (input.features.rows, input.names.as_deref());
    let mut bad = input.bad(&args.common)?;
    let mut older = Vec::new();
    for path in before.iter().rev().take(args.votes) {
        let other = Input::read(path, args.common.files.as_deref())?;
        if other.features.rows != rows {
            let message =
                format!("{} has {} rows, {} has {rows}", path.display(), other.features.rows, newest.display());
            return Err(Error::data(message, "give matrices of the same images in the same order"));
        }
        bad.extend(other.bad(&args.common)?);
        older.push(other);
    }
    let past_files = args.past.iter().rev().take(args.votes);
    let assignments: Vec<Vec<u32>> = past_files.map(|path| history::read(path, rows, names)).collect::<Result<_>>()?;
    let labels = args.labels.as_deref().map(|path| labels::read(path, rows, names)).transpose()?;
    let run = input.run.as_ref().map(|(run, _)| run_clusters(run, rows, args.votes)).transpose()?;
    // A row that one matrix cannot use is left out of all.
    bad.sort_by_key(|u: &Unusable| u.row);
    bad.dedup_by_key(|u| u.row);
    let out: Vec<usize> = bad.iter().map(|u| u.row).collect();
    let kept = |all: Vec<Vec<u32>>| all.into_iter().map(|labels| without(labels, &out)).collect::<Vec<_>>();
    Ok(Read {
        older: older.into_iter().map(|other| other.ready(bad.clone(), metric).features).collect(),
        assignments: kept(assignments),
        labels: labels.map(|(classes, of)| (classes, without(of, &out))),
        run: run.map(|(last, past)| (without(last, &out), kept(past))),
        input: input.ready(bad, metric),
    })
}

/// The final clusters of a run, and those of its last epochs, newest first; epochs in which nothing was clustered do not count.
fn run_clusters(run: &RunFolder, rows: usize, most: usize) -> Result<(Vec<u32>, Vec<Vec<u32>>)> {
    let fits = |labels: Vec<u32>, what: &str| match labels.len() == rows {
        true => Ok(labels),
        false => Err(Error::file(
            format!("{what} of {} has {} rows, embeddings.npy has {rows}", run.path().display(), labels.len()),
            "restore the files, or run it again",
        )),
    };
    let last = fits(run.read_final_clusters()?.cluster, "clusters.csv")?;
    let mut past = Vec::new();
    for epoch in run.epochs_with_clusters().into_iter().rev() {
        let labels = fits(run.read_epoch_clusters(epoch)?.cluster, "clusters/")?;
        let mut distinct = labels.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() == labels.len() || past.len() == most {
            break;
        }
        past.push(labels);
    }
    Ok((last, past))
}

fn cluster(
    args: &Args,
    input: &Input,
    older: Vec<Arc<Matrix>>,
    mut assignments: Vec<Vec<u32>>,
    run: Option<(Vec<u32>, Vec<Vec<u32>>)>,
    stop: &Cancel,
) -> Result<Clustered> {
    let (quiet, rows) = (args.common.json, input.features.rows);
    let usual = (rows / 50).clamp(2, 1000).min(rows);
    let (mut fit, mut tried) = (
        MultiStart {
            k: usual,
            metric: args.common.metric.into(),
            iterations: args.making.iterations,
            starts: args.making.starts,
            seed: args.common.seed,
        },
        None,
    );
    let (own, run_past) = run.map_or((None, Vec::new()), |(last, past)| (Some(last), past));
    let (assignment, clusters, clusters_from) = match (own, &args.k) {
        (Some(last), None) => {
            let clusters = last.iter().max().map_or(0, |c| *c as usize + 1);
            (last, clusters, "the run")
        }
        (_, asked) => {
            if let Some(text) = asked {
                match number_or_auto("--k", text)? {
                    Some(k) => fit.k = k,
                    None => {
                        let features = input.features.clone();
                        let chosen = with_bar("choosing k", quiet, stop, move |step| choose(&features, &fit, step))?;
                        fit.k = chosen.0;
                        tried = Some(chosen);
                    }
                }
            }
            let features = input.features.clone();
            let found = with_bar("clustering", quiet, stop, move |step| fit.run(&features, step))?;
            (found.assignment, fit.k, if tried.is_some() { "the greatest mean silhouette" } else { "k-means" })
        }
    };
    let (n, seed) = (args.votes, args.common.seed);
    let mut past_from = "past assignments";
    if args.no_votes {
        (assignments, past_from) = (Vec::new(), "nothing");
    } else if assignments.is_empty() && !older.is_empty() {
        past_from = "the matrices before";
        // The paper's way: one start, one seed for every step.
        for (i, features) in older.into_iter().enumerate() {
            let fit = MultiStart { starts: 1, seed: seed.wrapping_add(1 + i as u64), ..fit };
            let found = with_bar("the past", quiet, stop, move |step| fit.run(&features, step))?;
            assignments.push(found.assignment);
        }
    } else if assignments.is_empty() && !run_past.is_empty() {
        (assignments, past_from) = (run_past, "the run's epochs");
    } else if assignments.is_empty() {
        past_from = "repeated k-means";
        let features = input.features.clone();
        let k = clusters.min(rows);
        assignments = with_bar("repeating", quiet, stop, move |step| history::repeated(&features, k, n, seed, step))?;
    }
    Ok(Clustered { assignment, clusters, clusters_from, past: assignments, past_from, tried })
}

/// The rules of CP_s and the greatest vote; nothing when there is no past.
fn votes(args: &Args, clustered: &Clustered) -> Result<(Option<Votes>, f64)> {
    let n = clustered.past.len();
    if n == 0 {
        return Ok((None, 1.0));
    }
    let usual = if clustered.past_from == "repeated k-means" { 1.0 } else { 0.8 };
    let alpha = args.alpha.unwrap_or(usual);
    let greatest = greatest_vote(alpha, n);
    let upper = args.upper.unwrap_or(PULL_BACK * greatest);
    if upper > greatest {
        return Err(Error::usage(
            format!(
                "no vote can reach --upper {upper}: with {n} past clusterings and --alpha {alpha} the greatest is {greatest:.3}"
            ),
            "leave --upper out, or give more of the past",
        ));
    }
    let least = 2.0 - greatest;
    let usual = if least < 0.0 { 0.0 } else { (least + greatest) / 2.0 };
    let lower = args.lower.unwrap_or(usual);
    if least >= lower {
        return Err(Error::usage(
            format!(
                "no vote can fall below --lower {lower}: with {n} past clusterings and --alpha {alpha} the least is {least:.3}"
            ),
            format!("give more of the past, a --lower above {least:.3}, or --no-votes"),
        ));
    }
    Ok((Some(Votes { alpha, lower, upper }), greatest))
}

/// Purifies, and ranks what does not belong.
fn judge(
    features: &Matrix,
    clustered: Clustered,
    labels: Option<(Vec<String>, Vec<Option<u32>>)>,
    rules: &Rules,
    greatest: f64,
) -> Outcome {
    let Clustered { assignment, clusters, past, tried, .. } = clustered;
    let history = History::from_newest(past);
    let purified = purify(features, &assignment, clusters, rules, &history);
    let doubts = outliers::doubts(features, &assignment, clusters, &purified, greatest);
    let suspicious = outliers::ranked(&purified.status, &doubts);
    let past: Vec<Vec<u32>> = history.iter().cloned().collect();
    let labelled = labels.map(|(classes, of)| {
        let probe = RidgeProbe::fit(features, &of, classes.len());
        let vote = ClusterVote::new(features, &assignment, &purified, &past, rules);
        let verdicts = vote.verdicts(&of, classes.len(), probe.as_ref());
        let ranked = label_errors::ranked(&of, &verdicts);
        Labelled { classes, of, verdicts, ranked }
    });
    Outcome { assignment, purified, doubts, suspicious, labelled, tried }
}
