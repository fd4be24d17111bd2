//! What a caller asks of a run, and the settings that come of it.

use super::minutes::TimeBudget;
use crate::config::{Config, DATA_PRESETS, Resolved, SettingsLayer, System, is_system, preset};
use crate::data::Source;
use crate::jobs::absolute;
use pcp_core::error::{Error, Result};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

/// Images and settings of a run, as a caller gives them.
#[derive(Clone, Debug, Default)]
pub struct RunRequest {
    /// What to train on: a folder of images or of idx files, `cifar10`, `cifar100` or `bundled`. `None` is `bundled`, or, where a run is
    /// resumed, what it began with.
    pub data: Option<String>,
    /// Where the CIFAR files are.
    pub data_dir: Option<PathBuf>,
    /// Systems or data sets by name, or TOML files of settings; later ones win. A data set's preset is implied by the data.
    pub presets: Vec<String>,
    /// Weights to begin with instead of random ones: a safetensors file in torchvision's names, or a run folder.
    pub init_from: Option<PathBuf>,
    /// Decisions of `pcp serve` to honour: its file, or the run folder it is in.
    pub decisions: Option<PathBuf>,
    /// Single settings, laid over the presets in this order.
    pub settings: Vec<SettingsLayer>,
    /// Minutes in which the run, with its page, is to end: width, image side, epochs and number of images are chosen by trial steps on
    /// this machine, as far as they are not given. `None` is [`DEFAULT_MINUTES`] for a folder of images of which neither presets nor these
    /// are given, and no limit otherwise.
    pub minutes: Option<f64>,
}

/// Minutes of a run on a folder of images, where nothing else is asked for.
pub const DEFAULT_MINUTES: f64 = 20.0;

/// Settings that are chosen for a run of given minutes.
const CHOSEN: [&str; 4] = ["network.width", "data.size", "train.epochs", "train.rounds"];

impl RunRequest {
    /// Training on `data` with every setting as the presets have it.
    pub fn new(data: impl Into<String>) -> Self {
        RunRequest { data: Some(data.into()), ..RunRequest::default() }
    }

    /// With one setting, `section.key=value`.
    pub fn set(mut self, assignment: &str) -> Result<Self> {
        self.settings.push(SettingsLayer::assignment(assignment)?);
        Ok(self)
    }

    /// The settings that come of it, as far as they are known before the images are read. The images need not be there.
    pub fn config(&self) -> Result<Config> {
        let source = self.source().unwrap_or_else(|_| Source::Folder(self.data_word().into()));
        self.config_for(&source).map(|(_, config)| config)
    }

    /// Where the images come from; folders as paths that hold from anywhere, so that the run can be resumed from anywhere.
    pub fn source(&self) -> Result<Source> {
        Ok(match Source::parse(self.data_word())? {
            Source::Folder(path) => Source::Folder(absolute(&path)),
            Source::Idx(path) => Source::Idx(absolute(&path)),
            other => other,
        })
    }

    fn data_word(&self) -> &str {
        self.data.as_deref().unwrap_or("bundled")
    }

    /// The presets that are named or implied for images from `source`, and the settings of a new run.
    pub(super) fn config_for(&self, source: &Source) -> Result<(Vec<String>, Config)> {
        let names = self.presets_for(source)?;
        let mut layers = names.iter().map(|n| preset(n)).collect::<Result<Vec<_>>>()?;
        layers.push(SettingsLayer::flag("DATA", "data.source", source.to_string()));
        layers.extend(self.overrides());
        let config = Config::from_layers(&layers)?;
        for set in self.settings.iter().flat_map(SettingsLayer::assignments) {
            if let Some((name, owner)) = System::owner_of(set.split(['.', '=']).next().unwrap_or_default())
                && owner != config.method.system
            {
                let message = format!("`set` {set} is a setting of {name}, and this is another system");
                return Err(Error::usage(message, format!("leave it out, or give `presets` {name}")));
            }
        }
        Ok((names, config))
    }

    /// Settings that are given, as `section.key`.
    fn given(&self) -> Result<BTreeSet<String>> {
        let keys = |layer: &SettingsLayer| -> Vec<String> {
            layer.assignments().iter().filter_map(|set| Some(set.split_once('=')?.0.trim().to_string())).collect()
        };
        let mut given: BTreeSet<String> = self.settings.iter().flat_map(keys).collect();
        for file in self.presets.iter().filter(|name| name.ends_with(".toml")) {
            given.extend(keys(&preset(file)?));
        }
        Ok(given)
    }

    /// Whether nothing is asked for that says how long to train.
    fn free(&self) -> Result<bool> {
        let given = self.given()?;
        Ok(self.presets.is_empty() && self.init_from.is_none() && !CHOSEN.iter().any(|key| given.contains(*key)))
    }

    /// The time that a run on `source` may take, if that is limited; it begins now.
    pub(super) fn time_budget(&self, source: &Source) -> Result<Option<TimeBudget>> {
        let given = self.given()?;
        let minutes = match (self.minutes, source) {
            (Some(minutes), _) if minutes > 0.0 && minutes.is_finite() => minutes,
            (Some(minutes), _) => {
                return Err(Error::usage(format!("`minutes` is {minutes}"), "give a number above 0, such as 20"));
            }
            (None, Source::Folder(_)) if self.free()? => DEFAULT_MINUTES,
            (None, _) => return Ok(None),
        };
        if CHOSEN[..3].iter().all(|key| given.contains(*key)) {
            return Err(Error::usage(
                "`minutes` has nothing to choose: width, size and epochs are given",
                "leave out `minutes` or one of them",
            ));
        }
        let implied = self.implied_system(source);
        Ok(Some(TimeBudget { minutes, stated: self.minutes.is_some(), implied, given, began: Instant::now() }))
    }

