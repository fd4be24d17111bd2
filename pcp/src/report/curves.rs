//! Curves over the epochs, thinned so that the pages of long runs stay small.

use crate::evaluate::clusters::EpochFilter;
use crate::run::EpochRecord;
use pcp_core::scores::FilterScore;
use serde_json::{Value, json};

/// The most points of a curve.
pub const POINTS: usize = 400;

/// At most [`POINTS`] records, evenly spaced, with the first and the last. Of adjacent records, the last with a probe is
/// chosen, so that the few kNN values are shown.
pub fn thin(records: &[EpochRecord]) -> Vec<&EpochRecord> {
    let n = records.len();
    if n <= POINTS {
        return records.iter().collect();
    }
    let stands = |bin: &'_ [EpochRecord]| bin.iter().rposition(|r| r.knn.is_some()).unwrap_or(bin.len() - 1);
    (0..POINTS)
        .map(|i| {
            let (from, to) = (i * n / POINTS, (i + 1) * n / POINTS);
            match i {
                0 => &records[0],
                i if i + 1 == POINTS => &records[n - 1],
                _ => &records[from + stands(&records[from..to])],
            }
        })
        .collect()
}

/// The columns that are drawn, of a run on `images` training images (0 where their number is not known); `epochs` are those of a round.
pub fn curves(records: &[EpochRecord], epochs: u32, images: usize) -> Value {
    let shown = thin(records);
    // Six digits are enough for a screen.
    let short = |x: f64| if x.is_finite() { format!("{x:.5e}").parse().unwrap_or(x).into() } else { Value::Null };
    let column = |f: &dyn Fn(&EpochRecord) -> Option<f64>| -> Vec<Value> {
        shown.iter().map(|r| f(r).map_or(Value::Null, short)).collect()
    };
    // Systems that learn from every image alone have no clusters to draw.
    let clustered = records.iter().any(|r| r.kept > 0.0);
    let percent = |count: usize| (clustered && images > 0).then(|| 100.0 * count as f64 / images as f64);
    json!({
        "epoch": shown.iter().map(|r| r.round * epochs + r.epoch + 1).collect::<Vec<_>>(),
        "loss": column(&|r| Some(r.loss)),
        "loss_instance": column(&|r| r.loss_instance),
        "loss_cluster": column(&|r| r.loss_cluster),
        "loss_is": column(&|r| r.loss_is),
        "clusters": column(&|r| clustered.then_some(r.clusters as f64)),
        "kept": column(&|r| clustered.then_some(r.kept * 100.0)),
        "dropped": column(&|r| percent(r.dropped)),
        "pulled_back": column(&|r| percent(r.pulled_back)),
        "churn": column(&|r| r.churn.map(|c| c * 100.0)),
        "effective_rank": column(&|r| r.effective_rank),
        "knn": column(&|r| r.knn),
        "classifier": column(&|r| r.classifier),
        "lr": column(&|r| Some(f64::from(r.lr))),
    })
}

/// Purification judged by labels, epoch by epoch, in percent: of what it removed, the share that did not belong (precision); of what did not belong, the
/// share that it removed (recall); the share of members that are of their cluster's majority, before and after. `None` where nothing was removed in any epoch.
pub fn judged(filters: &[EpochFilter], epochs: u32) -> Option<Value> {
    filters.iter().any(|filter| filter.score.removed > 0).then(|| {
        let column = |of: &dyn Fn(&FilterScore) -> Option<f64>| -> Vec<Option<f64>> {
            filters.iter().map(|filter| of(&filter.score).map(|share| (share * 1e4).round() / 100.0)).collect()
        };
        json!({
            "epoch": filters.iter().map(|filter| filter.round * epochs + filter.epoch + 1).collect::<Vec<_>>(),
            "precision": column(&|score| score.precision),
            "recall": column(&|score| score.recall),
            "before": column(&|score| score.purity_before),
            "after": column(&|score| score.purity_after),
        })
    })
}
