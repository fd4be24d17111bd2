//! The bf16 convolutions against slow twins that round where they round, and against f32 within the format's bound.
//!
//! The twins calculate in f64, from the algorithms' points alone. A kernel transforms in f32, so that now and then an
//! operand falls on the other side of a rounding: the bounds on the twins are far below the error of bf16 itself, but not
//! zero. Errors are rms over the deviation of what is compared.

use crate::memory::Ptr;
use crate::norm::Gradient;
use crate::number::Number;
use crate::simd::{Portable, Simd, padded};
use crate::winograd::Finish;
use crate::{direct, winograd};
use burn_std::bf16;
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

/// Half the distance of neighbouring numbers of bf16, relative to them.
const ROUNDING: f64 = 1.0 / 512.0;

fn round(v: f64) -> f64 {
    f64::from(bf16::from_f32(v as f32).to_f32())
}

type Matrix = Vec<Vec<f64>>;

/// `A^T`, `G` and `B^T` of F(4, r) with these points and infinity.
fn toom_cook(points: &[f64], r: usize) -> [Matrix; 3] {
    let n = points.len() + 1;
    let power = |p: f64, k: usize| p.powi(k as i32);
    // coefficients of the product of (x - q)
    let product = |of: &[f64]| {
        let mut c = vec![1.0];
        for q in of {
            let mut next = vec![0.0; c.len() + 1];
            for (i, v) in c.iter().enumerate() {
                next[i + 1] += v;
                next[i] -= q * v;
            }
            c = next;
        }
        c.resize(n, 0.0);
        c
    };
    let (mut a, mut g, mut b) = (vec![vec![0.0; n]; 4], vec![vec![0.0; r]; n], Vec::new());
    for (i, p) in points.iter().enumerate() {
        let others: Vec<f64> = points.iter().copied().filter(|q| q != p).collect();
        let norm: f64 = others.iter().map(|q| p - q).product();
        (0..4).for_each(|k| a[k][i] = power(*p, k));
        (0..r).for_each(|j| g[i][j] = power(*p, j) / norm);
        b.push(product(&others));
    }
    a[3][n - 1] = 1.0;
    g[n - 1][r - 1] = 1.0;
    b.push(product(points));
    [a, g, b]
}

/// `A^T`, `G` and `B^T` for a stride, on tiles of 6 or 9 pixels a side.
fn algorithm(stride: usize) -> [Matrix; 3] {
    if stride == 1 {
        return toom_cook(&[0.0, FRAC_1_SQRT_2, -FRAC_1_SQRT_2, SQRT_2, -SQRT_2], 3);
    }
    let [a2, g2, b2] = toom_cook(&[0.4, -0.4, 1.3, -1.3], 2);
    let (mut a, mut g, mut b) = (vec![vec![0.0; 9]; 4], vec![vec![0.0; 3]; 9], vec![vec![0.0; 9]; 9]);
    for i in 0..5 {
        (0..4).for_each(|k| a[k][i] = a2[k][i]);
        (g[i][0], g[i][2]) = (g2[i][0], g2[i][1]);
        (0..5).for_each(|j| b[i][2 * j] = b2[i][j]);
    }
    for i in 0..4 {
        (a[i][5 + i], g[5 + i][1], b[5 + i][2 * i + 1]) = (1.0, 1.0, 1.0);
    }
    [a, g, b]
}

/// `left x left^T`.
fn sandwich(left: &Matrix, x: &Matrix) -> Matrix {
    let half: Matrix = left
        .iter()
        .map(|row| (0..x[0].len()).map(|j| row.iter().zip(x).map(|(l, x)| l * x[j]).sum()).collect())
        .collect();
    half.iter().map(|row| left.iter().map(|l| l.iter().zip(row).map(|(a, b)| a * b).sum::<f64>()).collect()).collect()
}

fn transposed(m: &Matrix) -> Matrix {
    (0..m[0].len()).map(|j| m.iter().map(|row| row[j]).collect()).collect()
}

/// A convolution and its gradients with their operands rounded by `q`: `z`, `dx`, `dw`.
struct Twin {
    z: Vec<f64>,
    dx: Vec<f64>,
    dw: Vec<f64>,
}

/// Batch, height, width, channels in and out, kernel, stride, padding.
type Sizes = (usize, usize, usize, usize, usize, usize, usize, usize);

