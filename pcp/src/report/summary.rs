//! The summary of a run: a sentence, key figures, results and settings.

use super::gather::Contents;
use crate::config::{Arch, Config, Resolved, System};
use serde_json::{Value, json};

/// A whole number with thousands separators.
pub fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let first = digits.len() % 3;
    let mut out = digits[..first].to_string();
    for group in digits.as_bytes()[first..].chunks(3) {
        if !out.is_empty() {
            out.push(',');
        }
        out.extend(group.iter().map(|b| char::from(*b)));
    }
    out
}

/// A duration for a tile, and its unit.
pub fn clock(seconds: f64) -> (String, &'static str) {
    let s = seconds.round() as u64;
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, s) => (s.to_string(), "seconds"),
        (0, m, s) => (format!("{m}:{s:02}"), "minutes"),
        (h, m, _) => (format!("{h}:{m:02}"), "hours"),
    }
}

fn network(config: &Resolved) -> String {
    let name = match config.network.arch {
        Arch::Resnet18 => "ResNet18",
        Arch::Alexnet => "AlexNet",
        Arch::Alexnet224 => "AlexNet for 224 px",
    };
    format!("{name} (width {})", config.network.width)
}

fn epochs_asked(contents: &Contents) -> usize {
    contents.config.train.rounds as usize * contents.config.train.epochs as usize
}

fn kept(contents: &Contents) -> Option<(usize, f64)> {
    let g = contents.grouping.as_ref()?;
    let mut clusters = g.cluster.clone();
    clusters.sort_unstable();
    clusters.dedup();
    let kept = g.status.iter().filter(|s| s.belongs()).count();
    Some((clusters.len(), kept as f64 / g.status.len().max(1) as f64))
}

/// kNN before training (or of the first probe, if that was not measured) and at the end.
fn knn(contents: &Contents) -> (Option<f64>, Option<f64>) {
    let probes = || contents.records.iter().filter_map(|r| r.knn);
    match &contents.result {
        Some(result) => (result.knn_untrained, result.knn_last),
        None => (probes().next(), probes().next_back()),
    }
}

/// Whether a run has no network: clusters of patches, or PCP+ that had no time for one.
fn patches_alone(contents: &Contents) -> bool {
    match contents.config.method.system {
        System::Patches => true,
        System::Plus => epochs_asked(contents) == 0,
        _ => false,
    }
}

/// What kNN before training is of: a network that was trained further was not untrained.
fn before(contents: &Contents) -> &'static str {
    if contents.config.train.init_from.is_empty() { "kNN, untrained" } else { "kNN, as it began" }
}

pub fn sentence(contents: &Contents) -> String {
    let (done, asked) = (contents.records.len(), epochs_asked(contents));
    let taught = contents.config.method.system == System::Supervised;
    let images = match contents.files.len() {
        0 => "images".to_string(),
        1 => "one image".to_string(),
        n => format!("{} {}images", thousands(n), if taught { "labelled " } else { "unlabelled " }),
    };
    let network = network(&contents.config);
    let patches_alone = patches_alone(contents);
    let plural = |n: usize| if n == 1 { "one epoch".to_string() } else { format!("{} epochs", thousands(n)) };
    let mut text = match (&contents.result, done) {
        (Some(_), 0) if patches_alone => format!("Clusters of patches of {images}, without a network"),
        (Some(_), 0) => format!("{network} was not trained on {images}"),
        (Some(_), n) => format!("{network} learned from {images} for {}", plural(n)),
        (None, 0) => {
            return format!(
                "{network} has not finished its first of {asked} epochs on {images}: there is little to see yet."
            );
        }
        (None, n) => format!("{network} has learned from {images} for {n} of {}; it is not finished", plural(asked)),
    };
    if let (true, (_, Some(to))) = (patches_alone, knn(contents)) {
        text += &format!("; kNN {to:.1} %");
    } else if let (Some(from), Some(to)) = knn(contents) {
        let verb = match to - from {
            d if d > 0.05 => "rose",
            d if d < -0.05 => "fell",
            _ => "went",
        };
        text += &format!("; kNN {verb} from {from:.1} % to {to:.1} %");
    }
    if let Some((clusters, kept)) = kept(contents) {
        let verb =
            if clusters == 1 { "one cluster keeps".into() } else { format!("{} clusters keep", thousands(clusters)) };
        text += &format!("; {verb} {:.0} % of the images", 100.0 * kept);
    }
    text + "."
}

