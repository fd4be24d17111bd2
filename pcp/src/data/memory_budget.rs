//! The memory budgets of images: of those that are kept, and of those that are being decoded.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::config::Cache;
use pcp_core::memory::free;
use pcp_core::peers::Peers;
use std::sync::{Condvar, Mutex, PoisonError};

/// Assumed available memory where the system does not report it.
const UNKNOWN: u64 = 4 << 30;

/// Limit on the bytes of decoded images. Either all images are kept in memory or none: once one does not fit, none is kept.
pub(super) struct MemoryBudget {
    /// The limit in bytes; `None` for no limit.
    most: Option<u64>,
    taken: AtomicU64,
    full: AtomicBool,
}

impl MemoryBudget {
    /// The budget of the setting `cache`: no limit, zero, or half of the available memory, of which every process on this machine has a part.
    pub fn new(cache: Cache, peers: &dyn Peers) -> Self {
        Self::of(match cache {
            Cache::Memory => None,
            Cache::None => Some(0),
            Cache::Auto => Some(free().unwrap_or(UNKNOWN) / 2 / peers.on_this_machine() as u64),
        })
    }

    /// A budget of `most` bytes; `None` for no limit.
    pub fn of(most: Option<u64>) -> Self {
        MemoryBudget { most, taken: AtomicU64::new(0), full: AtomicBool::new(most == Some(0)) }
    }

    /// Whether there is no limit.
    pub fn unlimited(&self) -> bool {
        self.most.is_none()
    }

    /// Whether all images so far fitted.
    pub fn holds_all(&self) -> bool {
        !self.full.load(Ordering::Relaxed)
    }

    /// Reserves `bytes`; false if they do not fit.
    pub fn take(&self, bytes: usize) -> bool {
        let Some(most) = self.most else { return true };
        let fits = self.holds_all() && self.taken.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64 <= most;
        if !fits {
            self.full.store(true, Ordering::Relaxed);
        }
        fits
    }
}

/// Bytes of images that are being decoded, over all threads. A thread waits until there is room, so that a few huge images do not take
/// their memory at the same time.
static DECODING: Mutex<u64> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();
/// Images that take less need not ask how much memory is free.
const SMALL: u64 = 32 << 20;

/// Memory for decoding an image; dropping it gives it back.
pub(super) struct DecodingRoom(u64);

impl DecodingRoom {
    /// Waits until `bytes` can be taken; `None` where they are more than is free, even with no other image. A thread that has room must not
    /// ask for more.
    pub fn take(bytes: u64) -> Option<DecodingRoom> {
        let mut taken = DECODING.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // What others have taken is partly allocated: counting it twice is on the safe side, and nobody waits without others.
            let free = if bytes < SMALL && *taken < SMALL { u64::MAX } else { free().unwrap_or(UNKNOWN) };
            if taken.saturating_add(bytes) <= free {
                *taken += bytes;
                return Some(DecodingRoom(bytes));
            }
            if *taken == 0 {
                return None;
            }
            taken = ENDED.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for DecodingRoom {
    fn drop(&mut self) {
        *DECODING.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        ENDED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcp_core::peers::Alone;

    #[test]
    fn a_budget_is_taken_until_it_is_full() {
        let budget = MemoryBudget::of(Some(10));
        assert!(budget.take(4) && budget.take(6) && budget.holds_all());
        assert!(!budget.take(1) && !budget.holds_all());
        assert!(!budget.take(0), "once full, always full: images are held all or none");
        let all = MemoryBudget::new(Cache::Memory, &Alone);
        assert!(all.take(usize::MAX) && all.take(usize::MAX) && all.holds_all() && all.unlimited());
        let none = MemoryBudget::new(Cache::None, &Alone);
        assert!(!none.holds_all() && !none.take(0) && !none.unlimited());
    }

    #[test]
    fn huge_images_are_decoded_one_after_the_other() {
        let Some(all) = free() else { return };
        assert!(DecodingRoom::take(u64::MAX).is_none(), "more than there is");
        let first = DecodingRoom::take(all / 8 * 5).unwrap();
        let (sender, done) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            let second = DecodingRoom::take(all / 8 * 5);
            sender.send(()).unwrap();
            second.is_some()
        });
        assert!(done.recv_timeout(std::time::Duration::from_millis(100)).is_err(), "it waits for the first");
        drop(first);
        assert!(waiting.join().unwrap());
    }
}
