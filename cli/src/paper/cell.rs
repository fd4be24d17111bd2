//! A cell of a table: what the paper has there, and how it is run.

use super::scale::{Data, Net, Scale};
use crate::flags::assigned;
use pcp::config::SettingsLayer;
use pcp::jobs::RunRequest;
use pcp_core::error::Result;
use std::path::PathBuf;

/// How a network is trained, in the paper's own numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// What it is trained on.
    pub data: Data,
    /// Which network.
    pub network: Net,
    /// The system, by its preset.
    pub system: &'static str,
    clusters: Option<usize>,
    gamma: Option<&'static str>,
    rounds: Option<u32>,
    queue: Option<usize>,
    /// Other settings, with their values.
    set: Vec<(&'static str, String)>,
}

impl Recipe {
    /// ResNet18 on `data` with everything as the system's preset has it.
    pub fn new(data: Data, system: &'static str) -> Recipe {
        Recipe {
            data,
            network: Net::Resnet,
            system,
            clusters: None,
            gamma: None,
            rounds: None,
            queue: None,
            set: Vec::new(),
        }
    }

    /// With AlexNet.
    pub fn alexnet(self) -> Recipe {
        Recipe { network: Net::Alexnet, ..self }
    }

    /// With this floor of the number of clusters, N_c.
    pub fn clusters(self, clusters: usize) -> Recipe {
        Recipe { clusters: Some(clusters), ..self }
    }

    /// With this share filtered out of every cluster.
    pub fn gamma(self, gamma: &'static str) -> Recipe {
        Recipe { gamma: Some(gamma), ..self }
    }

    /// With so many rounds.
    pub fn rounds(self, rounds: u32) -> Recipe {
        Recipe { rounds: Some(rounds), ..self }
    }

    /// With a queue of so many keys.
    pub fn queue(self, keys: usize) -> Recipe {
        Recipe { queue: Some(keys), ..self }
    }

    /// With another setting, as `section.key`.
    pub fn set(mut self, path: &'static str, value: impl ToString) -> Recipe {
        self.set.push((path, value.to_string()));
        self
    }

    /// The paper's N_c, where it matters.
    pub fn floor(&self) -> Option<usize> {
        self.clusters
    }

    /// The run that this is at a scale. Recipes that come to the same there give the same run.
    pub fn run(&self, scale: Scale, dir: Option<&str>, seed: u32) -> Run {
        let mut name = vec![scale.run_prefix(self.data)];
        if self.network == Net::Alexnet {
            name.push("alexnet".into());
        }
        name.push(self.system.into());
        let mut settings = Vec::new();
        let mut setting = |path: &str, value: String, named: &str| {
            name.push(format!("{named}{value}"));
            settings.push(format!("{path}={value}"));
        };
        if let Some(clusters) = self.clusters {
            setting("clusters.floor", scale.clusters(clusters, self.data).to_string(), "k");
        }
        if let Some(gamma) = self.gamma {
            setting("purify.gamma", gamma.into(), "gamma");
        }
        if let Some(rounds) = self.rounds {
            setting("train.rounds", scale.rounds(rounds).to_string(), "rounds");
        }
        for (path, value) in &self.set {
            setting(path, value.clone(), path.rsplit('.').next().unwrap_or(path));
        }
        if let Some(keys) = self.queue {
            setting("moco.queue", scale.keys(keys, self.data).to_string(), "queue");
        }
        settings.extend(scale.own_settings(self.data, self.network).into_iter().map(String::from));
        settings.push(format!("train.seed={seed}"));
        name.push(format!("s{seed}"));
        let (data, data_dir, data_preset) = scale.data_of_run(self.data, dir);
        let presets = data_preset.into_iter().chain([self.system]).map(String::from).collect();
        Run { name: name.join("-"), data, data_dir, presets, settings }
    }
}

/// A training run: its folder's name, and all that tells it from other runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Folder, among the runs of its scale.
    pub name: String,
    /// What it is trained on.
    pub data: String,
    /// Where the data set is.
    pub data_dir: Option<String>,
    /// Its presets.
    pub presets: Vec<String>,
    /// Single settings, `section.key=value`.
    pub settings: Vec<String>,
}

impl Run {
    /// What is asked of the training.
    pub fn request(&self) -> Result<RunRequest> {
        Ok(RunRequest {
            data: Some(self.data.clone()),
            data_dir: self.data_dir.as_ref().map(PathBuf::from),
            presets: self.presets.clone(),
            settings: self.settings.iter().map(|s| SettingsLayer::assignment(s)).collect::<Result<_>>()?,
            ..RunRequest::default()
        })
    }

    /// The same as arguments of `pcp train`, for people.
    pub fn arguments(&self) -> Vec<String> {
        let dir = self.data_dir.iter().flat_map(|dir| ["--data-dir".to_string(), dir.clone()]);
        let presets = self.presets.iter().flat_map(|preset| ["--preset".to_string(), preset.clone()]);
        let settings = self.settings.iter().flat_map(|setting| assigned(setting));
        std::iter::once(self.data.clone()).chain(dir).chain(presets).chain(settings).collect()
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// kNN when the run is over.
    Knn,
    /// kNN after this round, from 0.
    Round(u32),
    /// A linear classifier on the features of AlexNet's last convolution.
    Linear,
    /// mAP of a detector built on the network, on PASCAL VOC 2007.
    Detection,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Number of its table.
    pub table: u8,
    /// Its name within the table.
    pub name: String,
    /// How its network is trained.
    pub recipe: Recipe,
    /// What is measured.
    pub measure: Measure,
    /// The paper's figure, in percent.
    pub paper: f64,
}

impl Cell {
    /// A cell with the kNN of a finished run.
    pub fn new(table: u8, name: impl Into<String>, recipe: Recipe, paper: f64) -> Cell {
        Cell { table, name: name.into(), recipe, measure: Measure::Knn, paper }
    }

    /// With another measure.
    pub fn measured(self, measure: Measure) -> Cell {
        Cell { measure, ..self }
    }

    /// What must be known to read it.
    pub fn note(&self) -> Option<&'static str> {
        let one_off =
            "AND is its one-off form here (preset and-oneoff: a round of instances, then one of anchors alone)";
        match self.recipe.system {
            "and-oneoff" => Some(one_off),
            "supervised" => Some("kNN of the supervised network is on pooled features: nothing trains its embedding"),
            _ => None,
        }
    }

    /// The name by which a user calls it: `table3/dc-nc100`.
    pub fn id(&self) -> String {
        format!("table{}/{}", self.table, self.name)
    }

    /// Whether the scale has it: a smaller one has fewer rounds.
    pub fn is_at(&self, scale: Scale) -> bool {
        match (self.measure, self.recipe.rounds) {
            (Measure::Round(round), Some(rounds)) => round < scale.rounds(rounds),
            _ => true,
        }
    }
}
