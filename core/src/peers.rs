//! Processes that work on one calculation together: who they are, and what they tell each other.
//!
//! Two operations are enough, [`Peers::all_gather`] and [`Peers::all_to_all`]; sums are made of them here, in the order of the processes. So
//! all processes get the same bits, and a sum has the same bits again however the messages travelled. Every process must make the same
//! calls in the same order. Work on N rows is divided into ranges of neighbours, [`share`]; whoever is [`Alone`] has all of them.

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use sha2::{Digest, Sha256};
use std::fmt::Debug;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The processes that work together, as one of them sees them. A process that is lost ends all others: no operation returns an error.
pub trait Peers: Debug + Send + Sync {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn count(&self) -> usize;

    /// How many of them share this machine's cores and memory, this one included.
    fn on_this_machine(&self) -> usize {
        self.count()
    }

    /// How many programs these are: fewer than `count` where some of them are [parts] of one.
    fn processes(&self) -> usize {
        self.count()
    }

    /// Gives every process everyone's bytes, one process after the other; process p has `counts[p]` of them.
    fn all_gather(&self, own: &[u8], counts: &[usize], all: &mut [u8]);

    /// Sends `sent[p]` of the bytes `to`, one part after the other, to process p, and receives `received[p]` from it.
    fn all_to_all(&self, to: &[u8], sent: &[usize], from: &mut [u8], received: &[usize]);
}

/// One process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Peers for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn count(&self) -> usize {
        1
    }

    fn all_gather(&self, own: &[u8], _counts: &[usize], all: &mut [u8]) {
        all.copy_from_slice(own);
    }

    fn all_to_all(&self, to: &[u8], _sent: &[usize], from: &mut [u8], _received: &[usize]) {
        from.copy_from_slice(to);
    }
}

/// The processes that work together, for whoever takes part. Clones are the same team; the default is a process alone.
#[derive(Clone, Debug)]
pub struct Team {
    peers: Arc<dyn Peers>,
    /// Whether this process was asked to stop.
    wanted: Cancel,
}

impl Default for Team {
    fn default() -> Self {
        Team { peers: Arc::new(Alone), wanted: Cancel::default() }
    }
}

impl Deref for Team {
    type Target = dyn Peers;

    fn deref(&self) -> &(dyn Peers + 'static) {
        self.peers.as_ref()
    }
}

impl Team {
    /// These processes; `wanted` is requested where this one is to stop.
    pub fn new(peers: Arc<dyn Peers>, wanted: Cancel) -> Team {
        Team { peers, wanted }
    }

    /// The processes.
    pub fn peers(&self) -> &Arc<dyn Peers> {
        &self.peers
    }

    /// The flag by which this process is asked to stop.
    pub fn wanted(&self) -> &Cancel {
        &self.wanted
    }

    /// Requests `agreed` in all processes, once any of them is to stop: so all of them stop at the same place.
    pub fn agree_to_stop(&self, agreed: &Cancel) {
        if self.several() && self.any(self.wanted.requested()) {
            agreed.request();
        }
    }
}

/// The rows of process `rank`, when `n` rows are divided among `count` processes.
pub fn share(n: usize, rank: usize, count: usize) -> Range<usize> {
    let start = |rank: usize| (n as u128 * rank as u128 / count as u128) as usize;
    start(rank)..start(rank + 1)
}

