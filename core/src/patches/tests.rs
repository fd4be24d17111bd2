//! Codes of images against a slow twin, mirror images, and degenerate collections.

use super::*;
use crate::error::Kind;
use crate::rng::{Key, Purpose};

/// Made-up images: smooth noise, so that patches differ.
struct MadeUp {
    count: usize,
    side: usize,
    mirrored: bool,
    flat: bool,
}

impl Images for MadeUp {
    fn len(&self) -> usize {
        self.count
    }

    fn side(&self) -> usize {
        self.side
    }

    fn read(&self, i: usize, out: &mut [f32]) -> Result<()> {
        let mut random = Key { purpose: Purpose::Synthetic, seed: 5, round: 0, epoch: 0 }.stream(i as u64, 0);
        let waves: Vec<[f32; 4]> = (0..6).map(|_| [0; 4].map(|_| random.uniform(-1.0, 1.0))).collect();
        for (at, x) in out.iter_mut().enumerate() {
            let (pixel, channel) = (at / 3, at % 3);
            let (row, column) = (pixel / self.side, pixel % self.side);
            let column = if self.mirrored { self.side - 1 - column } else { column };
            let wave =
                |w: &[f32; 4]| (w[0] * row as f32 + w[1] * column as f32 + w[2] * channel as f32 + 3.0 * w[3]).sin();
            *x = if self.flat { 0.5 } else { 0.5 + waves.iter().map(wave).sum::<f32>() / 12.0 };
        }
        Ok(())
    }
}

fn images(count: usize) -> MadeUp {
    MadeUp { count, side: 16, mirrored: false, flat: false }
}

fn settings() -> PatchSettings {
    PatchSettings { centroids: 20, samples: 2000, iterations: 4, ..PatchSettings::default() }
}

fn learned(settings: &PatchSettings) -> Patches {
    Patches::learn(&images(40), settings, &Cancel::default()).unwrap()
}

/// The image with half the side, each pixel the mean of four.
fn halved(image: &[f32], side: usize) -> Vec<f32> {
    let mut out = Vec::new();
    for y in 0..side / 2 {
        for x in 0..side / 2 {
            for channel in 0..3 {
                let four =
                    [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(dy, dx)| ((2 * y + dy) * side + 2 * x + dx) * 3 + channel);
                out.push(four.iter().map(|at| image[*at]).sum::<f32>() / 4.0);
            }
        }
    }
    out
}

/// The definition, level by level.
fn slow_code(patches: &Patches, image: &[f32]) -> Vec<f64> {
    let settings = patches.settings();
    let (mut image, mut side, mut out) = (image.to_vec(), patches.side(), Vec::new());
    for level in 0..settings.levels {
        if level > 0 {
            image = halved(&image, side);
            side /= 2;
        }
        let step = [settings.stride, settings.stride / 2, settings.stride / 4][level].max(1);
        out.extend(slow_level(patches, level, &image, (side, step)));
    }
    out
}

/// One patch and one filter at a time.
fn slow_level(patches: &Patches, level: usize, image: &[f32], (side, stride): (usize, usize)) -> Vec<f64> {
    let PatchSettings { patch, centroids: k, cells, threshold, .. } = *patches.settings();
    let positions = (side - patch) / stride + 1;
    let cell = |p: usize| p * cells / positions;
    let mut sums = vec![vec![0.0f64; 4 * k]; cells * cells];
    let mut counts = vec![0.0f64; cells * cells];
    for at in 0..positions * positions {
        let (y, x) = (at / positions, at % positions);
        let mut values: Vec<f32> = Vec::new();
        for dy in 0..patch {
            for dx in 0..patch {
                for channel in 0..3 {
                    values.push(image[((y * stride + dy) * side + x * stride + dx) * 3 + channel]);
                }
            }
        }
        extract::normalise_contrast(&mut values);
        values.push(1.0);
        let place = cell(y) * cells + cell(x);
        counts[place] += 1.0;
        for filter in 0..2 * k {
            let mut row = patches.filters().row(level * k + filter % k).to_vec();
            if filter >= k {
                let own = row.clone();
                extract::mirrored(&own[..own.len() - 1], patch, &mut row[..own.len() - 1]);
            }
            let product: f64 = row.iter().zip(&values).map(|(f, v)| f64::from(*f) * f64::from(*v)).sum();
            sums[place][filter] += (product - f64::from(threshold)).max(0.0);
            sums[place][2 * k + filter] += (-product - f64::from(threshold)).max(0.0);
        }
    }
    let mut out = Vec::new();
    for y in 0..cells {
        for x in 0..cells {
            let (own, mirror) = (y * cells + x, y * cells + cells - 1 - x);
            for sign in 0..2 {
                for c in 0..k {
                    let own_part = sums[own][sign * 2 * k + c] / counts[own];
                    let mirror_part = sums[mirror][sign * 2 * k + k + c] / counts[mirror];
                    out.push((own_part + mirror_part) / 2.0);
                }
            }
        }
    }
    out
}

