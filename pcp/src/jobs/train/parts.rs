//! A training whose batches are computed in a fixed number of parts, on any number of processes: the bits depend on the parts alone.

use super::TrainResult;
use crate::observe::{Observer, Silent};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::peers::Team;
use pcp_core::peers::parts;
use std::sync::Arc;

/// Tells everything to another observer, and is cancelled when all parts have agreed on it.
struct Agreed {
    told: Arc<dyn Observer>,
    agreed: Cancel,
}

impl Observer for Agreed {
    fn next(&self) -> Option<&dyn Observer> {
        Some(self.told.as_ref())
    }

    fn cancel(&self) -> &Cancel {
        &self.agreed
    }
}

/// Runs `job` in so many `parts`; 0: as many as there are processes.
pub(super) fn in_parts(
    team: &Team,
    parts: usize,
    observer: &Arc<dyn Observer>,
    job: impl Fn(&Team, &Arc<dyn Observer>) -> Result<TrainResult> + Sync,
) -> Result<TrainResult> {
    if parts == 0 || parts == team.count() {
        return job(team, observer);
    }
    let wanted = if team.several() { team.wanted() } else { observer.cancel() };
    let found = parts::in_parts(team.peers(), parts, |peers| {
        let agreed = Cancel::default();
        let told: Arc<dyn Observer> = match peers.rank() {
            0 => Arc::new(Agreed { told: observer.clone(), agreed }),
            _ => Arc::new(Silent(agreed)),
        };
        job(&Team::new(peers, wanted.clone()), &told)
    })?;
    // The first error, or the result of the first part.
    let mut ended: Vec<Result<TrainResult>> = found.into_iter().flatten().collect();
    let at = ended.iter().position(Result::is_err).unwrap_or(0);
    if ended.is_empty() {
        Err(Error::training("all parts of the training ended", "please report this"))
    } else {
        ended.swap_remove(at)
    }
}
