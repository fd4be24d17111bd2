//! Parts of a calculation, each of which believes that it is a process: several of them are threads of one process.
//!
//! What processes compute together depends on how many of them there are: sums of parts of a batch are added up in their order. With as many
//! parts, the result has the same bits on any number of processes, also on one.

use super::{Peers, share};
use crate::error::{Error, Result};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// One of the parts.
#[derive(Debug)]
struct Part {
    rank: usize,
    count: usize,
    /// The processes, between which the first part of each exchanges messages for all.
    processes: Arc<dyn Peers>,
    table: Arc<Table>,
}

/// Where the parts of one process leave what they tell the others.
#[derive(Debug)]
struct Table {
    /// The parts of this process.
    parts: Range<usize>,
    /// What each of them leaves.
    places: Vec<Mutex<Vec<u8>>>,
    /// What came from all processes.
    answer: Mutex<Vec<u8>>,
    meeting: Mutex<Meeting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Meeting {
    /// Parts that have come, over all meetings.
    came: usize,
    /// Whether one of them will never come again.
    ended: bool,
}

/// Ends a part that waits for one that has ended.
struct Deserted;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    /// Waits for all parts of this process. Where one has ended, this one ends, too: silently, because that one has told why.
    fn wait(&self) {
        let mut meeting = locked(&self.meeting);
        meeting.came += 1;
        let all = meeting.came.div_ceil(self.places.len()) * self.places.len();
        self.changed.notify_all();
        while meeting.came < all {
            if meeting.ended {
                drop(meeting);
                resume_unwind(Box::new(Deserted));
            }
            meeting = self.changed.wait(meeting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Leaves `own` on the table; the first part passes everyone's to `exchange`; all of them then look at what came.
    fn meet(
        &self,
        rank: usize,
        own: Vec<u8>,
        exchange: impl FnOnce(Vec<Vec<u8>>) -> Vec<u8>,
        look: impl FnOnce(&[u8]),
    ) {
        *locked(&self.places[rank - self.parts.start]) = own;
        self.wait();
        if rank == self.parts.start {
            let left = self.places.iter().map(|place| std::mem::take(&mut *locked(place))).collect();
            *locked(&self.answer) = exchange(left);
        }
        self.wait();
        look(&locked(&self.answer));
        self.wait();
    }
}

/// Where each of parts of these sizes is, when they follow each other.
fn places(counts: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut at = 0;
    let place = |n: usize| {
        at += n;
        at - n..at
    };
    counts.into_iter().map(place).collect()
}

impl Part {
    /// The parts of process `p`.
    fn of_process(&self, p: usize) -> Range<usize> {
        share(self.count, p, self.processes.count())
    }

    /// The sums of `counts` of the parts of every process.
    fn by_process(&self, counts: &[usize]) -> Vec<usize> {
        (0..self.processes.count()).map(|p| counts[self.of_process(p)].iter().sum()).collect()
    }
}

impl Peers for Part {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.count
    }

    fn on_this_machine(&self) -> usize {
        self.processes.on_this_machine() * self.table.places.len()
    }

    fn processes(&self) -> usize {
        self.processes.processes()
    }

    fn all_gather(&self, own: &[u8], counts: &[usize], all: &mut [u8]) {
        assert_eq!((own.len(), all.len()), (counts[self.rank], counts.iter().sum()));
        let exchange = |left: Vec<Vec<u8>>| {
            let own = left.concat();
            if self.processes.count() == 1 {
                return own;
            }
            let mut all = vec![0; counts.iter().sum()];
            self.processes.all_gather(&own, &self.by_process(counts), &mut all);
            all
        };
        self.table.meet(self.rank, own.to_vec(), exchange, |came| all.copy_from_slice(came));
    }

    fn all_to_all(&self, to: &[u8], sent: &[usize], from: &mut [u8], received: &[usize]) {
        assert_eq!((to.len(), from.len()), (sent.iter().sum(), received.iter().sum()));
        let (count, own) = (self.count, self.of_process(self.processes.rank()));
        // How much is for whom, and how much is expected from whom, goes before the bytes.
        let head: Vec<u8> = sent.iter().chain(received).flat_map(|n| (*n as u64).to_le_bytes()).collect();
        let exchange = |left: Vec<Vec<u8>>| {
            let read = |bytes: &[u8]| -> Vec<usize> {
                bytes.as_chunks::<8>().0.iter().map(|n| u64::from_le_bytes(*n) as usize).collect()
            };
            let sent: Vec<Vec<usize>> = left.iter().map(|bytes| read(&bytes[..8 * count])).collect();
            let received: Vec<Vec<usize>> = left.iter().map(|bytes| read(&bytes[8 * count..16 * count])).collect();
            // For every process, what each part here has for each part there.
            let mut to = Vec::new();
            let mut sizes = vec![0; self.processes.count()];
            for p in 0..sizes.len() {
                for (bytes, sent) in left.iter().zip(&sent) {
                    let at = places(sent.iter().copied());
                    for part in self.of_process(p) {
                        to.extend_from_slice(&bytes[16 * count..][at[part].clone()]);
                        sizes[p] += sent[part];
                    }
                }
            }
            let expected: Vec<usize> = (0..count).map(|part| received.iter().map(|r| r[part]).sum()).collect();
            let mut came = vec![0; expected.iter().sum()];
            self.processes.all_to_all(&to, &sizes, &mut came, &self.by_process(&expected));
            // It came in the order of the parts that sent it, for every part here; it is needed the other way round.
            let at = places((0..count).flat_map(|sender| received.iter().map(move |r| r[sender])));
            let mut sorted = Vec::with_capacity(came.len());
            for receiver in 0..own.len() {
                (0..count)
                    .for_each(|sender| sorted.extend_from_slice(&came[at[sender * own.len() + receiver].clone()]));
            }
            // Where the bytes of every part begin.
            let starts = places(received.iter().map(|r| r.iter().sum()));
            let starts: Vec<u8> = starts.iter().flat_map(|range| (range.start as u64).to_le_bytes()).collect();
            [starts, sorted].concat()
        };
        self.table.meet(self.rank, [&head, to].concat(), exchange, |came| {
            let (starts, bytes) = came.split_at(8 * own.len());
            let start = u64::from_le_bytes(starts.as_chunks::<8>().0[self.rank - own.start]) as usize;
            from.copy_from_slice(&bytes[start..start + from.len()]);
        });
    }
}

/// Tells the others that a part will not come again.
struct AtEnd<'a>(&'a Table);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        locked(&self.0.meeting).ended = true;
        self.0.changed.notify_all();
    }
}

