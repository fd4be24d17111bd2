// Opens reports in headless Chromium and fails on what a person would call broken.
//   node check.mjs photos FOLDER        pictures with names that a careless page would run or break on
//   node check.mjs check REPORT.html... the checks; the first report is also fed 10,000 points
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { deflateSync } from "node:zlib";
import { basename, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch } from "./browser.mjs";

const ANSWER = 50; // ms in which the map answers with 10,000 points
const [verb, ...paths] = process.argv.slice(2);
const failures = [];
const check = (ok, what) => { if (!ok) { failures.push(what); console.error(`FAILED  ${what}`); } };

if (verb === "photos") photos(paths[0]);
else {
  const browser = await launch();
  for (const path of paths) await look(browser, path);
  await crowd(browser, paths[0]);
  await browser.close();
  console.log(failures.length ? `${failures.length} failed` : "the pages are sound");
  process.exitCode = failures.length ? 1 : 0;
}

/// A page that reports its errors, requests and dialogs.
async function open(browser, path, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const name = basename(path);
  page.on("console", (m) => check(!["error", "warning"].includes(m.type()), `${name}: console: ${m.text()}`));
  page.on("pageerror", (e) => check(false, `${name}: ${e.message}`));
  page.on("dialog", (d) => { check(false, `${name}: a dialog opened: ${d.message()}`); d.dismiss(); });
  page.on("request", (r) => check(/^(file|data):/.test(r.url()) && (r.url().startsWith("data:") || r.isNavigationRequest()), `${name}: asks for ${r.url().slice(0, 80)}`));
  await page.goto(pathToFileURL(resolve(path)).href);
  await page.waitForSelector("main .lead, main table");
  return page;
}

