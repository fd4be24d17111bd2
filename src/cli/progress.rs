//! What a run shows while it works: two bars on a terminal, plain lines elsewhere, nothing when it is to be quiet.

use crate::config::Config;
use crate::data::{self, Dataset};
use crate::error::Result;
use crate::run::{EpochRecord, RunFolder, Warning};
use crate::schedule::Schedule;
use crate::train::{Live, Observer, Phase, setup};
use crate::work::Stop;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::HashSet;
use std::io::IsTerminal;
use std::sync::Mutex;

/// Watches a run for a person.
pub struct Progress {
    bars: Option<Bars>,
    quiet: bool,
    total_epochs: u32,
    epochs_per_round: u32,
    log: Mutex<Option<RunFolder>>,
    said: Mutex<HashSet<&'static str>>,
}

struct Bars {
    all: MultiProgress,
    epoch: ProgressBar,
    run: ProgressBar,
}

impl Progress {
    /// Bars, lines or nothing, as fits where it is shown.
    pub fn new(quiet: bool, schedule: &Schedule, run: &RunFolder) -> Self {
        let bars = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8));
            let epoch = all.add(ProgressBar::new(1).with_style(style("{prefix:>14} {bar:30} {percent:>3} %  {msg}")));
            let total = u64::from(schedule.total_epochs());
            let run = all.add(
                ProgressBar::new(total)
                    .with_style(style("{prefix:>14} {bar:30} {pos:>3}/{len}  {elapsed_precise}, {eta} to go")),
            );
            run.set_prefix("epochs");
            Bars { all, epoch, run }
        });
        Progress {
            bars,
            quiet,
            total_epochs: schedule.total_epochs(),
            epochs_per_round: schedule.epochs(),
            log: Mutex::new(Some(run.clone())),
            said: Mutex::default(),
        }
    }

    /// Sets the run's bar to the epochs that are done already.
    pub fn resumed_at(&self, epochs: u32) {
        if let Some(bars) = &self.bars {
            bars.run.set_position(u64::from(epochs));
            bars.run.reset_eta();
        }
    }

    /// Says something to the person and the log.
    pub fn say(&self, line: &str) {
        self.log(line);
        match (&self.bars, self.quiet) {
            (_, true) => {}
            (Some(bars), _) => {
                // A lost terminal is no reason to stop training.
                let _ = bars.all.println(line);
            }
            (None, _) => eprintln!("{line}"),
        }
    }

    fn log(&self, line: &str) {
        if let Ok(log) = self.log.lock()
            && let Some(run) = &*log
        {
            run.log(line);
        }
    }

    /// Clears the bars.
    pub fn done(&self) {
        if let Some(bars) = &self.bars {
            bars.epoch.finish_and_clear();
            bars.run.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("█▌ ")
}

impl Observer for Progress {
    fn phase(&self, phase: Phase, total: usize) {
        if let Some(bars) = &self.bars {
            bars.epoch.set_length(total as u64);
            bars.epoch.set_position(0);
            bars.epoch.set_prefix(phase.name());
        }
    }

    fn advance(&self, units: usize) {
        if let Some(bars) = &self.bars {
            bars.epoch.inc(units as u64);
            bars.run.tick();
        }
    }

    fn live(&self, live: &Live) {
        if let Some(bars) = &self.bars {
            bars.epoch.set_message(format!(
                "{:.0} images/s, loss {:.3}, lr {}, K {}, kept {:.0} %",
                live.images_per_second,
                live.loss,
                live.lr,
                live.clusters,
                live.kept * 100.0
            ));
        }
    }

    fn epoch(&self, r: &EpochRecord) {
        let done = r.round * self.epochs_per_round + r.epoch + 1;
        let knn = r.knn.map(|knn| format!(", kNN {knn:.1} %")).unwrap_or_default();
        let line = format!(
            "epoch {done:>3}/{}: loss {:.3}, lr {}, K {}, kept {:.0} %, {:.0} images/s, {:.1} s{knn}",
            self.total_epochs,
            r.loss,
            r.lr,
            r.clusters,
            r.kept * 100.0,
            r.images_per_second,
            r.seconds
        );
        match &self.bars {
            // On a terminal the bars say it; probes are worth a line that stays.
            Some(bars) => {
                bars.run.set_position(u64::from(done));
                if r.knn.is_some() { self.say(&line) } else { self.log(&line) }
            }
            None => self.say(&line),
        }
    }

    fn warn(&self, warning: &Warning) {
        // One kind of warning is said once; the log has them all.
        let first = self.said.lock().is_ok_and(|mut said| said.insert(warning.kind()));
        if first && !self.quiet {
            match &self.bars {
                Some(bars) => {
                    let _ = bars.all.println(format!("warning: {warning}"));
                }
                None => eprintln!("warning: {warning}"),
            }
        }
    }
}

/// A bar for work of a known length, shown only to a person.
pub fn bar(what: &str, quiet: bool) -> ProgressBar {
    let bar = if quiet || !std::io::stderr().is_terminal() { ProgressBar::hidden() } else { ProgressBar::new(1) };
    bar.set_style(style("{prefix:>14} {bar:30} {pos}/{len}"));
    bar.set_prefix(what.to_string());
    bar
}

/// Reads the images that `config` names, with a bar; a stop ends it at once, since there is nothing to save yet.
pub fn read_images(config: &Config, quiet: bool, stop: &Stop) -> Result<Dataset> {
    let bar = bar("reading", quiet);
    let (request, shown) = (setup::load_request(config)?, bar.clone());
    let dataset = stop.run(move || {
        data::load(&request, &|done, total| {
            shown.set_length(total as u64);
            shown.set_position(done as u64);
        })
    });
    bar.finish_and_clear();
    dataset?
}
