//! Copies among pictures that are made up.

use super::*;
use crate::rng::{Key, Purpose};

fn of(pixels: Vec<u8>) -> Thumbnail {
    Thumbnail { pixels, small: false }
}

/// Picture number `id` of the plane, seen through a window.
fn seen(id: u64, left: f32, top: f32, width: f32, height: f32) -> Thumbnail {
    let mut stream = Key { purpose: Purpose::Synthetic, seed: id, round: 0, epoch: 0 }.stream(0, 0);
    let waves: Vec<[f32; 4]> = (0..12).map(|i| [0, 1, 2, 3].map(|_| stream.normal() * (2.0 + i as f32))).collect();
    let value = |i: usize| {
        let (pixel, plane) = (i / 3, (i % 3) as f32);
        let x = left + width * ((pixel % SIDE) as f32 + 0.5) / SIDE as f32;
        let y = top + height * ((pixel / SIDE) as f32 + 0.5) / SIDE as f32;
        let sum: f32 = waves.iter().map(|w| (w[0] * x + w[1] * y + w[2] + plane * w[3] / 20.0).sin()).sum();
        (128.0 + 25.0 * sum).clamp(0.0, 255.0) as u8
    };
    of((0..SIDE * SIDE * 3).map(value).collect())
}

fn whole(id: u64) -> Thumbnail {
    seen(id, 0.0, 0.0, 1.0, 1.0)
}

fn mirrored(t: &Thumbnail) -> Thumbnail {
    of(t.pixels.chunks(SIDE * 3).flat_map(|row| row.chunks(3).rev().flatten().copied().collect::<Vec<u8>>()).collect())
}

fn found(thumbnails: &[Thumbnail]) -> Vec<Vec<usize>> {
    groups(thumbnails, &[], &mut |_| Ok(())).unwrap().into_iter().map(|g| g.rows).collect()
}

#[test]
fn copies_of_all_kinds_are_found_and_told_apart() {
    let mut pictures: Vec<Thumbnail> = (0..40).map(whole).collect();
    pictures.push(pictures[3].clone());
    pictures.push(mirrored(&pictures[5]));
    pictures.push(seen(7, 0.05, 0.05, 0.9, 0.9));
    pictures.push(mirrored(&seen(9, 0.02, 0.0, 0.95, 1.0)));
    pictures.push(of(pictures[11].pixels.iter().map(|x| (f32::from(*x) * 0.8) as u8).collect()));
    let mut groups = found(&pictures);
    assert_eq!(groups[0], [3, 40], "the surest first");
    groups.sort();
    assert_eq!(groups, [[3, 40], [5, 41], [7, 42], [9, 43], [11, 44]]);
    let of = |a: usize, b: usize| compare(&pictures[a], &pictures[b]).unwrap();
    assert_eq!(of(3, 40), PictureCopy::SAME);
    let kinds = [(5, 41), (7, 42), (9, 43), (11, 44)].map(|(a, b)| (of(a, b).mirrored, of(a, b).cropped));
    assert_eq!(kinds, [(true, false), (false, true), (true, true), (false, false)]);
    assert_eq!(compare(&pictures[0], &pictures[1]), None);
}

/// The search by its definition: every pair is compared, whatever its hash.
#[test]
fn hashes_lose_no_copy() {
    let cut = |id: u64| seen(id, 0.01 * (id % 4) as f32, 0.0, 0.96, 0.96);
    let pictures: Vec<Thumbnail> = (0..12).flat_map(|id| [whole(id), cut(id)]).collect();
    let mut pairs = Vec::new();
    for b in 0..pictures.len() {
        pairs.extend((0..b).filter_map(|a| Some((a, b, compare(&pictures[a], &pictures[b])?.likeness))));
    }
    let slow = link::complete(pictures.len(), pairs, &|_, _| None);
    assert_eq!(groups(&pictures, &[], &mut |_| Ok(())).unwrap(), slow);
    assert_eq!(slow.len(), 12);
}

#[test]
fn many_equal_ones_flat_ones_none_one_and_a_stop() {
    let mut pictures = vec![whole(1); 300];
    pictures.extend([10, 10, 200].map(|grey| of(vec![grey; SIDE * SIDE * 3])));
    assert_eq!(found(&pictures), [(0..300).collect::<Vec<_>>(), vec![300, 301]]);
    assert!(found(&[]).is_empty() && found(&[whole(1)]).is_empty());
    let stopped = groups(&[whole(1), whole(2)], &[], &mut |_| Err(crate::error::Error::stopped()));
    assert_eq!(stopped.unwrap_err().exit_code(), 130);
}

#[test]
fn pairs_that_are_asked_for_are_compared_whatever_their_hashes() {
    // A crop that no hash recognises.
    let (picture, part) = (whole(4), seen(4, 0.0, 0.0, 0.8, 0.8));
    assert!(Hashes::of(&picture).distance(&Hashes::of(&part)) > NEAR);
    let pictures = [whole(1), picture.clone(), part, picture];
    assert_eq!(found(&pictures), [[1, 3]]);
    let asked = groups(&pictures, &[(2, 1), (0, 0), (2, 1), (0, 2)], &mut |_| Ok(())).unwrap();
    assert_eq!(asked[0].rows, [1, 2, 3]);
    assert_eq!(asked.len(), 1);
}

#[test]
fn small_pictures_need_less() {
    // Some squares of one are brighter, as much as makes it too unlike for a large picture, but not for a small one.
    let picture = whole(3);
    let brighter = |by: u8| {
        let square = |i: usize| (i / 3 % SIDE / 4, i / 3 / SIDE / 4);
        let changed = |i: usize| (square(i).0 * 7 + square(i).1 * 13 + square(i).0 * square(i).1 * 5).is_multiple_of(3);
        let value = |(i, x): (usize, &u8)| if changed(i) { x.saturating_add(by) } else { *x };
        of(picture.pixels.iter().enumerate().map(value).collect())
    };
    let likeness = |other: &Thumbnail| {
        align::correlation(&Levels::new(&picture, false), &Levels::new(other, false))
            .map_or(0.0, |found| found.likeness)
    };
    let between = |other: &Thumbnail| (LEAST_SMALL..LEAST).contains(&likeness(other));
    let other = (1..=120).map(brighter).find(between).unwrap();
    assert_eq!(compare(&picture, &other), None);
    assert!(compare(&Thumbnail { small: true, ..picture.clone() }, &other).is_some());
}
