//! Views against golden values of torchvision and a plain implementation, and properties.

use proptest::prelude::*;

use super::*;
use pcp_core::rng::{Key, Purpose};

const CIFAR: ([f32; 3], [f32; 3]) = ([0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]);

fn augmenter(size: usize) -> Augmenter {
    Augmenter { size, margin: 1.0, mean: CIFAR.0, std: CIFAR.1, recipe: AugmentSettings::default() }
}

fn stream(index: u64) -> Stream {
    Key { purpose: Purpose::View, seed: 3, round: 0, epoch: 0 }.stream(index, 0)
}

/// The paper's views, but cut as `padded` and blurred half the time.
fn padded_and_blurred() -> AugmentSettings {
    AugmentSettings { crop: Crop::Padded, blur: 0.5, ..AugmentSettings::default() }
}

/// The region of a resized crop.
fn region(plan: &ViewPlan) -> Region {
    match plan.cut {
        Cut::Resized(region) => region,
        Cut::Padded { .. } => panic!("no resized crop: {plan:?}"),
    }
}

fn picture(width: usize, height: usize, seed: u64) -> Image {
    let mut rng = Key { purpose: Purpose::Synthetic, seed, round: 0, epoch: 0 }.stream(0, 0);
    Image { width, height, pixels: (0..width * height * 3).map(|_| rng.next_u64() as u8).collect() }
}

/// `torchvision.transforms.v2.functional`, torchvision 0.29, on these six pixels as one float image. It has .2989 for .299,
/// hence the tolerance.
#[test]
fn golden_values_of_torchvision() {
    let pixels =
        [[0.9, 0.2, 0.1], [0.3, 0.8, 0.4], [0.1, 0.25, 0.7], [0.5, 0.5, 0.5], [0.6, 0.1, 0.6], [1.0, 1.0, 0.0]];
    #[rustfmt::skip]
    let expected: [(Option<JitterStep>, [[f32; 3]; 6]); 7] = [
        (Some(JitterStep::Brightness(1.3)), [[1.0, 0.26, 0.13], [0.39, 1.0, 0.52], [0.13, 0.325, 0.91], [0.65, 0.65, 0.65],
            [0.78, 0.13, 0.78], [1.0, 1.0, 0.0]]),
        (Some(JitterStep::Contrast(0.7)), [[0.77757, 0.287571, 0.21757], [0.35757, 0.70757, 0.42757],
            [0.21757, 0.322571, 0.637571], [0.49757, 0.49757, 0.49757], [0.567571, 0.21757, 0.567571],
            [0.84757, 0.84757, 0.14757]]),
        (Some(JitterStep::Contrast(1.4)), [[1.0, 0.083239, 0.0], [0.223239, 0.923239, 0.363239], [0.0, 0.153239, 0.783239],
            [0.503239, 0.503239, 0.503239], [0.643239, 0.0, 0.643239], [1.0, 1.0, 0.0]]),
        (Some(JitterStep::Saturation(1.35)), [[1.0, 0.130767, 0.0], [0.193296, 0.868296, 0.328296],
            [0.045246, 0.247746, 0.855246], [0.500018, 0.500018, 0.500018], [0.702746, 0.027746, 0.702746],
            [1.0, 1.0, 0.0]]),
        (Some(JitterStep::Hue(0.3)), [[0.16, 0.9, 0.1], [0.3, 0.3, 0.8], [0.7, 0.1, 0.37], [0.5, 0.5, 0.5], [0.6, 0.5, 0.1],
            [0.0, 1.0, 0.8]]),
        (Some(JitterStep::Hue(-0.4)), [[0.1, 0.32, 0.9], [0.8, 0.3, 0.4], [0.49, 0.7, 0.1], [0.5, 0.5, 0.5], [0.1, 0.6, 0.4],
            [0.6, 0.0, 1.0]]),
        (None, [[0.39781; 3], [0.60487; 3], [0.25644; 3], [0.49995; 3], [0.30644; 3], [0.8859; 3]]),
    ];
    for (step, want) in expected {
        let [mut r, mut g, mut b] = [0, 1, 2].map(|c| pixels.map(|p| p[c]));
        match step {
            Some(step) => apply(step, &mut r, &mut g, &mut b),
            None => grey(&mut r, &mut g, &mut b),
        }
        for i in 0..6 {
            for (got, want) in [r[i], g[i], b[i]].iter().zip(want[i]) {
                assert!((got - want).abs() < 2e-4, "{step:?} pixel {i}: {got} {want}");
            }
        }
    }
}

