// Draws a page of findings from the JSON in #data, with the tools of draw.js.

const DATA = JSON.parse(document.getElementById("data").textContent);

const named = (image) => image.link ? el("a", { href: image.link, target: "_blank", rel: "noreferrer" }, image.name) : image.name;

/// All pictures in the order of the page: [image, caption].
const SHOWN = [];
const enlarged = { at: 0, img: el("img", { alt: "" }), about: el("div", {}) };
const dialog = el("dialog", { "aria-label": "Enlarged picture", onclick: (e) => { if (e.target === dialog) dialog.close(); } }, enlarged.img, enlarged.about,
  el("div", { class: "tools" }, el("button", { type: "button", onclick: () => enlarge(enlarged.at - 1) }, "← before"),
    el("button", { type: "button", onclick: () => enlarge(enlarged.at + 1) }, "next →"),
    el("button", { type: "button", onclick: () => dialog.close() }, "Close")));
dialog.addEventListener("keydown", (e) => {
  if (e.key === "ArrowLeft") enlarge(enlarged.at - 1);
  if (e.key === "ArrowRight") enlarge(enlarged.at + 1);
});

function enlarge(at) {
  if (at < 0 || at >= SHOWN.length) return;
  const [image, caption] = SHOWN[at];
  enlarged.at = at;
  enlarged.img.src = image.picture;
  enlarged.about.replaceChildren(el("b", {}, named(image)), el("div", { class: "small" }, caption));
  if (!dialog.open) dialog.showModal();
}

function figure([index, caption, marked]) {
  const image = DATA.images[index], at = SHOWN.length;
  SHOWN.push([image, caption]);
  return el("figure", { class: marked ? "marked" : "" },
    el("button", { type: "button", "aria-label": `Enlarge ${image.name}`, onclick: () => enlarge(at) },
      image.picture ? el("img", { src: image.picture, alt: image.name, loading: "lazy" }) : "cannot be shown"),
    el("figcaption", {}, el("b", {}, named(image)), caption));
}

function group(found) {
  return el("div", { class: "card found" }, found.caption ? el("p", {}, found.caption) : null,
    el("div", { class: "set" }, found.pictures.map(figure)), found.more ? el("p", { class: "small" }, `and ${count(found.more)} more`) : null);
}

function build() {
  document.title = `${DATA.name} – pcp`;
  const sections = DATA.sections.filter((s) => s.groups.length);
  document.getElementById("contents").replaceChildren(el("a", { href: "#summary" }, "Summary"), ...sections.map((s, i) => el("a", { href: `#found${i}` }, s.title)));
  document.getElementById("page").replaceChildren(
    el("section", { id: "summary" }, el("h1", {}, DATA.name), el("p", { class: "lead" }, DATA.sentence),
      DATA.notes.map((note) => el("p", { class: "note" }, note)),
      el("div", { class: "tiles" }, DATA.tiles.map(([name, value, note]) => el("div", { class: "card" }, el("span", {}, name), el("b", {}, value), note ? el("span", {}, note) : null)))),
    ...sections.map((s, i) => el("section", { id: `found${i}` }, el("h2", {}, s.title), el("p", { class: "hint" }, s.about), s.groups.map(group),
      s.left_out ? el("p", { class: "small" }, `${count(s.left_out)} more pictures are in the tables.`) : null)),
    el("p", { class: "small" }, `Made by pcp ${DATA.version}. The pictures are in this file; a name opens the original, which is where it was.`),
    dialog);
  theme();
}

build();
