//! Data sets: folders of mixed formats with broken files, images read again in every epoch, files replaced between runs,
//! decompression bombs, idx files, and downloads that fail.

#![allow(unsafe_code)]

use crate::common::*;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use image::{DynamicImage, GrayImage, ImageBuffer, ImageFormat, Luma, Rgb, RgbImage, Rgba, RgbaImage};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    picture.write_to(&mut out, format).unwrap();
    out.into_inner()
}

/// An EXIF block that asks for `orientation`, put behind the first marker of `jpeg`.
fn turned(jpeg: &[u8], orientation: u8) -> Vec<u8> {
    let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    let length = (exif.len() as u16 + 2).to_be_bytes();
    [&jpeg[..2], &[0xff, 0xe1], &length, &exif, &jpeg[2..]].concat()
}

/// Image `i` of a mixed set: its extension and its bytes. Formats, kinds of pixels, sizes and orientations alternate.
fn mixed_image(i: u32) -> (&'static str, Vec<u8>) {
    let (width, height) = (9 + i * 7 % 31, 9 + i * 11 % 29);
    let colour = |x: u32, y: u32| [(x * 9 + i) as u8, (y * 7 + i * 3) as u8, (i * 13 + x * y) as u8];
    let rgb = || -> DynamicImage { RgbImage::from_fn(width, height, |x, y| Rgb(colour(x, y))).into() };
    let grey = || -> DynamicImage { GrayImage::from_fn(width, height, |x, y| Luma([colour(x, y)[0]])).into() };
    let glass = || -> DynamicImage {
        let pixel = |x: u32, y: u32| [colour(x, y)[0], colour(x, y)[1], colour(x, y)[2], (x * 8) as u8];
        RgbaImage::from_fn(width, height, |x, y| Rgba(pixel(x, y))).into()
    };
    let deep = || -> DynamicImage {
        let pixel = |x: u32, y: u32| colour(x, y).map(|c| u16::from(c) * 257);
        ImageBuffer::<Rgb<u16>, Vec<u16>>::from_fn(width, height, |x, y| Rgb(pixel(x, y))).into()
    };
    match i % 14 {
        0 => ("jpg", encoded(&rgb(), ImageFormat::Jpeg)),
        1 => ("JPEG", turned(&encoded(&rgb(), ImageFormat::Jpeg), (1 + i / 14 % 8) as u8)),
        2 => ("jpg", encoded(&grey(), ImageFormat::Jpeg)),
        3 => ("jpg", include_bytes!("../images/cmyk.jpg").to_vec()),
        4 => ("png", encoded(&rgb(), ImageFormat::Png)),
        5 => ("png", encoded(&glass(), ImageFormat::Png)),
        6 => ("PNG", encoded(&deep(), ImageFormat::Png)),
        7 => ("webp", encoded(&rgb(), ImageFormat::WebP)),
        8 => ("webp", encoded(&glass(), ImageFormat::WebP)),
        9 => ("bmp", encoded(&rgb(), ImageFormat::Bmp)),
        10 => ("gif", encoded(&rgb(), ImageFormat::Gif)),
        11 => ("tif", encoded(&deep(), ImageFormat::Tiff)),
        12 => ("tiff", include_bytes!("../images/cmyk.tif").to_vec()),
        _ => ("tiff", encoded(&grey(), ImageFormat::Tiff)),
    }
}

/// A PNG of `side` x `side` black pixels of one bit each: small, until it is decoded.
fn bomb(side: u32) -> Vec<u8> {
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    let row = vec![0u8; 1 + (side as usize).div_ceil(8)];
    (0..side).for_each(|_| zlib.write_all(&row).unwrap());
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |name: &[u8], data: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(name);
        crc.update(data);
        png.extend((data.len() as u32).to_be_bytes());
        png.extend([name, data].concat());
        png.extend(crc.sum().to_be_bytes());
    };
    chunk(b"IHDR", &[&side.to_be_bytes()[..], &side.to_be_bytes(), &[1, 0, 0, 0, 0]].concat());
    chunk(b"IDAT", &zlib.finish().unwrap());
    chunk(b"IEND", b"");
    png
}

