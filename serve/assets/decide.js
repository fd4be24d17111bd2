"use strict";
// Decisions: keep, remove, label, copies, clusters; undo and redo; the dialogs that ask for words; the picture at full size; exports.

const ACTS = [
  ["1", "Keep", "belongs, whatever purification says"],
  ["2", "Remove", "is left out"],
  ["3", "Label…", "shows something else"],
  ["4", "Copies", "the selected ones are copies of the one under the cursor"],
  ["5", "New cluster", "a cluster of their own (split)"],
  ["6", "Move to…", "another cluster"],
  ["7", "Like this", "images most like the one under the cursor"],
  ["8", "Its cluster", "all images of its cluster"],
  ["9", "Full size", "the photograph itself"],
  ["0", "Clear", "takes marks, labels and moves back"],
];

/// Writes a decision, and shows what holds then.
async function decide(body, said) {
  const state = await post(api("decisions"), { by: TAB, ...body });
  applyDecisions(state);
  document.dispatchEvent(new Event("decided"));
  if (said) say(said);
}
const images = (rows) => (rows.length === 1 ? nameOf(rows[0]).split("/").pop() : `${count(rows.length)} images`);

/// What a key does to images.
async function act(key, rows, cursor) {
  if (!rows.length) return;
  if (key === "1") await decide({ op: "mark", rows, mark: "keep" }, `Keep: ${images(rows)}`);
  else if (key === "2") await decide({ op: "mark", rows, mark: "remove" }, `Remove: ${images(rows)}`);
  else if (key === "3") {
    const label = await askFor("Label", `What do ${images(rows)} show?`, S.classes, rows.length === 1 ? labelName(rows[0]) || "" : "");
    if (label != null) await decide({ op: "label", rows, label: label || null }, label ? `${label}: ${images(rows)}` : "The label is as before");
  } else if (key === "4") {
    const copies = rows.filter((row) => row !== cursor);
    if (copies.length) await decide({ op: "same", rows: copies, of: cursor }, `Copies of ${images([cursor])}: ${images(copies)}`);
    else say("Select the copies, then put the cursor on the image that stays.");
  } else if (key === "5") {
    const id = 1 + Math.max(-1, ...Object.values(S.decided.moved), greatestCluster());
    const name = await askFor("New cluster", `A name for the cluster of ${images(rows)} (may be empty)`, [], "");
    if (name == null) return;
    await decide({ op: "move", rows, to: id }, `New cluster ${id}: ${images(rows)}`);
    if (name) await decide({ op: "name", cluster: id, name });
  } else if (key === "6") {
    const all = clusters(), names = all.map((c) => clusterName(c.id));
    const name = await askFor("Move", `Which cluster do ${images(rows)} belong to?`, names, "");
    const found = name && all[names.indexOf(name)] || name && all.find((c) => String(c.id) === name);
    if (found) await decide({ op: "move", rows, to: found.id }, `${clusterName(found.id)}: ${images(rows)}`);
    else if (name) say(`There is no cluster called ${name}.`, true);
  } else if (key === "7") showLike(cursor);
  else if (key === "8") showCluster(S.cluster[cursor]);
  else if (key === "9") openPicture(cursor);
  else if (key === "0") {
    if (rows.some((row) => S.mark[row])) await decide({ op: "mark", rows, mark: null });
    if (rows.some((row) => S.same[row] >= 0)) await decide({ op: "same", rows, of: null });
    if (rows.some((row) => String(row) in S.decided.labels)) await decide({ op: "label", rows, label: null });
    if (rows.some((row) => String(row) in S.decided.moved)) await decide({ op: "move", rows, to: null });
    say(`Cleared: ${images(rows)}`);
  }
}
function greatestCluster() {
  let most = -1;
  for (let row = 0; row < S.n; row++) if (S.cluster0[row] !== NONE && S.cluster0[row] > most) most = S.cluster0[row];
  return most;
}
async function undo() { await decide({ op: "undo" }, "Undone"); }
async function redo() { await decide({ op: "redo" }, "Redone"); }

/// A dialog that closes by Escape, its button or a click beside it; resolves when it is closed.
function dialog(title, kind, ...children) {
  const close = el("button", { type: "button", class: "close", "aria-label": "Close" }, "✕");
  const box = el("dialog", { class: kind, "aria-label": title }, el("div", { class: "inside" }, close, ...children));
  close.addEventListener("click", () => box.close());
  box.addEventListener("click", (e) => { if (e.target === box) box.close(); });
  document.body.append(box);
  const back = document.activeElement;
  box.showModal();
  const closed = new Promise((done) => box.addEventListener("close", () => { box.remove(); if (back && back.isConnected) back.focus(); done(); }));
  return { box, closed };
}

/// Asks for a word; null when nothing was decided.
async function askFor(title, question, known, value) {
  const options = el("datalist", { id: "known" }, known.slice(0, 2000).map((k) => el("option", { value: k })));
  const field = el("input", { type: "text", list: "known", maxlength: 200, autocomplete: "off", "aria-label": question });
  field.value = value;
  let answer = null;
  const form = el("form", { method: "dialog" }, el("h2", {}, title), el("p", { class: "hint" }, question), field, options,
    el("div", { class: "tools end" }, el("button", { type: "submit", class: "main" }, "Decide")));
  const { box, closed } = dialog(title, "small-dialog", form);
  form.addEventListener("submit", (e) => { e.preventDefault(); answer = field.value.trim(); box.close(); });
  field.focus();
  field.select();
  await closed;
  return answer;
}

