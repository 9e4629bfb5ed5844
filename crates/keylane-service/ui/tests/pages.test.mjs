// Each page shows what the server says, and does what its buttons say.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { PHONE } from "./browser.mjs";
import { pointAtBar, until, withBrowser } from "./harness.mjs";

const on = withBrowser();

/** @param {any} engine @param {string} name */
const jobNamed = (engine, name) => [...engine.jobs.values()].find((job) => job.name === name);
/** How many pixels of the lanes have the full colour of a job. @param {import("playwright-core").Page} page */
const opaque = (page) =>
  page.evaluate(() => {
    const canvas = /** @type {HTMLCanvasElement} */ (document.querySelector(".lanes-canvas"));
    const style = getComputedStyle(document.documentElement);
    const jobs = new Set(Array.from({ length: 10 }, (_, index) => style.getPropertyValue(`--job-${index}`).trim()));
    const { data } = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).getImageData(
      0,
      0,
      canvas.width,
      canvas.height,
    );
    const hex = (/** @type {number} */ part) => part.toString(16).padStart(2, "0");
    let number = 0;
    for (let at = 0; at < data.length; at += 4)
      if (data[at + 3] === 255 && jobs.has(`#${hex(data[at])}${hex(data[at + 1])}${hex(data[at + 2])}`)) number += 1;
    return number;
  });
/** Waits for the bars of some two seconds, most of which are over. @param {import("playwright-core").Page} page */
const barsFor = (page) => until(async () => (await opaque(page)) > 25_000, "there are bars");
/** Waits until what has arrived is drawn. @param {import("playwright-core").Page} page */
const nextFrame = (page) =>
  page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))));
/** @param {import("playwright-core").Page} page */
const dialog = (page) => page.getByRole("dialog");

describe("overview", () => {
  test("an empty server says what to do, and its line does it", () =>
    on({ scene: "empty" }, async ({ page, mock }) => {
      await page.getByText("No jobs yet").waitFor();
      const line = (await page.locator(".command code").textContent()) ?? "";
      assert.match(
        line,
        /^curl -sS 'http:\/\/127\.0\.0\.1:\d+\/v1\/jobs' -H 'Content-Type: application\/json' --data-raw '\{.*\}'$/,
      );
      const body = /--data-raw '(.*)'$/.exec(line)?.[1] ?? "";
      const answer = await fetch(`${mock.url}v1/jobs`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body,
      });
      assert.equal(answer.status, 202);
      await page.locator("[data-job]").first().waitFor();
    }));

  test("it names the longest key, and how many workers are of use", () =>
    on({ path: "" }, async ({ page }) => {
      await page.getByText(/^Longest key: \S+ with \d+ subtasks\. More than \d+ workers? at a time/).waitFor();
    }));

  test("nothing is said to be zero before the server has said so", () =>
    on({ scene: "empty", path: "server" }, async ({ page, mock }) => {
      await page.route("**/v1/summary", () => {});
      await page.route("**/v1/events*", () => {});
      await page.goto(`${mock.url}#/`);
      await page.reload();
      await page.getByText("No jobs yet").waitFor();
      assert.equal(await page.locator(".tile .unknown").count(), 8);
      assert.doesNotMatch((await page.locator(".tiles").textContent()) ?? "", /\d/);
      await page.unrouteAll({ behavior: "ignoreErrors" });
    }));

  test("it shows numbers, running jobs and keys, and they move", () =>
    on({}, async ({ page }) => {
      const vitals = page.locator(".vitals");
      await page.getByText("8 of 8", { exact: true }).waitFor();
      const before = await vitals.textContent();
      await until(async () => (await vitals.textContent()) !== before, "other numbers");
      await page.getByRole("link", { name: "October invoices" }).first().waitFor();
      await page.locator("[data-key]").first().waitFor();
    }));

  test("the header and the tile give the same rate, also after a restart of the server", () =>
    on({}, async ({ page, mock }) => {
      const rates = () =>
        page.evaluate(() => {
          const tile = [...document.querySelectorAll(".tile")].find((one) => /Per second/.test(one.textContent ?? ""));
          const vital = [...document.querySelectorAll(".vitals > span")].find((one) => /a second/.test(one.textContent ?? ""));
          return [tile?.querySelector("dd > span")?.textContent, vital?.querySelector("b")?.textContent];
        });
      await until(async () => /\d/.test((await rates())[0] ?? ""), "a rate");
      mock.engine.restart();
      const [tile] = await until(async () => {
        const both = await rates();
        return both[1] === "–" && both;
      }, "an unknown rate in the header");
      assert.equal(tile, "–");
    }));

  test("the page of an unknown address has a title of its own", () =>
    on({ path: "submit" }, async ({ page }) => {
      await page.waitForFunction(() => document.title.startsWith("Submit"));
      await page.evaluate(() => (location.hash = "#/elsewhere"));
      await page.getByRole("heading", { name: "No such page" }).waitFor();
      assert.equal(await page.title(), "No such page · Keylane");
    }));

  test("pointing at a bar says what it is, and a click opens it", () =>
    on({}, async ({ page }) => {
      await page.locator(".legend li").first().waitFor();
      await page.getByRole("button", { name: "10 s" }).click();
      await barsFor(page);
      await page.getByRole("button", { name: "Pause live updates" }).click();
      const { text, x, y } = await pointAtBar(page);
      const number = /#(\d+)/.exec(text)?.[1];
      await page.mouse.click(x, y);
      await page.getByRole("heading", { level: 1, name: `Subtask #${number}` }).waitFor();
    }));

  test("pointing at a bar lights every bar of its key, and dims all others", () =>
    on({}, async ({ page }) => {
      await page.locator(".legend li").nth(2).waitFor();
      await page.getByRole("button", { name: "10 s" }).click();
      await barsFor(page);
      await page.getByRole("button", { name: "Pause live updates" }).click();
      // It is drawn once more, as it stands still from now on.
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
      const before = await opaque(page);
      await pointAtBar(page);
      const lit = await opaque(page);
      assert.ok(lit < before * 0.6, `${lit} of ${before} pixels are lit`);
      assert.ok(lit > 20, `some are: ${lit} of ${before}`);
      await page.mouse.move(5, 5);
      await until(async () => (await opaque(page)) === before, "all are as before");
    }));

  test("the lanes' table has what the picture has", () =>
    on({}, async ({ page }) => {
      await page.getByRole("button", { name: "View as table" }).click();
      const table = page.getByRole("table", { name: /Recent attempts/ });
      await until(async () => (await table.locator("tbody tr").count()) > 10, "rows");
      assert.match((await table.locator("tbody tr").last().textContent()) ?? "", /#\d+.*(succeeded|failed|runs)/);
      await page.getByRole("button", { name: "30 s" }).click();
      await page.getByRole("button", { name: "View as table" }).click();
      await page.locator(".lanes-canvas").waitFor();
    }));

  test("rows can be the keys of a job", () =>
    on({}, async ({ page }) => {
      await page.locator(".lanes-tools option", { hasText: "October invoices" }).waitFor({ state: "attached" });
      await page.getByRole("combobox", { name: "Rows" }).selectOption({ label: "Rows: keys of October invoices" });
      await page.getByRole("button", { name: "View as table" }).click();
      const rows = page.getByRole("table", { name: /Recent attempts/ }).locator("tbody tr");
      await until(async () => (await rows.count()) > 0, "rows");
      for (const text of await rows.allTextContents()) assert.match(text, /October invoices.*customer-/);
    }));

  test("a hundred thousand subtasks are shown, and the page answers at once", () =>
    on({ scene: "busy" }, async ({ page }) => {
      await page.getByText("64 of 64", { exact: true }).waitFor();
      await page.locator(".legend li").nth(1).waitFor();
      // Frames are drawn also while everything changes.
      await page.evaluate(async () => {
        for (let frame = 0; frame < 60; frame += 1) await new Promise((resolve) => requestAnimationFrame(resolve));
      });
      await pointAtBar(page);
      assert.ok((await page.locator("body *").count()) < 3_000, "the page stays small");
    }));
});