/// The layer of a test: sizes, input, weights and the gradient by the convolution's output.
struct Case {
    g: direct::Geometry,
    x: Vec<bf16>,
    w: Vec<f32>,
    dz: Vec<bf16>,
}

impl Case {
    fn new((b, h, w, c, k, kernel, stride, padding): Sizes) -> Case {
        let g = direct::Geometry { b, h, w, c, k, kh: kernel, kw: kernel, stride, padding, views: 1 };
        let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ (b * h * c * k * kernel) as u64;
        let mut normal = |n: usize, scale: f32| -> Vec<f32> {
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 40) as f32 / (1 << 24) as f32 - 0.5
            };
            (0..n).map(|_| (next() + next() + next() + next()) * 1.7 * scale).collect()
        };
        let narrow = |v: Vec<f32>| v.into_iter().map(bf16::from_f32).collect();
        let x = normal(b * h * w * c, 1.0).into_iter().map(|v| v.max(0.0)).collect();
        let weights = normal(k * c * kernel * kernel, (2.0 / (kernel * kernel * c) as f32).sqrt());
        let dz = normal(b * g.oh() * g.ow() * k, 1.0);
        Case { g, x: narrow(x), w: weights, dz: narrow(dz) }
    }

    fn at(&self, image: usize, y: isize, x: isize, channel: usize) -> f64 {
        let g = &self.g;
        if y < 0 || x < 0 || y >= g.h as isize || x >= g.w as isize {
            return 0.0;
        }
        f64::from(self.x[((image * g.h + y as usize) * g.w + x as usize) * g.c + channel].to_f32())
    }

    /// By definition: operands as they are, or rounded to bf16.
    fn direct(&self, q: fn(f64) -> f64) -> Twin {
        let g = &self.g;
        let (oh, ow) = (g.oh(), g.ow());
        let mut out = Twin { z: vec![0.0; self.dz.len()], dx: vec![0.0; self.x.len()], dw: vec![0.0; self.w.len()] };
        for pixel in 0..g.b * oh * ow {
            let (image, oy, ox) = (pixel / (oh * ow), pixel / ow % oh, pixel % ow);
            for i in 0..g.kh {
                for j in 0..g.kw {
                    let (y, x) = (oy * g.stride + i, ox * g.stride + j);
                    let (y, x) = (y as isize - g.padding as isize, x as isize - g.padding as isize);
                    if y < 0 || x < 0 || y >= g.h as isize || x >= g.w as isize {
                        continue;
                    }
                    let base = ((image * g.h + y as usize) * g.w + x as usize) * g.c;
                    for c in 0..g.c {
                        for k in 0..g.k {
                            let w = ((k * g.c + c) * g.kh + i) * g.kw + j;
                            let (dz, weight) = (f64::from(self.dz[pixel * g.k + k].to_f32()), q(f64::from(self.w[w])));
                            let value = f64::from(self.x[base + c].to_f32());
                            out.z[pixel * g.k + k] += value * weight;
                            out.dx[base + c] += dz * weight;
                            out.dw[w] += dz * value;
                        }
                    }
                }
            }
        }
        out
    }

    /// By Winograd's algorithm, operands rounded to bf16 after their transforms.
    fn winograd(&self) -> Twin {
        let g = &self.g;
        let [a, filter, b] = algorithm(g.stride);
        let (t, step, at, bt) = (b.len(), 4 * g.stride, transposed(&a), transposed(&b));
        let ft = transposed(&filter);
        let (oh, ow) = (g.oh(), g.ow());
        let tap = |k: usize, c: usize| -> Matrix {
            (0..3).map(|i| (0..3).map(|j| f64::from(self.w[((k * g.c + c) * 3 + i) * 3 + j])).collect()).collect()
        };
        let rounded = |m: Matrix| -> Matrix { m.into_iter().map(|r| r.into_iter().map(round).collect()).collect() };
        let zeros = || vec![vec![0.0; t]; t];
        let u: Vec<Matrix> = (0..g.k * g.c).map(|i| rounded(sandwich(&filter, &tap(i / g.c, i % g.c)))).collect();
        let mut du: Vec<Matrix> = (0..g.k * g.c).map(|_| zeros()).collect();
        let mut out = Twin { z: vec![0.0; self.dz.len()], dx: vec![0.0; self.x.len()], dw: vec![0.0; self.w.len()] };
        for tile in 0..g.b * oh.div_ceil(4) * ow.div_ceil(4) {
            let (rows, columns) = (oh.div_ceil(4), ow.div_ceil(4));
            let (image, row, column) = (tile / (rows * columns), tile / columns % rows, tile % columns);
            let pixel = |i: usize, j: usize| {
                let (y, x) = (row * 4 + i, column * 4 + j);
                (y < oh && x < ow).then(|| ((image * oh + y) * ow + x) * g.k)
            };
            let v: Vec<Matrix> = (0..g.c)
                .map(|c| {
                    let input = |i: usize, j: usize| {
                        self.at(image, (row * step + i) as isize - 1, (column * step + j) as isize - 1, c)
                    };
                    rounded(sandwich(&b, &(0..t).map(|i| (0..t).map(|j| input(i, j)).collect()).collect()))
                })
                .collect();
            let mut dv: Vec<Matrix> = (0..g.c).map(|_| zeros()).collect();
            for k in 0..g.k {
                let dz = |i: usize, j: usize| pixel(i, j).map_or(0.0, |p| f64::from(self.dz[p + k].to_f32()));
                let dm = rounded(sandwich(&at, &(0..4).map(|i| (0..4).map(|j| dz(i, j)).collect()).collect()));
                let mut m = zeros();
                for c in 0..g.c {
                    for i in 0..t {
                        for j in 0..t {
                            m[i][j] += v[c][i][j] * u[k * g.c + c][i][j];
                            dv[c][i][j] += dm[i][j] * u[k * g.c + c][i][j];
                            du[k * g.c + c][i][j] += dm[i][j] * v[c][i][j];
                        }
                    }
                }
                let z = sandwich(&a, &m);
                for i in 0..4 {
                    for j in 0..4 {
                        if let Some(p) = pixel(i, j) {
                            out.z[p + k] = z[i][j];
                        }
                    }
                }
            }
            for c in 0..g.c {
                let dx = sandwich(&bt, &dv[c]);
                for i in 0..t {
                    for j in 0..t {
                        let (y, x) = ((row * step + i).wrapping_sub(1), (column * step + j).wrapping_sub(1));
                        if y < g.h && x < g.w {
                            out.dx[((image * g.h + y) * g.w + x) * g.c + c] += dx[i][j];
                        }
                    }
                }
            }
        }
        for (i, du) in du.iter().enumerate() {
            for (t, v) in sandwich(&ft, du).into_iter().flatten().enumerate() {
                out.dw[i * 9 + t] = v;
            }
        }
        out
    }

    /// The kernels at a level: `z`, `dx` and `dw`.
    fn kernels<S: Simd>(&self, tiled: bool) -> Twin
    where
        bf16: Number<S>,
    {
        let g = &self.g;
        let kp = padded::<S>(g.k);
        let (mut z, mut dx) = (vec![bf16::NAN; self.dz.len()], vec![bf16::NAN; self.x.len()]);
        let mut dw = vec![f32::NAN; self.w.len()];
        let (ones, zeros) = (vec![1.0; kp], vec![0.0; kp]);
        let finish = Finish::Affine { scale: &ones, shift: &zeros, residual: None, relu: false };
        // dz = 1 g + 0 z + 0
        let mut coefficients = vec![0.0; 4 * kp];
        coefficients[..g.k].fill(1.0);
        let d = Gradient { g: &self.dz, z: &self.dz, coefficients: &coefficients, stride: kp, relu: false };
        let (zp, dxp, dwp) = (Ptr(z.as_mut_ptr()), Ptr(dx.as_mut_ptr()), Ptr(dw.as_mut_ptr()));
        // SAFETY: all tensors have the sizes of the geometry.
        unsafe {
            if tiled {
                let direct::Geometry { b, h, w, c, k, views, stride, .. } = *g;
                let g = winograd::WinogradGeometry { b, h, w, c, k, views, stride };
                winograd::forward::<S, bf16>(&g, &self.x, &self.w, zp, finish);
                winograd::backward::<S, bf16>(&g, &self.x, &self.w, &d, (Some(dxp), false), dwp);
            } else {
                direct::forward::<S, bf16>(g, &self.x, &self.w, zp, finish);
                direct::weight_gradient::<S, bf16>(g, &self.x, &d, dwp);
                direct::input_gradient::<S, bf16>(g, &self.w, &d, dxp);
            }
        }
        let wide = |v: Vec<bf16>| v.iter().map(|v| f64::from(v.to_f32())).collect();
        Twin { z: wide(z), dx: wide(dx), dw: dw.into_iter().map(f64::from).collect() }
    }
}

