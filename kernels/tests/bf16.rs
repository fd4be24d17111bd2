//! Layers and a network in bf16 beside the same in f32, through the crate's front door.

mod common;

use burn::tensor::{DType, Device, Tensor};
use common::{Random, at, levels, tensor, values};
use kernels::{Conv, Level, Precision, bf16_supported, cast, conv_affine, conv_bn, max_pool, mean_pool, precision};

/// rms of the difference over the deviation of `b`.
fn off(a: &[f32], b: &[f32]) -> f64 {
    assert!(a.len() == b.len() && a.iter().all(|v| v.is_finite()));
    let mean = b.iter().map(|v| f64::from(*v)).sum::<f64>() / b.len() as f64;
    let deviation: f64 = b.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum();
    let difference: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (difference / deviation.max(1e-30)).sqrt()
}

/// The output of a layer and its gradients by x, weight, gamma, beta and residual.
fn layer(
    data: &[Vec<f32>; 5],
    dims: ([usize; 4], [usize; 4], [usize; 4]),
    upstream: &[f32],
    (normalised, views, conv): (bool, usize, Conv),
    to: Precision,
) -> Vec<Vec<f32>> {
    let device = Device::flex().autodiff();
    let (dx, dw, dy) = dims;
    let x = tensor(&data[0], dx, &device).require_grad();
    let w = tensor(&data[1], dw, &device).require_grad();
    let gamma = tensor(&data[2], [dw[0]], &device).require_grad();
    let beta = tensor(&data[3], [dw[0]], &device).require_grad();
    let r = tensor(&data[4], dy, &device).require_grad();
    let (input, weight, g, b) = (cast(x.clone(), to), w.clone(), gamma.clone(), beta.clone());
    let y = if normalised {
        conv_bn(input, weight, g, b, Some(r.clone()), views, conv).output
    } else {
        conv_affine(input, weight, g, b, Some(r.clone()), conv)
    };
    assert_eq!(precision(&y), to);
    let y = cast(y, Precision::F32);
    let grads = (y.clone() * tensor(upstream, dy, &device)).sum().backward();
    let of = |t: &Tensor<4>| values(&t.grad(&grads).expect("a gradient"));
    let of_one = |t: &Tensor<1>| values(&t.grad(&grads).expect("a gradient"));
    vec![values(&y), of(&x), of(&w), of_one(&gamma), of_one(&beta), of(&r)]
}

#[test]
fn layers_in_bf16_follow_f32() {
    for level in levels() {
        let _held = at(level);
        let mut random = Random(21);
        for (b, h, w, c, k, kernel, stride, padding, views) in [
            (4, 16, 16, 16, 24, 3, 1, 1, 2),
            (2, 9, 8, 130, 144, 3, 1, 1, 1),
            (4, 4, 4, 256, 272, 3, 1, 1, 2),
            (4, 16, 16, 40, 48, 3, 2, 1, 1),
            (4, 8, 8, 20, 36, 1, 2, 0, 2),
            (2, 12, 12, 3, 16, 3, 1, 1, 1),
            (2, 35, 31, 3, 24, 11, 4, 2, 1),
            (4, 7, 7, 9, 7, 5, 1, 2, 2),
        ] {
            let (oh, ow) = ((h + 2 * padding - kernel) / stride + 1, (w + 2 * padding - kernel) / stride + 1);
            let dims = ([b, h, w, c], [k, c, kernel, kernel], [b, oh, ow, k]);
            let n = b * oh * ow * k;
            let scale = (1.0 / (kernel * kernel * c) as f32).sqrt();
            let data = [
                random.normals(b * h * w * c),
                random.normals(k * c * kernel * kernel).iter().map(|v| v * scale).collect(),
                random.normals(k).iter().map(|v| 1.0 + 0.3 * v).collect(),
                random.normals(k).iter().map(|v| 0.3 * v).collect(),
                random.normals(n),
            ];
            for normalised in [true, false] {
                let mut upstream = random.normals(n);
                let conv = Conv { stride, padding, relu: true };
                let run = |upstream: &[f32], conv: Conv, to: Precision| {
                    layer(&data, dims, upstream, (normalised, views, conv), to)
                };
                // where the ReLU's input is next to zero, rounding decides: no gradient comes from there
                let before = run(&upstream, Conv { relu: false, ..conv }, Precision::F32).swap_remove(0);
                upstream.iter_mut().zip(&before).filter(|(_, y)| y.abs() < 0.1).for_each(|(u, _)| *u = 0.0);
                let (ours, exact) = (run(&upstream, conv, Precision::Bf16), run(&upstream, conv, Precision::F32));
                for ((a, e), what) in ours.iter().zip(&exact).zip(["y", "dx", "dw", "dgamma", "dbeta", "dresidual"]) {
                    let off = off(a, e);
                    assert!(off < 0.03, "{level:?} {dims:?} normalised {normalised}: {what} off by {off:.4}");
                }
            }
        }
    }
}

