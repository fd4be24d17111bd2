"use strict";
// Draws the page from the JSON in #data. Texts become text nodes, never markup: a file may have any name.

const DATA = JSON.parse(document.getElementById("data").textContent);
const STATUS = ["kept", "filtered", "dropped", "pulled back", "instance"];
const STATUS_VARS = ["--kept", "--filtered", "--dropped", "--pulled", "--instance"];
const STATUS_MEANS = [
  "kept: near the centre of its cluster, learns with the other members",
  "filtered by CP_r: too far from the centre, learns alone",
  "dropped by CP_s: near the centre, but seldom in one cluster with it before, learns alone",
  "pulled back by CP_s: far from the centre, but nearly always in one cluster with it before, learns with the other members",
  "instance: alone in its set, or not clustered",
];

// ---------------------------------------------------------------- small tools

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (key === "class") node.className = value;
    else if (key === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children.flat().filter((c) => c != null));
  return node;
}

function svg(tag, props) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props)) node.setAttribute(key, value);
  return node;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const percent = (share) => (share == null ? "" : (100 * share).toFixed(0) + " %");
const count = (n) => n.toLocaleString("en");

/// Colours of classes, clusters and runs: the golden angle keeps neighbours apart.
function hue(i) {
  const [light, chroma] = dark() ? [0.74, 0.14] : [0.56, 0.16];
  return `oklch(${light - 0.06 * (i % 3 - 1)} ${chroma} ${(255 + i * 137.508) % 360})`;
}

/// Formats a number.
function number(x) {
  if (x == null) return "–";
  const size = Math.abs(x);
  if (size >= 1000) return count(Math.round(x));
  if (size >= 100 || Number.isInteger(x)) return String(Math.round(x));
  if (size >= 1) return x.toFixed(size >= 10 ? 1 : 2);
  return size === 0 ? "0" : String(Number(x.toPrecision(2)));
}

/// Round values for the lines of a scale.
function ticks(low, high, log) {
  if (log) {
    const out = [];
    for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) {
      for (const m of [1, 2, 5]) {
        const t = m * 10 ** p;
        if (t >= low * 0.999 && t <= high * 1.001) out.push(t);
      }
    }
    const tens = out.filter((t) => Number.isInteger(Math.log10(t)));
    return out.length > 6 && tens.length >= 2 ? tens : out.slice(0, 6);
  }
  const step0 = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(step0));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= step0);
  const out = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-6; t += step) out.push(Number(t.toPrecision(12)));
  return out;
}

/// A section with a heading, an anchor and an entry in the contents.
function section(run, title, hint, ...children) {
  const id = (run.at ? `run${run.at}-` : "") + title.toLowerCase().replace(/[^a-z]+/g, "-");
  if (run.at === 0) CONTENTS.push([title, id]);
  return el("section", { id }, el("h2", {}, title), hint && el("p", { class: "hint" }, hint), children);
}
const CONTENTS = [];

/// Buttons of which one is pressed.
function choice(names, pick, label) {
  const buttons = names.map((name, i) =>
    el("button", { type: "button", "aria-pressed": i === 0, onclick: () => {
      buttons.forEach((b, j) => b.setAttribute("aria-pressed", i === j));
      pick(i);
    } }, name));
  return el("span", { class: "choice", role: "group", "aria-label": label }, buttons);
}

/// A table with an optional heading; columns from `numeric` on are aligned right.
function table(head, rows, numeric = 1) {
  const kind = (i) => (i >= numeric ? { class: "n" } : {});
  return el("div", { class: "scroll" }, el("table", {},
    head && el("thead", {}, el("tr", {}, head.map((h, i) => el("th", kind(i), h)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((c, i) => el("td", kind(i), c ?? "–")))))));
}

// ---------------------------------------------------------------- pictures

/// One rule for each sheet, so that ten thousand tiles share a few pictures.
function addSheets(name, sprites) {
  const style = document.head.appendChild(el("style", {}));
  (sprites.sheets || []).forEach((uri, i) => style.sheet.insertRule(`.${name}-${i}{background-image:url("${uri}")}`, i));
}

