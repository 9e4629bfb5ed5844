// All jobs, newest first, filtered by what the address says.

import { get } from "../api.js";
import { fill, h, refill } from "../dom.js";
import { count, newer, newestFirst } from "../format.js";
import { icon } from "../icons.js";
import { later } from "../pace.js";
import { actionBar } from "../parts/actions.js";
import { bulkActions } from "../parts/bulk.js";
import { firstJob } from "../parts/first.js";
import { jobTable } from "../parts/jobtable.js";
import { pageHead, pager } from "../parts/page.js";
import { empty, failure, notShown, panel, skeleton } from "../parts/small.js";
import { href, parseRoute, setQuery } from "../route.js";
import { JOB_STATES, stateWord } from "../words.js";

/**
 * @typedef {import("../types.js").Job} Job
 * @typedef {{event: string, job: Job}} Told
 */

const PAGE = 50;

/** @param {import("../main.js").View} view */
export function showJobs(view) {
  const { app, root, signal, title } = view;
  title("Jobs");
  const shown = jobTable("Jobs");
  const place = h("div", null, skeleton(8));
  const pages = pager(() => load());
  const lost = h("div", { class: "not-shown", role: "alert", hidden: true });
  /** @type {Map<string, Job>} */
  let jobs = new Map();
  let asked = 0;
  /** What the stream has said since the newest question: its answer may be older. @type {Told[] | null} */
  let heard = null;

  const load = async () => {
    const mine = (asked += 1);
    heard = [];
    try {
      const page = await get("v1/jobs", { ...filters(), cursor: pages.cursor, limit: PAGE }, signal);
      // An answer to an older question is of no interest.
      if (mine !== asked) return;
      jobs = new Map(page.items.map((/** @type {Job} */ job) => [job.id, newer(jobs.get(job.id), job)]));
      for (const job of jobs.values()) app.model.learn(job);
      heard?.forEach(note);
      heard = null;
      pages.show(page.next_cursor);
      notShown(lost, page.damaged);
      offer();
      await show();
    } catch (error) {
      if (signal.aborted || mine !== asked) return;
      heard = null;
      fill(place, failure(/** @type {Error} */ (error), load));
    }
  };
  /** Whether a job is newer than the end of the page; older jobs are on another page. @param {Job} job */
  const add = (job) => {
    const all = [...jobs.values(), job].sort(newestFirst);
    jobs = new Map(all.slice(0, PAGE).map((one) => [one.id, one]));
  };
  /** Whether it changed anything. @param {Told} told */
  const note = ({ event, job }) => {
    const { state } = filters();
    if (event === "job_purged" || (state && job.state !== state)) jobs.delete(job.id);
    else if (jobs.has(job.id)) jobs.set(job.id, newer(jobs.get(job.id), job));
    else if (pages.isFirst && fits(job)) add(job);
    else return false;
    return true;
  };
  const show = async () => {
    if (jobs.size > 0) {
      if (!shown.element.isConnected) fill(place, shown.element);
      shown.show([...jobs.values()]);
    } else if (Object.values(filters()).some(Boolean)) {
      fill(place, empty("No job matches", h("p", null, h("a", { href: href(["jobs"]) }, "Show all jobs"))));
    } else {
      const kind = await firstKind(signal);
      // The filters may have changed during the request; then a newer request has filled the page.
      if (jobs.size === 0 && !Object.values(filters()).some(Boolean)) fill(place, firstJob(kind));
    }
  };

  const bulk = actionBar({
    isReadOnly: () => app.version?.read_only ?? false,
    after: () => load(),
    about: "jobs that match",
  });
  const offer = () => bulk.update(bulkActions(filters(), signal));
  const bar = filterBar(view, () => {
    pages.reset();
    offer();
    load();
  });
  offer();
  fill(root, pageHead("Jobs", { actions: bulk.element }).element, bar, panel("List", { class: "is-bare" }, lost, place, pages.element));
  root.querySelector(".is-bare .panel-head")?.classList.add("visually-hidden");

  app.live.on(
    "*",
    ({ event, job }) => {
      if (!job) return;
      heard?.push({ event, job });
      if (note({ event, job })) show();
    },
    signal,
  );
  app.live.on("reset", load, signal);
  load();
}

