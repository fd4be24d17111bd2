//! Names of files as text, without loss: bytes that are not text and characters that would control a terminal are written as `\xNN`, and
//! read back as they were.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The name that these bytes are, as text. Two different names never give the same text.
pub fn text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        // A backslash that would be read back as the beginning of an escape is escaped itself.
        let valid = chunk.valid();
        for (at, c) in valid.char_indices() {
            if controls(c) || c == '\\' && escaped_byte(&valid.as_bytes()[at..]).is_some() {
                valid.as_bytes()[at..at + c.len_utf8()].iter().for_each(|byte| escape(*byte, &mut out));
            } else {
                out.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| escape(*byte, &mut out));
    }
    out
}

/// The name of a path, or of a part of one, as text.
pub fn of(name: impl AsRef<OsStr>) -> String {
    text(name.as_ref().as_encoded_bytes())
}

/// The bytes of a name that [`text`] gave.
pub fn bytes(text: &str) -> Cow<'_, [u8]> {
    let from = text.as_bytes();
    if !from.contains(&b'\\') {
        return Cow::Borrowed(from);
    }
    let (mut out, mut at) = (Vec::with_capacity(from.len()), 0);
    while at < from.len() {
        match escaped_byte(&from[at..]) {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(from[at]);
                at += 1;
            }
        }
    }
    Cow::Owned(out)
}

/// The path that has this name.
#[cfg(unix)]
pub fn path(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(OsStr::from_bytes(&bytes(text)))
}

/// The path that has this name. Where names are not bytes, those that are not text cannot be read back.
#[cfg(not(unix))]
pub fn path(text: &str) -> PathBuf {
    std::str::from_utf8(&bytes(text)).map_or_else(|_| PathBuf::from(text), PathBuf::from)
}

/// Whether a name stays below the folder that it is joined to: it is relative, and never leads upwards.
pub fn stays_below(path: &Path) -> bool {
    use std::path::Component;
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        && path.components().any(|part| matches!(part, Component::Normal(_)))
}

/// `text` for a terminal: characters that would control it, but for line ends and tabs, as `\xNN`.
pub fn visible(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| controls(c) && c != '\n' && c != '\t';
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match hidden(c) {
            true => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| escape(byte, &mut out)),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Whether a character controls how text is shown: control characters, and those that turn the direction of writing.
fn controls(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(byte: u8, out: &mut String) {
    out.push_str(&format!("\\x{byte:02X}"));
}

/// The byte that an escape at the beginning of `text` stands for.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = text else { return None };
    // Only as `escape` writes it: other spellings are names of their own.
    let digit = |d: u8| char::from(d).to_digit(16).filter(|_| !d.is_ascii_lowercase()).map(|d| d as u8);
    Some(digit(*high)? << 4 | digit(*low)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_come_back_and_are_told_apart(name in prop::collection::vec(
            prop::sample::select(vec![b'a', b'\\', b'x', b'5', b'C', b'1', 0x1b, b'\n', 0xff, 0xc3, 0xa4, b'/', 0xe2, 0x80, 0xae]), 0..12,
        )) {
            let shown = text(&name);
            prop_assert_eq!(bytes(&shown).into_owned(), name);
            prop_assert!(!shown.chars().any(controls));
            prop_assert_eq!(visible(&shown).into_owned(), shown);
        }
    }

    #[test]
    fn usual_names_stay_as_they_are() {
        for name in ["a b.png", "Ж/ä.jpg", "C:\\x\\y.png", "=1", "\\xzz", "\\x5", "\\x5c"] {
            assert_eq!(text(name.as_bytes()), name);
            assert_eq!(bytes(name), name.as_bytes());
            assert_eq!(path(name), PathBuf::from(name));
        }
        assert_eq!(text(b"a\xff\x1b[2J\xfe"), "a\\xFF\\x1B[2J\\xFE");
        assert_ne!(text(b"\xff.png"), text(b"\xfe.png"));
        assert_eq!(text(b"\\x41"), "\\x5Cx41");
        assert_eq!(of("\u{202e}gnp"), "\\xE2\\x80\\xAEgnp");
    }

    #[test]
    fn terminals_get_no_control_characters() {
        assert_eq!(visible("a\tb\nc"), "a\tb\nc");
        assert_eq!(visible("\u{1b}[31mred\r\u{7}"), "\\x1B[31mred\\x0D\\x07");
    }

    #[test]
    fn names_that_lead_elsewhere_are_recognised() {
        for (name, stays) in [
            ("a/b.png", true),
            ("./a", true),
            ("/etc/passwd", false),
            ("../x", false),
            ("a/../../x", false),
            ("", false),
            (".", false),
        ] {
            assert_eq!(stays_below(Path::new(name)), stays, "{name}");
        }
    }
}
