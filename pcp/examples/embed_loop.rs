//! Embeds image files one after the other, as a service would, and says which two are most alike.
//!
//! `cargo run --release --example embed_loop -- runs/photos a.jpg b.jpg c.jpg`

#![allow(clippy::print_stdout)]

use pcp::core::error::{Error, Result};
use pcp::core::matrix::dot;
use pcp::data::decode;
use pcp::model::Model;
use std::path::Path;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, files @ ..] = arguments.as_slice() else {
        return Err(Error::usage("arguments are missing", "a run folder or a model.safetensors, then image files"));
    };
    let model = Model::open(model)?;
    let mut rows: Vec<(&String, Vec<f32>)> = Vec::new();
    for file in files {
        let image =
            decode::file(Path::new(file)).map_err(|why| Error::data(format!("{file}: {why}"), "leave it out"))?;
        rows.push((file, model.embed([image]).values));
    }
    let mut pairs = Vec::new();
    for (i, (one, a)) in rows.iter().enumerate() {
        pairs.extend(rows[i + 1..].iter().map(|(other, b)| (dot(a, b), one, other)));
    }
    match pairs.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((cosine, one, other)) => println!("{one} and {other}: cosine {cosine:.3}"),
        None => println!("give two images or more"),
    }
    Ok(())
}
