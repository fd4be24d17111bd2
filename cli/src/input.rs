//! What clustering, purification and the search for duplicates take: a matrix with names, from a file or from a run.

use super::progress::{bar, read_images};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use pcp::config::Resolved;
use pcp::data::Source;
use pcp::jobs::pictures::Gallery;
use pcp::run::RunFolder;
use pcp_core::cancel::{Cancel, Progress};
use pcp_core::error::{Error, Kind, Result};
use pcp_core::io::atomic::write_atomic;
use pcp_core::io::csv;
use pcp_core::io::matrix::{self, Unusable};
use pcp_core::matrix::{Matrix, Metric};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options that every such verb has.
#[derive(Args)]
pub struct Common {
    /// Names of the rows: a CSV file with a column `file` [default: EMB.files.csv for EMB.npy, or files.csv beside it]
    #[arg(long, value_name = "FILE")]
    pub files: Option<PathBuf>,
    /// What counts as near
    #[arg(long, value_enum, default_value = "cosine")]
    pub metric: Near,
    /// Leave out rows that cannot be used (not a number, infinite, zero), and list them
    #[arg(long)]
    pub skip_bad_rows: bool,
    /// Everything random follows from it
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Threads [default: all cores]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub threads: usize,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of those that cluster, and show what they found.
#[derive(Args)]
pub struct Making {
    /// The folder that the names of the images are below [default: the run's]
    #[arg(long, value_name = "DIR")]
    pub images: Option<PathBuf>,
    /// Starts of k-means, of which the best counts; clusters that a run has made need none
    #[arg(long, default_value_t = 3)]
    pub starts: u32,
    /// Updates of the centroids at the most (20 where k-means is repeated for votes)
    #[arg(long, default_value_t = 30)]
    pub iterations: usize,
    /// Write no page, even where there are images
    #[arg(long)]
    pub no_sheet: bool,
}

impl Making {
    pub fn check(&self) -> Result<()> {
        if self.starts == 0 || self.iterations == 0 {
            return Err(Error::usage("--starts and --iterations must be above 0", "leave them out for 3 and 30"));
        }
        Ok(())
    }
}

/// The last lines about a folder that was made: rows left out, where it is, its page.
pub fn written(unusable: usize, out: &Path, sheet: bool) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    if unusable > 0 {
        rows.push(("rows left out".to_string(), format!("{unusable}  (unusable.csv)")));
    }
    rows.push(("written".into(), out.display().to_string()));
    if sheet {
        rows.push(("page".into(), out.join("sheet.html").display().to_string()));
    }
    rows
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Near {
    /// The angle between rows
    Cosine,
    /// The straight line between rows
    Euclidean,
}

impl From<Near> for Metric {
    fn from(near: Near) -> Metric {
        match near {
            Near::Cosine => Metric::Cosine,
            Near::Euclidean => Metric::Euclidean,
        }
    }
}

/// A matrix, its names, and the run it is of.
pub struct Input {
    pub path: PathBuf,
    pub features: Arc<Matrix>,
    /// Names of the rows, where they are known.
    pub names: Option<Vec<String>>,
    /// The number of every row in the file: those left out are counted.
    pub rows: Vec<usize>,
    pub unusable: Vec<Unusable>,
    pub run: Option<(RunFolder, Resolved)>,
}

impl Input {
    /// Reads a run folder, or a file of numbers with the names beside it.
    pub fn read(path: &Path, files: Option<&Path>) -> Result<Input> {
        let (features, names, run) = if path.is_dir() {
            let run = RunFolder::open(path)?;
            if files.is_some() {
                return Err(Error::usage("--files is for matrices", "leave it out: a run has its own files.csv"));
            }
            let (config, _) = run.read_config()?;
            if !run.file("embeddings.npy").exists() {
                let message = format!("{} has no embeddings yet", path.display());
                return Err(Error::usage(message, format!("finish the run: pcp train --resume {}", path.display())));
            }
            let features = matrix::read(&run.file("embeddings.npy"))?.matrix;
            let names: Vec<String> = run.read_files()?.into_iter().map(|f| f.file).collect();
            (features, Some((names, run.file("files.csv"), true)), Some((run, config)))
        } else {
            let matrix = matrix::read(path)?;
            let own = matrix.names.map(|names| (names, path.to_path_buf(), true));
            let given = match files {
                Some(file) => Some((names_in(file)?, file.to_path_buf(), true)),
                None if own.is_some() => own,
                None => beside(path).map(|file| Ok::<_, Error>((names_in(&file)?, file, false))).transpose()?,
            };
            (matrix.matrix, given, None)
        };
        let names = match names {
            Some((names, _, _)) if names.len() == features.rows => Some(names),
            Some((names, file, sure)) => {
                let message =
                    format!("{} names {} rows, {} has {}", file.display(), names.len(), path.display(), features.rows);
                if sure {
                    let hint = match run {
                        Some(_) => "restore the run's files, or train it again",
                        None => "give the files.csv that belongs to the matrix with --files",
                    };
                    return Err(Error::data(message, hint));
                }
                eprintln!("warning: {message}; rows stay without names");
                None
            }
            None => None,
        };
        let rows = (0..features.rows).collect();
        Ok(Input { path: path.to_path_buf(), features: Arc::new(features), names, rows, unusable: Vec::new(), run })
    }