function tile(name, sprites, i) {
  const at = i % sprites.per_sheet;
  const [column, row] = [at % sprites.columns, Math.floor(at / sprites.columns)];
  return el("span", { class: `thumb ${name}-${Math.floor(i / sprites.per_sheet)}`, style: {
    "background-size": `calc(var(--w) * ${sprites.columns}) auto`,
    "background-position": `calc(var(--w) * -${column}) calc(var(--w) * -${row})`,
  } });
}

const hasPicture = (run, i) => i < run.thumbnails.count;

/// The lines of an image's tooltip.
function facts(run, i) {
  const { file, label, cluster, status, distance, vote } = run.images;
  const out = [file[i]];
  if (label) out.push(run.classes[label[i]]);
  if (cluster) out.push(`cluster ${cluster[i]}` + (run.plain ? "" : `, ${STATUS[status[i]]}`));
  if (distance && distance[i] != null) out.push(`distance ${distance[i].toFixed(3)}` + (vote && vote[i] != null ? `, vote ${vote[i].toFixed(2)}` : ""));
  return out;
}

/// An image with a border in the colour of its status.
function picture(run, i, more) {
  const lines = facts(run, i).concat(more || []);
  const status = run.images.status && !run.plain ? ` s${run.images.status[i]}` : "";
  const inner = hasPicture(run, i) ? tile(`t${run.at}`, run.thumbnails, i) : el("span", { class: "noname" }, run.images.file[i].split("/").pop());
  return el("span", { class: "framed" + status, role: "img", title: lines.join("\n"), "aria-label": lines.join(", ") }, inner);
}

function statusLegend() {
  return el("div", { class: "legend" }, STATUS.map((name, s) =>
    el("span", { title: STATUS_MEANS[s] }, el("i", { style: { background: `var(${STATUS_VARS[s]})` } }), name)));
}

// ---------------------------------------------------------------- curves

/// A chart of lines: `{title, unit, log, lines: [{name, x, y, colour}]}`. The legend shows the values at the pointer.
function chart({ title, unit = "", log = false, lines, floor, axis = "epoch" }) {
  lines = lines.map((l) => ({ ...l, points: l.x.map((x, i) => [x, l.y[i]]).filter((p) => p[1] != null && (!log || p[1] > 0)) }))
    .filter((l) => l.points.length);
  if (!lines.length) return null;
  const drawing = svg("svg", { role: "img", "aria-label": title });
  const values = lines.map(() => el("b", {}));
  const when = el("span", { class: "small" });
  const legend = el("div", { class: "legend" }, lines.map((l, i) =>
    el("span", {}, el("i", { style: { background: l.colour } }), l.name, values[i])));
  const all = lines.flatMap((l) => l.points);
  const xs = [...new Set(all.map((p) => p[0]))].sort((a, b) => a - b);
  let [x0, x1] = [xs[0], xs[xs.length - 1]];
  let [y0, y1] = [Math.min(...all.map((p) => p[1])), Math.max(...all.map((p) => p[1]))];
  if (floor != null) y0 = Math.min(y0, floor);
  if (y0 === y1) [y0, y1] = log ? [y0 / 2, y1 * 2] : [y0 - Math.abs(y0) * 0.1 - 0.5, y1 + Math.abs(y1) * 0.1 + 0.5];
  if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
  const scale = log ? Math.log : (v) => v;
  let sx, sy, cursor, dots;

  function draw() {
    const [w, h] = [drawing.clientWidth, drawing.clientHeight];
    if (!w) return;
    const [left, right, top, bottom] = [44, 10, 10, 22];
    drawing.setAttribute("viewBox", `0 0 ${w} ${h}`);
    drawing.replaceChildren();
    sx = (x) => left + (x - x0) / (x1 - x0) * (w - left - right);
    sy = (y) => h - bottom - (scale(y) - scale(y0)) / (scale(y1) - scale(y0)) * (h - top - bottom);
    const text = (x, y, t, anchor) => {
      const node = svg("text", { x, y, "text-anchor": anchor });
      node.textContent = t;
      drawing.append(node);
    };
    for (const t of ticks(y0, y1, log)) {
      drawing.append(svg("line", { class: "grid", x1: left, x2: w - right, y1: sy(t), y2: sy(t) }));
      text(left - 6, sy(t) + 4, number(t), "end");
    }
    for (const t of ticks(x0, x1).filter(Number.isInteger)) text(sx(t), h - 6, count(t), "middle");
    for (const l of lines) {
      const d = l.points.map((p, i) => `${i ? "L" : "M"}${sx(p[0]).toFixed(1)} ${sy(p[1]).toFixed(1)}`).join("");
      drawing.append(svg("path", { d, style: `stroke:${l.colour}` }));
      if (l.points.length === 1) drawing.append(svg("circle", { cx: sx(l.points[0][0]), cy: sy(l.points[0][1]), r: 3, style: `fill:${l.colour}` }));
    }
    cursor = svg("line", { class: "cursor", y1: top, y2: h - bottom, visibility: "hidden" });
    dots = lines.map((l) => svg("circle", { r: 3.5, style: `fill:${l.colour}`, visibility: "hidden" }));
    drawing.append(cursor, ...dots);
    show(null);
  }
  /// The values at an epoch, or the last ones.
  function show(x) {
    when.textContent = x == null ? "" : `${axis} ${count(x)}`;
    if (cursor) cursor.setAttribute("visibility", x == null ? "hidden" : "visible");
    if (x != null) { cursor.setAttribute("x1", sx(x)); cursor.setAttribute("x2", sx(x)); }
    lines.forEach((l, i) => {
      const point = x == null ? l.points[l.points.length - 1] : l.points.find((p) => p[0] === x);
      values[i].textContent = point ? number(point[1]) + unit : "–";
      if (!dots) return;
      dots[i].setAttribute("visibility", x != null && point ? "visible" : "hidden");
      if (x != null && point) { dots[i].setAttribute("cx", sx(point[0])); dots[i].setAttribute("cy", sy(point[1])); }
    });
  }
  drawing.addEventListener("pointermove", (e) => {
    if (!sx) return;
    const at = e.clientX - drawing.getBoundingClientRect().left;
    show(xs.reduce((best, x) => (Math.abs(sx(x) - at) < Math.abs(sx(best) - at) ? x : best), xs[0]));
  });
  drawing.addEventListener("pointerleave", () => show(null));
  new ResizeObserver(draw).observe(drawing);
  show(null);
  return el("div", { class: "card chart" }, el("h3", {}, title, when), legend, drawing);
}

