//! Clustering on tiny matrices.

use super::*;
use crate::observe::Silent;
use pcp_core::matrix::Matrix;
use pcp_core::rng::{Key, Purpose};
use std::fs;

fn silent() -> Arc<dyn Observer> {
    Arc::new(Silent::default())
}

/// Two directions, `each` rows around both in turn.
pub(crate) fn two_groups(each: usize) -> Matrix {
    let row = |i: usize| {
        let near = 1.0 + 0.01 * i as f32;
        if i.is_multiple_of(2) { [near, 0.05] } else { [0.05, near] }
    };
    Matrix::new(2, (0..2 * each).flat_map(row).collect())
}

#[test]
fn the_usual_options_find_the_groups_and_write_nothing() {
    let found = cluster(&ClusterOptions::new(two_groups(10)), &silent()).unwrap();
    assert_eq!((found.summary.k, found.summary.chosen_by), (2, ChosenBy::Silhouette));
    assert_eq!((found.summary.rows, found.summary.smallest, found.summary.largest), (20, 10, 10));
    assert_eq!((found.summary.out.as_ref(), found.summary.sheet), (None, false));
    for pair in found.rows.chunks(2) {
        assert_eq!(pair[0].cluster, found.rows[0].cluster);
        assert_ne!(pair[0].cluster, pair[1].cluster);
    }
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<ClusterResult>(&json).unwrap(), found);
}

#[test]
fn neighbours_connect_what_centres_divide() {
    // Two circles around one axis: every cluster by a centre has a part of both.
    let circle = |i: usize| {
        let (angle, height) = (i as f32 * 0.05, if i.is_multiple_of(2) { 0.5f32 } else { 1.5 });
        [angle.cos(), angle.sin(), height]
    };
    let matrix = Matrix::new(3, (0..252).flat_map(circle).collect());
    let usual = ClusterOptions { k: ClusterCount::Exactly(2), ..ClusterOptions::new(matrix) };
    let by_centres = cluster(&usual, &silent()).unwrap();
    assert_eq!(by_centres.summary.by, ClusterBy::Centres, "as always for a matrix");
    let found = cluster(&ClusterOptions { by: Some(ClusterBy::Neighbours), ..usual.clone() }, &silent()).unwrap();
    assert_eq!((found.summary.by, found.summary.smallest), (ClusterBy::Neighbours, 126));
    let apart = |found: &ClusterResult| found.rows.iter().all(|r| r.cluster == found.rows[r.row % 2].cluster);
    assert!(apart(&found) && !apart(&by_centres));
    assert_eq!((found.summary.unsorted, by_centres.summary.unsorted), (Some(0), None));
    assert!(found.rows.iter().all(|r| r.agreement == Some(1.0)) && by_centres.rows[0].agreement.is_none());
    // Their number is found, too.
    let any = ClusterOptions { k: ClusterCount::Auto, by: Some(ClusterBy::Neighbours), ..usual };
    let found = cluster(&any, &silent()).unwrap();
    assert_eq!(found.summary.chosen_by, ChosenBy::Modularity);
}

#[test]
fn one_row_and_none() {
    let one = ClusterOptions::new(Matrix::new(2, vec![3.0, 4.0]));
    assert!(cluster(&one, &silent()).unwrap_err().message.contains("too few"));
    let one = ClusterOptions { k: ClusterCount::Exactly(1), ..one };
    let found = cluster(&one, &silent()).unwrap();
    assert_eq!(found.rows, [ClusteredRow { row: 0, cluster: 0, distance: found.rows[0].distance, agreement: None }]);
    assert!(found.rows[0].distance < 1e-6);
    let none = ClusterOptions { embeddings: Matrix::new(2, vec![]).into(), ..one };
    assert!(cluster(&none, &silent()).is_err());
}

#[test]
fn bad_rows_are_refused_or_left_out_of_the_numbers() {
    let mut matrix = two_groups(4);
    matrix.values[2] = f32::NAN;
    let options = ClusterOptions { k: ClusterCount::Exactly(2), ..ClusterOptions::new(matrix) };
    assert!(cluster(&options, &silent()).unwrap_err().message.contains("row 1 (not a number)"));
    let dir = tempfile::tempdir().unwrap();
    let kmeans = KMeansOptions { skip_bad_rows: true, ..KMeansOptions::default() };
    let options = ClusterOptions { kmeans, out: Some(dir.path().join("out")), ..options };
    let found = cluster(&options, &silent()).unwrap();
    assert_eq!((found.summary.rows, found.summary.unusable, found.rows[1].row), (7, 1, 2));
    let text = |name: &str| fs::read_to_string(dir.path().join("out").join(name)).unwrap();
    assert_eq!(text("unusable.csv"), "row,reason\n1,not a number\n");
    assert_eq!(text("clusters.csv").lines().count(), 8);
    let written: ClusterSummary = serde_json::from_str(&text("summary.json")).unwrap();
    assert_eq!(written, found.summary);
    assert!(cluster(&options, &silent()).unwrap_err().message.contains("there already"));
}

