//! Memory that is used again: aligned blocks from one pool, for scratch space and for the storage of tensors.
//!
//! Fresh pages cost more than the arithmetic on them, so blocks go back to the pool when dropped. The pool is bounded:
//! before the system is asked for more, idle blocks are given back until everything, idle and in use, fits in what was
//! once in use at the same time.

use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Values in a cache line.
pub const LINE: usize = 16;
/// What the pool may hold beyond the most that was ever in use at once, in lines (16 MiB).
const SLACK: usize = 1 << 18;

/// A pointer that crosses threads. Who makes it sees to it that units write disjoint parts and outlive nothing.
#[derive(Clone, Copy)]
pub struct Ptr(pub *mut f32);
// SAFETY: a `Ptr` is only an address; every use of it is in an unsafe block that states why its accesses are disjoint.
unsafe impl Send for Ptr {}
// SAFETY: as above.
unsafe impl Sync for Ptr {}

impl Ptr {
    /// The address `o` values further on.
    ///
    /// Safety: within the block or one past it.
    #[inline(always)]
    pub unsafe fn at(self, o: usize) -> *mut f32 {
        unsafe { self.0.add(o) }
    }
}

/// Runs `f(0)`, ..., `f(n - 1)` on the current rayon pool, each as a task of its own.
///
/// What a unit does must follow from its number and the shapes alone: then the bits do not depend on the threads.
pub fn parallel(n: usize, f: impl Fn(usize) + Send + Sync) {
    match n {
        0 => (),
        1 => f(0),
        _ => (0..n).into_par_iter().with_max_len(1).for_each(f),
    }
}

/// One cache line; a vector of these is aligned storage.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([f32; LINE]);

/// The idle blocks by size and the accounts of the pool, in lines.
struct Pool {
    idle: BTreeMap<usize, Vec<Vec<Line>>>,
    idle_lines: usize,
    used: usize,
    peak: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: BTreeMap::new(), idle_lines: 0, used: 0, peak: 0 });

impl Pool {
    /// Takes a block of `n` lines or not much more, if one is idle.
    fn take(&mut self, n: usize) -> Option<Vec<Line>> {
        let (&size, _) = self.idle.range(n..=n + n / 2 + 256).next()?;
        self.remove(size)
    }

    fn remove(&mut self, size: usize) -> Option<Vec<Line>> {
        let blocks = self.idle.get_mut(&size)?;
        let block = blocks.pop();
        if blocks.is_empty() {
            self.idle.remove(&size);
        }
        self.idle_lines -= size;
        block
    }

    /// Takes idle blocks out until `n` more lines in use stay within the bound; the caller frees them.
    fn make_room(&mut self, n: usize) -> Vec<Vec<Line>> {
        let mut out = Vec::new();
        self.peak = self.peak.max(self.used + n);
        while self.used + n + self.idle_lines > self.peak + SLACK {
            let Some((&largest, _)) = self.idle.last_key_value() else { break };
            out.extend(self.remove(largest));
        }
        out
    }
}

/// The pool's lock; a panic elsewhere cannot leave its accounts half written, so a poisoned lock is taken as it is.
fn pool() -> std::sync::MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// An aligned block of f32 from the pool, given back when dropped. Its content is arbitrary but initialised.
pub struct Scratch {
    lines: Vec<Line>,
    len: usize,
}

impl Scratch {
    /// A block of at least `len` values.
    pub fn new(len: usize) -> Scratch {
        let n = len.div_ceil(LINE).max(1);
        let mut pool = pool();
        let found = pool.take(n);
        let lines = match found {
            Some(lines) => {
                pool.used += lines.len();
                pool.peak = pool.peak.max(pool.used);
                lines
            }
            None => {
                let surplus = pool.make_room(n);
                pool.used += n;
                drop(pool);
                drop(surplus);
                vec![Line([0.0; LINE]); n]
            }
        };
        Scratch { lines, len }
    }

    /// A block of zeros.
    pub fn zeroed(len: usize) -> Scratch {
        let mut block = Scratch::new(len);
        block.as_mut().fill(0.0);
        block
    }

    /// Where the block begins.
    pub fn ptr(&self) -> Ptr {
        Ptr(self.lines.as_ptr() as *mut f32)
    }
}

impl AsRef<[f32]> for Scratch {
    fn as_ref(&self) -> &[f32] {
        // SAFETY: the lines are plain initialised f32 and there are at least `len` of them.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr() as *const f32, self.len) }
    }
}

impl AsMut<[f32]> for Scratch {
    fn as_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr() as *mut f32, self.len) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let mut pool = pool();
        pool.used -= lines.len();
        pool.idle_lines += lines.len();
        pool.idle.entry(lines.len()).or_default().push(lines);
    }
}