    /// The settings of a run that began with `began`, and with what is given here laid over them.
    pub(super) fn config_over(&self, began: &Resolved) -> Result<Config> {
        let mut layers = vec![SettingsLayer::new("config.toml".into(), began.to_table())];
        for name in &self.presets {
            layers.push(preset(name)?);
        }
        if self.data.is_some() {
            layers.push(SettingsLayer::flag("DATA", "data.source", self.source()?.to_string()));
        }
        layers.extend(self.overrides());
        Config::from_layers(&layers)
    }

    /// The system where none is named: of a run of given minutes, of one on a folder that has the default minutes, and of the
    /// bundled photographs when nothing else is asked for. It learns most in minutes.
    fn implied_system(&self, source: &Source) -> Option<&'static str> {
        let named = self.presets.iter().any(|name| is_system(name) || name.ends_with(".toml"));
        let nothing_asked = || self.given().is_ok_and(|given| given.iter().all(|key| says_nothing(key)));
        let usual = match source {
            Source::Folder(_) => true,
            Source::Bundled => nothing_asked(),
            _ => false,
        };
        let free = usual && self.free().unwrap_or(false);
        (!named && self.init_from.is_none() && (self.minutes.is_some() || free)).then_some("pcp-plus")
    }

    fn presets_for(&self, source: &Source) -> Result<Vec<String>> {
        let implied = match source {
            Source::Bundled => "bundled",
            Source::Cifar10 => "cifar10",
            Source::Cifar100 => "cifar100",
            Source::Folder(_) => "folder",
            Source::Idx(_) => "idx",
        };
        // A named data preset takes the place of the one that the data implies.
        let named = self.presets.iter().any(|p| DATA_PRESETS.contains(&p.as_str()));
        let mut names: Vec<String> = (!named).then(|| implied.to_string()).into_iter().collect();
        names.extend(self.presets.iter().cloned());
        names.extend(self.implied_system(source).map(String::from));
        // Settings of one would stay under the name of the other.
        let mut systems = names.iter().filter(|name| is_system(name));
        if let Some(first) = systems.next()
            && let Some(second) = systems.find(|name| *name != first)
        {
            let message = format!("`presets` {first} and {second} are two systems");
            return Err(Error::usage(message, "give one of them; single settings are changed with `set` KEY=VALUE"));
        }
        // A system's own settings win over those of its data, in whatever order they are named.
        names.sort_by_key(|name| !DATA_PRESETS.contains(&name.as_str()));
        Ok(names)
    }

    fn overrides(&self) -> Vec<SettingsLayer> {
        let path = |option: &str, key: &str, path: &Option<PathBuf>| {
            path.as_deref().map(|path| SettingsLayer::flag(option, key, absolute(path).display().to_string()))
        };
        let mut layers = self.settings.clone();
        layers.extend(path("`data_dir`", "data.dir", &self.data_dir));
        layers.extend(path("`init_from`", "train.init_from", &self.init_from));
        layers.extend(path("`decisions`", "data.decisions", &self.decisions));
        layers
    }
}

/// Whether a setting says nothing of how to train.
fn says_nothing(key: &str) -> bool {
    key.starts_with("run.") || key.starts_with("evaluate.") || ["train.seed", "train.precision"].contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_follow_from_the_data_and_only_one_system_is_taken() {
        let asked = |presets: &[&str]| {
            let presets = presets.iter().map(|p| p.to_string()).collect();
            RunRequest { presets, ..RunRequest::default() }.presets_for(&Source::Cifar10)
        };
        assert_eq!(asked(&[]).unwrap(), ["cifar10"]);
        assert_eq!(asked(&["dc", "in100"]).unwrap(), ["in100", "dc"], "the system comes last");
        assert_eq!(asked(&["dc", "dc"]).unwrap(), ["cifar10", "dc", "dc"]);
        let e = asked(&["moco", "dc"]).unwrap_err();
        assert!(e.message.contains("`presets` moco and dc"), "{e:?}");
    }

    #[test]
    fn a_run_that_names_no_system_and_no_way_to_train_is_pcp_plus() {
        let system = |request: RunRequest| request.config().unwrap().method.system;
        let bundled = || RunRequest::new("bundled");
        assert_eq!(system(bundled()), System::Plus);
        assert_eq!(system(bundled().set("train.seed=3").unwrap().set("run.snapshots=2").unwrap()), System::Plus);
        for set in ["train.epochs=3", "purify.gamma=0.3", "clusters.floor=9"] {
            assert_eq!(system(bundled().set(set).unwrap()), System::Pcp, "{set}");
        }
        assert_eq!(system(RunRequest { presets: vec!["pcp".into()], ..bundled() }), System::Pcp);
        assert_eq!(system(RunRequest::new("cifar10")), System::Pcp);
        assert_eq!(system(RunRequest { minutes: Some(5.0), ..RunRequest::new("cifar10") }), System::Plus);
    }

    #[test]
    fn settings_win_over_presets_and_another_systems_are_refused() {
        let request = RunRequest::new("bundled").set("train.epochs=3").unwrap().set("train.epochs = 4").unwrap();
        assert_eq!(request.config().unwrap().train.epochs, 4);
        let e = request.set("moco.queue=9").unwrap().config().unwrap_err();
        assert!(e.message.contains("moco.queue=9 is a setting of moco"), "{e:?}");
        assert!(RunRequest::default().set("train.epochs").is_err());
        let gone = RunRequest::new("no/such/folder");
        assert_eq!(gone.config().unwrap().data.source, "no/such/folder");
        assert!(gone.source().is_err());
    }
}
