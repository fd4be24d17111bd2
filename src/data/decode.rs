//! From the bytes of a JPEG or PNG file to an [`Image`], or the reason why not. Nothing a file holds makes it panic.

use std::io::Cursor;
use std::path::Path;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::Image;

/// Why a file is no use.
pub type Reason = String;

/// The most memory one decoded image may take: a small file can claim to be a gigantic picture.
const MAX_DECODED: u64 = 512 << 20;
/// The largest file that is read at all.
const MAX_FILE: u64 = 1 << 30;

/// Reads and decodes the file at `path`.
pub fn file(path: &Path) -> Result<Image, Reason> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let about = std::fs::metadata(path).map_err(cannot)?;
    if about.is_dir() {
        return Err("a folder, not an image".into());
    }
    // Opening a pipe would wait for ever.
    if !about.is_file() {
        return Err("not a regular file".into());
    }
    if about.len() > MAX_FILE {
        return Err(format!("larger than {} MiB", MAX_FILE >> 20));
    }
    bytes(&std::fs::read(path).map_err(cannot)?)
}

/// Decodes a JPEG or PNG, told apart by content. Turned upright as its EXIF data asks; grey becomes RGB, 16 bits become 8,
/// and transparency becomes white.
pub fn bytes(bytes: &[u8]) -> Result<Image, Reason> {
    // Decoders of third parties meet arbitrary bytes here; one that panics must cost one file, not the run.
    std::panic::catch_unwind(|| decode(bytes)).unwrap_or_else(|_| Err("damaged: the decoder gave up on it".into()))
}

fn decode(bytes: &[u8]) -> Result<Image, Reason> {
    if bytes.is_empty() {
        return Err("empty file".into());
    }
    let format = image::guess_format(bytes).map_err(|_| "not an image: neither JPEG nor PNG".to_string())?;
    match format {
        ImageFormat::Png => {}
        ImageFormat::Jpeg if is_whole_jpeg(bytes) => {}
        ImageFormat::Jpeg => return Err("truncated: the end of the image is missing".into()),
        other => return Err(format!("holds a {other:?} image: only JPEG and PNG can be read")),
    }
    let damaged = |error: image::ImageError| format!("damaged: {error}").replace(['\n', '\r'], " ");
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODED);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    if decoder.total_bytes() > MAX_DECODED {
        let (width, height) = decoder.dimensions();
        return Err(format!("{width} x {height} pixels: larger than {} MiB when decoded", MAX_DECODED >> 20));
    }
    // Without readable EXIF data the picture stays as it is.
    let orientation = decoder.orientation();
    let mut picture = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    if let Ok(orientation) = orientation {
        picture.apply_orientation(orientation);
    }
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    let pixels = if picture.color().has_alpha() { on_white(&picture) } else { picture.into_rgb8().into_raw() };
    Ok(Image { width, height, pixels })
}

fn on_white(picture: &DynamicImage) -> Vec<u8> {
    let blend = |pixel: &[u8]| {
        let alpha = u32::from(pixel[3]);
        [0, 1, 2].map(|c| ((u32::from(pixel[c]) * alpha + 255 * (255 - alpha) + 127) / 255) as u8)
    };
    picture.to_rgba8().as_raw().chunks_exact(4).flat_map(blend).collect()
}

