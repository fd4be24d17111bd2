//! Labels that are probably wrong: how many, which, and how sure that is.

use crate::report::Suspect;
use pcp_core::error::Result;
use pcp_core::label_errors::{self, Noise, Verdict};
use pcp_core::matrix::Matrix;
use serde::{Deserialize, Serialize};

/// Key figures of labels that were checked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelSummary {
    /// Rows with a label.
    pub labels: usize,
    /// The estimated share of wrong labels; `None` with a single class or fewer than ten labels.
    pub noise: Option<Noise>,
    /// Whether the features recognise fewer than half of the wrong labels.
    pub weak: bool,
    /// Labels that are more probably wrong than right.
    pub errors: usize,
    /// How many of them are expected to be wrong: the sum of their probabilities.
    pub expected: f64,
    /// Labels that are probably right, though another one fits better.
    pub doubtful: usize,
}

impl LabelSummary {
    /// The estimate in a sentence.
    pub fn sentence(&self) -> String {
        let Some(noise) = self.noise else {
            return "Wrong labels need two classes and ten labels to be told from right ones.".to_string();
        };
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        let (low, high) = (percent(noise.low), percent(noise.high));
        let recognised = format!("{:.0} %", 100.0 * noise.recognised);
        match self.weak {
            true => format!(
                "These features are too weak to tell wrong labels from right ones: they would recognise {recognised} of the wrong ones \
                 (the share of wrong labels is estimated at {low} to {high} %). Better features, or a look at the most doubtful labels, tell more."
            ),
            false => format!(
                "About {} % of the labels are wrong ({low} to {high} %); these features recognise {recognised} of such labels.",
                percent(noise.share)
            ),
        }
    }
}

/// A label that is in doubt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelError {
    /// The row's number in the source.
    pub row: usize,
    /// Its label.
    pub label: String,
    /// The label that fits better.
    pub suggested: String,
    /// How badly the label fits, from 0 to 1; lists are sorted by it.
    pub doubt: f32,
    /// The probability that it is wrong.
    pub wrong: f32,
}

/// Labels and the verdicts on them.
pub(super) struct CheckedLabels {
    pub classes: Vec<String>,
    pub of: Vec<Option<u32>>,
    pub verdicts: Vec<Option<Verdict>>,
    pub summary: LabelSummary,
    /// Rows whose label is probably wrong, the most doubtful first.
    errors: Vec<usize>,
    /// Other rows for which another label fits better, the most doubtful first.
    doubtful: Vec<usize>,
}

impl CheckedLabels {
    /// Checks the labels `of` the rows; `tick` gets the number of rows done.
    pub(super) fn new(
        features: &Matrix,
        (classes, of): (Vec<String>, Vec<Option<u32>>),
        seed: u64,
        tick: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<CheckedLabels> {
        let found = label_errors::check(features, &of, classes.len(), seed, tick)?;
        let (errors, doubtful) = label_errors::ranked(&of, &found.verdicts);
        let wrong = |row: &usize| found.verdicts[*row].map_or(0.0, |v| f64::from(v.wrong));
        let summary = LabelSummary {
            labels: of.iter().flatten().count(),
            noise: found.noise,
            weak: found.noise.is_some_and(|noise| noise.is_weak()),
            errors: errors.len(),
            expected: errors.iter().map(wrong).fold(0.0, |sum, wrong| sum + wrong),
            doubtful: doubtful.len(),
        };
        Ok(CheckedLabels { classes, of, verdicts: found.verdicts, summary, errors, doubtful })
    }

    /// Labels that are probably wrong, the most doubtful first; rows as they are counted here.
    pub(super) fn errors(&self) -> impl Iterator<Item = Suspect> + '_ {
        self.errors.iter().filter_map(|row| self.suspect(*row))
    }

    /// Other labels in doubt, the most doubtful first.
    pub(super) fn doubtful(&self) -> impl Iterator<Item = Suspect> + '_ {
        self.doubtful.iter().filter_map(|row| self.suspect(*row))
    }

    fn suspect(&self, row: usize) -> Option<Suspect> {
        let name = |class: u32| self.classes[class as usize].clone();
        let verdict = self.verdicts[row]?;
        Some(Suspect {
            row: row as u32,
            label: name(self.of[row]?),
            suggested: name(verdict.suggested),
            doubt: verdict.doubt,
            wrong: verdict.wrong,
        })
    }
}