function curves(run) {
  const c = run.curves;
  if (!c || !c.epoch.length) return null;
  const line = (name, key, colour) => ({ name, x: c.epoch, y: c[key], colour });
  const accent = "var(--accent)";
  const charts = [
    chart({ title: "kNN", unit: " %", lines: [line("accuracy", "knn", accent), line("classifier", "classifier", "var(--dropped)")] }),
    chart({ title: "Loss", lines: [line("all", "loss", accent), line("instances", "loss_instance", "var(--instance)"), line("clusters", "loss_cluster", "var(--kept)"), line("warm-up", "loss_is", "var(--dropped)")] }),
    chart({ title: "Clusters (logarithmic)", log: true, lines: [line("K", "clusters", accent)] }),
    chart({ title: "Purification", unit: " %", floor: 0, lines: [line("kept", "kept", "var(--kept)"), line("dropped", "dropped", "var(--dropped)"), line("pulled back", "pulled_back", "var(--pulled)")] }),
    chart({ title: "Churn", unit: " %", floor: 0, lines: [line("cluster partners that changed", "churn", accent)] }),
    chart({ title: "Learning rate", log: true, lines: [line("lr", "lr", accent)] }),
  ];
  return section(run, "Curves", "Values by epoch. Point at a curve for its values.", el("div", { class: "charts" }, charts));
}

// ---------------------------------------------------------------- clusters