/// The same view by a plain implementation: pixel by pixel, HSV with its six cases.
fn twin(augmenter: &Augmenter, image: &Image, plan: &ViewPlan) -> Vec<f32> {
    let size = augmenter.size;
    let mut values = vec![0.0; size * size * 3];
    match plan.cut {
        Cut::Resized(region) => Resampler::default().interleaved(image, region, size, size, &mut values),
        Cut::Padded { .. } => {
            Augmenter { mean: [0.0; 3], std: [1.0; 3], ..augmenter.clone() }.clean_view(image, &mut values);
        }
    }
    let mut pixels: Vec<[f64; 3]> = values.chunks(3).map(|p| [p[0], p[1], p[2]].map(f64::from)).collect();
    if let Cut::Padded { down, right } = plan.cut {
        pixels = moved(&pixels, size as isize, down, right);
    }
    let luma = |p: &[f64; 3]| 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2];
    for step in plan.jitter.iter().flatten() {
        let mean = pixels.iter().map(luma).sum::<f64>() / pixels.len() as f64;
        for p in &mut pixels {
            let blend =
                |towards: f64, f: f32| p.map(|v| (v * f64::from(f) + towards * (1.0 - f64::from(f))).clamp(0.0, 1.0));
            *p = match *step {
                JitterStep::Brightness(f) => blend(0.0, f),
                JitterStep::Contrast(f) => blend(mean, f),
                JitterStep::Saturation(f) => blend(luma(p), f),
                JitterStep::Hue(turns) => turned(*p, f64::from(turns)),
            };
        }
    }
    if plan.grey {
        pixels.iter_mut().for_each(|p| *p = [luma(p); 3]);
    }
    if let Some(sigma) = plan.blur {
        for c in 0..3 {
            let plane: Vec<f64> = pixels.iter().map(|p| p[c]).collect();
            let plane = blur::tests::twin(&plane, size, f64::from(sigma));
            pixels.iter_mut().zip(plane).for_each(|(p, v)| p[c] = v);
        }
    }
    let mut out = Vec::new();
    for y in 0..size {
        for x in 0..size {
            let p = pixels[y * size + if plan.flip { size - 1 - x } else { x }];
            let (mean, std) = (augmenter.mean.map(f64::from), augmenter.std.map(f64::from));
            out.extend((0..3).map(|c| ((p[c] - mean[c]) / std[c]) as f32));
        }
    }
    out
}

/// RandomCrop with padding, pixel by pixel: what is not in the picture is black.
fn moved(pixels: &[[f64; 3]], size: isize, down: isize, right: isize) -> Vec<[f64; 3]> {
    let at = |y: isize, x: isize| {
        let there = (0..size).contains(&y) && (0..size).contains(&x);
        if there { pixels[(y * size + x) as usize] } else { [0.0; 3] }
    };
    (0..size).flat_map(|y| (0..size).map(move |x| (y, x))).map(|(y, x)| at(y + down, x + right)).collect()
}

fn turned([r, g, b]: [f64; 3], turns: f64) -> [f64; 3] {
    let (v, min) = (r.max(g).max(b), r.min(g).min(b));
    if v == min {
        return [r, g, b];
    }
    let (s, c) = ((v - min) / v, v - min);
    let h = if v == r {
        (g - b) / c
    } else if v == g {
        2.0 + (b - r) / c
    } else {
        4.0 + (r - g) / c
    };
    let h = (h / 6.0 + turns).rem_euclid(1.0) * 6.0;
    let f = h - h.floor();
    let (p, q, t) = (v * (1.0 - s), v * (1.0 - s * f), v * (1.0 - s * (1.0 - f)));
    match h.floor() as u32 {
        0 => [v, t, p],
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        _ => [v, p, q],
    }
}

