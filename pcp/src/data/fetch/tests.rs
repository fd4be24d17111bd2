//! Tests of downloads, against a local server that misbehaves in every way.

use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use pcp_core::error::Kind;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use tar::{EntryType, Header};
use tempfile::TempDir;

/// Answers a request: its path, the first byte requested, and the connection.
type Answer = fn(&Archived, &str, u64, &mut TcpStream);

/// An archive as its server has it.
struct Archived {
    bytes: Vec<u8>,
    address: String,
}

/// A server that answers its n-th connection with the n-th of `answers`, and all later ones with the last.
struct Server {
    archived: Arc<Archived>,
    /// The first byte that every request asked for.
    asked: Arc<Mutex<Vec<u64>>>,
}

impl Server {
    fn new(bytes: Vec<u8>, answers: &'static [Answer]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = Server { archived: Arc::new(Archived { bytes, address }), asked: Arc::default() };
        let (archived, asked) = (server.archived.clone(), server.asked.clone());
        std::thread::spawn(move || {
            for (n, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let (path, from) = request(&stream);
                asked.lock().unwrap().push(from);
                let (archived, answer) = (archived.clone(), answers[n.min(answers.len() - 1)]);
                // A client that disconnected is no failure.
                std::thread::spawn(move || answer(&archived, &path, from, &mut stream));
            }
        });
        server
    }

    /// The archive that it serves.
    fn archive(&self) -> Archive {
        let needed = vec![("train.bin".to_string(), 50_000), ("test.bin".to_string(), 7)];
        Archive {
            title: "Tiny",
            url: format!("{}/tiny.tar.gz", self.archived.address),
            page: "https://example.org/tiny.html",
            file: "tiny.tar.gz",
            md5: hex(&Md5::digest(&self.archived.bytes)),
            bytes: self.archived.bytes.len() as u64,
            folder: "tiny",
            needed,
        }
    }

    fn asked(&self) -> Vec<u64> {
        self.asked.lock().unwrap().clone()
    }
}

fn request(stream: &TcpStream) -> (String, u64) {
    let lines: Vec<String> = BufReader::new(stream).lines().map(|l| l.unwrap()).take_while(|l| !l.is_empty()).collect();
    let path = lines[0].split(' ').nth(1).unwrap().to_string();
    let range = lines.iter().find_map(|l| l.to_lowercase().strip_prefix("range: bytes=").map(String::from));
    (path, range.map_or(0, |r| r.trim_end_matches('-').parse().unwrap()))
}

fn send(stream: &mut TcpStream, head: &str, body: &[u8]) {
    let _ = stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes());
    let _ = stream.write_all(body);
}

fn whole(a: &Archived, _: &str, _: u64, stream: &mut TcpStream) {
    send(stream, &format!("200 OK\r\nContent-Length: {}", a.bytes.len()), &a.bytes);
}

fn ranged(a: &Archived, path: &str, from: u64, stream: &mut TcpStream) {
    let (from, n) = (from as usize, a.bytes.len());
    match from {
        0 => whole(a, path, 0, stream),
        from if from >= n => send(stream, "416 Range Not Satisfiable\r\nContent-Length: 0", b""),
        from => {
            let head = format!(
                "206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{}/{n}",
                n - from,
                n - 1
            );
            send(stream, &head, &a.bytes[from..]);
        }
    }
}

/// Sends ten thousand bytes of what it promises, then hangs up.
fn cut_short(a: &Archived, _: &str, from: u64, stream: &mut TcpStream) {
    let (from, n) = (from as usize, a.bytes.len());
    let status =
        if from == 0 { "200 OK".into() } else { format!("206 Partial\r\nContent-Range: bytes {from}-{}/{n}", n - 1) };
    let end = if from == 0 { 10_000 } else { from };
    send(stream, &format!("{status}\r\nContent-Length: {}", n - from), &a.bytes[from..end.min(n)]);
}

fn missing(_: &Archived, _: &str, _: u64, stream: &mut TcpStream) {
    send(stream, "404 Not Found\r\nContent-Length: 4", b"gone");
}

fn busy(_: &Archived, _: &str, _: u64, stream: &mut TcpStream) {
    send(stream, "503 Service Unavailable\r\nContent-Length: 0", b"");
}

