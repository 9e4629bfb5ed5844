// The server at a glance: numbers, lanes, the jobs that are not over, and the keys that stand longest.

import { get } from "../api.js";
import { every, fill, h, refill, setText } from "../dom.js";
import { bytes, count, duration, newer, newestFirst, plural, short } from "../format.js";
import { firstJob } from "../parts/first.js";
import { jobTable } from "../parts/jobtable.js";
import { keyTable } from "../parts/keytable.js";
import { lanesPanel } from "../parts/lanes.js";
import { pageHead } from "../parts/page.js";
import { empty, failure, keyLink, panel, skeleton } from "../parts/small.js";
import { sparkline } from "../parts/spark.js";
import { href } from "../route.js";
import { isFinal } from "../words.js";

/**
 * @typedef {import("../types.js").Job} Job
 * @typedef {{event: string, job: Job}} Told
 */

const SHOWN_JOBS = 8;
const SHOWN_KEYS = 7;
const ASK_EVERY_MS = 2_000;

/** @param {import("../main.js").View} view */
export function showOverview(view) {
  const { root, title } = view;
  title("Overview");
  const jobs = h("div", null, skeleton());
  const keys = h("div", null, skeleton());
  fill(
    root,
    h(
      "div",
      { class: "stack" },
      pageHead("Overview").element,
      tiles(view),
      lanesPanel(view),
      h(
        "div",
        { class: "columns" },
        panel("Jobs", { side: h("a", { href: href(["jobs"]) }, "All jobs") }, jobs),
        panel("Oldest waiting keys", { side: h("a", { href: href(["keys"]) }, "All keys") }, keys, longestKey(view)),
      ),
    ),
  );
  root.querySelector(".page-head")?.classList.add("visually-hidden");
  followJobs(view, jobs);
  followKeys(view, keys);
}

/** @param {import("../main.js").View} view */
function tiles({ app, signal }) {
  const rate = sparkline("Subtasks ended per second, in the last two minutes");
  const all = {
    busy: tile("Slots busy"),
    rate: tile("Per second", rate.element),
    ready: tile("Ready"),
    waiting: tile("Waiting"),
    backing: tile("Backing off"),
    failed: tile("Failed"),
    head: tile("Oldest head"),
    store: tile("Store"),
  };
  const update = () => {
    const { summary, samples } = app.model;
    if (!summary) return;
    const ended = app.model.rate();
    all.busy.set(count(summary.busy), `of ${count(summary.slots)}`);
    all.rate.set(ended === null ? "–" : short(ended));
    rate.show(ratesOf(samples));
    all.ready.set(count(summary.ready));
    all.waiting.set(count(summary.waiting), summary.keys > 0 ? `in ${plural(summary.keys, "key")}` : "");
    all.backing.set(
      count(summary.backing_off),
      summary.retried_total > 0 ? `${short(summary.retried_total)} retried` : "",
    );
    all.failed.set(
      count(summary.failed_total),
      summary.failed_total > 0 ? `since ${duration(app.model.now() - Date.parse(summary.started_at))}` : "",
    );
    all.failed.element.dataset.how = summary.failed_total > 0 ? "bad" : "";
    all.head.set(summary.keys > 0 ? duration(summary.oldest_head_ms) : "–");
    all.store.set(bytes(summary.store_bytes), summary.store);
    all.store.element.dataset.how = summary.store === "ok" ? "" : "bad";
  };
  app.live.on("summary", update, signal);
  app.model.onLoad(update, signal);
  update();
  return h(
    "dl",
    { class: "tiles" },
    Object.values(all).map((one) => one.element),
  );
}

/**
 * The longest key, and the number of workers beyond which more do not help.
 * @param {import("../main.js").View} view
 */
function longestKey({ app, signal }) {
  const element = h("p", { class: "longest-key", hidden: true });
  const update = () => {
    const { summary } = app.model;
    const longest = summary?.longest_key;
    element.hidden = !longest;
    if (!summary || !longest) return;
    const left = summary.waiting + summary.ready + summary.backing_off + summary.busy;
    const useful = Math.max(1, Math.ceil(left / longest.subtasks));
    refill(element, JSON.stringify([longest, useful]), () => [
      "Longest key: ",
      keyLink(longest.key),
      ` with ${plural(longest.subtasks, "subtask")}. More than ${plural(useful, "worker")} at a time do not end all work earlier.`,
    ]);
  };
  app.live.on("summary", update, signal);
  app.model.onLoad(update, signal);
  update();
  return element;
}