function filters() {
  const { query } = parseRoute(location.hash);
  const of = (/** @type {string} */ name) => query.get(name) ?? "";
  return { state: of("state"), kind: of("kind"), label: of("label"), q: of("q") };
}

/**
 * Whether a new job matches the filters. A filter that only the server can check counts as no match.
 * @param {Job} job
 */
function fits(job) {
  const { state, kind, label, q } = filters();
  const [name, ...value] = label.split(":");
  if (q) return false;
  return (
    (!state || job.state === state) && (!kind || job.kind === kind) && (!label || job.labels[name] === value.join(":"))
  );
}

/**
 * @param {import("../main.js").View} view
 * @param {() => void} changed
 */
function filterBar({ app, signal }, changed) {
  const now = filters();
  const input = (/** @type {string} */ name, /** @type {string} */ value) => {
    setQuery({ [name]: value });
    states.mark();
    changed();
  };
  const search = h("input", {
    type: "search",
    class: "input",
    placeholder: "Name or id",
    "aria-label": "Search by name or id",
    value: now.q,
  });
  const label = h("input", {
    type: "text",
    class: "input",
    placeholder: "label:value",
    "aria-label": "Label, as name:value",
    value: now.label,
    size: 16,
  });
  const kind = h(
    "select",
    { class: "input", "aria-label": "Kind", onchange: () => input("kind", kind.value) },
    h("option", { value: "" }, "All kinds"),
  );
  search.addEventListener(
    "input",
    later(() => input("q", search.value.trim()), 250),
  );
  label.addEventListener(
    "input",
    later(() => (/^[^:]+:./.test(label.value.trim()) || label.value === "") && input("label", label.value.trim()), 250),
  );
  const states = stateFilter(app, signal, (state) => input("state", state));
  offerKinds(kind, now.kind, signal);
  return h(
    "div",
    { class: "filters", role: "search" },
    states.element,
    h("div", { class: "search" }, icon("search"), search),
    kind,
    label,
  );
}

/**
 * @param {HTMLSelectElement} select
 * @param {string} chosen
 * @param {AbortSignal} signal
 */
async function offerKinds(select, chosen, signal) {
  const names = new Set(chosen ? [chosen] : []);
  try {
    for (const { name } of (await get("v1/kinds", {}, signal)).items) names.add(name);
  } catch {
    // The list itself shows the error.
  }
  for (const name of names) select.append(h("option", { value: name }, name));
  select.value = chosen;
}

/**
 * @param {import("../main.js").App} app
 * @param {AbortSignal} signal
 * @param {(state: string) => void} choose
 */
function stateFilter(app, signal, choose) {
  const buttons = ["", ...JOB_STATES].map((state) =>
    h(
      "button",
      { type: "button", "data-state": state, onclick: () => choose(state) },
      state && icon(state),
      state ? stateWord(state) : "All",
      h("span"),
    ),
  );
  const mark = () => {
    const { state } = filters();
    for (const one of buttons) one.setAttribute("aria-pressed", String(one.dataset.state === state));
  };
  const number = () => {
    for (const one of buttons) {
      const jobs = app.model.summary?.jobs[/** @type {import("../types.js").JobState} */ (one.dataset.state)];
      const side = /** @type {HTMLElement} */ (one.lastElementChild);
      refill(side, String(jobs), () => (jobs ? h("span", { class: "badge" }, count(jobs)) : null));
    }
  };
  app.live.on("summary", number, signal);
  app.model.onLoad(number, signal);
  number();
  mark();
  return { element: h("div", { class: "segments", role: "group", "aria-label": "State" }, buttons), mark };
}

/** @param {AbortSignal} signal */
async function firstKind(signal) {
  try {
    return (await get("v1/kinds", {}, signal)).items[0]?.name ?? "my-kind";
  } catch {
    return "my-kind";
  }
}
