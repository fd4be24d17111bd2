//! Mutated inputs for every parser: no panic, and no more memory than a limit.
//!
//! Seeds are made by code and mutations follow from a number, so that every run is the same. `cargo test` tries a few hundred inputs
//! per parser; `just fuzz` sets `PCP_FUZZ_INPUTS` to 100,000. A failure names the parser and the input's number, and leaves
//! the input in a file.

#![allow(clippy::unwrap_used, clippy::print_stdout, unsafe_code)]

use flate2::Compression;
use flate2::write::GzEncoder;
use image::{DynamicImage, GrayImage, ImageFormat, Luma, Rgb, RgbImage, Rgba, RgbaImage};
use pcp::config::{Config, PRESETS, SettingsLayer};
use pcp::data::voc::Annotation;
use pcp::data::{Load, Source, cifar, decode, fetch, idx, load};
use pcp::method::{self, EpochTargets, Plan};
use pcp::model::Network;
use pcp::run::Bound;
use pcp::train::State;
use pcp_core::cancel::Cancel;
use pcp_core::io::matrix;
use pcp_core::io::npy::{read_matrix, read_npz, write_npy, write_npz};
use pcp_core::io::tensors::{Array, Tensors};
use pcp_core::purify::Positives;
use safetensors::tensor::{Dtype, TensorView};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Cursor, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Counts the bytes that a thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn took(bytes: usize) {
    let _ = HELD.try_with(|held| {
        held.set(held.get().saturating_add(bytes));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

fn gave(bytes: usize) {
    let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(bytes)));
}

// SAFETY: every call is passed to the system's allocator unchanged; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        gave(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Numbers that parsers often handle wrongly.
const EDGES: [u64; 12] = [0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x1_0000, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// `seed`, changed in one to eight ways.
fn mutated(random: &mut Random, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + random.below(8) {
        let at = random.below(bytes.len());
        let span = (1 + random.below(32)).min(bytes.len() - at);
        match random.below(9) {
            _ if bytes.is_empty() => bytes.extend(random.next().to_le_bytes()),
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = random.next() as u8,
            3 => {
                let (edge, width) = (EDGES[random.below(EDGES.len())], 1 << random.below(4));
                let number = if random.below(2) == 0 {
                    edge.to_le_bytes()
                } else {
                    edge.rotate_right(8 * width as u32).to_be_bytes()
                };
                bytes.iter_mut().skip(at).zip(&number[..width]).for_each(|(b, n)| *b = *n);
            }
            4 => drop(bytes.drain(at..at + span)),
            5 => {
                let copy = bytes[at..at + span].to_vec();
                bytes.splice(at..at, copy);
            }
            6 => drop(bytes.splice(at..at, (0..span).map(|_| random.next() as u8).collect::<Vec<_>>())),
            7 => bytes.truncate(at),
            _ => {
                let from = random.below(other.len());
                let end = (from + 64).min(other.len());
                bytes.splice(at..at + span, other[from..end].iter().copied());
            }
        }
    }
    bytes
}

/// Feeds mutations of `seeds` to `parse`, which must neither panic nor hold more than `most` bytes; the seeds themselves
/// must be parsed as `parse` expects.
fn campaign(name: &str, seeds: &[Vec<u8>], most: usize, mut parse: impl FnMut(&[u8]) -> bool) {
    for (i, seed) in seeds.iter().enumerate() {
        assert!(parse(seed), "{name}: seed {i} is not taken");
    }
    let inputs = std::env::var("PCP_FUZZ_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let (mut taken, mut worst) = (0, 0);
    for n in 0..inputs {
        let mut random = Random(name.bytes().fold(n, |a, b| a.wrapping_mul(257).wrapping_add(u64::from(b))));
        let seed = &seeds[random.below(seeds.len())];
        let other = &seeds[random.below(seeds.len())];
        let mut input = mutated(&mut random, seed, other);
        if random.below(2) == 0 {
            mend_checksums(&mut input);
        }
        let before = HELD.get();
        PEAK.set(before);
        let outcome = catch_unwind(AssertUnwindSafe(|| parse(&input)));
        let held = PEAK.get() - before;
        worst = worst.max(held);
        if outcome.is_err() || held > most {
            let path = std::env::temp_dir().join(format!("pcp-fuzz-{name}-{n}"));
            std::fs::write(&path, &input).unwrap();
            let what = if outcome.is_err() { "panics".into() } else { format!("holds {held} bytes") };
            panic!("{name}: input {n} {what}; it is in {}", path.display());
        }
        taken += usize::from(outcome.unwrap_or(false));
    }
    println!("{name}: {inputs} inputs, {taken} of them taken, at most {worst} bytes held");
}

/// Corrects the checksums of PNG chunks: otherwise every mutation would be refused by its checksum.
fn mend_checksums(bytes: &mut [u8]) {
    let mut at = 8;
    while bytes.starts_with(b"\x89PNG")
        && let Some(length) = bytes.get(at..at + 4)
    {
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let Some(end) = at.checked_add(8 + length).filter(|end| end + 4 <= bytes.len()) else { return };
        let mut crc = flate2::Crc::new();
        crc.update(&bytes[at + 4..end]);
        bytes[end..end + 4].copy_from_slice(&crc.sum().to_be_bytes());
        at = end + 4;
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn pictures() -> Vec<DynamicImage> {
    vec![
        RgbImage::from_fn(13, 7, |x, y| Rgb([x as u8 * 19, y as u8 * 33, 77])).into(),
        GrayImage::from_fn(5, 9, |x, y| Luma([(x * y) as u8])).into(),
        RgbaImage::from_fn(6, 6, |x, y| Rgba([x as u8, 200, y as u8, 40 * x as u8])).into(),
    ]
}

fn images(format: ImageFormat) {
    let mut seeds = Vec::new();
    for picture in pictures() {
        let mut out = Cursor::new(Vec::new());
        if picture.write_to(&mut out, format).is_ok() {
            seeds.push(out.into_inner());
        }
    }
    match format {
        ImageFormat::Jpeg => seeds.push(include_bytes!("images/cmyk.jpg").to_vec()),
        ImageFormat::Tiff => {
            seeds.extend([include_bytes!("images/cmyk.tif").to_vec(), include_bytes!("images/turned.tif").to_vec()])
        }
        ImageFormat::Png => seeds.push(include_bytes!("images/turned.png").to_vec()),
        ImageFormat::WebP => seeds.push(include_bytes!("images/turned.webp").to_vec()),
        _ => {}
    }
    // The decoded picture, its RGB copy, and its rotated copy.
    let most = 3 * decode::MAX_DECODED as usize + (1 << 20);
    let parse = |bytes: &[u8]| match decode::bytes(bytes) {
        Ok(image) => {
            assert_eq!(image.pixels.len(), image.width * image.height * 3);
            assert!(image.width > 0 && image.height > 0, "an image without pixels");
            true
        }
        Err(reason) => {
            assert!(!reason.contains("the decoder failed"), "a decoder panics");
            false
        }
    };
    campaign(&format!("{format:?}").to_lowercase(), &seeds, most, parse);
}

#[test]
fn jpeg() {
    images(ImageFormat::Jpeg);
}

#[test]
fn png() {
    images(ImageFormat::Png);
}

#[test]
fn webp() {
    images(ImageFormat::WebP);
}

#[test]
fn bmp() {
    images(ImageFormat::Bmp);
}

#[test]
fn gif() {
    images(ImageFormat::Gif);
}

#[test]
fn tiff() {
    images(ImageFormat::Tiff);
}

#[test]
fn cifar_records() {
    for (name, values) in [("cifar10", &[10][..]), ("cifar100", &[20, 100])] {
        let record = |r: usize| values.iter().map(|v| 7 % v).chain((0..3072).map(move |i| i * r)).map(|b| b as u8);
        let seed = (0..3).flat_map(record).collect();
        campaign(name, &[seed], 1 << 20, |bytes| cifar::classes(bytes, values).is_ok());
    }
}

#[test]
fn idx_files() {
    let idx_of = |shape: &[u32], n: usize| -> Vec<u8> {
        let sizes = shape.iter().flat_map(|n| n.to_be_bytes());
        [0, 0, 8, shape.len() as u8].into_iter().chain(sizes).chain((0..n).map(|i| i as u8)).collect()
    };
    let (images, labels) = (idx_of(&[3, 5, 4], 60), idx_of(&[3], 3));
    let most = 1 << 20;
    campaign("idx", &[gzip(&images), gzip(&labels), images.clone(), labels], 8 * most, |bytes| {
        let unpacked = idx::unpacked(bytes.to_vec(), most as u64);
        unpacked.is_ok_and(|bytes| idx::header(&bytes, bytes.len() as u64).is_ok())
    });
    // The same by way of files, as a user's folder holds them.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("train-images-idx3-ubyte");
    let source = Load::new(Source::Idx(dir.path().into()));
    campaign("idx-folder", &[images.clone(), gzip(&images)], 64 * most, |bytes| {
        std::fs::write(&file, bytes).unwrap();
        load(&source, &|_, _| ()).is_ok()
    });
}

#[test]
fn config_toml() {
    let mut seeds: Vec<Vec<u8>> = PRESETS.iter().map(|(_, text)| text.as_bytes().to_vec()).collect();
    seeds.push(Config::default().to_table().to_string().into_bytes());
    campaign("config", &seeds, 64 << 20, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        SettingsLayer::parse("fuzz".into(), &text).and_then(|layer| Config::from_layers(&[layer])).is_ok()
    });
    campaign("assignment", &[b"purify.gamma=0.3".to_vec(), b"data.mean=[0.1,0.2,0.3]".to_vec()], 64 << 20, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        SettingsLayer::assignment(&text).and_then(|layer| Config::from_layers(&[layer])).is_ok()
    });
}

#[test]
fn checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint.safetensors");
    let mut config = Config::default();
    (config.network.width, config.network.embedding) = (1, 4);
    let dataset = Arc::new(load(&Load { limit: Some(5), ..Load::new(Source::Bundled) }, &|_, _| ()).unwrap());
    let network = Network::new(&config.network, 32).unwrap();
    let plan = Plan::new(config.resolve(&dataset).unwrap(), dataset).unwrap();
    let method = method::of(plan.config.method.system);
    let bound = Bound::new(plan.config.entries(), "images");
    let mut state = State::new(&network, network.init(0), method, &plan);
    state.history.push(vec![0, 1, 1, 0, 2], 3);
    let positives = Positives::from_sets(5, [vec![1, 2]]);
    let targets = EpochTargets { labels: Some(vec![0, 1, 1, 2, 2]), positives, clusterings: vec![vec![0; 5]] };
    (state.targets, state.progress.counts.clusters) = (Some(Arc::new(targets)), 3);
    state.save(&network, &plan, &bound, &path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let most = 64 << 20;
    let load = || State::load(&network, method, &plan, &bound, &path).is_ok();
    assert!(load());
    campaign("checkpoint", std::slice::from_ref(&whole), most, |bytes| {
        std::fs::write(&path, bytes).unwrap();
        load()
    });
    // Most of the file is weights; the header is the part to mutate.
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    campaign("checkpoint-header", &[whole[..header].to_vec()], most, |bytes| {
        std::fs::write(&path, [bytes, &whole[header..]].concat()).unwrap();
        load()
    });
    // Behind the checksum, which is made anew: what was changed must not break anything that uses the state.
    std::fs::write(&path, &whole).unwrap();
    let sound: Tensors<serde_json::Value> = Tensors::read(&path).unwrap();
    let used = |tensors: Tensors<serde_json::Value>| {
        tensors.write(&path).unwrap();
        let Ok((state, _)) = State::load(&network, method, &plan, &bound, &path) else { return false };
        let targets = state.targets.unwrap();
        let batches = method.batches(&plan, (state.progress.round, state.progress.epoch), &targets);
        assert!(state.progress.batch <= batches.len());
        state.memory.bank().unwrap().rows.row(4);
        assert!((0..5).all(|i| targets.positives.of(i).is_none_or(|set| set.iter().all(|j| *j < 5))));
        true
    };
    campaign("checkpoint-behind-about", &[sound.about.to_string().into_bytes()], most, |bytes| {
        serde_json::from_slice(bytes).is_ok_and(|about| used(Tensors { about, ..sound.clone() }))
    });
    let names: Vec<String> = sound.arrays.keys().cloned().collect();
    campaign("checkpoint-behind-arrays", &[vec![0, 3, 0, 0, 1, 3, 0, 1, 2, 3, 0, 2, 3, 3, 0, 3]], most, |bytes| {
        let mut tensors = sound.clone();
        for change in bytes.chunks_exact(4).take(4) {
            let name = &names[usize::from(change[0]) % names.len()];
            let number = i64::from(change[2]) - 128;
            let resized = |shape: &mut Vec<usize>| {
                shape[0] = shape[0].saturating_add_signed(number as isize);
                shape.iter().product::<usize>()
            };
            match (change[1] % 4, tensors.arrays.get_mut(name)) {
                (0, _) => drop(tensors.arrays.remove(name)),
                (1, Some(Array::F32(shape, values))) => values.resize(resized(shape), 0.5),
                (1, Some(Array::U32(shape, values))) => values.resize(resized(shape), 1),
                (2, Some(Array::F32(_, values))) => {
                    values.iter_mut().skip(change[3].into()).take(1).for_each(|x| *x = f32::NAN)
                }
                (2, Some(Array::U32(_, values))) => {
                    values.iter_mut().skip(change[3].into()).take(1).for_each(|x| *x = number as u32)
                }
                (_, Some(array)) => {
                    let other = array.clone();
                    tensors.arrays.insert(names[usize::from(change[3]) % names.len()].clone(), other);
                }
                _ => {}
            }
        }
        used(tensors)
    });
}

#[test]
fn numpy_files() {
    let dir = tempfile::tempdir().unwrap();
    let (npy, npz) = (dir.path().join("x.npy"), dir.path().join("x.npz"));
    write_npy(&npy, &[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    write_npz(&npz, |z| {
        z.add("label", &[1u32, 2, 3])?;
        z.add("vote", &[0.5f32, 0.25])
    })
    .unwrap();
    let (npy_seed, npz_seed) = (std::fs::read(&npy).unwrap(), std::fs::read(&npz).unwrap());
    campaign("npy", &[npy_seed], 16 << 20, |bytes| {
        std::fs::write(&npy, bytes).unwrap();
        read_matrix(&npy).is_ok()
    });
    campaign("npz", &[npz_seed], 64 << 20, |bytes| {
        std::fs::write(&npz, bytes).unwrap();
        read_npz::<u32>(&npz, "label").is_ok() & read_npz::<f32>(&npz, "vote").is_ok()
    });
}

#[test]
fn embeddings_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let tried = |name: &str, seeds: &[Vec<u8>]| {
        let path = dir.path().join(name);
        campaign(name, seeds, 16 << 20, |bytes| {
            std::fs::write(&path, bytes).unwrap();
            let read = matrix::read(&path);
            read.is_ok_and(|m| {
                assert_eq!(m.matrix.values.len(), m.matrix.rows * m.matrix.dim);
                assert!(m.names.is_none_or(|names| names.len() == m.matrix.rows));
                true
            })
        });
    };
    let csv =
        ["1,2.5\n-3,4e-3\n", "file,0,1\n\"a, \"\"b\"\"\nc.png\",1,2.5\nä.png,-3,nan\n", "\u{feff},x,y\r\n0,1,2\r\n"];
    tried("x.csv", &csv.map(|text| text.as_bytes().to_vec()));
    let view = |kind, bytes| TensorView::new(kind, vec![3, 2], bytes).unwrap();
    let safetensors = [(Dtype::F32, &[1; 24][..]), (Dtype::F16, &[2; 12]), (Dtype::F64, &[3; 48])]
        .map(|(kind, bytes)| safetensors::serialize([("embeddings", view(kind, bytes))], None).unwrap());
    tried("x.safetensors", &safetensors);
}

#[test]
fn annotations() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.xml");
    let object = "<object><name>cat</name><difficult>0</difficult><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax>\
                  <ymax>40</ymax></bndbox></object>";
    let seeds = [1, 2].map(|n| format!("<annotation>\n{}</annotation>", object.repeat(n)).into_bytes());
    campaign("annotation", &seeds, 16 << 20, |bytes| {
        std::fs::write(&path, bytes).unwrap();
        Annotation::read(&path).is_ok()
    });
}

#[test]
fn archives() {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, contents) in
        [("data/train.bin", &b"some records"[..]), ("data/test.bin", b"others"), ("data/readme.html", b"")]
    {
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, contents).unwrap();
    }
    let plain = tar.into_inner().unwrap();
    let stop = Cancel::default();
    let parse = |packed: &[u8]| {
        let mut take = |name: &str, size: u64, contents: &mut dyn Read| {
            let harmless = !name.is_empty() && !name.contains(['/', '\\', '\0']) && !name.starts_with('.');
            assert!(harmless, "{name:?} could lead elsewhere");
            // The archive may end before the entry.
            let _ = std::io::copy(&mut contents.take(size), &mut std::io::sink());
            Ok(())
        };
        fetch::walk(packed, "data", &stop, &mut take).is_ok()
    };
    // Mutations of the compressed and of the uncompressed archive.
    campaign("archive", &[gzip(&plain)], 16 << 20, parse);
    campaign("tar", &[plain], 16 << 20, |bytes| parse(&gzip(bytes)));
}
