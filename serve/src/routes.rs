//! What is asked and answered. GET changes nothing; every other request is a POST from our own page.

use crate::access::{Access, Verdict};
use crate::catalogue::Catalogue;
use crate::layout::{Layout, LayoutKind};
use crate::reply::{Reply, ReplyBody};
use crate::request::{Asked, Method};
use crate::server::Body;
use crate::subject::{Subject, View, locked};
use crate::{decide, findings, live, search};
use pcp_core::cancel::Cancel;
use pcp_core::error::{Error, Result};
use pcp_core::purify::Status;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

/// Bytes of a decision, and of a picture, at the most.
const DECISION: usize = 16 << 20;
const PICTURE: usize = 64 << 20;
/// Pictures that are decoded at the same time.
const DECODERS: usize = 2;
/// Images that are listed of every kind of change.
const CHANGES: usize = 200;

/// Files of the page.
const ASSETS: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("../assets/page.html")),
    ("/report.css", "text/css; charset=utf-8", pcp::report::STYLE),
    ("/page.css", "text/css; charset=utf-8", include_str!("../assets/page.css")),
    ("/draw.js", "text/javascript; charset=utf-8", pcp::report::DRAWING),
    ("/data.js", "text/javascript; charset=utf-8", include_str!("../assets/data.js")),
    ("/grid.js", "text/javascript; charset=utf-8", include_str!("../assets/grid.js")),
    ("/decide.js", "text/javascript; charset=utf-8", include_str!("../assets/decide.js")),
    ("/views.js", "text/javascript; charset=utf-8", include_str!("../assets/views.js")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("../assets/page.js")),
];

/// What a browser sees that has brought the token: it loads the page anew, now from here, so that the cookie is sent along.
const WELCOME: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>pcp</title><meta http-equiv=\"refresh\" content=\"0;url=/\">";

/// At most a few at a time; the others wait.
struct Gate {
    free: Mutex<usize>,
    left: Condvar,
}

impl Gate {
    /// Calls `act` when there is room.
    fn pass<T>(&self, act: impl FnOnce() -> T) -> T {
        let mut free = locked(&self.free);
        while *free == 0 {
            free = self.left.wait(free).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        *free -= 1;
        drop(free);
        // Also after a panic, which the connection catches.
        let _room = Room(self);
        act()
    }
}

/// Room behind a gate, given back when it is dropped.
struct Room<'a>(&'a Gate);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        *locked(&self.0.free) += 1;
        self.0.left.notify_one();
    }
}

/// Everything that answers need.
pub struct App {
    catalogue: Arc<Catalogue>,
    access: Arc<Access>,
    end: Cancel,
    decoders: Gate,
}

impl App {
    /// Answers about `catalogue`, until `end` is requested.
    pub fn new(catalogue: Arc<Catalogue>, access: Arc<Access>, end: Cancel) -> App {
        App { catalogue, access, end, decoders: Gate { free: Mutex::new(DECODERS), left: Condvar::new() } }
    }

    /// Answers an admitted request; refuses all others.
    pub fn answer(&self, asked: &Asked, body: &mut Body) -> Reply {
        match self.access.judge(asked) {
            Verdict::Admit => self.route(asked, body).unwrap_or_else(|e| Reply::error(&e)),
            Verdict::Welcome => {
                let page = Reply::of("text/html; charset=utf-8", ReplyBody::Fixed(WELCOME));
                page.with("set-cookie", self.access.cookie())
            }
            Verdict::Refuse(reason) => {
                let status = if asked.method == Method::Other { 405 } else { 403 };
                let text = ReplyBody::Own(format!("{reason}\n").into_bytes());
                Reply::of("text/plain; charset=utf-8", text).status(status)
            }
        }
    }

