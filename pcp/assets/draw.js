"use strict";
// Drawing for the report and for the page of `pcp serve`: texts become text nodes, never markup, since a file may have any name.

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
  // A style attribute would need a laxer content policy than a style that a script sets.
  for (const [key, value] of Object.entries(props)) if (key === "style") node.style.cssText = value; else node.setAttribute(key, value);
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
function choice(names, pick, label, first = 0) {
  const buttons = names.map((name, i) =>
    el("button", { type: "button", "aria-pressed": i === first, onclick: () => {
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
  const f = run.judged, judged = (name, key, colour) => ({ name, x: f.epoch, y: f[key], colour });
  const accent = "var(--accent)";
  const charts = [
    chart({ title: "kNN", unit: " %", lines: [line("accuracy", "knn", accent), line("classifier", "classifier", "var(--dropped)")] }),
    chart({ title: "Loss", lines: [line("all", "loss", accent), line("instances", "loss_instance", "var(--instance)"), line("clusters", "loss_cluster", "var(--kept)"), line("warm-up", "loss_is", "var(--dropped)")] }),
    chart({ title: "Clusters (logarithmic)", log: true, lines: [line("K", "clusters", accent)] }),
    chart({ title: "Purification", unit: " %", floor: 0, lines: [line("kept", "kept", "var(--kept)"), line("dropped", "dropped", "var(--dropped)"), line("pulled back", "pulled_back", "var(--pulled)")] }),
    ...(f ? [
      chart({ title: "Purification, judged by labels", unit: " %", floor: 0, lines: [judged("of what was removed, did not belong", "precision", accent), judged("of what did not belong, was removed", "recall", "var(--dropped)")] }),
      chart({ title: "Purity of clusters", unit: " %", lines: [judged("after purification", "after", "var(--kept)"), judged("before", "before", "var(--instance)")] }),
    ] : []),
    chart({ title: "Churn", unit: " %", floor: 0, lines: [line("cluster partners that changed", "churn", accent)] }),
    chart({ title: "Directions in use", floor: 0, lines: [line("effective rank", "effective_rank", accent)] }),
    chart({ title: "Learning rate", log: true, lines: [line("lr", "lr", accent)] }),
  ];
  return section(run, "Curves", "Values by epoch. Point at a curve for its values.", el("div", { class: "charts" }, charts));
}

// ---------------------------------------------------------------- maps

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

/// A plane of points, `xs` and `ys` from 0 to 1, that are pointed at, zoomed and moved; with `onLasso`, they are also encircled.
///   describe(p)        what the tip at point p shows: nodes, or null for none
///   onPick(p)          a point was clicked, or chosen by Enter
///   onLasso(points, e) points were encircled
/// Points are written into the canvas as pixels: 100,000 of them take a few milliseconds.
function scatter({ xs, ys, label, describe, onPick, onLasso }) {
  const canvas = el("canvas", { role: "img", "aria-label": label, tabindex: 0 });
  const ring = el("div", { class: "ring", hidden: "" }), tip = el("div", { class: "tip", hidden: "" });
  const noose = svg("svg", { class: "noose", "aria-hidden": "true" }), line = svg("polygon", {});
  noose.append(line);
  const box = el("div", { class: "map" }, canvas, noose, ring, tip);
  const view = { k: 1, x: 0, y: 0 };
  let nearest = grid(xs, ys), group = null, palette = null, shown = null, chosen = null, due = false, hovered = -1, lasso = null, mode = "move", pixels = null;

  /// Colours every point by its group; `colours` are CSS colours, one per group.
  function paint(groups, colours) {
    group = groups;
    palette = rgba(colours);
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
    if (!w || !palette) return;
    const [cw, ch] = [Math.round(w * dpr), Math.round(h * dpr)];
    const context = canvas.getContext("2d");
    if (canvas.width !== cw || canvas.height !== ch || !pixels) {
      [canvas.width, canvas.height] = [cw, ch];
      pixels = context.createImageData(cw, ch);
    }
    const out = new Uint32Array(pixels.data.buffer), n = xs.length;
    out.fill(0);
    const size = Math.min(9, Math.max(2.2, (n > 30000 ? 2 : n > 3000 ? 2.8 : 4.6) * Math.sqrt(view.k))) * dpr;
    const small = disc(size, cw), large = disc(Math.max(size * 1.5, 4 * dpr), cw), ink = rgba([css("--ink")])[0];
    const dot = ({ reach, spans }, x, y, colour) => {
      if (x < reach || y < reach || x >= cw - reach || y >= ch - reach) return;
      const at = y * cw + x;
      for (let s = 0; s < spans.length; s += 2) out.fill(colour, at + spans[s], at + spans[s + 1]);
    };
    const [ax, bx, ay, by] = [view.k * cw, view.x * cw, view.k * ch, view.y * ch];
    for (let p = 0; p < n; p++) {
      if (shown && !shown[p]) continue;
      dot(small, (xs[p] * ax + bx) | 0, (ys[p] * ay + by) | 0, palette[group[p]]);
    }
    if (chosen) for (let p = 0; p < n; p++) if (chosen[p]) {
      const [x, y] = [(xs[p] * ax + bx) | 0, (ys[p] * ay + by) | 0];
      dot(large, x, y, ink);
      dot(small, x, y, palette[group[p]]);
    }
    context.putImageData(pixels, 0, 0);
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
    if (shown && p >= 0 && !shown[p]) p = -1;
    if (p === hovered) return;
    hovered = p;
    ring.hidden = p < 0;
    const said = p < 0 ? null : describe(p);
    tip.hidden = !said;
    if (said) tip.replaceChildren(...said);
    if (p >= 0) point(p);
  }
  function zoom(factor, cx = 0.5, cy = 0.5) {
    const k = Math.max(1, Math.min(60, view.k * factor)), f = k / view.k;
    view.x = cx - (cx - view.x) * f; view.y = cy - (cy - view.y) * f; view.k = k;
    keep();
  }
  /// Keeps the map within its frame.
  function keep() {
    view.x = Math.min(0, Math.max(1 - view.k, view.x)); view.y = Math.min(0, Math.max(1 - view.k, view.y));
    redraw();
  }
  function reset() {
    Object.assign(view, { k: 1, x: 0, y: 0 });
    redraw();
  }
  const place = (e) => {
    const r = canvas.getBoundingClientRect();
    return [(e.clientX - r.left) / r.width, (e.clientY - r.top) / r.height, r];
  };
  const under = (x, y, r) => nearest((x - view.x) / view.k, (y - view.y) / view.k, 14 / r.width / view.k, 14 / r.height / view.k);
  /// The points within the noose.
  function caught() {
    const loop = lasso.map(([x, y]) => [(x - view.x) / view.k, (y - view.y) / view.k]), m = loop.length;
    const [x0, x1] = [Math.min(...loop.map((q) => q[0])), Math.max(...loop.map((q) => q[0]))];
    const found = [];
    for (let p = 0; p < xs.length; p++) {
      const [x, y] = [xs[p], ys[p]];
      if (x < x0 || x > x1 || (shown && !shown[p])) continue;
      let inside = false;
      for (let i = 0, j = m - 1; i < m; j = i++) {
        const [a, b] = [loop[i], loop[j]];
        if ((a[1] > y) !== (b[1] > y) && x < (b[0] - a[0]) * (y - a[1]) / (b[1] - a[1]) + a[0]) inside = !inside;
      }
      if (inside) found.push(p);
    }
    return found;
  }
  function tighten() {
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    line.setAttribute("points", lasso ? lasso.map(([x, y]) => `${(x * w).toFixed(1)},${(y * h).toFixed(1)}`).join(" ") : "");
  }
  const fingers = new Map();
  let pressed = null;
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    const [x, y] = place(e);
    zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.002)), x, y);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (e) => {
    fingers.set(e.pointerId, place(e));
    pressed = [e.clientX, e.clientY];
    if (onLasso && fingers.size === 1 && (mode === "lasso") !== e.shiftKey) { lasso = [place(e).slice(0, 2)]; hover(-1); }
    // An event that a script made has no pointer to capture.
    try { canvas.setPointerCapture(e.pointerId); } catch { /* not captured */ }
  });
  canvas.addEventListener("pointermove", (e) => {
    const [x, y, r] = place(e), before = fingers.get(e.pointerId);
    if (before && fingers.size === 2) {
      lasso = null;
      tighten();
      const [, other] = [...fingers].find(([id]) => id !== e.pointerId);
      const apart = (p) => Math.hypot((p[0] - other[0]) * r.width, (p[1] - other[1]) * r.height);
      zoom(apart([x, y]) / Math.max(1, apart(before)), other[0], other[1]);
    } else if (before && lasso) {
      const last = lasso[lasso.length - 1];
      if (Math.hypot((x - last[0]) * r.width, (y - last[1]) * r.height) > 3) lasso.push([x, y]);
      tighten();
    } else if (before) {
      view.x += x - before[0]; view.y += y - before[1];
      keep();
    }
    if (before) fingers.set(e.pointerId, [x, y, r]);
    if (!lasso) hover(under(x, y, r));
  });
  canvas.addEventListener("pointerup", (e) => {
    const [x, y, r] = place(e), still = pressed && Math.hypot(e.clientX - pressed[0], e.clientY - pressed[1]) < 4;
    if (lasso && lasso.length > 2) onLasso(caught(), e);
    else if (onPick && still) { const p = under(x, y, r); if (p >= 0 && !(shown && !shown[p])) onPick(p); }
    release(e);
  });
  canvas.addEventListener("pointercancel", release);
  function release(e) {
    fingers.delete(e.pointerId);
    lasso = pressed = null;
    tighten();
  }
  canvas.addEventListener("pointerleave", () => hover(-1));
  canvas.addEventListener("dblclick", reset);
  const moves = { "+": () => zoom(1.4), "-": () => zoom(1 / 1.4), 0: reset, ArrowLeft: () => { view.x += 0.08; keep(); }, ArrowRight: () => { view.x -= 0.08; keep(); }, ArrowUp: () => { view.y += 0.08; keep(); }, ArrowDown: () => { view.y -= 0.08; keep(); } };
  canvas.addEventListener("keydown", (e) => { if (moves[e.key] && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); e.stopPropagation(); moves[e.key](); } });
  new ResizeObserver(redraw).observe(box);
  const button = (text, name, act) => el("button", { type: "button", "aria-label": name, onclick: act }, text);
  return {
    box, paint, redraw, reset, zoom,
    buttons: () => el("span", { class: "choice" }, button("+", "Zoom in", () => zoom(1.6)), button("−", "Zoom out", () => zoom(1 / 1.6)), button("Reset", "Reset the map", reset)),
    /// Whether a drag moves the map or draws a noose; Shift swaps the two.
    setMode: (name) => { mode = name; },
    /// New places for all points.
    move: (nx, ny) => { [xs, ys] = [nx, ny]; nearest = grid(xs, ys); redraw(); },
    /// Shows only points with a nonzero entry; null shows all.
    show: (mask) => { shown = mask; redraw(); },
    /// Emphasises points with a nonzero entry.
    choose: (mask) => { chosen = mask; redraw(); },
  };
}

