//! Pictures that are unlike the others in colours and light, and a trial that says how far such a list can be trusted.
//!
//! Strangers, some of the bundled photographs, are put among the pictures: as many as come to the top of the list, as well the list tells strangers from
//! the pictures of this collection. Among photographs of one kind nearly all do; among photographs of everything hardly any.

use crate::data::facts::PictureFacts;
use crate::data::{Image, Load, Size, Source, load};
use crate::jobs::findings::Surveyed;
use crate::jobs::part::on_pool;
use crate::observe::Observer;
use pcp_core::appearance::described;
use pcp_core::copies::Thumbnail;
use pcp_core::error::Result;
use pcp_core::outliers::unlike as scores;
use std::sync::Arc;

/// Strangers of the trial, the length of the list they should come into, and how many must for the list to be shown.
const STRANGERS: usize = 15;
const FIRST: usize = 30;
const ENOUGH: usize = 5;
/// The fewest pictures among which others are unlike, and the most that are compared. Of 300, `ENOUGH` strangers come into the list by chance once in
/// a hundred times; of 100, once in three.
const FEWEST: usize = 300;
const MOST: usize = 30_000;

/// What is unlike the others, and what the trial said.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StrangerTrial {
    /// The pictures that are most unlike the others, with their scores.
    pub rows: Vec<(usize, f32)>,
    /// Whether strangers were told.
    pub tells: bool,
    /// What it means, in a sentence.
    pub about: String,
}

/// Finds the pictures that are most unlike the others.
pub(super) fn unlike(surveyed: &Arc<Surveyed>, observer: &Arc<dyn Observer>) -> Result<StrangerTrial> {
    let count = surveyed.facts.len();
    if !(FEWEST..=MOST).contains(&count) {
        let about = format!("A guess that is made for {FEWEST} to {MOST} pictures.");
        return Ok(StrangerTrial { about, ..StrangerTrial::default() });
    }
    let inside = surveyed.clone();
    on_pool("unlike", 0, observer, move |_| {
        let request = Load { limit: Some(STRANGERS), ..Load::new(Source::Bundled) };
        let bundled = load(&request, &|_, _| ())?.train.images;
        let images = (0..bundled.len().min(STRANGERS)).map(|i| Ok(bundled.sample(i)?.image.into_owned()));
        let strangers: Vec<PictureFacts> = images.map(|image| Ok(facts_of(image?))).collect::<Result<_>>()?;
        Ok(tried(&inside.facts, &strangers))
    })
}

fn facts_of(image: Image) -> PictureFacts {
    let size = Size { width: image.width, height: image.height };
    PictureFacts::new(image, size, None, [0; 32])
}

fn tried(facts: &[PictureFacts], strangers: &[PictureFacts]) -> StrangerTrial {
    let mut shapes: Vec<f32> = facts.iter().map(PictureFacts::shape).collect();
    let mut thumbnails: Vec<&Thumbnail> = facts.iter().map(|facts| &facts.thumbnail).collect();
    let list = FIRST.min(facts.len() / 20);
    let rows = first(&thumbnails, &shapes, list);
    // The shape of a stranger does not count: it has the usual one.
    let mut sorted = shapes.clone();
    sorted.sort_unstable_by(f32::total_cmp);
    shapes.extend(std::iter::repeat_n(sorted[sorted.len() / 2], strangers.len()));
    thumbnails.extend(strangers.iter().map(|facts| &facts.thumbnail));
    let told = first(&thumbnails, &shapes, FIRST).iter().filter(|(at, _)| *at >= facts.len()).count();
    let trial = format!(
        "of {} strangers (photographs of fruit) put among these pictures for a trial, {told} were among the {FIRST} most unlike",
        strangers.len()
    );
    match told >= ENOUGH {
        true => StrangerTrial {
            rows,
            tells: true,
            about: format!("A guess: in colours and light far from all others. How good it is: {trial}."),
        },
        false => StrangerTrial {
            rows: Vec::new(),
            tells: false,
            about: format!("It cannot be told which of these pictures are unlike the others: {trial}."),
        },
    }
}

/// The `count` pictures that are most unlike the others.
fn first(thumbnails: &[&Thumbnail], shapes: &[f32], count: usize) -> Vec<(usize, f32)> {
    let [colours, light] = described(thumbnails, shapes);
    let mut rows: Vec<(usize, f32)> = scores(&[&colours, &light]).into_iter().enumerate().collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    rows.truncate(count);
    rows
}
