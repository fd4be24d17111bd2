//! Memory that is used again: aligned blocks from one pool, for scratch space and for the storage of tensors.
//!
//! Fresh pages cost more than the arithmetic on them, so blocks go back to the pool when dropped. The pool is bounded:
//! before the system is asked for more, idle blocks are given back until everything, idle and in use, fits in what was
//! once in use at the same time.

use rayon::prelude::*;
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Values in a cache line.
pub const LINE: usize = 16;
/// What the pool may hold beyond the most that was ever in use at once and a sixth of it, in lines (96 MiB).
const SLACK: usize = (96 << 20) / (LINE * size_of::<f32>());

/// Lines behind each block that a unit test checks to be untouched.
const CANARY: usize = if cfg!(test) { 1 } else { 0 };
/// What they hold.
const SENTINEL: u32 = 0x7fc0_dead;

/// A pointer that crosses threads. Who makes it sees to it that units write disjoint parts and outlive nothing.
pub struct Ptr<T = f32>(pub *mut T);
// SAFETY: a `Ptr` is only an address; every use of it is in an unsafe block that states why its accesses are disjoint.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Ptr<T> {}

// by hand, because the derived ones would ask the same of `T`
impl<T> Copy for Ptr<T> {}
impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Ptr<T> {
    /// The beginning of what will only be read.
    pub fn to(values: &[T]) -> Ptr<T> {
        Ptr(values.as_ptr() as *mut T)
    }

    /// The address `o` values further on, wherever that is.
    #[inline(always)]
    pub fn beyond(self, o: usize) -> *mut T {
        self.0.wrapping_add(o)
    }

    /// The address `o` values further on.
    ///
    /// # Safety
    /// Within the block or one past it.
    #[inline(always)]
    pub unsafe fn at(self, o: usize) -> *mut T {
        // SAFETY: the caller's promise.
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

/// Memory of whole cache lines, aligned to them, zeroed when made.
///
/// Large blocks ask for huge pages: a step of training walks through hundreds of megabytes, and with small pages the
/// address translation costs as much as the memory.
struct Block {
    start: *mut f32,
    lines: usize,
}
// SAFETY: a block owns its memory; nothing in it is tied to a thread.
unsafe impl Send for Block {}
// SAFETY: a shared block gives out nothing but its address.
unsafe impl Sync for Block {}

impl Block {
    /// Size and alignment of a huge page.
    const HUGE: usize = 2 << 20;

    fn layout(lines: usize) -> Layout {
        let bytes = lines * LINE * size_of::<f32>();
        let align = if bytes >= Self::HUGE { Self::HUGE } else { LINE * size_of::<f32>() };
        Layout::from_size_align(bytes, align).expect("a size that fits in memory")
    }

    fn new(lines: usize) -> Block {
        let layout = Self::layout(lines);
        // SAFETY: the layout is not empty; the advice is given on memory of ours and changes nothing but its pages.
        let start = unsafe {
            let start = std::alloc::alloc(layout);
            if start.is_null() {
                std::alloc::handle_alloc_error(layout);
            }
            #[cfg(target_os = "linux")]
            if layout.align() == Self::HUGE {
                libc::madvise(start.cast(), layout.size(), libc::MADV_HUGEPAGE);
            }
            start.write_bytes(0, layout.size());
            start.cast()
        };
        Block { start, lines }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.lines == 0 {
            return; // what a dropped `Scratch` leaves in place of its block
        }
        // SAFETY: allocated with the same layout, and dropped once.
        unsafe { std::alloc::dealloc(self.start.cast(), Self::layout(self.lines)) }
    }
}

/// The idle blocks by size and the accounts of the pool, in lines.
struct Pool {
    idle: BTreeMap<usize, Vec<Block>>,
    idle_lines: usize,
    used: usize,
    peak: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: BTreeMap::new(), idle_lines: 0, used: 0, peak: 0 });

impl Pool {
    /// Takes a block of `n` lines or not much more, if one is idle.
    fn take(&mut self, n: usize) -> Option<Block> {
        let (&size, _) = self.idle.range(n..=n + n / 4).next()?;
        self.remove(size)
    }

    fn remove(&mut self, size: usize) -> Option<Block> {
        let blocks = self.idle.get_mut(&size)?;
        let block = blocks.pop();
        if blocks.is_empty() {
            self.idle.remove(&size);
        }
        self.idle_lines -= size;
        block
    }

    /// Takes idle blocks out until `n` more lines in use stay within the bound; the caller frees them.
    fn make_room(&mut self, n: usize) -> Vec<Block> {
        let mut out = Vec::new();
        self.peak = self.peak.max(self.used + n);
        while self.used + n + self.idle_lines > self.peak + self.peak / 6 + SLACK {
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
    block: Block,
    len: usize,
}

impl Scratch {
    /// A block of at least `len` values.
    pub fn new(len: usize) -> Scratch {
        let n = len.div_ceil(LINE).max(1) + CANARY;
        // sizes with four significant bits, so that nearly equal requests share blocks
        let n = n.next_multiple_of(1 << n.ilog2().saturating_sub(3));
        let mut pool = pool();
        let block = match pool.take(n) {
            Some(block) => {
                pool.used += block.lines;
                pool.peak = pool.peak.max(pool.used);
                block
            }
            None => {
                let surplus = pool.make_room(n);
                pool.used += n;
                drop(pool);
                drop(surplus);
                Block::new(n)
            }
        };
        let mut block = Scratch { block, len };
        block.tail().iter_mut().for_each(|v| *v = f32::from_bits(SENTINEL));
        block
    }

    /// In tests, everything behind the values asked for; otherwise nothing.
    fn tail(&mut self) -> &mut [f32] {
        let all = self.block.lines * LINE;
        let from = if CANARY == 0 { all } else { self.len };
        // SAFETY: the block has `all` initialised values, `from <= all`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.block.start.add(from), all - from) }
    }

    /// A block of zeros.
    pub fn zeroed(len: usize) -> Scratch {
        let mut block = Scratch::new(len);
        block.as_mut().fill(0.0);
        block
    }

    /// A block of at least `len` numbers that are not larger than f32.
    pub fn of<T>(len: usize) -> Scratch {
        const { assert!(size_of::<T>() <= size_of::<f32>()) };
        Scratch::new((len * size_of::<T>()).div_ceil(size_of::<f32>()))
    }

    /// Where the block begins.
    pub fn ptr(&self) -> Ptr {
        Ptr(self.block.start)
    }

    /// Where the block begins, as the numbers it was made for by [`Scratch::of`].
    pub fn start<T>(&self) -> Ptr<T> {
        Ptr(self.block.start.cast())
    }
}

impl AsRef<[f32]> for Scratch {
    fn as_ref(&self) -> &[f32] {
        // SAFETY: the block has at least `len` initialised values.
        unsafe { std::slice::from_raw_parts(self.block.start, self.len) }
    }
}

impl AsMut<[f32]> for Scratch {
    fn as_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.block.start, self.len) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let intact = self.tail().iter().all(|v| v.to_bits() == SENTINEL);
        assert!(intact || std::thread::panicking(), "a kernel wrote past the {} values of its scratch", self.len);
        let lines = self.block.lines;
        let block =
            std::mem::replace(&mut self.block, Block { start: std::ptr::NonNull::dangling().as_ptr(), lines: 0 });
        let mut pool = pool();
        pool.used -= lines;
        pool.idle_lines += lines;
        pool.idle.entry(lines).or_default().push(block);
    }
}
