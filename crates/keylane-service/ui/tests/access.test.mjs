// Everybody can use it: by keyboard, with other colours, larger, without motion, and by ear.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { describe, test } from "node:test";

import { DESKTOP, PHONE } from "./browser.mjs";
import { until, withBrowser } from "./harness.mjs";

const on = withBrowser();
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/** @param {import("playwright-core").Page} page */
async function violations(page) {
  // By the debugger: the page's own policy allows no script from elsewhere.
  await page.evaluate(axe);
  const found = await page.evaluate(
    async (values) =>
      (await /** @type {any} */ (window).axe.run(document, { runOnly: { type: "tag", values } })).violations,
    RULES,
  );
  return found.map(
    ({ id, nodes }) =>
      `${id}: ${nodes
        .slice(0, 3)
        .map(({ html, failureSummary }) => `${html} ${failureSummary}`)
        .join("; ")}`,
  );
}

const PAGES = ["", "jobs", "keys", "failures", "allocation", "history", "schedules", "audit", "server", "submit", "nowhere"];

for (const theme of /** @type {const} */ (["light", "dark"])) {
  for (const [name, size] of Object.entries({ desktop: DESKTOP, phone: PHONE })) {
    test(`axe finds nothing: ${theme}, ${name}`, () =>
      on({ theme, size }, async ({ page, mock }) => {
        for (const path of PAGES) {
          await page.evaluate((hash) => {
            location.hash = hash;
          }, `#/${path}`);
          await page.locator("h1").waitFor({ state: "attached" });
          await until(async () => (await page.locator(".skeleton").count()) === 0, "all is loaded");
          assert.deepEqual(await violations(page), [], path);
        }
        const [job] = [...mock.engine.jobs.values()].filter(({ name: one }) => one === "Catalogue import");
        for (const part of ["", "subtasks", "failed", "results", "subtasks/1"]) {
          await page.evaluate((hash) => {
            location.hash = hash;
          }, `#/jobs/${job.id}/${part}`);
          await page
            .getByRole("heading", { level: 1, name: part === "subtasks/1" ? "Subtask #1" : "Catalogue import" })
            .waitFor();
          await until(async () => (await page.locator(".skeleton").count()) === 0, "all is loaded");
          assert.deepEqual(await violations(page), [], part);
        }
      }));
  }
}

test("axe finds nothing in dialogs, on an empty server, in tables, and when the connection is lost", () =>
  on({ allowed: /Failed to load resource/ }, async ({ page, mock }) => {
    await page.locator(".connection[data-is=live]").waitFor();
    await page.getByRole("button", { name: "View as table" }).click();
    assert.deepEqual(await violations(page), []);
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    assert.deepEqual(await violations(page), []);
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "Keys", exact: true }).click();
    await page.locator("[data-action='Skip head']").first().click();
    assert.deepEqual(await violations(page), []);
    await page.keyboard.press("Escape");
    mock.break();
    await page.getByText(/Connection lost\. /).waitFor();
    assert.deepEqual(await violations(page), []);
  }));

test("axe finds nothing on an empty server", () =>
  on({ scene: "empty" }, async ({ page }) => {
    await page.getByText("No jobs yet").waitFor();
    await page.getByText("No key has work").waitFor();
    assert.deepEqual(await violations(page), []);
  }));

describe("by keyboard", () => {
  test("the map is at ?, and its keys do what it says", () =>
    on({}, async ({ page }) => {
      await page.locator(".connection[data-is=live]").waitFor();
      await page.keyboard.press("?");
      await page.getByRole("dialog").getByText("Pause or resume live updates").waitFor();
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      for (const [key, name] of [
        ["j", "Jobs"],
        ["k", "Keys"],
        ["f", "Failures"],
        ["a", "Allocation"],
        ["c", "Schedules"],
        ["l", "Audit log"],
        ["s", "Server"],
        ["o", "Overview"],
      ]) {
        await page.keyboard.press("g");
        await page.keyboard.press(key);
        await page.getByRole("heading", { level: 1, name }).waitFor();
        assert.equal(await page.evaluate(() => document.activeElement?.tagName), "H1", "the focus goes along");
      }
      await page.keyboard.press("p");
      await page.locator(".connection[data-is=paused]").waitFor();
      await page.keyboard.press("g");
      await page.keyboard.press("j");
      await page.getByRole("searchbox").waitFor();
      await page.keyboard.press("/");
      await page.keyboard.type("gj?p");
      assert.equal(await page.getByRole("searchbox").inputValue(), "gj?p", "in a field, letters are letters");
    }));

  test("lanes are walked with arrow keys, each bar is said, and Enter opens it", () =>
    on({}, async ({ page }) => {
      const lanes = page.getByRole("application");
      const said = page.locator(".lanes-chart [aria-live=polite]");
      /** Announcement after each of these keys. @param {string[]} keys */
      const walk = async (...keys) => {
        await lanes.focus();
        const heard = [];
        for (const key of keys) {
          await page.keyboard.press(key);
          heard.push((await said.textContent()) ?? "");
        }
        return heard;
      };
      const isWalk = (/** @type {string[]} */ [newest, below, before]) =>
        /on slot 0/.test(newest) && /on slot 1/.test(below) && /on slot 1/.test(before) && below !== before;
      // The right edge of the lanes is a second ago: a page that has just been opened has no bars yet.
      await until(async () => {
        await page.keyboard.press("Escape");
        return isWalk(await walk("ArrowLeft", "ArrowDown", "ArrowLeft"));
      }, "two slots with bars, one of them with two");
      // So that nothing moves on while one walks, however slowly.
      await page.getByRole("button", { name: "Pause live updates" }).click();
      const heard = await walk("ArrowLeft", "ArrowDown", "ArrowLeft");
      assert.ok(isWalk(heard), heard.join(" | "));
      const number = /#(\d+)/.exec(heard[2])?.[1];
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { level: 1, name: `Subtask #${number}` }).waitFor();
    }));

  test("the focus stays while rows come and go around it", () =>
    on({ path: "jobs" }, async ({ page, mock }) => {
      const link = page.getByRole("link", { name: "October invoices" });
      await link.focus();
      mock.engine.submit({ kind: "work", name: "Another", payload: { ms: 10 } });
      await page.locator("[data-job]", { hasText: "Another" }).getByText("Succeeded").waitFor();
      assert.equal(await page.evaluate(() => document.activeElement?.textContent), "October invoices");
    }));

  test("one can skip to the content, and a dialog gives the focus back", () =>
    on({ path: "keys" }, async ({ page }) => {
      await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
      const button = page.locator("[data-action=Pause]").first();
      await button.focus();
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor();
      assert.equal(
        await page.evaluate(() => document.activeElement?.textContent),
        "Keep as it is",
        "Enter does no harm",
      );
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await until(
        async () => (await page.evaluate(() => document.activeElement?.getAttribute("data-action"))) === "Pause",
        "the focus is back",
      );
    }));
});

