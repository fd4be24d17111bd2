//! Tests of decoding: every format, every kind of pixel, every way to be broken.

use super::*;
use image::{GenericImageView, ImageBuffer, Luma, Rgb, RgbImage, Rgba, RgbaImage};

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

/// Every format that is read, written by the `image` crate.
const WRITTEN: [ImageFormat; 6] =
    [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::WebP, ImageFormat::Gif, ImageFormat::Jpeg];

#[test]
fn every_format_gives_the_picture() {
    let picture = gradient();
    let exact = picture.as_rgb8().unwrap().as_raw();
    for format in WRITTEN {
        let image = bytes(&encoded(&picture, format)).unwrap();
        assert_eq!((image.width, image.height), (24, 16), "{format:?}");
        // GIF has 256 colours, JPEG forgets some.
        let most = match format {
            ImageFormat::Gif => 64,
            ImageFormat::Jpeg => 24,
            _ => 0,
        };
        let far = image.pixels.iter().zip(exact).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
        assert!(far <= most, "{format:?} is off by {far}");
    }
}

#[test]
fn every_truncated_file_is_broken() {
    for format in WRITTEN {
        let file = encoded(&gradient(), format);
        for keep in [file.len() / 4, file.len() / 2, file.len() * 3 / 4] {
            let reason = bytes(&file[..keep]).map(|image| (image.width, image.height));
            assert!(reason.is_err(), "{format:?} cut to {keep} of {} is {reason:?}", file.len());
        }
    }
}

#[test]
fn grey_alpha_and_depth_in_other_formats() {
    let grey: DynamicImage = GrayImage::from_pixel(3, 2, Luma([200])).into();
    for format in [ImageFormat::Bmp, ImageFormat::Tiff] {
        assert_eq!(bytes(&encoded(&grey, format)).unwrap().pixels, [200; 18], "{format:?}");
    }
    let deep: ImageBuffer<Luma<u16>, Vec<u16>> = ImageBuffer::from_pixel(2, 1, Luma([0x8080]));
    for format in [ImageFormat::Png, ImageFormat::Tiff] {
        assert_eq!(bytes(&encoded(&deep.clone().into(), format)).unwrap().pixels, [128; 6], "{format:?}");
    }
    let glass: DynamicImage = RgbaImage::from_pixel(2, 2, Rgba([0, 0, 0, 51])).into();
    for format in [ImageFormat::WebP, ImageFormat::Tiff, ImageFormat::Png] {
        assert_eq!(bytes(&encoded(&glass, format)).unwrap().pixels, [204; 12], "{format:?}");
    }
}

/// Of a moving picture, the first counts.
#[test]
fn the_first_frame_of_a_gif() {
    let mut file = Vec::new();
    let mut encoder = image::codecs::gif::GifEncoder::new(&mut file);
    let frame = |level: u8| image::Frame::new(RgbaImage::from_pixel(4, 3, Rgba([level, level, level, 255])));
    encoder.encode_frames([frame(250), frame(5)]).unwrap();
    drop(encoder);
    assert_eq!(bytes(&file).unwrap().pixels, [250; 36]);
}

/// Left half cyan (255, 0, 0, 0), right half black ink at a half (0, 0, 0, 128), 16 x 8 pixels; Pillow 13:
/// `Image.new("CMYK", (16, 8))`, `putpixel`, `save("cmyk.jpg", quality=95)` and `save("cmyk.tif")`. The JPEG has Adobe's
/// marker and its inverted inks. Pillow reads both back as (0, 255, 255) and (127, 127, 127).
#[test]
fn cmyk_becomes_rgb() {
    let jpeg = bytes(include_bytes!("../../../../tests/images/cmyk.jpg")).unwrap();
    let tiff = bytes(include_bytes!("../../../../tests/images/cmyk.tif")).unwrap();
    for image in [jpeg, tiff] {
        assert_eq!((image.width, image.height), (16, 8));
        for (x, colour) in [(1, [0, 255, 255]), (14, [127, 127, 127])] {
            let found = &image.pixels[(3 * 16 + x) * 3..][..3];
            assert!(found.iter().zip(colour).all(|(a, b)| a.abs_diff(b) <= 2), "{found:?} instead of {colour:?}");
        }
    }
}

/// A green picture of 12 x 8 pixels with a red top left corner and EXIF orientation 6, which puts the corner at the top
/// right; Pillow 13: `save("turned.png", exif=exif)` with `exif[0x112] = 6`, and the same as WebP (lossless) and TIFF.
#[test]
fn every_format_with_exif_is_turned_upright() {
    for (name, file) in [
        ("png", &include_bytes!("../../../../tests/images/turned.png")[..]),
        ("webp", include_bytes!("../../../../tests/images/turned.webp")),
        ("tif", include_bytes!("../../../../tests/images/turned.tif")),
    ] {
        let image = bytes(file).unwrap();
        assert_eq!((image.width, image.height), (8, 12), "{name}");
        assert_eq!(image.pixels[7 * 3..8 * 3], [255, 0, 0], "{name}");
        assert_eq!(image.pixels[..3], [10, 200, 30], "{name}");
    }
}