impl dyn Peers + '_ {
    /// Whether there are other processes.
    pub fn several(&self) -> bool {
        self.count() > 1
    }

    /// Whether this process writes files and messages: one does.
    pub fn leads(&self) -> bool {
        self.rank() == 0
    }

    /// The rows of this process.
    pub fn own(&self, n: usize) -> Range<usize> {
        share(n, self.rank(), self.count())
    }

    /// How many of `n` rows every process has.
    pub fn shares(&self, n: usize) -> Vec<usize> {
        (0..self.count()).map(|rank| share(n, rank, self.count()).len()).collect()
    }

    /// The process that has row `r` of `n`.
    pub fn holder(&self, r: usize, n: usize) -> usize {
        // The first whose share ends after row r: floor(n (rank + 1) / count) > r.
        ((r as u128 + 1) * self.count() as u128).div_ceil(n as u128).saturating_sub(1) as usize
    }

    /// Everyone's values, one process after the other; process p has `counts[p]`.
    pub fn all_gather_values<T: Pod + Zeroable>(&self, own: &[T], counts: &[usize]) -> Vec<T> {
        if !self.several() {
            return own.to_vec();
        }
        let mut all = vec![T::zeroed(); counts.iter().sum()];
        let bytes: Vec<usize> = counts.iter().map(|n| n * size_of::<T>()).collect();
        self.all_gather(cast_slice(own), &bytes, cast_slice_mut(&mut all));
        all
    }

    /// Everyone's bytes, however many.
    pub fn all_gather_bytes(&self, own: &[u8]) -> Vec<Vec<u8>> {
        let counts = self.all_gather_values(&[own.len() as u64], &vec![1; self.count()]);
        let counts: Vec<usize> = counts.into_iter().map(|n| n as usize).collect();
        let all = self.all_gather_values(own, &counts);
        let mut at = 0;
        let part = |n: &usize| {
            at += n;
            all[at - n..at].to_vec()
        };
        counts.iter().map(part).collect()
    }

    /// The bytes of the process that leads.
    pub fn from_leader(&self, own: &[u8]) -> Vec<u8> {
        let own = if self.leads() { own } else { &[] };
        self.all_gather_bytes(own).swap_remove(0)
    }

    /// Everyone's values, one process after the other, at the process that leads; the others get nothing. Process p has `counts[p]`.
    pub fn to_leader<T: Pod + Zeroable>(&self, own: &[T], counts: &[usize]) -> Vec<T> {
        let (mut sent, nothing) = (vec![0; self.count()], vec![0; self.count()]);
        sent[0] = own.len();
        self.all_to_all_values(own, &sent, if self.leads() { counts } else { &nothing })
    }

    /// Calls `of` with the rows of one process after the other, and where they are among all `n`; this one has `own`. All rows are never in
    /// memory at once.
    pub fn in_turn(&self, own: &Matrix, n: usize, mut of: impl FnMut(Range<usize>, &Matrix)) {
        if !self.several() {
            return of(0..n, own);
        }
        for rank in 0..self.count() {
            let rows = share(n, rank, self.count());
            let mut counts = vec![0; self.count()];
            counts[rank] = rows.len() * own.dim;
            let told = if rank == self.rank() { own.values.as_slice() } else { &[] };
            let values = self.all_gather_values(told, &counts);
            of(rows.clone(), &Matrix { rows: rows.len(), dim: own.dim, values });
        }
    }

    /// Sends `sent[p]` of the values `to`, one part after the other, to process p; returns what came, `received[p]` from process p.
    pub fn all_to_all_values<T: Pod + Zeroable>(&self, to: &[T], sent: &[usize], received: &[usize]) -> Vec<T> {
        let mut from = vec![T::zeroed(); received.iter().sum()];
        let bytes = |counts: &[usize]| counts.iter().map(|n| n * size_of::<T>()).collect::<Vec<_>>();
        self.all_to_all(cast_slice(to), &bytes(sent), cast_slice_mut(&mut from), &bytes(received));
        from
    }

    /// Replaces every value by its sum over the processes, added up in their order.
    pub fn all_reduce(&self, values: &mut [f32]) {
        if !self.several() {
            return;
        }
        // Everyone adds up a part and tells the others: each value travels twice, however many processes there are.
        let parts = self.shares(values.len());
        let own = self.own(values.len());
        let from = self.all_to_all_values(values, &parts, &vec![own.len(); self.count()]);
        let mut sum = vec![0.0f32; own.len()];
        for part in from.chunks_exact(own.len().max(1)) {
            sum.iter_mut().zip(part).for_each(|(s, x)| *s += x);
        }
        let bytes: Vec<usize> = parts.iter().map(|n| n * size_of::<f32>()).collect();
        self.all_gather(cast_slice(&sum), &bytes, cast_slice_mut(values));
    }

    /// As `all_reduce`, for a few numbers: each of them travels once, to everyone.
    pub fn all_reduce_few(&self, values: &mut [f64]) {
        if !self.several() {
            return;
        }
        let all = self.all_gather_values(values, &vec![values.len(); self.count()]);
        values.fill(0.0);
        for part in all.chunks_exact(values.len().max(1)) {
            values.iter_mut().zip(part).for_each(|(s, x)| *s += x);
        }
    }

    /// Whether `here` holds in any process.
    pub fn any(&self, here: bool) -> bool {
        self.all_gather_values(&[u8::from(here)], &vec![1; self.count()]).contains(&1)
    }

    /// The results of `of` for `n` rows, each made by one process, in the order of the rows; `each` values for every row.
    pub fn divided<T: Pod + Zeroable>(&self, n: usize, each: usize, of: impl FnOnce(Range<usize>) -> Vec<T>) -> Vec<T> {
        let own = of(self.own(n));
        if !self.several() {
            return own;
        }
        let counts: Vec<usize> = self.shares(n).iter().map(|rows| rows * each).collect();
        self.all_gather_values(&own, &counts)
    }

    /// An error unless `text` is the same in all processes; `what` names it.
    pub fn agree(&self, what: &str, text: &[u8]) -> Result<()> {
        if !self.several() {
            return Ok(());
        }
        let own: [u8; 32] = Sha256::digest(text).into();
        let all = self.all_gather_values(&own, &vec![own.len(); self.count()]);
        match all.chunks_exact(own.len()).position(|other| other != &all[..own.len()]) {
            None => Ok(()),
            Some(other) => Err(Error::usage(
                format!("process {other} of {} has another {what} than process 0", self.count()),
                "start all processes with the same program, the same command and the same data",
            )),
        }
    }
}

