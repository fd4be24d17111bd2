//! `pcp eval tsne`.

use super::{Common, Origin, embed};
use crate::progress::bar;
use crate::table;
use clap::{Args, ValueEnum};
use pcp::data::loader::Part;
use pcp::evaluate::clusters::some;
use pcp::picture::Scatter;
use pcp::run::RunFolder;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_folder, write_atomic, write_bytes};
use pcp_core::io::csv;
use pcp_core::matrix::Matrix;
use pcp_core::scores::trustworthiness;
use pcp_core::tsne;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pcp eval tsne runs/photos
  pcp eval tsne runs/c10 --limit 5000 --perplexity 50 --out pictures
  pcp eval tsne runs/photos --part train --json

It writes tsne.csv, tsne.svg and tsne.png. The same features give the same picture, on any number of threads."
)]
pub struct Tsne {
    /// A run folder
    run: PathBuf,
    /// Folder for the files [default: RUN/eval]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How many neighbours count, roughly; at most a third of the other images
    #[arg(long, default_value_t = 30.0)]
    perplexity: f64,
    /// Which images [default: test, or train where there are none to test on]
    #[arg(long)]
    part: Option<Which>,
    /// Look at this many images, drawn at random [default: all]
    #[arg(long)]
    limit: Option<usize>,
    /// Which images --limit draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, ValueEnum)]
enum Which {
    /// Those to test on
    Test,
    /// Those to learn from
    Train,
}

#[derive(Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    origin: Origin,
    images: usize,
    perplexity: f64,
    /// Of five neighbours; `None` for very few images, and for very many.
    pub(crate) trustworthiness: Option<f64>,
    files: Vec<String>,
}

/// Neighbours that trustworthiness looks at, and images at the most: it looks at all pairs.
const NEIGHBOURS: usize = 5;
const PAIRED: usize = 20_000;

pub fn run(args: &Tsne, stop: &Cancel) -> Result<()> {
    crate::use_threads(args.common.threads)?;
    let settings = tsne::Tsne { perplexity: args.perplexity, ..tsne::Tsne::default() };
    settings.check()?;
    if args.limit == Some(0) {
        return Err(Error::usage("--limit is 0", "give a number from 1 on, or leave it out for all images"));
    }
    let run = RunFolder::open(&args.run)?;
    let part = args.part.map(|part| match part {
        Which::Test => Part::Test,
        Which::Train => Part::Train,
    });
    let asked =
        Asked { settings, part, limit: args.limit.unwrap_or(usize::MAX), seed: args.seed, best: args.common.best };
    let out = args.out.clone().unwrap_or_else(|| run.file("eval"));
    let report = draw(&run, asked, &out, args.common.json, stop)?;
    if args.common.json { crate::print_json(&report) } else { crate::print(show(&report).trim_end()) }
}

/// What is to be drawn.
pub(crate) struct Asked {
    pub(crate) settings: tsne::Tsne,
    /// Which images; by default those to test on, where there are any.
    pub(crate) part: Option<Part>,
    /// At the most so many, drawn by the seed.
    pub(crate) limit: usize,
    pub(crate) seed: u64,
    /// The weights of the best probe instead of the last.
    pub(crate) best: bool,
}

/// Lays out the features of a run and writes places and pictures into `out`.
pub(crate) fn draw(run: &RunFolder, asked: Asked, out: &Path, quiet: bool, stop: &Cancel) -> Result<Report> {
    let Asked { settings, part, limit, seed, best } = asked;
    let (config, _) = run.read_config()?;
    let embedded = embed(run, &config, best, part, quiet, stop)?;
    let drawn = some(embedded.images().ids(), limit, seed);
    let values = drawn.iter().flat_map(|&row| embedded.features.row(row)).copied().collect();
    let features = Matrix { rows: drawn.len(), dim: embedded.features.dim, values };

    let shown = bar("t-SNE", quiet);
    shown.set_length(settings.iterations as u64);
    let (seen, asked) = (shown.clone(), stop.clone());
    let (places, trust) = stop.run(move || -> Result<(Matrix, Option<f64>)> {
        let places = tsne::tsne(&features, &settings, &mut |done| {
            seen.set_position(done as u64);
            asked.check()
        })?;
        let few = features.rows <= PAIRED;
        let trust = few.then(|| trustworthiness(&features, &places, NEIGHBOURS)).flatten();
        Ok((places, trust))
    })??;
    shown.finish_and_clear();

    make_folder(out)?;
    let points: Vec<[f32; 2]> = places.values.as_chunks().0.to_vec();
    let names: Vec<&str> = drawn.iter().map(|&row| embedded.images().names()[row].as_str()).collect();
    let labels =
        embedded.labels().map(|labels| (drawn.iter().map(|&row| labels.of[row]).collect(), &labels.classes[..]));
    let files = write(out, &points, &names, labels.as_ref().map(|(of, classes): &(Vec<u32>, _)| (&of[..], *classes)))?;
    Ok(Report {
        images: points.len(),
        perplexity: settings.perplexity_of(points.len()),
        trustworthiness: trust,
        files,
        origin: embedded.origin,
    })
}

/// Writes the places and their pictures; returns the files.
fn write(out: &Path, points: &[[f32; 2]], names: &[&str], groups: Option<(&[u32], &[String])>) -> Result<Vec<String>> {
    let [csv, svg, png] = ["tsne.csv", "tsne.svg", "tsne.png"].map(|name| out.join(name));
    write_atomic(&csv, |w| {
        writeln!(w, "file,label,x,y")?;
        for (i, ([x, y], name)) in points.iter().zip(names).enumerate() {
            let label = groups.map_or(String::new(), |(of, classes)| csv::field(&classes[of[i] as usize]));
            writeln!(w, "{},{label},{x},{y}", csv::field(name))?;
        }
        Ok(())
    })?;
    let scatter = Scatter { points, groups };
    write_bytes(&svg, scatter.svg().as_bytes())?;
    write_bytes(&png, &scatter.png()?)?;
    Ok([csv, svg, png].iter().map(|path| path.display().to_string()).collect())
}

fn show(report: &Report) -> String {
    let Report { origin, images, perplexity, trustworthiness, files } = report;
    let mut rows = vec![
        ("t-SNE".to_string(), format!("{images} {}, perplexity {perplexity:.1}", origin.images_of)),
        origin.measured.row(),
    ];
    if let Some(trust) = trustworthiness {
        rows.push(("trustworthiness".into(), format!("{trust:.3}  ({NEIGHBOURS} neighbours)")));
    }
    rows.extend(files.iter().map(|file| ("written".to_string(), file.clone())));
    table::columns(&rows)
}
