//! `pcp export`.

use super::progress;
use clap::{Args, ValueEnum};
use pcp::jobs::{ExportFormat, ExportOptions, export};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp export runs/photos --to onnx                                    writes photos.onnx
  pcp export runs/photos --to onnx --with-preprocess --out net.onnx   takes values from 0 to 1 and normalises them itself
  pcp export runs/c10 --to safetensors --best                         for PyTorch: python/pcp_models.py loads it
  pcp export runs/c10 --to onnx --sample sample.npz                   with images and our features of them, to try it on

The ONNX model (opset 17) takes images [batch, 3, side, side] and gives embedding (unit vectors) and pooled. Safetensors has
torchvision's names, so that load_state_dict of a torchvision ResNet18 takes it.")]
pub struct ExportArgs {
    /// A run folder, or a safetensors file in torchvision's names
    #[arg(value_name = "RUN|FILE")]
    model: PathBuf,
    /// For whom
    #[arg(long)]
    to: ToArg,
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

pub fn run(args: &ExportArgs, stop: &Cancel) -> Result<()> {
    let to = match args.to {
        ToArg::Safetensors => ExportFormat::Safetensors,
        ToArg::Onnx => ExportFormat::Onnx,
    };
    let options = ExportOptions {
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
    super::print(&format!("{} ({side} x {side} px)\n  input: {}; {values}", files.join(", "), made.preprocessing))
}