fn elsewhere(a: &Archived, path: &str, from: u64, stream: &mut TcpStream) {
    match path {
        "/moved" => ranged(a, path, from, stream),
        _ => send(stream, &format!("302 Found\r\nLocation: {}/moved\r\nContent-Length: 0", a.address), b""),
    }
}

fn in_circles(a: &Archived, _: &str, _: u64, stream: &mut TcpStream) {
    send(stream, &format!("302 Found\r\nLocation: {}/again\r\nContent-Length: 0", a.address), b"");
}

fn wrong(a: &Archived, path: &str, from: u64, stream: &mut TcpStream) {
    let mut bytes = a.bytes.clone();
    bytes[100] ^= 1;
    ranged(&Archived { bytes, address: String::new() }, path, from, stream);
}

/// Sends the beginning, then nothing, and stays.
fn stalling(a: &Archived, path: &str, from: u64, stream: &mut TcpStream) {
    if from == 0 {
        send(stream, &format!("200 OK\r\nContent-Length: {}", a.bytes.len()), &a.bytes[..5_000]);
    }
    let _ = path;
    std::thread::sleep(Duration::from_secs(20));
}

fn silent(_: &Archived, _: &str, _: u64, _: &mut TcpStream) {
    std::thread::sleep(Duration::from_secs(20));
}

/// A body without an announced length and without an end.
fn endless(_: &Archived, _: &str, _: u64, stream: &mut TcpStream) {
    send(stream, "200 OK", b"");
    while stream.write_all(&[0; 4096]).is_ok() {}
}

/// A few bytes at a time, always just in time.
fn slow(a: &Archived, _: &str, _: u64, stream: &mut TcpStream) {
    send(stream, &format!("200 OK\r\nContent-Length: {}", a.bytes.len()), b"");
    for byte in &a.bytes {
        if stream.write_all(&[*byte]).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Kind, path, contents or what a link leads to.
type TarEntry<'a> = (EntryType, &'a str, &'a [u8]);

/// A `.tar.gz` of these entries.
fn tar_gz(entries: &[TarEntry]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::none()));
    for (kind, path, contents) in entries {
        let mut header = Header::new_gnu();
        // Written straight into the header: the builder would refuse what these tests are about.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        let link = matches!(kind, EntryType::Symlink | EntryType::Link);
        if link {
            header.as_old_mut().linkname[..contents.len()].copy_from_slice(contents);
        }
        let contents: &[u8] = if link { b"" } else { contents };
        header.set_entry_type(*kind);
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, contents).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn train_bytes() -> Vec<u8> {
    (0..50_000u32).map(|i| ((i * i) >> 3) as u8).collect()
}

fn good() -> Vec<u8> {
    let train = train_bytes();
    tar_gz(&[
        (EntryType::Directory, "tiny/", b""),
        (EntryType::Regular, "tiny/train.bin", &train),
        (EntryType::Regular, "tiny/test.bin", b"records"),
    ])
}

const QUICK: Patience = Patience { wait: Duration::from_millis(400), attempts: 3 };

fn fetch(archive: &Archive, dir: &Path) -> Result<Outcome> {
    archive.fetch(dir, QUICK, &Cancel::default(), &|_, _| ())
}

/// The paths of all files below a folder.
fn listing(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            names.extend(listing(&entry.path()).iter().map(|inner| format!("{name}/{inner}")));
        } else {
            names.push(name);
        }
    }
    names.sort();
    names
}

