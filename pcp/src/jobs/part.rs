//! Parts of a job: an observer is told how far each is, and can cancel it.

use crate::observe::Observer;
use pcp_core::error::Result;
use std::sync::{Arc, Mutex};

/// A part of a job that is under way.
#[derive(Clone)]
pub(crate) struct JobPart {
    name: &'static str,
    observer: Arc<dyn Observer>,
    /// Units done, and units in all.
    told: Arc<Mutex<(usize, usize)>>,
}

impl JobPart {
    /// Begins a part of `total` units; 0 where nobody knows yet.
    pub(crate) fn begin(name: &'static str, total: usize, observer: &Arc<dyn Observer>) -> JobPart {
        observer.begin(name, total);
        JobPart { name, observer: observer.clone(), told: Arc::new(Mutex::new((0, total))) }
    }

    /// `done` of `total` units are done. Threads may report out of order: the most that was reported counts.
    pub(crate) fn at(&self, done: usize, total: usize) {
        let Ok(mut told) = self.told.lock() else { return };
        if told.1 != total {
            self.observer.begin(self.name, total);
            *told = (0, total);
        }
        if done > told.0 {
            self.observer.advance(done - told.0);
            told.0 = done;
        }
    }

    /// As `at`, for work that can fail: an error once the job is cancelled.
    pub(crate) fn step(&self, done: usize, total: usize) -> Result<()> {
        self.at(done, total);
        self.observer.cancel().check()
    }

    /// `units` more are done.
    pub(crate) fn more(&self, units: usize) {
        self.observer.advance(units);
    }

    /// Ends the part.
    pub(crate) fn end(&self) {
        self.observer.end();
    }
}

/// Runs a part on the thread pool, so that cancelling need not wait for it. `work` must not wait for other work of the pool.
pub(crate) fn on_pool<T: Send + 'static>(
    name: &'static str,
    total: usize,
    observer: &Arc<dyn Observer>,
    work: impl FnOnce(&JobPart) -> Result<T> + Send + 'static,
) -> Result<T> {
    let part = JobPart::begin(name, total, observer);
    let inside = part.clone();
    let outcome = observer.cancel().run(move || work(&inside));
    part.end();
    outcome?
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_core::cancel::Cancel;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>, Cancel);

    impl Observer for Heard {
        fn begin(&self, part: &'static str, total: usize) {
            self.0.lock().unwrap().push(format!("{part} {total}"));
        }
        fn advance(&self, units: usize) {
            self.0.lock().unwrap().push(format!("+{units}"));
        }
        fn end(&self) {
            self.0.lock().unwrap().push("end".into());
        }
        fn cancel(&self) -> &Cancel {
            &self.1
        }
    }

    #[test]
    fn observers_hear_differences_and_new_totals() {
        let heard = Arc::new(Heard::default());
        let observer: Arc<dyn Observer> = heard.clone();
        let found = on_pool("work", 0, &observer, |part| {
            part.step(1, 3)?;
            part.step(3, 3)?;
            part.step(2, 3)?;
            Ok(7)
        });
        assert_eq!(found.unwrap(), 7);
        assert_eq!(*heard.0.lock().unwrap(), ["work 0", "work 3", "+1", "+2", "end"]);
        observer.cancel().request();
        assert_eq!(on_pool("work", 0, &observer, |_| Ok(())).unwrap_err().exit_code(), 130);
        assert_eq!(heard.0.lock().unwrap().last().unwrap(), "end");
    }
}
