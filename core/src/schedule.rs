//! The schedule of a run, by epoch: the number of clusters (Eq. 1), the learning rate, the warm-up and the votes.
//!
//! Symbols: T epochs per round, t the epoch within the round, N samples, N_c the floor of the number of clusters K_t,
//! n the clusterings that vote. Every milestone is `round(share * T)`, so a shorter run is the same recipe shortened.

use crate::error::{Error, Result};

/// Share of the greatest vote from which a filtered sample is pulled back: 3.0 of 4.859263 at n = 15, alpha = 0.8.
pub const PULL_BACK: f64 = 0.617378;

/// How the learning rate falls within a round.
#[derive(Clone, Debug, PartialEq)]
pub enum LrDecay {
    /// Pairs `[share of the epochs, factor on the first rate from there on]`.
    Steps(Vec<[f64; 2]>),
    /// Half a cosine down to 0.
    Cosine,
    /// A straight line up from 0 over this share of the steps, then half a cosine down to 0; by step, not by epoch.
    Warmup(f64),
}

/// Settings of a schedule. Shares are of the epochs of a round; errors name the settings as `section.key`.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleSettings {
    /// Rounds of T epochs each.
    pub rounds: u32,
    /// Epochs per round, T.
    pub epochs: u32,
    /// Learning rate at the start of a round.
    pub lr: f64,
    /// How it falls.
    pub lr_decay: LrDecay,
    /// The floor N_c; `None` is one cluster for `samples_per_cluster` samples, at least 2.
    pub floor: Option<usize>,
    /// Samples per cluster at the floor. Paper: 50.
    pub samples_per_cluster: usize,
    /// Whether K_t falls from N to the floor (Eq. 1); otherwise it is the floor from the start.
    pub progressive: bool,
    /// While K_t is at least this share of N, nothing is clustered: every sample is its own instance.
    pub instances_from: f64,
    /// How many past clusterings vote, n; `None` is 15 of 200 epochs, at least 3.
    pub history: Option<usize>,
    /// Factor on the weight of a vote for every epoch of its age (Eq. 2).
    pub alpha: f64,
    /// Kept members with a vote below this are dropped; `None` is 0 at n = 15 and alpha = 0.8, and asks for the same agreement of
    /// any other history.
    pub lower: Option<f64>,
    /// Filtered members with at least this vote are pulled back; `None` is [`PULL_BACK`] of the greatest vote.
    pub upper: Option<f64>,
    /// Whether CP_s votes at all.
    pub votes: bool,
    /// Share from which CP_r filters in round 0.
    pub reliable_from: f64,
    /// Share of round 0 from which clusterings are stored, and CP_s acts once n of them are.
    pub stable_from: f64,
    /// Share of later rounds from which CP_s acts.
    pub stable_from_later: f64,
    /// Clusters of up to this many members are kept whole in round 0 before `small_until`.
    pub small: usize,
    /// Share before which small clusters are kept whole.
    pub small_until: f64,
    /// As in the authors' released code: before `stable_from`, all samples from the first cluster with fewer than two members on
    /// are instances.
    pub stop_at_first_single: bool,
    /// Rounds with a warm-up; 0 for none.
    pub warmup_rounds: u32,
    /// Share at which the warm-up ends.
    pub warmup_until: f64,
    /// Weight of the warm-up loss at the start of a round.
    pub warmup_start: f64,
    /// Weight at the end of the warm-up.
    pub warmup_end: f64,
    /// Epochs between probes; `None` is [`probe_interval`].
    pub probe_every: Option<u32>,
    /// Snapshots of the weights over all rounds.
    pub snapshots: u32,
}

/// The schedule of a run: its settings, checked and fitted to the number of samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    settings: ScheduleSettings,
    samples: usize,
    /// The floor N_c.
    pub floor: usize,
    /// How many past clusterings vote, n.
    pub history: usize,
    /// The vote below which a kept sample is dropped.
    pub lower: f64,
    /// The vote from which a filtered sample is pulled back.
    pub upper: f64,
}

