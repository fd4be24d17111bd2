//! Cancelling: long calculations run on the thread pool while the caller waits for the result or for a request to stop.

use crate::error::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// A progress callback: gets (steps done, steps in all). When it returns an error, the calculation ends with that error.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize) -> Result<()>;

/// A flag that asks all calculations to stop. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Requests a stop; returns whether one had been requested before.
    pub fn request(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }

    /// Whether a stop was requested.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// The flag itself, for handlers of signals.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// An error of kind `Stopped` once a stop was requested.
    pub fn check(&self) -> Result<()> {
        if self.requested() { Err(Error::stopped()) } else { Ok(()) }
    }

    /// Runs `task` on the thread pool and waits for its result. When a stop is requested, it returns an error at once and the
    /// abandoned task runs to its end in the background: `task` owns all its data, so nothing of the caller's is half changed.
    /// `task` must not wait for other tasks of the pool: a pool of one thread would deadlock.
    pub fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.wait_for(task, |task| {
            rayon::spawn(task);
            Ok(())
        })
    }

    /// As `run`, on a new thread outside the pool: for tasks that wait for other tasks of the pool.
    pub fn run_beside<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.wait_for(task, |task| spawn("beside", task))
    }

    fn wait_for<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
        start: impl FnOnce(Box<dyn FnOnce() + Send>) -> Result<()>,
    ) -> Result<T> {
        self.check()?;
        let (sender, receiver) = mpsc::sync_channel(1);
        start(Box::new(move || {
            let outcome = catch_unwind(AssertUnwindSafe(task));
            // After a stop the receiver is gone.
            let _ = sender.send(outcome);
        }))?;
        loop {
            match receiver.recv_timeout(Duration::from_millis(20)) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(panic)) => return Err(panicked(panic.as_ref())),
                Err(RecvTimeoutError::Timeout) => self.check()?,
                Err(RecvTimeoutError::Disconnected) => return Err(panicked(&"a calculation ended without a result")),
            }
        }
    }
}

/// Runs `task` on a new thread; an error where the system allows no more of them.
pub fn spawn(name: &str, task: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = std::thread::Builder::new().name(name.into()).spawn(task);
    started.map(drop).map_err(|e| {
        let message = format!("cannot start a thread: {e}");
        Error::usage(message, "allow more processes and memory (`ulimit -u`, `ulimit -v`), or try fewer `threads`")
    })
}

/// The error for a panic.
pub fn panicked(panic: &dyn std::any::Any) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    let message = format!("an internal check failed: {}", text.unwrap_or("no message"));
    Error::training(
        message,
        "please report this with the command and the run's config.toml; `resume` continues from the last checkpoint",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_task_returns_its_value_or_its_panic() {
        assert_eq!(Cancel::default().run(|| 6 * 7).unwrap(), 42);
        let e = Cancel::default().run(|| -> () { panic!("no such row") }).unwrap_err();
        assert!(e.message.contains("no such row"), "{e:?}");
        assert_eq!(Cancel::default().run_beside(|| rayon::join(|| 6, || 7)).unwrap(), (6, 7));
    }

    #[test]
    fn a_stop_does_not_wait_for_the_task() {
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
