//! Downloads of data sets: resumed where they stopped, verified by checksum, and unpacked safely.
//!
//! The archive's checksum is compiled in, so that neither the server nor the connection need be trusted: an archive that does not
//! match is deleted, and nothing is unpacked before it matches.

mod unpack;

pub use unpack::{unpack, walk};

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use md5::{Digest, Md5};
use ureq::http::Response;
use ureq::{Agent, Body};

use super::cifar::{CIFAR10, CIFAR100};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result, listed, nearest};
use pcp_core::io::atomic::{make_folder, write_bytes};
use pcp_core::io::tensors::{hex, sha256_of};

/// An archive of a data set, and the files it must contain.
#[derive(Clone, Debug)]
pub struct Archive {
    /// Name of the data set, for messages.
    pub title: &'static str,
    /// Its address.
    pub url: String,
    /// The page that offers it.
    pub page: &'static str,
    /// Its file name.
    pub file: &'static str,
    /// Its MD5, in hexadecimal digits.
    pub md5: String,
    /// Its size.
    pub bytes: u64,
    /// The folder it unpacks to.
    pub folder: &'static str,
    /// The needed files and their sizes.
    pub needed: Vec<(String, u64)>,
}

/// Timeouts and retries.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Timeout for connecting and for the next bytes.
    pub wait: Duration,
    /// Attempts in a row without new bytes before giving up.
    pub attempts: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { wait: Duration::from_secs(30), attempts: 4 }
    }
}

/// What a fetch did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: all files were present.
    AlreadyThere,
    /// The archive was present and was unpacked.
    Unpacked,
    /// It was downloaded and unpacked.
    Fetched,
}

/// A progress callback: gets the bytes done and, if known, the total.
pub type Tick<'a> = &'a (dyn Fn(u64, Option<u64>) + Sync);

/// The list of the checksums of the files that were unpacked, as `sha256sum` writes it.
const SUMS: &str = "SHA256SUMS";

/// Fewer bytes in a second are no download.
const LEAST_SPEED: f64 = 1000.0;

impl Archive {
    /// The archive of the data set called `name`.
    pub fn named(name: &str) -> Result<Archive> {
        match name {
            "cifar10" => Ok(CIFAR10.archive()),
            "cifar100" => Ok(CIFAR100.archive()),
            unknown => {
                let known = ["cifar10", "cifar100"];
                let guess = nearest(unknown, known).map(|name| format!("did you mean {name}? ")).unwrap_or_default();
                Err(Error::usage(
                    format!("there is no data set called '{unknown}' to fetch"),
                    format!("{guess}there are {}", listed(known)),
                ))
            }
        }
    }

    /// Whether all needed files are in `data_dir`, by their names and sizes.
    pub fn is_there(&self, data_dir: &Path) -> bool {
        let folder = data_dir.join(self.folder);
        self.needed.iter().all(|(name, size)| fs::metadata(folder.join(name)).is_ok_and(|about| about.len() == *size))
    }

