//! What the program shows while it works: bars on a terminal; of training plain lines elsewhere; nothing when it is to be quiet.

use super::flags::flags;
use super::terminal::say;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use pcp::observe::{Live, Observer, Pace, TrainingStart, clusters_in_words};
use pcp::run::{EpochRecord, Warning};
use pcp_core::cancel::Cancel;
use pcp_core::io::names::visible;
use pcp_core::text::duration;
use std::collections::HashSet;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex};

/// The observer of a training for the person at the terminal: bars on a terminal, lines elsewhere; `quiet` shows warnings only.
pub fn training(quiet: bool, cancel: &Cancel) -> Arc<dyn Observer> {
    let parts = JobBars::new(quiet, cancel);
    Arc::new(Progress { quiet, parts, training: Mutex::default(), said: Mutex::default() })
}

/// Shows a run.
struct Progress {
    quiet: bool,
    /// Parts before and after the training.
    parts: JobBars,
    /// The training that is under way.
    training: Mutex<Option<Training>>,
    /// Kinds of warnings that were shown.
    said: Mutex<HashSet<&'static str>>,
}

struct Training {
    pace: Pace,
    bars: Option<TrainingBars>,
    /// Whether the part under way is that of the training steps.
    steps: bool,
    /// Epochs that are done, and images that the next has seen.
    done: u32,
    seen: usize,
}

impl Training {
    /// Says which epoch it is, and the log's estimate of the time to go.
    fn say(&self) {
        let Some(bars) = &self.bars else { return };
        let (total, images) = (self.pace.start.total_epochs, self.pace.start.images.max(1));
        let share = (self.seen as f64 / images as f64).min(1.0);
        let left = self.pace.left(self.done, share).map(|left| format!(", {} to go", duration(left)));
        bars.run.set_message(format!("epoch {}/{total}{}", (self.done + 1).min(total), left.unwrap_or_default()));
    }
}

struct TrainingBars {
    all: MultiProgress,
    epoch: ProgressBar,
    run: ProgressBar,
}

impl TrainingBars {
    fn new(start: &TrainingStart) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        let epoch = all.add(ProgressBar::new(1).with_style(style("{prefix:>14} {bar:30} {percent:>3} %  {msg}")));
        let total = u64::from(start.total_epochs) * start.images as u64;
        let run = all.add(
            ProgressBar::new(total).with_style(style("{prefix:>14} {bar:30} {percent:>3} %  {elapsed_precise}, {msg}")),
        );
        run.set_prefix("run");
        run.set_position(u64::from(start.done) * start.images as u64);
        TrainingBars { all, epoch, run }
    }
}

impl Progress {
    /// Calls `use_it` with the training that is under way, if one is.
    fn with_training<T>(&self, use_it: impl FnOnce(&mut Training) -> T) -> Option<T> {
        self.training.lock().ok()?.as_mut().map(use_it)
    }

