//! Presets and overrides: partial configs that override the defaults; every key and type is checked.

use super::Config;
use pcp_core::error::{Error, Result, listed, nearest};
use std::path::Path;
use toml::{Table, Value};

/// The built-in presets: systems first, then data sets.
pub const PRESETS: &[(&str, &str)] = &[
    ("pcp", include_str!("../../presets/pcp.toml")),
    ("pc", include_str!("../../presets/pc.toml")),
    ("pc-cpr", include_str!("../../presets/pc-cpr.toml")),
    ("pcp-nowarm", include_str!("../../presets/pcp-nowarm.toml")),
    ("pcp-paper", include_str!("../../presets/pcp-paper.toml")),
    ("pcp-release", include_str!("../../presets/pcp-release.toml")),
    ("dc", include_str!("../../presets/dc.toml")),
    ("ir", include_str!("../../presets/ir.toml")),
    ("is", include_str!("../../presets/is.toml")),
    ("and", include_str!("../../presets/and.toml")),
    ("and-oneoff", include_str!("../../presets/and-oneoff.toml")),
    ("la", include_str!("../../presets/la.toml")),
    ("deepcluster", include_str!("../../presets/deepcluster.toml")),
    ("moco", include_str!("../../presets/moco.toml")),
    ("moco2", include_str!("../../presets/moco2.toml")),
    ("simclr", include_str!("../../presets/simclr.toml")),
    ("byol", include_str!("../../presets/byol.toml")),
    ("emp", include_str!("../../presets/emp.toml")),
    ("pcp-plus", include_str!("../../presets/pcp-plus.toml")),
    ("supervised", include_str!("../../presets/supervised.toml")),
    ("random", include_str!("../../presets/random.toml")),
    ("patches", include_str!("../../presets/patches.toml")),
    ("bundled", include_str!("../../presets/bundled.toml")),
    ("folder", include_str!("../../presets/folder.toml")),
    ("idx", include_str!("../../presets/idx.toml")),
    ("cifar10", include_str!("../../presets/cifar10.toml")),
    ("cifar100", include_str!("../../presets/cifar100.toml")),
    ("in100", include_str!("../../presets/in100.toml")),
    ("cub200", include_str!("../../presets/cub200.toml")),
];

/// Presets of data sets: naming one replaces the preset that the data source implies.
pub const DATA_PRESETS: &[&str] = &["bundled", "folder", "idx", "cifar10", "cifar100", "in100", "cub200"];

/// Whether `name` is a built-in preset of a system.
pub fn is_system(name: &str) -> bool {
    PRESETS.iter().any(|(known, _)| *known == name) && !DATA_PRESETS.contains(&name)
}

/// A partial config, and its origin for error messages.
#[derive(Clone, Debug)]
pub struct SettingsLayer {
    origin: String,
    table: Table,
}

/// The preset of that name, or of that TOML file.
pub fn preset(name: &str) -> Result<SettingsLayer> {
    if let Some((_, text)) = PRESETS.iter().find(|(n, _)| *n == name) {
        return SettingsLayer::parse(format!("preset {name}"), text);
    }
    if !name.ends_with(".toml") {
        let names = PRESETS.iter().map(|(n, _)| *n);
        let guess = nearest(name, names.clone()).map(|n| format!("did you mean {n}? ")).unwrap_or_default();
        let hint = format!("{guess}presets are {}, or the path of a .toml file", listed(names));
        return Err(Error::usage(format!("there is no preset {name}"), hint));
    }
    let text = std::fs::read_to_string(name).map_err(|e| {
        let e = Error::io("read", Path::new(name), &e);
        Error::usage(e.message, e.hint)
    })?;
    SettingsLayer::parse(name.to_string(), &text)
}

impl SettingsLayer {
    /// A layer from a table.
    pub fn new(origin: String, table: Table) -> Self {
        SettingsLayer { origin, table }
    }

    /// A layer from TOML text.
    pub fn parse(origin: String, text: &str) -> Result<Self> {
        match text.parse() {
            Ok(table) => Ok(SettingsLayer { origin, table }),
            Err(e) => {
                let e: toml::de::Error = e;
                let line = e.span().map_or(0, |s| text[..s.start].matches('\n').count() + 1);
                let message = format!("{origin}, line {line}: {}", e.message());
                Err(Error::usage(message, "write it as TOML: [section], then key = value"))
            }
        }
    }