/**
 * A number that is not there before it is known.
 * @param {string} word
 * @param {Element} [more]
 */
function tile(word, more) {
  const value = h(
    "span",
    null,
    h("span", { class: "unknown" }),
    h("span", { class: "visually-hidden" }, "not known yet"),
  );
  const small = h("small");
  const element = h("div", { class: "tile" }, h("dt", null, word), h("dd", null, value, small, more));
  const set = (/** @type {string} */ text, side = "") => {
    setText(value, text);
    setText(small, side);
  };
  return { element, set };
}

/** @param {import("../model.js").Sample[]} samples */
function ratesOf(samples) {
  return samples.slice(1).map((sample, index) => {
    const before = samples[index];
    return ((sample.ended - before.ended) / Math.max(1, sample.at - before.at)) * 1000;
  });
}

/**
 * @param {import("../main.js").View} view
 * @param {HTMLElement} place
 */
async function followJobs({ app, signal }, place) {
  const shown = jobTable("Newest jobs", { isShort: true });
  /** @type {Map<string, Job>} */
  let jobs = new Map();
  const show = () => {
    if (jobs.size === 0) return;
    if (!shown.element.isConnected) fill(place, shown.element);
    shown.show(order([...jobs.values()]).slice(0, SHOWN_JOBS));
  };
  /** What the stream has said since the newest question: its answers may be older. @type {Told[]} */
  let heard = [];
  const note = (/** @type {Told} */ { event, job }) => {
    if (event === "job_purged") jobs.delete(job.id);
    else jobs.set(job.id, newer(jobs.get(job.id), job));
  };
  let isAsking = false;
  const load = async () => {
    isAsking = true;
    heard = [];
    try {
      const [running, newest] = await Promise.all([
        get("v1/jobs", { state: "running", limit: SHOWN_JOBS }, signal),
        get("v1/jobs", { limit: SHOWN_JOBS }, signal),
      ]);
      jobs = new Map([...running.items, ...newest.items].map((job) => [job.id, newer(jobs.get(job.id), job)]));
      heard.forEach(note);
      for (const job of jobs.values()) app.model.learn(job);
      if (jobs.size === 0) fill(place, firstJob(await anyKind(signal)));
    } catch (error) {
      if (!signal.aborted && jobs.size === 0) fill(place, failure(/** @type {Error} */ (error), load));
    } finally {
      isAsking = false;
    }
    show();
  };
  app.live.on(
    "*",
    ({ event, job }) => {
      if (!job) return;
      if (isAsking) heard.push({ event, job });
      note({ event, job });
      if (jobs.size > 200)
        jobs = new Map(
          order([...jobs.values()])
            .slice(0, SHOWN_JOBS * 2)
            .map((one) => [one.id, one]),
        );
      show();
    },
    signal,
  );
  app.live.on("reset", load, signal);
  load();
}

/**
 * Running jobs first, then waiting, then ended ones; the newest first within each group.
 * @param {Job[]} jobs
 */
function order(jobs) {
  const rank = (/** @type {Job} */ { state }) =>
    state === "running" || state === "cancelling" ? 0 : isFinal(state) ? 2 : 1;
  return jobs.sort((a, b) => rank(a) - rank(b) || newestFirst(a, b));
}

/** @param {AbortSignal} signal */
async function anyKind(signal) {
  try {
    return (await get("v1/kinds", {}, signal)).items[0]?.name ?? "my-kind";
  } catch {
    return "my-kind";
  }
}

/**
 * @param {import("../main.js").View} view
 * @param {HTMLElement} place
 */
function followKeys({ app, signal }, place) {
  const shown = keyTable("Keys with the oldest heads", { app, isShort: true });
  const load = async () => {
    if (app.live.isPaused || app.live.connection === "lost") return;
    try {
      const { items } = await get("v1/keys", { sort: "head_age", limit: SHOWN_KEYS }, signal);
      if (items.length === 0)
        fill(place, empty("No key has work", h("p", null, "Keys appear here while they have unfinished subtasks.")));
      else if (!shown.element.isConnected) fill(place, shown.element);
      shown.show(items);
    } catch (error) {
      if (!signal.aborted && !shown.element.isConnected) fill(place, failure(/** @type {Error} */ (error), load));
    }
  };
  every(signal, ASK_EVERY_MS, load);
}
