//! Clusters of a run's features compared with the classes, and what purification did to the clusters it learned from.

use crate::data::Labels;
use crate::run::RunFolder;
use pcp_core::cancel::Progress;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::is_there;
use pcp_core::kmeans::{KMeans, MultiStart, best_of, kmeans_with};
use pcp_core::matrix::{Matrix, Metric};
use pcp_core::rng::{Key, Purpose};
use pcp_core::scores::{Contingency, FilterScore, silhouette};
use pcp_core::spectral;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Starts of k-means, of which the best counts.
pub const STARTS: u32 = 10;
/// Iterations of each.
const ITERATIONS: usize = 50;
/// Samples of the silhouette at the most: it looks at all pairs.
const PAIRED: usize = 10_000;

/// k-means clusters of images, and how they agree with the classes. Scores have scikit-learn's scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterScore {
    /// Images clustered.
    pub images: usize,
    /// Clusters asked for.
    pub k: usize,
    /// Sum of the squared distances to the centroids.
    pub objective: f64,
    /// Mean silhouette; `None` where it is not defined.
    pub silhouette: Option<f64>,
    /// How many images the silhouette looked at; fewer than all when there are very many.
    pub silhouette_images: usize,
    /// Agreement with the classes, where they are known.
    pub agreement: Option<Agreement>,
    /// Every cluster, the largest first.
    pub clusters: Vec<ClusterRow>,
}

/// How clusters agree with classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Share of images that are of their cluster's majority.
    pub purity: f64,
    /// Classes that are no cluster's majority.
    pub missed: Vec<String>,
    /// Share that is right when every cluster stands for a class of its own, for the best such assignment.
    pub accuracy: f64,
    /// Normalised mutual information.
    pub nmi: f64,
    /// Adjusted Rand index.
    pub ari: f64,
}

/// Clusters by neighbours whose number was not given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnyNumberScore {
    /// The clusters.
    pub score: ClusterScore,
    /// Images that few of their nearest neighbours agree with.
    pub unsorted: usize,
    /// Share of the others that are of their cluster's majority.
    pub purity_sorted: Option<f64>,
    /// The same of the unsorted ones.
    pub purity_unsorted: Option<f64>,
}

/// One cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterRow {
    /// Its number.
    pub cluster: usize,
    /// Its images.
    pub size: usize,
    /// The class that most of them are of.
    pub majority: Option<String>,
    /// The share of that class.
    pub purity: Option<f64>,
}

/// What purification did in one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochFilter {
    /// The round.
    pub round: u32,
    /// The epoch in it.
    pub epoch: u32,
    /// Its scores against the labels.
    #[serde(flatten)]
    pub score: FilterScore,
}

/// Clusters `features` of the images `ids` into `k`, by the best of [`STARTS`] starts drawn from `seed`; `on_start` is told before
/// each iteration how many starts are done, and its error ends the work.
pub fn score(
    features: &Matrix,
    ids: &[u64],
    labels: Option<&Labels>,
    k: usize,
    seed: u64,
    on_start: &mut dyn FnMut(u32) -> Result<()>,
) -> Result<ClusterScore> {
    let best = best_of(STARTS, |start| {
        let settings = KMeans { iterations: ITERATIONS, ids: Some(ids), seed, draw: (0, start), ..KMeans::new(k) };
        kmeans_with(features, &settings, &mut |_| on_start(start))
    })?;
    on_start(STARTS)?;
    Ok(scored(features, ids, labels, &best.assignment, k, best.objective, seed))
}

/// As [`score`], of clusters that chains of neighbours connect ([`spectral`]). `step` is told the steps done and those of all.
pub fn score_by_neighbours(
    features: &Matrix,
    ids: &[u64],
    labels: Option<&Labels>,
    k: usize,
    seed: u64,
    step: Progress,
) -> Result<ClusterScore> {
    let fit = MultiStart { k, metric: Metric::Cosine, iterations: ITERATIONS, starts: STARTS, seed };
    let found = spectral::clusters(features, &fit, step)?.clusters;
    Ok(scored(features, ids, labels, &found.assignment, k, found.objective, seed))
}

