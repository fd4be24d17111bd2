//! `pcp bench boxes`: the parts of a detector that are no network.

use super::{BenchCommon, positive, random, show, timed};
use clap::{Args, ValueEnum};
use pcp::detect::boxes::{Bounds, iou_matrix};
use pcp::detect::nms::nms;
use pcp::detect::roi::{self, OUT, Roi};
use pcp::model::Maps;
use pcp_core::cancel::Cancel;
use pcp_core::error::Result;
use serde_json::json;

/// A map of the paper's detector: images of 600 x 800 px, width 64; and its batch.
const MAP: [usize; 3] = [38, 50, 256];
const IMAGES: usize = 4;
const THRESHOLD: f32 = 0.7;
/// Boxes on the other side of the overlaps.
const OTHERS: usize = 1000;

#[derive(Clone, Copy, ValueEnum)]
enum Work {
    /// RoIAlign, from maps to boxes
    Roi,
    /// Its gradient
    RoiBack,
    /// Non-maximum suppression at IoU 0.7
    Nms,
    /// Overlaps with 1000 other boxes
    Iou,
}

#[derive(Args)]
pub struct BoxesArgs {
    /// What is done
    #[arg(value_enum)]
    work: Work,
    /// Boxes
    #[arg(long, default_value_t = 512)]
    n: usize,
    /// Times that count, after two that do not
    #[arg(long, default_value_t = 10)]
    iters: usize,
    #[command(flatten)]
    pub(super) common: BenchCommon,
}

/// Box `i` of many, and its score: the same in any language.
fn bounds(i: usize) -> Bounds {
    let (left, top) = (i * 7919 % 700, i * 104_729 % 500);
    [left, top, left + 20 + i * 31 % 200, top + 20 + i * 17 % 180].map(|v| v as f32)
}

fn score(i: usize) -> f32 {
    (i * 48_271 % 65_537) as f32 / 65_537.0
}

pub fn run(args: &BoxesArgs, stop: &Cancel) -> Result<()> {
    let &BoxesArgs { work, n, iters, .. } = args;
    positive(&[("n", n), ("iters", iters)])?;
    let (seconds, total) = stop.run(move || {
        let boxes: Vec<Bounds> = (0..n).map(bounds).collect();
        match work {
            Work::Nms => {
                let scores: Vec<f32> = (0..n).map(score).collect();
                timed(iters, || nms(&boxes, &scores, THRESHOLD, usize::MAX).iter().sum::<usize>() as f64)
            }
            Work::Iou => {
                let others: Vec<Bounds> = (n..n + OTHERS).map(bounds).collect();
                // One of the overlaps that are not zero.
                let shown = 9 * OTHERS + OTHERS / 2;
                timed(iters, || iou_matrix(&boxes, &others).get(shown).copied().unwrap_or(0.0).into())
            }
            Work::Roi | Work::RoiBack => {
                let [height, width, channels] = MAP;
                let values = random(IMAGES * height * width, channels, 7).values;
                let maps = Maps { rows: IMAGES, height, width, channels, values };
                let rois: Vec<Roi> =
                    boxes.iter().enumerate().map(|(i, b)| Roi { image: i % IMAGES, bounds: *b }).collect();
                if matches!(work, Work::Roi) {
                    timed(iters, || roi::forward(&maps, &rois).len() as f64)
                } else {
                    let gradient = random(n * OUT * OUT, channels, 8).values;
                    timed(iters, || roi::backward(&maps, &rois, &gradient).len() as f64)
                }
            }
        }
    })?;
    let name = work.to_possible_value().map(|v| v.get_name().to_string()).unwrap_or_default();
    show(
        args.common.json,
        "boxes",
        json!({
            "seconds": seconds, "total": total, "work": name, "n": n, "iters": iters,
        }),
    )
}
