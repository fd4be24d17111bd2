//! `pcp bench step` and `pcp bench infer`.

use super::{BenchCommon, positive, random, show, timed};
use crate::precision::PrecisionArgs;
use clap::Args;
use pcp::config::{Arch, Config, LossForm};
use pcp::data::Batch;
use pcp::method::bank::{Bank, BankSample};
use pcp::method::objective::{BankWork, bank_loss};
use pcp::model::{DropoutKey, FeatureKind, Network, Optimizer};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result, listed};
use pcp_core::purify::Positives;
use pcp_core::rng::{Key, Purpose};
use serde_json::json;

#[derive(Args)]
pub(super) struct NetworkArgs {
    /// Network: resnet18, alexnet or alexnet224
    #[arg(long, default_value = "resnet18")]
    arch: String,
    /// Channels of the first stage
    #[arg(long, default_value_t = 64)]
    width: usize,
    /// Images per batch
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Side of the images [default: 32, 224 for alexnet224]
    #[arg(long)]
    size: Option<usize>,
    /// Batches that count, after two that do not
    #[arg(long, default_value_t = 10)]
    iters: usize,
    /// Instructions: portable, avx2 or avx512 [default: the best of this CPU]
    #[arg(long)]
    level: Option<String>,
    #[command(flatten)]
    precision: PrecisionArgs,
    #[command(flatten)]
    pub(super) common: BenchCommon,
}

#[derive(Args)]
pub struct StepArgs {
    #[command(flatten)]
    pub(super) network: NetworkArgs,
    /// Rows of the memory bank
    #[arg(long, default_value_t = 50_000)]
    bank: usize,
    /// Rows of the bank that are drawn for a batch, as by the setting objective.bank_rows; 0: all rows
    #[arg(long, default_value_t = 0)]
    bank_rows: usize,
}

#[derive(Args)]
pub struct InferArgs {
    #[command(flatten)]
    pub(super) network: NetworkArgs,
}

/// Makes the network's kernels use the instructions asked for.
fn use_level(asked: &str) -> Result<()> {
    let all = kernels::Level::all();
    match all.iter().find(|level| format!("{level:?}").eq_ignore_ascii_case(asked)) {
        Some(level) => {
            kernels::force_level(Some(*level));
            Ok(())
        }
        None => Err(Error::usage(
            format!("this CPU has no level {asked}"),
            format!("it has {}", listed(all.iter().map(|level| format!("{level:?}").to_lowercase()))),
        )),
    }
}

fn level() -> String {
    format!("{:?}", kernels::level()).to_lowercase()
}

fn build(args: &NetworkArgs) -> Result<(Network, Batch)> {
    if let Some(level) = &args.level {
        use_level(level)?;
    }
    let arch: Arch = toml::Value::String(args.arch.clone()).try_into().map_err(|_| {
        Error::usage(format!("there is no network {}", args.arch), "use resnet18, alexnet or alexnet224")
    })?;
    let size = args.size.unwrap_or(if arch == Arch::Alexnet224 { 224 } else { 32 });
    positive(&[("width", args.width), ("batch", args.batch), ("size", size), ("iters", args.iters)])?;
    if size > 1024 || args.width > 4096 || args.batch > 65_536 {
        return Err(Error::usage(
            format!("--size is {size}, --width {}, --batch {}", args.width, args.batch),
            "give 1024 pixels, 4096 channels and 65,536 images at the most",
        ));
    }
    let config = pcp::config::NetworkSettings { arch, width: args.width, ..Config::default().network };
    let network = Network::new(&config, size)?.with_precision(args.precision.choice().resolve()?);
    let pixels = random(args.batch * size * size, 3, 0).values;
    Ok((network, Batch { rows: args.batch, pixels }))
}

pub(super) fn step(args: &StepArgs, stop: &Cancel) -> Result<()> {
    let n = &args.network;
    positive(&[("bank", args.bank)])?;
    let (network, batch) = build(n)?;
    let precision = network.precision;
    let (rows, iters, bank_rows, drawn) = (n.batch, n.iters, args.bank, args.bank_rows);
    let seconds = stop.run(move || {
        let mut weights = network.init(0);
        let mut optimizer = Optimizer::new(&weights);
        let bank = Bank { rows: random(bank_rows, network.embedding, 1).normalised(), first: 0, momentum: 0.5 };
        let positives = Positives::instances(bank_rows);
        let samples: Vec<usize> = (0..rows).map(|i| i * 7919 % bank_rows).collect();
        let ids: Vec<u64> = samples.iter().map(|s| *s as u64).collect();
        let key = Key { purpose: Purpose::Dropout, seed: 0, round: 0, epoch: 0 };
        let sgd = kernels::Sgd { lr: 0.03, momentum: 0.9, decay: 5e-4, nesterov: false };
        let mut number = 0;
        let once = || {
            number += 1;
            let key_of_rows = Key { purpose: Purpose::BankRows, ..key };
            let sample = (drawn > 0).then_some(BankSample { rows: drawn, key: key_of_rows, batch: number });
            let work = BankWork { sample, ..precision.into() };
            let dropout = DropoutKey { key, ids: ids.clone() };
            let step = network.step(&weights, batch.clone(), 1, dropout, FeatureKind::Embedding, |v| {
                let loss = bank_loss(v, &samples, &bank, &positives, 0.1, LossForm::Logsum, work);
                (loss.each, loss.gradient)
            });
            weights.update_running_stats(&step.moments);
            optimizer.step(&mut weights, step.gradients, sgd);
        };
        timed(iters, once).0
    })?;
    show(
        n.common.json,
        "training",
        json!({
            "images_per_second": (rows * iters) as f64 / seconds, "seconds_per_step": seconds / iters as f64,
            "arch": n.arch, "width": n.width, "batch": rows, "bank": args.bank, "bank_rows": args.bank_rows, "level": level(),
            "precision": precision,
        }),
    )
}

pub(super) fn infer(args: &InferArgs, stop: &Cancel) -> Result<()> {
    let n = &args.network;
    let (network, batch) = build(n)?;
    let precision = network.precision;
    let (rows, iters) = (n.batch, n.iters);
    let seconds = stop.run(move || {
        let weights = network.init(0);
        timed(iters, || network.features(&weights, &batch, FeatureKind::Embedding)).0
    })?;
    show(
        n.common.json,
        "inference",
        json!({
            "images_per_second": (rows * iters) as f64 / seconds, "arch": n.arch, "width": n.width, "batch": rows,
            "level": level(), "precision": precision,
        }),
    )
}
