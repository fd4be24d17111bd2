//! Names of settings in messages of the library, as flags of the program.

/// Settings whose flag is not `--` and the name with hyphens. Other settings of a run, as `section.key`, are set by --set.
const OTHER: &[(&str, &str)] = &[
    ("count", "-k"),
    ("detect_resume", "pcp detect train --resume"),
    ("extend", "pcp train --extend"),
    ("presets", "--preset"),
    ("resume", "pcp train --resume"),
    ("clusters.floor", "--clusters"),
    ("data.cache", "--cache"),
    ("data.limit", "--limit"),
    ("data.size", "--size"),
    ("evaluate.every", "--eval-every"),
    ("network.arch", "--arch"),
    ("network.width", "--width"),
    ("purify.gamma", "--gamma"),
    ("run.save_minutes", "--save-minutes"),
    ("train.batch", "--batch"),
    ("train.epochs", "--epochs"),
    ("train.init_from", "--init-from"),
    ("train.precision", "--precision"),
    ("train.rounds", "--rounds"),
    ("train.seed", "--seed"),
];

/// `text` with every setting in backticks as the flag that sets it.
pub fn flags(text: &str) -> String {
    let mut parts = text.split('`');
    let mut out = parts.next().unwrap_or_default().to_string();
    while let Some(word) = parts.next() {
        match (flag(word), parts.next()) {
            (Some(flag), Some(rest)) => out += &(flag + rest),
            (None, Some(rest)) => out += &format!("`{word}`{rest}"),
            (_, None) => out += &format!("`{word}"),
        }
    }
    out
}

/// The words of `pcp train` that make a setting, `section.key=value`.
pub fn assigned(setting: &str) -> [String; 2] {
    let (path, value) = setting.split_once('=').unwrap_or((setting, ""));
    match OTHER.iter().find(|(other, _)| *other == path) {
        Some((_, flag)) => [flag.to_string(), value.to_string()],
        None => ["--set".to_string(), setting.to_string()],
    }
}

/// The flag of the setting called `name`; `None` when it is no name of a setting.
fn flag(name: &str) -> Option<String> {
    if let Some((_, flag)) = OTHER.iter().find(|(other, _)| *other == name) {
        return Some(flag.to_string());
    }
    let plain =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    match name.split_once('.') {
        Some((section, key)) => (plain(section) && plain(key)).then(|| format!("--set {name}=...")),
        None => plain(name).then(|| format!("--{}", name.replace('_', "-"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn names_become_flags_and_all_else_stays() {
        for (text, shown) in [
            ("`k` is 0", "--k is 0"),
            ("leave `images` or `no_sheet` out", "leave --images or --no-sheet out"),
            ("`count` is 0: `resume` runs/a", "-k is 0: pcp train --resume runs/a"),
            ("give `clusters.floor` 3, or raise `train.lr`", "give --clusters 3, or raise --set train.lr=..."),
        ] {
            assert_eq!(flags(text), shown);
        }
        for same in ["", "nothing", "a ` b", "`A B` c", "``", "x`y", "run `pcp train` on `a.PNG`"] {
            assert_eq!(flags(same), same);
        }
    }

    #[test]
    fn the_flags_of_a_run_are_there() {
        let command = crate::Cli::command();
        let train = command.find_subcommand("train").unwrap();
        let known: Vec<&str> = train.get_arguments().filter_map(|a| a.get_long()).collect();
        for (_, flag) in OTHER.iter().filter(|(name, _)| name.contains('.')) {
            assert!(known.contains(&flag.trim_start_matches("--")), "pcp train has no {flag}");
        }
    }
}