/// Runs `work` as `count` parts over the `processes`, in each of these its share of them, with pools of threads of their own. Returns what the
/// parts of this process return; `None` for one that waited for another that had ended.
pub fn in_parts<T: Send>(
    processes: &Arc<dyn Peers>,
    count: usize,
    work: impl Fn(Arc<dyn Peers>) -> T + Sync,
) -> Result<Vec<Option<T>>> {
    let parts = share(count, processes.rank(), processes.count());
    if count < processes.count() {
        return Err(Error::usage(
            format!("the work has {count} parts, fewer than the {} processes", processes.count()),
            "start fewer processes, or give more `train.parts`",
        ));
    }
    let table = Arc::new(Table {
        places: parts.clone().map(|_| Mutex::default()).collect(),
        parts: parts.clone(),
        answer: Mutex::default(),
        meeting: Mutex::default(),
        changed: Condvar::new(),
    });
    // One thread of a pool waits, and the others work.
    let threads = 1 + (rayon::current_num_threads() / parts.len()).max(1);
    let cannot = |e: &dyn std::fmt::Display| {
        Error::usage(
            format!("cannot start a thread: {e}"),
            "allow more processes (`ulimit -u`), or give fewer `train.parts`",
        )
    };
    let pool = || rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pools = parts.clone().map(|_| pool()).collect::<std::result::Result<Vec<_>, _>>().map_err(|e| cannot(&e))?;
    std::thread::scope(|scope| {
        let start = |(rank, pool): (usize, rayon::ThreadPool)| {
            let part = Part { rank, count, processes: processes.clone(), table: table.clone() };
            let (table, work) = (&table, &work);
            std::thread::Builder::new().name(format!("part {rank}")).spawn_scoped(scope, move || {
                let _ended = AtEnd(table);
                pool.install(|| work(Arc::new(part)))
            })
        };
        let started: Vec<_> = parts.zip(pools).map(start).collect();
        // Those that did start wait for one that did not, unless they are told.
        let missing = started.iter().any(|thread| thread.is_err()).then(|| AtEnd(&table));
        drop(missing);
        let mut found = Vec::new();
        let mut failed = None;
        for thread in started {
            match thread.map(|thread| thread.join()) {
                Ok(Ok(value)) => found.push(Some(value)),
                Ok(Err(panic)) if panic.is::<Deserted>() => found.push(None),
                Ok(Err(panic)) => resume_unwind(panic),
                Err(e) => failed = Some(cannot(&e)),
            }
        }
        failed.map_or(Ok(found), Err)
    })
}

