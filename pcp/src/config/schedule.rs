//! The schedule of a run, from its settings.

use super::{Auto, Config, LrSchedule, System};
use pcp_core::error::Result;
use pcp_core::schedule::{LrDecay, Schedule, ScheduleSettings};

/// Share of the steps in which the learning rate rises, with `train.lr_schedule = "warmup"`.
const WARMUP: f64 = 1.0 / 30.0;

impl Config {
    /// The schedule of a run on `samples` training images; an error if the settings cannot work.
    pub fn schedule(&self, samples: usize) -> Result<Schedule> {
        Schedule::new(self.schedule_settings(), samples)
    }

    fn schedule_settings(&self) -> ScheduleSettings {
        let (train, clusters, purify, objective) = (&self.train, &self.clusters, &self.purify, &self.objective);
        ScheduleSettings {
            rounds: train.rounds,
            epochs: train.epochs,
            lr: train.lr,
            lr_decay: match train.lr_schedule {
                LrSchedule::Steps => LrDecay::Steps(train.lr_steps.clone()),
                LrSchedule::Cosine => LrDecay::Cosine,
                LrSchedule::Warmup => LrDecay::Warmup(WARMUP),
            },
            floor: value(clusters.floor),
            // LA as published: 40.
            samples_per_cluster: if self.method.system == System::La { 40 } else { 50 },
            progressive: clusters.progressive,
            instances_from: clusters.instances_from,
            history: value(purify.history),
            alpha: purify.alpha,
            lower: value(purify.lower),
            upper: value(purify.upper),
            votes: purify.votes,
            reliable_from: purify.reliable_from,
            stable_from: purify.stable_from,
            stable_from_later: purify.stable_from_later,
            small: purify.small,
            small_until: purify.small_until,
            stop_at_first_single: purify.stop_at_first_single,
            warmup_rounds: objective.warmup_rounds,
            warmup_until: objective.warmup_until,
            warmup_start: objective.warmup_start,
            warmup_end: objective.warmup_end,
            probe_every: value(self.evaluate.every),
            snapshots: self.run.snapshots,
        }
    }
}

/// The value; `None` for `"auto"`.
fn value<T>(setting: Auto<T>) -> Option<T> {
    match setting {
        Auto::Value(value) => Some(value),
        Auto::Auto(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, SettingsLayer, preset};

    /// The defaults and the presets have the schedules of the paper and of the authors' released code.
    #[test]
    fn presets_have_their_schedules() {
        let paper = Config::from_layers(&[SettingsLayer::assignment("train.epochs=200").unwrap()]).unwrap();
        let s = paper.schedule(50_000).unwrap();
        assert_eq!((s.floor, s.history, s.clusters(0, 50)), (1000, 15, 3343));
        assert!((s.upper - 3.0).abs() < 1e-5 && s.warmup_weight(0, 0) == Some(0.8) && s.warmup_weight(1, 0).is_none());
        assert!((s.lr(120) - 0.003).abs() < 1e-8);
        let release = Config::from_layers(&[preset("pcp-release").unwrap()]).unwrap().schedule(50_000).unwrap();
        assert_eq!(release.warmup_weight(4, 0), Some(0.8));
        assert!(release.stops_at_first_single(0, 99) && !release.stops_at_first_single(0, 100));
        let la = Config::from_layers(&[preset("la").unwrap()]).unwrap();
        assert_eq!(la.schedule(4000).unwrap().floor, 100);
    }
}
