//! Every layer against Burn's own operations: outputs and all gradients, over many shapes and at every level.

mod common;

use burn::tensor::{Device, Tensor};
use common::{Random, at, difference, levels, runs, tensor, values};
use kernels::{Conv, Level, conv_affine, conv_bn, max_pool, mean_pool, stock};

/// A layer's shape: batch, height, width, channels in and out, kernel, stride, padding, views.
type Case = (usize, usize, usize, usize, usize, usize, usize, usize, usize);

/// Edges by name: batch 1, one and three channels, maps smaller than a tile, not square, odd, padding larger or smaller
/// than usual, kernels from 1 to 11.
const CASES: &[Case] = &[
    (1, 8, 8, 16, 16, 3, 1, 1, 1),
    (2, 8, 8, 16, 16, 3, 1, 1, 2),
    (4, 32, 32, 16, 16, 3, 1, 1, 2),
    (3, 7, 9, 24, 8, 3, 1, 1, 1),
    (2, 5, 3, 8, 20, 3, 1, 1, 1),
    (2, 4, 4, 100, 96, 3, 1, 1, 2),
    (2, 3, 3, 33, 17, 3, 1, 1, 1),
    (2, 2, 2, 16, 16, 3, 1, 1, 1),
    (2, 1, 1, 16, 16, 3, 1, 1, 1),
    (2, 1, 7, 16, 16, 3, 1, 1, 1),
    (6, 8, 8, 64, 64, 3, 1, 1, 2),
    (6, 6, 10, 128, 144, 3, 1, 1, 2),
    (1, 13, 13, 160, 130, 3, 1, 1, 1),
    (20, 4, 4, 128, 128, 3, 1, 1, 2),
    (4, 4, 4, 256, 272, 3, 1, 1, 2),
    (1, 7, 5, 300, 260, 3, 1, 1, 1),
    (2, 12, 12, 1, 16, 3, 1, 1, 1),
    (2, 12, 12, 3, 16, 3, 1, 1, 2),
    (2, 32, 32, 3, 64, 3, 1, 1, 1),
    (1, 9, 9, 1, 1, 3, 1, 1, 1),
    (2, 6, 6, 7, 5, 3, 1, 1, 1),
    (4, 8, 8, 16, 32, 3, 2, 1, 2),
    (3, 9, 7, 20, 12, 3, 2, 1, 1),
    (1, 5, 5, 3, 4, 3, 2, 1, 1),
    (2, 8, 8, 64, 128, 3, 2, 1, 1),
    (2, 14, 16, 20, 33, 3, 2, 1, 1),
    (4, 15, 16, 24, 40, 3, 2, 1, 2),
    (4, 8, 7, 128, 130, 3, 2, 1, 2),
    (2, 8, 8, 256, 264, 3, 2, 1, 1),
    (8, 32, 32, 16, 32, 3, 2, 1, 2),
    (4, 8, 8, 16, 32, 1, 2, 0, 2),
    (2, 7, 7, 8, 24, 1, 1, 0, 1),
    (24, 1, 1, 200, 130, 1, 1, 0, 2),
    (2, 7, 6, 9, 5, 1, 3, 0, 1),
    (2, 30, 31, 3, 16, 7, 2, 3, 2),
    (1, 35, 35, 3, 24, 11, 4, 2, 1),
    (2, 9, 9, 8, 16, 5, 1, 2, 1),
    (4, 8, 8, 12, 8, 2, 2, 0, 2),
    (2, 8, 9, 12, 8, 2, 1, 1, 1),
    (2, 6, 6, 16, 16, 3, 1, 0, 1),
    (2, 6, 6, 16, 16, 3, 1, 2, 1),
    (2, 6, 6, 4, 6, 2, 3, 1, 1),
    (1, 3, 3, 5, 7, 3, 3, 0, 1),
    (2, 6, 5, 4, 6, 3, 5, 4, 1),
];

