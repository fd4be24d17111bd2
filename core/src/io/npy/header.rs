//! The header of a `.npy` file (NumPy's format versions 1.0 to 3.0): magic bytes, a length, and a Python dictionary with the
//! number type, the order and the shape.

use std::io::{self, Read};

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself reads headers of 10,000 characters at the most.
const LONGEST: u64 = 1 << 20;

/// The contents of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number type as written in the file: `'<f4'` with its quotes, or a list of fields.
    pub descr: String,
    /// Whether the array is stored column by column.
    pub fortran: bool,
    /// The length of every dimension.
    pub shape: Vec<u64>,
    /// Bytes before the data.
    pub length: u64,
}

impl Header {
    /// Reads a header; `input` is then at the first byte of the data.
    pub fn read(input: &mut impl Read) -> io::Result<Header> {
        let cut = |e: io::Error| match e.kind() {
            io::ErrorKind::UnexpectedEof => wrong("the file ends within its header"),
            _ => e,
        };
        let mut begin = [0; 8];
        input.read_exact(&mut begin).map_err(cut)?;
        if &begin[..6] != MAGIC {
            return Err(wrong("its first bytes are not those of a .npy file"));
        }
        let mut length = [0; 4];
        let wide = match begin[6] {
            1 => 2,
            2 | 3 => 4,
            version => return Err(wrong(&format!("version {version} is not supported"))),
        };
        input.read_exact(&mut length[..wide]).map_err(cut)?;
        let length = u64::from(u32::from_le_bytes(length));
        if length > LONGEST {
            return Err(wrong(&format!("its header claims {length} bytes")));
        }
        let mut text = Vec::new();
        if (input.take(length).read_to_end(&mut text)? as u64) < length {
            return Err(wrong("the file ends within its header"));
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let found = parse(&text).ok_or_else(|| wrong(&format!("its header cannot be parsed: {}", text.trim())))?;
        Ok(Header { length: 8 + wide as u64 + length, ..found })
    }

    /// The number of values; `None` on overflow.
    pub fn count(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |all, n| all.checked_mul(*n))
    }

    /// Whether numbers of the type `wanted`, as in `<f4`, are stored big-endian; `None` if they have another type.
    pub fn is_big(&self, wanted: &str) -> Option<bool> {
        let own = self.descr.trim_matches(['\'', '"']);
        let kind = own.strip_prefix(['<', '>', '|']).filter(|kind| *kind == &wanted[1..])?;
        // Single bytes have no byte order.
        (kind.ends_with('1') || !own.starts_with('|')).then_some(own.starts_with('>'))
    }
}

