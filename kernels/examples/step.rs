//! Times a whole ResNet18 (32 x 32 form): `step train|infer WIDTH BATCH ITERATIONS [portable|avx2|avx512] [bf16]
//! [stock]`.
//!
//! Prints images per second, and the CPU time of an image on stderr. A training step is forward, softmax over a bank
//! of 50,000, backward and SGD.

#![allow(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)] // an example shows what it measured

use burn::tensor::{Device, Tensor, TensorData};
use kernels::{
    Conv, Level, Precision, Sgd, bank_softmax, cast, conv_affine, conv_bn, force_level, mean_pool, sgd, stock,
};
use std::time::Instant;

const DIM: usize = 128;
const BANK: usize = 50_000;
const TAU: f32 = 0.1;

/// A cheap repeatable source of numbers, roughly normal.
fn normals(n: usize, seed: u64, scale: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..n).map(|_| (next() + next() + next() + next()) * 1.7 * scale).collect()
}

fn tensor<const D: usize>(values: Vec<f32>, dims: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, dims), device)
}

/// Seconds of CPU time this process has used.
fn cpu_time() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the struct it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// The most memory this process has had, in MB.
fn peak_memory() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: fills the struct it is given, for which zeros are values too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_maxrss as f64 / 1e3
}

/// Runs `f` twice to warm up, then `iterations` times, and prints the rate.
fn time(batch: usize, iterations: usize, mut f: impl FnMut()) {
    f();
    f();
    let (start, cpu) = (Instant::now(), cpu_time());
    let mut least = f64::MAX;
    for _ in 0..iterations {
        let before = cpu_time();
        f();
        least = least.min(cpu_time() - before);
    }
    let images = (batch * iterations) as f64;
    println!("{:.1}", images / start.elapsed().as_secs_f64());
    let (mean, least) = (1e3 * (cpu_time() - cpu) / images, 1e3 * least / batch as f64);
    eprintln!("CPU time per image: mean {mean:.3} ms, least {least:.3} ms; peak memory {:.0} MB", peak_memory());
}

/// One convolution with its batch norm.
struct Layer {
    weight: Tensor<4>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    conv: Conv,
}

struct Network {
    layers: Vec<Layer>,
    head: Tensor<2>,
    stock: bool,
    precision: Precision,
}

impl Network {
    fn new(width: usize, stock: bool, precision: Precision, device: &Device) -> Network {
        let mut layers = Vec::new();
        let mut add = |c: usize, k: usize, kernel: usize, stride: usize, relu: bool| {
            let n = kernel * kernel * c;
            let weight = normals(k * n, layers.len() as u64 + 1, (2.0 / n as f32).sqrt());
            layers.push(Layer {
                weight: tensor(weight, [k, c, kernel, kernel], device),
                gamma: Tensor::ones([k], device),
                beta: Tensor::zeros([k], device),
                conv: Conv { stride, padding: kernel / 2, relu },
            });
        };
        add(3, width, 3, 1, true);
        let mut c = width;
        for (k, stride) in [(width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)] {
            for block in 0..2 {
                let stride = if block == 0 { stride } else { 1 };
                add(c, k, 3, stride, true);
                add(k, k, 3, 1, true);
                if stride != 1 {
                    add(c, k, 1, stride, false);
                }
                c = k;
            }
        }
        let head = tensor(normals(c * DIM, 99, (1.0 / c as f32).sqrt()), [c, DIM], device);
        Network { layers, head, stock, precision }
    }

    fn layer(&self, i: usize, x: Tensor<4>, residual: Option<Tensor<4>>, training: bool) -> Tensor<4> {
        let Layer { weight, gamma, beta, conv } = &self.layers[i];
        let (w, g, b) = (weight.clone(), gamma.clone(), beta.clone());
        match (training, self.stock) {
            (true, false) => conv_bn(x, w, g, b, residual, 1, *conv).output,
            (true, true) => stock::conv_bn(x, w, g, b, residual, 1, *conv).output,
            (false, false) => conv_affine(x, w, g, b, residual, *conv),
            (false, true) => stock::conv_affine(x, w, g, b, residual, *conv),
        }
    }

    fn forward(&self, x: Tensor<4>, training: bool) -> Tensor<2> {
        let mut x = self.layer(0, cast(x, self.precision), None, training);
        let mut i = 1;
        while i < self.layers.len() {
            let y = self.layer(i, x.clone(), None, training);
            let shortcut = self.layers.get(i + 2).is_some_and(|l| l.weight.dims()[2] == 1);
            let residual = if shortcut { self.layer(i + 2, x, None, training) } else { x };
            x = self.layer(i + 1, y, Some(residual), training);
            i += if shortcut { 3 } else { 2 };
        }
        let v = mean_pool(x).matmul(self.head.clone());
        let norm = v.clone().powf_scalar(2.0).sum_dim(1).sqrt();
        v / norm
    }

