//! Accuracy after training the whole network of a run on a share of the labels.

use super::{check_training, read_report, write_report};
use crate::config::{AugmentSettings, Crop};
use crate::data::loader::Loader;
use crate::evaluate::ProbeSplit;
use crate::evaluate::finetune::{FinetuneProbe, FinetuneResult, FinetuneSettings};
use crate::jobs::images::read_again;
use crate::jobs::part::JobPart;
use crate::model::{Model, WhichWeights};
use crate::observe::Observer;
use crate::run::RunFolder;
use pcp_core::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

const FILE: &str = "finetune.json";
const UNTRAINED_FILE: &str = "finetune-untrained.json";

/// Which run is fine-tuned, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalFinetuneOptions {
    /// A run folder.
    pub run: PathBuf,
    /// Share of the labels that may be used, of every class alike, such as 10%.
    pub labels: String,
    /// Begin with the untrained network instead of the run's.
    pub untrained: bool,
    /// Epochs.
    pub epochs: u32,
    /// Images per step.
    pub batch: usize,
    /// Learning rate of the network; the classifier's is ten times as high.
    pub lr: f64,
    /// Everything random follows from it.
    pub seed: u64,
    /// Epochs between tests; 0 for one at the end.
    pub test_every: u32,
    /// Use the weights of the best probe instead of the last.
    pub best: bool,
}

impl EvalFinetuneOptions {
    /// 50 epochs on a tenth of the labels.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        EvalFinetuneOptions {
            run: run.into(),
            labels: "10%".into(),
            untrained: false,
            epochs: 50,
            batch: 64,
            lr: 0.01,
            seed: 0,
            test_every: 0,
            best: false,
        }
    }

    fn weights(&self) -> Result<WhichWeights> {
        match (self.untrained, self.best) {
            (true, true) => Err(Error::usage("`untrained` and `best` exclude each other", "leave one of them out")),
            (true, false) => Ok(WhichWeights::Untrained),
            (false, best) => Ok(WhichWeights::best(best)),
        }
    }
}

/// What fine-tuning reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinetuneReport {
    /// How it was measured, in words.
    pub protocol: String,
    /// How the network learned.
    pub settings: FinetuneSettings,
    /// File of the weights it began with, or `untrained`.
    pub weights: String,
    /// What it reached.
    pub result: FinetuneResult,
}

/// The share of a word like `10%`.
fn share(word: &str) -> Result<f64> {
    let percent = word.strip_suffix('%').unwrap_or(word).trim().parse::<f64>().ok();
    percent.filter(|p| *p > 0.0 && *p <= 100.0).map(|p| p / 100.0).ok_or_else(|| {
        Error::usage(format!("`labels` is {word}"), "give a share above 0 % and up to 100 %, such as 1%, 10% or 100%")
    })
}

/// Fine-tunes a copy of a run's network, and keeps the report as `eval/finetune.json` of the run (`eval/finetune-untrained.json` where
/// `untrained`). The run's weights stay as they are.
pub fn eval_finetune(options: &EvalFinetuneOptions, observer: &Arc<dyn Observer>) -> Result<FinetuneReport> {
    let share = share(&options.labels)?;
    let EvalFinetuneOptions { epochs, batch, lr, seed, test_every, .. } = *options;
    check_training(epochs, batch, lr, "the usual")?;
    let which = options.weights()?;
    let run = RunFolder::open(&options.run)?;
    let (mut config, _) = run.read_config()?;
    let model = Model::of_run(&run, which)?.network_alone();
    let dataset = Arc::new(read_again(&config, observer)?);
    let split = ProbeSplit::new(&dataset)?;
    // As in supervised training: shifts and flips, colours as they are.
    config.augment =
        AugmentSettings { crop: Crop::Padded, jitter_probability: 0.0, grey: 0.0, blur: 0.0, ..config.augment };
    let loader = Loader::new(dataset, config.augmenter());
    let settings = FinetuneSettings { share, epochs, batch, lr, decay: 1e-4, seed, test_every };
    let labelled = (split.learn.len() as f64 * share) as usize;
    let part =
        JobPart::begin("fine-tuning", epochs as usize * labelled + settings.tested() * split.truth.len(), observer);
    let on_epoch = |epoch: u32, loss: f64, accuracy: Option<f64>| {
        let accuracy = accuracy.map(|accuracy| format!(", {accuracy:.1} %")).unwrap_or_default();
        observer.status(&format!("epoch {}: loss {loss:.3}{accuracy}", epoch + 1));
    };
    let (network, cancel) = (&model.network, observer.cancel());
    let probe = FinetuneProbe { network, loader: &loader, split: &split, cancel };
    let result = probe.run(model.weights.clone(), &settings, &|n| part.more(n), &on_epoch);
    part.end();
    let result = result?;
    let protocol = format!(
        "fine-tuned end to end on {} labelled images ({}% of each class), {epochs} epochs; {}",
        result.labelled,
        options.labels.trim_end_matches('%').trim(),
        split.protocol()
    );
    let report = FinetuneReport { protocol, settings, weights: model.file_name(), result };
    write_report(&run, if options.untrained { UNTRAINED_FILE } else { FILE }, &report)?;
    Ok(report)
}

/// The report of a run's last fine-tuning, of its own network or of the `untrained` one; `None` where there was none.
pub fn read_finetune(run: &RunFolder, untrained: bool) -> Result<Option<FinetuneReport>> {
    read_report(run, if untrained { UNTRAINED_FILE } else { FILE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percent() {
        assert_eq!(share("10%").unwrap(), 0.1);
        assert_eq!(share("100").unwrap(), 1.0);
        for word in ["0%", "101%", "-1%", "half", "", "nan%"] {
            assert!(share(word).unwrap_err().message.contains(word), "{word}");
        }
    }
}
