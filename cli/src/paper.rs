//! The paper's tables as data: every cell with the paper's figure, the run that fills it at each scale, what is kept of it,
//! and the page that is made of them.
//!
//! ```text
//! <out>/<scale>/runs/<run>/               run folders; <run>-voc/ has the detector on that network
//! <out>/<scale>/table3/dc-nc100-s0.json   a cell and its seed
//! <out>/<scale>/table3.md                 the table
//! <out>/<scale>/table3.notes.md           findings somebody wrote, put under the table
//! <out>/<scale>/figure5/dc.json, dc/      a figure's panel: what was measured, its pictures
//! <out>/<scale>/figure5.md                the figure
//! ```

mod cell;
mod figures;
mod record;
mod render;
mod results;
mod scale;
mod tables;

pub use cell::{Cell, Measure, Recipe, Run};
pub use figures::{Figure, Found, Panel, PanelRecord, Shows, figure_page, figures};
pub use record::CellRecord;
pub use render::{Known, page, text};
pub use results::{LINEAR_LAYER, detection, detector_folder, linear};
pub use scale::{Data, Scale};
pub use tables::{Table, tables};

use pcp::config::{Config, System};
use pcp_core::error::{Error, Result, listed};

/// The cells of `tables` and the panels of `figures` that are asked for by name or by part of it; all when nothing is.
pub fn select(tables: &[Table], figures: &[Figure], only: &[String]) -> Result<(Vec<Cell>, Vec<Panel>)> {
    let cells: Vec<&Cell> = tables.iter().flat_map(Table::cells).collect();
    let panels: Vec<&Panel> = figures.iter().flat_map(|figure| &figure.panels).collect();
    let all: Vec<String> = cells.iter().map(|cell| cell.id()).chain(panels.iter().map(|panel| panel.id())).collect();
    let mut chosen = vec![only.is_empty(); all.len()];
    for word in only {
        // A whole name means that cell alone, though it may be part of others' names.
        let whole = all.contains(word);
        let meant = |id: &String| if whole { id == word } else { id.contains(word.as_str()) };
        if !all.iter().any(meant) {
            return Err(Error::usage(format!("there is no cell {word}"), format!("the cells are {}", listed(&all))));
        }
        all.iter().zip(&mut chosen).for_each(|(id, chosen)| *chosen |= meant(id));
    }
    let (of_tables, of_figures) = chosen.split_at(cells.len());
    let cells = cells.into_iter().zip(of_tables).filter(|(_, chosen)| **chosen).map(|(cell, _)| cell.clone());
    let panels = panels.into_iter().zip(of_figures).filter(|(_, chosen)| **chosen).map(|(panel, _)| panel.clone());
    Ok((cells.collect(), panels.collect()))
}

/// A run, and the cells and panels that are made of it.
#[derive(Clone, Debug)]
pub struct Job {
    /// The run.
    pub run: Run,
    /// What it is trained on.
    pub data: Data,
    /// Its cells.
    pub cells: Vec<Cell>,
    /// Its panels.
    pub panels: Vec<Panel>,
}

impl Job {
    /// The names of all that is made of it.
    pub fn ids(&self) -> Vec<String> {
        self.cells.iter().map(Cell::id).chain(self.panels.iter().map(Panel::id)).collect()
    }

    /// The same in few words.
    pub fn title(&self) -> String {
        let ids = self.ids();
        let first = ids.first().cloned().unwrap_or_default();
        if ids.len() > 1 { format!("{first} and {} more", ids.len() - 1) } else { first }
    }
}

/// The runs that fill `cells` and draw `panels`, each once, all of a seed before the next; panels are drawn from the first seed.
/// Cells that the scale does not have need none.
pub fn plan(cells: &[Cell], panels: &[Panel], scale: Scale, dir: Option<&str>, seeds: &[u32]) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut job = |recipe: &Recipe, seed: u32| -> usize {
        let run = recipe.run(scale, dir, seed);
        let found = jobs.iter().position(|job| job.run == run);
        found.unwrap_or_else(|| {
            jobs.push(Job { run, data: recipe.data, cells: Vec::new(), panels: Vec::new() });
            jobs.len() - 1
        })
    };
    let (mut of_cells, mut of_panels) = (Vec::new(), Vec::new());
    for (i, seed) in seeds.iter().enumerate() {
        for cell in cells.iter().filter(|cell| cell.is_at(scale)) {
            of_cells.push((job(&cell.recipe, *seed), cell));
        }
        for panel in panels.iter().filter(|_| i == 0) {
            of_panels.push((job(&panel.recipe, *seed), panel));
        }
    }
    of_cells.into_iter().for_each(|(at, cell)| jobs[at].cells.push(cell.clone()));
    of_panels.into_iter().for_each(|(at, panel)| jobs[at].panels.push(panel.clone()));
    jobs
}

/// How much work a run on `images` images is, in views that go through the network: what an estimate of its time goes by.
pub fn work(config: &Config, images: usize) -> f64 {
    let (train, objective) = (&config.train, &config.objective);
    let always_two = matches!(config.method.system, System::Is | System::Moco) || objective.bank_views == 2;
    let warmed_up = f64::from(train.rounds.min(objective.warmup_rounds)) * objective.warmup_until;
    let views = f64::from(train.rounds) + if always_two { f64::from(train.rounds) } else { warmed_up };
    // One more for the end: embeddings, clusters, probes.
    (views * f64::from(train.epochs) + 1.0) * images as f64
}

#[cfg(test)]
mod tests;