/// rms of the difference over the deviation of `b`.
fn off(a: &[f64], b: &[f64]) -> f64 {
    assert!(a.len() == b.len() && a.iter().all(|v| v.is_finite()));
    let mean = b.iter().sum::<f64>() / b.len() as f64;
    let deviation: f64 = b.iter().map(|v| (v - mean).powi(2)).sum();
    let difference: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
    (difference / deviation).sqrt()
}

fn check(name: &str, case: Sizes, tiled: bool, ours: &Twin) {
    let case_of = Case::new(case);
    let exact = case_of.direct(|v| v);
    let twin = if tiled { case_of.winograd() } else { case_of.direct(round) };
    // z and dx are rounded once more at the end, dx of overlapping tiles up to four times; dw is f32
    let [z, dx, dw] = [off(&ours.z, &twin.z), off(&ours.dx, &twin.dx), off(&ours.dw, &twin.dw)];
    let limits = if tiled { [1.2, 1.8, 0.8] } else { [1.2, 1.2, 0.001] };
    for ((off, limit), what) in [z, dx, dw].into_iter().zip(limits).zip(["z", "dx", "dw"]) {
        assert!(off < limit * ROUNDING, "{name} {case:?}: {what} off its twin by {:.3} roundings", off / ROUNDING);
    }
    // one rounding of each operand and of the result, times what the transforms make of it
    let grows = match (tiled, case.6) {
        (false, _) => 2.0,
        (_, 1) => 8.0,
        _ => 4.0,
    };
    for (ours, exact, what) in [(&ours.z, &exact.z, "z"), (&ours.dx, &exact.dx, "dx"), (&ours.dw, &exact.dw, "dw")] {
        let off = off(ours, exact) / ROUNDING;
        assert!(off < grows, "{name} {case:?}: {what} off f32 by {off:.3} roundings, more than {grows}");
    }
}