function sheets(run) {
  if (!run.sheets || !run.sheets.kinds.length) return null;
  const known = new Map(run.clusters.map((c) => [c.id, c]));
  const place = el("div", {});
  const show = (k) => place.replaceChildren(...run.sheets.kinds[k].clusters.map((id) => {
    const c = known.get(id);
    const groups = run.sheets.of[id].map((members, s) => members.length ? el("div", { class: `group s${s}` },
      run.plain ? null : el("span", { title: STATUS_MEANS[s] }, `${STATUS[s]} ${members.length < (c ? c.counts[s] : 0) ? `${members.length} of ${count(c.counts[s])}` : members.length}`),
      el("div", { class: "strip" }, members.map((i) => picture(run, i)))) : null);
    const about = c ? [`${count(c.size)} images`, c.purity != null ? `${percent(c.purity)} ${run.classes[c.class]}` + (c.purity_kept != null ? `, ${percent(c.purity_kept)} of those kept` : "") : null, c.same != null ? `${percent(c.same)} as before` : null] : [];
    return el("div", { class: "card sheet" }, el("h3", {}, `Cluster ${id}`, el("span", { class: "small" }, about.filter(Boolean).join(" · "))), el("div", { class: "groups" }, groups));
  }));
  show(0);
  const about = run.plain ? `Clusters ${run.grouped}, their members from the centre outwards. Point at an image for its name and distance.`
    : `Clusters ${run.grouped}, and the status of their members after purification: kept or filtered (CP_r), dropped or pulled back (CP_s). Point at an image for its name, distance and vote.`;
  return section(run, "Clusters", about,
    el("div", { class: "tools" }, choice(run.sheets.kinds.map((k) => k.name), show, "Which clusters"), run.plain ? null : statusLegend()), place, run.plain ? null : clusterList(run));
}

function clusterList(run) {
  const bar = (c) => el("div", { class: "share", title: c.counts.map((n, s) => `${n} ${STATUS[s]}`).join(", ") },
    c.counts.map((n, s) => n ? el("i", { class: `s${s}`, style: { width: `${100 * n / c.size}%` } }) : null));
  const labelled = run.classes != null;
  const head = ["Cluster", ...(labelled ? ["Mostly"] : []), "Status", "Images", "Kept", ...(labelled ? ["Purity", "of kept"] : []), "As before"];
  const rows = run.clusters.map((c) => [String(c.id), ...(labelled ? [run.classes[c.class]] : []), bar(c), count(c.size), percent((c.counts[0] + c.counts[3]) / c.size),
    ...(labelled ? [percent(c.purity), percent(c.purity_kept) || "–"] : []), percent(c.same) || "–"]);
  const more = run.clusters_in_all > rows.length ? `The ${rows.length} largest of ${count(run.clusters_in_all)} clusters` : `All ${rows.length} clusters`;
  return el("details", {}, el("summary", {}, rows.length === 1 ? "The one cluster in figures" : `${more} in figures`), table(head, rows, labelled ? 3 : 2));
}

/// The numbers of clusters that were tried, and the chosen one.
function tried(run) {
  if (!run.tried) return null;
  const line = (name, y, colour) => ({ name, x: run.tried.k, y, colour });
  return section(run, "How many clusters", `${count(run.tried.chosen)} clusters have the greatest mean silhouette: how much nearer an image is to its own cluster than to the next. A flat curve means that the images do not fall into clusters.`,
    el("div", { class: "charts" }, chart({ title: "Mean silhouette", axis: "K =", lines: [line("silhouette", run.tried.silhouette, "var(--accent)")] }),
      chart({ title: "Mean squared distance", axis: "K =", floor: 0, lines: [line("distance", run.tried.inertia, "var(--dropped)")] })));
}

/// What is known about wrong labels, and those that are probably wrong.
function labelErrors(run) {
  if (!run.label_errors_about) return null;
  const figure = ([i, label, suggested, wrong]) => el("figure", {}, picture(run, i, [`probably wrong: ${wrong}`]),
    el("figcaption", {}, el("b", {}, label), `rather ${suggested}?`));
  return section(run, "Wrong labels", run.label_errors_about, el("div", { class: "figures" }, run.label_errors.map(figure)));
}

/// The caption of an outlier: its class and that of its cluster.
function caption(run, i) {
  const { file, label, cluster } = run.images;
  const found = run.clusters.find((c) => c.id === cluster[i]);
  if (!label) return [el("b", {}, file[i].split("/").pop()), `cluster ${cluster[i]}`];
  const [own, majority] = [run.classes[label[i]], found ? run.classes[found.class] : null];
  return [el("b", {}, own), majority === own ? "far from its kind" : majority ? `among ${majority}` : `cluster ${cluster[i]}`];
}

function outliers(run) {
  if (!run.outliers || !run.outliers.length) return null;
  return section(run, "Which images do not belong", run.outliers_about || "Of the images that purification took out of their clusters, those farthest from the centre: mistakes, unusual images, or a kind without a cluster.",
    el("div", { class: "figures" }, run.outliers.map((i) => el("figure", {}, picture(run, i), el("figcaption", {}, ...caption(run, i))))));
}

