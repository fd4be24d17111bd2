//! The paper's figures that are made of trained networks: where they look (1 and 4), and how their features lie (5).

use super::cell::Recipe;
use super::scale::{Data, Scale};
use pcp::evaluate::clusters::ClusterScore;
use pcp::evaluate::heatmap::HeatInBoxes;
use pcp::run::RunFolder;
use pcp_core::error::{Error, Result};
use pcp_core::io::atomic::{make_tidy_folder, read_bytes, write_bytes};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A figure of the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its number.
    pub number: u8,
    /// What it shows.
    pub title: &'static str,
    /// The networks, side by side.
    pub panels: Vec<Panel>,
}

/// One network of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Number of its figure.
    pub figure: u8,
    /// Its name within the figure.
    pub name: &'static str,
    /// Heading.
    pub label: &'static str,
    /// How the network is trained.
    pub recipe: Recipe,
    /// What is drawn of it.
    pub shows: Shows,
}

/// What is drawn of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Heat maps along the way.
    Heat,
    /// t-SNE of the test features, and their clusters.
    Clusters,
}

/// States of a network whose heat is shown: so many, evenly spaced over its training.
pub const STATES: u32 = 5;

impl Figure {
    /// Its name for users: `figure5`.
    pub fn name(&self) -> String {
        format!("figure{}", self.number)
    }
}

impl Panel {
    /// The name by which a user calls it: `figure5/dc`.
    pub fn id(&self) -> String {
        format!("figure{}/{}", self.figure, self.name)
    }
}

/// The figures.
pub fn figures() -> Vec<Figure> {
    /// N_c of the figures of heat.
    const FLOOR: usize = 1000;
    /// N_c of the clusters: as many as there are classes.
    const CLASSES: usize = 10;
    let system = |system| Recipe::new(Data::Cifar10, system);
    let heat = |figure, name, label, recipe: Recipe| {
        let recipe = recipe.set("run.snapshots", STATES);
        Panel { figure, name, label, recipe, shows: Shows::Heat }
    };
    let warm = |figure| heat(figure, "pcp-warm", "PCP with warm-up", system("pcp").clusters(FLOOR));
    let clusters = |name, label, recipe| Panel { figure: 5, name, label, recipe, shows: Shows::Clusters };
    vec![
        Figure {
            number: 1,
            title: "where the network looks while it learns",
            panels: vec![heat(1, "ir", "IR", system("ir")), heat(1, "dc", "DC", system("dc").clusters(FLOOR)), warm(1)],
        },
        Figure {
            number: 4,
            title: "where the networks look while they learn",
            panels: vec![
                heat(4, "and", "AND", system("and-oneoff")),
                heat(4, "pcp", "PCP", system("pcp-nowarm").clusters(FLOOR)),
                warm(4),
            ],
        },
        Figure {
            number: 5,
            title: "features and clusters of the test images (N_c = 10)",
            panels: vec![
                clusters("dc", "DC", system("dc").clusters(CLASSES)),
                clusters("and", "AND", system("and-oneoff")),
                clusters("pcp", "PCP", system("pcp").clusters(CLASSES)),
            ],
        },
    ]
}

/// A panel as it came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PanelRecord {
    /// The figure.
    pub figure: String,
    /// The panel's name in it.
    pub panel: String,
    /// The system, by its preset.
    pub system: String,
    /// The scale.
    pub scale: String,
    /// The data set that was trained on.
    pub data: String,
    /// The command that began the run.
    pub command: String,
    /// Revision of the program.
    pub revision: String,
    /// The seed.
    pub seed: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// kNN at the end, in percent.
    pub knn_last: Option<f64>,
    /// What was found.
    #[serde(flatten)]
    pub found: Found,
}

/// What was found out about a panel, beside its pictures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// Clusters of the test images.
    Clusters {
        /// Held against the classes.
        score: ClusterScore,
        /// Share of neighbours in the picture that are neighbours in truth.
        trustworthiness: Option<f64>,
    },
    /// How much of the heat lies in boxes, state after state.
    Heat {
        /// The states, in the order of time.
        states: Vec<HeatInBoxes>,
        /// Images that were looked at.
        images: usize,
    },
}

impl PanelRecord {
    /// The record of a panel that was drawn from a finished run.
    pub fn new(panel: &Panel, scale: Scale, run: &RunFolder, found: Found) -> Result<PanelRecord> {
        let result = run.finished()?;
        Ok(PanelRecord {
            figure: format!("figure{}", panel.figure),
            panel: panel.name.into(),
            system: panel.recipe.system.into(),
            scale: scale.name().into(),
            data: result.data,
            command: result.command,
            revision: result.revision,
            seed: result.seed,
            seconds: result.seconds,
            knn_last: result.knn_last,
            found,
        })
    }

    /// Writes it to its place in the `folder` of its scale.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(&self.figure).join(format!("{}.json", self.panel));
        make_tidy_folder(&folder.join(&self.figure))?;
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| Error::file(format!("{}: {e}", path.display()), "please report this"))?;
        write_bytes(&path, format!("{text}\n").as_bytes())
    }

    /// The record of `panel` in the `folder` of a scale, if it is there.
    pub fn read(folder: &Path, panel: &Panel) -> Result<Option<PanelRecord>> {
        let path = folder.join(format!("{}.json", panel.id()));
        if !path.exists() {
            return Ok(None);
        }
        let read = serde_json::from_slice(&read_bytes(&path)?);
        read.map(Some).map_err(|e| {
            let hint = "remove the file and give the same command again: its run makes it anew";
            Error::file(format!("{}: {e}", path.display()), hint)
        })
    }
}

