//! `pcp data`.

use super::progress::bar;
use super::table;
use crate::data::{self, Load, Source};
use crate::error::{Error, Result};
use crate::work::Stop;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Verb {
    /// Say what is there, how many, and what is broken
    Check(Check),
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

pub fn run(verb: Verb, stop: &Stop) -> Result<()> {
    let Verb::Check(args) = verb;
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
