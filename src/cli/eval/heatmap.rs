//! `pcp eval heatmap`.

use crate::augment::Augmenter;
use crate::backbone::{Batch, Network, Weights};
use crate::cli;
use crate::cli::progress::bar;
use crate::cli::table;
use crate::data::Image;
use crate::data::decode;
use crate::data::voc::Annotation;
use crate::error::{Error, Result};
use crate::evaluate::heatmap::{Heat, heat, overlay, write_png};
use crate::files::make_folder;
use crate::run::RunFolder;
use crate::train::setup;
use crate::work::Stop;
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp eval heatmap runs/photos --images a.jpg b.jpg            overlays in runs/photos/eval/heat
  pcp eval heatmap runs/c10 --images *.png --snapshots all     one picture per snapshot (train with --snapshots N)
  pcp eval heatmap runs/c10 --images VOC2007/JPEGImages/*.jpg --boxes VOC2007    share of the heat inside the boxes")]
pub struct Heatmap {
    /// A run folder
    run: PathBuf,
    /// Image files
    #[arg(long, num_args = 1.., required = true, value_name = "FILE")]
    images: Vec<PathBuf>,
    /// Also the snapshots along the way
    #[arg(long, value_name = "all", value_parser = ["all"])]
    snapshots: Option<String>,
    /// A VOC folder: its Annotations have the boxes
    #[arg(long, value_name = "VOC")]
    boxes: Option<PathBuf>,
    /// Where the pictures go [default: RUN/eval/heat]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Use the weights of the best probe instead of the last
    #[arg(long)]
    best: bool,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// What one state of the network looks at.
#[derive(Serialize)]
struct Seen {
    /// File of the weights.
    weights: String,
    /// Mean share of the heat inside the boxes, where there are boxes.
    inside: Option<f64>,
    /// Mean share of the area inside the boxes: what an even heat would have.
    area: Option<f64>,
    /// Images that have boxes.
    images_with_boxes: usize,
}

#[derive(Serialize)]
struct Report {
    images: usize,
    pictures: String,
    states: Vec<Seen>,
}

/// Side of the pictures.
const SHOWN: usize = 224;

pub fn run(args: &Heatmap, stop: &Stop) -> Result<()> {
    cli::use_threads(args.threads)?;
    let run = RunFolder::open(&args.run)?;
    let (config, _) = run.read_config()?;
    let (network, weights, _, file) = setup::read_model(&run, &config, args.best)?;
    let augmenter = setup::augmenter(&config);
    let pictures =
        args.images.iter().map(|path| Picture::read(path, args.boxes.as_deref())).collect::<Result<Vec<_>>>()?;
    let mut states = match args.snapshots {
        Some(_) => setup::read_snapshots(&run, &config)?,
        None => Vec::new(),
    };
    if args.snapshots.is_some() && states.is_empty() {
        return Err(Error::usage(
            format!("{} has no snapshots", run.path().display()),
            "train with --snapshots N, or leave out --snapshots",
        ));
    }
    states.push((file, weights));
    let out = args.out.clone().unwrap_or_else(|| run.file("eval").join("heat"));
    make_folder(&out)?;
    let bar = bar("heat maps", args.json);
    bar.set_length((states.len() * pictures.len()) as u64);
    let mut seen = Vec::new();
    for (name, weights) in &states {
        let mut shares = Vec::new();
        for picture in &pictures {
            let heat = picture.heat(&network, weights, &augmenter, stop)?;
            let stem = Path::new(name).file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
            let shown = overlay(&picture.square(&augmenter, SHOWN), &heat);
            write_png(&out.join(format!("{}-{stem}.png", picture.name)), &shown)?;
            if let Some(boxes) = picture.boxes(&augmenter) {
                shares.push(heat.upsampled(SHOWN).inside(&boxes));
            }
            bar.inc(1);
        }
        let mean = |of: fn(&(f64, f64)) -> f64| {
            (!shares.is_empty()).then(|| shares.iter().map(of).sum::<f64>() / shares.len() as f64)
        };
        seen.push(Seen {
            weights: name.clone(),
            inside: mean(|s| s.0),
            area: mean(|s| s.1),
            images_with_boxes: shares.len(),
        });
    }
    bar.finish_and_clear();
    let report = Report { images: pictures.len(), pictures: out.display().to_string(), states: seen };
    super::keep(&run, "heat.json", &report)?;
    if args.json {
        return cli::print_json(&report);
    }
    let share = |s: &Seen| match (s.inside, s.area) {
        (Some(inside), Some(area)) => {
            format!("{:.1} % of the heat in the boxes, which are {:.1} % of the area", inside * 100.0, area * 100.0)
        }
        _ => "no boxes".into(),
    };
    let rows: Vec<_> = report.states.iter().map(|s| (s.weights.clone(), share(s))).collect();
    cli::print(&format!("{}  {} pictures a state in {}", table::columns(&rows), report.images, report.pictures))
}

/// An image file with its boxes.
struct Picture {
    /// Name for the pictures made of it.
    name: String,
    image: Image,
    annotation: Option<Annotation>,
}

impl Picture {
    fn read(path: &Path, voc: Option<&Path>) -> Result<Picture> {
        let image = decode::file(path).map_err(|reason| {
            Error::data(format!("{}: {reason}", path.display()), "give images that can be read, or leave this one out")
        })?;
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let annotation = match voc.map(|voc| voc.join("Annotations").join(format!("{name}.xml"))) {
            Some(xml) if xml.exists() => Some(Annotation::read(&xml)?),
            Some(xml) if voc.is_some_and(|voc| !voc.join("Annotations").is_dir()) => {
                let message = format!("there is no folder {}", xml.parent().unwrap_or(&xml).display());
                return Err(Error::data(message, "give --boxes the VOC folder that holds Annotations"));
            }
            _ => None,
        };
        Ok(Picture { name, image, annotation })
    }

    /// The clean view's square cut out of the image, `side` px wide.
    fn square(&self, augmenter: &Augmenter, side: usize) -> Image {
        let plain = Augmenter { size: side, mean: [0.0; 3], std: [1.0; 3], ..augmenter.clone() };
        let mut values = vec![0.0; side * side * 3];
        plain.clean_view(&self.image, &mut values);
        let pixels = values.iter().map(|v| (v * 255.0).round().clamp(0.0, 255.0) as u8).collect();
        Image { width: side, height: side, pixels }
    }

    fn heat(&self, network: &Network, weights: &Weights, augmenter: &Augmenter, stop: &Stop) -> Result<Heat> {
        stop.check()?;
        let mut pixels = vec![0.0; augmenter.size * augmenter.size * 3];
        augmenter.clean_view(&self.image, &mut pixels);
        Ok(heat(network, weights, &Batch { rows: 1, pixels }).remove(0))
    }

    /// The boxes in shares of the clean view's square; `None` where none reaches into it.
    fn boxes(&self, augmenter: &Augmenter) -> Option<Vec<[f32; 4]>> {
        let (w, h) = (self.image.width as f32, self.image.height as f32);
        // The square shows this much of the short side.
        let side = w.min(h) / augmenter.margin.max(1.0);
        let (left, top) = ((w - side) / 2.0, (h - side) / 2.0);
        let share = |b: &[f32; 4]| {
            let x = |v: f32| ((v - left) / side).clamp(0.0, 1.0);
            let y = |v: f32| ((v - top) / side).clamp(0.0, 1.0);
            [x(b[0]), y(b[1]), x(b[2]), y(b[3])]
        };
        let boxes: Vec<[f32; 4]> = self.annotation.as_ref()?.objects.iter().map(|o| share(&o.bounds)).collect();
        let reaching: Vec<_> = boxes.into_iter().filter(|b| b[2] > b[0] && b[3] > b[1]).collect();
        (!reaching.is_empty()).then_some(reaching)
    }
}
