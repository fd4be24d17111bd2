//! Cluster purification: which members of a cluster may serve as positives of one another.
//!
//! CP_r filters unreliable samples: per cluster, the `floor((1 - gamma) n)` members nearest to its centre are *kept*, the others
//! *filtered*.
//! CP_s corrects that by a vote of past clusterings: V(i) (Eq. 2) counts in how many of the last n clusterings sample i shared the cluster
//! of the anchor, the member nearest to the centre. Kept members with a low vote are *dropped*, filtered members with
//! a high vote are *pulled back*. *Kept* as a share of all images counts those that have a positive set afterwards.

use crate::matrix::Matrix;
use rayon::prelude::*;
use std::collections::VecDeque;

/// The result of purification for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Status {
    /// Near its cluster's centre: a positive of the other members.
    Kept = 0,
    /// Too far from the centre (CP_r): learns as an instance.
    Filtered = 1,
    /// Near the centre, but in few past clusterings together with the anchor (CP_s): learns as an instance.
    Dropped = 2,
    /// Far from the centre, but in nearly all past clusterings together with the anchor (CP_s): a positive again.
    PulledBack = 3,
    /// Without other positives: alone in its set, or not clustered.
    Instance = 4,
}

impl Status {
    /// All of them, in the order of their numbers.
    pub const ALL: [Status; 5] =
        [Status::Kept, Status::Filtered, Status::Dropped, Status::PulledBack, Status::Instance];

    /// Whether a sample of this status counts as a member of its cluster: kept or pulled back.
    pub fn belongs(self) -> bool {
        matches!(self, Status::Kept | Status::PulledBack)
    }

    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Status::Kept => "kept",
            Status::Filtered => "filtered",
            Status::Dropped => "dropped",
            Status::PulledBack => "pulled_back",
            Status::Instance => "instance",
        }
    }
}

/// The cluster of every sample and the result of purification.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grouping {
    /// Cluster of every sample.
    pub cluster: Vec<u32>,
    /// Status of every sample.
    pub status: Vec<Status>,
    /// Distance to the mean of its cluster.
    pub distance: Vec<f32>,
    /// V(i); NaN where it was not counted.
    pub vote: Vec<f32>,
}

/// The positive set of every sample, which includes the sample itself; a sample without a set is its own instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positives {
    /// Set of every sample, or `NONE`.
    set_of: Vec<u32>,
    /// Index in `members` at which each set begins, and a last entry for the end.
    starts: Vec<u32>,
    /// The sets, one after the other, each in growing order.
    members: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Positives {
    /// `samples` instances.
    pub fn instances(samples: usize) -> Self {
        Positives { set_of: vec![NONE; samples], starts: vec![0], members: Vec::new() }
    }

    /// From disjoint sets of at least two samples.
    pub fn from_sets(samples: usize, sets: impl IntoIterator<Item = Vec<u32>>) -> Self {
        let mut positives = Self::instances(samples);
        for mut set in sets {
            assert!(set.len() >= 2, "a set of one is an instance");
            set.sort_unstable();
            for &i in &set {
                positives.set_of[i as usize] = positives.starts.len() as u32 - 1;
            }
            positives.members.extend(set);
            positives.starts.push(positives.members.len() as u32);
        }
        positives
    }

    /// From the set of each sample, which includes the sample itself, or `None`; sets may overlap.
    pub fn from_own(sets: Vec<Option<Vec<u32>>>) -> Self {
        let mut positives = Self::instances(sets.len());
        for (i, set) in sets.into_iter().enumerate() {
            if let Some(mut set) = set {
                set.sort_unstable();
                positives.set_of[i] = positives.starts.len() as u32 - 1;
                positives.members.extend(set);
                positives.starts.push(positives.members.len() as u32);
            }
        }
        positives
    }

    /// The positives of sample `i`.
    pub fn of(&self, i: usize) -> Option<&[u32]> {
        let set = self.set_of[i];
        (set != NONE).then(|| {
            let (from, to) = (self.starts[set as usize], self.starts[set as usize + 1]);
            &self.members[from as usize..to as usize]
        })
    }

    /// Samples in all.
    pub fn samples(&self) -> usize {
        self.set_of.len()
    }

    /// How many samples have a set.
    pub fn covered(&self) -> usize {
        self.set_of.iter().filter(|set| **set != NONE).count()
    }

    /// The three arrays (set of every sample, starts, members), for checkpoints.
    pub fn parts(&self) -> [&[u32]; 3] {
        [&self.set_of, &self.starts, &self.members]
    }

    /// The reverse of [`parts`](Self::parts); `None` when they do not fit together.
    pub fn from_parts([set_of, starts, members]: [Vec<u32>; 3]) -> Option<Self> {
        let sets = starts.len().checked_sub(1)?;
        let fits = starts[0] == 0
            && starts.windows(2).all(|w| w[0] <= w[1])
            && starts[sets] as usize == members.len()
            && set_of.iter().all(|s| *s == NONE || (*s as usize) < sets)
            && members.iter().all(|m| (*m as usize) < set_of.len());
        fits.then_some(Positives { set_of, starts, members })
    }
}