    fn route(&self, asked: &Asked, body: &mut Body) -> Result<Reply> {
        let post = asked.method == Method::Post;
        if let Some((_, kind, text)) = ASSETS.iter().find(|(path, _, _)| *path == asked.path) {
            return Ok(if post { not_so() } else { Reply::of(kind, ReplyBody::Fixed(text)) });
        }
        let parts: Vec<&str> = asked.path.split('/').skip(1).collect();
        let (id, what) = match parts.as_slice() {
            ["api", "runs"] => return Ok(if post { not_so() } else { self.runs() }),
            ["api", "runs", id, what @ ..] => (id, what),
            _ => return Ok(Reply::missing()),
        };
        let Some(subject) = number(id).and_then(|id| self.catalogue.get(id)) else { return Ok(Reply::missing()) };
        match (post, what) {
            (false, ["thumb", row]) => {
                let Some(row) = number(row) else { return Ok(Reply::missing()) };
                let gallery = subject.gallery()?;
                self.decoders.pass(|| gallery.thumbnail(row)).map(Reply::picture)
            }
            (false, ["image", row]) => {
                let Some(row) = number(row) else { return Ok(Reply::missing()) };
                let gallery = subject.gallery()?;
                self.decoders.pass(|| gallery.whole(row)).map(|jpeg| Reply::picture(Arc::new(jpeg)))
            }
            (false, ["neighbours", row]) => neighbours(&subject, row, asked),
            (false, ["events"]) => {
                let stream = live::events(subject, self.end.clone());
                Ok(Reply::of("text/event-stream", ReplyBody::Events(stream)))
            }
            (false, [what]) => read(&subject, what, asked),
            (true, ["search"]) => match contents(asked, body, &["image/", "application/octet-stream"], PICTURE) {
                Ok(bytes) => {
                    self.decoders.pass(|| search::by_picture(&subject, &bytes, 96)).map(|found| Reply::json(&found))
                }
                Err(refusal) => Ok(refusal),
            },
            (true, [what]) => match contents(asked, body, &["application/json"], DECISION) {
                Ok(bytes) => change(&subject, what, &bytes),
                Err(refusal) => Ok(refusal),
            },
            _ => Ok(Reply::missing()),
        }
    }

    fn runs(&self) -> Reply {
        let one = |subject: &Arc<Subject>| {
            let training = subject.watch.is_some();
            json!({ "id": subject.id, "name": subject.name, "training": training, "matrix": subject.folder().is_none() })
        };
        Reply::json(&json!({
            "runs": self.catalogue.list().iter().map(one).collect::<Vec<_>>(),
            "version": env!("CARGO_PKG_VERSION"),
        }))
    }
}

/// A number in a path: digits alone.
fn number(text: &str) -> Option<usize> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// A thing that is there, but not by this method.
fn not_so() -> Reply {
    Reply::refused(405, "this is not done so")
}

/// The body of a request of one of these kinds, within its limit.
fn contents(asked: &Asked, body: &mut Body, kinds: &[&str], most: usize) -> std::result::Result<Vec<u8>, Reply> {
    let kind = asked.only("content-type").unwrap_or_default();
    if !kinds.iter().any(|known| kind.starts_with(known)) {
        return Err(Reply::refused(415, "this kind of contents is not taken"));
    }
    body.take(most)
}

/// Answers that change nothing.
fn read(subject: &Arc<Subject>, what: &str, asked: &Asked) -> Result<Reply> {
    match what {
        "overview" => Ok(overview(subject, subject.view()?.as_ref())),
        "columns" => Ok(columns(subject.view()?.as_ref())),
        "names" => Ok(Reply::json(&subject.view()?.names)),
        "map" => {
            let view = subject.view()?;
            let Some(found) = subject.layout.get(subject, &view) else { return Ok(Reply::missing()) };
            let kind = if found.kind == LayoutKind::Tsne { "tsne" } else { "components" };
            let bytes = found.places.iter().flat_map(|x| x.to_le_bytes()).collect();
            Ok(Reply::numbers(bytes).with("x-map", kind.to_string()))
        }
        "changes" => Ok(changes(subject.view()?.as_ref())),
        "copies" => Ok(Reply::json(&subject.copies.state())),
        "doubts" => Ok(Reply::json(&subject.doubts.state())),
        "decisions" => {
            let by = asked.query("by").unwrap_or_default();
            Ok(Reply::json(&decide::state(subject, subject.view()?.as_ref(), by)?))
        }
        "decisions.csv" => {
            let (images, decided) = decide::decided(subject)?;
            Ok(Reply::download("text/csv; charset=utf-8", "decisions.csv", decided.table(&images)))
        }
        "keep.txt" | "remove.txt" => {
            let (images, decided) = decide::decided(subject)?;
            let (name, stay) = if what == "keep.txt" { ("keep.txt", true) } else { ("remove.txt", false) };
            Ok(Reply::download("text/plain; charset=utf-8", name, decided.list(&images, stay)))
        }
        "search" | "export" | "stop" => Ok(not_so()),
        _ => Ok(Reply::missing()),
    }
}

