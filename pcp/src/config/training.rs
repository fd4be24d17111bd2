//! Epochs, optimiser, seed, and the precision that a network computes in.

pub use kernels::Precision;
use pcp_core::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How the learning rate falls within a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LrSchedule {
    /// By `lr_steps`.
    Steps,
    /// Half a cosine from `lr` to 0.
    Cosine,
    /// Up to `lr` in a thirtieth of the steps, then half a cosine to 0, step by step.
    Warmup,
}

/// Epochs, optimiser and seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainSettings<Computed = PrecisionChoice> {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Rounds of `epochs` epochs each. With 0 nothing is trained and the network keeps its initial weights.
    pub rounds: u32,
    /// Epochs per round, T.
    pub epochs: u32,
    /// Images per step, B.
    pub batch: usize,
    /// Learning rate at the start of a round.
    pub lr: f64,
    /// How it falls.
    pub lr_schedule: LrSchedule,
    /// Pairs `[share of the epochs, factor on lr from there on]`.
    pub lr_steps: Vec<[f64; 2]>,
    /// SGD momentum.
    pub momentum: f64,
    /// Whether the network uses Nesterov momentum.
    pub nesterov: bool,
    /// Whether batch norm has the statistics of the whole batch where several processes share it; otherwise each those of its own rows.
    pub sync_norm: bool,
    /// Parts of a batch that are computed apart and added up in their order, by processes or, where these are fewer, by threads: with as many
    /// parts, the result has the same bits on any number of processes. 0: as many as processes.
    pub parts: usize,
    /// Weight decay, on all parameters.
    pub weight_decay: f64,
    /// Precision of the network's layers. Auto: f32.
    pub precision: Computed,
    /// A safetensors file with initial weights in torchvision's names; empty for random ones.
    pub init_from: String,
}

impl Default for TrainSettings {
    fn default() -> Self {
        TrainSettings {
            seed: 0,
            rounds: 1,
            epochs: 200,
            batch: 128,
            lr: 0.03,
            lr_schedule: LrSchedule::Steps,
            lr_steps: vec![[0.6, 0.1], [0.8, 0.01]],
            momentum: 0.9,
            nesterov: false,
            sync_norm: true,
            parts: 0,
            weight_decay: 5e-4,
            precision: PrecisionChoice::Auto,
            init_from: String::new(),
        }
    }
}

/// The precision of a network's layers, as users write it. Weights and the memory bank are f32 in any case; the softmax over
/// the bank rounds the operands of its products, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrecisionChoice {
    /// bf16 where the CPU computes in it, f32 elsewhere.
    #[default]
    Auto,
    /// f32.
    F32,
    /// bf16, for which the CPU needs AVX-512 with bf16 (`avx512_bf16`).
    Bf16,
}

/// The CPUs that compute in bf16.
const CAPABLE: &str = "AMD Zen 4, Intel Cooper Lake and Sapphire Rapids, or newer";

impl PrecisionChoice {
    /// The precision of a new run on this CPU; an error for bf16 where the CPU does not compute in it.
    pub fn resolve(self) -> Result<Precision> {
        self.on(kernels::bf16_supported())
    }

    /// The precision of a new run on a CPU that computes in bf16 or does not.
    fn on(self, bf16: bool) -> Result<Precision> {
        match self {
            PrecisionChoice::Bf16 if !bf16 => Err(Error::usage(
                "`precision` is bf16, and this CPU does not compute in it (it has no avx512_bf16)",
                format!("give `precision` auto or f32, or use a CPU that does ({CAPABLE})"),
            )),
            PrecisionChoice::Auto if bf16 => Ok(Precision::Bf16),
            choice => Ok(choice.written()),
        }
    }

    /// The precision in the settings of a run that has begun; f32 if they were written before there was a choice.
    pub(super) fn written(self) -> Precision {
        match self {
            PrecisionChoice::Auto | PrecisionChoice::F32 => Precision::F32,
            PrecisionChoice::Bf16 => Precision::Bf16,
        }
    }
}

impl From<Precision> for PrecisionChoice {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => PrecisionChoice::F32,
            Precision::Bf16 => PrecisionChoice::Bf16,
        }
    }
}

/// Refuses to continue the training in `run`, which began in `precision`, on a CPU that does not compute in it.
pub fn check_resumable(run: &Path, precision: Precision) -> Result<()> {
    resumable_on(run, precision, kernels::bf16_supported())
}

fn resumable_on(run: &Path, precision: Precision, bf16: bool) -> Result<()> {
    if precision == Precision::F32 || bf16 {
        return Ok(());
    }
    let message =
        format!("{} began in bf16, and this CPU does not compute in it (it has no avx512_bf16)", run.display());
    let hint = format!("resume it on a CPU that does ({CAPABLE}), or start another run with `precision` f32");
    Err(Error::usage(message, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_needs_a_cpu_that_computes_in_it() {
        for (choice, without, with) in [
            (PrecisionChoice::Auto, Some(Precision::F32), Precision::Bf16),
            (PrecisionChoice::F32, Some(Precision::F32), Precision::F32),
            (PrecisionChoice::Bf16, None, Precision::Bf16),
        ] {
            assert_eq!(choice.on(false).ok(), without, "{choice:?}");
            assert_eq!(choice.on(true).unwrap(), with, "{choice:?}");
        }
        let e = PrecisionChoice::Bf16.on(false).unwrap_err();
        assert!(e.message.contains("avx512_bf16") && e.hint.contains("auto or f32"), "{e:?}");
        assert_eq!(e.exit_code(), 2);
    }

    #[test]
    fn a_run_in_bf16_goes_on_only_where_the_cpu_computes_in_it() {
        let run = Path::new("runs/photos");
        assert!(resumable_on(run, Precision::F32, false).is_ok());
        assert!(resumable_on(run, Precision::Bf16, true).is_ok());
        let e = resumable_on(run, Precision::Bf16, false).unwrap_err();
        assert!(e.message.contains("runs/photos began in bf16") && e.hint.contains("another run"), "{e:?}");
    }

    #[test]
    fn names_are_those_of_the_settings() {
        for precision in [Precision::F32, Precision::Bf16] {
            let choice = PrecisionChoice::from(precision);
            assert_eq!(choice.written(), precision);
            let name = precision.to_string();
            assert_eq!(toml::Value::from(name.clone()).try_into::<PrecisionChoice>().unwrap(), choice);
            assert_eq!(toml::Value::from(name).try_into::<Precision>().unwrap(), precision);
        }
    }
}
