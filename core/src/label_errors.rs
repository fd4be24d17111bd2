//! Labels that are probably wrong: a vote within the clusters and a ridge classifier suggest another one.
//!
//! In every clustering, the purified members of a row's cluster, the row itself left out, have shares of labels; the [`ClusterVote`]
//! is their mean over all clusterings. It is taken twice: the second time every member counts by the share its own label had,
//! so that labels which are probably wrong say less about those of others. The [`RidgeProbe`] adds what clusters do
//! not show: which directions of the features separate the labels. `p(label | row)` is the mean of both. A row is suspected when another
//! label has the greatest share; the smaller the share of its own label, the stronger the suspicion.

mod ridge;

pub use ridge::RidgeProbe;

use crate::matrix::Matrix;
use crate::purify::{History, Purified, Rules, purify};
use rayon::prelude::*;

/// Weight of a prior, the shares of the labels among all rows, so that a cluster without other members suggests no rare label.
const PRIOR: f64 = 0.5;

/// Rows of a work unit.
const BLOCK: usize = 256;

/// The result for the label of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// The label with the greatest share; the row's own where no other has more.
    pub suggested: u32,
    /// `1 - p(own label | row)`.
    pub doubt: f32,
}

/// Clusterings and the members that purification kept in them.
pub struct ClusterVote<'a> {
    clusterings: Vec<(&'a [u32], Vec<bool>)>,
}

impl<'a> ClusterVote<'a> {
    /// From the purified clusters `assignment` and the `past` clusterings, each of which is purified by `rules` without votes.
    pub fn new(
        features: &Matrix,
        assignment: &'a [u32],
        purified: &Purified,
        past: &'a [Vec<u32>],
        rules: &Rules,
    ) -> Self {
        let trusts = |p: &Purified| p.status.iter().map(|s| s.belongs()).collect::<Vec<bool>>();
        let rules = Rules { votes: None, ..*rules };
        let mut clusterings = vec![(assignment, trusts(purified))];
        for labels in past {
            let clusters = labels.iter().max().map_or(0, |c| *c as usize + 1);
            let purified = purify(features, labels, clusters, &rules, &History::default());
            clusterings.push((labels, trusts(&purified)));
        }
        ClusterVote { clusterings }
    }

    /// The verdict on the label of every row, from the clusters and, if given, the `probe`; `None` for rows without a label.
    pub fn verdicts(&self, of: &[Option<u32>], classes: usize, probe: Option<&RidgeProbe>) -> Vec<Option<Verdict>> {
        let equal = vec![1.0; of.len()];
        let first = self.shares(of, classes, &equal, None);
        let weights: Vec<f64> = first.iter().map(|found| found.map_or(0.0, |(_, own)| own)).collect();
        let verdict = |found: Option<(u32, f64)>| {
            found.map(|(suggested, own)| Verdict { suggested, doubt: (1.0 - own).clamp(0.0, 1.0) as f32 })
        };
        self.shares(of, classes, &weights, probe).into_iter().map(verdict).collect()
    }

    /// For every row with a label, the label with the greatest share and the share of its own, when members count by their
    /// `weights`; the mean of the clusters' and the `probe`'s shares, if there is one.
    fn shares(
        &self,
        of: &[Option<u32>],
        classes: usize,
        weights: &[f64],
        probe: Option<&RidgeProbe>,
    ) -> Vec<Option<(u32, f64)>> {
        let mut prior = vec![0.0; classes];
        of.iter().flatten().for_each(|class| prior[*class as usize] += 1.0);
        let all: f64 = prior.iter().sum();
        prior.iter_mut().for_each(|p| *p *= PRIOR / all.max(1.0));
        // The weight of every label among the kept members of each cluster.
        let sums: Vec<Vec<f64>> = (self.clusterings.par_iter())
            .map(|(labels, trusts)| {
                let clusters = labels.iter().max().map_or(0, |c| *c as usize + 1);
                let mut sums = vec![0.0; clusters * classes];
                for (row, &cluster) in labels.iter().enumerate() {
                    if let (true, Some(class)) = (trusts[row], of[row]) {
                        sums[cluster as usize * classes + class as usize] += weights[row];
                    }
                }
                sums
            })
            .collect();
        let one = |row: usize, read: Option<&[f32]>| {
            let own = of[row]? as usize;
            let mut shares = vec![0.0; classes];
            for ((labels, trusts), sums) in self.clusterings.iter().zip(&sums) {
                let vote = &sums[labels[row] as usize * classes..][..classes];
                let itself = if trusts[row] { weights[row] } else { 0.0 };
                // Rounding can make it slightly negative.
                let members = (vote.iter().sum::<f64>() - itself).max(0.0);
                for (class, share) in shares.iter_mut().enumerate() {
                    let others = (vote[class] - if class == own { itself } else { 0.0 }).max(0.0);
                    *share += (others + prior[class]) / (members + PRIOR);
                }
            }
            shares.iter_mut().for_each(|share| *share /= self.clusterings.len() as f64);
            if let Some(read) = read {
                shares.iter_mut().zip(read).for_each(|(share, read)| *share = (*share + f64::from(*read)) / 2.0);
            }
            let greatest = (0..classes).fold(own, |best, c| if shares[c] > shares[best] { c } else { best });
            Some((greatest as u32, shares[own]))
        };
        let block = |start: usize| {
            let rows = start..(start + BLOCK).min(of.len());
            let read = probe.map(|probe| probe.shares(rows.clone(), of));
            let said = |row: usize| read.as_ref().map(|read| &read[(row - start) * classes..][..classes]);
            rows.map(|row| one(row, said(row))).collect::<Vec<_>>()
        };
        (0..of.len()).into_par_iter().step_by(BLOCK).flat_map_iter(block).collect()
    }
}