/// Every form of the Winograd kernels: by tile, by plane, by panel, with channels and maps that fill nothing.
const TILED: &[Sizes] = &[
    (2, 8, 8, 16, 16, 3, 1, 1),
    (3, 7, 9, 24, 9, 3, 1, 1),
    (1, 13, 6, 33, 40, 3, 1, 1),
    (2, 8, 8, 128, 144, 3, 1, 1),
    (2, 4, 4, 256, 272, 3, 1, 1),
    (2, 16, 16, 32, 48, 3, 2, 1),
    (1, 15, 9, 17, 35, 3, 2, 1),
    (1, 8, 8, 130, 129, 3, 2, 1),
];

/// Kernels from 1 to 11, odd and even channels, with and without padding.
const DIRECT: &[Sizes] = &[
    (2, 12, 12, 3, 16, 3, 1, 1),
    (2, 8, 8, 16, 33, 1, 2, 0),
    (2, 7, 5, 9, 7, 1, 1, 0),
    (1, 23, 23, 3, 10, 11, 4, 2),
    (2, 9, 9, 8, 17, 5, 1, 2),
    (2, 6, 6, 5, 4, 3, 1, 0),
    (1, 6, 5, 4, 6, 3, 5, 4),
];

fn all<S: Simd>(name: &str)
where
    bf16: Number<S>,
{
    for (cases, tiled) in [(TILED, true), (DIRECT, false)] {
        for case in cases {
            check(name, *case, tiled, &Case::new(*case).kernels::<S>(tiled));
        }
    }
}

#[test]
fn portable_rounds_as_its_twin() {
    all::<Portable>("portable");
}

#[test]
fn avx512_rounds_as_its_twin() {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512bf16") && crate::level::Level::Avx512.available() {
        return all::<crate::simd::Avx512Half>("AVX-512");
    }
    // past the test harness, which hides what a passing test prints
    let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: this CPU has no products of bf16\n");
}
