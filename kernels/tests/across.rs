//! A batch norm whose rows are in several processes gives outputs, statistics and gradients of one that has them all.

mod common;

use burn::tensor::{Device, Tensor};
use common::{Random, difference, tensor, values};
use kernels::{Across, Batches, Conv, Precision, cast, conv_bn};
use std::sync::{Arc, Barrier, Mutex};

/// Threads that stand for processes.
#[derive(Debug)]
struct Threads {
    sums: Mutex<Vec<Vec<f64>>>,
    all_there: Barrier,
}

#[derive(Debug)]
struct Thread(usize, Arc<Threads>);

impl Across for Thread {
    fn sum(&self, values: &mut [f64]) {
        self.1.sums.lock().expect("no thread panicked")[self.0] = values.to_vec();
        self.1.all_there.wait();
        let all = self.1.sums.lock().expect("no thread panicked").clone();
        for (i, v) in values.iter_mut().enumerate() {
            *v = all.iter().map(|part| part[i]).sum();
        }
        self.1.all_there.wait();
    }
}

/// Output, mean and variance of a layer, and its gradients by input, weight, gamma and beta.
type Found = (Vec<f32>, Vec<f32>, Vec<f32>, [Vec<f32>; 4]);

const CONV: Conv = Conv { stride: 1, padding: 1, relu: true };
const SIDE: usize = 6;
const CHANNELS: usize = 8;

/// A layer on these rows; the gradient by its output is `upstream`.
fn layer(x: &[f32], upstream: &[f32], batches: Batches, precision: Precision) -> Found {
    let rows = x.len() / (SIDE * SIDE * CHANNELS);
    let (mut random, flex) = (Random(3), Device::flex());
    let weight: Tensor<4> = tensor(&random.normals(CHANNELS * CHANNELS * 9), [CHANNELS, CHANNELS, 3, 3], &flex);
    let (gamma, beta): (Tensor<1>, Tensor<1>) =
        (tensor(&random.normals(CHANNELS), [CHANNELS], &flex), tensor(&random.normals(CHANNELS), [CHANNELS], &flex));
    let leaf = |t: Tensor<4>| Tensor::<4>::from_inner(t).require_grad();
    let (x, w) = (leaf(tensor(x, [rows, SIDE, SIDE, CHANNELS], &flex)), leaf(weight));
    let (g, b) = (Tensor::<1>::from_inner(gamma).require_grad(), Tensor::<1>::from_inner(beta).require_grad());
    let out = conv_bn(cast(x.clone(), precision), w.clone(), g.clone(), b.clone(), None, batches, CONV);
    let y = cast(out.output, Precision::F32);
    let upstream: Tensor<4> = tensor(upstream, [rows, SIDE, SIDE, CHANNELS], &flex);
    let grads = (y.clone() * Tensor::from_inner(upstream)).sum().backward();
    let of = [
        values(&x.grad(&grads).expect("a gradient")),
        values(&w.grad(&grads).expect("a gradient")),
        values(&g.grad(&grads).expect("a gradient")),
        values(&b.grad(&grads).expect("a gradient")),
    ];
    (values(&y.inner()), values(&out.mean), values(&out.variance), of)
}

#[test]
fn statistics_are_those_of_all_processes() {
    let (views, per_view, image) = (2, 6, SIDE * SIDE * CHANNELS);
    let mut random = Random(1);
    let x: Vec<f32> = random.normals(views * per_view * image).iter().map(|v| v * 2.0 + 5.0).collect();
    let upstream = random.normals(views * per_view * image);
    // Unequal shares of every view.
    for shares in [vec![0..2, 2..6], vec![0..1, 1..5, 5..6]] {
        for (precision, near) in [(Precision::F32, 2e-5), (Precision::Bf16, 2e-2)] {
            let one = layer(&x, &upstream, views.into(), precision);
            let threads = Arc::new(Threads {
                sums: Mutex::new(vec![Vec::new(); shares.len()]),
                all_there: Barrier::new(shares.len()),
            });
            let part = |values: &[f32], rows: &std::ops::Range<usize>| -> Vec<f32> {
                let view = |v: usize| &values[(v * per_view + rows.start) * image..(v * per_view + rows.end) * image];
                (0..views).flat_map(view).copied().collect()
            };
            let found: Vec<Found> = std::thread::scope(|scope| {
                let start = |(rank, rows): (usize, &std::ops::Range<usize>)| {
                    let (x, upstream) = (part(&x, rows), part(&upstream, rows));
                    let across: Arc<dyn Across> = Arc::new(Thread(rank, threads.clone()));
                    scope.spawn(move || layer(&x, &upstream, Batches { views, across: Some(across) }, precision))
                };
                let started: Vec<_> = shares.iter().enumerate().map(start).collect();
                started.into_iter().map(|thread| thread.join().expect("no thread panicked")).collect()
            });
            for (rows, (y, mean, variance, gradients)) in shares.iter().zip(&found) {
                assert!(difference(y, &part(&one.0, rows)) < near);
                assert!(difference(mean, &one.1) < near && difference(variance, &one.2) < near);
                assert!(difference(&gradients[0], &part(&one.3[0], rows)) < near, "{precision:?}");
            }
            // Gradients by the parameters are of each process's own rows: their sum is the whole.
            for parameter in 1..4 {
                let mut sum = vec![0.0; one.3[parameter].len()];
                found.iter().for_each(|f| sum.iter_mut().zip(&f.3[parameter]).for_each(|(s, g)| *s += g));
                assert!(difference(&sum, &one.3[parameter]) < near, "{precision:?}, parameter {parameter}");
            }
        }
    }
}
