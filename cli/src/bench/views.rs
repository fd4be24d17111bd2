//! `pcp bench augment`.

use super::{positive, random, show};
use clap::Args;
use pcp::config::AugmentSettings;
use pcp::data::Image;
use pcp::data::augment::Augmenter;
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use pcp_core::rng::{Key, Purpose};
use serde_json::json;
use std::time::Instant;

#[derive(Args)]
pub struct AugmentArgs {
    /// Side of image and view
    #[arg(long, default_value_t = 32)]
    size: usize,
    /// Views per image
    #[arg(long, default_value_t = 2)]
    views: u32,
    /// Images that count
    #[arg(long, default_value_t = 5000)]
    iters: usize,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn augment(args: &AugmentArgs, stop: &Cancel) -> Result<()> {
    let &AugmentArgs { size, views, iters, .. } = args;
    positive(&[("size", size), ("views", views as usize), ("iters", iters)])?;
    let seconds = stop.run(move || {
        let pixels = random(size * size, 3, 5).values.into_iter().map(|x| (x * 60.0 + 128.0).clamp(0.0, 255.0) as u8);
        let image = Image { width: size, height: size, pixels: pixels.collect() };
        let augmenter =
            Augmenter { size, margin: 1.0, mean: [0.5; 3], std: [0.25; 3], recipe: AugmentSettings::default() };
        let key = Key { purpose: Purpose::View, seed: 0, round: 0, epoch: 0 };
        let mut out = vec![0.0f32; size * size * 3];
        let started = Instant::now();
        for i in 0..iters {
            for view in 0..views {
                augmenter.train_view(&image, &mut key.stream(i as u64, view), &mut out);
            }
        }
        started.elapsed().as_secs_f64()
    })?;
    show(
        args.json,
        "augmentation",
        json!({
            "images_per_second": iters as f64 / seconds, "microseconds_per_view": seconds * 1e6 / (iters as f64 * f64::from(views)),
            "size": size, "views": views,
        }),
    )
}
