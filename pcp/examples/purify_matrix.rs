//! Purifies any embeddings: clusters the rows of a matrix, keeps in every cluster those that belong, and prints the others.
//!
//! `cargo run --release --example purify_matrix -- EMBEDDINGS.npy 10`

#![allow(clippy::print_stdout)]

use pcp::core::error::{Error, Result};
use pcp::jobs::{ClusterCount, PurifyOptions, purify};
use pcp::observe::silent;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, k] = arguments.as_slice() else {
        return Err(Error::usage("two arguments are needed", "EMBEDDINGS.npy and the number of clusters"));
    };
    let observer = silent();
    let options = PurifyOptions { k: Some(ClusterCount::parse(k)?), ..PurifyOptions::new(file.as_str()) };
    let found = purify(&options, &observer)?;
    println!("do not belong, the least first: {:?}", found.suspicious);
    println!("{} of {} rows belong", found.summary.kept + found.summary.pulled_back, found.summary.rows);
    Ok(())
}
