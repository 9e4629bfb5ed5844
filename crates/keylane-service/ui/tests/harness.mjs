// What every browser test begins with: a server of its own, and a page that must not complain.

import assert from "node:assert/strict";
import { after, before } from "node:test";

import { openPage, startBrowser } from "./browser.mjs";
import { startMock } from "./mock/server.mjs";

/** One browser for a file of tests; each test has pages of its own. */
export function withBrowser() {
  /** @type {{browser?: import("playwright-core").Browser}} */
  const holder = {};
  before(async () => {
    holder.browser = await startBrowser();
  });
  after(() => holder.browser?.close());

  /**
   * Runs a test on a page of a server, and then looks whether the page had anything to complain about.
   * @param {{scene?: string, path?: string, mock?: object, allowed?: RegExp} & Record<string, any>} wanted
   * @param {(on: {page: import("playwright-core").Page, mock: any, problems: string[], context: any}) => Promise<unknown>} work
   */
  return async function on({ scene = "few", path = "", mock: options = {}, allowed, ...more }, work) {
    const mock = await startMock({ scene, ...options });
    const opened = await openPage(/** @type {any} */ (holder.browser), { url: `${mock.url}#/${path}`, ...more });
    try {
      await work({ ...opened, mock });
      assert.deepEqual(
        opened.problems.filter((text) => !allowed?.test(text)),
        [],
      );
    } finally {
      await opened.context.close();
      await mock.close();
    }
  };
}

/**
 * Waits until `look` gives something true, and gives that.
 * @template T
 * @param {() => Promise<T> | T} look
 * @param {string} what
 * @returns {Promise<T>}
 */
export async function until(look, what) {
  const deadline = Date.now() + 20_000;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > deadline) assert.fail(`it did not come to that: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

/**
 * Moves the pointer over the lanes until it is on a bar, and returns its description.
 * @param {import("playwright-core").Page} page
 */
export async function pointAtBar(page) {
  const lanes = page.locator(".lanes-scroll");
  await lanes.scrollIntoViewIfNeeded();
  const box = /** @type {{x: number, y: number, width: number, height: number}} */ (await lanes.boundingBox());
  // From near the right edge on, where the newest are that have got some width, in all of the first rows.
  let step = 0;
  return until(async () => {
    const at = (Math.floor(step / 4) * 3) % Math.floor(box.width - 64);
    const row = step % 4;
    step += 1;
    const [x, y] = [box.x + box.width - 60 - at, box.y + 33 + 22 * row];
    await page.mouse.move(x, y);
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    const text = (await page.locator(".lanes-info").textContent()) ?? "";
    return / on slot \d/.test(text) && { text, x, y };
  }, "a bar under the pointer");
}
