// Live data is updated, paused data stays still, and a lost connection is shown.

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { until, withBrowser } from "./harness.mjs";

const on = withBrowser();
const LOST = /Failed to load resource|net::ERR/;
/** @param {import("playwright-core").Page} page */
const live = (page) => page.locator(".connection[data-is=live]").waitFor();

describe("the connection", () => {
  test("there is one stream, and it asks for the summary and the timeline", () =>
    on({}, async ({ page, mock }) => {
      await live(page);
      await page.getByRole("link", { name: "Keys", exact: true }).click();
      await page.getByRole("heading", { level: 1, name: "Keys" }).waitFor();
      const streams = mock.state.requests.filter(({ path }) => path === "/v1/events");
      assert.deepEqual(
        streams.map(({ query }) => query),
        ["?include=summary,timeline"],
      );
    }));

  test("when it is lost, the page says so and how old its data is, and comes back by itself", () =>
    on({ allowed: LOST }, async ({ page, mock }) => {
      await live(page);
      await page.getByText("8 of 8", { exact: true }).waitFor();
      mock.break();
      await page.getByText(/Connection lost\. The data is \d+ s old\./).waitFor();
      await page.locator(".shell[data-connection=lost]").waitFor();
      assert.match((await page.locator(".vitals").textContent()) ?? "", /8 of 8/, "old data stays");
      // Tries come more and more seldom: there is time to press.
      await page.getByText(/Next try in [5-9] s/).waitFor();
      mock.heal();
      await page.getByRole("button", { name: "Try now" }).click();
      await live(page);
      await page.getByText(/Connection lost\. /).waitFor({ state: "hidden" });
    }));

  test("it goes on behind the last event, and misses nothing", () =>
    on({ scene: "empty", path: "jobs", allowed: LOST }, async ({ page, mock }) => {
      await live(page);
      const before = mock.engine.events.length;
      await until(() => mock.engine.events.length > before + 2, "some events for the page");
      mock.break();
      await page.getByText(/Connection lost\. /).waitFor();
      mock.engine.submit({ kind: "work", name: "Meanwhile", payload: { ms: 1 } });
      mock.heal();
      await page.getByRole("link", { name: "Meanwhile" }).waitFor();
      const again = mock.state.requests.filter(({ path }) => path === "/v1/events").at(-1);
      assert.match(again.headers["last-event-id"], /^\d+$/);
    }));

  test("after a reset everything is asked for again", () =>
    on({ scene: "still", path: "jobs", allowed: LOST }, async ({ page, mock }) => {
      await live(page);
      await page.getByRole("link", { name: "Long", exact: true }).waitFor();
      mock.break();
      await page.getByText(/Connection lost\. /).waitFor();
      mock.engine.patch([...mock.engine.jobs.keys()][0], { name: "Renamed" });
      // What the page would need for going on is gone.
      mock.engine.events.splice(0);
      mock.engine.events.push({ id: "1000000", event: "job_changed", at: new Date().toISOString() });
      mock.heal();
      await page.getByRole("link", { name: "Renamed" }).waitFor();
    }));

  test("a server that never answered is said not to answer", () =>
    on({ allowed: LOST }, async ({ page, mock }) => {
      await live(page);
      // The stream stays away: if it came back, the list would come back without a press.
      await page.route("**/v1/events*", (route) => route.abort());
      mock.break();
      await page.getByRole("link", { name: "Jobs", exact: true }).click();
      await page.getByText("The server does not answer.").waitFor();
      mock.heal();
      await page.getByRole("main").getByRole("button", { name: "Try again" }).click();
      await page.getByRole("link", { name: "October invoices" }).waitFor();
    }));
});

test("an answer that is older than what the stream has said changes nothing", () =>
  on({ scene: "still", path: "jobs" }, async ({ page, mock }) => {
    await live(page);
    await page.getByRole("link", { name: "Long", exact: true }).waitFor();
    const [id] = mock.engine.jobs.keys();
    let release = () => {};
    const held = new Promise((resolve) => (release = () => resolve(null)));
    await page.route(`**/v1/jobs/${id}`, async (route) => {
      const response = await route.fetch();
      await held;
      await route.fulfill({ response });
    });
    const asked = page.waitForRequest(`**/v1/jobs/${id}`);
    await page.getByRole("link", { name: "Long", exact: true }).click();
    await asked;
    await until(() => mock.state.requests.some((/** @type {any} */ { path }) => path === `/v1/jobs/${id}`), "it answers");
    mock.engine.cancel(id, "kill");
    const state = page.locator(".page-head .state");
    await state.getByText("Cancelled").waitFor();
    const answered = page.waitForResponse(`**/v1/jobs/${id}`);
    release();
    await (await answered).finished();
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
    assert.equal(await state.textContent(), "Cancelled");
  }));