/// The last n raw clusterings, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    labels: VecDeque<Vec<u32>>,
}

impl History {
    /// From clusterings, newest first.
    pub fn from_newest(labels: impl IntoIterator<Item = Vec<u32>>) -> Self {
        History { labels: labels.into_iter().collect() }
    }

    /// Adds a clustering and removes those older than the last `keep`.
    pub fn push(&mut self, labels: Vec<u32>, keep: usize) {
        self.labels.push_front(labels);
        self.labels.truncate(keep);
    }

    /// How many are stored.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether none is stored.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The clusterings, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Vec<u32>> {
        self.labels.iter()
    }

    /// V(i) (Eq. 2) with anchor `a`: `1 + sum_h alpha^h (+1 if C_{t-h}(i) = C_{t-h}(a) else -1)`.
    pub fn vote(&self, i: usize, anchor: usize, alpha: f64) -> f64 {
        let mut weight = 1.0;
        let mut vote = 1.0; // the k = 0 term: both are in the same cluster now
        for labels in &self.labels {
            weight *= alpha;
            vote += if labels[i] == labels[anchor] { weight } else { -weight };
        }
        vote
    }
}

/// The settings of CP_s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Votes {
    /// Factor on the weight of a vote for every epoch of its age.
    pub alpha: f64,
    /// Kept members below this are dropped.
    pub lower: f64,
    /// Filtered members from this on are pulled back.
    pub upper: f64,
}

/// The rules of purification in one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Share that CP_r filters out; `None` keeps clusters whole.
    pub gamma: Option<f64>,
    /// Clusters of 2 up to this many members are kept whole; 0 for none.
    pub whole_up_to: usize,
    /// CP_s, once it acts.
    pub votes: Option<Votes>,
    /// As in the authors' released code: from the first cluster with fewer than two members on, all samples are instances.
    pub stop_at_first_single: bool,
}

impl Rules {
    /// Clusters stay whole: no CP_r, no CP_s.
    pub const WHOLE: Rules = Rules { gamma: None, whole_up_to: 0, votes: None, stop_at_first_single: false };
}

/// The result of purification for all samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Purified {
    /// Sets to learn from.
    pub positives: Positives,
    /// Status of every sample.
    pub status: Vec<Status>,
    /// Euclidean distance to the mean of its cluster.
    pub distance: Vec<f32>,
    /// V(i), where it was counted; NaN elsewhere.
    pub vote: Vec<f32>,
}

/// One cluster after purification: (sample, status, distance, vote) of every member.
type Verdicts = Vec<(u32, Status, f32, f32)>;