#[test]
fn an_archive_is_fetched_verified_and_unpacked() {
    for answers in [&[whole as Answer][..], &[elsewhere], &[busy, busy, whole], &[silent, whole]] {
        let server = Server::new(good(), Box::leak(answers.to_vec().into_boxed_slice()));
        let dir = TempDir::new().unwrap();
        let data = dir.path().join("new/data");
        let (archive, seen) = (server.archive(), Mutex::new((0, None)));
        let outcome =
            archive.fetch(&data, QUICK, &Cancel::default(), &|done, total| *seen.lock().unwrap() = (done, total));
        assert_eq!(outcome.unwrap(), Outcome::Fetched);
        let n = server.archived.bytes.len() as u64;
        assert_eq!(*seen.lock().unwrap(), (n, Some(n)));
        assert_eq!(listing(&data), ["tiny/SHA256SUMS", "tiny/test.bin", "tiny/train.bin"], "and nothing else is left");
        assert_eq!(fs::read(data.join("tiny/train.bin")).unwrap(), train_bytes());
        let asked = server.asked().len();
        assert_eq!(fetch(&archive, &data).unwrap(), Outcome::AlreadyThere);
        assert_eq!(server.asked().len(), asked, "no request for files that are present");
        // One file lost: everything comes again, whole.
        fs::write(data.join("tiny/train.bin"), "half").unwrap();
        assert_eq!(fetch(&archive, &data).unwrap(), Outcome::Fetched);
        assert_eq!(fs::read(data.join("tiny/train.bin")).unwrap(), train_bytes());
    }
}

#[test]
fn a_truncated_body_is_continued_where_it_ended() {
    let server = Server::new(good(), &[cut_short, ranged]);
    let dir = TempDir::new().unwrap();
    assert_eq!(fetch(&server.archive(), dir.path()).unwrap(), Outcome::Fetched);
    assert_eq!(server.asked(), [0, 10_000]);
    // A server that cannot continue sends all of it again.
    let server = Server::new(good(), &[cut_short, whole]);
    let dir = TempDir::new().unwrap();
    assert_eq!(fetch(&server.archive(), dir.path()).unwrap(), Outcome::Fetched);
}

#[test]
fn what_came_before_a_failure_is_kept_for_the_next_time() {
    let server = Server::new(good(), &[cut_short, cut_short, cut_short, cut_short, ranged]);
    let dir = TempDir::new().unwrap();
    let error = fetch(&server.archive(), dir.path()).unwrap_err();
    assert!(error.message.contains("10000 bytes are kept"), "{error}");
    assert!(
        error.hint.contains("tiny.tar.gz") && error.hint.contains("https://example.org/tiny.html"),
        "{}",
        error.hint
    );
    assert!(error.hint.contains(&dir.path().display().to_string()), "{}", error.hint);
    assert_eq!(server.asked(), [0, 10_000, 10_000, 10_000], "given up after three that brought nothing");
    assert_eq!(listing(dir.path()), ["tiny.tar.gz.part"]);
    assert_eq!(fetch(&server.archive(), dir.path()).unwrap(), Outcome::Fetched);
    assert_eq!(server.asked().last(), Some(&10_000));
}

#[test]
fn a_part_of_another_archive_is_deleted() {
    for rubbish in [vec![7u8; 300], vec![7; 200_000]] {
        let server = Server::new(good(), &[ranged]);
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("tiny.tar.gz.part"), rubbish).unwrap();
        assert_eq!(fetch(&server.archive(), dir.path()).unwrap(), Outcome::Fetched);
        assert_eq!(listing(dir.path()), ["tiny/SHA256SUMS", "tiny/test.bin", "tiny/train.bin"]);
    }
    // One that was complete needs no server at all.
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("tiny.tar.gz.part"), good()).unwrap();
    let server = Server::new(good(), &[missing]);
    assert_eq!(fetch(&server.archive(), dir.path()).unwrap(), Outcome::Fetched);
    assert!(server.asked().is_empty());
}

#[test]
fn a_wrong_checksum_is_refused_and_leaves_nothing() {
    let server = Server::new(good(), &[wrong]);
    let dir = TempDir::new().unwrap();
    let error = fetch(&server.archive(), dir.path()).unwrap_err();
    assert_eq!(error.kind, Kind::Data);
    assert!(
        error.message.contains(&server.archive().md5) && error.message.contains(&server.archived.address),
        "{error}"
    );
    assert!(listing(dir.path()).is_empty());
}

