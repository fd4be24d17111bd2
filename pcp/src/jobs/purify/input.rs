//! What a purification reads: matrices, past assignments, labels, the clusters of a run.

use super::PurifyOptions;
use crate::decisions::{self, Decided};
use crate::jobs::source::Embeddings;
use crate::observe::Observer;
use crate::run::RunFolder;
use pcp_core::error::{Error, Result};
use pcp_core::io::matrix::{Unusable, without};
use pcp_core::matrix::Matrix;
use pcp_core::{history, labels};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Everything without the rows that cannot be used.
pub(super) struct Inputs {
    /// The newest matrix.
    pub embeddings: Embeddings,
    /// Those before it, newest first.
    pub older: Vec<Arc<Matrix>>,
    /// Past assignments, newest first.
    pub assignments: Vec<Vec<u32>>,
    /// Classes, and that of every row.
    pub labels: Option<(Vec<String>, Vec<Option<u32>>)>,
    /// Final clusters of a run, and those of its epochs, newest first.
    pub run: Option<(Vec<u32>, Vec<Vec<u32>>)>,
    /// What was decided.
    pub decided: Option<Decided>,
}

/// The reason of rows that decisions leave out.
pub(super) const DECIDED: &str = "left out by decision";

impl Inputs {
    pub(super) fn read(options: &PurifyOptions, observer: &Arc<dyn Observer>) -> Result<Inputs> {
        let kmeans = &options.kmeans;
        let (metric, files, seed) = (kmeans.metric, kmeans.files.as_deref(), kmeans.seed);
        let Some((newest, before)) = options.embeddings.split_last() else {
            return Err(Error::usage("there is no matrix", "give one, or a run folder"));
        };
        let embeddings = Embeddings::read(newest, files, seed, observer)?;
        let (rows, names) = (embeddings.features.rows, embeddings.names.as_deref());
        let mut bad = embeddings.bad_rows(metric, kmeans.skip_bad_rows)?;
        let mut older = Vec::new();
        for source in before.iter().rev().take(options.votes) {
            let other = Embeddings::read(source, files, seed, observer)?;
            if other.features.rows != rows {
                let message =
                    format!("{} has {} rows, {} has {rows}", other.shown, other.features.rows, embeddings.shown);
                return Err(Error::data(message, "give matrices of the same images in the same order"));
            }
            bad.extend(other.bad_rows(metric, kmeans.skip_bad_rows)?);
            older.push(other);
        }
        let past_files = options.past.iter().rev().take(options.votes);
        let assignments: Vec<Vec<u32>> =
            past_files.map(|path| history::read(path, rows, names)).collect::<Result<_>>()?;
        // Class folders are labels, those of a run or of the images themselves.
        let of_run = embeddings.run.as_ref().map(|(run, _)| run);
        let classes = |run: &&RunFolder| {
            let files = run.read_files().unwrap_or_default();
            files.into_iter().filter_map(|file| file.label).collect::<BTreeSet<_>>().len()
        };
        let of_run = of_run.filter(|run| classes(run) > 1);
        let file = options.labels.clone().or_else(|| of_run.map(|run| run.file("files.csv")));
        let labels = match file {
            Some(path) => Some(labels::read(&path, rows, names)?),
            None => class_folders(&embeddings.class_folders),
        };
        let run = embeddings.run.as_ref().map(|(run, _)| run_clusters(run, rows, options.votes)).transpose()?;
        let decided = options.decisions.as_deref().map(decisions::read).transpose()?;
        let (mut labels, mut run) = (labels, run);
        if let Some(decided) = &decided {
            let Some(names) = names else {
                let hint = "give them with `files`, a CSV file with a column file and a line per row";
                return Err(Error::usage("`decisions` are about images by name, and the rows have no names", hint));
            };
            bad.extend(left_out(decided, names, &bad));
            if let Some(labels) = &mut labels {
                relabel(decided, names, labels);
            }
            if let Some((last, _)) = &mut run {
                regroup(decided, names, last)?;
            }
        }
        // A row that one matrix cannot use is left out of all.
        bad.sort_by_key(|u: &Unusable| u.row);
        bad.dedup_by_key(|u| u.row);
        let out: Vec<usize> = bad.iter().map(|u| u.row).collect();
        let kept = |all: Vec<Vec<u32>>| all.into_iter().map(|labels| without(labels, &out)).collect::<Vec<_>>();
        Ok(Inputs {
            older: older.into_iter().map(|other| other.ready(bad.clone(), metric).features).collect(),
            assignments: kept(assignments),
            labels: labels.map(|(classes, of)| (classes, without(of, &out))),
            run: run.map(|(last, past)| (without(last, &out), kept(past))),
            embeddings: embeddings.ready(bad, metric),
            decided,
        })
    }
}

/// Class folders as labels: the classes, and that of every row. Nothing where there are not two.
fn class_folders(folders: &[Option<String>]) -> Option<(Vec<String>, Vec<Option<u32>>)> {
    let classes: Vec<String> = folders.iter().flatten().cloned().collect::<BTreeSet<_>>().into_iter().collect();
    let number = |folder: &String| classes.binary_search(folder).ok().map(|class| class as u32);
    let of = folders.iter().map(|folder| folder.as_ref().and_then(number)).collect();
    (classes.len() > 1).then_some((classes, of))
}

/// Rows that decisions leave out; those that are `bad` already keep their reason.
fn left_out(decided: &Decided, names: &[String], bad: &[Unusable]) -> Vec<Unusable> {
    let known: BTreeSet<usize> = bad.iter().map(|unusable| unusable.row).collect();
    let rows = (0..names.len()).filter(|row| decided.leaves_out(&names[*row]) && !known.contains(row));
    rows.map(|row| Unusable { row, reason: DECIDED }).collect()
}

/// Replaces the labels that were decided; new ones become classes.
fn relabel(decided: &Decided, names: &[String], (classes, of): &mut (Vec<String>, Vec<Option<u32>>)) {
    for (name, of) in names.iter().zip(of) {
        let Some(label) = decided.labels.get(name) else { continue };
        let known = classes.iter().position(|class| class == label);
        let class = known.unwrap_or_else(|| {
            classes.push(label.clone());
            classes.len() - 1
        });
        *of = Some(class as u32);
    }
}

/// Merges and splits clusters as decided.
fn regroup(decided: &Decided, names: &[String], clusters: &mut [u32]) -> Result<()> {
    // The page numbers new clusters after the old ones.
    let most = clusters.iter().max().map_or(0, |c| *c as usize + 1) + names.len();
    for (name, cluster) in names.iter().zip(clusters) {
        *cluster = decided.cluster(name, *cluster);
        if *cluster as usize > most {
            let message = format!("`decisions` put {name} into cluster {cluster}, and there are not so many");
            return Err(Error::data(message, "give the decisions that belong to this run"));
        }
    }
    Ok(())
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
    for epoch in run.epochs_with_clusters()?.into_iter().rev() {
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
