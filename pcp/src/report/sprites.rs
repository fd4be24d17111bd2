//! Thumbnails: many small pictures in few JPEG sheets, as `data:` URIs within a budget of bytes.

use crate::data::resize::{Region, Resampler};
use crate::data::{Image, Images};
use image::ExtendedColorType;
use image::codecs::jpeg::JpegEncoder;
use pcp_core::error::Result;
use rayon::prelude::*;
use serde::Serialize;

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

/// Thumbnails of `rows`, in at most `budget` bytes: the last are left out if they do not fit.
pub fn thumbnails(images: &Images, rows: &[u32], budget: usize) -> Result<Sprites> {
    let wanted = match rows.len() {
        0..=2000 => 56,
        2001..=4000 => 48,
        _ => 40,
    };
    // Not larger than the images.
    let short = |row: &u32| images.sample(*row as usize).map(|s| s.image.width.min(s.image.height));
    let largest = rows.par_iter().map(short).try_reduce(|| 0, |a, b| Ok(a.max(b)))?;
    let largest = if rows.is_empty() { wanted } else { largest.next_multiple_of(BLOCK) };
    let side = wanted.min(largest);
    let tiles: Vec<Vec<u8>> = rows
        .par_iter()
        .map_init(Resampler::default, |resampler, row| Ok(tile(resampler, &images.sample(*row as usize)?.image, side)))
        .collect::<Result<_>>()?;
    Ok(pack(&tiles, side, budget))
}

/// For every image and its heat (`cells` by `cells` values from 0 on) two tiles: the image, and the image under its heat.
pub fn heat_maps(images: &Images, heat: &[(u32, &[f32])], cells: usize, side: usize, budget: usize) -> Result<Sprites> {
    let mut resampler = Resampler::default();
    let mut tiles = Vec::new();
    for (row, heat) in heat {
        let plain = tile(&mut resampler, &images.sample(*row as usize)?.image, side);
        let hot = overlay(&plain, heat, cells, side);
        tiles.extend([plain, hot]);
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

/// A grey picture under its heat map in yellow to red.
fn overlay(plain: &[u8], heat: &[f32], cells: usize, side: usize) -> Vec<u8> {
    const WARM: [f32; 3] = [255.0, 214.0, 64.0];
    const HOT: [f32; 3] = [214.0, 20.0, 40.0];
    let hottest = heat.iter().copied().filter(|h| h.is_finite()).fold(0.0, f32::max).max(f32::MIN_POSITIVE);
    let at = |x: usize, y: usize| (heat[y * cells + x] / hottest).clamp(0.0, 1.0);
    // The two cells around a pixel's middle, and how far it is towards the second.
    let between = |p: usize| {
        let x = ((p as f32 + 0.5) * cells as f32 / side as f32 - 0.5).clamp(0.0, (cells - 1) as f32);
        (x as usize, (x as usize + 1).min(cells - 1), x.fract())
    };
    let mut out = Vec::with_capacity(plain.len());
    for (i, pixel) in plain.chunks_exact(3).enumerate() {
        let ((x0, x1, fx), (y0, y1, fy)) = (between(i % side), between(i / side));
        let row = |y: usize| at(x0, y) * (1.0 - fx) + at(x1, y) * fx;
        let h = row(y0) * (1.0 - fy) + row(y1) * fy;
        // NaN counts as no heat.
        let h = if h.is_finite() { h } else { 0.0 };
        let grey = pixel.iter().map(|p| f32::from(*p)).sum::<f32>() / 3.0;
        let alpha = 0.8 * h.sqrt();
        out.extend((0..3).map(|c| {
            let colour = WARM[c] * (1.0 - h) + HOT[c] * h;
            (grey * (1.0 - alpha) + colour * alpha) as u8
        }));
    }
    out
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