/// Purifies the clusters given by `assignment` (a cluster in `0..clusters` for every row of `features`).
pub fn purify(features: &Matrix, assignment: &[u32], clusters: usize, rules: &Rules, history: &History) -> Purified {
    let samples = assignment.len();
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); clusters];
    for (i, &cluster) in assignment.iter().enumerate() {
        members[cluster as usize].push(i as u32);
    }
    let assigned = match rules.stop_at_first_single {
        true => members.iter().position(|m| m.len() < 2).unwrap_or(clusters),
        false => clusters,
    };
    let verdicts: Vec<Verdicts> = members
        .par_iter()
        .enumerate()
        .map(|(c, m)| purify_cluster(features, m, rules, history, c < assigned))
        .collect();

    let mut purified = Purified {
        positives: Positives::from_sets(samples, verdicts.iter().filter_map(positive_set)),
        status: vec![Status::Instance; samples],
        distance: vec![0.0; samples],
        vote: vec![f32::NAN; samples],
    };
    for &(i, status, distance, vote) in verdicts.iter().flatten() {
        let i = i as usize;
        (purified.status[i], purified.distance[i], purified.vote[i]) = (status, distance, vote);
    }
    purified
}

fn positive_set(verdicts: &Verdicts) -> Option<Vec<u32>> {
    let set: Vec<u32> = verdicts.iter().filter(|v| v.1.belongs()).map(|v| v.0).collect();
    (set.len() >= 2).then_some(set)
}

/// The members that CP_r keeps of `n`: `floor((1 - gamma) n)`, with a margin for rounding such as `(1 - 0.9) * 10 = 0.99...`.
fn reliable(n: usize, gamma: f64) -> usize {
    (((1.0 - gamma) * n as f64 + 1e-6).floor() as usize).min(n)
}

fn purify_cluster(features: &Matrix, members: &[u32], rules: &Rules, history: &History, assigned: bool) -> Verdicts {
    let n = members.len();
    let mut near = by_distance(features, members);
    if n < 2 || !assigned {
        return near.drain(..).map(|(d, i)| (i, Status::Instance, d, f32::NAN)).collect();
    }
    let kept = match rules.gamma {
        Some(gamma) if n > rules.whole_up_to => reliable(n, gamma),
        _ => n,
    };
    let mut verdicts: Verdicts = Vec::with_capacity(n);
    for (rank, &(distance, i)) in near.iter().enumerate() {
        let by_distance = if rank < kept { Status::Kept } else { Status::Filtered };
        let (status, vote) = match rules.votes {
            // The anchor is at rank 0 and gets no vote.
            Some(v) if rank > 0 => {
                let vote = history.vote(i as usize, near[0].1 as usize, v.alpha);
                let status = match by_distance {
                    Status::Kept if vote < v.lower => Status::Dropped,
                    Status::Filtered if vote >= v.upper => Status::PulledBack,
                    other => other,
                };
                (status, vote as f32)
            }
            _ => (by_distance, f32::NAN),
        };
        verdicts.push((i, status, distance, vote));
    }
    // The anchor is kept if any member is.
    if verdicts.iter().any(|v| v.1 == Status::PulledBack) {
        verdicts[0].1 = Status::Kept;
    }
    if positive_set(&verdicts).is_none() {
        for v in verdicts.iter_mut().filter(|v| v.1.belongs()) {
            v.1 = Status::Instance;
        }
    }
    verdicts
}

/// Members with their distance to the arithmetic mean of all, nearest first, ties by index.
fn by_distance(features: &Matrix, members: &[u32]) -> Vec<(f32, u32)> {
    let mut centre = vec![0.0f64; features.dim];
    for &i in members {
        for (c, x) in centre.iter_mut().zip(features.row(i as usize)) {
            *c += f64::from(*x);
        }
    }
    centre.iter_mut().for_each(|c| *c /= members.len().max(1) as f64);
    let distance = |i: u32| {
        let row = features.row(i as usize);
        row.iter().zip(&centre).map(|(x, c)| (f64::from(*x) - c).powi(2)).sum::<f64>().sqrt() as f32
    };
    let mut near: Vec<(f32, u32)> = members.iter().map(|&i| (distance(i), i)).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    near
}

#[cfg(test)]
mod tests;
