//! Copies of pictures: the same picture resized, recompressed, cropped a little, mirrored or brightened, found without training.
//!
//! 1. A perceptual hash of 63 bits: the signs of the lowest frequencies of a picture, above or below their median (`hash`). Beside it those of the
//!    mirror image, of the inner 90 %, and of its mirror image. All pairs are compared; those within [`NEAR`] bits are candidates.
//! 2. A candidate is confirmed pixel by pixel: one picture is shifted and stretched onto the other, and the edges of both, in colour, are
//!    correlated (`align`). Copies correlate by 0.97 to 1, different pictures with the same layout seldom by more than 0.6.
//! 3. A group holds pictures of which every two are copies of each other (`link`).

mod align;
mod hash;
pub mod link;

use crate::error::Result;
use align::Levels;
use hash::Hashes;
use rayon::prelude::*;

/// Width and height of a [`Thumbnail`].
pub const SIDE: usize = 48;
/// Bits in which the hashes of copies differ at the most.
pub const NEAR: u32 = 14;
/// Correlation of the edges of copies at the least. Of copies put among photographs, all have 0.97 or more; pairs from 0.7 to 0.9 are other shots of
/// the same scene.
pub const LEAST: f32 = 0.9;
/// The same for pictures that are smaller than a thumbnail, and have fewer edges: copies of pictures of 32 pixels have 0.72 to 1, other pairs 0.75 or less.
pub const LEAST_SMALL: f32 = 0.8;
/// Largest difference of two thumbnails, of 255, that nobody sees.
const UNSEEN: u8 = 1;
/// Rows of a work unit.
const BLOCK: usize = 64;

/// A picture shrunk to a square, whatever its shape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thumbnail {
    /// `[SIDE, SIDE, 3]`, red, green, blue.
    pub pixels: Vec<u8>,
    /// Whether the picture is smaller than its thumbnail.
    pub small: bool,
}

/// How two copies differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PictureCopy {
    /// Correlation of their edges, up to 1.
    pub likeness: f32,
    /// Whether one is the mirror image of the other.
    pub mirrored: bool,
    /// Whether one shows only a part of the other.
    pub cropped: bool,
}

impl PictureCopy {
    /// Two pictures that nobody can tell apart.
    const SAME: PictureCopy = PictureCopy { likeness: 1.0, mirrored: false, cropped: false };
}

/// How `a` and `b` differ when they are copies, else `None`.
pub fn compare(a: &Thumbnail, b: &Thumbnail) -> Option<PictureCopy> {
    if a.pixels.iter().zip(&b.pixels).all(|(x, y)| x.abs_diff(*y) <= UNSEEN) {
        return Some(PictureCopy::SAME);
    }
    let least = if a.small || b.small { LEAST_SMALL } else { LEAST };
    let (a, other, turned) = (Levels::new(a, false), Levels::new(b, false), Levels::new(b, true));
    let copy = |mirrored: bool, b: &Levels| {
        let found = align::correlation(&a, b)?;
        Some(PictureCopy { likeness: found.likeness, mirrored, cropped: found.cropped })
    };
    let better = |x: Option<PictureCopy>, y: Option<PictureCopy>| match (x, y) {
        (Some(x), Some(y)) => Some(if y.likeness > x.likeness { y } else { x }),
        (x, y) => x.or(y),
    };
    better(copy(false, &other), copy(true, &turned)).filter(|copy| copy.likeness >= least)
}

/// Groups of rows that are copies of each other, in growing order, the surest first; `tick` gets the number of rows done, its error ends the search.
///
/// `candidates` are pairs that are compared whatever their hashes. A group's likeness is the least of its pairs.
pub fn groups(
    thumbnails: &[Thumbnail],
    candidates: &[(usize, usize)],
    tick: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Vec<link::Linked>> {
    // Equal thumbnails are one row of the search.
    let rows: Vec<usize> = (0..thumbnails.len()).collect();
    let equal = link::equal(&rows, &|a, b| thumbnails[a].cmp(&thumbnails[b]));
    let first = |at: usize| &thumbnails[equal[at][0]];
    // The place of every row among them.
    let mut place = vec![0; thumbnails.len()];
    equal.iter().enumerate().for_each(|(at, rows)| rows.iter().for_each(|row| place[*row] = at));
    let hashes: Vec<Hashes> = (0..equal.len()).into_par_iter().map(|at| Hashes::of(first(at))).collect();
    let mut pairs: Vec<(usize, usize, f32)> = Vec::new();
    for start in (0..equal.len()).step_by(BLOCK * 16) {
        tick(start)?;
        let rows: Vec<usize> = (start..(start + BLOCK * 16).min(equal.len())).collect();
        let found = rows.par_chunks(BLOCK).map(|rows| {
            let mut found = Vec::new();
            for &a in rows {
                for b in a + 1..equal.len() {
                    if hashes[a].distance(&hashes[b]) <= NEAR
                        && let Some(copy) = compare(first(a), first(b))
                    {
                        found.push((a, b, copy.likeness));
                    }
                }
            }
            found
        });
        pairs.extend(found.collect::<Vec<_>>().into_iter().flatten());
    }
    let mut asked: Vec<(usize, usize)> = (candidates.iter())
        .map(|(a, b)| (place[*a].min(place[*b]), place[*a].max(place[*b])))
        .filter(|(a, b)| a != b && hashes[*a].distance(&hashes[*b]) > NEAR)
        .collect();
    asked.sort_unstable();
    asked.dedup();
    for asked in asked.chunks(BLOCK * 16) {
        tick(equal.len())?;
        let found = asked.par_iter().map(|(a, b)| Some((*a, *b, compare(first(*a), first(*b))?.likeness)));
        pairs.extend(found.collect::<Vec<_>>().into_iter().flatten());
    }
    let linked = link::complete(equal.len(), pairs, &|a, b| compare(first(a), first(b)).map(|copy| copy.likeness));
    let groups = link::with_equal(linked, &equal);
    tick(thumbnails.len())?;
    Ok(groups)
}

#[cfg(test)]
mod tests;