#[test]
fn cast_rounds_to_nearest_and_back() {
    for level in levels() {
        let _held = at(level);
        let device = Device::flex().autodiff();
        // 1 + 2^-8 lies between two numbers of bf16 and goes to the even one; 1 + 3 2^-8 too
        let v = [1.0, 1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, -0.3, 1e30, f32::INFINITY];
        let rounded = [1.0, 1.0, 1.0 + 4.0 / 256.0, -0.300_781_25, 1.001_e30, f32::INFINITY];
        let x = tensor(&v, [6], &device).require_grad();
        let narrow = cast(x.clone(), Precision::Bf16);
        assert_eq!(narrow.dtype(), DType::BF16);
        let wide = cast(narrow, Precision::F32);
        for (a, e) in values(&wide).iter().zip(rounded) {
            assert!(*a == e || (a / e - 1.0).abs() < 1e-3 && e > 1e29, "{level:?}: {a} instead of {e}");
        }
        let grads = (wide * tensor(&[3.0; 6], [6], &device)).sum().backward();
        assert_eq!(values(&x.grad(&grads).expect("a gradient")), [3.0; 6]);
    }
}

#[test]
fn pools_take_bf16() {
    let device = Device::flex().autodiff();
    for level in levels() {
        let _held = at(level);
        let mut random = Random(5);
        let data: Vec<f32> = random.normals(2 * 9 * 7 * 5);
        let run = |to: Precision| {
            let x = tensor(&data, [2, 9, 7, 5], &device).require_grad();
            // rounded in both, so that both pools see the same numbers
            let y = max_pool(cast(cast(x.clone(), Precision::Bf16), to), 3, 2, 1);
            let mean = mean_pool(y.clone());
            let grads = mean.clone().sum().backward();
            (values(&cast(y, Precision::F32)), values(&mean), values(&x.grad(&grads).expect("dx")))
        };
        let (a, e) = (run(Precision::Bf16), run(Precision::F32));
        assert_eq!(a.0, e.0);
        assert_eq!(a.1, e.1);
        assert!(off(&a.2, &e.2) < 0.005);
    }
}

/// Two residual blocks, the second with a convolution in its shortcut: every map between them is used twice.
fn blocks(x: Tensor<4>, weights: &[Tensor<4>]) -> Tensor<2> {
    let layer = |i: usize, x: Tensor<4>, residual: Option<Tensor<4>>, stride: usize, relu: bool| {
        let k = weights[i].dims()[0];
        let one = |v: f32| tensor(&vec![v; k], [k], &x.device());
        let conv = Conv { stride, padding: weights[i].dims()[2] / 2, relu };
        let (gamma, beta) = (one(1.0), one(0.2));
        conv_bn(x, weights[i].clone(), gamma, beta, residual, 1, conv).output
    };
    let x = layer(0, x, None, 1, true);
    let y = layer(1, x.clone(), None, 1, true);
    let x = layer(2, y, Some(x), 1, true);
    let y = layer(3, x.clone(), None, 2, true);
    let shortcut = layer(4, x, None, 2, false);
    mean_pool(layer(5, y, Some(shortcut), 1, true))
}

/// The gradient by every weight points where that of f32 points: no part of it is lost or counted twice.
#[test]
fn a_map_used_twice_gets_both_gradients() {
    let device = Device::flex().autodiff();
    for level in levels() {
        let _held = at(level);
        let run = |to: Precision| {
            let mut random = Random(31);
            let shapes = [(3, 16, 3), (16, 16, 3), (16, 16, 3), (16, 32, 3), (16, 32, 1), (32, 32, 3)];
            let weights: Vec<Tensor<4>> = shapes
                .iter()
                .map(|(c, k, kernel)| {
                    let n = c * kernel * kernel;
                    let w: Vec<f32> = random.normals(k * n).iter().map(|v| v * (2.0 / n as f32).sqrt()).collect();
                    tensor(&w, [*k, *c, *kernel, *kernel], &device).require_grad()
                })
                .collect();
            let x = tensor(&random.normals(8 * 16 * 16 * 3), [8, 16, 16, 3], &device).require_grad();
            let target = tensor(&random.normals(8 * 32), [8, 32], &device);
            let grads = (blocks(cast(x.clone(), to), &weights) - target).powf_scalar(2.0).sum().backward();
            let mut all: Vec<Vec<f32>> = weights.iter().map(|w| values(&w.grad(&grads).expect("dw"))).collect();
            all.push(values(&x.grad(&grads).expect("dx")));
            all
        };
        for (i, (a, e)) in run(Precision::Bf16).iter().zip(&run(Precision::F32)).enumerate() {
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            let (cosine, size) = (dot(a, e) / (dot(a, a) * dot(e, e)).sqrt(), (dot(a, a) / dot(e, e)).sqrt());
            assert!(cosine > 0.98 && (size - 1.0).abs() < 0.05, "{level:?}: gradient {i}: {cosine:.4}, {size:.4}");
        }
    }
}

#[test]
fn support_is_the_cpus_and_the_levels() {
    for level in levels() {
        let _held = at(level);
        #[cfg(target_arch = "x86_64")]
        let cpu = std::arch::is_x86_feature_detected!("avx512bf16");
        #[cfg(not(target_arch = "x86_64"))]
        let cpu = false;
        assert_eq!(bf16_supported(), cpu && level == Level::Avx512);
    }
}