function confusion(run) {
  const c = run.confusion;
  if (!c) return null;
  const body = c.clusters.map((id, r) => el("tr", {}, el("th", { scope: "row" }, `cluster ${id}`), c.counts[r].map((n, k) => {
    const share = n / c.sizes[r];
    return el("td", { style: n ? { background: `rgb(var(--heat) / ${(0.06 + 0.62 * share).toFixed(3)})` } : {}, title: `${n} of ${c.sizes[r]}: ${run.classes[c.classes[k]]}` }, n ? String(n) : "");
  })));
  const part = c.clusters.length < run.clusters_in_all || c.classes.length < run.classes.length ? " The largest of both are shown." : "";
  return section(run, "Clusters and classes", "How many images of each class every cluster has. A row with one strong field is a pure cluster; a column with many is a class that was split." + part,
    el("div", { class: "scroll whole" }, el("table", { class: "heat" }, el("thead", {}, el("tr", {}, el("th", {}), c.classes.map((k) => el("th", { class: "up", scope: "col" }, el("span", {}, run.classes[k]))))), el("tbody", {}, body))));
}

// ---------------------------------------------------------------- the map

/// Points in a grid, so that the nearest to the pointer is found among a few.
function grid(xs, ys, cells = 80) {
  const heads = new Int32Array(cells * cells).fill(-1), next = new Int32Array(xs.length);
  const cell = (v) => Math.max(0, Math.min(cells - 1, Math.floor(v * cells)));
  for (let i = 0; i < xs.length; i++) {
    const c = cell(ys[i]) * cells + cell(xs[i]);
    next[i] = heads[c];
    heads[c] = i;
  }
  return (x, y, rx, ry) => {
    let best = -1, least = 1;
    for (let cy = cell(y - ry); cy <= cell(y + ry); cy++) {
      for (let cx = cell(x - rx); cx <= cell(x + rx); cx++) {
        for (let i = heads[cy * cells + cx]; i >= 0; i = next[i]) {
          const d = ((xs[i] - x) / rx) ** 2 + ((ys[i] - y) / ry) ** 2;
          if (d < least) [best, least] = [i, d];
        }
      }
    }
    return best;
  };
}

