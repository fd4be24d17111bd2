//! Tests that run every kernel on buffers that end at an unmapped page, or begin after one: an overrun faults.

use crate::layer::{self, Incoming, Kept, Outputs, Shape};
use crate::level::{Level, Precision, at_level, at_number, force_level};
use crate::memory::Ptr;
use crate::number::{Number, convert};
use crate::simd::Simd;
use crate::{Sgd, bank, pool, sgd};
use burn::tensor::DType;
use std::io::Write;
use std::ops::{Deref, DerefMut};

/// `len` values between two unmapped pages, flush with one of them.
struct Guarded<E = f32> {
    map: *mut u8,
    size: usize,
    at: *mut E,
    len: usize,
}

const PAGE: usize = 4096;

impl<E: Copy> Guarded<E> {
    fn new(values: &[E], flush_with_end: bool) -> Guarded<E> {
        let bytes = std::mem::size_of_val(values);
        let inner = bytes.next_multiple_of(PAGE).max(PAGE);
        let size = inner + 2 * PAGE;
        // SAFETY: a fresh private mapping; its first and last page are made inaccessible, the rest holds the values.
        unsafe {
            let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let map = libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) as *mut u8;
            assert_ne!(map as *mut libc::c_void, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(map as *mut _, PAGE, libc::PROT_NONE), 0);
            assert_eq!(libc::mprotect(map.add(PAGE + inner) as *mut _, PAGE, libc::PROT_NONE), 0);
            let at = map.add(if flush_with_end { PAGE + inner - bytes } else { PAGE }) as *mut E;
            std::ptr::copy_nonoverlapping(values.as_ptr(), at, values.len());
            Guarded { map, size, at, len: values.len() }
        }
    }
}

impl<E> Deref for Guarded<E> {
    type Target = [E];
    fn deref(&self) -> &[E] {
        // SAFETY: `new` mapped and wrote `len` values here.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl<E> DerefMut for Guarded<E> {
    fn deref_mut(&mut self) -> &mut [E] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl<E> Drop for Guarded<E> {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, given back once.
        unsafe { libc::munmap(self.map as *mut _, self.size) };
    }
}

/// Values that do not repeat at any lane width.
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 + 13) % 1009) as f32 / 504.5 - 1.0).collect()
}

/// The same as another number.
fn stored<S: Simd, E: Number<S>>(n: usize, end: bool) -> Guarded<E> {
    Guarded::new(&numbers(n).into_iter().map(E::nearest).collect::<Vec<E>>(), end)
}

fn layers(shape: Shape, dtype: DType, end: bool) {
    at_number!(S, E of dtype, for usize::MAX => layers_in::<S, E>(shape, end));
}

fn layers_in<S: Simd, E: Number<S>>(shape: Shape, end: bool) {
    let (make, map) = (|n: usize| Guarded::new(&numbers(n), end), |n: usize| stored::<S, E>(n, end));
    let Shape { b, h, w, c, k, kh, kw, .. } = shape;
    let n = shape.output_len();
    let (x, weight, residual) = (map(b * h * w * c), make(k * c * kh * kw), map(n));
    let (gamma, beta) = (make(k), make(k));
    let (mut z, mut y, mut dy, mut dx, mut dw) = (map(n), map(n), map(n), map(x.len()), make(weight.len()));
    let moments = layer::convolve_with_moments::<S, E>(&shape, &x, &weight, &mut z);
    let (affine, inverse) = layer::normalisation(&moments, &gamma, &beta);
    layer::normalise::<S, E>(&shape, &z, &affine, Some(&residual), &mut y);
    let rows = (shape.output_len() / shape.k / shape.views) as f64;
    let kept = Kept { shape, affine, mean: moments.mean, inverse, batch_statistics: true, rows, across: None };
    let out = Outputs { x: Some(&mut dx[..]), add: false, w: &mut dw };
    layer::backward::<S, E>(&kept, &x, &weight, &z, Incoming::MaskedBy(&mut dy, &y), out);
    let out = Outputs { x: Some(&mut dx[..]), add: true, w: &mut dw };
    layer::backward::<S, E>(&kept, &x, &weight, &z, Incoming::Plain(&dy), out);
    layer::inference::<S, E>(&shape, &x, &weight, (&gamma, &beta), Some(&residual), &mut y);
    assert!(y.iter().chain(dx.iter()).all(|v| v.wide().is_finite()) && dw.iter().all(|v| v.is_finite()));
    for n in [1, 15, 33] {
        let (wide, mut narrow) = (make(n), map(n));
        convert::<S, f32, E>(&wide, &mut narrow);
        convert::<S, E, f32>(&narrow, &mut make(n));
    }
    for (b, h, w, c, size, stride, padding) in [(1, 5, 4, 3, 3, 2, 1), (2, 4, 4, 17, 2, 2, 0)] {
        let g = pool::PoolGeometry { b, h, w, c, size, stride, padding };
        let (oh, ow) = g.output();
        let (x, mut y, mut dx) = (map(b * h * w * c), map(b * oh * ow * c), map(b * h * w * c));
        let mut tap = vec![0; y.len()];
        pool::forward::<S, E>(&g, &x, &mut y, &mut tap);
        pool::backward::<S, E>(&g, &y, &tap, &mut dx);
    }
}

