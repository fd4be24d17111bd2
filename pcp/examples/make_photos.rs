//! Makes a folder of JPEG photographs of any number and size out of the bundled ones, for measuring: each is a part of a
//! photograph, enlarged, with a grain that gives files the size of real ones. `make_photos DIR COUNT SIDE`.

#![allow(clippy::print_stdout)]

use image::codecs::jpeg::JpegEncoder;
use image::{Rgb, RgbImage};
use pcp::core::rng::{Key, Purpose};
use pcp::data::resize::{Region, Resampler};
use pcp::data::{Load, Source, load};
use rayon::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, dir, count, side] = &arguments[..] else { return Err("usage: make_photos DIR COUNT SIDE".into()) };
    let (count, side): (u64, usize) = (count.parse()?, side.parse()?);
    let images = load(&Load::new(Source::Bundled), &|_, _| ())?.train.images;
    std::fs::create_dir_all(dir)?;
    let key = Key { purpose: Purpose::Synthetic, seed: 0, round: 0, epoch: 0 };
    let make = |i: u64| -> Result<(), String> {
        let mut random = key.stream(i, 0);
        let sample = images.sample(i as usize % images.len()).map_err(|e| e.message)?;
        let edge = 40 + random.below(20) as usize;
        let (top, left) = (sample.image.height - edge, sample.image.width - edge);
        let (top, left) = (random.below(top as u64 + 1) as usize, random.below(left as u64 + 1) as usize);
        let mut values = vec![0.0; side * side * 3];
        let region = Region { top, left, height: edge, width: edge };
        Resampler::default().interleaved(&sample.image, region, side, side, &mut values);
        let picture = RgbImage::from_fn(side as u32, side as u32, |x, y| {
            let grain = random.unit() * 0.06 - 0.03;
            let at = (y as usize * side + x as usize) * 3;
            Rgb([0, 1, 2].map(|c| ((values[at + c] + grain).clamp(0.0, 1.0) * 255.0) as u8))
        });
        let mut bytes = Vec::new();
        picture.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, 90)).map_err(|e| e.to_string())?;
        std::fs::write(format!("{dir}/{i:06}.jpg"), bytes).map_err(|e| e.to_string())
    };
    (0..count).into_par_iter().try_for_each(make)?;
    println!("{dir}: {count} photographs of {side} pixels");
    Ok(())
}
