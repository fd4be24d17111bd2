"use strict";
// The page: which run, which view, what the server tells, dropped pictures, keys that work everywhere.

let shown = null, showing = "", stream = null, wanted = 0;

const TABS = [
  ["overview", "Overview", () => true],
  ["explore", "Explore", () => S.n > 0],
  ["clusters", "Clusters", () => S.overview.clustered],
  ["copies", "Copies", () => S.overview.embedded],
  ["labels", "Labels", () => S.overview.embedded && S.overview.classes],
  ["changes", "Changes", () => S.overview.compared],
];

/// Shows a view; the address keeps it, so that going back and loading again work.
function go(view) {
  const hash = `#${S.id}/${view}`;
  if (location.hash === hash) draw(view); else location.hash = hash;
}

function tabs() {
  const links = TABS.filter(([, , there]) => there()).map(([view, name]) => el("a", { href: `#${S.id}/${view}`, class: view === showing ? "here" : "", "aria-current": view === showing ? "page" : null }, name));
  document.getElementById("tabs").replaceChildren(...links);
  const brand = document.getElementById("brand");
  if (S.runs.length > 1) {
    const field = el("select", { "aria-label": "Run", onchange: () => { location.hash = `#${field.value}/${showing || "overview"}`; } }, S.runs.map((run) => el("option", { value: run.id }, run.name)));
    field.value = S.id;
    brand.replaceChildren(field);
  } else brand.textContent = S.runs[0].name;
}

function draw(view) {
  if (!TABS.some(([name, , there]) => name === view && there())) view = S.n && S.overview.finished ? "explore" : "overview";
  if (shown && shown.leave) shown.leave();
  ON_THEME.length = 0;
  showing = view;
  tabs();
  const page = document.getElementById("main");
  page.replaceChildren();
  page.className = view;
  shown = VIEWS[view](page);
  document.title = `${S.overview.name} – pcp`;
}

/// Reads the address: which run, which view.
async function route() {
  const [id, view] = location.hash.slice(1).split("/");
  const run = S.runs.find((r) => String(r.id) === id) || S.runs[0], turn = ++wanted;
  // begin() comes back when there is one.
  if (!run) return;
  if (!S.overview || run.id !== S.id) {
    Object.assign(S, { id: run.id, overview: null, names: null, map: null, state: null });
    Object.assign(E, { set: null, title: "", ranked: false });
    document.getElementById("main").replaceChildren(el("p", { class: "hint wait" }, "One moment…"));
    await loadRun();
    if (turn !== wanted || !S.overview) return;
    listen();
  }
  if ((view || "explore") === "explore" && !S.map) {
    // The sheet need not wait for the map.
    draw(view);
    loadMap().then(() => { if (turn === wanted && shown && shown.map) shown.map(); });
  } else draw(view);
}

/// Reads the run anew when its files have changed. Then it rests for 40 times as long as that took, at most 5 s: epochs may be shorter, and watching them shall cost a
/// training little. What could not be read is tried again with the next event.
let renewing = false, restsUntil = 0;
function renew() {
  renewing = true;
  setTimeout(async () => {
    const began = performance.now();
    let read = false;
    try { await loadRun(); tabs(); if (shown && shown.reload) await shown.reload(); read = true; } catch { /* it was said */ }
    const now = performance.now();
    restsUntil = now + Math.min(5000, 40 * (now - began));
    renewing = false;
    if (read && S.state && S.overview && S.state.version !== S.overview.version) renew();
  }, Math.max(0, restsUntil - performance.now()));
}

/// Hears of changes: of the files, of the training, of decisions in other tabs, of the map.
function listen() {
  if (stream) stream.close();
  stream = new EventSource(api("events"));
  const id = S.id;
  stream.onmessage = async (e) => {
    const state = JSON.parse(e.data), before = S.state;
    if (id !== S.id || !S.overview) return;
    S.state = state;
    document.body.classList.remove("lost");
    if (shown && shown.state) shown.state(state);
    if (state.version !== S.overview.version && !renewing) {
      renew();
    } else if (state.decisions !== S.decided.lines) {
      applyDecisions(await get(api(`decisions?by=${TAB}`)));
      document.dispatchEvent(new Event("decided"));
    }
    if (before && before.map !== "tsne" && state.map === "tsne") { await loadMap(); if (shown && shown.map) shown.map(); }
  };
  stream.onerror = () => document.body.classList.add("lost");
}

document.addEventListener("decided", () => { if (shown && shown.decided) shown.decided(); });
window.addEventListener("hashchange", route);

// Dropped pictures.
let over = 0;
const dropping = document.getElementById("drop"), isFile = (e) => [...(e.dataTransfer ? e.dataTransfer.types : [])].includes("Files");
document.addEventListener("dragenter", (e) => { if (isFile(e) && S.overview && S.overview.searchable) { over++; dropping.hidden = false; } });
document.addEventListener("dragleave", (e) => { if (isFile(e) && over > 0 && --over === 0) dropping.hidden = true; });
document.addEventListener("dragover", (e) => { if (isFile(e)) e.preventDefault(); });
document.addEventListener("drop", (e) => {
  if (!isFile(e)) return;
  e.preventDefault();
  over = 0;
  dropping.hidden = true;
  const file = e.dataTransfer.files[0];
  if (file && S.overview.searchable) searchPicture(file).catch(() => {});
});

// Keys that work everywhere.
document.addEventListener("keydown", (e) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) && e.target.type !== "checkbox" && e.target.type !== "range";
  const key = e.key.toLowerCase();
  if ((e.ctrlKey || e.metaKey) && key === "z" && !typing) { e.preventDefault(); if (e.shiftKey) redo(); else undo(); return; }
  if ((e.ctrlKey || e.metaKey) && key === "y" && !typing) { e.preventDefault(); redo(); return; }
  if (typing || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
  if (e.key === "?") keys();
  else if (e.key === "/") { const field = document.getElementById("filter"); if (!field) return; field.focus(); }
  else if (key === "g" && shown && shown.grid) shown.grid.list.focus();
  else return;
  e.preventDefault();
});
document.getElementById("undo").addEventListener("click", undo);
document.getElementById("redo").addEventListener("click", redo);
document.getElementById("export").addEventListener("click", exporting);
document.getElementById("help").addEventListener("click", keys);

async function begin() {
  theme();
  for (;;) {
    const { runs } = await get("/api/runs");
    S.runs = runs;
    if (runs.length) break;
    document.getElementById("main").replaceChildren(el("p", { class: "hint wait" }, "The images are being read; the run begins in a moment…"));
    await new Promise((done) => setTimeout(done, 700));
  }
  await route();
  // New runs in the folder appear by themselves.
  setInterval(async () => { try { const { runs } = await (await fetch("/api/runs")).json(); if (runs.length !== S.runs.length) { S.runs = runs; tabs(); } } catch { /* the stream says it */ } }, 5000);
}
begin();
