//! Decoding image files. No contents of a file make it panic or use more memory than [`MAX_DECODED`] and a few times the file's
//! size.

use std::io::Cursor;
use std::path::Path;

use image::metadata::Orientation;
use image::{DynamicImage, GrayImage, ImageDecoder, ImageFormat, ImageReader, Limits, RgbImage};

use super::Image;
use super::memory_budget::DecodingRoom;
use super::resize::shrink;
use pcp_core::io::atomic::retried;

/// The reason why a file cannot be used.
pub type Reason = String;

/// The supported formats, for messages.
pub const FORMATS: &str = "JPEG, PNG, WebP, BMP, GIF and TIFF";

/// Limit on the memory of one decoded image: a small file can announce a huge picture.
pub const MAX_DECODED: u64 = 512 << 20;
/// Limit on the size of a file.
const MAX_FILE: u64 = 1 << 30;

/// Reads and decodes the file at `path`.
pub fn file(path: &Path) -> Result<Image, Reason> {
    bytes(&contents(path)?)
}

/// As [`file()`], and makes something of the image: until that is done, other threads do not decode more than there is memory for.
pub fn file_then<T>(path: &Path, then: impl FnOnce(Image) -> T) -> Result<T, Reason> {
    decoded(&contents(path)?, None, then)
}

/// Reads and decodes the file at `path`, and shrinks the image to a short side of `side`, its aspect kept.
pub fn shrunk_file(path: &Path, side: usize) -> Result<Image, Reason> {
    shrunk_bytes(&contents(path)?, side)
}

/// The bytes of the file at `path`.
pub fn contents(path: &Path) -> Result<Vec<u8>, Reason> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let about = std::fs::metadata(path).map_err(cannot)?;
    if about.is_dir() {
        return Err(match std::fs::read_dir(path) {
            Ok(_) => "a folder, not an image".into(),
            Err(error) => format!("a folder that cannot be listed: {error}"),
        });
    }
    // Opening a pipe would block.
    if !about.is_file() {
        return Err("not a regular file".into());
    }
    if about.len() > MAX_FILE {
        return Err(format!("larger than {} MiB", MAX_FILE >> 20));
    }
    retried(|| std::fs::read(path)).map_err(cannot)
}

/// Decodes an image of any of the [`FORMATS`], recognised by content; of an animation, the first frame. It is rotated by its EXIF
/// orientation; grey, palettes and CMYK become RGB, 16 bits become 8, and transparency becomes white.
pub fn bytes(bytes: &[u8]) -> Result<Image, Reason> {
    decoded(bytes, None, |image| image)
}

/// Width and height of an image as it is looked at, by its header alone.
pub fn size(bytes: &[u8]) -> Result<(usize, usize), Reason> {
    std::panic::catch_unwind(|| header(bytes)).unwrap_or_else(|_| Err("damaged: the decoder failed".into()))
}

fn header(bytes: &[u8]) -> Result<(usize, usize), Reason> {
    let damaged = |error: image::ImageError| format!("damaged: {error}").replace(['\n', '\r'], " ");
    let format = image::guess_format(bytes).map_err(|_| format!("not an image: none of {FORMATS}"))?;
    let mut decoder = ImageReader::with_format(Cursor::new(bytes), format).into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    let turned = matches!(
        decoder.orientation(),
        Ok(Orientation::Rotate90 | Orientation::Rotate270 | Orientation::Rotate90FlipH | Orientation::Rotate270FlipH)
    );
    let (width, height) = (width as usize, height as usize);
    Ok(if turned { (height, width) } else { (width, height) })
}

/// As [`bytes`], shrunk to a short side of `side`. A JPEG that is at least four times as large is decoded at a half, a quarter or an eighth of
/// its size, to at least twice the side: of 12 megapixels this saves a fifth of the time and most of the memory.
pub fn shrunk_bytes(bytes: &[u8], side: usize) -> Result<Image, Reason> {
    decoded(bytes, Some(side), |image| shrink(image, side))
}

/// Decodes an image that is to be shrunk to `side`, and makes something of it while its memory is accounted for.
fn decoded<T>(bytes: &[u8], side: Option<usize>, then: impl FnOnce(Image) -> T) -> Result<T, Reason> {
    // A third-party decoder that panics on arbitrary bytes must cost one file, not the run.
    let decoded = std::panic::catch_unwind(|| decode(bytes, side));
    let (image, _room) = decoded.unwrap_or_else(|_| Err("damaged: the decoder failed".into()))?;
    Ok(then(image))
}