#[test]
fn an_archive_that_is_not_there_says_where_to_put_it() {
    for (answers, why) in [
        (&[missing as Answer], "answers 404"),
        (&[busy], "answers 503"),
        (&[silent], "in time"),
        (&[in_circles], "redirect"),
    ] {
        let server = Server::new(good(), answers);
        let dir = TempDir::new().unwrap();
        let error = fetch(&server.archive(), dir.path()).unwrap_err();
        assert!(error.message.contains(why) && error.message.contains(&server.archive().url), "{why}: {error}");
        for word in ["tiny.tar.gz", "https://example.org/tiny.html", &dir.path().display().to_string()] {
            assert!(error.hint.contains(word), "{word} is not in {}", error.hint);
        }
        assert!(listing(dir.path()).is_empty());
    }
    // No server listens.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let archive = Archive { url: format!("http://127.0.0.1:{port}/x"), ..Server::new(good(), &[missing]).archive() };
    let error = fetch(&archive, TempDir::new().unwrap().path()).unwrap_err();
    assert!(error.message.contains("no connection"), "{error}");
}

#[test]
fn a_stalling_server_times_out_and_a_stop_ends_the_wait() {
    let server = Server::new(good(), &[stalling, ranged]);
    let dir = TempDir::new().unwrap();
    assert_eq!(fetch(&server.archive(), dir.path()).unwrap(), Outcome::Fetched);
    assert_eq!(server.asked(), [0, 5_000]);
    let server = Server::new(good(), &[stalling]);
    let dir = TempDir::new().unwrap();
    let error = fetch(&server.archive(), dir.path()).unwrap_err();
    assert!(error.message.contains("5000 bytes are kept"), "{error}");

    let (server, stop) = (Server::new(good(), &[ranged]), Cancel::default());
    let dir = TempDir::new().unwrap();
    let stopped = server.archive().fetch(dir.path(), QUICK, &stop, &|_, _| {
        stop.request();
    });
    assert_eq!(stopped.unwrap_err().exit_code(), 130);
    assert_eq!(listing(dir.path()), ["tiny.tar.gz.part"], "what came is kept");
}

#[test]
fn an_archive_copied_by_hand_is_unpacked_without_a_network() {
    let server = Server::new(good(), &[missing]);
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("tiny.tar.gz"), good()).unwrap();
    assert_eq!(fetch(&server.archive(), dir.path()).unwrap(), Outcome::Unpacked);
    assert_eq!(listing(dir.path()), ["tiny.tar.gz", "tiny/SHA256SUMS", "tiny/test.bin", "tiny/train.bin"]);
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("tiny.tar.gz"), &good()[..9_000]).unwrap();
    let error = fetch(&server.archive(), dir.path()).unwrap_err();
    assert!(error.message.contains("is damaged") && error.hint.contains("remove"), "{error}");
    assert!(server.asked().is_empty());
}

#[test]
fn an_archive_that_leads_elsewhere_is_refused() {
    use EntryType::*;
    let cases: [(&[TarEntry], &str); 11] = [
        (&[(Regular, "tiny/../../evil.bin", b"x")], "leads out of tiny"),
        (&[(Regular, "../evil.bin", b"x")], "leads out of tiny"),
        (&[(Regular, "/tmp/evil.bin", b"x")], "leads out of tiny"),
        (&[(Regular, "tiny/..", b"x")], "leads out of tiny"),
        (&[(Regular, "tiny/.hidden", b"x")], "leads out of tiny"),
        (&[(Regular, "tiny/a/b.bin", b"x")], "leads out of tiny"),
        (&[(Regular, "other/b.bin", b"x")], "leads out of tiny"),
        (&[(Symlink, "tiny/train.bin", b"/etc/passwd")], "is a link"),
        (&[(Link, "tiny/train.bin", b"../secret")], "is a link"),
        (&[(Fifo, "tiny/train.bin", b"")], "not a plain file"),
        (&[(Regular, "tiny/test.bin", b"records")], "does not hold all of train.bin, test.bin"),
    ];
    for (entries, why) in cases {
        let server = Server::new(tar_gz(entries), &[whole]);
        let dir = TempDir::new().unwrap();
        let data = dir.path().join("data");
        fs::write(dir.path().join("secret"), "mine").unwrap();
        let error = fetch(&server.archive(), &data).unwrap_err();
        assert!(error.message.contains(why), "{why} is not in {error}");
        let inside = listing(&data);
        assert!(inside.iter().all(|name| name == "tiny.tar.gz" || name == "tiny/test.bin"), "{inside:?}");
        assert_eq!(listing(dir.path()).len(), inside.len() + 1, "nothing was written outside");
    }
}