    /// Whether they are also whole: their checksums are those of the archive they were unpacked from; where these are not known, because
    /// another program unpacked it, they are not filled with one byte.
    fn is_whole(&self, data_dir: &Path) -> Result<bool> {
        let folder = data_dir.join(self.folder);
        let sums = fs::read_to_string(folder.join(SUMS)).ok();
        for (name, _) in &self.needed {
            let path = folder.join(name);
            let whole = match &sums {
                Some(sums) => {
                    let found = sha256_of(&path)?;
                    sums.lines().any(|line| line.split_once("  ") == Some((&found, name)))
                }
                None => is_varied(&path)?,
            };
            if !whole {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A hint for getting the archive by hand.
    fn by_hand(&self, data_dir: &Path) -> String {
        format!(
            "get {} from {} in another way, put it into {}, and run the command again: it then unpacks it",
            self.file,
            self.page,
            data_dir.display()
        )
    }

    /// Downloads and unpacks the data set into `data_dir`. A partial download is kept when this fails or is stopped.
    pub fn fetch(&self, data_dir: &Path, patience: Patience, stop: &Cancel, tick: Tick) -> Result<Outcome> {
        if self.is_there(data_dir) && self.is_whole(data_dir)? {
            return Ok(Outcome::AlreadyThere);
        }
        make_folder(data_dir)?;
        let whole = data_dir.join(self.file);
        let brought = whole.exists();
        if brought {
            let found = md5_of(&whole, stop)?;
            if found != self.md5 {
                return Err(Error::data(
                    format!("{} is damaged: its MD5 is {found}, not {}", whole.display(), self.md5),
                    "remove the file, then run the command again",
                ));
            }
        } else {
            self.download(&whole, patience, stop, tick)?;
        }
        self.unpack_into(&whole, data_dir, stop)?;
        if !brought {
            fs::remove_file(&whole).map_err(|e| Error::io("remove", &whole, &e))?;
        }
        Ok(if brought { Outcome::Unpacked } else { Outcome::Fetched })
    }

    /// Downloads the archive to `whole`, through a partial file that later attempts resume.
    fn download(&self, whole: &Path, patience: Patience, stop: &Cancel, tick: Tick) -> Result<()> {
        let part = part_of(whole);
        if part.symlink_metadata().is_ok_and(|about| !about.is_file()) {
            let message = format!("{} is a link or no file: nothing is written through it", part.display());
            return Err(Error::data(message, "remove it, then run the command again"));
        }
        let agent = agent(&self.url, patience)?;
        let data_dir = whole.parent().unwrap_or(Path::new("."));
        // The partial file may be of another archive: then try once from the beginning.
        for continued in [true, false] {
            let begun = size(&part) > 0;
            if !begun || md5_of(&part, stop)? != self.md5 {
                self.attempts(&agent, &part, data_dir, patience, stop, tick)?;
            }
            let found = md5_of(&part, stop)?;
            if found == self.md5 {
                return fs::rename(&part, whole).map_err(|e| Error::io("write", whole, &e));
            }
            fs::remove_file(&part).map_err(|e| Error::io("remove", &part, &e))?;
            if !(begun && continued) {
                return Err(Error::data(
                    format!("what {} sent is not {}: its MD5 is {found}, not {}", self.url, self.file, self.md5),
                    format!("try again later, or {}", self.by_hand(data_dir)),
                ));
            }
        }
        Ok(())
    }

    /// Tries until the download is complete, or several attempts in a row have brought no new bytes.
    fn attempts(
        &self,
        agent: &Agent,
        part: &Path,
        data_dir: &Path,
        patience: Patience,
        stop: &Cancel,
        tick: Tick,
    ) -> Result<()> {
        let mut left = patience.attempts;
        loop {
            let before = size(part);
            let (broken, slow) = match self.attempt(agent, part, patience, stop, tick)? {
                Attempt::Complete => return Ok(()),
                Attempt::Broken(why) => (why, false),
                Attempt::Slow(why) => (why, true),
            };
            left = if size(part) > before && !slow { patience.attempts } else { left.saturating_sub(1) };
            if left == 0 {
                let so_far = match size(part) {
                    0 => String::new(),
                    n => format!("; {n} bytes are kept, and the next attempt continues from there"),
                };
                return Err(Error::file(
                    format!("cannot fetch {}: {broken}{so_far}", self.url),
                    format!("check the network; or {}", self.by_hand(data_dir)),
                ));
            }
        }
    }

    /// Requests the missing bytes and appends them to the partial file.
    fn attempt(&self, agent: &Agent, part: &Path, patience: Patience, stop: &Cancel, tick: Tick) -> Result<Attempt> {
        stop.check()?;
        let have = size(part);
        let mut request = agent.get(&self.url);
        if have > 0 {
            request = request.header("Range", format!("bytes={have}-"));
        }
        let answer = match request.call() {
            Ok(answer) => answer,
            // All other errors may be temporary: a lost connection, no answer, an unknown host.
            Err(error) => return Ok(Attempt::Broken(plain(&error))),
        };
        let status = answer.status().as_u16();
        let from = match status {
            200 => 0,
            206 if starts_at(&answer) == Some(have) => have,
            // The server does not have this range: the partial file is of another archive.
            206 | 416 => {
                cut(part, 0)?;
                return Ok(Attempt::Broken("the server cannot resume this download".into()));
            }
            408 | 429 | 500.. => return Ok(Attempt::Broken(format!("the server answers {status}"))),
            _ => {
                let data_dir = part.parent().unwrap_or(Path::new("."));
                return Err(Error::file(
                    format!("cannot fetch {}: the server answers {status}", self.url),
                    format!("check the address; or {}", self.by_hand(data_dir)),
                ));
            }
        };
        cut(part, from)?;
        let length = answer.headers().get("content-length").and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
        let total = length.map(|n| n.saturating_add(from));
        if total.is_some_and(|total| total > self.bytes) {
            return Err(self.too_long(part));
        }
        let cannot = |e: std::io::Error| Error::io("write", part, &e);
        let mut out = OpenOptions::new().append(true).create(true).open(part).map_err(cannot)?;
        let mut body = answer.into_body().into_with_config().limit(self.bytes + 1).reader();
        let (mut done, mut buffer) = (from, vec![0; 1 << 16]);
        let (mut since, mut at) = (Instant::now(), from);
        loop {
            stop.check()?;
            match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    out.write_all(&buffer[..n]).map_err(cannot)?;
                    done += n as u64;
                    if done > self.bytes {
                        drop(out);
                        cut(part, 0)?;
                        return Err(self.too_long(part));
                    }
                    tick(done, total);
                    if since.elapsed() > patience.wait {
                        let speed = (done - at) as f64 / since.elapsed().as_secs_f64();
                        if speed < LEAST_SPEED {
                            return Ok(Attempt::Slow(format!("the server sends only {speed:.0} bytes in a second")));
                        }
                        (since, at) = (Instant::now(), done);
                    }
                }
                Err(e) => return Ok(Attempt::Broken(format!("the connection broke after {done} bytes: {e}"))),
            }
        }
        out.sync_all().map_err(cannot)?;
        match total {
            Some(total) if done < total => {
                Ok(Attempt::Broken(format!("the server stopped at {done} of {total} bytes")))
            }
            _ => Ok(Attempt::Complete),
        }
    }

    /// The error for an answer that is longer than the archive.
    fn too_long(&self, part: &Path) -> Error {
        let data_dir = part.parent().unwrap_or(Path::new("."));
        Error::data(
            format!("{} sends more than the {} bytes of {}", self.url, self.bytes, self.file),
            format!("try again later, or {}", self.by_hand(data_dir)),
        )
    }

    /// Unpacks the archive, which matches its checksum, and checks that all needed files are there.
    fn unpack_into(&self, whole: &Path, data_dir: &Path, stop: &Cancel) -> Result<()> {
        let file = File::open(whole).map_err(|e| Error::io("read", whole, &e))?;
        unpack(file, self.folder, &data_dir.join(self.folder), stop)
            .map_err(|e| Error { message: format!("{}: {}", whole.display(), e.message), ..e })?;
        if self.is_there(data_dir) {
            let folder = data_dir.join(self.folder);
            let sum = |(name, _): &(String, u64)| Ok(format!("{}  {name}\n", sha256_of(&folder.join(name))?));
            let sums: String = self.needed.iter().map(sum).collect::<Result<_>>()?;
            return write_bytes(&folder.join(SUMS), sums.as_bytes());
        }
        let needed = listed(self.needed.iter().map(|(name, _)| name));
        Err(Error::data(
            format!("{} does not hold all of {needed} in {}", whole.display(), self.folder),
            "remove the file, then run the command again",
        ))
    }
}

/// How an attempt ended.
enum Attempt {
    Complete,
    Broken(String),
    /// It brings too little to be waited for.
    Slow(String),
}

/// The partial file of `whole`.
fn part_of(whole: &Path) -> PathBuf {
    let mut name = whole.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    whole.with_file_name(name)
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |about| about.len())
}