    /// A layer of one value, from a flag.
    pub fn flag(flag: &str, path: &str, value: impl Into<Value>) -> Self {
        let mut layer = SettingsLayer { origin: flag.to_string(), table: Table::new() };
        layer.insert(path, value.into());
        layer
    }

    /// A layer from `section.key=value`. The value is TOML; anything that is not valid TOML is a string.
    pub fn assignment(text: &str) -> Result<Self> {
        let Some((path, value)) = text.split_once('=') else {
            return Err(Error::usage(format!("--set {text} has no value"), "write --set section.key=value"));
        };
        let (path, value) = (path.trim(), value.trim());
        let parsed = format!("v = {value}").parse::<Table>().ok().and_then(|mut t| t.remove("v"));
        Ok(SettingsLayer::flag("--set", path, parsed.unwrap_or_else(|| Value::String(value.to_string()))))
    }

    /// The settings that it has, as `section.key=value`.
    pub(crate) fn assignments(&self) -> Vec<String> {
        let of = |(section, values): (&String, &Value)| match values.as_table() {
            Some(values) => values.iter().map(|(key, value)| format!("{section}.{key}={value}")).collect(),
            None => vec![format!("{section}={values}")],
        };
        self.table.iter().flat_map(of).collect()
    }

    fn insert(&mut self, path: &str, value: Value) {
        let mut keys: Vec<&str> = path.split('.').collect();
        let last = keys.pop().unwrap_or_default();
        let mut table = &mut self.table;
        for key in keys {
            let entry = table.entry(key).or_insert_with(|| Value::Table(Table::new()));
            match entry {
                Value::Table(t) => table = t,
                _ => return,
            }
        }
        table.insert(last.to_string(), value);
    }

    /// Overrides `config` with this layer; an error for unknown keys and wrong types.
    pub(super) fn apply(&self, config: &mut Table) -> Result<()> {
        for (section, values) in &self.table {
            let known = match config.get(section) {
                Some(Value::Table(known)) => known.clone(),
                _ => {
                    let key = values.as_table().and_then(|t| t.keys().next());
                    let path = key.map_or(section.clone(), |key| format!("{section}.{key}"));
                    return Err(self.unknown(&path, config));
                }
            };
            let Value::Table(values) = values else {
                let message = format!("{}: {section} is a section, not a value", self.origin);
                return Err(Error::usage(message, format!("its keys are {}", listed(known.keys()))));
            };
            for (key, value) in values {
                if !known.contains_key(key) {
                    return Err(self.unknown(&format!("{section}.{key}"), config));
                }
                self.replace(config, section, key, value)?;
            }
        }
        Ok(())
    }

    fn replace(&self, config: &mut Table, section: &str, key: &str, value: &Value) -> Result<()> {
        let mut changed = config.clone();
        let Some(Value::Table(table)) = changed.get_mut(section) else { return Ok(()) };
        let before = table.insert(key.to_string(), value.clone());
        match Value::Table(changed.clone()).try_into::<Config>() {
            Ok(_) => {
                *config = changed;
                Ok(())
            }
            Err(e) => {
                // Backticks are for names of settings.
                let what = e.message().lines().next().unwrap_or_default().replace('`', "\"");
                let what =
                    what.replace("data did not match any variant of untagged enum Auto", "not of the right type");
                let before = match before {
                    // For settings with a fixed list of words, the error lists them.
                    Some(Value::String(word)) if word == "auto" && !what.contains("expected one of") => {
                        "\"auto\" or a number".to_string()
                    }
                    other => other.map(|v| v.to_string()).unwrap_or_default(),
                };
                Err(Error::usage(
                    format!("{}: {section}.{key} = {value}: {what}", self.origin),
                    format!("give {section}.{key} a value like {before}"),
                ))
            }
        }
    }

    fn unknown(&self, path: &str, config: &Table) -> Error {
        let mut known: Vec<String> = Vec::new();
        for (section, values) in config {
            known.push(section.clone());
            if let Value::Table(values) = values {
                known.extend(values.keys().map(|key| format!("{section}.{key}")));
            }
        }
        // The key may be right and the section wrong or missing.
        let tail = path.rsplit('.').next().unwrap_or(path);
        let by_tail = |k: &&String| k.rsplit('.').next() == Some(tail);
        let guess =
            known.iter().find(by_tail).map(String::as_str).or_else(|| nearest(path, known.iter().map(String::as_str)));
        let hint = match guess {
            Some(guess) => format!("did you mean {guess}?"),
            None => format!("the sections are {}", listed(config.keys())),
        };
        Error::usage(format!("{}: there is no setting {path}", self.origin), hint)
    }
}
