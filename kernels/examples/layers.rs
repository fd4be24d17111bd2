//! How far each convolution of a network is from the matrix product's peak, both measured in this run on one core:
//! `layers WIDTH|alexnet BATCH [portable|avx2|avx512] [bf16]`, for a ResNet18 of this width or AlexNet.
//!
//! Rates count the operations of a direct convolution, so that Winograd may pass the peak. Times are of the process,
//! not of the clock on the wall, so that other work on the machine disturbs them little. With `bf16`, activations and
//! operands are bf16, and so is the matrix product that they are held against.

#![allow(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)] // an example shows what it measured

use burn::tensor::{Device, Tensor, TensorData};
use kernels::{Conv, Level, Precision, cast, conv_affine, conv_bn, force_level, gemm_rate, level};

/// Seconds of CPU time this process has used.
fn cpu_time() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the struct it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

fn tensor<const D: usize>(dims: [usize; D], device: &Device) -> Tensor<D> {
    let n = dims.iter().product::<usize>();
    let values: Vec<f32> = (0..n).map(|i| ((i * 7919) % 1013) as f32 / 506.5 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, dims), device)
}

/// The least seconds of several calls.
fn best(mut f: impl FnMut()) -> f64 {
    f();
    let (begin, mut best) = (cpu_time(), f64::MAX);
    while cpu_time() - begin < 0.4 {
        let start = cpu_time();
        f();
        best = best.min(cpu_time() - start);
    }
    best
}

fn main() {
    rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().expect("first use of the pool");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: usize| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (width, batch) = (number(0, 64), number(1, 16));
    let mut precision = Precision::F32;
    for arg in &args {
        match arg.as_str() {
            "portable" => force_level(Some(Level::Portable)),
            "avx2" => force_level(Some(Level::Avx2)),
            "avx512" => force_level(Some(Level::Avx512)),
            "bf16" => precision = Precision::Bf16,
            _ => (),
        }
    }
    let peak = gemm_rate(precision, cpu_time);
    println!("{:?}, {precision:?}, GEMM peak {:.1} GFLOP/s on one core, batch {batch}", level(), peak / 1e9);
    println!("| layer | inference | % of peak | training forward | % | backward | % |");
    println!("|---|---|---|---|---|---|---|");
    let (plain, tracked) = (Device::flex(), Device::flex().autodiff());
    let w = width;
    let resnet = [
        (32, 3, w, 3, 1),
        (32, w, w, 3, 1),
        (32, w, 2 * w, 3, 2),
        (32, w, 2 * w, 1, 2),
        (16, 2 * w, 2 * w, 3, 1),
        (16, 2 * w, 4 * w, 3, 2),
        (16, 2 * w, 4 * w, 1, 2),
        (8, 4 * w, 4 * w, 3, 1),
        (8, 4 * w, 8 * w, 3, 2),
        (8, 4 * w, 8 * w, 1, 2),
        (4, 8 * w, 8 * w, 3, 1),
    ];
    let alexnet = [
        (32, 3, 64, 3, 1),
        (16, 64, 192, 3, 1),
        (8, 192, 384, 3, 1),
        (8, 384, 256, 3, 1),
        (8, 256, 256, 3, 1),
        (1, 4096, 1024, 1, 1),
        (1, 1024, 1024, 1, 1),
    ];
    let chosen = if args.first().is_some_and(|a| a == "alexnet") { &alexnet[..] } else { &resnet };
    for &(h, c, k, kernel, stride) in chosen {
        let conv = Conv { stride, padding: kernel / 2, relu: true };
        let o = (h + 2 * conv.padding - kernel) / stride + 1;
        let flops = 2.0 * (batch * o * o * k * c * kernel * kernel) as f64;
        let (dx, dw) = ([batch, h, h, c], [k, c, kernel, kernel]);
        let parameters = |device: &Device| (tensor(dw, device), tensor([k], device), tensor([k], device));
        let (x, (weight, g, b)) = (cast(tensor(dx, &plain), precision), parameters(&plain));
        let infer = best(|| {
            conv_affine(x.clone(), weight.clone(), g.clone(), b.clone(), None, conv);
        });
        let forward = best(|| {
            conv_bn(x.clone(), weight.clone(), g.clone(), b.clone(), None, 1, conv);
        });
        let x = cast(tensor(dx, &tracked), precision);
        let x = if c == 3 { x } else { x.require_grad() };
        let (weight, g, b) = parameters(&tracked);
        let (weight, g, b) = (weight.require_grad(), g.require_grad(), b.require_grad());
        let back = best(|| {
            conv_bn(x.clone(), weight.clone(), g.clone(), b.clone(), None, 1, conv).output.backward();
        }) - forward;
        let times = if c == 3 { 1.0 } else { 2.0 };
        let show = |flops: f64, t: f64| format!("{:.0} GFLOP/s | {:.0}", flops / t / 1e9, 100.0 * flops / t / peak);
        println!(
            "| {h}x{h} {c}->{k} {kernel}x{kernel}/{stride} | {} | {} | {} |",
            show(flops, infer),
            show(flops, forward),
            show(times * flops, back)
        );
    }
}