proptest! {
    #[test]
    fn views_match_the_slow_twin_and_stay_in_range(
        (w, h) in (1usize..40, 1usize..40), size in 1usize..34, seed in 0u64..1000, plain in any::<bool>(),
    ) {
        let recipe = if plain { AugmentSettings::default() } else { padded_and_blurred() };
        let (augmenter, image) = (Augmenter { recipe, margin: 1.2, ..augmenter(size) }, picture(w, h, seed));
        let plan = augmenter.recipe.draw(w, h, size, &mut stream(seed));
        let mut view = vec![f32::NAN; size * size * 3];
        augmenter.train_view(&image, &mut stream(seed), &mut view);
        for (i, (a, b)) in view.iter().zip(twin(&augmenter, &image, &plan)).enumerate() {
            prop_assert!((a - b).abs() < 1e-4, "value {i}: {a} {b}");
            let (low, high) = (-CIFAR.0[i % 3] / CIFAR.1[i % 3], (1.0 - CIFAR.0[i % 3]) / CIFAR.1[i % 3]);
            prop_assert!((low - 1e-4..=high + 1e-4).contains(a));
        }
        let mut again = vec![0.0; size * size * 3];
        augmenter.train_view(&image, &mut stream(seed), &mut again);
        prop_assert_eq!(&view, &again);
    }

    #[test]
    fn a_flip_mirrors_the_view(seed in 0u64..100, size in 1usize..20) {
        let (augmenter, image) = (augmenter(size), picture(17, 13, seed));
        let plan = ViewPlan { flip: false, ..augmenter.recipe.draw(17, 13, size, &mut stream(seed)) };
        let (mut plain, mut mirrored) = (vec![0.0; size * size * 3], vec![0.0; size * size * 3]);
        augmenter.planned_view(&image, &plan, &mut plain);
        augmenter.planned_view(&image, &ViewPlan { flip: true, ..plan }, &mut mirrored);
        for y in 0..size {
            for x in 0..size {
                let (a, b) = ((y * size + x) * 3, (y * size + size - 1 - x) * 3);
                prop_assert_eq!(&plain[a..a + 3], &mirrored[b..b + 3]);
            }
        }
    }

    #[test]
    fn crops_lie_in_the_image(w in 1usize..300, h in 1usize..300, seed in 0u64..1000) {
        let region = region(&AugmentSettings::default().draw(w, h, 32, &mut stream(seed)));
        prop_assert!(region.width >= 1 && region.height >= 1);
        prop_assert!(region.left + region.width <= w && region.top + region.height <= h);
    }
}

#[test]
fn draws_have_the_frequencies_of_the_settings() {
    let recipe = AugmentSettings::default();
    let plans: Vec<ViewPlan> = (0..4000).map(|i| recipe.draw(32, 32, 32, &mut stream(i))).collect();
    let share = |test: &dyn Fn(&ViewPlan) -> bool| plans.iter().filter(|p| test(p)).count() as f64 / plans.len() as f64;
    assert!((share(&|p| p.flip) - 0.5).abs() < 0.03);
    assert!((share(&|p| p.grey) - 0.2).abs() < 0.03);
    assert_eq!(share(&|p| p.jitter.is_some()), 1.0);
    // Each of the four comes first equally often, and its factors keep to their bounds.
    assert!((share(&|p| matches!(p.jitter, Some([JitterStep::Hue(_), ..]))) - 0.25).abs() < 0.03);
    for step in plans.iter().flat_map(|p| p.jitter).flatten() {
        match step {
            JitterStep::Brightness(f) | JitterStep::Contrast(f) | JitterStep::Saturation(f) => {
                assert!((0.6..=1.4).contains(&f))
            }
            JitterStep::Hue(t) => assert!((-0.4..=0.4).contains(&t)),
        }
    }
    // E[area] of the accepted crops, 20,000 draws of torchvision's RandomResizedCrop.get_params on 32 x 32: 0.5497.
    let area = plans.iter().map(|p| (region(p).width * region(p).height) as f64 / 1024.0).sum::<f64>() / 4000.0;
    assert!((area - AREA).abs() < 0.015, "{area}");
}

const AREA: f64 = 0.5497;

