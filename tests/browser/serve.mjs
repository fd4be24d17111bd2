// The page of `pcp serve` in headless Chromium, as a person would use it.
//   node serve.mjs check     trains a small run and watches it, explores, decides, kills the server, starts it again
//   node serve.mjs large     seconds and memory at 100,000 made-up images
//   node serve.mjs watched   what watching costs a training: its epochs by turns with and without a page that is open
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync, existsSync } from "node:fs";
import { resolve } from "node:path";
import { launch } from "./browser.mjs";

const PCP = process.env.PCP;
const failures = [];
const check = (ok, what) => { if (!ok) { failures.push(what); console.error(`FAILED  ${what}`); } };
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/// Starts the program; resolves when it has printed its link.
function start(...args) {
  const child = spawn(PCP, args, { stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  child.said = () => text;
  child.ended = new Promise((done) => child.on("exit", done));
  return new Promise((done, fail) => {
    const hear = (bytes) => {
      text += bytes;
      const link = /open (http:\S+)/.exec(text);
      if (link) { child.link = link[1]; done(child); }
    };
    child.stdout.on("data", hear);
    child.stderr.on("data", hear);
    child.on("exit", (code) => fail(new Error(`${args.join(" ")} ended with ${code}: ${text}`)));
  });
}

/// A page that reports its errors; `quiet` while the server is killed on purpose.
async function open(context, link, name) {
  const page = await context.newPage();
  // A busy machine is no failure.
  page.setDefaultTimeout(Number(process.env.PATIENCE || 120) * 1000);
  page.quiet = false;
  page.on("console", (m) => check(page.quiet || !["error", "warning"].includes(m.type()), `${name}: console: ${m.text()}`));
  page.on("pageerror", (e) => check(page.quiet, `${name}: ${e.message}`));
  page.on("dialog", (d) => { check(false, `${name}: a dialog opened: ${d.message()}`); d.dismiss(); });
  page.on("request", (r) => check(/^(data:|blob:|http:\/\/(127\.0\.0\.1|localhost):)/.test(r.url()), `${name}: asks for ${r.url().slice(0, 80)}`));
  if (link) await page.goto(link);
  return page;
}
const view = async (page, name) => { await page.evaluate((n) => { location.hash = `#0/${n}`; }, name); await page.waitForSelector(`main.${name}`); };
const marks = (page) => page.evaluate(() => Object.keys(S.decided.marks).length);

async function accessible(page, name) {
  await page.evaluate(readFileSync("node_modules/axe-core/axe.min.js", "utf8"));
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  for (const v of found.violations.filter((v) => ["serious", "critical"].includes(v.impact))) check(false, `${name}: axe: ${v.id}: ${v.nodes[0].html.slice(0, 140)} ${v.nodes[0].failureSummary.replaceAll("\n", " ").slice(0, 200)}`);
}

async function lasso(page) {
  const box = await page.locator(".map canvas").boundingBox();
  const at = (x, y) => [box.x + x * box.width, box.y + y * box.height];
  await page.getByRole("button", { name: "Lasso" }).click();
  await page.mouse.move(...at(0.01, 0.01));
  await page.mouse.down();
  for (const [x, y] of [[0.55, 0.01], [0.55, 0.5], [0.5, 0.99], [0.01, 0.99], [0.01, 0.5]]) await page.mouse.move(...at(x, y), { steps: 6 });
  await page.mouse.up();
  await page.getByRole("button", { name: "Move", exact: true }).click();
}

async function main() {
  const browser = await launch();
  // 1. A run is trained and watched.
  const trained = await start("train", "bundled", "--out", "runs/live", "--limit", "300", "--width", "8", "--epochs", "8", "--batch", "32", "--clusters", "12", "--serve");
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await open(context, trained.link, "live");
  await page.waitForSelector("main.overview .live:not([hidden])");
  await page.waitForFunction(() => S.state && S.state.training && S.state.training.live);
  await page.waitForSelector(".charts .chart path");
  const epochs = await page.evaluate(() => S.overview.curves.epoch.length);
  await page.screenshot({ path: "live-running.png" });
  await page.waitForFunction((n) => S.overview.curves.epoch.length > n, epochs);
  check((await page.locator(".live").innerText()).includes("Time left"), "live: no time left");
  // The link works once.
  const other = await (await browser.newContext()).newPage();
  check((await other.goto(trained.link)).status() === 403, "live: the link works twice");
  await other.context().close();
  await page.waitForFunction(() => S.overview.finished);

  // 2. The map, a lasso, marks, undo, redo, a reload.
  await view(page, "explore");
  await page.waitForFunction(() => S.map);
  await page.waitForSelector(".tile img");
  await lasso(page);
  await page.waitForFunction(() => document.getElementById("set").textContent.startsWith("Encircled"));
  const caught = await page.evaluate(() => shown.grid.rows.length);
  check(caught > 0 && caught < 300, `lasso: ${caught} images`);
  await page.locator(".sheetlist").focus();
  await page.keyboard.press("Control+a");
  await page.keyboard.press("2");
  await page.waitForFunction((n) => Object.keys(S.decided.marks).length === n, caught);
  await page.keyboard.press("Control+z");
  await page.waitForFunction(() => Object.keys(S.decided.marks).length === 0);
  await page.keyboard.press("Control+Shift+z");
  await page.waitForFunction((n) => Object.keys(S.decided.marks).length === n, caught);
  await page.reload();
  await page.waitForSelector("main.explore .tile");
  check(await marks(page) === caught, "reload: marks are lost");

  // 3. Two tabs see each other's marks, and undo their own.
  const second = await open(context, page.url(), "second tab");
  await second.waitForSelector("main.explore .tile");
  await second.locator(".sheetlist").focus();
  await second.keyboard.press("End");
  await second.keyboard.press("1");
  await page.waitForFunction(() => Object.values(S.decided.marks).includes("keep"));
  await second.keyboard.press("Control+z");
  await page.waitForFunction(() => !Object.values(S.decided.marks).includes("keep"));
  check(await marks(page) === caught, "two tabs: the other's marks were undone");
  await second.close();

  // 4. The server is killed, and started again on the run.
  page.quiet = true;
  trained.kill("SIGKILL");
  await trained.ended;
  await page.close();
  const served = await start("serve", "runs/live");
  const again = await open(context, served.link, "again");
  await again.waitForSelector("main.explore .tile");
  check(await marks(again) === caught, "kill: marks are lost");

  // 5. Keys alone: from the top of the page to a mark, a full-size picture, a label.
  await again.locator("body").click({ position: { x: 2, y: 2 } }).catch(() => {});
  await again.keyboard.press("g");
  check(await again.evaluate(() => document.activeElement.className.includes("sheetlist")), "keys: G does not reach the sheet");
  for (const key of ["ArrowRight", "ArrowRight", "Shift+ArrowRight", "1"]) await again.keyboard.press(key);
  await again.waitForFunction(() => Object.values(S.decided.marks).filter((m) => m === "keep").length === 2);
  await again.keyboard.press("Enter");
  await again.waitForSelector("dialog.lightbox img");
  await again.waitForFunction(() => { const i = document.querySelector("dialog.lightbox .stage img"); return i.complete && i.naturalWidth > 0; });
  await accessible(again, "full size");
  await again.screenshot({ path: "full-size.png" });
  await again.keyboard.press("ArrowRight");
  await again.keyboard.press("Escape");
  await again.waitForSelector("dialog", { state: "detached" });
  check(await again.evaluate(() => document.activeElement.className.includes("sheetlist")), "keys: the focus is lost after the picture");
  await again.keyboard.press("3");
  await again.waitForSelector("dialog input");
  await again.keyboard.type("unheard of");
  await again.keyboard.press("Enter");
  await again.waitForFunction(() => Object.values(S.decided.labels).includes("unheard of"));
  await again.keyboard.press("7");
  await again.waitForFunction(() => document.getElementById("set").textContent.startsWith("Most like"));
  await again.keyboard.press("?");
  await again.waitForSelector("dialog .keys");
  await accessible(again, "keys");
  await again.keyboard.press("Escape");

  // 6. A picture is dropped; it is one of the run, so that it finds itself.
  await again.evaluate(async () => {
    const blob = await (await fetch(whole(5))).blob(), data = new DataTransfer();
    data.items.add(new File([blob], "dropped.jpg", { type: "image/jpeg" }));
    document.body.dispatchEvent(new DragEvent("dragenter", { bubbles: true, dataTransfer: data }));
    document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: data }));
  });
  await again.waitForFunction(() => document.getElementById("set").textContent.startsWith("Most like dropped.jpg"));
  check(await again.evaluate(() => [...shown.grid.rows.slice(0, 5)].includes(5)), "drop: the picture does not find itself");

  // 7. Clusters: a name, a merge; copies and labels.
  await view(again, "clusters");
  await again.locator(".pen").first().click();
  await again.waitForSelector("dialog input");
  await again.keyboard.type("Fruit");
  await again.keyboard.press("Enter");
  await again.waitForFunction(() => Object.values(S.decided.names).includes("Fruit"));
  const before = await again.locator(".cluster").count();
  await again.locator(".cluster input[type=checkbox]").nth(0).check();
  await again.locator(".cluster input[type=checkbox]").nth(1).check();
  await again.getByRole("button", { name: "Merge the selected clusters" }).click();
  await again.waitForFunction((n) => document.querySelectorAll(".cluster").length === n - 1, before);
  for (const name of ["copies", "labels"]) {
    await view(again, name);
    await again.getByRole("button", { name: "Look for them" }).click();
    await again.waitForFunction(() => document.querySelector(".column progress").hidden && document.querySelectorAll(".column .hint").length > 1);
  }

  // 8. Every view at two widths, light and dark: nothing wider than the screen, no serious fault.
  const state = await context.storageState();
  for (const colorScheme of ["light", "dark"]) {
    for (const [size, viewport] of [["wide", { width: 1280, height: 900 }], ["narrow", { width: 360, height: 780 }]]) {
      const looks = await browser.newContext({ colorScheme, viewport, storageState: state });
      const look = await open(looks, new URL("/#0/overview", served.link).href, `${size} ${colorScheme}`);
      for (const name of ["overview", "explore", "clusters", "copies", "labels", "changes"]) {
        await look.waitForSelector("main h1, main h2");
        await view(look, name);
        await look.waitForTimeout(name === "explore" ? 900 : 500);
        const wide = await look.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        check(wide <= 0, `${name}: ${wide} px wider than a ${size} screen`);
        await accessible(look, `${name} ${size} ${colorScheme}`);
        await look.screenshot({ path: `${name}-${size}-${colorScheme}.png` });
        // The picture in the README and in docs/serve.md.
        if (`${name} ${size} ${colorScheme}` === "explore wide light") await look.screenshot({ path: "serve.jpg", type: "jpeg", quality: 82 });
      }
      await looks.close();
    }
  }
  again.quiet = true;
  served.kill("SIGINT");
  check(await served.ended === 0, "Ctrl-C is a failure");

  // 9. Hostile names, and the stop button.
  const hostile = await start("train", "photos", "--out", "runs/photos", "--size", "16", "--width", "4", "--epochs", "400", "--batch", "8", "--clusters", "3", "--serve");
  const names = await open(await browser.newContext(), hostile.link, "names");
  await names.waitForFunction(() => S.overview && S.overview.clustered && S.overview.curves.epoch.length > 1);
  await view(names, "explore");
  await names.waitForSelector(".tile img");
  await names.waitForFunction(() => S.names);
  await names.locator(".tile").first().hover();
  check(await names.evaluate(() => !window.hacked && document.querySelectorAll("main script").length === 0), "names: a name was run");
  await view(names, "changes");
  await view(names, "overview");
  names.quiet = true;
  await names.getByRole("button", { name: "Save and stop" }).click();
  check(await hostile.ended === 130, "stop: the run did not end as by Ctrl-C");
  check(existsSync("runs/photos/checkpoints"), "stop: nothing was saved");
  await browser.close();
  console.log(failures.length ? `${failures.length} failed` : "the page is sound");
  process.exitCode = failures.length ? 1 : 0;
}

