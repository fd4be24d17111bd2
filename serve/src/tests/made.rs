//! A made-up run, a server for it, and a client that sends whatever bytes a test wants.

use crate::{Catalogue, Listen, Server};
use image::{Rgb, RgbImage};
use pcp::decisions;
use pcp::jobs::{TrainOptions, train};
use pcp::observe::silent;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;

/// Images of the run.
pub const IMAGES: usize = 24;

/// Photographs, and a run that was trained on them; made once, copied for every test.
fn original() -> &'static TempDir {
    static MADE: OnceLock<TempDir> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..IMAGES {
            let colour = [[200, 40, 40], [40, 200, 40], [40, 40, 200]][i % 3];
            let folder = dir.path().join("photos").join(["red", "green", "blue"][i % 3]);
            std::fs::create_dir_all(&folder).unwrap();
            let picture = RgbImage::from_fn(40 + i as u32, 30, |x, y| {
                let shade = ((x * 7 + y * 3 + i as u32 * 11) % 50) as u8;
                Rgb([colour[0] - shade.min(30), colour[1] - shade.min(30), colour[2] - shade.min(30)])
            });
            picture.save(folder.join(format!("{i}.png"))).unwrap();
        }
        let photos = dir.path().join("photos").display().to_string();
        let mut options = TrainOptions::new(photos);
        for set in ["train.epochs=2", "data.size=16", "network.width=4", "train.batch=8", "clusters.floor=3"] {
            options = options.set(set).unwrap();
        }
        let options = TrainOptions { out: Some(dir.path().join("run")), no_report: true, ..options };
        train(&options, &silent()).unwrap();
        dir
    })
}

/// A server on a run of its own.
pub struct Made {
    pub dir: TempDir,
    pub server: Server,
    /// The cookie, once the token was exchanged.
    pub cookie: String,
}

/// An answer.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim())
    }
}

/// A copy of the run, changed by `change` before the server starts.
pub fn changed(change: impl FnOnce(&Path)) -> Made {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    copy(&original().path().join("run"), &run);
    change(&run);
    // A stranger would give it checksums that fit.
    std::fs::remove_file(run.join("checksums.txt")).unwrap();
    let catalogue = Catalogue::of_runs(&[run], None).unwrap();
    let server = Server::start(Arc::new(catalogue), &Listen::default()).unwrap();
    let mut made = Made { dir, server, cookie: String::new() };
    let link = made.server.link().unwrap();
    let welcome = made.plain("GET", &link[link.find("/?").unwrap()..], &[], b"");
    assert_eq!(welcome.status, 200, "{}", welcome.head);
    made.cookie = welcome.header("set-cookie").unwrap().split(';').next().unwrap().to_string();
    made
}

pub fn made() -> Made {
    changed(|_| ())
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

impl Made {
    pub fn run(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub fn host(&self) -> String {
        self.server.address().to_string()
    }

    /// Sends bytes as they are; returns whatever comes back.
    pub fn raw(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    /// A request with these headers alone, beside host and length.
    pub fn plain(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if headers.iter().all(|(name, _)| *name != "host") {
            request += &format!("host: {}\r\n", self.host());
        }
        headers.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
        if !body.is_empty() || method == "POST" {
            request += &format!("content-length: {}\r\n", body.len());
        }
        request += "\r\n";
        parsed(&self.raw(&[request.as_bytes(), body].concat()))
    }

    pub fn get(&self, path: &str) -> Answer {
        self.plain("GET", path, &[("cookie", &self.cookie)], b"")
    }

    pub fn post(&self, path: &str, kind: &str, body: &[u8]) -> Answer {
        let origin = format!("http://{}", self.host());
        let headers = [("cookie", self.cookie.as_str()), ("origin", &origin), ("content-type", kind)];
        self.plain("POST", path, &headers, body)
    }

    pub fn decide(&self, body: &str) -> Answer {
        self.post("/api/runs/0/decisions", "application/json", body.as_bytes())
    }

    /// The bytes of the log of decisions.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.run().join(decisions::FILE)).unwrap_or_default()
    }
}

fn parsed(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {}", String::from_utf8_lossy(bytes)));
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    let mut body = bytes[end + 4..].to_vec();
    if head.to_lowercase().contains("transfer-encoding: chunked") {
        body = unchunked(&body);
    }
    Answer { status, head, body }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(at) = bytes.windows(2).position(|w| w == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..at]).unwrap().trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        out.extend_from_slice(&bytes[at + 2..at + 2 + size]);
        bytes = &bytes[at + 4 + size..];
    }
    out
}