/// Answers that change something, or begin work.
fn change(subject: &Arc<Subject>, what: &str, bytes: &[u8]) -> Result<Reply> {
    match what {
        "decisions" => return Ok(Reply::json(&decide::decide(subject, bytes)?)),
        "export" => {
            let asked: Value = serde_json::from_slice(bytes).unwrap_or_default();
            let links = asked["links"].as_bool().unwrap_or(false);
            return Ok(Reply::json(&json!({ "folder": decide::export(subject, links)? })));
        }
        "map" => Layout::begin(subject, &subject.view()?),
        "copies" => findings::find_copies(subject)?,
        "doubts" => findings::find_doubts(subject)?,
        "stop" => match &subject.watch {
            Some(watch) => watch.stop(),
            None => {
                let hint = "stop it where it was started, with Ctrl-C";
                return Err(Error::usage("this run is not trained by this process", hint));
            }
        },
        _ => return Ok(Reply::missing()),
    }
    Ok(Reply::json(&json!({})))
}

fn overview(subject: &Subject, view: &View) -> Reply {
    let mut said = view.overview.clone();
    // Runs of a folder are told apart by the names of their folders.
    said["name"] = subject.name.as_str().into();
    said["version"] = view.version.into();
    said["count"] = view.names.len().into();
    said["finished"] = view.finished.into();
    said["classes"] = view.labels.as_ref().map_or(Value::Null, |labels| json!(labels.classes));
    said["clustered"] = view.grouping.is_some().into();
    said["embedded"] = view.features.is_some().into();
    said["searchable"] = (view.features.is_some() && subject.folder().is_some()).into();
    said["compared"] = view.before.is_some().into();
    said["pictures"] = match subject.gallery() {
        Ok(gallery) => json!({ "found": gallery.found(), "note": gallery.note }),
        Err(e) => json!({ "found": 0, "note": format!("There are no pictures: {}.", e.message) }),
    };
    Reply::json(&said)
}

/// Cluster, label (u32; the greatest for none), distance, vote, doubt (f32) and status (u8) of all rows, column by column.
fn columns(view: &View) -> Reply {
    let (n, grouping) = (view.names.len(), view.grouping.as_ref());
    let mut out = Vec::with_capacity(n * 21);
    let whole = |out: &mut Vec<u8>, x: u32| out.extend_from_slice(&x.to_le_bytes());
    let real = |out: &mut Vec<u8>, x: f32| out.extend_from_slice(&x.to_le_bytes());
    (0..n).for_each(|row| whole(&mut out, grouping.map_or(u32::MAX, |g| g.cluster[row])));
    (0..n).for_each(|row| whole(&mut out, view.labels.as_ref().map_or(u32::MAX, |l| l.of[row])));
    (0..n).for_each(|row| real(&mut out, grouping.map_or(f32::NAN, |g| g.distance[row])));
    (0..n).for_each(|row| real(&mut out, grouping.map_or(f32::NAN, |g| g.vote[row])));
    (0..n).for_each(|row| real(&mut out, view.doubt.get(row).copied().unwrap_or(f32::NAN)));
    out.extend((0..n).map(|row| grouping.map_or(Status::Instance, |g| g.status[row]) as u8));
    Reply::numbers(out)
}

fn neighbours(subject: &Subject, row: &str, asked: &Asked) -> Result<Reply> {
    let count = asked.query("k").and_then(number).unwrap_or(48);
    let view = subject.view()?;
    let features = search::features(&view)?;
    Ok(match number(row).filter(|row| *row < features.rows) {
        Some(row) => Reply::json(&search::like(features, features.row(row), count, Some(row))),
        None => Reply::missing(),
    })
}

/// Images whose status changed between the last two clusterings: how many of every kind of change, and some of them.
fn changes(view: &View) -> Reply {
    let (Some(now), Some(before)) = (&view.grouping, &view.before) else { return Reply::json(&json!([])) };
    let mut kinds: BTreeMap<(u8, u8), (usize, Vec<usize>)> = BTreeMap::new();
    for (row, (old, new)) in before.status.iter().zip(&now.status).enumerate().filter(|(_, (old, new))| old != new) {
        let (count, rows) = kinds.entry((*old as u8, *new as u8)).or_default();
        *count += 1;
        if rows.len() < CHANGES {
            rows.push(row);
        }
    }
    let shown = kinds.into_iter().map(|((old, new), (count, rows))| json!([old, new, count, rows]));
    Reply::json(&shown.collect::<Vec<_>>())
}
