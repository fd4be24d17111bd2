//! Purification of tiny matrices.

use super::*;
use crate::observe::Silent;
use std::fs;

fn silent() -> Arc<dyn Observer> {
    Arc::new(Silent::default())
}

/// Two directions in turn; row 6 is between them.
fn rows() -> Matrix {
    let row = |i: usize| match i {
        6 => [1.0, 0.7],
        i if i % 2 == 0 => [1.0, 0.01 * i as f32],
        i => [0.01 * i as f32, 1.0],
    };
    Matrix::new(2, (0..20).flat_map(row).collect())
}

fn options() -> PurifyOptions {
    PurifyOptions { k: Some(ClusterCount::Exactly(2)), gamma: 0.2, ..PurifyOptions::new(rows()) }
}

#[test]
fn a_row_far_from_its_centre_is_taken_out_and_the_usual_options_write_nothing() {
    let found = purify(&PurifyOptions::new(rows()), &silent()).unwrap();
    assert_eq!((found.summary.clusters, found.summary.votes), (2, 15));
    assert_eq!(found.summary.votes_from, VotesFrom::Repeated);
    // Repeated k-means always has row 6 in the same company, so that its votes pull it back.
    let found = purify(&PurifyOptions { no_votes: true, ..options() }, &silent()).unwrap();
    assert!(found.suspicious.contains(&6), "{:?}", found.suspicious);
    assert_ne!(found.rows[6].status, Status::Kept);
    let s = &found.summary;
    assert_eq!(s.kept + s.filtered + s.dropped + s.pulled_back + s.instances, s.rows);
    assert_eq!((s.out.as_ref(), s.labels, found.label_errors.len()), (None, None, 0));
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<PurifyResult>(&json).unwrap(), found);
}

#[test]
fn sources_are_written_as_they_are_shown() {
    for from in [ClustersFrom::Run, ClustersFrom::Silhouette, ClustersFrom::KMeans] {
        assert_eq!(serde_json::to_string(&from).unwrap(), format!("\"{from}\""));
    }
    let all = [VotesFrom::Files, VotesFrom::Nothing, VotesFrom::Matrices, VotesFrom::Epochs, VotesFrom::Repeated];
    for from in all {
        assert_eq!(serde_json::to_string(&from).unwrap(), format!("\"{from}\""));
    }
}

#[test]
fn labels_are_checked_and_bad_rows_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (labels, out) = (dir.path().join("labels.csv"), dir.path().join("out"));
    // Row 4 has the other group's label, and row 2 cannot be used.
    let label = |i: usize| if i.is_multiple_of(2) == (i != 4) { "even\n" } else { "odd\n" };
    fs::write(&labels, format!("label\n{}", (0..20).map(label).collect::<String>())).unwrap();
    let mut matrix = rows();
    matrix.values[4] = f32::INFINITY;
    let options = PurifyOptions { embeddings: vec![matrix.into()], labels: Some(labels), ..options() };
    assert!(purify(&options, &silent()).unwrap_err().message.contains("row 2 (infinite)"));
    let kmeans = KMeansOptions { skip_bad_rows: true, ..KMeansOptions::default() };
    let found = purify(&PurifyOptions { kmeans, out: Some(out.clone()), ..options }, &silent()).unwrap();
    assert_eq!((found.summary.rows, found.summary.unusable), (19, 1));
    let first = found.label_errors.iter().chain(&found.doubtful_labels).next().unwrap();
    assert_eq!((first.row, first.label.as_str(), first.suggested.as_str()), (4, "odd", "even"));
    let labels = found.summary.labels.unwrap();
    assert_eq!((labels.labels, labels.errors), (19, found.label_errors.len()));
    assert!(labels.noise.unwrap().share < 0.3 && !labels.sentence().is_empty(), "{labels:?}");
    let written: PurifySummary = serde_json::from_slice(&fs::read(out.join("summary.json")).unwrap()).unwrap();
    assert_eq!(written, found.summary);
    let lists = ["label_errors.csv", "doubtful_labels.csv"].map(|name| fs::read_to_string(out.join(name)).unwrap());
    let first = lists.iter().flat_map(|list| list.lines().skip(1)).next().unwrap();
    assert!(first.starts_with("1,4,,odd,even,"), "{lists:?}");
}

#[test]
fn one_row_and_none() {
    let one = PurifyOptions { k: Some(ClusterCount::Exactly(1)), ..PurifyOptions::new(Matrix::new(1, vec![2.0])) };
    let found = purify(&one, &silent()).unwrap();
    assert_eq!((found.rows.len(), found.rows[0].status), (1, Status::Instance));
    let usual = PurifyOptions { k: None, ..one };
    assert_eq!(purify(&usual, &silent()).unwrap().summary.clusters, 1);
    assert!(purify(&PurifyOptions::new(Matrix::new(1, vec![])), &silent()).is_err());
    let e = purify(&PurifyOptions { embeddings: Vec::new(), ..usual }, &silent()).unwrap_err();
    assert!(e.message.contains("no matrix"), "{e:?}");
}

#[test]
fn options_that_make_no_sense_are_named() {
    let refused = |options: PurifyOptions, word: &str| {
        let e = purify(&options, &silent()).unwrap_err();
        assert!(e.exit_code() == 2 && (e.message + &e.hint).contains(word), "{word}");
    };
    refused(PurifyOptions { gamma: 1.0, ..options() }, "`gamma`");
    refused(PurifyOptions { alpha: Some(0.0), ..options() }, "`alpha`");
    refused(PurifyOptions { votes: 0, ..options() }, "`no_votes`");
    refused(PurifyOptions { upper: Some(99.0), ..options() }, "no vote can reach `upper` 99");
    refused(PurifyOptions { lower: Some(-99.0), ..options() }, "no vote can fall below `lower` -99");
    refused(PurifyOptions { lower: Some(f64::NAN), ..options() }, "`lower`");
    let two = vec![rows().into(), rows().into()];
    refused(PurifyOptions { past: vec!["p.csv".into()], embeddings: two.clone(), ..options() }, "`past`");
    refused(PurifyOptions { no_votes: true, embeddings: two.clone(), ..options() }, "`no_votes`");
    let found = purify(&PurifyOptions { embeddings: two, ..options() }, &silent()).unwrap();
    assert_eq!((found.summary.votes_from, found.summary.votes), (VotesFrom::Matrices, 1));
    let found = purify(&PurifyOptions { no_votes: true, ..options() }, &silent()).unwrap();
    assert_eq!((found.summary.votes_from, found.rows[0].vote), (VotesFrom::Nothing, None));
}
