// The past of the server: what ran, ended and waited, over hours and days, and across restarts.

import { get } from "../api.js";
import { every, fill, h, refill, setText } from "../dom.js";
import { clock, duration, jobTitle } from "../format.js";
import { PastLanes } from "../history/lanes.js";
import { moved, periodOf, queryOf, SPANS } from "../history/periods.js";
import { jobSeries, namesIn, rateSeries, waitSeries } from "../history/series.js";
import { StackChart } from "../history/stack.js";
import { pageHead } from "../parts/page.js";
import { button, failure, panel } from "../parts/small.js";
import { setQuery } from "../route.js";

/** @typedef {import("../types.js").History} History */

const ASK_EVERY_MS = 10_000;

/** @param {import("../main.js").View} view */
export function showHistory({ app, root, query, signal, title }) {
  title("History");
  let period = periodOf(query);
  const words = h("span", { class: "hint" });
  const problem = h("div");
  /** @type {Map<string, string>} */
  let names = new Map();
  const nameOf = (/** @type {string} */ id) => names.get(id) ?? app.model.nameOf(id) ?? jobTitle({ id, kind: "job" });
  const linkOf = (/** @type {{name: string, label: string}} */ { name, label }) =>
    name === "others" ? label : h("a", { href: `#/jobs/${name}` }, label);
  const slots = new StackChart({ title: "Running subtasks by job", nothing: "Nothing ran", labelOf: linkOf }, signal);
  const lanes = new PastLanes(nameOf, signal);
  const rates = new StackChart({ title: "Ended subtasks a second", nothing: "Nothing has ended" }, signal);
  const waits = new StackChart({ title: "Waiting subtasks by reason", nothing: "Nothing waited" }, signal);

  /** @param {History} past */
  const show = ({ from, to, interval_ms: intervalMs, samples, slices = [] }) => {
    const [begin, end] = [Date.parse(from), Date.parse(to)];
    const times = samples.map(({ at }) => Date.parse(at));
    const frame = { times, from: begin, to: end, intervalMs };
    names = namesIn(samples);
    const top = samples.reduce((most, sample) => Math.max(most, sample.slots), 1);
    slots.show({ ...frame, series: jobSeries(samples), top });
    lanes.show(slices, { from: begin, to: end });
    rates.show({ ...frame, series: rateSeries(samples, intervalMs) });
    waits.show({ ...frame, series: waitSeries(samples) });
    setText(words, `${clock(begin)} to ${clock(end)}, in intervals of ${duration(intervalMs)}`);
  };

  let isShown = false;
  const load = async (isWanted = false) => {
    const isStill = app.live.isPaused || app.live.connection === "lost" || period.to !== null;
    if (isShown && !isWanted && isStill) return;
    const asked = period;
    const to = period.to ?? app.model.now();
    const from = new Date(to - SPANS[period.span].ms).toISOString();
    try {
      const past = await get(
        "v1/history",
        { from, to: new Date(to).toISOString(), include: "slices" },
        signal,
      );
      // The period may have changed during the request; then a newer request is on its way.
      if (signal.aborted || asked !== period) return;
      refill(problem, "none", () => null);
      show(past);
      isShown = true;
    } catch (error) {
      const { message } = /** @type {Error} */ (error);
      if (!signal.aborted)
        refill(problem, message, () => failure(/** @type {Error} */ (error), () => load(true)));
    }
  };

  const bar = periodBar(
    () => period,
    (next) => {
      period = next;
      setQuery(queryOf(next));
      load(true);
    },
    () => app.model.now(),
  );
  fill(
    root,
    pageHead("History", { beside: [words] }).element,
    bar,
    problem,
    h(
      "div",
      { class: "stack" },
      panel("Running subtasks by job", { side: slots.toggle }, slots.element),
      panel("Longest attempts by slot", { side: lanes.toggle }, lanes.element),
      panel("Ended subtasks a second", { side: rates.toggle }, rates.element),
      panel("Waiting subtasks by reason", { side: waits.toggle }, waits.element),
    ),
  );
  every(signal, ASK_EVERY_MS, () => load());
}

/**
 * @param {() => import("../history/periods.js").Period} current
 * @param {(period: import("../history/periods.js").Period) => void} choose
 * @param {() => number} now
 */
function periodBar(current, choose, now) {
  const spans = Object.entries(SPANS).map(([span, { label }]) => {
    const choice = h("button", { type: "button", class: "button is-small" }, label);
    choice.addEventListener("click", () => go({ ...current(), span }));
    return { span, choice };
  });
  const earlier = button("Earlier", "back", () => go(moved(current(), -1, now())), { class: "button is-small" });
  const later = button("Later", "next", () => go(moved(current(), 1, now())), { class: "button is-small" });
  const latest = button("Now", "running", () => go({ ...current(), to: null }), { class: "button is-small" });
  const go = (/** @type {import("../history/periods.js").Period} */ next) => {
    choose(next);
    mark();
  };
  const mark = () => {
    const { span, to } = current();
    for (const one of spans) one.choice.setAttribute("aria-pressed", String(one.span === span));
    later.disabled = to === null;
    latest.disabled = to === null;
  };
  mark();
  return h(
    "div",
    { class: "lanes-tools period", role: "group", "aria-label": "Period" },
    spans.map(({ choice }) => choice),
    earlier,
    later,
    latest,
  );
}
