// What failed for good anywhere: by job, by reason, with a way to try it again; and the keys that a failure has stopped.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { failedOf, groupByError } from "../failed.js";
import { count, jobTitle, newestFirst, plural } from "../format.js";
import { soon } from "../pace.js";
import { retryJob } from "../parts/actions.js";
import { failedGroup } from "../parts/failedgroup.js";
import { keyTable } from "../parts/keytable.js";
import { pageHead } from "../parts/page.js";
import { reasonPanel } from "../parts/reasons.js";
import { button, empty, failure, jobLink, panel, skeleton, stateBadge } from "../parts/small.js";
import { href } from "../route.js";

/** @typedef {import("../types.js").Job} Job */

/** Number of jobs shown at first, and added by each "Show more". */
const STEP = 20;
/** Number of jobs that one request returns. */
const PAGE = 100;
/** Maximum number of requests per list and `STEP` of jobs: most of the jobs read may have no failure. */
const MAX_PAGES = 5;
/** Maximum number of keys read to find stopped ones; the server's maximum for one request. */
const MAX_KEYS = 1000;
/** Jobs that may have failures, in two lists: the jobs of the second list need not have any. */
const LISTS = ["failed", "running,paused,cancelling,cancelled"];

/** @param {import("../main.js").View} view */
export function showFailures({ app, root, signal, title }) {
  title("Failures");
  const place = h("div", { class: "stack" }, panel("Failed for good", {}, skeleton()));
  const keys = stoppedKeys(app, signal);
  const reasons = reasonPanel({ isReadOnly: () => app.version?.read_only ?? false, changed: () => load() });
  fill(root, pageHead("Failures").element, h("div", { class: "stack" }, keys.element, reasons.element, place));
  const more = h("button", { type: "button", class: "button", onclick: () => showMore() }, "Show more");
  let wanted = STEP;
  let shown = "";
  /**
   * Jobs shown, with the state in which each was read.
   * @type {Map<string, {state: string, panel: HTMLElement, failed: import("../parts/reasons.js").FailedJob}>}
   */
  let panels = new Map();
  const panelOf = async (/** @type {Job} */ job) => {
    const state = JSON.stringify([job.counts.failed, job.state, job.name]);
    const known = panels.get(job.id);
    return known?.state === state ? known : { state, ...(await failedJob(app, job, signal, load)) };
  };
  const load = async () => {
    try {
      const { jobs, isAll } = await jobsWithFailures(wanted, signal);
      const state = JSON.stringify([isAll, jobs.map(({ id, counts, state: how }) => [id, counts.failed, how])]);
      if (state === shown || signal.aborted) return;
      const all = await Promise.all(jobs.map(panelOf));
      if (signal.aborted) return;
      panels = new Map(jobs.map((job, index) => [job.id, all[index]]));
      shown = state;
      for (const job of jobs) app.model.learn(job);
      const last = !isAll && h("p", { class: "panel-foot" }, more);
      const listed = jobs.length === 0 ? nothingFailed(isAll) : all.map((one) => one.panel);
      reasons.show(all.map((one) => one.failed));
      fill(place, listed, last);
    } catch (error) {
      if (!signal.aborted && shown === "")
        fill(place, panel("Failed for good", {}, failure(/** @type {Error} */ (error), load)));
    }
  };
  const showMore = async () => {
    wanted += STEP;
    more.disabled = true;
    await load();
    more.disabled = false;
  };
  // Under load much fails at once, and is shown at once.
  const reload = soon(() => !signal.aborted && load(), 1_000);
  for (const event of ["subtask_failed", "job_ended", "job_purged", "job_changed"]) app.live.on(event, reload, signal);
  const reloadKeys = soon(() => !signal.aborted && keys.load(), 1_000);
  for (const event of ["key_changed", "subtask_failed", "job_ended"]) app.live.on(event, reloadKeys, signal);
  app.live.on("reset", () => (load(), keys.load()), signal);
  load();
  keys.load();
}

