//! Results as a table that people read.

use pcp::run::RunResult;
use pcp::train::Forecast;

/// Two columns, aligned.
pub fn columns(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("  {name:width$}   {value}\n")).collect()
}

/// The result of a run.
pub fn result(result: &RunResult) -> String {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut percent = |name: &str, value: Option<f64>, note: String| {
        if let Some(value) = value {
            rows.push((name.to_string(), format!("{value:5.1} %{note}")));
        }
    };
    percent("kNN of raw pixels", result.knn_raw, String::new());
    percent("kNN of the untrained network", result.knn_untrained, String::new());
    let (best, last) = if result.epochs > 0 { (result.knn_best, result.knn_last) } else { (None, None) };
    let best_at = result.best_epoch.map(|e| format!("  (epoch {e})")).unwrap_or_default();
    percent("kNN of the trained network, best", best, best_at);
    percent("kNN of the trained network, last", last, String::new());
    percent("the same on pooled features", result.knn_pooled, String::new());
    percent("classifier on the test images", result.classifier, String::new());
    rows.push(("clusters".into(), result.clusters.to_string()));
    rows.push(("share of images kept in them".into(), format!("{:.0} %", result.kept * 100.0)));
    rows.push(("images, epochs".into(), format!("{}, {}", result.images, result.epochs)));
    rows.push(("time".into(), duration(result.seconds)));
    let protocol = result.protocol.as_ref().map(|p| format!("  ({p})\n")).unwrap_or_default();
    format!("{}{protocol}", columns(&rows))
}

/// What a run will take.
pub fn forecast(found: &Forecast) -> String {
    let [images, vectors, step] = found.memory;
    let mut rows = vec![
        ("memory".to_string(), bytes(images + vectors + step)),
        ("disk at the end".into(), format!("at most {}", bytes(found.disk))),
    ];
    if let (Some(first), Some(last)) = (found.epochs.first(), found.epochs.last()) {
        let [begin, end] = found.step_seconds.map(|s| s * 1000.0);
        let steps = if begin == end { format!("{begin:.1} ms") } else { format!("{begin:.1} ms, later {end:.1} ms") };
        rows.push(("a step".into(), format!("{steps}; a look at an image {:.2} ms", found.look_seconds * 1000.0)));
        let longest = found.epochs.iter().map(|e| e.seconds).fold(0.0, f64::max);
        let epochs = [first.seconds, longest, last.seconds].map(|s| format!("{s:.1}"));
        rows.push((
            "an epoch".into(),
            format!("{} s at first, {} s at the most, {} s at last", epochs[0], epochs[1], epochs[2]),
        ));
        // A few epochs show how K_t falls; where it no longer does, the rest is the same.
        let mut shown: Vec<String> = Vec::new();
        let count = found.epochs.len();
        let mut before = None;
        for i in (0..8.min(count)).map(|i| i * count / 8.min(count)).chain([count - 1]) {
            let ahead = &found.epochs[i];
            if before != Some(ahead.clusters) {
                shown.push(format!("{} from epoch {}", ahead.clusters, ahead.epoch));
            }
            before = Some(ahead.clusters);
        }
        rows.push(("clusters".into(), shown.join(", ")));
    }
    rows.push(("time in all".into(), format!("about {}", duration(found.seconds))));
    format!("\n{}  nothing was written\n", columns(&rows))
}

/// Seconds for people.
pub fn duration(seconds: f64) -> String {
    let s = seconds.round() as u64;
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// Bytes for people.
pub fn bytes(bytes: f64) -> String {
    match bytes {
        b if b < 1e6 => format!("{:.0} kB", b / 1e3),
        b if b < 1e9 => format!("{:.0} MB", b / 1e6),
        b => format!("{:.1} GB", b / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(duration(59.6), "1 min 0 s");
        assert_eq!(duration(3.2), "3 s");
        assert_eq!(duration(7325.0), "2 h 2 min");
        assert_eq!(bytes(1.5e9), "1.5 GB");
        assert_eq!(bytes(5e3), "5 kB");
        assert_eq!(columns(&[("a".into(), "1".into()), ("bbb".into(), "2".into())]), "  a     1\n  bbb   2\n");
    }
}