/// Gradients by x, weight, gamma, beta, residual, after the output.
fn run(
    f: impl Fn([Tensor<4>; 2], [Tensor<1>; 2], Option<Tensor<4>>) -> Tensor<4>,
    data: &[Vec<f32>; 5],
    dims: ([usize; 4], [usize; 4], [usize; 4]),
    upstream: &[f32],
    residual: bool,
) -> Vec<Vec<f32>> {
    let device = Device::flex().autodiff();
    let (dx, dw, dy) = dims;
    let k = dw[0];
    let x = tensor(&data[0], dx, &device).require_grad();
    let w = tensor(&data[1], dw, &device).require_grad();
    let gamma = tensor(&data[2], [k], &device).require_grad();
    let beta = tensor(&data[3], [k], &device).require_grad();
    let r = tensor(&data[4], dy, &device).require_grad();
    let y = f([x.clone(), w.clone()], [gamma.clone(), beta.clone()], residual.then(|| r.clone()));
    let grads = (y.clone() * tensor(upstream, dy, &device)).sum().backward();
    let mut out = vec![
        values(&y),
        values(&x.grad(&grads).expect("dx")),
        values(&w.grad(&grads).expect("dw")),
        values(&gamma.grad(&grads).expect("dgamma")),
        values(&beta.grad(&grads).expect("dbeta")),
    ];
    if residual {
        out.push(values(&r.grad(&grads).expect("dresidual")));
    }
    out
}

fn check(case: Case, residual: bool, relu: bool, seed: u64) {
    let (b, h, w, c, k, kernel, stride, padding, views) = case;
    let mut random = Random(seed);
    let (oh, ow) = ((h + 2 * padding - kernel) / stride + 1, (w + 2 * padding - kernel) / stride + 1);
    let dims = ([b, h, w, c], [k, c, kernel, kernel], [b, oh, ow, k]);
    let mut data = [dims.0, dims.1].map(|d| random.normals(d.iter().product())).to_vec();
    data[1].iter_mut().for_each(|v| *v *= 0.2);
    data.push(random.normals(k).iter().map(|v| 1.0 + 0.3 * v).collect());
    data.push(random.normals(k).iter().map(|v| 0.3 * v).collect());
    data.push(random.normals(b * oh * ow * k));
    let data: [Vec<f32>; 5] = data.try_into().expect("five");
    let mut upstream = random.normals(b * oh * ow * k);
    let names = ["y", "dx", "dw", "dgamma", "dbeta", "dresidual"];
    for (normalised, name) in [(true, "conv_bn"), (false, "conv_affine")] {
        let ours = |conv: Conv| {
            move |[x, w]: [Tensor<4>; 2], [g, b]: [Tensor<1>; 2], r: Option<Tensor<4>>| {
                if normalised { conv_bn(x, w, g, b, r, views, conv).output } else { conv_affine(x, w, g, b, r, conv) }
            }
        };
        let theirs = |conv: Conv| {
            move |[x, w]: [Tensor<4>; 2], [g, b]: [Tensor<1>; 2], r: Option<Tensor<4>>| {
                if normalised {
                    stock::conv_bn(x, w, g, b, r, views, conv).output
                } else {
                    stock::conv_affine(x, w, g, b, r, conv)
                }
            }
        };
        let conv = Conv { stride, padding, relu };
        // where the ReLU's input is next to zero, rounding decides: no gradient comes from there
        let before = run(theirs(Conv { relu: false, ..conv }), &data, dims, &upstream, residual).swap_remove(0);
        for (u, y) in upstream.iter_mut().zip(&before) {
            if y.abs() < 1e-3 {
                *u = 0.0;
            }
        }
        let a = run(ours(conv), &data, dims, &upstream, residual);
        let e = run(theirs(conv), &data, dims, &upstream, residual);
        for ((a, e), what) in a.iter().zip(&e).zip(names) {
            let off = difference(a, e);
            // one or two pixels per view: normalised values are 0 or 1, gradients are what rounding leaves
            let degenerate = normalised && b / views * oh * ow <= 2 && what != "y";
            assert!(off < 1e-4 || degenerate, "{name} {case:?} residual {residual} relu {relu}: {what} off by {off:e}");
        }
    }
}