/// The picture itself, with what is known about it and what is like it. `next(step)` gives the image before or after.
function openPicture(row, next) {
  const picture = el("img", { alt: "" }), title = el("h2", {}), facts = el("div", { class: "facts" }), near = el("div", { class: "strip" });
  const buttons = ACTS.filter(([key]) => "1230".includes(key)).map(([key, name, means]) => el("button", { type: "button", title: `${means} (${key})`, onclick: () => mark(key) }, name, el("kbd", {}, key)));
  const turn = next ? [el("button", { type: "button", "aria-label": "Previous image", onclick: () => go(-1) }, "←"), el("button", { type: "button", "aria-label": "Next image", onclick: () => go(1) }, "→")] : [];
  const { box, closed } = dialog("Picture", "lightbox", el("div", { class: "stage" }, picture), el("div", { class: "side" }, title, facts, el("div", { class: "tools" }, turn, buttons), el("h3", {}, "Most alike"), near));
  const say = () => { title.textContent = nameOf(row).split("/").pop(); facts.replaceChildren(el("div", { class: "small" }, nameOf(row)), ...about(row).map((line) => el("div", {}, line))); };
  async function show(to) {
    row = to;
    picture.src = whole(row);
    picture.alt = nameOf(row);
    say();
    near.replaceChildren();
    if (!S.overview.embedded) return;
    const found = await get(api(`neighbours/${row}?k=12`)), asked = row;
    if (asked === row) near.replaceChildren(...found.map(([other, cosine]) => el("button", { type: "button", class: "mini", title: `${nameOf(other)}\ncosine ${cosine.toFixed(2)}`, "aria-label": `${nameOf(other)}, cosine ${cosine.toFixed(2)}`, onclick: () => show(other) }, el("img", { src: thumb(other), alt: "" }))));
  }
  const go = (step) => { if (next) show(next(step)); };
  const mark = async (key) => { await act(key, [row], row); say(); };
  box.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.tagName === "INPUT") return;
    if (e.key === "ArrowRight") go(1);
    else if (e.key === "ArrowLeft") go(-1);
    else if (/^[01234568]$/.test(e.key)) { if ("568".includes(e.key)) box.close(); mark(e.key); }
    else if (e.key === "7") { box.close(); showLike(row); }
    else return;
    e.preventDefault();
  });
  show(row);
  return closed;
}

/// What was decided, and ways to take it elsewhere.
function exporting() {
  const marks = Object.values(S.decided.marks), kept = marks.filter((m) => m === "keep").length, removed = marks.length - kept;
  const rows = [["Keep", kept], ["Remove", removed], ["Labels", Object.keys(S.decided.labels).length], ["Copies", Object.keys(S.decided.same).length], ["Moved to another cluster", Object.keys(S.decided.moved).length], ["Names of clusters", Object.keys(S.decided.names).length], ["Merged clusters", Object.keys(S.decided.merged).length]];
  const where = el("p", { class: "small", role: "status" });
  const write = (links) => async () => { where.textContent = "One moment…"; const { folder } = await post(api("export"), { links }); where.textContent = `Written: ${folder}`; };
  const link = (file, text) => el("a", { href: api(file), download: file, class: "button" }, text);
  dialog("Export", "small-dialog", el("h2", {}, "What was decided"), table(null, rows.map(([name, n]) => [name, count(n)])),
    el("p", { class: "hint" }, "The log itself is decisions.jsonl in the run folder; pcp purify --decisions and pcp train --decisions honour it. No image is moved or changed."),
    el("div", { class: "tools" }, link("decisions.csv", "Table (CSV)"), link("keep.txt", "List: keep"), link("remove.txt", "List: remove")),
    el("div", { class: "tools" }, el("button", { type: "button", onclick: write(false) }, "Folder with all of them"), el("button", { type: "button", onclick: write(true) }, "Folder with links to the images")), where);
}

/// The keys.
function keys() {
  const more = [["← ↑ → ↓", "move the cursor; with Shift, select"], ["Space", "select or not"], ["Enter", "full size; ← → there for the next"], ["Ctrl+A, Esc", "select all, none"], ["Ctrl+Z, Ctrl+Shift+Z", "undo, redo (of this page first)"], ["/", "filter by name"], ["G", "from anywhere into the sheet"], ["+ − 0", "zoom the map; Shift+drag encircles"], ["?", "this"]];
  dialog("Keys", "small-dialog", el("h2", {}, "Keys"), el("table", { class: "keys" }, el("tbody", {}, [...ACTS.map(([key, name, means]) => [key, `${name}: ${means}`]), ...more].map(([key, means]) => el("tr", {}, el("th", { scope: "row" }, el("kbd", {}, key)), el("td", {}, means))))));
}
