import { chromium } from "playwright-core";

// Without the sandbox it also runs where everybody is root, and without shared memory where that is small.
const args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"];

/// A browser: the one that CHROMIUM names, one that playwright has, or the one that comes from npm.
export async function launch() {
  if (process.env.CHROMIUM) return chromium.launch({ executablePath: process.env.CHROMIUM, args });
  try {
    return await chromium.launch({ args });
  } catch {
    const { default: packed } = await import("@sparticuz/chromium");
    const executablePath = await packed.executablePath();
    // Just unpacked on a busy machine, it was seen to crash at its start, once in many times.
    for (let tries = 1; ; tries++) {
      try {
        return await chromium.launch({ executablePath, args });
      } catch (e) {
        if (tries === 3) throw e;
        console.error(`the browser did not start, once more: ${String(e).split("\n")[0]}`);
      }
    }
  }
}
