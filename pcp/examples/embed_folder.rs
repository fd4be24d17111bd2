//! Embeds a folder of images with a trained network, and says which of them are near duplicates.
//!
//! `cargo run --release --example embed_folder -- runs/photos PHOTOS emb.npy`

#![allow(clippy::print_stdout)]

use pcp::core::error::{Error, Result};
use pcp::jobs::{DuplicatesOptions, EmbedOptions, duplicates, embed};
use pcp::observe::silent;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, photos, out] = arguments.as_slice() else {
        return Err(Error::usage("three arguments are needed", "a run folder, a folder of images, and a new file"));
    };
    let observer = silent();
    let made = embed(&EmbedOptions::new(model, photos, out), &observer)?;
    println!("{} images, {} numbers each", made.rows, made.dim);
    for row in duplicates(&DuplicatesOptions::new(made.out.as_path()), &observer)?.rows {
        println!("group {}: {}, cosine {:.3}", row.group, row.file, row.cosine);
    }
    Ok(())
}