/// What `work` returns in `count` parts of one process: for tests of what processes do together.
///
/// # Panics
/// If one of them does.
#[doc(hidden)]
pub fn together<T: Send>(count: usize, work: impl Fn(Arc<dyn Peers>) -> T + Sync) -> Vec<T> {
    let alone: Arc<dyn Peers> = Arc::new(super::Alone);
    let found = in_parts(&alone, count, work).expect("a test can start threads");
    found.into_iter().map(|part| part.expect("all parts come to their end")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of processes that are parts themselves, the first process's first.
    fn nested<T: Send + Clone>(processes: usize, count: usize, work: impl Fn(Arc<dyn Peers>) -> T + Sync) -> Vec<T> {
        let found = together(processes, |outer| in_parts(&outer, count, &work).unwrap());
        found.into_iter().flatten().map(Option::unwrap).collect()
    }

    #[test]
    fn parts_of_several_processes_are_those_of_one() {
        let work = |peers: Arc<dyn Peers>| {
            let (rank, count) = (peers.rank(), peers.count());
            let gathered = peers.all_gather_bytes(&vec![rank as u8; rank + 1]);
            // Part r sends r + 2 p numbers to part p; nothing to itself if it is the first.
            let sent: Vec<usize> = (0..count).map(|p| rank + 2 * p).collect();
            let to: Vec<u32> = (0..count).flat_map(|p| vec![(100 * rank + p) as u32; rank + 2 * p]).collect();
            let received: Vec<usize> = (0..count).map(|r| r + 2 * rank).collect();
            let exchanged = peers.all_to_all_values(&to, &sent, &received);
            let mut sums: Vec<f32> = (0..7).map(|i| 0.1 * (rank * 7 + i) as f32).collect();
            peers.all_reduce(&mut sums);
            let slow: Vec<u32> = (0..count).flat_map(|r| vec![(100 * r + rank) as u32; r + 2 * rank]).collect();
            assert_eq!(exchanged, slow);
            (rank, gathered, exchanged, sums.iter().map(|s| s.to_bits()).collect::<Vec<_>>())
        };
        for count in [1, 2, 4, 5] {
            let one = together(count, work);
            assert!(one.iter().enumerate().all(|(i, found)| found.0 == i));
            for processes in 1..=count.min(3) {
                assert_eq!(nested(processes, count, work), one, "{count} parts on {processes} processes");
            }
        }
        let found = nested(2, 5, |peers| (peers.on_this_machine(), peers.processes()));
        assert_eq!(found, [(4, 1), (4, 1), (6, 1), (6, 1), (6, 1)], "all in one program");
    }

    #[test]
    fn a_part_that_ends_ends_the_others() {
        let alone: Arc<dyn Peers> = Arc::new(super::super::Alone);
        let found = in_parts(&alone, 3, |peers| {
            if peers.rank() == 1 {
                return Err("broken");
            }
            peers.any(false);
            Ok(())
        });
        assert_eq!(found.unwrap(), [None, Some(Err("broken")), None]);
    }

    #[test]
    fn fewer_parts_than_processes_are_refused() {
        let refused = together(3, |outer| in_parts(&outer, 2, |_| ()).unwrap_err().message);
        assert!(refused[0].contains("2 parts") && refused[0].contains("3 processes"), "{refused:?}");
    }
}
