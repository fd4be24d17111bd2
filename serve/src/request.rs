//! Requests: the head of an HTTP/1.1 request, parsed by `httparse` and narrowed to what the page sends. Bodies have an announced length, or
//! are refused: there is one way to tell where a request ends.

/// Bytes of a head at the most.
pub const HEAD_BYTES: usize = 16 << 10;
/// Headers at the most.
const HEADERS: usize = 64;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Look.
    Get,
    /// Look at the head of the answer.
    Head,
    /// Change.
    Post,
    /// Anything else, which is refused.
    Other,
}

/// A request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What is to be done.
    pub method: Method,
    /// The path; it begins with `/`.
    pub path: String,
    query: String,
    /// Names in small letters.
    headers: Vec<(String, String)>,
    /// Bytes of the body.
    pub length: u64,
    /// Whether the connection ends with it.
    pub last: bool,
}

/// What a few bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// The beginning of a head.
    Partial,
    /// A head, and how many bytes it takes.
    Whole(Asked, usize),
    /// No head that is taken: the status of the refusal.
    Bad(u16),
}

impl Head {
    /// Reads the head at the beginning of `bytes`.
    pub fn parse(bytes: &[u8]) -> Head {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let used = match request.parse(bytes) {
            Ok(httparse::Status::Complete(used)) if used <= HEAD_BYTES => used,
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES => return Head::Partial,
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Head::Bad(431),
            Err(_) => return Head::Bad(400),
        };
        let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
            return Head::Bad(400);
        };
        // A whole address in the request line is for proxies.
        if !target.starts_with('/') {
            return Head::Bad(400);
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut own = Vec::new();
        for header in request.headers.iter() {
            let Ok(value) = std::str::from_utf8(header.value) else { return Head::Bad(400) };
            own.push((header.name.to_ascii_lowercase(), value.trim().to_string()));
        }
        let mut asked = Asked {
            method: match method {
                "GET" => Method::Get,
                "HEAD" => Method::Head,
                "POST" => Method::Post,
                _ => Method::Other,
            },
            path: path.to_string(),
            query: query.to_string(),
            headers: own,
            length: 0,
            last: version == 0,
        };
        if asked.all("transfer-encoding").next().is_some() {
            return Head::Bad(501);
        }
        let lengths = asked.all("content-length").count();
        let length = match (lengths, asked.only("content-length")) {
            (0, _) => 0,
            (_, Some(n)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => match n.parse() {
                Ok(length) => length,
                Err(_) => return Head::Bad(413),
            },
            _ => return Head::Bad(400),
        };
        let close = asked.all("connection").any(|value| value.eq_ignore_ascii_case("close"));
        (asked.length, asked.last) = (length, asked.last || close);
        Head::Whole(asked, used)
    }
}

impl Asked {
    /// All values of a header, by its name in small letters.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The value of a header that is there once.
    pub fn only(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(own, _)| own == name).map(|(_, value)| value.as_str());
        let first = values.next()?;
        values.next().is_none().then_some(first)
    }

    /// The value of `key` in the query; no value of ours needs escapes.
    pub fn query(&self, key: &str) -> Option<&str> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Asked {
        match Head::parse(text.as_bytes()) {
            Head::Whole(asked, used) => {
                assert_eq!(used, text.len());
                asked
            }
            other => panic!("{other:?}: {text}"),
        }
    }

    #[test]
    fn heads_are_read_as_they_come() {
        let text =
            "POST /a/b?x=1&y=2&x=3 HTTP/1.1\r\nHost: h\r\nCookie: a=b\r\ncookie:  c=d \r\nContent-Length: 12\r\n\r\n";
        let asked = whole(text);
        assert_eq!((asked.method, asked.path.as_str(), asked.length, asked.last), (Method::Post, "/a/b", 12, false));
        assert_eq!((asked.query("x"), asked.query("y"), asked.query("z")), (Some("1"), Some("2"), None));
        assert_eq!(asked.all("cookie").collect::<Vec<_>>(), ["a=b", "c=d"]);
        assert_eq!((asked.only("host"), asked.only("cookie")), (Some("h"), None));
        for end in 0..text.len() {
            assert_eq!(Head::parse(&text.as_bytes()[..end]), Head::Partial, "{end}");
        }
        assert!(whole("GET / HTTP/1.0\r\n\r\n").last && whole("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n").last);
        assert_eq!(whole("BREW / HTTP/1.1\r\n\r\n").method, Method::Other);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for (lines, status) in [
            ("Transfer-Encoding: chunked\r\n", 501),
            ("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 501),
            ("Content-Length: 3\r\nContent-Length: 4\r\n", 400),
            ("Content-Length: 3\r\nContent-Length: 3\r\n", 400),
            ("Content-Length: +3\r\n", 400),
            ("Content-Length: \r\n", 400),
            ("Content-Length: 3,3\r\n", 400),
            ("Content-Length: 99999999999999999999999\r\n", 413),
            ("X: \u{1}\r\n", 400),
            (" folded: x\r\n", 400),
        ] {
            let text = format!("POST / HTTP/1.1\r\n{lines}\r\n");
            assert_eq!(Head::parse(text.as_bytes()), Head::Bad(status), "{lines}");
        }
        for line in [
            "GET http://evil.example/ HTTP/1.1",
            "GET * HTTP/1.1",
            "CONNECT a:1 HTTP/1.1",
            "GET / HTTP/9.9",
            "GET",
            "\u{0}",
        ] {
            assert_eq!(Head::parse(format!("{line}\r\n\r\n").as_bytes()), Head::Bad(400), "{line}");
        }
        let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(HEAD_BYTES));
        assert_eq!(Head::parse(long.as_bytes()), Head::Bad(431));
        assert_eq!(Head::parse(&long.as_bytes()[..HEAD_BYTES]), Head::Bad(431), "before it is there");
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1));
        assert_eq!(Head::parse(many.as_bytes()), Head::Bad(431));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let valid = b"POST /api/runs/0/decisions?by=x HTTP/1.1\r\nhost: 127.0.0.1:8080\r\ncontent-length: 12\r\n\r\n";
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for _ in 0..20_000 {
            let mut bytes = valid.to_vec();
            for _ in 0..1 + random(4) {
                let at = random(bytes.len());
                match random(3) {
                    0 => bytes[at] = random(256) as u8,
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, random(256) as u8),
                }
            }
            if let Head::Whole(asked, used) = Head::parse(&bytes) {
                assert!(used <= bytes.len() && asked.path.starts_with('/'));
            }
        }
    }
}