impl Schedule {
    /// Fits `settings` to `samples` training images; an error if they cannot work.
    pub fn new(settings: ScheduleSettings, samples: usize) -> Result<Schedule> {
        let floor = settings.floor.unwrap_or((samples / settings.samples_per_cluster.max(1)).max(2));
        if floor > samples || floor == 0 {
            return Err(Error::usage(
                format!("clusters.floor is {floor}, but there are {samples} training images"),
                format!("give `clusters.floor` a number from 1 to {samples}, or auto"),
            ));
        }
        // Paper: n = 15 for T = 200; it shortens with the run.
        let fitting = (15.0 * f64::from(settings.epochs) / 200.0).round() as usize;
        let history = settings.history.unwrap_or(fitting.max(3));
        let greatest = greatest_vote(settings.alpha, history);
        let upper = settings.upper.unwrap_or(PULL_BACK * greatest);
        let lower = settings.lower.unwrap_or(usual_lower(greatest));
        let schedule = Schedule { settings, samples, floor, history, lower, upper };
        if schedule.settings.votes {
            schedule.check_votes()?;
        }
        Ok(schedule)
    }

    /// An error for thresholds that no vote can reach; it gives the bound on alpha.
    fn check_votes(&self) -> Result<()> {
        let (n, alpha, lower) = (self.history, self.settings.alpha, self.lower);
        if n == 0 {
            return Err(Error::usage(
                "purify.history is 0",
                "let at least one clustering vote, or set purify.votes=false",
            ));
        }
        let greatest = |a: f64| greatest_vote(a, n);
        if greatest(alpha) < self.upper {
            let hint = match bound(|a| greatest(a) >= self.upper) {
                Some(a) => format!("with n = {n} and purify.upper = {}, purify.alpha must be above {a:.3}", self.upper),
                None => format!("with n = {n} no alpha reaches it: lower purify.upper"),
            };
            let message =
                format!("no vote can reach purify.upper = {}: the greatest is {:.6}", self.upper, greatest(alpha));
            return Err(Error::usage(message, hint));
        }
        let least = |a: f64| 2.0 - greatest_vote(a, n);
        if least(alpha) >= lower {
            let hint = match bound(|a| least(a) < lower) {
                Some(a) => format!("with n = {n} and purify.lower = {lower}, purify.alpha must be above {a:.3}"),
                None => format!("with n = {n} no alpha falls below it: raise purify.lower"),
            };
            let message = format!("no vote can fall below purify.lower = {lower}: the least is {:.6}", least(alpha));
            return Err(Error::usage(message, hint));
        }
        Ok(())
    }

    /// Epochs per round, T.
    pub fn epochs(&self) -> u32 {
        self.settings.epochs
    }

    /// Epochs of all rounds.
    pub fn total_epochs(&self) -> u32 {
        self.settings.rounds * self.settings.epochs
    }

    /// `round(share * T)`, halves away from zero.
    fn milestone(&self, share: f64) -> u32 {
        (share * f64::from(self.epochs())).round() as u32
    }

    /// Whether this share of the epochs is done.
    pub fn reached(&self, share: f64, epoch: u32) -> bool {
        epoch >= self.milestone(share)
    }

    /// K_t (Eq. 1): from N down to N_c along a straight line in the logarithm, in round 0; N_c in later rounds.
    pub fn clusters(&self, round: u32, epoch: u32) -> usize {
        if round > 0 || !self.settings.progressive {
            return self.floor;
        }
        eq1(self.samples, self.floor, epoch, self.epochs())
    }

    /// Whether K_t is so near to N that every sample is its own instance.
    pub fn all_instances(&self, clusters: usize) -> bool {
        clusters as f64 >= self.settings.instances_from * self.samples as f64
    }

    /// The learning rate at the start of an epoch; it restarts in every round.
    pub fn lr(&self, epoch: u32) -> f32 {
        self.lr_within(epoch, 0.0)
    }

