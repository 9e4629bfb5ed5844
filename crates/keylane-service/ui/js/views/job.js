// One job: how far it is, why it waits, its lanes, its subtasks, what failed, and its results.

import { call, curl, get, jobPath } from "../api.js";
import { every, fill, h, refill, setText } from "../dom.js";
import { count, duration, jobTitle, newer, plural } from "../format.js";
import { actionBar, jobActions } from "../parts/actions.js";
import { becauseList } from "../parts/because.js";
import { lanesPanel } from "../parts/lanes.js";
import { pageHead } from "../parts/page.js";
import { payload } from "../parts/payload.js";
import { ago, button, eta, failure, keyLink, panel, progressBar, progressText, skeleton, stateBadge } from "../parts/small.js";
import { copy } from "../parts/toast.js";
import { waitPanel } from "../parts/waittree.js";
import { weightField } from "../parts/weight.js";
import { href } from "../route.js";
import { isFinal, stateWord } from "../words.js";
import { showFailedPart } from "./job-failed.js";
import { showResultsPart } from "./job-results.js";
import { showSubtasksPart } from "./job-subtasks.js";

/** @typedef {import("../types.js").Job} Job */

const PARTS = [
  { name: "", word: "Lanes" },
  { name: "subtasks", word: "Subtasks" },
  { name: "failed", word: "Failed" },
  { name: "results", word: "Results" },
];
const COUNTED = /** @type {const} */ ([
  "succeeded",
  "failed",
  "cancelled",
  "superseded",
  "running",
  "ready",
  "backing_off",
  "waiting",
]);
const ASK_EVERY_MS = 4_000;

/** @param {import("../main.js").View} view */
export function showJob(view) {
  const { app, root, path, signal, title } = view;
  const [id, part = ""] = path;
  title("Job");
  fill(root, h("h1", { tabindex: -1, class: "visually-hidden" }, "Job"), panel("Job", {}, skeleton(5)));
  /** @type {ReturnType<typeof jobPage> | null} */
  let page = null;
  /** @type {Job | undefined} */
  let known;
  const take = (/** @type {Job} */ come) => {
    if (signal.aborted) return;
    const job = (known = newer(known, come));
    app.model.learn(job);
    title(jobTitle(job));
    page ??= jobPage(view, job, part, load);
    page.update(job);
  };
  const load = async () => {
    try {
      take(await get(jobPath(id), {}, signal));
    } catch (error) {
      if (!signal.aborted && !page)
        fill(root, h("h1", { tabindex: -1 }, "Job"), failure(/** @type {Error} */ (error), load));
    }
  };
  app.live.on(
    "*",
    ({ event, job }) => {
      if (job?.id !== id) return;
      if (event === "job_purged") location.hash = href(["jobs"]);
      else take(job);
    },
    signal,
  );
  app.live.on("reset", load, signal);
  load();
}

/**
 * @param {import("../main.js").View} view
 * @param {Job} first
 * @param {string} part
 * @param {() => void} reload
 */
function jobPage(view, first, part, reload) {
  const { app, root, signal } = view;
  const state = stateBadge();
  const bar = actionBar({ isReadOnly: () => app.version?.read_only ?? false, after: reload, about: jobTitle(first) });
  const actions = h(
    "div",
    { class: "actions" },
    bar.element,
    button("Copy as curl", "copy", () => copy(curl(jobPath(first.id)), "Command")),
  );
  const head = pageHead(jobTitle(first), {
    crumb: [h("a", { href: href(["jobs"]) }, "Jobs"), " / "],
    beside: [state.element],
    actions,
  });
  const progress = progressPart();
  const facts = factsPart(app, first, reload);
  const why = whyPart(view, first.id, progress.showChain);
  const waits = waitPanel(app, { job: first.id }, signal);
  const tabs = h("nav", { class: "segments", "aria-label": "Sections of this job" });
  const body = h("div");
  fill(
    root,
    head.element,
    h(
      "div",
      { class: "stack" },
      h("div", { class: "columns" }, h("div", { class: "stack" }, progress.element, why.element, waits), facts.element),
      h("div", null, tabs),
      body,
    ),
  );
  showPart(view, first, part, body, reload);

  const update = (/** @type {Job} */ job) => {
    setText(head.heading, jobTitle(job));
    state.update(job.state);
    progress.update(job);
    facts.update(job);
    why.update(job);
    waits.hidden = why.element.hidden;
    refill(tabs, JSON.stringify([job.counts.failed > 0]), () =>
      PARTS.map(({ name, word }) =>
        h(
          "a",
          { href: href(name ? ["jobs", job.id, name] : ["jobs", job.id]), "aria-current": name === part && "page" },
          word,
          name === "failed" && job.counts.failed > 0 && h("span", { class: "badge" }, "!"),
        ),
      ),
    );
    bar.update(jobActions(job));
  };
  every(signal, ASK_EVERY_MS, () => {
    if (!app.live.isPaused && app.live.connection !== "lost") why.ask();
  });
  return { update };
}

