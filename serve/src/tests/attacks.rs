//! Attacks: each of them must get nothing, and change nothing.

use super::made::{changed, made};
use pcp::decisions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

const API: &[&str] = &[
    "/",
    "/page.js",
    "/api/runs",
    "/api/runs/0/overview",
    "/api/runs/0/columns",
    "/api/runs/0/names",
    "/api/runs/0/map",
    "/api/runs/0/thumb/0",
    "/api/runs/0/image/0",
    "/api/runs/0/neighbours/0",
    "/api/runs/0/decisions",
    "/api/runs/0/decisions.csv",
    "/api/runs/0/events",
    "/no/such",
];
const POSTS: &[&str] = &["decisions", "export", "stop", "search", "map", "copies", "doubts"];

#[test]
fn nothing_is_answered_without_the_cookie() {
    let made = made();
    let origin = format!("http://{}", made.host());
    for path in API {
        for cookie in ["", "pcp=1", &format!("{}0", made.cookie), "pcp-0=x"] {
            let answer = made.plain("GET", path, &[("cookie", cookie)], b"");
            assert_eq!(answer.status, 403, "{path} {cookie}");
            assert!(!String::from_utf8_lossy(&answer.body).contains("cluster"), "{path}");
        }
    }
    for path in POSTS {
        let headers = [("origin", origin.as_str()), ("content-type", "application/json")];
        let path = format!("/api/runs/0/{path}");
        assert_eq!(made.plain("POST", &path, &headers, b"{}").status, 403, "{path}");
    }
    // The token was used: it is void.
    assert_eq!(made.plain("GET", "/?token=", &[], b"").status, 403);
}

#[test]
fn a_name_that_points_here_is_refused() {
    let made = made();
    let port = made.server.address().port();
    for host in ["evil.example", &format!("evil.example:{port}"), &format!("127.0.0.1.evil.example:{port}"), ""] {
        let answer = made.plain("GET", "/api/runs", &[("host", host), ("cookie", &made.cookie)], b"");
        assert!(matches!(answer.status, 400 | 403), "{host}: {}", answer.head);
    }
    let local = format!("localhost:{port}");
    assert_eq!(made.plain("GET", "/api/runs", &[("host", &local), ("cookie", &made.cookie)], b"").status, 200);
    // Two hosts, and one in the request line.
    let line = format!(
        "GET http://evil.example/api/runs HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\nconnection: close\r\n\r\n",
        made.host(),
        made.cookie
    );
    let answer = String::from_utf8_lossy(&made.raw(line.as_bytes())).into_owned();
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
}

#[test]
fn other_pages_can_neither_read_nor_write() {
    let made = made();
    let own = format!("http://{}", made.host());
    let decision = br#"{"by":"t","op":"mark","rows":[0],"mark":"remove"}"#;
    let kind = ("content-type", "application/json");
    let cookie = ("cookie", made.cookie.as_str());
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"] {
        let headers = [cookie, kind, ("origin", origin)];
        assert_eq!(made.plain("POST", "/api/runs/0/decisions", &headers, decision).status, 403, "{origin}");
        let read = made.plain("GET", "/api/runs", &[cookie, ("origin", origin)], b"");
        assert_eq!(read.status, 403, "{origin}");
        assert!(read.header("access-control-allow-origin").is_none());
    }
    assert_eq!(made.plain("POST", "/api/runs/0/decisions", &[cookie, kind], decision).status, 403, "no origin");
    for site in ["cross-site", "same-site"] {
        let headers = [cookie, kind, ("origin", own.as_str()), ("sec-fetch-site", site)];
        assert_eq!(made.plain("POST", "/api/runs/0/decisions", &headers, decision).status, 403, "{site}");
    }
    // What forms send without asking first is not taken.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        assert_eq!(made.post("/api/runs/0/decisions", kind, decision).status, 415, "{kind}");
    }
    let preflight = made.plain("OPTIONS", "/api/runs", &[("origin", "http://evil.example"), cookie], b"");
    assert_eq!(preflight.status, 405);
    assert!(preflight.header("access-control-allow-origin").is_none());
    assert_eq!(made.log(), "");
}

#[test]
fn get_changes_nothing_and_other_methods_are_refused() {
    let made = made();
    let before = snapshot(&made.run());
    for path in API.iter().filter(|path| !path.ends_with("events")) {
        made.get(path);
    }
    for path in POSTS {
        let answer = made.get(&format!("/api/runs/0/{path}"));
        let also_read = ["decisions", "map", "copies", "doubts"].contains(path);
        assert_eq!(answer.status, if also_read { 200 } else { 405 }, "{path}");
    }
    assert_eq!(snapshot(&made.run()), before);
    for method in ["PUT", "DELETE", "PATCH", "TRACE"] {
        let origin = format!("http://{}", made.host());
        let answer = made.plain(method, "/api/runs", &[("cookie", &made.cookie), ("origin", &origin)], b"");
        assert_eq!(answer.status, 405, "{method}");
    }
}