/// CSS colours as the pixels of a canvas.
function rgba(colours) {
  const canvas = el("canvas", { width: Math.max(1, colours.length), height: 1 }), context = canvas.getContext("2d", { willReadFrequently: true });
  colours.forEach((c, i) => { context.fillStyle = c; context.fillRect(i, 0, 1, 1); });
  return new Uint32Array(context.getImageData(0, 0, Math.max(1, colours.length), 1).data.buffer);
}

/// The spans of a filled circle in a picture `width` pixels wide, as offsets from its middle: from, to, from, to ...
function disc(size, width) {
  const r = size / 2, reach = Math.ceil(r), spans = [];
  for (let y = -reach; y <= reach; y++) {
    const half = Math.sqrt(Math.max(0, r * r - y * y));
    if (half > 0.3) spans.push(y * width - Math.floor(half), y * width + Math.floor(half) + 1);
  }
  return { reach: reach + 1, spans };
}

/// The ways to colour a map: `[name, group of every point, names of the groups, colour of a group]`.
function colourWays(label, classes, cluster, status, statuses = STATUS) {
  const ways = [];
  if (label) ways.push(["label", label, classes, hue]);
  if (cluster) {
    const ids = [...new Set(cluster)].sort((a, b) => a - b), place = new Map(ids.map((id, i) => [id, i]));
    ways.push(["cluster", Array.from(cluster, (id) => place.get(id)), ids.map((id) => `cluster ${id}`), hue]);
    if (statuses === STATUS || status.some((s) => s)) ways.push(["status", status, statuses, (s) => css(STATUS_VARS[s])]);
  }
  return ways;
}

