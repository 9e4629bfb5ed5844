// A walk through everything, with nothing but the public API: against the server that KEYLANE_UI_SERVER names, with the
// token in KEYLANE_UI_TOKEN if it wants one, or else against the mock. tests/README.md says what the server must have.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { openPage, startBrowser } from "./browser.mjs";
import { until } from "./harness.mjs";
import { startMock } from "./mock/server.mjs";

const token = process.env.KEYLANE_UI_TOKEN;
/** So that runs on one server do not meet. */
const run = `ui-${Date.now().toString(36)}`;
/** @type {any} */
let mock;
/** @type {any} */
let browser;
let server = "";

before(async () => {
  if (!process.env.KEYLANE_UI_SERVER) mock = await startMock({ scene: "empty" });
  server = new URL(process.env.KEYLANE_UI_SERVER ?? mock.url).href;
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  await mock?.close();
});

/** @param {string} path */
async function open(path) {
  const opened = await openPage(browser, { url: server });
  if (token) await opened.page.evaluate((value) => sessionStorage.setItem("keylane-token", value), token);
  opened.problems.length = 0;
  await opened.page.goto(`${server}#/${path}`);
  await opened.page.reload();
  await opened.page.locator(".connection[data-is=live]").waitFor();
  return opened;
}

/** @param {object} job */
async function submit(job) {
  const answer = await fetch(`${server}v1/jobs`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) },
    body: JSON.stringify({ kind: "work", labels: { run }, ...job }),
  });
  assert.equal(answer.status, 202, await answer.clone().text());
  return answer.json();
}

/** The lanes still show jobs that were deleted, also by a run before, whose names are asked for in vain. @param {string[]} problems */
const complaints = (problems) => problems.filter((text) => !text.includes("status of 410"));

test("a job is submitted, followed to its end, and its results are read", async () => {
  const { page, context, problems } = await open("submit");
  await page.getByLabel("Kind").selectOption("work");
  await page.getByLabel("Name").fill(`${run} form`);
  await page
    .getByLabel("Payload")
    .fill(JSON.stringify({ subtasks: [0, 1, 2, 3].map((n) => ({ key: `${run}-${n % 2}`, payload: { ms: 20, n } })) }));
  await page.getByRole("button", { name: "Submit the job" }).click();
  await page.getByRole("heading", { level: 1, name: `${run} form` }).waitFor();
  await page.locator(".page-head .state").getByText("Succeeded").waitFor();
  await page.getByRole("link", { name: "Results" }).click();
  const rows = page.getByRole("table", { name: "Results" }).locator("tbody tr");
  await until(async () => (await rows.count()) === 4, "four results");
  await rows.first().getByRole("link", { name: "#0" }).click();
  await page.getByRole("heading", { level: 1, name: "Subtask #0" }).waitFor();
  assert.deepEqual(complaints(problems), []);
  await context.close();
});

test("a waiting job shows its blocking subtask, a key is paused and resumed, and a job is cancelled", async () => {
  const long = await submit({
    name: `${run} long`,
    subtasks: [0, 1, 2].map(() => ({ key: `${run}-k`, payload: { ms: 600_000 } })),
  });
  const held = await submit({ name: `${run} held`, subtasks: [{ key: `${run}-k`, payload: { ms: 1 } }] });
  const { page, context, problems } = await open(`jobs/${held.id}`);
  await page.locator(".because").getByText("Behind earlier subtasks of its key").waitFor();
  await page
    .locator(".because")
    .getByRole("link", { name: `${run}-k` })
    .click();
  await page.getByText("4: the head, and 3 behind it").waitFor();
  await page.locator("[data-action=Pause]").click();
  await page.getByRole("button", { name: "Pause the key" }).click();
  await page.locator(".page-head .state").getByText("Paused").waitFor();
  await page.locator("[data-action=Resume]").click();
  await page.locator(".page-head .state").getByText("Open").waitFor();
  await page.goto(`${server}#/jobs/${long.id}`);
  await page.locator("[data-action=Cancel]").click();
  await page.getByRole("checkbox", { name: "Stop running subtasks at once" }).check();
  await page.getByRole("button", { name: "Cancel the job" }).click();
  await page.locator(".page-head .state").getByText("Cancelled").waitFor();
  await page.goto(`${server}#/jobs/${held.id}`);
  await page.locator(".page-head .state").getByText("Succeeded").waitFor();
  assert.deepEqual(complaints(problems), []);
  await context.close();
});

test("what failed is found by its reason, and deleted with its job", async () => {
  const job = await submit({
    name: `${run} failing`,
    attempts: 1,
    subtasks: [0, 1].map((n) => ({ payload: { fail: true, ms: 1, n, say: `${run} looks\n` } })),
  });
  const { page, context, problems } = await open("failures");
  await page.getByRole("link", { name: `${run} failing` }).click();
  await page.locator(".page-head .state").getByText("Failed").waitFor();
  await page.getByRole("link", { name: "Failed" }).click();
  await until(async () => (await page.locator(".failed-group tbody tr").count()) === 2, "both");
  await page.goto(`${server}#/jobs/${job.id}/subtasks/0`);
  await page.getByRole("region", { name: "Log of attempt 1" }).getByText(`${run} looks`).waitFor();
  await page.goto(`${server}#/jobs/${job.id}`);
  await page.locator("[data-action=Delete]").click();
  await page.getByRole("button", { name: "Delete the job" }).click();
  await page.getByRole("heading", { level: 1, name: "Jobs" }).waitFor();
  await page.goto(`${server}#/jobs?label=${encodeURIComponent(`run:${run}`)}`);
  await page.getByRole("link", { name: `${run} held` }).waitFor();
  assert.equal(await page.locator(`[data-job="${job.id}"]`).count(), 0);
  assert.deepEqual(complaints(problems), []);
  await context.close();
});

test("the lanes, the allocation and the server's page have something to show", async () => {
  const job = await submit({
    name: `${run} lanes`,
    subtasks: Array.from({ length: 40 }, (_, n) => ({ key: `${run}-${n % 4}`, payload: { ms: 60 } })),
  });
  const { page, context, problems } = await open("");
  await page
    .locator(".legend")
    .getByRole("link", { name: `${run} lanes` })
    .waitFor();
  await page.getByRole("button", { name: "View as table" }).click();
  await page
    .getByRole("table", { name: /Recent attempts/ })
    .getByText(`${run} lanes`)
    .first()
    .waitFor();
  await page.goto(`${server}#/allocation`);
  await page.getByText(/of \d+ slots busy/).first().waitFor();
  // A sample is made every 10 seconds.
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const from = new Date(Date.now() - 3_600_000).toISOString();
  const past = async () => (await fetch(`${server}v1/history?from=${from}&to=${new Date().toISOString()}`, { headers })).json();
  await until(async () => (await past()).samples.some((/** @type {any} */ { succeeded }) => succeeded > 0), "a sample");
  await page.goto(`${server}#/history`);
  await page.getByText(/ in intervals of 10 s$/).waitFor();
  await page.getByRole("button", { name: "View as table" }).nth(2).click();
  await page.getByRole("table", { name: "Ended subtasks a second" }).getByText("Succeeded").waitFor();
  await page.goto(`${server}#/server`);
  await page.getByText("Ready for work").waitFor();
  await page.getByRole("table", { name: "Kinds of jobs" }).getByText("work").first().waitFor();
  await page.goto(`${server}#/jobs/${job.id}`);
  await page.locator(".page-head .state").getByText("Succeeded").waitFor();
  assert.deepEqual(complaints(problems), []);
  await context.close();
});