#[test]
fn codes_match_the_definition() {
    for (patch, stride, cells, levels, side) in
        [(6, 2, 2, 1, 16), (6, 1, 2, 1, 16), (5, 1, 3, 1, 16), (1, 4, 2, 1, 16), (4, 2, 2, 2, 16), (3, 2, 2, 3, 19)]
    {
        let made_up = MadeUp { side, ..images(40) };
        let settings = PatchSettings { patch, stride, cells, levels, ..settings() };
        let patches = Patches::learn(&made_up, &settings, &Cancel::default()).unwrap();
        let codes = patches.encode(&made_up, 0..3, &Cancel::default()).unwrap();
        assert_eq!((codes.rows, codes.dim), (3, levels * cells * cells * 40));
        let mut image = vec![0.0; side * side * 3];
        for i in 0..3 {
            made_up.read(i, &mut image).unwrap();
            for (fast, slow) in codes.row(i).iter().zip(slow_code(&patches, &image)) {
                assert!((f64::from(*fast) - slow).abs() < 1e-4, "{fast} and {slow}");
            }
        }
    }
}

#[test]
fn an_image_and_its_mirror_image_have_the_same_code() {
    let patches = learned(&settings());
    let code = |mirrored| patches.encode(&MadeUp { mirrored, ..images(4) }, 0..4, &Cancel::default()).unwrap().values;
    for (a, b) in code(false).iter().zip(code(true)) {
        assert!((a - b).abs() < 1e-4, "{a} and {b}");
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let patches = learned(&settings());
            let (clean, other) = (images(12), MadeUp { mirrored: true, ..images(12) });
            let readout = ReadoutSettings { components: 8, ..ReadoutSettings::default() };
            let readout = patches.learn_readout(&[&clean, &other], 100, &readout, &Cancel::default()).unwrap();
            let codes = patches.encode(&clean, 0..12, &Cancel::default()).unwrap();
            (codes.values, patches.embed(&readout, &clean, &Cancel::default()).unwrap().values)
        })
    };
    assert_eq!(on(1), on(3));
}

/// Along all directions, a committee's features have the same products as those of its members side by side; along some, the first of them.
#[test]
fn a_committee_keeps_what_its_members_see() {
    let (patches, cancel) = (learned(&settings()), Cancel::default());
    let (all, mirrored) = (images(40), MadeUp { mirrored: true, ..images(40) });
    let flat = MadeUp { flat: true, ..images(40) };
    let few = ReadoutSettings { components: 5, ..ReadoutSettings::default() };
    let member = |view: &dyn Images| patches.learn_readout(&[&all, view], 100, &few, &cancel).unwrap();
    let members = [member(&mirrored), member(&flat)];
    let of = |components| patches.committee(&members, &all, 100, components, &cancel).unwrap();
    let roots = patches.roots(&all, &(0..40).collect::<Vec<_>>(), &cancel).unwrap();
    let (beside, along, first) =
        (Readout::side_by_side(&members).project(&roots), of(10).project(&roots), of(3).project(&roots));
    for (i, j) in [(0, 0), (3, 8), (17, 39)] {
        let product = |m: &Matrix| m.row(i).iter().zip(m.row(j)).map(|(a, b)| a * b).sum::<f32>();
        assert!((product(&beside) - product(&along)).abs() < 1e-3 * product(&beside).abs().max(1.0));
        assert!(first.row(i).iter().zip(along.row(i)).all(|(a, b)| (a - b).abs() < 1e-4));
    }
    // More directions than there are.
    assert_eq!(of(99).map.rows, 10);
}

#[test]
fn no_image_one_image_and_equal_images() {
    let e = Patches::learn(&images(0), &settings(), &Cancel::default()).err().unwrap();
    assert_eq!(e.kind, Kind::Data);
    for (count, flat) in [(1, false), (5, true)] {
        let collection = MadeUp { flat, ..images(count) };
        let patches = Patches::learn(&collection, &settings(), &Cancel::default()).unwrap();
        let codes = patches.encode(&collection, 0..count, &Cancel::default()).unwrap();
        assert!(codes.values.iter().all(|x| x.is_finite() && *x >= 0.0));
        let readout =
            patches.learn_readout(&[&collection], 3, &ReadoutSettings::default(), &Cancel::default()).unwrap();
        assert!(patches.embed(&readout, &collection, &Cancel::default()).unwrap().values.iter().all(|x| x.is_finite()));
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for (wrong, named) in [
        (PatchSettings { patch: 17, ..settings() }, "patches of 17"),
        (PatchSettings { stride: 0, ..settings() }, "stride"),
        (PatchSettings { cells: 9, ..settings() }, "grid of 9"),
        (PatchSettings { levels: 0, ..settings() }, "levels"),
        (PatchSettings { levels: 3, ..settings() }, "do not fit into images of 4"),
        (PatchSettings { levels: 99, ..settings() }, "do not fit into images of 0"),
    ] {
        let e = Patches::learn(&images(4), &wrong, &Cancel::default()).err().unwrap();
        assert!(e.kind == Kind::Usage && e.message.contains(named), "{e:?}");
    }
    let stopped = Cancel::default();
    stopped.request();
    assert_eq!(Patches::learn(&images(4), &settings(), &stopped).err().unwrap().kind, Kind::Stopped);
}