/// Every file of a folder with its contents.
fn snapshot(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(snapshot(&path));
        } else {
            all.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn every_answer_has_the_policy() {
    let made = made();
    for path in ["/", "/page.js", "/api/runs", "/no/such", "/api/runs/9/overview"] {
        let answer = made.get(path);
        let policy = answer.header("content-security-policy").unwrap_or_else(|| panic!("{path}: {}", answer.head));
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{path}");
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"), "{path}");
    }
    let refused = made.plain("GET", "/", &[], b"");
    assert!(refused.header("content-security-policy").is_some());
    // The page loads nothing from elsewhere, and has no script or style of its own that the policy would forbid.
    let page = String::from_utf8(made.get("/").body).unwrap();
    assert!(
        !page.contains("http:") && !page.contains("https:") && !page.contains("<style") && !page.contains(" style="),
        "{page}"
    );
    assert!(!page.contains("<script>") && !page.contains(" on"), "{page}");
}

#[test]
fn images_are_numbers_and_paths_lead_nowhere() {
    let made = made();
    assert_eq!(made.get("/api/runs/0/thumb/0").header("content-type"), Some("image/jpeg"));
    for path in [
        "/api/runs/0/thumb/..%2f..%2fetc%2fpasswd",
        "/api/runs/0/thumb//etc/passwd",
        "/api/runs/0/image/../../../../etc/passwd",
        "/api/runs/0/thumb/-1",
        "/api/runs/0/thumb/24",
        "/api/runs/0/image/99999999999999999999",
        "/api/runs/1/overview",
        "/api/runs/x/overview",
        "/..%2f..%2fCargo.toml",
        "/../Cargo.toml",
        "/api/runs/0/../../../config.toml",
    ] {
        let answer = made.get(path);
        assert!((400..500).contains(&answer.status), "{path}: {}", answer.head);
        assert!(!String::from_utf8_lossy(&answer.body).contains("root:"), "{path}");
    }
}

#[test]
fn a_strangers_run_shows_no_other_images_of_mine() {
    let secret = tempfile::tempdir().unwrap();
    image::RgbImage::from_pixel(50, 50, image::Rgb([1, 2, 3])).save(secret.path().join("private.png")).unwrap();
    // Its settings name my folder, its list my files: their sizes and times are not those that a run of mine would know.
    let made = changed(|run| {
        let config = std::fs::read_to_string(run.join("config.toml")).unwrap();
        let line = config.lines().find(|line| line.starts_with("source = ")).unwrap().to_string();
        let stolen = config.replace(&line, &format!("source = {:?}", secret.path().display().to_string()));
        std::fs::write(run.join("config.toml"), stolen).unwrap();
        let files = std::fs::read_to_string(run.join("files.csv")).unwrap();
        let first = files.lines().nth(1).unwrap().split(',').nth(2).unwrap().to_string();
        std::fs::write(run.join("files.csv"), files.replace(&first, "private.png")).unwrap();
        let stamps = std::fs::read_to_string(run.join("stamps.csv")).unwrap();
        std::fs::write(run.join("stamps.csv"), stamps.replace(&first, "private.png")).unwrap();
    });
    for row in 0..24 {
        assert_eq!(made.get(&format!("/api/runs/0/thumb/{row}")).status, 422, "{row}");
    }
    let overview = made.get("/api/runs/0/overview").json();
    assert_eq!(overview["pictures"]["found"], 0, "{overview}");
    // Names that climb are looked up in the listing, and are not there.
    let climbing = changed(|run| {
        for name in ["files.csv", "stamps.csv"] {
            let text = std::fs::read_to_string(run.join(name)).unwrap();
            std::fs::write(run.join(name), text.replace("blue/", "../photos/blue/")).unwrap();
        }
    });
    assert_eq!(climbing.get("/api/runs/0/overview").json()["pictures"]["found"], 16);
}

#[cfg(unix)]
#[test]
fn a_strangers_links_are_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim");
    std::fs::write(&victim, "dear diary\n").unwrap();
    for name in ["files.csv", "embeddings.npy", "metrics.jsonl", "clusters/r0-e001.npz"] {
        let made = changed(|run| {
            // A link that is made after the server has started is refused as well.
            assert!(run.join("files.csv").exists());
        });
        let path = made.run().join(name);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let answer = made.get("/api/runs/0/names");
        assert_eq!(answer.status, 422, "{name}: {}", answer.head);
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(said.contains("leads out of the run folder") && !said.contains("dear"), "{said}");
    }
    // Nothing is written through links: neither decisions, nor the map, nor exports.
    let made = made();
    std::os::unix::fs::symlink(&victim, made.run().join("map.npz")).unwrap();
    assert_eq!(made.post("/api/runs/0/map", "application/json", b"{}").status, 422, "the map");
    std::fs::remove_file(made.run().join("map.npz")).unwrap();
    for name in [decisions::FILE, "decided-1"] {
        std::os::unix::fs::symlink(&victim, made.run().join(name)).unwrap();
    }
    assert_ne!(made.decide(r#"{"by":"t","op":"mark","rows":[0],"mark":"keep"}"#).status, 200);
    std::fs::remove_file(made.run().join(decisions::FILE)).unwrap();
    let exported = made.post("/api/runs/0/export", "application/json", b"{\"links\":true}");
    assert!(exported.json()["folder"].as_str().unwrap().ends_with("decided-2"), "{}", exported.head);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "dear diary\n");
    let entries = std::fs::read_dir(outside.path()).unwrap().count();
    assert_eq!(entries, 1);
}

#[test]
fn bodies_and_heads_have_limits() {
    let made = made();
    let origin = format!("http://{}", made.host());
    let announced = format!(
        "POST /api/runs/0/decisions HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\norigin: {origin}\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\nconnection: close\r\n\r\n",
        made.host(),
        made.cookie
    );
    assert!(made.raw(announced.as_bytes()).starts_with(b"HTTP/1.1 413"));
    let long = vec![b' '; (16 << 20) + 1];
    let answer = made.post("/api/runs/0/decisions", "application/json", &long);
    assert_eq!(answer.status, 413);
    // A length that is not announced is not taken at all.
    let mut chunked = format!(
        "POST /api/runs/0/export HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\norigin: {origin}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
        made.host(),
        made.cookie
    )
    .into_bytes();
    chunked.extend_from_slice(b"1000\r\n");
    chunked.extend(vec![b' '; 0x1000]);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    assert!(made.raw(&chunked).starts_with(b"HTTP/1.1 501"));
    let endless = format!("GET / HTTP/1.1\r\nhost: {}\r\nx: {}\r\n\r\n", made.host(), "a".repeat(100_000));
    let answer = made.raw(endless.as_bytes());
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(made.get("/api/runs").status, 200, "and it still answers");
}

#[test]
fn a_client_that_dawdles_is_let_go_and_others_are_served() {
    let made = made();
    let mut slow: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(made.server.address()).unwrap()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"GET / HT").unwrap());
    assert_eq!(made.get("/api/runs").status, 200);
    let began = Instant::now();
    slow[0].set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    let mut answer = Vec::new();
    let _ = slow[0].read_to_end(&mut answer);
    assert!(began.elapsed() < Duration::from_secs(35), "it was never let go");
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn broken_requests_and_bodies_are_refused_and_change_nothing() {
    let made = made();
    for bytes in [&b"\x00\x01\x02\r\n\r\n"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"{}"] {
        let mut stream = TcpStream::connect(made.server.address()).unwrap();
        stream.write_all(bytes).unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    }
    for body in [
        "",
        "{}",
        "[]",
        r#"{"by":"t","op":"mark"}"#,
        r#"{"by":"t","op":"mark","rows":[24],"mark":"keep"}"#,
        r#"{"by":"t","op":"mark","rows":[-1],"mark":"keep"}"#,
        r#"{"by":"t","op":"mark","rows":[],"mark":"keep"}"#,
        r#"{"by":"t","op":"mark","rows":[0],"mark":"burn"}"#,
        r#"{"by":"","op":"mark","rows":[0],"mark":"keep"}"#,
        r#"{"by":"../../x","op":"mark","rows":[0],"mark":"keep"}"#,
        r#"{"by":"t","op":"label","rows":[0],"label":"a\nb"}"#,
        r#"{"by":"t","op":"name","cluster":4294967295,"name":"x"}"#,
        r#"{"by":"t","op":"same","rows":[0],"of":0}"#,
        r#"{"by":"t","op":"delete","rows":[0]}"#,
    ] {
        assert_eq!(made.decide(body).status, 400, "{body}");
    }
    assert_eq!(made.log(), "");
    for picture in [
        &b"no picture"[..],
        b"",
        &[0xff; 3000],
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff",
    ] {
        assert_eq!(made.post("/api/runs/0/search", "image/png", picture).status, 422);
    }
    assert_eq!(made.post("/api/runs/0/stop", "application/json", b"{}").status, 400, "it trains nothing");
}
