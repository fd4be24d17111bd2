//! The optimiser step and the bank's softmax against plain arithmetic, and a whole small network against Burn's.

mod common;

use burn::tensor::{Device, Tensor};
use burn_std::bf16;
use common::{Random, at, difference, levels, tensor, values};
use kernels::{Conv, Precision, Sgd, bank_softmax, cast, conv_bn, mean_pool, sgd, stock};

#[test]
fn sgd_agrees_with_burn() {
    for level in levels() {
        let _held = at(level);
        let mut random = Random(1);
        for device in [Device::flex(), Device::flex().autodiff()] {
            for (n, nesterov) in [(1, false), (17, true), (40_000, false), (40_001, true)] {
                let data = [random.normals(n), random.normals(n), random.normals(n)];
                let make = |i: usize| tensor(&data[i], [n], &device);
                let step = Sgd { lr: 0.1, momentum: 0.9, decay: 0.01, nesterov };
                let expected = stock::sgd(make(0), make(1), make(2), step);
                let alone = sgd(make(0), make(1), make(2), step);
                assert!(difference(&values(&alone.0), &values(&expected.0)) < 1e-6);
                assert!(difference(&values(&alone.1), &values(&expected.1)) < 1e-6);
                // shared tensors keep their values
                let (w, v) = (make(0), make(2));
                let shared = sgd(w.clone(), make(1), v.clone(), step);
                assert_eq!(values(&shared.0), values(&alone.0));
                assert_eq!(values(&shared.1), values(&alone.1));
                assert_eq!(values(&w), data[0]);
                assert_eq!(values(&v), data[2]);
            }
        }
    }
}

/// The definition in f64.
fn softmax_by_hand(v: &[f32], bank: &[f32], d: usize, tau: f32) -> (Vec<f64>, Vec<f32>) {
    let (mut lse, mut expectation) = (Vec::new(), Vec::new());
    for v in v.chunks_exact(d) {
        let logit = |m: &[f32]| v.iter().zip(m).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() / tau as f64;
        let logits: Vec<f64> = bank.chunks_exact(d).map(logit).collect();
        let top = logits.iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b));
        let sum: f64 = logits.iter().map(|l| (l - top).exp()).sum();
        lse.push(top + sum.ln());
        for j in 0..d {
            let mean: f64 =
                bank.chunks_exact(d).zip(&logits).map(|(m, l)| f64::from(m[j]) * (l - top).exp()).sum::<f64>();
            expectation.push((mean / sum) as f32);
        }
    }
    (lse, expectation)
}

fn close(found: &[f64], expected: &[f64]) {
    for (a, e) in found.iter().zip(expected) {
        assert!((a - e).abs() < 1e-4 * e.abs().max(1.0), "{a} instead of {e}");
    }
}

#[test]
fn bank_softmax_is_its_definition() {
    for level in levels() {
        let _held = at(level);
        let mut random = Random(2);
        for (b, n, d, tau) in
            [(1, 1, 1, 0.1), (3, 5, 7, 1.0), (33, 700, 128, 0.07), (2, 5000, 20, 0.05), (40, 300, 16, 0.01)]
        {
            let mut unit = |rows: usize| {
                let mut x = random.normals(rows * d);
                for row in x.chunks_exact_mut(d) {
                    let norm = row.iter().map(|v| v * v).sum::<f32>().sqrt().max(1e-3);
                    row.iter_mut().for_each(|v| *v /= norm);
                }
                x
            };
            let (v, bank) = (unit(b), unit(n));
            let (lse, expectation) = softmax_by_hand(&v, &bank, d, tau);
            let out = bank_softmax(&v, &bank, d, tau, Precision::F32);
            close(&out.log_sum_exp, &lse);
            assert!(difference(&out.expectation, &expectation) < 1e-4, "{level:?} {b} {n} {d}");

            // In bf16: the same of rounded vectors, but for the rounding of each exponential by at most 2^-9 of it.
            let half = |x: &[f32], by: f32| -> Vec<f32> { x.iter().map(|x| bf16::from_f32(x / by).to_f32()).collect() };
            let (v, bank) = (half(&v, tau), half(&bank, 1.0));
            let (lse, expectation) = softmax_by_hand(&v, &bank, d, 1.0);
            let out = bank_softmax(&v, &bank, d, 1.0, Precision::Bf16);
            close(&out.log_sum_exp, &lse);
            let bound = bank.iter().fold(0.0f32, |most, x| most.max(x.abs())) / 512.0 + 1e-5;
            for (a, e) in out.expectation.iter().zip(&expectation) {
                assert!((a - e).abs() < bound, "{level:?} {b} {n} {d}: {a} instead of {e}");
            }
        }
    }
}

/// A convolution with its batch norm: weight, gamma, beta, and its stride.
type Layer = (Tensor<4>, Tensor<1>, Tensor<1>, usize);

/// ResNet18 in its 32 x 32 form, without its last layer.
struct Net(Vec<Layer>);

impl Net {
    const WIDTH: usize = 10;

    fn new(seed: u64, device: &Device) -> Net {
        let mut random = Random(seed);
        let mut layer = |c: usize, k: usize, kernel: usize, stride: usize| {
            let n = c * kernel * kernel;
            let w: Vec<f32> = random.normals(k * n).iter().map(|v| v * (2.0 / n as f32).sqrt()).collect();
            let one = |v: f32| tensor(&vec![v; k], [k], device).require_grad();
            (tensor(&w, [k, c, kernel, kernel], device).require_grad(), one(1.0), one(0.0), stride)
        };
        let mut layers = vec![layer(3, Self::WIDTH, 3, 1)];
        let mut c = Self::WIDTH;
        for block in 0..8 {
            let (k, stride) = (Self::WIDTH << (block / 2), if block % 2 == 0 && block > 0 { 2 } else { 1 });
            layers.extend([layer(c, k, 3, stride), layer(k, k, 3, 1)]);
            if stride == 2 {
                layers.push(layer(c, k, 1, 2));
            }
            c = k;
        }
        Net(layers)
    }

