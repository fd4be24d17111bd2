//! Past clusterings for the votes of CP_s: earlier clusterings of the same rows, newest first.
//!
//! Where there are none, k-means is repeated, each time on another random half of the rows and from other first centroids; then
//! every row goes to the nearest centroid. Rows that clearly belong together share a cluster in every repetition.

use crate::cancel::Progress;
use crate::error::Result;
use crate::io::table::{aligned, columns};
use crate::kmeans::{KMeans, assign, kmeans_with, seeding};
use crate::matrix::Matrix;
use crate::rng::{Key, Purpose};
use std::collections::HashMap;
use std::path::Path;

/// Updates of the centroids per repetition, as in the paper.
const ITERATIONS: usize = 20;
/// The most rows per centroid in a repetition: more would change a centroid by less than its standard error.
const PER_CENTROID: usize = 256;
/// The round of the random numbers that is reserved for repetitions.
const ROUND: u32 = 1;

/// `n` clusterings of `features` into `k` clusters, each fitted to another random half of the rows. Plain means, as in the paper.
pub fn repeated(features: &Matrix, k: usize, n: usize, seed: u64, step: Progress) -> Result<Vec<Vec<u32>>> {
    let ids: Vec<u64> = (0..features.rows as u64).collect();
    let half = features.rows.div_ceil(2).min(PER_CENTROID * k.max(1)).max(k).min(features.rows);
    let steps = ITERATIONS + 2;
    let one = |h: usize| {
        let epoch = h as u32;
        let mut drawn = Key { purpose: Purpose::Subset, seed, round: ROUND, epoch }.shuffled(&ids);
        drawn.truncate(half);
        drawn.sort_unstable();
        let (sample, drawn) = (features.select_rows(&drawn), drawn.iter().map(|row| *row as u64).collect::<Vec<_>>());
        let first = seeding::spread(&sample, k, seed, (ROUND, epoch));
        let settings = KMeans {
            iterations: ITERATIONS,
            start: first.as_ref(),
            ids: Some(&drawn),
            seed,
            draw: (ROUND, epoch),
            ..KMeans::new(k)
        };
        let found = kmeans_with(&sample, &settings, &mut |done| step(h * steps + done, n * steps))?;
        step(h * steps + steps - 1, n * steps)?;
        Ok(assign(features, &found.centroids).0)
    };
    (0..n).map(one).collect()
}

/// A clustering from a CSV file with a column `cluster`: by the names in its column `file`, when it has one and rows have names,
/// else line by line. Clusters may be called anything.
pub fn read(path: &Path, rows: usize, names: Option<&[String]>) -> Result<Vec<u32>> {
    let (files, clusters) = columns(path, "cluster")?;
    let wanted = aligned(path, &files, &clusters, rows, names)?;
    let mut ids: HashMap<String, u32> = HashMap::new();
    Ok(wanted
        .into_iter()
        .map(|name| {
            let next = ids.len() as u32;
            *ids.entry(name).or_insert(next)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::testing::blobs;

    #[test]
    fn rows_that_belong_together_stay_together() {
        let features = blobs(4, 25, 8, 0.01, 2);
        let mut told = Vec::new();
        let past = repeated(&features, 4, 5, 7, &mut |done, of| {
            told.push(done);
            assert_eq!(of, 5 * (ITERATIONS + 2));
            Ok(())
        });
        let past = past.unwrap();
        assert_eq!(past.len(), 5);
        assert!(told.is_sorted());
        for labels in &past {
            assert!((0..100).all(|i| labels[i] == labels[i % 4]), "copies are separated");
        }
        // Without groups, each repetition finds other clusters.
        let cloud = blobs(1, 100, 8, 1.0, 2);
        let go = |seed| repeated(&cloud, 4, 2, seed, &mut |_, _| Ok(())).unwrap();
        assert_ne!(go(7)[0], go(7)[1], "each repetition has rows and first centroids of its own");
        assert_eq!(go(7), go(7));
        assert_ne!(go(7), go(8));
    }

    #[test]
    fn few_rows_many_clusters_and_a_stop() {
        let features = blobs(3, 1, 2, 0.1, 0);
        assert_eq!(repeated(&features, 3, 2, 0, &mut |_, _| Ok(())).unwrap()[0].len(), 3);
        assert!(repeated(&features, 4, 2, 0, &mut |_, _| Ok(())).is_err());
        assert!(repeated(&features, 2, 0, 0, &mut |_, _| Ok(())).unwrap().is_empty());
        assert_eq!(repeated(&features, 2, 2, 0, &mut |_, _| Err(Error::stopped())).unwrap_err().exit_code(), 130);
    }

    fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("past.csv");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn assignments_are_read_by_name_or_by_line() {
        let names = ["b.png", "a.png", "c.png"].map(String::from);
        let (_dir, path) = file("file,cluster,status\na.png,7,kept\nb.png,cats,kept\nc.png,7,kept\nd.png,1,kept\n");
        assert_eq!(read(&path, 3, Some(&names)).unwrap(), [0, 1, 1]);
        assert!(read(&path, 3, None).unwrap_err().message.contains("4 lines"));
        assert_eq!(read(&path, 4, None).unwrap(), [0, 1, 0, 2]);
        let (_dir, path) = file("Cluster\n3\n3\n1\n");
        assert_eq!(read(&path, 3, Some(&names)).unwrap(), [0, 0, 1]);
    }

    #[test]
    fn errors_say_what_is_wrong_with_a_file() {
        let names = ["a.png".to_string()];
        let says = |text: &str, word: &str| {
            let (_dir, path) = file(text);
            let e = read(&path, 1, Some(&names)).unwrap_err();
            assert!(e.message.contains(word), "{word} is not in {}", e.message);
        };
        says("", "empty");
        says("file,group\na.png,1\n", "no column cluster; its columns are file, group");
        says("file,cluster\na.png,1\na.png,2\n", "'a.png' occurs twice");
        says("file,cluster\nb.png,1\n", "'a.png' is not in it");
        says("file,cluster\na.png\n", "line 2 has 1 fields");
    }
}