/// The page of `figure`: what was measured, and its pictures.
pub fn figure_page(figure: &Figure, scale: Scale, known: &[(Panel, Option<PanelRecord>)]) -> String {
    let mut page = format!("# Figure {}: {}\n\n", figure.number, figure.title);
    let drawn: Vec<(&Panel, &PanelRecord)> =
        known.iter().filter_map(|(panel, record)| Some((panel, record.as_ref()?))).collect();
    let missing = known.iter().filter(|(_, record)| record.is_none());
    for (panel, _) in missing {
        page += &format!("{} has not been drawn.\n\n", panel.label);
    }
    page += &clusters(&drawn);
    page += &heat(&drawn);
    for (panel, _) in &drawn {
        let picture = match panel.shows {
            Shows::Clusters => "tsne.png",
            Shows::Heat => "heat.png",
        };
        page += &format!("![{}]({}/{picture})\n\n", panel.label, panel.id());
    }
    if figure.panels.iter().any(|panel| panel.shows == Shows::Heat) {
        page += "- a row is an image, a column a fifth of the training; red is where the last map has its longest vectors\n";
    } else {
        page += "- k-means of the features of all test images, k = the number of classes; pictures from the same features by t-SNE\n";
    }
    page += &format!("- scale `{}`: {}\n", scale.name(), scale.summary());
    let dir = if scale == Scale::Tiny { "" } else { " --data-dir DATA" };
    page += &format!("- made by `pcp reproduce {} --scale {}{dir} --out results`\n", figure.name(), scale.name());
    page
}

/// A table: the heading of its corner, its columns, its rows.
fn table(corner: &str, columns: &[&str], rows: impl IntoIterator<Item = (String, Vec<String>)>) -> String {
    let mut text = format!("| {corner} | {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len() + 1));
    for (label, cells) in rows {
        text += &format!("| {label} | {} |\n", cells.join(" | "));
    }
    text + "\n"
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// How the clusters agree with the classes, and every cluster's majority.
fn clusters(drawn: &[(&Panel, &PanelRecord)]) -> String {
    let scores: Vec<(&str, &PanelRecord, &ClusterScore)> = drawn
        .iter()
        .filter_map(|(panel, record)| match &record.found {
            Found::Clusters { score, .. } => Some((panel.label, *record, score)),
            Found::Heat { .. } => None,
        })
        .collect();
    if scores.is_empty() {
        return String::new();
    }
    let columns: Vec<&str> = scores.iter().map(|s| s.0).collect();
    let row = |label: &str, of: &dyn Fn(&PanelRecord, &ClusterScore) -> Option<String>| {
        (label.to_string(), scores.iter().map(|(_, record, score)| of(record, score).unwrap_or("-".into())).collect())
    };
    let missed = |_: &PanelRecord, s: &ClusterScore| {
        let missed = &s.agreement.as_ref()?.missed;
        Some(if missed.is_empty() { "none".into() } else { missed.join(", ") })
    };
    let rows = [
        row("majority purity", &|_, s| Some(percent(s.agreement.as_ref()?.purity))),
        row("classes that are no majority", &missed),
        row("accuracy (Hungarian)", &|_, s| Some(percent(s.agreement.as_ref()?.accuracy))),
        row("NMI", &|_, s| Some(format!("{:.3}", s.agreement.as_ref()?.nmi))),
        row("ARI", &|_, s| Some(format!("{:.3}", s.agreement.as_ref()?.ari))),
        row("silhouette", &|_, s| Some(format!("{:.3}", s.silhouette?))),
        row("kNN", &|r, _| Some(format!("{:.1} %", r.knn_last?))),
    ];
    let mut text = table("", &columns, rows);
    let most = scores.iter().map(|s| s.2.clusters.len()).max().unwrap_or(0);
    // The purest first, as the paper's bars.
    let sorted: Vec<Vec<String>> = scores
        .iter()
        .map(|(_, _, score)| {
            let mut rows: Vec<_> =
                score.clusters.iter().filter_map(|c| Some((c.purity?, c.majority.clone()?))).collect();
            rows.sort_by(|a, b| b.0.total_cmp(&a.0));
            rows.into_iter().map(|(purity, majority)| format!("{majority} {}", percent(purity))).collect()
        })
        .collect();
    let cell = |column: &Vec<String>, i: usize| column.get(i).cloned().unwrap_or_default();
    text += &table(
        "cluster",
        &columns,
        (0..most).map(|i| ((i + 1).to_string(), sorted.iter().map(|column| cell(column, i)).collect())),
    );
    text
}

/// The share of the heat inside the boxes, state after state.
fn heat(drawn: &[(&Panel, &PanelRecord)]) -> String {
    let mut rows = Vec::new();
    let mut area = None;
    for (panel, record) in drawn {
        let Found::Heat { states, .. } = &record.found else { continue };
        let boxed: Vec<String> = states.iter().filter_map(|s| s.inside.map(percent)).collect();
        area = area.or(states.first().and_then(|s| s.area.map(|area| (area, s.images_with_boxes))));
        if !boxed.is_empty() {
            rows.push((panel.label.to_string(), boxed));
        }
    }
    let Some((area, images)) = area else {
        let none = drawn.iter().any(|(panel, _)| panel.shows == Shows::Heat);
        return if none { "There were no boxes to measure the heat in.\n\n".into() } else { String::new() };
    };
    let columns: Vec<String> = (1..=STATES).map(|s| format!("{} %", 100 * s / STATES)).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let heading = format!(
        "Share of the heat inside the boxes of {images} VOC images, after so much of the training; the boxes are {} of the area.\n\n",
        percent(area)
    );
    heading + &table("system", &columns, rows)
}
