//! Copies of pictures: the same picture resized, recompressed, cropped a little, mirrored or brightened, found without training.
//!
//! 1. A perceptual hash of 63 bits: the signs of the lowest frequencies of a picture, above or below their median ([`hash`]). Beside it those of the
//!    mirror image, of the inner 90 %, and of its mirror image. All pairs are compared; those within [`NEAR`] bits are candidates.
//! 2. A candidate is confirmed pixel by pixel: one picture is shifted and stretched onto the other, and the edges of both, in colour, are
//!    correlated ([`align`]). Copies correlate by 0.8 to 1, different pictures with the same layout by 0.5 at the most.
//! 3. A group holds pictures of which every two are copies of each other ([`link`]).

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
/// Correlation of the edges of copies at the least. On photographs with copies put among them, copies have 0.77 or more (the least are pictures of
/// 32 pixels that were halved), other pairs 0.57 or less.
pub const LEAST: f32 = 0.7;
/// Largest difference of two thumbnails, of 255, that nobody sees.
const UNSEEN: u8 = 1;
/// Rows of a work unit.
const BLOCK: usize = 64;

/// A picture shrunk to a square, whatever its shape: `[SIDE, SIDE, 3]`, red, green, blue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thumbnail(pub Vec<u8>);

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
    if a.0.iter().zip(&b.0).all(|(x, y)| x.abs_diff(*y) <= UNSEEN) {
        return Some(PictureCopy::SAME);
    }
    let (a, other, turned) = (Levels::new(a, false), Levels::new(b, false), Levels::new(b, true));
    let copy = |mirrored: bool, b: &Levels| {
        let found = align::correlation(&a, b)?;
        Some(PictureCopy { likeness: found.likeness, mirrored, cropped: found.cropped })
    };
    let better = |x: Option<PictureCopy>, y: Option<PictureCopy>| match (x, y) {
        (Some(x), Some(y)) => Some(if y.likeness > x.likeness { y } else { x }),
        (x, y) => x.or(y),
    };
    better(copy(false, &other), copy(true, &turned)).filter(|copy| copy.likeness >= LEAST)
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
    let mut order: Vec<usize> = (0..thumbnails.len()).collect();
    order.sort_by(|a, b| thumbnails[*a].cmp(&thumbnails[*b]).then(a.cmp(b)));
    let mut equal: Vec<Vec<usize>> =
        order.chunk_by(|a, b| thumbnails[*a] == thumbnails[*b]).map(<[usize]>::to_vec).collect();
    equal.sort_by_key(|rows| rows[0]);
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
    let mut alone = vec![true; equal.len()];
    linked.iter().for_each(|group| group.rows.iter().for_each(|at| alone[*at] = false));
    let mut groups = linked;
    for group in &mut groups {
        group.rows = group.rows.iter().flat_map(|at| equal[*at].iter().copied()).collect();
        group.rows.sort_unstable();
    }
    let same = (0..equal.len()).filter(|at| alone[*at] && equal[*at].len() > 1);
    groups.extend(same.map(|at| link::Linked { rows: equal[at].clone(), likeness: 1.0 }));
    link::surest_first(&mut groups);
    tick(thumbnails.len())?;
    Ok(groups)
}

#[cfg(test)]
mod tests;