/// Makes a file at `path` that is broken in the `kind`-th way.
fn put_broken(path: &Path, kind: u32, whole: &[u8], bomb: &[u8]) {
    match kind % 11 {
        0 => fs::write(path, "").unwrap(),
        1 => fs::write(path, "this is text, not an image").unwrap(),
        2 => fs::write(path, &whole[..whole.len() / 2]).unwrap(),
        3 => fs::write(path, &whole[..whole.len() / 5]).unwrap(),
        4 => fs::create_dir(path).unwrap(),
        5 => fs::write(path, bomb).unwrap(),
        // A format that is known, but not read.
        6 => fs::write(path, b"qoif\0\0\0\x04\0\0\0\x04\x03\0rest of it").unwrap(),
        7 => fs::write(path, [&whole[..8], &[0xa5; 90]].concat()).unwrap(),
        8 => fs::write(path, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap(),
        9 => fs::write(path, b"GIF89a").unwrap(),
        #[cfg(unix)]
        _ => std::os::unix::fs::symlink("nowhere", path).unwrap(),
        #[cfg(not(unix))]
        _ => fs::write(path, "MZ").unwrap(),
    }
}

/// `count` images of which every twentieth is broken; returns the names of these.
fn mixed_folder(dir: &Path, count: u32) -> BTreeSet<String> {
    let bomb = bomb(50_000);
    let mut broken = BTreeSet::new();
    for i in 0..count {
        let (ending, bytes) = mixed_image(i);
        let name = format!("{}/{i:04}.{ending}", ["a", "b/deep", "c"][i as usize % 3]);
        let path = dir.join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if i % 20 == 13 {
            put_broken(&path, i / 20, &bytes, &bomb);
            broken.insert(name);
        } else {
            fs::write(path, bytes).unwrap();
        }
    }
    broken
}

/// The column `file` of a CSV file whose names need no quotes.
fn names(csv: &Path, column: usize) -> BTreeSet<String> {
    let text = fs::read_to_string(csv).unwrap();
    text.lines().skip(1).map(|line| line.split(',').nth(column).unwrap().to_string()).collect()
}

const QUICK: &[&str] =
    &["--size", "16", "--width", "4", "--epochs", "1", "--batch", "64", "--quiet", "--set", "evaluate.k=5"];

fn train(data: &Path, out: &Path, more: &[&str]) -> Vec<String> {
    let own = ["train", data.to_str().unwrap(), "--out", out.to_str().unwrap()];
    own.iter().chain(QUICK).chain(more).map(|word| word.to_string()).collect()
}

#[test]
fn three_thousand_mixed_images_train_and_exactly_the_broken_ones_are_named() {
    let (dir, out) = place("run");
    let data = dir.path().join("photos");
    let broken = mixed_folder(&data, 3000);
    assert_eq!(broken.len(), 150);
    succeed(&words(&train(&data, &out, &["--clusters", "30", "--no-report"])));
    assert_eq!(names(&out.join("bad_files.csv"), 1), broken);
    let used = names(&out.join("files.csv"), 2);
    assert_eq!(used.len(), 2850);
    assert!(used.is_disjoint(&broken));
    assert!(out.join("result.json").exists() && out.join("embeddings.npy").exists());
    let said = fail(1, &words(&train(&data, &dir.path().join("strict"), &["--strict"])));
    assert!(said.contains("150 of the files") && said.contains("a/0033"), "{said}");
    assert!(!dir.path().join("strict").exists());
    let said = fail(1, &["data", "check", data.to_str().unwrap(), "--strict"]);
    assert!(said.contains("150 of the files"), "{said}");
}

#[test]
fn no_bit_depends_on_the_cache_or_the_threads() {
    let (dir, out) = place("memory");
    let data = dir.path().join("photos");
    mixed_folder(&data, 120);
    let run = |out: &Path, more: &[&str]| succeed(&words(&train(&data, out, &[&["--clusters", "5"], more].concat())));
    run(&out, &["--cache", "memory"]);
    let expected = bits(&out);
    assert!(expected.iter().any(|(name, _)| name == "metrics.jsonl") && expected.len() > 6);
    for (name, more) in [
        ("none", &["--cache", "none"][..]),
        ("one", &["--cache", "none", "--threads", "1"]),
        ("three", &["--cache", "none", "--threads", "3"]),
        ("auto", &["--cache", "auto", "--threads", "1"]),
    ] {
        let other = dir.path().join(name);
        run(&other, more);
        assert_same(&expected, &bits(&other));
    }
    // A run may be resumed with another cache, and other commands read its images in the same way.
    let none = dir.path().join("none");
    let none_word = none.to_str().unwrap();
    fs::remove_file(none.join("result.json")).unwrap();
    succeed(&["train", "--resume", none_word, "--quiet", "--cache", "memory"]);
    assert_same(&expected, &bits(&none));
    succeed(&["eval", "knn", none_word, "--json"]);
    succeed(&["report", none_word]);
    let said = fail(2, &words(&train(&data, &dir.path().join("x"), &["--cache", "disk"])));
    assert!(said.contains("data.cache") && said.contains("disk"), "{said}");
}

#[test]
fn the_plan_shows_the_memory_per_image() {
    let (dir, out) = place("run");
    let data = dir.path().join("photos");
    mixed_folder(&data, 40);
    let mut args = train(&data, &out, &["--clusters", "2", "--cache", "none", "--no-report"]);
    args.retain(|word| word != "--quiet");
    let shown = run(&words(&args));
    let said = String::from_utf8_lossy(&shown.stderr);
    for word in ["images none (", "decoded, ahead of every step", "for every image more"] {
        assert!(said.contains(word), "{word} is not in {said}");
    }
}

#[test]
fn a_file_replaced_between_runs_is_named() {
    let (dir, out) = place("run");
    let data = dir.path().join("photos");
    mixed_folder(&data, 60);
    succeed(&words(&train(&data, &out, &["--clusters", "3"])));
    fs::remove_file(out.join("result.json")).unwrap();
    let resume = ["train", "--resume", out.to_str().unwrap(), "--quiet"];
    // The same pixels at another time are the same images.
    let (name, other) = ("a/0000.jpg", "b/deep/0004.png");
    let bytes = fs::read(data.join(name)).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    fs::File::options().write(true).open(data.join(name)).unwrap().set_modified(later).unwrap();
    succeed(&["train", "--resume", out.to_str().unwrap()]);
    assert!(fs::read_to_string(out.join("train.log")).unwrap().contains("1 files have another size or time"));
    fs::remove_file(out.join("result.json")).unwrap();
    fs::write(data.join(name), mixed_image(14).1).unwrap();
    fs::remove_file(data.join(other)).unwrap();
    let said = fail(1, &resume);
    assert!(said.contains("a/0000.jpg (") && said.contains("b/deep/0004.png (gone)"), "{said}");
    fs::write(data.join(name), bytes).unwrap();
    fs::write(data.join(other), mixed_image(4).1).unwrap();
    succeed(&resume);
}

/// Fifty thousand pixels a side are 312 MB of data and 2.5 GB of pixels; they are refused by the header, within a limit that
/// neither would fit in.
#[cfg(unix)]
#[test]
fn a_bomb_is_refused_by_name_and_costs_no_memory() {
    use std::os::unix::process::CommandExt;
    let (dir, data) = place("photos");
    fs::create_dir(&data).unwrap();
    for i in [4, 18] {
        fs::write(data.join(format!("{i}.png")), mixed_image(i).1).unwrap();
    }
    let bytes = bomb(50_000);
    assert!(bytes.len() < 8 << 20, "{}", bytes.len());
    fs::write(data.join("bomb.png"), bytes).unwrap();
    let mut command = pcp(&["data", "check", data.to_str().unwrap(), "--json"]);
    // SAFETY: setrlimit(2) is safe to call between fork and exec, and the structure lives through the call.
    unsafe {
        command.pre_exec(|| {
            let most = libc::rlimit { rlim_cur: 300 << 20, rlim_max: 300 << 20 };
            match libc::setrlimit(libc::RLIMIT_DATA, &most) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let check: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&check["train"], &check["bad"][0]["name"]), (&2.into(), &"bomb.png".into()));
    assert!(check["bad"][0]["reason"].as_str().unwrap().contains("50000 x 50000"), "{check}");
    drop(dir);
}

#[test]
fn idx_files_train_packed_or_not() {
    let (dir, out) = place("run");
    let data = dir.path().join("digits");
    fs::create_dir(&data).unwrap();
    let gzip = |bytes: &[u8]| {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    };
    for (split, count) in [("train", 60u32), ("t10k", 20)] {
        let pixels =
            (0..count).flat_map(|i| (0..784).map(move |p| if p / 28 % 10 == i % 10 { 255 } else { (p % 7) as u8 }));
        let head = [2051u32, count, 28, 28].map(u32::to_be_bytes).concat();
        let images: Vec<u8> = head.into_iter().chain(pixels).collect();
        let head = [2049u32, count].map(u32::to_be_bytes).concat();
        let labels: Vec<u8> = head.into_iter().chain((0..count).map(|i| (i % 10) as u8)).collect();
        fs::write(data.join(format!("{split}-images-idx3-ubyte.gz")), gzip(&images)).unwrap();
        fs::write(data.join(format!("{split}-labels-idx1-ubyte")), labels).unwrap();
    }
    let args = ["--width", "4", "--epochs", "2", "--batch", "16", "--clusters", "5", "--quiet", "--json"];
    let own = ["train", data.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let result: serde_json::Value = serde_json::from_str(&succeed(&[&own[..], &args].concat())).unwrap();
    assert!(result["knn_raw"].as_f64().unwrap() > 90.0, "{result}");
    let config = fs::read_to_string(out.join("config.toml")).unwrap();
    assert!(config.contains("size = 32") && config.contains("presets = [\"idx\"]"), "{config}");
    let check: serde_json::Value =
        serde_json::from_str(&succeed(&["data", "check", data.to_str().unwrap(), "--json"])).unwrap();
    assert_eq!((&check["train"], &check["test"]), (&60.into(), &20.into()));
}

#[test]
fn errors_of_fetching_have_a_hint() {
    let (dir, data) = place("data");
    let data_dir = data.to_str().unwrap();
    // A server for one answer.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/cifar-10-binary.tar.gz", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 1024];
        let _ = std::io::Read::read(&mut stream, &mut head);
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    });
    let said = fail(1, &["data", "fetch", "cifar10", "--data-dir", data_dir, "--from", &url]);
    server.join().unwrap();
    for word in ["404", &url, "put it into", data_dir, "https://www.cs.toronto.edu/~kriz/cifar.html"] {
        assert!(said.contains(word), "{word} is not in {said}");
    }
    assert!(fail(2, &["data", "fetch", "cifar", "--data-dir", data_dir]).contains("did you mean cifar10?"));
    assert!(fail(2, &["data", "fetch", "cifar10"]).contains("--data-dir"));
    fs::write(data.join("cifar-10-binary.tar.gz"), "no archive").unwrap();
    let said = fail(1, &["data", "fetch", "cifar10", "--data-dir", data_dir]);
    assert!(said.contains("is damaged") && said.contains("c32a1d4ab5d03f1284b67883e8d87530"), "{said}");
    // Without a terminal there is no prompt; the error has the command.
    let said = fail(1, &["train", "cifar10", "--data-dir", data_dir]);
    assert!(said.contains("pcp data fetch cifar10"), "{said}");
    // Complete data is not fetched again.
    let folder = data.join("cifar-10-batches-bin");
    fs::create_dir(&folder).unwrap();
    for name in ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"] {
        let mut file = fs::File::create(folder.join(format!("{name}.bin"))).unwrap();
        file.write_all(b"not only zeros").unwrap();
        file.set_len(30_730_000).unwrap();
    }
    let done: serde_json::Value =
        serde_json::from_str(&succeed(&["data", "fetch", "cifar10", "--data-dir", data_dir, "--json"])).unwrap();
    assert_eq!(done["done"], "already there");
    assert!(succeed(&["data", "fetch", "--help"]).contains("Examples:"));
    drop(dir);
}
