//! Which instruction set the kernels use: found out once at run time, or forced by a test.

use burn::tensor::DType;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Plain Rust, whatever the CPU.
    Portable,
    /// AVX2 with FMA: 8 lanes.
    Avx2,
    /// AVX-512: 16 lanes.
    Avx512,
}

impl Level {
    /// Whether this CPU can run the level.
    pub fn available(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512bw")
                    && Level::Avx2.available()
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// Every level there is, the slowest first.
    pub const EVERY: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    /// Every level this CPU can run, the slowest first.
    pub fn all() -> Vec<Level> {
        Self::EVERY.into_iter().filter(|level| level.available()).collect()
    }
}

/// 0: not looked yet; otherwise 1 + the level in use.
static CURRENT: AtomicU8 = AtomicU8::new(0);

/// The level in use: the best of this CPU unless [`force_level`] has set another.
pub fn level() -> Level {
    match CURRENT.load(Ordering::Relaxed) {
        1 => Level::Portable,
        2 => Level::Avx2,
        3 => Level::Avx512,
        _ => {
            let best = Level::all().into_iter().max().unwrap_or(Level::Portable);
            CURRENT.store(best as u8 + 1, Ordering::Relaxed);
            best
        }
    }
}

/// Sets the level of the whole process, or the best one again with `None`. For tests and benchmarks.
///
/// Panics when the CPU lacks the level, because the kernels would then execute instructions it does not have.
pub fn force_level(to: Option<Level>) {
    let value = to.map_or(0, |level| {
        assert!(level.available(), "this CPU cannot run {level:?}");
        level as u8 + 1
    });
    CURRENT.store(value, Ordering::Relaxed);
}

/// The level for data of at most so many channels: half-empty vectors would waste what wider ones gain.
pub(crate) fn level_for(channels: usize) -> Level {
    match level() {
        Level::Avx512 if channels <= 8 => Level::Avx2,
        other => other,
    }
}

/// How the activations of a network are stored and the operands of its products are rounded.
///
/// Sums, statistics, parameters, momentum, the bank and everything outside of a network's layers are f32 in both, except the operands of
/// [`crate::bank_softmax`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits everywhere.
    #[default]
    F32,
    /// Activations, their gradients and the operands of products in bf16: the sign, exponent and upper seven bits of the
    /// fraction of an f32. Half the memory, and twice the products in a second where [`bf16_supported`].
    Bf16,
}

impl Precision {
    /// This precision where the CPU is fast in it, else f32.
    pub fn or_f32(self) -> Precision {
        if bf16_supported() { self } else { Precision::F32 }
    }

    /// The type of its tensors.
    pub(crate) fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::BF16,
        }
    }

    /// Bytes of an activation.
    pub fn bytes(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
        }
    }
}

/// Its name, as in settings.
impl std::fmt::Display for Precision {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(if *self == Precision::F32 { "f32" } else { "bf16" })
    }
}

/// Whether the CPU multiplies bf16 and the level in use is that of AVX-512. Without, tensors of bf16 work too, but slower
/// than those of f32, because every number is converted on its way.
pub fn bf16_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    return level() == Level::Avx512 && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// As [`at_level`], with a second type name bound to the number of a tensor's dtype. Tensors of bf16 have their own
/// instruction set, or the portable one.
macro_rules! at_number {
    ($S:ident, $E:ident of $dtype:expr, for $channels:expr => $body:expr) => {
        match $dtype {
            burn::tensor::DType::BF16 => {
                type $E = burn_std::bf16;
                #[cfg(target_arch = "x86_64")]
                if $crate::level::bf16_supported() {
                    type $S = $crate::simd::Avx512Half;
                    $body
                } else {
                    type $S = $crate::simd::Portable;
                    $body
                }
                #[cfg(not(target_arch = "x86_64"))]
                {
                    type $S = $crate::simd::Portable;
                    $body
                }
            }
            _ => {
                type $E = f32;
                $crate::level::at_level!($S for $channels => $body)
            }
        }
    };
}
pub(crate) use at_number;

/// Evaluates an expression with the type name bound to the [`crate::simd::Simd`] implementation of the current level,
/// or of the level for so many channels.
macro_rules! at_level {
    ($S:ident => $body:expr) => {
        $crate::level::at_level!($S, $crate::level::level() => $body)
    };
    ($S:ident for $channels:expr => $body:expr) => {
        $crate::level::at_level!($S, $crate::level::level_for($channels) => $body)
    };
    ($S:ident, $level:expr => $body:expr) => {
        match $level {
            #[cfg(target_arch = "x86_64")]
            $crate::level::Level::Avx512 => {
                type $S = $crate::simd::Avx512;
                $body
            }
            #[cfg(target_arch = "x86_64")]
            $crate::level::Level::Avx2 => {
                type $S = $crate::simd::Avx2;
                $body
            }
            _ => {
                type $S = $crate::simd::Portable;
                $body
            }
        }
    };
}
pub(crate) use at_level;
