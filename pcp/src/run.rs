//! The run folder: training writes it, everything after training reads it.
//!
//! ```text
//! config.toml            every setting, resolved, with version, revision, CPU and data fingerprint under [about]
//! train.log              the program's messages
//! metrics.jsonl          one line per epoch
//! warnings.jsonl         one line per warning, with round and epoch if it belongs to one; missing without warnings
//! checkpoints/           the last two
//! snapshots/             weights during training
//! clusters/r0-e012.npz   label, status, distance and vote of every sample
//! model.safetensors      the last weights;  model-best.safetensors: those with the best probe
//! init.safetensors       the initial weights, if they came from a file
//! patches.safetensors    the patches that a network learned from
//! files.csv              id, file and label of every row
//! bad_files.csv          files that could not be used
//! stamps.csv             size and modification time of every file that was read
//! clusters.csv           the final clusters
//! embeddings.npy         the final embeddings, in the order of files.csv
//! files-test.csv         file and label of every test image, if there are any
//! embeddings-test.npy    their final embeddings, in the order of files-test.csv
//! heat.npz               heat maps of a few images: their rows, the maps' side, the maps
//! eval/                  results of `pcp eval`
//! result.json            the result
//! report.html            the report
//! tensorboard/           the metrics for TensorBoard
//! checksums.txt          SHA-256 of the files that do not change any more
//! given_decisions.jsonl  the decisions that the run was begun with, if there were any
//! decisions.jsonl        what was decided on the page of `pcp serve`;  map.npz: its map;  decided-1/: an export of it
//! lock                   held by the process that writes here
//! ```

mod bound;
mod checkpoints;
mod checksums;
mod contents;
mod events;
mod lock;
mod machine;
mod metrics;
mod record;
mod stamps;
mod warning;
mod weights;

pub use crate::data::FileRow;
pub use bound::{Bound, CheckpointCard};
pub use checkpoints::Restored;
pub use checksums::DamagedFile;
pub use machine::{VERSION, cpu};
pub use record::{DetectorEpoch, DetectorResult, EpochRecord, RunResult};
pub use warning::{Warning, WarningRecord};

use crate::config::{Config, DATA_PRESETS, DataSettings, Resolved};
use crate::data::{Dataset, Labels, Split};
use crate::decisions;
use pcp_core::error::{Error, Result, listed};
use pcp_core::io::atomic::{self, has_file, is_there, make_folder, read_bytes, write_atomic, write_bytes};
use pcp_core::io::csv;
use pcp_core::io::npy::{write_npy, write_npz};
use pcp_core::matrix::Matrix;
use pcp_core::purify::{Purified, Status};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A kind of run: the names of its files.
#[derive(Debug)]
pub struct RunKind {
    /// The file of its settings, which is written first and removed last.
    pub settings: &'static str,
    /// The command that makes it.
    pub made_by: &'static str,
    /// Folders that a new run makes.
    pub folders: &'static [&'static str],
    /// All files that a run writes: overwriting a run removes these and no others.
    pub ours: &'static [&'static str],
}

/// A network's training.
pub static TRAINING: RunKind =
    RunKind { settings: "config.toml", made_by: "pcp train", folders: &["checkpoints", "clusters"], ours: OURS };

/// A detector's training.
pub static DETECTION: RunKind = RunKind {
    settings: "detect.toml",
    made_by: "pcp detect train",
    folders: &["checkpoints"],
    ours: &[
        "detect.toml",
        "train.log",
        "metrics.jsonl",
        "warnings.jsonl",
        "checkpoints",
        "model.safetensors",
        "eval",
        "result.json",
        checksums::FILE,
    ],
};

const OURS: &[&str] = &[
    "config.toml",
    "train.log",
    "metrics.jsonl",
    "warnings.jsonl",
    "checkpoints",
    "snapshots",
    "clusters",
    "model.safetensors",
    "model-best.safetensors",
    "files.csv",
    "bad_files.csv",
    "stamps.csv",
    "clusters.csv",
    "embeddings.npy",
    "files-test.csv",
    "embeddings-test.npy",
    "heat.npz",
    "init.safetensors",
    "patches.safetensors",
    "eval",
    "result.json",
    "report.html",
    "tensorboard",
    checksums::FILE,
    "map.npz",
    GIVEN_DECISIONS,
];

/// The decisions that a run was begun with.
const GIVEN_DECISIONS: &str = "given_decisions.jsonl";

/// Program, machine, command and data of a run, stored with its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Version of this program.
    pub version: String,
    /// Its revision, if known.
    pub revision: String,
    /// The CPU's kind and vector features.
    pub cpu: String,
    /// The command line.
    pub command: String,
    /// Name of the data set.
    pub data: String,
    /// Fingerprint of the images.
    pub fingerprint: String,
    /// Presets that were named or implied.
    pub presets: Vec<String>,
}

