//! Messages between processes by MPI.

use mpi::Threading;
use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives};
use pcp_core::peers::Peers;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// MPI counts bytes in 32 bits: more of them travel in several messages.
const MOST: usize = 1 << 30;

/// The connection, which is closed when it is dropped.
static UNIVERSE: Mutex<Option<Universe>> = Mutex::new(None);

/// All processes that were started together.
#[derive(Debug)]
pub(super) struct World {
    rank: usize,
    count: usize,
    on_this_machine: usize,
}

impl World {
    /// Connects the processes; `None` where MPI does not know of any others.
    pub(super) fn connect() -> Option<World> {
        // One thread at a time calls MPI, but not always the same.
        let (universe, granted) = mpi::initialize_with_threading(Threading::Serialized)?;
        if granted < Threading::Serialized {
            return None;
        }
        let world = universe.world();
        let (rank, count) = (world.rank() as usize, world.size() as usize);
        let on_this_machine = world.split_shared(0).size() as usize;
        *UNIVERSE.lock().unwrap_or_else(PoisonError::into_inner) = Some(universe);
        (count > 1).then_some(World { rank, count, on_this_machine })
    }
}

/// Ends all processes.
pub(super) fn abort(code: u8) {
    SimpleCommunicator::world().abort(i32::from(code));
}

/// Closes the connection, where there is one.
pub(super) fn end() {
    drop(UNIVERSE.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// An empty slice whose address is a real one: that of an empty vector is 1, which Open MPI takes for `MPI_IN_PLACE`.
fn placed(bytes: &[u8]) -> &[u8] {
    static SOMEWHERE: [u8; 8] = [0; 8];
    if bytes.is_empty() { &SOMEWHERE[..0] } else { bytes }
}

/// Counts as MPI takes them, and where each part begins.
fn counted(counts: &[usize]) -> (Vec<i32>, Vec<i32>) {
    let mut at = 0;
    let part = |n: &usize| {
        at += n;
        (*n as i32, (at - n) as i32)
    };
    counts.iter().map(part).unzip()
}

/// Of parts of these sizes, what message `turn` has of each, when a message takes up to `most` of every part.
fn turns(counts: &[usize], most: usize, turn: usize) -> Vec<Range<usize>> {
    let mut at = 0;
    let part = |n: &usize| {
        at += n;
        let start = at - n;
        start + (turn * most).min(*n)..start + ((turn + 1) * most).min(*n)
    };
    counts.iter().map(part).collect()
}

/// Puts bytes, one part after the other, where the parts belong.
fn put(mut bytes: &[u8], parts: Vec<Range<usize>>, to: &mut [u8]) {
    for part in parts {
        let (first, rest) = bytes.split_at(part.len());
        to[part].copy_from_slice(first);
        bytes = rest;
    }
}

impl Peers for World {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.count
    }

    fn on_this_machine(&self) -> usize {
        self.on_this_machine
    }

    fn all_gather(&self, own: &[u8], counts: &[usize], all: &mut [u8]) {
        let world = SimpleCommunicator::world();
        if all.len() <= MOST {
            if all.is_empty() {
                return;
            }
            let (counts, places) = counted(counts);
            return world.all_gather_varcount_into(placed(own), &mut PartitionMut::new(all, counts, places));
        }
        let most = MOST / self.count;
        for turn in 0..counts.iter().max().map_or(0, |n| n.div_ceil(most)) {
            let parts = turns(counts, most, turn);
            let sizes: Vec<usize> = parts.iter().map(Range::len).collect();
            let mut some = vec![0; sizes.iter().sum()];
            let sent = &own[(turn * most).min(own.len())..((turn + 1) * most).min(own.len())];
            self.all_gather(sent, &sizes, &mut some);
            put(&some, parts, all);
        }
    }

    fn all_to_all(&self, to: &[u8], sent: &[usize], from: &mut [u8], received: &[usize]) {
        let world = SimpleCommunicator::world();
        // All processes must take the same number of turns: the largest part of any of them decides.
        let largest = sent.iter().chain(received).max().copied().unwrap_or(0) as u64;
        let mut largest_of = vec![0u64; self.count];
        world.all_gather_into(&largest, &mut largest_of[..]);
        let most = MOST / self.count;
        let needed = largest_of.into_iter().max().unwrap_or(0) as usize;
        if needed <= most {
            let ((sent, sent_at), (received, received_at)) = (counted(sent), counted(received));
            let to = Partition::new(placed(to), sent, sent_at);
            // One that receives nothing has room for a byte, at a real address.
            let mut room = [0u8; 1];
            let from = if from.is_empty() { &mut room[..] } else { from };
            return world.all_to_all_varcount_into(&to, &mut PartitionMut::new(from, received, received_at));
        }
        for turn in 0..needed.div_ceil(most) {
            let (out, back) = (turns(sent, most, turn), turns(received, most, turn));
            let some: Vec<u8> = out.iter().flat_map(|part| &to[part.clone()]).copied().collect();
            let sizes = |parts: &[Range<usize>]| parts.iter().map(Range::len).collect::<Vec<_>>();
            let mut came = vec![0; sizes(&back).iter().sum()];
            self.all_to_all(&some, &sizes(&out), &mut came, &sizes(&back));
            put(&came, back, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_messages_go_in_turns_that_cover_every_part_once() {
        let counts = [0, 10, 3, 25];
        let mut seen = [0; 38];
        for turn in 0..4 {
            for part in turns(&counts, 8, turn) {
                assert!(part.len() <= 8);
                seen[part].iter_mut().for_each(|n| *n += 1);
            }
        }
        assert_eq!(seen, [1; 38]);
        assert_eq!(counted(&counts), (vec![0, 10, 3, 25], vec![0, 0, 10, 13]));
    }
}