fn all_cases(level: Level) {
    let _held = at(level);
    for (i, &case) in CASES.iter().enumerate() {
        for (residual, relu) in [(false, false), (false, true), (true, false), (true, true)] {
            check(case, residual, relu, i as u64);
        }
    }
    // and shapes that nobody thought of
    let mut random = Random(7);
    for i in 0..40 {
        let (kernel, stride) = (random.of(&[1, 2, 3, 3, 3, 4, 5]), random.of(&[1, 1, 2, 3]));
        let padding = random.of(&[0, 1, 1, kernel / 2]);
        let side = |random: &mut Random| kernel + random.of(&[0, 1, 2, 3, 4, 6, 9, 13]);
        let views = random.of(&[1, 2]);
        let (h, w) = (side(&mut random), side(&mut random));
        let channels = [1, 2, 3, 8, 15, 16, 17, 24, 40, 64];
        let (c, k) = (random.of(&channels), random.of(&channels));
        let case = (views * random.of(&[1, 2, 3]), h, w, c, k, kernel, stride, padding, views);
        check(case, i % 2 == 0, i % 3 != 0, 100 + i);
    }
}

#[test]
fn portable_agrees_with_burn() {
    all_cases(Level::Portable);
}

#[test]
fn avx2_agrees_with_burn() {
    if runs(Level::Avx2) {
        all_cases(Level::Avx2);
    }
}

#[test]
fn avx512_agrees_with_burn() {
    if runs(Level::Avx512) {
        all_cases(Level::Avx512);
    }
}

/// Without autodiff the same outputs and statistics come out.
#[test]
fn plain_device_agrees_with_burn() {
    let device = Device::flex();
    for level in levels() {
        let _held = at(level);
        let mut random = Random(3);
        for (b, h, w, c, k, kernel, stride, padding, views) in [CASES[2], CASES[3], CASES[11], CASES[19], CASES[26]] {
            let x = tensor(&random.normals(b * h * w * c), [b, h, w, c], &device);
            let weight = tensor(&random.normals(k * c * kernel * kernel), [k, c, kernel, kernel], &device);
            let (g, s) = (tensor(&random.normals(k), [k], &device), tensor(&random.normals(k), [k], &device));
            let conv = Conv { stride, padding, relu: true };
            let ours = conv_bn(x.clone(), weight.clone(), g.clone(), s.clone(), None, views, conv);
            let theirs = stock::conv_bn(x.clone(), weight.clone(), g.clone(), s.clone(), None, views, conv);
            assert!(difference(&values(&ours.output), &values(&theirs.output)) < 1e-4);
            assert!(difference(&values(&ours.mean), &values(&theirs.mean)) < 1e-4);
            assert!(difference(&values(&ours.variance), &values(&theirs.variance)) < 1e-4);
            assert_eq!(ours.mean.dims(), [views, k]);
            let ours = conv_affine(x.clone(), weight.clone(), g.clone(), s.clone(), None, conv);
            let theirs = stock::conv_affine(x, weight, g, s, None, conv);
            assert!(difference(&values(&ours), &values(&theirs)) < 1e-4);
        }
    }
}

/// A mean a thousand times the deviation must not eat the variance.
#[test]
fn variance_survives_a_large_mean() {
    let device = Device::flex();
    for level in levels() {
        let _held = at(level);
        let mut random = Random(5);
        for kernel in [1, 3] {
            let (b, h, c, k) = (4, 8, 16, 16);
            let n = b * h * h * c;
            let x: Vec<f32> = (0..n).map(|i| if i % c == 0 { 1000.0 + random.normal() } else { 0.0 }).collect();
            // each output copies channel 0 through the kernel's centre
            let mut weight = vec![0.0; k * c * kernel * kernel];
            weight.chunks_exact_mut(c * kernel * kernel).for_each(|w| w[kernel * kernel / 2] = 1.0);
            let exact: Vec<f64> = x.iter().step_by(c).map(|v| f64::from(*v)).collect();
            let mean = exact.iter().sum::<f64>() / exact.len() as f64;
            let variance = exact.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / exact.len() as f64;
            let one = |v: f32| tensor(&vec![v; k], [k], &device);
            let out = conv_bn(
                tensor(&x, [b, h, h, c], &device),
                tensor(&weight, [k, c, kernel, kernel], &device),
                one(1.0),
                one(0.0),
                None,
                1,
                Conv { stride: 1, padding: kernel / 2, relu: false },
            );
            for v in values(&out.variance) {
                assert!((f64::from(v) / variance - 1.0).abs() < 2e-3, "{level:?}: {v} instead of {variance}");
            }
        }
    }
}

