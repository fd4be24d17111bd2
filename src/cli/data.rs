//! `pcp data`.

use super::progress::bar;
use super::table;
use crate::data::derive::{self, Derived};
use crate::data::{self, Load, Source};
use crate::detect::shapes;
use crate::error::{Error, Result};
use crate::work::Stop;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Verb {
    /// Say what is there, how many, and what is broken
    Check(Check),
    /// Make the paper's ImageNet-100 out of ImageNet, by links
    In100(In100),
    /// Make training and test folders out of CUB-200-2011, by links
    Cub200(Cub200),
    /// Make up a small detection set in VOC's layout: discs, squares and triangles on noise
    Shapes(Shapes),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp data check PHOTOS/
  pcp data check cifar10 --data-dir DATA
  pcp data check bundled --json")]
pub struct Check {
    /// A folder of images, cifar10, cifar100 or bundled
    data: String,
    /// Where the CIFAR files are
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(after_help = "\
The images stay where they are: the new folder holds a link for every class.

Examples:
  pcp data in100 IMAGENET/ --out DATA/in100
  pcp train DATA/in100 --preset in100")]
pub struct In100 {
    /// The folder of ImageNet (ILSVRC2012), with train/<wnid>/ and val/<wnid>/
    imagenet: PathBuf,
    #[command(flatten)]
    made: Made,
}

#[derive(Args)]
#[command(after_help = "\
The images stay where they are: the new folder holds a link for every image, by the official split.

Examples:
  pcp data cub200 CUB_200_2011/ --out DATA/cub200
  pcp train DATA/cub200 --preset cub200")]
pub struct Cub200 {
    /// The folder CUB_200_2011 of the release, with images.txt, train_test_split.txt and images/
    cub: PathBuf,
    #[command(flatten)]
    made: Made,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp data shapes --out DATA/shapes
  pcp detect train random --width 8 --voc DATA/shapes --classes disc,square,triangle --short-side 96 --rois 32 --proposals 100 \\
      --test-proposals 50 --epochs 40 --batch 4 --lr 0.02 --out runs/shapes      half a minute, mAP above 90")]
pub struct Shapes {
    /// The folder to make; it must be new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Images to learn from
    #[arg(long, default_value_t = 160, value_name = "N")]
    train: usize,
    /// Images to test on
    #[arg(long, default_value_t = 32, value_name = "N")]
    test: usize,
    /// Their shorter side in pixels
    #[arg(long, default_value_t = 96, value_name = "PIXELS")]
    side: usize,
    /// Everything random follows from it
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Args)]
struct Made {
    /// The folder to make; it must be new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(verb: Verb, stop: &Stop) -> Result<()> {
    match verb {
        Verb::Check(args) => check(args, stop),
        Verb::Shapes(args) => {
            let Shapes { out, train, test, side, seed } = args;
            shapes::write(&out, &shapes::Request { train, test, side, seed }, stop)?;
            let classes = shapes::classes().join(",");
            super::print(&format!(
                "  made {} with {train} images to learn from and {test} to test on; --classes {classes}",
                out.display()
            ))
        }
        Verb::In100(In100 { imagenet, made }) => made.show(&derive::in100(&imagenet, &made.out, stop)?),
        Verb::Cub200(Cub200 { cub, made }) => {
            let bar = bar("linking", made.json);
            let derived = derive::cub200(&cub, &made.out, stop, &|done, total| {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
            });
            bar.finish_and_clear();
            made.show(&derived?)
        }
    }
}

impl Made {
    fn show(&self, derived: &Derived) -> Result<()> {
        if self.json {
            return super::print_json(derived);
        }
        let rows = [
            ("made".to_string(), self.out.display().to_string()),
            ("classes".into(), derived.classes.to_string()),
            ("images to learn from".into(), derived.train.to_string()),
            ("images to test on".into(), derived.test.to_string()),
        ];
        super::print(table::columns(&rows).trim_end())
    }
}

fn check(args: Check, stop: &Stop) -> Result<()> {
    let load = Load { data_dir: args.data_dir, ..Load::new(Source::parse(&args.data)?) };
    let bar = bar("checking", args.json);
    let shown = bar.clone();
    let check = stop.run(move || {
        data::check(&load, &|done, total| {
            shown.set_length(total as u64);
            shown.set_position(done as u64);
        })
    });
    bar.finish_and_clear();
    let check = check??;
    if args.json {
        super::print_json(&check)?;
    } else {
        let broken = check.bad.iter().map(|bad| format!("  broken: {}: {}\n", bad.name, bad.reason));
        let text = table::columns(&rows(&check)) + &broken.collect::<String>();
        super::print(text.trim_end())?;
    }
    match check.train {
        0 | 1 => Err(Error::data(
            format!("{} has {} readable images to learn from", check.name, check.train),
            "training needs two at least: add images, or mend the broken ones",
        )),
        _ => Ok(()),
    }
}

fn rows(check: &data::Check) -> Vec<(String, String)> {
    let mut rows = vec![
        ("data".to_string(), check.name.clone()),
        ("images to learn from".into(), check.train.to_string()),
        ("images to test on".into(), check.test.map_or("none: evaluation leaves one out".into(), |n| n.to_string())),
    ];
    match &check.classes {
        Some(classes) => {
            rows.push(("classes".into(), classes.len().to_string()));
            for class in classes {
                rows.push((format!("  {}", class.name), format!("{} + {}", class.train, class.test)));
            }
        }
        None => rows.push(("classes".into(), "none: no kNN probe".into())),
    }
    if let (Some(small), Some(large)) = (&check.smallest, &check.largest) {
        rows.push(("sizes".into(), format!("{small} to {large}")));
    }
    rows.push(("pixels".into(), table::bytes(check.bytes as f64)));
    rows.push(("other files".into(), check.ignored.to_string()));
    rows.push(("broken files".into(), check.bad.len().to_string()));
    rows
}
