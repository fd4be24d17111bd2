//! Neighbours in a bank whose rows are divided among processes: the first of them has the first rows, and so on.

use super::{Neighbours, from_sort_key, nearest, sort_key, vote};
use crate::matrix::Matrix;
use crate::peers::Peers;

/// Queries of all processes that are searched for at once, so that what they find stays small, and the fewest of one process.
const QUERIES: usize = 1 << 16;
const LEAST_QUERIES: usize = 256;

/// A bank of which every process has some rows.
#[derive(Clone, Copy, Debug)]
pub struct DividedBank<'a> {
    /// The processes.
    pub peers: &'a dyn Peers,
    /// The rows of this one.
    pub held: &'a Matrix,
    /// How many rows every process has.
    pub counts: &'a [usize],
}

impl DividedBank<'_> {
    /// The first row of process `rank`.
    fn first(&self, rank: usize) -> usize {
        self.counts[..rank].iter().sum()
    }

    /// How many of the `most` nearest rows are at each process.
    fn each(&self, most: usize) -> Vec<usize> {
        self.counts.iter().map(|rows| *rows.min(&most)).collect()
    }

    /// The `most` rows of this process that are nearest to every query, or as many as there are, as keys that sort by nearness.
    fn keys(&self, queries: &Matrix, most: usize) -> Vec<u64> {
        let found = nearest(queries, self.held, most, false, &|_| ());
        let first = self.first(self.peers.rank()) as u32;
        found.similarity.iter().zip(&found.index).map(|(s, i)| sort_key(*s, i + first)).collect()
    }

    /// The `k` nearest of the keys of all processes, each of which gave `each` for every one of the queries; a query does not find itself,
    /// where the first of them is the row `own`.
    fn merged(&self, keys: &[u64], each: &[usize], queries: usize, k: usize, own: Option<usize>) -> Neighbours {
        let mut neighbours = Neighbours { k, index: Vec::new(), similarity: Vec::new() };
        for query in 0..queries {
            let (mut here, mut first) = (Vec::with_capacity(each.iter().sum()), 0);
            for each in each {
                here.extend_from_slice(&keys[first + query * each..first + (query + 1) * each]);
                first += each * queries;
            }
            here.sort_unstable_by(|a, b| b.cmp(a));
            let itself = |i: u32| own.is_some_and(|own| own + query == i as usize);
            for (similarity, index) in here.into_iter().map(from_sort_key).filter(|(_, i)| !itself(*i)).take(k) {
                neighbours.index.push(index);
                neighbours.similarity.push(similarity);
            }
        }
        neighbours
    }

    /// The `k` rows nearest to every query, or as many as there are: what [`nearest`] finds in the whole bank, to the bit. All processes ask
    /// the same queries, and all get the answer. Where the queries are rows of the bank, none of which finds itself, `own` is the row of
    /// the first.
    pub fn nearest(&self, queries: &Matrix, k: usize, own: Option<usize>) -> Neighbours {
        // A query may find itself among one more.
        let more = usize::from(own.is_some());
        let k = k.min(self.counts.iter().sum::<usize>().saturating_sub(more));
        if k == 0 {
            return Neighbours { k, index: Vec::new(), similarity: Vec::new() };
        }
        let each = self.each(k + more);
        let sent: Vec<usize> = each.iter().map(|keys| keys * queries.rows).collect();
        let keys = self.peers.all_gather_values(&self.keys(queries, k + more), &sent);
        self.merged(&keys, &each, queries.rows, k, own)
    }

    /// The class of every query by the [`vote`] of its `k` nearest rows. Every process has some of the queries, `asked` says how many each;
    /// without queries, the rows of the bank are asked, none of which finds itself. All processes get all classes.
    pub fn votes(
        &self,
        queries: Option<(&Matrix, &[usize])>,
        labels: &[u32],
        classes: usize,
        k: usize,
        tau: f32,
    ) -> Vec<u32> {
        let most = (QUERIES / self.peers.count()).max(LEAST_QUERIES);
        self.votes_in_blocks(queries, labels, classes, k, tau, most)
    }

    /// As [`votes`](Self::votes), with up to `most` queries at once.
    pub(super) fn votes_in_blocks(
        &self,
        queries: Option<(&Matrix, &[usize])>,
        labels: &[u32],
        classes: usize,
        k: usize,
        tau: f32,
        most: usize,
    ) -> Vec<u32> {
        let (peers, dim) = (self.peers, self.held.dim);
        let (own, asked) = queries.unwrap_or((self.held, self.counts));
        let more = usize::from(queries.is_none());
        let k = k.min(self.counts.iter().sum::<usize>().saturating_sub(more));
        if k == 0 {
            return Vec::new();
        }
        let each = self.each(k + more);
        let mut classes_here = Vec::with_capacity(own.rows);
        for (rank, &rows) in asked.iter().enumerate() {
            let here = rank == peers.rank();
            for start in (0..rows).step_by(most) {
                let count = most.min(rows - start);
                let mut counts = vec![0; peers.count()];
                counts[rank] = count * dim;
                let told = if here { &own.values[start * dim..(start + count) * dim] } else { &[] };
                let block = Matrix { rows: count, dim, values: peers.all_gather_values(told, &counts) };
                let keys = self.keys(&block, k + more);
                let mut sent = vec![0; peers.count()];
                sent[rank] = keys.len();
                let received = each.iter().map(|keys| if here { keys * count } else { 0 });
                let keys = peers.all_to_all_values(&keys, &sent, &received.collect::<Vec<_>>());
                if here {
                    let first = (more > 0).then(|| self.first(rank) + start);
                    let near = self.merged(&keys, &each, count, k, first);
                    classes_here.extend(vote(&near, labels, classes, k, tau));
                }
            }
        }
        peers.all_gather_values(&classes_here, asked)
    }
}
