//! How well purification works, judged by labels: which share of the removed samples was rightly removed, and so on.

use super::{majority, share};
use crate::purify::Status;
use serde::{Deserialize, Serialize};

/// Purification of the clusters of one epoch, judged by labels.
///
/// A member is inconsistent when its label differs from the majority of its cluster before purification (of equal majorities the
/// lowest class counts). Clusters of one member are not counted: they are always pure. A member of a larger cluster that
/// became an instance because no other member was kept counts for the purity before but not after; it counts neither as removed
/// nor as left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FilterScore {
    /// Clusters of two members or more.
    pub clusters: usize,
    /// Their members.
    pub members: u64,
    /// Samples alone in their clusters.
    pub alone: u64,
    /// Members that ended as instances.
    pub instances: u64,
    /// Share of members that are of their cluster's majority.
    pub purity_before: Option<f64>,
    /// The same of what is left (kept or pulled back), by the majority of what is left.
    pub purity_after: Option<f64>,
    /// Members left.
    pub left: u64,
    /// Inconsistent members that were removed or left.
    pub inconsistent: u64,
    /// Members that were removed: filtered or dropped.
    pub removed: u64,
    /// Inconsistent ones among them.
    pub removed_rightly: u64,
    /// Consistent ones among them: lost.
    pub lost: u64,
    /// Members that were pulled back.
    pub pulled_back: u64,
    /// Consistent ones among them.
    pub pulled_back_rightly: u64,
    /// `removed_rightly / removed`.
    pub precision: Option<f64>,
    /// `removed_rightly / inconsistent`.
    pub recall: Option<f64>,
}

impl FilterScore {
    /// Judges clusters by the `class_of` their samples, below `classes`.
    pub fn new(cluster_of: &[u32], status: &[Status], class_of: &[u32], classes: usize) -> Self {
        assert_eq!([status.len(), class_of.len()], [cluster_of.len(); 2], "one of each per sample");
        let mut order: Vec<usize> = (0..cluster_of.len()).collect();
        order.sort_by_key(|i| cluster_of[*i]);
        let mut score = FilterScore::default();
        let (mut of_majority, mut of_majority_left) = (0, 0);
        for members in order.chunk_by(|a, b| cluster_of[*a] == cluster_of[*b]) {
            if members.len() < 2 {
                score.alone += 1;
                continue;
            }
            let count = |members: &mut dyn Iterator<Item = &usize>| {
                let mut counts = vec![0; classes];
                members.for_each(|i| counts[class_of[*i] as usize] += 1);
                majority(&counts).unwrap_or_default()
            };
            let (class, size) = count(&mut members.iter());
            let left = |i: &&usize| matches!(status[**i], Status::Kept | Status::PulledBack);
            score.clusters += 1;
            score.members += members.len() as u64;
            of_majority += size;
            of_majority_left += count(&mut members.iter().filter(left)).1;
            members.iter().for_each(|i| score.add(status[*i], class_of[*i] == class));
        }
        score.purity_before = share(of_majority, score.members);
        score.purity_after = share(of_majority_left, score.left);
        score.precision = share(score.removed_rightly, score.removed);
        score.recall = share(score.removed_rightly, score.inconsistent);
        score
    }

    fn add(&mut self, status: Status, consistent: bool) {
        let (right, wrong) = (u64::from(consistent), u64::from(!consistent));
        match status {
            Status::Instance => {
                self.instances += 1;
                return;
            }
            Status::Filtered | Status::Dropped => {
                self.removed += 1;
                self.removed_rightly += wrong;
                self.lost += right;
            }
            Status::Kept => self.left += 1,
            Status::PulledBack => {
                self.left += 1;
                self.pulled_back += 1;
                self.pulled_back_rightly += right;
            }
        }
        self.inconsistent += wrong;
    }
}
