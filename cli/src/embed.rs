//! `pcp embed`.

use super::{progress, table};
use clap::{Args, ValueEnum};
use pcp::embed::Format;
use pcp::jobs::{EmbedOptions, EmbedResult, embed};
use pcp::model::Preprocess;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
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
  pcp embed dinov2.onnx PHOTOS/ --out dinov2.npy                    an encoder of another tool; then pcp cluster, pcp purify
  pcp embed resnet18.onnx PHOTOS/ --size 224 --resize 256 --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225 --out e.npy

Every image below the folder is taken, of all splits, in the byte order of its path. Images are read batch by batch: there may be
any number of them. Those that cannot be read are left out and listed in bad_files.csv. Nothing is written over.

ONNX files are run by programs built with --features onnx, and by that of the Python package. How their images are made is as the flags say,
as a preprocessor_config.json beside the file says, or as a file written by pcp export says itself.")]
pub struct EmbedArgs {
    /// The model (a run folder, a model file or an encoder in ONNX), then the images (a folder, one image, cifar10, cifar100 or bundled). Images alone: clusters of
    /// patches are learned from them
    #[arg(required = true, num_args = 1..=2, value_names = ["MODEL", "IMAGES"])]
    inputs: Vec<String>,
    /// The file to make
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Which features: embedding, pooled, whitened (pooled, partially whitened), or a layer: layer1 to layer4, conv1 to conv5 (average-pooled to at most 10,000 numbers)
    #[arg(long, default_value = "embedding", value_name = "embedding|pooled|whitened|layerN")]
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
    /// Side of the images of an ONNX file, in pixels
    #[arg(long, value_name = "PX")]
    size: Option<usize>,
    /// Short side that they are resized to, before their centre is cut out [default: --size]
    #[arg(long, value_name = "PX")]
    resize: Option<usize>,
    /// Resize them to a square whatever their shape, and cut nothing off
    #[arg(long, conflicts_with = "resize")]
    squash: bool,
    /// Channel means that an ONNX file's images are normalised by, of values from 0 to 1
    #[arg(long, value_name = "R,G,B", value_delimiter = ',', num_args = 1, allow_negative_numbers = true)]
    mean: Vec<f64>,
    /// Channel standard deviations
    #[arg(long, value_name = "R,G,B", value_delimiter = ',', num_args = 1)]
    std: Vec<f64>,
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
        preprocess: Preprocess {
            size: args.size,
            resize: args.resize,
            squash: args.squash.then_some(true),
            mean: channels("mean", &args.mean)?,
            std: channels("std", &args.std)?,
            bicubic: false,
        },
        ..EmbedOptions::patches(images, &args.out)
    };
    let made = embed(&options, &progress::job(args.json, stop))?;
    if args.json { super::print_json(&made) } else { super::print(show(&made).trim_end()) }
}

/// Three numbers, or none.
fn channels(flag: &str, values: &[f64]) -> Result<Option<[f64; 3]>> {
    match values {
        [] => Ok(None),
        &[all] => Ok(Some([all; 3])),
        &[r, g, b] => Ok(Some([r, g, b])),
        _ => Err(Error::usage(format!("--{flag} has {} numbers", values.len()), "give three, as 0.5,0.5,0.5, or one")),
    }
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