#[test]
fn all_orientations_are_honoured() {
    let jpeg = encoded(&gradient(), ImageFormat::Jpeg);
    let upright = bytes(&jpeg).unwrap();
    // Where the top left pixel goes, in a picture of 24 x 16 or 16 x 24.
    let corner = [(0, 0), (23, 0), (23, 15), (0, 15), (0, 0), (15, 0), (15, 23), (0, 23)];
    for (orientation, (x, y)) in (1u8..).zip(corner) {
        let image = bytes(&turned(&jpeg, orientation)).unwrap();
        let size = if orientation < 5 { (24, 16) } else { (16, 24) };
        assert_eq!((image.width, image.height), size, "{orientation}");
        assert_eq!(image.pixels[(y * image.width + x) * 3..][..3], upright.pixels[..3], "{orientation}");
    }
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
        (b"RIFF\x10\0\0\0WEBPVP8 ", "damaged"),
        (b"GIF89a.....", "damaged"),
        (b"qoif\0\0\0\x04\0\0\0\x04\x03\0", "holds a Qoi image"),
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

/// Found by mutation: a GIF may say that it is 0 pixels wide.
#[test]
fn an_image_without_pixels_is_none() {
    let mut gif = encoded(&gradient(), ImageFormat::Gif);
    gif[6..8].copy_from_slice(&[0, 0]);
    assert_eq!(bytes(&gif).unwrap_err(), "damaged: 0 x 16 pixels");
}

/// Found by mutation: a part of EXIF data that claims four gigabytes got them.
#[test]
fn a_part_longer_than_its_file_is_refused() {
    let mut webp = include_bytes!("../../../../tests/images/turned.webp").to_vec();
    assert!(is_whole_webp(&webp));
    let exif = webp.windows(4).position(|w| w == b"EXIF").unwrap();
    webp[exif + 7] = 0xf0;
    assert!(bytes(&webp).unwrap_err().starts_with("truncated"));
}

#[test]
fn bombs_of_other_formats_are_refused() {
    // Width and height: of a BMP four bytes each from 18 on, of a GIF two each from 6 on.
    let mut bmp = encoded(&gradient(), ImageFormat::Bmp);
    bmp[18..26].copy_from_slice(&[0, 0, 1, 0, 0, 0, 1, 0]);
    let mut gif = encoded(&gradient(), ImageFormat::Gif);
    gif[6..10].copy_from_slice(&[0xff; 4]);
    // Of a TIFF, in the entries 256 and 257 of its directory, here as four bytes from the entry's eighth on.
    let mut tiff = encoded(&gradient(), ImageFormat::Tiff);
    for tag in [[0, 1, 4, 0], [1, 1, 4, 0]] {
        let entry = tiff.windows(4).rposition(|w| w == tag).unwrap();
        tiff[entry + 8..entry + 12].copy_from_slice(&60_000u32.to_le_bytes());
    }
    for (name, file) in [("bmp", bmp), ("gif", gif), ("tiff", tiff)] {
        let reason = bytes(&file).unwrap_err();
        let named =
            ["larger than 512 MiB", "limit", "Memory", "inconsistent sizes"].iter().any(|word| reason.contains(word));
        assert!(named, "{name}: {reason}");
    }
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

/// A JPEG that is much larger than what is asked for is decoded at a part of its size, and looks the same.
#[test]
fn large_jpegs_are_reduced_and_look_the_same() {
    let photo = RgbImage::from_fn(640, 400, |x, y| {
        Rgb([(x * 255 / 640) as u8, (y * 255 / 400) as u8, if (x / 80 + y / 80) % 2 == 0 { 40 } else { 200 }])
    });
    let jpeg = encoded(&photo.clone().into(), ImageFormat::Jpeg);
    assert_eq!(reduced_jpeg(&jpeg, (640, 400), 20).unwrap().dimensions(), (80, 50), "an eighth");
    assert_eq!(reduced_jpeg(&jpeg, (640, 400), 50).unwrap().dimensions(), (160, 100), "a quarter");
    assert_eq!(reduced_jpeg(&jpeg, (640, 400), 100).unwrap().dimensions(), (320, 200), "a half");
    assert!(reduced_jpeg(&jpeg, (640, 400), 101).is_none() && reduced_jpeg(&jpeg, (640, 400), 0).is_none());
    for side in [20, 50, 100, 200, 400, 500] {
        let (quick, slow) = (shrunk_bytes(&jpeg, side).unwrap(), shrink(bytes(&jpeg).unwrap(), side));
        assert_eq!((quick.width, quick.height), (slow.width, slow.height), "{side}");
        let far = quick.pixels.iter().zip(&slow.pixels).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>();
        assert!(far as f64 / (quick.pixels.len() as f64) < 3.0, "{side}: {far}");
    }
    let turned = shrunk_bytes(&turned(&jpeg, 6), 20).unwrap();
    assert_eq!((turned.width, turned.height), (20, 32), "turned by its EXIF data");
    let grey = encoded(&DynamicImage::from(photo).into_luma8().into(), ImageFormat::Jpeg);
    let (quick, slow) = (shrunk_bytes(&grey, 20).unwrap(), shrink(bytes(&grey).unwrap(), 20));
    assert!(quick.pixels.iter().zip(&slow.pixels).all(|(a, b)| a.abs_diff(*b) < 24));
    assert!(shrunk_bytes(&jpeg[..jpeg.len() / 2], 20).unwrap_err().contains("truncated"));
    assert!(shrunk_bytes(b"no", 20).is_err());
}