    fn track(&mut self) {
        for l in &mut self.layers {
            l.weight = l.weight.clone().require_grad();
            l.gamma = l.gamma.clone().require_grad();
            l.beta = l.beta.clone().require_grad();
        }
        self.head = self.head.clone().require_grad();
    }
}

/// Flattens a parameter, makes the step, restores its shape.
fn update<const D: usize>(w: Tensor<D>, g: Tensor<D>, velocity: &mut Option<Tensor<1>>) -> Tensor<D> {
    let (device, dims, n) = (w.device(), w.dims(), w.dims().iter().product::<usize>());
    let w = w.inner().reshape([n]);
    let v = velocity.take().unwrap_or_else(|| w.zeros_like());
    let step = Sgd { lr: 0.03, momentum: 0.9, decay: 5e-4, nesterov: false };
    let (w, v) = sgd(w, g.inner().reshape([n]), v, step);
    *velocity = Some(v);
    Tensor::from_inner(w.reshape(dims)).to_device(&device).require_grad()
}

fn train_step(net: &mut Network, x: &Tensor<4>, bank: &[f32], velocity: &mut [Option<Tensor<1>>]) -> f64 {
    let v = net.forward(x.clone(), true);
    let [b, d] = v.dims();
    let rows = v.to_data().try_to_vec::<f32>().expect("f32");
    let s = bank_softmax(&rows, bank, d, TAU, net.precision);
    let mut loss = 0.0;
    let mut dv = s.expectation;
    for i in 0..b {
        let own = &bank[i * 7 % BANK * d..][..d];
        let logit: f32 = own.iter().zip(&rows[i * d..]).map(|(a, b)| a * b).sum::<f32>() / TAU;
        loss += (s.log_sum_exp[i] - f64::from(logit)) / b as f64;
        for (g, m) in dv[i * d..].iter_mut().zip(own) {
            *g = (*g - m) / (TAU * b as f32);
        }
    }
    // the gradient by v is known: let it flow from here
    let mut grads = (v * tensor(dv, [b, d], &x.device())).sum().backward();
    let mut i = 0;
    let mut slot = || {
        i += 1;
        i - 1
    };
    for l in &mut net.layers {
        let w = l.weight.grad_remove(&mut grads).expect("gradient");
        l.weight = update(l.weight.clone(), w, &mut velocity[slot()]);
        let g = l.gamma.grad_remove(&mut grads).expect("gradient");
        l.gamma = update(l.gamma.clone(), g, &mut velocity[slot()]);
        let g = l.beta.grad_remove(&mut grads).expect("gradient");
        l.beta = update(l.beta.clone(), g, &mut velocity[slot()]);
    }
    let g = net.head.grad_remove(&mut grads).expect("gradient");
    net.head = update(net.head.clone(), g, &mut velocity[slot()]);
    loss
}

fn main() {
    // this thread works too, instead of waking others for every loop
    rayon::ThreadPoolBuilder::new().use_current_thread().build_global().expect("first use of the pool");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: usize| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (width, batch, iterations) = (number(1, 16), number(2, 128), number(3, 10));
    let mut precision = Precision::F32;
    for a in &args {
        match a.as_str() {
            "bf16" => precision = Precision::Bf16,
            "portable" => force_level(Some(Level::Portable)),
            "avx2" => force_level(Some(Level::Avx2)),
            "avx512" => force_level(Some(Level::Avx512)),
            _ => (),
        }
    }
    let stock = args.iter().any(|a| a == "stock");
    let plain = Device::flex();
    let x = normals(batch * 32 * 32 * 3, 5, 1.0);
    if args.first().is_some_and(|a| a == "infer") {
        let net = Network::new(width, stock, precision, &plain);
        let x = tensor(x, [batch, 32, 32, 3], &plain);
        time(batch, iterations, || {
            net.forward(x.clone(), false).into_data();
        });
        return;
    }
    let device = plain.autodiff();
    let mut net = Network::new(width, stock, precision, &device);
    net.track();
    let x = tensor(x, [batch, 32, 32, 3], &device);
    let mut bank = normals(BANK * DIM, 6, 1.0);
    for row in bank.chunks_exact_mut(DIM) {
        let norm = row.iter().map(|v| v * v).sum::<f32>().sqrt();
        row.iter_mut().for_each(|v| *v /= norm);
    }
    let mut velocity = vec![None; 3 * net.layers.len() + 1];
    let mut loss = 0.0;
    time(batch, iterations, || loss = train_step(&mut net, &x, &bank, &mut velocity));
    eprintln!("loss {loss:.6}");
}
