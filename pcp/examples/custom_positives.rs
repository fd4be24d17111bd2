//! A system of your own: what counts as the same thing is up to you. Here, images of one folder are positives of each other (bursts
//! of a camera, frames of a film), and everything else is as in PCP: bank, loss, checkpoints, probes.
//!
//! `cargo run --release --example custom_positives -- PHOTOS runs/bursts`

#![allow(clippy::print_stdout)]

use pcp::core::error::{Error, Result};
use pcp::core::matrix::Matrix;
use pcp::core::purify::{Positives, Purified, Status};
use pcp::jobs::{TrainOptions, train_with};
use pcp::method::{At, FoundTargets, Memory, Method, Past, Plan};
use pcp::observe::silent;
use std::collections::BTreeMap;
use std::path::Path;

/// Images of a folder belong together.
struct Bursts;

impl Method for Bursts {
    fn describe(&self, _plan: &Plan) -> String {
        "images of a folder belong together".into()
    }

    fn find_targets(
        &self,
        plan: &Plan,
        _at: At,
        _features: &Matrix,
        _memory: &Memory,
        _past: Past,
        _on_iteration: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<FoundTargets> {
        let mut folders: BTreeMap<Option<&Path>, Vec<u32>> = BTreeMap::new();
        for (row, name) in plan.dataset.train.images.names().iter().enumerate() {
            folders.entry(Path::new(name).parent()).or_default().push(row as u32);
        }
        let (n, clusters) = (plan.samples(), folders.len());
        let mut labels = vec![0; n];
        for (label, rows) in folders.values().enumerate() {
            rows.iter().for_each(|row| labels[*row as usize] = label as u32);
        }
        let positives = Positives::from_sets(n, folders.into_values().filter(|rows| rows.len() > 1));
        let purified =
            Purified { positives, status: vec![Status::Kept; n], distance: vec![0.0; n], vote: vec![f32::NAN; n] };
        Ok(FoundTargets { clusters, labels: Some(labels), purified: Some(purified), ..FoundTargets::default() })
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [photos, out] = arguments.as_slice() else {
        return Err(Error::usage("two arguments are needed", "a folder of folders, and a folder for the run"));
    };
    let options = TrainOptions::new(photos).set("train.epochs=20")?.set("network.width=16")?;
    let done = train_with(&TrainOptions { out: Some(out.into()), ..options }, &Bursts, &silent())?;
    match done.result.knn_last {
        Some(knn) => println!("kNN {knn:.1} %"),
        None => println!("done: {out}"),
    }
    Ok(())
}