#[test]
fn a_damaged_archive_is_told_from_a_full_disk() {
    let bytes = good();
    for keep in [0, 20, 700, 30_000] {
        let dir = TempDir::new().unwrap();
        let error = unpack(&bytes[..keep], "tiny", &dir.path().join("tiny"), &Cancel::default()).unwrap_err();
        assert!(error.message.contains("the archive"), "{keep}: {error}");
        assert!(!listing(dir.path()).iter().any(|name| name.ends_with(".pcp-unfinished")), "nothing half");
    }
    let many: Vec<_> = (0..101).map(|_| (EntryType::Regular, "tiny/a", &b""[..])).collect();
    let dir = TempDir::new().unwrap();
    let error = unpack(tar_gz(&many).as_slice(), "tiny", dir.path(), &Cancel::default()).unwrap_err();
    assert!(error.message.contains("more than 100 entries"), "{error}");
}

#[test]
fn the_official_archives() {
    let ten = Archive::named("cifar10").unwrap();
    assert_eq!(ten.url, "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz");
    assert_eq!((ten.needed.len(), ten.needed[5].clone()), (6, ("test_batch.bin".to_string(), 30_730_000)));
    let hundred = Archive::named("cifar100").unwrap();
    assert_eq!((hundred.md5.as_str(), hundred.folder), ("03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary"));
    assert!(Archive::named("cifar").unwrap_err().hint.contains("did you mean cifar10?"));
    assert!(agent(&ten.url, Patience::default()).is_ok(), "there is cryptography for https");
}

#[test]
fn a_body_without_an_end_is_cut_off_and_a_crawling_one_given_up() {
    let server = Server::new(good(), &[endless]);
    let dir = TempDir::new().unwrap();
    let error = fetch(&server.archive(), dir.path()).unwrap_err();
    assert!(error.message.contains(&format!("more than the {} bytes", server.archived.bytes.len())), "{error}");
    let left: u64 = fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.metadata().unwrap().len()).sum();
    assert!(left <= server.archived.bytes.len() as u64, "{left} bytes are left");
    let server = Server::new(good(), &[slow]);
    let dir = TempDir::new().unwrap();
    let error = fetch(&server.archive(), dir.path()).unwrap_err();
    assert!(error.message.contains("bytes in a second"), "{error}");
    assert_eq!(server.asked().len(), 3, "three attempts");
}

#[cfg(unix)]
#[test]
fn nothing_is_written_through_a_link() {
    let server = Server::new(good(), &[whole]);
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("precious"), "mine").unwrap();
    std::os::unix::fs::symlink("precious", dir.path().join("tiny.tar.gz.part")).unwrap();
    let error = fetch(&server.archive(), dir.path()).unwrap_err();
    assert!(error.message.contains("tiny.tar.gz.part is a link"), "{error}");
    assert_eq!(fs::read_to_string(dir.path().join("precious")).unwrap(), "mine");
}

#[test]
fn files_of_the_right_size_with_other_contents_are_not_there() {
    let server = Server::new(good(), &[whole]);
    let (dir, archive) = (TempDir::new().unwrap(), server.archive());
    let folder = dir.path().join("tiny");
    fs::create_dir(&folder).unwrap();
    // As a file system may leave them after a loss of power.
    fs::write(folder.join("train.bin"), vec![0; 50_000]).unwrap();
    fs::write(folder.join("test.bin"), [0; 7]).unwrap();
    assert!(archive.is_there(dir.path()), "by their sizes");
    assert_eq!(fetch(&archive, dir.path()).unwrap(), Outcome::Fetched);
    assert_eq!(fetch(&archive, dir.path()).unwrap(), Outcome::AlreadyThere);
    let mut bytes = train_bytes();
    bytes[100] ^= 1;
    fs::write(folder.join("train.bin"), bytes).unwrap();
    assert_eq!(fetch(&archive, dir.path()).unwrap(), Outcome::Fetched, "a flipped bit");
    assert_eq!(fs::read(folder.join("train.bin")).unwrap(), train_bytes());
}
