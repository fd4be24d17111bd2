//! Numbers and tables as text for people.

/// Two columns, aligned.
pub fn columns(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("  {name:width$}   {value}\n")).collect()
}

/// A number of seconds.
pub fn duration(seconds: f64) -> String {
    let s = seconds.round() as u64;
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// A number of bytes.
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