/// The draws and pixels of the paper's settings, recorded from the version before padded crops and blur, on the picture and the
/// streams above. A hash is FNV-1a over the bits of a view.
#[test]
fn the_papers_views_stay_as_they_were() {
    use JitterStep::{Brightness, Contrast, Hue, Saturation};
    let (augmenter, image) = (augmenter(32), picture(50, 40, 7));
    let hash = |view: &[f32], from: u64| {
        let bytes = view.iter().flat_map(|v| v.to_bits().to_le_bytes());
        bytes.fold(from, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    let (mut view, start) = (vec![0.0; 32 * 32 * 3], 0xcbf2_9ce4_8422_2325);
    #[rustfmt::skip]
    let recorded = [
        (0, [0, 5, 34, 35], [Hue(-0.32464677), Brightness(0.85146093), Saturation(1.354593), Contrast(1.3976568)],
            false, false, 0x5161_eb4c_a9f8_1026),
        (1, [1, 21, 22, 20], [Hue(-0.268713), Saturation(0.7464276), Contrast(0.7376087), Brightness(1.359911)],
            false, true, 0x6624_46df_69ef_f480),
        (6, [5, 5, 33, 43], [Contrast(1.3724775), Saturation(1.2054524), Hue(0.09662992), Brightness(0.7357936)],
            true, true, 0x871f_50ec_2849_c8bf),
    ];
    for (index, [top, left, height, width], jitter, grey, flip, bits) in recorded {
        let cut = Cut::Resized(Region { top, left, height, width });
        let plan = ViewPlan { cut, jitter: Some(jitter), grey, blur: None, flip };
        assert_eq!(augmenter.recipe.draw(50, 40, 32, &mut stream(index)), plan);
        augmenter.train_view(&image, &mut stream(index), &mut view);
        assert_eq!(hash(&view, start), bits, "view {index}");
    }
    let all = (0..200).fold(start, |sum, index| {
        augmenter.train_view(&image, &mut stream(index), &mut view);
        hash(&view, sum)
    });
    assert_eq!(all, 0x2115_9dac_399d_53c8, "two hundred views");
    augmenter.clean_view(&image, &mut view);
    assert_eq!(hash(&view, start), 0x4996_260c_2396_6a9d, "the clean view");
}

#[test]
fn a_padded_crop_draws_its_shifts_evenly_in_place_of_a_region() {
    let padded = padded_and_blurred();
    let plans: Vec<ViewPlan> = (0..4000).map(|i| padded.draw(50, 40, 32, &mut stream(i))).collect();
    let mut seen = [[0; 9]; 2];
    for (i, plan) in plans.iter().enumerate() {
        let Cut::Padded { down, right } = plan.cut else { panic!("{plan:?}") };
        seen[0][usize::try_from(down + 4).unwrap()] += 1;
        seen[1][usize::try_from(right + 4).unwrap()] += 1;
        // All that is drawn before the crop is as it would be for another crop.
        let other = AugmentSettings::default().draw(50, 40, 32, &mut stream(i as u64));
        assert_eq!((&plan.jitter, plan.grey, plan.flip), (&other.jitter, other.grey, other.flip));
    }
    // 4000 draws over nine places: 444 each, give or take four standard deviations of 20.
    assert!(seen.iter().flatten().all(|n| (364..=524).contains(n)), "{seen:?}");
    let blurred: Vec<f32> = plans.iter().filter_map(|p| p.blur).collect();
    assert!((blurred.len() as f64 / 4000.0 - 0.5).abs() < 0.03);
    assert!(blurred.iter().all(|sigma| (0.1..=2.0).contains(sigma)));
    let mean = blurred.iter().sum::<f32>() / blurred.len() as f32;
    assert!((mean - 1.05).abs() < 0.06, "{mean}");
    // A padding of zero, and a shift of a single-pixel view by its whole side.
    let still = AugmentSettings { pad: 0.0, ..padded.clone() }.draw(50, 40, 32, &mut stream(0));
    assert_eq!(still.cut, Cut::Padded { down: 0, right: 0 });
    let image = picture(3, 5, 0);
    for i in 0..20 {
        let tiny = Augmenter { recipe: AugmentSettings { pad: 0.5, ..padded.clone() }, ..augmenter(1) };
        let mut view = [f32::NAN; 3];
        tiny.train_view(&image, &mut stream(i), &mut view);
        assert!(view.iter().all(|v| v.is_finite()));
    }
}

#[test]
fn a_padded_crop_is_the_clean_view_moved_and_black_beyond_it() {
    // 5 x 4 pixels, wider than the view: what lies beside the centre must not come in.
    let image = picture(5, 4, 11);
    let augmenter = Augmenter { mean: [0.0; 3], std: [1.0; 3], ..augmenter(4) };
    let mut clean = vec![0.0; 48];
    augmenter.clean_view(&image, &mut clean);
    let view = |down, right| {
        let plan = ViewPlan { cut: Cut::Padded { down, right }, jitter: None, grey: false, blur: None, flip: false };
        let mut view = vec![f32::NAN; 48];
        augmenter.planned_view(&image, &plan, &mut view);
        view
    };
    assert_eq!(view(0, 0), clean);
    // Two down and one to the left: the lower half comes to the top, and the left column is black.
    let moved = view(2, -1);
    for y in 0..4 {
        for x in 0..4 {
            let here = &moved[(y * 4 + x) * 3..][..3];
            if y < 2 && x > 0 {
                assert_eq!(here, &clean[((y + 2) * 4 + x - 1) * 3..][..3]);
            } else {
                assert_eq!(here, [0.0; 3], "row {y}, column {x}");
            }
        }
    }
    // A plan may be made by hand: nothing is left of the image when it moves too far.
    for far in [4, -4, 1000, -1000, isize::MAX, isize::MIN] {
        assert!(view(far, 0).iter().chain(&view(0, far)).all(|v| *v == 0.0), "{far}");
    }
}

#[test]
fn blur_comes_after_grey_and_before_the_flip_and_small_views_take_it() {
    let (augmenter, image) = (Augmenter { mean: [0.0; 3], std: [1.0; 3], ..augmenter(8) }, picture(8, 8, 2));
    let view = |plan: &ViewPlan| {
        let mut view = vec![f32::NAN; 8 * 8 * 3];
        augmenter.planned_view(&image, plan, &mut view);
        view
    };
    let cut = Cut::Resized(Region::whole(&image));
    // The radius of sigma 2 is six, of sigma 30 ninety: more than the image has.
    for (sigma, grey, flip) in [(2.0, false, false), (2.0, true, true), (30.0, true, false)] {
        let plan = ViewPlan { cut, jitter: None, grey, blur: Some(sigma), flip };
        let (got, want) = (view(&plan), twin(&augmenter, &image, &plan));
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-5));
        assert_eq!(got, view(&plan));
        assert_ne!(got, view(&ViewPlan { blur: None, ..plan }));
    }
}

