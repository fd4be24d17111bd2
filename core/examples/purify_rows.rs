//! Purifies any embeddings: clusters the rows of a matrix, keeps in every cluster those that belong, and prints the others.
//!
//! `cargo run --release -p pcp-core --example purify_rows -- EMBEDDINGS.npy 10`; without arguments, on rows it makes up.

#![allow(clippy::print_stdout)]

use pcp_core::error::{Error, Result};
use pcp_core::history::repeated;
use pcp_core::io::npy::read_matrix;
use pcp_core::kmeans::{KMeans, kmeans};
use pcp_core::matrix::Matrix;
use pcp_core::purify::{History, Purified, Rules, Votes, purify};
use pcp_core::rng::{Key, Purpose};
use std::path::Path;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => {
            // Every tenth row is of no group: none of them may belong, and most of the others must.
            let rows = made_up();
            let found = purified(&rows, 3)?;
            let stray = |row: &usize| row.is_multiple_of(10);
            let wrong: Vec<usize> = (0..rows.rows).filter(|row| stray(row) && found.status[*row].belongs()).collect();
            assert!(wrong.is_empty(), "strays belong: {wrong:?}");
            assert!(found.positives.covered() >= 90, "only {} rows belong", found.positives.covered());
        }
        [file, k] => {
            let k =
                k.parse().map_err(|_| Error::usage(format!("{k} is no number of clusters"), "give one from 1 on"))?;
            purified(&read_matrix(Path::new(file))?.normalised(), k)?;
        }
        _ => return Err(Error::usage("two arguments are needed", "EMBEDDINGS.npy and the number of clusters")),
    }
    Ok(())
}

fn purified(rows: &Matrix, k: usize) -> Result<Purified> {
    let clusters = kmeans(rows, &KMeans { iterations: 50, ..KMeans::new(k) })?;
    // Clusterings of random halves of the rows stand for the past, and count alike (alpha 1): 2 a - 4 is the vote of a row that
    // had its cluster's company in a of 5. None is high enough to pull a filtered row back.
    let past = repeated(rows, k, 5, 0, &mut |_, _| Ok(()))?;
    let votes = Votes { alpha: 1.0, lower: 0.0, upper: f64::INFINITY };
    let rules = Rules { gamma: Some(0.2), votes: Some(votes), ..Rules::WHOLE };
    let purified = purify(rows, &clusters.assignment, k, &rules, &History::from_newest(past));
    for (row, status) in purified.status.iter().enumerate().filter(|(_, status)| !status.belongs()) {
        let (cluster, distance, vote) = (clusters.assignment[row], purified.distance[row], purified.vote[row]);
        println!("row {row}: {} from cluster {cluster}, distance {distance:.3}, vote {vote:.1}", status.name());
    }
    println!("{} of {} rows belong", purified.positives.covered(), rows.rows);
    Ok(purified)
}

/// 120 rows in three tight groups, but for every tenth, which lies halfway between two of them.
fn made_up() -> Matrix {
    let mut stream = Key { purpose: Purpose::Synthetic, seed: 1, round: 0, epoch: 0 }.stream(0, 0);
    let row = |i: usize| {
        let at = |c: usize| {
            if i % 3 == c {
                1.0
            } else if i.is_multiple_of(10) && (i + 1) % 3 == c {
                0.9
            } else {
                0.0
            }
        };
        [at(0), at(1), at(2)].map(|x| x + 0.02 * stream.normal())
    };
    Matrix::new(3, (0..120).flat_map(row).collect()).normalised()
}