/// The rows for which another label is suggested, the most doubtful first; ties by row.
pub fn ranked(of: &[Option<u32>], verdicts: &[Option<Verdict>]) -> Vec<usize> {
    let suspected = |row: &usize| verdicts[*row].is_some_and(|v| Some(v.suggested) != of[*row]);
    let mut rows: Vec<usize> = (0..of.len()).filter(suspected).collect();
    let doubt = |row: &usize| verdicts[*row].map_or(0.0, |v| v.doubt);
    rows.sort_by(|a, b| doubt(b).total_cmp(&doubt(a)).then(a.cmp(b)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::blobs;

    const RULES: Rules = Rules::WHOLE;

    fn vote<'a>(features: &Matrix, now: &'a [u32], past: &'a [Vec<u32>]) -> ClusterVote<'a> {
        let purified = purify(features, now, 2, &RULES, &History::default());
        ClusterVote::new(features, now, &purified, past, &RULES)
    }

    /// One cluster of four: labels a, a, a, b; half a pseudo-member, 3/4 a and 1/4 b. First, rows 0 to 2 have
    /// p(a) = (2 + 3/8) / 3.5 = 19/28, row 3 has p(b) = (1/8) / 3.5 = 1/28. With these weights, row 3 has
    /// p(b) = (1/8) / (57/28 + 1/2) = 7/142, row 0 has p(a) = (38/28 + 3/8) / (39/28 + 1/2) = 97/106.
    #[test]
    fn verdicts_check_values() {
        let features = Matrix::new(1, vec![0.0, 1.0, 2.0, 3.0]);
        let of = [Some(0), Some(0), Some(0), Some(1)];
        let now = [0; 4];
        let close = |v: Option<Verdict>, suggested: u32, doubt: f32| {
            let v = v.unwrap();
            assert!(v.suggested == suggested && (v.doubt - doubt).abs() < 1e-6, "{v:?} is not {doubt}");
        };
        let found = vote(&features, &now, &[]).verdicts(&of, 2, None);
        close(found[3], 0, 1.0 - 7.0 / 142.0);
        close(found[0], 0, 1.0 - 97.0 / 106.0);
        assert_eq!(ranked(&of, &found), [3]);
        // Beside a clustering in which row 3 is alone: first p(a) = (19/28 + 19/20) / 2 = 57/70, then
        // p(b) = ((1/8) / (171/70 + 1/2) + 1/4) / 2.
        let past = [vec![0, 0, 0, 1]];
        let found = vote(&features, &now, &past).verdicts(&of, 2, None);
        close(found[3], 0, 1.0 - (0.125 / (171.0 / 70.0 + 0.5) + 0.25) / 2.0);
    }

    #[test]
    fn flipped_labels_are_found_and_rows_without_one_are_skipped() {
        let features = blobs(2, 30, 6, 0.05, 4);
        let now: Vec<u32> = (0..60).map(|i| i % 2).collect();
        let mut of: Vec<Option<u32>> = now.iter().map(|c| Some(*c)).collect();
        for row in [4, 11, 33] {
            of[row] = of[row].map(|c| 1 - c);
        }
        of[20] = None;
        let found = vote(&features, &now, &[]).verdicts(&of, 2, None);
        assert_eq!(found[20], None);
        let mut suspects = ranked(&of, &found);
        suspects.sort_unstable();
        assert_eq!(suspects, [4, 11, 33]);
        // With a probe beside it the same are found, and the doubt is the mean of both.
        let probe = RidgeProbe::fit(&features, &of, 2).unwrap();
        let both = vote(&features, &now, &[]).verdicts(&of, 2, Some(&probe));
        let mut suspects = ranked(&of, &both);
        suspects.sort_unstable();
        assert_eq!(suspects, [4, 11, 33]);
        let read = 1.0 - probe.shares(11..12, &of)[of[11].unwrap() as usize];
        let mean = (found[11].unwrap().doubt + read) / 2.0;
        assert!((both[11].unwrap().doubt - mean).abs() < 1e-6);
        assert!(vote(&features, &now, &[]).verdicts(&[None; 60], 2, None).iter().all(Option::is_none));
    }
}