/// A run of `n` made-up images: links to a few photographs, random embeddings around centres.
function makeRun(n) {
  const [dim, k] = [128, 400];
  rmSync("large", { recursive: true, force: true });
  mkdirSync("large/run/clusters", { recursive: true });
  mkdirSync("large/photos");
  let seed = 1;
  const random = () => { seed = (seed * 1664525 + 1013904223) >>> 0; return seed / 4294967296; };
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const centres = Array.from({ length: k }, () => Float32Array.from({ length: dim }, normal));
  const header = Buffer.from(`{'descr': '<f4', 'fortran_order': False, 'shape': (${n}, ${dim}), }`.padEnd(117) + "\n");
  const values = new Float32Array(n * dim), files = ["row,id,file,label"], clusters = ["file,cluster,status,distance,vote"];
  const originals = readFileSync("photos.txt", "utf8").trim().split("\n");
  for (let i = 0; i < n; i++) {
    const c = Math.floor(random() * k), name = `${String(i).padStart(6, "0")}.jpg`;
    for (let d = 0; d < dim; d++) values[i * dim + d] = centres[c][d] + 0.7 * normal();
    files.push(`${i},${i},${name},class ${c % 10}`);
    clusters.push(`${name},${c},${random() < 0.5 ? "kept" : "filtered"},${(0.2 + random()).toFixed(4)},${(random() * 5 - 1).toFixed(3)}`);
    symlinkSync(resolve(originals[i % originals.length]), `large/photos/${name}`);
  }
  const head = Buffer.alloc(10);
  head.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0]);
  head.writeUInt16LE(header.length, 8);
  writeFileSync("large/run/embeddings.npy", Buffer.concat([head, header, Buffer.from(values.buffer)]));
  writeFileSync("large/run/files.csv", files.join("\n") + "\n");
  writeFileSync("large/run/clusters.csv", clusters.join("\n") + "\n");
  for (const name of ["config.toml", "metrics.jsonl", "result.json", "model.safetensors"]) writeFileSync(`large/run/${name}`, readFileSync(`runs/live/${name}`));
}