impl About {
    /// The system's name: that of the last preset that is not of a data set.
    pub fn system(&self) -> &str {
        let own = |name: &&String| !DATA_PRESETS.contains(&name.as_str());
        self.presets.iter().rev().find(own).map_or("pcp", String::as_str)
    }
}

/// A run's folder.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    lock: lock::Lock,
}

impl RunFolder {
    /// Makes a new folder at `path` and locks it. An existing folder is an error, unless `overwrite`: then the files of the run in it
    /// are removed, and no others.
    pub fn create(path: &Path, overwrite: bool) -> Result<RunFolder> {
        Self::create_as(&TRAINING, path, overwrite)
    }

    /// Makes the folder of a run on `dataset`, with its settings and the list of its files.
    pub fn begin(
        path: &Path,
        overwrite: bool,
        config: &Resolved,
        about: &About,
        dataset: &Dataset,
    ) -> Result<RunFolder> {
        let given = Path::new(&config.data.decisions);
        let decisions = (!config.data.decisions.is_empty()).then(|| read_bytes(&decisions::file(given))).transpose()?;
        let run = Self::create(path, overwrite)?;
        let mut config = config.clone();
        if let Some(decisions) = decisions {
            // A copy: the run goes on with these, whatever is decided later.
            write_bytes(&run.file(GIVEN_DECISIONS), &decisions)?;
            config.data.decisions = GIVEN_DECISIONS.into();
        }
        run.write_config(&config, about)?;
        run.write_files(dataset)?;
        Ok(run)
    }

