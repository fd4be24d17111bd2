//! Weighted kNN on two runs' or anybody's embeddings: which class has each row of the second matrix, by its neighbours in the first?
//!
//! `cargo run --release --example knn -- TRAIN.npy TRAIN_LABELS.txt TEST.npy`, with one class a line in the labels.

#![allow(clippy::print_stdout)]

use pcp::core::error::{Error, Result};
use pcp::core::io::atomic::read_bytes;
use pcp::core::io::npy::read_matrix;
use pcp::core::neighbours::{nearest, vote};
use std::path::Path;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [train, labels, test] = arguments.as_slice() else {
        return Err(Error::usage("three arguments are needed", "TRAIN.npy, TRAIN_LABELS.txt and TEST.npy"));
    };
    let (bank, queries) = (read_matrix(Path::new(train))?.normalised(), read_matrix(Path::new(test))?.normalised());
    let text = String::from_utf8_lossy(&read_bytes(Path::new(labels))?).into_owned();
    let mut classes: Vec<&str> = text.lines().collect();
    let of: Vec<&str> = classes.clone();
    classes.sort_unstable();
    classes.dedup();
    let of: Vec<u32> = of.iter().filter_map(|name| classes.binary_search(name).ok().map(|c| c as u32)).collect();
    if of.len() != bank.rows || bank.dim != queries.dim {
        return Err(Error::data("labels or columns do not fit the rows", "give one class for each row of TRAIN.npy"));
    }

    let neighbours = nearest(&queries, &bank, 200, false, &|_| ());
    for class in vote(&neighbours, &of, classes.len(), 200, 0.1) {
        println!("{}", classes[class as usize]);
    }
    Ok(())
}
