//! Colours and light of the pictures of a purification, by which rows are unlike all others ([`crate::report::strangers`]).

use crate::jobs::part::JobPart;
use crate::jobs::pictures::Gallery;
use crate::observe::Observer;
use crate::report::strangers::seen;
use pcp_core::error::Result;
use pcp_core::matrix::Matrix;
use rayon::prelude::*;
use std::sync::Arc;

/// Pictures that are opened at a time.
const BLOCK: usize = 256;

/// Colours and light of the pictures of all rows.
pub(super) fn described(gallery: &Gallery, rows: usize, observer: &Arc<dyn Observer>) -> Result<[Matrix; 2]> {
    let part = JobPart::begin("pictures", rows, observer);
    let mut all = Vec::with_capacity(rows);
    let outcome = (0..rows as u32).collect::<Vec<_>>().chunks(BLOCK).try_for_each(|some| {
        let pictures = gallery.pictures(some);
        let made = (0..pictures.len()).into_par_iter().map(|i| Ok(seen(&pictures.sample(i)?.image)));
        all.extend(made.collect::<Result<Vec<_>>>()?);
        part.step(all.len(), rows)
    });
    part.end();
    outcome?;
    Ok(crate::report::strangers::described(&all))
}