pub mod parts;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::parts::together;

    #[test]
    fn rows_are_divided_without_gap_and_evenly() {
        for n in [0, 1, 2, 7, 128, 50_000] {
            for count in [1, 2, 3, 4, 64] {
                let parts: Vec<_> = (0..count).map(|rank| share(n, rank, count)).collect();
                assert_eq!((parts[0].start, parts[count - 1].end), (0, n));
                assert!(parts.windows(2).all(|two| two[0].end == two[1].start));
                let sizes: Vec<usize> = parts.iter().map(Range::len).collect();
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{n} {count} {sizes:?}");
            }
        }
    }

    #[test]
    fn the_holder_of_a_row_has_it_in_its_share() {
        for n in [1, 2, 3, 10, 101] {
            let shares = together(3, |peers| (0..n).map(|r| peers.holder(r, n)).collect::<Vec<_>>());
            let slow: Vec<usize> = (0..3).flat_map(|rank| share(n, rank, 3).map(move |_| rank)).collect();
            assert!(shares.iter().all(|holders| *holders == slow), "{n}");
        }
    }

    #[test]
    fn sums_are_those_of_one_process_and_the_same_everywhere() {
        for count in [1, 2, 3, 5] {
            for n in [0, 1, 4, 1001] {
                let value = |rank: usize, i: usize| ((rank * 31 + i * 7) % 17) as f32 * 0.37 - 2.0;
                let found = together(count, |peers| {
                    let mut values: Vec<f32> = (0..n).map(|i| value(peers.rank(), i)).collect();
                    let mut few: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
                    peers.all_reduce(&mut values);
                    peers.all_reduce_few(&mut few);
                    (values, few)
                });
                for (sum, few) in &found {
                    for i in 0..n {
                        let slow = (0..count).fold(0.0f32, |s, rank| s + value(rank, i));
                        let slow64 = (0..count).fold(0.0f64, |s, rank| s + f64::from(value(rank, i)));
                        assert_eq!((sum[i].to_bits(), few[i].to_bits()), (slow.to_bits(), slow64.to_bits()));
                    }
                }
            }
        }
    }

    #[test]
    fn texts_of_any_length_are_gathered_and_the_leaders_is_known() {
        let found = together(4, |peers| {
            let own = vec![peers.rank() as u8; peers.rank() * 3];
            (peers.all_gather_bytes(&own), peers.from_leader(&[peers.rank() as u8, 9]), peers.any(peers.rank() == 2))
        });
        for (all, leader, any) in found {
            assert_eq!(all, [vec![], vec![1; 3], vec![2; 6], vec![3; 9]]);
            assert_eq!((leader, any), (vec![0, 9], true));
        }
    }

    #[test]
    fn all_stop_when_one_is_asked_to() {
        let found = together(3, |peers| {
            let (wanted, agreed) = (Cancel::default(), Cancel::default());
            let team = Team::new(peers, wanted.clone());
            team.agree_to_stop(&agreed);
            let before = agreed.requested();
            if team.rank() == 1 {
                wanted.request();
            }
            team.agree_to_stop(&agreed);
            (before, agreed.requested())
        });
        assert_eq!(found, [(false, true); 3]);
    }

    #[test]
    fn divided_work_is_the_work_of_one() {
        let square = |rows: Range<usize>| rows.flat_map(|i| [i as u32, (i * i) as u32]).collect::<Vec<_>>();
        for n in [0, 2, 9] {
            let found = together(4, |peers| peers.divided(n, 2, square));
            assert!(found.iter().all(|all| *all == square(0..n)), "{n}");
        }
    }

    #[test]
    fn rows_are_told_in_turn_and_gathered_by_the_leader() {
        for (n, count) in [(7, 1), (7, 3), (2, 3), (0, 2)] {
            let all = Matrix { rows: n, dim: 2, values: (0..n * 2).map(|i| i as f32).collect() };
            let found = together(count, |peers| {
                let own = all.select_rows(&peers.own(n).collect::<Vec<_>>());
                let mut told = Vec::new();
                peers.in_turn(&own, n, |rows, block| {
                    assert_eq!((rows.start * 2, rows.len()), (told.len(), block.rows));
                    told.extend_from_slice(&block.values);
                });
                let counts: Vec<usize> = peers.shares(n).iter().map(|rows| rows * 2).collect();
                (told, peers.to_leader(&own.values, &counts))
            });
            for (rank, (told, gathered)) in found.iter().enumerate() {
                assert_eq!(told, &all.values);
                assert_eq!(gathered.as_slice(), if rank == 0 { all.values.as_slice() } else { &[] }, "{n} {count}");
            }
        }
    }

    #[test]
    fn rows_are_exchanged() {
        let found = together(3, |peers| {
            // Process r sends p + 1 times the number 10 r + p to process p.
            let to: Vec<u32> = (0..3).flat_map(|p| vec![(10 * peers.rank() + p) as u32; p + 1]).collect();
            peers.all_to_all_values(&to, &[1, 2, 3], &[peers.rank() + 1; 3])
        });
        assert_eq!(found, [vec![0, 10, 20], vec![1, 1, 11, 11, 21, 21], vec![2, 2, 2, 12, 12, 12, 22, 22, 22]]);
    }

    #[test]
    fn a_process_that_differs_is_named() {
        let found = together(3, |peers| peers.agree("command", &[u8::from(peers.rank() == 2)]));
        for agreed in found {
            let e = agreed.unwrap_err();
            assert!(e.message.contains("process 2 of 3") && e.message.contains("command"), "{e:?}");
        }
        assert!(together(3, |peers| peers.agree("command", b"x").is_ok()).into_iter().all(|ok| ok));
    }

    #[test]
    fn one_process_is_alone() {
        let peers: &dyn Peers = &Alone;
        let mut values = vec![1.5, -0.0];
        peers.all_reduce(&mut values);
        assert_eq!((values, peers.own(7), peers.any(false)), (vec![1.5, -0.0], 0..7, false));
        assert_eq!(peers.all_gather_bytes(b"ab"), [b"ab".to_vec()]);
        assert_eq!(peers.all_to_all_values(&[1u32, 2], &[2], &[2]), [1, 2]);
        assert!(peers.agree("data", b"").is_ok() && peers.leads() && !peers.several());
    }
}
