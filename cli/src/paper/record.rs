//! What is kept of a cell: one JSON file for every seed, written as soon as its run is done.

use super::cell::{Cell, Measure};
use super::results::{detection, linear};
use super::scale::Scale;
use pcp::run::RunFolder;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_tidy_folder, read_bytes, write_bytes};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A cell as it came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    /// The table.
    pub table: String,
    /// The cell's name in it.
    pub cell: String,
    /// The system, by its preset.
    pub system: String,
    /// The scale.
    pub scale: String,
    /// The data set that was trained on.
    pub data: String,
    /// The command that began the run.
    pub command: String,
    /// Revision of the program.
    pub revision: String,
    /// Version of the program.
    pub version: String,
    /// The seed.
    pub seed: u64,
    /// Seconds of work, up to what is measured.
    pub seconds: f64,
    /// kNN of the last epoch, in percent.
    pub knn_last: Option<f64>,
    /// kNN of the best epoch.
    pub knn_best: Option<f64>,
    /// That epoch, counted from 1 over all rounds.
    pub best_epoch: Option<u32>,
    /// Accuracy of the system's own classifier, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classifier: Option<f64>,
    /// Accuracy of the linear probe at its last epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear_last: Option<f64>,
    /// At its best epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear_best: Option<f64>,
    /// mAP of the detector by eleven points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map11: Option<f64>,
    /// mAP of the detector by all points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<f64>,
    /// The command that trained the detector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detector_command: Option<String>,
    /// kNN of the pooled features at the last epoch, where the whole run is the cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knn_pooled: Option<f64>,
    /// The same, partially whitened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knn_whitened: Option<f64>,
    /// The paper's figure.
    pub paper: f64,
    /// Every probed epoch, counted from 1 over all rounds, with its kNN.
    pub accuracy_per_epoch: Vec<(u32, f64)>,
    /// Training images.
    pub images: usize,
    /// Epochs up to what is measured.
    pub epochs: u32,
    /// Threads.
    pub threads: usize,
    /// What must be known to read it.
    pub note: Option<String>,
}

impl CellRecord {
    /// Reads a cell from its finished run. The cell of a round is what it would be had the run ended after that round.
    pub fn of(cell: &Cell, scale: Scale, run: &RunFolder) -> Result<CellRecord> {
        let result = run.finished()?;
        // A network that was not trained has no epochs, and is measured as it is.
        let metrics = if result.epochs == 0 { Vec::new() } else { run.read_metrics()? };
        let within = |round: u32| !matches!(cell.measure, Measure::Round(last) if round > last);
        let epochs: Vec<_> = metrics.into_iter().filter(|record| within(record.round)).collect();
        let accuracy: Vec<(u32, f64)> =
            (1..).zip(&epochs).filter_map(|(epoch, record)| Some((epoch, record.knn?))).collect();
        let best = accuracy.iter().copied().reduce(|best, next| if next.1 > best.1 { next } else { best });
        let untrained = result.knn_last.or(result.knn_untrained).filter(|_| epochs.is_empty());
        let seconds = match cell.measure {
            Measure::Round(_) => epochs.iter().map(|record| record.seconds).sum(),
            _ => result.seconds,
        };
        let detector = if cell.measure == Measure::Detection { detection(run)? } else { None };
        let seconds = seconds + detector.as_ref().map_or(0.0, |d| d.seconds);
        let linear = if cell.measure == Measure::Linear { linear(run, scale)? } else { None };
        Ok(CellRecord {
            table: format!("table{}", cell.table),
            cell: cell.name.clone(),
            system: cell.recipe.system.into(),
            scale: scale.name().into(),
            data: result.data,
            command: result.command,
            revision: result.revision,
            version: result.version,
            seed: result.seed,
            seconds,
            knn_last: accuracy.last().map(|a| a.1).or(untrained),
            knn_best: best.map(|b| b.1).or(untrained),
            best_epoch: best.map(|b| b.0),
            classifier: result.classifier.filter(|_| !matches!(cell.measure, Measure::Linear | Measure::Detection)),
            linear_last: linear.map(|l| l.0),
            linear_best: linear.map(|l| l.1),
            map11: detector.as_ref().map(|d| d.map11),
            map: detector.as_ref().map(|d| d.map),
            detector_command: detector.map(|d| d.command),
            knn_pooled: result.knn_pooled.filter(|_| cell.measure == Measure::Knn),
            knn_whitened: result.knn_whitened.filter(|_| cell.measure == Measure::Knn),
            paper: cell.paper,
            accuracy_per_epoch: accuracy,
            images: result.images,
            epochs: epochs.len() as u32,
            threads: result.threads,
            note: cell.note().map(String::from),
        })
    }

    /// Writes it to its place in the `folder` of its scale.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let folder = folder.join(&self.table);
        make_tidy_folder(&folder)?;
        let path = folder.join(format!("{}-s{}.json", self.cell, self.seed));
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| Error::file(format!("{}: {e}", path.display()), "please report this"))?;
        write_bytes(&path, format!("{text}\n").as_bytes())
    }

    /// All that the `folder` of a scale has of `cell`, by seed.
    pub fn read_all(folder: &Path, cell: &Cell) -> Result<Vec<CellRecord>> {
        let folder = folder.join(format!("table{}", cell.table));
        let mut found: Vec<(u64, PathBuf)> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                let seed = name.strip_prefix(&cell.name)?.strip_prefix("-s")?.strip_suffix(".json")?;
                Some((seed.parse().ok()?, entry.path()))
            })
            .collect();
        found.sort();
        let read = |path: &Path| {
            serde_json::from_slice(&read_bytes(path)?).map_err(|e| {
                let hint = "remove the file and give the same command again: its run makes it anew";
                Error::file(format!("{}: {e}", path.display()), hint)
            })
        };
        found.iter().map(|(_, path)| read(path)).collect()
    }
}