#[test]
fn an_extreme_aspect_falls_back_to_the_centre() {
    // A 100 x 10 image has no crop of 90 % of its area within 3/4..4/3: the centre of aspect 4/3, 13 x 10.
    let recipe = AugmentSettings { scale: [0.9, 1.0], ..AugmentSettings::default() };
    let region = |w, h| region(&recipe.draw(w, h, 32, &mut stream(1)));
    assert_eq!(region(100, 10), Region { top: 0, left: 43, height: 10, width: 13 });
    assert_eq!(region(10, 100), Region { top: 43, left: 0, height: 13, width: 10 });
    assert_eq!(region(1, 1), Region { top: 0, left: 0, height: 1, width: 1 });
}

#[test]
fn permutations_are_all_different() {
    let set: std::collections::BTreeSet<_> = PERMUTATIONS.iter().collect();
    assert_eq!(set.len(), 24);
}

#[test]
fn the_clean_view_of_an_exact_image_is_the_image() {
    let image = picture(32, 32, 5);
    let augmenter = Augmenter { mean: [0.0; 3], std: [1.0; 3], ..augmenter(32) };
    let mut view = vec![0.0; 32 * 32 * 3];
    augmenter.clean_view(&image, &mut view);
    for (v, p) in view.iter().zip(&image.pixels) {
        assert!((v - f32::from(*p) / 255.0).abs() < 1e-7);
    }
}

