//! Makes the bundled data set from a folder of photographs with `train/` and `test/`: each is shrunk to a short side of
//! 64 pixels, encoded as JPEG and stored, in the order of the names and without dates, so that the same folder always
//! gives the same archive.
//!
//! `cargo run --release --example make_bundled -- GROCERIES_FOLDER assets/groceries.zip`

#![allow(clippy::print_stderr)]

use std::error::Error;
use std::io::{Cursor, Write};
use std::path::Path;

use image::ExtendedColorType;
use image::codecs::jpeg::JpegEncoder;
use pcp::data::{Load, Source};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// Short side in pixels: twice that of training, so that random crops have something to choose from.
const SIDE: usize = 64;
/// JPEG quality: the archive is to stay below 4 MB, in the repository and in the binary.
const QUALITY: u8 = 82;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, archive] = arguments.as_slice() else {
        return Err("usage: make_bundled FOLDER ARCHIVE.zip".into());
    };
    let load = Load { stored_side: Some(SIDE), ..Load::new(Source::Folder(folder.into())) };
    let data = pcp::data::load(&load, &|_, _| ())?;
    if let Some(bad) = data.bad.first() {
        return Err(format!("{}: {}", bad.name, bad.reason).into());
    }
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default())
        .unix_permissions(0o644);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for images in [&data.train.images].into_iter().chain(data.test.as_ref().map(|test| &test.images)) {
        for (r, name) in images.names().iter().enumerate() {
            let image = images.sample(r)?.image;
            let mut jpeg = Vec::new();
            JpegEncoder::new_with_quality(&mut jpeg, QUALITY).encode(
                &image.pixels,
                image.width as u32,
                image.height as u32,
                ExtendedColorType::Rgb8,
            )?;
            zip.start_file(Path::new(name).with_extension("jpg").to_string_lossy(), options)?;
            zip.write_all(&jpeg)?;
        }
    }
    let bytes = zip.finish()?.into_inner();
    std::fs::write(archive, &bytes)?;
    eprintln!("{archive}: {} bytes", bytes.len());
    Ok(())
}