#[test]
fn images_come_into_folders_and_onto_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..8).map(|i| format!("{i}.png")).collect();
    names.iter().for_each(|name| image::RgbImage::new(8, 8).save(dir.path().join(name)).unwrap());
    let source = EmbeddingSource::Memory(Arc::new(two_groups(4)), Some(names));
    let kmeans = KMeansOptions { images: Some(dir.path().into()), ..KMeansOptions::default() };
    let out = Some(dir.path().join("out"));
    let (k, folders) = (ClusterCount::Exactly(2), Some(How::Copy));
    let options = ClusterOptions { k, folders, out, kmeans, ..ClusterOptions::new(Matrix::default()) };
    let found = cluster(&ClusterOptions { embeddings: source, ..options.clone() }, &silent()).unwrap();
    assert!(found.summary.sheet && found.summary.folders);
    let folder = dir.path().join("out/folders").join(format!("cluster-{}", found.rows[3].cluster));
    assert!(folder.join("3.png").is_file() && dir.path().join("out/sheet.html").is_file());
    // Without names there are no images; without a folder to make, no folders.
    let nameless = ClusterOptions { embeddings: two_groups(4).into(), out: Some(dir.path().join("n")), ..options };
    assert!(cluster(&nameless, &silent()).unwrap_err().message.contains("`images` needs the names"));
    let nowhere = ClusterOptions { out: None, ..nameless };
    assert!(cluster(&nowhere, &silent()).unwrap_err().message.contains("`folders` are made in `out`"));
    assert!(!dir.path().join("n").exists());
}

#[test]
fn what_its_neighbours_do_not_agree_with_is_unsorted() {
    // Rows without groups: in clusters of about ten, many have most of their neighbours elsewhere.
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..60).map(|i| format!("{i}.png")).collect();
    names.iter().for_each(|name| image::RgbImage::new(8, 8).save(dir.path().join(name)).unwrap());
    let mut stream = Key { purpose: Purpose::Synthetic, seed: 1, round: 0, epoch: 0 }.stream(0, 0);
    let anywhere = Matrix::new(16, (0..60 * 16).map(|_| stream.normal()).collect());
    let source = EmbeddingSource::Memory(Arc::new(anywhere), Some(names));
    let kmeans = KMeansOptions { images: Some(dir.path().into()), ..KMeansOptions::default() };
    let options = |k: usize, out: &str| ClusterOptions {
        embeddings: source.clone(),
        k: ClusterCount::Exactly(k),
        by: Some(ClusterBy::Neighbours),
        folders: Some(How::Copy),
        out: Some(dir.path().join(out)),
        kmeans: kmeans.clone(),
    };
    let found = cluster(&options(6, "many"), &silent()).unwrap();
    assert_eq!(found.summary.unsorted, Some(found.rows.iter().filter(|r| r.agreement.unwrap() < 0.4).count()));
    assert!((5..60).contains(&found.summary.unsorted.unwrap()), "{:?}", found.summary);
    let text = fs::read_to_string(dir.path().join("many/clusters.csv")).unwrap();
    assert!(text.starts_with("row,file,cluster,distance,agreement,unsorted\n"), "{text}");
    for row in &found.rows {
        let unsorted = row.agreement.unwrap() < spectral::SORTED;
        let folder = if unsorted { "unsorted".to_string() } else { format!("cluster-{}", row.cluster) };
        assert!(dir.path().join("many/folders").join(folder).join(format!("{}.png", row.row)).is_file());
        assert!(text.lines().nth(row.row + 1).unwrap().ends_with(&format!(",{}", u8::from(unsorted))));
    }
    let page = fs::read_to_string(dir.path().join("many/sheet.html")).unwrap();
    assert!(page.contains("fewer than two in five of their nearest neighbours"));
    // Of a small cluster, as many neighbours count as it has other members: eight groups of five are sorted.
    let mut stream = Key { purpose: Purpose::Synthetic, seed: 2, round: 0, epoch: 0 }.stream(0, 0);
    let near_axis = |at: usize| f32::from(u8::from(at % 8 == at / 8 % 8)) + 0.01 * stream.normal();
    let groups = Matrix::new(8, (0..40 * 8).map(near_axis).collect());
    let few = ClusterOptions { embeddings: groups.into(), out: None, folders: None, ..options(8, "") };
    let found = cluster(&few, &silent()).unwrap();
    assert_eq!((found.summary.unsorted, found.summary.smallest, found.summary.largest), (Some(0), 5, 5));
}

#[test]
fn options_that_make_no_sense_are_named() {
    for (text, k) in [("auto", ClusterCount::Auto), ("7", ClusterCount::Exactly(7))] {
        assert_eq!(ClusterCount::parse(text).unwrap(), k);
    }
    for text in ["0", "-1", "many", ""] {
        assert!(ClusterCount::parse(text).unwrap_err().message.contains("`k` is"), "{text}");
    }
    let options = ClusterOptions { k: ClusterCount::Exactly(0), ..ClusterOptions::new(two_groups(2)) };
    assert!(cluster(&options, &silent()).unwrap_err().message.contains("`k` is 0"));
    let kmeans = KMeansOptions { starts: 0, ..KMeansOptions::default() };
    let options = ClusterOptions { k: ClusterCount::Exactly(1), kmeans, ..options };
    assert!(cluster(&options, &silent()).unwrap_err().message.contains("`starts`"));
    let cancelled = silent();
    cancelled.cancel().request();
    let e = cluster(&ClusterOptions::new(two_groups(4)), &cancelled).unwrap_err();
    assert_eq!(e.exit_code(), 130);
}
