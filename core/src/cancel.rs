//! Long work that can be stopped: it runs on the thread pool while the caller waits for its end or for the user's stop.

use crate::error::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Told how far long work is, as (steps done, steps in all); its error ends the work.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize) -> Result<()>;

/// A flag that asks everything to stop. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks to stop; returns whether it had been asked before.
    pub fn request(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }

    /// Whether a stop was asked for.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// An error once a stop was asked for.
    pub fn check(&self) -> Result<()> {
        if self.requested() { Err(Error::stopped()) } else { Ok(()) }
    }

    /// Runs `work` on the thread pool and waits for it. When a stop is asked for, returns at once and leaves the work to
    /// itself: `work` owns all it needs and changes nothing that the caller keeps, so what the caller holds stays whole.
    /// `work` must not wait for other work of the pool: with one thread, that would be for ever.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.wait_for(work, rayon::spawn)
    }

    /// As `run`, for work that waits for other work of the pool: it has a thread of its own.
    pub fn run_beside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.wait_for(work, |work| drop(std::thread::spawn(work)))
    }

    fn wait_for<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        start: impl FnOnce(Box<dyn FnOnce() + Send>),
    ) -> Result<T> {
        self.check()?;
        let (sender, receiver) = mpsc::sync_channel(1);
        start(Box::new(move || {
            let outcome = catch_unwind(AssertUnwindSafe(work));
            // Nobody listens any more after a stop.
            let _ = sender.send(outcome);
        }));
        loop {
            match receiver.recv_timeout(Duration::from_millis(20)) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(panic)) => return Err(broken(panic.as_ref())),
                Err(RecvTimeoutError::Timeout) => self.check()?,
                Err(RecvTimeoutError::Disconnected) => return Err(broken(&"the work was lost")),
            }
        }
    }
}

fn broken(panic: &dyn std::any::Any) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let message = format!("an internal check failed: {}", text.unwrap_or("no message"));
    Error::training(
        message,
        "please report this with the command and the run's config.toml; `resume` goes on from the last checkpoint",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn work_returns_its_value_or_its_panic() {
        assert_eq!(Cancel::default().run(|| 6 * 7).unwrap(), 42);
        let e = Cancel::default().run(|| -> () { panic!("no such row") }).unwrap_err();
        assert!(e.message.contains("no such row"), "{e:?}");
        assert_eq!(Cancel::default().run_beside(|| rayon::join(|| 6, || 7)).unwrap(), (6, 7));
    }

    #[test]
    fn a_stop_does_not_wait_for_the_work() {
        let stop = Cancel::default();
        let asked = stop.clone();
        let started = Instant::now();
        let waiting = std::thread::spawn(move || stop.run(|| std::thread::sleep(Duration::from_secs(3))));
        assert!(!asked.request());
        assert_eq!(waiting.join().unwrap().unwrap_err().exit_code(), 130);
        assert!(started.elapsed() < Duration::from_secs(1));
        assert!(asked.request());
        assert!(asked.run(|| ()).is_err());
    }
}