describe("jobs", () => {
  test("a filter is in the address, and holds after a reload", () =>
    on({ path: "jobs" }, async ({ page }) => {
      await page.getByRole("link", { name: "Reindex search" }).waitFor();
      await page.getByRole("group", { name: "State" }).getByRole("button", { name: "Paused" }).click();
      await page.getByRole("link", { name: "October invoices" }).waitFor({ state: "detached" });
      assert.match(page.url(), /state=paused/);
      await page.reload();
      await page.getByRole("link", { name: "Reindex search" }).waitFor();
      assert.equal(await page.locator("[data-job]").count(), 1);
    }));

  test("jobs are found by name, kind and label, and none found says so", () =>
    on({ path: "jobs" }, async ({ page }) => {
      const only = async (/** @type {string[]} */ names) => {
        await until(
          async () =>
            JSON.stringify((await page.locator("[data-job] .job-link").allTextContents()).sort()) ===
            JSON.stringify(names.sort()),
          names.join(),
        );
      };
      await page.getByRole("searchbox", { name: "Search by name or id" }).fill("album");
      await only(["Album 2211", "Album 2212"]);
      await page.getByRole("searchbox", { name: "Search by name or id" }).fill("");
      await page.getByRole("combobox", { name: "Kind" }).selectOption("invoices");
      await only(["October invoices", "November invoices"]);
      await page.getByRole("textbox", { name: /^Label/ }).fill("month:2026-11");
      await only(["November invoices"]);
      await page.getByRole("searchbox").fill("nothing like it");
      await page.getByText("No job matches").waitFor();
      await page.getByRole("link", { name: "Show all jobs" }).click();
      await page.getByRole("link", { name: "Reindex search" }).waitFor();
    }));

  test("a job leaves the list when it matches the filter no more", () =>
    on({ path: "jobs?state=paused" }, async ({ page, mock }) => {
      await page.getByRole("link", { name: "Reindex search" }).waitFor();
      await page.locator(".connection[data-is=live]").waitFor();
      mock.engine.pause(jobNamed(mock.engine, "October invoices").id);
      await page.getByRole("link", { name: "October invoices" }).waitFor();
      mock.engine.resume(jobNamed(mock.engine, "Reindex search").id);
      await page.getByRole("link", { name: "Reindex search" }).waitFor({ state: "detached" });
    }));

  test("a new job appears by itself, and moves on", () =>
    on({ scene: "empty", path: "jobs" }, async ({ page, mock }) => {
      await page.getByText("No jobs yet").waitFor();
      await page.getByText("Live", { exact: true }).waitFor();
      mock.engine.submit({ kind: "work", name: "Just now", subtasks: [{ payload: { ms: 50 } }] });
      await page.locator("[data-job]", { hasText: "Just now" }).getByText("Succeeded").waitFor();
    }));

  test("a job that arrives while the page loads stays in the list", () =>
    on({ scene: "empty", path: "jobs" }, async ({ page, mock }) => {
      await page.getByText("Live", { exact: true }).waitFor();
      await page.getByRole("searchbox").fill("nothing like it");
      await page.getByText("No job matches").waitFor();
      const job = page.getByRole("link", { name: "Meanwhile" });
      // The empty list asks for a kind, to say how a job is submitted.
      await page.route("**/v1/kinds", async (route) => {
        mock.engine.submit({ kind: "work", name: "Meanwhile", delay_ms: 3_600_000, payload: {} });
        await job.waitFor();
        await route.continue();
      });
      const answered = page.waitForResponse("**/v1/kinds");
      await page.getByRole("searchbox").fill("");
      await (await answered).finished();
      await nextFrame(page);
      assert.equal(await job.count(), 1);
    }));

  for (const { path, questions } of [
    { path: "jobs", questions: 1 },
    { path: "", questions: 2 },
  ])
    test(`a job that the stream tells of before an older answer comes stays: ${path || "overview"}`, () =>
      on({ scene: "still", path: "server" }, async ({ page, mock }) => {
        const job = page.locator("[data-job] .job-link", { hasText: "Meanwhile" });
        let fetched = 0;
        let answered = 0;
        let release = () => {};
        const released = new Promise((resolve) => (release = () => resolve(null)));
        await page.route(/\/v1\/jobs\?/, async (route) => {
          const response = await route.fetch();
          fetched += 1;
          if (fetched === questions) {
            mock.engine.submit({ kind: "work", name: "Meanwhile", delay_ms: 3_600_000, payload: {} });
            await job.waitFor();
            release();
          }
          await released;
          await route.fulfill({ response });
          answered += 1;
        });
        await page.locator(".connection[data-is=live]").waitFor();
        await page.evaluate((hash) => {
          location.hash = hash;
        }, `#/${path}`);
        // The stream may tell of this one before the answers do.
        await page.locator("[data-job] .job-link", { hasText: "Long" }).waitFor();
        await until(() => answered >= questions, "all answers");
        await nextFrame(page);
        assert.equal(await job.count(), 1);
      }));

  test("a long list has pages", () =>
    on({ scene: "still", path: "jobs" }, async ({ page, mock }) => {
      for (let n = 0; n < 60; n += 1)
        mock.engine.submit({ kind: "work", name: `Many ${n}`, delay_ms: 3_600_000, payload: {} });
      await page.reload();
      await page.getByRole("link", { name: "Many 59" }).waitFor();
      await page.getByRole("button", { name: "Next" }).click();
      await page.getByRole("link", { name: "Long", exact: true }).waitFor();
      await page.getByRole("button", { name: "Back" }).click();
      await page.getByRole("link", { name: "Many 59" }).waitFor();
    }));

  test("all jobs that a filter finds are paused after a look at them", () =>
    on({ scene: "empty", path: "jobs" }, async ({ page, mock }) => {
      const submit = (/** @type {string} */ name, /** @type {Record<string, string>} */ labels) =>
        mock.engine.submit({ kind: "work", name, labels, payload: { ms: 60_000 } });
      for (let number = 0; number < 11; number += 1) submit(`Part ${number}`, { team: "a" });
      submit("Another", {});
      const bulk = page.getByRole("button", { name: /jobs that match/ });
      await page.getByRole("link", { name: "Another" }).waitFor();
      assert.equal(await bulk.count(), 0, "none without a filter");
      await page.getByLabel("Label, as name:value").fill("team:a");
      await page.getByRole("button", { name: "Pause all jobs that match" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByRole("heading", { name: "Pause 11 jobs?" }).waitFor();
      const named = await dialog.getByRole("listitem").allInnerTexts();
      assert.deepEqual([named.length, named[0], named.at(-1)], [9, "Part 10", "and 3 more"]);
      await dialog.getByRole("button", { name: "Keep as it is" }).click();
      assert.equal(jobNamed(mock.engine, "Part 0").state === "paused", false, "a look changes nothing");
      await page.getByRole("button", { name: "Pause all jobs that match" }).click();
      await dialog.getByRole("button", { name: "Pause 11 jobs" }).click();
      await page.getByText("11 jobs paused").waitFor();
      const states = (/** @type {string} */ state) =>
        [...mock.engine.jobs.values()].filter((job) => job.state === state).map((job) => job.name);
      assert.equal(states("paused").length, 11);
      assert.ok(!states("paused").includes("Another"));
    }));

  test("a job that refuses an action on all is named, and the others are done", () =>
    on({ scene: "empty", path: "jobs", allowed: /status of 409/ }, async ({ page, mock }) => {
      for (const name of ["One", "Two"]) mock.engine.submit({ kind: "work", name, payload: { ms: 60_000 } });
      await page.getByRole("link", { name: "Two" }).waitFor();
      await page.getByRole("searchbox").fill("o");
      await page.getByRole("button", { name: "Cancel all jobs that match" }).click();
      const dialog = page.getByRole("dialog");
      await dialog.getByRole("heading", { name: "Cancel 2 jobs?" }).waitFor();
      // Another operator was faster.
      mock.engine.refuseNext = jobNamed(mock.engine, "One").id;
      await dialog.getByRole("button", { name: "Cancel 2 jobs" }).click();
      await page.getByText("1 job cancelled").waitFor();
      await page.getByText("1 job not cancelled; the first: One: It is over.").waitFor();
    }));
});

describe("a job", () => {
  const open = async (/** @type {import("playwright-core").Page} */ page, /** @type {string} */ name) => {
    await page.getByRole("link", { name, exact: true }).click();
    await page.getByRole("heading", { level: 1, name }).waitFor();
  };

  test("it shows the reason for waiting, the blocking subtask and the time", () =>
    on({ scene: "still", path: "jobs" }, async ({ page }) => {
      await open(page, "Held");
      const why = page.locator(".because");
      await why.getByText("Behind earlier subtasks of its key").waitFor();
      const text = (await why.textContent()) ?? "";
      assert.match(text, /key k0/);
      assert.match(text, /position 4/);
      assert.match(text, /behind Long #0/);
      assert.match(text, /for (now|\d+ s)/);
      await why.getByRole("link", { name: "Long #0" }).click();
      await page.getByRole("heading", { level: 1, name: "Subtask #0" }).waitFor();
    }));

  test("it is paused and resumed", () =>
    on({ path: "jobs" }, async ({ page, mock }) => {
      await open(page, "October invoices");
      await page.locator("[data-action=Pause]").click();
      await page.locator(".page-head .state").getByText("Paused").waitFor();
      assert.equal(jobNamed(mock.engine, "October invoices").state, "paused");
      await page.getByText("October invoices is paused: running subtasks may end").waitFor();
      await until(
        async () => (await page.evaluate(() => document.activeElement?.getAttribute("data-action"))) === "Resume",
        "the focus goes to what undoes it",
      );
      await page.locator("[data-action=Resume]").click();
      await page.locator(".page-head .state").getByText("Running").waitFor();
    }));

  test("cancelling asks first and names the effect; keeping it changes nothing", () =>
    on({ scene: "still", path: "jobs" }, async ({ page, mock }) => {
      await open(page, "Long");
      await page.locator("[data-action=Cancel]").click();
      await dialog(page).getByText("9 subtasks will not run.").waitFor();
      await dialog(page).getByText("3 subtasks are running, and may end unless you stop them.").waitFor();
      await page.keyboard.press("Enter");
      await dialog(page).waitFor({ state: "detached" });
      assert.equal(jobNamed(mock.engine, "Long").state, "running");
      await page.locator("[data-action=Cancel]").click();
      await dialog(page).getByRole("checkbox", { name: "Stop running subtasks at once" }).check();
      await dialog(page).getByRole("button", { name: "Cancel the job" }).click();
      await page.locator(".page-head .state").getByText("Cancelled").waitFor();
      assert.equal(jobNamed(mock.engine, "Long").counts.cancelled, 12);
    }));

  // What shows jobs that ran lately may ask for one that was deleted meanwhile.
  test("an ended job can be retried or deleted", () =>
    on({ path: "jobs", allowed: /status of 410/ }, async ({ page, mock }) => {
      await until(() => jobNamed(mock.engine, "Address check").state === "failed", "it has failed");
      await open(page, "Address check");
      await page.locator("[data-action='Retry failed']").click();
      await dialog(page).getByText("Retry 3 subtasks of Address check?").waitFor();
      await dialog(page).getByRole("button", { name: "Retry" }).click();
      await page.locator(".page-head .state").getByText("Succeeded").waitFor();
      await page.locator("[data-action=Delete]").click();
      await dialog(page).getByText("This cannot be undone").waitFor();
      await dialog(page).getByRole("button", { name: "Delete the job" }).click();
      await page.getByRole("heading", { level: 1, name: "Jobs" }).waitFor();
      assert.equal(jobNamed(mock.engine, "Address check"), undefined);
    }));

  test("one subtask of an ended job can be retried, with another payload", () =>
    on({ path: "jobs" }, async ({ page, mock }) => {
      const job = () => jobNamed(mock.engine, "Address check");
      await until(() => job().state === "failed", "it has failed");
      const failed = mock.engine.job(job().id).subtasks.find(({ state }) => state === "failed");
      await page.goto(`${mock.url}#/jobs/${job().id}/subtasks/${failed.number}`);
      await page.locator("[data-action=Retry]").click();
      const payload = dialog(page).getByRole("textbox", { name: "Payload" });
      assert.deepEqual(JSON.parse(await payload.inputValue()), failed.payload);
      await payload.fill('{"n": ');
      await dialog(page).getByRole("button", { name: "Retry" }).click();
      assert.match(await payload.evaluate((field) => field.validationMessage), /This is not JSON: expected a value/);
      await payload.fill('{"n": 12345678901234567890}');
      await dialog(page).getByRole("button", { name: "Retry" }).click();
      await page.locator(".page-head .state").getByText("Succeeded").waitFor();
      await page.locator("[data-action=Retry]").waitFor({ state: "detached" });
      assert.deepEqual(Object.keys(failed.payload), ["n"]);
      assert.equal(job().counts.failed, 2);
    }));

  test("its weight can be changed, and a refusal is shown", () =>
    on({ scene: "still", path: "jobs", allowed: /status of 422/ }, async ({ page, mock }) => {
      await open(page, "Long");
      const weight = page.getByRole("spinbutton", { name: "Weight" });
      await weight.fill("5");
      await page.getByRole("button", { name: "Set" }).click();
      await page.getByText("The weight of Long is 5").waitFor();
      assert.equal(jobNamed(mock.engine, "Long").weight, 5);
      await weight.evaluate((input) => input.removeAttribute("min"));
      await weight.fill("0");
      await page.getByRole("button", { name: "Set" }).click();
      await page.getByText("/weight: at least 1").waitFor();
    }));

  test("subtasks are found by state and key, and each has its page", () =>
    on({ scene: "still", path: "jobs" }, async ({ page }) => {
      await open(page, "Long");
      await page.getByRole("link", { name: "Subtasks" }).click();
      const rows = page.getByRole("table", { name: "Subtasks" }).locator("tbody tr");
      await until(async () => (await rows.count()) === 12, "all of them");
      await page.getByRole("combobox", { name: "State" }).selectOption("running");
      await until(async () => (await rows.count()) === 3, "those that run");
      await page.getByRole("searchbox", { name: "Key" }).fill("k1");
      await until(async () => (await rows.count()) === 1, "the one of the key");
      assert.match(page.url(), /state=running&key=k1/);
      await rows.getByRole("link", { name: "#1" }).click();
      await page.getByText('"steady": true').waitFor();
    }));

  test("a job says which key decides its end, and how many workers are of use", () =>
    on({ path: "jobs" }, async ({ page }) => {
      await page.getByRole("link", { name: "Catalogue import" }).click();
      await page.getByText(/^Key supplier-\d decides the end: \d+ subtasks one after another/).waitFor();
      await page.getByText(/More than \d+ workers? at a time do not end the job earlier/).waitFor();
    }));

  test("a job shows what waits for what, down to the cause", () =>
    on({ scene: "still", path: "jobs" }, async ({ page, mock }) => {
      const slow = { key: "k", payload: { ms: 3_600_000 } };
      mock.engine.submit({ kind: "work", name: "Before", subtasks: [slow, slow] });
      mock.engine.submit({ kind: "work", name: "Behind", subtasks: [{ key: "k", payload: { ms: 1 } }] });
      await page.getByRole("link", { name: "Behind" }).click();
      await page.getByRole("button", { name: "Show what waits for what" }).click();
      const tree = page.locator(".wait-tree");
      await tree.getByRole("link", { name: "Behind" }).waitFor();
      await tree.getByText("Behind earlier subtasks of its key").waitFor();
      await tree.getByRole("link", { name: "Before #0" }).click();
      await page.getByRole("heading", { level: 1, name: "Subtask #0" }).waitFor();
    }));

  test("a subtask says why it waits", () =>
    on({ scene: "still", path: "jobs" }, async ({ page }) => {
      await open(page, "Long");
      await page.getByRole("link", { name: "Subtasks" }).click();
      await page.getByRole("link", { name: "#9" }).click();
      await page.getByText("3 subtasks of key k0 come before it.").waitFor();
    }));

  test("a running subtask shows the progress that its handler reports", () =>
    on({ scene: "still", path: "jobs" }, async ({ page, mock }) => {
      const job = jobNamed(mock.engine, "Long");
      const running = () => job.subtasks.find((/** @type {any} */ one) => one.state === "running");
      await until(async () => running() !== undefined, "a running subtask");
      await page.goto(`${mock.url}#/jobs/${job.id}/subtasks/${running().number}`);
      await page.getByText("42 %", { exact: true }).waitFor();
    }));

  test("a subtask shows what each of its attempts said", () =>
    on({ scene: "empty", path: "jobs" }, async ({ page, mock }) => {
      const payload = { ms: 1, say: "no such <b>picture</b>\n", left_out: 2048, fail_times: 1, backoff_ms: 1 };
      mock.engine.submit({ kind: "work", name: "Talks", attempts: 2, subtasks: [{ payload }, { payload: { ms: 1 } }] });
      await until(() => jobNamed(mock.engine, "Talks").state === "succeeded", "it is over");
      await open(page, "Talks");
      await page.getByRole("link", { name: "Subtasks" }).click();
      await page.getByRole("link", { name: "#0" }).click();
      const logs = page.getByRole("region", { name: /Log of attempt/ });
      await until(async () => (await logs.count()) === 2, "one for each attempt");
      // The newest is on top, and nothing in it is taken for a part of the page.
      const [second, first] = await logs.allInnerTexts();
      await page.getByText("2 of 2", { exact: true }).waitFor();
      for (const text of [second, first]) assert.match(text, /without the first 2.0 KiB[^]*no such <b>picture<\/b>/);
      assert.match(second, /Log of attempt 2\s+Succeeded/);
      assert.match(first, /Log of attempt 1\s+Failed/);
      await page.goBack();
      await page.getByRole("link", { name: "#1" }).click();
      await page.getByText("Details").waitFor();
      assert.equal(await logs.count(), 0);
    }));

  test("results come in three orders", () =>
    on({ scene: "empty", path: "jobs" }, async ({ page, mock }) => {
      mock.engine.submit({
        kind: "work",
        name: "Three",
        subtasks: [
          { key: "c", payload: { ms: 300, steady: true } },
          { key: "b", payload: { ms: 10 } },
          { key: "a", payload: { ms: 150, steady: true } },
        ],
      });
      await until(() => jobNamed(mock.engine, "Three").state === "succeeded", "it is over");
      await open(page, "Three");
      await page.getByRole("link", { name: "Results" }).click();
      const numbers = () =>
        page.getByRole("table", { name: "Results" }).locator("tbody tr td:first-child").allTextContents();
      await until(async () => (await numbers()).join() === "#0,#1,#2", "as submitted");
      await page.getByRole("button", { name: "As completed" }).click();
      await until(async () => (await numbers()).join() === "#1,#2,#0", "as completed");
      await page.getByRole("button", { name: "By key" }).click();
      await until(async () => (await numbers()).join() === "#2,#1,#0", "by key");
      assert.match(page.url(), /order=key/);
    }));

  test("one that is not there says so", () =>
    on({ path: "jobs/job_ffffffffffffffffffffffffffffffff", allowed: /status of 404/ }, async ({ page }) => {
      await page.getByText("There is no such job.").waitFor();
    }));

  test("it is copied as a command", () =>
    on({ scene: "still", path: "jobs" }, async ({ page, mock }) => {
      await open(page, "Long");
      await page.getByRole("button", { name: "Copy as curl" }).click();
      await page.getByText("Command copied").waitFor();
      assert.equal(
        await page.evaluate(() => navigator.clipboard.readText()),
        `curl -sS '${mock.url}v1/jobs/${jobNamed(mock.engine, "Long").id}'`,
      );
    }));
});

describe("keys", () => {
  test("they are ordered by how long the head stands, or by length", () =>
    on({ scene: "still", path: "keys" }, async ({ page }) => {
      const keys = () =>
        page.locator("[data-key]").evaluateAll((rows) => rows.map((row) => row.getAttribute("data-key")).join());
      await until(async () => (await keys()).split(",").length === 3, "three keys");
      await page.getByRole("button", { name: "Longest lane" }).click();
      await until(async () => (await keys()).startsWith("k0"), "the longest first");
      assert.match(page.url(), /sort=length/);
    }));

  test("the name of a key is as large as other headings, and the environment stays on one line on a phone", () =>
    on({ scene: "still", path: "keys/k0", mock: { environment: "staging-eu/1" }, size: PHONE }, async ({ page }) => {
      const size = (/** @type {string} */ of) =>
        page.locator(of).first().evaluate((element) => getComputedStyle(element).fontSize);
      const key = await size("h1.mono");
      const height = await page.locator(".environment").evaluate((label) => label.getBoundingClientRect().height);
      assert.ok(height > 0 && height < 30, `${height} px`);
      await page.evaluate(() => (location.hash = "#/keys"));
      await page.getByRole("heading", { name: "Keys" }).waitFor();
      assert.equal(key, await size("h1"));
    }));

  test("a key is paused and resumed, after a question that names the effect", () =>
    on({ scene: "still", path: "keys" }, async ({ page, mock }) => {
      const row = page.locator("[data-key=k1]");
      await row.locator("[data-action=Pause]").click();
      await dialog(page).getByText("Its 4 unfinished subtasks will wait").waitFor();
      await dialog(page).getByRole("button", { name: "Pause the key" }).click();
      await row.getByText("Paused").waitFor();
      assert.equal(mock.engine.keys.get("k1").state, "paused");
      await row.locator("[data-action=Resume]").click();
      await row.getByText("Open").waitFor();
    }));

  test("a stopped key goes on when its head is skipped or tried again", () =>
    on({ path: "keys" }, async ({ page, mock }) => {
      const row = page.locator("[data-key=supplier-1]");
      await row.getByText("Stopped").waitFor();
      await row.locator("[data-action='Skip head']").click();
      await dialog(page)
        .getByText(/will not run, and counts as skipped\. The next of \d+ behind it may begin\./)
        .waitFor();
      const before = jobNamed(mock.engine, "Catalogue import").counts.cancelled;
      await dialog(page).getByRole("button", { name: "Skip the head" }).click();
      await page.getByText("The head of supplier-1 was skipped").waitFor();
      assert.equal(jobNamed(mock.engine, "Catalogue import").counts.cancelled, before + 1);
      assert.notEqual(mock.engine.keys.get("supplier-1")?.state, "stopped");
    }));

  test("the head of a stopped key has actions on its own page, and no other subtask has", () =>
    on({ path: "keys" }, async ({ page, mock }) => {
      const row = page.locator("[data-key=supplier-1]");
      await row.getByText("Stopped").waitFor();
      const { queue, first } = mock.engine.keys.get("supplier-1");
      await row.locator("a.job-link").click();
      await page.getByRole("heading", { level: 1, name: `Subtask #${queue[first].number}`, exact: true }).waitFor();
      const actions = page.locator(".page-head [data-action]");
      await until(async () => (await actions.count()) === 2, "both actions are offered");
      await page.getByRole("button", { name: `Skip head of subtask #${queue[first].number}` }).click();
      await dialog(page).getByText("will not run, and counts as skipped").waitFor();
      await dialog(page).getByRole("button", { name: "Skip the head" }).click();
      await page.getByText("The head of supplier-1 was skipped").waitFor();
      assert.equal(queue[first].state, "skipped");
      await until(async () => (await actions.count()) === 0, "it is over");

      await page.goto(`${mock.url}#/jobs/${jobNamed(mock.engine, "Catalogue import").id}/subtasks/${queue.at(-1).number}`);
      await page.getByRole("heading", { level: 1, name: `Subtask #${queue.at(-1).number}`, exact: true }).waitFor();
      await page.getByText("come before it").waitFor();
      assert.equal(await actions.count(), 0);
    }));

  test("a key has a page of its own, whatever is in its name", () =>
    on({ scene: "empty", path: "keys" }, async ({ page, mock }) => {
      const key = "a/b ä?#%";
      mock.engine.submit({
        kind: "work",
        name: "Odd",
        subtasks: [{ key, payload: { ms: 20 } }, { key, payload: { ms: 3_600_000 } }, { key }],
      });
      await page.getByRole("searchbox", { name: "Go to a key" }).fill(key);
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { level: 1, name: key }).waitFor();
      await page.getByText("2: the head, and 1 behind it").waitFor();
      await page
        .getByRole("table", { name: /Recent attempts of this key/ })
        .getByText("succeeded")
        .waitFor();
      await page.locator("[data-action=Pause]").click();
      await dialog(page).getByRole("button", { name: "Pause the key" }).click();
      await page.locator(".page-head .state").getByText("Paused").waitFor();
    }));
});

describe("failures, allocation, server", () => {
  test("failures are shown by job and reason, and tried again", () =>
    on({ path: "failures" }, async ({ page, mock }) => {
      const group = page.locator(".failed-group");
      await group.getByText("HTTP … from the address service, request …", { exact: true }).waitFor();
      const job = page.locator(".panel", { hasText: "Address check" });
      await until(async () => (await job.locator("tbody tr").count()) === 3, "three of them");
      await page.getByRole("button", { name: "Retry failed subtasks of Address check" }).click();
      await dialog(page).getByRole("button", { name: "Retry" }).click();
      await until(() => jobNamed(mock.engine, "Address check").state === "succeeded", "it succeeds");
      await job.waitFor({ state: "detached" });
    }));

  test("failures of several jobs are put together by reason, and retried with one action", () =>
    on({ scene: "still", path: "failures" }, async ({ page, mock }) => {
      const fail = (/** @type {string} */ error) => ({ payload: { ms: 1, fail: true, error } });
      for (const number of [1, 2])
        mock.engine.submit({
          kind: "work",
          name: `Failing ${number}`,
          attempts: 1,
          subtasks: [fail(`no room on disk ${number}`), fail("timeout")],
        });
      await until(() => jobNamed(mock.engine, "Failing 2").state === "failed", "both have failed");
      const reasons = page.getByRole("table", { name: "Failures by reason" });
      await reasons.getByText("no room on disk …").waitFor();
      assert.deepEqual(await reasons.locator("tbody tr").first().locator(".number").allTextContents(), ["2", "2"]);
      await page.getByRole("button", { name: "Retry all that failed with: timeout" }).click();
      await dialog(page).getByText("They failed with: timeout").waitFor();
      await dialog(page).getByRole("button", { name: "Retry 2 subtasks" }).click();
      await page.getByText("2 jobs retried").waitFor();
    }));

  test("older failures come with Show more, and keep those that are shown", () =>
    on({ scene: "still", path: "failures" }, async ({ page, mock }) => {
      const fail = { ms: 1, fail: true, error: "no room" };
      for (let number = 1; number <= 45; number += 1)
        mock.engine.submit({ kind: "work", name: `Failing ${number}`, attempts: 1, subtasks: [{ payload: fail }] });
      await until(() => jobNamed(mock.engine, "Failing 45").state === "failed", "all have failed");
      await page.reload();
      const panels = page.locator(".panel h2", { hasText: "Failing" });
      const newest = page.getByRole("heading", { name: "Failing 45", exact: true });
      await newest.waitFor();
      assert.equal(await panels.count(), 20);
      const more = page.getByRole("button", { name: "Show more" });
      await more.click();
      await until(async () => (await panels.count()) === 40, "20 more are shown");
      await more.click();
      await until(async () => (await panels.count()) === 45, "all are shown");
      await page.getByRole("heading", { name: "Failing 1", exact: true }).waitFor();
      await newest.waitFor();
      assert.equal(await more.count(), 0);
    }));

  test("keys that a failure has stopped are listed with the failures, and go on", () =>
    on({ path: "failures" }, async ({ page, mock }) => {
      const row = page.getByRole("table", { name: "Stopped keys" }).locator("[data-key=supplier-1]");
      await row.getByText("Stopped").waitFor();
      await row.locator("[data-action='Skip head']").click();
      await dialog(page).getByRole("button", { name: "Skip the head" }).click();
      await row.waitFor({ state: "detached" });
      assert.notEqual(mock.engine.keys.get("supplier-1")?.state, "stopped");
    }));

  test("no failure says so", () =>
    on({ scene: "still", path: "failures" }, ({ page }) => page.getByText("Nothing has failed").waitFor()));

  test("the allocation shows slots by job, decisions by rule, and a table", () =>
    on({ path: "allocation" }, async ({ page }) => {
      await page.getByText(/8 of 8 slots busy, \d of \d jobs active/).waitFor();
      await page.getByRole("table", { name: "Running subtasks" }).locator("tbody tr").nth(7).waitFor();
      await page
        .getByRole("table", { name: /last decisions/ })
        .getByText("Least")
        .first()
        .waitFor();
      await page.getByText("A job with pending work and no slot gets one.").waitFor();
      await page.getByRole("button", { name: "View as table" }).click();
      const shares = page.getByRole("table", { name: /Slots of each job/ });
      await shares.getByText("October invoices").waitFor();
    }));

  test("the history shows slots, attempts, ends and waits of a period, as charts and as tables", () =>
    on({ path: "history" }, async ({ page }) => {
      await page.getByText(/ in intervals of 10 s$/).waitFor();
      await page.locator(".legend").getByRole("link", { name: "October invoices" }).first().waitFor();
      const toggles = page.getByRole("button", { name: "View as table" });
      for (let index = 0; index < 4; index += 1) await toggles.nth(index).click();
      const slots = page.getByRole("table", { name: "Running subtasks by job" });
      await slots.getByRole("link", { name: "October invoices" }).waitFor();
      await slots.getByText("Other jobs").waitFor();
      await page.getByRole("table", { name: "The longest attempts" }).locator("tbody tr").nth(5).waitFor();
      await page.getByRole("table", { name: "Ended subtasks a second" }).getByText("Succeeded").waitFor();
      await page.getByRole("table", { name: "Waiting subtasks by reason" }).getByText("For a key").waitFor();
    }));

  test("the history goes back by hours, and its address keeps the period", () =>
    on({ path: "history?span=24h" }, async ({ page }) => {
      await page.getByText(/ in intervals of 1 min$/).waitFor();
      const later = page.getByRole("button", { name: "Later" });
      assert.ok(await later.isDisabled());
      const hint = page.locator(".page-head .hint");
      const latest = await hint.textContent();
      await page.getByRole("button", { name: "Earlier" }).click();
      await until(() => new URL(page.url()).hash.includes("to="), "the address has the end");
      // The address changes at the click, the words when the answer has come.
      await until(async () => (await hint.textContent()) !== latest, "the earlier period is shown");
      const address = page.url();
      const words = await hint.textContent();
      await page.getByRole("button", { name: "7 days" }).click();
      await page.getByText(/ in intervals of 15 min$/).waitFor();
      await page.goto("about:blank");
      await page.goto(address);
      await page.getByText(/ in intervals of 1 min$/).waitFor();
      assert.equal(await hint.textContent(), words);
      await page.getByRole("button", { name: "Now" }).click();
      await until(() => !page.url().includes("to="), "the period ends now");
    }));

  test("the history says what a moment had, and that the server did not run", () =>
    on({ path: "history" }, async ({ page }) => {
      await page.getByText(/ in intervals of 10 s$/).waitFor();
      const chart = page.getByRole("img", { name: "Waiting subtasks by reason" });
      const box = await chart.boundingBox();
      const at = async (/** @type {number} */ part) => {
        await chart.hover({ position: { x: 50 + (box.width - 58) * part, y: 50 } });
      };
      await at(0.2);
      await page.getByText(/For a slot \d+, For a key \d+/).waitFor();
      await at(0.45);
      await page.getByText(/no data. The server did not run/).waitFor();
    }));

  test("a server without a past says so", () =>
    on({ scene: "empty", path: "history" }, async ({ page }) => {
      await page.getByText("Nothing ran").first().waitFor();
      await page.getByText("Nothing waited").first().waitFor();
    }));

  test("the server's page shows its health and its kinds", () =>
    on({ path: "server" }, async ({ page, mock }) => {
      await page.getByText("Ready for work").waitFor();
      await page.getByRole("table", { name: "Kinds of jobs" }).getByText("thumbnails").waitFor();
      await page.locator(".facts").getByText("Version").waitFor();
      await page.locator(".facts").getByText("staging").waitFor();
      mock.engine.store = "full";
      await page.getByText("The disk is full").waitFor();
    }));

  test("the server's page shows tenants with their limits", () =>
    on({ path: "server" }, async ({ page, mock }) => {
      const tenants = page.getByRole("table", { name: "Tenants" });
      await tenants.getByText("not configured").waitFor();
      const [plain] = mock.engine.tenants;
      mock.engine.tenants.push({ ...plain, name: "team-a", configured: true, weight: 3, max_workers: 12, running: 7 });
      const row = page.locator("[data-tenant=team-a]");
      await row.getByText("12").waitFor();
      await row.getByText("7", { exact: true }).waitFor();
    }));

  test("a kind is paused, resumed, and its limits are reset", () =>
    on({ path: "server" }, async ({ page, mock }) => {
      const row = page.locator("[data-kind=thumbnails]");
      await row.getByRole("button", { name: "Pause thumbnails" }).click();
      await row.getByText("Paused").waitFor();
      assert.equal(mock.engine.kinds[1].paused, true);
      Object.assign(mock.engine.kinds[1], { changed: ["per_second"], pause_reason: "the disk is replaced" });
      await row.getByText("the disk is replaced").waitFor();
      await row.getByText("changed: per second").waitFor();
      await row.getByRole("button", { name: "Reset the limits of thumbnails" }).click();
      await row.getByText("changed: per second").waitFor({ state: "detached" });
      await row.getByRole("button", { name: "Resume thumbnails" }).click();
      await row.getByRole("button", { name: "Pause thumbnails" }).waitFor();
      assert.equal(mock.engine.kinds[1].paused, false);
    }));

  test("the servers of a database are listed with the owner, drained and resumed", () =>
    on({ path: "server" }, async ({ page, mock }) => {
      await page.getByText("No remote workers").waitFor();
      assert.equal(await page.getByRole("table", { name: "Servers" }).count(), 0);
      const last_contact = new Date().toISOString();
      mock.engine.nodes.push(
        { address: "https://10.0.0.5:7420", version: "0.2.0", owner: false, drained: false, last_contact },
        { address: "https://10.0.0.6:7420", version: "0.2.0", owner: true, drained: false, last_contact },
      );
      const table = page.getByRole("table", { name: "Servers" });
      await table.getByRole("row", { name: /10\.0\.0\.5.*waits/ }).waitFor();
      await table.getByRole("row", { name: /10\.0\.0\.6.*owner/ }).waitFor();
      const drain = table.getByRole("button", { name: "Drain https://10.0.0.6:7420" });
      await drain.click();
      await page.getByText("Another server takes the store over").waitFor();
      assert.equal(mock.engine.nodes[1].drained, false);
      await page.getByRole("button", { name: "Drain the server" }).click();
      await table.getByRole("row", { name: /10\.0\.0\.6.*owner, drained/ }).waitFor();
      await table.getByRole("button", { name: "Resume https://10.0.0.6:7420" }).click();
      await drain.waitFor();
      assert.equal(mock.engine.nodes[1].drained, false);
    }));

  test("remote workers are listed with their oldest leases", () =>
    on({ path: "server" }, async ({ page, mock }) => {
      await page.getByText("No remote workers").waitFor();
      const [job] = mock.engine.jobs.values();
      const lease = { job: job.id, kind: "imports", number: 3, keys: ["customer-acme"], attempt: 1 };
      const times = { since: new Date().toISOString(), expires_at: new Date().toISOString() };
      mock.engine.workers.push(
        {
          name: "importer-1",
          token: "import-farm",
          kinds: ["imports"],
          waiting: 1,
          leases: 7,
          running: [{ ...lease, ...times }],
          last_contact: new Date().toISOString(),
        },
        { kinds: [], waiting: 0, leases: 0, running: [] },
      );
      const table = page.getByRole("table", { name: "Remote workers" });
      await table.getByText("import-farm").waitFor();
      await table.getByText("not known since the restart").waitFor();
      await table.getByRole("link", { name: "customer-acme" }).waitFor();
      await table.getByRole("link", { name: "imports 3" }).click();
      await page.getByRole("heading", { level: 1 }).waitFor();
      assert.equal(new URL(page.url()).hash, `#/jobs/${job.id}/subtasks/3`);
    }));

  test("webhooks that are not delivered are listed with their errors, sent again and removed", () =>
    on({ path: "server" }, async ({ page, mock }) => {
      await page.getByText("All webhooks are delivered").waitFor();
      const [job] = mock.engine.jobs.values();
      mock.engine.webhooks.push({
        id: `${job.id}.7`,
        job: job.id,
        kind: "imports",
        event: "job.failed",
        url: "https://example.com/<b>hook</b>",
        state: "failed",
        attempts: 8,
        max_attempts: 8,
        created_at: new Date().toISOString(),
        failed_at: new Date().toISOString(),
        error: "the response was 500 <i>",
      });
      const row = page.locator(`[data-webhook="${job.id}.7"]`);
      for (const text of ["job.failed", "8 of 8", "https://example.com/<b>hook</b>", "the response was 500 <i>"])
        await row.getByText(text, { exact: true }).waitFor();
      assert.equal(await row.getByRole("link", { name: "imports" }).getAttribute("href"), `#/jobs/${job.id}`);
      await row.getByRole("button", { name: "Send the webhook of imports now" }).click();
      await row.getByText("0 of 8").waitFor();
      await row.getByRole("button", { name: "Remove the webhook of imports" }).click();
      await page.getByText("All webhooks are delivered").waitFor();
      assert.equal(mock.engine.webhooks.length, 0);
    }));

  test("schedules show their times and jobs, are paused and resumed, and run after a question", () =>
    on({ path: "server" }, async ({ page, mock }) => {
      await page.locator(".hint").getByRole("link", { name: "Schedules" }).click();
      await page.getByText("No schedules").waitFor();
      mock.engine.schedules.push(
        {
          name: "report/daily",
          cron: "0 9 * * *",
          time_zone: "Europe/Berlin",
          paused: false,
          next: ["2031-01-02T08:00:00.000Z"],
          fired: 7,
          passed: 2,
          last_passed: { at: "2026-01-01T08:00:00.000Z", reason: "overlap", text: "the previous job was unfinished" },
          job: { kind: "thumbnails", payload: 1, name: "the daily report" },
        },
        { name: "late", cron: "@hourly", time_zone: "UTC", paused: false, next: [], fired: 0, passed: 0, held_up: "the disk is full" },
      );
      await page.reload();
      const row = page.locator('[data-schedule="report/daily"]');
      for (const text of ["0 9 * * * · Europe/Berlin", "2031", "the previous job was unfinished"])
        await row.getByText(text).waitFor();
      await page.locator('[data-schedule="late"]').getByText("the disk is full").waitFor();
      await row.getByRole("button", { name: "Pause report/daily" }).click();
      await row.getByRole("button", { name: "Resume report/daily" }).waitFor();
      assert.equal(mock.engine.schedules[0].paused, true);
      await row.getByRole("button", { name: "Resume report/daily" }).click();
      await row.getByRole("button", { name: "Pause report/daily" }).waitFor();
      await row.getByRole("button", { name: "Run report/daily now" }).click();
      await dialog(page).getByRole("button", { name: "Keep as it is" }).click();
      assert.equal(jobNamed(mock.engine, "the daily report"), undefined);
      await row.getByRole("button", { name: "Run report/daily now" }).click();
      await dialog(page).getByRole("button", { name: "Run now" }).click();
      await until(async () => jobNamed(mock.engine, "the daily report") !== undefined, "the job was submitted");
      await row.getByRole("link").click();
      await page.getByRole("heading", { level: 1, name: "the daily report" }).waitFor();
    }));

  test("the audit log shows who did what, in pages and by filters", () =>
    on({ path: "server" }, async ({ page, mock }) => {
      mock.engine.audit = Array.from({ length: 60 }, (_, index) => ({
        number: 60 - index,
        at: new Date(Date.now() - index * 60_000).toISOString(),
        who: index === 0 ? "ann" : "bob",
        from: "192.0.2.7",
        what: index === 0 ? "key.skip-head" : "job.cancel",
        ...(index === 0 ? { key: "customer-11" } : { job: `job_0000000000000000000000000000${index}` }),
        reason: index === 0 ? "it <b>never</b> ends" : undefined,
        outcome: index === 1 ? "refused" : "done",
        problem: index === 1 ? "conflict" : undefined,
      }));
      await page.locator(".hint").getByRole("link", { name: "Audit log" }).click();
      const rows = page.locator("[data-entry]");
      await until(async () => (await rows.count()) === 50, "the first page");
      for (const text of ["ann", "192.0.2.7", "key.skip-head", "customer-11", "it <b>never</b> ends"])
        await rows.first().getByText(text, { exact: true }).waitFor();
      await rows.nth(1).getByText("Refused: conflict").waitFor();
      await page.getByRole("button", { name: "Next" }).click();
      await until(async () => (await rows.count()) === 10, "the second page");
      await page.getByRole("textbox", { name: "Token name" }).fill("ann");
      await page.getByRole("button", { name: "Show", exact: true }).click();
      await until(async () => (await rows.count()) === 1, "the entries of one token");
      await rows.first().getByRole("link", { name: "customer-11" }).click();
      await page.getByRole("heading", { level: 1, name: "customer-11" }).waitFor();
    }));

  test("ill health is said with what to do", () =>
    on({ path: "jobs", allowed: /status of 503/ }, async ({ page, mock }) => {
      mock.engine.store = "full";
      await page.getByRole("link", { name: "Server" }).click();
      await page.getByText("Not ready").waitFor();
      await page.getByText("The disk is full; free some space.").waitFor();
    }));
});

describe("submit", () => {
  test("a job is submitted with all that the form says", () =>
    on({ scene: "empty", path: "submit" }, async ({ page, mock }) => {
      await page.getByLabel("Kind").selectOption("work");
      await page.getByLabel("Name").fill("By hand");
      await page.getByLabel("Key", { exact: true }).fill("customer-1");
      await page.getByLabel("Payload").fill('{"ms": 30, "id": 9007199254740993}');
      await page.getByText("More").click();
      await page.getByLabel("Labels").fill("team=data, run=7");
      await page.getByLabel("Weight").fill("3");
      await page.getByLabel("Priority").selectOption("high");
      await page.getByLabel("Expiry").fill("3600");
      await page.getByLabel("Unique").fill("1.5");
      await page.getByLabel("After", { exact: true }).fill("job_1, job_2");
      await page.getByLabel("Webhook").fill("https://example.com/hook");
      const [request] = await Promise.all([
        page.waitForRequest((one) => one.method() === "POST"),
        page.getByRole("button", { name: "Submit the job" }).click(),
      ]);
      assert.match(request.postData() ?? "", /9007199254740993/, "every digit is sent");
      assert.equal(JSON.parse(request.postData() ?? "").unique_ms, 1500);
      await page.getByText("By hand was accepted, and is on the disk").waitFor();
      assert.match(request.headers()["idempotency-key"], /^[0-9a-f]{32}$/);
      await page.getByRole("heading", { level: 1, name: "By hand" }).waitFor();
      const job = jobNamed(mock.engine, "By hand");
      assert.deepEqual([job.weight, job.labels, job.subtasks[0].keys], [3, { team: "data", run: "7" }, ["customer-1"]]);
      assert.equal(job.webhook, "https://example.com/hook");
      assert.deepEqual([job.priority, job.after, job.expires_at - job.created_at], ["high", ["job_1", "job_2"], 3_600_000]);
      await page.getByText("high", { exact: true }).waitFor();
      await page.getByText("After the success of").waitFor();
      assert.match((await page.getByRole("link", { name: "job_2" }).getAttribute("href")) ?? "", /job_2/);
    }));

  test("an equal job that was submitted before is opened, and said to be", () =>
    on({ scene: "few", path: "submit" }, async ({ page, mock }) => {
      const before = jobNamed(mock.engine, "Catalogue import");
      const isSubmission = (/** @type {URL} */ url) => url.pathname === "/v1/jobs" && url.search === "";
      await page.route(isSubmission, (route) => route.fulfill({ status: 200, json: mock.engine.view(before) }));
      await page.getByLabel("Kind").selectOption("work");
      await page.getByRole("button", { name: "Submit the job" }).click();
      await page.getByText("It was submitted before: Catalogue import").waitFor();
      await page.getByRole("heading", { level: 1, name: "Catalogue import" }).waitFor();
      await page.unrouteAll({ behavior: "ignoreErrors" });
    }));

  test("many subtasks are submitted from a list", () =>
    on({ scene: "empty", path: "submit" }, async ({ page, mock }) => {
      await page.getByLabel("Kind").selectOption("work");
      await page.getByLabel("Payload").fill('{"subtasks": [{"key": "a"}, {"key": "b"}]}');
      await page.getByRole("button", { name: "Submit the job" }).click();
      await page.getByText("2 of 2 subtasks ended").waitFor();
      assert.equal(mock.engine.jobs.size, 1);
    }));

  test("an invalid field shows its error, and nothing is sent", () =>
    on({ scene: "empty", path: "submit", allowed: /status of 4/ }, async ({ page, mock }) => {
      await page.getByLabel("Kind").selectOption("work");
      await page.getByLabel("Payload").fill('{"a": }');
      await page.getByRole("button", { name: "Submit the job" }).click();
      await page.getByText("Payload is not JSON: expected a value at line 1, column 7.").waitFor();
      await page.getByLabel("Payload").fill("{}");
      await page.getByText("More").click();
      await page.getByLabel("Labels").fill("nonsense");
      await page.getByRole("button", { name: "Submit the job" }).click();
      await page.getByText("write “nonsense” as name=value").waitFor();
      assert.equal(mock.engine.jobs.size, 0);
      await page.getByLabel("Labels").fill("");
      mock.engine.kinds = [];
      await page.getByRole("button", { name: "Submit the job" }).click();
      await page.getByText('There is no kind "work". /kind: not one of the server\'s kinds').waitFor();
    }));

  test("the command that is copied does the same", () =>
    on({ scene: "empty", path: "submit" }, async ({ page, mock }) => {
      await page.getByLabel("Kind").selectOption("work");
      await page.getByLabel("Key", { exact: true }).fill("it's");
      await page.getByRole("button", { name: "Copy as curl" }).click();
      await page.getByText("Command copied").waitFor();
      const line = await page.evaluate(() => navigator.clipboard.readText());
      const { execFileSync } = await import("node:child_process");
      const args = execFileSync("bash", ["-c", `curl() { printf '%s\\n' "$@"; }; ${line}`])
        .toString()
        .split("\n");
      assert.deepEqual(JSON.parse(args[args.indexOf("--data-raw") + 1]), { kind: "work", key: "it's", payload: {} });
      assert.equal(args[1], `${mock.url}v1/jobs`);
    }));
});

describe("on a phone", () => {
  for (const path of ["", "jobs", "keys", "failures", "allocation", "history", "schedules", "audit", "server", "submit"]) {
    test(`${path || "overview"} fits its width`, () =>
      on({ path, size: PHONE }, async ({ page }) => {
        await page.locator(".view > *").first().waitFor();
        await page.locator(".skeleton").first().waitFor({ state: "detached" });
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), PHONE.width);
      }));
  }

  test("one gets everywhere by the bar at the foot", () =>
    on({ size: PHONE }, async ({ page }) => {
      for (const name of ["Jobs", "Keys", "Failures", "Allocation", "Server", "Overview"]) {
        await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name }).click();
        await page.getByRole("heading", { level: 1, name }).waitFor();
      }
    }));
});
