//! Purifies any embeddings: clusters the rows of a matrix, keeps in every cluster those that belong, and prints the others.
//!
//! `cargo run --release --example purify_matrix -- EMBEDDINGS.npy 10`

#![allow(clippy::print_stdout)]

use pcp_core::error::{Error, Result};
use pcp_core::io::npy::read_matrix;
use pcp_core::kmeans::{KMeans, kmeans};
use pcp_core::purify::{History, Rules, Status, Votes, purify};
use std::path::Path;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, k] = arguments.as_slice() else {
        return Err(Error::usage("two arguments are needed", "EMBEDDINGS.npy and the number of clusters"));
    };
    let k: usize =
        k.parse().map_err(|_| Error::usage(format!("{k} is no number of clusters"), "give one from 1 on"))?;
    let rows = read_matrix(Path::new(file))?.normalised();
    let ids: Vec<u64> = (0..rows.rows as u64).collect();
    let settings = KMeans { k: k.clamp(1, rows.rows.max(1)), iterations: 50, spherical: false, start: None };

    // Other starts stand for the past: who has kept whose company in them?
    let again = |start: u32| kmeans(&rows, &ids, &settings, 0, 0, start, &mut |_| Ok(()));
    let past = (1..=5).map(|start| again(start).map(|c| c.assignment)).collect::<Result<Vec<_>>>()?;
    let clusters = again(0)?;
    let rules = Rules {
        gamma: Some(0.5),
        whole_up_to: 0,
        votes: Some(Votes { alpha: 0.0, lower: 3.0, upper: 5.0 }),
        stop_at_first_single: false,
    };
    let purified = purify(&rows, &clusters.assignment, settings.k, &rules, &History::from_newest(past));

    for (row, status) in purified.status.iter().enumerate() {
        if matches!(status, Status::Filtered | Status::Dropped) {
            let (cluster, distance, vote) = (clusters.assignment[row], purified.distance[row], purified.vote[row]);
            println!("row {row}: {} from cluster {cluster}, distance {distance:.3}, vote {vote:.1}", status.name());
        }
    }
    println!("{} of {} rows belong", purified.positives.covered(), rows.rows);
    Ok(())
}