/// Paints `plot` in one of the ways, and shows what the colours mean.
function paintWay(plot, legend, [, groups, names, colour]) {
  const used = new Uint8Array(names.length);
  for (const g of groups) used[g] = 1;
  const kinds = names.map((name, g) => [name, g]).filter(([, g]) => used[g]);
  legend.replaceChildren(...kinds.slice(0, 24).map(([name, g]) => el("span", {}, el("i", { style: { background: colour(g) } }), name)),
    ...(kinds.length > 24 ? [el("span", {}, `and ${kinds.length - 24} more`)] : []));
  plot.paint(groups, names.map((_, g) => colour(g)));
}

// ---------------------------------------------------------------- runs

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
    el("div", { class: "lights" }, run.lights.map((l) => el("div", { class: `card light ${l.level}` }, el("i", { role: "img", "aria-label": l.level }), el("div", {}, el("b", {}, l.name), l.text, l.advice ? el("div", { class: "advice" }, l.advice) : null)))),
    run.warnings.length ? el("details", {}, el("summary", {}, "Warnings of the run"), el("ul", {}, run.warnings.map(([text, times]) => el("li", {}, times > 1 ? `${text} (${times} times)` : text)))) : null,
  ];
}

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

// ---------------------------------------------------------------- light and dark

/// Functions that repaint what has colours of its own.
const ON_THEME = [];

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