    /// The learning rate when this share of the epoch is done.
    pub fn lr_within(&self, epoch: u32, share: f64) -> f32 {
        let s = &self.settings;
        match &s.lr_decay {
            LrDecay::Warmup(rise) => {
                let done = (f64::from(epoch) + share) / f64::from(self.epochs());
                let factor = match done < *rise {
                    true => done / rise,
                    false => 0.5 * (1.0 + (std::f64::consts::PI * (done - rise) / (1.0 - rise)).cos()),
                };
                (s.lr * factor) as f32
            }
            LrDecay::Cosine => {
                let done = f64::from(epoch) / f64::from(self.epochs());
                (s.lr * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())) as f32
            }
            LrDecay::Steps(steps) => {
                let passed = steps.iter().rev().find(|[share, _]| epoch >= self.milestone(*share));
                passed.map_or(s.lr, |[_, factor]| s.lr * factor) as f32
            }
        }
    }

    /// Weight w of the warm-up loss; `None` outside the warm-up.
    pub fn warmup_weight(&self, round: u32, epoch: u32) -> Option<f64> {
        let s = &self.settings;
        let end = self.milestone(s.warmup_until);
        if round >= s.warmup_rounds || epoch >= end {
            return None;
        }
        Some(s.warmup_start - (s.warmup_start - s.warmup_end) * f64::from(epoch) / f64::from(end))
    }

    /// The epoch at which the warm-up of a round ends, where there is one.
    pub fn warmup_end(&self) -> Option<u32> {
        let s = &self.settings;
        (s.warmup_rounds > 0).then(|| self.milestone(s.warmup_until))
    }

    /// Whether CP_r filters in this epoch.
    pub fn filters(&self, round: u32, epoch: u32) -> bool {
        round > 0 || epoch >= self.milestone(self.settings.reliable_from)
    }

    /// The size up to which clusters are kept whole in this epoch; 0 for none.
    pub fn whole_up_to(&self, round: u32, epoch: u32) -> usize {
        let early = round == 0 && epoch < self.milestone(self.settings.small_until);
        if early { self.settings.small } else { 0 }
    }

    /// Whether samples from the first single cluster on are instances, as in the authors' released code.
    pub fn stops_at_first_single(&self, round: u32, epoch: u32) -> bool {
        let p = &self.settings;
        p.stop_at_first_single && round == 0 && epoch < self.milestone(p.stable_from)
    }

    /// Whether this epoch's clustering goes into the history.
    pub fn stores(&self, round: u32, epoch: u32) -> bool {
        round > 0 || epoch >= self.milestone(self.settings.stable_from)
    }

    /// Whether CP_s votes in this epoch, given how many clusterings are stored.
    pub fn votes(&self, round: u32, epoch: u32, stored: usize) -> bool {
        let p = &self.settings;
        let from = if round == 0 { p.stable_from } else { p.stable_from_later };
        p.votes && stored >= self.history && epoch >= self.milestone(from)
    }

    /// Whether the kNN probe runs after this epoch: every so many, and after the last of a round.
    pub fn probes(&self, epoch: u32) -> bool {
        let every = self.settings.probe_every.unwrap_or(probe_interval(self.epochs()));
        (epoch + 1).is_multiple_of(every) || epoch + 1 == self.epochs()
    }

    /// Which snapshot, from 1, is taken after this epoch.
    pub fn snapshot(&self, round: u32, epoch: u32) -> Option<u32> {
        let (done, total) = (self.finished_epochs(round, epoch), self.total_epochs());
        let at = |s: u32| ((u64::from(s) * u64::from(total)).div_ceil(u64::from(self.settings.snapshots))) as u32;
        (1..=self.settings.snapshots).rfind(|s| at(*s) == done)
    }

    /// Number of epochs done after this one.
    pub fn finished_epochs(&self, round: u32, epoch: u32) -> u32 {
        round * self.epochs() + epoch + 1
    }
}

/// Default number of epochs between probes in a round of `epochs`.
pub fn probe_interval(epochs: u32) -> u32 {
    epochs.div_ceil(20).max(1)
}

/// Eq. 1: `max(N_c, trunc(10^(log10(N) (1 - t/T))))`.
pub fn eq1(samples: usize, floor: usize, epoch: u32, epochs: u32) -> usize {
    let left = 1.0 - f64::from(epoch) / f64::from(epochs);
    floor.max(10f64.powf((samples as f64).log10() * left).trunc() as usize)
}

/// The vote when all n past clusterings agree: `sum_{k=0..n} alpha^k`.
pub fn greatest_vote(alpha: f64, n: usize) -> f64 {
    (0..=n).map(|k| alpha.powi(k as i32)).sum()
}

