//! `pcp data`.

use super::progress::{bar, byte_bar};
use super::table;
use clap::{Args, Subcommand};
use pcp::data::derive::{self, Derived};
use pcp::data::fetch::{Archive, Outcome, Patience};
use pcp::data::{self, Load, Source};
use pcp::detect::shapes;
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub enum Verb {
    /// Say what is there, how many, and what is broken
    Check(Check),
    /// Download CIFAR-10 or CIFAR-100
    Fetch(Fetch),
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
    /// A folder of images or of idx files, cifar10, cifar100 or bundled
    data: String,
    /// Where the CIFAR files are
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Fail when a file cannot be read
    #[arg(long)]
    strict: bool,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
#[command(after_help = "\
What was begun is continued. The archive is verified before anything is unpacked. Without a network, put the archive
(cifar-10-binary.tar.gz or cifar-100-binary.tar.gz) into DIR: it is then verified and unpacked.

Examples:
  pcp data fetch cifar10 --data-dir DATA
  pcp data fetch cifar100 --data-dir DATA --from http://mirror.example.org/cifar-100-binary.tar.gz")]
pub struct Fetch {
    /// cifar10 or cifar100
    data: String,
    /// The folder to put it in
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Another address of the archive [default: that of the official page]; its checksum must be the official one
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// Print what was done as JSON
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

pub fn run(verb: Verb, stop: &Cancel) -> Result<()> {
    match verb {
        Verb::Check(args) => check(args, stop),
        Verb::Fetch(args) => fetch(args, stop),
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

fn fetch(args: Fetch, stop: &Cancel) -> Result<()> {
    let archive = Archive::named(&args.data)?;
    let archive = Archive { url: args.from.unwrap_or(archive.url), ..archive };
    let (title, folder) = (archive.title, args.data_dir.join(archive.folder));
    let outcome = bring(archive, &args.data_dir, args.json, stop)?;
    let done = match outcome {
        Outcome::AlreadyThere => "already there",
        Outcome::Unpacked => "unpacked",
        Outcome::Fetched => "fetched",
    };
    if args.json {
        return super::print_json(&serde_json::json!({ "data": args.data, "folder": folder, "done": done }));
    }
    super::print(&format!("{title} is in {} ({done})", folder.display()))
}

/// Fetches with a bar; a stop ends it at once, and what came is kept.
fn bring(archive: Archive, data_dir: &Path, quiet: bool, stop: &Cancel) -> Result<Outcome> {
    let bar = byte_bar("fetching", quiet);
    let (shown, heard, data_dir) = (bar.clone(), stop.clone(), data_dir.to_path_buf());
    let outcome = stop.run(move || {
        archive.fetch(&data_dir, Patience::default(), &heard, &|done, total| {
            total.iter().for_each(|total| shown.set_length(*total));
            shown.set_position(done);
        })
    });
    bar.finish_and_clear();
    outcome?
}

/// Asks whether to fetch the files that `source` lacks in `data_dir`, where there is someone to answer; tells whether they
/// were fetched.
pub(super) fn offer(source: &Source, data_dir: &Path, quiet: bool, stop: &Cancel) -> Result<bool> {
    let archive = match source {
        Source::Cifar10 | Source::Cifar100 => Archive::named(&source.to_string())?,
        _ => return Ok(false),
    };
    let someone = !quiet && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if data_dir.as_os_str().is_empty() || archive.is_there(data_dir) || !someone {
        return Ok(false);
    }
    let question = format!("{} is not in {}. Fetch it from {}? [Y/n] ", archive.title, data_dir.display(), archive.url);
    if !agrees(&question, &mut std::io::stdin().lock()) {
        return Ok(false);
    }
    bring(archive, data_dir, quiet, stop)?;
    Ok(true)
}

/// Asks, and takes an empty line for a yes.
fn agrees(question: &str, answers: &mut dyn std::io::BufRead) -> bool {
    eprint!("{question}");
    let mut answer = String::new();
    let heard = answers.read_line(&mut answer).is_ok_and(|n| n > 0);
    heard && matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes")
}

fn check(args: Check, stop: &Cancel) -> Result<()> {
    let source = Source::parse(&args.data)?;
    source.check_dir(args.data_dir.is_some())?;
    let load = Load { data_dir: args.data_dir, ..Load::new(source) };
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
    if args.strict && !check.bad.is_empty() {
        return Err(Error::data(
            format!("{} of the files in {} cannot be read", check.bad.len(), args.data),
            "mend or remove them",
        ));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        for (answer, yes) in
            [("\n", true), ("y\n", true), ("YES\n", true), ("n\n", false), ("", false), ("what\n", false)]
        {
            assert_eq!(agrees("", &mut answer.as_bytes()), yes, "{answer:?}");
        }
        let (nowhere, stop) = (Path::new(""), Cancel::default());
        assert!(!offer(&Source::Cifar10, nowhere, false, &stop).unwrap(), "there is no folder to put it in");
        assert!(!offer(&Source::Bundled, Path::new("x"), false, &stop).unwrap());
        assert!(!offer(&Source::Cifar10, Path::new("x"), true, &stop).unwrap(), "nobody is asked");
    }
}