function progressPart() {
  const bar = progressBar();
  bar.element.classList.add("is-large");
  const words = h("p", { class: "hint" });
  const numbers = h("dl", { class: "counts" });
  const chain = h("p", { class: "hint" });
  const element = panel("Progress", { side: words }, h("div", { class: "panel-body" }, bar.element, numbers, chain));
  const showChain = (/** @type {Pick<Job, "longest_key" | "useful_workers">} */ { longest_key: longest, useful_workers: workers }) =>
    refill(chain, JSON.stringify([longest, workers]), () =>
      longest && workers !== undefined
        ? [
            "Key ",
            keyLink(longest.key),
            ` decides the end: ${plural(longest.subtasks, "subtask")} one after another. More than ${plural(workers, "worker")} at a time do not end the job earlier.`,
          ]
        : null,
    );
  const update = (/** @type {Job} */ job) => {
    bar.update(job.counts, job.progress, jobTitle(job));
    setText(
      words,
      `${progressText(job.counts, job.progress)}${isFinal(job.state) || job.eta_ms === undefined ? "" : `, ${eta(job.eta_ms)} left`}`,
    );
    // An event has no chain. What was said before stays until the next answer.
    if (isFinal(job.state) || job.longest_key) showChain(job);
    refill(numbers, JSON.stringify(job.counts), () =>
      COUNTED.map((name) =>
        h(
          "div",
          null,
          h("dt", null, h("span", { class: "dot", "data-state": name, "aria-hidden": "true" }), stateWord(name)),
          h("dd", null, count(job.counts[name])),
        ),
      ),
    );
  };
  return { element, update, showChain };
}

/**
 * @param {import("../main.js").App} app
 * @param {Job} first
 * @param {() => void} reload
 */
function factsPart(app, first, reload) {
  const list = h("dl", { class: "facts" });
  const result = h("div");
  const weight = weightField(app, first, reload);
  const element = panel("Details", {}, list, result);
  const update = (/** @type {Job} */ job) => {
    weight.update(job);
    refill(list, JSON.stringify([job.version, job.state, job.started_at, job.ended_at, job.weight, job.error]), () =>
      factRows(job, weight.element),
    );
    if (job.result !== undefined) refill(result, String(job.version), () => payload(job.result, "Result"));
  };
  return { element, update };
}

/**
 * @param {Job} job
 * @param {HTMLElement} weight
 */
function factRows(job, weight) {
  const labels = Object.entries(job.labels);
  /** @type {[string, import("../dom.js").Child | import("../dom.js").Child[] | undefined | false][]} */
  const rows = [
    ["Id", h("code", { class: "mono" }, job.id)],
    ["Kind", h("a", { href: href(["jobs"], { kind: job.kind }) }, job.kind)],
    ["Tenant", job.tenant !== undefined && job.tenant !== "default" && job.tenant],
    [
      "Labels",
      labels.length > 0 &&
        h(
          "span",
          { class: "labels" },
          labels.map(([name, value]) =>
            h("a", { class: "label", href: href(["jobs"], { label: `${name}:${value}` }) }, `${name}: ${value}`),
          ),
        ),
    ],
    ["Weight", weight],
    ["Priority", job.priority !== "normal" && job.priority],
    ["Submitted", ago(job.created_at)],
    ["Start time", job.run_at && new Date(job.run_at).toLocaleString()],
    [job.expired ? "Expired" : "Expires", job.expires_at && new Date(job.expires_at).toLocaleString()],
    [job.after_on === "end" ? "After the end of" : "After the success of", job.after && jobLinks(job.after)],
    ["Webhook", job.webhook],
    ["Cancelled because", job.after_failed && [...jobLinks([job.after_failed]), " did not succeed"]],
    ["Started", job.started_at && ago(job.started_at)],
    ["Ended", job.ended_at && ago(job.ended_at)],
    ["Duration", job.started_at && job.ended_at && duration(Date.parse(job.ended_at) - Date.parse(job.started_at))],
    ["Error", job.error && h("span", { class: "error-text" }, job.error)],
  ];
  return rows.filter((row) => row[1]).flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)]);
}

/** @param {string[]} ids */
function jobLinks(ids) {
  return ids.map((id) => h("a", { class: "mono", href: href(["jobs", id]) }, id)).flatMap((link, at) => (at === 0 ? [link] : [", ", link]));
}

/**
 * The reasons: in short from the job itself, at length from the server's explanation.
 * @param {import("../main.js").View} view
 * @param {string} id
 * @param {(explained: Pick<Job, "longest_key" | "useful_workers">) => void} showChain
 */
function whyPart({ app, signal }, id, showChain) {
  const body = h("div");
  const element = panel("Why it waits", { side: h("a", { href: href(["allocation"]) }, "How slots are shared") }, body);
  let isOver = false;
  const show = (/** @type {import("../types.js").Because[]} */ reasons) => {
    element.hidden = reasons.length === 0;
    refill(body, JSON.stringify([reasons, reasons.map(({ job }) => app.model.nameOf(job ?? ""))]), () =>
      becauseList(reasons, app.model),
    );
  };
  const update = (/** @type {Job} */ job) => {
    isOver = isFinal(job.state);
    show(isOver ? [] : (job.waiting_because ?? []));
  };
  const ask = async () => {
    if (isOver) return;
    try {
      const explained = await call(`${jobPath(id)}/explain`, { signal });
      if (isOver) return;
      show(explained.because);
      showChain(explained);
    } catch {
      // What the job itself said stays.
    }
  };
  return { element, update, ask };
}

/**
 * @param {import("../main.js").View} view
 * @param {Job} job
 * @param {string} part
 * @param {HTMLElement} body
 * @param {() => void} reload
 */
function showPart(view, job, part, body, reload) {
  if (part === "subtasks") showSubtasksPart(view, job, body);
  else if (part === "failed") showFailedPart(view, job, body, reload);
  else if (part === "results") showResultsPart(view, job, body);
  else fill(body, lanesPanel(view, { job: job.id }));
}
