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

/// With a second layer on a grid of `areas`.
fn two_layers(areas: usize) -> PatchSettings {
    let second = SecondSettings { centroids: 7, areas, numbers: 6, samples: 500, ..SecondSettings::default() };
    PatchSettings { second, ..settings() }
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

/// What every filter and then every mirrored filter has at every position of the image at a level, and its negative: `[positions^2][2][2 * centroids]`.
fn slow_products(patches: &Patches, level: usize, image: &[f32], (side, stride): (usize, usize)) -> Vec<[Vec<f64>; 2]> {
    let PatchSettings { patch, centroids: k, threshold, .. } = *patches.settings();
    let positions = (side - patch) / stride + 1;
    let at_position = |at: usize| {
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
        let product = |filter: usize| {
            let mut row = patches.filters().row(level * k + filter % k).to_vec();
            if filter >= k {
                let own = row.clone();
                extract::mirrored(&own[..own.len() - 1], patch, &mut row[..own.len() - 1]);
            }
            row.iter().zip(&values).map(|(f, v)| f64::from(*f) * f64::from(*v)).sum::<f64>()
        };
        let all: Vec<f64> = (0..2 * k).map(product).collect();
        [1.0, -1.0].map(|sign| all.iter().map(|x| (sign * x - f64::from(threshold)).max(0.0)).collect())
    };
    (0..positions * positions).map(at_position).collect()
}

/// These averaged over the cells of a grid; an image and its mirror image count the same.
fn slow_cells(products: &[[Vec<f64>; 2]], cells: usize) -> Vec<f64> {
    let (positions, k) = (products.len().isqrt(), products[0][0].len() / 2);
    let of_cell = |cell: usize| {
        let inside = move |at: &usize| {
            at / positions * cells / positions == cell / cells && at % positions * cells / positions == cell % cells
        };
        let inside: Vec<usize> = (0..products.len()).filter(inside).collect();
        move |sign: usize, filter: usize| {
            inside.iter().map(|at| products[*at][sign][filter]).sum::<f64>() / inside.len() as f64
        }
    };
    let mut out = Vec::new();
    for cell in 0..cells * cells {
        let (own, mirror) = (of_cell(cell), of_cell(cell / cells * cells + cells - 1 - cell % cells));
        for sign in 0..2 {
            out.extend((0..k).map(|c| (own(sign, c) + mirror(sign, k + c)) / 2.0));
        }
    }
    out
}

/// One patch and one filter at a time.
fn slow_level(patches: &Patches, level: usize, image: &[f32], size: (usize, usize)) -> Vec<f64> {
    slow_cells(&slow_products(patches, level, image, size), patches.settings().cells)
}

/// The second layer, one area, one patch and one filter at a time.
fn slow_second(patches: &Patches, image: &[f32], areas: usize) -> Vec<f64> {
    let (settings, second) = (patches.settings(), patches.second().unwrap());
    let (k, SecondSettings { patch, threshold, .. }) = (settings.centroids, settings.second.clone());
    let products = slow_products(patches, 0, image, (patches.side(), settings.stride));
    let positions = products.len().isqrt();
    let root = |area: usize, sign: usize, filter: usize| {
        let inside = (0..products.len()).filter(|at| {
            at / positions * areas / positions == area / areas && at % positions * areas / positions == area % areas
        });
        let all: Vec<f64> = inside.map(|at| products[at][sign][filter]).collect();
        (all.iter().sum::<f64>() / all.len() as f64).sqrt()
    };
    let numbers_of = |area: usize| -> Vec<f64> {
        let column = |i: usize| (root(area, i / k, i % k), root(area, i / k, k + i % k));
        let all: Vec<(f64, f64)> = (0..2 * k).map(column).collect();
        let even = |row: &[f32]| {
            let centred = all.iter().zip(&second.mean).map(|((o, m), mean)| o + m - f64::from(*mean));
            centred.zip(row).map(|(x, d)| x * f64::from(*d)).sum()
        };
        let odd = |row: &[f32]| all.iter().zip(row).map(|((o, m), d)| (o - m) * f64::from(*d)).sum();
        let evens = second.even.values.chunks(2 * k).map(even);
        evens.chain(second.odd.values.chunks(2 * k).map(odd)).collect()
    };
    let reduced: Vec<Vec<f64>> = (0..areas * areas).map(numbers_of).collect();
    let (places, evens) = (areas - patch + 1, second.even.rows);
    let of_place = |at: usize| {
        let area = |dy: usize, dx: usize| &reduced[(at / places + dy) * areas + at % places + dx];
        let places_within = || (0..patch * patch).map(|i| (i / patch, i % patch));
        let own: Vec<f64> = places_within().flat_map(|(dy, dx)| area(dy, dx).clone()).collect();
        let length = own.iter().map(|x| x * x).sum::<f64>().sqrt();
        // A mirrored filter has with a patch the product that the filter has with the mirrored patch.
        let turned = |(dy, dx): (usize, usize)| {
            let numbers = area(dy, patch - 1 - dx).iter().enumerate();
            numbers.map(|(i, x)| if i < evens { *x } else { -x }).collect::<Vec<f64>>()
        };
        let mirrored: Vec<f64> = places_within().flat_map(turned).collect();
        let product = |patch: &[f64], f: usize| {
            second.filters.row(f).iter().zip(patch).map(|(f, x)| f64::from(*f) * x).sum::<f64>() / length
        };
        let k = second.filters.rows;
        let all: Vec<f64> =
            (0..2 * k).map(|f| if f < k { product(&own, f) } else { product(&mirrored, f - k) }).collect();
        [1.0, -1.0].map(|sign| all.iter().map(|x| (sign * x - f64::from(threshold)).max(0.0)).collect())
    };
    slow_cells(&(0..places * places).map(of_place).collect::<Vec<_>>(), settings.cells)
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
fn codes_of_the_second_layer_match_the_definition() {
    // As many areas as there are patches, and fewer; an odd number has one too many for two cells.
    for (wanted, areas, patch, stride, levels, numbers) in
        [(4, 4, 2, 1, 1, 6), (99, 6, 3, 2, 1, 2), (11, 10, 1, 1, 2, 99), (3, 2, 1, 2, 1, 7)]
    {
        let mut settings = PatchSettings { stride, levels, ..two_layers(wanted) };
        (settings.second.patch, settings.second.numbers) = (patch, numbers);
        let patches = learned(&settings);
        let codes = patches.encode(&images(3), 0..3, &Cancel::default()).unwrap();
        let own = levels * 4 * 40;
        assert_eq!(codes.dim, own + 4 * 14);
        assert_eq!((codes.dim, patches.second().unwrap().filters.rows), (patches.features(), 7));
        let mut image = vec![0.0; 16 * 16 * 3];
        for i in 0..3 {
            images(3).read(i, &mut image).unwrap();
            let (first, second) = codes.row(i).split_at(own);
            for (fast, slow) in first.iter().zip(slow_code(&patches, &image)) {
                assert!((f64::from(*fast) - slow).abs() < 1e-4, "{fast} and {slow}");
            }
            for (fast, slow) in second.iter().zip(slow_second(&patches, &image, areas)) {
                assert!((f64::from(*fast) - slow).abs() < 1e-4, "{fast} and {slow}, areas {areas}");
            }
            assert!(second.iter().any(|x| *x > 0.0));
        }
    }
}

/// Where the grids divide the patches evenly.
#[test]
fn an_image_and_its_mirror_image_have_the_same_code() {
    for (areas, patch) in [(0, 0), (6, 1), (6, 3), (2, 1)] {
        let mut settings = if areas == 0 { settings() } else { two_layers(areas) };
        settings.second.patch = patch;
        let patches = learned(&settings);
        let code =
            |mirrored| patches.encode(&MadeUp { mirrored, ..images(4) }, 0..4, &Cancel::default()).unwrap().values;
        for (a, b) in code(false).iter().zip(code(true)) {
            assert!((a - b).abs() < 1e-4, "{a} and {b}");
        }
    }
}

#[test]
fn arrays_come_back_and_others_are_refused_by_name() {
    let settings = two_layers(4);
    let patches = learned(&settings);
    let arrays = patches.arrays("x.");
    let read = |arrays: &[(String, Shaped)]| {
        let mut take = |name: &str| match arrays.iter().find(|(other, _)| other == name) {
            Some((_, array)) => Ok(array.clone()),
            None => Err(Error::file(format!("{name} is missing"), "use another file")),
        };
        Patches::from_arrays(settings.clone(), 16, "x.", &mut take)
    };
    let again = read(&arrays).unwrap();
    assert_eq!(again.arrays("x."), arrays);
    let codes = |patches: &Patches| patches.encode(&images(2), 0..2, &Cancel::default()).unwrap();
    assert_eq!(codes(&again), codes(&patches));
    assert_eq!(arrays.len(), 5);
    for wrong in 0..5 {
        let mut other = arrays.clone();
        other[wrong].1.0.push(1);
        assert!(read(&other).err().unwrap().message.contains(&arrays[wrong].0));
        other.remove(wrong);
        assert!(read(&other).err().unwrap().message.contains(&arrays[wrong].0));
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let patches = learned(&two_layers(4));
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
        let patches = Patches::learn(&collection, &two_layers(4), &Cancel::default()).unwrap();
        let codes = patches.encode(&collection, 0..count, &Cancel::default()).unwrap();
        assert!(codes.values.iter().all(|x| x.is_finite() && *x >= 0.0));
        let readout =
            patches.learn_readout(&[&collection], 3, &ReadoutSettings::default(), &Cancel::default()).unwrap();
        assert!(patches.embed(&readout, &collection, &Cancel::default()).unwrap().values.iter().all(|x| x.is_finite()));
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let with = |change: fn(&mut SecondSettings)| {
        let mut settings = two_layers(4);
        change(&mut settings.second);
        settings
    };
    for (wrong, named) in [
        (PatchSettings { patch: 17, ..settings() }, "patches of 17"),
        (PatchSettings { stride: 0, ..settings() }, "stride"),
        (PatchSettings { cells: 9, ..settings() }, "grid of 9"),
        (PatchSettings { levels: 0, ..settings() }, "levels"),
        (PatchSettings { levels: 3, ..settings() }, "do not fit into images of 4"),
        (PatchSettings { levels: 99, ..settings() }, "do not fit into images of 0"),
        (two_layers(1), "on a grid of 0 areas"),
        (with(|second| second.patch = 4), "second.patch cannot be 4"),
        (with(|second| second.patch = 0), "second.patch cannot be 0"),
        (with(|second| second.numbers = 1), "second.numbers cannot be 1"),
        (with(|second| second.samples = 0), "second.samples is 0"),
    ] {
        let e = Patches::learn(&images(4), &wrong, &Cancel::default()).err().unwrap();
        assert!(e.kind == Kind::Usage && e.message.contains(named), "{e:?}");
    }
    let stopped = Cancel::default();
    stopped.request();
    assert_eq!(Patches::learn(&images(4), &settings(), &stopped).err().unwrap().kind, Kind::Stopped);
}