/// Whether the end-of-image marker is there. The decoder does not ask: it would paint the missing part grey.
fn is_whole_jpeg(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some(&[first, second]) = bytes.get(at..at + 2) {
        at += match (first, second) {
            (0xff, 0xd9) => return true,
            // Stuffed bytes, restart and other markers that stand alone.
            (0xff, 0x00 | 0x01 | 0xd0..=0xd8) => 2,
            // Image data between markers, and padding before one.
            (0..=0xfe, _) | (0xff, 0xff) => 1,
            // A segment says how long it is; a thumbnail inside one has an end marker of its own, which does not count.
            _ => match bytes.get(at + 2..at + 4) {
                Some(&[high, low]) => 2 + usize::from(u16::from_be_bytes([high, low])),
                _ => return false,
            },
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{GrayImage, ImageBuffer, Luma, Rgb, RgbImage, Rgba, RgbaImage};

    fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut out = Cursor::new(Vec::new());
        picture.write_to(&mut out, format).unwrap();
        out.into_inner()
    }

    fn gradient() -> DynamicImage {
        RgbImage::from_fn(24, 16, |x, y| Rgb([x as u8 * 10, y as u8 * 15, 77])).into()
    }

    #[test]
    fn png_keeps_every_pixel_and_jpeg_nearly() {
        let picture = gradient();
        let png = bytes(&encoded(&picture, ImageFormat::Png)).unwrap();
        assert_eq!((png.width, png.height), (24, 16));
        assert_eq!(&png.pixels, picture.as_rgb8().unwrap().as_raw());
        let jpeg = bytes(&encoded(&picture, ImageFormat::Jpeg)).unwrap();
        assert_eq!((jpeg.width, jpeg.height), (24, 16));
        let far = jpeg.pixels.iter().zip(&png.pixels).filter(|(a, b)| a.abs_diff(**b) > 24).count();
        assert_eq!(far, 0);
    }

    #[test]
    fn grey_deep_and_transparent_pictures_become_rgb() {
        let grey: DynamicImage = GrayImage::from_pixel(2, 2, Luma([9])).into();
        assert_eq!(bytes(&encoded(&grey, ImageFormat::Png)).unwrap().pixels, [9; 12]);
        assert_eq!(bytes(&encoded(&grey, ImageFormat::Jpeg)).unwrap().pixels, [9; 12]);
        let deep: ImageBuffer<Rgb<u16>, Vec<u16>> = ImageBuffer::from_pixel(1, 1, Rgb([0xffff, 0x8080, 0]));
        assert_eq!(bytes(&encoded(&deep.into(), ImageFormat::Png)).unwrap().pixels, [255, 128, 0]);
        let mut glass = RgbaImage::from_pixel(3, 1, Rgba([10, 20, 30, 255]));
        glass.put_pixel(1, 0, Rgba([10, 20, 30, 0]));
        glass.put_pixel(2, 0, Rgba([0, 0, 0, 51]));
        let image = bytes(&encoded(&glass.into(), ImageFormat::Png)).unwrap();
        assert_eq!(image.pixels, [10, 20, 30, 255, 255, 255, 204, 204, 204]);
    }

    /// An EXIF block that asks for `orientation`, put behind the first marker of `jpeg`.
    fn turned(jpeg: &[u8], orientation: u8) -> Vec<u8> {
        let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
        exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
        let length = (exif.len() as u16 + 2).to_be_bytes();
        [&jpeg[..2], &[0xff, 0xe1], &length, &exif, &jpeg[2..]].concat()
    }

    #[test]
    fn photographs_are_turned_upright() {
        let jpeg = encoded(&gradient(), ImageFormat::Jpeg);
        let upright = bytes(&jpeg).unwrap();
        let image = bytes(&turned(&jpeg, 6)).unwrap();
        assert_eq!((image.width, image.height), (16, 24));
        assert_eq!(image.pixels[15 * 3..16 * 3], upright.pixels[..3], "top left goes to top right");
        assert_eq!(bytes(&turned(&jpeg, 99)).unwrap(), upright);
    }

    #[test]
    fn broken_files_have_a_reason() {
        let jpeg = encoded(&gradient(), ImageFormat::Jpeg);
        let png = encoded(&gradient(), ImageFormat::Png);
        for (file, reason) in [
            (&b""[..], "empty file"),
            (b"hello, this is text", "not an image"),
            (b"RIFF\x10\0\0\0WEBPVP8 ", "holds a WebP image"),
            (b"GIF89a.....", "holds a Gif image"),
            (&jpeg[..jpeg.len() - 2], "truncated"),
            (&jpeg[..jpeg.len() / 2], "truncated"),
            (&jpeg[..4], "truncated"),
            (&png[..png.len() / 2], "damaged"),
            (&png[..20], "damaged"),
        ] {
            let found = bytes(file).unwrap_err();
            assert!(found.starts_with(reason), "{found} instead of {reason}");
            assert!(!found.contains('\n'));
        }
        let trailing = [&jpeg[..], b"trailing bytes"].concat();
        assert_eq!(bytes(&trailing).unwrap(), bytes(&jpeg).unwrap());
    }

    #[test]
    fn a_thumbnails_end_is_not_the_pictures_end() {
        let jpeg = encoded(&gradient(), ImageFormat::Jpeg);
        let inner = [0xff, 0xe1, 0, 6, 0xff, 0xd8, 0xff, 0xd9];
        let whole = [&jpeg[..2], &inner, &jpeg[2..]].concat();
        assert!(is_whole_jpeg(&whole));
        assert!(!is_whole_jpeg(&whole[..whole.len() - 2]));
    }

    #[test]
    fn a_decompression_bomb_is_refused() {
        // The size of a PNG is in its first chunk, followed by that chunk's checksum.
        let mut png = encoded(&gradient(), ImageFormat::Png);
        png[16..24].copy_from_slice(&[0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30]);
        let crc = crc32(&png[12..29]);
        png[29..33].copy_from_slice(&crc.to_be_bytes());
        let reason = bytes(&png).unwrap_err();
        assert!(reason.contains("30000 x 30000") || reason.contains("limit"), "{reason}");
        // That of a JPEG is in its frame header: marker, length, precision, height, width.
        let mut jpeg = encoded(&gradient(), ImageFormat::Jpeg);
        let frame = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
        jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xf0, 0xff, 0xf0]);
        let reason = bytes(&jpeg).unwrap_err();
        assert!(reason.contains("65520 x 65520"), "{reason}");
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
        })
    }

    proptest::proptest! {
        #[test]
        fn random_bytes_never_panic(tail in proptest::collection::vec(proptest::num::u8::ANY, 0..300), kind in 0..4) {
            let head: &[u8] = match kind {
                0 => b"",
                1 => b"\xff\xd8\xff",
                2 => b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0",
                _ => b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            };
            let _ = bytes(&[head, &tail].concat());
        }

        #[test]
        fn a_flipped_byte_never_panics(at in 0usize..4000, flip in 1u8.., jpeg in proptest::bool::ANY) {
            let mut file = encoded(&gradient(), if jpeg { ImageFormat::Jpeg } else { ImageFormat::Png });
            let at = at % file.len();
            file[at] ^= flip;
            let _ = bytes(&file);
        }
    }
}