    /// As [`create`](Self::create), for any kind of run.
    pub fn create_as(kind: &'static RunKind, path: &Path, overwrite: bool) -> Result<RunFolder> {
        let run = RunFolder { path: path.to_path_buf(), lock: None };
        let begun = is_there(&run.file(kind.settings))?;
        let (found, is_folder) = (atomic::entries(path)?, path.is_dir());
        let occupied = is_there(path)? && (!is_folder || !found.is_empty());
        // A run that was killed before it wrote its settings leaves only empty folders.
        let stillborn = is_folder && found.iter().all(|path| is_empty_beginning(kind, path));
        if occupied && !overwrite && !stillborn {
            let hint = match begun {
                true => format!(
                    "continue with --resume {0}, start again with --overwrite, or choose another --out",
                    path.display()
                ),
                false => "choose another --out".to_string(),
            };
            return Err(Error::usage(format!("{} exists", path.display()), hint));
        }
        if occupied && !stillborn && !begun {
            let message = format!("{} holds no run, so there is nothing to overwrite", path.display());
            return Err(Error::usage(message, "choose another --out"));
        }
        if occupied && !stillborn && !is_ours(&run.file(kind.settings)) {
            let message = format!("{} in {} was not written by pcp", kind.settings, path.display());
            return Err(Error::usage(message, "choose another --out: only runs are overwritten"));
        }
        make_folder(path)?;
        let run = run.locked()?;
        run.remove_unfinished();
        // The settings are removed last: while they exist, the folder is recognised as a run.
        for name in kind.ours.iter().rev().filter(|_| occupied) {
            let file = run.file(name);
            let removed = if file.is_dir() { fs::remove_dir_all(&file) } else { fs::remove_file(&file) };
            match removed {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::io("remove", &file, &e)),
                _ => {}
            }
        }
        for folder in kind.folders {
            make_folder(&run.file(folder))?;
        }
        Ok(run)
    }

    /// The folder of a run that another process makes and writes to.
    pub fn of_other(path: &Path) -> RunFolder {
        RunFolder { path: path.to_path_buf(), lock: None }
    }

    /// The run in `path`.
    pub fn open(path: &Path) -> Result<RunFolder> {
        Self::open_as(&TRAINING, path)
    }

    /// As [`open`](Self::open), for any kind of run.
    pub fn open_as(kind: &'static RunKind, path: &Path) -> Result<RunFolder> {
        let run = RunFolder { path: path.to_path_buf(), lock: None };
        if !has_file(&run.file(kind.settings))? {
            let message = format!("{} is not a run folder: it has no {}", path.display(), kind.settings);
            return Err(Error::usage(message, format!("give the folder that {} wrote (its --out)", kind.made_by)));
        }
        Ok(run)
    }

    /// `runs/<data>-<preset>-<n>` with the first unused n.
    pub fn fresh_path(data: &str, preset: &str) -> PathBuf {
        let tidy = |text: &str| -> String {
            text.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
        };
        let name = format!("{}-{}", tidy(data), tidy(preset));
        (1..).map(|n| PathBuf::from(format!("runs/{name}-{n}"))).find(|p| !p.exists()).unwrap_or_default()
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes `config.toml`, the first file of a run.
    pub fn write_config(&self, config: &Resolved, about: &About) -> Result<()> {
        let fail = |e: toml::ser::Error| Error::file(format!("config.toml: {e}"), "please report this");
        let mut text = toml::to_string(&toml::Table::from_iter([(
            "about".to_string(),
            toml::Value::try_from(about).map_err(fail)?,
        )]))
        .map_err(fail)?;
        text.push('\n');
        text.push_str(&toml::to_string(&config.to_table()).map_err(fail)?);
        write_bytes(&self.file("config.toml"), text.as_bytes())
    }

    /// The settings and the origin of the run.
    pub fn read_config(&self) -> Result<(Resolved, About)> {
        self.whole("config.toml")?;
        self.read_any_config()
    }

    /// As [`read_config`](Self::read_config), whether or not the file was changed since the run began: its checkpoints tell what was.
    pub fn read_any_config(&self) -> Result<(Resolved, About)> {
        #[derive(Deserialize)]
        struct ConfigFile {
            about: About,
        }
        let path = self.file("config.toml");
        let text = String::from_utf8_lossy(&read_bytes(&path)?).into_owned();
        let head: ConfigFile = toml::from_str(&text).map_err(|e| {
            Error::file(format!("{}: {}", path.display(), e.message()), "restore the file or start a new run")
        })?;
        let mut config = Resolved::read(&path)?;
        if config.data.decisions == GIVEN_DECISIONS {
            config.data.decisions = self.file(GIVEN_DECISIONS).display().to_string();
        }
        Ok((config, head.about))
    }

    /// Adds a line to `train.log`. Errors are ignored: the log is not needed.
    pub fn log(&self, line: &str) {
        if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(self.file("train.log")) {
            let _ = writeln!(file, "{line}");
        }
    }

    /// Removes incomplete files that a crash left.
    pub fn remove_unfinished(&self) {
        for folder in ["", "checkpoints", "clusters", "snapshots", "eval", "tensorboard"] {
            atomic::remove_all_litter(&self.file(folder));
        }
    }

    /// Writes `files.csv`, `stamps.csv` and, if any file was unreadable, `bad_files.csv`.
    pub fn write_files(&self, data: &Dataset) -> Result<()> {
        write_atomic(&self.file("files.csv"), |w| write_rows(w, &data.train))?;
        self.write_stamps(data)?;
        self.write_bad_files(data)?;
        self.write_first_checksums()
    }

    fn write_bad_files(&self, data: &Dataset) -> Result<()> {
        if data.bad.is_empty() {
            return Ok(());
        }
        write_atomic(&self.file("bad_files.csv"), |w| {
            writeln!(w, "id,file,reason")?;
            for bad in &data.bad {
                writeln!(w, "{},{},{}", bad.id, csv::field(&bad.name), csv::field(&bad.reason))?;
            }
            Ok(())
        })
    }

    /// Writes `clusters/r<round>-e<epoch>.npz`. If nothing was clustered, every sample has its own label.
    pub fn write_epoch_clusters(&self, round: u32, epoch: u32, labels: &[u32], purified: &Purified) -> Result<()> {
        let status: Vec<u8> = purified.status.iter().map(|s| *s as u8).collect();
        write_npz(&self.file("clusters").join(format!("r{round}-e{epoch:03}.npz")), |z| {
            z.add("label", labels)?;
            z.add("status", &status)?;
            z.add("distance", &purified.distance)?;
            z.add("vote", &purified.vote)
        })
    }

    /// Writes `clusters.csv`, the final clusters.
    pub fn write_final_clusters(&self, data: &Dataset, labels: &[u32], purified: &Purified) -> Result<()> {
        write_atomic(&self.file("clusters.csv"), |w| {
            writeln!(w, "file,cluster,status,distance,vote")?;
            for (row, name) in data.train.images.names().iter().enumerate() {
                let status: Status = purified.status[row];
                let vote = purified.vote[row];
                let vote = if vote.is_nan() { String::new() } else { vote.to_string() };
                let (cluster, distance) = (labels[row], purified.distance[row]);
                writeln!(w, "{},{cluster},{},{distance},{vote}", csv::field(name), status.name())?;
            }
            Ok(())
        })
    }

    /// Writes `embeddings.npy`.
    pub fn write_embeddings(&self, features: &Matrix) -> Result<()> {
        write_npy(&self.file("embeddings.npy"), &[features.rows, features.dim], &features.values)
    }

    /// Writes `files-test.csv` and `embeddings-test.npy`.
    pub fn write_test(&self, test: &Split, features: &Matrix) -> Result<()> {
        write_atomic(&self.file("files-test.csv"), |w| write_rows(w, test))?;
        write_npy(&self.file("embeddings-test.npy"), &[features.rows, features.dim], &features.values)
    }

    /// Writes `heat.npz`: maps of `side` x `side` values for the images of `rows`.
    pub fn write_heat(&self, rows: &[usize], side: usize, heat: &[f32]) -> Result<()> {
        let rows: Vec<u32> = rows.iter().map(|row| *row as u32).collect();
        write_npz(&self.file("heat.npz"), |z| {
            z.add("row", &rows)?;
            z.add("side", &[side as u32])?;
            z.add("heat", heat)
        })
    }

    /// Writes `result.json`, which marks the run as finished.
    pub fn write_result(&self, result: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string_pretty(result)
            .map_err(|e| Error::file(format!("result: {e}"), "please report this"))?;
        let text = format!("{text}\n");
        self.write_last_checksums("result.json", text.as_bytes())?;
        write_bytes(&self.file("result.json"), text.as_bytes())
    }

    /// The result of a finished run; an error if it is not finished.
    pub fn finished(&self) -> Result<RunResult> {
        self.read_result()?.ok_or_else(|| {
            let message = format!("{} has no result", self.path.display());
            Error::file(message, "run the same command again: the run continues")
        })
    }

    /// The result, once the run is finished.
    pub fn read_result(&self) -> Result<Option<RunResult>> {
        self.read_result_as()
    }

    /// As [`read_result`](Self::read_result), for any kind of run.
    pub fn read_result_as<T: for<'a> Deserialize<'a>>(&self) -> Result<Option<T>> {
        let path = self.file("result.json");
        if !is_there(&path)? {
            return Ok(None);
        }
        let parsed = serde_json::from_slice(&read_bytes(&self.whole("result.json")?)?);
        parsed
            .map(Some)
            .map_err(|e| Error::file(format!("{}: {e}", path.display()), "remove the file; --resume makes it again"))
    }
}

