//! `pcp export`.

use super::progress;
use clap::{Args, ValueEnum};
use pcp::jobs::{ExportFormat, ExportOptions, ExportPart, export};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp export runs/photos --to onnx                                    writes photos.onnx
  pcp export runs/photos --to onnx --with-preprocess --out net.onnx   takes values from 0 to 1 and normalises them itself
  pcp export runs/photos --to safetensors --part network              of patches and a network side by side, the network
  pcp export runs/c10 --to safetensors --best                         for PyTorch: python/pcp_models.py loads it
  pcp export runs/c10 --to onnx --sample sample.npz                   with images and our features of them, to try it on

The ONNX model (opset 17) takes images [batch, 3, side, side] and gives embedding (unit vectors) and pooled. Where the run has
patches and a network side by side (the preset pcp-plus), it takes two views, input and square, and its embedding is the run's.
Safetensors has torchvision's names, so that load_state_dict of a torchvision ResNet18 takes it.")]
pub struct ExportArgs {
    /// A run folder, or a safetensors file in torchvision's names
    #[arg(value_name = "RUN|FILE")]
    model: PathBuf,
    /// For whom
    #[arg(long)]
    to: ToArg,
    /// Of patches and a network side by side, one of them [default: both, in ONNX]
    #[arg(long)]
    part: Option<ExportPartArg>,
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
enum ToArg {
    /// For PyTorch and others
    Safetensors,
    /// For onnxruntime and others
    Onnx,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportPartArg {
    /// The network; its embedding is that of its last layer
    Network,
    /// The clusters of patches
    Patches,
}

pub fn run(args: &ExportArgs, stop: &Cancel) -> Result<()> {
    let to = match args.to {
        ToArg::Safetensors => ExportFormat::Safetensors,
        ToArg::Onnx => ExportFormat::Onnx,
    };
    let part = args.part.map(|part| match part {
        ExportPartArg::Network => ExportPart::Network,
        ExportPartArg::Patches => ExportPart::Patches,
    });
    let options = ExportOptions {
        part,
        out: args.out.clone(),
        with_preprocess: args.with_preprocess,
        sample: args.sample.clone(),
        best: args.best,
        ..ExportOptions::new(&args.model, to)
    };
    let made = export(&options, &progress::job(false, stop))?;
    let files: Vec<String> = std::iter::once(&made.out).chain(&made.sample).map(|f| f.display().to_string()).collect();
    let values = match made.with_preprocess {
        true => "RGB from 0 to 1; the model normalises it".to_string(),
        false => {
            let list = |v: [f64; 3]| v.map(|x| x.to_string()).join(", ");
            format!("RGB from 0 to 1, minus mean ({}), divided by deviation ({})", list(made.mean), list(made.std))
        }
    };
    let side = made.side;
    let square = made
        .square
        .map_or_else(String::new, |(side, how)| format!("\n  square: {side} x {side} px; {how}; RGB from 0 to 1"));
    let files = files.join(", ");
    super::print(&format!("{files} ({side} x {side} px)\n  input: {}; {values}{square}", made.preprocessing))
}
