"use strict";
// Sheets of pictures: a grid of any number of images of which only those in sight exist, with a cursor, a selection and the keyboard.

const SIZES = { small: 84, medium: 124, large: 196 };

/// A sheet. `onAct(key, rows, cursor)` is called for keys that decide; `onOpen(row)` for Enter and double click.
function sheet({ label, onAct, onOpen, onSelect }) {
  const list = el("div", { class: "sheetlist", role: "listbox", tabindex: 0, "aria-label": label, "aria-multiselectable": "true" });
  const room = el("div", { class: "room", role: "presentation" });
  list.append(room);
  let rows = new Uint32Array(0), notes = null, size = SIZES.medium, columns = 1, cursor = 0, anchor = 0, chosen = new Set(), made = new Map(), due = false;
  const gap = 6;

  function redraw() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; draw(); });
  }
  /// Makes the tiles in sight, and a screen above and below, and removes the others.
  function draw() {
    const width = list.clientWidth - 2 * gap, height = list.clientHeight;
    if (width <= 0) return;
    columns = Math.max(1, Math.floor((width + gap) / (size + gap)));
    const side = Math.floor((width + gap) / columns) - gap, step = side + gap;
    room.style.height = `${Math.ceil(rows.length / columns) * step + 2 * gap}px`;
    const from = Math.max(0, Math.floor((list.scrollTop - height) / step)) * columns, to = Math.min(rows.length, Math.ceil((list.scrollTop + 2 * height) / step) * columns);
    for (const [at, tile] of made) if (at < from || at >= to || tile.row !== rows[at]) { tile.node.remove(); made.delete(at); }
    const fresh = [];
    for (let at = from; at < to; at++) {
      let tile = made.get(at);
      if (!tile) {
        tile = makeTile(at);
        made.set(at, tile);
        fresh.push(tile.node);
      }
      tile.node.style.transform = `translate(${gap + at % columns * step}px, ${gap + Math.floor(at / columns) * step}px)`;
      tile.node.style.setProperty("--w", `${side}px`);
      dress(tile, at);
    }
    room.append(...fresh);
    if (rows.length) list.setAttribute("aria-activedescendant", `tile${cursor}`); else list.removeAttribute("aria-activedescendant");
  }
  function makeTile(at) {
    const row = rows[at];
    const picture = S.overview.pictures.found ? el("img", { src: thumb(row), alt: "", draggable: "false", decoding: "async" }) : el("span", { class: "noname" }, nameOf(row).split("/").pop());
    if (picture.tagName === "IMG") picture.addEventListener("error", () => picture.replaceWith(el("span", { class: "noname" }, nameOf(row).split("/").pop())), { once: true });
    const badge = el("span", { class: "badge", "aria-hidden": "true" }), note = el("span", { class: "note-line", "aria-hidden": "true" });
    const node = el("div", { class: "tile", role: "option", id: `tile${at}` }, picture, badge, note);
    return { node, row, badge, note, dress: "" };
  }
  /// Brings a tile up to date with marks, selection and cursor.
  function dress(tile, at) {
    const row = tile.row, said = notes ? notes.get(row) || "" : "";
    const key = `${at}/${S.mark[row]}/${S.same[row]}/${chosen.has(row)}/${at === cursor}/${S.status[row]}/${S.label[row]}/${said}/${S.names ? 1 : 0}`;
    if (tile.dress === key) return;
    tile.dress = key;
    const mark = MARKS[S.mark[row]] || (S.same[row] >= 0 ? "same" : "");
    tile.node.className = `tile${S.overview.clustered ? ` s${S.status[row]}` : ""}${mark ? ` m-${mark}` : ""}${at === cursor ? " cursor" : ""}`;
    tile.node.setAttribute("aria-selected", chosen.has(row));
    tile.node.setAttribute("aria-label", [nameOf(row), ...about(row), said].filter(Boolean).join(", "));
    tile.node.title = [nameOf(row), ...about(row), said].filter(Boolean).join("\n");
    tile.badge.textContent = { keep: "✓", remove: "✕", same: "=" }[mark] || (S.label[row] !== S.label0[row] ? "✎" : "");
    tile.note.textContent = said;
  }
  function tell() {
    redraw();
    if (onSelect) onSelect(chosen, rows[cursor]);
  }
  /// Moves the cursor into sight.
  function reveal() {
    const step = Math.floor((list.clientWidth - gap) / columns), top = Math.floor(cursor / columns) * step;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + step + gap > list.scrollTop + list.clientHeight) list.scrollTop = top + step + gap - list.clientHeight;
  }
  function move(to, extend) {
    if (!rows.length) return;
    cursor = Math.max(0, Math.min(rows.length - 1, to));
    if (extend) between(); else anchor = cursor;
    reveal();
    tell();
  }
  function between() {
    const [a, b] = [Math.min(anchor, cursor), Math.max(anchor, cursor)];
    chosen = new Set(rows.slice(a, b + 1));
  }
  const place = (node) => {
    const tile = node.closest && node.closest(".tile");
    return tile ? Number(tile.id.slice(4)) : -1;
  };
  list.addEventListener("scroll", redraw, { passive: true });
  list.addEventListener("click", (e) => {
    const at = place(e.target);
    if (at < 0) return;
    cursor = at;
    if (e.shiftKey) between();
    else {
      anchor = at;
      if (e.ctrlKey || e.metaKey || list.classList.contains("many")) toggle(rows[at]);
      else chosen = new Set([rows[at]]);
    }
    tell();
  });
  list.addEventListener("dblclick", (e) => { const at = place(e.target); if (at >= 0) onOpen(rows[at]); });
  function toggle(row) { if (!chosen.delete(row)) chosen.add(row); }
  list.addEventListener("keydown", (e) => {
    if (e.altKey || !rows.length) return;
    const page = Math.max(1, Math.floor(list.clientHeight / (list.clientWidth / columns))) * columns;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -page, PageDown: page, Home: -rows.length, End: rows.length };
    if (e.key in steps && !e.ctrlKey && !e.metaKey) {
      // Up and down stay in their column.
      const to = cursor + steps[e.key];
      if (Math.abs(steps[e.key]) === columns && (to < 0 || to >= rows.length)) { e.preventDefault(); return; }
      move(to, e.shiftKey);
    } else if (e.key === " ") { toggle(rows[cursor]); anchor = cursor; tell(); }
    else if (e.key === "Enter") onOpen(rows[cursor]);
    else if (e.key === "Escape") { chosen = new Set(); tell(); }
    else if ((e.ctrlKey || e.metaKey) && e.key === "a") { chosen = new Set(rows); tell(); }
    else if (/^[0-9]$/.test(e.key) && !e.ctrlKey && !e.metaKey) onAct(e.key, acted(), rows[cursor]);
    else return;
    e.preventDefault();
    e.stopPropagation();
  });
  /// What a decision is about: the selection, or the image under the cursor.
  const acted = () => (chosen.size ? [...chosen] : rows.length ? [rows[cursor]] : []);
  new ResizeObserver(redraw).observe(list);
  return {
    list, redraw, acted,
    /// Shows `found`; the cursor stays on its image where that is still there.
    show(found, texts, keep) {
      const before = rows[cursor];
      rows = found;
      notes = texts || null;
      const at = keep && before !== undefined ? rows.indexOf(before) : -1;
      cursor = anchor = Math.max(0, at);
      const all = keep && chosen.size ? new Set(rows) : null;
      chosen = all ? new Set([...chosen].filter((row) => all.has(row))) : new Set();
      for (const tile of made.values()) tile.node.remove();
      made = new Map();
      if (!keep) list.scrollTop = 0;
      tell();
    },
    resize(name) { size = SIZES[name]; redraw(); },
    next(step) { move(cursor + step, false); return rows[cursor]; },
    select(found) { chosen = new Set(found); tell(); },
    clear() { chosen = new Set(); tell(); },
    get rows() { return rows; },
    get cursor() { return rows[cursor]; },
    get chosen() { return chosen; },
  };
}
