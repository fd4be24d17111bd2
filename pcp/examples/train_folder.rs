//! Trains on a folder of images, as `pcp train FOLDER --out RUN` does.
//!
//! `cargo run --release --example train_folder -- PHOTOS runs/photos`

#![allow(clippy::print_stdout)]

use pcp::config::{Config, SettingsLayer, preset};
use pcp::data;
use pcp::observe::Silent;
use pcp::run::{About, RunFolder};
use pcp::train::{Setup, train};
use pcp_core::error::{Error, Result};
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [photos, out] = arguments.as_slice() else {
        return Err(Error::usage("two arguments are needed", "a folder of images, and a folder for the run"));
    };
    // Defaults, then the preset, then what is said here; everything is in config.toml afterwards.
    let config = Config::from_layers(&[
        preset("folder")?,
        SettingsLayer::flag("photos", "data.source", photos.as_str()),
        SettingsLayer::flag("epochs", "train.epochs", 20),
        SettingsLayer::flag("width", "network.width", 16),
    ])?;
    let dataset = data::load(&config.load_request()?, &|_, _| ())?;
    let config = config.resolve(&dataset)?;
    let about = About { data: dataset.name.clone(), fingerprint: dataset.fingerprint(), ..About::default() };
    let run = RunFolder::begin(Path::new(out), false, &config, &about, &dataset)?;
    let setup = Setup::new(config, dataset, run, about, Arc::new(Silent::default()))?;
    let result = train(&setup, setup.begin()?)?;
    println!("{} clusters keep {:.0} % of {} images", result.clusters, 100.0 * result.kept, result.images);
    Ok(())
}