#[test]
fn the_clean_view_is_the_centre_of_the_resized_image() {
    // Short side 20 -> 16 (margin 2 of size 8), long side 31 -> 24: rows 8..16, columns 4..12.
    let image = picture(20, 31, 6);
    let augmenter = Augmenter { margin: 2.0, mean: [0.0; 3], std: [1.0; 3], ..augmenter(8) };
    let mut view = vec![0.0; 8 * 8 * 3];
    augmenter.clean_view(&image, &mut view);
    let mut whole = vec![0.0; 16 * 24 * 3];
    Resampler::default().interleaved(&image, Region::whole(&image), 16, 24, &mut whole);
    for y in 0..8 {
        let line = ((y + 8) * 16 + 4) * 3;
        assert_eq!(view[y * 24..(y + 1) * 24], whole[line..line + 24]);
    }
}

#[test]
fn identical_pixels_stay_identical() {
    let image = Image { width: 32, height: 32, pixels: [90, 120, 30].repeat(1024) };
    let mut view = vec![0.0; 32 * 32 * 3];
    augmenter(32).train_view(&image, &mut stream(9), &mut view);
    for pixel in view.chunks(3) {
        assert!(pixel.iter().zip(&view).all(|(a, b)| (a - b).abs() < 1e-5));
    }
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    assert!(AugmentSettings::default().check().is_ok());
    for (recipe, name) in [
        (AugmentSettings { scale: [0.0, 1.0], ..AugmentSettings::default() }, "scale"),
        (AugmentSettings { ratio: [2.0, 1.0], ..AugmentSettings::default() }, "ratio"),
        (AugmentSettings { hue: 0.6, ..AugmentSettings::default() }, "hue"),
        (AugmentSettings { grey: f64::NAN, ..AugmentSettings::default() }, "grey"),
        (AugmentSettings { pad: 0.6, ..AugmentSettings::default() }, "pad"),
        (AugmentSettings { pad: -0.1, ..AugmentSettings::default() }, "pad"),
        (AugmentSettings { blur: 1.1, ..AugmentSettings::default() }, "blur "),
        (AugmentSettings { blur: f64::NAN, ..AugmentSettings::default() }, "blur "),
        (AugmentSettings { blur_sigma: [0.0, 1.0], ..AugmentSettings::default() }, "blur_sigma"),
        (AugmentSettings { blur_sigma: [2.0, 1.0], ..AugmentSettings::default() }, "blur_sigma"),
        (AugmentSettings { blur_sigma: [0.1, f64::INFINITY], ..AugmentSettings::default() }, "blur_sigma"),
        (AugmentSettings { blur_sigma: [f64::NAN, 1.0], ..AugmentSettings::default() }, "blur_sigma"),
    ] {
        assert!(recipe.check().is_err_and(|e| e.message.contains(name)));
    }
}

#[test]
fn without_a_margin_the_whole_image_is_seen() {
    let augmenter = Augmenter { margin: 0.0, mean: [0.0; 3], std: [1.0; 3], ..augmenter(4) };
    // Three columns of two pixels: red, green, blue; twice as wide as high.
    let column = |x: usize| {
        if x < 4 {
            [255, 0, 0]
        } else if x < 8 {
            [0, 255, 0]
        } else {
            [0, 0, 255]
        }
    };
    let wide = Image { width: 12, height: 6, pixels: (0..72).flat_map(|i| column(i % 12)).collect() };
    let seen = augmenter.picture(&wide, 3);
    let strongest = |pixel: usize| (0..3).max_by_key(|c| seen.pixels[pixel * 3 + c]);
    assert_eq!([strongest(0), strongest(1), strongest(2)], [Some(0), Some(1), Some(2)], "nothing is cut off");
    let mut view = vec![0.0; 48];
    augmenter.clean_view(&wide, &mut view);
    assert!(view[0] > 0.8 && view[11] > 0.8, "the left is red and the right is blue: {view:?}");
    let centre = Augmenter { margin: 1.0, ..augmenter.clone() }.picture(&wide, 3);
    assert!(centre.pixels[0] < seen.pixels[0] && centre.pixels[1] > 100, "the centre alone: {:?}", centre.pixels);
    let square = picture(6, 6, 3);
    let (mut a, mut b) = (vec![0.0; 48], vec![0.0; 48]);
    augmenter.clean_view(&square, &mut a);
    Augmenter { margin: 1.0, ..augmenter }.clean_view(&square, &mut b);
    assert_eq!(a, b, "of a square both are the same");
}
