//! Weighted kNN accuracy of features from clusters of patches, and the seconds they take.
//!
//! ```text
//! cargo run --release -p pcp --example patches -- DATA [--data-dir DIR] [--limit N] [--seed N] [--test] [SETTING=VALUE ...]
//! ```
//!
//! DATA is a folder of class folders, `bundled`, `cifar10` or `cifar100`. Every fifth training image is held out, to choose settings by
//! (`patches.centroids=400`, `readout.ridge=0.03`, `side=96`); `--test` measures the test images instead. One line of JSON is printed.

#![allow(clippy::print_stdout)]

use pcp::core::neighbours::{accuracy, nearest, vote};
use pcp::data::{Labels, Load, Source, Split, load};
use pcp::observe::silent;
use pcp::patches::{PatchModel, PatchModelSettings};
use serde_json::{Value, json};
use std::error::Error;
use std::time::Instant;

/// Temperature of the votes.
const TAU: f32 = 0.1;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (mut source, mut dir, mut limit, mut seed, mut test, mut changes) = (None, None, None, 0u64, false, Vec::new());
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--data-dir" => dir = Some(value()?.into()),
            "--limit" => limit = Some(value()?.parse()?),
            "--seed" => seed = value()?.parse()?,
            "--test" => test = true,
            other => match other.split_once('=') {
                Some((key, value)) => changes.push((key.to_string(), serde_json::from_str::<Value>(value)?)),
                None => source = Some(other.to_string()),
            },
        }
    }
    let name = source.ok_or("name a folder of images, bundled, cifar10 or cifar100")?;
    let started = Instant::now();
    // Photographs are read at a size that every side of a model can be made from.
    let stored = changes.iter().find(|(key, _)| key == "stored").and_then(|(_, v)| v.as_u64()).unwrap_or(73);
    let request = Load { data_dir: dir, limit, stored_side: Some(stored as usize), ..Load::new(Source::parse(&name)?) };
    let data = load(&request, &|_, _| ())?;
    let read = started.elapsed().as_secs_f64();
    let (learn, asked) = match data.test {
        Some(asked) if test => (data.train, asked),
        _ if test => return Err(format!("{name} has no test images").into()),
        _ => held_out(&data.train)?,
    };
    let settings = changed(PatchModelSettings::fitting(&learn.images, seed)?, &changes)?;
    let started = Instant::now();
    let model = PatchModel::learn(&learn.images, &settings, &silent())?;
    let learned = started.elapsed().as_secs_f64();
    let (from, queries) = (model.embed(&learn.images, &silent())?, model.embed(&asked.images, &silent())?);
    let embedded = started.elapsed().as_secs_f64() - learned;
    let (labels, truth) = (labels(&learn)?, labels(&asked)?);
    let knn = |k: usize| {
        let found = nearest(&queries, &from, k, false, &|_| ());
        accuracy(&vote(&found, &labels.of, labels.classes.len(), k, TAU), &truth.of)
    };
    let changes: Vec<String> = changes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let line = json!({
        "data": name, "images": from.rows, "queries": queries.rows, "queries_are": if test { "test images" } else { "training images held out" },
        "settings": changes.join(" "), "seed": seed, "knn_20": knn(20), "knn_200": knn(200),
        "seconds_read": read, "seconds_learn": learned, "seconds_embed": embedded, "threads": rayon::current_num_threads(),
    });
    println!("{line}");
    Ok(())
}

fn labels(split: &Split) -> Result<&Labels, Box<dyn Error>> {
    split.labels.as_ref().ok_or_else(|| "there are no labels to measure by".into())
}

/// Every fifth image apart from the others.
fn held_out(split: &Split) -> Result<(Split, Split), Box<dyn Error>> {
    let all = labels(split)?;
    let mut parts = [Split::default(), Split::default()];
    let mut of = [Vec::new(), Vec::new()];
    for row in 0..split.images.len() {
        let part = usize::from(row % 5 == 4);
        let sample = split.images.sample(row)?;
        parts[part].images.push(sample.id, split.images.names()[row].clone(), sample.image.into_owned());
        of[part].push(all.of[row]);
    }
    let [mut learn, mut asked] = parts;
    let [first, second] = of.map(|of| Labels { classes: all.classes.clone(), of });
    (learn.labels, asked.labels) = (Some(first), Some(second));
    Ok((learn, asked))
}

/// The settings with single values changed, by their names in the card.
fn changed(settings: PatchModelSettings, changes: &[(String, Value)]) -> Result<PatchModelSettings, Box<dyn Error>> {
    let mut all = serde_json::to_value(settings)?;
    for (key, value) in changes {
        let place = all.pointer_mut(&format!("/{}", key.replace('.', "/"))).ok_or(format!("no setting {key}"))?;
        *place = value.clone();
    }
    Ok(serde_json::from_value(all)?)
}
