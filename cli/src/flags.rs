//! Names of settings in messages of the library, as flags of the program.

/// Settings whose flag is not `--` and the name with hyphens.
const OTHER: &[(&str, &str)] = &[("count", "-k"), ("resume", "pcp train --resume")];

/// `text` with every setting in backticks as the flag that sets it.
pub fn flags(text: &str) -> String {
    let mut parts = text.split('`');
    let mut out = parts.next().unwrap_or_default().to_string();
    while let Some(word) = parts.next() {
        let is_name =
            !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        match (is_name, parts.next()) {
            (true, Some(rest)) => {
                let other = OTHER.iter().find(|(name, _)| *name == word).map(|(_, flag)| flag.to_string());
                out += &other.unwrap_or_else(|| format!("--{}", word.replace('_', "-")));
                out += rest;
            }
            (false, Some(rest)) => out += &format!("`{word}`{rest}"),
            (_, None) => out += &format!("`{word}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_flags_and_all_else_stays() {
        assert_eq!(flags("`k` is 0"), "--k is 0");
        assert_eq!(flags("leave `images` or `no_sheet` out"), "leave --images or --no-sheet out");
        assert_eq!(flags("`count` is 0: `resume` runs/a"), "-k is 0: pcp train --resume runs/a");
        for same in ["", "nothing", "a ` b", "`A B` c", "``", "x`y"] {
            assert_eq!(flags(same), same);
        }
    }
}