test("announcements come at most every five seconds", () =>
  on({}, async ({ page }) => {
    await page.evaluate(() => {
      const region = /** @type {HTMLElement} */ (document.querySelector("#spoken"));
      /** @type {any} */ (window).said = [];
      new MutationObserver(() => /** @type {any} */ (window).said.push(performance.now())).observe(region, {
        childList: true,
        characterData: true,
        subtree: true,
      });
    });
    const times = await until(
      () => page.evaluate(() => /** @type {any} */ (window).said.length >= 2 && /** @type {any} */ (window).said),
      "it was said twice",
    );
    assert.ok(times[1] - times[0] >= 4_900, `after ${times[1] - times[0]} ms`);
  }));

test("at 200 % nothing is cut off", () =>
  on({ size: { width: 680, height: 450 }, options: { deviceScaleFactor: 2 } }, async ({ page }) => {
    for (const path of PAGES) {
      await page.evaluate((hash) => {
        location.hash = hash;
      }, `#/${path}`);
      await page.locator("h1").waitFor({ state: "attached" });
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 680, path);
    }
  }));

test("with forced colours the lanes are drawn in the system's", () =>
  on({ options: { forcedColors: "active" } }, async ({ page }) => {
    await page.locator(".legend li").first().waitFor();
    const colour = await page.evaluate(() =>
      getComputedStyle(document.documentElement).getPropertyValue("--text").trim(),
    );
    assert.equal(colour, "CanvasText");
    await until(() => hasDrawn(page), "bars are seen");
  }));

test("without motion the lanes are drawn when something is new, and not in between", () =>
  on({ options: { reducedMotion: "reduce" } }, async ({ page, mock }) => {
    await page.locator(".legend li").first().waitFor();
    let news = 0;
    mock.engine.on("event", (/** @type {{event: string}} */ { event }) => {
      if (event === "timeline") news += 1;
    });
    const { draws, frames } = await page.evaluate(async () => {
      let draws = 0;
      const { clearRect } = CanvasRenderingContext2D.prototype;
      CanvasRenderingContext2D.prototype.clearRect = function (...box) {
        draws += 1;
        return clearRect.apply(this, box);
      };
      const until = performance.now() + 3_000;
      let frames = 0;
      for (; frames < 90 || performance.now() < until; frames += 1)
        await new Promise((resolve) => requestAnimationFrame(resolve));
      return { draws, frames };
    });
    // At any speed: a change is drawn once, and a redraw that was pending at the start adds one.
    assert.ok(draws > 0, "something new was drawn");
    assert.ok(draws <= news + 3, `${draws} drawings of ${news} news in ${frames} frames`);
  }));

test("the theme can be chosen, and is kept", () =>
  on({ theme: "light" }, async ({ page }) => {
    const dark = () => page.evaluate(() => document.documentElement.dataset.theme);
    assert.equal(await dark(), "light");
    await page.getByRole("button", { name: "Colours: system. Change" }).click();
    await page.getByRole("button", { name: "Colours: light. Change" }).click();
    assert.equal(await dark(), "dark");
    await page.reload();
    assert.equal(await dark(), "dark");
    await page.emulateMedia({ colorScheme: "dark" });
    await page.getByRole("button", { name: "Colours: dark. Change" }).click();
    assert.equal(await dark(), "dark", "as the system has it");
    await page.emulateMedia({ colorScheme: "light" });
    await until(async () => (await dark()) === "light", "it follows the system");
  }));

/** Whether anything but the background is on the picture. @param {import("playwright-core").Page} page */
function hasDrawn(page) {
  return page.evaluate(() => {
    const canvas = /** @type {HTMLCanvasElement} */ (document.querySelector(".lanes-canvas"));
    const { data } = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).getImageData(
      0,
      0,
      canvas.width,
      canvas.height,
    );
    let number = 0;
    for (let at = 3; at < data.length; at += 4) if (data[at] > 0) number += 1;
    return number > 1_000;
  });
}