    fn forward(&self, x: Tensor<4>, fast: bool) -> Tensor<2> {
        // the layers follow the precision of `x`
        let layer = |i: usize, x: Tensor<4>, r: Option<Tensor<4>>| {
            let (w, g, b, stride) = self.0[i].clone();
            let kernel = w.dims()[2];
            let conv = Conv { stride, padding: kernel / 2, relu: kernel != 1 };
            if fast { conv_bn(x, w, g, b, r, 2, conv).output } else { stock::conv_bn(x, w, g, b, r, 2, conv).output }
        };
        let mut x = layer(0, x, None);
        let mut i = 1;
        while i < self.0.len() {
            let y = layer(i, x.clone(), None);
            let shortcut = self.0.get(i + 2).is_some_and(|l| l.0.dims()[2] == 1);
            let residual = if shortcut { layer(i + 2, x, None) } else { x };
            x = layer(i + 1, y, Some(residual));
            i += if shortcut { 3 } else { 2 };
        }
        if fast { mean_pool(x) } else { stock::mean_pool(x) }
    }
}

/// Three steps of a full ResNet18 from the same start: losses and weights stay together.
#[test]
fn a_network_trains_as_with_burn() {
    let device = Device::flex().autodiff();
    for level in levels() {
        let _held = at(level);
        let mut random = Random(4);
        let x = tensor(&random.normals(8 * 32 * 32 * 3), [8, 32, 32, 3], &device);
        let target = tensor(&random.normals(8 * 80), [8, 80], &device);
        let mut losses = [Vec::new(), Vec::new()];
        let mut weights = [Vec::new(), Vec::new()];
        for fast in [true, false] {
            let mut net = Net::new(9, &device);
            for _ in 0..3 {
                let loss = (net.forward(x.clone(), fast) - target.clone()).powf_scalar(2.0).mean();
                losses[fast as usize].push(values(&loss)[0]);
                let mut grads = loss.backward();
                for (w, ..) in &mut net.0 {
                    let g = w.grad_remove(&mut grads).expect("gradient");
                    let (dims, n) = (w.dims(), w.dims().iter().product::<usize>());
                    let step = Sgd { lr: 0.02, momentum: 0.9, decay: 5e-4, nesterov: false };
                    let flat = w.clone().inner().reshape([n]);
                    let zero = flat.zeros_like();
                    let (flat, _) = sgd(flat, g.inner().reshape([n]), zero, step);
                    *w = tensor(&values(&flat), dims, &device).require_grad();
                }
            }
            weights[fast as usize] = net.0.iter().flat_map(|(w, ..)| values(w)).collect();
        }
        assert!(difference(&losses[1], &losses[0]) < 1e-3, "{level:?}: {losses:?}");
        let off = difference(&weights[1], &weights[0]);
        assert!(off < 1e-3, "{level:?}: weights off by {off:e}");
    }
}

/// Every bit of a training step, whatever the number of threads.
#[test]
fn threads_do_not_change_a_bit() {
    let device = Device::flex().autodiff();
    for (level, precision) in levels().into_iter().flat_map(|l| [(l, Precision::F32), (l, Precision::Bf16)]) {
        let _held = at(level);
        let mut results: Vec<Vec<u32>> = Vec::new();
        for threads in [1, 2, 3, 7] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            results.push(pool.install(|| {
                let mut random = Random(6);
                let x = tensor(&random.normals(6 * 19 * 17 * 3), [6, 19, 17, 3], &device).require_grad();
                let net = Net::new(8, &device);
                let loss = net.forward(cast(x.clone(), precision), true).powf_scalar(2.0).mean();
                let grads = loss.backward();
                let mut all = values(&x.grad(&grads).expect("dx"));
                for (w, g, b, _) in &net.0 {
                    all.extend(values(&w.grad(&grads).expect("dw")));
                    all.extend(values(&g.grad(&grads).expect("dgamma")));
                    all.extend(values(&b.grad(&grads).expect("dbeta")));
                }
                let (x, w) = (random.normals(10 * 8 * 8 * 128), random.normals(128 * 128 * 9));
                let one = |v: f32| tensor(&[v; 128], [128], &device);
                let x = tensor(&x, [10, 8, 8, 128], &device).require_grad();
                let w = tensor(&w, [128, 128, 3, 3], &device).require_grad();
                let conv = Conv { stride: 1, padding: 1, relu: true };
                let y = conv_bn(cast(x.clone(), precision), w.clone(), one(1.0), one(0.1), None, 2, conv).output;
                let y = cast(y, Precision::F32);
                let grads = (y.clone() * y).sum().backward();
                all.extend(values(&x.grad(&grads).expect("dx")));
                all.extend(values(&w.grad(&grads).expect("dw")));
                let bank = bank_softmax(&random.normals(9 * 32), &random.normals(5000 * 32), 32, 1.0, precision);
                all.extend(bank.expectation);
                all.iter().map(|v| v.to_bits()).collect()
            }));
        }
        for other in &results[1..] {
            assert!(*other == results[0], "{level:?}, {precision:?}: bits differ between thread counts");
        }
    }
}
