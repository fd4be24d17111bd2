//! What the program shows while it works: bars on a terminal; of training plain lines elsewhere; nothing when it is to be quiet.

use super::flags::flags;
use super::table::duration;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use pcp::config::Resolved;
use pcp::data::{self, Dataset};
use pcp::jobs::images;
use pcp::observe::{Live, Observer};
use pcp::run::{EpochRecord, RunFolder, Warning};
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use pcp_core::schedule::Schedule;
use std::collections::HashSet;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Watches a run for a person.
pub struct Progress {
    bars: Option<Bars>,
    quiet: bool,
    total_epochs: u32,
    epochs_per_round: u32,
    images: u64,
    /// When this part of the run began, and with how many epochs done.
    began: Mutex<(Instant, u32)>,
    training: AtomicBool,
    log: RunFolder,
    said: Mutex<HashSet<&'static str>>,
    cancel: Cancel,
}

struct Bars {
    all: MultiProgress,
    epoch: ProgressBar,
    run: ProgressBar,
}

impl Progress {
    /// Bars, lines or nothing, as fits where it is shown.
    pub fn new(quiet: bool, schedule: &Schedule, images: usize, run: &RunFolder, cancel: &Cancel) -> Self {
        let bars = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8));
            let epoch = all.add(ProgressBar::new(1).with_style(style("{prefix:>14} {bar:30} {percent:>3} %  {msg}")));
            // Counted in images, so that the first epoch already tells how long the rest will take.
            let total = u64::from(schedule.total_epochs()) * images as u64;
            let run = all.add(
                ProgressBar::new(total)
                    .with_style(style("{prefix:>14} {bar:30} {percent:>3} %  {msg}, {elapsed_precise}, {eta} to go")),
            );
            run.set_prefix("run");
            run.set_message(format!("epoch 1/{}", schedule.total_epochs()));
            Bars { all, epoch, run }
        });
        Progress {
            bars,
            quiet,
            total_epochs: schedule.total_epochs(),
            epochs_per_round: schedule.epochs(),
            images: images as u64,
            began: Mutex::new((Instant::now(), 0)),
            training: AtomicBool::new(false),
            log: run.clone(),
            said: Mutex::default(),
            cancel: cancel.clone(),
        }
    }

    /// Sets the run's bar to the epochs that are done already.
    pub fn resumed_at(&self, epochs: u32) {
        if let Ok(mut began) = self.began.lock() {
            *began = (Instant::now(), epochs);
        }
        if let Some(bars) = &self.bars {
            bars.run.set_position(u64::from(epochs) * self.images);
            bars.run.reset_eta();
        }
    }

    /// How long the rest will take when it goes on like this, in words.
    fn to_go(&self, done: u32) -> String {
        let Ok(began) = self.began.lock() else { return String::new() };
        let (since, before) = *began;
        if done <= before || done >= self.total_epochs {
            return String::new();
        }
        let per_epoch = since.elapsed().as_secs_f64() / f64::from(done - before);
        format!(", {} to go", duration(per_epoch * f64::from(self.total_epochs - done)))
    }

    /// Says something to the person and the log.
    pub fn say(&self, line: &str) {
        self.log.log(line);
        match (&self.bars, self.quiet) {
            (_, true) => {}
            (Some(bars), _) => {
                // A lost terminal is no reason to stop training.
                let _ = bars.all.println(line);
            }
            (None, _) => eprintln!("{line}"),
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
    fn begin(&self, part: &'static str, total: usize) {
        if let Some(bars) = &self.bars {
            bars.epoch.set_length(total as u64);
            bars.epoch.set_position(0);
            bars.epoch.set_prefix(part);
            bars.epoch.set_message("");
            self.training.store(part == "training", Ordering::Relaxed);
        }
    }

    fn advance(&self, units: usize) {
        if let Some(bars) = &self.bars {
            bars.epoch.inc(units as u64);
            if self.training.load(Ordering::Relaxed) {
                bars.run.inc(units as u64);
            } else {
                bars.run.tick();
            }
        }
    }

    fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    fn note(&self, line: &str) {
        self.say(line);
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
            "epoch {done:>3}/{}: loss {:.3}, lr {}, K {}, kept {:.0} %, {:.0} images/s, {:.1} s{knn}{}",
            self.total_epochs,
            r.loss,
            r.lr,
            r.clusters,
            r.kept * 100.0,
            r.images_per_second,
            r.seconds,
            self.to_go(done)
        );
        match &self.bars {
            // On a terminal the bars say it; probes are worth a line that stays.
            Some(bars) => {
                bars.run.set_position(u64::from(done) * self.images);
                bars.run.set_message(format!("epoch {}/{}", (done + 1).min(self.total_epochs), self.total_epochs));
                if r.knn.is_some() { self.say(&line) } else { self.log.log(&line) }
            }
            None => self.say(&line),
        }
    }

    fn warn(&self, warning: &Warning) {
        // One kind of warning is said once; the log has them all.
        let first = self.said.lock().is_ok_and(|mut said| said.insert(warning.kind()));
        if first {
            match &self.bars {
                Some(bars) => {
                    let _ = bars.all.println(format!("warning: {warning}"));
                }
                None => eprintln!("warning: {warning}"),
            }
        }
    }
}

/// Shows the part of a job that is under way as a bar on a terminal, and warnings everywhere.
struct JobBars {
    /// Whether there is somebody to see bars.
    seen: bool,
    /// Whether notes are printed.
    notes: bool,
    bar: Mutex<Option<ProgressBar>>,
    cancel: Cancel,
}

/// The observer of a job for the person at the terminal; `quiet` shows no bars.
pub fn job(quiet: bool, cancel: &Cancel) -> Arc<dyn Observer> {
    let seen = !quiet && std::io::stderr().is_terminal();
    Arc::new(JobBars { seen, notes: seen, bar: Mutex::default(), cancel: cancel.clone() })
}

/// The observer of a job whose notes belong into a log, too: they are printed wherever it is not `quiet`.
pub fn job_with_notes(quiet: bool, cancel: &Cancel) -> Arc<dyn Observer> {
    let seen = !quiet && std::io::stderr().is_terminal();
    Arc::new(JobBars { seen, notes: !quiet, bar: Mutex::default(), cancel: cancel.clone() })
}

impl JobBars {
    /// Prints a line above the bar.
    fn line(&self, line: &str) {
        match self.bar.lock().ok().and_then(|bar| bar.clone()) {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
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
            bar.iter().for_each(|bar| bar.set_message(text.to_string()));
        }
    }

    fn note(&self, line: &str) {
        if self.notes {
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

/// A bar for work of a known length, shown only to a person.
pub fn bar(part: &str, quiet: bool) -> ProgressBar {
    let bar = bar_for(part);
    if quiet || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}

/// Reads the images of a run that was begun, in the same way.
pub fn read_images_again(config: &Resolved, quiet: bool, stop: &Cancel) -> Result<Dataset> {
    images::read_again(config, &job(quiet, stop))
}

/// Reads images with a bar; a stop ends it at once, since there is nothing to save yet.
pub fn read_images(request: data::Load, quiet: bool, stop: &Cancel) -> Result<Dataset> {
    images::read(request, &job(quiet, stop))
}
