//! Every setting of a run, with its default in exactly one place.
//!
//! [`Config`] is what users write: the defaults, then presets, then single settings; later layers override earlier ones.
//! [`Resolved`] is what a run uses: every `"auto"` is replaced by a value for the data set. `config.toml` stores it.

mod layers;
mod resolve;
mod schedule;
mod settings;
mod systems;
mod training;

pub use layers::{DATA_PRESETS, PRESETS, SettingsLayer, is_system, preset};
pub use resolve::{PHOTOGRAPH_SIDE, Resolved, usual_stored_side};
pub use settings::*;
pub use systems::*;
pub use training::*;

use pcp_core::error::{Error, Result};
use std::path::Path;
use toml::{Table, Value};

impl Config {
    /// The defaults overridden by `layers` in turn, checked.
    pub fn from_layers(layers: &[SettingsLayer]) -> Result<Config> {
        let mut table = Config::default().to_table();
        for layer in layers {
            layer.apply(&mut table)?;
        }
        let config: Config = Value::Table(table)
            .try_into()
            .map_err(|e: toml::de::Error| Error::usage(e.message(), "see the presets for examples"))?;
        config.check()?;
        Ok(config)
    }

    /// Reads the `config.toml` of a run folder; its table `[about]` is ignored.
    pub fn read(path: &Path) -> Result<Config> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, &e))?;
        let mut table: Table = text.parse().map_err(|e: toml::de::Error| {
            Error::usage(format!("{}: {}", path.display(), e.message()), "restore the file or start a new run")
        })?;
        table.remove("about");
        Config::from_layers(&[SettingsLayer::new(path.display().to_string(), table)])
    }

    /// The config as a TOML table.
    pub fn to_table(&self) -> Table {
        table(self)
    }

    /// Every setting as `section.key` with its value.
    pub fn entries(&self) -> Vec<(String, Value)> {
        entries(self.to_table())
    }

    /// An error for values out of range; it names the key and the range.
    pub fn check(&self) -> Result<()> {
        let c = self;
        let checks: &[(&str, f64, f64, f64)] = &[
            ("purify.gamma", c.purify.gamma, 0.0, 1.0),
            ("purify.alpha", c.purify.alpha, 0.0, 1.0),
            ("purify.reliable_from", c.purify.reliable_from, 0.0, 1.0),
            ("purify.stable_from", c.purify.stable_from, 0.0, 1.0),
            ("purify.stable_from_later", c.purify.stable_from_later, 0.0, 1.0),
            ("purify.small_until", c.purify.small_until, 0.0, 1.0),
            ("objective.bank_momentum", c.objective.bank_momentum, 0.0, 1.0),
            ("objective.warmup_start", c.objective.warmup_start, 0.0, 1.0),
            ("objective.warmup_end", c.objective.warmup_end, 0.0, 1.0),
            ("objective.warmup_until", c.objective.warmup_until, 0.0, 1.0),
            ("objective.bank_views", f64::from(c.objective.bank_views), 1.0, 2.0),
            ("clusters.instances_from", c.clusters.instances_from, 0.0, 2.0),
            ("train.weight_decay", c.train.weight_decay, 0.0, 1.0),
            ("and.share", c.and.share, 0.0, 1.0),
            ("la.instances_until", c.la.instances_until, 0.0, 1.0),
            ("deepcluster.head_decay", c.deepcluster.head_decay, 0.0, 1.0),
            ("moco.momentum", c.moco.momentum, 0.0, 1.0),
            ("byol.momentum", c.byol.momentum, 0.0, 1.0),
            ("emp.views", c.emp.views as f64, 2.0, 100.0),
            ("emp.spread", c.emp.spread, 0.0, 1000.0),
            // A year at the most.
            ("run.save_minutes", c.run.save_minutes, 0.0, MOST_MINUTES),
            ("plus.hue", c.plus.hue, 0.0, 0.5),
            ("plus.share", c.plus.share.or(0.0), 0.0, 1.0),
        ];
        for &(key, value, low, high) in checks {
            if !(low..=high).contains(&value) {
                return Err(Error::usage(
                    format!("{key} is {value}"),
                    format!("{key} must be between {low} and {high}"),
                ));
            }
        }
        if (c.method.system == System::Byol) != (c.network.head == Head::Predictor) {
            let head = format!("network.head is {:?}, and the system {:?}", c.network.head, c.method.system);
            let hint =
                "BYOL needs the head \"predictor\", and no other system trains it: leave network.head to the preset";
            return Err(Error::usage(head.to_lowercase(), hint));
        }
        if c.data.margin != 0.0 && !(1.0..=4.0).contains(&c.data.margin) {
            let hint = "data.margin must be between 1 and 4, or 0 for the whole image";
            return Err(Error::usage(format!("data.margin is {}", c.data.margin), hint));
        }
        let positive: &[(&str, f64)] = &[
            ("objective.tau", c.objective.tau),
            ("evaluate.tau", c.evaluate.tau),
            ("train.lr", c.train.lr),
            ("train.epochs", f64::from(c.train.epochs)),
            ("train.batch", c.train.batch as f64),
            ("network.width", c.network.width as f64),
            ("network.embedding", c.network.embedding as f64),
            ("evaluate.k", c.evaluate.k as f64),
            ("clusters.iterations", c.clusters.iterations as f64),
            ("clusters.runs", f64::from(c.clusters.runs)),
            ("run.save_minutes", c.run.save_minutes),
            ("and.neighbours", c.and.neighbours as f64),
            ("la.clusterings", f64::from(c.la.clusterings)),
            ("la.background", c.la.background as f64),
            ("deepcluster.components", c.deepcluster.components as f64),
            ("deepcluster.head_lr", c.deepcluster.head_lr),
            ("moco.queue", c.moco.queue as f64),
            ("moco.groups", c.moco.groups as f64),
            ("emp.precision", c.emp.precision),
        ];
        for &(key, value) in positive {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::usage(format!("{key} is {value}"), format!("{key} must be above 0")));
            }
        }
        let limits: &[(&str, u64, u64)] = &[
            ("network.width", c.network.width as u64, 4096),
            ("network.embedding", c.network.embedding as u64, 65536),
            ("train.parts", c.train.parts as u64, 4096),
            ("train.batch", c.train.batch as u64, 1 << 20),
            ("clusters.runs", u64::from(c.clusters.runs), 1000),
            ("purify.history", c.purify.history.or(1) as u64, 10_000),
            ("la.clusterings", u64::from(c.la.clusterings), 1000),
            ("moco.groups", c.moco.groups as u64, 1024),
            ("run.snapshots", u64::from(c.run.snapshots), 1_000_000),
        ];
        for &(key, value, most) in limits {
            if value > most {
                return Err(Error::usage(format!("{key} is {value}"), format!("{key} must be at most {most}")));
            }
        }
        if c.method.system == System::Deepcluster && c.clusters.features == ClusterFeatures::Bank {
            let message = "clusters.features is bank, but deepcluster has none";
            return Err(Error::usage(message, "set clusters.features=clean or augmented"));
        }
        if c.method.system == System::Patches && c.train.rounds > 0 {
            let message =
                format!("train.rounds is {}, but patches are learned without rounds and epochs", c.train.rounds);
            return Err(Error::usage(message, "leave it out: the preset patches has 0"));
        }
        if c.evaluate.every == Auto::Value(0) {
            return Err(Error::usage("evaluate.every is 0", "give `evaluate.every` a number from 1"));
        }
        let epochs = u64::from(c.train.rounds) * u64::from(c.train.epochs);
        if epochs > 1_000_000 {
            let message = format!("train.rounds x train.epochs is {epochs}");
            return Err(Error::usage(message, "train for at most a million epochs"));
        }
        if !(0.0..1.0).contains(&c.train.momentum) {
            let message = format!("train.momentum is {}", c.train.momentum);
            return Err(Error::usage(message, "train.momentum must be at least 0 and below 1"));
        }
        let Auto::Value(size) = c.data.size else { return c.check_lists() };
        if !(8..=1024).contains(&size) {
            return Err(Error::usage(format!("data.size is {size}"), "data.size must be between 8 and 1024"));
        }
        c.check_lists()
    }

    fn check_lists(&self) -> Result<()> {
        let in_order = self.train.lr_steps.windows(2).all(|w| w[0][0] <= w[1][0]);
        let sound = |[at, factor]: &[f64; 2]| (0.0..=1.0).contains(at) && *factor >= 0.0 && factor.is_finite();
        if !in_order || !self.train.lr_steps.iter().all(sound) {
            return Err(Error::usage(
                format!("train.lr_steps is {:?}", self.train.lr_steps),
                "give pairs [share of the epochs, factor] in growing order, such as [[0.6, 0.1], [0.8, 0.01]]",
            ));
        }
        if let Auto::Value(mean) = self.data.mean
            && !mean.iter().all(|m| m.is_finite())
        {
            return Err(Error::usage(format!("data.mean is {mean:?}"), "data.mean must be three numbers"));
        }
        // Other thresholds are checked in `Schedule::new`.
        let thresholds = [self.purify.lower, self.purify.upper];
        if thresholds.iter().any(|t| matches!(t, Auto::Value(value) if value.is_nan())) {
            return Err(Error::usage("purify.lower or purify.upper is not a number", "leave them out for the paper's"));
        }
        self.augment.check()?;
        if let Auto::Value(std) = self.data.std
            && !std.iter().all(|s| *s > 0.0 && s.is_finite())
        {
            return Err(Error::usage(format!("data.std is {std:?}"), "data.std must be above 0 in every channel"));
        }
        Ok(())
    }
}

/// `settings` as a TOML table.
fn table(settings: &impl serde::Serialize) -> Table {
    match Value::try_from(settings) {
        Ok(Value::Table(table)) => table,
        other => unreachable!("settings are a table: {other:?}"),
    }
}

/// Every value of a table of sections, as `section.key`.
fn entries(table: Table) -> Vec<(String, Value)> {
    let mut out = Vec::new();
    for (section, values) in table {
        if let Value::Table(values) = values {
            out.extend(values.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)));
        }
    }
    out
}

#[cfg(test)]
mod tests;