describe("pausing", () => {
  test("a button stops the picture, and what came meanwhile comes after", () =>
    on({ scene: "empty", path: "jobs" }, async ({ page, mock }) => {
      await live(page);
      await page.getByText("No jobs yet").waitFor();
      const vitals = page.locator(".vitals");
      // An answer that comes during the pause would be shown, so the page must have all: two rounds of events without any.
      let [asked, since] = [0, 0];
      await until(() => {
        const { requests, answering } = mock.state;
        const round = Number(mock.engine.events.at(-1)?.id ?? 0);
        if (answering > 0 || requests.length !== asked) [asked, since] = [requests.length, round];
        return round > since + 4;
      }, "no requests");
      const pause = page.getByRole("button", { name: "Pause live updates" });
      await pause.click();
      assert.equal(await pause.getAttribute("aria-pressed"), "true");
      await page.locator(".connection[data-is=paused]").waitFor();
      const said = await vitals.textContent();
      mock.engine.submit({ kind: "work", name: "Held back", subtasks: [{ payload: { ms: 1 } }] });
      const seen = mock.engine.events.at(-1).id;
      // Two more rounds of the server's, which the page gets and keeps to itself.
      await until(() => Number(mock.engine.events.at(-1).id) > Number(seen) + 4, "later events");
      assert.equal(await page.getByRole("link", { name: "Held back" }).count(), 0);
      assert.equal(await vitals.textContent(), said);
      await pause.click();
      await page.getByRole("link", { name: "Held back" }).waitFor();
    }));

  test("text that is selected stays", () =>
    on({}, async ({ page }) => {
      await live(page);
      await page.locator(".tile dd").first().selectText();
      await page.getByText("Paused: text selected").waitFor();
      await page.evaluate(() => getSelection()?.removeAllRanges());
      await live(page);
    }));

  test("a hidden tab asks for nothing", () =>
    on({}, async ({ page, mock }) => {
      await live(page);
      const hide = (/** @type {boolean} */ hidden) =>
        page.evaluate((value) => {
          Object.defineProperty(document, "hidden", { value, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }, hidden);
      await hide(true);
      await page.locator(".connection[data-is=stopped]").waitFor();
      await until(() => mock.engine.listenerCount("event") === 0, "the stream is closed");
      await hide(false);
      await live(page);
    }));
});

describe("tokens", () => {
  const withToken = { mock: { token: "secret" }, allowed: /status of 401/ };

  test("the page asks for a token once, keeps it in the tab, and sends it everywhere", () =>
    on({ ...withToken, path: "jobs" }, async ({ page, mock }) => {
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Token").fill("wrong");
      await dialog.getByRole("button", { name: "Continue" }).click();
      await dialog.getByText("The token was not accepted.").waitFor();
      await dialog.getByLabel("Token").fill("secret");
      await dialog.getByRole("button", { name: "Continue" }).click();
      await page.getByRole("link", { name: "October invoices" }).waitFor();
      await live(page);
      assert.equal(await dialog.count(), 0);
      assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("secret")), false);
      assert.ok(
        mock.state.requests.every(({ query }) => !query.includes("secret")),
        "it is in no address",
      );
      await page.reload();
      await page.getByRole("link", { name: "October invoices" }).waitFor();
      assert.equal(await dialog.count(), 0);
    }));

  test("a closed prompt for a token stays closed, and can be opened again", () =>
    on({ ...withToken, path: "keys" }, async ({ page, mock }) => {
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Token").waitFor();
      await page.keyboard.press("Escape");
      await page.getByText("This server requires a token. The page shows no data, or old data.").waitFor();
      const asked = mock.state.requests.length;
      await until(() => mock.state.requests.length > asked + 3, "more requests that are refused");
      assert.equal(await dialog.count(), 0);
      await page.getByRole("button", { name: "Enter a token" }).click();
      await dialog.getByLabel("Token").fill("secret");
      await dialog.getByRole("button", { name: "Continue" }).click();
      await live(page);
    }));

  test("a command that is copied does not have the token", () =>
    on({ ...withToken, path: "submit" }, async ({ page }) => {
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Token").fill("secret");
      await dialog.getByRole("button", { name: "Continue" }).click();
      await page.getByLabel("Kind").selectOption("work");
      await page.getByRole("button", { name: "Copy as curl" }).click();
      await page.getByText("Command copied").waitFor();
      const line = await page.evaluate(() => navigator.clipboard.readText());
      assert.match(line, /Bearer \$KEYLANE_TOKEN/);
      assert.doesNotMatch(line, /secret/);
    }));
});

test("a server that takes no changes shows no buttons for any", () =>
  on({ mock: { readOnly: true }, path: "keys" }, async ({ page }) => {
    await page.locator("[data-key]").first().waitFor();
    await page.getByText("Read only").waitFor();
    await until(async () => (await page.locator("[data-action]").count()) === 0, "no actions");
    await page.getByRole("link", { name: "Jobs", exact: true }).click();
    await page.getByRole("link", { name: "October invoices", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "October invoices" }).waitFor();
    assert.equal(await page.locator("[data-action]").count(), 0);
    await page.getByRole("link", { name: "Submit a job" }).click();
    await page.getByText("This server accepts no changes over its API").waitFor();
  }));
