//! The paper's tables as data: every cell with the paper's figure, the run that fills it at each scale, what is kept of it,
//! and the page that is made of them.
//!
//! ```text
//! <out>/<scale>/runs/<run>/               run folders
//! <out>/<scale>/table3/dc-nc100-s0.json   a cell and its seed
//! <out>/<scale>/table3.md                 the table
//! <out>/<scale>/table3.notes.md           findings somebody wrote, put under the table
//! ```

mod cell;
mod record;
mod render;
mod scale;
mod tables;

pub use cell::{Cell, Measure, Recipe, Run};
pub use record::{CellRecord, LINEAR_LAYER, linear};
pub use render::{Known, page, text};
pub use scale::{Data, Net, Scale};
pub use tables::{Row, Table, tables};

use crate::config::{Config, System};
use crate::error::{Error, Result, listed};

/// The cells of `tables` that are asked for by name or by part of it; all when nothing is.
pub fn select(tables: &[Table], only: &[String]) -> Result<Vec<Cell>> {
    let all: Vec<&Cell> = tables.iter().flat_map(Table::cells).collect();
    let mut chosen = vec![only.is_empty(); all.len()];
    for word in only {
        // A whole name means that cell alone, though it may be part of others' names.
        let whole = all.iter().any(|cell| cell.id() == *word);
        let meant = |cell: &Cell| if whole { cell.id() == *word } else { cell.id().contains(word.as_str()) };
        if !all.iter().any(|cell| meant(cell)) {
            let cells = listed(all.iter().map(|cell| cell.id()));
            return Err(Error::usage(format!("there is no cell {word}"), format!("the cells are {cells}")));
        }
        all.iter().zip(&mut chosen).for_each(|(cell, chosen)| *chosen |= meant(cell));
    }
    Ok(all.into_iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(cell, _)| cell.clone()).collect())
}

/// A run and the cells that it fills.
#[derive(Clone, Debug)]
pub struct Job {
    /// The run.
    pub run: Run,
    /// Its cells.
    pub cells: Vec<Cell>,
}

impl Job {
    /// What it is trained on.
    pub fn data(&self) -> Option<Data> {
        self.cells.first().map(|cell| cell.recipe.data)
    }

    /// Its cells, in few words.
    pub fn title(&self) -> String {
        let first = self.cells.first().map(Cell::id).unwrap_or_default();
        if self.cells.len() > 1 { format!("{first} and {} more", self.cells.len() - 1) } else { first }
    }
}

/// The runs that fill `cells`, each once, all of a seed before the next. Cells that cannot be measured yet, or that the scale
/// does not have, need none.
pub fn plan(cells: &[Cell], scale: Scale, dir: Option<&str>, seeds: &[u32]) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for seed in seeds {
        for cell in cells.iter().filter(|cell| cell.measure.exists() && cell.is_at(scale)) {
            let run = cell.recipe.run(scale, dir, *seed);
            match jobs.iter_mut().find(|job| job.run == run) {
                Some(job) => job.cells.push(cell.clone()),
                None => jobs.push(Job { run, cells: vec![cell.clone()] }),
            }
        }
    }
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