fn others(end: bool) {
    let make = |n: usize| Guarded::new(&numbers(n), end);
    at_level!(S => {
        for n in [1, 15, 100] {
            let (mut w, g, mut v) = (make(n), make(n), make(n));
            let step = Sgd { lr: 0.1, momentum: 0.9, decay: 0.1, nesterov: true };
            let (w, g, v) = (Ptr(w.as_mut_ptr()), Ptr(g.as_ptr() as *mut f32), Ptr(v.as_mut_ptr()));
            // SAFETY: all hold `n` values; targets are their own sources.
            unsafe { sgd::step::<S>(n, w, g, v, w, v, step) };
        }
    });
    for (b, n, d) in [(1, 1, 1), (3, 300, 7), (17, 33, 16), (2, 2500, 20)] {
        for precision in [Precision::F32, Precision::Bf16] {
            let out = bank::bank_softmax(&make(b * d), &make(n * d), d, 0.5, precision);
            assert!(out.expectation.iter().all(|v| v.is_finite()));
        }
    }
}

#[test]
fn nothing_is_read_or_written_outside() {
    for level in Level::EVERY {
        if !level.available() {
            // past the test harness, which hides what a passing test prints
            let _ = writeln!(std::io::stderr(), "skipped: {level:?}, this CPU cannot run it");
            continue;
        }
        force_level(Some(level));
        for end in [true, false] {
            others(end);
            for (b, h, w, c, k, kernel, stride, padding, views) in [
                (2, 8, 8, 16, 16, 3, 1, 1, 2),
                (1, 7, 9, 24, 9, 3, 1, 1, 1),
                (2, 3, 5, 8, 8, 3, 1, 1, 1),
                (2, 5, 6, 129, 130, 3, 1, 1, 2),
                (1, 1, 1, 1, 1, 3, 1, 1, 1),
                (2, 6, 5, 3, 7, 3, 1, 1, 1),
                (2, 9, 9, 5, 17, 3, 2, 1, 1),
                (2, 8, 8, 20, 33, 1, 2, 0, 2),
                (2, 7, 8, 20, 17, 3, 2, 1, 1),
                (1, 15, 16, 17, 16, 3, 2, 1, 1),
                (1, 8, 8, 257, 256, 3, 2, 1, 1),
                (1, 15, 14, 3, 10, 7, 2, 3, 1),
                (1, 23, 23, 3, 6, 11, 4, 2, 1),
                (2, 6, 6, 9, 4, 5, 1, 2, 1),
                (2, 4, 4, 6, 6, 2, 2, 0, 1),
                (1, 4, 5, 3, 3, 2, 3, 2, 1),
            ] {
                let shape = Shape { b, h, w, c, k, kh: kernel, kw: kernel, stride, padding, views, relu: true };
                layers(shape, DType::F32, end);
                layers(shape, DType::BF16, end);
            }
        }
    }
    force_level(None);
}