/// Row, id, file and label of every image of `split`.
fn write_rows(w: &mut dyn Write, split: &Split) -> std::io::Result<()> {
    let label = |row: usize| match &split.labels {
        Some(Labels { classes, of }) => csv::field(&classes[of[row] as usize]),
        None => String::new(),
    };
    writeln!(w, "row,id,file,label")?;
    for (row, (id, name)) in split.images.ids().iter().zip(split.images.names()).enumerate() {
        writeln!(w, "{row},{id},{},{}", csv::field(name), label(row))?;
    }
    Ok(())
}

/// Whether the settings in `path` are those of a run: other programs use the same file name.
fn is_ours(path: &Path) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    let table: toml::Table = toml::from_str(&text).unwrap_or_default();
    table.get("about").and_then(|about| about.get("fingerprint")).is_some()
}

/// Whether `path` is an empty folder or file that a new run makes before its settings.
fn is_empty_beginning(kind: &RunKind, path: &Path) -> bool {
    let named = |names: &[&str]| path.file_name().is_some_and(|name| names.iter().any(|n| name == *n));
    let is_half = |name: &str| name.starts_with(kind.settings) && name.ends_with(atomic::UNFINISHED);
    let half_settings = path.file_name().and_then(|name| name.to_str()).is_some_and(is_half);
    let empty_folder = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    half_settings || named(&[lock::FILE]) || named(kind.folders) && empty_folder()
}

/// The settings of a resumed run: those that it started with, except for a few that do not affect the result. Other changes in
/// `now` are errors.
pub fn resumed_settings(before: Resolved, now: &Config) -> Result<Resolved> {
    let (old, new) = (before.entries(), now.entries());
    // How often checkpoints are saved and whether images stay in memory do not affect the result.
    let changeable = ["run.save_minutes", "data.cache", "data.strict"];
    let differ = old.iter().zip(&new).filter(|(a, b)| a.1 != b.1 && !changeable.contains(&a.0.as_str()));
    let changed: Vec<String> = differ.map(|(a, b)| format!("{} is {}, not {}", a.0, a.1, b.1)).collect();
    if !changed.is_empty() {
        return Err(Error::usage(
            format!("a resumed run keeps the settings that it started with: {}", listed(changed)),
            "leave these options out; a finished run is trained further, with other epochs too, by `extend`; or start another run",
        ));
    }
    let data = DataSettings { cache: now.data.cache, strict: now.data.strict, ..before.data };
    Ok(Resolved { data, run: now.run.clone(), ..before })
}

#[cfg(test)]
mod tests;
