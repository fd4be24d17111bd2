//! Trains on a folder of images, as `pcp train FOLDER --out RUN` does.
//!
//! `cargo run --release --example train_folder -- PHOTOS runs/photos`

#![allow(clippy::print_stdout)]

use pcp::core::error::{Error, Result};
use pcp::jobs::{TrainOptions, train};
use pcp::observe::silent;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [photos, out] = arguments.as_slice() else {
        return Err(Error::usage("two arguments are needed", "a folder of images, and a folder for the run"));
    };
    // Defaults, then the preset that the data implies, then what is said here; everything is in config.toml afterwards.
    let options = TrainOptions::new(photos).set("train.epochs=20")?.set("network.width=16")?;
    let done = train(&TrainOptions { out: Some(out.into()), ..options }, &silent())?;
    println!(
        "{} clusters keep {:.0} % of {} images",
        done.result.clusters,
        100.0 * done.result.kept,
        done.result.images
    );
    Ok(())
}
