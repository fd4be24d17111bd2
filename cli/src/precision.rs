//! The option `--precision` of commands that build a network of their own.

use clap::{Args, ValueEnum};
use pcp::config::PrecisionChoice;

#[derive(Args, Clone, Copy)]
pub struct PrecisionArgs {
    /// Precision of the network's layers: auto (bf16 where the CPU has avx512_bf16), f32 or bf16
    #[arg(long, value_enum, default_value = "auto", value_name = "auto|f32|bf16", hide_possible_values = true)]
    precision: PrecisionWord,
}

#[derive(Clone, Copy, ValueEnum)]
enum PrecisionWord {
    Auto,
    F32,
    Bf16,
}

impl PrecisionArgs {
    pub fn choice(self) -> PrecisionChoice {
        match self.precision {
            PrecisionWord::Auto => PrecisionChoice::Auto,
            PrecisionWord::F32 => PrecisionChoice::F32,
            PrecisionWord::Bf16 => PrecisionChoice::Bf16,
        }
    }
}