    /// The rows that cannot be used; an error unless they are to be skipped.
    pub fn bad(&self, common: &Common) -> Result<Vec<Unusable>> {
        let bad = matrix::unusable(&self.features, Metric::from(common.metric) == Metric::Cosine);
        if !common.skip_bad_rows {
            matrix::refuse(&self.path.display().to_string(), &bad)?;
        }
        if bad.len() == self.features.rows {
            let message = format!("{}: none of its rows can be used: {}", self.path.display(), bad[0].reason);
            return Err(Error::data(message, "check how the embeddings were made"));
        }
        Ok(bad)
    }

    /// Leaves the `bad` rows out and makes the others ready for `metric`.
    pub fn ready(mut self, bad: Vec<Unusable>, metric: Metric) -> Input {
        let out: Vec<usize> = bad.iter().map(|u| u.row).collect();
        let mut features = Arc::unwrap_or_clone(self.features);
        if !out.is_empty() {
            features = features.remove_rows(&out);
        }
        self.features = Arc::new(metric.prepared(features));
        self.rows = matrix::without(self.rows, &out);
        self.unusable = bad;
        if let Some(names) = self.names.take() {
            self.names = Some(matrix::without(names, &out));
        }
        self
    }

    /// The name of row `i`; empty when nobody knows it.
    pub fn name(&self, i: usize) -> &str {
        self.names.as_ref().map_or("", |names| &names[i])
    }

    /// `row,file` of row `i`, for CSV files.
    pub fn row_and_file(&self, i: usize) -> String {
        format!("{},{}", self.rows[i], csv::field(self.name(i)))
    }

    /// The images of the rows: below `folder`, or those of the run; `None` when none of them is at hand.
    pub fn gallery(&self, folder: Option<&Path>, quiet: bool, stop: &Cancel) -> Result<Option<Gallery>> {
        let Some(names) = &self.names else {
            return match folder {
                Some(_) => Err(Error::usage(
                    "--images needs the names of the rows",
                    "give them with --files FILE, a CSV file with a column file and a line per row",
                )),
                None => Ok(None),
            };
        };
        let found = match (&self.run, folder) {
            (Some((_, config)), None) => match Source::parse(&config.data.source) {
                Ok(Source::Folder(path)) if path.is_dir() => Gallery::of_files(Some(&path), names),
                _ => config
                    .load_request()
                    .and_then(|request| read_images(request, quiet, stop))
                    .map(|data| Gallery::of_data(Arc::new(data), names)),
            },
            _ => Gallery::of_files(folder, names),
        };
        match found {
            Ok(gallery) if gallery.found() > 0 => Ok(Some(gallery)),
            Ok(_) if folder.is_some() => Err(Error::data(
                format!("none of the images is there, for example {}", names.first().map_or("", String::as_str)),
                "give --images the folder that the names are below",
            )),
            Ok(_) => Ok(None),
            Err(e) if folder.is_some() || e.kind == Kind::Stopped => Err(e),
            // A run whose images have gone can be clustered all the same.
            Err(_) => Ok(None),
        }
    }

    /// Writes `unusable.csv`, when something was left out.
    pub fn write_unusable(&self, out: &Path) -> Result<()> {
        if self.unusable.is_empty() {
            return Ok(());
        }
        write_atomic(&out.join("unusable.csv"), |w| {
            writeln!(w, "row,reason")?;
            self.unusable.iter().try_for_each(|u| writeln!(w, "{},{}", u.row, u.reason))
        })
    }
}

/// The names in the column `file` of a CSV file.
fn names_in(path: &Path) -> Result<Vec<String>> {
    Ok(pcp_core::io::table::columns(path, "file")?.1)
}

/// The file of names beside a matrix.
fn beside(path: &Path) -> Option<PathBuf> {
    let own = path.with_extension("files.csv");
    [own, path.with_file_name("files.csv")].into_iter().find(|file| file.is_file())
}

/// Tells a bar how far the work is, and the work when to stop.
pub fn stepper(bar: &ProgressBar, stop: &Cancel) -> impl FnMut(usize, usize) -> Result<()> + Send + 'static {
    let (bar, stop) = (bar.clone(), stop.clone());
    move |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        stop.check()
    }
}

/// Runs `work` on the pool with a bar.
pub fn with_bar<T: Send + 'static>(
    what: &str,
    quiet: bool,
    stop: &Cancel,
    work: impl FnOnce(Progress) -> Result<T> + Send + 'static,
) -> Result<T> {
    let shown = bar(what, quiet);
    let mut step = stepper(&shown, stop);
    let outcome = stop.run(move || work(&mut step));
    shown.finish_and_clear();
    outcome?
}

/// A number, or `auto`.
pub fn number_or_auto(name: &str, text: &str) -> Result<Option<usize>> {
    if text == "auto" {
        return Ok(None);
    }
    let wrong = || Error::usage(format!("{name} is {text}"), "give a number from 1 on, or auto");
    text.parse().ok().filter(|k| *k > 0).map(Some).ok_or_else(wrong)
}
