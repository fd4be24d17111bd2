// Draws the page from the JSON in #data, with draw.js.

const DATA = JSON.parse(document.getElementById("data").textContent);

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
  return el("button", { type: "button", class: "framed" + status, title: lines.join("\n"), "aria-label": lines.join(", "), onclick: () => enlarge(run, i, lines) }, inner);
}

/// Shows an image as large as the page has it, with all that is known of it; a tap or Escape closes it.
function enlarge(run, i, lines) {
  const large = run.large && i < run.large.count;
  const shown = large ? tile(`l${run.at}`, run.large, i) : hasPicture(run, i) ? tile(`t${run.at}`, run.thumbnails, i) : null;
  const path = run.source && `file://${(run.source + "/" + run.images.file[i]).split("/").map(encodeURIComponent).join("/")}`;
  const box = el("dialog", { class: "large", "aria-label": lines[0] }, shown,
    el("div", {}, el("b", {}, lines[0]), lines.slice(1).map((line) => el("div", {}, line)),
      path && !run.images.file[i].includes("…") ? el("a", { href: path, target: "_blank" }, "Open the file") : null,
      el("button", { type: "button", onclick: () => box.close() }, "Close")));
  box.addEventListener("click", (e) => { if (e.target === box || e.target === shown) box.close(); });
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

// ---------------------------------------------------------------- clusters

function sheets(run) {
  if (!run.sheets || !run.sheets.kinds.length) return null;
  const known = new Map(run.clusters.map((c) => [c.id, c]));
  const place = el("div", {}), first = 6;
  const sheet = (id) => {
    const c = known.get(id);
    const groups = run.sheets.of[id].map((members, s) => members.length ? el("div", { class: `group s${s}` },
      run.plain ? (s ? el("span", { title: "fewer than two in five of their nearest neighbours are in this cluster" }, "unsorted") : null) : el("span", { title: STATUS_MEANS[s] }, `${STATUS[s]} ${members.length < (c ? c.counts[s] : 0) ? `${members.length} of ${count(c.counts[s])}` : members.length}`),
      el("div", { class: "strip" }, members.map((i) => picture(run, i)))) : null);
    const about = c ? [`${count(c.size)} images`, c.purity != null ? `${percent(c.purity)} ${run.classes[c.class]}` + (c.purity_kept != null ? `, ${percent(c.purity_kept)} of those kept` : "") : null, c.same != null ? `${percent(c.same)} as before` : null] : [];
    return el("div", { class: "card sheet" }, el("h3", {}, `Cluster ${id}`, el("span", { class: "small" }, about.filter(Boolean).join(" · "))), el("div", { class: "groups" }, groups));
  };
  /// The first of a kind, and a button for more of them.
  const show = (k, from = 0) => {
    const { clusters } = run.sheets.kinds[k], to = from + (from ? 4 * first : first);
    if (!from) place.replaceChildren();
    place.append(...clusters.slice(from, to).map(sheet));
    if (to < clusters.length) {
      const more = el("button", { type: "button", onclick: () => { more.remove(); show(k, to); } }, `More clusters (${count(clusters.length - to)})`);
      place.append(more);
    }
  };
  show(0);
  const about = run.plain ? `Clusters ${run.grouped}, their members from the centre outwards; unsorted ones from the farthest. Tap an image to enlarge it, with its name and distance.`
    : `Clusters ${run.grouped}, and the status of their members after purification: kept or filtered (CP_r), dropped or pulled back (CP_s). Tap an image to enlarge it, with its name, distance and vote.`;
  return section(run, "Clusters", about,
    el("div", { class: "tools" }, choice(run.sheets.kinds.map((k) => k.name), (k) => show(k), "Which clusters"), run.plain ? null : statusLegend()), place, run.plain ? null : clusterList(run));
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
  const [title, meaning] = run.tried.measure === "silhouette" ? ["Mean silhouette", "how much nearer an image is to its own cluster than to the next"]
    : ["Modularity", "the share of neighbours that are in one cluster, less what it would be by chance"];
  return section(run, "How many clusters", `${count(run.tried.chosen)} clusters have the greatest ${title.toLowerCase()}: ${meaning}.${run.tried.measure === "silhouette" ? " A flat curve means that the images do not fall into clusters." : ""}`,
    el("div", { class: "charts" }, chart({ title, axis: "K =", lines: [line(run.tried.measure, run.tried.score, "var(--accent)")] }),
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
  return section(run, "Which images may not belong", run.outliers_about,
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

function map(run) {
  if (!run.map) return null;
  const n = run.map.x.length;
  const xs = Float32Array.from(run.map.x, (v) => 0.03 + 0.94 * v / 65535), ys = Float32Array.from(run.map.y, (v) => 0.97 - 0.94 * v / 65535);
  const of = (key) => run.images[key] && run.map.image.map((i) => run.images[key][i]);
  const ways = colourWays(of("label"), run.classes, of("cluster"), of("status"), run.plain ? ["sorted", "unsorted"] : STATUS);
  if (!ways.length) ways.push(["", new Array(n).fill(0), ["image"], () => css("--accent")]);
  const describe = (p) => {
    const i = run.map.image[p], [name, ...rest] = facts(run, i);
    const thumb = hasPicture(run, i) ? tile(`t${run.at}`, run.thumbnails, i) : null;
    if (thumb) thumb.style.setProperty("--w", "72px");
    return [thumb, el("div", {}, el("b", {}, name), rest.map((line) => el("div", {}, line)))].filter(Boolean);
  };
  const plot = scatter({ xs, ys, label: "Map of the images", describe }), legend = el("div", { class: "legend" });
  let way = ways[0];
  const paint = (i) => { way = ways[i]; paintWay(plot, legend, way); };
  ON_THEME.push(() => paintWay(plot, legend, way));
  paint(0);
  const some = n < run.map.of ? ` ${count(n)} of ${count(run.map.of)} are shown.` : "";
  return section(run, "Map", `Every point is an image; images with similar embeddings are close together (t-SNE).${some} Point at one to see it; wheel or pinch to zoom, drag to move.`,
    el("div", { class: "tools" }, ways.length > 1 ? choice(ways.map((w) => `by ${w[0]}`), paint, "Colour") : null, plot.buttons()), plot.box, legend);
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
  return section(run, "Where the network looks", "An image, and where the network is most active: from blue (least) to red (most).", el("div", { class: "pairs" }, pairs));
}

/// The words of the page.
const WORDS = [
  ["Embedding", "the numbers that the network gives for an image; images with similar embeddings look alike to it"],
  ["Cluster", "images with similar embeddings, found by k-means without labels"],
  ["Purification", "taking out of a cluster what does not belong: first by distance (CP_r), then by votes of earlier epochs (CP_s)"],
  ["Kept", "images that stay in their cluster after purification and learn together; the share is of all images"],
  ["Filtered", "too far from the centre of its cluster (CP_r): it learns alone"],
  ["Dropped", "near the centre, but seldom in one cluster with it in earlier epochs (CP_s): it learns alone"],
  ["Pulled back", "far from the centre, but nearly always in one cluster with it in earlier epochs (CP_s): it is kept all the same"],
  ["Instance", "an image that is its own class: alone in its cluster, or not clustered"],
  ["kNN", "share of images whose class the most similar images with labels guess rightly; a measure of the embeddings"],
  ["Purity", "share of a cluster that is of its most frequent class"],
];

function words() {
  return el("section", { id: "words" }, el("h2", {}, "Words"), el("dl", { class: "words" }, WORDS.flatMap(([word, means]) => [el("dt", {}, word), el("dd", {}, means)])));
}

const parts = (run) => [labelErrors, outliers, tried, sheets, map, curves, confusion, neighbours, heat, settings].map((part) => part(run));

function build() {
  const page = document.getElementById("page"), runs = DATA.runs;
  const several = runs.length > 1;
  document.title = `${runs.map((r) => r.name).join(", ")} – pcp report`;
  runs.forEach((run, i) => {
    run.at = several ? i + 1 : 0;
    addSheets(`t${run.at}`, run.thumbnails);
    if (run.large) addSheets(`l${run.at}`, run.large);
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
  CONTENTS.push(["Words", "words"]);
  page.append(words(), el("p", { class: "small", style: { "margin-top": "4rem" } }, `Made by pcp ${DATA.version}. Everything on this page is in this file.`));
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

build();
