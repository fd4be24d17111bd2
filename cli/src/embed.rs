//! `pcp embed`.

use super::{progress, table};
use clap::{Args, ValueEnum};
use pcp::embed::Format;
use pcp::jobs::{EmbedOptions, EmbedResult, embed};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp embed PHOTOS/ --out emb.npy                                   no training: clusters of patches, learned in seconds
  pcp embed PHOTOS/ --out emb.npy --save-model patches.safetensors  and kept, for other images
  pcp embed patches.safetensors NEW/ --out new.npy
  pcp embed runs/photos PHOTOS/ --out emb.npy                       unit vectors, a row per image; files.csv beside it
  pcp embed runs/photos NEW.jpg --out one.csv                       one image, as CSV
  pcp embed model.safetensors PHOTOS/ --features pooled --out pooled.npy
  pcp embed runs/c10 cifar10 --data-dir DATA --features layer4 --out layer4.npy

Every image below the folder is taken, of all splits, in the byte order of its path. Images are read batch by batch: there may be
any number of them. Those that cannot be read are left out and listed in bad_files.csv. Nothing is written over.")]
pub struct EmbedArgs {
    /// The model (a run folder or a model file), then the images (a folder, one image, cifar10, cifar100 or bundled). Images alone: clusters of
    /// patches are learned from them
    #[arg(required = true, num_args = 1..=2, value_names = ["MODEL", "IMAGES"])]
    inputs: Vec<String>,
    /// The file to make
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Which features: embedding, pooled, whitened (pooled, partially whitened), or a layer: layer1 to layer4, conv1 to conv5 (average-pooled to at most 10,000 numbers)
    #[arg(long, default_value = "embedding", value_name = "embedding|pooled|layerN")]
    features: String,
    /// How they are written [default: csv for names that end in .csv, else npy]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Use the weights of the best probe instead of the last
    #[arg(long)]
    best: bool,
    /// Keep the patch model that is learned from the images
    #[arg(long, value_name = "FILE")]
    save_model: Option<PathBuf>,
    /// Everything random about a patch model that is learned follows from it
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where the CIFAR files are
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum FormatArg {
    /// NumPy's, float32
    Npy,
    /// A line per image: its name, then its numbers
    Csv,
}

pub fn run(args: &EmbedArgs, stop: &Cancel) -> Result<()> {
    super::use_threads(args.threads)?;
    let (model, images) = match args.inputs.as_slice() {
        [model, images] => (Some(model.into()), images.clone()),
        alone => (None, alone.concat()),
    };
    let options = EmbedOptions {
        model,
        save_model: args.save_model.clone(),
        seed: args.seed,
        features: args.features.clone(),
        format: args.format.map(|format| match format {
            FormatArg::Npy => Format::Npy,
            FormatArg::Csv => Format::Csv,
        }),
        best: args.best,
        data_dir: args.data_dir.clone(),
        ..EmbedOptions::patches(images, &args.out)
    };
    let made = embed(&options, &progress::job(args.json, stop))?;
    if args.json { super::print_json(&made) } else { super::print(show(&made).trim_end()) }
}

fn show(made: &EmbedResult) -> String {
    let mut rows = vec![
        ("embedded".to_string(), format!("{} images, {} numbers each ({})", made.rows, made.dim, made.features)),
        (
            "model".into(),
            if made.model.is_empty() {
                "clusters of patches, learned from these images".into()
            } else {
                made.model.clone()
            },
        ),
        ("written".into(), made.out.display().to_string()),
        ("names of the rows".into(), made.files.display().to_string()),
    ];
    if let Some(bad) = &made.bad_files {
        rows.push(("cannot be read".into(), format!("{}  ({})", made.unreadable, bad.display())));
    }
    table::columns(&rows)
}
