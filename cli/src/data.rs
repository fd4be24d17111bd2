//! `pcp data`.

use super::{progress, table};
use clap::{Args, Subcommand};
use pcp::data::derive::Derived;
#[cfg(feature = "fetch")]
use pcp::data::fetch::Archive;
use pcp::data::{self, Source};
use pcp::jobs::{DataCheckOptions, DataShapesOptions, DeriveOptions, data_check, data_cub200, data_in100, data_shapes};
#[cfg(feature = "fetch")]
use pcp::jobs::{DataFetchOptions, data_fetch};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
#[cfg(feature = "fetch")]
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub enum DataVerb {
    /// Say what is there, how many, and what is broken
    Check(CheckArgs),
    /// Download CIFAR-10 or CIFAR-100
    #[cfg(feature = "fetch")]
    Fetch(FetchArgs),
    /// Make the paper's ImageNet-100 out of ImageNet, by links
    In100(In100Args),
    /// Make training and test folders out of CUB-200-2011, by links
    Cub200(Cub200Args),
    /// Make up a small detection set in VOC's layout: discs, squares and triangles on noise
    Shapes(ShapesArgs),
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp data check PHOTOS/
  pcp data check cifar10 --data-dir DATA
  pcp data check bundled --json")]
pub struct CheckArgs {
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

#[cfg(feature = "fetch")]
#[derive(Args)]
#[command(after_help = "\
What was begun is continued. The archive is verified before anything is unpacked. Without a network, put the archive
(cifar-10-binary.tar.gz or cifar-100-binary.tar.gz) into DIR: it is then verified and unpacked.

Examples:
  pcp data fetch cifar10 --data-dir DATA
  pcp data fetch cifar100 --data-dir DATA --from http://mirror.example.org/cifar-100-binary.tar.gz")]
pub struct FetchArgs {
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
pub struct In100Args {
    /// The folder of ImageNet (ILSVRC2012), with train/<wnid>/ and val/<wnid>/
    imagenet: PathBuf,
    #[command(flatten)]
    made: MadeArgs,
}

#[derive(Args)]
#[command(after_help = "\
The images stay where they are: the new folder holds a link for every image, by the official split.

Examples:
  pcp data cub200 CUB_200_2011/ --out DATA/cub200
  pcp train DATA/cub200 --preset cub200")]
pub struct Cub200Args {
    /// The folder CUB_200_2011 of the release, with images.txt, train_test_split.txt and images/
    cub: PathBuf,
    #[command(flatten)]
    made: MadeArgs,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  pcp data shapes --out DATA/shapes
  pcp detect train random --width 8 --voc DATA/shapes --classes disc,square,triangle --short-side 96 --rois 32 --proposals 100 \\
      --test-proposals 50 --epochs 40 --batch 4 --lr 0.02 --out runs/shapes      half a minute, mAP above 90")]
pub struct ShapesArgs {
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
struct MadeArgs {
    /// The folder to make; it must be new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(verb: DataVerb, stop: &Cancel) -> Result<()> {
    super::use_threads(0)?;
    match verb {
        DataVerb::Check(args) => check(args, stop),
        #[cfg(feature = "fetch")]
        DataVerb::Fetch(args) => fetch(args, stop),
        DataVerb::Shapes(ShapesArgs { out, train, test, side, seed }) => {
            let options = DataShapesOptions { out, train, test, side, seed };
            let made = data_shapes(&options, &progress::job(false, stop))?;
            super::print(&format!(
                "  made {} with {} images to learn from and {} to test on; --classes {}",
                made.out.display(),
                made.train,
                made.test,
                made.classes.join(",")
            ))
        }
        DataVerb::In100(In100Args { imagenet, made }) => {
            made.show(&data_in100(&DeriveOptions::new(imagenet, &made.out), &progress::job(made.json, stop))?)
        }
        DataVerb::Cub200(Cub200Args { cub, made }) => {
            made.show(&data_cub200(&DeriveOptions::new(cub, &made.out), &progress::job(made.json, stop))?)
        }
    }
}

impl MadeArgs {
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

#[cfg(feature = "fetch")]
fn fetch(args: FetchArgs, stop: &Cancel) -> Result<()> {
    let options = DataFetchOptions { data: args.data, data_dir: args.data_dir, from: args.from };
    let brought = data_fetch(&options, &progress::job(args.json, stop))?;
    if args.json {
        return super::print_json(&brought);
    }
    let title = Archive::named(&brought.data)?.title;
    super::print(&format!("{title} is in {} ({})", brought.folder.display(), brought.done))
}

/// Asks whether to fetch the files that `source` lacks in `data_dir`, where there is someone to answer; tells whether they
/// were fetched.
#[cfg(feature = "fetch")]
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
    data_fetch(&DataFetchOptions::new(source.to_string(), data_dir), &progress::job(quiet, stop))?;
    Ok(true)
}

/// Without downloads there is nothing to offer.
#[cfg(not(feature = "fetch"))]
pub(super) fn offer(_: &Source, _: &Path, _: bool, _: &Cancel) -> Result<bool> {
    Ok(false)
}

/// Asks, and takes an empty line for a yes.
#[cfg(feature = "fetch")]
fn agrees(question: &str, answers: &mut dyn std::io::BufRead) -> bool {
    super::terminal::ask(question);
    let mut answer = String::new();
    let heard = answers.read_line(&mut answer).is_ok_and(|n| n > 0);
    heard && matches!(answer.trim().to_lowercase().as_str(), "" | "y" | "yes")
}

fn check(args: CheckArgs, stop: &Cancel) -> Result<()> {
    let options = DataCheckOptions { data: args.data, data_dir: args.data_dir, strict: args.strict };
    let check = data_check(&options, &progress::job(args.json, stop))?;
    if args.json {
        super::print_json(&check)?;
    } else {
        let broken = check.bad.iter().map(|bad| format!("  broken: {}: {}\n", bad.name, bad.reason));
        let text = table::columns(&rows(&check, &options.data)) + &broken.collect::<String>();
        super::print(text.trim_end())?;
    }
    options.judge(&check)
}

/// The folder of a split, where it has one.
fn within(folder: &Option<String>) -> String {
    folder.as_ref().map(|folder| format!("  (in {folder}/)")).unwrap_or_default()
}

/// What was found in the data set `given`, as a table.
fn rows(check: &data::Check, given: &str) -> Vec<(String, String)> {
    let mut rows = vec![
        ("data".to_string(), check.name.clone()),
        ("images to learn from".into(), format!("{}{}", check.train, within(&check.splits.train))),
        (
            "images to test on".into(),
            check
                .test
                .map_or("none: evaluation leaves one out".into(), |n| format!("{n}{}", within(&check.splits.test))),
        ),
    ];
    for (folder, images) in &check.splits.unused {
        rows.push(("not used".into(), format!("{images} images in {folder}: there are others to test on")));
    }
    match &check.classes {
        Some(classes) => {
            rows.push(("classes".into(), classes.len().to_string()));
            for class in classes {
                rows.push((format!("  {}", class.name), format!("{} + {}", class.train, class.test)));
            }
        }
        None => {
            let hint = check.perhaps_meant.as_ref().map(|only| {
                let meant = Path::new(given).join(only);
                format!(" (all images are in {only}/, whose folders are classes if you give {})", meant.display())
            });
            rows.push(("classes".into(), format!("none: no kNN probe{}", hint.unwrap_or_default())));
        }
    }
    if let (Some(small), Some(large)) = (&check.smallest, &check.largest) {
        rows.push(("sizes".into(), format!("{small} to {large}")));
    }
    rows.push(("pixels".into(), table::bytes(check.bytes as f64)));
    rows.push(("other files".into(), check.ignored.to_string()));
    rows.push(("broken files".into(), check.bad.len().to_string()));
    rows
}

#[cfg(all(test, feature = "fetch"))]
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
