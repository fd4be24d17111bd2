//! Training a finished run further: a new run that begins with its weights and has its settings.

use super::{Caller, RunRequest, TrainOptions, TrainResult, train};
use crate::config::{Auto, Config, Resolved, SettingsLayer, System, is_system};
use crate::observe::Observer;
use crate::run::RunFolder;
use pcp_core::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A run that is trained further.
#[derive(Clone, Debug)]
pub struct ExtendOptions {
    /// The finished run. Nothing in its folder is changed.
    pub run: PathBuf,
    /// Settings that are changed, and the minutes to train; without minutes and epochs these are the default minutes.
    pub request: RunRequest,
    /// The new run's folder; otherwise that of the run with the first free number after it.
    pub out: Option<PathBuf>,
    /// Begin anew in a run folder that exists, removing the old run's files.
    pub overwrite: bool,
    /// Write no report.html at the end.
    pub no_report: bool,
    /// The calling program.
    pub caller: Caller,
}

impl ExtendOptions {
    /// Trains the run in `run` for the default minutes more.
    pub fn new(run: impl Into<PathBuf>) -> Self {
        ExtendOptions {
            run: run.into(),
            request: RunRequest::default(),
            out: None,
            overwrite: false,
            no_report: false,
            caller: Caller::default(),
        }
    }
}

/// Trains a finished run further: as PCP's later rounds do, with as many clusters as the run had at its end, a learning rate that starts again,
/// and no warm-up. The images are read again: new ones in the same folder are learned from, too.
pub fn extend(options: &ExtendOptions, observer: &Arc<dyn Observer>) -> Result<TrainResult> {
    let run = RunFolder::open(&options.run)?;
    let shown = options.run.display();
    if run.read_result()?.is_none() {
        let message = format!("{shown} is not finished, so it cannot be trained further");
        return Err(Error::usage(message, format!("finish it first: `resume` {shown}")));
    }
    let asked = &options.request;
    if asked.data.is_some() || asked.init_from.is_some() || !asked.presets.is_empty() {
        return Err(Error::usage(
            "`extend` keeps the images, the system and the network of the run",
            "leave out DATA, `presets` and `init_from`, or start another run with `init_from`",
        ));
    }
    let (config, about) = run.read_config()?;
    if config.method.system == System::Patches {
        return Err(Error::usage(
            format!("{shown} has clusters of patches and no network, so nothing can be trained further"),
            "start another run on the same images, with a network: `train` without the preset patches",
        ));
    }
    let mut settings = vec![SettingsLayer::new(format!("config.toml of {shown}"), continued(&config)?)];
    settings.extend(asked.settings.iter().cloned());
    let has_epochs = asked.settings.iter().flat_map(SettingsLayer::assignments).any(|s| s.starts_with("train.epochs="));
    let request = RunRequest {
        data: Some(config.data.source.clone()),
        data_dir: asked.data_dir.clone(),
        presets: about.presets.iter().filter(|name| is_system(name)).cloned().collect(),
        init_from: Some(options.run.clone()),
        decisions: asked.decisions.clone(),
        settings,
        minutes: asked.minutes.or((!has_epochs).then_some(super::DEFAULT_MINUTES)),
    };
    let out = options.out.clone().unwrap_or_else(|| next(&options.run));
    let (overwrite, no_report, caller) = (options.overwrite, options.no_report, options.caller.clone());
    let options = TrainOptions { request, out: Some(out), overwrite, no_report, caller, ..TrainOptions::default() };
    train(&options, observer)
}

/// The settings of `began` that its continuation has: without those that follow from the epochs, and of its own system alone.
fn continued(began: &Resolved) -> Result<toml::Table> {
    let mut open = Config::from(began.clone());
    (open.purify.history, open.purify.upper) = (Auto::AUTO, Auto::AUTO);
    let usual = open.schedule(began.clusters.floor)?;
    let mut table = began.to_table();
    let mut remove = |section: &str, keys: &[&str]| {
        if let Some(section) = table.get_mut(section).and_then(toml::Value::as_table_mut) {
            keys.iter().for_each(|key| drop(section.remove(*key)));
        }
    };
    if usual.history == began.purify.history && usual.upper == began.purify.upper {
        remove("purify", &["history", "upper"]);
    }
    remove("train", &["epochs", "rounds", "init_from"]);
    remove("evaluate", &["every"]);
    table.retain(|section, _| System::owner_of(section).is_none_or(|(_, owner)| owner == began.method.system));
    let mut set = |section: &str, key: &str, value: toml::Value| {
        if let Some(section) = table.get_mut(section).and_then(toml::Value::as_table_mut) {
            section.insert(key.to_string(), value);
        }
    };
    set("train", "rounds", 1.into());
    set("clusters", "progressive", false.into());
    set("objective", "warmup_rounds", 0.into());
    Ok(table)
}

/// The path of `run` with the first free number after it.
fn next(run: &Path) -> PathBuf {
    let run = crate::jobs::absolute(run);
    let name = run.file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned());
    // runs/photos-1 is followed by runs/photos-2.
    let (stem, number) = match name.rsplit_once('-').map(|(stem, number)| (stem, number.parse::<u32>())) {
        Some((stem, Ok(number))) => (stem.to_string(), number),
        _ => (name, 1),
    };
    let path = |n: u32| run.with_file_name(format!("{stem}-{n}"));
    (number.saturating_add(1)..).map(path).find(|path| !path.exists()).unwrap_or(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::preset;

    #[test]
    fn a_continuation_has_the_settings_but_those_of_the_epochs() {
        let config =
            Config::from_layers(&[preset("moco").unwrap(), SettingsLayer::assignment("train.epochs=40").unwrap()]);
        let data = crate::data::Dataset::default();
        let mut config = config.unwrap();
        (config.data.mean, config.data.std) = (Auto::Value([0.5; 3]), Auto::Value([0.2; 3]));
        config.clusters.floor = Auto::Value(2);
        let mut began = config.clone();
        began.purify.history = Auto::Value(9);
        let resolve = |config: Config| {
            let mut images = data.clone();
            for id in 0..3 {
                let image = crate::data::Image { width: 1, height: 1, pixels: vec![0; 3] };
                images.train.images.push(id, id.to_string(), image);
            }
            config.resolve(&images).unwrap()
        };
        let table = continued(&resolve(config)).unwrap();
        assert!(table.contains_key("moco") && !table.contains_key("and") && !table.contains_key("la"));
        let has = |section: &str, key: &str| table[section].as_table().unwrap().contains_key(key);
        assert!(!has("train", "epochs") && !has("evaluate", "every") && !has("purify", "history"));
        assert!(has("network", "width") && table["clusters"]["progressive"].as_bool() == Some(false));
        let table = continued(&resolve(began)).unwrap();
        assert_eq!(table["purify"]["history"].as_integer(), Some(9), "what was given stays");
    }

    #[test]
    fn the_next_folder_has_the_next_number() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str| next(&dir.path().join(name)).file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(
            (of("photos").as_str(), of("photos-1").as_str(), of("a-b").as_str()),
            ("photos-2", "photos-2", "a-b-2")
        );
        std::fs::create_dir(dir.path().join("photos-2")).unwrap();
        assert_eq!((of("photos").as_str(), of("photos-2").as_str()), ("photos-3", "photos-3"));
    }
}
