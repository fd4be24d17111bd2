//! Threads that stand for processes: for tests of what processes do together.

use super::Peers;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// One of several threads.
#[derive(Debug)]
struct Thread {
    rank: usize,
    table: Arc<Table>,
}

/// Where threads leave what they tell the others.
#[derive(Debug)]
struct Table {
    places: Vec<Mutex<Vec<u8>>>,
    /// Threads that have come, over all meetings.
    came: Mutex<usize>,
    all_there: Condvar,
}

impl Table {
    /// Waits for all threads.
    ///
    /// # Panics
    /// If one does not come for two minutes: it has panicked.
    fn wait(&self) {
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        *came += 1;
        let all = came.div_ceil(self.places.len()) * self.places.len();
        self.all_there.notify_all();
        while *came < all {
            let waited = self.all_there.wait_timeout(came, Duration::from_secs(120));
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            assert!(!timeout.timed_out(), "another thread has ended");
            came = now;
        }
    }
}

impl Thread {
    /// Leaves `own` on the table, and passes `take` what everyone left.
    fn meet(&self, own: &[u8], mut take: impl FnMut(usize, &[u8])) {
        let place = |rank: usize| self.table.places[rank].lock().unwrap_or_else(PoisonError::into_inner);
        *place(self.rank) = own.to_vec();
        self.table.wait();
        for rank in 0..self.count() {
            take(rank, &place(rank));
        }
        self.table.wait();
    }
}

/// The bytes of part `rank`, when parts of these sizes follow each other.
fn part(counts: &[usize], rank: usize) -> Range<usize> {
    let start: usize = counts[..rank].iter().sum();
    start..start + counts[rank]
}

impl Peers for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.table.places.len()
    }

    fn all_gather(&self, own: &[u8], counts: &[usize], all: &mut [u8]) {
        assert_eq!((own.len(), all.len()), (counts[self.rank], counts.iter().sum()));
        self.meet(own, |rank, bytes| all[part(counts, rank)].copy_from_slice(bytes));
    }

    fn all_to_all(&self, to: &[u8], sent: &[usize], from: &mut [u8], received: &[usize]) {
        assert_eq!((to.len(), from.len()), (sent.iter().sum(), received.iter().sum()));
        // What is for whom goes before the bytes.
        let head: Vec<u8> = sent.iter().flat_map(|n| (*n as u64).to_le_bytes()).collect();
        self.meet(&[&head, to].concat(), |rank, bytes| {
            let (head, bytes) = bytes.split_at(8 * self.count());
            let sent: Vec<usize> = head.as_chunks::<8>().0.iter().map(|n| u64::from_le_bytes(*n) as usize).collect();
            from[part(received, rank)].copy_from_slice(&bytes[part(&sent, self.rank)]);
        });
    }
}

/// What `work` returns in `count` processes that are threads, each with a pool of two threads of its own.
///
/// # Panics
/// If one of them does.
pub fn together<T: Send>(count: usize, work: impl Fn(Arc<dyn Peers>) -> T + Sync) -> Vec<T> {
    let places = (0..count).map(|_| Mutex::default()).collect();
    let table = Arc::new(Table { places, came: Mutex::new(0), all_there: Condvar::new() });
    std::thread::scope(|scope| {
        let start = |rank: usize| {
            let (peers, work) = (Arc::new(Thread { rank, table: table.clone() }), &work);
            scope.spawn(move || {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
                pool.expect("a test can start threads").install(|| work(peers))
            })
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        let join =
            |thread: std::thread::ScopedJoinHandle<T>| thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
        threads.into_iter().map(join).collect()
    })
}
