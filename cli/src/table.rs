//! A forecast as a table that people read.

pub use pcp_core::text::{bytes, columns, duration};

use pcp::train::Forecast;

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
    if let Some(spread) = &found.processes {
        let [images, vectors, step] = spread.memory;
        let [views, embeddings, norm, weights] = spread.step_bytes.map(bytes);
        let [computing, told] = spread.step_seconds.map(|s| format!("{:.1} ms", s * 1000.0));
        let told_of = |what: &str, text: String| (format!("{} processes: {what}", spread.processes), text);
        rows.push(told_of("memory of each", bytes(images + vectors + step)));
        let messages = format!("{views} views, {embeddings} embeddings, {norm} batch norm, {weights} gradients");
        rows.push(told_of("received in a step", format!("{messages}, in {} messages", spread.step_messages)));
        rows.push(told_of("a step", format!("{computing} of computing, {told} of messages at 10 gigabits a second")));
        let clustering = (bytes(spread.feature_bytes), bytes(spread.assignment_bytes));
        rows.push(told_of(
            "received to cluster",
            format!("{} of features, {} an assignment", clustering.0, clustering.1),
        ));
        rows.push(told_of("time in all", format!("about {}", duration(spread.seconds))));
    }
    format!("\n{}  nothing was written\n", columns(&rows))
}
