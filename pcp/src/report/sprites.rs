//! Thumbnails: many small pictures in few JPEG sheets, as `data:` URIs within a budget of bytes.

use crate::data::augment::Augmenter;
use crate::data::resize::{Region, Resampler};
use crate::data::{Image, Images, decode};
use crate::evaluate::heatmap::{Heat, overlay};
use image::ExtendedColorType;
use image::codecs::jpeg::JpegEncoder;
use pcp_core::error::Result;
use rayon::prelude::*;
use serde::Serialize;
use std::borrow::Cow;
use std::path::Path;

/// Tiles in a row, and rows of a sheet.
const COLUMNS: usize = 64;
const ROWS: usize = 32;
/// JPEG qualities: a sheet that is too large at one is tried at the next.
const QUALITIES: [u8; 4] = [76, 64, 50, 36];
/// Side of a JPEG block: tiles of whole blocks do not blur into each other.
const BLOCK: usize = 8;

/// Tiles in sheets. Tile `i` is on sheet `i / (64 * 32)`, row by row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sprites {
    /// Side of a tile.
    pub side: usize,
    /// Tiles in a row of a sheet.
    pub columns: usize,
    /// Tiles of a whole sheet.
    pub per_sheet: usize,
    /// Tiles in all.
    pub count: usize,
    /// JPEGs as `data:` URIs.
    pub sheets: Vec<String>,
}

/// Images to show: those in memory and, where these were shrunk to less than what is shown, their files.
pub struct Shown<'a> {
    /// The images in memory.
    pub images: &'a Images,
    /// The folder of their files, and the short side that larger ones were shrunk to.
    pub files: Option<(&'a Path, usize)>,
}

impl Shown<'_> {
    /// Thumbnails of `rows`, in at most `budget` bytes: the last are left out if they do not fit. The fewer, the larger.
    pub fn thumbnails(&self, rows: &[u32], budget: usize) -> Result<Sprites> {
        let side = match rows.len() {
            0..=800 => 112,
            801..=2000 => 80,
            2001..=4000 => 56,
            _ => 48,
        };
        self.tiles(rows, side, budget)
    }

    /// Tiles of `rows` of `side` pixels, or fewer where no image is as large, in at most `budget` bytes.
    pub fn tiles(&self, rows: &[u32], side: usize, budget: usize) -> Result<Sprites> {
        // Not larger than the images.
        let short = |row: &u32| {
            let image = self.images.sample(*row as usize)?.image;
            Ok(if self.was_shrunk(&image, side) { side } else { image.width.min(image.height) })
        };
        let largest = rows.par_iter().map(short).try_reduce(|| 0, |a: usize, b| Ok(a.max(b)))?;
        let side = if rows.is_empty() { side } else { side.min(largest.next_multiple_of(BLOCK)) };
        let tiles: Vec<Vec<u8>> = (rows.par_iter())
            .map_init(Resampler::default, |resampler, row| Ok(tile(resampler, &*self.picture(*row, side)?, side)))
            .collect::<Result<_>>()?;
        Ok(pack(&tiles, side, budget))
    }

    /// Whether the file of `image` is larger, and `side` is too.
    fn was_shrunk(&self, image: &Image, side: usize) -> bool {
        let short = image.width.min(image.height);
        self.files.is_some_and(|(_, stored)| short == stored && short < side)
    }

    /// The image of `row`, from its file where it was shrunk below `side` when it was read.
    fn picture(&self, row: u32, side: usize) -> Result<Cow<'_, Image>> {
        let image = self.images.sample(row as usize)?.image;
        let Some((folder, _)) = self.files.filter(|_| self.was_shrunk(&image, side)) else { return Ok(image) };
        let larger = decode::shrunk_file(&folder.join(&self.images.names()[row as usize]), side).ok();
        // A file that has another shape was changed.
        let shape = |image: &Image| image.width as f64 / image.height.max(1) as f64;
        Ok(match larger.filter(|larger| (shape(larger) / shape(&image) - 1.0).abs() < 0.1) {
            Some(larger) => Cow::Owned(larger),
            None => image,
        })
    }
}

/// For every image and its heat (`cells` by `cells` values from 0 on) two tiles: the clean view of the image by `view`, and the same under its
/// heat, as `pcp eval heatmap` draws it.
pub fn heat_maps(
    images: &Images,
    view: &Augmenter,
    heat: &[(u32, &[f32])],
    cells: usize,
    side: usize,
    budget: usize,
) -> Result<Sprites> {
    let mut tiles = Vec::new();
    for (row, heat) in heat {
        let plain = view.picture(&images.sample(*row as usize)?.image, side);
        let values = heat.iter().map(|h| if h.is_finite() { *h } else { 0.0 }).collect();
        let hot = overlay(&plain, &Heat { side: cells, values });
        tiles.extend([plain.pixels, hot.into_raw()]);
    }
    Ok(pack(&tiles, side, budget))
}

/// The middle square of an image, `side` pixels wide.
fn tile(resampler: &mut Resampler, image: &Image, side: usize) -> Vec<u8> {
    let edge = image.width.min(image.height);
    let region = Region { top: (image.height - edge) / 2, left: (image.width - edge) / 2, height: edge, width: edge };
    let mut values = vec![0.0; side * side * 3];
    resampler.interleaved(image, region, side, side, &mut values);
    values.into_iter().map(|v| (v * 255.0 + 0.5) as u8).collect()
}

/// Tiles of `side` pixels in sheets.
pub fn pack(tiles: &[Vec<u8>], side: usize, budget: usize) -> Sprites {
    let (columns, per_sheet) = (COLUMNS.min(tiles.len().max(1)), COLUMNS * ROWS);
    let mut sheets = Vec::new();
    for quality in QUALITIES {
        let encode = |tiles: &[Vec<u8>]| sheet(tiles, side, columns, quality);
        sheets = tiles.par_chunks(per_sheet).map(encode).collect::<Vec<String>>();
        if size(&sheets) <= budget {
            break;
        }
    }
    while size(&sheets) > budget {
        sheets.pop();
    }
    let count = tiles.len().min(sheets.len() * per_sheet);
    Sprites { side, columns, per_sheet, count, sheets }
}

fn size(sheets: &[String]) -> usize {
    sheets.iter().map(String::len).sum()
}

fn sheet(tiles: &[Vec<u8>], side: usize, columns: usize, quality: u8) -> String {
    let (width, height) = (columns * side, tiles.len().div_ceil(columns) * side);
    let mut pixels = vec![255u8; width * height * 3];
    for (i, tile) in tiles.iter().enumerate() {
        for (y, line) in tile.chunks(side * 3).enumerate() {
            let start = ((i / columns * side + y) * width + i % columns * side) * 3;
            pixels[start..start + line.len()].copy_from_slice(line);
        }
    }
    let mut jpeg = Vec::new();
    let encoder = JpegEncoder::new_with_quality(&mut jpeg, quality);
    match image::ImageEncoder::write_image(encoder, &pixels, width as u32, height as u32, ExtendedColorType::Rgb8) {
        Ok(()) => format!("data:image/jpeg;base64,{}", base64(&jpeg)),
        // Encoding does not fail here: sheets are small enough for JPEG. If it did, the sheet would be empty.
        Err(_) => String::new(),
    }
}

/// RFC 4648, with padding.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            out.push(if digit <= group.len() { char::from(DIGITS[value as usize]) } else { '=' });
        }
    }
    out
}