async function large() {
  const n = 100000;
  if (!existsSync("runs/live/result.json")) await new Promise((done) => spawn(PCP, ["train", "bundled", "--out", "runs/live", "--overwrite", "--limit", "300", "--width", "8", "--epochs", "6", "--quiet"]).on("exit", done));
  // Photographs of ordinary size, drawn by the browser.
  const browser = await launch();
  mkdirSync("large-photos", { recursive: true });
  const maker = await browser.newPage();
  const names = [];
  for (let i = 0; i < 40; i++) {
    const data = await maker.evaluate((i) => { const c = document.createElement("canvas"); [c.width, c.height] = [1600, 1200]; const g = c.getContext("2d"); for (let j = 0; j < 400; j++) { g.fillStyle = `hsl(${(i * 37 + j * 11) % 360} 60% ${30 + (j * 7) % 50}%)`; g.fillRect((j * 97) % 1600, (j * 61) % 1200, 60 + (j * 13) % 300, 40 + (j * 17) % 200); } return c.toDataURL("image/jpeg", 0.85).split(",")[1]; }, i);
    names.push(`large-photos/${i}.jpg`);
    writeFileSync(names[i], Buffer.from(data, "base64"));
  }
  writeFileSync("photos.txt", names.join("\n"));
  makeRun(n);
  const served = await start("serve", "large/run", "--images", "large/photos");
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await open(context, null, "large");
  await page.goto(served.link, { waitUntil: "commit" });
  const began = Date.now();
  await page.waitForURL((url) => !url.search);
  await page.waitForSelector("main.explore .tile img");
  const sheet = Date.now() - began;
  await page.waitForFunction(() => { const c = document.querySelector(".map canvas"); return c && S.map && c.width > 300 && c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v) => v); });
  const map = Date.now() - began;
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
  // Zooming and moving with all points: the time a frame takes.
  const frames = await page.evaluate(async () => {
    const canvas = document.querySelector(".map canvas"), r = canvas.getBoundingClientRect(), frame = () => new Promise(requestAnimationFrame), out = [];
    await frame();
    let last = performance.now();
    for (let i = 0; i < 60; i++) {
      canvas.dispatchEvent(new WheelEvent("wheel", { bubbles: true, cancelable: true, clientX: r.left + r.width / 2, clientY: r.top + r.height / 2, deltaY: i < 30 ? -30 : 30 }));
      await frame();
      const now = performance.now();
      out.push(now - last);
      last = now;
    }
    return out.sort((a, b) => a - b);
  });
  // Scrolling: how long until every tile in sight has its picture, at a steady pace and after a jump.
  const gaps = await page.evaluate(async () => {
    const list = document.querySelector(".sheetlist"), frame = () => new Promise(requestAnimationFrame), wait = (ms) => new Promise((d) => setTimeout(d, ms));
    const bare = () => { const box = list.getBoundingClientRect(); return [...list.querySelectorAll(".tile")].filter((t) => { const b = t.getBoundingClientRect(); return b.bottom > box.top && b.top < box.bottom; }).filter((t) => { const i = t.querySelector("img"); return !i || !i.complete || !i.naturalWidth; }).length; };
    const filled = async () => { const t = performance.now(); while (bare() && performance.now() - t < 20000) await wait(10); return performance.now() - t; };
    await filled();
    let missing = 0;
    // Three screens a second.
    for (let i = 0; i < 60; i++) { list.scrollTop += list.clientHeight * 0.3; await frame(); await wait(100); missing += bare() ? 1 : 0; }
    list.scrollTop = list.scrollHeight / 2;
    await frame();
    await frame();
    return { missing, jump: await filled() };
  });
  const status = readFileSync(`/proc/${served.pid}/status`, "utf8"), mb = (key) => Math.round(Number(new RegExp(`${key}:\\s+(\\d+)`).exec(status)[1]) / 1024);
  await page.screenshot({ path: "large.png" });
  console.log(JSON.stringify({ images: n, first_paint_ms: Math.round(paint), sheet_ms: sheet, map_ms: map, frame_median_ms: +frames[30].toFixed(1), frame_slowest_ms: +frames[57].toFixed(1), looks_with_a_gap_of_60: gaps.missing, jump_filled_ms: Math.round(gaps.jump), server_mb_now: mb("VmRSS"), server_mb_most: mb("VmHWM") }));
  page.quiet = true;
  served.kill("SIGINT");
  await served.ended;
  await browser.close();
  process.exitCode = failures.length ? 1 : 0;
}