/// The header of an array stored row by row; `descr` is the number type, as in `<f4`.
pub fn written(descr: &str, shape: &[usize]) -> Vec<u8> {
    let shape: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The header ends at a multiple of 64 bytes.
    text.extend(std::iter::repeat_n(' ', 63 - (text.len() + 10) % 64));
    text.push('\n');
    [MAGIC, &[1, 0], &(text.len() as u16).to_le_bytes(), text.as_bytes()].concat()
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The dictionary: `{'descr': ..., 'fortran_order': ..., 'shape': ...}` in any order.
fn parse(text: &str) -> Option<Header> {
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    while !rest.is_empty() {
        let (entry, after) = split(rest);
        rest = after.trim_start();
        let (key, value) = entry.split_once(':')?;
        let value = value.trim();
        match key.trim().trim_matches(['\'', '"']) {
            "descr" => descr = Some(value.to_string()),
            "fortran_order" => {
                fortran = Some(match value {
                    "True" => true,
                    "False" => false,
                    _ => return None,
                })
            }
            "shape" => {
                let numbers = value.strip_prefix('(')?.strip_suffix(')')?.split(',').map(str::trim);
                // Python 2 wrote 3L.
                let number = |n: &str| n.trim_end_matches('L').parse().ok();
                shape = Some(numbers.filter(|n| !n.is_empty()).map(number).collect::<Option<Vec<u64>>>()?);
            }
            _ => return None,
        }
    }
    Some(Header { descr: descr?, fortran: fortran?, shape: shape?, length: 0 })
}

/// The text up to the first comma outside quotes and brackets, and what follows it.
fn split(text: &str) -> (&str, &str) {
    let (mut depth, mut quote) = (0usize, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Header> {
        Header::read(&mut &*bytes)
    }

    /// Bytes that NumPy 2.4.6 wrote: `numpy.save(f, numpy.zeros(SHAPE, DTYPE))`, with `order="F"` for the second;
    /// the last by `numpy.lib.format.write_array(f, a, version=(2, 0))`.
    #[test]
    fn headers_by_numpy() {
        let header = |version: u8, text: &str| {
            let pad = 128 - text.len() - if version == 1 { 11 } else { 13 };
            let text = format!("{text}{}\n", " ".repeat(pad));
            let length = (text.len() as u32).to_le_bytes();
            let length = &length[..if version == 1 { 2 } else { 4 }];
            [MAGIC, &[version, 0], length, text.as_bytes()].concat()
        };
        let check = |bytes: &[u8], descr: &str, fortran, shape: &[u64]| {
            let found = read(bytes).unwrap();
            assert_eq!(found, Header { descr: descr.into(), fortran, shape: shape.to_vec(), length: 128 });
        };
        check(&header(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"), "'<f4'", false, &[2, 3]);
        check(&header(1, "{'descr': '>f2', 'fortran_order': True, 'shape': (2, 3), }"), "'>f2'", true, &[2, 3]);
        check(&header(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }"), "'|u1'", false, &[5]);
        check(&header(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }"), "'<f8'", false, &[]);
        let fields = "[('a, b', '<f4'), ('c', '|O', (2, 2))]";
        check(
            &header(1, &format!("{{'descr': {fields}, 'fortran_order': False, 'shape': (1,), }}")),
            fields,
            false,
            &[1],
        );
        check(&header(2, "{'descr': '<i8', 'fortran_order': False, 'shape': (7,), }"), "'<i8'", false, &[7]);
    }

    #[test]
    fn what_is_written_is_read() {
        for shape in [&[][..], &[3], &[2, 3], &[1000, 3, 32, 32]] {
            let bytes = written("<f4", shape);
            assert_eq!(bytes.len() % 64, 0);
            let found = read(&bytes).unwrap();
            assert_eq!(found.shape, shape.iter().map(|n| *n as u64).collect::<Vec<_>>());
            assert_eq!((found.fortran, found.length), (false, bytes.len() as u64));
            assert_eq!((found.is_big("<f4"), found.is_big("<u4")), (Some(false), None));
        }
        // Byte for byte: earlier versions of this program wrote the same.
        let text = "{'descr': '<u4', 'fortran_order': False, 'shape': (2, 3, ), }";
        let whole =
            [b"\x93NUMPY\x01\0\x76\0", text.as_bytes(), " ".repeat(117 - text.len()).as_bytes(), b"\n"].concat();
        assert_eq!(written("<u4", &[2, 3]), whole);
    }

    #[test]
    fn broken_headers_are_refused() {
        let good = written("<f4", &[2, 3]);
        (0..good.len()).for_each(|keep| assert!(read(&good[..keep]).is_err(), "{keep} bytes"));
        let text = |text: &str| read(&[MAGIC, &[1, 0, text.len() as u8, 0], text.as_bytes()].concat());
        for bad in [
            "",
            "{}",
            "{'descr': '<f4'}",
            "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (99999999999999999999,)}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': 3}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (3,), 'more': 1}",
            "{'descr': '<f4' 'fortran_order': True, 'shape': (3,)}",
        ] {
            assert!(text(bad).is_err(), "{bad}");
        }
        assert_eq!(
            text("{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 2L)}").unwrap().shape,
            [3, 2],
            "Python 2"
        );
        assert!(text("{'shape': (3,), 'fortran_order': True, 'descr': '<f4'}").is_ok());
        assert!(read(b"\x93NUMPY\x03\0\xff\xff\xff\xff").unwrap_err().to_string().contains("claims"));
        assert!(read(b"\x93NUMPY\x09\0\x01\0{").unwrap_err().to_string().contains("version 9"));
        let huge = Header { descr: String::new(), fortran: false, shape: vec![1 << 40, 1 << 40], length: 0 };
        assert_eq!(huge.count(), None);
    }
}
