//! Results as a table that people read.

use crate::run::RunResult;

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
