//! What a checkpoint belongs to: the settings and the images of its run. With others it would go on to another result, and nobody would know.

use pcp_core::error::{Error, Result, listed};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Settings that do not affect the result: how often it is saved, where images and decisions about them are held and where they are. That the
/// images and their labels are the same is known by their fingerprint.
const FREE: [&str; 8] = [
    "run.save_minutes",
    "data.cache",
    "data.strict",
    "data.source",
    "data.dir",
    "data.decisions",
    "detect.save_minutes",
    "detect.voc",
];

/// Settings and images of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Every setting that affects the result, as TOML.
    settings: BTreeMap<String, String>,
    /// The fingerprint of the images.
    data: String,
}

/// The description of a checkpoint file: how far the run is, what it belongs to, and the records of its epochs. Earlier versions wrote the
/// first alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointCard<P, R> {
    /// How far the run is.
    #[serde(flatten)]
    pub progress: P,
    /// What it belongs to.
    #[serde(default)]
    pub bound: Option<Bound>,
    /// The lines of `metrics.jsonl`.
    #[serde(default = "none")]
    pub records: Option<Vec<R>>,
}

fn none<R>() -> Option<Vec<R>> {
    None
}

impl Bound {
    /// A run with these settings, as `section.key` and value, on images with this fingerprint.
    pub fn new(settings: impl IntoIterator<Item = (String, toml::Value)>, fingerprint: &str) -> Bound {
        let settings = settings.into_iter().filter(|(key, _)| !FREE.contains(&key.as_str()));
        Bound { settings: settings.map(|(key, value)| (key, value.to_string())).collect(), data: fingerprint.into() }
    }

    /// An error where the checkpoint `path`, which was made with `self`, does not belong to a run with `now`. Settings that only one of the
    /// two versions of this program knows do not count.
    pub fn check(&self, now: &Bound, path: &Path) -> Result<()> {
        let both = self.settings.iter().filter_map(|(key, then)| Some((key, then, now.settings.get(key)?)));
        let differ: Vec<String> = both
            .filter(|(_, then, now)| then != now)
            .map(|(key, then, now)| format!("{key} was {then}, not {now}"))
            .collect();
        if !differ.is_empty() {
            return Err(Error::usage(
                format!(
                    "the settings of the run are not those that {} was made with: {}",
                    path.display(),
                    listed(differ)
                ),
                "restore the settings in the run folder, or start another run with other ones",
            ));
        }
        if self.data != now.data {
            return Err(Error::usage(
                format!("the images of the run are not those that {} was made with", path.display()),
                "bring the images and the settings in the run folder back as they were, or start another run",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(lr: f64) -> Vec<(String, toml::Value)> {
        vec![("train.lr".into(), lr.into()), ("data.source".into(), "a".into()), ("run.save_minutes".into(), lr.into())]
    }

    #[test]
    fn a_difference_is_named() {
        let then = Bound::new(settings(0.03), "abc");
        let check = |now: Bound| then.check(&now, Path::new("c.safetensors"));
        check(then.clone()).unwrap();
        let mut moved = settings(0.03);
        moved[1].1 = "elsewhere".into();
        moved.push(("train.new".into(), 1.into()));
        check(Bound::new(moved, "abc")).unwrap();
        let e = check(Bound::new(settings(0.05), "abc")).unwrap_err();
        assert!(e.message.contains("train.lr was 0.03, not 0.05") && !e.message.contains("save_minutes"), "{e:?}");
        assert!(check(Bound::new(settings(0.03), "abd")).unwrap_err().message.contains("the images"));
    }

    #[test]
    fn descriptions_of_earlier_versions_are_read() {
        let old: CheckpointCard<BTreeMap<String, f64>, u32> = serde_json::from_str("{\"a\": 0.1}").unwrap();
        assert_eq!((old.progress["a"], &old.bound, &old.records), (0.1, &None, &None));
        let new = CheckpointCard { bound: Some(Bound::new(settings(1.0), "x")), records: Some(vec![3]), ..old };
        let text = serde_json::to_string(&new).unwrap();
        // As a map takes everything that is flattened, the progress is a type of its own here.
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Progress {
            a: f64,
        }
        let back: CheckpointCard<Progress, u32> = serde_json::from_str(&text).unwrap();
        assert_eq!((back.progress, back.bound, back.records), (Progress { a: 0.1 }, new.bound, Some(vec![3])));
    }
}
