"use strict";
// The views: overview and live curves, the explorer with its map, clusters, copies, labels, changes.

const VIEWS = {};

// ---------------------------------------------------------------- overview

/// The training that goes on.
function progressCard() {
  const bar = el("progress", { max: 1, value: 0, "aria-label": "Progress of the run" }), said = el("div", { class: "small" }), tiles = el("div", { class: "tiles" });
  const stop = el("button", { type: "button", class: "stop" }, "Save and stop");
  stop.addEventListener("click", async () => { stop.disabled = true; await post(api("stop")); say("The run is being saved; continue it with pcp train --resume."); });
  const card = el("section", { class: "card live", "aria-label": "Training", hidden: "" }, el("div", { class: "tools" }, el("h2", {}, "Training"), said, stop), bar, tiles);
  const clock = (s) => (s == null ? "–" : s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`);
  card.update = (state) => {
    const t = state && state.training;
    card.hidden = !t || (!t.epochs && !t.part && !t.elsewhere);
    if (card.hidden) return;
    stop.hidden = t.elsewhere !== undefined || t.ended;
    const shown = [], tile = (name, value) => [name, value];
    if (t.elsewhere !== undefined) said.textContent = t.elsewhere ? "in another process; stop it there with Ctrl-C" : "not running; continue it with pcp train --resume";
    else said.textContent = t.ended ? "finished" : t.stopping ? "saving…" : `${t.part || "starting"}${t.total ? ` ${count(Math.min(t.done, t.total))} of ${count(t.total)}` : ""}`;
    bar.hidden = t.elsewhere !== undefined;
    if (t.epochs) {
      const within = t.part === "training" && t.total ? Math.min(1, t.done / t.total) : 0;
      bar.value = t.ended ? 1 : Math.min(1, (t.epoch + within) / t.epochs);
      shown.push(tile("Epoch", `${Math.min(t.epoch + (t.ended ? 0 : 1), t.epochs)} of ${t.epochs}`), tile("Time left", t.ended ? "–" : clock(t.seconds_left)));
    }
    if (t.live) shown.push(tile("Loss", number(t.live.loss)), tile("Images a second", number(t.live.images_per_second)), ...(t.live.kept > 0 ? [tile("K", count(t.live.clusters)), tile("Kept", percent(t.live.kept))] : []));
    if (t.memory) shown.push(tile("Memory", `${count(Math.round(t.memory / 1e6))} MB`));
    // The same tiles with other figures: drawing them anew every second would take time from the training.
    while (tiles.children.length < shown.length) tiles.append(el("div", { class: "card" }, el("span", {}), el("b", {})));
    while (tiles.children.length > shown.length) tiles.lastChild.remove();
    shown.forEach((texts, i) => texts.forEach((text, j) => { const at = tiles.children[i].children[j]; if (at.textContent !== text) at.textContent = text; }));
  };
  return card;
}

VIEWS.overview = function (page) {
  const live = progressCard(), body = el("div", {});
  page.append(el("div", { class: "column" }, el("h1", { id: "run" }, S.overview.name), live, body));
  const draw = () => {
    const run = { ...S.overview, at: 0 };
    CONTENTS.length = 0;
    if (S.overview.pictures.note) run.notes = [...run.notes, S.overview.pictures.note];
    body.replaceChildren(...[summary(run), curves(run), run.config ? settings(run) : null].flat(2).filter(Boolean));
  };
  draw();
  live.update(S.state);
  if (S.runs.length > 1) compare(page.firstChild);
  return { reload: draw, state: (s) => live.update(s) };
};

/// All runs side by side, when asked for.
function compare(column) {
  const place = el("div", {}), button = el("button", { type: "button" }, "Compare the runs");
  button.addEventListener("click", async () => {
    button.disabled = true;
    const runs = [];
    for (const { id } of S.runs) { try { const run = await get(`/api/runs/${id}/overview`); if (run.curves) runs.push(run); } catch { /* a run that cannot be read is left out */ } }
    place.replaceChildren(...(runs.length > 1 ? comparison(runs) : [el("p", { class: "hint" }, "There is only one run to look at.")]));
  });
  column.append(el("div", { class: "tools" }, button), place);
}

// ---------------------------------------------------------------- explorer

const E = { filter: { cluster: "", label: "", status: "", mark: "", doubt: 0, text: "" }, order: "doubt", set: null, title: "" };

/// The rows that pass the filters, in order; a set of its own (what was encircled, what is like an image) keeps its order.
function filtered() {
  const f = E.filter, text = f.text.toLowerCase(), found = [];
  const cluster = f.cluster === "" ? -1 : Number(f.cluster), label = f.label === "" ? -1 : Number(f.label), status = f.status === "" ? -1 : Number(f.status);
  const passes = (row) => (cluster < 0 || S.cluster[row] === cluster) && (label < 0 || S.label[row] === label) && (status < 0 || S.status[row] === status)
    && (f.mark === "" || (f.mark === "none" ? !S.mark[row] && S.same[row] < 0 : f.mark === "same" ? S.same[row] >= 0 : MARKS[S.mark[row]] === f.mark))
    && (!f.doubt || S.doubt[row] >= f.doubt) && (!text || nameOf(row).toLowerCase().includes(text));
  if (E.set) { for (const row of E.set) if (passes(row)) found.push(row); }
  else for (let row = 0; row < S.n; row++) if (passes(row)) found.push(row);
  const low = (x) => (Number.isNaN(x) ? -1 : x);
  const by = { doubt: (a, b) => low(S.doubt[b]) - low(S.doubt[a]) || a - b, distance: (a, b) => low(S.distance[b]) - low(S.distance[a]) || a - b, centre: (a, b) => S.distance[a] - S.distance[b] || a - b, cluster: (a, b) => S.cluster[a] - S.cluster[b] || S.distance[a] - S.distance[b] || a - b, name: (a, b) => a - b };
  if (!(E.set && E.ranked)) found.sort(by[E.order]);
  return Uint32Array.from(found);
}

function showSet(rows, title, ranked) {
  Object.assign(E, { set: rows, title, ranked: !!ranked, focus: true, filter: { cluster: "", label: "", status: "", mark: "", doubt: 0, text: "" } });
  go("explore");
}
function showCluster(id) {
  Object.assign(E, { set: null, title: "", ranked: false, order: "centre", focus: true, filter: { cluster: String(id), label: "", status: "", mark: "", doubt: 0, text: "" } });
  go("explore");
}
async function showLike(row) {
  const found = await get(api(`neighbours/${row}?k=96`));
  E.notes = new Map(found.map(([other, cosine]) => [other, cosine.toFixed(2)]));
  showSet([row, ...found.map(([other]) => other)], `Most like ${nameOf(row).split("/").pop()}`, true);
}
async function searchPicture(file) {
  say("Looking for images like it…");
  const found = await (await ask(api("search"), { method: "POST", headers: { "content-type": file.type.startsWith("image/") ? file.type : "application/octet-stream" }, body: file })).json();
  E.notes = new Map(found.map(([other, cosine]) => [other, cosine.toFixed(2)]));
  showSet(found.map(([row]) => row), `Most like ${file.name || "the picture"}`, true);
  say(`The ${found.length} images most like it, the most alike first`);
}

VIEWS.explore = function (page) {
  const heading = el("h1", { class: "set", id: "set" }), note = el("span", { class: "small" });
  // A decision ends the selection: the next one is about the next images.
  const decideHere = async (key, rows, cursor) => { await act(key, rows, cursor); if ("0123456".includes(key)) grid.clear(); };
  const grid = sheet({ label: "Images", onAct: decideHere, onOpen: open, onSelect: selected });
  function open(row) { openPicture(row, (step) => grid.next(step)); }
  const legend = el("div", { class: "legend", tabindex: 0, role: "group", "aria-label": "What the colours mean" }), mapNote = el("span", { class: "small" });
  let plot = null, ways = [], way = 0;

  // Filters.
  const select = (name, key, options) => {
    const field = el("select", { "aria-label": name, onchange: () => { E.filter[key] = field.value; refresh(); } }, options.map(([value, text]) => el("option", { value }, text)));
    field.sync = () => { field.value = E.filter[key]; if (field.value !== E.filter[key]) field.value = ""; };
    return field;
  };
  const fields = [];
  const place = el("div", { class: "tools filters" });
  function fillFilters() {
    fields.length = 0;
    if (S.overview.clustered) {
      fields.push(select("Cluster", "cluster", [["", "every cluster"], ...clusters().slice(0, 3000).map((c) => [String(c.id), `${clusterName(c.id)} · ${count(c.rows.length)}`])]));
      fields.push(select("Status", "status", [["", "every status"], ...STATUS.map((s, i) => [String(i), s])]));
    }
    if (S.labelled) fields.push(select("Label", "label", [["", "every label"], ...S.classes.map((c, i) => [String(i), c])]));
    fields.push(select("Decision", "mark", [["", "decided or not"], ["none", "not decided"], ["keep", "keep"], ["remove", "remove"], ["same", "copies"]]));
    const order = el("select", { "aria-label": "Order", onchange: () => { E.order = order.value; refresh(); } }, [["doubt", "most doubtful first"], ["distance", "farthest from the centre first"], ["centre", "nearest to the centre first"], ["cluster", "by cluster"], ["name", "as listed"]].map(([v, t]) => el("option", { value: v }, t)));
    order.sync = () => { order.value = E.order; };
    const doubt = el("input", { type: "range", min: 0, max: 1, step: 0.02, "aria-label": "Doubt at least", oninput: () => { E.filter.doubt = Number(doubt.value); refresh(); } });
    doubt.sync = () => { doubt.value = E.filter.doubt; };
    const text = el("input", { type: "search", id: "filter", placeholder: "name contains", "aria-label": "Name contains", oninput: () => { E.filter.text = text.value; loadNames().then(() => refresh()); } });
    text.sync = () => { text.value = E.filter.text; };
    fields.push(order, text);
    const hasDoubt = S.n && !Number.isNaN(S.doubt[0]);
    place.replaceChildren(...fields, ...(hasDoubt ? [el("label", { class: "range" }, "doubt ≥", doubt)] : []), el("button", { type: "button", onclick: clearAll }, "Show all"));
    if (hasDoubt) fields.push(doubt);
    fields.forEach((f) => f.sync());
  }
  function clearAll() {
    Object.assign(E, { set: null, title: "", ranked: false, notes: null, filter: { cluster: "", label: "", status: "", mark: "", doubt: 0, text: "" } });
    fields.forEach((f) => f.sync());
    refresh();
  }
  function refresh(keep) {
    const rows = filtered();
    heading.firstChild.textContent = E.title || (E.filter.cluster !== "" ? clusterName(Number(E.filter.cluster)) : "All images");
    note.textContent = `${count(rows.length)} of ${count(S.n)}`;
    grid.show(rows, E.set && E.ranked ? E.notes : null, keep);
    if (plot) {
      const all = rows.length === S.n;
      let mask = null;
      if (!all) { mask = new Uint8Array(S.n); for (const row of rows) mask[row] = 1; }
      plot.show(mask);
    }
  }
  heading.append(document.createTextNode(""), note);

  // Selection and decisions.
  const picked = el("span", { class: "small", role: "status" });
  const acts = ACTS.map(([key, name, means]) => el("button", { type: "button", title: `${means} (${key})`, onclick: () => { decideHere(key, grid.acted(), grid.cursor); grid.list.focus(); } }, name, el("kbd", {}, key)));
  const many = el("button", { type: "button", "aria-pressed": "false", title: "Clicks select several (as Ctrl does)", onclick: () => { const on = grid.list.classList.toggle("many"); many.setAttribute("aria-pressed", on); } }, "Select");
  const actions = el("div", { class: "acts", role: "toolbar", "aria-label": "Decide" }, picked, many, el("button", { type: "button", onclick: () => grid.select(grid.rows) }, "All"), acts);
  function selected(chosen) {
    picked.textContent = chosen.size ? `${count(chosen.size)} selected` : "";
    if (!plot) return;
    const mask = new Uint8Array(S.n);
    chosen.forEach((row) => { mask[row] = 1; });
    plot.choose(chosen.size ? mask : null);
  }
  const sizes = choice(["S", "M", "L"], (i) => grid.resize(["small", "medium", "large"][i]), "Size of the pictures", 1);
  const file = el("input", { type: "file", accept: "image/*", class: "hiding", tabindex: -1, "aria-label": "Picture to search by", onchange: () => { if (file.files[0]) searchPicture(file.files[0]); } });
  const search = S.overview.searchable ? el("button", { type: "button", title: "Or drop one anywhere", onclick: () => file.click() }, "Search by picture…") : null;

  // Map.
  const mapPane = el("section", { class: "mappane", "aria-label": "Map" });
  function describe(p) {
    const lines = [nameOf(p), ...about(p)];
    return [S.overview.pictures.found ? el("img", { class: "tipimg", src: thumb(p), alt: "" }) : null, el("div", {}, el("b", {}, lines[0].split("/").pop()), lines.slice(1).map((l) => el("div", {}, l)))].filter(Boolean);
  }
  function colours() {
    ways = colourWays(S.labelled ? Array.from(S.label, (l) => (l === NONE ? S.classes.length : l)) : null, [...S.classes, "no label"], S.overview.clustered ? S.cluster : null, S.status);
    const mark = Array.from(S.mark, (m, row) => (m === 0 && S.same[row] >= 0 ? 3 : m));
    ways.push(["decision", mark, ["not decided", "keep", "remove", "copy"], (g) => css(["--instance", "--kept", "--filtered", "--dropped"][g])]);
    if (way >= ways.length) way = 0;
  }
  function paint() { if (plot) paintWay(plot, legend, ways[way]); }
  function buildMap() {
    if (!S.map) {
      mapPane.replaceChildren(el("p", { class: "hint pad" }, S.overview.finished ? "There is no map: the run has no embeddings." : "The map follows when the run is finished: it is made of its embeddings."));
      mapPane.classList.add("none");
      return;
    }
    mapPane.classList.remove("none");
    colours();
    plot = scatter({
      xs: S.map.xs, ys: S.map.ys, label: "Map of the images: similar ones are close together", describe,
      onPick: (p) => { const at = grid.rows.indexOf(p); if (at >= 0) { grid.select([p]); grid.next(0); } openPicture(p); },
      onLasso: (points) => { if (!points.length) return; E.notes = null; Object.assign(E, { set: points, title: "Encircled", ranked: false }); refresh(); grid.list.focus(); say(`${count(points.length)} images encircled`); },
    });
    const modes = choice(["Move", "Lasso"], (i) => plot.setMode(["move", "lasso"][i]), "A drag on the map");
    const names = ways.map((w) => w[0]);
    const by = el("select", { "aria-label": "Colours of the map", onchange: () => { way = by.selectedIndex; paint(); } }, names.map((n) => el("option", {}, `by ${n}`)));
    mapPane.replaceChildren(el("div", { class: "tools" }, by, modes, plot.buttons(), mapNote), plot.box, legend);
    paint();
    mapSaid();
    ON_THEME.push(paint);
  }
  function mapSaid() {
    const s = S.state;
    mapNote.textContent = !S.map ? "" : S.map.kind === "tsne" ? (S.n > 10000 ? "t-SNE of 10,000 images, the others among their nearest" : "t-SNE") : `principal components; t-SNE ${s && s.map_progress != null ? `${Math.round(s.map_progress / 10)} %` : "follows"}`;
  }

  page.append(el("div", { class: "explorer" }, mapPane, el("section", { class: "sheetpane", "aria-label": "Sheet" },
    el("div", { class: "tools top" }, heading, sizes, search, file), place, grid.list, actions)));
  fillFilters();
  buildMap();
  refresh();
  loadNames().then(() => grid.redraw());
  if (E.focus) grid.list.focus();
  E.focus = false;
  // What the filters offer changes with few decisions; a mark leaves them, and the order of the sheet, as they are.
  const offered = () => JSON.stringify([S.decided.names, S.decided.merged, Object.entries(S.decided.moved).length, Object.values(S.decided.labels)]);
  let offers = offered();
  return {
    grid,
    reload: async () => { await loadMap(); fillFilters(); buildMap(); refresh(true); },
    decided: () => {
      const now = offered(), other = now !== offers;
      offers = now;
      if (other) fillFilters();
      colours();
      paint();
      if (other || E.filter.mark) refresh(true); else grid.redraw();
    },
    map: () => { if (plot && S.map) { plot.move(S.map.xs, S.map.ys); mapSaid(); } else buildMap(); },
    state: mapSaid,
    picture: searchPicture,
  };
};

// ---------------------------------------------------------------- clusters

VIEWS.clusters = function (page) {
  const column = el("div", { class: "column" }), place = el("div", { class: "cards" }), picked = new Set();
  const merge = el("button", { type: "button", disabled: "" }, "Merge the selected clusters");
  const order = choice(["Largest", "Least kept", "Named"], (i) => { by = i; draw(); }, "Order of the clusters");
  let by = 0, shown = 60;
  column.append(el("h1", {}, "Clusters"), el("p", { class: "hint" }, `Clusters ${S.overview.grouped || "of the collection"}: the nearest members of each. The bar shows what purification made of them.`),
    el("div", { class: "tools" }, order, merge, statusLegend()), place);
  merge.addEventListener("click", async () => {
    const ids = [...picked];
    picked.clear();
    await decide({ op: "merge", clusters: ids, into: ids[0] }, `Merged into ${clusterName(ids[0])}`);
  });
  function card(c) {
    const near = c.rows.slice().sort((a, b) => S.distance[a] - S.distance[b]).slice(0, 10);
    const box = el("input", { type: "checkbox", "aria-label": `Select ${clusterName(c.id)}`, onchange: () => { if (box.checked) picked.add(c.id); else picked.delete(c.id); merge.disabled = picked.size < 2; } });
    box.checked = picked.has(c.id);
    const kept = (c.counts[0] + c.counts[3]) / c.rows.length;
    return el("article", { class: "card cluster" },
      el("h2", {}, el("label", { class: "pick" }, box), el("button", { type: "button", class: "plain", title: "All of its images", onclick: () => showCluster(c.id) }, clusterName(c.id)),
        el("button", { type: "button", class: "plain pen", "aria-label": `Name ${clusterName(c.id)}`, title: "Name", onclick: async () => { const name = await askFor("Name", `What is in cluster ${c.id}?`, S.classes, S.decided.names[c.id] || ""); if (name != null) decide({ op: "name", cluster: c.id, name: name || null }, name ? `Cluster ${c.id} is called ${name}` : `Cluster ${c.id} has no name`); } }, "✎")),
      el("div", { class: "small" }, `${count(c.rows.length)} images, ${percent(kept)} kept`),
      el("div", { class: "share", role: "img", "aria-label": c.counts.map((n, s) => `${n} ${STATUS[s]}`).join(", "), title: c.counts.map((n, s) => `${n} ${STATUS[s]}`).join(", ") }, c.counts.map((n, s) => (n ? el("i", { class: `s${s}`, style: { width: `${100 * n / c.rows.length}%` } }) : null))),
      el("div", { class: "strip" }, near.map((row) => mini(row))));
  }
  function draw() {
    let all = clusters();
    if (by === 1) all.sort((a, b) => (a.counts[0] + a.counts[3]) / a.rows.length - (b.counts[0] + b.counts[3]) / b.rows.length);
    if (by === 2) all = all.filter((c) => S.decided.names[c.id]);
    merge.disabled = picked.size < 2;
    place.replaceChildren(...all.slice(0, shown).map(card), ...(all.length > shown ? [el("button", { type: "button", onclick: () => { shown += 120; draw(); } }, `${count(all.length - shown)} more`)] : []),
      ...(all.length ? [] : [el("p", { class: "hint" }, by === 2 ? "No cluster has a name yet." : "There are no clusters yet.")]));
  }
  page.append(column);
  draw();
  return { reload: draw, decided: draw };
};

/// A small picture that opens.
function mini(row, more) {
  const said = [nameOf(row), ...about(row), more].filter(Boolean);
  const inner = S.overview.pictures.found ? el("img", { src: thumb(row), alt: "", loading: "lazy" }) : el("span", { class: "noname" }, nameOf(row).split("/").pop());
  const mark = MARKS[S.mark[row]] || (S.same[row] >= 0 ? "same" : "");
  return el("button", { type: "button", class: `mini${S.overview.clustered ? ` s${S.status[row]}` : ""}${mark ? ` m-${mark}` : ""}`, title: said.join("\n"), "aria-label": said.join(", "), onclick: () => openPicture(row) }, inner);
}

// ---------------------------------------------------------------- copies and labels

/// A view of something that takes a while to find.
function finding(page, title, path, hint, draw) {
  const column = el("div", { class: "column" }), place = el("div", {}), bar = el("progress", { max: 1, value: 0, "aria-label": title, hidden: "" });
  const begin = el("button", { type: "button", class: "main", onclick: start }, "Look for them");
  column.append(el("h1", {}, title), el("p", { class: "hint" }, hint), begin, bar, place);
  page.append(column);
  let found = null, gone = false;
  async function start() { begin.hidden = true; await post(api(path)); poll(); }
  async function poll() {
    if (gone) return;
    const s = await get(api(path));
    begin.hidden = s.state === "working" || s.state === "done";
    bar.hidden = s.state !== "working";
    if (s.state === "working") { bar.value = s.total ? s.done / s.total : 0; setTimeout(poll, 400); }
    if (s.state === "failed") place.replaceChildren(el("p", { class: "note" }, `${s.error}.`));
    if (s.state === "done") { found = s.found; place.replaceChildren(...draw(found)); }
  }
  loadNames().then(poll);
  return { decided: () => { if (found) place.replaceChildren(...draw(found)); }, leave: () => { gone = true; } };
}

VIEWS.copies = (page) => finding(page, "Copies", "copies", "Pictures that are there more than once. The best copy of each is proposed; the others are left out when you say so.", (found) => {
  const rest = (g) => g.rows.slice(1).filter((row) => S.same[row] !== g.rows[0]);
  const open = found.groups.filter((g) => g.sure && rest(g).length);
  const all = async () => { for (const g of open) await decide({ op: "same", rows: rest(g), of: g.rows[0] }); say(`The best of ${count(open.length)} groups stay`); };
  return [
    el("p", { class: "hint" }, found.groups.length ? found.about : "There are none."),
    found.groups.length ? el("div", { class: "tools" }, el("button", { type: "button", disabled: open.length ? null : "", onclick: all }, `Keep the best of all ${count(open.length)} groups`)) : null,
    el("div", { class: "cards" }, found.groups.slice(0, 300).map((g) => el("article", { class: "card" }, el("h2", {}, g.sure ? `${g.rows.length} copies` : `${g.rows.length} alike: a guess`),
      el("div", { class: "strip" }, g.rows.map((row, i) => mini(row, g.sure && i === 0 ? "the best copy" : null))),
      el("div", { class: "tools" }, el("button", { type: "button", disabled: rest(g).length ? null : "", onclick: () => decide({ op: "same", rows: rest(g), of: g.rows[0] }, "The first stays") }, rest(g).length ? "Keep the first" : "Decided"))))),
  ].filter(Boolean);
});

VIEWS.labels = (page) => finding(page, "Labels", "doubts", "Labels that do not fit what the image shows, judged by the embeddings.", (found) => {
  const one = ({ row, suggested, wrong }) => el("figure", { class: "doubt" }, mini(row, `probably wrong: ${wrong.toFixed(2)}`),
    el("figcaption", {}, el("b", {}, S.label0[row] === NONE ? "–" : S.overview.classes[S.label0[row]]), `rather ${suggested}? (${wrong.toFixed(2)})`,
      el("span", { class: "choice" }, el("button", { type: "button", "aria-pressed": String(S.decided.labels[row] === suggested), "aria-label": `Yes, ${suggested} is right for ${nameOf(row)}`, onclick: () => decide({ op: "label", rows: [row], label: suggested }, `${suggested}: ${images([row])}`) }, "Yes"),
        el("button", { type: "button", "aria-pressed": String(S.mark[row] === 1), "aria-label": `No, the label of ${nameOf(row)} is right`, onclick: () => decide({ op: "mark", rows: [row], mark: "keep" }, `Right as it is: ${images([row])}`) }, "No"))));
  const part = (title, list) => (list.length ? [el("h2", {}, title), el("div", { class: "figures wide" }, list.slice(0, 400).map(one))] : []);
  return [el("p", { class: "hint" }, found.about), ...part(`More probably wrong than right: ${count(found.errors.length)}`, found.errors), ...part(`Doubtful, but probably right: ${count(found.doubtful.length)}`, found.doubtful)];
});

// ---------------------------------------------------------------- changes

VIEWS.changes = function (page) {
  const column = el("div", { class: "column" }), place = el("div", {});
  column.append(el("h1", {}, "Changes"), el("p", { class: "hint" }, "What purification made of the images in the last clustering, compared with the one before: who was filtered, dropped, pulled back."), place);
  page.append(column);
  async function draw() {
    await loadNames();
    const found = await get(api("changes"));
    place.replaceChildren(...(found.length ? found.sort((a, b) => b[2] - a[2]).map(([old, now, n, rows]) => el("section", { class: "change" },
      el("h2", {}, el("span", { class: `pill s${old}` }, STATUS[old]), " → ", el("span", { class: `pill s${now}` }, STATUS[now]), el("span", { class: "small" }, ` ${count(n)} images`)),
      el("div", { class: "strip" }, rows.slice(0, 40).map((row) => mini(row))),
      rows.length > 40 ? el("button", { type: "button", onclick: () => showSet(rows, `${STATUS[old]} → ${STATUS[now]}`) }, "Show more") : null)) : [el("p", { class: "hint" }, "Nothing changed, or there is only one clustering so far.")]));
  }
  draw();
  return { reload: draw, decided: draw };
};
