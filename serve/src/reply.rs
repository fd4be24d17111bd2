//! Answers: JSON, numbers, pictures, errors, each with the headers that keep a browser from doing more than it should.

use pcp_core::error::{Error, Kind};
use serde::Serialize;
use serde_json::json;
use std::io::{self, Write};
use std::sync::Arc;

/// What the page may do: its own scripts and styles, pictures from here and from itself, questions to here. No frames, forms, plugins.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of every answer.
const GUARDS: &[(&str, &str)] = &[
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];

/// Writes events until the client or the server ends.
pub type Stream = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// The body of an answer.
pub enum ReplyBody {
    /// Bytes of its own.
    Own(Vec<u8>),
    /// Bytes that others hold, too.
    Shared(Arc<Vec<u8>>),
    /// A part of the program.
    Fixed(&'static str),
    /// Events, without an end.
    Events(Stream),
}

/// An answer.
pub struct Reply {
    status: u16,
    kind: &'static str,
    /// Further headers; values are our own.
    headers: Vec<(&'static str, String)>,
    body: ReplyBody,
}

impl Reply {
    /// `body` of a kind of contents.
    pub fn of(kind: &'static str, body: ReplyBody) -> Reply {
        Reply { status: 200, kind, headers: Vec::new(), body }
    }

    /// A value as JSON.
    pub fn json(value: &impl Serialize) -> Reply {
        match serde_json::to_vec(value) {
            Ok(bytes) => Reply::of("application/json", ReplyBody::Own(bytes)),
            Err(e) => Reply::refused(500, &e.to_string()),
        }
    }

    /// Numbers.
    pub fn numbers(bytes: Vec<u8>) -> Reply {
        Reply::of("application/octet-stream", ReplyBody::Own(bytes))
    }

    /// A picture, which never changes under its address.
    pub fn picture(jpeg: Arc<Vec<u8>>) -> Reply {
        let always = "private, max-age=86400, immutable".to_string();
        Reply::of("image/jpeg", ReplyBody::Shared(jpeg)).with("cache-control", always)
    }

    /// A text to be kept as a file called `name`, which is one of ours.
    pub fn download(kind: &'static str, name: &'static str, text: String) -> Reply {
        let how = format!("attachment; filename=\"{name}\"");
        Reply::of(kind, ReplyBody::Own(text.into_bytes())).with("content-disposition", how)
    }

    /// A refusal, with its reason for people.
    pub fn refused(status: u16, reason: &str) -> Reply {
        Reply::json(&json!({ "error": reason, "hint": "" })).status(status)
    }

    /// An error of the library.
    pub fn error(e: &Error) -> Reply {
        let status = match e.kind {
            Kind::Usage => 400,
            Kind::Data | Kind::File => 422,
            Kind::Training | Kind::Stopped => 503,
        };
        Reply::json(&json!({ "error": e.message, "hint": e.hint })).status(status)
    }

    /// There is no such thing.
    pub fn missing() -> Reply {
        Reply::refused(404, "there is no such thing here")
    }

    /// With another status.
    pub fn status(mut self, status: u16) -> Reply {
        self.status = status;
        self
    }

    /// With one more header.
    pub fn with(mut self, name: &'static str, value: String) -> Reply {
        self.headers.push((name, value));
        self
    }

    /// Writes the answer; `bare` without its body, `last` when the connection ends with it. Returns whether it ends.
    pub fn write(self, out: &mut dyn Write, bare: bool, last: bool) -> io::Result<bool> {
        let last = last || matches!(self.body, ReplyBody::Events(_));
        let mut head = format!("HTTP/1.1 {} {}\r\ncontent-type: {}\r\n", self.status, reason(self.status), self.kind);
        for (name, value) in GUARDS {
            head += &format!("{name}: {value}\r\n");
        }
        if self.headers.iter().all(|(name, _)| *name != "cache-control") {
            head += "cache-control: no-store\r\n";
        }
        for (name, value) in &self.headers {
            // No value of ours has a line end; one that had would end the head.
            head += &format!("{name}: {}\r\n", value.replace(['\r', '\n'], " "));
        }
        if last {
            head += "connection: close\r\n";
        }
        let bytes: &[u8] = match &self.body {
            ReplyBody::Own(bytes) => bytes,
            ReplyBody::Shared(bytes) => bytes,
            ReplyBody::Fixed(text) => text.as_bytes(),
            ReplyBody::Events(_) => &[],
        };
        if !matches!(self.body, ReplyBody::Events(_)) {
            head += &format!("content-length: {}\r\n", bytes.len());
        }
        head += "\r\n";
        // One write for small answers: a second packet would wait for the first one's receipt.
        let mut all = head.into_bytes();
        if !bare && bytes.len() <= 64 << 10 {
            all.extend_from_slice(bytes);
            out.write_all(&all)?;
        } else {
            out.write_all(&all)?;
            if !bare {
                out.write_all(bytes)?;
            }
        }
        if let ReplyBody::Events(stream) = self.body
            && !bare
        {
            stream(out)?;
        }
        out.flush()?;
        Ok(last)
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Refused",
    }
}
