//! Rows that are unlike all others: by their embeddings and, where there are pictures, by their colours and light.

use crate::data::resize::resize;
use crate::jobs::part::JobPart;
use crate::jobs::pictures::Gallery;
use crate::observe::Observer;
use pcp_core::appearance;
use pcp_core::copies::{SIDE, Thumbnail};
use pcp_core::error::Result;
use pcp_core::matrix::Matrix;
use pcp_core::outliers;
use rayon::prelude::*;
use std::sync::Arc;

/// Pictures that are opened at a time.
const BLOCK: usize = 256;
/// Rows that are listed at the most, and one in how many.
const MOST: usize = 200;
const ONE_IN: usize = 20;

/// What is said beside the list.
pub(super) const ABOUT: &str = "A guess: images far from all others, by their embeddings, colours and light. How good such lists are depends on the collection: of 15 strangers put among \
    photographs of fruit 12 came among the first 30, among photographs of birds 1 did, no more than by chance. outliers.csv has more of them; pcp look tries strangers among your own pictures.";

/// Colours and light of the pictures of all rows.
pub(super) fn described(gallery: &Gallery, rows: usize, observer: &Arc<dyn Observer>) -> Result<[Matrix; 2]> {
    let part = JobPart::begin("pictures", rows, observer);
    let (mut thumbnails, mut shapes) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let all: Vec<u32> = (0..rows as u32).collect();
    let outcome = all.chunks(BLOCK).try_for_each(|some| {
        let pictures = gallery.pictures(some);
        let made = (0..pictures.len()).into_par_iter().map(|i| {
            let image = pictures.sample(i)?.image;
            let pixels = resize(&image, SIDE, SIDE).pixels;
            Ok((Thumbnail { pixels, small: false }, image.width as f32 / image.height.max(1) as f32))
        });
        for (thumbnail, shape) in made.collect::<Result<Vec<_>>>()? {
            thumbnails.push(thumbnail);
            shapes.push(shape);
        }
        part.step(thumbnails.len(), rows)
    });
    part.end();
    outcome?;
    Ok(appearance::described(&thumbnails.iter().collect::<Vec<_>>(), &shapes))
}

/// The rows that are most unlike all others, the most unlike first.
pub(super) fn unlike(features: &Matrix, seen: Option<&[Matrix; 2]>) -> Vec<(usize, f32)> {
    let mut descriptions = vec![features];
    descriptions.extend(seen.into_iter().flatten());
    let mut rows: Vec<(usize, f32)> = outliers::unlike(&descriptions).into_iter().enumerate().collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    rows.truncate((features.rows / ONE_IN).clamp(1, MOST));
    rows
}