async function look(browser, path) {
  const name = path.split("/").slice(-2).join("-").replace(/\W+/g, "-").replace(/-html$/, "");
  const page = await open(browser, path);
  const data = await page.evaluate(() => JSON.parse(document.getElementById("data").textContent));
  // Every sheet of thumbnails is a picture of the size that it should have.
  const broken = await page.evaluate(async () => {
    const broken = [];
    for (const run of DATA.runs) {
      for (const s of [run.thumbnails, run.heat && run.heat.pictures].filter(Boolean)) {
        for (const uri of s.sheets) {
          const image = new Image();
          image.src = uri;
          await image.decode().catch(() => broken.push("a sheet cannot be decoded"));
          if (image.width !== s.columns * s.side) broken.push(`a sheet is ${image.width} px wide`);
        }
      }
    }
    for (const t of document.querySelectorAll(".thumb")) if (getComputedStyle(t).backgroundImage === "none") broken.push(t.className);
    return broken;
  });
  check(broken.length === 0, `${name}: ${broken[0]}`);
  check(await page.evaluate(() => !window.hacked), `${name}: a name was run`);
  // Names appear as text.
  const hostile = data.runs.flatMap((r) => r.images.file).filter((f) => /[<"]|[^\x00-\x7f]/.test(f));
  const titles = await page.evaluate(() => [...document.querySelectorAll(".framed")].map((f) => f.title));
  for (const file of hostile) check(data.runs.length > 1 || titles.some((t) => t.includes(file)), `${name}: ${file} is not shown`);
  check(await page.evaluate(() => document.querySelectorAll("main script, main img").length === 0), `${name}: markup came out of the data`);

  if (data.runs.some((r) => r.map)) await hoverAndColours(page, name, data);
  for (const colorScheme of ["light", "dark"]) {
    for (const [size, viewport] of [["wide", { width: 1280, height: 900 }], ["narrow", { width: 360, height: 780 }]]) {
      const shot = await open(browser, path, { colorScheme, viewport, deviceScaleFactor: 1 });
      const wide = await shot.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      check(wide <= 0, `${name}: ${wide} px wider than a ${size} screen`);
      await shot.waitForTimeout(150);
      await shot.screenshot({ path: `${name}-${size}-${colorScheme}.png`, fullPage: true });
      await shot.context().close();
    }
  }
  await page.context().close();
}

/// What the map shows once it is drawn.
function pixels(page) {
  return page.evaluate(async () => {
    for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
    return document.querySelector(".map canvas").toDataURL();
  });
}

async function hoverAndColours(page, name, data) {
  const run = data.runs[0];
  await page.locator(".map canvas").first().scrollIntoViewIfNeeded();
  const box = await page.locator(".map canvas").first().boundingBox();
  const at = (p) => [box.x + (0.03 + 0.94 * run.map.x[p] / 65535) * box.width, box.y + (0.97 - 0.94 * run.map.y[p] / 65535) * box.height];
  await page.mouse.move(...at(0));
  const tip = page.locator(".map .tip").first();
  check(await tip.isVisible(), `${name}: no hover`);
  if (run.thumbnails.count) check(await tip.locator(".thumb").count() === 1, `${name}: hover has no thumbnail`);
  const said = await tip.innerText();
  check(run.images.file.some((f) => said.includes(f)), `${name}: hover says ${said}`);
  await page.mouse.move(2, 300);
  check(await tip.isHidden(), `${name}: hover stays`);
  const buttons = page.getByRole("group", { name: "Colour" }).first().getByRole("button");
  let before = await pixels(page);
  for (let i = 1; i < await buttons.count(); i++) {
    await buttons.nth(i).click();
    const after = await pixels(page);
    check(after !== before, `${name}: colour switch ${i} repaints nothing`);
    before = after;
  }
  await page.locator(".map canvas").first().hover();
  await page.mouse.wheel(0, -400);
  check(await pixels(page) !== before, `${name}: the wheel does not zoom`);
}

/// The page of `path`, but with 10,000 points: hover and zoom must answer at once.
async function crowd(browser, path) {
  const text = readFileSync(path, "utf8");
  const [head, rest] = text.split('<script type="application/json" id="data">');
  const [json, tail] = [rest.slice(0, rest.indexOf("</script>")), rest.slice(rest.indexOf("</script>"))];
  const data = JSON.parse(json);
  const run = data.runs[0], n = 10000, known = run.images.file.length;
  const column = (f) => Array.from({ length: n }, (_, i) => f(i));
  const spread = (i, m) => Math.floor(((i * m) % 1) * 65535);
  for (const key of Object.keys(run.images)) run.images[key] = column((i) => run.images[key][i % known]);
  run.map = { of: n, x: column((i) => spread(i, 0.754877666)), y: column((i) => spread(i, 0.569840291)), image: column((i) => i) };
  writeFileSync("crowd.html", head + '<script type="application/json" id="data">' + JSON.stringify(data).replaceAll("<", "\\u003c") + tail);
  const page = await open(browser, "crowd.html");
  await page.locator(".map canvas").scrollIntoViewIfNeeded();
  const times = await page.evaluate(async () => {
    const canvas = document.querySelector(".map canvas"), r = canvas.getBoundingClientRect();
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const event = (kind, type, i) => new kind(type, { bubbles: true, cancelable: true, clientX: r.left + r.width * (0.2 + 0.06 * i), clientY: r.top + r.height * (0.8 - 0.05 * i), deltaY: -120 });
    const out = { hover: [], zoom: [] };
    for (let i = 0; i <= 10; i++) {
      for (const [name, kind, type] of [["hover", PointerEvent, "pointermove"], ["zoom", WheelEvent, "wheel"]]) {
        await frame();
        const began = performance.now();
        canvas.dispatchEvent(event(kind, type, i));
        // What the event asked to be drawn is drawn in the next frame, before this.
        await frame();
        // The first hover also decodes its sheet of thumbnails.
        if (i > 0) out[name].push(performance.now() - began);
      }
    }
    return out;
  });
  for (const [what, all] of Object.entries(times)) {
    // One in ten may meet something else that the machine does.
    const [median, most, slowest] = [0.5, 0.8, 0.9].map((share) => all.sort((a, b) => a - b)[share * all.length]);
    console.log(`${what} with ${n} points: median ${median.toFixed(1)} ms, slowest ${slowest.toFixed(1)} ms`);
    check(most < ANSWER, `${what} takes ${most.toFixed(1)} ms`);
  }
  await page.context().close();
}

/// Small PNGs without a library.
function photos(folder) {
  mkdirSync(folder, { recursive: true });
  const crcs = Array.from({ length: 256 }, (_, n) => { for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1; return n >>> 0; });
  const crc = (bytes) => { let c = 0xffffffff; for (const b of bytes) c = crcs[(c ^ b) & 255] ^ (c >>> 8); return (c ^ 0xffffffff) >>> 0; };
  const chunk = (type, body) => {
    const all = Buffer.concat([Buffer.from(type), body]), out = Buffer.alloc(all.length + 8);
    out.writeUInt32BE(body.length, 0);
    all.copy(out, 4);
    out.writeUInt32BE(crc(all), all.length + 4);
    return out;
  };
  const side = 24;
  const names = [
    "<script>window.hacked=1<.png", "<img src=x onerror=window.hacked=1>.png", "\"><b onmouseover=window.hacked=1>.png", "it's \"quoted\" & co.png",
    "猫の写真.png", "кот и собака.png", "قطة.png", "\\u003cb\\u003e.png", "javascript:window.hacked=1.png", "${window.hacked=1}.png", "plain.png", "another one.png",
  ];
  names.forEach((name, i) => {
    const rows = Buffer.alloc(side * (side * 3 + 1));
    for (let y = 0; y < side; y++) {
      for (let x = 0; x < side; x++) {
        const stripe = (i % 3 ? x : y) >> 2 & 1, at = y * (side * 3 + 1) + 1 + x * 3;
        rows[at] = 60 + 120 * stripe; rows[at + 1] = (i * 47 + x * 3) & 255; rows[at + 2] = 200 - ((x * 7 + y * 5 + i * 11) % 60);
      }
    }
    const header = Buffer.alloc(13);
    header.writeUInt32BE(side, 0);
    header.writeUInt32BE(side, 4);
    header.set([8, 2, 0, 0, 0], 8);
    const png = Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), chunk("IHDR", header), chunk("IDAT", deflateSync(rows)), chunk("IEND", Buffer.alloc(0))]);
    writeFileSync(`${folder}/${name}`, png);
  });
}