function map(run) {
  if (!run.map) return null;
  const n = run.map.x.length;
  const xs = Float32Array.from(run.map.x, (v) => 0.03 + 0.94 * v / 65535), ys = Float32Array.from(run.map.y, (v) => 0.97 - 0.94 * v / 65535);
  const nearest = grid(xs, ys);
  const of = (key) => run.map.image.map((i) => run.images[key][i]);
  const ways = [];
  if (run.images.label) ways.push(["label", of("label"), run.classes, hue]);
  if (run.images.cluster) {
    const ids = [...new Set(of("cluster"))].sort((a, b) => a - b), place = new Map(ids.map((id, i) => [id, i]));
    ways.push(["cluster", of("cluster").map((id) => place.get(id)), ids.map((id) => `cluster ${id}`), hue]);
    ways.push(["status", of("status"), STATUS, (s) => css(STATUS_VARS[s])]);
  }
  if (!ways.length) ways.push(["", new Array(n).fill(0), ["image"], () => css("--accent")]);

  const canvas = el("canvas", { role: "img", "aria-label": "Map of the images", tabindex: 0 });
  const ring = el("div", { class: "ring", hidden: "" }), tip = el("div", { class: "tip", hidden: "" });
  const box = el("div", { class: "map" }, canvas, ring, tip), legend = el("div", { class: "legend" });
  const view = { k: 1, x: 0, y: 0 };
  let way = ways[0], groups = [], due = false, hovered = -1;

  function paintWith(i) {
    way = ways[i];
    groups = way[2].map(() => []);
    way[1].forEach((g, p) => groups[g].push(p));
    recolour();
  }
  function recolour() {
    const shown = way[2].map((name, g) => [name, g]).filter(([, g]) => groups[g].length);
    legend.replaceChildren(...shown.slice(0, 24).map(([name, g]) => el("span", {}, el("i", { style: { background: way[3](g) } }), name)),
      ...(shown.length > 24 ? [el("span", {}, `and ${shown.length - 24} more`)] : []));
    redraw();
  }
  /// Drawn on demand, once a frame.
  function redraw() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; draw(); });
  }
  function draw() {
    const [w, h, dpr] = [canvas.clientWidth, canvas.clientHeight, Math.min(2, devicePixelRatio || 1)];
    if (!w) return;
    if (canvas.width !== Math.round(w * dpr) || canvas.height !== Math.round(h * dpr)) [canvas.width, canvas.height] = [Math.round(w * dpr), Math.round(h * dpr)];
    const context = canvas.getContext("2d");
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    context.clearRect(0, 0, w, h);
    const size = Math.min(8, Math.max(2.5, (n > 3000 ? 2.6 : 4.4) * Math.sqrt(view.k)));
    context.globalAlpha = 0.85;
    groups.forEach((members, g) => {
      if (!members.length) return;
      context.fillStyle = way[3](g);
      for (const p of members) {
        const x = (xs[p] * view.k + view.x) * w, y = (ys[p] * view.k + view.y) * h;
        if (x > -8 && y > -8 && x < w + 8 && y < h + 8) context.fillRect(x - size / 2, y - size / 2, size, size);
      }
    });
    if (hovered >= 0) point(hovered);
  }
  function point(p) {
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    const x = (xs[p] * view.k + view.x) * w, y = (ys[p] * view.k + view.y) * h;
    ring.style.left = `${x}px`; ring.style.top = `${y}px`;
    const [a, b] = [tip.offsetWidth, tip.offsetHeight];
    tip.style.left = `${Math.max(4, Math.min(w - a - 4, x + 14 + a > w ? x - a - 14 : x + 14))}px`;
    tip.style.top = `${Math.max(4, Math.min(h - b - 4, y - b / 2))}px`;
  }
  function hover(p) {
    if (p === hovered) return;
    hovered = p;
    ring.hidden = tip.hidden = p < 0;
    if (p < 0) return;
    const i = run.map.image[p], [name, ...rest] = facts(run, i);
    tip.replaceChildren(...(hasPicture(run, i) ? [tile(`t${run.at}`, run.thumbnails, i)] : []),
      el("div", {}, el("b", {}, name), rest.map((line) => el("div", {}, line))));
    const thumb = tip.querySelector(".thumb");
    if (thumb) thumb.style.setProperty("--w", "72px");
    point(p);
  }
  function zoom(factor, cx, cy) {
    const k = Math.max(1, Math.min(60, view.k * factor)), f = k / view.k;
    view.x = cx - (cx - view.x) * f; view.y = cy - (cy - view.y) * f; view.k = k;
    keep();
  }
  /// Keeps the map within its frame.
  function keep() {
    view.x = Math.min(0, Math.max(1 - view.k, view.x)); view.y = Math.min(0, Math.max(1 - view.k, view.y));
    redraw();
  }
  const place = (e) => {
    const r = canvas.getBoundingClientRect();
    return [(e.clientX - r.left) / r.width, (e.clientY - r.top) / r.height, r];
  };
  const fingers = new Map();
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    const [x, y] = place(e);
    zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.002)), x, y);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (e) => { fingers.set(e.pointerId, place(e)); canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", (e) => {
    const [x, y, r] = place(e), before = fingers.get(e.pointerId);
    if (before && fingers.size === 2) {
      const [, other] = [...fingers].find(([id]) => id !== e.pointerId);
      const apart = (p) => Math.hypot((p[0] - other[0]) * r.width, (p[1] - other[1]) * r.height);
      zoom(apart([x, y]) / Math.max(1, apart(before)), other[0], other[1]);
    } else if (before) {
      view.x += x - before[0]; view.y += y - before[1];
      keep();
    }
    if (before) fingers.set(e.pointerId, [x, y, r]);
    hover(nearest((x - view.x) / view.k, (y - view.y) / view.k, 14 / r.width / view.k, 14 / r.height / view.k));
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (e) => fingers.delete(e.pointerId));
  canvas.addEventListener("pointerleave", () => hover(-1));
  canvas.addEventListener("dblclick", () => { Object.assign(view, { k: 1, x: 0, y: 0 }); redraw(); });
  canvas.addEventListener("keydown", (e) => {
    const moves = { "+": () => zoom(1.4, 0.5, 0.5), "-": () => zoom(1 / 1.4, 0.5, 0.5), ArrowLeft: () => { view.x += 0.08; keep(); }, ArrowRight: () => { view.x -= 0.08; keep(); }, ArrowUp: () => { view.y += 0.08; keep(); }, ArrowDown: () => { view.y -= 0.08; keep(); } };
    if (moves[e.key]) { e.preventDefault(); moves[e.key](); }
  });
  new ResizeObserver(redraw).observe(box);
  ON_THEME.push(recolour);
  paintWith(0);
  const button = (text, label, act) => el("button", { type: "button", "aria-label": label, onclick: act }, text);
  const some = n < run.map.of ? ` ${count(n)} of ${count(run.map.of)} are shown.` : "";
  return section(run, "Map", `Every point is an image; images with similar embeddings are close together (t-SNE).${some} Point at one to see it; wheel or pinch to zoom, drag to move.`,
    el("div", { class: "tools" }, ways.length > 1 ? choice(ways.map((w) => `by ${w[0]}`), paintWith, "Colour") : null,
      el("span", { class: "choice" }, button("+", "Zoom in", () => zoom(1.6, 0.5, 0.5)), button("−", "Zoom out", () => zoom(1 / 1.6, 0.5, 0.5)), button("Reset", "Show all", () => { Object.assign(view, { k: 1, x: 0, y: 0 }); redraw(); }))),
    box, legend);
}

