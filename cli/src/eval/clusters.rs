//! `pcp eval clusters`.

use super::{Common, weights_row};
use crate::{progress, table};
use clap::Args;
use pcp::jobs::{
    Agreement, ClusterRow, ClustersReport, EpochFilter, EvalClusterCount, EvalClustersOptions, eval_clusters,
};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Result, listed};
use std::path::PathBuf;

#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp eval clusters runs/photos
  pcp eval clusters runs/c10 --k 20 --best
  pcp eval clusters runs/c10 --json | jq .filter

Scores are those of k-means on the test images, as papers have them, of as many clusters by neighbours (pcp cluster --by neighbours),
and of a number of clusters that is found (pcp cluster --k auto).
The list is of the run's own clusters, in the numbers of its page; with --k it is of this k-means. Purity, accuracy (every cluster
stands for a class of its own, at best), NMI and ARI need labels. The filter table says, for the clusters that the run learned from,
what share of what purification removed did not belong (precision), and what share of what did not belong it removed (recall).
Everything is also written to RUN/eval/clusters.json."
)]
pub struct EvalClustersArgs {
    /// A run folder
    run: PathBuf,
    /// Clusters: a number, or `classes` for as many as there are classes [default: classes; without labels, those of the run]
    #[arg(long, value_name = "classes|N")]
    k: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Clusters, and epochs of the filter, that are shown at the most.
const CLUSTERS_SHOWN: usize = 30;
const EPOCHS_SHOWN: usize = 8;

pub fn run(args: &EvalClustersArgs, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.common.threads)?;
    let k = args.k.as_deref().map(EvalClusterCount::parse).transpose()?.unwrap_or_default();
    let options = EvalClustersOptions { k, best: args.common.best, ..EvalClustersOptions::new(&args.run) };
    let report = eval_clusters(&options, &progress::job(args.common.json, stop))?;
    // Without a number of clusters, those of the run are listed.
    let own = args.k.is_none();
    if args.common.json { crate::print_json(&report) } else { crate::print(show(&report, own).trim_end()) }
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_string(), |s| format!("{:.1} %", 100.0 * s))
}

fn in_words(a: &Agreement) -> String {
    format!("accuracy {}, NMI {:.3}, ARI {:.3}", percent(Some(a.accuracy)), a.nmi, a.ari)
}

fn show(report: &ClustersReport, own: bool) -> String {
    let ClustersReport { origin, score, by_neighbours, any_number, of_run, filter } = report;
    let of = format!("{} clusters of {} {}, by k-means", score.k, score.images, origin.images_of);
    let mut rows = vec![("clustered".to_string(), of)];
    if let Some(a) = &score.agreement {
        let missed = if a.missed.is_empty() { "none".to_string() } else { listed(&a.missed) };
        rows.push(("purity".into(), percent(Some(a.purity))));
        rows.push(("classes that are no majority".into(), missed));
        rows.push(("accuracy (Hungarian)".into(), percent(Some(a.accuracy))));
        rows.push(("NMI".into(), format!("{:.3}", a.nmi)));
        rows.push(("ARI".into(), format!("{:.3}", a.ari)));
    }
    if let Some(a) = by_neighbours.as_ref().and_then(|near| near.agreement.as_ref()) {
        rows.push(("as many clusters by neighbours".into(), in_words(a)));
    }
    if let Some(any) = any_number {
        let agreement = any.score.agreement.as_ref().map_or(String::new(), |a| format!(": {}", in_words(a)));
        rows.push(("by neighbours, their number found".into(), format!("{} clusters{agreement}", any.score.k)));
        let purity = |share: Option<f64>| share.map_or(String::new(), |s| format!(", purity {}", percent(Some(s))));
        let sorted = any.score.images - any.unsorted;
        rows.push(("  of these, sorted".into(), format!("{sorted}{}", purity(any.purity_sorted))));
        rows.push(("  of these, unsorted".into(), format!("{}{}", any.unsorted, purity(any.purity_unsorted))));
    }
    let some = match score.silhouette_images < score.images {
        true => format!("  (of {} images, drawn at random)", score.silhouette_images),
        false => String::new(),
    };
    let silhouette = score.silhouette.map_or("not defined for these clusters".into(), |s| format!("{s:.3}{some}"));
    rows.push(("silhouette".into(), silhouette));
    rows.push(weights_row(&origin.weights));
    let mut text = table::columns(&rows);

    match of_run.as_ref().filter(|_| own) {
        Some(of_run) => {
            let purity = of_run.agreement.as_ref().map(|a| format!(", purity {}", percent(Some(a.purity))));
            text.push_str(&format!(
                "\n  the run's own clusters: {} of {} training images{}; numbers as on its page\n\n",
                of_run.clusters.len(),
                of_run.images,
                purity.unwrap_or_default()
            ));
            text.push_str(&cluster_table(&of_run.clusters));
        }
        None => {
            text.push_str("\n  the clusters of this k-means; the run's page numbers its own\n\n");
            text.push_str(&cluster_table(&score.clusters));
        }
    }
    if !filter.is_empty() {
        text.push_str("\n  what purification did to the clusters of the training images, of two members or more\n\n");
        text.push_str(&filter_table(filter));
    } else if score.agreement.is_none() {
        text.push_str("\n  there are no labels to hold the clusters against\n");
    }
    text
}

fn cluster_table(clusters: &[ClusterRow]) -> String {
    let head = ["cluster", "images", "purity", "majority"].map(String::from);
    let row = |c: &ClusterRow| {
        let majority = c.majority.clone().unwrap_or_default();
        [c.cluster.to_string(), c.size.to_string(), percent(c.purity), majority]
    };
    let mut text = aligned(head, clusters.iter().take(CLUSTERS_SHOWN).map(row));
    if clusters.len() > CLUSTERS_SHOWN {
        text.push_str(&format!("  and {} smaller ones\n", clusters.len() - CLUSTERS_SHOWN));
    }
    text
}

fn filter_table(filter: &[EpochFilter]) -> String {
    let head = [
        "round",
        "epoch",
        "clusters",
        "purity before",
        "after",
        "precision",
        "recall",
        "removed",
        "lost",
        "pulled back rightly",
    ];
    let row = |EpochFilter { round, epoch, score: s }: &EpochFilter| {
        [
            round.to_string(),
            epoch.to_string(),
            s.clusters.to_string(),
            percent(s.purity_before),
            percent(s.purity_after),
            percent(s.precision),
            percent(s.recall),
            s.removed.to_string(),
            s.lost.to_string(),
            format!("{} of {}", s.pulled_back_rightly, s.pulled_back),
        ]
    };
    // The first, some in between, the last.
    let shown = filter.len().min(EPOCHS_SHOWN);
    let place = |i: usize| i * (filter.len() - 1) / (shown - 1).max(1);
    aligned(head.map(String::from), (0..shown).map(|i| row(&filter[place(i)])))
}

/// A table with a heading; all but the last column to the right.
fn aligned<const N: usize>(head: [String; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(head).chain(rows).collect();
    let width = |c: usize| rows.iter().map(|row| row[c].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cell = |c: usize| if c + 1 < N { format!("{:>1$}", row[c], widths[c]) } else { row[c].clone() };
        format!("  {}\n", (0..N).map(cell).collect::<Vec<_>>().join("   ").trim_end())
    };
    rows.iter().map(line).collect()
}
