//! Random tensors and comparisons for the tests.
#![allow(dead_code)] // each test file uses a part

use burn::tensor::{Device, Tensor, TensorData};
use kernels::{Level, force_level};
use std::io::Write;
use std::sync::{Mutex, MutexGuard};

/// A small generator of repeatable numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `choices`.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[(self.next() % choices.len() as u64) as usize]
    }

    /// Roughly normal.
    pub fn normal(&mut self) -> f32 {
        let sum: f64 = (0..12).map(|_| (self.next() >> 11) as f64 / (1u64 << 53) as f64).sum();
        (sum - 6.0) as f32
    }

    pub fn normals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal()).collect()
    }
}

/// A tensor of these values.
pub fn tensor<const D: usize>(values: &[f32], dims: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), dims), device)
}

pub fn values<const D: usize>(t: &Tensor<D>) -> Vec<f32> {
    t.to_data().try_to_vec::<f32>().expect("f32")
}

/// max |a - b| / max |b|.
pub fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().all(|v| v.is_finite()), "not finite");
    let most = b.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let off = a.iter().zip(b).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
    if most == 0.0 { off } else { off / most }
}

/// The levels this CPU can run; says on stderr which are skipped.
pub fn levels() -> Vec<Level> {
    Level::EVERY.into_iter().filter(|level| runs(*level)).collect()
}

/// Whether this CPU can run the level; says so on stderr when it cannot, past the test harness, which hides what a
/// passing test prints.
pub fn runs(level: Level) -> bool {
    if !level.available() {
        let _ = writeln!(std::io::stderr(), "skipped: {level:?}, this CPU cannot run it");
    }
    level.available()
}

static LEVEL: Mutex<()> = Mutex::new(());

/// Holds the process at one level; the lock keeps other tests of the file from changing it.
pub struct AtLevel(#[allow(dead_code)] MutexGuard<'static, ()>);

pub fn at(level: Level) -> AtLevel {
    let guard = LEVEL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    force_level(Some(level));
    AtLevel(guard)
}

impl Drop for AtLevel {
    fn drop(&mut self) {
        force_level(None);
    }
}