// ---------------------------------------------------------------- the rest

function neighbours(run) {
  if (!run.neighbours || !run.neighbours.length) return null;
  const rows = run.neighbours.map(([image, near, cosines]) => el("div", { class: "row" }, picture(run, image),
    el("div", { class: "strip" }, near.map((i, k) => picture(run, i, [`cosine ${cosines[k]}`])))));
  return section(run, "Nearest neighbours", "An image, and the images with the most similar embeddings, nearest first.", el("div", { class: "rows" }, rows));
}

function heat(run) {
  if (!run.heat) return null;
  const pairs = run.heat.image.map((i, k) => 2 * k + 1 < run.heat.pictures.count ? el("span", { class: "pair", role: "img", title: facts(run, i).join("\n"), "aria-label": run.images.file[i] },
    tile(`h${run.at}`, run.heat.pictures, 2 * k), tile(`h${run.at}`, run.heat.pictures, 2 * k + 1)) : null);
  return section(run, "Where the network looks", "An image, and where the network is most active: yellow to red.", el("div", { class: "pairs" }, pairs));
}

function settings(run) {
  if (!run.config) return null;
  const changed = run.config.filter(([, value, standard]) => value !== standard && standard !== "auto");
  const command = run.about.find(([name]) => name === "Command");
  return section(run, "How it was made", null, el("pre", {}, command ? command[1] : ""),
    table(null, run.about.filter(([name]) => name !== "Command"), 2),
    el("h3", {}, "Settings that differ from the defaults"),
    changed.length ? table(["Setting", "Value", "Default"], changed, 3) : el("p", { class: "hint" }, "None."),
    el("details", {}, el("summary", {}, "All settings"), table(["Setting", "Value", "Default"], run.config, 3)));
}

function summary(run) {
  return [
    el("p", { class: "lead" }, run.sentence),
    run.notes.map((note) => el("p", { class: "note" }, note)),
    el("div", { class: "tiles" }, run.tiles.map(([name, value, note]) => el("div", { class: "card" }, el("span", {}, name), el("b", {}, value), note ? el("span", {}, note) : null))),
    el("div", { class: "lights" }, run.lights.map((l) => el("div", { class: `card light ${l.level}` }, el("i", { role: "img", "aria-label": l.level }), el("div", {}, el("b", {}, l.name), l.text)))),
    run.warnings.length ? el("details", {}, el("summary", {}, "Warnings of the run"), el("ul", {}, run.warnings.map(([text, times]) => el("li", {}, times > 1 ? `${text} (${times} times)` : text)))) : null,
  ];
}

const parts = (run) => [labelErrors, outliers, tried, sheets, map, curves, confusion, neighbours, heat, settings].map((part) => part(run));