    /// Prints a line above the bars.
    fn line(&self, line: &str) {
        // A lost terminal is no reason to stop training.
        let above =
            |training: &mut Training| training.bars.as_ref().map(|bars| bars.all.println(visible(line))).is_some();
        if !self.with_training(above).unwrap_or(false) {
            self.parts.line(line);
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("█▌ ")
}

impl Observer for Progress {
    fn begin(&self, part: &'static str, total: usize) {
        let shown = self.with_training(|training| {
            training.steps = part == "training";
            if training.steps {
                training.seen = 0;
            }
            if let Some(bars) = &training.bars {
                bars.epoch.set_length(total as u64);
                bars.epoch.set_position(0);
                bars.epoch.set_prefix(part);
                bars.epoch.set_message("");
            }
        });
        if shown.is_none() {
            self.parts.begin(part, total);
        }
    }

    fn advance(&self, units: usize) {
        let shown = self.with_training(|training| {
            if let Some(bars) = &training.bars {
                bars.epoch.inc(units as u64);
                if training.steps { bars.run.inc(units as u64) } else { bars.run.tick() }
            }
            if training.steps {
                training.seen += units;
            }
            training.say();
        });
        if shown.is_none() {
            self.parts.advance(units);
        }
    }

    fn end(&self) {
        self.parts.end();
    }

    fn status(&self, text: &str) {
        self.parts.status(text);
    }

    fn training_began(&self, start: &TrainingStart) {
        self.parts.end();
        if let Ok(mut training) = self.training.lock() {
            let bars = self.parts.seen.then(|| TrainingBars::new(start));
            *training =
                Some(Training { pace: Pace::new(start.clone()), bars, steps: false, done: start.done, seen: 0 });
        }
    }

    fn training_ended(&self) {
        let over = self.training.lock().ok().and_then(|mut training| training.take());
        if let Some(bars) = over.and_then(|training| training.bars) {
            bars.epoch.finish_and_clear();
            bars.run.finish_and_clear();
        }
    }

    fn cancel(&self) -> &Cancel {
        self.parts.cancel()
    }

    fn note(&self, line: &str) {
        if !self.quiet {
            self.line(line);
        }
    }

    fn live(&self, live: &Live) {
        self.with_training(|training| {
            if let Some(bars) = &training.bars {
                bars.epoch.set_message(format!(
                    "{:.0} images/s, loss {:.3}, lr {}{}",
                    live.images_per_second,
                    live.loss,
                    live.lr,
                    clusters_in_words(live.clusters, live.kept)
                ));
            }
        });
    }

    fn epoch(&self, record: &EpochRecord) {
        let line = self.with_training(|training| {
            training.done = training.pace.done(record);
            training.seen = 0;
            training.say();
            let Training { pace, bars, done, .. } = training;
            if let Some(bars) = bars {
                bars.run.set_position(u64::from(*done) * pace.start.images as u64);
            }
            // On a terminal the bars say it; probes are worth a line that stays.
            (bars.is_none() || record.knn.is_some()).then(|| pace.line(record))
        });
        if let Some(line) = line.flatten() {
            self.note(&line);
        }
    }

    fn warn(&self, warning: &Warning) {
        // One kind of warning is said once; the log has them all.
        let first = self.said.lock().is_ok_and(|mut said| said.insert(warning.kind()));
        if first {
            self.line(&format!("warning: {}", flags(&warning.to_string())));
        }
    }
}

/// Shows the part of a job that is under way as a bar on a terminal, and warnings everywhere.
struct JobBars {
    /// Whether there is somebody to see bars.
    seen: bool,
    bar: Mutex<Option<ProgressBar>>,
    cancel: Cancel,
}

/// The observer of a job for the person at the terminal; `quiet` shows no bars.
pub fn job(quiet: bool, cancel: &Cancel) -> Arc<dyn Observer> {
    Arc::new(JobBars::new(quiet, cancel))
}

impl JobBars {
    fn new(quiet: bool, cancel: &Cancel) -> Self {
        let seen = !quiet && std::io::stderr().is_terminal();
        JobBars { seen, bar: Mutex::default(), cancel: cancel.clone() }
    }

    /// Prints a line above the bar.
    fn line(&self, line: &str) {
        match self.bar.lock().ok().and_then(|bar| bar.clone()) {
            Some(bar) => bar.println(visible(line)),
            None => say(line),
        }
    }
}

impl Observer for JobBars {
    fn begin(&self, part: &'static str, total: usize) {
        self.end();
        if let Ok(mut bar) = self.bar.lock()
            && self.seen
        {
            let new = bar_for(part);
            new.set_length(total.max(1) as u64);
            *bar = Some(new);
        }
    }

    fn advance(&self, units: usize) {
        if let Ok(bar) = self.bar.lock() {
            bar.iter().for_each(|bar| bar.inc(units as u64));
        }
    }

    fn end(&self) {
        if let Some(bar) = self.bar.lock().ok().and_then(|mut bar| bar.take()) {
            bar.finish_and_clear();
        }
    }

    fn warn(&self, warning: &Warning) {
        self.line(&format!("warning: {}", flags(&warning.to_string())));
    }

    fn status(&self, text: &str) {
        if let Ok(bar) = self.bar.lock() {
            bar.iter().for_each(|bar| bar.set_message(visible(text).into_owned()));
        }
    }

    fn note(&self, line: &str) {
        if self.seen {
            self.line(line);
        }
    }

    fn cancel(&self) -> &Cancel {
        &self.cancel
    }
}

/// A bar for a part of a job; that of a download counts bytes.
fn bar_for(part: &str) -> ProgressBar {
    let template = match part {
        "fetching" => "{prefix:>14} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} to go",
        _ => "{prefix:>14} {bar:30} {pos}/{len}  {msg}",
    };
    let bar = ProgressBar::new(1).with_style(style(template));
    bar.set_prefix(part.to_string());
    bar
}