/// Truncates the file at `path`, if there is one, to `length` bytes.
fn cut(path: &Path, length: u64) -> Result<()> {
    if size(path) == length {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(length)).map_err(|e| Error::io("write", path, &e))
}

/// The first byte of a partial answer.
fn starts_at(answer: &Response<Body>) -> Option<u64> {
    let range = answer.headers().get("content-range")?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

/// Whether a file has two different bytes.
fn is_varied(path: &Path) -> Result<bool> {
    let bytes = pcp_core::io::atomic::read_bytes(path)?;
    Ok(bytes.iter().any(|byte| *byte != bytes[0]))
}

fn md5_of(path: &Path, stop: &Cancel) -> Result<String> {
    let cannot = |e: std::io::Error| Error::io("read", path, &e);
    let (mut hash, mut buffer) = (Md5::new(), vec![0; 1 << 20]);
    let mut file = File::open(path).map_err(cannot)?;
    loop {
        stop.check()?;
        match file.read(&mut buffer).map_err(cannot)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&buffer[..n]),
        }
    }
}

/// An error message for users.
fn plain(error: &ureq::Error) -> String {
    match error {
        ureq::Error::HostNotFound => "its host is not found: is there a network connection?".into(),
        ureq::Error::ConnectionFailed => "no connection".into(),
        ureq::Error::Timeout(_) => "the server does not answer in time".into(),
        ureq::Error::Io(e) => format!("no connection: {e}"),
        other => other.to_string(),
    }
}

