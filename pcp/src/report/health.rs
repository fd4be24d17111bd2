//! Health lights: whether the embeddings collapsed, how many directions they use, whether clusters are balanced and stable, and how much purification keeps.

use super::gather::Contents;
use super::sheets::Clustering;
use crate::config::System;
use crate::run::Warning;
use pcp_core::eigen::effective_rank;
use serde::Serialize;

/// A spread of the embeddings below these shares of a uniform one is a collapse, or nearly.
const SPREAD: [f64; 2] = [0.05, 0.25];
/// Embeddings that use fewer than these shares of their directions probably tell little apart, or not much.
const USED: [f64; 2] = [0.05, 0.2];
/// A largest cluster with more than these shares of the images holds most of them, or many.
const LARGEST: [f64; 2] = [0.5, 0.25];
/// Share of cluster partners that stay from one epoch to the next: below these, clusters are unstable. (Of 20 clusters, chance alone keeps 0.03.)
const SAME: [f64; 2] = [0.08, 0.2];
/// Shares of images that have a positive set.
const KEPT: [f64; 2] = [f64::MIN_POSITIVE, 0.1];

/// The level of a light.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Good,
    Fair,
    Bad,
    Unknown,
}

/// A light and its text.
#[derive(Debug, Serialize)]
pub struct Light {
    pub name: &'static str,
    pub level: Level,
    pub text: String,
    /// What to do about it, unless all is well.
    pub advice: Option<&'static str>,
}

/// What to do about a light that is not good.
fn advice(name: &str, level: Level, system: System) -> Option<&'static str> {
    if !matches!(level, Level::Bad | Level::Fair) {
        return None;
    }
    match name {
        "Collapse" => Some("Train again with a lower learning rate (--set train.lr=0.01) or longer (--minutes)."),
        "Directions" if system == System::Plus => Some("Train longer (pcp train --extend RUN), or on more images."),
        "Directions" => Some("Train longer (pcp train --extend RUN), or with patches (--preset pcp-plus)."),
        "Balance" => Some("Try more clusters (--clusters), or look whether the large cluster is one kind of image."),
        "Stability" => Some("Train longer (pcp train --extend RUN), or try fewer clusters (--clusters)."),
        _ => Some("Train longer (pcp train --extend RUN), or filter less (--gamma 0.3)."),
    }
}

/// The level of a value that should be large.
fn level(value: f64, [bad, fair]: [f64; 2]) -> Level {
    match value {
        v if v < bad => Level::Bad,
        v if v < fair => Level::Fair,
        _ => Level::Good,
    }
}

pub fn lights(contents: &Contents, clustering: Option<&Clustering>) -> Vec<Light> {
    let no_clusters = || (Level::Unknown, "There are no clusters yet.".to_string());
    let percent = |share: f64| format!("{:.0}\u{a0}%", 100.0 * share);

    let collapse = match &contents.embeddings {
        Some(features) => {
            let spread = features.unit_spread() * (features.dim as f64).sqrt();
            let text = format!("The spread of the embeddings is {} of a uniform spread.", percent(spread));
            (level(spread, SPREAD), text)
        }
        None => (Level::Unknown, "There are no embeddings yet.".into()),
    };
    let directions = match contents.embeddings.as_ref().map(|features| (effective_rank(features), features.dim)) {
        Some((Ok(used), dim)) => {
            let text = format!(
                "The embeddings use {used:.0} of {dim} directions (effective rank). More is mostly better: a guess, not a measurement."
            );
            (level(used / dim as f64, USED), text)
        }
        _ => (Level::Unknown, "There are no embeddings yet.".into()),
    };
    let balance = clustering.map_or_else(no_clusters, |c| {
        let (largest, clusters) = (c.largest(), c.len());
        // With few clusters, one is always large.
        let many = LARGEST[1].max(2.0 / clusters as f64).min(LARGEST[0]);
        let at = if clusters > 2 { [LARGEST[0], many] } else { [0.9, 0.9] };
        let text = match clusters {
            1 => "All images are in one cluster.".to_string(),
            n => format!("The largest of {n} clusters holds {} of the images.", percent(largest)),
        };
        (level(1.0 - largest, at.map(|share| 1.0 - share)), text)
    });
    let churn = match (clustering, contents.records.iter().rev().find_map(|r| r.churn)) {
        (Some(_), Some(churn)) => {
            let text = format!(
                "In the last epoch, {} of an image's cluster partners of the one before were with it again.",
                percent(1.0 - churn)
            );
            (level(1.0 - churn, SAME), text)
        }
        (Some(_), None) => (Level::Unknown, "There is no earlier clustering to compare with.".into()),
        _ => no_clusters(),
    };
    let kept = clustering.map_or_else(no_clusters, |c| {
        let text = match c.kept() {
            0.0 => "Purification kept nothing: every image learns alone.".to_string(),
            kept => format!("{} of the images are kept in their clusters, {}.", percent(kept), contents.grouped),
        };
        (level(c.kept(), KEPT), text)
    });

    let lights = [
        ("Collapse", collapse),
        ("Directions", directions),
        ("Balance", balance),
        ("Stability", churn),
        ("Purification", kept),
    ];
    let system = contents.config.method.system;
    let light = |(name, (level, text)): (&'static str, (Level, String))| match warned(contents, name) {
        // After an earlier warning, the light is at most fair.
        Some(times) if matches!(level, Level::Good | Level::Unknown) => {
            let (level, text) = (Level::Fair, format!("{text} The run warned of it {times}."));
            Light { name, level, text, advice: advice(name, level, system) }
        }
        _ => Light { name, level, text, advice: advice(name, level, system) },
    };
    lights.into_iter().map(light).collect()
}

/// How often the run gave the warning of a light.
fn warned(contents: &Contents, light: &str) -> Option<String> {
    let (_, count) = contents.warnings.iter().find(|(warning, _)| watched(warning) == Some(light))?;
    Some(if *count == 1 { "once".into() } else { format!("{count} times") })
}

/// The light that a warning belongs to.
pub fn watched(warning: &Warning) -> Option<&'static str> {
    match warning {
        Warning::Collapse { .. } => Some("Collapse"),
        Warning::Imbalance { .. } => Some("Balance"),
        Warning::NothingKept => Some("Purification"),
        _ => None,
    }
}
