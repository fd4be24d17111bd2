//! The server as the page uses it.

use super::made::{IMAGES, made};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Asks again until `done`, for some seconds.
fn until(ask: impl Fn() -> Value, done: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let said = ask();
        if done(&said) {
            return said;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{said}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

#[test]
fn a_run_is_shown_with_its_numbers_names_map_and_pictures() {
    let made = made();
    let runs = made.get("/api/runs").json();
    assert_eq!(runs["runs"][0]["name"], "run", "{runs}");
    let overview = made.get("/api/runs/0/overview").json();
    assert_eq!(
        (overview["count"].as_u64(), overview["pictures"]["found"].as_u64()),
        (Some(24), Some(24)),
        "{overview}"
    );
    assert_eq!(overview["classes"], json!(["blue", "green", "red"]));
    assert_eq!(made.get("/api/runs/0/columns").body.len(), IMAGES * 21);
    let names = made.get("/api/runs/0/names").json();
    assert_eq!(names[0], "blue/11.png", "{names}");
    let map = made.get("/api/runs/0/map");
    assert_eq!((map.header("x-map"), map.body.len()), (Some("components"), IMAGES * 4));
    assert_eq!(made.post("/api/runs/0/map", "application/json", b"{}").status, 200);
    let state = |kind: &'static str| move |answer: &Value| answer["map"] == kind;
    until(|| json!({ "map": made.get("/api/runs/0/map").header("x-map") }), state("tsne"));
    assert!(made.run().join("map.npz").exists());
    for row in 0..IMAGES {
        let small = made.get(&format!("/api/runs/0/thumb/{row}"));
        let picture = image::load_from_memory(&small.body).unwrap();
        assert_eq!(picture.height(), 30);
    }
    assert!(made.get("/api/runs/0/thumb/0").header("cache-control").unwrap().contains("immutable"));
    let whole = image::load_from_memory(&made.get("/api/runs/0/image/3").body).unwrap();
    assert_eq!(whole.height(), 30);
}

#[test]
fn what_is_alike_is_found_by_row_and_by_picture() {
    let made = made();
    let near = made.get("/api/runs/0/neighbours/0?k=5").json();
    assert_eq!(near.as_array().unwrap().len(), 5);
    assert!(near.as_array().unwrap().iter().all(|pair| pair[0] != 0), "{near}");
    assert_eq!(made.get("/api/runs/0/neighbours/24").status, 404);
    // A picture of the run finds itself.
    let config = std::fs::read_to_string(made.run().join("config.toml")).unwrap();
    let source = config.lines().find_map(|line| line.strip_prefix("source = ")).unwrap().trim_matches('"').to_string();
    let names = made.get("/api/runs/0/names").json();
    let file = std::path::Path::new(&source).join(names[5].as_str().unwrap());
    let found = made.post("/api/runs/0/search", "image/png", &std::fs::read(file).unwrap());
    assert_eq!(found.status, 200, "{}", String::from_utf8_lossy(&found.body));
    assert_eq!(found.json()[0][0], 5);
}

#[test]
fn copies_and_wrong_labels_are_found_on_demand() {
    let made = made();
    for path in ["copies", "doubts"] {
        let path = format!("/api/runs/0/{path}");
        assert_eq!(made.get(&path).json()["state"], "idle");
        assert_eq!(made.post(&path, "application/json", b"{}").status, 200);
        let found = until(|| made.get(&path).json(), |said| said["state"] != "working");
        assert_eq!(found["state"], "done", "{found}");
        assert!(found["found"]["about"].as_str().unwrap().len() > 20, "{found}");
    }
    assert!(made.get("/api/runs/0/changes").json().is_array());
}

#[test]
fn decisions_are_written_undone_and_seen_by_other_tabs() {
    let made = made();
    let state = made.decide(r#"{"by":"a","op":"mark","rows":[0,1],"mark":"remove"}"#).json();
    assert_eq!(state["marks"], json!({ "0": "remove", "1": "remove" }));
    made.decide(r#"{"by":"b","op":"label","rows":[2],"label":"cat"}"#);
    let state = made.decide(r#"{"by":"a","op":"undo"}"#).json();
    assert_eq!((&state["marks"], &state["labels"]), (&json!({}), &json!({ "2": "cat" })), "its own is undone");
    let state = made.decide(r#"{"by":"a","op":"redo"}"#).json();
    assert_eq!(state["marks"].as_object().unwrap().len(), 2);
    for body in [
        r#"{"by":"a","op":"same","rows":[4],"of":3}"#,
        r#"{"by":"a","op":"name","cluster":0,"name":"Reds"}"#,
        r#"{"by":"a","op":"merge","clusters":[1,0],"into":0}"#,
        r#"{"by":"a","op":"move","rows":[5],"to":77}"#,
    ] {
        assert_eq!(made.decide(body).status, 200, "{body}");
    }
    let state = made.get("/api/runs/0/decisions?by=c").json();
    assert_eq!(
        (&state["same"]["4"], &state["names"]["0"], &state["moved"]["5"]),
        (&json!(3), &json!("Reds"), &json!(77))
    );
    assert_eq!((&state["merged"]["1"], &state["can_undo"]), (&json!(0), &json!(true)));
    assert_eq!(made.log().lines().count(), 8, "two of them are undo and redo");
    let table = String::from_utf8(made.get("/api/runs/0/decisions.csv").body).unwrap();
    assert!(table.starts_with("file,decision,label,same_as,cluster,name\n") && table.contains(",remove,"), "{table}");
    let removed = String::from_utf8(made.get("/api/runs/0/remove.txt").body).unwrap();
    assert_eq!(removed.lines().count(), 3, "two marked, one a copy: {removed}");
    let folder = made.post("/api/runs/0/export", "application/json", b"{\"links\":true}").json()["folder"].clone();
    let folder = std::path::Path::new(folder.as_str().unwrap()).to_path_buf();
    assert!(folder.starts_with(made.run().canonicalize().unwrap()) && folder.join("keep").is_dir(), "{folder:?}");
}

#[test]
fn a_stream_tells_what_changes() {
    use std::io::{BufRead, BufReader, Write};
    let made = made();
    let mut stream = std::net::TcpStream::connect(made.server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET /api/runs/0/events HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\n\r\n", made.host(), made.cookie)
        .unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok).filter(|line| line.starts_with("data: "));
    let first: Value = serde_json::from_str(&lines.next().unwrap()[6..]).unwrap();
    assert_eq!(first["decisions"], 0, "{first}");
    made.decide(r#"{"by":"a","op":"mark","rows":[0],"mark":"keep"}"#);
    let second: Value = serde_json::from_str(&lines.next().unwrap()[6..]).unwrap();
    assert_eq!(second["decisions"], 1, "{second}");
    std::fs::write(made.run().join("warnings.jsonl"), "").unwrap();
    let third: Value = serde_json::from_str(&lines.next().unwrap()[6..]).unwrap();
    assert_ne!(third["version"], first["version"], "{third}");
}