/// Epochs of one training, by turns: some with the page open, some without. How much longer the former take; the first of each turn, in which the page is opened
/// or left, does not count.
async function watched() {
  const turn = 5, epochs = 12 * turn, browser = await launch();
  rmSync("runs/watched", { recursive: true, force: true });
  const trained = await start("train", "bundled", "--out", "runs/watched", "--preset", "pcp", "--width", "16", "--epochs", String(epochs), "--batch", "64", "--eval-every", "1000", "--serve");
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await open(context, trained.link, "watched");
  await page.waitForURL((url) => !url.search);
  const records = () => { try { return readFileSync("runs/watched/metrics.jsonl", "utf8").trim().split("\n").filter(Boolean).map(JSON.parse); } catch { return []; } };
  const home = new URL("/#0/overview", trained.link).href;
  const isWatched = (epoch) => Math.floor(epoch / turn) % 2 === 1;
  let seen = null;
  while (records().length < epochs) {
    const now = isWatched(records().length);
    if (now !== seen) {
      seen = now;
      await page.goto(now ? home : "about:blank");
    }
    await pause(100);
  }
  const seconds = records().map((r) => r.seconds);
  const counted = (how) => seconds.filter((_, i) => i >= turn && i % turn > 0 && isWatched(i) === how).sort((a, b) => a - b);
  const [on, off] = [counted(true), counted(false)], median = (of) => of[Math.floor(of.length / 2)];
  console.log(JSON.stringify({ epochs_of_each: on.length, watched_s: +median(on).toFixed(3), alone_s: +median(off).toFixed(3), slower_percent: +(100 * (median(on) / median(off) - 1)).toFixed(1) }));
  page.quiet = true;
  trained.kill("SIGKILL");
  await browser.close();
}

await ({ large, watched }[process.argv[2]] ?? main)();