/// As [`score_by_neighbours`], with as many clusters as there seem to be.
pub fn score_of_any_number(
    features: &Matrix,
    ids: &[u64],
    labels: Option<&Labels>,
    seed: u64,
    step: Progress,
) -> Result<AnyNumberScore> {
    let fit = MultiStart { k: 0, metric: Metric::Cosine, iterations: ITERATIONS, starts: STARTS, seed };
    let (found, choice) = spectral::clusters_of_any_number(features, &fit, step)?;
    let (assignment, k) = (&found.clusters.assignment, choice.k);
    let (unsorted, sorted): (Vec<usize>, Vec<usize>) =
        (0..features.rows).partition(|i| spectral::is_unsorted(found.agreement[*i]));
    let table = labels.map(|labels| (labels, Contingency::new(assignment, &labels.of, k, labels.classes.len())));
    // Of these rows, the share that are of their cluster's majority.
    let purity = |rows: &[usize]| {
        let (labels, table) = table.as_ref().filter(|_| !rows.is_empty())?;
        let majority = |i: usize| table.majority(assignment[i] as usize).map(|(class, _)| class);
        let right = rows.iter().filter(|i| majority(**i) == Some(labels.of[**i])).count();
        Some(right as f64 / rows.len() as f64)
    };
    Ok(AnyNumberScore {
        unsorted: unsorted.len(),
        purity_sorted: purity(&sorted),
        purity_unsorted: purity(&unsorted),
        score: scored(features, ids, labels, assignment, k, found.clusters.objective, seed),
    })
}

/// The final clusters of `run`, in its own numbers, compared with its classes; `None` where it has none yet.
pub fn of_run(run: &RunFolder, seed: u64) -> Result<Option<ClusterScore>> {
    if !is_there(&run.file("clusters.csv"))? || !is_there(&run.file("embeddings.npy"))? {
        return Ok(None);
    }
    let (grouping, features, files) = (run.read_final_clusters()?, run.read_embeddings()?, run.read_files()?);
    if grouping.cluster.len() != features.rows || files.len() != features.rows {
        let message = format!("the clusters of {} do not fit its embeddings", run.path().display());
        return Err(Error::file(message, "restore the files, or run it again"));
    }
    let names: Option<Vec<&str>> = files.iter().map(|f| f.label.as_deref()).collect();
    let labels = names.map(|names| {
        let classes: Vec<&str> = names.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let of = names.iter().map(|name| classes.binary_search(name).unwrap_or_default() as u32).collect();
        Labels { classes: classes.into_iter().map(String::from).collect(), of }
    });
    let ids: Vec<u64> = files.iter().map(|file| file.id).collect();
    let k = grouping.cluster.iter().max().map_or(0, |c| *c as usize + 1);
    let objective = grouping.distance.iter().map(|d| f64::from(*d).powi(2)).sum();
    let mut found = scored(&features, &ids, labels.as_ref(), &grouping.cluster, k, objective, seed);
    found.clusters.retain(|cluster| cluster.size > 0);
    Ok(Some(found))
}

/// How the clusters of `assignment` agree with the classes.
fn scored(
    features: &Matrix,
    ids: &[u64],
    labels: Option<&Labels>,
    assignment: &[u32],
    k: usize,
    objective: f64,
    seed: u64,
) -> ClusterScore {
    let (rows, of) = sample(features, ids, assignment, seed);
    let table = labels.map(|labels| (Contingency::new(assignment, &labels.of, k, labels.classes.len()), labels));
    let name = |labels: &Labels, class: u32| labels.classes[class as usize].clone();
    let agreement = table.as_ref().map(|(table, labels)| Agreement {
        purity: table.purity(),
        missed: table.missed().into_iter().map(|class| name(labels, class)).collect(),
        accuracy: table.accuracy(),
        nmi: table.nmi(),
        ari: table.ari(),
    });
    let mut sizes = vec![0; k];
    assignment.iter().for_each(|&c| sizes[c as usize] += 1);
    let row = |(cluster, &size): (usize, &usize)| {
        let majority = table.as_ref().and_then(|(table, labels)| Some((table.majority(cluster)?, *labels)));
        ClusterRow {
            cluster,
            size,
            majority: majority.map(|((class, _), labels)| name(labels, class)),
            purity: majority.map(|((_, count), _)| count as f64 / size as f64),
        }
    };
    let mut clusters: Vec<ClusterRow> = sizes.iter().enumerate().map(row).collect();
    clusters.sort_by_key(|row| std::cmp::Reverse(row.size));
    ClusterScore {
        images: features.rows,
        k,
        objective,
        silhouette: silhouette(&rows, &of),
        silhouette_images: rows.rows,
        agreement,
        clusters,
    }
}

/// All rows and their clusters, or, of very many, some that `seed` draws.
fn sample(features: &Matrix, ids: &[u64], cluster_of: &[u32], seed: u64) -> (Matrix, Vec<u32>) {
    let drawn = drawn_rows(ids, PAIRED, seed);
    let values = drawn.iter().flat_map(|&row| features.row(row)).copied().collect();
    (Matrix { rows: drawn.len(), dim: features.dim, values }, drawn.iter().map(|&row| cluster_of[row]).collect())
}