/// The HTTP client for `url`.
fn agent(url: &str, patience: Patience) -> Result<Agent> {
    let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"].iter().any(|host| url.starts_with(host));
    let wait = Some(patience.wait);
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_resolve(wait)
        .timeout_connect(wait)
        .timeout_send_request(wait)
        .timeout_recv_response(wait)
        .timeout_per_read(wait)
        .user_agent(concat!("pcp/", env!("CARGO_PKG_VERSION")));
    if local {
        config = config.proxy(None);
    } else if let Some(provider) = provider()? {
        config = config.tls_config(
            ureq::tls::TlsConfig::builder()
                .provider(ureq::tls::TlsProvider::Rustls)
                .unversioned_rustls_crypto_provider(provider)
                .build(),
        );
    }
    Ok(config.build().new_agent())
}

/// Cryptography for `https`. It needs CPU features of about 2013, which are checked here: it would panic without them.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn provider() -> Result<Option<std::sync::Arc<rustls::crypto::CryptoProvider>>> {
    #[cfg(target_arch = "x86_64")]
    let lacks = [
        ("aes", is_x86_feature_detected!("aes")),
        ("pclmulqdq", is_x86_feature_detected!("pclmulqdq")),
        ("bmi1", is_x86_feature_detected!("bmi1")),
        ("adx", is_x86_feature_detected!("adx")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
    ];
    #[cfg(target_arch = "aarch64")]
    let lacks = [
        ("aes", std::arch::is_aarch64_feature_detected!("aes")),
        ("pmull", std::arch::is_aarch64_feature_detected!("pmull")),
        ("sha2", std::arch::is_aarch64_feature_detected!("sha2")),
    ];
    match lacks.iter().find(|(_, there)| !there) {
        Some((name, _)) => Err(Error::file(
            format!("this CPU is too old to fetch over https: it has no {name}"),
            "get the archive with a browser, put it into the folder of --data-dir, and run the command again",
        )),
        None => Ok(Some(std::sync::Arc::new(rustls_graviola::default_provider()))),
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn provider() -> Result<Option<std::sync::Arc<rustls::crypto::CryptoProvider>>> {
    Err(Error::file(
        "https is not supported on this kind of CPU",
        "get the archive with a browser, put it into the folder of --data-dir, and run the command again",
    ))
}

#[cfg(test)]
mod tests;