/// Finite differences of a small layer, without reference to any other implementation.
#[test]
fn gradients_are_finite_differences() {
    let device = Device::flex().autodiff();
    let mut random = Random(11);
    for (kernel, stride) in [(3, 1), (3, 2)] {
        let (b, h, c, k) = (2, 6, 8, 8);
        let (x, w) = (random.normals(b * h * h * c), random.normals(k * c * kernel * kernel));
        let o = (h + 2 - kernel) / stride + 1;
        let upstream = random.normals(b * o * o * k);
        let loss = |x: &[f32], w: &[f32]| {
            let one = |v: f32| tensor(&vec![v; k], [k], &device);
            let (x, w) = (
                tensor(x, [b, h, h, c], &device).require_grad(),
                tensor(w, [k, c, kernel, kernel], &device).require_grad(),
            );
            let conv = Conv { stride, padding: 1, relu: false };
            let y = conv_bn(x.clone(), w.clone(), one(1.5), one(0.1), None, 1, conv).output;
            let sum: f64 = values(&y).iter().zip(&upstream).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let grads = (y * tensor(&upstream, [b, o, o, k], &device)).sum().backward();
            (sum, values(&x.grad(&grads).expect("dx")), values(&w.grad(&grads).expect("dw")))
        };
        let (_, dx, dw) = loss(&x, &w);
        let scale = |v: &[f32]| v.iter().fold(0.0f32, |m, v| m.max(v.abs())) as f64;
        for i in (0..x.len()).step_by(37) {
            let (mut up, mut down) = (x.clone(), x.clone());
            up[i] += 0.01;
            down[i] -= 0.01;
            let slope = (loss(&up, &w).0 - loss(&down, &w).0) / f64::from(up[i] - down[i]);
            assert!((slope - f64::from(dx[i])).abs() < 1e-2 * scale(&dx), "dx[{i}]: {} {slope}", dx[i]);
        }
        for i in (0..w.len()).step_by(29) {
            let (mut up, mut down) = (w.clone(), w.clone());
            up[i] += 0.01;
            down[i] -= 0.01;
            let slope = (loss(&x, &up).0 - loss(&x, &down).0) / f64::from(up[i] - down[i]);
            assert!((slope - f64::from(dw[i])).abs() < 1e-2 * scale(&dw), "dw[{i}]: {} {slope}", dw[i]);
        }
    }
}

#[test]
fn pools_agree_with_burn() {
    let device = Device::flex().autodiff();
    for level in levels() {
        let _held = at(level);
        let mut random = Random(17);
        for (b, h, w, c, size, stride, padding) in
            [(2, 8, 8, 16, 2, 2, 0), (1, 13, 9, 5, 3, 2, 1), (2, 7, 7, 3, 3, 2, 0), (1, 4, 4, 33, 3, 1, 1)]
        {
            let data = random.normals(b * h * w * c);
            let gradient = |f: &dyn Fn(Tensor<4>) -> Tensor<4>| {
                let x = tensor(&data, [b, h, w, c], &device).require_grad();
                let y = f(x.clone());
                let grads = (y.clone() * y.clone()).sum().backward();
                (values(&y), values(&x.grad(&grads).expect("dx")))
            };
            let ours = gradient(&|x| max_pool(x, size, stride, padding));
            let theirs = gradient(&|x| stock::max_pool(x, size, stride, padding));
            assert_eq!(ours.0, theirs.0);
            assert!(difference(&ours.1, &theirs.1) < 1e-6);
            let x = tensor(&data, [b, h, w, c], &device);
            assert!(difference(&values(&mean_pool(x.clone())), &values(&stock::mean_pool(x))) < 1e-5);
        }
    }
}
