//! Draws the purified clusters of a run on the bundled images: `cluster_sheet RUN OUT.png`.
//!
//! A row is a cluster: its members nearest to the centre, the kept ones first, then, behind a gap and with a red edge, those
//! that purification took out.

use image::{Rgb, RgbImage};
use pcp::data::{Load, Source, load};
use std::collections::BTreeMap;

const CELL: u32 = 44;
const KEPT: usize = 11;
const OUT: usize = 4;
const ROWS: usize = 6;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, run, out] = &arguments[..] else { return Err("usage: cluster_sheet RUN OUT.png".into()) };
    let images = load(&Load::new(Source::Bundled), &|_, _| ())?.train.images;
    let rows: BTreeMap<&str, usize> =
        images.names().iter().enumerate().map(|(row, name)| (name.as_str(), row)).collect();

    // (kept, distance, row) of every member, by cluster.
    let mut clusters: BTreeMap<u32, Vec<(bool, f32, usize)>> = BTreeMap::new();
    for line in std::fs::read_to_string(format!("{run}/clusters.csv"))?.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let kept = matches!(fields[2], "kept" | "pulled_back");
        let row = rows.get(fields[0]).ok_or("this run is not one of the bundled images")?;
        clusters.entry(fields[1].parse()?).or_default().push((kept, fields[3].parse()?, *row));
    }
    let mut clusters: Vec<Vec<(bool, f32, usize)>> = clusters.into_values().collect();
    let count = |c: &[(bool, f32, usize)]| c.iter().filter(|m| m.0).count();
    clusters.sort_by_key(|c| std::cmp::Reverse(count(c)));
    clusters.truncate(ROWS);

    let width = (KEPT + OUT) as u32 * CELL + CELL / 2;
    let mut sheet = RgbImage::from_pixel(width, clusters.len() as u32 * CELL, Rgb([255, 255, 255]));
    for (y, members) in clusters.iter_mut().enumerate() {
        members.sort_by(|a, b| a.1.total_cmp(&b.1));
        let kept = members.iter().filter(|m| m.0).take(KEPT).enumerate();
        let farthest = members.iter().rev().filter(|m| !m.0).take(OUT).enumerate();
        let places = kept
            .map(|(i, m)| (i as u32 * CELL, m))
            .chain(farthest.map(|(i, m)| ((KEPT + i) as u32 * CELL + CELL / 2, m)));
        for (x, member) in places {
            let picture = images.sample(member.2).image;
            let side = picture.width.min(picture.height);
            let edge = if member.0 { Rgb([60, 160, 80]) } else { Rgb([210, 50, 50]) };
            for (px, py) in (0..CELL - 2).flat_map(|px| (0..CELL - 2).map(move |py| (px, py))) {
                let at = |p: u32| p as usize * side / CELL as usize;
                let place = (at(py) * picture.width + at(px)) * 3;
                let colour = match px.min(py) < 2 || px.max(py) >= CELL - 4 {
                    true => edge,
                    false => Rgb([picture.pixels[place], picture.pixels[place + 1], picture.pixels[place + 2]]),
                };
                sheet.put_pixel(x + px, y as u32 * CELL + py, colour);
            }
        }
    }
    sheet.save(out)?;
    Ok(())
}