/// Several runs: their results, their curves together, and the settings that differ.
function comparison(runs) {
  const names = runs[0].results.map(([name]) => name);
  const rows = runs.map((run) => [run.name, ...run.results.map(([, value]) => value)]);
  const filled = names.map((_, i) => rows.some((row) => row[i + 1] != null));
  const only = (row) => [row[0], ...row.slice(1).filter((_, i) => filled[i])];
  const keys = runs[0].config.map(([key]) => key).filter((key) => new Set(runs.map((r) => (r.config.find((c) => c[0] === key) || [])[1])).size > 1);
  const value = (run, key) => (run.config.find((c) => c[0] === key) || [])[1];
  const together = (title, key, more) => chart({ title, ...more, lines: runs.map((run, i) => ({ name: run.name, x: run.curves.epoch, y: run.curves[key], colour: `var(--run${i})` })) });
  const paint = () => runs.forEach((_, i) => document.documentElement.style.setProperty(`--run${i}`, hue(i)));
  paint();
  ON_THEME.push(paint);
  const top = { at: 0 };
  return [
    section(top, "Results", null, table(only(["Run", ...names]), rows.map(only))),
    section(top, "Curves together", "One colour for each run. Point at a curve for its values.", el("div", { class: "charts" },
      together("kNN", "knn", { unit: " %" }), together("Loss", "loss", {}), together("Clusters (logarithmic)", "clusters", { log: true }),
      together("Kept", "kept", { unit: " %", floor: 0 }), together("Churn", "churn", { unit: " %", floor: 0 }), together("Learning rate", "lr", { log: true }))),
    section(top, "What differs", null, keys.length ? table(["Setting", ...runs.map((r) => r.name)], keys.map((key) => [key, ...runs.map((r) => value(r, key))])) : el("p", { class: "hint" }, "Nothing: all settings are the same.")),
  ];
}

const ON_THEME = [];

function build() {
  const page = document.getElementById("page"), runs = DATA.runs;
  const several = runs.length > 1;
  document.title = `${runs.map((r) => r.name).join(", ")} – pcp report`;
  runs.forEach((run, i) => {
    run.at = several ? i + 1 : 0;
    addSheets(`t${run.at}`, run.thumbnails);
    if (run.heat) addSheets(`h${run.at}`, run.heat.pictures);
  });
  if (several) {
    page.replaceChildren(el("h1", {}, `${runs.length} runs side by side`), ...comparison(runs), ...runs.map((run, i) => {
      CONTENTS.push([run.name, `run${run.at}`]);
      const whole = el("details", { class: "run", id: `run${run.at}`, open: i === 0 ? "" : null }, el("summary", {}, run.name));
      // A run is drawn when it is first opened.
      const fill = () => { if (whole.open && whole.children.length === 1) whole.append(...[summary(run), parts(run)].flat(2).filter(Boolean)); };
      whole.addEventListener("toggle", fill);
      fill();
      return whole;
    }));
  } else {
    const run = runs[0];
    CONTENTS.push(["Summary", "summary"]);
    page.replaceChildren(el("section", { id: "summary" }, el("h1", {}, run.name), summary(run).flat()), ...parts(run).filter(Boolean));
  }
  page.append(el("p", { class: "small", style: { "margin-top": "4rem" } }, `Made by pcp ${DATA.version}. Everything on this page is in this file.`));
  contents();
  theme();
}

function contents() {
  const links = CONTENTS.map(([title, id]) => el("a", { href: `#${id}` }, title));
  document.getElementById("contents").replaceChildren(...links);
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) {
      links.forEach((l) => l.classList.toggle("here", l.hash === `#${entry.target.id}`));
      const here = links.find((l) => l.classList.contains("here"));
      if (here) here.parentNode.scrollLeft = here.offsetLeft - here.parentNode.offsetLeft - 24;
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  CONTENTS.forEach(([, id]) => { const target = document.getElementById(id); if (target) seen.observe(target); });
}

function theme() {
  const root = document.documentElement, changed = () => ON_THEME.forEach((f) => f());
  // A page opened from disk may have no storage.
  try { const kept = localStorage.getItem("pcp-theme"); if (kept) root.dataset.theme = kept; } catch { /* not kept */ }
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("pcp-theme", root.dataset.theme); } catch { /* not kept */ }
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  changed();
}

build();
