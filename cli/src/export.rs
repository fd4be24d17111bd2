//! `pcp export`.

use clap::{Args as Arguments, ValueEnum};
use pcp::model::{Model, WhichWeights};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_parent, require_absent};
use std::path::PathBuf;

#[derive(Arguments)]
#[command(after_help = "\
Examples:
  pcp export runs/photos --to onnx                                    writes photos.onnx
  pcp export runs/photos --to onnx --with-preprocess --out net.onnx   takes values from 0 to 1 and normalises them itself
  pcp export runs/c10 --to safetensors --best                         for PyTorch: python/pcp_models.py loads it
  pcp export runs/c10 --to onnx --sample sample.npz                   with images and our features of them, to try it on

The ONNX model (opset 17) takes images [batch, 3, side, side] and gives embedding (unit vectors) and pooled. Safetensors has
torchvision's names, so that load_state_dict of a torchvision ResNet18 takes it.")]
pub struct Args {
    /// A run folder, or a safetensors file in torchvision's names
    #[arg(value_name = "RUN|FILE")]
    model: PathBuf,
    /// For whom
    #[arg(long)]
    to: Format,
    /// The file [default: the name of the run, here]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Normalise inside the ONNX model
    #[arg(long)]
    with_preprocess: bool,
    /// Also write eight images of noise, and what the network makes of them, as NPZ: input, pooled, embedding
    #[arg(long, value_name = "FILE.npz")]
    sample: Option<PathBuf>,
    /// Use the weights of the best probe instead of the last
    #[arg(long)]
    best: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For PyTorch and others
    Safetensors,
    /// For onnxruntime and others
    Onnx,
}

/// Images of a sample.
const SAMPLE: usize = 8;

pub fn run(args: &Args, stop: &Cancel) -> Result<()> {
    let (ending, onnx) = match args.to {
        Format::Safetensors => ("safetensors", false),
        Format::Onnx => ("onnx", true),
    };
    if args.with_preprocess && !onnx {
        return Err(Error::usage("--with-preprocess is for ONNX: safetensors has weights alone", "leave it out"));
    }
    let model = Model::open_weights(&args.model, WhichWeights::best(args.best))?;
    let out = args.out.clone().unwrap_or_else(|| {
        let full = args.model.canonicalize().unwrap_or_else(|_| args.model.clone());
        let name = if full.is_dir() { full.file_name() } else { full.file_stem() };
        PathBuf::from(name.unwrap_or_default()).with_added_extension(ending)
    });
    for file in std::iter::once(&out).chain(&args.sample) {
        require_absent(file)?;
    }
    if args.sample.as_ref() == Some(&out) {
        return Err(Error::usage("--sample and --out are one file", "give them two names"));
    }
    stop.check()?;
    for file in std::iter::once(&out).chain(&args.sample) {
        make_parent(file)?;
    }
    if onnx {
        model.write_onnx(&out, args.with_preprocess)?
    } else {
        model.write_safetensors(&out)?
    }
    let mut written = vec![out.display().to_string()];
    if let Some(sample) = &args.sample {
        model.write_sample(sample, SAMPLE, args.with_preprocess)?;
        written.push(sample.display().to_string());
    }
    let side = model.network.size;
    let values =
        if args.with_preprocess { "RGB from 0 to 1" } else { "RGB from 0 to 1, minus mean, divided by deviation" };
    crate::print(&format!("{} ({side} x {side} px, {values})", written.join(", ")))
}