/** @param {boolean} isAll Whether all jobs were read. */
function nothingFailed(isAll) {
  const found = isAll ? "Nothing has failed" : "Nothing has failed in the newest jobs";
  const hint = "Subtasks that failed in all their attempts appear here, grouped by reason.";
  return panel("Failed for good", {}, empty(found, h("p", null, hint)));
}

/**
 * Panel of the keys that a failure has stopped, with their actions; hidden if there is none.
 * @param {import("../main.js").App} app
 * @param {AbortSignal} signal
 */
function stoppedKeys(app, signal) {
  const table = keyTable("Stopped keys", { app, changed: () => load() });
  const lost = h("p", { class: "panel-foot", hidden: true }, "The stopped keys are not known: the server did not answer.");
  const part = `Only the ${count(MAX_KEYS)} keys with the oldest heads are looked at.`;
  const note = h("p", { class: "panel-foot", hidden: true }, part);
  const element = panel("Stopped keys", {}, table.element, note, lost);
  element.hidden = true;
  const load = async () => {
    try {
      const page = await get("v1/keys", { sort: "head_age", limit: MAX_KEYS }, signal);
      /** @type {import("../types.js").KeyView[]} */
      const stopped = page.items.filter((/** @type {import("../types.js").KeyView} */ key) => key.state === "stopped");
      table.show(stopped);
      lost.hidden = true;
      note.hidden = page.items.length < MAX_KEYS;
      element.hidden = stopped.length === 0 && note.hidden;
    } catch {
      if (!signal.aborted) element.hidden = lost.hidden = false;
    }
  };
  return { element, load };
}

/**
 * The newest jobs with failures, at most `wanted`, and whether there are no more.
 * @param {number} wanted
 * @param {AbortSignal} signal
 */
async function jobsWithFailures(wanted, signal) {
  const lists = await Promise.all(LISTS.map((state) => listWithFailures(state, wanted, signal)));
  const jobs = lists.flatMap((list) => list.jobs).sort(newestFirst);
  return { jobs: jobs.slice(0, wanted), isAll: jobs.length <= wanted && lists.every((list) => list.isAll) };
}

/**
 * Reads the jobs in some states, newest first, until `wanted` of them have failures.
 * @param {string} state
 * @param {number} wanted
 * @param {AbortSignal} signal
 */
async function listWithFailures(state, wanted, signal) {
  /** @type {Job[]} */
  const jobs = [];
  /** @type {string | undefined} */
  let cursor;
  for (let pages = (MAX_PAGES * wanted) / STEP; pages > 0; pages -= 1) {
    const page = await get("v1/jobs", { state, cursor, limit: PAGE }, signal);
    jobs.push(...page.items.filter((/** @type {Job} */ job) => job.counts.failed > 0));
    cursor = page.next_cursor;
    if (!cursor || jobs.length > wanted) break;
  }
  return { jobs, isAll: !cursor };
}

/**
 * @param {import("../main.js").App} app
 * @param {Job} job
 * @param {AbortSignal} signal
 * @param {() => void} reload
 */
async function failedJob(app, job, signal, reload) {
  const { items, isAll } = await failedOf(job.id, signal);
  const { failed } = job.counts;
  const retry =
    !app.version?.read_only &&
    button("Retry failed…", "retry", async () => (await retryJob(job, "failed", failed)) && reload(), {
      "aria-label": `Retry failed subtasks of ${jobTitle(job)}`,
    });
  const one = panel(jobTitle(job), {
    side: [
      h("span", { class: "hint" }, `${count(failed)} of ${plural(job.counts.total, "subtask")} failed`),
      stateBadge(job.state).element,
      retry,
    ],
  });
  one.querySelector("h2")?.replaceChildren(jobLink(job.id, jobTitle(job)));
  one.append(...groupByError(items).map((group) => failedGroup(job.id, group)));
  if (!isAll)
    one.append(
      h(
        "p",
        { class: "panel-foot" },
        h("a", { href: href(["jobs", job.id, "failed"]) }, "All failed subtasks of this job"),
      ),
    );
  return { panel: one, failed: { job, items, isAll } };
}
