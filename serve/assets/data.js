"use strict";
// What the page knows of a run: columns of numbers for all images, their names, the map, the decisions. Images are numbered; pictures are
// asked for by number.

/// This tab, for undo: it keeps its name when it is loaded again.
const TAB = (() => {
  const made = () => [...crypto.getRandomValues(new Uint8Array(8))].map((b) => b.toString(16).padStart(2, "0")).join("");
  try {
    const known = sessionStorage.getItem("pcp-tab") || made();
    sessionStorage.setItem("pcp-tab", known);
    return known;
  } catch { return made(); }
})();
const NONE = 0xffffffff;
const MARKS = ["", "keep", "remove"];

/// The run on show.
const S = { runs: [], id: 0, overview: null, n: 0, names: null, map: null, state: null };

const api = (path) => `/api/runs/${S.id}/${path}`;
const thumb = (row) => api(`thumb/${row}?v=${S.pictures}`);
const whole = (row) => api(`image/${row}?v=${S.pictures}`);

/// Asks the server; an error is said, and thrown.
async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    say("The server does not answer: it may have been ended. Start it again, and open the link that it prints.", true);
    throw new Error("no answer");
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let reason = text;
  try { const { error, hint } = JSON.parse(text); reason = hint ? `${error}: ${hint}` : error; } catch { /* plain text */ }
  say(reason, true);
  throw new Error(reason);
}
const get = async (path) => (await ask(path)).json();
const post = async (path, body) => (await ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body || {}) })).json();

let saidUntil = 0;
/// Shows a sentence for a while.
function say(text, wrong) {
  const box = document.getElementById("say");
  box.textContent = text;
  box.classList.toggle("wrong", !!wrong);
  box.hidden = false;
  const until = saidUntil = Date.now() + (wrong ? 8000 : 3200);
  setTimeout(() => { if (saidUntil === until) box.hidden = true; }, wrong ? 8000 : 3200);
}

/// Reads summary, columns and decisions. What is known is replaced at once, so that a view never sees half of it.
async function loadRun() {
  const id = S.id, overview = await get(api("overview")), n = overview.count;
  const [bytes, decisions] = await Promise.all([n ? ask(api("columns")).then((answer) => answer.arrayBuffer()) : null, get(api(`decisions?by=${TAB}`))]);
  if (id !== S.id) return;
  S.overview = overview;
  S.n = n;
  S.pictures = overview.version;
  let at = 0;
  const take = (Kind, size) => { const out = bytes && bytes.byteLength >= at + n * size ? new Kind(bytes, at, n) : new Kind(n); at += n * size; return out; };
  S.cluster0 = take(Uint32Array, 4);
  S.label0 = take(Uint32Array, 4);
  S.distance = take(Float32Array, 4);
  S.vote = take(Float32Array, 4);
  S.doubt = take(Float32Array, 4);
  S.status = take(Uint8Array, 1);
  if (S.names && S.names.length !== n) S.names = null;
  applyDecisions(decisions);
}

/// Names are many, and wanted later than the rest.
async function loadNames() {
  if (!S.names && S.n) S.names = await get(api("names"));
  return S.names;
}
const nameOf = (row) => (S.names ? S.names[row] : `image ${row + 1}`);

/// The places of all images; null without embeddings.
async function loadMap() {
  if (!S.overview.embedded) { S.map = null; return; }
  const answer = await fetch(api("map"));
  if (!answer.ok) { S.map = null; return; }
  const places = new Uint16Array(await answer.arrayBuffer()), n = S.n;
  S.map = {
    kind: answer.headers.get("x-map"),
    xs: Float32Array.from(places.subarray(0, n), (v) => 0.03 + 0.94 * v / 65535),
    ys: Float32Array.from(places.subarray(n), (v) => 0.97 - 0.94 * v / 65535),
  };
  if (S.map.kind !== "tsne") post(api("map"));
}

/// Lays the decisions over the columns.
function applyDecisions(d) {
  const n = S.n;
  S.decided = d;
  S.mark = new Uint8Array(n);
  S.same = new Int32Array(n).fill(-1);
  for (const [row, mark] of Object.entries(d.marks)) S.mark[row] = MARKS.indexOf(mark);
  for (const [row, of] of Object.entries(d.same)) S.same[row] = of == null ? -1 : of;
  S.cluster = S.cluster0.slice();
  for (const [row, to] of Object.entries(d.moved)) S.cluster[row] = to;
  const merged = new Map(Object.entries(d.merged).map(([from, to]) => [Number(from), to]));
  const root = (c) => { while (merged.has(c)) c = merged.get(c); return c; };
  if (merged.size) for (let row = 0; row < n; row++) S.cluster[row] = root(S.cluster[row]);
  S.classes = (S.overview.classes || []).slice();
  S.label = S.label0.slice();
  const known = new Map(S.classes.map((c, i) => [c, i]));
  for (const [row, label] of Object.entries(d.labels)) {
    if (!known.has(label)) { known.set(label, S.classes.length); S.classes.push(label); }
    S.label[row] = known.get(label);
  }
  S.labelled = S.classes.length > 0;
  document.getElementById("undo").disabled = !d.can_undo;
  document.getElementById("redo").disabled = !d.can_redo;
}

/// What a cluster is called.
const clusterName = (c) => (S.decided.names[c] ? `${S.decided.names[c]} (${c})` : `Cluster ${c}`);
const labelName = (row) => (S.label[row] === NONE ? null : S.classes[S.label[row]]);

/// The clusters as they are now, the largest first: `{id, rows, counts}`.
function clusters() {
  const found = new Map();
  if (!S.overview.clustered) return [];
  for (let row = 0; row < S.n; row++) {
    let c = found.get(S.cluster[row]);
    if (!c) found.set(S.cluster[row], c = { id: S.cluster[row], rows: [], counts: [0, 0, 0, 0, 0] });
    c.rows.push(row);
    c.counts[S.status[row]]++;
  }
  return [...found.values()].sort((a, b) => b.rows.length - a.rows.length || a.id - b.id);
}

/// The facts about an image, as lines.
function about(row) {
  const out = [];
  if (labelName(row)) out.push(labelName(row) + (S.label[row] !== S.label0[row] ? " (decided)" : ""));
  if (S.overview.clustered) out.push(`${clusterName(S.cluster[row])}, ${STATUS[S.status[row]]}`);
  const numbers = [];
  if (!Number.isNaN(S.distance[row])) numbers.push(`distance ${S.distance[row].toFixed(3)}`);
  if (!Number.isNaN(S.vote[row])) numbers.push(`vote ${S.vote[row].toFixed(2)}`);
  if (!Number.isNaN(S.doubt[row])) numbers.push(`doubt ${S.doubt[row].toFixed(2)}`);
  if (numbers.length) out.push(numbers.join(", "));
  if (S.mark[row]) out.push(`marked: ${MARKS[S.mark[row]]}`);
  if (S.same[row] >= 0) out.push(`a copy of ${nameOf(S.same[row])}`);
  return out;
}