/// The vote below which a kept sample is dropped, where `greatest` is the greatest vote. Paper: 0 at n = 15 and alpha = 0.8, which asks
/// for a weighted agreement of 37 % with the past. A shorter history would ask for less of it with the same threshold.
pub fn usual_lower(greatest: f64) -> f64 {
    1.0 - (greatest - 1.0) / (greatest_vote(0.8, 15) - 1.0)
}

/// The smallest alpha in 0..1 for which `holds`, which must be monotonic.
fn bound(holds: impl Fn(f64) -> bool) -> Option<f64> {
    if !holds(1.0) {
        return None;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if holds(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's settings.
    fn paper() -> ScheduleSettings {
        ScheduleSettings {
            rounds: 1,
            epochs: 200,
            lr: 0.03,
            lr_decay: LrDecay::Steps(vec![[0.6, 0.1], [0.8, 0.01]]),
            floor: None,
            samples_per_cluster: 50,
            progressive: true,
            instances_from: 0.97,
            history: None,
            alpha: 0.8,
            lower: None,
            upper: None,
            votes: true,
            reliable_from: 0.1,
            stable_from: 0.5,
            stable_from_later: 0.1,
            small: 4,
            small_until: 0.5,
            stop_at_first_single: false,
            warmup_rounds: 1,
            warmup_until: 0.9,
            warmup_start: 0.8,
            warmup_end: 0.5,
            probe_every: None,
            snapshots: 0,
        }
    }

    fn schedule(epochs: u32, samples: usize, change: impl Fn(&mut ScheduleSettings)) -> Result<Schedule> {
        let mut settings = ScheduleSettings { epochs, ..paper() };
        change(&mut settings);
        Schedule::new(settings, samples)
    }

    /// Up to the rate in a tenth of the steps, then half a cosine: step by step, and the same at the start of an epoch by both functions.
    #[test]
    fn a_warmup_rises_and_falls_by_step() {
        let s = schedule(10, 1000, |s| s.lr_decay = LrDecay::Warmup(0.1)).unwrap();
        let near = |a: f32, b: f64| assert!((f64::from(a) - 0.03 * b).abs() < 1e-7, "{a} is not {b} of the rate");
        near(s.lr(0), 0.0);
        near(s.lr_within(0, 0.5), 0.5);
        near(s.lr(1), 1.0);
        near(s.lr_within(5, 0.5), 0.5);
        near(s.lr_within(9, 1.0), 0.0);
        assert_eq!(s.lr(4), s.lr_within(3, 1.0));
        let steps = schedule(10, 1000, |_| ()).unwrap();
        assert_eq!(steps.lr(6), steps.lr_within(6, 0.9), "steps fall by epoch");
    }

    /// Eq. 1 computed by hand: N = 50000, N_c = 1000, T = 200.
    #[test]
    fn eq1_check_values() {
        let s = schedule(200, 50_000, |_| ()).unwrap();
        let values =
            [(0, 49999), (1, 47366), (10, 29108), (20, 16946), (50, 3343), (70, 1133), (73, 1000), (199, 1000)];
        for (epoch, clusters) in values {
            assert_eq!(s.clusters(0, epoch), clusters, "epoch {epoch}");
        }
        assert_eq!(s.clusters(1, 0), 1000);
        assert!(s.all_instances(49999) && !s.all_instances(47366));
    }

    #[test]
    fn constant_when_not_progressive() {
        let s = schedule(200, 50_000, |s| (s.progressive, s.floor) = (false, Some(77))).unwrap();
        assert!((0..200).all(|t| s.clusters(0, t) == 77));
    }

    /// T = 40: n = 15 * 40 / 200 = 3.
    #[test]
    fn a_short_run_shortens_the_history() {
        let s = schedule(40, 5000, |_| ()).unwrap();
        assert_eq!(s.history, 3);
        assert!((greatest_vote(0.8, 3) - 2.952).abs() < 1e-6);
        assert!((s.upper - 1.822501).abs() < 2e-6, "{}", s.upper);
        assert!((s.lower - (1.0 - 1.952 / 3.859263)).abs() < 1e-6, "{}", s.lower);
        // Clusterings are stored at the end of epochs 20, 21, 22.
        let first = (0..40).find(|t| s.votes(0, *t, (0..*t).filter(|e| s.stores(0, *e)).count()));
        assert_eq!(first, Some(23));
    }

    #[test]
    fn the_paper_votes_from_epoch_115() {
        let s = schedule(200, 50_000, |_| ()).unwrap();
        assert_eq!(s.history, 15);
        assert!((s.upper - 3.0).abs() < 1e-5, "{}", s.upper);
        assert_eq!(s.lower, 0.0);
        let first = (0..200).find(|t| s.votes(0, *t, (0..*t).filter(|e| s.stores(0, *e)).count()));
        assert_eq!(first, Some(115));
        assert!(!s.votes(1, 19, 15) && s.votes(1, 20, 15));
    }

    #[test]
    fn lr_and_warmup_follow_the_milestones() {
        let s = schedule(200, 50_000, |_| ()).unwrap();
        let close = |a: f32, b: f32| (a - b).abs() < 1e-8;
        assert!(close(s.lr(119), 0.03) && close(s.lr(120), 0.003) && close(s.lr(160), 0.0003));
        assert_eq!(s.warmup_weight(0, 0), Some(0.8));
        assert!((s.warmup_weight(0, 90).unwrap() - 0.65).abs() < 1e-12);
        assert_eq!(s.warmup_weight(0, 180), None);
        assert_eq!(s.warmup_weight(1, 0), None);
        let s = schedule(200, 50_000, |s| (s.warmup_rounds, s.stop_at_first_single) = (5, true)).unwrap();
        assert_eq!(s.warmup_weight(4, 0), Some(0.8));
        assert!(s.stops_at_first_single(0, 99) && !s.stops_at_first_single(0, 100));
        let s = schedule(10, 100, |s| s.lr_decay = LrDecay::Cosine).unwrap();
        assert!(close(s.lr(0), 0.03) && close(s.lr(5), 0.015));
    }

    #[test]
    fn unreachable_thresholds_are_refused_with_the_bound() {
        let e = schedule(200, 50_000, |s| (s.alpha, s.upper) = (0.66, Some(3.0))).unwrap_err();
        assert!(e.hint.contains("0.667"), "{e:?}");
        let e = schedule(200, 50_000, |s| (s.alpha, s.lower) = (0.5, Some(0.0))).unwrap_err();
        assert!(e.hint.contains("0.500"), "{e:?}");
        assert!(schedule(200, 50_000, |s| (s.alpha, s.lower) = (0.51, Some(0.0))).is_ok());
        assert!(schedule(200, 50_000, |s| s.alpha = 0.5).is_ok());
        assert!(schedule(200, 50_000, |s| (s.alpha, s.lower, s.votes) = (0.5, Some(0.0), false)).is_ok());
        assert!(schedule(200, 50_000, |s| s.upper = Some(99.0)).unwrap_err().hint.contains("no alpha"));
    }

    #[test]
    fn the_floor_fits_the_data() {
        assert_eq!(schedule(10, 1094, |_| ()).unwrap().floor, 21);
        assert_eq!(schedule(10, 3, |_| ()).unwrap().floor, 2);
        let e = schedule(10, 100, |s| s.floor = Some(101)).unwrap_err();
        assert!(e.message.contains("101") && e.message.contains("100"), "{e:?}");
        assert!(schedule(10, 100, |s| s.floor = Some(0)).is_err());
    }

    #[test]
    fn probes_and_snapshots_cover_the_end() {
        let mut s = schedule(40, 5000, |s| s.snapshots = 5).unwrap();
        let taken: Vec<u32> = (0..40).filter(|t| s.snapshot(0, *t).is_some()).collect();
        assert_eq!(taken, [7, 15, 23, 31, 39]);
        assert_eq!((0..40).filter(|t| s.probes(*t)).count(), 20);
        s.settings.probe_every = Some(100);
        assert_eq!((0..40).filter(|t| s.probes(*t)).collect::<Vec<_>>(), [39]);
        // Seven does not divide forty: the last epoch of every round is probed all the same.
        s.settings.probe_every = Some(7);
        assert_eq!((0..40).filter(|t| s.probes(*t)).collect::<Vec<_>>(), [6, 13, 20, 27, 34, 39]);
    }
}