/// (name, value, note) of the key figures.
pub fn tiles(contents: &Contents) -> Vec<[String; 3]> {
    let mut tiles: Vec<[String; 3]> = Vec::new();
    let mut add = |name: &str, value: String, note: String| tiles.push([name.to_string(), value, note]);
    if let (_, Some(last)) = knn(contents) {
        let raw = contents.result.as_ref().and_then(|r| r.knn_raw);
        let note = raw.map_or_else(String::new, |raw| format!("raw pixels {raw:.1}\u{a0}%"));
        add("kNN", format!("{last:.1} %"), note);
    }
    if let Some(result) = &contents.result {
        if let (Some(best), Some(epoch)) = (result.knn_best, result.best_epoch) {
            add("Best kNN", format!("{best:.1} %"), format!("at epoch {epoch}"));
        }
        if let Some(classifier) = result.classifier {
            add("Classifier", format!("{classifier:.1} %"), "on the test images".into());
        }
    }
    if let Some((clusters, kept)) = kept(contents) {
        add("Clusters", thousands(clusters), contents.grouped.clone());
        add("Kept", format!("{:.0} %", 100.0 * kept), format!("of the images, {}", contents.grouped));
    }
    let classes = contents.labels.as_ref().map(|l| format!("{} classes", l.classes.len()));
    add("Images", thousands(contents.files.len()), classes.unwrap_or_else(|| "no labels".into()));
    let (done, asked) = (contents.records.len(), epochs_asked(contents));
    let note = if done < asked { format!("of {asked}") } else { String::new() };
    add("Epochs", thousands(done), note);
    let (time, unit) = clock(seconds(contents));
    add("Time", time, unit.into());
    tiles
}

fn seconds(contents: &Contents) -> f64 {
    let so_far = contents.records.iter().map(|r| r.seconds).sum();
    contents.result.as_ref().map_or(so_far, |r| r.seconds)
}

/// (name, value) of the figures that runs are compared by.
pub fn results(contents: &Contents) -> Vec<(&'static str, Option<String>)> {
    let percent = |x: Option<f64>| x.map(|x| format!("{x:.1} %"));
    let result = contents.result.as_ref();
    let (clusters, kept) = kept(contents).unzip();
    let (time, unit) = clock(seconds(contents));
    vec![
        ("kNN, raw pixels", percent(result.and_then(|r| r.knn_raw))),
        (before(contents), percent(result.and_then(|r| r.knn_untrained))),
        ("kNN, patches alone", percent(result.and_then(|r| r.knn_patches).filter(|_| !patches_alone(contents)))),
        ("Network's share", result.and_then(|r| r.network_share).map(|share| format!("{share:.2}"))),
        ("kNN, best", percent(result.and_then(|r| r.knn_best))),
        ("kNN, last", percent(knn(contents).1)),
        ("kNN, pooled", percent(result.and_then(|r| r.knn_pooled))),
        ("kNN, whitened", percent(result.and_then(|r| r.knn_whitened))),
        ("Classifier", percent(result.and_then(|r| r.classifier))),
        ("Clusters", clusters.map(thousands)),
        ("Kept", kept.map(|k| format!("{:.0} %", 100.0 * k))),
        ("Images", Some(thousands(contents.files.len()))),
        ("Epochs", Some(thousands(contents.records.len()))),
        ("Time", Some(format!("{time} {unit}"))),
    ]
}

/// (setting, value, default) of every setting; those that were `"auto"` have that for their default.
pub fn config(config: &Resolved) -> Vec<[String; 3]> {
    let shown = |value: &toml::Value| match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let defaults = Config::default().entries();
    config
        .entries()
        .iter()
        .zip(&defaults)
        .map(|((key, value), (_, default))| [key.clone(), shown(value), shown(default)])
        .collect()
}

/// (name, value) of the run's origin: command, data, version and CPU.
pub fn about(contents: &Contents) -> Value {
    let about = &contents.about;
    let mut rows = vec![
        ("Command", about.command.clone()),
        ("Data", about.data.clone()),
        ("Data fingerprint", about.fingerprint.clone()),
        ("Version", about.version.clone()),
        ("Revision", about.revision.clone()),
        ("CPU", about.cpu.clone()),
        ("Presets", about.presets.join(", ")),
        ("Seconds", format!("{:.0}", seconds(contents))),
    ];
    if let Some(result) = &contents.result {
        rows.extend(result.protocol.clone().map(|protocol| ("Measured by", protocol)));
        rows.push(("Threads", result.threads.to_string()));
    }
    json!(rows)
}
