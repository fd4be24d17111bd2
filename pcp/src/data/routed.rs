//! Batches of several processes: every view is made by the process that has the image, and sent to the one that computes with it.

use super::loader::{Draw, Loader, Part, View};
use super::share::Route;
use super::{Batch, BatchShare, Prefetch};
use pcp_core::error::Result;
use pcp_core::peers::Team;

/// The views of batches, in order: of each, the rows of this process. All processes take the next one at the same time.
pub struct Routed {
    team: Team,
    /// Values of a view.
    floats: usize,
    made: Prefetch<MadeViews>,
}

/// The views of a batch that this process has made, in the order in which they are sent; alone, in the order of the batch.
struct MadeViews {
    draws: Vec<Draw>,
    share: BatchShare,
    route: Option<Route>,
    batch: Batch,
}

impl Routed {
    /// The `views` of the training images of `batches`; `parts` gives the number of parts, with batch-norm statistics of their own, of a batch
    /// of so many images.
    pub fn new(loader: &Loader, batches: Vec<Vec<Draw>>, views: Vec<View>, parts: impl Fn(usize) -> usize) -> Routed {
        let (floats, team) = (loader.floats(), loader.team().clone());
        let (loader, among) = (loader.clone(), team.clone());
        let batches: Vec<_> = batches.into_iter().map(|draws| (parts(draws.len()), draws)).collect();
        let made = Prefetch::new(batches, move |(parts, draws): (usize, Vec<Draw>)| {
            let rows = draws.len() * views.len();
            let share = BatchShare::new(rows, parts, &among);
            if !among.several() {
                let batch = loader.batch(Part::Train, &draws, &views)?;
                return Ok(MadeViews { draws, share, route: None, batch });
            }
            let images = loader.images(Part::Train);
            let route = Route::new(rows, &share, &among, |row| images.reader(draws[row % draws.len()].row));
            let view = |row: &usize| (draws[row % draws.len()], views[row / draws.len()]);
            let batch = loader.views(Part::Train, &route.sends.iter().map(view).collect::<Vec<_>>())?;
            Ok(MadeViews { draws, share, route: Some(route), batch })
        });
        Routed { team, floats, made }
    }
}

impl Iterator for Routed {
    /// The images of the whole batch, the share of this process, and its rows.
    type Item = Result<(Vec<Draw>, BatchShare, Batch)>;

    fn next(&mut self) -> Option<Self::Item> {
        let made = self.made.next()?;
        Some(made.map(|MadeViews { draws, share, route, batch }| {
            let moved = |route: Route| Batch {
                rows: route.received(),
                pixels: route.moved(&self.team, &batch.pixels, self.floats),
            };
            let batch = route.map(moved).unwrap_or(batch);
            (draws, share, batch)
        }))
    }
}