/// All rows, or, of more than `most`, that many, drawn by `seed`, in growing order.
pub fn drawn_rows(ids: &[u64], most: usize, seed: u64) -> Vec<usize> {
    if ids.len() <= most {
        return (0..ids.len()).collect();
    }
    let mut drawn = Key { purpose: Purpose::Subset, seed, round: 0, epoch: 0 }.shuffled(ids);
    drawn.truncate(most);
    drawn.sort_unstable();
    drawn
}

/// What purification did in the epochs of `run` whose clusters are kept, in order, of more than `most` epochs that many, evenly spaced, with the
/// first and the last; nothing without labels.
pub fn filters(run: &RunFolder, most: usize) -> Result<Vec<EpochFilter>> {
    let epochs = run.epochs_with_clusters()?;
    if epochs.is_empty() {
        return Ok(Vec::new());
    }
    let read = epochs.len().min(most.max(1));
    let epochs = (0..read).map(|i| epochs[i * (epochs.len() - 1) / (read - 1).max(1)]);
    let files = run.read_files()?;
    let Some(names) = files.iter().map(|f| f.label.as_deref()).collect::<Option<Vec<&str>>>() else {
        return Ok(Vec::new());
    };
    let classes: Vec<&str> = names.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let class = |name: &&str| classes.binary_search(name).unwrap_or_default() as u32;
    let of: Vec<u32> = names.iter().map(class).collect();
    let one = |(round, epoch): (u32, u32)| {
        let grouping = run.read_epoch_clusters((round, epoch))?;
        if grouping.cluster.len() != of.len() {
            return Err(Error::file(
                format!(
                    "the clusters of round {}, epoch {} are of {} images, files.csv has {}",
                    round + 1,
                    epoch + 1,
                    grouping.cluster.len(),
                    of.len()
                ),
                format!("restore the files of {}, or run it again", run.path().display()),
            ));
        }
        let score = FilterScore::new(&grouping.cluster, &grouping.status, &of, classes.len());
        Ok(EpochFilter { round, epoch, score })
    };
    epochs.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three places, far apart.
    fn places(rows: usize) -> (Matrix, Vec<u64>, Labels) {
        let values = (0..rows).flat_map(|i| [(i % 3) as f32, 0.01 * (i % 7) as f32]).collect();
        let classes = ["a", "b", "c", "d"].map(String::from).to_vec();
        let labels = Labels { classes, of: (0..rows as u32).map(|i| i % 3).collect() };
        (Matrix::new(2, values), (0..rows as u64).collect(), labels)
    }

    #[test]
    fn clusters_that_are_there_are_found() {
        let (features, ids, labels) = places(60);
        let mut told = 0;
        let found = score(&features, &ids, Some(&labels), 3, 5, &mut |starts| {
            told = starts;
            Ok(())
        });
        let found = found.unwrap();
        assert_eq!(told, STARTS);
        let agreement = found.agreement.unwrap();
        assert_eq!([agreement.purity, agreement.accuracy, agreement.ari], [1.0; 3]);
        assert!(agreement.missed.is_empty(), "the class d is nowhere");
        assert!(found.silhouette.unwrap() > 0.9);
        assert!(found.clusters.iter().all(|c| c.size == 20 && c.purity == Some(1.0)));
    }

    #[test]
    fn one_cluster_misses_all_classes_but_one_and_has_no_silhouette() {
        let (features, ids, labels) = places(61);
        let found = score(&features, &ids, Some(&labels), 1, 5, &mut |_| Ok(())).unwrap();
        assert_eq!(found.agreement.unwrap().missed, ["b", "c"]);
        assert_eq!(found.silhouette, None);
    }

    #[test]
    fn without_labels_there_are_sizes_and_a_silhouette() {
        let (features, ids, _) = places(30);
        let found = score(&features, &ids, None, 3, 5, &mut |_| Ok(())).unwrap();
        assert_eq!(found.agreement, None);
        assert!(found.silhouette.is_some() && found.clusters.iter().all(|c| c.majority.is_none()));
        let e = score(&features, &ids, None, 31, 5, &mut |_| Ok(())).unwrap_err();
        assert!(e.message.contains("31") && e.hint.contains("30"), "{e:?}");
    }

    #[test]
    fn of_too_many_some_are_drawn() {
        let ids: Vec<u64> = (0..100).collect();
        let drawn = drawn_rows(&ids, 10, 1);
        assert_eq!(drawn.len(), 10);
        assert!(drawn.is_sorted());
        assert_ne!(drawn, drawn_rows(&ids, 10, 2));
        assert_eq!(drawn_rows(&ids, 100, 1), (0..100).collect::<Vec<_>>());
    }
}