fn decode(bytes: &[u8], side: Option<usize>) -> Result<(Image, DecodingRoom), Reason> {
    if bytes.is_empty() {
        return Err("empty file".into());
    }
    let format = image::guess_format(bytes).map_err(|_| format!("not an image: none of {FORMATS}"))?;
    match format {
        ImageFormat::Jpeg if !is_whole_jpeg(bytes) => return Err("truncated: the end of the image is missing".into()),
        ImageFormat::WebP if !is_whole_webp(bytes) => return Err("truncated: a part is longer than the file".into()),
        ImageFormat::Jpeg | ImageFormat::Png | ImageFormat::WebP | ImageFormat::Bmp | ImageFormat::Gif => {}
        ImageFormat::Tiff => {}
        other => return Err(format!("holds a {other:?} image: only {FORMATS} can be read")),
    }
    let damaged = |error: image::ImageError| format!("damaged: {error}").replace(['\n', '\r'], " ");
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODED);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 {
        return Err(format!("damaged: {width} x {height} pixels"));
    }
    if decoder.total_bytes() > MAX_DECODED {
        return Err(format!("{width} x {height} pixels: larger than {} MiB when decoded", MAX_DECODED >> 20));
    }
    // Decoded, and once more turned or with other channels.
    let needed = 2 * decoder.total_bytes() + 4 * u64::from(width) * u64::from(height);
    let room = DecodingRoom::take(needed).ok_or_else(|| {
        let needed = pcp_core::text::bytes(needed as f64);
        format!("{width} x {height} pixels: decoding it takes {needed} of memory, and less is free")
    })?;
    // Without readable EXIF data the picture is not rotated.
    let orientation = decoder.orientation();
    let reduced = match (format, side) {
        (ImageFormat::Jpeg, Some(side)) => reduced_jpeg(bytes, (width, height), side),
        _ => None,
    };
    let mut picture = match reduced {
        Some(reduced) => reduced,
        None => DynamicImage::from_decoder(decoder).map_err(damaged)?,
    };
    if let Ok(orientation) = orientation {
        picture.apply_orientation(orientation);
    }
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    let pixels = if picture.color().has_alpha() { on_white(picture) } else { picture.into_rgb8().into_raw() };
    Ok((Image { width, height, pixels }, room))
}

/// A JPEG of `size` decoded at a half, a quarter or an eighth of its size; `None` if less than twice `side` would be left of its short side, and
/// for kinds of JPEG that the decoder does not reduce: these are decoded in full.
fn reduced_jpeg(bytes: &[u8], (width, height): (u32, u32), side: usize) -> Option<DynamicImage> {
    let (short, least) = (u64::from(width.min(height)), 2 * side as u64);
    if least == 0 || short < 2 * least {
        return None;
    }
    let part = |length: u32| u16::try_from((u64::from(length) * least).div_ceil(short)).ok();
    let mut decoder = jpeg_decoder::Decoder::new(bytes);
    decoder.set_max_decoding_buffer_size(MAX_DECODED as usize);
    decoder.read_info().ok()?;
    let (width, height) = decoder.scale(part(width)?, part(height)?).ok()?;
    let pixels = decoder.decode().ok()?;
    let (width, height) = (u32::from(width), u32::from(height));
    match decoder.info()?.pixel_format {
        jpeg_decoder::PixelFormat::RGB24 => RgbImage::from_raw(width, height, pixels).map(DynamicImage::from),
        jpeg_decoder::PixelFormat::L8 => GrayImage::from_raw(width, height, pixels).map(DynamicImage::from),
        _ => None,
    }
}

/// The picture on white, in its own memory.
fn on_white(picture: DynamicImage) -> Vec<u8> {
    let mut pixels = picture.into_rgba8().into_raw();
    for p in 0..pixels.len() / 4 {
        let alpha = u32::from(pixels[4 * p + 3]);
        for c in 0..3 {
            // Three bytes of a pixel never reach those of a later one.
            pixels[3 * p + c] = ((u32::from(pixels[4 * p + c]) * alpha + 255 * (255 - alpha) + 127) / 255) as u8;
        }
    }
    pixels.truncate(pixels.len() / 4 * 3);
    pixels
}

/// Whether no chunk announces more bytes than the file has. The decoder does not check: it would allocate them.
fn is_whole_webp(bytes: &[u8]) -> bool {
    let mut at = 12;
    while let Some([_, _, _, _, a, b, c, d]) = bytes.get(at..at + 8) {
        let size = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let Some(end) = at.checked_add(8 + size).filter(|end| *end <= bytes.len()) else { return false };
        at = end + size % 2;
    }
    true
}

/// Whether the end-of-image marker is present. The decoder does not check: it would fill the missing part with grey.
fn is_whole_jpeg(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some(&[first, second]) = bytes.get(at..at + 2) {
        at += match (first, second) {
            (0xff, 0xd9) => return true,
            // Stuffed bytes, restart and other markers that stand alone.
            (0xff, 0x00 | 0x01 | 0xd0..=0xd8) => 2,
            // Image data between markers, and padding before one.
            (0..=0xfe, _) | (0xff, 0xff) => 1,
            // Segments are skipped by their length: the end marker of a thumbnail inside one does not count.
            _ => match bytes.get(at + 2..at + 4) {
                Some(&[high, low]) => 2 + usize::from(u16::from_be_bytes([high, low])),
                _ => return false,
            },
        };
    }
    false
}

#[cfg(test)]
mod tests;
